"""Schedules that are compiled: the loops are those asked for, the results those of the reference."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tedsl as te
from schedules import compose
from schedules.compose import then
from schedules.directives import DIRECTIVES

M, N, K = 37, 45, 29


def product() -> tuple[list[te.Tensor], te.Tensor, te.Tensor]:
    A, B = te.placeholder((M, K), name="A"), te.placeholder((K, N), name="B")
    k = te.reduce_axis(K, "k")
    C = te.compute((M, N), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    D = te.compute((M, N), lambda i, j: te.maximum(C[i, j], 0.0) + A[i, 0], name="D")
    return [A, B], C, D


def checked(inputs: list[te.Tensor], outputs: Any, schedule: te.Schedule) -> Any:
    """The kernel, after its results were compared."""
    rng = np.random.default_rng(1)
    feeds = {t: rng.integers(-4, 5, t.shape).astype(t.dtype.numpy) for t in inputs}
    kernel = te.build(inputs, outputs, schedule=schedule)
    found, expected = kernel(*feeds.values()), te.interpret(outputs, feeds)
    for got, want in zip(*(x if isinstance(x, tuple) else (x,) for x in (found, expected)), strict=True):
        np.testing.assert_array_equal(got, want)  # sums of small integers are exact
    return kernel


def test_the_example_of_the_documentation() -> None:
    inputs, C, D = product()
    s = te.Schedule(D)
    i, j = s[D].axes
    (k,) = s[C].reduce_axes
    io, jo, ii, ji = s[D].tile(i, j, 8, 16)
    s[D].reorder(io, jo, ii, ji).vectorize(ji, 8).parallel(io)
    ko, ki = s[C].split(k, 4)
    s[C].compute_at(s[D], jo).reorder(ko, "i", ki, "j").vectorize("j", 8).unroll(ki)
    s[C].init.vectorize("j", 8)
    nest = checked(inputs, D, s).loop_nest()
    lines = [line.strip() for line in nest.splitlines()]
    assert lines[:3] == ["produce D:", "parallel i.io in [0, 4]:", "for j.jo in [0, 2]:"]
    assert "unrolled k.k.ki in [0, 3]:" in lines or any("unrolled" in line and "ki" in line for line in lines)


def test_axes_of_the_expression_name_loops() -> None:
    A = te.placeholder((M, K), name="A")
    k = te.reduce_axis(K, "k")
    C = te.compute((M,), lambda i: te.sum(A[i, k], axis=k), name="C")
    s = te.Schedule(C)
    assert s[C].split(k, 4) == ("ko", "ki")
    checked([A], C, s)


@pytest.mark.parametrize("inner", ["ko", "ki"])
def test_rfactor(inner: str) -> None:
    inputs, C, D = product()
    s = te.Schedule(D)
    s[C].split("k", 8)
    partial = s[C].rfactor(inner)
    partial.reorder(*[x for x in partial.loops if x == inner], "i").compute_at(s[C], "i")
    partial.vectorize("j", 8)
    s[C].reorder("i", inner, "j").vectorize("j", 8).compute_at(s[D], "i")
    s[D].parallel("i").vectorize("j", 8)
    checked(inputs, D, s)


@pytest.mark.parametrize("given", [False, True])
def test_a_condition_that_reads_memory_is_not_asked_beyond_the_last_term(given: bool) -> None:
    """70 terms are no whole number of vectors; beyond the last one, the condition's element does not exist."""
    A, k = te.placeholder((3, 70), name="A"), te.reduce_axis(70, "k")
    C = te.compute((3,), lambda i: te.sum(A[i, k], axis=k, where=A[i, 69 - k] > A[2 - i, 69 - k]), name="C")
    s = te.Schedule(C)
    if given:
        s[C].split("k", 32)
        s[C].rfactor("ki").compute_root()
    checked([A], C, s)


