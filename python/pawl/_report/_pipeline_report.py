"""The picture of a pipeline's steps: what each stage does over time, and the memory that it needs.

A panel for each trace, one below the other, on one time axis: a step that was predicted lies above
the same step as measured.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pawl._report import _drawing, _pipeline_trace
from pawl._report._drawing import percent, plain, size_text
from pawl._report._pipeline_trace import BACKWARD, FORWARD, INPUTS, KINDS, PARAMETERS, Trace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUFFIXES: Final = (".png", ".svg")

# Colours whose lightness differs as well, so that they remain four without hues.
COLORS: Final = {
    FORWARD: "#06356B",
    BACKWARD: "#E08E0B",
    INPUTS: "#F8D271",
    PARAMETERS: "#00806A",
}
_DARK: Final = (FORWARD, PARAMETERS)  # kinds of tasks whose bars have white text
_LABELS: Final = {
    FORWARD: "forward",
    BACKWARD: "backward",
    INPUTS: "backward: gradients of inputs",
    PARAMETERS: "backward: gradients of parameters",
}
_REST: Final = {"facecolor": "none", "edgecolor": "#BBBBBB", "hatch": "////", "lw": 0}
_LOWEST, _PEAK = "#6E6E6E", "#BDBDBD"  # colours in the panel of memory
_MANY: Final = 4000  # more tasks than this in a trace are drawn as an image
_COLUMNS: Final = 3000  # pixels of such an image from left to right
_WIDTH_INCH: Final = 11.0
_BARS_SHARE: Final = 0.75  # least share of the picture's width that the bars have
_MEMORY_SHARE: Final = 0.16  # width of the panel of memory, divided by that of the bars
_ROW_INCH: Final = 0.27  # height of a stage's row, where there are few
_PANEL_INCH: Final = (0.8, 3.4)  # least and most height of all rows
_BAR: Final = 0.86  # part of its row's height that a bar has
_FONT: Final = 7.0  # points, in bars and beside memory
_DIGIT_INCH: Final = 0.063  # width of a digit of that size
_TEXT_INCH: Final = 0.13  # least height of a row with text
_APART_INCH: Final = 0.04  # least height of rows that are apart
_EDGED_INCH: Final = 0.04  # least width of bars with white edges, which would hide narrow ones
_ROWS_NAMED: Final = 32  # stages whose numbers are beside their rows
_NAME_ENDS: Final = (18, 36)  # letters that remain of a long name: at its begin, at its end


def _seconds(seconds: float) -> str:
    """A duration as `pawl pipe show` prints it: ``2.742 s``."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.4g} us"
    return f"{seconds * 1e3:.4g} ms" if seconds < 1 else f"{seconds:.4g} s"


def _short(name: str) -> str:
    """A name that has room beside a step's time; its end says which schedule it is."""
    first, last = _NAME_ENDS
    return name if len(name) <= first + last + 1 else f"{name[:first]}…{name[-last:]}"


def _unit(traces: Sequence[Trace]) -> tuple[float, str]:
    """The unit of the time axis, in seconds, and its name."""
    longest = max(trace.step_s for trace in traces)
    return (1.0, "s") if longest >= 1 else (1e-3, "ms") if longest >= 1e-3 else (1e-6, "us")


# ---- bars ----


def _draw_boxes(axes: Any, trace: Trace, unit: float, inch: float, panel: int) -> None:
    """Draws each task as a box. inch: width of a unit."""
    import numpy as np
    from matplotlib import collections

    for kind, tasks in trace.tasks.items():
        if not tasks.stage:
            continue
        stage = np.frombuffer(tasks.stage, np.uint16)
        begun, ended = np.array(tasks.begun) / unit, np.array(tasks.ended) / unit
        low, high = stage - _BAR / 2, stage + _BAR / 2
        corners = [(begun, low), (ended, low), (ended, high), (begun, high)]
        boxes = np.stack([np.stack(corner, axis=1) for corner in corners], axis=1)
        edges = np.where((ended - begun) * inch > _EDGED_INCH, 0.5, 0.0)
        collection = collections.PolyCollection(
            boxes, facecolors=COLORS[kind], edgecolors="white", linewidths=edges
        )
        collection.set_gid(f"{kind.replace(', ', '-')}-{panel}")
        axes.add_collection(collection, autolim=False)


