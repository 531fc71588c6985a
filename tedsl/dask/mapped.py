"""Calls of operators on Dask arrays: arguments checked, results and gradients in the nest in which they belong."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import dask.array as da
import numpy as np

from tedsl.analysis.arrays.nests import map_leaves
from tedsl.dask.graph import Graph
from tedsl.dask.work import DaskProgram
from tedsl.lang.dtypes import dtype_of_array
from tedsl.lang.errors import user_location
from tedsl.ops.op import Op
from tedsl.ops.shapes import Spec
from tedsl.ops.signature import OpCall, Slot

__all__ = ["call", "like", "mapped", "prepare", "pulled"]


def mapped(op: Any, args: Sequence[Any], kwargs: Mapping[str, Any], what: str) -> Any:
    """The results of a call, as Dask arrays in the nest in which the operator returns them."""
    taken = _taken(op, args, kwargs, what)
    program = DaskProgram.of(op, taken.template, _specs(taken.arrays, taken.template.names, what), None)
    results = Graph(program, taken.arrays, f"{what}({op.name})").results()
    return program.traced.nested(results)


def pulled(op: Any, args: Sequence[Any], kwargs: Mapping[str, Any], what: str) -> tuple[Any, Callable[..., Any]]:
    """The results of a call, and the function from heads to gradients."""
    outputs = mapped(op, args, kwargs, what)
    taken = _taken(op, args, kwargs, what)
    specs = _specs(taken.arrays, taken.template.names, what)
    flat: list[Any] = []
    map_leaves(outputs, "result", lambda value, name: flat.append(value))
    wanted = tuple(k for k, (_, dtype) in enumerate(specs) if "float" in dtype)
    headed = tuple(k for k, value in enumerate(flat) if value.dtype.kind not in "iub")

    def pull(*heads: Any) -> Any:
        given = _heads(heads, [flat[k] for k in headed], f"pull of {op.name}")
        program = DaskProgram.of(op, taken.template, (*specs, *_specs(given, None, what)), (wanted, headed))
        found = Graph(program, [*taken.arrays, *given], f"{what}({op.name})").results()
        return found[0] if len(found) == 1 else tuple(found)

    return outputs, pull


def call(op: Op, taken: OpCall, out: Any, mode: Any) -> Any:
    """The op called on Dask arrays as on any others."""
    if out is not None or mode is not None:
        raise TypeError(f"{op.signature.title}: out= and mode= are for arrays in memory, found Dask arrays")
    return mapped(op, (), _arguments(taken), "te.dask.map")


def like(array: np.ndarray[Any, Any], given: Any) -> Any:
    """An array of NumPy as one of Dask."""
    return da.from_array(array)


def prepare(op: Op, taken: OpCall) -> None:
    """There is no shorter way."""


def _arguments(taken: OpCall) -> dict[str, Any]:
    def filled(value: Any, name: str) -> Any:
        return taken.arrays[value.index] if isinstance(value, Slot) else value

    return {n: map_leaves(v, n, filled) for n, v in taken.template.arguments.items()}


def _taken(op: Any, args: Sequence[Any], kwargs: Mapping[str, Any], what: str) -> OpCall:
    """A call taken apart, its arrays as Dask arrays."""
    if not isinstance(op, Op):
        raise TypeError(f"{what} at {user_location()}: expected an operator (te.op), found {type(op).__name__}")
    taken = op.signature.call(args, dict(kwargs))
    if not taken.arrays:
        raise TypeError(f"{what}: {op.signature.title}: no argument is an array; called at {user_location()}")
    arrays = [a if isinstance(a, da.Array) else _embedded(a) for a in taken.arrays]
    for name, array in zip(taken.template.names, arrays, strict=True):
        if any(math.isnan(n) for n in array.shape):
            raise ValueError(
                f"{what} at {user_location()}: argument {name!r} has a shape that is not known ({array.shape}); call "
                "its compute_chunk_sizes() first"
            )
    return OpCall(taken.template, tuple(arrays))


def _embedded(array: Any) -> Any:
    """An array in memory as a Dask array of one chunk."""
    plain = np.asarray(array)
    return da.from_array(plain, chunks=plain.shape)


def _specs(arrays: Sequence[Any], names: Sequence[str] | None, what: str) -> tuple[Spec, ...]:
    specs = []
    for k, array in enumerate(arrays):
        try:
            dtype = dtype_of_array(np.empty(0, array.dtype))
        except TypeError as error:
            where = f"head {k}" if names is None else f"argument {names[k]!r}"
            raise TypeError(f"{what} at {user_location()}: {where}: {error}") from None
        specs.append((tuple(int(n) for n in array.shape), str(dtype)))
    return tuple(specs)


def _heads(heads: Sequence[Any], outputs: Sequence[Any], what: str) -> list[Any]:
    """One head per float result, in its shape, dtype and chunks."""
    if not heads and all(o.ndim == 0 for o in outputs):
        heads = [np.ones((), o.dtype) for o in outputs]
    if len(heads) != len(outputs):
        raise ValueError(
            f"{what} at {user_location()}: expected {len(outputs)} heads, one for each float result, found {len(heads)}"
        )
    given = []
    for k, (head, output) in enumerate(zip(heads, outputs, strict=True)):
        array = head if isinstance(head, da.Array) else da.from_array(np.asarray(head), chunks=output.chunks)
        if array.shape != output.shape or array.dtype != output.dtype:
            raise ValueError(
                f"{what} at {user_location()}: head {k}: expected {output.dtype} of shape {output.shape}, found "
                f"{array.dtype} of shape {array.shape}"
            )
        given.append(array)
    return given
