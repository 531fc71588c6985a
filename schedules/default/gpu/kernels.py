"""The schedule of a GPU kernel: blocks and threads over the elements of each stage, by pattern.

A thread keeps what it sums in registers; of a sum of products it computes a tile, so that each operand that it reads is
used several times. The steps of a scan run serially in their element's thread, or are launches of their own where they
read other elements. A scatter is cut into blocks before (`scatters`); a nest that still has no free loop, as that of a
few points, runs in a single thread: slow, and the same in every run.
"""

from __future__ import annotations

from schedules.default.costs import Costs
from schedules.default.gpu.loops import launched, staged, tiled
from schedules.default.gpu.shared import HELD, STENCIL, plan_copy
from schedules.default.gpu.sums import LANES, PARTIAL
from schedules.default.gpu.tiles import TOTAL, tile_of
from schedules.default.rewriting import Rewriting, fused, loop_names
from schedules.directives import (
    ComputeAt,
    ComputeInline,
    ComputeRoot,
    Directive,
    GpuSingleThread,
    GpuThreads,
    Reorder,
    Split,
    StoreIn,
)
from schedules.loops import Nest, definitions_of, nest_of
from tedsl.lang.tensor import Compute, Operation

__all__ = ["plan_gpu", "spread"]

LINE = 256  # threads of a block
WARP = 32  # of them, at most along the last of two loops
ROWS = 8  # of a block


def plan_gpu(rw: Rewriting, costs: Costs) -> None:
    """Directives for every stage that has none."""
    for op in rw.stages:
        if op.name in rw.planned or op.name in rw.inside:
            continue
        if op in costs.inlined:
            rw.directives.append(ComputeInline(stage=op.name))
            continue
        rw.directives.append(ComputeRoot(stage=op.name))
        held, partial, total = (_inside(rw, op, kind) for kind in (HELD, PARTIAL, TOTAL))
        if total is not None:
            inner = _inside(rw, total, HELD)
            assert inner is not None
            rw.directives += staged(op, total, inner, rw.tiles[total.name], rw.shared[total.name])
        elif op.name in rw.shared:
            rw.directives += _stencil(rw, op, held)
        elif held is None:
            for definition in definitions_of(op):
                rw.directives += spread(nest_of(op.name, op, definition))
        elif partial is not None:
            rw.directives += _by_rows(rw, op, held, partial)
        else:
            rw.directives += _with_held(op, held)


def _inside(rw: Rewriting, op: Operation, kind: str) -> Compute | None:
    """The stage of a kind that is computed inside of another one."""
    found = [s for s in rw.stages if rw.inside.get(s.name) == op.name and rw.kinds.get(s.name) == kind]
    return found[0] if found and isinstance(found[0], Compute) else None


def _with_held(op: Operation, held: Compute) -> list[Directive]:
    """The loops of a stage that copies what its threads have summed, and of the sums."""
    assert isinstance(op, Compute)
    tile = tile_of(held)
    if tile is not None:
        return tiled(op, held, tile)
    made = spread(nest_of(op.name, op, "body"))
    threads = made[-1]
    assert isinstance(threads, GpuThreads)
    return [*made, ComputeAt(stage=held.name, consumer=op.name, loop=threads.loops[-1])]


def _by_rows(rw: Rewriting, op: Operation, held: Compute, partial: Compute) -> list[Directive]:
    """Rows with a few threads each, which leave what they have summed in shared memory for one of them."""
    assert isinstance(op, Compute)
    own = _inside(rw, partial, HELD)
    assert own is not None
    levels = nest_of(op.name, op, "body").levels
    at = max((k for k, v in enumerate(levels) if v.known != 1), default=len(levels) - 1)  # one row has one element
    last, others = levels[at].name, [v.name for k, v in enumerate(levels) if k != at]
    block, thread = f"{last}_block", f"{last}_thread"
    say: list[Directive] = [
        Split(stage=op.name, loop=last, outer=block, inner=thread, factor=ROWS),
        Reorder(stage=op.name, loops=(*others, block, thread)),
    ]
    fusing, others = fused(op.name, others)
    say += fusing
    grid, block = launched(nest_of(op.name, op, "body"), say, (*others, block))
    say += [
        *grid,
        GpuThreads(stage=op.name, loops=(thread,)),
        ComputeAt(stage=held.name, consumer=op.name, loop=thread),
        ComputeAt(stage=partial.name, consumer=op.name, loop=block),
        StoreIn(stage=partial.name, memory="shared"),
    ]
    names = nest_of(partial.name, partial, "body").names
    row, lane = names[at], names[-1]
    outer, inner, whole, step = f"{row}_o", f"{row}_i", f"{lane}_o", f"{lane}_i"
    return [
        *say,
        Split(stage=partial.name, loop=row, outer=outer, inner=inner, factor=ROWS),
        Split(stage=partial.name, loop=lane, outer=whole, inner=step, factor=LANES, exact=True),
        Reorder(stage=partial.name, loops=(outer, whole, inner, step)),
        GpuThreads(stage=partial.name, loops=(inner, step)),
        ComputeAt(stage=own.name, consumer=partial.name, loop=step),
    ]


