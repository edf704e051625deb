"""The template process of `pawl run`: it has imported everything, and forks into workers.

Started as `python -u -m pawl._template [-m] script args…`, it reads its plan from descriptor 4 and
exchanges messages with the supervisor on descriptor 3 (src/launch/run_template.h has the protocol).
It imports the modules that the last run had imported from the standard library and site-packages,
one by one, and ignores failures. The script's own modules are never among them: they may have
changed.

A fork copies one thread and no device. And the values that a module reads while it is imported stay
as they were: a rank read then would be every worker's rank. So a package whose import leaves a
thread that fork handlers do not stop, opens a GPU, or reads a variable that differs between
workers, is tainted: the process executes itself anew and leaves that package to the workers.
"""

import contextlib
import gc
import importlib
import importlib.machinery
import os
import site
import socket
import sys
import sysconfig
import threading
import warnings
from collections.abc import Sequence
from typing import ClassVar

from pawl import _boot

CONTROL_FD = 3
PLAN_FD = 4
REQUEST_BYTES = 1 << 16  # bytes of a request, at most
TAINTED_MAX = 16  # packages, at most; each costs a new start
DEVICES = ("/dev/nvidia", "/dev/kfd", "/dev/dri")


class Plan:
    """The plan on descriptor 4."""

    def __init__(self, text: str) -> None:
        self.supervisor = 0  # pid of the supervisor
        self.varies: set[str] = set()  # environment variables that differ between workers
        self.imports: list[str] = []  # modules, in the order of the last run
        # Packages that earlier starts of this process have found tainted.
        self.tainted: set[str] = set()
        for line in text.splitlines():
            keyword, _, value = line.partition(" ")
            if keyword == "supervisor":
                self.supervisor = int(value)
            elif keyword == "varies":
                self.varies.add(value)
            elif keyword == "import":
                self.imports.append(value)
            elif keyword == "taint":
                self.tainted.add(value)


class WatchedEnviron(os._Environ):
    """os.environ that records reads of a variable that varies. Takes the place of
    os.environ's class.
    """

    varies: ClassVar[set[str]] = set()
    asked: ClassVar[set[str]] = set()

    def __getitem__(self, key: str) -> str:
        if key in self.varies:
            self.asked.add(key)
        return super().__getitem__(key)


def read_plan() -> Plan:
    os.lseek(PLAN_FD, 0, os.SEEK_SET)
    with open(PLAN_FD, encoding="utf-8", errors="surrogateescape", closefd=False) as file:
        return Plan(file.read())


def installed_roots() -> tuple[str, ...]:
    """Directories of the standard library and of installed packages, each with a
    separator at its end.
    """
    paths = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    paths += [*site.getsitepackages(), site.getusersitepackages()]
    return tuple({os.path.join(os.path.realpath(path), "") for path in paths})


def is_installed(package: str, roots: tuple[str, ...], first: str) -> bool:
    """Whether a worker whose sys.path begins with first would import package from roots."""
    if package == "pawl" or package in sys.builtin_module_names:
        return True
    spec = importlib.machinery.FrozenImporter.find_spec(package)
    if spec is not None:
        return True
    spec = importlib.machinery.PathFinder.find_spec(package, [first, *sys.path])
    places = [] if spec is None else list(spec.submodule_search_locations or [spec.origin])
    return bool(places) and all(
        isinstance(place, str) and os.path.realpath(place).startswith(roots) for place in places
    )


def stray_threads() -> bool:
    """Whether a fork would lose a thread."""
    if len(os.listdir("/proc/self/task")) > 1 and threading.active_count() == 1:
        # OpenBLAS and others stop their threads when the process forks: this fork lets them.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
    return len(os.listdir("/proc/self/task")) > 1


def open_device() -> bool:
    """Whether a GPU is open: the driver does not survive a fork."""
    for fd in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{fd}").startswith(DEVICES):
                return True
        except OSError:
            continue  # the descriptor of the listing itself
    return False


