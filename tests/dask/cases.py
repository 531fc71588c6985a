"""The stencils, windows and convolutions of the catalogue with arguments, small enough for any chunking."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

import tedsl as te
from tedsl import ops

__all__ = ["CASES", "Case"]


@dataclass(frozen=True)
class Case:
    """An operator, the shapes of its arrays and its static arguments."""

    op: Any
    shapes: tuple[tuple[int, ...], ...]
    static: dict[str, Any] = field(default_factory=dict)
    positive: bool = False  # values above zero

    def __str__(self) -> str:
        options = ", ".join(f"{k}={v}" for k, v in self.static.items())
        return f"{self.op.name}({'; '.join(map(str, self.shapes))}; {options})"

    def arrays(self, seed: int = 0) -> list[np.ndarray[Any, Any]]:
        """Whole numbers, so that sums in any order are the same."""
        rng = np.random.default_rng(seed)
        low = 1 if self.positive else -4
        return [rng.integers(low, 5, shape).astype("float64") for shape in self.shapes]

    def program(self) -> tuple[tuple[te.Tensor, ...], tuple[te.Tensor, ...]]:
        """Outputs and inputs."""
        inputs = tuple(te.placeholder(shape, "float64", name=f"x{k}") for k, shape in enumerate(self.shapes))
        found = self.op(*inputs, **self.static)
        return (found,) if isinstance(found, te.Tensor) else tuple(found), inputs


def _cases() -> list[Case]:
    image, line, solid = (9, 8), (2, 2, 11), (1, 2, 5, 4, 5)
    modes = ("reflect", "clamp", "wrap", "zero")
    found = [Case(ops.box_blur, (image,), {"radius": 2, "mode": m}) for m in modes]
    found += [Case(ops.gaussian_blur, (image,), {"sigma": 0.6, "mode": m}) for m in modes]
    found += [Case(ops.sobel, (image,), {"mode": m}) for m in modes]
    found += [Case(ops.harris, (image,), {"mode": m}) for m in modes]
    found += [Case(ops.unsharp_mask, (image,), {"sigma": 0.5, "mode": m}) for m in modes]
    found += [Case(ops.bilateral_filter, (image,), {"sigma_space": 0.6, "sigma_range": 1.0, "mode": m}) for m in modes]
    found += [Case(ops.heat_step, (image,), {"border": m}) for m in modes]
    found += [Case(ops.wave_step, (image, image), {"border": m}) for m in modes]
    found += [Case(ops.shallow_water_step, (image, image, image), positive=True)]
    x, w = (2, 4, 9, 8), (4, 4, 3, 3)
    options: list[dict[str, Any]] = [
        {}, {"padding": 1}, {"stride": 2, "padding": 1}, {"dilation": 2, "padding": "same"}, {"stride": (1, 3)},
        {"padding": 1, "padding_mode": "reflect"}, {"padding": 2, "padding_mode": "replicate"},
        {"padding": 1, "padding_mode": "circular"},
    ]  # fmt: skip
    found += [Case(ops.conv2d, (x, w), o) for o in options]
    found += [Case(ops.conv2d, (x, (4, 2, 3, 3)), {"groups": 2, "padding": 1})]
    found += [Case(ops.conv2d, ((2, 9, 8, 4), w, (4,)), {"layout": "NHWC", "padding": 1})]
    found += [Case(ops.depthwise_conv2d, ((2, 3, 9, 8), (3, 1, 3, 3)), {"padding": 1})]
    found += [Case(ops.conv1d, (line, (3, 2, 4)), o) for o in ({}, {"stride": 3, "padding": 2})]
    found += [Case(ops.conv3d, (solid, (2, 2, 2, 3, 2)), o) for o in ({}, {"padding": 1, "stride": 2})]
    found += [Case(ops.conv_transpose1d, (line, (2, 2, 3)), {"stride": 2})]
    found += [Case(ops.conv_transpose2d, ((1, 2, 5, 4), (2, 3, 3, 3)), o) for o in ({}, {"stride": 2, "padding": 1})]
    found += [Case(ops.conv_transpose3d, ((1, 2, 3, 2, 3), (2, 2, 2, 2, 2)), {"stride": 2})]
    return found


CASES = _cases()
