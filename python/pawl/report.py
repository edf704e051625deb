"""``python -m pawl.report ROOT --out DIR``: a page and pictures of a job.

From the two files that the agent keeps in the root (docs/format.md), it draws the cost and the
benefit of saving: stalls, throughput, sizes and levels over time, the work that each failure cost,
and the interval between saves that would have cost least; from the file that an elastic job keeps
there, its batch, noise scale, goodput and ranks over time. ``pawl report`` does the same. With
``--cluster`` it draws the history of a cluster: the jobs on each node. With ``--pipeline`` it draws
traces of pipelines into one picture, as ``pawl pipe draw`` does.

The page is one file without outside resources; the pictures in it are SVG. Needs matplotlib.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pawl import _core
from pawl._report import (
    _cluster_report,
    _drawing,
    _fetched,
    _history,
    _pipeline_report,
    _training,
    _training_report,
)
from pawl._report._drawing import EXIT_FAILURE, percent, size_text, span, time_text
from pawl._report._history import Failure, History
from pawl._report._training_report import Training
from pawl.errors import PawlError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CONFIDENCE: Final = 0.95
# Failures assumed before any was seen, as in Checkpointer.due(): one a day.
PRIOR_FAILURES: Final = 1.0
PRIOR_S: Final = 86400.0
CLUSTER_OUT: Final = Path("cluster-report")  # default output folder of a cluster's report
EXIT_NOTHING: Final = 3  # docs/exit-codes.md
EXIT_DAMAGED: Final = 4  # docs/exit-codes.md


@dataclass(frozen=True)
class Interval:
    """The measured interval between saves, and the one that would have cost
    least. Seconds, and 1/s.
    """

    cost: float  # cost of a save to training: the mean stall
    restart: float  # from a failure to the next start, mean
    failures: int
    run_s: float  # running time in which the failures came
    rate: float  # rate of failures: measured; or, if there was none, the one then assumed
    rate_low: float  # bounds of rate, at CONFIDENCE
    rate_high: float
    young: float  # best interval, to first order (Young)
    daly: float  # best interval, to higher order (Daly)
    daly_low: float  # daly at rate_high
    daly_high: float  # daly at rate_low; inf if that is 0
    measured: float  # mean work between two usable saves
    overhead: float  # time lost per time of work, measured
    predicted: float  # expected overhead at the measured interval
    least: float  # expected overhead at ``daly``


def find_interval(history: History, failures: Sequence[Failure]) -> Interval | None:
    """Computes the interval from the history; None if there is too little data.

    Young 1974 (``interval_young``) and Daly 2006, equation 37 (``interval_daly``), with the mean
    stall as the cost of a save and the failures a second of running; expected cost: Daly's equation
    20 (``interval_overhead``); bounds of the rate: Garwood 1936 (``rate_bounds``).
    ``include/pawl/adapt.h`` names the papers in full.

    Without a failure the rate is the mean of the one then assumed, (1 + 0) / (1 day + time run).
    """
    usable = [row for row in history.rows if row.usable and row.stall]
    run_s = history.run_s
    if len(usable) < 2 or run_s <= 0:
        return None
    stalls = [row.stall for row in usable if row.stall]
    cost, saving = statistics.fmean(stalls), sum(stalls)
    n = len(failures)
    downs = [f.down_s for f in failures if f.down_s is not None]
    restart = statistics.fmean(downs) if downs else 0.0
    low, high = _core.rate_bounds(n, run_s, CONFIDENCE)
    rate = n / run_s if n else PRIOR_FAILURES / (PRIOR_S + run_s)
    lost = sum(f.lost_s for f in failures)
    work = max(run_s - saving - lost, 1e-9)
    measured = max((run_s - saving) / len(usable), 1e-9)
    daly = _core.interval_daly(cost, 1 / rate)
    return Interval(
        cost=cost,
        restart=restart,
        failures=n,
        run_s=run_s,
        rate=rate,
        rate_low=low,
        rate_high=high,
        young=_core.interval_young(cost, 1 / rate),
        daly=daly,
        daly_low=_core.interval_daly(cost, 1 / high),
        daly_high=_core.interval_daly(cost, 1 / low) if low > 0 else float("inf"),
        measured=measured,
        overhead=(saving + lost + sum(downs)) / work,
        predicted=_core.interval_overhead(measured, cost, restart, 1 / rate),
        least=_core.interval_overhead(daly, cost, restart, 1 / rate),
    )


def summarise(
    history: History, failures: Sequence[Failure], best: Interval | None
) -> list[tuple[str, str]]:
    """Name and value of each line of the summary."""
    rows = history.rows
    count = {level: sum(row.level == level for row in rows) for level in _LEVELS}
    stalls = sorted(row.stall for row in rows if row.stall)
    speeds = [row.size / row.persist for row in rows if row.size and row.persist]
    sizes = [row.size for row in rows if row.size]
    facts = [
        ("job", ", ".join(sorted({row.job for row in rows}))),
        ("time", f"{time_text(rows[0].begun)} to {time_text(rows[-1].time)} UTC"),
        ("runs", f"{len(history.runs)}, together {span(history.run_s)}"),
        ("saves", ", ".join(f"{count[level]} {level}" for level in _LEVELS if count[level])),
    ]
    if stalls:
        worst = stalls[min(len(stalls) - 1, int(len(stalls) * 0.95))]
        facts.append(
            ("stall", f"median {span(statistics.median(stalls))}, 95 % below {span(worst)}")
        )
    if sizes:
        facts.append(("size", f"median {size_text(statistics.median(sizes))}"))
    if speeds:
        facts.append(("written at", f"median {size_text(statistics.median(speeds))}/s"))
    lost = sum(f.lost_s for f in failures)
    facts.append(("failures", f"{len(failures)}, work lost {span(lost)}" if failures else "none"))
    if best is not None:
        facts.append(
            (
                "saved every",
                f"{span(best.measured)}; least cost every {span(best.daly)} (Daly), "
                f"{span(best.young)} (Young)",
            )
        )
    return facts


# ---- pictures ----

# Okabe and Ito's colours, which colour-blind readers can tell apart; each level has a shape, too.
_LEVELS: Final = {
    "durable": ("#0072B2", "o", "durable"),
    "committed": ("#E69F00", "s", "committed in memory, then superseded"),
    "failed": ("#D55E00", "X", "failed"),
}
_FAILURE: Final = "#A3005C"
_CURVE, _BAND, _POINT = "#0072B2", "#56B4E9", "#D55E00"
_MANY: Final = 3000  # more points than this are drawn as pixels, in the SVG as well


def _scatter(axes: Any, history: History, value: str, scale: float) -> None:
    """Draws a mark for each save of which the value is known."""
    for level, (color, marker, _) in _LEVELS.items():
        known = [row for row in history.rows if row.level == level and getattr(row, value)]
        axes.scatter(
            _drawing.dates([row.begun for row in known]),
            [getattr(row, value) / scale for row in known],
            s=16,
            color=color,
            marker=marker,
            linewidths=0,
            alpha=0.85,
            rasterized=len(known) > _MANY,
        )


def _mark_runs(axes: Any, history: History) -> None:
    """Draws failures as dashed lines, and times without a run as grey areas."""
    for run, after in zip(history.runs, [*history.runs[1:], None], strict=True):
        if run.how in ("failed", "lost"):
            axes.axvline(_drawing.dates([run.ended])[0], color=_FAILURE, lw=1.2, ls="--", zorder=1)
        if after is not None and after.started > run.ended:
            axes.axvspan(
                *_drawing.dates([run.ended, after.started]), color="#EEEEEE", lw=0, zorder=0
            )


def _log_if_wide(axes: Any, values: Sequence[float]) -> None:
    """Makes an axis logarithmic where a linear one would press most of the marks flat."""
    if values and max(values) > 20 * statistics.median(values):
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    else:
        axes.set_ylim(0, 1.15 * max(values, default=1))


def draw_saves(history: History) -> Figure:
    """Stall, throughput, size and step of every save over time, with the failures."""
    plots = _drawing.plots()
    from matplotlib import dates, lines

    figure, panels = plots.subplots(4, 1, figsize=(10, 11), sharex=True, layout="constrained")
    stall, speed, size, step = panels
    rows = history.rows
    _scatter(stall, history, "stall", 1e-3)
    _log_if_wide(stall, [row.stall * 1e3 for row in rows if row.stall])
    stall.set(title="How long training waited: stall of save()", ylabel="stall, ms")
    written = [row for row in rows if row.size and row.persist]
    speeds = [row.size / row.persist / 2**20 for row in written if row.size and row.persist]
    color, marker, _ = _LEVELS["durable"]
    speed.scatter(
        _drawing.dates([row.begun for row in written]),
        speeds,
        s=16,
        color=color,
        marker=marker,
        lw=0,
    )
    _log_if_wide(speed, speeds)
    speed.set(title="How fast saves were made durable", ylabel="throughput, MiB/s")
    _scatter(size, history, "size", 2**20)
    _log_if_wide(size, [row.size / 2**20 for row in rows if row.size])
    size.set(title="How much was saved", ylabel="size, MiB")
    _scatter(step, history, "step", 1)
    step.set(title="What became of each save", ylabel="training step", xlabel="time, UTC")
    for axes in panels:
        _mark_runs(axes, history)
    locator = dates.AutoDateLocator()
    step.xaxis.set_major_locator(locator)
    step.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))
    handles = [
        lines.Line2D([], [], color=c, marker=m, ls="", label=label)
        for level, (c, m, label) in _LEVELS.items()
        if any(row.level == level for row in rows)
    ]
    if any(run.how in ("failed", "lost") for run in history.runs):
        handles.append(lines.Line2D([], [], color=_FAILURE, ls="--", label="workers failed"))
    figure.legend(handles=handles, loc="outside upper center", ncols=4)
    return figure


def _curve(best: Interval, rate: float, intervals: Sequence[float]) -> list[float]:
    return [
        100 * _core.interval_overhead(at, best.cost, best.restart, 1 / rate) for at in intervals
    ]


def draw_interval(best: Interval) -> Figure:
    """Expected overhead over the interval between saves, with the measured point and the best."""
    plots = _drawing.plots()
    from matplotlib import ticker

    low = min(best.measured, best.daly_low) / 5
    high = max(best.measured, best.daly, min(best.daly_high, best.daly * 30)) * 5
    intervals = [low * (high / low) ** (i / 300) for i in range(301)]
    shown = [100 * best.least, 100 * best.overhead, 100 * best.predicted]
    bottom, top = max(min(s for s in shown if s > 0) / 5, 1e-7), max(shown) * 20
    figure, axes = plots.subplots(figsize=(10, 5.5), layout="constrained")
    known = best.failures > 0
    label = (
        f"expected, {best.failures} failure{'s' if best.failures > 1 else ''} in {span(best.run_s)}"
        if known
        else f"expected, no failure in {span(best.run_s)} (assumed: one in {span(1 / best.rate)})"
    )
    axes.plot(intervals, _curve(best, best.rate, intervals), color=_CURVE, lw=2, label=label)
    axes.fill_between(
        intervals,
        _curve(best, max(best.rate_low, best.rate * 1e-6), intervals),
        # grows exponentially: with a short run its last values would ruin the layout
        [min(cost, 10 * top) for cost in _curve(best, best.rate_high, intervals)],
        color=_BAND,
        alpha=0.25,
        lw=0,
        label=f"within the {CONFIDENCE:.0%} bounds of the failure rate".replace("%", " %"),
    )
    axes.plot(
        [best.daly],
        [100 * best.least],
        marker="v",
        ms=10,
        color=_CURVE,
        ls="",
        label=f"least: every {span(best.daly)} (Daly), {percent(best.least)}",
    )
    axes.plot(
        [best.measured],
        [100 * best.overhead],
        marker="o",
        ms=10,
        color=_POINT,
        ls="",
        label=f"measured: every {span(best.measured)}, {percent(best.overhead)}",
    )
    axes.set(xscale="log", yscale="log", xlim=(low, high))
    axes.set_ylim(bottom, top)
    for axis, text in ((axes.xaxis, span), (axes.yaxis, lambda value: f"{value:g} %")):
        axis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5), numticks=15))
        axis.set_major_formatter(ticker.FuncFormatter(lambda value, _, text=text: text(value)))
        axis.set_minor_locator(ticker.NullLocator())
    axes.set_title("Cost of saves and failures, by the interval between saves")
    axes.set_xlabel("work between two saves")
    axes.set_ylabel("time lost per time of work")
    axes.legend(loc="upper center", fontsize=9)
    return figure


# ---- the page ----


def _failures_table(failures: Sequence[Failure]) -> str:
    if not failures:
        return "<p>None of the runs failed.</p>"
    head = ("when (UTC)", "attempt", "what", "saved up to", "went on from", "work lost", "down")
    lines = ["<tr>" + "".join(f"<th>{name}</th>" for name in head) + "</tr>"]
    for failure in failures:
        run = failure.run
        steps = "" if failure.lost_steps is None else f", about {failure.lost_steps} steps"
        cells = (
            time_text(run.ended),
            run.attempt,
            f"{run.how}: {run.why}" if run.why else run.how,
            "–" if run.saved is None else f"step {run.saved}",
            "the beginning" if failure.usable is None else f"step {failure.usable}",
            span(failure.lost_s) + steps,
            span(failure.down_s),
        )
        lines.append(
            "<tr>" + "".join(f"<td>{_drawing.escape(str(c))}</td>" for c in cells) + "</tr>"
        )
    return f"<table>{''.join(lines)}</table>"


def _interval_text(best: Interval) -> str:
    mtbf = f"one in {span(1 / best.rate)}"
    if best.failures:
        bounds = f"one in {span(1 / best.rate_high)} to one in {span(1 / best.rate_low)}"
        rate = (
            f"{best.failures} failures in {span(best.run_s)} of running, {mtbf}; so few show only "
            f"that the rate lies between {bounds} ({CONFIDENCE:.0%}, Garwood)."
        )
    else:
        rate = (
            f"No failure in {span(best.run_s)} of running shows only that failures are rarer "
            f"than one in {span(1 / best.rate_high)} ({CONFIDENCE:.0%}, Garwood). The curve "
            f"assumes {mtbf}: as if there had been one in a day before."
        )
    return (
        f"<p>A save cost training {span(best.cost)} on average (its stall, without the load "
        f"that writing puts on a busy machine), a restart {span(best.restart)}. {rate}</p>"
        f"<p>Least is lost by saving every <b>{span(best.daly)}</b> (Daly 2006, equation 37; "
        f"{span(best.daly_low)} to {span(best.daly_high)} within the bounds), or "
        f"{span(best.young)} to first order (Young 1974): {percent(best.least)} of the time of "
        f"work. This job saved every <b>{span(best.measured)}</b>, where "
        f"{percent(best.predicted)} is expected and {percent(best.overhead)} was measured.</p>"
    )


def _checkpoints(history: History, out: Path) -> tuple[list[tuple[str, str]], list[str]]:
    """Draws the cost of saving; returns the summary, and parts of the page."""
    plots = _drawing.plots()
    failures = history.failures()
    best = find_interval(history, failures)
    saves = draw_saves(history)
    saves.savefig(out / "saves.png", dpi=130)
    parts = [
        "<h2>Saves</h2>",
        _drawing.picture(saves, "Stall, throughput, size and step of every save over time"),
        "<h2>Failures</h2>",
        _failures_table(failures),
        "<h2>How often to save</h2>",
    ]
    plots.close(saves)
    if best is None:
        parts.append("<p>There are too few saves yet to say anything.</p>")
    else:
        interval = draw_interval(best)
        interval.savefig(out / "interval.png", dpi=130)
        picture = _drawing.picture(interval, "Expected overhead by interval")
        parts += [_interval_text(best), picture]
        plots.close(interval)
    return summarise(history, failures, best), parts


def _read(root: Path) -> tuple[History, Training | None]:
    """The history, and the training if any. Raises FileNotFoundError if there is neither."""
    training = _training_report.read(root)
    try:
        history = _history.read(root)
    except FileNotFoundError:
        if training is None:
            raise
        return History(), training
    if not history.rows and training is None:
        raise FileNotFoundError(f"{root}: its history has no rows yet")
    return history, training


def write_report(root: Path, out: Path, beside: Sequence[Path] = ()) -> list[tuple[str, str]]:
    """Writes ``report.html`` and its pictures to ``out``; returns the summary.

    ``beside``: other runs of elastic training, drawn beside that of ``root``. Raises
    FileNotFoundError if one of them has no history.
    """
    history, training = _read(root)
    runs = [(root, training), *((place, _training_report.read(place)) for place in beside)]
    for place, run in runs if beside else []:
        if run is None:
            raise FileNotFoundError(f"{place}: there is no {_training.FILE}: nothing was trained")
    facts: list[tuple[str, str]] = []
    parts: list[str] = []
    plots = _drawing.plots()
    out.mkdir(parents=True, exist_ok=True)
    with plots.rc_context(_drawing.STYLE):
        if training is not None:
            facts += _training_report.summarise(training)
            parts.append(_training_report.section([run for _, run in runs if run], out))
        if history.rows:
            of_saves, pictures = _checkpoints(history, out)
            facts += of_saves
            parts += pictures
    name = _drawing.escape(root.name or str(root))
    rows = len(history.rows) + (len(training.rows) if training is not None else 0)
    listed = "".join(f"<dt>{n}</dt><dd>{_drawing.escape(v)}</dd>" for n, v in facts)
    note = (
        f'<p class="note">Made by pawl {_drawing.escape(_core.version)} from '
        f"{_drawing.escape(_fetched.named(root))}: {rows} rows.</p>"
    )
    page = (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{name}</title>'
        f"<style>{_drawing.CSS}</style><body><h1>{name}</h1><dl>{listed}</dl>"
        f"{''.join(parts)}{note}</body></html>\n"
    )
    (out / "report.html").write_text(page, encoding="utf-8")
    return facts


def _since(text: str) -> float:
    """Seconds since 1970 of ``2d``, ``12h``, ``90m``, ``30s`` before now, or of a time in UTC."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([dhms])", text)
    if found:
        return time.time() - float(found[1]) * {"d": 86400, "h": 3600, "m": 60, "s": 1}[found[2]]
    try:
        at = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text}: must be an age such as 2d, 12h, 90m or 30s, or a time as in 2026-11-20T12:00"
        ) from None
    return (at if at.tzinfo else at.replace(tzinfo=timezone.utc)).timestamp()


