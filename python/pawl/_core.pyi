"""The C extension: thin calls into libpawl. Policy, defaults and torch live in the .py files."""

from collections.abc import Callable, Sequence
from typing import Any, TypedDict

from typing_extensions import Buffer

version: str

class PawlError(RuntimeError):
    code: int  # negative, as in include/pawl/err.h
    name: str  # "PAWL_ECORRUPT"
    errno: int  # of the system call behind it, as in the module errno; 0: none

class Env(TypedDict):
    rank: int
    world: int
    local_rank: int
    local_world: int
    node_rank: int
    nodes: int
    attempt: int
    job: str  # "" when no variable names one
    source: str  # "pawl", "torchrun", ... or "none"
    job_source: str  # the variable that named the job, or ""

class Listed(TypedDict):  # what is only committed knows no size and time: 0
    step: int
    tag: str
    level: str  # "committed", "durable", "broken"
    size: int  # bytes
    pinned: bool
    created: float  # seconds since 1970
    world: int
    why: str  # what is broken, or ""

Shape = tuple[int, ...]
# name, dtype, shape, storage, offset in bytes[; of a shard: shape of the whole, first element]
Tensor = tuple[str, str, Shape, int, int] | tuple[str, str, Shape, int, int, Shape, Shape]
# name, shared, pickle, tensor table, spans[, raw: the spans are the file]
Part = tuple[str, bool, bytes, bytes, Buffer] | tuple[str, bool, bytes, bytes, Buffer, bool]

def env() -> Env: ...
def encode_tensors(tensors: Sequence[Tensor], /) -> bytes: ...
def decode_tensors(table: bytes, /) -> list[Tensor]: ...

# How often to save: the formulas, with their sources, are in include/pawl/adapt.h. Seconds and 1/s.
def interval_young(cost: float, mtbf: float, /) -> float: ...
def interval_daly(cost: float, mtbf: float, /) -> float: ...
def interval_overhead(interval: float, cost: float, restart: float, mtbf: float, /) -> float: ...
def rate_bounds(failures: int, time: float, confidence: float, /) -> tuple[float, float]: ...

# Goodput, of pawl/adapt.h too; tuples are its structs.
Perf = tuple[float, float, float, float, float, float, float, float]
Moments = tuple[float, float]  # sqr, var
Place = tuple[int, int, int]  # nodes, replicas, most on a node (0: evenly)

def step_s(perf: Perf, place: Place, batch: tuple[int, int], /) -> float: ...
def gain(noise: Moments, scale: float, /) -> float: ...
def lr_factor(
    rule: tuple[bool, float, float], noise: Moments, scale: float, progress: float, /
) -> float: ...
def goodput(
    perf: Perf, noise: Moments, init: int, place: Place, batch: tuple[int, int], /
) -> float: ...
def batch_choose(
    perf: Perf,
    noise: Moments,
    bounds: tuple[int, int, int, int, bool],  # init, max, least, most, accumulate
    place: Place,
    /,
) -> tuple[int, int, float] | None: ...  # atomic, accum, goodput
def perf_fit(
    perf: Perf | None, profiles: list[tuple[Place, int, float, float]], /
) -> Perf: ...  # profiles: place, atomic, grad_s, step_s
def squares(
    dtype: int, spans: list[tuple[int, int, int, float, float]], /
) -> float: ...  # spans: address, elements; second's address or 0, by, eps

# Pipelines: include/pawl/pipe.h says what each field is.
PipeUnit = tuple[  # name, forward_s, backward_s, weight_s, param_bytes, saved_bytes, cut_bytes,
    str, float, float, float, int, int, int, int, int, int  # tied (0: none), tied_bytes, stage
]  # a stage below 0: any
PipeSetting = tuple[
    int,  # stages
    int,  # microbatches
    tuple[float, ...] | None,  # speed of each stage
    tuple[int | None, ...] | None,  # memory of each stage in bytes; None: no limit
    tuple[float, float, bool],  # link: bytes_per_s, latency_s, busy
    str,  # schedule: "auto", "simple", "1f1b", …
    int,  # each
    int,  # inflight
    int,  # tied: 0 auto, 1 replicate, 2 visit
    float,  # memory_weight
    float,  # state_factor
]

