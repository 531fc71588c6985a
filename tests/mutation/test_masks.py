"""x[mask] with an unknown number of places: values that broadcast, other indices beside it, reductions, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tedsl as te

SCOPE: dict[str, Any] = {"np": np}


def made(source: str) -> Any:
    """`fn(x, y, z, v, row, col, k)` with these statements."""
    lines = "\n".join(f"    {line.strip()}" for line in source.split(";"))
    exec(f"def fn(x, y, z, v, row, col, k):\n    m = v > 0\n{lines}", scope := dict(SCOPE))
    return scope["fn"]


def arrays() -> list[Any]:
    draw = np.random.default_rng(0).integers
    x, y, z = (draw(-4, 5, s).astype(float) for s in ((5, 6), (5, 6), (3, 5, 6)))
    return [x, y, z, np.arange(5.0) - 2, np.arange(6.0) - 3, np.arange(5.0)[:, None] + 1, draw(0, 9, (5, 6))]


PROGRAMS = [
    "x[m] += row",
    "x[m] = row",
    "x[m] *= row[None]",
    "x[m] /= row + 9",
    "x[m] = row[None, None]",
    "x[m, 1] = 5; x[m, -1] += 2",
    "x[m, 1:3] += row[1:3]; x[m, ::-2] *= row[::2]",
    "x[:, row > 0] += col; x[1, row > 0] = 7; x[::2, row > 0] = col[::2]",
    "x[m] *= col[m]",
    "x[m] = y[m] + row",
    "x[m] = v[m][:, None] * row",
    "x[m] -= x[m].mean(0); y[m] /= np.abs(y[m]).sum(1)[:, None] + 1",
    "x[x > 0] = y[x > 0] + 1; y[v > 0] -= row; y[~(v > 0)] = 0",
    "y = x[m]; y += row; y *= 2; y[:] = y - 1; x[m] = y",
    "x[m] = np.where(x[m] > 0, x[m], row); x[m] = np.maximum(x[m], row)",
    "x[m] = np.clip(x[m], -1, 1); x[m] = x[m] @ np.ones((6, 6))",
    "z[:, m] = 5; z[:, m] += row; z[z[:, :, 0] > 0] += row; z[:, :, row > 0] *= 2; z[0, m] = row",
    "z[0, :, row > 0] = v; z[:, m, 0] = np.arange(3.0)[:, None]; z[0, m, 1] = 4",
    "x[m, None] += row; x[None, m] *= 2; x[..., row > 0] += 1; x[m, ...] -= 1",
    "x.T[row > 0] *= 2; x[::-1][m] += row; x.reshape(-1)[(y > 0).reshape(-1)] = 9",
    "x[x.sum() > 1e9] = row; x[x.sum() < 1e9] = row",
    "x[m], x[~m] = 1, row",
    "k[m] |= 1; k[m] <<= 2; k[~m] //= 2; k[k > 3] = 2.7",
    "b = x > 0; b[m] = True; b[~m] &= row > 0; return b",
    "np.add.at(x, m, row); np.maximum.at(y, m, 1); np.add.at(x, np.s_[1:], 1)",
    "np.copyto(x, row, where=m[:, None]); np.putmask(y, y > 3, 0); np.putmask(x, x > 0, v)",
    "np.add(x, row, out=x, where=col > 2)",
    "x[np.isnan(x / x)] = 7",
    "return x[m].sum(), x[m].sum(0), x[m].prod(axis=1, keepdims=True).sum(), x[m].mean(), x[m].mean(axis=0)",
    "return x[m].max(0), x[m].min(), (x[m] > 0).any(), (x[m] > 0).all(0), np.sum(x[m]), np.max(x[m], axis=0)",
    "return x[:, row > 0].sum(0).sum(), x[:, row > 0].sum(1), z[:, m].sum((0, 1)), x[m].sum(0, keepdims=True)",
    "return k[m].sum(), k[m].mean(), k.astype('i1')[m].sum(), k.astype('i1')[m].max(), (k > 3)[m].sum()",
    "return x[m, 1].sum(), x[m][:, 1].sum(), x[m][:, None, 2:].sum(), v[m] @ v[m], np.dot(v[m], v[m])",
    "return x[v > 99].sum(0), x[v > 99].prod(), x[v > 99].any(), np.count_nonzero(m), np.count_nonzero(x[m])",
]


@pytest.mark.parametrize("source", PROGRAMS)
def test_programs_agree_with_numpy(source: str) -> None:
    own, given = arrays(), arrays()
    with np.errstate(all="ignore"):
        expected = made(source)(*own)
        found = te.functionalize(made(source), interpreted=True)(*given)
    np.testing.assert_equal(found, expected)
    if expected is not None:
        listed = expected if isinstance(expected, tuple) else (expected,)
        ours = found if isinstance(found, tuple) else (found,)
        assert [a.dtype for a in listed] == [a.dtype for a in ours]
    for one, other in zip(own, given, strict=True):
        np.testing.assert_array_equal(other, one)


def test_compiled() -> None:
    source = "x[m] += row; x[m, 1] = 5; x[:, row > 0] *= col; z[0, :, row > 0] = v; return x[m].sum(0), x[m].mean()"
    own, given = arrays(), arrays()
    expected = made(source)(*own)
    found = te.functionalize(made(source))(*given)
    for one, other in zip((*own, *expected), (*given, *found), strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-14)


def test_masks_that_are_known_are_lists_of_places() -> None:
    """Arrays that the function captures: their value now says how many places there are."""

    def program(x: Any, y: Any) -> Any:
        m = np.array([True, False, True, True, False])
        x[m] += y
        x[m] = x[m][::-1]
        x[m, 0] = y[:3]
        x[m, 1:3] = y[:3][:, None]
        x[m, [1, 2, 3]] = 7
        x[[True, False, True, False, False]] = 1
        x[np.array([False] * 5)] = 9
        np.add.at(x, m, y)
        return x[m], x[m].shape[0], x[:, np.arange(6) > 2][0]

    draw = np.random.default_rng(0).integers
    x, y = draw(-4, 5, (5, 6)).astype(float), np.arange(6.0)
    own, given = x.copy(), x.copy()
    np.testing.assert_equal(te.functionalize(program, interpreted=True)(given, y), program(own, y))
    np.testing.assert_array_equal(given, own)


def test_the_other_elements_take_no_part() -> None:
    """Not in a division by zero, nor in the gradient of a root of a negative number."""

    def program(x: Any, r: Any) -> Any:
        m = x[:, 0] > 0
        x[m] **= 0.5
        x[m] *= r
        return x[m].sum()

    x, r = te.placeholder((4, 2), "float64", "x"), te.placeholder((2,), "float64", "r")
    pure = te.functionalize(program).trace(x, r)
    dx, dr = te.differentiate(pure.outputs[0], [x, r])
    value = np.array([[4.0, 9], [-1, -1], [16, 1], [0, -5]])
    found = te.interpret([dx, dr], {x: value, r: np.array([2.0, 3.0])})
    np.testing.assert_allclose(found[0], [[0.5, 0.5], [0, 0], [0.25, 1.5], [0, 0]])
    np.testing.assert_allclose(found[1], [6, 4])


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (
            "x[m] += col",
            r"array of shape \(5, 1\) at .*number is not known .* select it under the same mask, y\[mask\]",
        ),
        ("x[m] = np.arange(3.0)[:, None]", "one value per selected element"),
        ("x[x > 0] += row", r"array of shape \(6,\)"),
        ("x[m] += v[m]", r"give it new axes, y\[mask\]\[:, None\]"),
        ("x[m] = y[v < 0]", "selected by the same mask"),
        ("x[m] += z", r"number is not known|cannot make its target larger"),
        ("v[m] += np.ones((2, 1))", "cannot make its target larger"),
        ("x[m] = np.ones(5)", "does not broadcast to the selected elements"),
        ("x[m, row > 0] = 1", r"one mask, x\[rows\[:, None\] & columns\]"),
        ("x[m, k[0, :3]] = 1", "a mask beside an array of indices"),
        ("x[row > 0] = 1", r"shape \(6,\) does not match \(5,\)"),
        ("x[np.array([True] * 4)] = 1", r"shape \(4,\) does not match \(5,\)"),
        ("x[np.array([True] * 5)] = np.ones((3, 1))", "selects 5 places, v of shape .* has 3"),
        ("len(x[m])", r"under len\(\) .*mask.sum\(\) is its length"),
        ("x[m].shape", r"x\[mask\]\.shape .*mask.sum\(\) is its length"),
        ("[r for r in x[m]]", "in a loop"),
        ("1.0 in x[m]", "after in"),
        ("x[m][0]", r"x\[mask\]\[0\]"),
        ("x[m][:, 0] = 1", r"is a copy; assign to x under the mask, x\[mask, 0\] = v"),
        ("np.sort(x[m])", r"np\.sort"),
        ("x[m].T @ y[m]", r"\.T"),
        ("return x[m]", "result is .*length depends on values"),
        ("x[np.array(1.5)] = 1", "must be integer or bool"),
        ("k[m] += 0.5", "is float64, the target int64"),
        ("np.add(x, y, where=m[:, None])", "leaves elements undefined unless out="),
    ],
)
def test_refusals(source: str, words: str) -> None:
    with pytest.raises((TypeError, ValueError, IndexError), match=words):
        te.functionalize(made(source), interpreted=True)(*arrays())
