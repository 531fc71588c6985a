"""memory= for programs with scans: cut along time, a segment is forgotten and computed again."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import tedsl as te
from schedules.machine import assuming
from tedsl.backend.building.request import BuildOptions, request_for
from tedsl.backend.compiling.single_kernel import SingleKernel
from tedsl.backend.host.units import parse_bytes
from tedsl.backend.sequence import along_time, memory_limit
from tedsl.backend.sequence.clock import Clock
from tedsl.backend.sequence.kept_steps import with_kept_steps
from tedsl.backend.sequence.segments import Segments
from tedsl.backend.sequence.timeline import NotAlongTime, Timeline
from tedsl.backend.sequence.whole_time import over_all_of_time
from tedsl.lang.tensor import Scan
from tedsl.lang.traverse import operations_between, stages_of

STEPS, PLACES = 97, 6
needs_cc = pytest.mark.skipif(shutil.which("cc") is None, reason="a C compiler is needed")
Made = tuple[list[te.Tensor], list[te.Tensor]]


def arrays_for(inputs: list[te.Tensor], seed: int = 0) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [rng.uniform(-0.5, 0.5, t.shape).astype(t.dtype.numpy) for t in inputs]


def check(made: Made, share: float = 0.5) -> Any:
    """The same numbers in a share of the memory; sums over time are added segment by segment."""
    inputs, outputs = made
    whole = te.build(inputs, outputs)
    used = whole.program.memory
    most = used.arrays + int(share * (used.between + used.inside))
    less = te.build(inputs, outputs, memory=most)
    assert less.program.peak_bytes <= most < whole.program.peak_bytes
    arrays = arrays_for(inputs)
    for _ in range(2):
        for found, want in zip(less(*arrays), whole(*arrays), strict=True):
            np.testing.assert_allclose(found, want, rtol=1e-9, atol=1e-9)
    compiled_once(less)
    return less


def wave(steps: int = STEPS) -> Made:
    """A wave equation, its misfit at two places, and the gradient for the speed and the source."""
    speed = te.placeholder((PLACES,), "float64", name="speed")
    source = te.placeholder((steps,), "float64", name="source")
    heard = te.placeholder((steps, 2), "float64", name="heard")

    def step(u: te.Tensor, t: te.Expr, x: te.Expr) -> te.Expr:
        def at(back: int, place: te.Expr) -> te.Expr:
            return te.select((t >= back) & (place >= 0) & (place < PLACES), u[t - back, place], 0.0)

        push = te.select(x == 2, source[t], 0.0)
        return 2 * at(1, x) - at(2, x) + speed[x] ** 2 * (at(1, x - 1) - 2 * at(1, x) + at(1, x + 1)) + push

    u = te.scan((steps, PLACES), step, dtype="float64", name="u")
    loss = te.compute((), lambda: te.sum(lambda t, k: (u[t, 4 * k + 1] - heard[t, k]) ** 2), name="loss")
    return [speed, source, heard], [loss, *te.differentiate(loss, [speed])]


def final(places: int = PLACES) -> Made:
    """A loss of the last step, which the adjoint begins with."""
    w = te.placeholder((places, places), "float64", name="w")
    start = te.placeholder((places,), "float64", name="start")

    def step(h: te.Tensor, t: te.Expr, i: te.Expr) -> te.Expr:
        return te.select(t == 0, start[i], te.tanh(te.sum(lambda k: w[i, k] * h[t - 1, k])))

    h = te.scan((STEPS, places), step, dtype="float64", name="h")
    loss = te.compute((), lambda: te.sum(lambda i: h[STEPS - 1, i] ** 3), name="loss")
    return [w, start], [loss, *te.differentiate(loss, [w, start])]


def normed() -> Made:
    """What goes back depends on a sum over all steps, and neighbours in time are compared."""
    a = te.placeholder((PLACES,), "float64", name="a")
    x = te.placeholder((STEPS, PLACES), "float64", name="x")
    y = te.scan(
        (STEPS, PLACES),
        lambda y, t, i: te.select(t >= 3, 0.5 * y[t - 3, i] + a[i] * y[t - 1, i], 1.0) + x[t, i],
        dtype="float64",
        name="y",
    )
    ahead = te.reduce_axis(STEPS - 1, name="r")
    rough = te.compute((), lambda: te.sum((y[ahead + 1, 0] - y[ahead, 1]) ** 2, axis=ahead), name="rough")
    size = te.compute((), lambda: te.sum(lambda t, i: y[t, i] ** 2), name="size")
    loss = te.compute((), lambda: rough[()] / te.sqrt(size[()]), name="loss")
    return [a, x], [loss, *te.differentiate(loss, [a])]


def clocked() -> Made:
    """The step itself is a number, and one step is unlike the others."""
    a = te.placeholder((PLACES,), "float64", name="a")

    def step(y: te.Tensor, t: te.Expr, i: te.Expr) -> te.Expr:
        moved = te.select(t >= 1, y[t - 1, i] * a[i], 1.0) * te.sin(0.1 * t)
        return moved + te.select(t == 50, a[i] ** 2, 0.0)

    y = te.scan((STEPS, PLACES), step, dtype="float64", name="y")
    loss = te.compute((), lambda: te.sum(lambda t, i: y[t, i] ** 2 * te.cast(t, "float64")), name="loss")
    return [a], [loss, *te.differentiate(loss, [a])]


def backwards() -> Made:
    """A scan from the last step to the first: its gradient goes upwards."""
    a = te.placeholder((PLACES,), "float64", name="a")
    x = te.placeholder((STEPS, PLACES), "float64", name="x")
    y = te.scan(
        (STEPS, PLACES),
        lambda y, t, i: te.select(t < STEPS - 2, y[t + 2, (i + 1) % PLACES] * a[i], 1.0) + te.tanh(x[t, i]),
        reverse=True,
        dtype="float64",
        name="y",
    )
    loss = te.compute((), lambda: te.sum(lambda i: y[0, i] * y[1, i]), name="loss")
    return [a, x], [loss, *te.differentiate(loss, [a])]


def across() -> Made:
    """Time is the last dimension, of inputs too."""
    a = te.placeholder((PLACES,), "float64", name="a")
    x = te.placeholder((PLACES, STEPS), "float64", name="x")
    y = te.scan(
        (PLACES, STEPS),
        lambda y, i, t: te.select(t >= 1, te.sin(y[(i + 1) % PLACES, t - 1]) * a[i], 0.0) + x[i, t],
        axis=1,
        dtype="float64",
        name="y",
    )
    loss = te.compute((), lambda: te.sum(lambda i, t: y[i, t] ** 2), name="loss")
    return [a, x], [loss, *te.differentiate(loss, [a])]


def packed() -> Made:
    """States of shapes of their own, and a stage in each step."""
    w = te.placeholder((PLACES, PLACES), "float64", name="w")

    def step(h: te.Tensor, s: te.Tensor, t: te.Expr) -> Any:
        z = te.compute((PLACES,), lambda i: te.sum(lambda k: w[i, k] * h[t - 1, k]), name="z")
        scale = te.compute((), lambda: 1.0 + te.sum(lambda i: z[i] ** 2), name="scale")
        return (
            lambda i: te.select(t >= 1, te.tanh(z[i] / scale[()]), 0.1 * (i + 1)),
            te.select(t >= 1, 0.9 * s[t - 1] + scale[()], 0.0),
        )

    h, s = te.scan([(STEPS, PLACES), (STEPS,)], step, dtype="float64", name=("h", "s"))
    loss = te.compute((), lambda: s[STEPS - 1] + te.sum(lambda i: h[STEPS - 1, i] ** 2), name="loss")
    return [w], [loss, *te.differentiate(loss, [w])]


def looked_up() -> Made:
    """Each step reads rows of a table at places that data say; their gradient is a scatter over time."""
    table = te.placeholder((11, PLACES), "float64", name="table")
    at = te.placeholder((STEPS,), "int32", name="at")
    y = te.scan(
        (STEPS, PLACES),
        lambda y, t, i: te.select(t >= 1, 0.9 * y[t - 1, i], 0.0) + te.tanh(table[at[t], i]),
        dtype="float64",
        name="y",
    )
    loss = te.compute((), lambda: te.sum(lambda t, i: y[t, i] ** 2), name="loss")
    return [table, at], [loss, *te.differentiate(loss, [table])]


def listened() -> Made:
    """Some places of all steps, in a list: the gradient of the reads is a scatter along time, not over it."""
    a = te.placeholder((PLACES,), "float64", name="a")
    y = te.scan(
        (STEPS, PLACES),
        lambda y, t, i: te.select(t >= 1, te.sin(y[t - 1, (i + 1) % PLACES]) * a[i], 0.1 * (i + 1)),
        dtype="float64",
        name="y",
    )
    loss = (y[:, [3, 0, 3]] ** 2).sum() + y[:, [1]].sum()
    return [a], [loss, te.differentiate(loss, a)]


PROGRAMS: list[Callable[[], Made]] = [wave, final, normed, clocked, backwards, across, packed, looked_up, listened]


@pytest.mark.share(2)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_programs_are_the_same_in_half_of_the_memory(program: Callable[[], Made]) -> None:
    check(program())


@st.composite
def recurrences(draw: st.DrawFn) -> Made:
    """Two scans, the second of what the first one does, with reads before and after, and losses of several kinds."""
    steps, places = draw(st.integers(200, 400)), draw(st.integers(5, 12))
    back, reverse = draw(st.integers(1, 3)), draw(st.booleans())
    shift, other = draw(st.integers(-2, 2)), draw(st.integers(-2, 2 if draw(st.booleans()) else 0))
    a = te.placeholder((places,), "float64", name="a")
    x = te.placeholder((steps, places), "float64", name="x")

    def before(tensor: te.Tensor, t: te.Expr, by: int, i: Any, other: Any) -> te.Expr:
        """What lies `by` steps before in the order of the scan, where there is something."""
        at = t + by if reverse else t - by
        return te.select((at >= 0) & (at < steps), tensor[at, i], other)

    def first(u: te.Tensor, t: te.Expr, i: te.Expr) -> te.Expr:
        pushed = before(x, t, shift, i, 0.25)
        return te.tanh(before(u, t, back, i, a[i]) + before(u, t, 1, (i + 1) % places, 0.5) * a[i] + pushed)

    def second(v: te.Tensor, t: te.Expr, i: te.Expr) -> te.Expr:
        return 0.5 * before(v, t, 1, i, 0.0) + a[i] * before(u, t, other, i, 1.0) ** 2

    u = te.scan((steps, places), first, reverse=reverse, dtype="float64", name="u")
    v = te.scan((steps, places), second, reverse=reverse, dtype="float64", name="v")
    end, late = 0 if reverse else steps - 1, te.reduce_axis((2, steps), name="r")
    losses = [
        lambda: te.sum(lambda t, i: u[t, i] * v[t, i]),
        lambda: te.sum(lambda i: v[end, i] ** 2 + u[end, i]),
        lambda: te.sum((v[late, 0] - u[late - 2, 0]) ** 2, axis=late),
    ]
    made = te.compute((), draw(st.sampled_from(losses)), name="loss")
    loss = te.log(1.0 + made * made) if draw(st.booleans()) else made
    return [a, x], [loss, *te.differentiate(loss, draw(st.sampled_from([[a], [a]])))]


@settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
@given(recurrences(), st.sampled_from([0.7, 0.5]))
def test_drawn_recurrences_are_the_same_in_less_memory(made: Made, share: float) -> None:
    check(made, share)


@pytest.mark.long
@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(recurrences(), st.sampled_from([0.7, 0.5]))
def test_many_drawn_recurrences_are_the_same_in_less_memory(made: Made, share: float) -> None:
    check(made, share)


def recorded() -> Made:
    """Results along time: one place, all states from the second one on, and what is read ahead of that."""
    (speed, source, _), (loss, _) = wave(300)
    u = next(op for op in te.differentiate(loss, [speed])[0].op.inputs if op.name == "u")
    there = te.compute((300,), lambda t: u[t, 3] + speed[3], name="there")
    ahead = te.compute((299, 2), lambda t, k: there[t + 1] * u[t, k], name="ahead")
    return [speed, source], [there, ahead, te.compute((), lambda: te.sum(lambda t: ahead[t, 1]), name="total")]


def test_results_along_time_are_written_part_by_part() -> None:
    kernel = check(recorded(), 0.4)
    speed, source = arrays_for(recorded()[0])
    given = [np.full((300,), 7.0), np.full((299, 2), 7.0), np.full((), 7.0)]
    expected = kernel(speed, source)
    kernel(speed, source, out=given)
    for found, want in zip(given, expected, strict=True):
        np.testing.assert_array_equal(found, want)


def test_parts_are_added_to_what_was_there() -> None:
    inputs, outputs = recorded()
    arrays, kernel = arrays_for(inputs), check((inputs, outputs), 0.4)
    out = [np.ones(t.shape) for t in outputs]
    kernel(*arrays, out=out, mode="add")
    for found, want in zip(out, kernel(*arrays), strict=True):
        np.testing.assert_allclose(found, want + 1)


@needs_cc
def test_what_is_cut_along_time_is_exported(tmp_path: Path) -> None:
    inputs, outputs = recorded()
    arrays, kernel = arrays_for(inputs), check((inputs, outputs), 0.4)
    kernel.export(tmp_path)
    script = (
        f"import numpy as np, {kernel.name} as made\n"
        "arrays = np.load('given.npz'); results = made." + kernel.name + "(*arrays.values())\n"
        "np.savez('made.npz', *results)"
    )
    np.savez(tmp_path / "given.npz", *arrays)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for found, want in zip(np.load(tmp_path / "made.npz").values(), kernel(*arrays), strict=True):
        np.testing.assert_array_equal(found, want)
    across_time = check(across(), 0.6)
    with pytest.raises(ValueError, match=r"export: it is cut along time, which must be the first dimension of 'x'"):
        across_time.export(tmp_path)


def test_results_across_time_and_gradients_share_a_program() -> None:
    (a, x), (loss, slope) = across()
    y = next(t for t in slope.op.inputs if t.name == "y")
    kernel = check(([a, x], [y, loss, slope]), 0.6)
    assert len(kernel.program.calls) > 4


def test_a_recording_needs_no_more_memory_than_its_arrays_and_a_cache() -> None:
    steps, places = 3000, 1024
    speed, source = te.placeholder((places,), name="speed"), te.placeholder((steps,), name="source")

    def step(u: te.Tensor, t: te.Expr, x: te.Expr) -> te.Expr:
        left, right = u[t - 1, te.maximum(x - 1, 0)], u[t - 1, te.minimum(x + 1, places - 1)]
        moved = u[t - 1, x] + speed[x] * (left - 2 * u[t - 1, x] + right)
        return te.select(t == 0, 0.0, moved) + te.select(x == 3, source[t], 0.0)

    u = te.scan((steps, places), step, name="u")
    heard = te.compute((steps,), lambda t: u[t, 9], name="heard")
    most = te.compute((), lambda: te.sum(lambda x: u[steps - 1, x]), name="most")
    kernel = te.build([speed, source], [heard, most])
    assert kernel.program.peak_bytes < 4 << 20 < 4 * steps * places
    arrays = arrays_for([speed, source])
    for found, want in zip(
        kernel(*arrays), te.interpret([heard, most], dict(zip([speed, source], arrays))), strict=True
    ):
        np.testing.assert_allclose(found, want, rtol=2e-4, atol=1e-5)


def compiled_once(kernel: Any) -> None:
    """A call with contiguous arrays needs no other code than what was compiled with the kernel."""
    assert [len(core.forms.variants) for core in kernel.core.plan.kernels if len(core.forms.variants) != 1] == []


def in_segments(made: Made) -> None:
    """In segments of a small cache, results and numbers as the reference has them."""
    inputs, outputs = made
    arrays = arrays_for(inputs)
    with assuming({"forgotten": 1, "segment": 1, "step_run": 1, "l2": 2048}):
        kernel = te.build(inputs, outputs)
        results = kernel(*arrays)
    assert len(kernel.program.calls) > 2
    compiled_once(kernel)
    for found, want in zip(results, te.interpret(outputs, dict(zip(inputs, arrays, strict=True))), strict=True):
        np.testing.assert_allclose(found, want, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_losses_alone_need_one_turn(program: Callable[[], Made]) -> None:
    inputs, (loss, *_) = program()
    states = [op.output() for op in stages_of([loss]) if isinstance(op, Scan)]
    axes = [state.op.steps[0] for state in states]
    listened = [
        te.compute((STEPS,), lambda t, s=s, a=a: s[tuple(t if b is a else 0 for b in s.op.axes)], name="listened")
        for s, a in zip(states, axes, strict=True)
    ]
    in_segments((inputs, [*listened, loss]))


def test_a_segment_that_nobody_reads_has_no_kernel() -> None:
    """The last one on the way there, where the gradient asks for single steps alone."""
    x, head = te.placeholder((12, 64), "float64", name="x"), te.placeholder((12,), "float64", name="head")
    both = te.reducer(lambda a, b: te.maximum(a, b) + te.log1p(te.exp(-te.abs(a - b))), -1e30)
    k = te.reduce_axis(64, name="k")
    y = te.compute((12,), lambda i: both(x[i, k], axis=k), name="y")
    in_segments(([x, head], [y, *te.differentiate(y, [x], head=head)]))


def test_gradients_of_steps_that_cost_less_than_their_memory_go_back_through_the_cache() -> None:
    inputs, outputs = wave(3_000)
    with assuming({"forgotten": 1 << 16, "segment": 1, "l2": 1 << 14}):
        kernel = te.build(inputs, outputs)
        assert kernel.program.peak_bytes < 4 * 8 * 3_000 * PLACES
        assert any(call.again for call in kernel.program.calls)
        results = kernel(*arrays_for(inputs))
    for found, want in zip(results, te.build(inputs, outputs)(*arrays_for(inputs)), strict=True):
        np.testing.assert_allclose(found, want, rtol=1e-9)


def test_gradients_of_observed_steps_go_back_through_the_cache() -> None:
    """Few steps and places that a loss reads are kept, also where nobody has asked for less memory."""
    inputs, outputs = heat(64, 400)
    with assuming({"forgotten": 1 << 16, "segment": 1, "l2": 1 << 14}):
        kernel = te.build(inputs, outputs)
    assert kernel.program.peak_bytes < 4 * 400 * 64
    assert any(call.again for call in kernel.program.calls)
    arrays = arrays_for(inputs)
    feeds = dict(zip(inputs, arrays, strict=True))
    for found, want in zip(kernel(*arrays), te.interpret(outputs, feeds), strict=True):
        np.testing.assert_allclose(found, want, rtol=1e-4)


def test_scans_stay_in_one_piece_where_compiling_soon_matters() -> None:
    """`opt="fast"` took as long to compile as the default: each piece of time is code of its own."""
    inputs, outputs = heat(8192, 400)
    again = [any(c.again for c in te.build(inputs, outputs, opt=opt).program.calls) for opt in ("default", "fast")]
    assert again == [True, False]


def sine(steps: int) -> Made:
    """Functions that take many instructions, of each state."""
    k = te.placeholder((64,), name="k")

    def step(u: te.Tensor, t: te.Expr, x: te.Expr) -> te.Expr:
        return te.select(t == 0, k[x], u[t - 1, x] + 0.1 * te.sin(u[t - 1, (x + 1) % 64]) * te.exp(-u[t - 1, x]))

    loss = (te.scan((steps, 64), step, name="u")[-1] ** 2).sum()
    return [k], [loss, te.differentiate(loss, k)]


@pytest.mark.parametrize("made", [final(64), sine(400)], ids=["products", "functions"])
def test_steps_that_cost_more_than_their_memory_are_held(made: Made) -> None:
    with assuming({"forgotten": 1, "segment": 1, "l2": 1}):
        kernel = te.build(*made)
    assert not any(call.again for call in kernel.program.calls)


def test_steps_that_are_many_beside_others_are_not_copied_from_segment_to_segment() -> None:
    inputs, (loss, *_) = heat(64, 400)
    (u,) = (op.output() for op in stages_of([loss]) if isinstance(op, Scan))
    loss = (u[1::3] ** 2).sum()
    with assuming({"forgotten": 1, "segment": 1, "l2": 1 << 14}):
        kernel = te.build(inputs, [loss, te.differentiate(loss, inputs[0])])
    assert not any(call.again for call in kernel.program.calls)


def test_places_that_are_read_of_a_step_are_kept_alone() -> None:
    a = te.placeholder((60,), name="a")
    u = te.scan((40, 60), lambda u, t, i: te.select(t == 0, a[i], u[t - 1, i] * 0.5), name="u")
    seen = te.compute((4, 12), lambda s, i: u[10 * s + 3, 5 * i + 2])
    kept = with_kept_steps([a], over_all_of_time([a], [seen]))
    assert [t.shape for op in operations_between([a], kept) for t in op.outputs if "kept" in t.name] == [(4, 12)]


@pytest.mark.parametrize(("shape", "dim", "is_cut"), [((32, 64), 1, False), ((64, 32), 0, True), ((4, 64, 8), 1, True)])
def test_time_that_lies_along_rows_of_memory_is_not_cut_for_the_cache(
    shape: tuple[int, ...], dim: int, is_cut: bool
) -> None:
    """A segment of it would be a few elements of each row."""
    x, head = te.placeholder(shape, name="x"), te.placeholder(shape, name="head")
    y = te.cumprod(x, dim)
    with assuming({"forgotten": 1, "segment": 1, "l2": 2048}):
        kernel = te.build([x, head], [y, *te.differentiate(y, [x], head=head)])
    assert (len(kernel.program.calls) > 1) == is_cut


def test_the_last_state_of_a_long_wave_needs_no_more_than_two_segments_and_all_ends() -> None:
    kernel = check(wave(2_000), 0.1)
    # The first steps, the last ones of the gradient, and all between, forwards and backwards; numbers and the result.
    stages = [calls[0].stages for calls in kernel.program.kernels.values()]
    assert sorted(len(names) > 2 for names in stages) == [False] * 3 + [True] * 4
    assert kernel.program.extra_work < 0.7
    assert "calls compute again what was forgotten" in repr(kernel.program)


def test_gradients_that_read_no_state_compute_none_again() -> None:
    x = te.placeholder((4000,), "float64", name="x")
    u = te.scan(
        (400, 4000), lambda u, t, i: te.select(t == 0, x[i], 0.5 * u[t - 1, i] + 0.25 * u[t - 1, te.maximum(i - 1, 0)]),
        axis=0, name="u",
    )  # fmt: skip
    loss = te.sum(lambda i: u[399, i] * u[399, i], axis=None)
    kernel = te.build([x], [loss, *te.differentiate(loss, [x])], memory="3MB")
    assert len(kernel.program.calls) > 20
    assert "compute again" not in repr(kernel.program)


def test_what_cannot_be_cut_is_said() -> None:
    inputs, outputs = wave()
    u = next(op for op in te.differentiate(outputs[0], [inputs[0]])[0].op.inputs if op.name == "u")
    mean = te.compute((PLACES,), lambda x: te.max(lambda t: u[t, x]), name="peak")
    gradient = te.differentiate(te.sum(mean * mean), [inputs[0]])
    with pytest.raises(ValueError, match=r"along time: 'peak_winner' takes steps together by something other"):
        te.build(inputs[:2], gradient, memory="4KB")


@pytest.mark.parametrize("mode", ["clamp", "wrap", "reflect"])
def test_the_mode_of_a_read_does_not_touch_the_step_before(mode: str) -> None:
    """`u.at(t - 1, i + 1, mode=...)` is one step away, and the program is cut along time as any other."""
    start = te.placeholder((64,), name="start")
    u = te.scan((200, 64), lambda u, t, i: te.select(
        t == 0, start[i], 0.5 * u[t - 1, i] + 0.25 * (u.at(t - 1, i - 1, mode=mode) + u.at(t - 1, i + 1, mode=mode))
    ))  # fmt: skip
    loss = (u * u).sum()
    outputs = [loss, te.differentiate(loss, start)]
    lean = te.build(start, outputs, memory="40KB")
    array = np.linspace(0, 1, 64, dtype="float32")
    for found, expected in zip(lean(array), te.interpret(outputs, {start: array}), strict=True):
        np.testing.assert_allclose(found, expected, rtol=2e-5)
    assert f"u.at(t - 1, i - 1, mode='{mode}')" in str(u)


def heat(places: int, steps: int, kinds: int = 1) -> Made:
    """Heat along a rod whose conductivity is sought from what was measured at a few steps and places."""
    k, q = (te.placeholder((places,), name=name) for name in "kq")

    def step(u: te.Tensor, t: te.Expr, x: te.Expr) -> te.Expr:
        here = u[t - 1, x]
        left = te.select(x > 0, (k[x] + k[x - 1]) / 2 * (u[t - 1, x - 1] - here), 0.0)
        right = te.select(x < places - 1, (k[x] + k[x + 1]) / 2 * (u[t - 1, x + 1] - here), 0.0)
        return te.select(t == 0, 0.0, here + 0.2 * (left + right + q[x]))

    u = te.scan((steps, places), step, name="u")
    loss = ((u[[steps // 3, steps - 1]][:, np.arange(2, places, 5)] - 0.1) ** 2).mean() * 100
    return [k, q], [loss, *te.differentiate(loss, [k, q][:kinds])]


def heat64() -> Made:
    return heat(64, 400, 2)


def least_of(made: Made) -> int:
    """The bytes that a refusal names."""
    with pytest.raises(ValueError, match=r"is too little for .*without memory= it takes [\d.]+ [KM]B") as refused:
        te.build(*made, memory="1KB")
    (named,) = re.findall(r"needs about ([\d.]+ [KM]B)", str(refused.value))
    return parse_bytes(named)


@pytest.mark.parametrize("program", [wave, heat64])
def test_the_memory_that_a_refusal_names_is_enough(
    program: Callable[[], Made], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Heat along a rod was refused with 32.4 KB for any limit below, in which what takes 29.9 would have fitted.

    And a refusal took 6 to 18 s of one core, to compile what did not fit.
    """
    made = program()
    with monkeypatch.context() as compiling:
        compiling.setattr(SingleKernel, "any_variant", lambda self: pytest.fail("it was compiled"))
        named = least_of(made)
        with pytest.raises(ValueError, match="is too little"):
            te.build(*made, memory=named - 103)  # it is told in tenths
    lean = te.build(*made, memory=named)
    assert named - 103 <= lean.program.peak_bytes <= named


