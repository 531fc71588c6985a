"""Who handles arrays of which type: tensors, NumPy, or the bridge to a framework, found by the module of the type."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from typing import Any

import numpy as np

from tedsl.analysis.arrays.feeds import check_not_masked
from tedsl.lang.constants import constant
from tedsl.lang.dtypes import dtype_of_array
from tedsl.lang.tensor import Tensor
from tedsl.ops.signature import OpCall, Signature

__all__ = ["ARRAYS", "BRIDGES", "beside_numpy", "home_of", "kind_of", "plain", "unrecorded"]

# First part of the module of an array's type -> the bridge, imported on first use; it has `call(op, call, out, mode)`.
BRIDGES = {
    "torch": "tedsl.bridges.torch.operators",
    "jax": "tedsl.bridges.jax.operators",
    "jaxlib": "tedsl.bridges.jax.operators",
    "dask": "tedsl.dask.mapped",
}
OTHER = "tedsl.bridges.dlpack"
ARRAYS: set[Any] = {np.ndarray}  # types whose dtype and shape are all that a prepared call depends on

_HOMES: dict[type, str] = {}


def home_of(kind: type) -> str:
    """Where arrays of a type are handled: "tensor", "numpy" or the module of a bridge."""
    known = _HOMES.get(kind)
    if known is not None:
        return known
    if issubclass(kind, Tensor):
        home = "tensor"
    elif issubclass(kind, np.ndarray):
        home = "numpy"
    else:
        roots = (base.__module__.partition(".")[0] for base in kind.__mro__)
        home = next((BRIDGES[root] for root in roots if root in BRIDGES), OTHER)
    _HOMES[kind] = home
    return home


def unrecorded() -> AbstractContextManager[Any]:
    """Within it, PyTorch's autograd writes nothing down."""
    torch = sys.modules.get("torch")
    return nullcontext() if torch is None else torch.no_grad()


def kind_of(value: Any) -> str:
    return f"{type(value).__module__.partition('.')[0]} {type(value).__name__}"


def plain(array: Any, name: str, signature: Signature) -> np.ndarray[Any, Any]:
    """A NumPy array without the behavior of a subclass."""
    check_not_masked(array, f"op {signature}: argument {name!r}")
    try:
        dtype_of_array(array)
    except TypeError as error:
        raise TypeError(f"op {signature}: argument {name!r}: {error}") from None
    return np.asarray(array)


def beside_numpy(call: OpCall, kinds: list[str], signature: Signature) -> tuple[OpCall, list[str]]:
    """NumPy's arrays beside tensors as constants, and beside arrays of JAX or PyTorch as such; what is kept for a
    derivative does not change with them."""
    (home,) = {*kinds} - {"numpy"}
    if home not in ("tensor", BRIDGES["jax"], BRIDGES["torch"]):
        return call, kinds
    given = next(a for a, kind in zip(call.arrays, kinds, strict=True) if kind == home)

    def taken(array: Any, name: str) -> Any:
        array = plain(array, name, signature)
        return constant(array, name) if home == "tensor" else import_module(home).like(array.copy(), given)

    found = zip(call.arrays, call.template.names, kinds, strict=True)
    arrays = tuple(taken(a, name) if kind == "numpy" else a for a, name, kind in found)
    return OpCall(call.template, arrays), [home] * len(kinds)
