"""Texts, numbers and pictures in reports."""

from __future__ import annotations

import base64
import html
import io
import sys
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EXIT_FAILURE: Final = 1  # docs/exit-codes.md

# ---- texts from others ----


def visible(text: str) -> str:
    """Text whose characters that hide or reverse their neighbours are escapes, as
    in ``\\u202e``.
    """
    return "".join(letter if letter.isprintable() else _escape_of(ord(letter)) for letter in text)


def _escape_of(code: int) -> str:
    if 0xDC80 <= code <= 0xDCFF:  # a byte that is not UTF-8
        code -= 0xDC00
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def escape(text: str) -> str:
    """Escapes text for HTML pages."""
    return html.escape(visible(text))


def plain(text: str) -> str:
    """Text for a picture: matplotlib would draw mathematics between dollars."""
    return visible(text).replace("$", r"\$")


# ---- numbers for people ----


def span(seconds: float | None) -> str:
    """A duration: ``1.2 ms``, ``3.4 s``, ``2 min 5 s``, ``3 h 20 min``, ``2 d 4 h``."""
    if seconds is None:
        return "–"
    if seconds == float("inf"):
        return "∞"
    if seconds < 1:
        return f"{seconds * 1000:.3g} ms"
    if seconds < 59.95:
        return f"{seconds:.3g} s"
    units = ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s"))
    size, name, part, part_name = next(u for u in units if round(seconds / u[2]) * u[2] >= u[0])
    whole, rest = divmod(round(seconds / part) * part, size)
    return f"{whole} {name}" + (f" {rest // part} {part_name}" if rest else "")


def size_text(count: float) -> str:
    """A number of bytes: ``17 bytes``, ``1.2 GiB``."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def time_text(at: float) -> str:
    """A time since 1970 in UTC, to the second."""
    return datetime.fromtimestamp(at, timezone.utc).strftime("%Y-%m-%d %H:%M:%S")


def percent(part: float) -> str:
    """A part of 1 in percent, with three significant digits: ``0.0123 %``."""
    return f"{part * 100:.3g} %"


# ---- pictures ----

STYLE: Final = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "figure.facecolor": "white",
    "legend.frameon": False,
    "svg.hashsalt": "pawl",
}


def plots() -> Any:
    """Returns matplotlib, set to draw into files. Raises SystemExit naming the
    package if it is missing.
    """
    try:
        import matplotlib
    except ImportError:
        print(
            "pawl report: matplotlib draws the pictures and is not installed: "
            "pip install 'pawl[report]', or pip install matplotlib",
            file=sys.stderr,
        )
        raise SystemExit(EXIT_FAILURE) from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def dates(seconds: Sequence[float]) -> list[datetime]:
    return [datetime.fromtimestamp(at, timezone.utc) for at in seconds]


CSS: Final = """
body { font: 16px/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff;
       max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2.5rem; }
dl { display: grid; grid-template-columns: max-content auto; gap: .15rem 1.5rem; }
dt { color: #555; } dd { margin: 0; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th { text-align: left; color: #555; font-weight: 600; }
td, th { padding: .3rem .8rem .3rem 0; border-bottom: 1px solid #ddd; vertical-align: top; }
img { width: 100%; height: auto; } .note { color: #555; font-size: .9rem; }
"""


def picture(figure: Figure, alt: str) -> str:
    out = io.BytesIO()
    figure.savefig(out, format="svg", metadata={"Date": None}, dpi=150)
    data = base64.b64encode(out.getvalue()).decode()
    return f'<img alt="{escape(alt)}" src="data:image/svg+xml;base64,{data}">'
