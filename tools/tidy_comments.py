"""What tools/tidy.py holds comments to: each reads alone. A comment whose first word stands for
something that was said elsewhere is a riddle to whoever comes from a search.

    uint32_t spans_n;  /* of them */             bad
    uint32_t spans_n;  /* entries in spans */    good
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator

_BEFORE = (
    "of|to|by|for|in|with|from|on|at|about|behind|before|after|among|below|above|without|since|until"
    "|as|between|under|over|into|than|like|through|per"
)
_FOR_OTHERS = (
    "it|its|them|they|their|theirs|that|these|those|which|whom|whose|who|he|his|so|such|likewise"
    "|ditto|the same|same"
)
# Words that begin a sentence as well ("each rank waits"), but say nothing alone.
_ALONE = "both|each|one|this|all|there|then|as|what|when|where"
# The start of a comment that does not read alone.
RIDDLE = re.compile(
    rf"\s*(?:of\s|(?:(?:{_BEFORE})\s+)?(?:(?:{_FOR_OTHERS})\b|(?:{_ALONE})\s*(?:$|[;,.:]))"
    r"|(?:as|what|when|where|then)\s+(?:there|it|its|they|that)\b)",
    re.IGNORECASE,
)
C_COMMENT = re.compile(r"/\*+(.*?)\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])+'", re.S)

Finding = tuple[int, str, str]  # line, rule, message


def _judge(line: int, text: str) -> Iterator[Finding]:
    found = RIDDLE.match(text.rstrip())
    if found:
        yield line, "riddle", f'"{found[0].strip()} …": name what the comment speaks of'


def check_c(text: str) -> Iterator[Finding]:
    for match in C_COMMENT.finditer(text):
        if match[1] is not None:
            yield from _judge(text.count("\n", 0, match.start()) + 1, match[1].lstrip("* \t\n"))


def check_python(text: str) -> Iterator[Finding]:
    """A line that goes on with the comment of the line before it begins nothing."""
    last = 0  # the line of the last comment that stands alone in its line
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type != tokenize.COMMENT:
                continue
            row, column = token.start
            alone = not token.line[:column].strip()
            if not (alone and row == last + 1):
                yield from _judge(row, token.string.lstrip("#"))
            last = row if alone else 0
    except (tokenize.TokenError, SyntaxError):  # rule "syntax" reports it
        return
