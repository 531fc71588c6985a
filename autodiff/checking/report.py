"""What `gradcheck` found: the worst element of each pair of an output and an input, as a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from tedsl.lang.dataclass import dataclass
from tedsl.lang.rich import Rich
from tedsl.lang.tensor import Tensor

__all__ = ["PairReport", "Report"]

Array = Any
_HEAD = (
    "output", "input", "", "worst at", "adjoint", "difference", "error", "tolerance", "step", "checked", "kinks",
)  # fmt: skip


@dataclass(frozen=True)
class PairReport:
    """One output against one input, at the element that is worst."""

    output: str
    input: str
    index: tuple[int, ...]
    analytic: float
    numeric: float
    step: float
    tolerance: float
    checked: int
    kinks: int
    ok: bool
    moved: int  # elements of the input, out of `elements`
    elements: int

    @property
    def error(self) -> float:
        """How far the adjoint is from the difference."""
        return abs(self.analytic - self.numeric)

    def row(self) -> tuple[str, ...]:
        place = f"[{', '.join(map(str, self.index))}]"
        return (
            self.output, self.input, "ok" if self.ok else "WRONG", place, f"{self.analytic:.8g}", f"{self.numeric:.8g}",
            f"{self.error:.2g}", f"{self.tolerance:.2g}", f"{self.step:.0e}",
            str(self.checked) if self.moved == self.elements else f"{self.checked} of {self.elements}", str(self.kinks),
        )  # fmt: skip


@dataclass(frozen=True)
class Report(Rich):
    """The pairs checked; true when all agree. `notes` name inputs that nothing depends on."""

    pairs: tuple[PairReport, ...]
    values: Mapping[Tensor, Array] = field(repr=False, default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether all pairs agree."""
        return all(p.ok for p in self.pairs)

    def __bool__(self) -> bool:
        return self.ok

    @property
    def worst(self) -> PairReport:
        """The pair whose error is largest beside its tolerance."""
        return max(self.pairs, key=lambda p: (not p.ok, p.error / p.tolerance if p.tolerance else 0.0))

    def __str__(self) -> str:
        rows = [_HEAD, *(p.row() for p in self.pairs)]
        widths = [max(len(r[c]) for r in rows) for c in range(len(_HEAD))]
        lines = ["  ".join(cell.ljust(w) for cell, w in zip(r, widths, strict=True)).rstrip() for r in rows]
        return "\n".join([*lines, *(f"warning: {note}" for note in self.notes)])

    def __repr__(self) -> str:
        return str(self)
