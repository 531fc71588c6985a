"""A kernel of which the code was found on the disk, but not how it was scheduled."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import replace

from tedsl.analysis.hazards import Hazard
from tedsl.analysis.pointwise import Array
from tedsl.backend.compiling.compilation import Compilation
from tedsl.backend.compiling.compiled_forms import CompiledForms
from tedsl.backend.compiling.disk_cache import key_of_part
from tedsl.backend.compiling.executable import CallMemory, CompiledKernel, Modes, Proof, Sizes
from tedsl.backend.compiling.facts import FoundFacts, strides_among
from tedsl.backend.compiling.forms import Form
from tedsl.backend.compiling.single_kernel import proof_of
from tedsl.backend.compiling.variant import Variant, loaded_variant
from tedsl.backend.compiling.variant_source import VariantSource
from tedsl.backend.host.phases import Spent
from tedsl.backend.host.runtime import KernelError
from tedsl.backend.sequence.saved_form import CutKernel
from tedsl.lang.tensor import Tensor

__all__ = ["FoundKernel"]


class FoundKernel:
    """In the tensors of the user's program; what only its schedule knows, the kernel that is scheduled anew answers.

    `anew` schedules the program of which it is a part, upon which its kernels are `settled`.
    """

    def __init__(self, program: Compilation, kernel: CutKernel, anew: Callable[[], object]) -> None:
        self.program = program
        self.facts = FoundFacts(
            kernel.checks, is_compact=program.target.backend == "host", strides=strides_among(program.inputs)
        )
        self.forms = CompiledForms(program.name, self.facts, self._loaded, self._key)
        self.proven: set[Proof] = set()
        self._kernel, self._anew = kernel, anew
        self._whole: CompiledKernel | None = None

    def _loaded(self, form: Form) -> Variant:
        origin = VariantSource(self.program, form, is_as_cut=True)
        return loaded_variant(origin, self._key(form), lambda: self.whole.forms.variant(form))

    def _key(self, form: Form) -> str | None:
        return key_of_part(self._kernel.digest, self.program, form)

    @property
    def whole(self) -> CompiledKernel:
        """The same, scheduled."""
        if self._whole is None:
            self._anew()
        assert self._whole is not None
        return self._whole

    def settled(self, make: Callable[[], CompiledKernel]) -> CompiledKernel:
        if self._whole is None:
            self._whole = make()
        return self._whole

    @property
    def compile_ms(self) -> float:
        return self.forms.compile_ms

    @property
    def phases(self) -> Spent:
        return self.forms.phases

    def run(self, memory: CallMemory, modes: Modes, sizes: Sizes, failure: KernelError | None = None) -> None:
        theirs = dict(zip(self.program.inputs, self.whole.program.inputs, strict=True))
        shared = {p: tuple(theirs[t] for t in sources) for p, sources in memory.shared.items()}
        self.whole.run(replace(memory, shared=shared), modes, sizes, failure)

    def hazard(self, position: int, source: Tensor, form: Form | None = None) -> Hazard | None:
        proof = proof_of(self.program, position, source, form)
        if proof in self.proven:
            return None
        theirs = dict(zip(self.program.inputs, self.whole.program.inputs, strict=True))
        found = self.whole.hazard(position, theirs[source], form)
        if found is None:
            self.proven.add(proof)
        return found

    def is_proven(self, position: int, source: Tensor, form: Form) -> bool:
        return proof_of(self.program, position, source, form) in self.proven

    def temporary_bytes(self, sizes: Sizes, lent: Set[int] = frozenset()) -> list[int]:
        return [self._kernel.inside]

    def explanation(self, error: KernelError, inputs: Sequence[Array], sizes: Sizes) -> str:
        return self.whole.explanation(error, inputs, sizes)

    def source(self, kind: str) -> str:
        return self.whole.source(kind)

    def loop_nest(self) -> str:
        return self.whole.loop_nest()
