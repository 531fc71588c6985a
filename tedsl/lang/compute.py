"""`te.placeholder` and `te.compute`: from a Python function of axes to a tensor in normal form.

The function is called once with symbolic axes. Ranges that are not written are inferred from every use, reductions
nested inside the expression become tensors of their own, and what is left is checked and frozen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from tedsl.lang import functions as fn
from tedsl.lang.axes import as_shape, given_name
from tedsl.lang.dtypes import as_dtype
from tedsl.lang.errors import user_location
from tedsl.lang.expr import TRUE, Axis, Const, Expr, Formal, Read, Reduce
from tedsl.lang.keywords import own_arguments
from tedsl.lang.lift import lift_reductions
from tedsl.lang.ranges import infer_ranges
from tedsl.lang.signatures import defaults_of, parameters_of
from tedsl.lang.step import present_step
from tedsl.lang.tensor import (
    Compute,
    Placeholder,
    ScanState,
    StepStage,
    Tensor,
    tell_of_arrays,
    tell_of_indices,
    tell_of_scalars,
)
from tedsl.lang.titles import titled
from tedsl.lang.traverse import free_axes, substitute_all, topological

if TYPE_CHECKING:
    from tedsl.lang.annotations import Element, OfAxes

__all__ = ["compute", "placeholder"]


@own_arguments()
def placeholder(shape: Any, dtype: object = "float32", name: str | None = None) -> Tensor:
    """A tensor whose elements are given when the kernel is called, by place or by its name.

    Without a name it is called like the variable that it is stored in.
    """
    name = given_name(name, "x", "te.placeholder")
    what = f"placeholder {name!r}"
    try:
        kind = as_dtype(dtype)
    except TypeError as error:
        is_word = isinstance(dtype, str) and dtype not in np.sctypeDict
        hint = f"; a name is given as name={dtype!r}" if is_word else ""
        raise TypeError(f"{what}: {error}{hint}") from None
    return Placeholder(name=name, shape=as_shape(shape, what), dtype=kind).output()


@overload
def compute(shape: OfAxes[Element], *, name: Any = None) -> Tensor: ...
@overload
def compute(shape: OfAxes[tuple[Element, ...]], *, name: Any = None) -> tuple[Tensor, ...]: ...
@overload
def compute(shape: Any, function: OfAxes[Element], name: Any = None) -> Tensor: ...
@overload
def compute(shape: Any, function: OfAxes[tuple[Element, ...]], name: Any = None) -> tuple[Tensor, ...]: ...
@own_arguments(
    hint="it takes a shape, a function of the axes, and name=; the dtype is that of the elements: te.cast(x, dtype)"
)
def compute(shape: Any, function: Any = None, name: Any = None) -> Any:
    """A tensor by its elements: `compute((n, m), lambda i, j: A[i, j] + 1)`; without a shape, ranges are inferred.

    A function that returns a tuple gives a tuple of tensors computed in one loop nest. Without a name they are called
    like the variables that they are stored in.
    """
    if function is None:
        shape, function = None, shape
    if not callable(function):
        raise TypeError(
            f"te.compute at {user_location()}: expected a function of the axes, found {type(function).__name__}"
        )
    title = titled(name, "T", "te.compute")
    what = f"compute {title.text!r}"
    axes = _trace_axes(shape, function, what)
    result = _called(function, axes, what)
    several = isinstance(result, (tuple, list))
    bodies = tuple(_body(v, what) for v in (result if several else (result,)))
    if not bodies:
        raise ValueError(f"{what} at {user_location()}: the function returned no expression")
    tensors = compute_tensors(axes, bodies, *title.of(len(bodies), several, what))
    return tensors if several else tensors[0]


def compute_tensors(
    axes: tuple[Axis, ...], bodies: tuple[Expr, ...], name: str, names: tuple[str, ...] | None = None
) -> tuple[Tensor, ...]:
    """The tensors of one loop nest over `axes`, brought to normal form."""
    what = f"compute {name!r}"
    axes, bodies = resolve_ranges(axes, bodies, what)
    step = present_step()
    if step is not None:
        step.check(bodies, what)
    if step is not None and step.makes(bodies):
        check_scope(bodies, (*axes, *step.axes, *step.places), what)
        return step.stage(axes, bodies, name, names).outputs
    check_scope(bodies, axes, what)
    return Compute(name=name, axes=axes, bodies=lift_reductions(bodies, axes, name), names=names).outputs


def resolve_ranges(
    axes: tuple[Axis, ...], bodies: tuple[Expr, ...], what: str
) -> tuple[tuple[Axis, ...], tuple[Expr, ...]]:
    """Axes and bodies with every extent known."""
    unknown = [a for a in axes if a.extent is None]
    for node in topological(bodies):
        if isinstance(node, Reduce):
            unknown += [a for a in node.axes if a.extent is None]
    if not unknown:
        return axes, bodies
    extents = infer_ranges(tuple(dict.fromkeys(unknown)), bodies, what)
    known = {a: Axis(a.name, e, is_reduce=a.is_reduce) for a, e in extents.items()}
    mapping: dict[Expr, Expr] = dict(known.items())
    return tuple(known.get(a, a) for a in axes), substitute_all(bodies, mapping)


def _written_out(bodies: tuple[Expr, ...], axes: tuple[Axis, ...]) -> str:
    """What is written for a whole tensor at each point of another compute: a reduction over its axes."""
    hint = "use the arguments of this function"
    if len(bodies) != 1 or not axes or not all(isinstance(a.extent, Const) for a in axes):
        return hint
    outside = {a.name for a in free_axes(bodies) if a not in set(axes)}
    letters = iter([name for name in "klmpqrst" if name not in outside])
    own = {a: Axis(next(letters) if a.name in outside else a.name, a.extent, is_reduce=True) for a in axes}
    mapping: dict[Expr, Expr] = dict(own.items())
    extents = ", ".join(str(a.extent) for a in axes)
    return (
        f"{hint}, or a reduction at each of its points: te.sum(lambda {', '.join(a.name for a in own.values())}: "
        f"{substitute_all(bodies, mapping)[0]}, axis={extents if len(axes) == 1 else f'({extents})'})"
    )


def check_scope(bodies: tuple[Expr, ...], axes: tuple[Axis, ...], what: str) -> None:
    """Every axis used is the compute's own or bound by a reduction; no stray formal; no maximum of nothing."""
    own = set(axes)
    for axis in free_axes(bodies):
        if axis in own:
            continue
        kind = "reduce axis" if axis.is_reduce else "axis of another compute"
        hint = "reduce over it with te.sum(..., axis=...)" if axis.is_reduce else _written_out(bodies, axes)
        raise ValueError(f"{what} at {user_location()}: {kind} {axis.name!r} is used outside its scope; {hint}")
    for node in topological(bodies):
        if isinstance(node, Formal):
            raise ValueError(
                f"{what} at {user_location()}: `{node.name}` belongs to the combine function of a te.reducer"
            )
        if isinstance(node, Reduce):
            _check_not_empty(node, axes, what)


