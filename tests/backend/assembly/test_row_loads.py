"""Vectors that are looked up side by side: a load for each lane of several of them, and of nothing else."""

from __future__ import annotations

import ctypes
import itertools
import mmap
import re
from typing import Any

import numpy as np
import pytest

import tedsl as te
from tedsl.backend.assembly.gathers import gathered
from tedsl.backend.assembly.row_loads import rows_of

SLOW, FAST = {"avx2"}, {"avx2", "avx512", "avx512_skylake"}  # gathers
MARKS = """!1 = !{!2, !2, i64 0}
!2 = !{!"table", !5, i64 0}
!3 = !{!4, !4, i64 0}
!4 = !{!"out", !5, i64 0}
!5 = !{!"Halide buffer"}"""


def chains(numbers: list[int], lanes: int = 8, element: str = "float", between: str = "") -> str:
    """A function that loads elements at `%at` and a number, one by one, with `between` before each but the first."""
    lines = [f"define void @f(ptr %base, <{lanes} x i32> %at, ptr %to) {{", "entry:"]
    for n, number in enumerate(numbers):
        vector = "poison"
        lines += [f"  %s{n} = add nsw <{lanes} x i32> %at, splat (i32 {number})"]
        lines += [between] if n and between else []
        for k in range(lanes):
            lines += [
                f"  %e{n}.{k} = extractelement <{lanes} x i32> %s{n}, i64 {k}",
                f"  %w{n}.{k} = sext i32 %e{n}.{k} to i64",
                f"  %p{n}.{k} = getelementptr inbounds {element}, ptr %base, i64 %w{n}.{k}",
                f"  %l{n}.{k} = load {element}, ptr %p{n}.{k}, align 4, !tbaa !1",
                f"  %v{n}.{k} = insertelement <{lanes} x {element}> {vector}, {element} %l{n}.{k}, i64 {k}",
            ]
            vector = f"%v{n}.{k}"
    stores = [f"  store <{lanes} x {element}> %v{n}.{lanes - 1}, ptr %to, align 4" for n in range(len(numbers))]
    return "\n".join([*lines, *stores, "  ret void", "}", MARKS])


def loads(text: str, features: set[str]) -> dict[str, int]:
    """How many loads of each type there are behind the pass, and how many gathers."""
    made = "\n".join(gathered(text.split("\n"), features))
    kinds = re.findall(r"= load ([^,]+), ptr", made) + re.findall(r"(gather)\.v\d+\w+\.v\d+p0\(<\d+ x ptr> ", made)
    return {kind: kinds.count(kind) for kind in kinds}


def test_numbers_side_by_side_are_rows_that_hold_nothing_else() -> None:
    for size in (4, 8):
        for bits in range(1 << 9):
            numbers = [3 * (bits % 5) + k for k in range(9) if bits >> k & 1]
            rows = [range(row.begin, row.begin + row.length) for row in rows_of(numbers, size)]
            held = {n for row in rows for n in row}
            alone = set(numbers) - held
            assert held <= set(numbers)
            assert all(len(row) * size <= 16 for row in rows)
            runs = {n for n in alone if n + 1 in held or n - 1 in held}
            assert not any(n + 1 in alone for n in alone)
            assert size == 4 or not runs


def test_a_run_is_loaded_at_each_lane() -> None:
    assert loads(chains([0, 1, 2, 3]), SLOW) == {"<4 x float>": 8}
    assert loads(chains([0, 1, 2, 3, 4, 5]), SLOW) == {"<4 x float>": 16}  # two that overlap
    assert loads(chains([0, 1, 2]), SLOW) == {"<2 x float>": 8, "float": 8}
    assert loads(chains([7, 90, 8]), SLOW) == {"<2 x float>": 8, "float": 8}
    assert loads(chains([0, 1], element="double"), SLOW) == {"<2 x double>": 8}
    assert loads(chains([0, 2]), SLOW) == {"float": 16}
    assert loads(chains([0, 1], 12), SLOW) == {"float": 24}


def test_fast_gathers_bring_short_runs() -> None:
    assert loads(chains([0, 1, 2, 3], 16), FAST) == {"<4 x float>": 16}
    assert loads(chains([0, 1, 2], 16), FAST) == {"gather": 3}
    assert loads(chains([0, 1], 8, "double"), FAST) == {"<2 x double>": 8}


