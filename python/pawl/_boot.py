"""The steps by which a process forked from the template becomes a worker.

A script must not see a difference: arguments, paths, environment, `__main__`, exit status and
tracebacks are those of `python -u script.py args`. docs/run.md lists the differences.
"""

import builtins
import ctypes
import importlib.machinery
import io
import os
import runpy
import signal
import sys
import time
import types
import zipfile
from collections.abc import Callable, Mapping, Sequence

PR_SET_PDEATHSIG = 1
PPID_POLL_S = 0.0002  # seconds between checks while the process between is dying

forks = False  # True: this process is the template, which does not know yet how workers differ

ExceptHook = Callable[[type[BaseException], BaseException, types.TracebackType | None], object]

# A script's tracebacks do not show the frames of these files.
_OWN_FILES = frozenset({__file__, os.path.join(os.path.dirname(__file__), "_template.py")})


def is_plain_script(argv: Sequence[str]) -> bool:
    """Whether run can run argv, a worker's command line after the interpreter."""
    if argv[0] == "-m":
        return True
    return os.path.isfile(argv[0]) and not zipfile.is_zipfile(argv[0]) and argv[0][-4:] != ".pyc"


def script_dir(argv: Sequence[str]) -> str:
    """The directory that the interpreter puts first on sys.path."""
    return os.getcwd() if argv[0] == "-m" else os.path.dirname(os.path.realpath(argv[0]))


def settle(
    between: int, supervisor: int, variables: Mapping[str, str], out_fd: int, err_fd: int
) -> None:
    """Makes this process a worker of supervisor (pid) once its parent between (pid) is dead."""
    global forks
    forks = False
    os.setpgid(0, 0)
    os.dup2(out_fd, 1)
    os.dup2(err_fd, 2)
    os.environ.update(variables)
    while os.getppid() == between:
        time.sleep(PPID_POLL_S)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != supervisor:
        os._exit(1)


def reseed() -> None:
    """Draws fresh entropy where a fresh process has it; the random module does so by itself."""
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()


def join() -> None:
    """Does the steps that the template's import of torch left to its workers."""
    register = sys.modules.get("pawl._group._register")
    if register is not None:
        register.join()


def run(argv: Sequence[str]) -> None:
    """Runs argv as the interpreter would; returns, or raises the exception that
    ended the script.
    """
    sys.orig_argv = [sys.orig_argv[0], "-u", *argv]
    if not getattr(sys.flags, "safe_path", False):
        sys.path.insert(0, script_dir(argv))
    main = types.ModuleType("__main__")
    main.__dict__.update(__builtins__=builtins, __annotations__={}, __spec__=None)
    sys.modules["__main__"] = main
    try:
        if argv[0] == "-m":
            sys.argv = list(argv[1:])
            runpy._run_module_as_main(argv[1])  # -m itself calls this
        else:
            sys.argv = list(argv)
            _run_file(main, os.path.abspath(argv[0]))
    except BaseException:
        sys.excepthook = _skip_own_frames(sys.excepthook)  # wraps whatever hook the script has set
        raise


def _run_file(main: types.ModuleType, path: str) -> None:
    main.__dict__.update(__file__=path, __cached__=None)
    main.__loader__ = importlib.machinery.SourceFileLoader("__main__", path)
    with io.open_code(path) as file:
        code = compile(file.read(), path, "exec", dont_inherit=True)
    exec(code, main.__dict__)


def _skip_own_frames(hook: ExceptHook) -> ExceptHook:
    def show(
        kind: type[BaseException], value: BaseException, trace: types.TracebackType | None
    ) -> None:
        frame, shown = trace, trace
        while frame is not None:
            if frame.tb_frame.f_code.co_filename in _OWN_FILES:
                shown = frame.tb_next
            frame = frame.tb_next
        hook(kind, value.with_traceback(shown), shown)

    return show
