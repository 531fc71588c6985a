"""GPU kernels against the reference: the four property suites, and what OpenCL writes in its own way."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import tedsl as te
from tests.equivalence import PHASES
from tests.gpu_suites import BUILT, GIVEN, arrays_in_memory, check_schedule, on_device
from tests.opencl import MARKS
from tests.schedules.drawing import GPU_VERBS
from tests.suites import BATCH, FEW, check_gradients, check_mutation, check_programs

pytestmark = MARKS

# In the tier that runs every time some 80, a minute of a core; in the long one 3000 and 1000 schedules.
PROGRAMS, GRADIENTS, IN_PLACE, SCHEDULES = 32, 8, 32, 12
MANY_PROGRAMS, MANY_GRADIENTS, MANY_IN_PLACE, MANY_SCHEDULES = 1500, 500, 1000, 1000
CHECKS = list(HealthCheck)


@pytest.fixture(scope="module", autouse=True)
def tally() -> Iterator[None]:
    """Many schedules are built, and spread stages in every way: else equal results would say little."""
    yield
    if sum(BUILT.values()) >= SCHEDULES // 2:
        assert 2 * BUILT[True] >= BUILT[False], BUILT
    if sum(BUILT.values()) >= MANY_SCHEDULES:
        assert set(GIVEN) == set(GPU_VERBS), set(GPU_VERBS) - set(GIVEN)


@pytest.mark.share(2)
@pytest.mark.parametrize("part", range(2))
@settings(max_examples=PROGRAMS // BATCH // 2, phases=PHASES, suppress_health_check=CHECKS)
@given(data=st.data())
def test_programs(part: int, data: st.DataObject) -> None:
    check_programs(data, on_device)


@pytest.mark.long
@settings(max_examples=MANY_PROGRAMS // BATCH, phases=PHASES, suppress_health_check=CHECKS)
@given(data=st.data())
def test_many_programs(data: st.DataObject) -> None:
    check_programs(data, on_device)


@pytest.mark.share(2)
@pytest.mark.parametrize("part", range(2))
@settings(max_examples=GRADIENTS // FEW // 2, phases=PHASES, suppress_health_check=CHECKS)
@given(data=st.data())
def test_gradients(part: int, data: st.DataObject) -> None:
    check_gradients(data, on_device)


@pytest.mark.long
@settings(max_examples=MANY_GRADIENTS // FEW, phases=PHASES, suppress_health_check=CHECKS)
@given(data=st.data())
def test_many_gradients(data: st.DataObject) -> None:
    check_gradients(data, on_device)


@pytest.mark.share(2)
@pytest.mark.parametrize("seed", range(4))
def test_in_place_code(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for k in range(IN_PLACE // BATCH // 4):
        check_mutation(random.Random(100 * seed + k), monkeypatch, on_device)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 110))
def test_much_in_place_code(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for k in range(MANY_IN_PLACE // BATCH // 10):
        check_mutation(random.Random(100 * seed + k), monkeypatch, on_device, length=12)


@pytest.mark.share(2)
@pytest.mark.parametrize("part", range(2))
@settings(max_examples=SCHEDULES // 2, phases=PHASES, suppress_health_check=CHECKS)
@given(data=st.data())
def test_schedules_never_change_a_result(part: int, data: st.DataObject) -> None:
    check_schedule(data)


@pytest.mark.long
@settings(max_examples=MANY_SCHEDULES, phases=PHASES, suppress_health_check=CHECKS)
@given(data=st.data())
def test_many_schedules_never_change_a_result(data: st.DataObject) -> None:
    check_schedule(data)


@pytest.mark.parametrize("seed", [41100009, 41100022])
def test_what_a_check_reads_stays_as_it_is(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Indices that are checked at a call read a stage that would be inlined by hand, for copies in shared memory."""
    check_mutation(random.Random(seed), monkeypatch, on_device)


def test_the_look_at_ptx_can_fail() -> None:
    """A sum of many bins in a thread's own memory is seen."""
    A, bins = te.placeholder((64, 9), name="A"), te.placeholder((9,), "int32", name="bins")
    B = te.compute((64, 9), lambda i, j: A[i, j] * 2, name="B")
    C = te.compute((64,), lambda i: te.sum(lambda k: B[i, bins[k]]), name="C")
    s = te.Schedule(C)
    s[C].gpu_blocks(s[C].split("i", 8)[0]).gpu_threads("ii")
    s[B].compute_at(C, "ii").store_in("stack")
    ptx = te.build([A, bins], C, schedule=s, target="cuda").source("ptx")
    (name,) = arrays_in_memory(ptx)
    assert re.match(r"_kernel_C(_\d+)?_s1", name)


def test_what_opencl_writes_in_its_own_way() -> None:
    """16-bit floats are held as bits, float64 literals and constants cast to it stay exact, and not(bool) is no ~."""
    half, single = te.placeholder((1 << 16,), "float16", name="half"), te.placeholder((1 << 16,), name="single")
    k, flag = te.reduce_axis(3, "k"), te.placeholder((4,), "bool", name="flag")
    outputs = [
        te.compute(half.shape, lambda i: te.cast(half[i], "float32"), name="widened"),
        te.compute(half.shape, lambda i: te.cast(single[i], "float16"), name="narrowed"),
        te.compute((8,), lambda i: te.cast(i, "float64") * 0.1, name="tenths"),
        te.compute((4,), lambda i: te.all(~((k != 1) & flag[i]), axis=k), name="none"),
        te.compute((8,), lambda i: ~te.const(4, "uint32") % te.cast(i + 1, "uint32"), name="rest"),
        te.compute((8,), lambda i: te.const(7 - 2**31, "int32") // te.cast(i + 1, "int32"), name="quotient"),
        te.compute((2,), lambda i: te.cast(~te.const((1 << 53) + 4, "int64"), "float64"), name="large"),
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
