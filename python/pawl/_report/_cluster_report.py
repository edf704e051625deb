"""The picture of a cluster: nodes over time, coloured by job, and how many jobs ran and waited."""

from __future__ import annotations

import colorsys
import statistics
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pawl import _core
from pawl._report import _cluster_history, _drawing
from pawl._report._cluster_history import Cluster, Job, Stay
from pawl._report._drawing import plain, span

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

_GOLDEN: Final = 0.6180339887  # part of a circle between the hues of two jobs
_LIGHTNESS: Final = (0.42, 0.58, 0.74)
_POOLS: Final = ("#EFEFEF", "#FBF3DC", "#E3EEF7", "#E9F3E6")  # nodes without jobs, by pool
_MARK: Final = "#555555"  # nodes that are drained, and times of which nothing was written
_AWAY: Final = "#F6D9CF"  # times without a scheduler
_JOBS_NAMED: Final = 16  # jobs in the legend
_LANES_NAMED: Final = 40  # rows with a node's name
_NAME_SHOWN: Final = 24  # letters of a name in the legend
_WIDTH_INCH: Final = 9.5  # width of the picture of nodes, about
_LETTER_INCH: Final = 0.065  # width of a letter of a job's name in the picture
_LINE_INCH: Final = 0.165  # height of a line of the legend
_MANY: Final = 4000  # more stays than this are drawn as pixels, in the SVG as well
_LINES: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_JOBS_SHOWN: Final = 2000  # jobs in the table


def color_of(job: Job) -> str:
    red, green, blue = colorsys.hls_to_rgb(
        job.number * _GOLDEN % 1, _LIGHTNESS[job.number % len(_LIGHTNESS)], 0.65
    )
    return f"#{round(red * 255):02x}{round(green * 255):02x}{round(blue * 255):02x}"


def _part(numbers: Sequence[float], share: float) -> float | None:
    """Element floor(share n) of n, ascending, as `pawl sim` takes it; None if
    there are no numbers.
    """
    ascending = sorted(numbers)
    return ascending[min(int(share * len(ascending)), len(ascending) - 1)] if ascending else None


def _seconds(cluster: Cluster, *, slots: bool = False, spot: bool = False) -> float:
    """Seconds that nodes were there, summed; slots: times their slots; spot: of spot nodes only."""
    return sum(
        (node.ended - node.begun) * (node.slots if slots else 1)
        for node in cluster.nodes
        if node.spot or not spot
    )


def figures(cluster: Cluster) -> dict[str, Any]:
    """The figures by the names that `pawl sim --json` has; None: not known.

    Completion times are of jobs that are done; replicas are of all jobs.
    """
    done = [job for job in cluster.jobs.values() if job.ended is not None and job.end == "done"]
    ends = [job.ended for job in done if job.ended is not None]
    took = [job.ended - job.submitted for job in done if job.ended is not None]
    changes = sum(job.changes for job in cluster.jobs.values())
    used = sum(job.slot_s for job in cluster.jobs.values())
    node_s, slot_s = _seconds(cluster), _seconds(cluster, slots=True)
    period = cluster.ended - cluster.begun
    priced = [node for node in cluster.nodes if node.price > 0]
    return {
        "workload": cluster.name,
        "policy": cluster.policy,
        "from": cluster.begun,
        "until": cluster.ended,
        "jobs": len(cluster.jobs),
        "done": len(done),
        "failed": sum(job.end == "failed" for job in cluster.jobs.values()),
        "cancelled": sum(job.end == "cancelled" for job in cluster.jobs.values()),
        "avg_jct_s": statistics.fmean(took) if took else None,
        "p50_jct_s": _part(took, 0.5),
        "p99_jct_s": _part(took, 0.99),
        "makespan_s": max(ends) - cluster.zero if ends else None,
        "restarts_per_job": changes / len(cluster.jobs) if cluster.jobs else None,
        "utilisation": used / slot_s if slot_s else None,
        "cost_h": used / 3600,
        "cost": sum((n.ended - n.begun) / 3600 * n.price for n in priced) if priced else None,
        "nodes_avg": node_s / period if period > 0 else None,
        "spot_share": _seconds(cluster, spot=True) / node_s if node_s else None,
        "away_s": sum(ended - begun for begun, ended in cluster.away),
        "lost_s": sum(ended - begun for begun, ended in cluster.lost),
    }


