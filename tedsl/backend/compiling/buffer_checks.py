"""Which of Halide's checks of arrays hold for arrays of known shapes: kernels are compiled without those.

At the beginning of a call, Halide compares every field of every array with what the code expects, 30 and more
comparisons with a message each: more than half of what LLVM compiles. Where extents are numbers, all of it is known
when the kernel is made. So the checks are read in Halide's own text of the kernel and computed, among them that no
element beyond an array is read or written; what the proof supposes of an array is tested when its argument block is
laid out. Where one check is not true for sure, the kernel keeps all of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tedsl.backend.arguments.layouts import LARGEST, Shape
from tedsl.backend.halide_text.expressions import HalideCall
from tedsl.backend.halide_text.programs import HalideProgram, read_field
from tedsl.backend.halide_text.values import Calls, Value

__all__ = ["are_proven", "have_places", "unproven"]

# What an argument block says in any case (`blocks.lay_out`), and sizes, which `misfit` tests.
BY_LAYOUT = frozenset(
    ["buffer_argument_is_null", "host_is_null", "device_dirty_with_no_device_support", "bad_type",
     "buffer_extents_negative", "buffer_allocation_too_large", "buffer_extents_too_large"]
)  # fmt: skip
# What is true of arrays for which it is computed to be.
OF_SHAPES = frozenset(
    ["access_out_of_bounds", "bad_dimensions", "constraint_violated", "constraints_make_required_region_smaller",
     "explicit_bounds_too_small"]
)  # fmt: skip


def are_proven(text: str, shapes: Sequence[Shape | None], *, compact: bool = False) -> bool:
    """Whether all checks in the text of a kernel hold for arrays of these shapes, one for each argument, None for the
    number that is always 0; arrays are smaller than 2 GB, and the elements of their last axis, or all if they are
    `compact`, lie side by side."""
    return unproven(text, shapes, compact=compact) == ()


def unproven(text: str, shapes: Sequence[Shape | None], *, compact: bool = False) -> tuple[str, ...] | None:
    """The errors whose checks may fail; None where the text, or what it is to hold for, is not of a known form."""
    program = HalideProgram(text)
    names, checks = program.arguments, program.checks
    if names is None or checks is None or len(names) != len(shapes):
        return None
    if not _fit(shapes):
        return None
    arrays = {name: s for name, s in zip(names, shapes, strict=True) if s is not None}
    zeros = {name: 0 for name in names if name not in arrays}
    values = program.values(zeros, _fields_of(arrays, compact))
    return tuple(
        c.error for c in checks
        if c.error not in BY_LAYOUT and (c.error not in OF_SHAPES or values.of(c.condition) is not True)
    )  # fmt: skip


def have_places(shapes: Sequence[Shape | None]) -> bool:
    """Whether there are arrays of these shapes, and each has an element that can be read in place of any other."""
    return _fit(shapes) and all(s is None or math.prod(s) > 0 for s in shapes)


def _fit(shapes: Sequence[Shape | None]) -> bool:
    return all(s is None or math.prod(s) <= LARGEST for s in shapes)


def _fields_of(arrays: Mapping[str, Shape], compact: bool) -> Calls:
    """What Halide's functions say of the fields of the arrays."""

    def value(call: HalideCall) -> Value:
        asked = read_field(call)
        if asked is None or asked[0] not in arrays:
            return None
        name, field, dimension = asked
        return _field(arrays[name][::-1], field, dimension, compact)  # Halide counts dimensions from the innermost

    return value


def _field(extents: Shape, field: str, dimension: int, compact: bool) -> Value:
    if field == "is_bounds_query":  # a call without memory, which asks for sizes: there is none
        return False
    if field == "dimensions":
        return len(extents)
    if not 0 <= dimension < len(extents):
        return None
    if field == "stride":
        is_last = dimension == 0 or (math.prod(extents[:dimension]) == 1 and extents[dimension] > 1)
        return math.prod(extents[:dimension]) if compact or is_last else None
    return {"min": 0, "extent": extents[dimension]}.get(field)
