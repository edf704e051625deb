"""The picture of a cluster: nodes over time, coloured by job, and how many jobs ran and waited."""

from __future__ import annotations

import colorsys
import html
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pawl import _cluster, _core, _drawing
from pawl._cluster import Cluster, Job
from pawl._drawing import span

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_GOLDEN: Final = 0.6180339887  # of a circle, between the hues of two jobs
_LIGHTNESS: Final = (0.42, 0.58, 0.74)
_POOLS: Final = ("#EFEFEF", "#FBF3DC", "#E3EEF7", "#E9F3E6")  # nodes that nobody is on, by pool
_MANY: Final = 4000  # stays that are drawn as pixels in the SVG, too
_LINES: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_JOBS_SHOWN: Final = 2000  # in the table


def color_of(job: Job) -> str:
    red, green, blue = colorsys.hls_to_rgb(
        job.number * _GOLDEN % 1, _LIGHTNESS[job.number % len(_LIGHTNESS)], 0.65
    )
    return f"#{round(red * 255):02x}{round(green * 255):02x}{round(blue * 255):02x}"


def summarise(cluster: Cluster) -> list[tuple[str, str]]:
    """Name and value of what is said of a run."""
    ended = [job for job in cluster.jobs.values() if job.ended is not None]
    took = [job.ended - job.submitted for job in ended if job.ended is not None]
    node_s = sum(node.ended - node.begun for node in cluster.nodes)
    slot_s = sum((node.ended - node.begun) * node.slots for node in cluster.nodes)
    cost = sum((node.ended - node.begun) / 3600 * node.price for node in cluster.nodes)
    used = sum(job.slot_s for job in cluster.jobs.values())
    changes = sum(job.changes for job in cluster.jobs.values()) / max(len(cluster.jobs), 1)
    facts = [("jobs", f"{len(cluster.jobs)}, {len(ended)} of them ended")]
    if took:
        facts.append(("completion", f"average {span(statistics.fmean(took))}"))
    facts.append(("until", f"{span(cluster.ended - cluster.begun)} after the first row"))
    facts.append(("nodes", f"{node_s / 3600:.0f} h of them, cost {cost:.0f}"))
    facts.append(("slots used", f"{100 * used / slot_s:.0f} %" if slot_s else "none"))
    facts.append(("changes", f"{changes:.1f} of a job's replicas"))
    return facts


# ---- the picture ----


def _bars(axes: Any, cluster: Cluster) -> None:
    from matplotlib import collections

    def hours(time: float) -> float:
        return (time - cluster.zero) / 3600

    pools = sorted({node.pool for node in cluster.nodes})
    axes.add_collection(
        collections.PolyCollection(
            [
                _box(hours(node.begun), hours(node.ended), node.lane, node.lane + 1)
                for node in cluster.nodes
            ],
            facecolors=[_POOLS[pools.index(node.pool) % len(_POOLS)] for node in cluster.nodes],
            linewidths=0,
        )
    )
    boxes, colors = [], []
    for stay in cluster.stays:
        low = stay.lane + stay.slot / stay.of
        high = stay.lane + (stay.slot + stay.slots) / stay.of
        boxes.append(_box(hours(stay.begun), hours(stay.ended), low, high))
        colors.append(color_of(cluster.jobs[stay.job]))
    axes.add_collection(
        collections.PolyCollection(
            boxes,
            facecolors=colors,
            edgecolors="white",
            linewidths=0.15,
            rasterized=len(boxes) > _MANY,
        )
    )
    axes.set_ylim(cluster.lanes, 0)
    axes.grid(False)


def _box(left: float, right: float, low: float, high: float) -> list[tuple[float, float]]:
    return [(left, low), (right, low), (right, high), (left, high)]


def count_jobs(cluster: Cluster) -> tuple[list[float], list[int], list[int]]:
    """Times, and from each on the jobs that run, and those that wait."""
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


