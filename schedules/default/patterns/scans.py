"""Scans whose other axes are independent: many recurrences side by side, blocks of them on different threads.

One recurrence waits for each of its own steps, so a row at a time leaves the processor idle. Along columns the rows
of a step are vectors; where time itself lies along memory, a few steps of a few rows are written out. Not of many: rows
that are a power of two apart share the same few lines of the first cache.
"""

from __future__ import annotations

import math

from schedules.conditions import number
from schedules.default.rest import along
from schedules.directives import ComputeRoot, Directive, Parallel, Reorder, Split, Unroll, Vectorize
from schedules.loops import Level, nest_of
from schedules.machine import Machine
from tedsl.analysis.iteration import is_stepped
from tedsl.lang.tensor import Scan

__all__ = ["plan_scan"]

ROWS, STEPS = 4, 8
WIDE = 4  # vectors of a step


def plan_scan(op: Scan, machine: Machine) -> list[Directive]:
    """Directives for a scan, none where its steps need all of the step before or its places are few."""
    nest = nest_of(op.name, op, "body")
    free = [v for v in nest.levels if v.carried == "free"]
    time = [v.name for v in nest.levels if v.carried != "free"]
    sizes = [v.known for v in nest.levels]
    if is_stepped(op) or not free or None in sizes or 0 in sizes:
        return []
    chosen = free[-1]
    width = machine.vector_bytes // max(4, *(t.dtype.itemsize for t in op.outputs))
    say: list[Directive] = [ComputeRoot(stage=op.name)]
    if chosen.origin == {op.axes[-1]}:
        if not along(op, op.axes[-1]) or width < 2:
            return []
        inner = _columns(say, op, chosen, width)
    else:
        inner = _rows(say, op, chosen, time)
    if not inner:
        return []
    outer = [*(v.name for v in free[:-1]), f"{chosen.name}_o"]
    say.append(Reorder(stage=op.name, loops=(*outer, *time, *inner)))
    if machine.cores > 1 and math.prod(n or 1 for n in sizes) >= machine.least.scan_threads:
        say.append(Parallel(stage=op.name, loop=outer[0]))
    return say


def _columns(say: list[Directive], op: Scan, level: Level, width: int) -> list[str]:
    """Vectors along memory, a few at a time where there are as many."""
    name, extent = level.name, number(level.extent) or 0
    while width > extent:
        width //= 2
    if width < 2:
        return []
    lane = f"{name}_v"
    if extent % (WIDE * width):
        say.append(Split(stage=op.name, loop=name, outer=f"{name}_o", inner=lane, factor=width))
        say.append(Vectorize(stage=op.name, loop=lane))
        return [lane]
    few = f"{name}_w"
    say += [
        Split(stage=op.name, loop=name, outer=f"{name}_o", inner=few, factor=WIDE * width),
        Split(stage=op.name, loop=few, outer=few, inner=lane, factor=width, exact=True),
        Unroll(stage=op.name, loop=few),
        Vectorize(stage=op.name, loop=lane),
    ]
    return [few, lane]


def _rows(say: list[Directive], op: Scan, level: Level, time: list[str]) -> list[str]:
    """A few steps of each of a few rows; the loops over steps that stay outside take the place of `time`."""
    if (number(level.extent) or 0) < ROWS or number(op.axes[op.dim].extent) is None:
        return []
    row, steps, step = f"{level.name}_i", f"{time[0]}_o", f"{time[0]}_i"
    say += [
        Split(stage=op.name, loop=level.name, outer=f"{level.name}_o", inner=row, factor=ROWS),
        Split(stage=op.name, loop=time[0], outer=steps, inner=step, factor=STEPS),
        Unroll(stage=op.name, loop=row),
        Unroll(stage=op.name, loop=step),
    ]
    time[:] = [steps]
    return [row, step]
