"""Names of tensors that Halide has for something else."""

from __future__ import annotations

import re
from pathlib import Path

import halide
import numpy as np
import pytest

import tedsl as te
from tedsl.backend.lowering.names import HALIDE_CALLS, identifier

VALUES = np.array([1.5, -2, 0.25], dtype="float32")


def test_the_calls_of_halide_are_known() -> None:
    header = (Path(halide.__file__).parent / "include" / "Halide.h").read_text(encoding="utf-8")
    listed = header.split("enum IntrinsicOp {")[1].split("IntrinsicOpCount")[0]
    assert set(re.findall(r"\w+(?=,)", re.sub(r"//.*", "", listed))) == HALIDE_CALLS
    taken = [*HALIDE_CALLS, "sqrt_f32", "is_nan_f64", "halide_malloc"]
    assert not {identifier(name) for name in taken}.intersection(taken)


@pytest.mark.parametrize("name", ["strict_add", "round", "floor_f32", "T", "1", "", "b c", "x" * 3000])
def test_a_tensor_may_have_the_name_of_a_call(name: str) -> None:
    """Inlined into others, it took the place of the call, or was refused."""
    x = te.placeholder((3,), name="x")
    inner = te.compute((3,), lambda i: x[i] + te.floor(x[i]), name=name)
    outer = te.compute((3,), lambda i: te.round(inner[i]) + te.floor(inner[i] + 0.75), name=name)
    y = VALUES + np.floor(VALUES)
    np.testing.assert_array_equal(te.evaluate(outer, {x: VALUES}), np.round(y) + np.floor(y + np.float32(0.75)))


def test_a_size_may_have_the_name_of_a_loop() -> None:
    """Within a definition over n the parameter n was taken for the loop."""
    n, k = te.var("n"), te.var("k")
    x = te.placeholder((n, k), name="x")
    scaled = te.compute((n, k), lambda n_, k_: x[n_, k_] * te.cast(n * 10 + k, "float32"), name="scaled")
    rolled = te.compute((n, k), lambda n, k: scaled.at(n + 1, k - 1, mode="wrap"), name="rolled")
    total = te.compute((n,), lambda n: te.sum(lambda k: rolled[n, k]), name="total")
    schedule = te.Schedule([rolled, total])
    inner = schedule[total].split("k", 2)[1]
    schedule[total].rfactor(inner)
    a = np.arange(12, dtype="float32").reshape(4, 3)
    want = np.roll(a * 43, (-1, 1), (0, 1))
    for given in (None, schedule):
        got = te.build([x], [rolled, total], schedule=given)(a)
        np.testing.assert_array_equal(got[0], want)
        np.testing.assert_array_equal(got[1], want.sum(1))


def test_an_input_may_have_the_name_of_what_memory_holds() -> None:
    x, y = te.placeholder((3,), name="x"), te.placeholder((3,), name="previous_0")
    out = np.ones(3, dtype="float32")
    te.build([x, y], x * y)(VALUES, VALUES, out=out, mode="add")
    np.testing.assert_array_equal(out, 1 + VALUES * VALUES)
