"""Scans, scatters of rows, and one step of a stencil."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

import tedsl as te
from benchmarks.workload import Workload, floats, tensor

__all__ = ["recurrences", "scatters", "stencils"]

_RANDOM = np.random.default_rng(0)


def recurrences() -> Iterator[Workload]:
    """Cumulative sums and a filter whose result goes into its next step."""
    x = tensor("x", 1024, 1024)
    down = te.scan((1024, 1024), lambda s, t, i: te.select(t == 0, x[0, i], s[t - 1, i] + x[t, i]), axis=0)
    along = te.scan((1024, 1024), lambda s, i, t: te.select(t == 0, x[i, 0], s[i, t - 1] + x[i, t]), axis=1)
    for axis, y in enumerate((down, along)):

        def peer(x: Any, axis: int = axis) -> Any:
            return x.cumsum(axis)

        yield Workload("scans", f"cumulative sum, axis {axis}", 1.5, [x], [y], floats([x]), peer, peer, peer)
    decay = te.scan((1024, 1024), lambda s, t, i: te.select(t == 0, x[0, i], 0.9 * s[t - 1, i] + x[t, i]), axis=0)
    yield Workload("scans", "IIR filter, axis 0", 1.5, [x], [decay], floats([x]), _torch_filter, _jax_filter)


def _torch_filter(x: Any) -> Any:
    y = torch.empty_like(x)
    y[0] = x[0]
    for t in range(1, len(x)):
        torch.add(x[t], y[t - 1], alpha=0.9, out=y[t])
    return y


def _jax_filter(x: Any) -> Any:
    import jax
    import jax.numpy as jnp

    def step(before: Any, row: Any) -> tuple[Any, Any]:
        now = 0.9 * before + row
        return now, now

    return jax.lax.scan(step, jnp.zeros(x.shape[1]), x)[1]


def scatters() -> Iterator[Workload]:
    """What a table of words gets back from the rows that were read."""
    rows, width, words = 8192, 128, 10000
    index: te.Tensor = te.placeholder((rows,), "int32", name="index")
    g = tensor("g", rows, width)
    i, j = te.reduce_axis(rows, name="i"), te.reduce_axis(width, name="j")
    table = te.scatter((words, width), axes=[i, j], index=(index[i], j), value=g[i, j], op="add")
    places = _RANDOM.integers(0, words, rows).astype(np.int32)

    def torch_peer(index: Any, g: Any) -> Any:
        return torch.zeros(words, width).index_add_(0, index, g)

    def jax_peer(index: Any, g: Any) -> Any:
        import jax.numpy as jnp

        return jnp.zeros((words, width)).at[index].add(g)

    arrays = [places, *floats([g])]
    yield Workload("scatters", "embedding gradient", 1.2, [index, g], [table], arrays, torch_peer, jax_peer)


def stencils() -> Iterator[Workload]:
    """The mean of nine neighbours, each way to go on past the border."""
    x = tensor("x", 2048, 2048)
    u, v = te.reduce_axis(3, name="u"), te.reduce_axis(3, name="v")
    kernel = torch.full((1, 1, 3, 3), 1 / 9)
    modes = {
        "zero": ("constant", "constant"), "clamp": ("replicate", "edge"),
        "reflect": ("reflect", "reflect"), "wrap": ("circular", "wrap"),
    }  # fmt: skip
    for mode, (padding, pad) in modes.items():
        y = te.compute(
            (2048, 2048),
            lambda i, j, mode=mode: te.sum(x.at(i + u - 1, j + v - 1, mode=mode), axis=(u, v)) * (1 / 9),
            name="blurred",
        )

        def torch_peer(x: Any, padding: str = padding) -> Any:
            return F.conv2d(F.pad(x[None, None], (1, 1, 1, 1), mode=padding), kernel)[0, 0]

        def jax_peer(x: Any, pad: str = pad) -> Any:
            import jax.numpy as jnp

            wide, side = jnp.pad(x, 1, mode=pad), x.shape[0]
            taps = [wide[u : u + side, v : v + side] for u in range(3) for v in range(3)]
            return sum(taps[1:], taps[0]) * (1 / 9)

        yield Workload("stencils", f"3x3 mean, {mode}", 2.0, [x], [y], floats([x]), torch_peer, jax_peer)
