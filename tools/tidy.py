#!/usr/bin/env python3
"""Holds the sources to the rules that a machine can check: layers, sizes, calls, names, words.

Prints `file:line: rule: message` for each finding and exits 1 if there is one. Layout is not its
business: clang-format and ruff have that. The tables below are the rules; the functions after them
only apply them. It reads text, not syntax trees, and relies on the layout that clang-format gives:
a function's braces stand in column 0, a control statement's at the end of its line. What holds for
time in the Python tests is in tidy_clock.py, for comments in tidy_comments.py, for structs, call
circles and retired words in tidy_shape.py.
"""

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import tidy_clock
import tidy_comments
import tidy_shape

FILE_LINES_MAX = 800
FUNCTION_LINES_MAX = 70  # from the first line of the signature to the closing brace
COLUMNS_MAX = 100  # a tab is 8
TAB_COLUMNS = 8
NESTING_MAX = 4  # braces around a statement, the function's own included

# The rooms that each room stands on. A room may include their headers, those of the rooms that they
# stand on, its own and include/pawl. Arrows go down only.
ROOMS: dict[str, set[str]] = {
    "include/pawl": set(),
    "src/base": set(),
    "src/io": {"base"},
    "src/store/object": {"io"},
    "src/store/google": {"store/object"},
    "src/store": {"io", "store/object"},
    "src/adapt": {"base"},
    "src/pipe": {"base"},
    "src/ckpt/format": {"base"},
    "src/ckpt/snap": {"ckpt/format"},
    "src/ckpt": {"ckpt/format", "store"},
    "src/coll/plan": {"base"},
    "src/coll/transport": {"base"},
    "src/coll/group": {"coll/plan", "coll/transport", "io"},
    "src/coll/probe": {"coll/group"},
    "src/stage": {"coll/group"},
    "src/ipc": {"ckpt/format", "io"},
    "src/session": {"ipc", "ckpt", "ckpt/snap"},
    "src/agent/ledger": {"ipc"},
    "src/agent/peer": {"ipc"},
    "src/agent/persist": {"agent/ledger", "agent/peer", "ckpt", "ipc"},
    "src/agent": {"agent/persist", "adapt"},
    "src/mirror": {"io", "ckpt"},
    "src/launch/env": {"base"},
    "src/launch/membership": {"base"},
    "src/launch/nodes": {"ckpt/format", "io"},
    "src/notice": {"io", "store/object"},
    "src/launch": {"agent", "launch/membership", "launch/env", "launch/nodes", "notice"},
    "src/sched/policy": {"adapt"},
    "src/sched/baseline": {"sched/policy"},
    "src/sched/core": {"sched/policy"},
    "src/sched/sim": {"sched/baseline", "sched/core"},
    "src/sched/jobfile": {"base", "store/object"},
    "src/sched/database": {"sched/core"},
    "src/engine": {"io", "sched/core", "sched/jobfile"},
    "src/engine/local": {"engine", "launch"},
    "src/engine/slurm": {"engine", "launch/membership", "launch/env"},
    "src/engine/slurm/pilot": {"engine/slurm"},
    "src/engine/k8s": {"engine"},
    "src/daemon/history": {"sched/core"},
    "src/daemon/http": {"sched/core"},
    "src/daemon": {
        "daemon/history",
        "daemon/http",
        "engine/local",
        "engine/slurm",
        "sched/database",
    },
    "src/cli": {"coll/probe", "daemon", "launch", "mirror"},
    "src/cli/ckpt": {"cli"},
    "src/cli/pipe": {"cli", "pipe"},
    "src/cli/sched": {"cli", "engine/slurm/pilot", "sched/sim"},
    "python": {"base/times.h"},  # Python waits by the same table
}
# Headers that fewer rooms may include than their own room allows.
NARROW = {"store/dirs.h": {"src/store", "src/ckpt"}}  # others see a root, of directories or not
ROOM_FILES_MAX = 25  # .c files, or Python modules, of one folder

