"""Sums of products of whole tensors: matmul, dot, outer, einsum."""

from __future__ import annotations

import math
import string
from collections.abc import Sequence
from typing import Any

import numpy as np

from tedsl.lang.compute import check_states, compute_tensors
from tedsl.lang.dtypes import INT32
from tedsl.lang.elements import as_tensors, is_one
from tedsl.lang.errors import user_location
from tedsl.lang.expr import Axis, Const, Expr, Read
from tedsl.lang.extents import number, same_extent, two_of_a_name
from tedsl.lang.reducers import BUILTIN, reduce_expr
from tedsl.lang.reshaping import ravel
from tedsl.lang.tensor import Tensor
from tedsl.lang.titles import takes_variables

__all__ = ["dot", "einsum", "matmul", "outer", "tensordot"]

# A subscript: one label per dimension. Labels are letters; those that an ellipsis stands for are negative numbers.
Labels = tuple[Any, ...]

UNKNOWN = 256  # an extent that is a symbol, or 0
_LETTERS = string.ascii_uppercase + string.ascii_lowercase  # of numbers, in their order
MOST_TRIED = 7  # operands whose orders are all compared; of more the first two are taken


@takes_variables
def matmul(a: Any, b: Any) -> Tensor:
    """NumPy's `@`: matrix product over the last two axes, leading ones broadcast, vectors on either side."""
    left, right = as_tensors((a, b), "te.matmul")
    if not left.ndim or not right.ndim:
        raise ValueError(
            f"te.matmul at {user_location()}: expected tensors of 1 dimension or more, found {left!r} and {right!r}; "
            "multiply by a scalar with *"
        )
    batch = tuple(range(-max(left.ndim, right.ndim, 2) + 2, 0))
    rows: Labels = ("k",) if left.ndim == 1 else (*batch[len(batch) - left.ndim + 2 :], "i", "k")
    columns: Labels = ("k",) if right.ndim == 1 else (*batch[len(batch) - right.ndim + 2 :], "k", "j")
    result = (*batch, *("i",) * (left.ndim > 1), *("j",) * (right.ndim > 1))
    return _contract([(left, rows), (right, columns)], result, "te.matmul", "matmul")


@takes_variables
def dot(a: Any, b: Any) -> Tensor:
    """NumPy's dot: the last axis of `a` with the last but one of `b`; a product with a scalar."""
    left, right = as_tensors((a, b), "te.dot")
    if not left.ndim or not right.ndim:
        product: Tensor = left * right
        return product
    rows = tuple(f"a{d}" for d in range(left.ndim - 1))
    columns = tuple(f"b{d}" for d in range(right.ndim - 1))
    inner = max(0, right.ndim - 2)
    return _contract(
        [(left, (*rows, "k")), (right, (*columns[:inner], "k", *columns[inner:]))], (*rows, *columns), "te.dot", "dot"
    )


@takes_variables
def tensordot(a: Any, b: Any, axes: Any = 2) -> Tensor:
    """The sum over pairs of axes: the last `axes` of `a` with the first of `b`, or two lists."""
    left, right = as_tensors((a, b), "te.tensordot")
    if isinstance(axes, int):
        first, second = list(range(left.ndim - axes, left.ndim)), list(range(axes))
    elif isinstance(axes, (tuple, list)) and len(axes) == 2:
        first, second = (list(v) if isinstance(v, (tuple, list)) else [v] for v in axes)
    else:
        raise TypeError(f"te.tensordot at {user_location()}: axes= takes a number or two lists, found {axes!r:.40}")
    rows: list[Any] = [f"a{d}" for d in range(left.ndim)]
    columns: list[Any] = [f"b{d}" for d in range(right.ndim)]
    try:
        for n, (p, q) in enumerate(zip(first, second, strict=True)):
            rows[p] = columns[q] = f"k{n}"
    except (IndexError, TypeError, ValueError):
        raise ValueError(
            f"te.tensordot at {user_location()}: axes={axes!r} do not pair axes of {left!r} and {right!r}"
        ) from None
    result = tuple(v for v in (*rows, *columns) if not v.startswith("k"))
    return _contract([(left, tuple(rows)), (right, tuple(columns))], result, "te.tensordot", "tensordot")


