"""Pools: the greatest element or the mean of windows, of fixed size or of a fixed number."""

from __future__ import annotations

import math
from typing import Any

from tedsl.lang.reducing import widened_float
from tedsl.ops import language as te
from tedsl.ops.arguments import are_numbers, exact, loops, per_axis, refuse, sizes_of
from tedsl.ops.op import op
from tedsl.ops.windows import ChannelLayout, layout_of, windows_of

__all__ = [
    "adaptive_avg_pool2d", "adaptive_max_pool2d", "avg_pool1d", "avg_pool2d", "avg_pool3d", "global_avg_pool2d",
    "max_pool1d", "max_pool2d", "max_pool3d",
]  # fmt: skip


@op
def max_pool1d(
    x: te.Tensor, kernel: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False,
    layout: str = "NCW",
) -> te.Tensor:  # fmt: skip
    """The greatest element of every window along the last axis. As torch.nn.functional.max_pool1d."""
    return _max_pool(1, "max_pool1d", x, kernel, stride, padding, dilation, ceil_mode, layout)


@op
def max_pool2d(
    x: te.Tensor, kernel: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False,
    layout: str = "NCHW",
) -> te.Tensor:  # fmt: skip
    """y[n, c, i, j] = max over p and q of x[n, c, i stride + p dilation - padding, j stride + q dilation - padding].

    x (n, c, h, w), or (n, h, w, c) with layout="NHWC"; the stride is the kernel unless given; padding never wins; the
    first of equal winners takes the gradient. As torch.nn.functional.max_pool2d.
    """
    return _max_pool(2, "max_pool2d", x, kernel, stride, padding, dilation, ceil_mode, layout)


@op
def max_pool3d(
    x: te.Tensor, kernel: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False,
    layout: str = "NCDHW",
) -> te.Tensor:  # fmt: skip
    """max_pool2d in three dimensions. As torch.nn.functional.max_pool3d."""
    return _max_pool(3, "max_pool3d", x, kernel, stride, padding, dilation, ceil_mode, layout)


def _max_pool(
    rank: int, what: str, x: te.Tensor, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil: bool, layout: Any
) -> te.Tensor:
    order = layout_of(x, layout, rank, what)
    batch, channels, sizes = order.split(x.shape)
    shape, pads = per_axis(kernel, rank, what, "kernel"), per_axis(padding, rank, what, "padding", least=0)
    _check_margins(pads, shape, what)
    windows = windows_of(sizes, shape, shape if stride is None else stride, pads, dilation, what, ceil)
    taps = loops(*shape)

    def element(*index: Any) -> Any:
        n, c, place = order.split(index)
        at = windows.at(place, taps)
        return te.max(x[order.join(n, c, at)], axis=taps, where=windows.inside(at))

    return te.compute(order.join(batch, channels, windows.shape), element, name=what)  # type: ignore[no-any-return]


def _check_margins(pads: tuple[int, ...], kernel: tuple[int, ...], what: str) -> None:
    if any(2 * p > k for p, k in zip(pads, kernel, strict=True)):
        raise refuse(what, f"padding: expected at most half the kernel {kernel}, found {pads}")


@op
def avg_pool1d(
    x: te.Tensor, kernel: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, layout: str = "NCW",
) -> te.Tensor:  # fmt: skip
    """The mean of every window along the last axis. As torch.nn.functional.avg_pool1d."""
    return _avg_pool(1, "avg_pool1d", x, kernel, stride, padding, ceil_mode, count_include_pad, None, layout)


@op
def avg_pool2d(
    x: te.Tensor, kernel: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: int | None = None, layout: str = "NCHW",
) -> te.Tensor:  # fmt: skip
    """y[n, c, i, j] = the mean of x[n, c, i stride + p - padding, j stride + q - padding] over p and q.

    The padding counts as zeros, or not at all with count_include_pad=False. As torch.nn.functional.avg_pool2d.
    """
    return _avg_pool(
        2, "avg_pool2d", x, kernel, stride, padding, ceil_mode, count_include_pad, divisor_override, layout
    )


@op
def avg_pool3d(
    x: te.Tensor, kernel: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: int | None = None, layout: str = "NCDHW",
) -> te.Tensor:  # fmt: skip
    """avg_pool2d in three dimensions. As torch.nn.functional.avg_pool3d."""
    return _avg_pool(
        3, "avg_pool3d", x, kernel, stride, padding, ceil_mode, count_include_pad, divisor_override, layout
    )


