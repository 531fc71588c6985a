"""Whole-tensor arithmetic broadcasts as NumPy does, with fixed and with symbolic extents."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tedsl as te
from tests.lang.oracle import arrays, feed, same

BOTH = pytest.mark.parametrize("symbolic", [False, True], ids=["static", "symbolic"])


@BOTH
@pytest.mark.parametrize(
    "shapes",
    [((3, 4), (3, 4)), ((3, 4), (4,)), ((3, 4), (3, 1)), ((3, 1), (1, 4)), ((2, 1, 4), (3, 1)), ((4,), ()), ((), ())],
    ids=str,
)
def test_broadcasting(shapes: tuple[tuple[int, ...], ...], symbolic: bool) -> None:
    same(lambda a, b: a - b * 2, lambda a, b: a - b * 2, *arrays(*shapes), symbolic=symbolic)


def test_three_operands_broadcast() -> None:
    a, b, c = arrays((3, 1), (4,), ())
    same(lambda a, b, c: te.select(a > c, a, b), lambda a, b, c: np.where(a > c, a, b), a, b, c)
    same(lambda a, b: te.clip(a, -1.0, b), lambda a, b: np.clip(a, -1.0, b), a, b)


@pytest.mark.parametrize(
    ("a", "b"), [((3,), (4,)), ((2, 3), (2,)), ((2, 1, 3), (5, 2, 4))], ids=["vectors", "rank", "batched"]
)
def test_shapes_that_do_not_broadcast(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    x, y = feed(arrays(a, b))
    with pytest.raises(ValueError, match="shapes do not broadcast") as caught:
        x + y
    assert str(a) in str(caught.value)
    assert str(b) in str(caught.value)


def test_symbolic_extents_are_compared() -> None:
    n, m = te.var("n"), te.var("m")
    x, y = te.placeholder((n,)), te.placeholder((m,))
    with pytest.raises(ValueError, match=r"is n in one and m in another|is m in one and n in another"):
        x + y
    z = te.placeholder((n + 1 - 1,))
    assert (x + z).shape == (n,)
    assert (te.placeholder((n + m,)) * te.placeholder((m + n,))).ndim == 1
    assert (te.placeholder((n * m,)) * te.placeholder((m * n,))).ndim == 1
    with pytest.raises(ValueError, match="shapes do not broadcast"):
        te.placeholder((n,)) + te.placeholder((4,))


def test_scalar_operands() -> None:
    x, s = arrays((3,), ())
    same(lambda x, s: x * s[()] + np.float32(2), lambda x, s: x * s + np.float32(2), x, s)
    same(lambda x, s: s[()] * x - x[1], lambda x, s: s * x - x[1], x, s)
    same(lambda x, s: te.maximum(s[()], x), lambda x, s: np.maximum(s, x), x, s)
    same(lambda x, s: np.float64(2) ** x, lambda x, s: np.float64(2) ** x, x, s)


def test_functions_and_conversions_of_whole_tensors() -> None:
    x, y = arrays((3, 4), (4,))
    same(lambda x, y: te.where(x > y, x, 0.0), lambda x, y: np.where(x > y, x, 0.0), x, y)
    same(lambda x, y: te.pow(te.abs(x), y), lambda x, y: np.abs(x) ** y, x, np.abs(y))
    same(lambda x, y: te.logical_or(x > 0, y > 0), lambda x, y: (x > 0) | (y > 0), x, y)
    same(lambda x: x.astype("int8"), lambda x: x.astype("int8"), x)
    same(lambda x: True | (x > 0), lambda x: True | (x > 0), x)
    same(lambda x: te.rsqrt(x * x + 1), lambda x: 1 / np.sqrt(x * x + 1), np.zeros((3, 4)))
    same(lambda x: te.cast(x, bool) ^ True, lambda x: x.astype(bool) ^ True, x)


def test_more_than_six_dimensions() -> None:
    (x,) = arrays((2,) * 8)
    same(lambda x: (x + 1).sum((1, 3)).T, lambda x: (x + 1).sum((1, 3)).T, x)


def test_scalar_expression_with_0_rank_tensor_is_a_scalar() -> None:
    s = te.placeholder((), name="s")
    x = te.placeholder((5,), name="x")
    assert isinstance(s + s, te.Tensor)
    assert isinstance(te.exp(s), te.Tensor)
    seen: list[Any] = []
    te.compute((5,), lambda i: seen.append(s * x[i]) or s * x[i])
    assert isinstance(seen[0], te.Expr)
    assert isinstance(te.select(x[0] > 0, s, 0.0), te.Expr)


def test_an_axis_does_not_meet_a_whole_tensor() -> None:
    x = te.placeholder((5,), name="x")
    with pytest.raises(TypeError, match=r"uses axis 'i'; inside te.compute read an element"):
        te.compute((5,), lambda i: x * i)


def test_functions_of_numpy_are_ours() -> None:
    functions: tuple[Any, ...] = (
        np.exp, np.sign, np.isnan, np.rint, lambda x: np.maximum(x, 0.5), lambda x: np.float64(2) * x,
        lambda x: np.float64(0) < x, lambda x: np.array(2.0) - x, lambda x: np.sum(x, axis=0), np.mean, np.transpose,
        lambda x: np.where(x > 0, x, 0), lambda x: np.concatenate([x, x], axis=1), lambda x: np.argmax(x, 1) > 1,
        lambda x: np.clip(x, -1, 1), lambda x: np.reshape(x, (-1,)), lambda x: np.cumsum(x, axis=1), np.round, np.any,
    )  # fmt: skip
    for function in functions:
        same(function, function, *arrays((3, 4)))
    x = te.placeholder((3, 4), name="x")
    assert (np.ndim(x), np.shape(x)) == (2, (3, 4))
    y = te.compute((3,), lambda i: np.sqrt(x[i, 0]) + np.maximum(x[i, 1], np.float32(1)))
    np.testing.assert_array_equal(te.interpret(y, {x: np.full((3, 4), 4, "float32")}), np.full(3, 6, "float32"))


def test_methods_and_unknown_attributes() -> None:
    x = te.placeholder((3,), name="x")
    assert x.exp().dtype == "float32"
    assert x.clip(0, 1).shape == (3,)
    assert not hasattr(x, "sort")
    with pytest.raises(AttributeError, match="tensor 'x' has no attribute 'sort'"):
        x.sort()


def test_results_are_computes() -> None:
    x = te.placeholder((3, 4), name="x")
    for y in (x + 1, x[1:], x.reshape(-1), x.T, x.sum(0), x @ x.T, te.stack([x, x]), te.pad(x, 1), te.eye(3)):
        assert type(y.op).__name__ == "Compute"
    assert type(te.cumsum(x, 0).op).__name__ == "Scan"