@takes_variables
def outer(a: Any, b: Any) -> Tensor:
    """All products of an element of `a` and one of `b`, both flattened."""
    left, right = map(ravel, as_tensors((a, b), "te.outer"))
    return _contract([(left, ("i",)), (right, ("j",))], ("i", "j"), "te.outer", "outer")


@takes_variables
def einsum(subscripts: str, *operands: Any) -> Tensor:
    """Einstein summation as NumPy writes it; of many operands two at a time, in the order of the least work.

    Subscripts may be lists of numbers, one behind each operand: `te.einsum(a, [0, 1], b, [1, 2], [0, 2])`.
    """
    if not isinstance(subscripts, str):
        subscripts, operands = _lettered((subscripts, *operands))
    what = f"te.einsum {subscripts!r}"
    tensors = as_tensors(operands, what)
    inputs, result = _parsed(subscripts, tensors, what)
    terms = list(zip(tensors, inputs, strict=True))
    while len(terms) > 2:
        places = _first_pair(terms, result, what) if len(terms) <= MOST_TRIED else [0, 1]
        taken = [terms[n] for n in places]
        terms = [term for n, term in enumerate(terms) if n not in places]
        later = {label for _, labels in terms for label in labels} | set(result)
        needed = [v for v in dict.fromkeys(v for _, labels in taken for v in labels) if v in later]
        kept = (*(v for v in needed if v not in result), *(v for v in result if v in needed))
        terms.insert(places[0], (_contract(taken, kept, what, "einsum"), kept))
    return _contract(terms, result, what, "einsum")


