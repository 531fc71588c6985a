"""Programs that choose by place and by data, drawn at random: gradients by differences, and nothing written beside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tedsl as te

BESIDE = 64  # numbers before and behind a result that nobody may write
MODES = ("clamp", "wrap", "zero", "reflect")


class Drawn:
    """A chain of one or two stages of rows, of which each element chooses what it is."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.n, self.m = int(self.rng.integers(3, 14)), int(self.rng.integers(3, 20))
        self.x = te.placeholder((self.n, self.m), "float64", name="x")
        self.w = te.placeholder((self.m,), "float64", name="w")
        self.d = te.placeholder((self.n,), "int32", name="d")
        h: te.Tensor = self.x
        for _ in range(int(self.rng.integers(1, 3))):
            h = te.compute((self.n, self.m), self._body(h), name="h")
        self.loss = (h * h * 0.3 + te.sin(h)).sum()

    def _body(self, h: te.Tensor) -> Callable[[Any, Any], Any]:
        depth, more = int(self.rng.integers(1, 4)), self.rng.random() < 0.5
        return lambda i, j: self._value(i, j, h, depth) + (self._value(i, j, h, 1) if more else 0)

    def _value(self, i: Any, j: Any, h: te.Tensor, depth: int) -> Any:
        if depth and self.rng.random() > 0.2:
            return te.select(self._condition(i, j), self._value(i, j, h, depth - 1), self._value(i, j, h, depth - 1))
        step, mode, w, m = int(self.rng.integers(-2, 3)), str(self.rng.choice(MODES)), self.w, self.m
        ways: list[Callable[[], Any]] = [
            lambda: h[i, j] * 1.5,
            lambda: h.at(i + step, j, mode=mode) * w[j],
            lambda: te.sin(h.at(i, j + step, mode=mode)),
            lambda: h[i, m - 1 - j] * h[i, j],
            lambda: h[self.n - 1 - i, j] + w[j] ** 2,
            lambda: te.sum(lambda q: h[i, q] * w[q], axis=m),
            lambda: h.at(i // 2, j, mode="clamp") * 2.0,
        ]
        return ways[int(self.rng.integers(len(ways)))]()

    def _condition(self, i: Any, j: Any) -> Any:
        place, by = int(self.rng.integers(self.n)), int(self.rng.integers(1, 4))
        ways: list[Callable[[], Any]] = [
            lambda: i % 2 == 0, lambda: j % 3 == place % 3, lambda: i == place, lambda: i < place,
            lambda: (i + j) % 2 == 1, lambda: (i >= place) & (j < self.m // 2), lambda: self.d[i] > 0,
            lambda: ~(j == 0), lambda: (i // by) % 2 == 0,
        ]  # fmt: skip
        return ways[int(self.rng.integers(len(ways)))]()


def called(kernel: Any, arrays: list[Any], shapes: list[tuple[int, ...]]) -> list[Any]:
    """The results of a call, written between numbers that stay as they are."""
    buffers = [np.full(2 * BESIDE + int(np.prod(s)), 7.0) for s in shapes]
    out = [b[BESIDE : len(b) - BESIDE].reshape(s) for b, s in zip(buffers, shapes, strict=True)]
    kernel(*arrays, out=out)
    for buffer in buffers:
        assert (buffer[:BESIDE] == 7).all()
        assert (buffer[-BESIDE:] == 7).all()
    return out


@pytest.mark.share(2)
@pytest.mark.parametrize("seed", range(24))
def test_gradients_of_choices_are_those_of_differences(seed: int) -> None:
    p = Drawn(seed)
    kernel = te.build([p.x, p.w, p.d], [p.loss, *te.differentiate(p.loss, [p.x, p.w])])
    x, w, d = p.rng.standard_normal((p.n, p.m)), p.rng.standard_normal(p.m), p.rng.integers(-1, 2, p.n).astype("int32")
    along, step = (p.rng.standard_normal(x.shape), p.rng.standard_normal(w.shape)), 1e-6
    shapes = [(), x.shape, w.shape]
    _, dx, dw = called(kernel, [x, w, d], shapes)
    ahead, back = (
        called(kernel, [x + s * along[0], w + s * along[1], d], shapes)[0] for s in (step, -step)
    )  # fmt: skip
    found = (dx * along[0]).sum() + (dw * along[1]).sum()
    assert abs((ahead - back) / (2 * step) - found) <= 1e-5 * (1 + np.abs(dx * along[0]).sum())


def test_a_choice_between_a_value_and_itself_is_one_value() -> None:
    """Both branches sent back all that came."""
    x, w = te.placeholder((5, 4), "float64", name="x"), te.placeholder((4,), "float64", name="w")
    total = te.compute((5,), lambda i: te.sum(lambda q: x[i, q] * w[q], axis=4), name="total")
    y = te.compute((5, 4), lambda i, j: te.select(i % 2 == 0, x[i, j], te.select(j % 3 == 0, total[i], total[i])))
    (dw,) = te.evaluate(te.differentiate(y.sum(), [w]), {x: np.ones((5, 4)), w: np.ones(4)})
    np.testing.assert_array_equal(dw, [8, 8, 8, 8])


def test_what_a_condition_on_data_reads_is_guarded_by_those_around_it() -> None:
    """Of a row read by two others, the second one may not be there: its flag was read past the end."""
    x, d = te.placeholder((7,), "float64", name="x"), te.placeholder((7,), "int32", name="d")
    y = te.compute((7,), lambda i: te.select(d[i] > 0, x[i] * 1.5, x[i // 2] * 2.0), name="y")
    flags = np.array([0, -1, 0, -1, -1, -1, 1], "int32")
    (dx,) = te.evaluate(te.differentiate(y.sum(), [x]), {x: np.ones(7), d: flags})
    np.testing.assert_array_equal(dx, [4, 4, 4, 0, 0, 0, 1.5])


@pytest.mark.parametrize(("n", "m"), [(29, 12), (11, 10), (13, 10), (21, 3)])
def test_short_rows_with_a_sum_of_each_write_nothing_past_the_end(n: int, m: int) -> None:
    """Whole vectors of the last turn of columns lie past the end: without a condition around them they were written."""
    x, w = te.placeholder((n, m), "float64", name="x"), te.placeholder((m,), "float64", name="w")
    total = te.compute((n,), lambda i: te.sum(lambda q: te.exp(x[i, q]) * w[q], axis=m), name="total")
    y = te.compute((n, m), lambda i, j: x[i, j] * w[j] + total[i], name="y")
    rng = np.random.default_rng(0)
    given = [rng.standard_normal((n, m)), rng.standard_normal(m)]
    for target in ("x86-64-v3", "x86-64-v4"):
        kernel = te.build([x, w], [y], target=target)
        if kernel.core.program.target.problem is None:
            (found,) = called(kernel, given, [(n, m)])
            np.testing.assert_allclose(found, given[0] * given[1] + (np.exp(given[0]) * given[1]).sum(1, keepdims=True))


def test_steps_of_which_nobody_reads_have_the_same_adjoints() -> None:
    x, steps = te.placeholder((5,), "float64", name="x"), list[te.Tensor]()
    for _ in range(8):
        before = steps[-1] if steps else x
        steps.append(te.compute((5,), lambda i, c=before: c[i] + 0.1 * te.sin(c[i])))
    loss = (te.stack(steps)[::7, 2] ** 2).sum()
    (found,) = gradients = te.differentiate(loss, [x])
    read = [line for line in str(gradients.explain()).splitlines() if line.startswith("stack ")]
    assert [line.split()[2] for line in read] == ["gather", "zero", "gather"]  # rows of alike ones are one line
    point = np.linspace(0.2, 1.0, 5)
    value, slope = point[2], 1.0
    expected = 0.0
    for step in range(8):
        slope *= 1 + 0.1 * np.cos(value)
        value += 0.1 * np.sin(value)
        expected += 2 * value * slope * (step in (0, 7))
    np.testing.assert_allclose(te.evaluate(found, {x: point}), [0, 0, expected, 0, 0], rtol=1e-12)
