"""What the adjoints of a line cost beside the line itself: the cost law, measured by `te.work`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import tedsl as te
from autodiff import Explanation
from tedsl.lang.traverse import reads_of, stages_of
from tests.autodiff.catalogue.entry import Entry

__all__ = ["LAW", "Cost", "cost_of", "table"]

RATIO = 4.0
MASKED = 0.10
SIZE = 6

LAW = """\
These are the programs of `tests/autodiff/catalogue` at realistic sizes, each differentiated with respect to all of its inputs, with a
head. `te.work` counts what the forward program and its adjoints do. `python -m tests.autodiff.catalogue` writes the table, and
`tests/autodiff/inversion/test_catalogue_cost.py` holds each line to these rules:

- **Operations.** The adjoints take at most 4 times the operations of the forward program. Operations are flops, or iterations if there
  are more of these: a point that only copies is one operation. All stages count that the adjoints need and the forward program does not
  have. Writing each element of the gradients once does not count: an n x n input has n x n gradients even if only its diagonal is read.
- **Iterations.** Beyond one for each element of the gradients, the adjoints take at most 4 times the iterations of the forward program.
  Where a forward point reads one tensor several times, as a stencil that is written out does, its iterations count that many times.
  One line takes more: a reducer that is taken apart has small stages, which are computed where they are read.
- **Masked iterations**, whose guard is false, are at most 10% away from the border. Those at the border become rare as 1/n: if m(n) is
  the masked fraction at size n, then `2 m(2n) - m(n)` is the part that stays at any size.
- **Scatters** are left only where an index is data.

The columns, from left to right:

- iterations of the forward program, and of the adjoints; elements of the gradients; the ratio (of the adjoints - elements) / iterations
- flops of the forward program, and of the adjoints; the ratio of their operations
- masked iterations at this size, and inside, away from the border
- reads that became gathers, and reads that stayed scatters
"""


@dataclass(frozen=True)
class Cost:
    """One line of the table."""

    name: str
    forward: te.Work
    adjoints: te.Work  # with the forward stages left out
    elements: int  # of the gradients
    taps: int  # reads of one tensor in one forward body, at most
    masked: float  # fraction of iterations at SIZE
    inside: float  # what stays of it at any size
    gathers: int
    scatters: int

    @property
    def iterations(self) -> float:
        """Beyond one per element, beside the forward program's."""
        return max(0, self.adjoints.iterations - self.elements) / self.forward.iterations

    @property
    def broken(self) -> list[str]:
        """What the law says against this line."""
        found = []
        if self.operations > RATIO:
            found.append(f"{self.operations:.2f} x the operations")
        if self.iterations > RATIO * self.taps:
            found.append(f"{self.iterations:.2f} x the iterations, with {self.taps} taps")
        if self.inside > MASKED:
            found.append(f"{self.inside:.1%} masked inside")
        return found

    @property
    def operations(self) -> float:
        done = max(self.adjoints.flops, self.adjoints.iterations - self.elements)
        return done / max(self.forward.flops, self.forward.iterations)

    def row(self) -> tuple[str, ...]:
        return (
            self.name, f"{self.forward.iterations:,}", f"{self.adjoints.iterations:,}", f"{self.elements:,}",
            f"{self.iterations:.2f}", f"{self.forward.flops:,}", f"{self.adjoints.flops:,}", f"{self.operations:.2f}",
            f"{self.masked:.1%}", f"{max(0.0, self.inside):.1%}", str(self.gathers), str(self.scatters),
        )  # fmt: skip


def cost_of(entry: Entry) -> Cost:
    forward, adjoints, elements, taps, explanation = _works(entry, 2 * SIZE)
    smaller = _works(entry, SIZE)[1]
    fractions = [w.masked / max(1, w.iterations) for w in (smaller, adjoints)]
    return Cost(
        entry.name, forward, adjoints, elements, taps, fractions[1], 2 * fractions[1] - fractions[0],
        len(explanation.gathers), len(explanation.scatters),
    )  # fmt: skip


def _works(entry: Entry, size: int) -> tuple[te.Work, te.Work, int, int, Explanation]:
    outputs, inputs = entry.program(size)
    heads = [te.placeholder(t.shape, t.dtype, name=f"{t.name}_head") for t in outputs]
    sources = [t for t in inputs if t.dtype.is_float]
    gradients = te.differentiate(list(outputs), sources, head=heads)
    forward, everything = te.work(list(outputs)), te.work([*outputs, *gradients])
    adjoints = te.Work(
        *(getattr(everything, f) - getattr(forward, f) for f in ("iterations", "masked", "flops", "bytes"))
    )
    return forward, adjoints, sum(math.prod(t.shape) for t in gradients), _taps(outputs), gradients.explain()


def _taps(outputs: Sequence[te.Tensor]) -> int:
    counts = [Counter(r.tensor for r in reads_of(op.expressions)) for op in stages_of(outputs)]
    return max([1, *(n for count in counts for n in count.values())])


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
