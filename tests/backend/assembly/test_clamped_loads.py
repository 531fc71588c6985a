"""Neighbours that were clamped: the same elements as gathers find, and nothing read beside an array."""

from __future__ import annotations

import ctypes
import mmap
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import tedsl as te
from tedsl.backend.assembly.clamped_loads import loaded_under_masks
from tests.levels import LEVELS_HERE, PROCESSORS, processor

DTYPES = st.sampled_from(["float32", "float64", "int32", "int64", "uint8", "int16"])
MODES = st.sampled_from(["clamp", "zero", "wrap"])


def numbers(n: int, dtype: str) -> Any:
    return (np.arange(n) * 7 % 101 + 1).astype(dtype)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    lengths=st.lists(st.integers(1, 70), min_size=2, max_size=4),
    dtype=DTYPES, are_known=st.booleans(), rows=st.booleans(), level=PROCESSORS,
)  # fmt: skip
def test_arrays_that_are_joined(lengths: list[int], dtype: str, are_known: bool, rows: bool, level: str) -> None:
    sizes = lengths if are_known else [te.var(f"n{k}") for k in range(len(lengths))]
    parts = [te.placeholder((3, n) if rows else (n,), dtype, name=f"x{k}") for k, n in enumerate(sizes)]
    arrays = [np.stack([numbers(n, dtype)] * 3) if rows else numbers(n, dtype) for n in lengths]
    joined = te.concatenate(parts, axis=-1)
    with processor(level):
        found = te.evaluate(joined, dict(zip(parts, arrays, strict=True)))
    np.testing.assert_array_equal(found, np.concatenate(arrays, axis=-1))


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    n=st.integers(1, 70), m=st.integers(1, 100), shifts=st.lists(st.integers(-60, 60), min_size=1, max_size=3),
    dtype=DTYPES, mode=MODES, is_known=st.booleans(), level=PROCESSORS,
)  # fmt: skip
def test_places_beyond_a_border(
    n: int, m: int, shifts: list[int], dtype: str, mode: str, is_known: bool, level: str
) -> None:
    x = te.placeholder((2, n if is_known else te.var("n")), dtype, name="x")
    y = te.compute((2, m), lambda i, j: sum((x.at(i, j + s, mode=mode) for s in shifts), te.const(0, dtype)))
    feeds = {x: np.stack([numbers(n, dtype), numbers(n, dtype)[::-1]])}
    with processor(level):
        np.testing.assert_array_equal(te.evaluate(y, feeds), te.interpret(y, feeds))


@pytest.mark.parametrize("level", [v for v in LEVELS_HERE if v != "x86-64-v2"])
def test_rows_of_unknown_length_are_loaded_under_masks(level: str) -> None:
    """Of a length that is an argument, LLVM says the other end of a clamp first, and zero in one word."""
    w = te.var("w")
    x = te.placeholder((te.var("n"), w), name="x")
    y = te.compute(
        x.shape, lambda i, j: te.select(j <= w - 2, x[i, j], 0.0) + te.select(j >= 1, x.at(i, j - 1, mode="clamp"), 0.0)
    )
    s = te.Schedule(y)
    s[y].vectorize(y.op.axes[1], 8)  # by default the ends of a row have loops of their own
    with processor(level):
        fired = re.search(r"clamped loads: (\d+)", te.build(x, y, schedule=s).source("passes"))
    assert fired is not None
    assert int(fired[1]) > 0


@pytest.mark.parametrize("level", [v for v in LEVELS_HERE if v != "x86-64-v2"])
def test_nothing_is_read_beside_an_array(level: str) -> None:
    """Behind the first array, and before the second, lies memory that may not be read."""
    page = mmap.PAGESIZE
    memory = mmap.mmap(-1, 4 * page)
    begin = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    assert protect(ctypes.c_void_p(begin + page), ctypes.c_size_t(2 * page), 0) == 0
    try:
        first = np.frombuffer(memory, "float32", 100, page - 400)
        second = np.frombuffer(memory, "float32", 300, 3 * page)
        x, y = te.placeholder((100,), name="x"), te.placeholder((300,), name="y")
        joined = te.concatenate([x, y])
        in_one_loop = te.Schedule(joined)
        in_one_loop[joined].vectorize(joined.op.axes[0], 8)
        with processor(level):
            kernel = te.build([x, y], joined, in_one_loop)
            assert "clamped loads: 0" not in kernel.source("passes")
            np.testing.assert_array_equal(kernel(first, second), np.zeros(400, "float32"))
            np.testing.assert_array_equal(te.build([x, y], joined)(first, second), np.zeros(400, "float32"))
    finally:
        protect(ctypes.c_void_p(begin + page), ctypes.c_size_t(2 * page), 3)


