"""Activations: functions of one element, written as one stage each so that schedules can inline them.

Where a formula would lose digits or overflow on one side, the sides are written apart, and so the derivative is finite
where the value is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tedsl.ops import language as te
from tedsl.ops.arguments import axis_of, check_extent, check_float, check_rank, one_of, refuse
from tedsl.ops.op import op

__all__ = [
    "celu", "elu", "gelu", "glu", "hardshrink", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu", "logsigmoid",
    "mish", "prelu", "relu", "relu6", "selu", "sigmoid", "silu", "softplus", "softshrink", "softsign", "tanh",
    "tanhshrink", "threshold",
]  # fmt: skip


def _each(what: str, x: te.Tensor, function: Callable[[Any], Any]) -> te.Tensor:
    check_float(x, what, "x")
    return te.compute(x.shape, lambda *i: function(x[i]), name=what)  # type: ignore[no-any-return]


@op
def relu(x: te.Tensor) -> te.Tensor:
    """max(x, 0), with derivative 0 at 0. As torch.nn.functional.relu."""
    return _each("relu", x, te.relu)


def _held(v: Any, low: float, high: float) -> Any:
    """Between two numbers, with the slope 0 at both, as PyTorch's activations have it (te.clip has 1, as its clamp)."""
    return te.select(v <= low, low, te.select(v >= high, high, v))


@op
def relu6(x: te.Tensor) -> te.Tensor:
    """min(max(x, 0), 6). As torch.nn.functional.relu6."""
    return _each("relu6", x, lambda v: _held(v, 0.0, 6.0))


@op
def hardtanh(x: te.Tensor, min_val: float = -1.0, max_val: float = 1.0) -> te.Tensor:
    """min(max(x, min_val), max_val). As torch.nn.functional.hardtanh."""
    if not min_val < max_val:
        raise refuse("hardtanh", f"expected min_val < max_val, found {min_val!r} and {max_val!r}")
    return _each("hardtanh", x, lambda v: _held(v, min_val, max_val))


@op
def threshold(x: te.Tensor, threshold: float, value: float) -> te.Tensor:
    """x where it is above the threshold, else `value`. As torch.nn.functional.threshold."""
    return _each("threshold", x, lambda v: te.select(v > threshold, v, value))


@op
def leaky_relu(x: te.Tensor, negative_slope: float = 0.01) -> te.Tensor:
    """x where it is positive, else negative_slope x. As torch.nn.functional.leaky_relu."""
    return _each("leaky_relu", x, lambda v: te.select(v > 0, v, v * negative_slope))


@op
def prelu(x: te.Tensor, weight: te.Tensor) -> te.Tensor:
    """x where it is positive, else weight x; weight (1,), or (c,) for x (n, c, ...). As torch.nn.functional.prelu."""
    check_float(x, "prelu", "x")
    check_rank(weight, 1, "prelu", "weight", "(1 or channels)")
    if weight.shape[0] == 1:
        return te.compute(x.shape, lambda *i: te.select(x[i] > 0, x[i], x[i] * weight[0]), name="prelu")
    if x.ndim < 2:
        raise refuse("prelu", f"weight: expected 1 element for x without channels, found {weight!r} for {x!r}")
    check_extent(weight, 0, x.shape[1], "prelu", "weight", "the channels of x")
    return te.compute(x.shape, lambda *i: te.select(x[i] > 0, x[i], x[i] * weight[i[1]]), name="prelu")  # type: ignore[no-any-return]


@op
def elu(x: te.Tensor, alpha: float = 1.0) -> te.Tensor:
    """x where it is positive, else alpha (exp(x) - 1). As torch.nn.functional.elu."""
    return _each("elu", x, lambda v: te.select(v > 0, v, te.expm1(v) * alpha))


@op
def celu(x: te.Tensor, alpha: float = 1.0) -> te.Tensor:
    """x where it is positive, else alpha (exp(x / alpha) - 1). As torch.nn.functional.celu."""
    return _each("celu", x, lambda v: te.select(v > 0, v, te.expm1(v / alpha) * alpha))


@op
def selu(x: te.Tensor) -> te.Tensor:
    """A scaled elu, whose constants keep mean 0 and variance 1 from layer to layer. As torch.nn.functional.selu."""
    alpha, scale = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946
    return _each("selu", x, lambda v: te.select(v > 0, v * scale, te.expm1(v) * (alpha * scale)))


