"""Lowering, construct by construct: each against NumPy, and what Halide must be kept from."""

from __future__ import annotations

import operator
import warnings
from typing import Any

import numpy as np
import pytest

import tedsl as te
from tedsl.analysis.sizes import sizes_of
from tedsl.backend.lowering.pipeline import lower
from tedsl.lang.traverse import operations_between
from tests.levels import LEVELS_HERE, processor

RNG = np.random.default_rng(11)
N = te.var("n")
A = te.placeholder((N, 8), name="A")
VALUES = RNG.standard_normal((5, 8)).astype(np.float32)
K = te.reduce_axis(8, "k")


def run(tensor: Any, feeds: Any = None) -> Any:
    return te.evaluate(tensor, {A: VALUES} if feeds is None else feeds)


def test_reductions_with_conditions_of_either_kind() -> None:
    narrow = te.compute((N,), lambda i: te.sum(A[i, K], axis=K, where=K % 2 == 0))
    rest = te.compute((N,), lambda i: te.sum(A[i, K], axis=K, where=(i >= K) & (A[i, K] > 0)))
    ks, rows = np.arange(8), np.arange(5)[:, None]
    np.testing.assert_allclose(run(narrow), VALUES[:, ::2].sum(1), rtol=1e-6)
    np.testing.assert_allclose(run(rest), np.where((ks <= rows) & (VALUES > 0), VALUES, 0).sum(1), rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_conditions_are_rounded_as_they_are_written(dtype: str) -> None:
    """Halide would bring the number to the other side of the comparison, where the half is rounded away."""
    large = 1e8 if dtype == "float32" else 1e17
    x = te.placeholder((8,), dtype, name="x")
    where = x[K] - large < 0.5
    counts = te.compute((), lambda: te.sum(te.const(1), axis=K, where=where))
    found = te.scatter((1,), [K], (K // 8,), te.const(1), where=where)
    for tensor in (counts, found):
        assert te.evaluate(tensor, {x: np.full(8, large, dtype)}) == 8


def test_conditions_on_nested_narrow_floats() -> None:
    """Halide goes through a condition as through a tree, in which each rounding doubles what is inside, and more."""
    x = te.placeholder((40,), "bfloat16", name="x")
    k = te.reduce_axis(40, "k")

    def nested(i: Any) -> Any:
        value = x[i]
        for _ in range(12):
            value = value * value - 0.75
        return value

    where = nested(k) < -0.5
    total = te.compute((), lambda: te.sum(te.const(1), axis=k, where=where))
    found = te.scatter((5,), [k], (k % 5,), te.const(1), where=where)
    feeds = {x: RNG.uniform(-1.5, 1.5, 40).astype(np.float32).astype(x.dtype.numpy)}
    for tensor in (total, found):
        np.testing.assert_array_equal(te.evaluate(tensor, feeds), te.interpret(tensor, feeds))
    assert te.evaluate(total, feeds) > 0


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("level", LEVELS_HERE)
def test_narrow_floats_are_rounded_after_each_operation(dtype: str, level: str) -> None:
    """What an operation gives is read by the next one from before it was narrow, and is the same number."""
    x, y = te.placeholder((4096,), dtype, name="x"), te.placeholder((4096,), dtype, name="y")

    def value(i: Any) -> Any:
        near = te.clip(x[i] * y[i] + 0.1, -3, 1000)
        wide = te.maximum(near - y[i] / 3, x[i]) * te.cast(te.cast(y[i], "float32") + 1, dtype)
        return te.select(wide < near, te.minimum(wide, 2.5) + near, te.abs(wide) - te.floor(x[i]))

    out = te.compute((4096,), value)
    numpy = x.dtype.numpy
    feeds = {t: RNG.integers(0, 1 << 16, 4096, dtype=np.uint16).view(numpy) for t in (x, y)}
    with np.errstate(all="ignore"):
        got, want = te.build([x, y], out, target=level)(*feeds.values()), te.interpret(out, feeds)
    np.testing.assert_array_equal(got.astype(np.float32), want.astype(np.float32))
    numbers = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(got)[numbers], np.signbit(want)[numbers])


def test_a_reduction_that_does_not_use_its_axis() -> None:
    np.testing.assert_array_equal(run(te.compute((3,), lambda i: te.sum(i + 1, axis=K))), [8, 16, 24])
    k, m = te.reduce_axis((2, 7), "k"), te.reduce_axis(3, "m")
    np.testing.assert_array_equal(run(te.compute((), lambda: te.prod(te.const(2), axis=(k, m)))), 2**15)


def test_arguments_of_extremes() -> None:
    values = np.array([[1, 3, 3, 0], [-np.inf] * 4, [1, np.nan, 5, np.nan], [2, 2, 2, 2]], "f4")
    B, k = te.placeholder((4, 4), name="B"), te.reduce_axis(4, "k")
    best = te.compute((4,), lambda i: te.argmax(B[i, k], axis=k))
    least = te.compute((4,), lambda i: te.argmin(B[i, k], axis=k))
    late = te.compute((4,), lambda i: te.argmax(B[i, k], axis=k, where=k >= 2))
    np.testing.assert_array_equal(run(best, {B: values}), np.argmax(values, 1))
    np.testing.assert_array_equal(run(least, {B: values}), np.argmin(values, 1))
    np.testing.assert_array_equal(run(late, {B: values}), np.argmax(values[:, 2:], 1) + 2)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("kind", ["max", "min"])
def test_nan_wins_extremes(kind: str, dtype: str) -> None:
    values = RNG.standard_normal((6, 33)).astype(dtype)
    values[1, 0] = values[2, 32] = values[3, 7] = np.nan
    values[4] = -np.inf
    B, k = te.placeholder((6, 33), dtype, name="B"), te.reduce_axis(33, "k")
    got = run(te.compute((6,), lambda i: getattr(te, kind)(B[i, k], axis=k)), {B: values})
    np.testing.assert_array_equal(got, getattr(values, kind)(axis=1))


def test_nan_reaches_the_sum_and_what_tests_it() -> None:
    """A fused sum of products stays exact about NaN, also where the test for it sits in the same loop."""
    B, C, k = te.placeholder((16, 64), name="B"), te.placeholder((64, 32), name="C"), te.reduce_axis(64, "k")
    product = te.compute((16, 32), lambda i, j: te.sum(B[i, k] * C[k, j], axis=k))
    tested = te.compute((16, 32), lambda i, j: te.select(te.isnan(product[i, j]), 7.0, te.relu(product[i, j])))
    b, c = np.ones((16, 64), "f4"), np.ones((64, 32), "f4")
    c[63, 3] = np.nan
    c[5, 4], b[2, 5] = np.inf, 0.0
    with np.errstate(invalid="ignore"):
        want = np.where(np.isnan(b @ c), 7.0, b @ c)
    np.testing.assert_array_equal(run(tested, {B: b, C: c}), want)
    assert (want[:, 3] == 7).all()
    assert want[2, 4] == 7


def test_integers_wrap() -> None:
    B, k = te.placeholder((100,), "int8", name="B"), te.reduce_axis(100, "k")
    values = RNG.integers(-128, 128, 100).astype(np.int8)
    total = te.compute((), lambda: te.sum(B[k], axis=k))
    product = te.compute((100,), lambda i: te.cast(B[i], "int32") * 123456789 * 31)
    np.testing.assert_array_equal(run(total, {B: values}), values.sum(dtype=np.int8))
    want = values.astype(np.int32) * np.int32(123456789) * np.int32(31)
    np.testing.assert_array_equal(run(product, {B: values}), want)


def test_sums_of_narrow_floats_are_held_in_float32() -> None:
    B, k = te.placeholder((4096,), "float16", name="B"), te.reduce_axis(4096, "k")
    total = te.compute((), lambda: te.sum(B[k], axis=k))
    assert run(total, {B: np.ones(4096, np.float16)}) == 4096  # in float16, 2048 + 1 is 2048


def test_custom_reducers_run_in_the_order_of_the_axes() -> None:
    last = te.reducer(lambda a, b: (te.maximum(a[0], b[0]), te.select(b[0] >= a[0], b[1], a[1])), (-1e9, 0))
    best, where = te.compute((N,), lambda i: last((te.floor(A[i, K]), K), axis=K))
    floors = np.floor(VALUES)
    values, positions = run([best, where])
    np.testing.assert_array_equal(values, floors.max(1))
    np.testing.assert_array_equal(positions, 7 - np.argmax(floors[:, ::-1], 1))


def test_one_component_of_several() -> None:
    u, v = te.compute((N,), lambda i: (A[i, 0], A[i, 1] * 2))
    np.testing.assert_array_equal(run(v), VALUES[:, 1] * 2)
    later = te.compute((N,), lambda i: u[i] + v[i])
    first, total = run([u, later])
    np.testing.assert_array_equal(first, VALUES[:, 0])
    np.testing.assert_array_equal(total, VALUES[:, 0] + VALUES[:, 1] * 2)


@pytest.mark.parametrize("op", ["add", "max", "min", "mul"])
@pytest.mark.parametrize("dtype", ["int32", "float64", "uint8"])
def test_scatters_combine_duplicates(op: str, dtype: str) -> None:
    i, j = te.reduce_axis(40, "i"), te.reduce_axis(8, "j")
    index = te.placeholder((40,), "int16", name="index")
    B, start = te.placeholder((40, 8), dtype, name="B"), te.placeholder((7, 8), dtype, name="start")
    rows, b = RNG.integers(0, 7, 40).astype(np.int16), RNG.integers(0, 4, (40, 8)).astype(dtype)
    first = RNG.integers(0, 4, (7, 8)).astype(dtype)
    meet = {"add": np.add, "max": np.maximum, "min": np.minimum, "mul": np.multiply}[op]
    want = first.copy()
    meet.at(want, rows, b)
    got = te.scatter((7, 8), [i, j], (index[i], j), B[i, j], op=op, init=start)
    np.testing.assert_array_equal(run(got, {B: b, index: rows, start: first}), want)


def test_axes_of_one_name() -> None:
    rows, columns = te.reduce_axis(5, "i"), te.reduce_axis(8, "i")
    np.testing.assert_array_equal(run(te.scatter((8, 5), [rows, columns], (columns, rows), A[rows, columns])), VALUES.T)


def test_scans() -> None:
    decay = te.scan((N, 8), lambda y, t, i: te.select(t == 0, A[0, i], 0.5 * y[t - 1, i] + A[t, i]), axis=0)
    back = te.scan((N, 8), lambda y, i, t: te.select(t == 7, A[i, 7], y[i, t + 1] + A[i, t]), axis=1, reverse=True)
    mixed = te.scan((N, 8), lambda y, t, i: te.select(t == 0, A[0, i], y[t - 1, 7 - i] + A[t, i]), axis=0)
    want, flipped = VALUES.copy(), VALUES.copy()
    for t in range(1, 5):
        want[t] += np.float32(0.5) * want[t - 1]
        flipped[t] += flipped[t - 1, ::-1]
    np.testing.assert_allclose(run(decay), want, rtol=1e-6)
    np.testing.assert_allclose(run(mixed), flipped, rtol=1e-6)
    np.testing.assert_allclose(run(back), np.cumsum(VALUES[:, ::-1], 1)[:, ::-1], rtol=1e-5, atol=1e-6)


def test_fibonacci_of_two_states_and_two_lags() -> None:
    def step(a: Any, b: Any, t: Any) -> Any:
        return te.select(t < 2, 1, a[t - 1] + a[t - 2]), te.select(t == 0, 0, b[t - 1] + a[t - 1])

    fib, total = te.scan((10,), step, dtype=("int32", "int32"))
    numbers = [1, 1, 2, 3, 5, 8, 13, 21, 34, 55]
    first, second = run([fib, total], {})
    np.testing.assert_array_equal(first, numbers)
    np.testing.assert_array_equal(second, np.cumsum([0, *numbers[:-1]]))


def test_a_recurrent_network_reduces_over_its_state() -> None:
    W, k, m = te.placeholder((8, 8), name="W"), te.reduce_axis(8, "k"), te.reduce_axis(8, "m")

    def step(h: Any, t: Any, i: Any) -> Any:
        mixed = te.sum(W[i, k] * h[t - 1, k], axis=k) - te.max(h[t - 1, m], axis=m)
        return te.tanh(te.select(t == 0, 0.0, mixed) + A[t, i])

    w = RNG.standard_normal((8, 8)).astype(np.float32)
    want = np.zeros((5, 8))
    for t in range(5):
        want[t] = np.tanh((w @ want[t - 1] - want[t - 1].max() if t else 0) + VALUES[t])
    np.testing.assert_allclose(run(te.scan((N, 8), step, axis=0), {A: VALUES, W: w}), want, rtol=1e-4, atol=1e-5)


def test_reductions_inside_a_reduction_over_the_state_are_evaluated_by_the_reference() -> None:
    k, m = te.reduce_axis(8, "k"), te.reduce_axis(8, "m")

    def step(h: Any, t: Any, i: Any) -> Any:
        inner = te.sum(te.max(h[t - 1, m] * A[t, k], axis=m) * h[t - 1, k], axis=k)
        return te.select(t == 0, A[0, i], 0.1 * inner + A[t, i])

    nested = te.scan((N, 8), step, axis=0)
    shifted = te.compute((N, 8), lambda i, j: nested[i, j] + 1)
    np.testing.assert_allclose(run(shifted), te.interpret(shifted, {A: VALUES}), rtol=1e-5)


@pytest.mark.parametrize("mode", ["zero", "clamp", "reflect", "wrap"])
@pytest.mark.parametrize("size", [1, 2, 5, 40])
def test_boundaries_at_any_distance(mode: str, size: int) -> None:
    values = RNG.standard_normal((size, 8)).astype(np.float32)
    far = te.compute((N, 23), lambda i, j: A.at(2 * i - 5, 11 - j, mode=mode))
    np.testing.assert_array_equal(run(far, {A: values}), te.interpret(far, {A: values}))


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"])
def test_indices_of_every_integer_type(dtype: str) -> None:
    index, k = te.placeholder((9,), dtype, name="index"), te.reduce_axis(9, "k")
    rows = RNG.integers(0, 5, 9).astype(dtype)
    gathered = te.compute((9, 8), lambda i, j: A[index[i], j])
    halves = te.compute((9, 8), lambda i, j: A[index[i] // 2, j])
    guarded = te.compute((9,), lambda i: te.select(index[i] < 3, A[index[i], 0], 0.0))
    counts = te.scatter((5,), [k], (index[k],), te.const(1))
    got = run([gathered, halves, guarded, counts], {A: VALUES, index: rows})
    want = (
        VALUES[rows],
        VALUES[rows // 2],
        np.where(rows < 3, VALUES[rows, 0], 0),
        np.bincount(rows.astype(int), minlength=5),
    )
    for found, expected in zip(got, want, strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.share(2)
@pytest.mark.parametrize("kind", ["int32", "int64", "uint8"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_a_clipped_place_that_was_a_float_is_bounded(dtype: str, kind: str) -> None:
    """Halide's simplifier sees that the index is inside and drops what its bounds inference then needs."""
    n, p = 16, te.reduce_axis(4, "p")
    a = te.placeholder((n,), dtype, name="a")
    stored = te.compute((n,), lambda i: te.sum(a[i] + te.cast(K, dtype), axis=K))
    place = lambda x: te.clip(te.cast(te.floor(te.cast(x, dtype) * 0.5), kind), 0, n - 4)  # noqa: E731
    values = RNG.integers(-3, 4, n).astype(a.dtype.numpy)
    for source in (a, stored):
        wide = te.compute((2 * n,), lambda x, source=source: te.sum(source[p + place(x)], axis=p))
        head = te.compute((2 * n,), lambda x: te.cast(x % 3, dtype))
        for tensor in (wide, te.differentiate(wide, a, head=head)):
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # that no vectors could be made of it
                found = te.evaluate(tensor, {a: values})
            np.testing.assert_array_equal(found, te.interpret(tensor, {a: values}))


def test_sums_of_bounded_data_are_plain() -> None:
    """Rows of a flat table, whose elements Halide sees to lie side by side."""
    table, ids = te.placeholder((6400,), name="table"), te.placeholder((50,), "int32", name="ids")
    rows = te.compute((50, 64), lambda j, c: table[te.clip(ids[j], 0, 99) * 64 + c])
    text = te.build([table, ids], rows).source("stmt")
    (stored,) = [line.split(" = ")[1] for line in text.splitlines() if "] = " in line]
    assert stored.startswith("table[ramp(")


EXTREMES = [2**31 - 1, -(2**31), 2**31 - 2, 1 - 2**31, 0, 5, 39, 40, 38, 41]
MADE: dict[str, Any] = {
    "min": lambda x, z, n, i, c: te.minimum(x, n + c) - c, "max": lambda x, z, n, i, c: te.maximum(x, i + c) - c,
    "clip": lambda x, z, n, i, c: te.clip(x, 0, n - 1) + c, "taken": lambda x, z, n, i, c: n - te.minimum(x, n + c),
    "nested": lambda x, z, n, i, c: te.maximum(te.minimum(x, n + c), i - c) - i,
    "chosen": lambda x, z, n, i, c: te.minimum(te.select(z > 0, x, n + c), n + c) - c,
    "pair": lambda x, z, n, i, c: te.minimum(te.clip(x, -5, n - 1) + c, te.clip(z, 0, n + 3)),
    "compared": lambda x, z, n, i, c: te.select(te.clip(x, 0, n - 1) + c > te.clip(z, 0, n - 1), x, z),
    "near": lambda x, z, n, i, c: te.select(te.minimum(x, n + c) < te.maximum(z, i), 1, 0),
    "halved": lambda x, z, n, i, c: te.maximum(te.minimum(x, i + c), -i) // 2,
} | {
    f"{order.__name__} {term}": lambda x, z, n, i, c, order=order, of=of: te.select(order(x, of(n, i) + c), 1, 0)
    for order in (operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne)
    for term, of in {"n": lambda n, i: n, "i": lambda n, i: i, "n - i": lambda n, i: n - i}.items()
}  # fmt: skip


@pytest.mark.parametrize(
    ("is_symbolic", "level"), [(False, LEVELS_HERE[-1]), (True, LEVELS_HERE[-2:][0])], ids=["known", "symbolic"]
)
def test_terms_that_are_moved_past_the_largest_integers(is_symbolic: bool, level: str) -> None:
    """Halide takes int32 for the integers; unrolled loops add terms of their own."""
    count = len(EXTREMES) ** 2
    n = te.var("n") if is_symbolic else count
    x, z = te.placeholder((n,), "int32", name="x"), te.placeholder((n,), "int32", name="z")
    outputs = [te.compute((n,), lambda i, f=f, c=c: f(x[i], z[i], n, i, c)) for f in MADE.values() for c in (-1, 1)]
    feeds = {x: np.repeat(EXTREMES, len(EXTREMES)).astype("int32"), z: np.tile(EXTREMES, len(EXTREMES)).astype("int32")}
    expected = te.interpret(outputs, feeds)
    schedule = te.Schedule(outputs)
    for t in outputs:
        schedule[t].split("i", 4, ("io", "ii"))
        schedule[t].unroll("ii")
    names = [f"{name}, {c}" for name in MADE for c in (-1, 1)]
    with processor(level):
        kernels = [te.build([x, z], outputs), te.build([x, z], outputs, schedule=schedule)]
    for kernel in kernels:
        for name, found, want in zip(names, kernel(*feeds.values()), expected, strict=True):
            np.testing.assert_array_equal(found, want, err_msg=name)


@pytest.mark.parametrize("level", ["", "x86-64-v3"])
@pytest.mark.parametrize(
    "made",
    [
        lambda j, d: te.minimum(j * 65_536 + 1_000, (17 - j) * 65_537),
        lambda j, d: te.select(j * 65_536 + 1_000 < (17 - j) * 65_537, 1, 0),
        lambda j, d: te.maximum((d - j) * 65_537, j * 3 - 7),
        lambda j, d: te.select((17 - j) * (d + 65_537) > d * 3, j, 0),
    ],
)
@pytest.mark.parametrize("dtype", ["int64", "uint64"])
def test_negative_multiples_of_64_bits_at_the_end_of_a_loop(made: Any, dtype: str, level: str) -> None:
    """Halide takes uint64 for numbers that never wrap where it looks for what a loop's last rows can leave out."""
    rows = te.placeholder((3000, 70), name="rows")
    data = te.placeholder((70,), dtype, name="data")
    wide = lambda i, j: te.cast(made(te.cast(j, dtype), data[j]) % 1009, "float32")  # noqa: E731
    y = te.compute((3000, 70), lambda i, j: wide(i, j) + rows[i, j], name="y")
    feeds = {rows: np.zeros((3000, 70), "float32"), data: np.arange(70, dtype=dtype)}
    found = te.build([rows, data], y, target=level or "host")(*feeds.values())
    np.testing.assert_array_equal(found, te.interpret(y, feeds))


def test_division_by_what_folds_to_zero() -> None:
    zero = te.compute((4,), lambda i: te.select(i >= 0, 0.0, 1.0))
    values = np.array([1, -1, 0, np.nan], "f4")
    B = te.placeholder((4,), name="B")
    for divisor in (lambda i: 0.0, lambda i: zero[i], lambda i: -0.0):
        quotient = te.compute((4,), lambda i, d=divisor: B[i] / d(i))
        with np.errstate(all="ignore"):
            want = values / np.float32(divisor(0) if not hasattr(divisor(0), "dtype") else 0.0)
        np.testing.assert_array_equal(run(quotient, {B: values}), want)


def test_outputs_read_back_by_their_update_need_no_alignment() -> None:
    B, k = te.placeholder((1,), "float64", name="B"), te.reduce_axis(5, "k")
    kern = te.build(B, te.compute((7,), lambda i: te.max(B[0], axis=k)))
    memory = np.zeros(64)
    for offset in range(8):
        np.testing.assert_array_equal(kern(np.ones(1), out=memory[offset : offset + 7]), 1)


def test_operations_and_sizes_of_a_program_come_in_order() -> None:
    m = te.var("m")
    B = te.placeholder((m,), name="B")
    first = te.compute((m,), lambda i: B[i] + 1)
    second = te.compute((N, m), lambda i, j: first[j] * A[i, 0])
    assert operations_between([A, B], [second]) == [first.op, second.op]
    assert operations_between([A, first], [second]) == [second.op]
    assert sizes_of([A, B], [second]) == [N, m] or set(map(id, sizes_of([A, B], [second]))) == {id(N), id(m)}
    lowered = lower([A, first], [second])
    assert [stage.op for stage in lowered.stages] == [second.op]
    assert lowered.order == (0,)


def test_a_computed_tensor_can_be_an_input() -> None:
    twice = te.compute((N, 8), lambda i, j: A[i, j] * 2)
    kern = te.build([twice], te.compute((N, 8), lambda i, j: twice[i, j] + 1))
    np.testing.assert_array_equal(kern(VALUES), VALUES + 1)


def checked_programs(dtype: str) -> dict[str, tuple[Any, Any, Any]]:
    """A program of each construct that reads or writes at `index`."""
    B, index, k = te.placeholder((4,), dtype, name="B"), te.placeholder((9,), "int32", name="index"), te.reduce_axis(9)
    found = {
        "gather": te.compute((9,), lambda i: B[index[i]]),
        "sum": te.compute((), lambda: te.sum(B[index[k]], axis=k)),
        "max": te.compute((), lambda: te.max(B[index[k]], axis=k)),
        "argmax": te.compute((), lambda: te.argmax(B[index[k]], axis=k)),
        "input": te.scan((9,), lambda y, t: te.select(t == 0, B[0], te.maximum(y[t - 1], B[index[t]])), axis=0),
        "state": te.scan((9,), lambda y, t: te.select(t == 0, B[0], te.maximum(y[index[t]], B[1])), axis=0),
    }
    for op in ("add", "mul", "max", "min"):
        found[f"scatter {op}"] = te.scatter((4,), [k], (index[k],), B[k % 4], op=op)
    return {name: (B, index, tensor) for name, tensor in found.items()}


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "uint64"])
@pytest.mark.parametrize("construct", checked_programs("float32"))
def test_every_construct_checks_its_indices_before_it_writes(construct: str, dtype: str) -> None:
    B, index, tensor = checked_programs(dtype)[construct]
    kern = te.build([B, index], tensor)
    b, good = np.ones(4, dtype), np.array([0, 0, 1, 2, 3, 3, 3, 0, 2], "i4")
    out = np.full_like(kern(b, good), 5)
    with pytest.raises(IndexError, match="index"):
        kern(b, np.array([0, 0, 1, 2, 3, 3, 3, 0, 9], "i4"), out=out)
    assert (out == 5).all()
    np.testing.assert_array_equal(kern(b, good), te.interpret(tensor, {B: b, index: good}))


def test_a_condition_on_the_loop_keeps_the_clamps_of_its_reads() -> None:
    """From `where=` on a loop, Halide dropped the clamp of a guarded read, and then read past the end."""
    B, k = te.placeholder((4, 5), name="B"), te.reduce_axis(4, "k")
    inside = (k + 1 < 4) & (2 * k + 2 < 5)
    odd = te.reducer(lambda a, b: a + b, 0)
    values = RNG.standard_normal((4, 5)).astype(np.float32)
    folded = te.compute((), lambda: odd(te.select(inside, B[k + 1, 2 * k + 2], 0), axis=k, where=k % 2 == 0))
    landed = te.scatter((1,), [k], (k * 0,), te.select(inside, B[k + 1, 2 * k + 2], 0), where=k % 2 == 0)
    np.testing.assert_allclose(run([folded, landed], {B: values})[0], values[1, 2], rtol=1e-6)
    np.testing.assert_allclose(run(landed, {B: values}), values[1, 2], rtol=1e-6)


@pytest.mark.parametrize("dtype", ["int32", "int64", "float32"])
def test_extremes_over_the_loop_itself(dtype: str) -> None:
    """Left to itself Halide takes what an int32 update holds for unchanged by the loop, and its last step wins."""
    k, j = te.reduce_axis((1, 40), "k"), te.reduce_axis((1, 40), "j")

    def distance(i: Any) -> te.Expr:
        return te.abs(te.cast(i - k, dtype))

    least = te.compute((), lambda: te.min(te.cast(k, dtype), axis=k))
    farthest = te.compute((), lambda: te.max(distance(3), axis=k))
    nearest = te.compute((5,), lambda i: te.min(distance(i), axis=k))
    into = te.scatter((3,), axes=[j], index=(1,), value=te.cast(50 - j, dtype), op="max", init=te.zeros((3,), dtype))
    keeps = te.reducer(lambda a, b: te.select(b < a, b, a), 100)
    held = te.compute((), lambda: keeps(te.cast(k, dtype), axis=k))
    found = te.evaluate([least, farthest, nearest, into, held], {})
    assert [f.tolist() for f in found] == [1, 36, [1, 0, 0, 0, 0], [0, 49, 0], 1]


@pytest.mark.parametrize("value", [np.inf, np.nan])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_terms_that_would_vanish_for_finite_numbers(value: float, dtype: str) -> None:
    """Halide takes f + (x - x) for f, and would leave out the whole sum."""
    x, k, j = te.placeholder((), dtype, name="x"), te.reduce_axis(8, "k"), te.reduce_axis(8, "j")
    plus = te.reducer(lambda a, b: a + (b - b), te.const(0.0, dtype).value)
    results = [
        te.compute((3,), lambda i: te.sum(x[()] - x[()], axis=k)),
        te.compute((3,), lambda i: te.sum(te.maximum(x[()], x[()]) * 0.0, axis=k)),
        te.compute((3,), lambda i: te.prod(x[()] / x[()], axis=k)),
        te.scatter((3,), axes=[j], index=(j % 3,), value=x[()] - x[()]),
        te.compute((3,), lambda i: plus(x[()], axis=k)),
    ]
    for found in te.evaluate(results, {x: np.array(value, dtype)}):
        assert np.isnan(found).all()


@pytest.mark.parametrize("index", [lambda i: i ^ 4, lambda i: i | 4, lambda i: te.clip(i ^ 4, 0, 15)])
def test_an_index_of_joined_bits_has_bounds(index) -> None:
    x = te.placeholder((16,), name="x")
    values = np.arange(16, dtype=np.float32)
    got = te.build([x], te.compute((16,), lambda i: x[index(i)]))(values)
    np.testing.assert_array_equal(got, te.interpret(te.compute((16,), lambda i: x[index(i)]), {x: values}))


@pytest.mark.parametrize("mode", ["zero", "clamp", "wrap"])
@pytest.mark.parametrize(
    "index", [lambda d: te.maximum(d, 17) // 2, lambda d: d & 17, lambda d: te.minimum(d % 7, 9), lambda d: (d & 6) - 2]
)
def test_an_index_made_of_whole_data_has_bounds(index: Any, mode: str) -> None:
    """Halide's simplifier knows the range of what its bounds inference takes for anything."""
    x, data = te.placeholder((7,), name="x"), te.placeholder((40,), "int32", name="data")
    y = te.compute((40,), lambda i: x.at(index(data[i]), mode=mode), name="y")
    outputs = [y, *te.differentiate(te.sum(y * y), [x])]
    feeds = {x: np.arange(1, 8, dtype="float32"), data: np.arange(-20, 20, dtype="int32")}
    for found, want in zip(te.build([x, data], outputs)(*feeds.values()), te.interpret(outputs, feeds), strict=True):
        np.testing.assert_allclose(found, want)


class TestFloatsAsIntegers:
    """Halide merges a conversion of a float with the next one, `uint32(int32(-3.0))`, in which nothing wraps."""

    VALUES = np.linspace(-300, 300, 40).astype("float32")

    @pytest.mark.parametrize("middle", ["int8", "int16", "int32", "int64"])
    @pytest.mark.parametrize(("low", "high"), [(-300, -1), (-100, 100), (-3, 300)])
    def test_they_wrap_in_the_next_conversion(self, middle: str, low: int, high: int) -> None:
        x = te.placeholder((40,), name="x")
        dtypes = ("uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64")
        outputs = [
            te.compute((40,), lambda i, to=to: te.cast(te.cast(te.clip(x[i], low, high), middle), to)) for to in dtypes
        ]
        found, wanted = te.evaluate(outputs, {x: self.VALUES}), te.interpret(outputs, {x: self.VALUES})
        for a, b in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(a, b)

    @pytest.mark.parametrize(
        "place",
        [
            lambda x: te.clip(x, -3, -1),
            lambda x: te.minimum(te.clip(x, 0, 1), -1),
            lambda x: te.minimum(te.sigmoid(x), -1.0),
            lambda x: te.clip(x, 2, -1),
            lambda x: te.floor(te.clip(x, -0.9, -0.5)),
        ],
    )
    @pytest.mark.parametrize("dtype", ["int32", "int64"])
    def test_places_that_are_always_negative_are_refused(self, place: Any, dtype: str) -> None:
        x, table = te.placeholder((40,), name="x"), te.placeholder((3,), name="table")
        y = te.compute((40,), lambda i: table[te.cast(place(x[i]), dtype)])
        i = te.reduce_axis(40, name="i")
        z = te.scatter((3,), [i], te.cast(place(x[i]), dtype), x[i])
        for program in (y, z):
            with pytest.raises(IndexError, match="out of bounds"):
                te.evaluate(program, {x: self.VALUES, table: np.ones(3, "float32")})

    @pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64"])
    def test_the_magnitude_of_the_least_integer_is_negative(self, dtype: str) -> None:
        z, table = te.placeholder((2,), dtype, name="z"), te.placeholder((40000,), name="table")
        y = te.compute((2,), lambda i: table[te.minimum(te.abs(z[i]), np.array(100, dtype)[()])])
        values = np.array([3, np.iinfo(dtype).min], dtype)
        with pytest.raises(IndexError, match=rf"{values[1]}\b|out of bounds"):
            te.evaluate(y, {z: values, table: np.arange(40000, dtype="float32")})
        values[1] = -7
        np.testing.assert_array_equal(te.evaluate(y, {z: values, table: np.arange(40000, dtype="float32")}), [3, 7])

    @pytest.mark.parametrize("middle", ["float64", "float16", "bfloat16"])
    def test_clipped_between_two_conversions(self, middle: str) -> None:
        x = te.placeholder((40,), name="x")
        for to in ("int32", "uint8", "float32"):
            y = te.compute((40,), lambda i, to=to: te.cast(te.clip(te.cast(x[i], middle), 0, 5), to))
            np.testing.assert_array_equal(te.evaluate(y, {x: self.VALUES}), te.interpret(y, {x: self.VALUES}))

    @pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64"])
    def test_what_is_made_of_the_magnitude_of_the_least_integer(self, dtype: str) -> None:
        """Halide dropped the maximum with 0, and with it the clamp of the place: memory of others was read."""
        z, table = te.placeholder((40,), dtype, name="z"), te.placeholder((8,), name="table")
        least = np.iinfo(dtype).min
        given = {z: np.array([least, least + 1, -1, 0, 1, -least - 1, 7, -7] * 5, dtype)}
        made: list[Any] = []
        for shift in (0, 1):
            size = [te.compute((40,), lambda i, s=shift: te.abs(z[i] - s), name="size")][0]
            made += [
                te.compute((40,), lambda i, r=rule, s=size: r(s[i]))
                for rule in (lambda q: te.maximum(q, 0), lambda q: te.relu(q), lambda q: q % 7, lambda q: q // 7,
                             lambda q: te.minimum(q, -1), lambda q: te.sign(q), lambda q: te.clip(q, 0, 5))
            ]  # fmt: skip
            made += [
                te.compute((40,), lambda i, p=place, s=shift: table[p(te.cast(te.abs(z[i] - s), "int64"))])
                for place in (lambda q: te.clip(te.maximum(q, 0), -1, 7), lambda q: te.clip(q, 0, 7), lambda q: q % 8)
            ]
        given[table] = np.arange(8, dtype="float32")
        for a, b in zip(te.evaluate(made, given), te.interpret(made, given), strict=True):
            np.testing.assert_array_equal(a, b)
