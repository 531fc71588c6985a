"""Recurrences with a choice in each step: what was chosen is found out once for each step of the gradient, too."""

import numpy as np
import pytest

import tedsl as te
from tedsl.lang.tensor import Scan

N = 9


def american(choose):
    """The value of an option that may be exercised at each step, of all places: a payoff or what is expected next."""
    S, K, p = (te.placeholder((), "float64", name=name) for name in "SKp")

    def step(v, t, i):
        kept = p[()] * v[t - 1, te.minimum(i + 1, N - 1)] + (0.99 - p[()]) * v[t - 1, i]
        payoff = te.maximum(K[()] - S[()] * te.exp(0.1 * (2 * i - t)), 0.0)
        return te.select(t == 0, payoff, choose(payoff, kept))

    return te.scan((N, N), step, dtype="float64", name="v"), [S, K, p]


CHOICES = {
    "select": lambda payoff, kept: te.select(payoff > kept, payoff, kept),
    "maximum": te.maximum,
    "nested": lambda payoff, kept: te.select(payoff > kept, payoff, te.select(kept > 0.2, kept, 0.5 * kept + 0.1)),
}
VALUES = [np.array(1.0), np.array(1.07), np.array(0.47)]


@pytest.mark.parametrize("name", CHOICES)
def test_against_finite_differences(name):
    v, inputs = american(CHOICES[name])
    report = te.gradcheck(te.compute((3,), lambda k: v[N - 1, k]), inputs, VALUES, atol=1e-7, rtol=1e-6)
    assert report.ok, report


@pytest.mark.parametrize("name", CHOICES)
def test_the_price_is_homogeneous(name):
    """Euler: of a price that doubles with the stock and the strike, the slopes say the price."""
    v, inputs = american(CHOICES[name] if name != "nested" else CHOICES["select"])
    price = te.compute((), lambda: v[N - 1, 0])
    y, dS, dK, _ = te.build(inputs, [price, *te.differentiate(price, inputs)])(*VALUES)
    np.testing.assert_allclose(VALUES[0] * dS + VALUES[1] * dK, y, rtol=1e-12)


@pytest.mark.parametrize(("name", "most"), [("select", 7.0), ("maximum", 7.6)])
def test_what_was_chosen_is_computed_once_for_each_step(name, most):
    """8.8 and 10 times the forward arithmetic where each read of the step before finds out by itself."""
    v, inputs = american(CHOICES[name])
    price = te.compute((), lambda: v[N - 1, 0])
    gradient = list(te.differentiate(price, inputs))
    assert te.work([price, *gradient]).flops <= most * te.work(price).flops


def test_the_reverse_recurrence_holds_only_what_it_reads_again():
    v, inputs = american(CHOICES["select"])
    grads = te.differentiate(te.compute((), lambda: v[N - 1, 0]), inputs)
    scans = [op for op in te.analysis.work.work_by_stage(list(grads)) if isinstance(op, Scan)]
    assert [len(op.states) for op in scans] == [1, 1]  # forward, and what the steps before are worth


def test_a_part_that_is_used_at_the_first_step_too_is_whole():
    """The payoff counts at step 0 as well, where nothing of earlier steps is known."""
    x, a = te.placeholder((5, 4), "float64", name="x"), te.placeholder((), "float64", name="a")

    def step(v, t, i):
        payoff = te.exp(x[t, i]) * a[()]
        kept = v[t - 1, i] * a[()]
        return te.select(t == 0, payoff, te.select(payoff > kept, payoff, kept))

    v = te.scan((5, 4), step, dtype="float64", name="v")
    rng = np.random.default_rng(5)
    report = te.gradcheck(v, [x, a], [rng.standard_normal((5, 4)), np.array(0.8)], atol=1e-7, rtol=1e-6)
    assert report.ok, report
