"""What an element of a stage costs, and which stages are computed wherever they are read."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set as AbstractSet
from dataclasses import field

from schedules.default.twins import Twins
from schedules.machine import Machine
from schedules.sizes import typical
from tedsl.analysis.iteration import free_dimensions
from tedsl.analysis.rounds import goes_round
from tedsl.lang.dataclass import dataclass
from tedsl.lang.dtypes import INT32
from tedsl.lang.expr import Apply, Axis, Const, Expr, Fn, Read
from tedsl.lang.extents import number, simplify_extent
from tedsl.lang.locks import cached_property
from tedsl.lang.operand_types import FLOAT_BINARY, FLOAT_UNARY
from tedsl.lang.tensor import Compute, Operation, Scatter
from tedsl.lang.traverse import conjuncts, free_axes, topological

__all__ = [
    "INLINE",
    "MOST_CHANNELS",
    "MOST_TAPS",
    "Costs",
    "cheap_components",
    "costs_of",
    "element_cost",
    "is_costly",
    "is_function",
    "is_once",
    "is_pointwise",
    "is_same_point",
    "pays_to_keep",
    "points",
    "shared_of",
    "value_cost",
    "values_of",
]

INLINE = 12  # arithmetic that is cheaper than a trip to memory
MOST = 400  # arithmetic of one expression; longer ones take the compiler more time than the trip to memory takes
MOST_IN_WINDOWS = 200  # the same of all that a window reads of one stage, a few operations each
WIDE = 32  # places of a window
MOST_PATHS = 1 << 12  # through one expression: where it has no loop of its own, Halide 21 walks each of them
FEW, OFTEN = 16, 8  # numbers that a row consists of, and times that each element of it is read
LOADS = 3  # operations in the time that a number takes into the first cache and back
LANES = 32  # of a row that is computed in vectors of its own
ABOUT_ONCE = 4  # times that an element is computed rather than stored
MOST_CHANNELS = 4  # of a pixel, around vectors of pixels that look something up
TWICE = 1 / 4  # of the elements that several readers together compute twice
MOST_TAPS = 16  # of scatters that are one, each of which is written out
_OWN = "_element_cost"
_ROUNDING = {Fn.FLOOR, Fn.CEIL, Fn.ROUND, Fn.TRUNC}
_DIVISIONS = {Fn.FLOORDIV, Fn.MOD}
_COSTLY = (FLOAT_UNARY | FLOAT_BINARY | {Fn.POW, Fn.FLOORDIV, Fn.MOD, Fn.DIV}) - _ROUNDING


@dataclass
class Costs:
    """The stages that are inlined, and what an element of each costs with all that is inlined into it."""

    inlined: set[Operation] = field(default_factory=set)
    element: dict[Operation, int] = field(default_factory=dict)
    readers: dict[Operation, list[tuple[Operation, Read]]] = field(default_factory=dict)

    @cached_property
    def twins(self) -> Twins:
        """Which of the stages are alike, with what is inlined."""
        return Twins(self.inlined)

    def varying(self, op: Operation, *axes: Axis) -> int:
        """What of an element's cost is for values that change along `axes`."""
        changes: set[Expr] = set(axes)
        total = 0
        for node in op.nodes:
            if not changes.intersection(node.children) and node not in changes:
                continue
            changes.add(node)
            total += _cost_of(node)
            if isinstance(node, Read) and node.tensor.op in self.inlined:
                inner = node.tensor.op
                moved = [a for a, i in zip(getattr(inner, "axes", ()), node.indices, strict=True) if i in changes]
                total += self.varying(inner, *moved)
        return total

    def in_pieces(self, op: Operation) -> int:
        """An element's cost where it is known which of the tensors that it may be is read."""
        seen = dict.fromkeys(getattr(op, "bodies", ()))
        pending = list(seen)
        for node in pending:
            fresh = (node.args[1:] if node.fn is Fn.SELECT else node.args) if isinstance(node, Apply) else ()
            pending += [c for c in fresh if c not in seen]
            seen.update(dict.fromkeys(fresh))
        read = [self.element[n.tensor.op] for n in seen if isinstance(n, Read) and n.tensor.op in self.inlined]
        done = sum(_cost_of(n) for n in seen if isinstance(n, Apply) and n.fn is not Fn.SELECT)
        return 1 + done + sum(read)

    def lane_bytes(self, op: Operation, *, has_masks: bool = False) -> int:
        """The bytes of the widest number that an element is made of, at least 4 where some are not plain integers.

        Part of a vector of narrow numbers is loaded and stored one by one where there are no masks: the longer it is,
        the slower are the ends of rows.
        """
        widest, seen = 1, {op}
        pending: list[Operation] = [op]
        for stage in pending:
            if stage.looks_up or not (is_pointwise(stage) or (has_masks and _is_extreme(stage))):
                return max(4, *(t.dtype.itemsize for t in op.outputs))
            for node in values_of(getattr(stage, "bodies", ())):
                widest = max(widest, _width_of(node))
                if isinstance(node, Read) and node.tensor.op in self.inlined and node.tensor.op not in seen:
                    seen.add(node.tensor.op)
                    pending.append(node.tensor.op)
        return widest

    def divides_alike(self, op: Operation, rows: Expr, columns: Expr) -> bool:
        """Whether an element is divided by something that changes along `columns` and not along `rows`."""
        down: set[Expr] = {rows}
        across: set[Expr] = {columns}
        for node in op.nodes:
            for changes in (down, across):
                if changes.intersection(node.children):
                    changes.add(node)
            if isinstance(node, Apply) and node.fn is Fn.DIV and node.args[1] in across and node.args[1] not in down:
                return True
            if isinstance(node, Read) and node.tensor.op in self.inlined:
                inner = node.tensor.op
                pairs = list(zip(getattr(inner, "axes", ()), node.indices, strict=True))
                moved = [[a for a, i in pairs if i is axis] for axis in (rows, columns)]
                if moved[0] and moved[1] and self.divides_alike(inner, moved[0][0], moved[1][0]):
                    return True
        return False


