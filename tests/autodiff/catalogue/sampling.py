"""Indices that are data: embedding, histograms, grid sampling, bilateral slicing."""

from __future__ import annotations

from typing import Any

import tedsl as te
from tests.autodiff.catalogue.entry import Entry, both, in_range, tensor, uniform

__all__ = ["ENTRIES"]


def embedding(n: int) -> Any:
    table, idx = tensor("table", 7, 4 * n), tensor("idx", 6 * n, dtype="int32")
    return te.compute((6 * n, 4 * n), lambda i, j: table[idx[i], j], name="Y"), [table, idx]


def histogram(n: int) -> Any:
    """Weights summed by bin."""
    weight, idx = tensor("weight", 9 * n), tensor("idx", 9 * n, dtype="int32")
    i = te.reduce_axis(9 * n, name="i")
    return te.scatter((5,), [i], (idx[i],), weight[i], name="H"), [weight, idx]


def histogram_oracle(xp: Any, weight: Any, idx: Any) -> Any:
    return xp.stack([xp.where(idx == b, weight, 0.0).sum() for b in range(5)])


def soft_histogram(n: int) -> Any:
    """Each value goes to the two nearest bins, by distance."""
    x = tensor("x", 9 * n)
    i, side = te.reduce_axis(9 * n, name="i"), te.reduce_axis(2, name="side")
    place = te.cast(te.floor(x[i]), "int32") + side
    distance = te.abs(x[i] - te.cast(place, "float64"))
    return te.scatter((6,), [i, side], (place,), 1.0 - distance, name="H"), [x]


def soft_histogram_oracle(xp: Any, x: Any) -> Any:
    zero = xp.zeros((), dtype=xp.float64)
    return xp.stack([xp.maximum(zero, 1.0 - xp.abs(x - b)).sum() for b in range(6)])


def segment_max(n: int) -> Any:
    x, idx = tensor("x", 8 * n), tensor("idx", 8 * n, dtype="int32")
    i = te.reduce_axis(8 * n, name="i")
    return te.scatter((3,), [i], (idx[i],), x[i], op="max", init=te.full((3,), -10.0, "float64"), name="M"), [x, idx]


def grid_sample(n: int) -> Any:
    """Bilinear samples of an image of 2 channels at coordinates that are inputs, zero outside."""
    rows, columns = 5 * n, 6 * n
    image, at = tensor("image", 2, rows, columns), tensor("at", 4 * n, 3 * n, 2)

    def body(c: Any, i: Any, j: Any) -> Any:
        y, x = at[i, j, 0], at[i, j, 1]
        y0, x0 = te.cast(te.floor(y), "int32"), te.cast(te.floor(x), "int32")
        fy, fx = y - te.floor(y), x - te.floor(x)
        taps = [(0, 0, (1 - fy) * (1 - fx)), (0, 1, (1 - fy) * fx), (1, 0, fy * (1 - fx)), (1, 1, fy * fx)]
        return sum(image.at(c, y0 + p, x0 + q, mode="zero") * w for p, q, w in taps)

    return te.compute((2, 4 * n, 3 * n), body, name="Y"), [image, at]


def grid_sample_oracle(image: Any, at: Any) -> Any:
    import torch
    from torch.nn import functional

    size = torch.tensor([image.shape[2] - 1.0, image.shape[1] - 1.0], dtype=torch.float64)
    grid = 2.0 * at.flip(2) / size - 1.0
    return functional.grid_sample(image[None], grid[None], align_corners=True)[0]


def grid_sample_jax(image: Any, at: Any) -> Any:
    import jax
    import jax.numpy as jnp

    sample = lambda plane: jax.scipy.ndimage.map_coordinates(plane, [at[..., 0], at[..., 1]], order=1)  # noqa: E731
    return jnp.stack([sample(plane) for plane in image])


def bilateral_slice(n: int) -> Any:
    """HDRNet's layer: a coarse grid of coefficients read at (x, y, guide), linear in each."""
    size, cells, depth = 8 * n, 2 * n, 4
    grid, guide = tensor("grid", cells, cells, depth), tensor("guide", size, size)

    def body(i: Any, j: Any) -> Any:
        z = guide[i, j] * (depth - 1)
        z0 = te.cast(te.floor(z), "int32")
        fz = z - te.floor(z)
        total: Any = 0.0
        # A cell is 4 pixels; a pixel lies at 1/8, 3/8, 5/8, 7/8 of it and mixes the cells whose centres enclose it.
        for p in range(2):
            for q in range(2):
                y, wy = (i - 2) // 4 + p, _weight(i, p)
                x, wx = (j - 2) // 4 + q, _weight(j, q)
                low = grid.at(y, x, z0, mode="clamp") * (1.0 - fz)
                total = total + wy * wx * (low + grid.at(y, x, z0 + 1, mode="clamp") * fz)
        return total

    return te.compute((size, size), body, name="Y"), [grid, guide]


def _weight(i: Any, side: int) -> Any:
    """How much of a pixel belongs to the cell on this side: (i - 2) mod 4 counts eighths 1, 3, 5, 7 from the lower centre."""
    far = (te.cast((i - 2) % 4, "float64") * 2.0 + 1.0) / 8.0
    return far if side else 1.0 - far


def bilateral_slice_oracle(xp: Any, grid: Any, guide: Any) -> Any:
    cells, size, depth = grid.shape[0], guide.shape[0], grid.shape[2]
    i = xp.arange(size)
    far = (((i - 2) % 4) * 2.0 + 1.0) / 8.0
    z = guide * (depth - 1)
    z0 = xp.floor(z)
    fz, z0 = z - z0, z0.astype("int32") if hasattr(z0, "astype") else z0.long()
    total = 0.0
    for p, wy in ((0, 1.0 - far), (1, far)):
        for q, wx in ((0, 1.0 - far), (1, far)):
            y, x = xp.clip((i - 2) // 4 + p, 0, cells - 1), xp.clip((i - 2) // 4 + q, 0, cells - 1)
            low = grid[y[:, None], x[None, :], xp.clip(z0, 0, depth - 1)]
            high = grid[y[:, None], x[None, :], xp.clip(z0 + 1, 0, depth - 1)]
            total = total + wy[:, None] * wx[None, :] * (low * (1.0 - fz) + high * fz)
    return total


INDEX = {"idx": in_range(7)}

ENTRIES = [
    Entry("embedding", embedding, **both(lambda xp, t, i: t[i]), affine=False, feed=INDEX),
    Entry("histogram", histogram, **both(histogram_oracle), feed={"idx": in_range(5)}),
    Entry("soft histogram", soft_histogram, **both(soft_histogram_oracle), smooth=False, feed={"x": uniform(0.1, 4.9)}),
    Entry("grid sample", grid_sample, grid_sample_oracle, grid_sample_jax, affine=False, smooth=False,
          feed={"at": uniform(0.05, 3.95)}),
    Entry("bilateral slice", bilateral_slice, **both(bilateral_slice_oracle), affine=False, smooth=False,
          feed={"guide": uniform(0.05, 0.95)}),
]  # fmt: skip
