"""The loops of sums of products on a GPU: blocks of threads of elements, terms of a step, copies for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from schedules.default.gpu.shared import Copy, plan_copy
from schedules.default.gpu.tiles import ThreadTile, extent_of
from schedules.default.rewriting import fused, loop_names
from schedules.directives import (
    BoundExtent,
    ComputeAt,
    Definition,
    Directive,
    GpuBlocks,
    GpuThreads,
    Reorder,
    Split,
    StoreIn,
    Unroll,
)
from schedules.loops import Nest, nest_of, transformed
from tedsl.lang.dataclass import dataclass
from tedsl.lang.expr import Axis
from tedsl.lang.tensor import Compute, Operation

__all__ = ["launched", "staged", "tiled"]

MOST_BLOCKS = (1 << 16) - 1  # of a launch, along all but the innermost loop
TERMS = 4  # at a time: what lies side by side in shared memory is read together


@dataclass(frozen=True)
class _Cut:
    """One side of a tile in a stage: its loop, cut into blocks of threads of elements."""

    where: dict[str, Any]
    loop: str
    axis: Axis
    tile: ThreadTile

    def __post_init__(self) -> None:
        assert self.axis is self.tile.row or self.axis is self.tile.column

    def _named(self, part: str) -> str:
        return f"{self.loop}_{part}" if self.where["definition"] == "body" else f"{self.loop}_first_{part}"

    @property
    def block(self) -> str:
        return self._named("block")

    @property
    def thread(self) -> str:
        return self._named("thread")

    @property
    def element(self) -> str:
        return self._named("element")

    def into_blocks(self) -> list[Directive]:
        size, whole = self.tile.block(self.axis), self.tile.divides(self.axis)
        return [Split(**self.where, loop=self.loop, outer=self.block, inner=self.thread, factor=size, exact=whole)]

    def into_threads(self, loop: str) -> list[Directive]:
        return [
            Split(**self.where, loop=loop, outer=self.thread, inner=self.element, factor=self.tile.side, exact=True),
            Unroll(**self.where, loop=self.element),
        ]

    def into_turns(self) -> list[Directive]:
        """Neighbouring threads take neighbouring elements, as memory is written best."""
        turn, count = (self.element, self.thread), self.tile.threads(self.axis)
        return [Split(**self.where, loop=self.thread, outer=turn[0], inner=turn[1], factor=count, exact=True)]


def _cuts(op: Compute, held: Compute, tile: ThreadTile, definition: Definition = "body") -> list[_Cut]:
    """The rows and columns of a tile in a stage over the same elements."""
    position = {id(a): k for k, a in enumerate(held.axes)}
    names = [v.name for v in nest_of(op.name, op, definition).levels] if definition == "init" else None
    own = loop_names(op)
    found = []
    for axis in (tile.row, tile.column):
        at = position[id(axis)]
        loop = own[op.axes[at]] if names is None else names[at]
        found.append(_Cut({"stage": op.name, "definition": definition}, loop, axis, tile))
    return found


def launched(nest: Nest, before: Sequence[Directive], blocks: Sequence[str]) -> tuple[list[Directive], str]:
    """The loops over the blocks of a launch, and the innermost one: a single one where there may be too many."""
    where = {"stage": nest.stage, "definition": nest.definition}
    for directive in before:
        nest = transformed(nest, directive)  # type: ignore[arg-type]
    fusing: list[Directive] = []
    if any((nest.level(b).known or MOST_BLOCKS + 1) > MOST_BLOCKS for b in blocks[:-1]):
        fusing, blocks = fused(nest.stage, blocks, definition=nest.definition)
    return [*fusing, GpuBlocks(**where, loops=tuple(blocks))], blocks[-1]


def tiled(op: Compute, held: Compute, tile: ThreadTile) -> list[Directive]:
    """Blocks of threads, each with a tile of sums that stays in its registers."""
    say, cuts, _ = _blocks(op, held, tile, turns=False)
    return [*say, ComputeAt(stage=held.name, consumer=op.name, loop=cuts[-1].thread), *_in_registers(held, tile)]


def _blocks(op: Compute, held: Compute, tile: ThreadTile, *, turns: bool) -> tuple[list[Directive], list[_Cut], str]:
    """The loops of a stage that stores what was summed in tiles, by threads that take turns or store their own.

    Also the innermost loop over blocks.
    """
    cuts, names = _cuts(op, held, tile), loop_names(op)
    cut = {c.loop for c in cuts}
    others = [names[a] for a in op.axes if names[a] not in cut]
    blocks, threads = tuple(c.block for c in cuts), tuple(c.thread for c in cuts)
    elements = tuple(c.element for c in cuts)
    say = [d for c in cuts for d in (*c.into_blocks(), *(c.into_turns() if turns else c.into_threads(c.thread)))]
    inside = (*elements, *threads) if turns else (*threads, *elements)
    say.append(Reorder(stage=op.name, loops=(*others, *blocks, *inside)))
    fusing, others = fused(op.name, others)
    say += fusing
    grid, last = launched(nest_of(op.name, op, "body"), say, (*others, *blocks))
    return [*say, *grid, GpuThreads(stage=op.name, loops=threads)], cuts, last


def _in_registers(held: Compute, tile: ThreadTile) -> list[Directive]:
    """The loops of a tile's sums: over the terms, around all elements."""
    assert held.reduction is not None
    own = loop_names(held)
    inner = [own[a] for a in (tile.row, tile.column)]
    sums = [own[a] for a in held.reduction.axes]
    outside = [own[a] for a in held.axes if a is not tile.row and a is not tile.column]
    init = [n for n in nest_of(held.name, held, "init").names if n in inner]
    return [
        StoreIn(stage=held.name, memory="register"),
        *(BoundExtent(stage=held.name, axis=n, extent=tile.side) for n in inner),
        Reorder(stage=held.name, loops=(*outside, *sums, *inner)),
        *(Unroll(stage=held.name, loop=n) for n in inner),
        *(Unroll(stage=held.name, definition="init", loop=n) for n in init),
    ]


