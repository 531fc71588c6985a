"""The expressions of one stage over a part of its axes, what they read still counted from the origin of the whole.

Indices and conditions are brought to forms in which the place of the part is a constant (`tedsl.blocks.forms`). Where
an axis is a value (`te.cast(i, "float32")`), its place is an input: parts that differ in nothing else are one program.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from itertools import product

import numpy as np

from tedsl.analysis.points import is_data_free, values_at
from tedsl.blocks.forms import Case, Cases, both, chosen, compared, every, form_cases, narrowed
from tedsl.lang.dtypes import INT32, INT64
from tedsl.lang.expr import FALSE, TRUE, Apply, Axis, Const, Expr, Fn, Read, Reduce, Var
from tedsl.lang.guards import guards_of
from tedsl.lang.intervals import Known, Range, range_of
from tedsl.lang.operators import NEGATED
from tedsl.lang.polynomials import Affine, atom_form, interval
from tedsl.lang.traverse import free_axes, reads_of, topological

__all__ = ["Box", "Local", "Part", "known_extent"]

Box = tuple[Range, ...]  # begin and end of each dimension
Part = Mapping[Axis, tuple[Axis, int]]  # axis of the whole -> axis of the part and where that begins

MOST_READS = 8
ENUMERATE = 10**6


def known_extent(extent: Expr | None) -> int:
    """The value of an extent."""
    assert isinstance(extent, Const), "a program that is cut into blocks has extents that are numbers"
    return int(extent.value)


class Local:
    """The expressions of a stage over a part of its axes."""

    def __init__(self, roots: Iterable[Expr], part: Part, origin: Callable[[int], Expr]) -> None:
        self.part, self.origin = part, origin
        self.known: Known = {}
        self._moved = {new for old, (new, _) in part.items() if new is not old}
        self._values: dict[Expr, Expr] = {}
        self._cases: dict[Expr, Cases] = {}
        self._opaque: set[Expr] = set()  # integers whose form holds data, or an axis as a value
        self._tried: dict[Expr, Range] = {}  # the ranges of those without data
        self.forms: dict[Read, tuple[Affine | None, ...]] = {}  # the indices of each read, None for those from data
        self.ranges: dict[Read, tuple[Range, ...]] = {}
        roots = tuple(roots)
        for node in topological(roots):
            self._values[node] = self._visit(node)
            if node not in self._cases and node.dtype in (INT32, INT64):
                self._cases[node] = (Case(TRUE, atom_form(self._values[node])),)
                self._opaque.add(node)
                self._try(node)
        self.roots = tuple(self._values[r] for r in roots)

    def boxes(self, guard: Expr = TRUE) -> dict[Read, Box]:
        """The part of each tensor that each read needs; `guard` holds wherever any is used."""
        guards = guards_of(self.roots)
        reads = [read for read in reads_of(self.roots) if read in self.forms]  # no origins
        return {read: self._box(read, both(guard, guards[read])) for read in reads}

    def _box(self, read: Read, guard: Expr) -> Box:
        axes = free_axes((*read.indices, guard))
        known: Known = narrowed(guard, {a: range_of(a, self.known) for a in axes})
        known.update(self._tried)
        box = []
        for form, index, extent in zip(self.forms[read], read.indices, read.tensor.extents, strict=True):
            last = known_extent(extent) - 1
            low, high = interval(form, known) if form is not None else range_of(index, known)
            low, high = min(max(low, 0), last), max(min(high, last), 0)
            box.append((max(low, 0), max(low, high) + 1 if last >= 0 else 0))
        return tuple(box)

    def _visit(self, node: Expr) -> Expr:
        if isinstance(node, Const):
            if node.dtype in (INT32, INT64):
                self._cases[node] = (Case(TRUE, Affine({}, int(node.value))),)
            return node
        if isinstance(node, Axis):
            axis, begin = self.part.get(node, (node, 0))
            self._cases[node] = (Case(TRUE, atom_form(axis, begin)),)
            return axis if begin == 0 else axis + self.origin(begin)
        if isinstance(node, Read):
            return self._read(node)
        if isinstance(node, Reduce):
            axes = tuple(self.part[a][0] if a in self.part else a for a in node.axes)
            return node.with_children(tuple(self._values[c] for c in node.children)).with_axes(axes)  # type: ignore[attr-defined,no-any-return]
        assert isinstance(node, (Apply, Var)), f"`{node}` stands in a stage"
        return self._apply(node) if isinstance(node, Apply) else node

    def _apply(self, node: Apply) -> Expr:
        args = tuple(self._values[a] for a in node.args)
        if node.fn in (Fn.AND, Fn.OR, Fn.NOT):
            logic: Expr = Expr._apply(node.fn, *args)
            return logic
        if node.fn in NEGATED and all(a in self._cases and a not in self._opaque for a in node.args):
            return self._compare(node)
        if node.fn is Fn.SELECT:
            return self._select(node, args)
        if all(a in self._cases for a in node.args):
            found = form_cases(node, [self._cases[a] for a in node.args], self.known, self._varies)
            if found is not None:
                self._keep(node, found, node.args)
        return node if all(a is b for a, b in zip(args, node.args, strict=True)) else node.with_children(args)

    def _keep(self, node: Expr, cases: Cases, operands: Iterable[Expr]) -> None:
        self._cases[node] = cases
        if any(a in self._opaque for a in operands):
            self._opaque.add(node)

    def _try(self, node: Expr) -> None:
        """The range of an integer that has no form, such as a rounded float, by trying every place."""
        axes = free_axes(node)
        ranges = {a: self._places(a) for a in axes}
        points = math.prod(b - a for a, b in ranges.values())
        if 0 < points <= ENUMERATE and is_data_free((node,)):
            (values,) = values_at((node,), {a: np.arange(*r) for a, r in ranges.items()})
            self.known[self._values[node]] = self._tried[self._values[node]] = int(values.min()), int(values.max())

    def _places(self, axis: Axis) -> Range:
        """Begin and end of an axis of the whole, as far as it lies in the part."""
        new, begin = self.part.get(axis, (axis, 0))
        low, high = range_of(new, self.known)
        return low + begin, high + begin + 1

    def _varies(self, form: Affine) -> bool:
        """Whether a form depends on an axis of which this is a part."""
        return any(a in self._moved for a in free_axes(form.atoms))

    def _compare(self, node: Apply) -> Expr:
        result: Expr = FALSE
        for a, b in product(self._cases[node.args[0]], self._cases[node.args[1]]):
            here = both(both(a.condition, b.condition), compared(node.fn, a.form, b.form, self.known))
            result = Expr._apply(Fn.OR, result, here)
        return result

    def _select(self, node: Apply, args: tuple[Expr, ...]) -> Expr:
        condition, *branches = args
        if isinstance(condition, Const):
            taken = node.args[1 if condition.value else 2]
            if taken in self._cases:
                self._keep(node, self._cases[taken], [taken])
            return self._values[taken]
        if all(a in self._cases for a in node.args[1:]) and self._asks_a_part(condition):
            yes, no = condition, Expr._apply(Fn.NOT, condition)
            cases = [Case(both(yes, c.condition), c.form) for c in self._cases[node.args[1]]]
            cases += [Case(both(no, c.condition), c.form) for c in self._cases[node.args[2]]]
            kept = tuple(c for c in cases if c.condition is not FALSE)
            if len(kept) <= 2:
                self._keep(node, kept, node.args[1:])
        return node if all(a is b for a, b in zip(args, node.args, strict=True)) else node.with_children(args)

    def _asks_a_part(self, condition: Expr) -> bool:
        return any(a in self._moved for a in free_axes(condition)) and not reads_of((condition,))

    def _read(self, node: Read) -> Expr:
        """The read, or one for each case of its indices."""
        choices = [self._cases.get(i) for i in node.indices]
        opaque = [i in self._opaque for i in node.indices]
        if math.prod(len(c) for c in choices if c is not None) > MOST_READS:
            opaque = [o or len(c or ()) > 1 for o, c in zip(opaque, choices, strict=True)]
        given = [
            c if c is not None and not (o and len(c) > 1) else (Case(TRUE, Affine({})),)
            for c, o in zip(choices, opaque, strict=True)
        ]
        found: list[tuple[Expr, Expr]] = []
        for parts in product(*given):
            condition = every(part.condition for part in parts)
            if condition is FALSE:
                continue
            forms = tuple(None if o else p.form for p, o in zip(parts, opaque, strict=True))
            indices = tuple(
                self._values[i] if form is None else form.to_expr() for i, form in zip(node.indices, forms, strict=True)
            )
            read = Read(node.tensor, indices)
            self.forms[read] = forms
            found.append((condition, read))
        return chosen(found)
