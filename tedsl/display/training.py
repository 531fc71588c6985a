"""A loop that is watched: a bar and the numbers of its steps, and in a notebook a curve that grows while it runs.

Where nobody watches (no notebook, no terminal) it costs what appending numbers to lists costs.
"""

from __future__ import annotations

import math
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from contextlib import suppress
from itertools import pairwise
from typing import Any

from tedsl.backend.host.progress import tqdm_bar
from tedsl.lang.dataclass import dataclass
from tedsl.lang.errors import brief, user_location
from tedsl.lang.keywords import own_arguments
from tedsl.lang.rich import Rich

__all__ = ["Curve", "WatchedLoop", "WatchedTuning", "curves_of", "last_of", "progress", "tuning"]

ABSENT = float("nan")  # this very NaN stands in a history where a step has no number; others were computed

_ELSEWHERE = {  # what bars of tqdm have
    **dict.fromkeys(("set_postfix", "set_postfix_str", "log"), "show(loss=loss)"),
    **dict.fromkeys(("set_description", "set_description_str"), "te.display.progress(steps, desc=text)"),
    "write": "print(text)",
    **dict.fromkeys(("update", "close", "refresh"), "there, by the loop itself: for k in bar"),
    **dict.fromkeys(("n", "total"), "len(bar), and the step that the loop gives"),
}


@dataclass(frozen=True)
class Curve:
    """Numbers over steps, without those that a step does not have; `single`: positions that no line would show."""

    x: Sequence[float]
    y: Sequence[float]

    @property
    def single(self) -> list[int]:
        """The numbers without one of a step beside theirs."""
        places = [k for k, y in enumerate(self.y) if not math.isnan(y)]
        near = {k for a, b in pairwise(places) if self.x[b] - self.x[a] <= 1 for k in (a, b)}
        return [k for k in places if k not in near]


class WatchedLoop(Rich):
    """The steps of a loop, and what was shown of each: `history[name]` is a list of numbers."""

    def __init__(
        self, over: Iterable[Any] | int, *, plot: bool = False, every: float = 0.5, title: str | None = None
    ) -> None:
        self.over = _steps(over)
        self.history: dict[str, list[float]] = {}
        self._steps: dict[str, list[int]] = {}  # of the numbers of the history
        self._step = 0  # that runs, or is the next one
        self._runs = False
        self._shown: dict[str, str] = {}  # what stands behind the bar
        self._title = title
        self._plots, self._every = plot and _in_notebook(), every
        self._bar: Any = None
        self._handle: Any = None
        self._told = 0.0

    def __iter__(self) -> Iterator[Any]:
        self._bar = _bar(len(self) or None)
        if self._bar is not None and self._title:
            self._bar.set_description(self._title)
        try:
            for step in self.over:
                self._runs = True
                yield step
                self._step, self._runs = self._step + 1, False
                if self._bar is not None:
                    self._bar.update()
        finally:  # the bar is told of the last step before it ends, and keeps that
            self._step, self._runs = self._step + self._runs, False
            self._tell()
            if self._bar is not None:
                self._bar.close()

    def __len__(self) -> int:
        return len(self.over) if isinstance(self.over, Sized) else 0

    def __repr__(self) -> str:
        last = ", ".join(f"{name} {text}" for name, text in self._shown.items())
        over = len(self) if isinstance(self.over, range) and self.over == range(len(self)) else repr(self.over)
        shown = f"{max(map(len, self.history.values()), default=0)} shown{': ' + last if last else ''}"
        return f"te.display.progress({brief(over, 40)}), {shown}"

    def __getattr__(self, name: str) -> Any:
        told = f"; it is {_ELSEWHERE[name]}" if name in _ELSEWHERE else ""
        raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}{told}", name=name, obj=self)

    def show(self, /, *unnamed: Any, **values: Any) -> None:
        """Keep the numbers of this step, and show them about twice a second.

        None is a number that this step does not have, NaN in the history. Text is shown and not kept.
        """
        if unnamed:
            raise TypeError(
                f"show at {user_location()}: each value has a name, as bar.show(loss=loss); found {brief(unnamed[0])}"
            )
        for name, value in values.items():
            if isinstance(value, str):
                self._shown[name] = value
                continue
            number = ABSENT if value is None else _number(name, value)
            self.history.setdefault(name, []).append(number)
            self._steps.setdefault(name, []).append(self._step)
            self._shown[name] = "-" if value is None else f"{number:.4g}"
        if self._bar is not None and time.monotonic() - self._told > self._every:
            self._tell()
        self._step += not self._runs

    def plot(self, *, ax: Any = None, **options: Any) -> Any:
        """The numbers over the steps; options are those of `ax.set`, as yscale="log". Returns the axes.

        What not every step has is joined, and marked.
        """
        import matplotlib.pyplot as plt

        if ax is None:
            _, ax = plt.subplots(figsize=(5.6, 2.8), layout="constrained")
        for name, curve in curves_of(self).items():
            marks = {"marker": "o", "markersize": 3, "markevery": curve.single} if curve.single else {}
            ax.plot(curve.x, curve.y, linewidth=1, label=name, **marks)
        ax.set(**{"xlabel": "step", **options})
        if len(self.history) == 1:
            ax.set(ylabel=options.get("ylabel", next(iter(self.history))))
        elif self.history:
            ax.legend(frameon=False)
        for side in ("top", "right"):
            ax.spines[side].set_visible(False)
        return ax

    def _tell(self) -> None:
        self._told = time.monotonic()
        if self._bar is not None:
            self._bar.set_postfix(self._shown)
        if self._plots and self.history:
            self._draw(self.plot)

    def _draw(self, plot: Callable[[], Any]) -> None:
        import matplotlib.pyplot as plt
        from IPython.display import display

        figure = plot().figure
        if self._handle is None:
            self._handle = display(figure, display_id=True)
        else:
            self._handle.update(figure)
        plt.close(figure)