# Rooms whose files decide and never act: given the same arguments they do the same, anywhere. Names
# files that are not so. ARCHITECTURE.md marks these rooms with P.
PURE_ROOMS: dict[str, set[str]] = {
    "src/adapt": set(),
    "src/agent/ledger": set(),
    "src/ckpt/format": set(),
    "src/coll/plan": set(),
    "src/launch/env": set(),
    "src/notice": {"notice_watcher.c"},
    "src/pipe": set(),
    "src/sched/baseline": set(),
    "src/sched/core": set(),
    "src/sched/jobfile": set(),
    "src/sched/policy": set(),
    "src/sched/sim": {"csv.c", "profile.c"},
    "src/store/google": {"auth_google.c", "cred_google.c"},
    "src/store/object": {
        "cred_aws.c",
        "cred_fresh.c",
        "cred_io.c",
        "cred_key.c",
        "object.c",
        "sign_aws.c",
    },
}
# Files of other rooms that are so, too.
PURE_FILES = {
    "src/agent/peer/image.c",
    "src/agent/peer/parity.c",
    "src/agent/peer/peer_msg.c",
    "src/agent/peer/place.c",
    "src/agent/peer/recover.c",
    "src/agent/persist/agree_msg.c",
    "src/base/crc.c",
    "src/base/date.c",
    "src/base/rng.c",
    "src/base/wire.c",
    "src/base/wire_code.c",
    "src/ckpt/snap/snap_list.c",
    "src/cli/explain_sum.c",
    "src/coll/group/control.c",
    "src/coll/group/group_call.c",
    "src/coll/group/trace.c",
    "src/coll/probe/probe_order.c",
    "src/coll/transport/endpoint.c",
    "src/daemon/memberships.c",
    "src/daemon/http/http_route.c",
    "src/daemon/sched_msg.c",
    "src/engine/local/plain.c",
    "src/engine/k8s/exec_credential.c",
    "src/engine/k8s/json_lines.c",
    "src/engine/k8s/kube_json.c",
    "src/engine/k8s/kube_node.c",
    "src/engine/k8s/kube_pod.c",
    "src/engine/k8s/kubeconfig.c",
    "src/engine/k8s/lease.c",
    "src/engine/k8s/quantity.c",
    "src/io/greeting.c",
    "src/io/http_request.c",
    "src/ipc/frame_layout.c",
    "src/ipc/frames.c",
    "src/launch/nodes/node_frame.c",
    "src/launch/nodes/nodes.c",
    "src/launch/nodes/nodes_join.c",
    "src/launch/nodes/nodes_lead.c",
    "src/launch/nodes/nodes_members.c",
    "src/launch/nodes/nodes_serve.c",
    "src/launch/nodes/run_policy.c",
    "src/launch/run_lines.c",
    "src/launch/run_places.c",
    "src/mirror/core.c",
    "src/mirror/core_jobs.c",
    "src/mirror/msg.c",
    "src/mirror/units.c",
    "src/stage/core.c",
    "src/stage/frame.c",
    "src/stage/order.c",
    "src/stage/table.c",
    "src/store/mem_disk.c",
}
# What those may not reach, directly or through a header of ours.
IMPURE = re.compile(
    r"(time|pthread|threads|stdatomic|unistd|fcntl|poll|signal|spawn|dirent|liburing)\.h$|sys/|linux/"
    r"|(base/(clock|log|times)|io/(aio|loop))\.h$"
)
# Fault points are let through: unarmed they decide nothing, and pure code allocates.
PURE_ENOUGH = {"base/fault.h"}

