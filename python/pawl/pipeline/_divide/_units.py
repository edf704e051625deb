"""Chooses the modules of a model that are called as a whole: its units.

A module can be opened: then the modules that it calls take its place, and what it does itself
becomes a part of the frame, which runs at the driver. The model is always opened, unless it calls
nothing. So units are opened down to a size; which size is best is a matter of prediction, because
each call of a unit on another stage costs time, at the driver most of all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from pawl.errors import error
from pawl.pipeline._divide._profile import Survey
from pawl.pipeline._divide._tree import Node, Tree

FINENESS: Final = (0, 2, 4, 8, 16, 32)  # a unit takes at most total / (k * stages), for one k
OWN_SHARES: Final = (0.25, 1.0)  # an opened module does at most so much of its work itself
# Finer units take at most so much of the step that coarser ones take: a survey differs by some per
# cent from run to run.
BETTER: Final = 0.95
ROUNDS_MAX: Final = 10_000  # modules that are opened because of shared parameters
NAMED_MAX: Final = 8  # names in a message

Choice = list[Node]


def candidates(
    seen: Survey, stages: int, partition: Mapping[str, int], frame: Sequence[str] = ()
) -> list[Choice]:
    """Choices of units, coarse ones first. Each has all that partition wants as a border, and none
    of the modules of frame, nor what is in them.

    Raises PawlError (PAWL_EINVAL): partition names no module, or one that is never called; or the
    model calls no module, and there are several stages.
    """
    root = seen.tree.nodes[id(seen.tree.model)]
    outside = [find_pinned(seen, path, "frame") for path in frame]
    pinned = [find_pinned(seen, path, "partition") for path in partition] + outside
    never = {id(node.module) for node in outside}.union(*(node.inside for node in outside))
    if not _can_open(seen, root) and stages > 1:
        why, remedy = ("it calls no module", "divide it into modules")
        if root.closed:
            why, remedy = ("it is compiled as a whole", "compile its parts instead")
        raise error(
            "PAWL_EINVAL",
            f"{_kind(root)} cannot be cut into {stages} stages: {why}; {remedy}, or use one stage",
        )
    found: dict[frozenset[int], Choice] = {}
    for k in FINENESS:
        limit_s = seen.total_s / (k * stages) if k else math.inf
        for share in OWN_SHARES:
            choice = _settle(seen, _open_down(seen, root, limit_s, share, pinned))
            choice = [node for node in choice if id(node.module) not in never]
            found.setdefault(frozenset(id(node.module) for node in choice), choice)
    return sorted(found.values(), key=len)


def chosen(seen: Survey, paths: Sequence[str]) -> Choice:
    """The units that the user has chosen. Raises PawlError (PAWL_EINVAL): one is in another, is
    never called, or has a parameter that the rest of the model reads.
    """
    nodes = {id(node.module): node for node in (find_pinned(seen, p, "units") for p in paths)}
    wrong = _find_nested(seen, nodes) or _find_read(seen, nodes)
    for node in nodes.values():
        wrong = wrong or (node if id(node.module) not in seen.calls else None)
    if wrong is not None:
        raise error(
            "PAWL_EINVAL",
            f"units: {wrong.path} cannot be one: it is never called, another unit is in it, or the "
            "model reads its parameters outside of it; leave it out",
        )
    return list(nodes.values())


def find_pinned(seen: Survey, path: str, what: str) -> Node:
    """The module that an argument names. Raises PawlError if there is none, or nothing calls it."""
    node = seen.tree.by_path.get(path)
    if node is None:
        raise error(
            "PAWL_EINVAL", f"{what}: there is no module {path!r}{_nearest(seen.tree, path)}"
        )
    called = {id(n.module) for n in seen.tree.open_nodes() if id(n.module) in seen.calls}
    if id(node.module) not in called and called.isdisjoint(node.inside):
        raise error(
            "PAWL_EINVAL",
            f"{what}: {path} is never called, nor is a module inside of it; name the module "
            "that uses its parameters",
        )
    return node


def _can_open(seen: Survey, node: Node) -> bool:
    return not node.closed and bool(seen.children(node))


def _open_down(
    seen: Survey, root: Node, limit_s: float, share: float, pinned: list[Node]
) -> Choice:
    """Opens the model until each unit is small enough, or cannot be opened.

    share: a module that does more of its work itself is only opened for what is pinned; the frame
    would get that work.
    """
    wanted = {id(node.module) for node in pinned}
    usual = _usual_times(seen)
    units: dict[int, Node] = {}
    todo = seen.children(root) if _can_open(seen, root) else []
    if not todo:
        return [root]
    done: set[int] = set()
    while todo:
        node = todo.pop(0)
        one = id(node.module)
        if one in done:
            continue
        done.add(one)
        border = not wanted.isdisjoint(node.inside) and one not in wanted
        time_s, own_s = usual[one]
        small = time_s <= limit_s or own_s > share * time_s
        # A module that draws random numbers itself does so at one place, whatever the units.
        if _can_open(seen, node) and (border or not (small or _draws(seen, node))):
            todo = seen.children(node) + todo
        else:
            units[one] = node
    return list(units.values())


def _draws(seen: Survey, node: Node) -> bool:
    return any(seen.scopes[i].draws for i in seen.calls.get(id(node.module), ()))


def _usual_times(seen: Survey) -> dict[int, tuple[float, float]]:
    """Times of modules, all and their own; of modules that look alike, the medians.

    So all of these are opened, or none.
    """
    alike: dict[object, list[Node]] = {}
    for one in seen.calls:
        module = seen.tree.nodes[one].module
        kinds = tuple(type(inner) for inner in module.modules())
        shapes = tuple(param.shape for param in module.parameters())
        alike.setdefault((kinds, shapes), []).append(seen.tree.nodes[one])
    usual: dict[int, tuple[float, float]] = {}
    for nodes in alike.values():
        middle = len(nodes) // 2
        time_s = sorted(seen.time_s(node) for node in nodes)[middle]
        own_s = sorted(seen.own_s(node) for node in nodes)[middle]
        usual |= {id(node.module): (time_s, own_s) for node in nodes}
    return usual


def _settle(seen: Survey, choice: Choice) -> Choice:
    """Opens units further, or leaves them to the frame, until each can be on a stage of its own.

    A unit is opened if it calls another unit, or contains one, and if the frame reads a parameter
    of it. If the frame reads a parameter of one that calls nothing, that is no unit: it runs at
    the driver.
    """
    units = {id(node.module): node for node in choice}
    for _ in range(ROUNDS_MAX):
        node = _find_nested(seen, units) or _find_read(seen, units)
        if node is None:
            break
        del units[id(node.module)]
        if _can_open(seen, node):
            units |= {id(child.module): child for child in seen.children(node)}
    return list(units.values())


def _find_nested(seen: Survey, units: dict[int, Node]) -> Node | None:
    """A unit that can be opened and in which there is another one."""
    for node in units.values():
        scopes = seen.within(seen.calls.get(id(node.module), ()))
        called = {one for index in scopes for one in seen.scopes[index].called}
        inner = (called | node.inside) & units.keys() - {id(node.module)}
        if inner and _can_open(seen, node):
            return node
    return None


def _find_read(seen: Survey, units: dict[int, Node]) -> Node | None:
    """A unit of which the frame, with its operators, reads a parameter."""
    inside = {index for one in units for index in seen.within(seen.calls.get(one, ()))}
    reads = {
        name
        for index, scope in enumerate(seen.scopes)
        if index not in inside
        for name in scope.param_reads
    }
    if not reads:
        return None
    for node in units.values():
        if not reads.isdisjoint(seen.tree.params_of(node)):
            return node
    return None


def best(choices: list[Choice], predict: Callable[[Choice], float]) -> tuple[Choice, float]:
    """The choice whose step is predicted to be short. Choices are coarse first; a finer one must
    be much better.
    """
    at, step_s = choices[0], predict(choices[0])
    for choice in choices[1:]:
        other_s = predict(choice)
        if other_s < BETTER * step_s:
            at, step_s = choice, other_s
    return at, step_s


def _kind(node: Node) -> str:
    return f"{type(node.module).__name__}{f' ({node.path})' if node.path else ''}"


def _nearest(tree: Tree, path: str) -> str:
    """A hint: the longest beginning of a path that there is, and what it contains."""
    parts = path.split(".")
    for n in range(len(parts) - 1, -1, -1):
        node = tree.by_path.get(".".join(parts[:n]))
        if node is not None:
            names = [name for name, _ in node.module.named_children()]
            more = ", …" if len(names) > NAMED_MAX else ""
            where = ".".join(parts[:n]) or "the model"
            return f"; {where} contains {', '.join(names[:NAMED_MAX]) or 'no module'}{more}"
    return ""
