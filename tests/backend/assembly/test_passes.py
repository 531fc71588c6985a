"""The passes over LLVM's assembly: what each makes of what, how often it fires, and what happens where it cannot."""

from __future__ import annotations

import re
from typing import Any

import pytest

import tedsl as te
from tedsl.backend.assembly.passes import PASSES, AssemblyError, PassContext, rewritten
from tests.processes import ROOT

V4 = PassContext(frozenset({"avx", "avx2", "fma", "avx512", "avx512_skylake"}))
# For each needed pass: lines as Halide 21 writes them, and what becomes of them.
NEEDED = {
    "alignment": (
        ["  %1 = load <8 x float>, ptr %p, align 32, !tbaa !3", "  store <4 x i16> %v, ptr %q, align 8",
         "  %2 = tail call <8 x double> @llvm.masked.load.v8f64.p0(ptr %p, i32 64, <8 x i1> %m, <8 x double> %z)",
         "  call void @llvm.memset.p0.i64(ptr align 64 %p, i8 0, i64 %n, i1 false)",
         "  %3 = load float, ptr %p, align 4"],
        ["  %1 = load <8 x float>, ptr %p, align 4, !tbaa !3", "  store <4 x i16> %v, ptr %q, align 2",
         "  %2 = tail call <8 x double> @llvm.masked.load.v8f64.p0(ptr %p, i32 8, <8 x i1> %m, <8 x double> %z)",
         "  call void @llvm.memset.p0.i64(ptr align 1 %p, i8 0, i64 %n, i1 false)",
         "  %3 = load float, ptr %p, align 4"],
    ),
    "masked stores": (
        ["  tail call void @llvm.masked.store.v2i16.p0(<2 x i16> %v, ptr %a, i32 2, <2 x i1> <i1 false, i1 true>)"],
        ["  %te.element.0 = extractelement <2 x i16> %v, i64 1",
         "  %te.address.0 = getelementptr i16, ptr %a, i64 1", "  store i16 %te.element.0, ptr %te.address.0, align 2"],
    ),
    "fences": (
        ["define void @f() {", "  %a = and <4 x i32> %x, %m", "  %b = or <4 x i32> %a, %y",
         "  %c = select <4 x i1> %t, <4 x i32> %x, <4 x i32> %b", "}"],
        ["define void @f() {", "  %a = and <4 x i32> %x, %m", "  %b = or <4 x i32> %a, %y",
         "  %te.bits.3 = bitcast <4 x i32> %b to <4 x float>",
         "  %te.kept.3 = call <4 x float> @llvm.arithmetic.fence.v4f32(<4 x float> %te.bits.3)",
         "  %te.apart.3 = bitcast <4 x float> %te.kept.3 to <4 x i32>",
         "  %c = select <4 x i1> %t, <4 x i32> %x, <4 x i32> %te.apart.3", "}",
         "declare <4 x float> @llvm.arithmetic.fence.v4f32(<4 x float>)"],
    ),
    "atomics": (
        ["casloop.start:", "  %held = phi i32 [ %0, %entry ], [ %found, %casloop.start ]",
         "  %1 = load float, ptr %p, align 4", "  %2 = fadd float %1, %x", "  %3 = bitcast float %2 to i32",
         "  %4 = cmpxchg weak ptr %p, i32 %held, i32 %3 monotonic monotonic, align 4"],
        ["casloop.start:", "  %held = phi i32 [ %0, %entry ], [ %found, %casloop.start ]",
         "  %1 = bitcast i32 %held to float", "  %2 = fadd float %1, %x", "  %3 = bitcast float %2 to i32",
         "  %4 = cmpxchg weak ptr %p, i32 %held, i32 %3 monotonic monotonic, align 4"],
    ),
}  # fmt: skip
# Lines in words that a pass does not know, as another LLVM might have them.
OTHER_WORDS = {
    "alignment": [
        "  %1 = load <8 x float>, ptr addrspace(0) %p, volatile, align 32",
        "  %2 = call <8 x double> @llvm.masked.load.v8f64.p0(ptr align 64 %p, <8 x i1> %m, <8 x double> %z)",
    ],
    "masked stores": [
        "  call void @llvm.masked.store.v2i16.p0(<2 x i16> %v, ptr align 2 %a, <2 x i1> <i1 false, i1 true>)",
    ],
    "atomics": ["  %4 = cmpxchg ptr %p, i32 %held, i32 %3 seq_cst seq_cst, align 4"],
}


@pytest.mark.parametrize("name", NEEDED)
def test_a_needed_pass(name: str) -> None:
    (each,) = [p for p in PASSES if p.name == name]
    before, after = NEEDED[name]
    assert each.kind == "needed"
    assert each.rewrite(before, V4) == after
    assert each.left(after) is None
    assert each.left(before) is not None  # it would be noticed if the pass did nothing