BANNED = {
    **dict.fromkeys(["strcpy", "strcat", "stpcpy", "strncpy"], "snprintf or memcpy"),
    **dict.fromkeys(["sprintf", "vsprintf"], "snprintf"),
    **dict.fromkeys(["atoi", "atol", "atoll", "atof"], "strtol and friends: they report errors"),
    **dict.fromkeys(["rand", "srand", "random", "srandom", "drand48"], "base/rng.h"),
    **dict.fromkeys(["tmpnam", "mktemp", "tempnam"], "mkstemp or mkdtemp"),
    **dict.fromkeys(["asctime", "ctime", "gmtime", "localtime"], "the _r form"),
    **dict.fromkeys(["setjmp", "longjmp"], "return an error"),
    "gets": "fgets",
    "strtok": "strtok_r",
    "alloca": "a named limit and an array, or malloc at open",
    "system": "posix_spawn",
    "popen": "posix_spawn",
    "signal": "sigaction or signalfd",
    "assert": "ASSERT of base/assert.h: it stays on in production",
}
# Banned too, but not where the names below begin.
PRINTS = ["printf", "fprintf", "vprintf", "vfprintf", "dprintf", "puts", "fputs", "putchar", "putc"]
PRINTS += ["fputc", "perror"]
FORMATS = ["printf", "fprintf", "vprintf", "vfprintf", "dprintf", "puts", "fputs", "perror"]
SLEEPS = ["usleep", "sleep"]
RESTRICTED = {
    **dict.fromkeys(PRINTS, "log_line, cli_print, or return an error that says it"),
    **dict.fromkeys(SLEEPS, "a timer of the loop, or a wait with a timeout"),
}
TRIALS = ("tests/", "bench/", "demo/", "examples/")
# Files of the program that print past cli_print: help, files that are not for people, a terminal
# that is to be steered, and what has been made fit for one before.
RAW_FILES = ("src/cli/opt.c", "src/cli/main.c", "src/cli/version.c", "src/cli/explain_json.c")
RAW_FILES += ("src/cli/ckpt/ckpt_watch.c", "src/cli/sched/top.c", "src/cli/progress.c")
RAW_FILES += ("src/cli/pipe/trace.c",)
MAY = {
    **dict.fromkeys(PRINTS, (*TRIALS, "src/cli/", "src/base/log.c", "src/base/assert.c")),
    **dict.fromkeys(FORMATS, (*TRIALS, *RAW_FILES, "src/base/log.c", "src/base/assert.c")),
    **dict.fromkeys(SLEEPS, TRIALS),
}

# C tests that sleep, or hold a measured time to an upper bound, other than by tests/lib/within.h,
# and why they may.
C_SLEEPS = {
    "tests/lib/within.h": "the helpers themselves",
}
C_BOUNDS = {
    "tests/unit/coll/test_coll_group.c": "CPU seconds of a process that waits",
    "tests/unit/engine/test_sched_slurm.c": "a deadline lies between two looks at the clock",
    "tests/unit/session/test_session_due.c": "asking is cheap, the fastest of a hundred times",
}

WORDS = {
    "TODO": "do it, or file it",
    "FIXME": "fix it, or file it",
    "XXX": "say what is wrong",
    "HACK": "say why it must be so",
    "whitelist": "allow list",
    "blacklist": "deny list",
}
SPEAKS_OF_WORDS = {"tools/tidy.py", "tests/python/project/test_tidy.py"}

CALL = re.compile(rf"(?<![\w.])(?<!->)({'|'.join(sorted({*BANNED, *RESTRICTED}))})\s*\(")
WORD = re.compile(rf"\b({'|'.join(WORDS)})\b")
C_SLEEP = re.compile(r"(?<![\w.])(?<!->)(nanosleep|usleep|sleep|clock_nanosleep|poll(?=\(NULL))\(")
CLOCK = re.compile(r"\bclock(_(mono|wall|boot)_ns|_gettime)?\(")
ASSERTED = re.compile(r"\bassert_(?:true\((?P<all>.*)\)|in_range\((?P<value>[^,]*),.*\))\s*$", re.S)
INCLUDE = re.compile(r'#\s*include\s*([<"])([^>"]+)[>"]')
# A comment, a string or a character: what must not be mistaken for code.
LITERAL = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])+'", re.S)
# A brace that opens a block (not an initializer), as clang-format writes it.
BLOCK_OPEN = re.compile(r"(?:^|\) |\belse |\bdo |: )\{$")

Finding = tuple[int, str, str]  # line, rule, message


def blank(match: re.Match[str]) -> str:
    """The same text with everything but its line ends made spaces; an include keeps its name."""
    return re.sub(r"[^\n]", " ", match[0])


class Source:
    """One file: its place in the tree, its lines, and its lines with comments and strings blank."""

    def __init__(self, root: Path, name: str) -> None:
        self.root = root
        self.name = name
        self.text = (root / name).read_text(encoding="utf-8", errors="replace")
        self.lines = self.text.splitlines()

    @cached_property
    def code(self) -> list[str]:
        return LITERAL.sub(blank, self.text).splitlines()

    @cached_property
    def includes(self) -> list[tuple[int, bool, str]]:
        """Line, whether quoted, and name; a quoted name without a folder is put in this one's."""
        found = []
        for number, line in enumerate(self.lines, 1):
            match = INCLUDE.match(line)
            if match:
                quoted, name = match[1] == '"', match[2]
                if quoted and "/" not in name:
                    folder = Path(self.name).parent
                    room = folder.relative_to("src") if folder.parts[0] == "src" else folder.name
                    name = f"{room}/{name}"
                found.append((number, quoted, name))
        return found