def check_taint(package: str) -> None:
    """Executes the process anew, without package, if its import left a thread or a
    device, or read a variable that varies.
    """
    asked = WatchedEnviron.asked
    if not (asked or stray_threads() or open_device()):
        return
    os.write(PLAN_FD, f"taint {package}\n".encode())
    os.execv(sys.executable, sys.orig_argv)


def preload(plan: Plan, first: str) -> None:
    """Imports the installed modules of plan.imports, checking after each package."""
    roots = installed_roots()
    packages: dict[str, bool] = dict.fromkeys(plan.tainted, False)  # name -> whether to import it
    last = ""
    for name in plan.imports:
        package = name.partition(".")[0]
        if package not in packages:
            packages[package] = is_installed(package, roots, first)
        if not packages[package] or name in sys.modules:
            continue
        if last and package != last:
            check_taint(last)
        last = package
        try:
            importlib.import_module(name)
        except BaseException:
            continue  # a worker that needs it reports the error
    if last:
        check_taint(last)


def parse_request(request: bytes) -> tuple[str, dict[str, str]]:
    """The rank, and the variables, of the worker."""
    rank, *texts = os.fsdecode(request).rstrip("\0").split("\0")
    return rank, dict(text.split("=", 1) for text in texts)


def fork_again(control: socket.socket, rank: str) -> int:
    """Forks the worker, reports it, exits. Returns in the worker: the pid of its dying parent.

    A worker that was not reported ends: the supervisor may have started another.
    """
    between = os.getpid()
    read_end, write_end = os.pipe()
    try:
        worker = os.fork()
        message = f"started {rank} {worker}"
    except OSError as error:
        worker, message = -1, f"failed {rank} {error}"
    if worker == 0:
        close_all([write_end, control.detach(), PLAN_FD])
        if not os.read(read_end, 1):
            os._exit(1)
        os.close(read_end)
        return between
    if worker > 0:
        # Done here, too, so that it can be killed as a group from the start.
        os.setpgid(worker, worker)
    with contextlib.suppress(OSError):  # the supervisor may have closed its end
        control.send(message.encode())
        os.write(write_end, b"!")
    os._exit(0)


def serve(control: socket.socket, supervisor: int) -> None:
    """Answers requests; returns in each worker, exits when the supervisor has gone."""
    while True:
        request, fds, _, _ = socket.recv_fds(control, REQUEST_BYTES, 2)
        if not request:
            os._exit(0)
        rank, variables = parse_request(request)
        try:
            child = os.fork()
        except OSError as error:
            control.send(f"failed {rank} {error}".encode())
            child = -1
        if child == 0:
            between = fork_again(control, rank)
            _boot.settle(between, supervisor, variables, *fds)
            close_all(fds)
            _boot.reseed()
            _boot.join()
            return
        if child > 0:
            os.waitpid(child, 0)
        close_all(fds)


def close_all(fds: Sequence[int]) -> None:
    for fd in fds:
        os.close(fd)


def main() -> None:
    plan = read_plan()
    argv = sys.argv[1:]
    control = socket.socket(fileno=CONTROL_FD)
    if not getattr(sys.flags, "safe_path", False):
        del sys.path[0]  # the working directory; a worker has the script's directory here
    if not _boot.is_plain_script(argv):
        control.send(b"refused the script is not a plain file")
        os._exit(0)
    if len(plan.tainted) > TAINTED_MAX:
        control.send(f"refused too much cannot be forked: {sorted(plan.tainted)}".encode()[:400])
        os._exit(0)
    WatchedEnviron.varies = plan.varies
    _boot.forks = True
    environ_class = type(os.environ)
    os.environ.__class__ = WatchedEnviron
    preload(plan, _boot.script_dir(argv))
    os.environ.__class__ = environ_class
    if stray_threads() or open_device():
        control.send(b"refused the interpreter itself has threads or a device")
        os._exit(0)
    gc.collect()
    gc.freeze()
    control.send(b"ready")
    serve(control, plan.supervisor)
    _boot.run(argv)


if __name__ == "__main__":
    main()
