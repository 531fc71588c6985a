"""Divisions by what a loop does not change: that products with the reciprocal round as the divider does."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Set
from typing import Any

import numpy as np
import pytest

import tedsl as te
from tedsl.backend.assembly.reciprocals import multiplied
from tedsl.backend.host.processors import features_of
from tests.backend.scalars.scalar_harness import Array, same_bits

FMA = features_of("x86-64-linux-avx2-fma")
LANES = 64


@functools.cache
def kernel(by_row: bool, target: str = "host") -> Any:
    """x[i, j] / y[i], or / y[j] with many rows at a time."""
    n = te.var("n")
    x = te.placeholder((n, LANES), "float32", name="x")
    y = te.placeholder((n if by_row else LANES,), "float32", name="y")
    if by_row:
        q = te.compute((n, LANES), lambda i, j: x[i, j] / y[i], name="q")
    else:
        rows = te.compute((n, LANES), lambda i, j: x[i, j] / y[j], name="rows")
        k = te.reduce_axis(8, name="k")
        q = te.compute((n // 8, LANES), lambda i, j: te.sum(rows[8 * i + k, j], axis=k), name="q")
    return te.build([x, y], q, target=target)


def quotients(x: Array, y: Array) -> Array:
    return np.asarray(kernel(True)(x, y))


def assert_divided(x: Array, y: Array) -> None:
    with np.errstate(all="ignore"):
        wanted = x / y[:, None]
    got = quotients(x, y)
    bad = np.argwhere(~same_bits(got, wanted))
    assert not bad.size, [(float(x[i, j]).hex(), float(y[i]).hex(), got[i, j], wanted[i, j]) for i, j in bad[:5]]


def hard_dividends(odd: Array, shift: int = 0) -> Array:
    """For each divisor b = odd 2^shift of 24 bits: those a whose quotient is nearest to the middle between two numbers.

    With a 2^k - m b = j for an odd m of 25 bits and a small j, m is -j / b modulo 2^k.
    """
    found = []
    b = odd << shift
    inverse = odd.copy()
    for _ in range(5):
        inverse = (inverse * (2 - odd * inverse)) % (1 << 25)
    for k, j, more in itertools.product((24, 25), range(1, 6), range(1 << shift)):
        if j % (1 << shift):
            continue
        for sign in (1, -1):
            period = 1 << (k - shift)
            m = (-sign * (j >> shift) * inverse) % period
            m += ((1 << 24) - m + period - 1) // period * period + more * period
            a = (m * b + sign * j) >> k
            fits = (m % 2 == 1) & (m < 1 << 25) & (a >= 1 << 23) & (a < 1 << 24) & (m * b + sign * j == a << k)
            found.append(np.where(fits, a, b))
    return np.stack(found, axis=1)


def assert_hard_cases(odd: Array, shift: int, scale: Array) -> None:
    hard = hard_dividends(odd, shift)
    x = np.zeros((len(odd), LANES), np.float32)
    x[:, : hard.shape[1]] = hard
    assert_divided(x, ((odd << shift) * scale).astype(np.float32))


def test_hard_cases_round_right() -> None:
    rng = np.random.default_rng(0)
    b = rng.integers(1 << 23, 1 << 24, 30_000) | 1
    b[:6] = [(1 << 24) - 1, (1 << 24) - 3, (1 << 23) + 1, (1 << 23) + 3, 11863283, 12582913]
    assert (hard_dividends(b) != b[:, None]).any(axis=1).mean() > 0.9
    assert_hard_cases(b, 0, np.float32(2.0) ** rng.integers(-20, 20, len(b)))


@pytest.mark.long
@pytest.mark.parametrize("shift", [0, 1, 2])
def test_all_hard_cases_round_right(shift: int) -> None:
    """Every divisor: all other dividends are further from a middle than the three steps can err."""
    step = 1 << 17
    for begin in range(1 << (23 - shift), 1 << (24 - shift), step):
        odd = np.arange(begin + 1, begin + step, 2)
        assert_hard_cases(odd, shift, np.ones(len(odd), np.float32))


def test_random_numbers_of_every_size_round_right() -> None:
    rng = np.random.default_rng(1)
    x = rng.integers(0, 1 << 32, (4000, LANES), np.uint32, endpoint=False).view(np.float32)
    y = rng.integers(0, 1 << 32, 4000, np.uint32, endpoint=False).view(np.float32)
    y[2000:] = rng.uniform(0.5, 2000, 2000)
    assert_divided(x, y)


@pytest.mark.parametrize("by_row", [True, False])
def test_these_kernels_multiply(by_row: bool) -> None:
    assert "vptestnmd" in kernel(by_row, "x86-64-v4").source("asm")


def test_special_values() -> None:
    tiny, small = np.finfo(np.float32).smallest_subnormal, np.finfo(np.float32).tiny
    most = np.finfo(np.float32).max
    values = [
        0.0,
        1.0,
        3.0,
        np.inf,
        np.nan,
        tiny,
        3 * tiny,
        small,
        small * 3,
        2.0**-63,
        2.0**-64,
        2.0**-80,
        most,
        most / 3,
    ]
    x = np.zeros((1, LANES), np.float32)
    x[0, : 2 * len(values)] = [s * v for v in values for s in (1, -1)]
    edges = [2.0**-40, 2.0**-41, 2.0**40, 2.0**41, 0.75, 6.0, 1e-3, 1e3, *values]
    y = np.array([s * v for v in edges for s in (1, -1)], np.float32)
    assert_divided(np.repeat(x, len(y), axis=0), y)
    for lane in range(2 * len(values)):  # one such number beside others that are not
        alone = np.full((len(y), LANES), 5, np.float32)
        alone[:, 17] = x[0, lane]
        assert_divided(alone, y)


def test_zeros_keep_their_signs() -> None:
    x = np.zeros((2, LANES), np.float32)
    x[:, ::2] = -0.0
    assert_divided(x, np.array([3.0, -3.0], np.float32))


def test_one_divisor_for_many_rows() -> None:
    rng = np.random.default_rng(2)
    x = rng.standard_normal((32, LANES)).astype(np.float32)
    y = rng.uniform(0.5, 3, LANES).astype(np.float32)
    x[3, 5], x[9, 7], x[20, 9], y[11] = np.inf, np.nan, 1e-40, -2.0
    got = np.asarray(kernel(False)(x, y))
    wanted = np.zeros((4, LANES), np.float32)
    for k in range(8):
        wanted += (x / y).reshape(4, 8, LANES)[:, k]
    np.testing.assert_array_equal(got, wanted)


def test_the_loop_of_a_row_does_not_divide() -> None:
    n = te.placeholder((64, 1024), "float32", name="x")
    text = te.build([n], n / n.sum(axis=1, keepdims=True), target="x86-64-v4").source("asm")
    loop = text[text.index("vfnmadd") - 1500 : text.index("vfnmadd") + 1500]
    assert "vdivss" in text
    assert "vptestnmd" in loop
    assert text.count("vdivps") == 1  # for what is out of range


def function(body: str) -> list[str]:
    return f"""