class PipeStage(TypedDict):
    state_bytes: int
    cap_bytes: int | None
    busy_s: float
    peak_live: int
    peak_bytes: int
    tasks: list[tuple[int, int, int]]  # kind (0 F, 1 B, 2 I, 3 W), chunk, microbatch

class PipeChunk(TypedDict):
    stage: int
    first: int
    units: int
    forward_s: float
    backward_s: float
    weight_s: float
    saved_bytes: int
    in_bytes: int

class PipeCopies(TypedDict):
    tied: int
    bytes: int
    stages: list[int]

class PipeOption(TypedDict):
    schedule: str
    each: int
    visits: bool
    step_s: float
    bubble: float
    peak_bytes: int
    refused: str | None  # the reason; the numbers are then 0

class PipePlan(TypedDict):
    schedule: str
    each: int
    inflight: int
    visits: bool
    largest_s: float
    value: float
    bound: float
    step_s: float
    finish_s: float
    bound_s: float
    bubble: float
    stages: list[PipeStage]
    chunks: list[PipeChunk]
    copies: list[PipeCopies]
    options: list[PipeOption]
    chosen: int  # index of the option

def pipe_choose(units: Sequence[PipeUnit], setting: PipeSetting, /) -> PipePlan: ...

class Noise:
    def __init__(self, state: tuple[float, ...] = ..., /) -> None: ...
    def add(self, local: float, total: float, count: float, scale: float, /) -> bool: ...
    def age(self, scale: float, /) -> None: ...
    def moments(self) -> Moments: ...
    def interval(self) -> tuple[float, float] | None: ...  # of var / sqr
    def state(self) -> tuple[float, ...]: ...

class Session:
    def __init__(
        self,
        root: str,
        job: str,
        rank: int,
        world: int,
        attempt: int,
        *,
        keep: int,
        keep_every: int,
        full_every: int = 1,
        persist_every_ms: int,
        memory_bytes: int,
        replicas: int = 0xFFFFFFFF,  # that value: the agent chooses
        parity: bool = False,  # sums in place of copies
        socket: str | None,
        program: str | None,
        watch: bool,
        hidden: str | None = None,  # directory for what is not a finished tag
        named: bool = False,  # saves by tag
        host_first: int = 0,  # rank of this host
        host_ranks: int = 0,  # on this host, one after the other; 0: all
        # asked by a thread of the session once all of a save is copied of which some lay on a
        # device: which partition and storage the caller knows to have changed, or None
        find_changed: Callable[[Session, int], tuple[int, int] | None] = ...,
    ) -> None: ...
    def save_tag(
        self, tag: str, step: int | None, flags: int, parts: Sequence[Part], watch: bool, /
    ) -> int: ...
    def begin(self, tag: str, step: int | None, flags: int, /) -> int: ...
    def add(self, part: Part, /) -> None: ...  # PAWL_EEXIST, else the save has failed
    def commit(self) -> None: ...
    def drop(self, why: str, /) -> None: ...
    def abandon(self, why: str, /) -> None: ...  # this process leaves because of an error
    def find(self, tag: str | None, timeout: float | None, /) -> Restore | None: ...
    def save(self, step: int, parts: Sequence[Part], watch: bool, /) -> int: ...
    @property
    def due(self) -> bool: ...
    def announce(self, step: int | None, /) -> None: ...  # a save is about to come; None: it is not
    def fence(self, groups: int, /) -> None: ...
    def status(self, id: int, /) -> tuple[int, int, str, int, int, int, dict[str, Any]]: ...
    def wait(self, id: int, level: int, timeout: float | None, /) -> bool: ...
    def withdraw(self, id: int, part: int, storage: int, /) -> None: ...
    def restore(self, step: int | None, timeout: float, /) -> Restore | None: ...
    def flush(self, timeout: float | None, /) -> None: ...  # PawlError: why it is not durable
    def next_notification(self, wait: bool, /) -> str | None: ...  # wait: until there is one
    def end_notifications(self) -> None: ...  # next_notification returns None from now on
    def pending(self) -> list[tuple[int, str]]: ...  # committed in memory, not yet durable
    def remove(self, tag: str, /) -> None: ...
    def pin(self, tag: str, pinned: bool, /) -> None: ...
    def imports(self, names: str, /) -> None: ...
    def close(self, timeout: float | None, /) -> None: ...  # raises as flush(0)
    @property
    def stopping(self) -> bool: ...
    def stop(self) -> None: ...
    @property
    def diverged(self) -> Sequence[str]: ...
    @property
    def best_proof(self) -> tuple[int, str]: ...

