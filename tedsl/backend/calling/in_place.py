"""A call that is being prepared: which outputs are computed where they are wanted, and which go through temporaries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace

import numpy as np

from tedsl.analysis.pointwise import Array
from tedsl.backend.arguments.blocks import copy_reason
from tedsl.backend.calling.aliasing import in_place_problem, overlap, same_place
from tedsl.backend.compiling.core import CallMemory, Core
from tedsl.lang.errors import AliasError
from tedsl.lang.expr import Var
from tedsl.lang.tensor import Tensor

__all__ = ["PreparedCall"]


@dataclass(frozen=True, eq=False)
class PreparedCall:
    """One call while it is prepared: the program to run, and what it was given."""

    what: str  # the kernel, for messages
    inputs: Sequence[Tensor]  # of the kernel, as the user wrote them
    outputs: Sequence[Tensor]
    core: Core
    positions: Sequence[int]  # of the program's inputs among those of the kernel
    modes: tuple[str, ...]
    sizes: Mapping[Var, int]
    arrays: Sequence[Array]
    targets: Mapping[int, Array]
    is_own: bool  # no out= was given: targets are those of alias=
    strict: Set[int]  # outputs that must not go through a temporary

    @property
    def is_plain(self) -> bool:
        return all(m == "write" for m in self.modes)

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
        copies += [(self.outputs[p].name, reason) for p, reason in reasons.items()]
        return replace(memory, outputs=outputs, shared=shared)

    def _problem(self, memory: CallMemory, position: int, target: Array) -> tuple[str | None, tuple[Tensor, ...]]:
        """Why an output goes through a temporary; else the inputs in whose memory it is written element on element."""
        reason: str | None = None
        sources: list[Tensor] = []
        for k, core_input in zip(self.positions, self.core.inputs, strict=True):
            array = self.arrays[k]
            if not overlap(array, target):
                continue
            if not same_place(array, target) or self.core.has_empty_stage(memory, self.sizes):
                reason = f"overlaps input {self.inputs[k].name!r}"
            else:
                form = self.core.form(memory, self.modes, self.sizes)
                reason = in_place_problem(self.core, form, position, self.outputs[position], self.inputs[k], core_input)
                sources.append(core_input)
            if reason is not None:
                break
        for p, previous in memory.previous.items():
            if reason is None and p != position and overlap(previous, target):
                reason = f"overlaps what {self.outputs[p].name!r} is added to"
        if reason is not None and position in self.strict:
            raise AliasError(
                f"{self.what}: the array given for output {self.outputs[position].name!r} {reason}; it may be read "
                "after it is written: give it memory of its own, or build with on_hazard='copy'"
            )
        on_device = self.core.target.backend != "host"
        return reason or copy_reason(target.shape, target.strides, target.itemsize, on_device), tuple(sources)

    def safe(self, outputs: Sequence[Array], added_to: Mapping[int, int]) -> frozenset[tuple[int, int]]:
        """The outputs and inputs that may lie element on element: those that do so now, or are known to from before.

        To prove it for all of equal layout took as long as to compile, and few calls ever need it.
        """
        found = set(added_to.items())
        form = self.core.form(CallMemory([self.arrays[k] for k in self.positions], dict(enumerate(outputs)), {}),
                              self.modes, self.sizes)  # fmt: skip
        for k, core_input in zip(self.positions, self.core.inputs, strict=True):
            array = self.arrays[k]
            for p, output in enumerate(outputs):
                same = (array.dtype, array.shape, array.strides) == (output.dtype, output.shape, output.strides)
                if same and (
                    self.core.is_proven(p, core_input, form)
                    or (np.may_share_memory(array, output) and self.core.hazard(p, core_input, form) is None)
                ):
                    found.add((p, k))
        return frozenset(found)
