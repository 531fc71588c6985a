"""Failed calls in the user's words."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from schedules.plan import described
from tedsl.analysis.pointwise import Array
from tedsl.backend.calling.signature import KernelParts
from tedsl.backend.host.runtime import KernelError
from tedsl.lang.errors import ScheduleError
from tedsl.lang.expr import Var
from tedsl.lang.traverse import operations_between

__all__ = ["explained"]


def explained(
    kernel: KernelParts, error: KernelError, inputs: Sequence[Array] = (), sizes: Mapping[Var, int] | None = None
) -> Exception:
    """What went wrong: a promise of the schedule, or an index out of bounds; the error itself where it says enough."""
    plan = kernel.core.program.planner.plan
    if error.requirement is None and plan is not None and plan.promises:
        said = "; ".join(f"{described(step.directive)} at {step.where}" for step in plan.promises)
        what = kernel.signature.what
        return ScheduleError(f"{what}: the schedule promises what may not hold at this call ({said}): {error}")
    text = error.explanation or kernel.core.explanation(error, inputs, sizes or {})
    return IndexError(_in_our_places(kernel, text)) if text else error


def _in_our_places(kernel: KernelParts, text: str) -> str:
    """With the lines of the user's program, where the kernel was made for one like it that was written elsewhere."""
    if kernel.shared.renamed is None:
        return text
    ours = operations_between(kernel.signature.fed, kernel.signature.outputs)
    places = {a.where: b.where for a, b in zip(kernel.core.program.operations, ours, strict=True)}
    return re.sub("|".join(map(re.escape, places)), lambda match: places[match[0]], text)
