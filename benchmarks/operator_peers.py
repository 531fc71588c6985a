"""What PyTorch's users write where it has no such function: filters, samples, grids and sums, of its tensors."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F

__all__ = [
    "bilateral_filter", "bilateral_slice", "bilateral_splat", "box_blur", "channels_mean", "demosaic", "distance_field",
    "forces", "gaussian_blur", "harris", "heat", "heat_step", "local_laplacian", "nbody_step", "one_hot",
    "running_stats", "segment_max", "segment_sum", "sequence", "shallow_water_step", "sobel", "soft_histogram",
    "unsharp_mask", "warp", "wave_step",
]  # fmt: skip

Tensor = Any


# ------------------------------------------------------------------------------------------------------------- images


def _along(x: Tensor, taps: Tensor, axis: int) -> Tensor:
    """Taps over x (h, w) along one of its axes, the border reflected."""
    reach = len(taps) // 2
    margins = (reach, reach, 0, 0) if axis else (0, 0, reach, reach)
    weights = taps[None, None, None] if axis else taps[None, None, :, None]
    return F.conv2d(F.pad(x[None, None], margins, "reflect"), weights)[0, 0]


def _both(x: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    return _along(_along(x, rows, 0), columns, 1)


def _bell(sigma: float) -> Tensor:
    reach = int(4 * sigma + 0.5)
    taps = torch.exp(-(torch.arange(-reach, reach + 1.0) ** 2) / (2 * sigma * sigma))
    return taps / taps.sum()


def gaussian_blur(x: Tensor, sigma: float) -> Tensor:
    return _both(x, _bell(sigma), _bell(sigma))


def box_blur(x: Tensor, radius: int) -> Tensor:
    taps = torch.full((2 * radius + 1,), 1 / (2 * radius + 1))
    return _both(x, taps, taps)


def unsharp_mask(x: Tensor, sigma: float) -> Tensor:
    return x + (x - gaussian_blur(x, sigma))


SMOOTH, SLOPE = torch.tensor([1.0, 2.0, 1.0]), torch.tensor([-1.0, 0.0, 1.0])


def sobel(x: Tensor) -> Tensor:
    return _both(x, SMOOTH, SLOPE)


def harris(x: Tensor) -> Tensor:
    dy, dx = _both(x, SLOPE, SMOOTH), _both(x, SMOOTH, SLOPE)
    yy, yx, xx = (gaussian_blur(v, 1.0) for v in (dy * dy, dy * dx, dx * dx))
    return yy * xx - yx * yx - 0.04 * (yy + xx) ** 2


def bilateral_filter(x: Tensor, space: float, similar: float, radius: int) -> Tensor:
    """All windows as columns: seven times as fast as a sum of shifted images."""
    (h, w), side = x.shape, 2 * radius + 1
    wide = F.pad(x[None, None], (radius,) * 4, "reflect")
    values = F.unfold(wide, side)[0].view(side * side, h, w)
    away = torch.arange(-radius, radius + 1.0) ** 2
    far = (away[:, None] + away).reshape(-1, 1, 1) * (-0.5 / space**2)
    weights = torch.exp(far + (values - x) ** 2 * (-0.5 / similar**2))
    return (weights * values).sum(0) / weights.sum(0)


def demosaic(x: Tensor) -> Tensor:
    """Sums of neighbours of each colour over the counts of them, for the pattern RGGB."""
    h, w = x.shape
    wide = F.pad(x[None, None], (1,) * 4, "reflect")
    rows, columns = torch.arange(-1, h + 1)[:, None] % 2, torch.arange(-1, w + 1) % 2
    kinds = torch.stack([(rows + columns) == 0, (rows + columns) == 1, (rows + columns) == 2]).float()
    cross, full = torch.tensor([[0.0, 1, 0], [1, 0, 1], [0, 1, 0]]), torch.ones(3, 3)
    taps = torch.stack([full, cross, full])[:, None]
    sums, counts = (F.conv2d(v, taps, groups=3)[0] for v in (wide * kinds, kinds[None]))
    return torch.where(kinds[:, 1:-1, 1:-1] > 0, x, sums / counts.clamp(min=1))


def _resized(x: Tensor, size: Any = None) -> Tensor:
    """Half of images (k, h, w) by (1, 3, 3, 1) / 8 along each axis, or twice of them bilinearly."""
    if size is None:
        taps = torch.tensor([1.0, 3.0, 3.0, 1.0]) / 8
        wide = F.pad(x[:, None], (1, 2, 1, 2), "replicate")
        half = F.conv2d(F.conv2d(wide, taps[None, None, :, None], stride=(2, 1)), taps[None, None, None], stride=(1, 2))
        return half[:, 0, : (x.shape[1] + 1) // 2, : (x.shape[2] + 1) // 2]
    return F.interpolate(x[:, None], scale_factor=2, mode="bilinear")[:, 0, : size[0], : size[1]]


def local_laplacian(x: Tensor, levels: int = 4, count: int = 8, sigma: float = 0.125) -> Tensor:
    v = torch.arange(float(count))[:, None, None] / (count - 1)
    d = x - v
    bands, guides = [v + d + d * torch.exp(-d * d / (2 * sigma**2))], [x[None]]
    for _ in range(levels - 1):
        bands.append(_resized(bands[-1]))
        guides.append(_resized(guides[-1]))
    laplacian = [a - _resized(b, a.shape[1:]) for a, b in pairwise(bands)] + bands[-1:]
    result = None
    for guide, band in zip(guides[::-1], laplacian[::-1], strict=True):
        at = guide[0] * (count - 1)
        low = at.detach().floor().long().clamp(0, count - 2)
        detail = torch.lerp(band.gather(0, low[None])[0], band.gather(0, low[None] + 1)[0], at - low)
        result = detail if result is None else detail + _resized(result[None], detail.shape)[0]
    return result


def soft_histogram(x: Tensor, bins: int) -> Tensor:
    u = (x * bins - 0.5).flatten()
    low = u.detach().floor()
    t = u - low
    places = low.long() + 1  # a bin beyond each end, left out afterwards
    counts = torch.zeros(bins + 2).index_add(0, places, 1 - t).index_add(0, places + 1, t)
    return counts[1:-1]


def distance_field(x: Tensor) -> Tensor:
    """The least of x - t so far, plus t, in four directions."""
    for axis in (0, 1):
        t = torch.arange(float(x.shape[axis]))
        t = t if axis else t[:, None]
        for _ in range(2):
            x = ((x - t).cummin(axis).values + t).flip(axis)
    return x


# ------------------------------------------------------------------------------------------------------------ samples


def warp(x: Tensor, flow: Tensor) -> Tensor:
    h, w = x.shape[2:]
    rows, columns = torch.arange(float(h))[:, None], torch.arange(float(w))
    at = torch.stack([(columns + flow[:, 0]) * (2 / (w - 1)) - 1, (rows + flow[:, 1]) * (2 / (h - 1)) - 1], -1)
    return F.grid_sample(x, at, padding_mode="border", align_corners=True)


def bilateral_slice(grid: Tensor, guide: Tensor) -> Tensor:
    """Three-dimensional samples at the centres of the pixels."""
    h, w = guide.shape[1:]
    rows, columns = ((torch.arange(float(s)) + 0.5) * 2 / s - 1 for s in (h, w))
    y, x = torch.meshgrid(rows, columns, indexing="ij")
    at = torch.stack([x.expand(guide.shape), y.expand(guide.shape), guide * 2 - 1], -1)[:, None]
    return F.grid_sample(grid, at, padding_mode="border", align_corners=False)[:, :, 0]


def bilateral_splat(x: Tensor, guide: Tensor, cell: int, depth: int) -> Tensor:
    """Pixels added to the two depths nearest of their cells."""
    n, c, h, w = x.shape
    z = guide * depth - 0.5
    low = z.detach().floor()
    t = z - low
    grid = torch.zeros(n, c, depth, h // cell, w // cell)
    cells = (torch.arange(h)[:, None] // cell) * (w // cell) + torch.arange(w) // cell
    found = grid.flatten(2)
    for side, share in ((0, 1 - t), (1, t)):
        places = (low.long() + side).clamp(0, depth - 1) * (grid.shape[3] * grid.shape[4]) + cells
        places = places[:, None].expand(x.shape).flatten(2)
        found = found.scatter_add(2, places, (x * share[:, None]).flatten(2))
    return found.view(grid.shape)


# -------------------------------------------------------------------------------------------------------- simulations


def _around(u: Tensor) -> Tensor:
    return sum(torch.roll(u, away, axis) for away in (1, -1) for axis in (0, 1)) - 4 * u


def heat_step(u: Tensor, alpha: float = 0.25) -> Tensor:
    return u + alpha * _around(u)


def heat(u: Tensor, steps: int) -> Tensor:
    states = [u]
    for _ in range(steps):
        states.append(heat_step(states[-1]))
    return torch.stack(states)


def wave_step(u: Tensor, before: Tensor) -> Tensor:
    return 2 * u - before + 0.25 * _around(u)


def shallow_water_step(h: Tensor, hu: Tensor, hv: Tensor) -> tuple[Tensor, ...]:
    q = torch.stack([h, hu, hv])
    f = torch.stack([hu, hu * hu / h + 4.905 * h * h, hu * hv / h])
    g = torch.stack([hv, hu * hv / h, hv * hv / h + 4.905 * h * h])
    mean = sum(torch.roll(q, away, axis) for away in (1, -1) for axis in (1, 2)) / 4
    slopes = torch.roll(f, -1, 2) - torch.roll(f, 1, 2) + torch.roll(g, -1, 1) - torch.roll(g, 1, 1)
    return tuple((mean - 0.005 * slopes).unbind())


def forces(x: Tensor, m: Tensor, softening: float = 0.1) -> Tensor:
    apart = x[None] - x[:, None]
    pull = apart * ((apart**2).sum(-1, keepdim=True) + softening**2) ** -1.5
    return (m[:, None, None] * m[None, :, None] * pull).sum(1)


def nbody_step(x: Tensor, v: Tensor, m: Tensor) -> tuple[Tensor, Tensor]:
    moved = v + forces(x, m) / m[:, None] * 0.01
    return x + moved * 0.01, moved


# -------------------------------------------------------------------------------------------------- sums and sequences


def channels_mean(x: Tensor) -> Tensor:
    return x.mean((2, 3))


def one_hot(index: Tensor, classes: int) -> Tensor:
    return F.one_hot(index, classes).float()


def running_stats(x: Tensor, mean: Tensor, var: Tensor) -> tuple[Tensor, Tensor]:
    unbiased, batch = torch.var_mean(x, (0, 2, 3))
    return 0.9 * mean + 0.1 * batch, 0.9 * var + 0.1 * unbiased


def segment_sum(x: Tensor, ids: Tensor, count: int) -> Tensor:
    return torch.zeros(count, *x.shape[1:]).index_add(0, ids, x)


def segment_max(x: Tensor, ids: Tensor, count: int) -> Tensor:
    empty = torch.full((count, *x.shape[1:]), -math.inf)
    return empty.scatter_reduce(0, ids[:, None].expand(x.shape), x, "amax")


def sequence(name: str) -> Any:
    """The states of every step by PyTorch's layer; an LSTM has one state more at the beginning."""

    def peer(x: Tensor, *rest: Tensor) -> Tensor:
        count = 2 if name == "lstm" else 1
        states, weights = [s[None] for s in rest[:count]], rest[count:]
        start = tuple(states) if count == 2 else states[0]
        return getattr(torch, name)(x, start, weights, True, 1, 0.0, True, False, False)[0]

    return peer
