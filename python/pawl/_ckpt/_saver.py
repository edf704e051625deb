"""The parts shared by all ways of saving: the connection to the agent, pending saves, closing.

Checkpointer (by step, all ranks alike) and Engine (by tag) are built on it.
"""

from __future__ import annotations

import atexit
import builtins
import hashlib
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Literal, TypeVar

import torch

from pawl import _core, _start, _stop
from pawl._agent import find_program
from pawl._ckpt import _fence
from pawl._ckpt._mounts import fleeting, is_bucket, root_name
from pawl._ckpt._skeleton import Partition
from pawl._times import seconds
from pawl.errors import ECHANGED, NotDurable, PawlError, error

log = logging.getLogger("pawl")

LEVELS: Final = {"staged": 1, "committed": 2, "replicated": 3, "durable": 4}
_LEVEL_STAGING: Final = 0
_LEVEL_NAMES: Final = {-1: "failed", _LEVEL_STAGING: "staging"} | {n: k for k, n in LEVELS.items()}
_PROOFS: Final = ("copied", "watched", "fenced")
_AUTO_MS: Final = (1 << 64) - 1  # PAWL_CKPT_AUTO
_REPLICAS_MAX: Final = 8  # PAWL_CKPT_REPLICAS_MAX
_PARITY_MAX: Final = 3  # PAWL_CKPT_PARITY_MAX
_REPLICAS_DEFAULT: Final = (1 << 32) - 1  # PAWL_CKPT_REPLICAS_DEFAULT
EXIT_UNSAVED: Final = 74  # RUN_EXIT_UNSAVED: the script is done, but the newest save is not durable
_CALLS_S: Final = 60.0  # longest wait of closing for calls in other threads
_POLL_S: Final = 2.5  # longest wait for storage at a time, so that Ctrl-C is noticed
# Errors that mean: not durable yet, and nothing has failed.
_WAITS: Final = ("PAWL_ETIMEDOUT", "PAWL_EBUSY")
# Errors after which waiting is of no use.
_LOST: Final = ("PAWL_ECANCELED", "PAWL_EPEER", "PAWL_ENOENT")

_PENDING_MAX: Final = 4  # saves, at most, watched for failing before they are committed

# Level, code, message, proof, partition, storage, timings: as _core.Session.status returns it.
_Status = tuple[int, int, str, int, int, int, dict[str, Any]]

_warned: set[str] = set()  # roots whose users were warned that they will not last
_unlinked: set[str] = set()  # roots whose users were warned that there are no replicas
_open: set[Saver] = set()  # all open savers of this process; closed at exit


