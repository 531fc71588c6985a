"""One compiled form of a program: for arrays whose last axis is contiguous or not, and for how outputs are written.

A kernel compiles the forms that its calls need, when they first need them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from itertools import count

import halide as hl

from schedules.merging import Merging
from tedsl.analysis.hazards import Hazard, hazard_of
from tedsl.analysis.sizes import known_shape
from tedsl.backend.arguments.blocks import ArgSpec, CompiledFunction, Function, contiguous_strides
from tedsl.backend.assembly.allocation_failures import GuardError
from tedsl.backend.assembly.numbering import numbered_anew
from tedsl.backend.compiling.accesses import touching
from tedsl.backend.compiling.buffer_checks import are_proven
from tedsl.backend.compiling.disk_cache import Kept, keep, key_of, recall
from tedsl.backend.compiling.gpu_limits import check_launches
from tedsl.backend.compiling.jit import JitFunction
from tedsl.backend.compiling.objects import UNCHECKED, ObjectCode, compile_object, compile_outputs, load
from tedsl.backend.halide_text.errors import divides_by_zero
from tedsl.backend.host.loaders import loads_objects
from tedsl.backend.host.targets import Target, has_device, machine_of
from tedsl.backend.lowering.expressions import careful_division
from tedsl.backend.lowering.finite_checks import moved_from
from tedsl.backend.lowering.pipeline import Lowered, sizes_of
from tedsl.backend.scalars.types import for_opencl
from tedsl.backend.scheduling.halide_words import loop_nest_text, schedule_refused
from tedsl.backend.scheduling.planner import Planner
from tedsl.lang.errors import ScheduleError, warn_user
from tedsl.lang.expr import Var
from tedsl.lang.locks import cached_property
from tedsl.lang.tensor import Tensor
from tedsl.lang.traverse import operations_between

__all__ = ["Form", "Variant", "VariantSource", "compile_variant", "loaded_variant"]

MOST_PROVEN = 48  # operations: with more of them the text of a kernel costs more than its checks


@dataclass(frozen=True)
class Form:
    """What a variant is compiled for."""

    modes: tuple[str, ...]  # "write", "add" or "null" for each output
    dense: bool = True  # every last axis steps by one element
    large: bool = False  # some array holds more than 2**31 - 1 bytes
    plain: bool = False  # without rewrites that hold for finite numbers only
    merged: bool = False  # all arrays are contiguous, and axes that are walked together are one
    compact: bool = False  # all arrays are contiguous, and of shapes that are known: so are their strides


@dataclass(eq=False)
class Variant:
    """A compiled program and the order of its arguments."""

    program: VariantSource
    kept: Kept
    function: Function
    compile_ms: float
    texts: dict[str, str] = field(default_factory=dict)
    hazards: dict[tuple[int, Tensor], Hazard | None] = field(default_factory=dict)

    @cached_property
    def lowered(self) -> Lowered:
        """The program as Halide sees it; made anew, when it is looked at, where the code came from the disk."""
        return self.program.lowered(careful=self.kept.careful)

    @property
    def added(self) -> tuple[int, ...]:
        """Positions of the outputs whose former values are arguments, after the inputs."""
        return self.program.added

    @property
    def order(self) -> tuple[int, ...]:
        """Positions of the outputs in the order of the arguments."""
        return self.kept.order

    @cached_property
    def sizes(self) -> tuple[Var, ...]:
        """The symbolic extents that are passed by value."""
        known = self.program.sizes if self.kept.sizes else []
        return tuple(known[k] for k in self.kept.sizes)

    @property
    def has_checks(self) -> bool:
        """Whether it checks indices or numbers when it runs."""
        return self.kept.checks or bool(self.kept.finite)

    def source(self, kind: str) -> str:
        """What the compiler made of it, as text."""
        if kind not in self.texts:
            lowered = self.lowered
            parts = lowered.pipeline, lowered.arguments, self.program.name, self.kept.target
            text = compile_outputs(*parts, [kind], self.program.streams(lowered))[kind]
            self.texts[kind] = numbered_anew(text, kind, self.program.names)
        return self.texts[kind]

    def scalars(self, sizes: Mapping[Var, int]) -> list[int]:
        """The numbers passed by value."""
        return [sizes[v] for v in self.sizes] + [0] * self.kept.zero

    def hazard(self, position: int, source: Tensor) -> Hazard | None:
        """Why the output at `position` cannot be written into the memory of an input; None where it provably can."""
        key = (position, source)
        if key not in self.hazards:
            inputs, _ = self.program.seen
            seen = dict(zip(self.program.inputs, inputs, strict=True)).get(source, source)
            found = self._hazard(self.lowered, position, seen)
            if found is not None and seen is not source:  # told in the axes of the user
                apart = replace(self.program, form=replace(self.program.form, merged=False))
                found = self._hazard(apart.lowered(careful=self.kept.careful), position, source) or found
            self.hazards[key] = found
        return self.hazards[key]

    def _hazard(self, lowered: Lowered, position: int, source: Tensor) -> Hazard | None:
        if source not in lowered.inputs:
            return None
        output = lowered.outputs[self.program.wanted.index(position)]
        if lowered.nesting is None:
            return Hazard(output.op, source.name, "in an order that only the autoscheduler knows")
        own = any(r.stage is not None and r.stage.op is output.op for r in lowered.results)
        return hazard_of(list(lowered.inputs), lowered.outputs, output, source, lowered.nesting, own=own)

    @cached_property
    def loop_nest(self) -> str:
        """The loops, as Halide prints them."""
        return loop_nest_text(result.func for result in self.lowered.results)


LARGE = 4  # second caches of a core that a result must fill to be written past them


@dataclass(eq=False)
class LoadedVariant(Variant):
    """One of which the code was found, but not how it was scheduled."""

    whole: Callable[[], Variant] = field(kw_only=True)

    @cached_property
    def lowered(self) -> Lowered:
        """The program as Halide sees it, from somebody who schedules it."""
        return self.whole().lowered


@dataclass(frozen=True, eq=False)
class VariantSource:
    """What a variant is compiled from."""

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    form: Form
    name: str
    target: Target
    planner: Planner
    merging: Merging | None = None

    @cached_property
    def seen(self) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """The inputs and outputs as they are compiled."""
        if self.form.merged and self.merging is not None:
            return self.merging.inputs, self.merging.outputs
        return self.inputs, self.outputs

    @property
    def wanted(self) -> list[int]:
        """Positions of the outputs that are computed."""
        return [p for p, mode in enumerate(self.form.modes) if mode != "null"]

    @property
    def added(self) -> tuple[int, ...]:
        """Positions of the outputs that are added to what is there."""
        return tuple(p for p in self.wanted if self.form.modes[p] == "add")

    @property
    def sizes(self) -> list[Var]:
        """Every symbolic extent, in a fixed order."""
        return sizes_of(self.inputs, self.outputs)

    @property
    def names(self) -> set[str]:
        """What it calls its tensors and extents."""
        operations = operations_between(*self.seen)
        return {t.name for op in operations for t in (*op.inputs, *op.outputs)}.union(v.name for v in self.sizes)

    @property
    def key(self) -> str | None:
        """The name under which its code is kept."""
        return key_of(self.inputs, self.outputs, self.form, self.name, self.target, self.planner)

    def lowered(self, *, careful: bool) -> Lowered:
        """Halide's functions for it, scheduled."""
        wanted = self.wanted
        added = tuple(k for k, p in enumerate(wanted) if self.form.modes[p] == "add")
        opencl = for_opencl() if self.target.backend == "opencl" else nullcontext()
        with careful_division() if careful else nullcontext(), opencl:
            inputs, outputs = self.seen
            options = {"plain": self.form.plain, "trusted": bool(self.finite), "flat": self.flat}
            lowered = self.planner.lowered(inputs, [outputs[p] for p in wanted], added, self.target, **options)
        if self.form.compact:
            _fix_strides(lowered)
        elif not self.form.dense:
            _free_strides(lowered)
        return lowered

    @property
    def flat(self) -> bool:
        """Whether each input is a row of all its elements, which prefetches of a user's schedule would mistake."""
        return self.form.compact and not self.planner.is_asked

    @cached_property
    def finite(self) -> tuple[int, ...]:
        """The inputs at which a call looks before the kernel runs, which need not look at what it makes of them."""
        part = self.planner.part
        if part is None or self.planner.simple or not self.form.compact or self.form.plain:
            return ()
        tables = [part.plan.program.stages[name].output() for name in part.plan.finite]
        return tuple(moved_from(tables, self.inputs) or ())

    def streams(self, lowered: Lowered) -> list[str]:
        """The names of the buffers of results that are larger than the caches of a core, and only written."""
        if self.target.backend != "host":
            return []
        least = LARGE * machine_of(self.target).l2
        return [name for result in lowered.results for name in lowered.written_only(result, least)]

    @cached_property
    def text(self) -> str:
        """Its target for Halide, with what the form needs."""
        features = ["strict_float"] + ["large_buffers"] * self.form.large
        features += ["cl_doubles"] * (self.target.backend == "opencl")
        return self.target.with_features(*features).text

    @property
    def is_object(self) -> bool:
        """Whether it is compiled to an object: it can be loaded here, or cannot run here in any case."""
        return loads_objects() or self.target.problem is not None

    def made(self, *, careful: bool) -> tuple[Kept, Lowered, Function]:
        """Its code, what that was made from, and the function in memory."""
        if self.is_object:
            kept, lowered = self.compiled(careful=careful)
            return kept, lowered, self.loaded(kept)
        lowered = self.lowered(careful=careful)
        described = self._described(lowered, careful=careful)
        with self._compiling(lowered):
            function = JitFunction(self.name, self.text, lowered, self._specs(described), described.finite)
            return described, lowered, function

    def compiled(self, *, careful: bool) -> tuple[Kept, Lowered]:
        """Its code as an object, and what that was made from."""
        lowered = self.lowered(careful=careful)
        with self._compiling(lowered):
            return self._emitted(lowered, self._described(lowered, careful=careful)), lowered

    @contextmanager
    def _compiling(self, lowered: Lowered) -> Iterator[None]:
        """Tell users what Halide finds wrong with their schedules."""
        try:
            yield
            if self.planner.is_asked and has_device(self.text):
                parts = lowered.pipeline, lowered.arguments, self.name, self.text
                check_launches(self.name, compile_outputs(*parts, ["stmt"])["stmt"])
        except hl.HalideError as error:
            if self.planner.is_asked:
                raise schedule_refused(self.name, error) from error
            raise

    def _described(self, lowered: Lowered, *, careful: bool) -> Kept:
        """What to know of code to call it, before there is code."""
        known, wanted = self.sizes, self.wanted
        sizes = tuple(next(k for k, v in enumerate(known) if v is size) for size in lowered.sizes)
        order = tuple(wanted[p] for p in lowered.order)
        computes = ", ".join(t.name for t in self.outputs)
        return Kept(
            "", self.text, b"", sizes, lowered.zero is not None, order, lowered.checks is not None, careful,
            f"{self.name}: {computes}", (), self.finite,
        )  # fmt: skip

    def _emitted(self, lowered: Lowered, described: Kept) -> Kept:
        """With its code, without checks of arrays where these are proven to hold for shapes, which are told."""
        shapes = self._proven(lowered, described.target)
        if shapes:
            with suppress(GuardError):
                return self._with_code(lowered, replace(
                    described, target=f"{described.target}-{UNCHECKED}", shapes=shapes
                ))  # fmt: skip
        return self._with_code(lowered, described)

    def _with_code(self, lowered: Lowered, described: Kept) -> Kept:
        parts = lowered.pipeline, lowered.arguments, f"{self.name}_{described.seal}"
        code = compile_object(*parts, described.target, self.streams(lowered))
        return replace(described, entry=code.entry, image=code.image)

    def _proven(self, lowered: Lowered, text: str) -> tuple[tuple[int, ...] | None, ...]:
        """The shapes of the arguments for which Halide's checks of arrays hold; empty where there is no proof."""
        known = self.target.backend == "host" and self.form.dense and not self.form.large
        if not known or self.planner.is_asked or lowered.checks is not None or lowered.sizes:
            return ()
        if len(operations_between(*self.seen)) > MOST_PROVEN:
            return ()
        given, made = ([known_shape(t) for t in tensors] for tensors in (
            lowered.inputs, (lowered.outputs[p] for p in (*lowered.previous, *lowered.order))
        ))  # fmt: skip
        if None in given or None in made:
            return ()
        if self.flat:
            given = [(math.prod(shape),) if shape else shape for shape in given if shape is not None]
        before = len(lowered.previous)
        number: list[tuple[int, ...] | None] = [None] * (lowered.zero is not None)
        shapes = [*given, *made[:before], *number, *made[before:]]
        return tuple(shapes) if self._are_proven(lowered, text, shapes) else ()

    def _are_proven(self, lowered: Lowered, text: str, shapes: Sequence[tuple[int, ...] | None]) -> bool:
        """Whether all checks hold; where loops keep to the results, those of what is touched of the inputs say it."""
        pipeline, known = touching(lowered), [*shapes[: len(shapes) - len(lowered.order)], ()]
        if pipeline is None:
            pipeline, known = lowered.pipeline, list(shapes)
        said = compile_outputs(pipeline, lowered.arguments, self.name, text, ["stmt"])["stmt"]
        return are_proven(said, known, compact=self.form.compact)

    def loaded(self, kept: Kept) -> Function:
        """The code in memory."""
        code = load(ObjectCode(self.name, kept.entry, kept.target, kept.image))
        shapes, compact = kept.shapes, self.form.compact
        return CompiledFunction(code, self._specs(kept), shapes=shapes, compact=compact, finite=kept.finite)

    def _specs(self, kept: Kept) -> list[ArgSpec]:
        """The arguments of the function, its outputs last."""
        known, outputs = self.sizes if kept.sizes else [], self.outputs
        specs = [self._spec(t) for t in dict.fromkeys(self.inputs)]
        if self.flat:
            specs = [replace(spec, runs=(spec.ndim,)) if spec.ndim else spec for spec in specs]
        specs += [self._spec(outputs[p]) for p in self.added]
        specs += [ArgSpec(known[k].name, "int32", None) for k in kept.sizes]
        specs += [ArgSpec("opaque_zero", "int32", None)] * kept.zero
        return specs + [replace(self._spec(outputs[p]), output=True) for p in kept.order]

    def _spec(self, tensor: Tensor) -> ArgSpec:
        """The argument for a tensor's array; a 16-bit float is passed to OpenCL as its bits."""
        dtype = str(tensor.dtype)
        bits = self.target.backend == "opencl" and dtype in ("float16", "bfloat16")
        runs = self.merging.runs[tensor] if self.form.merged and self.merging is not None else ()
        return ArgSpec(tensor.name, "uint16" if bits else dtype, tensor.ndim, runs=runs)


