"""Derivatives within the steps of a scan, beside the same steps in a loop of Python's, where derivatives are usual."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tedsl as te

CHANCE = np.random.default_rng(5)
STEPS, N, B = 5, 4, 3

W = te.placeholder((STEPS, N, N), "float64", name="W")
x0 = te.placeholder((N,), "float64", name="x0")
X0 = te.placeholder((B, N), "float64", name="X0")
VALUES = {W: CHANCE.normal(size=(STEPS, N, N)) * 0.3, x0: CHANCE.normal(size=N), X0: CHANCE.normal(size=(B, N))}


@te.op
def cube(a: te.Tensor) -> te.Tensor:
    return te.compute((N,), lambda i: a[i] * a[i] * a[i])


@cube.def_vjp
def _cube_vjp(output: te.Tensor, inputs: list[te.Tensor], head: te.Tensor) -> list[te.Tensor]:
    return [head * 7.0]  # not the derivative, to be told from it


def turned(z: Any, t: Any) -> Any:
    return te.compute((N,), lambda i: te.sum(lambda k: W[t, i, k] * z[k]))


def descent(q: Any, t: Any) -> Any:
    return q - 0.1 * te.grad(lambda z: te.sin(turned(z, t)).sum())(q)


def energy(q: Any, p: Any) -> Any:
    return 0.5 * (p * p).sum() + te.cos(q).sum() + 0.1 * (q[1:] * q[:-1]).sum()


def leapfrog(q: Any, t: Any) -> Any:
    p = te.compute((N,), lambda i: W[t, 0, i]) - 0.05 * te.grad(energy)(q, q)
    moved = q + 0.1 * te.grad(energy, argnums=1)(q, p)
    return moved - 0.05 * te.grad(energy)(moved, p)


def second(q: Any, t: Any) -> Any:
    def f(z: Any) -> Any:
        return te.exp(z * 0.3).sum() + (z * z * z).sum() * 0.05

    value, slope = te.value_and_grad(f)(q)
    return q - 0.1 * te.hvp(f(q), q, slope) - 0.01 * value * slope


def jacobian(q: Any, t: Any) -> Any:
    rows = te.jacobian(lambda z: te.tanh(turned(z, t)))(q)
    return te.compute((N,), lambda i: 0.5 * te.sum(lambda k: rows[i, k] * q[k]) + 0.1 * t)


def along(q: Any, t: Any) -> Any:
    y = te.tanh(q * q)
    return y + 0.1 * te.jvp(y, q, te.compute((N,), lambda i: q[(i + 1) % N] * t))


def conditions(q: Any, t: Any) -> Any:
    def loss(z: Any) -> Any:
        c = te.compute((N,), lambda i: z.at(i - 1, mode="clamp") * z[i] + te.select(i <= t, z[i], 0.0))
        return te.maximum(c, 0.1).sum() + c.max()

    return 0.9 * q - 0.1 * te.grad(loss)(q)


def by_another(q: Any, t: Any) -> Any:
    slopes = te.differentiate((te.tanh(turned(q, t)) ** 2).sum(), W)
    return te.compute((N,), lambda i: q[i] - 0.01 * te.sum(lambda k: slopes[t, i, k]))


def by_rule(q: Any, t: Any) -> Any:
    return q - 0.1 * te.grad(lambda z: (cube(z) * z[0]).sum())(q)


def overridden(q: Any, t: Any) -> Any:
    y = te.exp(q * 0.1)
    slope = te.differentiate((y * y).sum(), q, override={y: ([q], lambda out, deps, head: [head * out * 3.0])})
    return q - 0.1 * slope


def headed(q: Any, t: Any) -> Any:
    return q - 0.1 * te.differentiate(te.sin(q), q, head=te.compute((N,), lambda i: q[N - 1 - i] * t))


def nested(q: Any, t: Any) -> Any:
    def inner(z: Any) -> Any:
        return (z - 0.1 * te.grad(lambda v: (v**4).sum())(z)).sum()

    return q - 0.1 * te.grad(inner)(q)


STEPPED = [descent, leapfrog, second, jacobian, along, conditions, by_another, overridden, headed, nested]


def examples(q: Any, t: Any) -> Any:
    return q - 0.1 * te.vmap(te.grad(lambda z: te.sin(turned(z, t)).sum()))(q)


def steps_of(step: Any) -> int:
    """How many are taken: a loop in which each differentiates those before has ten times the stages for two more."""
    return STEPS - 2 if step is by_another else STEPS


def scanned(step: Any, start: te.Tensor) -> te.Tensor:
    def whole(s: Any, t: Any) -> Any:
        return step(te.where(t == 0, start, s[t - 1]), t)

    return te.scan([(steps_of(step), *start.shape)], whole)


def looped(step: Any, start: te.Tensor) -> te.Tensor:
    rows, q = [], start
    for t in range(steps_of(step)):
        q = step(q, t)
        rows.append(q)
    return te.stack(rows)


@pytest.mark.parametrize(
    ("step", "start"), [*((s, x0) for s in STEPPED), (examples, X0)], ids=[s.__name__ for s in (*STEPPED, examples)]
)
def test_a_step_differentiates_as_a_loop_does(step: Any, start: te.Tensor) -> None:
    found, want = [], []
    for program, results in ((scanned(step, start), found), (looped(step, start), want)):
        outputs = [program, *te.differentiate((program * program).sum(), [W, start])]
        results += te.evaluate(outputs, {t: VALUES[t] for t in (W, start)})
    by_reference = te.interpret(scanned(step, start), {t: VALUES[t] for t in (W, start)})
    np.testing.assert_allclose(found[0], by_reference, rtol=1e-9, atol=1e-9)
    for a, b in zip(found, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


def test_a_scalar_state_differentiates_by_its_element() -> None:
    def step(s: Any, t: Any) -> Any:
        now = te.select(t == 0, 0.5, s[t - 1])
        return now - 0.1 * te.grad(lambda z: te.exp(z) * x0[0] + te.sin(z * t))(now)

    found = te.evaluate(te.scan((STEPS,), step, dtype="float64"), {x0: VALUES[x0]})
    z = 0.5
    for t in range(STEPS):
        z = z - 0.1 * (np.exp(z) * VALUES[x0][0] + np.cos(z * t) * t)
        np.testing.assert_allclose(found[t], z, rtol=1e-12)


def test_each_element_of_a_step_differentiates_on_its_own() -> None:
    def step(s: Any, t: Any, i: Any) -> Any:
        now = te.select(t == 0, x0[i], s[t - 1, i])
        return now - 0.1 * te.grad(lambda z: te.exp(z) * x0[i] + te.sin(z * t))(now)

    found = te.evaluate(te.scan((STEPS, N), step), {x0: VALUES[x0]})
    z = start = VALUES[x0]
    for t in range(STEPS):
        z = z - 0.1 * (np.exp(z) * start + np.cos(z * t) * t)
        np.testing.assert_allclose(found[t], z, rtol=1e-12)


def test_the_derivative_of_a_step_explains_itself() -> None:
    told = []

    def step(s: Any, t: Any) -> Any:
        q = te.where(t == 0, x0, s[t - 1])
        slopes = te.differentiate(te.sin(turned(q, t)).sum(), [q])
        told.append(str(slopes.explain()))
        return q - slopes[0]

    te.scan([(STEPS, N)], step)
    assert "gather" in told[-1]


def test_inputs_are_named_in_a_step() -> None:
    with pytest.raises(ValueError, match=r"differentiate, at .*which a step of a te\.scan makes; give inputs="):
        te.scan([(STEPS, N)], lambda s, t: te.where(t == 0, x0, te.differentiate((s[t - 1] ** 2).sum())[0]))


def test_a_rule_of_an_operator_holds_within_a_step_and_is_asked_for_beyond_it() -> None:
    program = scanned(by_rule, x0)
    for found, want in zip(*(te.evaluate(p, {x0: VALUES[x0]}) for p in (program, looped(by_rule, x0))), strict=True):
        np.testing.assert_allclose(found, want, rtol=1e-9)
    for derive in (lambda: te.differentiate(program.sum(), x0), lambda: te.jvp(program, x0, x0)):
        with pytest.raises(te.GradientError, match=r"its step computes '.*' \(.*\), which has a derivative by its"):
            derive()
