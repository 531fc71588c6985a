"""GPU kernels against the reference: random programs, gradients and random GPU schedules, run on an OpenCL device."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import tedsl as te
from autodiff.strategies import Program, programs, values_for
from tests.opencl import MARKS
from tests.schedules.drawing import GPU_VERBS, GpuDrawing
from tests.test_equivalence import EVERY, PHASES, compare, merged

pytestmark = MARKS

BATCH = 4
PROGRAMS = 60
MANY_PROGRAMS = 3000
SCHEDULES = 20
MANY_SCHEDULES = 1000


def check(program: Program, feeds: dict[te.Tensor, Any], schedule: te.Schedule | None = None) -> None:
    """Results on the device are those of the reference."""
    kernel = te.build(list(program.inputs), list(program.outputs), schedule=schedule, target="opencl")
    compare(program, feeds, kernel(*(feeds[t] for t in program.inputs), sizes=program.sizes))


def check_batch(data: st.DataObject) -> None:
    """One kernel of several random programs, on random arrays."""
    program = merged(data.draw(st.lists(programs(dtypes=EVERY), min_size=BATCH, max_size=BATCH)))
    check(program, data.draw(values_for(program)))


@settings(max_examples=PROGRAMS // BATCH, phases=PHASES, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_gpu_kernels_agree_with_the_reference(data: st.DataObject) -> None:
    check_batch(data)


@pytest.mark.long
@settings(max_examples=MANY_PROGRAMS // BATCH, phases=PHASES, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_many_gpu_kernels_agree_with_the_reference(data: st.DataObject) -> None:
    check_batch(data)


def test_what_opencl_writes_in_its_own_way() -> None:
    """16-bit floats are held as bits, literals of float64 are not rounded to float32, and not(bool) is no ~."""
    half, single = te.placeholder((1 << 16,), "float16", name="half"), te.placeholder((1 << 16,), name="single")
    k, flag = te.reduce_axis(3, "k"), te.placeholder((4,), "bool", name="flag")
    outputs = [
        te.compute(half.shape, lambda i: te.cast(half[i], "float32"), name="widened"),
        te.compute(half.shape, lambda i: te.cast(single[i], "float16"), name="narrowed"),
        te.compute((8,), lambda i: te.cast(i, "float64") * 0.1, name="tenths"),
        te.compute((4,), lambda i: te.all(~((k != 1) & flag[i]), axis=k), name="none"),
    ]
    bits = np.arange(1 << 16, dtype=np.uint16)
    halves = bits.view(np.float16)
    with np.errstate(invalid="ignore", over="ignore"):
        ties = (bits[:-1].view(np.float16).astype("f4") + bits[1:].view(np.float16).astype("f4")) / 2
    given = {half: halves, single: np.append(ties, np.float32(65520)), flag: np.array([0, 1, 1, 0], bool)}
    found = te.build(list(given), outputs, target="opencl")(*given.values())
    for got, want in zip(found, te.interpret(outputs, given), strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)


GIVEN: Counter[str] = Counter()
BUILT: Counter[bool] = Counter()


@pytest.fixture(scope="module", autouse=True)
def tally() -> Iterator[None]:
    """Many schedules are built, and spread stages in every way: else equal results would say little."""
    yield
    if sum(BUILT.values()) >= SCHEDULES:
        assert 2 * BUILT[True] >= BUILT[False], BUILT
    if sum(BUILT.values()) >= MANY_SCHEDULES:
        assert set(GIVEN) == set(GPU_VERBS), set(GPU_VERBS) - set(GIVEN)


def check_schedule(data: st.DataObject) -> None:
    """A random GPU schedule of a random program changes no result."""
    program = data.draw(programs(stages=3))
    seed = data.draw(st.integers(0, 2**32 - 1))
    chance = random.Random(seed)
    drawing = GpuDrawing(seed, program.outputs)
    for _ in range(chance.randint(3, 10)):
        drawing.step()
    GIVEN.update(drawing.given)
    feeds = data.draw(values_for(program))
    try:
        check(program, feeds, drawing.schedule)
        BUILT[True] += 1
    except te.ScheduleError:
        BUILT[False] += 1


@settings(max_examples=SCHEDULES, phases=PHASES, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_gpu_schedules_never_change_a_result(data: st.DataObject) -> None:
    check_schedule(data)


@pytest.mark.long
@settings(max_examples=MANY_SCHEDULES, phases=PHASES, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_many_gpu_schedules_never_change_a_result(data: st.DataObject) -> None:
    check_schedule(data)
