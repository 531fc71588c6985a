"""What runs behind a kernel, and what it is given: the protocols, and the records that pass between those who fulfil
them.

`Executable` is what a `Kernel` calls: one compiled function (`compiling.single_kernel`) or several, one after another
(`sequence.steps`). `CompiledKernel` is what such a sequence calls: a function compiled here, or one whose code was
found on the disk without its schedule (`sequence.found_kernel`).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import field
from typing import Protocol

from tedsl.analysis.hazards import Hazard
from tedsl.analysis.pointwise import Array
from tedsl.analysis.sizes import concrete_shape
from tedsl.backend.arguments.blocks import OneCall
from tedsl.backend.compiling.compilation import Compilation
from tedsl.backend.compiling.compiled_forms import CompiledForms
from tedsl.backend.compiling.facts import KnownFacts
from tedsl.backend.compiling.forms import Form
from tedsl.backend.host.phases import Spent
from tedsl.backend.host.runtime import KernelError
from tedsl.backend.host.units import readable
from tedsl.lang.dataclass import dataclass
from tedsl.lang.expr import Var
from tedsl.lang.tensor import Operation, Tensor

__all__ = [
    "BoxView",
    "CallMemory",
    "CompiledKernel",
    "Executable",
    "KernelStep",
    "MemoryPlan",
    "Prepared",
    "Proof",
    "Shared",
    "StepPlan",
    "View",
]  # fmt: skip

Modes = tuple[str, ...]
Sizes = Mapping[Var, int]
Proof = tuple[tuple[str, ...], bool, bool, bool, int, int]  # a form; an output may lie on an input element on element


@dataclass(frozen=True)
class CallMemory:
    """Where a call reads and writes: the inputs in order, and arrays by the position of the output."""

    inputs: Sequence[Array]
    outputs: Mapping[int, Array]
    previous: Mapping[int, Array]  # the former values of outputs in mode "add"
    shared: Mapping[int, tuple[Tensor, ...]] = field(default_factory=dict)  # inputs in whose memory an output lies
    copies: list[tuple[str, str]] = field(default_factory=list)  # made while it runs: (what, why)
    given: Set[int] = frozenset()  # outputs whose arrays are the caller's, who may look at them after a failed call
    lent: Set[int] = frozenset()  # inputs that nobody needs after the call: intermediate results may lie there

    @property
    def arrays(self) -> list[Array]:
        """Everything that is read and written."""
        return [
            *self.inputs,
            *(self.outputs[p] for p in sorted(self.outputs)),
            *(self.previous[p] for p in sorted(self.previous)),
        ]


@dataclass(frozen=True)
class Prepared:
    """A function of arrays: inputs, former values of outputs, outputs."""

    run: Callable[[Sequence[Array]], None]
    added: tuple[int, ...]  # positions of the outputs whose former values it takes
    order: tuple[int, ...]  # and of the outputs, in its order


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes that a call holds at once."""

    arrays: int  # inputs and outputs
    between: int  # what passes from kernel to kernel; tensors that are never needed at once share memory
    unshared: int  # the same, if each tensor had memory of its own
    inside: int  # the most that one kernel allocates while it runs
    lent: int = 0  # of what passes between kernels, the bytes that lie in donated inputs

    @property
    def peak(self) -> int:
        """All of it."""
        return self.arrays + self.between + self.inside

    def __str__(self) -> str:
        shared = f" ({readable(self.unshared)} unshared)" if self.unshared else ""
        shared += f" and {readable(self.lent)} in donated arrays" if self.lent else ""
        return (
            f"at most {readable(self.peak)}: arrays {readable(self.arrays)}, between kernels "
            f"{readable(self.between)}{shared}, inside one {readable(self.inside)}"
        )


class Runnable(Protocol):
    """What both have in common."""

    @property
    def program(self) -> Compilation:
        """What was compiled."""

    @property
    def facts(self) -> KnownFacts:
        """What is known of it without code."""

    @property
    def compile_ms(self) -> float:
        """Milliseconds of compiling so far."""

    @property
    def phases(self) -> Spent:
        """Where that went, and what scheduling took before."""

    def run(self, memory: CallMemory, modes: Modes, sizes: Sizes, failure: KernelError | None = None) -> None:
        """Compute the outputs whose mode is not "null"; `failure`: how a call failed that has written nothing."""

    def hazard(self, position: int, source: Tensor, form: Form | None = None) -> Hazard | None:
        """Why an output cannot be written into the memory of an input; None where it provably can."""

    def is_proven(self, position: int, source: Tensor, form: Form) -> bool:
        """Whether it was found before that there is no hazard."""

    def temporary_bytes(self, sizes: Sizes, lent: Set[int] = frozenset()) -> list[int]:
        """Sizes of the buffers for intermediate results, where the memory of some inputs may be used."""

    def explanation(self, error: KernelError, inputs: Sequence[Array], sizes: Sizes) -> str:
        """What a failed requirement of the program means; "" where something else failed.

        The arrays of the inputs, where they are at hand, say which element is wrong.
        """

    def source(self, kind: str) -> str:
        """What the compiler made of the program, as text."""

    def loop_nest(self) -> str:
        """The loops in the order in which they run."""


class CompiledKernel(Runnable, Protocol):
    """One compiled function, with as many forms as its calls need."""

    @property
    def forms(self) -> CompiledForms:
        """The forms compiled so far."""

    @property
    def proven(self) -> set[Proof]:
        """What was proven of it so far."""

    def settled(self, make: Callable[[], CompiledKernel]) -> CompiledKernel:
        """The same with all that is known of its schedule, from somebody who knows it."""


