"""mode="add": what is there is added to, by the loops that write, without a temporary; mode="null" computes nothing."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import tedsl as te
from tedsl.backend.compiling.forms import Form
from tests.mutation.overlaps import draw

Case = tuple[list[te.Tensor], te.Tensor, list[Any]]


def floats(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).random(shape, np.float32)


def matmul(n: int) -> Case:
    A, B = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    return [A, B], A @ B, [floats(n, n), floats(n, n)]


def conv_weight_gradient(n: int) -> Case:
    X, W = te.placeholder((2, n, 12, 12), name="X"), te.placeholder((n, n, 3, 3), name="W")
    G = te.placeholder((2, n, 12, 12), name="G")
    (dW,) = te.differentiate(te.ops.conv2d(X, W, None, 1, 1), [W], G)
    return [X, G], dW, [floats(2, n, 12, 12), floats(2, n, 12, 12)]


def embedding_gradient(n: int) -> Case:
    T, I = te.placeholder((n, 16), name="T"), te.placeholder((8 * n,), "int32", name="I")  # noqa: E741 - its name
    G = te.placeholder((8 * n, 16), name="G")
    (dT,) = te.differentiate(te.compute((8 * n, 16), lambda i, j: T[I[i], j]), [T], G)
    return [I, G], dT, [np.arange(8 * n, dtype=np.int32) * 7 % n, floats(8 * n, 16)]


CASES = [matmul, conv_weight_gradient, embedding_gradient]


@pytest.mark.parametrize("case", CASES)
def test_no_temporary(case: Any) -> None:
    inputs, output, arrays = case(16)  # whole vectors at every level: no tile is moved over another one
    kern = te.build(inputs, output)
    total = kern(*arrays)
    written = kern.stats
    for count in range(2, 4):  # micro-batches
        assert kern(*arrays, out=total, mode="add") is total
        want = te.interpret(output, dict(zip(inputs, arrays, strict=True)))
        np.testing.assert_allclose(total, count * want, rtol=1e-4)
    assert kern.stats.copies == []
    assert (kern.stats.temporaries, kern.stats.peak_bytes) == (written.temporaries, written.peak_bytes)
    # The loops that write the output are those that compute it.
    assert all(r.stage is not None for r in kern.core.forms.variant(Form(("add",))).lowered.results)


def pointwise(x: te.Tensor) -> te.Tensor:
    return x * 2 + 1


def rows(x: te.Tensor) -> te.Tensor:
    return x.sum(1)


def greatest(x: te.Tensor) -> te.Tensor:
    return x.max(1)


def running(x: te.Tensor) -> te.Tensor:
    n, m = x.shape
    return te.scan((n, m), lambda y, t, i: te.select(t == 0, x[0, i], y[t - 1, i] + x[t, i]), axis=0)


def scattered(x: te.Tensor) -> te.Tensor:
    n, m = x.shape
    i, j = te.reduce_axis(n, name="i"), te.reduce_axis(m, name="j")
    return te.scatter((n, m), axes=[i, j], index=(i // 2, j), value=x[i, j])


@pytest.mark.parametrize("dtype", ["float32", "float16", "uint8"])
@pytest.mark.parametrize("definition", [pointwise, rows, greatest, running, scattered])
def test_every_kind_of_stage(definition: Any, dtype: str) -> None:
    x = te.placeholder((5, 4), dtype, name="x")
    y = definition(x)
    array = np.random.default_rng(0).integers(0, 9, (5, 4)).astype(dtype)
    value = te.interpret(y, {x: array})
    kern = te.build([x], y)
    out = np.full(value.shape, 3, value.dtype)
    kern(array, out=out, mode="add")
    np.testing.assert_allclose(out, value + 3, rtol=1e-3)
    kern(array, out=out, mode="add")
    np.testing.assert_allclose(out, 2 * value + 3, rtol=1e-3)


DTYPES = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "bfloat16", "float32",
          "float64")  # fmt: skip


def test_every_dtype() -> None:
    """Element by element, by rows, and scattered: one kernel for each kind."""
    x = te.placeholder((3, 4), "int8", name="x")
    array = np.arange(12, dtype="int8").reshape(3, 4)
    for definition in (pointwise, rows, scattered):
        outputs = [definition(x.astype(d)).astype(d) for d in DTYPES]
        values = te.interpret(outputs, {x: array})
        out = [np.full(v.shape, 3, v.dtype) for v in values]
        te.build(x, outputs)(array, out=out, mode="add")
        for found, value in zip(out, values, strict=True):
            np.testing.assert_array_equal(found, value + np.asarray(3, value.dtype))


def added(seed: int, count: int) -> None:
    """Random programs under random schedules, added to what is there."""
    rng, done = random.Random(seed), 0
    while done < count:
        triple = draw(rng)
        arrays = [np.random.default_rng(rng.randrange(999)).integers(-9, 10, t.shape, np.int32) for t in triple.inputs]
        values = te.interpret(triple.outputs, dict(zip(triple.inputs, arrays, strict=True)))
        out = [np.full(v.shape, 5, v.dtype) for v in values]
        try:
            te.build(triple.inputs, triple.outputs, triple.schedule)(*arrays, out=out, mode="add")
        except te.ScheduleError:
            continue
        done += 1
        for found, value in zip(out, values, strict=True):
            assert np.array_equal(found, value + 5), triple.note


def test_under_random_schedules() -> None:
    added(0, 8)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 110))
def test_under_many_random_schedules(seed: int) -> None:
    added(seed, 50)


@pytest.mark.parametrize("definition", [pointwise, rows, running])
def test_under_a_schedule(definition: Any) -> None:
    x = te.placeholder((8, 8), name="x")
    y = definition(x)
    s = te.Schedule([y])
    s[y].split(s[y].axes[-1], 4)
    kern = te.build([x], y, s)
    a = floats(8, 8)
    out = kern(a)
    once = out.copy()
    kern(a, out=out, mode="add")
    np.testing.assert_allclose(out, 2 * once, rtol=1e-5)


def test_gradients_in_one_contiguous_vector() -> None:
    """All gradients of a model, added where they belong in a vector that somebody else sees as one."""
    x, w, b = te.placeholder((5, 3), name="x"), te.placeholder((3, 4), name="w"), te.placeholder((4,), name="b")
    y = te.tanh(x @ w + b)
    kern = te.build([x, w, b], te.differentiate((y * y).sum(), [w, b]))
    arrays = [floats(5, 3), floats(3, 4), floats(4)]
    dw, db = kern(*arrays)
    vector = np.zeros(16, np.float32)
    parts = vector[:12].reshape(3, 4), vector[12:]
    for _ in range(3):
        kern(*arrays, out=parts, mode="add")
    assert kern.stats.copies == []
    np.testing.assert_allclose(vector, 3 * np.concatenate([dw.ravel(), db]), rtol=1e-5)


def test_a_mode_for_each_output() -> None:
    x = te.placeholder((6, 4), name="x")
    u, v = (
        te.compute((6, 4), lambda i, j: x[i, j] + 1, name="u"),
        te.compute((6, 4), lambda i, j: x[i, j] * 2, name="v"),
    )
    w = te.compute((6, 4), lambda i, j: u[i, j] * v[i, j], name="w")
    kern = te.build([x], [u, v, w])
    a = floats(6, 4)
    U, V, W = kern(a)
    given = {"u": U.copy(), "v": np.full_like(V, np.nan), "w": W.copy()}
    found = kern(a, out=given, mode={"u": "add", "v": "null"})
    assert len(found) == 2
    np.testing.assert_allclose(given["u"], 2 * U, rtol=1e-6)
    assert np.isnan(given["v"]).all()  # not touched
    np.testing.assert_allclose(given["w"], W, rtol=1e-6)  # computed from u itself, not from what it was added to
    assert kern(a, mode="null") == ()


def test_an_output_that_others_read_is_added_apart() -> None:
    x = te.placeholder((8,), name="x")
    u = te.compute((8,), lambda i: x[i] * 3, name="u")
    w = te.compute((8,), lambda i: u[7 - i] + 1, name="w")
    kern = te.build([x], [u, w])
    a, U, W = floats(8), np.ones(8, np.float32), np.ones(8, np.float32)
    kern(a, out=(U, W), mode="add")
    np.testing.assert_allclose(U, a * 3 + 1, rtol=1e-6)
    np.testing.assert_allclose(W, a[::-1] * 3 + 2, rtol=1e-6)


def test_adding_onto_an_input() -> None:
    """The array that is added to is also read: in place where that is safe."""
    x, y = te.placeholder((8,), name="x"), te.placeholder((8,), name="y")
    kern = te.build([x, y], te.compute((8,), lambda i: x[i] * y[i], name="p"))
    a, b = floats(8), floats(8) + 1
    want = a + a * b
    kern(a, b, out=a, mode="add")
    np.testing.assert_allclose(a, want, rtol=1e-6)
    assert kern.stats.copies == []
    turned = te.build([x], te.compute((8,), lambda i: x[7 - i], name="r"))
    want = a + a[::-1]
    turned(a, out=a, mode="add")
    np.testing.assert_allclose(a, want, rtol=1e-6)
    assert [name for name, _ in turned.stats.copies] == ["r"]


def test_bool_outputs_are_joined() -> None:
    x = te.placeholder((4,), name="x")
    out = np.array([True, False, True, False])
    te.build([x], x > 0.5)(np.array([0, 0, 1, 1], np.float32), out=out, mode="add")
    assert out.tolist() == [True, False, True, True]


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("foreign", [False, True])
def test_onto_memory_that_overlaps_an_input_in_every_way(symbolic: bool, foreign: bool) -> None:
    """Through a temporary what is there has other strides than the output that the kernel writes."""
    n = te.var("n") if symbolic else 6
    x = te.placeholder((n,), name="x")
    y = te.extern(lambda a: a[::-1] * 2, (n,), "float32", [x]) if foreign else None
    z = te.compute((n,), lambda i: x[n - 1 - i] * 2 if y is None else y[i], name="z")
    kernel = te.build(x, z)
    for shift in range(-6, 7):
        for step, to in [(1, 1), (1, -1), (-1, 1), (1, 2), (2, 1), (2, -3), (-1, -1)]:
            for mode in "write", "add":
                memory = np.arange(1, 61, dtype="float32")
                own = memory.copy()
                given, out = memory[25 :: 2 * step][:6], memory[25 + shift :: to][:6]
                own[25 + shift :: to][:6] = memory[25 :: 2 * step][:6][::-1] * 2 + (out if mode == "add" else 0)
                assert kernel(given, out=out, mode=mode) is out
                np.testing.assert_array_equal(memory, own, str((shift, step, to, mode)))
