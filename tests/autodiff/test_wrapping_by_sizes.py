"""Integers that wrap from some size on: gradients are of the numbers that are there, where sizes are not known, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tedsl as te

FAR = 1 << 27  # 16 of them do not fit 32 bits


def wide(i: Any, times: int = 1, plus: int = 0) -> Any:
    """In 64 bits, then in 32."""
    return te.cast(te.cast(i, "int64") * te.const(times, "int64") + te.const(plus, "int64"), "int32")


BODIES: dict[str, Callable[[te.Tensor, Any, Any], Any]] = {
    "place, narrowed": lambda x, n, i: x[te.clip(wide(i, FAR) // te.const(FAR, "int32"), 0, n - 1)],
    "place": lambda x, n, i: x[te.clip(i * te.const(FAR, "int32") // te.const(FAR, "int32"), 0, n - 1)],
    "condition, narrowed": lambda x, n, i: te.select(wide(i, FAR) >= 0, x[i], 0.0),
    "condition": lambda x, n, i: te.select(i * te.const(FAR, "int32") >= 0, x[i], 0.0),
    "condition on a sum": lambda x, n, i: te.select(wide(i, plus=(1 << 31) - 17) >= 0, x[i], 0.0),
}


@pytest.mark.parametrize("size", [15, 24])
@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize("name", sorted(BODIES))
def test_gradients_where_integers_wrap(name: str, is_known: bool, size: int) -> None:
    n: Any = size if is_known else te.var("n")
    x, head = te.placeholder((n,), "float64", name="x"), te.placeholder((n,), "float64", name="head")
    y = te.compute((n,), lambda i: BODIES[name](x, n, i), name="y")
    (gradient,) = te.differentiate(y, [x], head=head)
    rng = np.random.default_rng(0)
    feeds = {x: rng.standard_normal(size), head: rng.standard_normal(size)}
    columns = [te.interpret([y], {x: unit})[0] for unit in np.eye(size)]
    expected = np.array(columns) @ feeds[head]
    np.testing.assert_allclose(te.interpret([gradient], feeds)[0], expected, rtol=1e-12)
    found = te.build([x, head], [y, gradient])(*feeds.values())
    np.testing.assert_array_equal(found[0], te.interpret([y], feeds)[0])
    np.testing.assert_allclose(found[1], expected, rtol=1e-12)
