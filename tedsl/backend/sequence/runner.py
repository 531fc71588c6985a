"""Programs in steps: in which memory each step writes, and calls prepared for given shapes and strides.

A result is computed where it is wanted if nothing can fail after that; else it is copied there when all is done, so
that a call that fails has written nothing. What passes between steps lies in one block of memory (`arena`).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

import numpy as np

from tedsl.analysis.pointwise import Array
from tedsl.analysis.sizes import concrete_shape
from tedsl.backend.arguments.addresses import address_of
from tedsl.backend.arguments.blocks import BoundFunction, OneCall
from tedsl.backend.arguments.call_lists import CallList
from tedsl.backend.arguments.host_memory import register
from tedsl.backend.compiling.executable import BoxView, CallMemory, CompiledKernel, KernelStep, StepPlan
from tedsl.backend.compiling.forms import Numbers
from tedsl.backend.compiling.profiling import RECORDING, recorded
from tedsl.backend.compiling.variant import Variant
from tedsl.backend.host.loaders import loads_objects
from tedsl.backend.host.runtime import KernelError
from tedsl.backend.lowering.index_checks import checks_of, failed
from tedsl.backend.sequence.arena import Arena, Span
from tedsl.backend.sequence.externs import called
from tedsl.lang.dataclass import dataclass
from tedsl.lang.expr import Var
from tedsl.lang.tensor import Extern, Tensor
from tedsl.lang.traverse import operations_between
from tedsl.reference import evaluate_stages

__all__ = ["Chain", "Placing", "is_compact"]

KEPT = 1 << 26  # bytes that wait for the next call: fresh pages take longer than what is computed in them


class Placing:
    """Which steps a call needs, and which of them write straight to where the caller wants a result."""

    def __init__(self, plan: StepPlan, modes: Sequence[str], given: Set[int]) -> None:
        self.plan, results = plan, plan.results
        wanted = [p for p, mode in enumerate(modes) if mode != "null"]
        self.steps = _needed(plan, {results[p] for p in wanted})
        self.born: dict[int, int] = {}  # where it is written, or the first part of it
        for k, step in enumerate(self.steps):
            for c in plan.made_by(step):
                self.born.setdefault(c, k)
        parts = {view.of for view in plan.views.values()}
        self.read = {c for step in self.steps for c in plan.read_by(step)}
        self.written = self.read | set(self._as_others())
        self.last = {c: k for k, step in enumerate(self.steps) for c in (*plan.made_by(step), *plan.read_by(step))}
        self.direct: dict[int, int] = {}  # number of a tensor -> position of the output
        self.copied: list[tuple[int, int]] = []  # position of an output, the tensor that is copied there
        failing = [k for k, step in enumerate(self.steps) if given and step.can_fail]
        for p in wanted:
            c = results[p]
            made = c in self.born and self.steps[self.born[c]].core is not None and c not in self.direct
            if (
                made
                and (modes[p] == "write" or c not in self.read | parts)
                and (p not in given or not failing or failing[-1] <= self.born[c])
            ):
                self.direct[c] = p
            else:
                self.copied.append((p, c))
                self.last[c] = len(self.steps)

    def _as_others(self) -> Iterator[int]:
        """What nobody reads, of calls of kernels that make it for others: without it they would be other code."""
        wanted: dict[CompiledKernel | None, set[int]] = {}
        for step in self.steps:
            places = wanted.setdefault(step.core, set())
            places.update(p for p, c in enumerate(self.plan.made_by(step)) if c in self.read)
        for step in self.steps:
            made = self.plan.made_by(step)
            yield from (made[p] for p in wanted[step.core] if step.core is not None)

    def kept(self) -> set[int]:
        """What Python functions are given, which may keep it."""
        return {c for step in self.steps if isinstance(step.op, Extern) for c in step.inputs}


def _needed(plan: StepPlan, wanted: Set[int]) -> list[KernelStep]:
    """The steps whose results somebody reads, and stages of the user's, which are run in any case."""
    read, found = set(wanted), []
    for step in reversed(plan.steps):
        if step.core is None or not read.isdisjoint(plan.made_by(step)):
            found.append(step)
            read.update(plan.read_by(step))
    return found[::-1]


