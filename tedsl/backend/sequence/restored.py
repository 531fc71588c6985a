"""Programs of many kernels, found on the disk by their structure: another process need not schedule them again.

What is kept is how a program was cut (`saved_form`); the code of its kernels lies beside it (`compiling.disk_cache`).
The key is a digest of all that both depend on. The schedule is not kept: it is made anew when somebody asks what only
it knows, such as the loops and the sources, why an output cannot be written over an input, and what an error means.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import replace

from tedsl.analysis.hazards import Hazard
from tedsl.backend.compiling.collecting import collected_later
from tedsl.backend.compiling.core import CallMemory, Core
from tedsl.backend.compiling.disk_cache import key_of_part, key_of_program
from tedsl.backend.compiling.memory_cache import shared_core
from tedsl.backend.compiling.variant import Form, Variant, VariantSource, loaded_variant
from tedsl.backend.host.runtime import KernelError
from tedsl.backend.host.targets import Target
from tedsl.backend.scheduling.planner import Planner
from tedsl.backend.sequence.runner import KernelStep
from tedsl.backend.sequence.saved_form import CutKernel, SavedProgram, keep_cut, layouts_of, numbered, recall_cut
from tedsl.backend.sequence.steps import Steps, is_apart, is_routine, shared_key
from tedsl.lang.expr import Var
from tedsl.lang.locks import cached_property, freed_in_children
from tedsl.lang.tensor import Operation, Tensor
from tedsl.lang.traverse import operations_between

__all__ = ["FoundSteps", "made_core"]


def made_core(
    inputs: Sequence[Tensor], outputs: Sequence[Tensor], name: str, target: Target, planner: Planner,
    structure: str | None = None,
) -> Core:  # fmt: skip
    """One kernel for a program, or several steps where that is not possible or not wise.

    By `structure`, the structural key of the program with its names, other processes find the steps again.
    """
    parts = inputs, outputs, name, target, planner
    operations = operations_between(inputs, outputs)
    apart = [op for op in operations if is_apart(op)]
    least = planner.machine(target).least.kernels
    if len(operations) == 1 and is_routine(operations[0], target):
        return Core(*parts)
    if not apart and len(operations) < least:
        return Core(*parts)
    key = None if apart or structure is None else key_of_program(structure, name, target, planner, least)
    cut = recall_cut(key)
    if cut is not None and not cut.steps:
        return Core(*parts)
    found = None if cut is None else _tensors(cut, inputs, outputs)
    if cut is not None and found is not None:
        return FoundSteps(inputs, outputs, name, target, planner, cut, found, key)
    with collected_later():  # of a large program
        core = Steps(*parts, apart, key=key)
        if apart or len(core.steps) > 1:
            return core
    keep_cut(key, SavedProgram())
    return Core(*parts)


def _tensors(cut: SavedProgram, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> list[Tensor] | None:
    """The tensors of a program by their numbers; None where a step does not fit them."""
    operations = numbered(inputs, outputs)
    try:
        tensors = [operations[k].output(place) for k, place in cut.tensors]
        known = set(range(len(inputs)))
        for step in cut.steps:
            arrays = layouts_of([tensors[c] for c in (*step.inputs, *step.outputs)])
            if arrays != cut.kernels[step.kernel].arrays or not known.issuperset(step.inputs):
                return None
            known.update(step.outputs)
    except (IndexError, ValueError):
        return None
    made = [tensors[c] for c in cut.results if c in known]
    fits = len(made) == len(outputs) and all(a is b for a, b in zip(tensors, inputs, strict=False))
    return tensors if fits and layouts_of(made) == layouts_of(outputs) else None


class _Anew:
    """A program that is scheduled when somebody asks for it."""

    def __init__(self, make: Callable[[], Steps], cut: SavedProgram) -> None:
        self._make, self._cut = make, cut
        self._lock = freed_in_children(threading.RLock())
        self._steps: Steps | None = None

    @property
    def steps(self) -> Steps:
        """Its steps with all that the schedule knows."""
        with self._lock:
            if self._steps is None:
                made = self._make()
                if made.cut != self._cut:
                    raise RuntimeError(
                        f"kernel {made.name!r}: scheduled again, the program is cut in another way than when it was "
                        "compiled, which should not be; remove what is kept with 'tedsl cache clear'"
                    )
                self._steps = made
            return self._steps


class FoundSteps(Steps):
    """A program whose steps were found on the disk."""

    def __init__(
        self, inputs: Sequence[Tensor], outputs: Sequence[Tensor], name: str, target: Target, planner: Planner,
        cut: SavedProgram, tensors: Sequence[Tensor], key: str | None,
    ) -> None:  # fmt: skip
        self._found, self._tensors = cut, tensors
        self._anew = _Anew(lambda: Steps(inputs, outputs, name, target, planner, []), cut)
        super().__init__(inputs, outputs, name, target, planner, [], key=key)

    def _cut(self, apart: Sequence[Operation]) -> None:
        cores: dict[int, Core] = {}
        self.tensors = list(self._tensors)
        for step in self._found.steps:
            if step.kernel not in cores:
                kernel = self._found.kernels[step.kernel]
                read, made = ([self.tensors[c] for c in cells] for cells in (step.inputs, step.outputs))
                core = FoundCore(read, made, self.target, self.planner, kernel, self._anew)
                key = shared_key(kernel.digest, self.target, self.planner)
                cores[step.kernel] = shared_core(key, lambda core=core: core, whole=False)  # type: ignore[misc]
                cores[step.kernel].proven |= {proof for k, proof in self._found.proven if k == step.kernel}
            self.steps.append(KernelStep(cores[step.kernel], None, step.inputs, step.outputs))
        self.results = self._found.results

    @property
    def cut(self) -> SavedProgram:
        return self._found

    @property
    def whole(self) -> Core:
        return self._anew.steps

    def _terms(self) -> Sequence[Tensor]:
        return self._anew.steps.tensors

    def source(self, kind: str) -> str:
        return self._anew.steps.source(kind)

    def loop_nest(self) -> str:
        return self._anew.steps.loop_nest()


class FoundCore(Core):
    """A kernel of which the code was found, in the tensors of the user's program, but not how it was scheduled."""

    def __init__(
        self, inputs: Sequence[Tensor], outputs: Sequence[Tensor], target: Target, planner: Planner, kernel: CutKernel,
        anew: _Anew,
    ) -> None:  # fmt: skip
        super().__init__(inputs, outputs, kernel.title, target, planner)
        self._kernel, self._anew = kernel, anew
        self._whole: Core | None = None

    @property
    def whole(self) -> Core:
        if self._whole is None:
            assert self._anew.steps  # which settles it
        assert self._whole is not None
        return self._whole

    def settled(self, make: Callable[[], Core]) -> Core:
        if self._whole is None:
            self._whole = make()
        return self._whole

    def _compiled(self, form: Form) -> Variant:
        parts = VariantSource(self.inputs, self.outputs, form, self.name, self.target, self.planner)
        return loaded_variant(parts, self._key(form), lambda: self.whole.variant(form))

    def _key(self, form: Form) -> str | None:
        return key_of_part(self._kernel.digest, form, self.target, self.planner)

    @cached_property
    def merging(self) -> None:
        """Its code is that of a part, which is compiled as it was cut."""

    @cached_property
    def is_compact(self) -> bool:
        return self.target.backend == "host"

    @property
    def is_always_empty(self) -> bool:
        return False

    @cached_property
    def checks_indices(self) -> bool:
        return self._kernel.checks

    def has_empty_stage(self, memory: CallMemory, sizes: Mapping[Var, int]) -> bool:
        return False

    def _has_large_stage(self, sizes: Mapping[Var, int]) -> bool:
        return False

    def temporary_bytes(self, sizes: Mapping[Var, int], lent: Set[int] = frozenset()) -> list[int]:
        return [self._kernel.inside]

    def run_plain(self, memory: CallMemory, modes: tuple[str, ...], sizes: Mapping[Var, int]) -> None:
        theirs = dict(zip(self.inputs, self.whole.inputs, strict=True))
        shared = {p: tuple(theirs[t] for t in sources) for p, sources in memory.shared.items()}
        self.whole.run_plain(replace(memory, shared=shared), modes, sizes)

    def hazard(self, position: int, source: Tensor, form: Form | None = None) -> Hazard | None:
        proof = self.proof(position, source, form)
        if proof in self.proven:
            return None
        theirs = dict(zip(self.inputs, self.whole.inputs, strict=True))
        found = self.whole.hazard(position, theirs[source], form)
        if found is None:
            self.proven.add(proof)
        return found

    def explanation(self, error: KernelError) -> str:
        return self.whole.explanation(error)

    def source(self, kind: str) -> str:
        return self.whole.source(kind)

    def loop_nest(self) -> str:
        return self.whole.loop_nest()
