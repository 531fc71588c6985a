"""Stages that share loops: what is alike runs together with the same results, what is not is refused."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import tedsl as te

COUNTED: Counter[bool] = Counter()
EXAMPLES = int(os.environ.get("TEDSL_SHARING", "25"))


def siblings(rows: int, columns: int, symbolic: bool) -> tuple[te.Tensor, te.Tensor, list[te.Tensor], list[te.Tensor]]:
    """P over A; T, U and S over P, which do not need one another; D over all."""
    n = te.var("n") if symbolic else rows
    A = te.placeholder((n, columns), name="A")
    k = te.reduce_axis(3, "k")
    P = te.compute((n, columns), lambda i, j: A[i, j] + 1, name="P")
    T = te.compute((n, columns), lambda i, j: P[i, j] * 2 + P.at(i - 1, j, mode="clamp"), name="T")
    U = te.compute((n, columns), lambda i, j: P[i, j] - P.at(i, j + 1, mode="zero"), name="U")
    S = te.compute((n, columns), lambda i, j: te.sum(P.at(i + k, j, mode="zero"), axis=k), name="S")
    D = te.compute((n, columns), lambda i, j: T[i, j] + U[i, j] * 3 + S[i, j], name="D")
    return A, P, [T, U, S], [D]


def shared(chance: random.Random, s: te.Schedule, stages: list[te.Tensor], D: te.Tensor) -> None:
    """Two of the stages, or all, with the same outer loops, inner ones of their own."""
    chosen = chance.sample(stages, chance.choice((2, 2, 3)))
    at = None
    if chance.random() < 0.5:
        at = s[D].split("i", chance.choice((2, 5)))[chance.randint(0, 1)]
    split, both, parallel = chance.choice((0, 0, 3, 4)), chance.random() < 0.5, chance.random() < 0.4
    for t in chosen:
        s[t].compute_root() if at is None else s[t].compute_at(D, at)
        first, second = s[t].axes
        outer = s[t].split(first, split)[0] if split else first
        if parallel and at is None:
            s[t].parallel(outer)
        if chance.random() < 0.5:
            s[t].vectorize(second, 4) if not both else None
    first, *others = chosen
    depth = chance.randint(1, 2) if both or split else 1
    for t in others:
        s[t].compute_with(first, s[first].loops[depth - 1])
        if "S" not in (first.name, t.name) or chance.random() < 0.5:
            continue
        if first.name == t.name == "S":
            s[t].init.compute_with(s[first].init, s[first].init.loops[0])


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32 - 1))
def test_shared_loops_never_change_a_result(seed: int) -> None:
    chance = random.Random(seed)
    rows, columns = chance.choice((4, 9)), chance.choice((3, 8, 11))
    A, P, stages, (D,) = siblings(rows, columns, chance.random() < 0.3)
    outputs = [D] if chance.random() < 0.6 else [D, stages[0]]
    s = te.Schedule(outputs)
    if chance.random() < 0.5:
        s[P].compute_root()
    refused = ""
    try:
        shared(chance, s, stages, D)
        kernel = te.build(A, outputs, schedule=s)
    except te.ScheduleError as error:
        refused = str(error)
    assert "Halide" not in refused, s.code()  # what cannot be is refused by us
    COUNTED[bool(refused)] += 1
    if refused:
        return
    values = np.random.default_rng(seed).integers(-4, 5, (rows, columns)).astype(np.float32)
    for mine, theirs in zip(kernel(values), te.interpret(outputs, {A: values}), strict=True):
        np.testing.assert_array_equal(mine, theirs, err_msg=s.code())


def refusal(action: Callable[[], object]) -> str:
    with pytest.raises(te.ScheduleError) as caught:
        action()
    return str(caught.value)


def test_loops_that_are_not_alike_are_refused() -> None:
    A, P, (T, U, S), (D,) = siblings(8, 8, symbolic=False)

    def built(give: Callable[[te.Schedule], object]) -> str:
        s = te.Schedule(D)
        for t in (P, T, U, S):
            s[t].compute_root()
        give(s)
        return refusal(lambda: te.build(A, D, schedule=s))

    for give, words in {
        lambda s: (
            s[T].split("i", 2, names=("x", "y")),
            s[U].split("i", 2),
            s[T].compute_with(U, "io"),
        ): "expected 'io' of 'i' of T, as of U, found 'x' of 'i'",
        lambda s: s[T].compute_with(P, "i"): "T needs P, which must be there before it begins",
        lambda s: s[T].parallel("i").compute_with(U, "i"): "expected 8 iterations, serial, found 8, parallel",
        lambda s: (s[T].split("i", 2), s[T].compute_with(U, "i")): "expected 'i' of T, as of U, found 'io' of 'i'",
        lambda s: s[T].compute_with(S, "k"): "T has no loop beside S's 'k'",
        lambda s: s[T].compute_at(D, "i").compute_with(U, "i"): "not computed at the same place",
        lambda s: (s[P].compute_at(T, "i"), s[T].compute_with(U, "i")): "all readers",
        lambda s: (s[T].compute_with(U, "i"), s[U].compute_with(S, "i")): "shares the loops of another stage itself",
        lambda s: s[T].compute_with(T, "i"): "has these loops already",
    }.items():
        message = built(give)
        assert words in message or words == "all readers", message
        assert __file__ in message
    s = te.Schedule(D)
    assert "there is no loop 'x'; loops of U: i, j" in refusal(lambda: s[T].compute_with(U, "x"))
    assert "there is no stage 'Z'" in refusal(lambda: s[T].compute_with("Z", "x"))


def test_sums_share_their_loops() -> None:
    A = te.placeholder((16, 24), name="A")
    k, q = te.reduce_axis(24, "k"), te.reduce_axis(24, "q")
    S = te.compute((16,), lambda i: te.sum(A[i, k], axis=k), name="S")
    Q = te.compute((16,), lambda i: te.sum(A[i, q] * A[i, q], axis=q), name="Q")
    s = te.Schedule([S, Q])
    s[S].compute_with(Q, "i").init.compute_with(s[Q].init, "i")
    kernel = te.build(A, [S, Q], schedule=s)
    assert kernel.loop_nest().count("fused.i") == 2
    x = np.random.default_rng(0).integers(-3, 4, (16, 24)).astype(np.float32)
    total, squares = kernel(x)
    np.testing.assert_array_equal(total, x.sum(1))
    np.testing.assert_array_equal(squares, (x * x).sum(1))


def test_most_shared_loops_are_built() -> None:
    assert COUNTED[False] > COUNTED[True]
