"""Programs as people write them, each around one pattern, over values that make every result exact.

Inputs hold small integers, also in floats, so that sums are the same however they are cut, and two evaluators agree bit
by bit. The same patterns are drawn with few elements, for schedules whose thresholds are at their lowest, and with as
many as real programs have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hypothesis import strategies as st

from autodiff.strategies.patterns import choices, images, layouts, lookups, products, recurrences, reductions, windows
from autodiff.strategies.patterns.canvas import FLOATS, Canvas, Source
from autodiff.strategies.patterns.following import followed
from autodiff.strategies.program import Program

__all__ = ["PATTERNS", "patterns"]

PATTERNS: Mapping[str, Callable[[Canvas], Source]] = {
    "product": products.product,
    "tropical": products.tropical,
    "convolution": windows.convolution,
    "transposed": windows.transposed,
    "depthwise": windows.depthwise,
    "pooling": windows.pooling,
    "stencil": windows.stencil,
    "lookup": lookups.lookup,
    "placed": lookups.placed,
    "histogram": lookups.histogram,
    "resampled": images.resampled,
    "filtered": images.filtered,
    "pyramid": images.pyramid,
    "extremes": images.extremes,
    "pixels": images.pixels,
    "accumulated": recurrences.accumulated,
    "recurrent": recurrences.recurrent,
    "walked": recurrences.walked,
    "reduced": reductions.reduced,
    "ranged": reductions.ranged,
    "grouped": reductions.grouped,
    "normalized": reductions.normalized,
    "broadcast": layouts.broadcast,
    "reshaped": layouts.reshaped,
    "interleaved": layouts.interleaved,
    "joined": choices.joined,
    "rolled": choices.rolled,
}
FEW, MANY = 4000, (1 << 15, 1 << 18, 1 << 20, 1 << 22)  # iterations of a stage


@st.composite
def patterns(
    draw: Any,
    *,
    names: Sequence[str] = tuple(PATTERNS),
    large: bool = False,
    symbolic: bool | None = None,
    dtypes: Sequence[str] = FLOATS,
) -> Program:
    """A program around one of the patterns, and up to two stages that use what it makes; `large`: of real sizes."""
    most = draw(st.sampled_from(MANY)) if large else FEW
    mixed = draw(st.integers(0, 3)) == 0 if symbolic is None else symbolic
    canvas = Canvas(draw, mixed, False, dtypes, most=most, large=large)
    found = PATTERNS[draw(st.sampled_from(list(names)))](canvas)
    for _ in range(draw(st.sampled_from((0, 0, 1, 1, 2)))):
        found = followed(canvas, found)
    return canvas.finished()
