"""Axes, extents and what is made of them alone are Python's numbers beside floats, and int32 beside integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tedsl as te
from tedsl.lang.dtypes import ALL
from tedsl.lang.expr import WeakFloat
from tedsl.lang.functions import as_expr
from tedsl.lang.traverse import stages_of

N, M = 5, 3
FLOATS = ("float16", "bfloat16", "float32", "float64")
INTEGERS = tuple(d for d in ALL if d.is_integer)
BOTH = (te.interpret, te.evaluate)


def example(dtype: str) -> tuple[te.Tensor, np.ndarray[Any, Any]]:
    x = te.placeholder((N,), dtype, name="x")
    return x, np.array([0, 1, 2, 3, 5], x.dtype.numpy)


# A value of `x` and the index `i`, with n for N: as written for both, since Python computes what tedsl is to compute.
WITH_A_FLOAT: dict[str, Callable[..., Any]] = {
    "product": lambda x, i, n, f: x * i,
    "quotient": lambda x, i, n, f: x / (i + 1),
    "quotient of an extent": lambda x, i, n, f: x / n,
    "difference": lambda x, i, n, f: i - x,
    "several operations": lambda x, i, n, f: x * ((i * 3 - n) // 2 % 4 + abs(i - n) - -i),
    "power": lambda x, i, n, f: x**i,
    "square of an index": lambda x, i, n, f: x * i**2,
    "inverse of an index": lambda x, i, n, f: x * (i + 1) ** -1,
    "shifts and bits": lambda x, i, n, f: x * ((i << 2) + (n >> 1) + (i & 1) + (i | 2) + (i ^ n) + ~i),
    "extremes": lambda x, i, n, f: f["maximum"](x, f["minimum"](i, n - 2)) + f["maximum"](i, 1),
    "selection": lambda x, i, n, f: f["select"](x > 1, x, i),
    "selection of numbers": lambda x, i, n, f: x * f["select"](i < n - 2, i, 0),
    "selection by data": lambda x, i, n, f: x * f["select"](x > 1, i, n),
    "comparison": lambda x, i, n, f: x < i,
    "product with a number": lambda x, i, n, f: x * (i * 0.5),
    "fraction": lambda x, i, n, f: x * (i / n),
    "function": lambda x, i, n, f: x * f["sqrt"](i * 1.0) + f["exp"](i / n),
    "function of an extent": lambda x, i, n, f: x / f["sqrt"](n),
    "rounding": lambda x, i, n, f: x + f["floor"](i / 2),
    "truth": lambda x, i, n, f: x * ((i > 2) * 3) + x * (n > 2),
}
OURS = {name: getattr(te, name) for name in ("maximum", "minimum", "select", "sqrt", "exp", "floor")}
THEIRS: dict[str, Any] = {
    "maximum": max, "minimum": min, "select": lambda c, a, b: a if c else b,
    "sqrt": lambda v: float(np.sqrt(v)), "exp": lambda v: float(np.exp(v)), "floor": lambda v: float(np.floor(v)),
}  # fmt: skip


@pytest.mark.parametrize("dtype", FLOATS)
def test_beside_floats_they_are_pythons_numbers(dtype: str) -> None:
    x, values = example(dtype)
    n = te.var("n")
    y = te.placeholder((n,), dtype, name="y")
    made = [
        (te.compute((N,), lambda i, rule=rule: rule(x[i], i, N, OURS)),
         te.compute((n,), lambda i, rule=rule: rule(y[i], i, n, OURS)))
        for rule in WITH_A_FLOAT.values()
    ]  # fmt: skip
    scalars = [v.item() if dtype == "float64" else v for v in values]
    epsilon = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24, "float64": 2.0**-53}[dtype]
    for run in BOTH:
        got = run([t for pair in made for t in pair], {x: values, y: values})
        for (name, rule), known, symbolic in zip(WITH_A_FLOAT.items(), got[::2], got[1::2], strict=True):
            want = np.array([rule(v, i, N, THEIRS) for i, v in enumerate(scalars)]).astype("float64")
            for found in (known, symbolic):
                assert found.dtype == ("bool" if name == "comparison" else x.dtype.numpy), name
                np.testing.assert_allclose(found.astype("float64"), want, rtol=4 * epsilon, err_msg=name)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_beside_integers_they_are_int32(dtype: str) -> None:
    x, values = example(dtype)
    for rule, ufunc in (
        (lambda v, i: v + i, np.add), (lambda v, i: v * (i + 1), lambda v, i: v * (i + np.int32(1))),
        (lambda v, i: v / (i + 1), lambda v, i: v / (i + np.int32(1))), (lambda v, i: v < i, np.less),
        (lambda v, i: te.maximum(v, i), np.maximum), (lambda v, i: te.hypot(v, i), np.hypot),
        (lambda v, i: v * i * 0.5, lambda v, i: v * i * np.float64(0.5)),
    ):  # fmt: skip
        tensor = te.compute((N,), lambda i, rule=rule: rule(x[i], i))
        want = ufunc(values, np.arange(N, dtype=np.int32))
        assert tensor.dtype == want.dtype
        for run in BOTH:
            np.testing.assert_allclose(run(tensor, {x: values}), want, rtol=1e-15)


@pytest.mark.parametrize(
    ("made", "dtype"),
    [
        (lambda i, n: i, "int32"), (lambda i, n: (i + n) // 2, "int32"), (lambda i, n: i**2, "int32"),
        (lambda i, n: te.select(i < n, i, 7), "int32"), (lambda i, n: (i > 2) + 1, "int32"),
        (lambda i, n: i * 0.5, "float32"), (lambda i, n: i / n, "float32"), (lambda i, n: 1 / (n + 1), "float32"),
        (lambda i, n: te.exp(i), "float32"), (lambda i, n: te.sqrt(n), "float32"), (lambda i, n: n**0.5, "float32"),
        (lambda i, n: te.hypot(i, 2.0), "float32"), (lambda i, n: te.maximum(i, 0.5), "float32"),
        (lambda i, n: te.select(i < 3, i, 0.5), "float32"), (lambda i, n: i < 2.5, "bool"),
        (lambda i, n: te.isnan(i / n), "bool"), (lambda i, n: te.floor(n / 2), "float32"),
    ],
)  # fmt: skip
def test_alone_they_are_int32_and_float32(made: Any, dtype: str) -> None:
    n = te.var("n")
    tensor = te.compute((n,), lambda i: made(i, n))
    assert tensor.dtype == dtype
    k = te.reduce_axis(n, "k")
    assert as_expr(made(k, n)).dtype == dtype
    want = [te.interpret(te.compute((1,), lambda z, i=i: made(z + i, N)), {})[0] for i in range(N)]
    for run in BOTH:
        np.testing.assert_allclose(run(tensor, {}, sizes={n: N}), want, rtol=1e-6)


def test_whole_tensors_meet_extents_as_numbers() -> None:
    n, m = te.var("n"), te.var("m")
    for dtype in FLOATS:
        y = te.placeholder((n, m), dtype, name="y")
        for made in (y / n, n * y, y - 0.5 * m, y * (n / m), y**n, te.maximum(y, n), te.where(y > n, y, m), y.mean()):
            assert made.dtype == dtype, made
    assert te.full((n,), n / 2).dtype == "float32"
    assert te.full_like(te.placeholder((n,), "float64"), n / 3).dtype == "float64"


def test_reductions_scans_scatters_and_reducers_take_them() -> None:
    n, k = te.var("n"), te.reduce_axis(N, "k")
    x, values = example("float32")
    h = te.placeholder((N,), "float16", name="h")
    assert te.compute((), lambda: te.sum(k * 1.0, axis=k)).dtype == "float32"
    assert te.compute((), lambda: te.sum(k, axis=k)).dtype == "int32"
    assert te.compute((), lambda: te.max(h[k] * k, axis=k)).dtype == "float16"
    assert te.scan((n,), lambda y, t: te.select(t == 0, 1.0, y[t - 1] + t)).dtype == "float32"
    assert te.scan((N,), lambda y, t: te.select(t == 0, h[0], y[t - 1] * t), dtype="float16").dtype == "float16"
    assert te.scan((n,), lambda y, t: t * 1, dtype="float64").dtype == "float64"
    summed = te.scatter((N,), [k], (k % 2,), k, init=x)
    assert summed.dtype == "float32"
    first = te.reducer(lambda a, b: (te.maximum(a[0], b[0]), a[1] + b[1]), (0.0, 0))
    top, total = te.compute((), lambda: first((x[k], k), axis=k))
    assert (top.dtype, total.dtype) == ("float32", "int32")
    weighed = te.reducer(lambda a, b: (a[0] + b[0], a[0] * b[1] + b[0] * a[1]), (0.0, 0.0))
    assert [t.dtype for t in te.compute((), lambda: weighed((h[k], k), axis=k))] == ["float16", "float16"]
    for run in BOTH:
        np.testing.assert_allclose(run(summed, {x: values}), values + np.array([6, 4, 0, 0, 0]))
        assert run(te.scan((n,), lambda y, t: t / 3, dtype="float64"), {}, sizes={n: 2})[1] == 1 / 3


def test_gradients_have_the_dtype_of_the_input() -> None:
    x, values = example("float32")
    n = te.var("n")
    y = te.placeholder((n,), "float32", name="y")
    for tensor, extent, read in ((x, N, x), (y, n, y)):
        out = te.compute((extent,), lambda i, read=read, extent=extent: te.exp(read[i] * (i / extent)) + read[i] ** i)
        head = te.placeholder((extent,), name="head")
        (grad,) = te.differentiate(out, [tensor], head)
        assert grad.dtype == "float32"
        assert not any(node.dtype == "float64" for op in stages_of([grad]) for node in op.nodes)
        i, v = np.arange(N), values.astype("float64")
        want = i / N * np.exp(v * i / N) + np.where(i > 0, i * v ** np.maximum(i - 1, 0), 0)
        for run in BOTH:
            np.testing.assert_allclose(run(grad, {tensor: values, head: np.ones(N, "f4")}), want, rtol=1e-6)


def test_a_dtype_that_was_asked_for_is_strong() -> None:
    x, n = te.placeholder((N,), name="x"), te.var("n")
    i = te.reduce_axis(N, "i")
    for strong in (
        te.cast(i, "int32"), te.cast(i, "int32") + 1, te.const(2), te.const(2, "int32"), i + te.const(1), np.int32(2),
        i + np.int32(1), n * te.const(2), te.select(i < 2, te.const(2), i), te.const(0) * i, te.cast(i > 2, "int32"),
        te.maximum(te.const(2), 5), -te.cast(n, "int32"), te.cast(i, "int64"), te.const(2.5, "float64"),
    ):  # fmt: skip
        assert (x[i] * strong).dtype == "float64", strong
        assert x[strong if strong.dtype != "float64" else 0] is x[as_expr(strong) if strong.dtype != "float64" else 0]
    assert (x[i] * te.cast(i, "float64")).dtype == "float64"
    assert (te.placeholder((N,), "float16")[i] * te.cast(i / n, "float32")).dtype == "float32"
    assert te.cast(i, "int32") * 0.5 is te.cast(i, "float64") * 0.5
    assert as_expr(te.cast(i, "int32")) is i
    assert (te.cast(i, "int32") < 3) is (i < 3)


def test_weak_numbers_print_as_they_are_written() -> None:
    i, n = te.reduce_axis(N, "i"), te.var("n")
    names = {"te": te, "i": i, "n": n, "x": te.placeholder((N,), name="x")}
    for text in (
        "i * 0.5", "i / n", "te.exp(-i / (n + 1)) * 2.5", "te.maximum(i, 0.5)", "te.select(i < n, i, 0.1)",
        "1 / (i + 1)", "te.sqrt(2)", "te.cast(i + 1, 'int32')", "te.const(3, 'int32')", "i ** -1", "(i > 2) * 0.5",
        "te.pow(i, 0.5) + 3",
        "x[i] * (te.cast(i, 'float32') / te.cast(n, 'float32'))", "i + 4294967296.0", "i * 4294967296.5",
    ):  # fmt: skip
        made = eval(text, names)
        if text != "te.pow(i, 0.5) + 3":
            assert str(made) == text
        assert eval(str(made), names) is made


def test_a_weak_float_is_computed_in_the_precision_of_what_it_meets() -> None:
    n = te.var("n")
    d, h = te.placeholder((n,), "float64", name="d"), te.placeholder((n,), "float16", name="h")
    tenth = te.compute((n,), lambda i: d[i] * (i * 0.1 + 1 / n))
    large = te.compute((n,), lambda i: h[i] * (70000 * (i + 1) / (70000.0 * n)))
    for run in BOTH:
        assert run(tenth, {d: np.ones(3)})[2] == 2 * 0.1 + 1 / 3
        np.testing.assert_array_equal(run(large, {h: np.ones(4, "f2")}), [0.25, 0.5, 0.75, 1])
    index = te.compute((n,), lambda i: te.cast(te.floor((i + 16777219) * 0.5), "int32"))
    place = te.compute((n,), lambda i: te.select((i + 16777217) * 1.0 > 16777216.5, 1, 0))
    for run in BOTH:
        assert run(index, {}, sizes={n: 1})[0] == 8388609
        assert run(place, {}, sizes={n: 1})[0] == 1


@pytest.mark.parametrize("dtype", FLOATS)
def test_integers_become_floats_with_one_rounding(dtype: str) -> None:
    x = te.placeholder((), dtype, name="x")
    values = [0, 1, 2047, 2049, 2051, 65503, 65519, 65520, 70000, 16777217, 16777219, 33554435, 2**31 - 2**20 - 3]
    n = te.var("n")
    tensor = te.compute((), lambda: x[()] * n)
    one = np.ones((), x.dtype.numpy)
    for value in values:
        with np.errstate(over="ignore"):
            want = {"float16": np.float16, "float32": np.float32, "float64": np.float64}.get(dtype, bfloat16)(value)
        for run in BOTH:
            assert float(run(tensor, {x: one}, sizes={n: value})) == float(want), (value, run)


def bfloat16(value: int) -> float:
    """The nearest, ties to even, in whole numbers."""
    shift = max(value.bit_length() - 8, 0)
    kept, rest, half = value >> shift, value & ((1 << shift) - 1), (1 << shift) >> 1
    return float((kept + (rest > half or (rest == half != 0 and kept & 1))) << shift)


def test_a_product_of_extents_beyond_int32_is_right() -> None:
    n, m, s = te.var("n"), te.var("m"), te.placeholder((), name="s")
    sizes, values = {n: 70001, m: 60000}, {s: np.float32(1)}
    for made, want in (
        (s[()] * (n * m), 70001 * 60000), (s[()] / (n * m + 1), 1 / (70001 * 60000 + 1)), (s[()] * n**2, 70001**2),
        (s[()] * (n * m // 7 % 1000), 70001 * 60000 // 7 % 1000), (s[()] * (n << 20), 70001 << 20),
        (s[()] * te.maximum(n * m, 5), 70001 * 60000), (te.cast(n * m, "int64"), 70001 * 60000),
        (te.exp(s[()] * (-n * m / 2**32)), np.exp(-70001 * 60000 / 2**32)), (n * m * 0.5, 70001 * 30000),
    ):  # fmt: skip
        for run in BOTH:
            found = run(te.compute((), lambda made=made: made), values, sizes=sizes)
            np.testing.assert_allclose(found, want, rtol=2e-7)
    i, j = te.reduce_axis(64, "i"), te.reduce_axis(64, "j")
    assert str(s[()] * (i * j)) == "s[()] * te.cast(i * j, 'float32')"


def test_what_a_weak_float_is_stays_out_of_definitions() -> None:
    n = te.var("n")
    out = te.compute((n,), lambda i: te.select(i / n < 0.5, te.exp(i / n), i * 0.5), name="out")
    assert isinstance(te.exp(n / 2), WeakFloat)
    assert not any(isinstance(node, WeakFloat) for node in out.op.nodes)


@pytest.mark.parametrize("fraction", ["subtracted", "remainder", "rounded down by a division"])
def test_a_place_and_its_weight_come_of_one_floor(fraction: str) -> None:
    """1.1 * 10 * 30 is 330 in float32 and just above it in float64: each alone is right, together they were not."""

    def parts(i: Any) -> tuple[Any, Any]:
        at = (i + 1) * (0.1 * 3) * 10 / 3 - 1e-12
        low = at // 1.0 if fraction == "rounded down by a division" else te.floor(at)
        return te.cast(low, "int32"), at % 1.0 if fraction == "remainder" else at - low

    n = 200
    place, weight = te.compute((n,), lambda i: parts(i)), te.compute((n,), lambda i: parts(i)[1])
    x = te.placeholder((n + 1,), name="x")
    line = te.compute((n,), lambda i: x[parts(i)[0]] * (1.0 - parts(i)[1]) + x[parts(i)[0] + 1] * parts(i)[1])
    assert weight.dtype == line.dtype == "float32"
    feeds = {x: np.arange(n + 1, dtype="float32")}
    want = (np.arange(n) + 1) * (0.1 * 3) * 10 / 3 - 1e-12
    for run in (te.interpret, te.evaluate):
        np.testing.assert_allclose(run(line, feeds), want, rtol=1e-6)
        np.testing.assert_allclose(run(place[0], {}) + run(weight, {}), want, rtol=1e-6)