def _lettered(given: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
    """Operands with lists of numbers behind them as subscripts in letters, in the order of the numbers."""
    operands, lists = given[: len(given) // 2 * 2 : 2], given[1::2]
    texts = [_letters(labels) for labels in (*lists, *given[len(given) // 2 * 2 :])]
    if not operands or None in texts:
        raise TypeError(
            f"te.einsum at {user_location()}: expected the subscripts first, as te.einsum('ij,jk', a, b), or a list "
            f"of numbers from 0 to {len(_LETTERS) - 1} behind each operand, found {type(given[0]).__name__}"
        )
    inputs, result = texts[: len(lists)], texts[len(lists) :]
    return ",".join(map(str, inputs)) + "".join(f"->{text}" for text in result), operands


def _letters(labels: Any) -> str | None:
    """The letters of a list of numbers and `...`; None of anything else."""
    if not isinstance(labels, (list, tuple)):
        return None
    known = [isinstance(v, (int, np.integer)) and 0 <= v < len(_LETTERS) for v in labels]
    if not all(k or v is Ellipsis for k, v in zip(known, labels, strict=True)):
        return None
    return "".join("..." if v is Ellipsis else _LETTERS[v] for v in labels)


def _first_pair(terms: Sequence[tuple[Tensor, Labels]], result: Labels, what: str) -> list[int]:
    """The two operands whose product comes first in the order of the least work, among equals from the left.

    Sets of operands are the bits of a number; of each the work is found from that of its parts.
    """
    sizes = {label: number(extent) or UNKNOWN for label, extent in _extents(terms, what).items()}
    whole = (1 << len(terms)) - 1
    inside = [
        {v for n, (_, labels) in enumerate(terms) if those >> n & 1 for v in labels} for those in range(whole + 1)
    ]
    kept = [inside[those] & (inside[whole ^ those] | set(result)) for those in range(whole + 1)]
    work, last = [0] * (whole + 1), [0] * (whole + 1)
    for those in range(1, whole + 1):
        first = those & -those
        splits = [part for part in range(1, those) if part & those == part and not part & first]
        ways = [
            (work[p] + work[those ^ p] + math.prod(sizes[v] for v in kept[p] | kept[those ^ p]), p.bit_count(), -p)
            for p in splits
        ]
        if ways:
            work[those], _, at = min(ways)
            last[those] = -at
    pair = whole
    while pair.bit_count() > 2:
        pair = max(pair ^ last[pair], last[pair], key=int.bit_count)
    return [n for n in range(len(terms)) if pair >> n & 1]


def _parsed(subscripts: str, tensors: list[Tensor], what: str) -> tuple[list[Labels], Labels]:
    """The labels of every operand and of the result."""
    left, arrow, right = subscripts.replace(" ", "").partition("->")
    written = left.split(",")
    if len(written) != len(tensors):
        raise ValueError(f"{what} at {user_location()}: subscripts for {len(written)} operands, found {len(tensors)}")
    inputs = [_labels(text, t.ndim, what) for text, t in zip(written, tensors, strict=True)]
    dots = sorted({v for labels in inputs for v in labels if isinstance(v, int)})
    if arrow:
        result = _labels(right, len(dots) + len(right.replace("...", "")), what)
    else:
        letters = [v for labels in inputs for v in labels if isinstance(v, str)]
        result = (*dots, *sorted(v for v in set(letters) if letters.count(v) == 1))
    known = {v for labels in inputs for v in labels}
    if unknown := [v for v in result if v not in known]:
        raise ValueError(f"{what} at {user_location()}: the result uses {unknown[0]!r}, which no operand has")
    if len(set(result)) != len(result):
        raise ValueError(f"{what} at {user_location()}: the result uses a label twice")
    return inputs, result


def _labels(text: str, ndim: int, what: str) -> Labels:
    before, dots, after = text.partition("...")
    if not all(c.isalpha() for c in before + after):
        raise ValueError(f"{what} at {user_location()}: labels are letters, found {text!r}")
    count = ndim - len(before) - len(after)
    if count < 0 or (count and not dots):
        raise ValueError(
            f"{what} at {user_location()}: {text!r} names {len(before + after)} axes of an operand with {ndim}"
        )
    return (*before, *range(-count, 0), *after)


def _contract(terms: Sequence[tuple[Tensor, Labels]], result: Labels, what: str, name: str) -> Tensor:
    """The sum over all labels not in `result` of the product of the terms."""
    extents = _extents(terms, what)
    order = list(dict.fromkeys(v for _, labels in terms for v in labels))
    outer_axes = {v: Axis(_axis_name(v), extents[v]) for v in result}
    summed = [v for v in order if v not in outer_axes]
    inner = {v: Axis(_axis_name(v), extents[v], is_reduce=True) for v in summed}
    at = {**outer_axes, **inner}
    body: Expr | None = None
    for tensor, labels in terms:
        read = Read(tensor, tuple(_index(at[v], n) for v, n in zip(labels, tensor.extents, strict=True)))
        body = read if body is None else body * read
    assert body is not None
    check_states((body,), what)
    if inner:
        kind = "any" if body.dtype.is_bool else "sum"
        body = reduce_expr(BUILTIN[kind], (body,), tuple(inner.values()), None, what)[0]
    return compute_tensors(tuple(outer_axes.values()), (body,), name)[0]


def _axis_name(label: Any) -> str:
    return label if isinstance(label, str) else f"b{-label}"


def _index(axis: Axis, extent: Expr) -> Expr:
    """0 where an extent of 1 is stretched."""
    return Const(0, INT32) if is_one(extent) and axis.extent is not extent else axis


def _extents(terms: Sequence[tuple[Tensor, Labels]], what: str) -> dict[Any, Expr]:
    """The extent of every label; 1 stretches where NumPy stretches it."""
    found: dict[Any, tuple[Expr, Tensor]] = {}
    for tensor, labels in terms:
        for label, extent in zip(labels, tensor.extents, strict=True):
            known = found.get(label)
            if known is None or is_one(known[0]):
                found[label] = (extent, tensor)
            elif not is_one(extent) and not same_extent(known[0], extent):
                raise ValueError(
                    f"{what} at {user_location()}: extents do not agree: {known[0]} in {known[1]!r}, "
                    f"but {extent} in {tensor!r}{two_of_a_name(known[0], extent)}"
                )
    return {label: extent for label, (extent, _) in found.items()}
