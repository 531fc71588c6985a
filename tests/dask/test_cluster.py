"""Operators on a cluster of worker processes: what they are given, and how much memory they hold."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tedsl as te

da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")
dask = pytest.importorskip("dask")

LIMIT = 800 * 10**6  # bytes a worker may hold; 300 MB of it are Python, Halide and LLVM
# A worker that reaches 95 % of its limit is killed; nothing is written to disk.
STRICT = {"distributed.worker.memory.spill": False, "distributed.worker.memory.target": False}


@te.op
def second_difference(x: te.Tensor) -> te.Tensor:
    return te.compute(x.shape, lambda i, j: x.at(i - 1, j, mode="wrap") - 2.0 * x[i, j] + x.at(i + 1, j, mode="wrap"))


@pytest.fixture
def client() -> Iterator[Any]:
    with (
        dask.config.set(STRICT),
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, memory_limit=LIMIT, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


SCRIPT = """
import dask.array as da
import numpy as np
from distributed import Client, LocalCluster

import tedsl as te


@te.op
def weighted(x, weight=2.0):
    return te.compute(x.shape, lambda i: above(x, i) + weight * x[i])


def above(x, i):
    return x.at(i + 1, mode="zero")


weighted.def_vjp(lambda y, inputs, head: [head * 3.0])

if __name__ == "__main__":
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster):
        a = np.arange(12.0, dtype="float32")
        y, pull = te.dask.vjp(weighted, da.from_array(a, chunks=5), weight=3.0)
        assert np.array_equal(y.compute(), weighted(a, weight=3.0))
        assert np.array_equal(pull(a).compute(), a * 3)
        print("equal")
"""


def test_an_operator_of_a_script_reaches_the_workers(tmp_path: Path) -> None:
    """By value, with its rules and what it calls: on a worker `__main__` is another module."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "equal" in done.stdout


def values(rows: Any, columns: Any) -> Any:
    """Whole numbers from places, so that every sum of them is exact."""
    return (rows % 251).astype("float32") ** 2 + (columns % 61).astype("float32")


def filled(block_info: Any = None) -> Any:
    """A block of the array."""
    (r0, r1), (c0, c1) = block_info[None]["array-location"]
    return values(np.arange(r0, r1)[:, None], np.arange(c0, c1)[None, :])


def wrong(block: Any, rows: int, times: int, block_info: Any = None) -> Any:
    """How many elements of a block are not those of second differences taken so many times."""
    (r0, r1), (c0, c1) = block_info[0]["array-location"]
    expected = values(np.arange(r0 - times, r1 + times)[:, None] % rows, np.arange(c0, c1)[None, :])
    for _ in range(times):
        expected = expected[:-2] - 2 * expected[1:-1] + expected[2:]
    return np.array([[(block != expected).sum()]])


@pytest.mark.long
def test_an_array_of_four_times_the_memory_limit(client: Any, capfd: pytest.CaptureFixture[str]) -> None:
    rows = 4 * LIMIT // 4000 // 4
    chunks = ((1000,) * (rows // 1000), (1000,) * 4)
    x = da.map_blocks(filled, chunks=chunks, dtype="float32", meta=np.empty((0, 0), "float32"))
    assert x.nbytes == 4 * LIMIT
    before = client.run(process_of)
    result, pull = te.dask.vjp(second_difference, x)
    # The matrix is symmetric: the gradient is the same stencil, applied to the head.
    for array, times in ((result, 1), (pull(result), 2)):
        counts = da.map_blocks(wrong, array, rows, times, chunks=(1, 1), dtype="int64")
        total = client.compute(counts.sum())
        distributed.progress(total, notebook=False)
        assert total.result() == 0
    assert "100% Completed" in capfd.readouterr().out
    assert client.run(process_of) == before  # no worker was killed


def process_of() -> int:
    return os.getpid()
