"""What a kernel is made of: compiled functions, how often each is called, and how much memory a call takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from tedsl.analysis.sizes import concrete_shape
from tedsl.backend.core import Core
from tedsl.backend.lower import operations_between
from tedsl.backend.steps import Steps
from tedsl.lang.expr import Var
from tedsl.lang.rich import Rich
from tedsl.lang.tensor import Placeholder, Tensor

__all__ = ["Call", "Program", "program_of"]


@dataclass(frozen=True)
class Call:
    """One step of a program: a kernel's name, or that of a stage that no kernel computes; what it reads and writes."""

    kernel: str
    stages: tuple[str, ...]
    inputs: tuple[Tensor, ...] = field(repr=False)
    outputs: tuple[Tensor, ...] = field(repr=False)


@dataclass(frozen=True, eq=False)
class Program(Rich):
    """The steps of a kernel in their order; bytes are those for `sizes`, where extents are symbolic."""

    name: str
    calls: tuple[Call, ...]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    sizes: Mapping[Var, int] = field(default_factory=dict)

    def at(self, sizes: Mapping[Var, int]) -> Program:
        """The same for given values of symbolic extents."""
        return Program(self.name, self.calls, self.inputs, self.outputs, dict(sizes))

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
        return "\n".join([f"{self.name}: {len(self.calls)} calls of {len(self.kernels)} kernels", *lines])


def readable(size: float) -> str:
    """A number of bytes as people write it."""
    for unit in ("B", "KB", "MB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GB"


def program_of(core: Core) -> Program:
    """The program behind a kernel."""
    calls = _calls(core) if isinstance(core, Steps) else [_call(core, core.name, core.inputs, core.outputs)]
    return Program(core.name, tuple(calls), core.inputs, core.outputs)


def _calls(core: Steps) -> list[Call]:
    names: dict[Core, str] = {}
    for kernel in core.kernels:
        taken = set(names.values())
        names[kernel] = next(n for n in (kernel.name, *(f"{kernel.name}_{k}" for k in range(len(taken) + 1)))
                             if n not in taken)  # fmt: skip
    found = []
    for step in core.steps:
        inputs, outputs = (tuple(core.tensors[c] for c in cells) for cells in (step.inputs, step.outputs))
        if step.core is None:
            assert step.op is not None
            found.append(Call(step.op.name, (step.op.name,), inputs, outputs))
        else:
            found.append(_call(step.core, names[step.core], inputs, outputs))
    return found


def _call(core: Core, name: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Call:
    stages = [op.name for op in operations_between(inputs, outputs) if not isinstance(op, Placeholder)]
    return Call(name, tuple(stages), tuple(inputs), tuple(outputs))
