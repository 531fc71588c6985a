"""What a read sends back, before it is turned around."""

from __future__ import annotations

from tedsl.lang.dataclass import dataclass
from tedsl.lang.expr import Axis, Expr

__all__ = ["Sent", "Shape", "extent_of"]

Shape = tuple[Expr, ...]


@dataclass(frozen=True)
class Sent:
    """dS[index(axes)] += value(axes) where conditions(axes)."""

    axes: tuple[Axis, ...]
    index: tuple[Expr, ...]
    value: Expr
    conditions: tuple[Expr, ...]


def extent_of(axis: Axis) -> Expr:
    assert axis.extent is not None, f"axis {axis.name!r} has no extent"
    return axis.extent
