"""Conditions on one combination of loops, at every place that loops reach."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings, strategies as st

import tedsl as te
from schedules.conditions import tidied
from tedsl.lang.expr import TRUE, Apply, Fn
from tedsl.lang.traverse import substitute

ROWS, COLUMNS = 7, 9


@st.composite
def conditions(draw: st.DrawFn, depth: int = 3) -> Any:
    """Comparisons of i - j, or of i, joined."""
    if depth and draw(st.booleans()):
        a, b = draw(conditions(depth=depth - 1)), draw(conditions(depth=depth - 1))
        return (lambda *at: a(*at) & b(*at)) if draw(st.booleans()) else (lambda *at: a(*at) | b(*at))
    bound, kind, alone = draw(st.integers(-3, 3)), draw(st.sampled_from("<>=LGn")), draw(st.integers(0, 4)) == 0

    def made(i: Any, j: Any) -> Any:
        x = i if alone else i - j
        return {"<": x < bound, ">": x > bound, "=": x == bound, "L": x <= bound, "G": x >= bound, "n": x != bound}[
            kind
        ]

    return made


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(condition=conditions())
def test_tidied_conditions_hold_at_the_same_places(condition: Any) -> None:
    asked = te.compute((ROWS, COLUMNS), condition, name="asked")
    i, j = asked.op.axes
    (made,) = tidied(asked.op.bodies)
    again = te.compute((ROWS, COLUMNS), lambda p, q: te.select(substitute(made, {i: p, j: q}), 1, 0))
    want = te.compute((ROWS, COLUMNS), lambda p, q: te.select(condition(p, q), 1, 0))
    for found, expected in zip(te.interpret([again], {}), te.interpret([want], {}), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_choices_inside_choices_ask_once() -> None:
    def asked(i: Any, j: Any) -> Any:
        x = i - j
        return (x >= 1) & (((x <= 1) & (x == 1)) | (x >= 2))

    (made,) = tidied(te.compute((ROWS, COLUMNS), asked).op.bodies)
    assert isinstance(made, Apply)
    assert made.fn is Fn.GE
    (whole,) = tidied(te.compute((ROWS, COLUMNS), lambda i, j: (i - j <= 2) | (i - j > 2)).op.bodies)
    assert whole is TRUE
