"""Random schedules of a program: directives drawn over the loops there are, the refused ones left out."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from schedules import Schedule
from schedules.placing.placement import placed
from tedsl.lang.errors import ScheduleError
from tedsl.lang.tensor import Compute, Tensor

__all__ = ["drawn_schedule"]

Pick = Callable[[Sequence[Any]], Any]


def drawn_schedule(outputs: Sequence[Tensor], seed: int, most: int = 6) -> Schedule:
    """A legal schedule of up to `most` directives."""
    rng = random.Random(seed)
    schedule = Schedule(list(outputs))
    for _ in range(most):
        before = schedule.plan, schedule.steps
        try:
            rng.choice(VERBS)(schedule, schedule[rng.choice(schedule.stages)], rng.choice)
            placed(schedule.plan)
        except (ScheduleError, IndexError):
            schedule.plan, schedule.steps = before
    return schedule


def _split(schedule: Schedule, view: Any, pick: Pick) -> None:
    view.split(pick(view.loops), pick((2, 3, 4, 8)))


def _reorder(schedule: Schedule, view: Any, pick: Pick) -> None:
    first, second = pick(view.axes), pick(view.axes)
    if first != second:
        view.reorder(second, first)


def _vectorize(schedule: Schedule, view: Any, pick: Pick) -> None:
    view.vectorize(pick(view.axes), pick((2, 4, 8)))


def _parallel(schedule: Schedule, view: Any, pick: Pick) -> None:
    view.parallel(pick(view.axes))


def _unroll(schedule: Schedule, view: Any, pick: Pick) -> None:
    view.unroll(pick(view.loops), pick((2, 3)))


def _compute_at(schedule: Schedule, view: Any, pick: Pick) -> None:
    consumer = schedule[pick(schedule.plan.program.readers[view.name])]
    view.compute_at(consumer, pick(consumer.loops))


def _inline(schedule: Schedule, view: Any, pick: Pick) -> None:
    op = view.operation
    if isinstance(op, Compute) and op.reduction is None:
        view.compute_inline()


def _cache_write(schedule: Schedule, view: Any, pick: Pick) -> None:
    view.cache_write()


VERBS = (_split, _split, _reorder, _vectorize, _parallel, _unroll, _compute_at, _inline, _cache_write)
