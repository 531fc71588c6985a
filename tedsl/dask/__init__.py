"""Operators over Dask arrays: block by block, each with the halo that the operator's indices ask for.

`te.dask.map(op, x)` is lazy, as all of Dask is: nothing is computed before `.compute()`, and never more of an array is
held than the blocks in work. Dask itself is imported when the first array comes.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

__all__ = ["map", "vjp"]


def map(op: Any, *args: Any, **kwargs: Any) -> Any:
    """`op(*args, **kwargs)` with Dask arrays among the arguments: Dask arrays, equal to those of the whole arrays.

    How the results are cut follows from the chunks of the arguments. Sums and the like over chunks are reduced per
    block and combined; where an index depends on data, or a scan runs, the arrays must be in one chunk along it.
    """
    return _home().mapped(op, args, kwargs, "te.dask.map")


def vjp(op: Any, *args: Any, **kwargs: Any) -> tuple[Any, Callable[..., Any]]:
    """The results, and `pull(head)`: the gradients of the float arrays among the arguments, as Dask arrays.

    Several results take several heads, in order; a scalar result needs none. One array gives one gradient, several a
    tuple in the order of the arguments, each in the chunks of its array.
    """
    results: tuple[Any, Callable[..., Any]] = _home().pulled(op, args, kwargs, "te.dask.vjp")
    return results


def _home() -> Any:
    try:
        return import_module("tedsl.dask.mapped")
    except ModuleNotFoundError as error:
        if str(error.name).partition(".")[0] != "dask":
            raise
        raise ModuleNotFoundError("te.dask needs Dask: pip install 'tedsl[dask]'", name="dask") from error
