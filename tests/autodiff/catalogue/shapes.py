"""Movements: reshape both ways, transposes, joins, slices, padding, upsampling, affine and non-bijective index maps."""

from __future__ import annotations

from typing import Any

import tedsl as te
from tests.autodiff.catalogue.entry import Entry, both, loops, tensor

__all__ = ["ENTRIES"]


def moved(name: str, shape: Any, function: Any, oracle: Any) -> Entry:
    """An operation on one tensor of shape `shape(n)`."""

    def build(n: int) -> Any:
        x = tensor("x", *shape(n))
        return function(x), [x]

    return Entry(name, build, **both(oracle))


def mapped(name: str, shape: Any, result: Any, index: Any, oracle: Any) -> Entry:
    """y[ix] = x[index(n, *ix)] with a nonlinear function around, so that second derivatives do not vanish."""

    def build(n: int) -> Any:
        x = tensor("x", *shape(n))
        return te.compute(result(n), lambda *ix: te.tanh(x[index(n, *ix)]), name="Y"), [x]

    return Entry(name, build, **both(lambda xp, x: xp.tanh(oracle(xp, x))))


def pair(name: str, shapes: Any, function: Any, oracle: Any) -> Entry:
    def build(n: int) -> Any:
        x, y = (tensor(label, *shape) for label, shape in zip("xy", shapes(n), strict=True))
        return function(x, y), [x, y]

    return Entry(name, build, **both(oracle))


def windows(n: int) -> Any:
    x = tensor("x", 6 * n + 2)
    return te.compute((6 * n, 3), lambda i, j: x[i + j], name="Y"), [x]


def sum_and_difference(n: int) -> Any:
    """f(x + y, x - y): of each parity of the target only half is reached."""
    size = 6 * n
    x = tensor("x", 2 * size - 1, 2 * size - 1)
    return te.compute((size, size), lambda i, j: te.tanh(x[i + j, i - j + (size - 1)]), name="Y"), [x]


def sum_and_difference_oracle(xp: Any, x: Any) -> Any:
    size = (x.shape[0] + 1) // 2
    i, j = xp.arange(size)[:, None], xp.arange(size)[None, :]
    return xp.tanh(x[i + j, i - j + (size - 1)])


def bilinear(n: int) -> Any:
    """Upsampling by 2, corners not aligned."""
    x = tensor("x", 4 * n, 5 * n)

    def along(i: Any) -> Any:
        low = (i - 1) // 2
        weight = te.select(i % 2 == 0, te.const(0.25, "float64"), te.const(0.75, "float64"))
        return (low, weight), (low + 1, 1.0 - weight)

    def body(i: Any, j: Any) -> Any:
        return sum(x.at(y, z, mode="clamp") * v * w for y, v in along(i) for z, w in along(j))

    return te.compute((8 * n, 10 * n), body, name="Y"), [x]


def bilinear_oracle(x: Any) -> Any:
    from torch.nn import functional

    return functional.interpolate(x[None, None], scale_factor=2, mode="bilinear", align_corners=False)[0, 0]


def bilinear_jax(x: Any) -> Any:
    import jax

    return jax.image.resize(x, (2 * x.shape[0], 2 * x.shape[1]), "bilinear")


def separable_bilinear(n: int) -> Any:
    """The same in two passes, each of 2 taps."""
    x = tensor("x", 4 * n, 5 * n)

    def pair_of(i: Any) -> Any:
        low = (i - 1) // 2
        weight = te.select(i % 2 == 0, te.const(0.25, "float64"), te.const(0.75, "float64"))
        return low, weight

    def rows(i: Any, j: Any) -> Any:
        low, w = pair_of(i)
        return w * x.at(low, j, mode="clamp") + (1.0 - w) * x.at(low + 1, j, mode="clamp")

    first = te.compute((8 * n, 5 * n), rows, name="R")

    def columns(i: Any, j: Any) -> Any:
        low, w = pair_of(j)
        return w * first.at(i, low, mode="clamp") + (1.0 - w) * first.at(i, low + 1, mode="clamp")

    return te.compute((8 * n, 10 * n), columns, name="Y"), [x]


