"""Rows of the table for layers; gradients of layers by differentiation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autodiff import differentiate
from tedsl.bridges.fx.rows.arrays import Row, fresh, single
from tedsl.lang import functions as fn
from tedsl.lang.axes import reduce_axis
from tedsl.lang.compute import compute
from tedsl.lang.expr import Expr
from tedsl.lang.reducers import argmax
from tedsl.lang.scatter import scatter
from tedsl.lang.tensor import Tensor
from tedsl.mutation.array import Array
from tedsl.ops.convolution import conv1d, conv2d, conv3d, conv_transpose1d, conv_transpose2d, conv_transpose3d
from tedsl.ops.pooling import adaptive_avg_pool2d, avg_pool2d

_CONVOLUTIONS = {1: conv1d, 2: conv2d, 3: conv3d}
_TRANSPOSES = {1: conv_transpose1d, 2: conv_transpose2d, 3: conv_transpose3d}


def _convolved(
    x: Tensor, w: Tensor, bias: Tensor | None, stride: Any, padding: Any, dilation: Any, transposed: bool,
    output_padding: Any, groups: int,
) -> Tensor:  # fmt: skip
    rank = w.ndim - 2
    stride, padding, dilation = (_per_axis(v, rank) for v in (stride, padding, dilation))
    if transposed:
        made = _TRANSPOSES[rank](x, w, bias, stride, padding, _per_axis(output_padding, rank), groups, dilation)
    else:
        made = _CONVOLUTIONS[rank](x, w, bias, stride, padding, dilation, groups)
    assert isinstance(made, Tensor)
    return made


def _per_axis(value: Any, rank: int) -> tuple[int, ...]:
    return tuple(value) * (rank if len(value) == 1 else 1)


def _convolution(
    x: Array, w: Array, bias: Any, stride: Any, padding: Any, dilation: Any, transposed: bool, output_padding: Any,
    groups: int,
) -> Array:  # fmt: skip
    own = None if bias is None else bias.value
    return fresh(_convolved(x.value, w.value, own, stride, padding, dilation, transposed, output_padding, groups))


def _independent(*arrays: Array) -> list[Tensor]:
    """Copies, none of which is computed from another: derivatives by them are partial ones."""
    return [_copy_of(array.value) for array in arrays]


def _copy_of(source: Tensor) -> Tensor:
    made: Tensor = compute(source.shape, lambda *place: source[place], name=f"{source.name}_copy")
    return made


def _convolution_backward(
    g: Array, x: Array, w: Array, stride: Any, padding: Any, dilation: Any, transposed: bool, output_padding: Any,
    groups: int, mask: Sequence[bool],
) -> list[Array | None]:  # fmt: skip
    own = _independent(x, w)
    made = _convolved(own[0], own[1], None, stride, padding, dilation, transposed, output_padding, groups)
    wanted = [t for t, is_wanted in zip(own, mask, strict=False) if is_wanted]
    found = iter(differentiate(made, wanted, g.value) if wanted else ())
    grads = [fresh(next(found)) if is_wanted else None for is_wanted in mask[:2]]
    bias = fresh(g.value.sum((0, *range(2, g.ndim)))) if mask[2] else None
    return [*grads, bias]


def _windows(
    shape: Sequence[int], kernel: Any, stride: Any, padding: Any, dilation: Any, ceil: bool
) -> list[tuple[int, int, int, int, int]]:
    """(results, taps, stride, padding, dilation) of the last two axes."""
    found = []
    for n, k, s, p, d in zip(
        shape[-2:], *(_per_axis(v, 2) for v in (kernel, stride or kernel, padding, dilation)), strict=True
    ):
        reach = n + 2 * p - d * (k - 1) - 1
        count = (-(-reach // s) if ceil else reach // s) + 1
        if ceil and (count - 1) * s >= n + p:
            count -= 1
        found.append((count, k, s, p, d))
    return found


def _max_pool(
    x: Array, kernel: Any, stride: Any = (), padding: Any = (0,), dilation: Any = (1,), ceil_mode: bool = False
) -> tuple[Array, Array]:
    """The greatest elements and their positions in the image."""
    *batch, height, width = x.shape
    (rows, kh, sh, ph, dh), (columns, kw, sw, pw, dw) = _windows(x.shape, kernel, stride, padding, dilation, ceil_mode)
    source, p, q = x.value, reduce_axis(kh, "p"), reduce_axis(kw, "q")

    def tap(place: Sequence[Expr]) -> tuple[Any, Any, Any]:
        i, j = place[-2] * sh - ph + p * dh, place[-1] * sw - pw + q * dw
        inside = (i >= 0) & (i < height) & (j >= 0) & (j < width)
        return i, j, inside

    def best(*place: Any) -> Any:
        i, j, inside = tap(place)
        at = (*place[:-2], i, j)
        return argmax(source[at], (p, q), inside)

    shape = (*batch, rows, columns)
    winner = compute(shape, best, name="winner")

    def position(*place: Any) -> Any:
        w = winner[place]
        i, j = place[-2] * sh - ph + (w // kw) * dh, place[-1] * sw - pw + (w % kw) * dw
        return i * width + j

    places = compute(shape, position, name="positions")
    flat = source.reshape((*batch, height * width))

    def value(*place: Any) -> Any:
        at = (*place[:-2], places[place])
        return flat[at]

    values = compute(shape, value, name="max_pool")
    return fresh(values), fresh(places.astype("int64"))


def _max_pool_backward(g: Array, x: Array, indices: Array) -> Array:
    *batch, height, width = x.shape
    axes = [reduce_axis(n, f"i{d}") for d, n in enumerate(g.shape)]
    place = indices.value[tuple(axes)]
    flat = scatter((*batch, height * width), axes, (*axes[:-2], place), g.value[tuple(axes)])
    return fresh(flat.reshape(tuple(x.shape)))


def _avg_pooled(
    x: Tensor, kernel: Any, stride: Any, padding: Any, ceil_mode: bool, include: bool, divisor: Any
) -> Tensor:
    pads = _per_axis(padding, 2)
    image = x if x.ndim == 4 else x.reshape((1, *x.shape))
    made = avg_pool2d(image, _per_axis(kernel, 2), _per_axis(stride or kernel, 2), pads, ceil_mode, include, divisor)
    assert isinstance(made, Tensor)
    return made if x.ndim == 4 else made.reshape(made.shape[1:])


def _avg_pool(
    x: Array, kernel: Any, stride: Any = (), padding: Any = (0,), ceil_mode: bool = False, include: bool = True,
    divisor: Any = None,
) -> Array:  # fmt: skip
    return fresh(_avg_pooled(x.value, kernel, stride, padding, ceil_mode, include, divisor))


def _avg_pool_backward(
    g: Array, x: Array, kernel: Any, stride: Any, padding: Any, ceil_mode: bool, include: bool, divisor: Any
) -> Array:
    (own,) = _independent(x)
    (grad,) = differentiate(_avg_pooled(own, kernel, stride, padding, ceil_mode, include, divisor), [own], g.value)
    return fresh(grad)


def _adaptively_pooled(x: Tensor, size: Any) -> Tensor:
    image = x if x.ndim == 4 else x.reshape((1, *x.shape))
    made = adaptive_avg_pool2d(image, tuple(size))
    assert isinstance(made, Tensor)
    return made if x.ndim == 4 else made.reshape(made.shape[1:])


def _adaptive(x: Array, size: Any) -> Array:
    return fresh(_adaptively_pooled(x.value, size))


def _adaptive_backward(g: Array, x: Array) -> Array:
    (own,) = _independent(x)
    (grad,) = differentiate(_adaptively_pooled(own, g.shape[-2:]), [own], g.value)
    return fresh(grad)


def _embedding_backward(g: Array, index: Array, count: int, padding: int, by_frequency: bool) -> Array:
    if by_frequency:
        raise NotImplementedError("embedding with scale_grad_by_freq")
    axes = [reduce_axis(n, f"i{d}") for d, n in enumerate(g.shape)]
    place = index.value[tuple(axes[:-1])]
    made = scatter((count, g.shape[-1]), axes, (place, axes[-1]), g.value[tuple(axes)], where=place != padding)
    return fresh(made)


def _padded(x: Array, pads: Sequence[int], value: Any = 0) -> Array:
    source = x.value
    margins = [(0, 0)] * (x.ndim - len(pads) // 2) + [(pads[k], pads[k + 1]) for k in range(len(pads) - 2, -1, -2)]
    shape = tuple(n + a + b for n, (a, b) in zip(x.shape, margins, strict=True))

    def element(*at: Any) -> Any:
        moved = [i - a for i, (a, _) in zip(at, margins, strict=True)]
        inside: Any = None
        for i, n in zip(moved, x.shape, strict=True):
            here = (i >= 0) & (i < n)
            inside = here if inside is None else inside & here
        return fn.select(inside, source[tuple(moved)], fn.convert(value, source.dtype))

    return fresh(compute(shape, element, name="padded"))


def _flipped(x: Array, dims: Sequence[int]) -> Tensor:
    gone = {d % x.ndim for d in dims}
    source = x.value

    def element(*place: Any) -> Any:
        return source[tuple(x.shape[d] - 1 - i if d in gone else i for d, i in enumerate(place))]

    made: Tensor = compute(tuple(x.shape), element, name="flip")
    return made


def _flip(x: Array, dims: Sequence[int]) -> Array:
    return fresh(x.value if not dims or not x.ndim else _flipped(x, dims))


def _embedding(weight: Array, index: Array) -> Array:
    source, place = weight.value, index.value

    def element(*at: Any) -> Any:
        return source[place[at[:-1]], at[-1]]

    return fresh(compute((*index.shape, *weight.shape[1:]), element, name="embedding"))


LAYERS: dict[str, Row] = {
    "convolution": single(_convolution), "convolution_backward": single(_convolution_backward),
    "max_pool2d_with_indices": _max_pool, "max_pool2d_with_indices_backward": single(_max_pool_backward),
    "avg_pool2d": single(_avg_pool), "avg_pool2d_backward": single(_avg_pool_backward),
    "_adaptive_avg_pool2d": single(_adaptive), "_adaptive_avg_pool2d_backward": single(_adaptive_backward),
    "embedding": _embedding, "embedding_dense_backward": single(_embedding_backward), "constant_pad_nd": _padded,
    "flip": _flip,
}  # fmt: skip
