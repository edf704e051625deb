#!/usr/bin/env python3
"""Tells how `pawl submit --check` judges job files that others wrote, such as SkyPilot's users.

    python tools/jobfiles.py FOLDER...

Walks the folders for YAML files that look like job files, leaves out those with equal content, and
gives each to the program: as it is, and, where it asks for variables (`NAME has no value`), once
more with all of them given. Prints how many pass, and how many are refused for which reason. A file
may have several reasons; the program names only the first 20 mistakes of a file. Nothing is
submitted, and nothing is written.

A file looks like a job file if it has `run`, `setup` or `resources` at its left edge, and more than
half of all keys there are SkyPilot's or Pawl's.

Exit codes: 0; 1 if a refusal names no line of its file; 2 if a folder or the program is not there,
or no job file.
"""

import argparse
import collections
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

BYTES_MAX = 1 << 20  # docs/jobs.md: no job file has more
LIMIT_S = 60
ROUNDS_MAX = 20  # rounds of asking for variables; each round names 20 mistakes at most

JOB_KEYS = {"run", "setup", "resources"}
KNOWN_KEYS = JOB_KEYS | {
    "name", "workdir", "num_nodes", "envs", "secrets", "file_mounts", "file_mounts_mapping",
    "volumes", "config", "experimental", "service", "pool", "inputs", "outputs", "execution",
    "api_server_access", "event_callback", "replicas", "spot", "queue", "priority", "preemptible",
    "retries", "time_limit",
}  # fmt: skip
KEY = re.compile(r"""^["']?(\w+)["']?[ \t]*:(?=\s|$)(\s*- )?""", re.M)
ASKED = re.compile(r"(\w+) has no value: give (--env|--secret) ")
# Parts of a message that differ by file: paths, URLs, quoted words, a number of devices.
OF_A_FILE = re.compile(r"\"[^\"]*\"|[^\s:;(]*[/~$][\w{][^\s;):]*|\b[\w-]+:[\d.]+")


class Verdict(NamedTuple):
    """The program's verdict on a file."""

    path: Path
    passed: bool
    given: list[str]  # options of `pawl submit` that give the variables the file asks for
    errors: list[tuple[int, str]]  # line (0: none is named) and message


# ---- finding ----


def looks_like_job(text: str) -> bool:
    keys = {name for name, listed in KEY.findall(text) if not (name == "resources" and listed)}
    return bool(keys & JOB_KEYS) and 2 * len(keys & KNOWN_KEYS) > len(keys)


def stop(error: OSError) -> None:
    raise error


def find_files(folders: list[Path]) -> tuple[list[Path], int]:
    """Returns the files that look like job files, and how many more are copies of these."""
    found: dict[bytes, Path] = {}
    copies = 0
    for folder in folders:
        for place, inner, names in os.walk(folder, onerror=stop):
            inner[:] = sorted(name for name in inner if name != ".git")
            for path in (Path(place, name) for name in sorted(names)):
                if path.suffix not in (".yaml", ".yml") or not path.is_file():
                    continue
                content = path.read_bytes() if path.stat().st_size <= BYTES_MAX else b""
                if looks_like_job(content.decode(errors="replace")):
                    digest = hashlib.sha256(content).digest()
                    copies += digest in found
                    found.setdefault(digest, path)
    return list(found.values()), copies


def find_program(named: str | None) -> str:
    beside = str(Path(sys.executable).parent)  # the bin folder of the .venv whose python runs this
    program = shutil.which(named) if named else shutil.which("pawl", path=beside)
    program = program or (None if named else shutil.which("pawl"))
    if program is None:
        raise FileNotFoundError(2, "no such program; --pawl names it", named or "pawl")
    return program


# ---- asking ----


