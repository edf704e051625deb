"""Elastic training: every sample once, however ranks go, and the same weights on all survivors."""

from __future__ import annotations

import secrets
import signal
import subprocess
from pathlib import Path

import pytest

import program
import ranks
from elastic_said import EPOCHS, N_MANY, N, check_each_once, check_weights, ends, steps

HERE = Path(__file__).parent
SCRIPT = HERE / "elastic_rank.py"
MANY = f"n={N_MANY}"  # a test ends such a job early


def start(world: int, *options: str, job: str = "", **env: str) -> list[subprocess.Popen[str]]:
    clean = program.clean_env(**env)
    return ranks.start_ranks(SCRIPT, world, *options, env=clean, job=job)


def hear(
    started: list[subprocess.Popen[str]], victims: int = 0, code: int = 0, left: int = 0
) -> list[list[str]]:
    """Returns the lines of each rank. Checks that `victims` were killed, `left` left, and the
    others ended with code."""
    try:
        said = [rank.communicate(timeout=program.LIMIT_S)[0] for rank in started]
    finally:
        ranks.stop(started)
    codes = sorted(rank.returncode for rank in started)
    expected = [-9] * victims + [code] * (len(started) - victims - left) + [79] * left
    assert codes == expected, "\n".join([str(codes), *said])
    return [ranks.say(text) for text in said]


def wait_for(mark: Path) -> None:
    program.wait_until(mark.exists, mark.name)


def run(world: int, *options: str, victims: int = 0) -> list[list[str]]:
    return hear(start(world, *options), victims)


@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_every_sample_once(world: int) -> None:
    said = run(world)
    check_each_once(said)
    check_weights(said)
    assert len({end.split(": ")[1] for end in ends(said, "END")}) == 1
    assert set(ends(said, "SAMPLES")) == {str(N * EPOCHS)}


def test_a_rank_with_another_dataset_is_named() -> None:
    started = start(2, "short=1")
    said = [rank.communicate(timeout=program.LIMIT_S)[0] for rank in started]
    why = f"rank 1 has a dataset of {N - 1} samples, rank 0 one of {N}"
    assert all(rank.returncode == 1 for rank in started) and all(why in text for text in said)


@pytest.mark.parametrize(
    ("odd", "why"),
    [
        ("batch", "rank 1 has batch_size=25, rank 0 batch_size=24"),
        ("bounds", "rank 1 has autoscale_batch_size with other arguments than rank 0"),
        ("loop:2", "rank 1 is in epoch 1, rank 0 in epoch 0"),
        ("loop:12", "rank 1 calls all_gather"),  # the job's last loop
        ("epochs", "rank 1 calls all_gather"),
    ],
)
def test_a_rank_that_does_something_else_is_named(odd: str, why: str) -> None:
    """The odd rank does not train on wrongly, nor do the others without it."""
    started = start(2, f"odd={odd}")
    said = [rank.communicate(timeout=program.LIMIT_S)[0] for rank in started]
    assert all(rank.returncode == 1 for rank in started), said
    assert all(why in text for text in said), said


@pytest.mark.slow
@pytest.mark.real_interpreters
def test_a_rank_that_ends_early_is_named() -> None:
    """The other rank goes on, as after a death, and logs that."""
    started = start(2, "odd=end")
    said = [rank.communicate(timeout=program.LIMIT_S)[0] for rank in started]
    assert started[0].returncode == 0
    assert "rank 1 has left" in said[0] and "1 of 2 ranks go on" in said[0], said


@pytest.mark.parametrize("at", ["forward", "backward", "step"])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_rank_is_killed(at: str, workers: int) -> None:
    said = run(3, "kill=1@7", f"at={at}", f"workers={workers}", victims=1)
    check_each_once(said, dead=(1,))
    check_weights(said)
    assert [end.split(": ")[0] for end in ends(said, "END")] == ["0 of 2", "1 of 2"]
    assert len({end.split(": ")[1] for end in ends(said, "END")}) == 1


