"""Convolutions of one to three dimensions, their transposes, and per channel.

The transposed convolution is what its name says: the adjoint of the convolution, as differentiation writes it.
"""

from __future__ import annotations

from typing import Any

from autodiff import differentiate
from tedsl.lang.borders import border_of
from tedsl.ops import language as te
from tedsl.ops.arguments import check_extent, check_rank, loops, per_axis, refuse, vector
from tedsl.ops.op import op
from tedsl.ops.windows import layout_of, windows_of

__all__ = [
    "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "depthwise_conv2d",
]  # fmt: skip


@op
def conv1d(
    x: te.Tensor, weight: te.Tensor, bias: te.Tensor | None = None, stride: Any = 1, padding: Any = 0,
    dilation: Any = 1, groups: int = 1, layout: str = "NCW", padding_mode: str = "zeros",
) -> te.Tensor:  # fmt: skip
    """y[n, o, i] = sum over c and p of x[n, c, i stride + p dilation - padding] weight[o, c, p], plus bias[o].

    x (n, in, w), or (n, w, in) with layout="NWC"; weight (out, in / groups, taps). As torch.nn.functional.conv1d.
    """
    return _conv(1, "conv1d", x, weight, bias, stride, padding, dilation, groups, layout, padding_mode)


@op
def conv2d(
    x: te.Tensor, weight: te.Tensor, bias: te.Tensor | None = None, stride: Any = 1, padding: Any = 0,
    dilation: Any = 1, groups: int = 1, layout: str = "NCHW", padding_mode: str = "zeros",
) -> te.Tensor:  # fmt: skip
    """y[n, o, i, j] = sum over c, p, q of x[n, c, i s + p d - pad, j s + q d - pad] weight[o, c, p, q], plus bias[o].

    x (n, in, h, w), or (n, h, w, in) with layout="NHWC", which the result has too; weight (out, in / groups, kh, kw) in
    either. stride, padding (also "same", "valid") and dilation: a number or a pair. As torch.nn.functional.conv2d, and
    torch.nn.Conv2d for padding_mode: "zeros", "reflect", "replicate" ("clamp"), "circular" ("wrap").
    """
    return _conv(2, "conv2d", x, weight, bias, stride, padding, dilation, groups, layout, padding_mode)


@op
def conv3d(
    x: te.Tensor, weight: te.Tensor, bias: te.Tensor | None = None, stride: Any = 1, padding: Any = 0,
    dilation: Any = 1, groups: int = 1, layout: str = "NCDHW", padding_mode: str = "zeros",
) -> te.Tensor:  # fmt: skip
    """conv2d in three dimensions: x (n, in, d, h, w), weight (out, in / groups, kd, kh, kw).

    Options as torch.nn.functional.conv3d; layout="NDHWC" has the channels last.
    """
    return _conv(3, "conv3d", x, weight, bias, stride, padding, dilation, groups, layout, padding_mode)


@op
def depthwise_conv2d(
    x: te.Tensor, weight: te.Tensor, bias: te.Tensor | None = None, stride: Any = 1, padding: Any = 0,
    dilation: Any = 1, layout: str = "NCHW", padding_mode: str = "zeros",
) -> te.Tensor:  # fmt: skip
    """Every channel convolved on its own: conv2d with as many groups as x has channels.

    weight (in * m, 1, kh, kw) makes m results of each channel.
    """
    channels = layout_of(x, layout, 2, "depthwise_conv2d").split(x.shape)[1]
    return _conv(2, "depthwise_conv2d", x, weight, bias, stride, padding, dilation, channels, layout, padding_mode)


