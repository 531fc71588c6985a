"""A family of the sweep: images whose few channels lie side by side, and windows that move over them."""

from __future__ import annotations

from random import Random
from typing import Any

import torch
import torch.nn.functional as F

import tedsl as te
from benchmarks.sweep_drawing import Drawn, extent, input_of

__all__ = ["pixels"]

_TORCH = {"clamp": "replicate", "reflect": "reflect", "wrap": "circular"}
_NUMPY = {"clamp": "edge", "reflect": "reflect", "wrap": "wrap"}


def pixels(chance: Random) -> Drawn:
    """A separable filter, columns or rows first, of one image or several."""
    batch, channels = chance.choice((1, 1, 4)), chance.choice((2, 3, 3, 3, 4))
    height, width, taps = extent(chance, 60, 600), extent(chance, 60, 800), chance.choice((3, 5, 9))
    mode, is_column_first = chance.choice(("clamp", "reflect", "wrap")), chance.random() < 0.5
    x, w = input_of("x", batch, height, width, channels), input_of("w", taps)
    away = taps // 2

    def filtered(x: Any, name: str, along: int) -> te.Tensor:
        def element(*at: Any) -> Any:
            def tap(k: Any) -> Any:
                return x.at(*(i + (k - away) if d == along else i for d, i in enumerate(at)), mode=mode) * w[k]

            return te.sum(tap, te.reduce_axis(taps))

        made: te.Tensor = te.compute(x.shape, element, name=name)
        return made

    order = (1, 2) if is_column_first else (2, 1)
    y = filtered(filtered(x, "first", order[0]), "second", order[1])

    def peer(x: Any, w: Any) -> Any:
        planes = F.pad(x.movedim(-1, 1), (away,) * 4, _TORCH[mode])
        kernel = torch.outer(w, w).expand(channels, 1, taps, taps)
        return F.conv2d(planes, kernel, groups=channels).movedim(1, -1)

    def jax_peer(x: Any, w: Any) -> Any:
        import jax.numpy as jnp

        padded = jnp.pad(x, ((0, 0), (away, away), (away, away), (0, 0)), _NUMPY[mode])
        first = sum(padded[:, k : k + height] * w[k] for k in range(taps))
        return sum(first[:, :, k : k + width] * w[k] for k in range(taps))

    first = "columns" if is_column_first else "rows"
    text = f"{batch} x {height} x {width} x {channels}, {taps} taps, {mode}, {first} first"
    return Drawn(text, [x, w], y, peer, jax=jax_peer)