def _draw_image(axes: Any, trace: Trace, unit: float, row_inch: float) -> None:
    """Draws the tasks as an image: the colour of a pixel is the mean of its time."""
    import numpy as np
    from matplotlib import colors

    image = np.ones((trace.stages, _COLUMNS, 3))
    grid = np.linspace(0, trace.finish_s, _COLUMNS + 1)
    for kind, tasks in trace.tasks.items():
        stage = np.frombuffer(tasks.stage, np.uint16)
        order = np.lexsort((tasks.begun, stage))
        first = np.searchsorted(stage[order], np.arange(trace.stages + 1))
        begun, ended = np.array(tasks.begun)[order], np.array(tasks.ended)[order]
        ink = np.array(colors.to_rgb(COLORS[kind])) - 1  # beside white
        for row in range(trace.stages):
            part = slice(first[row], first[row + 1])
            done = np.cumsum(ended[part] - begun[part])
            if len(done) == 0:
                continue
            # The time that tasks have taken until each moment, which is linear in between.
            moments = np.stack([begun[part], ended[part]], axis=1).ravel()
            taken = np.stack([done - (ended[part] - begun[part]), done], axis=1).ravel()
            share = np.diff(np.interp(grid, np.maximum.accumulate(moments), taken)) / grid[1]
            image[row] += share[:, None] * ink
    axes.imshow(
        image.clip(0, 1),
        extent=(0, trace.finish_s / unit, trace.stages - 0.5, -0.5),
        aspect="auto",
    )
    if row_inch >= _APART_INCH:
        between = np.arange(1, trace.stages) - 0.5
        lw = (1 - _BAR) * row_inch * 72
        axes.hlines(between, 0, trace.finish_s / unit, colors="white", lw=lw)


def _write_numbers(axes: Any, trace: Trace, unit: float, inch: float) -> None:
    """Writes the microbatch's number into each bar that is wide enough. inch: width of a unit."""
    for kind, tasks in trace.tasks.items():
        color = "white" if kind in _DARK else "black"
        for stage, microbatch, begun, ended in zip(
            tasks.stage, tasks.microbatch, tasks.begun, tasks.ended, strict=True
        ):
            if (ended - begun) / unit * inch > _DIGIT_INCH * len(str(microbatch)) + 0.03:
                axes.text(
                    (begun + ended) / 2 / unit, stage, str(microbatch), fontsize=_FONT, color=color,
                    ha="center", va="center_baseline", clip_on=True,
                )  # fmt: skip


# ---- memory ----


def _draw_memory(axes: Any, trace: Trace, row_inch: float) -> None:
    """Draws the lowest and the highest memory of each stage, and writes the highest: of all stages
    if their rows have room for it, else the maximum.
    """
    stages = sorted(trace.memory)
    peaks = [trace.memory[stage][1] for stage in stages]
    height = _BAR if row_inch >= _APART_INCH else 1.0
    axes.barh(stages, peaks, height=height, color=_PEAK, lw=0)
    axes.barh(stages, [trace.memory[s][0] for s in stages], height=height, color=_LOWEST, lw=0)
    for stage, peak in zip(stages, peaks, strict=True):
        if row_inch >= _TEXT_INCH or stage == stages[peaks.index(max(peaks))]:
            axes.annotate(
                size_text(peak), (peak, stage), (3, 0), textcoords="offset points",
                fontsize=_FONT, va="center_baseline", annotation_clip=False,
            )  # fmt: skip
    axes.spines["bottom"].set_visible(False)
    axes.tick_params(bottom=False, labelbottom=False, labelleft=False)


# ---- the picture ----


def _has_rest(trace: Trace) -> bool:
    return trace.step_s > trace.finish_s * (1 + 1e-6)


