"""Convolutions: every stride, dilation and kernel, padded or not; grouped, depthwise, transposed; one and three dimensions."""

from __future__ import annotations

import itertools
from typing import Any

import tedsl as te
from tests.autodiff.catalogue.entry import Entry, loops, tensor

__all__ = ["ENTRIES"]


def conv2d(stride: int, dilation: int, kernel: int, padding: int, batch: int = 1) -> Any:
    reach = dilation * (kernel - 1)

    def build(n: int) -> Any:
        # One row and one column more than the windows need, so that strides do not divide.
        height, width = 7 * n + reach, 6 * n + 1 + reach
        x, w = tensor("x", batch, 2, height, width), tensor("w", 3, 2, kernel, kernel)
        c, p, q = loops(2, kernel, kernel)
        rows, columns = ((size + 2 * padding - reach - 1) // stride + 1 for size in (height, width))
        mode = "zero" if padding else "error"

        def body(b: Any, o: Any, i: Any, j: Any) -> Any:
            y, z = i * stride + p * dilation - padding, j * stride + q * dilation - padding
            return te.sum(x.at(b, c, y, z, mode=mode) * w[o, c, p, q], axis=(c, p, q))

        return te.compute((batch, 3, rows, columns), body, name="Y"), [x, w]

    return build


def torch_conv(**options: Any) -> Any:
    def oracle(x: Any, w: Any) -> Any:
        from torch.nn import functional

        return getattr(functional, f"conv{w.ndim - 2}d")(x, w, **options)

    return oracle


def jax_conv(stride: int = 1, dilation: int = 1, padding: int = 0, groups: int = 1, lhs: int = 1) -> Any:
    def oracle(x: Any, w: Any) -> Any:
        from jax import lax

        rank = w.ndim - 2
        return lax.conv_general_dilated(
            x,
            w,
            [stride] * rank,
            [(padding, padding)] * rank,
            [lhs] * rank,
            [dilation] * rank,
            feature_group_count=groups,
        )

    return oracle


def grid_entry(stride: int, dilation: int, kernel: int, padding: int) -> Entry:
    return Entry(
        f"conv2d s{stride} d{dilation} k{kernel}" + (f" p{padding}" if padding else ""),
        conv2d(stride, dilation, kernel, padding),
        torch=torch_conv(stride=stride, dilation=dilation, padding=padding),
        jax=jax_conv(stride, dilation, padding),
        grid=True,
    )


def _grid() -> list[Entry]:
    found = []
    for s, d, k in itertools.product((1, 2, 3), (1, 2, 3), (1, 2, 3, 4, 5)):
        found += [grid_entry(s, d, k, 0), grid_entry(s, d, k, max(1, d * (k - 1) // 2))]
    return found


def grouped(n: int) -> Any:
    x, w = tensor("x", 1, 6, 6 * n + 2, 5 * n + 2), tensor("w", 4, 3, 3, 3)
    c, p, q = loops(3, 3, 3)
    body = lambda b, o, i, j: te.sum(x[b, o // 2 * 3 + c, i + p, j + q] * w[o, c, p, q], axis=(c, p, q))  # noqa: E731
    return te.compute((1, 4, 6 * n, 5 * n), body, name="Y"), [x, w]


def depthwise(multiplier: int) -> Any:
    def build(n: int) -> Any:
        x, w = tensor("x", 1, 3, 6 * n + 2, 5 * n + 2), tensor("w", 3 * multiplier, 1, 3, 3)
        p, q = loops(3, 3)
        body = lambda b, o, i, j: te.sum(x[b, o // multiplier, i + p, j + q] * w[o, 0, p, q], axis=(p, q))  # noqa: E731
        return te.compute((1, 3 * multiplier, 6 * n, 5 * n), body, name="Y"), [x, w]

    return build


def transposed_by_scatter(stride: int) -> Any:
    def build(n: int) -> Any:
        rows, columns = 3 * n, 4 * n
        x, w = tensor("x", 2, rows, columns), tensor("w", 2, 3, 3, 3)
        c, o, i, j, p, q = loops(2, 3, rows, columns, 3, 3)
        shape = (3, (rows - 1) * stride + 3, (columns - 1) * stride + 3)
        index = (o, i * stride + p, j * stride + q)
        return te.scatter(shape, [c, o, i, j, p, q], index, x[c, i, j] * w[c, o, p, q], name="Y"), [x, w]

    return build


def transposed_by_condition(stride: int) -> Any:
    """Each output asks which inputs reach it; most taps of a stride do not."""

    def build(n: int) -> Any:
        rows, columns = 3 * n, 4 * n
        x, w = tensor("x", 2, rows, columns), tensor("w", 2, 3, 3, 3)
        c, p, q = loops(2, 3, 3)

        def body(o: Any, y: Any, z: Any) -> Any:
            u, v = y - p, z - q
            reached = (u % stride == 0) & (v % stride == 0)
            inside = (u >= 0) & (u // stride < rows) & (v >= 0) & (v // stride < columns)
            return te.sum(x[c, u // stride, v // stride] * w[c, o, p, q], axis=(c, p, q), where=reached & inside)

        return te.compute((3, (rows - 1) * stride + 3, (columns - 1) * stride + 3), body, name="Y"), [x, w]

    return build


def torch_transposed(stride: int) -> Any:
    def oracle(x: Any, w: Any) -> Any:
        from torch.nn import functional

        return functional.conv_transpose2d(x[None], w, stride=stride)[0]

    return oracle


def jax_transposed(stride: int) -> Any:
    def oracle(x: Any, w: Any) -> Any:
        flipped = w.swapaxes(0, 1)[:, :, ::-1, ::-1]
        return jax_conv(padding=2, lhs=stride)(x[None], flipped)[0]

    return oracle


def conv1d(n: int) -> Any:
    x, w = tensor("x", 2, 3, 20 * n + 4), tensor("w", 4, 3, 5)
    c, p = loops(3, 5)
    return te.compute((2, 4, 20 * n), lambda b, o, i: te.sum(x[b, c, i + p] * w[o, c, p], axis=(c, p)), name="Y"), [
        x,
        w,
    ]


def conv3d(n: int) -> Any:
    x, w = tensor("x", 1, 2, 4 * n + 2, 3 * n + 2, 4 * n + 2), tensor("w", 2, 2, 3, 3, 3)
    c, p, q, r = loops(2, 3, 3, 3)

    def body(b: Any, o: Any, i: Any, j: Any, k: Any) -> Any:
        return te.sum(x[b, c, i + p, j + q, k + r] * w[o, c, p, q, r], axis=(c, p, q, r))

    return te.compute((1, 2, 4 * n, 3 * n, 4 * n), body, name="Y"), [x, w]


ENTRIES = [
    *_grid(),
    Entry("conv2d batch 2", conv2d(1, 1, 3, 1, batch=2), torch_conv(padding=1), jax_conv(padding=1)),
    Entry("conv2d grouped", grouped, torch_conv(groups=2), jax_conv(groups=2)),
    Entry("conv2d depthwise", depthwise(1), torch_conv(groups=3), jax_conv(groups=3)),
    Entry("conv2d depthwise x2", depthwise(2), torch_conv(groups=3), jax_conv(groups=3)),
    *(
        Entry(f"conv2d transposed s{s}, scatter", transposed_by_scatter(s), torch_transposed(s), jax_transposed(s))
        for s in (1, 2, 3)
    ),
    *(
        Entry(f"conv2d transposed s{s}, where", transposed_by_condition(s), torch_transposed(s), jax_transposed(s))
        for s in (1, 2, 3)
    ),
    Entry("conv1d", conv1d, torch_conv(), jax_conv()),
    Entry("conv3d", conv3d, torch_conv(), jax_conv()),
]
