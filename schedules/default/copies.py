"""Copies of what a product reads: an expression tabulated over the combinations of loops that it depends on.

`x[b, c, oy*2 + ky - 1, ox*2 + kx - 1]` with its padding depends on `b`, `c`, `oy*2 + ky` and `ox*2 + kx`: a table over
those four holds every value once, guards and all, and the inner loop reads it without a test. One axis may be cut into
panels, which puts the elements that a register tile needs side by side.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from schedules.default.conditions import extremes, number
from tedsl.analysis.affine import Affine, affine_of
from tedsl.lang.dtypes import INT32
from tedsl.lang.expr import Apply, Axis, Const, Expr, Read
from tedsl.lang.functions import minimum

__all__ = ["Copy", "Form", "copy_of", "forms_of", "linear", "replaced"]

Key = frozenset[tuple[tuple[Expr, ...], int]]


@dataclass(frozen=True, eq=False)
class Form:
    """One combination of loops, and the expressions that are it plus a number."""

    plane: Affine
    nodes: tuple[tuple[Expr, int, int], ...]  # node = sign * form + constant: node, sign, constant

    @property
    def axes(self) -> list[Axis]:
        return self.plane.axes

    @property
    def alone(self) -> Axis | None:
        """The axis that the form is."""
        ((monomial, factor), *rest) = self.plane.terms.items()
        axis = monomial[0]
        return axis if not rest and factor == 1 and isinstance(axis, Axis) else None


def linear(node: Expr) -> Affine | None:
    """The form of an int32 expression of loops of known range, no constant."""
    if node.dtype is not INT32 or isinstance(node, (Const, Read)):
        return None
    form = affine_of(node)
    return None if form is None or form.is_constant or extremes(form) is None else form


def forms_of(root: Expr) -> list[Form] | None:
    """Every combination of loops in an expression, in the order of its reads; None where a loop is used otherwise."""
    found: dict[Key, tuple[Affine, dict[Expr, tuple[int, int]]]] = {}
    seen: set[Expr] = set()
    stack = [root]
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        form = linear(node)
        if form is None:
            if isinstance(node, Axis):
                return None
            # Conditions last: the order of the dimensions is that of the tensor read.
            stack.extend(sorted(node.children, key=lambda c: c.dtype.is_bool)[::-1])
            continue
        first = min(form.axes, key=lambda a: a.serial)
        sign = 1 if form.terms[(first,)] > 0 else -1
        plane = Affine((form * sign).terms)
        found.setdefault(plane.key[0], (plane, {}))[1][node] = sign, form.constant
    return [Form(plane, tuple((n, *c) for n, c in nodes.items())) for plane, nodes in found.values()]


def replaced(root: Expr, mapping: Mapping[Expr, Expr]) -> Expr:
    """`root` with whole nodes replaced, nothing below them touched."""
    new: dict[Expr, Expr] = dict(mapping)
    stack = [root]
    while stack:
        node = stack[-1]
        if node in new:
            stack.pop()
            continue
        missing = [c for c in node.children if c not in new]
        if missing:
            stack.extend(missing)
            continue
        stack.pop()
        children = tuple(new[c] for c in node.children)
        same = all(a is b for a, b in zip(children, node.children, strict=True))
        new[node] = node if same else node.with_children(children)
    return new[root]


@dataclass(frozen=True, eq=False)
class Copy:
    """A table: its axes, what it holds, the index of the element for a point of the loops, and its size."""

    axes: tuple[Axis, ...]
    body: Expr
    index: tuple[Expr, ...]
    lane: Axis | None  # the axis inside a panel
    contiguous: Axis | None  # the table's axis along which the source lies contiguous
    size: int


def copy_of(
    factor: Expr, padded: Mapping[Axis, int], panel: tuple[Axis, int] | None, inner: Sequence[Axis]
) -> Copy | None:
    """The table of `factor`: loops named in `padded` run to that extent, beyond their end the last element is repeated.

    `panel` = (axis, width) cuts the dimension of that axis into panels of so many lanes, which lie innermost; `inner`
    orders the dimensions between, the last one innermost.
    """
    forms = forms_of(factor)
    if forms is None:
        return None
    rank = {a: k for k, a in enumerate(inner)}
    if panel is not None:
        forms.sort(key=lambda f: max((rank.get(a, -1) for a in f.axes), default=-1))
    last_read = _last_form(factor, forms)
    mapping: dict[Expr, Expr] = {}
    axes: list[Axis] = []
    index: list[Expr] = []
    first: list[tuple[Axis, Expr]] = []
    lane = contiguous = None
    for k, form in enumerate(forms):
        ends, wide = extremes(form.plane), _widened(form.plane, padded)
        assert ends is not None
        (low, high), extent = ends, wide[1] - wide[0] + 1
        low = min(low, wide[0])
        if panel is not None and form.alone is panel[0]:
            width = panel[1]
            block, lane = Axis(f"p{k}", Const(-(-extent // width), INT32)), Axis("lane", Const(width, INT32))
            at: Expr = block * width + lane
            first.append((block, panel[0] // width))
            own = lane
        else:
            own = Axis(f"d{k}", Const(extent, INT32))
            at = own + low if low else own
            axes.append(own)
            index.append((form.plane - low).to_expr())
        if wide[1] > high:
            at = minimum(at, high)
        if form is last_read:
            contiguous = own
        for node, sign, constant in form.nodes:
            moved = at if sign > 0 else -at
            mapping[node] = moved + constant if constant else moved
    if panel is not None and lane is None:
        return None
    if panel is not None and lane is not None:
        axes = [a for a, _ in first] + axes + [lane]
        index = [i for _, i in first] + index + [panel[0] % panel[1]]
    size = math.prod(number(a.extent) or 0 for a in axes)
    return Copy(tuple(axes), replaced(factor, mapping), tuple(index), lane, contiguous, size)


def _last_form(factor: Expr, forms: Sequence[Form]) -> Form | None:
    """The form that is the last index of the factor's read, with step one: neighbours lie side by side."""
    node = factor
    while isinstance(node, Apply):
        node = next((c for c in node.args if not c.dtype.is_bool and not isinstance(c, Const)), node.args[0])
    if not isinstance(node, Read) or not node.indices:
        return None
    last = node.indices[-1]
    return next((f for f in forms if any(n is last and sign > 0 for n, sign, _ in f.nodes)), None)


def _widened(plane: Affine, padded: Mapping[Axis, int]) -> tuple[int, int]:
    """The range of a form where the padded axes run further."""
    low = high = plane.constant
    for (atom,), factor in plane.terms.items():
        assert isinstance(atom, Axis)
        begin = int(atom.begin.value)  # type: ignore[attr-defined]
        extent = padded.get(atom, int(atom.extent.value))  # type: ignore[union-attr]
        ends = factor * begin, factor * (begin + extent - 1)
        low, high = low + min(ends), high + max(ends)
    return low, high
