"""A process's line about its start: once, where the person who started it sees it."""

from __future__ import annotations

import contextlib
import logging
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch.distributed import checkpoint

import nursery
import program
from pawl import _start
from pawl.engine import Engine
from pawl.integrations import dcp
from starting import Processes, check_starts

ROOT = logging.getLogger()
OURS = [logging.getLogger(name) for name in ("pawl", "pawl.start")]
LINE = "nothing saved yet in runs/toy: from the beginning"


class Kept(logging.Handler):
    """A handler that keeps the lines that logging shows."""

    def __init__(self, level: int = logging.NOTSET) -> None:
        super().__init__(level)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@contextlib.contextmanager
def no_logging() -> Iterator[None]:
    """Makes logging as in a script that has not set it up; restores it afterwards, with pytest's
    own handlers."""
    loggers = [ROOT, *OURS]
    was = [(one.handlers[:], one.level, one.propagate, one.disabled) for one in loggers]
    for one in loggers:
        one.handlers[:] = []
        one.setLevel(logging.WARNING if one is ROOT else logging.NOTSET)
    try:
        yield
    finally:
        for one, (handlers, level, propagate, disabled) in zip(loggers, was, strict=True):
            one.handlers[:], one.propagate, one.disabled = handlers, propagate, disabled
            one.setLevel(level)
        logging.disable(logging.NOTSET)


def to(logger: logging.Logger, level: int, handler: logging.Handler) -> Callable[[], None]:
    def set_up() -> None:
        logger.addHandler(handler)
        logger.setLevel(level)

    return set_up


KEPT = Kept()
OF_WARNINGS = Kept(logging.WARNING)


def disabled() -> None:
    """Disables loggers, as logging.config.dictConfig does with earlier ones."""
    ROOT.addHandler(KEPT)
    for one in OURS:
        one.disabled = True


