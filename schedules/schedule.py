"""`te.Schedule`: how a program is computed, apart from what it computes.

`s[C]` is a view of one stage whose methods are the directives. Each is checked when it is given; whatever they say, the
result of the program is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from schedules.automatic import advanced, machine_for, rewritten_loop, vectors_by_default, why_not_built
from schedules.conditions import at_first
from schedules.directives import (
    Auto,
    Directive,
    check_fields,
)
from schedules.loops import one_of
from schedules.other_axes import on_other_axes
from schedules.plan import Plan, Step
from schedules.program import program_of
from schedules.stage_view import StageView
from schedules.undo import without_directive, without_stage, without_verb
from schedules.written import store
from schedules.written.code import schedule_code
from schedules.written.order import changed_order
from schedules.written.text import difference, left_of, schedule_text
from tedsl.lang.errors import ScheduleError, user_location
from tedsl.lang.keywords import spoken
from tedsl.lang.rich import Rich
from tedsl.lang.tensor import Placeholder, Tensor
from tedsl.lang.traverse import stages_of

__all__ = ["Schedule"]

# Kernels are made above schedules, so what runs two of them is asked by name, and when somebody asks.
COMPARISON = "tedsl.backend.comparison"


@spoken("s", made="te.Schedule")
class Schedule(Rich):
    """How `outputs` are computed; stages without directives get the default treatment."""

    def __init__(self, outputs: Tensor | Sequence[Tensor]) -> None:
        listed = tuple(outputs) if isinstance(outputs, (tuple, list)) else (outputs,)
        for tensor in listed:
            if not isinstance(tensor, Tensor):
                raise TypeError(
                    f"te.Schedule at {user_location()}: expected a tensor or a list of tensors, found "
                    f"{type(tensor).__name__} ({tensor!r:.40})"
                )
        if not listed:
            raise ValueError(f"te.Schedule at {user_location()}: there are no outputs; name at least one tensor")
        self.outputs = listed
        self.steps: tuple[Step, ...] = ()
        self.plan = Plan(program_of(listed).rewritten({}, {}, at_first))
        if not self.plan.program.stages:
            raise ScheduleError(
                f"te.Schedule at {user_location()}: there is nothing to schedule: the outputs are inputs themselves"
            )

    if not TYPE_CHECKING:  # which would take every name for one that there is

        def __getattr__(self, name: str) -> NoReturn:
            told = _meant(name, vars(self).get("plan")) if not name.startswith("_") else ""
            # With name and obj set, Python itself adds "Did you mean: 'stages'?" to the traceback.
            raise AttributeError(f"a schedule has no attribute {name!r}{told}", name=name, obj=self)

    @property
    def directives(self) -> tuple[Directive, ...]:
        """All directives in the order in which they were given."""
        return tuple(step.directive for step in self.steps)

    @property
    def stages(self) -> list[str]:
        """The names of the stages, each after those that it reads."""
        return list(self.plan.program.stages)

    @property
    def regrouped(self) -> tuple[str, ...]:
        """The stages whose terms are added or multiplied in another order than that of their reduction axes.

        Floats are rounded after each term, so such a schedule gives other bits; all others keep them. Stages without
        directives are left to the default schedule, of which `s.copy().auto().regrouped` tells.
        """
        return changed_order(self.plan)

    def __getitem__(self, key: Any) -> StageView:
        """The stage of a tensor, or of a name."""
        return StageView(self, self._name(key), "body")

    def __iter__(self) -> Iterator[StageView]:
        return (self[name] for name in self.stages)

    def __contains__(self, key: object) -> bool:
        try:
            self._name(key)
        except (ScheduleError, TypeError):
            return False
        return True

    def _name(self, key: Any) -> str:
        if isinstance(key, StageView):
            return self._own(key)
        program = self.plan.program
        if isinstance(key, Tensor):
            name = program.name_of(key)
            if name is not None:
                return name
            what = "an input" if isinstance(key.op, Placeholder) else "not part of the scheduled program"
            other = f"; {key.name!r} there is another tensor, at {self._place_of(key.name)}" if key.name in self else ""
            raise ScheduleError(
                f"s[{key.name}], at {user_location()}: {key!r} is {what} and has no loops; "
                f"stages: {', '.join(self.stages)}{other}"
            )
        if not isinstance(key, str):
            raise TypeError(f"s[...] at {user_location()}: expected a tensor or a name, found {type(key).__name__}")
        for name, op in program.stages.items():
            if key in (t.name for t in op.outputs) and key not in program.stages:
                return name
        try:
            return one_of(key, program.stages, "stage", "stages")
        except ScheduleError as error:
            raise ScheduleError(f"s[{key!r}], at {user_location()}: {error}") from None

    def _own(self, view: StageView) -> str:
        """The name of a stage of this schedule, or of one for the same outputs; others may know other stages by it."""
        theirs = view.schedule.outputs
        if len(theirs) == len(self.outputs) and all(a is b for a, b in zip(theirs, self.outputs, strict=True)):
            return view.name
        raise ScheduleError(
            f"at {user_location()}: {view!r} belongs to another schedule, of {', '.join(t.name for t in theirs)}; "
            f"take the stage of this one, of {', '.join(t.name for t in self.outputs)}"
        )

    def _place_of(self, name: str) -> str:
        return self.plan.program.stages[self._name(name)].where

    def add(self, *directives: Directive, where: str | None = None, call: str = "") -> None:
        """Add directives; either all of them, or none where one is refused. `call`: what the user wrote."""
        place = where or user_location()
        try:
            for directive in directives:
                check_fields(directive)
        except TypeError as error:
            raise TypeError(f"at {place}: {error}") from None
        plan, steps = self.plan, list(self.steps)
        for directive in directives:
            try:
                plan, made = advanced(plan, Step(directive, place, call))
            except ScheduleError as error:
                told = rewritten_loop(directive, plan, steps, self.outputs)
                if not told:
                    raise
                raise ScheduleError(f"{error}; {told}") from None
            steps += made
        self.plan, self.steps = plan, tuple(steps)

    def auto(
        self,
        scheduler: str = "default",
        target: str = "host",
        *,
        loops: bool = True,
        machine: Mapping[str, Any] | None = None,
    ) -> Schedule:
        """Schedule all stages without directives: by "default", which can be read and changed, or by an autoscheduler.

        The default schedule is made for the vectors and caches of `target`, a target of `te.build`, or of a `machine`
        given in figures. It becomes directives: `s.code()` lists them, `s.without` takes one back. With `loops=False`
        it makes its stages only, such as packed panels, and leaves all loops as they are written. Halide's
        autoschedulers, "mullapudi2016", "adams2019", "li2018" and "anderson2021" (for GPUs), schedule everything
        themselves when a kernel is built, for its target; they need a number for every extent.

        Without a schedule, or with nothing but `auto()` in it, te.build may rewrite the program first, as no directive
        can: axes that all stages walk together become one axis. `kernel.loop_nest()` shows what runs.
        """
        if not isinstance(scheduler, str):
            raise TypeError(f"s.auto at {user_location()}: expected the name of a scheduler, found {scheduler!r:.40}")
        figures: Mapping[str, Any] = {}
        if scheduler == "default":
            figures = machine_for(target).to_json() if machine is None else machine
        self.add(Auto(scheduler=scheduler, machine=tuple(figures.items()), loops=loops))
        return self

    def code(self, name: str = "s") -> str:
        """The schedule as Python: directives that can be read, edited and run where the outputs have their names."""
        return schedule_code(self.outputs, self.steps, name, self.regrouped)

    def without(self, what: Any) -> Schedule:
        """A schedule without a directive (one of `s.directives`, or its verb), or without all those of a stage.

        Of equal directives the last one goes; of a verb, all. What rewrites of the stage added goes with them.
        """
        try:
            rest = self._rest(what)
        except ScheduleError as error:
            raise ScheduleError(f"s.without, at {user_location()}: {error}") from None
        other = Schedule(self.outputs)
        try:
            for step in rest:
                other.plan, _ = advanced(other.plan, replace(step, call=""))  # of several, a message names the one
        except ScheduleError as error:
            raise ScheduleError(
                f"s.without, at {user_location()}: a later directive needs it; take that one back first: {error}"
            ) from None
        other.steps = tuple(rest)
        return other

    def _rest(self, what: Any) -> list[Step]:
        if isinstance(what, Directive):
            return without_directive(self.steps, what)
        if isinstance(what, str) and what not in self:
            return without_verb(self.steps, what)
        return without_stage(self.steps, self._name(what))

    def apply(self, stage: Any, recipe: Callable[[StageView], object]) -> Schedule:
        """Apply a recipe to a stage: a function that gives directives to `s[stage]`."""
        recipe(self[stage])
        return self

    def copy(self) -> Schedule:
        """A schedule that starts with the same directives."""
        other = Schedule(self.outputs)
        other.steps, other.plan = self.steps, self.plan
        return other

    def __copy__(self) -> Schedule:
        return self.copy()

    def __deepcopy__(self, memo: object) -> Schedule:
        return self.copy()  # tensors and directives never change, and directives name the tensors of this program

    def save(self, path: str | Path) -> None:
        """Write the directives, and what tells the program, as JSON."""
        Path(path).write_text(store.dumps(self.outputs, self.directives))

    @classmethod
    def load(cls, path: str | Path, outputs: Tensor | Sequence[Tensor]) -> Schedule:
        """The schedule that was saved, for the same program; ScheduleError with the difference if it is another one."""
        schedule = cls(outputs)
        for number, directive in enumerate(store.loads(Path(path).read_bytes(), schedule.outputs, str(path))):
            schedule.add(directive, where=f"directives[{number}] of {str(path)!r}, loaded at {user_location()}")
        return schedule

    def diff(self, other: Schedule | None = None) -> str:
        """How the loops differ from those of another schedule; without one, from what they were before any directive.

        Where `auto("default")` was asked for, that is the default schedule.
        """
        if other is not None and not isinstance(other, Schedule):
            raise TypeError(f"s.diff at {user_location()}: expected a te.Schedule, found {type(other).__name__}")
        return difference(self._start() if other is None else other.plan, self.plan, is_start=other is None)

    def compare(self, other: Schedule, feeds: Mapping[Any, Any], **options: Any) -> Any:
        """Run both in turns on the same arrays: their seconds, results that differ, and loops that differ.

        `feeds` are the arrays by their inputs or by names of these, `{image: picture}`, as `te.evaluate` takes them.
        `options` are those of `te.build`, and `sizes=` for extents that no input carries.
        """
        if not isinstance(other, Schedule):
            raise TypeError(f"s.compare at {user_location()}: expected a te.Schedule, found {type(other).__name__}")
        if [*map(id, other.outputs)] != [*map(id, self.outputs)]:
            raise ScheduleError(
                f"s.compare, at {user_location()}: expected a schedule of the same tensors, "
                f"{', '.join(t.name for t in self.outputs)}, found one of {', '.join(t.name for t in other.outputs)}"
            )
        return import_module(COMPARISON).compare_schedules(self, other, feeds, **options)

    def _start(self) -> Plan:
        begin = Schedule(self.outputs)
        begin.add(*[replace(d, loops=True) for d in self.directives if isinstance(d, Auto)][:1])
        return begin.plan

    def __str__(self) -> str:
        """The loops, stage after stage; which stages a build gives loops of its own, and what would keep it from it."""
        scheduler = self.plan.automatic
        if scheduler:
            return f"{scheduler} schedules this when a kernel is built:\n{schedule_text(self.plan)}"
        left, reason = left_of(self.plan), why_not_built(self.plan)
        lines = [schedule_text(self.plan)]
        if left:
            lines.append(f"left to the default schedule: {', '.join(left)} (.auto() shows its loops)")
        vectors = [] if reason else vectors_by_default(self.plan)
        if vectors:
            lines.append(f"vectors by default: {', '.join(vectors)}")
        if reason:
            lines.append(f"cannot be built yet: {reason}")
        elif not left and self._is_free():
            lines.append("te.build may make one axis of several before: kernel.loop_nest() shows the loops that run")
        return "\n".join(lines)

    def _is_free(self) -> bool:
        """Whether it says no more than the default schedule for a processor, of a program that has other axes, too."""
        first = self.directives[0]
        if not isinstance(first, Auto) or dict(first.machine).get("gpu"):
            return False
        inputs = [op.output(0) for op in stages_of(self.outputs) if isinstance(op, Placeholder)]
        if on_other_axes(inputs, self.outputs) is None:
            return False
        return Schedule(self.outputs).auto(machine=dict(first.machine)).directives == self.directives

    def __repr__(self) -> str:
        return f"Schedule of {', '.join(t.name for t in self.outputs)} with {len(self.steps)} directives"


def _meant(name: str, plan: Plan | None) -> str:
    """What is written for an attribute that schedules do not have: a stage, or a directive, which stages have."""
    stages = plan.program.stages if plan is not None else ()
    if name in stages:
        return f"; the stage is s[{name!r}]"
    if hasattr(StageView, name):
        example = repr(next(reversed(tuple(stages)), "stage"))
        return f"; directives are of one stage: s[{example}].{name}(...)"
    return "; print(s) shows its loops" if "loop" in name or "nest" in name or name in ("show", "print") else ""
