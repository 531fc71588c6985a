"""Cheap arithmetic where tiles of a product are brought to their place: `schedules.default.products.epilogues`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import tedsl as te
from schedules.default import LOWEST, assuming

MACHINE = {
    "vector_bytes": 32, "vector_registers": 16, "l1": 1 << 15, "l2": 1 << 19, "l3": 1 << 25, "cores": 2, "gpu": None,
    "choices": [],
}  # fmt: skip
SMALL = {**LOWEST, "cores": 2, "l1": 2 << 10, "l2": 8 << 10, "l3": 32 << 10}


def inputs(m: int, k: int, n: int, dtype: str = "float32") -> tuple[te.Tensor, te.Tensor, te.Tensor, te.Tensor]:
    shapes = {"x": (m, k), "w": (k, n), "b": (n,), "r": (m, n)}
    x, w, b, r = (te.placeholder(shape, dtype, name=name) for name, shape in shapes.items())
    return x, w, b, r


def loops(*outputs: te.Tensor) -> str:
    return str(te.Schedule(outputs).auto(machine=MACHINE))


def test_a_layer_is_one_walk() -> None:
    x, w, b, _ = inputs(200, 30, 50)
    product = te.compute((200, 50), lambda i, j: te.sum(lambda k: x[i, k] * w[k, j]), name="product")
    y = te.compute((200, 50), lambda row, unit: te.relu(product[row, unit] + b[unit]), name="y")
    text = loops(y)
    assert "product inline: product[i, j] = product_sums[i, j]" in text
    assert "product_sums: what y needs here" in text
    assert "y[row, unit] = relu(product[row, unit] + b[unit])" in text
    assert "row = row_o*" in text  # the loops have the names of the result's axes
    assert text.count("parallel") == 0 or "for row_oc" in text


def test_costly_arithmetic_on_sums_of_few_terms_is_compiled_once() -> None:
    """Not in as many copies as a tile has rows."""
    x, w, b, _ = inputs(2000, 3, 50)
    product = te.compute((2000, 50), lambda i, j: te.sum(lambda k: x[i, k] * w[k, j]), name="product")
    text = loops(te.compute((2000, 50), lambda i, j: te.tanh(product[i, j] + b[j]), name="y"))
    assert "product inline: product[i, j] = product_sums[i, j]" in text
    assert "unrolled" not in text.split("product_sums[")[-1], text


@pytest.mark.parametrize(
    "program",
    [
        lambda t, b, r: [te.tanh(t)],  # dear in as many copies as a tile has elements
        lambda t, b, r: [t + te.exp(te.tanh(r))],  # as dear by what it reads
        lambda t, b, r: [te.relu(t + b), t],  # stored anyway
        lambda t, b, r: [te.relu(t + b), te.relu(t - b)],
        lambda t, b, r: [te.compute((200, 200), lambda i, j: te.relu(t[j, i]))],  # elsewhere
        lambda t, b, r: [te.compute(t.shape, lambda i, j: t[i, j] + r[j, i])],  # beside what lies across
        lambda t, b, r: [te.compute(t.shape, lambda i, j: te.select(i < 7, t[i, j], r[i, j]))],  # in pieces
        lambda t, b, r: [te.compute(t.shape, lambda i, j: r[i, j] - t[i, j])],  # an update, may be written over r
        lambda t, b, r: [te.compute(t.shape, lambda i, j: te.cast(t[i, j], "float64"))],  # wider
    ],
)
def test_others_have_loops_of_their_own(program: Callable[..., list[te.Tensor]]) -> None:
    x, w, b, r = inputs(200, 30, 200)
    product = te.compute((200, 200), lambda i, j: te.sum(lambda k: x[i, k] * w[k, j]), name="product")
    assert "product[i, j] = product_sums[i, j]" in loops(*program(product, b, r))
    assert "product inline" not in loops(*program(product, b, r))


def test_a_stage_that_is_planned_keeps_its_loops() -> None:
    x, w, b, _ = inputs(200, 30, 50)
    product = te.compute((200, 50), lambda i, j: te.sum(lambda k: x[i, k] * w[k, j]), name="product")
    y = te.compute((200, 50), lambda i, j: te.relu(product[i, j] + b[j]), name="y")
    s = te.Schedule(y)
    s["y"].parallel("i")
    assert "product inline" not in str(s.auto(machine=MACHINE))


@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_drawn(data: st.DataObject) -> None:
    """The same bits as with the product stored, and what the reference says."""
    m, k, n = (data.draw(st.integers(1, 40)) for _ in range(3))
    dtype = data.draw(st.sampled_from(("float32", "float64")))
    x, w, b, r = inputs(m, k, n, dtype)
    product = x @ w
    steps: list[Callable[[te.Tensor], te.Tensor]] = [
        lambda t: t + b, lambda t: te.relu(t), lambda t: t * 0.5, lambda t: t + r, lambda t: te.minimum(t, r),
        lambda t: t * t, lambda t: te.tanh(t), lambda t: t * r + b,
        lambda t: te.compute((m, n), lambda i, j: t[i, j] - r[m - 1 - i, j]),
    ]  # fmt: skip
    y = product
    for step in data.draw(st.lists(st.sampled_from(steps), min_size=1, max_size=4, unique_by=id)):
        y = step(y)
    ends = [y, te.sum(y)] if data.draw(st.booleans()) else [y]
    chance = np.random.default_rng(data.draw(st.integers(0, 9)))
    feeds = {t: chance.standard_normal([int(e) for e in t.shape]).astype(dtype) for t in (x, w, b, r)}
    with assuming(SMALL):
        found = te.build([x, w, b, r], ends)(*feeds.values())
        apart = te.build([x, w, b, r], [*ends, product])(*feeds.values())
    found = found if isinstance(found, (tuple, list)) else (found,)
    np.testing.assert_array_equal(found[0], apart[0])
    tolerance = 1e-5 if dtype == "float32" else 1e-12
    np.testing.assert_allclose(found[0], te.interpret(y, feeds), rtol=tolerance, atol=tolerance * k * 10)


def test_written_over_what_is_added() -> None:
    """A residual is read where the result is written."""
    x, w, b, r = inputs(70, 20, 33)
    y = te.relu(x @ w + b) + r
    chance = np.random.default_rng(0)
    arrays = [chance.standard_normal([int(e) for e in t.shape]).astype("float32") for t in (x, w, b, r)]
    want = te.build([x, w, b, r], y)(*arrays)
    over = te.build([x, w, b, r], y, alias={y: r})
    over(*arrays)
    np.testing.assert_array_equal(arrays[-1], want)
