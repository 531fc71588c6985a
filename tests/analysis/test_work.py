"""Work counts against formulas that anyone can check, and guards against enumeration."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

import tedsl as te
from tedsl import ops
from tedsl.analysis import counting
from tedsl.analysis.counting import count_points
from tedsl.analysis.work import Work, flops_of, work, work_by_stage
from tests.analysis.oracle import boxes, conditions, points, value_at

N = te.var("n")


@given(st.data())
def test_points_of_a_guard_are_counted_exactly(data: st.DataObject) -> None:
    axes = data.draw(boxes())
    guard = te.logical_and(data.draw(conditions(axes)), data.draw(conditions(axes)))
    expected = sum(bool(value_at(guard, p)) for p in points(axes))
    ranges = {a: (a.begin.value, a.begin.value + a.extent.value) for a in axes}  # type: ignore[union-attr,attr-defined]
    assert count_points(guard, ranges, {}) == expected
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counting, "CHUNK", 3)
        assert count_points(guard, ranges, {}) == expected


def test_large_triangles_are_counted_in_closed_form() -> None:
    i, j = te.reduce_axis(N, "i"), te.reduce_axis(N, "j")
    n = 100_000
    assert count_points((j <= i) & (i + j >= 0), {i: (0, n), j: (0, n)}, {N: n}) == n * (n + 1) // 2


def test_a_matrix_product() -> None:
    A, B = te.placeholder((N, 64)), te.placeholder((64, N))
    C = te.compute((N, N), lambda i, j: te.sum(lambda k: A[i, k] * B[k, j]))
    assert te.work(C, sizes={N: 10}) == Work(6400, 0, 2 * 6400, 4 * (2 * 640 + 100))
    with pytest.raises(ValueError, match=r"te.work.*pass sizes=\{n: ...\}"):
        work(C)


def test_a_padded_convolution_counts_its_border_as_masked() -> None:
    x, w = te.placeholder((2, 3, 32, 32)), te.placeholder((4, 3, 3, 3))
    c, dy, dx = te.reduce_axis(3, "c"), te.reduce_axis(3, "dy"), te.reduce_axis(3, "dx")

    def inside(v: Any) -> Any:
        return (v >= 1) & (v < 33)

    y = te.compute(
        (2, 4, 32, 32),
        lambda b, o, i, j: te.sum(
            x[b, c, i + dy - 1, j + dx - 1] * w[o, c, dy, dx], axis=(c, dy, dx), where=inside(i + dy) & inside(j + dx)
        ),
    )
    found = work(y)
    taps = 2 * 4 * 3 * (3 * 32 - 2) ** 2
    assert found.iterations == 2 * 4 * 3 * 9 * 32 * 32
    assert found.masked == found.iterations - taps
    assert found.flops == 2 * taps
    assert found.bytes == 4 * (2 * 3 * 1024 + 4 * 27 + 2 * 4 * 1024)


def test_what_is_arithmetic() -> None:
    A = te.placeholder((8,), "int32")
    cases = [
        (lambda i: A[i], 0), (lambda i: A[i] + 1, 1), (lambda i: A[(i + 3) % 8], 0), (lambda i: i * 2 + 1, 0),
        (lambda i: te.exp(te.cast(A[i], "float32")), 1), (lambda i: te.select(A[i] > 0, A[i], 0), 1),
        (lambda i: te.select(i > 0, A[i] * A[i] + A[i], 0), 2), (lambda i: (A[i] + 1) * (A[i] + 1), 2),
    ]  # fmt: skip
    for body, expected in cases:
        assert work(te.compute((8,), body)).flops == 8 * expected


def test_data_dependent_guards_count_as_true() -> None:
    A = te.placeholder((8,))
    k = te.reduce_axis(8, "k")
    C = te.compute((), lambda: te.sum(A[k], axis=k, where=(A[k] > 0) & (k < 6)))
    assert work(C) == Work(8, 2, 6, 4 * 9)


def test_scatter_scan_and_custom_reducers() -> None:
    idx, G = te.placeholder((20,), "int32"), te.placeholder((20, 3))
    i, j = te.reduce_axis(20, "i"), te.reduce_axis(3, "j")
    S = te.scatter((5, 3), axes=[i, j], index=(idx[i], j), value=G[i, j] * 2, where=i < 10)
    assert work(S) == Work(60 + 15, 30, 30 * 2, 4 * (20 + 60 + 15))
    k = te.reduce_axis(3, "k")
    y = te.scan((7, 3), lambda y, t, i: te.select(t > 0, te.sum(y[t - 1, k], axis=k) * 0.5, G[0, i]))
    assert work(y) == Work(21 + 63, 0, 21 + 63, 4 * (21 + 3))
    mean = te.reducer(lambda a, b: (a[0] + b[0], a[1] + b[1]), (0.0, 0.0))
    u, v = te.compute((20,), lambda i: mean((G[i, k], G[i, k] * G[i, k]), axis=k))
    assert work([u, v]) == Work(60, 0, 60 * 3, 4 * (60 + 40))


def test_a_sum_inside_a_sum_is_counted_at_each_term_that_it_hangs_on() -> None:
    x, k, m = te.placeholder((4,), name="x"), te.reduce_axis(3, "k"), te.reduce_axis(5, "m")

    def step(s: Any, t: Any, i: Any) -> Any:
        inner = te.sum(s[t - 1, m % 4], axis=m, where=m < k)
        return te.select(t == 0, x[i], te.sum(inner * x[k], axis=k))

    s = te.scan((2, 4), step)
    assert work(s).iterations == 2 * 4 * (1 + 3 + 3 * 5)
    assert work(s).masked == 2 * 4 * (3 * 5 - (0 + 1 + 2))


def test_stages_are_counted_once_and_told_apart() -> None:
    A = te.placeholder((8,))
    B = te.compute((8,), lambda i: A[i] + 1)
    C, D = te.compute((8,), lambda i: B[i] * 2), te.compute((4,), lambda i: B[2 * i] * 2)
    by_stage = work_by_stage([C, D])
    assert list(by_stage) == [B.op, C.op, D.op]
    assert by_stage[D.op] == Work(4, 0, 4, 4 * (4 + 4))
    assert work([C, D]) == sum(by_stage.values(), Work(0, 0, 0, 0))


def test_bytes_are_distinct_elements() -> None:
    A = te.placeholder((1000,))
    window = te.compute((8,), lambda i: A[i] + A[i + 1] + A[i + 2])
    assert work(window).bytes == 4 * (8 + 10)
    assert work(te.compute((8,), lambda i: A[100 * i])).bytes == 4 * (8 + 8)
    assert work(te.compute((8, 5), lambda i, j: A[i])).bytes == 4 * (40 + 8)
    assert work(te.compute((0, 5), lambda i, j: A[i])).bytes == 0
    assert work(te.extern(lambda x: x, (1000,), "float32", [A])) == Work(0, 0, 0, 8000)
    assert work(A) == Work(0, 0, 0, 0)


def test_arithmetic_is_counted_without_the_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a program is cut, that of every stage is asked for."""
    x = te.placeholder((40, 30), name="x")
    stages = [te.exp(x * 2).op, (x @ x.T).op, ops.cumsum(x, 0).op, te.sort(x).op]
    counted = [flops_of(op, {}) for op in stages]
    assert counted == [work_by_stage(op.output())[op].flops for op in stages]
    monkeypatch.setattr("tedsl.analysis.work._touched", None)
    assert counted == [flops_of(op, {}) for op in stages]
