"""Programs that nobody has named: families from which `benchmarks.sweep` draws sizes, layouts and spellings.

A family is a function of a source of chance. It says a program in the language itself, and the same for PyTorch. Sizes
are those of ordinary work, some of them multiples of eight and more of them not.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

import tedsl as te
from benchmarks.workload import Array, Peer

__all__ = ["FAMILIES", "Drawn"]

Body = Callable[..., Any]


@dataclass(frozen=True)
class Drawn:
    """A program with its inputs, and a function of PyTorch tensors that gives the same.

    Arrays that are no normal numbers are `given`.
    """

    text: str
    inputs: list[te.Tensor]
    output: te.Tensor
    peer: Peer
    given: dict[te.Tensor, Array] = field(default_factory=dict)


def _extent(chance: Random, low: int, high: int) -> int:
    """A size, small ones as likely as large ones; every third a multiple of eight."""
    found = round(math.exp(chance.uniform(math.log(low), math.log(high))))
    return max(low, found // 8 * 8) if chance.random() < 0.34 else found


def _shape(chance: Random, dims: int, elements: int) -> tuple[int, ...]:
    """A shape of about so many elements."""
    parts = [chance.expovariate(1) + 0.2 for _ in range(dims)]
    return tuple(max(1, round(elements ** (p / sum(parts)))) for p in parts)


def _input(name: str, *shape: int) -> te.Tensor:
    made: te.Tensor = te.placeholder(shape, name=name)
    return made


def _taking(count: int, body: Body) -> Body:
    """A function of so many loops of a sum."""
    functions: dict[int, Body] = {
        1: lambda u: body(u), 2: lambda u, v: body(u, v), 3: lambda u, v, w: body(u, v, w),
        4: lambda u, v, w, k: body(u, v, w, k),
    }  # fmt: skip
    return functions[count]


# ------------------------------------------------------------------------------------------- convolutions and windows


def convolution(chance: Random) -> Drawn:
    """One to three dimensions, strides, dilations, groups by division, borders; channels first or last."""
    dims = chance.choice((1, 2, 2, 3))
    size = {1: _extent(chance, 100, 4000), 2: _extent(chance, 14, 96), 3: _extent(chance, 8, 20)}[dims]
    taps, step, gap = chance.choice((1, 2, 3, 3, 5)), chance.choice((1, 1, 2)), chance.choice((1, 1, 2))
    groups, batch = chance.choice((1, 1, 1, 2, 4)), chance.choice((1, 2, 4))
    c, o = (groups * _extent(chance, 4, 48 // groups) for _ in range(2))
    border = gap * (taps - 1) // 2
    mode = chance.choice(("zero", "zero", "zero", "clamp", "reflect")) if border else "zero"
    out = (size + 2 * border - gap * (taps - 1) - 1) // step + 1
    is_last = chance.random() < 0.3
    x = _input("x", batch, *(size,) * dims, c) if is_last else _input("x", batch, c, *(size,) * dims)
    w = _input("w", o, c // groups, *(taps,) * dims)

    def element(b: Any, *rest: Any) -> Any:
        f, at = (rest[-1], rest[:-1]) if is_last else (rest[0], rest[1:])

        def tap(k: Any, *turns: Any) -> Any:
            places = [i * step + t * gap - border for i, t in zip(at, turns, strict=True)]
            channel = k if groups == 1 else f // (o // groups) * (c // groups) + k
            index = (b, *places, channel) if is_last else (b, channel, *places)
            weight = f, k, *turns
            return (x.at(*index, mode=mode) if border else x[index]) * w[weight]

        return te.sum(_taking(dims + 1, tap))

    y = te.compute((batch, *(out,) * dims, o) if is_last else (batch, o, *(out,) * dims), element)

    def peer(x: Any, w: Any) -> Any:
        given = x.movedim(-1, 1) if is_last else x
        kind = {"zero": "constant", "clamp": "replicate", "reflect": "reflect"}[mode]
        padded = given if mode == "zero" else F.pad(given, (border, border) * dims, kind)
        function = (F.conv1d, F.conv2d, F.conv3d)[dims - 1]
        found = function(padded, w, None, step, border if mode == "zero" else 0, gap, groups)
        return found.movedim(1, -1) if is_last else found

    text = (
        f"{dims}-D, {batch} x {c} x {size}, to {o}, {taps} taps, stride {step}, dilation {gap}, groups {groups}, {mode}"
    )
    return Drawn(text + (", channels last" if is_last else ""), [x, w], y, peer)


def transposed(chance: Random) -> Drawn:
    """Transposed convolutions by quotient and remainder, or by a condition on what is a multiple."""
    dims, batch, step = chance.choice((1, 2, 2)), chance.choice((1, 2)), chance.choice((2, 2, 3))
    taps = step * chance.choice((1, 2))
    size = _extent(chance, 60, 500) if dims == 1 else _extent(chance, 8, 40)
    c, o = _extent(chance, 8, 64), _extent(chance, 4, 64)
    x, w = _input("x", batch, c, *(size,) * dims), _input("w", c, o, *(taps,) * dims)
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
            return te.sum(_taking(dims + 1, phase), loops)
        return te.sum(_taking(dims + 1, tap))

    function = (F.conv_transpose1d, F.conv_transpose2d)[dims - 1]
    text = f"{dims}-D, {batch} x {c} x {size}, to {o}, {taps} taps, stride {step}"
    y = te.compute((batch, o, *(out,) * dims), element)
    return Drawn(text + (", by phase" if by_quotient else ""), [x, w], y, lambda x, w: function(x, w, None, step))


def pool(chance: Random) -> Drawn:
    """The largest, or the mean, of windows."""
    taps, step = chance.choice((2, 3, 3, 5)), chance.choice((1, 2, 2, 3))
    batch, c, n, m = chance.choice((1, 4)), _extent(chance, 8, 64), _extent(chance, 16, 100), _extent(chance, 16, 100)
    x = _input("x", batch, c, n, m)
    is_largest = chance.random() < 0.5

    def element(b: Any, k: Any, i: Any, j: Any) -> Any:
        def tap(u: Any, v: Any) -> Any:
            return x[b, k, i * step + u, j * step + v]

        window = [te.reduce_axis(taps), te.reduce_axis(taps)]
        return te.max(tap, window) if is_largest else te.sum(tap, window) / (taps * taps)

    y = te.compute((batch, c, (n - taps) // step + 1, (m - taps) // step + 1), element)
    function = F.max_pool2d if is_largest else F.avg_pool2d
    kind = "largest" if is_largest else "mean"
    return Drawn(f"{kind}, {batch} x {c} x {n} x {m}, {taps} by {step}", [x], y, lambda x: function(x, taps, step))


def stencil(chance: Random) -> Drawn:
    """Weighted neighbours on a grid, and a function of them."""
    dims = chance.choice((1, 2, 2, 3))
    shape = _shape(chance, dims, chance.choice((20_000, 300_000, 2_000_000)))
    shape = tuple(max(8, n) for n in shape)
    mode = chance.choice(("clamp", "wrap", "zero"))
    x = _input("x", *shape)

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

    return Drawn(f"{' x '.join(map(str, shape))}, {mode}", [x], te.compute(shape, element), peer)


# ------------------------------------------------------------------------------------------------------- contractions


def contraction(chance: Random) -> Drawn:
    """Sums of products of two or three tensors, their axes in any order."""
    texts = (
        "mk,kn->mn", "km,kn->mn", "mk,nk->mn", "km,nk->mn", "mk,nk->nm", "mkl,lkn->mn", "mk,kpn->mpn", "amk,kn->amn",
        "mk,kl,ln->mn", "ik,jk,k->ij", "m,mk,k->", "abk,ack->abc", "kab,kac->bca",
    )  # fmt: skip
    text = chance.choice(texts)
    given, _, result = text.partition("->")
    sizes = {name: _extent(chance, 3, 24 if name in "alp" else 400) for name in sorted(set(given) - {","})}
    tensors = [_input(f"x{i}", *(sizes[n] for n in part)) for i, part in enumerate(given.split(","))]
    inside = [n for n in sizes if n not in result]

    def element(*at: Any) -> Any:
        def term(*loops: Any) -> Any:
            where = dict(zip(result, at, strict=True)) | dict(zip(inside, loops, strict=True))
            return math.prod(
                t[tuple(where[n] for n in part)] for t, part in zip(tensors, given.split(","), strict=True)
            )

        return te.sum(_taking(len(inside), term))

    y = te.compute(tuple(sizes[n] for n in result), element)
    told = ", ".join(f"{n} {e}" for n, e in sizes.items())
    return Drawn(f"{text}: {told}", tensors, y, lambda *arrays: torch.einsum(text, *arrays))


def small_products(chance: Random) -> Drawn:
    """A batch of products of small matrices."""
    batch = _extent(chance, 100, 20_000)
    n, m, k = (_extent(chance, 2, 16) for _ in range(3))
    a, b = _input("a", batch, n, k), _input("b", batch, k, m)
    y = te.compute((batch, n, m), lambda t, i, j: te.sum(lambda u: a[t, i, u] * b[t, u, j]))
    return Drawn(f"{batch} of {n} x {k} by {k} x {m}", [a, b], y, torch.matmul)


def attention(chance: Random) -> Drawn:
    """Softmax of products of queries and keys, times values."""
    batch, n, d = chance.choice((1, 2, 8)), _extent(chance, 16, 256), chance.choice((16, 32, 64, 40))
    q, k, v = (_input(name, batch, n, d) for name in "qkv")
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

    return Drawn(f"{batch} x {n} x {d}{', causal' if is_causal else ''}", [q, k, v], y, peer)


# --------------------------------------------------------------------------------------------- reductions and elements


def reduction(chance: Random) -> Drawn:
    """A sum, the largest, or the logarithm of a sum of exponentials over any axes of any width."""
    dims = chance.choice((1, 2, 3, 4))
    shape = _shape(chance, dims, chance.choice((5_000, 100_000, 3_000_000)))
    axes = tuple(sorted(chance.sample(range(dims), chance.randint(1, dims))))
    x = _input("x", *shape)
    kind = chance.choice(("sum", "mean of squares", "largest", "logsumexp"))
    largest = x.max(axes, keepdims=True)
    y = {
        "sum": lambda: x.sum(axes), "mean of squares": lambda: (x * x).mean(axes), "largest": lambda: x.max(axes),
        "logsumexp": lambda: te.log(te.exp(x - largest).sum(axes)) + x.max(axes),
    }[kind]()  # fmt: skip
    peer = {
        "sum": lambda x: x.sum(axes), "mean of squares": lambda x: (x * x).mean(axes),
        "largest": lambda x: x.amax(axes), "logsumexp": lambda x: torch.logsumexp(x, axes),
    }[kind]  # fmt: skip
    return Drawn(f"{kind} of {' x '.join(map(str, shape))} over {axes}", [x], y, peer)


def normalization(chance: Random) -> Drawn:
    """Softmax or a norm over one axis or the last two, and the log-likelihood of labels."""
    dims = chance.choice((2, 3))
    shape = _shape(chance, dims, chance.choice((10_000, 200_000, 2_000_000)))
    axis = chance.randrange(dims)
    x = _input("x", *shape)
    kind = chance.choice(("softmax", "norm", "rms"))
    if kind == "softmax":
        powers = te.exp(x - x.max(axis, keepdims=True))
        y, peer = powers / powers.sum(axis, keepdims=True), lambda x: torch.softmax(x, axis)
    elif kind == "norm":
        apart = x - x.mean(axis, keepdims=True)
        y = apart / te.sqrt((apart * apart).mean(axis, keepdims=True) + 1e-5)

        def peer(x: Any) -> Any:
            moved = x.movedim(axis, -1)
            return F.layer_norm(moved, moved.shape[-1:]).movedim(-1, axis)
    else:
        y = x / te.sqrt((x * x).mean(axis, keepdims=True) + 1e-5)

        def peer(x: Any) -> Any:
            return x * torch.rsqrt((x * x).mean(axis, keepdim=True) + 1e-5)

    return Drawn(f"{kind} of {' x '.join(map(str, shape))} along {axis}", [x], y, peer)


def pointwise(chance: Random) -> Drawn:
    """Chains of functions of tensors of which some lack axes."""
    dims = chance.choice((1, 2, 3))
    shape = _shape(chance, dims, chance.choice((3_000, 100_000, 3_000_000)))
    kept = [tuple(chance.random() < 0.6 for _ in shape) for _ in range(2)]
    x = _input("x", *shape)
    others = [
        _input(f"y{i}", *(n if k else 1 for n, k in zip(shape, keep, strict=True))) for i, keep in enumerate(kept)
    ]
    functions: dict[str, Callable[[Any, Any], Any]] = {
        "tanh": lambda lib, v: lib.tanh(v), "exp": lambda lib, v: lib.exp(-v * v), "square": lambda lib, v: v * v,
        "sigmoid": lambda lib, v: 1 / (1 + lib.exp(-v)), "sqrt": lambda lib, v: lib.sqrt(v * v + 1.0),
        "sin": lambda lib, v: lib.sin(v),
    }  # fmt: skip
    names = [chance.choice(list(functions)) for _ in range(chance.randint(2, 4))]

    def chain(lib: Any, x: Any, *others: Any) -> Any:
        for k, name in enumerate(names):
            x = functions[name](lib, x) + others[k % 2] * (x if k % 2 else 0.5)
        return x

    text = f"{', '.join(names)} of {' x '.join(map(str, shape))} with {' and '.join(str(o.shape) for o in others)}"
    return Drawn(text, [x, *others], chain(te, x, *others), lambda *arrays: chain(torch, *arrays))


# -------------------------------------------------------------------------------------------------- moves and lookups


def joining(chance: Random) -> Drawn:
    """Concatenations, stacks, rolls, borders, flips and permutations, each followed by a product of elements."""
    kind = chance.choice(("concatenate", "stack", "roll", "pad", "flip", "permute"))
    dims = chance.choice((2, 3, 4) if kind == "permute" else (1, 2, 3))
    shape = _shape(chance, dims, chance.choice((20_000, 500_000)))
    axis = chance.randrange(dims)
    size = shape[axis]
    if kind == "concatenate":
        lengths = [size, _extent(chance, 1, 2 * size + 1), _extent(chance, 1, 2 * size + 1)]
        inputs = [_input(f"x{i}", *(n if d == axis else e for d, e in enumerate(shape))) for i, n in enumerate(lengths)]
        return Drawn(
            f"concatenate {[t.shape for t in inputs]} along {axis}",
            inputs,
            te.concatenate(inputs, axis),
            lambda *a: torch.cat(a, axis),
        )
    if kind == "stack":
        inputs = [_input(f"x{i}", *shape) for i in range(chance.choice((2, 3, 5)))]
        text = f"stack {len(inputs)} of {shape} along {axis}"
        return Drawn(text, inputs, te.stack(inputs, axis), lambda *a: torch.stack(a, axis))
    x = _input("x", *shape)
    if kind == "roll":
        away = chance.randrange(-size, size + 1)

        def rolled(*at: Any) -> Any:
            return x[tuple((i - away) % size if d == axis else i for d, i in enumerate(at))]

        return Drawn(
            f"roll {shape} by {away} along {axis}", [x], te.compute(shape, rolled), lambda x: torch.roll(x, away, axis)
        )
    if kind == "pad":
        width = chance.choice((1, 2, 5))
        wide = tuple(n + 2 * width for n in shape)
        mode = chance.choice(("zero", "clamp", "wrap") if min(shape) >= width else ("zero", "clamp"))
        kinds = {"zero": "constant", "clamp": "replicate", "wrap": "circular"}
        y = te.compute(wide, lambda *at: x.at(*(i - width for i in at), mode=mode))
        return Drawn(
            f"pad {shape} by {width}, {mode}",
            [x],
            y,
            lambda x: F.pad(x[None, None], (width, width) * dims, kinds[mode])[0, 0],
        )
    if kind == "flip":
        flipped = te.compute(shape, lambda *at: x[tuple(size - 1 - i if d == axis else i for d, i in enumerate(at))])
        return Drawn(f"flip {shape} along {axis}", [x], flipped, lambda x: x.flip(axis))
    order = chance.choice([o for o in itertools.permutations(range(dims)) if o != tuple(range(dims))])
    y = te.compute(tuple(shape[d] for d in order), lambda *at: x[tuple(at[order.index(d)] for d in range(dims))])
    return Drawn(f"permute {shape} to {order}", [x], y, lambda x: x.permute(order).contiguous())


def lookup(chance: Random) -> Drawn:
    """Rows, or elements of rows, at places given as integers."""
    n, count, width = _extent(chance, 50, 20_000), _extent(chance, 50, 8_000), _extent(chance, 1, 96)
    table, places = _input("table", n, width), te.placeholder((count,), "int32", name="places")
    given = np.random.default_rng(chance.randrange(1 << 30)).integers(0, n, count, dtype=np.int32)
    if chance.random() < 0.5:
        y = te.compute((count, width), lambda i, j: table[te.clip(places[i], 0, n - 1), j])
        return Drawn(
            f"{count} rows of {n} x {width}", [table, places], y, lambda t, p: F.embedding(p, t), {places: given}
        )
    y = te.compute((width, count), lambda j, i: table[te.clip(places[i], 0, n - 1), j] * 2.0)
    text = f"{count} rows of {n} x {width}, turned"
    return Drawn(text, [table, places], y, lambda t, p: F.embedding(p, t).T * 2.0, {places: given})


def resampling(chance: Random) -> Drawn:
    """Images made larger or smaller, by neighbours or linearly between four."""
    batch, c, n, m = chance.choice((1, 4)), _extent(chance, 3, 32), _extent(chance, 16, 120), _extent(chance, 16, 120)
    x = _input("x", batch, c, n, m)
    if chance.random() < 0.5:
        by = chance.choice((2, 3))
        y = te.compute((batch, c, n * by, m * by), lambda b, k, i, j: x[b, k, i // by, j // by])
        return Drawn(f"{batch} x {c} x {n} x {m} by {by}, nearest", [x], y, lambda x: F.interpolate(x, scale_factor=by))

    def element(b: Any, k: Any, i: Any, j: Any) -> Any:
        def between(p: Any, q: Any, share: Any) -> Any:
            return p * (1 - share) + q * share

        def at(di: int, dj: int) -> Any:
            return x.at(b, k, (i + 1) // 2 - 1 + di, (j + 1) // 2 - 1 + dj, mode="clamp")

        down, right = te.select(i % 2 == 0, 0.75, 0.25), te.select(j % 2 == 0, 0.75, 0.25)
        return between(between(at(0, 0), at(0, 1), right), between(at(1, 0), at(1, 1), right), down)

    y = te.compute((batch, c, 2 * n, 2 * m), element)
    text = f"{batch} x {c} x {n} x {m} by 2, linear"
    return Drawn(text, [x], y, lambda x: F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False))


def recurrence(chance: Random) -> Drawn:
    """A running sum along an axis, or the steps of a network with a state."""
    if chance.random() < 0.5:
        dims = chance.choice((1, 2, 3))
        shape, axis = _shape(chance, dims, chance.choice((10_000, 500_000))), chance.randrange(dims)
        x = _input("x", *shape)
        return Drawn(f"running sum of {shape} along {axis}", [x], x.cumsum(axis), lambda x: x.cumsum(axis))
    steps, batch, width = _extent(chance, 5, 40), chance.choice((1, 4, 16)), _extent(chance, 16, 128)
    x, w = _input("x", steps, batch, width), _input("w", width, width)

    def step(s: Any, t: Any, b: Any, j: Any) -> Any:
        before = te.sum(lambda k: s[t - 1, b, k] * w[k, j]) / width
        return te.tanh(x[t, b, j] + te.select(t == 0, 0.0, before))

    def peer(x: Any, w: Any) -> Any:
        state, found = torch.zeros(batch, width), []
        for row in x:
            state = torch.tanh(row + state @ w / width)
            found.append(state)
        return torch.stack(found)

    y = te.scan((steps, batch, width), step)
    return Drawn(f"network of {steps} steps, {batch} x {width}", [x, w], y, peer)


FAMILIES: dict[str, Callable[[Random], Drawn]] = {
    f.__name__.replace("_", " "): f
    for f in (
        convolution, transposed, pool, stencil, contraction, small_products, attention, reduction, normalization,
        pointwise, joining, lookup, resampling, recurrence,
    )
}  # fmt: skip
