"""Cycles of one core for a complete plan, from its loops: what is computed how often, in vectors, read from where.

It knows what the plan and the machine say and nothing else: how often each operation, read and write is reached where
what does not change in a loop is moved out of it; lanes by dtype; strides of reads along the vectors; chains of sums
that wait for one another; bytes that no cache holds; loops and stages. It does not know what LLVM makes of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field

from schedules.estimate.regions import Box, boxes_of, extents_of, width_of
from schedules.loops import Level, definitions_of
from schedules.machine import Machine
from schedules.placing.placement import placed
from schedules.placing.places import Placement
from schedules.plan import Plan
from schedules.sizes import typical
from tedsl.analysis.affine import affine_of
from tedsl.lang.dataclass import dataclass
from tedsl.lang.dtypes import INT32
from tedsl.lang.expr import Apply, Axis, Const, Expr, Fn, Read, Reduce
from tedsl.lang.operand_types import COMPARE, FLOAT_BINARY, FLOAT_UNARY, LOGIC
from tedsl.lang.tensor import Compute, Extern, Operation, Scan, Scatter, Tensor
from tedsl.lang.traverse import substitute_all, topological

__all__ = ["Cost", "cost_of"]

OPERATION = 0.5  # cycles of a vector instruction: two of them start in a cycle
FUNCTION, DIVISION, WHOLE_DIVISION = 12.0, 8.0, 2.0
OVERLAPPED = 0.3  # of what other units do at the same time
LATENCY = 4.0  # cycles until a sum can be added to
LOAD, STORE, GATHERED, STRIDED = (
    0.5,
    1.0,
    1.5,
    1.0,
)  # cycles: of a vector; of an element; of a vector that is put together
ITERATION = 0.7  # of a loop that is neither unrolled nor a vector
STAGE, TASKS = 60.0, 3000.0  # cycles to begin a stage's loops; to begin them in several threads
LINE = 64  # bytes
BYTES = (40.0, 14.0, 5.0)  # in a cycle, from the second cache, the third, and memory


@dataclass(frozen=True)
class Cost:
    """Cycles of a plan by stage; `total` is what plans are compared by."""

    stages: Mapping[str, float]

    @property
    def total(self) -> float:
        return sum(self.stages.values())


def cost_of(plan: Plan, machine: Machine) -> Cost:
    """What the plan costs on a machine, in cycles of one core."""
    places = placed(plan, checked=False)
    boxes = boxes_of(plan, places)
    found = {}
    for name, op in plan.program.stages.items():
        if name in boxes and not isinstance(op, Extern):
            around = _threads(plan, places, places[name], machine)
            found[name] = boxes[name].times * sum(
                _Loops(plan, name, op, d, boxes[name], places, machine).cycles() for d in definitions_of(op)
            ) / around + STAGE * min(boxes[name].times, 1.0)  # fmt: skip
    return Cost(found)


def _threads(plan: Plan, places: Mapping[str, Placement], place: Placement, machine: Machine) -> float:
    """How many cores share the loops around a stage."""
    if place.kind != "at":
        return 1.0
    nest = plan.nest(place.consumer, plan.definition(place.consumer, place.loop))
    outer = nest.levels[: nest.position(place.loop) + 1]
    shared = any(v.kind == "parallel" for v in outer)
    return float(machine.cores) if shared else _threads(plan, places, places[place.consumer], machine)


@dataclass(eq=False)
class _Loops:
    """The loops of one definition of a stage."""

    plan: Plan
    name: str
    op: Operation
    definition: str
    box: Box
    places: Mapping[str, Placement]
    machine: Machine
    levels: Sequence[Level] = field(init=False)
    extents: Sequence[int] = field(init=False)

    def __post_init__(self) -> None:
        self.levels = self.plan.nest(self.name, self.definition).levels
        own = self.op.axes if isinstance(self.op, Compute) else ()
        self.extents = extents_of(self.levels, self.box.spans, [self.box.spans[a] for a in own])
        self.dtype = self.op.outputs[0].dtype
        self.vector = next((k for k, v in enumerate(self.levels) if v.kind == "vectorized"), None)
        self.lanes = 1 if self.vector is None else self.extents[self.vector]
        self.where: dict[Expr, frozenset[int]] = {}  # the loops that a node changes in
        self.inner: dict[Expr, frozenset[Axis]] = {}  # loops of sums inside, which are no loops of the stage

    # ------------------------------------------------------------------------------------------------ how often

    def _depends(self, node: Expr) -> frozenset[int]:
        """The loops in which a node takes other values."""
        found = self.where.get(node)
        if found is None:
            for each in topological(node):
                if each in self.where:
                    continue
                if isinstance(each, Axis):
                    own = frozenset(k for k, v in enumerate(self.levels) if each in v.origin)
                    inner = frozenset() if own else frozenset([each])
                else:
                    own = frozenset[int]().union(*(self.where[c] for c in each.children))
                    own -= self._within_blocks(each)
                    inner = frozenset[Axis]().union(*(self.inner[c] for c in each.children))
                self.where[each], self.inner[each] = own, inner
            found = self.where[node]
        return found

    def _within_blocks(self, node: Expr) -> frozenset[int]:
        """The loops of an axis that do not change the number of its block."""
        if not (isinstance(node, Apply) and node.fn is Fn.FLOORDIV and isinstance(node.args[0], Axis)):
            return frozenset()
        size, reach, found = node.args[1], 1, []
        for k in sorted(self.where[node.args[0]], reverse=True):
            reach *= self.extents[k]
            if isinstance(size, Const) and reach <= size.value:
                found.append(k)
        return frozenset(found)

    def _times(self, loops: frozenset[int]) -> float:
        """How often what changes in these loops is computed; what does not is moved out of them, copies made once."""
        if not loops:
            return 1.0
        deepest = max(loops)
        count = 1.0
        for k in range(deepest + 1):
            if k == self.vector or (self.levels[k].kind == "unrolled" and k not in loops):
                continue
            count *= self.extents[k]
        return count

    def _times_of(self, node: Expr) -> float:
        """The same of a node, with the loops of a sum that stands in the definition."""
        loops = self._depends(node)
        return self._times(loops) * math.prod(max(1, typical(a.extent)) for a in self.inner[node])

    def _vectors(self, loops: frozenset[int], itemsize: int) -> float:
        """Vector instructions for one value of each lane."""
        if self.vector is None or self.vector not in loops:
            return 1.0
        return max(1.0, self.lanes * max(itemsize, 1) / self.machine.vector_bytes)

    # -------------------------------------------------------------------------------------------------- the cost

    def cycles(self) -> float:
        """Cycles of the loops once."""
        everything = frozenset(range(len(self.levels)))
        nodes, reads = self._expanded()
        parts = sorted(
            (sum(map(self._operation, nodes)), sum(map(self._load, reads)), self._storing(everything)), reverse=True
        )
        total = parts[0] + OVERLAPPED * sum(parts[1:])
        count = 1.0
        for k, level in enumerate(self.levels):
            count *= 1 if level.kind in ("unrolled", "vectorized") else self.extents[k]
            total += ITERATION * count if level.kind in ("serial", "parallel") else 0.0
        total = max(total, self._chain(), self._traffic(reads))
        parallel = math.prod(e for v, e in zip(self.levels, self.extents, strict=True) if v.kind == "parallel")
        if parallel > 1 and self.machine.cores > 1:
            total = total / min(parallel, self.machine.cores) + TASKS
        return total

    def _expanded(self) -> tuple[list[Expr], list[Read]]:
        """Every node that is computed in these loops, inline stages written out, each distinct one once."""
        if self.definition == "init":
            return [], []
        roots: tuple[Expr, ...] = self.op.expressions
        for _ in range(len(self.plan.program.stages)):
            inline = [
                n for n in topological(roots)
                if isinstance(n, Read) and n.tensor.op in self.plan.program.names
                and self.places[self.plan.program.names[n.tensor.op]].kind == "inline"
            ]  # fmt: skip
            if not inline:
                break
            mapping: dict[Expr, Expr] = {}
            for read in inline:
                op = read.tensor.op
                assert isinstance(op, Compute)
                mapping[read] = op.written_at(read)
            roots = substitute_all(roots, mapping)
        seen: dict[Expr, None] = {}
        reads: dict[Read, None] = {}
        stack = list(roots)
        while stack:
            node = stack.pop()
            if node in seen:
                continue
            seen[node] = None
            if isinstance(node, Read):
                reads[node] = None
                stack.extend(i for i in node.indices if affine_of(i) is None)
            else:
                stack.extend(node.children)
        return list(seen), list(reads)

    def _operation(self, node: Expr) -> float:
        if isinstance(node, Reduce):
            loops = frozenset(range(len(self.levels)))
            each = sum(_instructions(v) if not isinstance(v, Apply) else 1.0 for v in node.reducer.results)
            size = max(v.dtype.itemsize for v in node.values)
            fused = node.reducer.kind == "sum" and _is_product(node.values[0])
            return 0.0 if fused else OPERATION * max(1.0, each) * self._times(loops) * self._vectors(loops, size)
        if not isinstance(node, Apply):
            return 0.0
        cycles = _instructions(node)
        if not cycles:
            return 0.0
        loops = self._depends(node)
        return cycles * self._times_of(node) * self._vectors(loops, max(a.dtype.itemsize for a in node.args))

    def _load(self, read: Read) -> float:
        """Cycles of a read, its vectors by how they lie in memory."""
        loops = self._depends(read)
        times = self._times_of(read)
        if self.vector is None or self.vector not in loops:
            return LOAD * times
        return times * self._by_stride(self._stride(read.tensor, read.indices), read.dtype.itemsize)

    def _by_stride(self, stride: int | None, itemsize: int) -> float:
        vectors = max(1.0, self.lanes * itemsize / self.machine.vector_bytes)
        if stride == 1:
            return LOAD * vectors
        if (stride is not None and 1 < abs(stride) <= 4) or stride == -1:
            return (LOAD + STRIDED) * abs(stride) * vectors
        return GATHERED * self.lanes

    def _stride(self, tensor: Tensor, indices: Sequence[Expr]) -> int | None:
        """Elements between neighbours along the vectors; None where that is no number."""
        assert self.vector is not None
        step, stride = 1, 0
        for index, extent in zip(reversed(indices), reversed(tensor.extents), strict=True):
            moved = self._step(index)
            if moved is None:
                return None
            stride += step * moved
            step *= max(1, typical(extent))
        return stride

    def _step(self, index: Expr) -> int | None:
        """How far an index moves from lane to lane; a quotient by as many as there are lanes stays."""
        assert self.vector is not None
        if self.vector not in self._depends(index):
            return 0
        if isinstance(index, Axis):
            return 1
        form = affine_of(index) if index.dtype is INT32 else None
        if form is None:
            return None
        total = 0
        for monomial, factor in form.terms.items():
            if not any(self.vector in self._depends(atom) for atom in monomial):
                continue
            atom = monomial[0]
            if len(monomial) > 1:
                return None
            if isinstance(atom, Apply):
                by = atom.args[-1]
                wide = atom.fn in (Fn.FLOORDIV, Fn.MOD) and isinstance(by, Const) and by.value >= self.lanes
                moved = self._step(atom.args[0]) if wide and atom.fn is Fn.MOD else 0 if wide else None
            else:
                moved = self._step(atom)
            if moved is None:
                return None
            total += factor * moved
        return total

    def _storing(self, everything: frozenset[int]) -> float:
        """Cycles of writes: of every point, or of each element once where a sum stays in registers."""
        sums = [k for k, v in enumerate(self.levels) if v.carried != "free" and k != self.vector]
        size = self.dtype.itemsize * len(self.op.outputs)
        if self.vector is None:
            each = STORE
        else:
            axes = tuple(getattr(self.op, "axes", ()))
            own = axes if isinstance(self.op, (Compute, Scan)) else ()
            index = getattr(self.op, "index", own) if isinstance(self.op, Scatter) else own
            stride = 1 if self.definition == "init" or not index else self._stride(self.op.outputs[0], index)
            vectors = max(1.0, self.lanes * size / self.machine.vector_bytes)
            each = STORE * vectors if stride == 1 else GATHERED * self.lanes
        if not sums or self.definition == "init" or isinstance(self.op, Scan):
            return each * self._times(everything)
        inside = [k for k in range(max(sums) + 1, len(self.levels)) if self.levels[k].kind == "serial"]
        between = [
            k for k in range(min(sums), max(sums))
            if self.levels[k].carried == "free" and self.levels[k].kind == "serial"
        ]  # fmt: skip
        if inside or between or isinstance(self.op, Scatter):
            return (each + LOAD) * self._times(everything)  # read and written at every step
        return each * self._times(everything.difference(sums)) / math.prod(
            self.extents[k] for k in sums if k < max(everything.difference(sums), default=0)
            and self.levels[k].kind != "unrolled"
        )  # fmt: skip

    def _chain(self) -> float:
        """Cycles in which sums wait for one another: steps in a row, each of a few sums at once."""
        ordered = [k for k, v in enumerate(self.levels) if v.carried != "free"]
        if not ordered or self.definition == "init":
            return 0.0
        atonce = [k for k, v in enumerate(self.levels) if v.kind in ("unrolled", "vectorized") and k not in ordered]
        return LATENCY * math.prod(e for k, e in enumerate(self.extents) if k not in atonce)

    def _traffic(self, reads: Iterable[Read]) -> float:
        """Cycles to bring what is read and written from the caches that hold it."""
        sizes = (self.machine.l1, self.machine.l2, self.machine.l3)
        written = self._bytes(self.op.outputs[0], tuple(getattr(self.op, "axes", ())), 0) * len(self.op.outputs)
        total = 0.0
        inputs: dict[Tensor, list[Read]] = {}
        for read in reads:
            inputs.setdefault(read.tensor, []).append(read)
        for cache, rate in zip(sizes, BYTES, strict=True):
            moved = 2 * written / rate if written * self.box.times > cache else 0.0
            for tensor, same in inputs.items():
                moved += max(self._brought(tensor, r, cache) for r in same) / rate
            total += moved
        return total

    def _brought(self, tensor: Tensor, read: Read, cache: int) -> float:
        """Bytes of a read that come from outside of a cache: the boxes that fit, as often as they are walked again."""
        whole = tensor.dtype.itemsize * math.prod(max(1, typical(e)) for e in tensor.extents)
        if whole <= cache:
            return 0.0
        loops = self._depends(read)
        depth = next((k for k in range(len(self.levels) + 1) if self._bytes(tensor, read.indices, k) <= cache // 2), 0)
        again = math.prod(self.extents[k] for k in range(depth) if loops)
        return min(
            again * self._bytes(tensor, read.indices, depth), self._times(frozenset(range(len(self.levels)))) * LINE
        )

    def _bytes(self, tensor: Tensor, indices: Sequence[Expr], depth: int) -> float:
        """Bytes of the lines that an access touches in the loops from `depth` on."""
        inner = extents_of(self.levels, self.box.spans)
        spans: dict[Axis, int] = dict.fromkeys(self.box.spans, 1)
        for k in range(depth, len(self.levels)):
            for axis in self.levels[k].origin:
                if isinstance(axis, Axis):
                    most = self.box.spans.get(axis, 1)
                    spans[axis] = min(
                        most, spans.get(axis, 1) * (inner[k] if len(self.levels[k].origin) == 1 else most)
                    )
        widths = [width_of(i, spans) for i in indices]
        full = [max(1, typical(e)) for e in tensor.extents]
        widths = [min(w, n) for w, n in zip(widths, full, strict=False)]
        if not widths:
            return float(tensor.dtype.itemsize)
        row = min(full[-1], widths[-1]) * tensor.dtype.itemsize
        return float(math.prod(widths[:-1]) * max(row, LINE if full[-1] * tensor.dtype.itemsize >= LINE else row))


def _is_product(value: Expr) -> bool:
    return isinstance(value, Apply) and value.fn is Fn.MUL and value.dtype.is_float


def _instructions(node: Expr) -> float:
    """Cycles of one vector of an operation; integers of loops alone are free, but for quotients."""
    if not isinstance(node, Apply) or (node.fn is Fn.CAST and node.args[0].dtype.is_bool):
        return 0.0
    if node.fn in FLOAT_UNARY or node.fn in FLOAT_BINARY or node.fn is Fn.POW:
        return FUNCTION
    if node.fn is Fn.DIV:
        return OPERATION if isinstance(node.args[1], Const) and _is_power(node.args[1].value) else DIVISION
    if node.is_weak or (node.fn in COMPARE | LOGIC and all(a.is_weak for a in node.args)):
        return 0.25 * (WHOLE_DIVISION if node.fn in (Fn.FLOORDIV, Fn.MOD) and affine_of(node) is None else 1.0)
    if node.fn in (Fn.FLOORDIV, Fn.MOD):
        return WHOLE_DIVISION if node.dtype.is_integer else DIVISION
    return OPERATION


def _is_power(value: float) -> bool:
    return math.frexp(abs(value))[0] == 0.5
