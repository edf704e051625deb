"""pawl.recipes: files in the folder, file systems, processes that die, several ranks."""

from __future__ import annotations

import errno
import json
import logging
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import guide
import nursery
import pawl
import program
import waits
from conftest import SEED
from pawl.recipes import _folder, _ranks
from recipes_user import Writer, enter, flip, loader, names, saver

HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    enter(tmp_path, monkeypatch)


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "pawl")
    return caplog


# ---- what lies in the folder ----


def record(step: int, rank: str = "") -> Path:
    return Path(f"checkpoints/checkpoint_step_{step}{rank}_metadata.json")


def edit(**fields: Any) -> None:
    said = json.loads(record(2).read_text())
    record(2).write_text(json.dumps({**said, **fields}))


def file_row(name: str) -> dict[str, Any]:
    return {"name": name, "size": 200, "crc32": "00000000", "writer": "w"}


DAMAGES: list[tuple[Callable[[], Any], str]] = [
    (lambda: flip("checkpoints/model_2.pt"), "model_2.pt is damaged: its checksum is"),
    (lambda: Path("checkpoints/model_2.pt").write_bytes(b"2 "), "has 2 bytes, 200 were written"),
    (lambda: Path("checkpoints/model_2.pt").unlink(), "model_2.pt: No such file"),
    (lambda: record(2).write_text(record(2).read_text()[:90]), "was not written to its end"),
    (lambda: record(2).write_text(""), "was not written to its end"),
    (lambda: record(2).write_bytes(b"\0" * 300), "was not written to its end"),
    (lambda: record(2).write_text("[]"), "is damaged"),
    (lambda: record(2).unlink(), "model_2.pt has no metadata: its save did not end"),
    (lambda: edit(step=3), "says step 3"),
    (lambda: edit(pawl=2), "of version 2, this Pawl knows 1"),
    (lambda: edit(files=[]), "names no file"),
    (lambda: edit(files=[{"name": "model_2.pt"}]), "is damaged"),
    (lambda: edit(files=[file_row("../secret")]), "names '../secret', outside"),
    (lambda: edit(files=[file_row("/etc/passwd")]), "names '/etc/passwd', outside"),
]


@pytest.mark.parametrize("number", range(len(DAMAGES)))
def test_damage_falls_back_with_its_reason(number: int, told: pytest.LogCaptureFixture) -> None:
    save, _ = saver()
    save(1)
    save(2)
    spoil, reason = DAMAGES[number]
    spoil()
    load, reader = loader()
    assert load(0) == 1 and reader.calls == [1]
    (line,) = [each.getMessage() for each in told.records if each.levelname == "WARNING"]
    assert line.startswith("step 2 in checkpoints: passed over: ") and reason in line
    secret = Path("secret")
    secret.write_bytes(b"kept")
    for step in range(3, 10):
        save(step)
    assert secret.exists()


def test_the_callers_own_step_is_damaged() -> None:
    save, _ = saver()
    save(2)
    flip("checkpoints/model_2.pt")
    load, reader = loader()
    with pytest.raises(pawl.PawlError, match=r"step 2: model_2\.pt is damaged") as raised:
        load(2)
    assert raised.value.name == "PAWL_ECORRUPT" and reader.calls == []
    with pytest.raises(FileNotFoundError):
        load(0)
    assert reader.calls == [0]


@pytest.mark.parametrize("kind", ["checkpoint_step", "model", "training"])
def test_what_the_guides_decorators_wrote_loads_unverified(kind: str) -> None:
    pattern = f"checkpoints/{kind}_{{}}.pt"
    save = guide.save_checkpoint("checkpoints")(Writer(pattern))
    for step in range(1, 10):
        save(step)
    load, _ = loader(pattern)
    assert load(0) == 9 and (load.step, load.verified) == (9, False)
    Path(pattern.format(9)).write_bytes(b"half")
    assert load(0) == 8
    before = set(names())
    ours, _ = saver(pattern, max_checkpoints=2)
    for step in (10, 11, 12):
        ours(step)
    assert before <= set(names())  # the guide's files are not deleted
    assert load(0) == 12 and load.verified
    for step in (11, 12):
        flip(pattern.format(step))
    assert load(0) == 8 and not load.verified


