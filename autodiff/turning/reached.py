"""Where the adjoint of a tensor can be other than zero: what keeps 0 * inf out of a branch that is not taken.

`te.where(x > 0, te.log(x), 0)` on whole tensors is two stages. The adjoint of the logarithm is 0 where its branch is
not taken, and 0 times an infinite slope is NaN. Within one body the sweep masks by the branch's condition; from stage
to stage the condition comes along with the adjoint. (To ask whether the adjoint is 0 would not do: at a point where it
happens to be, its own derivative need not.)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from autodiff.turning.asking import askable
from autodiff.turning.cotangent import fresh_axes
from tedsl.lang import functions as fn
from tedsl.lang.dataclass import dataclass
from tedsl.lang.expr import FALSE, TRUE, Apply, Axis, Const, Expr
from tedsl.lang.operators import Fn
from tedsl.lang.tensor import Tensor
from tedsl.lang.traverse import free_axes, reads_of, substitute, topological

__all__ = ["Reached", "at_solution", "has_poles", "is_steady", "together"]

MOST_READS = 6
"""Of one condition: a longer one would cost more than it is worth, and grow with every stage."""


@dataclass(frozen=True)
class Reached:
    """The adjoint is 0 at those elements `axes` for which `condition` does not hold."""

    axes: tuple[Axis, ...]
    condition: Expr

    def at(self, index: tuple[Expr, ...]) -> Expr:
        return substitute(self.condition, dict(zip(self.axes, index, strict=True)))


def at_solution(
    elements: tuple[Axis, ...], parts: Iterable[Expr], loops: tuple[Axis, ...], prefix: int
) -> Reached | None:
    """What conditions, written for the one point or sum that reaches an element, say of the elements.

    None where they differ along the sum's loops, or ask nothing of data: what is asked of indices alone is settled when
    a read is turned around. The first `prefix` axes are those of the head.
    """
    around, inner = set(elements[:prefix]), set(loops)
    kept: dict[Expr, None] = {}
    for part in parts:
        used = free_axes(part)
        if any(a in inner for a in used):
            return None
        if not any(a in around for a in used):
            kept[part] = None
    if not 0 < len(reads_of(kept)) <= MOST_READS:
        return None
    condition: Expr = TRUE
    for part in kept:
        condition = fn.logical_and(condition, part)
    return Reached(elements[prefix:], askable(condition))


def together(known: Sequence[Reached | None], tensor: Tensor) -> Reached | None:
    """What holds of a tensor's adjoint, given what each of its summands says."""
    axes = fresh_axes(tensor.extents)
    conditions: dict[Expr, None] = {}
    for one in known:
        if one is None:
            return None
        conditions[one.at(axes)] = None
    if not conditions or any(fn.apply(Fn.NOT, c) in conditions for c in conditions):
        return None
    condition: Expr = FALSE
    for c in conditions:
        condition = fn.logical_or(condition, c)
    return Reached(axes, condition) if len(reads_of((condition,))) <= MOST_READS else None


STEADY = frozenset({Fn.ADD, Fn.SUB, Fn.NEG, Fn.SELECT, Fn.CAST, Fn.ABS, Fn.RELU, Fn.MAXIMUM, Fn.MINIMUM, Fn.CLIP})


def is_steady(root: Expr) -> bool:
    """Whether all slopes below are finite numbers, so that an adjoint of 0 stays 0 by itself."""
    return all(_is_steady(node) for node in topological(root) if isinstance(node, Apply) and node.dtype.is_float)


def has_poles(root: Expr) -> bool:
    """Whether a slope below can be infinite at a finite argument. Products are left out: in a sum of many the price of
    a condition on data, which is asked in every term, is higher than what it saves from.
    """
    nodes = [n for n in topological(root) if isinstance(n, Apply) and n.dtype.is_float]
    return any(not _is_steady(n) and n.fn is not Fn.MUL for n in nodes)


def _is_steady(node: Apply) -> bool:
    return node.fn in STEADY or (node.fn is Fn.MUL and any(isinstance(a, Const) for a in node.args))
