"""Stand-ins for arrays whose extents are not all numbers: what NumPy's views of them are, as maps of indices.

A frame is an array that lies in memory row by row: all of a memory, or a reshape of a view whose axes lie there one
after another. A view keeps, for each axis of its frame, where it lies along it: at one place, or at the places of one
of its own axes, from a first one in steps. So every index goes both ways: from the view to the memory, where it is
read, and from the memory to the view, where it is written.

The number of places along an axis is kept as it was computed and may be below 0, where there is none: the extent is
never less than 0, for any value of the variables.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from itertools import chain, pairwise
from typing import Any

import numpy as np

from tedsl.analysis.bounds import bounds_of
from tedsl.lang import functions as fn
from tedsl.lang.dataclass import dataclass
from tedsl.lang.dtypes import INT32
from tedsl.lang.elements import is_one, is_zero, normal_axes, normal_axis, product, shape_text, tensor_of
from tedsl.lang.errors import user_location
from tedsl.lang.expr import TRUE, Const, Expr, Read
from tedsl.lang.extents import same_extent, simplify_extent
from tedsl.lang.intervals import range_of
from tedsl.lang.locks import cached_property
from tedsl.lang.operators import Fn
from tedsl.lang.reshaping import flattened, shape_groups, split_position, target_shape
from tedsl.lang.tensor import Tensor
from tedsl.mutation.slices import AxisCut, clipped, cut_axis, place_of

__all__ = ["Outline", "UndecidedError", "whole"]

_ZERO, _ONE = Const(0, INT32), Const(1, INT32)
Places = Sequence[Expr]


class UndecidedError(TypeError):
    """Whether something is a view depends on extents."""


@dataclass(frozen=True, eq=False)
class ViewLine:
    """Where a view lies along one axis of its frame: at `start`, or at start + step * i for i of its axis `axis`.

    `from_edge`, `to_edge`: no place that a step leads to is left out before the first one, or after the last.
    """

    start: Expr
    axis: int | None = None
    step: int = 0
    from_edge: bool = False
    to_edge: bool = False

    def at(self, places: Places) -> Expr:
        """The place in the frame of an element of the view."""
        if self.axis is None:
            return self.start
        return simplify_extent(self.start + places[self.axis] * self.step)

    def moved(self, cut: AxisCut) -> ViewLine:
        """The same for a part of the view's axis."""
        first = simplify_extent(self.start + cut.first * self.step)
        if cut.step is None:
            return ViewLine(first)
        edges = (self.from_edge, self.to_edge) if cut.step > 0 else (self.to_edge, self.from_edge)
        return ViewLine(first, self.axis, self.step * cut.step, edges[0] and cut.from_edge, edges[1] and cut.to_edge)


@dataclass(frozen=True, eq=False)
class Frame:
    """An array that lies in memory row by row; `within`: the view that it is a reshape of, else all of a memory.

    `is_ordered`: it does lie there row by row; else nobody knows in which order of its axes.
    """

    extents: tuple[Expr, ...]
    is_ordered: bool = True
    within: Outline | None = None
    known: dict[tuple[int, int], Expr] = field(default_factory=dict)  # see condition

    @property
    def memory(self) -> Frame:
        """All of the memory."""
        return self if self.within is None else self.within.frame.memory

    def condition(self, extent: Expr, place: Expr) -> Expr:
        """True, from a read that fails unless an axis of this extent has such a place; made once."""
        key = id(extent), id(place)
        if key not in self.known:
            axis = tensor_of((extent,), lambda i: fn.convert(i, INT32), "axis")
            found = tensor_of((), lambda: Read(axis, (place,)), "place")
            self.known[key] = Expr._apply(Fn.EQ, Read(found, ()), place)
        return self.known[key]

    @cached_property
    def strides(self) -> tuple[Expr | None, ...]:
        """Elements of the memory from one place of an axis to the next; None where that is not known."""
        found: list[Expr | None] = [None] * len(self.extents)
        if self.within is None and not self.is_ordered:
            return tuple(found)
        own = [([], list(range(len(self.extents))))] if self.within is None else self.groups
        for old, new in own:
            step = _ONE if self.within is None else self.within.strides[old[-1]]
            for d in reversed(new):
                found[d] = step
                step = None if step is None else simplify_extent(step * self.extents[d])
        return tuple(found)

    @cached_property
    def groups(self) -> list[tuple[list[int], list[int]]]:
        """The axes of what it is a reshape of, and its own, that hold the same elements."""
        assert self.within is not None
        return shape_groups(self.within.extents, self.extents)

    def inner(self, places: Places) -> list[Expr]:
        """A place of the frame as one of what it is a reshape of."""
        assert self.within is not None
        return _regrouped(places, self.extents, self.within.extents, [(new, old) for old, new in self.groups])

    def outer(self, places: Places) -> list[Expr]:
        """The other way round."""
        assert self.within is not None
        return _regrouped(places, self.within.extents, self.extents, self.groups)


