"""Where the adjoint of a tensor can be other than zero: what keeps 0 * inf out of a branch that is not taken.

`te.where(x > 0, te.log(x), 0)` on whole tensors is two stages. The adjoint of the logarithm is 0 where its branch is
not taken, and 0 times an infinite slope is NaN. Within one body the sweep masks by the branch's condition; from stage
to stage the condition comes along with the adjoint. (To ask whether the adjoint is 0 would not do: at a point where it
happens to be, its own derivative need not.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autodiff.asking import askable, conditions_of
from autodiff.cotangent import fresh_axes
from autodiff.flows import Flow
from tedsl.lang import functions as fn
from tedsl.lang.expr import FALSE, TRUE, Apply, Axis, Const, Expr
from tedsl.lang.extents import same_extent
from tedsl.lang.operators import Fn
from tedsl.lang.tensor import Tensor
from tedsl.lang.traverse import free_axes, reads_of, substitute, topological

__all__ = ["Reached", "has_poles", "is_steady", "reached_by", "together"]

MOST_READS = 6
"""Of one condition: a longer one would cost more than it is worth, and grow with every stage."""


@dataclass(frozen=True)
class Reached:
    """The adjoint is 0 at those elements `axes` for which `condition` does not hold."""

    axes: tuple[Axis, ...]
    condition: Expr

    def at(self, index: tuple[Expr, ...]) -> Expr:
        return substitute(self.condition, dict(zip(self.axes, index, strict=True)))


def reached_by(flow: Flow, prefix: tuple[Axis, ...]) -> Reached | None:
    """What a flow says of the elements it goes to; None when it may go to all, or to which is not known.

    Known where each element is read at one point, by an index that only permutes the axes, under a condition on data.
    (One on indices alone is settled when the flow is turned around.)
    """
    axes, index = flow.axes[len(prefix) :], flow.index[len(prefix) :]
    extents = flow.source.extents
    if len(axes) != len(index) or {id(a) for a in axes} != {id(i) for i in index}:
        return None
    order = tuple(a for i in index for a in axes if a is i)
    if any(a.extent is None or not same_extent(a.extent, n) for a, n in zip(order, extents, strict=True)):
        return None
    parts = [*conditions_of(flow.condition), *conditions_of(flow.reached)]
    outer = set(prefix)
    parts = [p for p in dict.fromkeys(parts) if not any(a in outer for a in free_axes(p))]
    if not 0 < len(reads_of(parts)) <= MOST_READS:
        return None
    condition: Expr = TRUE
    for part in parts:
        condition = fn.logical_and(condition, part)
    return Reached(order, askable(condition))


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
