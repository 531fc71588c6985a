"""te.interpret against NumPy and against what DESIGN section 4 says, one construct or rule a test."""

from __future__ import annotations

import math
import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, strategies as st

import tedsl as te
from tedsl.analysis.pointwise import NUMPY, apply_numpy, rounded
from tedsl.analysis.sizes import EXACT
from tedsl.lang.dtypes import ALL, as_dtype
from tedsl.lang.errors import ZeroDivisorError
from tedsl.lang.expr import Apply, Const, Expr, Read
from tedsl.lang.operators import Fn
from tedsl.reference import grid, interpret, interpreter as machinery
from tedsl.reference.grid import boxes

F32 = np.float32


def arange(*shape: int, dtype: Any = F32) -> Any:
    return np.arange(math.prod(shape), dtype=dtype).reshape(shape)


# The table


def test_the_table_has_a_row_for_every_operation() -> None:
    assert set(NUMPY) == set(Fn)


@pytest.mark.parametrize("name", ["exp", "log", "sin", "tanh", "erf", "sigmoid", "rsqrt", "cbrt", "expm1", "log1p"])
def test_functions_of_float32_are_rounded_from_float64(name: str) -> None:
    oracle = {
        "exp": math.exp, "log": math.log, "sin": math.sin, "tanh": math.tanh, "erf": math.erf, "expm1": math.expm1,
        "sigmoid": lambda v: 1 / (1 + math.exp(-v)), "rsqrt": lambda v: 1 / math.sqrt(v), "log1p": math.log1p,
        "cbrt": lambda v: float(np.cbrt(v)),
    }  # fmt: skip
    x = np.array([0.1, 0.5, 1.0, 2.5, 30.0], F32)
    A = te.placeholder((5,))
    found = interpret(te.compute((5,), lambda i: getattr(te, name)(A[i])), {A: x})
    assert found.dtype == F32
    exact = np.array([oracle[name](float(v)) for v in x])
    # One rounding to float32 of a float64 that is off by at most 2 ulp.
    np.testing.assert_array_less(np.abs(found - exact), np.spacing(np.abs(exact).astype(F32)) * 0.5001)


def test_nan_goes_through_minimum_maximum_relu_and_clip() -> None:
    A = te.placeholder((3,))
    x = np.array([np.nan, -1, 2], F32)
    for f, expected in [
        (lambda v: te.maximum(v, 1.0), [np.nan, 1, 2]), (lambda v: te.minimum(1.0, v), [np.nan, -1, 1]),
        (te.relu, [np.nan, 0, 2]), (lambda v: te.clip(v, 0.0, 1.0), [np.nan, 0, 1]), (te.sign, [np.nan, -1, 1]),
    ]:  # fmt: skip
        np.testing.assert_array_equal(
            interpret(te.compute((3,), lambda i, f=f: f(A[i])), {A: x}), np.array(expected, F32)
        )