def costs_of(
    stages: Sequence[Operation],
    outputs: AbstractSet[Operation],
    planned: AbstractSet[str],
    machine: Machine,
    again: AbstractSet[Operation] = frozenset(),
) -> Costs:
    """Costs of stages given inputs before users; those `again` are inlined, outputs and what is `planned` never."""
    costs = Costs()
    for op in stages:
        for read in op.reads:
            costs.readers.setdefault(read.tensor.op, []).append((op, read))
    single = _used_at_one_place(stages, outputs, planned, costs)
    paths: dict[Operation, int] = {}
    circling: set[Operation] = set()
    for op in stages:
        paths[op] = _paths(op, paths, costs.inlined)
        if any(goes_round(r) or (r.tensor.op in circling and r.tensor.op in costs.inlined) for r in op.reads):
            circling.add(op)
        costs.element[op] = element_cost(op) + sum(
            costs.element[r.tensor.op] for r in op.reads if r.tensor.op in costs.inlined
        )
        if not isinstance(op, Compute) or op.reduction is not None or op in outputs or op.name in planned:
            continue
        sites = costs.readers.get(op, [])
        if paths[op] > MOST_PATHS and not all(is_same_point(*site) for site in sites):
            continue
        if op in circling and any(goes_round(read) for _, read in sites):
            continue  # a choice within each branch of a choice
        if _repeats(op) and any(_terms(reader) >= OFTEN * points(op.axes) for reader, _ in sites):
            continue
        if _most_taps(op, sites) * costs.element[op] > MOST_IN_WINDOWS:
            continue
        once = is_once(*sites[0]) if len(sites) == 1 else _is_in_parts(op, sites) or _is_of_pixels(op, sites)
        if (
            op in again
            or costs.element[op] <= machine.choose("inline", INLINE, op.name)
            or (
                (once or op in single)
                and costs.element[op] <= MOST
                and not _is_wide_term(op, sites)
                and not _is_turned(op, sites)
            )
        ):
            costs.inlined.add(op)
    return costs


def _repeats(op: Compute) -> bool:
    """Whether a row is a few numbers again and again, each of which has to be looked up."""
    lane = op.axes[-1] if op.axes else None
    return any(
        isinstance(n, Apply) and n.fn is Fn.MOD and n.args[0] is lane and 1 < (number(n.args[1]) or 0) <= FEW
        for n in topological(i for r in op.reads for i in r.indices)
    )


