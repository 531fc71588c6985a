"""Scans of many examples: where the axis of the examples lies, and that nobody can tell from the results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tedsl as te
from tedsl.lang.printing import program_text
from tedsl.lang.tensor import Scan
from tedsl.lang.traverse import stages_of

CHANCE = np.random.default_rng(7)
Array = np.ndarray[Any, Any]
STEPS, WIDTH = 6, 3


def filtered(w: Any, x: Any) -> Any:
    """A vector, a matrix and a number, each step of which needs all of those before it."""

    def step(m: Any, p: Any, total: Any, t: Any) -> Any:
        ahead = w @ te.where(t == 0, te.zeros(WIDTH, "float64"), m[t - 1])
        spread = w @ te.where(t == 0, te.eye(WIDTH, dtype="float64"), p[t - 1]) @ w.T + te.eye(WIDTH, dtype="float64")
        size = (spread * spread).sum() + 1.0
        gain = spread @ x[t] / size
        rest = 1.0 - (ahead * x[t]).sum()
        moved = te.where(t == 0, 0.0, total[t - 1]) + te.log(size) + rest * rest
        return ahead + gain * rest, spread - te.outer(gain, x[t]) @ spread * 0.1, moved

    return te.scan([(STEPS, WIDTH), (STEPS, WIDTH, WIDTH), (STEPS,)], step)


def recurrent(w: Any, x: Any) -> Any:
    return te.scan(
        [(STEPS, WIDTH)], lambda h, t: te.tanh(w @ te.where(t == 0, te.zeros(WIDTH, "float64"), h[t - 1]) + x[t])
    )


def diffused(w: Any, x: Any) -> Any:
    def step(u: Any, t: Any, i: Any) -> Any:
        left, right = u.at(t - 1, i - 1, mode="clamp"), u.at(t - 1, i + 1, mode="zero")
        return te.select(t == 0, x[0, i], u[t - 1, i] + w[i, i] * (left - 2 * u[t - 1, i] + right))

    return te.scan((STEPS, WIDTH), step)


def swinging(w: Any, x: Any) -> Any:
    def step(a: Any, v: Any, t: Any) -> Any:
        place = te.select(t == 0, x[0, 0], a[t - 1])
        speed = te.select(t == 0, w[0, 1], v[t - 1]) - 0.1 * te.sin(place)
        return place + 0.1 * speed, speed

    return te.scan((STEPS,), step)


def looked_up(w: Any, x: Any) -> Any:
    def step(h: Any, t: Any, i: Any) -> Any:
        at = te.clip(te.cast(te.abs(x[t, 0]) * 4, "int32"), 0, WIDTH - 1)
        return te.select(t == 0, x[0, i], 0.7 * h[t - 1, at] + x[t, at] * w[i, at])

    return te.scan((STEPS, WIDTH), step)


def backwards(w: Any, x: Any) -> Any:
    def step(h: Any, total: Any, t: Any) -> Any:
        after = te.where(t == STEPS - 1, te.zeros(WIDTH, "float64"), h[te.minimum(t + 1, STEPS - 1)])
        return te.tanh(w @ after + x[t]), after.sum() * x[t, 0]

    return te.scan([(STEPS, WIDTH), (STEPS,)], step, reverse=True)


def along_two(w: Any, x: Any) -> Any:
    def step(r: Any, i: Any, j: Any) -> Any:
        above = te.select(i > 0, r.at(i - 1, j, mode="clamp"), 0.5)
        before = te.select(j > 0, r.at(i, j - 1, mode="clamp"), w[0, 0])
        return x[i, j] + te.maximum(above, before) * 0.5

    return te.scan((STEPS, WIDTH), step, axis=(0, 1))


def last_kept(w: Any, x: Any) -> Any:
    before = te.zeros(WIDTH, "float64")
    return te.scan([(STEPS, WIDTH)], lambda h, t: te.tanh(w @ te.where(t == 0, before, h[t - 1]) + x[t]), keep=2)


def each_alone(w: Any, x: Any) -> Any:
    return te.scan((WIDTH, STEPS), lambda s, i, t: te.select(t == 0, w[i, 0], te.tanh(s[i, t - 1]) + x[t, i]), axis=1)


PROGRAMS = [
    filtered, recurrent, diffused, swinging, looked_up, backwards, along_two, last_kept, each_alone,
]  # fmt: skip


def scans_of(outputs: Any) -> list[Scan]:
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    return [op for op in stages_of(list(outputs)) if isinstance(op, Scan)]


def of_many(one: Callable[..., Any], count: Any, *, shared: bool = True) -> tuple[list[te.Tensor], Any]:
    w = te.placeholder((WIDTH, WIDTH) if shared else (count, WIDTH, WIDTH), "float64", name="w")
    x = te.placeholder((count, STEPS, WIDTH), "float64", name="x")
    return [w, x], te.vmap(one, in_axes=(None if shared else 0, 0))(w, x)


@pytest.mark.parametrize("one", PROGRAMS)
def test_examples_are_the_lanes_of_short_states(one: Callable[..., Any]) -> None:
    (scan,) = scans_of(of_many(one, 20)[1])
    assert scan.axes[-1].name == "b"
    assert all(part.extents[-1].value == 20 for part in scan.parts)
    (few,) = scans_of(of_many(one, 3)[1])
    assert few.axes[0].name == "b"


def test_examples_stay_outside_where_states_fill_vectors_or_steps_are_cheap() -> None:
    def wide(w: Any, x: Any) -> Any:
        return te.scan([x.shape], lambda h, t: te.tanh(w @ te.where(t == 0, te.zeros(32), h[t - 1]) + x[t]))

    def cheap(a: Any, x: Any) -> Any:
        return te.scan(x.shape, lambda s, t: te.select(t == 0, 0.0, a[()] * s[t - 1] + x[t]))

    for one, shape, given in ((wide, (32, 32), (16, 10, 32)), (cheap, (), (100, 50))):
        made = te.vmap(one, in_axes=(None, 0))(te.placeholder(shape, name="w"), te.placeholder(given, name="x"))
        (scan,) = scans_of(made)
        assert scan.axes[0].name == "b"


def test_the_parts_of_a_packed_scan_have_the_examples_last() -> None:
    (scan,) = scans_of(of_many(filtered, 20)[1])
    text = program_text(of_many(filtered, 20)[1])
    assert "m[t, i, b]" in text.replace("i0", "i")
    assert {len(part.extents) for part in scan.parts} == {1, 2, 3}


@pytest.mark.parametrize("shared", [True, False], ids=["shared", "apart"])
@pytest.mark.parametrize("one", PROGRAMS)
def test_each_example_is_as_if_it_were_alone(one: Callable[..., Any], shared: bool) -> None:
    w, x = CHANCE.normal(size=(11, WIDTH, WIDTH)) * 0.4, CHANCE.normal(size=(11, STEPS, WIDTH))
    w = w[0] if shared else w
    alone = te.jit(one)
    rows = [alone(w if shared else w[k], x[k]) for k in range(11)]
    many = te.vmap(one, in_axes=(None if shared else 0, 0))
    found = many(w, x)
    if not isinstance(found, tuple):
        found, rows = (found,), [(row,) for row in rows]
    for k, part in enumerate(found):
        np.testing.assert_allclose(part, np.stack([row[k] for row in rows]), rtol=1e-12, atol=1e-12)


def total(parts: Any, weights: Any) -> Any:
    """A number that all elements of some results weigh in."""
    sums = [(part * weight).sum() for part, weight in zip(parts, weights, strict=True)]
    return sum(sums[1:], sums[0])


@pytest.mark.parametrize("one", PROGRAMS)
def test_gradients_of_many_are_those_of_each(one: Callable[..., Any]) -> None:
    w, x = CHANCE.normal(size=(WIDTH, WIDTH)) * 0.4, CHANCE.normal(size=(9, STEPS, WIDTH))

    def results(w: Any, x: Any) -> Any:
        found = one(w, x)
        return found if isinstance(found, tuple) else (found,)

    weights = [CHANCE.normal(size=part.shape) for part in te.vmap(results, in_axes=(None, 0))(w, x)]
    alone = te.value_and_grad(lambda w, x, *g: total(results(w, x), g), argnums=(0, 1))
    each = [alone(w, x[k], *(g[k] for g in weights)) for k in range(9)]
    values, slopes = np.array([float(v) for v, _ in each]), [np.stack(part) for part in zip(*(g for _, g in each))]

    loss = te.value_and_grad(lambda w, x: total(te.vmap(results, in_axes=(None, 0))(w, x), weights), argnums=(0, 1))
    value, (dw, dx) = loss(w, x)
    np.testing.assert_allclose(value, values.sum(), rtol=1e-11)
    np.testing.assert_allclose(dw, slopes[0].sum(0), rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(dx, slopes[1], rtol=1e-9, atol=1e-10)

    value, (dw, dx) = te.vmap(alone, in_axes=(None, 0, *[0] * len(weights)))(w, x, *weights)
    np.testing.assert_allclose(value, values, rtol=1e-11)
    np.testing.assert_allclose(dw, slopes[0], rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(dx, slopes[1], rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("one", [filtered, recurrent, swinging])
def test_examples_of_examples_and_axes_elsewhere(one: Callable[..., Any]) -> None:
    w, x = CHANCE.normal(size=(WIDTH, 9, WIDTH)) * 0.4, CHANCE.normal(size=(9, STEPS, 10, WIDTH))
    many = te.vmap(te.vmap(one, in_axes=(None, 1), out_axes=-1), in_axes=(1, 0))(w, x)
    alone = te.jit(one)
    rows = [[alone(w[:, j], x[j, :, k]) for k in range(10)] for j in range(9)]
    if not isinstance(many, tuple):
        many, rows = (many,), [[(part,) for part in row] for row in rows]
    for p, part in enumerate(many):
        want = np.stack([np.stack([cell[p] for cell in row], axis=-1) for row in rows])
        np.testing.assert_allclose(part, want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("one", [filtered, recurrent, swinging, diffused])
def test_a_number_of_examples_that_is_not_known(one: Callable[..., Any]) -> None:
    inputs, many = of_many(one, te.var("n"))
    (scan,) = scans_of(many)
    assert scan.axes[-1].name == "b"
    outputs = list(many) if isinstance(many, tuple) else [many]
    kern = te.build(inputs, [*outputs, *te.differentiate(sum((t * t).sum() for t in outputs), inputs)])
    w = CHANCE.normal(size=(WIDTH, WIDTH)) * 0.4
    for count in (1, 9):
        x = CHANCE.normal(size=(count, STEPS, WIDTH))
        fixed, same = of_many(one, count)
        own = list(same) if isinstance(same, tuple) else [same]
        want = te.interpret([*own, *te.differentiate(sum((t * t).sum() for t in own), fixed)], dict(zip(fixed, (w, x))))
        for got, expected in zip(kern(w, x), want, strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-10, atol=1e-10)


def test_stages_of_every_kind_read_states_with_the_examples_last() -> None:
    def one(x: Any) -> Any:
        h = te.scan((STEPS, WIDTH), lambda h, t, i: te.select(t == 0, x[0, i], te.sin(h[t - 1, i]) + x[t, i]))
        k = te.reduce_axis(STEPS, name="k")
        zeros = te.scan((STEPS,), lambda s, t: te.select(t == 0, x[0, 0], te.cos(s[t - 1])))
        spread = te.scatter((STEPS,), axes=[k], index=(k % 3,), value=h[k, 1], op="add", init=zeros)
        outside = te.extern(lambda v: np.sort(v, axis=0), (STEPS, WIDTH), "float64", [h])
        return spread, outside, te.sort(h, axis=0), h.max(0), te.cumsum(h, axis=0)

    x = CHANCE.normal(size=(12, STEPS, WIDTH))
    alone = te.jit(one)
    rows = [alone(row) for row in x]
    for k, part in enumerate(te.vmap(one)(x)):
        np.testing.assert_allclose(part, np.stack([row[k] for row in rows]), rtol=1e-12, atol=1e-12)
