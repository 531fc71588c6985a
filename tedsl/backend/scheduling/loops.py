"""The loops of a stage as Halide knows them, under the names that directives give them."""

from __future__ import annotations

from typing import Any

import halide as hl

from schedules import directives as d
from schedules.loops import base_of, definitions_of, nest_of
from schedules.plan import Plan
from tedsl.backend.lowering.names import identifier
from tedsl.backend.lowering.stages import Stage
from tedsl.lang.expr import Axis

__all__ = ["Loops"]


class Loops:
    """The loops of a stage's definitions as Halide's variables, by name."""

    def __init__(self, plan: Plan, name: str, stage: Stage, width: int, *, vectors: bool = True) -> None:
        self.name, self.stage, self.func = name, stage, stage.func
        self.vectors = vectors  # or else the loops that would be vectors are written out
        self.writes_once = False  # each of its elements must be stored once
        self.definitions: dict[str, Any] = {}
        self.tiles: dict[str, Any] = {}  # of the loops that lowering split, the inner ones
        self.known: dict[str, dict[str, Any]] = {}
        self.variables = _named(stage)
        own = {v.name() for v in (*stage.dims, *self.variables.values())}
        self.used = {"init": set(own), "body": set(own)}
        self.masked = _masked(plan, name, width) if vectors else set()
        op = plan.program.stages[name]
        for definition in definitions_of(op):
            self.definitions[definition] = self._definition(definition)
            levels = nest_of(name, op, definition).levels
            self.known[definition] = {v.name: self._variable(next(iter(v.origin))) for v in levels}
            self.tiles |= {
                v.name: stage.within[a] for v in levels for a in v.origin if isinstance(a, Axis) and a in stage.within
            }
        self.whole = {v: dict(names) for v, names in self.known.items()}  # before loops are split

    def _definition(self, definition: str) -> Any:
        """What the loops of a definition are said of."""
        if self.stage.pieces:
            return _Several([self.func.update(k) for k in range(len(self.stage.pieces))])
        return self.func.update(0) if self.is_update(definition) else self.func

    def _variable(self, origin: Axis | int) -> Any:
        if isinstance(origin, int):
            return self.stage.dims[origin]
        return self.variables[origin]

    def loop(self, definition: str, name: str) -> Any:
        return self.known[definition][name]

    def derived(self, definition: str, name: str, parent: Any) -> Any:
        """A new loop, of the same sort as the one that it comes from."""
        base, used = identifier(name), self.used[definition]
        free = next(n for n in (base, *(f"{base}_{k}" for k in range(len(used) + 1))) if n not in used)
        used.add(free)
        return hl.RVar(free) if isinstance(parent, hl.RVar) else hl.Var(free)

    def is_update(self, definition: str) -> bool:
        """Updates must not be rounded up; the guard of a factor that divides simplifies away."""
        return base_of(definition) == "body" and self.stage.is_update

    def add_case(self, base: str, case: str, condition: Any) -> None:
        """The loops under a condition, which begin as those of the definition are now."""
        self.definitions[case] = self.definitions[base].specialize(condition)
        self.known[case], self.used[case] = dict(self.known[base]), set(self.used[base])

    def anywhere(self, name: str) -> Any:
        """A loop by name: that of the body, if both definitions have it."""
        return next(self.known[x][name] for x in ("body", "init") if name in self.known.get(x, {}))


class _Several:
    """Definitions with loops of the same names: what is said of them is said of each."""

    def __init__(self, parts: list[Any]) -> None:
        self._parts = parts

    def __getattr__(self, verb: str) -> Any:
        def said(*arguments: Any) -> _Several:
            return _Several([getattr(part, verb)(*arguments) for part in self._parts])

        return said


def _named(stage: Stage) -> dict[Axis, Any]:
    """The variables of a stage, those of its update under the names of the axes."""
    found: dict[Axis, Any] = {**stage.axes, **stage.reduce_axes}
    taken = {v.name() for v in stage.dims}
    loops = {axis: loop for axis, loop in found.items() if isinstance(loop, hl.RVar)}
    for axis, loop in loops.items():
        base = identifier(axis.name)
        free = next(n for n in (base, *(f"{base}{k}" for k in range(1, len(taken) + 2))) if n not in taken)
        taken.add(free)
        found[axis] = hl.RVar(free)
        if not stage.pieces:
            stage.func.update(0).rename(loop, found[axis])
    for k, piece in enumerate(stage.pieces):  # each element is in one of them, and stored once
        update = stage.func.update(k).allow_race_conditions()
        for axis, loop in piece.items():
            if isinstance(loop, hl.RVar):
                update.rename(loop, found[axis])
    for loop in stage.written_out:
        stage.func.update(0).unroll(loop)
    if stage.is_update and not loops and not stage.pieces:
        stage.func.update(0).unscheduled()  # else Halide prints a warning that nobody scheduled it
    return found


def _masked(plan: Plan, name: str, width: int) -> set[int]:
    """The splits whose inner loop becomes vectors, at once or when it is split again, by identity.

    Of vectors of `width` bytes, the hardware's. Where one element is left over, LLVM would end the process: it has no
    masked stores of one.
    """
    found: set[int] = set()
    op = plan.program.stages[name]
    sizes = {t.dtype.itemsize for t in (*op.outputs, *op.inputs)}
    for definition in plan.definitions(name):
        lanes = [v.known or 1 for v in plan.nest(name, definition).levels if v.kind == "vectorized"]
        if any(n * size > width and n * size % width == size for n in lanes for size in sizes):
            continue
        vectors: set[str] = set()
        for step in reversed(plan.loops.get((name, definition), ())):
            s = step.directive
            if isinstance(s, d.Vectorize):
                vectors.add(s.loop)
            elif isinstance(s, d.Split):
                inside = s.inner in vectors
                vectors -= {s.outer, s.inner}
                if inside:
                    found.add(id(s))
                    vectors.add(s.loop)
    return found