def _report_cluster(options: argparse.Namespace) -> list[tuple[str, str]]:
    """Prints JSON if requested; draws, unless only JSON is requested. Returns the lines to print.

    Errors as of reading; the error of a damaged file in a scheduler's directory contains a remedy.
    """
    places = [options.root, *options.beside]
    try:
        until = time.time() if options.live else 0.0
        clusters = _cluster_report.read(places, options.since, until)
    except PermissionError as reason:
        raise PermissionError(
            f"{reason.filename}: permission denied: only the user who runs the scheduler, and "
            "the group that `pawl sched --group` names, may read it"
        ) from None
    except ValueError as reason:
        if options.root.is_dir():
            raise ValueError(
                f"{reason}; move that file away to draw the others without it"
            ) from None
        raise
    if options.json:
        print(json.dumps([_cluster_report.figures(cluster) for cluster in clusters], indent=2))
    if options.json and options.out is None:
        return []
    options.out = options.out or CLUSTER_OUT
    return _cluster_report.write_report(clusters, options.out)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("pawl report", description="A report on a job's root.")
    parser.add_argument("root", metavar="ROOT", help="directory or bucket of the checkpoints")
    parser.add_argument("--out", type=Path, metavar="DIR", help="made if missing")
    parser.add_argument(
        "--beside",
        action="append",
        default=[],
        metavar="ROOT",
        help="another run of elastic training, drawn beside it; may be given again",
    )
    parser.add_argument(
        "--cluster", action="store_true", help="ROOT is the history of a cluster, as are others"
    )
    parser.add_argument(
        "--since", type=_since, default=0.0, metavar="TIME", help="of a cluster: from then on"
    )
    parser.add_argument(
        "--live", action="store_true", help="the cluster's scheduler runs: until now"
    )
    parser.add_argument("--json", action="store_true", help="of a cluster: its figures")
    parser.add_argument(
        "--pipeline", action="store_true", help="ROOT is the trace of a pipeline, as are others"
    )
    return parser


