#!/usr/bin/env python3
"""Brings bugs of the past back, one at a time, and reports which tests notice.

A mutant is a file tests/mutants/NAME.patch: the change of a fix in the sources, undone, on the
present code. Its first lines say which commit fixed it, how a user noticed the bug, and which tests
kill it. `check` tests in a second, without a build, whether all that still holds; `run` proves it:
a copy of the tree under build/mutants is built with one bug at a time, and the tests that should
kill it run. A mutant whose killers all pass is a hole in the suite.
"""

import argparse
import ast
import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import threading
import time
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = "tests/mutants"
KEYS = ("fixed-by", "what", "killed-by")
SOURCES = ("src/", "include/", "python/")  # installed code: bugs are nowhere else
C_FOLDERS = {"tests/unit": "test_", "tests/golden": "test_", "tests/fuzz": ""}
# A test that hangs is given up after LIMIT_FACTOR times its time without the bug, plus
# LIMIT_MORE_S.
LIMIT_FACTOR, LIMIT_MORE_S = 5, 20.0
LIMIT_FIRST_S = 600.0  # limit of a test without the bug
STOP_S = 10.0  # seconds for a test that is told to end
SKIP_STATUS = 77
FAILED = "[  FAILED  ] "  # in the output of a C test: its rest need not run
SEED = "1"  # seed of random tests, unless PAWL_TEST_SEED is set: a run can be repeated
TEXT_MAX = 60  # characters of a test's text in a table, at most


def tier_of(test: str) -> str:
    """Returns "quick" or "slow": the tier of a test, named as in killed-by."""
    kind, _, name = test.partition(":")
    if kind == "c":
        return "slow" if name in slow_programs() else "quick"
    file, _, function = name.partition("::")
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    marks = [
        ast.unparse(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"
    ]
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == function.partition("[")[0]:
            marks += [ast.unparse(mark) for mark in node.decorator_list]
    # A mark that names cases leaves the others quick.
    return "slow" if any(re.search(r"mark\.slow\b(?!\()", text) for text in marks) else "quick"


@cache
def slow_programs() -> set[str]:
    """Returns the C programs that are slow in the plain build."""
    text = (ROOT / "tests/unit/meson.build").read_text(encoding="utf-8")
    found = re.search(r"^slow_tests = \[(.*?)\]", text, re.M | re.S)
    return set(re.findall(r"'(\w+)'", found[1])) if found else set()


# ---- the corpus ----


@dataclass(frozen=True)
class Mutant:
    """A bug of the past, as its file describes it."""

    name: str
    path: Path
    head: dict[str, str]  # KEYS; a long value continues in lines that begin with a blank
    files: tuple[str, ...]  # files that the patch changes

    @property
    def killers(self) -> list[str]:
        """Tests that kill the mutant: c:NAME, a program; python:FILE::TEST."""
        return re.split(r"[,\s]+", self.head.get("killed-by", "").strip(", "))


def read_mutant(path: Path) -> Mutant:
    head: dict[str, str] = {}
    key = ""
    text = path.read_text(encoding="utf-8")
    before, _, patch = text.partition("\ndiff --git ")
    for line in before.splitlines():
        if line[:1].isspace():
            head[key] = f"{head.get(key, '')} {line.strip()}"
        else:
            key, _, value = line.partition(":")
            head[key] = value.strip()
    files = tuple(re.findall(r"^\+\+\+ b/(\S+)$", patch, re.M))
    return Mutant(path.stem, path, head, files)


def read_mutants(root: Path, names: Iterable[str] = ()) -> list[Mutant]:
    """Returns the mutants named, or all. Raises SystemExit for an unknown name."""
    found = {path.stem: path for path in sorted((root / FOLDER).glob("*.patch"))}
    unknown = [name for name in names if name not in found]
    if unknown:
        sys.exit(f"mutants: there is no {FOLDER}/{unknown[0]}.patch")
    return [read_mutant(found[name]) for name in names or found]


def patch_problem(root: Path, path: Path, *options: str) -> str:
    """Returns git's error if the patch does not fit the files below root; "": it fits."""
    # Below build/, git would take the files for ignored ones, and skip them.
    env = {**os.environ, "GIT_CEILING_DIRECTORIES": str(root.parent)}
    command = ["git", "apply", *options, str(path)]
    done = subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stderr.strip() or "git apply failed"


@cache
def python_tests(path: Path) -> frozenset[str]:
    """Returns the names of the tests in a file, those of classes as CLASS::TEST."""
    names = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef):
            inner = [x.name for x in node.body if isinstance(x, ast.FunctionDef)]
            names |= {f"{node.name}::{name}" for name in inner}
        elif isinstance(node, ast.FunctionDef):
            names.add(node.name)
    return frozenset(name for name in names if name.split("::")[-1].startswith("test_"))