@dataclass(frozen=True, eq=False)
class _Call:
    """A step with all that is known before its arrays are."""

    step: KernelStep
    modes: tuple[str, ...]
    sizes: Mapping[Var, int]
    binding: BoundFunction | None  # None where something that it reads has no elements
    order: tuple[int, ...]  # numbers of arrays in the order in which the function takes them


class Chain:
    """The calls for one set of shapes, strides and modes, in their order."""

    def __init__(
        self,
        tensors: Sequence[Tensor],
        placing: Placing,
        modes: tuple[str, ...],
        sizes: Mapping[Var, int],
        lend: Callable[[Chain], Mapping[int, tuple[int, int]]] | None = None,
        whole: Callable[[], StepPlan] | None = None,
    ) -> None:
        self.placing, self.modes, self.sizes = placing, modes, sizes
        self.tensors, self.total = tensors, len(tensors)
        self.whole = whole  # with the tensors as the kernels know them, and as the user does: for texts and counts
        computed = [c for c, k in placing.born.items() if placing.steps[k].core is not None and c not in placing.direct]
        self.layouts = {c: (concrete_shape(tensors[c], sizes, "a program"), tensors[c].dtype.numpy) for c in computed}
        made = [c for c, k in placing.born.items() if placing.steps[k].core is None]
        self.returned = sum(
            _bytes(concrete_shape(tensors[c], sizes, "a program"), tensors[c].dtype.numpy) for c in made
        )
        kept = placing.kept()
        self.inside = [c for c in computed if c not in kept]
        self.lent: Set[int] = frozenset()  # the inputs that were donated
        self.loans = {} if lend is None else lend(self)  # tensor -> donated input, and where in it
        self.inside = [c for c in self.inside if c not in self.loans]
        self.outside = [c for c in computed if c in kept]
        spans = [Span(_bytes(*self.layouts[c]), placing.born[c], placing.last[c]) for c in self.inside]
        self.arena = Arena(spans)
        self.calls: list[_Call] = []
        self._list: CallList | None = None  # the calls without Python between them
        self._blocks: list[Array] = []  # that no call uses now
        register(self)

    def release(self) -> int:
        """Forget the memory that no call uses now; its bytes."""
        freed = sum(block.nbytes for block in self._blocks)
        self._blocks.clear()
        self._list = None
        return freed

    @staticmethod
    def bytes_of(tensors: Iterable[Tensor]) -> int:
        """The bytes of arrays for tensors whose extents are numbers."""
        return sum(_bytes(concrete_shape(t, {}, t.name), t.dtype.numpy) for t in tensors)

    def buffers(self) -> tuple[int, int]:
        """Bytes between kernels, and the most that one of them needs inside."""
        apart = self.returned + sum(_bytes(*self.layouts[c]) for c in self.outside)
        return self.arena.bytes + apart, max((s.bytes_inside(self.sizes) for s in self.placing.steps), default=0)

    def layout(self, cell: int) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """Shape and type of a tensor."""
        tensor, view = self.tensors[cell], self.placing.plan.views.get(cell)
        if isinstance(view, BoxView):
            return view.shape, tensor.dtype.numpy
        return concrete_shape(tensor, self.sizes, "a program"), tensor.dtype.numpy

    def bytes(self, cell: int) -> int:
        """The size of a tensor."""
        return _bytes(*self.layout(cell))

    def unshared(self) -> int:
        """Bytes between kernels, if each tensor had memory of its own."""
        return sum(_bytes(*layout) for layout in self.layouts.values())

    def lent_bytes(self) -> int:
        """Bytes of donated inputs in which something else lies."""
        ends: dict[int, int] = {}
        for cell, (source, offset) in self.loans.items():
            ends[source] = max(ends.get(source, 0), offset + self.bytes(cell))
        return sum(ends.values())

    def run(self, memory: CallMemory) -> None:
        """Compute the outputs."""
        block, listed = self._block(), self._list
        if listed is None or RECORDING:
            arrays, is_again = self._arrays(memory, block), bool(self.calls)
            self._run_steps(arrays, memory)
            if is_again and listed is None:
                self._list = self._listed(self.calls, arrays, memory, block)
        else:
            failed = listed.run([address_of(a) for a in self._bases(memory, block)])
            arrays = self._arrays(memory, block) if failed or self.placing.copied else {}
            if failed:
                self._go_on(*failed, arrays, memory)
        for position, cell in self.placing.copied:
            former, target = memory.previous.get(position), memory.outputs[position]
            target[...] = arrays[cell] if former is None else former + arrays[cell]
        if block.nbytes <= KEPT and not self._blocks:
            self._blocks.append(block)

    def in_one(self, memory: CallMemory) -> OneCall | None:
        """The calls as one for other compilers, whatever numbers there are; None where more is to do than to call."""
        if self.placing.copied or any(step.core is None for step in self.placing.steps):
            return None
        block = self.arena.block()
        arrays = self._arrays(memory, block)
        calls = [self._call(step, arrays, for_any=True) for step in self.placing.steps]
        listed = self._listed(calls, arrays, memory, block)

        def explained(number: int, error: Exception) -> Exception:
            if isinstance(error, KernelError):
                error.explanation = self._explained(calls[number], error, {})
            return error

        return None if listed is None else listed.in_one(block.nbytes, explained)

    def _run_steps(self, arrays: dict[int, Array], memory: CallMemory) -> None:
        """Run the steps one by one; the first time, prepare their calls."""
        first = not self.calls
        calls: list[_Call] = []
        for step in self.placing.steps:
            if step.core is None:
                made = _results(step, arrays, self.sizes, memory.copies)
                arrays.update(zip(step.outputs, made, strict=True))
                arrays.update(self._parts(arrays, step.outputs))
                continue
            call = self._call(step, arrays) if first else self.calls[len(calls)]
            calls.append(call)
            self._run(call, arrays, memory)
        if first:
            self.calls = calls

    @staticmethod
    def _bases(memory: CallMemory, block: Array) -> list[Array]:
        """The arrays of a call, in or beside which all others lie."""
        return [*memory.arrays, block]

    def _listed(
        self, calls: Sequence[_Call], arrays: Mapping[int, Array], memory: CallMemory, block: Array
    ) -> CallList | None:
        """Calls as a list, where each does no more than to run a function on what lies in or beside the bases."""
        if not loads_objects() or any(c.binding is None or not CallList.takes(c.binding) for c in calls):
            return None
        if len(calls) < len(self.placing.steps) or self.outside:
            return None
        starts = [address_of(a) for a in self._bases(memory, block)]
        count, outputs, before = len(memory.inputs), sorted(memory.outputs), sorted(memory.previous)
        numbers = {c: c for c in range(count)}
        numbers.update((c, count + outputs.index(p)) for c, p in self.placing.direct.items())
        numbers.update((self.total + p, count + len(outputs) + k) for k, p in enumerate(before))
        numbers.update((c, numbers[source]) for c, (source, _) in self.loans.items())
        numbers.update(dict.fromkeys(self.inside, len(starts) - 1))
        numbers.update((c, numbers[v.of]) for c, v in self.placing.plan.views.items() if v.of in numbers)
        spots = {c: (k, address_of(arrays[c]) - starts[k]) for c, k in numbers.items() if c in arrays}
        listed = [(c.binding, [spots[cell] for cell in c.order]) for c in calls]
        return CallList(listed, len(starts))  # type: ignore[arg-type]

    def _go_on(self, number: int, error: Exception, arrays: Mapping[int, Array], memory: CallMemory) -> None:
        """Answer a call of the list that failed, and run those after it."""
        if not isinstance(error, KernelError):
            raise error
        self._answer(self.calls[number], error, arrays, memory)
        for call in self.calls[number + 1 :]:
            self._run(call, arrays, memory)

    def _block(self) -> Array:
        """Memory for what passes between steps: that of an earlier call, whose pages are there."""
        try:
            return self._blocks.pop()
        except IndexError:
            return self.arena.block()

    def _arrays(self, memory: CallMemory, block: Array) -> dict[int, Array]:
        """Memory for what is known before the steps run; former values of outputs follow the tensors."""
        arrays = dict(enumerate(memory.inputs))
        arrays.update((c, memory.outputs[p]) for c, p in self.placing.direct.items())
        arrays.update((self.total + p, a) for p, a in memory.previous.items())
        for cell, offset in zip(self.inside, self.arena.offsets, strict=True):
            arrays[cell] = np.ndarray(*self.layouts[cell], block, offset)
        for cell, (source, offset) in self.loans.items():
            arrays[cell] = np.ndarray(*self.layouts[cell], _bytes_in(arrays[source]), offset)
        for cell in self.outside:
            arrays[cell] = np.empty(*self.layouts[cell])
        arrays.update(self._parts(arrays, arrays))
        return arrays

    def _parts(self, arrays: Mapping[int, Array], of: Container[int]) -> dict[int, Array]:
        """The arrays of tensors that are parts of others."""
        return {c: view.part(arrays[view.of]) for c, view in self.placing.plan.views.items() if view.of in of}

    def _call(self, step: KernelStep, arrays: Mapping[int, Array], *, for_any: bool = False) -> _Call:
        """A step prepared, for any numbers or for those that are there; compiles what it needs."""
        assert step.core is not None
        modes = self.step_modes(step)
        sizes, memory = step.bound(self.sizes), self._memory(step, modes, arrays)
        if step.core.facts.has_empty_stage(memory.inputs, sizes) or all(a.size == 0 for a in memory.outputs.values()):
            return _Call(step, modes, sizes, None, ())
        variant, binding = step.core.forms.bind(memory, modes, sizes)
        if for_any and variant.has_checks:
            variant, binding = step.core.forms.bind(memory, modes, sizes, Numbers.ANY)
        return _Call(step, modes, sizes, binding, self._order(step, variant))

    def step_modes(self, step: KernelStep) -> tuple[str, ...]:
        """What a step does with each of its results."""
        return tuple(map(self._mode, self.placing.plan.made_by(step)))

    def _mode(self, cell: int) -> str:
        if cell in self.placing.direct:
            return self.modes[self.placing.direct[cell]]
        return "write" if cell in self.placing.written or any(c == cell for _, c in self.placing.copied) else "null"

    def _memory(self, step: KernelStep, modes: Sequence[str], arrays: Mapping[int, Array]) -> CallMemory:
        outputs = {p: arrays[c] for p, c in enumerate(step.outputs) if modes[p] != "null"}
        before = {p: arrays[self._former(c)] for p, c in enumerate(step.outputs) if modes[p] == "add"}
        return CallMemory([arrays[c] for c in step.inputs], outputs, before)

    def _former(self, cell: int) -> int:
        return self.total + self.placing.direct[cell]

    def _order(self, step: KernelStep, variant: Variant) -> tuple[int, ...]:
        added = (self._former(step.outputs[p]) for p in variant.added)
        return (*step.inputs, *added, *(step.outputs[p] for p in variant.order))

    def _run(self, call: _Call, arrays: Mapping[int, Array], memory: CallMemory) -> None:
        step = call.step
        assert step.core is not None
        try:
            if call.binding is None:
                step.core.run(_apart(self._memory(step, call.modes, arrays)), call.modes, call.sizes)
            elif RECORDING:
                given = [arrays[c] for c in call.order]
                recorded(step.core.program, *self._between(call), self.sizes, call.binding.run, given)
            else:
                call.binding.run([arrays[c] for c in call.order])
        except KernelError as error:
            self._answer(call, error, arrays, memory)

    def _answer(self, call: _Call, failure: KernelError, arrays: Mapping[int, Array], memory: CallMemory) -> None:
        """Another form of the kernel for a step that failed, or an error in the terms of the program."""
        core = call.step.core
        assert core is not None
        try:
            core.run(self._shared(call, arrays, memory), call.modes, call.sizes, failure)
        except KernelError as error:
            error.explanation = self._explained(call, error, arrays)
            raise

    def _explained(self, call: _Call, error: KernelError, arrays: Mapping[int, Array]) -> str:
        """What a failed requirement means, in the terms of the program: the kernel may be that of another step too.

        More can be told where the arrays are at hand.
        """
        if error.requirement is None:
            return ""
        sites = checks_of(operations_between(*self._between(call)))
        read, written = self._between(call, None if self.whole is None else self.whole().users)
        cells = map(self.placing.plan.known_by, call.step.inputs)
        known = {t: arrays[c] for t, c in zip(read, cells, strict=True) if c in arrays}
        return failed(sites, error.requirement, known, self.sizes, operations_between(read, written))

    def _between(
        self, call: _Call, users: Mapping[int, Tensor] | None = None
    ) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """The tensors that a call reads and writes, those of `users` where there are such."""
        wanted = [c for c, mode in zip(call.step.outputs, call.modes, strict=True) if mode != "null"]
        tensors = self.tensors if self.whole is None else self.whole().tensors
        read, written = ([(users or {}).get(c, tensors[c]) for c in cells] for cells in (call.step.inputs, wanted))
        return tuple(read), tuple(written)

    def _shared(self, call: _Call, arrays: Mapping[int, Array], memory: CallMemory) -> CallMemory:
        """The memory of a call, with the inputs in whose memory its results are written."""
        step = call.step
        assert step.core is not None
        found = self._memory(step, call.modes, arrays)
        sources = [np.may_share_memory(a, b) for a in found.outputs.values() for b in found.inputs]
        if not any(sources):
            return found
        shared = {
            p: tuple(
                t for t, b in zip(step.core.program.inputs, found.inputs, strict=True) if np.may_share_memory(a, b)
            )
            for p, a in found.outputs.items()
        }
        return CallMemory(found.inputs, found.outputs, found.previous, shared, memory.copies)


