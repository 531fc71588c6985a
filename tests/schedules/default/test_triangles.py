"""Products in triangles and bands: a tile has the iterations that some element of it needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tedsl as te

Condition = Callable[[Any, Any, Any], Any]

TRIANGLES: dict[str, Condition] = {
    "later terms": lambda i, j, k: k > i,
    "earlier terms": lambda i, j, k: k <= j - 3,
    "terms of a band": lambda i, j, k: (k >= i - 5) & (k < i + 9),
    "terms between": lambda i, j, k: (k > i) & (k < j),
    "far from the beginning": lambda i, j, k: i >= k + 30,
    "steps of two": lambda i, j, k: 2 * i >= k + 1,
    "lower result": lambda i, j, k: j <= i,
    "strictly upper result": lambda i, j, k: j >= i + 1,
    "band of the result": lambda i, j, k: (j <= i + 7) & (i < j + 20),
    "few of the result": lambda i, j, k: i >= j + 50,
    "both": lambda i, j, k: (j <= i) & (k <= j),
}


def _masked(condition: Condition, n: int, m: int) -> tuple[list[te.Tensor], te.Tensor]:
    a, b = te.placeholder((n, n), "float64", name="a"), te.placeholder((n, m), "float64", name="b")

    def element(i: Any, j: Any) -> Any:
        return te.sum(lambda k: a[i, k] * b[k, j], where=lambda k: condition(i, j, k))

    return [a, b], te.compute((n, m), element, name="y")


def _check(inputs: list[te.Tensor], outputs: list[te.Tensor], target: str) -> None:
    draw = np.random.default_rng(0)
    arrays = [draw.standard_normal(t.shape) for t in inputs]  # type: ignore[arg-type]
    found = te.build(inputs, outputs, target=target)(*arrays)
    expected = te.interpret(outputs, dict(zip(inputs, arrays, strict=True)))
    for ours, right in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, right, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("target", ["host", "x86-64-v3"])
@pytest.mark.parametrize("name", TRIANGLES)
def test_triangles_are_right(name: str, target: str) -> None:
    """By themselves, and where readers need a part that begins within a tile."""
    inputs, y = _masked(TRIANGLES[name], 61, 57)
    part = te.compute((40, 50), lambda i, j: te.select(i > j, y[i + 3, j + 2], 1.0), name="part")
    _check(inputs, [y], target) if name != "both" else _check(inputs, [y, part], target)
    _check(inputs, [part], target)


def test_a_tile_leaves_out_terms_that_none_of_its_elements_has() -> None:
    _, y = _masked(lambda i, j, k: k > i, 200, 250)
    (line,) = {s.strip() for s in str(te.Schedule(y).auto(target="x86-64-v4")).splitlines() if "if k >" in s}
    height = int(line.split("//")[1].split("*")[0])
    assert line == f"if k >= 1 + i // {height} * {height}:"


def test_a_tile_outside_a_triangle_has_no_terms() -> None:
    _, y = _masked(lambda i, j, k: j <= i, 200, 250)
    text = str(te.Schedule(y).auto(target="x86-64-v4"))
    (line,) = {s.strip() for s in text.splitlines() if s.strip().startswith("if i //")}
    assert ">= j //" in line
    assert "select(i - j >= 0, y_whole[i, j], 0.0)" in text


def test_sizes_that_are_not_known_keep_all_terms() -> None:
    n = te.var("n")
    a, b = te.placeholder((n, n), "float64", name="a"), te.placeholder((n, n), "float64", name="b")
    y = te.compute((n, n), lambda i, j: te.sum(lambda k: a[i, k] * b[k, j], where=lambda k: (k > i) & (j <= k)))
    z = te.compute((n, n), lambda i, j: te.sum(lambda k: a[i, k] * b[k, j], where=lambda k: j <= i))
    draw = np.random.default_rng(0)
    x, w = draw.standard_normal((45, 45)), draw.standard_normal((45, 45))
    found = te.build([a, b], [y, z])(x, w)
    for ours, right in zip(found, te.interpret([y, z], {a: x, b: w}), strict=True):
        np.testing.assert_allclose(ours, right, rtol=1e-10, atol=1e-10)
