"""The answer of an index inversion as data in sympy's words.

dS[s] = sum over gathers, where place(s), of sum over loops, where guards(s, t), of g(solution(s, t))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sympy

from autodiff.symbolic.bounds import bounds_of
from autodiff.symbolic.checking import Checked, checked
from autodiff.symbolic.latex import latex_of
from autodiff.symbolic.source import gather_source
from tedsl.lang.dataclass import dataclass
from tedsl.lang.rich import Rich

__all__ = ["IndexGather", "IndexInversion", "OpaqueRow", "Place"]

Range = tuple[Any, Any]


@dataclass(frozen=True)
class Place:
    """The elements that a gather is for: those where `condition` holds, which are `element(q)` for q in `axes`.

    >>> from sympy import symbols
    >>> from autodiff import invert
    >>> y, r = symbols("y r", integer=True)
    >>> print(invert([2 * y + r], {y: (0, 5), r: (0, 3)}, [11]).gathers[0].place)
    s_0 = 2*q_0, q_0 in [0, 6)
    """

    axes: Mapping[Any, Range]
    element: Mapping[Any, Any]
    condition: Any

    @property
    def is_everywhere(self) -> bool:
        """Whether every element has its sum there."""
        return bool(self.condition == sympy.true)

    @property
    def elements(self) -> Mapping[Any, Any]:
        """What is said of each symbol of an element: the values of a part, or {symbol: (begin, extent)} of a range."""
        told: dict[Any, Any] = {}
        for s, e in self.element.items():
            shift = {q: e - q for q in self.axes if (e - q).is_number}
            if not shift:
                told[s] = e
            for q, begin in shift.items():
                told[s] = (begin, self.axes[q][1])
        return told

    @property
    def is_part(self) -> bool:
        """Whether only some elements are run through."""
        return any(s != e for s, e in self.element.items())

    @property
    def proviso(self) -> Any:
        """What is not said by the elements alone: of a part, that parameters are such that there is one."""
        if not self.is_part:
            return self.condition
        conditions = sympy.And.make_args(self.condition)
        return sympy.And(*(c for c in conditions if c.free_symbols.isdisjoint(self.element)))

    def __str__(self) -> str:
        if not self.is_part:
            return "everywhere" if self.is_everywhere else str(self.condition)
        free = {q for e in self.element.values() for q in e.free_symbols & set(self.axes)}
        told = self.elements
        lines = [f"{s} in {interval(*e)}" if isinstance(e, tuple) else f"{s} = {e}" for s, e in told.items()]
        named = {q for e in told.values() if not isinstance(e, tuple) for q in e.free_symbols} & free
        lines += [f"{q} in {interval(*r)}" for q, r in self.axes.items() if q in named]
        return ", ".join([*lines, *([] if self.proviso == sympy.true else [str(self.proviso)])])


@dataclass(frozen=True)
class IndexGather:
    """A sum over `loops`, {symbol: (begin, extent)}, of the points `solution` at which all `guards` hold.

    `solution` gives every symbol of the domain in the symbols of the element, of the loops and of the parameters.
    """

    loops: Mapping[Any, Range]
    solution: Mapping[Any, Any]
    guards: tuple[Any, ...]
    place: Place

    @property
    def bounds(self) -> list[Any]:
        """The guards as they are read: `Bounds` where inequalities say between what a quantity is, else conditions."""
        return bounds_of(self.guards, self.solution, {*self.loops, *self.place.element})

    def __str__(self) -> str:
        lines = [f"for {self.place}"] if self.place.is_part else []
        lines += [] if self.place.is_part or self.place.is_everywhere else [f"where {self.place}"]
        lines += [f"sum {t} in {interval(*r)}" for t, r in self.loops.items()]
        lines += [", ".join(f"{z} = {e}" for z, e in self.solution.items()) or "the only point"]
        return "\n".join([*lines, *(f"if {c}" for c in self.bounds)])


@dataclass(frozen=True)
class OpaqueRow:
    """A row of the index that could not be inverted: along `dimension` it stays a scatter, and `reason` says why."""

    dimension: int
    index: Any
    reason: str

    def __str__(self) -> str:
        return f"dimension {self.dimension} stays a scatter to {self.index}: {self.reason}"


@dataclass(frozen=True)
class IndexInversion(Rich):
    """Which points of a domain reach an element: the question in sympy's words, and its answer.

    index       the map, one expression per dimension; `domain` {symbol: (begin, extent)}; `shape`; `where` conditions
    elements    the symbols of an element, one per dimension
    parameters  all other symbols
    gathers     sums that together take every point once; there are none if no point reaches an element
    opaque      the rows left out of the equations, along which a gather adds to whatever its points reach
    """

    index: tuple[Any, ...]
    domain: Mapping[Any, Range]
    shape: tuple[Any, ...]
    where: tuple[Any, ...]
    elements: tuple[Any, ...]
    parameters: tuple[Any, ...]
    gathers: tuple[IndexGather, ...]
    opaque: tuple[OpaqueRow, ...] = ()

    @property
    def data(self) -> tuple[Any, ...]:
        """The arrays that are read by name: `IndexedBase`s."""
        found = {b for e in (*self.index, *self.where) for b in sympy.sympify(e).atoms(sympy.IndexedBase)}
        return tuple(sorted(found, key=str))

    @property
    def sizes(self) -> frozenset[Any]:
        """The parameters that are extents, or in one: these are at least 0."""
        extents = [*self.shape, *(n for _, n in self.domain.values())]
        return frozenset(s for n in extents for s in sympy.sympify(n).free_symbols)

    @property
    def latex(self) -> str:
        """The adjoint as an equation, conditions in Iverson brackets: [true] is 1, [false] is 0."""
        return latex_of(self)

    def code(self) -> str:
        """Python source of `gather(values, ...)`: loops that sum `values`, an array over the domain, into the shape.

        Parameters come after `values`, then the arrays that are read by name. It is made to be read and checked.
        """
        return gather_source(self)

    def check(self, sizes: Mapping[Any, int | Sequence[int]] | None = None, *, most: int = 100_000) -> Checked:
        """The answer against brute force, with small parameters, or those of `sizes` (one value or several).

        Draws of more than `most` points and elements are left out. AssertionError with the smallest counterexample;
        else a report of what was tried.
        """
        return checked(self, sizes or {}, most)

    def __str__(self) -> str:
        parts = "\nplus\n".join(map(str, self.gathers)) if self.gathers else "zero: no point reaches an element"
        return "\n".join([*map(str, self.opaque), parts])

    def __repr__(self) -> str:
        return str(self)

    def _repr_latex_(self) -> str:
        return f"$${self.latex}$$"


def interval(begin: Any, extent: Any) -> str:
    return f"[{begin}, {begin + extent})"
