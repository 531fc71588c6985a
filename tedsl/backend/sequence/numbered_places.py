"""Some steps of time, numbered: how many at most, and a tensor that tells the number of each."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from tedsl.lang.dataclass import dataclass
from tedsl.lang.dtypes import INT32
from tedsl.lang.elements import fresh_axes
from tedsl.lang.expr import Axis, Const, Expr, Fn, Read
from tedsl.lang.extents import number, simplify_extent
from tedsl.lang.folding import select_node
from tedsl.lang.functions import clip
from tedsl.lang.tensor import Compute, Scatter, Shape, Tensor
from tedsl.lang.traverse import free_axes, substitute

__all__ = ["ListedPlaces", "NumberedPlaces", "product_of"]


@dataclass(frozen=True, eq=False)
class ListedPlaces:
    """Some steps: how many at most, and the tensor that numbers them (-1: not one of them); None: `only` one."""

    count: int
    rank: Tensor | None = None
    only: int = 0

    def shape(self, rest: Sequence[Expr | None]) -> Shape:
        """That of what is kept of each place."""
        return (Const(self.count, INT32), *(extent for extent in rest if extent is not None))

    def number_of(self, step: Expr) -> Expr:
        """The number of one of the steps."""
        if self.rank is None:
            return Const(0, INT32)
        found: Expr = clip(Read(self.rank, (step,)), 0, self.count - 1)  # for all to see that it is in bounds
        return found

    def holds(self, step: Expr) -> Expr:
        """Whether a step is one of them."""
        if self.rank is None:
            return _apply(Fn.EQ, step, Const(self.only, INT32))
        return _apply(Fn.GE, Read(self.rank, (step,)), Const(0, INT32))


class NumberedPlaces:
    """The same numbers for the same places, so that what several stages read of them is kept once."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.found: dict[object, ListedPlaces] = {}
        self.axes: dict[tuple[int | None, ...], Axis] = {}

    def listed(self, places: Sequence[int]) -> ListedPlaces:
        """Some single steps."""
        key = tuple(places)
        if key not in self.found:
            self.found[key] = (
                ListedPlaces(1, None, *key) if len(key) == 1 else ListedPlaces(len(key), self._ranked(key))
            )
        return self.found[key]

    def named(self, index: Expr) -> ListedPlaces | None:
        """The steps that an index names, each numbered by the last of the points that do; None: too many."""
        axes = free_axes(index)
        count = product_of(a.extent for a in axes)
        if count is None or count > self.steps:
            return None
        own = self.axes_like(axes)
        index = substitute(simplify_extent(index) if index.dtype is INT32 else index, dict(zip(axes, own, strict=True)))
        if index not in self.found:
            place: Expr = Const(0, INT32)
            for axis in own:
                assert axis.extent is not None
                place = place * axis.extent + (axis - axis.begin)
            rank = Scatter(
                name="rank", shape=(Const(self.steps, INT32),), axes=tuple(own), index=(index,), value=place,
                guard=(index >= 0) & (index < self.steps), kind="max", init=None,
            )  # fmt: skip
            self.found[index] = ListedPlaces(count, rank.output())
        return self.found[index]

    def axes_like(self, axes: Iterable[Axis]) -> list[Axis]:
        """The same axes for the same ranges."""
        found = []
        for place, axis in enumerate(axes):
            key = place, number(axis.begin), number(axis.extent)
            if key not in self.axes:
                self.axes[key] = Axis(axis.name, axis.extent, begin=axis.begin, is_reduce=True)
            found.append(self.axes[key])
        return found

    def _ranked(self, places: Sequence[int]) -> Tensor:
        (axis,) = fresh_axes((Const(self.steps, INT32),))
        body: Expr = Const(-1, INT32)
        for k, step in enumerate(places):
            body = select_node(_apply(Fn.EQ, axis, Const(step, INT32)), Const(k, INT32), body)
        return Compute(name="rank", axes=(axis,), bodies=(body,)).output()


def product_of(extents: Iterable[Expr | None]) -> int | None:
    """The product of extents that are numbers."""
    sizes = [number(extent) for extent in extents]
    return None if None in sizes else math.prod(size for size in sizes if size is not None)


def _apply(fn: Fn, a: Expr, b: Expr) -> Expr:
    made: Expr = Expr._apply(fn, a, b)
    return made
