"""Statistics of real ranks, and `pawl explain` of their traces, where one of them is late."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

import program
import ranks
import test_group_hosts

RANK = Path(__file__).parent / "explain_rank.py"
STEPS = 12
SLEEP_S = 0.2  # seconds that rank 1 sleeps in a step


def explain(*args: str | Path) -> subprocess.CompletedProcess[str]:
    return program.run("explain", *args)


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[list[str]]]:
    """Returns the traces of three ranks, and their lines."""
    folder = tmp_path_factory.mktemp("explain") / "traces"
    env = program.clean_env() | {"PAWL_TRACE": str(folder)}
    return folder, ranks.run_ranks(RANK, 3, str(STEPS), env=env)


def test_statistics_name_who_is_late(traced: tuple[Path, list[list[str]]]) -> None:
    for rank, (counts, whole, late) in enumerate(traced[1]):
        names = "['all_reduce', 'barrier']"
        assert counts == f"counts {2 * STEPS} {STEPS * 4 * 1_001_000} {STEPS} {names}"
        assert whole == "whole True True"
        _, last, late_s, sent = late.split()
        if rank != 1:
            assert int(last) >= STEPS // 2 and float(late_s) >= STEPS * SLEEP_S / 2
            assert int(sent) > 0
        else:
            assert int(last) == 0  # a rank's statistics never call itself late


def test_explain_names_who_is_late(traced: tuple[Path, list[list[str]]]) -> None:
    said = explain(traced[0]).stdout
    assert "3 ranks on 1 host" in said
    assert "steps, of 3 operations that repeat" in said
    rows = re.findall(r"^ +(\d)  \S+ +([\d.]+) % .* ([\d.]+) s$", said, re.M)
    last, late_s = ({int(row[0]): float(row[of]) for row in rows} for of in (1, 2))
    assert last[1] > 100 / 5 and late_s[1] > STEPS * SLEEP_S / 2, said
    if late_s[1] > late_s[0] + late_s[2]:  # true unless other ranks stood still for seconds
        assert "rank 1 (" in said and "is late again and again" in said
    # One of the three slowest steps: on a busy machine another rank may be late in some.
    assert re.search(r"rank \d came [\d.]+ ms late to operation \d+, (all_reduce|barrier)", said)


def test_a_trace_is_what_browsers_load(
    traced: tuple[Path, list[list[str]]], tmp_path: Path
) -> None:
    """Slices have every field that the format asks for, nest, and end if they begin."""
    assert explain(traced[0], "--trace", tmp_path / "out.json").returncode == 0
    events = json.loads((tmp_path / "out.json").read_text())["traceEvents"]
    slices = [e for e in events if e["ph"] == "X"]
    assert {e["ph"] for e in events} == {"M", "X", "b", "e"}
    assert len({e["pid"] for e in events}) == 3
    assert all(isinstance(e["name"], str) and isinstance(e["pid"], int) for e in events)
    assert all(e["ts"] >= 0 and e["dur"] >= 0 and isinstance(e["tid"], int) for e in slices)
    collectives = [e for e in slices if e["cat"] == "collective"]
    assert len(collectives) == 3 * (1 + 3 * STEPS)
    assert all("late_us" in e["args"] or "last" not in e["args"] for e in collectives)
    begun = [e["id"] for e in events if e["ph"] == "b"]
    assert sorted(begun) == sorted(e["id"] for e in events if e["ph"] == "e")
    assert len(set(begun)) == len(begun)
    rows: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for e in slices:
        rows.setdefault((e["pid"], e["tid"]), []).append((e["ts"], e["ts"] + e["dur"]))
    for row in rows.values():
        check_nesting(sorted(row, key=lambda span: (span[0], -span[1])))


def check_nesting(row: list[tuple[float, float]]) -> None:
    inside: list[float] = []
    for begin, end in row:
        while inside and inside[-1] <= begin + 0.0005:
            inside.pop()
        assert not inside or end <= inside[-1] + 0.0005
        inside.append(end)


def test_links_between_hosts_are_told(tmp_path: Path) -> None:
    test_group_hosts.run((0, 1, 1), RANK.name, str(STEPS), PAWL_TRACE=str(tmp_path))
    said = explain(tmp_path).stdout
    assert "3 ranks on 2 hosts" in said and "then: bytes between hosts" in said
    assert said.count(" MB/s") == 2
    assert "is late again and again" in said
    assert explain(tmp_path, "--trace", tmp_path / "out.json").returncode == 0
    events = json.loads((tmp_path / "out.json").read_text())["traceEvents"]
    assert {"to rank 0", "to rank 1"} <= {e["name"] for e in events if e.get("cat") == "link"}
    assert any(e["name"] == "network" for e in events)


@pytest.mark.real_interpreters
def test_a_killed_rank_leaves_its_trace(tmp_path: Path) -> None:
    env = program.clean_env() | {"PAWL_TRACE": str(tmp_path / "traces")}
    started = ranks.start_ranks(RANK, 2, "5", str(tmp_path), env=env)
    for process in started:
        process.communicate(timeout=program.LIMIT_S)
    assert [process.returncode for process in started] == [-9, -9]
    said = explain(tmp_path / "traces").stdout
    assert "2 ranks on 1 host" in said and "steps, of 3 operations that repeat" in said


def test_what_is_no_trace_is_passed_over(tmp_path: Path) -> None:
    assert explain(tmp_path).returncode == 3
    (tmp_path / "a.pawltrace").write_bytes(b"not one")
    done = explain(tmp_path)
    assert done.returncode == 3 and "a.pawltrace: the file is too short" in done.stderr
    assert explain(tmp_path / "nowhere").returncode == 3
    assert explain().returncode == 2


def test_run_explains_at_the_end(tmp_path: Path) -> None:
    done = program.run_script(
        RANK, "-n", "2", "--explain", args=["5"], env=program.clean_env(TMPDIR=str(tmp_path))
    )
    assert done.returncode == 0, done.stderr
    assert (
        "2 ranks on 1 host" in done.stdout and "steps, of 3 operations that repeat" in done.stdout
    )
    assert not list(tmp_path.glob("pawl-trace-*"))
