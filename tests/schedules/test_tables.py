"""Tables of what a sum of products reads: what their elements are, and that no term is refused for one nobody needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tedsl as te
from tests.schedules.comparison import compare

RANDOM = np.random.default_rng(23)
Rule = Callable[..., Any]


def floats(*shape: int) -> np.ndarray[Any, Any]:
    return RANDOM.standard_normal(shape).astype(np.float32)


def by_digits(x: te.Tensor, w: te.Tensor, stride: int, pad: int) -> Rule:
    """Which taps reach an element, by floor and remainder."""
    channels, _, taps = w.shape
    c, a = te.reduce_axis(channels, "c"), te.reduce_axis(-(-taps // stride), "a")

    def body(n: Any, o: Any, i: Any) -> Any:
        weight = w.at(c, o, (i + pad) % stride + stride * a, mode="zero" if taps % stride else "error")
        return te.sum(x.at(n, c, (i + pad) // stride - a, mode="zero") * weight, axis=[c, a])

    return body


def by_divisibility(x: te.Tensor, w: te.Tensor, stride: int, pad: int) -> Rule:
    """The taps whose distance the stride divides, those inside the row by the place before it is divided."""
    (channels, _, taps), width = w.shape, x.shape[2]
    c, k = te.reduce_axis(channels, "c"), te.reduce_axis(taps, "k")

    def body(n: Any, o: Any, i: Any) -> Any:
        at = i + pad - k
        inside = (at % stride == 0) & (at >= 0) & (at < width * stride)
        return te.sum(x[n, c, at // stride] * w[c, o, k], axis=[c, k], where=inside)

    return body


@pytest.mark.share(2)
@pytest.mark.parametrize("spelling", [by_digits, by_divisibility], ids=lambda f: f.__name__)
@pytest.mark.parametrize(("taps", "stride", "pad", "more"), [(4, 2, 1, 0), (3, 2, 1, 0), (5, 3, 2, 1), (7, 4, 3, 0)])
def test_transposed_convolutions(spelling: Rule, taps: int, stride: int, pad: int, more: int) -> None:
    x, w = te.placeholder((2, 8, 30), name="x"), te.placeholder((8, 16, taps), name="w")
    count = 29 * stride - 2 * pad + taps + more
    y = te.compute((2, 16, count), spelling(x, w, stride, pad), name="y")
    head = te.placeholder((2, 16, count), name="head")
    grads = te.differentiate(y, [x, w], head=head)
    compare([x, w, head], [y, *grads], [floats(2, 8, 30), floats(8, 16, taps), floats(2, 16, count)])


def test_a_condition_on_two_loops_adds_no_dimension() -> None:
    n = 300
    x, w, k = te.placeholder((n, n), name="x"), te.placeholder((n, 64), name="w"), te.reduce_axis(n, "k")
    y = te.compute((n, 64), lambda i, j: te.sum(te.select(i + k < n, x[i, k], 0.0) * w[k, j], axis=k), name="y")
    kernel = te.build([x, w], y)
    a, b = floats(n, n), floats(n, 64)
    np.testing.assert_allclose(kernel(a, b), np.where(np.add.outer(range(n), range(n)) < n, a, 0) @ b, atol=1e-3)
    assert kernel.stats.peak_bytes < 8 * n * n * 4


def test_every_second_row_makes_a_table_of_those() -> None:
    x, w, k = te.placeholder((127, 300), name="x"), te.placeholder((300, 64), name="w"), te.reduce_axis(300, "k")
    y = te.compute((64, 64), lambda i, j: te.sum(x[2 * i, k] * w[k, j], axis=k), name="y")
    kernel = te.build([x, w], y)
    a, b = floats(127, 300), floats(300, 64)
    np.testing.assert_allclose(kernel(a, b), a[::2] @ b, atol=1e-3)
    compare([x, w], [y], [a, b])


def test_layers_of_a_kind_ask_as_the_first_does() -> None:
    x = te.placeholder((2, 8, 30), name="x")
    filters = [te.placeholder((8, 8, 3), name=f"w{k}") for k in range(3)]
    layer = x
    for w in filters:
        count = layer.shape[2]
        layer = te.compute((2, 8, 2 * count - 1), by_divisibility(layer, w, 2, 1))
    compare([x, *filters], [layer], [floats(2, 8, 30), *(floats(8, 8, 3) for _ in filters)])


def test_a_looked_up_row_that_is_not_there_is_told_as_it_was_written() -> None:
    table, w = te.placeholder((50, 64), name="table"), te.placeholder((64, 40), name="w")
    codes, k = te.placeholder((200,), "int32", name="codes"), te.reduce_axis(64, "k")
    y = te.compute((200, 40), lambda i, j: te.sum(table[codes[i], k] * w[k, j], axis=k), name="y")
    kernel = te.build([table, codes, w], y)
    a, b, places = floats(50, 64), floats(64, 40), RANDOM.integers(0, 50, 200).astype(np.int32)
    np.testing.assert_allclose(kernel(a, places, b), a[places] @ b, atol=1e-4)
    places[77] = 50
    with pytest.raises(IndexError, match=r"compute 'y' at .*`codes\[i\]`.* 50") as caught:
        kernel(a, places, b)
    assert "_rows" not in str(caught.value)
