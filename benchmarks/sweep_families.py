"""Programs that nobody has named: families from which `benchmarks.sweep` draws sizes, layouts and spellings.

A family is a function of a source of chance. It says a program in the language itself, and the same for PyTorch. Sizes
are those of ordinary work, some of them multiples of eight and more of them not.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

import tedsl as te
from benchmarks.sweep_drawing import Drawn, extent, input_of, shape_of, taking
from benchmarks.sweep_elements import normalization, pointwise, recurrence, reduction
from benchmarks.sweep_images import pixels
from benchmarks.sweep_moves import joining, lookup, resampling
from benchmarks.sweep_products import (
    complex_product,
    cross_entropy,
    einsum,
    layer,
    local,
    oblong,
    per_channel,
    symmetric,
)

__all__ = ["FAMILIES", "Drawn"]


# ------------------------------------------------------------------------------------------- convolutions and windows


def convolution(chance: Random) -> Drawn:
    """One to three dimensions, strides, dilations, groups by division, borders; channels first or last."""
    dims = chance.choice((1, 2, 2, 3))
    size = {1: extent(chance, 100, 4000), 2: extent(chance, 14, 96), 3: extent(chance, 8, 20)}[dims]
    taps, step, gap = chance.choice((1, 2, 3, 3, 5)), chance.choice((1, 1, 2)), chance.choice((1, 1, 2))
    groups, batch = chance.choice((1, 1, 1, 2, 4)), chance.choice((1, 2, 4))
    c, o = (groups * extent(chance, 4, 48 // groups) for _ in range(2))
    border = gap * (taps - 1) // 2
    mode = chance.choice(("zero", "zero", "zero", "clamp", "reflect")) if border else "zero"
    out = (size + 2 * border - gap * (taps - 1) - 1) // step + 1
    is_last = chance.random() < 0.3
    x = input_of("x", batch, *(size,) * dims, c) if is_last else input_of("x", batch, c, *(size,) * dims)
    w = input_of("w", o, c // groups, *(taps,) * dims)

    def element(b: Any, *rest: Any) -> Any:
        f, at = (rest[-1], rest[:-1]) if is_last else (rest[0], rest[1:])

        def tap(k: Any, *turns: Any) -> Any:
            places = [i * step + t * gap - border for i, t in zip(at, turns, strict=True)]
            channel = k if groups == 1 else f // (o // groups) * (c // groups) + k
            index = (b, *places, channel) if is_last else (b, channel, *places)
            weight = f, k, *turns
            return (x.at(*index, mode=mode) if border else x[index]) * w[weight]

        return te.sum(taking(dims + 1, tap))

    y = te.compute((batch, *(out,) * dims, o) if is_last else (batch, o, *(out,) * dims), element)

    def peer(x: Any, w: Any) -> Any:
        given = x.movedim(-1, 1) if is_last else x
        kind = {"zero": "constant", "clamp": "replicate", "reflect": "reflect"}[mode]
        padded = given if mode == "zero" else F.pad(given, (border, border) * dims, kind)
        function = (F.conv1d, F.conv2d, F.conv3d)[dims - 1]
        found = function(padded, w, None, step, border if mode == "zero" else 0, gap, groups)
        return found.movedim(1, -1) if is_last else found

    def jax_peer(x: Any, w: Any) -> Any:
        import jax.numpy as jnp
        from jax import lax

        axes = "DHW"[-dims:]
        data = f"N{axes}C" if is_last else f"NC{axes}"
        edges = [(border, border)] * dims
        if mode != "zero":
            around = [(0, 0), *edges, (0, 0)] if is_last else [(0, 0), (0, 0), *edges]
            x = jnp.pad(x, around, "edge" if mode == "clamp" else mode)
            edges = [(0, 0)] * dims
        return lax.conv_general_dilated(
            x, w, (step,) * dims, edges, rhs_dilation=(gap,) * dims, feature_group_count=groups,
            dimension_numbers=(data, f"OI{axes}", data),
        )  # fmt: skip

    text = (
        f"{dims}-D, {batch} x {c} x {size}, to {o}, {taps} taps, stride {step}, dilation {gap}, groups {groups}, {mode}"
    )
    return Drawn(text + (", channels last" if is_last else ""), [x, w], y, peer, jax=jax_peer)


def transposed(chance: Random) -> Drawn:
    """Transposed convolutions by quotient and remainder, or by a condition on what is a multiple."""
    dims, batch, step = chance.choice((1, 2, 2)), chance.choice((1, 2)), chance.choice((2, 2, 3))
    taps = step * chance.choice((1, 2))
    size = extent(chance, 60, 500) if dims == 1 else extent(chance, 8, 40)
    c, o = extent(chance, 8, 64), extent(chance, 4, 64)
    x, w = input_of("x", batch, c, *(size,) * dims), input_of("w", c, o, *(taps,) * dims)
    by_quotient, out = chance.random() < 0.5, (size - 1) * step + taps

    def element(b: Any, f: Any, *at: Any) -> Any:
        def phase(k: Any, *turns: Any) -> Any:
            places = [i // step - t for i, t in zip(at, turns, strict=True)]
            weight = k, f, *(i % step + t * step for i, t in zip(at, turns, strict=True))
            return x.at(b, k, *places, mode="zero") * w[weight]

        def tap(k: Any, *turns: Any) -> Any:
            away = [i - t for i, t in zip(at, turns, strict=True)]
            hits = te.const(True, "bool")
            for d in away:
                hits = hits & (d % step == 0)
            weight = k, f, *turns
            return te.select(hits, x.at(b, k, *(d // step for d in away), mode="zero"), 0.0) * w[weight]

        if by_quotient:
            loops = [te.reduce_axis(n) for n in (c, *(taps // step,) * dims)]
            return te.sum(taking(dims + 1, phase), loops)
        return te.sum(taking(dims + 1, tap))

    def jax_peer(x: Any, w: Any) -> Any:
        import jax.numpy as jnp
        from jax import lax

        turned = jnp.flip(w, range(2, 2 + dims)).swapaxes(0, 1)
        around = [(taps - 1, taps - 1)] * dims
        return lax.conv_general_dilated(x, turned, (1,) * dims, around, lhs_dilation=(step,) * dims)

    function = (F.conv_transpose1d, F.conv_transpose2d)[dims - 1]
    text = f"{dims}-D, {batch} x {c} x {size}, to {o}, {taps} taps, stride {step}"
    y = te.compute((batch, o, *(out,) * dims), element)
    text += ", by phase" if by_quotient else ""
    return Drawn(text, [x, w], y, lambda x, w: function(x, w, None, step), jax=jax_peer)


def pool(chance: Random) -> Drawn:
    """The largest, or the mean, of windows."""
    taps, step = chance.choice((2, 3, 3, 5)), chance.choice((1, 2, 2, 3))
    batch, c, n, m = chance.choice((1, 4)), extent(chance, 8, 64), extent(chance, 16, 100), extent(chance, 16, 100)
    x = input_of("x", batch, c, n, m)
    is_largest = chance.random() < 0.5

    def element(b: Any, k: Any, i: Any, j: Any) -> Any:
        def tap(u: Any, v: Any) -> Any:
            return x[b, k, i * step + u, j * step + v]

        window = [te.reduce_axis(taps), te.reduce_axis(taps)]
        return te.max(tap, window) if is_largest else te.sum(tap, window) / (taps * taps)

    y = te.compute((batch, c, (n - taps) // step + 1, (m - taps) // step + 1), element)
    function = F.max_pool2d if is_largest else F.avg_pool2d

    def jax_peer(x: Any) -> Any:
        from jax import lax

        window = (1, 1, taps, taps), (1, 1, step, step), "VALID"
        if is_largest:
            return lax.reduce_window(x, -np.inf, lax.max, *window)
        return lax.reduce_window(x, 0.0, lax.add, *window) / (taps * taps)

    kind = "largest" if is_largest else "mean"
    text = f"{kind}, {batch} x {c} x {n} x {m}, {taps} by {step}"
    return Drawn(text, [x], y, lambda x: function(x, taps, step), jax=jax_peer)


def stencil(chance: Random) -> Drawn:
    """Weighted neighbours on a grid, and a function of them."""
    dims = chance.choice((1, 2, 2, 3))
    shape = shape_of(chance, dims, chance.choice((20_000, 300_000, 2_000_000)))
    shape = tuple(max(8, n) for n in shape)
    mode = chance.choice(("clamp", "wrap", "zero"))
    x = input_of("x", *shape)

    def element(*at: Any) -> Any:
        total = -2.0 * dims * x[at]
        for d in range(dims):
            for away in (-1, 1):
                total = total + x.at(*(i + away * (k == d) for k, i in enumerate(at)), mode=mode)
        return te.tanh(x[at] + 0.1 * total)

    def peer(x: Any) -> Any:
        kind = {"clamp": "replicate", "wrap": "circular", "zero": "constant"}[mode]
        padded = F.pad(x[None, None], (1, 1) * dims, kind)[0, 0]
        total = -2.0 * dims * x
        for d in range(dims):
            for away in (0, 2):
                part = padded.narrow(d, away, shape[d])
                for other in range(dims):
                    part = part if other == d else part.narrow(other, 1, shape[other])
                total = total + part
        return torch.tanh(x + 0.1 * total)

    def jax_peer(x: Any) -> Any:
        import jax.numpy as jnp

        padded = jnp.pad(x, 1, {"clamp": "edge", "wrap": "wrap", "zero": "constant"}[mode])
        total = -2.0 * dims * x
        for d in range(dims):
            for away in (0, 2):
                begins = (away if k == d else 1 for k in range(dims))
                total = total + padded[tuple(slice(b, b + n) for b, n in zip(begins, shape, strict=True))]
        return jnp.tanh(x + 0.1 * total)

    text = f"{' x '.join(map(str, shape))}, {mode}"
    return Drawn(text, [x], te.compute(shape, element), peer, jax=jax_peer)


# ------------------------------------------------------------------------------------------------------- contractions


def contraction(chance: Random) -> Drawn:
    """Sums of products of two or three tensors, their axes in any order."""
    texts = (
        "mk,kn->mn", "km,kn->mn", "mk,nk->mn", "km,nk->mn", "mk,nk->nm", "mkl,lkn->mn", "mk,kpn->mpn", "amk,kn->amn",
        "mk,kl,ln->mn", "ik,jk,k->ij", "m,mk,k->", "abk,ack->abc", "kab,kac->bca",
    )  # fmt: skip
    text = chance.choice(texts)
    given, _, result = text.partition("->")
    sizes = {name: extent(chance, 3, 24 if name in "alp" else 400) for name in sorted(set(given) - {","})}
    tensors = [input_of(f"x{i}", *(sizes[n] for n in part)) for i, part in enumerate(given.split(","))]
    inside = [n for n in sizes if n not in result]

    def element(*at: Any) -> Any:
        def term(*loops: Any) -> Any:
            where = dict(zip(result, at, strict=True)) | dict(zip(inside, loops, strict=True))
            return math.prod(
                t[tuple(where[n] for n in part)] for t, part in zip(tensors, given.split(","), strict=True)
            )

        return te.sum(taking(len(inside), term))

    y = te.compute(tuple(sizes[n] for n in result), element)
    told = ", ".join(f"{n} {e}" for n, e in sizes.items())

    def jax_peer(*arrays: Any) -> Any:
        import jax.numpy as jnp

        return jnp.einsum(text, *arrays)

    return Drawn(f"{text}: {told}", tensors, y, lambda *arrays: torch.einsum(text, *arrays), jax=jax_peer)


def small_products(chance: Random) -> Drawn:
    """A batch of products of small matrices."""
    batch = extent(chance, 100, 20_000)
    n, m, k = (extent(chance, 2, 16) for _ in range(3))
    a, b = input_of("a", batch, n, k), input_of("b", batch, k, m)
    y = te.compute((batch, n, m), lambda t, i, j: te.sum(lambda u: a[t, i, u] * b[t, u, j]))
    return Drawn(f"{batch} of {n} x {k} by {k} x {m}", [a, b], y, torch.matmul, jax=lambda a, b: a @ b)


def attention(chance: Random) -> Drawn:
    """Softmax of products of queries and keys, times values."""
    batch, n, d = chance.choice((1, 2, 8)), extent(chance, 16, 256), chance.choice((16, 32, 64, 40))
    q, k, v = (input_of(name, batch, n, d) for name in "qkv")
    is_causal = chance.random() < 0.5
    scores = te.compute(
        (batch, n, n), lambda b, i, j: te.sum(lambda c: q[b, i, c] * k[b, j, c]) / math.sqrt(d), name="scores"
    )
    if is_causal:
        scores = te.compute((batch, n, n), lambda b, i, j: te.select(j <= i, scores[b, i, j], -1e9), name="masked")
    powers = te.exp(scores - scores.max(-1, keepdims=True))
    shares = powers / powers.sum(-1, keepdims=True)
    y = te.compute((batch, n, d), lambda b, i, c: te.sum(lambda j: shares[b, i, j] * v[b, j, c]))

    def peer(q: Any, k: Any, v: Any) -> Any:
        return F.scaled_dot_product_attention(q, k, v, is_causal=is_causal)

    def jax_peer(q: Any, k: Any, v: Any) -> Any:
        import jax
        import jax.numpy as jnp

        scores = q @ k.swapaxes(1, 2) / math.sqrt(d)
        if is_causal:
            scores = jnp.where(jnp.tril(jnp.ones((n, n), bool)), scores, -1e9)
        return jax.nn.softmax(scores) @ v

    return Drawn(f"{batch} x {n} x {d}{', causal' if is_causal else ''}", [q, k, v], y, peer, jax=jax_peer)


FAMILIES: dict[str, Callable[[Random], Drawn]] = {
    f.__name__.replace("_", " "): f
    for f in (
        convolution, transposed, pool, stencil, contraction, small_products, attention, reduction, normalization,
        pointwise, joining, lookup, resampling, recurrence, oblong, per_channel, local, einsum, symmetric, layer,
        complex_product, cross_entropy, pixels,
    )
}  # fmt: skip
