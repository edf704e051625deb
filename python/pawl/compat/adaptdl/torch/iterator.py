"""``adaptdl.torch.iterator``: an iterator of torchtext, which torchtext has dropped."""

from __future__ import annotations

from typing import Any

from pawl.errors import error

__all__ = ["AdaptiveBPTTIterator"]


class AdaptiveBPTTIterator:
    """Raises PawlError: torchtext 0.12 dropped the BPTTIterator that it was based on."""

    def __init__(self, dataset: Any, batch_size: int, bptt_len: int, **kwargs: Any) -> None:
        raise error(
            "PAWL_ENOTSUP",
            "AdaptiveBPTTIterator: torchtext has no BPTTIterator since 0.12; an iterator of your "
            "own with adaptdl.torch.data.AdaptiveDataLoaderMixin takes its place",
        )
