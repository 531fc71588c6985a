"""Which loops Halide may cut into a beginning, a middle and an end, where conditions change their value.

What is inside of a loop that is cut is there up to three times, and is compiled as often.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set

import halide as hl

from schedules.directives import AlwaysPartition, NeverPartition, Split
from schedules.loops import Level
from schedules.machine import Machine
from schedules.placing.places import Placement
from schedules.plan import Plan
from tedsl.analysis.iteration import free_dimensions
from tedsl.analysis.points import is_data_free
from tedsl.analysis.rounds import goes_back, goes_round
from tedsl.backend.lowering.stages import Stage
from tedsl.backend.scheduling.loops import Loops
from tedsl.lang.expr import Apply, Axis, Const, Expr, Fn, Read, Reduce
from tedsl.lang.extents import number
from tedsl.lang.tensor import Compute, Operation, Scatter
from tedsl.lang.traverse import free_axes, topological

__all__ = ["computed_inside", "halves_floats", "joined", "keep_all_whole", "keep_around", "keep_whole"]

TILE = 8  # sums that are written out side by side
MANY = 4  # stages
_DIVISIONS = {Fn.FLOORDIV, Fn.MOD, Fn.RSHIFT, Fn.BITAND}
_ENDS = {Fn.MINIMUM, Fn.MAXIMUM, Fn.CLIP}
LONG = 128  # steps of a sum beside which a masked store is nothing


def keep_all_whole(functions: Iterable[hl.Func]) -> None:
    """Let Halide cut no loop at all."""
    for function in functions:
        function.never_partition_all()
        for k in range(function.num_update_definitions()):
            function.update(k).never_partition_all()


def computed_inside(places: Mapping[str, Placement], stages: Mapping[str, Loops]) -> dict[str, set[Operation]]:
    """The stages that are computed within the loops of each, also those within the loops of such a stage."""
    inside: dict[str, set[Operation]] = {}
    for name, loops in stages.items():
        place = places[name]
        while place.kind == "at" and place.consumer in stages and loops.stage.op not in inside.get(place.consumer, ()):
            inside.setdefault(place.consumer, set()).add(loops.stage.op)
            place = places[place.consumer]
    return inside


def joined(places: Mapping[str, Placement], stages: Mapping[str, Loops], machine: Machine) -> set[str]:
    """Pointwise stages of which many are computed inside the loops of one, and that one.

    Cut, its loops are there three times with all of them. Where vectors have masks, a choice that is one for a row
    takes no longer than none.
    """
    inside: dict[str, list[str]] = {}
    for name, place in places.items() if machine.has_masks else ():
        if place.kind == "at" and place.consumer in stages and _is_pointwise(stages[name].stage.op):
            inside.setdefault(place.consumer, []).append(name)
    return {name for root, members in inside.items() if len(members) >= MANY for name in (root, *members)}


def keep_whole(
    plan: Plan,
    loops: Loops,
    definition: str,
    inlined: Set[Operation],
    inside: Set[Operation] = frozenset(),
    *,
    is_joined: bool = False,
) -> None:
    """Let Halide cut only the loops along the vectors where a condition changes its value.

    `inside`: stages that are computed in its loops.

    Every loop that is cut is there three times, with all that is inside; along axes that are neither vectors nor
    written out a condition is one value for a vector, which is tested as fast as it is left out. So only these are cut
    where their extent is not known, a read goes round or back, or the stage is `joined`.

    So it is where the last vector is masked and several choices hang on conditions. Halide 21 writes the body twice
    then, once with masks, names what is used several times alike in both, and drops a choice in both that is known in
    one of them: it replaces what reads alike. Where such choices hang on the place along the vectors alone, as all may
    in a piece, it does so as it cuts the loop of the vectors itself.
    """
    levels = plan.nest(loops.name, definition).levels
    along = {axis for v in levels if v.kind == "vectorized" for axis in v.origin}
    cut: Collection[Axis | int]
    is_masked = _has_masked_end(plan, levels, loops)
    if is_masked and _has_alike_choices(
        loops.stage, inlined, lambda axes: not along.isdisjoint(axes) and (bool(loops.stage.pieces) or axes <= along)
    ):
        cut = ()
    elif is_masked and _has_alike_choices(loops.stage, inlined, lambda axes: not axes <= along, rounds=True):
        cut = along
    elif any(_is_unknown(axis, loops) for axis in along) or (
        along and (is_joined or _goes_round(loops.stage.op, inlined))
    ):
        cut = along | {axis for v in levels if v.kind == "unrolled" for axis in v.origin}
    else:
        around = list(itertools.takewhile(lambda level: along.isdisjoint(level.origin), levels)) if along else []
        ends = _ends_along(loops.stage, along, inlined | inside) if around else frozenset[Axis]()
        aslant = ends - along
        whole = [v for v in around if not aslant.isdisjoint(v.origin) or (ends and v.kind == "parallel")]
        _partition_never(plan, loops, definition, whole)
        return
    _partition_never(plan, loops, definition, [v for v in levels if v.origin.isdisjoint(cut)])


def _partition_never(plan: Plan, loops: Loops, definition: str, levels: Iterable[Level]) -> None:
    """Let Halide cut none of these loops of which the user says nothing."""
    asked = _asked(plan, loops.name, definition)
    for level in levels:
        if level.name not in asked and level.kind in ("serial", "parallel"):
            loops.definitions[definition].partition(loops.loop(definition, level.name), hl.Partition.Never)


def _ends_along(stage: Stage, along: Set[Axis | int], within: Set[Operation]) -> Set[Axis | int]:
    """The loops, those along the vectors among them, by which along these a place is held at an end, as i and j in
    x[max(j - i, 0)], or a choice changes.

    Halide cuts loops from the outermost in, and those inside of its beginning and its end no more: of a loop like i it
    takes what needs no end for the middle, one iteration, and leaves all others to gather. Of tasks, the last of which
    has fewer rows or the first and the last of which reach beyond the rows, it leaves whole ones to gather.
    """
    found: set[Axis | int] = set()
    pending: list[tuple[Operation, Mapping[Axis, Set[Axis]]]] = [(stage.op, {})]
    seen = set[tuple[Operation, tuple[frozenset[Axis], ...]]]()
    for op, loops in pending:
        reads = [node for node in op.nodes if isinstance(node, Read)]
        indices = topological([index for read in reads for index in read.indices])
        ends: list[Expr] = [node for node in indices if isinstance(node, Apply) and node.fn in _ENDS]
        ends += [node.args[0] for node in op.nodes if isinstance(node, Apply) and node.fn is Fn.SELECT]
        ends += [node.where for node in op.nodes if isinstance(node, Reduce)]
        for end in ends:
            moves = _loops_of(end, loops) if is_data_free((end,)) else frozenset[Axis]()
            if not along.isdisjoint(moves):
                found |= moves
        for read in reads:
            if read.tensor.op in within:
                places = tuple(frozenset(_loops_of(index, loops)) for index in read.indices)
                if (read.tensor.op, places) not in seen:
                    seen.add((read.tensor.op, places))
                    own = _axes_by_dimension(read.tensor.op)
                    pending.append((read.tensor.op, {axis: places[d] for d, axis in own.items()}))
    return found


def _axes_by_dimension(op: Operation) -> Mapping[int, Axis]:
    """The loops of a stage that are its dimensions: of a scatter, which goes through points, the free ones."""
    return free_dimensions(op) if isinstance(op, Scatter) else dict(enumerate(getattr(op, "axes", ())))


def _is_pointwise(op: Operation) -> bool:
    return isinstance(op, Compute) and op.reduction is None


def _has_masked_end(plan: Plan, levels: Sequence[Level], loops: Loops) -> bool:
    """Whether a last vector is not full, as in any of several pieces of a row, and does not begin earlier instead."""
    whole = set() if loops.is_update("body") else _begun_earlier(plan, loops.name, levels)
    in_pieces = {plan.axis_of(loops.name, d.loop) for d in plan.cut_loops(loops.name)} if loops.stage.pieces else set()
    for level in levels:
        if level.kind == "vectorized" and level.origin.isdisjoint(loops.stage.within) and level.name not in whole:
            if not in_pieces.isdisjoint(level.origin):
                return True
            extents = [loops.stage.op.outputs[0].extents[a] if isinstance(a, int) else a.extent for a in level.origin]
            sizes = [number(extent) for extent in extents]
            if level.known is None or None in sizes or math.prod(n or 0 for n in sizes) % level.known:
                return True
    return False


def _begun_earlier(plan: Plan, stage: str, levels: Sequence[Level]) -> set[str]:
    """The vectors of a stage that are all full, as the last ones are moved inwards."""
    splits = {d.inner: d for s in plan.loops.get((stage, "body"), ()) if isinstance(d := s.directive, Split)}
    vectors = {v.name for v in levels if v.kind == "vectorized"}
    return {name for name, d in splits.items() if name in vectors and d.tail == "shift"}


def _has_alike_choices(
    stage: Stage, inlined: Collection[Operation], concerns: Callable[[Set[Axis]], bool], *, rounds: bool = False
) -> bool:
    """Whether a choice by conditions on loops may be named in parts, of those by axes that it `concerns`.

    So it may with another one like it, or with one of its values used elsewhere; those of stages computed inside count
    as often as these are read, each by the loops of the stage that its own stand for there. What a piece has decided is
    no choice in it. With `rounds` a place that goes round counts as one.
    """
    bodies = stage.boxes or (stage.op.expressions,)
    return any(_are_alike(topological(body), inlined, concerns, rounds=rounds) for body in bodies)


def _are_alike(
    body: Sequence[Expr], inlined: Collection[Operation], concerns: Callable[[Set[Axis]], bool], *, rounds: bool
) -> bool:
    choices, is_shared = 0, False
    pending: list[tuple[Sequence[Expr], Mapping[Axis, Set[Axis]]]] = [(body, {})]
    for nodes, loops in pending:
        reads = [node for node in nodes if isinstance(node, Read)]
        conditions = [node.args[0] for node in nodes if isinstance(node, Apply) and node.fn is Fn.SELECT]
        conditions += [node.where for node in nodes if isinstance(node, Reduce)]
        conditions += [read.indices[-1] for read in reads if rounds and _turns(read)]
        choices += sum(is_data_free((c,)) and concerns(_loops_of(c, loops)) for c in conditions)
        uses = Counter(child for node in nodes for child in node.children)
        is_shared = is_shared or any(uses[read] > 1 for read in reads)
        if choices > 1 or (choices and is_shared):
            return True
        for read in reads:
            if read.tensor.op in inlined:
                own = getattr(read.tensor.op, "axes", ())
                places = [_loops_of(index, loops) for index in read.indices]
                pending.append((read.tensor.op.nodes, dict(zip(own, places, strict=True))))
    return False


def _loops_of(e: Expr, loops: Mapping[Axis, Set[Axis]]) -> Set[Axis]:
    """The loops that the axes in an expression stand for: themselves, or those of the places at which it is read."""
    return {loop for axis in free_axes(e) for loop in loops.get(axis, {axis})}


def _turns(read: Read) -> bool:
    """Whether a read is in loops of its own but for the ends of rows, where it goes round or back."""
    return goes_round(read) or goes_back(read)


def _goes_round(op: Operation, inlined: Collection[Operation]) -> bool:
    """Whether a read of a stage goes round or back, or one of what is computed inside."""
    seen, pending = {op}, [op]
    for reader in pending:
        if any(map(_turns, reader.reads)):
            return True
        further = {read.tensor.op for read in reader.reads if read.tensor.op in inlined} - seen
        seen |= further
        pending += further
    return False


def halves_floats(stage: Stage, inlined: Collection[Operation]) -> bool:
    """Whether floats are computed at places, or under conditions, in which loops are divided."""
    pending: list[Operation] = [stage.op]
    nodes = list(topological([e for box in stage.boxes for e in box]))
    for op in pending:
        nodes += op.nodes
        pending += {read.tensor.op for read in op.reads if read.tensor.op in inlined}.difference(pending)
    divided = (node for node in nodes if isinstance(node, Apply) and node.fn in _DIVISIONS)
    return any(node.dtype.is_float for node in nodes) and any(free_axes(node) for node in divided)


def _asked(plan: Plan, stage: str, definition: str) -> set[str]:
    """The loops of which the user says whether they are cut."""
    said = (step.directive for step in plan.loops.get((stage, definition), ()))
    return {d.loop for d in said if isinstance(d, (NeverPartition, AlwaysPartition))}


def keep_around(plan: Plan, place: Placement, loops: Loops, stages: Mapping[str, Loops]) -> None:
    """Let Halide cut no loop around a tile of sums for the last tile, where nothing is saved there.

    Cut, all the sums are there twice. A copy of the tile by loops ends where the result does. One that is written out
    stores the last vectors under masks, which is nothing beside long sums; but sums that are not stored are not
    computed, so the last tile must fill its vectors, and the loops over rows are cut.
    """
    consumer = stages.get(place.consumer)
    if place.kind != "at" or consumer is None or not loops.is_update("body"):
        return
    levels = plan.nest(loops.name, "body").levels
    if math.prod(v.known or 1 for v in levels if v.kind == "unrolled") < TILE:
        return
    long = math.prod(v.known or LONG for v in levels if v.carried != "free") >= LONG
    definition = plan.definition(place.consumer, place.loop)
    nest = plan.nest(place.consumer, definition)
    around = nest.position(place.loop) + 1
    tile = nest.levels[around:]
    by_loops = all(v.kind != "unrolled" for v in tile)
    for level in nest.levels[:around]:
        if level.name in _asked(plan, place.consumer, definition):
            continue
        whole = by_loops or (long and all(_fills_vectors(axis, tile) for axis in level.origin))
        if whole and level.kind in ("serial", "parallel"):
            consumer.definitions[definition].partition(consumer.loop(definition, level.name), hl.Partition.Never)


def _fills_vectors(axis: Axis | int, tile: Sequence[Level]) -> bool:
    """Whether vectors lie along an axis, and the last tile has as many of them as the others."""
    within = [v for v in tile if axis in v.origin]
    vector = math.prod(v.known or 1 for v in within if v.kind == "vectorized")
    if isinstance(axis, int) or not isinstance(axis.extent, Const) or vector == 1:
        return False
    lanes = math.prod(v.known or 1 for v in within)
    rest = int(axis.extent.value) % lanes
    return rest == 0 or rest > lanes - vector


def _is_unknown(axis: Axis | int, loops: Loops) -> bool:
    """Whether the extent of an axis, or of a dimension of the result, is not a number."""
    extent = loops.stage.op.outputs[0].extents[axis] if isinstance(axis, int) else axis.extent
    return not isinstance(extent, Const)
