"""Quantiles of whole tensors, and lines through points: what is found in order."""

from __future__ import annotations

from typing import Any

import numpy as np

from tedsl.lang import functions as fn
from tedsl.lang.broadcast import where
from tedsl.lang.elements import as_floats, as_tensors, product, removed_axes, tensor_of
from tedsl.lang.errors import brief, user_location
from tedsl.lang.expr import Const, Expr
from tedsl.lang.indexing import getitem
from tedsl.lang.joining import stack
from tedsl.lang.reducing import reduction
from tedsl.lang.reshaping import ravel, reshape
from tedsl.lang.shaping import moveaxis
from tedsl.lang.sorting import searchsorted, sort
from tedsl.lang.tensor import Tensor
from tedsl.lang.titles import takes_variables

__all__ = ["interp", "median", "percentile", "quantile"]

_any = reduction("any")


@takes_variables
def quantile(x: Any, q: Any, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The value below which the share `q` of each row lies, interpolated between two elements.

    The axes of an array of shares, or the one of a list, are the first ones of the result. NaN where a row holds one.
    """
    return _quantile(x, _shares(q, "te.quantile", 1), axis, keepdims, "te.quantile")


def _shares(q: Any, what: str, whole: int) -> np.ndarray[Any, Any]:
    """Numbers from 0 to `whole`, as shares of 1."""
    try:
        given = None if isinstance(q, (Tensor, Expr)) else np.asarray(q, "float64")
    except (TypeError, ValueError):
        given = None
    if given is None or not given.size:
        found = f"{type(q).__name__} {brief(repr(q), 40)}"
        raise TypeError(
            f"{what} at {user_location()}: q: expected a number, or an array or list of some, found {found}"
        )
    if not ((given >= 0) & (given <= whole)).all():
        raise ValueError(
            f"{what} at {user_location()}: q: expected parts from 0 to {whole}, found {brief(repr(q), 40)}"
        )
    return given / whole


def _quantile(x: Any, shares: np.ndarray[Any, Any], axis: Any, keepdims: bool, what: str) -> Tensor:
    source = as_floats(x, what)
    over = removed_axes(axis, source.ndim, what)
    count = product(source.extents[d] for d in over)
    if not isinstance(count, Const):
        raise ValueError(f"{what} at {user_location()}: the number of elements is symbolic, `{count}`; give extents")
    if not count.value:
        raise ValueError(f"{what} at {user_location()}: there are no elements in {source!r} along {over}")
    rows = sort(_as_rows(source, over, int(count.value)))
    parts = [_between(rows, float(p) * (int(count.value) - 1)) for p in shares.ravel()]
    wrong = _any(fn.isnan(source), over, False)
    results: list[Tensor] = [where(wrong, float("nan"), r) for r in parts]
    if keepdims:
        kept = tuple(1 if d in over else n for d, n in enumerate(source.shape))
        results = [reshape(r, kept) for r in results]
    if not shares.ndim:
        return results[0]
    found = stack(results)
    return found if shares.ndim == 1 else reshape(found, (*shares.shape, *found.shape[1:]))


def _as_rows(x: Tensor, over: tuple[int, ...], count: int) -> Tensor:
    """The axes that are reduced, as one, the last."""
    moved = moveaxis(x, over, tuple(range(x.ndim - len(over), x.ndim)))
    return reshape(moved, (*moved.shape[: x.ndim - len(over)], count))


def _between(rows: Tensor, place: float) -> Tensor:
    below = int(place)
    low = getitem(rows, (..., below))
    part = place - below
    if not part:
        return low
    high = getitem(rows, (..., below + 1))
    line = low + (high - low) * part if part < 0.5 else high - (high - low) * (1 - part)
    found: Tensor = where(fn.isinf(low) | fn.isinf(high), low + high, line)  # the distance to infinity says nothing
    return found


@takes_variables
def percentile(x: Any, q: Any, axis: Any = None, keepdims: bool = False) -> Tensor:
    """te.quantile, with `q` from 0 to 100."""
    return _quantile(x, _shares(q, "te.percentile", 100), axis, keepdims, "te.percentile")


@takes_variables
def median(x: Any, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The middle element of each row in order, or the mean of the two; NaN where a row holds one."""
    return _quantile(x, np.asarray(0.5), axis, keepdims, "te.median")


@takes_variables
def interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None) -> Tensor:
    """Linear interpolation at x between the points (xp, fp), xp increasing; beyond the ends, the value there.

    `left` and `right` are other values for what lies before the first point and after the last.
    """
    places, known, values = (as_floats(t, "te.interp") for t in as_tensors((x, xp, fp), "te.interp"))
    last = known.extents[0] - 1
    after = searchsorted(known, ravel(places), side="right")
    before = fn.clip(reshape(after, places.shape) - 1, 0, fn.maximum(last - 1, 0))

    def element(*i: Any) -> Any:
        at, k = places[i], before[i]
        following = fn.minimum(k + 1, last)
        near, far, low, high = known[k], known[following], values[k], values[following]
        slope = (high - low) / (far - near)
        line = low + slope * (at - near)
        line = fn.select(line == line, line, high + slope * (at - far))  # from the other end, where one is infinite
        line = fn.select((line != line) & ((low == high) | (at == near)), low, line)
        inside = fn.select(at >= known[last], values[last], line)
        found = fn.select(at <= known[0], values[0], inside)
        found = found if left is None else fn.select(at < known[0], left, found)
        found = found if right is None else fn.select(at > known[last], right, found)
        return fn.select(at != at, at, found)

    return tensor_of(places.extents, element, "interp")
