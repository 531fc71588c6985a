"""The programs of `benchmarks.npbench` at tiny sizes: results as NumPy's, gradients as JAX's."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import tedsl as te

pytest.importorskip("threadpoolctl")  # which the benchmark needs
from benchmarks.npbench import largest_error, workloads
from benchmarks.npbench_programs import PROGRAMS, Program
from benchmarks.peers import peers

each = pytest.mark.parametrize("program", PROGRAMS, ids=[p.name for p in PROGRAMS])


@each
def test_results(program: Program) -> None:
    for workload in workloads(program, program.small, "f"):
        assert workload.numpy_peer is not None
        found = te.build(workload.inputs, workload.outputs)(*workload.arrays)
        want = workload.numpy_peer(*(np.copy(a) for a in workload.arrays))
        assert largest_error(found, want) < 1e-12


@pytest.fixture
def doubles() -> Iterator[None]:
    """JAX with float64."""
    jax = pytest.importorskip("jax")
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


@pytest.mark.long
@pytest.mark.usefixtures("doubles")
@each
def test_gradients(program: Program) -> None:
    for workload in workloads(program, program.small, "g"):
        found = te.build(workload.inputs, workload.outputs)(*workload.arrays)
        assert largest_error(found, peers(workload, ("jax",))["jax"]()) < 1e-10
