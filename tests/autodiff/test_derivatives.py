"""Every row of the derivative table against central differences of the reference, and its values at the edges."""

import numpy as np
import pytest

from autodiff import differentiate, jvp
from autodiff.rules.derivatives import DERIVATIVE, PIECEWISE_CONSTANT
from tedsl.lang import functions as fn
from tedsl.lang.compute import compute, placeholder
from tedsl.lang.operators import Fn
from tedsl.reference import interpret

UNARY = [f for f in DERIVATIVE if f not in (Fn.SELECT, Fn.CAST, Fn.CLIP) and DERIVATIVE[f].__code__.co_argcount == 3]
BINARY = [f for f in DERIVATIVE if DERIVATIVE[f].__code__.co_argcount == 4]
# Where the default interval lies outside a function's domain.
DOMAIN = {
    Fn.ACOSH: (1.2, 3.0),
    Fn.LOG: (0.2, 3.0),
    Fn.LOG2: (0.2, 3.0),
    Fn.LOG10: (0.2, 3.0),
    Fn.SQRT: (0.2, 3.0),
    Fn.RSQRT: (0.2, 3.0),
}


def drawn(function, count, seed=0):
    low, high = DOMAIN.get(function, (-0.9, 0.9))
    return [np.random.default_rng(seed + k).uniform(low, high, 7) for k in range(count)]


def gradients_and_differences(function, values):
    """The adjoints of sum(function(values)) and its central differences, element by element."""
    x = [placeholder((7,), "float64", name=f"x{k}") for k in range(len(values))]
    y = compute((7,), lambda i: fn.apply(function, *(t[i] for t in x)))
    head = placeholder((7,), "float64", name="head")
    feeds = dict(zip(x, values, strict=True))
    found = interpret(list(differentiate(y, x, head=head)), {**feeds, head: np.ones(7)})
    expected = []
    for k, value in enumerate(values):
        ahead, behind = ([*values[:k], value + by, *values[k + 1 :]] for by in (1e-6, -1e-6))
        up, down = (interpret(y, dict(zip(x, moved, strict=True))) for moved in (ahead, behind))
        expected.append((up - down) / 2e-6)
    return found, expected


def test_every_operation_has_a_row():
    assert set(Fn) == set(DERIVATIVE) | PIECEWISE_CONSTANT
    assert not set(DERIVATIVE) & PIECEWISE_CONSTANT


@pytest.mark.parametrize("function", UNARY, ids=lambda f: f.value)
def test_unary_rows(function):
    found, expected = gradients_and_differences(function, drawn(function, 1))
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("function", BINARY, ids=lambda f: f.value)
def test_binary_rows(function):
    values = drawn(function, 2)
    if function is Fn.POW:
        values[0] = np.abs(values[0]) + 0.1
    found, expected = gradients_and_differences(function, values)
    for have, want in zip(found, expected, strict=True):
        np.testing.assert_allclose(have, want, rtol=1e-6, atol=1e-8)


def test_clip_row():
    values = [np.array([-2.0, -0.4, 0.1, 0.3, 0.7, 1.5, 2.0]), np.full(7, -0.5), np.full(7, 0.5)]
    found, expected = gradients_and_differences(Fn.CLIP, values)
    for have, want in zip(found, expected, strict=True):
        np.testing.assert_allclose(have, want, rtol=1e-6, atol=1e-8)


def gradient_at(body, *points):
    x = placeholder((len(points),), "float64")
    y = compute((len(points),), lambda i: body(x[i]))
    head = placeholder((len(points),), "float64", name="head")
    with np.errstate(all="ignore"):
        return interpret(differentiate(y, x, head=head), {x: np.array(points), head: np.ones(len(points))})


