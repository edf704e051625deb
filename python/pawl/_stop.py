"""SIGTERM as a wish: finish the step, save, leave.

While a Checkpointer is open in the main thread, the first SIGTERM sets a flag and calls the Python
handler that was there before, if any. One that comes later than what a launcher and a scheduler
send together is taken at its word: it acts as if Pawl had never been there.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from types import FrameType
from typing import Any, Final

_TOGETHER_S: Final = 5.0  # signals within this time count as one

_users = 0  # open Checkpointers that asked for the handler
_before: Any = None  # the handler that was there
_asked_at: float | None = None  # monotonic seconds


def install() -> bool:
    """Takes SIGTERM, if this is the main thread; True if the caller must uninstall() one day."""
    global _users, _before, _asked_at
    if threading.current_thread() is not threading.main_thread():
        return False
    if _users == 0:
        _asked_at = None
        _before = signal.signal(signal.SIGTERM, _on_sigterm)
    _users += 1
    return True


def uninstall() -> None:
    """Gives SIGTERM back when the last user leaves, unless somebody else took it meanwhile."""
    global _users
    _users -= 1
    if _users > 0 or threading.current_thread() is not threading.main_thread():
        return
    _give_back()


def asked() -> bool:
    """Whether SIGTERM came."""
    return _asked_at is not None


def after_fork() -> None:
    """A child (a DataLoader's worker, say) must die of SIGTERM as it did before."""
    global _users
    if _users > 0 and threading.current_thread() is threading.main_thread():
        _users = 0
        _give_back()


def _give_back() -> None:
    if signal.getsignal(signal.SIGTERM) is _on_sigterm:
        signal.signal(signal.SIGTERM, _before if _before is not None else signal.SIG_DFL)


def _on_sigterm(number: int, frame: FrameType | None) -> None:
    global _asked_at
    now = time.monotonic()
    if _asked_at is not None:
        if now - _asked_at > _TOGETHER_S:
            _give_back()
            os.kill(os.getpid(), number)
        return
    _asked_at = now
    if callable(_before):
        _before(number, frame)
