"""A program under rewriting: its stages one by one, users rebuilt on what changed, and the directives found so far."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import field, replace
from typing import Any

from schedules.conditions import tidy
from schedules.cutting.repetition import Definitions
from schedules.directives import Definition, Directive, Fuse
from schedules.loops import nest_of
from schedules.program import ProgramStages, reading, rewritten_expressions
from schedules.thresholds import Thresholds
from tedsl.lang.dataclass import dataclass
from tedsl.lang.dtypes import INT32
from tedsl.lang.expr import Apply, Axis, Expr, Read
from tedsl.lang.extents import number, simplify_extent
from tedsl.lang.phases import read_through
from tedsl.lang.tensor import Compute, Operation, Placeholder, Scan, Tensor
from tedsl.lang.traverse import operations_between, reads_of, substitute, substitute_all

__all__ = ["Rewriting", "computed_between", "fused", "loop_names"]


@dataclass
class Rewriting:
    """The stages made so far, and what the tensors of the original program became.

    A stage's operation has the name of the stage. What stands for a stage of the original program has its name, so that
    it is found under it.
    """

    program: ProgramStages
    least: Thresholds
    new: dict[Tensor, Tensor] = field(default_factory=dict)
    stages: list[Operation] = field(default_factory=list)
    taken: set[str] = field(default_factory=set)
    directives: list[Directive] = field(default_factory=list)
    planned: set[str] = field(default_factory=set)  # stages that need no more directives
    finite: list[Tensor] = field(default_factory=list)  # equal to the original where these hold no inf or NaN
    kinds: dict[str, str] = field(default_factory=dict)  # what a rewrite made a stage for
    totals: set[str] = field(default_factory=set)  # stages that combine the blocks of a reduction with what is left
    widths: dict[str, int] = field(default_factory=dict)  # lanes of the vectors of a stage, where they are asked for
    inside: dict[str, str] = field(default_factory=dict)  # stages to be computed for one element of another one
    shared: dict[str, list[Any]] = field(default_factory=dict)  # copies for blocks of a GPU, by their reader
    tiles: dict[str, Any] = field(default_factory=dict)  # what a thread of a GPU sums of a stage
    strips: list[Any] = field(default_factory=list)  # copies made where windows read them
    current: str = ""  # the stage that is being rewritten, until its name is used
    extremes: dict[tuple[Hashable, ...], Tensor] = field(default_factory=dict)  # maxima and minima by what they are of
    wished: dict[str, str] = field(default_factory=dict)  # the names that were asked for, by those that were given
    alike: dict[Hashable, Any] = field(default_factory=dict)  # how stages were planned, by what they compute
    defined: Definitions[Tensor] = field(default_factory=Definitions)  # the sums that stages are made of
    numbered: list[Axis] = field(default_factory=list)  # one for each position, to compare reductions by
    company: int = 1  # sums that are made in one walk with the one in hand, itself counted
    begins: dict[Tensor, tuple[int, int]] = field(default_factory=dict)  # a dimension, and how much of it is not kept
    in_order: set[str] = field(default_factory=set)  # reductions written out, their terms as they were
    regrouped: set[str] = field(default_factory=set)  # sums whose terms are multiplied in another order
    between: set[Operation] = field(default_factory=set)  # windows on stages, and those on which there are windows
    parts: dict[Tensor, Compute] = field(default_factory=dict)  # of packed scans, which their readers read instead
    readers: dict[str, int] = field(default_factory=dict)  # of the original stages, how many each has; outputs one more

    def __post_init__(self) -> None:
        self.taken |= self.program.taken

    def name(self, wanted: str) -> str:
        """A free name; that of the stage in hand is given to the first who asks for it."""
        free, count = wanted, 0
        if wanted == self.current:
            self.current = ""
        else:
            while free in self.taken:
                count += 1
                free = f"{wanted}_{count}"
        self.taken.add(free)
        self.wished[free] = wanted
        return free

    def kept(self, op: Operation, steps: int | None = None) -> Operation:
        """The operation over the new tensors, a stage that others have planned; a scan may hold its last steps only."""
        name = self.program.names[op]
        made = reading(self._moved(op), self.new)
        made = made if made.name == name else replace(made, name=name, _outputs={})
        self.planned.add(name)
        return self.add(self.holding(made, op, steps) if isinstance(made, Scan) and steps is not None else made, op)

    def carried(self, op: Operation) -> Operation:
        """The operation over the new tensors, its conditions simplified, not a stage yet."""
        name = self.current = self.program.names[op]
        made = reading(self._moved(op), self.new, tidy)
        if isinstance(made, Scan):
            made = _at_own_places(made)
        if isinstance(made, Compute):
            made = _with_names_apart(made)
        return made if made.name == name else replace(made, name=name, _outputs={})

    def _moved(self, op: Operation) -> Operation:
        """The operation with indices that count from where the tensors begin that hold less than they did."""
        if self.begins.keys().isdisjoint(op.inputs) and self.parts.keys().isdisjoint(op.inputs):
            return op

        def rule(node: Expr) -> Expr:
            node = read_through(node, self.parts) if isinstance(node, Read) else node
            if not isinstance(node, Read) or node.tensor not in self.begins:
                return node
            dim, begin = self.begins[node.tensor]
            place = simplify_extent(node.indices[dim] - begin)
            return Read(node.tensor, (*node.indices[:dim], place, *node.indices[dim + 1 :]))

        return rewritten_expressions(op, rule)

    def holding(self, op: Scan, original: Operation, steps: int) -> Scan:
        """The scan with its last steps only; who reads it counts from the first of them."""
        begin = 0 if op.reverse else (number(op.steps[0].extent) or 0) - steps
        self.begins.update((tensor, (op.dims[0], begin)) for tensor in original.outputs)
        return replace(op, kept=steps, _outputs={})

    def add(self, op: Operation, original: Operation | None = None) -> Operation:
        """Let `op` be a stage; it stands for `original`."""
        self.stages.append(op)
        if original is not None:
            for old, now in zip(original.outputs, op.outputs, strict=True):
                if old is not now:
                    self.new[old] = now
        return op

    def add_total(self, op: Compute, original: Operation, body: Expr) -> None:
        """The reduction `op` as what combines parts of it, which are stages."""
        made = replace(op, name=self.name(op.name), names=None, bodies=(body,), _outputs={})
        self.totals.add(made.name)
        self.add(made, original)

    def is_made(self, part: Compute) -> bool:
        """Whether another stage is made of the same sum, which then stands for it; if not, it is what others find."""
        read = rewritten_expressions(reading(part, self.new, tidy), _at_one_spelling)
        assert isinstance(read, Compute)
        known = self.defined.first(read, part.output())
        if known is not part.output():
            self.new[part.output()] = self.new.get(known, known)
        return known is not part.output()

    def extreme(self, op: Compute, kind: str) -> Tensor | None:
        """The maximum or minimum, computed before, of what `op` reduces."""
        found = self.extremes.get(self._reduced(op, kind))
        return None if found is None else self.new.get(found, found)

    def remember_extreme(self, op: Compute, original: Operation) -> None:
        """Let a maximum or minimum be found by what it is of."""
        if op.reduction is not None and op.reduction.reducer.kind in ("max", "min"):
            self.extremes.setdefault(self._reduced(op, op.reduction.reducer.kind), original.outputs[0])

    def _reduced(self, op: Compute, kind: str) -> tuple[Hashable, ...]:
        """A reduction but for the names of its axes."""
        reduce = op.reduction
        assert reduce is not None
        axes = (*op.axes, *reduce.axes)
        self.numbered += [Axis(f"a{k}", None) for k in range(len(self.numbered), len(axes))]
        renamed: dict[Expr, Expr] = dict(zip(axes, self.numbered, strict=False))
        ends = tuple(end for a in axes for end in (a.begin, a.extent))
        return (kind, len(op.axes), *ends, *substitute_all((*reduce.values, reduce.where), renamed))

    def add_components(self, op: Compute, original: Operation, apart: Sequence[int]) -> None:
        """Let some components of a pointwise stage be stages of their own, the others one stage."""
        rest = [k for k in range(len(op.bodies)) if k not in set(apart)]
        if rest:
            made = replace(
                op, name=self.name(op.name), bodies=tuple(op.bodies[k] for k in rest), names=None, _outputs={}
            )
            self.stages.append(made)
            self.new.update((original.output(k), made.output(n)) for n, k in enumerate(rest))
        for k in apart:
            fresh = tuple(Axis(a.name, a.extent) for a in op.axes)
            body = substitute(op.bodies[k], dict(zip(op.axes, fresh, strict=True)))
            self.new[original.output(k)] = self.compute(f"{op.name}_{k}", fresh, body)

    def sharing(self, op: Compute, part: Expr) -> Compute:
        """The stage with a part of its bodies read from a stage of its own."""
        fresh = tuple(Axis(a.name, a.extent) for a in op.axes)
        made = self.compute(f"{op.name}_shared", fresh, substitute(part, dict(zip(op.axes, fresh, strict=True))))
        found = Read(made, op.axes)
        return replace(op, bodies=tuple(substitute(b, {part: found}) for b in op.bodies), _outputs={})

    def add_window(self, op: Compute, original: Operation, kind: str = "") -> None:
        """A reduction of a few terms, and a stage that reads it: a row is reduced in the cache, then stored."""
        axes = tuple(Axis(a.name, a.extent) for a in op.axes)
        made = replace(op, name=self.name(f"{op.name}_window"), names=None, _outputs={})
        self.stages.append(made)
        self.kinds[made.name] = "window"
        body = Read(made.output(), axes)
        self.add(replace(op, name=self.name(op.name), axes=axes, bodies=(body,), names=None, _outputs={}), original)
        if kind:
            self.kinds[self.stages[-1].name] = kind

    def compute(self, name: str, axes: Sequence[Axis], body: Expr) -> Tensor:
        """A stage of one's own."""
        op = Compute(name=self.name(name), axes=tuple(axes), bodies=(body,), where="")
        return self.add(op).outputs[0]


