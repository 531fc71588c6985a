"""What `te.checked()` verifies after a call: no NaN that was not there before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tedsl.analysis.messages import describe
from tedsl.analysis.pointwise import Array
from tedsl.lang.expr import Var
from tedsl.lang.tensor import Placeholder, Tensor
from tedsl.lang.traverse import operations_between
from tedsl.reference import evaluate_stages

__all__ = ["check_numbers"]


def check_numbers(
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    arrays: Sequence[Array],
    results: Mapping[int, Array],
    sizes: Mapping[Var, int],
    what: str,
    added: Mapping[int, Array],
) -> None:
    """FloatingPointError for a NaN in a result where no input holds one, naming the element and the first stage.

    `added`: what outputs held before they were added to, by their position.
    """
    for position, array in results.items():
        place = _first_nan(array)
        sources = [*arrays, *(a for p, a in added.items() if p == position)]
        if place is None or any(_first_nan(a) is not None for a in sources):
            continue
        index = ", ".join(map(str, place))
        raise FloatingPointError(
            f"{what}: output {outputs[position].name!r} is NaN at [{index}], and no input holds a NaN"
            f"{_source(inputs, outputs[position], arrays, sizes)}; guard it with te.select"
        )


def _source(inputs: Sequence[Tensor], output: Tensor, arrays: Sequence[Array], sizes: Mapping[Var, int]) -> str:
    """The first stage whose result holds a NaN, by the reference; inputs that were overwritten cannot tell any more."""
    known = dict(zip(inputs, arrays, strict=True))
    for op in operations_between(inputs, [output]):
        if isinstance(op, Placeholder):
            continue
        known = dict(evaluate_stages([op], known, sizes))
        if any(_first_nan(np.asarray(known[t])) is not None for t in op.outputs):
            return f"; the first NaN is made by {describe(op)}"
    return ""


def _first_nan(array: Array) -> tuple[int, ...] | None:
    """Where an array of floats holds its first NaN."""
    if array.size == 0 or (not np.issubdtype(array.dtype, np.inexact) and array.dtype.kind != "V"):
        return None
    found = np.argwhere(np.isnan(array.astype(np.float64)))
    return tuple(map(int, found[0])) if len(found) else None
