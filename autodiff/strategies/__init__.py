"""Hypothesis strategies for tensor programs: random programs over every construct, index maps, and arrays to feed them.

A program is drawn together with the sizes of its symbolic extents and with what keeps it meaningful: every read is in
bounds where it is used, no integer is divided by zero. `exact` tells which tensors two evaluators must agree on bit by
bit: those computed by operations that IEEE rounds one way. What rounds freely (transcendental functions, the order of a
float sum) is never compared, floored or cast to an integer afterwards, so that a last bit cannot grow into another
branch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from autodiff.strategies.arrays import values_for
from autodiff.strategies.builder import DTYPES
from autodiff.strategies.patterns import PATTERNS, patterns
from autodiff.strategies.program import Program
from autodiff.strategies.stages import CONSTRUCTS, Stages
from tedsl.lang import functions as fn
from tedsl.lang.expr import Axis, Expr
from tedsl.lang.tensor import Tensor

__all__ = [
    "CONSTRUCTS", "DTYPES", "PATTERNS", "Program", "index_maps", "patterns", "programs", "tensors", "values_for",
]  # fmt: skip


@st.composite
def programs(
    draw: Any,
    *,
    constructs: Sequence[str] = CONSTRUCTS,
    dtypes: Sequence[str] | None = None,
    stages: int = 4,
    symbolic: bool | None = None,
    differentiable: bool = False,
) -> Program:
    """A program of up to `stages` stages; `differentiable` keeps to smooth float64 operations away from kinks."""
    chosen = tuple(dtypes or (("float64",) if differentiable else DTYPES))
    mixed = draw(st.booleans()) if symbolic is None else symbolic
    builder = Stages(draw, mixed, differentiable, chosen)
    allowed = [c for c in constructs if not (differentiable and c == "custom")]
    for _ in range(draw(st.integers(1, stages))):
        getattr(builder, draw(st.sampled_from(allowed)))()
    if not builder.outputs:
        builder.pointwise()
    return builder.finished()


@st.composite
def tensors(draw: Any, *, dtype: str | None = None, most: int = 4, symbolic: bool = False) -> Tensor:
    """A placeholder of any rank up to `most`."""
    builder = Stages(draw, symbolic, False, DTYPES)
    return builder.input(builder.shape(most), dtype or builder.pick(DTYPES)).tensor


@st.composite
def index_maps(draw: Any, axes: Sequence[Axis] | None = None, extent: int | None = None) -> Expr:
    """An integer expression of `axes` (of static extents; up to three are made if None) within [0, extent)."""
    if axes is None:
        sizes = draw(st.lists(st.integers(1, 8), min_size=1, max_size=3))
        axes = [Axis(name, fn.as_expr(size)) for name, size in zip("ijk", sizes, strict=False)]
    extent = draw(st.integers(1, 20)) if extent is None else extent
    builder = Stages(draw, False, True, DTYPES)
    sized = [(a, int(getattr(a.extent, "value", 1))) for a in axes]
    return fn.as_expr(builder.index(sized, extent))