class Save:
    """One save. Its level is staging, staged, committed, replicated or durable; or failed."""

    def __init__(
        self, owner: Saver, capture: _fence.Capture, save_id: int, step: int | None, tag: str
    ) -> None:
        self._owner = owner
        self._capture = capture
        self._id = save_id
        self._known: _Status = (0, 0, "", 0, -1, -1, {})  # the last known status
        self._reported = False  # True: the failure was logged and its tensor recorded
        self.step = step  # None: the tag contains no step
        self.tag = tag
        self.stall_s = 0.0  # duration of save(), in seconds

    def wait(self, level: str = "durable", timeout: float | None = None) -> bool:
        """Waits until the save has reached a level, at most ``timeout`` seconds; None: no limit.

        ``"staged"``: this rank's bytes are copied. ``"committed"``: every rank's bytes are copied,
        and the checkpoint, or a newer one, survives the training processes. ``"replicated"``: other
        hosts have it in memory, and it survives the loss of as many hosts as there are
        ``replicas``; a save that becomes durable first counts as well, and where there are no
        replicas this waits for that. ``"durable"``: it is in the store and synced, and survives the
        machine. Returns False if time ran out, the save failed (see ``error``), or a newer one was
        made durable in its place. Raises ValueError for another level.
        """
        if level not in LEVELS:
            raise ValueError(f"level must be one of {', '.join(LEVELS)}, not {level!r}")
        if self._owner._session is None:  # closed: the status will not change any more
            return self._known[0] >= LEVELS[level]
        reached = self._owner._live().wait(self._id, LEVELS[level], timeout)
        self._settle()
        return reached

    @property
    def level(self) -> str:
        """``"staging"``, or a level of ``wait``, or ``"failed"``."""
        return _LEVEL_NAMES[self._settle()[0]]

    @property
    def error(self) -> str | None:
        """Why the save failed, or why it is not durable yet although it should be; else None.

        Names the tensor, if one changed under the copy.
        """
        _, code, message, _, part, storage, _ = self._settle()
        if code == 0:
            return None
        partition, name = self._capture.name(part, storage)
        if code == ECHANGED and partition:
            return (
                f"save {self.tag}: {partition}: {name} changed while it was copied, outside "
                "the step of its optimizer; the save is withdrawn, and from now on the tensor is "
                "copied before save() returns"
            )
        return message

    @property
    def proof(self) -> str:
        """The evidence that no byte changed under the copy.

        ``"copied"``: everything was copied before ``save()`` returned. ``"watched"``: some of it
        was copied later, and the kernel reports every write of this process to those pages; it does
        not see writes by other processes or devices, and such memory was copied at once.
        ``"fenced"``: some of it lay on CUDA devices, where only the hook before optimizer steps and
        the tensors' version counters show changes.
        """
        return _PROOFS[self._status()[3]]

    def _status(self) -> _Status:
        """The status; of a closed Checkpointer, or of a save of very long ago,
        the last known one.
        """
        session = self._owner._session
        if session is not None and not self._owner._forked:
            try:
                self._known = session.status(self._id)
            except PawlError as reason:
                if reason.name != "PAWL_ENOENT":
                    raise
        return self._known

    def _settle(self) -> _Status:
        """The status. Releases memory if the save is staged, and reports a failure once."""
        status = self._status()
        if status[0] != 0:
            self._capture.drop()
        if status[0] < 0 and not self._reported:
            self._reported = True
            if status[1] == ECHANGED:
                self._owner._evict(*self._capture.name(status[4], status[5]))
            log.warning("%s", self.error)
        return status

    def _closed(self, durable: bool) -> None:
        """Called when the session has closed. durable: it made its newest save durable before."""
        self._capture.drop()
        if durable and self._known[0] >= 0:
            self._known = (LEVELS["durable"], *self._known[1:])

    def __repr__(self) -> str:
        return f"<pawl.Save {self.tag} {self.level}>"


_Self = TypeVar("_Self", bound="Saver")


