"""Large results that are written past the cache: which, where their memory allows it, and that all is there."""

from __future__ import annotations

import llvmlite.binding as llvm
import numpy as np
import pytest

import tedsl as te
from tedsl.backend.assembly.nontemporal import streamed, tags_of
from tedsl.backend.compiling import variant_source
from tedsl.backend.host.processors import features_of
from tests.levels import LEVELS_HERE

AVX512 = features_of("x86-64-linux-avx512_skylake")
TEXT = """
define void @f(<16 x float> %a, ptr %to) #0 {
entry:
  store <16 x float> %a, ptr %to, align 4, !tbaa !3
  br label %loop

loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %at = getelementptr float, ptr %to, i64 %i
  store <16 x float> %a, ptr %at, align 4, !tbaa !3
  %next = add nuw nsw i64 %i, 16
  %end = icmp eq i64 %next, 1024
  br i1 %end, label %exit, label %loop

exit:
  ret void
}
!0 = !{!"Halide buffer"}
!2 = !{!"result", !0, i64 0}
!3 = !{!2, !2, i64 0}
!4 = !{!"other", !0, i64 0}
!5 = !{!4, !4, i64 0}"""


def past(names: list[str]) -> str:
    lines = TEXT.split("\n")
    return "\n".join(streamed(lines, tags_of(lines, names), AVX512))


def test_stores_of_a_loop_go_past_the_cache() -> None:
    text = past(["result"])
    assert text.count("!nontemporal") == 1
    assert "%i = phi i64 [ 0, %entry ], [ %next, %te.stored.0 ]" in text
    assert text.index("sfence") < text.index("ret void")
    llvm.parse_assembly(text)


@pytest.mark.parametrize("names", [[], ["other"], ["resul"]])  # codespell:ignore resul
def test_other_buffers_stay_in_the_cache(names: list[str]) -> None:
    assert past(names) == TEXT


def test_vectors_of_half_a_line_stay() -> None:
    text = TEXT.replace("16 x float", "8 x float")
    lines = text.split("\n")
    assert streamed(lines, tags_of(lines, ["result"]), AVX512) == lines


def test_a_processor_without_such_stores_keeps_its_own() -> None:
    lines = TEXT.split("\n")
    assert streamed(lines, tags_of(lines, ["result"]), features_of("arm-64-linux")) == lines


@pytest.mark.parametrize("target", LEVELS_HERE)
def test_large_results_are_written_whole_wherever_they_lie(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(variant_source, "least_streamed", lambda target: 0)
    x = te.placeholder((37, 211), "float32", name="streamed_x")
    kern = te.build([x], [x * 2.0, te.exp(x)], name="streamed", target=target)
    values = np.random.default_rng(0).standard_normal((37, 211)).astype(np.float32)
    wanted = [values * np.float32(2), np.asarray(te.interpret(te.exp(x), {x: values}))]
    room = np.full(2 * 37 * 256 + 64, 7, np.float32)
    for shift, width in ((0, 211), (1, 211), (3, 224), (0, 256)):
        begin = (-room.ctypes.data % 64) // 4 + shift
        out = [room[begin + k * 37 * 256 :][: 37 * width].reshape(37, width)[:, :211] for k in range(2)]
        room[:] = 7
        kern(values, out=out)
        for got, expected in zip(out, wanted, strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-6)
        assert (room == 7).sum() == room.size - 2 * values.size


def test_a_kernel_of_large_results_has_such_stores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(variant_source, "least_streamed", lambda target: 0)
    x = te.placeholder((37, 211), "float32", name="streamed_x")
    assert "vmovntps" in te.build([x], [x * 2.0, te.exp(x)], name="streamed", target="x86-64-v4").source("asm")


def test_small_results_and_those_read_again_stay_in_the_cache() -> None:
    x = te.placeholder((64, 1024), "float32", name="x")
    y = te.compute(x.shape, lambda i, j: x[i, j] * 2.0, name="y")
    assert "vmovntps" not in te.build([x], y, target="x86-64-v4").source("asm")


def test_results_that_the_third_cache_of_a_few_cores_holds_stay_there() -> None:
    """AMD's: 16 MB by the figures of a named processor, of which 6 MB stay and 12 go past it."""
    for name, goes in (("x86-64-linux-avx512_zen4", (False, True)), ("x86-64-v4", (True, True))):
        for rows, is_past in zip((1536, 3072), goes, strict=True):
            x = te.placeholder((rows, 1024), "float32", name="x")
            text = te.build([x], x * 2.0, name="large", target=name).source("asm")
            assert ("vmovntps" in text) == is_past, (name, rows)


def test_a_sum_that_is_kept_in_its_result_is_not_written_past_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(variant_source, "least_streamed", lambda target: 0)
    x = te.placeholder((65, 1040), "float32", name="summed_x")
    assert "vmovntps" not in te.build([x], x.sum(axis=0), name="summed", target="x86-64-v4").source("asm")