def _when(cluster: Cluster, time: float) -> str:
    return f"{time / 3600:.2f} h" if cluster.virtual else _drawing.time_text(time)


def summarise(cluster: Cluster) -> list[tuple[str, str]]:
    """Name and value of each line of a run's summary."""
    known = figures(cluster)
    ended = sum(job.ended is not None for job in cluster.jobs.values())
    period = span(cluster.ended - cluster.begun)
    facts = []
    if not cluster.virtual:
        times = f"{_when(cluster, cluster.begun)} to {_when(cluster, cluster.ended)} UTC"
        facts.append(("time", f"{times}, {period}"))
    facts.append(("jobs", f"{len(cluster.jobs)}, {ended} of them ended"))
    if known["failed"] or known["cancelled"]:
        ends = [f"{known[how]} {how}" for how in ("failed", "cancelled") if known[how]]
        facts.append(("not done", ", ".join(ends)))
    if known["avg_jct_s"] is not None:
        times = [span(known[name]) for name in ("avg_jct_s", "p50_jct_s", "p99_jct_s")]
        facts.append(
            ("completion", f"average {times[0]}, half within {times[1]}, 99 % within {times[2]}")
        )
    if cluster.virtual:
        facts.append(("until", f"{period} after the first row"))
    cost = "" if known["cost"] is None else f", cost {known['cost']:.3g}"
    facts.append(("nodes", f"{_seconds(cluster) / 3600:.3g} h of them{cost}"))
    used = known["utilisation"]
    facts.append(("slots used", "none" if used is None else f"{100 * used:.0f} %"))
    facts.append(("changes", f"{known['restarts_per_job'] or 0:.1f} of a job's replicas"))
    if cluster.away:
        facts.append(("away", f"no scheduler ran for {span(known['away_s'])}; jobs did"))
    if cluster.lost:
        facts.append(("lost", f"{span(known['lost_s'])} could not be written, and are blank"))
    return facts


# ---- the picture ----


class _Axis:
    """Times as matplotlib draws them: hours of a simulator, dates of a clock."""

    def __init__(self, cluster: Cluster) -> None:
        from matplotlib import dates

        self._virtual = cluster.virtual
        self._zero = cluster.zero if cluster.virtual else 0.0
        self._unit = 3600 if cluster.virtual else 86400
        self._base = 0.0 if cluster.virtual else float(dates.date2num(_drawing.dates([0.0])[0]))

    def at(self, time: float) -> float:
        return self._base + (time - self._zero) / self._unit

    def label(self, axes: Any) -> None:
        from matplotlib import dates

        if self._virtual:
            axes.set_xlabel("hours")
            return
        locator = dates.AutoDateLocator(minticks=4, maxticks=10)
        axes.xaxis.set_major_locator(locator)
        formatter = dates.ConciseDateFormatter(locator, tz="UTC")
        formatter.formats[5] = "%H:%M:%S"  # shows whole seconds where the locator steps by less
        axes.xaxis.set_major_formatter(formatter)
        axes.set_xlabel("time, UTC")


def _bars(axes: Any, cluster: Cluster, axis: _Axis) -> None:
    from matplotlib import collections

    def boxes(items: Sequence[Any]) -> list[list[tuple[float, float]]]:
        return [
            _box(axis.at(item.begun), axis.at(item.ended), item.lane, item.lane + 1)
            for item in items
        ]

    pools = sorted({node.pool for node in cluster.nodes})
    faces = [_POOLS[pools.index(node.pool) % len(_POOLS)] for node in cluster.nodes]
    axes.add_collection(
        collections.PolyCollection(boxes(cluster.nodes), facecolors=faces, linewidths=0)
    )
    shapes, colors = [], []
    for stay in cluster.stays:
        low = stay.lane + stay.slot / stay.of
        high = stay.lane + (stay.slot + stay.slots) / stay.of
        shapes.append(_box(axis.at(stay.begun), axis.at(stay.ended), low, high))
        colors.append(color_of(cluster.jobs[stay.job]))
    axes.add_collection(
        collections.PolyCollection(
            shapes,
            facecolors=colors,
            edgecolors="white",
            linewidths=0 if len(shapes) > _MANY else 0.15,
            rasterized=len(shapes) > _MANY,
        )
    )
    axes.add_collection(
        collections.PolyCollection(
            boxes(cluster.drained), facecolors="none", edgecolors=_MARK, hatch="////", linewidths=0
        )
    )
    for begun, ended in cluster.lost:
        axes.axvspan(axis.at(begun), axis.at(ended), color=_MARK, alpha=0.25, lw=0)
    axes.set_ylim(cluster.lanes, 0)
    axes.grid(False)
    _name_lanes(axes, cluster)


