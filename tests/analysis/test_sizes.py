"""Sizes bound from shapes, and what is wrong with them told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import tedsl as te
from tedsl.analysis.sizes import EXACT, bind_sizes, concrete_shape, evaluate_extent
from tedsl.analysis.work import work
from tedsl.lang.errors import ZeroDivisorError
from tedsl.lang.operators import Fn

N, M = te.var("n"), te.var("m")


def bind(*pairs: tuple[tuple[Any, ...], tuple[int, ...]], **extra: Any) -> dict[Any, int]:
    inputs = [te.placeholder(shape, name="ABC"[k]) for k, (shape, _) in enumerate(pairs)]
    return bind_sizes(inputs, [found for _, found in pairs], **extra)


def test_sizes_are_bound_and_linear_dimensions_solved() -> None:
    assert bind(((N, 4), (3, 4))) == {N: 3}
    assert bind(((2 * N + 1,), (7,))) == {N: 3}
    assert bind(((N + M,), (7,)), ((M,), (2,))) == {N: 5, M: 2}
    assert bind((((N - 3) // 2 + 1,), (4,)), ((N,), (9,))) == {N: 9}
    assert bind(((N * M,), (0,)), ((N,), (0,)), ((M,), (5,))) == {N: 0, M: 5}


@given(st.integers(0, 50), st.integers(1, 5), st.integers(0, 9))
def test_any_linear_dimension_is_solved(n: int, slope: int, offset: int) -> None:
    assert bind(((slope * N + offset,), (slope * n + offset,))) == {N: n}


@pytest.mark.parametrize(
    ("pairs", "text"),
    [
        ([((3,), (4,))], "expected extent 3 in dimension 0, found 4"),
        ([((3,), (3, 1))], "expected 1 dimensions"),
        (
            [((N,), (3,)), ((N,), (4,))],
            r"input 'B': expected extent 3 = `n` \(n = 3 from dimension 0 of 'A'\).*found 4",
        ),
        ([((2 * N,), (5,))], "no n gives the extent 5"),
        ([((N + 4,), (3,))], "no n gives the extent 3"),
        ([((N // 2,), (3,))], r"pass sizes=\{n: ...\}"),
    ],
)
def test_wrong_shapes(pairs: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        bind(*pairs)


def test_sizes_by_name_wherever_sizes_are_taken(tmp_path: Path) -> None:
    n, same = te.var("n"), te.var("n")
    count, steps = te.arange(n) * 2, te.scan((n,), lambda y, t: te.select(t == 0, 1.0, y[t - 1] * 2.0))
    kernel = te.build([], [count, steps])
    for run in (
        lambda sizes: kernel(sizes=sizes),
        lambda sizes: te.interpret([count, steps], {}, sizes=sizes),
        lambda sizes: te.evaluate([count, steps], sizes=sizes),
    ):
        for key in ("n", n):
            found = run({key: 3})
            np.testing.assert_array_equal(found[0], [0, 2, 4])
            np.testing.assert_array_equal(found[1], [1, 2, 4])
        with pytest.raises(ValueError, match="the program has no size named 'm', but 'n'"):
            run({"m": 3})
        with pytest.raises(ValueError, match="sizes= has two numbers for n"):
            run({"n": 3, n: 4})
        with pytest.raises(TypeError, match=r"te\.var objects or their names, found int"):
            run({1: 3})
    two = te.concatenate([te.arange(n), te.arange(same)])
    with pytest.raises(ValueError, match="'n' is the name of 2 sizes"):
        te.evaluate(two, sizes={"n": 3})
    np.testing.assert_array_equal(te.evaluate(two, sizes={n: 1, same: 2}), [0, 0, 1])
    assert work(count, {"n": 7}) == work(count, {n: 7})
    assert te.display.trace(te.Schedule(count), sizes={"n": 4}).count == 4
    kernel.export(tmp_path, sizes={"n": 4})
    assert te.tune(count, budget=0.01, sizes={"n": 4}).default.seconds > 0


def test_extra_sizes() -> None:
    assert bind(((N,), (3,)), extra={M: np.int64(4)}) == {N: 3, M: 4}
    assert bind(((N // 2,), (3,)), extra={N: 7}) == {N: 7}
    with pytest.raises(ValueError, match="n = 4 from sizes="):
        bind(((N,), (3,)), extra={N: 4})
    bad: list[tuple[Any, type[Exception]]] = [
        ({"n": 3}, ValueError), ({N: 1.5}, TypeError), ({N: True}, TypeError), ({N: -1}, ValueError),
        ({N: 2**31}, ValueError), ([3], TypeError),
    ]  # fmt: skip
    for extra, error in bad:
        with pytest.raises(error, match="sizes"):
            bind(((4,), (4,)), extra=extra)


def test_extents_evaluate_as_python() -> None:
    assert evaluate_extent((N - 7) // 2 + N % 3, {N: 4}) == (4 - 7) // 2 + 4 % 3
    with pytest.raises(ZeroDivisorError, match="n = 0"):
        evaluate_extent(8 // N, {N: 0})
    T = te.compute((N - 2,), lambda i: i, name="T")
    with pytest.raises(ValueError, match="extent `n - 2` is -1 with n = 1"):
        concrete_shape(T, {N: 1})


def test_integer_operations_are_in_the_exact_table() -> None:
    integer = {
        Fn.ADD, Fn.SUB, Fn.MUL, Fn.FLOORDIV, Fn.MOD, Fn.NEG, Fn.POW, Fn.ABS, Fn.SIGN, Fn.MINIMUM, Fn.MAXIMUM, Fn.CLIP,
        Fn.RELU, Fn.SELECT, Fn.CAST, Fn.EQ, Fn.NE, Fn.LT, Fn.LE, Fn.GT, Fn.GE, Fn.AND, Fn.OR, Fn.NOT, Fn.BITAND,
        Fn.BITOR, Fn.BITXOR, Fn.INVERT, Fn.LSHIFT, Fn.RSHIFT,
    }  # fmt: skip
    assert set(EXACT) == integer