def test_files_without_metadata(told: pytest.LogCaptureFixture) -> None:
    Path("checkpoints").mkdir()
    for name in ("experiment1_step_3.pt", "experiment1_step_x.pt", "experiment2_step_9.pt"):
        Path("checkpoints", name).write_bytes(b"3 " * 100)
    load, reader = loader("checkpoints/experiment1_step_{}.pt", checkpoint_prefix="experiment1")
    assert load(0) == 3 and reader.calls == [3]
    other, reader = loader(checkpoint_prefix="experiment3")
    with pytest.raises(FileNotFoundError):
        other(0)
    assert reader.calls == [0]


def test_prefixes_keep_out_of_each_others_way() -> None:
    first, _ = saver("checkpoints/a_{}.pt", checkpoint_prefix="a", max_checkpoints=1)
    second, _ = saver("checkpoints/a_step_{}.pt", checkpoint_prefix="a_step", max_checkpoints=1)
    for step in (1, 2):
        first(step)
    for step in (3, 4):
        second(step)
    assert [name for name in names() if name.endswith(".pt")] == ["a_2.pt", "a_step_4.pt"]
    assert loader("checkpoints/a_{}.pt", checkpoint_prefix="a")[0](0) == 2
    assert loader("checkpoints/a_step_{}.pt", checkpoint_prefix="a_step")[0](0) == 4


# ---- file systems ----