def last_of(loop: WatchedLoop) -> dict[str, str]:
    """What was shown last under each name, as text."""
    return dict(loop._shown)


def curves_of(loop: WatchedLoop) -> dict[str, Curve]:
    """The numbers of each name at their steps; several of one step lie side by side within it."""
    found: dict[str, Curve] = {}
    for name, values in loop.history.items():
        steps = loop._steps[name]
        count, seen, x = Counter(steps), Counter[int](), []
        for step in steps:
            x.append(step + seen[step] / count[step])
            seen[step] += 1
        kept = [k for k, value in enumerate(values) if value is not ABSENT]
        found[name] = Curve([x[k] for k in kept], [values[k] for k in kept])
    return found


def _steps(over: Any) -> Iterable[Any]:
    """What is iterated over: so many steps, or what there is."""
    what = f"te.display.progress at {user_location()}"
    if hasattr(over, "__index__") and not isinstance(over, bool) and not getattr(over, "ndim", 0):
        if int(over) < 0:
            raise ValueError(f"{what}: expected a number of steps of 0 or more, found {over!r}")
        return range(over)
    if not isinstance(over, Iterable) and not hasattr(over, "__getitem__"):
        raise TypeError(f"{what}: expected a number of steps, or what to iterate over, found {brief(repr(over))}")
    steps: Iterable[Any] = over
    return steps


def _number(name: str, value: Any) -> float:
    """What is shown, as a number."""
    if getattr(value, "size", 1) in (0, 1) or not hasattr(value, "shape"):
        with suppress(TypeError, ValueError, RuntimeError):
            return float(value.item() if hasattr(value, "item") else value)
    shape = getattr(value, "shape", None)
    found = f"{type(value).__name__} {brief(repr(value), 40)}" if not shape else f"an array of {tuple(shape)}"
    hint = "; show a number made of it, as its mean" if shape else ""
    raise TypeError(f"show at {user_location()}: {name}: expected a number, text or None, found {found}{hint}")


@own_arguments("te.display.progress")
def progress(
    over: Iterable[Any] | int, *, plot: bool = False, every: float = 0.5, desc: str | None = None
) -> WatchedLoop:  # fmt: skip
    """The steps of a training loop with a bar; `plot=True` draws what is shown while it runs, in a notebook.

        for k in (bar := te.display.progress(300)):
            loss, state = step(state, x, y)
            bar.show(loss=loss)
        bar.plot(yscale="log")

    The bar is tqdm's, where that is installed and a notebook or a terminal looks on; `desc` stands in front of it.
    """
    return WatchedLoop(over, plot=plot, every=every, title=desc)


class WatchedTuning(Rich):
    """What `te.tune(..., progress=)` reports, kept: in a notebook with a curve that grows while it searches."""

    def __init__(self, *, every: float = 0.5) -> None:
        self.seconds: list[float] = []  # of a call by the best schedule, each time that it was told
        self.elapsed: list[float] = []
        self.default = 0.0
        self._loop = WatchedLoop((), plot=True, every=every)

    def __call__(self, told: Any) -> None:
        self.seconds.append(told.best)
        self.elapsed.append(told.elapsed)
        self.default = told.default
        if self._loop._plots and time.monotonic() - self._loop._told > self._loop._every:
            self._loop._told = time.monotonic()
            self._loop._draw(self.plot)

    def __repr__(self) -> str:
        if not self.seconds:
            return "te.display.tuning(), nothing told yet"
        best = self.seconds[-1]
        return f"te.display.tuning(), {1e3 * best:.3g} ms, {self.default / best:.2f} times as fast as by default"

    def plot(self, *, ax: Any = None) -> Any:
        """The best time over the seconds of the search, and that of the default schedule. Returns the axes."""
        loop = WatchedLoop(())
        ax = loop.plot(ax=ax, xlabel="seconds of search", ylabel="milliseconds of a call")
        ax.step(self.elapsed, [1e3 * s for s in self.seconds], where="post", label="best so far")
        if self.default:
            ax.axhline(1e3 * self.default, color="#7a7a7a", linewidth=1, linestyle="--", label="default schedule")
        ax.set_ylim(0, 1.15e3 * max(self.default, *self.seconds, 0.0) or None)
        ax.legend(frameon=False)
        return ax


@own_arguments("te.display.tuning")
def tuning(*, every: float = 0.5) -> WatchedTuning:
    """What to pass to `te.tune` as `progress=`, to watch the search; `.plot()` draws it again afterwards.

    `te.tune(y, budget=20, progress=(search := te.display.tuning()))`
    """
    return WatchedTuning(every=every)


def _in_notebook() -> bool:
    ipython = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return type(ipython).__name__ == "ZMQInteractiveShell"


def _bar(total: int | None) -> Any:
    """The bar of tqdm, or None where nobody would see it."""
    if not (_in_notebook() or sys.stderr.isatty()):
        return None
    try:
        return tqdm_bar()(total=total, leave=True)
    except ImportError:
        return None
