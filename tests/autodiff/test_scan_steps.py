"""Steps with stages, and states of their own shapes, beside `jax.lax.scan` and its gradients."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import tedsl as te

jax = pytest.importorskip("jax")
jnp = pytest.importorskip("jax.numpy")

CHANCE = np.random.default_rng(3)
Array = np.ndarray[Any, Any]


def lstm(x: Any, w: Any, u: Any, h0: Any) -> Any:
    """The gates are one product of matrices."""
    n = h0.shape[0]

    def step(h: Any, c: Any, t: Any) -> Any:
        z = w @ x[t] + u @ te.where(t == 0, h0, h[t - 1])
        i, f, g, o = (z[q * n : (q + 1) * n] for q in range(4))
        cell = te.sigmoid(f) * te.where(t == 0, 0.0, c[t - 1]) + te.sigmoid(i) * te.tanh(g)
        return te.sigmoid(o) * te.tanh(cell), cell

    return te.scan([(x.shape[0], n)] * 2, step)


def jax_lstm(x: Any, w: Any, u: Any, h0: Any) -> Any:
    def step(before: Any, row: Any) -> Any:
        h, c = before
        i, f, g, o = jnp.split(w @ row + u @ h, 4)
        cell = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(cell)
        return (h, cell), (h, cell)

    return jax.lax.scan(step, (h0, jnp.zeros_like(h0)), x)[1]


def kalman(f: Any, q: Any, h: Any, y: Any) -> Any:
    n, steps = h.shape[0], y.shape[0]
    eye = te.constant(np.eye(n, dtype=f.dtype.numpy), "eye")

    def step(m: Any, p: Any, t: Any) -> Any:
        ahead = f @ te.where(t == 0, 0.0, m[t - 1])
        spread = f @ te.where(t == 0, eye, p[t - 1]) @ f.T + q @ q.T
        gain = spread @ h / (h @ spread @ h + 0.5)
        return ahead + gain * (y[t] - h @ ahead), spread - te.outer(gain, h) @ spread

    return te.scan([(steps, n), (steps, n, n)], step)


def jax_kalman(f: Any, q: Any, h: Any, y: Any) -> Any:
    def step(before: Any, value: Any) -> Any:
        m, p = before
        m, p = f @ m, f @ p @ f.T + q @ q.T
        gain = p @ h / (h @ p @ h + 0.5)
        m, p = m + gain * (value - h @ m), p - jnp.outer(gain, h) @ p
        return (m, p), (m, p)

    return jax.lax.scan(step, (jnp.zeros_like(h), jnp.eye(len(h), dtype=h.dtype)), y)[1]


def attention(x: Any, k: Any) -> Any:
    """A row that looks at what it is itself, backwards in time; a softmax is a stage that every element reads."""
    steps, n = x.shape

    def step(s: Any, top: Any, t: Any) -> Any:
        before = te.where(t == steps - 1, 1.0, s[t + 1])
        scores = te.compute((n,), lambda i: te.sum(lambda j: k[i, j] * before[j]), name="scores")
        largest = te.compute((), lambda: te.max(lambda i: scores[i]), name="largest")
        weights = te.compute((n,), lambda i: te.exp(scores[i] - largest), name="weights")
        total = te.compute((), lambda: te.sum(lambda i: weights[i]), name="total")
        return (lambda i: x[t, i] + te.sum(lambda j: weights[j] * before[j]) * weights[i] / total), largest + total[()]

    return te.scan([(steps, n), (steps,)], step, reverse=True)


def jax_attention(x: Any, k: Any) -> Any:
    def step(before: Any, row: Any) -> Any:
        scores = k @ before
        weights = jnp.exp(scores - scores.max())
        new = row + (weights @ before) * weights / weights.sum()
        return new, (new, scores.max() + weights.sum())

    return jax.lax.scan(step, jnp.ones_like(x[0]), x, reverse=True)[1]


def orthogonal(a: Any) -> Any:
    """Gram and Schmidt's: each column loses what lies along those before it; lengths beside."""
    n, m = a.shape

    def step(q: Any, r: Any, t: Any) -> Any:
        j = te.reduce_axis(m, "j")
        along = te.compute(
            (m,), lambda j: te.sum(lambda i: te.select(j < t, q[te.minimum(j, t - 1), i], 0.0) * a[i, t])
        )
        rest = te.compute(
            (n,), lambda i: a[i, t] - te.sum(te.select(j < t, along[j] * q[te.minimum(j, t - 1), i], 0.0), axis=j)
        )
        size = te.compute((), lambda: te.sqrt(te.sum(lambda i: rest[i] * rest[i])))
        return (lambda i: rest[i] / size), size[()]

    return te.scan([(m, n), (m,)], step)


def jax_orthogonal(a: Any) -> Any:
    columns: list[Any] = []
    sizes: list[Any] = []
    for t in range(a.shape[1]):
        rest = a[:, t] - sum(((q @ a[:, t]) * q for q in columns), jnp.zeros_like(a[:, t]))
        sizes.append(jnp.sqrt(rest @ rest))
        columns.append(rest / sizes[-1])
    return jnp.stack(columns), jnp.stack(sizes)


CASES: dict[str, tuple[Callable[..., Any], Callable[..., Any], Sequence[tuple[int, ...]]]] = {
    "lstm": (lstm, jax_lstm, [(7, 3), (20, 3), (20, 5), (5,)]),
    "wide lstm": (lstm, jax_lstm, [(3, 8), (128, 8), (128, 32), (32,)]),
    "kalman": (kalman, jax_kalman, [(3, 3), (3, 3), (3,), (6,)]),
    "wide kalman": (kalman, jax_kalman, [(16, 16), (16, 16), (16,), (4,)]),
    "attention": (attention, jax_attention, [(5, 6), (6, 6)]),
    "wide attention": (attention, jax_attention, [(3, 40), (40, 40)]),
    "orthogonal": (orthogonal, jax_orthogonal, [(6, 4)]),
}


