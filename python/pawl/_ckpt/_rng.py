"""The state of a process's random number generators, as plain values that any torch.load reads."""

from __future__ import annotations

import logging
import random
import sys
from array import array
from typing import Any, Final

import torch

log = logging.getLogger("pawl")

_NUMPY_KINDS: Final = ("MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64")


def capture() -> dict[str, Any]:
    """The states of the generators of Python, NumPy (if imported), torch on the CPU
    and (if in use) CUDA.

    {"python": (version, words, gauss), "numpy": state, "torch": ByteTensor, "cuda": [ByteTensor]};
    words are the generator's 32-bit words as bytes, which keeps NumPy's types out of the file.
    """
    version, words, gauss = random.getstate()
    state: dict[str, Any] = {
        "python": (version, array("I", words).tobytes(), gauss),
        "torch": torch.get_rng_state(),
    }
    if "numpy" in sys.modules:
        state["numpy"] = _capture_numpy()
    if torch.cuda.is_initialized():
        state["cuda"] = torch.cuda.get_rng_state_all()
    return state


def _capture_numpy() -> Any:
    numpy = sys.modules["numpy"]
    state = numpy.random.get_state(legacy=False)
    if state["bit_generator"] != "MT19937":
        return state  # another generator, of the user's choice: its state is kept as NumPy gives it
    inner = state["state"]
    words = inner["key"].astype("uint32", copy=False).tobytes()
    return ("MT19937", words, inner["pos"], state["has_gauss"], state["gauss"])


def check(state: Any) -> None:
    """Raises the errors that apply would raise, and changes nothing."""
    _apply(state, random.Random(), torch.Generator(), scratch=True)


def apply(state: Any) -> None:
    """Sets every generator that the state has and this process has too."""
    _apply(state, random, torch.default_generator, scratch=False)


def _apply(state: Any, python: Any, generator: torch.Generator, scratch: bool) -> None:
    version, words, gauss = state["python"]
    python.setstate((version, tuple(array("I", words)), gauss))
    generator.set_state(state["torch"])
    if "numpy" in state:
        _apply_numpy(state["numpy"], scratch)
    devices = state.get("cuda", [])
    if not devices:
        return
    if not torch.cuda.is_available() or torch.cuda.device_count() < len(devices):
        if not scratch:
            log.warning("CUDA random state of %d devices is not restored here", len(devices))
    elif scratch:
        for index, device in enumerate(devices):
            torch.Generator(f"cuda:{index}").set_state(device)
    else:
        torch.cuda.set_rng_state_all(devices)


def _apply_numpy(state: Any, scratch: bool) -> None:
    """Sets NumPy's generator. If it is of another kind than the saved one, it
    becomes one of that kind.
    """
    try:
        import numpy
    except ImportError:
        log.warning("NumPy's random state is not restored: NumPy is not installed")
        return
    if isinstance(state, tuple):
        name, words, pos, has_gauss, gauss = state
        state = (name, numpy.frombuffer(words, dtype="uint32"), pos, has_gauss, gauss)
    else:
        name = state["bit_generator"]
    here = numpy.random.get_state(legacy=False)["bit_generator"]
    kind = getattr(numpy.random, name, None) if name in _NUMPY_KINDS else None
    if kind is None:
        raise ValueError(f"NumPy's global generator was a {name}, which this NumPy does not have")
    if scratch:
        numpy.random.RandomState(kind()).set_state(state)
    if name != here:
        if not hasattr(numpy.random, "set_bit_generator"):
            raise ValueError(
                f"NumPy's global generator was a {name} and is a {here}, which NumPy "
                f"{numpy.__version__} cannot change"
            )
        if not scratch:
            log.warning("NumPy's global generator was a %s here: it is a %s again", here, name)
            numpy.random.set_bit_generator(kind())
    if not scratch:
        numpy.random.set_state(state)