def compile_variant(
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    form: Form,
    name: str,
    target: Target,
    planner: Planner,
    merging: Merging | None = None,
) -> Variant:
    """Lower, schedule and compile; or load what was compiled before, in this process or another."""
    begin = time.perf_counter()
    program = VariantSource(tuple(inputs), tuple(outputs), form, name, target, planner, merging)
    key = program.key
    kept = recall(key)
    if kept is not None:
        return Variant(program, kept, program.loaded(kept), _since(begin))
    try:
        kept, lowered, function = _made(program)
        keep(key, kept)
    except hl.HalideError as error:
        if planner.is_asked or target.backend != "host":
            raise
        warn_user(
            f"kernel {name!r}: Halide refuses what the default schedule makes of it ({str(error).strip()}); it is "
            "compiled without vectors and threads: give it a schedule of its own to have it fast"
        )
        program = replace(program, planner=replace(planner, simple=True))
        kept, lowered, function = _made(program)
    variant = Variant(program, kept, function, _since(begin))
    variant.lowered = lowered
    return variant


def _since(begin: float) -> float:
    """Milliseconds."""
    return (time.perf_counter() - begin) * 1e3


def loaded_variant(program: VariantSource, key: str | None, whole: Callable[[], Variant]) -> Variant:
    """What was kept under a key; where nothing is, what `whole` makes, which knows how to schedule the program."""
    begin = time.perf_counter()
    kept = recall(key)
    if kept is None:
        return whole()
    return LoadedVariant(program, kept, program.loaded(kept), _since(begin), whole=whole)


