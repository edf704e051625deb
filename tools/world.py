#!/usr/bin/env python3
"""Runs a command in a world of its own: its own processes, ports, shared memory and mounts.

Tests of different workers cannot meet there: /proc shows only their own processes, any port is
free, /dev/shm is empty, and processes that are left when the command has ended, end. The world's
first process does nothing but wait for all others, as an init does; another process in front of it
passes signals on and ends as the command ends. Without the kernel's permission (root has it) the
command is executed where it is: the exit status of `world.py --can` says which. tools/reap.py is
the first process of such a world itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import signal
import socket
import struct
import sys
from collections.abc import Callable
from typing import NoReturn

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x20000, 0x4000000, 0x8000000
CLONE_NEWPID, CLONE_NEWNET = 0x20000000, 0x40000000
MS_REC, MS_PRIVATE = 0x4000, 0x40000
PR_SET_PDEATHSIG = 1
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1
SIOCSIFADDR, SIOCSIFNETMASK = 0x8916, 0x891C
ADDRESS = "10.255.255.1"
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
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for request, number in ((SIOCSIFADDR, ADDRESS), (SIOCSIFNETMASK, "255.255.255.255")):
            address = struct.pack("HH4s8x", socket.AF_INET, 0, socket.inet_aton(number))
            fcntl.ioctl(control, request, struct.pack("16s16s8x", b"lo:1", address))


def leave() -> None:
    """Leaves the namespaces that this process is in; its children are in new ones."""
    call("unshare", CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWNET)
    socket.sethostname("localhost")  # a name that resolves without a name server
    call("mount", b"none", b"/", None, MS_REC | MS_PRIVATE, None)
    call("mount", b"tmpfs", b"/dev/shm", b"tmpfs", 0, b"mode=1777")
    raise_loopback()
    add_address()
    call("unshare", CLONE_NEWPID)  # last: the first child after this is the first process there


def can_leave() -> bool:
    """Leaves the namespaces that this process is in, if the kernel permits that."""
    try:
        leave()
    except OSError:
        return False
    return True


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


Mask = set[int]  # signals that are blocked


def run_command(command: list[str], mask: Mask) -> int:
    """Runs a command with this mask of signals, as the first process of the world. Returns its wait
    status."""
    pid = os.fork()
    if pid == 0:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        try:
            os.execvp(command[0], command)
        except OSError as error:
            print(f"{command[0]}: {error.strerror}", file=sys.stderr)
            os._exit(127)
    return wait_for(pid)


def run(task: Callable[[Mask], int]) -> NoReturn:
    """Runs a task as the first process of a world, once leave() has succeeded, and ends as what it
    returns says, a wait status. The task gets the mask of signals that there was before."""
    heard, said = os.pipe()
    # From here on: the first process of a world loses signals that it neither blocks nor handles.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, HEARD)
    first = os.fork()
    if first == 0:
        os.close(heard)
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        call("mount", b"proc", b"/proc", b"proc", 0, None)
        os.write(said, struct.pack("i", task(mask)))
        os._exit(0)
    os.close(said)
    ended = wait_for(first)
    told = os.read(heard, 4)
    end_like(struct.unpack("i", told)[0] if told else ended)


def main() -> NoReturn:
    left = can_leave()
    if sys.argv[1] == "--can":
        sys.exit(0 if left else 1)
    if not left:
        os.execvp(sys.argv[1], sys.argv[1:])
    run(lambda mask: run_command(sys.argv[1:], mask))


if __name__ == "__main__":
    main()
