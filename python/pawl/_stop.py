"""SIGTERM, and in elastic jobs SIGINT, as a request: finish the step, save, leave.

While a Checkpointer is open in the main thread, the first SIGTERM sets a flag and calls the Python
handler that was there before, if any. One that comes later than the pair that a launcher and a
scheduler send together acts as if Pawl had never been there. So does the second SIGINT, at once,
where SIGINT is taken, too (elastic jobs): it comes from somebody at a keyboard.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from types import FrameType
from typing import Any, Final

from pawl._times import seconds

_STOP_MESSAGE: Final = b"pawl: saving after this step, then exiting; another SIGINT exits at once\n"

_users = 0  # number of open Checkpointers that use the handler
_before: Any = None  # SIGTERM's handler before ours
_before_interrupt: Any = None  # SIGINT's handler before ours
_asked_at: float | None = None  # time of the first request, monotonic s; None: there was none


def install(interrupt: bool = False) -> bool:
    """Takes SIGTERM, if this is the main thread; True if the caller must call uninstall() later.

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
    """Restores the handlers when the last user leaves, unless another handler was set meanwhile."""
    global _users
    _users -= 1
    if _users > 0 or threading.current_thread() is not threading.main_thread():
        return
    _give_back()
    _give_back_interrupt()


def asked() -> bool:
    """Whether a request came."""
    return _asked_at is not None


def after_fork() -> None:
    """In a child (a DataLoader's worker, for example): SIGTERM must end it, as before.

    A terminal's SIGINT comes to it as well, and its parent needs it until it has
    saved: that handler stays.
    """
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
    """Handles the first SIGINT; Python's own handler, which raises
    KeyboardInterrupt, gets the next one.
    """
    global _asked_at
    _give_back_interrupt()
    if _asked_at is None:
        _asked_at = time.monotonic()
    if _users > 0:  # 0 in a child, which prints nothing
        os.write(2, _STOP_MESSAGE)
    if callable(_before_interrupt) and _before_interrupt is not signal.default_int_handler:
        _before_interrupt(number, frame)