def test_cache_write_and_read_inside_a_tile() -> None:
    inputs, C, D = product()
    s = te.Schedule(C)
    local = s[C].cache_write()
    io, jo, ii, ji = s[C].tile("i", "j", 8, 16)
    s[C].vectorize(ji, 8).parallel(io)
    local.compute_at(s[C], jo).reorder("k", "i", "j").vectorize("j", 8).store_in("stack")
    copy = local.cache_read("B")
    copy.compute_at(s[C], jo).vectorize("d1", 8)
    checked(inputs, C, s)


def test_pack() -> None:
    inputs, C, D = product()
    s = te.Schedule(C)
    packed = s[C].pack("B", ["1o", "0", "1i"], [0, 16])
    packed.compute_root().vectorize("d1i", 16)
    checked(inputs, C, s)


@pytest.mark.parametrize(("size", "step"), [(3, 2), (4, 3), (3, 1)])
def test_reflected_steps_stay_inside_their_input(size: int, step: int) -> None:
    """Halide drops a fold where it can tell that it changes nothing, and then misses where the index ends."""
    A = te.placeholder((size,), "int32", name="A")
    B = te.compute((19,), lambda i: A.at(i * step + 2, mode="reflect"), name="B")
    values = np.arange(size, dtype="int32")
    np.testing.assert_array_equal(te.evaluate(B, {A: values}), te.interpret(B, {A: values}))
    s = te.Schedule(B)
    s[B].unroll("i", 2)
    checked([A], B, s)


def test_sliding_window() -> None:
    A = te.placeholder((M, N), name="A")
    B = te.compute((M, N), lambda i, j: A.at(i, j - 1, mode="clamp") + A.at(i, j + 1, mode="clamp"), name="B")
    C = te.compute((M, N), lambda i, j: B.at(i - 1, j, mode="clamp") + B.at(i + 1, j, mode="clamp"), name="C")
    s = te.Schedule(C)
    s[C].split("i", 8)
    s[B].compute_at(s[C], "ii").store_at(s[C], "io").vectorize("j", 8)
    s[C].parallel("io").vectorize("j", 8)
    checked([A], C, s)


@pytest.mark.parametrize("how", [
    lambda y: y.parallel("i"), lambda y: y.vectorize("i", 8), lambda y: y.reorder("t", "i").vectorize("i", 8),
    lambda y: y.split("t", 4), lambda y: y.unroll("t", 3), lambda y: y.cache_write(),
])  # fmt: skip
def test_scan(how: Callable[[Any], object]) -> None:
    x = te.placeholder((M, N), name="x")
    y = te.scan((M, N), lambda y, t, i: te.select(t == 0, x[t, i], 2 * y[t - 1, i] % 7 + x[t, i]), name="y")
    s = te.Schedule(y)
    how(s[y])
    checked([x], y, s)


@pytest.mark.parametrize("how", [
    lambda w: w.parallel("c"), lambda w: w.reorder("r", "c").vectorize("c", 8), lambda w: w.split("r", 4),
    lambda w: w.init.parallel("d0").vectorize("c", 8), lambda w: w.cache_write().reorder_storage("c", "d0"),
])  # fmt: skip
def test_scatter(how: Callable[[Any], object]) -> None:
    idx, g = te.placeholder((M,), "int32", name="idx"), te.placeholder((M, N), name="g")
    r, c = te.reduce_axis(M, "r"), te.reduce_axis(N, "c")
    W = te.scatter((9, N), [r, c], (idx[r] % 9, c), g[r, c], name="W")
    s = te.Schedule(W)
    how(s[W])
    checked([idx, g], W, s)


def test_several_outputs_of_one_nest() -> None:
    A = te.placeholder((M, N), name="A")
    u, v = te.compute((M, N), lambda i, j: (A[i, j] + 1, A[i, j] * 2), name=("u", "v"))
    C = te.compute((M, N), lambda i, j: u[i, j] + v[i, j], name="C")
    s = te.Schedule([C, u])
    assert s.stages == ["u_v", "C"]
    assert s["v"].name == s[u].name == "u_v"
    s[C].cache_read(v).compute_at(C, "i")
    s["u_v"].cache_write().vectorize("j", 8)
    checked([A], [C, u], s)


