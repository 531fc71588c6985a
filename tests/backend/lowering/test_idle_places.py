"""Elements that are the same along an axis: what a reader would compute to know where along it is not in the way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tedsl as te
from schedules.default import stored
from schedules.plan import Plan
from schedules.program import program_of
from tedsl.analysis.idle_places import idle_places

PLACES = np.random.default_rng(0).integers(0, 3, (2, 7)).astype("int32")
a = te.placeholder((2, 7), "int32", name="a")
r0, r1 = te.reduce_axis(2, "r0"), te.reduce_axis(7, "r1")
STORED: dict[str, Callable[[], te.Tensor]] = {
    "scatter": lambda: te.scatter((2, 7), [r0, r1], (r0, te.clip(a[r0, r1], 0, 6)), r1),
    "sum": lambda: te.compute((2, 7), lambda i, j: te.sum(a[i, r1] * j, axis=r1)),
    "scan": lambda: te.scan((2, 7), lambda s, t, i: te.select(t == 0, a[0, i], s[t - 1, i] + a[t, i])),
}
ELEMENTS: dict[str, Callable[[Any, Any], Any]] = {
    "one number": lambda i, j: te.const(2.0, "float32"),
    "a number for each row": lambda i, j: te.cast(i, "float32"),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("mode", ["clamp", "zero", "wrap"])
@pytest.mark.parametrize("elements", ELEMENTS)
@pytest.mark.parametrize("name", STORED)
def test_places_that_do_not_matter(name: str, elements: str, mode: str) -> None:
    """Halide wrote the stage out, dropped the index with it, and missed the bounds of the stage in the index."""
    place, even = STORED[name](), te.compute((2, 7), ELEMENTS[elements], name="even")
    twice = te.compute((2, 7), lambda i, j: even[i, j] * 2, name="twice")
    read = [te.compute((2, 7), lambda i, j, t=t: t.at(i, place[i, j], mode=mode)) for t in (even, twice)]
    feeds = {a: PLACES}
    for output in read:
        np.testing.assert_array_equal(te.evaluate(output, feeds), te.interpret(output, feeds))


def test_places_out_of_bounds_are_found_all_the_same() -> None:
    place, even = STORED["sum"](), te.compute((2, 7), ELEMENTS["one number"], name="even")
    output = te.compute((2, 7), lambda i, j: even[i, te.minimum(place[i, j] + 7, 90)])
    with pytest.raises(IndexError, match="of dimension 1 of even"):
        te.evaluate(output, {a: PLACES})


def test_dimensions_along_which_all_elements_are_the_same() -> None:
    x = te.placeholder((3, 4), name="x")
    rows = te.compute((3, 4), lambda i, j: x[i, 0])
    turned = te.compute((4, 3), lambda i, j: rows[j, i] + rows[j, j])
    both = te.compute((3, 4), lambda i, j: (rows[0, j] + i, x[i, j]))
    summed = te.compute((3,), lambda i: te.sum(lambda k: rows[0, k]))
    found = idle_places([rows.op, turned.op, both[0].op, summed.op])
    assert found == {rows: {1}, turned: {0}, both[0]: {1}}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("shape", [(1, 7), (2, 7), (3, 1), (2, 3, 40)])
def test_slopes_of_the_sum_of_sorted_rows(shape: tuple[int, ...]) -> None:
    x = te.placeholder(shape, "float64", name="x")
    rows = te.sort(x)
    values = np.random.default_rng(0).normal(size=shape)
    ordered, slope = te.evaluate([rows, te.differentiate(rows.sum(), x)], {x: values})
    np.testing.assert_array_equal(ordered, np.sort(values))
    np.testing.assert_array_equal(slope, np.ones(shape))


def test_stages_that_are_stored_whole_are_those_with_loops() -> None:
    """The last way to compile asked for loops of Python functions, too."""
    x = te.placeholder((2, 7), name="x")
    output = te.exp(te.sort(x) * 2).sum()
    plan = stored(Plan(program_of([output])))
    assert set(plan.program.stages) - set(plan.places) == {"x_sorted", "output"}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("inline", [True, False])
@pytest.mark.parametrize("kind", ["sum", "max", "custom", "scatter"])
def test_a_loop_that_stands_in_such_places_alone(kind: str, *, inline: bool) -> None:
    """Halide was not told of the place, met no loop, and could not schedule it: a kernel without vectors, or none."""
    place = te.placeholder((8,), "int32", name="place")
    even = te.compute((7, 2), lambda i, j: a[j, j] * 2, name="even")
    k = te.reduce_axis(8, "k")
    if kind == "scatter":
        out = te.scatter((9,), [k], (te.const(4, "int32"),), even[place[k], 0], name="out")
    else:
        reducer: Any = {"sum": te.sum, "max": te.max, "custom": te.reducer(lambda p, q: p + q, 0)}[kind]
        out = te.compute((3, 8), lambda i, j: reducer(even[place[k], 0] + j, axis=k), name="out")
    s = te.Schedule(out)
    s[even].compute_inline() if inline else s[even].compute_root()
    s[out].unroll("k", 2)
    feeds = {a: PLACES, place: np.array([5, 3, 1, 1, 4, 3, 3, 5], "int32")}
    for schedule in (None, s):
        found = te.build(list(feeds), out, schedule=schedule)(*feeds.values())
        np.testing.assert_array_equal(found, te.interpret(out, feeds))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kind", ["prod", "max", "scatter"])
def test_a_loop_that_goes_round_whole_times(kind: str) -> None:
    """The place in the row of all elements does not hang on it."""
    x = te.placeholder((3, 3), "int32", name="x")
    n = te.var("n")
    k = te.reduce_axis(n, "k")
    if kind == "scatter":
        out = te.scatter((9,), [k], (te.const(4, "int32"),), x.at(1, k * 3, mode="wrap"), name="out")
    else:
        out = te.compute((3,), lambda i: getattr(te, kind)(x.at(i, k * 3, mode="wrap"), axis=k), name="out")
    s = te.Schedule(out)
    s[out].unroll("k", 2)
    value = np.arange(2, 11, dtype="int32").reshape(3, 3)
    row = {"prod": value[:, 0] ** 5, "max": value[:, 0], "scatter": np.eye(9, dtype="int32")[4] * value[1, 0] * 5}
    for schedule in (None, s):
        np.testing.assert_array_equal(te.build([x], out, schedule=schedule)(value, sizes={n: 5}), row[kind])
