"""Programs of several kernels: cut at what is stored anyway, equal kernels compiled once, the same results."""

from __future__ import annotations

import gc
import threading
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tedsl as te
from schedules.default import assuming
from tedsl.backend.compiling.forms import COMPACT
from tedsl.lang.collecting import collected_later
from tests.arrays import floats
from tests.backend.sequence.networks import N, check_an_infinite_weight, convolutions, dense, layers, same, small

pytestmark = pytest.mark.usefixtures("cut_everywhere")


def test_layers_that_are_alike_are_compiled_once() -> None:
    x, weights, results = layers(6)
    kern = te.build([x, *weights], [results[-1], results[2]])
    assert [len(calls) for calls in kern.program.kernels.values()] == [6]
    same(kern, [x, *weights], [results[-1], results[2]], *(small(N, N) for _ in range(7)))
    lines = repr(kern.program).splitlines()
    assert lines[0] == f"{kern.name}: 6 calls of 1 kernel"
    assert lines[1].split() == ["kernel", "calls", "bytes", "stages"]
    assert lines[2].split()[:4] == ["layer0", "6", "12.0", "KB"]
    assert kern.loop_nest().startswith("kernel layer0:\nproduce")
    assert "kernel layer0:\n" in kern.source("stmt")


def test_kernels_for_contiguous_arrays_know_the_strides_and_others_do_not() -> None:
    x, weights, results = layers(3)
    kern = te.build([x, *weights], results[-1])
    (core,) = kern.core.plan.kernels
    arrays = [small(N, N) for _ in range(4)]
    expected = kern(*arrays)
    assert [form.layout is COMPACT for form in core.forms.variants] == [True]
    assert ".stride.1" not in core.source("stmt").split("_par_for_")[-1].split("external_plus_metadata")[0]
    turned = [np.asfortranarray(arrays[0]), np.repeat(arrays[1], 2, axis=0)[::2], *arrays[2:]]
    np.testing.assert_array_equal(kern(*turned), expected)
    assert [form.layout is COMPACT for form in core.forms.variants] == [True, False]


def test_names_of_stages_that_do_not_fit_a_line_are_counted() -> None:
    x = te.placeholder((4,), name="x")
    y = te.compute((4,), lambda i: te.exp(x[i]), name="y")
    program = te.build(x, y).program
    many = tuple(f"stage_{k}" for k in range(12))
    line = repr(replace(program, calls=(replace(program.calls[0], stages=many),))).splitlines()[2]
    assert line.endswith("stage_0, stage_1, stage_2, stage_3, stage_4, stage_5, stage_6, ... (12)")


def test_programs_share_kernels() -> None:
    x, weights, results = layers(4)
    first = te.build([x, *weights], results[-1])
    y, others, again = layers(3)
    second = te.build([y, *others], again[-1], name="another")
    assert second.core.plan.kernels[0] is first.core.plan.kernels[0]


def test_a_small_program_is_one_kernel() -> None:
    x, weights, results = layers(6)
    with assuming({"kernels": 7}):
        kern = te.build([x, *weights], results[-1])
    assert kern.core.single is not None
    assert [len(calls) for calls in kern.program.kernels.values()] == [1]


@pytest.mark.parametrize(("n", "apart"), [(384, 4), (32, 1)])
def test_few_kernels_are_compiled_side_by_side_where_they_run_for_long(n: int, apart: int) -> None:
    x = te.placeholder((n, n), name="x")
    weights = [te.placeholder((n, n), name=f"w{k}") for k in range(4)]
    h = x
    for w in weights:
        h = te.maximum(h @ w, 0)
    with assuming({"kernels": 24}):
        kern = te.build([x, *weights], [h])
    assert sum(len(calls) for calls in kern.program.kernels.values()) == apart
    same(kern, [x, *weights], [h], *(small(n, n) for _ in range(5)))


