"""Families of `benchmarks.sweep`: sums of products that are neither plain convolutions nor plain matrix products."""

from __future__ import annotations

import math
from random import Random
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

import tedsl as te
from benchmarks.sweep_drawing import Drawn, extent, input_of, moved, taking

__all__ = ["complex_product", "cross_entropy", "einsum", "layer", "local", "oblong", "per_channel", "symmetric"]


def oblong(chance: Random) -> Drawn:
    """Convolutions with another window, stride and border in each direction, such as rows of taps alone."""
    batch, c, o = chance.choice((1, 2, 8)), extent(chance, 3, 40), extent(chance, 3, 40)
    sizes = extent(chance, 10, 80), extent(chance, 10, 120)
    taps = chance.choice(((1, 3), (3, 1), (1, 7), (5, 1), (2, 3), (7, 7), (4, 1)))
    steps = chance.choice(((1, 1), (1, 2), (2, 1), (3, 2)))
    before = tuple(chance.randint(0, t // 2) for t in taps)
    out = tuple((n + 2 * b - t) // s + 1 for n, b, t, s in zip(sizes, before, taps, steps, strict=True))
    x, w, bias = input_of("x", batch, c, *sizes), input_of("w", o, c, *taps), input_of("bias", o)
    product = te.compute(
        (batch, o, *out),
        lambda b, f, i, j: te.sum(
            lambda k, u, v: (
                x.at(b, k, i * steps[0] + u - before[0], j * steps[1] + v - before[1], mode="zero") * w[f, k, u, v]
            )
        ),
        name="product",
    )
    y = te.compute(product.shape, lambda b, f, i, j: te.maximum(product[b, f, i, j] + bias[f], 0.0))

    def jax_peer(x: Any, w: Any, bias: Any) -> Any:
        import jax
        from jax import lax

        found = lax.conv_general_dilated(x, w, steps, [(b, b) for b in before])
        return jax.nn.relu(found + bias[:, None, None])

    text = f"{batch} x {c} x {sizes} to {o}, {taps} by {steps}, border {before}"
    return Drawn(text, [x, w, bias], y, lambda x, w, b: F.relu(F.conv2d(x, w, b, steps, before)), jax=jax_peer)


def per_channel(chance: Random) -> Drawn:
    """Each channel by filters of its own, one or some of them; channels first or last."""
    batch, c, times = chance.choice((1, 2, 4)), extent(chance, 4, 96), chance.choice((1, 1, 2, 3))
    n, taps, step = extent(chance, 8, 80), chance.choice((3, 3, 5)), chance.choice((1, 1, 2))
    is_last, border = chance.random() < 0.5, taps // 2
    x = input_of("x", batch, n, n, c) if is_last else input_of("x", batch, c, n, n)
    w = input_of("w", c * times, taps, taps)
    out = (n - 1) // step + 1

    def element(*at: Any) -> Any:
        b, f, i, j = (at[0], at[3], at[1], at[2]) if is_last else at

        def tap(u: Any, v: Any) -> Any:
            place = i * step + u - border, j * step + v - border
            index = (b, *place, f // times) if is_last else (b, f // times, *place)
            return x.at(*index, mode="zero") * w[f, u, v]

        return te.sum(tap)

    y = te.compute((batch, out, out, c * times) if is_last else (batch, c * times, out, out), element)

    def peer(x: Any, w: Any) -> Any:
        found = F.conv2d(x.movedim(-1, 1) if is_last else x, w[:, None], None, step, border, 1, c)
        return found.movedim(1, -1) if is_last else found

    text = f"{batch} x {c} x {n} x {n}, {times} of {taps} by {step}{', channels last' if is_last else ''}"
    return Drawn(text, [x, w], y, peer)


def local(chance: Random) -> Drawn:
    """Windows of a row whose weights are those of their place."""
    batch, c, o = chance.choice((4, 16, 32)), extent(chance, 2, 16), extent(chance, 2, 24)
    n, taps = extent(chance, 12, 200), chance.choice((2, 3, 5))
    x, w = input_of("x", batch, c, n), input_of("w", n - taps + 1, o, c, taps)
    y = te.compute(
        (batch, o, n - taps + 1), lambda b, f, i: te.sum(lambda k, u: x[b, k, i + u] * w[i, f, k, u])
    )  # fmt: skip

    def peer(x: Any, w: Any) -> Any:
        return torch.einsum("bknu,nfku->bfn", x.unfold(2, taps, 1), w)

    return Drawn(f"{batch} x {c} x {n} to {o}, {taps} taps", [x, w], y, peer)


def einsum(chance: Random) -> Drawn:
    """Products of tensors of three and four axes, some of which only one of them has, single or double."""
    texts = (
        "bhik,bhjk->bhij", "bhij,bhjk->bhik", "bihk,bjhk->bhij", "bik,kj->bij", "ik,bkj->bij", "bik,bk->bi",
        "bi,bj->bij", "i,j->ij", "ik,k->i", "ki,k->i", "k,k->", "bk,bk->b", "ijk,k->ij", "ijk,i->jk", "ijk,jl->ilk",
        "abk,kl->bla", "bkij,bkl->blij", "ik,il->kl",
    )  # fmt: skip
    text, dtype = chance.choice(texts), chance.choice(("float32", "float32", "float64"))
    given, _, result = text.partition("->")
    parts = given.split(",")
    few = len(set(given)) > 4
    sizes = {n: extent(chance, 2, 12 if n in "abh" else 60 if few else 600) for n in sorted(set(given) - {","})}
    tensors = [te.placeholder(tuple(sizes[n] for n in p), dtype, name=f"x{k}") for k, p in enumerate(parts)]
    inside = [n for n in sizes if n not in result]

    def element(*at: Any) -> Any:
        def term(*loops: Any) -> Any:
            where = dict(zip(result, at, strict=True)) | dict(zip(inside, loops, strict=True))
            first, second = (t[tuple(where[n] for n in p)] for t, p in zip(tensors, parts, strict=True))
            return first * second

        return te.sum(taking(len(inside), term)) if inside else term()

    y = te.compute(tuple(sizes[n] for n in result), element)
    told = f"{text}: {', '.join(f'{n} {e}' for n, e in sizes.items())}, {dtype}"
    single = dtype == "float32"  # JAX has no doubles unless it is told so for the whole process
    made = moved(told, tensors, y, lambda *a: torch.einsum(text, *a), lambda jnp, *a: jnp.einsum(text, *a))
    return made if single else Drawn(told, tensors, y, made.peer)


def symmetric(chance: Random) -> Drawn:
    """A matrix by itself: Gram matrices, covariances, squared distances of points."""
    n, k = extent(chance, 4, 300), extent(chance, 3, 300)
    x, kind = input_of("x", n, k), chance.choice(("rows", "columns", "covariance", "distances"))
    if kind == "rows":
        return moved(f"rows of {n} x {k}", [x], x @ x.T, lambda x: x @ x.T, lambda jnp, x: x @ x.T)
    if kind == "columns":
        return moved(f"columns of {n} x {k}", [x], x.T @ x, lambda x: x.T @ x, lambda jnp, x: x.T @ x)
    if kind == "covariance":
        apart = x - x.mean(0, keepdims=True)
        y = te.compute((k, k), lambda i, j: te.sum(lambda r: apart[r, i] * apart[r, j]) / (n - 1))
        return moved(f"covariance of {n} x {k}", [x], y, lambda x: torch.cov(x.T), lambda jnp, x: jnp.cov(x.T))
    y = te.compute((n, n), lambda i, j: te.sum(lambda c: (x[i, c] - x[j, c]) * (x[i, c] - x[j, c])))

    def apart_of(x: Any) -> Any:
        return ((x[:, None] - x[None]) ** 2).sum(-1)

    return moved(f"distances of {n} x {k}", [x], y, apart_of, lambda jnp, x: apart_of(x))


def layer(chance: Random) -> Drawn:
    """Two linear layers with something between them, with or without a norm before."""
    batch, sizes = extent(chance, 1, 256), [extent(chance, 8, 256) for _ in range(3)]
    name = chance.choice(("relu", "gelu", "tanh", "silu"))
    is_normed = chance.random() < 0.5
    x, w, v = input_of("x", batch, sizes[0]), input_of("w", sizes[1], sizes[0]), input_of("v", sizes[2], sizes[1])
    b, d = input_of("b", sizes[1]), input_of("d", sizes[2])
    scale = 1 / math.sqrt(sizes[0])
    start = te.ops.layer_norm(x, sizes[0]) if is_normed else x
    hidden = te.compute((batch, sizes[1]), lambda i, j: te.sum(lambda k: start[i, k] * w[j, k]) * scale + b[j])
    between = {"relu": te.relu, "gelu": te.ops.gelu, "tanh": te.tanh, "silu": lambda h: h * te.sigmoid(h)}[name](hidden)
    y = te.compute((batch, sizes[2]), lambda i, j: te.sum(lambda k: between[i, k] * v[j, k]) + d[j])

    def peer(x: Any, w: Any, b: Any, v: Any, d: Any) -> Any:
        start = F.layer_norm(x, x.shape[-1:]) if is_normed else x
        return F.linear(getattr(torch if name == "tanh" else F, name)(F.linear(start, w) * scale + b), v, d)

    text = f"{batch} x {' x '.join(map(str, sizes))}, {name}{', normed' if is_normed else ''}"
    return Drawn(text, [x, w, b, v, d], y, peer)


def complex_product(chance: Random) -> Drawn:
    """Products of complex matrices, as real and imaginary parts."""
    m, n, k = extent(chance, 4, 150), extent(chance, 4, 150), extent(chance, 4, 150)
    a, b = input_of("a", 2, m, k), input_of("b", 2, k, n)

    def element(part: Any, i: Any, j: Any) -> Any:
        real = te.sum(lambda c: a[0, i, c] * b[0, c, j] - a[1, i, c] * b[1, c, j])
        return te.select(part == 0, real, te.sum(lambda c: a[0, i, c] * b[1, c, j] + a[1, i, c] * b[0, c, j]))

    def peer(a: Any, b: Any) -> Any:
        found = torch.complex(a[0], a[1]) @ torch.complex(b[0], b[1])
        return torch.stack((found.real, found.imag))

    return Drawn(f"{m} x {k} by {k} x {n}", [a, b], te.compute((2, m, n), element), peer)


def cross_entropy(chance: Random) -> Drawn:
    """The mean log-likelihood of labels under a linear layer."""
    n, k, classes = extent(chance, 4, 400), extent(chance, 4, 200), extent(chance, 2, 400)
    x, w, labels = input_of("x", n, k), input_of("w", classes, k), te.placeholder((n,), "int32", name="labels")
    given = np.random.default_rng(chance.randrange(1 << 30)).integers(0, classes, n, dtype=np.int32)
    logits = te.compute((n, classes), lambda i, j: te.sum(lambda c: x[i, c] * w[j, c]) / math.sqrt(k), name="logits")
    y = te.ops.cross_entropy(logits, labels)

    def peer(x: Any, w: Any, labels: Any) -> Any:
        return F.cross_entropy(x @ w.T / math.sqrt(k), labels.long())

    return Drawn(f"{n} x {k}, {classes} classes", [x, w, labels], y, peer, {labels: given})
