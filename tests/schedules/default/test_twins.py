"""What is asked of stages that are alike is asked once, and answered over the loops of each."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

import tedsl as te
from schedules.default.twins import Twins
from tedsl.lang.expr import Axis
from tedsl.lang.tensor import Compute, Operation


def near(x: te.Tensor, shift: int, name: str = "y") -> Compute:
    """A sum of two neighbours."""
    y = te.compute(x.shape, lambda i, j: x[i, j] + x.at(i - shift, j, mode="clamp"), name=name)
    assert isinstance(y.op, Compute)
    return y.op


class Question:
    """The first loop of a stage, where one is asked about; which stages were asked."""

    def __init__(self) -> None:
        self.asked: list[Compute] = []

    def __call__(self, op: Compute, inlined: AbstractSet[Operation], along: Axis) -> dict[Axis, bool]:
        self.asked.append(op)
        return {op.axes[0]: along is op.axes[0]}


def answers(twins: Twins, question: Question, op: Compute, place: int = 0) -> None:
    found = twins.ask(op, question, op.axes[place])
    assert [a is op.axes[0] for a in found] == [True]
    assert list(found.values()) == [place == 0]


def test_stages_of_a_chain_are_asked_once() -> None:
    x = te.placeholder((8, 9))
    first = near(x, 1)
    second = near(first.output(), 1, name="z")
    twins, question = Twins(frozenset()), Question()
    for op in (first, second, second):
        answers(twins, question, op)
    assert question.asked == [first]
    answers(twins, question, second, place=1)
    assert question.asked == [first, first]


def test_what_differs_is_asked_by_itself() -> None:
    x, wide, half = te.placeholder((8, 9)), te.placeholder((8, 10)), te.placeholder((8, 9), "float64")
    y = te.placeholder((8, 9))
    two = te.compute(x.shape, lambda i, j: x[i, j] + y.at(i - 1, j, mode="clamp")).op
    assert isinstance(two, Compute)
    twins, question = Twins(frozenset()), Question()
    stages = [near(x, 1), near(x, 2), near(wide, 1), near(half, 1), two]
    for op in stages:
        answers(twins, question, op)
    assert question.asked == stages


def test_what_is_written_out_counts() -> None:
    """A stage that chooses stands in its readers, so they are not alike where it is inlined."""
    x = te.placeholder((8, 9))
    chosen = te.compute(x.shape, lambda i, j: te.select(i < 3, x[i, j], 0.0)).op
    first, second = near(x, 1), near(chosen.output(), 1)
    for inlined, count in ((frozenset[Operation](), 1), (frozenset([chosen]), 2)):
        twins, question = Twins(inlined), Question()
        for op in (first, second):
            answers(twins, question, op)
        assert len(question.asked) == count
