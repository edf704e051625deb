"""The peer of replicate.py: bytes from memory of one host into memory of another, by plain TCP.

Usage: _raw_tcp.py ADDRESS NEXT. It listens at ADDRESS, connects to the host NEXT, and says "ready".
For each number of bytes that it reads, it sends so many to NEXT by sendfile() while it receives as
many, and prints a JSON line: monotonic seconds of begin and end, and CPU seconds.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time

PORT = 29561
MEMORY_BYTES = 256 << 20  # bytes sent from, and received into, over and over; no cache holds them
CALL_BYTES = 1 << 20
PATIENCE_S = 60.0


def connect(address: str) -> socket.socket:
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            return socket.create_connection((address, PORT))
        except ConnectionRefusedError:
            if time.monotonic() > end:
                raise
            time.sleep(0.02)


def make_memory() -> int:
    """A descriptor of memory as an arena is."""
    fd = os.memfd_create("raw")
    for _ in range(MEMORY_BYTES // CALL_BYTES):
        os.write(fd, os.urandom(4096) * (CALL_BYTES // 4096))
    return fd


def send(connection: socket.socket, fd: int, count: int) -> None:
    sent = 0
    while sent < count:
        at = sent % MEMORY_BYTES
        most = min(CALL_BYTES, count - sent, MEMORY_BYTES - at)
        sent += os.sendfile(connection.fileno(), fd, at, most)


def receive(connection: socket.socket, memory: memoryview, count: int) -> None:
    received = 0
    while received < count:
        at = received % MEMORY_BYTES
        most = min(CALL_BYTES, count - received, MEMORY_BYTES - at)
        got = connection.recv_into(memory[at : at + most])
        assert got > 0, "the other end is gone"
        received += got


def main() -> None:
    own, following = sys.argv[1:]
    fd, memory = make_memory(), memoryview(bytearray(MEMORY_BYTES))
    with socket.create_server((own, PORT)) as listener:
        outgoing = connect(following)
        incoming = listener.accept()[0]
    outgoing.settimeout(None)
    print("ready", flush=True)
    for line in sys.stdin:
        count = int(line)
        cpu_s, begun = time.process_time(), time.monotonic()
        sender = threading.Thread(target=send, args=(outgoing, fd, count))
        sender.start()
        receive(incoming, memory, count)
        sender.join()
        said = {"begun": begun, "ended": time.monotonic(), "cpu_s": time.process_time() - cpu_s}
        print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main()
