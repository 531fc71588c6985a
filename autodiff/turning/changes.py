"""Other variables for a read: the same points, named so that the index is linear.

`S[(i + w) % n]` with n iterations of i reads each element once, whatever w is: y = (i + w) % n runs over the same n
numbers, and i = (y - w) % n. Over y the index is y. Every change here is such a bijection between points, which the
value and the conditions follow; inversion then sees an index that it knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import field
from typing import Any

import numpy as np

from autodiff.integers.conditions import OpaqueIndex
from autodiff.integers.linear import Atom, Linear, Symbol, linear
from autodiff.turning.affine_read import Product, Reader, multiples
from autodiff.turning.affine_write import expression_of
from autodiff.turning.sent import Sent, Shape, extent_of
from tedsl.analysis.points import box_size, is_data_free, static_range, values_at
from tedsl.lang import functions as fn
from tedsl.lang.dataclass import dataclass
from tedsl.lang.expr import Apply, Axis, Const, Expr, Var
from tedsl.lang.intervals import range_of
from tedsl.lang.operators import Fn
from tedsl.lang.traverse import free_axes, reads_of, substitute, substitute_all, topological

__all__ = ["Change", "Rule", "changed", "digits", "exclusive", "rotation"]


MOST_POINTS = 1 << 16


@dataclass(frozen=True)
class Change:
    """`values` tells old axes by new `axes`, where `conditions` hold; `known` are expressions that become shorter."""

    values: dict[Expr, Expr]
    axes: tuple[Axis, ...]
    known: dict[Expr, Expr] = field(default_factory=dict)
    conditions: tuple[Expr, ...] = ()


Rule = Callable[[Sent, Shape, Reader], "Change | None"]


def changed(read: Sent, change: Change) -> Sent:
    """The read over other axes."""
    everything = (read.value, *read.index, *read.conditions)
    value, *rest = substitute_all(substitute_all(everything, change.known), change.values)
    first = min(k for k, a in enumerate(read.axes) if a in change.values)
    kept = [a for a in read.axes if a not in change.values]
    kept[first:first] = change.axes
    count = len(read.index)
    return Sent(tuple(kept), tuple(rest[:count]), value, (*change.conditions, *rest[count:]))


def rotation(read: Sent, shape: Shape, reader: Reader) -> Change | None:
    """rewrites   S[(i + w) % n], i < n   ->   S[y], y < n, i = (y - w) % n"""
    for row in read.index:
        if not isinstance(row, Apply) or row.fn is not Fn.MOD or free_axes(row.args[1]) or reads_of((row,)):
            continue
        total, size = row.args
        form, modulus = reader.form(total), reader.form(size)
        for axis in _by_extent(read.axes, modulus, reader):
            if abs(form[axis]) != 1 or not _is_only_term(form, axis):
                continue
            extent = reader.form(extent_of(axis))
            if not reader.facts.proves(modulus - extent):
                continue
            turned = Axis(axis.name, size)
            others = substitute(total, {axis: axis.begin})
            steps = ((turned - others) if form[axis] > 0 else (others - turned)) % size
            inside = () if extent == modulus else (steps < extent_of(axis),)
            return Change({axis: steps + axis.begin}, (turned,), {row: turned}, inside)
    return None


def _by_extent(axes: Iterable[Axis], modulus: Linear, reader: Reader) -> list[Axis]:
    """Those as long as the modulus first: no condition is left of them."""
    return sorted(axes, key=lambda a: reader.form(extent_of(a)) != modulus)


def _is_only_term(e: Linear, axis: Axis) -> bool:
    """Whether an axis is in no other term of a form."""
    return all(s is axis or all(t is not axis for t in _inside(s)) for s in e.coefficients)


def _inside(s: Symbol) -> Iterator[Symbol]:
    """All symbols of a term."""
    if isinstance(s, Product):
        yield from s.factors
    elif isinstance(s, Atom):
        yield from (t for part in s.parts() for t in part.leaves())
    elif isinstance(s, OpaqueIndex):
        key: Any = s.key
        yield from free_axes(key) if isinstance(key, Expr) else (*key.numerator.leaves(), *key.divisor.leaves())


def digits(read: Sent, shape: Shape, reader: Reader) -> Change | None:
    """rewrites   S[i // m], i < n   ->   S[q], i = q m + r, r < m, where q m + r < n;   so for i % m"""
    for node in topological(read.index):
        if not isinstance(node, Apply) or node.fn not in (Fn.FLOORDIV, Fn.MOD):
            continue
        axis, size = node.args
        own = isinstance(axis, Axis) and axis in set(read.axes) and isinstance(axis.begin, Const)
        if not own or isinstance(size, Const) or free_axes(size) or reads_of((size,)):
            continue
        assert isinstance(axis, Axis)
        if axis.begin.value != 0:  # type: ignore[attr-defined]
            continue
        exact = _quotient(reader.form(extent_of(axis)), reader.form(size))
        whole = fn.maximum(size, 1)
        count = (extent_of(axis) + whole - 1) // whole if exact is None else exact
        high, low = Axis(axis.name, count), Axis(f"{axis.name}_rest", size)
        value = high * size + low
        known: dict[Expr, Expr] = {
            fn.apply(Fn.FLOORDIV, axis, size): high,
            fn.apply(Fn.MOD, axis, size): low,
        }
        return Change({axis: value}, (high, low), known, () if exact is not None else (value < extent_of(axis),))
    return None


def _quotient(n: Linear, size: Linear) -> Expr | None:
    """k where n = k * size, for a size of one term."""
    if len(size.coefficients) != 1 or size.constant:
        return None
    times, rest = multiples(n, size)
    return expression_of(times, {}) if rest == linear(0) else None


def exclusive(read: Sent, shape: Shape, reader: Reader) -> Change | None:
    """rewrites   S[i ^ w], i < 2^k, 0 <= w < 2^k   ->   S[y], y < 2^k, i = y ^ w"""
    for row in read.index:
        terms = _terms(row)
        for axis in terms if len(terms) > 1 else ():
            others = [t for t in terms if t is not axis]
            extent = _power_of_two(axis) if axis in set(read.axes) else None
            if extent is None or len(others) != len(terms) - 1 or any(axis in set(free_axes(t)) for t in others):
                continue
            assert isinstance(axis, Axis)
            if all(low >= 0 and high < extent for low, high in map(_range, others)):
                turned = Axis(axis.name, extent_of(axis))
                value: Expr = turned
                for t in others:
                    value = value ^ t
                return Change({axis: value}, (turned,), {row: turned})
    return None


def _terms(e: Expr) -> list[Expr]:
    """What is joined by exclusive or."""
    if isinstance(e, Apply) and e.fn is Fn.BITXOR:
        return [t for a in e.args for t in _terms(a)]
    return [e]


def _range(e: Expr) -> tuple[int, int]:
    """The least and the greatest value: by trying all points where they are few, as `1 << s` has them."""
    axes = free_axes(e)
    ranges = {a: r for a in axes if (r := static_range(a)) is not None}
    few = is_data_free((e,)) and len(ranges) == len(axes) and 0 < (box_size(axes) or 0) <= MOST_POINTS
    if not few or any(isinstance(n, Var) for n in topological(e)):
        return range_of(e)
    (values,) = values_at([e], {a: np.arange(*r) for a, r in ranges.items()})
    return int(values.min()), int(values.max())


def _power_of_two(axis: Expr) -> int | None:
    """The extent of an axis from 0, if it is a power of two."""
    if not isinstance(axis, Axis) or not isinstance(axis.extent, Const) or not isinstance(axis.begin, Const):
        return None
    extent = int(axis.extent.value)
    return extent if axis.begin.value == 0 and extent > 0 and extent & (extent - 1) == 0 else None