def _name_lanes(axes: Any, cluster: Cluster) -> None:
    """Names the rows by their nodes, as many as there is room for."""
    names: dict[int, list[str]] = {}
    for node in cluster.nodes:
        of = names.setdefault(node.lane, [])
        if node.name not in of:
            of.append(node.name)
    each = -(-cluster.lanes // _LANES_NAMED)
    lanes = sorted(names)[::each]
    texts = [
        names[lane][0] if len(names[lane]) == 1 else f"{names[lane][0]} and {len(names[lane]) - 1}"
        for lane in lanes
    ]
    axes.set_yticks([lane + 0.5 for lane in lanes], [plain(text) for text in texts], fontsize=7)
    axes.tick_params(axis="y", length=0)


def _write_names(axes: Any, cluster: Cluster, axis: _Axis, rows_inch: float) -> None:
    """Writes each job's name into its largest box, if it fits there."""
    best: dict[int, Stay] = {}
    for stay in cluster.stays:
        known = best.get(stay.job)
        if known is None or stay.slot_s / stay.of > known.slot_s / known.of:
            best[stay.job] = stay
    inch = _WIDTH_INCH / max(cluster.ended - cluster.begun, 1e-9)
    for stay in best.values():
        name = cluster.jobs[stay.job].name
        wide = (stay.ended - stay.begun) * inch
        high = rows_inch * stay.slots / stay.of
        if wide < _LETTER_INCH * len(name) or high < _LETTER_INCH * 1.6:
            continue
        axes.text(
            axis.at((stay.begun + stay.ended) / 2),
            stay.lane + (stay.slot + stay.slots / 2) / stay.of,
            plain(name),
            fontsize=7,
            color="white" if cluster.jobs[stay.job].number % len(_LIGHTNESS) == 0 else "black",
            ha="center",
            va="center",
            clip_on=True,
        )


def _legend(cluster: Cluster) -> list[Patch]:
    """The jobs that had most, and the other marks in the picture."""
    from matplotlib.patches import Patch

    jobs = sorted(cluster.jobs.values(), key=lambda job: job.slot_s, reverse=True)
    jobs = [job for job in jobs if job.slot_s > 0]
    handles = [
        Patch(color=color_of(job), label=plain(f"{job.id} {_short(job.name)}"))
        for job in jobs[:_JOBS_NAMED]
    ]
    if len(jobs) > _JOBS_NAMED:
        handles.append(Patch(color="none", label=f"… {len(jobs) - _JOBS_NAMED} more: the table"))
    pools = sorted({node.pool for node in cluster.nodes})
    for i, pool in enumerate(pools[: len(_POOLS)]):
        named = f"free, pool {_short(pool)}" if pool else "free"
        handles.append(Patch(facecolor=_POOLS[i], ec="#CCCCCC", label=plain(named)))
    if cluster.drained:
        handles.append(Patch(facecolor="none", ec=_MARK, hatch="////", lw=0, label="drained"))
    if cluster.lost:
        handles.append(Patch(color=_MARK, alpha=0.25, label="not written"))
    if cluster.away:
        handles.append(Patch(color=_AWAY, label="no scheduler"))
    return handles


def _short(name: str) -> str:
    return name if len(name) <= _NAME_SHOWN else name[: _NAME_SHOWN - 1] + "…"


def _box(left: float, right: float, low: float, high: float) -> list[tuple[float, float]]:
    return [(left, low), (right, low), (right, high), (left, high)]


def count_jobs(cluster: Cluster) -> tuple[list[float], list[int], list[int]]:
    """Times, and from each on the number of jobs that run, and of those that wait."""
    events: dict[float, list[int]] = {}
    busy: dict[int, list[tuple[float, float]]] = {}
    for stay in cluster.stays:
        busy.setdefault(stay.job, []).append((stay.begun, stay.ended))
    for job in cluster.jobs.values():
        until = cluster.ended if job.ended is None else job.ended
        events.setdefault(job.submitted, [0, 0])[1] += 1
        events.setdefault(until, [0, 0])[1] -= 1
        for begun, ended in _union(busy.get(job.id, [])):
            events.setdefault(begun, [0, 0])[0] += 1
            events.setdefault(ended, [0, 0])[0] -= 1
    times, running, waiting = [], [], []
    runs = here = 0
    for time in sorted(events):
        runs += events[time][0]
        here += events[time][1]
        times.append(time)
        running.append(runs)
        waiting.append(max(here - runs, 0))
    return times, running, waiting


def _union(spans: list[tuple[float, float]]) -> list[tuple[float, float]]:
    found: list[tuple[float, float]] = []
    for begun, ended in sorted(spans):
        if found and begun <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], ended))
        else:
            found.append((begun, ended))
    return found