define void @f(<16 x float> %b, ptr %from, ptr %to) {{
entry:
  %c = fadd <16 x float> %b, %b
  br label %loop

loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %at = getelementptr float, ptr %from, i64 %i
  %a = load <16 x float>, ptr %at, align 4
{body}
  store <16 x float> %q, ptr %to, align 4
  %next = add nuw nsw i64 %i, 16
  %end = icmp eq i64 %next, 1024
  br i1 %end, label %exit, label %loop

exit:
  ret void
}}
""".split("\n")


def in_loop(body: str, processor: Set[str] = FMA) -> str:
    return "\n".join(multiplied(function(body), processor))


def test_a_divisor_of_outside_has_its_reciprocal_outside() -> None:
    text = in_loop("  %q = fdiv <16 x float> %a, %c")
    head, _, loop = text.partition("\nloop:")
    assert "%te.reciprocal.0.raw = fdiv <16 x float> splat" in head
    assert "@llvm.fma.v16f32" in loop
    assert "%i = phi i64 [ 0, %entry ], [ %next, %te.joined.0 ]" in loop  # the loop comes back from its last part
    assert loop.count("fdiv") == 1


def test_what_changes_with_the_loop_is_divided_by() -> None:
    body = "  %d = fadd <16 x float> %a, %c\n  %q = fdiv <16 x float> %a, %d"
    assert in_loop(body) == "\n".join(function(body))


def test_without_fused_multiply_add_nothing_changes() -> None:
    body = "  %q = fdiv <16 x float> %a, %c"
    assert in_loop(body, features_of("x86-64-linux-sse41")) == "\n".join(function(body))
