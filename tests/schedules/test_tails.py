"""Tails by name: what the last iterations of a split loop do."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tedsl as te
from schedules.placing.regions import least_there
from tedsl.lang import tensor
from tedsl.lang.guards import guards_of
from tests.work import calls_in

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
        texts[tail] = next(line.strip() for line in str(s).splitlines() if " = " in line and "jo*8" in line)
    assert texts == {
        "guard": "j = jo*8 + jv   if j < 45",
        "shift": "j = minimum(jo*8, 37) + jv",
        "predicate": "j = jo*8 + jv   if j < 45 (masked)",
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
    for tail, factor in (("shift", 6), ("round_up", 5)):
        s = te.Schedule(C)
        s[C].split("j", 5)
        s[T].compute_at(C, "jo").split("j", factor, tail=tail)
        assert "wherever T is computed" in refusal(lambda s=s: te.build(A, C, schedule=s))
    s = te.Schedule(C)
    s[C].split("j", 5)
    s[T].compute_at(C, "jo").bound_extent("j", 5).split("j", 5, tail="round_up")
    np.testing.assert_array_equal(te.build(A, C, schedule=s)(X), X * 2 + 1)


def _vectors_inside(columns: int, taps: list[Any], factor: int, tail: str | None) -> tuple[str, Any]:
    """The text of a kernel whose first stage is computed in tiles of sixteen columns of the second, and its result."""
    A = te.placeholder((6, columns + 8), name="A")
    T = te.compute(A.shape, lambda i, j: A[i, j] * 2, name="T")
    C = te.compute((6, columns), lambda i, j: sum(tap(T, i, j) for tap in taps), name="C")
    s = te.Schedule(C)
    s[C].split("j", 16)
    s[T].compute_at(C, "jo").vectorize("j", factor, tail=tail)
    kernel, x = te.build(A, C, schedule=s, target="x86-64-v3"), np.random.default_rng(0).random(A.shape, "float32")
    np.testing.assert_array_equal(te.build(A, C, schedule=s)(x), te.interpret(C, {A: x}))
    return kernel.source("stmt"), s


def _ends_one_by_one(stmt: str) -> bool:
    """Whether some elements of T are computed one after another."""
    return re.search(r"for \(T\.s0\.j\.jv", stmt) is not None


PLAIN: list[Any] = [lambda T, i, j: T[i, j], lambda T, i, j: T[i, j + 5]]
GUARDED: list[Any] = [lambda T, i, j: te.select(j > 3, T[i, j + 5], 0.0)]


@pytest.mark.parametrize(
    ("columns", "taps", "factor", "is_moved"),
    [
        (64, PLAIN, 8, True),
        (64, PLAIN, 16, True),
        (64, PLAIN, 32, False),
        (70, PLAIN, 8, False),
        (64, GUARDED, 8, None),
    ],
)
def test_the_last_vector_inside_a_loop_begins_earlier(
    columns: int, taps: list[Any], factor: int, is_moved: bool | None
) -> None:
    """Where every tile is known to need as many elements, whether that was asked for or not."""
    stmt, _ = _vectors_inside(columns, taps, factor, None)
    assert is_moved is None or _ends_one_by_one(stmt) is not is_moved
    if is_moved:
        assert not _ends_one_by_one(_vectors_inside(columns, taps, factor, "shift")[0])
    else:
        assert "wherever T is computed" in refusal(lambda: _vectors_inside(columns, taps, factor, "shift"))
    assert is_moved is None or _ends_one_by_one(_vectors_inside(columns, taps, factor, "guard")[0])


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
    with pytest.raises(te.AliasError, match="again, where the last iterations are shifted inward"):
        te.build(A, C, schedule=s, alias={C: A})
    x = X.copy()
    te.build(A, C, schedule=s)(x, out=x)
    np.testing.assert_array_equal(x, te.build(A, C)(X))


@pytest.mark.parametrize(("columns", "dtype"), [(330, "float32"), (332, "float32"), (331, "float64")])
def test_tiles_begin_where_the_packed_columns_do(columns: int, dtype: str) -> None:
    """Without masks a result's last tile may begin earlier, but not where it would look up its columns one by one."""
    a, b = te.placeholder((300, 312), dtype), te.placeholder((312, columns), dtype)
    loops = te.build([a, b], a @ b, target="x86-64-v3").source("stmt")
    assert "matmul_columns" in loops
    assert "%" not in loops


def test_a_symbolic_extent_that_is_a_multiple() -> None:
    n = te.var("n")
    A = te.placeholder((4 * n,), name="A")
    C = te.compute((4 * n,), lambda i: A[i] + 1, name="C")
    s = te.Schedule(C)
    s[C].split("i", 4, tail="round_up")
    x = np.arange(12, dtype=np.float32)
    np.testing.assert_array_equal(te.build(A, C, schedule=s)(x), x + 1)


