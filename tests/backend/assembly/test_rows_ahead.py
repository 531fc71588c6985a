"""Rows that are fetched before they are needed, extremes in three instructions, ends of exponentials."""

from __future__ import annotations

import re

import llvmlite.binding as llvm
import numpy as np
import pytest

import tedsl as te
from tedsl.backend.assembly.min_max import extremes
from tedsl.backend.assembly.prefetch import fetched_ahead
from tedsl.backend.host.processors import features_of
from tests.levels import LEVELS_HERE

AVX512 = features_of("x86-64-linux-avx512_skylake")


def rows(*, stride: str = "%stride", times: int = 64) -> str:
    """A function that goes through each row of an array twice, and writes one of another."""
    loops = "".join(
        f"""
{name}:
  %{name}.i = phi i64 [ 0, %{before} ], [ %{name}.next, %{name} ]
  %{name}.place = shl nuw nsw i64 %{name}.i, 4
  %{name}.at = getelementptr float, ptr %row, i64 %{name}.place
  %{name}.a = load <16 x float>, ptr %{name}.at, align 4
{work}  %{name}.next = add nuw nsw i64 %{name}.i, 1
  %{name}.end = icmp eq i64 %{name}.next, {times}
  br i1 %{name}.end, label %{after}, label %{name}
"""
        for name, before, after, work in (
            ("first", "rows", "second", "  %b = fdiv <16 x float> %first.a, %divisor\n"),
            ("second", "first", "third", "".join(f"  %c{k} = fdiv <16 x float> %b, %divisor\n" for k in range(7))),
            ("third", "second", "end", "  %to = getelementptr float, ptr %goal, i64 %third.place\n"
             "  store <16 x float> %third.a, ptr %to, align 4\n"),
        )
    )  # fmt: skip
    return f"""
define void @f(ptr %x, ptr %y, i64 %stride, i64 %begin, <16 x float> %divisor) {{
entry:
  br label %rows

rows:
  %r = phi i64 [ 0, %entry ], [ %r.next, %end ]
  %n = add nuw nsw i64 %r, %begin
  %place = mul nsw i64 %n, {stride}
  %row = getelementptr float, ptr %x, i64 %place
  %goal = getelementptr float, ptr %y, i64 %place
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


def test_the_loops_with_most_work_fetch_the_next_row() -> None:
    text = ahead(rows())
    assert text.count("call void @llvm.prefetch") == 2
    head, second, third = (text.index(f"\n{label}:") for label in ("rows", "second", "third"))
    read, written = text.index("i32 0, i32 3, i32 1)"), text.index("i32 1, i32 3, i32 1)")
    assert second < read < third
    assert second < written < third
    begin = text[head : text.index("\nfirst:")]
    assert "= add i64 %r, 1" in begin  # the next row's number, its place, and where it begins
    assert re.search(r"getelementptr float, ptr %x, i64 %te\.next\.0\.\d", begin)
    assert re.search(r"getelementptr float, ptr %y, i64 %te\.next\.1\.\d", begin)
    assert "mul i64 %second.i, 64" in text


def test_what_is_fetched_is_valid_assembly() -> None:
    llvm.parse_assembly(ahead(rows()))


@pytest.mark.parametrize("times", [4, 100_000])
def test_short_and_long_rows_are_left_to_the_processor(times: int) -> None:
    assert ahead(rows(times=times)) == rows(times=times)


def test_rows_at_places_that_do_not_follow_from_their_number_are_not_fetched() -> None:
    text = rows().replace("%place = mul nsw i64 %n, %stride", "%place = load i64, ptr %x, align 8")
    assert ahead(text) == text


def test_loops_that_do_not_count_their_steps_ask_for_nothing() -> None:
    text = ahead(rows().replace("add nuw nsw i64 %second.i, 1", "add nuw nsw i64 %second.i, 2"))
    third = text.index("\nthird:")
    assert "mul i64 %second.i" not in text
    assert text.index("llvm.prefetch", text.index("\nfirst:")) < third


def test_softmax_fetches_its_rows_and_scales() -> None:
    x = te.placeholder((256, 1024), "float32", name="x")
    e = te.exp(x - x.max(axis=1, keepdims=True))
    text = te.build([x], e / e.sum(axis=1, keepdims=True), target="x86-64-v4").source("asm")
    assert text.count("prefetcht0") == 1
    assert text.count("prefetchw") == 1
    assert "vscalefps" in text
    assert "vmaxps" in text


# --- extremes ---------------------------------------------------------------------------------------------------------


def choice(order: str, first: str, second: str, nan: str = "%a") -> str:
    return f"""
