"""What a kernel is made of: compiled functions, how often each is called, and how much memory a call takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from tedsl.analysis.sizes import concrete_shape
from tedsl.analysis.work import flops_of
from tedsl.backend.compiling.core import Core
from tedsl.backend.host.units import readable
from tedsl.backend.sequence.steps import Steps
from tedsl.lang.expr import Var
from tedsl.lang.locks import cached_property
from tedsl.lang.rich import Rich
from tedsl.lang.tensor import Placeholder, Tensor
from tedsl.lang.traverse import operations_between

__all__ = ["Call", "ProgramReport", "program_of"]


@dataclass(frozen=True)
class Call:
    """One step of a program: a kernel's name, or that of a stage that no kernel computes; what it reads and writes."""

    kernel: str
    stages: tuple[str, ...]
    inputs: tuple[Tensor, ...] = field(repr=False)
    outputs: tuple[Tensor, ...] = field(repr=False)
    again: bool = False  # whether what it computes was forgotten


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
        shared = f" ({readable(self.unshared)} if none were shared)" if self.unshared else ""
        shared += f" and {readable(self.lent)} in donated arrays" if self.lent else ""
        return (
            f"at most {readable(self.peak)}: arrays {readable(self.arrays)}, between kernels "
            f"{readable(self.between)}{shared}, inside one {readable(self.inside)}"
        )


@dataclass(frozen=True, eq=False)
class ProgramReport(Rich):
    """The steps of a kernel in their order; bytes are those for `sizes`, where extents are symbolic."""

    name: str
    calls: tuple[Call, ...]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    core: Core = field(repr=False)
    sizes: Mapping[Var, int] = field(default_factory=dict)
    lent: Set[int] = frozenset()  # donated inputs in whose memory intermediate results lie

    def at(self, sizes: Mapping[Var, int]) -> ProgramReport:
        """The same for given values of symbolic extents."""
        return replace(self, sizes=dict(sizes))

    @cached_property
    def memory(self) -> MemoryPlan | None:
        """What a call needs that computes all outputs anew; None where extents are not known."""
        arrays = self._bytes([*self.inputs, *self.outputs])
        if arrays is None:
            return None
        if not isinstance(self.core, Steps):
            inside = 0 if self.core.is_always_empty else sum(self.core.compiled().temporary_bytes(self.sizes))
            return MemoryPlan(arrays, 0, 0, inside)
        chain = self.core.unplaced(self.sizes, self.lent)
        between, inside = chain.buffers()
        return MemoryPlan(arrays, between, chain.unshared(), inside, chain.lent_bytes())

    @property
    def peak_bytes(self) -> int | None:
        """The most memory that a call holds at once, its arrays included; None where extents are not known."""
        return None if self.memory is None else self.memory.peak

    @cached_property
    def kernels(self) -> dict[str, tuple[Call, ...]]:
        """The calls of each kernel, in the order of the first."""
        found: dict[str, tuple[Call, ...]] = {}
        for call in self.calls:
            found[call.kernel] = (*found.get(call.kernel, ()), call)
        return found

    def bytes_of(self, call: Call) -> int | None:
        """Bytes of what a call reads and writes; None where extents are not known."""
        return self._bytes([*call.inputs, *call.outputs])

    def _bytes(self, tensors: Sequence[Tensor]) -> int | None:
        try:
            shapes = [concrete_shape(t, self.sizes, self.name) for t in tensors]
        except ValueError:
            return None
        total = 0
        for shape, tensor in zip(shapes, tensors, strict=True):
            size = tensor.dtype.itemsize
            for extent in shape:
                size *= extent
            total += size
        return total

    def __repr__(self) -> str:
        """A line for each kernel: how often it is called, the bytes of one call, and its stages."""
        rows = [("kernel", "calls", "bytes", "stages")]
        for name, calls in self.kernels.items():
            size = self.bytes_of(calls[0])
            rows.append((name, str(len(calls)), "?" if size is None else readable(size), ", ".join(calls[0].stages)))
        widths = [max(len(row[k]) for row in rows) for k in range(3)]
        lines = [
            f"{row[0]:<{widths[0]}}  {row[1]:>{widths[1]}}  {row[2]:>{widths[2]}}  {row[3]:.60}".rstrip()
            for row in rows
        ]
        title = f"{self.name}: {_counted(len(self.calls), 'call')} of {_counted(len(self.kernels), 'kernel')}"
        told = [] if self.memory is None else [str(self.memory)]
        if any(call.again for call in self.calls):
            told.append(
                f"{sum(call.again for call in self.calls)} calls compute again what was forgotten{self._more()}"
            )
        return "\n".join([title, *lines, *told])

    @cached_property
    def extra_work(self) -> float | None:
        """Operations of the calls that compute something again, as a share of all others; None where not known."""
        try:
            flops = [
                sum(flops_of(op, self.sizes) for op in operations_between(c.inputs, c.outputs)) for c in self.calls
            ]
        except ValueError:
            return None
        again = sum(n for n, call in zip(flops, self.calls, strict=True) if call.again)
        return again / max(1, sum(flops) - again)

    def _flops(self, call: Call) -> int:
        return sum(flops_of(op, self.sizes) for op in operations_between(call.inputs, call.outputs))

    def _more(self) -> str:
        return "" if self.extra_work is None else f": {100 * self.extra_work:.1f} % more operations"


def _counted(n: int, what: str) -> str:
    return f"{n} {what}{'s' * (n != 1)}"


def program_of(core: Core, lent: Set[int] = frozenset()) -> ProgramReport:
    """The program behind a kernel."""
    core = core.whole
    calls = _calls(core) if isinstance(core, Steps) else [_call(core, core.name, core.inputs, core.outputs)]
    return ProgramReport(core.name, tuple(calls), core.inputs, core.outputs, core, lent=lent)


def _calls(core: Steps) -> list[Call]:
    names: dict[Core, str] = {}
    for kernel in core.kernels:
        taken = set(names.values())
        names[kernel] = next(n for n in (kernel.name, *(f"{kernel.name}_{k}" for k in range(len(taken) + 1)))
                             if n not in taken)  # fmt: skip
    found = []
    for place, step in enumerate(core.steps):
        again = place in core.again
        inputs, outputs = (tuple(core.tensors[c] for c in cells) for cells in (step.inputs, step.outputs))
        if step.core is None:
            assert step.op is not None
            found.append(Call(step.op.name, (step.op.name,), inputs, outputs, again))
        else:
            found.append(replace(_call(step.core, names[step.core], inputs, outputs), again=again))
    return found


def _call(core: Core, name: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Call:
    stages = [op.name for op in operations_between(inputs, outputs) if not isinstance(op, Placeholder)]
    return Call(name, tuple(stages), tuple(inputs), tuple(outputs))
