"""The demonstration's picture: loss curves with the kills, the checkpoints' life, the stalls."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt

Event = dict[str, Any]
BLUE, ORANGE, GREY, RED, GREEN = "#2a6f97", "#e07a1f", "#8d99ae", "#c1121f", "#3a7d44"


def _events(run: Path) -> list[Event]:
    return [json.loads(line) for line in (run / "log.rank0").read_text().splitlines()]


def _curve(run: list[Event]) -> tuple[list[float], list[float]]:
    """Steps and losses, with a gap where a run went back to a checkpoint."""
    steps: list[float] = []
    losses: list[float] = []
    for event in (e for e in run if e["event"] == "step"):
        if steps and event["step"] <= steps[-1]:
            steps.append(float("nan"))
            losses.append(float("nan"))
        steps.append(event["step"])
        losses.append(event["loss"])
    return steps, losses


def _draw_loss(
    ax: plt.Axes, straight: list[Event], killed: list[Event], kills: list[Event]
) -> None:
    for run, color, name, width in (
        (straight, GREY, "undisturbed", 4.0),
        (killed, BLUE, "killed twice", 1.2),
    ):
        steps, losses = _curve(run)
        ax.plot(steps, losses, color=color, lw=width, label=name)
    for kill in kills:
        ax.axvline(kill["step"], color=RED, lw=1, ls="--")
        ax.text(
            kill["step"] + 0.7,
            ax.get_ylim()[1] * 0.93,
            f"{kill['what']} killed",
            color=RED,
            fontsize=8,
        )
    ax.set_xlabel("step")
    ax.set_ylabel("loss, nats a byte")
    ax.set_title("Both runs lie on one line")
    ax.legend(frameon=False)


def _draw_life(ax: plt.Axes, killed: list[Event], kills: list[Event]) -> None:
    zero = killed[0]["time"]
    for name, color, marker in (("committed", ORANGE, "o"), ("durable", GREEN, "s")):
        seen = [e for e in killed if e["event"] == name]
        ax.plot(
            [e["time"] - zero for e in seen],
            [e["step"] for e in seen],
            marker,
            color=color,
            ms=5,
            label=name,
        )
    saved = [e for e in killed if e["event"] == "save"]
    ax.plot(
        [e["time"] - zero for e in saved],
        [e["step"] for e in saved],
        "|",
        color=BLUE,
        ms=9,
        label="save called",
    )
    for kill in kills:
        at = kill["time"] - zero
        ax.axvspan(at, at + kill["seconds"], color=RED, alpha=0.25, lw=0)
        words = f"{kill['seconds']:.1f} s,\nresumed at {kill['resumed']}"
        ax.text(at + kill["seconds"] + 0.5, kill["resumed"], words, color=RED, fontsize=8, va="top")
    ax.set_xlabel("seconds since the start")
    ax.set_ylabel("step")
    ax.set_title("Checkpoints of the killed run (red: no training)")
    ax.legend(frameon=False, loc="upper left")


def _draw_stalls(ax: plt.Axes, stalls: Event) -> None:
    names = list(stalls["stall"])
    values = [1e3 * statistics.median(stalls["stall"][name]) for name in names]
    bars = ax.barh(names, values, color=[BLUE, GREY, GREY])
    for bar, value in zip(bars, values, strict=True):
        ax.text(
            value, bar.get_y() + bar.get_height() / 2, f"  {value:.1f} ms", va="center", fontsize=9
        )
    ax.set_xlim(0, max(values) * 1.25)
    ax.invert_yaxis()
    ax.set_xlabel("ms of training lost per save (median, next step included)")
    ax.set_title(f"A save of {stalls['bytes'] / 2**20:.0f} MiB")


def draw(path: Path, out: Path, stalls: Event, kills: list[Event]) -> None:
    """Draws the picture from the files in out, and writes it to path."""
    straight, killed = (_events(out / run) for run in ("straight", "killed"))
    fig, axes = plt.subplots(3, 1, figsize=(9, 11), height_ratios=[3, 3, 1.6])
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
    _draw_loss(axes[0], straight, killed, kills)
    _draw_life(axes[1], killed, kills)
    _draw_stalls(axes[2], stalls)
    fig.suptitle("Trained, killed, went on", fontsize=14, fontweight="bold")
    fig.tight_layout()
    fig.savefig(path, dpi=110)
