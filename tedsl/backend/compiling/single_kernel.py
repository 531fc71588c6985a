"""A program as one compiled function, run on arrays that are already checked."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import replace

import numpy as np

from tedsl.analysis.hazards import Hazard
from tedsl.analysis.pointwise import Array
from tedsl.analysis.sizes import concrete_shape
from tedsl.backend.arguments.blocks import Binding, OneCall
from tedsl.backend.compiling.alternatives import first_working
from tedsl.backend.compiling.compilation import Compilation
from tedsl.backend.compiling.compiled_forms import CompiledForms
from tedsl.backend.compiling.disk_cache import key_of, read, write
from tedsl.backend.compiling.executable import (
    CallMemory,
    CompiledKernel,
    KernelStep,
    MemoryPlan,
    Modes,
    Prepared,
    Proof,
    Sizes,
    StepPlan,
)
from tedsl.backend.compiling.forms import ArrayLayout, Form, Numbers
from tedsl.backend.compiling.profiling import RECORDING, recorded
from tedsl.backend.compiling.variant import Variant, compile_variant
from tedsl.backend.compiling.variant_source import VariantSource
from tedsl.backend.host.phases import Spent
from tedsl.backend.host.runtime import KernelError
from tedsl.backend.lowering.index_checks import failed
from tedsl.lang.locks import cached_property
from tedsl.lang.tensor import Operation, Tensor
from tedsl.reference import evaluate_stages

__all__ = ["SingleKernel", "proof_of"]

_ALLOCATED = "allocated"  # the kind of file on the disk that holds such a number


class _Sources:
    """What forms of a program are compiled from; one that was lowered before is not lowered again."""

    def __init__(self, program: Compilation) -> None:
        self._program = program
        self._lowered: VariantSource | None = None

    def planned(self, form: Form) -> VariantSource:
        """The source of a form, kept until it is compiled."""
        self._lowered = VariantSource(self._program, form)
        return self._lowered

    def taken(self, form: Form) -> VariantSource:
        """The source of a form that is compiled now."""
        found, self._lowered = self._lowered, None
        return found if found is not None and found.form == form else VariantSource(self._program, form)


class SingleKernel:
    """The compiled forms of one program; safe to use from several threads. Both an executable and a step's kernel.

    `usual`: how the arrays of its calls lie, where they are parts of others.
    """

    is_remembered = True

    def __init__(self, program: Compilation, usual: ArrayLayout | None = None) -> None:
        self.program, self.facts = program, program.facts
        # No function that the forms call may hold the kernel: it would live until garbage is collected.
        self._sources = sources = _Sources(program)
        self.forms = CompiledForms(
            program.name, self.facts, lambda form: compile_variant(sources.taken(form)),
            lambda form: key_of(program, form), usual,
        )  # fmt: skip
        self.proven: set[Proof] = set()
        self._around_empty: dict[tuple[Operation, ...], SingleKernel] = {}

    def __deepcopy__(self, memo: object) -> SingleKernel:
        return self  # those who hold it share it

    @cached_property
    def plan(self) -> StepPlan:
        """One step."""
        tensors, count = (*self.program.inputs, *self.program.outputs), len(self.program.inputs)
        results = tuple(range(count, len(tensors)))
        return StepPlan(tensors, (KernelStep(self, None, tuple(range(count)), results),), results)

    @property
    def single(self) -> SingleKernel:
        return self

    @property
    def whole(self) -> SingleKernel:
        return self

    def settled(self, make: Callable[[], CompiledKernel]) -> SingleKernel:
        return self

    def keep(self) -> None:
        """Its code is kept when it is compiled, and there is nothing else."""

    @property
    def compile_ms(self) -> float:
        return self.forms.compile_ms

    @property
    def phases(self) -> Spent:
        return self.forms.phases

    @cached_property
    def planned_bytes(self) -> int:
        """What the form for contiguous arrays is going to allocate while it runs, known before it is compiled."""
        planned = self._sources.planned(self.forms.usual(("write",) * len(self.program.outputs)))
        key = key_of(self.program, planned.form)
        found = read(key, _ALLOCATED)
        if found is not None and found.isdigit():
            return int(found)
        total = _bytes_of(planned.lowered.temporaries, {}, self.program.name)
        write(key, _ALLOCATED, str(total).encode())
        return total

    def any_variant(self) -> Variant:
        """A compiled form to look at."""
        return self.forms.first or self.forms.variant(self.forms.usual(("write",) * len(self.program.outputs)))

    def compile(self, modes: Modes | None = None) -> None:
        if modes is None:
            self.any_variant()
        else:
            self.forms.variant(self.forms.usual(modes))

    def form(self, memory: CallMemory, modes: Modes, sizes: Sizes) -> Form:
        return self.forms.form(memory, modes, sizes)

    def run(self, memory: CallMemory, modes: Modes, sizes: Sizes, failure: KernelError | None = None) -> None:
        if all(array.size == 0 for array in memory.outputs.values()):
            return
        if self.facts.has_empty_stage(memory.inputs, sizes):
            users = self.program.for_users()
            (self if users is self.program else SingleKernel(users))._run_around_empty(memory, sizes)
            return
        first_working(Numbers, lambda numbers, _: self._run(memory, modes, sizes, numbers), Numbers.answers, failure)

    def _run(self, memory: CallMemory, modes: Modes, sizes: Sizes, numbers: Numbers) -> None:
        """Compute them by a form that assumes this of numbers."""
        apart = memory if numbers is Numbers.FINITE else self._apart(memory, modes, sizes, numbers)
        variant, binding = self.forms.bind(apart, modes, sizes, numbers)
        arrays = variant.arguments(apart.inputs, apart.outputs, apart.previous)
        if RECORDING:
            recorded(self.program, self.program.inputs, self.program.outputs, sizes, binding.run, arrays)
        else:
            binding.run(arrays)
        for position, array in apart.outputs.items():
            if array is not memory.outputs[position]:
                memory.outputs[position][...] = array

    def _apart(self, memory: CallMemory, modes: Modes, sizes: Sizes, numbers: Numbers) -> CallMemory:
        """The outputs that another compiled form cannot write in place in memory of their own."""
        variant = self.forms.variant(self.forms.form(memory, modes, sizes, numbers))
        moved = {
            p: np.empty_like(memory.outputs[p])
            for p, sources in memory.shared.items()
            if any(variant.hazard(p, source) is not None for source in sources)
        }
        return replace(memory, outputs={**memory.outputs, **moved}) if moved else memory

    def prepared(self, memory: CallMemory, modes: Modes, sizes: Sizes) -> Prepared:
        variant, binding = self.forms.bind(memory, modes, sizes)
        return Prepared(binding.run, variant.added, variant.order)

    def in_one(self, memory: CallMemory) -> OneCall | None:
        modes = ("write",) * len(self.program.outputs)
        variant, binding = self.forms.bind(memory, modes, {})
        if variant.has_checks:  # one may be of finite numbers: then a call may need the form for any
            variant, binding = self.forms.bind(memory, modes, {}, Numbers.ANY)
        if type(binding) is not Binding:
            return None
        one, count = binding.in_one(), len(memory.inputs)
        outputs = dict(zip(variant.order, one.hosts[count:], strict=True))
        return replace(one, hosts=(*one.hosts[:count], *(outputs[p] for p in sorted(outputs))))

    def hazard(self, position: int, source: Tensor, form: Form | None = None) -> Hazard | None:
        variant = self.any_variant() if form is None else self.forms.variant(form)
        found = variant.hazard(position, source)
        if found is None:
            self.proven.add(proof_of(self.program, position, source, variant.origin.form))
        return found

    def is_proven(self, position: int, source: Tensor, form: Form) -> bool:
        return proof_of(self.program, position, source, form) in self.proven

    def explanation(self, error: KernelError, inputs: Sequence[Array], sizes: Sizes) -> str:
        if error.requirement is None or not (sites := self.any_variant().lowered.sites):
            return ""
        # A call of code that only has addresses tells of no arrays.
        read, defined = self.program.defined()
        return failed(sites, error.requirement, dict(zip(read, inputs, strict=False)), sizes, defined)

    def source(self, kind: str) -> str:
        return self.any_variant().source(kind)

    def loop_nest(self) -> str:
        return self.any_variant().loop_nest

    def temporary_bytes(self, sizes: Sizes, lent: Set[int] = frozenset()) -> list[int]:
        variant, name = self.forms.first, self.program.name
        if variant is None and (self.program.sizes or self.facts.is_always_empty):
            return []
        if variant is None or ("planned_bytes" in self.__dict__ and not variant.origin.program.planner.simple):
            return [self.planned_bytes]
        return [_bytes_of([op], sizes, name) for op in variant.lowered.temporaries]

    def memory_plan(self, arrays: int, sizes: Sizes, lent: Set[int]) -> MemoryPlan:
        if self.facts.is_always_empty:
            return MemoryPlan(arrays, 0, 0, 0)
        self.any_variant()
        return MemoryPlan(arrays, 0, 0, sum(self.temporary_bytes(sizes)))

    def _run_around_empty(self, memory: CallMemory, sizes: Sizes) -> None:
        """What depends on an empty tensor is evaluated by the reference, the rest compiled."""
        touched, program = self.facts.touched_by_empty(memory.inputs, sizes), self.program
        key = tuple(touched)
        before = self._around_empty.get(key)
        if before is None:
            before = self._around_empty[key] = SingleKernel(program.without(touched))
        known = dict(zip(program.inputs, memory.inputs, strict=True))
        known |= before._computed([known[t] for t in before.program.inputs], sizes)
        known = dict(evaluate_stages(key, known, sizes))
        for position, array in memory.outputs.items():
            former, value = memory.previous.get(position), known[program.outputs[position]]
            array[...] = value if former is None else former + value

    def _computed(self, inputs: Sequence[Array], sizes: Sizes) -> Mapping[Tensor, Array]:
        """All outputs in memory of their own."""
        tensors, name = self.program.outputs, self.program.name
        made = {p: np.empty(concrete_shape(t, sizes, name), t.dtype.numpy) for p, t in enumerate(tensors)}
        if made:
            self.run(CallMemory(inputs, made, {}), ("write",) * len(made), sizes)
        return {tensors[p]: array for p, array in made.items()}


def _bytes_of(operations: Iterable[Operation], sizes: Sizes, name: str) -> int:
    tensors = (t for op in operations for t in op.outputs)
    return sum(math.prod(concrete_shape(t, sizes, name)) * t.dtype.itemsize for t in tensors)


def proof_of(program: Compilation, position: int, source: Tensor, form: Form | None) -> Proof:
    """What it means that an output may lie on an input, as data."""
    form = form or Form(("write",) * len(program.outputs))
    place = next(k for k, t in enumerate(program.inputs) if t is source)
    return form.modes, form.layout.is_dense, form.layout.is_large, form.is_plain, position, place
