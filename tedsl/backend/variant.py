"""One compiled form of a program: for arrays whose last axis is contiguous or not, and for how outputs are written.

A kernel compiles the forms that its calls need, when they first need them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import halide as hl

from tedsl.analysis.hazards import Hazard, hazard_of
from tedsl.backend.buffers import ArgSpec, CompiledFunction
from tedsl.backend.lower import Lowered
from tedsl.backend.lower_expr import DIVISION_BY_ZERO, careful_division
from tedsl.backend.nests import loop_nest_text, schedule_refused
from tedsl.backend.objects import compile_object, compile_outputs, load
from tedsl.backend.planner import Planner
from tedsl.backend.targets import Target
from tedsl.lang.errors import ScheduleError
from tedsl.lang.expr import Var
from tedsl.lang.tensor import Tensor

__all__ = ["Form", "Variant", "compile_variant"]


@dataclass(frozen=True)
class Form:
    """What a variant is compiled for."""

    modes: tuple[str, ...]  # "write", "add" or "null" for each output
    dense: bool = True  # every last axis steps by one element
    large: bool = False  # some array holds more than 2**31 - 1 bytes
    plain: bool = False  # without rewrites that hold for finite numbers only


@dataclass(eq=False)
class Variant:
    """A compiled program and the order of its arguments."""

    form: Form
    lowered: Lowered
    name: str
    target: str
    arguments: list[Any]
    function: CompiledFunction
    added: tuple[int, ...]  # positions of the outputs whose former values are arguments, after the inputs
    sizes: tuple[Var, ...]
    order: tuple[int, ...]  # positions of the outputs in the order of the arguments
    compile_ms: float
    texts: dict[str, str] = field(default_factory=dict)
    hazards: dict[tuple[int, Tensor], Hazard | None] = field(default_factory=dict)

    def source(self, kind: str) -> str:
        """What the compiler made of it, as text."""
        if kind not in self.texts:
            self.texts.update(compile_outputs(self.lowered.pipeline, self.arguments, self.name, self.target, [kind]))
        return self.texts[kind]

    def scalars(self, sizes: Mapping[Var, int]) -> list[int]:
        """The numbers passed by value."""
        return [sizes[v] for v in self.sizes] + [0] * (self.lowered.zero is not None)

    def hazard(self, position: int, source: Tensor) -> Hazard | None:
        """Why the output at `position` cannot be written into the memory of an input; None where it provably can."""
        key = (position, source)
        if key not in self.hazards:
            lowered = self.lowered
            output = lowered.outputs[[p for p, mode in enumerate(self.form.modes) if mode != "null"].index(position)]
            own = any(r.stage is not None and r.stage.op is output.op for r in lowered.results)
            given = list(lowered.inputs)
            if lowered.nesting is None:
                found: Hazard | None = Hazard(output.op, source.name, "in an order that only the autoscheduler knows")
            else:
                found = hazard_of(given, lowered.outputs, output, source, lowered.nesting, own=own)
            self.hazards[key] = found if source in lowered.inputs else None
        return self.hazards[key]

    @cached_property
    def loop_nest(self) -> str:
        """The loops, as Halide prints them."""
        return loop_nest_text(result.func for result in self.lowered.results)


def compile_variant(
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    form: Form,
    name: str,
    target: Target,
    planner: Planner,
) -> Variant:
    """Lower, schedule and compile."""
    parts = inputs, outputs, form, name, target, planner
    try:
        return _compiled(*parts)
    except (hl.HalideError, ScheduleError) as error:
        if DIVISION_BY_ZERO not in str(error):
            raise
    with careful_division():
        return _compiled(*parts)


def _compiled(
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    form: Form,
    name: str,
    target: Target,
    planner: Planner,
) -> Variant:
    begin = time.perf_counter()
    wanted = [p for p, mode in enumerate(form.modes) if mode != "null"]
    added = tuple(k for k, p in enumerate(wanted) if form.modes[p] == "add")
    written = [outputs[p] for p in wanted]
    lowered = planner.lowered(inputs, written, added, target, plain=form.plain)
    if not form.dense:
        _free_strides(lowered)
    arguments: list[Any] = [*lowered.inputs.values(), *lowered.previous.values(), *lowered.sizes.values()]
    if lowered.zero is not None:
        arguments.append(lowered.zero)
    features = ["strict_float"] + ["large_buffers"] * form.large + ["cl_doubles"] * (target.backend == "opencl")
    text = target.with_features(*features).text
    try:
        code = compile_object(lowered.pipeline, arguments, name, text)
    except hl.HalideError as error:
        if planner.is_asked:
            raise schedule_refused(name, error) from error
        raise
    order = tuple(wanted[p] for p in lowered.order)
    specs = [ArgSpec(t.name, str(t.dtype), t.ndim) for t in lowered.inputs]
    specs += [ArgSpec(outputs[wanted[k]].name, str(outputs[wanted[k]].dtype), outputs[wanted[k]].ndim) for k in added]
    specs += [ArgSpec(v.name, "int32", None) for v in lowered.sizes]
    specs += [ArgSpec("opaque_zero", "int32", None)] * (lowered.zero is not None)
    specs += [ArgSpec(outputs[p].name, str(outputs[p].dtype), outputs[p].ndim, output=True) for p in order]
    function = CompiledFunction(load(code), specs)
    return Variant(
        form, lowered, name, text, arguments, function, tuple(wanted[k] for k in added), tuple(lowered.sizes), order,
        (time.perf_counter() - begin) * 1e3,
    )  # fmt: skip


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
