"""The template process: a script cannot tell whether it was forked from it or executed.

The tests drive the template as `pawl run` does; the last ones do so through `pawl run`.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

import program
import waits

pytestmark = pytest.mark.real_interpreters  # the template itself is tested
VARIES = ("RANK", "PAWL_ATTEMPT", "PAWL_ELASTIC_JOIN")


def wait(pid: int) -> int:
    """Waits for a worker, which becomes a child of this process when the process between ends."""
    status: list[int] = []

    def has_ended() -> bool:
        with contextlib.suppress(ChildProcessError):
            ended, code = os.waitpid(pid, os.WNOHANG)
            status.extend([code] if ended else [])
        return bool(status)

    program.wait_until(has_ended, "a worker ends")
    return os.waitstatus_to_exitcode(status[0])


class Template:
    """A template process, and the test's end of its socket."""

    def __init__(
        self,
        worker: Sequence[str],
        imports: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
    ) -> None:
        plan = [f"supervisor {os.getpid()}", *(f"varies {name}" for name in VARIES)]
        plan += [f"import {name}" for name in imports]
        plan_fd = os.memfd_create("plan")
        os.write(plan_fd, "".join(f"{line}\n" for line in plan).encode())
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        fds = [fcntl.fcntl(fd, fcntl.F_DUPFD, 64) for fd in (theirs.fileno(), plan_fd)]

        def place() -> None:
            os.dup2(fds[0], 3)
            os.dup2(fds[1], 4)

        self.process = subprocess.Popen(
            [sys.executable, "-u", "-m", "pawl._template", *worker],
            env=env or program.clean_env(),
            stdin=subprocess.DEVNULL,
            preexec_fn=place,
            pass_fds=(3, 4),
        )
        theirs.close()
        for fd in (plan_fd, *fds):
            os.close(fd)
        self.control.settimeout(program.LIMIT_S)

    def hear(self) -> str:
        return self.control.recv(4096).decode()

    def start(self, rank: int = 0, **variables: str) -> tuple[int, int, int]:
        """Starts a worker. Returns its process id, and descriptors of its stdout and stderr."""
        out, err = os.pipe(), os.pipe()
        texts = [str(rank), f"RANK={rank}", *(f"{name}={v}" for name, v in variables.items())]
        socket.send_fds(self.control, ["".join(f"{t}\0" for t in texts).encode()], [out[1], err[1]])
        os.close(out[1])
        os.close(err[1])
        word, of_rank, pid = self.hear().split()
        assert (word, int(of_rank)) == ("started", rank)
        return int(pid), out[0], err[0]

    def run(self, rank: int = 0, **variables: str) -> tuple[int, str, str]:
        """Runs a worker. Returns its status (as in subprocess), stdout and stderr."""
        pid, out, err = self.start(rank, **variables)
        texts = ["", ""]

        def read(index: int, fd: int) -> None:
            with open(fd, encoding="utf-8") as file:
                texts[index] = file.read()

        readers = [threading.Thread(target=read, args=pair) for pair in enumerate((out, err))]
        for reader in readers:
            reader.start()
        status = wait(pid)
        for reader in readers:
            reader.join()
        return status, texts[0], texts[1]

    def close(self) -> None:
        self.control.close()
        self.process.wait(timeout=program.LIMIT_S)


@contextlib.contextmanager
def template(
    worker: Sequence[str], imports: Sequence[str] = (), env: Mapping[str, str] | None = None
) -> Iterator[Template]:
    it = Template(worker, imports, env)
    try:
        assert it.hear() == "ready"
        yield it
    finally:
        it.close()


def write(path: Path, text: str) -> str:
    path.write_text(textwrap.dedent(text))
    return str(path)


# ---- a script cannot tell ----

