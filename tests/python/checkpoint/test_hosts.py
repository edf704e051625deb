"""Jobs whose ranks span hosts save to, and restore from, one directory that all see."""

from __future__ import annotations

import itertools
import random
import select
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import program
import waits
from conftest import SEED
from hosts import Job, ask, await_finished, hear, is_whole, tell

KILLS = 12


@pytest.fixture
def make_job(tmp_path: Path) -> Iterator[Callable[..., Job]]:
    program.find()
    jobs: list[Job] = []

    def make(name: str = "spans", timeout_s: int = 30) -> Job:
        folder = tmp_path / f"{len(jobs)}"
        folder.mkdir()
        jobs.append(Job(folder, name, timeout_s))
        return jobs[-1]

    yield make
    for job in jobs:
        job.end()
        shutil.rmtree(job.sockets)


@pytest.fixture
def job(make_job: Callable[..., Job]) -> Job:
    return make_job()


def test_hosts_save_and_restore_together(job: Job) -> None:
    job.start(2, 1)
    job.open()
    job.all("restore", "nothing")
    for step in (1, 2, 3):
        job.save(step)
    files = {p.name for p in (job.root / "global_step3").iterdir()}
    own = {f"{name}-rank{rank}" for name in ("own", "rng") for rank in range(3)}
    assert files == {"model", "complete.txt", ".pawl"} | own
    job.all("restore", "3")
    job.all("restore 2", "2")
    job.save(2)  # replaces the earlier save
    job.all("close", "True")
    await_finished(job.root)
    is_whole(job.root)
    rows = (job.root / "checkpointHistories.csv").read_text().splitlines()[1:]
    assert [(row.split(",")[5], row.split(",")[6], row.split(",")[13]) for row in rows] == [
        ("durable", "7", "3")
    ] * 4


def put(job: Job, tag: str, how: str = "") -> list[str]:
    """Saves a tag on all ranks. Returns each rank's result."""
    said = job.tell(f"put {tag} {how}")
    return job.tell("wait") if said == ["saving"] * len(said) else said


@pytest.mark.slow
@pytest.mark.real_interpreters
def test_hosts_save_by_tag(job: Job) -> None:
    job.start(2, 1)
    job.all(f"engine {job.root}", "open")
    job.all("find", "nothing")
    job.all("put step1", "saving")
    job.all("wait 60 committed", "committed")
    # Waits until all parts are visible: one host's part is not whole.
    job.all("find", "step1 part-0 part-1 part-2")
    assert put(job, "step2", "pieces") == ["durable"] * 3
    names = " ".join(f"part-{rank}{more}" for rank in range(3) for more in ("", "-too"))
    job.all("find step2", f"step2 {names}")
    for host, others in ((0, 1), (1, 0)):  # no rank of the first host saves anything
        tag = f"step{3 + host}"
        ask(job.hosts[host].ranks, f"put {tag} nothing")
        ask(job.hosts[others].ranks, f"put {tag}")
        assert hear(job.ranks) == ["saving"] * 3
        job.all("wait", "durable")
        job.all("find", f"{tag} part-2" if host == 0 else f"{tag} part-0 part-1")
    assert put(job, "step5", "nothing") == ["durable"] * 3
    job.all("find step5", "nothing")
    job.all("close", "True")
    assert sorted(p.name for p in job.root.glob("step*")) == ["step1", "step2", "step3", "step4"]
    is_whole(job.root)
    job.start(1, 2)
    job.all(f"engine {job.root}", "open")
    job.all("find step1", "step1 part-0 part-1 part-2")
    assert put(job, "step1", "pieces") == ["durable"] * 3  # new processes replace the tag
    job.all("find step1", f"step1 {names}")


