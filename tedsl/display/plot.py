"""Plots for reports: each takes what the library gives back and `ax=`, and returns the axes, so that figures compose.

matplotlib is imported when something is plotted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from autodiff import Report, differentiate
from tedsl.analysis.work import Work, work
from tedsl.backend.calling.kernel import Kernel
from tedsl.backend.tune import Tuned
from tedsl.lang.errors import user_location
from tedsl.lang.tensor import Tensor
from tedsl.reference import interpret

__all__ = ["benchmark_table", "gradcheck_errors", "index_map", "jacobian_sparsity", "roofline", "tuning_history"]

MOST_LABELS = 24  # of an index map
BLUE, RED, TEAL, GRAY = "#3b7dd8", "#d64550", "#1a9c8a", "#7d8792"
OTHERS = "#9a5b00", "#9058c8"  # of more than three kinds


def _axes(ax: Any, figsize: tuple[float, float] = (5.6, 3.4)) -> Any:
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=figsize, layout="constrained")[1]


def _quiet(ax: Any) -> Any:
    """Two spines and light ticks: the data is what is seen."""
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    ax.tick_params(length=3, color=GRAY)
    return ax


def _plain(axis: Any, values: Iterable[float]) -> None:
    """A logarithmic axis in plain numbers, about five of them over the values that it shows."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    shown = [v for v in values if np.isfinite(v) and v > 0]
    decades = np.log10(max(shown) / min(shown)) if shown else 0.0
    subs = (1.0,) if decades > 2.5 else (1.0, 2.0, 5.0)
    axis.set_major_locator(LogLocator(subs=subs) if decades > 1 else MaxNLocator(5))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.4g}"))
    axis.set_minor_formatter(NullFormatter())


