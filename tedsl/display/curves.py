"""The pages of loops that are watched: what was shown last, and a small curve of each number."""

from __future__ import annotations

import math
from collections.abc import Iterator

from tedsl.display.markup import badge, escape, section, svg, table
from tedsl.display.training import Curve, WatchedLoop, WatchedTuning, curves_of, last_of

__all__ = ["loop_parts", "tuning_parts"]

WIDTH, HEIGHT, MARGIN = 240, 40, 4
MOST_POINTS = 400  # of a curve


def loop_parts(loop: WatchedLoop) -> Iterator[str]:
    """The numbers of a training loop, each with its curve."""
    yield section("<b>progress</b>", badge(f"{len(loop)} steps" if len(loop) else "steps", "blue"))
    curves, last = curves_of(loop), last_of(loop)
    if not last:
        yield '<span class="te-mute">nothing shown yet</span>'
        return
    first = min((c.x[0] for c in curves.values() if c.x), default=0.0)
    span = first, max((c.x[-1] for c in curves.values() if c.x), default=0.0)
    rows = [
        [f"<b>{escape(name)}</b>", escape(text), *_row(curves.get(name, Curve((), ())), span)]
        for name, text in last.items()
    ]
    yield table(("", "last", "least", "greatest", "over the steps"), rows, (1, 2, 3))


def tuning_parts(search: WatchedTuning) -> Iterator[str]:
    """The best time of a search, over its seconds."""
    yield section("<b>tuning</b>", badge("te.tune", "blue"))
    if not search.seconds:
        yield '<span class="te-mute">nothing told yet</span>'
        return
    best, by_default = (f"{1e3 * s:.4g}" for s in (search.seconds[-1], search.default))
    picture = _picture(Curve(search.elapsed, search.seconds), (search.elapsed[0], search.elapsed[-1]))
    yield table(("best, ms", "by default, ms", "over the search"), [[best, by_default, picture]], (0, 1))


def _row(curve: Curve, span: tuple[float, float]) -> list[str]:
    """The least and the greatest number, and the curve."""
    finite = [y for y in curve.y if math.isfinite(y)]
    return [f"{min(finite):.4g}", f"{max(finite):.4g}", _picture(curve, span)] if finite else ["", "", ""]


def _picture(curve: Curve, span: tuple[float, float]) -> str:
    """A line through the numbers, in a row of a table; those that stand alone are dots."""
    every = max(1, len(curve.x) // MOST_POINTS)
    low, high = (pick(y for y in curve.y if math.isfinite(y)) for pick in (min, max))
    wide, tall = (span[1] - span[0]) or 1.0, (high - low) or 1.0
    single = set(curve.single)
    runs: list[list[str]] = [[]]
    dots: list[str] = []
    for k in range(0, len(curve.x), every):
        if not math.isfinite(curve.y[k]):
            runs.append([])
            continue
        up = (curve.y[k] - low) / tall if high > low else 0.5
        x = MARGIN + (curve.x[k] - span[0]) / wide * (WIDTH - 2 * MARGIN)
        y = HEIGHT - MARGIN - up * (HEIGHT - 2 * MARGIN)
        runs[-1].append(f"{x:.1f},{y:.1f}")
        if k in single:
            dots.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="1.8"/>')
    drawn = "".join(f'<polyline points="{" ".join(run)}"/>' for run in runs if len(run) > 1) + "".join(dots)
    return svg(WIDTH, HEIGHT, "a curve", drawn)
