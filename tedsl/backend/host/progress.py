"""Progress of what takes long: a bar where somebody is looking, a call where somebody asked for one, else nothing."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib import import_module
from typing import Any

from tedsl.lang.dataclass import dataclass

__all__ = ["Progress", "counted", "shown", "tqdm_bar"]

WIDTH = 24
PATIENCE = 1.0  # seconds before what is counted shows a bar


@dataclass(frozen=True)
class Progress:
    """How far a search is: seconds gone and given, schedules tried, seconds of a call by default and at best."""

    elapsed: float
    budget: float
    tried: int
    default: float
    best: float

    def __str__(self) -> str:
        gain = f"{1e3 * self.best:.3g} ms, {self.default / self.best:.2f} times as fast as by default"
        return f"{self.tried} schedules, {gain}"


@contextmanager
def shown(progress: bool | Callable[[Progress], object] | None, title: str) -> Iterator[Callable[[Progress], object]]:
    """What to call with each `Progress`. None: a bar on a terminal or in a notebook, else nothing."""
    if callable(progress):
        yield progress
    elif not isinstance(progress, (bool, type(None))):
        raise TypeError(f"{title}: progress is True, False, None or a function, found {progress!r:.40}")
    elif progress or (progress is None and _is_watched()):
        bar = _bar(title)
        try:
            yield bar.show
        finally:
            bar.close()
    else:
        yield lambda state: None


def counted(title: str, total: int, unit: str) -> AbstractContextManager[Callable[[], object]]:
    """What to call after each of `total` steps; a bar of tqdm, if that is installed and somebody looks for a while."""
    if not _is_watched():
        return nullcontext(lambda: None)
    try:
        return _counted(tqdm_bar(), title, total, unit)
    except ImportError:
        return nullcontext(lambda: None)


@contextmanager
def _counted(tqdm: Any, title: str, total: int, unit: str) -> Iterator[Callable[[], object]]:
    with tqdm(total=total, desc=title, unit=unit, delay=PATIENCE, leave=False) as bar:
        yield bar.update


def _is_watched() -> bool:
    """Whether standard error is a terminal, or a notebook's."""
    return sys.stderr.isatty() or "ipykernel" in sys.modules


def tqdm_bar() -> Any:
    """tqdm's bar for what there is; it would warn in notebooks without widgets, where its bar of text will do."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return import_module("tqdm.auto").tqdm


def _bar(title: str) -> _Line | _Tqdm:
    try:
        return _Tqdm(title, tqdm_bar())
    except ImportError:
        return _Line(title)


class _Line:
    """A line on standard error, written over and over."""

    def __init__(self, title: str) -> None:
        self.title, self.length = title, 0

    def show(self, state: Progress) -> None:
        done = min(WIDTH, int(WIDTH * state.elapsed / state.budget))
        times = f"{min(state.elapsed, state.budget):.0f}/{state.budget:.0f} s"
        text = f"{self.title} [{'#' * done}{'.' * (WIDTH - done)}] {times}, {state}"
        sys.stderr.write("\r" + text.ljust(self.length))
        sys.stderr.flush()
        self.length = len(text)

    def close(self) -> None:
        sys.stderr.write("\n" * bool(self.length))


class _Tqdm:
    """The bar of tqdm."""

    def __init__(self, title: str, tqdm: Any) -> None:
        self.title, self.tqdm, self.bar = title, tqdm, None

    def show(self, state: Progress) -> None:
        if self.bar is None:
            self.bar = self.tqdm(
                total=state.budget, desc=self.title, bar_format="{desc} {bar} {n:.0f}/{total:.0f} s{postfix}"
            )
        bar: Any = self.bar
        bar.set_postfix_str(str(state), refresh=False)
        bar.update(min(state.elapsed, state.budget) - bar.n)

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()
