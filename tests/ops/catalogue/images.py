"""Filters, samples and procedures on images beside PyTorch, written with its tensors where it has no such function."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from tedsl import ops
from tests.autodiff.catalogue.entry import Entry, uniform
from tests.ops.catalogue.line import entry

__all__ = ["ENTRIES"]

PAD = {"reflect": "reflect", "clamp": "replicate", "wrap": "circular", "zero": "constant"}


def torch() -> Any:
    import torch

    return torch


def image(n: int) -> Any:
    return {"x": (4 * n + 3, 3 * n + 4)}


def stack(n: int) -> Any:
    return {"x": (2, 3, 4 * n + 2, 3 * n + 3)}


def windowed(x: Any, weights: Any, mode: str) -> Any:
    """The weights (rows, columns) over x (..., h, w)."""
    f, w = (
        torch().nn.functional,
        torch().as_tensor(np.asarray(weights), dtype=torch().float64) if isinstance(weights, np.ndarray) else weights,
    )
    p, q = w.shape[0] // 2, w.shape[1] // 2
    flat = f.pad(x.reshape(-1, 1, *x.shape[-2:]), (q, q, p, p), mode=PAD[mode])
    return f.conv2d(flat, w[None, None]).reshape(x.shape)


def bell(sigma: Any, radius: int) -> Any:
    k = torch().arange(-radius, radius + 1, dtype=torch().float64)
    w = torch().exp(-k * k / (2 * sigma * sigma))
    return w / w.sum()


def gaussian(x: Any, sigma: Any, radius: int, mode: str = "reflect") -> Any:
    w = bell(sigma, radius)
    return windowed(x, w[:, None] * w[None, :], mode)


def blur(mode: str) -> Entry:
    return entry(
        f"gaussian_blur {mode}",
        lambda x: ops.gaussian_blur(x, 0.6, mode=mode),
        stack if mode == "reflect" else image,
        lambda x: gaussian(x, 0.6, 2, mode),
    )


COLUMNS = np.outer([1.0, 2.0, 1.0], [-1.0, 0.0, 1.0])


def harris(x: Any) -> Any:
    dy, dx = windowed(x, COLUMNS.T, "reflect"), windowed(x, COLUMNS, "reflect")
    yy, yx, xx = (gaussian(v, 1.0, 2) for v in (dy * dy, dy * dx, dx * dx))
    return yy * xx - yx * yx - 0.04 * (yy + xx) ** 2


def bilateral(x: Any) -> Any:
    wide = torch().nn.functional.pad(x[None, None], (2, 2, 2, 2), mode="replicate")[0, 0]
    (h, w), total, weights = x.shape, 0.0, 0.0
    for p in range(5):
        for q in range(5):
            value = wide[p : p + h, q : q + w]
            weight = torch().exp(-((p - 2) ** 2 + (q - 2) ** 2) / (2 * 1.5**2) - (value - x) ** 2 / (2 * 0.8**2))
            total, weights = total + weight * value, weights + weight
    return total / weights


FILTERS = [
    *map(blur, PAD),
    entry("gaussian_blur of any sigma", lambda x, s: ops.gaussian_blur(x, s, radius=2), lambda n: {**image(n), "sigma": ()}, lambda x, s: gaussian(x, s, 2), feed={"sigma": uniform(0.5, 1.0)}),
    entry("box_blur", lambda x: ops.box_blur(x, 1), stack, lambda x: windowed(x, np.full((3, 3), 1 / 9), "reflect")),
    entry("unsharp_mask", lambda x: ops.unsharp_mask(x, 0.6, 1.5), image, lambda x: x + 1.5 * (x - gaussian(x, 0.6, 2))),
    entry("sobel columns", ops.sobel, stack, lambda x: windowed(x, COLUMNS, "reflect")),
    entry("sobel rows", lambda x: ops.sobel(x, axis=-2, mode="clamp"), stack, lambda x: windowed(x, COLUMNS.T, "clamp")),
    entry("harris", lambda x: ops.harris(x, radius=2), image, harris),
    entry("bilateral_filter", lambda x: ops.bilateral_filter(x, 1.5, 0.8, radius=2, mode="clamp"), image, bilateral),
]  # fmt: skip


def sampled(label: str, **options: Any) -> Entry:
    return entry(
        f"grid_sample {label}", lambda x, at: ops.grid_sample(x, at, **options), lambda n: {"x": (2, 3, 4 * n, 5 * n), "grid": (2, 5 * n, 5 * n, 2)},
        lambda x, at: torch().nn.functional.grid_sample(x, at, **{"align_corners": False, **options}), feed={"grid": uniform(-1.2, 1.2)}, affine=False,
    )  # fmt: skip


def warp(x: Any, flow: Any) -> Any:
    h, w = x.shape[2:]
    rows, columns = torch().meshgrid(torch().arange(h), torch().arange(w), indexing="ij")
    at = torch().stack([(columns + flow[:, 0]) * 2 / (w - 1) - 1, (rows + flow[:, 1]) * 2 / (h - 1) - 1], -1)
    return torch().nn.functional.grid_sample(x, at, padding_mode="border", align_corners=True)


def bilateral_slice(grid: Any, guide: Any) -> Any:
    """Three-dimensional samples at the centres of the pixels."""
    _, h, w = guide.shape
    rows, columns = ((torch().arange(s, dtype=torch().float64) + 0.5) * 2 / s - 1 for s in (h, w))
    y, x = torch().meshgrid(rows, columns, indexing="ij")
    at = torch().stack([x.expand(guide.shape), y.expand(guide.shape), guide * 2 - 1], -1)[:, None]
    return torch().nn.functional.grid_sample(grid, at, padding_mode="border", align_corners=False)[:, :, 0]


def bilateral_splat(x: Any, guide: Any) -> Any:
    """Hats of every depth times the pixels, summed by cells of 2 x 3."""
    z = (guide * 4 - 0.5).clamp(0.0, 3.0)
    hats = torch().clamp(1.0 - (z[:, None] - torch().arange(4.0, dtype=torch().float64)[:, None, None]).abs(), min=0.0)
    product = x[:, :, None] * hats[:, None]
    n, c, d, h, w = product.shape
    return product.reshape(n, c, d, h // 2, 2, w // 3, 3).sum((4, 6))


SAMPLES = [
    sampled("zeros"), sampled("border", padding_mode="border"), sampled("corners", align_corners=True), sampled("nearest", mode="nearest"),
    entry("warp", ops.warp, lambda n: {"x": (2, 3, 4 * n, 5 * n), "flow": (2, 2, 4 * n, 5 * n)}, warp, affine=False),
    entry("bilateral_slice", ops.bilateral_slice, lambda n: {"grid": (2, 3, 4, n + 1, n + 2), "guide": (2, 4 * n + 1, 5 * n)}, bilateral_slice,
          feed={"guide": uniform(0.0, 1.0)}, affine=False),
    entry("bilateral_splat", lambda x, g: ops.bilateral_splat(x, g, (2, 3), 4), lambda n: {"x": (2, 3, 4 * n, 6 * n), "guide": (2, 4 * n, 6 * n)}, bilateral_splat,
          feed={"guide": uniform(0.13, 0.87)}),
]  # fmt: skip


def resized(x: Any, size: Any = None) -> Any:
    """Half of an image by (1, 3, 3, 1) / 8 along each axis, or twice of it bilinearly; x (k, h, w)."""
    f, w = torch().nn.functional, torch().tensor([1.0, 3.0, 3.0, 1.0], dtype=torch().float64) / 8
    if size is None:
        return f.conv2d(f.pad(x[:, None], (1, 2, 1, 2), mode="replicate"), (w[:, None] * w)[None, None], stride=2)[
            :, 0, : (x.shape[1] + 1) // 2, : (x.shape[2] + 1) // 2
        ]
    return f.interpolate(x[:, None], scale_factor=2, mode="bilinear", align_corners=False)[:, 0, : size[0], : size[1]]


def local_laplacian(
    x: Any, levels: int = 3, count: int = 4, alpha: float = 0.7, beta: float = 0.9, sigma: float = 0.3
) -> Any:
    v = torch().arange(count, dtype=torch().float64)[:, None, None] / (count - 1)
    d = x - v
    bands, guides = [v + beta * d + alpha * d * torch().exp(-d * d / (2 * sigma**2))], [x[None]]
    for _ in range(levels - 1):
        bands.append(resized(bands[-1]))
        guides.append(resized(guides[-1]))
    laplacian = [a - resized(b, a.shape[1:]) for a, b in pairwise(bands)] + bands[-1:]
    result = None
    for guide, band in zip(guides[::-1], laplacian[::-1], strict=True):
        at = guide[0] * (count - 1)
        low = at.detach().floor().long().clamp(0, count - 2)
        t = at - low
        detail = band.gather(0, low[None])[0] * (1 - t) + band.gather(0, low[None] + 1)[0] * t
        result = detail if result is None else detail + resized(result[None], detail.shape)[0]
    return result


def demosaic(x: Any) -> Any:
    """Each colour's pixels alone, and sums of neighbours over the counts of them."""
    wide = torch().nn.functional.pad(x[None, None], (1, 1, 1, 1), mode="reflect")[0, 0]
    i, j = torch().meshgrid(torch().arange(-1, x.shape[0] + 1), torch().arange(-1, x.shape[1] + 1), indexing="ij")
    kinds = {0: (i % 2 == 0) & (j % 2 == 1), 1: (i + j) % 2 == 0, 2: (i % 2 == 1) & (j % 2 == 0)}  # GRBG
    cross, full = np.array([[0.0, 1, 0], [1, 0, 1], [0, 1, 0]]), np.ones((3, 3))
    found = []
    for colour, own in kinds.items():
        mask = own.double()
        near = [windowed(v, cross if colour == 1 else full, "zero")[1:-1, 1:-1] for v in (wide * mask, mask)]
        found.append(torch().where(own[1:-1, 1:-1], x, near[0] / near[1].clamp(min=1.0)))
    return torch().stack(found)