def computed_between(inputs: Iterable[Tensor], outputs: Iterable[Tensor]) -> list[Operation]:
    """The operations that compute the outputs from the inputs, placeholders left out."""
    return [op for op in operations_between(inputs, outputs) if not isinstance(op, Placeholder)]


def _at_one_spelling(node: Expr) -> Expr:
    """A read with the indices that are made of loops alone in normal form."""
    if not isinstance(node, Read):
        return node
    plain = [i.dtype is INT32 and isinstance(i, Apply) and not reads_of((i,)) for i in node.indices]
    return Read(node.tensor, tuple(simplify_extent(i) if p else i for i, p in zip(node.indices, plain, strict=True)))


def _at_own_places(op: Scan) -> Operation:
    """The scan with the axis itself where a state is read at the only place that an axis beside the steps has."""
    own = set(map(id, op.states))
    units = {d: a for d, a in enumerate(op.axes) if d not in op.dims and number(a.extent) == 1}

    def rule(node: Expr) -> Expr:
        if not isinstance(node, Read) or id(node.tensor) not in own:
            return node
        return Read(node.tensor, tuple(units.get(d, index) for d, index in enumerate(node.indices)))

    return rewritten_expressions(op, rule) if units else op


def fused(
    stage: str, loops: Sequence[str], prefix: str = "", *, left: int = 1, definition: Definition = "body"
) -> tuple[list[Directive], list[str]]:
    """The outermost loops fused until `left` are left, and those; fused ones are numbered after a prefix, or joined."""
    say: list[Directive] = []
    rest = list(loops)
    while len(rest) > left:
        name = f"{prefix}{len(say)}" if prefix else f"{rest[0]}_{rest[1]}"
        say.append(Fuse(stage=stage, definition=definition, outer=rest[0], inner=rest[1], fused=name))
        rest[:2] = [name]
    return say, rest


def _with_names_apart(op: Compute) -> Compute:
    """The stage with no axis that is called as a part of another one's loop is: `i_o` beside `i`."""
    axes = (*op.axes, *(op.reduction.axes if op.reduction is not None else ()))
    taken = {a.name for a in axes}
    names: dict[Expr, Axis] = {}
    for axis in axes:
        if any(axis.name.startswith(f"{other}_") for other in taken):
            name = axis.name.replace("_", "")
            while name in taken:
                name += "x"
            taken.add(name)
            names[axis] = Axis(name, axis.extent, begin=axis.begin, is_reduce=axis.is_reduce)
    if not names:
        return op
    own = tuple(names.get(a, a) for a in op.axes)
    return replace(op, axes=own, bodies=substitute_all(op.bodies, names), _outputs={})


def loop_names(op: Operation) -> dict[Axis, str]:
    """The names of the loops of a pointwise stage or reduction."""
    return {axis: v.name for v in nest_of(op.name, op, "body").levels for axis in v.origin if isinstance(axis, Axis)}
