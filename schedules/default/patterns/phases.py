"""Outer loops along which a stage chooses by a remainder: unrolled by its period, so that each copy has chosen.

`y[i, j] = select(i % 2 == 0, a[i // 2, j], b[i // 2, j])` is what the gradient of a strided window is in the end. As
pieces that would be one for every i; as it is written it loads from all tensors at every element.
"""

from __future__ import annotations

import math
from collections.abc import Set as AbstractSet

from schedules.pieces import written_out
from tedsl.analysis.affine import affine_of
from tedsl.lang.dtypes import INT32
from tedsl.lang.expr import Apply, Axis, Const, Expr, Fn
from tedsl.lang.extents import number
from tedsl.lang.tensor import Compute, Operation
from tedsl.lang.traverse import reads_of, topological

__all__ = ["phases_of"]

MOST_COPIES = 16  # of the body of a stage
FEW_TURNS = 4  # times that a loop goes through all its phases


def phases_of(op: Compute, inlined: AbstractSet[Operation], loops: AbstractSet[Axis]) -> dict[Axis, int]:
    """The periods of those of the loops by whose remainders alone it is chosen what is read."""
    bodies = written_out(op, inlined) if op.reduction is None else None
    found: dict[Axis, int] = {}
    chosen = [
        n for n in topological(bodies or ()) if isinstance(n, Apply) and n.fn is Fn.SELECT and reads_of(n.args[1:])
    ]
    for node in topological([n.args[0] for n in chosen]):
        own = _periods(node)
        for axis, period in own.items() if loops >= own.keys() else ():
            found[axis] = math.lcm(found.get(axis, 1), period)
    periods = {a: n for a, n in found.items() if n > 1 and (number(a.extent) or 0) >= n * FEW_TURNS}
    return periods if math.prod(periods.values()) <= MOST_COPIES else {}


def _periods(node: Expr) -> dict[Axis, int]:
    """After how many iterations of each loop a remainder is the same again."""
    if not isinstance(node, Apply) or node.fn is not Fn.MOD or node.dtype is not INT32:
        return {}
    place, by = affine_of(node.args[0]), node.args[1]
    if place is None or not isinstance(by, Const) or by.value < 1:
        return {}
    divisor = int(by.value)
    return {a: divisor // math.gcd(divisor, int(place.terms.get((a,), 0))) for a in place.axes}