def distance(x: Any, square: bool) -> Any:
    h, w = x.shape
    rows, columns = (torch().arange(s, dtype=torch().float64) for s in (h, w))
    dy, dx = rows[:, None] - rows, columns[:, None] - columns
    apart = (
        (dy**2)[:, None, :, None] + (dx**2)[None, :, None, :]
        if square
        else dy.abs()[:, None, :, None] + dx.abs()[None, :, None, :]
    )
    return (apart + x).flatten(2).min(2)[0]


PROCEDURES = [
    entry("local_laplacian", lambda x: ops.local_laplacian(x, 3, 4, 0.7, 0.9, 0.3), lambda n: {"x": (4 * n + 2, 4 * n + 4)}, local_laplacian, feed={"x": uniform(0.02, 0.98)}, affine=False),
    entry("demosaic", lambda x: ops.demosaic(x, "GRBG"), lambda n: {"x": (4 * n, 4 * n + 2)}, demosaic),
    entry("soft_histogram", lambda x: ops.soft_histogram(x, 5, -1.0, 1.5), lambda n: {"x": (5 * n, 4)},
          lambda x: torch().clamp(1 - ((x + 1.0) * 2.0 - 0.5 - torch().arange(5.0, dtype=torch().float64)[:, None, None]).abs(), min=0.0).sum((1, 2))),
    entry("distance_field taxicab", ops.distance_field, lambda n: {"x": (4 * n, 3 * n + 1)}, lambda x: distance(x, False)),
    entry("distance_field squared", lambda x: ops.distance_field(x, "squared"), lambda n: {"x": (4 * n, 3 * n + 1)}, lambda x: distance(x, True)),
]  # fmt: skip

ENTRIES = [*FILTERS, *SAMPLES, *PROCEDURES]
