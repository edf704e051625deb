"""`pawl sim`: tables, JSON, and its errors for malformed files."""

from __future__ import annotations

import json
import os
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest

import program

PROGRAM = program.find()
ROOT = Path(__file__).parents[3]
HEADER = "name,time,application,num_replicas,batch_size\n"
KEYS = {
    "workload", "policy", "jobs", "avg_jct_s", "p50_jct_s", "p99_jct_s", "makespan_s", "rho_max",
    "rho_over_2", "restarts_per_job", "utilisation", "cost_h", "solve_p50_s", "solve_p99_s",
    "gap_max", "gap_avg",
}  # fmt: skip


def find_profiles() -> Path:
    """Returns the folder of the published profiles; skips the test where it is missing."""
    places = [os.environ.get("PAWL_PROFILES")]
    places += [str(up / "shared/data/pollux-osdi21") for up in (ROOT.parent, ROOT.parent.parent)]
    for place in places:
        if place is not None and (Path(place) / "traces").is_dir():
            return Path(place)
    pytest.skip("no published profiles: PAWL_PROFILES names none")


def simulate(*options: str | Path) -> Any:
    done = program.run("sim", "--json", *options)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def drop_times(rows: Any) -> Any:
    return [{key: row[key] for key in row if not key.startswith("solve")} for row in rows]


@pytest.mark.slow
def test_the_built_in_trace() -> None:
    rows = simulate("--jobs", "40")
    assert {row["policy"] for row in rows} >= {"fifo", "tiresias", "optimus", "pollux"}
    for row in rows:
        assert set(row) >= KEYS
        assert row["workload"] == "built-in" and row["jobs"] == 40
        assert 0 < row["p50_jct_s"] <= row["p99_jct_s"] <= row["makespan_s"]
        assert 0 < row["utilisation"] <= 1 and 0 <= row["rho_over_2"] <= 1


def test_a_seed_gives_the_same_numbers() -> None:
    options = ("--policy", "tiresias", "--jobs", "40", "--seed")
    first, again, other = (drop_times(simulate(*options, seed)) for seed in ("7", "7", "8"))
    assert first == again != other


def test_wrong_hints_and_fairness() -> None:
    usual = ("--policy", "pawl", "--jobs", "40")
    plain, none, wrong, other, fair = (
        drop_times(simulate(*usual, *options))
        for options in (
            (),
            ("--fairness", "1", "--hint-error", "0,1"),
            ("--hint-error", "0.3,3"),
            ("--hint-error", "0.3,3", "--seed", "1"),
            ("--fairness", "8"),
        )
    )
    assert plain == none
    assert plain != wrong == other
    assert plain != fair


def test_rented_nodes() -> None:
    usual = ("--policy", "pawl", "--jobs", "40", "--pool", "firm")
    (firm,) = simulate(*usual)
    (spot,) = simulate(*usual, "--pool", "cheap,spot,price=0.3,life=7200,gap=300,notice=60")
    assert firm["spot_share"] == firm["reclaims"] == 0
    assert 0 < firm["nodes_avg"] <= 16
    assert firm["cost"] == pytest.approx(firm["nodes_avg"] * firm["makespan_s"] / 3600)
    assert spot["reclaims"] > 0 and 0.5 < spot["spot_share"] < 1
    assert spot["cost"] < 0.6 * firm["cost"]


def test_workloads_and_comparison(tmp_path: Path) -> None:
    paths = []
    for name in ("one", "two"):
        paths.append(tmp_path / f"{name}.csv")
        paths[-1].write_text(HEADER + "a,0,cifar10,4,1024\nb,0,cifar10,4,1024\n")
    done = program.run("sim", "--policy", "fifo,optimus", "--nodes", "1", *paths)
    assert done.returncode == 0 and done.stderr == ""
    rows = [line.split() for line in done.stdout.splitlines()]
    assert [row[1] for row in rows] == ["policy", *["fifo", "optimus"] * 3]
    assert rows[1][0].endswith("/one") and rows[-1][0] == "mean"
    done = program.run("sim", "--policy", "fifo,optimus", "--nodes", "1", "--compare", *paths)
    assert done.returncode == 0 and "ratio" in done.stdout and "\nmean " in done.stdout