def _lines(axes: Any, clusters: Sequence[Cluster]) -> None:
    """Draws how many jobs run and wait."""
    for i, cluster in enumerate(clusters):
        axis = _Axis(cluster)
        times, running, waiting = count_jobs(cluster)
        at = [axis.at(time) for time in times]
        color = _LINES[i % len(_LINES)]
        of = "" if len(clusters) == 1 else f"{plain(cluster.name)}: "
        axes.step(at, running, where="post", color=color, lw=1.4, label=f"{of}run")
        axes.step(at, waiting, where="post", color=color, lw=1.0, ls=":", label=f"{of}wait")
        for begun, ended in cluster.away:
            axes.axvspan(axis.at(begun), axis.at(ended), color=_AWAY, lw=0)
    begins = [_Axis(cluster).at(cluster.begun) for cluster in clusters]
    ends = [_Axis(cluster).at(max(cluster.ended, cluster.begun + 1)) for cluster in clusters]
    axes.set(title="Jobs", ylabel="jobs", xlim=(min(begins), max(ends)))
    axes.set_ylim(bottom=0)
    axes.yaxis.get_major_locator().set_params(integer=True)
    axes.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.005, 1.0))
    _Axis(clusters[0]).label(axes)


def draw(clusters: Sequence[Cluster]) -> Figure:
    """Draws each cluster's nodes, one above the other, and below them the jobs of all."""
    plots = _drawing.plots()
    count = len(clusters)
    most = 7.5 if count == 1 else 4.5
    legends = [_legend(cluster) for cluster in clusters]
    heights = [
        max(1.6, min(0.2 * cluster.lanes, most), _LINE_INCH * (len(legend) + 1))
        for cluster, legend in zip(clusters, legends, strict=True)
    ]
    figure, panels = plots.subplots(
        count + 1,
        1,
        figsize=(12.5, sum(heights) + 0.5 * count + 2.4),
        sharex=True,
        layout="constrained",
        height_ratios=[*heights, 1.8],
    )
    for axes, cluster, height, legend in zip(panels, clusters, heights, legends, strict=False):
        axis = _Axis(cluster)
        _bars(axes, cluster, axis)
        _write_names(axes, cluster, axis, height / max(cluster.lanes, 1))
        axes.legend(handles=legend, fontsize=7, loc="upper left", bbox_to_anchor=(1.005, 1.0))
        axes.set(title=plain(f"{cluster.name}: nodes, coloured by job"), ylabel="node")
    _lines(panels[-1], clusters)
    return figure


# ---- the page ----