def _stencil(rw: Rewriting, op: Operation, held: Compute | None) -> list[Directive]:
    """Blocks of threads along the last two axes, each after copying what it reads into shared memory."""
    assert isinstance(op, Compute)
    names = [loop_names(op)[a] for a in op.axes]
    sizes = STENCIL[len(names[-2:])]
    blocks, threads = [f"{n}_block" for n in names[-2:]], [f"{n}_thread" for n in names[-2:]]
    say: list[Directive] = [
        Split(stage=op.name, loop=n, outer=b, inner=t, factor=size)
        for n, b, t, size in zip(names[-2:], blocks, threads, sizes, strict=True)
    ]
    say.append(Reorder(stage=op.name, loops=(*names[:-2], *blocks, *threads)))
    fusing, others = fused(op.name, names[:-2])
    say += fusing
    grid, last = launched(nest_of(op.name, op, "body"), say, (*others, *blocks))
    say += [*grid, GpuThreads(stage=op.name, loops=tuple(threads))]
    if held is not None:
        say.append(ComputeAt(stage=held.name, consumer=op.name, loop=threads[-1]))
    for copy in rw.shared[op.name]:
        say += plan_copy(copy, op.name, last, sizes)
    return say


def spread(nest: Nest) -> list[Directive]:
    """Blocks and threads over the free loops, which lie outermost; beyond two, the outer ones are fused.

    Where there are none, over those that are free in each step of a scan: every step is a launch of its own.
    """
    where = {"stage": nest.stage, "definition": nest.definition}
    free = [v for v in nest.levels if v.carried == "free"]
    if not free:
        return _by_steps(nest)
    made, loops = fused(nest.stage, [v.name for v in free], left=2, definition=nest.definition)
    sizes = _threads(free[-1].known) if len(loops) == 2 else (LINE,)
    blocks, threads = tuple(f"{n}_block" for n in loops), tuple(f"{n}_thread" for n in loops)
    for loop, block, thread, size in zip(loops, blocks, threads, sizes, strict=True):
        made.append(Split(**where, loop=loop, outer=block, inner=thread, factor=size))  # type: ignore[arg-type]
    if len(loops) > 1:
        made.append(Reorder(**where, loops=(*blocks, *threads)))
    grid, _ = launched(nest, made, blocks)
    return [*made, *grid, GpuThreads(**where, loops=threads)]


def _by_steps(nest: Nest) -> list[Directive]:
    """Blocks and threads in each step of a scan, over loops in their order; else a single thread."""
    where = {"stage": nest.stage, "definition": nest.definition}
    within = [v for v in nest.levels if v.carried == "within"]
    if not within:
        return [GpuSingleThread(**where)]
    is_long = (within[-1].known or WARP) >= WARP
    made, loops = fused(nest.stage, [v.name for v in within], left=2 if is_long else 1, definition=nest.definition)
    block, thread = f"{loops[-1]}_block", f"{loops[-1]}_thread"
    made.append(Split(**where, loop=loops[-1], outer=block, inner=thread, factor=LINE))  # type: ignore[arg-type]
    grid, _ = launched(nest, made, (*loops[:-1], block))
    return [*made, *grid, GpuThreads(**where, loops=(thread,))]


def _threads(last: int | None) -> tuple[int, int]:
    """Threads of a block along two loops, of which the last one has so many iterations."""
    along = WARP if last is None else min(WARP, 1 << (max(last, 1) - 1).bit_length())
    return LINE // along, along
