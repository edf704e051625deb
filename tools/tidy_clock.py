"""What tools/tidy.py holds the Python tests to about time: nobody sleeps but by a helper that says
what for, and no test fails a healthy run because the machine was slow.

The first rule reads lines, for many a script stands in a string; the second reads syntax trees. It
follows what was read from a clock through names, attributes and lists of one function, not from
function to function.
"""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

FOLDER = "tests/python/"
HELPERS = {f"tests/python/lib/{name}.py" for name in ("waits", "program", "nursery")}

# A script that stands alone pretends to work: the line ends so.
PACE = re.compile(r"#\s*pace\b")
SLEEP = re.compile(r"\btime\.sleep\(|\bfrom time import .*\bsleep\b")

# Upper bounds of measured time that stay: file and function, and why no slow machine breaks them.
BOUNDS: dict[str, str] = {}

CLOCKS = {f"time.{name}{ns}" for ns in ("", "_ns") for name in
          ("time", "monotonic", "perf_counter", "process_time", "thread_time")}  # fmt: skip
TIMERS = {"timeit.timeit", "timeit.repeat", "os.times"}  # calls that return measured times
PASS_ON = {"min", "max", "sum", "abs", "sorted", "float", "int", "round", "median", "mean", "zip"}
TERMS = (ast.BinOp, ast.UnaryOp, ast.IfExp, ast.Tuple, ast.List, ast.ListComp, ast.GeneratorExp)
TERMS += (ast.Subscript, ast.Starred, ast.operator, ast.unaryop)  # type: ignore[assignment]
BELOW, ABOVE = (ast.Lt, ast.LtE), (ast.Gt, ast.GtE)

Finding = tuple[int, str, str]  # line, rule, message


def check_sleeps(name: str, source: str) -> Iterator[Finding]:
    """In a test itself the mark does not help: there it is for scripts in strings."""
    if not name.startswith(FOLDER) or name in HELPERS:
        return
    own = calls(source, "time.sleep") if Path(name).name.startswith("test_") else set()
    for number, line in enumerate(source.splitlines(), 1):
        if number in own or (SLEEP.search(line) and not PACE.search(line)):
            message = "wait for what is to happen, or by tests/python/lib/waits.py; scripts: # pace"
            yield number, "sleep", message


def calls(source: str, name: str) -> set[int]:
    """Lines."""
    with contextlib.suppress(SyntaxError):  # rule "syntax" reports it
        nodes = ast.walk(ast.parse(source))
        return {
            node.lineno for node in nodes if isinstance(node, ast.Call) and called(node) == name
        }
    return set()


class Clocked:
    """What in one scope comes from a clock: readings; ends, which are readings with a time added;
    and measured times, which are differences of readings."""

    def __init__(self, scope: list[ast.stmt]) -> None:
        self.readings: set[str] = set()
        self.ends: set[str] = set()
        self.measured: set[str] = set()
        self.nodes = [node for statement in scope for node in ast.walk(statement)]
        known = -1
        while known != (known := len(self.readings) + len(self.ends) + len(self.measured)):
            for node in self.nodes:  # again and again: names lead to names
                for name, value in assigned(node):
                    self.note(name, value)

    def note(self, name: str, value: ast.AST) -> None:
        if self.is_measured(value):
            self.measured.add(name)
        elif self.is_end(value):
            self.ends.add(name)
        elif self.is_reading(value):
            self.readings.add(name)

    def is_reading(self, value: ast.AST) -> bool:
        return called(value) in CLOCKS or text(value) in self.readings

    def is_end(self, value: ast.AST) -> bool:
        if isinstance(value, ast.BinOp) and isinstance(value.op, (ast.Add, ast.Sub)):
            sides = (value.left, value.right)
            return any(self.is_reading(side) or self.is_end(side) for side in sides)
        return text(value) in self.ends

    def is_measured(self, value: ast.AST) -> bool:
        """Whether a measured time is a term of it, or an element."""
        if (
            isinstance(value, ast.BinOp)
            and isinstance(value.op, ast.Sub)
            and self.is_reading(value.right)
            and not self.is_end(value.left)
        ):
            return True
        if isinstance(value, ast.Call):
            if called(value) in TIMERS:
                return True
            return called(value) in PASS_ON and any(map(self.is_measured, value.args))
        if text(value) in self.measured:
            return True
        return isinstance(value, TERMS) and any(map(self.is_measured, ast.iter_child_nodes(value)))

    def bounds(self) -> Iterator[int]:
        """Lines of comparisons that hold only while not too much time has passed."""
        polls = {id(test) for node in self.nodes if isinstance(node, (ast.If, ast.While))
                 for test in ast.walk(node.test)}  # fmt: skip
        for node in self.nodes:
            if not isinstance(node, ast.Compare):
                continue
            terms = [node.left, *node.comparators]
            for one, how, other in zip(terms, node.ops, terms[1:], strict=False):
                if not isinstance(how, (*BELOW, *ABOVE)):
                    continue
                small, large = (one, other) if isinstance(how, BELOW) else (other, one)
                if (
                    (self.is_measured(small) and not self.is_measured(large))
                    or (self.is_reading(small) and self.is_end(large))
                    or called(small) in CLOCKS
                    or (called(large) in CLOCKS and id(node) in polls)
                ):
                    yield node.lineno
                    break


