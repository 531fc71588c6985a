"""Vectors of integers that are divided as doubles: the quotients and remainders of integers, to the last."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tedsl as te
from tedsl.backend.assembly.quotients import divided_as_doubles
from tests.levels import LEVELS_HERE, processor

WORDS = np.array([-(2**31), -(2**31) + 1, -65536, -3, -1, 0, 1, 2, 7, 65535, 2**30 + 1, 2**31 - 2, 2**31 - 1], "int64")


def test_all_pairs_of_awkward_numbers() -> None:
    """Beside multiples, and as far from 0 as 32 bits go, with a sign and without one."""
    signed = np.unique(np.concatenate([WORDS - 1, WORDS, WORDS + 1])).clip(-(2**31), 2**31 - 1)
    unsigned = np.unique(np.concatenate([signed + 2**31, np.abs(signed) * 2 - 1])).clip(0, 2**32 - 1)
    products = np.unique(signed[:, None] * np.array([1, -1, 3, 46341])).clip(-(2**31), 2**31 - 1)
    for words in (signed, unsigned, products):
        divisors = words[words != 0]
        exact = np.abs(words[:, None]) // np.abs(divisors) * np.sign(words[:, None]) * np.sign(divisors)
        found = np.trunc(words[:, None].astype("float64") / divisors.astype("float64"))
        np.testing.assert_array_equal(found.astype("int64"), exact)


@pytest.mark.parametrize("level", [v for v in LEVELS_HERE if v != "x86-64-v2"])
def test_places_counted_by_a_length_that_is_not_known(level: str) -> None:
    x = te.placeholder((te.var("h"), te.var("w")), name="x")
    h, w = x.shape
    y = te.compute((h * w,), lambda k: x[k // w, k % w] + te.cast(k % w, "float32"), name="y")
    with processor(level):
        kernel = te.build(x, y)
        assert re.search(r"quotients: [1-9]", kernel.source("passes"))
        for shape in ((1, 1), (3, 5), (7, 16), (2, 33), (40, 3), (1, 100)):
            a = np.random.default_rng(0).standard_normal(shape).astype("float32")
            np.testing.assert_array_equal(kernel(a), (a + np.arange(shape[1], dtype="float32")).ravel())


def test_numbers_that_are_known_and_single_ones_are_left_alone() -> None:
    """LLVM multiplies by the first, and the processor divides the second."""
    lines = [
        "  %0 = sdiv <16 x i32> %a, splat (i32 7)",
        "  %1 = srem i32 %b, %c",
        "  %2 = udiv <2 x i32> %d, %e",
        "  %3 = sdiv <8 x i64> %f, %g",
        "  %4 = udiv <8 x i32> %h, %k",
    ]
    assert divided_as_doubles(lines, {"avx2"}) == lines
    assert len(divided_as_doubles(lines, {"avx2", "avx512"})) == len(lines) + 3
