"""The training steps of `examples/zoo`, each beside the same step in PyTorch: pairs of calls without arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from examples.zoo import (
    convnet as cnn,
    diffusion_step as diffusion,
    gpt2_block as gpt2,
    logistic_regression as logistic,
    nerf as field,
)
from tedsl.ops import optim

__all__ = ["convnet", "diffusion_step", "gpt2_block", "logistic_regression", "nerf"]

Step = Callable[[], object]  # one training step; gives the loss before it


def logistic_regression() -> tuple[Step, Step]:
    x, y = logistic.clusters(np.random.default_rng(0))
    ours, (w, b) = logistic.initial(), _parameters(logistic.initial().values())
    points, labels = torch.from_numpy(x), torch.from_numpy(y).long()

    def step() -> object:
        nonlocal ours
        value, ours = logistic.step(ours, x, y)
        return value

    sgd = torch.optim.SGD([w, b], logistic.RATE)
    return step, _descent(sgd, lambda: F.cross_entropy(points @ w + b, labels))


def convnet() -> tuple[Step, Step]:
    random = np.random.default_rng(0)
    start, (x, y) = cnn.initial(random), cnn.pictures(random, cnn.BATCH)
    p = w1, b1, w2, b2, w3, b3 = _parameters(start)
    images, labels = torch.from_numpy(x), torch.from_numpy(y).long()

    def loss() -> torch.Tensor:
        h = F.max_pool2d(F.relu(F.conv2d(images, w1, b1, padding=1)), 2)
        h = F.max_pool2d(F.relu(F.conv2d(h, w2, b2, padding=1)), 2)
        return F.cross_entropy(F.linear(h.flatten(1), w3, b3), labels)

    return _ours(cnn.trainer(), start, x, y), _descent(torch.optim.Adam(p, 0.01), loss)


def gpt2_block() -> tuple[Step, Step]:
    random = np.random.default_rng(0)
    start, pieces = gpt2.initial(random), gpt2.pieces(random)
    p = dict(zip(gpt2.SHAPES, _parameters(start), strict=True))
    text = torch.from_numpy(pieces).long()

    def dense(name: str, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, p[name], p[name + " bias"])

    def norm(name: str, x: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x, (gpt2.WIDTH,), p[name][0], p[name][1])

    def loss() -> torch.Tensor:
        x = p["byte"][text[:, :-1]] + p["place"]
        qkv = dense("qkv", norm("norm1", x)).view(*x.shape[:2], 3, gpt2.HEADS, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        heads = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + dense("mix", heads.transpose(1, 2).reshape(x.shape))
        x = x + dense("down", F.gelu(dense("up", norm("norm2", x)), approximate="tanh"))
        scores = norm("norm3", x) @ p["byte"].T
        return F.cross_entropy(scores.transpose(1, 2), text[:, 1:])

    return _ours(gpt2.trainer(), start, pieces), _descent(torch.optim.Adam(p.values(), 0.005), loss)


def diffusion_step() -> tuple[Step, Step]:
    random = np.random.default_rng(0)
    start, data = diffusion.initial(random), diffusion.batch(random)
    p = w1, b1, w2, b2, w3, b3 = _parameters(start)
    x, t, noise = (torch.from_numpy(a) for a in data)
    table, waves = torch.from_numpy(diffusion.KEPT), torch.from_numpy(diffusion.WAVES)

    def loss() -> torch.Tensor:
        kept = table[t][:, None]
        mixed = torch.sqrt(kept) * x + torch.sqrt(1 - kept) * noise
        angle = t[:, None] * waves
        h = F.silu(F.linear(torch.cat([mixed, torch.sin(angle), torch.cos(angle)], 1), w1, b1))
        return F.mse_loss(F.linear(F.silu(F.linear(h, w2, b2)), w3, b3), noise)

    return _ours(diffusion.trainer(), start, *data), _descent(torch.optim.Adam(p, 0.01), loss)


def nerf() -> tuple[Step, Step]:
    random = np.random.default_rng(0)
    start, points = field.initial(random), field.view(0.0)
    points = points[random.integers(0, len(points), field.BATCH)]
    colours = field.composite(*field.scene(points)).astype("float32")
    p = w1, b1, w2, b2, w3, b3 = _parameters(start)
    x, y, bands = (torch.from_numpy(a) for a in (points, colours, field.BANDS))

    def loss() -> torch.Tensor:
        angle = (x[..., None] * bands).flatten(2)
        h = F.relu(F.linear(torch.cat([x, torch.sin(angle), torch.cos(angle)], -1), w1, b1))
        out = F.linear(F.relu(F.linear(h, w2, b2)), w3, b3)
        thickness = F.softplus(out[..., 3]) * field.STEP
        reached = torch.exp(thickness - torch.cumsum(thickness, 1))
        share = reached * (1 - torch.exp(-thickness))
        return F.mse_loss((share[..., None] * torch.sigmoid(out[..., :3])).sum(1), y)

    return _ours(field.trainer(), start, points, colours), _descent(torch.optim.Adam(p, 0.01), loss)


def _parameters(arrays: Any) -> list[torch.Tensor]:
    return [torch.tensor(a, dtype=torch.float32, requires_grad=True) for a in arrays]


def _ours(step: optim.TrainStep, start: Sequence[Any], *data: Any) -> Step:
    state = step.start(start)

    def call() -> object:
        nonlocal state
        value, state = step(state, *data)
        return value

    return call


def _descent(optimizer: torch.optim.Optimizer, loss: Callable[[], torch.Tensor]) -> Step:
    def call() -> object:
        optimizer.zero_grad()
        value = loss()
        value.backward()
        optimizer.step()
        return value.detach()

    return call
