"""The default schedule of a kernel: the plan of `schedules.default`, lowered and applied.

What the plan leaves without directives is scheduled as `tedsl.backend.default` does.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import halide as hl

from schedules.default import default_schedule
from schedules.directives import ComputeInline
from tedsl.backend.applying import apply_directives
from tedsl.backend.default import schedule_stage, vectorize_last
from tedsl.backend.default_gpu import schedule_gpu
from tedsl.backend.lower import Lowered, lower
from tedsl.backend.lower_stage import Stage
from tedsl.backend.targets import Machine
from tedsl.lang.expr import Const
from tedsl.lang.tensor import Tensor

__all__ = ["lower_by_default"]

WORTH_THREADS = 1 << 17  # elements of a scan


def lower_by_default(
    inputs: Sequence[Tensor], outputs: Sequence[Tensor], added: Iterable[int], machine: Machine, *, plain: bool = False
) -> Lowered:
    """The functions that compute `outputs`, by the program that the default scheduler makes of them, scheduled."""
    if machine.gpu is not None:
        lowered = lower(inputs, outputs, added=added)
        schedule_gpu(lowered)
        return lowered
    plan = default_schedule(inputs, outputs, machine, plain=plain)
    lowered = lower(inputs, plan.outputs, added=added, finite=plan.checked_finite)
    inlined = {d.stage for d in plan.directives if isinstance(d, ComputeInline)}
    lowered.inlined = {stage.op for stage in lowered.stages if stage.op.name in inlined}
    named = apply_directives(lowered, plan.directives)
    _schedule_rest(lowered, machine, named)
    _fix_sizes(lowered)
    return lowered


def _schedule_rest(lowered: Lowered, machine: Machine, named: set[str]) -> None:
    for stage in lowered.stages:
        if stage.op.name not in named:
            schedule_stage(stage, machine)
    for result in lowered.results:
        if result.stage is None:
            vectorize_last(result.func, result.dims, 1, machine)


def _share_rows(stage: Stage, machine: Machine) -> None:
    """A scan's places beside time are independent: the outermost of them go to different threads."""
    extents = [e.value if isinstance(e, Const) else 0 for e in stage.op.output(0).extents]
    if stage.kind != "scan" or machine.cores < 2 or math.prod(extents) < WORTH_THREADS or len(extents) < 2:
        return
    first = stage.dims[0]
    if first.name() in {loop.name() for loop in stage.axes.values() if isinstance(loop, hl.Var)} and extents[0] >= 4:
        stage.func.update(0).parallel(first)


def _fix_sizes(lowered: Lowered) -> None:
    """Tell Halide the extents that are numbers: loops then need no tests for their ends."""
    for tensor, image in lowered.inputs.items():
        for d, extent in enumerate(tensor.extents[::-1]):
            if isinstance(extent, Const):
                image.dim(d).set_bounds(0, int(extent.value))
    for result in lowered.results:
        stage = result.stage
        if stage is None:
            continue
        for dim, extent in zip(result.dims, stage.op.output(stage.components[0]).extents, strict=True):
            if isinstance(extent, Const):
                result.func.bound(dim, 0, int(extent.value))
