"""A complete plan cut at tensors that it stores anyway, into parts that can be compiled and run one after another.

A part is the loop nests of some stages at the root, with all that is inlined or computed inside them. What passes
between parts are tensors of the user's program that the plan stores at the root, so that the cut decides nothing about
the schedule, and each part can be said in the user's terms. Stages of the scheduler's own, such as packed panels, go
with the nests that read them, as does what directives lay out in memory in a way of its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace

from schedules.cutting.grouping import Groups
from schedules.cutting.repetition import copied_by
from schedules.directives import NAMING, Directive
from schedules.placing.placement import placed
from schedules.placing.places import Placement
from schedules.plan import Plan
from schedules.program import ProgramStages
from tedsl.analysis.places import are_places
from tedsl.lang.dataclass import dataclass
from tedsl.lang.locks import cached_property
from tedsl.lang.structure import structural_key
from tedsl.lang.tensor import Placeholder, Tensor
from tedsl.lang.traverse import operations_between

__all__ = ["PlanPart", "parts_of"]


@dataclass(frozen=True, eq=False)
class PlanPart:
    """A complete plan for some stages, from tensors of its program to others; `users` are those of the user's program
    that these stand for."""

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    plan: Plan
    users: Mapping[Tensor, Tensor]

    @cached_property
    def digest(self) -> str:
        """Equal for parts that compute the same by the same loops, whatever their tensors are called."""
        stages = self.plan.program.stages
        numbers = {name: f"stage{k}" for k, name in enumerate(stages)}
        numbers.update((t.name, f"input{k}") for k, t in enumerate(self.inputs) if t.name not in numbers)
        lines = [structural_key(self.outputs, self.inputs, between=True)]
        for name, op in stages.items():
            steps = [s for d in self.plan.definitions(name) for s in self.plan.loops.get((name, d), ())]
            steps += [m[name] for m in (self.plan.places, self.plan.stores) if name in m]
            steps += self.plan.storage.get(name, ())
            lines.append(f"{numbers[name]} {are_places(op)} {name in self.plan.finite}")
            lines += [_anonymous(s.directive, numbers) for s in steps]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()

    def wanting(self, outputs: Sequence[Tensor]) -> Plan:
        """The plan for some of the outputs."""
        return self.plan.over(_between(self.plan.program, self.inputs, outputs))

    def given(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The user's tensors for some of the inputs and outputs."""
        return [self.users[t] for t in tensors]

    @cached_property
    def stored(self) -> tuple[Tensor, ...]:
        """What it keeps whole in memory of its own while it runs."""
        places, stages = placed(self.plan), self.plan.program.stages
        at_root = [name for name, p in places.items() if p.kind == "root" or p.store == ("", "")]
        return tuple(t for name in at_root for t in stages[name].outputs if t not in set(self.outputs))

    @property
    def is_closed(self) -> bool:
        """Whether the user's tensors for the outputs are computed from those for the inputs and from nothing else."""
        between = operations_between(self.given(self.inputs), self.given(self.outputs))
        return not any(isinstance(op, Placeholder) for op in between)


def _anonymous(directive: Directive, numbers: Mapping[str, str]) -> str:
    """A directive with numbers for stages."""
    parts = [numbers.get(v, v) if field in NAMING else v for field, v in vars(directive).items()]
    return f"{type(directive).__name__} {parts!r}"


def _between(program: ProgramStages, inputs: Iterable[Tensor], outputs: Sequence[Tensor]) -> ProgramStages:
    """The stages that compute the outputs from the inputs."""
    between = [op for op in operations_between(inputs, outputs) if op in program.places]
    return ProgramStages(
        tuple(outputs), {program.names[op]: op for op in sorted(between, key=program.places.__getitem__)}, {}
    )


def parts_of(
    plan: Plan, inputs: Sequence[Tensor], given: Mapping[Tensor, Tensor], least: int, *, joined: bool,
    is_over: bool,
) -> list[PlanPart]:  # fmt: skip
    """The parts of a complete plan from inputs, each after those whose results it reads; none if they are fewer than
    `least`. Small results that belong together may be `joined` in one part, but for those that may be written over what
    is given (`is_over`).

    `given` finds the user's tensors for those of the plan's program, inputs and outputs among them.
    """
    stages, places = plan.program.stages, placed(plan, checked=False)  # each part is checked when it is compiled
    nests, given = _nests_around(plan, places), _with_copied(plan, given)
    cut = Groups(plan, places, nests, given, is_over=is_over)
    if len(cut) < least:
        return []
    if joined:
        cut.join_small()
    groups = cut.of
    home = {t: groups[name] for name in groups for t in stages[name].outputs}
    results: dict[str, dict[Tensor, None]] = {group: {} for group in groups.values()}
    for name, op in stages.items():
        for tensor in (t for t in op.inputs if t in home):
            if any(groups[n] != home[tensor] for n in nests[name]):
                results[home[tensor]][tensor] = None
    for tensor in plan.program.outputs:
        if tensor in home:
            results[home[tensor]][tensor] = None
    own: dict[str, list[Tensor]] = {group: [] for group in results}
    for tensor, group in home.items():
        own[group].append(tensor)
    known, parts = {*inputs, *home}, []
    for group in cut.in_order():
        known.difference_update(own[group])
        parts.append(_part(plan, known, tuple(results[group]), given))
        known.update(own[group])
    return parts


def _part(plan: Plan, known: Set[Tensor], outputs: tuple[Tensor, ...], given: Mapping[Tensor, Tensor]) -> PlanPart:
    read = {t: None for op in operations_between(known, outputs) for t in op.inputs if t in known}
    own = _between(plan.program, list(read), outputs)
    mine = _restricted(plan, own.stages).over(own)
    return PlanPart(tuple(read), outputs, mine, {t: given[t] for t in (*read, *outputs)})


def _with_copied(plan: Plan, given: Mapping[Tensor, Tensor]) -> dict[Tensor, Tensor]:
    """What a stage copies element by element stands for the same tensor of the user's."""
    found = dict(given)
    for op in reversed(list(plan.program.stages.values())):
        source = copied_by(op)
        if source is not None and op.output() in found:
            found.setdefault(source, found[op.output()])
    return found


def _restricted(plan: Plan, names: Iterable[str]) -> Plan:
    """What a plan says of some stages, found by their names: there may be very many others."""
    listed = dict.fromkeys(names)
    keys = [(name, definition) for name in listed for definition in plan.definitions(name)]
    return replace(
        plan,
        nests={key: plan.nests[key] for key in keys if key in plan.nests},
        loops={key: plan.loops[key] for key in keys if key in plan.loops},
        places={name: plan.places[name] for name in listed if name in plan.places},
        stores={name: plan.stores[name] for name in listed if name in plan.stores},
        storage={name: plan.storage[name] for name in listed if name in plan.storage},
        finite=tuple(name for name in plan.finite if name in listed),
    )


def _nests_around(plan: Plan, places: Mapping[str, Placement]) -> dict[str, frozenset[str]]:
    """The stages at the root in whose loops each stage is computed."""
    readers = plan.program.readers
    found: dict[str, frozenset[str]] = {}
    for name in reversed(list(plan.program.stages)):
        place = places[name]
        if place.kind == "inline":
            found[name] = frozenset().union(*(found[r] for r in readers[name]))
        else:
            found[name] = found[place.consumer] if place.kind == "at" else frozenset([name])
    return found
