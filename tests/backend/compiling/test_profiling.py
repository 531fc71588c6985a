"""te.profile: every call of compiled code is timed inside, and none outside."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tedsl as te
from tedsl.backend.compiling import profiling
from tedsl.backend.compiling.profiling import Peaks

N = 64


@pytest.fixture(autouse=True)
def speeds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of 1 GB/s and 1 GFLOP/s."""
    monkeypatch.setattr(profiling, "machine_speeds", lambda: Peaks(1e9, 1e9))


@pytest.fixture(scope="module")
def kernel() -> Any:
    a, b = te.placeholder((N, N), name="a"), te.placeholder((N, N), name="b")
    return te.build([a, b], a @ b, name="product")


def test_calls_inside_are_recorded_and_others_are_not(kernel: Any) -> None:
    a = np.ones((N, N), "f4")
    kernel(a, a)
    begin = time.perf_counter_ns()
    with te.profile() as outer:
        kernel(a, a)
        with te.profile() as inner:
            kernel(a, a)
    wall = time.perf_counter_ns() - begin
    kernel(a, a)
    assert (len(outer.events), len(inner.events)) == (2, 1)
    assert 0 < sum(e.duration for e in outer.events) <= wall
    assert outer.events[0].begin >= begin
    (row,) = outer.rows()
    assert (row.kernel, row.calls, row.bytes, row.flops) == ("product", 2, 2 * 3 * 4 * N * N, 2 * 2 * N**3)
    assert row.roofline == pytest.approx(row.flops / 1e9 / row.seconds)
    head, line = repr(outer).splitlines()
    assert head.split() == ["kernel", "calls", "ms", "share", "MB", "GB/s", "GFLOP/s", "roofline"]
    assert line.split()[:2] == ["product", "2"]
    assert line.split()[3] == "100.0%"
    assert "product" in outer._repr_html_()


@pytest.mark.usefixtures("cut_everywhere")
def test_the_kernels_of_a_program_are_told_apart_and_traced(tmp_path: Path) -> None:
    a = te.placeholder((N, N), name="a")
    first = a @ a
    kern = te.build(a, [first @ first, first.sum()])
    with te.profile() as p:
        kern(np.ones((N, N), "f4"))
    assert len(p.events) == len(kern.program.calls) == 3
    assert sorted(row.calls for row in p.rows()) == [1, 2]  # two products by one kernel
    p.save(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert [e["name"] for e in events] == [e.kernel for e in p.events]
    assert all(e["ph"] == "X" and e["dur"] > 0 and e["args"]["bytes"] > 0 for e in events)
    assert sorted(e["ts"] for e in events) == [e["ts"] for e in events]
    assert "calls of" in kern.program._repr_html_()


def test_rows_of_one_name_are_numbered_and_rates_beyond_the_machine_are_none(
    kernel: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = te.placeholder((N, N), name="x")
    other = te.build(x, te.exp(x), name="product")
    a = np.ones((N, N), "f4")
    with te.profile() as p:
        kernel(a, a)
        other(a)
        kernel(a, a)
    assert {row.kernel: row.calls for row in p.rows()} == {"product_0": 2, "product_1": 1}
    assert {e.kernel for e in p.events} == {"product"}

    def rates(bandwidth: float, flops: float) -> list[str]:
        monkeypatch.setattr(profiling, "machine_speeds", lambda: Peaks(bandwidth, flops))
        (line,) = [line for line in repr(p).splitlines() if line.startswith("product_0")]
        return line.split()[-3:]

    assert rates(1.0, 1.0) == ["-", "-", "cached"]
    assert rates(1e18, 1.0)[1:] == ["-", "-"]
    assert rates(1.0, 1e18)[::2] == ["-", "cached"]
    assert "-" not in rates(1e18, 1e18)


def called_elsewhere(kernel: Any, a: Any) -> None:
    thread = threading.Thread(target=kernel, args=(a, a))
    thread.start()
    thread.join()
    raise ZeroDivisionError


def test_calls_of_other_threads_are_recorded_and_errors_end_the_context(kernel: Any) -> None:
    a = np.ones((N, N), "f4")
    with pytest.raises(ZeroDivisionError), te.profile() as p:
        called_elsewhere(kernel, a)
    assert len(p.events) == 1
    assert p.events[0].thread != threading.get_ident()
    assert profiling.RECORDING == []


def test_the_machine_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(profiling, "COPIED", 1 << 20)
    monkeypatch.setattr(profiling, "PRODUCT", 64)
    found = profiling.machine_speeds.__wrapped__()
    assert found.bandwidth > 1e6
    assert found.flops > 1e6


def test_calls_as_short_as_their_recording_have_no_rates() -> None:
    """They contradicted the time of a call outside."""
    row = profiling.ProfileRow("f", 10, 10 * 1e-6, 1.0, 40, 10, 0.5)
    assert profiling.cells(row)[5:] == ("-", "-", "short")
    longer = profiling.ProfileRow("f", 10, 10 * 1e-3, 1.0, 4000000, 1000000, 0.5)
    assert profiling.cells(longer)[5:] == ("0.40", "0.10", "50%")