def test_nothing_is_brought_before_it_may_be_written() -> None:
    for other, apart in (("3", False), ("1", True)):
        between = f"  store float 0.0, ptr %to, align 4, !tbaa !{other}"
        assert (loads(chains([0, 1], between=between), SLOW) == {"float": 16}) is apart
    assert loads(chains([0, 1], between="  call void @user(ptr %base)"), SLOW) == {"float": 16}


@pytest.mark.parametrize("c", [0, 2, -3])
def test_places_are_compared_as_sums(c: int) -> None:
    """Of sizes that are not known, the neighbor along a row is a product more, not a number that is added last."""
    text = chains([0, 0])
    made = [
        "  %r = mul nsw <8 x i32> %at, %at",
        f"  %q0 = add nsw <8 x i32> %at, splat (i32 {c})",
        "  %t0 = mul nsw <8 x i32> %q0, splat (i32 3)",
        "  %s0 = add nsw <8 x i32> %t0, %r",
        f"  %q1 = add nsw <8 x i32> %at, splat (i32 {c - 1})",
        "  %h1 = mul nsw <8 x i32> %q1, splat (i32 3)",
        "  %i1 = add nsw <8 x i32> %r, splat (i32 4)",
        "  %s1 = add nsw <8 x i32> %i1, %h1",
    ]
    text = re.sub(r"  %s0 = .*", "\n".join(made), re.sub(r"  %s1 = .*\n", "", text))
    assert loads(text, SLOW) == {"<2 x float>": 8}
    assert loads(text.replace("%q1 = add nsw", "%q1 = add"), SLOW) == {"gather": 2}  # which may wrap


def corners(channels: int, dtype: str) -> tuple[list[te.Tensor], te.Tensor]:
    """A color table between its entries, of eight corners."""
    image, table = te.placeholder((3, 37, 3), dtype, name="image"), te.placeholder((4, 4, 4, channels), dtype, name="t")

    def value(y: te.Expr, x: te.Expr, c: te.Expr) -> Any:
        places = [te.clip(image[y, x, d], 0.0, 1.0) * 3.0 for d in range(3)]
        low = [te.clip(te.cast(te.floor(p), "int32"), 0, 2) for p in places]
        total: Any = 0.0
        for up in itertools.product((0, 1), repeat=3):
            share: Any = 1.0
            for p, i, u in zip(places, low, up, strict=True):
                share = share * (p - i if u else 1.0 - (p - i))
            total = total + share * table[(*(i + u for i, u in zip(low, up, strict=True)), c)]
        return total

    return [image, table], te.compute((3, 37, channels), value, name="out")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_nothing_beyond_the_page_of_a_table_is_read(channels: int, dtype: str) -> None:
    page = mmap.PAGESIZE
    inputs, out = corners(channels, dtype)
    kernel = te.build(inputs, out)
    image = np.random.default_rng(channels).random((3, 37, 3)).astype(dtype)
    image[0, 0], image[0, 1] = 0, 1
    memory = mmap.mmap(-1, 3 * page)
    begin = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    for out_of_bounds in (0, 2 * page):
        assert protect(ctypes.c_void_p(begin + out_of_bounds), ctypes.c_size_t(page), 0) == 0
    try:
        count = 64 * channels
        for first in (page, 2 * page - count * np.dtype(dtype).itemsize):
            table = np.frombuffer(memory, dtype, count, first).reshape(4, 4, 4, channels)
            table[:] = np.arange(count).reshape(table.shape)
            expected = te.interpret(out, dict(zip(inputs, (image, table), strict=True)))
            np.testing.assert_allclose(kernel(image, table), expected, rtol=1e-5)
            del table
    finally:
        protect(ctypes.c_void_p(begin), ctypes.c_size_t(3 * page), 3)


def test_vectors_out_of_rows_stand_where_they_stood() -> None:
    """LLVM wants the numbers of values without names in their order; between these four there are sums."""
    a, p = te.placeholder((16,), name="a"), te.reduce_axis(4, "p")
    at = lambda x: te.clip(te.cast(te.floor(te.cast(x, "float32") * 0.5), "int32"), 0, 12)  # noqa: E731
    y = te.compute((32,), lambda x: te.sum(a[p + at(x)], axis=p), name="y")
    kernel = te.build([a], y, target="x86-64-v3")
    assert "gathers: 0" not in kernel.source("passes")
    assert kernel.source("asm")
