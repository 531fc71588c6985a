"""Numbers and arrays in place of tensors that a derivative is given, as constants of the dtype that is asked for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from tedsl.analysis.arrays.conversions import converted, of_numbers
from tedsl.lang.constants import constant, is_plain
from tedsl.lang.creation import full
from tedsl.lang.elements import whole
from tedsl.lang.expr import Expr
from tedsl.lang.foreign import has_elements, values_of
from tedsl.lang.tensor import Tensor

__all__ = ["as_given"]


def as_given(value: Any, like: Tensor, shape: Iterable[Expr], place: str) -> Any:
    """A number everywhere in `shape`, an array or a list of numbers as it is, each of the dtype of `like`.

    Other things are what they were, for the caller to refuse.
    """
    if isinstance(value, (Tensor, Expr)):
        return whole(value, "value")
    if isinstance(value, (int, float, np.number)) and not isinstance(value, bool):
        return full(tuple(shape), float(value), like.dtype)
    if isinstance(value, (list, tuple)) and is_plain(value):
        return constant(of_numbers(value, like.dtype, place))
    if has_elements(value):
        return constant(converted(values_of(value, place), like.dtype, place))
    return value
