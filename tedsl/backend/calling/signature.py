"""What a kernel is to those who call it, and what one call was given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from tedsl.analysis.pointwise import Array
from tedsl.analysis.sizes import NamedSizes
from tedsl.backend.calling.accumulate import Accumulating
from tedsl.backend.calling.donation import Donations, Donor
from tedsl.backend.compiling.executable import Executable, Shared
from tedsl.lang.dataclass import dataclass
from tedsl.lang.locks import cached_property
from tedsl.lang.tensor import Constant, Tensor

__all__ = ["Asked", "KernelParts", "KernelSignature"]


@dataclass(frozen=True, eq=False)
class KernelSignature:
    """The tensors for which a kernel takes and gives arrays, and whose memory is whose."""

    name: str
    inputs: tuple[Tensor, ...]
    constants: tuple[Tensor, ...]  # whose arrays a call adds to those of the inputs
    outputs: tuple[Tensor, ...]
    is_several: bool  # a call returns a tuple
    alias: Mapping[int, int] = field(default_factory=dict)  # position of an output -> the input whose memory it takes
    on_hazard: str | None = None  # see te.build
    donations: Donations = field(default_factory=Donations)

    @cached_property
    def fed(self) -> tuple[Tensor, ...]:
        """What the program behind it is given."""
        return (*self.inputs, *self.constants)

    @cached_property
    def constant_arrays(self) -> dict[Tensor, Array]:
        """The arrays of the constants."""
        return {t: t.op.array for t in self.constants if isinstance(t.op, Constant)}

    @cached_property
    def what(self) -> str:
        """The kernel, for messages."""
        return f"kernel {self.name!r}"

    def strict(self, *, is_own: bool) -> frozenset[int]:
        """The outputs that must not go through a temporary; `is_own`: out= was not given."""
        if self.on_hazard == "error":
            return frozenset(range(len(self.outputs)))
        return frozenset(self.alias) if self.on_hazard is None and is_own else frozenset()


@dataclass(frozen=True, eq=False)
class KernelParts:
    """A kernel: its signature, and what runs behind it."""

    signature: KernelSignature
    shared: Shared
    accumulating: Accumulating | None = None  # for calls that add to memory of inputs

    @property
    def core(self) -> Executable:
        """The program itself."""
        return self.shared.core

    @property
    def usual(self) -> Executable:
        """What runs in a call without out= and mode=."""
        return self.core if self.accumulating is None else self.accumulating.shared.core

    @property
    def is_on_device(self) -> bool:
        """Whether arrays are copied to a GPU."""
        return self.core.program.target.backend != "host"

    @cached_property
    def donor(self) -> Donor:
        """What a call may overwrite."""
        signature = self.signature
        return Donor(signature.what, signature.fed, signature.outputs, signature.donations)

    @cached_property
    def written(self) -> frozenset[int]:
        """The inputs in whose memory something is written."""
        return frozenset((*self.signature.alias.values(), *self.donor.taken, *self.donor.lent))


@dataclass(frozen=True, eq=False)
class Asked:
    """What one call was given: arrays for the inputs and the constants, and its options."""

    given: Sequence[Any]
    out: Any
    mode: Any
    sizes: NamedSizes | None
    casting: str
