"""An answer of index inversion in sympy's words: forms become expressions of the element, loops get symbols.

The engine's gathers may be over parts of the target, P[q] read back by the elements of a residue class or a sub-box;
here everything is said of the element s itself, and the part is where the gather lives.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import sympy

from autodiff.integers.conditions import Condition, substituted
from autodiff.integers.linear import Linear, Symbol
from autodiff.inversion.domains import ON_DATA, Gather, TargetIndex
from autodiff.inversion.formulas import replaced
from autodiff.symbolic.answer import IndexGather, IndexInversion, OpaqueRow, Place
from autodiff.symbolic.tidy import tidy
from autodiff.symbolic.writing import Writer
from autodiff.turning.answers import Answer
from tedsl.lang.dataclass import dataclass

__all__ = ["AskedIndex", "described"]

FEW = 64  # elements that are tried one by one


@dataclass(frozen=True)
class AskedIndex:
    """The question in sympy's words; the domain in the order of the axes that were read."""

    index: tuple[Any, ...]
    domain: Mapping[Any, tuple[Any, Any]]
    shape: tuple[Any, ...]
    where: tuple[Any, ...]

    @property
    def symbols(self) -> set[Any]:
        extents = [e for pair in self.domain.values() for e in pair]
        everything = map(sympy.sympify, (*self.index, *self.shape, *self.where, *extents))
        return {s for e in everything for s in e.free_symbols if isinstance(s, sympy.Symbol)} | set(self.domain)

    @property
    def labels(self) -> set[Any]:
        return {b.label for e in (*self.index, *self.where) for b in sympy.sympify(e).atoms(sympy.IndexedBase)}


def described(asked: AskedIndex, answer: Answer, writer: Writer, negative: Mapping[Any, Any]) -> IndexInversion:
    """`negative` says what stands for the negative part of a parameter."""
    describer = _Describer(asked, answer, writer, negative)
    parameters = sorted(asked.symbols - asked.labels - set(asked.domain), key=str)
    return IndexInversion(
        asked.index,
        asked.domain,
        asked.shape,
        asked.where,
        describer.elements,
        tuple(parameters),
        tuple(g for g in map(describer.gather, answer.found.gathers) if sympy.false not in g.guards),
        tuple(_opaque(asked, answer)),
    )


def _opaque(asked: AskedIndex, answer: Answer) -> Iterable[OpaqueRow]:
    for j in answer.found.opaque:
        reads = sympy.sympify(asked.index[j]).atoms(sympy.Indexed)
        linear = "the index is not linear in the symbols of the domain"
        reason = (answer.found.reason or "").replace(ON_DATA, ON_DATA if reads else linear)
        yield OpaqueRow(j, asked.index[j], reason)


class _Describer:
    """The symbols of one answer: elements s, positions in a part q, loops t, whatever the user called hers."""

    def __init__(self, asked: AskedIndex, answer: Answer, writer: Writer, negative: Mapping[Any, Any]) -> None:
        self.asked, self.answer, self.negative = asked, answer, negative
        self.taken = {s.name for s in asked.symbols}
        self.elements = tuple(self._symbol("s", j) for j in range(len(asked.shape)))
        self.writer = writer
        writer.names.update(zip(answer.target, self.elements, strict=True))
        self.plain = len(answer.positions) == len(answer.target) and all(
            p is s for p, s in zip(answer.positions, answer.target, strict=True)
        )
        self.names: dict[Symbol, Any] = {TargetIndex(d): writer.expression(p) for d, p in enumerate(answer.positions)}

    def _symbol(self, letter: str, position: int) -> Any:
        """A symbol of a name that is not taken."""
        while any(name.startswith(f"{letter}_") for name in self.taken):
            letter += letter[0]
        return sympy.Symbol(f"{letter}_{position}", integer=True)

    def gather(self, g: Gather) -> IndexGather:
        read: dict[Symbol, Linear] = {a: e for (a, _), e in zip(g.axes, g.index, strict=True)}
        names: dict[Symbol, Any] = {t: self._symbol("t", t.position) for t, _ in g.loops}
        values = [self._form(e.substituted(read), names) for e in g.solution]
        solution = dict(zip(self.asked.domain, values, strict=True))
        guards = self._conditions([substituted(c, read) for c in g.guards], names, solution)
        loops = {names[t]: (sympy.Integer(0), self._form(n, names)) for t, n in g.loops}
        widths = [n for _, n in loops.values()]
        made = IndexGather(loops, solution, guards, self._place(g, [*values, *guards, *widths]))
        return _at_single_elements(replace(made, guards=(*guards, *self._filled(made))))

    def _filled(self, g: IndexGather) -> list[Any]:
        """That there are points at all, which is taken for granted, where an empty domain would not show otherwise."""
        found = []
        for _, n in self.asked.domain.values():
            extent = sympy.sympify(n)
            sizes = {s: sympy.Dummy(integer=True, nonnegative=True) for s in extent.free_symbols}
            if sizes and not extent.xreplace(sizes).is_positive:
                found += [] if all(_is_empty(g, none) for none in _without_points(extent)) else [extent >= 1]
        return found

    def _place(self, g: Gather, written: Iterable[Any]) -> Place:
        condition = sympy.And(*self._conditions(g.member, {}, {}), *self._divisors(written))
        if self.plain and not g.direct:
            axes: dict[Symbol, Any] = {a: self._symbol("q", a.position) for a, _ in g.axes}
            box = {axes[a]: (sympy.Integer(0), self._form(n, {})) for a, n in g.axes}
            return Place(box, {self.elements[s.position]: self._form(e, axes) for s, e in g.place}, condition)
        inverted = [j for j in range(len(self.elements)) if j not in self.answer.found.opaque]
        whole = {self.elements[j]: (sympy.Integer(0), self.asked.shape[j]) for j in inverted}
        return Place(whole, {s: s for s in whole}, condition)

    def _divisors(self, written: Iterable[Any]) -> list[Any]:
        """Sizes that are divided by are not 0: where one is, the map has no value, or no points."""
        everything = [*written, *self.names.values()]
        found = [sympy.fraction(sympy.together(f.args[0]))[1] for e in everything for f in e.atoms(sympy.floor)]
        found += [f.args[1] for e in everything for f in e.atoms(sympy.Mod)]
        parameters = self.asked.symbols - set(self.asked.domain)
        asked = (d for d in dict.fromkeys(found) if d.free_symbols and d.free_symbols <= parameters)
        return [sympy.Ne(d, 0) for d in asked if not any(_is_factor(d, n) for n in self.asked.shape)]

    def _form(self, e: Linear, names: Mapping[Symbol, Any]) -> Any:
        return self._whole(self.writer.form(e, {**self.names, **names}))

    def _conditions(
        self, conditions: Iterable[Condition], names: Mapping[Symbol, Any], solution: Mapping[Any, Any]
    ) -> tuple[Any, ...]:
        found = (self.writer.condition(c, {**self.names, **names}, solution) for c in conditions)
        return tuple(c for c in dict.fromkeys(map(self._whole, found)) if c != sympy.true)

    def _whole(self, e: Any) -> Any:
        """An expression without the stand-ins for negative parts, as a person would write it."""
        if self.negative and not e.free_symbols.isdisjoint(self.negative):
            e = sympy.expand(e).subs(self.negative)
        return tidy(e)