def _report(options: argparse.Namespace) -> None:
    """Writes what the options ask for, and prints its summary."""
    options.root = _fetched.place(options.root)
    options.beside = [_fetched.place(place) for place in options.beside]
    if options.pipeline:
        _pipeline_report.write_picture([options.root, *options.beside], options.out)
        return
    options.root = options.root.resolve()
    options.beside = [place.resolve() for place in options.beside]
    if options.cluster:
        facts = _report_cluster(options)
    else:
        facts = write_report(options.root, options.out, options.beside)
    if options.json:
        return
    for name, value in facts:
        print(f"{name:12}{value}")
    print(f"{'written to':12}{options.out / 'report.html'}")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command. Returns an exit code (docs/exit-codes.md)."""
    parser = _parser()
    options = parser.parse_args(argv)
    if options.out is None and not options.cluster:
        parser.error("--out is missing")
    if options.pipeline and options.out.suffix not in _pipeline_report.SUFFIXES:
        parser.error(f"--out {options.out}: a name that ends in .png or .svg is needed")
    command = "pawl pipe draw" if options.pipeline else "pawl report"
    try:
        _report(options)
    except ValueError as reason:
        print(f"{command}: {reason}", file=sys.stderr)
        return EXIT_DAMAGED
    except FileNotFoundError as reason:
        print(f"{command}: {_fetched.named(reason)}", file=sys.stderr)
        return EXIT_NOTHING
    except (OSError, PawlError) as reason:
        print(f"{command}: {reason}", file=sys.stderr)
        return EXIT_FAILURE
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `| head` ends it, as it ends any program
    sys.exit(main())
