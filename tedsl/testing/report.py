"""What a check of an operator found: the cases tried, or the smallest one that fails, as a snippet that runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from autodiff import Report
from tedsl.lang.dataclass import dataclass
from tedsl.lang.rich import Rich
from tedsl.testing.arguments import SampledCall

__all__ = ["CheckError", "CheckReport", "Failure"]


class CheckError(AssertionError):
    """An operator that lacks a property; `report` tells of the smallest case found."""

    def __init__(self, report: CheckReport) -> None:
        super().__init__(str(report))
        self.report = report


@dataclass(frozen=True)
class Failure:
    """A case, the check that fails on it, what that found, and a snippet that shows it."""

    check: str
    case: SampledCall = field(repr=False)
    message: str
    snippet: str
    gradients: Report | None = None

    def __str__(self) -> str:
        parts = [f"{self.check}: {self.message}", f"  for {self.case}"]
        if self.gradients is not None:
            parts += ["", str(self.gradients)]
        return "\n".join([*parts, "", "To see it again:", "", *(f"    {x}" for x in self.snippet.splitlines())])


@dataclass(frozen=True)
class CheckReport(Rich):
    """How often each check ran, and the failure if there is one; true when there is none. `notes` say what could not be
    checked.
    """

    name: str
    examples: int
    counts: Mapping[str, int]
    failure: Failure | None = None
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether no check failed."""
        return self.failure is None

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        examples = f"{self.examples} example{'s' * (self.examples != 1)}"
        if self.failure is not None:
            return f"{self.name} is wrong, found after {examples}\n\n{self.failure}"
        counts = ", ".join(f"{name} {count}" for name, count in self.counts.items())
        return "\n".join([f"{self.name}: no fault found in {examples} ({counts})", *self.notes])

    def __repr__(self) -> str:
        return str(self)
