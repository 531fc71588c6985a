"""Scans whose steps sum over all of the step before: recurrent layers as people write them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import tedsl as te
from schedules.default import LOWEST, assuming
from tests.levels import PROCESSORS, processor

RANDOM = np.random.default_rng(5)


def recurrent(steps: int, rows: int, width: int, *, across: bool, dtype: str = "float32") -> list[te.Tensor]:
    """x[t] plus a product of the step before, clipped so that numbers stay small."""
    x = te.placeholder((steps, rows, width), dtype, name="x")
    u = te.placeholder((width, width), dtype, name="u")

    def step(h: Any, t: Any, b: Any, j: Any) -> Any:
        before = te.sum(lambda k: h[t - 1, b, k] * (u[j, k] if across else u[k, j]))
        return te.clip(x[t, b, j] + te.select(t == 0, 0.0, before), -4, 4)

    return [x, u, te.scan((steps, rows, width), step, name="h")]


@pytest.mark.parametrize("across", [False, True])
def test_steps_are_vectors(across: bool) -> None:
    x, u, h = recurrent(4, 3, 32, across=across)
    kern = te.build([x, u], h, target="x86-64-v3")
    loops = kern.loop_nest()
    assert ("produce h_u" in loops) == across  # turned once, before the first step
    assert "vectorized" in loops.split("produce h__parts")[1].split("consume")[0]


@pytest.mark.parametrize(
    ("rows", "width", "lanes", "tile"),
    [(1, 112, 64, 1), (2, 112, 32, 2), (4, 83, 32, 2), (7, 40, 16, 4), (3, 20, 16, 3), (13, 9, 8, 5), (2, 7, 4, 2)],
)
def test_steps_sum_several_vectors_of_several_rows_side_by_side(rows: int, width: int, lanes: int, tile: int) -> None:
    x, u, h = recurrent(4, rows, width, across=False)
    kern = te.build([x, u], h, target="x86-64-v3")
    assert f"_v in [0, {lanes - 1}]" in kern.loop_nest()
    assert (f"in [0, {tile - 1}]" in kern.loop_nest()) == (tile > 1)
    feeds = {t: RANDOM.integers(-1, 2, tuple(map(int, t.shape))).astype("float32") for t in (x, u)}
    np.testing.assert_array_equal(kern(*feeds.values()), te.interpret(h, feeds))


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_tiles_of_rows_by_hand_and_results_in_place(data: st.DataObject) -> None:
    steps, rows, width = data.draw(st.integers(2, 4)), data.draw(st.integers(2, 9)), data.draw(st.integers(3, 20))
    x, u, h = recurrent(steps, rows, width, across=data.draw(st.booleans()))
    s = te.Schedule(h)
    s[h].split("b", data.draw(st.integers(2, rows)), names=("outer", "row"))
    s[h].reorder("outer", "j", "row") if data.draw(st.booleans()) else s[h].reorder("j", "outer", "row")
    s[h].unroll("row")
    feeds = {t: RANDOM.integers(-1, 2, tuple(map(int, t.shape))).astype("float32") for t in (x, u)}
    want = te.interpret(h, feeds)
    np.testing.assert_array_equal(te.build([x, u], h, schedule=s)(*feeds.values()), want)
    given = feeds[x].copy()
    kern = te.build([x, u], h, alias={h: x}) if data.draw(st.booleans()) else te.build([x, u], h)
    np.testing.assert_array_equal(kern(given, feeds[u]), want)


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_results_and_gradients_are_those_of_the_reference(data: st.DataObject) -> None:
    sizes = [data.draw(st.integers(1, most)) for most in (4, 3, 19)]
    dtype = data.draw(st.sampled_from(["float32", "float64"]))
    x, u, h = recurrent(*sizes, across=data.draw(st.booleans()), dtype=dtype)  # type: ignore[misc]
    head = te.placeholder(h.shape, dtype, name="head")
    outputs = [h, *te.differentiate(h, [x, u], head=head)]
    feeds = {t: RANDOM.integers(-1, 2, tuple(map(int, t.shape))).astype(dtype) for t in (x, u, head)}
    with assuming(LOWEST), processor(data.draw(PROCESSORS)):
        found = te.evaluate(outputs, feeds)
    for got, want in zip(found, te.interpret(outputs, feeds), strict=True):
        np.testing.assert_array_equal(got, want)


@st.composite
def stepped(draw: Any) -> tuple[te.Tensor, te.Tensor, int]:
    """A scan of one state or two, a reader of its last steps, and how many those are."""
    steps, lag, last = draw(st.integers(1, 12)), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    last, reverse, apart = min(last, steps), draw(st.booleans()), draw(st.booleans())
    dim = draw(st.integers(0, 1))
    shape = (steps, 9) if dim == 0 else (9, steps)
    x = te.placeholder(shape, "int32", name="x")

    def body(a: Any, b: Any, *at: Any) -> Any:
        t, j = at[dim], at[1 - dim]
        before = t + lag if reverse else t - lag
        beside = te.maximum(j - 1, 0) if apart else j

        def earlier(state: Any) -> Any:
            inside = before < steps if reverse else before >= 0
            return te.select(inside, state[(before, beside) if dim == 0 else (beside, before)], 0)

        return earlier(a) + x[at], earlier(b) - x[at] * earlier(a)

    a, b = te.scan(shape, body, axis=dim, reverse=reverse, dtype="int32", name="y")
    begin = 0 if reverse else steps - last

    def read(s: Any, j: Any) -> Any:
        place = (begin + s, j) if dim == 0 else (j, begin + s)
        return a[place] * 3 + b[place]

    return x, te.compute((last, 9), read, name="end"), steps


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(case=stepped(), level=PROCESSORS)
def test_steps_that_nobody_asks_for_are_not_kept(case: tuple[te.Tensor, te.Tensor, int], level: str) -> None:
    x, end, steps = case
    feeds = {x: RANDOM.integers(-2, 3, tuple(map(int, x.shape))).astype("int32")}
    want = te.interpret(end, feeds)
    with assuming(LOWEST), processor(level):
        text = str(te.Schedule(end).auto())
        np.testing.assert_array_equal(te.evaluate(end, feeds), want)
    assert steps < 8 or "kept)" in text


def test_who_needs_all_steps_gets_them() -> None:
    x = te.placeholder((20, 4), name="x")
    y = te.scan((20, 4), lambda y, t, i: te.select(t == 0, x[t, i], y[t - 1, i] + x[t, i]), name="y")
    z = te.scan((20, 4), lambda z, t, i: te.select(t < 15, 1.0, z[t - 15, i]), name="z")
    rows = te.placeholder((4,), "int32", name="rows")
    last = te.compute((4,), lambda i: y[19, i], name="last")
    readers = {
        "an output": [last, y],
        "chosen by data": [te.compute((4,), lambda i: y[rows[i], i], name="chosen")],
        "all of it": [te.compute((4,), lambda i: te.sum(lambda t: y[t, i]), name="total"), last],
        "a function": [te.extern(lambda a: a[-1], (4,), "float32", [y])],
        "its own past": [te.compute((4,), lambda i: z[19, i], name="end")],
    }
    feeds = {x: np.ones((20, 4), "float32"), rows: np.arange(4, dtype="int32") + 3}
    for outputs in readers.values():
        assert "are kept" not in str(te.Schedule(outputs).auto())
        for got, want in zip(te.evaluate(outputs, feeds), te.interpret(outputs, feeds), strict=True):
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("reverse", [False, True])
def test_steps_to_keep(reverse: bool) -> None:
    x = te.placeholder((20, 4), name="x")
    one = 1 if reverse else -1

    def body(y: Any, t: Any, i: Any) -> Any:
        return te.select(t == (19 if reverse else 0), x[t, i], y[t + one, i] + x[t, i])

    every = te.scan((20, 4), body, reverse=reverse, name="y")
    last = te.scan((20, 4), body, reverse=reverse, keep=3, name="y")
    values = RANDOM.integers(-2, 3, (20, 4)).astype("float32")
    want = te.evaluate(every, {x: values})[:3] if reverse else te.evaluate(every, {x: values})[-3:]
    np.testing.assert_array_equal(te.evaluate(last, {x: values}), want)
    np.testing.assert_array_equal(te.interpret(last, {x: values}), want)
    assert "(the last 3 steps are kept)" in str(te.Schedule(last).auto())
    for wrong in (0, 21, "all"):
        with pytest.raises(ValueError, match="keep: expected 1 or more, of 20 steps"):
            te.scan((20, 4), body, reverse=reverse, keep=wrong)  # type: ignore[arg-type]


def test_a_step_that_is_read_twice_and_does_not_fill_its_vectors() -> None:
    """Halide cut the loop over steps and took the mask of the last vector for one bit; the loops were left plain."""
    x = te.placeholder((16, 2, 40), name="x")

    def body(y: Any, t: Any, j: Any, k: Any) -> Any:
        before = te.select((t - 1 >= 0) & (t - 1 < 16), y[t - 1, j, k], 0.0)
        return te.clip(te.maximum(te.maximum(x[t, j, k], before), before), -8.0, 8.0)

    y = te.scan((16, 2, 40), body, name="y")
    values = RANDOM.integers(-2, 3, (16, 2, 40)).astype("float32")
    with assuming(LOWEST):
        kernel = te.build([x], y)
    np.testing.assert_array_equal(kernel(values), te.interpret(y, {x: values}))
    assert "vectorized" in kernel.loop_nest()


def test_steps_are_dropped_from_schedules_by_hand() -> None:
    x = te.placeholder((20, 32), name="x")
    y = te.scan((20, 32), lambda y, t, i: te.select(t == 0, x[t, i], y[t - 1, i] + x[t, i]), name="y")
    last = te.compute((32,), lambda i: y[19, i] * 2.0, name="last")
    s = te.Schedule(last)
    s[y].vectorize("i", 8)
    kernel = te.build([x], last, schedule=s)
    assert "allocate y[float32 * 32]" in kernel.source("stmt")
    values = RANDOM.integers(-2, 3, (20, 32)).astype("float32")
    np.testing.assert_array_equal(kernel(values), values.sum(0) * 2)


@pytest.mark.parametrize(("shape", "axis"), [
    ((4096, 10), 1), ((1, 4096, 10), 2), ((4096, 1, 10), 2), ((4096, 10, 1), 1), ((2, 2048, 7), 2), ((1, 50, 512), 1),
    ((50, 1, 512), 0), ((3, 1, 1), 0), ((1, 1, 1), 2),
])  # fmt: skip
def test_axes_of_one_element_change_no_scan(shape: tuple[int, ...], axis: int) -> None:
    """A scan of many rows is cut into tasks of many, and written out or in vectors, with such axes or without."""
    x = te.placeholder(shape, "float64", name="x")
    y = te.cumsum(x, axis=axis)
    values = RANDOM.integers(-9, 9, shape).astype("float64")
    with assuming(LOWEST):
        found = te.evaluate([y, te.differentiate([y], [x], head=[x])[0]], {x: values})
        text = te.build([x], y, target="x86-64-v4").loop_nest()
    np.testing.assert_array_equal(found[0], np.cumsum(values, axis))
    np.testing.assert_array_equal(found[1], np.flip(np.cumsum(np.flip(values, axis), axis), axis))
    if max(shape) > 3:
        assert "parallel" in text
        assert "vectorized" in text or "unrolled" in text
        assert ("row" in text) == (max(shape) > 512)


def test_states_at_the_only_place_of_an_axis() -> None:
    x = te.placeholder((6, 1, 40), name="x")
    y = te.scan((6, 1, 40), lambda y, t, b, j: te.select(t == 0, 0.0, 0.5 * y[t - 1, 0, j] + x[t, b, j]), name="y")
    text = str(te.Schedule(y).auto())
    assert "y[t - 1, b, j]" in text
    values = RANDOM.integers(-9, 9, (6, 1, 40)).astype("float32")
    np.testing.assert_array_equal(te.evaluate(y, {x: values}), te.interpret(y, {x: values}))


@pytest.mark.parametrize("names", ["i row j t", "task row j t", "i task row t", "f0 row f1 t", "t0 i row task"])
def test_axes_may_be_called_as_loops_are(names: str) -> None:
    x = te.placeholder((2048, 6, 4, 10), name="x")
    first, second, third, step = names.split()
    space: dict[str, Any] = {"te": te, "x": x}
    at = f"{first}, {second}, {third}"
    body = eval(f"lambda y, {at}, {step}: te.select({step} == 0, 0.0, y[{at}, {step} - 1]) + x[{at}, {step}]", space)
    y = te.scan(x.shape, body, axis=3)
    values = RANDOM.integers(-9, 9, x.shape).astype("float32")
    np.testing.assert_array_equal(te.evaluate(y, {x: values}), np.cumsum(values, 3))


def test_the_first_step_is_a_loop_of_its_own() -> None:
    """One number waits for the one before it alone, in a register."""
    x = te.placeholder((1000,), name="x")
    y = x.cumsum(0)
    kern = te.build([x], y, target="x86-64-v3")
    assert "select(" not in kern.source("stmt")
    values = RANDOM.integers(-9, 9, 1000).astype("float32")
    np.testing.assert_array_equal(kern(values), np.cumsum(values))


@pytest.mark.parametrize(
    ("shape", "axis"),
    [
        ((5000,), 0), ((1913, 5), 0), ((3, 1000), 1), ((1, 1001), 1), ((300, 40), 0), ((129, 8), 0), ((2, 3, 500), 2),
        ((64, 3), 0),
    ],
)  # fmt: skip
def test_steps_written_out_keep_their_order(shape: tuple[int, ...], axis: int) -> None:
    """Many steps beside few or no others are written out, one after the other: the bits are those of a plain loop."""
    x = te.placeholder(shape, name="x")
    y = x.cumsum(axis)
    assert "unrolled" in str(te.Schedule([y]).auto())
    a = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    np.testing.assert_array_equal(te.build([x], y)(a), np.cumsum(a, axis))


def test_edit_distances_are_written_out_too() -> None:
    """Two loops over time, of which the inner one is."""
    a, b = (te.placeholder((70,), "int32", name=n) for n in "ab")

    def step(d: Any, i: Any, j: Any) -> Any:
        same = d[i - 1, j - 1] + te.select(a[te.maximum(i - 1, 0)] == b[te.maximum(j - 1, 0)], 0, 1)
        other = te.minimum(d[i - 1, j], d[i, j - 1]) + 1
        return te.select(i == 0, j, te.select(j == 0, i, te.minimum(same, other)))

    y = te.scan((71, 71), step, axis=(0, 1))
    feeds = {t: np.random.default_rng(k).integers(0, 3, 70).astype(np.int32) for k, t in enumerate((a, b))}
    np.testing.assert_array_equal(te.build([a, b], y)(*feeds.values()), te.interpret(y, feeds))


@pytest.mark.parametrize(("fn", "unrolled"), [(te.tanh, ["i_i"]), (te.abs, ["i_i", "t_i"])])
def test_functions_along_memory_are_written_out_once_for_each_row(fn: Any, unrolled: list[str]) -> None:
    x = te.placeholder((16, 40), name="x")
    y = te.scan((16, 40), lambda y, i, t: x[i, t] + te.select(t == 0, 0.0, fn(y[i, t - 1])), axis=1, name="y")
    loops = te.build(x, y, target="x86-64-v3").loop_nest().splitlines()
    assert [line.split()[1].split(".")[-1] for line in loops if "unrolled" in line] == unrolled


SHAPES = [((64,), True), ((9, 40), True), ((3, 17, 8), True), ((5, 2, 33), True), ((3, 2), False), ((1, 7), False)]


def diffusion(shape: tuple[int, ...], *, by_rows: bool = False) -> tuple[te.Tensor, te.Tensor]:
    """Each step of places that read their neighbors in the step before."""
    a = te.placeholder(shape, "float64", name="a")

    def step(s: Any, t: Any, *at: Any) -> Any:
        first, *rest = at
        around = [s[(t - 1, te.clip(first + d, 0, shape[0] - 1), *rest)] for d in (-1, 1)]
        mean = te.sum(lambda k: s[(t - 1, *at[:-1], k)]) / shape[-1] if by_rows else 0.25
        return te.select(t == 0, a[at], 0.25 * (around[0] + around[1]) + 0.5 * s[(t - 1, *at)] * mean)

    y = te.scan((4, *shape), step, axis=0, name="y")
    return a, te.compute(shape, lambda *at: y[(3, *at)], name="last")


@pytest.mark.parametrize(("shape", "is_shared"), SHAPES)
def test_long_steps_are_shared_out_among_threads(shape: tuple[int, ...], is_shared: bool) -> None:
    a, y = diffusion(shape)
    head = te.placeholder(shape, "float64", name="head")
    with assuming({"step_threads": 1, "cores": 2, "vector_bytes": 32}):
        kern = te.build([a, head], [y, te.differentiate(y, a, head=head)])
    assert ("parallel" in kern.loop_nest()) == is_shared
    feeds = {t: RANDOM.standard_normal(shape) for t in (a, head)}
    want = te.interpret([y, te.differentiate(y, a, head=head)], feeds)
    for got, expected in zip(kern(*feeds.values()), want, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12)


def test_short_steps_are_not() -> None:
    a, y = diffusion((50, 60))
    assert "parallel" not in te.build(a, y, target="x86-64-v3").loop_nest()


def test_sums_that_all_rows_share_keep_a_thread() -> None:
    """One sum for each row: rows are shared out. One for all of them: each thread would compute it."""
    a, y = diffusion((24, 16), by_rows=True)
    with assuming({"step_threads": 1, "cores": 2}):
        assert "parallel" in te.build(a, y, target="x86-64-v3").loop_nest()
    b = te.placeholder((24, 16), "float64", name="b")
    z = te.scan(
        (4, 24, 16), lambda s, t, i, j: te.select(t == 0, b[i, j], s[t - 1, i, j] + te.sum(lambda k: s[t - 1, k, 3])),
        axis=0,
    )  # fmt: skip
    with assuming({"step_threads": 1, "cores": 2}):
        assert "parallel" not in te.build(b, z, target="x86-64-v3").loop_nest()


def beside(body: Any, *, steps: int = 20, rows: int = 100, dtype: str = "float64") -> tuple[list[te.Tensor], te.Tensor]:
    """Recurrences side by side, with what they read turned the other way."""
    x = te.placeholder((rows, steps), dtype, name="x")
    made = te.scan((steps, rows), lambda s, t, b: te.select(t == 0, x[b, 0], body(s, x, t, b)), name="s")
    return [x], made


@pytest.mark.parametrize("body", [
    lambda s, x, t, b: te.tanh(s[t - 1, b] + x[b, t]),
    lambda s, x, t, b: s[t - 1, b] * (1 - s[t - 1, b]),
], ids=["functions", "no streams"])  # fmt: skip
def test_vectors_of_a_step_follow_one_another_before_the_next_step(body: Any) -> None:
    inputs, made = beside(body)
    kern = te.build(inputs, made, target="x86-64-v3")
    loops = kern.loop_nest().split("produce s")[-1]
    assert loops.index("for t") < loops.index("for b.b_o.b_w in [0, 15]") < loops.index("vectorized b.b_v in [0, 3]")
    feeds = {inputs[0]: RANDOM.normal(size=(100, 20)) * 0.5}
    np.testing.assert_allclose(kern(*feeds.values()), te.interpret(made, feeds), rtol=1e-12)


def test_what_costs_less_to_turn_than_a_step_is_turned_however_much_it_is() -> None:
    x = te.placeholder((64, 10, 6), "float64", name="x")

    def step(s: Any, t: Any, b: Any) -> Any:
        terms = te.tanh(x[b, t, 0]) + te.tanh(x[b, t, 5])
        return te.select(t == 0, 0.0, te.sin(s[t - 1, b]) + terms)

    made = te.scan((10, 64), step, name="s")
    kern = te.build([x], made, target="x86-64-v3")
    assert "produce s_x" in kern.loop_nest()
    feeds = {x: RANDOM.normal(size=(64, 10, 6))}
    np.testing.assert_allclose(kern(*feeds.values()), te.interpret(made, feeds), rtol=1e-12, atol=1e-14)


def products(rows: int, width: int) -> tuple[list[te.Tensor], te.Tensor]:
    """Products by one matrix, of vectors that lie across memory."""
    x, u = te.placeholder((5, width, rows), "float64", name="x"), te.placeholder((width, width), "float64", name="u")

    def step(h: Any, t: Any, i: Any, b: Any) -> Any:
        return te.sin(x[t, i, b] + te.select(t == 0, 0.0, te.sum(lambda k: u[i, k] * h[t - 1, k, b])))

    return [x, u], te.scan((5, width, rows), step, name="h")


@pytest.mark.parametrize(("width", "is_written_out"), [(3, True), (8, True), (9, False)])
def test_short_sums_of_recurrences_side_by_side_are_written_out(width: int, is_written_out: bool) -> None:
    inputs, made = products(33, width)
    kern = te.build(inputs, made, target="x86-64-v3")
    schedule = te.Schedule(made)
    schedule.auto()
    assert ("sum(" not in str(schedule)) == is_written_out
    feeds = {t: RANDOM.normal(size=tuple(map(int, t.shape))) for t in inputs}
    plain = te.build(inputs, made, target="x86-64-v3", schedule=te.Schedule(made))
    np.testing.assert_array_equal(kern(*feeds.values()), plain(*feeds.values()))  # terms in their order, to the bit