def test_adjoints_by_tensor_and_by_name() -> None:
    inputs, C, D = product()
    L = te.compute((), lambda: te.sum(lambda p, q: D[p, q] * D[p, q]), name="L")
    grads = te.differentiate(L, inputs)
    s = te.Schedule(list(grads))
    for stage in (grads.adjoints[C], grads[inputs[1]]):
        view = s[stage]
        assert s[view.name].name == view.name
        view.vectorize(view.axes[-1], 8).parallel(view.axes[0])
    checked(inputs, list(grads), s)


def test_lifted_reductions_are_stages() -> None:
    A = te.placeholder((M, N), name="A")
    k = te.reduce_axis(N, "k")
    S = te.compute((M, N), lambda i, j: A[i, j] - te.max(A[i, k], axis=k), name="S")
    s = te.Schedule(S)
    assert s.stages == ["S_max", "S"]
    s["S_max"].compute_at("S", "i")
    checked([A], S, s)


def test_modes_and_outputs_left_out() -> None:
    inputs, C, D = product()
    s = te.Schedule([C, D])
    s[D].tile("i", "j", 8, 8)
    s[C].vectorize("j", 8)
    kernel = te.build(inputs, [C, D], schedule=s)
    a, b = np.ones((M, K), np.float32), np.ones((K, N), np.float32)
    out = np.full((M, N), 2, np.float32)
    kernel(a, b, out={"C": out}, mode={"C": "add", "D": "null"})
    np.testing.assert_array_equal(out, K + 2)


def test_a_kernel_keeps_the_schedule_that_it_was_built_with() -> None:
    inputs, C, D = product()
    s = te.Schedule(D)
    kernel = te.build(inputs, D, schedule=s)
    s[C].compute_at(D, "i")
    s[D].split("i", 4)  # no longer legal
    kernel(np.ones((M, K), np.float32)[:, ::-1], np.ones((K, N), np.float32)[:, ::-1])  # compiled for strides only now


def test_what_only_halide_refuses_is_a_schedule_error() -> None:
    A = te.placeholder((M, K, 3), "int32", name="A")
    k, m = te.reduce_axis(K, "k"), te.reduce_axis(3, "m")
    C = te.compute((M,), lambda i: te.sum(A[i, k, m], axis=(k, m)), name="C")
    s = te.Schedule(C)
    s[C].reorder("m", "k")  # it cannot tell that a sum that wraps may be regrouped
    with pytest.raises(te.ScheduleError, match=r"s\['C'\].reorder\('m', 'k'\), at .*Halide cannot do this"):
        te.build([A], C, schedule=s)


def test_sums_of_selected_terms_keep_their_order() -> None:
    A = te.placeholder((M, K, 3), name="A")
    k, m = te.reduce_axis(K, "k"), te.reduce_axis(3, "m")
    C = te.compute((M,), lambda i: te.sum(A[i, k, m], axis=(k, m), where=A[i, k, m] > 0), name="C")
    with pytest.raises(te.ScheduleError, match="must stay"):
        te.Schedule(C)[C].reorder("m", "k")


@pytest.mark.parametrize("target", ["host", "x86-64-v2"])
def test_a_result_that_another_one_reads_is_not_fetched_ahead(target: str) -> None:
    """Halide refuses it, as it allocates no results; the schedule is right without."""
    x = te.placeholder((20, 17), name="x")
    first = te.compute((20, 17), lambda i, j: x[i, j] * 2, name="first")
    second = te.compute((18, 17), lambda i, j: first[i, j] + first[i + 2, j], name="second")
    s = te.Schedule([first, second])
    s[second].prefetch(first, "i", 1).vectorize("j", 4)
    kernel = te.build(x, [first, second], schedule=s, target=target)
    kernel.compile()
    if target == "host":
        values = np.arange(340, dtype="float32").reshape(20, 17)
        for found, want in zip(kernel(values), te.interpret([first, second], {x: values}), strict=True):
            np.testing.assert_array_equal(found, want)


