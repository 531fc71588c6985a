"""What a schedule leaves open gets the default schedule: any part is taken over, the rest is kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tedsl as te

N = 48


def network() -> tuple[list[te.Tensor], te.Tensor, te.Tensor, te.Tensor]:
    """A product, a row sum over it, and what is made of both."""
    A, B = te.placeholder((N, N), name="A"), te.placeholder((N, N), name="B")
    k, j = te.reduce_axis(N, "k"), te.reduce_axis(N, "j")
    C = te.compute((N, N), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    R = te.compute((N,), lambda i: te.sum(C[i, j], axis=j), name="R")
    D = te.compute((N, N), lambda i, j: C[i, j] - R[i], name="D")
    return [A, B], C, R, D


def result(inputs: list[te.Tensor], outputs: Any, schedule: te.Schedule) -> te.build:
    rng = np.random.default_rng(0)
    feeds = {t: rng.integers(-4, 5, t.shape).astype(np.float32) for t in inputs}
    kernel = te.build(inputs, outputs, schedule=schedule)
    np.testing.assert_array_equal(kernel(*feeds.values()), te.interpret(outputs, feeds))
    return kernel


def test_a_schedule_that_says_nothing_is_the_default_schedule() -> None:
    inputs, _, _, D = network()
    assert result(inputs, D, te.Schedule(D)).loop_nest() == te.build(inputs, D).loop_nest()


@pytest.mark.parametrize(("stage", "kept"), [("D", "C_columns"), ("R", "C_columns"), ("C", "R_partial")])
def test_one_stage_is_taken_over_and_the_others_keep_their_patterns(stage: str, kept: str) -> None:
    inputs, C, R, D = network()
    s = te.Schedule(D)
    s[stage].parallel("i")
    nest = result(inputs, D, s).loop_nest()
    assert f"produce {kept}" in nest
    assert f"produce {stage}_" not in nest


def test_a_cache_that_was_asked_for_is_there() -> None:
    inputs, C, R, D = network()
    s = te.Schedule(D)
    s[D].cache_read(R)
    assert "produce R_cached" in result(inputs, D, s).loop_nest()


def test_what_a_stage_leaves_open_is_in_vectors() -> None:
    inputs, C, R, D = network()
    s = te.Schedule(C)
    s[C].reorder("k", "i", "j")
    nest = result(inputs, C, s).loop_nest()
    assert nest.count("vectorized j") == 1  # the loops that fill in zeros; the body is what the directive makes of it


def test_indices_from_memory_leave_alone_what_their_checks_do_not_read() -> None:
    x, places = te.placeholder((64, 96), name="x"), te.placeholder((8,), "int32", name="places")
    rows = te.compute((64,), lambda i: te.sum(lambda k: te.exp(x[i, k])), name="rows")
    picked = te.compute((8,), lambda i: rows[places[i]], name="picked")
    counted = te.compute((64,), lambda i: te.sum(lambda k: te.cast(x[i, k], "int32")), name="counted")
    chosen = te.compute((8,), lambda i: te.log(x[counted[i], i]), name="chosen")
    kern = te.build([x, places], [picked, chosen, te.compute((64,), lambda i: rows[i] * 2.0, name="twice")])
    values = {x: np.full((64, 96), 0.25, np.float32), places: np.arange(8, dtype=np.int32)}
    lines = kern.loop_nest().splitlines()
    depth = {name: line.index("produce") for line in lines for name in [line.split()[-1]] if "produce" in line}
    assert depth["counted_partial:"] < depth["checks:"] < depth["rows:"] < depth["rows_partial:"] - 2
    for found, want in zip(kern(*values.values()), te.interpret(kern.outputs, values), strict=True):
        np.testing.assert_allclose(found, want, rtol=1e-5)