EDGES = [
    ("abs at 0", lambda v: fn.abs(v), 0.0, 0.0),
    ("relu at 0", lambda v: fn.relu(v), 0.0, 0.0),
    ("maximum at a tie", lambda v: fn.maximum(v, 1.0), 1.0, 0.5),
    ("maximum with itself", lambda v: fn.maximum(v, v), 1.0, 1.0),
    ("minimum at a tie", lambda v: fn.minimum(v, 1.0), 1.0, 0.5),
    ("clip at its low bound", lambda v: fn.clip(v, -1.0, 1.0), -1.0, 1.0),
    ("clip at its high bound", lambda v: fn.clip(v, -1.0, 1.0), 1.0, 1.0),
    ("clip outside", lambda v: fn.clip(v, -1.0, 1.0), 2.0, 0.0),
    ("pow(x, 0) at 0", lambda v: fn.pow(v, 0.0), 0.0, 0.0),
    ("pow(x, 2) at 0", lambda v: v**2, 0.0, 0.0),
    ("pow(x, 1) at 0", lambda v: v**1, 0.0, 1.0),
    ("sqrt at 0", lambda v: fn.sqrt(v), 0.0, np.inf),
    ("log at 0", lambda v: fn.log(v), 0.0, np.inf),
    ("hypot at 0", lambda v: fn.hypot(v, 0.0), 0.0, 0.0),
    ("atan2 at 0", lambda v: fn.atan2(v, 0.0), 0.0, 0.0),
    ("float modulo", lambda v: v % 2.0, 5.0, 1.0),
    ("modulo by itself", lambda v: 7.0 % v, 2.0, -3.0),
    ("round", lambda v: fn.round(v), 1.2, 0.0),
    ("sqrt not taken", lambda v: fn.select(v > 0, fn.sqrt(v), 0.0), 0.0, 0.0),
    ("log not taken, NaN", lambda v: fn.select(v > 0, fn.log(v), v), -1.0, 1.0),
    ("division not taken", lambda v: fn.select(v == 0, 1.0, fn.sin(v) / v), 0.0, 0.0),
    ("nested selects", lambda v: fn.select(v > 0, fn.select(v > 1, fn.log(v - 1), v), 2 * v), 0.5, 1.0),
    ("shared by both branches", lambda v: fn.select(v > 0, fn.exp(v), fn.exp(v) * 2), 0.0, 2.0),
]


@pytest.mark.parametrize(("body", "point", "expected"), [e[1:] for e in EDGES], ids=[e[0] for e in EDGES])
def test_edges(body, point, expected):
    assert gradient_at(body, point)[0] == expected


def test_the_exponent_of_a_slope_that_is_0_has_a_derivative():
    """d/dn of n x^(n-1) is 1/x at n = 0."""
    x, n, head = (placeholder((3,), "float64", name=name) for name in ("x", "n", "head"))
    y = compute((3,), lambda i: fn.pow(x[i], n[i]))
    mixed = differentiate(differentiate(y, x, head=head), n, head=head)
    at = np.array([0.5, 1.0, 4.0])
    np.testing.assert_allclose(interpret(mixed, {x: at, n: np.zeros(3), head: np.ones(3)}), 1 / at)


def test_an_untaken_nan_does_not_leak_through_a_shared_value():
    """sqrt(x) is used where x > 0 only; at x = -1 nothing of it may arrive."""

    def body(v):
        root = fn.sqrt(v)
        return fn.select(v > 0, root * root, 3 * v) + fn.select(v > 0, root, 0.0)

    np.testing.assert_allclose(gradient_at(body, -1.0, 4.0), [3.0, 1.25])


@pytest.mark.parametrize("function", UNARY, ids=lambda f: f.value)
def test_forward_agrees_with_reverse(function):
    (value,) = drawn(function, 1)
    x, v, h = (placeholder((7,), "float64", name=n) for n in "xvh")
    y = compute((7,), lambda i: fn.apply(function, x[i]))
    feeds = {x: value, v: np.linspace(-1, 2, 7), h: np.linspace(3, -2, 7)}
    forward, backward = interpret([jvp(y, x, v), differentiate(y, x, head=h)], feeds)
    np.testing.assert_allclose(np.sum(forward * feeds[h]), np.sum(backward * feeds[v]), rtol=1e-12)
