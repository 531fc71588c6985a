"""Reductions inside expressions become tensors of their own, keeping the conditions they stood under."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tedsl as te
from tedsl.lang.expr import Reduce
from tedsl.lang.printing import program_text
from tedsl.lang.tensor import Compute, Scan, Scatter
from tedsl.lang.traverse import stages_of, topological

n = te.var("n")
A = te.placeholder((n, 5), "float64", name="A")
v = te.placeholder((5,), "float64", name="v")
k = te.reduce_axis(5, "k")


def is_normal(outputs: list[te.Tensor]) -> bool:
    """Bodies are pointwise or exactly one reduction of something pointwise."""
    for op in stages_of(outputs):
        for body in op.expressions:
            inner = [e for e in topological(body) if isinstance(e, Reduce)]
            if isinstance(op, Compute) and inner not in ([], [body]):
                return False
            if isinstance(op, Scatter) and inner:
                return False
    return True


def softmax(i: Any, j: Any) -> Any:
    return te.exp(A[i, j] - te.max(A[i, k], axis=k)) / te.sum(lambda m: te.exp(A[i, m] - te.max(A[i, k], axis=k)))


CASES: list[tuple[Any, Any]] = [
    (lambda: te.compute((n, 5), softmax), lambda a, v: np.exp(a) / np.exp(a).sum(1, keepdims=True)),
    (lambda: te.compute((n,), lambda i: 1 + te.sum(A[i, k], axis=k)), lambda a, v: 1 + a.sum(1)),
    (
        lambda: te.compute((n,), lambda i: te.sum(A[i, k], axis=k) * te.sum(A[i, k], axis=k)),
        lambda a, v: a.sum(1) ** 2,
    ),
    (lambda: te.compute((n,), lambda i: te.max(A[i, k], axis=k) - te.min(A[i, k], axis=k)), lambda a, v: np.ptp(a, 1)),
    (
        lambda: te.compute((), lambda: te.sum(lambda i: te.max(lambda j: A[i, j] * v[j]))),
        lambda a, v: (a * v).max(1).sum(),
    ),
    (
        lambda: te.compute((5,), lambda i: v[te.argmax(v[k], axis=k)] + v[i]),
        lambda a, v: v.max() + v,
    ),
    (
        lambda: te.compute((n,), lambda i: te.sum(A[i, k], axis=k, where=A[i, k] > te.sum(lambda j: v[j]) / 5)),
        lambda a, v: np.where(a > v.sum() / 5, a, 0).sum(1),
    ),
    (
        lambda: te.compute((n,), lambda i: (A[i, 0], te.sum(A[i, k], axis=k)))[1],
        lambda a, v: a.sum(1),
    ),
    (
        lambda: te.scatter((3,), [(r := te.reduce_axis(5, "r"))], r % 3, v[r] / te.sum(lambda j: v[j])),
        lambda a, v: np.array([v[0] + v[3], v[1] + v[4], v[2]]) / v.sum(),
    ),
    (
        lambda: te.scan((5,), lambda y, t: te.sum(lambda j: v[j]) + te.select(t == 0, 0.0, y[t - 1])),
        lambda a, v: v.sum() * np.arange(1, 6),
    ),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_lifted_programs_are_normal_and_right(case: Any) -> None:
    make, oracle = case
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((4, 5)), rng.standard_normal(5)
    tensor = make()
    assert is_normal([tensor])
    np.testing.assert_allclose(te.interpret(tensor, {A: a, v: b}), oracle(a, b), rtol=1e-12)


def test_equal_reductions_are_lifted_once() -> None:
    t = te.compute((n,), lambda i: te.sum(A[i, k], axis=k) * te.exp(te.sum(A[i, k], axis=k)), name="t")
    assert program_text(t).split("\n") == [
        "A : float64[n, 5]",
        "t_sum[i] = sum(k < 5) A[i, k]   for i < n",
        "t[i] = t_sum[i] * exp(t_sum[i])   for i < n",
    ]


def test_a_lifted_tensor_has_only_the_axes_it_uses() -> None:
    t = te.compute((n, 5), lambda i, j: A[i, j] - te.sum(A[i, k], axis=k), name="t")
    assert str(t.op.inputs[1]) == "t_sum[i] = sum(k < 5) A[i, k]   for i < n"
    s = te.compute((n, 5), lambda i, j: A[i, j] * te.sum(v[k], axis=k), name="s")
    assert str(s.op.inputs[1]) == "s_sum = sum(k < 5) v[k]"


def test_the_guard_of_a_select_goes_with_the_reduction() -> None:
    t = te.compute((8,), lambda i: te.select(i < 5, te.sum(A[i, k], axis=k), 0.0), name="t")
    assert str(t.op.inputs[0]) == "t_sum[i] = sum(k < 5, where i < 5) A[i, k]   for i < 8"
    a = np.arange(25.0).reshape(5, 5)
    assert te.interpret(t, {A: a}).tolist() == [*a.sum(1), 0, 0, 0]


def test_guards_on_inner_axes_do_not_leave() -> None:
    t = te.compute((3,), lambda i: te.sum(lambda j: te.select(v[j] > 0, te.max(lambda m: A[i, m]), 0.0)), name="t")
    assert is_normal([t])
    lifted = str(t.op.inputs[1])
    assert lifted == "t_max[i] = max(m < 5) A[i, m]   for i < 3"


def test_a_reduction_used_with_and_without_a_guard_is_computed_everywhere() -> None:
    t = te.compute((5,), lambda i: te.select(i < 2, te.sum(A[i, k], axis=k), 0.0) + te.sum(A[i, k], axis=k), name="t")
    assert all("where" not in str(s) for s in t.op.inputs)


def test_components_of_one_reduction_share_their_tensors() -> None:
    both = te.reducer(lambda a, b: (a[0] + b[0], te.maximum(a[1], b[1])), (0.0, -np.inf))

    def body(i: Any) -> Any:
        total, most = both((A[i, k], A[i, k]), axis=k)
        return total / most

    t = te.compute((n,), body, name="t")
    assert len(stages_of([t])) == 3
    assert len(t.op.inputs) == 2
    assert t.op.inputs[0].op is t.op.inputs[1].op
    a = np.random.default_rng(0).uniform(1, 2, (3, 5))
    np.testing.assert_allclose(te.interpret(t, {A: a}), a.sum(1) / a.max(1))


def test_a_top_level_reduction_stays() -> None:
    t = te.compute((n,), lambda i: te.sum(A[i, k], axis=k))
    assert len(stages_of([t])) == 2
    assert t.op.reduction is not None


def test_reductions_over_a_scan_state_stay_in_the_scan() -> None:
    t = te.scan(
        (4, 5),
        lambda y, t, i: te.select(t == 0, v[i], te.sum(lambda j: y[t - 1, j]) + te.sum(lambda m: v[m])),
        name="t",
    )
    assert isinstance(t.op, Scan)
    (body,) = t.op.bodies
    inside = [e for e in topological(body) if isinstance(e, Reduce)]
    assert len(inside) == 1
    b = np.arange(5.0)
    rows = [b]
    for _ in range(3):
        rows.append(np.full(5, rows[-1].sum() + b.sum()))
    np.testing.assert_allclose(te.interpret(t, {v: b}), rows)


def test_deeply_nested_reductions() -> None:
    def row(j: Any) -> Any:
        return v[j] * te.sum(lambda m: v[m] * v[j])

    t = te.compute((), lambda: te.sum(lambda r: v[r] * te.sum(row)))
    assert is_normal([t])
    b = np.arange(1.0, 6.0)
    inner = b * b.sum()
    np.testing.assert_allclose(te.interpret(t, {v: b}), (b * (b * inner).sum()).sum())


def test_what_all_cases_of_a_guard_ask_stays_with_a_lifted_reduction() -> None:
    A, B = te.placeholder((4, 3), name="A"), te.placeholder((4,), name="B")

    def body(i: te.Axis, j: te.Axis) -> te.Expr:
        least = te.min(lambda k: A[i - 1, k])
        cases = te.select(B[j] > 0, least, te.select(B[j] < -1, 2 * least, 0.0))
        return te.select(i >= 1, cases, -1.0)

    a = np.arange(12, dtype=np.float32).reshape(4, 3)
    b = np.array([1, -2, -0.5, 3], np.float32)
    previous = np.concatenate([[0.0], a.min(axis=1)[:-1]])[:, None]
    expected = np.where(b > 0, previous, np.where(b < -1, 2 * previous, 0.0))
    expected[0] = -1.0
    np.testing.assert_array_equal(te.interpret(te.compute((4, 4), body), {A: a, B: b}), expected)


def test_a_condition_that_reads_memory_is_asked_inside_those_around_it() -> None:
    A, B = te.placeholder((4, 3), name="A"), te.placeholder((4,), "int32", name="B")

    def body(i: te.Axis) -> te.Expr:
        previous = te.sum(k, axis=k, where=A[B[i - 1], k] > 5)
        return te.select(i >= 1, te.select(B[i - 1] < 4, previous, -2), -1)

    k = te.reduce_axis(3, "k")
    a, b = np.arange(12, dtype=np.float32).reshape(4, 3), np.array([1, 9, 2, 9], np.int32)
    C = te.compute((4,), body, name="C")
    np.testing.assert_array_equal(te.interpret(C, {A: a, B: b}), [-1, 0, -2, 3])
    np.testing.assert_array_equal(te.build([A, B], C)(a, b), [-1, 0, -2, 3])


def test_a_reduction_that_its_own_condition_may_ask_for() -> None:
    x, flags = te.placeholder((4, 3), "float64", name="x"), te.placeholder((4,), "bool", name="flags")
    r, s = te.reduce_axis(3, "r"), te.reduce_axis(3, "s")

    def asked(i: Any) -> Any:
        total, product = te.sum(x[i, r], axis=r), te.prod(x[i, s], axis=s)
        one = te.select(te.select(flags[i], total > 0, i > 2), product, 0.0)
        return one + te.select(te.select(flags[i], product > 0, i > 1), total, 0.0)

    def shifted(i: Any) -> Any:  # row i - 1 does not exist at 0, where no branch asks for it
        total = te.sum(x[i - 1, r], axis=r)
        return te.select(te.select(i >= 2, total > 0, i == 1), total, 0.0)

    values, given = np.random.default_rng(0).normal(size=(4, 3)), np.array([True, False, True, False])
    total, product, i = values.sum(1), values.prod(1), np.arange(4)
    found, moved = (te.compute((4,), body) for body in (asked, shifted))
    expected = np.where(np.where(given, total > 0, i > 2), product, 0)
    expected += np.where(np.where(given, product > 0, i > 1), total, 0)
    np.testing.assert_allclose(te.interpret(found, {x: values, flags: given}), expected)
    before = np.roll(total, 1)
    expected = np.where(i > 0, np.where((i == 1) | (before > 0), before, 0), 0)
    np.testing.assert_allclose(te.interpret(moved, {x: values}), expected)
    np.testing.assert_allclose(te.evaluate(moved, {x: values}), expected)


def compared(output: te.Tensor, feeds: dict[te.Tensor, Any], expected: Any) -> None:
    for found in (te.interpret(output, feeds), te.evaluate(output, feeds)):
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_a_condition_on_other_axes_leaves_what_it_says_of_those_that_are_used() -> None:
    """`j < t` for any j is `0 < t`: no element asks for row t - 1 at 0, and there is none."""
    x = te.placeholder((6, 4), "float64", name="x")
    a = np.random.default_rng(0).standard_normal((6, 4))
    before = np.concatenate([[0.0], a.sum(1)[:-1]])
    t, j = np.mgrid[:6, :5]

    def total(t: Any) -> Any:
        return te.sum(lambda m: x[t - 1, m])

    asked: list[tuple[Any, Any]] = [
        (lambda t, j: j < t, j < t),
        (lambda t, j: (j <= t - 1) & (j > 1), (j < t) & (j > 1)),
        (lambda t, j: t - 1 == j, t - 1 == j),
        (lambda t, j: (j < t) | ((j == 2) & (t > 3)), (j < t) | ((j == 2) & (t > 3))),
        (lambda t, j: ~(t <= 2 * j), t > 2 * j),
    ]
    for condition, holds in asked:
        y = te.compute((6, 5), lambda t, j: te.select(condition(t, j), total(t), -1.0), name="y")  # noqa: B023
        assert "any" not in program_text(y)
        compared(y, {x: a}, np.where(holds, before[:, None], -1.0))


def test_data_that_say_where_a_reduction_is_asked_for_are_looked_at() -> None:
    x, p = te.placeholder((4, 3), "float64", name="x"), te.placeholder((5,), "int32", name="p")
    a, places = np.random.default_rng(0).standard_normal((4, 3)), np.array([3, 1, 2, 1, 5], np.int32)

    def element(i: Any, j: Any) -> Any:
        return te.select(p[j] <= i, te.sum(lambda m: x[i - 1, m]), 0.0)

    i = np.arange(4)[:, None]
    expected = np.where(places <= i, np.concatenate([[0.0], a.sum(1)[:-1]])[:, None], 0.0)
    compared(te.compute((4, 5), element, name="y"), {x: a, p: places}, expected)
    with pytest.raises(IndexError):
        te.interpret(te.compute((4, 5), element), {x: a, p: places * 0})


def test_conditions_on_other_axes_are_nothing_to_reductions_that_are_there_in_any_case() -> None:
    y = te.compute((4, 5), lambda i, j: te.select(j < i, te.sum(lambda m: v[m] * v[i]), 0.0), name="y")
    assert "y_sum[i] = sum(m < 5) v[m] * v[i]   for i < 4" in program_text(y)


def test_reductions_over_none_of_the_axes_read_nothing_where_there_are_no_elements() -> None:
    n = te.var("n")
    rows = te.placeholder((n, 5), name="rows")
    y = te.compute((n, 5), lambda i, j: te.exp(te.sum(lambda m: rows[0, m])) + rows[i, j], name="y")
    assert "y_sum = sum(m < 5, where n >= 1) rows[0, m]" in program_text(y)
    assert te.build([rows], [y, te.compute((1,), lambda i: 1.0)])(np.zeros((0, 5), "float32"))[0].shape == (0, 5)
    own = te.compute((n, 5), lambda i, j: te.exp(te.sum(lambda m: rows[i, m])), name="own")
    assert "own_sum[i] = sum(m < 5) rows[i, m]" in program_text(own)


def test_what_leaves_a_scan_asks_nothing_of_its_states() -> None:
    x = te.placeholder((6, 4), "float64", name="x")
    a = np.random.default_rng(0).standard_normal((6, 4))

    def step(y: Any, t: Any) -> Any:
        before = te.select(t == 0, 1.0, y[t - 1])
        return te.select(before > 0, te.sum(lambda m: x[t, m]), 0.5) - 0.1 * before

    y = te.scan((6,), step)
    expected = [1.0]
    for row in a:
        expected.append((row.sum() if expected[-1] > 0 else 0.5) - 0.1 * expected[-1])
    compared(y, {x: a}, expected[1:])


def test_one_reduction_written_twice_is_one_stage() -> None:
    x = te.placeholder((5, 7), name="x")

    def body(i: Any) -> Any:
        top = te.max(lambda j: x[i, j])
        return top + te.log(te.sum(lambda j: te.exp(x[i, j] - te.max(lambda k: x[i, k]))))

    assert [op.name for op in stages_of([te.compute((5,), body, name="y")])] == ["x", "y_max", "y_sum1", "y"]
    other = te.compute(
        (5,), lambda i: te.max(lambda j: x[i, j]) + te.max(x[i, k := te.reduce_axis(6)], axis=k), name="z"
    )
    assert len(stages_of([other])) == 4


def test_conditions_on_data_are_asked_where_they_are_there() -> None:
    """What keeps `p[i + 1]` in bounds is asked of other loops, which the sum that leaves does not have."""
    size = 5
    p = te.placeholder((size,), "int32", name="p")
    a, c = te.placeholder((size,), "float64", name="a"), te.placeholder((size, size), "float64", name="c")
    j, m, q = te.reduce_axis(size - 1, "j"), te.reduce_axis(size - 1, "m"), te.reduce_axis(size, "q")

    def once(i: Any) -> Any:
        return te.sum(te.select(p[i + 1] == 1, te.max(c[i, q], axis=q) * a[j], 0.0), axis=j, where=j >= i)

    def twice(i: Any) -> Any:
        most = te.max(c[p[i + 1], q], axis=q)
        first = te.sum(te.select(p[i + 1] == j, most * a[j], 0.0), axis=j, where=j >= i)
        return first + te.sum(te.select(p[i + 1] == m, most * a[m], 0.0), axis=m, where=m >= i)

    rng = np.random.default_rng(0)
    feeds = {p: np.array([0, 1, 3, 1, 3], "int32"), a: rng.standard_normal(size), c: rng.standard_normal((size, size))}
    largest = feeds[c].max(1)
    expected_once, expected_twice = np.zeros(size), np.zeros(size)
    for i in range(1, size):
        place = int(feeds[p][i])
        expected_once[i - 1] = largest[i - 1] * feeds[a][i - 1 : size - 1].sum() if place == 1 else 0.0
        expected_twice[i - 1] = 2 * largest[place] * feeds[a][place] if i - 1 <= place < size - 1 else 0.0
    for body, expected in ((once, expected_once), (twice, expected_twice)):
        y = te.compute((size,), body)
        np.testing.assert_allclose(te.interpret([y], feeds)[0], expected, rtol=1e-14)
        np.testing.assert_allclose(te.build([*feeds], y)(*feeds.values()), expected, rtol=1e-14)
