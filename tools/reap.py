#!/usr/bin/env python3
"""Runs a test program and makes sure that none of its processes outlives it.

A process left behind holds the test's output open, so that its reader waits for ever. Here such a
process gets a moment to end by itself; then it is killed and named, and the test has failed.
Daemons are found too: the kernel makes them children of this process. With --world, this process
is the first one in a world of its own (tools/world.py), where the kernel permits that.
"""

import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import world

PR_SET_CHILD_SUBREAPER = 36
GRACE_SECONDS = 2.0
LOOK_SECONDS = 0.02


def list_children() -> list[int]:
    """Returns children that run; collects those that have ended, which makes their children
    ours."""
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                break
        except ChildProcessError:
            return []
    return [int(pid) for pid in Path("/proc/thread-self/children").read_text().split()]


def wait_for_children(seconds: float) -> list[int]:
    """Returns the children that still run after that many seconds."""
    end = time.monotonic() + seconds
    children = list_children()
    while children and time.monotonic() < end:
        time.sleep(LOOK_SECONDS)
        children = list_children()
    return children


def name(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
    except OSError:
        words = []
    return " ".join([str(pid), *words]).strip()


def note_costs(command: list[str], seconds: float) -> None:
    """Appends the program's cost to the file that PAWL_TEST_COSTS names."""
    path = os.environ.get("PAWL_TEST_COSTS")
    if path:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu_s = round(usage.ru_utime + usage.ru_stime, 3)
        program = os.path.basename(command[0])
        said = {"program": program, "cpu_s": cpu_s, "wall_s": round(seconds, 3)}
        with open(path, "a") as file:
            file.write(json.dumps(said) + "\n")


def reap(command: list[str]) -> int:
    """Runs the command. Returns its exit status, or the negative number of the signal that ended
    it."""
    began = time.monotonic()
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # the test's time is over
        status = subprocess.Popen(command).wait()
        left = wait_for_children(GRACE_SECONDS)
    except KeyboardInterrupt:
        status, left = -signal.SIGTERM, list_children()
    if left:
        print(f"left behind, and killed: {', '.join(name(pid) for pid in left)}", flush=True)
        status = status or 1
    while left:  # killing a parent makes its children ours
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        left = wait_for_children(LOOK_SECONDS)
    note_costs(command, time.monotonic() - began)
    return status


def reap_first(command: list[str], mask: world.Mask) -> int:
    """Does the same as the first process of a world. Returns a wait status."""
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    status = reap(command)
    return status << 8 if status >= 0 else -status


def main() -> None:
    command = sys.argv[1:]
    if command[0] == "--world":
        command = command[1:]
        if world.can_leave():
            world.run(lambda mask: reap_first(command, mask))
    status = reap(command)
    world.end_like(status << 8 if status >= 0 else -status)


if __name__ == "__main__":
    main()