def test_one_after_the_other(tmp_path: Path) -> None:
    """Four slots, two jobs of four each: in the order of submission the second one waits."""
    path = tmp_path / "two.csv"
    path.write_text(HEADER + "a,0,cifar10,4,1024\nb,0,cifar10,4,1024\n")
    (row,) = simulate("--policy", "fifo", "--nodes", "1", path)
    assert row["restarts_per_job"] == 0
    assert row["avg_jct_s"] == pytest.approx(row["makespan_s"] * 0.75, rel=0.05)


@pytest.mark.parametrize(
    ("lines", "code", "says"),
    [
        ("", 4, "bad.csv:1: no jobs"),
        ("\n\n", 4, "no jobs"),
        ("a,0,cifar10,4,1024\nb,0,cifar10,4\n", 4, "bad.csv:3: 4 columns, not 5"),
        ("a,soon,cifar10,4,1024\n", 4, "bad.csv:2: column 2: soon is not a number"),
        ("a,9,cifar10,4,1024\nb,8,cifar10,4,1024\n", 4, "bad.csv:3: submitted before"),
        ("a,0,cifar10,0,1024\n", 4, "bad.csv:2: column 4: 0 is not a number of at least 1"),
        (f"{'a' * 128},0,cifar10,4,1024\n", 4, "bad.csv:2: column 1: a name of over 127 bytes"),
        ("a,0,gpt,4,1024\n", 4, "bad.csv:2: unknown application gpt"),
        ("a,0,cifar10,4,9999\n", 4, "bad.csv:2: batch size 9999: cifar10 allows 128 to 4096"),
        ("a,0,cifar10,4,1024\n\0\0\0\0", 4, "bad.csv: byte 65 is 0x00"),
        ("a,0,cifar10,4,1024\n\0\nb,0,cifar10,4,1024\n", 4, "bad.csv: byte 65 is 0x00"),
        ("a,0,cifar10,4,1024\rb,0,cifar10,4,1024\n", 4, "bad.csv: byte 64 is 0x0d"),
        ("a,0,cifar10,4,1024\r\n\r\nb,0,cifar10,4\r\n", 4, "bad.csv:4: 4 columns, not 5"),
        ("a,0,cifar10,60,1024\n", 2, "job a asks for 60 replicas, but there are 4 slots"),
    ],
)
def test_bad_workloads_are_named(tmp_path: Path, lines: str, code: int, says: str) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(HEADER + lines)
    done = program.run("sim", "--policy", "fifo", "--nodes", "1", path)
    assert done.returncode == code and done.stdout == ""
    assert says in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (["--policy", "best"], 2, "--policy best: the policies are fifo, tiresias, optimus"),
        (["--nodes", "0"], 2, "from 1 to"),
        (["--interval", "0"], 2, "more than 0 seconds"),
        (["--interference", "1"], 2, "from 0 to below 1"),
        (["--pool", "spot,life=x"], 2, "--pool: life=x: a number from 0 and at most"),
        (["--pool", "spot,most=1.5"], 2, "--pool: most=1.5: a whole number over 0"),
        (["--pool", "a,cost=2"], 2, "--pool: cost: the keys are least, most, price"),
        (["--pool", "a,least=4,most=2"], 2, "--pool a: least is over most"),
        (["--pool", "a", "--pool", "a"], 2, "--pool a: given twice"),
        (["--pool", "price=1"], 2, "--pool price=1: a name of up to 31 characters is needed"),
        (["--good-use", "2"], 2, "--good-use 2: a number over 0, and at most 1, is needed"),
        (["--pool", "a", "--interference", "0.5"], 2, "--interference has no effect with --pool"),
        (["--pool", "a", "--policy", "fifo"], 2, "policy fifo cannot use pools: its jobs do"),
        (["--fairness", "0"], 2, "--fairness 0: a number over 0, and at most 16, is needed"),
        (["--hint-error", "0.3"], 2, "--hint-error 0.3: a share below 1 and a factor from 1"),
        (["--hint-error", "1,3"], 2, "--hint-error 1,3: a share below 1 and a factor from 1"),
        (["nowhere.csv"], 3, "read nowhere.csv: No such file"),
        (["--profiles", "nowhere"], 3, "read nowhere/traces/bert/placements.csv: No such file"),
    ],
)
def test_bad_options_are_named(options: list[str], code: int, says: str) -> None:
    done = program.run("sim", *options)
    assert done.returncode == code and done.stdout == ""
    assert says in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ("", "placements.csv:1: not all placements"),
        ("1,4,0.4,0.01\n15,4,0.4,0.01\n", "placements.csv:3: placement 15: it needs 1 to 4 digits"),
        ("1,4,0.4,nan\n", "placements.csv:2: column 4: nan is not a number"),
        ("1,4,0.4,0.5\n", "placements.csv:2: step_time is not longer than sync_time"),
        ("1,4,0.4,0.1,7\n", "placements.csv:2: 5 columns, not 4"),
        (
            "1,4,0.4,0.1\n2,4,1,0\n1,4,0.5,0.1\n",
            "placements.csv:4: a placement has a batch of 4 twice",
        ),
        ("1,4.5,0.4,0.1\n", "placements.csv:2: column 2: 4.5 is not a whole number"),
    ],
)
def test_bad_profiles_are_named(tmp_path: Path, lines: str, says: str) -> None:
    folder = tmp_path / "traces/bert"
    folder.mkdir(parents=True)
    (folder / "placements.csv").write_text("placement,local_bsz,step_time,sync_time\n" + lines)
    done = program.run("sim", "--profiles", tmp_path)
    assert done.returncode == 4 and done.stdout == ""
    assert f"{folder}/{says}" in done.stderr and done.stderr.count("\n") == 1


