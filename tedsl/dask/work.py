"""What a worker does: one block of a program, from the parts of arrays that it needs.

A worker traces the operator itself, once, since expressions cannot be pickled; kernels are kept by the structure of the
block's program, which blocks at equal distance from the borders share.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tedsl.analysis.pointwise import apply_numpy
from tedsl.backend.build import build
from tedsl.blocks.crop import Cropped, CropTarget, crop
from tedsl.blocks.local import Box
from tedsl.dask.carry import packed, unpacked
from tedsl.lang.dataclass import dataclass
from tedsl.lang.expr import Apply, Const, Expr
from tedsl.lang.locks import cached_property, freed_in_children
from tedsl.lang.reducers import Reducer
from tedsl.lang.structure import structural_key
from tedsl.lang.tensor import Compute, Operation, Scatter, Tensor
from tedsl.lang.traverse import operations_between, topological
from tedsl.ops.op import Op
from tedsl.ops.routines import Pullback, Routine, TracedRoutine
from tedsl.ops.shapes import Spec
from tedsl.ops.signature import Template

__all__ = ["DaskProgram", "Job", "Place", "assembled", "combined", "part", "run"]

Array = np.ndarray[Any, Any]
Place = tuple[int, int]  # of a tensor: which operation, which of its outputs
Job = tuple[tuple[Place, ...], tuple[tuple[int, Box, Box | None], ...]]  # what is given, what to compute

MOST_PROGRAMS = 64
MOST_KERNELS = 512


@dataclass(frozen=True, eq=False)
class DaskProgram:
    """An operator, or its reverse derivative, for arrays of given shapes."""

    routine: Routine
    specs: tuple[Spec, ...]
    data: bytes  # what another process makes it from

    @classmethod
    def of(cls, op: Op, template: Template, specs: tuple[Spec, ...], pull: tuple[Any, ...] | None) -> DaskProgram:
        """The program of a call."""
        data = packed((op, template, specs, pull))
        return cls(_routine(op, template, pull), specs, data)

    @cached_property
    def traced(self) -> TracedRoutine:
        return self.routine.exact(self.specs)

    @cached_property
    def operations(self) -> list[Operation]:
        """Every operation, in an order that is the same in each process."""
        return operations_between((), [*self.traced.inputs, *self.traced.outputs])

    @cached_property
    def places(self) -> dict[Tensor, Place]:
        return {t: (n, k) for n, op in enumerate(self.operations) for k, t in enumerate(op.outputs)}

    @cached_property
    def key(self) -> str:
        return structural_key(self.traced.outputs, self.traced.inputs)

    def tensor(self, place: Place) -> Tensor:
        return self.operations[place[0]].output(place[1])

    def cropped(self, job: Job) -> Cropped:
        """The program of a block."""
        given, targets = job
        wanted = [CropTarget(self.operations[n], box, terms) for n, box, terms in targets]
        return crop([self.tensor(p) for p in given], wanted)


def _routine(op: Op, template: Template, pull: tuple[Any, ...] | None) -> Routine:
    routine: Routine = op.definition(template)
    return routine if pull is None else routine.derived(Pullback, *pull)


@functools.lru_cache(MOST_PROGRAMS)
def _loaded(data: bytes, key: str) -> DaskProgram:
    op, template, specs, pull = unpacked(data)
    found = DaskProgram(_routine(op, template, pull), specs, data)
    if found.key != key:
        raise RuntimeError(
            f"op {op.name}: a worker's process traces another program than the client's; the function, or tedsl, "
            "differs between the two, or it depends on more than its arguments"
        )
    return found


def assembled(box: Box, pieces: Sequence[tuple[tuple[slice, ...], Array]]) -> Array:
    """The array of a box, from pieces and their places in it."""
    if len(pieces) == 1:
        return np.asarray(pieces[0][1])
    whole = np.empty([b - a for a, b in box], np.asarray(pieces[0][1]).dtype)
    for place, piece in pieces:
        whole[place] = piece
    return whole


def part(array: Any, place: tuple[slice, ...]) -> Array:
    """A part of a chunk, in memory of its own: what is sent to a neighbor."""
    return np.ascontiguousarray(np.asarray(array)[place]).reshape([s.stop - s.start for s in place])


def run(program: tuple[bytes, str], job: Job, places: Any, pieces: Sequence[Sequence[Array]]) -> tuple[Array, ...]:
    """The results of one block; `places` says where the pieces of each window belong."""
    loaded = _loaded(*program)
    cropped = loaded.cropped(job)
    windows = [
        assembled(w.box, list(zip(where, parts, strict=True)))
        for w, where, parts in zip(cropped.windows, places, pieces, strict=True)
    ]
    return _computed(cropped, windows, loaded.routine.name)


def _computed(cropped: Cropped, windows: Sequence[Array], name: str) -> tuple[Array, ...]:
    """The results of a block's program for its windows."""
    inputs = cropped.inputs
    numbers = [np.asarray(n, np.int32) for _, n in cropped.origins]
    results = _kernel(inputs, list(cropped.outputs), name)(*windows, *numbers)
    found = zip(results, cropped.slices, cropped.outputs, strict=True)
    return tuple(_sliced(np.asarray(r), s, t) for r, s, t in found)


