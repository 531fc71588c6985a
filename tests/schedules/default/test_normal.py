"""Stages in normal form: what each pass makes of a definition, and that results and gradients stay what they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tedsl as te
from schedules.default import LOWEST, assuming
from schedules.default.canonical.factors import grouped
from schedules.default.canonical.indices import plain
from schedules.default.canonical.normal import normal
from schedules.default.canonical.parts import parts_of
from schedules.default.canonical.views import through_views
from schedules.thresholds import Thresholds
from tedsl.analysis.affine import affine_of
from tedsl.lang.dtypes import INT32
from tedsl.lang.expr import Axis, Const, Expr
from tedsl.lang.traverse import rebuild, substitute

RANDOM = np.random.default_rng(5)
SMALL_CACHES = {"cores": 4, "l1": 2 << 10, "l2": 8 << 10, "l3": 32 << 10}


def r(extent: int, name: str = "k") -> Any:
    return te.reduce_axis(extent, name=name)


def tensor(*shape: int, name: str = "x") -> te.Tensor:
    return te.placeholder(shape, name=name)


def body(output: te.Tensor) -> str:
    return str(normal(output.op).bodies[0])  # type: ignore[arg-type]


def check(output: te.Tensor, *inputs: te.Tensor) -> None:
    """Result and gradients, compiled with every pattern, are those of the reference."""
    head = te.placeholder(output.shape, name="head")
    wanted = [output, *te.differentiate(output, list(inputs), head=head)]
    feeds = {t: RANDOM.integers(-2, 3, tuple(map(int, t.shape))).astype("f4") for t in (*inputs, head)}
    with assuming({**LOWEST, **SMALL_CACHES}):
        found = te.evaluate(wanted, feeds)
    for got, want in zip(found, te.interpret(wanted, feeds), strict=True):
        np.testing.assert_array_equal(got, want)


def test_loops_of_one_iteration_are_dropped() -> None:
    x = tensor(9, 12)
    u, v, k = r(1, "u"), r(1, "v"), r(12)
    y = te.compute((9,), lambda i: te.sum(x[i + u, k + u], axis=(u, k)))
    assert body(y) == "te.sum(x[i, k], axis=k)"
    only = te.compute((9,), lambda i: te.sum(x[i + u, v + u], axis=(u, v)))
    assert body(only) == "te.sum(x[i, 0], axis=u)"
    check(y, x)
    check(only, x)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_loop_that_was_cut_is_whole_again(order: tuple[int, int]) -> None:
    x, s = tensor(9, 24), tensor(24, name="s")
    loops = r(6, "k1"), r(4, "k0")
    k1, k0 = loops
    axis = tuple(loops[n] for n in order)
    y = te.compute((9,), lambda i: te.sum(x[i, k1 * 4 + k0] * s[4 * k1 + k0], axis=axis, where=k1 * 4 + k0 <= i))
    assert body(y) == "te.sum(x[i, k1k0] * s[k1k0], axis=k1k0, where=i - k1k0 >= 0)"
    check(y, x, s)


def test_loops_that_are_indices_of_their_own_stay() -> None:
    x, w = tensor(30), tensor(6, 4, name="w")
    p, q = r(6, "p"), r(4, "q")
    y = te.compute((7,), lambda i: te.sum(x[i + p * 4 + q] * w[p, q], axis=(p, q)))
    assert body(y) == "te.sum(x[i + p * 4 + q] * w[p, q], axis=(p, q))"
    check(y, x, w)


def test_a_loop_over_quotient_and_remainder_is_two() -> None:
    x, w = tensor(9, 8), tensor(4, 3, name="w")
    m = r(12, "m")
    y = te.compute((6, 6), lambda i, j: te.sum(x[i + m // 3, j + m % 3] * w[m // 3, m % 3], axis=m))
    assert body(y) == "te.sum(x[i + m_q, j + m_r] * w[m_q, m_r], axis=(m_q, m_r))"
    check(y, x, w)


def test_iterations_that_a_condition_leaves_out_are_not_walked() -> None:
    x = tensor(9, 30)
    k = r(30)
    y = te.compute((9,), lambda i: te.sum(x[i, k], axis=k, where=k % 4 == 1))
    assert body(y) == "te.sum(x[i, k * 4 + 1], axis=k)"
    assert str(normal(y.op).reduction.axes[0].extent) == "8"  # type: ignore[arg-type, union-attr]
    one = te.compute((9,), lambda i: te.sum(x[i, k], axis=k, where=(k >= 7) & (k < 8)))
    check(y, x)
    check(one, x)


def test_loops_follow_memory() -> None:
    x = tensor(5, 6, 7)
    k, m = r(6), r(7, "m")
    y = te.compute((5,), lambda i: te.sum(x[i, k, m], axis=(m, k)))
    assert body(y) == "te.sum(x[i, k, m], axis=(k, m))"
    check(y, x)


def test_a_chosen_product_is_a_condition_of_the_sum() -> None:
    a, b = tensor(9, 9, name="a"), tensor(9, 8, name="b")
    k = r(9)
    spelled = [
        te.compute((9, 8), lambda i, j: te.sum(te.select(k <= i, a[i, k] * b[k, j], 0.0), axis=k)),
        te.compute((9, 8), lambda i, j: te.sum(te.select(k > i, 0.0, a[i, k] * b[k, j]), axis=k)),
        te.compute((9, 8), lambda i, j: te.sum(te.select(~(i < k), a[i, k] * b[k, j], 0.0), axis=k)),
        te.compute((9, 8), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k, where=~(k > i))),
    ]
    for y in spelled:
        assert body(y) == "te.sum(a[i, k] * b[k, j], axis=k, where=k - i <= 0)"
        check(y, a, b)


def test_factors_are_rows_and_columns_however_they_are_associated() -> None:
    a, b, s = tensor(9, 10, name="a"), tensor(10, 11, name="b"), tensor(10, name="s")
    k = r(10)
    y = te.compute((9, 11), lambda i, j: te.sum(s[k] * (a[i, k] * b[k, j]), axis=k))
    made = grouped(y.op, Thresholds(product=64, product_lanes=1))  # type: ignore[arg-type]
    assert str(made.bodies[0]) == "te.sum(s[k] * a[i, k] * b[k, j], axis=k)"
    masked = te.compute((9, 11), lambda i, j: te.sum(a[i, k] * b[k, j] * te.cast(k <= i, "float32"), axis=k))
    made = grouped(masked.op, Thresholds(product=64, product_lanes=1))  # type: ignore[arg-type]
    assert str(made.bodies[0]) == "te.sum(a[i, k] * te.cast(k <= i, 'float32') * b[k, j], axis=k)"
    check(y, a, b, s)
    check(masked, a, b)


def test_views_are_written_out() -> None:
    x, w = tensor(9), tensor(3, name="w")
    padded = te.compute((11,), lambda i: te.select(i > 0, x[te.minimum(i - 1, 8)], 0.0), name="padded")
    p = r(3, "p")
    y = te.compute((9,), lambda i: te.sum(padded[i + p] * w[p], axis=p), name="y")
    assert [t.name for t in through_views(y.op, lambda view: True).inputs] == ["x", "w"]  # type: ignore[arg-type]
    check(y, x, w)


def test_views_in_another_shape_stay() -> None:
    x, w = tensor(6, 10), tensor(15, 7, name="w")
    k = r(15)
    y = te.compute((4, 7), lambda i, j: te.sum(x.reshape((4, 15))[i, k] * w[k, j], axis=k), name="y")
    assert through_views(y.op, lambda view: True) is y.op  # type: ignore[arg-type]
    check(y, x, w)


def test_phases_of_a_sum_that_is_no_product_lie_side_by_side() -> None:
    x, w = tensor(4, 18, 18), tensor(2, 2, 4, 3, 3, name="w")
    c, p, q = r(4, "c"), r(3, "p"), r(3, "q")
    y = te.compute(
        (16, 16),
        lambda i, j: te.sum(w[i % 2, j % 2, c, p, q] * x[c, i + p, j + q], axis=(c, p, q)),
        name="y",
    )
    found = parts_of(y.op, Thresholds(product=64, product_lanes=1))  # type: ignore[arg-type]
    assert found is not None
    (part,) = found.stages
    assert (
        str(part.bodies[0])
        == "te.sum(w[i_r, j_r, c, p, q] * x[c, i_q * 2 + i_r + p, j_q * 2 + j_r + q], axis=(c, p, q))"
    )
    assert str(found.body) == "y_split[i % 2, j % 2, i // 2, j // 2]"
    check(y, x, w)


# ------------------------------------------------------------------------------------ integers, by brute force

M, N = (Axis(name, Const(extent, INT32)) for name, extent in (("m", 24), ("n", 7)))
REWRITTEN = [
    (M // 4 * 4 + M % 4, "m"),
    (M // 12 * 3 + M % 12 // 4, "m // 4"),
    ((N - M % 3) // 3 - M // 3, "(n - m) // 3"),
    ((6 * M + 1) // 4, "m * 3 // 2"),
    ((6 * M + 1) % 4, "m * 3 % 2 * 2 + 1"),
    (te.minimum(te.maximum(M, 0), 23), "m"),
    (te.maximum(te.minimum(23, M), 0), "m"),
    (te.clip(N, 0, 9), "n"),
    (te.minimum(N, 3), "te.minimum(n, 3)"),
]


@pytest.mark.parametrize(("expr", "text"), REWRITTEN, ids=lambda e: str(e))
def test_integers_have_one_form(expr: Expr, text: str) -> None:
    made = rebuild(expr, plain)
    form = affine_of(made)
    made = made if form is None else form.to_expr()
    assert str(made) == text
    both = [te.compute((24, 7), lambda m, n, e=e: substitute(e, {M: m, N: n}) + 0 * m) for e in (expr, made)]
    np.testing.assert_array_equal(*te.interpret(both, {}))


def test_factors_in_another_order_are_told() -> None:
    a, b, s = tensor(40, 40, name="a"), tensor(40, 40, name="b"), tensor(40, name="s")
    k = r(40)
    for last, told in ((True, ("y",)), (False, ())):
        y = te.compute(
            (40, 40),
            lambda i, j, last=last: te.sum(a[i, k] * b[k, j] * s[k] if last else a[i, k] * s[k] * b[k, j], axis=k),
            name="y",
        )
        schedule = te.Schedule(y)
        schedule.auto()
        assert schedule.regrouped == told