def check_size(source: Source) -> Iterator[Finding]:
    if len(source.lines) > FILE_LINES_MAX:
        message = f"{len(source.lines)} lines, {FILE_LINES_MAX} at most"
        yield FILE_LINES_MAX + 1, "file-length", message


def check_columns(source: Source) -> Iterator[Finding]:
    for number, line in enumerate(source.lines, 1):
        width = len(line.expandtabs(TAB_COLUMNS))
        if width > COLUMNS_MAX:
            yield number, "columns", f"{width} columns, {COLUMNS_MAX} at most"


def check_words(source: Source) -> Iterator[Finding]:
    if source.name in SPEAKS_OF_WORDS:
        return
    for number, line in enumerate(source.lines, 1):
        for match in WORD.finditer(line):
            yield number, "word", f"{match[0]}: {WORDS[match[0]]}"


def check_opening(source: Source) -> Iterator[Finding]:
    if not source.text.startswith("/*"):
        yield 1, "opening", "the file does not begin with a comment saying what it is"


def check_docstring(source: Source) -> Iterator[Finding]:
    try:
        tree = ast.parse(source.text)
    except SyntaxError as error:
        yield error.lineno or 1, "syntax", error.msg
        return
    if not ast.get_docstring(tree):
        yield 1, "opening", "the module has no docstring saying what it is"


def check_comments(source: Source) -> Iterator[Finding]:
    for match in LITERAL.finditer(source.text):
        if match[0].startswith("//"):
            yield source.text.count("\n", 0, match.start()) + 1, "comment", "write /* … */, not //"


def check_riddles(source: Source) -> Iterator[Finding]:
    check = tidy_comments.check_python if source.name.endswith(".py") else tidy_comments.check_c
    yield from check(source.text)


def check_structs(source: Source) -> Iterator[Finding]:
    yield from tidy_shape.check_structs(source.code)


def check_retired(source: Source) -> Iterator[Finding]:
    """Names of tests are sentences, and may use any word."""
    if source.name.startswith(("src/", "include/", "python/")):
        yield from tidy_shape.check_retired(source.code)


def check_guard(source: Source) -> Iterator[Finding]:
    path = Path(source.name)
    prefix = "test" if path.parts[0] == "tests" else path.parent.name
    if path.parts[0] == "src":
        prefix = "_".join(path.parent.parts[1:])
    name = path.name.removeprefix("test_").lstrip("_")
    guard = re.sub(r"\W", "_", f"{prefix}_{name}").upper()
    directives = [(n, line) for n, line in enumerate(source.code, 1) if line.startswith("#")]
    if [line.rstrip() for _, line in directives[:2]] != [f"#ifndef {guard}", f"#define {guard}"]:
        yield directives[0][0] if directives else 1, "guard", f"the header guard must be {guard}"


def check_calls(source: Source) -> Iterator[Finding]:
    for number, line in enumerate(source.code, 1):
        for match in CALL.finditer(line):
            name = match[1]
            if name in BANNED:
                yield number, "call", f"{name}: use {BANNED[name]}"
            elif not source.name.startswith(MAY[name]):
                yield number, "call", f"{name}: use {RESTRICTED[name]}"


def check_typedefs(source: Source) -> Iterator[Finding]:
    for number, line in enumerate(source.code, 1):
        if re.match(r"\s*typedef\s+(struct|union|enum)\b", line) and "(" not in line:
            yield number, "typedef", "name the struct, union or enum itself"


def signature_start(source: Source, brace: int) -> int:
    """Index of the first line of the signature whose opening brace is at index brace."""
    start = brace
    while start > 0 and source.code[start - 1].strip() and source.code[start - 1][0] not in "#}":
        start -= 1
    return start


