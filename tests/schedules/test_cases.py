"""`specialize`: loops of their own for calls whose sizes meet a condition."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import tedsl as te
from schedules.cases import condition_of, condition_text
from schedules.placing.placement import placed

SIZES = (0, 1, 3, 8, 15, 16, 17, 32, 50)
n, m = te.var("n"), te.var("m")


def program() -> tuple[te.Tensor, te.Tensor, te.Tensor, te.Tensor]:
    """T over A, sums S of rows of T, C of both."""
    A = te.placeholder((n, 9), name="A")
    k = te.reduce_axis(9, "k")
    T = te.compute((n, 9), lambda i, j: A[i, j] * 2 + 1, name="T")
    S = te.compute((n,), lambda i: te.sum(T[i, k], axis=k), name="S")
    C = te.compute((n, 9), lambda i, j: T[i, j] - S[i], name="C")
    return A, T, S, C


def refusal(action: Callable[[], object]) -> str:
    with pytest.raises(te.ScheduleError) as caught:
        action()
    return str(caught.value)


def check(s: te.Schedule, A: te.Tensor, C: te.Tensor) -> te.Kernel:
    kernel = te.build(A, C, schedule=s)
    for size in SIZES:
        a = np.random.default_rng(size).integers(-4, 5, (size, 9)).astype(np.float32)
        np.testing.assert_array_equal(kernel(a), te.interpret(C, {A: a}), err_msg=f"{size}\n{s.code()}")
    return kernel


def test_each_case_has_its_loops() -> None:
    A, _, _, C = program()
    s = te.Schedule(C)
    case = s[C].specialize((n % 8 == 0) & (n > 8))
    case.reorder("j", "i").vectorize("i", 8, tail="round_up").parallel("j")
    case.never_partition("j")
    s[C].vectorize("j", 4)
    assert case.loops == ("j", "i", "iv")
    assert s[C].loops == ("i", "j", "jv")
    nest = check(s, A, C).loop_nest()
    assert "parallel j" in nest or "specialized" in nest or nest.count("vectorized") >= 2


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32 - 1))
def test_cases_never_change_a_result(seed: int) -> None:
    chance = random.Random(seed)
    A, T, S, C = program()
    s = te.Schedule(C)
    s[T].compute_root()
    if chance.random() < 0.5:
        s[S].compute_at(C, s[C].split("i", 4)[0])
    for stage in chance.choices((T, S, C), k=2):
        view = chance.choice((s[stage], s[stage].init)) if stage is S else s[stage]
        condition = chance.choice(("n % 16 == 0", "n >= 16", "n < 4", "n % 3 == 0", "(n > 2) & (n % 2 == 1)"))
        try:
            case = view.specialize(condition)
        except te.ScheduleError:
            continue
        for part in (case, view, case):
            loop = chance.choice(part.loops)
            verb = chance.choice(("split", "vectorize", "parallel", "reorder", "unroll"))
            tail = chance.choice((None, "guard", "predicate", "round_up", "shift"))
            arguments = {"split": (loop, 4), "vectorize": (loop, 8), "unroll": (loop, 2), "parallel": (loop,)}
            given = arguments.get(verb, part.loops[::-1])
            named = {"tail": tail} if tail and verb in ("split", "vectorize", "unroll") else {}
            before, refused = (s.plan, s.steps), ""
            try:
                getattr(part, verb)(*given, **named)
                placed(s.plan)
            except te.ScheduleError as error:
                refused = str(error)
                s.plan, s.steps = before
            assert "Halide" not in refused, s.code()  # what cannot be is refused by us
    check(s, A, C)
    scope = {"C": C}
    exec(s.code(), scope)
    assert scope["s"].directives == s.directives
    assert str(scope["s"]) == str(s)


def test_cases_are_saved_and_written_as_code(tmp_path: Path) -> None:
    A, _, S, C = program()
    s = te.Schedule(C)
    s[C].specialize(n >= 16).vectorize("i", 8)
    s[S].init.specialize("n % 4 == 0").unroll("i", 4)
    assert "s['C'].case('n >= 16').split('i', 8, names=('i', 'iv'))\n" in s.code()
    assert "s['S'].init.case('n % 4 == 0').split(" in s.code()
    s.save(tmp_path / "s.json")
    again = te.Schedule.load(tmp_path / "s.json", C)
    assert again.directives == s.directives
    assert str(again) == str(s)
    check(again, A, C)
    specialize = s.directives[0]
    with pytest.raises(te.ScheduleError, match=r"a later directive needs it.*specialize it first"):
        s.without(specialize)
    assert "if n >= 16" not in str(s.without(C))


def test_what_is_no_condition_on_sizes_is_refused() -> None:
    A, T, S, C = program()
    s = te.Schedule(C)
    i = C.op.axes[0]
    for condition, words in {
        n: "expected a condition, found",
        True: "expected a condition, found True",
        i > 3: "it has loops or elements in it",
        m > 3: "asks for m; sizes of the program: n",
        "m > 3": "there is no size 'm'; sizes of the program: n",
        "n >": "is no condition; give a condition made of sizes",
        "__import__('os')": "is no part of a condition on sizes",
        "n % 0 == 1": "",
    }.items():
        message = refusal(lambda c=condition: s[C].specialize(c))
        assert words in message
        assert __file__ in message or not words
    case = s[C].specialize(n > 3)
    assert "has loops of its own where n > 3 already" in refusal(lambda: s[C].specialize("n > 3")).replace(
        "their", "its"
    )
    assert "there is no case 'n > 4'; conditions of C: n > 3" in refusal(lambda: s[C].case("n > 4"))
    assert "specialize is said of a stage, not of one of its cases" in refusal(lambda: case.specialize("n > 5"))
    assert "there is no loop 'x'; loops of C where n > 3: i, j" in refusal(lambda: case.parallel("x"))


def test_what_is_computed_inside_needs_the_same_loops_in_every_case() -> None:
    A, T, S, C = program()
    s = te.Schedule(C)
    s[S].compute_at(C, "i")
    s[C].specialize(n > 3).parallel("i")
    assert "loop 'i' of C and those around it are others where n > 3" in refusal(lambda: te.build(A, C, schedule=s))
    s = te.Schedule(C)
    s[S].compute_at(C, "i")
    s[C].specialize(n > 3).vectorize("j", 4)
    check(s, A, C)


def test_memory_is_written_over_only_where_every_case_allows_it() -> None:
    A = te.placeholder((n,), name="A")
    C = te.compute((n,), lambda i: A.at(i + 1, mode="zero"), name="C")
    s = te.Schedule(C)
    s[C].never_partition("i")
    te.build(A, C, schedule=s, alias={C: A})
    s[C].specialize(n > 3).vectorize("i", 8)
    with pytest.raises(te.AliasError):
        te.build(A, C, schedule=s, alias={C: A})


@pytest.mark.parametrize(
    "text", ["n % 16 == 0", "(n >= 64) & (m < 8)", "~(n == m)", "(n - 1) // 2 + 3 * m != 4", "-n < 3"]
)
def test_conditions_are_read_as_they_are_written(text: str) -> None:
    sizes = {"n": n, "m": m}
    assert condition_text(condition_of(text, sizes), sizes) == text