def _without_points(extent: Any) -> list[dict[Any, int]]:
    """Which sizes make an extent 0: one of them, or all together."""
    single = [{s: 0} for s in extent.free_symbols if extent.subs(s, 0) == 0]
    return single or [dict.fromkeys(extent.free_symbols, 0)]


def _is_empty(g: IndexGather, sizes: Mapping[Any, int]) -> bool:
    """Whether a gather has no elements or no terms where these sizes are what they are."""
    extents = [n for ranges in (g.place.axes, g.loops) for _, n in ranges.values()]
    if any((sympy.sympify(n).subs(sizes) <= 0) == sympy.true for n in extents):
        return True
    if g.place.condition.subs(sizes) == sympy.false:  # as where what is divided by is 0
        return True
    guard = sympy.And(*(c.subs(sizes) for c in g.guards))
    return bool(guard == sympy.false) or _fails_everywhere(guard, g.place.axes, sizes)


def _fails_everywhere(guard: Any, axes: Mapping[Any, tuple[Any, Any]], sizes: Mapping[Any, int]) -> bool:
    """Whether a guard of the element alone holds at none of the few there are."""
    ranges = [(sympy.sympify(b).subs(sizes), sympy.sympify(n).subs(sizes)) for b, n in axes.values()]
    if not guard.free_symbols <= set(axes) or not all(e.is_Integer for pair in ranges for e in pair):
        return False
    if math.prod(int(n) for _, n in ranges) > FEW:
        return False
    points = itertools.product(*(range(int(b), int(b + n)) for b, n in ranges))
    return all(guard.subs(dict(zip(axes, point, strict=True))) == sympy.false for point in points)


def _is_factor(d: Any, extent: Any) -> bool:
    """Whether the extent is a multiple of d: where d is 0 there are no elements."""
    return bool(sympy.fraction(sympy.cancel(extent / d))[1] == 1)


def _at_single_elements(g: IndexGather) -> IndexGather:
    """The gather with what is one number said as one: along dimensions of which a part has a single element."""
    place = g.place
    origin = {q: sympy.Integer(0) for q, (_, n) in place.axes.items() if n == 1 and q not in place.element}
    numbers = {s: v for s, e in place.element.items() if (v := replaced(e, origin)).is_number}
    if not numbers:
        return g
    told = [c for c in sympy.And.make_args(place.condition) if not c.free_symbols <= set(numbers)]
    element = {s: numbers.get(s, e) for s, e in place.element.items()}
    axes = {q: r for q, r in place.axes.items() if any(e.has(q) for e in element.values())}
    condition = sympy.And(*(sympy.Eq(s, v) for s, v in numbers.items()), *told)
    solution = {z: tidy(replaced(e, numbers)) for z, e in g.solution.items()}
    guards = tuple(dict.fromkeys(c for c in (tidy(replaced(c, numbers)) for c in g.guards) if c != sympy.true))
    return IndexGather(g.loops, solution, guards, Place(axes, element, condition))
