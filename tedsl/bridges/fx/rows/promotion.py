"""The dtypes in which PyTorch computes element by element, which are not NumPy's.

Operands are brought to one dtype first: a number or a tensor of no axes decides only where no other operand is of its
kind, and integers beside float32 become float32, not float64. Half precision is computed in single and rounded once.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from tedsl.bridges.fx.rows.arrays import Row, as_kind, dtype_of, kind_of
from tedsl.lang.dtypes import integer_bounds
from tedsl.mutation.array import Array
from tedsl.mutation.selected import Selected

__all__ = ["in_dtype", "promoted"]


def promoted(row: Row, kind: str, first: int = 0) -> Row:
    """The row on operands of one dtype, from the `first` on; `kind` is PyTorch's word for what decides it."""

    @functools.wraps(row)
    def run(*operands: Any, **options: Any) -> Any:
        computed, result = _dtypes(kind, [o for o in operands[first:] if o is not None])
        taken = [o if o is None else in_dtype(o, computed) for o in operands[first:]]
        return as_kind(row(*operands[:first], *taken, **options), result)

    return run


def _dtypes(kind: str, operands: Sequence[Any]) -> tuple[Any, Any]:
    """What is computed in, and what the result is rounded to."""
    import torch
    from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND, elementwise_dtypes

    def stand_in(value: Any) -> Any:
        if not isinstance(value, (Array, Selected)):
            return value
        rank = value.ndim if isinstance(value, Array) else 1
        return torch.empty((0,) * rank, dtype=getattr(torch, str(dtype_of(value))), device="meta")

    kinds = ELEMENTWISE_TYPE_PROMOTION_KIND
    computed, result = elementwise_dtypes(*map(stand_in, operands), type_promotion_kind=kinds[kind])
    return kind_of(computed), kind_of(result)


def in_dtype(operand: Any, kind: Any) -> Any:
    """An operand in the dtype: a number that is no such integer loses its fraction and goes around, as in PyTorch."""
    if isinstance(operand, (Array, Selected)):
        return as_kind(operand, kind)
    if kind.is_bool:
        return bool(operand)
    if kind.is_integer:
        low, high = integer_bounds(kind)
        return (int(operand) - low) % (high - low + 1) + low
    return float(operand)
