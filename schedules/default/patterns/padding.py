"""Rows with a border around them, so that a window over a row is read in vectors from end to end.

A read like x[i, j + v - 1] leaves the row at both ends, where it is guarded and its index held inside. A vector of
such indices does not lie side by side in memory and is loaded lane by lane, in a row of seven vectors six times. Here

    padded[i, j] = x[i, j - L] inside, else what the guard gives, or the end of the row    for j in [0, n + 2L)

is made first, with L lanes on each side: whole vectors lie inside or outside. The window then reads it without a guard.
Rows that are reflected or go on from their other end are made of a row and of `ends`, a few vectors for each side; so
are rows that end within a vector. Rows of pixels with several channels each (`schedules/interleaving`) go on pixel by
pixel: beyond the end of r g b r g b the first number is an r.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import field, replace

from schedules.conditions import extremes
from schedules.default.costs import INLINE, element_cost, is_pointwise
from schedules.default.groups import MOST_BYTES
from schedules.default.rewriting import Rewriting
from schedules.machine import Machine
from tedsl.analysis.affine import affine_of
from tedsl.analysis.facts import naturals
from tedsl.analysis.rounds import along_pixels
from tedsl.lang import functions as fn
from tedsl.lang.at import mirrored_once
from tedsl.lang.dataclass import dataclass
from tedsl.lang.dtypes import INT32
from tedsl.lang.expr import TRUE, Apply, Axis, Const, Expr, Fn, Read, Reduce
from tedsl.lang.extents import number
from tedsl.lang.polynomials import Affine, atom_form
from tedsl.lang.reducers import COMBINE
from tedsl.lang.tensor import Compute, Operation, Placeholder, Tensor
from tedsl.lang.traverse import conjuncts, reads_of, rebuild_all, topological

__all__ = ["MOST_TERMS", "is_window", "moves_over_pixels", "padded_windows"]

MOST_TERMS = 32  # of a window
MOST_OF_PIXELS = 1024  # the same where a copy of the row would have each pixel as often as the window is wide
LEAST_LANES = 4
MOST_BORDER = 4  # vectors
# How an index is brought back into a row.
_FOLDS: dict[str, Callable[[Expr, int], Expr]] = {
    "clamp": lambda i, n: fn.minimum(fn.maximum(i, 0), n - 1),
    "also clamp": lambda i, n: fn.clip(i, 0, n - 1),
    "reflect": lambda i, n: mirrored_once(i, n - 1),
    "wrap": lambda i, n: i % n,
}


def is_window(op: Compute) -> bool:
    """Whether a stage is a reduction of a few terms, or of more that go back into rows of pixels at their ends."""
    reduce = op.reduction
    if reduce is None or len(op.bodies) != 1 or reduce.reducer.kind not in COMBINE or len(op.axes) < 2:
        return False
    if op.looks_up or any(number(a.extent) is None for a in (*op.axes, *reduce.axes)):
        return False
    terms = math.prod(number(a.extent) or 0 for a in reduce.axes)
    return terms <= MOST_TERMS or (terms <= MOST_OF_PIXELS and any(map(moves_over_pixels, op.reads)))


def moves_over_pixels(read: Read) -> bool:
    """Whether a read goes along a row of numbers from pixel to pixel, and is brought back into it at the ends."""
    return bool(read.indices) and along_pixels(read.indices[-1], read.tensor.extents[-1]) is not None


def padded_windows(rw: Rewriting, op: Compute, machine: Machine) -> Compute:
    """The operation, its reads that leave a row at the ends replaced by reads of padded rows."""
    if not is_window(op):
        return op
    window = _Window(rw, op, machine)
    bodies = rebuild_all(op.bodies, window.rule)
    if isinstance(bodies[0], Reduce):
        bodies = (window.guarded(bodies[0]),)
    return replace(op, bodies=bodies, _outputs={}) if window.made else op


@dataclass(frozen=True, eq=False)
class _Border:
    """What stands outside of a row: a value, or how the row goes on.

    `step`: numbers of a pixel. `lanes`: of a vector. `width`: numbers on each side, whole vectors.
    """

    rest: Expr | None
    mode: str
    step: int
    lanes: int
    width: int


@dataclass
class _Window:
    """The padded tensors that one operation reads, by what they are made of and what stands outside."""

    rw: Rewriting
    op: Compute
    machine: Machine
    made: dict[tuple[Tensor, Expr | None, str, int, int], Tensor] = field(default_factory=dict)

    def rule(self, node: Expr) -> Expr:
        """A read that a guard or a clamp holds inside its row, by one of a padded row."""
        if isinstance(node, Apply) and node.fn is Fn.SELECT and isinstance(node.args[2], Const):
            guard, read, rest = node.args
            if isinstance(read, Read):
                outer = _without_ends(guard, read)
                border = None if outer is guard else _border(self.op, read, self.machine, rest)
                if border is not None:
                    moved = self.moved(read, border)
                    return moved if outer is TRUE else fn.select(outer, moved, rest)
        if isinstance(node, Read) and (found := _unfolded(node)) is not None:
            border = _border(self.op, found.read, self.machine, None, found.mode, found.step)
            return node if border is None else self.moved(found.read, border)
        return node

    def guarded(self, reduce: Reduce) -> Expr:
        """A sum of elements, whose terms outside of the row may as well be 0."""
        (read,) = reduce.values if len(reduce.values) == 1 else (None,)
        if reduce.reducer.kind != "sum" or not isinstance(read, Read):
            return reduce
        outer = _without_ends(reduce.where, read)
        border = None
        if outer is not reduce.where:
            border = _border(self.op, read, self.machine, Const(0.0, read.dtype))
        if border is None:
            return reduce
        return Reduce(reduce.reducer, (self.moved(read, border),), reduce.axes, outer, reduce.index)

    def moved(self, read: Read, border: _Border) -> Expr:
        """The read of a padded tensor in place of one that leaves its rows."""
        key = (read.tensor, border.rest, border.mode, border.step, border.width)
        if key not in self.made:
            self.made[key] = self.padded(read.tensor, border)
        return Read(self.made[key], (*read.indices[:-1], read.indices[-1] + border.width))

    def padded(self, tensor: Tensor, border: _Border) -> Tensor:
        """The stage of the padded rows."""
        extents, lanes = [number(e) or 0 for e in tensor.extents], border.lanes
        axes = [Axis(f"p{k}", Const(n, INT32)) for k, n in enumerate((*extents[:-1], _length(extents[-1], border)))]
        last, first, count = axes[-1], border.width // lanes, extents[-1] // lanes
        vector, lane = last // lanes, last % lanes

        def at(index: Expr) -> Expr:
            return Read(tensor, (*axes[:-1], index))

        if border.rest is not None and extents[-1] % lanes == 0:
            before = behind = border.rest
        elif border.mode == "clamp" and border.step == 1 and extents[-1] % lanes == 0:
            before, behind = at(Const(0, INT32)), at(Const(extents[-1] - 1, INT32))
        else:
            side = fn.clip(vector, 0, first - 1) + fn.maximum(vector - (first + count - 1), 0)
            before = behind = Read(self.ends(tensor, border), (*axes[:-1], side * lanes + lane))
        inside = at(fn.clip(vector - first, 0, count - 1) * lanes + lane)
        chosen = fn.select(vector < first, before, fn.select(vector >= first + count, behind, inside))
        return self.rows("padded", axes, chosen, lanes)

    def ends(self, tensor: Tensor, border: _Border) -> Tensor:
        """The stage of the elements before each row, and of those behind its whole vectors."""
        extents, width = [number(e) or 0 for e in tensor.extents], border.width
        tail = extents[-1] % border.lanes
        size = _length(extents[-1], border) - extents[-1] + tail
        axes = [Axis(f"e{k}", Const(n, INT32)) for k, n in enumerate((*extents[:-1], size))]
        place = axes[-1]

        def at(index: Expr) -> Expr:
            return Read(tensor, (*axes[:-1], index))

        if border.rest is not None:
            before = behind = border.rest
        else:
            before, behind = map(at, _beyond(border, place, place - (width + tail), extents[-1]))
        if tail:
            inside = at(fn.clip(place - width, 0, tail - 1) + (extents[-1] - tail))
            behind = fn.select(place < width + tail, inside, behind)
        return self.rows("ends", axes, fn.select(place < width, before, behind), border.lanes)

    def rows(self, name: str, axes: Sequence[Axis], body: Expr, lanes: int) -> Tensor:
        """A stage whose rows are whole vectors of so many lanes."""
        made = self.rw.compute(f"{self.op.name}_{name}", axes, body)
        self.rw.kinds[made.op.name], self.rw.widths[made.op.name] = "padded", lanes
        return made


def _length(extent: int, border: _Border) -> int:
    """Of a row with both its borders, in whole vectors."""
    return -(-extent // border.lanes) * border.lanes + 2 * border.width


def _beyond(border: _Border, before: Expr, behind: Expr, extent: int) -> tuple[Expr, Expr]:
    """The places of a row that stand for those from `border.width` before it on, and for those behind it.

    Either is held inside its side. Distances, where differences would count down: Halide is told nothing of the ends of
    what is read backwards.
    """
    width, step, most = border.width, border.step, _length(extent, border) - extent - border.width - 1
    before, behind = fn.clip(before, 0, width - 1), fn.clip(behind, 0, most)
    if border.mode == "wrap":
        return before + (extent - width), behind
    whole = -(-width // step) * step  # pixels of the border
    first, last = before + (whole - width), behind
    if border.mode == "clamp":
        return first % step, last % step + (extent - step)
    pixels = extent // step
    return (
        fn.abs(first // step - whole // step) * step + first % step,
        fn.abs(last // step - (pixels - 2)) * step + last % step,
    )


@dataclass(frozen=True, eq=False)
class _Unfolded:
    """A read with its last index free to leave the row, and how that was held inside, so many numbers at a time."""

    read: Read
    mode: str
    step: int


def _unfolded(read: Read) -> _Unfolded | None:
    """What a read is that does not leave its row."""
    if not read.indices or not isinstance(read.indices[-1], Apply):
        return None
    extent, pixels = number(read.tensor.extents[-1]), _of_pixels(read.indices[-1])
    last, step, lane = (read.indices[-1], 1, None) if pixels is None else pixels
    if extent is None or extent % step:
        return None
    for free in topological(last):
        mode = next((m for m, f in _FOLDS.items() if free.dtype is INT32 and f(free, extent // step) is last), None)
        place = None if mode is None else free if lane is None else _in_numbers(free, lane, step)
        if mode is not None and place is not None:
            return _Unfolded(Read(read.tensor, (*read.indices[:-1], place)), mode.removeprefix("also "), step)
    return None


def _of_pixels(index: Expr) -> tuple[Expr, int, Axis] | None:
    """(pixel, step, f) of an index `pixel * step + f % step`."""
    if not isinstance(index, Apply) or index.fn is not Fn.ADD:
        return None
    whole, rest = index.args
    if not (isinstance(whole, Apply) and whole.fn is Fn.MUL and isinstance(rest, Apply) and rest.fn is Fn.MOD):
        return None
    step, lane = number(rest.args[1]), rest.args[0]
    if step is None or step < 2 or number(whole.args[1]) != step or not isinstance(lane, Axis):
        return None
    return whole.args[0], step, lane


def _in_numbers(pixel: Expr, lane: Axis, step: int) -> Expr | None:
    """`f // step + k` as the place of its number, `f + step k`."""
    form, whole = affine_of(pixel), lane // step
    if form is None or form.terms.get((whole,), 0) != 1:
        return None
    rest = form.without(whole)
    return (atom_form(lane) + rest * step).to_expr() if rest.is_linear else None


def _border(
    op: Compute, read: Read, machine: Machine, rest: Expr | None, mode: str = "constant", step: int = 1
) -> _Border | None:
    """The border that a read needs; None where none helps."""
    tensor = read.tensor
    if not read.indices or not op.axes or tensor.dtype.itemsize != 4 or not tensor.dtype.is_float:
        return None
    form, extent = affine_of(read.indices[-1]), number(tensor.extents[-1])
    # Rows read with a stride are longer than what comes of them: copying them took more than their first vectors did.
    if form is None or extent is None or abs(form.terms.get((op.axes[-1],), 0)) != 1 or not _is_near(op, read):
        return None
    ends, most = extremes(form), machine.vector_bytes // 4
    lanes = next((n for n in (most, most // 2, most // 4) if n >= LEAST_LANES and extent % n == 0), most)
    if ends is None or (ends[0] >= 0 and ends[1] < extent):
        return None
    width = -(-max(-ends[0], ends[1] - extent + 1) // lanes) * lanes
    border = _Border(rest, mode, step, lanes, width)
    behind = _length(extent, border) - extent - width
    least = {"reflect": behind + step, "wrap": behind}.get(mode, 0)
    return border if width <= MOST_BORDER * lanes and extent >= max(least, lanes) else None


def _is_near(op: Compute, read: Read) -> bool:
    """Whether padded rows stay in the cache: they are made where they are used, or in place of what is read."""
    tensor = read.tensor
    if isinstance(tensor.op, Compute):
        return is_pointwise(tensor.op) and element_cost(tensor.op) <= INLINE and _is_stored(tensor.op)
    shared = 0
    while shared < len(op.axes) - 2 and read.indices[shared] is op.axes[shared]:
        shared += 1
    sizes = [number(e) for e in tensor.extents[shared:]]
    if shared == 0 or None in sizes:
        return False
    return math.prod(n or 0 for n in sizes) * tensor.dtype.itemsize * 2 <= MOST_BYTES


def _is_stored(op: Operation) -> bool:
    """Whether a cheap stage is made of more than inputs: else it is computed where it is read, and not stored."""
    seen, todo = {op}, [op]
    while todo:
        for below in (r.tensor.op for r in reads_of(todo.pop().expressions)):
            if not isinstance(below, Placeholder) and not is_pointwise(below):
                return True
            if not isinstance(below, Placeholder) and below not in seen:
                seen.add(below)
                todo.append(below)
    return False


def _without_ends(guard: Expr, read: Read) -> Expr:
    """The guard without the conditions that the last index lies in its row."""
    index = affine_of(read.indices[-1]) if read.indices else None
    extent = number(read.tensor.extents[-1]) if read.indices else None
    if index is None or extent is None:
        return guard
    ends = {index.key, (Affine({}, extent - 1) - index).key}
    parts = conjuncts(guard)
    kept = [p for p in parts if (form := _natural(p)) is None or form.key not in ends]
    if len(kept) == len(parts):
        return guard
    return functools.reduce(fn.logical_and, kept) if kept else TRUE


def _natural(condition: Expr) -> Affine | None:
    """A form that is at least 0 where the comparison holds, and nowhere else."""
    if not isinstance(condition, Apply) or condition.fn not in (Fn.LT, Fn.LE, Fn.GT, Fn.GE):
        return None
    left, right = (affine_of(a) for a in condition.args)
    if left is None or right is None:
        return None
    ((form,),) = naturals(condition.fn, left - right)
    return form