SAME = {
    "globals": "print(sorted(k for k in globals() if k != '__annotations__'), __name__, __file__)",
    "argv": "import sys; print(sys.argv, sys.path, sys.orig_argv[1:], sys.flags)",
    "main": "import sys; print(sys.modules['__main__'].__dict__ is globals(), __spec__)",
    "loader": "print(type(__loader__).__name__, __loader__.name, __loader__.path)",
    "source": "import inspect\ndef f(): pass\nprint(inspect.getsource(f), inspect.getfile(f))",
    "exit": "import sys; sys.exit(7)",
    "exit text": "import sys; sys.exit('why')",
    "exit none": "raise SystemExit",
    "error": "def f(): 1 / 0\ndef g(): f()\ng()",
    "error in error": "try: 1 / 0\nexcept Exception as e: raise KeyError('x') from e",
    "syntax": "print(1))",
    "interrupt": "raise KeyboardInterrupt",
    "hook": "import sys\nsys.excepthook = lambda *a: print('hook', a[0], a[2].tb_lineno)\n1 / 0",
    "atexit": "import atexit; atexit.register(print, 'bye'); print('hi')",
    "thread": (
        "import threading, time\n"
        "end = threading.Event()\n"
        "def late():\n"
        "    end.wait(); time.sleep(0.2)\n"  # pace
        "    print('late', __name__, threading.main_thread().name)\n"
        "threading.Thread(target=late).start(); print(threading.active_count()); end.set()"
    ),
    "signal": "import os, signal; print(signal.getsignal(15)); os.kill(os.getpid(), 15)",
    "signals": (
        "import signal\n"
        "print([(s, signal.getsignal(s)) for s in signal.valid_signals() if s < 32],"
        " signal.pthread_sigmask(0, []))"
    ),
    "pickle": (
        "import pickle\nclass A: pass\n"
        "print(type(pickle.loads(pickle.dumps(A()))) is A, A.__module__, A.__qualname__)"
    ),
    "spawn": (
        "import multiprocessing as mp\n"
        "def f(x): return x * 2\n"
        "if __name__ == '__main__':\n"
        "    with mp.get_context('spawn').Pool(1) as pool: print(pool.map(f, [1, 2]))"
    ),
    "fork": (
        "import multiprocessing as mp\n"
        "def f(q): q.put(mp.current_process().name)\n"
        "fork = mp.get_context('fork')\n"
        "q = fork.Queue(); p = fork.Process(target=f, args=(q,))\n"
        "p.start(); print(q.get()); p.join()"
    ),
    "future": "from __future__ import annotations\ndef f(x: no): pass\nprint(f.__annotations__)",
    "no future": "def f(x: int): pass\nprint(f.__annotations__)",
    "warning": "import warnings; warnings.warn('look')",
    "stdin": "import sys; print(repr(sys.stdin.read()))",
    "encoding": "import sys; print('ü', sys.stdout.encoding, sys.stdout.line_buffering)",
    "fds": "import os; print(sorted(int(fd) for fd in os.listdir('/proc/self/fd'))[:3])",
    "group": "import os; print(os.getpgid(0) == os.getpid(), os.getpriority(0, 0))",
    "sibling": "import beside; print(beside.__name__)",
}


@pytest.mark.parametrize("name", SAME)
def test_script_cannot_tell(tmp_path: Path, name: str) -> None:
    write(tmp_path / "beside.py", "")
    script = write(tmp_path / "script.py", SAME[name] + "\n")
    command = [script, "--an", "argument"]
    env = program.clean_env(RANK="0")
    plain = subprocess.run(
        [sys.executable, "-u", *command],
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=program.LIMIT_S,
        start_new_session=True,
        check=False,
    )
    with template(command) as forked:
        assert forked.run() == (plain.returncode, plain.stdout, plain.stderr)


def test_module_cannot_tell(tmp_path: Path) -> None:
    (tmp_path / "pkg").mkdir()
    write(tmp_path / "pkg" / "__init__.py", "")
    write(
        tmp_path / "pkg" / "mod.py", "import sys; print(sys.argv, __spec__.name, __package__); 1/0"
    )
    env = program.clean_env(RANK="0")
    env["PYTHONPATH"] += f"{os.pathsep}{tmp_path}"
    command = ["-m", "pkg.mod", "x"]
    plain = subprocess.run(
        [sys.executable, *command], env=env, capture_output=True, text=True, check=False
    )
    with template(command, env=env) as forked:
        assert forked.run() == (plain.returncode, plain.stdout, plain.stderr)


