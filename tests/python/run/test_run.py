"""`pawl run` with real processes: environment, output, files and exit of workers.

The scripts know nothing of Pawl.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import termios
import textwrap
import time
from pathlib import Path

import pytest

import program
import ranks
import waits

PROGRAM = program.find()
pytestmark = pytest.mark.real_interpreters  # most scripts do without torch


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text))
    return path


def lines_of(text: str, rank: int) -> list[str]:
    """Returns the lines that one rank printed."""
    prefix = f"[rank{rank}] "
    return [line[len(prefix) :] for line in text.splitlines() if line.startswith(prefix)]


# ---- what workers find ----


WRITE_ENV = """
    import json, os, sys
    with open(os.path.join(sys.argv[1], os.environ["RANK"]), "w") as file:
        json.dump(dict(os.environ), file)
"""


def test_environment_is_that_of_torchrun(tmp_path: Path) -> None:
    torchrun = shutil.which("torchrun", path=os.path.dirname(sys.executable))
    if torchrun is None:
        pytest.skip("torchrun is not beside the interpreter")
    script = write(tmp_path / "env.py", WRITE_ENV)
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    theirs.mkdir()
    ours.mkdir()
    env = program.clean_env(OMP_NUM_THREADS="3")
    command = [torchrun, "--nproc-per-node", "2", "--max-restarts", "3"]
    command += ["--master-port", str(ranks.free_port()), script, theirs]
    subprocess.run(command, env=env, capture_output=True, check=True)
    done = program.run_script(script, "-n", "2", "--job", "some job", args=[str(ours)], env=env)
    assert done.returncode == 0, done.stderr
    # Differences by nature, torchrun's own protocol, and variables that the interpreter adds.
    differs = {"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_USE_AGENT_STORE"}
    private = {"TORCHELASTIC_ERROR_FILE", "TORCHELASTIC_SIGNALS_TO_HANDLE", "LC_CTYPE"}
    for rank in ("0", "1"):
        found = json.loads((ours / rank).read_text())
        expected = json.loads((theirs / rank).read_text())
        for name in expected.keys() - env.keys() - private:
            assert name in found, name
            assert name in differs or found[name] == expected[name], name
        assert found.keys() - expected.keys() == {"PAWL_JOB_ID", "PAWL_ATTEMPT", "PAWL_AGENT"}
        assert found["PAWL_JOB_ID"] == found["TORCHELASTIC_RUN_ID"] == "some job"
        assert found["PAWL_ATTEMPT"] == "0"
        assert found["TORCHELASTIC_USE_AGENT_STORE"] == "False"
        assert found["OMP_NUM_THREADS"] == "3"


def test_one_thread_a_worker_unless_set(tmp_path: Path) -> None:
    script = write(tmp_path / "omp.py", 'import os; print(os.environ.get("OMP_NUM_THREADS"))')
    two = program.run_script(script, "-n", "2")
    assert lines_of(two.stdout, 0) == lines_of(two.stdout, 1) == ["1"]
    assert two.stderr.count("OMP_NUM_THREADS is not set") == 1
    one = program.run_script(script)
    assert lines_of(one.stdout, 0) == ["None"]
    assert "OMP_NUM_THREADS" not in one.stderr


@pytest.mark.slow
def test_ranks_meet_at_the_master_port(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    script = write(
        tmp_path / "meet.py",
        """
        import torch, torch.distributed as dist
        dist.init_process_group("gloo")
        mine = torch.tensor([1.0 + dist.get_rank()])
        dist.all_reduce(mine)
        print(mine.item())
        dist.destroy_process_group()  # or gloo's threads may abort a process that ends
        """,
    )
    done = program.run_script(script, "-n", "2", "--max-restarts", "0")
    assert done.returncode == 0, done.stderr
    assert lines_of(done.stdout, 0) == lines_of(done.stdout, 1) == ["3.0"]


@pytest.mark.slow
def test_ranks_meet_in_our_backend(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    script = write(
        tmp_path / "meet.py",
        """
        import torch
        from torch.distributed import all_reduce, get_backend, get_rank, init_process_group
        init_process_group("gloo")
        mine = torch.tensor([1.0 + get_rank()])
        all_reduce(mine)
        print(mine.item(), get_backend())
        """,
    )
    done = program.run_script(script, "-n", "2", "--max-restarts", "0", "--backend", "pawl")
    assert done.returncode == 0, done.stderr
    assert lines_of(done.stdout, 0) == lines_of(done.stdout, 1) == ["3.0 pawl"]
    refused = program.run_script(script, "--backend", "mpi")
    assert refused.returncode == 2 and "pawl is the only one" in refused.stderr


def test_job_is_the_same_when_started_again(tmp_path: Path) -> None:
    script = write(tmp_path / "train.py", 'import os; print(os.environ["PAWL_JOB_ID"])')
    first, second = program.run_script(script), program.run_script(script)
    assert first.stdout == second.stdout
    assert re.fullmatch(r"\[rank0\] train-[0-9a-f]{16}\n", first.stdout)
    env = program.clean_env(SLURM_JOB_ID="77", SLURM_RESTART_COUNT="4")
    assert program.run_script(script, env=env).stdout == "[rank0] 77\n"
    assert program.run_script(script, "--job", "x", env=env).stdout == "[rank0] x\n"


def test_arguments_paths_and_stdin(tmp_path: Path) -> None:
    script = write(
        tmp_path / "a dir with ünicode" / "a script.py",
        """
        import sys, json
        print(json.dumps([sys.argv, sys.path[0], sys.stdin.read(), __name__, __file__]))
        """,
    )
    done = program.run_script(script, args=["--lr", "1 e-3", "-n"])
    found = json.loads(lines_of(done.stdout, 0)[0])
    argv = [str(script), "--lr", "1 e-3", "-n"]
    assert found == [argv, str(script.parent), "", "__main__", str(script)]


def test_module(tmp_path: Path) -> None:
    write(tmp_path / "pkg" / "__init__.py", "")
    script = write(tmp_path / "pkg" / "mod.py", "import sys; print(sys.argv[1:], __spec__.name)")
    for how in (["-m", "pkg.mod"], ["-mpkg.mod"], ["--module=pkg.mod"]):
        done = program.run("run", "--python", sys.executable, *how, "-n", "5", cwd=tmp_path)
        assert done.stdout == "[rank0] ['-n', '5'] pkg.mod\n", done.stderr
    assert script.exists()


def test_interpreter_is_the_one_beside_or_the_first_in_path(tmp_path: Path) -> None:
    venv = tmp_path / "a venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "pyvenv.cfg").write_text(f"home = {os.path.dirname(os.path.realpath(sys.executable))}")
    (venv / "bin" / "python").symlink_to(os.path.realpath(sys.executable))
    shutil.copy(PROGRAM, venv / "bin" / "pawl")
    script = write(tmp_path / "which.py", "import sys; print(sys.prefix)")
    env = program.clean_env()
    command = [venv / "bin" / "pawl", "run", script]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    assert done.stdout == f"[rank0] {venv}\n"
    # In other cases, PATH decides.
    (venv / "pyvenv.cfg").unlink()
    first = tmp_path / "first"
    first.mkdir()
    write(first / "python3", "#!/bin/sh\necho mine\n").chmod(0o755)
    env["PATH"] = f"{tmp_path}:{first}:{env['PATH']}"
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    assert done.stdout == "[rank0] mine\n"


# ---- what they print ----


def test_output_carries_ranks_and_goes_to_files(tmp_path: Path) -> None:
    script = write(
        tmp_path / "talk.py",
        """
        import os, sys
        print("to stdout"); print("to stderr", file=sys.stderr)
        sys.stdout.write("no newline"); sys.stdout.flush()
        if os.environ["PAWL_ATTEMPT"] == "0" and os.environ["RANK"] == "0": sys.exit(5)
        """,
    )
    logs = tmp_path / "logs of it"
    done = program.run_script(script, "-n", "2", "--log-dir", str(logs))
    assert done.returncode == 0
    assert lines_of(done.stdout, 0) == ["to stdout", "no newline"] * 2
    assert lines_of(done.stderr, 0) == ["to stderr"] * 2
    assert "[rank" in done.stdout and not re.search(r"^(?!\[rank[01]\] )", done.stdout[:-1], re.M)
    for attempt in (0, 1):
        where = logs / f"attempt{attempt}"
        assert (where / "rank0.out").read_text() == "to stdout\nno newline"
        assert (where / "rank0.err").read_text() == "to stderr\n"
    program.run_script(script, "-n", "2", "--log-dir", str(logs))
    assert (logs / "attempt0" / "rank0.err").read_text() == "to stderr\n" * 2  # output is appended


def test_last_lines_stand_above_the_failure(tmp_path: Path) -> None:
    script = write(
        tmp_path / "die.py",
        """
        import os, sys, time
        if os.environ["RANK"] == "1":
            for i in range(1000): print("line", i, file=sys.stderr)
            os.kill(os.getpid(), 9)
        time.sleep(100)  # pace
        """,
    )
    done = program.run_script(script, "-n", "2", "--max-restarts", "0")
    assert done.returncode == 128 + 9
    lines = done.stderr.splitlines()
    named = next(i for i, line in enumerate(lines) if "was killed by SIGKILL" in line)
    assert re.search(r"attempt 0: rank 1 \(pid \d+\) was killed by SIGKILL after", lines[named])
    assert lines[named - 1] == "[rank1] line 999"
    assert len(lines_of(done.stderr, 1)) == 1000


def test_an_unfinished_line_is_shown_soon(tmp_path: Path) -> None:
    script = write(
        tmp_path / "slow.py",
        """
        import pathlib, sys, time
        sys.stdout.write("10%")
        for _ in range(2000): pathlib.Path("go").exists() or time.sleep(0.05)  # pace
        sys.stdout.write(" 20%\\n")
        """,
    )
    process = program.start_script(script)
    assert process.stdout is not None
    os.set_blocking(process.stdout.fileno(), False)
    seen: list[str] = []

    def shown() -> bool:
        with contextlib.suppress(BlockingIOError):
            seen.append(os.read(process.stdout.fileno(), 4096).decode())
        return "[rank0] 10%" in "".join(seen)

    program.wait_until(shown, "the unfinished line")
    assert "20%" not in "".join(seen)
    (tmp_path / "go").touch()
    os.set_blocking(process.stdout.fileno(), True)
    rest = process.communicate(timeout=program.LIMIT_S)[0]
    assert "[rank0] 10% 20%\n" in "".join(seen) + rest


def test_a_hundred_megabytes_arrive_whole(tmp_path: Path) -> None:
    script = write(
        tmp_path / "much.py",
        """
        import os
        rank = os.environ["RANK"]
        line = (f"{rank} " + "x" * 97 + "\\n") * 1000
        for _ in range(500): os.write(1, line.encode())
        os.write(1, b"y" * 200_000)
        os.kill(os.getpid(), 9 if rank == "0" else 15)
        """,
    )
    out = tmp_path / "out"
    with out.open("wb") as file:
        done = subprocess.run(
            [PROGRAM, "run", "--python", sys.executable, "--max-restarts", "0", script],
            env=program.clean_env(),
            stdout=file,
            stderr=subprocess.PIPE,
            timeout=program.LIMIT_S,
            check=False,
        )
    assert done.returncode == 137
    data = out.read_bytes()
    assert data.count(b"[rank0] 0 " + b"x" * 97 + b"\n") == 500_000
    assert data.count(b"y") == 200_000
    assert len(data) == 500_000 * 108 + 200_000 + 4 * len("[rank0] \n")


def test_a_stuck_reader_does_not_delay_the_end(tmp_path: Path) -> None:
    script = write(tmp_path / "flood.py", 'while True: print("x" * 1000)')
    process = program.start_script(script, "--grace", "1")
    assert process.stdout is not None
    pipe = process.stdout.fileno()

    def unread() -> int:
        (count,) = struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))
        return int(count)

    # Nobody reads: the pipes of worker and pawl are full, or will be.
    program.wait_until(lambda: unread() > fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ) / 2, "a flood")
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=program.LIMIT_S) == 143  # waits 5 s for the reader
    process.stdout.close()


# ---- what becomes of them ----


@pytest.mark.parametrize(
    ("how", "status"),
    [
        ("pass", 0),
        ("sys.exit(7)", 7),
        ("raise ValueError", 1),
        ("os.kill(os.getpid(), 9)", 137),
        ("os.abort()", 134),
    ],
)
def test_status_is_that_of_the_worker(tmp_path: Path, how: str, status: int) -> None:
    script = write(tmp_path / "end.py", f"import os, sys\n{how}\n")
    assert program.run_script(script, "--max-restarts", "0").returncode == status


def test_user_error_is_not_restarted(tmp_path: Path) -> None:
    script = write(tmp_path / "end.py", "import sys\nprint('start')\nsys.exit(65)\n")
    done = program.run_script(script)
    assert done.returncode == 65
    assert lines_of(done.stdout, 0) == ["start"]
    assert "no restart" in done.stderr


def test_restarts_are_counted(tmp_path: Path) -> None:
    script = write(
        tmp_path / "again.py",
        """
        import os, sys
        torchrun = ("TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS", "MASTER_PORT")
        print(*(os.environ[name] for name in ("PAWL_ATTEMPT", *torchrun)))
        sys.exit(3)
        """,
    )
    env = program.clean_env(SLURM_RESTART_COUNT="10")
    done = program.run_script(script, "--max-restarts", "2", env=env)
    assert done.returncode == 3
    lines = [line.split() for line in lines_of(done.stdout, 0)]
    assert [line[:3] for line in lines] == [["10", "0", "2"], ["11", "1", "2"], ["12", "2", "2"]]
    assert len({line[3] for line in lines}) > 1  # another port each time


def test_the_group_dies_with_one_and_its_children_too(tmp_path: Path) -> None:
    script = write(
        tmp_path / "family.py",
        """
        import os, pathlib, subprocess, sys, time
        child = subprocess.Popen(["sleep", "1000"])
        print(os.getpid(), child.pid, flush=True)
        pathlib.Path(os.environ["RANK"]).touch()
        while os.environ["RANK"] == "1" or not pathlib.Path("1").exists():
            time.sleep(0.05)  # pace
        sys.exit(4)
        """,
    )
    done = program.run_script(script, "-n", "2", "--max-restarts", "0")
    assert done.returncode == 4
    for rank in (0, 1):
        for pid in lines_of(done.stdout, rank)[0].split():
            program.wait_until(lambda pid=pid: not program.is_alive(int(pid)), "a child's death")


def pids_in(folder: Path, count: int) -> list[int]:
    """Returns the process ids that workers left as files."""
    program.wait_until(lambda: len(list(folder.glob("*.pid"))) == count, "workers start")
    return [int(path.stem) for path in folder.glob("*.pid")]


UNASKED_S = 22  # seconds that workers have to leave without --grace
SLEEP = """
    import os, pathlib, signal, time
    {extra}
    pathlib.Path(f"{{os.getpid()}}.pid").touch()
    time.sleep(1000)  # pace