def _legend(traces: Sequence[Trace]) -> list[Any]:
    from matplotlib.patches import Patch

    handles = [
        Patch(color=COLORS[kind], label=_LABELS[kind])
        for kind in KINDS
        if any(trace.tasks[kind].stage for trace in traces)
    ]
    if any(_has_rest(trace) for trace in traces):
        handles.append(Patch(label="rest of the step", **_REST))
    if any(trace.memory for trace in traces):
        handles.append(Patch(color=_LOWEST, label="memory: lowest"))
        handles.append(Patch(color=_PEAK, label="memory: peak"))
    return handles


def _draw_panel(axes: Any, trace: Trace, unit: float, panel: int, row_inch: float) -> None:
    """Draws one trace. The limits of the time axis have been set."""
    begin, end = axes.get_xlim()
    inch = _WIDTH_INCH * _BARS_SHARE / (end - begin)  # width of a unit, at least
    if trace.count > _MANY:
        _draw_image(axes, trace, unit, row_inch)
    else:
        _draw_boxes(axes, trace, unit, inch, panel)
        if row_inch >= _TEXT_INCH:
            _write_numbers(axes, trace, unit, inch)
    if _has_rest(trace):
        axes.axvspan(trace.finish_s / unit, trace.step_s / unit, **_REST)
    axes.axvline(trace.step_s / unit, color="black", lw=0.8, clip_on=False)
    axes.spines["left"].set_visible(False)
    axes.set_ylabel("stage")
    axes.set_title(plain(_short(trace.name)))
    told = f"step {_seconds(trace.step_s)}, idle {percent(trace.idle)}"
    axes.set_title(told, loc="right", fontweight="normal")


def draw(traces: Sequence[Trace]) -> Figure:
    """Draws each trace as a panel, and beside it the stages' memory if any trace has it."""
    plots = _drawing.plots()
    unit, name = _unit(traces)
    has_memory = any(trace.memory for trace in traces)
    heights = [min(max(_ROW_INCH * t.stages, _PANEL_INCH[0]), _PANEL_INCH[1]) for t in traces]
    figure, panels = plots.subplots(
        len(traces),
        1 + has_memory,
        figsize=(_WIDTH_INCH, sum(heights) + 0.4 * len(traces) + 0.8),
        sharex="col",
        squeeze=False,
        layout="constrained",
        height_ratios=heights,
        width_ratios=[1, _MEMORY_SHARE] if has_memory else [1],
    )
    panels[0][0].set_xlim(0, max(trace.step_s for trace in traces) / unit)
    if has_memory:
        peak = max(peak for trace in traces for _, peak in trace.memory.values())
        panels[0][1].set_xlim(0, 1.6 * peak or 1)  # with room for the numbers
    for at, (trace, height) in enumerate(zip(traces, heights, strict=True)):
        row_inch = height / trace.stages
        for axes in panels[at]:
            axes.set_ylim(trace.stages - 0.5, -0.5)
            axes.set_yticks(range(0, trace.stages, -(-trace.stages // _ROWS_NAMED)))
            axes.tick_params(axis="y", length=0, labelsize=8)
            axes.grid(False)
        panels[at][0].tick_params(axis="x", bottom=at == len(traces) - 1)
        _draw_panel(panels[at][0], trace, unit, at, row_inch)
        if trace.memory:
            _draw_memory(panels[at][1], trace, row_inch)
        elif has_memory:
            panels[at][1].set_axis_off()
    panels[-1][0].set_xlabel(f"time, {name}")
    figure.legend(handles=_legend(traces), loc="outside lower left", ncols=7, fontsize=8)
    return figure


def write_picture(places: Sequence[Path], out: Path) -> None:
    """Draws the traces into a file, whose suffix says the format.

    Raises FileNotFoundError; OSError; ValueError naming a file that is not a trace, and why.
    """
    traces = [_pipeline_trace.read(place) for place in places]
    plots = _drawing.plots()
    picture = io.BytesIO()
    kind = out.suffix[1:]
    with plots.rc_context(_drawing.STYLE), warnings.catch_warnings():
        # Names of models may be in any script.
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        figure = draw(traces)
        figure.savefig(
            picture, format=kind, dpi=130, metadata={"Date": None} if kind == "svg" else None
        )
        plots.close(figure)
    try:
        out.write_bytes(picture.getvalue())
    except FileNotFoundError:
        raise FileNotFoundError(f"{out}: there is no such directory; make it first") from None
