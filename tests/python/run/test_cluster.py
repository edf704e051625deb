"""The history of a cluster: reading it, refusing bad ones, and drawing it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

import program
from pawl._report import _cluster_history, _cluster_report

PROGRAM = program.find()
HEAD = {"cluster": 1, "name": "two nodes", "virtual": True}


def node(t: float, name: str, slots: int = 2, pool: str = "", price: float = 1) -> dict[str, Any]:
    return {"t": t, "node": name, "pool": pool, "slots": slots, "price": price}


def job(t: float, number: int, end: str = "", **at: int) -> dict[str, Any]:
    row = {"t": t, "job": number, "name": f"job-{number}", "kind": "bert", "at": at}
    return {**row, "end": end} if end else row


def write(path: Path, *rows: dict[str, Any], head: Any = HEAD) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in (head, *rows)))
    return path


STORY = (
    node(0, "a"),
    node(0, "b"),
    job(5, 1),
    job(10, 1, a=2, b=1),
    job(20, 2, b=1),
    job(30, 2, a=1),  # recorded before the other job leaves
    job(30, 1, b=2),
    job(50, 1, end="done"),
    node(60, "b", 0),
    node(70, "c", 4, "spot", 0.3),
    job(70, 2, a=1, c=3),
    job(90, 2, end="failed"),
)


def test_who_was_where(tmp_path: Path) -> None:
    cluster = _cluster_history.read(write(tmp_path / "history", *STORY))
    assert (cluster.begun, cluster.ended, cluster.lanes) == (0, 90, 2)
    spans = {(span.lane, span.begun, span.ended, span.slots, span.pool) for span in cluster.nodes}
    assert spans == {(0, 0, 90, 2, ""), (1, 0, 60, 2, ""), (1, 70, 90, 4, "spot")}
    stays = {(s.job, s.lane, s.slot, s.slots, s.of, s.begun, s.ended) for s in cluster.stays}
    assert stays == {
        (1, 0, 0, 2, 2, 10, 30),
        (1, 1, 0, 1, 2, 10, 50),
        (2, 1, 1, 1, 2, 20, 30),
        (1, 1, 1, 1, 2, 30, 50),
        (2, 0, 0, 1, 2, 30, 90),
        (2, 1, 0, 3, 4, 70, 90),
    }
    first, second = cluster.jobs.values()
    assert (first.submitted, first.begun, first.ended, first.end) == (5, 10, 50, "done")
    assert (first.changes, second.changes) == (1, 2)
    assert first.slot_s == 3 * 20 + 2 * 20 and second.slot_s == 10 + 60 + 60


def test_rows_in_any_order_are_the_same(tmp_path: Path) -> None:
    story = _cluster_history.read(write(tmp_path / "history", *STORY))
    turned = _cluster_history.read(write(tmp_path / "turned", *STORY[:2], *reversed(STORY[2:])))
    assert sorted(map(str, story.stays)) == sorted(map(str, turned.stays))


def test_a_job_moves_twice_in_one_moment(tmp_path: Path) -> None:
    """Jobs that wait for each other's nodes move in several steps at one time: no node is full in
    between."""
    rows = [node(0, "a", 1), node(0, "b", 1), node(0, "c", 1), job(1, 1, a=1), job(1, 2, b=1)]
    rows += [job(2, 1, c=1), job(2, 2, a=1), job(2, 1, b=1), job(2, 3, c=1)]
    rows += [job(3, number, end="done") for number in (1, 2, 3)]
    cluster = _cluster_history.read(write(tmp_path / "history", *rows))
    stays = {(stay.job, stay.lane, stay.begun, stay.ended) for stay in cluster.stays}
    assert {(1, 1, 2, 3), (2, 0, 2, 3), (3, 2, 2, 3)} <= stays


def test_what_is_counted(tmp_path: Path) -> None:
    cluster = _cluster_history.read(write(tmp_path / "history", *STORY))
    times, running, waiting = _cluster_report.count_jobs(cluster)
    assert times == [5, 10, 20, 50, 90]
    assert running == [0, 1, 2, 1, 0]
    assert waiting == [1, 0, 0, 0, 0]
    facts = dict(_cluster_report.summarise(cluster))
    assert facts["jobs"] == "2, 2 of them ended"
    assert facts["slots used"] == f"{100 * 230 / (180 + 120 + 80):.0f} %"
    assert facts["changes"].startswith("1.5 ")


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([job(1, 1, x=1)], "at 1 s: job 1 is on node x, which is not there"),
        ([node(0, "a"), job(1, 1, a=3)], "at 1 s: job 1 has 3 slots of node a: it is full"),
        ([node(0, "a"), job(1, 1, a=2), job(2, 2, a=1)], "at 2 s: job 2 has 1 slots of node a"),
        ([node(0, "a"), node(1, "a")], "at 1 s: node a arrives, but is there already"),
        ([node(0, "a", 0)], "at 0 s: node a leaves, but is not there"),
        ([node(0, "a", 1 << 30)], "at 0 s: node a: too many nodes, or slots"),
        ([{"t": float("nan"), "job": 1, "at": {}}], ":2: t is nan"),
        ([{"t": 1}], ":2: neither a node with slots"),
        ([{"t": 1, "job": 1, "at": {"a": -1}}], ":2: neither a node with slots"),
        ([{"job": 1}], ":2: not an object with a time t"),
    ],
)
def test_what_cannot_be_is_named(tmp_path: Path, rows: list[dict[str, Any]], says: str) -> None:
    path = write(tmp_path / "history", *rows)
    with pytest.raises(ValueError) as raised:
        _cluster_history.read(path)
    assert str(path) in str(raised.value) and says in str(raised.value)


def test_other_files_are_refused(tmp_path: Path) -> None:
    options = ("--out", tmp_path / "out", "--python", sys.executable)
    newer = json.dumps({**HEAD, "cluster": 3}) + "\n"
    for text in ("", "{}\n", "time,step\n", newer, '{"cluster":2,"virtual":false}\n'):
        (tmp_path / "history").write_text(text)
        done = program.run("report", "--cluster", tmp_path / "history", *options)
        assert done.returncode == 4 and done.stderr.startswith("pawl report: ")
        assert not (tmp_path / "out").exists()
    done = program.run("report", "--cluster", tmp_path / "none", *options)
    assert done.returncode == 3


def test_who_reads_no_further_ends_it_quietly(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    story = write(tmp_path / "history", *STORY)
    read, written = os.pipe()
    os.close(read)
    command = [PROGRAM, "report", "--cluster", str(story), "--out", str(tmp_path / "out")]
    done = subprocess.run(
        [*command, "--python", sys.executable],
        env=program.clean_env(),
        stdout=written,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(written)
    assert (done.returncode, done.stderr) == (-signal.SIGPIPE, b"")


def test_it_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    out = tmp_path / "out"
    story = write(tmp_path / "history", *STORY)
    other = write(tmp_path / "other", *STORY[:8], head={"cluster": 1, "name": "<b>"})
    options = ("--out", out, "--beside", other, "--python", sys.executable)
    done = program.run("report", "--cluster", story, *options)
    assert done.returncode == 0, done.stderr
    assert (out / "cluster.png").read_bytes().startswith(b"\x89PNG")
    page = (out / "report.html").read_text()
    assert "two nodes" in page and "&lt;b&gt;" in page and "<b>" not in page
    assert "http" not in page.replace("http://www.w3.org", "")
    assert page.count("data:image/svg+xml;base64,") == 1
    assert "job-2" in page and "failed" in page


# ---- the history of a scheduler ----

T = 1_795_000_000.0


def head(t: float, **more: Any) -> dict[str, Any]:
    return {"cluster": 2, "name": "h", "virtual": False, "t": T + t, "policy": "pawl", **more}


def live(t: float, number: int, restarts: int = 0, **more: Any) -> dict[str, Any]:
    at = {key: more.pop(key) for key in list(more) if key in ("a", "b", "c")}
    row = {"t": T + t, "job": number, "name": f"job-{number}", "user": "ann", "queue": "q"}
    row |= {"submitted": T, "state": "running", "why": "so", "restarts": restarts}
    return {**row, "at": at, **more}


def machine(t: float, name: str, slots: int = 2, **more: Any) -> dict[str, Any]:
    return {**node(T + t, name, slots), "type": "", "spot": False, "state": "up", **more}


def steps(*rows: dict[str, Any]) -> str:
    """Returns the rows as text; rows of the same time form a step."""
    times = [row["t"] for row in rows]
    told = [
        {**row, "more": True} if times[i + 1 : i + 2] == [row["t"]] else row
        for i, row in enumerate(rows)
    ]
    return "".join(json.dumps(row) + "\n" for row in told)


def keep(folder: Path, *files: str) -> Path:
    folder.mkdir(exist_ok=True)
    for number, text in enumerate(files, 1):
        if text:
            (folder / f"{number:08}.jsonl").write_text(text)
    return folder


FIRST = steps(head(0), machine(1, "a"), machine(2, "b"), live(3, 1, a=2), live(4, 2, b=1))
SECOND = steps(
    head(10), machine(10, "a"), machine(10, "b"), live(10, 1, a=2), live(10, 2, b=1),
    live(20, 1, 1, a=1, b=1), live(30, 2, end="failed", exit=3),
)  # fmt: skip


def stays(cluster: _cluster_history.Cluster) -> set[tuple[int, str, int, float, float]]:
    names = {span.lane: span.name for span in cluster.nodes}
    return {
        (s.job, names[s.lane], s.slots, s.begun - T, s.ended - T) for s in cluster.stays
    }  # fmt: skip


def test_files_go_on_in_each_other(tmp_path: Path) -> None:
    cluster = _cluster_history.read(keep(tmp_path / "h", FIRST, SECOND), until=T + 40)
    assert stays(cluster) == {
        (1, "a", 1, 3, 40), (1, "a", 1, 3, 20), (2, "b", 1, 4, 30), (1, "b", 1, 20, 40),
    }  # fmt: skip
    first, second = cluster.jobs.values()
    assert (first.changes, first.ended, second.changes, second.end) == (1, None, 0, "failed")
    assert (cluster.begun, cluster.ended, cluster.policy) == (T, T + 40, "pawl")
    assert [(span.begun - T, span.ended - T) for span in cluster.nodes] == [(1, 40), (2, 40)]


def test_what_was_not_written_is_blank(tmp_path: Path) -> None:
    """Rows are missing because a disk was full, or because a file is gone."""
    second = SECOND.replace('"virtual": false', f'"virtual": false, "lost": {T + 6}', 1)
    for files, lost in (((FIRST, second), (6, 10)), ((FIRST, "", SECOND), (4, 10))):
        cluster = _cluster_history.read(keep(tmp_path / str(lost[0]), *files))
        assert [(begun - T, ended - T) for begun, ended in cluster.lost] == [lost]
        assert (1, "a", 2, 3, lost[0]) in stays(cluster)
        assert cluster.jobs[1].changes == 1 and cluster.jobs[2].end == "failed"
    assert dict(_cluster_report.summarise(cluster))["lost"].startswith("6 s could not be")


def test_a_step_counts_whole_or_not(tmp_path: Path) -> None:
    """The writer may have died anywhere: no slot ever belongs to two jobs."""
    end = steps(live(5, 2, a=2), live(5, 1, b=1))
    for cut in range(len(end)):
        cluster = _cluster_history.read(keep(tmp_path / "h", FIRST + end[:cut]))
        assert stays(cluster) == {(1, "a", 2, 3, 4)}
    keep(tmp_path / "h", FIRST + end + steps(live(6, 2)))
    assert (2, "a", 2, 5, 6) in stays(_cluster_history.read(tmp_path / "h"))


def test_a_node_is_told_again(tmp_path: Path) -> None:
    """A node gets another price while a job runs on it, is drained, and comes back with
    more slots."""
    rows = steps(
        machine(5, "a", price=3.0), machine(6, "a", price=3.0, state="drained"),
        machine(8, "a", price=3.0), machine(9, "a", 4, price=3.0), live(10, 2, a=2),
        {"t": T + 12, "scheduler": "stopped", "policy": "pawl"},
        {"t": T + 20, "scheduler": "started", "policy": "fifo"},
    )  # fmt: skip
    cluster = _cluster_history.read(keep(tmp_path / "h", FIRST + rows))
    of_a = [(s.price, s.slots, s.begun - T, s.ended - T) for s in cluster.nodes if s.name == "a"]
    assert of_a == [(1, 2, 1, 5), (3, 2, 5, 9), (3, 4, 9, 20)]
    assert cluster.jobs[1].slot_s == 2 * 17 and cluster.jobs[1].changes == 0
    assert [(d.begun - T, d.ended - T) for d in cluster.drained] == [(6, 8)]
    assert [(x - T, y - T) for x, y in cluster.away] == [(12, 20)] and cluster.policy == "fifo"
    known = _cluster_report.figures(cluster)
    assert known["cost"] == pytest.approx((4 + 3 * 15 + 18) / 3600)
    assert known["utilisation"] == pytest.approx((34 + 6 + 20) / (2 * 8 + 4 * 11 + 2 * 18))


def test_a_part_is_looked_at(tmp_path: Path) -> None:
    # The first file is not read.
    folder = keep(tmp_path / "h", FIRST.replace('"a": 2', '"a": 9'), SECOND)
    cluster = _cluster_history.read(folder, since=T + 25, until=T + 45)
    assert (cluster.begun, cluster.ended) == (T + 25, T + 45)
    assert stays(cluster) == {(1, "a", 1, 25, 45), (1, "b", 1, 25, 45), (2, "b", 1, 25, 30)}
    assert cluster.jobs[1].changes == 0 and cluster.jobs[1].slot_s == 40
    assert list(_cluster_history.read(folder, since=T + 31, until=T + 45).jobs) == [1]
    with pytest.raises(ValueError, match=r"00000001\.jsonl: at .*it is full"):
        _cluster_history.read(folder)


def test_names_are_shown_as_they_are(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    names = ["<script>alert(1)</script>", "$x^2$ \\frac", "_hidden", "日本語", "\u202elive"]
    rows = [live(3 + i, i + 1, a=1, name=name, user=name) for i, name in enumerate(names)]
    story = steps(head(0), machine(1, "a", 8), *rows)
    clusters = [_cluster_history.read(keep(tmp_path / "h", story), until=T + 3600)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _cluster_report.write_report(clusters, tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert "<script" not in page and "&lt;script&gt;" in page and "\u202e" not in page
    assert all(name in page for name in names[1:4]) and r"\u202elive" in page


def test_the_simulator_keeps_what_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    out = tmp_path / "out"
    options = ("--jobs", "20", "--report", out, "--json", "--python", sys.executable)
    done = program.run("sim", "--policy", "pawl,fifo", *options)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    for row in rows:
        cluster = _cluster_history.read(out / f"built-in-{row['policy']}.jsonl")
        assert len(cluster.jobs) == row["jobs"]
        assert all(job.end == "done" for job in cluster.jobs.values())
        took = [job.ended - job.submitted for job in cluster.jobs.values() if job.ended]
        assert sum(took) / len(took) == pytest.approx(row["avg_jct_s"])
        changes = sum(job.changes for job in cluster.jobs.values())
        assert changes / row["jobs"] == pytest.approx(row["restarts_per_job"])
        assert cluster.ended == pytest.approx(row["makespan_s"])
    assert (out / "cluster.png").exists() and (out / "report.html").exists()


def test_rented_nodes_are_kept(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    pools = ("--pool", "firm,boot=0", "--pool", "cheap,spot,price=0.3,life=7200,boot=0")
    drawn = ("--report", tmp_path, "--python", sys.executable)
    done = program.run("sim", "--policy", "pawl", "--jobs", "20", *pools, *drawn, "--json")
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)
    cluster = _cluster_history.read(tmp_path / "built-in-pawl.jsonl")
    cost = sum((span.ended - span.begun) / 3600 * span.price for span in cluster.nodes)
    assert cost == pytest.approx(row["cost"])
    assert {span.pool for span in cluster.nodes} == {"firm", "cheap"}


def test_too_many_runs_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "one.csv"
    path.write_text("name,time,application,num_replicas,batch_size\na,0,cifar10,4,1024\n")
    done = program.run("sim", "--policy", "fifo", "--report", tmp_path / "out", *[path] * 9)
    assert done.returncode == 2 and "cannot show 9 runs, but at most 8" in done.stderr
