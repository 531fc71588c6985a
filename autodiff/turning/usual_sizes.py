"""Rows that go round, or back at their ends, by sizes that are not known: how often is few where these are not tiny.

A row of one element that is mirrored two elements far goes back twice at each end, one of five never more than once.
What holds for all sizes has a part for each time: nine in two dimensions become 49. So the answer is asked for again
where sizes are large enough to go round once at most, and once for each choice of dimensions that are small; a program
does what its sizes say.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import product

from autodiff.integers.linear import Linear
from autodiff.turning.affine_read import Reader, is_opaque
from autodiff.turning.answers import Answer, masked, plain_answer
from autodiff.turning.sent import Sent, Shape, extent_of
from tedsl.analysis.sizes import evaluate_extent, vars_of
from tedsl.lang import functions as fn
from tedsl.lang.dataclass import dataclass
from tedsl.lang.expr import Apply, Axis, Expr, Fn
from tedsl.lang.extents import number
from tedsl.lang.traverse import free_axes, substitute_all, topological

__all__ = ["CaseOfSizes", "by_sizes"]

LARGE = 256  # sizes are asked to be so large at most
MOST = 3  # dimensions that go round by sizes of their own


@dataclass(frozen=True)
class CaseOfSizes:
    """An answer where a condition on sizes holds."""

    condition: Expr
    answer: Answer


def by_sizes(answer: Answer) -> list[CaseOfSizes] | None:
    """The answers by what sizes are, the usual ones first; None where the one for all sizes is no longer.

    Where a dimension is small, all points along it are asked whether they are the element's: they are few. Of a window
    that is written out each read has few parts for all sizes, which are cheap, and stay the other case.
    """
    if len(answer.found.gathers) < 2 or answer.found.opaque:
        return None
    rows: dict[tuple[tuple[Expr, int], ...], list[int]] = {}  # of the index, by how large sizes are to be
    for position, row in enumerate(answer.read.index):
        if least := _least(answer, row):
            rows.setdefault(tuple(least.items()), []).append(position)
    if not rows or len(rows) > MOST:
        return None
    is_written = any(len(free_axes(row)) < 2 and not isinstance(row, Axis) for row in answer.read.index)
    found: list[CaseOfSizes] = []
    for are_large in product((True, False), repeat=len(rows)):
        kinds = list(zip(rows.items(), are_large, strict=True))
        asked = (_are_large(least) if large else fn.logical_not(_are_large(least)) for (least, _), large in kinds)
        least = {size: n for (sizes, _), large in kinds if large for size, n in sizes}
        read: Sent | None = answer.read
        for (sizes, positions), large in kinds:
            read = read if large or read is None else _compared(read, answer.shape, positions, sizes)
        if read is None:
            return None if not found else [found[0], CaseOfSizes(fn.logical_not(found[0].condition), answer)]
        case = CaseOfSizes(reduce(fn.logical_and, asked), plain_answer(read, answer.shape, compact=True, least=least))
        count = len(case.answer.found.gathers)
        if case.answer.found.opaque or not 0 < count < len(answer.found.gathers):  # none: no size is as large
            return None
        if not found and is_written:
            return [case, CaseOfSizes(fn.logical_not(case.condition), answer)]
        found.append(case)
    return found


Least = Sequence[tuple[Expr, int]]  # sizes, and how large they are to be


def _are_large(least: Least) -> Expr:
    return reduce(fn.logical_and, (size >= n for size, n in least))


def _least(answer: Answer, row: Expr) -> dict[Expr, int]:
    """The sizes that a row of the index goes round, with how large they are to be for that to be seldom."""
    least: dict[Expr, int] = {}
    for node in topological((row,)):
        if isinstance(node, Apply) and node.fn in (Fn.MOD, Fn.FLOORDIV) and number(node.args[1]) is None:
            size = node.args[1]
            found = None if free_axes(size) else _enough(answer, *node.args)
            if found is not None:
                least[size] = max(found, least.get(size, 1))
    return least


def _compared(read: Sent, shape: Shape, rows: Sequence[int], least: Least) -> Sent | None:
    """The same points where sizes are small, each with all elements along some dimensions: what it sends is 0 where its
    place is another. None where it is not known how many points along them there are at most.
    """
    short: dict[Expr, Axis] = {}
    for axis in free_axes([read.index[j] for j in rows]):
        most = None if number(axis.extent) is not None else _most(extent_of(axis), least)
        if number(axis.extent) is None and most is None:
            return None
        if most is not None:
            short[axis] = Axis(axis.name, fn.minimum(most, extent_of(axis)), begin=axis.begin)
    elements = {j: Axis(f"e{j}", shape[j]) for j in rows}
    index = tuple(elements.get(j, row) for j, row in enumerate(read.index))
    value = masked(read.value, [read.index[j] == e for j, e in elements.items()])
    value, *rest = substitute_all((value, *index, *read.conditions), short)
    axes = (*(short.get(a, a) for a in read.axes), *elements.values())
    return Sent(axes, tuple(rest[: len(index)]), value, tuple(rest[len(index) :]))


def _most(extent: Expr, least: Least) -> int | None:
    """How large an extent is at most where not all sizes are large, which all hang on one symbol."""
    symbols = vars_of(extent)
    if len(symbols) != 1 or any(vars_of(size) != symbols for size, _ in least):
        return None
    few = [n for n in range(LARGE) if any(evaluate_extent(size, {symbols[0]: n}) < bound for size, bound in least)]
    return evaluate_extent(extent, {symbols[0]: few[-1]}) if few and few[-1] == len(few) - 1 < LARGE - 1 else None


def _enough(answer: Answer, place: Expr, size: Expr) -> int | None:
    """From which size on a place goes round it as seldom as it does for large ones; None where that is for all."""

    def turns(least: int) -> int | None:
        reader = Reader(answer.read.axes, answer.shape)
        reader.assume({size: least})
        forms: list[Linear] = [reader.form(place), reader.form(size)]
        found = None if any(map(is_opaque, forms)) else reader.turns(*forms)
        return None if found is None else len(found)

    few, least = turns(LARGE), LARGE
    if few is None or few == turns(1):
        return None
    while turns(least // 2) == few:
        least //= 2
    return least