def _conv(
    rank: int, what: str, x: te.Tensor, weight: te.Tensor, bias: te.Tensor | None, stride: Any, padding: Any,
    dilation: Any, groups: int, layout: str | None, padding_mode: str,
) -> te.Tensor:  # fmt: skip
    order = layout_of(x, layout, rank, what)
    mode = border_of(padding_mode, f"te.ops.{what}", "padding_mode")
    check_rank(weight, rank + 2, what, "weight", "(out, in / groups, *kernel)")
    batch, channels, sizes = order.split(x.shape)
    outputs, inner, *kernel = weight.shape
    _check_groups(channels, outputs, groups, what)
    check_extent(weight, 1, channels // groups, what, "weight", f"{channels} channels of x / {groups} groups")
    vector(bias, outputs, what, "bias", "the first of weight")
    windows = windows_of(sizes, kernel, stride, padding, dilation, what)
    c, *taps = loops(inner, *kernel)
    edge = mode if windows.inside(windows.at((0,) * rank, (0,) * rank)) is not None else "error"

    def element(*index: Any) -> Any:
        n, o, place = order.split(index)
        channel = c if groups == 1 else o // (outputs // groups) * inner + c
        tap = (o, c, *taps)
        value = x.at(*order.join(n, channel, windows.at(place, taps)), mode=edge)
        total = te.sum(value * weight[tap], axis=(c, *taps))
        return total if bias is None else total + bias[o]

    return te.compute(order.join(batch, outputs, windows.shape), element, name=what)  # type: ignore[no-any-return]


def _check_groups(channels: Any, outputs: Any, groups: Any, what: str) -> None:
    if groups is not channels and (isinstance(groups, bool) or not isinstance(groups, int) or groups < 1):
        raise refuse(what, f"groups: expected an integer of 1 or more, found {groups!r}")
    for count, name in ((channels, "channels of x"), (outputs, "outputs of weight")):
        if groups != 1 and isinstance(count, int) and isinstance(groups, int) and count % groups:
            raise refuse(what, f"groups: expected a divisor of the {count} {name}, found {groups}")


@op
def conv_transpose1d(
    x: te.Tensor, weight: te.Tensor, bias: te.Tensor | None = None, stride: Any = 1, padding: Any = 0,
    output_padding: Any = 0, groups: int = 1, dilation: Any = 1, layout: str = "NCW",
) -> te.Tensor:  # fmt: skip
    """The adjoint of conv1d in its input: y[n, o, i stride + p dilation - padding] += x[n, c, i] weight[c, o, p].

    x (n, in, w), weight (in, out / groups, taps). As torch.nn.functional.conv_transpose1d.
    """
    return _transpose(1, "conv_transpose1d", x, weight, bias, stride, padding, output_padding, groups, dilation, layout)


@op
def conv_transpose2d(
    x: te.Tensor, weight: te.Tensor, bias: te.Tensor | None = None, stride: Any = 1, padding: Any = 0,
    output_padding: Any = 0, groups: int = 1, dilation: Any = 1, layout: str = "NCHW",
) -> te.Tensor:  # fmt: skip
    """The adjoint of conv2d in its input: y[n, o, i s + p d - pad, ...] += x[n, c, i, j] weight[c, o, p, q].

    x (n, in, h, w), weight (in, out / groups, kh, kw); the result has (h - 1) stride - 2 padding + dilation (kh - 1) +
    output_padding + 1 rows. As torch.nn.functional.conv_transpose2d.
    """
    return _transpose(2, "conv_transpose2d", x, weight, bias, stride, padding, output_padding, groups, dilation, layout)


@op
def conv_transpose3d(
    x: te.Tensor, weight: te.Tensor, bias: te.Tensor | None = None, stride: Any = 1, padding: Any = 0,
    output_padding: Any = 0, groups: int = 1, dilation: Any = 1, layout: str = "NCDHW",
) -> te.Tensor:  # fmt: skip
    """The adjoint of conv3d in its input. As torch.nn.functional.conv_transpose3d."""
    return _transpose(3, "conv_transpose3d", x, weight, bias, stride, padding, output_padding, groups, dilation, layout)


def _transpose(
    rank: int, what: str, x: te.Tensor, weight: te.Tensor, bias: te.Tensor | None, stride: Any, padding: Any,
    output_padding: Any, groups: int, dilation: Any, layout: str | None,
) -> te.Tensor:  # fmt: skip
    order = layout_of(x, layout, rank, what)
    check_rank(weight, rank + 2, what, "weight", "(in, out / groups, *kernel)")
    batch, channels, sizes = order.split(x.shape)
    check_extent(weight, 0, channels, what, "weight", "the channels of x")
    outputs, kernel = weight.shape[1] * groups, weight.shape[2:]
    _check_groups(channels, outputs, groups, what)
    vector(bias, outputs, what, "bias", "groups times the second of weight")
    strides, dilations = per_axis(stride, rank, what, "stride"), per_axis(dilation, rank, what, "dilation")
    pads, extra = (per_axis(v, rank, what, n, 0) for v, n in ((padding, "padding"), (output_padding, "output_padding")))
    if any(e >= max(s, d) for e, s, d in zip(extra, strides, dilations, strict=True)):
        raise refuse(
            what, f"output_padding: expected less than stride {strides} or dilation {dilations}, found {extra}"
        )
    full = tuple(
        (n - 1) * s - 2 * p + d * (k - 1) + e + 1
        for n, s, p, d, k, e in zip(sizes, strides, pads, dilations, kernel, extra, strict=True)
    )
    source = te.placeholder(order.join(batch, outputs, full), x.dtype, name=f"{what}_result")
    forward = _conv(rank, what, source, weight, None, strides, pads, dilations, groups, order.name, "zeros")
    (result,) = differentiate([forward], [source], head=[x])
    if bias is None:
        return result
    return te.compute(result.shape, lambda *i: result[i] + bias[order.split(i)[1]], name=what)  # type: ignore[no-any-return]