@dataclass(frozen=True, eq=False)
class Outline:
    """A view: a line for each axis of its frame, the number of places of each of its own axes.

    `checks`: (extent, place) of integer indices that may be too large for some extents: the call fails then.
    """

    frame: Frame
    lines: tuple[ViewLine, ...]
    counts: tuple[Expr, ...]
    checks: tuple[tuple[Expr, Expr], ...] = ()
    is_writable: bool = True  # by NumPy, which makes no other views of one that is not

    @cached_property
    def key(self) -> tuple[Any, ...]:
        """Equal for equal views of one memory; expressions are known by identity."""
        within = id(self.frame) if self.frame.within is None else (self.frame.within.key, *map(id, self.frame.extents))
        lines = ((id(line.start), line.axis, line.step) for line in self.lines)
        return (within, *lines, *map(id, self.counts), *map(id, chain.from_iterable(self.checks)))

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Outline) and self.key == other.key

    @cached_property
    def extents(self) -> tuple[Expr, ...]:
        return tuple(map(clipped, self.counts))

    @property
    def shape(self) -> tuple[Any, ...]:
        """Integers, and expressions where an extent is symbolic."""
        return tuple(e.value if isinstance(e, Const) else e for e in self.extents)

    @property
    def ndim(self) -> int:
        return len(self.counts)

    @property
    def size(self) -> Any:
        total = product(self.extents)
        return total.value if isinstance(total, Const) else total

    @cached_property
    def strides(self) -> tuple[Expr | None, ...]:
        """Elements of the memory from one place of an axis to the next; None where that is not known."""
        found: list[Expr | None] = [_ZERO] * self.ndim
        for line, stride in zip(self.lines, self.frame.strides, strict=True):
            if line.axis is not None:
                before = found[line.axis]
                known = None if stride is None or before is None else before + stride * line.step
                found[line.axis] = None if known is None else simplify_extent(known)
        return tuple(found)

    @property
    def flags(self) -> Outline:
        return self

    @property
    def is_repeated(self) -> bool:
        """Whether several of its elements lie in one place."""
        moving = {line.axis for line in self.lines}
        return any(d not in moving and not is_one(n) for d, n in enumerate(self.extents))

    @cached_property
    def c_contiguous(self) -> bool:
        """Whether it surely lies in memory row by row."""
        moving = [d for d in range(self.ndim) if not is_one(self.extents[d])]
        last = self.strides[moving[-1]] if moving else _ONE
        return last is not None and is_one(last) and self.is_row_by_row(moving)

    def is_row_by_row(self, axes: Sequence[int]) -> bool:
        """Whether some axes surely lie in memory one after another, whatever the step of the last one is."""
        for outer, inner in pairwise(axes):
            a, b = self.strides[outer], self.strides[inner]
            if a is None or b is None or not same_extent(a, simplify_extent(b * self.extents[inner])):
                return False
        return True

    # Indices, both ways.

    def sources(self, places: Places) -> list[Expr]:
        """Where in the memory an element of the view lies."""
        found = [line.at(places) for line in self.lines]
        return found if self.frame.within is None else self.frame.within.sources(self.frame.inner(found))

    def target(self, places: Places) -> tuple[list[Expr], list[Expr]]:
        """The conditions under which a place of the memory belongs to the view, and where it lies in that."""
        conditions: list[Expr] = []
        if self.frame.within is not None:
            conditions, inner = self.frame.within.target(places)
            places = self.frame.outer(inner)
        found: dict[int, Expr] = {}
        for line, place in zip(self.lines, places, strict=True):
            if line.axis is None or line.axis in found:  # one place, or on a diagonal
                conditions += _equal(place, line.at([found.get(d, _ZERO) for d in range(self.ndim)]))
                continue
            last = simplify_extent(line.start + (self.counts[line.axis] - 1) * line.step)
            low, high = (line.start, last) if line.step > 0 else (last, line.start)
            forward, step = line.step > 0, abs(line.step)
            conditions += _at_least(place, low) if forward or not line.to_edge else []
            conditions += _at_most(place, high) if not (forward and line.to_edge) else []
            gap = simplify_extent((place - low) if forward else (high - place))
            conditions += _equal(gap % step, _ZERO) if step > 1 else []
            found[line.axis] = simplify_extent(gap // step) if step > 1 else gap
        return conditions, [found.get(d, _ZERO) for d in range(self.ndim)]

    def is_apart(self, other: Outline) -> bool:
        """Whether two views of one memory surely have no element in common."""
        if self.frame.within is not None or other.frame.within is not None:
            return False
        return any(_never_meet(self, a, other, b) for a, b in zip(self.lines, other.lines, strict=True))

    # What a storage asks of a view.

    @property
    def is_identity(self) -> bool:
        """Whether it is all of its memory."""
        own = all(s.axis == d and s.step == 1 and is_zero(s.start) for d, s in enumerate(self.lines))
        ends = len(self.counts) == len(self.lines) and all(map(same_extent, self.extents, self.frame.extents))
        return self.frame.within is None and own and ends and not self.checks

    @property
    def is_injective(self) -> bool:
        """Whether different elements are different elements of the memory."""
        moving = {line.axis for line in self.lines}
        return all(d in moving or (isinstance(c, Const) and c.value <= 1) for d, c in enumerate(self.counts)) and (
            self.frame.within is None or self.frame.within.is_injective
        )

    def read(self, value: Tensor, name: str) -> Tensor:
        """The elements of the view."""
        if self.is_identity:
            return value

        def element(*axes: Any) -> Expr:
            found = Read(value, tuple(self.sources(axes)))
            exists = self._exists()
            return fn.select_node(_all(exists), found, fn.convert(0, value.dtype)) if exists else found

        if any(map(is_zero, self.extents)):
            return tensor_of(self.extents, lambda *axes: fn.convert(0, value.dtype), name)
        return tensor_of(self.extents, element, name)

    def write(self, value: Tensor, new: Tensor, name: str) -> Tensor:
        """The memory with the elements of the view replaced by `new`."""
        if self.is_identity:
            return new
        if any(map(is_zero, self.extents)):
            return value

        def element(*axes: Any) -> Expr:
            conditions, places = self.target(axes)
            inside = _all([*self._exists(), *conditions])
            found = Read(new, tuple(places))
            return found if inside is TRUE else fn.select_node(inside, found, Read(value, axes))

        return tensor_of(value.extents, element, name)

    def _exists(self) -> list[Expr]:
        """Conditions that hold, from reads that fail where an integer index is too large.

        That the place lies inside is said once more in numbers, so that reads guarded by it need no check.
        """
        found: list[Expr] = []
        for extent, place in self.checks:
            found += [
                self.frame.memory.condition(extent, place),
                *_at_least(place, _ZERO),
                *_at_most(place, extent - 1),
            ]
        return found

    # NumPy's views.

    @property
    def T(self) -> Outline:  # noqa: N802 - NumPy's name
        return self.permuted(range(self.ndim)[::-1])

    def permuted(self, order: Sequence[int]) -> Outline:
        """The axes in another order."""
        place = {old: new for new, old in enumerate(order)}
        lines = tuple(s if s.axis is None else replace(s, axis=place[s.axis]) for s in self.lines)
        return replace(self, lines=lines, counts=tuple(self.counts[d] for d in order))

    def __getitem__(self, key: Any) -> Outline:
        items = self._expanded(key if isinstance(key, tuple) else (key,))
        counts: list[Expr] = []
        checks = list(self.checks)
        places: dict[int, int | None] = {}
        cuts: dict[int, AxisCut] = {}
        axes = iter(range(self.ndim))
        for item in items:
            if item is None:
                counts.append(_ONE)
                continue
            d = next(axes)
            cut = cuts[d] = (
                cut_axis(self.counts[d], item) if isinstance(item, slice) else place_of(self.counts[d], item)
            )
            checks += cut.checks
            places[d] = None if cut.step is None else len(counts)
            counts += [cut.count] if cut.step is not None else []
        lines = [s if s.axis is None else s.moved(cuts[s.axis]) for s in self.lines]
        lines = [s if s.axis is None else replace(s, axis=places[s.axis]) for s in lines]
        return Outline(self.frame, tuple(lines), tuple(counts), tuple(dict.fromkeys(checks)), self.is_writable)

    def _expanded(self, items: tuple[Any, ...]) -> list[Any]:
        used = sum(i is not None and i is not Ellipsis for i in items)
        if used > self.ndim:
            raise IndexError(f"too many indices: array is {self.ndim}-dimensional, but {used} were indexed")
        at = next((p for p, i in enumerate(items) if i is Ellipsis), len(items))
        return [*items[:at], *[slice(None)] * (self.ndim - used), *items[at + 1 :]]

    def squeezed(self, axis: Any = None) -> Outline:
        """Without axes of one place."""
        ones = [d for d in range(self.ndim) if is_one(self.extents[d])]
        gone = ones if axis is None else normal_axes(axis, self.ndim, "squeeze")
        if not set(gone) <= set(ones):
            raise ValueError(
                f"squeeze at {user_location()}: an axis of an array of shape {shape_text(self.extents)} is to be left "
                "out, whose extent is not known to be 1; index it, x[0]"
            )
        return self[tuple(0 if d in gone else slice(None) for d in range(self.ndim))]

    def expanded(self, axis: Any) -> Outline:
        """With new axes of one place."""
        places = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
        new = normal_axes(places, self.ndim + len(places), "expand_dims")
        return self[tuple(None if d in new else slice(None) for d in range(self.ndim + len(places)))]

    def flipped(self, axis: Any = None) -> Outline:
        """Axes from their end to their beginning."""
        turned = normal_axes(axis, self.ndim, "flip")
        return self[tuple(slice(None, None, -1) if d in turned else slice(None) for d in range(self.ndim))]

    def diagonal(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Outline:
        """The places at which two axes agree, as the last axis."""
        first, second = normal_axes((axis1, axis2), self.ndim, "diagonal")
        shifts = {first: max(-offset, 0), second: max(offset, 0)}
        count = fn.minimum(*(self.counts[d] - s for d, s in shifts.items()))
        rest = [d for d in range(self.ndim) if d not in shifts]
        place = {**{d: k for k, d in enumerate(rest)}, first: len(rest), second: len(rest)}
        lines = [
            s if s.axis is None else replace(
                s, axis=place[s.axis], start=simplify_extent(s.start + s.step * shifts.get(s.axis, 0)),
                from_edge=s.from_edge and s.axis not in shifts, to_edge=s.to_edge and s.axis not in shifts,
            )
            for s in self.lines
        ]  # fmt: skip
        counts = *(self.counts[d] for d in rest), simplify_extent(count)
        return replace(self, lines=tuple(lines), counts=counts, is_writable=False)

    def stretched(self, shape: Any) -> Outline:
        """Repeated along axes of one place, and along new ones, to a shape."""
        wanted = [fn.convert(n, INT32) for n in shape]
        extra = len(wanted) - self.ndim
        repeated = {
            d for d, n in enumerate(self.extents) if is_one(n) and not is_one(simplify_extent(wanted[d + extra]))
        }
        lines = [
            s if s.axis is None else replace(s, axis=None if s.axis in repeated else s.axis + extra) for s in self.lines
        ]
        counts = [*wanted[:extra], *(wanted[d + extra] if d in repeated else c for d, c in enumerate(self.counts))]
        return replace(self, lines=tuple(lines), counts=tuple(map(simplify_extent, counts)), is_writable=False)

    def reshaped(self, *shape: Any) -> Outline:
        """Another shape over the same memory; UndecidedError where that depends on the extents."""
        wanted = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
        extents = target_shape(self.extents, tuple(wanted), f"reshape of an array of shape {shape_text(self.extents)}")
        if len(extents) == self.ndim and all(map(same_extent, extents, self.extents)):
            return self
        for own, new in shape_groups(self.extents, extents):
            if [len(own), len(new)] != [1, 1] and not self.is_row_by_row(own):
                raise UndecidedError(
                    f"whether an array of shape {shape_text(self.extents)} that does not lie in memory row by row can "
                    f"be seen as {shape_text(extents)}, or is copied, depends on its extents"
                )
        frame = Frame(extents, within=self)
        lines = tuple(ViewLine(_ZERO, d, 1, from_edge=True, to_edge=True) for d in range(len(extents)))
        return Outline(frame, lines, extents, self.checks, self.is_writable)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return _VIEWS[function](*args, **kwargs)


def whole(extents: Sequence[Expr], *, is_ordered: bool = True) -> Outline:
    """All of a new memory."""
    frame = Frame(tuple(extents), is_ordered or len(extents) < 2)
    return Outline(
        frame, tuple(ViewLine(_ZERO, d, 1, from_edge=True, to_edge=True) for d in range(len(extents))), frame.extents
    )


def _never_meet(x: Outline, a: ViewLine, y: Outline, b: ViewLine) -> bool:
    """Whether two lines along one axis have no place in common: of other remainders, or one behind the other."""
    common = math.gcd(a.step, b.step)
    gap = simplify_extent(a.start - b.start)
    if isinstance(gap, Const) and (gap.value % common if common else gap.value):
        return True
    ends = [(s.start, s.start if s.axis is None else s.start + (v.counts[s.axis] - 1) * s.step) for v, s in
            ((x, a), (y, b))]  # fmt: skip
    (low, high), (least, most) = (e[:: 1 if s.step >= 0 else -1] for e, s in zip(ends, (a, b), strict=True))
    return any(_is_never_negative(gap - 1) for gap in (least - high, low - most))


def _reshape(x: Outline, shape: Any, order: str = "C", *, copy: bool | None = None) -> Outline:
    return x.reshaped(shape)


def _transpose(x: Outline, axes: Any = None) -> Outline:
    return x.T if axes is None else x.permuted(normal_axes(axes, x.ndim, "transpose"))


def _swapaxes(x: Outline, axis1: int, axis2: int) -> Outline:
    a, b = normal_axis(axis1, x.ndim, "swapaxes"), normal_axis(axis2, x.ndim, "swapaxes")
    return x.permuted([b if d == a else a if d == b else d for d in range(x.ndim)])


def _moveaxis(x: Outline, source: Any, destination: Any) -> Outline:
    old, new = normal_axes(source, x.ndim, "moveaxis"), normal_axes(destination, x.ndim, "moveaxis")
    order = [d for d in range(x.ndim) if d not in old]
    for place, axis in sorted(zip(new, old, strict=True)):
        order.insert(place, axis)
    return x.permuted(order)


_VIEWS: dict[Callable[..., Any], Callable[..., Outline]] = {
    np.reshape: _reshape, np.transpose: _transpose, np.swapaxes: _swapaxes, np.moveaxis: _moveaxis,
    np.squeeze: lambda x, axis=None: x.squeezed(axis), np.expand_dims: lambda x, axis: x.expanded(axis),
    np.flip: lambda x, axis=None: x.flipped(axis), np.diagonal: Outline.diagonal,
    np.broadcast_to: lambda x, shape: x.stretched(shape),
}  # fmt: skip


def _regrouped(
    places: Places, old: Sequence[Expr], new: Sequence[Expr], groups: Sequence[tuple[list[int], list[int]]]
) -> list[Expr]:
    """A place within one shape as one within another that holds the same elements."""
    found: list[Expr] = [_ZERO] * len(new)
    for own, other in groups:
        flat = flattened([places[d] for d in own], [old[d] for d in own])
        for d, place in zip(other, split_position(flat, [new[d] for d in other]), strict=True):
            found[d] = simplify_extent(place) if place.dtype is INT32 else place
    return found


def _all(conditions: Sequence[Expr]) -> Expr:
    found: Expr = TRUE
    for condition in conditions:
        found = condition if found is TRUE else found & condition
    return found


def _at_least(value: Expr, least: Expr) -> list[Expr]:
    """value >= least, unless that always holds."""
    return [] if _is_never_negative(value - least) else [value >= least]


def _at_most(value: Expr, most: Expr) -> list[Expr]:
    return [] if _is_never_negative(most - value) else [value <= most]


def _is_never_negative(gap: Expr) -> bool:
    form = simplify_extent(gap)
    low = bounds_of(form).numbers[0]
    return range_of(form)[0] >= 0 or (low is not None and low >= 0)


def _equal(value: Expr, other: Expr) -> list[Expr]:
    """value == other, unless that always holds."""
    return [] if same_extent(value, other) else [Expr._apply(Fn.EQ, value, other)]
