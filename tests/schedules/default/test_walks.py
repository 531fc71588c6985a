"""Sums made in one walk, and sums of which others are made: which they are, and that results are right to the bit."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import tedsl as te
from schedules.default import LOWEST, assuming, walks
from tedsl import ops
from tedsl.lang.extents import number
from tedsl.lang.tensor import Compute
from tests.arrays import floats
from tests.work import calls_in

MACHINE = {
    "vector_bytes": 32, "vector_registers": 16, "l1": 1 << 15, "l2": 1 << 19, "l3": 1 << 25, "cores": 2, "gpu": None,
    "choices": [],
}  # fmt: skip
ALONE = {"walks": 1 << 40}


def sums_of(outputs: list[te.Tensor]) -> list[list[str]]:
    """The sums of the default schedule that walk through arrays of the program, by the terms that they add."""
    plan = te.Schedule(outputs).auto(machine=MACHINE).plan
    sums = [op for op in plan.program.stages.values() if isinstance(op, Compute) and op.reduction is not None]
    return [[str(v) for v in op.reduction.values] for op in sums if op.reduction is not None and points(op) > 1 << 17]


def points(op: Compute) -> int:
    """The terms of all sums of a stage."""
    assert op.reduction is not None
    return math.prod(number(a.extent) or 0 for a in (*op.axes, *op.reduction.axes))


def moments(x: te.Tensor) -> list[te.Tensor]:
    """Three sums over each row, of which one is of products under a condition."""
    j, k, m = (te.reduce_axis(x.shape[1]) for _ in range(3))
    rows = x.shape[:1]
    return [
        te.compute(rows, lambda i: te.sum(x[i, j], axis=j), name="first"),
        te.compute(rows, lambda i: te.sum(x[i, k] * x[i, k], axis=k), name="second"),
        te.compute(
            rows, lambda i: te.sum(te.select(x[i, m] > 0, x[i, m] * x[i, m] * x[i, m], 0.0), axis=m), name="third"
        ),
    ]


@pytest.mark.parametrize(
    ("shape", "dtype", "choices"),
    [((33, 100), "float32", LOWEST), ((2, 20011), "float64", {}), ((300, 3), "float32", {})],
)
def test_sums_in_one_walk_are_those_of_the_reference(
    shape: tuple[int, ...], dtype: str, choices: dict[str, int]
) -> None:
    x = te.placeholder(shape, dtype, name="x")
    given = floats(*shape).astype(dtype)
    with assuming(choices):
        found = te.evaluate(moments(x), {x: given})
    for got, want in zip(found, te.interpret(moments(x), {x: given}), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-5 if dtype == "float32" else 1e-13, atol=1e-4)


@pytest.mark.parametrize("columns", [False, True])
def test_bits_are_those_of_walks_of_their_own(columns: bool) -> None:
    """Terms that are products are added with one rounding, whatever is beside them."""
    x = te.placeholder((130, 90), name="x")
    outputs = moments(x.T if columns else x)
    given = floats(130, 90)
    found = {}
    for name, choices in {"together": {"walks": 1}, "alone": ALONE}.items():
        with assuming({**choices, "lanes": 1, "cores": 1}):
            found[name] = te.build([x], outputs, target="host")(given)
    for got, want in zip(found["together"], found["alone"], strict=True):
        np.testing.assert_array_equal(got, want)


def test_what_one_array_is_read_for_is_one_walk() -> None:
    x, g = te.placeholder((500, 1000), name="x"), te.placeholder((500, 1000), name="g")
    assert len(sums_of(moments(x)[:2])) == 1
    assert len(sums_of([(x * g).sum(0), g.sum(0)])) == 1
    assert len(sums_of([x.sum(0), g.sum(0)])) == 2  # nothing in common
    assert len(sums_of([x.sum(0), x.sum(1)])) == 2
    mean = x.mean(1, keepdims=True)
    assert len(sums_of([((x - mean) * (x - mean)).sum(1)])) == 2  # the one needs the other


def test_sums_of_which_one_needs_what_is_made_of_another_stay_apart() -> None:
    x, g = te.placeholder((64, 900), name="x"), te.placeholder((64, 900), name="g")
    a, b = x.sum(1), g.sum(1)
    c = (x * b.reshape((64, 1))).sum(1)
    d = (g * a.reshape((64, 1))).sum(1)
    given = {x: floats(64, 900), g: floats(64, 900)}
    with assuming({"walks": 1}):
        found = te.evaluate([a, b, c, d], given)
    for got, want in zip(found, te.interpret([a, b, c, d], given), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-3)


NORMS: dict[str, Any] = {
    "groups": lambda x, w, b: ops.group_norm(x, 4, w, b),
    "batch": lambda x, w, b: ops.batch_norm(x, None, None, w, b, training=True),
    "instance": ops.instance_norm,
}


@pytest.mark.parametrize("name", NORMS)
def test_gradients_of_a_norm_walk_twice(name: str) -> None:
    """Once for the mean, and once for all sums that need it: no difference from the mean is taken apart."""
    x, g = (te.placeholder((4, 64, 112, 112), name=n) for n in "xg")
    w, b = (te.placeholder((64,), name=n) for n in "wb")
    y = NORMS[name](x, w, b)
    found = sums_of([y, *te.differentiate(y, [x, w, b], head=g)])
    assert len(found) == 2
    assert len(found[0]) == 1
    assert 3 <= len(found[1]) <= 4


@pytest.mark.parametrize("name", ["groups", *(pytest.param(n, marks=pytest.mark.long) for n in ("batch", "instance"))])
def test_gradients_of_norms_are_those_of_the_reference(name: str) -> None:
    x, g = (te.placeholder((3, 8, 5, 7), "float64", name=n) for n in "xg")
    w, b = (te.placeholder((8,), "float64", name=n) for n in "wb")
    y = NORMS[name](x, w, b)
    outputs = [y, *te.differentiate(y, [x, w, b], head=g)]
    feeds = {t: floats(*t.shape).astype("float64") for t in (x, g, w, b)}
    with assuming(LOWEST):
        found = te.evaluate(outputs, feeds)
    for got, want in zip(found, te.interpret(outputs, feeds), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-10)


def test_a_difference_that_cancels_is_not_taken_apart() -> None:
    """The sum of x - 1e6 is exact; that of x, less n times 1e6, has no digit left."""
    x, at, g = (
        te.placeholder((40, 400), name="x"),
        te.placeholder((40,), name="at"),
        te.placeholder((40, 400), name="g"),
    )
    centered = te.compute((40, 400), lambda i, j: x[i, j] - at[i], name="centered")
    outputs = [centered.sum(1), (centered * g).sum((0, 1)), g.sum(1), centered.sum((0, 1))]
    given = np.float32(1e6) + np.round(floats(40, 400) * 4) / 16
    feeds = {x: given.astype("float32"), at: np.full(40, 1e6, "float32"), g: np.ones((40, 400), "float32")}
    found = te.evaluate(outputs, feeds)
    exact = (feeds[x].astype("float64") - 1e6).sum(1)
    np.testing.assert_allclose(found[0], exact, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found[3], exact.sum(), rtol=1e-5, atol=1e-4)


def test_parts_of_several_loops_share_tasks_under_names_of_their_own() -> None:
    """What rows leave over is a sum over a loop named `row`, and so are the parts of a task."""
    x, g = (te.placeholder((8, 64, 56, 56), name=n) for n in "xg")
    w, b = (te.placeholder((64,), name=n) for n in "wb")
    y = ops.group_norm(x, 4, w, b)
    schedule = te.Schedule([y, *te.differentiate(y, [x, w, b], head=g)]).auto()
    assert "+=" in str(schedule)


def test_four_times_the_layers_take_about_four_times_the_work() -> None:
    """Of a residual network every sum reads all of what came before, through pointwise stages."""

    def scheduled(layers: int) -> None:
        h, parameters = te.placeholder((64, 256), name="x"), list[te.Tensor]()
        for k in range(layers):
            w, g, b = (te.placeholder(s, name=f"{n}{k}") for n, s in (("w", (256, 256)), ("g", (256,)), ("b", (256,))))
            parameters += [w, g, b]
            h = te.ops.layer_norm(te.relu(h @ w) + h, (256,), g, b)
        loss = (h * h).sum()
        gradients = te.differentiate(loss, parameters)
        work.append(calls_in(lambda: te.Schedule([loss, *gradients]).auto()))

    work: list[int] = []
    for layers in (3, 12):
        scheduled(layers)
    assert work[1] < 5 * work[0]


def test_what_a_sum_reads_is_looked_up_only_beside_another_over_the_same_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[Any] = []
    places = walks._Search._places

    def counted(self: Any, value: Any, sums: Any) -> Any:
        looked.extend(sums)
        return places(self, value, sums)

    monkeypatch.setattr(walks._Search, "_places", counted)
    x = te.placeholder((256, 100), name="x")
    j, k = te.reduce_axis(100), te.reduce_axis(60)
    alone = [
        te.compute((256,), lambda i: te.sum(x[i, j], axis=j)),
        te.compute((256,), lambda i: te.sum(x[i, k], axis=k)),
    ]
    sums_of(alone)
    assert not looked
    sums_of(moments(x))
    assert looked


def test_sums_over_the_corners_of_one_cell_look_each_corner_up_once() -> None:
    """Gradients by the coordinates of a trilinear look-up brought the same 24 elements three times."""
    image, table = te.placeholder((128, 96, 2), name="image"), te.placeholder((9, 9, 3), name="table")

    def value(y: te.Expr, x: te.Expr, c: te.Expr) -> te.Expr:
        places = [te.clip(image[y, x, d], 0, 1) * 8 for d in range(2)]
        low = [te.minimum(te.floor(p), 7) for p in places]
        corner = [te.reduce_axis(2) for _ in range(2)]
        weights = [te.select(k == 1, p - q, 1 - (p - q)) for p, q, k in zip(places, low, corner, strict=True)]
        i, j = (te.cast(q, "int32") + k for q, k in zip(low, corner, strict=True))
        return te.sum(weights[0] * weights[1] * table[i, j, c], axis=corner)

    gradient = te.differentiate((te.compute((128, 96, 3), value) ** 2).sum(), image)
    arrays = {image: np.abs(floats(128, 96, 2)) % 1, table: floats(9, 9, 3)}

    together = te.build([image, table], gradient)
    with assuming(ALONE):
        apart = te.build([image, table], gradient)
    assert ["_and_" in kernel.loop_nest() for kernel in (together, apart)] == [True, False]
    found = together(*arrays.values())
    np.testing.assert_array_equal(found, apart(*arrays.values()))
    np.testing.assert_allclose(found, te.interpret(gradient, arrays), rtol=1e-4, atol=1e-3)
