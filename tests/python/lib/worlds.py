"""Namespaces that a process of a test is started in: a host's network, and its own processes."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
from dataclasses import dataclass
from typing import NoReturn

PR_SET_PDEATHSIG = 1
CLONE_NEWNS, CLONE_NEWUTS = 0x20000, 0x4000000
CLONE_NEWPID, CLONE_NEWNET = 0x20000000, 0x40000000
MS_REC, MS_PRIVATE, MS_SLAVE, MNT_DETACH = 0x4000, 0x40000, 0x80000, 2


@dataclass(frozen=True)
class World:
    """The namespaces that a process is started in, as `ip netns exec` and `unshare` make them."""

    network: str  # name of a network namespace
    own_pids: bool = False  # first process of a pid namespace, with own mounts
    prepare: str = ""  # shell commands to run there before the start
    hostname: str = ""  # the host's name there

    def prefix(self) -> list[str]:
        """Returns the command that starts a program in the namespaces."""
        command = ["ip", "netns", "exec", self.network]
        if self.own_pids:
            command += ["unshare", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc"]
        if self.hostname:
            name = f'hostname {self.hostname} && exec "$@"'
            command += ["unshare", "--uts", "sh", "-c", name, "sh"]
        if self.prepare:
            command += ["sh", "-c", f'{self.prepare} && exec "$@"', "sh"]
        return command

    def enter(self) -> None:
        """Moves the calling process there. With its own pids, another process waits in front of it,
        and ends as it ends."""
        libc = ctypes.CDLL(None, use_errno=True)

        def call(name: str, *args: object) -> None:
            if getattr(libc, name)(*args) != 0:
                number = ctypes.get_errno()
                raise OSError(number, f"{name}{args}: {os.strerror(number)}")

        with open(f"/run/netns/{self.network}") as file:
            call("setns", file.fileno(), CLONE_NEWNET)
        call("unshare", CLONE_NEWNS)
        call("mount", b"", b"/", None, MS_SLAVE | MS_REC, None)
        call("umount2", b"/sys", MNT_DETACH)
        call("mount", b"sysfs", b"/sys", b"sysfs", 0, None)
        if self.hostname:
            call("unshare", CLONE_NEWUTS)
            socket.sethostname(self.hostname)
        if self.own_pids:
            call("unshare", CLONE_NEWPID)
            pid = os.fork()
            if pid != 0:
                end_like(os.waitpid(pid, 0)[1])
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            call("unshare", CLONE_NEWNS)
            call("mount", b"none", b"/", None, MS_PRIVATE | MS_REC, None)
            call("mount", b"proc", b"/proc", b"proc", 0, None)
        if self.prepare and os.spawnlp(os.P_WAIT, "sh", "sh", "-c", self.prepare) != 0:
            os._exit(1)


def end_like(wait_status: int) -> NoReturn:
    """Ends this process as another one has ended."""
    if os.WIFSIGNALED(wait_status):
        with contextlib.suppress(OSError):  # SIGKILL cannot be handled, and so not be reset
            signal.signal(os.WTERMSIG(wait_status), signal.SIG_DFL)
        os.kill(os.getpid(), os.WTERMSIG(wait_status))
    os._exit(os.waitstatus_to_exitcode(wait_status))
