"""A program whose stages say of themselves which places are in bounds, where other stages of it show that.

place[i] = clip(cast(x[i], int32), 0, 9)                place[i] = clip(cast(x[i], int32), 0, 9)
y[i] = table[place[i] + 1]                        ->    y[i] = table[clip(place[i] + 1, 0, 10)]
"""

from __future__ import annotations

from collections.abc import Sequence

from schedules.program import ProgramStages, reading
from tedsl.analysis.known_places import KnownPlaces
from tedsl.lang.tensor import Tensor
from tedsl.lang.traverse import operations_between

__all__ = ["with_known_places"]


def with_known_places(program: ProgramStages, inputs: Sequence[Tensor]) -> ProgramStages:
    """The program of which these tensors are fed; the same one where nothing is to be said."""
    given, places = set(inputs), KnownPlaces(inputs)
    asked = set(operations_between(given, program.outputs))
    stages, new = dict(program.stages), dict[Tensor, Tensor]()
    for name, op in program.stages.items():
        if op in asked:
            stages[name] = made = reading(places.clipped(op), new)
            if made is not op:
                new.update((old, now) for old, now in zip(op.outputs, made.outputs, strict=True) if old not in given)
    return ProgramStages(tuple(new.get(t, t) for t in program.outputs), stages, program.handles) if new else program