class Saver:
    """A connection to the job's agent for one root; see Checkpointer for the options."""

    def __init__(
        self,
        root: str | os.PathLike[str],
        keep: int,
        persist_every: float | Literal["auto"],
        copy: str,
        memory: int | None,
        trust: bool,
        rank: int | None,
        world_size: int | None,
        job: str | None,
        keep_every: int,
        full_every: int,
        hidden: str | None = None,
        named: bool = False,
        on_exit: Literal["raise", "warn"] = "raise",
        replicas: int | None = None,
        parity: bool = False,
    ) -> None:
        path = os.fspath(root)
        counts = {"keep": keep, "keep_every": keep_every, "full_every": full_every}
        _check_options(path, persist_every, copy, memory, counts)
        if on_exit not in ("raise", "warn"):
            raise ValueError(f"on_exit must be 'raise' or 'warn', not {on_exit!r}")
        _check_replicas(replicas, parity)
        env = _core.env()
        self.root = root_name(path)
        self.rank, self.world_size = _resolve_rank(rank, world_size, env)
        host_first, host_ranks = _resolve_host(self.rank, self.world_size, env)
        self._spans_hosts = host_ranks < self.world_size
        # Programs that save by tag have their own ways to stop where ranks span hosts.
        self._answers_alike = not self._spans_hosts or (_hosts_agree() and not named)
        self._trust = trust
        self._named = named
        self._raises = on_exit == "raise"
        self._watch = copy == "overlap"
        self._partitions: dict[str, Partition] = {}
        self._evicted: dict[str, set[str]] = {}  # partition -> storages copied at once from now on
        self._pending: list[Save] = []  # not known to be committed or failed
        self._newest: Save | None = None
        self._remedy = ""  # how a script restores, for a message
        self._saves_as = self.root  # the root, as users know it
        self._begun = False  # True: it was logged from which checkpoint this process begins
        self._imports_sent = False
        self._stop_sent = False
        self._error: BaseException | None = None  # the exception that ended the with block
        self._forked = False  # True: this is a child's copy of the parent's object
        try:
            self._session: _core.Session | None = _core.Session(
                self.root,
                _job_id(job, env, self.root),
                self.rank,
                self.world_size,
                env["attempt"],
                keep=keep,
                keep_every=keep_every,
                full_every=full_every,
                persist_every_ms=_AUTO_MS
                if persist_every == "auto"
                else round(persist_every * 1000),
                memory_bytes=memory or 0,
                replicas=_REPLICAS_DEFAULT if replicas is None else replicas,
                parity=parity,
                socket=os.environ.get("PAWL_AGENT") or None,
                program=find_program(),
                watch=self._watch,
                hidden=hidden,
                named=named,
                host_first=host_first,
                host_ranks=host_ranks,
                find_changed=_fence.find_changed,
            )
        except PawlError as reason:
            if f", as pid {os.getpid()}," not in str(reason):
                raise
            raise error(
                "PAWL_EBUSY",
                f"{self.root} is open in this process already: use the object that has it open, "
                "or close it",
            ) from None
        # Without the kernel's watch the library copies host memory before save returns.
        self._host_watch = self._session.best_proof[0] > 0
        _fence.install()
        self._holds_signal = self._answers_alike and _stop.install()
        _open.add(self)
        self._log_queued()
        self._notifier = threading.Thread(
            target=_log_notifications, args=(self._session,), name="pawl notifications", daemon=True
        )
        self._notifier.start()
        warns = self.rank == 0 and self.root not in _warned and not is_bucket(self.root)
        why = fleeting(self.root) if warns else None
        if why is not None:
            _warned.add(self.root)
            log.warning("checkpoints in %s lie %s", self.root, why)
        asked = int(parity) if replicas is None else replicas
        if asked and self._spans_hosts and "PAWL_AGENT" not in os.environ:
            self._warn_unlinked(asked)

    def flush(self, timeout: float | None = None) -> bool:
        """Makes the newest committed save durable; False if that took longer than
        ``timeout`` seconds.

        None: waits as ``close`` does.
        """
        return self._await_durable(self._live(), timeout) is None

    def list(self) -> builtins.list[_core.Listed]:
        """The checkpoints under root, oldest first.

        ``level`` is ``"durable"``, ``"broken"`` (``why`` has the reason), or ``"committed"`` for
        one that is still only in memory, whose ``size`` (bytes) and ``created`` (seconds since
        1970) are 0.
        """
        session = self._live()
        return list_tags(session, self.root, self.world_size)

    @property
    def closed(self) -> bool:
        """Whether close was called."""
        return self._session is None

    @property
    def spans_hosts(self) -> bool:
        """Whether the job has ranks on other hosts."""
        return self._spans_hosts

    @property
    def watches(self) -> bool:
        """Whether host memory is copied after a save has returned: if the kernel can watch it."""
        return self._host_watch

    @property
    def stopping(self) -> bool:
        """Whether SIGTERM or a notice came: then finish the step, save, and leave.

        Ask once a step, on all ranks alike: the answer turns to True at the same question on every
        rank, so that none leaves the others waiting in a collective.

        Raises PawlError (PAWL_ENOTSUP) where the ranks span hosts and were not started by
        ``pawl run --nnodes``, which brings the hosts together: all-reduce a flag of your own there.
        SIGTERM is left as it is. So it is for an Engine whose ranks span hosts.
        """
        self._refuse_hosts("stopping")
        if self._session is None:
            return _stop.asked()
        session = self._live()
        if _stop.asked() and not self._stop_sent:
            self._stop_sent = True
            session.stop()
        return session.stopping

    def close(self, timeout: float | None = None) -> bool:
        """Waits until the newest save is durable, at most ``timeout`` seconds, and disconnects.

        None: waits as long as it is being written, up to half an hour; but one
        minute where storage fails.

        Raises NotDurable, with the reason, if the newest save is not durable then, or has failed;
        with ``on_exit="warn"`` it logs the reason and returns False. It also does so where another
        exception is about to end the process, SystemExit among them: the exit status is then 74
        instead of 0. Calling it again does nothing.
        """
        _open.discard(self)
        session = self._session
        if session is None or self._forked:
            return True
        if self._holds_signal:
            _stop.uninstall()
        self._settle_pending()
        error = self._error or _last_error()
        fails = isinstance(error, Exception)  # not an exception that leaves on purpose
        if fails:
            session.abandon(f"{type(error).__name__}: {error}"[:200])
        waited = failed = None
        try:
            if self._newest is not None and not (fails and self._named):
                waited = self._await_durable(session, timeout)
            failed = self._failure()
        finally:
            left = self._disconnect(session, timeout)
        why = (waited or left) if left is not None else failed
        if why is None:
            return True
        tag = self._newest.tag if self._newest is not None else "what was saved before"
        message = f"{self.root}: {tag} is not durable: {why}"
        under_way = sys.exc_info()[1]
        if self._raises and not fails and under_way is None:
            raise NotDurable.of(message, why)
        log.log(logging.ERROR if self._raises else logging.WARNING, "%s", message)
        if self._raises and isinstance(under_way, SystemExit):
            _core.exit_with(EXIT_UNSAVED, 0)
        return False

    def _await_durable(self, session: _core.Session, timeout: float | None) -> PawlError | None:
        """Waits for the newest committed save; returns why it is not durable in
        time, None if it is.
        """
        end = time.monotonic() + (seconds("close_durable") if timeout is None else timeout)
        failing: float | None = None  # time since when storage fails; None: it does not
        while True:
            left = end - time.monotonic()
            try:
                session.flush(max(0.0, min(left, _POLL_S)))
                return None
            except PawlError as reason:
                why = reason
            now = time.monotonic()
            if why.name in _LOST or now >= end:
                return why
            failing = None if why.name in _WAITS else failing or now
            if timeout is None and failing and now - failing >= seconds("close_trouble"):
                return why

    def _failure(self) -> PawlError | None:
        """Why the newest save has failed; None: it has not."""
        save = self._newest
        if save is None or save._settle()[0] >= 0:
            return None
        return error("PAWL_ECANCELED", save.error or "it failed")

    def _disconnect(self, session: _core.Session, timeout: float | None) -> PawlError | None:
        """Closes the session; returns why the newest save that has not failed is
        not durable, or None.
        """
        session.end_notifications()
        self._notifier.join()
        why: PawlError | None = None
        try:
            self._log_queued()
            session.close(_CALLS_S if timeout is None else timeout)
        except PawlError as reason:
            why = reason
        finally:
            self._session = None
            for save in self._pending:
                save._closed(False)
            if self._newest is not None:
                self._newest._closed(why is None)
        return why

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._error = value
        self.close()

    def _refuse_hosts(self, what: str) -> None:
        if not self._answers_alike:
            instead = "" if self._named else "start them by pawl run --nnodes, or "
            raise error(
                "PAWL_ENOTSUP",
                f"{self.root}: {what}: the ranks span hosts, whose answers would differ: "
                f"{instead}all-reduce a flag of your own",
            )

    def _warn_unlinked(self, replicas: int) -> None:
        """Logs once that the agents of this job's hosts have no links."""
        if self.rank == 0 and self.root not in _unlinked:
            _unlinked.add(self.root)
            log.warning(
                "%s: replicas=%d has no effect: only under pawl run are the hosts of a job linked",
                *(self.root, replicas),
            )

    def _may_wait(self) -> bool:
        """Whether anything can be copied after save has returned."""
        return self._host_watch or (self._watch and torch.cuda.is_initialized())

    def _live(self) -> _core.Session:
        if self._forked:
            raise error(
                "PAWL_EINVAL",
                f"{self.root}: this checkpointer belongs to the process that was forked from",
            )
        if self._session is None:
            raise error("PAWL_EINVAL", f"{self.root}: the checkpointer is closed")
        return self._session

    def _settle_pending(self) -> None:
        """Waits until no earlier save reads memory any more, and reports the
        outcome of earlier saves.
        """
        for save in self._pending:
            save._capture.fence(_fence.EVERYTHING)
        open_ = (_LEVEL_STAGING, LEVELS["staged"])
        pending = [save for save in self._pending if save._settle()[0] in open_]
        self._pending = pending[-_PENDING_MAX:]

    def _partition(self, name: str) -> Partition:
        partition = self._partitions.get(name)
        if partition is None:
            partition = self._partitions[name] = Partition(name, self._trust)
        return partition

    def _evict(self, partition: str, name: str) -> None:
        if partition:
            self._evicted.setdefault(partition, set()).add(name)

    def _report_start(self) -> None:
        """Before the first save: logs from which checkpoint this process begins, if
        it restored none.
        """
        if self._begun:
            return
        self._begun = True
        if self.rank == 0:
            _start.before_save(self._saves_as, self._newest_left, self._remedy)

    def _newest_left(self) -> str | None:
        """The newest checkpoint of the runs before this one."""
        try:
            pending = self._live().pending()
        except PawlError as reason:
            if reason.name != "PAWL_EPEER":
                raise
            pending = []  # the agent is gone, as in list_tags
        left = dict(pending)
        try:
            found = _core.open_root(self.root, None)
            left.setdefault(found.step, found.tag)
            found.close()
        except PawlError as reason:
            if reason.name not in ("PAWL_ENOENT", "PAWL_ECORRUPT"):
                log.warning("%s: its checkpoints cannot be listed: %s", self.root, reason)
        return left[max(left)] if left else None

    def _after_save(self, session: _core.Session) -> None:
        """Sends the list of imported modules, once, and reports a save that has failed already."""
        if not self._imports_sent:
            self._imports_sent = True
            session.imports("\n".join(list(sys.modules)))
        if self._newest is not None and session.status(self._newest._id)[0] < 0:
            self._newest._settle()  # reports a failure that has happened already

    def _log_queued(self) -> None:
        """Logs the notifications that the agent has sent so far."""
        session = self._live()
        while (text := session.next_notification(False)) is not None:
            log.warning("%s", text)


