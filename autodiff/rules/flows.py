"""A flow: what one read site of a stage sends back to the tensor it read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from autodiff.rules.sweep import ReadSite
from autodiff.turning.asking import conditions_of
from autodiff.turning.cotangent import Cotangent
from tedsl.lang.dataclass import dataclass
from tedsl.lang.expr import TRUE, Axis, Expr
from tedsl.lang.tensor import Tensor

__all__ = ["Cotangents", "Flow", "merged", "site_flows"]

# The adjoints of a stage's outputs, by output number; outputs without one are absent.
Cotangents = Mapping[int, Cotangent]


@dataclass(frozen=True)
class Flow:
    """d`source`[index(axes)] += value(axes), for all points of `axes` at which `condition` holds.

    `reached` is what is known besides: where it does not hold the value is 0 (`turning.reached`); None where the
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


def merged(flows: Iterable[Flow]) -> list[Flow]:
    """The flows, those to the same elements under the same condition as one."""
    found: dict[Flow, Flow] = {}
    for flow in flows:
        alike = replace(flow, value=TRUE)
        known = found.get(alike)
        found[alike] = flow if known is None else replace(flow, value=known.value + flow.value)
    return list(found.values())