def check_functions(source: Source) -> Iterator[Finding]:
    """Length and nesting; a function is what stands between two braces in column 0."""
    start = None  # index of the function's first line
    blocks: list[bool] = []  # open braces: does it open a block of statements?
    for index, line in enumerate(source.code):
        if line.rstrip() == "{":
            start, blocks = signature_start(source, index), [True]
        elif start is not None and line.startswith("}"):
            length = index - start + 1
            if length > FUNCTION_LINES_MAX:
                message = f"{length} lines, {FUNCTION_LINES_MAX} at most"
                yield start + 1, "function-length", message
            start = None
        elif start is not None:
            yield from check_nesting(index, line, blocks)


def check_nesting(index: int, line: str, blocks: list[bool]) -> Iterator[Finding]:
    """Follows the braces of one line; blocks holds the open ones."""
    for match in re.finditer(r"[{}]", line):
        if match[0] == "}":
            if blocks:
                blocks.pop()
            continue
        blocks.append(BLOCK_OPEN.search(line[: match.end()].strip()) is not None)
        if blocks[-1] and sum(blocks) == NESTING_MAX + 1:
            yield index + 1, "nesting", f"deeper than {NESTING_MAX} levels: name the inner part"


def stands_on(room: str) -> set[str]:
    """All rooms that a room stands on, however far down."""
    found: set[str] = set()
    new = ROOMS.get(room, set())
    while new:
        found |= new
        new = set().union(*(ROOMS.get(f"src/{below}", set()) for below in new)) - found
    return found


def check_layers(source: Source) -> Iterator[Finding]:
    """Arrows between rooms. tests, bench and examples may include what they like."""
    top = source.name.split("/")[0]
    if top not in ("src", "include", "python"):
        return
    home = top if top == "python" else str(Path(source.name).parent)
    if home not in ROOMS:
        yield 1, "layer", f"{home} is not in the table of rooms (tools/tidy.py)"
        return
    allowed = stands_on(home) | {"pawl", home.removeprefix("src/")}
    for number, quoted, name in source.includes:
        ours = quoted or (source.root / "src" / name).is_file()
        if ours and str(Path(name).parent) not in allowed and name not in allowed:
            yield number, "layer", f"{home} may not include {name}"
        elif home not in NARROW.get(name, {home}):
            yield number, "layer", f"only {', '.join(sorted(NARROW[name]))} may include {name}"


def check_widths(names: list[str]) -> list[str]:
    """Folders with more files than a person keeps in mind. names: of all files."""
    lines = []
    for suffix in (".c", ".py"):
        folders = Counter(str(Path(name).parent) for name in names if name.endswith(suffix))
        for folder, n in sorted(folders.items()):
            if n > ROOM_FILES_MAX:
                lines.append(
                    f"{folder}:1: width: {n} {suffix} files, {ROOM_FILES_MAX} at most: divide it"
                )
    return lines


def impure_include(source: Source, name: str, seen: set[str]) -> str | None:
    """The first impure header that including name brings in, or None."""
    if name in PURE_ENOUGH:
        return None
    if IMPURE.match(name):
        return name
    for folder in ("src", "include"):
        path = f"{folder}/{name}"
        if path not in seen and (source.root / path).is_file():
            seen.add(path)
            for _, _, inner in Source(source.root, path).includes:
                found = impure_include(source, inner, seen)
                if found:
                    return found
    return None


def is_pure(name: str) -> bool:
    path = Path(name)
    others = PURE_ROOMS.get(str(path.parent), {path.name})
    return name in PURE_FILES or (path.suffix == ".c" and path.name not in others)


def check_pure(source: Source) -> Iterator[Finding]:
    if not is_pure(source.name):
        return
    for number, _, name in source.includes:
        found = impure_include(source, name, set())
        if found:
            through = "" if found == name else f", through {name}"
            yield number, "pure", f"a pure file may not include {found}{through}"


def is_c_test(source: Source) -> bool:
    return source.name.startswith("tests/") and Path(source.name).suffix in (".c", ".h")


def check_c_sleeps(source: Source) -> Iterator[Finding]:
    """A test that sleeps says what for: WITHIN waits, within_pace paces, within_quiet listens."""
    if not is_c_test(source) or source.name in C_SLEEPS:
        return
    for number, line in enumerate(source.code, 1):
        for match in C_SLEEP.finditer(line):
            message = f"{match[1]}: use WITHIN, within_pace or within_quiet of tests/lib/within.h"
            yield number, "c-sleep", message