NAN = float("nan")


@pytest.mark.parametrize("times", [(0.4, NAN), (-0.4, 0.1), (0.4, 0.5), (0.4, -0.1)])
def test_bad_times_are_named_wherever_they_are(tmp_path: Path, times: tuple[float, float]) -> None:
    published = find_profiles()
    (tmp_path / "traces").symlink_to(published / "traces")
    (tmp_path / "grid").mkdir()
    grid = bytearray((published / "grid/bert.f64").read_bytes())
    wide = len(grid) // 16 // 390  # bert's batches, for each of 390 places
    struct.pack_into("<2d", grid, 16 * (wide * 3 + 2), *times)
    (tmp_path / "grid/bert.f64").write_bytes(grid)
    done = program.run("sim", "--profiles", tmp_path)
    assert done.returncode == 4 and done.stdout == ""
    assert "bert.f64: placement 3: no valid times" in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("order", "says"),
    [
        ((0, 2, 1), "3: progress or iteration is not beyond the epoch before"),
        ((0, 1, 2, 2), "4: over 2 epochs"),
    ],
)
def test_epochs_that_cannot_be_are_named(tmp_path: Path, order: tuple[int, ...], says: str) -> None:
    published = find_profiles()
    folder = shutil.copytree(published / "traces/bert", tmp_path / "traces/bert")
    path = min(folder.glob("validation-*.csv"), key=lambda path: int(path.stem.split("-")[1]))
    lines = path.read_text().splitlines()
    path.write_text("\n".join(lines[line] for line in order) + "\n")
    done = program.run("sim", "--profiles", tmp_path)
    assert done.returncode == 4 and done.stdout == ""
    assert f"{path}:{says}" in done.stderr


def test_published_numbers() -> None:
    """One of the workloads that tests/unit/sched/sim/test_sched_golden.c has in full."""
    profiles = find_profiles()
    path = profiles / "workloads/workload-6.csv"
    rows = simulate("--profiles", profiles, "--policy", "tiresias,optimus", path)
    assert [row["workload"] for row in rows] == ["workloads/workload-6"] * 2
    assert [row["avg_jct_s"] for row in rows] == pytest.approx([3469.69375, 5301.875], rel=1e-6)
    assert [row["makespan_s"] for row in rows] == [78609, 66299]
    assert [row["p99_jct_s"] for row in rows] == [52573, 48185]


def test_nodes_that_were_not_measured() -> None:
    done = program.run("sim", "--profiles", find_profiles(), "--gpus", "8", "--policy", "fifo")
    assert done.returncode == 1
    assert "was measured with at most 4 replicas on a node, not 8" in done.stderr