def test_results_are_added_left_out_and_written_where_they_are_wanted() -> None:
    x, weights, results = layers(3)
    inputs, outputs = [x, *weights], results
    kern = te.build(inputs, outputs)
    arrays = [small(N, N) for _ in inputs]
    a, b, c = te.interpret(outputs, dict(zip(inputs, arrays, strict=True)))
    before = [small(N, N) for _ in outputs]
    for mode, want in (("write", (a, b, c)), ("add", (a + before[0], b + before[1], c + before[2]))):
        out = [np.asfortranarray(v) for v in before]
        kern(*arrays, out=out, mode=mode)
        for found, value in zip(out, want, strict=True):
            np.testing.assert_allclose(found, value, rtol=1e-4, atol=1e-4)
    out = [v.copy() for v in before]
    kern(*arrays, out=out, mode={"layer0": "null", "layer1": "add", "layer2": "write"})
    np.testing.assert_array_equal(out[0], before[0])
    np.testing.assert_allclose(out[1], b + before[1], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(out[2], c, rtol=1e-4, atol=1e-4)


def test_outputs_that_are_inputs_or_given_twice() -> None:
    x, weights, results = layers(2)
    outputs = [x, results[1], results[0], results[1]]
    kern = te.build([x, *weights], outputs)
    arrays = [small(N, N) for _ in range(3)]
    same(kern, [x, *weights], outputs, *arrays)
    assert not np.shares_memory(kern(*arrays)[0], arrays[0])


def test_weights_are_updated_in_place_when_nobody_reads_them_later() -> None:
    x, weights, results = layers(3)
    loss = (results[-1] * results[-1]).sum()
    grads = te.differentiate(loss, weights)
    updated = [
        te.compute((N, N), lambda i, j, w=w, g=g: w[i, j] - 0.1 * g[i, j], name=f"u{k}")
        for k, (w, g) in enumerate(zip(weights, grads, strict=True))
    ]
    arrays = [small(N, N) for _ in range(4)]
    expected = te.interpret([loss, *updated], dict(zip([x, *weights], arrays, strict=True)))
    kern = te.build([x, *weights], [loss, *updated], alias=dict(zip(updated, weights, strict=True)))
    assert kern.core.single is None
    found = kern(*arrays)
    assert kern.stats.copies == []
    for k in range(1, 4):
        assert found[k] is arrays[k]
        np.testing.assert_allclose(found[k], expected[k], rtol=1e-3, atol=1e-3)


def test_an_output_over_what_a_later_step_reads_is_refused() -> None:
    x, weights, results = layers(3)
    y = te.compute((N, N), lambda i, j: results[2][i, j] + te.exp(x[i, j]), name="y")
    with pytest.raises(
        te.AliasError, match=r"stage 'y' at .* reads x in a later step than the one that computes 'layer0'"
    ):
        te.build([x, *weights], [results[0], y], alias={results[0]: x})
    kern = te.build([x, *weights], [results[0], y], alias={results[0]: x}, on_hazard="copy")
    arrays = [small(N, N) for _ in range(4)]
    expected = te.interpret([results[0], y], dict(zip([x, *weights], arrays, strict=True)))
    for found, want in zip(kern(*arrays), expected, strict=True):
        np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-4)


def looked_up(h: te.Tensor, rows: te.Tensor) -> Any:
    return lambda i, j: te.sum(lambda k: h[rows[i], k] * h[j, k])


def test_a_call_that_fails_in_a_later_step_writes_nothing() -> None:
    h = [te.placeholder((8, 8), name="x")]
    tables = [te.placeholder((8,), "int32", name=f"index{k}") for k in range(2)]
    for number, t in enumerate(tables):
        h.append(te.compute((8, 8), looked_up(h[-1], t), name=f"h{number}"))
    kern = te.build([h[0], *tables], h[1:])
    assert len(kern.program.calls) == 2
    good, bad = np.arange(8, dtype="i4"), np.array([0, 1, 2, 3, 9, 5, 6, 7], "i4")
    out = [np.zeros((8, 8), "f4"), np.zeros((8, 8), "f4")]
    with pytest.raises(IndexError, match=r"compute 'h1'.*index `index1\[i\]`.*it is 9"):
        kern(small(8, 8), good, bad, out=out)
    assert not out[0].any()
    assert not out[1].any()
    same(kern, [h[0], *tables], h[1:], small(8, 8), good, good[::-1].copy())


def test_numbers_that_are_not_finite() -> None:
    inputs, output = convolutions(3)
    kern = te.build(inputs, output)
    assert kern.core.single is None
    assert any(step.core.program.planner.part.plan.finite for step in kern.core.plan.steps)
    check_an_infinite_weight(kern, inputs, output)
    first = [core.forms.first.kept for core in kern.core.plan.kernels]
    assert all(kept.finite == (1,) and kept.shapes for kept in first)  # the call looks at the weights, not the kernel


def test_symbolic_sizes_and_empty_arrays() -> None:
    n = te.var("n")
    x, weights, results = layers(3, n)
    kern = te.build([x, *weights], [results[-1], results[-1].sum()])
    for rows in (5, 0):
        same(kern, [x, *weights], [results[-1], results[-1].sum()], small(N, rows), *(small(N, N) for _ in range(3)))


def test_kernels_are_shared_by_arrays_of_other_symbolic_sizes() -> None:
    first, second = layers(2, te.var("n")), layers(2, te.var("m"))
    inputs = [first[0], *first[1], second[0], *second[1]]
    kern = te.build(inputs, [first[2][-1], second[2][-1]])
    assert [len(calls) for calls in kern.program.kernels.values()] == [4]
    arrays = [small(N, 5), small(N, N), small(N, N), small(N, 7), small(N, N), small(N, N)]
    same(kern, inputs, [first[2][-1], second[2][-1]], *arrays)


def test_python_functions_between_many_kernels() -> None:
    x, weights, results = layers(2)
    seen: list[Any] = []
    y = te.extern(lambda a: (seen.append(a), np.sort(a, 0))[1], (N, N), "float32", [results[-1]], name="sorted")
    v, more, rest = layers(2)
    z = [te.compute((N, N), dense(y, w), name="z") for w in more]
    kern = te.build([x, *weights, *more], z)
    arrays = [small(N, N) for _ in range(5)]
    same(kern, [x, *weights, *more], z, *arrays)
    np.testing.assert_array_equal(seen[1], seen[2])  # what it was given is not written again


