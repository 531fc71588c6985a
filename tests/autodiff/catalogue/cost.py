"""What the adjoints of a line cost beside the line itself: the cost law, measured by `te.work`.

Law, for the program at realistic size:
  operations   of all adjoints, with every stage that they need and the forward program does not have, are at most 4 x those of
               the forward program; iterations likewise. A point that only copies is one operation. Writing each element of the
               gradients once is no work: an input of n x n elements has as many gradients if only its diagonal is read.
  masked       iterations (those whose guard is false) are at most 10 % beside the border. The border is what thins out as
               1/n: with m(n) the masked fraction at size n, `2 m(2 n) - m(n)` is the fraction that stays at any size.
  scatters     there are none where every index is affine.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import tedsl as te
from autodiff import Explanation
from tests.autodiff.catalogue.entry import Entry

__all__ = ["MASKED", "RATIO", "Cost", "cost_of", "table"]

RATIO = 4.0
MASKED = 0.10
SIZE = 6


@dataclass(frozen=True)
class Cost:
    """One line of the table."""

    name: str
    forward: te.Work
    adjoints: te.Work  # with the forward stages left out
    elements: int  # of the gradients
    masked: float  # fraction of iterations at SIZE
    inside: float  # what stays of it at any size
    gathers: int
    scatters: int

    @property
    def iterations(self) -> float:
        return max(0, self.adjoints.iterations - self.elements) / self.forward.iterations

    @property
    def operations(self) -> float:
        done = max(self.adjoints.flops, self.adjoints.iterations - self.elements)
        return done / max(self.forward.flops, self.forward.iterations)

    def row(self) -> tuple[str, ...]:
        return (
            self.name, f"{self.forward.iterations}", f"{self.adjoints.iterations}", f"{self.elements}", f"{self.iterations:.2f}",
            f"{self.forward.flops}", f"{self.adjoints.flops}", f"{self.operations:.2f}",
            f"{self.masked:.1%}", f"{max(0.0, self.inside):.1%}", str(self.gathers), str(self.scatters),
        )  # fmt: skip


def cost_of(entry: Entry) -> Cost:
    forward, adjoints, elements, explanation = _works(entry, 2 * SIZE)
    _, smaller, _, _ = _works(entry, SIZE)
    fractions = [w.masked / max(1, w.iterations) for w in (smaller, adjoints)]
    return Cost(
        entry.name, forward, adjoints, elements, fractions[1], 2 * fractions[1] - fractions[0],
        len(explanation.gathers), len(explanation.scatters),
    )  # fmt: skip


def _works(entry: Entry, size: int) -> tuple[te.Work, te.Work, int, Explanation]:
    outputs, inputs = entry.program(size)
    heads = [te.placeholder(t.shape, t.dtype, name=f"{t.name}_head") for t in outputs]
    sources = [t for t in inputs if t.dtype.is_float]
    gradients = te.differentiate(list(outputs), sources, head=heads)
    forward, everything = te.work(list(outputs)), te.work([*outputs, *gradients])
    adjoints = te.Work(*(getattr(everything, f) - getattr(forward, f) for f in ("iterations", "masked", "flops", "bytes")))
    return forward, adjoints, sum(math.prod(t.shape) for t in gradients), gradients.explain()


HEAD = (
    "program", "iterations", "of the adjoints", "elements", "ratio", "flops", "of the adjoints", "ratio", "masked", "inside",
    "gathers", "scatters",
)  # fmt: skip


def table(costs: Sequence[Cost]) -> str:
    """The costs as Markdown."""
    rows = [HEAD, *(c.row() for c in costs)]
    lines = ["| " + " | ".join(r) + " |" for r in rows]
    lines.insert(1, "|---" + "|---:" * (len(HEAD) - 1) + "|")
    return "\n".join(lines)