def killer_problem(root: Path, killer: str) -> str:
    """Returns why there is no such test; "": there is."""
    kind, _, name = killer.partition(":")
    if kind == "c":
        for folder, prefix in C_FOLDERS.items():
            if any((root / folder).rglob(f"{prefix}{name}.c")):
                listed = (root / folder / "meson.build").read_text(encoding="utf-8")
                known = f"'{name}'" in listed or f"'{name.removeprefix('fuzz_')}'" in listed
                return "" if known else f"{killer}: {folder}/meson.build does not list it"
        return f"{killer}: no such C test"
    if kind != "python":
        return f"killed-by: {killer!r} is neither c:NAME nor python:FILE::TEST"
    file, _, test = name.partition("::")
    if not file.startswith("tests/python/") or not (root / file).is_file():
        return f"{killer}: no such file"
    return "" if test.partition("[")[0] in python_tests(root / file) else f"{killer}: no such test"


def mutant_problems(root: Path, mutant: Mutant) -> list[str]:
    problems = [f"{key}: missing" for key in KEYS if not mutant.head.get(key)]
    problems += [f"{key}: unknown" for key in mutant.head if key not in KEYS]
    fixed = mutant.head.get("fixed-by")
    if fixed and not re.fullmatch(r"[0-9a-f]{7,40}", fixed):
        problems.append(f"fixed-by: {fixed!r} is no commit")
    if mutant.head.get("killed-by"):
        problems += filter(None, (killer_problem(root, killer) for killer in mutant.killers))
    if not mutant.files:
        problems.append("it changes nothing")
    problems += [f"{x}: no source" for x in mutant.files if not x.startswith(SOURCES)]
    problems.append(patch_problem(root, mutant.path, "--check"))
    return [f"{FOLDER}/{mutant.name}.patch: {problem}" for problem in problems if problem]


def check(root: Path, tiers: bool = False) -> list[str]:
    """Returns the problems of the corpus, a line each. tiers: also lists mutants without a quick
    killer."""
    problems = []
    for mutant in read_mutants(root):
        problems += mutant_problems(root, mutant)
        if tiers and all(tier_of(killer) == "slow" for killer in mutant.killers):
            why = f"killed by nothing but what is slow: {', '.join(mutant.killers)}"
            problems.append(f"{FOLDER}/{mutant.name}.patch: {why}")
    return problems


# ---- a tree to break ----


@dataclass(frozen=True)
class Verdict:
    """The verdict of a test on a mutant."""

    kind: str  # "passed", "killed", "skipped", "broken": unable to tell
    text: str = ""
    seconds: float = 0.0

    def __str__(self) -> str:
        text = self.text if len(self.text) <= TEXT_MAX else f"{self.text[: TEXT_MAX - 1]}…"
        return f"{self.kind}{f': {text}' if text else ''}"


class BuildError(Exception):
    """The tree does not compile; a bug that does not compile kills no test."""


