"""Vectors of elements at computed places: where they are gathers, and where chains of loads stay as they are."""

from __future__ import annotations

import ctypes
import mmap
import re

import numpy as np
import pytest

import tedsl as te
from tedsl.backend.assembly.gathers import gathered
from tedsl.backend.host.processors import features_of


def chain(lanes: int, *, between: str = "", base: str = "%base", used: str = "") -> str:
    """A function that loads `lanes` elements one by one, `between` before the last of them."""
    lines = [f"define void @f(ptr %base, ptr %other, <{lanes} x i32> %at, ptr %to) {{", "entry:"]
    vector = "poison"
    for k in range(lanes):
        last = k == lanes - 1
        lines += [
            f"  %e{k} = extractelement <{lanes} x i32> %at, i64 {k}",
            f"  %w{k} = sext i32 %e{k} to i64",
            f"  %p{k} = getelementptr inbounds float, ptr {base if last else '%base'}, i64 %w{k}",
            *([between] if last and between else []),
            f"  %l{k} = load float, ptr %p{k}, align 4, !tbaa !1",
            f"  %v{k} = insertelement <{lanes} x float> {vector}, float %l{k}, i64 {k}",
        ]
        vector = f"%v{k}"
    lines += [f"  store <{lanes} x float> {vector}, ptr %to, align 4", *([used] if used else []), "  ret void", "}"]
    return "\n".join(lines)


def made(text: str, *features: str) -> str:
    return "\n".join(gathered(text.split("\n"), set(features)))


def test_a_chain_of_loads_becomes_a_gather() -> None:
    text = made(chain(16))
    assert text.count("call <16 x float> @llvm.masked.gather.v16f32.v16p0") == 1
    assert "getelementptr float, ptr %base, <16 x i32> %at" in text
    assert "!tbaa !1" in text
    assert "extractelement" not in text
    assert " load " not in text


def test_chains_stay_where_gathers_are_microcode() -> None:
    zen = features_of("x86-64-linux-avx512_zen4")
    assert made(chain(16), *zen) == chain(16)
    assert "masked.gather" in made(chain(16), *(zen - {"avx512_zen4"}))


def test_no_kernel_for_such_a_processor_gathers() -> None:
    table, at = te.placeholder((50,), name="table"), te.placeholder((640,), "int32", name="at")
    y = te.compute((640,), lambda i: table[at[i]] * table[at[i] + 3], name="y")
    targets = "x86-64-linux-avx512_sapphirerapids", "x86-64-linux-avx512_zen4"
    texts = [te.build([table, at], y, target=t).source("asm") for t in targets]
    assert ["vgather" in text for text in texts] == [True, False]


def test_a_gather_that_llvm_declared_is_not_declared_again() -> None:
    known = "declare <8 x float> @llvm.masked.gather.v8f32.v8p0(<8 x ptr>, i32 immarg, <8 x i1>, <8 x float>) #7"
    text = made(f"{chain(8)}\n\n{known}")
    assert "call <8 x float> @llvm.masked.gather.v8f32.v8p0" in text
    assert text.count("declare ") == 1


def test_what_others_use_stays() -> None:
    text = made(chain(8, used="  store i64 %w3, ptr %other, align 4"))
    assert "masked.gather" in text
    assert "%w3 = sext i32 %e3 to i64" in text
    assert "%e3 = extractelement" in text
    assert "%e2" not in text
    assert "%p3" not in text


def test_places_that_are_not_negative_are_widened_as_they_were() -> None:
    some = re.sub(r"%w(\d*[13579]) = zext", r"%w\1 = zext nneg", chain(16).replace("sext", "zext"))
    text = made(some)
    assert "zext <16 x i32> %at to <16 x i64>" in text
    assert "getelementptr float, ptr %base, <16 x i64> %te.wide.0" in text
    assert "<16 x i32> %at\n" in made(chain(16).replace("sext", "zext nneg"))


@pytest.mark.parametrize(
    "text",
    [
        chain(16, between="  store float 0.0, ptr %to, align 4"),
        chain(16, between="  call void @user(ptr %base)"),
        chain(16, between="  tail call void @llvm.masked.store.v4f32.p0(<4 x float> %x, ptr %to, i32 4, <4 x i1> %m)"),
        chain(16, between="next:"),
        chain(16, base="%other"),
        chain(4),
        chain(16).replace("%at, i64 7", "%at, i64 6"),
        chain(16).replace("%w7 = sext", "%w7 = zext"),
        chain(8).replace("<8 x i32> %at", "<16 x i32> %at"),
    ],
)
def test_other_chains_stay(text: str) -> None:
    assert made(text) == text


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "int16"])
def test_kernels_gather_what_the_reference_reads(dtype: str) -> None:
    table, at = te.placeholder((50,), dtype, name="table"), te.placeholder((77,), "int32", name="at")
    y = te.compute((77,), lambda i: table[at[i]] + table.at(at[i] + 3, mode="clamp"), name="y")
    kernel = te.build([table, at], y)
    rng = np.random.default_rng(3)
    values, places = (100 * rng.standard_normal(50)).astype(dtype), rng.integers(0, 50, 77).astype(np.int32)
    np.testing.assert_array_equal(kernel(values, places), te.interpret(y, {table: values, at: places}))
    with pytest.raises(IndexError, match="50"):
        kernel(values, places + 1000)