def _made(program: VariantSource) -> tuple[Kept, Lowered, Function]:
    try:
        return program.made(careful=False)
    except (hl.HalideError, ScheduleError) as error:
        if not divides_by_zero(error):
            raise
    return program.made(careful=True)


def _fix_strides(lowered: Lowered) -> None:
    """Tell Halide the strides of contiguous arrays: addresses are then computed by the compiler, as far as they can."""
    images = [(t, image, True) for t, image in lowered.inputs.items()]
    images += [(lowered.outputs[p], image, True) for p, image in lowered.previous.items()]
    for result in lowered.results:
        tensors = (lowered.outputs[p] for p in result.positions)
        # Further components lie where the first one does, and Halide minds being told so.
        images += zip(tensors, result.func.output_buffers(), (k == 0 for k in count()), strict=False)
    for tensor, image, is_free in images:
        shape = known_shape(tensor)
        assert shape is not None
        if image.dimensions() < len(shape):  # a row of all elements
            shape = (math.prod(shape),)
        for dim, (extent, step) in enumerate(zip(shape[::-1], contiguous_strides(shape, 1)[::-1], strict=True)):
            image.dim(dim).set_stride(step)
            if is_free:
                image.dim(dim).set_bounds(0, extent)


def _free_strides(lowered: Lowered) -> None:
    """Halide takes the innermost stride for 1 unless told otherwise."""
    anything = hl.Expr()
    for image in (*lowered.inputs.values(), *lowered.previous.values()):
        if image.dimensions():
            image.dim(0).set_stride(anything)
    for result in lowered.results:
        for buffer in result.func.output_buffers():
            if buffer.dimensions():
                buffer.dim(0).set_stride(anything)
