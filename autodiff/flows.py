"""A flow: what one read site of a stage sends back to the tensor it read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from autodiff.asking import askable, conditions_of
from autodiff.cotangent import Cotangent
from autodiff.sweep import ReadSite
from tedsl.lang import functions as fn
from tedsl.lang.compute import compute_tensors
from tedsl.lang.expr import FALSE, TRUE, Apply, Axis, Const, Expr, Read
from tedsl.lang.operators import Fn
from tedsl.lang.tensor import Tensor
from tedsl.lang.traverse import guards_of, substitute, substitute_all, topological

__all__ = ["Cotangents", "Flow", "share_values", "site_flows"]

# The adjoints of a stage's outputs, by output number; outputs without one are absent.
Cotangents = Mapping[int, Cotangent]


@dataclass(frozen=True)
class Flow:
    """d`source`[index(axes)] += value(axes), for all points of `axes` at which `condition` holds.

    `reached` is what is known besides: where it does not hold the value is 0 (`autodiff.reached`); None where the
    condition is not that of a branch, and later stages need not mind it. `within` is the stage that has taken the
    flow in already: the reverse recurrence, where a scan reads itself.
    """

    source: Tensor
    axes: tuple[Axis, ...]
    index: tuple[Expr, ...]
    value: Expr
    condition: Expr
    reached: Expr | None = TRUE
    within: Tensor | None = None

    @property
    def conditions(self) -> tuple[Expr, ...]:
        return conditions_of(self.condition)


def site_flows(
    sites: Iterable[ReadSite], prefix: tuple[Axis, ...], axes: tuple[Axis, ...], reached: Expr | None = TRUE
) -> list[Flow]:
    """The flows of read sites found over `axes`."""
    return [
        Flow(s.read.tensor, (*prefix, *axes, *s.axes), (*prefix, *s.read.indices), s.adjoint, s.condition, reached)
        for s in sites
    ]


def share_values(flows: list[Flow], name: str) -> list[Flow]:
    """The flows of one pointwise body, what their values have in common computed once.

    rewrites   n flows, each computing its own partial derivative   ->   the parts that several need as a loop nest of
    its own
    """
    if len(flows) < 2 or any(f.axes != flows[0].axes for f in flows):
        return flows
    common = _common_parts(flows)
    if not common:
        return flows
    axes = flows[0].axes
    fresh = tuple(Axis(a.name, a.extent) for a in axes)
    values = tuple(_where_used(part, flows) for part in common)
    moved = substitute_all(values, {a: b + a.begin for a, b in zip(axes, fresh, strict=True)})
    position = tuple(a - a.begin for a in axes)
    stored = {
        part: Read(tensor, position) for part, tensor in zip(common, compute_tensors(fresh, moved, name), strict=True)
    }
    return [replace(f, value=substitute(f.value, stored)) for f in flows]


def _where_used(part: Expr, flows: list[Flow]) -> Expr:
    """A part of several values where one of them uses it, and 0 elsewhere: only there its reads need be in bounds."""
    used: Expr = FALSE
    for f in flows:
        reach = guards_of(f.value)
        if part in reach:
            used = fn.logical_or(used, fn.logical_and(f.condition, reach[part]))
    return fn.select_node(askable(used), part, Const(0.0, part.dtype))


def _common_parts(flows: list[Flow]) -> list[Expr]:
    """The largest expressions that several values hold and that are worth a tensor of their own."""
    users: dict[Expr, int] = {}
    for f in flows:
        for node in topological(f.value):
            users[node] = users.get(node, 0) + 1
    inside: set[Expr] = set()
    for f in flows:
        for node in topological(f.value):
            if users[node] > 1:
                inside.update(c for c in node.children if users[c] == users[node])
    parts = [n for n, count in users.items() if count > 1 and n not in inside and n.dtype.is_float]
    return [n for n in parts if _cost(n) * (users[n] - 1) >= WORTH_STORING]


# Operations saved per element that pay for a store and its reads.
WORTH_STORING = 4


def _cost(root: Expr) -> int:
    """Operations on floats, those that no hardware instruction does counted several times."""
    nodes = [n for n in topological(root) if isinstance(n, Apply) and n.dtype.is_float]
    return sum(_COSTS.get(n.fn, 8) for n in nodes)


_COSTS = dict.fromkeys(
    (
        Fn.ADD,
        Fn.SUB,
        Fn.MUL,
        Fn.NEG,
        Fn.ABS,
        Fn.SELECT,
        Fn.MINIMUM,
        Fn.MAXIMUM,
        Fn.RELU,
        Fn.CAST,
        Fn.SIGN,
        Fn.FLOOR,
        Fn.CLIP,
    ),
    1,
)
