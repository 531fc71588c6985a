"""The order in which the terms of a reduction are combined: which schedules change it, and so the last bits of results.

Without directives terms are combined in the order of the reduce axes, the last one fastest. Sums and products of
floats are rounded after each term, so another order gives other bits; integers, any, all, max and min are exact.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import takewhile

from schedules.directives import Directive, Fuse, Reorder, Specialize, Split
from schedules.loops import Level, base_of, is_rounded, nest_of
from schedules.plan import Plan
from schedules.program import ProgramStages
from tedsl.lang.extents import number
from tedsl.lang.tensor import Compute, Operation

__all__ = ["changed_order", "combines_alike", "regrouped_between"]

Walk = tuple[object, ...]
Extents = Mapping[str, int | None]  # how many iterations each loop has, where that is known


def changed_order(plan: Plan) -> tuple[str, ...]:
    """The stages whose terms are rounded in another order than that of their reduce axes."""
    return tuple(
        name
        for name, op in plan.program.stages.items()
        if name in plan.regrouped
        or (is_rounded(op) and any(_is_changed(plan, name, x) for x in plan.definitions(name) if base_of(x) == "body"))
    )


def combines_alike(a: Plan, b: Plan, written: Collection[str]) -> bool:
    """Whether two complete plans of one function, for other extents, surely combine all terms in the same order.

    So do those that change no order, and those that change it alike: with the same stages, each of them with the same
    terms in the same loops. `written`: the stages of the function as it is written.
    """
    changed = {*changed_order(a), *changed_order(b)}
    if any(not isinstance(plan.program.stages.get(name), Compute) for plan in (a, b) for name in changed):
        return False  # of a scatter or a scan the loops alone do not tell the order
    return _sums(a, changed, written) == _sums(b, changed, written)


def _sums(plan: Plan, changed: Iterable[str], written: Collection[str]) -> dict[str, object]:
    """What stages compute, and those that were made for them, as text, with their loops over terms."""
    told: dict[str, object] = {}
    names, pending = plan.program.names, [*changed]
    for name in pending:
        op = plan.program.stages[name]
        if name in told or not isinstance(op, Compute):
            continue
        axes = () if op.reduction is None else op.reduction.axes
        loops = [
            [(v.name, v.kind, v.known) for v in plan.nest(name, x).levels if _is_of_terms(v)]
            for x in plan.definitions(name)
            if base_of(x) == "body"
        ]
        told[name] = [str(e) for e in op.bodies], [str(a.extent) for a in axes], loops
        pending += [made for t in op.inputs if (made := names.get(t.op)) is not None and made not in written]
    return told


def regrouped_between(before: ProgramStages, after: ProgramStages) -> frozenset[str]:
    """The stages whose terms a rewrite of the program combines in groups, or in another order, as far as one can tell.

    A stage may have become one that reads the sum from a stage that was made for it.
    """
    known = {name: op for name, op in before.stages.items() if is_rounded(op) and isinstance(op, Compute)}
    return frozenset(
        name for name, op in known.items() if name in after.stages and _walks_of(name, before, after) != [_walk(op)]
    )


def _walks_of(stage: str, before: ProgramStages, after: ProgramStages) -> list[Walk]:
    """The walks through terms of a stage and of those that were made for it."""
    found, pending, seen = [], [stage], {stage}
    for name in pending:
        op = after.stages[name]
        found += [_walk(op)] * (isinstance(op, Compute) and is_rounded(op))
        read = {after.names[t.op] for t in op.inputs if t.op in after.names}
        fresh = sorted(read - seen - set(before.stages))
        seen.update(fresh)
        pending += fresh
    return found


def _walk(op: Operation) -> Walk:
    """The reduce axes of more than one iteration, told by names and extents, or by themselves where two are alike."""
    axes = op.reduction.axes if isinstance(op, Compute) and op.reduction is not None else ()
    told = [(a.name, id(a.extent)) for a in axes if number(a.extent) != 1]
    return tuple(told if len(set(told)) == len(told) else [("", id(a)) for a in axes])


def _is_changed(plan: Plan, stage: str, definition: str) -> bool:
    """Whether the loops over terms do not walk through these in the order of the axes, one after another."""
    nest = plan.nest(stage, definition)
    if any(_is_of_terms(v) and v.kind not in ("serial", "unrolled") for v in nest.levels):
        return True
    given = list(_directives(plan, stage, definition))
    if not any(isinstance(d, Reorder) for d in given):
        return False
    axes = [v for v in nest_of(stage, plan.operation(stage), base_of(definition)).levels if _is_of_terms(v)]
    known = _extents(axes, given)
    if 0 in known[0].values():
        return False
    order = [v.name for v in nest.levels if _is_of_terms(v) and known[-1][v.name] != 1]
    for d, before, after in zip(given[::-1], known[-2::-1], known[:0:-1], strict=True):
        undone = _undone(order, d, before, after)
        if undone is None:
            return True
        order = undone
    return order != [v.name for v in axes if known[0][v.name] != 1]


def _is_of_terms(level: Level) -> bool:
    return level.carried not in ("free", "within")


def _directives(plan: Plan, stage: str, definition: str) -> Iterator[Directive]:
    """What was said of the loops of a definition; of a case, what was said before it became one as well."""
    base = base_of(definition)
    if base != definition:
        said = (step.directive for step in plan.loops.get((stage, base), ()))
        yield from takewhile(lambda d: not (isinstance(d, Specialize) and d.case == definition), said)
    yield from (step.directive for step in plan.loops.get((stage, definition), ()))


def _extents(axes: Sequence[Level], given: Sequence[Directive]) -> list[Extents]:
    """The iterations of each loop over terms, at first and after each directive."""
    known: list[Extents] = [{v.name: v.known for v in axes}]
    for d in given:
        now = dict(known[-1])
        if isinstance(d, Split) and d.loop in now:
            whole = now.pop(d.loop)
            now[d.outer] = None if whole is None or d.step is None else -(-whole // d.step)
            now[d.inner] = d.step if whole is None or d.step is None else min(whole, d.step)
        elif isinstance(d, Fuse) and d.outer in now:
            outer, inner = now.pop(d.outer), now.pop(d.inner)
            now[d.fused] = None if outer is None or inner is None else outer * inner
        known.append(now)
    return known


def _undone(order: list[str], d: Directive, before: Extents, after: Extents) -> list[str] | None:
    """The order of the loops before a directive that made loops; None where these do not follow one another.

    Loops of one iteration are left out: wherever they stand, nothing changes.
    """
    parts: tuple[str, ...]
    whole: tuple[str, ...]
    if isinstance(d, Split) and d.loop in before:
        parts, whole = (d.outer, d.inner), (d.loop,)
    elif isinstance(d, Fuse) and d.outer in before:
        parts, whole = (d.fused,), (d.outer, d.inner)
    else:
        return order
    present = [name for name in parts if after[name] != 1]
    if not present:
        return order
    at = order.index(present[0])
    if order[at : at + len(present)] != present:
        return None
    return order[:at] + [name for name in whole if before[name] != 1] + order[at + len(present) :]