@op
def gelu(x: te.Tensor, approximate: str = "none") -> te.Tensor:
    """x Phi(x) with Phi the normal distribution, or a formula by approximate="tanh". As torch.nn.functional.gelu."""
    if one_of(approximate, ("none", "tanh"), "gelu", "approximate") == "none":
        return _each("gelu", x, lambda v: v * 0.5 * (1.0 + te.erf(v * math.sqrt(0.5))))
    root = math.sqrt(2.0 / math.pi)
    return _each("gelu", x, lambda v: v * 0.5 * (1.0 + te.tanh((v + v * v * v * 0.044715) * root)))


@op
def sigmoid(x: te.Tensor) -> te.Tensor:
    """1 / (1 + exp(-x)). As torch.sigmoid."""
    return _each("sigmoid", x, te.sigmoid)


@op
def tanh(x: te.Tensor) -> te.Tensor:
    """The hyperbolic tangent. As torch.tanh."""
    return _each("tanh", x, te.tanh)


@op
def silu(x: te.Tensor) -> te.Tensor:
    """x sigmoid(x). As torch.nn.functional.silu."""
    return _each("silu", x, lambda v: v * te.sigmoid(v))


@op
def softplus(x: te.Tensor, beta: float = 1.0, threshold: float = 20.0) -> te.Tensor:
    """log(1 + exp(beta x)) / beta; x itself where beta x is above the threshold. As torch.nn.functional.softplus."""
    return _each("softplus", x, lambda v: _softplus(v, beta, threshold))


def _softplus(v: Any, beta: float = 1.0, threshold: float = 20.0) -> Any:
    return te.select(v * beta > threshold, v, te.log1p(te.exp(v * beta)) / beta)


@op
def mish(x: te.Tensor) -> te.Tensor:
    """x tanh(softplus(x)). As torch.nn.functional.mish."""
    return _each("mish", x, lambda v: v * te.tanh(_softplus(v)))


@op
def logsigmoid(x: te.Tensor) -> te.Tensor:
    """log(sigmoid(x)), without overflow on either side. As torch.nn.functional.logsigmoid."""
    return _each("logsigmoid", x, lambda v: te.select(v < 0, v - te.log1p(te.exp(v)), -te.log1p(te.exp(-v))))


@op
def softsign(x: te.Tensor) -> te.Tensor:
    """x / (1 + |x|). As torch.nn.functional.softsign."""
    return _each("softsign", x, lambda v: v / (1.0 + te.abs(v)))


@op
def hardsigmoid(x: te.Tensor) -> te.Tensor:
    """min(max(x + 3, 0), 6) / 6. As torch.nn.functional.hardsigmoid."""
    return _each("hardsigmoid", x, lambda v: _held(v + 3.0, 0.0, 6.0) / 6.0)


@op
def hardswish(x: te.Tensor) -> te.Tensor:
    """x hardsigmoid(x). As torch.nn.functional.hardswish."""
    return _each("hardswish", x, lambda v: v * _held(v + 3.0, 0.0, 6.0) / 6.0)


@op
def tanhshrink(x: te.Tensor) -> te.Tensor:
    """x - tanh(x). As torch.nn.functional.tanhshrink."""
    return _each("tanhshrink", x, lambda v: v - te.tanh(v))


@op
def softshrink(x: te.Tensor, lambd: float = 0.5) -> te.Tensor:
    """x moved toward 0 by lambd; 0 where |x| <= lambd. As torch.nn.functional.softshrink."""
    return _each("softshrink", x, lambda v: te.select(v > lambd, v - lambd, te.select(v < -lambd, v + lambd, v * 0.0)))


@op
def hardshrink(x: te.Tensor, lambd: float = 0.5) -> te.Tensor:
    """x, but 0 where |x| <= lambd. As torch.nn.functional.hardshrink."""
    return _each("hardshrink", x, lambda v: te.select((v > lambd) | (v < -lambd), v, 0.0))


@op
def glu(x: te.Tensor, axis: int = -1) -> te.Tensor:
    """a sigmoid(b), with a and b the halves of x along an axis. As torch.nn.functional.glu."""
    check_float(x, "glu", "x")
    dim = axis_of(x, axis, "glu")
    size = x.shape[dim]
    if isinstance(size, int) and size % 2:
        raise refuse("glu", f"x: expected an even extent of axis {dim}, found {size}: {x!r}")
    half = size // 2
    shape = (*x.shape[:dim], half, *x.shape[dim + 1 :])

    def element(*i: Any) -> Any:
        gate = (*i[:dim], i[dim] + half, *i[dim + 1 :])
        return x[i] * te.sigmoid(x[gate])

    return te.compute(shape, element, name="glu")  # type: ignore[no-any-return]