@pytest.mark.parametrize(
    ("set_up", "heard"),
    [
        (lambda: None, "stderr"),
        (to(ROOT, logging.INFO, KEPT), "logging"),
        (to(ROOT, logging.DEBUG, KEPT), "logging"),
        (to(ROOT, logging.WARNING, KEPT), "stderr"),  # as logging.basicConfig() alone does
        (to(ROOT, logging.INFO, OF_WARNINGS), "stderr"),
        (to(ROOT, logging.INFO, logging.NullHandler()), "stderr"),
        (to(OURS[0], logging.INFO, KEPT), "logging"),
        (to(OURS[0], logging.WARNING, KEPT), ""),
        (to(OURS[1], logging.ERROR, KEPT), ""),
        (lambda: logging.disable(logging.INFO), ""),
        (lambda: setattr(OURS[0], "propagate", False), ""),
        (disabled, "stderr"),
    ],
)
def test_it_is_heard_once(
    set_up: Callable[[], None], heard: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line is where a script's lines of that kind are, else on stderr; where the script wants
    none, nowhere."""
    KEPT.lines, OF_WARNINGS.lines = [], []
    with no_logging():
        set_up()
        _start.nothing("runs/toy")
    said = {"stderr": capsys.readouterr().err.splitlines(), "logging": KEPT.lines}
    expected = {"stderr": [f"pawl: {LINE}"], "logging": [LINE]}
    assert said == {place: expected[place] if place == heard else [] for place in said}
    assert not OF_WARNINGS.lines


@pytest.mark.parametrize(("level", "told"), [("warning", "anew"), ("error", ""), ("info", "both")])
def test_the_variable_silences(
    level: str, told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PAWL_LOG", level)
    with no_logging():
        _start.nothing("runs/toy")
        _start.anew("runs/toy", "global_step5", "call restore() before save()")
    err = capsys.readouterr().err
    assert ("from the beginning" in err, "begins anew" in err) == (told == "both", told != "")


@pytest.fixture
def processes(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Processes:
    return Processes(caplog, monkeypatch)


def test_by_tag(tmp_path: Path, processes: Processes) -> None:
    def save(number: int) -> None:
        with Engine(tmp_path) as engine:
            engine.save(f"tag{number}", {"x": 1}).wait("durable", program.LIMIT_S)

    def load() -> None:
        with Engine(tmp_path) as engine:
            found = engine.find()
            assert found is not None and found.load("x") == 1
            _start.restored(found.root, found.tag, found.size, found.source)

    loaded = rf"restored tag5 \([\d.]+ KiB, from \w.*\) from {tmp_path}"
    check_starts(processes, tmp_path, save, load, "call find() before save()", loaded)


def test_nebula(tmp_path: Path, processes: Processes) -> None:
    from pawl.compat import nebula

    def save(number: int) -> None:
        nebula.init(tmp_path, 0)
        checkpoint = nebula.Checkpoint(f"tag{number}", 1)
        checkpoint.save("x", {"a": torch.ones(2)})
        assert checkpoint.commit()
        nebula._shutdown()

    def load() -> None:
        nebula.init(tmp_path, 0)
        found = nebula.get_latest_checkpoint()
        for _ in range(2):
            assert found is not None and found.load("x")["a"].sum() == 2

    loaded = rf"restored tag5 \([\d.]+ KiB, from \w.*\) from {tmp_path}"
    remedy = "call get_latest_checkpoint() before Checkpoint.save()"
    check_starts(processes, tmp_path, save, load, remedy, loaded)
    processes.begin()
    nebula.init(tmp_path / "other", 0)
    assert nebula.get_latest_checkpoint() is None and nebula.get_latest_checkpoint() is None
    nebula._shutdown()
    other = tmp_path / "other"
    assert processes.said() == [f"nothing saved yet in {other}: from the beginning"]


def test_distributed_checkpoint(tmp_path: Path, processes: Processes) -> None:
    def save(number: int) -> None:
        writer = dcp.PawlWriter(tmp_path)
        state = {"x": torch.full((3,), float(number))}
        checkpoint.save(state, storage_writer=writer, checkpoint_id=f"tag{number}")
        writer.engine.close()

    def load(by: str = "load") -> None:
        state, reader = {"x": torch.zeros(3)}, dcp.PawlReader(tmp_path)
        if by == "load":
            assert dcp.load(state, reader) == "tag5"
        else:
            checkpoint.load(state, storage_reader=reader, checkpoint_id="tag6")
        assert state["x"][0] >= 5

    loaded = rf"restored tag5 \([\d.]+ KiB, from the store\) from {tmp_path}"
    remedy = "load with pawl.integrations.dcp.load() before dcp.save()"
    check_starts(processes, tmp_path, save, load, remedy, loaded)
    processes.begin()
    load("torch")
    assert len(processes.said()) == 1 and "restored tag6" in processes.said()[0]
    processes.begin()
    other = tmp_path / "other"
    assert dcp.load({}, dcp.PawlReader(other)) is None
    assert processes.said() == [f"nothing saved yet in {other}: from the beginning"]


SCRIPT = """
import logging, sys
import torch, pawl
exec(sys.argv[2])
state = {"model": torch.nn.Linear(3, 1)}
with pawl.Checkpointer(sys.argv[1]) as ckpt:
    step = ckpt.restore(state) or 0
    for step in range(step + 1, step + 3):
        ckpt.save(step, state)
"""


@pytest.mark.slow("basicConfig")
@pytest.mark.parametrize(
    "setup",
    [
        pytest.param("", id="none"),
        pytest.param(
            "logging.basicConfig(level=logging.INFO)",
            id="basicConfig",
            marks=pytest.mark.real_interpreters,
        ),
    ],
)
def test_a_plain_script(tmp_path: Path, setup: str) -> None:
    """Without `pawl run`: one line a start, whether the script has set up logging or not."""
    root = tmp_path / "toy"

    def run() -> str:
        done = nursery.run(
            [sys.executable, "-c", SCRIPT, str(root), setup],
            env=program.clean_env(),
            stderr=subprocess.PIPE,
            text=True,
            timeout=program.LIMIT_S,
            check=True,
        )
        (line,) = [one for one in done.stderr.splitlines() if str(root) in one]
        return re.sub(r"^INFO:pawl.start:", "pawl: ", line)

    assert run() == f"pawl: nothing saved yet in {root}: from the beginning"
    assert re.fullmatch(rf"pawl: restored step 2 \([\d.]+ KiB, from \w.*\) from {root}", run())
