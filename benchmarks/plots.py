"""The ratios of a run as a picture: a bar for each workload, on a logarithmic scale, beside what is wanted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

__all__ = ["plot"]


def plot(rows: list[dict[str, Any]], path: Path) -> None:
    """Write the picture; needs matplotlib."""
    from matplotlib.figure import Figure

    listed = rows[::-1]  # the first one on top
    figure = Figure(figsize=(9, 1 + 0.24 * len(listed)), layout="constrained")
    axes = figure.add_subplot()
    places = range(len(listed))
    ratios = [row["threads_1"]["ratio"] for row in listed]
    colours = ["tab:green" if row["threads_1"]["ratio"] >= row["target"] else "tab:red" for row in listed]
    axes.barh(places, [r - 1 for r in ratios], left=1, color=colours)
    axes.scatter([row["target"] for row in listed], places, marker="|", color="black", zorder=2, label="wanted")
    axes.axvline(1, color="grey", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_yticks(places, [row["name"] for row in listed], fontsize=7)
    axes.set_xlabel("the best peer's time / ours, one thread")
    axes.margins(y=0.01)
    axes.legend(loc="lower right")
    figure.savefig(path, dpi=120)