def test_environment_is_set(tmp_path: Path) -> None:
    script = write(
        tmp_path / "env.py",
        """
        import os, subprocess
        print(os.environ["RANK"], os.environ["PAWL_ATTEMPT"], flush=True)
        subprocess.run("echo $RANK $PAWL_ATTEMPT", shell=True)
        """,
    )
    with template([script]) as forked:
        assert forked.run(3, PAWL_ATTEMPT="2=x") == (0, "3 2=x\n3 2=x\n", "")
        assert forked.run(4, PAWL_ATTEMPT="5") == (0, "4 5\n4 5\n", "")


def test_worker_is_ours_and_dies_with_us(tmp_path: Path) -> None:
    script = write(
        tmp_path / "who.py",
        """
        import ctypes, os, time
        signal = ctypes.c_int()
        ctypes.CDLL(None).prctl(2, ctypes.byref(signal))
        print(os.getppid(), signal.value, flush=True)
        time.sleep(100)  # pace
        """,
    )
    with template([script]) as forked:
        pid, out, err = forked.start()
        with open(out, encoding="utf-8") as stdout:
            assert stdout.readline().split() == [str(os.getpid()), "9"]
        forked.process.kill()
        forked.process.wait(timeout=program.LIMIT_S)
        waits.stays(lambda: program.is_alive(pid), "it does not need the template", 0.2)
        os.kill(pid, signal.SIGKILL)
        assert wait(pid) == -signal.SIGKILL
        os.close(err)


def test_a_worker_that_was_not_reported_does_not_run(tmp_path: Path) -> None:
    script = write(tmp_path / "trace.py", f"import os; open(f'{tmp_path}/ran{{os.getpid()}}', 'w')")
    with template([script]) as forked:
        forked.control.shutdown(socket.SHUT_RD)  # this process still asks, but reads no more
        null = os.open(os.devnull, os.O_RDWR)
        for _ in range(5):
            socket.send_fds(forked.control, [b"0\0RANK=0\0"], [null, null])
        os.close(null)
        forked.control.shutdown(socket.SHUT_WR)
        assert forked.process.wait(timeout=program.LIMIT_S) == 0
    waits.stays(lambda: os.listdir(tmp_path) == ["trace.py"], "nothing has run", 0.5)


def test_each_worker_has_its_own_randomness(tmp_path: Path) -> None:
    pytest.importorskip("numpy")
    script = write(
        tmp_path / "rng.py",
        "import random, numpy; print(random.random(), numpy.random.rand())",
    )
    with template([script], ["random", "numpy", "numpy.random"]) as forked:
        drawn = [forked.run()[1].split() for _ in range(2)]
    assert drawn[0][0] != drawn[1][0] and drawn[0][1] != drawn[1][1]


# ---- what it imports ----


