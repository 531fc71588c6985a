"""Where a stage is computed and kept, and the loops around it."""

from __future__ import annotations

from collections.abc import Mapping

from schedules.loops import Level
from schedules.plan import Plan
from tedsl.lang.dataclass import dataclass

__all__ = ["INLINE", "ROOT", "Placement", "around"]


@dataclass(frozen=True)
class Placement:
    """How one stage is computed: "root", "inline", or "at" a loop of a consumer; `store` is the same for its memory."""

    kind: str
    consumer: str = ""
    loop: str = ""
    store: tuple[str, str] | None = None  # consumer and loop; ("", "") is the root


ROOT, INLINE = Placement("root"), Placement("inline")


def around(plan: Plan, places: Mapping[str, Placement], consumer: str, loop: str) -> list[tuple[str, Level]]:
    """The loops around what is computed at a loop, outermost first."""
    own = places[consumer]
    outer = around(plan, places, own.consumer, own.loop) if own.kind == "at" else []
    nest = plan.nest(consumer, plan.definition(consumer, loop))
    return outer + [(consumer, level) for level in nest.levels[: nest.position(loop) + 1]]
