"""Loops of everything that is no contraction: vectors along memory, rows together, threads where they pay."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence, Set as AbstractSet
from dataclasses import field

from schedules.cases import condition_text, position_text
from schedules.default.costs import MOST_CHANNELS, Costs, points
from schedules.default.groups import Group, groups_of
from schedules.default.neighbors import along, period
from schedules.default.patterns.border_strips import strips_of, whole_copies
from schedules.default.patterns.breaks import changes_along, cuts_of
from schedules.default.patterns.feeding import Fed, Feeding
from schedules.default.patterns.phases import phases_of
from schedules.default.patterns.row_borders import row_borders
from schedules.default.patterns.switches import asked_by, pays_by_cases
from schedules.default.patterns.window_tiles import window_tile
from schedules.default.rewriting import Rewriting, fused, loop_names
from schedules.default.shares import share_of
from schedules.directives import (
    BoundExtent,
    ComputeAt,
    ComputeInline,
    ComputeRoot,
    CutAt,
    Definition,
    Directive,
    LoopDirective,
    Parallel,
    Reorder,
    Specialize,
    Split,
    Unroll,
    Unswitch,
    Vectorize,
)
from schedules.loops import nest_of, transformed
from schedules.machine import Machine
from schedules.placing.row_ends import may_lie_on
from schedules.plan import Plan
from schedules.sizes import typical
from tedsl.analysis.sizes import vars_of
from tedsl.lang import functions as fn
from tedsl.lang.dataclass import dataclass
from tedsl.lang.expr import Apply, Axis, Expr, Fn, Read, Var
from tedsl.lang.extents import number
from tedsl.lang.tensor import Compute, Operation
from tedsl.lang.traverse import conjuncts, free_axes, reads_of

__all__ = ["GroupLoops", "plan_nests", "windows_alone"]

TASKS = 8  # for each core
LONGEST_TASK = 1 << 20  # iterations: there may be fewer of them than sizes that are not known let expect
MOST_UNROLLED = 32
LONG_ELEMENT = 64  # operations of a narrow element, whole vectors of which are several vectors of each operation
LONG_TERM = 128  # operations of a term of a sum, few of which are computed at once
CHOICE = 100  # operations that take as long to compile as a step that finds a position, or one of several results
LONG_STEP = 8  # operations of a step, around which a loop takes little time if steps have nothing in common
MOST_WRITTEN = 512  # operations of the steps that are written out: for more, what a loop costs does not count
FEW_UNROLLED = 4  # where each step has to look for the end of a row that may be anywhere
ROWS, COLUMNS = 8, 2048  # of a reduction along columns, at a time
LEAST_ROWS, TERMS_TOGETHER = 2, 64  # fewer of them where their terms are so many operations
ROWS_ALIKE = 4  # that are divided by the same numbers
SHORT_ROW = 128  # elements
LEAST_WITHIN = 64  # operations in an iteration of loops made one: quotients by sizes that are not known tell its place
FULL_ROWS = 4  # vectors of narrow results in a row: the end of a shorter one counts
MOST_LANES = 16  # vectors of partial results
PIECE = 64  # elements of a row of a result of which short rows are turned in one piece
MOST_APART = 16  # lanes that are loaded one by one, each from a line of its own
MOST_WRITTEN_OUT = 16  # elements
MOST_STEP, MOST_STEP_APART = 4, 7  # elements between the lanes of a vector, with masks and without
APART = 20  # operations of an element, of which full vectors take less time though they are loaded and stored apart
LOOKUP = 40  # operations in the time in which the lanes of an index that is data are taken out one by one


def plan_nests(rw: Rewriting, outputs: AbstractSet[Operation], costs: Costs, machine: Machine, plan: Plan) -> None:
    """Directives for every stage of a plan that has none."""
    rw.directives += [ComputeInline(stage=op.name) for op in rw.stages if op in costs.inlined]
    feeding = Feeding(rw, outputs, costs, machine)
    tiled = {op for op in rw.stages if rw.kinds.get(op.name) == "tiled"}  # by rows, tiles would share nothing
    for group in groups_of(rw.stages, outputs | tiled, rw.planned, costs, machine):
        GroupLoops(rw, group, costs, machine, plan).give(feeding)
    rw.directives += whole_copies(rw, rw.strips, machine)


def windows_alone(rw: Rewriting, outputs: AbstractSet[Operation], costs: Costs, machine: Machine) -> set[Operation]:
    """Copies of windows that would be summed in memory; where these are stored, a row is summed in the cache.

    Those of large ones, and those that a product reads row by row.
    """
    if not any(kind == "window" for kind in rw.kinds.values()):
        return set()
    groups = groups_of(rw.stages, outputs, rw.planned, costs, machine)
    alone = {g.root for g in groups if not g.members and rw.kinds.get(g.root.name) == "window"}
    feeding = Feeding(rw, outputs, costs, machine)
    found: set[Operation] = set()
    for window in alone:
        large = points(window.axes) * window.bodies[0].dtype.itemsize > machine.l2
        copies = [r for r, _ in costs.readers[window] if r in costs.inlined and isinstance(r, Compute)]
        found.update(r for r in copies if large or feeding.place(r, threads=machine.cores > 1) is not None)
    return found


@dataclass
class GroupLoops:
    """The loops of one group."""

    rw: Rewriting
    group: Group
    costs: Costs
    machine: Machine
    plan: Plan
    phases: Mapping[Axis, int] = field(default_factory=dict)  # of the root's loops, where it chooses by remainders
    cut: set[Axis] = field(default_factory=set)  # loops of the root that are in pieces
    whole: AbstractSet[Axis] = frozenset()  # loops of members that go over all of an axis, wherever these are computed
    abreast: dict[Operation, int] = field(default_factory=dict)  # vectors of sums in registers, where these are several

    def say(self, *directives: Directive) -> None:
        self.rw.directives += directives

    def give(self, feeding: Feeding) -> None:
        root = self.group.root
        padded = self.rw.kinds.get(root.name) == "padded"
        cuts: Mapping[Axis, Sequence[Expr]] = {}
        if not (padded or self.group.members or root.reduction is not None or self._short(root)):
            loops = set(root.axes).difference((self._vector_axis(root, 0),))
            self.phases = self.costs.twins.ask(root, phases_of, loops)
            cuts = self._cuts(root)
        fed = None if self.phases or cuts else self._fed(feeding)
        self.say(*([ComputeRoot(stage=root.name)] if fed is None else self._placed(fed)))
        if self._in_tiles(fed):
            return
        if fed is not None:
            self._inner(root, self.group.depth)
            self._members(loop_names(root)[root.axes[self.group.depth - 1]] if self.group.members else "")
            return
        if padded:
            self._whole(root)
        self._cut_loops(root, cuts)
        if not self.group.members and not padded:
            self._by_cases(root, self._vector_axis(root, 0))
        self._members(self._root_loops(root))
        self._by_sizes(root)

    def _by_sizes(self, root: Compute) -> None:
        """Loops of their own where sizes are as they usually are, if they decide what the group computes."""
        conditions, sizes = sizes_asked((root, *self.group.members), self.costs.inlined), self.plan.sizes
        if conditions and all(sizes.get(v.name) is v for c in conditions for v in vars_of(c)):
            text = condition_text(functools.reduce(fn.logical_and, conditions), sizes)
            self.say(Specialize(stage=root.name, condition=text))

    def _members(self, at: str) -> None:
        """The stages that are computed inside the root, most of them at one of its loops."""
        root = self.group.root
        for member in self.group.members:
            depth = self.group.deeper.get(member, self.group.depth)
            loop = at if depth == self.group.depth else loop_names(root)[root.axes[depth - 1]]
            self.say(ComputeAt(stage=member.name, consumer=root.name, loop=loop))
            self._inner(member, depth)

    def _fed(self, feeding: Feeding) -> Fed | None:
        """Where the group is computed for a product that reads it row by row."""
        root = self.group.root
        if self.rw.kinds.get(root.name) not in (None, "tiled") or self._short(root) or not root.axes:
            return None
        threads = self.machine.cores > 1 and self._work() >= self.machine.least.nest_threads
        return feeding.place(root, threads=threads)

    def _placed(self, fed: Fed) -> list[Directive]:
        """The root at a loop of the product that reads it, over all of an axis where it is over all of it there."""
        root, names = self.group.root, loop_names(self.group.root)
        whole = [a for a, count in zip(root.axes, fed.counts, strict=True) if count == number(a.extent)]
        self.whole = {*self.whole, *whole}
        bounds = [BoundExtent(stage=root.name, axis=names[a], extent=number(a.extent) or 0) for a in whole]
        return [ComputeAt(stage=root.name, consumer=fed.product, loop=fed.loop), *bounds]

    def _in_tiles(self, fed: Fed | None) -> bool:
        """Loops of a window over rows of channels; False for any other group."""
        root, members = self.group.root, self.group.members
        width = self._width(members[0]) if members else 0
        tile = window_tile(self.rw, self.group, self.costs, self.machine, width)
        if tile is None:
            return False
        within = () if fed is None else fed.task_counts
        strips = strips_of(self.rw, members[0], root, self.costs, self.machine, within)
        directives, loops = tile.of_root(root, 0 if strips is None or fed is not None else strips.height)
        self.say(*directives, *tile.of_window(members[0], root, loops[-1]))
        if strips is not None:
            self.rw.strips.append(strips)
        if fed is not None:
            self.say(*(strips.directives(fed.product, fed.task, self.machine) if strips is not None else ()))
            return True
        threads = self.machine.cores > 1 and self._work() >= self.machine.least.nest_threads
        outer, count = len(loops) - (2 if strips is None else 3), points(root.axes[:-2])
        if outer == 0 or (strips is None and count < TASKS * self.machine.cores):
            outer, count = outer + 1, count * -(-points(root.axes[-2:-1]) // tile.pixels)
        fusing, (task,) = fused(root.name, loops[:outer], "f")
        self.say(*fusing)
        if strips is not None:
            self.say(*([Parallel(stage=root.name, loop=task)] if threads else []))
            self.say(*strips.directives(root.name, task, self.machine))
            return True
        self._tasks(root, task, count, threads=threads)
        return True

    def _cuts(self, root: Compute) -> dict[Axis, list[Expr]]:
        """Pieces of a stage that reads other tensors, or goes round, in parts of its loops."""
        cuts = self.costs.twins.ask(root, cuts_of, self.machine, self.phases.keys())
        row = self._vector_axis(root, 0)
        if row is not None and row not in cuts and self._needs_borders(root, row):
            at = self.costs.twins.ask(root, row_borders, row, self._width(root), self.machine)
            cuts.update({row: at} if at else {})
        shared = self._around(root, row)
        if shared is not None:
            cuts.pop(shared, None)  # each piece would compute what they share again
        sizes = self._sizes_in(cuts)
        return cuts if all(sizes.get(v.name) is v for at in cuts.values() for p in at for v in vars_of(p)) else {}

    def _needs_borders(self, root: Compute, row: Axis) -> bool:
        """Whether the last vector of a row may not be full; without masks it begins earlier where that is known."""
        is_open = self.machine.has_masks or number(row.extent) is None
        return is_open or self.costs.twins.ask(root, pays_by_cases, row, self.machine)

    def _sizes_in(self, cuts: Mapping[Axis, Sequence[Expr]]) -> Mapping[str, Var]:
        return self.plan.sizes if any(vars_of(p) for at in cuts.values() for p in at) else {}

    def _cut_loops(self, root: Compute, cuts: Mapping[Axis, Sequence[Expr]]) -> None:
        sizes, names = self._sizes_in(cuts), loop_names(root)
        for axis, at in cuts.items():
            texts = tuple(position_text(p, sizes) for p in at)
            self.say(CutAt(stage=root.name, loop=names[axis], positions=texts))
            self.cut.add(axis)

    def _by_cases(self, op: Compute, vector: Axis | None) -> None:
        """Cases along the vectors, unless they hang on a loop that is written out, where what it chooses is decided."""
        if vector is None or not self.costs.twins.ask(op, pays_by_cases, vector, self.machine):
            return
        written = {*self.phases, self._around(op, vector)}
        if written.isdisjoint(self.costs.twins.ask(op, asked_by, vector)):
            self.say(Unswitch(stage=op.name, loop=loop_names(op)[vector]))

    # ------------------------------------------------------------------------------------------- the root's loops

    def _work(self) -> int:
        total = 0
        for op in (self.group.root, *self.group.members):
            reduce = op.reduction
            cost = self.costs.in_pieces(op) if op is self.group.root and self.cut else self.costs.element[op]
            total += points((*op.axes, *(reduce.axes if reduce is not None else ()))) * max(1, cost)
        return total

    def _root_loops(self, root: Compute) -> str:
        """Loops of the root; the name of the one at which the members are computed."""
        names, depth = loop_names(root), self.group.depth
        axes = list(root.axes)
        blocks = self.rw.kinds.get(root.name) == "blocks"
        threads = self.machine.cores > 1 and (blocks or self._work() >= self.machine.least.nest_threads)
        threads = threads and not (self.rw.kinds.get(root.name) == "partial" and len(axes) == 1)
        short = self._short(root)
        vector = None if short else self._vector_axis(root, depth)
        if vector is not None and self._is_down(root, vector):
            return self._down(root, names, vector, threads=threads)
        order = [names[a] for a in axes]
        across = self._across(root, vector) if depth == 0 and self._narrow(root, vector) is None else None
        if across is not None and root.name not in self.rw.widths:
            # Halide loads short rows as vectors that reach across several of them: shuffles of few take less time.
            most = MOST_APART // 2 if self._is_in_pieces(across) else MOST_APART
            self.rw.widths[root.name] = min(self._width(root), most)
        inner = self._cut(root, "body", vector, order)
        if short:
            inner, rows = self._unrolled_rows(root, short), set(short)
            names = {a: f"{n}_o" if a in rows else n for a, n in names.items()}
            order = [names[a] for a in axes]
        if root.reduction is not None:
            self._cut(root, "init", vector, [names[a] for a in axes])
        if not axes:
            self._order(root, [], inner, vector)
            return ""
        if across is not None and vector is not None and inner:
            return self._turned(root, names, across, vector, order, inner, threads=threads)
        together = self._together(root, vector) if depth == 0 and inner else None
        if together is not None:
            inner = self._side_by_side(root, names[together], order, inner)
            names = {**names, together: f"{names[together]}_o"}
        inner, names = self._phases_apart(root, names, order, inner)
        outer = self._outer(axes, depth, vector)
        length = self._length_of_pieces(root, outer) if depth == 0 else 1
        if length > 1:
            names = self._pieces(root, names, outer[-1], order, length)
        within = self._short_rows(root, depth)  # loops of rows that stay within a task
        outer = outer[: len(outer) - len(within)]
        loops = [names[a] for a in outer]
        rest = [n for n in order if n not in loops]
        if not loops and rest:
            loops, rest = rest[:1], rest[1:]
            outer_points = self._vectors(vector)
        else:
            alike = 1 if together is None or together not in set(outer) else ROWS_ALIKE
            outer_points = points(outer) // math.prod(
                [alike, length, *(n for a, n in self.phases.items() if a in set(outer))]
            )
            if outer_points == 1 and depth == 0 and rest:
                loops, rest = [*loops, rest[0]], rest[1:]
                outer_points = self._vectors(vector)
        around = self._around if depth == 0 else self._narrow
        shared = around(root, vector) if inner and not short else None
        if shared is not None and shared is not together and shared not in self.phases:
            # What its iterations share is computed once: it runs around each vector.
            name = names[shared]
            written = self._written_out(root, shared, inner)
            last, inner = [name] if written is inner else [], written
            loops, rest = [n for n in loops if n != name], [*(n for n in rest if n != name), *last]
            if not loops:
                loops, rest = rest[:1], rest[1:]
            outside = [a for a in axes if names[a] in loops]
            outer_points = points(outside) if outside else self._vectors(vector)
        self._order(root, [*loops, *rest], inner, vector)
        fusing, (task,) = fused(root.name, loops, "f")
        self.say(*fusing)
        if within:
            self._tasks(root, task, outer_points, threads=threads)
            return names[within[-1]]
        return self._tasks(root, task, outer_points, threads=threads)

    def _length_of_pieces(self, root: Compute, outer: Sequence[Axis]) -> int:
        """In pieces of which length the last of the loops goes that become one; 1 where it need not be cut."""
        if len(outer) < 2 or root.reduction is not None or number(outer[-1].extent) is not None:
            return 1
        work = points(root.axes[len(outer) :]) * max(1, self.costs.element[root])
        return PIECE if work < LEAST_WITHIN and outer[-1] not in self.phases else 1

    def _pieces(
        self, root: Compute, names: dict[Axis, str], axis: Axis, order: list[str], length: int
    ) -> dict[Axis, str]:
        """A loop in pieces, each with one place to find among the loops that become one."""
        name = names[axis]
        piece, inside = _free(root, f"{name}_p"), _free(root, f"{name}_i")
        self.say(Split(stage=root.name, loop=name, outer=piece, inner=inside, factor=length, tail="guard"))
        order[order.index(name) : order.index(name) + 1] = [piece, inside]
        return {**names, axis: piece}

    def _short_rows(self, root: Compute, depth: int) -> list[Axis]:
        """The last loop at which members are computed, where rows are so short that their place costs as much."""
        if depth < 2 or points(root.axes[depth:]) > SHORT_ROW or not all(number(a.extent) for a in root.axes):
            return []
        enough = points(root.axes[: depth - 1]) >= TASKS * self.machine.cores
        return [root.axes[depth - 1]] if enough else []

    def _tasks(self, root: Compute, task: str, outer_points: int, *, threads: bool) -> str:
        """The loop over what is done by one thread after another, shared out; the innermost of its parts."""
        blocks = self.rw.kinds.get(root.name) == "blocks"
        if not threads:
            return task
        tasks = self.machine.choose("tasks", TASKS, root.name)
        shares = "" if blocks else self._shares(root, task, tasks * self.machine.cores)
        if shares:
            return self._shared_out(root, task, shares)
        chunk = 1 if blocks else min(-(-outer_points // (tasks * self.machine.cores)), LONGEST_TASK)
        if chunk > 1:
            return self._shared_out(root, task, chunk)
        self.say(Parallel(stage=root.name, loop=task))
        return task

    def _shared_out(self, root: Compute, loop: str, chunk: int | str) -> str:
        """A loop in parts for threads; the loop within a part."""
        nest = nest_of(root.name, root, "body")
        outer, inner = nest.fresh("task"), nest.fresh("row")
        factor, length = (chunk, "") if isinstance(chunk, int) else (1, chunk)
        self.say(Split(stage=root.name, loop=loop, outer=outer, inner=inner, factor=factor, length=length))
        self.say(Parallel(stage=root.name, loop=outer))
        return inner

    def _shares(self, root: Compute, loop: str, tasks: int) -> str:
        """How many iterations of a loop of unknown length are a task, each worth waking a thread."""
        said = (d for d in self.rw.directives if d.stage == root.name and isinstance(d, LoopDirective))
        nest = nest_of(root.name, root, "body")
        nest = functools.reduce(transformed, (d for d in said if d.definition == "body"), nest)
        sums = root.reduction.axes if root.reduction is not None else ()
        work = max(1, self._work() // points((*root.axes, *sums)))
        return share_of(nest, loop, tasks, self.machine.least.nest_threads // 2 // work)

    def _short(self, root: Compute) -> list[Axis]:
        """Last axes that fill no vector, at each place of which something else is read: they are written out."""
        if root.reduction is not None or self.group.members or root.name in self.rw.kinds:
            return []
        found: list[Axis] = []
        for axis in root.axes[::-1]:
            extent = number(axis.extent)
            if extent is None or extent * points(found) > MOST_WRITTEN_OUT:
                break
            found.append(axis)
        others = [a for a in root.axes if a not in set(found)]
        if not found or (number(found[0].extent) or 0) >= self._width(root) or points(others) < TASKS * TASKS:
            return []
        return found if changes_along(root, found) else []

    def _unrolled_rows(self, root: Compute, short: Sequence[Axis]) -> list[str]:
        """Whole loops unrolled; their names from the outermost to the innermost."""
        names = [loop_names(root)[a] for a in short]
        for name, axis in zip(names, short, strict=True):
            extent = number(axis.extent) or 1
            self.say(
                Split(stage=root.name, loop=name, outer=f"{name}_o", inner=f"{name}_i", factor=extent, exact=True),
                Unroll(stage=root.name, loop=f"{name}_i"),
            )
        return [f"{n}_i" for n in names[::-1]]

    def _is_down(self, root: Compute, vector: Axis) -> bool:
        """Whether long columns are reduced, all of them side by side in memory."""
        if root.reduction is None or self.group.members or not along(root, vector):
            return False
        if self.rw.kinds.get(root.name) == "partial":  # a few vectors, in registers
            return False
        rows, columns = number(root.reduction.axes[-1].extent), number(vector.extent)
        if rows is None or columns is None:
            return False
        return rows >= self.machine.least.column_rows and columns >= 2 * self._width(root)

    def _down(self, root: Compute, names: dict[Axis, str], vector: Axis, *, threads: bool) -> str:
        """A few rows at a time, each a stream through memory; the results so far stay in the first cache."""
        assert root.reduction is not None
        self._cut(root, "init", vector, [names[a] for a in root.axes])
        name, sums = names[vector], [names[a] for a in root.reduction.axes]
        width, extent = self._width(root), number(vector.extent) or 1
        others = [names[a] for a in root.axes if a is not vector]
        is_shared = threads and points([a for a in root.axes if a is not vector]) < self.machine.cores
        share = -(-extent // self.machine.cores) if is_shared else extent
        most = self.machine.choose("columns", COLUMNS, root.name)
        block = width * -(-max(1, min(share, most)) // width)
        task, inside, outer, lane = (_free(root, f"{name}_{end}") for end in "tbov")
        row, rounds = (_free(root, f"{sums[-1]}_{end}") for end in "io")
        rows = self.machine.choose("rows", self._rows_together(root), root.name)
        self.say(
            Split(stage=root.name, loop=name, outer=task, inner=inside, factor=block),
            Split(stage=root.name, loop=inside, outer=outer, inner=lane, factor=width),
            Vectorize(stage=root.name, loop=lane),
            Split(stage=root.name, loop=sums[-1], outer=rounds, inner=row, factor=rows),
            Unroll(stage=root.name, loop=row),
        )
        steps = [*sums[:-1], rounds]
        self.say(Reorder(stage=root.name, loops=(*others, task, *steps, outer, row, lane)))
        fusing, (whole,) = fused(root.name, [*others, task], "f")
        self.say(*fusing)
        if threads:
            self.say(Parallel(stage=root.name, loop=whole))
        return whole

    def _rows_together(self, root: Compute) -> int:
        """How many rows are added to a vector of the results at once: fewer where a term takes longer than to bring and
        store what is added to, and as many as leave no rest, which would be there once more."""
        assert root.reduction is not None
        usual = max(LEAST_ROWS, min(ROWS, TERMS_TOGETHER // max(1, self.costs.element[root])))
        extent = number(root.reduction.axes[-1].extent) or usual
        near = (*range(usual, usual + usual // 4 + 1), *range(usual - 1, usual // 2, -1))
        return next((n for n in near if extent % n == 0), usual)

    def _written_out(self, root: Compute, axis: Axis, inner: list[str]) -> list[str]:
        """The loops inside, and around them a short one that is written out: what chooses by it is decided then."""
        name, extent = loop_names(root)[axis], number(axis.extent) or 0
        if extent > FEW_UNROLLED:
            return inner
        self.say(
            Split(stage=root.name, loop=name, outer=f"{name}_o", inner=f"{name}_u", factor=extent, exact=True),
            Unroll(stage=root.name, loop=f"{name}_u"),
        )
        return [f"{name}_o", f"{name}_u", *inner]

    def _together(self, root: Compute, vector: Axis | None) -> Axis | None:
        """The rows whose elements are divided by the same numbers, those of their columns."""
        if root.reduction is not None or vector is None or len(root.axes) < 2:
            return None
        rows = root.axes[-2]
        extent = number(rows.extent)
        whole = extent is not None and extent % ROWS_ALIKE == 0 and extent > ROWS_ALIKE
        return rows if whole and self.costs.divides_alike(root, rows, vector) else None

    def _side_by_side(self, root: Compute, name: str, order: list[str], inner: list[str]) -> list[str]:
        """A few rows for each vector: one reciprocal of what all of them are divided by."""
        rows = f"{name}_i"
        self.say(
            Split(stage=root.name, loop=name, outer=f"{name}_o", inner=rows, factor=ROWS_ALIKE, exact=True),
            Unroll(stage=root.name, loop=rows),
        )
        order[order.index(name)] = f"{name}_o"
        return [rows, *inner]

    def _phases_apart(
        self, root: Compute, names: dict[Axis, str], order: list[str], inner: list[str]
    ) -> tuple[list[str], dict[Axis, str]]:
        """A copy of the body for each phase of a loop, around its vectors."""
        copies = []
        for axis, count in self.phases.items() if inner else ():
            name, exact = names[axis], (number(axis.extent) or 0) % count == 0
            outer, phase = f"{name}_q", f"{name}_r"
            tail = "" if exact else "guard"
            self.say(
                Split(stage=root.name, loop=name, outer=outer, inner=phase, factor=count, exact=exact, tail=tail),
                Unroll(stage=root.name, loop=phase),
            )
            order[order.index(name)] = outer
            names = {**names, axis: outer}
            copies.append(phase)
        return [*copies, *inner], names

    def _across(self, root: Compute, vector: Axis | None) -> Axis | None:
        """The loop along which a read lies in memory, where that is not the loop of the vectors: a transposition."""
        if root.reduction is not None or vector is None:
            return None
        for read in root.reads:
            if not read.indices or reads_of(read.indices):
                continue
            own = set(free_axes(read.indices[-1]))
            if vector not in own and vector in {a for i in read.indices[:-1] for a in free_axes(i)}:
                # Longer rows begin so far from each other that a piece of one of short ones could stay in no cache.
                is_short = (number(read.tensor.extents[-1]) or PIECE) < self.machine.least.across
                least = self.machine.least.short_across if is_short else self.machine.least.across
                last = [a for a in free_axes(read.indices[-1]) if typical(a.extent) >= max(2, least)]
                if last:
                    return last[-1]
        return None

    def _turned(
        self, root: Compute, names: dict[Axis, str], across: Axis, vector: Axis, order: list[str], inner: list[str],
        *, threads: bool,
    ) -> str:  # fmt: skip
        """Tiles of a vector by sixteen, so that every line of memory that is touched is used up.

        Of short rows all is in one piece: a few vectors for each of their elements are written side by side.
        """
        name, width = names[across], self._width(root)
        axes = {names[a]: a for a in root.axes}
        columns = next(n for n in order if n not in axes)
        units = [n for n, a in axes.items() if number(a.extent) == 1 and n in order]
        rest = [n for n in order if n not in (name, columns, *units)]
        if self._is_in_pieces(across):
            piece, vectors, length = f"{columns}_p", f"{columns}_q", max(1, PIECE // width)
            self.say(
                Split(stage=root.name, loop=columns, outer=piece, inner=vectors, factor=length),
                Reorder(stage=root.name, loops=(*rest, piece, *units, name, vectors, *inner)),
            )
            columns, length = piece, length * width
        else:
            rows, extent, length = self.machine.choose("turned", 16, root.name), number(across.extent), width
            whole = extent is not None and extent % rows == 0
            self.say(Split(stage=root.name, loop=name, outer=f"{name}_o", inner=f"{name}_i", factor=rows, exact=whole))
            self.say(Reorder(stage=root.name, loops=(*rest, columns, *units, f"{name}_o", f"{name}_i", *inner)))
        count = points([axes[rest[0]]]) if rest else -(-points([vector]) // length)
        return self._tasks(root, [*rest, columns][0], count, threads=threads)

    def _is_in_pieces(self, across: Axis) -> bool:
        """Whether a row that is turned is so short that a piece of many of them is in the cache."""
        extent = number(across.extent)
        return extent is not None and extent < self.machine.least.across

    def _vectors(self, vector: Axis | None) -> int:
        extent = None if vector is None else number(vector.extent)
        return 1024 if extent is None else -(-extent // self._width(self.group.root))

    def _outer(self, axes: Sequence[Axis], depth: int, vector: Axis | None) -> list[Axis]:
        """The loops that are shared out among threads: those of the group, else as many as give enough tasks."""
        if depth:
            return list(axes[:depth])
        chosen: list[Axis] = []
        for axis in axes:
            known = [number(a.extent) or 1 for a in chosen]  # others may turn out to be 1
            if axis is vector or (chosen and math.prod(known) >= TASKS * self.machine.cores):
                break
            chosen.append(axis)
        return chosen

    # ----------------------------------------------------------------------------------- vectors and inner loops

    def _width(self, op: Compute) -> int:
        most = max(1, self.machine.vector_bytes // self.costs.lane_bytes(op, has_masks=self.machine.has_masks))
        narrow = max(t.dtype.itemsize for t in op.outputs)
        is_long = self.costs.element[op] > LONG_ELEMENT
        if op.reduction is None and len(op.axes) and not is_long and narrow * most < self.machine.vector_bytes:
            full = self.machine.vector_bytes // narrow  # whole vectors are written, of several that are computed
            extent = number(op.axes[-1].extent)
            most = full if extent is None or extent >= FULL_ROWS * full else most
        return self.rw.widths.get(op.name, most)

    def _longer(self, op: Compute, depth: int = 0) -> list[Axis]:
        """The loops over the result, from `depth` on, that go over more than one element."""
        return [a for a in op.axes[depth:] if number(a.extent) != 1]

    def _vector_axis(self, op: Compute, depth: int) -> Axis | None:
        """The axis of the result along which vectors lie: the last longer one, if terms are read along it."""
        longer = self._longer(op, depth)
        if not longer:
            return None
        last = longer[-1]
        extent = number(last.extent)
        if extent is not None and extent < 2:
            return None
        if op.reduction is None:
            narrow = self._beside(op, longer)
            return narrow if narrow is not None else None if self._folds_across(op, last) else last
        if along(op, last) or not _sums_along(op):
            return last
        return last if _steps(op) <= MOST_UNROLLED and typical(last.extent) > _steps(op) else None

    def _beside(self, op: Compute, axes: Sequence[Axis]) -> Axis | None:
        """The axis before a last one that leaves lanes idle: along it vectors are full, a few elements apart.

        The last one is written out: what is chosen by it is decided.
        """
        count, width = number(axes[-1].extent), self._width(op)
        most = MOST_CHANNELS if self._looks_up(op) else MOST_STEP if self.machine.has_masks else MOST_STEP_APART
        if len(axes) < 2 or count is None or not 1 < count < min(width, most + 1) or self.costs.element[op] < APART:
            return None
        before, last = axes[-2:]
        if typical(before.extent) < width or self._folds_across(op, before):
            return None
        return before if self._across(op, last) is None else None

    def _narrow(self, op: Compute, vector: Axis | None) -> Axis | None:
        """The last axis, where vectors lie along the one before it (see `_beside`)."""
        if vector is None or op.reduction is not None:
            return None
        last = self._longer(op)[-1]
        return None if vector is last else last

    def _around(self, op: Compute, vector: Axis | None) -> Axis | None:
        """A short loop to be run around each vector: what its iterations share is computed once, or decided."""
        narrow = self._narrow(op, vector)
        return narrow if narrow is not None else shared_along(op, vector, self.costs, self.machine)

    def _folds_across(self, op: Compute, axis: Axis) -> bool:
        """Whether rows of partial results are folded along `axis`: a vector of it is gathered number by number."""
        for read in op.reads:
            inner = read.tensor.op
            moved = [k for k, index in enumerate(read.indices) if axis in set(free_axes(index))]
            is_row = self.rw.kinds.get(inner.name) in ("partial", "folded")
            if is_row and any(k < len(read.indices) - 1 for k in moved):
                return True
            inside = inner.axes if inner in self.costs.inlined and isinstance(inner, Compute) else ()
            if inside and any(self._folds_across(inner, inside[k]) for k in moved):  # type: ignore[arg-type]
                return True
        return False

    def _cut(self, op: Compute, definition: Definition, vector: Axis | None, order: list[str]) -> list[str]:
        """Split the vector loop; `order` keeps what stays outside, the loops inside are returned."""
        if vector is None:
            return []
        name = loop_names(op)[vector]
        width, extent = self._width(op), number(vector.extent)
        least = 2 if self.machine.has_masks and op.reduction is None else 1  # a masked vector is one vector of a row
        while extent is not None and width > extent > 0 and width >= least * extent:
            width //= 2
        if width < 2:
            return []
        reduces = op.reduction is not None and definition == "body"
        most = self.machine.choose("vectors", _at_a_time(extent, width), op.name)
        fits = reduces and (extent is None or extent >= most * width) and along(op, vector)
        is_long = self.costs.element[op] > LONG_TERM  # several of them at once are more to compile, and no faster
        wide = most if fits and not is_long and not self._folds_across(op, vector) else 1
        if reduces and self.rw.kinds.get(op.name) == "partial" and extent is not None and extent % width == 0:
            wide = min(extent // width, MOST_LANES)  # all of them in registers, wherever they are computed
        if extent is None and _steps(op) <= FEW_UNROLLED:
            wide = 1
        if op.reduction is None and vector not in self.cut:  # quotients are known within pieces
            wide = period(op, vector, width)
        outer, vectors, lane = (_free(op, f"{name}_{end}") for end in "owv")
        order[order.index(name)] = outer
        if wide > 1:
            if reduces:
                self.abreast[op] = wide
            self.say(
                Split(stage=op.name, definition=definition, loop=name, outer=outer, inner=vectors, factor=wide * width),
                Split(
                    stage=op.name, definition=definition, loop=vectors, outer=vectors, inner=lane, factor=width,
                    exact=True,
                ),
                Vectorize(stage=op.name, definition=definition, loop=lane),
            )  # fmt: skip
            self._abreast(op, definition, vectors)
            return [vectors, lane]
        tail = self._tail(op, vector, width)
        if tail and op is not self.group.root:  # it is known where the row ends
            self.say(BoundExtent(stage=op.name, axis=name, extent=extent or 0))
        self.say(
            Split(stage=op.name, definition=definition, loop=name, outer=outer, inner=lane, factor=width, tail=tail),
            Vectorize(stage=op.name, definition=definition, loop=lane),
        )
        return [lane]

    def _abreast(self, op: Compute, definition: Definition, vectors: str) -> None:
        """Vectors side by side are written out, unless each of them is a look-up: in a loop they are no slower."""
        if not self._looks_up(op):
            self.say(Unroll(stage=op.name, definition=definition, loop=vectors))

    def _tail(self, op: Compute, vector: Axis, width: int) -> str:
        """Where vectors have no masks, the last one of a row begins earlier: a few elements are computed twice."""
        extent = number(vector.extent)
        if op.reduction is not None or extent is None or extent % width == 0 or self.machine.has_masks:
            return ""
        if op is not self.group.root:
            return "shift" if vector in self.whole else ""
        twice = not self.cut and points(op.axes) >= self.machine.least.shifted and not self._is_in_place(op)
        return "shift" if twice else ""

    def _is_in_place(self, root: Compute) -> bool:
        """Whether a result may lie in memory that it reads, so that what was written must not be read again.

        It does not where it reads at other places than its own, too: those are written by others in any order.
        """
        return may_lie_on(root, {*self.group.members, *self.costs.inlined})

    def _order(self, op: Compute, outer: Sequence[str], inner: Sequence[str], vector: Axis | None) -> None:
        """Loops over the result outside, those of the reduction next, vectors innermost."""
        sums: list[str] = []
        if op.reduction is not None:
            names = loop_names(op)
            sums = [names[a] for a in op.reduction.axes]
            if vector is not None and self._is_written_out(op, vector):
                self.say(*(Unroll(stage=op.name, loop=s) for s in sums))
        if len(outer) + len(sums) + len(inner) > 1:
            self.say(Reorder(stage=op.name, loops=(*outer, *sums, *inner)))

    def _is_written_out(self, op: Compute, vector: Axis) -> bool:
        """Whether the steps of a reduction are short and few, or may share what they read."""
        most = MOST_UNROLLED if number(op.axes[-1].extent) is not None else FEW_UNROLLED
        steps = _steps(op)
        # Around a look-up a loop is no shorter when it is written out.
        if steps > most or self._looks_up(op) or any(self._folds_across(op, a) for a in op.axes):
            return False
        assert op.reduction is not None
        is_choice = len(op.outputs) > 1 or op.reduction.reducer.kind in ("argmax", "argmin")
        step = (self.costs.element[op] + CHOICE * is_choice) * self.abreast.get(op, 1)
        if steps * step > MOST_WRITTEN:
            return False
        across = sum(isinstance(n, Read) and vector in set(free_axes(n.indices[:-1])) for n in op.nodes)
        step += across * self._width(op)  # lanes from as many places are loaded one by one
        return steps <= FEW_UNROLLED or step < LONG_STEP or self._has_windows(op)

    def _has_windows(self, op: Compute) -> bool:
        """Whether steps of a reduction may share what they read: there is an index by one of its axes and others."""
        assert op.reduction is not None
        sums = set(op.reduction.axes)
        indices = (i for node in op.nodes if isinstance(node, Read) for i in node.indices)
        return any(len(axes) > 1 and not sums.isdisjoint(axes) for axes in map(free_axes, indices))

    def _looks_up(self, op: Operation) -> bool:
        """Whether an element, or one of what is inlined, is read at a place that is read itself."""
        return op.looks_up or any(self._looks_up(t.op) for t in op.inputs if t.op in self.costs.inlined)

    def _inner(self, op: Compute, depth: int) -> None:
        """Loops of a stage that is computed row by row."""
        names = loop_names(op)
        kind = self.rw.kinds.get(op.name)
        if kind == "partial":
            self._lanes(op, depth)
            return
        if kind in ("padded", "folded"):  # whole vectors lie inside or outside of the row
            self._whole(op)
        vector = self._vector_axis(op, depth)
        order = [names[a] for a in op.axes]
        self._by_cases(op, vector)
        inner = self._cut(op, "body", vector, order)
        if op.reduction is not None:
            self._cut(op, "init", vector, [names[a] for a in op.axes])
        shared = self._around(op, vector) if inner else None
        if shared in self.whole and shared is not None:
            self.say(BoundExtent(stage=op.name, axis=names[shared], extent=number(shared.extent) or 0))
            order.remove(names[shared])
            written = self._written_out(op, shared, inner)
            order, inner = (order, written) if written is not inner else ([*order, names[shared]], inner)
        self._order(op, order, inner, vector)

    def _whole(self, op: Compute) -> None:
        self.say(BoundExtent(stage=op.name, axis=loop_names(op)[op.axes[-1]], extent=number(op.axes[-1].extent) or 0))

    def _lanes(self, op: Compute, depth: int) -> None:
        """Partial results of a reduction along memory: a few vectors that stay in registers."""
        names, width = loop_names(op), self._width(op)
        lane = names[op.axes[-1]]
        assert op.reduction is not None
        sums = [names[a] for a in op.reduction.axes]
        self.say(BoundExtent(stage=op.name, axis=lane, extent=number(op.axes[-1].extent) or 0))
        for definition in ("init", "body"):
            self.say(
                Split(
                    stage=op.name, definition=definition, loop=lane, outer=f"{lane}_w", inner=f"{lane}_v", factor=width,
                    exact=True,
                ),
                Vectorize(stage=op.name, definition=definition, loop=f"{lane}_v"),
            )  # fmt: skip
            self._abreast(op, definition, f"{lane}_w")
        taps = self._taps(op, depth, points(op.axes[-1:]) // width)
        for axis in taps:
            self.say(
                BoundExtent(stage=op.name, axis=names[axis], extent=number(axis.extent) or 0),
                Unroll(stage=op.name, loop=names[axis]),
            )
        outer = [names[a] for a in op.axes[:-1] if a not in set(taps)]
        inner = [names[a] for a in taps]
        self.say(Reorder(stage=op.name, loops=(*outer, *sums, *inner, f"{lane}_w", f"{lane}_v")))

    def _taps(self, op: Compute, depth: int, vectors: int) -> list[Axis]:
        """Short last axes of partial results along which one of the factors is the same: a load of it is for all.

        Without masks the ends of rows are tests of each tap, and whole rows as fast without.
        """
        found: list[Axis] = []
        if not self.machine.has_masks:
            return found
        lanes = [(r, set(free_axes(r.indices))) for r in op.reads]
        for axis in op.axes[depth:-1][::-1]:
            extent = number(axis.extent)
            fixed = [r for r, axes in lanes if axis not in axes and op.axes[-1] in axes]
            if extent is None or extent < 2 or not fixed or len(fixed) == len(lanes):
                break
            vectors *= extent
            if vectors > self.machine.vector_registers * 5 // 8:
                break
            found.insert(0, axis)
        return found


def _free(op: Compute, name: str) -> str:
    """A name for a part of a loop that no loop of the stage has: a sum in parts has such names already."""
    taken = set(loop_names(op).values())
    while name in taken:
        name += "o"
    return name


def shared_along(op: Compute, vector: Axis | None, costs: Costs, machine: Machine) -> Axis | None:
    """A short loop that most of the arithmetic of an element does not depend on."""
    total = costs.element[op] + LOOKUP * op.looks_up
    if op.reduction is not None or len(op.axes) < 3 or total < machine.least.shared:
        return None
    for axis in op.axes:
        count = number(axis.extent)
        if axis is not vector and count is not None and 2 <= count <= 16 and costs.varying(op, axis) * 2 < total:
            return axis
    return None


def sizes_asked(stages: Iterable[Operation], inlined: AbstractSet[Operation]) -> list[Expr]:
    """What stages, with all that is inlined into them, ask of sizes alone: to be so large at least."""
    pending, most = list(stages), dict[Expr, int]()
    for op in pending:
        for node in op.nodes:
            conditions = node.args[:1] if isinstance(node, Apply) and node.fn is Fn.SELECT else ()
            for part in (p for c in conditions for p in conjuncts(c)):
                if not isinstance(part, Apply) or part.fn is not Fn.GE or free_axes(part) or reads_of((part,)):
                    continue
                size, least = part.args[0], number(part.args[1])
                if least is not None and least > 1:
                    most[size] = max(least, most.get(size, 0))
            inner = node.tensor.op if isinstance(node, Read) else None
            if inner is not None and inner in inlined and inner not in pending:
                pending.append(inner)
    return [size >= least for size, least in most.items()]


def _at_a_time(extent: int | None, width: int) -> int:
    """Vectors of results in registers: 4, or 3 to 7 of them where these are equal parts of a row and 4 are not."""
    if extent is None or extent % width or extent % (4 * width) == 0:
        return 4
    return next((n for n in (7, 6, 5, 3) if extent // width % n == 0), 4)


def _steps(op: Compute) -> float:
    """How many steps a reduction has, infinity where that is not known."""
    extents = [number(a.extent) for a in op.reduction.axes] if op.reduction is not None else []
    return math.inf if None in extents else math.prod(n or 1 for n in extents)


def _sums_along(op: Compute) -> bool:
    """Whether a loop of the reduction is one along which memory is read."""
    assert op.reduction is not None
    sums = set(op.reduction.axes)
    last = [r.indices[-1] for r in op.reads if r.indices]
    return any(sums.intersection(free_axes(index)) for index in last if not reads_of((index,)))
