"""`s.auto`: the default schedule as directives, and Halide's autoschedulers with their limits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tedsl as te
from tedsl.backend.scheduling import autoschedulers

N = 48
RANDOM = np.random.default_rng(5)


def product() -> tuple[list[te.Tensor], te.Tensor, te.Tensor]:
    A, B = te.placeholder((N, N), name="A"), te.placeholder((N, N), name="B")
    k = te.reduce_axis(N, "k")
    C = te.compute((N, N), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    D = te.compute((N, N), lambda i, j: te.maximum(C[i, j], 0.0) + A[j, i], name="D")
    return [A, B], C, D


def checked(inputs: list[te.Tensor], outputs: Any, schedule: Any) -> Any:
    arrays = [RANDOM.integers(-4, 5, t.shape).astype(t.dtype.numpy) for t in inputs]
    kernel = te.build(inputs, outputs, schedule=schedule)
    np.testing.assert_array_equal(kernel(*arrays), te.interpret(outputs, dict(zip(inputs, arrays, strict=True))))
    return kernel


def refusal(outputs: Any, scheduler: str, inputs: list[te.Tensor] | None = None, target: str = "host") -> str:
    with pytest.raises(te.ScheduleError) as caught:
        te.build(inputs or [], outputs, schedule=te.Schedule(outputs).auto(scheduler), target=target)
    return str(caught.value)


def test_the_default_schedule_is_spelled_out_and_runs_as_it_is() -> None:
    inputs, C, D = product()
    s = te.Schedule(D).auto()
    assert {"C_columns", "C_sums", "C", "D"} <= set(s.stages)
    assert s["C_sums"].loops[-1] == "j_v"
    assert "for j_v < " in str(s)
    assert s.diff() == ""
    assert checked(inputs, D, s).loop_nest() == te.build(inputs, D).loop_nest()


def test_a_change_of_the_default_schedule_shows_as_a_difference(tmp_path: Path) -> None:
    inputs, C, D = product()
    s = te.Schedule(D).auto("default")
    s["C_columns"].store_in("stack")
    *before, after = [line for line in s.diff().splitlines() if line[0] in "+-"]
    said = "".join(f"{line.removeprefix('-C_columns: ')}, " for line in before)  # nothing, on some processors
    assert (len(before) <= 1, after) == (True, f"+C_columns: {said}in stack memory")
    s.save(tmp_path / "s.json")
    again = te.Schedule.load(tmp_path / "s.json", D)
    assert str(again) == str(s)
    checked(inputs, D, again)


def test_the_default_schedule_fills_in_what_is_left_open() -> None:
    inputs, C, D = product()
    s = te.Schedule(D)
    s[D].parallel("i")
    before = s["D"].loops
    s.auto()
    assert not [line for line in s.diff().splitlines() if line[0] in "+-" and "C_" in line]
    assert s["D"].loops[: len(before)] == before
    assert "C_columns" in s.stages
    checked(inputs, D, s)


def test_a_program_made_for_finite_numbers_is_not_used_for_others() -> None:
    x, w = te.placeholder((2, 8, 12, 12), name="x"), te.placeholder((16, 8, 3, 3), name="w")
    y = te.compute(
        (2, 16, 12, 12),
        lambda b, o, i, j: te.sum(lambda c, p, q: x.at(b, c, i + p - 1, j + q - 1, mode="zero") * w[o, c, p, q]),
        name="y",
    )
    g = te.placeholder(y.shape, name="g")
    dx = te.differentiate(y, x, head=g)
    s = te.Schedule(dx).auto()
    kernel = te.build([g, w], dx, schedule=s)
    arrays = [RANDOM.integers(-4, 5, t.shape).astype(np.float32) for t in (g, w)]
    for value in (0.0, np.inf):
        arrays[1][0, 0, 0, 0] = value
        np.testing.assert_array_equal(kernel(*arrays), te.interpret(dx, {g: arrays[0], w: arrays[1]}))


@pytest.mark.parametrize("scheduler", ["mullapudi2016", "adams2019", "li2018"])
def test_autoschedulers_of_halide(scheduler: str) -> None:
    inputs, C, D = product()
    s = te.Schedule(D).auto(scheduler)
    assert str(s).startswith(f"{scheduler} schedules this when a kernel is built:\nC: left to {scheduler}\n")
    kernel = checked(inputs, D, s)
    assert "parallel" in kernel.loop_nest()
    checked(inputs, C, scheduler)


def test_sums_into_what_is_there_do_not_use_an_autoscheduler() -> None:
    inputs, C, D = product()
    kernel = te.build(inputs, D, schedule="mullapudi2016")
    a, b = (np.ones(t.shape, np.float32) for t in inputs)
    out = np.ones((N, N), np.float32)
    np.testing.assert_array_equal(kernel(a, b, out=out, mode="add"), N + 2)


def test_the_autoscheduler_for_gpus() -> None:
    inputs, C, D = product()
    kernel = te.build(inputs, D, schedule="anderson2021", target="cuda")
    assert "gpu_block" in kernel.loop_nest()


def test_what_autoschedulers_cannot_do_is_refused_with_the_reason() -> None:
    inputs, C, D = product()
    with pytest.raises(te.ScheduleError, match=r"no scheduler 'adams2018'; .* did you mean 'adams2019'"):
        te.Schedule(D).auto("adams2018")
    with pytest.raises(te.ScheduleError, match="no scheduler 'adams'"):
        te.build(inputs, D, schedule="adams")
    with pytest.raises(TypeError, match="the name of a scheduler"):
        te.Schedule(D).auto(3)  # type: ignore[arg-type]
    s = te.Schedule(D)
    s[D].parallel("i")
    with pytest.raises(te.ScheduleError, match=r"s.auto\('li2018'\), at .*the schedule has directives"):
        s.auto("li2018")
    with pytest.raises(te.ScheduleError, match="cannot be combined"):
        te.Schedule(D).auto("li2018")[D].parallel("i")
    n = te.var("n")
    x = te.placeholder((n, 4), name="x")
    assert "n is symbolic (x : float32[n, 4])" in refusal(te.compute((n,), lambda i: x[i, 0] * 2), "adams2019")
    made = te.extern(lambda b: b, (N, N), "float32", [inputs[0]], name="E")
    assert "E is a Python function" in refusal(te.compute((N,), lambda i: made[i, i]), "adams2019", inputs)
    assert "for GPUs" in refusal(D, "anderson2021", inputs)
    assert "for CPUs" in refusal(D, "adams2019", inputs, "cuda")
    index = te.placeholder((N,), "int32", name="index")
    assert "known only at run time" in refusal(
        te.compute((N,), lambda i: inputs[0][index[i], 0]), "adams2019", [*inputs, index]
    )


def test_a_plugin_that_fails_is_a_schedule_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    inputs, C, D = product()
    monkeypatch.setitem(autoschedulers.NAMES, "li2018", "Unknown1999")
    assert "li2018 cannot schedule this program; it says: " in refusal(D, "li2018", inputs)
    crash = tmp_path / "crash"
    crash.write_text("#!/bin/sh\necho broken >&2\nkill -SEGV $$\n")
    crash.chmod(0o700)
    monkeypatch.setattr("sys.executable", str(crash))
    assert "its process ended with -11, saying: broken" in refusal(D, "li2018", inputs)


def test_outputs_that_the_default_schedule_takes_apart_are_found() -> None:
    A = te.placeholder((N, N), name="A")
    u, v = te.compute((N, N), lambda i, j: (A[i, j] + 1, te.exp(A[i, j]) + te.exp(A[j, i])), name=("u", "v"))
    D = te.compute((N, N), lambda i, j: u[i, j] * u[j, i] + v[i, j] * v[j, i], name="D")
    s = te.Schedule([D, v]).auto()
    assert s[u].name != s[v].name
    kernel = te.build([A], [D, v], schedule=s)
    a = RANDOM.standard_normal((N, N)).astype(np.float32)
    for found, expected in zip(kernel(a), te.interpret([D, v], {A: a}), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)  # terms of about one cancel


def test_atomics_are_forbidden_unless_they_are_allowed() -> None:
    A = te.placeholder((4, 400), name="A")
    j, k = te.reduce_axis(4, "j"), te.reduce_axis(400, "k")
    W = te.scatter((7,), axes=[j, k], index=((3 * j + k) % 7,), value=A[j, k], name="W")
    with pytest.raises(te.ScheduleError, match=r"li2018 adds with atomics.*deterministic=False"):
        te.build([A], W, schedule="li2018")
    a = np.ones((4, 400), np.float32)
    found = te.build([A], W, schedule=te.Schedule(W).auto("li2018"), deterministic=False)(a)
    np.testing.assert_array_equal(found, te.interpret(W, {A: a}))


@pytest.mark.parametrize("case", ["copied", "bfloat16", "scan"])
def test_autoschedulers_take_every_construct(case: str) -> None:
    A = te.placeholder((3, 5), "bfloat16" if case == "bfloat16" else "float32", name="A")
    outputs = {
        "copied": [A.argmax(1), A],  # functions of their own hand these out
        "bfloat16": [A * 2],
        "scan": [te.scan((3, 5), lambda y, t, i: te.select(t == 0, A[0, i], y[t - 1, i] + A[t, i]))],
    }[case]
    checked_all([A], outputs, "mullapudi2016")


def checked_all(inputs: list[te.Tensor], outputs: list[te.Tensor], schedule: Any) -> None:
    arrays = [RANDOM.integers(-4, 5, t.shape).astype(t.dtype.numpy) for t in inputs]
    found = te.build(inputs, outputs, schedule=schedule)(*arrays)
    for got, want in zip(found, te.interpret(outputs, dict(zip(inputs, arrays, strict=True))), strict=True):
        np.testing.assert_array_equal(got, want)


def test_the_default_schedule_by_name_is_built_as_without_a_name() -> None:
    """With its rows of pixels as rows of numbers, for which there is no directive; one more directive is a schedule."""
    x = te.placeholder((40, 50, 3), name="x")
    y = te.compute(x.shape, lambda i, j, c: x.at(i, j - 1, c, mode="clamp") + x.at(i, j + 1, c, mode="clamp"))
    target = "x86-64-v4"
    usual = te.build(x, y, target=target).loop_nest()
    assert te.build(x, y, schedule=te.Schedule(y).auto(target=target), target=target).loop_nest() == usual
    assert te.build(x, y, schedule=te.Schedule(y), target=target).loop_nest() == usual
    changed = te.Schedule(y).auto(target=target)
    changed[y].parallel("f0")
    assert te.build(x, y, schedule=changed, target=target).loop_nest() != usual
    assert te.build(x, y, schedule=te.Schedule(y).auto(target="x86-64-v2"), target=target).loop_nest() != usual


def test_a_loop_that_the_default_schedule_has_rewritten_is_told_of() -> None:
    x = te.placeholder((100, 100), name="x")
    y = te.compute((96, 96), lambda i, j: te.sum(lambda k, q: x[i + k, j + q] / 25.0), name="y")
    for options in ({}, {"loops": False}):
        s = te.Schedule(y).auto(**options)
        with pytest.raises(te.ScheduleError, match=r"no loop 'q'; loops of y: .*; s.auto\('default'.*'q' is there "):
            s[y].unroll("q")
        with pytest.raises(te.ScheduleError, match=r"stays if a directive of y is given before it$"):
            s[y].fuse("k", "q")
        with pytest.raises(te.ScheduleError, match=r"no loop 'z'; loops of y: [ijwov_, ]*$"):  # nor was there one
            s[y].unroll("z")
        kept = te.Schedule(y)
        kept[y].unroll("q")
        assert "q < 5, unrolled" in str(kept.auto(**options))
    s = te.Schedule(y).auto(loops=False)
    s[y].split("i", 8)
    with pytest.raises(te.ScheduleError, match=r"no loop 'i'.*; there was one, and i = io\*8 \+ ii$"):
        s[y].unroll("i")


def _unsharp(shape: tuple[int, int]) -> tuple[list[te.Tensor], te.Tensor]:
    x, w = te.placeholder(shape, name="x"), te.placeholder((9,), name="w")
    rows = te.compute(shape, lambda i, j: te.sum(lambda k: w[k] * x.at(i, j + k - 4, mode="reflect")), name="rows")
    blur = te.compute(shape, lambda i, j: te.sum(lambda k: w[k] * rows.at(i + k - 4, j, mode="reflect")), name="blur")
    return [x, w], te.compute(shape, lambda i, j: 2 * x[i, j] - blur[i, j], name="sharp")


@pytest.mark.share(3)
@pytest.mark.parametrize("shape", [(1, 5), (5, 1), (1, 1), (2, 3), (37, 53)], ids=str)
@pytest.mark.parametrize("order", ["auto first", "inline last", "alone"])
def test_a_schedule_in_strips_fits_every_size(shape: tuple[int, int], order: str) -> None:
    """Of a picture of one row the sums of `blur` become stages of their own, which read `rows` too."""
    inputs, sharp = _unsharp(shape)
    s = te.Schedule(sharp)
    if order != "alone":
        s.auto(loops=False)
    if order == "auto first":
        s["blur"].compute_inline()
    strip, _ = s[sharp].split("i", 16)
    s[sharp].parallel(strip).vectorize("j", 8)
    s["rows"].compute_at(sharp, strip).vectorize("j", 8)
    if order == "inline last":
        s["blur"].compute_inline()
    assert "rows: what sharp needs here" in str(s)
    rng = np.random.default_rng(0)
    feeds = {t: rng.random(t.shape, "float32") for t in inputs}
    found = te.build(inputs, sharp, schedule=s)(*feeds.values())
    np.testing.assert_allclose(found, te.interpret(sharp, feeds), rtol=1e-5)
    names = {"te": te, "sharp": sharp}
    exec(s.code("again"), names)
    assert str(names["again"]) == str(s)


def test_what_followed_a_stage_inside_leaves_with_it() -> None:
    _, sharp = _unsharp((1, 5))
    s = te.Schedule(sharp).auto(loops=False)
    s["blur"].compute_inline()
    inline = str(s)
    s["rows"].compute_at(sharp, "i")
    assert "blur_partial: what sharp needs here" in str(s)
    s["rows"].compute_root()
    assert str(s) == inline
