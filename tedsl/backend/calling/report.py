"""What a kernel is made of: compiled functions, how often each is called, and how much memory a call takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import field, replace

from tedsl.analysis.sizes import concrete_shape
from tedsl.analysis.work import flops_of
from tedsl.backend.compiling.executable import CompiledKernel, Executable, MemoryPlan
from tedsl.backend.host.units import readable
from tedsl.lang.dataclass import dataclass
from tedsl.lang.expr import Var
from tedsl.lang.locks import cached_property
from tedsl.lang.rich import Rich
from tedsl.lang.tensor import Placeholder, Tensor
from tedsl.lang.traverse import operations_between

__all__ = ["Call", "ProgramReport", "program_of"]

WIDTH, LEAST_STAGES = 96, 40  # letters of a line, as of code on pages; of them for the stages of a kernel


@dataclass(frozen=True)
class Call:
    """One step of a program: a kernel's name, or that of a stage that no kernel computes; what it reads and writes."""

    kernel: str
    stages: tuple[str, ...]
    inputs: tuple[Tensor, ...] = field(repr=False)
    outputs: tuple[Tensor, ...] = field(repr=False)
    again: bool = False  # whether what it computes was forgotten


@dataclass(frozen=True, eq=False)
class ProgramReport(Rich):
    """The steps of a kernel in their order; bytes are those for `sizes`, where extents are symbolic."""

    name: str
    calls: tuple[Call, ...]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    core: Executable = field(repr=False)
    sizes: Mapping[Var, int] = field(default_factory=dict)
    lent: Set[int] = frozenset()  # donated inputs in whose memory intermediate results lie

    def at(self, sizes: Mapping[Var, int]) -> ProgramReport:
        """The same for given values of symbolic extents."""
        return replace(self, sizes=dict(sizes))

    @cached_property
    def memory(self) -> MemoryPlan | None:
        """What a call needs that computes all outputs anew; None where extents are not known."""
        arrays = self._bytes([*self.inputs, *self.outputs])
        return None if arrays is None else self.core.memory_plan(arrays, self.sizes, self.lent)

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
        rows: list[tuple[str, str, str, Sequence[str]]] = [("kernel", "calls", "bytes", ["stages"])]
        for name, calls in self.kernels.items():
            size = self.bytes_of(calls[0])
            rows.append((name, str(len(calls)), "?" if size is None else readable(size), calls[0].stages))
        name_width, *widths = (max(len(str(row[k])) for row in rows) for k in range(3))
        left = max(LEAST_STAGES, WIDTH - name_width - sum(widths) - 6)
        lines = [
            f"{name:<{name_width}}  {count:>{widths[0]}}  {size:>{widths[1]}}  {_few(stages, left)}".rstrip()
            for name, count, size, stages in rows
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
        return "" if self.extra_work is None else f": {100 * self.extra_work:.1f}% more operations"


def _counted(n: int, what: str) -> str:
    return f"{n} {what}{'s' * (n != 1)}"


def _few(names: Sequence[str], most: int) -> str:
    """The first names that fit a line, each of them whole, and how many there are where some are left out."""
    text = ", ".join(names)
    if len(text) <= most:
        return text
    end = f", ... ({len(names)})"
    return (text[: most - len(end) + 1].rpartition(",")[0] or text[: most - len(end)]) + end


def program_of(core: Executable, lent: Set[int] = frozenset()) -> ProgramReport:
    """The program behind a kernel."""
    core = core.whole
    program = core.program
    return ProgramReport(program.name, tuple(_calls(core)), program.inputs, program.outputs, core, lent=lent)


def _calls(core: Executable) -> list[Call]:
    plan, names = core.plan, _names(core.plan.kernels)
    found = []
    for place, step in enumerate(plan.steps):
        again = place in plan.again
        inputs, outputs = (tuple(plan.tensors[c] for c in cells) for cells in (step.inputs, step.outputs))
        if step.core is None:
            assert step.op is not None
            found.append(Call(step.op.name, (step.op.name,), inputs, outputs, again))
        else:
            stages = [op.name for op in operations_between(inputs, outputs) if not isinstance(op, Placeholder)]
            found.append(Call(names[step.core], tuple(stages), inputs, outputs, again))
    return found


def _names(kernels: Sequence[CompiledKernel]) -> dict[CompiledKernel, str]:
    """A name of its own for each."""
    names: dict[CompiledKernel, str] = {}
    for kernel in kernels:
        taken, name = set(names.values()), kernel.program.name
        free = (n for n in (name, *(f"{name}_{k}" for k in range(len(taken) + 1))) if n not in taken)
        names[kernel] = next(free)
    return names