@pytest.mark.parametrize("at", ["forward", "backward", "step"])
def test_a_rank_of_a_loader_of_users_is_killed(at: str) -> None:
    """A loader's own position is set back when a step is done again."""
    said = run(4, "own=1", "n=240", "kill=1@3", f"at={at}", victims=1)
    check_each_once(said, dead=(1,), n=240)
    assert len({end.split(": ")[1] for end in ends(said, "END")}) == 1


def test_all_but_one_are_killed() -> None:
    """Three ranks are killed one after another, rank 0 among them."""
    said = run(4, "kill=0@2,2@5,1@9", victims=3)
    check_each_once(said, dead=(0, 1, 2))
    check_weights(said)
    assert [end.split(": ")[0] for end in ends(said, "END")] == ["0 of 1"]


def test_adam_with_noise() -> None:
    said = run(2, "optimizer=Adam", "epochs=2")
    assert all(line.startswith("True True") for line in ends(said, "NOISE"))


def join(
    folder: Path, world: int, *options: str, late: bool = False, victims: int = 0
) -> list[list[str]]:
    """Starts `world` ranks, and one that joins; once that trains, all hurry. Returns the lines of
    all. late: the newcomer joins after the fourth step, not as soon as it can."""
    door, mark, hurry, logs = (folder / name for name in ("door", "mark", "hurry", "logs"))
    logs.mkdir()
    options = (MANY, f"hurry={hurry}", *options)
    env = {"PAWL_ELASTIC_DOOR": str(door)}
    started = start(world, *options, f"mark={mark}", **env)
    options = (*options, f"logs={logs}", *([f"hold={mark}"] if late else []))
    started += start(1, *options, PAWL_ELASTIC_JOIN="1", **env)
    try:
        program.wait_until(
            lambda: any("TRY" in log.read_text() for log in logs.iterdir()),
            "the newcomer trains",
            program.LIMIT_S,
        )
    finally:
        hurry.touch()
        said = hear(started, victims)
    return said


@pytest.mark.parametrize("world", [1, 2])
def test_ranks_come_while_it_runs(tmp_path: Path, world: int) -> None:
    said = join(tmp_path, world, "pause=0.15", late=True)
    check_each_once(said, n=N_MANY)
    check_weights(said, N_MANY)
    assert 0 < len(steps(said[-1])[1]) < len(steps(said[0])[1])
    assert ends(said, "END")[-1].startswith(f"{world} of {world + 1}: ")
    assert len({end.split(": ")[1] for end in ends(said, "END")}) == 1
    assert set(ends(said, "SAMPLES")) == {str(N_MANY * EPOCHS)}


def test_one_goes_and_one_comes(tmp_path: Path) -> None:
    """Rank 0 goes, and its join listener with it; the next rank opens another."""
    said = join(tmp_path, 3, "pause=0.3", "kill=0@3", victims=1)
    check_weights(said, N_MANY)
    assert len({end.split(": ")[1] for end in ends(said, "END")}) == 1
    assert {end.split(": ")[0].split()[-1] for end in ends(said, "END")} == {"3"}


def test_a_rank_is_told_to_leave(tmp_path: Path) -> None:
    """The rank ends well, and no step is done again; the last rank stays."""
    mark, hurry = tmp_path / "mark", tmp_path / "hurry"
    options = (MANY, "pause=0.1", f"mark={mark}", f"hurry={hurry}")
    started = start(3, *options, PAWL_ELASTIC_DOOR=str(tmp_path / "door"))
    wait_for(mark)
    for rank in started[:2]:
        rank.send_signal(signal.SIGUSR1)
    try:
        for rank in started[:2]:
            rank.wait(program.LIMIT_S)
    finally:
        hurry.touch()
        heard = hear(started, left=2)
    check_each_once(heard, dead=(0, 1), n=N_MANY)
    check_weights(heard, N_MANY)
    assert [end.split(": ")[0] for end in ends(heard, "END")] == ["0 of 1"]
    assert ends(heard, "SAMPLES") == [str(N_MANY * EPOCHS)]
    tries = [line for line in heard[2] if line.startswith("TRY")]
    assert len(tries) == len(steps(heard[2])[1])


