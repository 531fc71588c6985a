"""Stages in normal form: what each pass makes of a definition, and that results and gradients stay what they are."""

from __future__ import annotations

from operator import invert
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, example, given, settings, strategies as st

import tedsl as te
from schedules.conditions import tidied
from schedules.default import LOWEST, assuming
from schedules.default.canonical.factors import grouped
from schedules.default.canonical.indices import plain
from schedules.default.canonical.normal import normal
from schedules.default.canonical.views import through_views
from schedules.thresholds import Thresholds
from tedsl.analysis.affine import affine_of
from tedsl.lang.dtypes import INT32
from tedsl.lang.expr import FALSE, TRUE, Axis, Const, Expr
from tedsl.lang.functions import apply
from tedsl.lang.operators import MIRRORED
from tedsl.lang.traverse import rebuild, rebuild_all, substitute

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


def test_a_loop_that_is_asked_to_be_data_is_looked_up() -> None:
    """One term is left of each sum, or none where the number is no place of the loop."""
    x, t = tensor(9, 6), te.placeholder((9,), "int8", name="t")
    c, k, i0 = r(6, "c"), r(3), r(9, "i0")
    alone = te.compute((9,), lambda i: te.sum(x[i, c], axis=c, where=t[i] == c))
    assert body(alone).endswith("x.at(i, te.cast(t[i], 'int32'), mode='clamp'), 0.0) + 0.0")
    among = te.compute((9,), lambda i: te.sum(x[i, c] * x[i, k], axis=(c, k), where=(c == t[i] + 1) & (k < i)))
    down = te.compute((6,), lambda j: te.sum(x[i0, c] * x[i0, j], axis=(i0, c), where=t[i0] == c))
    wrapped = te.compute((9,), lambda i: te.sum(x[i, c], axis=c, where=te.cast(c * 90, "int8") == t[i]))
    assert "axis=k" in body(among)
    assert "axis=i0" in body(down)
    assert "axis=c" in body(wrapped)
    head = te.placeholder((9,), name="head")
    wanted = [alone, among, down, wrapped, *te.differentiate(among, [x], head=head)]
    feeds = {t: RANDOM.integers(-3, 9, 9).astype("i1"), head: RANDOM.integers(-2, 3, 9).astype("f4")}
    feeds[x] = np.where(RANDOM.random((9, 6)) < 0.5, -0.0, RANDOM.integers(-2, 3, (9, 6))).astype("f4")
    for thresholds in ({}, {**LOWEST, **SMALL_CACHES}):
        with assuming(thresholds):
            found = te.evaluate(wanted, feeds)
        for got, want in zip(found, te.interpret(wanted, feeds), strict=True):
            np.testing.assert_array_equal(got, want)
            np.testing.assert_array_equal(np.signbit(got), np.signbit(want))


def test_functions_in_both_branches_are_computed_once() -> None:
    """Of what is chosen, with the same bits; those that two of the other branch could be paired with stay."""
    x, s = tensor(40), tensor(40, name="s")
    far = te.compute((40,), lambda i: te.select(x[i] < 0, x[i] - te.log(te.exp(x[i]) + 1.0), -te.log(x[i] * s[i])))
    assert body(far).count("te.log(") == 2
    assert body(far).count("te.exp(") == 2
    near = te.compute((40,), lambda i: te.select(x[i] < 0, te.exp(te.sin(x[i])), te.exp(te.sin(s[i]))))
    assert body(near) == "te.exp(te.sin(te.select(x[i] < 0.0, x[i], s[i])))"
    two = te.compute((40,), lambda i: te.select(x[i] < 0, te.exp(x[i]) + te.exp(s[i]), te.exp(x[i] * s[i])))
    assert body(two).count("te.exp(") == 3
    feeds = {x: RANDOM.standard_normal(40).astype("f4"), s: RANDOM.standard_normal(40).astype("f4")}
    feeds[x][:4] = np.nan, np.inf, -np.inf, -0.0
    found = te.evaluate([far, near, two], feeds)
    for got, want in zip(found, te.interpret([far, near, two], feeds), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6)


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


def test_a_loop_that_is_divided_by_data_stays() -> None:
    x, d, k = tensor(9, 8), te.placeholder((), "int32", name="d"), r(8)
    y = te.compute((9,), lambda i: te.sum(x[i, k] * te.cast(k % d[()], "float32"), axis=k))
    feeds = {x: np.ones((9, 8), "f4"), d: np.array(3, "i4")}
    np.testing.assert_array_equal(te.evaluate([y], feeds)[0], te.interpret([y], feeds)[0])


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


def test_bounds_that_are_never_met_are_no_bounds_and_borders_stay_whole() -> None:
    x = tensor(24, 10)
    kept = "te.clip(te.maximum(te.minimum(i - 1, 40 - i), 1 - i), 0, 9)"
    for index, text in (
        (lambda i: te.minimum(te.maximum(i, 0), 9), "i"),
        (lambda i: te.maximum(te.minimum(9, i), 0), "i"),
        (lambda i: te.clip(i, 0, 12), "i"),
        (lambda i: te.minimum(i, 3), "te.minimum(i, 3)"),
        (lambda i: te.clip(te.maximum(te.minimum(i - 1, 40 - i), 1 - i), 0, 9), kept),
    ):
        y = te.compute((24, 10), lambda j, i, index=index: x[j, index(i)])
        assert body(y) == f"x[j, {text}]"
        check(y, x)