def list_tags(session: _core.Session, root: str, world: int) -> list[_core.Listed]:
    """The checkpoints in the store, and those still only in memory, oldest first."""
    try:  # read first: checkpoints that become durable meanwhile are in the store
        pending = session.pending()
    except PawlError as reason:
        if reason.name != "PAWL_EPEER":
            raise
        pending = []  # the agent is gone, and its memory with it
    try:
        entries = {entry["tag"]: entry for entry in _core.list_root(root)}
    except PawlError as reason:
        if reason.name != "PAWL_ENOENT":
            raise
        entries = {}  # the directory was removed; the next save makes a new one
    for step, tag in pending:
        if tag not in entries or entries[tag]["level"] == "broken":
            entries.pop(tag, None)  # the one in memory is newer than all others
            entries[tag] = _only_in_memory(step, tag, world)
    return sorted(entries.values(), key=lambda entry: entry["step"])


def _only_in_memory(step: int, tag: str, world: int) -> _core.Listed:
    return {
        "step": step,
        "tag": tag,
        "level": "committed",
        "size": 0,
        "pinned": False,
        "created": 0.0,
        "world": world,
        "why": "",
    }


def _check_options(
    path: Any, persist_every: Any, copy: str, memory: int | None, counts: dict[str, int]
) -> None:
    if not isinstance(path, str):
        raise TypeError(f"root must be a path or str, not {type(path).__qualname__}")
    if not path or "\0" in path:
        raise ValueError("root must be a path")
    if copy not in ("overlap", "now"):
        raise ValueError(f"copy must be 'overlap' or 'now', not {copy!r}")
    for name, value in counts.items():
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 32:
            raise ValueError(f"{name} must be an int in 0 .. {2**32 - 1}, not {value!r}")
    if persist_every != "auto" and (
        isinstance(persist_every, str) or not 0 <= persist_every <= 1e9
    ):
        raise ValueError(
            f"persist_every must be seconds from 0 to 1e9, or 'auto', not {persist_every!r}"
        )
    if memory is not None and (not isinstance(memory, int) or memory < 1):
        raise ValueError(f"memory must be bytes, at least 1, not {memory!r}")


