"""One of several pages at a time, chosen by the reader: what a tile size does to a loop nest.

All pages are in the output, and the style sheet alone shows the one that is chosen: no script runs, so it works in
notebooks that are shown and not run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tedsl.display.markup import escape, fits, page, style
from tedsl.display.views import parts_of

__all__ = ["Slider", "slider"]

MOST_STOPS = 24


class Slider:
    """What `slider(...)` returns: a page for each value."""

    def __init__(self, name: str, values: Sequence[Any], shown: Sequence[Any], begin: int) -> None:
        self.name, self.values, self.shown, self.begin = name, tuple(values), tuple(shown), begin

    def _repr_html_(self) -> str:
        stops = [self._stop(k, value) for k, value in enumerate(self.values)]
        frames = [
            f'<div class="te-frame"><p class="te-mute">{escape(self._title(v))}</p>{"".join(parts_of(s))}</div>'
            for v, s in zip(self.values, self.shown, strict=True)
        ]
        head = f'<div class="te-stops"><b>{escape(self.name)}</b> {" ".join(stops)}</div>'
        made = f'<form class="te-slider">{_rules(len(stops))}{head}{"".join(frames)}</form>'
        if not fits(made, repr(self)):
            return page([f"<p>{len(frames)} pages are too much for one output; print() shows them</p>"], repr(self))
        return page([made], repr(self))

    def _stop(self, k: int, value: Any) -> str:
        chosen = " checked" if k == self.begin else ""
        return f'<label><input type="radio" name="stop"{chosen}/><span>{escape(value)}</span></label>'

    def _title(self, value: Any) -> str:
        return f"{self.name} = {value}"

    def __repr__(self) -> str:
        return "\n\n".join(f"{self._title(v)}:\n{s}" for v, s in zip(self.values, self.shown, strict=True))


def _rules(count: int) -> str:
    """Which page is shown for which stop."""
    chosen = ",".join(
        f".te-slider:has(label:nth-of-type({k}) :checked)>.te-frame:nth-of-type({k + 1})" for k in range(1, count + 1)
    )
    return f"<style>{style('stops.css')}{chosen}{{display:block}}</style>"


def slider(make: Callable[[Any], Any], values: Iterable[Any], name: str = "", begin: int = 0) -> Slider:
    """`make(value)` for the value that the reader chooses: a schedule, a kernel, a tensor, or whatever else has a page.

    It is called once for each value; `begin` is the place of the one that is shown first, `name` stands beside them.
    """
    chosen = list(values)
    what = "te.display.slider"
    if not callable(make):
        raise TypeError(f"{what}: expected a function of one value, found {type(make).__name__}")
    if not 0 < len(chosen) <= MOST_STOPS:
        raise ValueError(f"{what}: expected 1 to {MOST_STOPS} values, found {len(chosen)}; give fewer")
    if not 0 <= begin < len(chosen):
        raise ValueError(f"{what}: expected begin from 0 to {len(chosen) - 1}, a place in values, found {begin}")
    own = getattr(make, "__name__", "<lambda>")
    return Slider(name or ("value" if own == "<lambda>" else own), chosen, [make(value) for value in chosen], begin)