def test_what_tags_of_several_hosts_cannot(job: Job) -> None:
    job.start(2, 1)
    job.all(f"engine {job.root}", "open")
    assert put(job, "step1") == ["durable"] * 3
    for tag, how, why in (
        ("step2", "alone", "only one rank saves it"),
        ("step1", "", "it was saved before, and this save adds to it"),
        ("best", "", "its name has no number and no step was given"),
    ):
        said = put(job, tag, how)
        assert len(said) == 3
        assert all(f"tag {tag}: {why}: if ranks run on several hosts" in one for one in said), said
    said = put(job, "step3", "same")
    assert all("ranks 0 and 1 both saved a partition of this name" in one for one in said), said
    ask(job.hosts[0].ranks, "put step4")
    ask(job.hosts[1].ranks, "put step5")
    assert hear(job.ranks) == ["saving"] * 3
    said = job.tell("wait")
    assert all("saves step5, step 5, where rank 0 saves step4" in one for one in said), said
    ask(job.hosts[0].ranks, "put step6")
    assert hear(job.hosts[0].ranks) == ["saving"] * 2
    tell(job.hosts[1].ranks, "put step6 same")
    job.all("wait", "durable")
    assert put(job, "step7") == ["durable"] * 3  # all hosts work again
    zero, _, other = job.tell("remove step6")
    assert zero == "removed" and "of several hosts only that of rank 0 has the root" in other
    job.all("close", "True")
    left = ["step1", "step7"]
    program.wait_until(lambda: sorted(p.name for p in job.root.glob("step*")) == left, "step6 gone")


@pytest.mark.slow
def test_any_hosts_restore_what_others_saved(job: Job) -> None:
    job.start(2, 1)
    job.open()
    job.save(5)
    for sizes in ((1, 1, 1), (3,), (1, 2)):
        job.start(*sizes)
        job.open()
        job.all("restore", "5")
    job.save(6)
    is_whole(job.root)


def test_a_host_without_room_streams(job: Job) -> None:
    job.start(2, 1, 1)
    few = str(1 << 12)
    assert tell(job.hosts[0].ranks + job.hosts[1].ranks, f"open {job.root} {few}") == ["open"] * 3
    assert tell(job.hosts[2].ranks, f"open {job.root}") == ["open"]
    for step in (1, 2):
        job.save(step)
    job.all("restore", "2")
    is_whole(job.root)
    await_finished(job.root)


def test_what_is_not_alike_on_all_hosts_is_kept_by_rank(job: Job) -> None:
    job.start(1, 1)
    job.open()
    ask(job.ranks[:1], "save 1")
    ask(job.ranks[1:], "save 1 wrong")
    assert hear(job.ranks) == ["saving"] * 2
    for said in job.tell("wait"):
        assert "model: differs between rank 0 and rank 1" in said
    assert not (job.root / "global_step1").exists()
    job.save(2)
    assert {"model-rank0", "model-rank1"} < {p.name for p in (job.root / "global_step2").iterdir()}
    job.all("restore", "2")


def answered(ranks: list[subprocess.Popen[str]]) -> bool:
    """Whether a rank has printed a line that was not read yet."""
    return bool(select.select([rank.stdout for rank in ranks], [], [], 0)[0])


def test_a_host_comes_late(job: Job) -> None:
    job.start(1, 1, late=1)
    job.open()
    ask(job.ranks, "restore")
    waits.stays(lambda: not answered(job.ranks), "they wait for the late one", 0.5)
    late = job.come(1)
    assert tell(late.ranks, f"open {job.root}") == ["open"]
    ask(late.ranks, "restore")
    assert hear(job.ranks) == ["nothing"] * 2
    job.save(1)


def test_the_host_of_rank_0_comes_late(job: Job) -> None:
    job.start(1, 1, late=2)
    other = job.come(1)
    assert tell(other.ranks, f"open {job.root}") == ["open"]
    ask(other.ranks, "restore")
    waits.stays(lambda: not answered(other.ranks), "it waits for the others", 0.5)
    zero = job.come(0)
    assert tell(zero.ranks, f"open {job.root}") == ["open"]
    ask(zero.ranks, "restore")
    assert hear(job.ranks) == ["nothing"] * 2
    job.save(1)


