"""One compiled form of a program: for arrays whose last axis is contiguous or not, and for how outputs are written.

A kernel compiles the forms that its calls need, when they first need them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace

from tedsl.analysis.hazards import Hazard, hazard_of
from tedsl.analysis.pointwise import Array
from tedsl.analysis.sizes import evaluate_extent
from tedsl.backend.arguments.blocks import Function
from tedsl.backend.assembly.numbering import numbered_anew
from tedsl.backend.compiling.disk_cache import Kept, keep, key_of, recall
from tedsl.backend.compiling.forms import DENSE
from tedsl.backend.compiling.objects import compile_outputs
from tedsl.backend.compiling.variant_source import VariantSource
from tedsl.backend.compiling.ways import first_way
from tedsl.backend.host.phases import Spent, counting
from tedsl.backend.lowering.natives import is_native
from tedsl.backend.lowering.pipeline import Lowered
from tedsl.backend.scheduling.halide_words import loop_nest_text
from tedsl.lang.collecting import collected_later
from tedsl.lang.dataclass import dataclass
from tedsl.lang.expr import Expr, Var
from tedsl.lang.locks import cached_property
from tedsl.lang.tensor import Tensor

__all__ = ["Variant", "compile_variant", "loaded_variant"]


@dataclass(eq=False)
class Variant:
    """A compiled program and the order of its arguments."""

    origin: VariantSource
    kept: Kept
    function: Function
    compile_ms: float
    phases: Spent = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    hazards: dict[tuple[int, Tensor], Hazard | None] = field(default_factory=dict)

    @cached_property
    def lowered(self) -> Lowered:
        """The program as Halide sees it; made anew, when it is looked at, where the code came from the disk."""
        return self.origin.lowered

    @property
    def added(self) -> tuple[int, ...]:
        """Positions of the outputs whose former values are arguments, after the inputs."""
        return self.origin.added

    @property
    def order(self) -> tuple[int, ...]:
        """Positions of the outputs in the order of the arguments."""
        return self.kept.order

    @cached_property
    def sizes(self) -> tuple[Expr, ...]:
        """The symbolic extents that are passed by value, as those of the program."""
        known = list(self.origin.sizes.values()) if self.kept.sizes else []
        return tuple(known[k] for k in self.kept.sizes)

    @property
    def has_checks(self) -> bool:
        """Whether it checks indices or numbers when it runs."""
        return self.kept.checks or bool(self.kept.finite)

    def source(self, kind: str) -> str:
        """What the compiler made of it, as text."""
        if kind not in self.texts:
            lowered = self.lowered
            parts = lowered.pipeline, lowered.arguments, self.origin.program.name, self.kept.target
            text = compile_outputs(*parts, [kind], self.origin.streams(lowered))[kind]
            self.texts[kind] = numbered_anew(text, kind, self.origin.names)
        return self.texts[kind]

    def arguments(
        self, inputs: Sequence[Array], outputs: Mapping[int, Array], previous: Mapping[int, Array]
    ) -> list[Array]:
        """The arrays of a call in the order in which the function takes them."""
        return [*inputs, *(previous[p] for p in self.added), *(outputs[p] for p in self.order)]

    def scalars(self, sizes: Mapping[Var, int]) -> list[int]:
        """The numbers passed by value."""
        return [evaluate_extent(e, sizes) for e in self.sizes] + [0] * self.kept.zero

    def hazard(self, position: int, source: Tensor) -> Hazard | None:
        """Why the output at `position` cannot be written into the memory of an input; None where it provably can."""
        key = (position, source)
        if key not in self.hazards:
            inputs, _ = self.origin.seen
            seen = dict(zip(self.origin.program.inputs, inputs, strict=True)).get(source, source)
            found = self._hazard(self.lowered, position, seen)
            if found is not None and seen is not source:  # told in the axes of the user
                apart = replace(self.origin, form=replace(self.origin.form, layout=DENSE))
                found = self._hazard(apart.lowered, position, source) or found
            self.hazards[key] = found
        return self.hazards[key]

    def _hazard(self, lowered: Lowered, position: int, source: Tensor) -> Hazard | None:
        if source not in lowered.inputs:
            return None
        output = lowered.outputs[self.origin.wanted.index(position)]
        if is_native(output.op):
            return Hazard(output.op, source.name, "all of which it needs until it ends")
        if self.origin.is_flattened:
            why = "in vectors that go on from one row into the next"  # not so where it is stored in place
            return Hazard(output.op, source.name, why, in_turn=True)
        if lowered.nesting is None:
            return Hazard(output.op, source.name, "in an order that only the autoscheduler knows")
        own = any(r.stage is not None and r.stage.op is output.op for r in lowered.results)
        return hazard_of(list(lowered.inputs), lowered.outputs, output, source, lowered.nesting, own=own)

    @cached_property
    def loop_nest(self) -> str:
        """The loops, as Halide prints them."""
        return loop_nest_text(result.func for result in self.lowered.results)


@dataclass(eq=False)
class LoadedVariant(Variant):
    """One of which the code was found, but not how it was scheduled."""

    whole: Callable[[], Variant] = field(kw_only=True)

    @cached_property
    def lowered(self) -> Lowered:
        """The program as Halide sees it, from somebody who schedules it."""
        return self.whole().lowered


def compile_variant(source: VariantSource) -> Variant:
    """Lower, schedule and compile; or load what was compiled before, in this process or another."""
    program, form = source.program, source.form
    with counting() as phases, collected_later():
        begin, key = time.perf_counter(), key_of(program, form)
        kept = recall(key)
        if kept is not None:
            origin = replace(source, is_careful=True) if kept.careful else source
            return Variant(origin, kept, origin.loaded(kept), _since(begin), phases)
        made = first_way(source)
        if made.way.is_kept:
            keep(key, made.kept)
        variant = Variant(made.origin, made.kept, made.function, _since(begin), phases)
        variant.lowered = made.lowered
        return variant


def _since(begin: float) -> float:
    """Milliseconds."""
    return (time.perf_counter() - begin) * 1e3


def loaded_variant(origin: VariantSource, key: str | None, whole: Callable[[], Variant]) -> Variant:
    """What was kept under a key; where nothing is, what `whole` makes, which knows how to schedule the program."""
    with counting() as phases:
        begin = time.perf_counter()
        kept = recall(key)
        if kept is None:
            return whole()
        return LoadedVariant(origin, kept, origin.loaded(kept), _since(begin), phases, whole=whole)
