"""The memory of programs of many kernels: what is planned, what it takes, and the order that keeps it small."""

from __future__ import annotations

import sys
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import tedsl as te
from tedsl.backend.compiling.compilation import Compilation
from tedsl.backend.host.targets import parse_target
from tedsl.backend.scheduling.planner import Planner
from tedsl.backend.sequence.arena import ALIGNMENT, Arena, Span
from tedsl.backend.sequence.restored import executable_for
from tests.processes import run_script

SPANS = st.lists(
    st.builds(lambda n, at, more: Span(n, at, at + more), st.integers(0, 5000), st.integers(0, 9), st.integers(0, 9)),
    max_size=12,
)


@settings(max_examples=200)
@given(SPANS)
def test_what_is_needed_at_once_lies_apart(spans: list[Span]) -> None:
    arena = Arena(spans)
    for (a, s), (b, t) in combinations(zip(arena.offsets, spans, strict=True), 2):
        if s.first <= t.last and t.first <= s.last:
            assert a + s.bytes <= b or b + t.bytes <= a or not s.bytes or not t.bytes
    assert all(a % ALIGNMENT == 0 and a + s.bytes <= arena.bytes for a, s in zip(arena.offsets, spans, strict=True))
    assert arena.block().shape == (arena.bytes,)
    at_once = [sum(s.bytes for s in spans if s.first <= k <= s.last) for k in range(20)]
    assert arena.bytes >= max(at_once)


def test_spans_that_follow_one_another_share_memory() -> None:
    arena = Arena([Span(1280, k, k + 1) for k in range(6)])
    assert arena.bytes == 2 * 1280


def network(count: int, rows: int) -> tuple[list[te.Tensor], list[te.Tensor]]:
    """x and weights; a loss and its gradients."""
    x = te.placeholder((rows, 64), name="x")
    weights = [te.placeholder((64, 64), name=f"w{k}") for k in range(count)]
    h = x
    for w in weights:
        h = h @ w
    loss = (h * h).sum()
    return [x, *weights], [loss, *te.differentiate(loss, weights)]


SCRIPT = """
import re
import numpy as np
from pathlib import Path
from schedules.default import assuming
from tests.backend.sequence.test_memory_plan import network
import tedsl as te

def bytes_of(name):
    return 1024 * int(re.search(name + r":\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])

inputs, outputs = network(6, 32768)
with assuming({"kernels": 2}):
    kern = te.build(inputs, outputs)
arrays = [np.ones(t.shape, "float32") for t in inputs]
Path("/proc/self/clear_refs").write_text("5")
before = bytes_of("VmRSS")
kern(*arrays)
measured = bytes_of("VmHWM") - before + sum(a.nbytes for a in arrays)
print(len(kern.program.calls), kern.program.peak_bytes, measured, kern.stats.peak_bytes)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_peak_is_known_before_and_as_measured() -> None:
    calls, planned, measured, told = map(int, run_script(SCRIPT).split())
    assert calls > 12
    assert abs(measured - planned) <= 0.05 * planned
    assert told == planned


@pytest.mark.usefixtures("cut_everywhere")
def test_gradients_are_computed_as_soon_as_they_can_be() -> None:
    """What six layers give is held until it is used, and two adjoints, not all of them."""
    inputs, outputs = network(6, 256)
    core = executable_for(Compilation(tuple(inputs), tuple(outputs), "network", parse_target("host"), Planner()))
    assert core.single is None
    between = core.memory_plan(0, {}, frozenset()).between
    assert 6 * 256 * 64 * 4 <= between <= 8 * 256 * 64 * 4 + 4096


def test_the_plan_is_told() -> None:
    n = te.var("n")
    x = te.placeholder((n, 8), name="x")
    kern = te.build(x, x + 1)
    assert kern.program.peak_bytes is None
    assert kern.program.at({n: 4}).peak_bytes == 2 * 4 * 8 * 4
    assert "at most 256 B: arrays 256 B" in repr(kern.program.at({n: 4}))
    np.testing.assert_array_equal(kern(np.zeros((4, 8), "f4")), 1)
