"""Ordered alternatives: which layout a call takes, in which way a form is compiled, what answers a failed call."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import halide as hl
import numpy as np
import pytest

import tedsl as te
from schedules.merging import Merging
from tedsl.backend.compiling import ways
from tedsl.backend.compiling.alternatives import first_working
from tedsl.backend.compiling.compilation import Compilation
from tedsl.backend.compiling.facts import FoundFacts
from tedsl.backend.compiling.forms import COMPACT, LAYOUTS, MERGED, Form, Numbers, layout_of, usual_layout
from tedsl.backend.compiling.variant_source import VariantSource
from tedsl.backend.host.runtime import NOT_FINITE, KernelError
from tedsl.backend.host.targets import parse_target
from tedsl.backend.scheduling.planner import Planner
from tedsl.lang.errors import ScheduleError

ARRAYS = {
    "contiguous": np.zeros((4, 6), "f4"),
    "rows apart": np.zeros((8, 6), "f4")[::2],
    "transposed": np.zeros((6, 4), "f4").T,
    "columns apart": np.zeros((4, 12), "f4")[:, ::2],
    "one column": np.zeros((4, 12), "f4")[:, :1],
    "scalar": np.zeros((), "f4"),
    "repeated": np.broadcast_to(np.zeros((), "f4"), (1 << 16, 1 << 16)),
    "repeated but empty": np.broadcast_to(np.zeros((1, 0), "f4"), (1 << 29, 0)),
    "repeated rows": np.broadcast_to(np.zeros(6, "f4"), (1 << 29, 6)),
}
FACTS = {
    "any": FoundFacts(checks_indices=False, is_compact=False),
    "compact": FoundFacts(checks_indices=False, is_compact=True),
    "merged": FoundFacts(checks_indices=False, is_compact=False, merging=Merging((), (), {})),
}


def steps_by_one(array: np.ndarray) -> bool:
    """Whether the last axis of more than one element has neighbours side by side."""
    steps = [s for n, s in zip(array.shape, array.strides, strict=True) if n != 1]
    return not steps or array.size == 0 or steps[-1] == array.itemsize


@pytest.mark.parametrize("large_stage", [False, True])
@pytest.mark.parametrize("facts", FACTS)
def test_a_layout_says_what_holds_of_all_arrays_and_the_best_is_taken(facts: str, large_stage: bool) -> None:
    for names in itertools.product(ARRAYS, ARRAYS):
        arrays = [ARRAYS[name] for name in names]
        found = layout_of(FACTS[facts], arrays, has_large_stage=large_stage)
        dense = all(steps_by_one(a) for a in arrays)
        large = large_stage or any("repeated" in n for n in names)
        best = facts in ("compact", "merged") and not large and all(a.flags.c_contiguous for a in arrays)
        assert (found.name == facts) == best, names
        assert (found.is_dense, found.is_large) == (dense, large), names


def test_the_usual_layout_is_that_of_contiguous_arrays() -> None:
    for facts in FACTS.values():
        assert usual_layout(facts) is layout_of(facts, [ARRAYS["contiguous"]], has_large_stage=False)
    assert usual_layout(FoundFacts(False, False, is_large=True)).is_large
    assert len({layout.name for layout in LAYOUTS}) == len(LAYOUTS)
    assert [FACTS["compact"].is_compact, COMPACT.is_dense, MERGED.is_large] == [True, True, False]


def test_an_alternative_is_tried_where_it_answers_the_last_failure() -> None:
    tried: list[tuple[str, str]] = []

    def attempt(choice: str, failure: Exception | None) -> str:
        tried.append((choice, str(failure)))
        if choice == "d":
            return "found"
        raise ValueError(choice)

    answered = {"a": "", "b": "a", "c": "a", "d": "b"}
    assert first_working("abcd", attempt, lambda c, e: answered[c] == str(e)) == "found"
    assert tried == [("a", "None"), ("b", "a"), ("d", "b")]  # c answers a failure that is not the last
    tried.clear()
    with pytest.raises(ValueError, match="b"):
        first_working("abc", attempt, lambda c, e: answered[c] == str(e), ValueError("a"))
    assert tried == [("b", "a")]


DIVIDES, REFUSES = hl.HalideError("Error: Division by constant zero"), hl.HalideError("Error: no such loop")
TOLD = ScheduleError("refused: Division by constant zero")


@dataclass
class Script:
    """What happens in each way, in order; None: it works."""

    failures: list[Exception | None]
    ways: list[str]


SIMPLER = ("whole loops", "simple", "simple and careful")
SCRIPTS = [
    Script([None], ["planned"]),
    Script([DIVIDES, None], ["planned", "careful"]),
    Script([TOLD, None], ["planned", "careful"]),
    Script([REFUSES, None], ["planned", "whole loops"]),
    Script([REFUSES, REFUSES, None], ["planned", "whole loops", "simple"]),
    Script([DIVIDES, REFUSES, REFUSES, None], ["planned", "careful", "whole loops", "simple"]),
    Script([DIVIDES, REFUSES, DIVIDES, DIVIDES, None], ["planned", "careful", *SIMPLER]),
    Script([REFUSES, REFUSES, DIVIDES, None], ["planned", *SIMPLER]),
    Script([REFUSES, REFUSES, REFUSES], ["planned", "whole loops", "simple"]),
    Script([ValueError("ours")], ["planned"]),
]


@pytest.mark.filterwarnings("ignore:kernel 'k'")
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda s: ", ".join(s.ways))
def test_the_ways_to_compile_a_form(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    x = te.placeholder((4,), name="x")
    program = Compilation((x,), (x + 1,), "k", parse_target("host"), Planner())
    tried: list[tuple[bool, bool, bool]] = []

    def made(origin: VariantSource) -> Any:
        tried.append((origin.is_careful, origin.is_whole, origin.program.planner.simple))
        failure = script.failures[len(tried) - 1]
        if failure is not None:
            raise failure
        return None, None, None

    monkeypatch.setattr(VariantSource, "made", made)
    last = script.failures[-1]
    if last is None:
        way = ways.first_way(VariantSource(program, Form(("write",)))).way
        assert (way.name, way.is_kept) == (script.ways[-1], "simple" not in way.name)
    else:
        with pytest.raises(type(last), match=str(last)):
            ways.first_way(VariantSource(program, Form(("write",))))
    assert tried == [("careful" in name, "whole" in name, "simple" in name) for name in script.ways]


def test_what_the_user_asked_for_is_refused_and_not_made_simple(monkeypatch: pytest.MonkeyPatch) -> None:
    x = te.placeholder((4,), name="x")
    asked = Planner(automatic="mullapudi2016")
    program = Compilation((x,), (x + 1,), "k", parse_target("host"), asked)

    def made(origin: VariantSource) -> Any:
        raise REFUSES

    monkeypatch.setattr(VariantSource, "made", made)
    with pytest.raises(hl.HalideError, match="no such loop"):
        ways.first_way(VariantSource(program, Form(("write",))))


def test_where_halide_refuses_a_thread_for_a_stage_it_is_computed_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    x = te.placeholder((4, 8), name="x")
    T = te.compute((4, 8), lambda i, j: x[i, j] * 2, name="T")
    U = te.compute((4, 8), lambda i, j: T[i, j] + 1, name="U")
    s = te.Schedule(U)
    s[T].compute_at(U, "i").hoist_storage().async_()
    program = Compilation((x,), (U,), "k", parse_target("host"), Planner(plan=s.plan))

    def made(origin: VariantSource) -> Any:
        if origin.program.planner.in_turn:
            return None, None, None
        raise REFUSES

    monkeypatch.setattr(VariantSource, "made", made)
    with pytest.warns(UserWarning, match=r"kernel 'k': Halide refuses threads .*no such loop.*; they are computed in"):
        assert ways.first_way(VariantSource(program, Form(("write",)))).way.name == "in turn"


def failed(*values: int) -> KernelError:
    """A call that failed as `hl.require` tells it; without values, in another way."""
    text = "Requirement Failed: (...)" + " ".join(map(str, values)) if values else "out of everything"
    return KernelError("k", -1, [text])


def test_any_numbers_answer_what_is_not_finite_alone() -> None:
    infinite, index = failed(0, NOT_FINITE, 0, 0, 0), failed(0, 3, 0, 0, 0)
    assert infinite.requirement is not None
    assert [Numbers.ANY.answers(e) for e in (infinite, index, failed())] == [True, False, False]
    assert not Numbers.FINITE.answers(infinite)


@pytest.mark.parametrize("again", [True, False])
def test_a_prepared_call_that_fails_is_made_again_only_where_nothing_was_written(again: bool) -> None:
    x = te.placeholder((8,), name="x")
    kern = te.build([x], te.compute((8,), lambda i: x[i] * 2, name="y"))
    a, out = np.arange(8, dtype="f4"), np.zeros(8, "f4")
    kern(a, out=out, mode="add")
    (key,) = kern._adding
    calls: list[int] = []

    def run(arrays: Any) -> None:
        calls.append(1)
        if not again:
            arrays[-1][0] += 1  # as code that fails in the middle does
        raise failed(0, NOT_FINITE, 0, 0, 0) if again else failed()

    object.__setattr__(kern._adding[key], "run", run)
    if again:
        np.testing.assert_array_equal(kern(a, out=out, mode="add"), 4 * a)
    else:
        with pytest.raises(KernelError, match="out of everything"):
            kern(a, out=out, mode="add")
    assert calls == [1]


def test_a_record_is_made_once_and_passed_as_one() -> None:
    x = te.placeholder((8,), name="x")
    kern = te.build([x], x + 1, name="passed")
    program = kern.core.program
    assert (program.name, program.inputs, program.target.backend) == ("passed", (x,), "host")
    assert kern.core.plan.steps[0].core.program is program  # type: ignore[union-attr]
    assert program.planned(in_place=True).facts is not program.facts
    assert not program.planner.in_place
