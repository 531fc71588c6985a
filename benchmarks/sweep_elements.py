"""Families of `benchmarks.sweep`: reductions, norms, chains of elements, recurrences."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import torch
import torch.nn.functional as F

import tedsl as te
from benchmarks.sweep_drawing import Drawn, extent, input_of, shape_of
from benchmarks.workload import Peer

__all__ = ["normalization", "pointwise", "recurrence", "reduction"]


def reduction(chance: Random) -> Drawn:
    """A sum, the largest, or the logarithm of a sum of exponentials over any axes of any width."""
    dims = chance.choice((1, 2, 3, 4))
    shape = shape_of(chance, dims, chance.choice((5_000, 100_000, 3_000_000)))
    axes = tuple(sorted(chance.sample(range(dims), chance.randint(1, dims))))
    x = input_of("x", *shape)
    kind = chance.choice(("sum", "mean of squares", "largest", "logsumexp"))
    ours: dict[str, Callable[[], te.Tensor]] = {
        "sum": lambda: x.sum(axes), "mean of squares": lambda: (x * x).mean(axes), "largest": lambda: x.max(axes),
        "logsumexp": lambda: x.logsumexp(axes),
    }  # fmt: skip
    peer: Peer = {
        "sum": lambda x: x.sum(axes), "mean of squares": lambda x: (x * x).mean(axes),
        "largest": lambda x: x.amax(axes), "logsumexp": lambda x: torch.logsumexp(x, axes),
    }[kind]  # fmt: skip

    def jax_peer(x: Any) -> Any:
        from jax.scipy.special import logsumexp

        if kind == "logsumexp":
            return logsumexp(x, axes)
        return x.max(axes) if kind == "largest" else peer(x)

    return Drawn(f"{kind} of {' x '.join(map(str, shape))} over {axes}", [x], ours[kind](), peer, jax=jax_peer)


def normalization(chance: Random) -> Drawn:
    """Softmax or a norm over one axis or the last two, and the log-likelihood of labels."""
    dims = chance.choice((2, 3))
    shape = shape_of(chance, dims, chance.choice((10_000, 200_000, 2_000_000)))
    axis = chance.randrange(dims)
    x = input_of("x", *shape)
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

    def jax_peer(x: Any) -> Any:
        import jax
        from jax import lax

        if kind == "softmax":
            return jax.nn.softmax(x, axis)
        if kind == "norm":
            return (x - x.mean(axis, keepdims=True)) * lax.rsqrt(x.var(axis, keepdims=True) + 1e-5)
        return x * lax.rsqrt((x * x).mean(axis, keepdims=True) + 1e-5)

    return Drawn(f"{kind} of {' x '.join(map(str, shape))} along {axis}", [x], y, peer, jax=jax_peer)


def pointwise(chance: Random) -> Drawn:
    """Chains of functions of tensors of which some lack axes."""
    dims = chance.choice((1, 2, 3))
    shape = shape_of(chance, dims, chance.choice((3_000, 100_000, 3_000_000)))
    kept = [tuple(chance.random() < 0.6 for _ in shape) for _ in range(2)]
    x = input_of("x", *shape)
    others = [
        input_of(f"y{i}", *(n if k else 1 for n, k in zip(shape, keep, strict=True))) for i, keep in enumerate(kept)
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

    def jax_peer(*arrays: Any) -> Any:
        import jax.numpy as jnp

        return chain(jnp, *arrays)

    return Drawn(text, [x, *others], chain(te, x, *others), lambda *arrays: chain(torch, *arrays), jax=jax_peer)


def recurrence(chance: Random) -> Drawn:
    """A running sum along an axis, or the steps of a network with a state."""
    if chance.random() < 0.5:
        dims = chance.choice((1, 2, 3))
        shape, axis = shape_of(chance, dims, chance.choice((10_000, 500_000))), chance.randrange(dims)
        x = input_of("x", *shape)
        text = f"running sum of {shape} along {axis}"
        return Drawn(text, [x], x.cumsum(axis), lambda x: x.cumsum(axis), jax=lambda x: x.cumsum(axis))
    steps, batch, width = extent(chance, 5, 40), chance.choice((1, 4, 16)), extent(chance, 16, 128)
    x, w = input_of("x", steps, batch, width), input_of("w", width, width)

    def step(s: Any, t: Any, b: Any, j: Any) -> Any:
        before = te.sum(lambda k: s[t - 1, b, k] * w[k, j]) / width
        return te.tanh(x[t, b, j] + te.select(t == 0, 0.0, before))

    def peer(x: Any, w: Any) -> Any:
        state, found = torch.zeros(batch, width), []
        for row in x:
            state = torch.tanh(row + state @ w / width)
            found.append(state)
        return torch.stack(found)

    def jax_peer(x: Any, w: Any) -> Any:
        import jax.numpy as jnp
        from jax import lax

        def step(state: Any, row: Any) -> Any:
            state = jnp.tanh(row + state @ w / width)
            return state, state

        return lax.scan(step, jnp.zeros((batch, width)), x)[1]

    y = te.scan((steps, batch, width), step)
    return Drawn(f"network of {steps} steps, {batch} x {width}", [x, w], y, peer, jax=jax_peer)
