"""Places made of floats of one loop: the quotient found for them is right at every iteration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import tedsl as te
from tedsl.analysis.float_places import quotient_of
from tedsl.lang.expr import Axis, Expr
from tedsl.lang.traverse import substitute

ROUNDINGS: list[Callable[[Any], Any]] = [te.floor, te.ceil, te.trunc, te.round]


def place(extent: int, body: Callable[[Any], Any]) -> te.Tensor:
    made: te.Tensor = te.compute((extent,), lambda i: te.cast(body(i), "int32"))
    return made


def quotient(made: te.Tensor) -> Expr | None:
    return quotient_of(made.op.bodies[0])  # type: ignore[attr-defined]


def at_each(found: Expr, made: te.Tensor) -> np.ndarray:
    (axis,) = made.op.axes  # type: ignore[attr-defined]
    assert isinstance(axis, Axis)
    return np.asarray(te.interpret(te.compute(made.shape, lambda i: substitute(found, {axis: i})), {}))


@settings(max_examples=60, deadline=None)
@given(
    extent=st.integers(1, 300), up=st.integers(1, 12), down=st.integers(1, 12), offset=st.sampled_from([0.0, 0.5, 1.3]),
    rounding=st.sampled_from(ROUNDINGS), dtype=st.sampled_from(["float32", "float64"]),
)  # fmt: skip
def test_what_is_found_is_right(
    extent: int, up: int, down: int, offset: float, rounding: Callable[[Any], Any], dtype: str
) -> None:
    made = place(extent, lambda i: rounding((te.cast(i, dtype) + offset) * (up / down) - offset))
    found = quotient(made)
    if {up, down} <= {1, 2, 4} and rounding is te.floor:
        assert found is not None
    if found is not None:
        np.testing.assert_array_equal(at_each(found, made), te.interpret(made, {}))


@pytest.mark.parametrize(
    "body",
    [
        lambda i: te.cast(i, "float32") ** 2 / 9,
        lambda i: te.sqrt(te.cast(i, "float32")),
        lambda i: te.select(i == 77, 0.0, te.cast(i, "float32")),
        lambda i: te.exp(te.cast(i, "float32") / 99),
    ],
)
def test_what_is_no_quotient(body: Callable[[Any], Any]) -> None:
    assert quotient(place(100, body)) is None


@pytest.mark.parametrize(("size", "wanted"), [(12, 30), (25, 10)])
@pytest.mark.parametrize("is_cubic", [False, True])
def test_gradients_of_resampling_are_gathers(size: int, wanted: int, is_cubic: bool) -> None:
    """Linear and cubic, larger and smaller, with places that are held at the ends."""
    given = te.placeholder((3, size), "float64", name="given")
    taps = te.reduce_axis(4 if is_cubic else 2, name="t")

    def body(y: Any, x: Any) -> Any:
        source = (x + 0.5) * (size / wanted) - 0.5
        first = te.cast(te.floor(source), "int32") - (1 if is_cubic else 0)
        share = te.maximum(0.0, 1.0 - te.abs(source - te.cast(first + taps, "float64")) / (2.0 if is_cubic else 1.0))
        return te.sum(share * given[y, te.clip(first + taps, 0, size - 1)], axis=taps)

    out = te.compute((3, wanted), body)
    head = te.placeholder((3, wanted), "float64", name="head")
    found = te.differentiate(out, [given], head=head)
    assert not found.explain().scatters
    rng = np.random.default_rng(0)
    feeds = {given: rng.random((3, size)), head: rng.random((3, wanted))}
    (one,), (other,) = te.evaluate(list(found), feeds), te.interpret(list(found), feeds)
    np.testing.assert_allclose(one, other, rtol=1e-12)
    assert te.gradcheck(out, [given], {given: feeds[given]})
