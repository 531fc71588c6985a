"""A call in general: everything is checked, what cannot be passed as it is is copied, and what was done is told.

    what was given -> arrays, sizes, modes        `_taken`
                   -> the program to run          `_chosen`
                   -> arrays to write into        `_targets`
                   -> memory of the call          `_memory`
                   -> without hazards             `PreparedCall.settled`
                   -> run, written back           `_run`, `_write_back`
                   -> what the caller gets        `_returned`

Calls on arrays of the same shapes and strides are prepared by it, and need none of this (`prepared_calls`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from tedsl.analysis.arrays.donated import take
from tedsl.analysis.checked import is_checked
from tedsl.analysis.pointwise import Array
from tedsl.analysis.sizes import bind_sizes, concrete_shape
from tedsl.backend.calling.aliasing import overlap
from tedsl.backend.calling.call_arguments import (
    check_is_memory,
    check_target,
    given_outputs,
    input_array,
    modes_of,
    passable,
    writable,
)
from tedsl.backend.calling.donation import Donor
from tedsl.backend.calling.explanations import explained
from tedsl.backend.calling.fact_check import check_facts
from tedsl.backend.calling.in_place import ChosenProgram, PreparedCall
from tedsl.backend.calling.nan_check import check_numbers
from tedsl.backend.calling.signature import Asked, KernelParts
from tedsl.backend.calling.stats import Stats
from tedsl.backend.compiling.executable import CallMemory
from tedsl.backend.host.runtime import KernelError
from tedsl.backend.sequence.arena import fresh
from tedsl.lang.dataclass import dataclass
from tedsl.lang.errors import AliasError
from tedsl.lang.expr import Var
from tedsl.lang.foreign import note_writes

__all__ = ["CallAnswer", "answer"]


@dataclass(frozen=True, eq=False)
class CallAnswer:
    """What a call returns, and what it did: what further calls like it need."""

    results: tuple[Any, ...]
    call: PreparedCall
    memory: CallMemory
    stats: Stats


def answer(kernel: KernelParts, asked: Asked) -> CallAnswer:
    """Call a kernel on arrays in the memory of the CPU."""
    kernel.donor.check(asked.given, asked.out)
    taken = _taken(kernel, asked)
    chosen = _chosen(kernel, asked, taken)
    targets = _targets(kernel, asked, taken)
    kernel.donor.check_apart(taken.arrays, targets)
    is_own = asked.out is None
    call = PreparedCall(kernel.signature, chosen, taken.arrays, targets, is_own)
    memory = call.settled(_memory(kernel, chosen, taken, targets), taken.copies)
    check = _NumberCheck(kernel, taken, targets) if is_checked() else None
    if check is not None:
        check_facts(kernel.signature.fed, kernel.signature.outputs, taken.arrays, taken.bound, kernel.signature.what)
    _run(kernel, call, memory, asked.given)
    _write_back(targets, memory)
    stats = _stats(kernel, call, memory, taken.copies + memory.copies)
    if check is not None:
        check.verify(memory)
    return CallAnswer(_returned(kernel, asked, targets, memory), call, memory, stats)


@dataclass(frozen=True, eq=False)
class _Taken:
    """Arrays of the inputs' dtypes, the values of all sizes, the shapes and modes of the outputs."""

    arrays: list[Array]
    bound: dict[Var, int]
    shapes: list[tuple[int, ...]]
    modes: tuple[str, ...]
    copies: list[tuple[str, str]] = field(default_factory=list)  # made so far


def _taken(kernel: KernelParts, asked: Asked) -> _Taken:
    signature, what = kernel.signature, kernel.signature.what
    copies: list[tuple[str, str]] = []
    arrays = [
        input_array(t, v, what, asked.casting, k in kernel.written, copies)
        for k, (t, v) in enumerate(zip(signature.fed, asked.given, strict=True))
    ]
    bound = bind_sizes(signature.fed, [a.shape for a in arrays], asked.sizes, what, signature.outputs)
    shapes = [concrete_shape(t, bound, what) for t in signature.outputs]  # says which size is missing
    return _Taken(arrays, bound, shapes, modes_of(signature.outputs, asked.mode, what), copies)


def _chosen(kernel: KernelParts, asked: Asked, taken: _Taken) -> ChosenProgram:
    """Our program; or the one that adds in place, which was made for calls without out= and mode=."""
    adding = kernel.accumulating
    if adding is None or asked.out is not None or asked.mode is not None:
        sizes = kernel.shared.sizes(taken.bound)
        return ChosenProgram(kernel.core, range(len(taken.arrays)), taken.modes, sizes)
    sizes = adding.shared.sizes(taken.bound)
    return ChosenProgram(adding.shared.core, adding.inputs, adding.modes, sizes, adding.previous)


def _targets(kernel: KernelParts, asked: Asked, taken: _Taken) -> dict[int, Array]:
    """The arrays to write into, by the position of the output, checked."""
    signature, what = kernel.signature, kernel.signature.what
    targets, places = dict[int, Array](), dict[int, str]()
    wanted = given_outputs(signature.outputs, asked.out, what)
    for p, value in wanted.items():
        if taken.modes[p] != "null":
            places[p] = f"{what}: out= for {signature.outputs[p].name!r}"
            targets[p] = writable(value, places[p])
    for p, k in signature.alias.items():
        if taken.modes[p] != "null" and p not in wanted:
            name = signature.fed[k].name
            places[p] = f"{what}: input {name!r}, into which {signature.outputs[p].name!r} is written"
            check_is_memory(asked.given[k], taken.arrays[k], places[p])
            targets[p] = taken.arrays[k]
    for position, array in targets.items():
        check_target(signature.outputs[position], array, taken.shapes[position], places[position])
    _check_added(kernel, taken.modes, targets)
    _check_apart(kernel, targets)
    return targets


