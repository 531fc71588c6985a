"""Quotients of differences: Halide 21 divides them term by term where it solves conditions for a loop."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import halide as hl
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import tedsl as te
from schedules.machine import assuming
from tedsl.backend.compiling.compilation import Compilation
from tedsl.backend.compiling.forms import LARGE, Form
from tedsl.backend.compiling.variant import compile_variant
from tedsl.backend.compiling.variant_source import VariantSource
from tedsl.backend.host.targets import parse_target
from tedsl.backend.scheduling.planner import Planner

CHANCE = np.random.default_rng(21)

SUBTRACTED: dict[str, Callable[[Any], Any]] = {
    "k % 2": lambda k: k % 2,
    "-k % 2": lambda k: -k % 2,
    "k": lambda k: k,
    "k // 2": lambda k: k // 2,
    "min(k, 1)": lambda k: te.minimum(k, 1),
    "abs(k - 1)": lambda k: te.abs(k - 1),
    "3 * k": lambda k: 3 * k,
}
i, j = te.reduce_axis(4, "i"), te.reduce_axis(16, "j")


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data(), factor=st.sampled_from([2, 4, 6]), by=st.sampled_from([2, 4]), kept=st.booleans())
def test_conditions_on_quotients_of_differences(data: st.DataObject, factor: int, by: int, kept: bool) -> None:
    """As of the weights of a transposed convolution, of which the last row was wrong."""
    subtracted = SUBTRACTED[data.draw(st.sampled_from(list(SUBTRACTED)))]
    shift = data.draw(st.sampled_from([8, 9, 10]))
    a, h = te.placeholder((4, 16), name="a"), te.placeholder((60, 120), name="h")

    def place(k: Any, r: Any) -> tuple[Any, Any]:
        numerator = r * factor - subtracted(k) + 10
        return numerator, (numerator - shift) // by - k // 2

    def body(k: Any, c: Any) -> Any:
        (row, p), (column, q) = place(k, i), place(c, j)
        inside = (p >= 0) & (p < 4) & ((q >= 0) & (q < 16))
        return te.sum(h[row, column] * te.select(inside, a[p, q], 0.0), axis=(i, j))

    g = te.compute((4, 4), body, name="g")
    s = te.Schedule(g)
    if kept:
        s[g].compute_root()
    ones = np.ones((4, 16), "float32"), np.ones((60, 120), "float32")
    found = te.build([a, h], g, schedule=s)(*ones)
    np.testing.assert_array_equal(found, te.interpret(g, {a: ones[0], h: ones[1]}))


def test_halide_still_divides_term_by_term() -> None:
    """Once this fails, `_said_otherwise` of `lowering/indices` may go."""
    k, r, f = hl.Var("k"), hl.RDom([(0, 16)], "r"), hl.Func("f")
    a = hl.Buffer(hl.Float(32), [64])
    a.fill(1)
    place = hl.Expr(r[0]) * 2 - (0 - hl.Expr(k)) % 2 + 1
    f[k] = hl.f32(0)
    f[k] = f[k] + hl.select((place + 1) / 2 - hl.Expr(k) / 2 < 16, a[place], hl.f32(0))
    found, right = np.array(f.realize([4])).tolist(), [15, 16, 16, 16]
    if found == right:
        pytest.fail("Halide solves for loops under differences rightly now")
    assert found == [15, 15, 16, 16]


def test_transposed_convolutions_of_any_size() -> None:
    """Their rows are `2*i` at most, which int32 holds for arrays below two gigabytes: nothing is checked, or wraps.

    For larger ones the accesses are checked. Halide 21 refused the loops of these checks where it cut them.
    """
    n, m, p, q = map(te.var, "nmpq")
    x, w = te.placeholder((n, m, p, q), name="x"), te.placeholder((m, 1, 2, 4), name="w")
    h = te.placeholder((n, 1, p * 2 - 2, q * 2), name="h")

    def body(b: Any, o: Any, i: Any, j: Any) -> Any:
        c, u, v = te.reduce_axis(m), te.reduce_axis(1), te.reduce_axis(2)
        row, column = (i + 1) // 2 - u, (j + 1) // 2 - v
        inside = (row >= 0) & (row < p) & ((column >= 0) & (column < q))
        tap = w[c, o, (i + 1) % 2 + 2 * u, (j + 1) % 2 + 2 * v]
        return te.sum(te.select(inside, x[b, c, row, column], 0.0) * tap, axis=(c, u, v))

    y = te.compute(h.shape, body, name="y")
    gradient = te.differentiate([y], [w], head=[h])[0]
    arrays = [CHANCE.integers(-3, 4, s).astype("float32") for s in ((2, 3, 5, 4), (3, 1, 2, 4), (2, 1, 8, 8))]
    expected = te.interpret(gradient, dict(zip((x, w, h), arrays, strict=True)))
    with warnings.catch_warnings(), assuming({"kernels": 2}):
        warnings.simplefilter("error")
        kernel = te.build([x, w, h], gradient)
        assert "float64" not in kernel.source("stmt")
        assert "check" not in kernel.source("stmt")
        np.testing.assert_array_equal(kernel(*arrays), expected)
        program = Compilation((x, w, h), (gradient,), "large", parse_target("host"), Planner())
        assert compile_variant(VariantSource(program, Form(("write",), LARGE))).has_checks


@pytest.mark.parametrize("reduced", [False, True])
def test_quotients_that_are_said_otherwise_are_bounded_as_they_are_said(reduced: bool) -> None:
    """`((k + 1) % 2 - k + 1) // 2` is from 0 to 1; as `((k + 1) % 2 + k + 1) // 2 - k` Halide takes it for -1 to 1."""
    x = te.placeholder((3, 5), "float64", name="x")

    def row(k: Any, p: Any) -> Any:
        return p + ((k + 1) % 2 - k + 1) // 2

    def body(k: Any, i: Any) -> Any:
        if not reduced:
            return x[row(k, i % 2), i]
        p, j = te.reduce_axis(2), te.reduce_axis(5)
        return te.sum(x[row(k, p), j] * (i + 1), axis=(p, j))

    y = te.compute((2, 5), body, name="y")
    values = np.arange(15.0).reshape(3, 5)
    np.testing.assert_array_equal(te.build([x], y)(values), te.interpret(y, {x: values}))
