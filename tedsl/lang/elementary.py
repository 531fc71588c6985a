"""Functions of elements that NumPy has beside those of `tedsl.lang.functions`, made of these.

Each takes elements, and whole tensors element by element.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tedsl.lang import functions as fn
from tedsl.lang.annotations import of_one, of_pair
from tedsl.lang.dtypes import BOOL, INT8
from tedsl.lang.elements import as_tensor, tensor_of
from tedsl.lang.errors import user_location
from tedsl.lang.expr import Read
from tedsl.lang.operators import Operators
from tedsl.lang.tensor import Tensor
from tedsl.lang.titles import takes_variables

__all__ = [
    "deg2rad", "fmax", "fmin", "heaviside", "isclose", "logaddexp", "logical_xor", "nan_to_num", "rad2deg", "sinc",
    "softplus", "square",
]  # fmt: skip


def _operands(*values: Any, what: str) -> tuple[Any, ...]:
    """Elements as they are; arrays as constants, where a tensor is among them."""
    if not any(isinstance(v, Operators) for v in values):
        values = fn.without_arrays(values, what)
    return tuple(v if isinstance(v, Operators) or not np.ndim(v) else as_tensor(v, f"te.{what}") for v in values)


def _float(x: Any, what: str) -> Any:
    """A float of the dtype in which NumPy computes a function of x."""
    (x,) = _operands(x, what=what)
    return fn.cast(x, fn.sin(x).dtype)


def _floats(a: Any, b: Any, what: str) -> tuple[Any, Any]:
    """Both as floats of the dtype in which NumPy computes a function of the two."""
    a, b = _operands(a, b, what=what)
    kind = fn.hypot(a, b).dtype
    a, b = (fn.cast(v, kind) if hasattr(v, "dtype") else v for v in (a, b))
    return a, b


@of_one
@takes_variables
def square(x: Any) -> Any:
    """x times x."""
    (x,) = _operands(x, what="square")
    x = fn.cast(x, INT8) if getattr(x, "dtype", None) is BOOL else x  # as in NumPy
    return x * x


@of_one
@takes_variables
def deg2rad(x: Any) -> Any:
    """Degrees as radians."""
    return _float(x, "deg2rad") * (math.pi / 180.0)


@of_one
@takes_variables
def rad2deg(x: Any) -> Any:
    """Radians as degrees."""
    return _float(x, "rad2deg") * (180.0 / math.pi)


@of_one
@takes_variables
def sinc(x: Any) -> Any:
    """sin(pi x) / (pi x), and 1 at 0."""
    (x,) = _operands(x, what="sinc")
    return tensor_of(x.extents, lambda *axes: _sinc(Read(x, axes)), "sinc") if isinstance(x, Tensor) else _sinc(x)


def _sinc(x: Any) -> Any:
    """Near 0 a series: the quotient loses the digits of its derivatives there, and has none at 0."""
    turned = x * math.pi
    square = turned * turned
    near: Any = 1.0
    for n in range(9, 0, -1):
        near = 1.0 - square * near * (1 / (2 * n * (2 * n + 1)))
    return fn.select(square < 0.25, near, fn.sin(turned) / turned)


@of_pair
@takes_variables
def fmax(a: Any, b: Any) -> Any:
    """The larger; the other one where one is NaN."""
    a, b = _operands(a, b, what="fmax")
    return fn.select((a >= b) | (b != b), a, b)


@of_pair
@takes_variables
def fmin(a: Any, b: Any) -> Any:
    """The smaller; the other one where one is NaN."""
    a, b = _operands(a, b, what="fmin")
    return fn.select((a <= b) | (b != b), a, b)


@of_pair
@takes_variables
def heaviside(x: Any, middle: Any) -> Any:
    """0 below 0, 1 above it, `middle` at 0; NaN stays NaN."""
    x, middle = _floats(x, middle, "heaviside")
    return fn.select(x == 0, middle, fn.select(x < 0, 0.0, fn.select(x > 0, 1.0, x)))


@of_pair
@takes_variables
def logaddexp(a: Any, b: Any) -> Any:
    """log(exp(a) + exp(b)), without overflow."""
    a, b = _floats(a, b, "logaddexp")
    first = a > b  # each side is smooth up to a = b and there continues the other, which abs(a - b) does not
    far = fn.select(first, a, b) + fn.log1p(fn.exp(fn.select(first, b - a, a - b)))
    alike = fn.logical_and(a == b, fn.isinf(a))  # infinities of one sign have no distance
    return fn.select(alike, a / 2 + b / 2, far)


@of_one
@takes_variables
def softplus(x: Any) -> Any:
    """log(1 + exp(x)), without overflow."""
    return logaddexp(x, 0.0)


@of_pair
@takes_variables
def logical_xor(a: Any, b: Any) -> Any:
    """One condition, but not both."""
    a, b = _operands(a, b, what="logical_xor")
    return fn.logical_and(fn.logical_or(a, b), fn.logical_not(fn.logical_and(a, b)))


@takes_variables
def isclose(a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Any:
    """Whether |a - b| is at most atol + rtol |b|; infinities are close to themselves, and NaN if `equal_nan`."""
    a, b = _floats(a, b, "isclose")
    near = (fn.abs(a - b) <= atol + rtol * fn.abs(b)) & fn.isfinite(b)
    same = near | (a == b)
    return same | ((a != a) & (b != b)) if equal_nan else same


@takes_variables
def nan_to_num(x: Any, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None) -> Any:
    """Numbers for NaN and the infinities: 0 and the largest ones there are, unless others are given."""
    (x,) = _operands(x, what="nan_to_num")
    dtype = getattr(x, "dtype", None)
    if not isinstance(x, Operators) or dtype is None:
        raise TypeError(f"te.nan_to_num at {user_location()}: expected a tensor or an element of one, found {x!r:.40}")
    return _without(x, dtype, nan, posinf, neginf)


def _without(x: Any, dtype: Any, nan: float, posinf: float | None, neginf: float | None) -> Any:
    if not dtype.is_float:
        return x
    most = float.fromhex("0x1.fep127") if dtype == "bfloat16" else float(np.finfo(str(dtype)).max)
    high, low = most if posinf is None else posinf, -most if neginf is None else neginf
    infinite = fn.select(fn.isinf(x), fn.select(x > 0, fn.cast(high, dtype), fn.cast(low, dtype)), x)
    return fn.select(fn.isnan(x), fn.cast(nan, dtype), infinite)
