"""What `differentiate` is given: outputs, inputs and heads, checked; and how large a Jacobian is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from autodiff.constants import as_given
from autodiff.turning.cotangent import Cotangent, Identity, One, Stored
from tedsl.lang.elements import whole
from tedsl.lang.errors import GradientError, brief, user_location, warn_user
from tedsl.lang.expr import Axis, Const, Expr
from tedsl.lang.extents import same_extent
from tedsl.lang.tensor import Shape, Tensor
from tedsl.lang.traverse import stages_of

__all__ = [
    "IntegerGradientError", "JacobianSizeError", "check_jacobian_size", "check_order", "common_prefix", "extents_of",
    "floats", "heads_of", "prefix_axes", "tensors",
]  # fmt: skip

JACOBIAN_WARNING = 256 << 20
JACOBIAN_LIMIT = 4 << 30


class JacobianSizeError(GradientError, ValueError):
    """A full Jacobian that nobody can want."""


class IntegerGradientError(GradientError, TypeError):
    """A derivative with respect to, or of, something that is not a float."""


def tensors(value: Any, what: str, function: str = "differentiate") -> tuple[Tensor, ...]:
    """A tensor or a list of tensors as a tuple."""
    single = isinstance(value, (Tensor, Expr)) or hasattr(value, "__array__") or not isinstance(value, Iterable)
    items = (value,) if single else tuple(value)
    if what in ("output", "outputs"):
        items = tuple(whole(item, "value") for item in items)
    for item in items:
        if not isinstance(item, Tensor):
            hint = "; pass a te.placeholder and feed it the values" if hasattr(item, "__array__") else ""
            hint = "; an expression becomes a tensor by te.compute" if isinstance(item, Expr) else hint
            raise TypeError(
                f"{function}: {what} must be tensors, found {type(item).__name__} {brief(repr(item))}, at "
                f"{user_location()}{hint}"
            )
    return items


def check_order(outputs: Sequence[Tensor], inputs: Sequence[Tensor], function: str) -> None:
    """ValueError where inputs hang on the outputs, of which it is known that they hang on no input."""
    read = {id(t) for op in stages_of(inputs) for t in op.inputs}
    swapped = next((t for t in outputs if id(t) in read), None)
    if swapped is not None:
        raise ValueError(
            f"{function}: {swapped!r} hangs on none of the inputs, but {inputs[0]!r} hangs on it; what is "
            f"differentiated comes first: te.{function}({inputs[0].name}, {swapped.name}), at {user_location()}"
        )


def floats(value: Any, what: str, function: str = "differentiate") -> tuple[Tensor, ...]:
    """The same where each must be of floats."""
    items = tensors(value, what, function)
    for item in items:
        if not item.dtype.is_float:
            raise IntegerGradientError(
                f"{function}: {item!r} in {what} is {item.dtype}, and only floats have gradients, at "
                f"{user_location()}; te.cast it to a float before the computation"
            )
    return items


def heads_of(outputs: tuple[Tensor, ...], head: Any) -> tuple[Cotangent, ...]:
    """The adjoint of each output."""
    if not outputs:
        raise ValueError(f"differentiate: output is empty, at {user_location()}; give at least one tensor")
    given: Sequence[Any] = (None,) * len(outputs)
    if head is not None:
        given = tuple(head) if isinstance(head, Sequence) else (head,)
    if len(given) != len(outputs):
        raise ValueError(
            f"differentiate: {len(outputs)} {'output' if len(outputs) == 1 else 'outputs'} but {len(given)} "
            f"{'head' if len(given) == 1 else 'heads'}, at {user_location()}; give one head per output"
        )
    if len(outputs) > 1 and any(h is None and t.ndim for h, t in zip(given, outputs, strict=True)):
        raise ValueError(
            f"differentiate: several outputs of which one is not a scalar need head=[...], one per output, at "
            f"{user_location()}"
        )
    return tuple(_cotangent(t, h) for t, h in zip(outputs, given, strict=True))


def _cotangent(output: Tensor, head: Any) -> Cotangent:
    if head is None:
        return One(output.dtype) if output.ndim == 0 else Identity(output.extents, output.dtype)
    head = as_given(head, output, output.extents, f"differentiate at {user_location()}: the head of {output!r}")
    if not isinstance(head, Tensor):
        raise TypeError(
            f"differentiate: a head must be a tensor, an array or a number, found {type(head).__name__} "
            f"({brief(head, 40)}), at {user_location()}"
        )
    tail = head.extents[head.ndim - output.ndim :] if head.ndim >= output.ndim else ()
    if len(tail) != output.ndim or not all(same_extent(a, b) for a, b in zip(tail, output.extents, strict=True)):
        raise ValueError(
            f"differentiate: head {head!r} must have the shape of {output!r}, or any prefix before it, at "
            f"{user_location()}"
        )
    if head.dtype is not output.dtype:
        raise TypeError(
            f"differentiate: head {head!r} must be {output.dtype} as the output {output!r}, at {user_location()}"
        )
    return Stored(head)


def common_prefix(heads: Sequence[Cotangent], outputs: Sequence[Tensor]) -> tuple[Axis, ...]:
    """Axes over what every head has before its output's shape."""
    prefixes = [_prefix_of(h, t) for h, t in zip(heads, outputs, strict=True)]
    first = prefixes[0] if prefixes else ()
    for other in prefixes[1:]:
        if len(other) != len(first) or not all(same_extent(a, b) for a, b in zip(first, other, strict=True)):
            raise ValueError(
                f"differentiate: all heads must have the same prefix before the output's shape, at {user_location()}"
            )
    return prefix_axes(first)


def _prefix_of(cotangent: Cotangent, output: Tensor) -> Shape:
    if isinstance(cotangent, Identity):
        return cotangent.shape
    return cotangent.held.extents[: cotangent.held.ndim - output.ndim] if isinstance(cotangent, Stored) else ()


def prefix_axes(extents: Iterable[Expr]) -> tuple[Axis, ...]:
    return tuple(Axis(f"p{d}", e) for d, e in enumerate(extents))


def extents_of(axes: Iterable[Axis]) -> Shape:
    return tuple(a.extent for a in axes if a.extent is not None)


def check_jacobian_size(heads: Iterable[Cotangent], inputs: Sequence[Tensor]) -> None:
    """Warn of a large Jacobian, refuse a huge one; a size that is not known yet counts as 1."""
    for head in heads:
        if not isinstance(head, Identity):
            continue
        for tensor in inputs:
            size = tensor.dtype.itemsize
            for extent in (*head.shape, *tensor.extents):
                size *= int(extent.value) if isinstance(extent, Const) else 1
            message = (
                f"the full Jacobian with respect to {tensor!r} takes {size / 2**20:.0f} MB; "
                "give head= for a product with it"
            )
            if size > JACOBIAN_LIMIT:
                raise JacobianSizeError(f"differentiate: {message}, at {user_location()}")
            if size > JACOBIAN_WARNING:
                warn_user(message, ResourceWarning)
