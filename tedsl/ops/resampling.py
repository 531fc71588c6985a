"""More or fewer elements along the axes of an image: interpolation, margins, elements moved between space and channels.

Where a sample lies is integer arithmetic of indices, so that every gradient is a gather.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from tedsl.lang.borders import BORDERS, border_of
from tedsl.lang.reducing import widened_float
from tedsl.ops import language as te
from tedsl.ops.arguments import (
    are_numbers,
    check_float,
    check_rank,
    exact,
    loops,
    one_of,
    per_axis,
    refuse,
    replaced,
    sizes_of,
)
from tedsl.ops.op import op
from tedsl.ops.pooling import adaptive
from tedsl.ops.windows import layout_of, windows_of

__all__ = ["channel_shuffle", "fold", "interpolate", "pad", "pixel_shuffle", "pixel_unshuffle", "unfold"]

_RANKS = {"linear": 1, "bilinear": 2, "trilinear": 3, "bicubic": 2}


@op
def interpolate(
    x: te.Tensor, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: bool = False,
    layout: str | None = None,
) -> te.Tensor:  # fmt: skip
    """x (n, c, ...) resampled to `size`, or to scale_factor times its own, by "nearest", "area", "linear", ...

    Elements are squares, so sample i lies at (i + 1/2) old / new - 1/2, or (i + 1/2) / scale_factor - 1/2; with
    align_corners at i (old - 1) / (new - 1). Modes linear, bilinear, trilinear and bicubic (a = -3/4) for 1, 2, 3 and 2
    dimensions, one axis after the other; "area" has the means of adaptive_avg_pool2d. As
    torch.nn.functional.interpolate without antialias: blur before, or take "area".
    """
    one_of(mode, ("nearest", "area", *_RANKS), "interpolate", "mode")
    if x.ndim not in (3, 4, 5) or _RANKS.get(mode, x.ndim - 2) != x.ndim - 2:
        expected = f"{_RANKS[mode] + 2} dimensions for mode={mode!r}" if mode in _RANKS else "3 to 5 dimensions"
        raise refuse("interpolate", f"x: expected {expected}, found {x!r}")
    if align_corners and mode in ("nearest", "area"):
        raise refuse("interpolate", f"align_corners: expected False with mode={mode!r}, found True")
    order = layout_of(x, layout, x.ndim - 2, "interpolate")
    sizes = order.split(x.shape)[2]
    wanted, ratios = _sizes(sizes, size, scale_factor)
    if mode == "area":
        check_float(x, "interpolate", "x")
        return adaptive("interpolate", x, wanted, order, mean=True)
    first = 1 if order.channels_last else 2
    if mode == "nearest":
        shape = order.join(x.shape[0], order.split(x.shape)[1], wanted)
        is_inside = all(
            are_numbers(n, m, *ratio) and (m - 1) * ratio[0] // ratio[1] < n
            for n, m, ratio in zip(sizes, wanted, ratios, strict=True)
        )
        edge = "error" if is_inside or all(map(_is_multiple, ratios)) else "clamp"

        def element(*i: Any) -> Any:
            n, c, place = order.split(i)
            at = [exact(p, old, m) // new for p, (old, new), m in zip(place, ratios, wanted, strict=True)]
            return x.at(*order.join(n, c, at), mode=edge)

        return te.compute(shape, element, name="interpolate")  # type: ignore[no-any-return]
    check_float(x, "interpolate", "x")
    for d, (count, ratio) in enumerate(zip(wanted, ratios, strict=True)):
        x = _along(x, first + d, count, ratio, mode == "bicubic", align_corners)
    return x


def _sizes(sizes: Sequence[Any], size: Any, scale: Any) -> tuple[tuple[Any, ...], list[tuple[Any, Any]]]:
    """The new sizes, and the old and the new size of each axis without what divides both."""
    if (size is None) == (scale is None):
        raise refuse("interpolate", f"expected either size or scale_factor, found {size!r} and {scale!r}")
    if scale is not None:
        scaled = [_scaled(n, s) for n, s in zip(sizes, _scales(scale, len(sizes)), strict=True)]
        return tuple(n for n, _ in scaled), [ratio for _, ratio in scaled]
    wanted = sizes_of(size, len(sizes), "interpolate", "size")
    pairs = zip(sizes, wanted, strict=True)
    return wanted, [Fraction(n, w).as_integer_ratio() if are_numbers(n, w) else (n, w) for n, w in pairs]


def _scales(given: Any, count: int) -> tuple[int | float, ...]:
    """A positive number for each axis; whole ones as integers."""
    several = tuple(given) if isinstance(given, Sequence) else (given,) * count
    whole = [int(s) if isinstance(s, float) and s.is_integer() else s for s in several]
    if not any(isinstance(s, float) for s in whole):
        return per_axis(tuple(whole), count, "interpolate", "scale_factor")
    if len(whole) != count or not all(isinstance(s, (int, float)) and 0 < s < math.inf for s in whole):
        raise refuse("interpolate", f"scale_factor: expected a positive number or {count} of them, found {given!r}")
    return tuple(whole)


def _scaled(n: Any, scale: int | float) -> tuple[Any, tuple[int, int]]:
    """The new size of an axis, and the old and the new size of its elements as integers."""
    if isinstance(scale, int):
        return n * scale, (1, scale)
    if not are_numbers(n):
        raise refuse("interpolate", f"scale_factor: {scale} is no integer, for which sizes are numbers; found {n}")
    new = math.floor(float(n) * scale)
    if n and not new:
        raise refuse("interpolate", f"scale_factor: nothing is left of {n} elements times {scale}")
    return new, _simplest(scale).as_integer_ratio()[::-1]


def _simplest(scale: float) -> Fraction:
    """The fraction of the smallest denominator that is a number in float32."""
    most, exact_one = 1, Fraction(scale)
    while abs((found := exact_one.limit_denominator(most)) - exact_one) * 2**24 > exact_one:
        most *= 2
    return found


def _is_multiple(ratio: tuple[Any, Any]) -> bool:
    return are_numbers(*ratio) and ratio[0] == 1


def _along(x: te.Tensor, dim: int, count: Any, ratio: tuple[Any, Any], cubic: bool, corners: bool) -> te.Tensor:
    """x interpolated along one axis: a weighted sum of 2 or 4 taps."""
    if corners:
        step, shift = x.shape[dim] - 1, 0
        bottom = max(1, count - 1) if are_numbers(count) else te.maximum(1, count - 1)
    else:  # (2i + 1) old / (2 new) - 1 / 2 over a common denominator
        old, new = ratio
        step, bottom, shift = 2 * old, 2 * new, old - new
    wide = widened_float(x.dtype)
    whole = float(bottom) if are_numbers(bottom) else te.cast(bottom, wide)

    def element(*i: Any) -> Any:
        at = exact(i[dim], step, count, shift)
        low, t = at // bottom, te.cast(at % bottom, wide) / whole
        weights = _cubic(t) if cubic else [1.0 - t, t]
        taps = [(low + k - (1 if cubic else 0), w) for k, w in enumerate(weights)]
        total: Any = None
        for place, weight in taps:
            value = te.cast(x.at(*i[:dim], place, *i[dim + 1 :], mode="clamp"), wide) * weight
            total = value if total is None else total + value
        return te.cast(total, x.dtype)

    return te.compute((*x.shape[:dim], count, *x.shape[dim + 1 :]), element, name="interpolate")  # type: ignore[no-any-return]


def _cubic(t: Any) -> list[Any]:
    """The weights of the taps at -1, 0, 1 and 2 by Keys' kernel with a = -3/4."""
    a = -0.75

    def near(d: Any) -> Any:
        return ((a + 2.0) * d - (a + 3.0)) * d * d + 1.0

    def far(d: Any) -> Any:
        return ((a * d - 5.0 * a) * d + 8.0 * a) * d - 4.0 * a

    return [far(t + 1.0), near(t), near(1.0 - t), far(2.0 - t)]


