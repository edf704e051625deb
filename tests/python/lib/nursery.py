"""Starts Python processes that have torch imported already: forks of one process that waits.

`nursery.Popen` and `nursery.run` take the arguments of `subprocess.Popen` and `subprocess.run`. A
command that is this interpreter and a script, a module or `-c` is forked from the nursery, which
has torch, torch.distributed and torch._dynamo loaded: 0.05 CPU seconds instead of 2.3. `pawl run`,
and any other command of `pawl` that starts Python, is executed, and has a nursery of its own beside
it, from which its ranks and its template are forked (PAWL_TEST_SPAWNER, see src/launch/run_warm.h).
torchrun is forked and gets such a nursery, too. All other commands are executed as they are, and so
are commands whose environment sets a variable that an interpreter or torch reads while it starts.

A fork shares two things with the nursery that an executed process would not: the seed of str's
hash, and torch's measurements of the machine. So each file of tests that uses the nursery has at
least one test marked `real_interpreters`, for which nothing is forked.

The nursery has one thread and never computes: a fork of a process that has used OpenMP hangs. It
forks twice and the process between ends at once, so that the new process becomes a child of its
caller, a subreaper (conftest.py makes each pytest one), as if the caller had started it itself.

One request is one message of a SOCK_SEQPACKET pair with the descriptors beside it. It consists of
strings, each with its NUL: flags, namespaces (a World), the numbers that the descriptors get,
working directory, count of arguments, arguments, variables. The answer is the process id, or "no"
and the reason.
"""

from __future__ import annotations

import atexit
import builtins
import contextlib
import ctypes
import fcntl
import gc
import importlib
import inspect
import io
import json
import mmap
import os
import re
import runpy
import signal
import site
import socket
import struct
import subprocess
import sys
import time
import types
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from worlds import World

REQUEST_BYTES = 1 << 20
FDS_MAX = 64
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
PR_SET_MM, PR_SET_MM_MAP = 35, 14
TORCHRUN = ["-m", "torch.distributed.run"]
PRELOADED = ("numpy", "torch", "torch.distributed", "torch._dynamo")
# Variables that an interpreter, its libraries, NumPy or torch read while they start or are
# imported.
READ_AT_START = re.compile(
    r"PYTHON(?!PATH)|LD_|GLIBC_|MALLOC_|[ATUL]SAN_|KMP_|MKL_|OPENBLAS_|GOMP_|CUDA_|LANG|LC_"
    r"|PYTORCH|TORCH_(?!NCCL)|TORCHINDUCTOR|TORCHDYNAMO"
)
SPAWNER = "PAWL_TEST_SPAWNER"  # the number of the socket to a nursery beside `pawl run`
STARTS = "PAWL_TEST_STARTS"  # a file that gets one byte for each process that has torch
# Flags: own process group; own session; low priority; dies with its parent.
GROUP, SESSION, NICE, DIES = "g", "s", "n", "d"
RUN_NICE = 5  # as in src/launch/run_spawn.h


# ---- the nursery's side ----


class Order:
    """A request, as it was sent."""

    def __init__(self, message: bytes, fds: Sequence[int]) -> None:
        flags, world, targets, cwd, count, *rest = (
            os.fsdecode(message).removesuffix("\0").split("\0")
        )
        self.flags, self.cwd = flags, cwd
        self.world = World(**json.loads(world)) if world else None
        self.fds = dict(zip(map(int, targets.split(",")), fds, strict=True))
        self.argv = rest[: int(count)]
        self.env = dict(text.split("=", 1) for text in rest[int(count) :])

    def words(self) -> list[str] | None:
        """Returns the words after the interpreter and `-u`. Returns None for another program, or
        for an option that only an interpreter's start can apply."""
        words = self.argv[1:]
        if words[:1] == ["-u"]:
            del words[0]
        usable = bool(words) and (words[0] in ("-c", "-m") or not words[0].startswith("-"))
        return words if usable and is_this_python(self.argv[0]) else None


