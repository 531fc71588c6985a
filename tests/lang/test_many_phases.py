"""Steps of many stages: what it takes to take them apart grows with their number, not with its square."""

import numpy as np
import pytest

import tedsl as te
from tedsl.analysis.checks import read_checks
from tedsl.lang import phases
from tedsl.lang.expr import Read
from tedsl.lang.tensor import Scan
from tedsl.lang.traverse import stages_of


def descended(start: te.Tensor, rounds: int) -> te.Tensor:
    """Every step some rounds of steepest descent, each with sums that the next one needs."""

    def step(u, t):
        x = u[t - 1]
        for _ in range(rounds):
            r = te.tanh(start - te.sin(x))
            x = x + (r * r).sum() / (1.0 + (r * r * x * x).sum()) * te.exp(-r)
        return te.where(t == 0, start, x)

    return te.scan([(4, *start.shape)], step)


def packed(result: te.Tensor) -> list[Scan]:
    return [op for op in stages_of([result]) if isinstance(op, Scan) and op.parts]


def looked_at(monkeypatch, ops) -> int:
    """The reads that are met when scans are taken apart into their phases."""
    seen = []
    made = phases._rebuilt

    def counted(node, new):
        seen.extend([node] * isinstance(node, Read))
        return made(node, new)

    monkeypatch.setattr(phases, "_rebuilt", counted)
    for op in ops:
        assert len(phases.phases_of(op)) > 3
        phases.cases_of(op)
    monkeypatch.undo()
    return len(seen)


@pytest.mark.parametrize("of_gradient", [False, True])
def test_a_phase_is_found_without_a_look_at_the_others(monkeypatch, of_gradient):
    def work(rounds):
        start = te.placeholder((5,), "float64", "start")
        result = descended(start, rounds)
        if of_gradient:
            (result,) = te.differentiate(result.sum(), [start])
        return looked_at(monkeypatch, packed(result))

    few, more, most = (work(rounds) for rounds in (3, 6, 9))
    assert most - more <= 1.2 * (more - few)


def test_gradients_of_steps_of_many_stages():
    start = te.placeholder((5,), "float64", "start")
    values = np.linspace(0.2, 0.9, 5)
    result = descended(start, 3)
    (slope,) = te.differentiate(result.sum(), [start])
    value, gradient = te.interpret(result, {start: values}), te.interpret(slope, {start: values})
    np.testing.assert_allclose(te.evaluate(result, {start: values}), value, rtol=1e-12)
    np.testing.assert_allclose(te.evaluate(slope, {start: values}), gradient, rtol=1e-9)
    moved = [te.interpret(result, {start: values + h}).sum() for h in (1e-6, -1e-6)]
    np.testing.assert_allclose(gradient.sum(), (moved[0] - moved[1]) / 2e-6, rtol=1e-6)


def open_checks(result: te.Tensor) -> list[str]:
    return [str(c.read) for op in stages_of([result]) for c in read_checks(op) if c.status == "run"]


def test_reads_of_many_phases_are_known_to_be_in_bounds():
    """Of boxes that are too large to be tried point by point."""
    start = te.placeholder((500_000,), "float64", "start")
    assert not open_checks(descended(start, 12))


def test_reads_of_many_phases_of_different_shapes_are_known_to_be_in_bounds():
    start = te.placeholder((500_000,), "float64", "start")

    def step(u, t):
        x = te.where(t == 0, start, u[t - 1])
        spread = [te.tanh(x[k:] - x[0]).sum() for k in range(20)]
        return sum((te.exp(s * x) for s in spread), x)

    assert not open_checks(te.scan([(4, 500_000)], step))


def stored(result: te.Tensor) -> set[str]:
    """The names of the stages of a step that are stored."""
    return {part.name for op in packed(result) for part in op.parts}


def test_a_stage_that_a_matrix_walks_through_is_stored():
    """It would be computed again for each row of the matrix."""
    start, m = te.placeholder((16,), "float64", "start"), te.placeholder((16, 16), "float64", "m")

    def step(u, t):
        x = u[t - 1]
        for k in range(3):
            moved = te.compute((16,), lambda i, x=x: x[i] + 0.5 * start[i], name=f"moved{k}")
            x = te.tanh(m @ moved)
        return te.where(t == 0, start, x)

    result = te.scan([(4, 16)], step)
    assert {"moved1", "moved2"} <= stored(result)
    numbers = np.random.default_rng(0)
    values, matrix = numbers.standard_normal(16), numbers.standard_normal((16, 16)) / 4
    rows = [values]
    for _ in range(3):
        x = rows[-1]
        for _ in range(3):
            x = np.tanh(matrix @ (x + 0.5 * values))
        rows.append(x)
    np.testing.assert_allclose(te.evaluate(result, {start: values, m: matrix}), rows, rtol=1e-12)


def test_a_stage_read_in_many_places_is_stored_among_others():
    start = te.placeholder((64,), "float64", "start")

    def step(u, t):
        x = te.where(t == 0, start, u[t - 1])
        wide = te.compute((64,), lambda i: x[i] * start[i] + 0.5 * (x[i] - start[i]), name="wide")
        once = te.compute((64,), lambda i: x[i] * start[i] - 0.5 * (x[i] - start[i]), name="once")
        near = te.compute(
            (64,), lambda i: te.exp(-sum(wide.at(i + k, mode="clamp") for k in range(-3, 4))), name="near"
        )
        return te.sin(near.sum() * te.tanh(near) + once)

    found = stored(te.scan([(4, 64)], step))
    assert "wide" in found
    assert "once" not in found


def test_a_step_that_needs_no_other_stage_stores_none():
    """However often it is read: a scan of one phase is the better one."""
    start = te.placeholder((64,), "float64", "start")

    def step(u, t):
        x = te.where(t == 0, start, u[t - 1])
        wide = te.compute((64,), lambda i: x[i] * start[i] + 0.5 * (x[i] - start[i]), name="wide")
        return te.compute((64,), lambda i: te.exp(-sum(wide.at(i + k, mode="clamp") for k in range(-3, 4))))

    assert not packed(te.scan([(4, 64)], step))


def test_the_phases_of_a_scan_are_found_once(monkeypatch):
    found = []
    made = phases._phase

    def counted(op, parts):
        found.append((op, parts[0].phase))
        return made(op, parts)

    monkeypatch.setattr(phases, "_phase", counted)
    start = te.placeholder((5,), "float64", "start")
    result = descended(start, 3)
    te.build([start], [result, *te.differentiate(result.sum(), [start])])
    assert found
    assert len(found) == len({(id(op), phase) for op, phase in found})