def test_prefetch() -> None:
    inputs, C, D = product()
    s = te.Schedule(C)
    s[C].cache_read("B").compute_root().prefetch("B", "d0", 4)
    s[C].prefetch("A", "i", 2)
    kernel = checked(inputs, C, s)
    assert set(re.findall(r"prefetch\((\w+)", kernel.source("stmt"))) == {"A", "B"}
    assert "one element" in _refusal_of_an_element()


def _refusal_of_an_element() -> str:
    x = te.placeholder((), name="x")
    y = te.compute((M,), lambda i: x[()] + i, name="y")
    with pytest.raises(te.ScheduleError) as caught:
        te.Schedule(y)[y].prefetch(x, "i")
    return str(caught.value)


def test_recipes() -> None:
    inputs, C, D = product()
    micro = then(
        compose.tile("i", "j", 8, 16), compose.vectorize("ji", 8), compose.unroll("ii", 2), compose.parallel("io")
    )
    assert str(micro) == "then(tile('i', 'j', 8, 16), vectorize('ji', 8), unroll('ii', 2), parallel('io'))"
    s = te.Schedule(D).apply(D, micro).apply(C, then(compose.init(compose.vectorize("j", 8)), micro))
    checked(inputs, D, s)
    before = str(s)
    with pytest.raises(te.ScheduleError):
        s.apply(C, then(compose.unroll("k", 2), compose.split("gone", 2)))
    assert str(s) == before


def test_every_directive_is_a_recipe() -> None:
    inputs, C, D = product()
    s = te.Schedule(C).apply(C, then(compose.split("k", 8), compose.rfactor("ki", "partial")))
    s.apply(C, compose.cache_write("local")).apply("partial", compose.compute_at("local", "i"))
    checked(inputs, C, s)
    verbs = {"init", *(v for v in DIRECTIVES if v != "auto"), "tile", "gpu_tile"}
    assert verbs <= set(compose.__all__)


def test_symbolic_extents() -> None:
    n = te.var("n")
    A = te.placeholder((n, n), name="A")
    k = te.reduce_axis(n, "k")
    C = te.compute((n, n), lambda i, j: te.sum(A[i, k] * A[k, j], axis=k), name="C")
    s = te.Schedule(C)
    local = s[C].cache_write()
    local.split("k", 8)
    local.rfactor("ki").compute_at(local, "i")
    local.compute_at(C, s[C].tile("i", "j", 8, 8)[0])
    kernel = te.build([A], C, schedule=s)
    for size in (0, 1, 7, 8, 33):
        a = np.random.default_rng(size).integers(-3, 4, (size, size)).astype(np.float32)
        np.testing.assert_array_equal(kernel(a), a @ a)


def test_gpu_kernels_are_compiled_without_a_gpu() -> None:
    inputs, C, D = product()
    s = te.Schedule(D)
    *_, ji = s[D].gpu_tile("i", "j", 8, 16)
    s[C].compute_at(D, ji).unroll("k", 4)
    kernel = te.build(inputs, D, schedule=s, target="cuda")
    lines = [line.strip().split("<")[0] for line in kernel.loop_nest().splitlines()]
    assert lines[:5] == [
        "produce D:", "gpu_block i.io in [0, 4]", "gpu_block j.jo in [0, 2]",
        "gpu_thread i.ii in [0, 7]", "gpu_thread j.ji in [0, 15]",
    ]  # fmt: skip
    assert not any("vectorized" in line for line in lines)
    assert ".visible .entry" in kernel.source("ptx") or ".globl" in kernel.source("ptx")


def test_a_stage_that_is_given_as_an_input() -> None:
    inputs, C, D = product()
    s = te.Schedule(D)
    s[C].cache_write().vectorize("j", 8)
    s[C].compute_at(D, "i")
    s[D].parallel("i")
    kernel = te.build([inputs[0], C], D, schedule=s)
    a, c = np.ones((M, K), np.float32), np.arange(M * N, dtype=np.float32).reshape(M, N) - 100
    np.testing.assert_array_equal(kernel(a, c), np.maximum(c, 0) + 1)


