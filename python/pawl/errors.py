"""How Python raises the library's error class, and the one error that has a class of its own."""

from __future__ import annotations

from typing import Final

from pawl._core import PawlError

_CODES: Final = {
    "PAWL_EIO": -2,
    "PAWL_ENOENT": -4,
    "PAWL_EEXIST": -5,
    "PAWL_EINVAL": -6,
    "PAWL_ECORRUPT": -7,
    "PAWL_EBUSY": -8,
    "PAWL_ETIMEDOUT": -9,
    "PAWL_EPEER": -10,
    "PAWL_ECHANGED": -11,
    "PAWL_EMISMATCH": -12,
    "PAWL_ENOTSUP": -13,
    "PAWL_ECANCELED": -14,
    "PAWL_ELIMIT": -15,
}

__all__ = ["ECHANGED", "NotDurable", "PawlError", "error"]

ECHANGED: Final = _CODES["PAWL_ECHANGED"]


class NotDurable(PawlError):
    """Raised when a job leaves and its newest save is not durable: ``name`` and
    ``code`` are the reason.

    If it is not caught the process ends with 74 (docs/exit-codes.md).
    """

    @classmethod
    def of(cls, message: str, reason: PawlError) -> NotDurable:
        """A NotDurable with the name, code and errno of the error that prevented durability."""
        raised = cls(message)
        raised.name, raised.code, raised.errno = reason.name, reason.code, reason.errno
        return raised


def error(name: str, message: str) -> PawlError:
    """A PawlError as the C library would raise it: ``name`` is one of include/pawl/err.h."""
    raised = PawlError(message)
    raised.name = name
    raised.code = _CODES[name]
    raised.errno = 0
    return raised
