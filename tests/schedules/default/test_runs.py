"""Reductions in vectors that run on from one short row into the next: `schedules.default.patterns.run_lanes`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import tedsl as te
from schedules.default.patterns.nests import TASKS
from tedsl.backend.host.targets import machine_of, parse_target

MACHINE = {
    "vector_bytes": 32, "vector_registers": 16, "l1": 1 << 15, "l2": 1 << 19, "l3": 1 << 25, "cores": 2, "gpu": None,
    "choices": [],
}  # fmt: skip
KINDS = {"sum": te.sum, "max": te.max, "min": te.min, "prod": te.prod}


def stages(y: te.Tensor) -> set[str]:
    """The names of the stages that the default schedule makes."""
    text = str(te.Schedule([y]).auto(machine=MACHINE))
    return {line.split("[")[0].strip().split(":")[0] for line in text.splitlines()}


def array_of(chance: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Any:
    numbers = chance.integers(1, 4, shape)
    return numbers.astype(dtype) if dtype == "int32" else (1 + numbers / 512).astype(dtype)


@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_drawn(data: st.DataObject) -> None:
    """Any short axes, some of them reduced, also with weights of a column and of what is kept."""
    dims = data.draw(st.integers(2, 4))
    shape = tuple(data.draw(st.sampled_from((1, 2, 3, 5, 7, 11, 13, 24, 40))) for _ in range(dims))
    axes = tuple(sorted(data.draw(st.sets(st.integers(0, dims - 1), min_size=1, max_size=dims))))
    kind = data.draw(st.sampled_from(list(KINDS)))
    dtype = data.draw(st.sampled_from(("float32", "float64", "int32")))
    x, w = te.placeholder(shape, dtype, name="x"), te.placeholder(shape[-1:], dtype, name="w")
    value = te.compute(shape, lambda *at: x[at] * w[at[-1]]) if data.draw(st.booleans()) else x
    y = value.sum(axes) if kind == "sum" else getattr(value, kind)(axes)
    chance = np.random.default_rng(data.draw(st.integers(0, 9)))
    feeds = {x: array_of(chance, shape, dtype), w: array_of(chance, shape[-1:], dtype)}
    found = te.build([x, w], y)(*feeds.values())
    terms = math.prod(shape[a] for a in axes)
    np.testing.assert_allclose(found, te.interpret(y, feeds), rtol=3e-7 * (terms + 4), atol=1e-6 * terms)


@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((40, 133, 3), (1,)), ((9, 521, 22), (1, 2)), ((1338, 15), (0,)), ((100_000, 3), (0,)), ((20, 4, 7, 7), (2, 3)),
        ((40, 30, 20, 6), (0, 2)), ((6, 30, 5, 3), (1,)), ((301, 40, 7), (0, 1, 2)), ((3, 1000, 13), (1,)),
    ],
)  # fmt: skip
def test_shapes(shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    """Each of these is a run; the same for arrays whose rows do not follow one another."""
    x = te.placeholder(shape, name="x")
    y = x.sum(axes)
    assert any("partial" in name for name in stages(y))
    kernel = te.build([x], y)
    wide = np.random.default_rng(0).standard_normal((*shape[:-1], shape[-1] + 1)).astype(np.float32)
    for given_array in (np.ascontiguousarray(wide[..., 1:]), wide[..., 1:]):
        want = given_array.astype(np.float64).sum(axes)
        size = math.prod(shape[a] for a in axes)
        np.testing.assert_allclose(kernel(given_array), want, rtol=1e-5, atol=4e-7 * size**0.5 * 10)


def test_one_piece() -> None:
    """Vectors are loaded as they lie in memory, under no mask, where squares are inlined, too."""
    x = te.placeholder((64, 1000, 7), name="x")
    text = te.build([x], (x * x).sum(1), target="x86-64-v3").source("asm")
    assert "gather" not in text
    assert "vmaskmov" not in text


def test_all_partial_results_of_blocks_stay_in_registers() -> None:
    """One chain of additions in memory after another took three times as long."""
    x = te.placeholder((132, 62, 12), name="x")
    text = str(te.Schedule([x.sum((0, 1))]).auto(machine=MACHINE))
    assert "for row_o < 511:\n      for lane_w < 3, unrolled:" in text


def test_full_rows_stay() -> None:
    """Rows that are vectors as they are, and conditions on rows, are left to other patterns."""
    x = te.placeholder((30, 50, 16), name="x")
    assert not any("partial" in name for name in stages(x.sum(1)))
    z = te.placeholder((30, 50, 3), name="z")
    triangle = te.compute(
        (30, 3), lambda i, k: te.sum(lambda r: z[i, r, k], te.reduce_axis(50), where=lambda r: r <= i)
    )
    assert not any("partial" in name for name in stages(triangle))


def test_products_are_stored_where_their_rows_are_summed() -> None:
    """The gradient by the bias of a small layer reads the product, which is there and not written out."""
    x, w = te.placeholder((1, 8, 50, 16), name="x"), te.placeholder((3, 8, 4, 1), name="w")
    bias, head = te.placeholder((3,), name="bias"), te.placeholder((1, 3, 16, 8), name="head")
    product = te.compute(
        (1, 3, 16, 8),
        lambda b, f, i, j: te.sum(lambda k, u: x[b, k, i * 3 + u, j * 2] * w[f, k, u, 0]),
        name="product",
    )
    y = te.relu(product + bias[None, :, None, None])
    outputs = [y, *te.differentiate(y, [w, bias], head=head)]
    inputs = [x, w, bias, head]
    chance = np.random.default_rng(4)
    feeds = {t: chance.integers(-3, 4, tuple(map(int, t.shape))).astype("float32") for t in inputs}
    for got, want in zip(te.build(inputs, outputs)(*feeds.values()), te.interpret(outputs, feeds), strict=True):
        np.testing.assert_array_equal(got, want)


def test_a_few_vectors_of_a_whole_tensor_are_no_tasks() -> None:
    """What is made of the sum point by point is, in no more tasks than keep the cores busy."""
    x = te.placeholder((16000,), name="x")
    text = str(te.Schedule(x / (1.0 + (x * x).mean())).auto(target="x86-64-v3"))
    (tasks,) = (line for line in text.splitlines() if "parallel" in line)
    count = int(tasks.split("<")[1].split(",")[0])
    assert count <= TASKS * machine_of(parse_target("x86-64-v3")).cores


@pytest.mark.parametrize(
    ("shape", "kept"),
    [
        ((1000, 7), ()),
        ((533, 12), ()),
        ((40, 133, 3), (0,)),
        ((9, 64, 20), (0,)),
        ((41, 2, 3), ()),
    ],
)
def test_rows_that_are_weighted(shape: tuple[int, ...], kept: tuple[int, ...]) -> None:
    """A vector by a matrix of few columns: a lane knows its row, too, and all weights are loaded with its vector."""
    reduced = tuple(a for a in range(len(shape) - 1) if a not in kept)
    x, w = te.placeholder(shape, name="x"), te.placeholder(shape[:-1], name="w")
    y = (x * w[..., None]).sum(reduced)
    assert any("partial" in name for name in stages(y))
    a, b = (np.random.default_rng(n).standard_normal(s).astype("float32") for n, s in enumerate((shape, shape[:-1])))
    want = (a.astype("float64") * b[..., None]).sum(reduced)
    np.testing.assert_allclose(te.build([x, w], y)(a, b), want, rtol=1e-4, atol=1e-4)


def test_few_weighted_rows_stay() -> None:
    x, w = te.placeholder((50, 24, 12), name="x"), te.placeholder((24,), name="w")
    assert not any("partial" in name for name in stages((x * w[:, None]).sum(1)))