def test_integer_division_floors_for_every_sign() -> None:
    a, b = np.meshgrid(np.arange(-7, 8, dtype=np.int32), np.array([-3, -2, -1, 1, 2, 3], np.int32), indexing="ij")
    A, B = te.placeholder(a.shape, "int32"), te.placeholder(b.shape, "int32")
    q, r = te.compute(a.shape, lambda i, j: (A[i, j] // B[i, j], A[i, j] % B[i, j]))
    found = interpret([q, r], {A: a, B: b})
    np.testing.assert_array_equal(found[0], [[int(x) // int(y) for x, y in zip(*p, strict=True)] for p in zip(a, b)])
    np.testing.assert_array_equal(found[1], [[int(x) % int(y) for x, y in zip(*p, strict=True)] for p in zip(a, b)])


def test_integers_wrap() -> None:
    A = te.placeholder((2,), "int8")
    found = interpret(te.compute((2,), lambda i: A[i] + A[i]), {A: np.array([100, -100], np.int8)})
    np.testing.assert_array_equal(found, np.array([-56, 56], np.int8))


@pytest.mark.parametrize("dtype", [d for d in ALL if d.is_integer])
def test_float_to_integer_casts_saturate(dtype: str) -> None:
    info = np.iinfo(dtype)
    x = np.array([np.nan, np.inf, -np.inf, 1e30, -1e30, 2.9, -2.9], np.float64)
    A = te.placeholder((7,), "float64")
    found = interpret(te.compute((7,), lambda i: te.cast(A[i], dtype)), {A: x})
    expected = [0, info.max, info.min, info.max, info.min, 2, max(-2, info.min)]
    assert found.dtype == dtype
    assert found.tolist() == expected


@given(st.floats(width=32), st.sampled_from(["add", "mul", "sub", "div"]), st.floats(width=32))
def test_bfloat16_is_float32_rounded_after_each_operation(a: float, name: str, b: float) -> None:
    x, y = (np.array([v], ml_dtypes.bfloat16) for v in (a, b))
    A, B = te.placeholder((1,), "bfloat16"), te.placeholder((1,), "bfloat16")
    C = te.compute((1,), lambda i: _apply(name, A[i], B[i]))
    with np.errstate(all="ignore"):
        expected = _apply(name, x.astype(F32), y.astype(F32)).astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(interpret(C, {A: x, B: y}).astype(F32), expected.astype(F32))


def _apply(name: str, a: Any, b: Any) -> Any:
    return {"add": lambda: a + b, "mul": lambda: a * b, "sub": lambda: a - b, "div": lambda: a / b}[name]()


@given(st.floats(width=32))
def test_rounding_to_bfloat16_is_that_of_ml_dtypes(value: float) -> None:
    x = np.array([value], F32)
    with np.errstate(all="ignore"):
        expected = x.astype(ml_dtypes.bfloat16).astype(F32)
    np.testing.assert_array_equal(rounded(x, as_dtype("bfloat16")), expected)


def test_a_sum_beyond_float16_is_infinite_without_a_warning() -> None:
    A = te.placeholder((3,), "float16")
    total = te.compute((), lambda: te.sum(lambda i: A[i]))
    assert np.isposinf(te.interpret(total, {A: np.full(3, 6e4, np.float16)}))


def test_float16_sums_accumulate_in_float32() -> None:
    x = np.full(4096, 1.0, np.float16)
    A = te.placeholder((4096,), "float16")
    # In float16 the sum would stop at 2048.
    assert interpret(te.compute((), lambda: te.sum(lambda k: A[k])), {A: x}) == 4096


def test_float32_sums_are_exact_before_the_last_rounding() -> None:
    x = np.array([1e8, 1.0, -1e8, 1.0], F32)
    A = te.placeholder((4,))
    assert interpret(te.compute((), lambda: te.sum(lambda k: A[k])), {A: x}) == 2.0


# Guards


def test_an_untaken_branch_may_leave_its_tensor_and_divide_by_zero() -> None:
    A = te.placeholder((4,))
    d = te.placeholder((4,), "int32")
    shifted = te.compute((4,), lambda i: te.select(i > 0, A[i - 1], -1.0))
    np.testing.assert_array_equal(interpret(shifted, {A: arange(4)}), [-1, 0, 1, 2])
    divided = te.compute((4,), lambda i: te.select(d[i] != 0, 12 // d[i], 0))
    np.testing.assert_array_equal(interpret(divided, {d: np.array([0, 1, 5, -5], np.int32)}), [0, 12, 2, -3])


def test_a_condition_that_reads_what_its_branch_reads() -> None:
    A = te.placeholder((4,))
    C = te.compute((4,), lambda i: te.select(i > 0, te.select(A[i - 1] > 1, A[i - 1], 0.0), -1.0))
    np.testing.assert_array_equal(interpret(C, {A: arange(4)}), [-1, 0, 0, 2])


def test_a_condition_that_holds_everywhere_is_asked_only_where_it_matters() -> None:
    A, k = te.placeholder((2,), "int32", name="A"), te.reduce_axis(3, "k")
    for low, chosen in ((0, 1), (100, 2)):
        x = te.compute((4,), lambda i, low=low: te.select(i < 2, te.select(A[i] > low, 1, 2), 3))
        assert interpret(x, {A: np.array([5, 6], np.int32)}).tolist() == [chosen, chosen, 3, 3]
        y = te.scan((1, 4), lambda y, t, i, low=low: te.select(i < 2, te.sum(k, axis=k, where=A[i] > low), 7))
        assert interpret(y, {A: np.array([5, 6], np.int32)}).tolist() == [[6 - 3 * chosen, 6 - 3 * chosen, 7, 7]]


def test_where_guards_reads_of_a_reduction() -> None:
    A = te.placeholder((4,))
    k = te.reduce_axis(3, "k")
    C = te.compute((4,), lambda i: te.sum(A[i + k - 1], axis=k, where=(i + k >= 1) & (i + k < 5)))
    np.testing.assert_array_equal(interpret(C, {A: arange(4)}), np.convolve(np.arange(4), np.ones(3), "same"))


def test_a_read_outside_is_an_error_that_says_all() -> None:
    A = te.placeholder((3, 4), name="A")
    idx = te.placeholder((5,), "int32", name="idx")
    C = te.compute((5,), lambda i: A[1, idx[i]], name="C")
    with pytest.raises(IndexError) as caught:
        interpret(C, {A: arange(3, 4), idx: np.array([0, 3, 7, -2, 1], np.int32)})
    text = str(caught.value)
    for part in (
        "'C'",
        "test_reference.py",
        "dimension 1",
        "float32[3, 4]",
        "it is 7",
        "i = 2",
        "-2 to 7",
        "index < 4",
    ):
        assert part in text


def test_unsigned_64_bit_indices_do_not_come_back_in_range() -> None:
    A, idx = te.placeholder((3,)), te.placeholder((1,), "uint64")
    with pytest.raises(IndexError):
        interpret(te.compute((1,), lambda i: A[idx[i]]), {A: arange(3), idx: np.array([2**64 - 1], np.uint64)})


def test_integer_division_by_zero_is_an_error_where_it_is_used() -> None:
    d = te.placeholder((3,), "int32")
    for f in (lambda i: 5 // d[i], lambda i: 5 % d[i]):
        with pytest.raises(ZeroDivisorError, match="i = 1"):
            interpret(te.compute((3,), f), {d: np.array([1, 0, 2], np.int32)})
    with pytest.raises(ValueError, match="negative exponent"):
        interpret(te.compute((3,), lambda i: te.pow(d[i], d[i])), {d: np.array([1, 0, -2], np.int32)})


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8", "bool"])
def test_integers_to_negative_powers_are_refused_where_they_are_written(dtype: str) -> None:
    d = te.placeholder((3,), dtype, name="d")
    for written in (lambda: d**-1, lambda: te.compute((3,), lambda i: d[i] ** -2), lambda: te.pow(d + d, -1)):
        with pytest.raises(ValueError, match=r"which its powers with the negative exponent -\d are not, .* by te.cast"):
            written()
    assert (d ** np.float32(-1)).dtype.is_float
    assert te.compute((3,), lambda i: te.cast(d[i], "float32") ** -1).dtype == "float32"


def lazily(expr: Expr, point: dict[Expr, int], data: dict[Any, Any]) -> Any:
    """The value at one point, a branch computed only when it is taken: what the evaluator must agree with."""
    if expr in point:
        return point[expr]
    if isinstance(expr, Const):
        return expr.value
    if isinstance(expr, Read):
        index = tuple(lazily(i, point, data) for i in expr.indices)
        array = data[expr.tensor]
        if any(not 0 <= i < n for i, n in zip(index, array.shape, strict=True)):
            raise IndexError
        return int(array[index])
    assert isinstance(expr, Apply)
    if expr.fn is Fn.SELECT:
        condition, taken, other = expr.args
        return lazily(taken if lazily(condition, point, data) else other, point, data)
    args = [lazily(a, point, data) for a in expr.args]
    if expr.fn in (Fn.FLOORDIV, Fn.MOD) and args[1] == 0:
        raise ZeroDivisionError
    return EXACT[expr.fn](*args)


@st.composite
def bodies(draw: st.DrawFn, A: Any, i: Any, j: Any, depth: int = 4) -> Any:
    """An integer expression that reads, divides and selects, right or wrong."""
    if depth == 0 or draw(st.integers(0, 4)) == 0:
        return draw(st.sampled_from([i, j, te.const(1), te.const(0), A[i, j]]))
    a, b, c = (draw(bodies(A, i, j, depth - 1)) for _ in range(3))
    kind = draw(st.sampled_from(["add", "sub", "select", "select", "read", "clamped", "div", "divided", "min"]))
    divisor = te.const(2) if isinstance(b, Const) else b
    rules: dict[str, Any] = {
        "add": lambda: a + b, "sub": lambda: a - b, "min": lambda: te.minimum(a, b), "read": lambda: A[a, b],
        "select": lambda: te.select(a > c, a, b), "clamped": lambda: A.at(a, b, mode="clamp"),
        "divided": lambda: te.select(b > 0, a // divisor, c), "div": lambda: a // divisor,
    }  # fmt: skip
    return rules[kind]()


@given(st.data())
def test_values_and_errors_are_those_of_lazy_evaluation(data: st.DataObject) -> None:
    A = te.placeholder((3, 4), "int32", name="A")
    x = np.array([[0, 1, 2, 1], [2, 0, 1, 0], [1, 1, -1, 3]], np.int32)
    holder: list[Any] = []

    def body(i: Any, j: Any) -> Any:
        holder[:] = [i, j, data.draw(bodies(A, i, j))]
        return holder[2]

    T = te.compute((3, 4), body)
    i, j, expr = holder
    try:
        expected = [[lazily(expr, {i: p, j: q}, {A: x}) for q in range(4)] for p in range(3)]
    except (IndexError, ZeroDivisionError):
        with pytest.raises((IndexError, ZeroDivisionError)):
            interpret(T, {A: x})
        return
    np.testing.assert_array_equal(interpret(T, {A: x}), expected)


# Reductions


@pytest.mark.parametrize("kind", ["sum", "prod", "max", "min"])
@pytest.mark.parametrize("dtype", ["float32", "int32", "uint8", "float64"])
def test_reductions(kind: str, dtype: str) -> None:
    x = np.random.default_rng(0).integers(1, 9, (5, 3, 4)).astype(dtype)
    A = te.placeholder((5, 3, 4), dtype)
    C = te.compute((3,), lambda j: getattr(te, kind)(lambda i, k: A[i, j, k]))
    expected = getattr(np, kind)(
        x.astype("float64") if dtype[0] == "f" else x,
        axis=(0, 2),
        **({"dtype": dtype} if kind in ("sum", "prod") and dtype[0] != "f" else {}),
    )
    np.testing.assert_array_equal(interpret(C, {A: x}), expected.astype(dtype))


def test_any_and_all() -> None:
    x = np.array([[True, False], [True, True], [False, False]])
    A = te.placeholder((3, 2), "bool")
    e, a = te.compute((3,), lambda i: te.any(lambda k: A[i, k])), te.compute((3,), lambda i: te.all(lambda k: A[i, k]))
    np.testing.assert_array_equal(interpret(e, {A: x}), x.any(1))
    np.testing.assert_array_equal(interpret(a, {A: x}), x.all(1))


def test_argmax_takes_the_first_winner_and_the_first_nan() -> None:
    x = np.array([[1, 3, 3, 0], [np.nan, 5, np.nan, 9], [-np.inf] * 4, [0, 0, 0, 0]], F32)
    A = te.placeholder((4, 4))
    k = te.reduce_axis(4, "k")
    np.testing.assert_array_equal(
        interpret(te.compute((4,), lambda i: te.argmax(A[i, k], axis=k)), {A: x}), [1, 0, 0, 0]
    )
    np.testing.assert_array_equal(
        interpret(te.compute((4,), lambda i: te.argmin(A[i, k], axis=k)), {A: x}), [3, 0, 0, 0]
    )
    guarded = te.compute((4,), lambda i: te.argmax(A[i, k], axis=k, where=k > 0))
    np.testing.assert_array_equal(interpret(guarded, {A: x}), [1, 2, 1, 1])
    never = te.compute((4,), lambda i: te.argmax(A[i, k], axis=k, where=A[i, k] > 100))
    np.testing.assert_array_equal(interpret(never, {A: x}), [0, 0, 0, 0])


def test_argmax_counts_positions_row_major_over_several_axes() -> None:
    x = np.random.default_rng(1).random((3, 4, 5)).astype(F32)
    A = te.placeholder((3, 4, 5))
    j, k = te.reduce_axis(4, "j"), te.reduce_axis((1, 5), "k")
    C = te.compute((3,), lambda i: te.argmax(A[i, j, k], axis=(j, k)))
    np.testing.assert_array_equal(interpret(C, {A: x}), x[:, :, 1:].reshape(3, -1).argmax(1))


def test_chunks_do_not_change_results(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(2).random((6, 7, 5)).astype(F32)
    x[1, 2, 3] = x[4, 4, 4] = np.nan
    A = te.placeholder((6, 7, 5))
    last = te.reducer(lambda a, b: (te.select(b[1] > 0, b[0], a[0]), a[1] + b[1]), (0.0, 0.0))
    programs = [
        te.compute((7,), lambda j: te.max(lambda i, k: A[i, j, k])),
        te.compute((7,), lambda j: te.argmax(lambda i, k: A[i, j, k])),
        te.compute((7,), lambda j: te.argmin(lambda i, k: -A[i, j, k])),
        te.compute((7,), lambda j: te.sum(lambda i, k: A[i, j, k])),
        *te.compute((7,), lambda j: last(lambda i, k: (A[i, j, k], te.select(A[i, j, k] > 0.5, 1.0, 0.0)))),
        te.compute((6, 5), lambda i, k: A[i, 3, k] * 2),
    ]
    whole = interpret(programs, {A: x})
    for limit in (1, 4, 33):
        monkeypatch.setattr(machinery, "LIMIT", limit)
        for a, b in zip(whole, interpret(programs, {A: x}), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-7, equal_nan=True)


def test_a_custom_reducer_folds_left_to_right() -> None:
    # Matrices (a, b): x -> a*x + b compose in order, and do not commute.
    then = te.reducer(lambda f, g: (f[0] * g[0], f[1] * g[0] + g[1]), (1, 0))
    a, b = np.array([2, 3, 5], np.int32), np.array([1, 1, 1], np.int32)
    A, B = te.placeholder((3,), "int32"), te.placeholder((3,), "int32")
    slope, offset = te.compute((), lambda: then(lambda k: (A[k], B[k])))
    found = interpret([slope, offset], {A: a, B: b})
    assert [int(v) for v in found] == [30, ((1 * 3) + 1) * 5 + 1]


def test_reductions_over_nothing_give_the_identity() -> None:
    n = te.var("n")
    A = te.placeholder((2, n))
    k = te.reduce_axis(n, "k")
    for kind, expected in [("sum", 0), ("prod", 1), ("max", -np.inf), ("min", np.inf), ("argmax", 0)]:
        C = te.compute((2,), lambda i, kind=kind: getattr(te, kind)(A[i, k], axis=k))
        np.testing.assert_array_equal(interpret(C, {A: np.zeros((2, 0), F32)}), [expected, expected])


def test_the_maximum_of_nothing_is_an_error_where_it_is_certain() -> None:
    A = te.placeholder((2, 0))
    with pytest.raises(ValueError, match="max over nothing"):
        interpret(te.compute((2,), lambda i: te.max(lambda k: A[i, k])), {A: np.zeros((2, 0), F32)})


# Scans


def test_scan_forward_and_reverse_with_lags_and_other_axes() -> None:
    x = np.random.default_rng(3).random((6, 3))
    A = te.placeholder((6, 3), "float64")
    y = te.scan((6, 3), lambda y, t, i: A[t, i] + te.select(t >= 2, 0.5 * y[t - 2, 2 - i], 0.0))
    z = te.scan((3, 6), lambda z, i, t: A[t, i] + te.select(t < 5, z[i, t + 1], 0.0), axis=1, reverse=True)
    expected = x.copy()
    for t in range(2, 6):
        expected[t] += 0.5 * expected[t - 2, ::-1]
    np.testing.assert_allclose(interpret(y, {A: x}), expected, rtol=1e-15)
    np.testing.assert_allclose(interpret(z, {A: x}), np.cumsum(x[::-1], 0)[::-1].T, rtol=1e-15)


def test_scan_of_several_states_with_a_reduction_inside() -> None:
    w = np.array([[0.5, 0.25], [1.0, -0.5]])
    W = te.placeholder((2, 2), "float64")
    k = te.reduce_axis(2, "k")
    h, c = te.scan(
        (4, 2),
        lambda h, c, t, i: (
            te.select(t > 0, te.sum(W[i, k] * h[t - 1, k], axis=k) + c[t - 1, i], 1.0),
            te.select(t > 0, c[t - 1, i] + h[t - 1, i], 0.0),
        ),
    )
    a, b = np.ones(2), np.zeros(2)
    for t in range(4):
        found = interpret([h, c], {W: w})
        np.testing.assert_allclose(found[0][t], a)
        np.testing.assert_allclose(found[1][t], b)
        a, b = w @ a + b, b + a


@pytest.mark.parametrize("reverse", [False, True])
def test_a_scan_may_not_read_steps_that_are_not_done(reverse: bool) -> None:
    lag = te.placeholder((4,), "int32")
    y = te.scan((4,), lambda y, t: te.select(t == (3 if reverse else 0), 1, y[t - lag[t]]), reverse=reverse)
    good = np.full(4, -1 if reverse else 1, np.int32)
    assert interpret(y, {lag: good}).tolist() == [1, 1, 1, 1]
    with pytest.raises(IndexError, match="later step" if reverse else "earlier step"):
        interpret(y, {lag: np.zeros(4, np.int32)})


def test_a_step_computes_what_is_needed_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stages of a step lie in phases of it: each is evaluated in its own; what all steps have in common, once."""
    computed: list[Fn] = []
    monkeypatch.setattr(grid, "apply_numpy", lambda fn, *rest: computed.append(fn) or apply_numpy(fn, *rest))
    steps, n = 20, 3
    w, x = te.placeholder((n, n), "float64", name="w"), te.placeholder((steps,), "float64", name="x")

    def step(h: Any, c: Any, t: Any) -> Any:
        before = te.where(t == 0, 0.0, h[t - 1])
        total = te.sum(te.exp(w), axis=1) + w @ before
        new = te.where(t == 0, x[0], c[t - 1]) + te.sum(total * total)
        return te.tanh(w @ total) / (1.0 + new * new), new

    h, c = te.scan([(steps, n), (steps,)], step)
    found = interpret([h, c], {w: np.eye(n) / 3, x: np.full(steps, 0.25)})
    state, last = np.zeros(n), 0.25
    for row, number in zip(*found, strict=True):
        total = np.exp(np.eye(n) / 3).sum(1) + state / 3
        last = last + (total * total).sum()
        state = np.tanh(total / 3) / (1.0 + last * last)
        np.testing.assert_allclose([*row, number], [*state, last], rtol=1e-12)
    assert [computed.count(fn) for fn in (Fn.TANH, Fn.EXP)] == [steps, 1]
    assert len(computed) < 20 * steps  # 70 a step where every phase computes what all of them do


def test_what_steps_have_in_common_is_right_where_it_is_needed() -> None:
    """An index that is out of bounds at a place which no step needs at first."""
    idx, x = te.placeholder((4,), "int32", name="idx"), te.placeholder((3,), "int32", name="x")
    y = te.scan((4, 4), lambda y, t, i: te.select(i < t, x[idx[i]], te.select(t > 0, y[t - 1, i], 0)))
    data = np.array([5, 6, 7], np.int32)
    assert interpret(y, {idx: np.array([2, 0, 1, 9], np.int32), x: data})[3].tolist() == [7, 5, 6, 0]
    with pytest.raises(IndexError, match=r"it is 9 at i = 1"):
        interpret(y, {idx: np.array([2, 9, 1, 0], np.int32), x: data})


def test_steps_of_which_each_needs_something_else() -> None:
    x = te.placeholder((4,), "float64", name="x")
    y = te.scan(
        (4, 4),
        lambda y, t, i: te.select(t % 2 == 0, te.sin(x[i]), te.select(i > 0, x[i - 1], y[te.maximum(t - 1, 0), i])),
    )
    data = np.linspace(0.0, 1.0, 4)
    even, odd = np.sin(data), np.array([np.sin(data[0]), *data[:3]])
    np.testing.assert_allclose(interpret(y, {x: data}), [even, odd, even, odd], rtol=1e-15)


def test_a_sum_has_the_same_bits_however_its_operands_lie() -> None:
    x = np.random.default_rng(5).normal(size=(70, 90))
    A, T, k = te.placeholder((70, 90), "float64"), te.placeholder((90, 70), "float64"), te.reduce_axis(90, "k")
    for feed in (x, np.asfortranarray(x), np.repeat(x, 2, axis=0)[::2]):
        found = interpret(te.compute((70,), lambda i: te.sum(A[i, k], axis=k)), {A: feed})
        np.testing.assert_array_equal(found, x.sum(axis=1))
        found = interpret(te.compute((70,), lambda i: te.sum(T[k, i], axis=k)), {T: feed.T})
        np.testing.assert_array_equal(found, x.sum(axis=1))


# Scatters


@pytest.mark.parametrize(
    ("op", "ufunc", "start"),
    [("add", np.add, 0), ("mul", np.multiply, 1), ("max", np.maximum, -np.inf), ("min", np.minimum, np.inf)],
)
def test_scatter_combines_duplicates(op: str, ufunc: Any, start: float) -> None:
    rng = np.random.default_rng(4)
    rows, values, first = rng.integers(0, 5, 20), rng.random((20, 3)).astype(F32), rng.random((5, 3)).astype(F32)
    idx, G, First = te.placeholder((20,), "int64"), te.placeholder((20, 3)), te.placeholder((5, 3))
    i, j = te.reduce_axis(20, "i"), te.reduce_axis(3, "j")
    feeds = {idx: rows, G: values, First: first}
    for init, begin in [(None, np.full((5, 3), float(start))), (First, first.astype("float64"))]:
        S = te.scatter((5, 3), axes=[i, j], index=(idx[i], j), value=G[i, j], op=op, init=init, where=i != 7)
        expected = begin.copy()
        kept = np.arange(20) != 7
        ufunc.at(expected, rows[kept], values[kept].astype("float64"))
        np.testing.assert_array_equal(interpret(S, feeds), expected.astype(F32))


def test_a_scatter_outside_is_an_error_unless_guarded() -> None:
    idx = te.placeholder((3,), "int32", name="idx")
    i = te.reduce_axis(3, "i")
    rows = np.array([0, 4, 1], np.int32)
    with pytest.raises(IndexError, match=r"(?s)it is 4 at i = 1.*index < 4.*where="):
        interpret(te.scatter((4,), axes=[i], index=idx[i], value=te.const(1.0)), {idx: rows})
    guarded = te.scatter((4,), axes=[i], index=idx[i], value=te.const(1.0), where=idx[i] < 4)
    np.testing.assert_array_equal(interpret(guarded, {idx: rows}), [1, 1, 0, 0])


# Externs


def test_extern_gets_read_only_copies_and_its_result_is_checked() -> None:
    A = te.placeholder((3,))
    seen: list[bool] = []

    def twice(x: Any) -> Any:
        seen.append(x.flags.writeable)
        return x * 2

    E = te.extern(twice, (3,), "float32", [A])
    np.testing.assert_array_equal(interpret(te.compute((3,), lambda i: E[i] + 1), {A: arange(3)}), [1, 3, 5])
    assert seen == [False]
    for bad, error in [
        (lambda x: x[:2], ValueError),
        (lambda x: x.astype("float64"), TypeError),
        (lambda x: 3.0, TypeError),
    ]:
        with pytest.raises(error, match="expected"):
            interpret(te.extern(bad, (3,), "float32", [A]), {A: arange(3)})


def test_extern_of_several_results() -> None:
    A = te.placeholder((4,))
    low, high = te.extern(lambda x: (x.min(), x[2:]), [(), (2,)], ["float32", "float32"], A)
    found = interpret([high, low], {A: arange(4)})
    assert found[0].tolist() == [2, 3]
    assert found[1] == 0


# Shapes, sizes and feeds


def test_one_tensor_gives_an_array_a_list_gives_a_tuple() -> None:
    A = te.placeholder((2,))
    assert isinstance(interpret(A, {A: arange(2)}), np.ndarray)
    assert isinstance(interpret([A], {A: arange(2)}), tuple)
    result = interpret(te.compute((), lambda: A[1] + 1), {A: arange(2)})
    assert isinstance(result, np.ndarray)
    assert result.shape == ()


def test_results_share_no_memory_with_feeds() -> None:
    A = te.placeholder((2,))
    x = arange(2)
    assert not np.shares_memory(interpret(A, {A: x}), x)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0)])
def test_zero_extents(shape: tuple[int, int]) -> None:
    n, m = te.var("n"), te.var("m")
    A = te.placeholder((n, m))
    x = np.zeros(shape, F32)
    k = te.reduce_axis(m, "k")
    C = te.compute((n, m), lambda i, j: te.exp(A[i, j]))
    S = te.compute((n,), lambda i: te.sum(A[i, k], axis=k))
    y = te.scan((n, m), lambda y, t, i: A[t, i] + te.select(t > 0, y[t - 1, i], 0.0))
    r = te.reduce_axis(n, "r")
    scattered = te.scatter((m,), axes=[r, k], index=k, value=A[r, k])
    found = interpret([C, S, y, scattered], {A: x})
    assert [f.shape for f in found] == [shape, shape[:1], shape, shape[1:]]
    assert not found[1].any()
    assert not found[3].any()


def test_strided_and_reversed_feeds() -> None:
    x = arange(6, 8)
    n, m = te.var("n"), te.var("m")
    A = te.placeholder((n, m))
    T = te.compute((n, m), lambda i, j: A[i, j])
    for view in (x[::2, ::-1], x.T, np.asfortranarray(x)):
        np.testing.assert_array_equal(interpret(T, {A: view}), view)


def test_sizes_that_no_input_carries() -> None:
    n = te.var("n")
    C = te.compute((n,), lambda i: i * 2)
    assert interpret(C, {}, sizes={n: 3}).tolist() == [0, 2, 4]
    with pytest.raises(ValueError, match=r"pass sizes=\{n: ...\}"):
        interpret(C, {})


def test_unread_inputs_may_be_fed() -> None:
    A, B = te.placeholder((2,)), te.placeholder((3,))
    assert interpret(te.compute((2,), lambda i: A[i]), {A: arange(2), B: arange(3)}).tolist() == [0, 1]


def test_a_computed_tensor_can_be_fed() -> None:
    n = te.var("n")
    A = te.placeholder((n,), name="A")
    u, v = te.compute((n,), lambda i: (A[i] + 1, A[i] * 2))
    total = te.compute((n,), lambda i: u[i] * 100 + v[i])
    fed = arange(3)
    assert interpret(u * 2, {u: fed}).tolist() == [0, 2, 4]
    for run in (interpret, te.evaluate):
        assert run(u, {u: fed}).tolist() == [0, 1, 2]
        assert run(total, {A: arange(3), u: fed}).tolist() == [0, 102, 204]


def test_roots_as_powers_follow_one_rule() -> None:
    """NumPy takes the square root's, or C's, by the strides and the size of the exponents."""
    a = np.array([-np.inf, -0.0, 4], dtype="float32")
    for size in (3, 1):
        A = te.placeholder((size,))
        for run in (interpret, te.evaluate):
            got = run(A**0.5, {A: a[:size]})
            assert got.tolist() == [np.inf, 0, 2][:size]
            assert not np.signbit(got).any()


def test_bad_feeds() -> None:
    A = te.placeholder((2, 3), name="A")
    C = te.compute((2, 3), lambda i, j: A[i, j] + 1, name="C")
    cases: list[tuple[Any, type[Exception], str]] = [
        ({}, ValueError, "'A'|A : .*missing"),
        ({A: arange(3, 2)}, ValueError, "expected extent 2 in dimension 0, found 3"),
        ({A: arange(2)}, ValueError, "expected 2 dimensions"),
        ({A: arange(2, 3, dtype="float64")}, TypeError, "expected dtype float32, found float64"),
        ({A: [[1, 2, 3], [4, 5]]}, ValueError, "lists .* are of several lengths"),
        ({A: [["1"] * 3] * 2}, TypeError, "found <U1"),
        ({A: np.array([[None] * 3] * 2)}, TypeError, "found object"),
        ({1: arange(2, 3)}, TypeError, "keys of feeds"),
        ({"a": arange(2, 3)}, ValueError, "no input named 'a', but 'A'"),
        ({"A": arange(2, 3), A: arange(2, 3)}, ValueError, "two arrays for A"),
        (arange(2, 3), TypeError, "feeds is a dict"),
    ]
    for feeds, error, text in cases:
        with pytest.raises(error, match=text):
            interpret(C, feeds)
    with pytest.raises(TypeError, match=re.escape("outputs are tensors")):
        interpret(A[te.reduce_axis(2), 0] + 1, {A: arange(2, 3)})
    assert interpret([A[1, 2] + 1, A[0].sum()], {A: arange(2, 3)}) == (6, 3)


@pytest.mark.parametrize("evaluate", [interpret, te.evaluate])
def test_feeds_by_name(evaluate: Any) -> None:
    A, B = te.placeholder((2, 3), name="A"), te.placeholder((3,), name="B")
    C = te.compute((2, 3), lambda i, j: A[i, j] - B[j], name="C")
    a, b = arange(2, 3), arange(3)
    np.testing.assert_array_equal(evaluate(C, {"B": b, "A": a}), a - b)
    np.testing.assert_array_equal(evaluate(C, {"B": b, A: a}), a - b)
    twice = te.compute((3,), lambda j: B[j] + te.placeholder((3,), name="B")[j], name="twice")
    with pytest.raises(ValueError, match=r"'B' is the name of B .* and B .*; give the tensors themselves"):
        evaluate(twice, {"B": b})


def test_numbers_for_rank_0() -> None:
    s = te.placeholder((), "float32", name="s")
    b = te.placeholder((), "bool", name="b")
    C = te.compute((), lambda: te.select(b[()], s[()] * 2, 0.0))
    assert interpret(C, {s: 3, b: True}) == 6
    assert interpret(C, {s: F32(1.5), b: np.True_}) == 3
    with pytest.raises(TypeError, match="expected a value of bool"):
        interpret(C, {s: 1.0, b: 1})


# Programs over several stages


def test_a_softmax() -> None:
    x = np.random.default_rng(5).normal(size=(4, 7)).astype(F32)
    n, m = te.var("n"), te.var("m")
    A = te.placeholder((n, m))
    k = te.reduce_axis(m, "k")
    top = te.compute((n,), lambda i: te.max(A[i, k], axis=k))
    e = te.compute((n, m), lambda i, j: te.exp(A[i, j] - top[i]))
    S = te.compute((n, m), lambda i, j: e[i, j] / te.sum(e[i, k], axis=k))
    wide = np.exp(x.astype("d") - x.astype("d").max(1, keepdims=True))
    np.testing.assert_allclose(interpret(S, {A: x}), wide / wide.sum(1, keepdims=True), rtol=3e-7)


@given(st.lists(st.integers(0, 5), min_size=0, max_size=4), st.integers(1, 12))
def test_boxes_cover_every_point_once_in_order(lengths: list[int], limit: int) -> None:
    seen = [
        point
        for box in boxes(lengths, limit)
        for point in np.ndindex(*(end - start for start, end in box))
        for point in [tuple(p + start for p, (start, _) in zip(point, box, strict=True))]
    ]
    assert seen == list(np.ndindex(*lengths))
    assert all(math.prod(end - start for start, end in box) <= limit for box in boxes(lengths, limit))


def test_apply_numpy_of_integers_by_zero_is_total() -> None:
    zero, one = np.zeros(1, np.int32), np.ones(1, np.int32)
    assert apply_numpy(Fn.FLOORDIV, [one, zero], as_dtype("int32")) == 0


@pytest.mark.parametrize("dtype", ALL)
def test_every_construct_takes_every_dtype(dtype: Any) -> None:
    x = np.random.default_rng(6).integers(0, 3, (4, 3)).astype(dtype.numpy)
    exact = x.astype("float64")
    A, k, r = te.placeholder((4, 3), dtype), te.reduce_axis(3, "k"), te.reduce_axis(4, "r")
    for kind in ("sum", "prod", "max", "min", "argmax", "argmin"):
        found = interpret(te.compute((4,), lambda i, kind=kind: getattr(te, kind)(A[i, k], axis=k)), {A: x})
        np.testing.assert_array_equal(found.astype("float64"), getattr(np, kind)(exact, axis=1))
    rows = te.scan((4, 3), lambda y, t, j: te.select(t > 0, y[t - 1, j], A[t, j]))
    np.testing.assert_array_equal(interpret(rows, {A: x}), np.broadcast_to(x[0], (4, 3)))
    if dtype != "bool":
        summed = interpret(te.scatter((2,), axes=[r], index=r % 2, value=A[r, 0]), {A: x})
        np.testing.assert_array_equal(summed.astype("float64"), exact[:, 0].reshape(2, 2).sum(0))
        assert summed.dtype == x.dtype


def test_many_sums_of_one_element_take_no_time() -> None:
    """Where an element is needed is asked of each sum, not of all their loops together: 9**12 points."""
    a = te.placeholder((6,), "float64", name="a")
    loops = [te.reduce_axis(9, f"k{d}") for d in range(12)]

    def body(s: Any, t: Any, i: Any) -> Any:
        before = te.select((t > 0) & (i < 5), s[t - 1, i + 1], a[i])
        return sum((te.sum(before * s[t - 1, k % 6], axis=k, where=(t > 0) & (k > 0)) for k in loops), before)

    y = te.scan((3, 6), body)
    data = np.random.default_rng(0).uniform(0.0, 0.1, 6)
    expected = [data]
    for _ in range(2):
        before = np.append(expected[-1][1:], data[5])
        expected.append(before + 12 * before * expected[-1][np.arange(1, 9) % 6].sum())
    np.testing.assert_allclose(te.interpret([y], {a: data})[0], expected, rtol=1e-12)
