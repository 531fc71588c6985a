"""The compiler against the reference: te.evaluate == te.interpret on random programs and arrays.

Exact results (integers, bools, one IEEE rounding per operation) must agree bit by bit. A float sum of n terms may
differ by its order: by n roundings of the sum of the magnitudes. Transcendental functions may differ by a few units in
the last place. Several programs share a kernel, since compiling is what takes the time. A part of them is compiled for
older processors.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import tedsl as te
from autodiff.strategies import CONSTRUCTS, Program, programs, values_for
from tests.equivalence import EVERY, PHASES, compare, merged
from tests.levels import LEVELS_HERE, PROCESSORS, processor

BATCH = 4
PROGRAMS = 128
MANY_PROGRAMS = 20_000
CUT = 20


def check(program: Program, feeds: dict[te.Tensor, Any], level: str = "") -> None:
    """Compiled and interpreted results agree, on a processor of that level."""
    with processor(level):
        found = te.evaluate(list(program.outputs), feeds, program.sizes)
    compare(program, feeds, found)


@pytest.mark.parametrize("part", range(2))
@settings(max_examples=PROGRAMS // BATCH // 2, phases=PHASES, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_compiled_programs_agree_with_the_reference(part: int, data: st.DataObject) -> None:
    check_batch(data)


@pytest.mark.long
@pytest.mark.parametrize("part", range(2))
@settings(max_examples=MANY_PROGRAMS // BATCH // 2, phases=PHASES, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_many_compiled_programs_agree_with_the_reference(part: int, data: st.DataObject) -> None:
    check_batch(data)


@pytest.mark.usefixtures("cut_everywhere")
@settings(max_examples=CUT // BATCH, phases=PHASES, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_programs_cut_into_kernels_agree_with_the_reference(data: st.DataObject) -> None:
    check_batch(data)


def check_batch(data: st.DataObject) -> None:
    """One kernel of several random programs, on random arrays."""
    parts = data.draw(st.lists(programs(dtypes=EVERY), min_size=BATCH, max_size=BATCH))
    program = merged(parts)
    check(program, data.draw(values_for(program)), data.draw(PROCESSORS))


@pytest.mark.parametrize("construct", CONSTRUCTS)
@settings(max_examples=5, phases=PHASES, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_each_construct_agrees_with_the_reference(construct: str, data: st.DataObject) -> None:
    program = data.draw(programs(constructs=(construct,), stages=2))
    check(program, data.draw(values_for(program)), data.draw(PROCESSORS))


@pytest.mark.parametrize("level", LEVELS_HERE)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_between_zeros_of_both_signs_the_first_is_taken(dtype: str, level: str) -> None:
    """NumPy's own answer depends on the dtype and the instruction set; a division shows the sign."""
    a, b = (te.placeholder((2, 19), "float32", name=n) for n in "ab")
    outputs = [
        te.compute(
            (2, 19), lambda i, j, f=f: te.cast(1.0 / f(te.cast(a[i, j], dtype), te.cast(b[i, j], dtype)), "float64")
        )
        for f in (te.minimum, te.maximum, lambda x, y: te.clip(x, y, y), lambda x, y: te.relu(x))
    ]
    zeros = np.stack([np.zeros(19), -np.zeros(19)]).astype("float32")
    feeds = {a: zeros, b: -zeros}
    wanted = np.repeat([[np.inf], [-np.inf]], 19, axis=1)
    with processor(level):
        compiled = te.evaluate(outputs, feeds)
    for found in (compiled, te.interpret(outputs, feeds)):
        for value in found:
            np.testing.assert_array_equal(value, wanted)