define <16 x float> @f(<16 x float> %a, <16 x float> %b) {{
entry:
  %less = fcmp {order} <16 x float> {first}, {second}
  %nan = fcmp uno <16 x float> {nan}, zeroinitializer
  %which = or <16 x i1> %less, %nan
  %r = select <16 x i1> %which, <16 x float> %a, <16 x float> %b
  ret <16 x float> %r
}}"""


def changed(text: str) -> str:
    return "\n".join(extremes(text.split("\n"), AVX512))


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


def test_a_processor_has_them_for_its_own_vectors() -> None:
    long = choice("ogt", "%a", "%b").split("\n")
    short = [line.replace("<16 x", "<8 x") for line in long]
    avx2 = features_of("x86-64-linux-avx2")
    assert extremes(long, avx2) == long
    assert "@llvm.x86.avx.max.ps.256(<8 x float> %a, <8 x float> %b)" in "\n".join(extremes(short, avx2))
    for processor in ("x86-64-linux-sse41", "arm-64-linux"):
        assert extremes(short, features_of(processor)) == short


@pytest.mark.parametrize("target", LEVELS_HERE)
def test_extremes_of_rows_and_columns_keep_nan_and_infinity(target: str) -> None:
    rng = np.random.default_rng(0)
    values = rng.standard_normal((40, 256)).astype(np.float32)
    values[3, 7], values[5, 200], values[6], values[8, 0] = np.nan, np.inf, -np.inf, -np.nan
    x = te.placeholder(values.shape, "float32", name="x")
    for name in ("max", "min"):
        along, down = (getattr(x, name)(axis=axis) for axis in (1, 0))
        kernel = te.build([x], [along, down], target=target)
        for got, axis in zip(kernel(values), (1, 0), strict=True):
            np.testing.assert_array_equal(got, getattr(values, name)(axis=axis))


# --- exponentials -----------------------------------------------------------------------------------------------------


def test_the_last_steps_are_found_in_every_exponential() -> None:
    x = te.placeholder((4096,), "float32", name="x")
    for function in (te.exp, te.exp2, te.sigmoid):
        text = te.build([x], function(x), target="x86-64-v4").source("asm")
        assert "vscalefps" in text, function
        assert "vpslld" not in text, function


@pytest.mark.parametrize("target", LEVELS_HERE)
def test_results_below_the_normal_numbers_round_once(target: str) -> None:
    values = np.linspace(-104, -86, 5000, dtype=np.float32)
    x = te.placeholder(values.shape, "float32", name="x")
    exact = np.exp(values.astype(np.float64))
    got = np.asarray(te.build([x], te.exp(x), target=target)(values)).astype(np.float64)
    unit = np.spacing(np.maximum(exact, np.finfo(np.float32).smallest_subnormal).astype(np.float32)).astype(np.float64)
    assert (np.abs(got - exact) <= unit).all()


def test_lanes_whose_power_is_0_are_left_out() -> None:
    """What causal attention masks: a product that gets too small for any number takes as long as a hundred others."""
    for size in (4096, 4):
        x = te.placeholder((size,), "float32", name="x")
        for function in (te.exp, te.exp2, te.sigmoid):
            text = te.build([x], function(x), target="x86-64-v4").source("asm")
            scaled = [line for line in text.splitlines() if "vscalefps" in line]
            assert scaled, function
            assert all("{z}" in line for line in scaled), function


@pytest.mark.parametrize("target", LEVELS_HERE)
@pytest.mark.parametrize("size", [4, 8, 5001])
def test_numbers_far_below_those_of_normal_results(target: str, size: int) -> None:
    for dtype, low, high in (("float32", -400, -80), ("float64", -4000, -700)):
        least = np.finfo(dtype).smallest_subnormal
        for function, exact_of in ((te.exp, np.exp), (te.exp2, np.exp2)):
            values = np.append(np.linspace(low, high, size - 1), -np.inf).astype(dtype)
            exact = exact_of(values.astype(np.longdouble))
            x = te.placeholder(values.shape, dtype, name="x")
            got = np.asarray(te.build([x], function(x), target=target)(values))
            unit = np.spacing(np.maximum(exact, least).astype(dtype)).astype(np.longdouble)
            assert (np.abs(got - exact) <= unit).all()
            assert (got[exact < least / 4] == 0).all()