def search_path(env: Mapping[str, str]) -> list[str] | None:
    """Returns sys.path of a process with these variables, without the first entry, which is the
    script's. Returns None if modules that are loaded here would be other ones there."""
    ours, theirs = (
        [folder for folder in variables.get("PYTHONPATH", "").split(os.pathsep) if folder]
        for variables in (os.environ, env)
    )
    for folder in set(theirs) - set(ours) - set(sys.path):
        with contextlib.suppress(OSError):
            if {name.partition(".")[0] for name in os.listdir(folder)} & set(sys.modules):
                return None
    rest = sys.path[len(ours) :] if sys.path[: len(ours)] == ours else sys.path
    found = theirs + rest
    # An interpreter leaves out the folders of its packages only if PYTHONPATH has them already.
    packages = [folder for folder in site.getsitepackages() if os.path.isdir(folder)]
    return found + [folder for folder in packages if folder not in found]


def is_this_python(path: str) -> bool:
    """Returns whether path is this interpreter, under any of its names. The interpreter of a
    virtual environment is a link to one outside of it, so the folder must be the same, too."""
    ours = sys.executable
    same_folder = os.path.dirname(os.path.abspath(path)) == os.path.dirname(os.path.abspath(ours))
    return same_folder and os.path.realpath(path) == os.path.realpath(ours)


def put_away(fd: int) -> int:
    """Moves a descriptor to a number that no other descriptor is moved to."""
    moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 200)
    os.close(fd)
    return moved


def place_fds(fds: Mapping[int, int]) -> None:
    """Gives the process these descriptors, by the numbers under which it expects them, and no
    others."""
    moved = {target: put_away(fd) for target, fd in fds.items()}
    os.closerange(0, 200)
    for target, fd in moved.items():
        os.dup2(fd, target)
        os.close(fd)


def fork_child(control: socket.socket, order: Order) -> int:
    """Forks twice and answers the caller. Returns the id of the process between to the new process,
    and 0 to the nursery."""
    heard, said = os.pipe()
    between = os.fork()
    if between == 0:
        pid, between = os.getpid(), os.getpid()
        pid = os.fork()
        if pid == 0:
            os.close(heard)
            os.close(said)
            return between
        if GROUP in order.flags:
            os.setpgid(pid, pid)
        os.write(said, str(pid).encode())
        os._exit(0)
    os.close(said)
    os.waitpid(between, 0)  # afterwards, the new process is the caller's child
    answer = os.read(heard, 20)
    os.close(heard)
    control.send(answer)
    return 0


def serve(control: socket.socket) -> Order:
    """Answers requests until the caller is gone; returns in each new process."""
    while True:
        message, fds, _, _ = socket.recv_fds(control, REQUEST_BYTES, FDS_MAX)
        if not message:
            os._exit(0)
        order = Order(message, fds)
        words = order.words()
        path = search_path(order.env)
        if path is None or (words is None and SPAWNER not in order.env):
            control.send(b"no: not a command of this interpreter, or with other modules")
        else:
            between = fork_child(control, order)
            if between != 0:
                sys.path[:] = path
                settle(control, order, between)
                if words is None:
                    execute(order)
                return order
        for fd in fds:
            os.close(fd)


def settle(control: socket.socket, order: Order, between: int) -> None:
    """Gives the new process its working directory, descriptors and environment, as ordered."""
    control.close()
    if GROUP in order.flags:
        os.setpgid(0, 0)
    if SESSION in order.flags:
        os.setsid()
    while (parent := os.getppid()) == between:
        time.sleep(0.0002)
    if DIES in order.flags:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
    if NICE in order.flags:
        os.setpriority(os.PRIO_PROCESS, 0, RUN_NICE)
    place_fds(order.fds)
    os.chdir(order.cwd)
    if order.world is not None:
        order.world.enter()
    os.environ.clear()
    os.environ.update(order.env)