def ask(program: str, path: Path, given: list[str]) -> list[tuple[int, str]]:
    """Returns the mistakes of a file; none, if it is a job."""
    command = [program, "submit", "--check", "--json", *given, str(path.resolve())]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return [(0, f"no answer in {LIMIT_S} s")]
    if done.returncode == 0:
        return []
    try:
        said = json.loads(done.stdout)["errors"]
        errors = [(int(error["line"]), str(error["message"])) for error in said]
    except (ValueError, KeyError, TypeError):
        errors = []
    last = (done.stderr.splitlines() or ["nothing said"])[-1]
    return errors or [(0, f"exit code {done.returncode}: {last}")]


def judge(program: str, path: Path) -> Verdict:
    given: list[str] = []
    errors = ask(program, path, given)
    for _ in range(ROUNDS_MAX):
        asked = [match for _, message in errors if (match := ASKED.match(message))]
        more = [word for match in asked for word in (match[2], f"{match[1]}=x")]
        if not more:
            break
        given += more
        errors = ask(program, path, given)
    return Verdict(path, not errors, given, errors)


# ---- telling ----


def reason(message: str) -> str:
    """Returns the kind of a message: without advice, and without the parts that differ by file."""
    return OF_A_FILE.sub("…", message.partition("; ")[0])


def list_verdicts(verdicts: list[Verdict]) -> None:
    for path, passed, given, errors in verdicts:
        if passed:
            print(f"{path}: passes" + (f" with {' '.join(given)}" if given else ""))
        else:
            line, message = errors[0]
            more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
            print(f"{path}:{line or '?'}: {message}{more}")
    print()


def print_table(verdicts: list[Verdict], folders: int, copies: int) -> None:
    refused = [verdict for verdict in verdicts if not verdict.passed]
    asked = sum(verdict.passed and bool(verdict.given) for verdict in verdicts)
    placed = sum(all(line for line, _ in verdict.errors) for verdict in refused)
    print(f"{len(verdicts):6} different files of folders: {folders} (copies left out: {copies})")
    print(f"{len(verdicts) - len(refused) - asked:6} pass")
    print(f"{asked:6} pass once their variables are given")
    print(f"{len(refused):6} are refused, {placed} of them with a line for each mistake")
    if not refused:
        return
    files: collections.Counter[str] = collections.Counter()
    alone: collections.Counter[str] = collections.Counter()
    lines: collections.Counter[str] = collections.Counter()
    for verdict in refused:
        reasons = {reason(message) for _, message in verdict.errors}
        files.update(reasons)
        alone.update(reasons if len(reasons) == 1 else ())
        lines.update(reasons - {reason(message) for line, message in verdict.errors if not line})
    print("\n files   alone  with line  reason (alone: files that have no other)")
    for name, n in sorted(files.items(), key=lambda row: (-row[1], row[0])):
        print(f"{n:6}  {alone[name]:6}  {lines[name]:9}  {name}")


def read_arguments() -> argparse.Namespace:
    head, _, rest = (__doc__ or "").partition("\n\n    python tools/jobfiles.py FOLDER...\n\n")
    parser = argparse.ArgumentParser(
        description=head, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", metavar="FOLDER", nargs="+", type=Path)
    parser.add_argument("--list", action="store_true", help="first, a line for each file")
    parser.add_argument(
        "--pawl", metavar="PROGRAM", help="default: pawl beside this Python, or on PATH"
    )
    return parser.parse_args()


def main() -> int:
    arguments = read_arguments()
    try:
        program = find_program(arguments.pawl)
        paths, copies = find_files(arguments.folders)
        verdicts = [judge(program, path) for path in paths]
    except OSError as error:
        print(f"jobfiles.py: {error.filename}: {error.strerror}", file=sys.stderr)
        return 2
    if not verdicts:
        where = ", ".join(map(str, arguments.folders))
        print(f"jobfiles.py: {where}: no YAML file that looks like a job file", file=sys.stderr)
        return 2
    if arguments.list:
        list_verdicts(verdicts)
    print_table(verdicts, len(arguments.folders), copies)
    return 0 if all(line for verdict in verdicts for line, _ in verdict.errors) else 1


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `| head` may close the pipe
    sys.exit(main())
