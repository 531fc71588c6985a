"""What a plan costs to compile: more code costs more, and of what it counts the parts are told."""

from __future__ import annotations

from typing import Any

import pytest

import tedsl as te
from schedules.estimate.compiling import KERNEL, CodeSize, compile_ms, size_of
from schedules.plan import Plan

X = te.placeholder((64, 256), name="x")


def plan_of(stage: te.Tensor, *directives: Any) -> Plan:
    """The plan of a stage with directives, nothing left open."""
    schedule = te.Schedule(stage)
    for verb, *rest in directives:
        getattr(schedule[stage], verb)(*rest)
    return schedule.plan


def test_copies_that_are_written_out_count() -> None:
    y = te.compute((64, 256), lambda i, j: X[i, j] * 2 + 1, name="y")
    once, four = (size_of(plan_of(y, *said)) for said in ((), (("split", "j", 4, ("jo", "ji")), ("unroll", "ji"))))
    assert once == CodeSize(operations=3, loops=2)
    assert four == CodeSize(operations=12, loops=3)


def test_functions_and_what_is_inlined_count() -> None:
    a = te.compute((64, 256), lambda i, j: te.exp(X[i, j]), name="a")
    b = te.compute((64, 255), lambda i, j: a[i, j] + a[i, j + 1], name="b")
    s = te.Schedule(b)
    s["a"].compute_inline()
    size = size_of(s.plan)
    assert (size.functions, size.inlined, size.loops) == (2, 1, 2)
    assert compile_ms(s.plan) == pytest.approx(KERNEL + 0.34 * size.operations + 4.3 * 2 + 9.3 + 2.9 * 2)


def test_a_chain_that_is_inlined_is_counted_without_following_every_way() -> None:
    t = X
    for k in range(60):
        t = te.compute((64, 256 - k), lambda i, j, t=t: t[i, j] + t[i, j], name=f"t{k}")
    assert compile_ms(plan_of(t)) > KERNEL
