"""Calling the Python functions of a program: what they are given, what they return, and whether they are pure.

A function gets read-only arrays and may return memory that is not its own to give: an argument, a view of one, or an
array that it keeps and may change at its next call. Such a result is copied, with the reason; others are used as they
are. In `te.checked()` a function that is declared pure is called twice, and arguments are compared before and after.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

import numpy as np

from tedsl.analysis.arrays.feeds import check_dtype, check_not_masked
from tedsl.analysis.calling import returned_by
from tedsl.analysis.checked import is_checked
from tedsl.analysis.messages import describe
from tedsl.analysis.pointwise import Array
from tedsl.analysis.sizes import concrete_shape
from tedsl.lang.expr import Var
from tedsl.lang.tensor import Extern

__all__ = ["called"]

Copies = list[tuple[str, str]]


def called(op: Extern, arrays: Sequence[Array], sizes: Mapping[Var, int], copies: Copies) -> list[Array]:
    """The results of the Python function, checked, each in memory that nobody else writes."""
    given = [np.ascontiguousarray(a).reshape(a.shape).view() for a in arrays]
    for array in given:
        array.flags.writeable = False
    checking = is_checked()
    before = [a.copy() for a in given] if checking else []
    results = _results(op, given, sizes, copies)
    if checking:
        _check_arguments(op, given, before)
        if op.pure:
            _check_pure(op, results, _results(op, [a.copy() for a in before], sizes, []))
            _check_arguments(op, given, before)
    return results


def _results(op: Extern, given: Sequence[Array], sizes: Mapping[Var, int], copies: Copies) -> list[Array]:
    returned = returned_by(op, given, sizes)
    parts = list(returned) if isinstance(returned, (tuple, list)) else [returned]
    del returned  # so that the references counted below are those of others
    if len(parts) != op.num_outputs:
        raise ValueError(f"{describe(op)}: the function returned {len(parts)} arrays, expected {op.num_outputs}")
    results: list[Array] = []
    while parts:
        index = len(results)
        part = parts.pop(0)
        place = f"{describe(op)}: result {index}"
        if not isinstance(part, (np.ndarray, np.generic)):
            raise TypeError(f"{place}: expected a NumPy array, found {type(part).__name__} ({part!r:.40})")
        check_not_masked(part, place)
        reason = "" if isinstance(part, np.generic) else _reason(part, given)
        array = np.asarray(part)
        del part
        check_dtype(array, op.dtypes[index], place)
        shape = concrete_shape(op.output(index), sizes, place)
        if array.shape != shape:
            raise ValueError(f"{place}: expected shape {shape}, found {array.shape}")
        if reason:
            copies.append((op.name_of(index), reason))
        results.append(np.array(array, order="C") if reason or not array.flags.c_contiguous else array)
    return results


def _reason(part: Array, given: Sequence[Array]) -> str:
    """Why a returned array cannot be kept as it is; "" where it is the function's own, given away."""
    for k, argument in enumerate(given):
        if np.may_share_memory(part, argument) and np.shares_memory(part, argument):
            same = part.shape == argument.shape and part.strides == argument.strides
            return f"the function returned {'its argument' if same else 'a view of its argument'} {k}"
    if sys.getrefcount(part) > _own_references() or (part.base is not None and sys.getrefcount(part.base) > 2):
        return "the memory that the function returned is held elsewhere: it keeps it, or returned it twice"
    base = part.base
    while isinstance(base, np.ndarray):
        base = base.base
    return "" if base is None else f"the memory that the function returned is that of a {type(base).__name__}"


def _own_references() -> int:
    """The references to an array that nobody else holds, where `_reason` counts them.

    Counted each time: a call holds one more where something, such as torch.compile, evaluates Python's frames itself.
    """

    def count(part: Array) -> int:
        return sys.getrefcount(part)

    parts = [np.empty(1)]
    part = parts.pop(0)
    return count(part)


def _check_arguments(op: Extern, given: Sequence[Array], before: Sequence[Array]) -> None:
    for k, (now, then) in enumerate(zip(given, before, strict=True)):
        if not _same(now, then):
            raise ValueError(
                f"{describe(op)}: the function changed its argument {k} ({op.args[k]!r}); compute on a copy, "
                "x = x.copy(), and return that"
            )


def _check_pure(op: Extern, first: Sequence[Array], second: Sequence[Array]) -> None:
    for k, (one, other) in enumerate(zip(first, second, strict=True)):
        if not _same(one, other):
            raise ValueError(
                f"{describe(op)}: declared pure, but two calls with equal arguments gave different values of result "
                f"{k} ({op.output(k)!r}); declare it with pure=False"
            )


def _same(a: Array, b: Array) -> bool:
    return a.tobytes() == b.tobytes()
