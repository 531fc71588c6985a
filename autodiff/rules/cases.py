"""A stage that chooses by where it is, as one stage for each choice, before it is differentiated.

    y[c, i] = select(c == 0, f(a[i]), g(b[i]))         da[i] += f'(a[i]) dy[0, i]       not  a sum over both c
    y[i] = select(i % 2 == 0, a[i // 2], b[i // 2])    da[q] += dy[2 q]                 not  one over what leads to q

Every element would send something back to what each branch reads, zero but for one of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import product

from autodiff.rules.sharing import cost
from tedsl.analysis.affine import affine_of
from tedsl.lang import functions as fn
from tedsl.lang.dataclass import dataclass
from tedsl.lang.dtypes import INT32
from tedsl.lang.expr import FALSE, TRUE, Apply, Axis, Const, Expr
from tedsl.lang.extents import number
from tedsl.lang.intervals import may_wrap
from tedsl.lang.operators import Fn
from tedsl.lang.tensor import Compute
from tedsl.lang.traverse import free_axes, reads_of, rebuild_all, substitute_all, topological

__all__ = ["Branch", "cases_of"]

MOST_CASES = 8
LEAST_TURNS = 4  # times that a loop goes through all its remainders
SHARE = 0.75  # of the operations of an element that is left where it is known which one it is

Pick = tuple[Expr, Axis | None]
"""What an axis is, and the axis over which it still goes."""


@dataclass(frozen=True, eq=False)
class Branch:
    """Elements of a stage at `index`, for all points of `axes`, and what they are."""

    axes: tuple[Axis, ...]
    index: tuple[Expr, ...]
    bodies: tuple[Expr, ...]


def cases_of(op: Compute) -> list[Branch]:
    """The cases of a pointwise stage; a single one where choices are not by place, or leave most of an element."""
    whole = [Branch(op.axes, op.axes, op.bodies)]
    periods = _periods(op)
    if not periods or math.prod(periods.values()) > MOST_CASES:
        return whole
    picks = [_picks(a, periods.get(a)) for a in op.axes]
    found = [_case(op, chosen) for chosen in product(*picks)]
    left = sum(_work(c.bodies) for c in found) / len(found)
    return found if left <= SHARE * _work(op.bodies) else whole


def _work(bodies: Sequence[Expr]) -> float:
    return cost(topological(bodies)) + len(reads_of(bodies))


def _periods(op: Compute) -> dict[Axis, int]:
    """The axes by which it is chosen between reads, with the number of their remainders; all values of short ones."""
    found: dict[Axis, int] = {}
    nodes = topological(op.bodies)
    chosen = [n for n in nodes if isinstance(n, Apply) and n.fn is Fn.SELECT and reads_of(n.args[1:])]
    for node in topological([n.args[0] for n in chosen]):
        if not isinstance(node, Apply) or (node.dtype is not INT32 and node.fn not in _COMPARED):
            continue
        axes = [a for a in free_axes(node) if a in set(op.axes)]
        if len(axes) != 1 or reads_of((node,)) or may_wrap(node, {}):
            continue
        (axis,) = axes
        extent = number(axis.extent)
        if extent is None or number(axis.begin) != 0:
            continue
        if node.fn in _COMPARED and 2 <= extent <= MOST_CASES:
            found[axis] = extent
        elif node.fn is Fn.MOD and found.get(axis) != extent:
            own = _period(node, axis)
            if own > 1 and extent >= own * LEAST_TURNS:
                found[axis] = math.lcm(found.get(axis, 1), own)
    return found


_COMPARED = frozenset({Fn.EQ, Fn.NE, Fn.LT, Fn.LE, Fn.GT, Fn.GE})


def _period(node: Apply, axis: Axis) -> int:
    """After how many steps along an axis a remainder is the same again; 1 where that is not known."""
    form, by = affine_of(node.args[0]), node.args[1]
    if form is None or not form.is_linear or not isinstance(by, Const) or by.value < 2:
        return 1
    return int(by.value) // math.gcd(int(by.value), int(form.terms.get((axis,), 0)))


def _picks(axis: Axis, period: int | None) -> list[Pick]:
    """The elements along an axis, by their remainders."""
    extent = number(axis.extent)
    if period is None or extent is None:
        return [(axis, axis)]
    if period == extent:
        return [(Const(k, INT32), None) for k in range(period)]
    wholes = {n: Axis(f"{axis.name}_q", Const(n, INT32)) for n in {-(-(extent - r) // period) for r in range(period)}}
    ways = [wholes[-(-(extent - r) // period)] for r in range(period)]
    return [(q * period + r if r else q * period, q) for r, q in enumerate(ways)]


def _case(op: Compute, picks: Iterable[Pick]) -> Branch:
    index, loops = zip(*picks, strict=True)
    moved: dict[Expr, Expr] = {a: i for a, i in zip(op.axes, index, strict=True) if a is not i}
    bodies = rebuild_all(substitute_all(op.bodies, moved), _settled)
    return Branch(tuple(q for q in loops if q is not None), index, bodies)


def _settled(node: Expr) -> Expr:
    """A node over settled operands, decided where these say."""
    if not isinstance(node, Apply):
        return node
    if node.fn is Fn.SELECT and isinstance(node.args[0], Const):
        return node.args[1] if node.args[0].value else node.args[2]
    if node.fn in (Fn.AND, Fn.OR) and any(a is TRUE or a is FALSE for a in node.args):
        made: Expr = (fn.logical_and if node.fn is Fn.AND else fn.logical_or)(*node.args)
        return made
    if node.dtype is INT32 and node.fn in (Fn.FLOORDIV, Fn.MOD) and isinstance(node.args[1], Const):
        return _divided(node, int(node.args[1].value))
    is_integer = all(isinstance(a, Const) and not a.dtype.is_float for a in node.args)
    return fn.apply(node.fn, *node.args) if is_integer and not node.dtype.is_float else node


def _divided(node: Apply, by: int) -> Expr:
    """A quotient or remainder of what is a multiple but for a number."""
    form = None if may_wrap(node.args[0], {}) else affine_of(node.args[0])
    if form is None or by < 1:
        return node
    whole, rest = form.divided(by)
    if not rest.is_constant:
        return node
    return (whole + rest.constant // by).to_expr() if node.fn is Fn.FLOORDIV else Const(rest.constant % by, INT32)
