"""Schedules that are not marked as ones that change the order of a sum's terms keep the bits of every result.

Bodies are drawn of what code generation could do in more than one way: products in sums, squares, guards, functions of
analysis, sums of sums; schedules of all directives but `auto`, by which the default schedule may do what it likes.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import tedsl as te
from tests.schedules.drawing import INNER_VERBS, LOOP_VERBS, REWRITES, Drawing

FUNCTIONS = (te.exp, te.tanh, te.sigmoid, te.sin, te.cos, te.erf, lambda x: te.log(te.abs(x) + 0.1), te.sqrt, te.expm1)
LENGTHS = (3, 7, 12, 19)
VERBS = (*LOOP_VERBS, *INNER_VERBS, *REWRITES)
KINDS = ("product", "square", "negative", "guarded", "by loops", "functions", "value", "value", "window")


def program(chance: random.Random, dtype: str) -> tuple[list[te.Tensor], te.Tensor]:
    """Two to four stages, each a sum or a value of the two before it."""
    n, m = chance.choice(LENGTHS), chance.choice(LENGTHS)
    inputs = [te.placeholder((n, m), dtype, name="x"), te.placeholder((n, m), dtype, name="w")]
    made = list(inputs)
    for number in range(chance.randint(2, 4)):
        one, other = chance.sample(made[-3:], 2)
        made.append(_stage(chance, one, other, (n, m), f"S{number}"))
    return inputs, made[-1]


def _stage(chance: random.Random, one: te.Tensor, other: te.Tensor, shape: tuple[int, int], name: str) -> te.Tensor:
    n, m = shape
    function = chance.choice(FUNCTIONS)
    kind = chance.choice(KINDS)

    def term(i: Any, j: Any, k: Any) -> Any:
        a, b = one[i, k], other[k % n, j]
        if kind == "square":
            return (a - b) ** 2
        if kind == "negative":
            return -(a * b)
        if kind == "guarded":
            return te.select(a > b, a * b, 0.0)
        if kind == "by loops":
            return te.select(k <= i, a * other[i, j], 0.0)
        if kind == "functions":
            return function(te.abs(a) * 0.3) * b
        return a * b

    def body(i: Any, j: Any) -> Any:
        if kind == "value":
            return function(te.abs(one[i, j]) * 0.5) * other[i, j] + one[(i + 1) % n, j] * other[i, (j + 2) % m]
        if kind == "window":
            taps = te.reduce_axis(3, name="p")
            return te.sum(one.at(i, j + taps - 1, mode="zero") * other[i, taps % m], axis=taps)
        k = te.reduce_axis(m, name="k")
        return te.sum(term(i, j, k), axis=k) * 0.125

    return te.compute(shape, body, name=name)


def differing(seed: int) -> str:
    """The schedule of a seed, where it changes bits; else nothing."""
    chance = random.Random(seed)
    dtype = chance.choice(("float32", "float32", "float64"))
    inputs, output = program(chance, dtype)
    drawing = Drawing(seed, [output])
    drawing.verbs = VERBS
    for _ in range(chance.randint(3, 14)):
        drawing.step()
    plain = te.Schedule(output)
    for schedule in (drawing.schedule, plain):
        for name in schedule.stages:  # what nobody speaks of the default schedule may sum in parts
            if not schedule.plan.is_touched(name):
                schedule[name].compute_root()
    if drawing.schedule.regrouped:
        return ""
    rng = np.random.default_rng(seed)
    feeds = [rng.standard_normal(t.shape).astype(dtype) for t in inputs]
    try:
        found = te.build(inputs, output, schedule=drawing.schedule)(*feeds)
    except te.ScheduleError:
        return ""
    expected = te.build(inputs, output, schedule=plain)(*feeds)
    return "" if np.array_equal(found, expected, equal_nan=True) else str(drawing.schedule.code())


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32 - 1))
def test_schedules_that_keep_the_order_keep_the_bits(seed: int) -> None:
    assert not differing(seed)


@pytest.mark.long
@settings(max_examples=2000, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32 - 1))
def test_many_schedules_that_keep_the_order_keep_the_bits(seed: int) -> None:
    assert not differing(seed)
