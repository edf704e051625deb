"""The report of an elastic job: its batch, noise scale, goodput and ranks over time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pawl._report import _drawing, _training
from pawl._report._drawing import span
from pawl._report._training import Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's colours, each with a dash of its own; the first is for the run that is reported.
_LINES: Final = (
    ("#0072B2", "-"),
    ("#D55E00", "--"),
    ("#009E73", "-."),
    ("#CC79A7", ":"),
    ("#E69F00", (0, (5, 1, 1, 1, 1, 1))),
    ("#56B4E9", (0, (8, 2))),
)
_UNITS: Final = ((7200.0, 3600.0, "hours"), (180.0, 60.0, "minutes"), (0.0, 1.0, "seconds"))


@dataclass(frozen=True)
class Training:
    """A run, and its rows."""

    name: str
    rows: Sequence[Row]

    @property
    def took_s(self) -> float:
        return self.rows[-1].time - self.rows[0].time

    def seconds(self) -> list[float]:
        """The time of each row, in seconds since the first one."""
        return [row.time - self.rows[0].time for row in self.rows]


def read(place: Path) -> Training | None:
    """The run in a place; None: there is no history of training."""
    rows = sorted(_training.read(place), key=lambda row: row.time)
    return Training(place.stem, rows) if rows else None


def summarise(training: Training) -> list[tuple[str, str]]:
    """Name and value of each line of the summary."""
    first, last = training.rows[0], training.rows[-1]
    steps, worth = last.step - first.step, last.progress - first.progress
    batches = [row.batch for row in training.rows]
    ranks = [row.ranks for row in training.rows]
    facts = [
        (
            "trained",
            f"{steps} steps in {span(training.took_s)}, worth {worth:.4g} of the first batch",
        ),
        ("batch", f"{batches[0]} to {batches[-1]}, at most {max(batches)}"),
        ("ranks", f"{min(ranks)} to {max(ranks)}" if min(ranks) < max(ranks) else f"{max(ranks)}"),
    ]
    if last.noise is not None:
        facts.append(("noise scale", f"{last.noise:.3g} samples at the end"))
    return facts


def _known(training: Training, value: Callable[[Row], float | None]) -> list[float]:
    """A value of each row; nan where it is not known, so that it is not drawn."""
    return [math.nan if (found := value(row)) is None else found for row in training.rows]


def draw(runs: Sequence[Training]) -> Figure:
    """Draws the first run, and others beside it, each from its own beginning."""
    plots = _drawing.plots()
    from matplotlib import ticker

    figure, panels = plots.subplots(4, 1, figsize=(10, 11), sharex=True, layout="constrained")
    batch, noise, goodput, ranks = panels
    longest = max(training.took_s for training in runs)
    scale, unit = next((s, name) for least, s, name in _UNITS if longest >= least)
    for number, training in reversed(list(enumerate(runs))):
        color, dash = _LINES[number % len(_LINES)]
        style = {"color": color, "ls": dash, "lw": 2 if number == 0 else 1.3}
        times = [at / scale for at in training.seconds()]
        batch.step(
            times, [row.batch for row in training.rows], where="post", label=training.name, **style
        )
        noise.plot(times, _known(training, lambda row: row.noise), **style)
        goodput.step(times, _known(training, lambda row: row.goodput), where="pre", **style)
        ranks.step(times, [row.ranks for row in training.rows], where="post", **style)
    _draw_bounds(noise, runs[0], scale)
    goodput.step(
        [at / scale for at in runs[0].seconds()],
        _known(runs[0], lambda row: row.samples_per_s),
        where="pre",
        color=_LINES[0][0],
        lw=0.8,
        alpha=0.5,
        label="all samples, whatever they are worth",
    )
    goodput.legend(fontsize=9)
    batch.set(title="Batch of all ranks", ylabel="samples", yscale="log")
    noise.set(title="Noise scale of the gradient, with 95 % bounds", ylabel="samples", yscale="log")
    goodput.set(title="Goodput: samples a second by their worth", ylabel="samples/s")
    ranks.set(title="Ranks", ylabel="ranks", xlabel=f"{unit} since the run began")
    for axes in (batch, noise):
        axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.yaxis.set_minor_locator(ticker.NullLocator())
    for axes in (goodput, ranks):
        axes.set_ylim(bottom=0)
    ranks.yaxis.get_major_locator().set_params(integer=True)
    if len(runs) > 1:
        handles, labels = batch.get_legend_handles_labels()
        figure.legend(handles[::-1], labels[::-1], loc="outside upper center", ncols=4)
    return figure


def _draw_bounds(axes: Any, training: Training, scale: float) -> None:
    known = [
        (at / scale, row.noise_low, row.noise_high)
        for at, row in zip(training.seconds(), training.rows, strict=True)
        if row.noise is not None and row.noise_low and row.noise_high
    ]
    finite = [high for _, _, high in known if math.isfinite(high)]
    if finite:
        top = max(finite)
        times, lows, highs = zip(*known, strict=True)
        axes.fill_between(
            times, lows, [min(h, top) for h in highs], color=_LINES[0][0], alpha=0.15, lw=0
        )


def section(runs: Sequence[Training], out: Path) -> str:
    """Writes ``training.png`` into ``out``; returns the section of the page."""
    figure = draw(runs)
    figure.savefig(out / "training.png", dpi=130)
    page = "<h2>Training</h2>" + _drawing.picture(
        figure, "Batch size, noise scale, goodput and ranks over time"
    )
    _drawing.plots().close(figure)
    if len(runs) > 1:
        page += _table(runs)
    return page


def _table(runs: Sequence[Training]) -> str:
    names = dict(fact for training in runs for fact in summarise(training))
    lines = ["<tr><th>run</th>" + "".join(f"<th>{name}</th>" for name in names) + "</tr>"]
    for training in runs:
        facts = dict(summarise(training))
        cells = [training.name, *(facts.get(name, "–") for name in names)]
        lines.append("<tr>" + "".join(f"<td>{_drawing.escape(c)}</td>" for c in cells) + "</tr>")
    return f"<table>{''.join(lines)}</table>"
