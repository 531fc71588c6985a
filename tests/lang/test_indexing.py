"""Slices and gathers give what NumPy gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tedsl as te
from tests.lang.oracle import arrays, same

BOTH = pytest.mark.parametrize("symbolic", [False, True], ids=["static", "symbolic"])


SLICES = [
    np.s_[0], np.s_[-1], np.s_[:, 0], np.s_[1:, ::2], np.s_[::-1], np.s_[1:-1, -3:], np.s_[None], np.s_[...], np.s_[:,
    None, 1],
    np.s_[..., ::-2], np.s_[4:0:-1], np.s_[-2:1:-1, 3], np.s_[:3], np.s_[2:4, 1:5:3], np.s_[..., None, 2], np.s_[:,
    1:-2:2],
    np.s_[-4::3, None, ::-3], np.s_[np.int64(-2)], np.s_[:, np.array(3)],
]  # fmt: skip


@BOTH
@pytest.mark.parametrize("index", SLICES, ids=str)
def test_slices(index: Any, symbolic: bool) -> None:
    same(lambda x: x[index], lambda x: x[index], *arrays((5, 7)), symbolic=symbolic)


@pytest.mark.parametrize("step", [-3, -2, -1, 1, 2, 3, 9])
@pytest.mark.parametrize("stop", [None, -9, -4, -1, 0, 2, 5, 8])
@pytest.mark.parametrize("start", [None, -9, -5, -2, 0, 3, 4, 7])
def test_every_slice_of_a_fixed_extent_is_cut_as_numpy_cuts_it(start: Any, stop: Any, step: int) -> None:
    cut = np.s_[start:stop:step]
    same(lambda x: x[cut], lambda x: x[cut], np.arange(5.0))


def test_slices_of_symbolic_extents_stay_affine() -> None:
    n = te.var("n")
    x = te.placeholder((n,), name="x")
    assert [str(x[cut].shape[0]) for cut in (np.s_[1:], np.s_[1:-1], np.s_[::2], np.s_[::-1], np.s_[-3:])] == [
        "n - 1", "n - 2", "(n + 1) // 2", "n", "3",
    ]  # fmt: skip
    assert (x[2:] - 2 * x[1:-1] + x[:-2]).shape == x[2:].shape
    m = te.var("m")
    y = te.placeholder((n + m,))
    assert (y[:n] + x).shape == (n,)
    assert (y[m:] + x).shape == (n,)


def test_slice_bounds_beyond_a_symbolic_end_are_cut() -> None:
    n = te.var("n")
    x = te.placeholder((n,), "float64", name="x")
    assert te.interpret(x[:8], {x: np.arange(3.0)}).tolist() == [0, 1, 2]
    with pytest.raises((ValueError, IndexError)):
        te.interpret(x[4:], {x: np.arange(3.0)})


def test_the_whole_slice_is_the_tensor_itself() -> None:
    x = te.placeholder((3, 4))
    assert x[:] is x
    assert x[...] is x
    assert x.reshape(3, 4) is x
    assert x.transpose(0, 1) is x
    assert x.astype("float32") is x


@pytest.mark.parametrize(
    ("index", "error", "message"),
    [
        (np.s_[0, 0, 0], IndexError, "at most 2 indices, found 3"),
        (np.s_[5], IndexError, "index 5 of dimension 0"),
        (np.s_[:, -8], IndexError, "expected -7 <= index < 7"),
        (np.s_[..., ...], IndexError, "single ellipsis"),
        (np.s_[::0], ValueError, "integer other than 0"),
        (True, TypeError, "a mask makes a result of unknown size"),
        ([0, 7], IndexError, "index 7 of dimension 0"),
        (np.array([0.5, 1]), TypeError, "expected integers, found float64"),
        (np.array([True, False]), IndexError, r"expected a mask of shape \(5,\), found one of \(2,\)"),
        (np.s_[..., np.ones((5, 6), bool)], IndexError, r"mask of shape \(5, 7\), found one of \(5, 6\)"),
        (range(4, 6), IndexError, "index 5 of dimension 0"),
        ("a", TypeError, "expected integers, slices, None, ..., or arrays, lists and ranges of integers"),
        (1.5, TypeError, "expected integers, slices"),
    ],
)
def test_bad_indices(index: Any, error: type[Exception], message: str) -> None:
    x = te.placeholder((5, 7), name="x")
    with pytest.raises(error, match=message):
        x[index]


def test_a_mask_tensor_is_refused() -> None:
    x = te.placeholder((5,), name="x")
    with pytest.raises(TypeError, match=r"te.where"):
        x[x > 0]
    with pytest.raises(TypeError, match="found float32"):
        x[x]


def test_gathers_by_integer_tensors() -> None:
    x, _ = arrays((5, 7), (3,))
    rows, columns = np.array([4, 0, 2]), np.array([[1], [6]])
    same(lambda x, r: x[r], lambda x, r: x[r], x, rows)
    same(lambda x, r: x[:, r], lambda x, r: x[:, r], x, rows)
    same(lambda x, r, c: x[r, c], lambda x, r, c: x[r, c], x, rows, columns)
    same(lambda x, r: x[1:, r, None], lambda x, r: x[1:, r, None], x, rows)
    (y,) = arrays((5, 3, 4))
    same(lambda y, r: y[r, :, 1], lambda y, r: y[r, :, 1], y, rows)
    same(lambda y, r: te.take(y, r, axis=0), lambda y, r: np.take(y, r, axis=0), y, rows)
    same(lambda y, r: te.take(y, r), lambda y, r: np.take(y, r), y, rows)


def test_gathers_by_lists_and_ranges() -> None:
    x, _ = arrays((5, 7), (3,))
    for index in ([4, 0, -1], range(3), np.s_[range(5), [0, 6, 2, 1, 0]], np.s_[1:, range(6, -1, -3)], range(0)):
        same(lambda x, index=index: x[index], lambda x, index=index: x[index], x)


def test_ranges_within_compute_say_what_is_read() -> None:
    x = te.placeholder((5, 7), name="x")
    with pytest.raises(TypeError, match=r"as x\[array\[k\], i\]"):
        te.compute((5,), lambda i: x[range(3), i])


def test_reshape_keeps_indices_simple() -> None:
    n = te.var("n")
    x = te.placeholder((n, 6, 4, 5), name="x")
    assert str(x.reshape(n, 24, 5)).startswith("x_reshape[i, j, k] = x[i, j // 4, j % 4, k]")
    assert str(x.reshape(n, 2, 3, 4, 5)).startswith("x_reshape[i, j, k, l, m] = x[i, j * 3 + k, l, m]")


@pytest.mark.parametrize(
    "index",
    [
        np.arange(5) % 2 == 1,
        [True, False, False, True, True],
        np.s_[1:, np.arange(7) > 4],
        np.s_[..., np.arange(7) < 0],
        np.add.outer(np.arange(5), np.arange(7)) % 3 == 0,
        np.s_[None, np.arange(5) > 2],
    ],
)
def test_masks_of_known_contents_are_the_places_where_they_hold(index: Any) -> None:
    x, array = te.placeholder((5, 7), name="x"), np.random.default_rng(7).normal(size=(5, 7)).astype("float32")
    np.testing.assert_array_equal(te.evaluate(x[index], {x: array}), array[index])


def test_a_mask_of_an_axis_of_unknown_size_is_refused_with_the_places() -> None:
    x = te.placeholder((te.var("n"),), name="x")
    with pytest.raises(IndexError, match=r"mask of shape \(n,\), found one of \(2,\); give .*np.nonzero\(mask\)"):
        x[np.array([True, False])]
