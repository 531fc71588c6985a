"""What one compiled form is made from: the program, the form, and how it becomes Halide's functions, then code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace

import halide as hl

from schedules.merging import Merging
from tedsl.analysis.sizes import known_shape
from tedsl.analysis.work import flops_of
from tedsl.backend.arguments.blocks import ArgSpec, CompiledFunction, Function
from tedsl.backend.arguments.layouts import row_length
from tedsl.backend.assembly.allocation_failures import GuardError
from tedsl.backend.compiling.accesses import stays_within, touching
from tedsl.backend.compiling.alternatives import first_working
from tedsl.backend.compiling.buffer_checks import are_proven, have_places
from tedsl.backend.compiling.compilation import Compilation
from tedsl.backend.compiling.disk_cache import Kept
from tedsl.backend.compiling.forms import COMPACT, MERGED, Form
from tedsl.backend.compiling.gpu_limits import check_launches
from tedsl.backend.compiling.jit import JitFunction
from tedsl.backend.compiling.objects import UNCHECKED, ObjectCode, compile_object, compile_outputs, load
from tedsl.backend.compiling.strides import fix_last_strides, fix_strides, free_strides
from tedsl.backend.host.loaders import loads_objects
from tedsl.backend.host.phases import phase
from tedsl.backend.host.processors import features_of
from tedsl.backend.host.targets import Target, has_device, machine_of
from tedsl.backend.lowering.expressions import careful_division
from tedsl.backend.lowering.finite_checks import moved_from
from tedsl.backend.lowering.pipeline import Lowered
from tedsl.backend.lowering.stages import Arrays
from tedsl.backend.scalars.types import for_halves, for_opencl
from tedsl.backend.scheduling.halide_words import schedule_refused
from tedsl.backend.scheduling.partition import keep_all_whole
from tedsl.lang.dataclass import dataclass
from tedsl.lang.expr import Expr, Var
from tedsl.lang.locks import cached_property
from tedsl.lang.tensor import Tensor
from tedsl.lang.traverse import operations_between

__all__ = ["VariantSource"]

MOST_PROVEN = 48  # operations: with more of them the whole text of a kernel costs more than its checks
LONG = 1 << 23  # flops: some 100 us, of which checks take less than one
HALVES = frozenset({"f16c", "arm_fp16"})  # Halide's features of processors that round to float16
LARGE = 4  # second caches of a core that a result must fill to be written past them
OF_CORES = frozenset({"avx512_zen4"})  # processors whose third cache is that of a few cores, and as fast as it is large


def least_streamed(target: Target) -> int:
    """Bytes of a result that is written past the caches, since they would not hold it until it is read."""
    machine = machine_of(target)
    least = LARGE * machine.l2
    return least if OF_CORES.isdisjoint(features_of(target.text)) else max(least, machine.l3 // 2)


@dataclass(frozen=True, eq=False)
class VariantSource:
    """What a variant is compiled from: a program, the form, and the way it is compiled (see `ways`)."""

    program: Compilation
    form: Form
    is_careful: bool = False  # see lowering.expressions
    is_whole: bool = False  # Halide cuts no loop into parts
    is_as_cut: bool = False  # code of a part of a program, whose axes are those that it was cut with

    @property
    def _merging(self) -> Merging | None:
        if self.is_as_cut:
            return None
        facts = self.program.facts
        if self.form.layout is COMPACT:
            return facts.flattening
        return facts.merging if self.form.layout is MERGED else None

    @property
    def is_flattened(self) -> bool:
        """Whether vectors of results go on from one row into the next."""
        return self.form.layout is COMPACT and self._merging is not None

    @cached_property
    def seen(self) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """The inputs and outputs as they are compiled."""
        merging = self._merging
        return (self.program.inputs, self.program.outputs) if merging is None else (merging.inputs, merging.outputs)

    @cached_property
    def sizes(self) -> Mapping[Var, Expr]:
        """The symbolic extents that it is compiled with, and what they are of those of the program."""
        merging = self._merging
        return {**{v: v for v in self.program.sizes}, **({} if merging is None else merging.sizes)}

    @property
    def wanted(self) -> list[int]:
        """Positions of the outputs that are computed."""
        return [p for p, mode in enumerate(self.form.modes) if mode != "null"]

    @property
    def added(self) -> tuple[int, ...]:
        """Positions of the outputs that are added to what is there."""
        return tuple(p for p in self.wanted if self.form.modes[p] == "add")

    @property
    def names(self) -> set[str]:
        """What it calls its tensors and extents."""
        operations = operations_between(*self.seen)
        return {t.name for op in operations for t in (*op.inputs, *op.outputs)}.union(v.name for v in self.sizes)

    @cached_property
    def lowered(self) -> Lowered:
        """Halide's functions for it, scheduled."""
        wanted, target = self.wanted, self.program.target
        added = tuple(k for k, p in enumerate(wanted) if self.form.modes[p] == "add")
        opencl = for_opencl() if target.backend == "opencl" else nullcontext()
        halves = for_halves(bool(HALVES.intersection(target.text.split("-"))))
        with phase("lower"), careful_division() if self.is_careful else nullcontext(), opencl, halves:
            inputs, outputs = self.seen
            arrays = Arrays(are_flat=self.flat, are_small=not self.form.layout.is_large)
            lowered = self.program.planner.lowered(
                inputs, [outputs[p] for p in wanted], added, target, plain=self.form.is_plain,
                trusted=bool(self.finite), arrays=arrays,
            )  # fmt: skip
        if self.is_whole:
            keep_all_whole(lowered.functions)
        if self.form.layout is COMPACT:
            fix_strides(lowered)
        elif not self.form.layout.is_dense:
            free_strides(lowered)
        else:
            fix_last_strides(lowered)
        return lowered

    @property
    def flat(self) -> bool:
        """Whether each input is a row of all its elements, which prefetches of a user's schedule would mistake."""
        return self.form.layout is COMPACT and not self.program.planner.is_asked

    @cached_property
    def finite(self) -> tuple[int, ...]:
        """The inputs at which a call looks before the kernel runs, which need not look at what it makes of them."""
        part, is_compact = self.program.planner.part, self.form.layout is COMPACT
        if part is None or self.program.planner.simple or not is_compact or self.form.is_plain:
            return ()
        tables = [part.plan.program.stages[name].output() for name in part.plan.finite]
        return tuple(moved_from(tables, self.program.inputs) or ())

    def streams(self, lowered: Lowered) -> list[str]:
        """The names of the buffers of results that are larger than the caches of a core, and only written."""
        if self.program.target.backend != "host":
            return []
        least = least_streamed(self.program.target)
        return [name for result in lowered.results for name in lowered.written_only(result, least)]

    @cached_property
    def text(self) -> str:
        """Its target for Halide, with what the form needs."""
        target = self.program.target
        features = ["strict_float"] + ["large_buffers"] * self.form.layout.is_large
        features += ["cl_doubles"] * (target.backend == "opencl")
        return target.with_features(*features).text

    @property
    def is_object(self) -> bool:
        """Whether it is compiled to an object: it can be loaded here, or cannot run here in any case."""
        return loads_objects() or self.program.target.problem is not None

    def made(self) -> tuple[Kept, Lowered, Function]:
        """Its code, what that was made from, and the function in memory."""
        if self.is_object:
            kept, lowered = self.compiled()
            return kept, lowered, self.loaded(kept)
        lowered = self.lowered
        described = self._described(lowered)
        with self._compiling(lowered):
            function = JitFunction(self.program.name, self.text, lowered, self._specs(described), described.finite)
            return described, lowered, function

    def compiled(self) -> tuple[Kept, Lowered]:
        """Its code as an object, and what that was made from."""
        lowered = self.lowered
        with self._compiling(lowered):
            return self._emitted(lowered, self._described(lowered)), lowered

    @contextmanager
    def _compiling(self, lowered: Lowered) -> Iterator[None]:
        """Tell users what Halide finds wrong with their schedules."""
        try:
            yield
            if self.program.planner.is_asked and has_device(self.text):
                parts = lowered.pipeline, lowered.arguments, self.program.name, self.text
                check_launches(self.program.name, compile_outputs(*parts, ["stmt"])["stmt"])
        except hl.HalideError as error:
            if self.program.planner.is_asked:
                raise schedule_refused(self.program.name, error) from error
            raise

    def _described(self, lowered: Lowered) -> Kept:
        """What to know of code to call it, before there is code."""
        known, wanted = list(self.sizes), self.wanted
        sizes = tuple(next(k for k, v in enumerate(known) if v is size) for size in lowered.sizes)
        order = tuple(wanted[p] for p in lowered.order)
        computes = ", ".join(t.name for t in self.program.outputs)
        return Kept(
            "", self.text, b"", sizes, lowered.zero is not None, order, lowered.checks is not None, self.is_careful,
            f"{self.program.name}: {computes}", (), self.finite,
        )  # fmt: skip

    def _emitted(self, lowered: Lowered, described: Kept) -> Kept:
        """With its code, without checks of arrays where these are proven to hold for shapes, which are told."""
        shapes, choices = self._proven(lowered, described.target), [described]
        if shapes:
            choices.insert(0, replace(described, target=f"{described.target}-{UNCHECKED}", shapes=shapes))
        return first_working(
            choices,
            lambda choice, _: self._with_code(lowered, choice),
            lambda _, failure: isinstance(failure, GuardError),
        )

    def _with_code(self, lowered: Lowered, described: Kept) -> Kept:
        parts = lowered.pipeline, lowered.arguments, f"{self.program.name}_{described.seal}"
        code = compile_object(*parts, described.target, self.streams(lowered))
        return replace(described, entry=code.entry, image=code.image)

    def _proven(self, lowered: Lowered, text: str) -> tuple[tuple[int, ...] | None, ...]:
        """The shapes of the arguments for which Halide's checks of arrays hold; empty where there is no proof."""
        known = self.program.target.backend == "host" and self.form.layout.is_dense and not self.form.layout.is_large
        if not known or self.program.planner.is_asked or lowered.checks is not None or lowered.sizes:
            return ()
        given, made = ([known_shape(t) for t in tensors] for tensors in (
            lowered.inputs, (lowered.outputs[p] for p in (*lowered.previous, *lowered.order))
        ))  # fmt: skip
        if None in given or None in made:
            return ()
        if self.flat:
            given = [(row_length(t),) if t.ndim else () for t in lowered.inputs]
        before = len(lowered.previous)
        number: list[tuple[int, ...] | None] = [None] * (lowered.zero is not None)
        shapes = [*given, *made[:before], *number, *made[before:]]
        return tuple(shapes) if self._are_proven(lowered, text, shapes) else ()

    def _are_proven(self, lowered: Lowered, text: str, shapes: Sequence[tuple[int, ...] | None]) -> bool:
        """Whether all checks hold: as one knows of the loops, or as Halide's text says.

        Where loops keep to the results, a text of what is touched of the inputs is enough. One of all that is computed
        takes as long as the code itself, for checks that are as nothing beside a long run.
        """
        if stays_within(lowered):
            return have_places(shapes)
        pipeline, known = touching(lowered), [*shapes[: len(shapes) - len(lowered.order)], ()]
        if pipeline is None:
            operations = operations_between(*self.seen)
            if len(operations) > MOST_PROVEN or sum(flops_of(op, {}) for op in operations) >= LONG:
                return False
            pipeline, known = lowered.pipeline, list(shapes)
        try:
            said = compile_outputs(pipeline, lowered.arguments, self.program.name, text, ["stmt"])["stmt"]
        except hl.HalideError:  # of what is touched alone it may refuse what it compiles
            return False
        return are_proven(said, known, compact=self.form.layout is COMPACT)

    def loaded(self, kept: Kept) -> Function:
        """The code in memory."""
        with phase("load"):
            code = load(ObjectCode(self.program.name, kept.entry, kept.target, kept.image))
        shapes, compact = kept.shapes, self.form.layout is COMPACT
        return CompiledFunction(code, self._specs(kept), shapes=shapes, compact=compact, finite=kept.finite)

    def _specs(self, kept: Kept) -> list[ArgSpec]:
        """The arguments of the function, its outputs last."""
        known, outputs = list(self.sizes) if kept.sizes else [], self.program.outputs
        specs = [self._spec(t) for t in dict.fromkeys(self.program.inputs)]
        if self.flat:
            specs = [replace(spec, is_row=True) if spec.ndim else spec for spec in specs]
        specs += [self._spec(outputs[p]) for p in self.added]
        specs += [ArgSpec(known[k].name, "int32", None) for k in kept.sizes]
        specs += [ArgSpec("opaque_zero", "int32", None)] * kept.zero
        return specs + [replace(self._spec(outputs[p]), output=True) for p in kept.order]

    def _spec(self, tensor: Tensor) -> ArgSpec:
        """The argument for a tensor's array; a 16-bit float is passed to OpenCL as its bits."""
        dtype = str(tensor.dtype)
        bits = self.program.target.backend == "opencl" and dtype in ("float16", "bfloat16")
        runs = () if (merging := self._merging) is None else merging.runs[tensor]
        return ArgSpec(tensor.name, "uint16" if bits else dtype, tensor.ndim, runs=runs)
