"""te.sort and what builds on order, against NumPy: every dtype, any axis, NaN, equal elements, symbolic extents."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as arrays

import tedsl as te

DTYPES = (
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
)
FEW = settings(max_examples=10, deadline=None)
N, M = te.var("n"), te.var("m")
RUNS = pytest.mark.parametrize("run", [te.evaluate, te.interpret])


def drawn(dtype: str) -> Any:
    """Matrices with equal elements, infinities, both zeros and NaN."""
    shapes = st.tuples(st.integers(1, 4), st.integers(1, 40))
    if not dtype.startswith("float"):
        return arrays.arrays(dtype, shapes)
    few = st.sampled_from([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan])
    width = 8 * np.dtype(dtype).itemsize
    return arrays.arrays(dtype, shapes, elements=few | st.floats(width=width))  # type: ignore[call-overload]


@pytest.mark.share(2)
@pytest.mark.parametrize("dtype", DTYPES)
def test_elements_and_places_are_those_of_numpy(dtype: str) -> None:
    x = te.placeholder((N, M), dtype, name="x")
    axis = DTYPES.index(dtype) % 2
    kernel = te.build([x], [*te.sort(x, axis=axis).op.outputs])

    @FEW
    @given(drawn(dtype))
    def check(array: Any) -> None:
        values, places = kernel(array)
        wanted = np.argsort(array, axis=axis, kind="stable")
        np.testing.assert_array_equal(places, wanted)
        found = np.take_along_axis(array, wanted, axis)
        assert values.tobytes() == found.tobytes()  # each zero and each NaN is the one that was there

    check()


@pytest.mark.parametrize("dtype", ["float32", "int64"])
@pytest.mark.parametrize("n", [1, 24, 25, 300, 2999, 3001, 5000, 1 << 17])
def test_long_rows(dtype: str, n: int) -> None:
    """Each way in which rows are sorted: few, digits of 8 and 11 bits, two of them and three."""
    rng = np.random.default_rng(n)
    x = te.placeholder((M,), dtype, name="x")
    kernel = te.build([x], te.argsort(x))
    wide = rng.integers(0, 2**63, n, np.uint64).view(np.int64)
    shapes = [rng.standard_normal(n), rng.standard_normal(n) * 1e-30, wide, wide >> 40, rng.integers(0, 3, n)]
    shapes += [np.arange(n), np.arange(n)[::-1], (wide >> 50 << 40) + rng.integers(0, 99, n)]
    for made in shapes:
        with np.errstate(all="ignore"):
            array = made.astype(dtype)
        np.testing.assert_array_equal(kernel(array), np.argsort(array, kind="stable"))


def test_arrays_of_any_layout() -> None:
    x = te.placeholder((N, M), "float32", name="x")
    kernel = te.build([x], te.sort(x * 2, axis=0) + 1)
    array = np.random.default_rng(0).standard_normal((60, 50)).astype("f4")
    for view in (array.T, array[::-1], array[::3, ::2], np.asfortranarray(array)):
        np.testing.assert_array_equal(kernel(view), np.sort(view * 2, axis=0) + 1)
    plain = te.build([x], te.sort(x))
    for view in (array.T, array[:, ::-1], array[::3, ::2]):
        np.testing.assert_array_equal(plain(view), np.sort(view))
        out = np.full(view.shape, 1, "f4")
        np.testing.assert_array_equal(plain(view, out=out, mode="add"), np.sort(view) + 1)


@RUNS
def test_three_axes_and_bfloat16(run: Any) -> None:
    array = np.random.default_rng(1).integers(-9, 9, (3, 4, 5)).astype("f4")
    x = te.placeholder((3, 4, 5), "float32", name="x")
    np.testing.assert_array_equal(run(te.sort(x, axis=1), {x: array}), np.sort(array, axis=1))
    narrow = te.argsort(x.astype("bfloat16"), axis=1)
    np.testing.assert_array_equal(run(narrow, {x: array}), np.argsort(array, axis=1, kind="stable"))


def largest(x: Any, k: int) -> tuple[Any, Any]:
    """By definition: a stable sort of what is turned around, NaN last."""
    x = x.astype(np.float64) if x.dtype.kind == "f" else x.astype(object)
    rows = [sorted(range(len(r)), key=lambda i: (r[i] != r[i], -r[i] if r[i] == r[i] else 0))[:k] for r in x]
    places = np.array(rows)
    return np.take_along_axis(x, places, 1), places


@pytest.mark.share(2)
@RUNS
@pytest.mark.parametrize("dtype", ["float32", "uint8"])
@pytest.mark.parametrize(("n", "k"), [(7, 7), (40, 3), (5000, 2), (5000, 20), (5000, 40), (5000, 4999)])
def test_topk(run: Any, dtype: str, n: int, k: int) -> None:
    rng = np.random.default_rng(k)
    x = te.placeholder((2, n), dtype, name="x")
    rows = [rng.integers(0, 200, (2, n)), np.stack([np.arange(n), np.arange(n)[::-1]]), np.zeros((2, n))]
    # What a sample of every fourth element says is too little, and that there are numbers at all.
    at = np.arange(n)
    rows.append(np.stack([np.where(at % 4 == 0, 100 + at, at / n), np.where(at % 4 == 1, 100 + at, at / n)]))
    if dtype == "float32":
        rows.append(np.stack([np.where(at % 997 == 1, at, np.nan), np.full(n, np.nan)]))
    for array in (r.astype(dtype) for r in rows):
        if dtype == "float32":
            array[:, ::5] = np.nan
        values, places = run(list(te.topk(x, k)), {x: array})
        wanted = largest(array, k)
        np.testing.assert_array_equal(places, wanted[1])
        np.testing.assert_array_equal(values, wanted[0].astype(dtype))


@RUNS
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("dtype", ["float32", "int64", "uint8"])
def test_searchsorted(run: Any, dtype: str, side: str) -> None:
    rng = np.random.default_rng(2)
    table, values = te.placeholder((N,), dtype, name="table"), te.placeholder((3, M), dtype, name="values")
    places = te.searchsorted(table, values, side)
    for n in (1, 7, 1000):
        held, wanted = np.sort(rng.integers(0, 100, n).astype(dtype)), rng.integers(0, 100, (3, 50)).astype(dtype)
        if dtype == "float32":
            held[-n // 4 :], wanted[:, ::9] = np.nan, np.nan
        found = run(places, {table: held, values: wanted})
        np.testing.assert_array_equal(found, np.searchsorted(held, wanted, side))
    assert run(te.searchsorted(table, te.constant(np.float32(50))), {table: held}).shape == ()


@RUNS
@pytest.mark.parametrize("dtype", ["float32", "int64", "bool"])
def test_unique_counts(run: Any, dtype: str) -> None:
    rng = np.random.default_rng(3)
    x = te.placeholder((N, 5), dtype, name="x")
    results = list(te.unique_counts(x))
    for n in (1, 8, 100):
        array = rng.integers(0, 20, (n, 5)).astype(dtype)
        if dtype == "float32":
            array[0, :2] = np.nan
        values, counts = run(results, {x: array})
        wanted, times = np.unique(array, return_counts=True, equal_nan=False)
        number = int((counts > 0).sum())
        np.testing.assert_array_equal(values[:number], wanted)
        np.testing.assert_array_equal(counts[:number], times)
        np.testing.assert_array_equal(values[number:], np.repeat(values[number - 1], len(values) - number))


def test_rows_without_elements() -> None:
    x = te.placeholder((N, M), "float32", name="x")
    kernel = te.build([x], te.sort(x))
    for shape in ((0, 3), (3, 0), (0, 0)):
        assert kernel(np.zeros(shape, "f4")).shape == shape
    table, values = te.placeholder((N,), "float32", name="table"), te.placeholder((M,), "float32", name="values")
    found = te.evaluate(te.searchsorted(table, values), {table: np.zeros(0, "f4"), values: np.ones(3, "f4")})
    np.testing.assert_array_equal(found, [0, 0, 0])


def test_vmap_and_grad_of_functions() -> None:
    x = np.random.default_rng(4).standard_normal((4, 6)).astype("f4")
    np.testing.assert_array_equal(te.vmap(te.sort)(x), np.sort(x))
    weighted = te.grad(lambda r: (te.sort(r) * te.arange(6).astype("float32")).sum())
    np.testing.assert_array_equal(te.vmap(weighted)(x), np.argsort(np.argsort(x)))
    asked = np.float32([0.5, 1])
    found = te.vmap(lambda r: te.searchsorted(r, te.constant(asked)))(np.sort(x))
    np.testing.assert_array_equal(found, [np.searchsorted(r, asked) for r in np.sort(x)])


@RUNS
@pytest.mark.parametrize("axis", [0, 1])
def test_topk_along_an_axis_of_unknown_size(run: Any, axis: int) -> None:
    n = te.var("n")
    x = te.placeholder((n, 2) if axis == 0 else (2, n), name="x")
    array = np.array([[1.0, 7.0], [np.nan, 3.0], [5.0, 5.0], [1.0, 9.0]], "float32")
    wanted = largest(array.T, 3)
    for found, expected in zip(
        run(list(te.topk(x, 3, axis)), {x: array if axis == 0 else array.T}), wanted, strict=True
    ):
        np.testing.assert_array_equal(found, expected.T if axis == 0 else expected)
    with pytest.raises(IndexError, match=r"x_topk.* out of bounds: it is 2 .*, expected 0 <= index < 2"):
        run(list(te.topk(x, 3, axis)), {x: array[:2] if axis == 0 else array[:2].T})


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda x: te.topk(x, 4), ValueError, r"at least k = 4 elements, found 3 in"),
        (lambda x: te.topk(x, -1), ValueError, "k is a number"),
        (lambda x: te.topk(x, 2.0), ValueError, "k is a number"),
        (lambda x: te.sort(x, axis=1), ValueError, "axis 1 does not exist"),
        (lambda x: te.searchsorted(x, x, side="middle"), ValueError, "'left' or 'right'"),
        (lambda x: te.searchsorted(x.reshape(1, 3), x), ValueError, "a sorted vector"),
        (lambda x: te.sort("abc"), TypeError, "te.sort"),
    ],
)
def test_what_is_refused(make: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        make(te.placeholder((3,), "float32", name="x"))


def test_all_elements_are_one_row_and_the_largest_come_first() -> None:
    array = np.array([[3, 1, 2], [1, np.nan, 5]], "float32")
    x = te.placeholder((2, 3), name="x")
    order = te.evaluate(te.argsort(x, axis=None), {x: array})
    np.testing.assert_array_equal(order, np.argsort(array, axis=None, kind="stable"))
    np.testing.assert_array_equal(te.evaluate(te.sort(x, axis=None), {x: array}), np.sort(array, axis=None))
    down, places = te.evaluate([te.sort(x, descending=True), te.argsort(x, descending=True)], {x: array})
    np.testing.assert_array_equal(down, [[3, 2, 1], [5, 1, np.nan]])
    np.testing.assert_array_equal(places, [[0, 2, 1], [2, 0, 1]])
    for found, expected in zip(
        (down, places),
        te.interpret([te.sort(x, descending=True), te.argsort(x, descending=True)], {x: array}),
        strict=True,
    ):
        np.testing.assert_array_equal(found, expected)
    slope = te.differentiate(te.sort(x, axis=None, descending=True)[:2].sum(), x)
    np.testing.assert_array_equal(te.evaluate(slope, {x: np.float32([[3, 1, 2], [1, 0, 5]])}), [[1, 0, 0], [0, 0, 1]])


@pytest.mark.parametrize(("rows", "n", "k"), [(2, 5000, 100), (7, 9001, 129), (400, 33, 5), (65, 640, 64)])
def test_rows_are_shared_out_to_threads(rows: int, n: int, k: int) -> None:
    """So many elements that there are several tasks, the last of which has fewer rows."""
    a = np.random.default_rng(n).integers(-200, 200, (rows, n)).astype("float32")
    a[rows // 2, n // 3] = np.nan
    x = te.placeholder((rows, n), name="x")
    ordered = np.argsort(a, axis=1, kind="stable")
    down = np.argsort(-a, axis=1, kind="stable")[:, :k]
    values, places = te.topk(x, k)
    found = te.build([x], [te.sort(x), te.argsort(x), values, places])(a)
    for ours, want in zip(
        found,
        (np.sort(a), ordered, np.take_along_axis(a, down, 1), down),
        strict=True,
    ):
        np.testing.assert_array_equal(ours, want)


@pytest.mark.parametrize("entries", [0, 1, 2, 3, 8, 1000, 30_000])
@pytest.mark.parametrize("side", ["left", "right"])
def test_many_values_are_looked_for_side_by_side(entries: int, side: str) -> None:
    """In tasks that begin in the midst of a row, whose last values are fewer than go side by side."""
    chance = np.random.default_rng(entries)
    table = np.sort(chance.integers(-50, 50, entries)).astype("float64")
    a = chance.integers(-60, 60, (3, 4999)).astype("float64")
    a[1, 7] = np.nan
    t, v = te.placeholder((entries,), "float64", name="t"), te.placeholder(a.shape, "float64", name="v")
    np.testing.assert_array_equal(
        te.build([t, v], te.searchsorted(t, v, side))(table, a), np.searchsorted(table, a, side)
    )