def _check_replicas(replicas: int | None, parity: bool) -> None:
    if not isinstance(parity, bool):
        raise ValueError(f"parity must be True or False, not {parity!r}")
    if replicas is None:
        return
    most = _PARITY_MAX if parity else _REPLICAS_MAX
    whole = isinstance(replicas, int) and not isinstance(replicas, bool)
    if not whole or not 0 <= replicas <= most:
        what = " with parity" if parity else ""
        raise ValueError(f"replicas{what} must be None, or 0 .. {most}, not {replicas!r}")


def _resolve_rank(rank: int | None, world_size: int | None, env: _core.Env) -> tuple[int, int]:
    if (rank is None) != (world_size is None):
        raise ValueError("pass rank and world_size together")
    if rank is None or world_size is None:
        distributed = torch.distributed
        if distributed.is_available() and distributed.is_initialized():
            return distributed.get_rank(), distributed.get_world_size()
        return env["rank"], env["world"]
    if not 0 <= rank < world_size:
        raise ValueError(f"rank must be at least 0 and below world_size, not {rank}/{world_size}")
    return rank, world_size


def _resolve_host(rank: int, world: int, env: _core.Env) -> tuple[int, int]:
    """The first rank of this host, and its number of ranks: all, unless a
    launcher says otherwise.
    """
    if env["nodes"] == 1:
        return 0, world
    where = f"{env['nodes']} nodes ({env['source']}: LOCAL_WORLD_SIZE differs from WORLD_SIZE)"
    if (rank, world) != (env["rank"], env["world"]):
        raise error(
            "PAWL_EINVAL",
            f"{where}: this is rank {rank} of {world}, but the launcher says {env['rank']} of "
            f"{env['world']}, and it alone knows which ranks are on this node",
        )
    return rank - env["local_rank"], env["local_world"]


