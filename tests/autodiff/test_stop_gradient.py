"""`te.stop_gradient`: the value stays, derivatives end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tedsl as te

torch = pytest.importorskip("torch")

RNG = np.random.default_rng(5)
X, W = RNG.standard_normal((5, 7)), RNG.standard_normal((7, 3))


def _quantized(lib: Any, x: Any, w: Any, stop: Callable[[Any], Any]) -> Any:
    h = lib.tanh(x @ w)
    return ((h + stop(lib.round(h * 4) / 4 - h)) * stop(lib.exp(h))).sum()


def _mixture(lib: Any, x: Any, w: Any, stop: Callable[[Any], Any]) -> Any:
    scores = x @ w
    shifted = scores - stop(scores.sum(1)[:, None] / 3)
    share = stop(lib.exp(shifted) / lib.exp(shifted).sum(1)[:, None])
    return (share * (scores - lib.sin(w).sum()) ** 2).sum()


@pytest.mark.parametrize("loss", [_quantized, _mixture])
def test_values_and_gradients_are_those_of_detach(loss: Any) -> None:
    made = te.value_and_grad(lambda x, w: loss(te, x, w, te.stop_gradient), argnums=(0, 1))
    value, found = made(X, W)
    x, w = (torch.tensor(a, requires_grad=True) for a in (X, W))
    expected = loss(torch, x, w, lambda t: t.detach())
    expected.backward()
    np.testing.assert_allclose(value, expected.detach().numpy(), rtol=1e-12)
    for ours, theirs in zip(found, (x.grad, w.grad), strict=True):
        np.testing.assert_allclose(ours, theirs.numpy(), rtol=1e-9, atol=1e-12)


def test_elements_within_a_computation() -> None:
    x = te.placeholder((6,), "float64", name="x")
    y = te.compute((6,), lambda i: te.stop_gradient(x[i] * 2) * x[i], name="y")
    at = np.arange(6.0)
    value, slope = te.evaluate([y, te.differentiate(y.sum(), x)], {x: at})
    np.testing.assert_array_equal(value, 2 * at * at)
    np.testing.assert_array_equal(slope, 2 * at)


def test_forward_and_second_derivatives() -> None:
    v = np.arange(1.0, 4.0)
    _, along = te.jvp(lambda x: (te.stop_gradient(x) * x).sum(), v, np.ones(3))
    np.testing.assert_array_equal(along, v.sum())
    np.testing.assert_array_equal(te.hessian(lambda x: (te.stop_gradient(x) * x * x).sum())(v), np.diag(2 * v))


def test_steps_of_a_scan() -> None:
    """Derivatives through the last step alone, as of a recurrence that is cut after each."""
    steps = 7

    def loss(a: Any) -> Any:
        s = te.scan((steps,), lambda s, t: te.select(t == 0, a[0], te.stop_gradient(s[t - 1]) * a[t]))
        return (s * s).sum()

    at = RNG.uniform(0.5, 1.5, steps)
    before = np.concatenate([[1.0], np.cumprod(at)[:-1]])
    np.testing.assert_allclose(te.grad(loss)(at), 2 * np.cumprod(at) * before, rtol=1e-12)


def test_kernels_are_those_without_it() -> None:
    """Schedules begin without it, so that products and stencils are found where they would be."""
    x, w = te.placeholder((64, 64), name="x"), te.placeholder((64, 64), name="w")
    plain, stopped = te.Schedule(x @ w), te.Schedule(te.stop_gradient(x) @ te.stop_gradient(w))
    ours = te.build([x, w], te.stop_gradient(te.stop_gradient(x) @ w))
    a, b = (RNG.standard_normal((64, 64)).astype("float32") for _ in range(2))
    np.testing.assert_array_equal(ours(a, b), te.build([x, w], x @ w)(a, b))
    assert "stop_gradient(" not in stopped.code()
    assert len(plain.stages) <= len(stopped.stages)


def test_integers_and_conditions_are_themselves() -> None:
    k = te.placeholder((3,), "int32", name="k")
    assert te.stop_gradient(k) is k
    assert te.stop_gradient(7) is not None


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_dtypes_stay(dtype: str) -> None:
    x = te.placeholder((3,), dtype, name="x")
    assert te.stop_gradient(x).dtype == dtype
    assert te.stop_gradient(x[0]).dtype == dtype


def test_a_traced_array_detached_is_the_same_view() -> None:
    """In functions that assign: values flow on, derivatives end."""

    @te.functionalize
    def f(x: Any) -> Any:
        m = x > 2
        y = (x * 2).detach()
        s = x.copy()
        s[m] = x[m].detach() * x[m]
        z = s.detach()
        z[0:1] = 5.0  # writes to s
        return (y[1:] * x[1:]).sum() + s.sum()

    at = np.arange(6.0)
    x = torch.tensor(at, requires_grad=True)
    y = (x * 2).detach()
    m = x > 2
    s = x.clone()
    s[m] = x[m].detach() * x[m]
    expected = (y[1:] * x[1:]).sum() + s.sum() - s[0] + 5.0
    expected.backward()
    value, slope = te.value_and_grad(f)(at)
    np.testing.assert_allclose(value, float(expected.detach()))
    np.testing.assert_array_equal(slope, x.grad.numpy())


def test_it_is_shown_where_it_is_written() -> None:
    x = te.placeholder((3,), name="x")
    assert "stop_gradient(x[i])" in str(te.compute((3,), lambda i: te.stop_gradient(x[i]) + 1, name="y"))


def test_a_check_by_differences_says_that_they_do_not_stop() -> None:
    x = te.placeholder((3,), "float64", name="x")
    y = te.compute((3,), lambda i: te.stop_gradient(x[i]) * x[i], name="y")
    with pytest.raises(te.GradientError, match=r"differences see through te.stop_gradient in y, adjoints do not"):
        te.gradcheck(y.sum(), [x])
