"""torch.distributed's backend "pawl", on one host."""

from __future__ import annotations

import os
import re
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import nursery
import program
import ranks
import waits
from conftest import SEED, real_core

HERE = Path(__file__).parent
COLLECTIVES = [
    "all_reduce", "operations", "what_cannot_be", "layouts", "sparse", "other_types", "rooted",
    "gathered", "scattered", "swapped", "messages", "objects", "coalesced", "futures", "timeouts",
    "groups", "bits_are_the_same_everywhere",
]  # fmt: skip
METHODS = [
    "like_gloo", "ranks_that_are_none", "sequence_numbers", "events_as_gloo_has_them",
    "what_a_trace_says", "what_is_recorded_stays_right",
]  # fmt: skip
TORCH = [
    "ddp", "ddp_bucket_views", "ddp_unused", "ddp_static_graph", "ddp_without_buffers",
    "ddp_no_sync", "ddp_hooks", "our_hook", "ddp_uneven",
    "ddp_uneven_by_those_left", "ddp_sparse", "like_one_process", "like_another_order",
    "zero_redundancy", "fsdp2", "fsdp1", "hybrid", "dtensor", "functional", "compiled",
    "checkpoints", "pipelining",
]  # fmt: skip
PARTS = [
    "transformer_by_tensors", "transformer_by_sequences", "experts_by_tensors",
    "experts_by_ranks", "experts_by_ranks_and_tensors", "fsdp_like_single", "fsdp_and_tensors",
    "placements_on_a_line", "placements_on_a_square", "orders_on_a_square",
    "distributed_from_rank_0", "operators_on_every_placement", "gradients_on_every_placement",
    "state_of_ddp", "state_of_fsdp", "checkpoint_with_an_extension", "shards_in_any_order",
    "a_fake_group_beside", "pipeline_GPipe", "pipeline_1F1B", "pipeline_Interleaved1F1B",
    "pipeline_LoopedBFS", "pipeline_InterleavedZeroBubble", "pipeline_ZBVZeroBubble",
    "pipeline_DualPipeV",
]  # fmt: skip


@pytest.mark.parametrize("world", [2, 3, 4])
def test_every_collective(world: int) -> None:
    for said in ranks.run_ranks(HERE / "group_rank.py", world):
        assert said == COLLECTIVES


@pytest.mark.parametrize("world", [2, 3])
def test_calls_that_share_memory(world: int) -> None:
    for said in ranks.run_ranks(HERE / "group_overlap_rank.py", world, str(SEED), "40"):
        assert said == ["held"]


@pytest.mark.parametrize("world", [2, 3])
def test_methods_of_the_group_and_events(world: int) -> None:
    for said in ranks.run_ranks(HERE / "group_method_rank.py", world):
        assert said == METHODS


@pytest.mark.skipif(not os.environ.get("PAWL_LONG"), reason="9 GB of memory: make test-long")
def test_more_bytes_than_32_bits_count() -> None:
    for said in ranks.run_ranks(HERE / "group_rank.py", 2, "beyond_32_bits"):
        assert said == ["beyond_32_bits"]


@pytest.mark.slow
@pytest.mark.parametrize("world", [2, 4])
def test_what_torch_builds_on_groups(world: int) -> None:
    for said in ranks.run_ranks(HERE / "group_torch_rank.py", world):
        assert said == TORCH


@pytest.mark.slow
@pytest.mark.parametrize("world", [2, 4])
def test_torchs_own_models_and_helpers(world: int) -> None:
    try:
        heard = ranks.run_ranks(HERE / "group_tensor_rank.py", world)
    except AssertionError as error:
        failed = [line for line in str(error).splitlines() if line.startswith("! rank ")]
        raise AssertionError("\n".join(failed) or "no part is named") from error
    for said in heard:
        if said[0].startswith("lacks "):
            pytest.skip(f"torch {said[0]}")
        assert said == PARTS


