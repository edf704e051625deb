"""tests/python/lib/nursery.py: a forked process behaves like an executed one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import netns
import nursery
import program

TORCH_IS_THERE = "import sys; print('torch' in sys.modules)"
SCRIPT = """
import atexit, os, sys, threading, time
atexit.register(print, "at exit")
print(sys.argv, sys.path[0], __name__, __file__, os.getcwd(), os.environ.get("X"))
print(sys.stdin.read(), sys.stdout.line_buffering, sys.orig_argv[1:])
print(open("/proc/self/cmdline").read().split("\\0")[-3:])
print("X=1" in open("/proc/self/environ").read().split("\\0"))
print(sorted(os.listdir("/proc/self/fd"))[:3], os.getpgrp() == os.getpid(), os.nice(0))
print(signal := __import__("signal").pthread_sigmask(0, []))
threading.Thread(target=lambda: (time.sleep(0.05), print("a thread's end"))).start()  # pace
"""
ENDS = {
    "end": "pass",
    "code": "import sys; sys.exit(7)",
    "text": "import sys; sys.exit('a reason')",
    "none": "import sys; sys.exit(None)",
    "large": "import sys; sys.exit(256 + 3)",
    "raise": "def f():\n    raise ValueError('on purpose')\nf()",
    "killed": "import os; os.kill(os.getpid(), 9)",
    "aborted": "import os; os.abort()",
    "interrupted": "raise KeyboardInterrupt",
    "_exit": "import os; print('not flushed'); os._exit(4)",
    "syntax": "this is not Python",
}


def both(*words: Any, **more: Any) -> tuple[Any, Any]:
    """Returns the results of a command that is forked, and of one that is executed."""
    said = []
    for start in (nursery.run, subprocess.run):
        done = start(
            [sys.executable, *map(str, words)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=program.LIMIT_S,
            **{"env": program.clean_env(X="1"), "stdin": subprocess.DEVNULL, **more},
        )  # fmt: skip
        said.append((done.returncode, done.stdout, done.stderr))
    return said[0], said[1]


def test_it_has_torch_and_is_ours() -> None:
    process = nursery.Popen([sys.executable, "-c", TORCH_IS_THERE], stdout=subprocess.PIPE)
    assert program.parent(process.pid) in (os.getpid(), 0)
    assert process.communicate(timeout=program.LIMIT_S)[0] == b"True\n"
    assert process.returncode == 0


@pytest.mark.parametrize("options", [(), ("-u",)])
def test_what_a_script_sees(tmp_path: Path, options: tuple[str, ...]) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    forked, executed = both(*options, script, "a", "b c", cwd=tmp_path)
    assert forked == executed
    assert forked[0] == 0 and "at exit" in forked[1] and "a thread's end" in forked[1], forked


@pytest.mark.parametrize("how", ENDS)
def test_how_it_ends(tmp_path: Path, how: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(ENDS[how])
    for words in ((script,), ("-c", ENDS[how])):
        forked, executed = both(*words)
        assert forked == executed


def test_a_module_and_what_it_imports(tmp_path: Path) -> None:
    (tmp_path / "first.py").write_text("import second, sys; print(second.X, sys.argv[1:])")
    (tmp_path / "second.py").write_text("X = 5")
    forked, executed = both("-m", "first", "a", cwd=tmp_path)
    assert forked == executed == (0, "5 ['a']\n", "")


@pytest.mark.parametrize("named", ["", "{tmp}", "{ours}", "{tmp}:{ours}"])
def test_where_it_looks_for_packages(tmp_path: Path, named: str) -> None:
    """Packages are found also where PYTHONPATH does not name ours: torch looks them up for each
    group."""
    env = program.clean_env()
    env["PYTHONPATH"] = named.format(tmp=tmp_path, ours=program.PYTHON_DIR)
    code = "import importlib.metadata as m, sys; print(sys.path[1:], m.version('torch'))"
    forked, executed = both("-c", code, env=env, cwd=tmp_path)
    assert forked == executed and forked[0] == 0, forked


def test_standard_input_and_signals() -> None:
    code = "import sys, time\nfor line in sys.stdin: print(line.upper(), end='', flush=True)"
    process = nursery.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write("abc\n")
    process.stdin.flush()
    assert process.stdout.readline() == "ABC\n"
    process.terminate()
    assert process.wait(program.LIMIT_S) == -signal.SIGTERM
    process.communicate()


@pytest.mark.parametrize(
    "words",
    [["-W", "ignore", "-c", TORCH_IS_THERE], ["-V"], ["-I", "-c", TORCH_IS_THERE]],
)
def test_options_of_the_interpreter_are_executed(words: list[str]) -> None:
    said = nursery.run([sys.executable, *words], stdout=subprocess.PIPE, text=True).stdout
    assert "True" not in said and said


@pytest.mark.parametrize("variable", ["PYTHONHASHSEED", "LD_LIBRARY_PATH", "TORCH_LOGS"])
def test_what_is_read_at_the_start_is_executed(variable: str) -> None:
    env = program.clean_env(**{variable: "0"})
    done = nursery.run([sys.executable, "-c", TORCH_IS_THERE], env=env, stdout=subprocess.PIPE)
    assert done.stdout == b"False\n"


@pytest.mark.real_interpreters
def test_a_marked_test_has_real_interpreters() -> None:
    done = nursery.run([sys.executable, "-c", TORCH_IS_THERE], stdout=subprocess.PIPE)
    assert done.stdout == b"False\n"


def test_ranks_of_pawl_run_are_forked_and_its_own(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import os, sys\n"
        "told = [name for name in os.environ if 'SPAWNER' in name]\n"
        "print('torch' in sys.modules, os.environ['RANK'], os.getppid(), sys.argv, told)\n"
    )
    done = program.run_script(script, "-n", "2", args=["a"])
    lines = sorted(line for line in done.stdout.splitlines() if "[rank" in line)
    (parent,) = {line.split()[3] for line in lines}
    assert lines == [f"[rank{n}] True {n} {parent} ['{script}', 'a'] []" for n in (0, 1)]
    assert done.returncode == 0 and int(parent) > 1


def test_ranks_of_torchrun_are_forked(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import os, sys\n"
        "there = 'torch' in sys.modules\n"
        "parent = open(f'/proc/{os.getppid()}/cmdline').read().split(chr(0))\n"
        "sys.stdout.write(f\"{os.environ['RANK']} {there} {parent[1:3]}\\n\")\n"
        "sys.exit(3 * int(os.environ['RANK']))\n"
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = nursery.run(
        [*command, script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    parent = ["-m", "torch.distributed.run"]
    assert sorted(done.stdout.splitlines()) == [f"{n} True {parent}" for n in (0, 1)], done.stderr
    assert done.returncode == 1 and "exitcode  : 3" in done.stderr


def test_a_world_is_entered(tmp_path: Path) -> None:
    code = "import os; print(os.getpid(), sorted(os.listdir('/sys/class/net')), os.listdir('.'))"
    code += "; print(os.uname().nodename)"
    said = []
    with netns.hosts(1) as hosts:
        world = nursery.World(hosts[0], True, "mount -t tmpfs none . && touch x", "own-name")
        for enabled in (True, False):
            nursery.nursery.enabled = enabled
            done = nursery.run(
                [sys.executable, "-c", code],
                cwd=tmp_path, world=world, stdout=subprocess.PIPE, text=True,
            )  # fmt: skip
            said.append((done.returncode, done.stdout))
    nursery.nursery.enabled = True
    assert said[0] == said[1] and "own-name" in said[0][1]
