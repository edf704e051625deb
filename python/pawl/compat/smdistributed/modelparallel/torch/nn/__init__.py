"""SMP's modules, at tensor parallel degree 1: torch's."""

from __future__ import annotations

from typing import Any

from torch.nn import Embedding as DistributedEmbedding
from torch.nn import LayerNorm as FusedLayerNorm
from torch.nn import Linear as DistributedLinear

from pawl.errors import error

__all__ = ["DistributedEmbedding", "DistributedLinear", "FusedLayerNorm"]

DistributedLayerNorm = FusedLayerNorm
_FUSED = (
    "DistributedAttentionLayer",
    "DistributedTransformer",
    "DistributedTransformerLMHead",
    "DistributedTransformerLayer",
    "DistributedTransformerOutputLayer",
    "FlashAttentionLayer",
)


def __getattr__(name: str) -> Any:
    if name in _FUSED:
        raise error(
            "PAWL_ENOTSUP",
            f"smp: nn.{name} is a fused CUDA module that only SMP had; use the model's own modules",
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