def text(node: ast.AST) -> str:
    """A name, with its dots; none for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and text(node.value):
        return f"{text(node.value)}.{node.attr}"
    return ""


def called(node: ast.AST) -> str:
    return text(node.func) if isinstance(node, ast.Call) else ""


def assigned(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Names and what they become: by assignment, by append and as they go through something."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from pairs(target, node.value)
    elif isinstance(node, (ast.AnnAssign, ast.AugAssign, ast.NamedExpr)) and node.value:
        yield from pairs(node.target, node.value)
    elif isinstance(node, (ast.For, ast.comprehension)):
        yield from pairs(node.target, node.iter)
    elif called(node).endswith(".append"):
        yield from ((called(node).removesuffix(".append"), arg) for arg in node.args)  # type: ignore[attr-defined]


def pairs(target: ast.AST, value: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    if isinstance(target, ast.Tuple):
        each = value.elts if isinstance(value, ast.Tuple) else [value] * len(target.elts)
        for one, its in zip(target.elts, each, strict=False):
            yield from pairs(one, its)
    elif isinstance(target, ast.Subscript):
        yield from pairs(target.value, value)
    elif name := text(target):
        yield name, value


def scopes(tree: ast.Module) -> dict[str, list[ast.stmt]]:
    """Functions and classes of the module by name, with all that is in them; "" is the rest."""
    found: dict[str, list[ast.stmt]] = {"": []}
    for statement in tree.body:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.setdefault(statement.name, []).append(statement)
        else:
            found[""].append(statement)
    return found


def bounds(source: str) -> Iterator[tuple[str, int]]:
    """Upper bounds of measured time: the function or class that each is in, and its line."""
    with contextlib.suppress(SyntaxError):
        for name, statements in scopes(ast.parse(source)).items():
            yield from ((name, line) for line in Clocked(statements).bounds())


def check_bounds(name: str, source: str) -> Iterator[Finding]:
    if not name.startswith(FOLDER) or name in HELPERS:
        return
    for where, line in bounds(source):
        if f"{name.removeprefix(FOLDER)}:{where}" not in BOUNDS:
            message = "a slow machine breaks it: program.wait_until, an event, bench/, or BOUNDS"
            yield line, "time-bound", message


def unused_bounds(root: Path) -> list[str]:
    """Of the table: what names no bound that is there."""
    there = set()
    for file in {entry.partition(":")[0] for entry in BOUNDS}:
        path = root / FOLDER / file
        if path.is_file():
            there |= {f"{file}:{where}" for where, _ in bounds(path.read_text(encoding="utf-8"))}
    return sorted(BOUNDS.keys() - there)
