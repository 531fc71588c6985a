"""Families of `benchmarks.sweep`: joins, permutations, lookups, resampling."""

from __future__ import annotations

import itertools
from random import Random
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

import tedsl as te
from benchmarks.sweep_drawing import Drawn, extent, input_of, moved, shape_of

__all__ = ["joining", "lookup", "resampling"]


def joining(chance: Random) -> Drawn:
    """Concatenations, stacks, rolls, borders, flips and permutations."""
    kind = chance.choice(("concatenate", "stack", "roll", "pad", "flip", "permute"))
    dims = chance.choice((2, 3, 4) if kind == "permute" else (1, 2, 3))
    shape = shape_of(chance, dims, chance.choice((20_000, 500_000)))
    axis = chance.randrange(dims)
    size = shape[axis]
    if kind == "concatenate":
        lengths = [size, extent(chance, 1, 2 * size + 1), extent(chance, 1, 2 * size + 1)]
        shapes = [tuple(n if d == axis else e for d, e in enumerate(shape)) for n in lengths]
        inputs = [input_of(f"x{i}", *shape) for i, shape in enumerate(shapes)]
        text = f"concatenate {[t.shape for t in inputs]} along {axis}"
        return moved(
            text, inputs, te.concatenate(inputs, axis), lambda *a: torch.cat(a, axis),
            lambda jnp, *a: jnp.concatenate(a, axis),
        )  # fmt: skip
    if kind == "stack":
        inputs = [input_of(f"x{i}", *shape) for i in range(chance.choice((2, 3, 5)))]
        text = f"stack {len(inputs)} of {shape} along {axis}"
        return moved(
            text, inputs, te.stack(inputs, axis), lambda *a: torch.stack(a, axis), lambda jnp, *a: jnp.stack(a, axis)
        )
    x = input_of("x", *shape)
    if kind == "roll":
        away = chance.randrange(-size, size + 1)
        y = te.compute(shape, lambda *at: x[tuple((i - away) % size if d == axis else i for d, i in enumerate(at))])
        return moved(
            f"roll {shape} by {away} along {axis}", [x], y, lambda x: torch.roll(x, away, axis),
            lambda jnp, x: jnp.roll(x, away, axis),
        )  # fmt: skip
    if kind == "pad":
        width = chance.choice((1, 2, 5))
        wide = tuple(n + 2 * width for n in shape)
        mode = chance.choice(("zero", "clamp", "wrap") if min(shape) >= width else ("zero", "clamp"))
        torchs = {"zero": "constant", "clamp": "replicate", "wrap": "circular"}[mode]
        jaxs = {"zero": "constant", "clamp": "edge", "wrap": "wrap"}[mode]
        y = te.compute(wide, lambda *at: x.at(*(i - width for i in at), mode=mode))
        return moved(
            f"pad {shape} by {width}, {mode}", [x], y,
            lambda x: F.pad(x[None, None], (width, width) * dims, torchs)[0, 0],
            lambda jnp, x: jnp.pad(x, width, jaxs),
        )  # fmt: skip
    if kind == "flip":
        y = te.compute(shape, lambda *at: x[tuple(size - 1 - i if d == axis else i for d, i in enumerate(at))])
        return moved(f"flip {shape} along {axis}", [x], y, lambda x: x.flip(axis), lambda jnp, x: jnp.flip(x, axis))
    order = chance.choice([o for o in itertools.permutations(range(dims)) if o != tuple(range(dims))])
    y = te.compute(tuple(shape[d] for d in order), lambda *at: x[tuple(at[order.index(d)] for d in range(dims))])
    return moved(
        f"permute {shape} to {order}", [x], y, lambda x: x.permute(order).contiguous(),
        lambda jnp, x: x.transpose(order),
    )  # fmt: skip


def lookup(chance: Random) -> Drawn:
    """Rows, or elements of rows, at places given as integers."""
    n, count, width = extent(chance, 50, 20_000), extent(chance, 50, 8_000), extent(chance, 1, 96)
    table, places = input_of("table", n, width), te.placeholder((count,), "int32", name="places")
    given = np.random.default_rng(chance.randrange(1 << 30)).integers(0, n, count, dtype=np.int32)
    if chance.random() < 0.5:
        y = te.compute((count, width), lambda i, j: table[te.clip(places[i], 0, n - 1), j])
        return Drawn(
            f"{count} rows of {n} x {width}", [table, places], y, lambda t, p: F.embedding(p, t), {places: given},
            lambda t, p: t[p],
        )  # fmt: skip
    y = te.compute((width, count), lambda j, i: table[te.clip(places[i], 0, n - 1), j] * 2.0)
    text = f"{count} rows of {n} x {width}, turned"
    return Drawn(
        text, [table, places], y, lambda t, p: F.embedding(p, t).T * 2.0, {places: given}, lambda t, p: t[p].T * 2.0
    )


def resampling(chance: Random) -> Drawn:
    """Images made larger or smaller, by neighbours or linearly between four."""
    batch, c, n, m = chance.choice((1, 4)), extent(chance, 3, 32), extent(chance, 16, 120), extent(chance, 16, 120)
    x = input_of("x", batch, c, n, m)
    if chance.random() < 0.5:
        by = chance.choice((2, 3))
        y = te.compute((batch, c, n * by, m * by), lambda b, k, i, j: x[b, k, i // by, j // by])
        return Drawn(
            f"{batch} x {c} x {n} x {m} by {by}, nearest", [x], y, lambda x: F.interpolate(x, scale_factor=by),
            jax=lambda x: x.repeat(by, 2).repeat(by, 3),
        )  # fmt: skip

    def element(b: Any, k: Any, i: Any, j: Any) -> Any:
        def between(p: Any, q: Any, share: Any) -> Any:
            return p * (1 - share) + q * share

        def at(di: int, dj: int) -> Any:
            return x.at(b, k, (i + 1) // 2 - 1 + di, (j + 1) // 2 - 1 + dj, mode="clamp")

        down, right = te.select(i % 2 == 0, 0.75, 0.25), te.select(j % 2 == 0, 0.75, 0.25)
        return between(between(at(0, 0), at(0, 1), right), between(at(1, 0), at(1, 1), right), down)

    y = te.compute((batch, c, 2 * n, 2 * m), element)

    def jax_peer(x: Any) -> Any:
        import jax

        return jax.image.resize(x, (batch, c, 2 * n, 2 * m), "linear")

    def peer(x: Any) -> Any:
        return F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)

    return Drawn(f"{batch} x {c} x {n} x {m} by 2, linear", [x], y, peer, jax=jax_peer)
