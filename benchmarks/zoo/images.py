"""Five programs of examples/zoo, and the same training steps in PyTorch.

Each function gives (ours, peer): one call is one step, which returns the loss and the parameters after it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

__all__ = ["bilateral_grid_hdr", "learned_isp", "renderer", "tomography", "wave_inversion"]

Steps = tuple[Callable[[], object], Callable[[], object]]


def tomography() -> Steps:
    """A step of CGLS."""
    from examples.zoo import tomography as example

    state = example.start()[1]

    def ours() -> object:
        nonlocal state
        state = example.step(*state)
        return (state[2] ** 2).mean(), state[:1]

    size, middle = example.SIZE, (example.SIZE - 1) / 2
    angle = torch.arange(example.ANGLES)[:, None, None] * (np.pi / example.ANGLES)
    s, t = torch.arange(size)[:, None] - middle, torch.arange(size) - middle
    places = torch.stack([s * angle.cos() - t * angle.sin(), s * angle.sin() + t * angle.cos()], -1) / middle

    def project(image: Any) -> Any:
        samples = F.grid_sample(image[None, None], places.reshape(1, -1, size, 2), align_corners=True)
        return samples.reshape(example.ANGLES, size, size).sum(-1)

    image, along, rest, before = (torch.tensor(v) for v in state)
    anything = torch.zeros(size, size, requires_grad=True)
    linear = project(anything)  # its graph is the transpose, kept for all steps

    def peer() -> object:
        nonlocal image, along, rest, before
        (slope,) = torch.autograd.grad(linear, anything, rest, retain_graph=True)
        square = (slope**2).sum()
        along, before = slope + square / before * along, square
        with torch.no_grad():
            change = project(along)
        size = square / (change**2).sum()
        image, rest = image + size * along, rest - size * change
        return (rest**2).mean(), [image]

    return ours, peer


def wave_inversion() -> Steps:
    """The misfit, its gradient by the adjoint of the simulation, and a step with momentum."""
    from examples.zoo import wave_inversion as example

    truth, pulse, heard = example.experiment()
    speed, momentum = np.full_like(truth, 0.5), np.zeros_like(truth)

    def ours() -> object:
        nonlocal speed, momentum
        loss, slope = example.misfit(speed, pulse, heard)
        momentum = 0.9 * momentum + slope
        speed = speed - 0.004 * momentum / np.abs(momentum).max()
        return loss, [speed]

    down, right = torch.tensor(example.RING).long()
    sources = torch.zeros(example.SHOTS, example.SIZE, example.SIZE)
    first = torch.arange(example.SHOTS) * (example.EARS // example.SHOTS)
    sources[torch.arange(example.SHOTS), down[first], right[first]] = 1.0
    pulses, target = torch.tensor(pulse), torch.tensor(heard)

    def record(speed: Any) -> Any:
        before = now = torch.zeros_like(sources)
        recorded, square = [], speed**2
        for strength in pulses:
            wide = F.pad(now, (1, 1, 1, 1))
            around = wide[:, :-2, 1:-1] + wide[:, 2:, 1:-1] + wide[:, 1:-1, :-2] + wide[:, 1:-1, 2:]
            before, now = now, 2 * now - before + square * (around - 4 * now) + strength * sources
            recorded.append(now[:, down, right])
        return torch.stack(recorded)

    param, velocity = torch.tensor(speed, requires_grad=True), torch.zeros(speed.shape)

    def peer() -> object:
        param.grad = None
        loss = ((record(param) - target) ** 2).mean()
        loss.backward()
        with torch.no_grad():
            velocity.mul_(0.9).add_(param.grad)
            param.sub_(0.004 * velocity / velocity.abs().max())
        return loss.detach(), [param]

    return ours, peer


def renderer() -> Steps:
    """Discs over one another, by Adam."""
    from examples.zoo import renderer as example

    step, state, target = example.trainer()
    place, radius, colour = params = _parameters(example.arrays()[1])
    i, j = torch.meshgrid(*[(torch.arange(example.SIZE) + 0.5) / example.SIZE] * 2, indexing="ij")
    wanted = torch.tensor(target)

    def loss() -> Any:
        away = torch.hypot(i - place[:, 0, None, None], j - place[:, 1, None, None])
        covers = torch.sigmoid((radius[:, None, None] - away) / example.SOFT)
        canvas = torch.ones_like(wanted)
        for cover, shade in zip(covers, colour):
            canvas = canvas + cover * (shade[:, None, None] - canvas)
        return ((canvas - wanted) ** 2).mean()

    return _ours(step, state, target), _by_adam(loss, params, 0.01)


def learned_isp() -> Steps:
    """A camera pipeline, by Adam: a convolution of stride 2 for each place in the pattern."""
    from examples.zoo import learned_isp as example

    mosaic, picture = example.photograph()
    step, state = example.trainer()
    gains, filters, matrix, gamma = params = _parameters(example.start())
    raw, wanted = torch.tensor(mosaic), torch.tensor(picture)
    pattern = torch.arange(example.SIZE)[:, None] % 2 + torch.arange(example.SIZE) % 2

    def loss() -> Any:
        balanced = F.pad((gains[pattern] * raw)[None, None], (example.REACH,) * 4, mode="reflect")
        half, taps = example.SIZE - 2, example.TAPS
        phases = [
            F.conv2d(balanced[..., a : a + half + taps, b : b + half + taps], filters[a, b, :, None], stride=2)
            for a in (0, 1)
            for b in (0, 1)
        ]
        full = F.pixel_shuffle(torch.stack(phases, 2).flatten(1, 2), 2)[0]
        mixed = torch.einsum("ck,kij->cij", matrix, full)
        return ((mixed.clamp(min=1e-3) ** (1 / gamma) - wanted) ** 2).mean()

    return _ours(step, state, mosaic, picture), _by_adam(loss, params, 0.01)


def bilateral_grid_hdr() -> Steps:
    """A bilateral grid sliced by a guide, by Adam: `grid_sample` in three dimensions."""
    from examples.zoo import bilateral_grid_hdr as example

    image, painted = example.pictures()
    step, state = example.trainer()
    grid, look = params = _parameters(example.start())
    seen, wanted = torch.tensor(image), torch.tensor(painted)
    pixel = torch.cat([seen, torch.ones_like(seen[:1])])
    y, x = torch.meshgrid(*[(torch.arange(example.SIZE) + 0.5) * (2 / example.SIZE) - 1] * 2, indexing="ij")

    def loss() -> Any:
        guide = torch.sigmoid((look[:, None, None] * pixel).sum(0))
        places = torch.stack([x, y, 2 * guide - 1], -1)[None, None]
        sliced = F.grid_sample(grid.flatten(0, 1)[None], places, padding_mode="border", align_corners=False)
        affine = sliced.reshape(3, 4, example.SIZE, example.SIZE)
        return (((affine * pixel).sum(1) - wanted) ** 2).mean()

    return _ours(step, state, image, painted), _by_adam(loss, params, 0.03)


def _ours(step: Any, state: Any, *data: Any) -> Callable[[], object]:
    def run() -> object:
        nonlocal state
        loss, state = step(state, *data)
        return loss, state.params

    return run


def _parameters(arrays: Sequence[Any]) -> list[Any]:
    return [torch.tensor(v, dtype=torch.float32, requires_grad=True) for v in arrays]


def _by_adam(loss: Callable[[], Any], params: Sequence[Any], rate: float) -> Callable[[], object]:
    adam = torch.optim.Adam(params, rate)

    def run() -> object:
        adam.zero_grad()
        value = loss()
        value.backward()
        adam.step()
        return value.detach(), params

    return run
