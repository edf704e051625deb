#!/usr/bin/env python3
"""Checks that what the documents point to is there: files, headings, folders of the map.

Looks at every Markdown file that git tracks or would track, and there at relative links and their
anchors. Prints `file:line: message` for each that leads nowhere and exits 1 if there is one.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")


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


def check_document(root: Path, document: Path) -> list[str]:
    found = []
    for number, line in enumerate(document.read_text(encoding="utf-8").splitlines(), 1):
        for match in LINK.finditer(line):
            wrong = check_link(document, match[1] or match[2])
            if wrong:
                found.append(f"{document.relative_to(root)}:{number}: {wrong}")
    return found


def main() -> int:
    root = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT
    documents = list_documents(root)
    found = [line for document in documents for line in check_document(root, document)]
    print("\n".join(found) if found else f"docs: all links of {len(documents)} documents lead on")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