@pytest.mark.parametrize(("name", "line"), [(name, line) for name, lines in OTHER_WORDS.items() for line in lines])
def test_other_words_are_refused(name: str, line: str) -> None:
    with pytest.raises(AssemblyError, match=rf"pass '{name}': a line of LLVM's assembly has a form that is not known"):
        rewritten(line, V4)


def test_needed_passes_come_first_and_tell_what_is_left() -> None:
    kinds = [each.kind for each in PASSES]
    assert kinds == sorted(kinds, reverse=True)
    assert {each.name for each in PASSES if each.kind == "needed"} == set(NEEDED)


def _softmax() -> Any:
    x = te.placeholder((64, 1024), name="x")
    e = te.exp(x - x.max(1, keepdims=True))
    return [x], e / e.sum(1, keepdims=True)


def _product() -> Any:
    a, b = te.placeholder((300, 400), name="a"), te.placeholder((400, 200), name="b")
    return [a, b], te.tanh(a @ b)


def _lookup() -> Any:
    table, ids = te.placeholder((1000, 7), name="table"), te.placeholder((4096,), "int32", name="ids")
    return [table, ids], te.compute((4096,), lambda i: table[te.clip(ids[i], 0, 999), 3])


def _histograms() -> Any:
    x = te.placeholder((4096, 64), "int32", name="x")
    i, j = te.reduce_axis(4096), te.reduce_axis(64)
    return [x], te.scatter((16, 64), [i, j], (te.clip(x[i, j], 0, 15), j), 1.0)


def _joined() -> Any:
    x, y = te.placeholder((1000,), name="x"), te.placeholder((2000,), name="y")
    joined = te.concatenate([x, y])
    in_one_loop = te.Schedule(joined)
    in_one_loop[joined].vectorize(joined.op.axes[0], 8)
    return [x, y], joined, in_one_loop


def _large() -> Any:
    x = te.placeholder((1 << 24,), name="x")
    return [x], x * 2.0


def _short_rows() -> Any:
    x = te.placeholder((4096, 8), name="x")
    return [x], x.max(1)


def _eliminated() -> Any:
    low, b = te.placeholder((40, 40), "float64", name="low"), te.placeholder((40,), "float64", name="b")
    return [low, b], te.scan(
        (40,), lambda x, i: (b[i] - te.sum(lambda k: low[i, k] * x[k], where=lambda k: k < i)) / low[i, i], axis=0
    )


FIRES = {
    ("partial sums", "x86-64-v4"): _eliminated, ("partial sums", "x86-64-v3"): _eliminated,
    ("lane choices", "x86-64-v3"): _short_rows,
    ("exponentials", "x86-64-v4"): _softmax, ("extremes", "x86-64-v4"): _softmax,
    ("reciprocals", "x86-64-v4"): _softmax, ("extremes", "x86-64-v3"): _softmax, ("reciprocals", "x86-64-v3"): _softmax,
    ("fused multiply-add", "x86-64-v4"): _product, ("fused multiply-add", "x86-64-v3"): _product,
    ("fused multiply-add", "arm-64-linux"): _product, ("fences", "x86-64-v4"): _product,
    ("alignment", "x86-64-v3"): _product, ("gathers", "x86-64-v3"): _lookup, ("gathers", "x86-64-v4"): _lookup,
    ("scatters", "x86-64-v4"): _histograms,
    ("clamped loads", "x86-64-v3"): _joined, ("clamped loads", "x86-64-v4"): _joined,
    ("stores past the cache", "x86-64-v4"): _large,
}  # fmt: skip


@pytest.mark.parametrize(("name", "target"), FIRES)
def test_passes_fire_on_what_halide_makes(name: str, target: str) -> None:
    """For named processors, so that it is the same on every machine: a new Halide or llvmlite shows here."""
    inputs, output, *schedule = FIRES[name, target]()
    said = te.build(inputs, output, *schedule, target=target).source("passes")
    counts = dict(line.rpartition(": ")[::2] for line in said.splitlines())
    assert int(counts[name].split()[0]) > 0, said


def test_names_of_new_lines_belong_to_one_module() -> None:
    """Two passes gave a pointer and a number of one function the same name: there was no kernel."""
    homes: dict[str, set[str]] = {}
    for module in (ROOT / "tedsl" / "backend" / "assembly").glob("*.py"):
        for name in re.findall(r"%te\.(\w+)\.\{", module.read_text()):
            homes.setdefault(name, set()).add(module.name)
    assert len(homes) > 20
    assert {name: modules for name, modules in homes.items() if len(modules) > 1} == {}
