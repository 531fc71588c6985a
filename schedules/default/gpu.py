"""The schedule of a GPU kernel: one thread for each element, everything else inside the thread.

Reductions, and the steps of a scan, run serially in their element's thread. A nest without a free loop (a scatter at
computed indices, a scan whose steps read one another) runs in a single thread: slow, and the same in every run.
"""

from __future__ import annotations

from schedules.default.costs import Costs
from schedules.default.rewriting import Rewriting
from schedules.directives import (
    ComputeInline,
    ComputeRoot,
    Directive,
    Fuse,
    GpuBlocks,
    GpuSingleThread,
    GpuThreads,
    Reorder,
    Split,
)
from schedules.loops import Nest, definitions_of, nest_of

__all__ = ["plan_gpu", "spread"]

THREADS = (8, 32)  # of a block, along the last axis but one and the last one
LINE = 256  # where there is one axis alone


def plan_gpu(rw: Rewriting, costs: Costs) -> None:
    """Directives for every stage that has none."""
    for op in rw.stages:
        if op.name in rw.planned:
            continue
        if op in costs.inlined:
            rw.directives.append(ComputeInline(stage=op.name))
            continue
        rw.directives.append(ComputeRoot(stage=op.name))
        for definition in definitions_of(op):
            rw.directives += spread(nest_of(op.name, op, definition))


def spread(nest: Nest) -> list[Directive]:
    """Blocks and threads over the free loops, which lie outermost; beyond two, the outer ones are fused."""
    where = {"stage": nest.stage, "definition": nest.definition}
    loops = [v.name for v in nest.levels if v.carried == "free"]
    if not loops:
        return [GpuSingleThread(**where)]  # type: ignore[arg-type]
    made: list[Directive] = []
    while len(loops) > 2:
        fused = f"{loops[0]}_{loops[1]}"
        made.append(Fuse(**where, outer=loops[0], inner=loops[1], fused=fused))  # type: ignore[arg-type]
        loops[:2] = [fused]
    sizes = THREADS if len(loops) == 2 else (LINE,)
    blocks, threads = tuple(f"{n}_block" for n in loops), tuple(f"{n}_thread" for n in loops)
    for loop, block, thread, size in zip(loops, blocks, threads, sizes, strict=True):
        made.append(Split(**where, loop=loop, outer=block, inner=thread, factor=size))  # type: ignore[arg-type]
    if len(loops) > 1:
        made.append(Reorder(**where, loops=(*blocks, *threads)))  # type: ignore[arg-type]
    made += [
        GpuBlocks(**where, loops=blocks),  # type: ignore[arg-type]
        GpuThreads(**where, loops=threads),  # type: ignore[arg-type]
    ]
    return made