def draw(clusters: Sequence[Cluster]) -> Figure:
    """Each its nodes, one above the other, and below the jobs of all."""
    plots = _drawing.plots()
    count = len(clusters)
    heights = [max(1.6, min(0.16 * cluster.lanes, 4.5)) for cluster in clusters]
    figure, panels = plots.subplots(
        count + 1,
        1,
        figsize=(11, sum(heights) + 0.5 * count + 2.4),
        sharex=True,
        layout="constrained",
        height_ratios=[*heights, 1.8],
    )
    for axes, cluster in zip(panels, clusters, strict=False):
        _bars(axes, cluster)
        axes.set(title=f"{cluster.name}: nodes, coloured by job", ylabel="node")
    below = panels[-1]
    for i, cluster in enumerate(clusters):
        times, running, waiting = count_jobs(cluster)
        hours = [(time - cluster.zero) / 3600 for time in times]
        color = _LINES[i % len(_LINES)]
        below.step(hours, running, where="post", color=color, lw=1.4, label=f"{cluster.name}: run")
        below.step(hours, waiting, where="post", color=color, lw=1.0, ls=":", label="wait")
    ends = [(cluster.ended - cluster.zero) / 3600 for cluster in clusters]
    begins = [(cluster.begun - cluster.zero) / 3600 for cluster in clusters]
    below.set(title="Jobs", ylabel="jobs", xlabel="hours", xlim=(min(begins), max(ends)))
    below.set_ylim(bottom=0)
    below.legend(fontsize=8, ncols=2)
    return figure


# ---- the page ----


def _table(cluster: Cluster) -> str:
    head = ("", "job", "of", "submitted", "waited", "took", "slots, on average", "changes", "end")
    lines = ["<tr>" + "".join(f"<th>{name}</th>" for name in head) + "</tr>"]
    for job in list(cluster.jobs.values())[:_JOBS_SHOWN]:
        until = cluster.ended if job.ended is None else job.ended
        ran = until - job.begun if job.begun is not None else 0.0
        cells = (
            job.name,
            job.kind,
            f"{(job.submitted - cluster.zero) / 3600:.2f} h",
            span((until if job.begun is None else job.begun) - job.submitted),
            span(until - job.submitted),
            f"{job.slot_s / ran:.1f}" if ran > 0 else "–",
            job.changes,
            job.end or "–",
        )
        swatch = f'<td style="background:{color_of(job)}">&nbsp;</td>'
        lines.append(
            f"<tr>{swatch}" + "".join(f"<td>{html.escape(str(c))}</td>" for c in cells) + "</tr>"
        )
    return f"<table>{''.join(lines)}</table>"


def _beside(clusters: Sequence[Cluster]) -> str:
    """The summaries, a column for each."""
    facts = [dict(summarise(cluster)) for cluster in clusters]
    lines = ["<tr><th></th>" + "".join(f"<th>{html.escape(c.name)}</th>" for c in clusters)]
    for name in facts[0]:
        lines.append(
            f"<tr><td>{name}</td>"
            + "".join(f"<td>{html.escape(each.get(name, '–'))}</td>" for each in facts)
        )
    return f"<table>{'</tr>'.join(lines)}</tr></table>"


def write_report(root: Path, out: Path, beside: Sequence[Path]) -> list[tuple[str, str]]:
    """Writes ``report.html`` and ``cluster.png`` to ``out``; returns the summary of the first.

    FileNotFoundError; ValueError naming a file that is not a history, and where.
    """
    clusters = [_cluster.read(path) for path in (root, *beside)]
    plots = _drawing.plots()
    out.mkdir(parents=True, exist_ok=True)
    with plots.rc_context(_drawing.STYLE):
        figure = draw(clusters)
        figure.savefig(out / "cluster.png", dpi=130)
        picture = _drawing.picture(figure, "Nodes over time, coloured by job; jobs below")
        plots.close(figure)
    parts = [_beside(clusters), picture]
    for cluster in clusters:
        parts.append(f"<h2>{html.escape(cluster.name)}: jobs</h2>")
        parts.append(_table(cluster))
    name = html.escape(clusters[0].name if len(clusters) == 1 else "Clusters side by side")
    note = f'<p class="note">Made by pawl {html.escape(_core.version)}.</p>'
    page = (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{name}</title>'
        f"<style>{_drawing.CSS}</style><body><h1>{name}</h1>{''.join(parts)}{note}</body></html>\n"
    )
    (out / "report.html").write_text(page, encoding="utf-8")
    return summarise(clusters[0])
