"""What an outer loop does not change is computed once: which values are, and that results keep their bits."""

from __future__ import annotations

import numpy as np
import pytest

import tedsl as te
from tests.levels import OLDER, processor


def stages(output: te.Tensor) -> str:
    return str(te.Schedule(output).auto())


def test_a_function_of_inner_loops_alone_is_a_stage() -> None:
    x, s = te.placeholder((8, 40), name="x"), te.placeholder((40,), name="s")
    y = te.compute((8, 40), lambda c, i: x[c, i] - te.log(s[i]), name="y")
    assert "y_part[i] = log(s[i])" in stages(y)
    assert "x[c, i] - y_part[i]" in stages(y)


@pytest.mark.parametrize("why", ["rows", "few", "cheap", "guarded"])
def test_others_stay_where_they_are(why: str) -> None:
    x, s = te.placeholder((8, 40), name="x"), te.placeholder((40,), name="s")
    rows = 2 if why == "few" else 8

    def body(c: te.Expr, i: te.Expr) -> te.Expr:
        if why == "guarded":
            return te.select((c > 0) & (i > 0), te.log(s[i - c]), x[c, i])
        if why == "cheap":
            return x[c, i] - s[i] * s[i]
        return x[c, i] - te.log(x[c, 0] if why == "rows" else s[i])

    assert "_part" not in stages(te.compute((rows, 40), body, name="y"))


@pytest.mark.parametrize("level", ["", *OLDER])
def test_bits_are_those_of_the_schedule_by_hand(level: str) -> None:
    x, s, w = te.placeholder((9, 5, 33), name="x"), te.placeholder((5, 33), name="s"), te.placeholder((33,), name="w")
    y = te.compute((9, 5, 33), lambda c, i, j: x[c, i, j] + te.exp(s[i, j]) * w[j] / te.sqrt(1.0 + s[i, j] * s[i, j]))
    z = te.compute((9, 5, 33), lambda c, i, j: te.select(c > 3, te.tanh(y[c, i, j]) * te.log(w[j] + 3.0), w[j]))
    chance = np.random.default_rng(3)
    feeds = {t: chance.random(tuple(map(int, t.shape)), dtype=np.float32) for t in (x, s, w)}
    by_hand = te.Schedule([y, z])
    for tensor in (y, z):
        by_hand[tensor].compute_root()
    with processor(level):
        found = te.build([x, s, w], [y, z])(*feeds.values())
        plain = te.build([x, s, w], [y, z], schedule=by_hand)(*feeds.values())
    for got, same, want in zip(found, plain, te.interpret([y, z], feeds), strict=True):
        np.testing.assert_array_equal(got, same)
        np.testing.assert_allclose(got, want, rtol=1e-5)
