"""Axes that are called as the default schedule calls parts of loops: `i_o` beside `i`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import tedsl as te
from schedules.default import LOWEST, assuming

ENDS = st.sampled_from(["o", "i", "v", "w", "b", "c", "t", "r", "q", "ob", "oc", "one"])


def named(names: list[str], f: Callable[..., Any]) -> Callable[..., Any]:
    """The function with parameters of these names, which are those of axes."""
    return eval(f"lambda {', '.join(names)}: f({', '.join(names)})", {"f": f})  # type: ignore[no-any-return]


def summed(kind: str, x: te.Tensor, w: te.Tensor, names: list[str]) -> te.Tensor:
    a, b, c = (int(n) for n in x.shape)
    if kind == "turned":
        return te.compute((c, b, a), named(names, lambda i, j, k: te.exp(x[k, j, i])), name="y")
    r = te.reduce_axis({"product": c, "first": a, "last": c, "window": 3}[kind], name=names[2])
    if kind == "product":
        return te.compute((b, b), named(names[:2], lambda i, j: te.sum(x[0, i, r] * w[r, j], axis=r)), name="y")
    if kind == "first":
        return te.compute((b, c), named(names[:2], lambda i, j: te.sum(x[r, i, j], axis=r)), name="y")
    if kind == "last":
        return te.compute((a, b), named(names[:2], lambda i, j: te.max(x[i, j, r], axis=r)), name="y")
    near = lambda i, j: te.sum(x.at(i + r - 1, j, 0, mode="zero") * (r + 1), axis=r)  # noqa: E731
    return te.compute((a, b), named(names[:2], near), name="y")


@settings(max_examples=12)
@given(
    st.sampled_from(["product", "first", "last", "window", "turned"]),
    st.permutations(["i", "i_{}", "j_{}"]) | st.permutations(["i", "i_{}", "i_{}o"]),
    ENDS,
    st.sampled_from([(7, 9, 5), (33, 40, 17)]),
    st.booleans(),
)
def test_parts_of_loops_have_names_of_their_own(
    kind: str, names: list[str], end: str, shape: tuple[int, ...], lowest: bool
) -> None:
    x = te.placeholder(shape, "float64", name="x")
    w = te.placeholder((shape[2], shape[1]), "float64", name="w")
    y = summed(kind, x, w, [n.format(end) for n in names])
    feeds = {t: np.random.default_rng(1).standard_normal([int(n) for n in t.shape]) for t in (x, w)}
    with assuming(LOWEST if lowest else {}):
        found = te.build([x, w], y)(*feeds.values())
    np.testing.assert_allclose(found, te.interpret(y, feeds), rtol=1e-9, atol=1e-9)


def test_what_a_user_calls_the_loops_stays() -> None:
    x = te.placeholder((70, 300), name="x")
    y = te.compute((70,), lambda i: te.sum(lambda i_o: x[i, i_o]), name="y")
    s = te.Schedule(y)
    assert list(s[y].loops) == ["i", "i_o"]


@pytest.mark.parametrize("name", ["j_o", "j_v", "i_i"])
def test_a_sum_over_an_axis_of_such_a_name(name: str) -> None:
    x, r = te.placeholder((70, 300), name="x"), te.reduce_axis(70, name=name)
    y = te.compute((300,), lambda j: te.sum(x[r, j], axis=r), name="y")
    a = np.random.default_rng(2).random((70, 300), dtype="float32")
    np.testing.assert_allclose(te.build(x, y)(a), a.sum(0), rtol=1e-5)
