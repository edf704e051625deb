"""SIGTERM, and for some SIGINT, as a wish: finish the step, save, leave.

While a Checkpointer is open in the main thread, the first SIGTERM sets a flag and calls the Python
handler that was there before, if any. One that comes later than what a launcher and a scheduler
send together is taken at its word: it acts as if Pawl had never been there. So does the second
SIGINT, at once, where SIGINT is taken, too (elastic jobs): it comes from somebody at a keyboard.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from types import FrameType
from typing import Any, Final

from pawl._times import seconds

_SAID: Final = b"pawl: saves behind this step, then ends; another SIGINT ends it at once\n"

_users = 0  # open Checkpointers that asked for the handler
_before: Any = None  # the handler that was there
_before_interrupt: Any = None  # that of SIGINT
_asked_at: float | None = None  # monotonic seconds


def install(interrupt: bool = False) -> bool:
    """Takes SIGTERM, if this is the main thread; True if the caller must uninstall() one day.

    ``interrupt``: SIGINT, too, unless it is ignored (a job in a shell's background).
    """
    global _users, _before, _before_interrupt, _asked_at
    if threading.current_thread() is not threading.main_thread():
        return False
    if _users == 0:
        _asked_at = None
        _before = signal.signal(signal.SIGTERM, _on_sigterm)
    if interrupt and signal.getsignal(signal.SIGINT) not in (signal.SIG_IGN, _on_sigint):
        _before_interrupt = signal.signal(signal.SIGINT, _on_sigint)
    _users += 1
    return True


def uninstall() -> None:
    """Gives the signals back when the last user leaves, unless somebody else took them
    meanwhile."""
    global _users
    _users -= 1
    if _users > 0 or threading.current_thread() is not threading.main_thread():
        return
    _give_back()
    _give_back_interrupt()


def asked() -> bool:
    """Whether one came."""
    return _asked_at is not None


def after_fork() -> None:
    """A child (a DataLoader's worker, say) must die of SIGTERM as it did before. A terminal's
    SIGINT comes to it as well, and its parent needs it until it has saved: that stays."""
    global _users
    if _users > 0 and threading.current_thread() is threading.main_thread():
        _users = 0
        _give_back()


def _give_back() -> None:
    if signal.getsignal(signal.SIGTERM) is _on_sigterm:
        signal.signal(signal.SIGTERM, _before if _before is not None else signal.SIG_DFL)


def _give_back_interrupt() -> None:
    if signal.getsignal(signal.SIGINT) is _on_sigint:
        before = _before_interrupt
        signal.signal(signal.SIGINT, before if before is not None else signal.SIG_DFL)


def _on_sigterm(number: int, frame: FrameType | None) -> None:
    global _asked_at
    now = time.monotonic()
    if _asked_at is not None:
        if now - _asked_at > seconds("stop_together"):
            _give_back()
            os.kill(os.getpid(), number)
        return
    _asked_at = now
    if callable(_before):
        _before(number, frame)


def _on_sigint(number: int, frame: FrameType | None) -> None:
    """The first one; Python's own handler, which raises KeyboardInterrupt, waits for the next."""
    global _asked_at
    _give_back_interrupt()
    if _asked_at is None:
        _asked_at = time.monotonic()
    if _users > 0:  # not a child
        os.write(2, _SAID)
    if callable(_before_interrupt) and _before_interrupt is not signal.default_int_handler:
        _before_interrupt(number, frame)
