"""Windows mirrored at a border of unknown size: parts that no size has are left out, and no loop is empty for most."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import tedsl as te
from autodiff.result import Gradients
from autodiff.turning.usual_sizes import by_sizes
from tedsl.analysis.sizes import evaluate_extent, vars_of
from tedsl.lang.tensor import Compute
from tedsl.lang.traverse import operations_between


def window(radius: int) -> tuple[te.Tensor, te.Tensor, Gradients]:
    """What is read by a weighted window, what is sent back to it, and the gradient, of sizes that are not known."""
    n, m = te.var("n"), te.var("m")
    x, head = te.placeholder((n, m), "float64", name="x"), te.placeholder((n, m), "float64", name="head")
    p, q = (te.reduce_axis(2 * radius + 1, name=name) for name in "pq")

    def element(i: te.Axis, j: te.Axis) -> te.Expr:
        return te.sum(x.at(i + p - radius, j + q - radius, mode="reflect") * (p * 7 + q + 1.0), axis=(p, q))

    return x, head, te.differentiate([te.compute((n, m), element)], [x], head=[head])


def mirrored(place: int, size: int) -> int:
    period = max(2 * size - 2, 1)
    return size - 1 - abs(size - 1 - place % period)


@pytest.mark.parametrize("radius", [1, 2, 3])
def test_every_size(radius: int) -> None:
    x, head, (gradient,) = window(radius)
    for shape in product((1, 2, 3, 4, 6), repeat=2):
        given, expected = np.random.default_rng(0).standard_normal(shape), np.zeros(shape)
        for i, j in np.ndindex(*shape):
            for p, q in product(range(2 * radius + 1), repeat=2):
                there = mirrored(i + p - radius, shape[0]), mirrored(j + q - radius, shape[1])
                expected[there] += given[i, j] * (7 * p + q + 1)
        found = te.interpret(gradient, {x: np.zeros(shape), head: given})
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12, err_msg=str(shape))


def test_parts_are_those_that_some_size_has() -> None:
    """Within, and what is mirrored or turned round at either end: the square of five."""
    *_, gradients = window(1)
    (read,) = gradients.explain().gathers
    assert read.answer is not None
    assert len(read.answer.found.gathers) == 25


def test_no_loop_is_empty_for_most_sizes() -> None:
    """A kernel would leave to the reference what such a loop is part of, at every call."""
    *inputs, gradients = window(1)
    extents = [
        axis.extent
        for op in operations_between(inputs, list(gradients))
        if isinstance(op, Compute) and op.reduction is not None
        for axis in op.reduction.axes
    ]
    assert extents
    assert all(evaluate_extent(extent, dict.fromkeys(vars_of(extent), 1)) > 0 for extent in extents)


def test_sizes_that_are_small_have_few_parts() -> None:
    """Nine where both sizes are large, three for each that is large alone, and one of a few points."""
    *inputs, gradients = window(2)
    stages = [op for op in operations_between(inputs, list(gradients)) if isinstance(op, Compute)]
    sums = [op.reduction for op in stages if op.reduction is not None]
    assert len(sums) == 16
    assert all(evaluate_extent(a.extent, dict.fromkeys(vars_of(a.extent), 99)) <= 5 for r in sums for a in r.axes)


def test_parts_that_are_mirrored_are_as_wide_as_they_are_read() -> None:
    """Not as what is left of a row, of which conditions leave the first two."""
    *inputs, gradients = window(2)
    stages = [op for op in operations_between(inputs, list(gradients)) if isinstance(op, Compute)]
    extents = {str(a.extent) for op in stages for a in op.axes}
    assert extents == {"2", "n", "m"}


@pytest.mark.share(5)
@pytest.mark.parametrize("mode", ["reflect", "wrap", "clamp"])
@pytest.mark.parametrize("shape", [(0, 4), (4, 0), (0, 0), (1, 3)])
@pytest.mark.parametrize("is_symbolic", [True, False])
def test_images_of_nothing_have_gradients(mode: str, shape: tuple[int, int], is_symbolic: bool) -> None:
    """The parts at the borders are of one row, though there may be none; the weights have gradients in any case."""
    sizes = (te.var("n"), te.var("m")) if is_symbolic else shape
    x, head, k = te.placeholder(sizes, name="x"), te.placeholder(sizes, name="head"), te.placeholder((3, 3), name="k")
    y = te.compute(
        sizes, lambda i, j: te.tanh(te.sum(lambda p, q: x.at(i + p - 1, j + q - 1, mode=mode) * k[p, q])), name="y"
    )
    outputs = [y, *te.differentiate(y, [x, k], head=head)]
    arrays = [np.ones(shape, "float32"), np.full((3, 3), 0.1, "float32"), np.ones(shape, "float32")]
    found = te.build([x, k, head], outputs)(*arrays)
    expected = te.interpret(outputs, dict(zip((x, k, head), arrays, strict=True)))
    assert [f.shape for f in found] == [shape, shape, (3, 3)]
    for f, want in zip(found, expected, strict=True):
        np.testing.assert_allclose(f, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mode", ["symmetric", "reflect", "wrap"])
def test_a_slice_that_is_never_long(mode: str) -> None:
    """The usual case was one of slices longer than this one can be, in which nothing is read: an error of ours."""
    n = te.var("n")
    x = te.placeholder((n,), "float64", name="x")
    padded = te.pad(x[1:3], ((1, 4),), mode=mode)
    gradient = te.differentiate((padded * padded).sum(), x)
    for size in range(2 if mode != "reflect" else 3, 7):
        given = np.arange(1.0, size + 1)
        places = np.pad(np.arange(size)[1:3], ((1, 4),), mode=mode)
        expected = np.bincount(places, 2 * given[places], size)
        np.testing.assert_allclose(te.evaluate(gradient, {x: given}), expected)


@pytest.mark.parametrize("is_mixed", [False, True])
def test_reads_that_are_written_out_have_one_other_case(is_mixed: bool) -> None:
    """In four cases, with parts that were stored, a 3 x 3 stencil lost the loops between its borders: 0.4 to 4.3 ms."""
    n, m = te.var("n"), te.var("m")
    x, head = te.placeholder((n, m), name="x"), te.placeholder((n, m), name="head")

    def written(i: te.Axis, j: te.Axis) -> te.Expr:
        return x.at(i + 1, j + 1, mode="reflect")

    def mixed(i: te.Axis, j: te.Axis) -> te.Expr:
        return te.sum(lambda k: k * x.at(i + k - 1, j + 1, mode="reflect"), axis=3)

    gradients = te.differentiate([te.compute((n, m), mixed if is_mixed else written)], [x], head=[head])
    (read,) = gradients.explain().gathers
    assert read.answer is not None
    usual, other = by_sizes(read.answer) or ()
    assert len(usual.answer.found.gathers) < len(read.answer.found.gathers)
    assert other.answer is read.answer
