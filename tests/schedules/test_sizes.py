"""Programs of symbolic extents get the patterns of known ones, are right for every size, and take as much code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tedsl as te
from tedsl.analysis.sizes import concrete_shape
from tedsl.backend.compiling import variant_source

RANDOM = np.random.default_rng(11)
Case = tuple[list[te.Tensor], list[te.Tensor]]


def product(m: Any, k: Any, n: Any, layout: str = "NN") -> Case:
    a = te.placeholder((m, k) if layout[0] == "N" else (k, m), name="a")
    b = te.placeholder((k, n) if layout[1] == "N" else (n, k), name="b")
    r = te.reduce_axis(k, name="r")

    def term(i: Any, j: Any) -> Any:
        return (a[i, r] if layout[0] == "N" else a[r, i]) * (b[r, j] if layout[1] == "N" else b[j, r])

    return [a, b], [te.compute((m, n), lambda i, j: te.sum(term(i, j), axis=r), name="c")]


def batched(b: Any, m: Any) -> Case:
    a, c = te.placeholder((b, m, 24), name="a"), te.placeholder((b, 24, 40), name="c")
    return [a, c], [a @ c]


def layer(n: Any, h: Any, w: Any, stride: int = 1, which: str = "y", pool: bool = False) -> Case:
    """A convolution of 5 to 16 channels with a border of zeros, or a gradient of it; pooled, if asked."""
    x, f = te.placeholder((n, 5, h, w), name="x"), te.placeholder((16, 5, 3, 3), name="f")
    y = te.ops.conv2d(x, f, stride=stride, padding=1)
    if pool:
        y = te.ops.max_pool2d(te.ops.relu(y), 3, stride=2, padding=1)
    if which == "y":
        return [x, f], [y]
    g = te.placeholder(y.shape, name="g")
    return [x, f, g], [te.differentiate(y, {"x": x, "f": f}[which], head=g)]


def rows(function: Callable[[te.Tensor], te.Tensor], n: Any, m: Any, *, gradient: bool = False) -> Case:
    x = te.placeholder((n, m), name="x")
    y = function(x)
    g = te.placeholder(y.shape, name="g")
    return ([x, g], [y, te.differentiate(y, x, head=g)]) if gradient else ([x], [y])


def normalized(x: te.Tensor) -> te.Tensor:
    centred = x - x.mean(axis=1, keepdims=True)
    return centred / te.sqrt((centred * centred).mean(axis=1, keepdims=True) + 1e-5)


def turned(x: te.Tensor) -> te.Tensor:
    return te.compute(x.shape[::-1], lambda i, j: x[j, i] * 2.0, name="t")


def grouped(n: Any, m: Any) -> Case:
    """What is left of each group of m elements of a row without their largest."""
    x, k = te.placeholder((4, n * m), name="x"), te.reduce_axis(m, name="k")
    most = te.compute((4, n), lambda i, g: te.max(x[i, g * m + k], axis=k), name="most")
    return [x], [te.compute((4, n * m), lambda i, j: x[i, j] - most[i, j // m], name="y")]


CASES: dict[str, tuple[Callable[..., Case], int]] = {
    "product": (product, 3),
    "product NT": (lambda m, k, n: product(m, k, n, "NT"), 3),
    "product TN": (lambda m, k, n: product(m, k, n, "TN"), 3),
    "product, known sum": (lambda m, n: product(m, 70, n), 2),
    "product, few columns": (lambda m, k: product(m, k, 5), 2),
    "batched": (batched, 2),
    "layer": (layer, 3),
    "layer, stride 2": (lambda h, w: layer(2, h, w, 2), 2),
    "layer, data gradient": (lambda n, h: layer(n, h, 9, which="x"), 2),
    "layer, weight gradient": (lambda n, h: layer(n, h, 9, which="f"), 2),
    "pooled layer": (lambda h, w: layer(2, h, w, pool=True), 2),
    "softmax": (lambda n, m: rows(te.ops.softmax, n, m, gradient=True), 2),
    "softmax, known rows": (lambda m: rows(te.ops.softmax, 6, m), 1),
    "normalized": (lambda n, m: rows(normalized, n, m, gradient=True), 2),
    "sum of all": (lambda n, m: rows(lambda x: x.sum(), n, m), 2),
    "sum of a vector": (lambda n: rows(lambda x: x.reshape((n,)).sum(), n, 1), 1),
    "max of rows": (lambda n, m: rows(lambda x: x.max(axis=1), n, m), 2),
    "sum of columns": (lambda n, m: rows(lambda x: x.sum(axis=0), n, m), 2),
    "grouped": (grouped, 2),
    "turned": (lambda n, m: rows(turned, n, m), 2),
}
SIZES = ((1, 1, 1), (2, 3, 1), (3, 16, 17), (5, 33, 8), (70, 9, 50))
LARGE = {"sum of all": (130, 1030), "sum of a vector": (200_001,), "softmax": (3, 300), "max of rows": (5, 257)}


def arrays_for(inputs: list[te.Tensor], sizes: dict[te.Var, int]) -> list[np.ndarray[Any, Any]]:
    shapes = [concrete_shape(t, sizes) for t in inputs]
    return [RANDOM.standard_normal(s).astype(np.float32) for s in shapes]


@pytest.mark.share(2)
@pytest.mark.parametrize("name", CASES)
def test_results_are_those_of_the_reference_for_every_size(name: str) -> None:
    make, count = CASES[name]
    names = tuple(te.var(v) for v in "abc"[:count])
    inputs, outputs = make(*names)
    kernel = te.build(inputs, outputs)
    for values in (*SIZES, (0, 4, 3), (4, 0, 3), *([LARGE[name]] if name in LARGE else ())):
        sizes = dict(zip(names, values, strict=False))
        arrays = arrays_for(inputs, sizes)
        want = te.interpret(outputs, dict(zip(inputs, arrays, strict=True)), sizes)
        for got, expected in zip(kernel(*arrays, sizes=sizes), want, strict=True):
            scale = float(np.abs(expected).max(initial=0.0))
            np.testing.assert_allclose(got, expected, rtol=2e-4, atol=2e-5 * scale, err_msg=f"{values}")


@pytest.mark.parametrize("name", ["product", "layer", "pooled layer"])
def test_as_much_code_as_for_known_sizes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(variant_source, "are_proven", lambda *_, **__: False)  # checks of arrays are compiled for both
    monkeypatch.setenv("TEDSL_CACHE", "off")
    make, count = CASES[name]
    symbolic, fixed = (
        len(te.build(*make(*sizes)).source("stmt")) for sizes in (map(te.var, "abc"[:count]), (127, 139, 141)[:count])
    )
    assert symbolic < 2 * fixed


@pytest.mark.parametrize("m", [3, 4, 6])
def test_pieces_that_sizes_leave_empty_in_fused_loops(m: int) -> None:
    """The columns behind the m-th are none from 4 on: a fused loop would say that it writes the m-th."""
    columns, steps = te.var("columns"), te.var("steps")
    s = te.placeholder((steps, 4), name="s")

    def element(t: Any, i: Any, p: Any, j: Any, k: Any) -> Any:
        return te.select((j < columns) & (t >= 2) & (p == 0) & (i > 1), te.tanh(s[t - 1, i]) + k, 0.0)

    width = te.maximum(columns, 4)
    kernel = te.build([s], te.compute((steps, 4, 2, width, steps), element, name="y"))
    given = RANDOM.standard_normal((6, 4), dtype="float32")
    t, i, p, j, k = np.ogrid[:6, :4, :2, : max(m, 4), :6]
    want = np.where((j < m) & (t >= 2) & (p == 0) & (i > 1), np.tanh(given[t - 1, i]) + k, 0)
    np.testing.assert_allclose(kernel(given, sizes={columns: m}), want, rtol=1e-5)
