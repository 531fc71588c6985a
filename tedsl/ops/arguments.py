"""Arguments of the catalogue brought to one form, and the messages where they do not fit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tedsl.lang import functions as fn
from tedsl.lang.axes import INT32_MAX, as_extent
from tedsl.lang.elements import normal_axis, product, same_shape, shape_text
from tedsl.lang.errors import user_location
from tedsl.lang.expr import Expr
from tedsl.lang.extents import same_extent
from tedsl.lang.reducing import widened_float
from tedsl.lang.tensor import Tensor

__all__ = [
    "are_numbers", "axis_of", "check_extent", "check_float", "check_integer", "check_rank", "check_same_shape",
    "check_tensor", "exact", "loops", "one_of", "per_axis", "refuse", "replaced", "size_of", "sizes_of", "vector",
    "wide_of",
]  # fmt: skip


def refuse(what: str, message: str) -> ValueError:
    """The error of an operator: which, where in the user's code, and what is wrong."""
    return ValueError(f"te.ops.{what} at {user_location()}: {message}")


def check_tensor(x: Any, what: str, name: str) -> None:
    if not isinstance(x, Tensor):
        raise TypeError(
            f"te.ops.{what} at {user_location()}: {name}: expected a tensor, found {type(x).__name__} ({x!r:.60})"
        )


def check_rank(x: Tensor, ranks: int | Sequence[int], what: str, name: str, meaning: str = "") -> None:
    """`x` has one of the numbers of dimensions; `meaning` names them."""
    allowed = (ranks,) if isinstance(ranks, int) else tuple(ranks)
    check_tensor(x, what, name)
    if x.ndim not in allowed:
        expected = " or ".join(map(str, allowed))
        raise refuse(
            what, f"{name}: expected {expected} dimensions{f' {meaning}' if meaning else ''}, found {x.ndim}: {x!r}"
        )


def check_extent(x: Tensor, dim: int, expected: Any, what: str, name: str, why: str) -> None:
    """Dimension `dim` of `x` has the extent that another argument gives."""
    found = x.extents[dim]
    wanted = as_extent(expected, f"te.ops.{what}: {why}")
    if not same_extent(found, wanted):
        raise refuse(what, f"{name}: expected {wanted} in dimension {dim % x.ndim} ({why}), found {found}: {x!r}")


def check_same_shape(x: Tensor, y: Tensor, what: str, names: tuple[str, str]) -> None:
    for tensor, name in zip((x, y), names, strict=True):
        check_tensor(tensor, what, name)
    if not same_shape(x.extents, y.extents):
        raise refuse(
            what,
            f"expected {names[0]} and {names[1]} of one shape, found {shape_text(x.extents)} and "
            f"{shape_text(y.extents)}",
        )


def check_float(x: Tensor, what: str, name: str) -> None:
    check_tensor(x, what, name)
    if not x.dtype.is_float:
        raise TypeError(f"te.ops.{what} at {user_location()}: {name}: expected floats, found {x!r}; use te.cast")


def check_integer(x: Tensor, what: str, name: str) -> None:
    check_tensor(x, what, name)
    if not x.dtype.is_integer:
        raise TypeError(
            f"te.ops.{what} at {user_location()}: {name}: expected integers, found {x!r}; use te.cast(x, 'int32')"
        )


def vector(x: Tensor | None, length: Any, what: str, name: str, why: str) -> None:
    """`x`, where given, is a vector of `length`."""
    if x is not None:
        check_rank(x, 1, what, name, f"({why})")
        check_extent(x, 0, length, what, name, why)


def per_axis(value: Any, count: int, what: str, name: str, least: int = 1) -> tuple[int, ...]:
    """One integer for each of `count` axes, from a number or a sequence of them."""
    given = tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else (value,) * count
    if len(given) != count:
        raise refuse(what, f"{name}: expected a number or {count} of them, found {value!r}")
    for number in given:
        if isinstance(number, bool) or not isinstance(number, int) or number < least:
            is_size = isinstance(number, Expr)
            told = "; a size of te.var is known when a kernel is called, give arrays" if is_size else ""
            raise refuse(what, f"{name}: expected integers of {least} or more, found {value!r}{told}")
    return given


def sizes_of(value: Any, count: int, what: str, name: str) -> tuple[Any, ...]:
    """The extents of `count` axes, from one or a sequence of them; made of te.var, they are known in a call."""
    given = tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else (value,) * count
    numbers = [n for n in given if not isinstance(n, Expr)]
    per_axis(numbers, len(numbers) if len(given) == count else count, what, name)
    return given


def are_numbers(*extents: Any) -> bool:
    """Whether extents are known now, none of them made of te.var."""
    return all(isinstance(n, int) for n in extents)


def exact(i: Any, step: Any, last: Any, plus: Any = 0) -> Any:
    """i * step + plus for indices up to `last`, in 64 bits where 32 may not hold it."""
    farthest = last if are_numbers(last) else INT32_MAX // 4  # an axis of 2 GB and more has a known size
    if not are_numbers(step, plus) or (step > 1 and step * farthest + plus > INT32_MAX):
        i = fn.cast(i, "int64")
    return i * step + plus


def wide_of(x: Tensor) -> Tensor:
    """x in the floats that sums are made in, float32 for 16-bit ones, whose squares overflow."""
    wide: Tensor = fn.cast(x, widened_float(x.dtype))
    return wide


def one_of(value: Any, allowed: Sequence[str], what: str, name: str) -> str:
    if value not in allowed:
        raise refuse(what, f"{name}: expected one of {', '.join(map(repr, allowed))}, found {value!r}")
    return str(value)


def axis_of(x: Tensor, axis: Any, what: str) -> int:
    """An axis of `x`, counted from 0."""
    return normal_axis(axis, x.ndim, f"te.ops.{what}")


def size_of(x: Tensor, dims: Iterable[int]) -> Any:
    """The number of elements along some dimensions, as a scalar of the dtype of `x`."""
    return fn.convert(product(x.extents[d] for d in dims), x.dtype)


def replaced(index: Sequence[Any], dim: int, value: Any) -> tuple[Any, ...]:
    """An index with another value for one dimension."""
    return (*index[:dim], value, *index[dim + 1 :])


def loops(*extents: Any, name: str = "r") -> tuple[Any, ...]:
    """A reduce axis for each extent."""
    from tedsl.lang.axes import reduce_axis

    return tuple(reduce_axis(e, name=f"{name}{d}") for d, e in enumerate(extents))
