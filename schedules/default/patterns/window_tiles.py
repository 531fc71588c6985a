"""Windows over pixels of many channels: the sums of a few pixels by a few vectors of channels stay in registers.

    for each tile of P pixels by V vectors:   sums = 0;   for each tap: sums += x[tap] * w[tap];   out = sums

A tap of the weights is loaded once for P pixels. Where tiles do not fill a row the last ones are shifted inwards, which
computes some elements twice and needs no masks.
"""

from __future__ import annotations

import math

from schedules.default.costs import Costs, is_same_point, points, value_cost
from schedules.default.groups import Group
from schedules.default.neighbors import along
from schedules.default.patterns.bordered import FOLDS
from schedules.default.rewriting import Rewriting, loop_names
from schedules.directives import BoundExtent, ComputeAt, Definition, Directive, Reorder, Split, Unroll, Vectorize
from schedules.machine import Machine
from schedules.sizes import typical
from tedsl.lang.dataclass import dataclass
from tedsl.lang.dtypes import INT32
from tedsl.lang.expr import Apply, Fn
from tedsl.lang.extents import number, same_extent
from tedsl.lang.reducers import COMBINE
from tedsl.lang.tensor import Compute, Operation
from tedsl.lang.traverse import free_axes, topological

__all__ = ["WindowTile", "is_tiled_sum", "shares_lanes", "window_tile"]

MOST_VECTORS, MOST_PIXELS = 4, 8
LOOP = 3.0  # operations in the time of a step of the loops around
MOST_CODE = 192  # operations of a step: terms of a few more are costlier than what a larger tile saves


@dataclass(frozen=True)
class WindowTile:
    """So many pixels by so many vectors of so many lanes."""

    pixels: int
    vectors: int
    width: int

    @property
    def lanes(self) -> int:
        return self.vectors * self.width

    def of_window(self, window: Compute, root: Compute, at: str) -> list[Directive]:
        """The sums of a tile at a loop of what is made of them."""
        stage, names = window.name, loop_names(window)
        assert window.reduction is not None
        outer, (pixel, lane) = [names[a] for a in window.axes[:-2]], (names[a] for a in window.axes[-2:])
        made: list[Directive] = [
            ComputeAt(stage=stage, consumer=root.name, loop=at),
            BoundExtent(stage=stage, axis=pixel, extent=self.pixels),
            BoundExtent(stage=stage, axis=lane, extent=self.lanes),
        ]
        taps = [names[a] for a in window.reduction.axes]
        for definition, loops in (("init", outer), ("body", [*outer, *taps])):
            made += self._vectors(stage, definition, lane, loops, pixel)
        return made

    def of_root(self, root: Compute, strip: int = 0) -> tuple[list[Directive], list[str]]:
        """The tiles of the result, and the names of the loops around them, the last two over tiles of a row.

        `strip`: so many rows together, with a loop over such strips.
        """
        stage, names = root.name, loop_names(root)
        pixel, lane = (names[a] for a in root.axes[-2:])
        counts = [number(a.extent) or 0 for a in root.axes[-2:]]
        made: list[Directive] = []
        for name, step, count in ((pixel, self.pixels, counts[0]), (lane, self.lanes, counts[1])):
            rest = bool(count % step)
            made.append(
                Split(
                    stage=stage, loop=name, outer=f"{name}_o", inner=f"{name}_i", factor=step, exact=not rest,
                    tail="shift" if rest else "",
                )
            )  # fmt: skip
        loops = [*(names[a] for a in root.axes[:-2]), f"{pixel}_o", f"{lane}_o"]
        if strip:
            row, exact = loops[-3], (number(root.axes[-3].extent) or 0) % strip == 0
            made.append(Split(stage=stage, loop=row, outer=f"{row}_t", inner=f"{row}_r", factor=strip, exact=exact))
            loops[-3:-2] = [f"{row}_t", f"{row}_r"]
        made += self._vectors(stage, "body", f"{lane}_i", loops, f"{pixel}_i", lane)
        return made, loops

    def _vectors(
        self, stage: str, definition: Definition, loop: str, outer: list[str], pixel: str, name: str = ""
    ) -> list[Directive]:
        wide, lane = f"{name or loop}_w", f"{name or loop}_v"
        return [
            Split(
                stage=stage, definition=definition, loop=loop, outer=wide, inner=lane, factor=self.width, exact=True
            ),
            Vectorize(stage=stage, definition=definition, loop=lane),
            Unroll(stage=stage, definition=definition, loop=wide),
            Unroll(stage=stage, definition=definition, loop=pixel),
            Reorder(stage=stage, definition=definition, loops=(*outer, pixel, wide, lane)),
        ]  # fmt: skip


