"""Choices by one lane of a mask are vectors: which number is chosen stays the same."""

from __future__ import annotations

import numpy as np
import pytest

import tedsl as te
from tedsl.backend.assembly.lane_choices import chosen_in_lanes

TEXT = """define float @f(<2 x i1> %m, float %a) {
  %c = extractelement <2 x i1> %m, i64 1
  %r = select i1 %c, float %a, float 1.000000e+00
  ret float %r
}"""


def test_a_choice_by_a_lane_is_made_by_the_mask() -> None:
    made = chosen_in_lanes(TEXT.split("\n"))
    assert '  %"te.chosen.r" = select <2 x i1> %m, <2 x float> %"te.first.r", <2 x float> %"te.second.r"' in made
    assert '  %r = extractelement <2 x float> %"te.chosen.r", i64 1' in made


@pytest.mark.parametrize(
    "other", [TEXT.replace("float", "i32").replace("1.000000e+00", "1"), TEXT.replace("%c,", "%d,")]
)
def test_other_choices_stay(other: str) -> None:
    assert chosen_in_lanes(other.split("\n")) == other.split("\n")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("width", [5, 8, 11])
def test_extremes_of_short_rows(width: int, dtype: str) -> None:
    """Of a few numbers in any order, NaN and both zeros among them."""
    x = te.placeholder((512, width), dtype, name="x")
    a = np.random.default_rng(width).choice([np.nan, -0.0, 0.0, 1.0, -1.0, np.inf], (512, width), p=[0.1, *[0.18] * 5])
    a = a.astype(dtype)
    for y in (x.max(1), x.min(1)):
        found, want = te.build([x], y)(a), te.interpret(y, {x: a})
        np.testing.assert_array_equal(np.isnan(found), np.isnan(want))
        np.testing.assert_array_equal(found[~np.isnan(want)], want[~np.isnan(want)])
