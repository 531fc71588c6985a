"""Symbols that users make: extents (`te.var`) and reduction axes (`te.reduce_axis`)."""

from __future__ import annotations

import sys
from typing import Any

from tedsl.lang import functions as fn
from tedsl.lang.errors import user_location
from tedsl.lang.expr import Axis, Const, Expr, Read, Var
from tedsl.lang.extents import simplify_extent
from tedsl.lang.keywords import own_arguments
from tedsl.lang.operators import Operators
from tedsl.lang.traverse import free_axes, topological
from tedsl.lang.variables import variables_of

__all__ = ["as_extent", "as_name", "as_shape", "reduce_axis", "var"]

INT32_MAX = 2**31 - 1


def var(name: str | None = None, **others: Any) -> Var:
    """A symbolic extent: an int32 that is at least 0 and takes its value from the arrays of a call.

    Without a name it is called like the variable that it is stored in.
    """
    if others or isinstance(name, Operators) or getattr(name, "ndim", False):
        found = f"{next(iter(others))}=" if others else type(name).__name__
        raise TypeError(
            f"te.var at {user_location()}: expected a name, found {found}: te.var makes a symbol; "
            "x.var() is the variance of a tensor"
        )
    name = given_name(name, "n", "te.var")
    if len(name.replace(",", " ").split()) > 1:
        raise ValueError(
            f"te.var at {user_location()}: one symbol each, n, m = te.var('n'), te.var('m'); found {name!r}"
        )
    return Var(name)


def as_name(name: Any, what: str) -> str:
    """A name that a user gave."""
    if not isinstance(name, str):
        raise TypeError(f"{what}: expected a name, found {type(name).__name__} ({name!r:.40}), at {user_location()}")
    return name


def given_name(name: Any, default: str, what: str) -> str:
    """The name that a user gave, else that of the variable in which the result of a public function is stored."""
    if name is not None:
        return as_name(name, what)
    variable = variables_of(sys._getframe(2))
    return variable if isinstance(variable, str) else default


@own_arguments()
def reduce_axis(extent: Any, name: str | None = None) -> Axis:
    """An axis to reduce over: `reduce_axis(64)` counts 0..63, `reduce_axis((2, 5))` counts 2, 3, 4.

    Without a name it is called like the variable that it is stored in.
    """
    if isinstance(name, int) and isinstance(extent, int) and extent < name:
        raise TypeError(
            f"te.reduce_axis at {user_location()}: a range is one pair: te.reduce_axis(({extent}, {name})); found "
            f"{name} for a name"
        )
    name = given_name(name, "k", "te.reduce_axis")
    if not isinstance(extent, tuple):
        return Axis(name, as_extent(extent, f"reduce_axis {name!r}"), is_reduce=True)
    if len(extent) != 2:
        raise ValueError(
            f"reduce_axis {name!r} at {user_location()}: expected (begin, end), found {len(extent)} numbers"
        )
    begin, end = (_bound(v, f"reduce_axis {name!r}") for v in extent)
    length = simplify_extent(end - begin)
    if isinstance(length, Const) and length.value < 0:
        raise ValueError(f"reduce_axis {name!r} at {user_location()}: the end {end} lies before the begin {begin}")
    return Axis(name, length, begin=begin, is_reduce=True)


def as_extent(value: Any, what: str) -> Expr:
    """One extent: a number from 0 to 2**31 - 1, or an int expression of `te.var`s."""
    extent = _bound(value, what)
    if isinstance(extent, Const) and extent.value < 0:
        raise ValueError(f"{what} at {user_location()}: an extent cannot be negative, found {extent.value}")
    return extent


def _bound(value: Any, what: str) -> Expr:
    value = value.value if isinstance(value, Const) else value
    if isinstance(value, (bool, float)):
        raise TypeError(f"{what} at {user_location()}: expected an integer extent, found {value!r}")
    if isinstance(value, int) and abs(value) > INT32_MAX:
        raise ValueError(
            f"{what} at {user_location()}: extent {value} does not fit in 32 bits (largest {INT32_MAX}); split the "
            "axis in two"
        )
    try:
        extent = simplify_extent(fn.convert(value, "int32"))
    except TypeError as error:
        told = ""
        if value is None or isinstance(value, str):
            name = value if isinstance(value, str) and value.isidentifier() else "n"
            told = f"; one that the call tells is a symbol, {name} = te.var({name!r})"
        raise TypeError(f"{what} at {user_location()}: expected an integer extent, found {value!r}{told}") from error
    if any(isinstance(node, Read) for node in topological(extent)) or free_axes(extent):
        raise TypeError(
            f"{what} at {user_location()}: an extent may only use numbers and te.var, found `{extent}`; "
            "give the largest extent and narrow it with where="
        )
    return extent


def as_shape(shape: Any, what: str) -> tuple[Expr, ...]:
    """A shape: a tuple (or list) of extents, or one extent."""
    if not isinstance(shape, (tuple, list)):
        shape = (shape,)
    extents = tuple(as_extent(v, f"{what}, dimension {d}") for d, v in enumerate(shape))
    total = 1
    for extent in extents:
        total *= int(extent.value) if isinstance(extent, Const) else 1
    if total > 2**62:
        raise ValueError(f"{what} at {user_location()}: shape {tuple(map(str, extents))} has {total} elements or more")
    return extents
