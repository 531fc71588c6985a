"""Which parts of its arguments a pipeline touches: known of its loops, or in a text that Halide makes without them."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from functools import reduce
from typing import Any

import halide as hl

from tedsl.analysis.sizes import known_shape
from tedsl.backend.lowering.pipeline import Lowered

__all__ = ["stays_within", "touching"]

LOOPS = frozenset(["pointwise", "reduction"])  # stages whose results are boxes of loops, each of which is known


def stays_within(lowered: Lowered) -> bool:
    """Whether nothing outside of any array is touched, as one can say without Halide.

    So it is where all that has loops are results: these are computed from end to end, as far as Halide is told and no
    further, and lowering brings every place that is read into the tensor, for any step of the loops of its stage. What
    is stored between must be as large as Halide thinks that its readers need, of which its text tells.
    """
    made = {stage for stage in lowered.stages if stage.op not in lowered.inlined}
    computed = {result.stage for result in lowered.results}
    return (
        made == computed and not (lowered.may_round or lowered.previous) and all(stage.kind in LOOPS for stage in made)
    )


def touching(lowered: Lowered) -> hl.Pipeline | None:
    """A pipeline that touches what this one does of its inputs, and computes nothing; None where that is not known.

    It needs all of the results, for a number that is undefined. So Halide plans the same loops, finds what they touch,
    and then drops them, as nobody needs the number: most of its time goes into what comes after.
    """
    if lowered.may_round or any(result.stage is None for result in lowered.results):
        return None
    corners = list(_corners(lowered))
    nothing = hl.Func("te_nothing")
    nothing[()] = reduce(operator.add, corners, hl.undef(hl.Int(32)))
    return hl.Pipeline([nothing])


def _corners(lowered: Lowered) -> Iterator[Any]:
    """The first and the last element of every result, as integers."""
    for result in lowered.results:
        result.func.compute_root()  # as Halide computes all that it hands out
        for position, component in enumerate(result.positions):
            shape = known_shape(lowered.outputs[component])
            assert shape is not None
            for place in (tuple(0 for _ in shape), tuple(n - 1 for n in reversed(shape))):
                element = result.func[place]
                yield hl.cast(hl.Int(32), element if len(result.positions) == 1 else element[position])
