"""What is left of a schedule's directives when some are taken back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from schedules.directives import DIRECTIVES, Directive, Rewrite
from schedules.loops import one_of
from schedules.plan import Step, described
from tedsl.lang.errors import ScheduleError

__all__ = ["added_by", "without_directive", "without_stage", "without_verb"]


def without_directive(steps: Sequence[Step], directive: Directive) -> list[Step]:
    """The steps without the last one that is this directive, and without what that one added."""
    places = [k for k, step in enumerate(steps) if step.directive == directive]
    if not places:
        there = ", ".join(described(s.directive) for s in steps if s.directive.stage == directive.stage)
        raise ScheduleError(
            f"{described(directive)} was not given; directives of {directive.stage or 'all stages'}: {there or 'none'}"
        )
    rest = [step for k, step in enumerate(steps) if k != places[-1]]
    return _without_stages(rest, added_by([steps[places[-1]]]))


def without_verb(steps: Sequence[Step], verb: str) -> list[Step]:
    """The steps without all those of a verb, and without what these added."""
    given = [step.directive.verb for step in steps]
    one_of(verb, [v for v in DIRECTIVES if v in given], "directive or stage", "directives given")
    gone = [step for step in steps if step.directive.verb == verb]
    return _without_stages([step for step in steps if step.directive.verb != verb], added_by(gone))


def without_stage(steps: Sequence[Step], stage: str) -> list[Step]:
    """The steps without those of a stage, and without what these added."""
    gone = [step for step in steps if step.directive.stage == stage]
    return _without_stages([step for step in steps if step.directive.stage != stage], added_by(gone))


def added_by(steps: Iterable[Step]) -> set[str]:
    """The stages that rewrites add."""
    return {_added(step.directive) for step in steps if isinstance(step.directive, Rewrite)} - {""}


def _added(directive: Any) -> str:
    return next((getattr(directive, f) for f in ("copy", "local", "partial", "clone") if hasattr(directive, f)), "")


def _without_stages(steps: list[Step], stages: set[str]) -> list[Step]:
    """The steps but for those of these stages, and of what those add in turn."""
    while stages:
        gone = [step for step in steps if step.directive.stage in stages]
        steps = [step for step in steps if step.directive.stage not in stages]
        stages = added_by(gone)
    return steps
