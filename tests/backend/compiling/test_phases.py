"""`kern.stats.phases`: where the time of a build goes."""

from __future__ import annotations

import copy
import pickle
import time

import pytest

import tedsl as te
from tedsl.backend.host.phases import PHASES, added, counting, phase


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEDSL_CACHE", "off")


def test_a_single_kernel() -> None:
    x = te.placeholder((37,), name="x")
    stats = te.build(x, te.exp(x) * 3.25 + 1.75).stats
    assert {"schedule", "lower", "Halide", "LLVM"} <= set(stats.phases) <= set(PHASES)
    assert 0 < sum(stats.phases.values()) <= stats.compile_ms
    for other in (copy.deepcopy(stats), pickle.loads(pickle.dumps(stats))):
        assert other.phases == stats.phases


def test_threads_that_compile_at_the_same_time_take_the_time_that_passed() -> None:
    x = te.placeholder((43, 41), name="x")
    outputs = []
    for k in range(3):
        h = te.sort(x * (k + 0.5), 1)
        outputs.append(te.tanh(te.cumsum(h, 0) + float(k)))
    began = time.perf_counter()
    kern = te.build(x, outputs)
    kern.compile()
    passed = (time.perf_counter() - began) * 1e3
    assert len(kern.program.kernels) > 2
    assert 0 < kern.stats.compile_ms <= passed
    assert ("of all threads: " in str(kern.stats)) == (sum(kern.stats.phases.values()) > kern.stats.compile_ms)


def test_a_program_of_several_kernels() -> None:
    h = x = te.placeholder((41, 41), name="x")
    for _ in range(26):
        h = te.compute((41, 41), lambda i, j, h=h: te.sum(lambda k: h[i, k] * x[k, j] * 0.03125))
    kern = te.build(x, h)
    assert len(kern.program.kernels) < 26
    assert {"schedule", "Halide"} <= set(kern.stats.phases)


def test_a_phase_inside_another_one_counts_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([0.0, 1.0, 3.0, 6.0, 10.0, 15.0])
    monkeypatch.setattr("tedsl.backend.host.phases.perf_counter", lambda: next(times))
    with phase("load"), counting() as spent, phase("lower"):  # nobody counts the first one
        with phase("Halide"):
            pass
        with phase("Halide"):
            pass
    assert spent == {"Halide": 2e3 + 4e3, "lower": 15e3 - 6e3}
    assert added([spent, {"load": 2.0}, {"lower": 1.0}]) == {"lower": 9001.0, "Halide": 6e3, "load": 2.0}
