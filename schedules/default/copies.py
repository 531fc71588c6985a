"""Copies of what a product or a window reads: an expression tabulated over the combinations of loops it depends on.

`x[b, c, oy*2 + ky - 1, ox*2 + kx - 1]` with its padding depends on `b`, `c`, `oy*2 + ky` and `ox*2 + kx`: a table over
those four holds every value once, guards and all, and the inner loop reads it without a test. Combinations that take
more values together than their loops have points (`i` and `2*i`; `i`, `k` and `i + k`) are no coordinates: the table is
over the loops themselves. One axis may be cut into panels, which puts the elements that a register tile needs side by
side.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from schedules.sizes import blocks_of, rounded_up
from tedsl.analysis.affine import affine_of
from tedsl.analysis.checks import read_checks
from tedsl.lang.dataclass import dataclass
from tedsl.lang.dtypes import INT32
from tedsl.lang.expr import Apply, Axis, Const, Expr, Fn, Read
from tedsl.lang.extents import number, simplify_extent
from tedsl.lang.functions import as_expr, const, maximum, minimum, select_node
from tedsl.lang.polynomials import Affine
from tedsl.lang.tensor import Compute
from tedsl.lang.traverse import free_axes, replaced, substitute, topological

__all__ = ["Combination", "PackedTable", "copy_of", "forms_of", "guarded", "linear", "reads_inside", "stays_inside"]

Key = frozenset[tuple[tuple[Expr, ...], int]]
EMPTY: Mapping[Axis, Expr] = {}
STRIDES: Mapping[Axis, int] = {}


@dataclass(frozen=True, eq=False)
class Combination:
    """One combination of loops, and the expressions that are it plus a number or a size."""

    plane: Affine
    nodes: tuple[tuple[Expr, int, Affine], ...]  # node = sign * form + constant: node, sign, constant

    @property
    def axes(self) -> list[Axis]:
        return self.plane.axes

    @property
    def alone(self) -> Axis | None:
        """The axis that the form is."""
        ((monomial, factor), *rest) = self.plane.terms.items()
        axis = monomial[0]
        return axis if not rest and factor == 1 and isinstance(axis, Axis) else None

    def ends(self, extents: Mapping[Axis, Expr] = EMPTY) -> tuple[Expr, Expr]:
        """Least and greatest value, of axes with their own extents or those given."""
        low, high = Affine({}), Affine({})
        for (atom,), factor in self.plane.terms.items():
            assert isinstance(atom, Axis)
            first = affine_of(atom.begin) or Affine({})
            last = first + (_form(extents.get(atom, atom.extent)) - 1)
            near, far = (first, last) if factor > 0 else (last, first)
            low, high = low + near * factor, high + far * factor
        return simplify_extent(low.to_expr()), simplify_extent(high.to_expr())

    def count(self, sizes: Mapping[Axis, int]) -> int:
        """How many values it has where its axes have these sizes."""
        return 1 + sum(abs(f) * (sizes[atom] - 1) for (atom,), f in self.plane.terms.items() if isinstance(atom, Axis))


def _natural(extent: Expr, axes: Sequence[Axis]) -> Expr:
    """An extent; none, where a loop may have no iteration though the program has elements."""
    loops = topological([a.extent for a in axes if a.extent is not None])
    empty = any(isinstance(n, Apply) and n.fn is Fn.MAXIMUM and number(n.args[1]) == 0 for n in loops)
    return simplify_extent(maximum(extent, 0) if empty else extent)


def _form(extent: Expr | None) -> Affine:
    """An extent as a form, whatever it is made of."""
    assert extent is not None
    return affine_of(extent) or Affine({(extent,): 1})


def linear(node: Expr) -> tuple[Affine, Affine] | None:
    """An int32 expression of loops as a form linear in them and the rest, which is free of them; None for others."""
    if node.dtype is not INT32 or isinstance(node, (Const, Read)):
        return None
    form = affine_of(node)
    if form is None or not form.axes:
        return None
    plane, rest = form.split(lambda atom: bool(free_axes(atom)))
    if not all(len(m) == 1 and isinstance(m[0], Axis) and number(m[0].begin) is not None for m in plane.terms):
        return None
    return plane, rest


Planes = dict[Key, tuple[Affine, dict[Expr, tuple[int, Affine]]]]


def forms_of(root: Expr, sizes: Mapping[Axis, int]) -> list[Combination] | None:
    """The combinations of loops that an expression depends on, in the order of its reads; None where there are none.

    Those that share loops take at most as many values together as the loops have points.
    """
    found = _planes_of(root)
    if found is None:
        return None
    forms = [Combination(plane, tuple((n, *c) for n, c in nodes.items())) for plane, nodes in found.values()]
    return [form for group in _connected(forms) for form in _coordinates(group, sizes)]


def _connected(forms: Sequence[Combination]) -> list[list[Combination]]:
    """The forms by the loops that they share, directly or through others."""
    groups: list[list[Combination]] = []
    for form in forms:
        touched = [g for g in groups if any(a in set(form.axes) for other in g for a in other.axes)]
        joined = [*(f for g in touched for f in g), form]
        place = groups.index(touched[0]) if touched else len(groups)
        groups = [g for g in groups if not any(g is t for t in touched)]
        groups.insert(place, joined)
    return groups


def _coordinates(group: Sequence[Combination], sizes: Mapping[Axis, int]) -> list[Combination]:
    """The forms, or the loops themselves where these have fewer points, or just as many and are told apart."""
    axes = list(dict.fromkeys(a for form in group for a in form.axes))
    values, points = math.prod(form.count(sizes) for form in group), math.prod(sizes[a] for a in axes)
    if values < points or (values == points and len(group) >= len(axes)):
        return list(group)
    known = {form.alone: form for form in group if form.alone is not None}
    zero = Affine({})
    return [Combination(Affine({(a,): 1}), (*(known[a].nodes if a in known else ()), (a, 1, zero))) for a in axes]


def _planes_of(root: Expr) -> Planes | None:
    """Every combination of loops in an expression; None where a loop is used otherwise."""
    found: Planes = {}
    seen: set[Expr] = set()
    stack = [root]
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        parts = linear(node)
        if parts is None:
            if isinstance(node, Axis):
                return None
            # Conditions last: the order of the dimensions is that of the tensor read.
            stack.extend(sorted(node.children, key=lambda c: c.dtype.is_bool)[::-1])
            continue
        form, constant = parts
        first = min(form.axes, key=lambda a: (a.is_reduce, a.serial))  # rows run as those of the result do
        sign = 1 if form.terms[(first,)] > 0 else -1
        plane = form * sign
        found.setdefault(plane.key[0], (plane, {}))[1][node] = sign, constant
    return found


@dataclass(frozen=True, eq=False)
class PackedTable:
    """A table: its axes, their typical sizes, what it holds, and the index of the element for a point of the loops."""

    axes: tuple[Axis, ...]
    sizes: tuple[int, ...]
    body: Expr
    index: tuple[Expr, ...]
    lane: Axis | None  # the axis inside a panel
    contiguous: Axis | None  # the table's axis along which the source lies contiguous

    @property
    def size(self) -> int:
        return math.prod(self.sizes)


def copy_of(
    factor: Expr,
    sizes: Mapping[Axis, int],
    padded: Mapping[Axis, int],
    panel: tuple[Axis, int] | None,
    inner: Sequence[Axis],
    *,
    whole: bool = True,
    strides: Mapping[Axis, int] = STRIDES,
    last: Axis | None = None,
) -> PackedTable | None:
    """The table of `factor`: loops in `padded` run to a multiple of so many, past their ends the last one is repeated;
    so it is where tiles divide an extent, but need not begin with it (`whole` is false).

    `panel` = (axis, width) cuts the dimension of that axis into panels of so many lanes, which lie innermost; `inner`
    orders the dimensions between, the last one innermost. Without panels the dimension of the loop `last` lies there.
    `sizes` are typical of the loops. A combination with a loop in `strides` is two dimensions, its remainders by that
    and its quotients: the loop walks along the latter.
    """
    forms = forms_of(factor, sizes)
    if not forms:
        return None
    rank = {a: k for k, a in enumerate(inner)}
    if panel is not None:
        forms.sort(key=lambda f: max((rank.get(a, -1) for a in f.axes), default=-1))
    forms.sort(key=lambda f: last is not None and last in set(f.axes))
    last_read = _last_form(factor, forms)
    extents = {a: rounded_up(a.extent, step) for a, step in padded.items() if a.extent is not None}
    counts = {**sizes, **{a: -(-sizes[a] // step) * step for a, step in padded.items()}}
    mapping: dict[Expr, Expr] = {}
    made: list[tuple[Axis, int, Expr]] = []
    first: list[tuple[Axis, int, Expr]] = []
    lane = contiguous = None
    for k, form in enumerate(forms):
        step = max(strides.get(a, 1) for a in form.axes)
        (start, high), (low, end) = form.ends(), form.ends(extents)
        extent, count = _natural(as_expr(end - low + 1), form.axes), form.count(counts)
        if panel is not None and form.alone is panel[0]:
            width = panel[1]
            block, lane = Axis(f"p{k}", blocks_of(extent, width)), Axis("lane", Const(width, INT32))
            at: Expr = block * width + lane
            first.append((block, -(-count // width), panel[0] // width))
            own = lane
        else:
            own = Axis(f"d{k}", extent)
            begins = number(low) == 0
            at = own if begins else own + low
            place = form.plane - (affine_of(low) or Affine({(low,): 1}))
            if step > 1:
                rest, own = Axis(f"r{k}", Const(step, INT32)), Axis(f"d{k}", blocks_of(extent, step))
                at = own * step + rest if begins else own * step + rest + low
                left, turns = place.divided(step)[::-1]
                made.append((rest, step, left.to_expr() % step))
                made.append((own, -(-count // step), turns.to_expr() + left.to_expr() // step))
            else:
                made.append((own, count, place.to_expr()))
        is_over = any(padded.get(a, 1) > 1 for a in form.axes) and not whole
        if end is not high or is_over or (step > 1 and count % step):
            at = minimum(at, high)
        if low is not start:
            at = maximum(at, start)
        if form is last_read:
            contiguous = own
        for node, sign, constant in form.nodes:
            moved = at if sign > 0 else -at
            mapping[node] = moved if constant.is_constant and not constant.constant else moved + constant.to_expr()
    if panel is not None:
        if lane is None:
            return None
        made = [*first, *made, (lane, panel[1], panel[0] % panel[1])]
    axes, found, index = zip(*made, strict=True)
    return PackedTable(axes, found, replaced(factor, mapping), index, lane, contiguous)


def _last_form(factor: Expr, forms: Sequence[Combination]) -> Combination | None:
    """The form that is the last index of the factor's read, with step one: neighbours lie side by side."""
    node = factor
    while isinstance(node, Apply):
        node = next((c for c in node.args if not c.dtype.is_bool and not isinstance(c, Const)), node.args[0])
    if not isinstance(node, Read) or not node.indices:
        return None
    last = node.indices[-1]
    return next((f for f in forms if any(n is last and sign > 0 for n, sign, _ in f.nodes)), None)


def guarded(factor: Expr, conditions: Sequence[Expr]) -> Expr:
    """A factor that is 0 where one of the conditions fails."""
    for condition in conditions:
        factor = select_node(condition, factor, const(0, factor.dtype))
    return factor


def stays_inside(factor: Expr) -> bool:
    """Whether a factor can be tabulated: its reads must be in bounds without the conditions of the sum."""
    axes = free_axes(factor)
    fresh = tuple(Axis(a.name, a.extent, begin=a.begin) for a in axes)
    return reads_inside(
        Compute(name="table", axes=fresh, bodies=(substitute(factor, dict(zip(axes, fresh, strict=True))),))
    )


def reads_inside(op: Compute) -> bool:
    """Whether it is known that no element of a stage reads out of bounds."""
    try:
        return all(check.status != "run" for check in read_checks(op))
    except IndexError:
        return False
