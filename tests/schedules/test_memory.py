"""Programs that wait for memory: rows with borders, long columns, large stages that two loop nests read."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tedsl as te
from schedules.default import completed
from schedules.directives import ComputeInline
from schedules.machine import assumed, assuming
from schedules.plan import Plan
from schedules.program import program_of
from schedules.tuning import settled
from tedsl.backend.host.targets import machine_of, parse_target
from tedsl.lang.expr import SIZE_MAX

RANDOM = np.random.default_rng(3)


def planned(inputs: list[te.Tensor], outputs: list[te.Tensor]) -> Plan:
    """The default schedule, nothing compiled."""
    machine = settled(machine_of(parse_target("host")), dict(assumed()))
    return completed(Plan(program_of(outputs)), inputs, outputs, machine)


def smoothed(x: te.Tensor, mode: str) -> te.Tensor:
    u, v = te.reduce_axis(3, name="u"), te.reduce_axis(3, name="v")
    made: te.Tensor = te.compute(
        x.shape, lambda i, j: te.sum(x.at(i + u - 1, j + v - 1, mode=mode), axis=(u, v)) * (1 / 9), name="smoothed"
    )
    return made


@pytest.mark.parametrize(
    ("mode", "width"), [("zero", 32), ("zero", 24), ("clamp", 32), ("reflect", 32), ("reflect", 24), ("wrap", 32)]
)
def test_windows_over_padded_rows_give_what_guarded_ones_do(mode: str, width: int) -> None:
    x, g = te.placeholder((20, width), name="x"), te.placeholder((20, width), name="g")
    y = smoothed(smoothed(x, mode), mode)
    dx = te.differentiate(y, x, head=g)
    with assuming({"written_out": SIZE_MAX}):  # windows stay reductions, of which no part is computed twice
        assert any("_padded" in name for name in planned([x, g], [y, dx]).program.stages)
        check_windows(x, g, y, dx)
    check_windows(x, g, y, dx)


def check_windows(x: te.Tensor, g: te.Tensor, y: te.Tensor, dx: te.Tensor) -> None:
    width = int(x.shape[1])
    a = RANDOM.standard_normal((20, width)).astype(np.float32)
    a[3, 0], a[9, width - 1] = np.nan, np.inf
    b = RANDOM.standard_normal((20, width)).astype(np.float32)
    feeds = {x: a, g: b}
    for found, expected in zip(te.evaluate([y, dx], feeds), te.interpret([y, dx], feeds), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_what_stands_outside_of_a_row_is_kept() -> None:
    x = te.placeholder((2, 3, 16, 16), name="x")

    def tap(b: Any, c: Any, i: Any, j: Any, v: Any) -> Any:
        return te.select((j + v >= 2) & (j + v <= 17), x[b, c, i, j + v - 2], float("-inf"))

    y = te.compute((2, 3, 16, 16), lambda b, c, i, j: te.max(lambda v: tap(b, c, i, j, v)), name="y")
    assert any("_padded" in name for name in planned([x], [y]).program.stages)
    a = -1 - RANDOM.random((2, 3, 16, 16)).astype(np.float32)
    np.testing.assert_array_equal(te.evaluate(y, {x: a}), te.interpret(y, {x: a}))


def test_rows_that_are_read_with_a_stride_are_not_copied() -> None:
    x, v = te.placeholder((2, 3, 8, 32), name="x"), te.reduce_axis(3, name="v")

    def window(step: int) -> te.Tensor:
        made: te.Tensor = te.compute(
            (2, 3, 8, 16), lambda b, c, i, j: te.max(x.at(b, c, i, j * step + v - 1, mode="clamp"), axis=v), name="y"
        )
        return made

    padded = [any("_padded" in name for name in planned([x], [window(step)]).program.stages) for step in (1, 2)]
    assert padded == [True, False]
    a = RANDOM.standard_normal((2, 3, 8, 32)).astype(np.float32)
    np.testing.assert_array_equal(te.evaluate(window(2), {x: a}), te.interpret(window(2), {x: a}))


def test_what_costs_nothing_to_compute_is_not_copied() -> None:
    x = te.placeholder((20, 32), name="x")
    double = te.compute((20, 32), lambda i, j: 2.0 * x[i, j], name="double")
    assert not any("_padded" in name for name in planned([x], [smoothed(double, "zero")]).program.stages)


def test_the_last_vector_of_a_row_is_masked() -> None:
    x, v = te.placeholder((8, 28), name="x"), te.reduce_axis(3, name="v")
    y = te.compute((8, 24), lambda i, j: te.sum(x[i, j + v], axis=v), name="y")
    loops = re.findall(r"for \(\S*y_window\S*\.s1\.\S*", te.build([x], y).source("stmt"))
    assert not any("_v," in loop for loop in loops), loops


def test_columns_are_reduced_whatever_their_number() -> None:
    x = te.placeholder((131, 75), name="x")
    outputs = [x.sum(axis=0), x.max(axis=0)]
    a = RANDOM.integers(-9, 9, (131, 75)).astype(np.float32)
    for found, expected in zip(te.evaluate(outputs, {x: a}), te.interpret(outputs, {x: a}), strict=True):
        np.testing.assert_array_equal(found, expected)


def unrolled_rows(term: Any, rows: int, columns: int = 100) -> list[int]:
    """How many rows of a sum along columns are written out, for each loop that is."""
    x = te.placeholder((rows, columns), name="x")
    loops = te.build([x], te.compute((rows, columns), lambda i, j: term(x[i, j])).sum(axis=0)).loop_nest()
    return [int(last) + 1 for last in re.findall(r"unrolled \S*_i in \[0, (\d+)\]", loops)]


def test_rows_that_are_added_at_once_leave_no_rest_and_are_few_where_terms_are_long() -> None:
    assert unrolled_rows(lambda v: v, 90) == [9]
    assert unrolled_rows(lambda v: v, 97) == [8]
    assert unrolled_rows(lambda v: te.log(1 + te.exp(te.sin(v) * te.cos(v))), 90) == [2]


def test_columns_are_shared_by_threads_only_where_blocks_of_rows_are_too_few() -> None:
    x = te.placeholder((100_000, 100), name="x")
    with assuming({"cores": 2}):
        text = str(te.Schedule(x.sum(axis=0).named("s")).auto(target="x86-64-v4"))
    (blocks,), (tasks,) = (
        re.findall(rf"for {loop} < (\d+){rest}:", text) for loop, rest in (("block", ""), ("f0", ", parallel"))
    )
    assert tasks == blocks, text


def test_a_large_cheap_stage_is_computed_again_and_a_dear_one_is_not() -> None:
    def program(function: Any) -> list[te.Tensor]:
        stage = te.compute((4096, 1024), lambda i, j: function(x[i, j]), name="stage")
        return [stage.sum(axis=0), te.compute((4096, 1024), lambda i, j: stage[i, j] + x[i, j], name="after")]

    x = te.placeholder((4096, 1024), name="x")
    for function, again in ((lambda v: v / (1 + v * v), True), (lambda v: te.exp(te.sin(te.tanh(v))), False)):
        plan = planned([x], program(function))
        assert isinstance(plan.places["stage"].directive, ComputeInline) == again


def test_a_large_stage_is_computed_again_though_small_ones_are_read_at_quotients() -> None:
    """Groups of channels, as in a normalization: their factors stay in the cache, and are one number along a row."""
    x, c, n = te.placeholder((4, 64, 90, 100), name="x"), te.reduce_axis(16, name="c"), te.reduce_axis(90, name="n")
    k = te.reduce_axis(100, name="k")
    total = te.compute((4, 4), lambda b, g: te.sum(x[b, g * 16 + c, n, k], axis=(c, n, k)), name="total")
    factor = te.compute((4, 4), lambda b, g: te.sqrt(total[b, g] * total[b, g] + 1.0), name="factor")
    shape = (4, 64, 90, 100)
    stage = te.compute(
        shape, lambda b, i, j, m: (x[b, i, j, m] * factor[b, i // 16] + total[b, i // 16]) * x[b, i, j, m], name="stage"
    )
    twice = te.compute(shape, lambda b, i, j, m: stage[b, i, j, m] * stage[b, i, j, m] + total[b, i // 16], name="s")
    outputs = [te.compute((64,), lambda i: te.sum(lambda b, j, m: twice[b, i, j, m]), name="sums")]
    outputs.append(te.compute(shape, lambda b, i, j, m: twice[b, i, j, m] - x[b, i, j, m], name="after"))
    plan = planned([x], outputs)
    assert isinstance(plan.places["stage"].directive, ComputeInline)
    assert isinstance(plan.places["s"].directive, ComputeInline)
    feeds = RANDOM.integers(-3, 3, shape).astype(np.float32)
    for found, expected in zip(te.evaluate(outputs, {x: feeds}), te.interpret(outputs, {x: feeds}), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-3)


@pytest.mark.parametrize("cut", ["made", "near", "both"])
def test_a_bound_of_what_is_computed_or_read_in_pieces(cut: str) -> None:
    """All of it was asked for then, which the promise does not cover: the call failed."""
    x = te.placeholder((32, 17), name="x")
    made = te.compute((32, 17), lambda i, j: x[i, j] * 2.0, name="made")
    near = te.compute((26, 17), lambda i, j: made[i, j] + made.at(i + 2, j - 2, mode="zero"), name="near")
    s = te.Schedule(near)
    s[made].compute_root().bound("i", 0, 31)
    for stage in (made, near):
        if cut in (stage.name, "both"):
            s[stage].cut_at("j", 2, 8)
    values = np.arange(32 * 17, dtype="float32").reshape(32, 17)
    np.testing.assert_array_equal(te.build(x, near, schedule=s)(values), te.interpret(near, {x: values}))


def test_a_bound_leaves_what_a_scan_reads_of_itself() -> None:
    """Which was found out when the kernel was called."""
    x = te.placeholder((3,), "int32", name="x")
    made = te.scan((8, 4), lambda s, i, j: te.select(i == 0, x[0] + j, s.at(i - 1, j - 1, mode="clamp")), axis=0)
    output = te.compute((2,), lambda k: made[7, 1] + k, name="output")
    s = te.Schedule(output)
    with pytest.raises(te.ScheduleError, match="whose index is from 0 to 2, expected within 1 to 3"):
        s[made].bound("j", 1, 3)
    made = te.scan((8, 4), lambda s, i, j: te.select(i == 0, x[0] + j, s[i - 1, j] + 1), axis=0)
    output = te.compute((2,), lambda k: made[7, 1] + k, name="output")
    s = te.Schedule(output)
    s[made].bound("j", 1, 3)
    values = np.arange(3, dtype="int32")
    np.testing.assert_array_equal(te.build(x, output, schedule=s)(values), te.interpret(output, {x: values}))


def test_a_scatter_is_folded_along_its_rows_alone() -> None:
    """Where points may lie anywhere all of them are computed for any: the call failed."""
    i, k = te.reduce_axis(7, "i"), te.reduce_axis(4, "k")
    made = te.scatter((7, 3), [i, k], (i, k % 3), i + k, name="made")
    out = te.compute((7, 3), lambda y, x: made[y, x] * 2, name="out")
    s = te.Schedule(out)
    s[made].compute_at(out, "y").store_root()
    points = s.copy()
    with pytest.raises(te.ScheduleError, match="points of made may lie anywhere along 'd1'"):
        te.build([], out, schedule=points[made].fold_storage("d1", 2).schedule)
    s[made].fold_storage("i", 2)
    np.testing.assert_array_equal(te.build([], out, schedule=s)(), te.interpret(out, {}))


@pytest.mark.parametrize("mode", ["clamp", "zero"])
@pytest.mark.parametrize(
    ("rows", "low", "high", "fold"), [(64, -1, 1, 3), (64, -2, 3, 6), (7, -1, 1, 4), (1, -2, 1, 8)]
)
def test_an_axis_held_at_its_ends_is_folded(mode: str, rows: int, low: int, high: int, fold: int) -> None:
    """Between the ends one row needs as many as any, at the ends fewer."""
    x = te.placeholder((rows, 16), name="x")
    a = te.compute((rows, 16), lambda y, j: x[y, j] * 2, name="a")
    b = te.compute((rows, 16), lambda y, j: a.at(y + low, j, mode=mode) + a.at(y + high, j, mode=mode), name="b")
    array = np.random.default_rng(0).standard_normal((rows, 16)).astype("float32")
    s = te.Schedule(b)
    s[a].compute_at(b, "y").store_root().fold_storage("y", fold).vectorize("j", 8)
    np.testing.assert_array_equal(te.build(x, b, schedule=s)(array), te.interpret(b, {x: array}))
    if rows > high - low:
        with pytest.raises(te.ScheduleError, match=f"needs {high - low + 1} elements along 'y'"):
            te.build(x, b, schedule=s.without("fold_storage")[a].fold_storage("y", high - low).schedule)
