"""What a forward pass keeps for its backward pass: stages that are expensive to compute again, or those named.

The backward program is written first, as if nothing were kept. What it reads of the forward program is found there:
reductions, scans, scatters and results are kept, pointwise stages are computed again from those and from the inputs.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress

from autodiff import differentiate
from schedules import Schedule
from schedules.program import reading
from tedsl.lang.compute import placeholder
from tedsl.lang.dataclass import dataclass
from tedsl.lang.errors import GradientError
from tedsl.lang.printing import names_in
from tedsl.lang.structure import structural_key
from tedsl.lang.tensor import Compute, Operation, Placeholder, Tensor
from tedsl.lang.traverse import operations_between, stages_of
from tedsl.ops.purity import has_extern
from tedsl.ops.routines import Batched, Pullback, Pushforward, Routine, Tensors, pushed
from tedsl.ops.shapes import Pattern, Spec, all_apart

__all__ = ["KeptPullback", "SavedPositions", "Saving", "derived_by", "kept_by", "saving_of"]


@dataclass(frozen=True)
class SavedPositions:
    """Positions of the outputs of the saving routine and of the inputs that the backward pass reads."""

    results: tuple[int, ...]
    inputs: tuple[int, ...]
    names: tuple[str, ...]  # of the results


class Saving(Routine):
    """The outputs of a routine, then the stages kept for its backward pass.

    `is_open`: with symbols for extents. What is kept may be other stages then, so that what is derived from it, and
    graphs that name it, must not change from one to the other.
    """

    def __init__(self, of: Routine, save: str | tuple[str, ...], is_open: bool) -> None:
        super().__init__()
        self.of: Routine = of
        self.save = save
        self.name, self.input_names, self.symbolic, self.worth = of.name, of.input_names, is_open, of.worth
        self.label = f"saving({save!r}, {is_open})"
        self.plans: dict[tuple[Spec, ...], SavedPositions] = {}

    def patterns(self, specs: tuple[Spec, ...]) -> list[Pattern]:
        """That of the routine."""
        pattern = self.of.traced(specs).pattern
        return super().patterns(specs) if pattern is None else [pattern]

    def trace(self, inputs: Tensors) -> tuple[Tensors, object]:
        outputs = self.of.outputs(inputs)
        merged = _merged([*outputs, *self._stages(inputs, outputs)[0].values()])
        return merged, tuple(range(len(merged)))

    def schedule_backward(self, inputs: Tensors, adjoints: Tensors, kind: str) -> Schedule | None:
        return self.of.schedule_backward(inputs, adjoints, kind)

    def pull(self, inputs: Tensors, wanted: Sequence[int], heads: Mapping[int, Tensor]) -> Tensors:
        """By the rules of the routine; what comes back from kept stages, which are no results of it, is added."""
        outputs = self.outputs(inputs)
        count = len(self.of.outputs(inputs))
        own = {p: head for p, head in heads.items() if p < count}
        rest = {p: head for p, head in heads.items() if p >= count}
        if not rest:
            return self.of.pull(inputs, wanted, own)
        sources = [inputs[p] for p in wanted]
        more = differentiate([outputs[p] for p in rest], sources, list(rest.values()))
        if not own:
            return tuple(more)
        return tuple(a + b for a, b in zip(self.of.pull(inputs, wanted, own), more, strict=True))

    def push(self, inputs: Tensors, tangents: Mapping[int, Tensor]) -> Tensors:
        outputs = self.outputs(inputs)
        count = len(self.of.outputs(inputs))
        return (*self.of.push(inputs, tangents), *pushed(outputs[count:], inputs, tangents))

    def kept(self, specs: tuple[Spec, ...]) -> SavedPositions:
        """What is kept for arrays of these shapes."""
        found = self.plans.get(specs)
        if found is None:
            traced = self.traced(specs)
            count = len(self.of.traced(specs).outputs)
            outputs = traced.outputs[:count]
            stages, read = self._stages(traced.inputs, outputs)
            again = self._read(traced.inputs, traced.outputs)  # what derivatives of kept stages read, too
            keys = [structural_key(t, traced.inputs) for t in outputs]
            results = [p for p, key in enumerate(keys) if key in stages or key in read.results]
            results += range(count, len(traced.outputs))
            inputs = tuple(p for p, t in enumerate(traced.inputs) if id(t.op) in read.inputs | again.inputs)
            names = names_in(stages_of(traced.outputs))
            found = SavedPositions(tuple(results), inputs, tuple(names.of(traced.outputs[p]) for p in results))
            self.plans[specs] = found
        return found

    def _stages(self, inputs: Tensors, outputs: Sequence[Tensor]) -> tuple[dict[str, Tensor], _Read]:
        """The stages kept beside the outputs, by their keys; and what else the backward pass reads."""
        read = self._read(inputs, outputs)
        return read.stages, read

    def _read(self, inputs: Tensors, outputs: Sequence[Tensor]) -> _Read:
        """What the adjoints of the inputs read of the forward program, for adjoints of these outputs."""
        heads = {
            p: placeholder(t.extents, t.dtype, name=f"head_{p}") for p, t in enumerate(outputs) if t.dtype.is_float
        }
        if not heads:  # integers and conditions, which have no derivative
            return _Read({}, set(), set())
        wanted = [p for p, t in enumerate(inputs) if t.dtype.is_float]
        main = len(self.of.outputs(inputs))
        adjoints = (self.of if len(outputs) == main else self).pull(inputs, wanted, heads)
        keys = {structural_key(t, inputs) for t in outputs}
        return _read_forward(adjoints, heads.values(), inputs, keys, self.save)


@dataclass
class _Read:
    """What a backward program reads of the forward one: stages to keep, outputs, and inputs by the id of their op."""

    stages: dict[str, Tensor]
    results: set[str]
    inputs: set[int]


def _read_forward(
    adjoints: Sequence[Tensor],
    heads: Iterable[Tensor],
    inputs: Sequence[Tensor],
    outputs: set[str],
    save: str | tuple[str, ...],
) -> _Read:
    moving = {id(t.op) for t in heads}
    order = stages_of(adjoints)
    frontier: list[Tensor] = list(adjoints)
    for op in order:
        if any(id(t.op) in moving for t in op.inputs):
            moving.add(id(op))
            frontier += op.inputs
    found = _Read({}, set(), set())
    seen: set[Tensor] = set()
    while frontier:
        tensor = frontier.pop()
        if id(tensor.op) in moving or tensor in seen:
            continue
        seen.add(tensor)
        if isinstance(tensor.op, Placeholder):
            found.inputs.add(id(tensor.op))
            continue
        key = structural_key(tensor, inputs)
        if key in outputs:
            found.results.add(key)
        elif _is_wanted(tensor, save):
            found.stages[key] = tensor
        else:
            frontier += tensor.op.inputs
    return found


def _is_wanted(tensor: Tensor, save: str | tuple[str, ...]) -> bool:
    if isinstance(save, tuple):
        return tensor.name in save
    return not (isinstance(tensor.op, Compute) and tensor.op.reduction is None)


class KeptPullback(Pullback):
    """Inputs, kept results of a saving routine, adjoints of its outputs at `heads` -> adjoints of the inputs."""

    def __init__(self, of: Saving, wanted: tuple[int, ...], heads: tuple[int, ...], kept: tuple[int, ...]) -> None:
        super().__init__(of, wanted, heads)
        self.kept = kept
        names = (f"{of.name}_kept_{p}" for p in kept)
        self.name = f"{of.name}_backward"
        self.label = f"pullback({wanted}, {heads}, {kept})"
        self.input_names = (*of.input_names, *names, *(f"head_{p}" for p in heads))

    def placeholders(self, specs: Sequence[Spec]) -> Tensors:
        """What is kept has the shape of the result that it is."""
        own = self.of.placeholders(specs[: len(self.of.input_names)])
        results = self.of.outputs(own)
        shaped = [results[p] for p in (*self.kept, *self.heads)]
        names = self.input_names[len(own) :]
        return (*own, *(placeholder(t.extents, t.dtype, name=n) for t, n in zip(shaped, names, strict=True)))

    def patterns(self, specs: tuple[Spec, ...]) -> list[Pattern]:
        """That of the routine that keeps it; what is kept, and the heads, have their extents from there."""
        own = len(self.of.input_names)
        pattern = self.of.traced(specs[:own]).pattern
        return super().patterns(specs) if pattern is None else [(*pattern, *all_apart(specs)[own:])]

    def trace(self, inputs: Tensors) -> tuple[Tensors, object]:
        count, end = len(self.of.input_names), len(self.of.input_names) + len(self.kept)
        own, kept, heads = inputs[:count], inputs[count:end], dict(zip(self.heads, inputs[end:], strict=True))
        outputs = self.of.outputs(own)
        table = {structural_key(outputs[p], own): given for p, given in zip(self.kept, kept, strict=True)}
        adjoints = self.of.pull(own, self.wanted, heads)
        return _cut(adjoints, table, own, heads.values()), tuple(range(len(adjoints)))


def _cut(
    outputs: Sequence[Tensor], table: Mapping[str, Tensor], inputs: Sequence[Tensor], heads: Iterable[Tensor]
) -> Tensors:
    """The outputs, reading given tensors where they would compute what the table has."""
    new: dict[Tensor, Tensor] = {}
    moving = {id(t.op) for t in heads}
    for op in operations_between(inputs, outputs):
        if id(op) in moving or any(id(t.op) in moving for t in op.inputs):
            moving.add(id(op))
        elif not isinstance(op, Placeholder):
            keys = {t: structural_key(t, inputs) for t in op.outputs}
            new.update((t, table[key]) for t, key in keys.items() if key in table)
        _redirect(op, new)
    return tuple(new.get(t, t) for t in outputs)


def _redirect(op: Operation, new: dict[Tensor, Tensor]) -> None:
    made = reading(op, new) if not isinstance(op, Placeholder) else op
    if made is not op:
        for old, fresh in zip(op.outputs, made.outputs, strict=True):
            new.setdefault(old, fresh)


def _merged(outputs: Sequence[Tensor]) -> Tensors:
    """The outputs, with stages that compute the same made one."""
    new: dict[Tensor, Tensor] = {}
    known: dict[str, Operation] = {}
    alive = []
    placeholders = [op.output() for op in stages_of(outputs) if isinstance(op, Placeholder)]
    for op in stages_of(outputs):
        if isinstance(op, Placeholder):
            continue
        key = f"{type(op).__name__} {structural_key(op.outputs, placeholders)}"
        same = known.get(key)
        if same is not None:
            new.update(zip(op.outputs, same.outputs, strict=True))
            continue
        _redirect(op, new)
        made = new[op.output()].op if op.output() in new else op
        alive.append(made.outputs)
        known[key] = made
    return tuple(new.get(t, t) for t in outputs)


KINDS: dict[tuple[str, int], Callable[..., Routine]] = {
    ("pullback", 2): Pullback,
    ("pullback", 3): KeptPullback,
    ("pushforward", 1): Pushforward,
    ("batched", 1): Batched,
    ("saving", 2): Saving,
}


def derived_by(of: Routine, label: str) -> Routine:
    """What is derived from a routine, by its label."""
    name, _, arguments = label.partition("(")
    parts = ast.literal_eval(f"({arguments}")
    parts = parts if name in ("pullback", "saving") else (parts,)
    found: Routine = of.derived(KINDS[name, len(parts)], *parts)
    return found


def saving_of(routine: Routine, save: str | tuple[str, ...], specs: tuple[Spec, ...]) -> Saving:
    """The saving routine for arrays of these shapes, with symbols for extents where the routine has them."""
    if routine.traced(specs).is_symbolic:
        found: Saving = routine.derived(Saving, save, True)
        with suppress(Exception):  # the derivative needs numbers
            found.traced(specs)
            return found
    fixed: Saving = routine.derived(Saving, save, False)
    return fixed


def kept_by(saving: Saving, specs: tuple[Spec, ...]) -> SavedPositions | None:
    """What is kept, or None where the backward pass starts from the inputs (or does not exist)."""
    if saving.save == "inputs" or has_extern(saving.of.traced(specs).outputs):
        return None  # stages are told by their structure, and two Python functions are never known to be equal
    try:
        kept = saving.kept(specs)
    except GradientError:  # said when the gradient is asked for
        return None
    return kept if kept.results else None