def _check_added(kernel: KernelParts, modes: Sequence[str], targets: Mapping[int, Array]) -> None:
    """What is added has something to be added to."""
    for position, mode in enumerate(modes):
        if mode == "add" and position not in targets:
            name = kernel.signature.outputs[position].name
            raise ValueError(f"{kernel.signature.what}: mode='add' of output {name!r} needs out=, the array to add to")


def _check_apart(kernel: KernelParts, targets: Mapping[int, Array]) -> None:
    """No two outputs are written into the same memory."""
    outputs = kernel.signature.outputs
    for p, q in [(p, q) for p in targets for q in targets if p < q]:
        if overlap(targets[p], targets[q]):
            raise AliasError(
                f"{kernel.signature.what}: the arrays given for outputs {outputs[p].name!r} and {outputs[q].name!r} "
                "overlap in memory; give each output memory of its own"
            )


def _memory(kernel: KernelParts, chosen: ChosenProgram, taken: _Taken, targets: Mapping[int, Array]) -> CallMemory:
    """What is passed: arrays as they are where Halide can hold them, fresh ones for results that have no place."""
    signature, copies, on_device = kernel.signature, taken.copies, kernel.is_on_device
    passed = [passable(a, t, copies, on_device=on_device) for a, t in zip(taken.arrays, signature.fed, strict=True)]
    if chosen.adds_to is not None:
        previous = {p: passed[k] for p, k in chosen.adds_to.items()}
    else:
        added = [p for p, mode in enumerate(taken.modes) if mode == "add"]
        previous = {p: passable(targets[p], signature.outputs[p], copies, on_device=on_device) for p in added}
    buffers = {
        p: targets[p] if p in targets else fresh(taken.shapes[p], signature.outputs[p].dtype.numpy)
        for p, mode in enumerate(chosen.modes) if mode != "null"
    }  # fmt: skip
    inputs = [passed[k] for k in chosen.positions]
    return CallMemory(inputs, buffers, previous, given=frozenset(targets), lent=kernel.donor.lent)


def _run(kernel: KernelParts, call: PreparedCall, memory: CallMemory, given: Sequence[Any]) -> None:
    chosen, changed = call.chosen, True
    try:
        chosen.core.run(memory, chosen.modes, chosen.sizes)
    except KernelError as error:
        changed = error.requirement is None  # else nothing was written: see Placing
        raise explained(kernel, error, memory.inputs, chosen.sizes) from None
    except (IndexError, ValueError, TypeError):
        changed = False
        raise
    finally:
        if changed:
            kernel.donor.give(given)


def _write_back(targets: Mapping[int, Array], memory: CallMemory) -> None:
    """What was computed in temporaries copied to where it is wanted."""
    for position, target in targets.items():
        if memory.outputs[position] is not target:
            target[...] = memory.outputs[position]


def _stats(kernel: KernelParts, call: PreparedCall, memory: CallMemory, copies: list[tuple[str, str]]) -> Stats:
    total = sum(a.nbytes for a in (*memory.inputs, *memory.outputs.values()))
    core, sizes, lent = call.chosen.core, call.chosen.sizes, memory.lent
    return Stats(0.0, copies, total, lambda: core.temporary_bytes(sizes, lent), kernel.is_on_device)


def _returned(kernel: KernelParts, asked: Asked, targets: Mapping[int, Array], memory: CallMemory) -> tuple[Any, ...]:
    """What the caller gets for each output that was written: its own object where the result is on one."""
    signature, donor = kernel.signature, kernel.donor
    own = {p: asked.given[k] for p, k in signature.alias.items() if k not in donor.taken}
    own.update(given_outputs(signature.outputs, asked.out, signature.what))
    foreign = {p: v for p, v in own.items() if p in memory.outputs and type(v) is not np.ndarray}
    note_writes(foreign.values())
    arrays = {p: _on_donated(donor, p, targets.get(p, a), asked.given) for p, a in memory.outputs.items()}
    return tuple(foreign.get(p, a) for p, a in arrays.items())


def _on_donated(donor: Donor, position: int, array: Array, given: Sequence[Any]) -> Array:
    """The array of an output, which is another object where it took the memory of an input."""
    source = donor.source(position)
    is_taken = source is not None and array is given[source]
    return take(array, donor.call(source)) if source is not None and is_taken else array


class _NumberCheck:
    """What `te.checked()` compares a call with: its arrays as they were before."""

    def __init__(self, kernel: KernelParts, taken: _Taken, targets: Mapping[int, Array]) -> None:
        self.kernel, self.taken, self.targets = kernel, taken, targets
        self.before = [a.copy() for a in taken.arrays]
        self.former = {p: t.copy() for p, t in targets.items()}

    def verify(self, memory: CallMemory) -> None:
        """FloatingPointError for a NaN that was not there, with everything as it was."""
        signature = self.kernel.signature
        results = {p: self.targets.get(p, a) for p, a in memory.outputs.items()}
        added = {p: self.former[p] for p in memory.previous if p in self.former}
        fed, outputs, bound = signature.fed, signature.outputs, self.taken.bound
        try:
            check_numbers(fed, outputs, self.before, results, bound, signature.what, added)
        except FloatingPointError:
            for position, target in self.targets.items():
                target[...] = self.former[position]
            raise
