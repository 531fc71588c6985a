"""`te.scan`: recurrences along axes, written as a body that reads its own earlier steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tedsl.lang import functions as fn
from tedsl.lang.axes import as_shape
from tedsl.lang.compute import axis_names, check_scope, check_states, compute_tensors, resolve_ranges
from tedsl.lang.dtypes import BOTTOM, FLOAT32, INT32, DType, as_dtype
from tedsl.lang.errors import user_location
from tedsl.lang.expr import Axis, Const, Expr, Read
from tedsl.lang.extents import number
from tedsl.lang.lift import lift_reductions
from tedsl.lang.signatures import parameters_of
from tedsl.lang.tensor import Scan, ScanState, Tensor
from tedsl.lang.titles import titled

__all__ = ["scan"]

Traced = tuple[tuple[Axis, ...], tuple[Tensor, ...], tuple[Expr, ...], bool]  # the last: several are returned


def scan(
    shape: Any,
    function: Callable[..., Any],
    axis: int | Sequence[int] = 0,
    reverse: bool = False,
    keep: int | None = None,
    *,
    dtype: Any = None,
    name: Any = None,
) -> Any:
    """Tensors filled step by step along `axis` (from the end if `reverse`).

    The function takes the handles of the states, then one axis per dimension; it returns one expression per state. A
    handle is read at earlier steps along `axis` (later ones if `reverse`) and at any index of the other axes, also
    under a reduction. Several axes, such as (0, 1), are walked as nested loops, the first one slowest: step (i, j) may
    read all of (i - 1, anything) and what is before j in its own row.

    `keep` gives the last steps that were made, so many of them, in the order of `axis`. Where nobody asks for others a
    kernel holds no more steps than the body looks back, whoever says so: `keep`, or readers of `y[T - 1, ...]` alone.
    """
    title = titled(name, "scan", "te.scan")
    what = f"scan {title.text!r}"
    extents = as_shape(shape, what)
    if not callable(function):
        raise TypeError(
            f"{what} at {user_location()}: expected a function of the states and the axes, found "
            f"{type(function).__name__}"
        )
    dims = _dimensions(axis, len(extents), what)
    axes, states, bodies, several = _traced(function, extents, dtype, title.text, what)
    text, names = title.of(len(states), several, what, "states")
    made = Scan(
        name=text,
        axes=axes,
        states=states,
        bodies=lift_reductions(bodies, axes, text, states),
        dims=dims,
        reverse=bool(reverse),
        names=names,
    )
    results = made.outputs if keep is None else _last_steps(made, keep, what)
    return results if several else results[0]


def _last_steps(made: Scan, keep: Any, what: str) -> tuple[Tensor, ...]:
    """The steps that were made last."""
    if len(made.dims) > 1:
        raise ValueError(f"{what} at {user_location()}: keep={keep!r} is for steps along one axis, found {made.dims}")
    (dim,), (extent,) = made.dims, (a.extent for a in made.steps)
    count = number(extent)
    if not isinstance(keep, int) or keep < 1 or (count is not None and keep > count):
        most = "" if count is None else f" to {count}"
        raise ValueError(f"{what} at {user_location()}: expected keep from 1{most} steps, found {keep!r}")
    begin = 0 if made.reverse or extent is None else extent - keep
    last: list[Tensor] = []
    for state in made.outputs:
        axes = tuple(Axis(a.name, Const(keep, INT32) if d == dim else a.extent) for d, a in enumerate(made.axes))
        place = tuple(begin + a if d == dim else a for d, a in enumerate(axes))
        last += compute_tensors(axes, (Read(state, place),), f"{state.name}_last")
    return tuple(last)


def _dimensions(axis: Any, rank: int, what: str) -> tuple[int, ...]:
    """The dimensions of the steps, the slowest first."""
    axes = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    for one in axes:
        if not isinstance(one, int) or not -rank <= one < rank:
            raise ValueError(
                f"{what} at {user_location()}: axis {one!r} does not exist in a shape of {rank} dimensions"
            )
    dims = tuple(one % rank for one in axes)
    if not dims or len(set(dims)) < len(dims):
        raise ValueError(
            f"{what} at {user_location()}: axis {axis!r} names {'an axis twice' if dims else 'no axis'}; give each "
            "axis of the recurrence once, the slowest first"
        )
    return dims


def _numbers_of_states(function: Callable[..., Any], rank: int, what: str) -> list[int]:
    """How many states a function may have. With `*at` for axes the names before it are states, or the first axes."""
    names, rest = parameters_of(function, what)
    if rest is not None:
        return list(range(max(1, len(names)), max(0, len(names) - rank - 1), -1))
    count = len(names) - rank
    if count < 1:
        raise ValueError(
            f"{what} at {user_location()}: the function takes {len(names)} arguments; expected the states first, "
            f"then {rank} axes"
        )
    return [count]


def _dtypes(dtype: Any, count: int) -> tuple[DType, ...] | None:
    """The dtypes of the states that were asked for."""
    if dtype is None:
        return None
    return tuple(as_dtype(d) for d in (dtype if isinstance(dtype, (tuple, list)) else [dtype] * count))


def _traced(function: Callable[..., Any], extents: tuple[Expr, ...], dtype: Any, name: str, what: str) -> Traced:
    """What the function makes of as many states as it makes sense with; otherwise the first error says why not."""
    refused: Exception | None = None
    for count in _numbers_of_states(function, len(extents), what):
        labels = axis_names(function, len(extents), what, skip=count)
        axes = tuple(Axis(label, e) for label, e in zip(labels, extents, strict=True))
        try:
            states, bodies, several = _trace(function, axes, _dtypes(dtype, count), count, name, what)
            axes, bodies = resolve_ranges(axes, bodies, what)
            check_scope(bodies, axes, what)
            check_states(bodies, states, what)
        except (TypeError, ValueError, IndexError) as error:
            refused = refused or error
        else:
            return axes, states, bodies, several
    assert refused is not None
    raise refused


def _trace(
    function: Callable[..., Any],
    axes: tuple[Axis, ...],
    fixed: tuple[DType, ...] | None,
    count: int,
    name: str,
    what: str,
) -> tuple[tuple[Tensor, ...], tuple[Expr, ...], bool]:
    """States and bodies whose dtypes agree: states start as the weakest type and are traced again until they settle."""
    dtypes = fixed or (BOTTOM,) * count
    weak: set[int] = set()
    shape = tuple(a.extent for a in axes if a.extent is not None)
    for _ in range(8):
        suffixes = [""] if count == 1 else [f"_{i}" for i in range(count)]
        states = tuple(
            ScanState(name=name + suffix, shape=shape, dtype=d).output()
            for suffix, d in zip(suffixes, dtypes, strict=True)
        )
        result = function(*states, *axes)
        several = isinstance(result, (tuple, list))
        returned = tuple(result) if several else (result,)
        bodies = tuple(fn.as_expr(b) for b in returned)
        if len(bodies) != count:
            raise ValueError(f"{what} at {user_location()}: {count} states but {len(bodies)} expressions returned")
        if fixed is not None:
            return states, tuple(fn.convert(b, d) for b, d in zip(returned, fixed, strict=True)), several
        found = tuple(b.dtype for b in bodies)
        if found == dtypes and BOTTOM not in found:
            return states, bodies, several
        weak |= {i for i, d in enumerate(found) if d is BOTTOM}
        dtypes = _next(dtypes, found, weak)
    raise TypeError(f"{what} at {user_location()}: the state's dtype does not settle (last {dtypes}); give dtype=")


def _next(now: tuple[DType, ...], found: tuple[DType, ...], weak: set[int]) -> tuple[DType, ...]:
    """The dtypes to try next. A state made of Python numbers alone is int32, or float32 once a float meets it."""
    floats = {i for i in weak if now[i] is INT32 and found[i].is_float}
    if floats:  # what the others found may rest on an int32 that is none
        return tuple(FLOAT32 if i in floats else d for i, d in enumerate(now))
    return tuple(INT32 if d is BOTTOM else d for d in found)
