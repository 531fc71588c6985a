"""How a program over arrays in chunks is computed block by block: the steps, and the blocks of each.

An axis runs along a dimension if it alone moves an index over at least half of it; where that dimension is in chunks,
so is the axis. A stage that reduces along such a dimension is a step of its own: each block is reduced, then the
results are combined, so that no task holds the whole. All else is computed where it is read, halos more than once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from tedsl.analysis.points import is_data_free, values_at
from tedsl.blocks.crop import whole
from tedsl.blocks.local import known_extent
from tedsl.lang.dataclass import dataclass
from tedsl.lang.expr import Axis, Expr, Read, Reduce
from tedsl.lang.tensor import Compute, Constant, Extern, Operation, Scan, Scatter, Tensor
from tedsl.lang.traverse import free_axes, operations_between

__all__ = ["BlockStep", "Chunks", "steps_of"]

Chunks = tuple[tuple[int, ...], ...]  # sizes along each dimension

HEAVY = 1 << 22  # iterations of a stage that reads nothing in chunks, from which it is computed once and not per block
TRIED = 1 << 16  # places of an axis that are tried
_COMBINED = frozenset({"sum", "prod", "max", "min", "any", "all", "custom"})


@dataclass(frozen=True, eq=False)
class BlockStep:
    """Operations computed block by block: `chunks` of their outputs; `terms`, of what is reduced, each by itself."""

    ops: tuple[Operation, ...]
    chunks: Chunks
    terms: Chunks | None = None


def steps_of(inputs: Mapping[Tensor, Chunks], outputs: Sequence[Tensor], what: str) -> list[BlockStep]:
    """The steps that compute the outputs, each from the inputs and the results of those before."""
    planner = _Planner(inputs, what)
    for op in operations_between(inputs, outputs):
        planner.visit(op)
    grouped: dict[Chunks, dict[Operation, None]] = {}
    for tensor in outputs:
        if tensor.op not in planner.done:
            grouped.setdefault(planner.chunks[tensor], {})[tensor.op] = None
    return planner.steps + [BlockStep(tuple(ops), chunks) for chunks, ops in grouped.items()]


class _Planner:
    def __init__(self, inputs: Mapping[Tensor, Chunks], what: str) -> None:
        self.what = what
        self.chunks: dict[Tensor, Chunks] = dict(inputs)
        self.steps: list[BlockStep] = []
        self.done: dict[Operation, None] = {}

    def visit(self, op: Operation) -> None:
        if isinstance(op, Constant):
            self.chunks[op.output()] = tuple((b,) for _, b in whole(op.output()))
            return
        runs = self._runs(op)
        sizes = self._sizes(op, runs)
        for tensor in op.outputs:
            self.chunks[tensor] = sizes
        terms = self._terms(op, runs)
        if terms is not None:
            if isinstance(op, Scatter) and op.init is not None:
                self._once(op.init)
            self._step(op, sizes, terms)
        elif not runs and _iterations(op) >= HEAVY:
            self._step(op, sizes, None)

    def _step(self, op: Operation, sizes: Chunks, terms: Chunks | None) -> None:
        self.steps.append(BlockStep((op,), sizes, terms))
        self.done[op] = None

    def _once(self, tensor: Tensor) -> None:
        """What a scatter starts from, ready before it."""
        if tensor.op not in self.done and tensor.op.inputs:
            self._step(tensor.op, self.chunks[tensor], None)

    def _sizes(self, op: Operation, runs: dict[Axis, tuple[int, ...]]) -> Chunks:
        if not isinstance(op, (Compute, Scan)):
            return tuple((b,) for _, b in whole(op.output()))
        return tuple(runs.get(a, (known_extent(a.extent),)) for a in op.axes)

    def _terms(self, op: Operation, runs: dict[Axis, tuple[int, ...]]) -> Chunks | None:
        """How what is reduced is split; None where it is not."""
        axes = op.axes if isinstance(op, Scatter) else ()
        if isinstance(op, Compute) and op.reduction is not None:
            axes = op.reduction.axes
        if not any(a in runs for a in axes):
            return None
        if isinstance(op, Compute) and op.reduction is not None:
            self._check_reducer(op, op.reduction, runs)
        return tuple(runs.get(a, (known_extent(a.extent),)) for a in axes)

    def _check_reducer(self, op: Compute, reduction: Reduce, runs: dict[Axis, tuple[int, ...]]) -> None:
        kind = reduction.reducer.kind
        if kind not in _COMBINED:
            raise self._refusal(op, f"takes te.{kind} over {_named(a for a in reduction.axes if a in runs)}", "")
        if kind != "custom":
            return
        if any(a in runs for a in reduction.axes[1:]):
            raise self._refusal(op, "reduces by a te.reducer over several axes", "")
        parts = [b.index for b in op.bodies if isinstance(b, Reduce)]
        if parts != list(range(len(reduction.reducer.results))):
            raise self._refusal(op, "takes some of the results of a te.reducer", "")

    def _runs(self, op: Operation) -> dict[Axis, tuple[int, ...]]:
        """The axes of a stage that run along a dimension in chunks, with the sizes of their parts."""
        if isinstance(op, Extern):
            for arg in op.args:
                self._check_whole(op, arg, "is a Python function of all of")
            return {}
        runs: dict[Axis, tuple[int, ...]] = {}
        states = set(op.states) if isinstance(op, Scan) else set()
        for read in op.reads:
            if read.tensor in states:
                continue
            for dim, index in enumerate(read.indices):
                sizes = self.chunks[read.tensor][dim]
                if len(sizes) > 1:
                    self._check_index(op, read, dim, index)
                    for axis, found in _along(index, sizes):
                        runs.setdefault(axis, found)
        if isinstance(op, Scan):
            self._check_scan(op, runs)
        return runs

    def _check_index(self, op: Operation, read: Read, dim: int, index: Expr) -> None:
        if not is_data_free((index,)):
            raise self._refusal(op, f"reads `{read}`, where data say which element of dimension {dim}", _of(read))

    def _check_whole(self, op: Operation, tensor: Tensor, does: str) -> None:
        if any(len(sizes) > 1 for sizes in self.chunks[tensor]):
            raise self._refusal(op, f"{does} {tensor!r}", "")

    def _check_scan(self, op: Scan, runs: dict[Axis, tuple[int, ...]]) -> None:
        own = set(op.states)
        reads = [r for r in op.reads if r.tensor in own]
        for dim, axis in enumerate(op.axes):
            alone = dim not in op.dims and all(r.indices[dim] is axis for r in reads)
            if axis in runs and not alone:
                raise self._refusal(op, f"is a te.scan whose steps need all of its axis {axis.name!r}", "")
        inner = [a for node in op.nodes if isinstance(node, Reduce) for a in node.axes if a in runs]
        if inner:
            raise self._refusal(op, f"is a te.scan that reduces over {_named(inner)}", "")

    def _refusal(self, op: Operation, does: str, of: str) -> ValueError:
        return ValueError(
            f"{self.what}: stage {op.name!r} (defined at {op.where}) {does}, which lies in several chunks{of}; give "
            "arrays with one chunk along it: x.rechunk({dimension: -1})"
        )


def _of(read: Read) -> str:
    return f" ({read.tensor!r})"


def _named(axes: Iterator[Axis] | Sequence[Axis]) -> str:
    return ", ".join(repr(a.name) for a in axes)


def _iterations(op: Operation) -> int:
    """How often the body of a reduction or a scan is computed."""
    if isinstance(op, Scan):
        return math.prod(known_extent(a.extent) for a in op.axes)
    if not isinstance(op, Compute) or op.reduction is None:
        return 0
    return math.prod(known_extent(a.extent) for a in (*op.axes, *op.reduction.axes))


def _along(index: Expr, sizes: tuple[int, ...]) -> Iterator[tuple[Axis, tuple[int, ...]]]:
    """The axes that run along a dimension with these chunks, with the sizes of their own parts."""
    length = sum(sizes)
    axes = free_axes(index)
    for axis in axes:
        begin, extent = known_extent(axis.begin), known_extent(axis.extent)
        if extent < 2:
            continue
        places = np.unique(np.linspace(begin, begin + extent - 1, min(extent, TRIED)).astype(np.int64))
        pinned = {a: np.array([known_extent(a.begin)]) for a in axes if a is not axis}
        (values,) = values_at((index,), {**pinned, axis: places})
        moved = values.ravel()
        if 2 * _covered(moved, length) > length:
            found = _scaled(sizes if np.median(np.diff(moved)) >= 0 else sizes[::-1], extent)
            if len(found) > 1:
                yield axis, found


def _covered(values: np.ndarray[Any, Any], length: int) -> int:
    """The length of the shortest stretch of a dimension, taken as a ring, that holds all the values that lie in it."""
    inside = np.unique(values[(values >= 0) & (values < length)])
    if not inside.size:
        return 0
    gaps = np.diff(np.append(inside, inside[0] + length))
    return length - int(gaps.max()) + 1


def _scaled(sizes: tuple[int, ...], extent: int) -> tuple[int, ...]:
    """Parts of an axis in proportion to chunks."""
    length = sum(sizes)
    edges = [0, *(edge * extent // length for edge in accumulate(sizes))]
    return tuple(b - a for a, b in pairwise(edges) if b > a)
