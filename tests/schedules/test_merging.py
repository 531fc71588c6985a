"""Axes that a program walks together become one, and nothing but speed tells."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tedsl as te
from schedules.merging import merging_of
from tedsl.backend.compiling.forms import MERGED


def place(name: str, *shape: Any) -> te.Tensor:
    made: te.Tensor = te.placeholder(shape, "float32", name=name)
    return made


def shapes(inputs: list[te.Tensor], *outputs: te.Tensor) -> Any:
    """The shapes of inputs and outputs after merging; None where nothing is merged."""
    found = merging_of(inputs, outputs)
    return None if found is None else ([t.shape for t in found.inputs], [t.shape for t in found.outputs])


def test_pointwise_programs_are_one_loop() -> None:
    x, y = place("x", 20, 30, 3), place("y", 20, 30, 3)
    assert shapes([x, y], te.exp(x) * y, x - y) == ([(1800,), (1800,)], [(1800,), (1800,)])


def test_an_axis_used_alone_stays() -> None:
    x, w = place("x", 20, 30, 3), place("w", 3)
    assert shapes([x, w], x * w) is None  # rows and columns could be one, but no vector fills better for that
    assert shapes([x, w], te.compute((20, 30, 3), lambda i, j, c: x[i, j, c] * i)) == ([(20, 90), (3,)], [(20, 90)])


def test_reductions_keep_what_they_reduce_apart() -> None:
    x = place("x", 200, 5, 7)
    assert shapes([x], x.sum(axis=0)) == ([(200, 35)], [(35,)])
    assert shapes([x], x.sum(axis=2)) == ([(1000, 7)], [(1000,)])
    assert shapes([x], x.sum(axis=1)) is None
    assert shapes([x], x.sum()) == ([(7000,)], [()])
    assert shapes([x], te.compute((7,), lambda k: te.sum(lambda j, i: x[i, j, k]))) is None
    both = te.compute((200,), lambda i: te.sum(lambda j, k: x[i, j, k]))
    rest = te.compute((200, 5, 7), lambda i, j, k: x[i, j, k] + both[i])
    assert shapes([x], rest) == ([(200, 35)], [(200, 35)])


def test_rows_that_end_within_a_vector_are_reduced_as_one() -> None:
    x, whole = place("x", 57, 5, 385), place("whole", 57, 5, 384)
    assert shapes([x], x.max()) == ([(109725,)], [()])
    assert shapes([x], x.sum(axis=(1, 2))) == ([(57, 1925)], [(57,)])
    assert shapes([whole], whole.sum()) is None
    values = np.random.default_rng(0).integers(-4, 5, (57, 5, 385)).astype("float32")
    assert te.build([x], x.max())(values) == values.max()
    assert te.build([x], x.sum())(values) == values.sum()


def test_columns_that_are_reduced_are_one_stream() -> None:
    x, w = place("x", 40, 6, 288), place("w", 40)
    assert shapes([x], x.max(axis=0)) == ([(40, 1728)], [(1728,)])
    weighted = te.compute((6, 288), lambda j, k: te.sum(lambda i: x[i, j, k] * w[i]))
    assert shapes([x, w], weighted) == ([(40, 1728), (40,)], [(1728,)])
    a, b = place("a", 6, 288, 40), place("b", 40, 30)
    assert shapes([a, b], te.compute((6, 288, 30), lambda i, j, k: te.sum(lambda r: a[i, j, r] * b[r, k]))) is None
    c = place("c", 4, 6, 8, 264)
    assert shapes([c], c.sum((2, 3))) == ([(24, 2112)], [(24,)])  # as many loops of the sum as of the result
    feeds = {x: np.random.default_rng(0).integers(-4, 5, (40, 6, 288)).astype("float32"), w: np.ones(40, "float32")}
    np.testing.assert_array_equal(te.build([x, w], weighted)(*feeds.values()), te.interpret(weighted, feeds))


@pytest.mark.parametrize(
    "body",
    [
        lambda x, i, j: x[j, i],
        lambda x, i, j: x[19 - i, j],
        lambda x, i, j: x.at(i, j + 1, mode="clamp"),
        lambda x, i, j: x[i, i],
        lambda x, i, j: te.select(i > j, x[i, j], 0.0),
        lambda x, i, j: x[i, j] + x[i, 0],
        lambda x, i, j: x[i, j] + te.cast(j, "float32"),
    ],
)
def test_other_uses_keep_axes_apart(body: Any) -> None:
    x = place("x", 20, 20)
    assert shapes([x], te.compute((20, 20), lambda i, j: body(x, i, j))) is None


def test_parts_of_rows_keep_axes_apart() -> None:
    x = place("x", 20, 20)
    assert shapes([x], te.compute((10, 20), lambda i, j: x[i, j])) == ([(400,)], [(200,)])
    assert shapes([x], x[:, :10] * 2.0) is None
    assert shapes([x], te.compute((20, 20), lambda i, j: te.select(j < 7, x[i, j], 0.0))) is None


JOINS = {
    "rows": (lambda x: te.concatenate([x, x[2:9], 2.0 * x], 0), [(33 * 27,)]),
    "planes": (lambda x: te.concatenate([x[:, :3], 2.0 * x], 1), [(13, 36)]),
    "slice": (lambda x: x[3:11], [(8 * 27,)]),
    "stack": (lambda x: te.stack([x, 2.0 * x], 0), [(2, 13 * 27)]),
    "border": (lambda x: te.compute((15, 9, 3), lambda i, j, k: x.at(i - 1, j, k, mode="zero")), [(15 * 27,)]),
    "far": (lambda x: te.compute((9, 9, 3), lambda i, j, k: te.select(i > 99, 1.0, x[i, j, k])), [(9 * 27,)]),
    "either end": (
        lambda x: te.compute((12, 9, 3), lambda i, j, k: te.select((i <= 4) | (i >= 9), x[i, j, k], 7.0)), [(12 * 27,)]
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", JOINS)
def test_rows_from_another_place_on_are_one_axis(name: str) -> None:
    x = place("x", 13, 9, 3)
    body, expected = JOINS[name]
    y = body(x)
    assert shapes([x], y)[1] == expected
    a = np.random.default_rng(0).standard_normal((13, 9, 3)).astype("float32")
    kernel = te.build([x], y)
    np.testing.assert_array_equal(kernel(a), te.interpret(y, {x: a}))
    assert set(merged(kernel)) == {True}
    head = place("head", *y.shape)
    (slope,) = te.differentiate(y, [x], head=head)
    b = np.random.default_rng(1).integers(-4, 5, [int(n) for n in y.shape]).astype("float32")
    feeds = {x: a, head: b}
    np.testing.assert_array_equal(te.build([x, head], slope)(a, b), te.interpret(slope, feeds))


def test_one_stage_that_needs_the_axes_keeps_them_everywhere() -> None:
    x = place("x", 20, 20)
    assert shapes([x], (x * 2).T + x, te.exp(x)) is None


def test_axes_of_unknown_extents_are_one_of_unknown_extent() -> None:
    n, m = te.var("n"), te.var("m")
    x, y = place("x", n, 5, 3), place("y", m, n, 3)
    assert merging_of([x], [x * 2]).outputs[0].ndim == 1
    assert merging_of([y], [y * 2]).outputs[0].ndim == 1
    found = merging_of([y], [(y * y).mean()])
    assert found is not None
    (size,) = found.sizes
    assert found.inputs[0].extents == (size,)
    assert str(found.sizes[size]) in ("m * n * 3", "n * m * 3")
    assert merging_of([y], [y[1:] * 2]) is not None
    assert merging_of([place("z", m, n)], [place("z", m, n) * 2]) is None  # rows may be long


@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (5, 1), (40, 61), (300, 90)])
def test_unknown_sizes_are_walked_together(shape: tuple[int, int]) -> None:
    m, n = te.var("m"), te.var("n")
    x, y = place("x", m, n, 3), place("y", m, n, 3)
    a, b = np.random.default_rng(0).integers(-9, 9, (2, *shape, 3)).astype("float32")
    kernel = te.build([x, y], [te.exp(x) * y, ((x - y) ** 2).sum(), (x - y).max()])
    product, squares, most = kernel(a, b)
    np.testing.assert_allclose(product, np.exp(a) * b, rtol=1e-6)
    assert (squares, most) == (((a - b) ** 2).sum(), (a - b).max())
    assert merged(kernel)[0]
    strided = np.broadcast_to(a[:, :1], a.shape)
    np.testing.assert_allclose(kernel(strided, b)[0], np.exp(strided) * b, rtol=1e-6)


@pytest.mark.parametrize("rows", [5, 6, 30])
def test_unknown_rows_one_above_the_other_are_walked_together(rows: int) -> None:
    n = te.var("n")
    x, y = place("x", 5, n, 3), place("y", n, n, 3)
    both = te.concatenate([x, y[: n - 1]], 0) * 2
    a, b = np.random.default_rng(0).random((2, 40, rows, 3), "float32")
    np.testing.assert_array_equal(te.build([x, y], both)(a[:5], b[:rows]), np.concatenate([a[:5], b[: rows - 1]]) * 2)


def test_windows_of_one_by_one_are_no_windows() -> None:
    x, w = place("x", 2, 8, 14, 14), place("w", 4, 8, 1, 1)
    assert shapes([x, w], te.ops.conv2d(x, w)) == ([(2, 8, 196), (4, 8, 1, 1)], [(2, 4, 196)])


def test_scans_keep_their_axes() -> None:
    x = place("x", 20, 5)
    assert (
        shapes([x], te.scan((20, 5), lambda s, t, i: te.select(t == 0, x[0, i], s[t - 1, i] + x[t, i]), axis=0)) is None
    )


def merged(kernel: te.Kernel) -> list[bool]:
    """Of the forms that a kernel has compiled, which are on merged axes."""
    return [form.layout is MERGED for form in kernel.core.forms.variants]


def test_arrays_of_any_layout_give_the_same() -> None:
    x = place("x", 40, 6, 3)
    y = te.exp(x) - x
    kernel = te.build([x], y)
    a = np.random.default_rng(0).standard_normal((40, 6, 3)).astype("float32")
    expected = te.interpret(y, {x: a})
    wide = np.zeros((40, 12, 6), "float32")
    wide[:, ::2, 3:] = a
    for given in (a, np.asfortranarray(a), wide[:, ::2, 3:], a[::-1].copy()[::-1]):
        np.testing.assert_allclose(kernel(given), expected, rtol=1e-6)
    assert sorted(merged(kernel)) == [False, False, True]
    out = np.empty((3, 6, 40), "float32").T
    np.testing.assert_allclose(kernel(a, out=out), expected, rtol=1e-6)


def test_sums_onto_what_is_there() -> None:
    x = place("x", 33, 3)
    kernel = te.build([x], x * 2.0)
    a, out = np.full((33, 3), 2, "float32"), np.ones((33, 3), "float32")
    kernel(a, out=out, mode="add")
    assert (out == 5).all()
    assert set(merged(kernel)) == {True}


def test_in_place_as_before() -> None:
    x = place("x", 33, 3)
    y = te.exp(x)
    kernel = te.build([x], y, alias={y: x})
    a = np.random.default_rng(0).standard_normal((33, 3)).astype("float32")
    expected = np.exp(a)
    assert kernel(a, out=a) is a
    np.testing.assert_allclose(a, expected, rtol=1e-6)
    assert kernel.stats.copies == []
    assert merged(kernel) == [True]


def test_a_refused_alias_is_told_in_the_axes_of_the_program() -> None:
    x, y = place("x", 33, 3), place("y", 33, 3)
    doubled = te.compute((33, 3), lambda i, j: x[i, j] * 2, name="doubled")
    other = te.compute((33, 3), lambda i, j: doubled[i, j] + x[32 - i, j] * y[i, j], name="other")
    with pytest.raises(te.AliasError) as caught:
        te.build([x, y], [doubled, other], alias={doubled: x})
    assert "reads x[32 - i, j] for 'other'" in str(caught.value)
