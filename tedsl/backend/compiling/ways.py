"""The ways to compile a form, from the one that is planned to the last that works, and what leads from one to the next.

Halide finds some divisions by zero while it simplifies, also where the program would not reach them. And it refuses a
few loop nests that the default schedule makes; some only because it cuts their loops, and puts one bit where a mask of
lanes was. None of that is the user's fault, who is warned where vectors and threads are lost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import halide as hl

from tedsl.backend.arguments.blocks import Function
from tedsl.backend.compiling.alternatives import first_working
from tedsl.backend.compiling.disk_cache import Kept
from tedsl.backend.compiling.variant_source import VariantSource
from tedsl.backend.halide_text.errors import divides_by_zero
from tedsl.backend.lowering.pipeline import Lowered
from tedsl.lang.dataclass import dataclass
from tedsl.lang.errors import ScheduleError, warn_user

__all__ = ["WAYS", "MadeCode", "Way", "first_way"]


@dataclass(frozen=True)
class Way:
    """One way to compile a form, and the failures of those before it that it answers."""

    name: str
    answers: Callable[[VariantSource, Exception], bool]
    is_careful: bool = False  # divisions are lowered with care
    is_whole: bool = False  # Halide cuts no loop into a beginning, a middle and an end
    is_unfetched: bool = False  # nothing is asked for ahead
    is_in_turn: bool = False  # no stage has a thread of its own
    is_simple: bool = False  # every stage is stored, no loop is changed; never kept on the disk

    @property
    def is_kept(self) -> bool:
        """Whether another process is to find the code."""
        return not self.is_simple

    def of(self, origin: VariantSource) -> VariantSource:
        """What is compiled in this way."""
        chosen = {"simple": self.is_simple, "in_turn": self.is_in_turn, "unfetched": self.is_unfetched}
        options = {name: True for name, is_chosen in chosen.items() if is_chosen}
        program = origin.program.planned(**options) if options else origin.program
        if program is origin.program and (self.is_careful, self.is_whole) == (origin.is_careful, origin.is_whole):
            return origin
        return replace(origin, program=program, is_careful=self.is_careful, is_whole=self.is_whole)


def _divides_by_zero(origin: VariantSource, failure: Exception) -> bool:
    return isinstance(failure, (hl.HalideError, ScheduleError)) and divides_by_zero(failure)


def _cannot_be_fetched(origin: VariantSource, failure: Exception) -> bool:
    """Whether it may be prefetches that Halide fails at, as of outputs, which it does not allocate."""
    return isinstance(failure, (hl.HalideError, ScheduleError)) and origin.program.planner.fetches


def _cannot_be_ahead(origin: VariantSource, failure: Exception) -> bool:
    """Whether it may be threads of stages that Halide fails at."""
    failures = hl.HalideError, ScheduleError, UnicodeDecodeError  # messages may name what Halide freed already
    return isinstance(failure, failures) and origin.program.planner.may_be_ahead


def _is_refused(origin: VariantSource, failure: Exception) -> bool:
    """Whether Halide refuses what nobody asked for."""
    planner, target = origin.program.planner, origin.program.target
    return isinstance(failure, hl.HalideError) and not planner.is_asked and target.backend == "host"


PLANNED = Way("planned", lambda origin, failure: False)
CAREFUL = Way("careful", _divides_by_zero, is_careful=True)
UNFETCHED = Way("unfetched", _cannot_be_fetched, is_unfetched=True)
IN_TURN = Way("in turn", _cannot_be_ahead, is_unfetched=True, is_in_turn=True)
WHOLE = Way("whole loops", _is_refused, is_whole=True)
SIMPLE = Way("simple", _is_refused, is_simple=True)
SIMPLE_CAREFUL = Way("simple and careful", _divides_by_zero, is_careful=True, is_simple=True)

WAYS = (PLANNED, CAREFUL, UNFETCHED, IN_TURN, WHOLE, SIMPLE, SIMPLE_CAREFUL)


@dataclass(frozen=True, eq=False)
class MadeCode:
    """What came of it: the way, what was compiled, and the function in memory."""

    way: Way
    origin: VariantSource
    kept: Kept
    lowered: Lowered
    function: Function


def first_way(origin: VariantSource) -> MadeCode:
    """A form compiled in the first way that works."""

    def attempt(way: Way, failure: Exception | None) -> MadeCode:
        if way is SIMPLE:
            warn_user(
                f"kernel {origin.program.name!r}: Halide refuses what the default schedule makes of it "
                f"({str(failure).strip()}); it is compiled without vectors and threads: give it a schedule of its own "
                "to have it fast"
            )
        if way is IN_TURN:
            warn_user(
                f"kernel {origin.program.name!r}: Halide refuses threads of their own for stages with async_() "
                f"({str(failure).strip()}); they are computed in turn"
            )
        chosen = way.of(origin)
        return MadeCode(way, chosen, *chosen.made())

    return first_working(WAYS, attempt, lambda way, failure: way.answers(origin, failure))
