"""Simulations and statistics beside PyTorch."""

from __future__ import annotations

from typing import Any

from tedsl import ops
from tests.autodiff.catalogue.entry import uniform
from tests.ops.catalogue.images import PAD, torch
from tests.ops.catalogue.line import entry

__all__ = ["ENTRIES"]


def grid(n: int) -> Any:
    return {"u": (4 * n + 1, 3 * n + 2)}


def around(u: Any, border: str) -> Any:
    wide = torch().nn.functional.pad(u[None, None], (1, 1, 1, 1), mode=PAD[border])[0, 0]
    return wide[:-2, 1:-1] + wide[2:, 1:-1] + wide[1:-1, :-2] + wide[1:-1, 2:] - 4 * u


def heated(u: Any, alpha: Any = 0.2, border: str = "wrap") -> Any:
    return u + alpha * around(u, border)


def heat(u: Any) -> Any:
    states = [u]
    for _ in range(3):
        states.append(heated(states[-1]))
    return torch().stack(states)


def shallow_water(h: Any, hu: Any, hv: Any) -> Any:
    roll, q = torch().roll, torch().stack([h, hu, hv])
    f = torch().stack([hu, hu * hu / h + 4.905 * h * h, hu * hv / h])
    g = torch().stack([hv, hu * hv / h, hv * hv / h + 4.905 * h * h])
    mean = (roll(q, 1, 1) + roll(q, -1, 1) + roll(q, 1, 2) + roll(q, -1, 2)) / 4
    found = mean - 0.02 / 2 * (roll(f, -1, 2) - roll(f, 1, 2) + roll(g, -1, 1) - roll(g, 1, 1))
    return found[0], found[1], found[2]


def forces(x: Any, m: Any, softening: float = 0.1) -> Any:
    apart = x[None] - x[:, None]
    pull = apart * ((apart**2).sum(-1, keepdim=True) + softening**2) ** -1.5
    return (m[:, None, None] * m[None, :, None] * pull).sum(1)


def nbody_step(x: Any, v: Any, m: Any) -> Any:
    moved = v + forces(x, m) / m[:, None] * 0.1
    return x + moved * 0.1, moved


BODIES = {"m": uniform(0.5, 2.0)}
PHYSICS = [
    *(entry(f"heat_step {border}", lambda u, border=border: ops.heat_step(u, 0.2, border), grid, lambda u, border=border: heated(u, 0.2, border)) for border in PAD),
    entry("heat_step of any rate", ops.heat_step, lambda n: {**grid(n), "alpha": (4 * n + 1, 3 * n + 2)}, heated),
    entry("heat", lambda u: ops.heat(u, 3, 0.2), grid, heat),
    entry("wave_step", lambda u, b, c: ops.wave_step(u, b, c, "clamp"), lambda n: {**grid(n), "before": grid(n)["u"], "c": ()},
          lambda u, b, c: 2 * u - b + c * c * around(u, "clamp")),
    entry("shallow_water_step", lambda *q: ops.shallow_water_step(*q, dt=0.02), lambda n: dict.fromkeys(("h", "hu", "hv"), (3 * n + 1, 2 * n + 2)), shallow_water, feed={"h": uniform(1.0, 2.0)}),
    entry("nbody_forces", lambda x, m: ops.nbody_forces(x, m, softening=0.1), lambda n: {"x": (5 * n, 3), "m": (5 * n,)}, forces, feed=BODIES),
    entry("nbody_step", lambda *s: ops.nbody_step(*s, dt=0.1, softening=0.1), lambda n: {"x": (5 * n, 2), "v": (5 * n, 2), "m": (5 * n,)}, nbody_step, feed=BODIES),
]  # fmt: skip


def samples(n: int) -> Any:
    return {"x": (3, 8 * n, 2)}


STATISTICS = [
    entry("welford", lambda x: ops.welford(x, 1), samples, lambda x: torch().var_mean(x, 1)),
    entry("welford biased", lambda x: ops.welford(x, 1, correction=0.0), samples, lambda x: torch().var_mean(x, 1, correction=0)),
    entry("var_mean", lambda x: ops.var_mean(x, 1), samples, lambda x: torch().var_mean(x, 1)),
    entry("streaming_logsumexp", lambda x: ops.streaming_logsumexp(x, 1), samples, lambda x: x.logsumexp(1)),
    entry("covariance", ops.covariance, lambda n: {"x": (4, 6 * n)}, lambda x: torch().cov(x)),
]  # fmt: skip

ENTRIES = [*PHYSICS, *STATISTICS]