@pytest.mark.parametrize(("element", "size"), [("i16", 2), ("i8", 1)])
def test_narrow_elements_are_shifted_out_of_words_that_are_gathered(element: str, size: int) -> None:
    text = chain(16).replace("float", element).replace("align 4, !tbaa", f"align {size}, !tbaa")
    words = "\n".join(gathered(text.split("\n"), {"avx2", "avx512", "avx512_skylake", "avx512_sapphirerapids"}))
    assert words.count("call <16 x i32> @llvm.masked.gather.v16i32.v16p0(<16 x ptr>") == 1
    assert "and i64 %te.word.base.0, -4" in words
    assert f"trunc <16 x i32> %te.word.shifted.0 to <16 x {element}>" in words
    assert "!tbaa" not in words  # of the elements: a word holds others
    assert "extractelement" not in words
    assert "\n".join(gathered(text.split("\n"), {"avx2", "avx512", "avx512_skylake"})) == text  # slow ones


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "uint16", "float16"])
@pytest.mark.parametrize("before", [0, 1, 2, 3])
def test_no_word_beyond_the_page_of_a_narrow_table_is_read(dtype: str, before: int) -> None:
    """Tables that begin and end anywhere in a word, the last of them where memory may not be read."""
    page, n = mmap.PAGESIZE, 41
    memory = mmap.mmap(-1, 3 * page)
    begin = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    for out_of_bounds in (0, 2 * page):
        assert protect(ctypes.c_void_p(begin + out_of_bounds), ctypes.c_size_t(page), 0) == 0
    try:
        table, at = te.placeholder((n,), dtype, name="table"), te.placeholder((77,), "int32", name="at")
        kernel = te.build([table, at], te.compute((77,), lambda i: table[at[i]], name="y"))
        places = np.random.default_rng(before).integers(0, n, 77).astype(np.int32)
        places[:2] = 0, n - 1
        size = np.dtype(dtype).itemsize
        for first in (page + size * before, 2 * page - size * (n + before)):
            values = np.frombuffer(memory, dtype, n, first)
            values[:] = np.arange(n) * (3 if size == 1 else 701 if dtype != "float16" else 0.37)
            np.testing.assert_array_equal(kernel(values, places), values[places])
    finally:
        protect(ctypes.c_void_p(begin), ctypes.c_size_t(3 * page), 3)


@pytest.mark.parametrize("dtype", ["int16", "float16", "float32"])
def test_elements_that_are_not_aligned_in_memory(dtype: str) -> None:
    """Also after a call with arrays that are, which is prepared for those of these shapes and strides."""
    table, at = te.placeholder((41,), dtype, name="table"), te.placeholder((77,), "int32", name="at")
    kernel = te.build([table, at], te.compute((77,), lambda i: table[at[i]], name="y"))
    memory, results = np.zeros(200, np.uint8), np.zeros(400, np.uint8)
    places = np.random.default_rng(0).integers(0, 41, 77).astype(np.int32)
    for offset in (0, 1, 2, 3, 1):
        values = np.frombuffer(memory.data, dtype, 41, offset)
        values[:] = np.arange(41) * 70
        np.testing.assert_array_equal(kernel(values, places), values[places])
        into = np.frombuffer(results.data, dtype, 77, offset)
        np.testing.assert_array_equal(kernel(values, places, out=into), values[places])


def test_a_processor_that_has_fast_ones_takes_them() -> None:
    table, at = te.placeholder((50,), name="table"), te.placeholder((77,), "int32", name="at")
    y = te.compute((77,), lambda i: table[at[i]] + table.at(at[i] + 3, mode="clamp"), name="y")
    assert re.search(r"\bvgatherdps\b", te.build([table, at], y, target="x86-64-v4-tune_znver4").source("asm"))
    assert "vgatherdps" not in te.build([table, at], y, target="x86-64-v4").source("asm")  # of many makes: slow ones


def two_chains(other: str) -> str:
    """The lanes of a vector, and those of `other`."""
    first = chain(8).replace("  ret void\n}", "")
    body = chain(8).split("entry:\n")[1]
    for letter in "ewplv":
        body = re.sub(rf"%{letter}(\d)", rf"%{letter}{letter}\1", body)
    return f"{first}{other}\n{body.replace('<8 x i32> %at', '<8 x i32> %there')}"


def test_lanes_are_shared_where_gathers_are_slow() -> None:
    one = "  %o = insertelement <8 x i32> poison, i32 %n, i64 0"
    splat = "  %s = shufflevector <8 x i32> %o, <8 x i32> poison, <8 x i32> zeroinitializer"
    for added in (
        f"{one}\n{splat}\n  %there = add nsw <8 x i32> %at, %s",
        "  %there = add nsw <8 x i32> %at, splat (i32 -7)",
    ):
        text = "\n".join(gathered(two_chains(added).split("\n"), {"avx2"}))
        assert text.count("extractelement <8 x i32> %at") == 8
        assert text.count("load float") == 16
        assert "masked.gather" not in text
    for kept in (added.replace("nsw ", ""), added.replace("%at", "%to")):
        assert "\n".join(gathered(two_chains(kept).split("\n"), {"avx2"})).count("call ") == 2


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_corners_of_cells(dtype: str) -> None:
    grid, at = te.placeholder((3, 9, 7), dtype, name="grid"), te.placeholder((24, 40), "float32", name="at")

    def corners(y: te.Axis, x: te.Axis) -> te.Expr:
        z = te.clip(te.cast(at[y, x] * 7.0, "int32"), 0, 7)
        return sum(grid[y // 8, z + d, x // 8 + e] * (d + 3 * e + 1) for d in (0, 1) for e in (0, 1))

    out = te.compute((24, 40), corners, name="out")
    rng = np.random.default_rng(3)
    values, places = (100 * rng.standard_normal((3, 9, 7))).astype(dtype), rng.random((24, 40), dtype="float32")
    np.testing.assert_array_equal(
        te.build([grid, at], out)(values, places), te.interpret(out, {grid: values, at: places})
    )
