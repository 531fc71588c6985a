"""What `make bench` measures: each workload as a program, its arrays, and the same computation elsewhere.

A gradient is measured by itself where PyTorch offers it by itself (products, convolutions), else with the forward,
as a training step does it.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.imaging import imaging
from benchmarks.layers import layers
from benchmarks.ordering import ordering
from benchmarks.products import products
from benchmarks.recurrences import recurrences, scatters, stencils
from benchmarks.workload import Workload

__all__ = ["Workload", "workloads"]


def workloads() -> Iterator[Workload]:
    """Every workload, one after another."""
    for group in (products, layers, recurrences, scatters, stencils, ordering, imaging):
        yield from group()
