"""`te.scatter`: out[f(i)] op= g(i) as a value, the counterpart of a gather; and `te.extern`."""

from __future__ import annotations

from collections.abc import Callable
from inspect import isfunction
from typing import Any, overload

from tedsl.lang import functions as fn
from tedsl.lang.axes import as_shape
from tedsl.lang.compute import check_scope, check_states, resolve_ranges
from tedsl.lang.dtypes import DType, as_dtype, promote
from tedsl.lang.errors import user_location
from tedsl.lang.expr import TRUE, Axis, Expr, Reduce
from tedsl.lang.extents import same_extent
from tedsl.lang.guards import guards_of
from tedsl.lang.keywords import own_arguments
from tedsl.lang.lift import lifted
from tedsl.lang.step import present_step
from tedsl.lang.tensor import Extern, Scatter, Tensor
from tedsl.lang.titles import titled
from tedsl.lang.traverse import topological
from tedsl.lang.weak import kind_of

__all__ = ["SCATTER_KINDS", "extern", "scatter"]

# kind -> the reducer whose identity fills a scatter without init
SCATTER_KINDS = {"add": "sum", "mul": "prod", "max": "max", "min": "min"}


@own_arguments()
def scatter(
    shape: Any,
    axes: Any,
    index: Any,
    value: Any,
    op: str = "add",
    init: Tensor | None = None,
    *,
    where: Any = None,
    name: str | None = None,
) -> Tensor:
    """out = init (else the identity of `op`), then out[index] op= value at each point of `axes`; duplicates combine.

    `index`, `value` and `where` are made of the axes, or functions of them: `lambda r: (rows[r], columns[r])`.
    """
    title = titled(name, "scatter", "te.scatter").of_one("te.scatter")
    what = f"scatter {title!r}"
    if not isinstance(op, str) or op not in SCATTER_KINDS:
        raise ValueError(f"{what} at {user_location()}: op must be one of {', '.join(SCATTER_KINDS)}; found {op!r}")
    extents = as_shape(shape, what)
    loops = _loop_axes(axes, what)
    index, value, where = (v(*loops) if isfunction(v) else v for v in (index, value, where))
    rows = tuple(index) if isinstance(index, (tuple, list)) else (index,)
    if len(rows) != len(extents):
        raise ValueError(f"{what} at {user_location()}: {len(rows)} indices for a shape of {len(extents)} dimensions")
    exprs = tuple(fn.as_expr(row) for row in rows)
    for dim, row in enumerate(exprs):
        if not row.dtype.is_integer:
            raise TypeError(f"{what} at {user_location()}: index {dim} must be an integer, found {row.dtype} `{row}`")
    body: Expr = fn.as_expr(value)
    guard = TRUE if where is None else fn.as_expr(where)
    if not guard.dtype.is_bool:
        raise TypeError(f"{what} at {user_location()}: where= must be bool, found {guard.dtype} `{guard}`")
    if init is not None:
        body = fn.convert(value, _checked_init(init, extents, fn.operand(value), what))
    if body.dtype.is_bool:
        raise TypeError(f"{what} at {user_location()}: bool values cannot be combined by {op!r}; te.cast them first")
    loops, parts = resolve_ranges(loops, (*exprs, body, guard), what)
    step = present_step()
    if step is not None and step.makes(parts):
        raise ValueError(
            f"{what} at {user_location()}: it reads what a step of a te.scan computes; the stages of a step are "
            "written with te.compute, or as operations on whole tensors"
        )
    check_scope(parts, loops, what)
    check_states(parts, what)
    *row_parts, body, guard = _lifted(parts, loops, title) if _has_reduce(parts) else parts
    made = Scatter(
        name=title, shape=extents, axes=loops, index=tuple(row_parts), value=body, guard=guard, kind=op, init=init
    )
    return made.output()


def _lifted(parts: tuple[Expr, ...], loops: tuple[Axis, ...], title: str) -> tuple[Expr, ...]:
    """Without reductions inside; those of an index or the value are asked for where the guard, the last part, holds."""
    used = (*(parts[-1] for _ in parts[:-1]), TRUE)
    return lifted(parts, guards_of(parts, used), loops, title)


def _has_reduce(parts: tuple[Expr, ...]) -> bool:
    return any(isinstance(node, Reduce) for node in topological(parts))


def _loop_axes(axes: Any, what: str) -> tuple[Axis, ...]:
    loops = tuple(axes) if isinstance(axes, (tuple, list)) else (axes,)
    for position, axis in enumerate(loops):
        if not isinstance(axis, Axis) or not axis.is_reduce:
            raise TypeError(f"{what} at {user_location()}: axes= takes te.reduce_axis objects, found {axis!r:.40}")
        if axis in set(loops[:position]):
            raise ValueError(f"{what} at {user_location()}: reduce axis {axis.name!r} is used twice")
    return loops


def _checked_init(init: Tensor, extents: tuple[Expr, ...], value: Any, what: str) -> DType:
    if not isinstance(init, Tensor):
        raise TypeError(f"{what} at {user_location()}: init= must be a tensor, found {type(init).__name__}")
    if init.ndim != len(extents) or not all(same_extent(a, b) for a, b in zip(init.extents, extents, strict=True)):
        raise ValueError(
            f"{what} at {user_location()}: init= must have the shape ({', '.join(map(str, extents))}), found {init!r}"
        )
    if promote([init.dtype, kind_of(value)]) is not init.dtype:
        found = value.dtype if isinstance(value, Expr) else type(value).__name__
        raise TypeError(f"{what} at {user_location()}: init= is {init.dtype}, but the values are {found}")
    return init.dtype


@overload
def extern(
    fn: Callable[..., Any], shape: Any, dtype: list[Any] | tuple[Any, ...], args: Any, pure: bool = True, *,
    name: Any = None,
) -> tuple[Tensor, ...]: ...  # fmt: skip
@overload
def extern(
    fn: Callable[..., Any], shape: Any, dtype: object, args: Any, pure: bool = True, *, name: Any = None
) -> Tensor: ...
@own_arguments()
def extern(fn: Callable[..., Any], shape: Any, dtype: Any, args: Any, pure: bool = True, *, name: Any = None) -> Any:
    """A Python function of NumPy arrays as a stage: `fn(*arrays)` returns an array of `shape` and `dtype`.

    Lists of shapes and dtypes make a tuple of tensors. `pure=False` runs it on each call, in order.
    """
    title = titled(name or str(getattr(fn, "__name__", "extern")), "extern", "te.extern")
    what = f"extern {title.text!r}"
    if not callable(fn):
        raise TypeError(f"{what} at {user_location()}: expected a function of arrays, found {type(fn).__name__}")
    tensors = tuple(args) if isinstance(args, (tuple, list)) else (args,)
    for arg in tensors:
        if not isinstance(arg, Tensor):
            raise TypeError(f"{what} at {user_location()}: args must be tensors, found {type(arg).__name__}")
    several = isinstance(dtype, (tuple, list))
    shapes = tuple(as_shape(s, what) for s in (shape if several else (shape,)))
    dtypes = tuple(as_dtype(d) for d in (dtype if several else (dtype,)))
    if len(shapes) != len(dtypes):
        raise ValueError(f"{what} at {user_location()}: {len(shapes)} shapes for {len(dtypes)} dtypes")
    text, names = title.of(len(dtypes), several, what)
    made = Extern(name=text, names=names, function=fn, shapes=shapes, dtypes=dtypes, args=tensors, pure=pure)
    outputs = made.outputs
    return outputs if several else outputs[0]
