"""Reducers: the builtin ones (`te.sum`, `te.max`, `te.argmax`, ...) and those that users define (`te.reducer`)."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import field
from functools import lru_cache
from typing import Any

import numpy as np

from tedsl.lang import functions as fn
from tedsl.lang.annotations import as_reduction, as_summation
from tedsl.lang.axes import INT32_MAX, given_name, reduce_axis
from tedsl.lang.dataclass import dataclass
from tedsl.lang.dtypes import BOOL, BOTTOM, INT32, DType, Kind, default_type, integer_bounds, promote
from tedsl.lang.errors import user_location
from tedsl.lang.expr import TRUE, Axis, Const, Expr, Formal, Read, Reduce
from tedsl.lang.extents import same_extent
from tedsl.lang.keywords import own_arguments
from tedsl.lang.operators import Operators
from tedsl.lang.pickling import made_again
from tedsl.lang.signatures import parameters_of, takes
from tedsl.lang.traverse import free_axes, topological
from tedsl.lang.weak import is_weak_kind, kind_of

__all__ = [
    "COMBINE", "Reducer", "all", "any", "argmax", "argmin", "max", "min", "prod", "reducer", "sum", "sums_of",
]  # fmt: skip

DEFAULT_NAME = "reducer"


@dataclass(frozen=True, eq=False)
class Reducer:
    """How values are combined: a builtin kind, or `results`, expressions of the formals `left` and `right`.

    "sums" are several sums of one walk, each of which is what it is by itself, to the bit.
    """

    kind: str
    left: tuple[Formal, ...] = ()
    right: tuple[Formal, ...] = ()
    results: tuple[Expr, ...] = ()
    identity: tuple[Const, ...] = ()
    name: str = DEFAULT_NAME  # of one that a user defined

    def result_dtype(self, values: tuple[Expr, ...], index: int) -> DType:
        return INT32 if self.kind in ("argmax", "argmin") else values[index].dtype

    @property
    def is_custom(self) -> bool:
        """Whether `results` say what it does."""
        return self.kind in ("custom", "sums")

    @property
    def title(self) -> str:
        """What formulas and texts call it."""
        return self.name if self.is_custom else self.kind

    def identity_of(self, dtype: DType, index: int = 0) -> Const:
        """The result over nothing."""
        return self.identity[index] if self.is_custom else _IDENTITY[self.kind](dtype)


def _lowest(dtype: DType) -> Const:
    if dtype.is_float:
        return Const(float("-inf"), dtype)
    return Const(bool(integer_bounds(dtype)[0]) if dtype.is_bool else integer_bounds(dtype)[0], dtype)


def _highest(dtype: DType) -> Const:
    if dtype.is_float:
        return Const(float("inf"), dtype)
    return Const(bool(integer_bounds(dtype)[1]) if dtype.is_bool else integer_bounds(dtype)[1], dtype)


_IDENTITY: dict[str, Callable[[DType], Const]] = {
    "sum": lambda dtype: fn.const(0, dtype),
    "prod": lambda dtype: fn.const(1, dtype),
    "max": _lowest,
    "min": _highest,
    "any": lambda dtype: fn.const(False),
    "all": lambda dtype: fn.const(True),
    "argmax": lambda dtype: fn.const(0, INT32),
    "argmin": lambda dtype: fn.const(0, INT32),
}
COMBINE: dict[str, Callable[[Expr, Expr], Expr]] = {
    "sum": lambda a, b: a + b, "prod": lambda a, b: a * b, "max": fn.maximum, "min": fn.minimum,
    "any": fn.logical_or, "all": fn.logical_and,
}  # fmt: skip
"""How two results of a builtin reducer become one."""
_OF_TWO = {"te.max": "te.maximum", "te.min": "te.minimum"}
BUILTIN = {kind: Reducer(kind) for kind in _IDENTITY}


def reduce_expr(reducer: Reducer, values: tuple[Any, ...], axis: Any, where: Any, what: str) -> tuple[Expr, ...]:
    """The `Reduce` nodes for all components, arguments checked."""
    exprs = tuple(fn.as_expr(v) for v in values)
    axes = _axes(axis, what)
    if callable(where) and not isinstance(where, Operators):
        where = where(*axes)
    condition = TRUE if where is None else fn.as_expr(where)
    if not condition.dtype.may_be_bool:
        raise TypeError(f"{what} at {user_location()}: where= must be bool, found {condition.dtype} `{condition}`")
    for inner in topological((*exprs, condition)):
        if isinstance(inner, Reduce) and (twice := [a.name for a in inner.axes if a in set(axes)]):
            raise ValueError(
                f"{what} at {user_location()}: reduce axis {twice[0]!r} is used twice, in this reduction and in one "
                "inside it; give the inner one an axis of its own"
            )
    condition = fn.convert(condition, BOOL)
    components = len(exprs) if reducer.is_custom else 1
    return tuple(Reduce(reducer, exprs, axes, condition, index) for index in range(components))


def _axes(axis: Any, what: str) -> tuple[Axis, ...]:
    axes = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    for a in axes:
        if not isinstance(a, Axis) or not a.is_reduce:
            found = f"the compute's own axis {a.name!r}" if isinstance(a, Axis) else f"{type(a).__name__} ({a!r:.40})"
            hint = f"; the larger or smaller of two values is {_OF_TWO[what]}" if what in _OF_TWO else ""
            raise TypeError(f"{what} at {user_location()}: axis= takes te.reduce_axis objects, found {found}{hint}")
    for position, a in enumerate(axes):
        if a in set(axes[:position]):
            raise ValueError(f"{what} at {user_location()}: reduce axis {a.name!r} is used twice")
    if not axes:
        raise ValueError(f"{what} at {user_location()}: expected at least one reduce axis")
    return axes


def trace_lambda(function: Callable[..., Any], what: str, axis: Any = None) -> tuple[Any, tuple[Axis, ...]]:
    """The value of `te.sum(lambda k, l: ...)` and its axes: those of `axis`, or new ones whose extents are inferred."""
    names, rest = parameters_of(function, what)
    if not names or rest is not None:
        raise ValueError(f"{what} at {user_location()}: the function must take one argument per reduce axis")
    if axis is None:
        axes = tuple(Axis(name, None, is_reduce=True) for name in names)
    else:
        axes = _given_axes(axis, names, what)
    value = function(*axes)
    if axis is not None:
        _check_extents(value, axis, axes, names, what)
    return value, axes


def _given_axes(axis: Any, names: list[str], what: str) -> tuple[Axis, ...]:
    """The axes for the arguments of a lambda: those given, or new ones of the extents given."""
    given = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    for value in given:
        if _is_number(value) and value < 0:
            raise _no_extent(value, names, what)
    if len(given) == len(names):
        named = zip(given, names, strict=True)
        axis = tuple(reduce_axis(value, name=name) if _is_extent(value) else value for value, name in named)
    axes = _axes(axis, what)
    if len(axes) != len(names):
        raise ValueError(
            f"{what} at {user_location()}: the function takes {len(names)} axes ({', '.join(names)}), axis= has "
            f"{len(axes)}"
        )
    return axes


def _no_extent(value: Any, names: list[str], what: str) -> ValueError:
    """Of the number of an axis where an extent is meant."""
    meant = "" if value < 0 else "; a sum of nothing is axis=te.reduce_axis(0)"
    return ValueError(
        f"{what} at {user_location()}: beside a function of the axes axis= is how many terms there are, axis=3 for "
        f"three of them; found {value}; leave axis= out where the reads tell, as lambda {', '.join(names)}: "
        f"x[{', '.join(names)}] does{meant}"
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _is_extent(value: Any) -> bool:
    return _is_number(value) or (isinstance(value, Expr) and not isinstance(value, Axis) and value.dtype.is_integer)


def _check_extents(value: Any, axis: Any, axes: tuple[Axis, ...], names: list[str], what: str) -> None:
    """Refuse an extent that is not that of what is read: it may be the number of an axis, or of terms."""
    given = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    new = {a: (a.extent, n) for a, extent, n in zip(axes, given, names, strict=True) if _is_extent(extent)}
    if not new:
        return
    roots = [fn.as_expr(v) for v in (value if isinstance(value, tuple) else (value,))]
    shown: set[Axis] = set()
    for read in (node for node in topological(roots) if isinstance(node, Read)):
        for dim, index in enumerate(read.indices):
            extent, name = new.get(index, (None, "")) if isinstance(index, Axis) else (None, "")
            if extent is None:
                continue
            shown.add(index)  # type: ignore[arg-type]
            if not same_extent(read.tensor.extents[dim], extent):
                raise TypeError(
                    f"{what} at {user_location()}: beside a function of the axes axis= takes te.reduce_axis objects, "
                    f"or extents, found `{extent}`, but dimension {dim} of {read.tensor!r}, read at {name!r}, "
                    f"has {read.tensor.extents[dim]}; leave axis= out for all of it, or for a part: lambda "
                    f"{', '.join(names)}: ..., axis=te.reduce_axis({extent})"
                )
    for a, said in zip(axes, given, strict=True):
        if a not in shown and _is_number(said) and said == 0:  # a window of nothing is the number of an axis
            raise _no_extent(said, names, what)


def _builtin(kind: str, value: Any, axis: Any, where: Any, keepdims: bool, dtype: Any = None) -> Any:
    what = f"te.{kind}"
    (value,) = fn.without_arrays((value,), kind)
    if isinstance(value, Operators) and not isinstance(value, Expr) and (axis is None or value.ndim):  # type: ignore[attr-defined]
        given = {key: said for key, said in (("where", where), ("dtype", dtype)) if said is not None}
        return getattr(value, kind)(axis, keepdims, **given)
    if callable(value) and not isinstance(value, Operators):
        value, axis = trace_lambda(value, what, axis)
    else:
        if isinstance(value, (Generator, map, filter)):
            raise TypeError(
                f"{what} at {user_location()}: expected an expression or a function of axes, found a "
                f"{type(value).__name__}; Python's own sum and max take what is made one by one"
            )
        if axis is None:
            raise TypeError(
                f"{what} at {user_location()}: axis= is missing; give a te.reduce_axis, or a function of the axes"
            )
    expr = fn.as_expr(value)
    if kind in ("any", "all") and not expr.dtype.may_be_bool:
        raise TypeError(f"{what} at {user_location()}: expected a bool expression, found {expr.dtype} `{expr}`")
    if dtype is not None:
        expr = fn.cast(expr, dtype)
    elif kind in ("sum", "prod") and expr.dtype.is_bool:
        expr = fn.convert(expr, INT32)
    if kind in ("argmax", "argmin"):
        _check_argument_range(_axes(axis, what), what)
    return reduce_expr(BUILTIN[kind], (expr,), axis, where, what)[0]


def _check_argument_range(axes: tuple[Axis, ...], what: str) -> None:
    total = 1
    for axis in axes:
        total *= int(axis.extent.value) if isinstance(axis.extent, Const) else 1
    if total > INT32_MAX:
        raise ValueError(f"{what} at {user_location()}: {total} positions do not fit in the int32 result")


@as_summation
@own_arguments()
def sum(value: Any, axis: Any = None, where: Any = None, keepdims: bool = False, dtype: Any = None) -> Any:
    """The sum of `value`, converted to `dtype`, over reduction axes where a condition holds; 0 over nothing."""
    return _builtin("sum", value, axis, where, keepdims, dtype)


@as_summation
@own_arguments()
def prod(value: Any, axis: Any = None, where: Any = None, keepdims: bool = False, dtype: Any = None) -> Any:
    """The product of `value`, converted to `dtype`, over reduction axes where a condition holds; 1 over nothing."""
    return _builtin("prod", value, axis, where, keepdims, dtype)


@as_reduction
@own_arguments()
def max(value: Any, axis: Any = None, where: Any = None, keepdims: bool = False) -> Any:
    """The largest value (NaN if there is one); -inf or the smallest integer over nothing."""
    return _builtin("max", value, axis, where, keepdims)


@as_reduction
@own_arguments()
def min(value: Any, axis: Any = None, where: Any = None, keepdims: bool = False) -> Any:
    """The smallest value (NaN if there is one); inf or the largest integer over nothing."""
    return _builtin("min", value, axis, where, keepdims)


@as_reduction
@own_arguments()
def any(value: Any, axis: Any = None, where: Any = None, keepdims: bool = False) -> Any:
    """Whether a condition holds anywhere; False over nothing."""
    return _builtin("any", value, axis, where, keepdims)


@as_reduction
@own_arguments()
def all(value: Any, axis: Any = None, where: Any = None, keepdims: bool = False) -> Any:
    """Whether a condition holds everywhere; True over nothing."""
    return _builtin("all", value, axis, where, keepdims)


@as_reduction
@own_arguments()
def argmax(value: Any, axis: Any = None, where: Any = None, keepdims: bool = False) -> Any:
    """The position of the first largest value (or first NaN), counted row-major over the axes; 0 over nothing."""
    return _builtin("argmax", value, axis, where, keepdims)


@as_reduction
@own_arguments()
def argmin(value: Any, axis: Any = None, where: Any = None, keepdims: bool = False) -> Any:
    """The position of the first smallest value (or first NaN), counted row-major over the axes; 0 over nothing."""
    return _builtin("argmin", value, axis, where, keepdims)


@dataclass(frozen=True, eq=False)
class CustomReducer:
    """What `te.reducer` returns: called on expressions like `te.sum`."""

    combine: Callable[..., Any]
    identity: Any
    where: str
    name: str = DEFAULT_NAME
    _traced: dict[tuple[Kind, ...], Reducer] = field(default_factory=dict, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        given = (self.combine, self.identity, self.where, self.name)
        return made_again(f"te.reducer {self.name!r}", CustomReducer, *given)

    def __deepcopy__(self, memo: object) -> CustomReducer:  # as of a function
        return self

    def __repr__(self) -> str:
        identity = self.identity if self.arity is not None else (self.identity,)
        formals = _formals(tuple(fn.const(v).dtype for v in identity))
        try:
            formula = ", ".join(map(str, self._combined(*formals, "te.reducer")))
        except Exception:  # whatever a function says of values that are not those it is for
            formula = str(getattr(self.combine, "__name__", type(self.combine).__name__))
        title = "te.reducer" if self.name == DEFAULT_NAME else f"te.reducer {self.name!r}"
        return f"{title}: {formula if self.arity is None else f'({formula})'}, identity {self.identity!r}"

    @property
    def arity(self) -> int | None:
        return len(self.identity) if isinstance(self.identity, tuple) else None

    def __call__(self, value: Any, axis: Any = None, where: Any = None) -> Any:
        title = "te.reducer" if self.name == DEFAULT_NAME else f"te.reducer {self.name!r}"
        what = f"{title} defined at {self.where}"
        if callable(value) and not isinstance(value, Operators):
            value, axis = trace_lambda(value, what, axis)
        elif axis is None:
            raise TypeError(f"{what}, used at {user_location()}: axis= is missing")
        is_tuple = isinstance(value, tuple)
        if is_tuple != (self.arity is not None) or (is_tuple and len(value) != self.arity):
            wanted = "a single value" if self.arity is None else f"a tuple of {self.arity} values"
            found = f"{len(value)} values" if is_tuple else "a single value"
            raise ValueError(f"{what}, used at {user_location()}: expected {wanted} as in its identity, found {found}")
        values = value if is_tuple else (value,)
        reducer = self._reducer_for(tuple(kind_of(fn.operand(v)) for v in values), what)
        exprs = tuple(fn.convert(v, formal.dtype) for v, formal in zip(values, reducer.left, strict=True))
        parts = reduce_expr(reducer, exprs, axis, where, what)
        return parts if is_tuple else parts[0]

    def _reducer_for(self, kinds: tuple[Kind, ...], what: str) -> Reducer:
        known = self._traced.get(kinds)
        if known is None:
            known = self._traced[kinds] = self._trace(self._settled(kinds, what), what)
        return known

    def _settled(self, kinds: tuple[Kind, ...], what: str) -> tuple[DType, ...]:
        """The dtypes of the values; a weak number takes that of what it is combined with."""
        dtypes = tuple(kind if isinstance(kind, DType) and not is_weak_kind(kind) else BOTTOM for kind in kinds)
        for _ in range(2 * dtypes.count(BOTTOM)):
            found = tuple(e.dtype for e in self._combined(*_formals(dtypes), what))
            settled = tuple(
                d if not is_weak_kind(kind) else default_type(kind) if d is f is BOTTOM else promote([kind, d, f])
                for kind, d, f in zip(kinds, dtypes, found, strict=True)
            )
            if settled == dtypes:
                break
            dtypes = settled
        return dtypes

    def _combined(self, left: tuple[Formal, ...], right: tuple[Formal, ...], what: str) -> tuple[Expr, ...]:
        result = self.combine(left[0], right[0]) if self.arity is None else self.combine(left, right)
        results = tuple(result) if isinstance(result, (tuple, list)) and self.arity is not None else (result,)
        if len(results) != len(left):
            raise ValueError(f"{what}: combine must return {len(left)} values, found {len(results)}")
        return tuple(fn.as_expr(r) for r in results)

    def _trace(self, dtypes: tuple[DType, ...], what: str) -> Reducer:
        left, right = _formals(dtypes)
        exprs = self._combined(left, right, what)
        for expr, dtype in zip(exprs, dtypes, strict=True):
            if expr.dtype is not dtype:
                raise TypeError(f"{what}: combine of {dtype} must return {dtype}, found {expr.dtype} `{expr}`")
        if free_axes(exprs):
            raise ValueError(f"{what}: combine may only use its two arguments, found axis {free_axes(exprs)[0].name!r}")
        identity = (self.identity,) if self.arity is None else self.identity
        return Reducer(
            "custom",
            left,
            right,
            exprs,
            tuple(fn.const(v, d) for v, d in zip(identity, dtypes, strict=True)),
            self.name,
        )


def _formals(dtypes: tuple[DType, ...]) -> tuple[tuple[Formal, ...], tuple[Formal, ...]]:
    """The two arguments of combine."""
    several = len(dtypes) > 1
    left, right = (
        tuple(Formal(f"{side}{i}" if several else side, d) for i, d in enumerate(dtypes)) for side in ("a", "b")
    )
    return left, right


@lru_cache(maxsize=64)
def sums_of(dtypes: tuple[DType, ...]) -> Reducer:
    """The reducer of several sums that are made in one walk."""
    left, right = _formals(dtypes)
    results = tuple(a + b for a, b in zip(left, right, strict=True))
    return Reducer("sums", left, right, results, tuple(fn.const(0, d) for d in dtypes), "sums")


@own_arguments()
def reducer(combine: Callable[..., Any], identity: Any, name: str | None = None) -> CustomReducer:
    """A reducer of your own: `combine(a, b)` must be associative, `identity` neutral; tuples for several values.

    Formulas call it by its name, or like the variable that it is stored in.
    """
    name = given_name(name, DEFAULT_NAME, "te.reducer")
    if not callable(combine) or not takes(combine, 2):
        raise TypeError(
            f"te.reducer at {user_location()}: combine must be a function of two arguments, found {combine!r}"
        )
    if identity is None or (isinstance(identity, (tuple, list)) and not identity):
        raise ValueError(
            f"te.reducer at {user_location()}: the identity must be a number or a tuple, found {identity!r}"
        )
    return CustomReducer(combine, identity, user_location(), name)
