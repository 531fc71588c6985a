"""The same within the steps of a scan: extremes on which nothing depends that others read of a step.

A step of `logsumexp` has the maximum as a part of its own, or inside the body that needs it. Each is one of the virtual
stages that the nodes of the bodies are instances of: what is made of extremes alone, at an element of this step.

    select(isinf(m[t, i]), 0, m[t, i]), select(isinf(m[t, r]), 0, m[t, r])   ->   S at (t, i), S at (t, r)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from itertools import chain
from operator import is_

from tedsl.analysis.canceling import EXTREMES, Move, UnknownError, moved
from tedsl.lang.dataclass import dataclass
from tedsl.lang.expr import Apply, Const, Expr, Read, Reduce
from tedsl.lang.locks import cached_property
from tedsl.lang.phases import cases_of
from tedsl.lang.tensor import Operation, Scan, StepPart, Tensor
from tedsl.lang.traverse import free_axes, reads_of, rebuild_all, substitute, topological

__all__ = ["CanceledSteps", "canceling_within"]

Part = tuple[int, int]  # of a scan: its output, and its phase
Places = tuple[Expr, ...]
WHOLE = -1  # the phase of a state that is not packed


@dataclass(frozen=True, eq=False)
class CanceledSteps:
    """The nodes of the bodies of a scan, as `phases.cases_of` has them, on which no part depends that others read.

    `parts`: those that somebody asks for all the same: others, or another step.
    """

    nodes: Set[Expr] = frozenset()
    parts: Set[Part] = frozenset()


def canceling_within(op: Scan, readers: Iterable[Operation]) -> CanceledSteps:
    """What a scan need not send back, where `readers` are all that may read it."""
    cases = [(phase, bodies) for phase, _, bodies in cases_of(op)] or [(WHOLE, dict(enumerate(op.bodies)))]
    nodes = topological(chain.from_iterable(bodies.values() for _, bodies in cases))
    if not any(isinstance(node, Reduce) and node.reducer.kind in EXTREMES for node in nodes):
        return CanceledSteps()
    results = _read_by(op, readers)
    if results is None:
        return CanceledSteps()
    steps = _Steps(op, cases, results, {state: k for k, state in enumerate(op.states)})
    found: set[Expr] = set()
    for instances in steps.stages().values():
        if steps.cancels(instances):
            found.update(instances)
    return CanceledSteps(found, results | steps.of_other_steps) if found else CanceledSteps()


def _read_by(op: Scan, readers: Iterable[Operation]) -> set[Part] | None:
    """The parts that others read; None where these are not known."""
    if not op.parts:
        return {(k, WHOLE) for k in range(len(op.bodies))}
    own, found = set(op.outputs), set[Part]()
    for reader in readers:
        if reader is op or own.isdisjoint(reader.inputs):
            continue
        for read in reads_of(reader.expressions):
            part = op.part_of(read) if read.tensor in own else None
            if part is not None:
                found.add(_key(part))
            elif read.tensor in own:
                return None
    return found


def _key(part: StepPart) -> Part:
    return part.output, part.phase


@dataclass(frozen=True, eq=False)
class _Steps:
    """The bodies of a scan in the order of a step, and the parts that others read."""

    op: Scan
    cases: list[tuple[int, dict[int, Expr]]]
    results: Set[Part]
    positions: Mapping[Tensor, int]

    @cached_property
    def of_other_steps(self) -> set[Part]:
        """The parts that are read of another step than the one that is computed."""
        reads = chain.from_iterable(reads_of(bodies.values()) for _, bodies in self.cases)
        parts = ((self._part(r), r) for r in reads)
        return {part for part, r in parts if part is not None and not self._is_of_this_step(r)}

    def stages(self) -> dict[Expr, dict[Expr, Places]]:
        """What is made of extremes alone: by virtual stage the nodes that are instances of it, and where each is."""
        extremes: set[Part] = set()
        found: dict[Expr, dict[Expr, Places]] = {}
        for phase, bodies in self.cases:
            made: dict[Expr, bool | None] = {}  # None: a number, whatever it is beside
            for node in topological(bodies.values()):
                made[node] = self._is_made(node, made, extremes)
                if made[node] and node.dtype.is_float:
                    stage, at = self._instance(node)
                    found.setdefault(stage, {})[node] = at
            extremes.update((k, phase) for k, body in bodies.items() if made[body])
        return found

    def _is_made(self, node: Expr, made: Mapping[Expr, bool | None], extremes: Set[Part]) -> bool | None:
        """Whether a node is made of extremes alone."""
        if isinstance(node, Const):
            return None
        if isinstance(node, Reduce):
            return node.reducer.kind in EXTREMES
        if isinstance(node, Read):
            return self._part(node) in extremes and self._is_of_this_step(node)
        if not isinstance(node, Apply):
            return False
        children = [made[c] for c in node.children]
        return all(c is not False for c in children) and any(children)

    def _instance(self, node: Expr) -> tuple[Expr, Places]:
        """The virtual stage that a node is an element of, and which one."""
        below = topological(node)
        places = {r: self._place(r) for r in below if isinstance(r, Read)}
        first = next(iter(places.values()), ())
        if any(isinstance(n, Reduce) for n in below) or not all(all(map(is_, p, first)) for p in places.values()):
            return node, tuple(free_axes(node))

        def rule(n: Expr) -> Expr:
            if not isinstance(n, Read):
                return n
            at = enumerate(zip(n.indices, self.op.axes, strict=True))
            return Read(n.tensor, tuple(i if k == self._phase_at else axis for k, (i, axis) in at))

        (stage,) = rebuild_all((node,), rule)
        return stage, first

    def _place(self, read: Read) -> Places:
        return tuple(i for k, i in enumerate(read.indices) if k != self._phase_at)

    @property
    def _phase_at(self) -> int | None:
        return self.op.dims[-1] if self.op.parts else None

    def _part(self, read: Read) -> Part | None:
        """The part of the scan that a body reads."""
        output = self.positions.get(read.tensor)
        if output is None or not self.op.parts:
            return None if output is None else (output, WHOLE)
        part = self.op.part_of(read)
        return None if part is None else _key(part)

    def _is_of_this_step(self, read: Read) -> bool:
        dims, steps = self.op.dims, self.op.steps
        packed = bool(self.op.parts)
        here = zip(dims[: len(dims) - packed], steps[: len(steps) - packed], strict=True)
        return packed and all(read.indices[d] is step for d, step in here)

    def cancels(self, instances: Mapping[Expr, Places]) -> bool:
        """Whether nothing that others read moves with the elements of a virtual stage."""
        known = {node: Move(1.0, at) for node, at in instances.items()}
        moves: dict[Part, Move] = {}

        def of_read(read: Read) -> Move | None:
            move = moves.get(self._part(read) or (WHOLE, WHOLE))
            if move is None or not self._is_of_this_step(read):  # of another step: none that moves may be
                return None
            here: dict[Expr, Expr] = dict(zip(self.op.axes, read.indices, strict=True))
            return Move(move.amount, tuple(substitute(i, here) for i in move.at), move.is_factor)

        try:
            for phase, bodies in self.cases:
                for k, body in bodies.items():
                    if (move := moved(body, of_read, known)) is not None:
                        moves[k, phase] = move
        except UnknownError:
            return False
        return moves.keys().isdisjoint(self.results | self.of_other_steps)
