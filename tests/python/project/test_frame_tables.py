"""The tables of messages have all fields of their structs: a field that lies in the padding of a
struct leaves no trace in the offsets that the tests in C compare."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

SRC = Path(__file__).parents[3] / "src"
STRUCT = re.compile(r"^struct (\w+) \{\s*\n(.*?)^\};", re.S | re.M)
TABLE = re.compile(r"struct frame_field (\w+)_fields\[\] = \{(.*?)^\};", re.S | re.M)
ROW = re.compile(r"\b(FIELD|LIST|STRUCT|ROWS)\(\w+, (\w+)(?:,\s+(\w+))?")
NAME = re.compile(r"(\w+)(?:\[[^]]*\])?(?=,|$)")


def read(path: str) -> str:
    return re.sub(r"/\*.*?\*/", "", (SRC / path).read_text(), flags=re.S)


def declared(body: str) -> list[str]:
    """The names of a struct's fields."""
    return [name for part in body.split(";") for name in NAME.findall(part.strip())]


def listed(rows: str) -> list[str]:
    """The names in a table, in which a list names its count and its array."""
    named = {"FIELD": slice(1, 2), "LIST": slice(0, 2), "STRUCT": slice(0, 1), "ROWS": slice(0, 1)}
    return [name for macro, *names in ROW.findall(rows) for name in names[named[macro]]]


@pytest.mark.parametrize(
    ("header", "source", "least"),
    [("ipc/frames.h", "ipc/frames.c", 32), ("daemon/sched_msg.h", "daemon/sched_msg.c", 11)],
)
def test_each_field_is_in_its_table(header: str, source: str, least: int) -> None:
    structs = dict(STRUCT.findall(read(header)))
    tables = TABLE.findall(read(source))
    assert len(tables) >= least
    for name, rows in tables:
        assert listed(rows) == declared(structs[name]), name


def test_a_missing_field_is_noticed() -> None:
    fields = "\tuint32_t a;\n\tbool b, c;\n\tstruct d e[MAX];\n\tuint64_t f;\n"
    rows = "FIELD(x, U32, a),\nFIELD(x, BOOL, b),\nLIST(x, c, e,\n\tlayout),\nFIELD(x, U64, f),"
    assert listed(rows) == declared(fields) == ["a", "b", "c", "e", "f"]
    assert listed(rows.replace("FIELD(x, BOOL, b),", "")) != declared(fields)
