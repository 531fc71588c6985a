"""Which stages at the root are computed by one kernel where a program is cut.

Most are on their own. Stages of the scheduler's own, such as packed panels, go with the nests that read them, as does
what directives lay out in memory in a way of its own. And small results that belong together, such as the moments of
a batch or the steps from logits to a loss, share a kernel: to compile one for each takes longer than all they compute.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection, Container, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

from schedules.cutting.joining import Kind, Near
from schedules.directives import BoundExtent, Prefetch
from schedules.placing.places import Placement
from schedules.placing.sharing import shared_loops
from schedules.plan import Plan
from tedsl.lang.expr import Apply, Const, Expr, Reduce
from tedsl.lang.extents import number, same_layout
from tedsl.lang.tensor import Operation, Placeholder, Tensor

__all__ = ["Groups"]

SMALL = 4096  # bytes of the results of a stage that may share a kernel
MOST_INSIDE = 4  # loop nests of such a stage: as many as a sum along rows has
MOST_NUMBERS = 16  # results of one element each that one kernel makes of the same

Nests = Mapping[str, frozenset[str]]


class Groups:
    """The stages at the root of a complete plan in groups, each called after its first stage.

    `places` tells where each stage is computed, `nests` at the root in the loops of which stages; `given` are the
    tensors that a user knows. `is_over`: results may be written over what is given to the program; small ones for which
    this is possible stay apart.
    """

    def __init__(
        self, plan: Plan, places: Mapping[str, Placement], nests: Nests, given: Mapping[Tensor, Tensor], *,
        is_over: bool,
    ) -> None:  # fmt: skip
        self._plan, self._places, self._nests = plan, places, nests
        self.of = {name: name for name in plan.program.stages if nests[name] == {name}}
        self._members = {name: [name] for name in self.of}
        self._results, self._is_over = set(plan.program.outputs), is_over
        self._join_bound(given)

    def __len__(self) -> int:
        return len(self._members)

    def _join_bound(self, given: Mapping[Tensor, Tensor]) -> None:
        """Join what cannot be passed from kernel to kernel with what reads it."""
        plan = self._plan
        ahead = {getattr(s.directive, "source", "") for steps in plan.loops.values() for s in steps
                 if isinstance(s.directive, Prefetch)}  # fmt: skip
        laid_out = {
            name for name, steps in plan.storage.items() if any(not isinstance(s.directive, BoundExtent) for s in steps)
        }
        for name in self.of:
            own = plan.program.stages[name].outputs
            if name not in ahead | laid_out and all(t in given for t in own):
                continue
            for nest in self._reading(name):
                self._join(name, nest)
        for step in shared_loops(plan):
            mine, other = step.directive.stage, getattr(step.directive, "consumer", "")
            for nest in sorted(self._nests.get(mine, frozenset()) | self._nests.get(other, frozenset())):
                self._join(mine if mine in self.of else nest, nest)
        while cycle := _cycle(self._reads()):
            for group in cycle:
                self._join(cycle[0], group)

    def join_small(self) -> None:
        """Let small results share kernels where one is read for the other, or both are read off one large tensor.

        What is joined depends on what is near alone, and nothing is joined twice that is alike, so that repeated
        layers are cut alike and what repeats is compiled once.
        """
        self._join_numbers()
        reads, depth = self._reads(), dict[str, int]()
        for group in self.in_order():
            depth[group] = 1 + max((depth[g] for g in reads[group]), default=0)
        order, kinds = sorted(depth, key=depth.__getitem__), self._kinds()
        near = Near(reads, order, kinds, self._tensors(kinds))
        for group in order:
            near.visit(group)
        for a, b in near.joined:
            self._join(a, b)

    def _join_numbers(self) -> None:
        """Let single numbers that are made of the same share kernels: none of them is read for another one."""
        reads, kinds, inside, stages = self._reads(), self._kinds(), self._inside(), self._plan.program.stages
        together: dict[tuple[frozenset[str], frozenset[Tensor]], list[dict[Kind, str]]] = {}
        for group in self.in_order():
            if group not in kinds or any(t.ndim for name in self._members[group] for t in stages[name].outputs):
                continue
            given = frozenset(t for name in inside[group] for t in stages[name].inputs if isinstance(t.op, Placeholder))
            if not given and not reads[group]:
                continue
            shared = together.setdefault((frozenset(reads[group]), given), [{}])
            if len(shared[-1]) == MOST_NUMBERS:
                shared.append({})
            shared[-1].setdefault(kinds[group], group)
        for shared in together.values():
            for first, *others in (list(groups.values()) for groups in shared):
                for other in others:
                    self._join(first, other)

    def _join(self, a: str, b: str) -> None:
        """Make one group of those of two stages."""
        now, gone = self.of[a], self.of[b]
        if now != gone:
            joined = self._members.pop(gone)
            self._members[now] += joined
            self.of.update(dict.fromkeys(joined, now))

    def _reading(self, name: str) -> set[str]:
        """The stages at the root in whose loops a stage is read."""
        return {nest for reader in self._plan.program.readers[name] for nest in self._nests[reader]}

    def _reads(self) -> dict[str, set[str]]:
        """The groups whose results each group reads."""
        found: dict[str, set[str]] = {group: set() for group in self._members}
        for name, group in self.of.items():
            for nest in self._reading(name):
                if self.of[nest] != group:
                    found[self.of[nest]].add(group)
        return found

    def _tensors(self, small: Container[str]) -> dict[str, set[Tensor]]:
        """The results of other groups, but small ones, that each group reads."""
        program = self._plan.program
        found: dict[str, set[Tensor]] = {group: set() for group in self._members}
        for name, op in program.stages.items():
            homes = {t: self.of.get(program.names.get(t.op, "")) for t in op.inputs}
            large = {t: home for t, home in homes.items() if home is not None and home not in small}
            for group in {self.of[nest] for nest in self._nests[name]}:
                found[group].update(t for t, home in large.items() if home != group)
        return found

    def _inside(self) -> dict[str, list[str]]:
        """The stages of each group, with those that are computed in its loops."""
        found: dict[str, list[str]] = {group: [] for group in self._members}
        for name in self._plan.program.stages:
            for group in {self.of[nest] for nest in self._nests[name]}:
                found[group].append(name)
        return found

    def _kinds(self) -> dict[str, Kind]:
        """What alike groups have in common, for those that are small."""
        found = {group: self._kind(group, names) for group, names in self._inside().items()}
        return {group: kind for group, kind in found.items() if kind is not None}

    def _kind(self, group: str, inside: Sequence[str]) -> Kind | None:
        """The kind of a group that is small, of which nothing is to be written over what is given to the program."""
        stages = self._plan.program.stages
        handed = (n for n in self._members[group] if any(self.of[reader] != group for reader in self._reading(n)))
        outputs = dict.fromkeys(t for name in handed for t in stages[name].outputs)
        outputs.update((t, None) for name in self._members[group] for t in stages[name].outputs if t in self._results)
        if sum(self._places[name].kind != "inline" for name in inside) > MOST_INSIDE or not _are_small(outputs):
            return None
        read = {t: None for name in inside for t in stages[name].inputs}
        given = [t for t in read if isinstance(t.op, Placeholder)] if self._is_over else []
        if any(t in self._results and any(same_layout(t, source) for source in given) for t in outputs):
            return None
        return tuple(map(_sketch, (stages[name] for name in inside))), *(_shape(t) for t in (*outputs, *read))

    def in_order(self) -> list[str]:
        """The groups, each after those that it reads, else in the order of the program."""
        place = {self.of[name]: k for k, name in enumerate(self._plan.program.stages) if name in self.of}
        sorter = TopologicalSorter(self._reads())
        sorter.prepare()
        order: list[str] = []
        ready: list[tuple[int, str]] = []
        while sorter.is_active():
            for group in sorter.get_ready():
                heapq.heappush(ready, (place[group], group))
            order.append(heapq.heappop(ready)[1])
            sorter.done(order[-1])
        return order


def _cycle(reads: Mapping[str, set[str]]) -> list[str]:
    """Groups that read one another's results in a ring, if there are any."""
    try:
        TopologicalSorter(reads).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def _sketch(op: Operation) -> tuple[object, ...]:
    """What tells stages apart that are not equal."""
    return tuple(map(_kind_of, op.nodes))


def _kind_of(node: Expr) -> object:
    if isinstance(node, Apply):
        return node.fn
    if isinstance(node, Reduce):
        return node.reducer.kind
    return repr(node.value) if isinstance(node, Const) else type(node)


def _are_small(tensors: Collection[Tensor]) -> bool:
    """Whether extents are numbers, and few."""
    shapes = [_shape(t) for t in tensors]
    if any(n is None for shape in shapes for n in shape):
        return False
    sizes = (math.prod(n or 0 for n in shape) for shape in shapes)
    return sum(t.dtype.itemsize * size for t, size in zip(tensors, sizes, strict=True)) <= SMALL


def _shape(tensor: Tensor) -> tuple[int | None, ...]:
    return tuple(map(number, tensor.extents))
