"""Divides a backward pass in two: gradients of inputs first, those of parameters later.

That is what zero bubble schedules need: the stage before waits for gradients of inputs, and nobody
for those of parameters, which can fill the time in which a stage would be idle.

The border runs through the nodes of autograd's graph from which both an input and, past the other
nodes of that kind, a parameter can be reached, such as the product of a linear layer. The first
pass stops at nothing, but computes gradients of inputs only, and keeps those that arrive at the
border. The second pass goes from each node of the border down to its parameters.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, Node, get_gradient_edge

NODES_MAX: Final = 1 << 20  # nodes of a graph, at most, that is divided
# What GradientEdge has beside a node and a number, in torch from 2.7 on: what keeps the node.
_KEPT: Final[tuple[Any, ...]] = (None,) * (len(GradientEdge._fields) - 2)


class _Border:
    """A node of the border: the edges that lead to it, and its parameters."""

    def __init__(self, edges: list[GradientEdge], params: list[int]) -> None:
        self.edges = edges
        self.params = params  # places among the parameters
        self.grads: list[Tensor | None] = []


class Divided:
    """The backward pass of one graph. First ``inputs``, then ``parameters``."""

    def __init__(self, borders: list[_Border], leaves: list[Tensor], params: list[Tensor]) -> None:
        self._borders = borders
        self._leaves = leaves
        self._params = params

    def inputs(self, outs: Sequence[Tensor], grads: Sequence[Tensor]) -> list[Tensor | None]:
        """Gradients of the inputs; None where there is none. The graph stays."""
        edges = [edge for border in self._borders for edge in border.edges]
        found = torch.autograd.grad(
            outs, [*self._leaves, *edges], grads, allow_unused=True, retain_graph=True
        )
        rest = iter(found[len(self._leaves) :])
        for border in self._borders:
            border.grads = [next(rest) for _ in border.edges]
        return list(found[: len(self._leaves)])

    def parameters(self, keep: bool = False) -> list[Tensor | None]:
        """Gradients of the parameters; None where there is none. ``keep``: the graph stays."""
        found: list[Tensor | None] = [None] * len(self._params)
        for border in self._borders:
            pairs = [
                (edge, grad)
                for edge, grad in zip(border.edges, border.grads, strict=True)
                if grad is not None
            ]
            if pairs:
                edges, grads = zip(*pairs, strict=True)
                params = [self._params[i] for i in border.params]
                made = torch.autograd.grad(
                    edges, params, grads, allow_unused=True, retain_graph=keep
                )
                for i, grad in zip(border.params, made, strict=True):
                    found[i] = grad
            border.grads = []
        return found


def divide(
    outs: Sequence[Tensor], leaves: Sequence[Tensor], params: Sequence[Tensor]
) -> Divided | None:
    """The divided pass of a graph with results ``outs``. ``leaves`` and ``params`` require
    gradients. None: there is nothing to divide, or a parameter is reached through several nodes of
    the border, so that the passes would add up its gradients in another order.
    """
    places = {get_gradient_edge(p).node: i for i, p in enumerate(params)}
    ends = {get_gradient_edge(leaf).node for leaf in leaves}
    roots = [get_gradient_edge(out) for out in outs if out.requires_grad]
    order = nodes_below(edge.node for edge in roots)
    if len(order) > NODES_MAX:
        return None
    to_leaf: set[Node] = set()  # nodes from which a leaf is reached
    to_params: dict[Node, frozenset[int]] = {}  # parameters that the others reach
    edges: dict[Node, dict[int, None]] = {}  # edges that lead to a node, by number
    for edge in roots:
        edges.setdefault(edge.node, {})[edge.output_nr] = None
    borders: list[tuple[Node, frozenset[int]]] = []
    for node in order:
        below = [(child, number) for child, number in node.next_functions if child is not None]
        if node in ends or any(child in to_leaf for child, _ in below):
            to_leaf.add(node)
        found = {places[node]} if node in places else set()
        for child, number in below:
            edges.setdefault(child, {})[number] = None
            if child not in to_leaf:
                found |= to_params[child]
        to_params[node] = frozenset(found)
        if node in to_leaf and found:
            borders.append((node, to_params[node]))
    top = {edge.node: None for edge in roots if edge.node not in to_leaf}
    borders += [(node, to_params[node]) for node in top if to_params[node]]
    reached = [i for _, of in borders for i in of]
    if not borders or not to_leaf or len(reached) != len(set(reached)):
        return None
    return Divided(
        [_Border([GradientEdge(n, i, *_KEPT) for i in edges[n]], sorted(of)) for n, of in borders],
        list(leaves),
        list(params),
    )


# ---- walks over autograd's graph ----


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
