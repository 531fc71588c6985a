"""Operations that move elements give what NumPy gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tedsl as te
from tests.lang.oracle import arrays, same

BOTH = pytest.mark.parametrize("symbolic", [False, True], ids=["static", "symbolic"])


RESHAPES = [
    ((2, 3, 4), (6, 4)), ((2, 3, 4), (2, 12)), ((2, 3, 4), -1), ((24,), (2, 3, 4)), ((2, 3, 4), (4, 3, 2)), ((6, 4),
    (4, 6)),
    ((2, 1, 3), (1, 6, 1)), ((2, 3, 4), (3, -1)), ((2, 6, 5), (4, 3, 5)), ((1,), ()), ((), (1, 1)), ((0, 3), (3, 0)),
    ((4, 3), (2, 2, 3)), ((2, 2, 3), (2, 6)), ((1, 1), (1,)),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new"), RESHAPES, ids=str)
def test_reshape(old: tuple[int, ...], new: Any) -> None:
    same(lambda x: x.reshape(new), lambda x: x.reshape(new), *arrays(old))


def test_reshape_of_symbolic_extents() -> None:
    n, m = te.var("n"), te.var("m")
    x = te.placeholder((n, 6, m), "float64", name="x")
    (value,) = arrays((5, 6, 2))
    for target, oracle in [
        ((n, 2, 3, m), (5, 2, 3, 2)), ((n, 6 * m), (5, 12)), ((6 * n, m), (30, 2)), ((-1,), (-1,)), ((-1, m), (-1, 2)),
        ((n, -1), (5, -1)), ((n, 3, -1), (5, 3, -1)), ((-1, 2), (-1, 2)), ((m, 6, n), (2, 6, 5)),
    ]:  # fmt: skip
        found = te.interpret(x.reshape(target), {x: value})
        np.testing.assert_array_equal(found, value.reshape(oracle))
    with pytest.raises(ValueError, match="not provably divisible by 4"):
        x.reshape(4, -1)
    with pytest.raises(ValueError, match="holds"):
        x.reshape(n, m)


def test_bad_reshapes() -> None:
    x = te.placeholder((3, 4), name="x")
    with pytest.raises(ValueError, match=r"\(5,\) holds 5 elements, \(3, 4\) holds 12"):
        x.reshape(5)
    with pytest.raises(ValueError, match="only one extent can be -1"):
        x.reshape(-1, -1)
    with pytest.raises(ValueError, match="not provably divisible by 5"):
        x.reshape(5, -1)
    with pytest.raises(ValueError, match="cannot be negative"):
        x.reshape(3, -4)


MOVES: dict[str, Any] = {
    "T": lambda x: x.T,
    "transpose": lambda x: x.transpose(1, 0, 2),
    "transpose tuple": lambda x: x.transpose((2, 0, 1)),
    "transpose negative": lambda x: x.transpose(-1, 0, 1),
    "swapaxes": lambda x: x.swapaxes(0, -1),
    "squeeze one": lambda x: x[:, None].squeeze(1),
    "squeeze": lambda x: x[None].squeeze(),
    "ravel": lambda x: x[::-1].ravel(),
    "flatten": lambda x: x.flatten(),
}


@BOTH
@pytest.mark.parametrize("move", MOVES.values(), ids=list(MOVES))
def test_axes_are_moved_by_methods(move: Any, symbolic: bool) -> None:
    same(move, move, *arrays((2, 3, 4)), symbolic=symbolic)


@BOTH
@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("moveaxis", (0, -1)), ("moveaxis", ([0, 1], [2, 0])), ("expand_dims", (1,)), ("expand_dims", ((0, 2),)),
        ("flip", ()), ("flip", (1,)), ("flip", ((0, 2),)), ("roll", (2, 1)), ("roll", (-5, 0)),
        ("roll", ((1, -1), (0, 2))), ("swapaxes", (1, 2)), ("tril", ()), ("triu", (1,)), ("tril", (-1,)),
        ("diagonal", ()), ("diagonal", (1,)), ("diagonal", (-1, 1, 2)), ("diagonal", (0, 2, 0)), ("trace", (1, 1, 2)),
    ],
    ids=str,
)  # fmt: skip
def test_elements_are_moved_by_functions(name: str, args: tuple[Any, ...], symbolic: bool) -> None:
    tensor_form, array_form = getattr(te, name), getattr(np, name)
    same(lambda x: tensor_form(x, *args), lambda x: array_form(x, *args), *arrays((2, 3, 4)), symbolic=symbolic)


def test_flat_roll_and_broadcast_to() -> None:
    (x,) = arrays((2, 3, 4))
    same(lambda x: te.roll(x, 5), lambda x: np.roll(x, 5), x)
    wide = (2, 5, 3, 4)
    same(lambda x: te.broadcast_to(x[:, None], wide), lambda x: np.broadcast_to(x[:, None], wide), x)


def test_bad_axes() -> None:
    x = te.placeholder((2, 3), name="x")
    for call in (
        lambda: x.sum(2),
        lambda: x.transpose(0, 2),
        lambda: te.flip(x, -3),
        lambda: te.concatenate([x, x], 2),
    ):
        with pytest.raises(ValueError, match=r"axis -?[23] does not exist in a tensor of 2 dimensions"):
            call()
    with pytest.raises(ValueError, match="given twice"):
        x.sum((0, 0))
    with pytest.raises(ValueError, match="expected 2 axes"):
        x.transpose(0)
    with pytest.raises(TypeError, match="axis must be an integer"):
        x.sum(1.0)
    with pytest.raises(ValueError, match="has extent 2, expected 1"):
        x.squeeze(0)
    with pytest.raises(ValueError, match="does not broadcast to"):
        te.broadcast_to(x, (4, 2))


def test_huge_extents() -> None:
    x = te.placeholder((70000, 70000), name="x")
    with pytest.raises(ValueError, match="extent 4900000000 does not fit in 32 bits"):
        x.reshape(-1)
    y = x.reshape(140000, 35000)
    assert [str(i.dtype) for i in y.op.bodies[0].indices] == ["int64", "int64"]
    n = te.var("n")
    wide = te.placeholder((65536, n, 65536), name="wide")
    assert wide.reshape(65536, 65536, n).shape == (65536, 65536, n)
