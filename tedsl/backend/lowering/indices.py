"""Index expressions as plain int32 arithmetic of Halide, and whether Halide itself can see that one stays in bounds.

Bounds inference, vectorization and loop partitioning understand plain `+ - * / % min max` of loop variables and nothing
else, so indices made of axes only are emitted that way. A value made of the same operations must wrap as NumPy's does:
it is emitted that way, too, where it provably never leaves int32.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import halide as hl

from tedsl.analysis.affine import affine_of, quotient_apart
from tedsl.backend.arguments.layouts import row_length, strides_of
from tedsl.backend.scalars.types import Expr as Halide
from tedsl.lang.dtypes import INT32
from tedsl.lang.expr import Apply, Axis, Const, Expr, Fn, Read, Var
from tedsl.lang.extents import simplify_extent
from tedsl.lang.intervals import minus, negated, plus
from tedsl.lang.polynomials import Affine, atom_form
from tedsl.lang.tensor import Tensor
from tedsl.lang.traverse import topological

__all__ = ["PLAIN", "cancels", "counts_down", "folds", "is_plain", "plain", "row_of", "stays_inside", "unread"]

QUOTIENTS = frozenset({Fn.FLOORDIV, Fn.MOD})

# Halide's integer / and % round down, and give 0 for a divisor of 0, as the language does.
PLAIN: dict[Fn, Callable[..., Halide]] = {
    Fn.ADD: lambda a, b: a + b,
    Fn.SUB: lambda a, b: a - b,
    Fn.MUL: lambda a, b: a * b,
    Fn.NEG: lambda a: hl.i32(0) - a,
    Fn.FLOORDIV: lambda a, b: a / b,
    Fn.MOD: lambda a, b: a % b,
    Fn.MINIMUM: hl.min,
    Fn.MAXIMUM: hl.max,
    Fn.CLIP: lambda a, low, high: hl.min(hl.max(a, low), high),
    Fn.ABS: lambda a: hl.cast(hl.Int(32), hl.abs(a)),
    Fn.EQ: lambda a, b: a == b,
    Fn.NE: lambda a, b: a != b,
    Fn.LT: lambda a, b: a < b,
    Fn.LE: lambda a, b: a <= b,
    Fn.GT: lambda a, b: a > b,
    Fn.GE: lambda a, b: a >= b,
    Fn.AND: lambda a, b: a & b,
    Fn.OR: lambda a, b: a | b,
    Fn.NOT: hl.logical_not,
    Fn.SELECT: hl.select,
}


def is_plain(expr: Expr) -> bool:
    """Whether an int32 or bool expression is made of axes, extents and literals by the operations of `PLAIN` alone."""
    return all(_is_plain_node(node) for node in topological(expr))


def unread(read: Read, idle: Mapping[Tensor, Collection[int]]) -> set[int]:
    """The dimensions along which it reads the same anywhere, at places of which Halide is not told: it reads 0."""
    return {d for d in idle.get(read.tensor, ()) if not is_plain(read.indices[d])}


def row_of(read: Read) -> tuple[Expr, Const] | None:
    """The place of what is read in the row of all elements, and their number, where quotients cancel there.

    Of vectors along `x[f // 3, f % 3]` Halide would gather every element.
    """
    nodes = topological(read.indices)
    if not any(isinstance(n, Apply) and n.fn in QUOTIENTS for n in nodes) or not all(map(_is_plain_node, nodes)):
        return None
    place: Expr = Const(0, INT32)
    for index, step in zip(read.indices, strides_of(read.tensor), strict=True):
        place = place + index * step
    form = affine_of(place)
    made = None if form is None else form.to_expr()
    if made is None or any(isinstance(n, Apply) and n.fn in QUOTIENTS for n in topological(made)):
        return None
    return made, Const(row_length(read.tensor), INT32)


def _is_plain_node(node: Expr) -> bool:
    if isinstance(node, Apply):
        return node.fn in PLAIN and (node.dtype is INT32 or node.dtype.is_bool)
    if isinstance(node, Const):
        return node.dtype is INT32 or node.dtype.is_bool
    return isinstance(node, (Axis, Var))


Hide = Callable[[Halide, Expr], Halide]
ENDS = frozenset({Fn.MINIMUM, Fn.MAXIMUM, Fn.CLIP})


def plain(
    expr: Expr, symbols: Mapping[Expr, Halide], hide: Hide | None = None, *, marks: bool = False
) -> Halide:  # fmt: skip
    """A plain expression over Halide's symbols for the axes and extents.

    What is divided, an expression and what it means, goes through `hide` if Halide must not see it: see `cancels`.
    With `marks` Halide is told that a place is rarely held at an end, so that vectors are loaded as they lie in loops
    of their own. Of ramps in the index of an array it knows, but not of what several indices have in common.
    """
    built: dict[Expr, Halide] = {}
    for node in topological(expr):
        if isinstance(node, Const):
            built[node] = hl.i32(int(node.value)) if node.dtype is INT32 else hl.cast(hl.Bool(), hl.u8(int(node.value)))
        elif isinstance(node, Apply):
            told = _said_otherwise(node) if hide is None else None
            operands = [built[a] for a in node.args]
            if hide is not None and node.fn is Fn.FLOORDIV:
                operands[0] = hide(operands[0], node.args[0])
            if marks and node.fn in ENDS:
                operands = [_likely(x, arg) for x, arg in zip(operands, node.args, strict=True)]
            built[node] = PLAIN[node.fn](*operands) if told is None else plain(told, symbols)
        else:
            built[node] = symbols[node]
    return built[expr]


def _likely(value: Halide, meaning: Expr) -> Halide:
    """A place that goes straight along loops, before it is held at any end."""
    nodes = topological(meaning)
    moves = any(isinstance(n, Axis) for n in nodes)
    is_straight = not any(isinstance(n, Apply) and n.fn in ENDS | {Fn.FLOORDIV, Fn.MOD} for n in nodes)
    return hl.likely_if_innermost(value) if moves and is_straight else value


def cancels(root: Expr) -> bool:
    """Whether a quotient meets, in a difference or a comparison, another term of the same axis.

    Halide 21 solves such sums for their loops, to see what cancels, and takes (8 * i - k) / 2 for 4 * i - k / 2 then:
    one more where k is odd. What it cannot see into it leaves alone.
    """
    nodes = topological(root)
    if not any(isinstance(n, Apply) and n.fn is Fn.FLOORDIV for n in nodes):
        return False
    subtracts = any(_subtracts(n) or (isinstance(n, Const) and n.value < 0) for n in nodes)
    axes: dict[Expr, frozenset[Expr]] = {}
    divides: dict[Expr, bool] = {}
    for node in nodes:
        operands = node.args if isinstance(node, Apply) else ()
        axes[node] = frozenset({node}) if isinstance(node, Axis) else frozenset().union(*(axes[a] for a in operands))
        divides[node] = any(divides[a] for a in operands)
        if not isinstance(node, Apply):
            continue
        if divides[node] and (node.fn in _ORDERS or (subtracts and node.fn in (Fn.ADD, Fn.SUB))):
            a, b = operands
            if axes[a] & axes[b]:
                return True
        divides[node] = divides[node] or node.fn is Fn.FLOORDIV
    return False


_ORDERS = frozenset({Fn.EQ, Fn.NE, Fn.LT, Fn.LE, Fn.GT, Fn.GE})


def _said_otherwise(node: Apply) -> Expr | None:
    """A quotient without what its divisor divides, where Halide might divide a difference term by term.

    To solve (2 * i - k) / 2 < c for i, Halide 21 takes the left side for i - k / 2, which is one more where k is odd:
    the loop over i was cut too early, or a condition dropped. Halide 22 looks at both terms.
    """
    if node.fn is not Fn.FLOORDIV:
        return None
    apart = quotient_apart(node, lambda part: part.dtype is INT32)
    if apart is None or all(factor > 0 for factor in apart[1].terms.values()):
        return None
    if not apart[0].terms and all(isinstance(atom, (Axis, Var)) for atom in apart[1].atoms):
        return None  # nothing of it may be a multiple
    whole, rest, by = apart
    positive = Affine({m: c % by for m, c in rest.terms.items()}, rest.constant)
    whole = whole + (rest - positive).divided(by)[0]
    return (whole + atom_form(Expr._apply(Fn.FLOORDIV, positive.to_expr(), by))).to_expr()


# Lower and upper bound as expressions of the extents, or None where interval arithmetic says nothing.
Bounds = tuple[Expr, Expr]


def stays_inside(index: Expr, extent: Expr, *, hides: bool = False) -> bool:
    """Whether interval arithmetic, which is what Halide does, shows 0 <= index < extent of what it is told.

    `hides`: `plain` hides from it what is divided, and tells its range.
    """
    bounds = _bounds(index, hides=hides)
    if bounds is None:
        return False
    return _is_natural(bounds[0]) and _is_natural(extent - 1 - bounds[1])


def folds(index: Expr) -> bool:
    """Whether an index takes steps of more than one and is folded back into a range.

    Halide rewrites such an index before it bounds it, and may then miss the range: 2 - abs(2 - (2 * i + 2) % 4) is
    never above 2, and so equal to (2 * i + 2) % 4, which for all it knows reaches 3.
    """
    remainders = [n for n in topological(index) if isinstance(n, Apply) and n.fn is Fn.MOD]
    return any(_takes_steps(n.args[0]) for n in remainders)


def _takes_steps(expr: Expr) -> bool:
    form = affine_of(expr)
    if form is None:
        return True
    factors = [form.coefficient(axis) for axis in form.axes]
    return any(f is None or not f.is_constant or abs(f.constant) != 1 for f in factors)


def _is_natural(expr: Expr) -> bool:
    """Whether a polynomial in the extents is never below zero, as no term of it, or of what it is at least, is."""
    form = simplify_extent(expr)
    return _adds_up(form) or _adds_up(_without_quotients(form))


def _adds_up(form: Expr) -> bool:
    """Whether an expression is made of sizes and natural numbers by sums and products alone."""
    stack = [form]
    while stack:
        node = stack.pop()
        if isinstance(node, Const):
            if node.value < 0:
                return False
        elif isinstance(node, Apply):
            if node.fn not in (Fn.ADD, Fn.MUL):
                return False
            stack.extend(node.args)
        elif not isinstance(node, Var):
            return False
    return True


def _without_quotients(form: Expr) -> Expr:
    """At most `form`: c*(x // c), which is from x - c + 1 to x, at its least. So an extent rounded up is no less."""
    terms = affine_of(form)
    if terms is None:
        return form
    total = Affine({}, terms.constant)
    for monomial, factor in terms.terms.items():
        (atom,) = monomial if len(monomial) == 1 else (None,)
        numerator, by = _quotient_of(atom)
        if numerator is None or factor % by:
            total = total.plus(Affine({monomial: 1}), factor)
        else:
            total = total.plus(numerator - (by - 1) * (factor > 0), factor // by)
    return simplify_extent(total.to_expr())


def _quotient_of(atom: Expr | None) -> tuple[Affine | None, int]:
    """What is divided, and by which positive number."""
    if isinstance(atom, Apply) and atom.fn is Fn.FLOORDIV:
        by = atom.args[1]
        if isinstance(by, Const) and by.value > 0:
            return affine_of(atom.args[0]), int(by.value)
    return None, 1


def _bounds(root: Expr, *, hides: bool) -> Bounds | None:
    known: dict[Expr, Bounds | None] = {}
    for node in topological(root):
        told = _said_otherwise(node) if isinstance(node, Apply) and not hides else None
        known[node] = _bounds_of_node(node, known) if told is None else _bounds(told, hides=hides)
    return known[root]


def _bounds_of_node(node: Expr, known: Mapping[Expr, Bounds | None]) -> Bounds | None:
    if isinstance(node, (Const, Var)):
        return node, node
    if isinstance(node, Axis):
        assert node.extent is not None
        return node.begin, node.begin + node.extent - 1
    if not isinstance(node, Apply) or node.fn not in _BOUNDS:
        return None
    operands = [known[a] for a in node.args]
    return None if any(o is None for o in operands) else _BOUNDS[node.fn](*operands)


def _scaled(a: Bounds, b: Bounds) -> Bounds | None:
    a, b = (a, b) if b[0] is b[1] else (b, a)
    factor = b[0]
    if a[0] is a[1] and factor is b[1]:
        return a[0] * factor, a[0] * factor
    if factor is not b[1] or not isinstance(factor, Const):
        return None
    low, high = a[0] * factor, a[1] * factor
    return (low, high) if factor.value >= 0 else (high, low)


def _divided(a: Bounds, b: Bounds) -> Bounds | None:
    by = b[0]
    return (a[0] // by, a[1] // by) if by is b[1] and isinstance(by, Const) and by.value > 0 else None


def _remainder(a: Bounds, b: Bounds) -> Bounds | None:
    by: Any = b[0]
    return (Const(0, INT32), by - 1) if by is b[1] and isinstance(by, Const) and by.value > 0 else None


_BOUNDS: dict[Fn, Callable[..., Bounds | None]] = {
    Fn.ADD: plus, Fn.SUB: minus, Fn.NEG: negated, Fn.MUL: _scaled, Fn.FLOORDIV: _divided, Fn.MOD: _remainder,
}  # fmt: skip


def counts_down(index: Expr) -> bool:
    """Whether an index may become a constant less an axis (and less others), once Halide has simplified it."""
    form = affine_of(index)
    if form is None or not form.is_linear or not all(isinstance(a, (Axis, Var)) for term in form.terms for a in term):
        return any(_subtracts(node) for node in topological(index))
    factors = [factor for term, factor in form.terms.items() if term]
    return -1 in factors and max(factors) < 0


def _subtracts(node: Expr) -> bool:
    if not isinstance(node, Apply):
        return False
    if node.fn is Fn.MUL:
        return any(isinstance(a, Const) and a.value < 0 for a in node.args)
    return node.fn is Fn.NEG or (node.fn is Fn.SUB and not isinstance(node.args[1], Const))