@op
def pad(x: te.Tensor, padding: Any, mode: str = "constant", value: float = 0.0) -> te.Tensor:
    """x with margins: padding is (before, after) of the last axis, then of the last but one, ...

    mode: "constant" (of `value`), "zero", "clamp" ("replicate"), "reflect", "wrap" ("circular"). As
    torch.nn.functional.pad.
    """
    border = border_of(mode, "te.ops.pad", allowed=("constant", *BORDERS))
    widths = tuple(padding) if isinstance(padding, Sequence) else (padding,)
    if len(widths) % 2 or len(widths) > 2 * x.ndim:
        raise refuse("pad", f"padding: expected pairs for at most {x.ndim} axes, found {padding!r}")
    pairs = [(0, 0)] * (x.ndim - len(widths) // 2)
    pairs += [(widths[k], widths[k + 1]) for k in range(len(widths) - 2, -1, -2)]
    return te.pad(x, pairs, border, value)


def _factor(factor: Any, what: str, name: str) -> int:
    return per_axis(factor, 1, what, name)[0]


@op
def pixel_shuffle(x: te.Tensor, upscale_factor: int) -> te.Tensor:
    """y[n, c, i, j] = x[n, (c r + i % r) r + j % r, i // r, j // r]. As torch.nn.functional.pixel_shuffle."""
    check_rank(x, 4, "pixel_shuffle", "x", "(n, channels, h, w)")
    r = _factor(upscale_factor, "pixel_shuffle", "upscale_factor")
    n, c, h, w = x.shape
    if isinstance(c, int) and c % (r * r):
        raise refuse("pixel_shuffle", f"x: expected channels that {r}^2 divides, found {c}: {x!r}")
    return te.compute(  # type: ignore[no-any-return]
        (n, c // (r * r), h * r, w * r),
        lambda b, o, i, j: x[b, (o * r + i % r) * r + j % r, i // r, j // r],
        name="pixel_shuffle",
    )


@op
def pixel_unshuffle(x: te.Tensor, downscale_factor: int) -> te.Tensor:
    """y[n, (c r + p) r + q, i, j] = x[n, c, i r + p, j r + q]. As torch.nn.functional.pixel_unshuffle."""
    check_rank(x, 4, "pixel_unshuffle", "x", "(n, channels, h, w)")
    r = _factor(downscale_factor, "pixel_unshuffle", "downscale_factor")
    n, c, h, w = x.shape
    if any(isinstance(v, int) and v % r for v in (h, w)):
        raise refuse("pixel_unshuffle", f"x: expected a height and width that {r} divides, found {x!r}")
    return te.compute(  # type: ignore[no-any-return]
        (n, c * r * r, h // r, w // r),
        lambda b, o, i, j: x[b, o // (r * r), i * r + o // r % r, j * r + o % r],
        name="pixel_unshuffle",
    )


@op
def channel_shuffle(x: te.Tensor, groups: int) -> te.Tensor:
    """The channels of x (n, c, ...) dealt out: y[n, k groups + g] = x[n, g (c / groups) + k].

    As torch.nn.functional.channel_shuffle.
    """
    g = _factor(groups, "channel_shuffle", "groups")
    if x.ndim < 2 or (isinstance(x.shape[1], int) and x.shape[1] % g):
        raise refuse("channel_shuffle", f"x: expected (n, channels, ...) with channels that {g} divides, found {x!r}")
    width = x.shape[1] // g
    dealt = lambda *i: x[replaced(i, 1, i[1] % g * width + i[1] // g)]  # noqa: E731
    return te.compute(x.shape, dealt, name="channel_shuffle")  # type: ignore[no-any-return]


@op
def unfold(x: te.Tensor, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> te.Tensor:
    """The windows of x (n, c, h, w) as columns: (n, c kh kw, number of windows). As torch.nn.functional.unfold."""
    check_rank(x, 4, "unfold", "x", "(n, channels, h, w)")
    kernel = per_axis(kernel_size, 2, "unfold", "kernel_size")
    windows = windows_of(x.shape[2:], kernel, stride, padding, dilation, "unfold")
    (kh, kw), (rows, columns) = kernel, windows.shape
    edge = "error" if not any(windows.before) else "zero"

    def element(n: Any, t: Any, place: Any) -> Any:
        at = windows.at((place // columns, place % columns), (t // kw % kh, t % kw))
        return x.at(n, t // (kh * kw), *at, mode=edge)

    return te.compute((x.shape[0], x.shape[1] * kh * kw, rows * columns), element, name="unfold")  # type: ignore[no-any-return]


@op
def fold(
    x: te.Tensor, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
) -> te.Tensor:
    """The adjoint of unfold: columns added where their windows lie. As torch.nn.functional.fold."""
    check_rank(x, 3, "fold", "x", "(n, channels * taps, windows)")
    sizes, kernel = per_axis(output_size, 2, "fold", "output_size"), per_axis(kernel_size, 2, "fold", "kernel_size")
    windows = windows_of(sizes, kernel, stride, padding, dilation, "fold")
    taps, count = kernel[0] * kernel[1], windows.shape[0] * windows.shape[1]
    if isinstance(x.shape[1], int) and x.shape[1] % taps:
        raise refuse("fold", f"x: expected a second extent that the {taps} taps divide, found {x!r}")
    if x.shape[2] != count:
        raise refuse("fold", f"x: expected {count} windows {windows.shape}, found {x!r}")
    batch, channels = x.shape[0], x.shape[1] // taps
    n, c, p, q, i, j = loops(batch, channels, *kernel, *windows.shape)
    at = windows.at((i, j), (p, q))
    value = x[n, (c * kernel[0] + p) * kernel[1] + q, i * windows.shape[1] + j]
    shape = (batch, channels, *sizes)
    return te.scatter(shape, [n, c, p, q, i, j], (n, c, *at), value, where=windows.inside(at), name="fold")