class Executable(Runnable, Protocol):
    """A whole program."""

    @property
    def plan(self) -> StepPlan:
        """The kernels that it calls, in their order."""

    @property
    def single(self) -> CompiledKernel | None:
        """The one compiled function that does it all, where there is one."""

    @property
    def whole(self) -> Executable:
        """Itself with all that is known of its schedule, which a program found on the disk comes without."""

    @property
    def is_remembered(self) -> bool:
        """Whether calls on arrays of the same shapes and strides can be prepared."""

    def compile(self, modes: Modes | None = None) -> None:
        """Compile now what a call with contiguous arrays needs."""

    def form(self, memory: CallMemory, modes: Modes, sizes: Sizes) -> Form:
        """The form that these arrays need."""

    def prepared(self, memory: CallMemory, modes: Modes, sizes: Sizes) -> Prepared:
        """A function of arrays like these."""

    def in_one(self, memory: CallMemory) -> OneCall | None:
        """The call on arrays like these for other compilers, whatever numbers they hold; None where it is more."""

    def memory_plan(self, arrays: int, sizes: Sizes, lent: Set[int]) -> MemoryPlan:
        """What a call needs that computes all outputs anew in so many bytes of arrays."""

    def keep(self) -> None:
        """Let other processes know what was found out about it."""


@dataclass(frozen=True, eq=False)
class KernelStep:
    """The call of a kernel, or a stage that no kernel computes; tensors go by their numbers in the program."""

    core: CompiledKernel | None
    op: Operation | None
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    sizes: Mapping[Var, Var] = field(default_factory=dict)  # the kernel's extents, where it was made for another step

    @property
    def can_fail(self) -> bool:
        """Whether it looks at data that may be wrong."""
        return self.core is None or self.core.facts.checks_indices

    def bytes_inside(self, sizes: Sizes) -> int:
        """What a kernel allocates while it runs."""
        if self.core is None:
            return 0
        part, name = self.core.program.planner.part, self.core.program.name
        if part is None:
            return sum(self.core.temporary_bytes(sizes))
        bound, total = self.bound(sizes), 0
        for tensor in part.stored:
            count = tensor.dtype.numpy.itemsize
            for extent in concrete_shape(tensor, bound, name):
                count *= extent
            total += count
        return total

    def bound(self, sizes: Sizes) -> Sizes:
        """The extents as the kernel knows them."""
        return {own: sizes[v] for own, v in self.sizes.items()} if self.sizes else sizes


@dataclass(frozen=True)
class View:
    """A part of another tensor: its elements from `begin` to before `end` along `dim`, the only one without `dim`."""

    of: int
    dim: int
    begin: int
    end: int
    is_single: bool = False

    def part(self, array: Array) -> Array:
        """The same part of an array."""
        taken = self.begin if self.is_single else slice(self.begin, self.end)
        return array[(slice(None),) * self.dim + (taken, ...)]

    def offset(self, strides: Sequence[int]) -> int:
        """Where it begins in an array of these strides."""
        return self.begin * strides[self.dim]


@dataclass(frozen=True)
class BoxView:
    """A box of another tensor, in whose memory it lies: so many elements of each dimension from `begins` on."""

    of: int
    begins: tuple[int, ...]
    shape: tuple[int, ...]

    def part(self, array: Array) -> Array:
        """The same box of an array."""
        return array[tuple(slice(b, b + n) for b, n in zip(self.begins, self.shape, strict=True))]

    def offset(self, strides: Sequence[int]) -> int:
        """Where it begins in an array of these strides."""
        return sum(map(operator.mul, self.begins, strides))


@dataclass(frozen=True, eq=False)
class StepPlan:
    """The steps of a program in their order, and its tensors by their numbers, of which the inputs are the first."""

    tensors: tuple[Tensor, ...]
    steps: tuple[KernelStep, ...]
    results: tuple[int, ...]  # the numbers of the outputs
    again: frozenset[int] = frozenset()  # places of steps that compute what was forgotten
    numbers: Mapping[Tensor, int] = field(default_factory=dict)  # of the user's tensors that are stored
    users: Mapping[int, Tensor] = field(default_factory=dict)  # the user's tensors that others stand for, by number
    views: Mapping[int, View | BoxView] = field(default_factory=dict)  # numbers that are parts of other tensors
    is_finest: bool = False  # it is cut into as many steps as it can be
    schedule_ms: float = field(default=0.0, compare=False)  # what it took to schedule and cut it

    def known_by(self, cell: int) -> int:
        """The number of the tensor in which the elements of one count from 0 as the program says."""
        view = self.views.get(cell)
        return view.of if isinstance(view, BoxView) else cell

    def read_by(self, step: KernelStep) -> list[int]:
        """The tensors that a step reads, all or parts of them."""
        return [self.views[c].of if c in self.views else c for c in step.inputs]

    def made_by(self, step: KernelStep) -> list[int]:
        """The tensors that a step writes, all or parts of them."""
        return [self.views[c].of if c in self.views else c for c in step.outputs]

    @property
    def kernels(self) -> list[CompiledKernel]:
        """The kernels, each once."""
        return list(dict.fromkeys(step.core for step in self.steps if step.core is not None))


@dataclass(frozen=True, eq=False)
class Shared:
    """An executable and, where it was made for another program like this one, its variables for those of this one."""

    core: Executable
    renamed: Mapping[Var, Var] | None = None

    def sizes(self, bound: Mapping[Var, int]) -> dict[Var, int]:
        """The values of our variables as the executable calls them."""
        return dict(bound) if self.renamed is None else {self.renamed.get(v, v): n for v, n in bound.items()}
