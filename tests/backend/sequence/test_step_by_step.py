"""Scans whose steps are kernels of their own: drawn recurrences and their gradients, as the reference has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import tedsl as te
from benchmarks.npbench_programs import PROGRAMS
from schedules.machine import assuming
from tedsl.backend.compiling.executable import BoxView

STEPS, N = 7, 5
Made = tuple[list[te.Tensor], list[te.Tensor]]


def agree(made: Made, *, seed: int = 0, calls: int = 2) -> None:
    """As the reference has it."""
    inputs, outputs = made
    rng = np.random.default_rng(seed)
    arrays = [rng.uniform(0.5, 1.5, t.shape) for t in inputs]
    with assuming({"step_kernels": 1}):
        kernel = te.build(inputs, outputs)
    want = te.interpret(outputs, dict(zip(inputs, arrays, strict=True)))
    for _ in range(calls):
        assert largest_error(kernel(*arrays), want) < 1e-11


def largest_error(found: Any, expected: Any) -> float:
    """The largest difference, relative to the largest element of each result."""
    pairs = zip(found, expected, strict=True)
    return max(float(np.abs(a - b).max() / max(1e-30, np.abs(b).max())) for a, b in pairs)


def with_gradients(inputs: list[te.Tensor], y: te.Tensor) -> Made:
    head = te.placeholder(y.shape, "float64", name="head")
    return [*inputs, head], [y, *te.differentiate(y, inputs, head=head)]


def place(draw: st.DrawFn) -> Callable[..., Any]:
    """A place of a step: the one in hand, another one, or one that moves with time."""
    which = draw(st.sampled_from(["own", "own", "time", "turned", "fixed", "next"]))
    return {
        "own": lambda t, i: i,
        "time": lambda t, i: te.minimum(t, N - 1),
        "turned": lambda t, i: N - 1 - i,
        "fixed": lambda t, i: i * 0 + 2,
        "next": lambda t, i: te.minimum(i + 1, N - 1),
    }[which]


def condition(draw: st.DrawFn) -> Callable[..., Any]:
    """A condition over two places and the time."""
    which = draw(st.sampled_from(["all", "above", "below", "row", "column", "diagonal", "both", "either", "not"]))
    return {
        "all": lambda t, i, j: (i >= 0) & (j >= 0),
        "above": lambda t, i, j: i < t,
        "below": lambda t, i, j: i > t - 1,
        "row": lambda t, i, j: i == t - 1,
        "column": lambda t, i, j: j == t - 1,
        "diagonal": lambda t, i, j: i == j,
        "both": lambda t, i, j: (i == t) & (j == t),
        "either": lambda t, i, j: (i == t) | (j > i),
        "not": lambda t, i, j: ~(j == t) & (i < N - 1),
    }[which]


@st.composite
def recurrences(draw: st.DrawFn) -> Made:
    """A matrix that steps through time by sums and elements of itself, with a vector beside it or stages in a step."""
    a = te.placeholder((N, N), "float64", name="a")
    x = te.placeholder((STEPS, N), "float64", name="x")
    reverse, back = draw(st.booleans()), draw(st.integers(1, 2))
    form = draw(st.sampled_from(["plain", "stage", "states", "two stages"]))
    p, q, r, u = (place(draw) for _ in range(4))
    if_sum, if_term, if_read = (condition(draw) for _ in range(3))
    kind = draw(st.sampled_from(["sum", "sum", "max"]))

    def before(s: Any, t: Any, *at: Any) -> Any:
        first = (t >= STEPS - back) if reverse else (t < back)
        start = a[at] if len(at) == 2 else x[0, at[0]]
        return te.select(first, start, s[(t + back if reverse else t - back, *at)])

    def total(s: Any, t: Any, i: Any, j: Any) -> Any:
        fold = te.sum if kind == "sum" else te.max
        return fold(lambda k: before(s, t, p(t, i), k) * before(s, t, k, q(t, j)), where=lambda k: if_term(t, k, j))

    def element(s: Any, t: Any, i: Any, j: Any) -> Any:
        here = te.select(if_sum(t, i, j), 0.1 * total(s, t, i, j), 0.0) if kind == "sum" else 0.0
        other = te.select(if_read(t, i, j), before(s, t, r(t, i), u(t, j)), 0.5)
        return 0.6 * before(s, t, i, j) + 0.2 * te.tanh(other + here) + 0.05 * x[t, j]

    if form == "plain":
        y = te.scan((STEPS, N, N), element, axis=0, reverse=reverse)
        return with_gradients([a, x], draw(st.sampled_from([y, te.compute((N, N), lambda i, j: y[STEPS // 2, i, j])])))

    def step(s: Any, v: Any, t: Any) -> Any:
        norm = te.compute((), lambda: te.sqrt(te.sum(lambda k: before(v, t, k) * before(v, t, k)) + 1.0), name="norm")
        unit = te.compute((N,), lambda i: before(v, t, i) / norm[()], name="unit")
        row = te.compute((N,), lambda i: te.sum(lambda k: unit[k] * before(s, t, i, k)), name="row")
        use = (lambda i: row[i] / norm[()]) if form == "two stages" else (lambda i: unit[i])
        if form == "states":
            return lambda i, j: element(s, t, i, j), lambda i: 0.5 * before(v, t, i) + 0.1 * before(s, t, r(t, i), i)
        return lambda i, j: element(s, t, i, j) - 0.1 * use(i) * unit[j], lambda i: 0.9 * before(v, t, i) + 0.1 * use(i)

    y, v = te.scan([(STEPS, N, N), (STEPS, N)], step, axis=0, reverse=reverse)
    last = 0 if reverse else STEPS - 1
    out = draw(st.sampled_from(["last", "all", "both"]))
    if out == "last":
        return with_gradients([a, x], te.compute((N, N), lambda i, j: y[last, i, j] * v[last, i], name="z"))
    if out == "all":
        return with_gradients([a, x], te.compute((N, STEPS), lambda i, t: v[t, i], name="z"))
    return [a, x], [y, v]


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(recurrences(), st.integers(0, 99))
def test_drawn_recurrences(made: Made, seed: int) -> None:
    agree(made, seed=seed)


@pytest.mark.long
@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(recurrences(), st.integers(0, 99))
def test_many_drawn_recurrences(made: Made, seed: int) -> None:
    agree(made, seed=seed)


@pytest.mark.parametrize("name", ["lu_steps", "cholesky2", "gramschmidt", "durbin", "floyd_warshall"])
def test_programs_that_are_run_so(name: str) -> None:
    """Those of the suite whose gradients it makes several times as fast."""
    program = next(p for p in PROGRAMS if p.name == name)
    arrays = [np.asarray(a) for a in program.data(*program.small)]
    inputs = [te.placeholder(a.shape, a.dtype.name, name=f"x{k}") for k, a in enumerate(arrays)]
    inputs, outputs = with_gradients(inputs, program.ours(*inputs))
    arrays.append(np.random.default_rng(1).standard_normal(inputs[-1].shape))
    with assuming({"step_kernels": 1}):
        kernel = te.build(inputs, outputs)
    want = te.interpret(outputs, dict(zip(inputs, arrays, strict=True)))
    assert largest_error(kernel(*arrays), want) < 1e-11
    assert len(kernel.program.calls) > 5


def test_a_stage_that_nobody_else_reads_is_made_for_each_step() -> None:
    """Not for all of them beforehand, nor all of it in every step."""
    x = te.placeholder((40, 30), "float64", name="x")
    pairs = te.compute((40, 30, 30), lambda t, i, j: x[t, i] - x[t, j], name="pairs")

    def element(s: Any, t: Any, i: Any) -> Any:
        return te.select(t == 0, x[0, i], te.sum(lambda j: pairs[t, i, j] * s[t - 1, j]))

    s = te.scan((40, 30), element, axis=0)
    with assuming({"step_kernels": 1}):
        kernel = te.build(x, s)
    assert kernel.program.peak_bytes < 8 * 40 * 30 * 30
    given_x = np.random.default_rng(0).standard_normal((40, 30)) / 30
    np.testing.assert_allclose(kernel(given_x), te.interpret(s, {x: given_x}), rtol=1e-11)


def test_steps_that_do_the_same_have_one_kernel() -> None:
    """The first step, which reads what the scan begins with, too: what it computes of that is what the others do."""
    program = next(p for p in PROGRAMS if p.name == "nbody")
    arrays = [np.asarray(a) for a in program.data(6, 5)]
    inputs = [te.placeholder(a.shape, a.dtype.name, name=f"x{k}") for k, a in enumerate(arrays)]
    inputs, outputs = with_gradients(inputs, program.ours(*inputs))
    arrays.append(np.random.default_rng(1).standard_normal(inputs[-1].shape))
    with assuming({"step_kernels": 1}):
        kernel = te.build(inputs, outputs)
    of_steps = [core for core in kernel.core.plan.kernels if core.program.planner.part is None]
    calls = [sum(step.core is core for step in kernel.core.plan.steps) for core in of_steps]
    assert calls
    assert calls.count(1) <= 1  # only the last step, from which gradients begin
    want = te.interpret(outputs, dict(zip(inputs, arrays, strict=True)))
    assert largest_error(kernel(*arrays), want) < 1e-11


def test_kernels_that_read_other_columns_are_one() -> None:
    """Of each of three coordinates there are three sums, which differ in the column that they read."""
    program = next(p for p in PROGRAMS if p.name == "nbody")
    arrays = [np.asarray(a) for a in program.data(40, 25)]
    inputs = [te.placeholder(a.shape, a.dtype.name, name=f"x{k}") for k, a in enumerate(arrays)]
    inputs, outputs = with_gradients(inputs, program.ours(*inputs))
    kernel = te.build(inputs, outputs)
    plan = kernel.core.plan
    boxes = {c: v for c, v in plan.views.items() if isinstance(v, BoxView)}
    given_boxes = [step.core for step in plan.steps if any(c in boxes for c in step.inputs)]
    assert given_boxes
    assert all(given_boxes.count(core) == 3 for core in given_boxes)
    assert not any(view.of in plan.views for view in boxes.values())
    small = [np.asarray(a) for a in program.data(6, 5)]
    read = [te.placeholder(a.shape, a.dtype.name, name=f"x{k}") for k, a in enumerate(small)]
    agree(with_gradients(read, program.ours(*read)))