def test_hosts_that_never_come_are_named(make_job: Callable[..., Job]) -> None:
    job = make_job(timeout_s=1)
    job.start(1, 1, 2, late=1)
    job.open()
    zeros, others = (host.ranks for host in job.hosts)
    assert tell(others, "save 1") == ["saving"]
    joined = ".pawl-hosts/*/join.1"
    program.wait_until(lambda: list(job.root.glob(joined)), "rank 1's host has come")
    assert tell(zeros, "save 1") == ["saving"]
    zero, other = job.tell("wait")
    assert "ranks 2 to 3 of 4 have not joined" in zero and "within 1 s" in zero
    assert "rank 0's host has not admitted that of rank 1" in other
    for said in job.tell("restore"):
        assert said.startswith("error")
    late = job.come(2)
    assert tell(late.ranks, f"open {job.root}") == ["open"] * 2
    # Until the late host is ready, a restore fails as with any slow host.
    program.wait_until(lambda: set(job.tell("restore")) == {"nothing"}, "all restore")
    steps = itertools.count(2)

    def saved() -> bool:
        job.tell(f"save {next(steps)}")
        return set(job.tell("wait")) == {"durable"}

    program.wait_until(saved, "a save of all")


def test_one_job_a_root(make_job: Callable[..., Job]) -> None:
    first, second = make_job("first"), make_job("second", timeout_s=1)
    first.start(1, 1)
    first.open()
    first.save(1)
    second.root = first.root
    second.start(1, 1)
    zero, other = second.tell(f"open {second.root}")
    assert "in use by job first" in zero and "job second" in zero
    assert other == "open"  # no agent answers it
    assert "(job second and one root on all hosts?)" in tell(second.ranks[1:], "restore")[0]
    first.save(2)
    first.all("restore", "2")


def test_a_full_disk_on_one_host_fails_the_save_on_all(job: Job) -> None:
    job.start(1, 1, late=1)
    job.come(1, PAWL_FAULT="store.reserve:3:28")  # each save has two files
    job.open()
    job.save(1)
    job.all("save 2", "saving")
    for said in job.tell("wait"):
        assert "No space left" in said
    assert not (job.root / "global_step2").exists()
    job.save(3)
    job.all("restore", "3")
    await_finished(job.root)


def test_what_only_the_host_of_rank_0_can(job: Job) -> None:
    job.start(1, 1)
    job.open()
    job.save(1)
    zero, other = job.tell("pin 1")
    assert zero == "pinned" and "of several hosts only that of rank 0 has the root" in other
    for said in job.tell("stopping"):
        assert "the ranks span hosts" in said


def test_a_damaged_tag_is_put_aside_for_all(job: Job) -> None:
    job.start(1, 1)
    job.open()
    job.save(1)
    job.save(2)
    with (job.root / "global_step2" / "own-rank1").open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 16)
    job.all("restore", "1")
    assert [p.name for p in (job.root / ".bad").iterdir()] == ["global_step2.1"]
    job.all("restore", "1")


BY_STEP = ("open", "save {}", "restore", "{}")
BY_TAG = ("engine", "put step{}", "find", "step{} part-0 part-1 part-2")


