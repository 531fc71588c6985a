"""The boxes of tensors that are read, where that is less than all of them."""

from __future__ import annotations

from collections.abc import Sequence

from tedsl.analysis.sizes import known_shape
from tedsl.lang.dataclass import dataclass
from tedsl.lang.expr import Expr
from tedsl.lang.extents import simplify_extent
from tedsl.lang.intervals import Known, range_of
from tedsl.lang.tensor import Tensor

__all__ = ["ReadBox", "box_of"]


@dataclass(frozen=True)
class ReadBox:
    """The elements of a tensor that are read: so many of each dimension from `begins` on."""

    begins: tuple[int, ...]
    shape: tuple[int, ...]

    def inside(self, indices: Sequence[Expr]) -> tuple[Expr, ...]:
        """Indices of the tensor as those of the box."""
        return tuple(simplify_extent(i - first) for i, first in zip(indices, self.begins, strict=True))


def box_of(tensor: Tensor, places: Sequence[Sequence[Expr]], known: Known | None = None) -> ReadBox | None:
    """The box of a tensor in which all these indices lie; None where it is all of the tensor, or its shape unknown."""
    shape, known = known_shape(tensor), {} if known is None else known
    if not shape:
        return None
    spans = [_span([indices[dim] for indices in places], n, known) for dim, n in enumerate(shape)]
    box = ReadBox(tuple(low for low, _ in spans), tuple(high - low + 1 for low, high in spans))
    return None if box.shape == shape else box


def _span(indices: Sequence[Expr], extent: int, known: Known) -> tuple[int, int]:
    """The first and the last place that indices name; all of them where they may lie outside."""
    ranges = [range_of(index, known) for index in indices]
    low, high = min(r[0] for r in ranges), max(r[1] for r in ranges)
    return (low, high) if 0 <= low <= high < extent else (0, extent - 1)
