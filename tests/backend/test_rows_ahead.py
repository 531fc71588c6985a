"""Rows that are fetched before they are needed, extremes in three instructions, ends of exponentials."""

from __future__ import annotations

import halide as hl
import numpy as np
import pytest

import tedsl as te
from tedsl.backend.ahead import fetched_ahead
from tedsl.backend.extremes import extremes

AVX512 = hl.get_host_target().has_feature(hl.TargetFeature.AVX512_Skylake)
needs_avx512 = pytest.mark.skipif(not AVX512, reason="this machine has no AVX-512")


def rows(*, stride: str = "%stride", times: int = 64, change: str = "") -> str:
    """A function that goes through each row of an array twice."""
    loops = "".join(
        f"""
{name}:
  %{name}.i = phi i64 [ 0, %{before} ], [ %{name}.next, %{name} ]
  %{name}.at = getelementptr float, ptr %row, i64 %{name}.i
  %{name}.a = load <16 x float>, ptr %{name}.at, align 4
{work}  %{name}.next = add nuw nsw i64 %{name}.i, 1
  %{name}.end = icmp eq i64 %{name}.next, {times}
  br i1 %{name}.end, label %{after}, label %{name}
"""
        for name, before, after, work in (
            ("first", "rows", "second", ""),
            ("second", "first", "end", "  %b = fadd <16 x float> %second.a, %second.a\n"),
        )
    )
    return f"""
define void @f(ptr %x, i64 %stride, i64 %begin) {{
entry:
  br label %rows

rows:
  %r = phi i64 [ 0, %entry ], [ %r.next, %end ]
  %n = add nuw nsw i64 %r, %begin
{change}  %place = mul nsw i64 %n, {stride}
  %row = getelementptr float, ptr %x, i64 %place
  br label %first
{loops}
end:
  %r.next = add nuw nsw i64 %r, 1
  %done = icmp eq i64 %r.next, 256
  br i1 %done, label %exit, label %rows

exit:
  ret void
}}"""


def ahead(text: str) -> str:
    return "\n".join(fetched_ahead(text.split("\n")))


def test_the_loop_with_more_work_fetches_the_next_row() -> None:
    text = ahead(rows())
    assert text.count("call void @llvm.prefetch") == 1
    assert "getelementptr i32, ptr %second.at, i64 %stride" in text
    assert text.index("llvm.prefetch") > text.index("second:")


def test_rows_of_a_known_length() -> None:
    assert "getelementptr i8, ptr %second.at, i64 4096" in ahead(rows(stride="1024"))


@pytest.mark.parametrize("times", [4, 100_000])
def test_short_and_long_rows_are_left_to_the_processor(times: int) -> None:
    assert ahead(rows(times=times)) == rows(times=times)


def test_rows_at_places_that_are_data_are_not_fetched() -> None:
    text = rows(stride="%n")
    assert ahead(text) == text


@needs_avx512
def test_softmax_fetches_its_rows_and_scales() -> None:
    x = te.placeholder((64, 1024), "float32", name="x")
    e = te.exp(x - x.max(axis=1, keepdims=True))
    text = te.build([x], e / e.sum(axis=1, keepdims=True)).source("asm")
    assert text.count("prefetcht0") == 1
    assert "vscalefps" in text
    assert "vmaxps" in text


# --- extremes ---------------------------------------------------------------------------------------------------------


def choice(order: str, first: str, second: str, nan: str = "%a") -> str:
    return f"""
define <16 x float> @f(<16 x float> %a, <16 x float> %b) #0 {{
entry:
  %less = fcmp {order} <16 x float> {first}, {second}
  %nan = fcmp uno <16 x float> {nan}, zeroinitializer
  %which = or <16 x i1> %less, %nan
  %r = select <16 x i1> %which, <16 x float> %a, <16 x float> %b
  ret <16 x float> %r
}}
attributes #0 = {{ "target-features"="+avx512f" }}"""


def changed(text: str) -> str:
    return "\n".join(extremes(text.split("\n")))


@pytest.mark.parametrize(
    ("order", "first", "second", "which"),
    [("ogt", "%a", "%b", "max"), ("olt", "%b", "%a", "max"), ("olt", "%a", "%b", "min"), ("ogt", "%b", "%a", "min")],
)
def test_extremes_are_those_of_the_processor(order: str, first: str, second: str, which: str) -> None:
    text = changed(choice(order, first, second))
    assert f"@llvm.x86.avx512.{which}.ps.512(<16 x float> %a, <16 x float> %b, i32 4)" in text
    assert "select <16 x i1> %nan, <16 x float> %a," in text


@pytest.mark.parametrize(
    "text", [choice("ogt", "%a", "%a"), choice("ogt", "%a", "%b", "%b"), choice("oge", "%a", "%b")]
)
def test_other_choices_stay(text: str) -> None:
    assert changed(text) == text


def test_extremes_of_rows_and_columns_keep_nan_and_infinity() -> None:
    rng = np.random.default_rng(0)
    values = rng.standard_normal((40, 256)).astype(np.float32)
    values[3, 7], values[5, 200], values[6], values[8, 0] = np.nan, np.inf, -np.inf, -np.nan
    x = te.placeholder(values.shape, "float32", name="x")
    for name in ("max", "min"):
        along, down = (getattr(x, name)(axis=axis) for axis in (1, 0))
        kernel = te.build([x], [along, down])
        for got, axis in zip(kernel(values), (1, 0), strict=True):
            np.testing.assert_array_equal(got, getattr(values, name)(axis=axis))


# --- exponentials -----------------------------------------------------------------------------------------------------


@needs_avx512
def test_the_last_steps_are_found_in_every_exponential() -> None:
    x = te.placeholder((4096,), "float32", name="x")
    for function in (te.exp, te.exp2, te.sigmoid):
        text = te.build([x], function(x)).source("asm")
        assert "vscalefps" in text, function
        assert "vpslld" not in text, function


def test_results_below_the_normal_numbers_round_once() -> None:
    values = np.linspace(-104, -86, 5000, dtype=np.float32)
    x = te.placeholder(values.shape, "float32", name="x")
    exact = np.exp(values.astype(np.float64))
    got = np.asarray(te.build([x], te.exp(x))(values)).astype(np.float64)
    unit = np.spacing(np.maximum(exact, np.finfo(np.float32).smallest_subnormal).astype(np.float32)).astype(np.float64)
    assert (np.abs(got - exact) <= unit).all()
