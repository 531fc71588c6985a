"""Tails by name: what the last iterations of a split loop do."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tedsl as te

N = 45
X = np.arange(7 * N, dtype=np.float32).reshape(7, N)


def single(n: int = N, m: int = 7) -> tuple[te.Schedule, te.Tensor, te.Tensor]:
    A = te.placeholder((m, n), name="A")
    C = te.compute((m, n), lambda i, j: te.exp(A[i, j] / 100) + j, name="C")
    return te.Schedule(C), A, C


def refusal(action: Callable[[], object]) -> str:
    with pytest.raises(te.ScheduleError) as caught:
        action()
    return str(caught.value)


@pytest.mark.parametrize("verb", ["split", "tile", "vectorize", "unroll"])
@pytest.mark.parametrize("tail", ["guard", "shift", "predicate", "round_up"])
def test_results_are_the_same_bits_with_every_tail(verb: str, tail: str) -> None:
    n = 48 if tail == "round_up" else N
    s, A, C = single(n, 8)
    if verb == "split":
        s[C].split("j", 8, tail=tail)
        if tail == "predicate":
            s[C].vectorize("ji")
    elif verb == "tile":
        s[C].tile("i", "j", 4 if tail == "round_up" else 3, 8, tail="guard" if tail == "predicate" else tail)
    else:
        if tail == "predicate" and verb == "unroll":
            return
        getattr(s[C], verb)("j", 8, tail=tail)
    x = np.linspace(-3, 3, 8 * n, dtype=np.float32).reshape(8, n)
    np.testing.assert_array_equal(te.build(A, C, schedule=s)(x), te.build(A, C, schedule=te.Schedule(C))(x))


def test_the_loops_tell_what_the_tail_does() -> None:
    texts = {}
    for tail in ("guard", "shift", "predicate"):
        s, _, C = single()
        s[C].vectorize("j", 8, tail=tail)
        texts[tail] = next(line.strip() for line in str(s).splitlines() if " = " in line and "j*8" in line)
    assert texts == {
        "guard": "j = j*8 + jv   if j < 45",
        "shift": "j = minimum(j*8, 37) + jv",
        "predicate": "j = j*8 + jv   if j < 45 (masked)",
    }


def test_code_and_files_keep_the_tail() -> None:
    s, _, C = single()
    s[C].vectorize("j", 8, tail="shift")
    assert "s['C'].split('j', 8, names=('j', 'jv'), tail='shift')" in s.code()


def test_what_would_be_wrong_is_refused() -> None:
    s, A, C = single()
    assert "there is no tail 'shfit'; tails: round_up, guard, shift, predicate; did you mean 'shift'?" in refusal(
        lambda: s[C].split("j", 8, tail="shfit")  # codespell:ignore shfit
    )
    for how, words in {
        "round_up": "computes up to a multiple of 8, expected of the extent of 'j', found 45",
        "predicate": "'jo_i' is not vectorized",
    }.items():
        t = te.Schedule(C)
        t[C].split("j", 8, names=("jo", "jo_i"), tail=how)
        message = refusal(lambda t=t: te.build(A, C, schedule=t))
        assert words in message
        assert "tail='guard'" in message
        assert __file__ in message
    t = te.Schedule(C)
    t[C].split("j", 64, tail="shift")
    assert "expected at least 64, found 45; take a smaller factor" in refusal(lambda: te.build(A, C, schedule=t))


def test_sums_are_not_combined_twice() -> None:
    A, k = te.placeholder((7, N), name="A"), te.reduce_axis(N, "k")
    C = te.compute((7,), lambda i: te.sum(A[i, k], axis=k), name="C")
    s = te.Schedule(C)
    s[C].split("k", 8, tail="shift")
    assert "which C would combine twice: it is a reduction" in refusal(lambda: te.build(A, C, schedule=s))
    s = te.Schedule(C)
    s[C].init.split("i", 4, tail="shift")
    s[C].split("k", 8, tail="guard")
    np.testing.assert_allclose(te.build(A, C, schedule=s)(X), X.sum(1), rtol=1e-6)


def test_inside_a_loop_there_may_be_less() -> None:
    A = te.placeholder((7, N), name="A")
    T = te.compute((7, N), lambda i, j: A[i, j] * 2, name="T")
    C = te.compute((7, N), lambda i, j: T[i, j] + 1, name="C")
    for tail in ("shift", "round_up"):
        s = te.Schedule(C)
        s[C].split("j", 5)
        s[T].compute_at(C, "jo").split("j", 5, tail=tail)
        assert "wherever T is computed" in refusal(lambda s=s: te.build(A, C, schedule=s))
    s = te.Schedule(C)
    s[C].split("j", 5)
    s[T].compute_at(C, "jo").bound_extent("j", 5).split("j", 5, tail="round_up")
    np.testing.assert_array_equal(te.build(A, C, schedule=s)(X), X * 2 + 1)


def test_a_stage_of_which_little_is_read_is_computed_whole() -> None:
    A = te.placeholder((N,), name="A")
    T = te.compute((N,), lambda i: A[i] * 2, name="T")
    C = te.compute((3,), lambda i: T[i] + T[i + 2], name="C")
    s = te.Schedule(C)
    s[T].compute_root().vectorize("i", 16, tail="shift")
    x = np.arange(N, dtype=np.float32)
    np.testing.assert_array_equal(te.build(A, C, schedule=s)(x), 2 * (x[:3] + x[2:5]))


def test_what_is_added_to_is_added_to_once() -> None:
    s, A, C = single()
    s[C].vectorize("j", 8, tail="shift")
    out = np.ones((7, N), np.float32)
    te.build(A, C, schedule=s)(X, out=out, mode="add")
    np.testing.assert_allclose(out, 1 + np.exp(X / 100) + np.arange(N), rtol=1e-5)


def test_memory_that_is_read_again_is_not_written_over() -> None:
    s, A, C = single()
    s[C].vectorize("j", 8, tail="shift")
    with pytest.raises(te.AliasError, match="again, where the last iterations are shifted inwards"):
        te.build(A, C, schedule=s, alias={C: A})
    x = X.copy()
    te.build(A, C, schedule=s)(x, out=x)
    np.testing.assert_array_equal(x, te.build(A, C)(X))


def test_a_symbolic_extent_that_is_a_multiple() -> None:
    n = te.var("n")
    A = te.placeholder((4 * n,), name="A")
    C = te.compute((4 * n,), lambda i: A[i] + 1, name="C")
    s = te.Schedule(C)
    s[C].split("i", 4, tail="round_up")
    x = np.arange(12, dtype=np.float32)
    np.testing.assert_array_equal(te.build(A, C, schedule=s)(x), x + 1)
