"""What a program says of itself before it is compiled, and what a call's sizes add: which forms of it there can be."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from typing import Any, Protocol

from schedules.flattening import flattened
from schedules.merging import Merging
from schedules.other_axes import on_other_axes
from tedsl.analysis.affine import affine_of
from tedsl.analysis.known_places import KnownPlaces
from tedsl.analysis.overflow import Limit, limits_of
from tedsl.analysis.sizes import concrete_shape, evaluate_extent, known_shape, sizes_of
from tedsl.backend.arguments.layouts import LARGEST
from tedsl.backend.host.targets import Target
from tedsl.backend.lowering.index_checks import checks_of
from tedsl.backend.lowering.natives import native_alone
from tedsl.backend.scheduling.planner import Planner
from tedsl.lang.dataclass import dataclass
from tedsl.lang.expr import Const, Expr, Var
from tedsl.lang.extents import number
from tedsl.lang.locks import cached_property
from tedsl.lang.tensor import Compute, Operation, Placeholder, Scatter, Tensor
from tedsl.lang.traverse import free_axes, operations_between, reads_of, substitute_all

__all__ = ["FoundFacts", "KnownFacts", "ProgramFacts", "strides_among"]

Sizes = Mapping[Var, int]
NARROW = 64  # elements of a row


class KnownFacts(Protocol):
    """The questions; an array is anything that has a shape."""

    @property
    def checks_indices(self) -> bool:
        """Whether a call looks for indices out of bounds."""

    @property
    def is_compact(self) -> bool:
        """Whether it is usually called with contiguous arrays of known shapes: parts, and what has short rows."""

    @property
    def strides(self) -> Sequence[Sequence[int]]:
        """Of the inputs, in elements, where these are boxes of larger arrays; empty for others."""

    @property
    def is_large(self) -> bool:
        """Whether some array is larger than int32 counts at every call."""

    @property
    def merging(self) -> Merging | None:
        """The program with axes that it walks together as one, where that is left to us and fills vectors better."""

    @property
    def flattening(self) -> Merging | None:
        """The program with results of longer rows, for contiguous arrays of known shapes, likewise."""

    @property
    def limits(self) -> Sequence[Limit]:
        """What the sizes of a call must keep to, so that no index leaves its type."""

    def has_empty_stage(self, inputs: Sequence[Any], sizes: Sizes) -> bool:
        """Whether something read is empty though the result is not: clamped reads then have no element to read."""

    def has_large_stage(self, sizes: Sizes) -> bool:
        """Whether some tensor is larger than int32 counts at this call."""


@dataclass(frozen=True, eq=False)
class ProgramFacts:
    """The answers of a program that is here."""

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    name: str
    target: Target
    planner: Planner

    @property
    def _operations(self) -> list[Operation]:
        return operations_between(self.inputs, self.outputs)

    @cached_property
    def between(self) -> list[Tensor]:
        """All that is computed."""
        return [t for op in self._operations for t in op.outputs]

    @property
    def _tensors(self) -> list[Tensor]:
        return [*self.inputs, *self.outputs, *self.between]

    @cached_property
    def _loops(self) -> dict[Operation, list[Expr]]:
        return {op: extents for op in self._operations if (extents := _symbolic_loops(op))}

    @cached_property
    def limits(self) -> list[Limit]:
        return limits_of(self._operations)

    @property
    def is_always_empty(self) -> bool:
        """Whether some tensor has an extent that is 0 at every call: no compiled form is needed to answer."""
        return any(isinstance(e, Const) and e.value == 0 for t in self._tensors for e in t.extents)

    @cached_property
    def is_always_alike(self) -> bool:
        """Whether every extent is a number above 0, and no stage is so large that its form is another one."""
        if self.is_always_empty or sizes_of(self.inputs, self.outputs):
            return False
        return not self.has_large_stage({})

    @cached_property
    def checks_indices(self) -> bool:
        checks = checks_of(self._operations)
        if not checks or self.planner.automatic:
            return bool(checks)
        places = KnownPlaces(self.inputs)
        return not {c for op in self._operations for c in places.settled(op)}.issuperset(checks)

    @cached_property
    def strides(self) -> tuple[tuple[int, ...], ...]:
        return strides_among(self.inputs)

    @cached_property
    def is_large(self) -> bool:
        known = ((shape, t) for t in self._tensors if (shape := known_shape(t)) is not None)
        return any(math.prod(shape) * t.dtype.itemsize > LARGEST for shape, t in known)

    @cached_property
    def is_compact(self) -> bool:
        tensors = (*self.inputs, *self.outputs)
        if self.target.backend != "host" or (self.planner.part is None and not self._is_narrow(tensors)):
            return False
        sizes = [(math.prod(shape), t.dtype) for t in tensors if (shape := known_shape(t)) is not None]
        return len(sizes) == len(tensors) and all(0 < n * dtype.itemsize <= LARGEST for n, dtype in sizes)

    def _is_narrow(self, tensors: Sequence[Tensor]) -> bool:
        """Whether rows are so short that vectors run on into the next one, for which strides must be known."""
        if self.planner.is_asked or self.merging is not None:
            return False
        if native_alone(self.inputs, self.outputs):  # a routine takes arrays of the dimensions that they have
            return False
        rows = [number(t.extents[-1]) for t in tensors if t.ndim > 1]
        return any(n is not None and n < NARROW for n in rows)

    @cached_property
    def merging(self) -> Merging | None:
        planned = self.planner.is_asked or self.planner.part is not None
        if planned or self.target.backend != "host":
            return None
        merging = on_other_axes(self.inputs, self.outputs)
        # Most programs have no other axes, and a cut one asks its kernels whether they check indices, not the whole.
        return None if merging is None or self.checks_indices else merging

    @cached_property
    def flattening(self) -> Merging | None:
        is_ours = self.planner.part is None and not self.planner.is_asked and not self.planner.in_place
        may_flatten = is_ours and self.is_compact and not self.checks_indices
        return flattened(self.inputs, self.outputs) if may_flatten else None

    def has_empty_stage(self, inputs: Sequence[Any], sizes: Sizes) -> bool:
        if any(0 in a.shape for a in inputs):
            return True
        empty = {t for t in self.between if 0 in concrete_shape(t, sizes, self.name)}
        idle = {op for op in self._loops if self._is_idle(op, sizes)}
        if not empty and not idle:
            return False
        passed = {op for op in idle if self._is_passed(op)}
        left = (self._is_left_out(t, empty, passed) and self._begins_inside(t.op, sizes) for t in empty)
        return passed != idle or not all(left)

    def _is_passed(self, op: Operation) -> bool:
        """Whether Halide may be left with a sum over nothing: what it reads there moves step by step, so that no range
        begins before the first one."""
        is_plain = isinstance(op, Compute) and self.target.backend == "host"
        return is_plain and all(affine_of(i) is not None for read in op.reads for i in read.indices)

    def _is_left_out(self, tensor: Tensor, empty: Set[Tensor], passed: Set[Operation]) -> bool:
        """Whether nothing asks for an element of an empty tensor: sums over nothing alone, or what is empty as well."""
        if any(tensor is t for t in self.outputs):
            return False
        return all(
            op in passed or (empty >= {*op.outputs} and self._is_passed(op)) for op in self._readers.get(tensor, ())
        )

    def _begins_inside(self, op: Operation, sizes: Sizes) -> bool:
        """Whether the first element of a stage would read within bounds, if there were one: Halide asks for it."""
        if not isinstance(op, Compute):
            return False
        first: dict[Expr, Expr] = {axis: axis.begin for axis in op.axes}
        for read in op.reads:
            places, shape = substitute_all(read.indices, first), concrete_shape(read.tensor, sizes, self.name)
            if any(free_axes(place) or reads_of((place,)) for place in places):
                return False
            if any(not 0 <= evaluate_extent(p, sizes, self.name) < n for p, n in zip(places, shape, strict=True)):
                return False
        return True

    @cached_property
    def _readers(self) -> dict[Tensor, list[Operation]]:
        found: dict[Tensor, list[Operation]] = {}
        for op in self._operations:
            for t in op.inputs:
                found.setdefault(t, []).append(op)
        return found

    def has_large_stage(self, sizes: Sizes) -> bool:
        return any(math.prod(concrete_shape(t, sizes, self.name)) * t.dtype.itemsize > LARGEST for t in self.between)

    def touched_by_empty(self, inputs: Sequence[Any], sizes: Sizes) -> dict[Operation, None]:
        """The operations that make or depend on a tensor that is empty at this call."""
        empty = {t for t, a in zip(self.inputs, inputs, strict=True) if a.size == 0}
        empty |= {t for t in self.between if 0 in concrete_shape(t, sizes, self.name)}
        touched: dict[Operation, None] = {}
        for op in self._operations:
            if self._is_idle(op, sizes) or not empty.isdisjoint((*op.inputs, *op.outputs)):
                empty.update(op.outputs)
                touched[op] = None
        return touched

    def _is_idle(self, op: Operation, sizes: Sizes) -> bool:
        """Whether an operation sums or scatters nothing at this call; Halide takes its loop to begin at -1."""
        return any(evaluate_extent(e, sizes, self.name) == 0 for e in self._loops.get(op, ()))


@dataclass(frozen=True)
class FoundFacts:
    """The answers for a kernel whose code was found on the disk: it is kept only where all extents are numbers."""

    checks_indices: bool
    is_compact: bool
    is_large: bool = False
    merging: Merging | None = None  # its code is that of a part, which is compiled as it was cut
    flattening: Merging | None = None
    limits: Sequence[Limit] = ()
    strides: Sequence[Sequence[int]] = ()

    def has_empty_stage(self, inputs: Sequence[Any], sizes: Sizes) -> bool:
        return False

    def has_large_stage(self, sizes: Sizes) -> bool:
        return False


def strides_among(inputs: Sequence[Tensor]) -> tuple[tuple[int, ...], ...]:
    """The strides of inputs that are boxes of larger arrays; empty for others."""
    return tuple(t.op.strides if isinstance(t.op, Placeholder) else () for t in inputs)


def _symbolic_loops(op: Operation) -> list[Expr]:
    """The extents of what an operation reduces or scatters over that are known at a call only."""
    reduction = op.reduction if isinstance(op, Compute) else None
    axes = op.axes if isinstance(op, Scatter) else reduction.axes if reduction is not None else ()
    return [a.extent for a in axes if a.extent is not None and not isinstance(a.extent, Const)]
