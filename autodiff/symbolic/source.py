"""The loops of an index inversion, and of the map itself, as Python source.

One writer for both: what is run to be read is what is checked. Innermost stands whatever is done with a point.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import sympy

from autodiff.symbolic.python_text import PythonText, python_names

if TYPE_CHECKING:
    from autodiff.symbolic.answer import IndexGather, IndexInversion, Place

__all__ = ["gather_source", "pairs_source"]

INDENT = "    "


class Lines:
    """Source under way: blocks are opened one in another."""

    def __init__(self, depth: int = 1) -> None:
        self.found: list[str] = []
        self.depth = depth

    def add(self, text: str) -> None:
        self.found.append(INDENT * self.depth + text)

    def open(self, text: str) -> None:
        self.add(text)
        self.depth += 1


class Writing:
    """The names of one inversion, and its pieces as text."""

    def __init__(self, answer: IndexInversion) -> None:
        self.answer = answer
        own = [s for g in answer.gathers for s in (*g.place.axes, *g.loops)]
        labels = [b.label for b in answer.data]
        self.names = python_names([*answer.parameters, *answer.domain, *labels, *answer.elements, *own])
        self.printer = PythonText(self.names)
        self.reached = [f"reached_{row.dimension}" for row in answer.opaque]

    def text(self, e: Any) -> str:
        return str(self.printer.doprint(sympy.sympify(e)))

    @property
    def arguments(self) -> list[str]:
        """The parameters, then the arrays that are read by name."""
        return [self.names[s] for s in (*self.answer.parameters, *(b.label for b in self.answer.data))]

    def element(self) -> str:
        """The element that a point is added to: that of the loops, along opaque rows the one that it reaches."""
        opaque = {row.dimension: name for row, name in zip(self.answer.opaque, self.reached, strict=True)}
        return _tuple(opaque.get(j, self.names[s]) for j, s in enumerate(self.answer.elements))

    def point(self) -> str:
        return _tuple(self.names[z] for z in self.answer.domain)

    def position(self) -> str:
        """The point as an index into an array over the domain."""
        begins = [b for b, _ in self.answer.domain.values()]
        shifted = [z if b == 0 else z - b for z, b in zip(self.answer.domain, begins, strict=True)]
        return ", ".join(map(self.text, shifted)) or "()"

    def loops(self, lines: Lines, ranges: Mapping[Any, tuple[Any, Any]]) -> None:
        for s, (begin, extent) in ranges.items():
            start = "" if begin == 0 else f"{self.text(begin)}, "
            lines.open(f"for {self.names[s]} in range({start}{self.text(begin + extent)}):")

    def conditions(self, lines: Lines, conditions: Iterable[Any]) -> None:
        """Those that divide are asked where the others hold, and those that read data last."""
        ordered = sorted(
            conditions, key=lambda c: (bool(c.atoms(sympy.Indexed)), bool(c.atoms(sympy.floor, sympy.Mod)))
        )
        if ordered:
            lines.open(f"if {' and '.join(map(self.text, ordered))}:")

    def assign(self, lines: Lines, values: Mapping[Any, Any]) -> None:
        for s, e in values.items():
            if s != e:
                lines.add(f"{self.names[s]} = {self.text(e)}")

    def inside(self, lines: Lines, rows: Sequence[tuple[str, Any]]) -> None:
        """Only where each (position, extent) is one of the shape."""
        if rows:
            lines.open(f"if {' and '.join(f'0 <= {name} < {self.text(n)}' for name, n in rows)}:")


def gather_source(answer: IndexInversion) -> str:
    """`gather(values, parameters...)`, a function in plain Python and NumPy."""
    writing = Writing(answer)
    lines = Lines()
    element = writing.element()[1:-1].rstrip(",")
    lines.add(f'"""dS[{element}], the sum of values over the points {writing.point()} that reach the element."""')
    lines.add("values = numpy.asarray(values)")
    extents = [n if n.is_Atom else sympy.Max(0, n) for n in answer.shape]
    lines.add(f"out = numpy.zeros({_tuple(map(writing.text, extents))}, values.dtype)")
    _gathers(writing, lines, f"out[{element or '()'}] += values[{writing.position()}]")
    lines.add("return out")
    head = f"def gather({', '.join(['values', *writing.arguments])}):"
    return "\n".join(["import numpy", "", "", head, *lines.found, ""])


def pairs_source(answer: IndexInversion) -> str:
    """`expected` and `found`: the pairs (element, point) of the map and of its gathers."""
    writing = Writing(answer)
    arguments = ", ".join(writing.arguments)
    forward, backward = Lines(), Lines()
    _domain(writing, forward)
    _gathers(writing, backward, f"yield {writing.element()}, {writing.point()}")
    # A function without a point to yield is a generator as well.
    ends = [f"{INDENT}yield from ()", ""]
    heads = [f"def {name}({arguments}):" for name in ("expected", "found")]
    return "\n".join(["import numpy", heads[0], *forward.found, *ends, heads[1], *backward.found, *ends])


def _domain(writing: Writing, lines: Lines) -> None:
    answer = writing.answer
    writing.loops(lines, answer.domain)
    writing.conditions(lines, answer.where)
    names = [f"reached_{j}" for j in range(len(answer.index))]
    for name, row in zip(names, answer.index, strict=True):
        lines.add(f"{name} = {writing.text(row)}")
    writing.inside(lines, list(zip(names, answer.shape, strict=True)))
    lines.add(f"yield {_tuple(names)}, {writing.point()}")


def _gathers(writing: Writing, lines: Lines, innermost: str) -> None:
    for g in writing.answer.gathers:
        depth = lines.depth
        _gather(writing, lines, g)
        lines.add(innermost)
        lines.depth = depth


def _gather(writing: Writing, lines: Lines, g: IndexGather) -> None:
    answer = writing.answer
    writing.loops(lines, g.place.axes)
    writing.assign(lines, g.place.element)
    _here(writing, lines, g.place)
    writing.loops(lines, g.loops)
    writing.conditions(lines, g.guards)
    writing.assign(lines, g.solution)
    for name, row in zip(writing.reached, answer.opaque, strict=True):
        lines.add(f"{name} = {writing.text(row.index)}")
    writing.inside(lines, [(n, answer.shape[r.dimension]) for n, r in zip(writing.reached, answer.opaque, strict=True)])


def _here(writing: Writing, lines: Lines, place: Place) -> None:
    """The condition, where all elements are run through; of those of a part, that they are elements at all."""
    shape = dict(zip(writing.answer.elements, writing.answer.shape, strict=True))
    moved = {s: e for s, e in place.element.items() if s != e}
    parameters = set(writing.answer.parameters)
    conditions = [
        c for c in sorted(sympy.And.make_args(place.condition), key=str) if not moved or c.free_symbols <= parameters
    ]
    writing.conditions(lines, [c for c in conditions if c != sympy.true])
    open_ones = [(s, shape[s]) for s, e in moved.items() if not _is_inside(e, place.axes, shape[s])]
    writing.inside(lines, [(writing.names[s], n) for s, n in open_ones])


def _is_inside(element: Any, axes: Mapping[Any, tuple[Any, Any]], extent: Any) -> bool:
    """Whether an element, linear in the axes, is within [0, extent): it is where it is at the corners, in numbers."""
    own = [q for q in axes if q in element.free_symbols]
    corners = product(*((axes[q][0], axes[q][0] + axes[q][1] - 1) for q in own))
    ends = [element.subs(dict(zip(own, corner, strict=True))) for corner in corners]
    return all(e.is_Integer and extent.is_Integer and 0 <= e < extent for e in ends)


def _tuple(parts: Iterable[str]) -> str:
    """A tuple as text, also of one."""
    found = list(parts)
    return f"({found[0]},)" if len(found) == 1 else f"({', '.join(found)})"
