"""What the rows of a product are made of, computed where the product reads them: where, and that the bits stay."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import tedsl as te
from schedules.default import LOWEST, assuming
from schedules.default.patterns.feeding import Feeding
from tests.levels import PROCESSORS, processor

KINDS = ("filtered", "normed", "softmax", "reversed", "positive", "exponential")


def rows_of(kind: str, x: te.Tensor, taps: te.Tensor) -> te.Tensor:
    """Something of the shape of a batch of rows of channels."""
    size, channels = x.shape, int(x.shape[-1])
    if kind in ("filtered", "positive"):
        near = lambda b, i, k: te.sum(lambda d: taps[d, k] * x.at(b, i + d - 1, k, mode="zero"))  # noqa: E731
        made = te.compute(size, near, name="made")
        return made if kind == "filtered" else te.relu(made)
    if kind == "normed":
        mean = te.compute(size[:2], lambda b, i: te.sum(lambda k: x[b, i, k]) / channels, name="mean")
        return te.compute(size, lambda b, i, k: (x[b, i, k] - mean[b, i]) * te.exp(mean[b, i]), name="made")
    if kind == "softmax":
        return te.ops.softmax(x, axis=-1)
    if kind == "reversed":
        return te.compute(size, lambda b, i, k: te.exp(x[b, size[1] - 1 - i, k]) + te.sin(x[b, i, k]), name="made")
    return te.compute(size, lambda b, i, k: te.exp(-x[b, i, k] * x[b, i, k]) * te.tanh(x[b, i, k]), name="made")


def program(kind: str, batch: int, rows: int, channels: int, columns: int, dtype: str) -> Any:
    x, taps = (
        te.placeholder((batch, rows, channels), dtype, name="x"),
        te.placeholder((3, channels), dtype, name="taps"),
    )
    w = te.placeholder((channels, columns), dtype, name="w")
    made = rows_of(kind, x, taps)
    out = te.compute((batch, rows, columns), lambda b, i, j: te.relu(te.sum(lambda k: made[b, i, k] * w[k, j])))
    return [x, taps, w], out.named("out")


def printed(kind: str, *sizes: int) -> str:
    machine = {
        "vector_bytes": 64, "vector_registers": 32, "l1": 1 << 15, "l2": 1 << 20, "l3": 1 << 24, "cores": 2,
        "gpu": None, "choices": [],
    }  # fmt: skip
    _, out = program(kind, *sizes, dtype="float32")
    return str(te.Schedule(out).auto(machine=machine))


@pytest.mark.parametrize("kind", ["filtered", "positive", "exponential", "normed"])
def test_rows_that_one_product_reads_are_made_by_its_tasks(kind: str) -> None:
    assert "made: what out needs here" in printed(kind, 4, 700, 64, 48)


def test_rows_that_blocks_of_columns_would_ask_for_again_are_made_before() -> None:
    assert "made: what out needs here" not in printed("exponential", 1, 512, 768, 768)


@settings(max_examples=12)
@given(
    st.sampled_from(KINDS),
    st.tuples(st.integers(1, 3), st.integers(1, 40), st.integers(1, 40), st.integers(1, 40)),
    st.sampled_from(["float32", "float64"]),
    st.sampled_from([1 << 12, 1 << 14, 1 << 20]),
    st.booleans(),
    PROCESSORS,
)
def test_bits_stay(kind: str, sizes: Any, dtype: str, l2: int, with_gradients: bool, level: str) -> None:
    chance = np.random.default_rng(sum(sizes))
    found = []
    for place in (Feeding.place, lambda *_, **__: None):
        inputs, out = program(kind, *sizes, dtype)
        outputs = [out, *te.differentiate((out * out).sum(), inputs)] if with_gradients else [out]
        feeds = [chance.standard_normal([int(n) for n in t.shape]).astype(dtype) for t in inputs]
        chance = np.random.default_rng(sum(sizes))
        with processor(level), assuming({**LOWEST, "cores": 4, "l2": l2}), mock.patch.object(Feeding, "place", place):
            found.append(te.build(inputs, outputs, schedule=te.Schedule(outputs).auto(loops=False))(*feeds))
    for got, want in zip(*found, strict=True):
        np.testing.assert_array_equal(got, want)