def _whole(axis: Any) -> None:
    """An axis that counts."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def gradcheck_errors(report: Report, *, ax: Any = None) -> Any:
    """The worst error of each pair as a multiple of its tolerance; beyond 1 is wrong, 1e-6 is the least shown."""
    if not isinstance(report, Report):
        raise TypeError(
            f"gradcheck_errors at {user_location()}: expected the report of te.gradcheck(y, x, raise_exception=False), "
            f"found {type(report).__name__}"
        )
    ax = _quiet(_axes(ax, (5.6, 0.7 + 0.34 * len(report.pairs))))
    names = [f"d{p.output}/d{p.input}" for p in report.pairs]
    ratios = [max(p.error / p.tolerance, 1e-6) if p.tolerance else float(p.error > 0) for p in report.pairs]
    floor = min([1e-3, *(r / 3 for r in ratios)])
    places = np.arange(len(names))[::-1]
    colors = [TEAL if p.ok else RED for p in report.pairs]
    ax.barh(places, [r - floor for r in ratios], left=floor, height=0.6, color=colors)
    ax.axvline(1.0, color=ax.xaxis.label.get_color(), linewidth=1, linestyle="--")
    ax.set_xscale("log")
    ax.set_xlim(floor, max([3.0, *(3 * r for r in ratios)]))
    ax.set_yticks(places, names)
    ax.set_xlabel("worst error / tolerance")
    return ax


def roofline(points: Mapping[str, tuple[Any, float]], *, peak_flops: float, bandwidth: float, ax: Any = None) -> Any:
    """Kernels under the roof of a machine: {name: (kernel, tensor or Work, seconds of a call)}.

    `peak_flops` is the machine's arithmetic per second, `bandwidth` its bytes per second. A point on the slope waits
    for memory, one under the flat part for arithmetic; how far below it lies is what a better schedule can win.
    What does no arithmetic has no place under it and is named below.
    """
    ax = _quiet(_axes(ax))
    works = {name: (_work_of(what), seconds) for name, (what, seconds) in points.items()}
    measured = {name: (w, seconds) for name, (w, seconds) in works.items() if w.flops}
    left_out = ", ".join(name for name in works if name not in measured)
    intensities = {name: w.flops / max(w.bytes, 1) for name, (w, _) in measured.items()}
    ridge = peak_flops / bandwidth
    low = min([ridge, *intensities.values()]) / 4
    high = max([ridge, *intensities.values()]) * 4
    x = np.geomspace(low, high, 200)
    ax.plot(x, np.minimum(peak_flops, bandwidth * x) / 1e9, color=GRAY, linewidth=1.5)
    rates = {name: w.flops / seconds / 1e9 for name, (w, seconds) in measured.items()}
    sides = _sides({name: (intensities[name], rate) for name, rate in rates.items()})
    for k, (name, rate) in enumerate(rates.items()):
        ax.plot(intensities[name], rate, "o", color=(BLUE, TEAL, RED, *OTHERS)[k % 5], markersize=7)
        at, align = sides[name]
        ax.annotate(name, (intensities[name], rate), textcoords="offset points", xytext=(at, -3), ha=align, fontsize=9)
    label = f"flops per byte\nwithout arithmetic: {left_out}" if left_out else "flops per byte"
    ax.set(xscale="log", yscale="log", xlabel=label, ylabel="GFLOP/s", xlim=(low, high))
    _plain(ax.xaxis, (low, high))
    _plain(ax.yaxis, ax.get_ylim())
    return ax


def _work_of(what: Any) -> Work:
    if isinstance(what, Work):
        return what
    return work(list(what.outputs) if isinstance(what, Kernel) else what)


def _sides(points: Mapping[str, tuple[float, float]]) -> dict[str, tuple[int, str]]:
    """Where names stand: to the right, and to the left where another one at about the same place is to the right."""
    found: dict[str, tuple[int, str]] = {}
    for name, (x, y) in points.items():
        near = (points[other] for other, (at, _) in found.items() if at > 0)
        is_taken = any(abs(np.log(x / a)) < 1 and abs(np.log(y / b)) < 0.4 for a, b in near)
        found[name] = (-8, "right") if is_taken else (8, "left")
    return found


def tuning_history(tried: Tuned | Sequence[float], *, ax: Any = None) -> Any:
    """The time of each schedule tried, and the best so far: what `te.tune` gave, or seconds.

    Schedules that failed have no finite time and are left out.
    """
    ax = _quiet(_axes(ax))
    seconds = [t.seconds for t in tried.history] if isinstance(tried, Tuned) else tried
    times = np.asarray(seconds, dtype=np.float64) * 1e3
    trials = np.arange(1, times.size + 1)
    known = np.isfinite(times)
    best = np.minimum.accumulate(np.where(known, times, np.inf))
    ax.plot(trials[known], times[known], ".", color=GRAY, alpha=0.7, label="tried")
    ax.step(trials, np.where(np.isfinite(best), best, np.nan), where="post", color=BLUE, label="best so far")
    ax.set(yscale="log", xlabel="schedule", ylabel="milliseconds")
    _plain(ax.yaxis, ax.get_ylim())
    _whole(ax.xaxis)
    ax.legend(frameon=False)
    return ax


def benchmark_table(rows: Mapping[str, Mapping[str, float]], *, ax: Any = None) -> Any:
    """Times side by side: {case: {who: seconds}}; the fastest of each case is bold."""
    people = list(dict.fromkeys(who for times in rows.values() for who in times))
    ax = _axes(ax, (1.6 + 1.2 * len(people), 0.5 + 0.32 * len(rows)))
    ax.axis("off")
    if not people:
        return ax
    cells = [[_time(times.get(who)) for who in people] for times in rows.values()]
    made = ax.table(cells, rowLabels=list(rows), colLabels=people, loc="center", cellLoc="right", edges="horizontal")
    made.auto_set_font_size(False)
    made.set_fontsize(10)
    made.scale(1, 1.4)
    for (r, c), cell in made.get_celld().items():
        cell.set_linewidth(0.6)
        cell.set_edgecolor(GRAY)
        times = list(rows.values())[r - 1] if r else {}
        best = min((t for t in times.values() if np.isfinite(t)), default=None)
        is_best = r > 0 and c >= 0 and best is not None and times.get(people[c]) == best
        if r == 0 or is_best:
            cell.set_text_props(fontweight="bold")
    return ax


def _time(seconds: float | None) -> str:
    if seconds is None or not np.isfinite(seconds):
        return "–"
    for unit, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= unit:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds / 1e-9:.3g} ns"


def jacobian_sparsity(output: Tensor, source: Tensor, feeds: Mapping[Tensor, Any], *, ax: Any = None) -> Any:
    """Which elements of `output` depend on which of `source` at these values: the larger, the stronger the color."""
    ax = _axes(ax, (4.2, 4.2))
    jacobian = np.asarray(interpret(differentiate(output, source), dict(feeds)), dtype=np.float64)
    shape = [int(np.prod(s, dtype=np.int64)) for s in (jacobian.shape[: output.ndim], jacobian.shape[output.ndim :])]
    matrix = np.abs(jacobian.reshape(shape))
    finite = np.isfinite(matrix)
    largest = matrix[finite].max(initial=0.0) or 1.0
    matrix = np.where(finite, matrix, largest)
    if matrix.size:
        ax.imshow(matrix / largest, cmap="Blues", vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    _whole(ax.xaxis)
    _whole(ax.yaxis)
    share = float((matrix > 0).mean()) if matrix.size else 0.0
    ax.set(xlabel=f"element of {source.name}", ylabel=f"element of {output.name}", title=f"{share:.1%} non-zero")
    return ax


def index_map(pairs: Iterable[tuple[int, int]], *, names: tuple[str, str] = ("z", "s"), ax: Any = None) -> Any:
    """The reads of a stage as arrows from places z of its loops to elements s of what it reads."""
    ax = _axes(ax, (6.4, 1.9))
    listed = list(pairs)
    span = (
        max((p for pair in listed for p in pair), default=0) - min((p for pair in listed for p in pair), default=0) + 1
    )
    every, size = -(-span // MOST_LABELS), min(15.0, 15.0 * MOST_LABELS / span)
    for level, side in ((1.0, 0), (0.0, 1)):
        places = sorted({p[side] for p in listed})
        ax.plot(places, [level] * len(places), "s", markersize=size, markerfacecolor="none", color=(BLUE, TEAL)[side])
        for place in places:
            if place % every == 0:
                ax.text(place, level, str(place), ha="center", va="center_baseline", fontsize=9)
    for z, s in listed:
        ax.annotate("", (s, 0.13), (z, 0.87), arrowprops={"arrowstyle": "-|>", "color": GRAY, "linewidth": 0.9})
    ax.set_yticks([1.0, 0.0], list(names))
    ax.set_ylim(-0.35, 1.35)
    ax.set_xticks([])
    for spine in ax.spines.values():
        spine.set_visible(False)
    ax.tick_params(length=0)
    return ax
