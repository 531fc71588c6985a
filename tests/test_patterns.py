"""Programs as people write them: compiled results and gradients are those of the reference, to the bit.

Inputs hold small integers, so that every order of a sum gives the same. Small programs run with the thresholds of the
default schedule at their lowest and with caches of a few kilobytes, so that patterns fire that are for large ones;
large ones run as they are; a part is compiled for older processors. Where the default schedule is given up for plain
loops, its warning is an error.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings, strategies as st

import tedsl as te
from autodiff.strategies import PATTERNS, Program, patterns, values_for
from schedules.default import LOWEST, assuming
from tests.equivalence import compare
from tests.levels import PROCESSORS, processor

PHASES = (Phase.explicit, Phase.reuse, Phase.generate)  # a step of shrinking compiles a kernel
SMALL_CACHES = {"cores": 4, "l1": 2 << 10, "l2": 8 << 10, "l3": 32 << 10}
KERNELS = {"one": 1000, "many": 2}
SMALL, LARGE = 2, 1
MANY_SMALL, MANY_LARGE = 20_000 // len(PATTERNS), 2000 // len(PATTERNS)
EXACT = {"float32": 2.0**24, "float64": 2.0**53}


def check(program: Program, feeds: dict[te.Tensor, Any]) -> None:
    """The results, and the gradients by integers."""
    compare(program, feeds, te.evaluate(list(program.outputs), feeds, program.sizes))
    sources, outputs = ([t for t in side if str(t.dtype) in EXACT] for side in (program.inputs, program.outputs))
    if not sources or not outputs:
        return
    heads = [te.placeholder(t.extents, str(t.dtype), name=f"head_{t.name}") for t in outputs]
    chance = np.random.default_rng(0)
    given = {h: chance.integers(-2, 3, program.shape(t)).astype(str(t.dtype)) for h, t in zip(heads, outputs)}
    gradients = list(te.differentiate(outputs, sources, head=heads))
    feeds = {**feeds, **given}
    found = te.evaluate(gradients, feeds, program.sizes)
    for source, got, want in zip(sources, found, te.interpret(gradients, feeds, program.sizes), strict=True):
        if float(np.abs(want).max(initial=0.0)) * want.size**0.5 < EXACT[str(source.dtype)]:
            np.testing.assert_array_equal(got, want, err_msg=f"gradient of {source} in\n{program}")


def draws(most: int) -> settings:
    return settings(max_examples=most, phases=PHASES, suppress_health_check=list(HealthCheck))


def check_small(name: str, data: st.DataObject) -> None:
    """As one kernel, or cut into several."""
    program, kernels = data.draw(patterns(names=[name])), data.draw(st.sampled_from(sorted(KERNELS)))
    feeds, level = data.draw(values_for(program)), data.draw(PROCESSORS)
    with assuming({**LOWEST, **SMALL_CACHES, "kernels": KERNELS[kernels]}), processor(level):
        check(program, feeds)


def check_large(name: str, data: st.DataObject) -> None:
    program = data.draw(patterns(names=[name], large=True))
    feeds, level = data.draw(values_for(program)), data.draw(PROCESSORS)
    with processor(level):
        check(program, feeds)


@pytest.mark.parametrize("name", PATTERNS)
@draws(SMALL)
@given(data=st.data())
def test_patterns_fire_on_small_programs(name: str, data: st.DataObject) -> None:
    check_small(name, data)


@pytest.mark.share(2)
@pytest.mark.parametrize("name", PATTERNS)
@draws(LARGE)
@given(data=st.data())
def test_programs_of_real_sizes(name: str, data: st.DataObject) -> None:
    check_large(name, data)


@pytest.mark.long
@pytest.mark.parametrize("name", PATTERNS)
@draws(MANY_SMALL)
@given(data=st.data())
def test_patterns_fire_on_many_small_programs(name: str, data: st.DataObject) -> None:
    check_small(name, data)


@pytest.mark.long
@pytest.mark.parametrize("name", PATTERNS)
@draws(MANY_LARGE)
@given(data=st.data())
def test_many_programs_of_real_sizes(name: str, data: st.DataObject) -> None:
    check_large(name, data)
