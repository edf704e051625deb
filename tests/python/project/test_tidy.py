"""Every rule of tools/tidy.py catches a tiny file that breaks it and passes one that does not."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[3] / "tools"
sys.path.insert(0, str(TOOLS))

import tidy  # noqa: E402
import tidy_clock  # noqa: E402
import tidy_comments  # noqa: E402
import tidy_shape  # noqa: E402

SAID = "/* What the file is. */\n"
GUARD = "#ifndef BASE_A_H\n#define BASE_A_H\n"


def function(lines: int) -> str:
    """Returns a function of that many lines, signature and braces included."""
    return SAID + "int f(void)\n{\n" + "\tg();\n" * (lines - 3) + "}\n"


def nested(levels: int) -> str:
    """Returns a function whose deepest statement has that many braces around it."""
    opened = "".join("\t" * n + "if (a) {\n" for n in range(1, levels))
    closed = "".join("\t" * n + "}\n" for n in range(levels - 1, 0, -1))
    return SAID + "int f(void)\n{\n" + opened + closed + "}\n"


def called(statement: str) -> str:
    return SAID + f"int f(void)\n{{\n\t{statement};\n}}\n"


def measured(assertion: str) -> str:
    """Returns a function that measures a time, with the assertion in its line 6."""
    begin = "\tint64_t a_ns = clock_mono_ns();\n\tint64_t took_ns = clock_mono_ns() - a_ns;\n"
    return SAID + f"void f(void)\n{{\n{begin}\t{assertion};\n}}\n"


def struct(fields: int) -> str:
    """Returns a struct of that many fields, with a struct within it that counts as one more."""
    inner = "\tstruct {\n" + "\t\tint c;\n" * 40 + "\t} inner;\n"
    return SAID + "struct a {\n" + inner + "\tint a, b(int c, int d);\n" * (fields // 2) + "};\n"


# rule, file, text that breaks it, line of the finding, text that does not
CASES = [
    ("file-length", "src/base/a.c", SAID + "\n" * 800, 801, SAID + "\n" * 799),
    ("file-length", "tools/a.py", '"""A."""\n' + "\n" * 800, 801, '"""A."""\n'),
    ("columns", "src/base/a.c", SAID + "\t" + "x" * 93, 2, SAID + "\t" + "x" * 92),
    ("opening", "src/base/a.c", "int a;\n" + SAID, 1, SAID),
    ("opening", "tools/a.py", "A = 1\n", 1, '"""A."""\n'),
    ("syntax", "tools/a.py", "a b\n", 1, '"""A."""\n'),
    ("comment", "src/base/a.c", SAID + "int a; // no\n", 2, SAID + 'char *a = "http://x";\n'),
    ("word", "src/base/a.c", SAID + "/* TODO */\n", 2, SAID + "/* TODOS */\n"),
    ("struct", "src/base/a.c", struct(40), 2, struct(38)),
    ("retired", "src/base/a.c", SAID + "int told_ns;\n", 2, SAID + "int beaten; /* told */\n"),
    ("retired", "include/pawl/a.h", SAID + GUARD + "int a_DOOR;\n", 4, SAID + GUARD),
    ("guard", "src/base/a.h", SAID + "#ifndef A_H\n#define A_H\n", 2, SAID + GUARD),
    ("guard", "src/base/a.h", SAID + "#ifndef BASE_A_H\n#define BASE_B_H\n", 2, SAID + GUARD),
    ("guard", "src/base/a.h", SAID, 1, SAID + GUARD),
    (
        "guard",
        "src/ckpt/format/a.h",
        SAID + GUARD.replace("BASE", "FORMAT"),
        2,
        SAID + GUARD.replace("BASE", "CKPT_FORMAT"),
    ),
    ("guard", "tests/lib/a.h", SAID + GUARD, 2, SAID + GUARD.replace("BASE", "TEST")),
    ("guard", "tests/unit/test_a.h", SAID + GUARD, 2, SAID + GUARD.replace("BASE", "TEST")),
    ("guard", "python/pawl/_a.h", SAID + GUARD, 2, SAID + GUARD.replace("BASE", "PAWL")),
    ("typedef", "src/base/a.c", SAID + "typedef struct a a;\n", 2, SAID + "struct a;\n"),
    ("function-length", "src/base/a.c", function(71), 2, function(70)),
    ("nesting", "src/base/a.c", nested(5), 7, nested(4)),
    ("call", "src/base/a.c", called("strcpy(a, b)"), 4, called("my_strcpy(a, b)")),
    ("call", "src/base/a.c", called("assert(a)"), 4, called("ASSERT(a)")),
    ("call", "src/base/a.c", called("signal(1, f)"), 4, called("loop->signal(1, f)")),
    ("call", "src/base/a.c", called('printf("a")'), 4, called('snprintf(a, 1, "printf(")')),
    ("layer", "src/base/a.c", SAID + '#include "store/a.h"', 2, SAID + '#include "base/a.h"'),
    ("layer", "src/store/a.c", SAID + '#include "ckpt/a.h"', 2, SAID + '#include "base/a.h"'),
    ("layer", "src/ckpt/a.c", SAID + '#include "agent/a.h"', 2, SAID + '#include "store/a.h"'),
    ("layer", "src/agent/a.c", SAID + '#include "cli/a.h"', 2, SAID + '#include "ckpt/a.h"'),
    ("layer", "src/ipc/a.c", SAID + '#include "session/a.h"', 2, SAID + '#include "base/a.h"'),
    ("layer", "src/engine/a.c", SAID + '#include "engine/slurm/a.h"', 2, SAID + '#include "a.h"'),
    ("layer", "python/pawl/a.c", SAID + '#include "base/a.h"', 2, SAID + '#include "pawl/a.h"'),
    ("layer", "include/pawl/a.h", SAID + '#include "base/a.h"', 2, SAID + '#include "pawl/b.h"'),
    (
        "layer",
        "src/agent/a.c",
        SAID + '#include "store/dirs.h"',
        2,
        SAID + '#include "ckpt/root.h"',
    ),
    ("layer", "src/unknown/a.c", SAID, 1, None),
    (
        "pure",
        "src/ckpt/format/zip.c",
        SAID + "#include <unistd.h>",
        2,
        SAID + "#include <string.h>",
    ),
    (
        "pure",
        "src/ckpt/format/zip.c",
        SAID + '#include "base/clock.h"',
        2,
        SAID + '#include "base/err.h"',
    ),
    ("pure", "src/ckpt/format/zip.c", SAID + "#include <sys/mman.h>", 2, SAID + '#include "zip.h"'),
    ("riddle", "src/base/a.c", SAID + "int n; /* of them */", 2, SAID + "int n; /* entries */"),
    ("riddle", "tools/a.py", '"""A."""\n# Likewise.\n', 2, '"""A."""\n# The size,\n# of it.\n'),
    ("c-sleep", "tests/unit/a.c", called("usleep(1)"), 4, called("within_pace(1)")),
    ("c-sleep", "tests/unit/a.h", called("nanosleep(&a, &a)"), 4, called("x.sleep(1)")),
    ("c-sleep", "tests/lib/a.c", called("sleep(1)"), 4, called("do_sleep(1)")),
    ("c-sleep", "tests/fuzz/a.c", called("clock_nanosleep(a)"), 4, called("within_quiet(1)")),
    ("c-sleep", "tests/golden/a.c", called("poll(NULL, 0, 1)"), 4, called("poll(fds, 1, 1)")),
]


# An assertion on a measured time, and whether it is an upper bound.
BOUNDS = [
    ("assert_true(took_ns < 5)", True),
    ("assert_true(took_ns <= 5)", True),
    ("assert_true(5 > took_ns)", True),
    ("assert_true(a || 2 * took_ns < 5)", True),
    ("assert_true(clock_mono_ns() < a->end_ns)", True),
    ("assert_true(clock_mono_ns() - a_ns < 5)", True),
    ("assert_true(a >\n\t\tb &&\n\t\ttook_ns < 5)", True),
    ("assert_in_range(took_ns, 1, 5)", True),
    ("double s = took_ns / 1e9;\n\tassert_true(s < 5)", True),
    ("struct timespec b;\n\tclock_gettime(A, &b);\n\tassert_true(b.tv_sec < 5)", True),
    ("assert_true(took_ns >= 5)", False),
    ("assert_true(took_ns > 5)", False),
    ("assert_true(5 <= took_ns)", False),
    ("assert_true(a < 5 && took_ns > 5)", False),
    ("assert_true(a->b == 1 || took_ns == 0)", False),
    ("assert_in_range(n, 1, took_ns)", False),
    ("n = 5;\n\tassert_true(n < 5)", False),
]


# What holds only while not too much time has passed, and what holds whatever has.
BOUNDED = [
    "assert time.monotonic() - began < 3",
    "assert 3 >= time.monotonic() - began",
    "assert 0.9 < time.monotonic() - began < 15",
    "took = time.perf_counter() - began; assert done and took <= 3",
    "took = 1e3 * (time.perf_counter() - began); assert took < 3",
    "took, other = time.time() - began, 1; assert took < 3",
    "slowest = max(0, time.time_ns() - began); assert slowest < 3",
    "took = []; took.append(time.monotonic() - began); assert min(took) < 3",
    "took = []; took.append(time.monotonic() - began); assert all(t < 3 for t in took)",
    "takes = {}; takes['a'] = time.monotonic() - began; assert takes['a'] < 3",
    "self.ended = time.monotonic(); assert self.ended - began < 3",
    "ended = time.monotonic(); assert ended < began + 3",
    "took = float(said) - began; assert took < 3",
    "seconds = min(timeit.repeat(f, number=9)) / 9; assert seconds < 2e-6",
    "end = began + 3; assert time.monotonic() < end",
    "def inner(): assert time.monotonic() < began + 3",
    "while time.monotonic() < began + 3: pass",
    "if time.monotonic() > began + 3: raise ValueError",
    "while not done() and time.monotonic() - began < 3: pass",
]
FREE = [
    "assert time.monotonic() - began > 3",
    "assert 0.9 < time.monotonic() - began",
    "took = time.monotonic() - began; assert not done or took > 3",
    "over = time.monotonic(); assert over > woken",
    "took = time.monotonic() - began; assert found <= 3 + took / 2",
    "took = time.monotonic() - began; assert spent < 0.2 * took",
    "took = time.monotonic() - began; other = time.monotonic() - began; assert took < 2 * other",
    "save = ckpt.save(time.monotonic() - began); assert save.step < 3",
    "check_sooner(time.monotonic() - began, 3, 'it')",
    "assert seconds < 3",
    "wait(lambda: time.monotonic() > began + 2)",
]


def findings(root: Path, name: str, text: str) -> list[tuple[str, int]]:
    """Rule and line of each finding in one file of that name and text."""
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    found = [line.split(":", 3) for line in tidy.check_file(root, name)]
    return [(rule.strip(), int(line)) for _, line, rule, _ in found]


@pytest.mark.parametrize(("rule", "name", "bad", "line", "good"), CASES)
def test_rule(tmp_path: Path, rule: str, name: str, bad: str, line: int, good: str | None) -> None:
    assert (rule, line) in findings(tmp_path, name, bad)
    if good is not None:
        assert rule not in [found for found, _ in findings(tmp_path, name, good)]


@pytest.mark.parametrize("name", sorted(tidy.BANNED))
def test_banned_call_is_banned_in_tests_too(tmp_path: Path, name: str) -> None:
    assert ("call", 4) in findings(tmp_path, "tests/unit/a.c", called(f"{name}(a)"))


def test_printing_is_for_programs_and_tests(tmp_path: Path) -> None:
    text = called('printf("a")')
    assert findings(tmp_path, "src/cli/a.c", text) == [("call", 4)]
    assert findings(tmp_path, "src/cli/opt.c", text) == []
    assert findings(tmp_path, "src/cli/a.c", called("putchar(1)")) == []
    assert findings(tmp_path, "tests/unit/a.c", text) == []
    assert findings(tmp_path, "src/agent/a.c", text) == [("call", 4)]


def test_sleeping_is_for_tests_alone(tmp_path: Path) -> None:
    text = called("usleep(1)")
    assert findings(tmp_path, "bench/a.c", text) == []
    assert findings(tmp_path, "tests/unit/a.c", text) == [("c-sleep", 4)]
    assert findings(tmp_path, "src/cli/a.c", text) == [("call", 4)]


@pytest.mark.parametrize(("assertion", "bound"), BOUNDS)
def test_measured_times_have_no_upper_bound(tmp_path: Path, assertion: str, bound: bool) -> None:
    text = measured(assertion)
    wanted = [("c-bound", 6 + assertion.count("\n"))] if bound else []
    assert findings(tmp_path, "tests/unit/a.c", text) == wanted
    assert findings(tmp_path, "bench/a.c", text) == []


def test_times_of_one_function_are_not_those_of_another(tmp_path: Path) -> None:
    text = measured("a()") + "\nvoid g(void)\n{\n\tassert_true(took_ns < 5);\n}\n"
    assert findings(tmp_path, "tests/unit/a.c", text) == []


def test_some_c_tests_may_sleep_and_bound(tmp_path: Path) -> None:
    bound = measured("assert_true(took_ns < 5)")
    for name in tidy.C_SLEEPS:
        assert ("c-sleep", 4) not in findings(tmp_path, name, called("usleep(1)"))
    for name in tidy.C_BOUNDS:
        assert findings(tmp_path, name, bound) == []


def test_bracketed_include_of_ours_is_held_to_the_layers(tmp_path: Path) -> None:
    findings(tmp_path, "src/store/a.h", SAID)
    assert ("layer", 2) in findings(tmp_path, "src/base/a.c", SAID + "#include <store/a.h>")


def test_no_room_stands_on_itself() -> None:
    for room in tidy.ROOMS:
        assert room.removeprefix("src/") not in tidy.stands_on(room)


def test_folders_stay_narrow() -> None:
    names = [
        f"{folder}/{n}{suffix}"
        for folder, suffix in (("src/base", ".c"), ("tests/wide", ".py"))
        for n in range(25)
    ]
    assert tidy.check_widths(names) == []
    assert tidy.check_widths([*names, "src/base/more.c", "tests/wide/more.py"]) == [
        "src/base:1: width: 26 .c files, 25 at most: divide it",
        "tests/wide:1: width: 26 .py files, 25 at most: divide it",
    ]


def test_retired_words_are_for_names_of_tests_and_of_others(tmp_path: Path) -> None:
    line = SAID + "int a_told, SSL_R_DOES_NOT;\n"
    assert ("retired", 2) in findings(tmp_path, "src/base/a.c", line)
    assert findings(tmp_path, "src/base/a.c", line.replace("a_told, ", "")) == []
    assert findings(tmp_path, "tests/unit/base/a.c", line) == []


def test_few_files_of_a_folder_call_each_other() -> None:
    """Five files in a circle are too many; four, a chain, and names of statics and structs not."""

    def ring(n: int, back: str = "f0", static: str = "") -> dict[str, list[str]]:
        return {
            f"src/base/{i}.c": f"{static}int f{i}(void)\n{{\n\tf{i + 1}();\n}}".splitlines()
            for i in range(n - 1)
        } | {f"src/base/{n - 1}.c": f"int f{n - 1}(void)\n{{\n\t{back}();\n}}".splitlines()}

    assert tidy_shape.check_circles(ring(5)) == [
        "src/base:1: circle: 5 files call each other, 4 at most: 0.c, 1.c, 2.c, 3.c, 4.c"
    ]
    assert tidy_shape.check_circles(ring(4)) == []
    assert tidy_shape.check_circles(ring(5, back="g")) == []
    assert tidy_shape.check_circles(ring(5, static="static ")) == []
    assert tidy_shape.check_circles(ring(5, back="struct f0 a = g")) == []
    apart = {f"src/{name[9]}/a.c": code for name, code in ring(5).items()}
    assert tidy_shape.check_circles(apart) == []


def test_each_file_of_a_pure_room_is_pure(tmp_path: Path) -> None:
    text = SAID + '#include "base/clock.h"'
    for name in ("src/pipe/new.c", "src/sched/sim/new.c", "src/base/crc.c"):
        assert ("pure", 2) in findings(tmp_path, name, text)
    for name in ("src/pipe/new.h", "src/sched/sim/csv.c", "src/base/new.c"):
        assert ("pure", 2) not in findings(tmp_path, name, text)


def test_pure_rooms_are_those_of_the_map() -> None:
    text = (TOOLS.parent / "ARCHITECTURE.md").read_text()
    assert set(re.findall(r"^(src/\S+)/ *P ", text, re.M)) == set(tidy.PURE_ROOMS)


def test_pure_file_is_followed_through_our_headers(tmp_path: Path) -> None:
    findings(tmp_path, "src/ckpt/b.h", SAID + "#include <pthread.h>\n")
    findings(tmp_path, "src/ckpt/a.h", SAID + '#include "ckpt/b.h"\n#include "ckpt/a.h"\n')
    assert ("pure", 2) in findings(
        tmp_path, "src/ckpt/format/pieces.c", SAID + '#include "ckpt/a.h"'
    )


def timed(statement: str) -> str:
    return f'"""A."""\ndef test():\n    began = time.monotonic()\n    {statement}\n'


@pytest.mark.parametrize("statement", BOUNDED)
def test_measured_time_has_no_upper_bound_in_tests(tmp_path: Path, statement: str) -> None:
    assert findings(tmp_path, "tests/python/a.py", timed(statement)) == [("time-bound", 4)]
    assert findings(tmp_path, "tests/python/lib/waits.py", timed(statement)) == []
    assert findings(tmp_path, "bench/a.py", timed(statement)) == []


@pytest.mark.parametrize("statement", FREE)
def test_what_a_slow_machine_does_not_break_is_let_be(tmp_path: Path, statement: str) -> None:
    assert findings(tmp_path, "tests/python/a.py", timed(statement)) == []


def test_a_bound_with_a_reason_is_let_be_while_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tidy_clock, "BOUNDS", {"a.py:test": "why", "a.py:gone": "why", "b.py:": ""})
    assert findings(tmp_path, "tests/python/a.py", timed(BOUNDED[0])) == []
    assert findings(tmp_path, "tests/python/b.py", timed(BOUNDED[0])) == [("time-bound", 4)]
    assert tidy_clock.unused_bounds(tmp_path) == ["a.py:gone", "b.py:"]


SLEEPS = ["time.sleep(1)", "s = 'time.sleep(1)'", "from time import time, sleep"]  # pace: no test


@pytest.mark.parametrize("line", SLEEPS)
def test_who_sleeps_says_what_for(tmp_path: Path, line: str) -> None:
    text = f'"""A."""\n{line}'
    assert findings(tmp_path, "tests/python/a.py", text) == [("sleep", 2)]
    assert findings(tmp_path, "tests/python/a.py", f"{text}  # pace: a step\n") == []
    own = [("sleep", 2)] if line.startswith("time") else []  # no script in a string
    assert findings(tmp_path, "tests/python/test_a.py", f"{text}  # pace\n") == own
    assert findings(tmp_path, "tests/python/lib/waits.py", text) == []
    assert findings(tmp_path, "python/pawl/a.py", text) == []


def test_initializers_are_not_nesting(tmp_path: Path) -> None:
    rows = "\tint a[1][1][1][1] = {{{{{0}}}}};\n\tb = (struct b){{{{{0}}}}};\n"
    assert findings(tmp_path, "src/base/a.c", SAID + "int f(void)\n{\n" + rows + "}\n") == []


def test_program_lists_what_git_would_track_and_fails_on_findings(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    others = {f"{room}/{name}" for room, other in tidy.PURE_ROOMS.items() for name in other}
    for name in {*tidy.PURE_FILES, *others, *tidy.C_SLEEPS, *tidy.C_BOUNDS}:
        guard = "#ifndef TEST_WITHIN_H\n#define TEST_WITHIN_H\n" if name.endswith(".h") else ""
        findings(tmp_path, name, SAID + guard)
    (tmp_path / ".gitignore").write_text("/build/\n")
    findings(tmp_path, "build/made.c", "")
    program = [sys.executable, str(TOOLS / "tidy.py"), str(tmp_path)]

    good = subprocess.run(program, capture_output=True, text=True)
    assert (good.returncode, good.stdout) == (0, "tidy: nothing to say\n")

    findings(tmp_path, "src/base/bad.c", "int a;\n")
    (tmp_path / "src/base/crc.c").unlink()
    bad = subprocess.run(program, capture_output=True, text=True)
    assert bad.returncode == 1
    first, second = bad.stdout.splitlines()
    assert first.startswith("src/base/bad.c:1: opening: ")
    assert second == "tools/tidy.py:1: table: it names src/base/crc.c, which is not there"


@pytest.mark.parametrize(
    "comment",
    [
        "it is late",
        "Who waits is sent away.",
        "whose",
        "in which it runs",
        "of the storage",
        "likewise",
        "The same for one rank.",
        "as there",
        "what it cost",
        "both",
        "each, in bytes",
        "so many",
    ],
)
def test_a_comment_that_begins_with_what_was_said_before_is_a_riddle(comment: str) -> None:
    assert [rule for _, rule, _ in tidy_comments.check_c(f"int a; /* {comment} */\n")] == ["riddle"]
    assert [line for line, _, _ in tidy_comments.check_c(f"a\n/*\n * {comment}\n */\n")] == [2]
    assert [rule for _, rule, _ in tidy_comments.check_python(f"a = 1  # {comment}\n")] == [
        "riddle"
    ]


@pytest.mark.parametrize(
    "comment",
    [
        "bytes of each side",
        "this host's ranks",
        "both sides, in bytes",
        "each rank waits",
        "what the user wrote",
        "with several hosts",
        "itself",
        "as getenv",
    ],
)
def test_a_comment_that_names_what_it_speaks_of_reads_alone(comment: str) -> None:
    assert list(tidy_comments.check_c(f"int a; /* {comment} */\n")) == []
    assert list(tidy_comments.check_python(f"a = 1  # {comment}\n")) == []
    assert list(tidy_comments.check_c(f'char *a = "/* {comment} */";\n')) == []
