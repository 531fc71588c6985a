"""`checkpoint=` and `memory=`: programs that forget what they can compute again, to need less memory."""

from __future__ import annotations

from typing import Any

from tedsl.analysis.sizes import concrete_shape
from tedsl.analysis.work import flops_of
from tedsl.backend.compiling.core import Core
from tedsl.backend.host.units import parse_bytes, readable
from tedsl.backend.sequence.ordering import typical_bytes
from tedsl.backend.sequence.recompute import Saved, StepCosts, saved
from tedsl.backend.sequence.runner import KernelStep
from tedsl.backend.sequence.steps import Steps
from tedsl.lang.tensor import Tensor
from tedsl.lang.traverse import operations_between

__all__ = ["save_memory"]

ATTEMPTS = 8


def save_memory(core: Steps, memory: Any, checkpoint: Any) -> None:
    """Let steps of a program run again, so that what is no checkpoint is not kept, or what is kept fits in `memory`."""
    keep = None if checkpoint is None else _kept(core, checkpoint)
    if keep is not None:
        core.replace_steps(saved(core.steps, core.results, len(core.tensors), _costs(core, None), keep, None))
    if memory is not None:
        _fit(core, parse_bytes(memory), memory)


def _kept(core: Steps, checkpoint: Any) -> set[int]:
    """The numbers of the tensors that are stored for the checkpoints."""
    listed = list(checkpoint) if isinstance(checkpoint, (list, tuple)) else [checkpoint]
    computed = {t for op in operations_between(core.inputs, core.outputs) for t in op.outputs}
    numbers: set[int] = set()
    for tensor in listed:
        if not isinstance(tensor, Tensor):
            raise TypeError(f"te.build: checkpoint lists tensors, found {type(tensor).__name__} ({tensor!r:.60})")
        if tensor not in computed:
            raise ValueError(f"te.build: checkpoint: {tensor!r} is not computed between the inputs and the outputs")
        numbers |= _stored(core, tensor)
    return numbers


def _stored(core: Steps, tensor: Tensor) -> set[int]:
    """The tensor itself where it is stored, else what it is computed from wherever it is read."""
    found: set[int] = set()
    pending, seen = [tensor], {tensor}
    while pending:
        top = pending.pop()
        if top in core.numbers:
            found.add(core.numbers[top])
            continue
        fresh = [t for t in top.op.inputs if t not in seen]
        seen.update(fresh)
        pending += fresh
    return found


def _costs(core: Steps, what: str | None) -> StepCosts:
    """Bytes of everything; `what` needs them exactly."""

    def size(tensor: Tensor) -> int:
        if what is None:
            return typical_bytes(tensor)
        total = tensor.dtype.itemsize
        for extent in concrete_shape(tensor, {}, what):
            total *= extent
        return total

    arrays = sum(map(size, (*core.inputs, *core.outputs)))
    inside = {s: 0 if what is None else s.bytes_inside({}) for s in core.steps}
    known: dict[Core | None, int] = {}
    work = {s: known[s.core] if s.core in known else known.setdefault(s.core, _work(core, s)) for s in core.steps}
    return StepCosts({c: size(t) for c, t in enumerate(core.tensors)}, inside, arrays, work)


def _work(core: Steps, step: KernelStep) -> int:
    """Operations of a step, and the bytes that it moves."""
    read, made = ([core.tensors[c] for c in cells] for cells in (step.inputs, step.outputs))
    try:
        flops = sum(flops_of(op, {}) for op in operations_between(read, made))
    except ValueError:  # extents that are not numbers
        flops = 0
    return flops + sum(map(typical_bytes, (*read, *made)))


def _fit(core: Steps, most: int, asked: Any) -> None:
    """Let as little be computed again as makes a call fit, or refuse."""
    try:
        costs = _costs(core, f"te.build: memory={asked!r}")
    except ValueError as error:
        raise ValueError(f"te.build: memory={asked!r} needs extents that are numbers: {error}") from None
    whole, bound, found = core.peak_bytes(core.steps, core.tensors), most, None
    if whole <= most:
        return
    for _ in range(ATTEMPTS):
        found = saved(core.steps, core.results, len(core.tensors), costs, None, bound)
        if found.needed or len(found.again) > 2 * len(core.steps):
            break
        over = core.peak_bytes(found.steps, core.with_copies(found.copies)) - most
        if over <= 0:
            core.replace_steps(found)
            return
        bound -= over
    raise _refused(core, asked, found, costs, whole)


def _refused(core: Steps, asked: Any, found: Saved | None, costs: StepCosts, whole: int) -> ValueError:
    least = found.needed if found is not None and found.needed else None
    need = f"about {readable(least)}" if least else "more"
    return ValueError(
        f"te.build: memory={asked!r} is too little for {core.name!r}: a call needs {need}, of which its inputs and "
        f"outputs take {readable(costs.arrays)}; it takes {readable(whole)} with nothing computed twice"
    )
