"""Why a read stays a scatter: what was tried of each of its rows, and what would have to be known.

Asked by `explain()` alone, so that nobody else waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from autodiff.inversion.domains import ON_DATA
from autodiff.turning.answers import Answer
from autodiff.turning.tables import shape_of_table
from tedsl.lang.expr import Expr, Read
from tedsl.lang.scalar_text import brief
from tedsl.lang.tensor import Constant
from tedsl.lang.traverse import reads_of

__all__ = ["attempts_of"]

FORMULAS = "linear forms with //, %, min, max, abs and select, turns around a size, digits by a size, bits"


def attempts_of(answer: Answer, text: Callable[[Expr], str] = brief) -> tuple[str, ...]:
    """A line for each row that could not be inverted; `text` writes rows."""
    return tuple(line for j in answer.found.opaque for line in _of_row(answer, j, text))


def _of_row(answer: Answer, j: int, text: Callable[[Expr], str]) -> Iterator[str]:
    row = answer.read.index[j]
    names = list(dict.fromkeys(r.tensor.name for r in reads_of((row,))))
    if names:
        holds = f"holds what {_listed(names)} will hold"
        if isinstance(row, Read) and isinstance(row.tensor.op, Constant):
            holds = f"is of {names[0]}, a list of {row.tensor.op.array.size} places whose values stay data"
        yield f"`{text(row)}` {holds}: no algebra knows which points reach an element"
        what = f"{names[0]} were" if isinstance(row, Read) else "the index were a tensor of its own and"
        yield (
            f"it would be a gather if {what} known to be a permutation (through its inverse), a sum of segments if "
            "sorted; if no value came twice, no two points would meet"
        )
        return
    reason = answer.found.reason or ""
    if reason and ON_DATA not in reason:
        yield f"`{text(row)}`: {reason}"
    yield f"`{text(row)}` is read as none of these: {FORMULAS}"
    yield _table(answer, row)


def _table(answer: Answer, row: Expr) -> str:
    found = shape_of_table(answer.read, answer.shape)
    if found is None:
        return "a table of its inverse is tried where extents are numbers, at most 65 536 points and 262 144 elements"
    points, elements, width = found
    return (
        f"a table of its inverse would have {elements * width} entries for {points} points, as {width} of them reach "
        f"one element: it would be a gather if none were reached by more than {2 * (points + elements) // elements}"
    )


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