def _table(cluster: Cluster) -> str:
    head = ["", "job", "submitted", "waited", "took", "slots, on average", "changes", "end"]
    head[2:2] = ["of"] if cluster.virtual else ["user", "queue"]
    head += [] if cluster.virtual else ["goodput", "batch", "why"]
    lines = ["<tr>" + "".join(f"<th>{name}</th>" for name in head) + "</tr>"]
    for job in list(cluster.jobs.values())[:_JOBS_SHOWN]:
        swatch = f'<td style="background:{color_of(job)}">&nbsp;</td>'
        cells = _cells(cluster, job)
        lines.append(f"<tr>{swatch}" + "".join(f"<td>{_cell(c)}</td>" for c in cells) + "</tr>")
    more = len(cluster.jobs) - _JOBS_SHOWN
    left = f'<p class="note">… and {more} more.</p>' if more > 0 else ""
    return f"<table>{''.join(lines)}</table>{left}"


def _cell(value: object) -> str:
    return _drawing.escape(str(value))


def _cells(cluster: Cluster, job: Job) -> list[object]:
    until = cluster.ended if job.ended is None else job.ended
    begun = until if job.begun is None else job.begun
    ran = until - max(begun, cluster.begun)
    cells: list[object] = [
        job.name if cluster.virtual else f"{job.id} {job.name}",
        *([job.kind] if cluster.virtual else [job.user, job.queue]),
        _when(cluster, job.submitted),
        span(begun - job.submitted),
        span(until - job.submitted),
        f"{job.slot_s / ran:.1f}" if ran > 0 and job.begun is not None else "–",
        job.changes,
        job.end or "–",
    ]
    if not cluster.virtual:
        goodput = "–" if job.goodput is None else f"{job.goodput:.4g} samples/s"
        cells += [goodput, "–" if job.batch is None else job.batch, job.why]
    return cells


def _beside(clusters: Sequence[Cluster]) -> str:
    """The clusters' summaries, a column for each."""
    facts = [dict(summarise(cluster)) for cluster in clusters]
    lines = ["<tr><th></th>" + "".join(f"<th>{_drawing.escape(c.name)}</th>" for c in clusters)]
    for name in facts[0]:
        lines.append(
            f"<tr><td>{name}</td>"
            + "".join(f"<td>{_drawing.escape(each.get(name, '–'))}</td>" for each in facts)
        )
    return f"<table>{'</tr>'.join(lines)}</tr></table>"


def read(roots: Sequence[Path], since: float = 0.0, until: float = 0.0) -> list[Cluster]:
    """Reads each root. ``since`` and ``until``: see ``_cluster_history.read``; ``until`` is
    for the first root.

    Raises FileNotFoundError; ValueError naming a file that is not a history, and where.
    """
    clusters = [
        _cluster_history.read(path, since, until if place == 0 else 0.0)
        for place, path in enumerate(roots)
    ]
    if len({cluster.virtual for cluster in clusters}) > 1:
        raise ValueError("a simulator's history has no clock: it is not drawn beside a live one")
    return clusters


def write_report(clusters: Sequence[Cluster], out: Path) -> list[tuple[str, str]]:
    """Writes ``report.html`` and ``cluster.png`` to ``out``; returns the summary of the first."""
    plots = _drawing.plots()
    out.mkdir(parents=True, exist_ok=True)
    with plots.rc_context(_drawing.STYLE), warnings.catch_warnings():
        # Names of jobs may be in any script.
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        figure = draw(clusters)
        figure.savefig(out / "cluster.png", dpi=130)
        picture = _drawing.picture(figure, "Nodes over time, coloured by job; jobs below")
        plots.close(figure)
    parts = [_beside(clusters), picture]
    for cluster in clusters:
        parts.append(f"<h2>{_drawing.escape(cluster.name)}: jobs</h2>")
        parts.append(_table(cluster))
    name = _drawing.escape(clusters[0].name if len(clusters) == 1 else "Clusters side by side")
    note = f'<p class="note">Made by pawl {_drawing.escape(_core.version)}.</p>'
    page = (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{name}</title>'
        f"<style>{_drawing.CSS}</style><body><h1>{name}</h1>{''.join(parts)}{note}</body></html>\n"
    )
    (out / "report.html").write_text(page, encoding="utf-8")
    return summarise(clusters[0])