"""


def test_nothing_outlives_a_killed_pawl_run(tmp_path: Path) -> None:
    script = write(tmp_path / "sleep.py", SLEEP.format(extra=""))
    process = program.start_script(script, "-n", "2")
    pids = pids_in(tmp_path, 2)
    process.kill()
    process.wait(timeout=program.LIMIT_S)
    for pid in pids:
        program.wait_until(lambda pid=pid: not program.is_alive(pid), "a worker's death")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_workers_may_finish_on_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    finish = """
    def finish(*args):
        time.sleep(1); print("saved", flush=True); os._exit(0)  # pace
    signal.signal(signal.SIGTERM, finish)
    """
    text = textwrap.dedent(SLEEP).format(extra=textwrap.dedent(finish))
    script = write(tmp_path / "finish.py", text)
    process = program.start_script(script, "-n", "2")
    pids_in(tmp_path, 2)
    process.send_signal(number)
    out = process.communicate(timeout=program.LIMIT_S)[0]
    assert process.returncode == 128 + number
    assert "[rank0] saved" in out and "[rank1] saved" in out
    assert f"{number.name}: workers have {UNASKED_S} s" in out
    assert f"stopped with status {128 + number}" in out.splitlines()[-1]


def test_workers_that_do_not_leave_are_killed_in_time(tmp_path: Path) -> None:
    extra = "signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    script = write(tmp_path / "stay.py", SLEEP.format(extra=extra))
    process = program.start_script(script, "--grace", "2")
    pids = pids_in(tmp_path, 1)
    began = time.monotonic()
    with waits.sooner_than(UNASKED_S, "the end of workers that have 2 s, 1 of them to leave"):
        process.send_signal(signal.SIGTERM)
        out = process.communicate(timeout=program.LIMIT_S)[0]
    assert process.returncode == 143 and "SIGTERM: workers have 1 s" in out
    assert time.monotonic() - began > 0.9
    assert not program.is_alive(pids[0])


def test_a_second_signal_ends_it_now(tmp_path: Path) -> None:
    extra = "signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    script = write(tmp_path / "stay.py", SLEEP.format(extra=extra))
    process = program.start_script(script, "--grace", "100")
    pids_in(tmp_path, 1)
    process.send_signal(signal.SIGTERM)
    assert process.stdout is not None
    assert any("workers have" in line for line in process.stdout)
    waits.let_pass(1.5)  # two signals within a second count as one
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=program.LIMIT_S)
    assert process.returncode == 143


def test_nohup_is_respected(tmp_path: Path) -> None:
    script = write(
        tmp_path / "short.py",
        """
        import pathlib, time
        pathlib.Path("up").touch()
        while not pathlib.Path("go").exists(): time.sleep(0.05)  # pace
        time.sleep(1)  # pace: it would be ended meanwhile
        print("done")
        """,
    )
    process = subprocess.Popen(
        [PROGRAM, "run", "--python", sys.executable, str(script)],
        env=program.clean_env(),
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
        cwd=tmp_path,
    )
    program.wait_until((tmp_path / "up").exists, "it runs")
    process.send_signal(signal.SIGHUP)
    (tmp_path / "go").touch()
    assert process.communicate(timeout=program.LIMIT_S)[0] == "[rank0] done\n"
    assert process.returncode == 0


def test_two_of_one_job_are_refused(tmp_path: Path) -> None:
    script = write(tmp_path / "sleep.py", SLEEP.format(extra=""))
    first = program.start_script(script)
    pids_in(tmp_path, 1)
    second = program.run_script(script)
    assert second.returncode == 75
    assert str(first.pid) in second.stderr  # the process that holds the job
    first.terminate()
    first.communicate(timeout=program.LIMIT_S)


def test_what_cannot_be_run_is_said(tmp_path: Path) -> None:
    script = write(tmp_path / "x.py", "")
    missing = program.run("run", tmp_path / "none.py")
    assert missing.returncode == 3 and "none.py: No such file" in missing.stderr
    for name in ("python3", sys.executable):
        named = program.run("run", "-n", "2", name, script)
        assert named.returncode == 2 and f"{name} is a program" in named.stderr, named.stderr
        assert "leave it out" in named.stderr and "--no-python" in named.stderr
    missing = program.run("run", "--python", "/nowhere/python", script)
    assert missing.returncode == 3 and "/nowhere/python" in missing.stderr
    wrong = program.run_script(script, env=program.clean_env(RANK="3", WORLD_SIZE="2"))
    assert wrong.returncode == 2 and "RANK=3 contradicts WORLD_SIZE=2" in wrong.stderr
    ranked = program.run_script(script, env=program.clean_env(SLURM_PROCID="1", SLURM_NTASKS="2"))
    assert ranked.returncode == 1 and "rank 1 of 2 already (slurm)" in ranked.stderr


@pytest.mark.parametrize(
    ("fault", "status"),
    [
        ("run.output:1", 1),  # before any worker starts
        ("run.pipe:1", 1),
        ("run.stream:1", 1),
        ("run.group:1", 1),
        ("run.argv:1", 1),
        ("run.pipe:2", 0),  # a worker cannot be started: the group is started again
        ("run.pipe:5", 0),
        ("run.stream:3", 0),
        ("run.env:2:12", 0),
        ("run.fork:1:11", 0),
        ("run.fork:2:11", 0),
        ("run.port:1", 0),  # logged, and ignored
        ("run.log:1:28", 0),
        ("run.fork:1:11:1", 1),  # the fork always fails, until restarts are used up
        ("run.pipe:2:24:1", 1),
    ],
)
def test_what_the_system_refuses(tmp_path: Path, fault: str, status: int) -> None:
    script = write(tmp_path / "short.py", "print('done')")
    env = program.clean_env(PAWL_FAULT=fault)
    done = program.run_script(script, "-n", "2", "--log-dir", str(tmp_path / "logs"), env=env)
    assert done.returncode == status, done.stderr
    assert re.search(r"^pawl", done.stderr, re.M)
    if status == 0:
        assert "[rank0] done" in done.stdout and "[rank1] done" in done.stdout


# ---- programs that are no scripts ----


def test_a_program_of_any_kind(tmp_path: Path) -> None:
    line = 'echo $RANK of $WORLD_SIZE; [ "$PAWL_ATTEMPT$RANK" = 01 ] && exit 5; exit 0'
    command = ["run", "-n", "2", "--max-restarts", "1", "--no-python", "sh", "-c", line]
    done = program.run(*command, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert lines_of(done.stdout, 1) == ["1 of 2"] * 2
    missing = program.run("run", "--no-python", "no-such-program")
    assert missing.returncode == 3 and "no-such-program is not in PATH" in missing.stderr
    both = program.run("run", "--no-python", "-m", "pkg")
    assert both.returncode == 2 and "cannot be used with --no-python" in both.stderr


def test_scale_waits_until_as_many_run_as_are_wanted(tmp_path: Path) -> None:
    command = [PROGRAM, "run", "--elastic", "1:3", "-n", "1", "--job", "waits", "--no-python"]
    run = subprocess.Popen([*command, "sleep", "100"], env=program.clean_env(), cwd=tmp_path)
    try:
        program.wait_until(lambda: program.run("scale", "waits").returncode == 0, "it runs")
        done = program.run("scale", "waits", "3", "--wait", "60", "--json")
        assert done.returncode == 0, done.stderr
        said = json.loads(done.stdout)
        assert said == {"job": "waits", "ranks": 3, "wanted": 3, "least": 1, "most": 3}
    finally:
        run.terminate()
        run.wait(program.LIMIT_S)