def staged(op: Operation, total: Compute, held: Compute, tile: ThreadTile, copies: Sequence[Copy]) -> list[Directive]:
    """Blocks that sum step by step, each step from copies in shared memory of what it reads."""
    assert isinstance(op, Compute)
    assert held.reduction is not None
    say, cuts, block = _blocks(op, held, tile, turns=True)
    own = loop_names(total)
    step = own[total.reduction.axes[0]] if total.reduction is not None else ""
    body, first = _cuts(total, held, tile), _cuts(total, held, tile, "init")
    say += [
        ComputeAt(stage=total.name, consumer=op.name, loop=block),
        StoreIn(stage=total.name, memory="shared"),
        *(BoundExtent(stage=total.name, axis=c.loop, extent=tile.block(c.axis)) for c in body),
    ]
    for steps, sides in (((), first), ((step,), body)):
        where = sides[0].where
        names = nest_of(total.name, total, where["definition"]).names
        others = [n for n in names if n not in steps and all(n != c.loop for c in sides)]
        threads = tuple(c.thread for c in sides)
        say += [d for c in sides for d in c.into_threads(c.loop)]
        say.append(Reorder(**where, loops=(*others, *steps, *threads, *(c.element for c in sides))))
        say.append(GpuThreads(**where, loops=threads))
    say.append(ComputeAt(stage=held.name, consumer=total.name, loop=body[-1].thread))
    say += [*_in_registers(held, tile), *_terms(held)]
    for copy in copies:
        say += plan_copy(copy, total.name, step, [tile.threads(c.axis) for c in body])
    return say


def _terms(held: Compute) -> list[Directive]:
    """The innermost terms unrolled, a few at a time."""
    assert held.reduction is not None
    last = held.reduction.axes[-1]
    loop, count = loop_names(held)[last], extent_of(last)
    if count <= TERMS:
        return [Unroll(stage=held.name, loop=loop)]
    if count % TERMS:
        return []
    inner = f"{loop}_i"
    cut = Split(stage=held.name, loop=loop, outer=loop, inner=inner, factor=TERMS, exact=True)
    return [cut, Unroll(stage=held.name, loop=inner)]
