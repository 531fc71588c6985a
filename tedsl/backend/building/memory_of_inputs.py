"""`alias=` and `donate=`: the program for which what is asked of the memory of inputs is proven, of several tried."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from schedules.machine import Choices
from tedsl.backend.building.executables import made_for, shared_executable
from tedsl.backend.building.request import BuildRequest
from tedsl.backend.calling.accumulate import Accumulating, addends
from tedsl.backend.calling.aliasing import check_proof, hazards_in
from tedsl.backend.calling.donation import Donations, donations_of
from tedsl.backend.compiling.compilation import Compilation
from tedsl.backend.compiling.executable import Shared
from tedsl.backend.scheduling.planner import Planner
from tedsl.backend.sequence.steps import finest
from tedsl.lang.dataclass import dataclass
from tedsl.lang.errors import AliasError
from tedsl.lang.expr import SIZE_MAX

__all__ = ["Settled", "accumulating_for", "settled"]


@dataclass(frozen=True, eq=False)
class Settled:
    """A program, and what becomes of the inputs that it may overwrite."""

    shared: Shared
    donations: Donations
    is_cut: bool = False  # into more kernels than it would be, for the sake of donations


def accumulating_for(request: BuildRequest) -> Accumulating | None:
    """The program that adds in place, where all outputs with memory of inputs are such sums."""
    if not request.options.is_default:
        return None
    given, outputs = request.fed, request.outputs
    parts, previous = addends(given, outputs, request.alias)
    if not parts or set(parts) != set(request.alias):
        return None
    kept = tuple(k for k in range(len(given)) if k not in previous.values())
    added = tuple(parts.get(p, t) for p, t in enumerate(outputs))
    program = Compilation(tuple(given[k] for k in kept), added, request.name, request.target, Planner())
    return Accumulating(shared_executable(program), kept, previous)


def settled(request: BuildRequest, *, is_adding: bool) -> Settled:
    """The program for a request; AliasError where an alias cannot be proven.

    `is_adding`: another program answers the calls that write into memory of inputs, so this one need not.
    """
    shared = made_for(request, request.compilation)
    if request.alias and not is_adding:
        shared = _proven(request, shared)
    found = Settled(shared, _donations(request, shared))
    if found.donations.in_turn and not is_adding:
        found = _together(request, found)
    if found.donations.refused and not is_adding and request.options.is_default:
        found = _in_one_piece(request, found)
    return _cut(request, found) if found.donations.refused else found


def _donations(request: BuildRequest, shared: Shared) -> Donations:
    return donations_of(shared.core, request.donated, request.alias, request.fed, request.outputs)


def _proven(request: BuildRequest, shared: Shared) -> Shared:
    """The program, or another one for it, that may write outputs on inputs; AliasError without one.

    Where outputs of one stage are in each other's way, they are stored together; or else no stage is computed in pieces
    or in part twice where nobody asked for it, or, where the schedule is left to us, each output gets a loop nest of
    its own. The one with the fewest hazards is taken where these may be copied.
    """
    tried: list[tuple[int, Shared]] = []
    plain = request.compilation
    others = [plain.planned(merged=False)] if request.options.is_default else []
    others += [] if plain.planner.automatic else [plain.planned(choices=_whole(plain))]
    for program in (plain, *others):
        made = made_for(request, program) if tried else shared
        hazards = hazards_in(made.core, request.alias)
        if hazards and all(h.in_turn for h in hazards.values()):
            made = made_for(request, program.planned(in_place=True))
            hazards = hazards_in(made.core, request.alias)
        if not hazards:
            return made
        tried.append((len(hazards), made))
    if request.options.on_hazard != "copy":  # told of the last one, whose hazards no schedule takes away
        check_proof(tried[-1][1].core, request.alias, request.outputs, request.fed)
    return min(tried, key=lambda item: item[0])[1]


def _whole(program: Compilation) -> Choices:
    """The choices of a program of which no stage is computed in pieces, one after another, nor some of it twice.

    Windows that are reductions, and products, are done with what they read before anything is written.
    """
    names = ("pieces", "shifted", "written_out", "pipeline", "border_strips", "epilogue")
    return (*program.planner.choices, *((name, SIZE_MAX) for name in names))


def _in_one_piece(request: BuildRequest, found: Settled) -> Settled:
    """The program without pieces, if more of what is donated can be used then."""
    made = made_for(request, request.compilation.planned(choices=_whole(request.compilation)))
    donations = _donations(request, made)
    before, after = (hazards_in(s.core, request.alias).keys() for s in (found.shared, made))
    is_better = len(donations.refused) < len(found.donations.refused) and after <= before
    return Settled(made, donations) if is_better else found


def _together(request: BuildRequest, found: Settled) -> Settled:
    """The program with the outputs of each stage stored together, if more of what is donated can be used then."""
    planner = replace(found.shared.core.program.planner, in_place=True)
    made = made_for(request, replace(request.compilation, planner=planner))
    donations = _donations(request, made)
    before, after = (hazards_in(s.core, request.alias).keys() for s in (found.shared, made))
    is_better = len(donations.refused) < len(found.donations.refused) and after <= before
    return Settled(made, donations) if is_better else found


def _cut(request: BuildRequest, found: Settled) -> Settled:
    """The program in as many kernels as it can be cut into, if what passes between them uses what nothing else can."""
    core = found.shared.core
    program = core.program
    if core.plan.is_finest or program.target.backend != "host" or program.facts.is_always_empty:
        return found
    plain = program if program.planner.automatic else program.planned(choices=_whole(program))
    cut = Shared(finest(plain), found.shared.renamed)
    if len(cut.core.plan.steps) < 2:
        return found
    with suppress(AliasError):
        check_proof(cut.core, request.alias, request.outputs, request.fed)
        donations = _donations(request, cut)
        if len(donations.refused) < len(found.donations.refused):
            return Settled(cut, donations, is_cut=True)
        return replace(found, donations=donations)
    return found
