"""The texts of bounds errors, told the same way at build, by the reference and by a kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from tedsl.lang.dataclass import dataclass
from tedsl.lang.expr import Expr
from tedsl.lang.scalar_text import brief
from tedsl.lang.tensor import Compute, Constant, Extern, Operation, Placeholder, Scan, Scatter, StepPart, Tensor

__all__ = ["Overrun", "describe", "meant", "sent_back"]

_READ = "_read_sent_back"
_MEANT = "_index_meant"

_KINDS: dict[type, str] = {
    Compute: "compute", Scatter: "scatter", Scan: "scan", Extern: "extern", Placeholder: "placeholder",
    Constant: "constant",
}  # fmt: skip


def describe(op: Operation) -> str:
    """`compute 'C' at file.py:12`."""
    return f"{_KINDS.get(type(op), 'tensor')} {op.name!r} at {op.where}"


def sent_back(op: Scatter, read: str, reader: Operation) -> None:
    """Let messages about a scatter that is a gradient name the read which it belongs to: its author wrote that one."""
    vars(op)[_READ] = f"it is what comes back from {read}, read by {describe(reader)}; guard that read"
    if _MEANT in vars(reader):
        vars(op)[_MEANT] = vars(reader)[_MEANT]


def meant(result: Tensor, what: str, argument: str, extent: str) -> Tensor:
    """The tensor; messages about its index say which argument of which operator it is, and what it counts."""
    vars(result.op)[_MEANT] = what, argument, extent
    return result


@dataclass(frozen=True)
class Overrun:
    """One index found outside its tensor: all that a message needs. Numbers may be expressions of sizes."""

    op: Operation
    tensor: Tensor
    dim: int
    index: Expr
    value: int | str | Expr | None
    extent: int | Expr
    point: Mapping[str, int | Expr]
    low: int | str | Expr | None = None
    high: int | str | Expr | None = None
    writes: bool = False
    step: int | str | None = None
    reverse: bool = False
    part: StepPart | None = None
    elements: Mapping[str, int | float | bool] = field(default_factory=dict)  # that the index is read from: "idx[17]"
    only_outside: bool = False  # `low` and `high` are those of the indices out of bounds

    def error(self) -> IndexError:
        return IndexError(str(self))

    def __str__(self) -> str:
        phase = self.op.steps[-1].name if isinstance(self.op, Scan) and self.op.parts else None
        at = ", ".join(f"{name} = {value}" for name, value in self.point.items() if name != phase)
        value = "outside" if self.value is None else f"{self.value}"
        read = " and ".join(f"{element} is {number}" for element, number in self.elements.items())
        known = f" at {at}" * bool(at) + f", where {read}" * bool(read)
        if _MEANT in vars(self.op):
            what, argument, extent = vars(self.op)[_MEANT]
            it = read or f"`{brief(self.index)}` is {value}" + f" at {at}" * bool(at)
            return f"{what} at {self.op.where}: {it}{self._range()}, expected 0 <= {argument} < {self.extent}, {extent}"
        return (
            f"{describe(self.op)}: index `{brief(self.index)}` of {self._dimension()} is out of bounds: "
            f"it is {value}{known}{self._range()}, {self._expected()}"
        )

    def _range(self) -> str:
        if self.low is None or self.high is None:
            return ""
        what = "those outside" if self.only_outside else "its range"
        return f" ({what}: {self.low} to {self.high})"

    def _dimension(self) -> str:
        """Where the index stands; parts of a packed scan are called as they were written."""
        if self.part is None:
            return f"dimension {self.dim} of {self.tensor!r}"
        own = self.dim - (self.tensor.ndim - len(self.part.extents))
        shape = ", ".join(map(str, self.part.extents))
        return f"{'the steps' if own < 0 else f'dimension {own}'} of {self.part.name} : {self.tensor.dtype}[{shape}]"

    def _counted(self) -> str:
        """A reminder where data counts from the end."""
        from_end = isinstance(self.value, int) and self.value < 0 and self.elements
        return " (only integers and lists of Python count from the end, data does not)" if from_end else ""

    def _advice(self) -> str:
        """What to write where a scan reads a step that is not there yet."""
        op = self.op
        is_present = isinstance(op, Scan) and not op.parts and len(op.dims) == 1 < len(op.axes)
        if isinstance(op, Scan) and is_present and self.index is op.axes[op.dims[0]]:
            dims = (op.dims[0], next(d for d in range(len(op.axes)) if d not in op.dims))
            return (
                f"places of the same step are read along axes that are walked too, as with axis={tuple(sorted(dims))}"
            )
        return "start the recurrence with te.select, or by mode='zero', which is 0 there"

    def _expected(self) -> str:
        if self.step is not None:
            side = f"a later step (> {self.step})" if self.reverse else f"an earlier step (< {self.step})"
            return f"expected {side} of 0 <= index < {self.extent}; {self._advice()}"
        if self.writes:
            advice = vars(self.op).get(_READ, "leave such points out with where=")
            return f"expected 0 <= index < {self.extent}; {advice}"
        if self.part is not None and self.dim < self.tensor.ndim - len(self.part.extents):
            return f"expected 0 <= index < {self.extent}; start the recurrence with te.select"
        name = self.tensor.name if self.part is None else self.part.name
        return (
            f"expected 0 <= index < {self.extent}{self._counted()}; guard the read with te.select or where=, "
            f"or use {name}.at(..., mode='zero', 'clamp', 'reflect' or 'wrap')"
        )