def end(how: str, world: int = 3, **env: str) -> list[list[str]]:
    """Runs ranks of which rank 1 ends badly. Returns the other ranks' lines."""
    started = ranks.start_ranks(
        HERE / "group_end_rank.py", world, how, env=program.clean_env() | env
    )
    said = []
    try:
        for rank, process in enumerate(started):
            if rank != 1:
                text = process.communicate(timeout=program.LIMIT_S)[0]
                said.append(ranks.say(text))
                assert len(said[-1]) == 2, text
    finally:
        ranks.stop(started)
    return said


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ("kill", "rank 1 is lost: its process ended"),
        ("leave", "rank 1 has left the group"),
        ("exit", "rank 1 has left the group"),
        ("shape", "all_reduce(sum) of 1001 float32"),
        ("order", "broadcast of 1000 float32 from rank 0"),
        ("skip", "barrier"),
    ],
)
def test_whoever_ends_badly_is_named(how: str, text: str) -> None:
    said = end(how)
    assert all("PawlError: " in error and "rank 1" in error for error, _ in said), said
    assert any(text in error for error, _ in said), said
    waits.check_sooner(max(float(seconds) for _, seconds in said), waits.NAMED_S, "rank 1 is named")


@pytest.mark.parametrize(
    ("how", "texts"),
    [
        ("empty", ["all_reduce(sum) of 0 float32", "all_reduce(sum) of 1000 float32"]),
        ("gathered", ["all_gather of 0 float32", "all_gather of 1000 float32"]),
        ("scattered", ["reduce_scatter(sum) of 0 ", "reduce_scatter(sum) of 1000 "]),
        ("received", ["broadcast of 0 float32", "broadcast of 1000 float32"]),
        ("roots", ["calls broadcast of 1000 float32 from rank"]),
        ("rows", ["rank 0 sends 8 bytes to rank 1, which expects 0"]),
    ],
)
def test_empty_tensors_and_other_roots_are_named(how: str, texts: list[str]) -> None:
    for error, seconds in end(how, **program.SILENT):  # some are named by the next heartbeat
        assert all(text in error for text in texts), error
        waits.check_sooner(float(seconds), waits.NAMED_S, "rank 1 is named")


def test_a_stopped_rank_is_named() -> None:
    for error, seconds in end("stop", **program.SILENT):
        assert "rank 1 is lost: not a sign of it for" in error
        waits.check_sooner(float(seconds), waits.NAMED_S, "rank 1 is named")


def test_a_late_rank_is_named() -> None:
    for error, _ in end("late"):
        assert (
            "rank 1 has not begun it" in error
            and "not done within the timeout of 6.0 s at rank" in error
        )


@pytest.mark.parametrize(
    ("how", "kind"), [("backward", "RuntimeError"), ("compressed", "PawlError")]
)
def test_a_rank_killed_in_the_backward_pass(how: str, kind: str) -> None:
    """The error comes through DDP's future, which keeps the message and not the class; or from a
    hook."""
    for error, seconds in end(how):
        assert error.startswith(f"{kind}: ") and "rank 1 is lost: its process ended" in error
        waits.check_sooner(float(seconds), waits.NAMED_S, "rank 1 is named")