def execute(
    command: list[str], cwd: Path, env: dict[str, str], limit_s: float, enough: str = ""
) -> tuple[int, str]:
    """Runs a command. Returns its exit status, negative for a signal, 124 after limit_s seconds,
    and its output. Tells the command to end once a line has the text `enough`."""
    process = subprocess.Popen(
        command,
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    lines: list[str] = []

    def read() -> None:
        for line in process.stdout or ():
            lines.append(line)
            if enough and enough in line:
                process.terminate()  # tools/reap.py ends all that the test began

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        status = process.wait(limit_s)
    except subprocess.TimeoutExpired:
        process.terminate()
        status = 124
    reader.join(STOP_S)  # until no process has the other end
    if reader.is_alive():
        os.killpg(process.pid, signal.SIGKILL)
        reader.join(STOP_S)
    process.wait()
    return status, "".join(lines)


class Scratch:
    """A copy of the tree in build/mutants/tree, in which one mutant at a time is applied. Its C
    tests are built in build/gcc there, and its Python package is installed in build/mutants/venv.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.tree = root / "build/mutants/tree"
        self.venv = root / "build/mutants/venv"
        self.limits: dict[str, float] = {}  # test -> limit in seconds, from its time without a bug
        self.installed: dict[str, bytes] = {}  # name -> source in the installed package
        bin_paths = [str(Path(sys.executable).parent), os.environ["PATH"]]
        self.env = {
            **os.environ,
            "PATH": os.pathsep.join(bin_paths),
            "CCACHE_BASEDIR": str(self.tree),
            "CCACHE_NOHASHDIR": "1",
            "CC": "ccache gcc" if shutil.which("ccache") else "gcc",
            "PYTHONDONTWRITEBYTECODE": "1",  # a bug may equal its cache in size, time
        }
        self.env.setdefault("PAWL_TEST_SEED", SEED)

    def sync(self) -> None:
        """Makes the copy like the tree; equal files keep their time of change."""
        command = ["git", "ls-files", "-co", "--exclude-standard", "-z"]
        listed = subprocess.run(command, cwd=self.root, capture_output=True, text=True, check=True)
        names = {name for name in listed.stdout.split("\0") if (self.root / name).is_file()}
        for path in self.tree.rglob("*") if self.tree.is_dir() else []:
            name = path.relative_to(self.tree).as_posix()
            if path.is_file() and not name.startswith("build/") and name not in names:
                path.unlink()
        for name in names:
            self.restore(name)

    def restore(self, name: str) -> None:
        """Makes a file of the copy like the one in the tree."""
        ours, theirs = self.root / name, self.tree / name
        if not theirs.is_file() or ours.read_bytes() != theirs.read_bytes():
            theirs.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ours, theirs)

    def apply(self, mutant: Mutant) -> None:
        """Applies a mutant; take_back undoes it."""
        problem = patch_problem(self.tree, mutant.path)
        if problem:
            raise BuildError(problem)

    def take_back(self, mutant: Mutant) -> None:
        for name in mutant.files:
            self.restore(name)

    def build(self, *command: str) -> str:
        status, output = execute(list(command), self.tree, self.env, 3600)
        if status != 0:
            tail = [line for line in output.splitlines() if "error" in line.lower()]
            raise BuildError("\n".join(tail[:5]) or output[-500:])
        return output

    def build_c(self, names: list[str]) -> None:
        """Builds the C tests named, and the programs they run; all tests if none is named."""
        if not (self.tree / "build/gcc/build.ninja").is_file():
            shutil.rmtree(self.tree / "build/gcc", ignore_errors=True)
            self.build("meson", "setup", "build/gcc")
        targets = [self.target(name) for name in names]
        programs = (
            ["src/cli/pawl", "tests/lib/pawl_failing"] if targets else []
        )  # some of the tests run these
        self.build("ninja", "-C", "build/gcc", "--quiet", *targets, *programs)

    @staticmethod
    def target(name: str) -> str:
        folder = "tests/golden" if name == "ckpt_golden" else "tests/unit"
        return f"tests/fuzz/{name}" if name.startswith("fuzz_") else f"{folder}/test_{name}"

    def sources(self) -> dict[str, bytes]:
        found = [path for top in SOURCES for path in (self.tree / top).rglob("*") if path.is_file()]
        return {path.relative_to(self.tree).as_posix(): path.read_bytes() for path in found}

    def install(self) -> None:
        """Installs the present package into an environment that takes all else from this one."""
        site, now = self.site(), self.sources()
        changed = {name for name in now if self.installed.get(name) != now[name]}
        if self.installed.keys() == now.keys() and all(name.endswith(".py") for name in changed):
            for name in changed:
                shutil.copy(self.tree / name, site / name.removeprefix("python/"))
        else:
            self.unpack(site)
        self.installed = now

    def unpack(self, site: Path) -> None:
        """Builds a wheel and unpacks it there."""
        out = self.tree / "build/out"
        shutil.rmtree(out, ignore_errors=True)
        options = ["--no-deps", "--no-build-isolation", "-C", "build-dir=build/wheel"]
        self.build(sys.executable, "-m", "pip", "-q", "wheel", *options, "-w", str(out), ".")
        for old in [*site.glob("pawl*"), *site.glob("_pawl*")]:
            shutil.rmtree(old) if old.is_dir() else old.unlink()
        (wheel,) = out.glob("*.whl")
        with zipfile.ZipFile(wheel) as packed:
            packed.extractall(site)
        for script in site.glob("pawl-*.data/scripts/*"):
            script.chmod(0o755)
            shutil.move(script, self.venv / "bin" / script.name)
        (site / "zz-all-else.pth").write_text(sysconfig.get_path("purelib") + "\n")

    def site(self) -> Path:
        python = self.venv / "bin/python"
        if not python.exists():
            self.build(sys.executable, "-m", "venv", "--without-pip", str(self.venv))
        say_where = "import sysconfig; print(sysconfig.get_path('purelib'))"
        return Path(self.build(str(python), "-c", say_where).strip())

    def prepare(self, killers: list[str]) -> None:
        """Builds and installs what the tests need."""
        programs = [name for kind, _, name in (x.partition(":") for x in killers) if kind == "c"]
        if programs:
            self.build_c(programs)
        if len(programs) < len(killers):
            self.install()

    def run(self, killer: str) -> Verdict:
        """Runs a test in the copy, which must be built."""
        kind, _, name = killer.partition(":")
        env = self.env
        if kind == "c":
            command = [f"build/gcc/{self.target(name)}"]
            if name == "sched_slurm":
                command += ["build/gcc/src/cli/pawl", str(self.tree)]
            env = {**env, "PAWL_GOLDEN_DIR": str(self.tree / "tests/golden")}
        else:
            options = ["-q", "-x", "--tb=line", "-p", "no:cacheprovider"]
            command = [str(self.venv / "bin/python"), "-m", "pytest", *options, name]
            env = {**env, "PATH": f"{self.venv / 'bin'}{os.pathsep}{env['PATH']}"}
        command = [sys.executable, "tools/reap.py", *command]
        limit_s = self.limits.get(killer, LIMIT_FIRST_S)
        begun = time.monotonic()
        status, output = execute(command, self.tree, env, limit_s, FAILED if kind == "c" else "")
        kind, text = judge(kind, status, output)
        seconds = time.monotonic() - begun
        if status == 124:
            text = f"it hangs: not done after {limit_s:.0f} s"
        return Verdict(kind, text, seconds)


def judge(kind: str, status: int, output: str) -> tuple[str, str]:
    """Returns the kind of a verdict and its text, from a test's exit status and output."""
    if kind == "c":
        failed = re.findall(r"^\[ +FAILED +\] (\w+)$", output, re.M)
        if status == SKIP_STATUS:
            return "skipped", ""
        late = "late: " if re.search(r"^(in a child, )?late: ", output, re.M) else ""
        text = late + (", ".join(dict.fromkeys(failed)) or f"exit status {status}")
        return ("killed", text) if status != 0 else ("passed", "")
    failed = re.findall(r"^(?:FAILED|ERROR) \S*?::(\S+)", output, re.M)
    # Agents live on for a while: a Python test has not failed because tools/reap.py ended one.
    left = status == 1 and not failed and "left behind, and killed: " in output
    if status == 0 or left:
        return ("passed", "") if re.search(r"\b\d+ passed", output) else ("skipped", "")
    if status == 1 or status == 124 or status < 0:
        return "killed", ", ".join(failed) or f"exit status {status}"
    return "broken", output.strip().splitlines()[-1] if output.strip() else f"status {status}"


# ---- the run ----


@dataclass(frozen=True)
class Options:
    """Options of a run."""

    quick: bool = False
    each: bool = False
    all: bool = False

    def wants(self, killer: str) -> bool:
        return not self.quick or tier_of(killer) == "quick"


@dataclass(frozen=True)
class Outcome:
    """The result for a mutant."""

    kind: str  # "killed", "alive", "unknown", "error"
    text: str


def show(what: str, killer: str, verdict: Verdict) -> Verdict:
    print(f"{what:36} {killer}: {verdict} ({verdict.seconds:.1f} s)", flush=True)
    return verdict


def prove(scratch: Scratch, killers: list[str]) -> dict[str, Verdict]:
    """Runs the tests without a bug. Returns those that cannot tell anything, and why."""
    scratch.sync()
    scratch.prepare(killers)
    verdicts = {}
    for killer in killers:
        verdicts[killer] = show("without a bug", killer, scratch.run(killer))
        scratch.limits[killer] = LIMIT_FACTOR * verdicts[killer].seconds + LIMIT_MORE_S
    return {killer: verdict for killer, verdict in verdicts.items() if verdict.kind != "passed"}


def others(root: Path, mutant: Mutant) -> list[str]:
    """Returns all tests that are not among a mutant's killers: Python's by the file."""
    found = []
    if any(name.endswith((".c", ".h")) for name in mutant.files):
        for folder, prefix in C_FOLDERS.items():
            names = [path.stem.removeprefix(prefix) for path in (root / folder).rglob("*.c")]
            found += [f"c:{name}" for name in sorted(names)]
        found = [x for x in found if not killer_problem(root, x)]
    files = sorted((root / "tests/python").rglob("test_*.py"))
    found += [f"python:{path.relative_to(root)}" for path in files]
    return [killer for killer in found if killer not in mutant.killers]


def try_mutant(scratch: Scratch, mutant: Mutant, killers: list[str], each: bool) -> list[str]:
    """Applies a mutant, runs the tests until one fails, or all of them, and takes it back. Returns
    the tests that failed."""
    killed = []
    try:
        scratch.apply(mutant)
        scratch.prepare(killers)
        for killer in killers:
            if show(mutant.name, killer, scratch.run(killer)).kind == "killed":
                killed.append(killer)
                if not each:
                    break
    finally:
        scratch.take_back(mutant)
    return killed


def judge_mutant(scratch: Scratch, mutant: Mutant, killers: list[str], how: Options) -> Outcome:
    """Judges a mutant. killers: its tests that can tell something."""
    if not killers:
        return Outcome("unknown", "unknown: none of its killers can tell it here")
    try:
        killed = try_mutant(scratch, mutant, killers, how.each)
        if killed:
            return Outcome("killed", ", ".join(killed))
        text = "NONE of its killers"
        if how.all:
            rest = [x for x in others(scratch.root, mutant) if how.wants(x)]
            killed = try_mutant(scratch, mutant, rest, how.each)
            unable = prove(scratch, killed) if killed else {}  # some fail without the bug, too
            killed = [killer for killer in killed if killer not in unable]
            text += f"; of the others: {', '.join(killed) or 'none'}"
        return Outcome("alive", text)
    except BuildError as why:
        return Outcome("error", f"ERROR: {why}")


def run_mutants(root: Path, names: list[str], how: Options) -> int:
    begun = time.monotonic()
    mutants = read_mutants(root, names)
    scratch = Scratch(root)
    scratch.tree.mkdir(parents=True, exist_ok=True)
    alone = (scratch.tree.parent / ".lock").open("w")
    try:
        fcntl.flock(alone, fcntl.LOCK_EX | fcntl.LOCK_NB)  # held until this returns
    except BlockingIOError:
        sys.exit(f"mutants: another run is at work in {scratch.tree.parent}")
    wanted = {mutant.name: [x for x in mutant.killers if how.wants(x)] for mutant in mutants}
    unable = prove(scratch, list(dict.fromkeys(x for xs in wanted.values() for x in xs)))
    outcomes = {}
    for mutant in mutants:
        able = [killer for killer in wanted[mutant.name] if killer not in unable]
        outcomes[mutant.name] = judge_mutant(scratch, mutant, able, how)
    width = max(map(len, outcomes), default=0)
    print(f"\n{'mutant':{width}}  killed by")
    for name, outcome in outcomes.items():
        print(f"{name:{width}}  {outcome.text}")
    for killer, verdict in unable.items():
        print(f"{killer}: without a bug: {verdict}")
    kinds = [outcome.kind for outcome in outcomes.values()]
    print(f"in {time.monotonic() - begun:.0f} s; unknown: {kinds.count('unknown')}")
    print(f"{kinds.count('killed')} of {len(kinds)} mutants killed")
    wrong = any(verdict.kind != "skipped" for verdict in unable.values())
    return 1 if wrong or "alive" in kinds or "error" in kinds else 0


def list_mutants(root: Path) -> int:
    for mutant in read_mutants(root):
        print(f"{mutant.name}  ({mutant.head.get('fixed-by')})\n    {mutant.head.get('what')}")
        print(f"    killed by {', '.join(mutant.killers)}")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Brings bugs of the past back; who notices?")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="all mutants, what they break and what kills them")
    checking = commands.add_parser("check", help="whether each still fits the sources and tests")
    checking.add_argument("--tiers", action="store_true", help="and is killed by a quick test")
    running = commands.add_parser("run", help="whether each is killed by the tests it names")
    running.add_argument("names", nargs="*", metavar="NAME", help="these only")
    tiers = running.add_mutually_exclusive_group()
    tiers.add_argument("--quick", action="store_true", help="by quick tests only")
    tiers.add_argument("--full", action="store_true", help="by slow tests, too (the default)")
    running.add_argument("--each", action="store_true", help="run each killer, not until one kills")
    running.add_argument("--all", action="store_true", help="then all other tests, if none kills")
    arguments = parser.parse_args()
    if arguments.command == "list":
        return list_mutants(ROOT)
    if arguments.command == "run":
        how = Options(arguments.quick, arguments.each, arguments.all)
        return run_mutants(ROOT, arguments.names, how)
    problems = check(ROOT, arguments.tiers)
    print("\n".join(problems) or f"mutants: {len(read_mutants(ROOT))} fit")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
