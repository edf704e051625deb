"""The small tools: docs.py finds dead links and old times, bench.py reads a benchmark's report."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "tools"))

import bench
import docs

RESULT = '{"name": "copy", "runs": 3, "metrics": {"s": 0.12345}, "ratios": {}, "setting": {"n": 2}}'


@pytest.mark.parametrize(
    ("link", "wrong"),
    [
        ("b.md", None),
        ("b.md#two-words", None),
        ("#one", None),
        ("https://example.org/gone", None),
        ("gone.md", "gone.md is not there"),
        ("b.md#three", "b.md has no heading three"),
        ("#two-words", "a.md has no heading two-words"),
    ],
)
def test_links_are_followed(tmp_path: Path, link: str, wrong: str | None) -> None:
    (tmp_path / "a.md").write_text(f"# One\n\nSee [it]({link}).\n")
    (tmp_path / "b.md").write_text("## Two `words`\n")
    found = docs.check_document(tmp_path, tmp_path / "a.md")
    assert found == ([f"a.md:3: {wrong}"] if wrong else [])


@pytest.mark.parametrize(
    ("name", "there"),
    [
        ("src/base/a.c", True),
        ("base/a.c", True),
        ("pawl/b.h", True),
        ("src/base", True),
        ("src/base/gone.c:12", False),
        ("base/gone.c", False),
        ("tests/python/gone.py", False),
        ("src/base/*.c", True),
        ("tests/unit/test_<module>.c", True),
        ("a/b", True),
    ],
)
def test_sources_that_documents_name_are_there(tmp_path: Path, name: str, there: bool) -> None:
    for path in ("src/base/a.c", "include/pawl/b.h"):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text("")
    for document in ("a.md", "CHANGELOG.md"):
        (tmp_path / document).write_text(f"# One\n\nIn `{name}`.\n")
        wrong = not there and document == "a.md"
        said = [f"a.md:3: {name.partition(':')[0]} is not there"] if wrong else []
        assert docs.check_document(tmp_path, tmp_path / document) == said


def test_decisions_are_short_and_listed(tmp_path: Path) -> None:
    folder = tmp_path / docs.DECISIONS
    folder.mkdir(parents=True)
    record = folder / "0001-one.md"
    record.write_text("# 1. One\n" + "\n" * 39)
    missing = "docs/decisions/0001-one.md:1: docs/decisions/README.md does not list it"
    assert docs.check_decisions(tmp_path) == [missing]
    (folder / "README.md").write_text("# Decisions\n\n[One](0001-one.md)\n")
    assert docs.check_decisions(tmp_path) == []
    record.write_text("# 1. One\n" + "\n" * 40)
    assert docs.check_decisions(tmp_path) == ["docs/decisions/0001-one.md:41: 41 lines, 40 at most"]


def test_times_that_users_see_are_in_the_limits(tmp_path: Path) -> None:
    rows = """#define TIMES(X) \\
	X(ONE_WAIT, "one_wait", 90 * NS_PER_S, SEEN, "One waits.") \\
	X(TWO, "two", 20 * NS_PER_MS, INNER, "Two looks.") \\
	X(THREE, "three", NS_PER_S, SEEN, \\
		"Three, which is longer, " \\
		"waits (`--three`).")
"""
    (tmp_path / "src/base").mkdir(parents=True)
    (tmp_path / docs.TIMES).write_text(rows)
    (tmp_path / "docs").mkdir()
    limits = tmp_path / docs.TIMES_IN
    limits.write_text(f"# Limits\n\n{docs.TIMES_BEGIN}old\n{docs.TIMES_END}\nMore.\n")
    wrong = ["docs/limits.md:4: not the times of src/base/times.h: run tools/docs.py --write"]
    assert docs.check_times(tmp_path) == wrong
    docs.write_times(tmp_path)
    assert docs.check_times(tmp_path) == []
    table = """| name | time | what for |
|---|---|---|
| `one_wait` | 90 s | One waits. |
| `three` | 1 s | Three, which is longer, waits (`--three`). |
"""
    assert limits.read_text() == (f"# Limits\n\n{docs.TIMES_BEGIN}{table}{docs.TIMES_END}\nMore.\n")
    (tmp_path / docs.TIMES).write_text(rows.replace("90", "91"))
    assert docs.check_times(tmp_path) == wrong


def test_benchmark_reports_in_its_last_line() -> None:
    program = f"print('a table'); print('''{RESULT}''')"
    result = bench.run_benchmark([sys.executable, "-c", program])
    assert (result["name"], result["metrics"], result["text"]) == (
        "copy",
        {"s": 0.12345},
        "a table",
    )


def test_a_benchmarks_section_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "REPORT", tmp_path / "benchmarks.md")
    for name, text in (("b", "1"), ("a", "2"), ("b", "3")):
        section = bench.format_section({"name": name, "text": text}, "c0ffee")
        bench.write_section(name, section)
    sections = [f"## {n}\n\nAt commit c0ffee.\n\n```text\n{t}\n```\n" for n, t in ("a2", "b3")]
    assert (tmp_path / "benchmarks.md").read_text() == "\n".join([bench.HEAD, *sections])


def test_a_section_comes_from_what_was_printed_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "REPORT", tmp_path / "benchmarks.md")
    (tmp_path / "printed").write_text(f"a table\n{RESULT}\n")
    monkeypatch.setattr(sys, "argv", ["bench.py", "--from", str(tmp_path / "printed"), "c0ffee"])
    assert bench.main() == 0
    section = bench.format_section({"name": "copy", "text": "a table"}, "c0ffee")
    assert (tmp_path / "benchmarks.md").read_text() == "\n".join([bench.HEAD, section])


def test_failed_benchmark_is_no_result() -> None:
    with pytest.raises(SystemExit):
        bench.run_benchmark([sys.executable, "-c", f"print('''{RESULT}'''); exit(3)"])