def test_python_functions_stay_between_kernels() -> None:
    A = te.placeholder((M, N), name="A")
    B = te.compute((M, N), lambda i, j: A[i, j] + 1, name="B")
    E = te.extern(lambda b: b * 2, (M, N), "float32", [B], name="E")
    D = te.compute((M, N), lambda i, j: E[i, j] + B[i, j], name="D")
    s = te.Schedule(D)
    s[B].vectorize("j", 8).parallel("i")
    s[D].tile("i", "j", 8, 8)
    assert "E : float32[37, 45] = " in str(s)
    with pytest.raises(te.ScheduleError, match="no loops"):
        s[E].split("i", 3)
    with pytest.raises(te.ScheduleError, match="E reads B outside"):
        te.build([A], D, schedule=s.copy().apply(B, compose.compute_at(D, "io")))
    checked([A], D, s)


@pytest.mark.parametrize("lanes", [2, 4, 8])
def test_a_nan_that_all_lanes_share_survives_the_masked_end_of_a_loop(lanes: int) -> None:
    A = te.placeholder((2, 5), name="A")
    k = te.reduce_axis(5, "k")
    C = te.compute((2, 3), lambda i, j: te.max(A[i, k] / A[i, 0], axis=k), name="C")
    s = te.Schedule(C)
    s[C].vectorize("j", lanes)
    a = np.array([[0, 0, 0, 0, 0], [1, 2, 3, 4, 5]], np.float32)
    np.testing.assert_array_equal(te.build([A], C, schedule=s)(a), te.interpret(C, {A: a}))


def test_x_unlike_itself_is_nan_in_the_masked_end_of_a_loop() -> None:
    A, B = te.placeholder((2, 3), name="A"), te.placeholder((2,), name="B")
    C = te.compute((2, 3), lambda i, j: te.select(B[i] != B[i], 7.0, te.select(B[i] == B[i], A[i, j], 5.0)), name="C")
    s = te.Schedule(C)
    s[C].vectorize("j", 4)
    feeds = {A: np.ones((2, 3), np.float32), B: np.array([np.nan, 1], np.float32)}
    np.testing.assert_array_equal(te.build([A, B], C, schedule=s)(*feeds.values()), te.interpret(C, feeds))


def test_the_printed_loops_say_what_is_left_to_the_default_schedule() -> None:
    a = te.placeholder((8, 8), name="a")
    b = te.compute((8, 8), lambda i, j: te.tanh(a[i, j]), name="b")
    c = te.compute((8, 8), lambda i, j: b[i, j] + b[i, 7 - j], name="c")
    s = te.Schedule(c)
    assert str(s).splitlines()[-1] == "left to the default schedule: b, c (.auto() shows its loops)"
    s[c].parallel("i")
    assert str(s).splitlines()[-1] == "left to the default schedule: b (.auto() shows its loops)"
    assert "left to" not in str(s.copy().auto())
    s[b].compute_at(c, "i")
    assert "left to" not in str(s)


def test_what_split_gives_says_how_to_go_on() -> None:
    y = te.compute((64, 64), lambda i, j: 1.0 * i + j, name="y")
    s = te.Schedule(y)
    outer, inner = s[y].split("i", 8)
    assert (outer, inner) == ("io", "ii")
    message = r"the new loops \(ioo, ioi\), which have no attribute 'parallel': say s\['y'\].parallel\(...\)"
    with pytest.raises(AttributeError, match=message):
        s[y].split("io", 2).parallel("ioo")
    with pytest.raises(AttributeError, match=r"have no attribute 'thread'$"):
        s[y].tile("ii", "j", 2, 2).thread("iio")


def test_a_schedule_that_says_nothing_is_the_default() -> None:
    x = te.placeholder((48, 64, 3), name="x")
    y = te.compute(x.shape, lambda i, j, c: te.exp(x[i, j, c]), name="y")
    assert te.build(x, y, schedule=te.Schedule(y)).loop_nest() == te.build(x, y).loop_nest()
