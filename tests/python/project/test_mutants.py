"""tools/mutants.py: reading a mutant's file, and reporting one that does not fit."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[3] / "tools"
sys.path.insert(0, str(TOOLS))

import mutants  # noqa: E402

SOURCE = "int a(void)\n{\n\treturn 1;\n}\n"
PATCH = """\
fixed-by: 0123abc
what: the answer was 2,
  whoever asked
killed-by: c:answers, c:fuzz_answers,
  python:tests/python/test_a.py::test_a[of-b], python:tests/python/test_a.py::TestA::test_b
diff --git a/src/a.c b/src/a.c
--- a/src/a.c
+++ b/src/a.c
@@ -1,4 +1,4 @@
 int a(void)
 {
-\treturn 1;
+\treturn 2;
 }
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository with one source, one mutant, and the tests that kill it."""
    files = {
        "src/a.c": SOURCE,
        "tests/mutants/answer.patch": PATCH,
        "tests/unit/meson.build": "unit_tests = ['answers', 'gone']\n",
        "tests/unit/test_answers.c": "",
        "tests/unit/test_unlisted.c": "",
        "tests/fuzz/meson.build": "foreach name : ['answers']\n",
        "tests/fuzz/fuzz_answers.c": "",
        "tests/python/test_a.py": "def test_a(of):\n    pass\n\n\n"
        "class TestA:\n    def test_b(self):\n        pass\n",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def change(root: Path, old: str, new: str) -> list[str]:
    """Replaces old by new in the mutant's file. Returns what check reports, without the file's
    name."""
    assert old in PATCH
    (root / "tests/mutants/answer.patch").write_text(PATCH.replace(old, new))
    return [line.removeprefix("tests/mutants/answer.patch: ") for line in mutants.check(root)]


def test_a_mutant_is_read(root: Path) -> None:
    (mutant,) = mutants.read_mutants(root)
    assert mutant.name == "answer" and mutant.files == ("src/a.c",)
    assert mutant.head["fixed-by"] == "0123abc"
    assert mutant.head["what"] == "the answer was 2, whoever asked"
    assert mutant.killers == [
        "c:answers",
        "c:fuzz_answers",
        "python:tests/python/test_a.py::test_a[of-b]",
        "python:tests/python/test_a.py::TestA::test_b",
    ]
    assert mutants.check(root) == []
    with pytest.raises(SystemExit, match=r"there is no tests/mutants/other\.patch"):
        mutants.read_mutants(root, ["other"])


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("fixed-by: 0123abc", "fixed-by: yesterday", "fixed-by: 'yesterday' is no commit"),
        ("fixed-by: 0123abc\n", "", "fixed-by: missing"),
        ("what: the answer was 2,\n  whoever asked\n", "", "what: missing"),
        ("what:", "why:", "why: unknown"),
        ("c:answers", "c:questions", "c:questions: no such C test"),
        ("c:answers", "c:unlisted", "c:unlisted: tests/unit/meson.build does not list it"),
        ("c:answers", "asked", "killed-by: 'asked' is neither c:NAME nor python:FILE::TEST"),
        ("test_a.py::test_a", "test_a.py::test_b", "test_a.py::test_b[of-b]: no such test"),
        ("test_a.py::test_a", "test_c.py::test_a", "test_c.py::test_a[of-b]: no such file"),
        ("return 1", "return 3", "patch does not apply"),
        ("src/a.c", "tests/unit/test_answers.c", "tests/unit/test_answers.c: no source"),
    ],
)
def test_what_does_not_fit_is_said(root: Path, old: str, new: str, says: str) -> None:
    assert says in "\n".join(change(root, old, new))


def test_without_killers_or_changes_it_is_none(root: Path) -> None:
    text = PATCH.partition("killed-by")[0]
    (root / "tests/mutants/answer.patch").write_text(text)
    assert any("killed-by: missing" in line for line in mutants.check(root))
    assert any("it changes nothing" in line for line in mutants.check(root))


def test_one_of_its_killers_is_quick(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert mutants.check(root, tiers=True) == []
    monkeypatch.setattr(mutants, "tier_of", lambda test: "slow")
    (problem,) = mutants.check(root, tiers=True)
    assert "killed by nothing but what is slow: c:answers, " in problem
    assert mutants.check(root) == []


def test_it_is_applied_to_a_copy_and_taken_back(root: Path) -> None:
    subprocess.run(["git", "init", "-q", root], check=True)
    (root / ".gitignore").write_text("build/\n")
    scratch = mutants.Scratch(root)
    (mutant,) = mutants.read_mutants(root)
    scratch.sync()
    source = scratch.tree / "src/a.c"
    assert scratch.sources() == {"src/a.c": SOURCE.encode()}
    scratch.apply(mutant)
    assert "return 2" in source.read_text()
    assert (root / "src/a.c").read_text() == SOURCE
    scratch.take_back(mutant)
    assert source.read_text() == SOURCE
    (root / "tests/unit/test_unlisted.c").unlink()
    scratch.sync()
    assert not (scratch.tree / "tests/unit/test_unlisted.c").exists()
    (root / "src/a.c").write_text("another\n")
    scratch.sync()
    with pytest.raises(mutants.BuildError, match="does not apply"):
        scratch.apply(mutant)


class Judged(mutants.Scratch):
    """A stand-in that builds nothing; its tests have prepared results, with and without the bug."""

    says: tuple[dict[str, str], dict[str, str]] = ({}, {})

    def prepare(self, killers: list[str]) -> None:
        self.bug = "return 2" in (self.tree / "src/a.c").read_text()
        if self.bug and "compile" in self.says[1]:
            raise mutants.BuildError("no such thing")

    def run(self, killer: str) -> mutants.Verdict:
        return mutants.Verdict(self.says[self.bug].get(killer, "passed"))


@pytest.mark.parametrize(
    ("before", "after", "row", "last", "status"),
    [
        ({}, {"c:answers": "killed"}, "answer  c:answers", "1 of 1", 0),
        ({}, {"c:fuzz_answers": "killed"}, "answer  c:fuzz_answers", "1 of 1", 0),
        ({}, {}, "answer  NONE of its killers", "0 of 1", 1),
        ({}, {"c:answers": "broken"}, "answer  NONE of its killers", "0 of 1", 1),
        ({"c:answers": "skipped"}, {"c:fuzz_answers": "killed"}, "  c:fuzz_answers", "1 of 1", 0),
        ({"c:answers": "killed"}, {"c:fuzz_answers": "killed"}, "  c:fuzz_answers", "1 of 1", 1),
        ({}, {"compile": ""}, "answer  ERROR: no such thing", "0 of 1", 1),
    ],
)
def test_a_run_says_who_was_killed(
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    before: dict[str, str],
    after: dict[str, str],
    row: str,
    last: str,
    status: int,
) -> None:
    subprocess.run(["git", "init", "-q", root], check=True)
    (root / ".gitignore").write_text("build/\n")
    monkeypatch.setattr(Judged, "says", (before, after))
    monkeypatch.setattr(mutants, "Scratch", Judged)
    assert mutants.run_mutants(root, [], mutants.Options()) == status
    said = capsys.readouterr().out
    assert row in said and said.endswith(f"{last} mutants killed\n")
    assert (root / "build/mutants/tree/src/a.c").read_text() == SOURCE


FAILED = "[  FAILED  ] one\n[  PASSED  ] 1 test(s).\n[  FAILED  ] one\n"
PYTEST = "FAILED tests/python/test_a.py::test_a[of-b] - assert 1 == 2\n1 failed in 0.1s\n"


@pytest.mark.parametrize(
    ("kind", "status", "output", "verdict"),
    [
        ("c", 0, "", "passed"),
        ("c", 1, FAILED, "killed: one"),
        ("c", 1, f"late: it comes: not within 120 s\n{FAILED}", "killed: late: one"),
        ("c", -11, "", "killed: exit status -11"),
        ("c", 77, "skipped: no disk", "skipped"),
        ("python", 0, "2 passed in 0.1s", "passed"),
        ("python", 0, "1 skipped in 0.1s", "skipped"),
        ("python", 1, "1 passed in 0.1s\nleft behind, and killed: 12 pawl agent", "passed"),
        ("python", 1, PYTEST + "left behind, and killed: 12 pawl agent", "killed: test_a[of-b]"),
        ("python", 1, PYTEST, "killed: test_a[of-b]"),
        ("python", -9, "", "killed: exit status -9"),
        ("python", 2, "1 error during collection", "broken: 1 error during collection"),
    ],
)
def test_what_a_test_said(kind: str, status: int, output: str, verdict: str) -> None:
    assert str(mutants.Verdict(*mutants.judge(kind, status, output))) == verdict


def test_who_hangs_is_ended(tmp_path: Path) -> None:
    status, output = mutants.execute(["sh", "-c", "echo here; exec sleep 60"], tmp_path, {}, 0.2)
    assert (status, output) == (124, "here\n")


def test_who_has_failed_is_ended(tmp_path: Path) -> None:
    said = "echo '[  FAILED  ] one'; exec sleep 60"
    status, output = mutants.execute(["sh", "-c", said], tmp_path, {}, 50, mutants.FAILED)
    assert mutants.judge("c", status, output) == ("killed", "one")