def torch_pad(mode: str) -> Any:
    def oracle(x: Any) -> Any:
        from torch.nn import functional

        return functional.pad(x[None], (2, 1, 1, 2), mode={"edge": "replicate", "wrap": "circular"}.get(mode, mode))[0]

    return oracle


def jax_pad(mode: str) -> Any:
    def oracle(x: Any) -> Any:
        import jax.numpy as jnp

        return jnp.pad(x, ((1, 2), (2, 1)), mode=mode)

    return oracle


def padded(mode: str) -> Entry:
    def build(n: int) -> Any:
        x = tensor("x", 5 * n, 4 * n)
        return te.pad(x, ((1, 2), (2, 1)), mode=mode), [x]

    return Entry(f"pad {mode}", build, torch_pad(mode), jax_pad(mode))


def joined(n: int) -> Any:
    parts = [tensor("x", 3 * n, 4 * n), tensor("y", 2 * n, 4 * n), tensor("z", n, 4 * n)]
    return te.concatenate(parts, 0), parts


def cut(n: int) -> Any:
    x = tensor("x", 6 * n, 4 * n)
    return te.split(x, 3, 0), [x]


def space_to_depth(n: int) -> Any:
    x = tensor("x", 2, 6 * n, 4 * n)
    body = lambda c, i, j: x[c // 4, 2 * i + c // 2 % 2, 2 * j + c % 2]  # noqa: E731
    return te.compute((8, 3 * n, 2 * n), body, name="Y"), [x]


def space_to_depth_oracle(x: Any) -> Any:
    from torch.nn import functional

    return functional.pixel_unshuffle(x[None], 2)[0]


def windows_oracle(xp: Any, x: Any) -> Any:
    size = x.shape[0] - 2
    return xp.stack([x[j : j + size] for j in range(3)], -1)


def broadcast_add(n: int) -> Any:
    x, b = tensor("x", 3, 4 * n, 5 * n), tensor("b", 3, 1, 1)
    return te.tanh(x + b), [x, b]


def pooled_by_reshape(n: int) -> Any:
    """Sums of blocks: reads by a flat index of rows that blocks straddle."""
    x = tensor("x", 4 * n, 6)
    (k,) = loops(4)
    return te.compute((6 * n,), lambda i: te.sum(x[(4 * i + k) // 6, (4 * i + k) % 6], axis=k), name="Y"), [x]


ENTRIES = [
    moved("flatten", lambda n: (4 * n, 6), lambda x: x.reshape(-1), lambda xp, x: x.reshape(-1)),
    moved("unflatten", lambda n: (24 * n,), lambda x: x.reshape(-1, 6), lambda xp, x: x.reshape(-1, 6)),
    moved("reshape across", lambda n: (4 * n, 6), lambda x: x.reshape(-1, 8), lambda xp, x: x.reshape(-1, 8)),
    moved("reshape 3d to 2d", lambda n: (2, 3 * n, 4), lambda x: x.reshape(6, -1), lambda xp, x: x.reshape(6, -1)),
    mapped("flatten a part", lambda n: (4 * n, 6), lambda n: (24 * n - 7,), lambda n, i: (i // 6, i % 6),
           lambda xp, x: x.reshape(-1)[:-7]),
    mapped("transposed flatten", lambda n: (5, 4 * n), lambda n: (20 * n,), lambda n, i: (i % 5, i // 5),
           lambda xp, x: x.T.reshape(-1)),
    mapped("flat windows", lambda n: (20 * n,), lambda n: (5 * n - 1, 8), lambda n, i, j: 4 * i + j,
           lambda xp, x: xp.stack([x[j : j + x.shape[0] - 7 : 4] for j in range(8)], -1)),
    Entry("blocks across rows", pooled_by_reshape, **both(lambda xp, x: x.reshape(-1, 4).sum(1))),
    moved("transpose", lambda n: (3 * n, 4 * n), lambda x: x.T, lambda xp, x: x.T),
    moved("transpose 3d", lambda n: (3 * n, 4, 2 * n), lambda x: x.transpose(2, 0, 1), lambda xp, x: xp.moveaxis(x, 2, 0)),
    Entry("concatenate", joined, **both(lambda xp, *parts: xp.concatenate(parts, 0))),
    pair("stack", lambda n: ((4 * n,), (4 * n,)), lambda x, y: te.stack([x, y], 1), lambda xp, x, y: xp.stack([x, y], 1)),
    Entry("split", cut, **both(lambda xp, x: tuple(x[k * (x.shape[0] // 3) : (k + 1) * (x.shape[0] // 3)] for k in range(3)))),
    moved("strided slice", lambda n: (7 * n, 6 * n), lambda x: x[1::3, ::2], lambda xp, x: x[1::3, ::2]),
    moved("reversed", lambda n: (6 * n,), lambda x: x[::-1], lambda xp, x: xp.flip(x, (0,))),
    moved("reversed strided slice", lambda n: (7 * n,), lambda x: x[::-2], lambda xp, x: xp.flip(x, (0,))[::2]),
    moved("basic indexing", lambda n: (4 * n, 5 * n, 3), lambda x: x[1:-1, :, 2], lambda xp, x: x[1:-1, :, 2]),
    *map(padded, ("constant", "edge", "reflect", "wrap")),
    mapped("upsample nearest", lambda n: (4 * n, 5 * n), lambda n: (8 * n, 15 * n), lambda n, i, j: (i // 2, j // 3),
           lambda xp, x: (x[:, None, :, None] * xp.ones((1, 2, 1, 3), dtype=xp.float64)).reshape(2 * x.shape[0], -1)),
    Entry("upsample bilinear", bilinear, bilinear_oracle, bilinear_jax),
    Entry("upsample bilinear, two passes", separable_bilinear, bilinear_oracle, bilinear_jax),
    mapped("repeat", lambda n: (6 * n,), lambda n: (18 * n,), lambda n, i: i // 3, lambda xp, x: (x[:, None] * xp.ones((1, 3), dtype=xp.float64)).reshape(-1)),
    mapped("tile", lambda n: (6 * n,), lambda n: (18 * n,), lambda n, i: i % (6 * n), lambda xp, x: xp.concatenate([x, x, x])),
    mapped("odd elements", lambda n: (6 * n + 1,), lambda n: (3 * n,), lambda n, i: 2 * i + 1, lambda xp, x: x[1::2]),
    moved("roll", lambda n: (5 * n, 4 * n), lambda x: te.roll(x, 2, 0), lambda xp, x: xp.roll(x, 2, 0)),
    moved("roll of all axes", lambda n: (5 * n, 4 * n), lambda x: te.roll(x, (2, -1), (0, 1)), lambda xp, x: xp.roll(x, (2, -1), (0, 1))),
    moved("flip", lambda n: (5 * n, 4 * n), lambda x: te.flip(x, (0, 1)), lambda xp, x: xp.flip(x, (0, 1))),
    Entry("windows x[i + j]", windows, **both(windows_oracle)),
    Entry("x[i + j, i - j]", sum_and_difference, **both(sum_and_difference_oracle)),
    mapped("x[i, i]", lambda n: (6 * n, 6 * n), lambda n: (6 * n,), lambda n, i: (i, i), lambda xp, x: xp.diagonal(x)),
    mapped("x[i, i + 1]", lambda n: (6 * n, 6 * n), lambda n: (6 * n - 1,), lambda n, i: (i, i + 1), lambda xp, x: xp.diagonal(x, 1)),
    mapped("x[i, n - 1 - i]", lambda n: (6 * n, 6 * n), lambda n: (6 * n,), lambda n, i: (i, 6 * n - 1 - i),
           lambda xp, x: xp.diagonal(xp.flip(x, (1,)))),
    mapped("x[i + j, j]", lambda n: (10 * n - 1, 4 * n), lambda n: (6 * n, 4 * n), lambda n, i, j: (i + j, j),
           lambda xp, x: xp.stack([x[j : j + x.shape[0] - x.shape[1] + 1, j] for j in range(x.shape[1])], 1)),
    Entry("space to depth", space_to_depth, space_to_depth_oracle),
    Entry("broadcast bias", broadcast_add, **both(lambda xp, x, b: xp.tanh(x + b))),
    pair("broadcast outer sum", lambda n: ((4 * n, 1), (1, 5 * n)), lambda x, y: te.exp(x * y), lambda xp, x, y: xp.exp(x * y)),
]  # fmt: skip
