"""Stages that read each other through windows: which are computed together row by row, and that their bits stay."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import tedsl as te
from schedules.default import LOWEST, assuming
from schedules.directives import Unroll
from tests.levels import LEVELS_HERE

CHANCE = np.random.default_rng(11)
SMALL = {**LOWEST, "cores": 4, "l2": 1 << 16}
SHAPE = (70, 37)
MACHINE = {
    "vector_bytes": 32, "vector_registers": 16, "l1": 1 << 15, "l2": 1 << 20, "l3": 1 << 24, "cores": 2, "gpu": None,
    "choices": [],
}  # fmt: skip


def blurred(a: te.Tensor) -> te.Tensor:
    """Two passes over what lies inside."""
    h, w = (int(n) for n in a.shape)
    across = te.compute((h, w - 2), lambda y, x: a[y, x] + a[y, x + 1] + a[y, x + 2], name="across")
    return te.compute((h - 2, w - 2), lambda y, x: across[y, x] + 2 * across[y + 1, x] + across[y + 2, x], name="out")


def corners(a: te.Tensor) -> te.Tensor:
    """Derivatives, sums of their products, and what is made of these."""
    h, w = (int(n) for n in a.shape)
    dy = te.compute((h - 2, w - 2), lambda y, x: a[y + 2, x] - a[y, x] + 2 * (a[y + 2, x + 1] - a[y, x + 1]), name="dy")
    dx = te.compute((h - 2, w - 2), lambda y, x: a[y, x + 2] - a[y, x] + 2 * (a[y + 1, x + 2] - a[y + 1, x]), name="dx")

    def total(p: te.Tensor, q: te.Tensor) -> te.Tensor:
        near = [(j, i) for j in range(3) for i in range(3)]
        return te.compute((h - 4, w - 4), lambda y, x: sum(p[y + j, x + i] * q[y + j, x + i] for j, i in near))

    xx, yy, xy = total(dx, dx), total(dy, dy), total(dx, dy)
    return te.compute(xx.shape, lambda y, x: xx[y, x] * yy[y, x] - xy[y, x] * xy[y, x], name="out")


def sharpened(a: te.Tensor) -> te.Tensor:
    """Borders, and planes that share what is computed."""
    h, w = (int(n) for n in a.shape)
    taps = (-2, -1, 0, 1)
    down = te.compute((h, w), lambda y, x: sum(a.at(y + k, x, mode="clamp") * (k + 3) for k in taps), name="down")
    both = te.compute((h, w), lambda y, x: sum(down.at(y + k, x + k, mode="clamp") for k in (-1, 0, 1)), name="both")
    return te.compute((3, h, w), lambda c, y, x: both[y, x] * a[y, x] - c, name="out")


def planes(a: te.Tensor) -> te.Tensor:
    """The same for each plane."""
    h, w = (int(n) for n in a.shape)
    made = te.compute((3, h, w - 1), lambda c, y, x: (a[y, x] + a[y, x + 1]) * (c + 1), name="made")
    body = lambda c, y, x: made[c, y, x] + made[c, y + 1, x] * made[c, y + 2, x]  # noqa: E731
    return te.compute((3, h - 2, w - 1), body, name="out")


def normalised(a: te.Tensor) -> te.Tensor:
    """No window, but each plane is divided by another one, of which no row comes before those of all planes."""
    h, w = (int(n) for n in a.shape)
    near = lambda k, y, x: a.at(y, x + k, mode="clamp")  # noqa: E731
    made = te.compute((4, h, w), lambda c, y, x: sum(near(k, y, x) * near(-k, y, x) * (c + k) for k in range(5)))
    made = te.compute((4, h, w), lambda c, y, x: made[c, y, x] * made[3, y, x] + 1.0, name="made")
    return te.compute((3, h, w), lambda c, y, x: made[c, y, x] - 2.0 * made[3, y, x], name="out")


def toned(a: te.Tensor) -> te.Tensor:
    """Colors made of a picture at all channels, through a table, then a window over each of them."""
    h, w = (int(n) for n in a.shape)
    table = te.compute((64,), lambda i: te.exp(te.cast(i, "float64") * 0.0) * i, name="table")

    def color(c: Any, y: Any, x: Any) -> Any:
        mixed = sum((c + k) * a.at(y, x + k, mode="clamp") * a[y, x] for k in range(3))
        return table[te.cast(te.clip(mixed, 0.0, 63.0), "int32")]

    made = te.compute((3, h, w), color, name="made")
    return te.compute((3, h - 1, w), lambda c, y, x: made[c, y, x] + 2 * made[c, y + 1, x] * a[y, x], name="out")


def mosaic(a: te.Tensor) -> te.Tensor:
    """Rows and columns of two kinds, each made of other neighbors, then a window over them."""
    h, w = (int(n) for n in a.shape)
    b = te.compute((h, w), lambda y, x: a[y, x] * a.at(y, x + 1, mode="clamp") + a.at(y + 1, x, mode="clamp"), name="b")

    def kind(y: Any, x: Any) -> Any:
        near = [b.at(y // 2 + j, x // 2 + i, mode="clamp") for j in range(3) for i in range(3)]
        odd = sum(n * m for n, m in itertools.pairwise(near))
        even = sum((n - 1) * (m + k) for k, (n, m) in enumerate(zip(near, near[2:], strict=False)))
        return te.select(y % 2 == 0, te.select(x % 2 == 0, near[4], even), te.select(x % 2 == 0, odd, near[0] - odd))

    made = te.compute((2 * h, w), kind, name="made")
    return te.compute((2 * h - 1, w), lambda y, x: made[y, x] + 2 * made[y + 1, x], name="out")


PROGRAMS = {
    "blurred": (blurred, {"across"}, True), "corners": (corners, {"dx", "dy"}, True),
    "sharpened": (sharpened, {"down", "both"}, False), "planes": (planes, {"made"}, True),
    "normalised": (normalised, {"made"}, True), "toned": (toned, {"made"}, True), "mosaic": (mosaic, set(), True),
}  # fmt: skip


@pytest.mark.share(2)
@pytest.mark.parametrize("level", LEVELS_HERE)
@pytest.mark.parametrize("name", PROGRAMS)
def test_results_and_gradients_are_those_of_the_reference(name: str, level: str) -> None:
    a = te.placeholder(SHAPE, "float64", name="a")
    out = PROGRAMS[name][0](a)
    head = te.placeholder(out.shape, "float64", name="head")
    gradient = te.differentiate(out, a, head=head)
    feeds = {t: CHANCE.integers(-2, 3, [int(n) for n in t.shape]).astype("float64") for t in (a, head)}
    with assuming(SMALL):
        found = te.build([a, head], [out, gradient], target=level)(*feeds.values())
    for got, want in zip(found, te.interpret([out, gradient], feeds), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("name", PROGRAMS)
def test_members_are_computed_within_the_rows_of_their_reader(name: str) -> None:
    program, members, slides = PROGRAMS[name]
    plan = te.Schedule([program(te.placeholder((1026, 1030), "float64", name="a"))]).auto(machine=MACHINE).plan
    inside = {stage for stage, step in plan.places.items() if step.directive.verb == "compute_at"}
    assert inside == members
    assert set(plan.stores) == (members if slides else set())


def test_what_channels_share_is_computed_once_for_all_of_them() -> None:
    """Each channel looked all of it up again, from loads of its own."""
    plan = te.Schedule([toned(te.placeholder((1026, 1030), "float64", name="a"))]).auto(machine=MACHINE).plan
    said = [step.directive for step in plan.loops["made", "body"]]
    assert Unroll(stage="made", loop="c_u") in said


def test_a_table_is_not_computed_where_it_is_looked_up() -> None:
    plan = te.Schedule([toned(te.placeholder((1026, 1030), "float64", name="a"))]).auto(machine=MACHINE).plan
    assert plan.places["table"].directive.verb == "compute_root"


def test_small_stages_stay_apart() -> None:
    """What fits into the cache is computed as a whole."""
    assert not te.Schedule([blurred(te.placeholder((64, 64), name="a"))]).auto(machine=MACHINE).plan.stores


def test_rows_that_are_held_at_an_end() -> None:
    """With windows that slide the first rows were left out: of each one Halide took the beginning to be there."""
    h, w = 40, 8
    a, head = te.placeholder((h, w), "float64", name="a"), te.placeholder((h, w), "float64", name="head")
    first = te.compute((h, w), lambda y, x: a[y, x] + 2 * a.at(y, x - 1, mode="zero") + a.at(y + 1, x, mode="zero"))

    def near(t: te.Tensor, by: int) -> Any:
        return lambda y, x: t[y, x] + 3 * t.at(y, x + by, mode="zero")

    second = te.compute((h, w), near(first, -1), name="second")
    out = te.compute((h, w), near(second, 2), name="out")
    gradient = te.differentiate(out, a, head=head)
    feeds = {t: CHANCE.integers(-2, 3, (h, w)).astype("float64") for t in (a, head)}
    for strip in (1, 2, 5, 40):
        with assuming({**SMALL, "strip": strip}):
            found = te.build([a, head], gradient)(*feeds.values())
        np.testing.assert_array_equal(found, te.interpret(gradient, feeds))


def test_columns_of_one_element_have_no_vectors_within_their_rows() -> None:
    a = te.placeholder((40, 1), name="a")
    down = te.compute((38, 1), lambda y, x: te.tanh(a[y, x]) + a[y + 1, x] * a[y + 2, x], name="down")
    outputs = [te.compute((36, 1), lambda y, x, k=k: down[y, x] + k * down[y + 2, x], name=f"out{k}") for k in (1, 2)]
    given = CHANCE.integers(-2, 3, (40, 1)).astype("f4")
    with assuming(SMALL):
        found = te.evaluate(outputs, {a: given})
    for got, want in zip(found, te.interpret(outputs, {a: given}), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6)


def test_a_root_whose_members_make_it_cheap_keeps_its_loops() -> None:
    """It was to be computed where it is read as well, which a schedule refuses."""
    a = te.placeholder((19, 33), name="a")
    b = te.compute(a.shape, lambda i, j: a[i, j] * 2 + a.at(i, j - 1, mode="zero") + a.at(i, j + 1, mode="zero"))
    c = te.compute(a.shape, lambda i, j: b[i, j] * 2 + b.at(i - 1, j, mode="clamp") + b[i, j])

    def mirrored(x: te.Tensor, by: int) -> Any:
        return lambda i, j: x[i, j] * 2 + x.at(i + by, j, mode="reflect") + x.at(i + by, j, mode="reflect") + x[i, j]

    y = te.compute(a.shape, mirrored(te.compute(a.shape, mirrored(c, 2)), 1))
    values = CHANCE.integers(-2, 3, a.shape).astype("float32")
    with assuming({**LOWEST, "cores": 4, "l1": 2 << 10, "l2": 8 << 10, "l3": 32 << 10}):
        np.testing.assert_array_equal(te.evaluate(y, {a: values}), te.interpret(y, {a: values}))


@pytest.mark.parametrize(
    ("shape", "figures"),
    [
        ((12, 300, 640), {"cores": 8, "l2": 1 << 19}),  # a row of one plane fits the cache, no row of all planes
        ((12, 300, 640), {"cores": 64}),  # planes are tasks as well
        ((300, 640), {"cores": 8}), ((1080, 1920), {"cores": 32}),
    ],
)  # fmt: skip
def test_a_wide_window_on_cheap_differences_has_them_in_the_cache(shape: Any, figures: Any) -> None:
    """They were computed for each of its 25 places: a matter of the planes, and of how many cores there are."""
    *planes, h, w = shape
    a, b = (te.placeholder((h, w), "uint8", name=name) for name in "ab")

    def difference(*at: Any) -> Any:
        *s, i, j = at
        return te.abs(te.cast(a[i, j], "int32") - te.cast(b[i, te.maximum(j - sum(s), 0)], "int32"))

    p, q = te.reduce_axis((-2, 3)), te.reduce_axis((-2, 3))
    if planes:
        d = te.compute(shape, lambda s, i, j: difference(s, i, j), name="d")
        near = lambda s, i, j: te.sum(d[s, te.clip(i + p, 0, h - 1), te.clip(j + q, 0, w - 1)], axis=(p, q))  # noqa: E731
    else:
        d = te.compute(shape, lambda i, j: difference(i, j), name="d")
        near = lambda i, j: te.sum(d[te.clip(i + p, 0, h - 1), te.clip(j + q, 0, w - 1)], axis=(p, q))  # noqa: E731
    plan = te.Schedule([te.compute(shape, near, name="out")]).auto(machine={**MACHINE, **figures}).plan
    assert plan.places["d"].directive.verb == "compute_at"