def _check_not_empty(reduce: Reduce, axes: tuple[Axis, ...], what: str) -> None:
    """Nothing has no largest element (where no element of the result exists, none is asked for)."""
    if reduce.reducer.kind not in ("max", "min", "argmax", "argmin") or reduce.where is not TRUE:
        return
    empty = [a.name for a in reduce.axes if isinstance(a.extent, Const) and a.extent.value == 0]
    if empty and not any(isinstance(a.extent, Const) and a.extent.value == 0 for a in axes):
        raise ValueError(
            f"{what} at {user_location()}: te.{reduce.reducer.kind} over nothing: reduce axis {empty[0]!r} has "
            "extent 0; give an axis with elements, or a where= (then the identity is the result)"
        )


def check_states(bodies: tuple[Expr, ...], what: str) -> None:
    """The states of a scan, and the stages of its steps, are read in its own body only."""
    step = present_step()
    for node in topological(bodies):
        if not isinstance(node, Read) or not isinstance(node.tensor.op, (ScanState, StepStage)):
            continue
        if step is not None:
            step.check(bodies, what)
        if step is None or node.tensor.op not in step.members:
            is_state = isinstance(node.tensor.op, ScanState)
            found = "the state of a te.scan" if is_state else f"a stage of a step of a te.scan ({node.tensor.op.where})"
            fix = "use the tensor that te.scan returned" if is_state else "make what is wanted a state, and return it"
            raise ValueError(f"{what} at {user_location()}: `{node}` reads {found} outside its body; {fix}")


def _trace_axes(shape: Any, function: Callable[..., Any], what: str) -> tuple[Axis, ...]:
    extents = None if shape is None else as_shape(shape, what)
    names = axis_names(function, None if extents is None else len(extents), what)
    if extents is None:
        return tuple(Axis(name, None) for name in names)
    return tuple(Axis(name, extent) for name, extent in zip(names, extents, strict=True))


def axis_names(function: Callable[..., Any], rank: int | None, what: str, skip: int = 0) -> list[str]:
    """The names of a function's arguments (after the first `skip`), one per axis."""
    names, rest = parameters_of(function, what)
    names = names[skip:]
    if rest is not None:
        if rank is None:
            raise ValueError(
                f"{what} at {user_location()}: give a shape, since *{rest} does not tell the number of axes"
            )
        names += [f"{rest}{d}" for d in range(len(names), rank)]
    if rank is not None and len(names) != rank:
        counted = f"{len(names)} {'axis' if len(names) == 1 else 'axes'}"
        others = defaults_of(function)
        told = f"; {', '.join(others)}, which has a default, is its own and no axis" if others else ""
        raise ValueError(
            f"{what} at {user_location()}: the function takes {counted} ({', '.join(names)}), "
            f"the shape has {rank} dimensions{told}"
        )
    return names


def _called(function: Callable[..., Any], axes: tuple[Axis, ...], what: str) -> Any:
    try:
        return function(*axes)
    except AttributeError as error:
        tell_of_arrays(error)
        raise
    except TypeError as error:
        tell_of_scalars(error)
        raise
    except IndexError as error:
        tell_of_indices(error)
        raise
    except NameError as error:
        raise NameError(
            f"{what} at {user_location()}: {error}; if this is the tensor itself: a definition cannot read its own "
            "result, recurrences are written with te.scan",
            name=error.name,
        ) from error


def _body(value: Any, what: str) -> Expr:
    try:
        body = fn.as_expr(value)
    except TypeError as error:
        raise TypeError(f"{what}: the function must return scalar expressions: {error}") from error
    check_states((body,), what)
    return body