def _hosts_agree() -> bool:
    """Whether the launchers of all hosts are one ``pawl run --nnodes``, which has
    all ranks answer a question alike.
    """
    return "PAWL_AGENT" in os.environ and os.environ.get("GROUP_WORLD_SIZE", "1") != "1"


def _job_id(job: str | None, env: _core.Env, root: str) -> str:
    """The id under which a restart finds its agent again.

    In a plain script, the same script saving to the same root is the same job.
    """
    if job is not None:
        return job
    if env["job"]:
        return env["job"]
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    who = os.path.realpath(script) if script else f"interactive:{os.getcwd()}"
    where = root if is_bucket(root) else os.path.realpath(root)
    identity = f"{who}\0{where}".encode(errors="surrogateescape")
    return f"plain:{hashlib.blake2b(identity, digest_size=8).hexdigest()}"


def _last_error() -> BaseException | None:
    """The uncaught exception that ends the interpreter; None: there is none."""
    return None if hasattr(sys, "ps1") else getattr(sys, "last_value", None)


def _log_notifications(session: _core.Session) -> None:
    """Runs in a thread of its own, so that a notification is logged at once."""
    while (text := session.next_notification(True)) is not None:
        log.warning("%s", text)


def at_exit(close: Callable[[], object]) -> None:
    """Closes at exit. Logs an error that closing raises; the process does not end with 0 then."""
    try:
        close()
    except NotDurable as reason:
        log.error("%s", reason)
        _core.exit_with(EXIT_UNSAVED, 0)
    except Exception as reason:  # the process is leaving; the others must be closed too
        log.error("closing failed: %s", reason)
        _core.exit_with(EXIT_UNSAVED, 0)


def _close_all() -> None:
    for checkpointer in list(_open):
        at_exit(checkpointer.close)
    if isinstance(_last_error(), NotDurable):
        _core.exit_with(EXIT_UNSAVED, 1)


def _after_fork() -> None:
    """In a child: makes its copies of the parent's Checkpointers do nothing any more."""
    for checkpointer in _open:
        checkpointer._forked = True
    _open.clear()
    _fence.after_fork()
    _stop.after_fork()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_after_fork)
