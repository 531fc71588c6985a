"""Forms of a program: code for arrays that lie in memory in one way, and for outputs that are written in one way.

A form is a layout, what may be assumed of numbers, and a mode for each output. The layouts are ordered: a call takes
the first that fits its arrays. So are the assumptions on numbers: the next is taken where the one before failed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import field
from enum import Enum

from tedsl.analysis.pointwise import Array
from tedsl.backend.arguments.layouts import LARGEST
from tedsl.backend.compiling.facts import KnownFacts
from tedsl.backend.host.runtime import KernelError
from tedsl.backend.lowering.index_checks import Checks
from tedsl.lang.dataclass import dataclass
from tedsl.lang.expr import SIZE_MAX

__all__ = [
    "COMPACT",
    "DENSE",
    "LAYOUTS",
    "MERGED",
    "ArrayLayout",
    "Form",
    "Numbers",
    "is_dense",
    "layout_of",
    "usual_layout",
]


@dataclass(frozen=True)
class ArrayLayout:
    """How the arrays of a call lie in memory; `fits` says for which it is, where none before it is."""

    name: str
    fits: Callable[[KnownFacts, _Seen], bool] = field(repr=False, compare=False)
    is_dense: bool = True  # every last axis of more than one element steps by one
    is_large: bool = False  # some array holds more than 2**31 - 1 bytes


COMPACT = ArrayLayout("compact", lambda facts, seen: facts.is_compact and seen.is_compact(facts.strides))
MERGED = ArrayLayout("merged", lambda facts, seen: facts.merging is not None and seen.is_contiguous)
DENSE = ArrayLayout("dense", lambda facts, seen: seen.is_dense and not seen.is_large)
STRIDED = ArrayLayout("strided", lambda facts, seen: not seen.is_large, is_dense=False)
LARGE = ArrayLayout("large", lambda facts, seen: seen.is_dense, is_large=True)
LARGE_STRIDED = ArrayLayout("large and strided", lambda facts, seen: True, is_dense=False, is_large=True)

# Compact: contiguous, or boxes of what is, and of shapes that are known, so the code knows all strides (and short rows
# of results may be one with the next, `flattening`). Merged: contiguous, so axes that are
# walked together are one. The others take any arrays of which no more holds than they say.
LAYOUTS = (COMPACT, MERGED, DENSE, STRIDED, LARGE, LARGE_STRIDED)


class Numbers(Enum):
    """What a form assumes of the elements of its arrays."""

    FINITE = "finite"  # a border's weights are multiplied by 0; where the code finds an inf or NaN it fails first
    ANY = "any"  # none of that

    def answers(self, failure: Exception) -> bool:
        """Whether it is right where the assumption before it failed, before anything was written."""
        return self is Numbers.ANY and isinstance(failure, KernelError) and Checks.found_infinity(failure.requirement)


@dataclass(frozen=True)
class Form:
    """What a variant is compiled for."""

    modes: tuple[str, ...]  # "write", "add" or "null" for each output
    layout: ArrayLayout = DENSE
    numbers: Numbers = Numbers.FINITE

    @property
    def is_plain(self) -> bool:
        """Whether it is without rewrites that hold for finite numbers only."""
        return self.numbers is Numbers.ANY


@dataclass(frozen=True)
class _Seen:
    """What layouts look at: the arrays, and whether something inside is large."""

    arrays: Sequence[Array]
    is_large: bool

    @property
    def is_dense(self) -> bool:
        return all(map(is_dense, self.arrays))

    @property
    def is_contiguous(self) -> bool:
        return not self.is_large and all(a.flags.c_contiguous and _has_short_rows(a) for a in self.arrays)

    def is_compact(self, strides: Sequence[Sequence[int]]) -> bool:
        """Whether all lie as is known: the first ones by those strides that are given, contiguous else."""
        told = [*strides, *[()] * (len(self.arrays) - len(strides))]
        lying = zip(self.arrays, told, strict=True)
        return not self.is_large and all(_steps_by(a, s) if s else a.flags.c_contiguous for a, s in lying)


def layout_of(facts: KnownFacts, arrays: Sequence[Array], *, has_large_stage: bool) -> ArrayLayout:
    """The first layout that fits the arrays of a call."""
    seen = _Seen(arrays, any(map(_is_large, arrays)) or has_large_stage)
    return next(layout for layout in LAYOUTS if layout.fits(facts, seen))


def usual_layout(facts: KnownFacts) -> ArrayLayout:
    """The one for contiguous arrays, below two gigabytes where their shapes are not known."""
    if facts.is_large:
        return LARGE
    return MERGED if facts.merging is not None else COMPACT if facts.is_compact else DENSE


def is_dense(array: Array) -> bool:
    """Whether the last axis steps by one element; of those that have only one, the axis before it."""
    last = next((k for k in reversed(range(array.ndim)) if array.shape[k] != 1), None)
    return last is None or array.shape[last] == 0 or array.strides[last] == array.itemsize


def _steps_by(array: Array, strides: Sequence[int]) -> bool:
    steps = zip(array.shape, array.strides, strides, strict=True)
    return all(n == 1 or step == expected * array.itemsize for n, step, expected in steps)


def _has_short_rows(array: Array) -> bool:
    """Whether axes that are one are no longer than an extent may be, also in an array that has no elements."""
    longest = math.prod(n or 1 for n in array.shape)
    return longest <= SIZE_MAX and longest * array.itemsize <= LARGEST


def _is_large(array: Array) -> bool:
    """Whether an array, or one of its axes alone, spans more bytes than int32 holds, or it has more elements than that.

    Few bytes may be repeated as many elements, and an axis may be long in an array that has none.
    """
    span = sum((n - 1) * abs(s) for n, s in zip(array.shape, array.strides, strict=True)) + array.itemsize
    longest = max(array.shape, default=1) * array.itemsize
    return bool(max(span, longest, array.size) > LARGEST)
