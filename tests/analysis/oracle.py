"""Brute force over small boxes: expressions in Python integers, point by point."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

from hypothesis import strategies as st

import tedsl as te
from tedsl.analysis.sizes import EXACT
from tedsl.lang.expr import Apply, Axis, Const, Expr
from tedsl.lang.traverse import topological


def value_at(expr: Expr, point: Mapping[Expr, int]) -> int:
    """The expression in unbounded integers; symbols take their value from `point`."""
    value: dict[Expr, Any] = dict(point)
    for node in topological(expr):
        if node in value:
            continue
        if isinstance(node, Const):
            value[node] = node.value
        else:
            assert isinstance(node, Apply)
            value[node] = EXACT[node.fn](*(value[a] for a in node.args))
    return value[expr]


def points(axes: list[Axis]) -> Iterator[dict[Expr, int]]:
    ranges = [range(a.begin.value, a.begin.value + a.extent.value) for a in axes]  # type: ignore[attr-defined,union-attr]
    for choice in product(*ranges):
        yield dict(zip(axes, choice, strict=True))


@st.composite
def boxes(draw: st.DrawFn) -> list[Axis]:
    """One to three axes of one to five values."""
    count = draw(st.integers(1, 3))
    return [
        te.reduce_axis((b, b + draw(st.integers(1, 5))), name)
        for name in "ijk"[:count]
        for b in [draw(st.integers(-3, 3))]
    ]


@st.composite
def index_exprs(draw: st.DrawFn, axes: list[Axis], depth: int = 3) -> Any:
    """An integer expression of axes: sums, multiples, quotients, remainders, min, max, abs, clip, select."""
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        return draw(st.sampled_from([*axes, *map(te.const, range(-3, 4))]))
    inner = index_exprs(axes, depth - 1)
    a, number = draw(inner), draw(st.integers(-4, 4))
    kind = draw(st.sampled_from(["add", "sub", "mul", "div", "mod", "min", "max", "abs", "clip", "select", "neg"]))
    rules: dict[str, Any] = {
        "add": lambda: a + draw(inner), "sub": lambda: a - draw(inner), "mul": lambda: a * number,
        "div": lambda: a // (number or 2), "mod": lambda: a % (number or 3), "min": lambda: te.minimum(a, draw(inner)),
        "max": lambda: te.maximum(a, draw(inner)), "abs": lambda: te.abs(a), "neg": lambda: -a,
        "clip": lambda: te.clip(a, min(number, 0), 2),
        "select": lambda: te.select(draw(conditions(axes, 1)), a, draw(inner)),
    }  # fmt: skip
    return rules[kind]()


@st.composite
def conditions(draw: st.DrawFn, axes: list[Axis], depth: int = 2) -> Any:
    """A condition on axes: comparisons joined by and, or, not."""
    if depth == 0 or draw(st.booleans()):
        a, b = draw(index_exprs(axes, 1)), draw(index_exprs(axes, 1))
        return draw(st.sampled_from([a < b, a <= b, a > b, a >= b, a == b, a != b]))
    x, y = draw(conditions(axes, depth - 1)), draw(conditions(axes, depth - 1))
    return draw(st.sampled_from([te.logical_and(x, y), te.logical_or(x, y), te.logical_not(x)]))