def test_a_symbolic_extent_that_may_be_none_is_told_of_loops_for_its_multiples() -> None:
    n = te.var("n")
    A = te.placeholder((n + 1,), name="A")
    C = te.compute((n + 1,), lambda i: A[i] + 1, name="C")
    s = te.Schedule(C)
    s[C].vectorize("i", 8, tail="round_up")
    message = refusal(lambda: te.build(A, C, schedule=s))
    told = (
        "take tail='guard', or give loops of their own to sizes of which it is one, s['C'].specialize((n + 1) % 8 == 0)"
    )
    assert message.endswith(told)
    s = te.Schedule(C)
    s[C].specialize((n + 1) % 8 == 0).vectorize("i", 8, tail="round_up")
    run = te.build(A, C, schedule=s)
    for size in (8, 9, 16):
        x = np.arange(size, dtype=np.float32)
        np.testing.assert_array_equal(run(x), x + 1)


@pytest.mark.parametrize(
    ("size", "told"),
    [
        (37, "take tail='guard', or 'shift'"),
        (36, "take tail='guard', or 'shift', or a factor that divides 36, such as 6"),
        (6, "take tail='guard', or a factor that divides 6, such as 6"),
    ],
)
def test_an_extent_that_is_a_number_is_told_of_what_helps_there(size: int, told: str) -> None:
    """Numbers have no sizes to distinguish: `specialize` refuses them."""
    A = te.placeholder((size,), name="A")
    C = te.compute((size,), lambda i: A[i] + 1, name="C")
    x = np.arange(size, dtype=np.float32)

    def built(factor: int, tail: str) -> Any:
        s = te.Schedule(C)
        s[C].vectorize("i", factor, tail=tail)
        return te.build(A, C, schedule=s)(x)

    message = refusal(lambda: built(8, "round_up"))
    assert message.endswith(told)
    for tail in ("guard", "shift"):
        if f"'{tail}'" in message:
            np.testing.assert_array_equal(built(8, tail), x + 1)
    if "such as" in message:
        np.testing.assert_array_equal(built(int(message.rpartition(" ")[2]), "round_up"), x + 1)


def test_what_a_chain_of_stages_needs_is_asked_of_each_stage_once() -> None:
    """There are two ways to go on at every stage, so that a long chain would have no end."""

    def work(stages: int) -> int:
        t = te.placeholder((40, 90), name="A")
        for k in range(stages):
            rows, columns = (int(n) - 1 for n in t.shape)
            t = te.compute((rows, columns), lambda i, j, t=t: t[i, j] + t[i + 1, j + 1], name=f"t{k}")
        s = te.Schedule(t)
        for k in range(stages - 1):
            s[f"t{k}"].compute_at(t, "i").vectorize("j", 8)
        assert least_there(s.plan, "t0", 1) == int(t.shape[1]) + stages - 1
        return calls_in(lambda: least_there(s.plan, "t0", 1))

    assert work(24) < 3 * work(12)


def test_under_what_conditions_stages_read_is_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[object] = []

    def counted(roots: Any) -> Any:
        found.append(roots)
        return guards_of(roots)

    monkeypatch.setattr(tensor, "guards_of", counted)
    x = te.placeholder((40, 90), name="A")
    a = te.compute((40, 89), lambda i, j: x[i, j] + x[i, j + 1], name="a")
    b = te.compute((40, 88), lambda i, j: a[i, j] + a[i, j + 1], name="b")
    s = te.Schedule(b)
    s["a"].compute_at(b, "i").vectorize("j", 8)
    assert [least_there(s.plan, "a", axis) for axis in (1, 0, 1)] == [89, 1, 89]
    assert len(found) <= 1


@pytest.mark.parametrize("parts", ["(n + 3) // 4", "n // 7", "maximum(n - 5, 0) // 3 + 2"])
def test_a_factor_made_of_sizes(parts: str) -> None:
    """Parts of a length that is known when the kernel runs: also where it is 0, or more than there is."""
    n = te.var("n")
    A = te.placeholder((n, 5), name="A")
    C = te.compute((n, 5), lambda i, j: A[i, j] * 2 + A[n - 1 - i, j], name="C")
    s = te.Schedule(C)
    outer, inner = s[C].split("i", parts)
    s[C].parallel(outer)
    assert [loop.name for loop in (outer, inner)] == ["io", "ii"]
    assert "for io <" in str(s)
    written = {"C": C}
    exec(s.code(), written)
    assert str(written["s"]) == str(s)
    kernel = te.build(A, C, schedule=s)
    for rows in (1, 2, 6, 7, 8, 40):
        a = np.arange(rows * 5, dtype="float32").reshape(rows, 5)
        np.testing.assert_array_equal(kernel(a), a * 2 + a[::-1])


def test_a_factor_made_of_sizes_leaves_a_rest() -> None:
    n = te.var("n")
    A = te.placeholder((n,), name="A")
    C = te.compute((n,), lambda i: A[i] * 2, name="C")
    assert "may leave a rest" in refusal(lambda: te.Schedule(C)[C].split("i", (n + 3) // 4, exact=True))
    assert "no size 'm'" in refusal(lambda: te.Schedule(C)[C].split("i", "m // 4"))
    with pytest.raises(TypeError, match="must be an integer"):
        te.Schedule(C)[C].split("i", "4")