def window_tile(rw: Rewriting, group: Group, costs: Costs, machine: Machine, width: int) -> WindowTile | None:
    """The tile of a group that is a window and what is made of it point by point; None for other groups."""
    if len(group.members) != 1 or group.root.reduction is not None or len(group.root.axes) < 2:
        return None
    (window,), root = group.members, group.root
    if rw.kinds.get(window.name) != "window" or rw.kinds.get(root.name) not in (None, "tiled") or len(root.bodies) > 1:
        return None
    if len(window.axes) != len(root.axes) or not _reads_point(window, root, costs) or _asks(window):
        return None
    pairs = zip(window.axes, root.axes, strict=True)
    if any(a.extent is None or b.extent is None or not same_extent(a.extent, b.extent) for a, b in pairs):
        return None
    pixels, lanes = (number(a.extent) for a in root.axes[-2:])
    if pixels is None or lanes is None or lanes < width or width < 2 or not along(window, window.axes[-1]):
        return None
    assert window.reduction is not None
    most = max(1, MOST_CODE // max(1, value_cost(window.reduction.values)))
    return _best(pixels, lanes, width, machine, most, shift=points(root.axes) >= machine.least.shifted)


def is_tiled_sum(op: Compute, machine: Machine) -> bool:
    """Whether tiles of the results of a reduction of any length share what lies along their lanes."""
    is_known = op.reduction is not None and all(number(a.extent) for a in (*op.axes, *op.reduction.axes))
    return is_known and shares_lanes(op, machine) and along(op, op.axes[-1])


def shares_lanes(op: Compute, machine: Machine) -> bool:
    """Whether what is read for the lanes of a result serves all its pixels: taps of filters, rows compared with others.

    Matrix products, of which no factor has both, have panels of their own.
    """
    reduce = op.reduction
    if reduce is None or reduce.reducer.kind not in COMBINE or len(op.bodies) > 1 or len(op.axes) < 2 or _asks(op):
        return False
    value, (pixel, lane) = reduce.values[0], op.axes[-2:]
    if not isinstance(value, Apply) or op.looks_up:
        return False
    if any(number(a.extent) == 0 for a in (*op.axes, *reduce.axes)) or number(pixel.extent) == 1:
        return False
    is_product = value.fn is Fn.MUL and reduce.reducer.kind == "sum"
    if is_product and any(lane not in set(free_axes(factor)) for factor in value.args):
        return False
    shares = any(lane in (own := set(free_axes(read))) and pixel not in own for read in op.reads)
    return shares and typical(lane.extent) * value.dtype.itemsize >= machine.vector_bytes


def _reads_point(window: Compute, root: Compute, costs: Costs) -> bool:
    """Whether all that reads a window reads it at its own place, and is part of the root."""
    todo: list[Operation] = [window]
    for op in todo:
        for reader, read in costs.readers.get(op, []):
            if not is_same_point(reader, read) or (reader is not root and reader not in costs.inlined):
                return False
            todo += [reader] if reader is not root and reader not in todo else []
    return True


def _asks(window: Compute) -> bool:
    """Whether a term asks where it is in a tile."""
    assert window.reduction is not None
    nodes = topological(window.bodies)
    folds = any(isinstance(n, Apply) and (n.fn is Fn.SELECT or (n.dtype is INT32 and n.fn in FOLDS)) for n in nodes)
    return folds or not set(window.axes[-2:]).isdisjoint(free_axes(window.reduction.where))


def _best(pixels: int, lanes: int, width: int, machine: Machine, most: int, *, shift: bool) -> WindowTile | None:
    """The tile with the least loads and repetitions whose sums stay in registers, at most so many vectors of them.

    It may `shift` the last ones.
    """
    registers = min(most, 24 if machine.vector_registers >= 32 else 12)
    best: tuple[float, WindowTile] | None = None
    for vectors in range(1, min(MOST_VECTORS, lanes // width) + 1):
        for height in range(1, min(MOST_PIXELS, pixels, registers // vectors) + 1):
            if not shift and (pixels % height or lanes % (vectors * width)):
                continue
            sums = vectors * height
            computed = math.prod((-(-pixels // height) * height, -(-lanes // (vectors * width)) * vectors * width))
            cost = computed / (pixels * lanes) * (sums + vectors + LOOP) / sums
            if best is None or cost < best[0]:
                best = cost, WindowTile(height, vectors, width)
    return None if best is None else best[1]
