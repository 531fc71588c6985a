"""A program behind a kernel: the forms compiled so far, and running one of them on arrays that are already checked."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Container, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from schedules.merging import Merging, merging_of
from tedsl.analysis.hazards import Hazard
from tedsl.analysis.overflow import Limit, check_limits, limits_of
from tedsl.analysis.pointwise import Array
from tedsl.analysis.sizes import concrete_shape, evaluate_extent, known_shape
from tedsl.backend.arguments.blocks import Bound
from tedsl.backend.arguments.layouts import LARGEST
from tedsl.backend.compiling.disk_cache import is_kept, key_of
from tedsl.backend.compiling.profiling import RECORDING, recorded
from tedsl.backend.compiling.variant import Form, Variant, compile_variant
from tedsl.backend.host.runtime import KernelError
from tedsl.backend.host.targets import Target
from tedsl.backend.lowering.index_checks import Checks, checks_of
from tedsl.backend.lowering.pipeline import sizes_of
from tedsl.backend.scheduling.planner import Planner
from tedsl.lang.expr import Const, Expr, Var
from tedsl.lang.locks import cached_property, freed_in_children
from tedsl.lang.tensor import Compute, Operation, Scatter, Tensor
from tedsl.lang.traverse import operations_between
from tedsl.reference import evaluate_stages

__all__ = ["CallMemory", "Core", "Prepared", "is_dense"]

Proof = tuple[tuple[str, ...], bool, bool, bool, int, int]  # a form; an output may lie on an input element on element
MOST_BINDINGS = 256  # argument blocks kept for further calls on the same shapes


@dataclass(frozen=True)
class CallMemory:
    """Where a call reads and writes: the inputs in order, and arrays by the position of the output."""

    inputs: Sequence[Array]
    outputs: Mapping[int, Array]
    previous: Mapping[int, Array]  # the former values of outputs in mode "add"
    shared: Mapping[int, tuple[Tensor, ...]] = field(default_factory=dict)  # inputs in whose memory an output lies
    copies: list[tuple[str, str]] = field(default_factory=list)  # made while it runs: (what, why)

    @property
    def arrays(self) -> list[Array]:
        """Everything that is read and written."""
        return [
            *self.inputs,
            *(self.outputs[p] for p in sorted(self.outputs)),
            *(self.previous[p] for p in sorted(self.previous)),
        ]

    given: Set[int] = frozenset()  # outputs whose arrays are the caller's, who may look at them after a failed call
    lent: Set[int] = frozenset()  # inputs that nobody needs after the call: intermediate results may lie there


@dataclass(frozen=True)
class Prepared:
    """A function of arrays: inputs, former values of outputs, outputs."""

    run: Callable[[Sequence[Array]], None]
    added: tuple[int, ...]  # positions of the outputs whose former values it takes
    order: tuple[int, ...]  # and of the outputs, in its order


class Core:
    """The compiled forms of one program; safe to use from several threads."""

    is_single: bool = True  # one compiled function does it all
    is_finest: bool = False  # it is cut into as many steps as it can be

    def __init__(
        self,
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        name: str,
        target: Target,
        planner: Planner,
    ) -> None:
        self.inputs, self.outputs, self.name, self.target = tuple(inputs), tuple(outputs), name, target
        self.planner = planner
        self.proven: set[Proof] = set()
        self._variants: dict[Form, Variant] = {}
        self._bindings: dict[Any, tuple[Variant, Bound]] = {}
        self._around_empty: dict[tuple[Operation, ...], Core] = {}
        self._lock = freed_in_children(threading.Lock())

    @cached_property
    def _between(self) -> list[Tensor]:
        return [t for op in operations_between(self.inputs, self.outputs) for t in op.outputs]

    @cached_property
    def _loops(self) -> dict[Operation, list[Expr]]:
        operations = operations_between(self.inputs, self.outputs)
        return {op: extents for op in operations if (extents := _symbolic_loops(op))}

    @cached_property
    def _limits(self) -> list[Limit]:
        return limits_of(operations_between(self.inputs, self.outputs))

    def __deepcopy__(self, memo: object) -> Core:
        return self  # those who hold it share it

    @property
    def whole(self) -> Core:
        """Itself with all that is known of its schedule, which a program found on the disk comes without."""
        return self

    def settled(self, make: Callable[[], Core]) -> Core:
        """The same as `whole`, from somebody who knows the schedule."""
        return self

    def keep(self) -> None:
        """Let other processes know what was found out about it."""

    @property
    def is_remembered(self) -> bool:
        """Whether calls on arrays of the same shapes and strides can be prepared."""
        return True

    @property
    def is_always_empty(self) -> bool:
        """Whether some tensor has an extent that is 0 at every call: no compiled form is needed to answer."""
        tensors = (*self.inputs, *self.outputs, *self._between)
        return any(isinstance(e, Const) and e.value == 0 for t in tensors for e in t.extents)

    @cached_property
    def checks_indices(self) -> bool:
        """Whether a call looks for indices out of bounds."""
        return bool(checks_of(operations_between(self.inputs, self.outputs)))

    @property
    def compile_ms(self) -> float:
        return sum(v.compile_ms for v in self._variants.values())

    def any_variant(self) -> Variant:
        """A compiled form to look at."""
        return next(iter(self._variants.values()), None) or self.variant(self.usual(("write",) * len(self.outputs)))

    def usual(self, modes: tuple[str, ...], *, plain: bool = False) -> Form:
        """The form for contiguous arrays, below two gigabytes where their shapes are not known."""
        if self._is_known_large:
            return Form(modes, large=True, plain=plain)
        return Form(modes, plain=plain, merged=self.merging is not None, compact=self.is_compact)

    @cached_property
    def _is_known_large(self) -> bool:
        """Whether some array is larger than int32 counts at every call."""
        tensors = (*self.inputs, *self.outputs, *self._between)
        known = ((shape, t) for t in tensors if (shape := known_shape(t)) is not None)
        return any(math.prod(shape) * t.dtype.itemsize > LARGEST for shape, t in known)

    @cached_property
    def is_compact(self) -> bool:
        """Whether it is usually called with contiguous arrays of shapes that are known: between parts of a program."""
        if self.planner.part is None or self.target.backend != "host":
            return False
        tensors = (*self.inputs, *self.outputs)
        sizes = [(math.prod(shape), t.dtype) for t in tensors if (shape := known_shape(t)) is not None]
        return len(sizes) == len(tensors) and all(0 < n * dtype.itemsize <= LARGEST for n, dtype in sizes)

    @cached_property
    def merging(self) -> Merging | None:
        """The program with axes that it walks together as one, where that is left to us and fills vectors better."""
        planned = self.planner.is_asked or self.planner.part is not None
        if planned or not self.is_single or self.target.backend != "host" or self.checks_indices:
            return None
        return merging_of(self.inputs, self.outputs)

    def variant(self, form: Form) -> Variant:
        """The program compiled for `form`."""
        found = self._variants.get(form)
        if found is None:
            with self._lock:
                found = self._variants.get(form)
                if found is None:
                    found = self._variants[form] = self._compiled(form)
        return found

    def is_ready(self, form: Form) -> bool:
        """Whether the code for a form is there, in memory or on the disk."""
        return form in self._variants or is_kept(self._key(form))

    def _key(self, form: Form) -> str | None:
        return key_of(self.inputs, self.outputs, form, self.name, self.target, self.planner)

    def _compiled(self, form: Form) -> Variant:
        merging = self.merging if form.merged else None
        return compile_variant(self.inputs, self.outputs, form, self.name, self.target, self.planner, merging)

    def compile(self, modes: tuple[str, ...] | None = None) -> None:
        """Compile now what a call with contiguous arrays needs."""
        if modes is None:
            self.any_variant()
        else:
            self.variant(self.usual(modes))

    def compiled(self) -> Core:
        """Itself, with a form to look at."""
        self.any_variant()
        return self

    def run(self, memory: CallMemory, modes: tuple[str, ...], sizes: Mapping[Var, int]) -> None:
        """Compute the outputs whose mode is not "null"."""
        if all(array.size == 0 for array in memory.outputs.values()):
            return
        if self.has_empty_stage(memory, sizes):
            self._for_users()._run_around_empty(memory, sizes)
            return
        variant, binding = self.bind(memory, modes, sizes)
        try:
            if RECORDING:
                arrays = self.arguments(variant, memory)
                recorded(self, self.inputs, self.outputs, sizes, binding.run, arrays)
            else:
                binding.run(self.arguments(variant, memory))
        except KernelError as error:
            if not Checks.found_infinity(error.requirement):
                raise
            self.run_plain(memory, modes, sizes)

    def run_plain(self, memory: CallMemory, modes: tuple[str, ...], sizes: Mapping[Var, int]) -> None:
        """Compute them again after a call that found an inf or NaN, which has written nothing."""
        variant = self.variant(self.form(memory, modes, sizes, plain=True))
        apart = self._apart(variant, memory)
        variant, binding = self.bind(apart, modes, sizes, plain=True)
        binding.run(self.arguments(variant, apart))
        for position, array in apart.outputs.items():
            if array is not memory.outputs[position]:
                memory.outputs[position][...] = array

    def hazard(self, position: int, source: Tensor, form: Form | None = None) -> Hazard | None:
        """Why an output cannot be written into the memory of an input; None where it provably can."""
        variant = self.any_variant() if form is None else self.variant(form)
        found = variant.hazard(position, source)
        if found is None:
            self.proven.add(self.proof(position, source, variant.program.form))
        return found

    def is_proven(self, position: int, source: Tensor, form: Form | None) -> bool:
        """Whether it was found before that there is no hazard."""
        return self.proof(position, source, form) in self.proven

    def proof(self, position: int, source: Tensor, form: Form | None) -> Proof:
        """What it means that there is no hazard, as data."""
        form = form or Form(("write",) * len(self.outputs))
        place = next(k for k, t in enumerate(self.inputs) if t is source)
        return form.modes, form.dense, form.large, form.plain, position, place

    def explanation(self, error: KernelError) -> str:
        """What a failed requirement of the program means; "" where something else failed."""
        if error.requirement is None or not (variant := self.any_variant()).has_checks:
            return ""
        checks = variant.lowered.checks
        return "" if checks is None else str(checks.error(error.requirement))

    def source(self, kind: str) -> str:
        """What the compiler made of the program, as text."""
        return self.any_variant().source(kind)

    def loop_nest(self) -> str:
        """The loops in the order in which they run."""
        return self.any_variant().loop_nest

    def _apart(self, variant: Variant, memory: CallMemory) -> CallMemory:
        """The outputs that another compiled form cannot write in place in memory of their own."""
        moved = {
            p: np.empty_like(memory.outputs[p])
            for p, sources in memory.shared.items()
            if any(variant.hazard(p, source) is not None for source in sources)
        }
        return replace(memory, outputs={**memory.outputs, **moved}) if moved else memory

    def arguments(self, variant: Variant, memory: CallMemory) -> list[Array]:
        """The arrays in the order in which the function takes them."""
        return [
            *memory.inputs, *(memory.previous[p] for p in variant.added), *(memory.outputs[p] for p in variant.order)
        ]  # fmt: skip

    def bind(
        self, memory: CallMemory, modes: tuple[str, ...], sizes: Mapping[Var, int], *, plain: bool = False
    ) -> tuple[Variant, Bound]:
        """The form for these arrays, and an argument block for their shapes and strides."""
        key = (modes, plain, tuple(sizes.values()), tuple((a.shape, a.strides) for a in memory.arrays))
        found = self._bindings.get(key)
        if found is None:
            if sizes:
                check_limits(self._limits, sizes, f"kernel {self.name!r}")
            variant = self.variant(self.form(memory, modes, sizes, plain=plain))
            layouts = [(a.shape, a.strides) for a in self.arguments(variant, memory)]
            found = variant, variant.function.bind(layouts, variant.scalars(sizes))
            if len(self._bindings) >= MOST_BINDINGS:
                self._bindings.clear()
            self._bindings[key] = found
        return found

    def prepared(self, memory: CallMemory, modes: tuple[str, ...], sizes: Mapping[Var, int]) -> Prepared:
        """A function of arrays like these."""
        variant, binding = self.bind(memory, modes, sizes)
        return Prepared(binding.run, variant.added, variant.order)

    def form(
        self, memory: CallMemory, modes: tuple[str, ...], sizes: Mapping[Var, int], *, plain: bool = False
    ) -> Form:
        """The form that these arrays need."""
        large = any(map(_is_large, memory.arrays)) or self._has_large_stage(sizes)
        merged, compact = self.merging is not None, self.is_compact
        if (merged or compact) and (large or not all(a.flags.c_contiguous for a in memory.arrays)):
            merged = compact = False
        return Form(modes, all(map(is_dense, memory.arrays)), large, plain, merged, compact)

    @cached_property
    def is_always_alike(self) -> bool:
        """Whether every extent is a number above 0, and no stage is so large that its form is another one."""
        if self.is_always_empty or sizes_of(self.inputs, self.outputs):
            return False
        return not self._has_large_stage({})

    def has_empty_stage(self, memory: CallMemory, sizes: Mapping[Var, int]) -> bool:
        """Whether something read is empty though the result is not: clamped reads then have no element to read."""
        shapes = [a.shape for a in memory.inputs] + [concrete_shape(t, sizes, self.name) for t in self._between]
        return any(0 in shape for shape in shapes) or any(self._is_idle(op, sizes) for op in self._loops)

    def _is_idle(self, op: Operation, sizes: Mapping[Var, int]) -> bool:
        """Whether an operation sums or scatters nothing at this call; Halide takes its loop to begin at -1."""
        return any(evaluate_extent(e, sizes, self.name) == 0 for e in self._loops.get(op, ()))

    def _has_large_stage(self, sizes: Mapping[Var, int]) -> bool:
        return any(math.prod(concrete_shape(t, sizes, self.name)) * t.dtype.itemsize > LARGEST for t in self._between)

    def temporary_bytes(self, sizes: Mapping[Var, int], lent: Set[int] = frozenset()) -> list[int]:
        """Sizes of the buffers for intermediate results, where the memory of some inputs may be used."""
        variant = next(iter(self._variants.values()), None)
        if variant is None:
            return []
        kept = variant.lowered.temporaries
        return [
            sum(math.prod(concrete_shape(t, sizes, self.name)) * t.dtype.itemsize for t in op.outputs) for op in kept
        ]

    def _run_around_empty(self, memory: CallMemory, sizes: Mapping[Var, int]) -> None:
        """What depends on an empty tensor is evaluated by the reference, the rest compiled."""
        touched = self._touched_by_empty(memory, sizes)
        key = tuple(touched)
        before = self._around_empty.get(key)
        if before is None:
            before = self._around_empty[key] = self._without(touched)
        known = dict(zip(self.inputs, memory.inputs, strict=True))
        made = {p: np.empty(concrete_shape(t, sizes, self.name), t.dtype.numpy) for p, t in enumerate(before.outputs)}
        if made:
            before.run(CallMemory([known[t] for t in before.inputs], made, {}), ("write",) * len(made), sizes)
        known.update((before.outputs[p], array) for p, array in made.items())
        known = evaluate_stages(key, known, sizes)
        for position, array in memory.outputs.items():
            former, value = memory.previous.get(position), known[self.outputs[position]]
            array[...] = value if former is None else former + value

    def _touched_by_empty(self, memory: CallMemory, sizes: Mapping[Var, int]) -> dict[Operation, None]:
        """The operations that make or depend on a tensor that is empty at this call."""
        empty = {t for t, a in zip(self.inputs, memory.inputs, strict=True) if a.size == 0}
        empty |= {t for t in self._between if 0 in concrete_shape(t, sizes, self.name)}
        touched: dict[Operation, None] = {}
        for op in operations_between(self.inputs, self.outputs):
            if self._is_idle(op, sizes) or not empty.isdisjoint((*op.inputs, *op.outputs)):
                empty.update(op.outputs)
                touched[op] = None
        return touched

    def _for_users(self) -> Core:
        """The same in terms of the user's program, which holds also where numbers are not finite."""
        part = self.planner.part
        if part is None or not part.plan.finite:
            return self
        return Core(part.given(self.inputs), part.given(self.outputs), self.name, self.target, Planner())

    def _without(self, touched: Container[Operation]) -> Core:
        """The program for what the other operations make: outputs, and what the touched ones read."""
        read = {t for op in operations_between(self.inputs, self.outputs) if op in touched for t in op.inputs}
        wanted = [t for t in self._between if t.op not in touched and t in read | set(self.outputs)]
        used = {t for op in operations_between(self.inputs, wanted) for t in op.inputs}
        return Core([t for t in self.inputs if t in used], wanted, self.name, self.target, Planner())


def _symbolic_loops(op: Operation) -> list[Expr]:
    """The extents of what an operation reduces or scatters over that are known at a call only."""
    reduction = op.reduction if isinstance(op, Compute) else None
    axes = op.axes if isinstance(op, Scatter) else reduction.axes if reduction is not None else ()
    return [a.extent for a in axes if a.extent is not None and not isinstance(a.extent, Const)]


def is_dense(array: Array) -> bool:
    """Whether the last axis steps by one element."""
    return array.ndim == 0 or array.shape[-1] <= 1 or array.strides[-1] == array.itemsize


def _is_large(array: Array) -> bool:
    """Whether an array spans more bytes than int32 holds, or repeats so few of them for more elements than that."""
    span = sum((n - 1) * abs(s) for n, s in zip(array.shape, array.strides, strict=True))
    return bool(max(span + array.itemsize, array.size) > LARGEST)
