"""Calling the Python function of a stage, and what is said when it fails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tedsl.analysis.messages import describe
from tedsl.analysis.pointwise import Array
from tedsl.analysis.sizes import concrete_shape
from tedsl.lang.expr import Var
from tedsl.lang.native import Native
from tedsl.lang.tensor import Extern

__all__ = ["returned_by"]


def returned_by(op: Extern, given: Sequence[Array], sizes: Mapping[Var, int]) -> Any:
    """What the function returns for arrays, which it may not write; its own errors tell which stage it is."""
    try:
        if isinstance(op.function, Native):
            return op.function(*given, shape=concrete_shape(op.output(), sizes, describe(op)))
        return op.function(*given)
    except ValueError as error:
        if "read-only" not in str(error) or all(a.flags.writeable for a in given):
            _note(error, op)
            raise
        raise ValueError(
            f"{describe(op)}: the function writes into its arguments, which are read-only ({error}); compute on a "
            "copy, x = x.copy(), and return that"
        ) from error
    except Exception as error:
        _note(error, op)
        raise


def _note(error: Exception, op: Extern) -> None:
    if hasattr(error, "add_note"):  # from Python 3.11 on
        error.add_note(f"raised by the Python function of {describe(op)}")