@pytest.mark.slow
@pytest.mark.parametrize("world", [2, 3, 4])
def test_a_resumed_job_has_the_bits_of_one_that_went_on(tmp_path: Path, world: int) -> None:
    """DDP makes its buckets anew after its first step, so that sums have other places in them."""
    said = []
    for how in ((), (f"{world - 1}@8",)):
        root = tmp_path / f"run{len(how)}"
        root.mkdir()
        done = program.run_script(
            HERE / "resumed_rank.py", "-n", str(world), "--max-restarts", "1",
            args=(str(root), *how),
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        said.append(re.findall("> ([0-9a-f]{64})", done.stdout))
        assert (root / "killed").exists() == bool(how)
    assert len(said[0]) == 1 and said[0] == said[1]


@pytest.mark.parametrize("broken", ["raise RuntimeError('broken')", "import nothing_there", "x ="])
def test_what_is_broken_in_pawl_does_not_break_torch(tmp_path: Path, broken: str) -> None:
    (tmp_path / "pawl").mkdir()
    (tmp_path / "pawl/__init__.py").write_text(broken)
    done = python("import torch; print(torch.ones(2).sum().item())", PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stdout) == (0, "2.0\n"), done.stderr


def python(code: str, **env: str) -> subprocess.CompletedProcess[str]:
    variables = program.clean_env() | ranks.rank_env(0, 1, ranks.free_port(), "") | env
    return nursery.run(
        [sys.executable, "-c", code],
        env=variables,
        capture_output=True,
        text=True,
        timeout=program.LIMIT_S,
    )


@pytest.mark.real_interpreters
def test_torch_knows_the_backend_by_itself() -> None:
    """torch knows the backend, and loads only the few modules of pawl that register it."""
    done = python(
        "import sys, torch\n"
        "print(sorted(m for m in sys.modules if m.startswith('pawl')))\n"
        "import torch.distributed as dist\n"
        "dist.init_process_group('pawl')\n"
        "t = torch.ones(3)\n"
        "dist.all_reduce(t)\n"
        "print(t.tolist(), dist.get_backend())\n"
    )
    assert done.stdout.splitlines() == [
        "['pawl', 'pawl._group', 'pawl._group._register']",
        "[1.0, 1.0, 1.0] pawl",
    ], done.stderr


@pytest.mark.slow
@pytest.mark.real_interpreters
def test_other_backends_beside() -> None:
    """torch passes a mixed backend string to pawl: host tensors go where the string says."""
    code = (
        "import torch, torch.distributed as dist\n"
        "dist.init_process_group('{}')\n"
        "group = dist.group.WORLD\n"
        "print(type(group).__name__, sorted(group._others))\n"
        "t = torch.ones(2)\n"
        "dist.all_reduce(t)\n"
        "into = [torch.zeros(2)]\n"
        "dist.all_gather(into, t)\n"
        "print(into[0].tolist())\n"
        "dist.destroy_process_group()\n"
    )
    done = python(code.format("cpu:gloo,cuda:pawl"))
    assert done.stdout.splitlines() == ["ProcessGroup ['cpu']", "[1.0, 1.0]"], done.stderr
    done = python(code.format("cpu:pawl"))
    assert done.stdout.splitlines() == ["ProcessGroup []", "[1.0, 1.0]"], done.stderr
    done = python(code.format("cpu:pawl,cuda:mpi"))
    assert "backend 'mpi' beside pawl is not supported" in done.stderr


def test_forks_are_refused_and_left_alone() -> None:
    done = python(
        "import os, torch, torch.distributed as dist\n"
        "dist.init_process_group('pawl')\n"
        "if os.fork() == 0:\n"
        "    try:\n"
        "        dist.all_reduce(torch.ones(1))\n"
        "    except RuntimeError as error:\n"
        "        print(error, flush=True)\n"
        "    raise SystemExit  # runs what is registered for the end\n"
        "os.wait()\n"
        "dist.all_reduce(torch.ones(1))\n"
        "print('fine')\n"
    )
    assert "of which this one is a fork\nfine\n" in done.stdout, done.stderr


def test_leaving_in_the_middle() -> None:
    """A process ends without destroying the group, with operations under way that nobody
    waits for."""
    done = python(
        "import torch, torch.distributed as dist\n"
        "dist.init_process_group('pawl')\n"
        "works = [dist.all_reduce(torch.ones(100), async_op=True) for _ in range(100)]\n"
        "for work in works:\n"
        "    work.get_future()\n"
    )
    assert done.returncode == 0, done.stderr


def test_many_times_in_one_process() -> None:
    done = python(
        "import torch, torch.distributed as dist\n"
        "for _ in range(6):\n"
        "    dist.init_process_group('pawl')\n"
        "    dist.barrier()\n"
        "    dist.destroy_process_group()\n"
        "print('fine')\n"
    )
    assert done.stdout == "fine\n", done.stderr


def shrink(how: str, victims: list[int], world: int, **env: str) -> list[list[str]]:
    """Runs ranks of which the victims end. Returns the lines of the others."""
    words = [str(rank) for rank in victims]
    started = ranks.start_ranks(
        HERE / "group_shrink_rank.py", world, how, *words, env=program.clean_env() | env
    )
    try:
        left = [process for rank, process in enumerate(started) if rank not in victims]
        return ranks.hear_ranks(left)
    finally:
        ranks.stop(started)


@pytest.mark.parametrize("victims", [[1], [0], [3, 0], [0, 2, 1]])
def test_survivors_go_on(victims: list[int]) -> None:
    """Others go on, also without rank 0, which has torch's store."""
    said = shrink("kill", victims, 4)
    ends = [lines[-1] for lines in said]
    assert [end.split(":")[0] for end in ends] == [
        f"{rank} of {4 - len(victims)}" for rank in range(4 - len(victims))
    ]
    assert len({end.split(": ")[1] for end in ends}) == 1
    for lines in said:
        assert len(lines) > len(victims)
        assert any(f"rank {victims[0]} is lost: its process ended" in line for line in lines), lines


def test_survivors_go_on_without_who_stands_still() -> None:
    said = shrink("stop", [1], 3, **program.SILENT)
    assert [lines[-1].split(":")[0] for lines in said] == ["0 of 2", "1 of 2"]
    assert all("rank 1 is lost: not a sign of it" in lines[0] for lines in said)


Started = list[subprocess.Popen[str]]


def take_in(folder: Path, started: Started, join: Callable[[], Started]) -> None:
    """Waits until the second of three ranks of group_admit_rank.py dies, and starts a newcomer in
    its place."""
    try:
        started[1].wait(program.LIMIT_S)

        def is_open() -> bool:
            assert started[0].poll() is None, started[0].communicate()[0]
            return (folder / "door").exists()

        program.wait_until(is_open, "the door opens")
        started += join()
        said = ranks.hear_ranks([started[0], *started[2:]])
    finally:
        ranks.stop(started)
    ends = [lines[-1].split(": ") for lines in said]
    assert [end[0] for end in ends] == ["0 of 3", "1 of 3", "2 of 3"]
    assert len({end[1] for end in ends}) == 1


def test_a_newcomer_takes_the_place_of_one_that_was_lost(tmp_path: Path) -> None:
    """No other rank is started again."""

    def start(world: int, *args: str) -> Started:
        script = HERE / "group_admit_rank.py"
        return ranks.start_ranks(script, world, str(tmp_path), *args, env=program.clean_env())

    take_in(tmp_path, start(3), lambda: start(1, "join"))


# ---- join listeners, as the binding gives them out ----

needs_core = pytest.mark.skipif(real_core is None, reason="pawl._core is not built here")
JOIN_REQUEST_MAGIC = 0x31726F6F64776170
LONG_S = 60.0
AGES_S = 1e11  # 3000 years: more than a count of nanoseconds can say


def alone() -> Any:
    """Returns a group of one rank."""
    group = real_core.Group(0, 1)
    group.join([group.card], LONG_S)
    return group


def ask(name: str) -> socket.socket:
    """Asks to join, as a newcomer that answers nothing."""
    host, port, key = name.rsplit(":", 2)
    connected = socket.create_connection((host, int(port)), LONG_S)
    connected.sendall(struct.pack("<QQ", JOIN_REQUEST_MAGIC, int(key, 16)))
    return connected


def begin(call: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    """Calls in a thread; the list gets the result, or what was raised."""
    results: list[Any] = []

    def run() -> None:
        try:
            results.append(call())
        except Exception as raised:
            results.append(raised)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, results


def admit_until_one_comes(group: Any, listener: Any, seconds: float = LONG_S) -> Any:
    waits.eventually(lambda: listener.waiting() == 1)
    return group.admit(listener, 2, seconds)


@needs_core
def test_a_listener_closed_meanwhile_serves_the_admission_to_its_end() -> None:
    group, listener = alone(), real_core.Door(None)
    other = alone()
    with ask(listener.name) as newcomer:
        thread, results = begin(lambda: admit_until_one_comes(group, listener))
        assert len(newcomer.recv(16)) == 16  # invited: the admission waits for an answer
        assert listener.waiting() == 0
        with pytest.raises(real_core.PawlError, match="another thread admits ranks") as raised:
            other.admit(listener, 2, LONG_S)
        assert raised.value.name == "PAWL_EBUSY"
        listener.close()
        newcomer.setblocking(False)
        with pytest.raises(BlockingIOError):  # the connection stays
            newcomer.recv(1)
    thread.join()
    assert results == [None]  # the newcomer has gone
    with pytest.raises(ConnectionError):
        ask(listener.name)
    assert group.admit(listener, 2, LONG_S) is None


@needs_core
def test_waits_of_thousands_of_years_are_long() -> None:
    group, listener = alone(), real_core.Door(None)
    thread, results = begin(lambda: real_core.knock(listener.name, AGES_S))
    grown = admit_until_one_comes(group, listener, AGES_S)
    thread.join()
    (newcomer,) = results
    assert [grown.ranks, newcomer.ranks] == [2, 2]
    thread, results = begin(lambda: newcomer.admit(None, 3, AGES_S))
    waits.stays(lambda: results == [], "it waits for the other rank", 1)
    assert grown.admit(listener, 3, AGES_S) is None
    thread.join()
    assert results == [None]