def fork_nursery(order: Order) -> socket.socket | None:
    """Gives this process a nursery as its child, and returns the socket to it. Returns None in that
    nursery's children, where order becomes the one of the child."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid == 0:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        theirs.close()
        place_fds({0: os.open(os.devnull, os.O_RDWR), 1: os.dup(1), 2: os.dup(2), 3: ours.detach()})
        os.dup2(0, 1)
        inner = serve(socket.socket(fileno=3))
        order.__dict__.update(inner.__dict__)
        return None
    ours.close()
    return theirs


def execute(order: Order) -> None:
    """Becomes `pawl run`, with a nursery as its child. Returns in that nursery's children, as
    fork_nursery() does."""
    theirs = fork_nursery(order)
    if theirs is None:
        return
    os.environ[SPAWNER] = str(theirs.fileno())
    os.set_inheritable(theirs.fileno(), True)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        os.execvpe(order.argv[0], order.argv, os.environ)
    except OSError as error:
        os.write(2, f"{order.argv[0]}: {error.strerror}\n".encode())
        os._exit(127)


def renew(order: Order) -> None:
    """Renews what a newly started process has of its own: streams, seeds, numbers of threads."""
    from pawl import _boot
    from pawl._group import _register

    open_streams(order.argv[1] == "-u" or bool(order.env.get("PYTHONUNBUFFERED")))
    _boot.forks = False
    _boot.reseed()
    _register.autoload()
    sys.modules.pop("pawl._template")  # the module is ours, not the command's
    show(order.argv, order.env)
    threads = os.environ.get("OMP_NUM_THREADS")
    if threads is not None:
        sys.modules["torch"].set_num_threads(int(threads))
    record_start()


def open_streams(unbuffered: bool) -> None:
    """Makes sys.stdin, stdout and stderr anew, as an interpreter does when it starts."""
    for name, fd, mode in (("stdin", 0, "rb"), ("stdout", 1, "wb"), ("stderr", 2, "wb")):
        raw = unbuffered and mode == "wb"
        try:
            binary = open(fd, mode, 0 if raw else -1, closefd=False)  # noqa: SIM115
        except OSError:
            continue  # the process was started without this stream
        stream = io.TextIOWrapper(
            binary,
            errors="backslashreplace" if name == "stderr" else None,
            line_buffering=not raw and (name == "stderr" or binary.isatty()),
            write_through=raw,
        )
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def show(argv: Sequence[str], env: Mapping[str, str]) -> None:
    """Makes /proc show the command line and environment of an executed process. Without the
    kernel's permission, /proc shows those of the nursery."""
    texts = ["".join(f"{word}\0" for word in argv)]
    texts.append("".join(f"{name}={value}\0" for name, value in env.items()))
    args, variables = map(os.fsencode, texts)
    size = len(args) + len(variables) + 1
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.write(args + variables)
    at = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    stat = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    code, data, heap, stack = (26, 27), (45, 46), 47, 28  # proc(5) counts its fields from 1
    start_code, end_code, start_data, end_data, start_brk, start_stack = (
        int(stat[field - 3]) for field in (*code, *data, heap, stack)
    )
    libc = ctypes.CDLL(None)
    libc.sbrk.restype = ctypes.c_void_p
    middle = at + len(args)
    packed = struct.pack(  # struct prctl_mm_map
        "11QPIi", start_code, end_code, start_data, end_data, start_brk, libc.sbrk(0), start_stack,
        at, middle, middle, middle + len(variables), 0, 0, -1,
    )  # fmt: skip
    libc.prctl(PR_SET_MM, PR_SET_MM_MAP, ctypes.c_char_p(packed), ctypes.c_ulong(len(packed)), 0)
    _shown.append(memory)


_shown: list[mmap.mmap] = []  # memory that holds what /proc shows


def record_start() -> None:
    """Records the start, for tests that count the processes that have torch."""
    if STARTS in os.environ:
        with contextlib.suppress(OSError), open(os.environ[STARTS], "ab", 0) as file:
            file.write(b"f")


def run_command(order: Order, words: list[str]) -> None:
    """Runs the words after the interpreter, as an interpreter does."""
    from pawl import _boot

    sys.orig_argv = order.argv
    sys.argv = words if words[0] != "-m" else words[1:]
    sys.path.insert(0, "" if words[0] == "-c" else _boot.script_dir(words))
    main = types.ModuleType("__main__")
    main.__dict__.update(__builtins__=builtins, __annotations__={}, __spec__=None)
    sys.modules["__main__"] = main
    if words[0] == "-m":
        runpy._run_module_as_main(words[1])  # type: ignore[attr-defined]
    elif words[0] == "-c":
        sys.argv = ["-c", *words[2:]]
        exec(compile(words[1], "<string>", "exec", dont_inherit=True), main.__dict__)
    else:
        _boot._run_file(main, os.path.abspath(words[0]))


