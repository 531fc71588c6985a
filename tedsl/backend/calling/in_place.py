"""A call that is being prepared: which outputs are computed where they are wanted, and which go through temporaries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from tedsl.analysis.pointwise import Array
from tedsl.backend.arguments.blocks import copy_reason
from tedsl.backend.calling.aliasing import in_place_problem, overlap, same_place
from tedsl.backend.calling.signature import KernelSignature
from tedsl.backend.compiling.executable import CallMemory, Executable
from tedsl.lang.dataclass import dataclass
from tedsl.lang.errors import AliasError
from tedsl.lang.expr import Var
from tedsl.lang.tensor import Tensor

__all__ = ["ChosenProgram", "PreparedCall"]


@dataclass(frozen=True, eq=False)
class ChosenProgram:
    """The program that a call runs, in its own terms."""

    core: Executable
    positions: Sequence[int]  # of its inputs among those of the kernel
    modes: tuple[str, ...]
    sizes: Mapping[Var, int]
    adds_to: Mapping[int, int] | None = None  # outputs that it adds to memory of inputs, where it was made for that


@dataclass(frozen=True, eq=False)
class PreparedCall:
    """One call while it is prepared: the program to run, and what it was given."""

    signature: KernelSignature
    chosen: ChosenProgram
    arrays: Sequence[Array]
    targets: Mapping[int, Array]
    is_own: bool  # no out= was given: targets are those of alias=

    @property
    def core(self) -> Executable:
        """The program."""
        return self.chosen.core

    @property
    def is_plain(self) -> bool:
        """Whether all outputs are written."""
        return all(m == "write" for m in self.chosen.modes)

    def settled(self, memory: CallMemory, copies: list[tuple[str, str]]) -> CallMemory:
        """The outputs that cannot be computed where they are wanted moved to temporaries, or AliasError."""
        outputs = dict(memory.outputs)
        shared: dict[int, tuple[Tensor, ...]] = {}
        reasons: dict[int, str] = {}
        for position in [*self.targets, *self.targets]:  # twice: a copy may change the compiled form
            target = self.targets[position]
            if position in reasons or position not in outputs:
                continue
            now = replace(memory, outputs=outputs)
            reason, sources = self._problem(now, position, target)
            if reason is not None:
                reasons[position] = reason
                outputs[position] = np.empty(target.shape, target.dtype)
                shared.pop(position, None)
            elif sources:
                shared[position] = sources
        copies += [(self.signature.outputs[p].name, reason) for p, reason in reasons.items()]
        return replace(memory, outputs=outputs, shared=shared)

    def _problem(self, memory: CallMemory, position: int, target: Array) -> tuple[str | None, tuple[Tensor, ...]]:
        """Why an output goes through a temporary; else the inputs in whose memory it is written element on element."""
        signature, chosen = self.signature, self.chosen
        reason, sources = self._overlap(memory, position, target)
        for p, previous in memory.previous.items():
            if reason is None and p != position and overlap(previous, target):
                reason = f"overlaps what {signature.outputs[p].name!r} is added to"
        if reason is not None and position in signature.strict(is_own=self.is_own):
            raise AliasError(
                f"{signature.what}: the array given for output {signature.outputs[position].name!r} {reason}; it may "
                "be read after it is written: give it memory of its own, or build with on_hazard='copy'"
            )
        on_device = chosen.core.program.target.backend != "host"
        return reason or copy_reason(target.shape, target.strides, target.itemsize, on_device), tuple(sources)

    def _overlap(self, memory: CallMemory, position: int, target: Array) -> tuple[str | None, list[Tensor]]:
        """Why an output must not be written over what the call reads; else the inputs on which it lies."""
        core, chosen, signature = self.chosen.core, self.chosen, self.signature
        sources: list[Tensor] = []
        for k, source in zip(chosen.positions, core.program.inputs, strict=True):
            array, tensor = self.arrays[k], signature.fed[k]
            if not overlap(array, target):
                continue
            if not same_place(array, target) or core.program.facts.has_empty_stage(memory.inputs, chosen.sizes):
                return f"overlaps input {tensor.name!r}", sources
            form = core.form(memory, chosen.modes, chosen.sizes)
            reason = in_place_problem(core, form, position, signature.outputs[position], tensor, source)
            if reason is not None:
                return reason, sources
            sources.append(source)
        return None, sources

    def safe(self, outputs: Sequence[Array], added_to: Mapping[int, int]) -> frozenset[tuple[int, int]]:
        """The outputs and inputs that may lie element on element: those that do so now, or are known to from before.

        To prove it for all of equal layout took as long as to compile, and few calls ever need it.
        """
        found = set(added_to.items())
        memory = CallMemory([self.arrays[k] for k in self.chosen.positions], dict(enumerate(outputs)), {})
        form = self.core.form(memory, self.chosen.modes, self.chosen.sizes)
        for k, core_input in zip(self.chosen.positions, self.core.program.inputs, strict=True):
            array = self.arrays[k]
            for p, output in enumerate(outputs):
                same = (array.dtype, array.shape, array.strides) == (output.dtype, output.shape, output.strides)
                if same and (
                    self.core.is_proven(p, core_input, form)
                    or (np.may_share_memory(array, output) and self.core.hazard(p, core_input, form) is None)
                ):
                    found.add((p, k))
        return frozenset(found)
