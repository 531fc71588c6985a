"""bounds_of against enumeration, with numbers and with sizes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

import tedsl as te
from autodiff import strategies
from tedsl.analysis import bounds
from tedsl.analysis.bounds import bounds_of
from tedsl.lang.expr import TRUE, Axis
from tedsl.lang.traverse import free_axes, substitute
from tests.analysis.oracle import boxes, conditions, index_exprs, points, value_at


@given(st.data())
def test_bounds_of_small_boxes_are_exact(data: st.DataObject) -> None:
    axes = data.draw(boxes())
    expr, condition = data.draw(index_exprs(axes)), data.draw(conditions(axes))
    all_values = [value_at(expr, p) for p in points(axes)]
    values = [v for v, p in zip(all_values, points(axes), strict=True) if value_at(condition, p)] or all_values
    assert bounds_of(expr, condition).numbers == (min(values), max(values))


@given(st.data())
def test_bounds_hold_without_enumeration(data: st.DataObject) -> None:
    axes = data.draw(boxes())
    expr, condition = data.draw(index_exprs(axes)), data.draw(conditions(axes))
    values = [value_at(expr, p) for p in points(axes) if value_at(condition, p)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bounds, "ENUMERATE", 0)
        low, high = bounds_of(expr, condition).numbers
    if values:
        assert low is None or low <= min(values)
        assert high is None or high >= max(values)


N, M = te.var("n"), te.var("m")
I, J = te.reduce_axis(N, "i"), te.reduce_axis(M, "j")  # noqa: E741 - loops of symbolic extents


@pytest.mark.parametrize(
    ("expr", "condition", "lower", "upper"),
    [
        (I, TRUE, "0", "n - 1"),
        (I * M + J, TRUE, "0", "n * m - 1"),
        (N - 1 - I, TRUE, "0", "n - 1"),
        (I - J, TRUE, "-m + 1", "n - 1"),
        (2 * I + 3, TRUE, "3", "n * 2 + 1"),
        (I // 2, TRUE, "0", "(n + 1) // 2 - 1"),
        (I % 4, TRUE, "0", "3"),
        (te.clip(I - 5, 0, 7), TRUE, "0", "te.minimum(te.maximum(n - 6, 0), 7)"),
        (te.clip(I - 5, 0, M), TRUE, "0", "te.minimum(te.maximum(n - 6, 0), m)"),
        (te.abs(I + 2), TRUE, "2", "n + 1"),
        (te.abs(I - 2), TRUE, "0", "te.maximum(n - 3, 2)"),
        (te.relu(3 - I), TRUE, "te.maximum(-n + 4, 0)", "3"),
        (I, (I >= 1) & (I < N - 2), "1", "n - 3"),
        (I - 1, I > 0, "0", "n - 2"),
    ],
)
def test_bounds_with_sizes(expr: Any, condition: Any, lower: str, upper: str | None) -> None:
    found = bounds_of(expr, condition)
    assert str(found.lower) == lower
    if upper is not None:
        assert str(found.upper) == upper


@given(st.data())
def test_bounds_with_sizes_hold_for_every_size(data: st.DataObject) -> None:
    expr, condition = data.draw(index_exprs([I, J])), data.draw(conditions([I, J], 1))
    found = bounds_of(expr, condition)
    for n, m in [(1, 1), (2, 3), (4, 1), (3, 5)]:
        i, j = te.reduce_axis(n, "i"), te.reduce_axis(m, "j")
        small, when = (substitute(e, {I: i, J: j}) for e in (expr, condition))
        sizes = {N: n, M: m}
        values = [value_at(small, {**p, **sizes}) for p in points([i, j]) if value_at(when, {**p, **sizes})]
        if values:
            assert found.lower is None or value_at(found.lower, sizes) <= min(values)
            assert found.upper is None or value_at(found.upper, sizes) >= max(values)


def test_data_has_no_bounds_but_those_of_its_type() -> None:
    k: Axis = te.reduce_axis(4, "k")
    small, wide = te.placeholder((4,), "uint8"), te.placeholder((4,), "int32")
    assert bounds_of(te.cast(small[k], "int32") + k).numbers == (0, 258)
    assert bounds_of(wide[k]).numbers == (None, None)
    assert bounds_of(te.minimum(wide[k], 7)).numbers == (None, 7)


@given(st.data(), st.integers(1, 20))
def test_index_maps_of_the_public_strategy_stay_within(data: st.DataObject, extent: int) -> None:
    expr = data.draw(strategies.index_maps(extent=extent))
    axes = list(free_axes((expr,)))
    values = [value_at(expr, p) for p in points(axes)]
    assert len(axes) <= 3
    assert 0 <= min(values) <= max(values) < extent