class Restore:  # calls of several threads wait for each other
    @property
    def step(self) -> int: ...
    @property
    def tag(self) -> str: ...
    @property
    def source(self) -> str: ...  # "memory" or "store"
    @property
    def world(self) -> int: ...
    @property
    def parts(self) -> list[tuple[str, int, int]]: ...  # name, rank (-1: all), bytes
    @property
    def files(self) -> list[tuple[str, bool]]: ...  # name in the tag, raw; as parts
    def read(self, indices: Sequence[int], /) -> None: ...
    def pickle(self, part: int, /) -> bytes: ...  # verified; before read, too
    def storages(self, part: int, /) -> list[int]: ...  # bytes of each, once pickle or read came
    def tensors(self, part: int, /) -> bytes: ...
    # Copies are 5 uint64 each: part, storage, offset, destination's address, bytes.
    def need(self, spec: Buffer, /) -> None: ...  # reads and verifies what these copies need
    def copy(self, spec: Buffer, /) -> None: ...
    def reshard(  # the copies that put a box of a tensor at an address, in row-major order
        self,
        part: str,
        tensor: str,
        dtype: str,
        item_bytes: int,
        shape: Shape,  # of the whole tensor
        start: Shape,  # of the box
        box: Shape,
        address: int,
        /,
    ) -> bytes: ...
    def condemn(self, why: str, /) -> None: ...  # nobody finds it again
    def vote(self, verdict: int, why: str, timeout: float, /) -> int: ...
    def close(self) -> None: ...

class Copier:  # begin is for one thread at a time
    def __init__(self, watch: bool) -> None: ...
    # Spans: 4 uint64 each: address, bytes, groups, device. Targets are held until the next begin.
    def begin(self, spans: Buffer, targets: list[Buffer], /) -> int: ...  # proof
    @property
    def busy(self) -> bool: ...
    def fence(self, groups: int, /) -> None: ...
    def wait(self) -> tuple[int, int]: ...  # 0, or a code and the index of the span

def open_root(root: str, which: int | str | None, /) -> Restore: ...  # step, tag, newest
def list_root(root: str, /) -> list[Listed]: ...
def read_file(root: str, file: str, /) -> bytes | None: ...  # a small file beside the tags
def bucket_name(root: str, /) -> str | None: ...  # a bucket's address in its one form; None: a path

class Operation:
    done: bool
    failed: bool
    source: int  # of a message received

    def wait(self, timeout: float | None = None, /) -> None: ...
    def watch(self) -> bool: ...  # False: it is done already
    def release(self) -> None: ...  # once, if submitted held

