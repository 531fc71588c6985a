"""Integer expressions of loops in one form.

| before | after |
|---|---|
| `x[1 + i, (j // 4) * 4 + j % 4]` | `x[i + 1, j]` |
| `(8 q + r) // 4`, r < 4 | `2 q` |
| `(8 q + r) % 4`, r < 4 | `r` |
| `minimum(maximum(j, 0), 9)`, j < 10 | `j` |
| `(6 q + 1) // 4`, `(6 q + 1) % 4` | `3 q // 2`, `3 q % 2 * 2 + 1` |
"""

from __future__ import annotations

import math
import operator

from schedules.conditions import extremes
from tedsl.analysis.affine import affine_of, quotient_apart, with_plain_indices
from tedsl.lang.dtypes import INT32
from tedsl.lang.expr import Apply, Axis, Const, Expr, Fn, Read
from tedsl.lang.extents import number
from tedsl.lang.functions import apply
from tedsl.lang.intervals import may_wrap
from tedsl.lang.operators import MIRRORED
from tedsl.lang.traverse import rebuild_all, topological

__all__ = ["QUOTIENTS", "exact", "is_apart", "plain", "shortened"]

QUOTIENTS = frozenset({Fn.FLOORDIV, Fn.MOD})
BOUNDED = frozenset({Fn.MINIMUM, Fn.MAXIMUM, Fn.CLIP})


def is_apart(index: Expr) -> bool:
    """Whether the places of a window end before those of the next one begin."""
    form = affine_of(index)
    if form is None or not form.is_linear or not all(isinstance(a, Axis) for a in form.atoms):
        return False
    sizes = {a: abs(form.terms[a,]) for a in form.atoms if isinstance(a, Axis)}
    length = 1 + sum(n * ((number(a.extent) or 1) - 1) for a, n in sizes.items() if a.is_reduce)
    return length <= min((n for a, n in sizes.items() if not a.is_reduce), default=0)


def plain(node: Expr) -> Expr:
    """A node over plain operands: indices and what is compared as forms, quotients without what is known of them."""
    if isinstance(node, Apply) and node.fn in MIRRORED and node.args[0].dtype is INT32:
        return _of_forms(node)
    return with_plain_indices(_unbounded(_settled(node)))


def exact(node: Expr) -> Expr:
    """The same, but for quotients and bounds of what may leave int32: kernels for large arrays check these as they are.

    Sums and products may be written in any order, wrapped or not.
    """
    made = plain(node)
    return node if made is node or _wraps(node) else made


def _unbounded(node: Expr) -> Expr:
    """A read without the bounds of its indices where none of them matters: a border is known by all its bounds."""
    if not isinstance(node, Read) or not any(
        isinstance(n, Apply) and n.fn in BOUNDED for n in topological(node.indices)
    ):
        return node
    free = rebuild_all(node.indices, _inside)
    indices = tuple(i if affine_of(f) is None else f for i, f in zip(node.indices, free, strict=True))
    return node if all(map(operator.is_, indices, node.indices)) else Read(node.tensor, indices)


def shortened(node: Expr) -> Expr:
    """The same where that is shorter; what is no longer stays as its author wrote it, for messages that show it."""
    number = _number(node)
    made = exact(node) if number is None else number
    return made if made is not node and _length(made) < _length(node) else node


def _number(node: Expr) -> Const | None:
    """An integer made of integers, as it is where a loop has become its places: 3 * 3."""
    if not isinstance(node, Apply) or node.dtype is not INT32 or not all(isinstance(a, Const) for a in node.args):
        return None
    form = affine_of(node)
    if form is None or not form.is_constant or not -(2**31) <= form.constant < 2**31:
        return None
    return Const(form.constant, INT32)


def _length(node: Expr) -> tuple[int, int]:
    """How many nodes an expression has, shared ones once, and as it is written out."""
    written: dict[Expr, int] = {}
    for part in topological(node):
        written[part] = 1 + sum(written[c] for c in part.children)
    return len(written), written[node]


def _wraps(node: Expr) -> bool:
    """Whether an integer of which a quotient or a bound is taken may leave int32."""
    inside = topological(node.indices if isinstance(node, Read) else (node,))
    taken = (n for n in inside if isinstance(n, Apply) and n.fn in QUOTIENTS | BOUNDED and n.dtype is INT32)
    return any(may_wrap(n, {}) for n in taken)


def _inside(node: Expr) -> Expr:
    """A minimum or maximum of which one is known to be the one, as that."""
    if not isinstance(node, Apply) or node.dtype is not INT32 or len(node.args) < 2:
        return node
    if node.fn is Fn.CLIP:
        x, low, high = node.args
        above, below = _order(x, low), _order(x, high)
        return x if above is not None and below is not None and above >= 0 >= below else node
    order = _order(*node.args) if node.fn in (Fn.MINIMUM, Fn.MAXIMUM) else None
    if order is None:
        return node
    return node.args[0] if (order <= 0) == (node.fn is Fn.MINIMUM) else node.args[1]


def _order(a: Expr, b: Expr) -> int | None:
    """1 where a >= b whatever the loops are, -1 where a <= b; None where that depends."""
    forms = affine_of(a), affine_of(b)
    if forms[0] is None or forms[1] is None:
        return None
    ends = extremes(forms[0] - forms[1])
    if ends is None:
        return None
    return 1 if ends[0] >= 0 else -1 if ends[1] <= 0 else None


def _of_forms(node: Apply) -> Expr:
    forms = [affine_of(a) for a in node.args]
    return node.with_children(tuple(a if f is None else f.to_expr() for a, f in zip(node.args, forms, strict=True)))


def _settled(node: Expr) -> Expr:
    """A quotient or remainder without what its divisor divides, and without itself where that is always the same."""
    if not isinstance(node, Apply) or node.fn not in QUOTIENTS:
        return node
    apart = quotient_apart(node)
    if apart is None:
        return node
    whole, rest, by = apart
    ends = extremes(rest)
    if ends is not None and ends[0] // by == ends[1] // by:
        same = ends[0] // by
        return (whole + same).to_expr() if node.fn is Fn.FLOORDIV else (rest - same * by).to_expr()
    factor = math.gcd(by, *rest.terms.values())
    held, small = rest.divided(factor)
    left: Expr = apply(node.fn, (held if factor > 1 else rest).to_expr(), by // factor)
    if node.fn is Fn.FLOORDIV:
        left = whole.to_expr() + left
    elif factor > 1:
        left = left * factor + small.constant
    return left