def is_upper_bound(part: str, timed: re.Pattern[str]) -> bool:
    """Whether a part of a condition wants what was measured to be less than something."""
    match = re.search(r"(?<![<>-])[<>](?![<>])", part)
    if not match:
        return False
    left, right = part[: match.start()], part[match.end() :]
    if timed.search(left):
        return match[0] == "<"
    return match[0] == ">" and timed.search(right) is not None


def find_bounds(body: list[str]) -> Iterator[int]:
    """Indexes of the lines where a bound's statement ends: of variables set from a clock."""
    timed = CLOCK
    statement = ""
    for index, line in enumerate(body):
        statement += line + "\n"
        if not line.rstrip().endswith((";", "{", "}")):
            continue
        asserted = ASSERTED.search(statement.rstrip().rstrip(";"))
        if asserted and asserted["value"] and timed.search(asserted["value"]):
            yield index
        elif asserted and asserted["all"]:
            parts = re.split(r"&&|\|\|", asserted["all"])
            if any(is_upper_bound(part, timed) for part in parts):
                yield index
        made = re.search(r"clock_gettime\([^,]*, &(\w+)(\))", statement)
        made = made or re.search(r"(\w+)\s*[-+]?=(?!=)(.*)", statement, re.S)
        if made and (made[2] == ")" or timed.search(made[2])):
            timed = re.compile(rf"{timed.pattern}|\b{made[1]}\b")
        statement = ""


def check_c_bounds(source: Source) -> Iterator[Finding]:
    """How long it took says how busy the machine is: see WITHIN, or count."""
    if not is_c_test(source) or source.name in C_BOUNDS:
        return
    start = 0
    for index, line in enumerate(source.code):
        if line.rstrip() == "{":
            start = index
        elif line.startswith("}"):
            for found in find_bounds(source.code[start:index]):
                message = "a measured time has no upper bound: WITHIN, an order, or a count"
                yield start + found + 1, "c-bound", message


def check_clock(source: Source) -> Iterator[Finding]:
    yield from tidy_clock.check_sleeps(source.name, source.text)
    yield from tidy_clock.check_bounds(source.name, source.text)


C_CHECKS = [check_size, check_columns, check_words, check_opening, check_comments, check_calls]
C_CHECKS += [check_typedefs, check_functions, check_layers, check_pure, check_riddles]
C_CHECKS += [check_c_sleeps, check_c_bounds, check_structs, check_retired]
CHECKS = {
    ".c": C_CHECKS,
    ".h": [*C_CHECKS, check_guard],
    ".py": [check_size, check_words, check_docstring, check_clock, check_riddles],
    ".sh": [check_size, check_columns, check_words],
}


def check_file(root: Path, name: str) -> list[str]:
    """All findings in one file, as the lines that main prints."""
    source = Source(root, name)
    findings = [finding for check in CHECKS[Path(name).suffix] for finding in check(source)]
    return [f"{name}:{line}: {rule}: {message}" for line, rule, message in sorted(findings)]


def list_files(root: Path) -> list[str]:
    """What git tracks or would track, so that build outputs are left alone."""
    command = ["git", "-C", str(root), "ls-files", "-z", "-co", "--exclude-standard"]
    names = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("\0")
    return sorted({n for n in names if Path(n).suffix in CHECKS and (root / n).is_file()})


def check_tree(root: Path) -> list[str]:
    """Findings in all files, and what the tables name that is not there."""
    names = list_files(root)
    lines = [line for name in names for line in check_file(root, name)] + check_widths(names)
    rooms = [name for name in names if name.startswith("src/") and name.endswith(".c")]
    lines += tidy_shape.check_circles({name: Source(root, name).code for name in rooms})
    others = {f"{room}/{name}" for room, other in PURE_ROOMS.items() for name in other}
    gone = sorted({*PURE_FILES, *others, *C_SLEEPS, *C_BOUNDS} - set(names))
    lines += [f"tools/tidy.py:1: table: it names {n}, which is not there" for n in gone]
    return lines + [
        f"tools/tidy_clock.py:1: time-bound: the table names {n}, which is not there"
        for n in tidy_clock.unused_bounds(root)
    ]


def main() -> int:
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent).resolve()
    lines = check_tree(root)
    print("\n".join(lines) if lines else "tidy: nothing to say")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