def test_what_is_read_through_a_view_is_checked_as_the_view() -> None:
    x, places, k = tensor(9), te.placeholder((5,), "int32", name="places"), r(5)
    border = te.compute((11,), lambda i: te.select((i > 0) & (i < 10), x[te.clip(i - 1, 0, 8)], 0.0), name="border")
    y = te.compute((1,), lambda i: te.sum(border[places[k] + i] * 2.0, axis=k), name="y")
    kern = te.build([x, places], [y])
    numbers = np.arange(9, dtype="f4")
    np.testing.assert_array_equal(kern(numbers, np.array([0, 1, 2, 3, 10], "i4"))[0], [6.0])
    for wrong in (11, -1):
        with pytest.raises(IndexError, match="of border"):
            kern(numbers, np.array([0, 1, 2, 3, wrong], "i4"))


def test_views_that_leave_elements_out_stay() -> None:
    x, w = tensor(6, 30), tensor(15, 7, name="w")
    k = r(15)
    halved = te.compute((6, 15), lambda i, j: x[i, j * 2], name="halved")
    y = te.compute((6, 7), lambda i, j: te.sum(halved[i, k] * w[k, j], axis=k), name="y")
    assert through_views(y.op, lambda view: True) is y.op  # type: ignore[arg-type]
    check(y, x, w)


def test_kinds_of_products_over_windows_are_told_apart() -> None:
    x, w = tensor(2, 8, 40, 40), tensor(8, 8, 3, 3, name="w")
    first, second = te.ops.avg_pool2d(x, 2, stride=1), te.ops.avg_pool2d(x + 1.0, 2, stride=1)
    y = te.ops.conv2d(first, w) + te.ops.conv2d(second, w)
    check(y, x, w)


# ------------------------------------------------------------------------------------ integers, by brute force

M, N = (Axis(name, Const(extent, INT32)) for name, extent in (("m", 24), ("n", 7)))
REWRITTEN = [
    (M // 4 * 4 + M % 4, "m"),
    (M // 12 * 3 + M % 12 // 4, "m // 4"),
    ((N - M % 3) // 3 - M // 3, "(n - m) // 3"),
    ((6 * M + 1) // 4, "m * 3 // 2"),
    ((6 * M + 1) % 4, "m * 3 % 2 * 2 + 1"),
]


@pytest.mark.parametrize(("expr", "text"), REWRITTEN, ids=lambda e: str(e))
def test_integers_have_one_form(expr: Expr, text: str) -> None:
    made = rebuild(expr, plain)
    form = affine_of(made)
    made = made if form is None else form.to_expr()
    assert str(made) == text
    both = [te.compute((24, 7), lambda m, n, e=e: substitute(e, {M: m, N: n}) + 0 * m) for e in (expr, made)]
    np.testing.assert_array_equal(*te.interpret(both, {}))


def integers() -> st.SearchStrategy[Expr]:
    """Sums, quotients, remainders and bounds of two loops."""
    numbers = st.integers(-9, 9)
    divisors = st.integers(1, 6)
    return st.recursive(
        st.sampled_from([M, N]),
        lambda inner: st.one_of(
            st.builds(lambda a, n: a * n, inner, numbers),
            st.builds(lambda a, n: a + n, inner, numbers),
            st.builds(lambda a, b: a - b, inner, inner),
            st.builds(lambda a, n: a // n, inner, divisors),
            st.builds(lambda a, n: a % n, inner, divisors),
            st.builds(te.minimum, inner, inner),
            st.builds(te.maximum, inner, inner),
        ),
        max_leaves=6,
    )


def conditions() -> st.SearchStrategy[Expr]:
    """What is asked of those, and of one of them several times."""
    asked = st.builds(lambda fn, a, b: apply(fn, a, b), st.sampled_from(tuple(MIRRORED)), integers(), integers())
    at = st.builds(lambda fn, n: apply(fn, M - N, n), st.sampled_from(tuple(MIRRORED)), st.integers(-3, 3))
    return st.recursive(
        st.one_of(asked, at),
        lambda inner: st.one_of(
            st.builds(lambda a, b: a & b, inner, inner), st.builds(lambda a, b: a | b, inner, inner), inner.map(invert)
        ),
        max_leaves=5,
    )


def check_integers(expr: Expr) -> None:
    (made,) = tidied(rebuild_all((expr,), plain))
    value = te.select(expr, 1, 0) if expr.dtype.is_bool else expr
    other = te.select(made, 1, 0) if expr.dtype.is_bool else made
    both = [te.compute((24, 7), lambda m, n, e=e: substitute(e, {M: m, N: n}) + 0 * m) for e in (value, other)]
    np.testing.assert_array_equal(*te.interpret(both, {}))


@settings(max_examples=300, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@example(M < ((N + 1) * 68 + 2) // 3 - N * 68 // 3)
@given(expr=st.one_of(integers(), conditions()))
def test_integers_and_conditions_mean_the_same(expr: Expr) -> None:
    check_integers(expr)


@pytest.mark.parametrize(("asked", "answer"), [(M // 5 >= 0, TRUE), (M // 5 < 5, TRUE), (M // 5 - N > 4, FALSE)])
def test_quotients_are_integers_wherever_they_end(asked: Expr, answer: Expr) -> None:
    assert tidied((asked,)) == (answer,)


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
