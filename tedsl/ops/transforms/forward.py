"""`te.jvp`, `te.hvp`: derivatives along directions, of tensors in a program or of a function of arrays."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, overload

import autodiff
from tedsl.analysis.arrays.nests import map_nest
from tedsl.lang.errors import user_location
from tedsl.lang.keywords import own_arguments
from tedsl.lang.tensor import Tensor
from tedsl.ops.arrays import Static
from tedsl.ops.signature import leaves
from tedsl.ops.transforms.derivatives import By, check_loss
from tedsl.ops.transforms.function import Transformed, name_of, tidied, traceable
from tedsl.ops.transforms.numbers import as_array, constant, is_number

__all__ = ["hvp", "jvp"]


@overload
def jvp(outputs: Tensor, inputs: Any, tangents: Any) -> Tensor: ...
@overload
def jvp(outputs: Sequence[Tensor], inputs: Any, tangents: Any) -> tuple[Tensor, ...]: ...
@overload
def jvp(outputs: Callable[..., Any], inputs: Any, tangents: Any) -> tuple[Any, Any]: ...
@own_arguments()
def jvp(outputs: Any, inputs: Any, tangents: Any) -> Any:
    """The derivative of `outputs` along `tangents`, one per input: a tensor for a tensor, a tuple for a list.

    That of a tensor is a tensor, an array or a number; None is that of an input that stays.

    Of a function of arrays, `te.jvp(f, (a, b), (da, db))` is its result and the derivative of that, as in `jax.jvp`.
    Each such call traces `f` as it is then; in a loop, call one `te.jit(lambda x, v: te.jvp(f, x, v))`.
    """
    if not callable(outputs):
        return autodiff.jvp(outputs, inputs, tangents)
    inner, what = traceable(outputs, "jvp"), f"te.jvp of {name_of(outputs)}"

    def rule(inputs: Any, tangents: Any) -> Any:
        by, directions = _along(inputs, tangents, what)
        result = tidied(inner(*by.args))
        parts = [t for t in leaves(result) if isinstance(t, Tensor)]
        moved = iter(autodiff.jvp(parts, by.tensors, directions))
        return result, map_nest(result, lambda t: next(moved) if isinstance(t, Tensor) else t)

    return _applied(jvp, outputs, rule, inputs, tangents, what)


@overload
def hvp(loss: Tensor, inputs: Tensor, vectors: Any) -> Tensor: ...
@overload
def hvp(loss: Tensor, inputs: Sequence[Tensor], vectors: Any) -> tuple[Tensor, ...]: ...
@overload
def hvp(loss: Callable[..., Any], inputs: Any, vectors: Any) -> Any: ...
@own_arguments()
def hvp(loss: Any, inputs: Any, vectors: Any) -> Any:
    """The Hessian of a scalar `loss` times `vectors`, one per input: the gradient of the gradient along them.

    That of a tensor is a tensor, an array or a number; None is that of an input that stays.

    Of a function of arrays, `te.hvp(f, a, v)` is an array like `a`; `te.hvp(f, (a, b), (v, w))` a tuple. Each such call
    traces `f` as it is then; in a loop, as of conjugate gradients, call one `te.jit(lambda x, v: te.hvp(f, x, v))`.
    """
    if not callable(loss):
        return autodiff.hvp(loss, inputs, vectors)
    inner, what = traceable(loss, "hvp"), f"te.hvp of {name_of(loss)}"

    def rule(inputs: Any, tangents: Any) -> Any:
        by, directions = _along(inputs, tangents, what)
        value = inner(*by.args)
        check_loss(value, what, has_aux=False)
        return by.nested(autodiff.hvp(value, by.tensors, directions), by.numbers)

    found = _applied(hvp, loss, rule, inputs, vectors, what)
    return found if isinstance(inputs, (tuple, list)) else found[0]


def _applied(make: Callable[..., Any], f: Any, rule: Any, inputs: Any, tangents: Any, what: str) -> Any:
    """The rule of a function and directions, called on nests of arrays; one that is no sequence is the one argument."""
    if isinstance(inputs, (tuple, list)) != isinstance(tangents, (tuple, list)):
        raise TypeError(
            f"{what} at {user_location()}: expected a direction for each argument, f(a, b) along (da, db); found "
            f"{type(inputs).__name__} and {type(tangents).__name__}"
        )
    given = [tuple(v) if isinstance(v, (tuple, list)) else (v,) for v in (inputs, tangents)]
    if len(given[0]) != len(given[1]):
        raise ValueError(
            f"{what} at {user_location()}: expected a direction for each argument, found {len(given[1])} for "
            f"{len(given[0])}"
        )
    name = re.sub(r"\W", "", f"{make.__name__}_{name_of(f)}")
    made = Transformed(rule, name, (0, 1), True, (make, (f, inputs, tangents)))
    made.author.is_lasting = False  # f may read something else at the next call
    return made(*given)


def _along(inputs: tuple[Any, ...], tangents: tuple[Any, ...], what: str) -> tuple[By, list[Tensor | None]]:
    """The arguments of a function, and the direction of each tensor of floats in them, None for one that stays."""
    by = By(inputs, tuple(range(len(inputs))), what, "let the function capture it: lambda x: f(x, k)")
    given: list[Tensor | None] = []
    for nest, tangent in zip(by.nests, tangents, strict=True):
        places, found = leaves(nest), leaves(tangent)
        if _is_none(tangent):
            found = [None] * len(places)
        is_moved = [not isinstance(p, Static) for p in places] if len(places) == len(found) else [True] * len(found)
        given += [_moved(leaf, by) for leaf, moved in zip(found, is_moved, strict=True) if moved]
    return by, given


def _moved(leaf: Any, by: By) -> Any:
    if _is_none(leaf):
        return None
    return constant(as_array(leaf, by.weak)) if is_number(leaf) else leaf


def _is_none(value: Any) -> bool:
    return value is None or (isinstance(value, Static) and value.value is None)
