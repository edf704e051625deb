"""What tools/tidy.py holds the shape of the C sources to: structs that a reader can keep in mind,
files of a room that do not all call each other, and names without the words that we gave up.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

FIELDS_MAX = 40  # fields of one struct; a struct that stands in it counts as one
CIRCLE_FILES_MAX = 4  # files of a folder that call each other, directly or through others

# Words that stood in names for what the field has a word for, and the field's word.
RETIRED = {
    "beat": "heartbeat",
    "bereaved": "node lost",
    "blind": "what is missing",
    "card": "endpoint",
    "cards": "endpoints",
    "deaf": "not accepting",
    "does": "status",
    "door": "join listener, or membership",
    "far": "remote",
    "hear": "receive, handle",
    "heard": "received",
    "knock": "join request",
    "owed": "pending",
    "said": "what it holds: text, status, error",
    "say": "send, print, log, report",
    "stiff": "what it cannot do",
    "talk": "control channel, message",
    "tell": "send, report, notify",
    "told": "reported, notified, completions",
    "toward": "route",
}
OTHERS = ("SSL_",)  # what begins the names of other libraries

Finding = tuple[int, str, str]  # line, rule, message

_STRUCT = re.compile(r"^[ \t]*(?:struct|union)(?: (\w+))? \{$", re.M)
_NAME = re.compile(r"(?<![\w.])[A-Za-z_]\w*")
_TAG = re.compile(r"\b(?:struct|union|enum) \w+")  # a function may have the name of a struct
# A function that other files may call, as clang-format writes it.
_FUNCTION = re.compile(r"^(?!static\b|typedef\b)[A-Za-z_][\w\s*]*?\b(\w+)\([^;{}]*\)\s*\{$", re.M)


def _fields(body: list[str]) -> int:
    """Counts the fields that a struct's body declares; what stands in inner braces is theirs."""
    depth, outer = 0, []
    for line in body:
        if depth == 0 or (depth == 1 and line.strip().startswith("}")):
            outer.append(line.replace("{", "").replace("}", ""))
        depth += line.count("{") - line.count("}")
    text = re.sub(r"\([^()]*\)", "", " ".join(outer))
    return sum(part.count(",") + 1 for part in text.split(";") if part.strip())


def check_structs(code: list[str]) -> Iterator[Finding]:
    """code: the lines of a file, comments and strings blank."""
    for match in _STRUCT.finditer("\n".join(line.rstrip() for line in code)):
        first = match.string.count("\n", 0, match.end()) + 1
        depth, end = 1, first
        while depth > 0 and end < len(code):
            depth += code[end].count("{") - code[end].count("}")
            end += 1
        n = _fields(code[first : end - 1])
        if n > FIELDS_MAX:
            name = match[1] or "without a name"
            yield first, "struct", f"{name}: {n} fields, {FIELDS_MAX} at most: divide it"


def check_retired(code: list[str]) -> Iterator[Finding]:
    for number, line in enumerate(code, 1):
        for match in _NAME.finditer(line):
            for word in match[0].lower().split("_"):
                if word in RETIRED and not match[0].startswith(OTHERS):
                    yield number, "retired", f"{match[0]}: not “{word}”, but {RETIRED[word]}"


def _circles(calls: dict[str, set[str]]) -> list[list[str]]:
    """Returns the sets of files that reach each other (Tarjan's strongly connected components)."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(file: str) -> None:
        number[file] = lowest[file] = len(number)
        stack.append(file)
        for other in sorted(calls[file]):
            if other not in number:
                visit(other)
            if other in stack:
                lowest[file] = min(lowest[file], lowest[other])
        if lowest[file] == number[file]:
            at = stack.index(file)
            found.append(sorted(stack[at:]))
            del stack[at:]

    for file in sorted(calls):
        if file not in number:
            visit(file)
    return found


def check_circles(files: dict[str, list[str]]) -> list[str]:
    """Returns the findings of all folders. files: the code of each .c file, comments and strings
    blank. A file calls another if it names a function that the other one defines for all."""
    rooms: dict[str, list[str]] = {}
    for file in files:
        rooms.setdefault(str(Path(file).parent), []).append(file)
    lines = []
    for room, names in sorted(rooms.items()):
        texts = {file: "\n".join(files[file]) for file in names}
        home = {match[1]: file for file in names for match in _FUNCTION.finditer(texts[file])}
        words = {file: set(_NAME.findall(_TAG.sub("", texts[file]))) for file in names}
        calls = {
            file: {home[word] for word in words[file] if word in home} - {file} for file in names
        }
        for circle in _circles(calls):
            if len(circle) > CIRCLE_FILES_MAX:
                members = ", ".join(Path(file).name for file in circle)
                lines.append(
                    f"{room}:1: circle: {len(circle)} files call each other, "
                    f"{CIRCLE_FILES_MAX} at most: {members}"
                )
    return lines
