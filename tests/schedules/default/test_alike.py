"""Contractions that are equal but for names and tensors: planned once, with what comes of planning each by itself."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tedsl as te
from schedules.default import completed
from schedules.plan import Plan
from schedules.program import program_of
from schedules.written.text import schedule_text
from tedsl import ops
from tedsl.backend.host.targets import machine_of, parse_target
from tedsl.lang.structure import structural_key


def convolved(x: te.Tensor, number: int, channels: int) -> tuple[te.Tensor, te.Tensor]:
    filters = te.placeholder((channels, 8, 3, 3), name=f"filters{number}")
    return ops.conv2d(x, filters, padding=1), filters


def several() -> tuple[list[te.Tensor], list[te.Tensor]]:
    """Sums of several kinds: convolutions and their gradients, of two sizes, and products with blocked sums."""
    h = te.placeholder((2, 8, 12, 12), name="x")
    inputs = [h]
    for number, channels in enumerate((8, 8, 8, 16)):
        h, filters = convolved(te.relu(h), number, channels)
        inputs.append(filters)
    grads = te.differentiate((h * h).sum(), inputs)
    a, b, c = (te.placeholder((4096, 16), name=name) for name in "abc")
    products = [(a * 2).T @ b, (b + 1).T @ c, (a - b).T @ c]
    return [*inputs, a, b, c], [h, *grads, *products]


@pytest.mark.parametrize("symbolic", [False, True])
def test_what_is_planned_once_is_what_is_planned_for_each(symbolic: bool) -> None:
    inputs, outputs = several()
    if symbolic:
        n = te.var("n")
        inputs = [te.placeholder((n, 64), name="x"), *(te.placeholder((64, 64), name=f"w{k}") for k in range(3))]
        h = inputs[0]
        for w in inputs[1:]:
            h = te.relu(h @ w)
        outputs = [h]
    machine = machine_of(parse_target("host"))
    plan = Plan(program_of(outputs))
    each = replace(machine, choices=(("C:unroll", 4),))
    assert each.tells_stages_apart
    assert not machine.tells_stages_apart
    found, expected = (completed(plan, inputs, outputs, m) for m in (machine, each))
    assert found.finite == expected.finite
    assert schedule_text(found) == schedule_text(expected)
    keys = {structural_key(p.program.outputs, inputs, names=True) for p in (found, expected)}
    assert len(keys) == 1


def test_what_is_planned_again_computes_what_it_should() -> None:
    x, *weights = (te.placeholder((96, 96), name=name) for name in "xabc")
    h = x
    for w in weights:
        h = te.relu(h @ w) + 1
    arrays = [np.random.default_rng(k).normal(size=(96, 96)).astype(np.float32) / 8 for k in range(4)]
    found = te.build([x, *weights], h)(*arrays)
    expected = arrays[0].astype(np.float64)
    for array in arrays[1:]:
        expected = np.maximum(expected @ array, 0) + 1
    np.testing.assert_allclose(found, expected, rtol=1e-4)
