"""Derivatives that the caller gives: `override=` for a tensor, `fdiff=` for each edge, and what they must return."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from typing import Any

from autodiff.constants import as_given
from tedsl.lang.errors import place_of, user_location
from tedsl.lang.extents import same_extent
from tedsl.lang.signatures import takes
from tedsl.lang.tensor import Shape, Tensor

__all__ = ["Fdiff", "Given", "Override", "rules_of", "summand", "summands_of"]

Override = Mapping[Tensor, Any]
Fdiff = Callable[[Tensor, Tensor, Tensor], "Tensor | None"]
Given = tuple[tuple[Tensor, ...], Callable[..., Any]]


def rules_of(override: Override | None, fdiff: Fdiff | None) -> dict[Tensor, Given]:
    """Per tensor what its derivative flows to, and the function that says how."""
    if override is not None and not isinstance(override, Mapping):
        raise TypeError(
            f"differentiate: override must be a dict {{tensor: (deps, fn)}}, found {type(override).__name__}, at "
            f"{user_location()}"
        )
    if fdiff is not None and not callable(fdiff):
        raise TypeError(
            f"differentiate: fdiff must be a function of (output, input, head), found {type(fdiff).__name__}, at "
            f"{user_location()}"
        )
    if fdiff is not None:
        _check_takes(fdiff, "fdiff", "(output, input, head)")
    return {t: _rule(t, rule) for t, rule in (override or {}).items()}


def _check_takes(function: Callable[..., Any], what: str, three: str) -> None:
    if not takes(function, 3):
        raise TypeError(
            f"differentiate: {what} must be a function of three, {three}, found {signature(function)}, at "
            f"{place_of(function)}"
        )


def _rule(tensor: Any, rule: Any) -> Given:
    if not isinstance(tensor, Tensor):
        raise TypeError(
            f"differentiate: override maps tensors to fn or (deps, fn), by the tensor itself; found the key "
            f"{tensor!r:.40}, at {user_location()}"
        )
    if callable(rule):
        if not tensor.op.inputs:
            raise ValueError(
                f"differentiate: the override of {tensor!r} has nothing to give adjoints to, as it reads no tensor, at "
                f"{user_location()}; override what reads it"
            )
        _check_takes(rule, f"the override of {tensor.name!r}", f"({tensor.name}, its inputs, head)")
        return tensor.op.inputs, rule
    if not isinstance(rule, tuple) or len(rule) != 2 or not callable(rule[1]):
        raise TypeError(
            f"differentiate: the override of {tensor!r} must be (deps, fn) or fn, found {rule!r:.60}, at "
            f"{user_location()}"
        )
    deps = tuple(rule[0]) if isinstance(rule[0], Sequence) else (rule[0],)
    for dep in deps:
        if not isinstance(dep, Tensor):
            raise TypeError(
                f"differentiate: the deps of the override of {tensor!r} must be tensors, found {type(dep).__name__}, "
                f"at {user_location()}"
            )
    listed = ", ".join(dep.name for dep in deps)
    _check_takes(rule[1], f"the override of {tensor.name!r}", f"({tensor.name}, [{listed}], head)")
    return deps, rule[1]


def summands_of(tensor: Tensor, rule: Given, adjoint: Tensor, prefix: Shape) -> list[tuple[Tensor, Tensor]]:
    """(dep, its adjoint summand) for each dep that receives one."""
    deps, function = rule
    what = f"override of {tensor.name!r}"
    result = function(tensor, list(deps), adjoint)
    if result is None:
        raise TypeError(
            f"differentiate: the {what} returned None, at {place_of(function)}; return one adjoint for each of "
            f"{', '.join(d.name for d in deps)}, [None] where nothing flows"
        )
    parts = tuple(result) if isinstance(result, Sequence) else (result,)
    if len(parts) != len(deps):
        raise ValueError(
            f"differentiate: the {what} returned {len(parts)} adjoints for {len(deps)} dependencies "
            f"({', '.join(d.name for d in deps)}), at {place_of(function)}; return one for each, None where nothing "
            "flows"
        )
    given = [(d, p) for d, p in zip(deps, parts, strict=True) if p is not None and d.dtype.is_float]
    return [(dep, summand(part, dep, prefix, what, function)) for dep, part in given]


def summand(part: Any, source: Tensor, prefix: Shape, what: str, function: object) -> Tensor:
    """What a caller's function returned, if it can be a summand of the adjoint of `source`."""
    shape = (*prefix, *source.extents)
    found, part = part, as_given(part, source, shape, f"differentiate: the {what} for {source!r}")
    if not isinstance(part, Tensor):
        raise TypeError(
            f"differentiate: the {what} must return tensors, arrays or numbers, found {type(found).__name__} for "
            f"{source!r}, at {place_of(function)}"
        )
    fits = part.ndim == len(shape) and all(same_extent(a, b) for a, b in zip(part.extents, shape, strict=True))
    if not fits:
        expected = ", ".join(map(str, shape))
        raise ValueError(
            f"differentiate: the {what} must return shape ({expected}) for {source!r}, found {part!r}, at "
            f"{place_of(function)}"
        )
    if part.dtype is not source.dtype:
        raise TypeError(
            f"differentiate: the {what} must return {source.dtype} for {source!r}, found {part!r}, at "
            f"{place_of(function)}"
        )
    return part