@pytest.fixture
def installed(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """Returns a directory that counts as site-packages, and the environment that makes it so."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    folder = tmp_path / "base" / "lib" / version / "site-packages"
    folder.mkdir(parents=True)
    env = program.clean_env(PYTHONUSERBASE=str(tmp_path / "base"))
    env["PYTHONPATH"] += f"{os.pathsep}{folder}"
    return folder, env


PRINT_MODULES = """
    import json, sys, os
    before = set(sys.modules)
    print(json.dumps(sorted(before)))
"""


def test_installed_modules_are_there(
    tmp_path: Path, installed: tuple[Path, dict[str, str]]
) -> None:
    folder, env = installed
    write(folder / "fine.py", "")
    write(folder / "breaks.py", "1 / 0")
    write(folder / "leaves.py", "raise SystemExit(3)")
    write(folder / "shadowed.py", "")
    work = tmp_path / "work"
    work.mkdir()
    write(work / "shadowed.py", "")
    write(work / "own.py", "")
    script = write(work / "script.py", PRINT_MODULES)
    names = [
        "fractions",
        "xml.dom.minidom",
        "breaks",
        "leaves",
        "own",
        "shadowed",
        "nowhere",
        "fine",
    ]
    with template([script], names, env) as forked:
        there = set(json.loads(forked.run()[1]))
    assert {"fractions", "xml", "xml.dom.minidom", "fine"} <= there
    assert not {"breaks", "leaves", "own", "shadowed", "no"} & there


TAINTS = {
    "reads a rank": "import os; os.environ.get('RANK')",
    "asks for a rank": "import os; 'RANK' in os.environ",
    "gets a rank": "import os; os.getenv('RANK')",
    "leaves a thread": (
        "import threading, time\n"
        "threading.Thread(target=time.sleep, args=(99,), daemon=True).start()"
    ),
    "leaves a native thread": "import _thread, time\n_thread.start_new_thread(time.sleep, (99,))",
}


@pytest.mark.parametrize("how", TAINTS)
def test_what_must_not_be_inherited_is_left_out(
    tmp_path: Path, installed: tuple[Path, dict[str, str]], how: str
) -> None:
    folder, env = installed
    write(folder / "before.py", "")
    write(folder / "taints.py", TAINTS[how])
    write(folder / "behind.py", "")
    script = write(tmp_path / "script.py", PRINT_MODULES)
    with template([script], ["before", "taints", "behind"], env) as forked:
        there = set(json.loads(forked.run()[1]))
    assert {"before", "behind"} <= there
    assert "taints" not in there


@pytest.mark.slow
def test_torch_is_there_and_who_joins_others_begins_alone(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    code = """
        import sys
        there = "torch" in sys.modules
        import torch.distributed as dist
        print(there, dist.init_process_group.__code__.co_filename.endswith("_register.py"))
    """
    script = write(tmp_path / "script.py", code)
    for imports, there in ((["torch"], "True"), ([], "False")):
        with template([script], imports) as forked:
            assert forked.run()[1].split() == [there, "False"]
            assert forked.run(PAWL_ELASTIC_JOIN="64")[1].split() == [there, "True"]


def test_threads_that_forks_put_away_do_no_harm(tmp_path: Path) -> None:
    pytest.importorskip("numpy")
    script = write(
        tmp_path / "script.py",
        """
        import sys
        print("numpy" in sys.modules)
        import numpy
        print(numpy.ones((300, 300)).dot(numpy.ones(300)).sum())
        """,
    )
    env = program.clean_env(OPENBLAS_NUM_THREADS="4")
    with template([script], ["numpy"], env) as forked:
        assert forked.run() == (0, "True\n90000.0\n", "")


def test_a_script_that_is_no_plain_file_is_refused(tmp_path: Path) -> None:
    it = Template([str(tmp_path)], (), None)
    assert it.hear().startswith("refused")
    it.close()


def test_it_leaves_with_its_supervisor(tmp_path: Path) -> None:
    with template([write(tmp_path / "x.py", "")]) as forked:
        forked.control.shutdown(socket.SHUT_RDWR)
        assert forked.process.wait(timeout=program.LIMIT_S) == 0


# ---- through `pawl run` ----


@pytest.fixture(scope="module")
def restarted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A run whose second attempt came from the template and was killed in the middle."""
    program.find()
    folder = tmp_path_factory.mktemp("restarted")
    script = folder / "train script.py"
    write(
        script,
        """
        import json, os, pathlib, sys, time
        attempt = os.environ["PAWL_ATTEMPT"]
        command = pathlib.Path("/proc/self/cmdline").read_text().split("\\0")
        print(json.dumps([attempt, time.time(), os.getppid(), command, os.environ["RANK"]]))
        if attempt == "0":
            while not pathlib.Path("die").exists(): time.sleep(0.05)  # pace
            if os.environ["RANK"] == "1":
                pathlib.Path("died").write_text(str(time.time()))
                os.kill(os.getpid(), 9)
        time.sleep(100)  # pace
        """,
    )
    process = program.start_script(
        script, "-n", "2", env=program.clean_env(PAWL_LOG="debug", OMP_NUM_THREADS="1")
    )
    lines: list[str] = []
    assert process.stdout is not None
    for line in process.stdout:
        lines.append(line)
        if "template: ready" in line:
            (folder / "die").touch()
        started = any("attempt 1: 2 workers started" in line for line in lines)
        if started and sum(line.startswith("[rank") for line in lines) == 4:
            break
    pids = children_of(process.pid)
    process.kill()
    process.wait(timeout=program.LIMIT_S)
    process.stdout.close()
    found = [json.loads(line[8:]) for line in lines if line.startswith("[rank")]
    return {
        "out": "".join(lines),
        "workers": json.dumps(found),
        "pid": str(process.pid),
        "died": (folder / "died").read_text(),
        "children": json.dumps(pids),
    }


def children_of(pid: int) -> list[int]:
    return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_restart_comes_from_the_template(restarted: dict[str, str]) -> None:
    workers = json.loads(restarted["workers"])
    assert sorted((attempt, rank) for attempt, _, _, _, rank in workers) == [
        ("0", "0"),
        ("0", "1"),
        ("1", "0"),
        ("1", "1"),
    ]
    for attempt, _, parent, command, _ in workers:
        assert ("pawl._template" in command) == (attempt == "1")
        assert any(word.endswith("train script.py") for word in command)  # ps names the script
        assert str(parent) == restarted["pid"]
    assert re.search(r"attempt 1: 2 workers started in \d+ ms, from the template", restarted["out"])


def test_nothing_outlives_a_killed_pawl_run(restarted: dict[str, str]) -> None:
    pids = json.loads(restarted["children"])
    assert len(pids) == 3  # two workers of the template, and the template
    for pid in pids:
        program.wait_until(lambda pid=pid: not program.is_alive(pid), "a child's death")


# ---- a template that misbehaves ----

FAKE = """#!{python}
import os, signal, socket, sys, time
if "pawl._template" not in sys.argv:
    os.execv({python!r}, [{python!r}, *sys.argv[1:]])
control = socket.socket(fileno=3)
control.send(b"ready")
how = os.environ["FAKE"]
socket.recv_fds(control, 65536, 2)
if how == "dies":
    os._exit(1)
if how == "fails":
    control.send(b"failed 0 no memory")
if how == "late":
    time.sleep(1)  # pace
    between = os.fork()
    if between != 0:
        os.waitpid(between, 0)
        time.sleep(1000)  # pace
    pid = os.fork()
    if pid == 0:
        time.sleep(1000)  # pace
    os.setpgid(pid, pid)
    open("new", "w").write(str(pid))
    os.rename("new", "late")
    control.send(f"started 0 {{pid}}".encode())
    os._exit(0)
time.sleep(1000)  # pace
"""

LIVE = """
    import os, pathlib, time
    if os.environ["PAWL_ATTEMPT"] != "0": raise SystemExit(print("again"))
    while not pathlib.Path("die").exists(): time.sleep(0.05)  # pace
    raise SystemExit(1)
"""


class Watched:
    """A run with a fake template; reacts to its lines as they come."""

    def __init__(self, folder: Path, how: str) -> None:
        self.folder = folder
        self.lines: list[str] = []
        folder.mkdir()
        script = Path(write(folder / "live.py", LIVE))
        fake = folder / "python"
        fake.write_text(FAKE.format(python=sys.executable))
        fake.chmod(0o755)
        grace = ("--grace", f"{3 * program.LIMIT_S:g}")  # no test waits for the end of the grace
        self.process = program.start_script(
            script, "--python", str(fake), *grace, env=program.clean_env(PAWL_LOG="debug", FAKE=how)
        )
        self.thread = threading.Thread(target=self.read)
        self.thread.start()

    def read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            if "template: ready" in line:
                (self.folder / "die").touch()
            if "restart 1 of" in line and self.folder.name == "late":
                self.process.send_signal(signal.SIGTERM)
                waits.let_pass(1.5)  # two signals within a second count as one
                self.process.send_signal(signal.SIGTERM)

    def end(self) -> tuple[int, str]:
        status = self.process.wait(timeout=program.LIMIT_S)
        self.thread.join()
        return status, "".join(self.lines)


def test_a_template_that_misbehaves(tmp_path: Path) -> None:
    runs = {how: Watched(tmp_path / how, how) for how in ("dies", "silent", "fails", "late")}
    ends = {how: run.end() for how, run in runs.items()}
    for how in ("dies", "silent", "fails"):
        status, out = ends[how]
        assert status == 0, out
        assert out.count("[rank0] again\n") == 1
        assert "attempt 1: 1 worker started" in out and "afresh" in out
    assert "does not answer" in ends["silent"][1]
    assert "no memory" in ends["fails"][1]
    # A worker that comes when all is over is killed at once.
    status, out = ends["late"]
    assert status == 143, out
    late = tmp_path / "late" / "late"  # absent if the template was too late, and was given up
    assert not late.exists() or not program.is_alive(int(late.read_text()))