def fork_workers(order: Order) -> None:
    """Makes torchrun, which this process becomes, start its workers by forks of a nursery of its
    own. Returns in these workers, too, as fork_nursery() does."""
    control = fork_nursery(order)
    if control is not None:
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
        nursery.control, nursery.env = control, dict(os.environ)
        subprocess.Popen = Popen  # type: ignore[misc]


def become(order: Order) -> None:
    """Runs the command; returns, or raises the exception that ended it."""
    from pawl import _boot

    words = order.words()
    assert words is not None
    if words[:2] == TORCHRUN:
        fork_workers(order)
        words = order.words()
        assert words is not None
    renew(order)
    show_no_frames = _boot._skip_own_frames
    try:
        run_command(order, words)
        status.code = 0
    except SystemExit as end:
        status.code = end.code if isinstance(end.code, int) else int(end.code is not None)
        raise
    except BaseException as error:
        if not isinstance(error, KeyboardInterrupt):  # the interpreter raises SIGINT
            status.code = 1
        sys.excepthook = show_no_frames(sys.excepthook)
        raise


class Status:
    """The exit status of the process; None: the interpreter decides."""

    code: int | None = None

    instead: tuple[int, int] | None = None  # exit status to end with, and the status it replaces

    def exit_with(self, status: int, instead_of: int) -> None:
        """Replaces pawl._core's function, since the process does not end by the C library's
        exit()."""
        self.instead = status, instead_of

    def leave(self) -> None:
        """Runs as the last exit handler. Taking torch apart would copy every page that is shared
        with the nursery: 0.2 CPU seconds."""
        if self.code is None:
            return
        if self.instead is not None and self.code == self.instead[1]:
            self.code = self.instead[0]
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        except Exception:
            self.code = 120  # as an interpreter does
        os._exit(self.code & 0xFF)


status = Status()


def preload() -> None:
    """Imports the nursery's modules. No thread may be left, since a fork would lose it."""
    from pawl import _boot, _core, _template

    _core.exit_with = status.exit_with
    _boot._OWN_FILES |= {__file__}
    _boot.forks = True  # the children register the backend, each with its own variables
    for name in PRELOADED:
        importlib.import_module(name)
    if _template.stray_threads():
        raise RuntimeError(f"a module of {PRELOADED} has left a thread")
    gc.collect()
    gc.freeze()


def main() -> None:
    # A caller that ends makes its children end; the nursery ignores the signals that the caller
    # gets.
    os.setsid()
    atexit.register(status.leave)
    del sys.path[0]  # removes this file's directory; each child has its script's
    control = socket.socket(fileno=int(sys.argv[1]))
    preload()
    become(serve(control))


# ---- the caller's side ----


class Nursery:
    """A nursery, started when it is first asked."""

    def __init__(self) -> None:
        self.enabled = os.environ.get("PAWL_TEST_NURSERY") != "0"
        self.process: subprocess.Popen[bytes] | None = None
        self.control: socket.socket | None = None
        self.env: dict[str, str] = {}

    def start(self) -> None:
        import program

        self.env = program.clean_env()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.process = subprocess.Popen(
            [sys.executable, __file__, str(theirs.fileno())],
            pass_fds=[theirs.fileno()], env=self.env, stdin=subprocess.DEVNULL, cwd="/",
        )  # fmt: skip
        theirs.close()
        self.control = ours

    def close(self) -> None:
        if self.process is not None and self.control is not None:
            self.control.close()
            self.process.wait(60)
        self.process = self.control = None

    def pid(self) -> int:
        """Returns the nursery's process id; 0: it has not been started."""
        return self.process.pid if self.process is not None else 0

    def takes(self, env: Mapping[str, str]) -> bool:
        """Returns whether a process with these variables can be forked."""
        if not self.enabled:
            return False
        wanted = read_at_start(env)
        if self.control is None:
            self.start()
        elif self.process is not None and wanted != read_at_start(self.env):
            import program

            if wanted == read_at_start(program.clean_env()):
                self.close()  # a package that was imported has set variables in this process
                self.start()
        return wanted == read_at_start(self.env)

    def ask(
        self, argv: Sequence[str], env: Mapping[str, str], cwd: str, fds: Mapping[int, int],
        world: World | None, new_session: bool,
    ) -> int:  # fmt: skip
        """Has a process started. fds: the descriptor of this process for each number in the new
        one. Returns its process id; 0: the nursery refused."""
        assert self.control is not None
        targets = ",".join(map(str, fds))
        flags = SESSION if new_session else ""
        where = json.dumps(asdict(world)) if world is not None else ""
        head = [flags, where, targets, cwd, str(len(argv)), *argv]
        text = "\0".join([*head, *(f"{name}={value}" for name, value in env.items())]) + "\0"
        socket.send_fds(self.control, [os.fsencode(text)], list(fds.values()))
        answer = self.control.recv(200).decode()
        if not answer:
            raise RuntimeError("the nursery has ended")
        return 0 if answer.startswith("no") else int(answer)