def test_a_mount_that_cannot_rename_or_sync_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.fsync

    def fsync(fd: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{fd}"):
            raise OSError(errno.EINVAL, "no such call")
        real(fd)

    def replace(source: Any, target: Any) -> None:
        raise OSError(errno.ENOSYS, "no such call")

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    save, _ = saver(max_checkpoints=2)
    for step in (1, 2, 3):
        save(step)
    assert loader()[0](0) == 3 and len(names()) == 4


def test_a_mount_that_sets_times_when_it_has_uploaded(monkeypatch: pytest.MonkeyPatch) -> None:
    real = _folder._checksum

    def checksum(file: Any) -> str:
        os.utime(file.name, ns=(0, time.time_ns()))
        return real(file)

    monkeypatch.setattr(_folder, "_checksum", checksum)
    save, _ = saver()
    save(1)
    assert loader()[0](0) == 1 and len(names()) == 2


def test_metadata_that_cannot_be_written(
    monkeypatch: pytest.MonkeyPatch, told: pytest.LogCaptureFixture
) -> None:
    save, writer = saver(max_checkpoints=1)
    save(1)

    def full(path: Path, text: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(_folder, "_write_synced", full)
        assert save(2) == "wrote 2" and writer.calls == [1, 2]
    assert "no checkpoint: [Errno 28] No space left" in told.text
    assert loader()[0](0) == 1


def test_a_folder_with_too_much_in_it(
    monkeypatch: pytest.MonkeyPatch, told: pytest.LogCaptureFixture
) -> None:
    save, writer = saver()
    save(1)
    monkeypatch.setattr(_folder, "FILES_MAX", 3)
    for name in "abc":
        Path("checkpoints", name).touch()
    assert save(2) == "wrote 2" and writer.calls == [1, 2]
    assert "more than 3 files lie below checkpoints" in told.text
    with pytest.raises(FileNotFoundError):
        loader()[0](0)


# ---- processes ----


@pytest.mark.real_interpreters
def test_importing_the_recipes_imports_no_torch() -> None:
    code = "import sys, pawl; pawl.recipes.save_checkpoint; print('torch' in sys.modules)"
    done = nursery.run(
        [sys.executable, "-c", code],
        env=program.clean_env(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "False\n"


KILLED = """
import sys, pawl
@pawl.recipes.save_checkpoint("checkpoints", max_checkpoints=2)
def save(step):
    with open(f"checkpoints/model_{step}.pt", "wb") as file:
        for piece in range(16):
            file.write(f"{step} ".encode() * 4096)
            file.flush()
@pawl.recipes.load_checkpoint("checkpoints")
def load(step):
    if step == 0:
        return 0
    assert open(f"checkpoints/model_{step}.pt", "rb").read() == f"{step} ".encode() * 65536, step
    return step
step = load(0)
print(step, flush=True)
end = step + int(sys.argv[1])
while step < end:
    step += 1
    save(step)
    print(step, flush=True)
"""
KILLS = 200 if os.environ.get("PAWL_LONG") else 40


@pytest.mark.slow
def test_killed_at_any_moment(tmp_path: Path) -> None:
    """A killed job goes on from the last step that it reported saved, or the one after it."""
    rng = random.Random(SEED)
    said = 0
    unrecorded = 0  # steps before the first record
    for _ in range(KILLS):
        with (tmp_path / "errors").open("w+") as errors:
            child = nursery.Popen(
                [sys.executable, "-c", KILLED, "1000000"],
                cwd=tmp_path,
                env=program.clean_env(),
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
            assert child.stdout is not None
            began = child.stdout.readline()
            waits.any_moment(rng, 0, 0.05)
            child.send_signal(signal.SIGKILL)
            rest = child.stdout.read()  # communicate() would lose what readline() has read ahead
            child.wait()
            assert began.endswith("\n"), f"seed {SEED}: {(tmp_path / 'errors').read_text()}"
        assert int(began) in (said, said + 1), f"seed {SEED}: after {said} came {began}"
        lines = [line for line in (began + rest).splitlines(keepends=True) if line.endswith("\n")]
        said = int(lines[-1])
        unrecorded += not list((tmp_path / "checkpoints").glob("*.json"))
    assert said > 0
    nursery.run(
        [sys.executable, "-c", KILLED, "3"], cwd=tmp_path, env=program.clean_env(), check=True
    )
    left = names(tmp_path / "checkpoints")
    records = [name for name in left if name.endswith(".json")]
    assert len(records) == 2
    # A save may have been cut off before or during its record, and loaded all the same: no rule
    # removes the file of a save made before the first record.
    files = [name for name in left if not name.startswith(".")]
    assert len(files) - len(records) <= 3 + max(unrecorded - 1, 0)
    assert len([name for name in left if name.startswith(".")]) <= 1


def test_ranks_without_a_process_group_are_told(
    monkeypatch: pytest.MonkeyPatch, told: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(_ranks, "_warned_alone", False)
    monkeypatch.setattr(_ranks._core, "env", lambda: {"rank": 1, "world": 2})
    save, _ = saver()
    load, _ = loader()
    save(1)
    assert names() == ["checkpoint_step_1_rank1_metadata.json", "model_1.pt"]
    assert load(0) == 1 and load(0) == 1
    assert told.text.count("rank 1 of 2 picks a checkpoint alone") == 1


def test_a_step_stays_until_the_slowest_rank_has_a_newer_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def act_as(rank: int) -> None:
        monkeypatch.setattr(_ranks._core, "env", lambda: {"rank": rank, "world": 2})

    def write(step: int, rank: int) -> None:
        Path(f"checkpoints/model_{step}_rank{rank}.pt").write_bytes(b"x")

    save = pawl.recipes.save_checkpoint("checkpoints", max_checkpoints=1)(write)
    record(7, "_rank2").write_text("{}")  # a third rank's, from before the job shrank
    for rank, step, kept in ((0, 1, [1]), (1, 1, [1]), (0, 2, [1, 2]), (0, 3, [1, 2, 3])):
        act_as(rank)
        save(step, rank)
        files = [Path(f"checkpoints/model_{at}_rank{rank}.pt") for at in (1, 2, 3)]
        assert [at for at, path in enumerate(files, 1) if path.exists()] == kept
    act_as(1)
    save(3, 1)
    act_as(0)
    save(3, 0)
    assert [name for name in names() if name.endswith(".pt")] == [
        "model_3_rank0.pt",
        "model_3_rank1.pt",
    ]


@pytest.mark.parametrize(
    ("changed", "rank", "taken"),
    [
        (["a_5_rank0.pt", "a_5_rank1.pt", "log"], 1, ["a_5_rank1.pt"]),
        (["a_5_rank_00.pt", "a_5_rank_01.pt", "a_5.pt"], 0, ["a_5.pt", "a_5_rank_00.pt"]),
        (["5/mp_rank_01.pt"], 4, ["5/mp_rank_01.pt"]),  # files of ranks of another kind
        (["log", "model_15.pt", "model_51.pt", "a_05.pt"], 0, ["a_05.pt"]),
        (["latest.pt"], 0, ["latest.pt"]),
    ],
)
def test_which_files_are_taken(changed: list[str], rank: int, taken: list[str]) -> None:
    stamp = (1, 2, 3, 4)
    after = dict.fromkeys([*changed, "old_5.pt"], stamp)
    assert _folder.written({"old_5.pt": stamp}, after, 5, rank) == taken


def test_a_rank_that_waits_long_says_for_what(
    monkeypatch: pytest.MonkeyPatch, told: pytest.LogCaptureFixture
) -> None:
    def gather(values: list[Any], value: Any) -> None:
        program.wait_until(lambda: "rank 0 has waited" in told.text, "it says for what it waits")
        values[:] = [value, value]

    group = SimpleNamespace(
        is_available=lambda: True,
        is_initialized=lambda: True,
        get_rank=lambda: 0,
        get_world_size=lambda: 2,
        all_gather_object=gather,
    )
    monkeypatch.setitem(sys.modules, "torch.distributed", group)
    monkeypatch.setattr(_ranks, "seconds", lambda _: 0.05)
    assert _ranks.Ranks().gather("x") == ["x", "x"]
    assert "every rank must call it" in told.text


RANKS = 3


@pytest.mark.slow
@pytest.mark.real_interpreters
def test_d7_ranks_agree_on_a_step(tmp_path: Path) -> None:
    """Three ranks in a process group play the scenes of recipes_rank.py."""
    env = program.clean_env(WORLD_SIZE=str(RANKS), LOCAL_WORLD_SIZE=str(RANKS))
    children = [
        nursery.Popen(
            [sys.executable, str(HERE / "recipes_rank.py"), str(tmp_path)],
            env={**env, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(RANKS)
    ]
    said = []
    for child in children:
        out, errors = child.communicate(timeout=program.LIMIT_S)
        assert child.returncode == 0, errors
        said.append({**json.loads(out), "errors": errors})
    assert [each["theirs"] for each in said] == [4, 3, 4]
    assert [each["own"] for each in said] == [2, 2, 2]
    assert "another rank does not have it whole" in said[0]["errors"]
    assert [each["flipped"] for each in said] == [1, 1, 1]
    assert "rank 1: mine_4.pt is damaged" in said[2]["errors"]
    assert [each["fails"] for each in said] == [[3, 2], [3, 2], [3, 2]]
    assert "rank 1: RuntimeError: only here" in said[0]["errors"]
    assert [each["shared"] for each in said] == [3, 3, 3]
    assert [each["unrecorded"] for each in said] == [2, 2, 2]
    newest = {f"model_{step}_rank{rank}.pt" for step in (2, 3) for rank in range(RANKS)}
    assert newest <= set(said[0]["kept"])  # step 1 also: a rank was ahead at step 3
    assert [each["none"] for each in said] == [0, 10, 20]