def test_several_threads_call_one_program() -> None:
    x, weights, results = layers(4)
    kern = te.build([x, *weights], results[-1])
    cases = [[small(N, N) for _ in range(5)] for _ in range(4)]
    wanted = [kern(*case) for case in cases]
    wrong: list[int] = []

    def work(k: int) -> None:
        wrong.extend(k for _ in range(50) if not np.array_equal(kern(*cases[k]), wanted[k]))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_stages_of_several_components() -> None:
    def step(h: te.Tensor, g: te.Tensor, t: Any, j: Any) -> Any:
        before = te.select(t == 0, 0.0, h[t - 1, j])
        return te.tanh(before + source[t, j]), before - 0.5 * te.select(t == 0, 0.0, g[t - 1, j])

    x = source = te.placeholder((N, N), name="x")
    for k in range(3):
        h, g = te.scan((N, N), step, dtype=("float32", "float32"), name=(f"h{k}", f"g{k}"))
        source = te.compute((N, N), lambda i, j, h=h, g=g: te.sum(lambda k: h[i, k] * g[j, k]), name=f"y{k}")  # noqa: B023
    kern = te.build([x], [h, g, source])
    assert kern.core.single is None
    same(kern, [x], [h, g, source], small(N, N))


def test_a_schedule_says_where_to_cut() -> None:
    x = te.placeholder((64, 64), name="x")
    stages = [x]
    for k in range(4):
        stages.append(te.compute((64, 64), lambda i, j, h=stages[-1]: te.exp(h[i, j]) * 0.1, name=f"e{k}"))
    s = te.Schedule(stages[-1])
    s[stages[2]].compute_root()
    s[stages[3]].compute_at(s[stages[4]], s[stages[4]].axes[0])
    kern = te.build(x, stages[-1], schedule=s)
    assert [call.stages for call in kern.program.calls] == [("e0", "e1"), ("e2", "e3")]
    a = floats(64, 64)
    np.testing.assert_allclose(kern(a), te.interpret(stages[-1], {x: a}), rtol=1e-5)


def test_collecting_goes_on_after_a_build_whatever_it_came_to() -> None:
    x, weights, results = layers(3)
    assert gc.isenabled()
    te.build([x, *weights], results[-1])
    assert gc.isenabled()
    with suppress(KeyError), collected_later():
        raise KeyError(gc.isenabled())
    assert gc.isenabled()
    with collected_later():
        assert not gc.isenabled()


def test_calls_without_python_between_them_take_other_arrays_and_tell_what_fails() -> None:
    x, weights, results = layers(4)
    kern = te.build([x, *weights], [results[-1], results[1]])
    for _ in range(4):  # prepared, listed, and run as a list
        same(kern, [x, *weights], [results[-1], results[1]], *(small(N, N) for _ in range(5)))
    (chain,) = kern.core._chains.values()
    assert chain._list is not None
    both = small(N, N)
    same(kern, [x, *weights], [results[-1], results[1]], both, both, *(small(N, N) for _ in range(3)))
    given = [small(N, N) for _ in range(5)]
    out = [np.empty((N, N), np.float32) for _ in range(2)]
    kern(*given, out=out)
    for a, b in zip(out, kern(*given), strict=True):
        np.testing.assert_array_equal(a, b)
    te.free_memory()
    assert chain._list is None
    same(kern, [x, *weights], [results[-1], results[1]], *given)


def test_a_listed_call_that_fails_is_answered_where_it_failed() -> None:
    n = 8
    rows, places = te.placeholder((n, n), name="rows"), te.placeholder((n,), "int32", name="places")
    before = te.compute((n, n), lambda i, j: te.sum(lambda k: rows[i, k] * rows[k, j]), name="before")
    taken = te.compute((n, n), lambda i, j: before[places[i], j], name="taken")
    after = te.compute((n, n), lambda i, j: te.sum(lambda k: taken[i, k] * rows[k, j]), name="after")
    kern = te.build([rows, places], [after])
    good, bad = np.arange(n, dtype=np.int32), np.full(n, n, np.int32)
    for _ in range(3):
        same(kern, [rows, places], [after], small(n, n), good)
    for _ in range(2):
        with pytest.raises(IndexError, match="places"):
            kern(small(n, n), bad)
        same(kern, [rows, places], [after], small(n, n), good)


def test_lists_of_calls_are_safe_in_threads() -> None:
    x, weights, results = layers(6)
    kern = te.build([x, *weights], results[-1])
    arrays = [[small(N, N) for _ in range(7)] for _ in range(4)]
    want = [kern(*a) for a in arrays]
    wrong: list[int] = []

    def calls(k: int) -> None:
        wrong.extend(k for _ in range(50) if not np.array_equal(kern(*arrays[k]), want[k]))

    threads = [threading.Thread(target=calls, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
