"""Vectors of elements whose places are known beside one of them: loads and a shuffle in place of single loads."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tedsl as te
from tedsl.backend.assembly.gathers import gathered

LEFT = [2, 2, 2, 3, 4, 5, 6, 7]  # held at an end
KINDS = ["i8", "i16", "i32", "float"]


def chain(distances: list[int], kind: str, flags: str = "nsw ") -> str:
    """A function that loads elements one by one, at distances from one place."""
    n = len(distances)
    numbers = ", ".join(f"i32 {d}" for d in distances)
    lines = [
        "define void @f(ptr %base, i32 %place, ptr %to) {",
        "entry:",
        f"  %one = insertelement <{n} x i32> poison, i32 %place, i64 0",
        f"  %all = shufflevector <{n} x i32> %one, <{n} x i32> poison, <{n} x i32> zeroinitializer",
        f"  %at = add {flags}<{n} x i32> %all, <{numbers}>",
    ]
    vector = "poison"
    for k in range(n):
        lines += [
            f"  %e{k} = extractelement <{n} x i32> %at, i64 {k}",
            f"  %w{k} = sext i32 %e{k} to i64",
            f"  %p{k} = getelementptr inbounds {kind}, ptr %base, i64 %w{k}",
            f"  %l{k} = load {kind}, ptr %p{k}, align 1, !tbaa !1",
            f"  %v{k} = insertelement <{n} x {kind}> {vector}, {kind} %l{k}, i64 {k}",
        ]
        vector = f"%v{k}"
    return "\n".join([*lines, f"  store <{n} x {kind}> {vector}, ptr %to, align 1", "  ret void", "}"])


def made(text: str) -> str:
    return "\n".join(gathered(text.split("\n"), {"avx2"}))


@pytest.mark.parametrize("kind", KINDS)
def test_neighbors_are_loaded_at_once(kind: str) -> None:
    text = made(chain(LEFT, kind))
    assert text.count(" = load ") == 2
    assert f"load <4 x {kind}>, ptr %te.near.0.first.at, align 1, !tbaa !1" in text
    assert f"getelementptr {kind}, ptr %te.near.0.base, i64 4" in text  # the last four: none behind the last one
    assert "<8 x i32> <i32 0, i32 0, i32 0, i32 1, i32 2, i32 3, i32 6, i32 7>" in text
    assert "extractelement" not in text


@pytest.mark.parametrize("distances", [[0, 2, 4, 6, 8, 10, 12, 14], [0, 0, 0, 0, 0, 0, 0, 9]])
def test_elements_that_nobody_reads_are_not_loaded(distances: list[int]) -> None:
    assert made(chain(distances, "i16")).count(" = load i16") == 8


def test_sums_that_may_wrap_stay() -> None:
    assert made(chain(LEFT, "i16", flags="")).count(" = load i16") == 8


@pytest.mark.share(7)
@pytest.mark.parametrize("target", ["host", "x86-64-v3"])
@pytest.mark.parametrize("mode", ["clamp", "reflect", "wrap", "zero"])
@pytest.mark.parametrize("dtype", ["uint8", "int16", "float32"])
@pytest.mark.parametrize("width", [64, 75])
def test_borders_of_windows(width: int, dtype: str, mode: str, target: str) -> None:
    image = te.placeholder((9, width), dtype, name="image")

    def window(y: te.Axis, x: te.Axis) -> te.Expr:
        taps = [te.cast(image.at(y, x + d, mode=mode), "int32") * (d + 7) for d in range(-6, 7)]
        return sum(taps[1:], taps[0])

    out = te.compute(image.shape, window, name="out")
    values = np.random.default_rng(1).integers(0, 100, (9, width)).astype(dtype)
    np.testing.assert_array_equal(te.build(image, out, target=target)(values), te.interpret(out, {image: values}))


def test_lanes_that_neighbors_would_share_are_taken_out_for_the_others() -> None:
    """A second vector, a row further, is looked up at the lanes of the first, which are loaded as neighbors."""
    first = chain(LEFT, "float").split("\n")
    rows = [
        "  %two = insertelement <8 x i32> poison, i32 %row, i64 0",
        "  %rows = shufflevector <8 x i32> %two, <8 x i32> poison, <8 x i32> zeroinitializer",
        "  %below = add nsw <8 x i32> %at, %rows",
    ]
    vector = "poison"
    for k in range(8):
        rows += [
            f"  %f{k} = extractelement <8 x i32> %below, i64 {k}",
            f"  %x{k} = sext i32 %f{k} to i64",
            f"  %q{k} = getelementptr inbounds float, ptr %base, i64 %x{k}",
            f"  %m{k} = load float, ptr %q{k}, align 1, !tbaa !1",
            f"  %u{k} = insertelement <8 x float> {vector}, float %m{k}, i64 {k}",
        ]
        vector = f"%u{k}"
    text = made("\n".join([*first[:-3], *rows, *first[-3:]]).replace("i32 %place", "i32 %place, i32 %row", 1))
    names = re.findall(r'%(?:[\w.]+|"[^"]*")', text)
    arguments = {"%base", "%place", "%row", "%to"}
    assert not {n for n in names if f"{n} =" not in text} - arguments
