#!/usr/bin/env python3
"""Checks that what the documents point to is there, and that what they repeat of the code is true.

Looks at every Markdown file that git tracks or would track, and there at relative links, their
anchors, and the paths of sources that stand in `code`; at the length of decision records; and at
the table of waiting times in docs/limits.md, which is that of src/base/times.h. Prints
`file:line: message` for each that leads nowhere, or differs, and exits 1 if there is one.
`docs.py --write` writes the table.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")

# A path of ours as documents write it: from the root, src/ or include/. "*" or "<" make a pattern.
TOPS = "src|include|python|tests|tools|bench|demo|examples|docs"
PATH = re.compile(rf"`((?:{TOPS})/[\w./-]+|\w+/[\w./-]*\w\.[ch])(?::\d+)?`")
DECISIONS = "docs/decisions"
DECISION_LINES_MAX = 40

TIMES = "src/base/times.h"
TIMES_IN = "docs/limits.md"
TIMES_BEGIN, TIMES_END = "<!-- times: begin -->\n", "<!-- times: end -->\n"
# X(NAME, "text", 10 * NS_PER_S, SEEN, "what it is for")
ROW = re.compile(r'\bX\(\w+, "(\w+)", ([^,]+), (SEEN|INNER), ((?:\s*"[^"]*")+)\)')
NS = {"NS_PER_MS": 10**6, "NS_PER_S": 10**9}


def list_documents(root: Path) -> list[Path]:
    command = ["git", "-C", str(root), "ls-files", "-z", "-co", "--exclude-standard", "*.md"]
    names = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("\0")
    return sorted({root / name for name in names if name and (root / name).is_file()})


def anchors(document: Path) -> set[str]:
    """The names that headings get: lower case, words joined by dashes, other signs dropped."""
    headings = re.findall(r"^#+ +(.+)$", document.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in headings}


def check_link(document: Path, link: str) -> str | None:
    """What is wrong with a link of a document, or None. Links to other hosts are not followed."""
    if re.match(r"[a-z]+:", link):
        return None
    name, _, anchor = link.partition("#")
    target = document.parent / name if name else document
    if not target.exists():
        return f"{name} is not there"
    if anchor and anchor not in anchors(target):
        return f"{target.name} has no heading {anchor}"
    return None


def check_path(root: Path, name: str) -> str | None:
    """What is wrong with the path of a source that a document names, or None."""
    found = any((folder / name).exists() for folder in (root, root / "src", root / "include"))
    return None if found else f"{name} is not there"


def check_document(root: Path, document: Path) -> list[str]:
    found = []
    for number, line in enumerate(document.read_text(encoding="utf-8").splitlines(), 1):
        for match in LINK.finditer(line):
            wrong = check_link(document, match[1] or match[2])
            if wrong:
                found.append(f"{document.relative_to(root)}:{number}: {wrong}")
        if document.name == "CHANGELOG.md":
            continue  # the changelog speaks of names that are gone
        for match in PATH.finditer(line):
            wrong = check_path(root, match[1])
            if wrong:
                found.append(f"{document.relative_to(root)}:{number}: {wrong}")
    return found


def check_decisions(root: Path) -> list[str]:
    """A decision is short, and the list of them has it."""
    found = []
    index = root / DECISIONS / "README.md"
    listed = index.read_text(encoding="utf-8") if index.exists() else ""
    for record in sorted((root / DECISIONS).glob("[0-9]*.md")):
        name = record.relative_to(root)
        lines = len(record.read_text(encoding="utf-8").splitlines())
        if lines > DECISION_LINES_MAX:
            found.append(f"{name}:{lines}: {lines} lines, {DECISION_LINES_MAX} at most")
        if f"]({record.name})" not in listed:
            found.append(f"{name}:1: {DECISIONS}/README.md does not list it")
    return found


def in_words(ns: int) -> str:
    """A time as people say it."""
    for unit, unit_ns in (("h", 3600 * 10**9), ("min", 60 * 10**9), ("s", 10**9), ("ms", 10**6)):
        if ns >= unit_ns and (ns % unit_ns == 0 or unit in ("s", "ms")):
            return f"{ns / unit_ns:g} {unit}"
    return f"{ns / 1000:g} µs"


def times_table(root: Path) -> str:
    """The times that somebody who uses Pawl can see, as Markdown."""
    text = (root / TIMES).read_text(encoding="utf-8").replace("\\\n", " ")
    lines = ["| name | time | what for |", "|---|---|---|"]
    for name, ns, seen, what in ROW.findall(text):
        factor, unit = ns.split(" * ") if "*" in ns else (1, ns)
        said = "".join(re.findall(r'"([^"]*)"', what))
        if seen == "SEEN":
            lines.append(f"| `{name}` | {in_words(int(factor) * NS[unit])} | {said} |")
    return "\n".join(lines) + "\n"


def split_times(text: str) -> tuple[str, str, str]:
    """What stands before, in and after the table."""
    head, _, rest = text.partition(TIMES_BEGIN)
    table, _, tail = rest.partition(TIMES_END)
    return head + TIMES_BEGIN, table, TIMES_END + tail


def check_times(root: Path) -> list[str]:
    if not (root / TIMES).exists():
        return []
    head, table, _ = split_times((root / TIMES_IN).read_text(encoding="utf-8"))
    if table == times_table(root):
        return []
    line = head.count("\n") + 1
    return [f"{TIMES_IN}:{line}: not the times of {TIMES}: run tools/docs.py --write"]


def write_times(root: Path) -> None:
    path = root / TIMES_IN
    head, _, tail = split_times(path.read_text(encoding="utf-8"))
    path.write_text(head + times_table(root) + tail, encoding="utf-8")


def main() -> int:
    if sys.argv[1:] == ["--write"]:
        write_times(ROOT)
        return 0
    root = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT
    documents = list_documents(root)
    found = [line for document in documents for line in check_document(root, document)]
    found += check_decisions(root) + check_times(root)
    print("\n".join(found) if found else f"docs: all links of {len(documents)} documents lead on")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
