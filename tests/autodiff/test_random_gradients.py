"""The gradient of a random program, all constructs and symbolic sizes: against differences and the adjoint identity.

Programs come from `autodiff.strategies`. Derivatives are float64, along a random direction v and with a random head h:

    <h, J v>  by central differences of the program,  by te.jvp,  and as <J' h, v> by te.differentiate.

A random direction sees every element of the Jacobian with probability 1. Values are random too, off the eighths that
strategies draw: at a tie of two elements a difference is only accurate to first order. Where differences of two step
sizes disagree there is a kink or a jump within the step, and only the adjoint identity is held.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings, strategies as st

import tedsl as te
from autodiff.strategies import Program, programs, values_for

LONG = bool(os.environ.get("TEDSL_LONG"))
PROGRAMS = 10_000 if LONG else 160
STEP = 1e-5


class Setting:
    """A program with heads and a direction."""

    def __init__(self, program: Program, feeds: dict[te.Tensor, Any], seed: int) -> None:
        self.program, self.feeds = program, feeds
        self.sources = [t for t in program.inputs if t.dtype == "float64"]
        self.outputs = [t for t in program.outputs if t.dtype == "float64"]
        random = np.random.default_rng(seed)
        self.heads = [te.placeholder(t.extents, "float64", name=f"{t.name}_head") for t in self.outputs]
        self.directions = [te.placeholder(t.extents, "float64", name=f"{t.name}_v") for t in self.sources]
        self.weights = {h: random.normal(size=program.shape(t)) for h, t in zip(self.heads, self.outputs, strict=True)}
        self.moves = {
            v: random.normal(size=program.shape(t)) for v, t in zip(self.directions, self.sources, strict=True)
        }

    def run(self, tensors: list[te.Tensor], feeds: dict[te.Tensor, Any]) -> list[Any]:
        return list(te.interpret(tensors, feeds, self.program.sizes)) if tensors else []

    def moved(self, step: float) -> list[Any]:
        """The outputs, the inputs moved by step * v."""
        away = {t: self.feeds[t] + step * self.moves[v] for t, v in zip(self.sources, self.directions, strict=True)}
        return self.run(self.outputs, {**self.feeds, **away})

    def contracted(self, values: list[Any]) -> float:
        return float(sum(np.sum(self.weights[h] * v) for h, v in zip(self.heads, values, strict=True)))

    def magnitude(self, values: list[Any]) -> float:
        return float(sum(np.sum(np.abs(self.weights[h] * v)) for h, v in zip(self.heads, values, strict=True)))

    def difference(self, step: float) -> tuple[float, float]:
        """The central difference of fourth order, and its rounding error."""
        near = [a - b for a, b in zip(self.moved(step), self.moved(-step), strict=True)]
        far = [a - b for a, b in zip(self.moved(2 * step), self.moved(-2 * step), strict=True)]
        here = self.magnitude(self.moved(0.0))
        value = (8 * self.contracted(near) - self.contracted(far)) / (12 * step)
        return value, 1e-13 * (1 + here) / step

    def backward(self) -> float:
        gradients = te.differentiate(self.outputs, self.sources, head=self.heads)
        found = self.run(list(gradients), {**self.feeds, **self.weights})
        return float(sum(np.sum(g * self.moves[v]) for g, v in zip(found, self.directions, strict=True)))

    def forward(self) -> tuple[float, float]:
        """<h, J v>, and the sum of the magnitudes of its terms."""
        tangents = self.run(list(te.jvp(self.outputs, self.sources, self.directions)), {**self.feeds, **self.moves})
        return self.contracted(tangents), self.magnitude(tangents)


def check(setting: Setting, smooth: bool) -> None:
    """The three agree."""
    assume(setting.outputs and setting.sources)
    back, (ahead, terms) = setting.backward(), setting.forward()
    if not smooth and not np.isfinite([back, ahead, terms]).all():
        return  # a square root or a quotient at 0
    assert np.isfinite([back, ahead]).all()
    assert abs(back - ahead) <= 1e-10 * (1 + terms), f"adjoint identity: {back} and {ahead}\n{setting.program}"
    numeric, rounding = setting.difference(STEP)
    finer, more = setting.difference(STEP / 4)
    slack = 1e-7 * (1 + terms)
    if abs(numeric - finer) > slack + rounding + more:
        return  # a kink or a jump within the step
    assert abs(back - numeric) <= slack + rounding, f"adjoint {back}, difference {numeric}\n{setting.program}"


@pytest.mark.parametrize("part", range(3))
@settings(max_examples=PROGRAMS // 4, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_smooth_programs(part: int, data: st.DataObject) -> None:
    program = data.draw(programs(differentiable=True))
    feeds = fed(data, program)
    check(Setting(program, feeds, data.draw(st.integers(0, 2**32 - 1))), smooth=True)


@settings(max_examples=PROGRAMS // 4, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_programs_with_kinks(data: st.DataObject) -> None:
    program = data.draw(programs(dtypes=("float64",)))
    feeds = fed(data, program)
    with np.errstate(all="ignore"):
        setting = Setting(program, feeds, data.draw(st.integers(0, 2**32 - 1)))
        values = setting.run(setting.outputs, feeds)
        if all(np.all(np.abs(v) < 1e6) for v in values):
            check(setting, smooth=False)


def fed(data: st.DataObject, program: Program) -> dict[te.Tensor, Any]:
    """Arrays for the inputs, floats moved off the eighths that they are drawn from."""
    arrays = data.draw(values_for(program, special=False))
    random = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    return {t: a + random.uniform(-0.05, 0.05, a.shape) if a.dtype == np.float64 else a for t, a in arrays.items()}
