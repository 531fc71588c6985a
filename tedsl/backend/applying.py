"""Directives of the default scheduler to Halide's functions.

They were made for this very program, so nothing is checked here. Loops are found by name; those of an update that
stand for reduce axes, or come of splitting one, are Halide's RVars.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import halide as hl

from schedules import directives as d
from tedsl.backend.lower import Lowered
from tedsl.backend.lower_stage import Stage

__all__ = ["apply_directives"]

GUARD = hl.TailStrategy.GuardWithIf
PREDICATE = hl.TailStrategy.Predicate
EXACT = hl.TailStrategy.RoundUp  # never rounds: the factor divides


@dataclass
class _Loops:
    """The loops of a stage's two definitions, by name."""

    stage: Stage
    known: dict[str, dict[str, Any]] = field(default_factory=dict)
    vectors: set[tuple[str, str]] = field(default_factory=set)  # loops that become vectors, at once or when split

    def __post_init__(self) -> None:
        pure: dict[str, Any] = {v.name(): v for v in self.stage.dims}
        self.known["init"] = dict(pure)
        has_update = self.stage.func.num_update_definitions() > 0
        reduce = {v.name(): v for v in (*self.stage.axes.values(), *self.stage.reduce_axes.values())}
        self.known["body"] = {**pure, **reduce} if has_update else self.known["init"]
        self.definitions: dict[str, Any] = {"init": self.stage.func}
        self.definitions["body"] = self.stage.func.update(0) if has_update else self.stage.func

    def loop(self, definition: str, name: str) -> Any:
        return self.known[definition][name]

    def is_update(self, definition: str) -> bool:
        """Updates must not be rounded up; the guard of a factor that divides simplifies away."""
        return definition == "body" and self.stage.func.num_update_definitions() > 0

    def derived(self, definition: str, name: str, parents: Iterable[Any]) -> Any:
        made = hl.RVar(name) if any(isinstance(p, hl.RVar) for p in parents) else hl.Var(name)
        self.known[definition][name] = made
        return made


def apply_directives(lowered: Lowered, directives: Iterable[d.Directive]) -> set[str]:
    """Schedule the stages that directives name; their names."""
    directives = list(directives)
    stages = {stage.op.name: _Loops(stage) for stage in lowered.stages}
    named: set[str] = set()
    for directive in reversed(directives):
        if isinstance(directive, d.Vectorize) or (
            isinstance(directive, d.Split)
            and (directive.definition, directive.inner) in stages[directive.stage].vectors
        ):
            stages[directive.stage].vectors.add((directive.definition, directive.loop))
    for directive in directives:
        loops = stages.get(directive.stage)
        if loops is None:
            continue
        named.add(directive.stage)
        if isinstance(directive, d.LoopDirective):
            _APPLY[type(directive)](loops, directive)
        else:
            _on_stage(stages, loops, directive)
    return named


def _split(loops: _Loops, s: d.Split) -> None:
    old = loops.loop(s.definition, s.loop)
    outer, inner = (loops.derived(s.definition, n, [old]) for n in (s.outer, s.inner))
    # A guard around vectors would be taken apart lane by lane; a predicate masks them.
    tail = PREDICATE if (s.definition, s.inner) in loops.vectors else GUARD
    if s.exact and not loops.is_update(s.definition):
        tail = EXACT
    loops.definitions[s.definition].split(old, outer, inner, s.factor, tail)


def _fuse(loops: _Loops, f: d.Fuse) -> None:
    outer, inner = loops.loop(f.definition, f.outer), loops.loop(f.definition, f.inner)
    fused = loops.derived(f.definition, f.fused, [outer, inner])
    loops.definitions[f.definition].fuse(inner, outer, fused)


def _reorder(loops: _Loops, r: d.Reorder) -> None:
    if len(r.loops) > 1:
        loops.definitions[r.definition].reorder(*(loops.loop(r.definition, n) for n in reversed(r.loops)))


def _simple(verb: str) -> Any:
    def apply(loops: _Loops, directive: Any) -> None:
        getattr(loops.definitions[directive.definition], verb)(loops.loop(directive.definition, directive.loop))

    return apply


_APPLY: dict[type, Any] = {
    d.Split: _split, d.Fuse: _fuse, d.Reorder: _reorder,
    d.Vectorize: _simple("vectorize"), d.Unroll: _simple("unroll"), d.Parallel: _simple("parallel"),
}  # fmt: skip


def _on_stage(stages: dict[str, _Loops], loops: _Loops, directive: d.Directive) -> None:
    func = loops.stage.func
    if isinstance(directive, d.ComputeRoot):
        func.compute_root()
    elif isinstance(directive, d.ComputeAt):
        consumer = stages[directive.consumer]
        func.compute_at(consumer.stage.func, consumer.loop("body", directive.loop))
    elif isinstance(directive, d.StoreAt):
        consumer = stages[directive.consumer]
        func.store_at(consumer.stage.func, consumer.loop("body", directive.loop))
    elif isinstance(directive, d.BoundExtent):
        func.bound_extent(loops.loop("init", directive.axis), directive.extent)
    elif isinstance(directive, d.ReorderStorage):
        func.reorder_storage(*(loops.loop("init", n) for n in reversed(directive.axes)))
    elif isinstance(directive, d.StoreIn):
        func.store_in({"stack": hl.MemoryType.Stack, "heap": hl.MemoryType.Heap}[directive.memory])
    else:
        assert isinstance(directive, d.ComputeInline)
