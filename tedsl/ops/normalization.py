"""Softmax and its logarithm, and the norms that bring a part of a tensor to mean 0 and variance 1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tedsl.lang.dtypes import promote
from tedsl.ops import language as te
from tedsl.ops.arguments import axis_of, check_extent, check_float, loops, refuse, size_of, vector, wide_of
from tedsl.ops.op import op

__all__ = [
    "batch_norm", "group_norm", "instance_norm", "layer_norm", "local_response_norm", "log_softmax", "logsumexp",
    "normalize", "rms_norm", "running_stats", "softmax",
]  # fmt: skip


@op
def softmax(x: te.Tensor, axis: int = -1) -> te.Tensor:
    """exp(x) / sum of exp(x) along an axis, without overflow. As torch.softmax."""
    check_float(x, "softmax", "x")
    return x.softmax(axis_of(x, axis, "softmax"))  # type: ignore[no-any-return]


@op
def log_softmax(x: te.Tensor, axis: int = -1) -> te.Tensor:
    """x - logsumexp(x) along an axis. As torch.log_softmax."""
    check_float(x, "log_softmax", "x")
    return x.log_softmax(axis_of(x, axis, "log_softmax"))  # type: ignore[no-any-return]


@op
def logsumexp(x: te.Tensor, axis: int = -1, keepdims: bool = False) -> te.Tensor:
    """log(sum of exp(x)) along an axis; -inf where all elements are -inf. As torch.logsumexp."""
    check_float(x, "logsumexp", "x")
    return x.logsumexp(axis_of(x, axis, "logsumexp"), keepdims)  # type: ignore[no-any-return]


def _narrow(y: te.Tensor, *given: te.Tensor | None) -> te.Tensor:
    """A result in the dtype that what was given has together."""
    return te.cast(y, promote([t.dtype for t in given if t is not None]))


def _normal(x: te.Tensor, axes: tuple[int, ...], eps: float) -> te.Tensor:
    """x with mean 0 and (but for eps) variance 1 over the axes."""
    centered = x - x.mean(axes, keepdims=True)
    return centered / te.sqrt((centered * centered).mean(axes, keepdims=True) + eps)


def _scaled(x: te.Tensor, weight: te.Tensor | None, bias: te.Tensor | None, dim: int | None) -> te.Tensor:
    """x weight + bias, the two along axis `dim`, or of the trailing axes of x."""
    if weight is None and bias is None:
        return x

    def element(*i: Any) -> Any:
        value = x[i]
        for tensor, combine in ((weight, "mul"), (bias, "add")):
            if tensor is not None:
                factor = tensor[i[dim]] if dim is not None else tensor[i[x.ndim - tensor.ndim :]]
                value = value * factor if combine == "mul" else value + factor
        return value

    return te.compute(x.shape, element, name=x.name)  # type: ignore[no-any-return]


def _trailing(x: te.Tensor, shape: Any, tensors: dict[str, te.Tensor | None], what: str) -> tuple[int, ...]:
    """The trailing axes of x that have `shape`, as the weights must."""
    check_float(x, what, "x")
    wanted = tuple(shape) if isinstance(shape, Sequence) else (shape,)
    axes = tuple(range(x.ndim - len(wanted), x.ndim))
    if not wanted or len(wanted) > x.ndim:
        raise refuse(what, f"normalized_shape: expected 1 to {x.ndim} trailing extents of {x!r}, found {shape!r}")
    for dim, extent in zip(axes, wanted, strict=True):
        check_extent(x, dim, extent, what, "x", "normalized_shape")
    for name, tensor in tensors.items():
        if tensor is not None and tensor.ndim != len(wanted):
            raise refuse(what, f"{name}: expected the shape {wanted}, found {tensor!r}")
        for dim, extent in enumerate(wanted if tensor is not None else ()):
            assert tensor is not None
            check_extent(tensor, dim, extent, what, name, "normalized_shape")
    return axes


@op
def layer_norm(
    x: te.Tensor, normalized_shape: Any, weight: te.Tensor | None = None, bias: te.Tensor | None = None,
    eps: float = 1e-5,
) -> te.Tensor:  # fmt: skip
    """(x - mean) / sqrt(variance + eps) weight + bias, over the trailing axes, of extents `normalized_shape`.

    weight and bias have that shape. As torch.nn.functional.layer_norm.
    """
    axes = _trailing(x, normalized_shape, {"weight": weight, "bias": bias}, "layer_norm")
    return _narrow(_scaled(_normal(wide_of(x), axes, eps), weight, bias, None), x, weight, bias)


@op
def rms_norm(
    x: te.Tensor, normalized_shape: Any, weight: te.Tensor | None = None, eps: float | None = None
) -> te.Tensor:
    """x / sqrt(mean of x^2 + eps) weight, over the trailing axes, of extents `normalized_shape`.

    eps is the machine epsilon of the dtype unless given. As torch.nn.functional.rms_norm.
    """
    axes = _trailing(x, normalized_shape, {"weight": weight}, "rms_norm")
    least = {64: 2.0**-52, 32: 2.0**-23}.get(x.dtype.bits, 2.0**-10) if eps is None else eps
    wide = wide_of(x)
    normal = wide / te.sqrt((wide * wide).mean(axes, keepdims=True) + least)
    return _narrow(_scaled(normal, weight, None, None), x, weight)


def _channels(x: te.Tensor, tensors: dict[str, te.Tensor | None], what: str) -> Any:
    """The number of channels, which every vector given has."""
    check_float(x, what, "x")
    if x.ndim < 2:
        raise refuse(what, f"x: expected 2 dimensions or more (n, channels, ...), found {x!r}")
    for name, tensor in tensors.items():
        vector(tensor, x.shape[1], what, name, "the channels of x")
    return x.shape[1]


@op
def batch_norm(
    x: te.Tensor, running_mean: te.Tensor | None = None, running_var: te.Tensor | None = None,
    weight: te.Tensor | None = None, bias: te.Tensor | None = None, training: bool = False, eps: float = 1e-5,
) -> te.Tensor:  # fmt: skip
    """(x - mean) / sqrt(variance + eps) weight + bias for every channel of x (n, channels, ...).

    With training=True the mean and variance are those of the batch, else the running ones.
    As torch.nn.functional.batch_norm, whose in-place update of the running ones is `running_stats` here.
    """
    given = {"running_mean": running_mean, "running_var": running_var, "weight": weight, "bias": bias}
    _channels(x, given, "batch_norm")
    wide = wide_of(x)
    if training:
        return _narrow(_scaled(_normal(wide, (0, *range(2, x.ndim)), eps), weight, bias, 1), x, weight, bias)
    if running_mean is None or running_var is None:
        raise refuse("batch_norm", "running_mean and running_var are needed unless training=True; found None")
    spread = wide_of(running_var)
    scale = te.compute(spread.shape, lambda c: 1.0 / te.sqrt(spread[c] + eps), name="scale")
    normal = te.compute(x.shape, lambda *i: (wide[i] - running_mean[i[1]]) * scale[i[1]], name="batch_norm")
    return _narrow(_scaled(normal, weight, bias, 1), x, running_mean, running_var, weight, bias)


@op
def running_stats(
    x: te.Tensor, running_mean: te.Tensor, running_var: te.Tensor, momentum: float = 0.1
) -> tuple[te.Tensor, te.Tensor]:
    """The running mean and (unbiased) variance of every channel, moved by `momentum` toward those of the batch x."""
    _channels(x, {"running_mean": running_mean, "running_var": running_var}, "running_stats")
    axes, wide = (0, *range(2, x.ndim)), wide_of(x)
    mean = wide.mean(axes)
    centered = te.compute(x.shape, lambda *i: wide[i] - mean[i[1]], name="centered")
    count = size_of(x, axes)
    variance = (centered * centered).sum(axes)
    means = te.compute(
        mean.shape, lambda c: running_mean[c] * (1.0 - momentum) + mean[c] * momentum, name="running_mean"
    )
    variances = te.compute(
        mean.shape,
        lambda c: running_var[c] * (1.0 - momentum) + variance[c] / (count - 1.0) * momentum,
        name="running_var",
    )
    return _narrow(means, x, running_mean), _narrow(variances, x, running_var)


@op
def group_norm(
    x: te.Tensor, num_groups: int, weight: te.Tensor | None = None, bias: te.Tensor | None = None, eps: float = 1e-5
) -> te.Tensor:
    """(x - mean) / sqrt(variance + eps) weight + bias, over each of `num_groups` groups of channels of every sample.

    x (n, channels, ...), weight and bias (channels,). As torch.nn.functional.group_norm.
    """
    return _group_norm(x, num_groups, weight, bias, eps, "group_norm")


@op
def instance_norm(
    x: te.Tensor, weight: te.Tensor | None = None, bias: te.Tensor | None = None, eps: float = 1e-5
) -> te.Tensor:
    """group_norm with every channel a group of its own. As torch.nn.functional.instance_norm."""
    _channels(x, {"weight": weight, "bias": bias}, "instance_norm")
    normal = _normal(wide_of(x), tuple(range(2, x.ndim)), eps)
    return _narrow(_scaled(normal, weight, bias, 1), x, weight, bias)


def _group_norm(
    x: te.Tensor, groups: Any, weight: te.Tensor | None, bias: te.Tensor | None, eps: float, what: str
) -> te.Tensor:
    channels = _channels(x, {"weight": weight, "bias": bias}, what)
    if isinstance(groups, bool) or not isinstance(groups, int) or groups < 1:
        raise refuse(what, f"num_groups: expected an integer of 1 or more, found {groups!r}")
    if isinstance(channels, int) and channels % groups:
        raise refuse(what, f"num_groups: expected a divisor of {channels} channels, found {groups}")
    width = channels // groups
    c, *place = loops(width, *x.shape[2:])
    number = size_of(x, range(1, x.ndim)) / groups
    stats, wide = (x.shape[0], groups), wide_of(x)

    def at(n: Any, g: Any) -> Any:
        return (n, g * width + c, *place)

    mean = te.compute(stats, lambda n, g: te.sum(wide[at(n, g)], axis=(c, *place)) / number, name="mean")
    centered = te.compute(x.shape, lambda *i: wide[i] - mean[i[0], i[1] // width], name="centered")
    scale = te.compute(
        stats,
        lambda n, g: 1.0 / te.sqrt(te.sum(centered[at(n, g)] * centered[at(n, g)], axis=(c, *place)) / number + eps),
        name="scale",
    )
    normal = te.compute(x.shape, lambda *i: centered[i] * scale[i[0], i[1] // width], name=what)
    return _narrow(_scaled(normal, weight, bias, 1), x, weight, bias)


@op
def local_response_norm(x: te.Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> te.Tensor:
    """x / (k + alpha mean of x^2 over the nearest `size` channels)^beta. As torch.nn.functional.local_response_norm."""
    _channels(x, {}, "local_response_norm")
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise refuse("local_response_norm", f"size: expected an integer of 1 or more, found {size!r}")
    (r,), wide = loops(size), wide_of(x)

    def mean(*i: Any) -> Any:
        value = wide.at(i[0], i[1] + r - size // 2, *i[2:], mode="zero")
        return te.sum(value * value, axis=r) / size

    square = te.compute(x.shape, mean, name="square")
    normal = te.compute(x.shape, lambda *i: wide[i] / te.pow(k + square[i] * alpha, beta), name="local_response_norm")
    return _narrow(normal, x)


@op
def normalize(x: te.Tensor, p: float = 2.0, axis: int = 1, eps: float = 1e-12) -> te.Tensor:
    """x / max(its p-norm along an axis, eps). As torch.nn.functional.normalize."""
    check_float(x, "normalize", "x")
    dim = axis_of(x, axis, "normalize")
    if not p > 0:
        raise refuse("normalize", f"p: expected a positive number, found {p!r}")
    wide = wide_of(x)
    return _narrow(wide / te.maximum(wide.norm(p, dim, keepdims=True), eps), x)