def test_it_is_preempted_and_goes_on(tmp_path: Path) -> None:
    """The job goes on with another number of ranks, after the step at which it ended."""
    root = str(tmp_path / "root")
    mark = tmp_path / "mark"
    started = start(2, MANY, "pause=0.1", f"mark={mark}", PAWL_ELASTIC_ROOT=root)
    wait_for(mark)
    started[1].send_signal(signal.SIGTERM)
    before = hear(started, code=143)
    program.await_let_go(Path(root))  # the other job's agent must release the root
    after = hear(start(3, MANY, PAWL_ELASTIC_ROOT=root))
    both = [before[0] + after[0], *after[1:], before[1]]
    check_each_once(both, dead=(3,), n=N_MANY)
    check_weights(after, N_MANY)
    assert set(ends(after, "SAMPLES")) == {str(N_MANY * EPOCHS)}


def test_all_are_killed_and_go_on(tmp_path: Path) -> None:
    """The job goes on from a periodic checkpoint."""
    root = str(tmp_path / "root")
    env = {"PAWL_ELASTIC_ROOT": root, "PAWL_ELASTIC_INTERVAL": "0.2"}
    # The next start needs this job's agent, which has the commits.
    job = f"killed-{secrets.token_hex(4)}"
    hear(start(2, "pause=0.1", "kill=0@9,1@9", job=job, **env), victims=2)
    after = hear(start(1, job=job, **env))
    assert 0 < len(steps(after[0])[1]) < 20
    again = hear(start(3, job=job, **env))  # no sample is left to train on
    assert [steps(lines)[0] for lines in again] == [{}] * 3
    for said in (after, again):
        check_weights(said)
        assert set(ends(said, "SAMPLES")) == {str(N * EPOCHS)}


CHECKS = [
    "like_ddp", "buffers", "unused", "accumulated", "late", "noise_is_known", "scaled",
    "two_models", "loaders_of_users", "validation", "schedules", "every_schedule",
    "gradients_of_nothing", "fewer_samples_than_ranks", "any_loop_trains", "sums_go_on",
    "workers", "states_of_past_epochs_go", "what_is_refused",
]  # fmt: skip
OF_SCRIPTS = [
    "channels_last", "noise_of_channels_last", "noise_of_unequal_ranks", "clipping",
    "noise_of_clipped", "left_in_a_part", "unscaled", "a_group_is_added", "closures", "sparse",
    "a_short_step", "what_is_written",
]  # fmt: skip
WORLDS = [
    ("pawl", 1),
    ("pawl", 2),
    pytest.param("pawl", 3, marks=pytest.mark.slow),
    pytest.param("gloo", 2, marks=pytest.mark.slow),
]


def check_ranks(script: str, backend: str, world: int, checks: list[str]) -> None:
    env = program.clean_env(BACKEND=backend, PAWL_ELASTIC_REFIT="1e9")  # the checks choose batches
    for said in ranks.run_ranks(program.script(script), world, *checks, env=env):
        assert said == checks


@pytest.mark.slow("gloo-2", "pawl-3")
@pytest.mark.parametrize(("backend", "world"), WORLDS)
def test_beside_ddp(backend: str, world: int) -> None:
    check_ranks("elastic_checks.py", backend, world, CHECKS)


@pytest.mark.parametrize(("backend", "world"), WORLDS)
def test_what_scripts_do(backend: str, world: int) -> None:
    check_ranks("elastic_model_checks.py", backend, world, OF_SCRIPTS)
