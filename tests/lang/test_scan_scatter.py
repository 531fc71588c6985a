"""Recurrences and scatters: what they build, the dtypes they settle on, and what they compute."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tedsl as te
from tedsl.lang.scan import scan

x = te.placeholder((7,), "float64", name="x")
X = te.placeholder((5, 3), "float64", name="X")


def settled(body: Any, count: int = 1) -> list[str]:
    result = te.scan((7,), body)
    return [t.dtype for t in (result if count > 1 else (result,))]


def typed(dtype: str) -> te.Tensor:
    return te.placeholder((7,), dtype, name=f"x_{dtype}")


@pytest.mark.parametrize(
    ("start", "step", "dtype"),
    [
        (0, lambda t: 1, "int32"), (0.0, lambda t: 1, "float32"), (0, lambda t: 1.0, "float32"),
        (0.0, lambda t: typed("float64")[t], "float64"), (0, lambda t: typed("int8")[t], "int8"),
        (0, lambda t: typed("float16")[t], "float16"), (0.0, lambda t: typed("int64")[t], "float64"),
        (0, lambda t: t, "int32"), (0, lambda t: typed("uint8")[t] + typed("int8")[t], "int16"),
        (te.const(0, "int64"), lambda t: t, "int64"), (0, lambda t: typed("bfloat16")[t], "bfloat16"),
    ],
)  # fmt: skip
def test_the_dtype_of_a_state_settles_on_that_of_its_body(start: Any, step: Any, dtype: str) -> None:
    assert settled(lambda y, t: te.select(t == 0, start, y[t - 1] + step(t))) == [dtype]


def test_states_take_dtypes_from_each_other() -> None:
    first = settled(
        lambda a, b, t: (te.select(t == 0, 0, a[t - 1] + 1), te.select(t == 0, x[0], b[t - 1] * a[t - 1])), 2
    )
    assert first == ["int32", "float64"]
    swapped = settled(lambda a, b, t: (te.select(t == 0, 0, b[t - 1]), te.select(t == 0, 0.5, a[t - 1])), 2)
    assert swapped == ["float32", "float32"]


def test_bools_and_positions_can_be_states() -> None:
    assert settled(lambda y, t: te.select(t == 0, True, ~y[t - 1])) == ["bool"]
    assert settled(lambda y, t: te.select(t == 0, t > 1, y[t - 1] & y[t - 1])) == ["bool"]
    assert settled(lambda y, t: te.select(t == 0, False, te.select(y[t - 1], False, True))) == ["bool"]
    jump = te.placeholder((7,), "int64", name="jump")
    place = te.scan((4,), lambda y, t: te.select(t == 0, 0, jump[y[t - 1]]))
    assert place.dtype == "int64"
    assert te.interpret(place, {jump: np.array([3, 0, 1, 6, 5, 4, 2])}).tolist() == [0, 3, 6, 2]
    counts, flags = te.scan(
        (5,), lambda c, f, t: (te.select(t == 0, 0, te.select(f[t - 1], c[t - 1] + 1, c[t - 1])), t % 2 == 0)
    )
    assert (counts.dtype, flags.dtype) == ("int32", "bool")
    assert te.interpret(counts, {}).tolist() == [0, 1, 1, 2, 2]


def test_states_of_numbers_alone_stay_apart() -> None:
    body = lambda a, b, t: (te.select(t == 0, 0, a[t - 1] + 1), te.select(t == 0, 0.5, b[t - 1] * 2))  # noqa: E731
    assert settled(body, 2) == ["int32", "float32"]
    assert settled(lambda y, t: te.select(t == 0, 1, y[t - 1] / 2)) == ["float32"]


def test_a_given_dtype_wins() -> None:
    y = te.scan((7,), lambda y, t: te.select(t == 0, 0, y[t - 1] + 1), dtype="float64")
    assert y.dtype == "float64"
    a, b = te.scan((7,), lambda a, b, t: (1, 2), dtype=("int8", "float16"))
    assert (a.dtype, b.dtype) == ("int8", "float16")


def test_a_dtype_that_grows_for_ever_is_refused_or_settles() -> None:
    y = te.scan((7,), lambda y, t: te.select(t == 0, te.const(1, "int8"), y[t - 1] / 2))
    assert y.dtype == "float64"


def test_a_dtype_that_never_settles_is_refused() -> None:
    def flip(y: Any, t: Any) -> Any:
        return te.cast(y[t - 1], "int8" if y.dtype == "int16" else "int16")

    with pytest.raises(TypeError, match=r"the state's dtype does not settle .*; give dtype="):
        te.scan((7,), flip)


def test_forward_backward_and_several_lags() -> None:
    a = np.random.default_rng(0).standard_normal(7)
    forward = te.scan((7,), lambda y, t: te.select(t == 0, x[0], 0.9 * y[t - 1] + x[t]))
    backward = te.scan((7,), lambda y, t: te.select(t == 6, x[6], 0.9 * y[t + 1] + x[t]), reverse=True)
    fibonacci = te.scan((7,), lambda y, t: te.select(t < 2, 1, y[t - 1] + y[t - 2]))
    expected = [a[0]]
    for value in a[1:]:
        expected.append(0.9 * expected[-1] + value)
    np.testing.assert_allclose(te.interpret(forward, {x: a}), expected)
    np.testing.assert_allclose(te.interpret(backward, {x: a[::-1]}), expected[::-1])
    assert te.interpret(fibonacci, {}).tolist() == [1, 1, 2, 3, 5, 8, 13]


@pytest.mark.parametrize("axis", [0, 1, -1, -2])
def test_any_axis(axis: int) -> None:
    def body(y: Any, *at: Any) -> Any:
        before = tuple(a - 1 if d == axis % 2 else a for d, a in enumerate(at))
        return te.select(at[axis] == 0, X[at], y[before] + X[at])

    a = np.arange(15.0).reshape(5, 3)
    y = te.scan((5, 3), body, axis=axis)
    assert y.op.dims == (axis % 2,)
    np.testing.assert_array_equal(te.interpret(y, {X: a}), np.cumsum(a, axis))


def test_other_axes_may_be_read_anywhere() -> None:
    def body(y: Any, t: Any, i: Any) -> Any:
        inner = (i > 0) & (i < 8)
        return te.select(t == 0, i == 4, te.select(inner, y[t - 1, i - 1] ^ y[t - 1, i + 1], False))

    rule = te.scan((4, 9), body)
    rows = ["....#....", "...#.#...", "..#...#..", ".#.#.#.#."]
    found = te.interpret(rule, {})
    assert ["".join(".#"[int(v)] for v in row) for row in found] == rows


def test_several_states_and_names() -> None:
    total, most = te.scan(
        (7,),
        lambda s, m, t: (te.select(t == 0, x[0], s[t - 1] + x[t]), te.select(t == 0, x[0], te.maximum(m[t - 1], x[t]))),
        name=("total", "most"),
    )
    assert (total.name, most.name) == ("total", "most")
    a = np.random.default_rng(1).standard_normal(7)
    sums, maxima = te.interpret([total, most], {x: a})
    np.testing.assert_allclose(sums, np.cumsum(a))
    np.testing.assert_array_equal(maxima, np.maximum.accumulate(a))


def test_a_tuple_of_one_gives_a_tuple() -> None:
    (y,) = te.scan((3,), lambda y, t: (te.select(t == 0, 1, y[t - 1] * 2),))
    assert te.interpret(y, {}).tolist() == [1, 2, 4]
    assert scan is te.scan


KINDS = {"add": (np.add, 0), "mul": (np.multiply, 1), "max": (np.maximum, -np.inf), "min": (np.minimum, np.inf)}


@pytest.mark.parametrize("with_init", [False, True], ids=["identity", "init"])
@pytest.mark.parametrize("kind", KINDS)
def test_scatters_combine_duplicates(kind: str, with_init: bool) -> None:
    rng = np.random.default_rng(2)
    p, z = te.placeholder((7,), "int64", name="p"), te.placeholder((4,), "float64", name="z")
    r = te.reduce_axis(7, "r")
    out = te.scatter((4,), [r], p[r], x[r], op=kind, init=z if with_init else None)
    a, where, start = rng.standard_normal(7), rng.integers(0, 3, 7), rng.standard_normal(4)
    ufunc, identity = KINDS[kind]
    expected = start.copy() if with_init else np.full(4, identity, "float64")
    ufunc.at(expected, where, a)
    feeds = {x: a, p: where, **({z: start} if with_init else {})}
    np.testing.assert_allclose(te.interpret(out, feeds), expected)


def test_scatters_over_several_axes_with_arithmetic_indices_and_a_condition() -> None:
    i, j = te.reduce_axis(5, "i"), te.reduce_axis(3, "j")
    out = te.scatter((4, 2), [i, j], (i + j - 1, j % 2), X[i, j], where=(i + j >= 1) & (i + j <= 4))
    a = np.arange(15.0).reshape(5, 3)
    expected = np.zeros((4, 2))
    for p in range(5):
        for q in range(3):
            if 1 <= p + q <= 4:
                expected[p + q - 1, q % 2] += a[p, q]
    np.testing.assert_array_equal(te.interpret(out, {X: a}), expected)


def test_scatters_infer_ranges_lift_reductions_and_take_the_dtype_of_init() -> None:
    r = te.reduce_axis(7, "r")
    half = te.placeholder((4,), "float32")
    with pytest.raises(TypeError, match="init= is float32, but the values are float64"):
        te.scatter((4,), [r], r % 4, x[r], init=half)
    ints = te.scatter((4,), [r], r % 4, r, init=te.placeholder((4,), "float64"))
    assert ints.dtype == "float64"
    assert te.scatter((4,), [r], r % 4, 1).dtype == "int32"


def test_inputs_of_a_scatter_hold_its_init() -> None:
    r, z = te.reduce_axis(7, "r"), te.placeholder((4,), "float64", name="z")
    out = te.scatter((4,), [r], r % 4, x[r], init=z)
    assert [t.name for t in out.op.inputs] == ["x", "z"]


def test_inputs_of_a_scan_do_not_hold_its_state() -> None:
    y = te.scan((7,), lambda y, t: te.select(t == 0, x[0], y[t - 1] + x[t]))
    assert [t.name for t in y.op.inputs] == ["x"]


def test_externs() -> None:
    y = te.extern(np.sort, (7,), "float64", [x], name="sorted")
    assert te.interpret(y + 0, {x: np.arange(7.0)[::-1]}).tolist() == list(range(7))
    low, high = te.extern(lambda a: (a.min(), a.max()), [(), ()], ["float64", "float64"], x)
    assert te.interpret([low, high], {x: np.arange(7.0)}) == (0, 6)


def test_the_first_axes_may_have_names_and_the_others_none() -> None:
    x = te.placeholder((4, 2, 3), name="x")

    def sums(s: Any, t: Any, *at: Any) -> Any:
        return te.select(t == 0, x[(t, *at)], s[(t - 1, *at)] + x[(t, *at)])

    def before(a: Any, b: Any, *at: Any) -> Any:
        last = (at[0] - 1, *at[1:])
        return x[at], te.select(at[0] == 0, 0.0, b[last] + a[last])

    values = np.arange(24, dtype="float32").reshape(4, 2, 3)
    np.testing.assert_array_equal(te.evaluate(te.scan((4, 2, 3), sums), {x: values}), values.cumsum(0))
    _, shifted = te.evaluate(te.scan((4, 2, 3), before), {x: values})
    np.testing.assert_array_equal(shifted[1:], values.cumsum(0)[:-1])
    with pytest.raises(ValueError, match=r"expected 2 expressions, .*, found 3"):
        te.scan((4,), lambda a, b, *at: (1.0, 2.0, 3.0))


def test_a_scatter_takes_functions_of_its_axes() -> None:
    x = te.placeholder((5,), name="x")
    r = te.reduce_axis(5, name="r")
    told = te.scatter((2, 3), [r], lambda r: (r % 2, r % 3), lambda r: x[r], where=lambda r: r > 0)
    plain = te.scatter((2, 3), [r], (r % 2, r % 3), x[r], where=r > 0)
    feed = {x: np.arange(5, dtype="float32")}
    np.testing.assert_array_equal(te.evaluate(told, feed), te.interpret(plain, feed))


def test_reductions_in_the_value_of_a_scatter_are_asked_for_where_it_writes() -> None:
    """Also those that `select` asks for, and one in the condition itself."""
    a = te.placeholder((5, 4), "float64", name="a")
    i, q = te.reduce_axis(5, "i"), te.reduce_axis(4, "q")
    least = te.min(a[i + 1, q], axis=q)  # beyond the end for the last i

    def scattered(value: Any, where: Any) -> te.Tensor:
        return te.scatter((5,), [i], index=i, value=value, where=where)

    data = np.random.default_rng(0).standard_normal((5, 4))
    expected = np.append(data.min(1)[1:], 0.0)
    for y in (
        scattered(least, i <= 3),
        scattered(te.select(a[i, 0] < 9.0, least, 0.0), i <= 3),
        scattered(least, (te.max(a[i, q], axis=q) < 9.0) & (i <= 3)),
    ):
        np.testing.assert_array_equal(te.interpret([y], {a: data})[0], expected)
        np.testing.assert_array_equal(te.build([a], y)(data), expected)
