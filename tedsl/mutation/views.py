"""Reads and writes through strided views, as pure tensors.

A view and the value it looks into are two layouts of one memory. Where every step of the view moves along one axis of
the value, indices are affine both ways: a slice reads `x[2*i + 1]` and is written where `(i - 1) % 2 == 0`. Other views
(a diagonal, a reshape across a slice) go through the position in memory, taken apart by `//` and `%`; both ways are
exact.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tedsl.lang import functions as fn
from tedsl.lang.dataclass import dataclass
from tedsl.lang.dtypes import INT32, INT64
from tedsl.lang.elements import tensor_of
from tedsl.lang.expr import TRUE, Axis, Const, Expr, Read
from tedsl.lang.tensor import Tensor
from tedsl.mutation.layouts import Layout

__all__ = ["ViewMap", "is_plain", "view_map"]


@dataclass(frozen=True)
class ViewPlace:
    """A sum over digits: start + sum(step * digit of axis); `turned` axes count from their end."""

    start: int
    digits: tuple[tuple[int, int], ...]  # (axis of the view, step), steps decreasing


@dataclass(frozen=True)
class ViewMap:
    """How a view lies in a value: one Place per axis of the value, or a single one in memory order (`flat`)."""

    base: Layout
    view: Layout
    places: tuple[ViewPlace, ...]
    flat: bool

    @property
    def is_identity(self) -> bool:
        same = (self.base.shape, self.base.strides, self.base.offset)
        return same == (self.view.shape, self.view.strides, self.view.offset)

    @property
    def is_injective(self) -> bool:
        """Whether different elements of the view are different elements of the value."""
        if self.view.is_empty:
            return True
        return all(_is_nested([(s, self.view.shape[d]) for d, s in p.digits]) for p in self.places) and not any(
            n > 1 and s == 0 for n, s in zip(self.view.shape, self.view.strides, strict=True)
        )

    def read(self, value: Tensor, name: str) -> Tensor:
        """The elements of the view."""
        if self.is_identity:
            return value
        shape = _extents(self.view.shape)
        if self.view.is_empty:
            return tensor_of(shape, lambda *axes: fn.convert(0, value.dtype), name)
        return tensor_of(shape, lambda *axes: Read(value, self._sources(axes)), name)

    def write(self, value: Tensor, new: Tensor, name: str) -> Tensor:
        """The value with the elements of the view replaced by `new`."""
        if self.is_identity:
            return new
        if self.view.is_empty:
            return value

        def element(*axes: Axis) -> Expr:
            inside, target = self._target(axes)
            return (
                fn.select_node(inside, Read(new, target), Read(value, axes))
                if inside is not TRUE
                else Read(new, target)
            )

        return tensor_of(_extents(self.base.shape), element, name)

    def _sources(self, axes: Sequence[Axis]) -> tuple[Expr, ...]:
        """Where in the value the element of the view at `axes` lies."""
        turned = _turned(self.view)
        sums = []
        for place in self.places:
            constant, terms = place.start, []
            for d, step in place.digits:
                if d in turned:
                    constant += step * (self.view.shape[d] - 1)
                terms.append((-step if d in turned else step, axes[d]))
            sums.append((constant, terms))
        digits = _taken_apart(_affine(*sums[0]), _weights(self.base)) if self.flat else None
        found: list[Expr] = []
        back = _turned(self.base)
        for k, extent in enumerate(self.base.shape):
            if digits is not None:
                index = digits.get(k, Const(0, INT32))
                found.append((extent - 1) - index if k in back else index)
                continue
            constant, terms = sums[k]
            if k in back:
                constant, terms = extent - 1 - constant, [(-c, a) for c, a in terms]
            found.append(_affine(constant, terms))
        return tuple(found)

    def _target(self, axes: Sequence[Axis]) -> tuple[Expr, tuple[Expr, ...]]:
        """Whether the element of the value at `axes` lies in the view, and where."""
        back = _turned(self.base)
        inside: Expr = TRUE
        found: dict[int, Expr] = {}
        for k, place in enumerate(self.places):
            if self.flat:
                terms = [(-w if d in back else w, axes[d]) for d, w in _weights(self.base)]
                constant = sum(w * (self.base.shape[d] - 1) for d, w in _weights(self.base) if d in back)
                last = sum(w * (self.base.shape[d] - 1) for d, w in _weights(self.base))
            else:
                last = self.base.shape[k] - 1
                constant, terms = (last, [(-1, axes[k])]) if k in back else (0, [(1, axes[k])])
            if last == 0:
                continue
            condition, digits = _solved(place, self.view.shape, constant, terms, last)
            inside = condition if inside is TRUE else inside if condition is TRUE else inside & condition
            found.update(digits)
        turned = _turned(self.view)
        target: list[Expr] = []
        for d, extent in enumerate(self.view.shape):
            digit = found.get(d)
            if digit is None:
                target.append(Const(0, INT32))
            else:
                target.append((extent - 1) - digit if d in turned else digit)
        return inside, tuple(target)


def view_map(base: Layout, view: Layout, is_inside: bool) -> ViewMap | None:
    """The map of a view into a value; None unless it was cut out of it (`is_inside`) or provably lies in it."""
    if base.is_empty or view.is_empty:
        return ViewMap(base, view, (), False)
    if not _is_nested([(w, base.shape[d]) for d, w in _weights(base)]):
        return None
    start = _lowest(view) - _lowest(base)
    steps = sorted(_weights(view), key=lambda item: -item[1])
    return _aligned(base, view, start, steps) or _through_memory(base, view, start, steps, is_inside)


def is_plain(layout: Layout) -> bool:
    """Whether no two elements share memory and the axes nest, so that a value of its own can stand for the array."""
    zero = any(n > 1 and s == 0 for n, s in zip(layout.shape, layout.strides, strict=True))
    return layout.is_empty or (not zero and _is_nested([(w, layout.shape[d]) for d, w in _weights(layout)]))


def _aligned(base: Layout, view: Layout, start: int, steps: list[tuple[int, int]]) -> ViewMap | None:
    """Every axis of the view along one axis of the value, if that stays inside the value."""
    weights = sorted(_weights(base), key=lambda item: -item[1])
    begins = dict.fromkeys(range(len(base.shape)), 0)
    rest = start
    for k, w in weights:
        begins[k], rest = divmod(rest, w)
    if rest or start < 0:
        return None
    digits: dict[int, list[tuple[int, int]]] = {k: [] for k in begins}
    for d, step in steps:
        axis = next(((k, w) for k, w in weights if w <= step and step % w == 0), None)
        if axis is None:
            return None
        digits[axis[0]].append((d, step // axis[1]))
    places = tuple(ViewPlace(begins[k], tuple(digits[k])) for k in range(len(base.shape)))
    for place, extent in zip(places, base.shape, strict=True):
        if place.start + sum(s * (view.shape[d] - 1) for d, s in place.digits) >= extent:
            return None
    return ViewMap(base, view, places, False)


def _through_memory(
    base: Layout, view: Layout, start: int, steps: list[tuple[int, int]], is_inside: bool
) -> ViewMap | None:
    """By the position in memory; in a value with gaps a position may fall between its elements."""
    last = start + sum(s * (view.shape[d] - 1) for d, s in steps)
    reach = sum(w * (base.shape[k] - 1) for k, w in _weights(base))
    if not is_inside and (start < 0 or last > reach or reach + 1 != math.prod(base.shape)):
        return None
    return ViewMap(base, view, (ViewPlace(start, tuple(steps)),), True)


def _weights(layout: Layout) -> list[tuple[int, int]]:
    """(axis, |stride|) of the axes that move."""
    pairs = enumerate(zip(layout.shape, layout.strides, strict=True))
    return sorted(((d, abs(s)) for d, (n, s) in pairs if n > 1 and s), key=lambda item: -item[1])


def _turned(layout: Layout) -> set[int]:
    return {d for d, (n, s) in enumerate(zip(layout.shape, layout.strides, strict=True)) if n > 1 and s < 0}


def _lowest(layout: Layout) -> int:
    return layout.offset + sum(min(0, s * (n - 1)) for n, s in zip(layout.shape, layout.strides, strict=True))


def _is_nested(digits: Sequence[tuple[int, int]]) -> bool:
    """Whether each (step, extent) is larger than everything below it, so that a sum has one set of digits."""
    reach = 0
    for step, extent in sorted(digits):
        if step <= reach:
            return False
        reach += step * (extent - 1)
    return True


def _extents(shape: Sequence[int]) -> tuple[Expr, ...]:
    return tuple(Const(n, INT32) for n in shape)


def _affine(constant: int, terms: Sequence[tuple[int, Expr]]) -> Expr:
    """The sum, positive terms first, without what is 0."""
    wide = abs(constant) + sum(abs(c) for c, _ in terms) > 2**20  # coefficients this large multiply beyond 32 bits
    total: Any = None
    for factor, axis in sorted(terms, key=lambda term: term[0] < 0):
        unit: Any = fn.convert(axis, INT64) if wide else axis
        term = unit if abs(factor) == 1 else unit * abs(factor)
        if total is None:
            if factor > 0:
                total = term
            else:
                total, constant = constant - term, 0
        else:
            total = total + term if factor > 0 else total - term
    if total is None:
        return Const(constant, INT64 if abs(constant) >= 2**31 else INT32)
    if constant:
        total = total + constant if constant > 0 else total - -constant
    return total  # type: ignore[no-any-return]


def _taken_apart(position: Any, weights: Sequence[tuple[int, int]]) -> dict[int, Any]:
    """The digits of a position in memory, by axis."""
    found: dict[int, Any] = {}
    for place, (d, weight) in enumerate(weights):
        found[d] = position // weight if weight > 1 else position
        if place + 1 < len(weights) and weight > 1:
            position = position % weight
    return found


def _solved(
    place: ViewPlace, shape: Sequence[int], constant: int, terms: Sequence[tuple[int, Axis]], last: int
) -> tuple[Expr, dict[int, Expr]]:
    """Condition and digits for start + sum(step * digit) = constant + terms, which runs from 0 to `last`."""
    position: Any = _affine(constant, terms)
    top = place.start + sum(s * (shape[d] - 1) for d, s in place.digits)
    if not place.digits:
        return position == place.start, {}
    conditions: list[Any] = []
    if place.start > 0:
        conditions.append(position >= place.start)
    if top < last:
        conditions.append(position <= top)
    rest: Any = _affine(constant - place.start, terms)
    limit = last - place.start  # the largest value of `rest` once it is known to be at least 0
    found: dict[int, Expr] = {}
    for d, step in place.digits:
        found[d] = rest // step if step > 1 else rest
        # Inside [start, top] the first digit is in range; a later one may not be.
        if d != place.digits[0][0] and limit // step >= shape[d]:
            conditions.append(found[d] <= shape[d] - 1)
        if step > 1:
            rest, limit = rest % step, step - 1
        else:
            rest, limit = None, 0
    if rest is not None:
        conditions.append(rest == 0)
    inside: Any = TRUE
    for condition in conditions:
        inside = condition if inside is TRUE else inside & condition
    return inside, found
