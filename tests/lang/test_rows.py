"""Recurrences side by side, written with an axis for them in every state: they are packed row by row."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import tedsl as te
from tedsl.lang.tensor import Scan
from tedsl.lang.traverse import stages_of

CHANCE = np.random.default_rng(3)
STEPS, WIDTH, MANY = 5, 3, 7


def scan_of(outputs: Any) -> Scan:
    (scan,) = [op for op in stages_of(list(outputs)) if isinstance(op, Scan)]
    return scan


def box_of(scan: Scan) -> int:
    """The elements of a phase of a step."""
    return math.prod(a.extent.value for a in scan.axes[scan.dims[-1] + 1 :])


def one(w: Any, x: Any, *, reverse: bool = False) -> Any:
    """One recurrence: a vector, a matrix and a number."""
    first = STEPS - 1 if reverse else 0

    def step(m: Any, p: Any, total: Any, t: Any) -> Any:
        back = te.minimum(t + 1, STEPS - 1) if reverse else t - 1
        before = te.where(t == first, te.zeros((WIDTH,), "float64"), m[back])
        spread = w @ te.where(t == first, te.eye(WIDTH, dtype="float64"), p[back]) @ w.T
        size = 1.0 + (spread * spread).sum()
        gain = spread @ x[t] / size
        return te.tanh(before + gain), spread + te.outer(gain, x[t]), te.where(t == first, 0.0, total[back]) + size

    return te.scan([(STEPS, WIDTH), (STEPS, WIDTH, WIDTH), (STEPS,)], step, reverse=reverse)


def many(w: Any, x: Any, *, reverse: bool = False, keep: int | None = None) -> Any:
    """The same of many at once, the axes of each state in an order of its own."""
    count = x.shape[0]
    first = STEPS - 1 if reverse else 0

    def step(m: Any, p: Any, total: Any, t: Any) -> Any:
        back = te.minimum(t + 1, STEPS - 1) if reverse else t - 1
        before = te.where(t == first, te.zeros((count, WIDTH), "float64"), m[back])
        eye = te.broadcast_to(te.eye(WIDTH, dtype="float64")[:, None, :], (WIDTH, count, WIDTH))
        old = te.where(t == first, eye, p[back])
        spread = te.einsum("ik,kbl,jl->ibj", w, old, w)
        size = 1.0 + (spread * spread).sum((0, 2))
        gain = te.einsum("ibj,bj->bi", spread, x[:, t]) / size[:, None]
        grown = spread + te.einsum("bi,bj->ibj", gain, x[:, t])
        return te.tanh(before + gain), grown, te.where(t == first, 0.0, total[back]) + size

    shapes = [(STEPS, count, WIDTH), (STEPS, WIDTH, count, WIDTH), (STEPS, count)]
    return te.scan(shapes, step, reverse=reverse, keep=keep)


def test_states_of_many_take_no_more_memory_than_those_of_each() -> None:
    w, x = te.placeholder((WIDTH, WIDTH), "float64", name="w"), te.placeholder((40, STEPS, WIDTH), "float64", name="x")
    scan = scan_of(many(w, x))
    assert box_of(scan) == WIDTH * WIDTH * 40
    assert all(part.extents[-1].value == 40 for part in scan.parts)


@pytest.mark.parametrize("reverse", [False, True], ids=["forwards", "backwards"])
def test_many_at_once_are_as_each_alone(reverse: bool) -> None:
    w, x = CHANCE.normal(size=(WIDTH, WIDTH)) * 0.5, CHANCE.normal(size=(MANY, STEPS, WIDTH))
    found = te.jit(lambda w, x: many(w, x, reverse=reverse))(w, x)
    alone = te.jit(lambda w, x: one(w, x, reverse=reverse))
    rows = [alone(w, row) for row in x]
    for part, axis, each in zip(found, (1, 2, 1), zip(*rows, strict=True), strict=True):
        np.testing.assert_allclose(part, np.stack(each, axis=axis), rtol=1e-12, atol=1e-12)


def test_the_reference_gradients_and_kept_steps_agree() -> None:
    w, x = (
        te.placeholder((WIDTH, WIDTH), "float64", name="w"),
        te.placeholder((MANY, STEPS, WIDTH), "float64", name="x"),
    )
    feeds = {w: CHANCE.normal(size=(WIDTH, WIDTH)) * 0.5, x: CHANCE.normal(size=(MANY, STEPS, WIDTH))}
    m, p, total = many(w, x)
    last = many(w, x, keep=2)
    loss = (m * m).sum() + (p[:, 0] * p[:, 1]).sum() + te.log(total).sum()
    outputs = [m, p, total, *last, *te.differentiate(loss, [w, x])]
    want = te.interpret(outputs, feeds)
    for got, expected in zip(te.evaluate(outputs, feeds), want, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-11, atol=1e-11)
    np.testing.assert_array_equal(want[3], want[0][-2:])
    np.testing.assert_array_equal(want[4], want[1][-2:])
    alone = te.value_and_grad(
        lambda w, x: (lambda m, p, s: (m * m).sum() + (p[:, 0] * p[:, 1]).sum() + te.log(s).sum())(*one(w, x)),
        argnums=(0, 1),
    )
    slopes = [alone(feeds[w], row)[1] for row in feeds[x]]
    np.testing.assert_allclose(want[6], sum(dw for dw, _ in slopes), rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(want[7], np.stack([dx for _, dx in slopes]), rtol=1e-9, atol=1e-10)


def test_rows_that_read_one_another_stay_where_they_are() -> None:
    x = te.placeholder((MANY, STEPS, WIDTH), "float64", name="x")

    def step(m: Any, p: Any, t: Any) -> Any:
        old = te.where(t == 0, te.zeros((MANY, WIDTH), "float64"), m[t - 1])
        grown = (
            te.where(t == 0, te.zeros((MANY, WIDTH, WIDTH), "float64"), p[t - 1]) + old[:, :, None] * x[:, t][:, None]
        )
        middle = old.mean(0)
        return te.tanh(old + x[:, t] - middle + grown.sum(2)), grown

    m, p = te.scan([(STEPS, MANY, WIDTH), (STEPS, MANY, WIDTH, WIDTH)], step)
    values = CHANCE.normal(size=(MANY, STEPS, WIDTH))
    old, grown = np.zeros((MANY, WIDTH)), np.zeros((MANY, WIDTH, WIDTH))
    found = te.evaluate([m, p], {x: values})
    for t in range(STEPS):
        grown = grown + old[:, :, None] * values[:, t][:, None]
        old = np.tanh(old + values[:, t] - old.mean(0) + grown.sum(2))
        np.testing.assert_allclose(found[0][t], old, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(found[1][t], grown, rtol=1e-12, atol=1e-12)
