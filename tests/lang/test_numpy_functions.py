"""What NumPy has for whole arrays, called by its name and by ours: the values and shapes are NumPy's."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tedsl as te
from tedsl.lang import elementary, quantiles, rearranging, summaries

RNG = np.random.default_rng(0)
A, B, V, W = (RNG.standard_normal((4, 6)), RNG.standard_normal((4, 6)), RNG.standard_normal(6), RNG.uniform(0.1, 1, 6))
HOLES, SORTED, SHORT = A.copy(), np.sort(V), W[:3]
HOLES[0, 1] = HOLES[2] = np.nan
HOLES[3, 0] = np.inf
ODD = np.array([-np.inf, np.inf, 0, 1, np.nan, -2.5])

CASES: dict[str, list[tuple[Any, ...]]] = {  # arguments, the last a dict of those with names
    "square": [(A,)], "deg2rad": [(A,)], "radians": [(A,)], "rad2deg": [(A,)], "degrees": [(A,)], "arcsinh": [(A,)],
    "sinc": [(np.array([0, 0.5, 1.0, -2.3, 1e-9, 0.15, 0.16, -0.159]),)],
    "fmax": [(HOLES, B), (B, HOLES)], "fmin": [(HOLES, B), (B, HOLES)], "heaviside": [(ODD, V)],
    "logaddexp": [(ODD, ODD), (A, B), (1000 * A, B)], "logical_xor": [(A > 0, B > 0)],
    "isclose": [(A, A + 1e-9), (A, B), (ODD, ODD), (ODD, ODD, {"equal_nan": True})],
    "nan_to_num": [(ODD,), (ODD.astype("float32"),), (ODD, {"nan": 3.0, "posinf": 9.0, "neginf": -9.0})],
    "hstack": [([A, B],), ([V, W],)], "vstack": [([A, V],), ([V, W],)], "dstack": [([A, B],), ([V, W],)],
    "column_stack": [([V, W],), ([A, A],), ([A.T, V],)],
    "tile": [(A, 2), (A, (2, 3)), (V, (2, 1, 2)), (V, 0), (A[:0], 2), (A[:, :0], (1, 2, 2))],
    "repeat": [(A, 3), (A, 2, {"axis": 0}), (A, 2, {"axis": 1})],
    "diag": [(V,), (V, 2), (V, -1), (A,), (A, 1)], "fliplr": [(A,)], "flipud": [(A,)],
    "rot90": [*((A, k) for k in range(-1, 5)), (A, {"axes": (1, 0)})],
    "kron": [(A[:2, :2], B[:3]), (V, W), (A, V), (A[:, :0], B), (V, W[:0])],
    "meshgrid": [(V, SHORT), (V, SHORT, {"indexing": "ij"}), (V, SHORT, SORTED[:2]), (V,)],
    "count_nonzero": [(A > 0,), (np.round(A), {"axis": 1})], "ptp": [(A,), (A, {"axis": 0})],
    "allclose": [(A, A + 1e-12), (A, B)],
    "average": [
        (A,), (A, {"axis": 1}), (A, {"axis": 1, "weights": W}), (A, {"weights": abs(B)}),
        (A, {"axis": 0, "weights": abs(B)}),
    ],
    **{
        name: [(HOLES,), (HOLES, {"axis": 1}), (HOLES, {"axis": 0, "keepdims": True})]
        for name in ("nansum", "nanmean", "nanmax", "nanmin")
    },
    "median": [
        (A,), (A, {"axis": 0}), (A[:3], {"axis": 0}), (HOLES, {"axis": 1}), (A, {"axis": (0, 1), "keepdims": True}),
    ],
    "quantile": [
        *((A, q, {"axis": 1}) for q in (0.0, 0.1, 0.37, 0.5, 0.9, 1.0)), (A, [0.1, 0.5], {"axis": 1}), (A, 0.3),
    ],
    "percentile": [(A, 30, {"axis": 0}), (A, [5, 95])], "interp": [(np.linspace(-4, 4, 50), SORTED, W), (A, SORTED, W)],
    "inner": [(A, B), (V, W)], "vdot": [(A, B)],
    "cross": [(A[:, :3], B[:, :3]), (A[:3], B[:3], {"axis": 0})],
    "convolve": [(a, v, m) for m in ("full", "same", "valid") for a, v in ((V, SHORT), (SHORT, V), (V, W), (V, W[:4]))],
    "polyval": [(W[:4], A)],
    "trapezoid": [(A,), (A, {"dx": 0.3, "axis": 0}), (A, SORTED), (A, np.sort(B[:, 0]), {"axis": 0})],
}  # fmt: skip


def tensors(value: Any, feeds: dict[te.Tensor, Any]) -> Any:
    """The same with a placeholder for each array."""
    if isinstance(value, np.ndarray):
        made = te.placeholder(value.shape, str(value.dtype))
        feeds[made] = value
        return made
    return [tensors(v, feeds) for v in value] if isinstance(value, list) else value


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's own, of rows of NaN
@pytest.mark.parametrize("name", CASES)
def test_values_and_shapes_are_those_of_numpy(name: str) -> None:
    for case in CASES[name]:
        *given, named = case if isinstance(case[-1], dict) else (*case, {})
        feeds: dict[te.Tensor, Any] = {}
        own, own_named = [tensors(v, feeds) for v in given], {k: tensors(v, feeds) for k, v in named.items()}
        with np.errstate(all="ignore"):
            wanted = getattr(np, name)(*given, **named)
        for module in (te, np) if hasattr(te, name) else (np,):
            found = getattr(module, name)(*own, **own_named)
            results = te.interpret(list(found) if isinstance(found, tuple) else [found], feeds)
            for got, want in zip(results, wanted if isinstance(wanted, (tuple, list)) else [wanted], strict=True):
                np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-12)
                assert np.shape(got) == np.shape(want)


@pytest.mark.parametrize(
    "shares", [np.array([0.1, 0.9]), np.array(0.3), np.float32(0.25), (0.2, 1), np.full((2, 3), 0.4)]
)
def test_shares_of_quantiles_may_be_arrays(shares: Any) -> None:
    x = te.placeholder(A.shape, "float64", name="x")
    for module in (te, np):
        for found, want in (
            (module.quantile(x, shares, axis=1), np.quantile(A, shares, axis=1)),
            (module.percentile(x, np.multiply(shares, 100)), np.percentile(A, np.multiply(shares, 100))),
            (module.quantile(x, shares, axis=0, keepdims=True), np.quantile(A, shares, axis=0, keepdims=True)),
        ):
            assert found.shape == np.shape(want)
            np.testing.assert_allclose(te.interpret(found, {x: A}), want, rtol=1e-6)


@pytest.mark.parametrize("size", [7, 40, 5000])
@pytest.mark.parametrize("mode", ["full", "same", "valid"])
@pytest.mark.parametrize("is_symbolic", [False, True])
def test_a_convolution_multiplies_nothing_beyond_the_ends(size: int, mode: str, is_symbolic: bool) -> None:
    """The border was one of zeros, which infinity makes NaN of."""
    n = te.var("n") if is_symbolic else size
    a, v = te.placeholder((n,), "float64", name="a"), te.placeholder((5,), "float64", name="v")
    values, kernel = RNG.integers(1, 9, size).astype("float64"), np.array([np.inf, 1, np.nan, 2, -np.inf])
    y = te.convolve(a, v, mode)
    for wrong in (kernel, np.array([np.inf, 1, 1, 1, 1]), np.array([1, 1, 1, 1, np.nan])):
        want = np.convolve(values, wrong, mode)
        np.testing.assert_array_equal(te.evaluate(y, {a: values, v: wrong}), want)
        np.testing.assert_array_equal(te.interpret(y, {a: values, v: wrong}), want)
        if not is_symbolic:  # where it is not known which is the longer one, the first is taken for it
            np.testing.assert_array_equal(te.evaluate(te.convolve(v, a, mode), {a: values, v: wrong}), want)
    finite = np.convolve([1.0, 2, 3], [np.inf, 1])
    np.testing.assert_array_equal(te.evaluate(np.convolve(te.constant([1.0, 2, 3]), [np.inf, 1])), finite)


@pytest.mark.parametrize("known", [[0.0, 1, 2, 3], [-np.inf, 1, 2, 3], [0.0, 1, 2, np.inf]])
def test_lines_through_points_that_are_not_finite_are_those_of_numpy(known: list[float]) -> None:
    places = np.array([-np.inf, -1, 0, 0.5, 1, 1.5, 2, 2.5, 3, 9, np.inf, np.nan])
    x, xp, fp = (te.placeholder((n,), "float64") for n in (len(places), 4, 4))
    y = te.interp(x, xp, fp)
    for values in itertools.product([1.0, 2.0, np.inf, -np.inf, np.nan], repeat=4):
        feeds = {x: places, xp: np.array(known), fp: np.array(values)}
        with np.errstate(all="ignore"):
            want = np.interp(places, known, values)
        np.testing.assert_array_equal(te.evaluate(y, feeds), want)
    at = {x: np.linspace(-0.5, 3.5, len(places)), xp: np.arange(4.0), fp: np.array([3.0, 1.0, 2.0, 5.0])}
    te.gradcheck(y.sum(), [x, fp], at)


def test_every_function_is_tried() -> None:
    assert {n for m in (elementary, quantiles, rearranging, summaries) for n in m.__all__} <= {
        *CASES,
        "softplus",
    }  # which NumPy has not


def test_elements_and_gradients() -> None:
    x, y = te.placeholder((6,), "float64", name="x"), te.placeholder((6,), "float64", name="y")
    z = te.compute((6,), lambda i: te.square(x[i]) + np.logaddexp(x[i], y[i]) + te.sinc(y[i]), name="z")
    feeds = {x: V, y: W}
    np.testing.assert_allclose(te.evaluate(z, feeds), V**2 + np.logaddexp(V, W) + np.sinc(W), rtol=1e-12)
    at = {x: SORTED, y: V}
    for value in (z, te.median(x), te.quantile(x, 0.3), te.interp(y * 0.5, x, x * x), te.convolve(x, y), te.kron(x, y)):
        te.gradcheck(value.sum(), [x, y], at)
    both = te.differentiate(te.logaddexp(x, x + 0).sum(), x)
    np.testing.assert_allclose(te.evaluate(both, {x: V}), np.ones(6))


def test_second_derivatives_where_formulas_have_seams() -> None:
    at = np.array([0.0, 1e-9, -1e-4, 0.1, 0.2])
    t = np.pi * at
    with np.errstate(all="ignore"):
        curve = np.pi**2 * ((2 - t * t) * np.sin(t) - 2 * t * np.cos(t)) / t**3
    curve[:3] = -(np.pi**2) / 3
    found = te.hessian(lambda w: te.sinc(w).sum())(at)
    np.testing.assert_allclose(np.diag(found), curve, rtol=1e-6)
    soft = te.hessian(lambda w: te.logaddexp(w, 0.1).sum())(at)
    p = 1 / (1 + np.exp(0.1 - at))
    np.testing.assert_allclose(soft, np.diag(p * (1 - p)), rtol=1e-12)


@pytest.mark.parametrize("other", ["bool", "int8", "uint8", "int16", "int64", "float16", "float32", "float64"])
@pytest.mark.parametrize("dtype", ["bool", "int8", "int32", "uint8", "float16"])
def test_functions_of_pairs_are_floats_before_anything_overflows(dtype: str, other: str) -> None:
    a, b = np.array([1, 100, 3], dtype), np.array([0, 1, 100], other)
    x, y = te.placeholder((3,), dtype), te.placeholder((3,), other)
    for name in ("logaddexp", "heaviside", "isclose"):
        want, found = getattr(np, name)(a, b), te.interpret(getattr(te, name)(x, y), {x: a, y: b})
        assert (found.dtype, te.heaviside(x, 0.5).dtype) == (want.dtype, np.heaviside(a, 0.5).dtype)
        np.testing.assert_allclose(found, want, rtol=2e-3)
    assert te.interpret(te.isclose(x, y, atol=100), {x: a, y: b}).all()
    assert te.deg2rad(x).dtype == np.deg2rad(a).dtype


def test_functions_of_numpy_take_elements() -> None:
    x = te.placeholder((6,), "float64", name="x")
    z = te.compute((6,), lambda i: np.where(i < 2, np.clip(x[i], 0, 1), np.round(x[i], 1)) + np.nan_to_num(x[i]))
    expected = np.where(np.arange(6) < 2, np.clip(V, 0, 1), np.round(V, 1)) + V
    np.testing.assert_allclose(te.evaluate(z, {x: V}), expected)


@pytest.mark.parametrize("decimals", [2, 0, -1])
def test_numbers_are_rounded_to_decimals(decimals: int) -> None:
    values = np.array([1.2345, -2.675, 0.5, 250.55, np.nan, -np.inf], "float32")
    x = te.placeholder((6,), name="x")
    np.testing.assert_array_equal(te.evaluate(np.round(x, decimals), {x: values}), np.round(values, decimals))
    whole = te.placeholder((3,), "int32", name="whole")
    if decimals >= 0:
        assert te.evaluate(whole.round(decimals), {whole: np.arange(3, dtype="int32")}).tolist() == [0, 1, 2]


def test_what_does_not_fit_is_refused() -> None:
    x, n = te.placeholder((4, 6), name="x"), te.var("n")
    cases: list[tuple[Callable[[], Any], type[Exception], str]] = [
        (lambda: te.quantile(x, 1.5), ValueError, "expected parts from 0 to 1, found 1.5"),
        (lambda: te.percentile(x, 150), ValueError, "te.percentile at .*: q: expected parts from 0 to 100, found 150"),
        (lambda: te.quantile(x, float("nan")), ValueError, "expected parts from 0 to 1, found nan"),
        (lambda: te.quantile(x, "half"), TypeError, "q: expected a number, or an array or list .* found str 'half'"),
        (lambda: te.quantile(x, []), TypeError, "q: expected a number, or an array or list"),
        (lambda: te.quantile(x, te.ones(())), TypeError, "q: expected a number, .* found Tensor"),
        (lambda: te.median(te.placeholder((n,))), ValueError, "the number of elements is symbolic, `n`"),
        (lambda: te.cross(x, x), ValueError, "expected 3 elements along axis 1"),
        (lambda: te.average(x, weights=np.ones(6)), TypeError, "a vector of weights needs one axis"),
        (lambda: te.convolve(x, x), ValueError, "expected two vectors and the mode"),
        (lambda: te.tile(x, -1), ValueError, "expected counts of 0 or more"),
        (lambda: te.repeat(x, 1.5), TypeError, "te.repeat at .*: expected an integer, found 1.5"),
        (lambda: te.diag(te.placeholder((2, 2, 2))), ValueError, "expected a vector or a matrix"),
        (lambda: te.hstack(x), TypeError, "expected a list of tensors"),
        (lambda: te.meshgrid(x, indexing="yx"), ValueError, "indexing is 'xy' or 'ij'"),
        (lambda: te.square(np.ones(3)), TypeError, "te.square at .*: expected tensors"),
        (lambda: te.nan_to_num(1.0), TypeError, "expected a tensor or an element of one"),
        (lambda: te.median(x, dim=0), TypeError, "found dim=, expected axis="),
        (lambda: np.round(te.placeholder((3,), "int32"), -1), TypeError, "decimals=-1 is for floats, found int32"),
        (lambda: te.compute((4,), lambda i: np.sum(x[i, 0])), TypeError, "np.sum at .*one scalar; write it with"),
        (lambda: np.arange(n), TypeError, "`n` is a size that is not known yet.*te.arange"),
        (lambda: te.sum(x[j, 0] for j in range(4)), TypeError, "found a generator; Python's own sum and max"),
    ]
    for f, error, text in cases:
        with pytest.raises(error, match=re.sub(r"(?<!\.)\(|\)", ".", text)):
            f()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_softmax_and_its_like_are_also_functions(dtype: str) -> None:
    special = pytest.importorskip("scipy.special")
    a = (100 * A).astype(dtype)
    tolerance = 1e-5 if dtype == "float32" else 1e-12
    for name in ("softmax", "log_softmax", "logsumexp"):
        ours, theirs = getattr(te, name), getattr(special, name)
        for axis in (0, 1, -1):
            found = te.jit(lambda x, ours=ours, axis=axis: ours(x, axis=axis))(a)
            assert found.dtype == dtype
            np.testing.assert_allclose(found, theirs(a, axis=axis), rtol=tolerance, atol=tolerance, err_msg=name)
            method = te.jit(lambda x, name=name, axis=axis: getattr(x, name)(axis))(a)
            np.testing.assert_array_equal(found, method)
    np.testing.assert_allclose(te.jit(te.logsumexp)(A), special.logsumexp(A), rtol=1e-12)  # over all


def test_norms_are_also_functions() -> None:
    x = te.placeholder(A.shape, "float64", name="x")
    cases: list[Any] = [
        ((), {}), ((), {"axis": 1}), ((1,), {"axis": 0}), ((np.inf,), {"axis": 1, "keepdims": True}),
        ((3,), {"axis": 1}),
    ]  # fmt: skip
    for args, kwargs in cases:
        expected = np.linalg.norm(A, *args, **kwargs)
        for made in (te.norm(x, *args, **kwargs), np.linalg.norm(x, *args, **kwargs)):
            found = te.interpret(made, {x: A})
            np.testing.assert_allclose(found, expected, rtol=1e-12)
            assert found.shape == expected.shape


def test_softplus_of_elements_and_tensors() -> None:
    values = np.array([-1e4, -30.0, -1.0, 0.0, 1e-9, 2.0, 30.0, 1e4, np.inf, -np.inf, np.nan])
    found = te.jit(te.softplus)(values)
    np.testing.assert_allclose(found[:-1], np.logaddexp(values[:-1], 0.0), rtol=1e-14)
    assert np.isnan(found[-1])
    element = te.jit(lambda v: te.compute(v.shape, lambda i: te.softplus(v[i])))(values)
    np.testing.assert_array_equal(found, element)
    slopes = te.grad(lambda v: te.softplus(v).sum())(values[:8])
    np.testing.assert_allclose(slopes, np.exp(-np.logaddexp(-values[:8], 0.0)), rtol=1e-12)
    assert te.softplus(te.placeholder((2,), "float16", name="h")).dtype == "float16"


def test_one_hot_rows() -> None:
    k = te.placeholder((2, 3), "int64", name="k")
    at = np.array([[0, 3, -1], [2, 4, 1]])
    for dtype in ("float32", "float64", "int8", "bool"):
        found = te.interpret(te.one_hot(k, 4, dtype), {k: at})
        assert found.dtype == dtype
        np.testing.assert_array_equal(found, (at[..., None] == np.arange(4)).astype(dtype))
    n = te.var("n")
    rows = te.placeholder((n,), "int32", name="rows")
    assert te.one_hot(rows, n).shape[1] is n or str(te.one_hot(rows, n).shape[1]) == "n"
    with pytest.raises(TypeError, match=r"te.one_hot at .*: expected integers, found"):
        te.one_hot(te.placeholder((2,), name="x"), 3)


@pytest.mark.parametrize("ends", [(1, np.inf), (np.inf, np.inf), (-np.inf, 1), (-np.inf, -np.inf), (-np.inf, np.inf)])
def test_the_middle_of_what_is_infinite(ends: tuple[float, float]) -> None:
    """Half of the way to infinity is infinite; between both of them there is no middle."""
    values = np.array([ends[0], ends[0], ends[1], ends[1]])
    with np.errstate(invalid="ignore"):
        want = np.median(values)
    x = te.placeholder((4,), "float64", name="x")
    for made in (te.median(x), te.quantile(x, 0.5), te.quantile(x, [0.4, 0.6])[0]):
        np.testing.assert_array_equal(te.interpret(made, {x: values}), want)
        np.testing.assert_array_equal(te.build([x], made)(values), want)


def test_the_median_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match=r"te.median at .*: there are no elements in x : float32\[0\]"):
        te.median(te.placeholder((0,), name="x"))