def _apart(memory: CallMemory) -> CallMemory:
    """Inputs in whose memory a result is to lie copied: the reference writes results one after another."""
    results = list(memory.outputs.values())
    inputs = [a.copy() if any(np.may_share_memory(a, b) for b in results) else a for a in memory.inputs]
    return replace(memory, inputs=inputs)


def is_compact(array: Array) -> bool:
    """Whether the elements of an array lie side by side, in the order of its axes or in reverse."""
    return bool(array.flags.c_contiguous or array.flags.f_contiguous)


def _bytes_in(array: Array) -> Array:
    """The memory of an array whose elements lie side by side."""
    flat = array if array.flags.c_contiguous else array.T
    return flat.reshape(-1).view(np.uint8)


def _bytes(shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    return int(np.prod(shape, dtype=np.int64)) * dtype.itemsize


def _results(
    step: KernelStep, arrays: Mapping[int, Array], sizes: Mapping[Var, int], copies: list[tuple[str, str]]
) -> list[Array]:
    op = step.op
    assert op is not None
    if isinstance(op, Extern):
        known = dict(zip(op.inputs, step.inputs, strict=True))
        return called(op, [arrays[known[t]] for t in op.args], sizes, copies)
    found = evaluate_stages([op], {t: arrays[c] for t, c in zip(op.inputs, step.inputs, strict=True)}, sizes)
    return [found[t].astype(t.dtype.numpy, copy=False) for t in op.outputs]