def read_at_start(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if READ_AT_START.match(name)}


def starts_python(words: Sequence[str]) -> bool:
    """Returns whether this command of `pawl` may start an interpreter, for which it asks
    PAWL_TEST_SPAWNER first."""
    return words[:1] == ["run"] or words[:2] in (["ckpt", "export"], ["ckpt", "import"])


def unblock_signals() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


nursery = Nursery()
_execute = inspect.signature(subprocess.Popen._execute_child)  # type: ignore[attr-defined]
# Arguments of Popen that the nursery cannot apply to a fork.
_UNKNOWN = ("preexec_fn", "shell", "gid", "gids", "uid", "process_group")


class Popen(subprocess.Popen):  # type: ignore[type-arg]
    """A process like subprocess.Popen's, forked from the nursery where that is possible. No signal
    is blocked in it.

    world: the namespaces in which it is started.
    """

    def __init__(self, args: Sequence[Any], *more: Any, world: World | None = None, **kw: Any):
        self.world = world
        super().__init__(args, *more, **kw)

    def _execute_child(self, *args: Any) -> None:
        bound = _execute.bind(self, *args).arguments
        argv = [os.fspath(word) for word in bound["args"]]
        env = dict(os.environ if bound["env"] is None else bound["env"])
        launches = os.path.basename(argv[0]) == "pawl" and starts_python(argv[1:])
        plain = not any(bound.get(name) not in (None, False, -1) for name in _UNKNOWN)
        if not (plain and (launches or is_this_python(argv[0])) and nursery.takes(env)):
            self._execute(*args)
            return
        if launches:
            env[SPAWNER] = ""
        wanted = ((0, bound["p2cread"]), (1, bound["c2pwrite"]), (2, bound["errwrite"]))
        fds = {target: target if fd == -1 else fd for target, fd in wanted}
        fds |= {fd: fd for fd in bound["pass_fds"]}
        cwd = os.fspath(bound["cwd"] or os.getcwd())
        pid = nursery.ask(argv, env, cwd, fds, self.world, bound["start_new_session"])
        if pid == 0:
            self._execute(*args)
            return
        self.pid = pid
        self._child_created = True
        self._close_pipe_fds(
            *(bound[name] for name in ("p2cread", "p2cwrite", "c2pread", "c2pwrite")),
            bound["errread"], bound["errwrite"],
        )  # fmt: skip

    def _execute(self, command: Sequence[Any], executable: Any, *more: Any) -> None:
        """Starts the command by executing it."""
        if self.world is not None:
            command, executable = [*self.world.prefix(), *command], None
        bound = _execute.bind(self, command, executable or command[0], *more).arguments
        bound["preexec_fn"] = bound["preexec_fn"] or unblock_signals
        super()._execute_child(*list(bound.values())[1:])


def run(*args: Any, **kwargs: Any) -> subprocess.CompletedProcess[Any]:
    """Works like subprocess.run, with this module's Popen."""
    input = kwargs.pop("input", None)
    timeout, check = kwargs.pop("timeout", None), kwargs.pop("check", False)
    if kwargs.pop("capture_output", False):
        kwargs["stdout"] = kwargs["stderr"] = subprocess.PIPE
    if input is not None:
        kwargs["stdin"] = subprocess.PIPE
    with Popen(*args, **kwargs) as process:
        try:
            out, err = process.communicate(input, timeout=timeout)
        except BaseException:
            process.kill()
            process.communicate()
            raise
    done = subprocess.CompletedProcess(process.args, process.returncode, out, err)
    if check:
        done.check_returncode()
    return done


if __name__ == "__main__":
    main()
