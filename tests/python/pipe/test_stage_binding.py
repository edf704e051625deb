"""`_core.Stage`: events as tuples, objects that stay as long as their value, memory that outlives
everything, and closing while another thread waits."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pawl import _core
from pawl._core import Stage

FORWARD, BACKWARD = 0, 1
MADE = tuple[bytes, int, int, object]


class Bytes:
    """Memory of a value, which can be referred to weakly."""

    def __init__(self, content: bytes) -> None:
        self.memory = bytearray(content or b"-")
        self.nbytes = len(content)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))

    def made(self, meta: bytes = b"") -> MADE:
        return meta, self.address, self.nbytes, self


@pytest.fixture
def stage() -> Iterator[Stage]:
    one = Stage(None)
    yield one
    one.close()


@pytest.fixture
def pair() -> Iterator[tuple[Stage, Stage]]:
    groups = [_core.Group(rank, 2) for rank in range(2)]
    cards = [group.card for group in groups]
    threads = [threading.Thread(target=group.join, args=(cards, 60.0)) for group in groups]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    first, second = (Stage(group) for group in groups)
    yield first, second
    first.close()
    second.close()


def test_a_step_of_one_rank(stage: Stage) -> None:
    own, ten = Bytes(b"own"), Bytes(b"ten")
    stage.begin([(FORWARD, 0, 0), (BACKWARD, 3, 0)])
    assert stage.current() == (FORWARD, 0, 0)
    stage.call(0, 10, 2, FORWARD, 0, 0, (), b"make")
    stage.call(0, 20, 0, BACKWARD, 3, 0, (1, 10, 1), b"\x00blob")
    stage.put(1, b"meta", own.address, own.nbytes, own)
    stage.watch(11)
    stage.note(0, b"a note")
    stage.flush(FORWARD, 0)
    assert stage.next(0) == (_core.STAGE_NOTE, b"a note")
    assert stage.next() == (_core.STAGE_CALL, 10, (FORWARD, 0, 0), b"make", [])
    assert stage.next(0.001) is None
    stage.done(10, [ten.made(b"t"), (b"", 0, 0, None)])
    assert stage.next(1) == (_core.STAGE_ARRIVED, 11, b"", None)
    values = [(1, b"meta", own), (10, b"t", ten), (1, b"meta", own)]
    assert stage.next(1) == (_core.STAGE_CALL, 20, (BACKWARD, 3, 0), b"\x00blob", values)
    stage.keep(10, "another object")
    with pytest.raises(KeyError, match="11"):
        stage.keep(11, "not of this event")
    stage.done(20, [])
    stage.end()
    assert stage.next(1) == (_core.STAGE_END,)
    assert stage.next(0) is None
    assert stage.current() is None
    stats = stage.stats()
    assert (stats["calls_issued"], stats["calls_done"], stats["values_now"]) == (2, 2, 0)


def test_objects_go_with_their_values(stage: Stage) -> None:
    freed, ended, closed = Bytes(b"1"), Bytes(b"2"), Bytes(b"3")
    refs = [weakref.ref(value) for value in (freed, ended, closed)]
    stage.begin([])
    stage.put(1, b"", freed.address, 1, freed)
    stage.put(2, b"", ended.address, 1, ended)
    del freed, ended
    gc.collect()
    assert refs[0]() and refs[1]()
    stage.free(0, 1)
    assert not refs[0]() and refs[1]()
    stage.end()
    stage.next(1)
    assert not refs[1]()
    stage.begin([])
    stage.put(3, b"", closed.address, 1, closed)
    del closed
    assert refs[2]()
    stage.close()
    assert not refs[2]()


REFUSED: list[tuple[Callable[[Stage], Any], type[Exception], str]] = [
    (lambda s: s.call(0, 1, 1, 0, 0, 0, [], b""), ValueError, "tuple"),  # type: ignore[arg-type]
    (lambda s: s.call(0, 1, 1, 0, 0, 0, (-1,), b""), OverflowError, "negative"),
    (lambda s: s.call(0, 1, 1, 0, 1 << 16, 0, (), b""), OverflowError, "chunk"),
    (lambda s: s.call(0, 1, 1, 0, 0), TypeError, "8 arguments"),  # type: ignore[call-arg]
    (lambda s: s.call(1, 1, 1, 0, 0, 0, (), b""), _core.PawlError, "no rank 1"),
    (lambda s: s.put(1, b"m" * 97, 0, 0, None), ValueError, "96"),
    (lambda s: s.supply(1, 9), _core.PawlError, "nobody wants bytes of value 1"),
    (lambda s: s.done(7, []), _core.PawlError, "call 7 does not run"),
    (lambda s: s.done(7, [(b"", 0)]), TypeError, "a value is"),  # type: ignore[list-item]
    (lambda s: s.begin([]), _core.PawlError, "has not ended"),
    (lambda s: s.begin([(0, 0)]), TypeError, "a task is"),  # type: ignore[list-item]
    (lambda s: s.next("soon"), TypeError, "real number"),  # type: ignore[arg-type]
    (lambda s: Stage("group"), TypeError, "a Group or None"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_refused(stage: Stage, number: int) -> None:
    act, error, text = REFUSED[number]
    stage.begin([])
    with pytest.raises(error, match=text):
        act(stage)
    stage.end()
    assert stage.next(1) == (_core.STAGE_END,)


def serve(stage: Stage, seen: list[Any]) -> None:
    """Carries out calls: each makes its first need, reversed."""
    stage.begin([])
    while (event := stage.next()) is not None:
        seen.append(event)
        if event[0] == _core.STAGE_END:
            return
        if event[0] == _core.STAGE_CALL:
            made = Bytes(bytes(memoryview(event[4][0][2]))[::-1])
            stage.done(event[1], [made.made(b"reversed")])


@pytest.mark.parametrize("size", [0, 5, 3000, 1 << 20])
def test_a_call_to_another_rank(pair: tuple[Stage, Stage], size: int) -> None:
    driver, server = pair
    seen: list[Any] = []
    thread = threading.Thread(target=serve, args=(server, seen))
    thread.start()
    value = Bytes(bytes(i % 251 for i in range(size)))
    driver.begin([])
    driver.put(1, b"meta", value.address, size, value)
    driver.push(0, 1, 1)
    driver.call(1, 2, 1, FORWARD, 0, 0, (1,), b"reverse")
    driver.push(1, 2, 0)
    driver.watch(2)
    driver.send()
    kind, number, meta, buffer = driver.next(60) or ()
    assert (kind, number, meta) == (_core.STAGE_ARRIVED, 2, b"reversed")
    assert isinstance(buffer, _core.StageBuffer) and buffer.nbytes == size
    driver.keep(2, [buffer])
    driver.free(0, 2)
    driver.end()
    assert driver.next(60) == (_core.STAGE_END,)
    thread.join()
    assert seen[0][4][0][:2] == (1, b"meta")
    assert seen[-1] == (_core.STAGE_END,)
    driver.close()
    server.close()
    view = memoryview(buffer)  # stays, though value and stage are gone
    assert bytes(view) == bytes(value.memory)[:size][::-1]
    if size:
        view[0] = 7
        assert buffer.address % 64 == 0


def test_failing_reaches_the_other_rank(pair: tuple[Stage, Stage]) -> None:
    pair[1].fail(b"no such module")
    for stage in pair:
        for _ in range(2):
            assert stage.next(60) == (_core.STAGE_FAILED, 1, b"no such module")


def test_a_rank_that_leaves_is_named(pair: tuple[Stage, Stage]) -> None:
    pair[1].leave()
    with pytest.raises(_core.PawlError, match="rank 1") as caught:
        pair[0].next(60)
    assert caught.value.name == "PAWL_EPEER"
    with pytest.raises(_core.PawlError, match="has left") as caught:
        pair[1].next(60)
    assert caught.value.name == "PAWL_ECANCELED"


@pytest.mark.parametrize("end", ["leave", "close"])
def test_ending_while_a_thread_waits(end: str) -> None:
    stage = Stage(None)
    errors: list[str] = []
    waits = threading.Event()

    def wait() -> None:
        waits.set()
        try:
            stage.next()
        except _core.PawlError as error:
            errors.append(error.name)

    threads = [threading.Thread(target=wait)]
    threads[0].start()
    waits.wait()
    getattr(stage, end)()
    threads[0].join()
    assert errors == ["PAWL_ECANCELED"]
    getattr(stage, end)()
    stage.close()
    with pytest.raises(_core.PawlError, match="closed"):
        stage.stats()


def test_a_forked_child_is_refused(pair: tuple[Stage, Stage]) -> None:
    driver, server = pair
    value = Bytes(b"kept")
    driver.begin([])
    driver.put(1, b"", value.address, 4, value)
    child = os.fork()
    if child == 0:
        names = []
        for act in (lambda: driver.next(), driver.send, lambda: server.begin([])):
            try:
                act()
            except _core.PawlError as error:
                names.append(error.name)
        driver.close()
        server.close()
        os._exit(0 if names == ["PAWL_ENOTSUP"] * 3 else 1)
    _, status = os.waitpid(child, 0)
    assert status == 0
    driver.end()
    assert driver.next(60) == (_core.STAGE_END,)


def test_ctrl_c_ends_the_wait(stage: Stage) -> None:
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        with pytest.raises(KeyboardInterrupt):
            stage.next()
    finally:
        signal.signal(signal.SIGALRM, before)
