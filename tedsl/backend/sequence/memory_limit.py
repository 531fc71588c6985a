"""`checkpoint=` and `memory=`: programs that forget what they can compute again, to need less memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from tedsl.analysis.sizes import concrete_shape
from tedsl.analysis.work import flops_of
from tedsl.backend.compiling.compilation import Compilation
from tedsl.backend.compiling.executable import CompiledKernel, KernelStep, StepPlan
from tedsl.backend.host.units import parse_bytes, readable
from tedsl.backend.sequence.along_time import Cuts, compiled
from tedsl.backend.sequence.ordering import typical_bytes
from tedsl.backend.sequence.recompute import Saved, StepCosts, saved
from tedsl.backend.sequence.restored import plan_unasked
from tedsl.backend.sequence.runner import Chain, Placing
from tedsl.backend.sequence.timeline import NotAlongTime
from tedsl.lang.structure import structural_key
from tedsl.lang.tensor import Compute, Operation, Scan, Tensor
from tedsl.lang.traverse import operations_between

__all__ = ["refuse_sizes", "save_memory"]

ATTEMPTS = 8
LITTLE = 1  # bytes that nothing fits in
UNROLLED = 24  # stages of one form, from which on they are steps of a loop


def save_memory(program: Compilation, plan: StepPlan, memory: Any, checkpoint: Any) -> StepPlan:
    """The steps, some of which run again: what is no checkpoint is not kept, or what is kept fits in `memory`."""
    if checkpoint is not None:
        keep, costs = _kept(program, plan, checkpoint), _costs(program, plan, None)
        plan = _with_steps(plan, saved(plan.steps, plan.results, len(plan.tensors), costs, keep, None))
    if memory is None:
        return plan
    most = parse_bytes(memory)
    usual = (plan_unasked(program) or plan) if checkpoint is None else plan
    return _fit(program, plan, usual, most, memory)


def _with_steps(plan: StepPlan, found: Saved) -> StepPlan:
    """The steps that were found instead."""
    return replace(plan, tensors=_with_copies(plan, found.copies), steps=found.steps, again=found.again)


def _with_copies(plan: StepPlan, copies: Mapping[int, int]) -> tuple[Tensor, ...]:
    """The tensors by their numbers, with further ones for those that are computed again."""
    return (*plan.tensors, *(plan.tensors[copies[n]] for n in sorted(copies)))


def _peak_bytes(program: Compilation, plan: StepPlan) -> int:
    """The most memory that a call of these steps would hold, with arrays whose extents are numbers."""
    modes = ("write",) * len(plan.results)
    memory = Chain(plan.tensors, Placing(plan, modes, frozenset()), modes, {})
    return Chain.bytes_of((*program.inputs, *program.outputs)) + sum(memory.buffers())


def _kept(program: Compilation, plan: StepPlan, checkpoint: Any) -> set[int]:
    """The numbers of the tensors that are stored for the checkpoints."""
    listed = list(checkpoint) if isinstance(checkpoint, (list, tuple)) else [checkpoint]
    computed = {t for op in program.operations for t in op.outputs}
    numbers: set[int] = set()
    for tensor in listed:
        if not isinstance(tensor, Tensor):
            raise TypeError(f"te.build: checkpoint lists tensors, found {type(tensor).__name__} ({tensor!r:.60})")
        if tensor not in computed:
            raise ValueError(f"te.build: checkpoint: {tensor!r} is not computed between the inputs and the outputs")
        numbers |= _stored(plan, tensor)
    return numbers


def _stored(plan: StepPlan, tensor: Tensor) -> set[int]:
    """The tensor itself where it is stored, else what it is computed from wherever it is read."""
    found: set[int] = set()
    pending, seen = [tensor], {tensor}
    while pending:
        top = pending.pop()
        if top in plan.numbers:
            found.add(plan.numbers[top])
            continue
        fresh = [t for t in top.op.inputs if t not in seen]
        seen.update(fresh)
        pending += fresh
    return found


def _costs(program: Compilation, plan: StepPlan, what: str | None) -> StepCosts:
    """Bytes of everything; `what` needs them exactly."""

    def size(tensor: Tensor) -> int:
        if what is None:
            return typical_bytes(tensor)
        total = tensor.dtype.itemsize
        for extent in concrete_shape(tensor, {}, what):
            total *= extent
        return total

    arrays = sum(map(size, (*program.inputs, *program.outputs)))
    inside = {s: 0 if what is None else s.bytes_inside({}) for s in plan.steps}
    known: dict[CompiledKernel | None, int] = {}
    work = {s: known[s.core] if s.core in known else known.setdefault(s.core, _work(plan, s)) for s in plan.steps}
    return StepCosts({c: size(t) for c, t in enumerate(plan.tensors)}, inside, arrays, work)


def _work(plan: StepPlan, step: KernelStep) -> int:
    """Operations of a step, and the bytes that it moves."""
    read, made = ([plan.tensors[c] for c in cells] for cells in (step.inputs, step.outputs))
    try:
        flops = sum(flops_of(op, {}) for op in operations_between(read, made))
    except ValueError:  # extents that are not numbers
        flops = 0
    return flops + sum(map(typical_bytes, (*read, *made)))


def refuse_sizes(program: Compilation, asked: Any) -> None:
    """Refuse a limit for what has sizes that a call alone knows: what has to be computed again depends on them."""
    if asked is not None and parse_bytes(asked) and program.sizes:
        name = program.sizes[0].name
        raise ValueError(
            f"te.build: memory={asked!r} needs extents that are numbers, found te.var({name!r}): "
            "write the number in its place and build the program once for each"
        )


def _fit(program: Compilation, plan: StepPlan, usual: StepPlan, most: int, asked: Any) -> StepPlan:
    """Let as little be computed again as makes a call fit, or refuse; `usual`: the steps where nothing is asked.

    What is refused does not hang on the order of attempts: the plans that need the least know of no limit, and the
    least of theirs is what a refusal names.
    """
    peak_of = partial(_peak_bytes, program)
    takes = peak_of(usual)
    if _fits(usual, peak_of, most):
        return usual
    costs = _costs(program, plan, f"te.build: memory={asked!r}")
    for found in _forgetting(program, plan, costs, most):
        if _fits(found, peak_of, most):
            return found
    peaks, why = [takes], ""
    try:
        cuts = Cuts(program, peak_of)
        if (along_time := _along_time(cuts, most)) is not None:
            return along_time
        peaks.append(cuts.peak(cuts.frugal))
        why = "; cut along time, it holds a state for each segment and what one segment needs of all its steps"
    except NotAlongTime as error:
        if any(isinstance(op, Scan) for op in program.operations):
            why = f"; it cannot be cut along time: {error}"
    for found in _forgetting(program, plan, costs, LITTLE):
        peaks.append(peak_of(found))
        if _fits(found, peak_of, most):
            return found
    needed = readable(min(peaks), enough=True)
    raise ValueError(
        f"te.build: memory={asked!r} is too little for {program.name!r}: a call needs about {needed}, of which its "
        f"inputs and outputs take {readable(costs.arrays)}; without memory= it takes {readable(takes, enough=True)}"
        f"{_largest(program, usual)}{why}{_unrolled(program)}"
    )


def _along_time(cuts: Cuts, most: int) -> StepPlan | None:
    """The program in the longest segments that fit; None where even those that need the least do not."""
    if not (cuts.is_ample(most) or cuts.peak(cuts.frugal) <= most):
        return None

    def ways() -> Iterator[StepPlan]:
        yield from cuts.within(most)
        yield cuts.frugal  # several plans, made where none of the others fits

    return next((found for found in ways() if _fits(found, cuts.peak, most)), None)


def _fits(plan: StepPlan, peak_of: Callable[[StepPlan], int], most: int) -> bool:
    """Whether a call holds no more: by its schedule, and by what came of it where that was compiled."""
    return peak_of(plan) <= most and peak_of(compiled(plan)) <= most


def _largest(program: Compilation, plan: StepPlan) -> str:
    """What holds the most beside the arrays of the caller: a kernel, or what one leaves to another."""
    arrays = {*program.inputs, *program.outputs}
    held = [(typical_bytes(t), f"is {t.name!r}") for t in plan.tensors if t not in arrays]
    held += [(s.bytes_inside({}), f"kernel {_name(s)!r} holds while it runs") for s in plan.steps]
    most, what = max(held, default=(0, ""))
    return f", of which {readable(most)} {what}" if most else ""


def _name(step: KernelStep) -> str:
    return step.op.name if step.core is None and step.op is not None else step.core.program.name if step.core else ""


def _unrolled(program: Compilation) -> str:
    """What to do about steps that a Python loop has written out."""
    forms: dict[str, list[Operation]] = {}
    for op in operations_between(program.inputs, program.outputs):
        if isinstance(op, Compute):
            forms.setdefault(structural_key(op.outputs, op.inputs, between=True), []).append(op)
    alike = max(forms.values(), key=len, default=[])
    if len(alike) < UNROLLED:
        return ""
    return (
        f"; {len(alike)} stages have the form of {alike[0].name!r} at {alike[0].where}: where a Python loop wrote "
        "them, te.scan in its place makes steps of one form, of which some can be forgotten"
    )


def _forgetting(program: Compilation, plan: StepPlan, costs: StepCosts, most: int) -> Iterator[StepPlan]:
    """The steps as they are, then with more and more that is computed again; at last what the least memory allows."""
    yield plan
    bound, is_last = most, False
    for _ in range(ATTEMPTS):
        found = saved(plan.steps, plan.results, len(plan.tensors), costs, None, bound)
        if len(found.again) > 2 * len(plan.steps):
            return
        if found.needed > bound:
            bound, is_last = found.needed, True
            continue
        fewer = _with_steps(plan, found)
        yield fewer
        if is_last:
            return
        bound -= _peak_bytes(program, fewer) - most
