"""Walks over autograd's graph."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor
from torch.autograd.graph import Node


def nodes_below(roots: Iterable[Node | None]) -> list[Node]:
    """These nodes and all that they lead to, each behind those that it leads to itself."""
    order: list[Node] = []
    seen: set[Node] = set()
    todo = [(node, False) for node in roots if node is not None]
    while todo:
        node, left = todo.pop()
        if left:
            order.append(node)
        elif node not in seen:
            seen.add(node)
            todo.append((node, True))
            todo += [(child, False) for child, _ in node.next_functions if child is not None]
    return order


def leaves_below(roots: Iterable[Tensor]) -> list[Tensor]:
    """The leaves that require gradients and that tensors depend on, or are."""
    roots = list(roots)
    found = [root for root in roots if root.grad_fn is None and root.requires_grad]
    variables = [getattr(n, "variable", None) for n in nodes_below(r.grad_fn for r in roots)]
    return found + [leaf for leaf in variables if leaf is not None]
