"""Workloads that frameworks make of many ready-made operations: slicing and sampling grids, image filters, histograms.

Peers are the shortest ways that PyTorch and JAX have, which is one operation where they have one (`grid_sample`).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

import tedsl as te
from benchmarks.workload import Workload, both, floats, tensor

__all__ = ["bilateral_arrays", "imaging", "sliced", "sliced_in_torch"]

_RANDOM = np.random.default_rng(1)
SIZE, CELLS, DEPTH, CHANNELS = 512, 16, 8, 12


def imaging() -> Iterator[Workload]:
    """Every workload of this module, one after another."""
    yield from _bilateral()
    yield from _sampling()
    yield from _unsharp()
    yield from _histogram()
    yield from _steps()


def _uniform(low: float, high: float, *shape: int) -> Any:
    return _RANDOM.uniform(low, high, shape).astype(np.float32)


def _off_integers(low: int, high: int, *shape: int) -> Any:
    """Numbers well between integers, where all sides agree which two are next to them and what the derivative is."""
    return (_RANDOM.integers(low, high, shape) + _RANDOM.uniform(0.01, 0.99, shape)).astype(np.float32)


# ------------------------------------------------------------------------------------------------- bilateral slicing


def sliced(grid: te.Tensor, guide: te.Tensor) -> te.Tensor:
    """A coarse grid of coefficients, linear between cells in x, y and in a guide image: HDRNet's layer."""
    (channels, depth, _, cells), (side, _) = grid.shape, guide.shape
    pixels = side // cells

    def sides(i: Any, p: int) -> tuple[Any, Any]:
        """The cell on side `p` of a pixel and its share: pixels lie between the centres of two cells."""
        far = (te.cast((i - pixels // 2) % pixels, "float32") + 0.5) / pixels
        return (i - pixels // 2) // pixels + p, far if p else 1.0 - far

    def body(c: Any, i: Any, j: Any) -> Any:
        z = guide[i, j] * depth - 0.5
        low, far = te.cast(te.floor(z), "int32"), z - te.floor(z)
        total: Any = 0.0
        for p, q in ((0, 0), (0, 1), (1, 0), (1, 1)):
            (y, wy), (x, wx) = sides(i, p), sides(j, q)
            near = grid.at(c, low, y, x, mode="clamp") * (1.0 - far)
            total = total + wy * wx * (near + grid.at(c, low + 1, y, x, mode="clamp") * far)
        return total

    made: te.Tensor = te.compute((channels, side, side), body, name="sliced")
    return made


@functools.cache
def _along(side: int, device: Any) -> Any:
    """Where the pixels of a row lie, as grid_sample counts."""
    return (2 * torch.arange(side, dtype=torch.float32, device=device) + 1) / side - 1


def sliced_in_torch(grid: Any, guide: Any) -> Any:
    """The same by one operation of PyTorch."""
    along = _along(guide.shape[0], guide.device)
    rows, columns = along[:, None].expand(guide.shape), along[None, :].expand(guide.shape)
    at = torch.stack([columns, rows, 2 * guide - 1], -1)[None, None]
    return F.grid_sample(grid[None], at, padding_mode="border", align_corners=False)[0, :, 0]


def bilateral_arrays(size: int, cells: int, depth: int, channels: int) -> tuple[list[te.Tensor], list[Any]]:
    """The grid and the guide: tensors, and arrays for them."""
    grid, guide = tensor("grid", channels, depth, cells, cells), tensor("guide", size, size)
    return [grid, guide], [*floats([grid]), _uniform(0, 1, size, size)]


def _bilateral() -> Iterator[Workload]:
    inputs, arrays = bilateral_arrays(SIZE, CELLS, DEPTH, CHANNELS)

    def jax_peer(grid: Any, guide: Any) -> Any:
        import jax.numpy as jnp

        cell = (jnp.arange(SIZE) + 0.5) * (CELLS / SIZE) - 0.5
        rows, columns = jnp.broadcast_to(cell[:, None], (SIZE, SIZE)), jnp.broadcast_to(cell[None, :], (SIZE, SIZE))
        return _map_coordinates(grid, [guide * DEPTH - 0.5, rows, columns], "nearest")

    yield from both("imaging", "bilateral slicing", 5, inputs, sliced(*inputs), sliced_in_torch, jax_peer, arrays)


def _map_coordinates(planes: Any, at: Any, mode: str) -> Any:
    import jax
    from jax.scipy.ndimage import map_coordinates

    return jax.vmap(lambda plane: map_coordinates(plane, at, order=1, mode=mode))(planes)


# ---------------------------------------------------------------------------------------------------- grid sampling


def _sampling() -> Iterator[Workload]:
    """Bilinear samples of a picture at places that are data, zero outside: a warp."""
    image, at = tensor("image", 3, SIZE, SIZE), tensor("at", SIZE, SIZE, 2)

    def body(c: Any, i: Any, j: Any) -> Any:
        y, x = at[i, j, 0], at[i, j, 1]
        top, left = te.cast(te.floor(y), "int32"), te.cast(te.floor(x), "int32")
        fy, fx = y - te.floor(y), x - te.floor(x)
        taps = [(0, 0, (1 - fy) * (1 - fx)), (0, 1, (1 - fy) * fx), (1, 0, fy * (1 - fx)), (1, 1, fy * fx)]
        return sum(image.at(c, top + p, left + q, mode="zero") * w for p, q, w in taps)

    warped = te.compute((3, SIZE, SIZE), body, name="warped")

    def torch_peer(image: Any, at: Any) -> Any:
        places = 2.0 * at.flip(2) / (SIZE - 1.0) - 1.0
        return F.grid_sample(image[None], places[None], align_corners=True)[0]

    def jax_peer(image: Any, at: Any) -> Any:
        return _map_coordinates(image, [at[..., 0], at[..., 1]], "constant")

    i, j = np.meshgrid(np.arange(SIZE), np.arange(SIZE), indexing="ij")
    around = np.stack([i, j], -1).astype(np.float32) + _off_integers(-4, 4, SIZE, SIZE, 2)
    # PyTorch scales the places to [-1, 1] and back, which costs digits of the weights.
    yield from both(
        "imaging", "grid sampling", 5, [image, at], warped, torch_peer, jax_peer, [*floats([image]), around]
    )


# --------------------------------------------------------------------------------------------------- unsharp masking


def _unsharp() -> Iterator[Workload]:
    """Brightness sharpened by what a blur of seven by seven taps takes away; colours kept by their ratio to it."""
    taps = np.exp(-(np.arange(-3.0, 4.0) ** 2) / 4.5)
    weights = [float(w) for w in taps / taps.sum()]
    side = 1024
    x = tensor("x", 3, side, side)
    shape = (side, side)
    grey = te.compute(shape, lambda i, j: 0.299 * x[0, i, j] + 0.587 * x[1, i, j] + 0.114 * x[2, i, j], name="grey")
    down = te.compute(
        shape, lambda i, j: sum(w * grey.at(i + k - 3, j, mode="clamp") for k, w in enumerate(weights)), name="down"
    )
    blurred = te.compute(
        shape, lambda i, j: sum(w * down.at(i, j + k - 3, mode="clamp") for k, w in enumerate(weights)), name="blurred"
    )
    ratio = te.compute(shape, lambda i, j: (2.0 * grey[i, j] - blurred[i, j]) / grey[i, j], name="ratio")
    sharp = te.compute((3, side, side), lambda c, i, j: ratio[i, j] * x[c, i, j], name="sharp")
    column = torch.tensor(weights).reshape(1, 1, 7, 1)

    def torch_peer(x: Any) -> Any:
        grey = (0.299 * x[0] + 0.587 * x[1] + 0.114 * x[2])[None, None]
        down = F.conv2d(F.pad(grey, (0, 0, 3, 3), mode="replicate"), column)
        blurred = F.conv2d(F.pad(down, (3, 3, 0, 0), mode="replicate"), column.transpose(2, 3))
        return ((2 * grey - blurred) / grey)[0] * x

    def jax_peer(x: Any) -> Any:
        import jax.numpy as jnp

        grey = 0.299 * x[0] + 0.587 * x[1] + 0.114 * x[2]
        tall = jnp.pad(grey, ((3, 3), (0, 0)), mode="edge")
        down = sum(w * tall[k : k + side] for k, w in enumerate(weights))
        wide = jnp.pad(down, ((0, 0), (3, 3)), mode="edge")
        blurred = sum(w * wide[:, k : k + side] for k, w in enumerate(weights))
        return (2 * grey - blurred) / grey * x

    arrays = [_uniform(0.1, 1, 3, side, side)]
    yield from both("imaging", "unsharp mask", 5, [x], sharp, torch_peer, jax_peer, arrays)


# --------------------------------------------------------------------------------------------------------- histogram


def _histogram() -> Iterator[Workload]:
    """Weights of a million pixels, each shared between the two nearest of 64 bins."""
    count, bins = 1 << 20, 64
    x = tensor("x", count)
    i, side = te.reduce_axis(count, name="i"), te.reduce_axis(2, name="side")
    place = te.cast(te.floor(x[i]), "int32") + side
    share = 1.0 - te.abs(x[i] - te.cast(place, "float32"))
    histogram = te.scatter((bins,), [i, side], (place,), share, name="histogram")

    def torch_peer(x: Any) -> Any:
        low = x.floor()
        far, place = x - low, low.long()
        return torch.zeros(bins, device=x.device).index_add(0, place, 1 - far).index_add(0, place + 1, far)

    def jax_peer(x: Any) -> Any:
        import jax.numpy as jnp

        low = jnp.floor(x)
        far, place = x - low, low.astype(jnp.int32)
        return jnp.zeros(bins).at[place].add(1 - far).at[place + 1].add(far)

    yield from both(
        "scatters", "soft histogram", 1.2, [x], histogram, torch_peer, jax_peer, [_off_integers(0, bins - 1, count)]
    )


# --------------------------------------------------------------------------------------------- ten steps of a stencil


def _steps() -> Iterator[Workload]:
    side, steps = 1024, 10
    modes = {
        "zero": ("constant", "constant"), "clamp": ("replicate", "edge"),
        "reflect": ("reflect", "reflect"), "wrap": ("circular", "wrap"),
    }  # fmt: skip
    kernel = torch.full((1, 1, 3, 3), 1 / 9)
    for mode, (padding, pad) in modes.items():
        x = tensor("x", side, side)
        y = x
        for _ in range(steps):
            y = _blurred(y, mode)

        def torch_peer(x: Any, padding: str = padding) -> Any:
            y = x[None, None]
            for _ in range(steps):
                y = F.conv2d(F.pad(y, (1, 1, 1, 1), mode=padding), kernel)
            return y[0, 0]

        def jax_peer(x: Any, pad: str = pad) -> Any:
            import jax.numpy as jnp

            y = x
            for _ in range(steps):
                wide = jnp.pad(y, 1, mode=pad)
                taps = [wide[u : u + side, v : v + side] for u in range(3) for v in range(3)]
                y = sum(taps[1:], taps[0]) * (1 / 9)
            return y

        yield from both("stencils", f"ten steps of 3x3 mean, {mode}", 2, [x], y, torch_peer, jax_peer, floats([x]))


def _blurred(x: te.Tensor, mode: str) -> te.Tensor:
    u, v = te.reduce_axis(3, name="u"), te.reduce_axis(3, name="v")
    made: te.Tensor = te.compute(
        x.shape, lambda i, j: te.sum(x.at(i + u - 1, j + v - 1, mode=mode), axis=(u, v)) * (1 / 9), name="blurred"
    )
    return made