def test_ample_memory_needs_no_plan_of_the_least(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three plans of the least were made beside the one that was taken."""
    planned = []
    plan = along_time._Plan.plan
    monkeypatch.setattr(along_time._Plan, "plan", lambda self: planned.append(self) or plan(self))
    steps, n = 400, 24
    k, source = te.placeholder((n,), name="k"), te.placeholder((steps,), name="source")
    u = te.scan(
        (steps, n), lambda u, t, x: te.select(t == 0, k[x], u[t - 1, x] + k[x] * u[t - 1, (x + 1) % n] + source[t])
    )
    loss = te.compute((), lambda: te.sum(lambda x: u[steps - 1, x] ** 2))
    te.build([k, source], [loss, *te.differentiate(loss, [k])], memory="24KB")
    assert len(planned) == 1
    kernels = {id(kernel) for kernel, _ in planned[0].kernels.values() if kernel is not None}
    assert len(kernels) == 5  # the first step and all between, forwards and backwards, and the adjoint of the last one


def test_the_least_of_a_linear_scan_is_found_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing going back reads the states of a linear scan: counted as held, they led through six plans, some twice."""
    steps, n = 400, 24
    source = te.placeholder((n,), name="source")
    u = te.scan(
        (steps, n),
        lambda u, t, x: te.select(t == 0, 0.0, u[t - 1, x] + 0.1 * (u[t - 1, (x + 1) % n] - u[t - 1, x] + source[x])),
    )
    loss = (u[::50, ::5] ** 2).mean()
    program = request_for(source, [loss, te.differentiate(loss, source)], BuildOptions(), "te.build").compilation
    looked = []
    cuts = along_time.Cuts(program, lambda plan: looked.append(plan) or memory_limit._peak_bytes(program, plan))
    assert cuts.state == 0
    needed = memory_limit._peak_bytes(program, cuts.frugal)
    assert len(looked) == 3
    assert all(needed <= cuts.needs(length) for length in (4, 6, 9, 14, 32))


@settings(max_examples=2, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.builds(heat, st.integers(8, 40), st.integers(40, 300), st.integers(1, 2)),
    st.lists(st.floats(0.5, 2.0), min_size=8, max_size=8),
)
def test_a_limit_is_met_from_the_least_amount_on(made: Made, shares: list[float]) -> None:
    """2-D heat took 180 KB by its refusals, and was refused with 181, 185 and 200."""
    program = request_for(*made, BuildOptions(), "te.build").compilation
    cuts = along_time.Cuts(program, partial(memory_limit._peak_bytes, program))
    least = cuts.peak(cuts.frugal)
    with pytest.MonkeyPatch.context() as planning:
        planning.setattr(memory_limit, "compiled", lambda plan: plan)
        for most in [least - 1, least, least + 1, *(int(share * least) for share in shares)]:
            found = memory_limit._along_time(cuts, most)
            assert (found is not None) == (most >= least)
            assert found is None or cuts.peak(found) <= most


def test_what_a_kernel_is_planned_to_allocate_is_what_it_allocates() -> None:
    program = request_for(*heat(24, 90), BuildOptions(), "te.build").compilation
    plan = along_time.Cuts(program, lambda plan: 0).plan(9)
    for kernel in [core for core in plan.kernels if core.program.planner.part is None]:
        planned = kernel.planned_bytes
        lowered = kernel.any_variant().lowered
        own = sum(t.dtype.itemsize * int(np.prod(t.shape)) for op in lowered.temporaries for t in op.outputs)
        assert planned == own == sum(kernel.temporary_bytes({}))


def clock_of(made: Made) -> Clock:
    inputs, outputs = made
    over = with_kept_steps(inputs, over_all_of_time(inputs, outputs))
    return Clock(Timeline(operations_between(inputs, over), over))


@pytest.mark.parametrize(("steps", "length"), [(101, 4), (97, 5), (103, 20), (40, 13), (500, 17), (300, 33)])
@pytest.mark.parametrize("program", [wave, lambda steps: heat(8, steps)], ids=["wave", "heat"])
def test_segments_between_the_ends_are_alike(program: Callable[[int], Made], steps: int, length: int) -> None:
    clock = clock_of(program(steps))
    cut = clock.cut(length)
    assert [a.end for a in cut.segments[:-1]] == [b.begin for b in cut.segments[1:]]
    assert (cut.segments[0].begin, cut.segments[-1].end) == (0, clock.ticks)
    head, *between, tail = cut.segments
    assert list(cut.alike) == between
    assert max(head.length, tail.length) <= 3
    assert {part.length for part in between[1:]} == {cut.pattern.length}
    assert 0 < between[0].length <= cut.pattern.length <= max(length, clock.least)
    assert cut.pattern.length * 2 > min(length, steps // 2)


def test_a_remainder_of_steps_is_a_segment_of_its_own_where_a_result_goes_back() -> None:
    """The gradient of the source at each step is written from the end on: what the first one wrote too much would
    stand in its place.
    """
    inputs, outputs = wave(100)
    clock = clock_of((inputs, [*outputs, *te.differentiate(outputs[0], [inputs[1]])]))
    cut = clock.cut(11)
    assert cut.is_even
    assert len(cut.alike) == len(cut.segments) - 3


def test_stages_behind_a_scan_keep_their_values_of_before_its_first_step() -> None:
    """What chose by the state of three steps before, or by `start` in the first three, lost it there."""
    start, w = te.placeholder((3,), "float64", name="start"), te.placeholder((STEPS, 3), "float64", name="w")

    def step(y: te.Tensor, t: te.Expr, i: te.Expr) -> te.Expr:
        k = te.reduce_axis(3, name="k")
        return 0.5 * w[t, i] + te.max(te.select(t < 3, start[k], y[t - 3, k]) * w[t, k], axis=k)

    y = te.scan((STEPS, 3), step, dtype="float64", name="y")
    in_segments(([start, w], [y, *te.differentiate((y**2).sum(), [start, w])]))


def test_a_scan_may_be_alike_up_to_its_last_step() -> None:
    """Places say that no step after the last one is read: what there is left of those before are no steps at all."""
    x = te.placeholder((STEPS, PLACES), "float64", name="x")
    y = te.scan(
        (STEPS, PLACES), lambda y, t, i: te.select(i == t - 1, 0.5 * y[t - 1, i], te.sin(x[t, i])), dtype="float64"
    )
    loss = (y * y).sum()
    in_segments(([x], [loss, te.differentiate(loss, x)]))


def test_sums_of_sums_over_the_state_are_not_cut() -> None:
    """No kernel computes them; a segment with one was compiled nevertheless (KeyError)."""
    w = te.placeholder((3, 3), "float64", name="w")

    def step(y: te.Tensor, t: te.Expr, i: te.Expr) -> te.Expr:
        def inner(k: te.Expr) -> te.Expr:
            return te.sum(lambda m: te.sin(y[t - 1, k] * w[k, m] + y[t - 1, m]))

        return te.select(t < 1, 0.5, 0.1 * te.sum(lambda k: te.exp(-inner(k)) * w[k, i]))

    y = te.scan((STEPS, 3), step, dtype="float64", name="y")
    loss, arrays = (y**2).sum(), arrays_for([w])
    with assuming({"forgotten": 1, "segment": 1, "step_run": 1, "l2": 2048}):
        kernel = te.build(w, loss)
    np.testing.assert_allclose(kernel(*arrays), te.interpret(loss, {w: arrays[0]}), rtol=1e-9)
    with pytest.raises(ValueError, match="it cannot be cut along time: 'y' adds up sums over its own states"):
        te.build(w, loss, memory="1KB")


def test_few_steps_are_not_cut() -> None:
    with pytest.raises(NotAlongTime, match="its 9 steps are too few"):
        clock_of(wave(9))


READS: dict[str, Callable[[te.Tensor, te.Tensor], te.Tensor]] = {
    "a step": lambda u, when: (u[31] ** 2).sum(),
    "steps": lambda u, when: (u[31] * u[60]).sum() + (u[-1] ** 2).sum(),
    "a list": lambda u, when: (u[[60, 31, 60, -1]] ** 2).sum(),
    "a stride": lambda u, when: (u[7::10] ** 2).sum(),
    "a stride back": lambda u, when: (u[::-8] ** 3).sum(),
    "steps of data": lambda u, when: (u[when] ** 2).sum(),
    "elements": lambda u, when: (u[[60, 31, 60], [0, 5, 2]] ** 2).sum(),
    "places of steps": lambda u, when: (u[9::10][:, [0, 3, 3]] ** 2).sum(),
    "a product of steps": lambda u, when: (u[2:8] @ u[40:46].T).sum() ** 2,
    "extremes of few steps": lambda u, when: u[[3, 60, 80]].max() * u[5:8, 2].min(),
    "guarded steps": lambda u, when: te.compute(
        (PLACES,), lambda i: te.select(i > 0, u[50, i - 1], u[20 * i, 2])
    ).sum() ** 2,
    "sums over steps": lambda u, when: te.compute(
        (), lambda: te.sum(lambda m, s: u[20 * m + 16, te.constant([1, 4])[s]] ** 2)
    ),
    "late steps": lambda u, when: (u[31:] ** 2).sum(),
    "early steps and places": lambda u, when: (u[:60, [0, 2, 0]] ** 3).sum(),
    "late steps of a list": lambda u, when: (u[40:, [1, 4]] * np.arange(57 * 2.0).reshape(57, 2)).sum(),
    "sums of late steps": lambda u, when: u[30:].sum() * u[:50].sum(),
    "every step and some": lambda u, when: (u[:, 2] ** 2).sum() * (u[[3, 90]] ** 2).sum(),
}  # fmt: skip


def read_at(read: Callable[[te.Tensor, te.Tensor], te.Tensor], *, reverse: bool, axis: int) -> Made:
    a = te.placeholder((PLACES,), "float64", name="a")
    when = te.placeholder((4,), "int32", name="when")

    def step(u: te.Tensor, t: te.Expr, i: te.Expr) -> te.Expr:
        before = t + 1 if reverse else t - 1
        moved = u[before, (i + 1) % PLACES] if axis == 0 else u[(i + 1) % PLACES, before]
        return te.select((before >= 0) & (before < STEPS), te.sin(moved) * a[i], 0.1 * (i + 1))

    if axis == 0:
        u = te.scan((STEPS, PLACES), step, dtype="float64", reverse=reverse, name="u")
    else:
        u = te.scan((PLACES, STEPS), lambda u, i, t: step(u, t, i), axis=1, dtype="float64", reverse=reverse, name="u")
    loss = read(u if axis == 0 else u.T, when)
    return [a, when], [loss, te.differentiate(loss, a)]


@pytest.mark.parametrize("read", READS)
def test_steps_read_anywhere_are_kept_as_time_passes(read: str) -> None:
    inputs, outputs = read_at(READS[read], reverse=len(read) % 2 == 0, axis=0)
    kept = with_kept_steps(inputs, over_all_of_time(inputs, outputs))
    line = Timeline(operations_between(inputs, kept), kept)
    assert line.turns == 2
    clock = Clock(line)
    segments = Segments(clock, clock.cut(20))
    assert clock.overlap == 1
    for made in (segments.program(part, turn) for part in segments.cut.segments for turn in range(2)):
        between = operations_between([*made.inputs.values()], [*made.outputs.values()])
        scans = [op for op in between if isinstance(op, Scan)]
        assert all(int(str(op.steps[0].extent)) <= 25 for op in scans)
    feeds = dict(zip(inputs, [np.linspace(0.5, 1.5, PLACES), np.array([60, 7, 60, 96], "int32")], strict=True))
    for found, want in zip(te.interpret(kept, feeds), te.interpret(outputs, feeds), strict=True):
        np.testing.assert_allclose(found, want, rtol=1e-12)  # sums over all steps, where some are asked for


def in_less(read: str, *, reverse: bool, axis: int) -> None:
    """In half of the bytes."""
    inputs, outputs = read_at(READS[read], reverse=reverse, axis=axis)
    arrays = [np.linspace(0.5, 1.5, PLACES), np.array([60, 7, 60, 96], "int32")]
    less = te.build(inputs, outputs, memory=12 * STEPS * PLACES)
    assert less.program.peak_bytes <= 12 * STEPS * PLACES
    for found, want in zip(less(*arrays), te.interpret(outputs, dict(zip(inputs, arrays, strict=True))), strict=True):
        np.testing.assert_allclose(found, want, rtol=1e-9, atol=1e-12)


def test_steps_read_anywhere_take_less_memory() -> None:
    in_less("a list", reverse=False, axis=0)


def test_few_steps_of_a_large_state_in_little_memory() -> None:
    """A segment of few steps, each of them long: what is kept of them is put down in loops of a few."""
    start = te.placeholder((4000,), name="start")
    u = te.scan((1000, 4000), lambda u, t, x: te.select(t == 0, start[x], u.at(t - 1, x - 1, mode="clamp") * 0.5))
    loss = (u[[100, 400, 999]] ** 2).sum()
    outputs, array = [loss, *te.differentiate(loss, [start])], np.linspace(1, 2, 4000, dtype="float32")
    for found, want in zip(
        te.build(start, outputs, memory="300KB")(array), te.build(start, outputs)(array), strict=True
    ):
        np.testing.assert_array_equal(found, want)


def test_sizes_that_a_call_alone_knows_are_refused() -> None:
    steps, a = te.var("steps"), te.placeholder((PLACES,), name="a")
    x = te.placeholder((steps,), name="x")
    u = te.scan((steps, PLACES), lambda u, t, i: te.select(t == 0, 0.0, u[t - 1, i] * a[i]) + x[t])
    with pytest.raises(ValueError, match=r"numbers, found te\.var\('steps'\): write the number in its place"):
        te.build([a, x], (u * u).sum(), memory="1MB")


@pytest.mark.long
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("read", READS)
def test_all_reads_of_steps_take_less_memory(read: str, reverse: bool, axis: int) -> None:
    in_less(read, reverse=reverse, axis=axis)
