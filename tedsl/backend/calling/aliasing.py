"""Arrays that share memory: what `alias=` and `out=` may do, and what a call does where it is not known to be safe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tedsl.analysis.hazards import Hazard
from tedsl.analysis.pointwise import Array
from tedsl.backend.arguments.addresses import address_of
from tedsl.backend.compiling.executable import Executable
from tedsl.backend.compiling.forms import Form
from tedsl.backend.sequence.temporaries_in_inputs import fit_problem
from tedsl.lang.errors import AliasError
from tedsl.lang.tensor import Tensor

__all__ = [
    "alias_positions",
    "check_proof",
    "has_shared_elements",
    "hazards_in",
    "in_place_problem",
    "overlap",
    "same_place",
]


def alias_positions(
    alias: Mapping[Tensor, Tensor], inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]
) -> dict[int, int]:
    """Position of the output -> position of the input whose memory it takes."""
    places: dict[int, int] = {}
    for output, memory in alias.items():
        if output not in set(outputs) or memory not in set(inputs):
            raise ValueError(f"te.build: alias maps an output to an input, found {{{output!r}: {memory!r}}}")
        problem = fit_problem(output, memory)
        if problem is not None:
            kind = TypeError if output.dtype is not memory.dtype else ValueError
            raise kind(f"te.build: alias: {output!r} cannot be written into {memory!r}, {problem}")
        position = next(p for p, t in enumerate(inputs) if t is memory)
        if position in places.values():
            raise AliasError(f"te.build: alias: two outputs are to be written into {memory!r}; give each its own")
        places[next(p for p, t in enumerate(outputs) if t is output)] = position
    return places


def check_proof(
    core: Executable, places: Mapping[int, int], outputs: Sequence[Tensor], inputs: Sequence[Tensor]
) -> None:
    """AliasError unless the compiled program may write its outputs into the memory of these inputs."""
    for position, hazard in hazards_in(core, places).items():
        output, memory = outputs[position], inputs[places[position]]
        raise AliasError(
            f"te.build: alias: {output!r} cannot be written into the memory of {memory!r}: "
            f"{hazard.text(output, memory)}; give donate=[{memory.name}] in place of alias=, "
            "which orders the stages by what they read, on_hazard='copy' to go through a temporary, or another schedule"
        )


def hazards_in(core: Executable, places: Mapping[int, int]) -> dict[int, Hazard]:
    """Position of an output -> why it cannot be written into the memory of its input."""
    if core.program.facts.is_always_empty:
        return {}
    found = {position: core.hazard(position, core.program.inputs[source]) for position, source in places.items()}
    return {position: hazard for position, hazard in found.items() if hazard is not None}


def in_place_problem(
    core: Executable, form: Form, position: int, output: Tensor, tensor: Tensor, source: Tensor
) -> str | None:
    """Why an output must not be written over the very memory of the input `source`, which the user calls `tensor`."""
    hazard = core.hazard(position, source, form)
    return None if hazard is None else f"overlaps input {tensor.name!r}: {hazard.text(output, tensor)}"


def overlap(a: Array, b: Array) -> bool:
    """Whether two arrays have a byte in common: exact, for any strides."""
    return bool(np.may_share_memory(a, b)) and bool(np.shares_memory(a, b))


def same_place(a: Array, b: Array) -> bool:
    """Whether two arrays lie element on element."""
    same = a.shape == b.shape and a.dtype == b.dtype and address_of(a) == address_of(b)
    return same and all(n <= 1 or s == t for n, s, t in zip(a.shape, a.strides, b.strides, strict=True))


def has_shared_elements(array: Array) -> bool:
    """Whether two elements of an array share memory."""
    moving = sorted((abs(s), n) for n, s in zip(array.shape, array.strides, strict=True) if n > 1)
    if 0 in array.shape:
        return False
    reach = array.itemsize
    for step, extent in moving:
        if step < reach:
            return _meet(array)
        reach += step * (extent - 1)
    return False


def _meet(array: Array) -> bool:
    """By walking over all elements: their axes interleave in memory."""
    offsets: Any = np.zeros(1, np.int64)
    for extent, stride in zip(array.shape, array.strides, strict=True):
        offsets = (offsets[:, None] + np.arange(extent) * stride).reshape(-1)
    return bool((np.diff(np.sort(offsets)) < array.itemsize).any())
