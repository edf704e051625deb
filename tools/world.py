#!/usr/bin/env python3
"""Runs a command in a world of its own: its own processes, ports, shared memory and mounts.

Tests of different workers cannot meet there: /proc shows only their own processes, any port is
free, /dev/shm is empty, and processes that are left when the command has ended, end. The world's
first process does nothing but wait for all others, as an init does; another process in front of it
passes signals on and ends as the command ends. Without the kernel's permission (root has it) the
command is executed where it is: the exit status of `world.py --can` says which.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import signal
import socket
import struct
import subprocess
import sys
from typing import NoReturn

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x20000, 0x4000000, 0x8000000
CLONE_NEWPID, CLONE_NEWNET = 0x20000000, 0x40000000
MS_REC, MS_PRIVATE = 0x4000, 0x40000
PR_SET_PDEATHSIG = 1
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1
ADDRESS = "10.255.255.1/32"
PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
HEARD = (*PASSED_ON, signal.SIGCHLD)

libc = ctypes.CDLL(None, use_errno=True)


def call(name: str, *arguments: object) -> None:
    if getattr(libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def raise_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = struct.pack("16sH14x", b"lo", 0)
        flags = struct.unpack("16sH14x", fcntl.ioctl(control, SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags | IFF_UP))


def add_address() -> None:
    """Adds an address that is not a loopback one: without it, programs that ask for addresses of
    the kinds that the machine has (AI_ADDRCONFIG: Slurm's) do not look names up."""
    with contextlib.suppress(OSError):  # without `ip`, programs do without the address
        subprocess.run(["ip", "address", "add", ADDRESS, "dev", "lo"], check=False)


def leave() -> None:
    """Leaves the namespaces that this process is in; its children are in new ones."""
    call("unshare", CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWNET)
    socket.sethostname("localhost")  # a name that resolves without a name server
    call("mount", b"none", b"/", None, MS_REC | MS_PRIVATE, None)
    call("mount", b"tmpfs", b"/dev/shm", b"tmpfs", 0, b"mode=1777")
    raise_loopback()
    add_address()
    call("unshare", CLONE_NEWPID)  # last: the first child after this is the first process there


def end_like(wait_status: int) -> NoReturn:
    """Ends this process as another one has ended."""
    if os.WIFSIGNALED(wait_status):
        number = os.WTERMSIG(wait_status)
        with contextlib.suppress(OSError):  # SIGKILL cannot be handled, and so not be reset
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [number])
    os._exit(os.waitstatus_to_exitcode(wait_status))


def wait_for(pid: int) -> int:
    """Waits for a child, and for whichever others there are meanwhile; passes signals on to it.
    Returns its wait status.

    Both SIGCHLD and the signals to pass on are blocked and taken by sigwait. With handlers and a
    wait that blocks, a signal between the two would be noticed only when the child has ended.
    """
    while True:
        number = signal.sigwait(HEARD)
        if number in PASSED_ON:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        with contextlib.suppress(ChildProcessError):  # a signal for several ends: take them all
            while (end := os.waitpid(-1, os.WNOHANG))[0]:
                if end[0] == pid:
                    return end[1]


def be_first(command: list[str], said: int, mask: set[int]) -> NoReturn:
    """Runs the first process of the world: starts the command, with this mask of signals, and
    reports how it ended."""
    call("mount", b"proc", b"/proc", b"proc", 0, None)
    pid = os.fork()
    if pid == 0:
        os.close(said)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        try:
            os.execvp(command[0], command)
        except OSError as error:
            print(f"{command[0]}: {error.strerror}", file=sys.stderr)
            os._exit(127)
    os.write(said, struct.pack("i", wait_for(pid)))
    os._exit(0)


def run(command: list[str]) -> NoReturn:
    heard, said = os.pipe()
    # From here on: the first process of a world loses signals that it neither blocks nor handles.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, HEARD)
    first = os.fork()
    if first == 0:
        os.close(heard)
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        be_first(command, said, mask)
    os.close(said)
    ended = wait_for(first)
    told = os.read(heard, 4)
    end_like(struct.unpack("i", told)[0] if told else ended)


def main() -> NoReturn:
    try:
        leave()
    except OSError:
        if sys.argv[1] == "--can":
            sys.exit(1)
        os.execvp(sys.argv[1], sys.argv[1:])
    if sys.argv[1] == "--can":
        sys.exit(0)
    run(sys.argv[1:])


if __name__ == "__main__":
    main()
