"""What the last iterations of a split loop do where the factor does not divide the extent, by name, and when they may.

A tail is judged when the schedule is complete: what is right at the root may be wrong inside a loop.
"""

from __future__ import annotations

from collections.abc import Mapping

from schedules.cases import condition_of
from schedules.directives import TAILS, Async, Split
from schedules.loops import Level, base_of, transformed
from schedules.placing.places import Placement, around
from schedules.placing.regions import least_there
from schedules.placing.sliding import moves_along
from schedules.plan import Plan, Step, dimensions
from tedsl.lang import functions as fn
from tedsl.lang.expr import Apply, Const, Fn
from tedsl.lang.extents import simplify_extent
from tedsl.lang.tensor import Compute
from tedsl.lang.traverse import conjuncts

__all__ = ["becomes_vectors", "check_tails", "divides", "is_long"]


def check_tails(plan: Plan, places: Mapping[str, Placement]) -> None:
    """Refuse tails that would compute what is not there."""
    for (stage, definition), steps in plan.loops.items():
        if not any(isinstance(s.directive, Split) and s.directive.tail for s in steps):
            continue
        nest = plan.beginning(stage, definition)
        for step in steps:
            d = step.directive
            if isinstance(d, Split) and d.tail:
                reason = _RULES[d.tail](plan, d, nest.level(d.loop), places)
                if reason:
                    raise step.refused(reason)
            nest = transformed(nest, step.directive)  # type: ignore[arg-type]


def _step(d: Split) -> int:
    """The factor, which is a number where a tail is asked for that needs to know it."""
    return d.step or 1


def divides(factor: int, level: Level) -> bool:
    """Whether a factor divides the extent of a loop, whatever its symbols are."""
    rest = simplify_extent(fn.as_expr(level.extent % factor))
    return isinstance(rest, Const) and rest.value == 0


def _is_case_of(plan: Plan, d: Split, level: Level) -> bool:
    """Whether the case of a definition is that the extent is a multiple of the factor, or of a multiple of it."""
    case = d.definition.partition(" if ")[2]
    for part in conjuncts(condition_of(case, plan.sizes)) if case else ():
        if isinstance(part, Apply) and part.fn is Fn.EQ:
            rest, zero = part.args
            known = isinstance(zero, Const) and zero.value == 0 and isinstance(rest, Apply) and rest.fn is Fn.MOD
            if known and rest.children[0] is level.extent and isinstance(by := rest.children[1], Const):
                return int(by.value) % _step(d) == 0
    return False


def is_long(plan: Plan, d: Split, places: Mapping[str, Placement]) -> bool:
    """Whether a stage inside a loop always has as many elements to compute along a loop as the factor of its split."""
    names, place = dimensions(d.stage, plan.program.stages[d.stage]), places[d.stage]
    said = [s.directive for s in plan.storage.get(d.stage, ())]
    if d.loop not in names or any(isinstance(x, Async) or getattr(x, "axis", "") == d.loop for x in said):
        return False
    dim = names.index(d.loop)
    if place.store is not None:  # of a window that slides only what is new is computed
        outside = around(plan, places, place.consumer, place.loop)
        between = [(consumer, v.name) for consumer, v in outside]
        begin = between.index(place.store) + 1 if place.store in between else 0
        if moves_along(plan, d.stage, dim, outside[begin:]):
            return False
    return least_there(plan, d.stage, dim) >= _step(d)


def _guard(plan: Plan, d: Split, level: Level, places: Mapping[str, Placement]) -> str:
    return ""


def _round_up(plan: Plan, d: Split, level: Level, places: Mapping[str, Placement]) -> str:
    if level.constant is not None and level.constant % _step(d) == 0:
        return ""
    if not divides(_step(d), level) and not _is_case_of(plan, d, level):
        return (
            f"tail='round_up' computes up to a multiple of {_step(d)}, expected of the extent of {d.loop!r}, found "
            f"{level.extent}: what lies beyond is not there to be read or written; take tail='guard'"
            f"{_instead(plan, d, level, places)}"
        )
    if places[d.stage].kind != "root":
        return (
            f"tail='round_up' needs a multiple of {_step(d)} wherever {d.stage} is computed; inside a loop that is "
            f"part of its {level.extent}: say how much by bound_extent({d.loop!r}, ...), or take tail='guard'"
        )
    return ""


def _instead(plan: Plan, d: Split, level: Level, places: Mapping[str, Placement]) -> str:
    """What else helps where a factor does not divide an extent: known sizes have no cases."""
    if level.known is None:
        own = f"s[{d.stage!r}].specialize(({level.extent}) % {_step(d)} == 0)"
        return f", or give loops of their own to sizes of which it is one, {own}"
    shifted = "" if _shift(plan, d, level, places) else ", or 'shift'"
    factor = next((k for k in range(_step(d), 1, -1) if level.known % k == 0), None)
    return shifted if factor is None else f"{shifted}, or a factor that divides {level.known}, such as {factor}"


def _shift(plan: Plan, d: Split, level: Level, places: Mapping[str, Placement]) -> str:
    op = plan.operation(d.stage)
    if base_of(d.definition) == "body" and not (isinstance(op, Compute) and op.reduction is None):
        return (
            f"tail='shift' computes elements a second time, which {d.stage} would combine twice: it is "
            f"{'a reduction' if isinstance(op, Compute) else 'a ' + type(op).__name__.lower()}; take tail='guard'"
        )
    if level.constant is None and places[d.stage].kind != "root":
        if is_long(plan, d, places):
            return ""
        return (
            f"tail='shift' needs at least {_step(d)} iterations of {d.loop!r} wherever {d.stage} is computed, and "
            "inside a loop there may be fewer; compute it at the root, or take tail='guard'"
        )
    known = level.known
    if known is None or known < _step(d):
        return (
            f"tail='shift' moves the last {_step(d)} iterations of {d.loop!r} inward, expected at least {_step(d)}, "
            f"found {level.extent}; take a smaller factor, or tail='guard'"
        )
    return ""


def _predicate(plan: Plan, d: Split, level: Level, places: Mapping[str, Placement]) -> str:
    if becomes_vectors(plan.loops[d.stage, d.definition], d):
        return ""
    return (
        f"tail='predicate' masks the loads and stores of vectors, and {d.inner!r} is not vectorized; vectorize it, or "
        "take tail='guard'"
    )


def becomes_vectors(steps: tuple[Step, ...], split: Split) -> bool:
    """Whether the inner loop of a split, or part of it, is vectorized later."""
    inside, after = {split.inner}, False
    for step in steps:
        d = step.directive
        if d is split:
            after = True
        elif after and isinstance(d, Split) and d.loop in inside:
            inside = (inside - {d.loop}) | {d.outer, d.inner}
        elif after and d.verb == "vectorize" and getattr(d, "loop", "") in inside:
            return True
    return False


_RULES = {"guard": _guard, "round_up": _round_up, "shift": _shift, "predicate": _predicate}
assert set(_RULES) == set(TAILS)