def function(ramp: str, clamp: str, total: str = "add nuw nsw") -> list[str]:
    """A gather of four at a ramp, to which a number is added before it is clamped."""
    return [
        "define void @f(ptr %base, i32 %at, ptr %to) {",
        "  %0 = insertelement <4 x i32> poison, i32 %at, i64 0",
        "  %1 = shufflevector <4 x i32> %0, <4 x i32> poison, <4 x i32> zeroinitializer",
        f"  %2 = {ramp} <4 x i32> %1, <i32 0, i32 1, i32 2, i32 3>",
        f"  %5 = {total} <4 x i32> %2, splat (i32 3)",
        f"  %3 = tail call <4 x i32> @llvm.{clamp}.v4i32(<4 x i32> %5, <4 x i32> splat (i32 9))",
        "  %te.places.0 = getelementptr double, ptr %base, <4 x i32> %3",
        "  %4 = call <4 x double> @llvm.masked.gather.v4f64.v4p0(<4 x ptr> %te.places.0, i32 8, <4 x i1> "
        "<i1 true, i1 true, i1 true, i1 true>, <4 x double> poison), !tbaa !7",
        "}",
    ]


@pytest.mark.parametrize(
    ("ramp", "clamp", "is_load"),
    [
        ("or disjoint", "umin", True), ("or disjoint", "smax", True), ("add nuw", "umin", True),
        ("add nuw nsw", "smin", True), ("add nsw", "smin", True), ("add nuw", "usub.sat", True),
        ("add nsw", "umin", False), ("add", "smin", False), ("add nuw", "smax", False), ("mul", "smin", False),
    ],
)  # fmt: skip
def test_places_must_be_known_to_follow_each_other(ramp: str, clamp: str, is_load: bool) -> None:
    text = "\n".join(loaded_under_masks(function(ramp, clamp)))
    assert ("call <4 x double> @llvm.masked.load.v4f64.p0(" in text) == is_load
    assert "masked.load" not in "\n".join(loaded_under_masks(function(ramp, clamp, total="add")))
    assert ("call <4 x double> @llvm.masked.gather" in text) != is_load


@pytest.mark.parametrize(("compared", "limit", "is_load"), [("%1", 8, True), ("%2", 9, True), ("%9", 9, False)])
@pytest.mark.parametrize("ramp", ["or disjoint", "add"])
def test_a_clamp_that_is_said_as_a_choice(compared: str, limit: int, ramp: str, *, is_load: bool) -> None:
    """So LLVM says it where the number that places are counted from is known to be a multiple of the lanes."""
    lines = function(ramp, "umin")
    lines[4:6] = [
        f"  %5 = icmp samesign ult <4 x i32> {compared}, splat (i32 {limit})",
        "  %3 = select <4 x i1> %5, <4 x i32> %2, <4 x i32> splat (i32 9)",
    ]
    text = "\n".join(loaded_under_masks(lines))
    assert ("call <4 x double> @llvm.masked.load.v4f64.p0(" in text) == (is_load and ramp == "or disjoint")


@pytest.mark.parametrize("level", [v for v in LEVELS_HERE if v != "x86-64-v2"])
@pytest.mark.parametrize("n", [9, 17, 63, 65, 721])
def test_rows_whose_length_is_odd_are_summed_by_loads(n: int, level: str) -> None:
    """Each vector was gathered, which took twice as long as a row of one element less."""
    memory, page = mmap.mmap(-1, 4 * mmap.PAGESIZE), mmap.PAGESIZE
    begin = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    assert protect(ctypes.c_void_p(begin + 3 * page), ctypes.c_size_t(page), 0) == 0
    try:
        rows = np.frombuffer(memory, "float32", 3 * n, 3 * page - 12 * n).reshape(3, n)
        rows[:] = np.arange(3 * n).reshape(3, n) % 7
        x = te.placeholder((3, n), name="x")
        with processor(level):
            kernel = te.build([x], x.sum(axis=1))
            np.testing.assert_array_equal(kernel(rows), rows.sum(axis=1))
            assert ".gather." not in kernel.source("llvm")
    finally:
        protect(ctypes.c_void_p(begin + 3 * page), ctypes.c_size_t(page), 3)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "uint16"])
def test_narrow_integers_are_loaded_under_masks(dtype: str) -> None:
    """Rows of odd length, and windows over a border, took a load for each byte."""
    x = te.placeholder((70, 1025), dtype, name="x")
    taps = te.reduce_axis(5), te.reduce_axis(5)
    reads = {"up": te.max, "down": te.min}
    around = {
        name: te.compute((70, 1025), lambda i, j, f=f: f(lambda u, v: x.at(i + u - 2, j + v - 2, mode="clamp"), taps))
        for name, f in reads.items()
    }
    longest = te.compute((70,), lambda i: te.max(lambda j: x[i, j]), name="longest")
    feeds = {x: (np.arange(70 * 1025) * 37 % 120).astype(dtype).reshape(70, 1025)}
    for y in (longest, around["up"] - around["down"]):
        if "x86-64-v4" in LEVELS_HERE:
            with processor("x86-64-v4"):
                np.testing.assert_array_equal(te.evaluate(y, feeds), te.interpret(y, feeds))
        kernel = te.build([x], y, target="x86-64-v4")
        assert y is longest or "clamped loads: 0" not in kernel.source("passes")
        assert kernel.source("asm").count("vpinsr") < 32
