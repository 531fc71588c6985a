"""The schedule of a GPU kernel that was given none: one thread for each element, everything else inside the thread.

Reductions, and the steps of a scan, run serially in their element's thread. An update without a free loop (a scatter at
computed indices, a scan whose steps read one another) runs in a single thread: slow, and the same in every run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import halide as hl

from tedsl.backend.default import plan_inlining
from tedsl.backend.lower import Lowered

__all__ = ["schedule_gpu"]

THREADS = (32, 8)  # of a block, along the last axis and the one before
LINE = 256  # where there is one axis alone


def schedule_gpu(lowered: Lowered) -> None:
    """Schedule every function of a program for a GPU."""
    lowered.inlined = plan_inlining(lowered).inlined
    for stage in lowered.stages:
        if stage.op in lowered.inlined:
            continue
        stage.func.compute_root()
        _spread(stage.func, stage.dims)
        if stage.func.num_update_definitions():
            free = {loop.name() for loop in stage.axes.values() if isinstance(loop, hl.Var)}
            _spread(stage.func.update(0), [v for v in stage.dims if v.name() in free])
    for result in lowered.results:
        if result.stage is None:
            _spread(result.func, result.dims)


def _spread(definition: Any, dims: Sequence[hl.Var]) -> None:
    """Blocks and threads over the loops, given outermost first; beyond two, the outer ones are fused."""
    loops = list(dims)
    while len(loops) > 2:
        fused = hl.Var(f"{loops[0].name()}_{loops[1].name()}")
        definition.fuse(loops[1], loops[0], fused)
        loops[:2] = [fused]
    if not loops:
        definition.gpu_single_thread()
        return
    inner = loops[-1]
    block, thread = hl.Var(f"{inner.name()}_block"), hl.Var(f"{inner.name()}_thread")
    guard = hl.TailStrategy.GuardWithIf
    if len(loops) == 1:
        definition.gpu_tile(inner, block, thread, LINE, guard)
        return
    outer = loops[0]
    outer_block, outer_thread = hl.Var(f"{outer.name()}_block"), hl.Var(f"{outer.name()}_thread")
    definition.gpu_tile(inner, outer, block, outer_block, thread, outer_thread, *THREADS, guard)
