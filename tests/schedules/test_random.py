"""A schedule never changes a result: random schedules of random programs against the reference.

Refused directives are left out one by one, so that what is built is long. Almost all that `schedules` lets through must
compile; what only Halide can refuse comes back as a ScheduleError too.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import tedsl as te
from autodiff.strategies import Program, programs, values_for
from tests.equivalence import compare
from tests.levels import PROCESSORS, processor
from tests.schedules.drawing import VERBS, Drawing

SCHEDULES = 5000 if os.environ.get("TEDSL_LONG") else 200
SHARES = 4
# What few stages of a short program allow: `test_pipelines` draws programs for these.
RARE = {"bound", "clone_in", "compute_inline", "compute_with", "fold_storage", "store_root", "tile"}
GIVEN: Counter[str] = Counter()
BUILT: Counter[bool] = Counter()


@pytest.fixture(scope="module", autouse=True)
def tally() -> Iterator[None]:
    """Most schedules are built, of every verb: else equal results would say little."""
    yield
    if sum(BUILT.values()) >= SCHEDULES // SHARES:
        assert BUILT[True] >= 9 * BUILT[False], BUILT
    if sum(BUILT.values()) >= SCHEDULES // 2:  # of two processes, either may miss one that is not often possible
        missing = set(VERBS) - set(GIVEN) - RARE
        assert len(missing) <= (0 if sum(BUILT.values()) >= SCHEDULES else 2), missing


@pytest.mark.parametrize("part", range(SHARES))
@settings(max_examples=SCHEDULES // SHARES, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_schedules_never_change_a_result(part: int, data: st.DataObject) -> None:
    program = data.draw(programs(stages=3))
    seed = data.draw(st.integers(0, 2**32 - 1))
    chance = random.Random(seed)
    outputs = [t for t in program.outputs[:-1] if chance.random() < 1 / 3] + [program.outputs[-1]]
    drawing = Drawing(seed, outputs)
    for _ in range(chance.randint(3, 14)):
        drawing.step()
    GIVEN.update(drawing.given)
    feeds, level = data.draw(values_for(program)), data.draw(PROCESSORS)
    try:
        with processor(level):
            kernel = te.build(list(program.inputs), outputs, schedule=drawing.schedule)
    except te.ScheduleError:
        BUILT[False] += 1
        return
    BUILT[True] += 1
    found = kernel(*feeds.values(), sizes=program.sizes)
    compare(_with(program, outputs), feeds, found)


def _with(program: Program, outputs: list[te.Tensor]) -> Program:
    scale: dict[te.Tensor, Any] = {t: s for t, s in program.scale.items() if t in set(outputs)}
    return Program(program.inputs, tuple(outputs), program.sizes, program.below, program.exact, scale)