def _loops(op: Operation) -> tuple[Axis, ...]:
    """The loops of a stage, those of its result and of its reduction."""
    sums = op.reduction.axes if isinstance(op, Compute) and op.reduction is not None else ()
    return (*getattr(op, "axes", ()), *sums)


def _terms(op: Operation) -> int:
    """Points at which a stage computes something."""
    return points(_loops(op))


def _most_taps(op: Compute, sites: Sequence[tuple[Operation, Read]]) -> int:
    """How often one reader computes an element as its window moves over it."""
    taps: dict[Operation, int] = {}
    for reader, read in sites:
        moved = {n for i in read.indices if not isinstance(i, Axis) for n in topological(i) if isinstance(n, Axis)}
        if moved:
            sums = points([a for a in moved if a.is_reduce])
            terms = _terms(reader) // (points(_fixed(reader, read)) if isinstance(reader, Scatter) else 1)
            taps[reader] = taps.get(reader, 0) + min(sums, max(1, terms // max(1, points(op.axes))))
    return max(taps.values(), default=0)


def _paths(op: Operation, known: Mapping[Operation, int], inlined: AbstractSet[Operation]) -> int:
    """The ways from the values of a stage to what they are made of, with what is inlined."""
    paths: dict[Expr, int] = {}
    for node in op.nodes:
        paths[node] = max(1, sum(paths.get(c, 1) for c in node.children))
        if isinstance(node, Read) and node.tensor.op in inlined:
            paths[node] += known[node.tensor.op]
    return max(paths.values(), default=1)


def _is_wide_term(op: Compute, sites: Sequence[tuple[Operation, Read]]) -> bool:
    """Whether a stage, a term of a sum, is a large window over another one, which is computed row by row beside it."""
    is_term = any(isinstance(reader, Compute) and reader.reduction is not None for reader, _ in sites)
    return is_term and sum(isinstance(r.tensor.op, Compute) and not is_same_point(op, r) for r in op.reads) > WIDE


def _is_turned(op: Compute, sites: Sequence[tuple[Operation, Read]]) -> bool:
    """Whether a stage of several elements along its rows, which are not short, is read across them: each of those
    elements would be loaded lane by lane, where one is once the stage is kept.
    """
    lane = op.axes[-1] if op.axes else None
    if lane is None or (number(lane.extent) or LANES) < LANES:
        return False
    if not any(_last_axis(reader) in _axes_across(read) for reader, read in sites):
        return False
    return sum(bool(r.indices) and lane in set(free_axes(r.indices[-1])) for r in op.reads) > 1


def _last_axis(op: Operation) -> Axis | None:
    axes = getattr(op, "axes", ())
    return axes[-1] if axes else None


def _axes_across(read: Read) -> set[Axis]:
    """The axes that move a read, but not along its rows."""
    return set(free_axes(read.indices[:-1])) - set(free_axes(read.indices[-1:]))


def pays_to_keep(cost: int, times: int) -> bool:
    """Whether an element that is read so many times is dearer to compute each time than to keep in the cache."""
    return cost > INLINE or (times - 1) * cost > LOADS * (times + 1)


def element_cost(op: Operation) -> int:
    """What an element costs, without what is inlined into it; kept with the stage, of which many patterns ask."""
    own = vars(op)
    if _OWN not in own:
        own[_OWN] = sum(map(_cost_of, op.nodes))
    cost: int = own[_OWN]
    return cost


def value_cost(roots: Sequence[Expr]) -> int:
    """What values cost beside the arithmetic of the places at which elements are read; reductions in them nothing."""
    return sum(map(_cost_of, values_of(roots)))


def _used_at_one_place(
    stages: Sequence[Operation], outputs: AbstractSet[Operation], planned: AbstractSet[str], costs: Costs
) -> set[Operation]:
    """The pointwise stages all of whose readers end in one and the same element of one stage: there it is one value."""
    top: dict[Operation, Operation] = {}
    for op in reversed(stages):
        if not is_pointwise(op) or op in outputs or op.name in planned:
            continue
        sites = costs.readers.get(op, [])
        if not all(is_pointwise(r) and r.name not in planned and is_same_point(r, read) for r, read in sites):
            continue
        ends = {top.get(reader, reader) for reader, _ in sites}
        if len(ends) == 1:
            top[op] = ends.pop()
    return set(top)


def is_pointwise(op: Operation) -> bool:
    """Whether a stage has one value for each element and no reduction."""
    return isinstance(op, Compute) and op.reduction is None


def _is_extreme(op: Operation) -> bool:
    """Whether a stage is the largest or smallest of some numbers, which takes no wider ones."""
    reduce = op.reduction if isinstance(op, Compute) else None
    return reduce is not None and reduce.reducer.kind in ("max", "min")


def is_same_point(reader: Operation, read: Read) -> bool:
    """Whether the indices of a read are the reader's axes, in order."""
    axes = getattr(reader, "axes", ())
    return len(axes) == len(read.indices) and all(a is i for a, i in zip(axes, read.indices, strict=True))


def values_of(roots: Sequence[Expr]) -> list[Expr]:
    """What elements are made of, without the places at which they are read."""
    found = dict.fromkeys(roots)
    pending = list(found)
    for node in pending:
        fresh = [c for c in node.children if c not in found] if isinstance(node, Apply) else []
        found.update(dict.fromkeys(fresh))
        pending += fresh
    return list(found)


def _width_of(node: Expr) -> int:
    """The bytes in which a number is computed: narrow floats are float32 then, and so are quotients by what varies."""
    if node.dtype.is_bool or isinstance(node, Const):
        return 1
    is_divided = isinstance(node, Apply) and node.fn in _DIVISIONS and not isinstance(node.args[1], Const)
    plain = node.dtype.is_integer and not is_divided
    return node.dtype.itemsize if plain else max(4, node.dtype.itemsize)


def cheap_components(op: Compute) -> list[int]:
    """The bodies of a pointwise stage that are cheaper than a trip to memory."""
    return [k for k, body in enumerate(op.bodies) if sum(map(_cost_of, topological(body))) <= INLINE]


def shared_of(op: Compute) -> Expr | None:
    """What all bodies of a pointwise stage are made of, where they are cheaper than a trip to memory without it."""
    common = set.intersection(*(set(topological(body)) for body in op.bodies))
    dearest = [n for n in topological(op.bodies) if n in common and isinstance(n, Apply) and n.dtype.is_float]
    if not dearest or len(cheap_components(op)) == len(op.bodies):
        return None
    shared = dearest[-1]
    return shared if all(_cost_beside(body, shared) <= INLINE for body in op.bodies) else None


def _cost_beside(body: Expr, known: Expr) -> int:
    """What an expression costs where a part of it is known."""
    seen = {known}
    total, stack = 1, [] if body is known else [body]
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            total += _cost_of(node)
            stack += node.children
    return total


def _cost_of(node: Expr) -> int:
    if isinstance(node, Apply):
        return 20 if is_costly(node) else 1
    return int(isinstance(node, Read))


def is_costly(node: Apply) -> bool:
    """Whether an operation takes many instructions, or one that takes long."""
    if node.fn is Fn.DIV and isinstance(node.args[1], Const) and math.frexp(abs(node.args[1].value))[0] == 0.5:
        return False  # by a power of two: a product
    if node.fn is Fn.POW and isinstance(node.args[1], Const) and node.args[1].value == 2:
        return False  # a square
    return node.fn in _COSTLY and not node.dtype.is_integer


def is_function(node: Apply) -> bool:
    """Whether it is so costly because it is a function of analysis, many instructions one after another."""
    return is_costly(node) and node.fn not in _DIVISIONS and node.fn not in (Fn.DIV, Fn.SQRT)


def is_once(consumer: Operation, read: Read) -> bool:
    """Whether the consumer reads each element about once: its loops are in the read's indices, and there are not many
    more points of them than elements, as there are of windows that move by less than they are wide, of quotients that
    stay the same while a loop goes on, and of places that are data.
    """
    if isinstance(consumer, Scatter):
        return _is_once_for_lanes(consumer, read)
    if not isinstance(consumer, Compute):
        return False
    loops = set(consumer.axes)
    if consumer.reduction is not None:
        loops |= set(consumer.reduction.axes)
    nodes = topological(read.indices)
    used = {a for a in nodes if isinstance(a, Axis)}
    counts = [[number(e) for e in read.tensor.extents], [number(a.extent) for a in loops]]
    known = [[n for n in count if n is not None] for count in counts]
    if known == counts and math.prod(known[1]) > ABOUT_ONCE * math.prod(known[0]):
        return False
    return all(a in used or number(a.extent) == 1 for a in loops)


def _is_in_parts(op: Compute, sites: Sequence[tuple[Operation, Read]]) -> bool:
    """Whether several readers compute different elements of a stage, as blocks of a sum and what they leave over."""
    if len({reader for reader, _ in sites}) < len(sites) or not all(is_once(*site) for site in sites):
        return False
    if all(number(a.extent) is not None for reader, _ in sites for a in _loops(reader)):
        return sum(_terms(reader) for reader, _ in sites) <= (1 + TWICE) * points(op.axes)
    counts = [_count(axes) for axes in (op.axes, *(_loops(reader) for reader, _ in sites))]
    if any(count is None for count in counts):
        return False
    whole, *parts = counts
    over = number(simplify_extent(sum(parts) - whole))  # type: ignore[arg-type, operator]
    return over is not None and over <= 0


def _is_of_pixels(op: Compute, sites: Sequence[tuple[Operation, Read]]) -> bool:
    """Whether one reader asks for each element once for all that lies at a pixel of its own.

    What is looked up for a few channels has vectors along the pixels, and the channels around each of them.
    """
    (reader, first), *others = sites
    if not isinstance(reader, Compute) or reader.reduction is not None or not reader.looks_up or len(reader.axes) < 2:
        return False
    *outer, last = reader.axes
    if not 1 < (number(last.extent) or 0) <= MOST_CHANNELS or any(other is not reader for other, _ in others):
        return False
    lead = len(outer)
    reads = {first, *(read for _, read in others)}
    if len(op.axes) <= lead or points(op.axes[lead:]) < len(reads):
        return False
    return all(
        all(a is i for a, i in zip(outer, read.indices, strict=False)) and not free_axes(read.indices[lead:])
        for read in reads
    )


def _count(axes: Sequence[Axis]) -> Expr | None:
    """How many points there are of loops, as an expression of sizes."""
    made: Expr = Const(1, INT32)
    for axis in axes:
        if axis.extent is None:
            return None
        made = made * axis.extent
    return made


def _is_once_for_lanes(consumer: Scatter, read: Read) -> bool:
    """Whether a scatter that is computed in vectors reads each element about once, at a tap or side by side."""
    lane = free_dimensions(consumer).get(len(consumer.shape) - 1)
    if lane is None:
        return False
    fixed = set(_fixed(consumer, read))
    used = {a for a in topological(read.indices) if isinstance(a, Axis)}
    at_lane = bool(read.indices) and read.indices[-1] is lane
    return (bool(fixed) or at_lane) and all(a in used | fixed for a in consumer.axes)


def _fixed(consumer: Scatter, read: Read) -> list[Axis]:
    """The short loops of which a read belongs to one iteration."""
    return [a for a in consumer.axes if _is_fixed(a, consumer.read_guards[read])]


def _is_fixed(axis: Axis, guard: Expr) -> bool:
    """Whether a condition holds for one iteration of a short loop."""
    left = set(range(extent)) if (extent := number(axis.extent) or 0) <= MOST_TAPS and not number(axis.begin) else set()
    for part in conjuncts(guard):
        is_other = isinstance(part, Apply) and part.fn is Fn.NOT
        asked = part.args[0] if is_other and isinstance(part, Apply) else part
        if (
            isinstance(asked, Apply)
            and asked.fn is Fn.EQ
            and asked.args[0] is axis
            and isinstance(asked.args[1], Const)
        ):
            left &= left - {asked.args[1].value} if is_other else {asked.args[1].value}
    return len(left) == 1


def points(axes: Sequence[Axis]) -> int:
    """Points of a box, of typical extents where they are not known."""
    return math.prod(typical(a.extent) for a in axes)