def _avg_pool(
    rank: int, what: str, x: te.Tensor, kernel: Any, stride: Any, padding: Any, ceil: bool, include: bool,
    divisor: int | None, layout: Any,
) -> te.Tensor:  # fmt: skip
    order = layout_of(x, layout, rank, what)
    batch, channels, sizes = order.split(x.shape)
    shape, pads = per_axis(kernel, rank, what, "kernel"), per_axis(padding, rank, what, "padding", least=0)
    _check_margins(pads, shape, what)
    if divisor is not None and (isinstance(divisor, bool) or not isinstance(divisor, int) or divisor == 0):
        raise refuse(what, f"divisor_override: expected an integer other than 0, found {divisor!r}")
    windows = windows_of(sizes, shape, shape if stride is None else stride, pads, 1, what, ceil)
    taps = loops(*shape)

    def element(*index: Any) -> Any:
        n, c, place = order.split(index)
        at = windows.at(place, taps)
        total = te.sum(x[order.join(n, c, at)], axis=taps, where=windows.inside(at), dtype=widened_float(x.dtype))
        return _mean(total, divisor or _count(windows, place, include, total.dtype), x)

    return te.compute(order.join(batch, channels, windows.shape), element, name=what)  # type: ignore[no-any-return]


def _mean(total: Any, count: Any, x: te.Tensor) -> Any:
    """A mean of elements of x, in its dtype if it has floats."""
    mean = total / count
    return te.cast(mean, x.dtype) if x.dtype.is_float else mean


def _count(windows: Any, place: tuple[Any, ...], include: bool, dtype: Any) -> Any:
    """How many elements of a window count: those inside, and with `include` those of the margin."""
    count: Any = 1
    for i, k, s, b, n, m in zip(
        place, windows.kernel, windows.stride, windows.before, windows.sizes, windows.shape, strict=True
    ):
        margin = b if include else 0
        hangs = (m - 1) * s + k - b > n + margin if are_numbers(n) else windows.hangs
        if not hangs and (include or not b):
            count = count * k
            continue
        begin = i * s - b
        count = count * (te.minimum(begin + k, n + margin) - te.maximum(begin, -margin))
    return te.cast(count, dtype) if isinstance(count, te.Expr) else count


@op
def global_avg_pool2d(x: te.Tensor, layout: str = "NCHW") -> te.Tensor:
    """y[n, c] = the mean of x[n, c, i, j] over all i and j."""
    return te.mean(x, (1, 2) if layout_of(x, layout, 2, "global_avg_pool2d").channels_last else (2, 3))


@op
def adaptive_avg_pool2d(x: te.Tensor, size: Any, layout: str = "NCHW") -> te.Tensor:
    """The mean of each of size[0] x size[1] windows that cover the image.

    Window i of s holds the rows from floor(i h / s) up to, not including, ceil((i + 1) h / s), columns likewise.
    As torch.nn.functional.adaptive_avg_pool2d.
    """
    order = layout_of(x, layout, 2, "adaptive_avg_pool2d")
    return adaptive("adaptive_avg_pool2d", x, sizes_of(size, 2, "adaptive_avg_pool2d", "size"), order, mean=True)


@op
def adaptive_max_pool2d(x: te.Tensor, size: Any, layout: str = "NCHW") -> te.Tensor:
    """The greatest elements of the windows of adaptive_avg_pool2d. As torch.nn.functional.adaptive_max_pool2d."""
    order = layout_of(x, layout, 2, "adaptive_max_pool2d")
    return adaptive("adaptive_max_pool2d", x, sizes_of(size, 2, "adaptive_max_pool2d", "size"), order, mean=False)


def adaptive(what: str, x: te.Tensor, wanted: tuple[Any, ...], order: ChannelLayout, mean: bool) -> te.Tensor:
    """The means, or the greatest, of as many windows as wanted that cover each axis."""
    batch, channels, sizes = order.split(x.shape)
    taps = loops(*map(_widest, sizes, wanted))

    def element(*index: Any) -> Any:
        b, c, place = order.split(index)
        begins = [exact(i, n, s) // s for i, n, s in zip(place, sizes, wanted, strict=True)]
        ends = [exact(i + 1, n, s, s - 1) // s for i, n, s in zip(place, sizes, wanted, strict=True)]
        widths = [end - begin for begin, end in zip(begins, ends, strict=True)]
        inside = None
        for tap, width, n, s in zip(taps, widths, sizes, wanted, strict=True):
            if not are_numbers(n, s) or n % s:
                inside = tap < width if inside is None else inside & (tap < width)
        at = [begin + tap for begin, tap in zip(begins, taps, strict=True)]
        value = x.at(*order.join(b, c, at), mode="error" if are_numbers(*sizes, *wanted) else "clamp")
        if not mean:
            return te.max(value, axis=taps, where=inside)
        total = te.sum(value, axis=taps, where=inside, dtype=widened_float(x.dtype))
        return _mean(total, te.cast(math.prod(widths), total.dtype), x)

    return te.compute(order.join(batch, channels, wanted), element, name=what)  # type: ignore[no-any-return]


def _widest(size: Any, count: Any) -> Any:
    """The widest of `count` windows that cover `size` elements, or what none is wider than."""
    if not are_numbers(size, count):
        return -(-size // count) + 1
    return max(-(-(i + 1) * size // count) - i * size // count for i in range(count))
