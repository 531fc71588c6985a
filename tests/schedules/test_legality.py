"""What is refused, and what the refusal says: the directive, this file and line, the loops there are, a near name."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import numpy as np
import pytest

import tedsl as te

N = 24


def chain() -> tuple[te.Schedule, dict[str, te.Tensor]]:
    """B = sum over k of A; T = exp(B); C = T + B, the last is the output."""
    A = te.placeholder((N, N), name="A")
    k = te.reduce_axis(N, "k")
    B = te.compute((N, N), lambda i, j: te.sum(A[i, k] * A[k, j], axis=k), name="B")
    T = te.compute((N, N), lambda i, j: te.exp(B[i, j]), name="T")
    C = te.compute((N, N), lambda i, j: T[i, j] + B[i, j], name="C")
    return te.Schedule(C), {"A": A, "B": B, "T": T, "C": C}


def recurrence() -> tuple[te.Schedule, te.Tensor]:
    x = te.placeholder((N, N), name="x")
    y = te.scan((N, N), lambda y, t, i: te.select(t == 0, x[t, i], 0.5 * y[t - 1, i] + x[t, i]), name="y")
    return te.Schedule(y), y


def histogram() -> tuple[te.Schedule, te.Tensor]:
    idx = te.placeholder((N,), "int32", name="idx")
    r = te.reduce_axis(N, "r")
    h = te.scatter((8,), [r], idx[r], te.const(1, "int32"), name="h")
    return te.Schedule(h), h


def refusal(action: Callable[[], object]) -> str:
    with pytest.raises(te.ScheduleError) as caught:
        action()
    return str(caught.value)


def test_a_message_has_directive_line_loops_and_nearest_name() -> None:
    s, t = chain()
    line = inspect.currentframe().f_lineno + 1  # type: ignore[union-attr]
    message = refusal(lambda: s[t["C"]].split("ij", 8))
    assert message == (
        f"s['C'].split('ij', 8), at {__file__}:{line}: there is no loop 'ij'; loops of C: i, j; did you mean 'j'?"
    )


def test_stages_by_name() -> None:
    s, t = chain()
    assert s.stages == ["B", "T", "C"]
    assert "there is no stage 'TT'; stages: B, T, C; did you mean 'T'?" in refusal(lambda: s["TT"])
    assert "is an input" in refusal(lambda: s[t["A"]])
    assert "not part of the scheduled program" in refusal(lambda: s[te.compute((3,), lambda i: i, name="other")])


@pytest.mark.parametrize("verb", ["parallel", "vectorize"])
def test_carried_loops_stay_serial(verb: str) -> None:
    s, t = chain()
    assert "a sum reduction; rfactor it first, or take one of i, j" in refusal(lambda: getattr(s["B"], verb)("k"))
    s, y = recurrence()
    assert "a scan, step after step, or take one of i" in refusal(lambda: getattr(s[y], verb)("t"))
    s, h = histogram()
    assert "points may meet in one element" in refusal(lambda: getattr(s[h], verb)("r"))


def test_the_order_of_a_recurrence_stays() -> None:
    s, y = recurrence()
    s[y].split("t", 4)
    assert "must stay" in refusal(lambda: s[y].reorder("ti", "to"))
    s[y].reorder("to", "i", "ti")  # other loops may stand in between


@pytest.mark.parametrize("verb", ["vectorize", "parallel"])
def test_loops_within_the_steps_of_a_scan(verb: str) -> None:
    """Places of one step are independent; the next step reads all of them, so they stay inside the loop over steps."""
    x = te.placeholder((N, 8), name="x")
    y = te.scan((N, 8), lambda y, t, i: te.select(t == 0, x[t, i], x[t, i] - y[t - 1, 7 - i]), name="y")
    s = te.Schedule(y)
    assert "'i' is a loop within each step" in refusal(lambda: s[y].reorder("i", "t"))
    assert "steps read one another" in refusal(lambda: getattr(s[y], verb)("t"))
    inner = s[y].split("i", 4)[1] if verb == "vectorize" else "i"
    getattr(s[y], verb)(inner)
    feeds = {x: np.arange(8.0 * N, dtype="f4").reshape(N, 8)}
    np.testing.assert_array_equal(te.build([x], y, schedule=s)(feeds[x]), te.interpret(y, feeds))


def test_factors_and_constant_extents() -> None:
    n = te.var("n")
    A = te.placeholder((n,), name="A")
    C = te.compute((n,), lambda i: A[i], name="C")
    s = te.Schedule(C)
    assert "factor must be at least 1, found 0" in refusal(lambda: s[C].split("i", 0))
    assert "needs a constant number: give a factor" in refusal(lambda: s[C].vectorize("i"))
    assert "needs a constant number: give a factor" in refusal(lambda: s[C].unroll("i"))
    assert "too long" in refusal(lambda: s[C].vectorize("i", 4096))
    with pytest.raises(TypeError, match="must be an integer"):
        s[C].split("i", 2.5)  # type: ignore[arg-type]
    assert not s.directives


def test_loops_that_are_taken() -> None:
    s, _ = chain()
    s["C"].vectorize("j", 8)
    assert "is vectorized already" in refusal(lambda: s["C"].unroll("jv"))
    assert "one loop of a nest can be vectorized" in refusal(lambda: s["C"].vectorize("i", 8))
    s["C"].reorder("jv", "i")
    assert "a vector cannot start threads" in refusal(lambda: s["C"].parallel("i"))
    assert "name 'i' is taken" in refusal(lambda: s["C"].split("j", 2, names=("i", "x")))
    assert "does not lie directly inside" in refusal(lambda: s["C"].fuse("i", "j"))


def test_data_and_reduce_axes_are_not_fused() -> None:
    s, _ = chain()
    assert "cannot be fused" in refusal(lambda: s["B"].fuse("j", "k"))


def test_loops_of_another_stage() -> None:
    s, _ = chain()
    assert "belongs to s['T']" in refusal(lambda: s["C"].split(s["T"].axes[0], 4))
    assert "belongs to s['B'].init" in refusal(lambda: s["B"].split(s["B"].init.axes[0], 4))
    assert "belongs to T, not to C" in refusal(lambda: s["B"].compute_at(s["C"], s["T"].axes[0]))


def test_only_reductions_have_an_init() -> None:
    s, _ = chain()
    assert "is no reduction" in refusal(lambda: s["C"].init)


def test_inline() -> None:
    s, _ = chain()
    assert "B is a reduction; only pointwise" in refusal(s["B"].compute_inline)
    assert "is an output" in refusal(s["C"].compute_inline)
    s["T"].compute_inline()
    assert "has no loops" in refusal(lambda: s["T"].vectorize("j", 4))


def test_compute_at_needs_a_reader() -> None:
    s, _ = chain()
    assert "C is an output, which is computed at the root" in refusal(lambda: s["C"].compute_at("T", "i"))
    assert "B does not need T, which is read by C" in refusal(lambda: s["T"].compute_at("B", "i"))
    assert "there is no loop 'z'; loops of C: i, j" in refusal(lambda: s["T"].compute_at("C", "z"))


def build(s: te.Schedule, t: dict[str, te.Tensor]) -> None:
    kernel = te.build([t["A"]], t["C"], schedule=s)
    a = np.random.default_rng(0).random((N, N), np.float32) / N
    np.testing.assert_allclose(kernel(a), te.interpret(t["C"], {t["A"]: a}), rtol=1e-5)


def test_readers_are_called_as_the_user_knows_them() -> None:
    x, w = te.placeholder((48, 40), name="x"), te.placeholder((11,), name="w")
    rows = te.compute((48, 40), lambda i, j: te.sum(lambda k: w[k] * x.at(i, j + k - 5, mode="reflect")), name="rows")
    y = te.compute((48, 40), lambda i, j: te.sum(lambda k: w[k] * rows.at(i + k - 5, j, mode="reflect")), name="y")
    loss = (y**2).sum()
    s = te.Schedule([loss, te.differentiate(loss, w)])
    io, _ = s[y].split("i", 8)
    s[rows].compute_at(y, io)
    message = refusal(lambda: te.build([x, w], [loss, s.outputs[1]], schedule=s))
    assert "dw_y reads rows outside of loop 'i0' of y; compute dw_y inside" in message.replace("'io'", "'i0'"), message


def test_all_readers_lie_inside_the_loop() -> None:
    s, t = chain()
    s["T"].compute_root()
    s["B"].compute_at("C", "i")
    assert "T reads B outside of loop 'i' of C; compute T inside that loop too, or B farther out" in refusal(
        lambda: build(s, t)
    )
    s["T"].compute_at("C", "j")
    build(s, t)  # the directive that makes it legal may come later
    s["T"].compute_inline()
    build(s, t)


def test_a_loop_that_is_gone() -> None:
    s, t = chain()
    s["T"].compute_at("C", "i")
    s["C"].split("i", 4)
    message = refusal(lambda: build(s, t))
    assert "s['T'].compute_at('C', 'i')" in message
    assert "there is no loop 'i'; loops of C: io, ii, j" in message


def test_nothing_is_computed_inside_a_vector() -> None:
    s, t = chain()
    s["C"].vectorize("j", 8)
    s["T"].compute_at("C", "jv")
    assert "is vectorized; nothing can be computed inside it" in refusal(lambda: build(s, t))


def test_memory_is_not_shared_by_threads() -> None:
    s, t = chain()
    s["C"].parallel("i")
    s["T"].compute_at("C", "j").store_root()
    assert "its iterations would share that memory" in refusal(lambda: build(s, t))
    s["T"].store_at("C", "i")
    build(s, t)


def test_a_message_shows_what_was_written_and_what_became_of_a_loop() -> None:
    s, t = chain()
    s[t["C"]].split("i", 8)
    assert "; there was one, and i = io*8 + ii" in refusal(lambda: s["C"].parallel("i"))
    assert refusal(lambda: s["C"].unroll("j", 0)).startswith("s['C'].unroll('j', 0), at ")
    assert refusal(lambda: s["C"].tile("io", "j", 0, 2)).startswith("s['C'].tile('io', 'j', 0, 2), at ")
    assert "did you mean 'C'?" in refusal(lambda: s["c"])


def test_store_at_lies_around_compute_at() -> None:
    s, t = chain()
    s["T"].compute_at("C", "i").store_at("C", "j")
    assert "does not lie around the place" in refusal(lambda: build(s, t))
    s, t = chain()
    s["T"].store_at("C", "j")
    assert "is not computed inside a loop" in refusal(lambda: build(s, t))


def test_what_a_check_of_indices_reads_stays_at_the_root() -> None:
    x, idx = te.placeholder((N,), name="x"), te.placeholder((N,), "int32", name="idx")
    shifted = te.compute((N,), lambda i: idx[i] + 1, name="shifted")
    C = te.compute((N,), lambda i: x[shifted[i]], name="C")
    s = te.Schedule(C)
    s[shifted].compute_at(C, "i")
    assert "the check of indices reads shifted" in refusal(lambda: te.build([x, idx], C, schedule=s))


def test_rfactor() -> None:
    s, _ = chain()
    assert "is no reduce axis; those are k" in refusal(lambda: s["B"].rfactor("i"))
    assert "C is no reduction" in refusal(lambda: s["C"].rfactor("i"))
    s["B"].vectorize("j", 8)
    assert "rfactor comes before other directives" in refusal(lambda: s["B"].rfactor("k"))
    A = te.placeholder((N,), name="A")
    k = te.reduce_axis(N, "k")
    C = te.compute((), lambda: te.argmax(A[k], axis=k), name="C")
    s = te.Schedule(C)
    assert "has no partial results" in refusal(lambda: s[C].rfactor("k"))
    last = te.reducer(lambda a, b: b, 0.0)
    C = te.compute((), lambda: last(A[k], axis=k), name="C")
    s = te.Schedule(C)
    s[C].split("k", 4)
    assert "only its outermost loop" in refusal(lambda: s[C].rfactor("ki"))
    s[C].rfactor("ko")


def test_rewrites_come_first() -> None:
    s, t = chain()
    s["C"].parallel("i")
    assert "cache_write comes before other directives" in refusal(lambda: s["C"].cache_write())
    assert "there is no tensor 'X'; C reads: T, B" in refusal(lambda: s["C"].cache_read("X"))
    assert "the name 'B' is taken" in refusal(lambda: s["C"].cache_read(t["B"], "B"))


def test_gpu_needs_a_gpu() -> None:
    s, t = chain()
    s["C"].gpu_tile("i", "j", 8, 8)
    assert "the target is the host" in refusal(lambda: build(s, t))
    assert "blocks lie outside threads" in refusal(lambda: s["B"].gpu_threads(s["B"].split("i", 4)[1]).gpu_blocks("j"))


def test_a_refused_directive_changes_nothing() -> None:
    s, _ = chain()
    before = str(s)
    refusal(lambda: s["C"].tile("i", "j", 4, 0))
    refusal(lambda: s["C"].gpu_tile("i", "k", 4, 4))
    assert str(s) == before
    assert s.directives == ()


def test_outputs_are_those_of_the_schedule() -> None:
    s, t = chain()
    assert "is not one of the schedule's outputs: C" in refusal(
        lambda: te.build([t["A"]], [t["C"], t["T"]], schedule=s)
    )


def test_kinds_of_arguments() -> None:
    with pytest.raises(TypeError, match="expected a tensor"):
        te.Schedule(3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no outputs"):
        te.Schedule([])
    with pytest.raises(te.ScheduleError, match="nothing to schedule"):
        te.Schedule(te.placeholder((3,)))
    s, _ = chain()
    with pytest.raises(TypeError, match="expected a tensor or a name"):
        s[3]
    with pytest.raises(TypeError, match="expected a loop"):
        s["C"].split(3, 4)


def test_memory_outside_of_a_split_that_leaves_a_rest() -> None:
    """Halide computes ahead of the first iteration there, and reads before the beginning of an input."""
    n = te.var("n")
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] + 1, name="B")
    C = te.compute((n,), lambda i: B[i] * 2, name="C")
    s = te.Schedule(C)
    s[C].split("i", 16)
    s[B].compute_at(s[C], "ii").store_root()
    with pytest.raises(te.ScheduleError, match="outer one of a split that may leave a rest"):
        te.build([A], C, schedule=s)


def test_what_the_check_of_a_scatter_reads_is_computed_before_it() -> None:
    index, g = te.placeholder((9,), "int32", name="index"), te.placeholder((9,), name="g")
    r = te.reduce_axis(9, "r")
    W = te.scatter((5,), [r], (index[r],), g[r], name="W")
    s = te.Schedule(W)
    s[W].cache_read(index).compute_at(W, "r")
    message = refusal(lambda: te.build([index, g], W, schedule=s))
    assert "the check of indices reads index_cached outside of loop 'r' of W" in message


def test_memory_outside_of_a_loop_with_which_nothing_slides() -> None:
    """Where one read stands still and another moves, Halide computes nothing at all."""
    A = te.placeholder((4, 3), name="A")
    C = te.compute((4, 3), lambda i, j: A[j, j] + A[i, j], name="C")
    s = te.Schedule(C)
    s[C].cache_read(A).compute_at(C, "i").store_root()
    message = refusal(lambda: te.build([A], C, schedule=s))
    assert "C reads A_cached[i, j], which does not move along with 'i', unlike another read of it" in message
    assert "store it where it is computed" in message
    index = te.placeholder((4,), "int32", name="index")
    D = te.compute((4, 3), lambda i, j: A[index[i], j], name="D")
    s = te.Schedule(D)
    s[D].cache_read(A).compute_at(D, "i").store_root()
    assert "D reads A_cached[index[i], j], which" in refusal(lambda: te.build([A, index], D, schedule=s))


def test_what_slides_through_several_stages_may_be_stored_outside() -> None:
    A = te.placeholder((40, 8), name="A")
    T = te.compute((38, 8), lambda i, j: A[i, j] + A[i + 2, j], name="T")
    U = te.compute((18, 8), lambda i, j: T[2 * i, j] - T[2 * i + 2, j], name="U")
    C = te.compute((17, 8), lambda i, j: U[i, j] * U[i + 1, 7 - j], name="C")
    s = te.Schedule(C)
    s[U].compute_at(C, "i").store_root()
    s[T].compute_at(C, "i").store_root()
    values = np.random.default_rng(0).integers(-9, 9, (40, 8)).astype("float32")
    np.testing.assert_array_equal(te.build([A], C, schedule=s)(values), te.interpret(C, {A: values}))


def test_fused_loops_of_a_stage_inside_another() -> None:
    """The ends of both loops change with the outer one: Halide adds up the largest of them, beyond the input."""
    m, p = te.var("m"), te.var("p")
    A = te.placeholder((m, p), name="A")
    C = te.compute((5,), lambda i: A.at(i + 1, i + 3, mode="zero") + A.at(i, i, mode="zero"), name="C")
    s = te.Schedule(C)
    copy = s[C].cache_read(A).compute_at(C, "i")
    copy.fuse(*copy.axes)
    values = np.arange(40.0, dtype="float32").reshape(5, 8)
    np.testing.assert_array_equal(te.build([A], C, schedule=s)(values), te.interpret(C, {A: values}))


def test_stages_of_another_schedule_are_refused() -> None:
    s, t = chain()
    other, u = chain()
    message = refusal(lambda: s["B"].compute_at(other["T"], "i"))
    assert "s['T'] with loops i, j belongs to another schedule" in message
    assert "s['T']" in refusal(lambda: s["C"].cache_read(other["T"]))
    assert "'T' there is another tensor, at" in refusal(lambda: s[u["T"]])
    s["B"].compute_at(s.copy()[t["T"]], "i")
    assert f"compute 'C' at {__file__}" in refusal(lambda: te.build(u["A"], u["C"], schedule=s))


def test_what_a_directive_is_given_is_of_its_type() -> None:
    s, _ = chain()
    for action, words in {
        lambda: s["T"].prefetch("B", "j", 1.5): "the distance must be an integer, found 1.5",
        lambda: s["T"].split("i", 4, names=(1, 2)): "split: outer is of type str, found 1",
        lambda: s["T"].split("i", 4, names=("io",)): "names holds those of both loops, found ('io',)",
        lambda: s["T"].fuse("i", "j", name=3): "fuse: fused is of type str, found 3",
        lambda: s["T"].store_in(3): "store_in: memory is of type str, found 3",
    }.items():
        with pytest.raises(TypeError) as caught:
            action()
        assert words in str(caught.value)
        assert __file__ in str(caught.value)
    assert not s.steps


@pytest.mark.parametrize("promise", ["split", "bound_extent"])
def test_a_promise_that_does_not_hold(promise: str) -> None:
    n = te.var("n")
    A = te.placeholder((n,), name="A")
    C = te.compute((n,), lambda i: A[i] * 2, name="C")
    s = te.Schedule(C)
    if promise == "split":
        s[C].split("i", 8, exact=True)
    else:
        s[C].bound_extent("i", 16)
    kernel = te.build(A, C, schedule=s)
    values = np.arange(16, dtype="float32")
    np.testing.assert_array_equal(kernel(values), values * 2)
    message = refusal(lambda: kernel(np.ones(19, "float32")))
    assert "the schedule promises what may not hold at this call" in message
    assert f"s['C'].{promise}('i', " in message
    assert __file__ in message