def _sliced(result: Array, place: tuple[slice, ...], tensor: Tensor) -> Array:
    wanted = tuple(s.stop - s.start for s in place)
    return result if wanted == result.shape else np.ascontiguousarray(result[place]).reshape(wanted)


_KERNELS: dict[str, Any] = {}
_BUILDING = freed_in_children(threading.Lock())


def _kernel(inputs: list[Tensor], outputs: list[Tensor], name: str) -> Callable[..., Any]:
    key = structural_key(outputs, inputs)
    with _BUILDING:
        found = _KERNELS.get(key)
        if found is None:
            if len(_KERNELS) >= MOST_KERNELS:
                _KERNELS.clear()
            found = _KERNELS[key] = build(inputs, outputs, name=name)
    kernel: Callable[..., Any] = found
    return kernel


_UFUNCS: dict[str, Any] = {
    "sum": np.add, "add": np.add, "prod": np.multiply, "mul": np.multiply, "max": np.maximum, "min": np.minimum,
    "any": np.logical_or, "all": np.logical_and,
}  # fmt: skip


def combined(program: tuple[bytes, str], number: int, parts: Sequence[tuple[Array, ...]]) -> tuple[Array, ...]:
    """The results of one operation from those of parts of what it reduces, in order."""
    op = _loaded(*program).operations[number]
    total = parts[0]
    for other in parts[1:]:
        total = _combined(op, total, other)
    return total


def _combined(op: Operation, a: tuple[Array, ...], b: tuple[Array, ...]) -> tuple[Array, ...]:
    if isinstance(op, Scatter):
        return tuple(_UFUNCS[op.kind](x, y) for x, y in zip(a, b, strict=True))
    assert isinstance(op, Compute)
    assert op.reduction is not None
    reducer = op.reduction.reducer
    if not reducer.is_custom:
        return tuple(_UFUNCS[reducer.kind](x, y) for x, y in zip(a, b, strict=True))
    return _custom(op, reducer, a, b)


def _custom(op: Compute, reducer: Reducer, a: tuple[Array, ...], b: tuple[Array, ...]) -> tuple[Array, ...]:
    """Combined by the user's expressions. A stage need not have all components: they are there by their number."""
    value: dict[Expr, Array] = {
        **dict(zip(reducer.left, a, strict=True)), **dict(zip(reducer.right, b, strict=True))
    }  # fmt: skip
    for node in topological(reducer.results):
        if isinstance(node, Const):
            value[node] = np.asarray(node.value, str(node.dtype))
        elif isinstance(node, Apply):
            value[node] = apply_numpy(node.fn, [value[x] for x in node.args], node.dtype)
    return tuple(value[r] for r in reducer.results)
