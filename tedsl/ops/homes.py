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
from tedsl.lang.foreign import has_elements, values_of
from tedsl.lang.tensor import Tensor
from tedsl.ops.signature import OpCall, Signature

__all__ = ["ARRAYS", "BRIDGES", "brought_together", "home_of", "kind_of", "plain", "unrecorded"]

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
    check_not_masked(array, f"{signature.title}: argument {name!r}")
    try:
        dtype_of_array(array)
    except TypeError as error:
        raise TypeError(f"{signature.title}: argument {name!r}: {error}") from None
    return np.asarray(array)


def brought_together(call: OpCall, kinds: list[str], signature: Signature) -> tuple[OpCall, list[str]]:
    """Arrays beside tensors as constants, and NumPy's beside those of JAX or PyTorch as such; what is kept for a
    derivative does not change with them. Others stay as they are."""
    others = {*kinds} - {"numpy"}
    if "tensor" in others:
        made, home = _constant, "tensor"
    elif len(others) == 1 and others <= {BRIDGES["jax"], BRIDGES["torch"]}:
        (home,) = others
        given = next(a for a, kind in zip(call.arrays, kinds, strict=True) if kind == home)

        def made(array: Any, name: str, signature: Signature) -> Any:
            return import_module(home).like(plain(array, name, signature).copy(), given)

    else:
        return call, kinds
    found = list(zip(call.arrays, call.template.names, kinds, strict=True))
    moved = [kind != home and (kind == "numpy" or has_elements(array)) for array, _, kind in found]
    arrays = tuple(made(a, n, signature) if m else a for (a, n, _), m in zip(found, moved, strict=True))
    return OpCall(call.template, arrays), [home if m else k for k, m in zip(kinds, moved, strict=True)]


def _constant(array: Any, name: str, signature: Signature) -> Any:
    values = array if isinstance(array, np.ndarray) else values_of(array, f"{signature.title}: argument {name!r}")
    return constant(plain(values, name, signature), name)