@pytest.mark.share(2)
@pytest.mark.parametrize(("case", "dtype"), list(zip(CASES, itertools.cycle(["float32", "float64"]), strict=False)))
def test_results_and_gradients(case: str, dtype: str) -> None:
    ours, theirs, shapes = CASES[case]
    inputs = [te.placeholder(s, dtype, name=f"p{k}") for k, s in enumerate(shapes)]
    values = [(CHANCE.standard_normal(s) / np.sqrt(s[-1])).astype(dtype) for s in shapes]
    outputs = list(ours(*inputs))
    heads = [CHANCE.standard_normal(y.shape).astype(dtype) for y in outputs]
    gradients = te.differentiate(outputs, inputs, head=[te.constant(h) for h in heads])
    found = te.evaluate([*outputs, *gradients], dict(zip(inputs, values, strict=True)))
    with jax.enable_x64(dtype == "float64"):
        want, back = jax.vjp(theirs, *map(jnp.asarray, values))
        want = [*want, *back(tuple(map(jnp.asarray, heads)))]
        want = [np.asarray(w) for w in want]
    rtol = 2e-4 if dtype == "float32" else 1e-10
    for got, expected in zip(found, want, strict=True):
        np.testing.assert_allclose(got, expected, rtol=rtol, atol=rtol * max(1.0, np.abs(expected).max()))


def test_a_maximum_inside_a_sum_is_walked_once() -> None:
    """The forward algorithm in logarithms: work by the square of the states, with gradients as without."""
    steps, n = 5, 16
    a = te.placeholder((n, n), "float64", name="a")

    def step(s: Any, t: Any, j: Any) -> Any:
        most = te.max(lambda i: s[t - 1, i] + a[i, j])
        return te.select(t == 0, a[0, j], most + te.log(te.sum(lambda i: te.exp(s[t - 1, i] + a[i, j] - most))))

    s = te.scan((steps, n), step)
    (gradient,) = te.differentiate([s.sum()], [a])
    assert te.work([gradient]).iterations < 20 * steps * n * n  # 46 before, and the more the larger n was
    given_a = CHANCE.standard_normal((n, n))

    def theirs(a: Any) -> Any:
        s, total = a[0], a[0].sum()
        for _ in range(steps - 1):
            s = jax.nn.logsumexp(s[:, None] + a, 0)
            total = total + s.sum()
        return total

    with jax.enable_x64(True):
        want = jax.grad(theirs)(jnp.asarray(given_a))
    np.testing.assert_allclose(te.evaluate(gradient, {a: given_a}), want, rtol=1e-10)


def test_a_sum_inside_a_maximum() -> None:
    """The winner is asked for with axes of its own, also those of the sums inside it."""
    x = te.placeholder((3, 4), "float64", name="x")

    def step(s: Any, t: Any, i: Any) -> Any:
        k, m = te.reduce_axis(3, "k"), te.reduce_axis(3, "m")
        inner = te.sum(s[t - 1, te.clip(i + m - 1, 0, 3)], axis=m, where=m < 2)
        return te.select(t == 0, x[0, i], te.max(x[k, i] * inner, axis=k))

    given = CHANCE.standard_normal((3, 4))

    def theirs(x: Any) -> Any:
        s, total = x[0], x[0].sum()
        for _ in range(2):
            s = (x * (s[jnp.clip(jnp.arange(4) - 1, 0, 3)] + s)).max(0)
            total = total + s.sum()
        return total

    (gradient,) = te.differentiate([te.scan((3, 4), step).sum()], [x])
    with jax.enable_x64(True):
        want = jax.grad(theirs)(jnp.asarray(given))
    np.testing.assert_allclose(te.evaluate(gradient, {x: given}), want, rtol=1e-10)


def test_a_product_whose_condition_a_phase_decides() -> None:
    """States of two shapes: in the phase of the first, `m >= 0` is known, and the product is another expression."""
    x, q = te.placeholder((3, 3), "float64", name="x"), te.placeholder((3,), "int32", name="q")

    def step(a: Any, b: Any, t: Any) -> Any:
        def product(i: Any) -> Any:
            k, m = te.reduce_axis(3, "k"), te.reduce_axis(3, "m")
            return te.prod(1 + 0.1 * te.sum(b[t - 1, q[i]] * x[m, i], axis=m, where=m >= 0), axis=k)

        def first(i: Any, j: Any) -> Any:
            return te.select(t == 0, x[i, j], product(i) * x[i, j])

        return first, lambda i: te.select(t == 0, x[0, i], b[t - 1, i] * a[t - 1, 0, i])

    def theirs(x: Any, q: Any) -> Any:
        a, b = x[:2], x[0]
        total = (a * a).sum()
        for _ in range(2):
            product = (1 + 0.1 * b[q] * x.sum(0)) ** 3
            a, b = product[:2, None] * x[:2], b * a[0]
            total = total + (a * a).sum()
        return total

    a, _ = te.scan([(3, 2, 3), (3, 3)], step)
    (gradient,) = te.differentiate([(a * a).sum()], [x])
    given, places = CHANCE.standard_normal((3, 3)), np.array([2, 0, 1], "int32")
    with jax.enable_x64(True):
        want = jax.grad(theirs)(jnp.asarray(given), places)
    np.testing.assert_allclose(te.evaluate(gradient, {x: given, q: places}), want, rtol=1e-10)