# include/pawl/coll.h says what each is. Numbers of kinds, operations, types: pawl/_group/_coll.py.
class Group:
    card: str
    rank: int
    ranks: int

    def __init__(self, rank: int, ranks: int, toward: str | None = None) -> None: ...
    def join(self, cards: Sequence[str], timeout: float, /) -> None: ...
    def submit(
        self,
        kind: int,
        op: int,
        dtype: int,
        mean: bool,
        root: int,
        tag: int,
        nbytes: int,
        in_: int,  # addresses
        out: int,
        timeout: float,  # seconds; 0: never
        held: bool,  # it begins when it is released
        keep: object,  # as long as it is under way; what next returns
        in_at: Buffer = ...,  # uint64 offsets in bytes, of an all-to-all
        out_at: Buffer = ...,
        /,
    ) -> Operation: ...
    def using(self, address: int, nbytes: int, /) -> Operation | None: ...  # not done, the last one
    def next(self) -> Any: ...  # waits; None: the group was left
    def shrink(self, least: int, timeout: float, /) -> tuple[Group, list[int]]: ...
    def admit(self, door: Door | None, most: int, timeout: float, /) -> Group | None: ...
    def leave(self) -> None: ...
    def stats(
        self,
    ) -> tuple[  # ns and bytes; pawl._group._stats names them
        int,
        tuple[tuple[int, int, int, tuple[int, ...]], ...],
        tuple[tuple[int, int, int, int, int], ...],
    ]: ...

class Door:
    name: str

    def __init__(self, toward: str | None, /) -> None: ...
    def close(self) -> None: ...
    def waiting(self) -> int: ...

STAGE_CALL: int
STAGE_NOTE: int
STAGE_ARRIVED: int
STAGE_WANTED: int
STAGE_END: int
STAGE_FAILED: int

Task = tuple[int, int, int]  # kind, chunk, microbatch, as in include/pawl/pipe.h

# The bytes of a value from another rank, writable. They stay as long as anybody refers to this.
class StageBuffer:
    address: int
    nbytes: int

    def __buffer__(self, flags: int, /) -> memoryview: ...

# include/pawl/stage.h says what each is. A value's meta is at most 96 bytes; held is kept with it.
class Stage:
    def __init__(self, group: Group | None) -> None: ...
    def begin(self, tasks: Sequence[Task], /) -> None: ...
    def expect(self, seconds: float, /) -> None: ...
    def call(
        self,
        rank: int,
        id: int,
        outs: int,
        kind: int,
        chunk: int,
        microbatch: int,
        needs: tuple[int, ...],
        blob: bytes,
        /,
    ) -> None: ...
    def push(self, from_rank: int, value: int, to_rank: int, /) -> None: ...
    def free(self, rank: int, value: int, /) -> None: ...
    def flush(self, kind: int, microbatch: int, /) -> None: ...
    def note(self, rank: int, text: Buffer, /) -> None: ...
    def end(self) -> None: ...  # sends, too
    def send(self) -> None: ...
    def watch(self, value: int, /) -> None: ...
    def put(self, value: int, meta: bytes, address: int, nbytes: int, held: object, /) -> None: ...
    # (STAGE_CALL, id, Task, blob, [(id, meta, held), ...]), (STAGE_NOTE, bytes), (STAGE_END,),
    # (STAGE_ARRIVED, id, meta, held), (STAGE_WANTED, id, meta, held), (STAGE_FAILED, rank, bytes);
    # None: the time is over. held is a StageBuffer if the value came from another rank, until keep
    # gives another object.
    def supply(self, value: int, address: int, /) -> None: ...
    def next(self, timeout: float | None = None, /) -> tuple[Any, ...] | None: ...
    def done(self, call: int, made: list[tuple[bytes, int, int, object]], /) -> None: ...
    def keep(self, value: int, held: object, /) -> None: ...  # of the last event
    def fail(self, text: Buffer, /) -> None: ...
    def current(self) -> Task | None: ...
    def stats(self) -> dict[str, int]: ...
    def leave(self) -> None: ...
    def close(self) -> None: ...  # at any time; calls that wait return

def exit_with(status: int, instead_of: int, /) -> None: ...
def time_s(name: str, /) -> float: ...  # KeyError: src/base/times.h has none of this name
def knock(name: str, timeout: float, /) -> Group: ...