@pytest.mark.parametrize("by", [BY_STEP, BY_TAG], ids=["step", "tag"])
@pytest.mark.parametrize("node", [0, 1])
def test_saves_go_on_after_an_agents_death(
    make_job: Callable[..., Job], node: int, by: tuple[str, ...]
) -> None:
    """No rank restores: the save under way fails; then all hosts come to the same saves again."""
    opens, saves, restores, found = by
    job = make_job(timeout_s=3).start(1, 1, 1)
    job.all(f"{opens} {job.root}", "open")
    if by is BY_STEP:
        job.all(restores, "nothing")
    said: list[list[str]] = []
    again = [["durable"] * 3] * 2
    while len(said) < 5 or (said[-2:] != again and len(said) < 8):  # an agent may stand still
        if len(said) == 1:
            job.hosts[node].kill_agent()
        job.all(saves.format(len(said) + 1), "saving")
        said.append(job.tell("wait"))
    assert said[-2:] == again, f"{said}\n{job.logs()}"
    job.all(restores, found.format(len(said)))
    is_whole(job.root)


@pytest.mark.parametrize("node", [0, 2])
def test_a_save_that_the_others_have_given_up(job: Job, node: int) -> None:
    """A host's agent dies, and its rank comes to the save when the others restore already."""
    job.start(1, 1, 1)
    job.open()
    job.save(1)
    late = job.hosts[node]
    early = [rank for host in job.hosts if host is not late for rank in host.ranks]
    late.kill_agent()
    assert tell(early, "save 2") == ["saving"] * 2
    ask(early, "restore")
    waits.moment(0.3)
    assert tell(late.ranks, "save 2") == ["saving"]
    ask(late.ranks, "restore")
    said = hear(job.ranks)
    # 2: the others came to the save after all, before they had given it up.
    assert said in (["1"] * 3, ["2"] * 3), f"{said}\n{job.logs()}"
    job.save(3)
    is_whole(job.root)


@pytest.mark.slow
def test_kills_leave_a_whole_checkpoint_the_same_for_all(job: Job) -> None:
    """Ranks and agents of any host die at any moment of a save; all go on from one checkpoint."""
    rng = random.Random(SEED)
    job.start(1, 1, 1)
    job.open()
    job.save(1)
    durable, step = 1, 1
    for _ in range(KILLS):
        step += 1
        node, victim = rng.randrange(3), rng.choice(["agent", "rank", "both"])
        ask(job.ranks, f"save {step}")
        waits.any_moment(rng, 0, 0.06)
        host = next(h for h in job.hosts if h.node == node)
        if victim != "rank":
            host.kill_agent()
        if victim != "agent":
            host.ranks[0].kill()
            host.ranks[0].communicate()
            job.come(node)
        alive = [rank for h in job.hosts if victim == "agent" or h.node != node for rank in h.ranks]
        hear(alive)
        if victim != "agent":
            new = next(h for h in job.hosts if h.node == node)
            assert tell(new.ranks, f"open {job.root}") == ["open"]
        got = job.tell("restore")
        what = f"seed {SEED}: {victim} of host {node} at step {step}: {got}\n"
        assert got[0] in (str(durable), str(step)) and len(set(got)) == 1, what + job.logs()
        step += 1
        assert job.tell(f"save {step}") == ["saving"] * 3
        assert job.tell("wait") == ["durable"] * 3, what + job.logs()
        durable = step
        is_whole(job.root)


@pytest.mark.slow
def test_kills_of_a_job_that_saves_by_tag(job: Job) -> None:
    """A rank of any host dies at any moment of a save, and the launcher starts all again."""
    rng = random.Random(SEED)
    durable = step = 0
    for _ in range(KILLS // 2):
        job.start(1, 1, 1)
        job.all(f"engine {job.root}", "open")
        got = job.tell("find")
        what = f"seed {SEED}: after step {step} {got}"
        tags = [f"step{n} part-0 part-1 part-2" if n else "nothing" for n in (durable, step)]
        assert got[0] in tags and len(set(got)) == 1, f"{what}\n{job.logs()}"
        step += 1
        assert put(job, f"step{step}") == ["durable"] * 3, f"{what}\n{job.logs()}"
        is_whole(job.root)
        durable = step
        step += 1
        ask(job.ranks, f"put step{step}")
        waits.any_moment(rng, 0, 0.06)
        rng.choice(job.ranks).kill()
