"""Stages that choose by what is the same all along a row are computed by cases, with the bits that they had."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import tedsl as te
from schedules.choices import MOST_CASES, cases_of
from schedules.default import LOWEST, assuming
from schedules.pieces import Piece
from tedsl.lang.tensor import Compute, Placeholder
from tedsl.lang.traverse import stages_of
from tests.levels import LEVELS_HERE, PROCESSORS, processor

MODES, SIZES = 4, (40, 150)


def feeds_of(output: te.Tensor | list[te.Tensor], seed: int) -> dict[te.Tensor, np.ndarray]:
    """Numbers for the inputs, small ones for modes."""
    rng = np.random.default_rng(seed)
    found: dict[te.Tensor, np.ndarray] = {}
    for op in stages_of(output if isinstance(output, list) else [output]):
        if isinstance(op, Placeholder):
            t = op.output()
            most = MODES if t.name.startswith("mode") else 30
            found[t] = rng.integers(0, most, tuple(int(e.value) for e in t.extents)).astype(str(t.dtype))
    return found


def case_texts(body: Callable[[Any, Any], Any], axis: int = 1) -> list[tuple[str, str]]:
    """The cases along an axis of a stage, and what each computes."""
    op = te.compute(SIZES, body, name="made").op
    assert isinstance(op, Compute)
    found = cases_of(Piece(op.axes, op.axes, op.bodies), op.axes[axis])
    return [(str(c.condition), str(c.bodies[0])) for c in found]


M = te.placeholder((8,), "int32", name="mode")
A, B = (te.placeholder(SIZES, name=name) for name in "AB")


def test_each_case_computes_what_is_its_own() -> None:
    nested = case_texts(lambda y, x: te.select(M[0] == 0, A[y, x], te.select(M[0] == 1, B[y, x], A[y, x] + B[y, x])))
    assert [value for _, value in nested] == ["A[y, x]", "B[y, x]", "A[y, x] + B[y, x]"]
    assert nested[0][0] == "mode[0] == 0"


def test_a_number_that_equals_one_equals_no_other() -> None:
    apart = case_texts(lambda y, x: te.select(M[0] == 0, A[y, x], B[0, x]) * te.select(M[0] == 1, B[y, x], A[0, x]))
    assert [value for _, value in apart] == ["A[y, x] * A[0, x]", "B[0, x] * B[y, x]", "B[0, x] * A[0, x]"]


def test_a_remainder_tells_those_of_other_places() -> None:
    """Each place is even or odd, and the next one what it is not: two cases, not four of which two are never met."""

    def turned(y: Any, x: Any) -> Any:
        return te.select(y % 2 == 0, A[y, x], B[y, x]) * te.select((y + 1) % 2 == 0, A[0, x], B[0, x])

    assert [value for _, value in case_texts(turned)] == ["A[y, x] * B[0, x]", "B[y, x] * A[0, x]"]
    cast = "te.cast(te.const({}, 'int32'), 'float32')".format
    weighed = case_texts(lambda y, x: te.select(y % 2 == 0, A[y, x], B[y, x]) * te.cast((y + 3) % 2, "float32"))
    assert [value for _, value in weighed] == [f"{t}[y, x] * {cast(k)}" for t, k in (("A", 1), ("B", 0))]

    def third(y: Any, x: Any) -> Any:
        return te.select(y % 3 == 1, A[y, x], B[y, x]) * te.select((y + 2) % 3 == 0, A[0, x], B[0, x])

    assert [value for _, value in case_texts(third)] == ["A[y, x] * A[0, x]", "B[y, x] * B[0, x]"]
    apart = case_texts(lambda y, x: te.select(y % 3 == 1, A[y, x], B[y, x]) * te.select(y % 2 == 0, A[0, x], B[0, x]))
    assert len(apart) == 4


def test_conditions_along_the_loop_stay() -> None:
    inside = case_texts(lambda y, x: te.select((M[0] == 0) & (x > 3), A[y, x], B[y, x]))
    assert [value for _, value in inside] == ["te.select(x > 3, A[y, x], B[y, x])", "B[y, x]"]
    assert len(case_texts(lambda y, x: te.select(A[y, x] > B[0, x], A[y, x], B[y, x]))) == 1
    assert len(case_texts(lambda y, x: te.select(y % 2 == 0, A[y, x], B[y, x]))) == 2
    assert len(case_texts(lambda y, x: te.select(y % 2 == 0, A[y, x], B[y, x]), axis=0)) == 1


def test_there_are_not_more_cases_than_some() -> None:
    many = case_texts(lambda y, x: sum(te.select(M[k] == 0, A[y, x] * k, B[y, x] + k) for k in range(8)))
    assert len(many) == MOST_CASES


def switch(mode: Any, values: list[Any]) -> Any:
    made = values[-1]
    for k, value in enumerate(values[:-1]):
        made = te.select(mode == k, value, made)
    return made


@st.composite
def programs(draw: st.DrawFn) -> te.Tensor:
    """Stages of which each chooses by a mode: of the call, of the row, of a remainder, or computed."""
    dtype = draw(st.sampled_from(["float32", "uint8", "uint16", "float64"]))
    h, w = draw(st.sampled_from([(9, 70), (24, 131), (3, 64)]))
    modes = te.placeholder((5,), draw(st.sampled_from(["int32", "uint8", "float32"])), name="modes")
    by_row = te.placeholder((h,), "int32", name="mode_of_row")
    scalar = te.placeholder((), "int32", name="mode_alone")
    stage = te.placeholder((h, w), dtype, name="x")
    other = te.placeholder((h, w), dtype, name="other")
    largest = te.compute((), lambda: te.max(lambda i: modes[i]), name="largest")
    for k in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["call", "row", "parity", "scalar", "largest", "both"]))
        above, parts, joined = draw(st.booleans()), draw(st.sampled_from([1, 1, 2])), draw(st.booleans())

        def body(
            y: Any, x: Any, t: Any = stage, k: int = k, kind: str = kind, above: bool = above, parts: int = parts,
            joined: bool = joined,
        ) -> Any:  # fmt: skip
            at = t.at(y - 1, x + 1, mode="clamp") if above else t[y, x]
            mode = {
                "call": modes[k % 5], "row": by_row[y], "parity": y % 3, "scalar": scalar[()], "largest": largest[()],
                "both": by_row[y] + y % 2,
            }[kind]  # fmt: skip
            o = other[y, x]
            if k % 2:  # a border by rows and columns
                at = te.select((y >= 1) & (x >= 1), t.at(y - 1, x - 1, mode="zero"), 0) + at
            values = [at + o, at * o + at, te.maximum(at, o) * o, te.minimum(o * o, at) + o]
            last = te.select((x > 5) & (mode != 1), at, o) if joined else at
            made = switch(mode, [*values, last])
            return (made, switch(mode, [o, *values])) if parts == 2 else made

        made = te.compute((h, w), body, name=f"stage_{k}")
        stage = made if parts == 1 else te.compute((h, w), lambda y, x, m=made: m[0][y, x] + m[1][y, x])
    if draw(st.booleans()):
        return te.compute((3, h, w), lambda c, y, x, t=stage: te.select(c == 1, t[y, x] * 2, t[y, x] + c % 2))
    return stage


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs(), st.integers(0, 9), st.booleans(), PROCESSORS)
def test_drawn_programs_have_the_bits_of_the_reference(out: te.Tensor, seed: int, lowest: bool, level: str) -> None:
    feeds = feeds_of(out, seed)
    with processor(level), assuming({**LOWEST, "pipeline": 1}) if lowest else nullcontext():
        found = te.build(list(feeds), out)(*feeds.values())
    np.testing.assert_array_equal(found, te.interpret(out, feeds))


def compositing(count: int) -> tuple[te.Tensor, Any]:
    """Images put over each other by modes, and the stages."""
    images = [te.placeholder((400, 640), "uint16", name=f"x{k}") for k in range(count + 1)]
    modes = te.placeholder((count,), "int32", name="modes")
    below: Any = images[0]
    for k in range(count):

        def body(y: Any, x: Any, t: Any = below, k: int = k) -> Any:
            a, b = te.cast(t[y, x], "uint32"), te.cast(images[k + 1][y, x], "uint32")
            scaled = [te.cast(a * b + ((a * b + c * b) >> (8 + c)) * (a + c), "uint16") for c in range(4)]
            return switch(modes[k], scaled)

        below = te.compute((400, 640), body, name=f"layer_{k}")
    return te.compute((2, 400, 640), lambda c, y, x: below[y, x] + te.cast(c, "uint16")), modes


def test_a_result_with_cases_that_others_read_is_whole() -> None:
    out, _ = compositing(3)
    layers = [op.output() for op in stages_of([out]) if op.name.startswith("layer")]
    results = [out, layers[1]]
    feeds = feeds_of(results, 6)
    with assuming({"cores": 2, "l2": 1 << 18}):
        found = te.build(list(feeds), results)(*feeds.values())
    for got, want in zip(found, te.interpret(results, feeds), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("level", LEVELS_HERE)
def test_layers_by_modes_are_computed_row_by_row_each_by_its_cases(level: str) -> None:
    out, modes = compositing(3)
    with processor(level), assuming({"cores": 2, "l2": 1 << 18}):
        text = str(te.Schedule(out).auto())
        assert text.count("by cases, along x") == 3
        feeds = feeds_of(out, 1)
        kernel = te.build(list(feeds), out)
        for mode in ([0, 1, 2], [3, 3, 0], [2, 0, 7]):
            feeds[modes] = np.array(mode, "int32")
            np.testing.assert_array_equal(kernel(*feeds.values()), te.interpret(out, feeds))


def test_one_stage_is_computed_by_cases_where_much_is_left_out() -> None:
    mode = te.placeholder((), "int32", name="mode")
    x = te.placeholder((300, 500), name="x")

    def loops(values: list[Any]) -> str:
        made = te.compute((300, 500), lambda i, j: switch(mode[()], [f(x[i, j]) for f in values]), name="made")
        return str(te.Schedule(made).auto())

    assert "by cases, along j" in loops([te.exp, te.sin, lambda v: v])
    assert "by cases" not in loops([lambda v: v + 1, lambda v: v])


@pytest.mark.parametrize("dtype", ["float32", "uint8"])
def test_what_a_result_is_added_to_by_cases(dtype: str) -> None:
    x = te.placeholder((64, 100), dtype, name="x")
    mode = te.placeholder((), "int32", name="mode")
    made = te.compute((64, 100), lambda i, j: te.select(mode[()] == 0, x[i, j] * x[0, j], x[i, 99 - j]), name="made")
    feeds = feeds_of(made, 2)
    s = te.Schedule(made)
    s[made].unswitch("j").vectorize("j", 8)
    out = np.ones((64, 100), dtype)
    te.build(list(feeds), made, schedule=s)(*feeds.values(), out=out, mode="add")
    np.testing.assert_array_equal(out, 1 + te.interpret(made, feeds))


@pytest.mark.parametrize("place", ["root", "row", "window"])
def test_cases_of_a_stage_that_is_computed_within_rows(place: str) -> None:
    x, y = te.placeholder((50, 90), name="x"), te.placeholder((50, 90), name="y")
    modes = te.placeholder((50,), "int32", name="modes")
    inner = te.compute((50, 90), lambda i, j: switch(modes[i], [x[i, j] * y[i, j] + 1, te.sqrt(x[i, j]), y[i, j]]))
    out = te.compute((48, 90), lambda i, j: inner[i, j] + inner[i + 1, j] * inner[i + 2, j])
    s = te.Schedule(out)
    s[inner].unswitch(s[inner].axes[1]).vectorize(s[inner].axes[1], 8)
    outer, row = s[out].split(s[out].axes[0], 10)
    s[out].parallel(outer)
    if place == "root":
        s[inner].compute_root()
    else:
        s[inner].compute_at(out, row)
    if place == "window":
        s[inner].store_at(out, outer)
    feeds = feeds_of(out, 3)
    np.testing.assert_array_equal(te.build(list(feeds), out, schedule=s)(*feeds.values()), te.interpret(out, feeds))


@pytest.mark.parametrize(
    ("give", "why"),
    [
        (lambda s: s["C"].unswitch("j").unswitch("i"), "by cases already"),
        (lambda s: s["C"].vectorize("j", 8).unswitch("j"), "before other directives"),
        (lambda s: s["C"].unswitch(s["C"].split("j", 8)[0]), "before other directives"),
        (lambda s: s["C"].unswitch(s["C"].split("j", 8)[1]), "before other directives"),
        (lambda s: s["S"].unswitch("i"), "not pointwise"),
        (lambda s: s["C"].unswitch("j") and s["T"].compute_at("C", "i"), "is computed inside the loops of C"),
        (lambda s: s["T"].unswitch("j").compute_root().compute_with("U", "i"), "share loops"),
    ],
)
def test_cases_that_are_refused(give: Callable[[te.Schedule], object], why: str) -> None:
    x = te.placeholder((40, 64), name="x")
    T = te.compute((40, 64), lambda i, j: x[i, j] + 1, name="T")
    U = te.compute((40, 64), lambda i, j: x[i, j] + 2, name="U")
    S = te.compute((40,), lambda i: te.sum(lambda k: x[i, k]), name="S")
    joined = te.compute((40, 64), lambda i, j: T[i, j] * U[i, j] * S[i], name="C")
    s = te.Schedule(joined)
    s[U].compute_root()

    def build() -> None:
        give(s)
        te.build(x, joined, schedule=s)

    with pytest.raises(te.ScheduleError, match=why):
        build()


def test_a_gpu_has_no_cases() -> None:
    x = te.placeholder((40,), name="x")
    made = te.compute((40,), lambda i: te.select(x[0] == 0, x[i], -x[i]), name="made")
    s = te.Schedule(made)
    s[made].unswitch("i")
    with pytest.raises(te.ScheduleError, match="on a GPU"):
        te.build(x, made, schedule=s, target="opencl").source("stmt")


def test_a_stage_that_chooses_nothing_outside_is_one_case() -> None:
    x = te.placeholder((40, 64), name="x")
    made = te.compute((40, 64), lambda i, j: te.select(x[i, j] > 3, x[i, j], -x[i, j]), name="made")
    s = te.Schedule(made)
    s[made].unswitch("j").vectorize("j", 8)
    feeds = feeds_of(made, 4)
    np.testing.assert_array_equal(te.build(x, made, schedule=s)(*feeds.values()), te.interpret(made, feeds))


def test_borders_are_no_cases() -> None:
    def at(y: Any, x: Any, k: int) -> Any:
        return te.select((y >= k) & (x >= k), A[y - k, x - k] * B[y, x], 0.0)

    assert len(case_texts(lambda y, x: at(y, x, 0) + at(y, x, 1) + at(y, x, 2))) == 1


@pytest.mark.parametrize("tail", ["shift", "guard", "predicate", ""])
@pytest.mark.parametrize("level", LEVELS_HERE)
def test_the_ends_of_rows_of_each_case_keep_all_that_they_choose(tail: str, level: str) -> None:
    """Named twice in a masked end, one choice of several that are alike was lost."""
    x, z = te.placeholder((66, 33), "float64", name="x"), te.placeholder((68, 35), "float64", name="z")
    mode = te.placeholder((), "int32", name="mode")

    def at(i: Any, j: Any, dj: int) -> Any:
        term = x[te.minimum(i, 65), j - dj] * z[i, j]
        chosen = te.select((j >= dj) & (j <= 32 + dj), term, 0.0)
        return chosen + te.select((j >= dj) & (j <= 32 + dj), term + term, 0.0)

    made = te.compute(
        (68, 35), lambda i, j: te.select(mode[()] == 1, at(i, j, 0) + at(i, j, 1) + at(i, j, 2), z[i, j]), name="made"
    )
    feeds = feeds_of(made, 5)
    feeds[mode] = np.array(1, "int32")
    s = te.Schedule(made)
    s[made].unswitch("j").vectorize("j", 4, **({"tail": tail} if tail else {}))
    kernel = te.build(list(feeds), made, schedule=s, target=level)
    np.testing.assert_array_equal(kernel(*feeds.values()), te.interpret(made, feeds))


def test_loops_that_are_written_out_decide_what_is_chosen_by_them() -> None:
    parts = [te.placeholder((200, 300), name=f"P{k}") for k in range(4)]

    def element(c: Any, y: Any, x: Any) -> Any:
        rows = [[te.exp(p[y // 2, x // 2]) + k for k, p in enumerate(parts)] for _ in range(2)]
        one, two = (te.select(x % 2 == 0, r[0] * r[1], r[2] - r[3]) for r in rows)
        return te.select(c == 0, te.select(y % 2 == 0, one, two + 1), te.select(y % 2 == 0, two * 3, one - 1))

    woven = te.compute((2, 400, 600), element, name="woven")
    text = str(te.Schedule(woven).auto())
    assert "unrolled" in text
    assert "by cases" not in text


@pytest.mark.parametrize("level", LEVELS_HERE)
def test_stages_of_several_results_with_cases_are_in_the_rows_of_what_reads_them(level: str) -> None:
    x, mode = te.placeholder((4, 400, 640), name="x"), te.placeholder((2,), "int32", name="modes")

    def first(i: Any, j: Any) -> tuple[Any, ...]:
        a, b = x[0, i, j], x[1, i, j]
        return tuple(switch(mode[0], [a * b + k, a * a * b - k, b * b * b + a * k, a]) for k in range(2))

    parts = te.compute((400, 640), first, name="parts")

    def second(i: Any, j: Any) -> tuple[Any, ...]:
        a, b = parts[0][i, j], parts[1][i, j]
        return tuple(switch(mode[1], [a - b * k, a * b * a + k, (b + k) * (a + 1) * b, b]) for k in range(2))

    more = te.compute((400, 640), second, name="more")
    out = te.compute((2, 400, 640), lambda c, i, j: te.select(c == 0, more[0][i, j] * 2, more[1][i, j] - 1), name="out")
    feeds = feeds_of(out, 7)
    feeds[x] %= 4
    with processor(level), assuming({"cores": 2, "l2": 1 << 18}):
        text = str(te.Schedule(out).auto())
        assert text.count("what is new of what out needs here") == 2
        assert text.count("by cases, along j") == 2
        np.testing.assert_array_equal(te.build(list(feeds), out)(*feeds.values()), te.interpret(out, feeds))


@pytest.mark.parametrize("rows", [37, 317, 331])
def test_conditions_of_rows_are_asked_within_the_last_task_alone(rows: int) -> None:
    """Tasks of twenty rows go beyond 317: the modes of rows there were read as well, and refused."""
    rng = np.random.default_rng(rows)
    x, mode = te.placeholder((rows, 501), name="x"), te.placeholder((rows,), "int64", name="mode")
    chosen = (mode == 1)[:, None]
    y = te.where((mode == 0)[:, None], te.tanh(x), te.where(chosen, te.exp(-x * x), x * 3))
    dx = te.differentiate((y**2).mean(), x)
    assert "by cases" in str(te.Schedule(dx).auto())
    feeds = {x: rng.standard_normal((rows, 501)).astype(np.float32), mode: rng.integers(0, 3, rows)}
    np.testing.assert_allclose(te.build([x, mode], dx)(*feeds.values()), te.interpret(dx, feeds), rtol=1e-4, atol=1e-8)
