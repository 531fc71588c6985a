"""What `te.checked()` verifies before a call: that what was assumed of index tensors holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from tedsl.analysis.messages import describe
from tedsl.analysis.pointwise import Array
from tedsl.analysis.sizes import evaluate_extent
from tedsl.lang.expr import Var
from tedsl.lang.tensor import Compute, IndexFacts, Placeholder, Tensor
from tedsl.lang.traverse import operations_between
from tedsl.reference import evaluate_stages

__all__ = ["check_facts"]


def check_facts(
    inputs: Sequence[Tensor], outputs: Sequence[Tensor], arrays: Sequence[Array], sizes: Mapping[Var, int], what: str
) -> None:
    """ValueError for a fact that does not hold, naming the element."""
    known = dict(zip(inputs, arrays, strict=True))
    for op in operations_between(inputs, outputs):
        if isinstance(op, Compute) and op.facts is not None:
            array = _value(op.output(), known, sizes)
            if array is not None and array.size:
                for said, fault in _faults(op.facts, array, known, sizes):
                    raise ValueError(
                        f"{what}: te.assume says that {op.inputs[0].name!r} {said}, but {fault} ({describe(op)}); mend "
                        "the index, or do not assume it"
                    )


def _value(tensor: Tensor, known: Mapping[Tensor, Array], sizes: Mapping[Var, int]) -> Array | None:
    """The elements of a tensor; None where they do not follow from what is given."""
    if tensor in known:
        return known[tensor]
    stages = operations_between(known, [tensor])
    if any(isinstance(op, Placeholder) for op in stages):
        return None
    return evaluate_stages(stages, known, sizes)[tensor]


def _faults(
    facts: IndexFacts, array: Array, known: Mapping[Tensor, Array], sizes: Mapping[Var, int]
) -> Iterator[tuple[str, str]]:
    """What was said of the array, and what is there instead."""
    rows = np.moveaxis(array, facts.axis, -1)
    count = rows.shape[-1]
    if facts.within is not None:
        low, high = (evaluate_extent(e, sizes, "te.assume") for e in facts.within)
        yield from _outside(array, low, high, f"is within ({low}, {high})")
    if facts.permutation:
        yield from _outside(array, 0, count, f"is a permutation of {count} places")
    if facts.unique:
        ordered = np.sort(rows, axis=-1)
        twice = ordered[..., 1:][ordered[..., 1:] == ordered[..., :-1]]
        if twice.size:
            said = f"is a permutation of {count} places" if facts.permutation else "is unique"
            yield said, f"{twice[0]} is there twice along axis {facts.axis}"
    if facts.sorted and (falls := np.argwhere(rows[..., 1:] < rows[..., :-1])).size:
        *row, at = falls[0].tolist()
        before, after = rows[tuple(row)][at : at + 2]
        yield "is sorted", f"{after} comes after {before} along axis {facts.axis}"
    back = None if facts.inverse is None else _value(facts.inverse, known, sizes)
    if back is not None:
        there = np.take_along_axis(np.moveaxis(back, facts.axis, -1), rows.astype(np.int64), -1)
        wrong = np.argwhere(there != np.arange(count))
        if wrong.size:
            place = rows[tuple(wrong[0])]
            yield "has this inverse", f"inverse[{place}] is {there[tuple(wrong[0])]}, and {place} is at {wrong[0][-1]}"


def _outside(array: Array, low: int, high: int, said: str) -> Iterator[tuple[str, str]]:
    found = np.argwhere((array < low) | (array >= high))
    if found.size:
        yield said, f"{array[tuple(found[0])]} is at {found[0].tolist()}"
