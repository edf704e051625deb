#!/usr/bin/env python3
"""Checkpoints in a bucket: uploads, restores, and what they cost training, memory and the service.

Objects are moved to and from SeaweedFS, or the server of --server, by Pawl's store, curl, awscrt,
boto3, rclone and s5cmd: in each round another order, new keys, and a fresh SeaweedFS. --server
takes AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY. All else runs on the stand-in (bucket_server.c of
the tests), whose speed is known, and which counts requests. curl is given presigned addresses, and
signs for the stand-in itself. CPU is that of the client alone, without the start of an interpreter.
--long uploads 4 GiB at 1 MiB a second (over an hour), and saves 2,000 times. --only measures one
part. --quick shows only that it works.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections import defaultdict
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from shared._agent import scratch
from shared._bucket_clients import (
    PART_MIB,
    Clients,
    Cost,
    Place,
    find_peers,
    find_program,
    forget_keys,
)
from shared._bucket_saving import (
    FULL,
    HOLD_MS,
    LONG,
    QUICK,
    measure_memory,
    measure_newest,
    measure_requests,
    measure_training,
)
from shared._bucket_server import StandIn, no_seaweedfs, seaweedfs, stand_in
from shared._report import Report, describe_machine, make_parser, ratio_of

OBJECT_MIB, QUICK_MIB = 1024, 48
CONN_MIB, CONNECTIONS = 40, 8  # speed of a connection of the stand-in; how many Pawl opens
PARTS = ("objects", "paced", "training", "memory", "requests", "newest")  # in this order
Costs = dict[str, list[Cost]]  # costs of each client, one a round

# verb, peer -> least rate and most CPU, as ratios of Pawl's to the peer's
WANTED: dict[tuple[str, str], tuple[float | None, float | None]] = {
    ("put", "curl"): (0.95, None),
    ("put", "awscrt"): (1.0, 1.0),
    ("put", "boto3"): (1.5, 0.4),
    ("put", "rclone"): (2.0, 0.4),
    ("get", "curl"): (0.9, None),
    ("get", "awscrt"): (None, 1.0),
}
TITLES = {
    "put": f"upload, signed, CRC-32C of each of the parts of {PART_MIB} MiB, {CONNECTIONS} at once",
    "get": "restore by ranges into an arena, each MiB checked; others write to memory",
}
NAMES = {
    "curl": "curl, one request, no checksum",
    "unsummed": "awscrt, no checksum",
    "boto3": "boto3's defaults",
    "rclone": "rclone's defaults",
}


# ---- objects ----


def open_place(options: argparse.Namespace, folder: Path) -> AbstractContextManager[Place]:
    """A fresh SeaweedFS, or the server of the options."""
    if not options.server:
        return seaweedfs(folder)
    url = options.server
    return contextlib.nullcontext(Place(url.rstrip("/"), options.bucket, *options.key, url))


def memory_folder() -> Path:
    """Where files cost least, so that a client is not measured by this disk."""
    return Path("/dev/shm" if os.access("/dev/shm", os.W_OK) else "/tmp")


def move_all(
    clients: Clients, run: str, round_: int, source: Path, target: Path, costs: dict[str, Costs]
) -> None:
    """One round: each client uploads an object of its own, and reads it back."""
    for verb in ("put", "get"):
        moves = list(clients.moves(verb).items())
        turn = round_ % len(moves)
        for name, move in moves[turn:] + moves[:turn]:
            os.sync()  # writes of the server's last object must not fall into this move
            key = f"bench/{run}/{name}-{round_}"
            costs[verb][name].append(move(verb, key, source if verb == "put" else target))
            target.unlink(missing_ok=True)


def measure_objects(
    options: argparse.Namespace, folder: Path, mover: Path, mib: int, rounds: int
) -> dict[str, Costs]:
    python = None if options.quick else find_peers()
    source, target = folder / "object", memory_folder() / f"pawl-bench-{os.getpid()}"
    with source.open("wb") as file:
        for _ in range(mib):
            file.write(os.urandom(1 << 20))
    costs: dict[str, Costs] = {"put": defaultdict(list), "get": defaultdict(list)}
    run = os.urandom(4).hex()
    for round_ in range(rounds):
        with open_place(options, folder) as place:
            warm = Clients(place, mover, None, QUICK_MIB)
            warm.pawl("put", f"bench/{run}/warm", source)  # the server makes its first files
            move_all(Clients(place, mover, python, mib), run, round_, source, target, costs)
    return costs


def compare(report: Report, verb: str, costs: Costs, mib: int) -> None:
    """Rows: each peer beside Pawl, by the ratios of the rounds."""
    report.title(TITLES[verb])
    own_s, own_cpu = ([cost[i] for cost in costs["pawl"]] for i in (0, 1))
    cpu_gib = statistics.median(own_cpu) / mib * 1024
    rate = mib / statistics.median(own_s)
    report.note(f"{verb}_pawl", "Pawl", rate, "MiB/s", f"{cpu_gib:.2f} CPU-s/GiB")
    for peer in [name for name in costs if name != "pawl"]:
        s, cpu_s = ([cost[i] for cost in costs[peer]] for i in (0, 1))
        cpu_gib = statistics.median(cpu_s) / mib * 1024
        beside = f"{mib / statistics.median(s):.0f} MiB/s, {cpu_gib:.2f} CPU-s/GiB"
        rate_goal, cpu_goal = WANTED.get((verb, peer), (None, None))
        what = f"rate, to {NAMES.get(peer, peer)}"
        faster = ratio_of(s, own_s)
        if rate_goal is None:
            report.note(f"{verb}_{peer}", what, faster, "x", beside)
        else:
            report.at_least(f"{verb}_{peer}", what, faster, rate_goal, "x", beside)
        cpu = ratio_of(own_cpu, cpu_s)
        if cpu_goal is None:
            report.note(f"{verb}_{peer}_cpu", "  CPU", cpu, "x")
        else:
            report.at_most(f"{verb}_{peer}_cpu", "  CPU", cpu, cpu_goal, "x")


def loopback_mib_s(mib: int) -> float:
    """Bytes from one thread to another by TCP: no client and no server here is faster."""
    piece = bytes(1 << 20)
    into = bytearray(1 << 20)
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as sender,
        listener.accept()[0] as receiver,
    ):

        def receive() -> None:
            while receiver.recv_into(into):
                pass

        thread = threading.Thread(target=receive)
        begun = time.perf_counter()
        thread.start()
        for _ in range(mib):
            sender.sendall(piece)
        sender.shutdown(socket.SHUT_WR)
        thread.join()
        return mib / (time.perf_counter() - begun)


# ---- connections of a known speed ----


def measure_paced(report: Report, server: StandIn, mover: Path, mib: int, rounds: int) -> None:
    """Rows: an upload by many connections, each of which is slow."""
    clients = Clients(server.place, mover, None, mib)
    ways = {"pawl": clients.pawl, "curl": clients.curl_signing}
    costs: Costs = defaultdict(list)
    busy = []
    server.pace(conn_mib=CONN_MIB, hold_ms=HOLD_MS)
    with tempfile.NamedTemporaryFile(dir=memory_folder()) as file:
        source = Path(file.name)
        file.truncate(mib << 20)
        for round_ in range(rounds):
            for name in ways if round_ % 2 else reversed(ways):
                before = server.counts()["cpu_s"]
                costs[name].append(ways[name]("put", f"{name}-{round_}", source))
                if name == "pawl":
                    busy.append((server.counts()["cpu_s"] - before) / costs[name][-1][0])
    report.title(
        f"upload to the stand-in: {CONN_MIB} MiB/s a connection, answers after {HOLD_MS} ms"
    )
    limit = CONNECTIONS * CONN_MIB
    report.bound("paced_bound", f"{CONNECTIONS} connections", limit, "MiB/s")
    own_s, curl_s = ([one[0] for one in costs[name]] for name in ("pawl", "curl"))
    rate = mib / statistics.median(own_s)
    beside = f"the stand-in takes {statistics.median(busy):.2f} of a core"
    report.at_least("paced_pawl", "Pawl", rate, 0.9 * limit, "MiB/s", beside)
    beside = f"{mib / statistics.median(curl_s):.0f} MiB/s"
    faster = ratio_of(curl_s, own_s)
    report.at_least("paced_curl", "rate, to curl, one request", faster, 5, "x", beside)


def parse_options() -> argparse.Namespace:
    parser: Any = make_parser(__doc__, "small objects, once", "disk of the servers", "/var/tmp")
    parser.add_argument("--long", action="store_true", help="the slowest upload, 2,000 saves")
    parser.add_argument("--only", choices=PARTS, help="this part alone")
    parser.add_argument("--mib", type=int, help=f"size of the objects; {OBJECT_MIB}")
    parser.add_argument("--server", metavar="URL", help="another S3 server, such as radosgw")
    parser.add_argument("--bucket", default="pawltest", help="bucket on it, where objects stay")
    options = parser.parse_args()
    key = [os.environ.get(name, "") for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")]
    options.key = key
    if options.server and not all(key):
        parser.error("--server needs AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
    forget_keys()
    return options


def main() -> int:
    options = parse_options()
    sizes = QUICK if options.quick else LONG if options.long else FULL
    why = "" if options.server else no_seaweedfs()
    if why:
        sys.exit(f"bench/bucket.py: {why}: `make bench` installs it, or name a --server")
    mib = options.mib or (QUICK_MIB if options.quick else OBJECT_MIB)
    mover, program = (
        find_program(path, options.quick)
        for path in ("bench/bucket_move", "tests/lib/bucket_server")
    )
    setting = {**describe_machine(), "server": options.server or "SeaweedFS"}
    if options.quick:
        setting["quick"] = "yes: these numbers mean nothing"
    with scratch(options.dir) as folder:
        report = Report("bucket", sizes.rounds, setting)
        if options.only in (None, "objects"):
            costs = measure_objects(options, folder, mover, mib, sizes.rounds)
            report.title(f"objects of {mib} MiB on {setting['server']}")
            report.bound("loopback", "TCP on this host", loopback_mib_s(mib), "MiB/s")
            for verb in ("put", "get"):
                compare(report, verb, costs[verb], mib)
        for part, measure, *args in (
            ("paced", measure_paced, mover, mib, sizes.rounds),
            ("training", measure_training, sizes, folder),
            ("memory", measure_memory, sizes),
            ("requests", measure_requests),
            ("newest", measure_newest, sizes, mover),
        ):
            if options.only in (None, part):
                with stand_in(program) as server:
                    measure(report, server, *args)
        report.finish(options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
