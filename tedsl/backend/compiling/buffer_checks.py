"""Which of Halide's checks of arrays hold for arrays of known shapes: kernels are compiled without those.

At the beginning of a call, Halide compares every field of every array with what the code expects, 30 and more
comparisons with a message each: more than half of what LLVM compiles. Where extents are numbers, all of it is known
when the kernel is made. So the checks are read in Halide's own text of the kernel and proven there, among them that no
element beyond an array is read or written; what the proof supposes of an array is tested when its argument block is
laid out. Where one check is not proven, the kernel keeps all of them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence

from tedsl.backend.arguments.layouts import LARGEST, Shape

__all__ = ["are_proven"]


_SIGNATURE = re.compile(r"^external_plus_metadata func \S+ \(([^)]*)\) \{$", re.MULTILINE)
_CHECK = re.compile(r"^\s*assert\((.*)\)$", re.MULTILINE)
_ERROR = re.compile(r", halide_error_(\w+)\((.*)\)$")
_NUMBER = r"(-?\d+)"
_NAME = r'"(?:Input buffer |Output buffer )?([^"]+)"'
_ACCESS = re.compile(rf"{_NAME}, (\d+), {_NUMBER}, {_NUMBER}, .*")
_FIELD = re.compile(rf'"(.+)\.(min|extent|stride)\.(\d+)", [^,]+, "{_NUMBER}", {_NUMBER}')
_BOUNDS = re.compile(rf'"[^"]+", "[^"]+", {_NUMBER}, {_NUMBER}, (\S+)\.min\.(\d+), .*')
_RANK = re.compile(rf"{_NAME}, [^,]+, (\d+)")
_ZERO = re.compile(r"(?<=, )opaque_zero(?: \+ (\d+))?(?=, )")
_ASKED = "!(uint1)_halide_buffer_is_bounds_query("  # a call without memory, which asks for sizes: there is none
_TASK = re.compile(r"(\S+) == 0, \1")  # what a parallel loop returned: `assembly.allocation_failures` hands it on


def are_proven(text: str, shapes: Sequence[Shape | None], *, compact: bool = False) -> bool:
    """Whether all checks in the text of a kernel hold for arrays of these shapes, one for each argument, None for
    numbers; arrays are smaller than 2 GB, and the elements of their last axis, or all if they are `compact`, lie side
    by side."""
    signature = _SIGNATURE.search(text)
    names = signature[1].split(", ")[1:] if signature is not None else []
    if len(names) != len(shapes) or any(s is not None and math.prod(s) > LARGEST for s in shapes):
        return False
    known = {name: s for name, s in zip(names, shapes, strict=True) if s is not None}
    checks = _CHECK.findall(text)
    return len(checks) == text.count("assert(") and all(_holds(_in_numbers(c), known, compact) for c in checks)


def _in_numbers(check: str) -> str:
    """A check with 0 for the argument that always is."""
    return _ZERO.sub(lambda match: match[1] or "0", check)


def _holds(check: str, known: dict[str, Shape], compact: bool) -> bool:
    if _TASK.fullmatch(check):
        return True
    error = _ERROR.search(check)
    if error is None:
        return False
    if error[1] in _BY_LAYOUT or check.startswith(_ASKED):
        return True
    if error[1] == "constraint_violated":
        return _constraint(error[2], known, compact)
    rule = _RULES.get(error[1])
    try:
        return rule is not None and rule(error[2], known)
    except (KeyError, IndexError):
        return False


def _extent(known: dict[str, Shape], name: str, dimension: str) -> int:
    """Halide counts dimensions from the innermost."""
    return known[name][::-1][int(dimension)]


def _access(said: str, known: dict[str, Shape]) -> bool:
    """No element before the first or behind the last is needed."""
    match = _ACCESS.fullmatch(said)
    return match is not None and int(match[3]) >= 0 and int(match[4]) < _extent(known, match[1], match[2])


def _constraint(said: str, known: dict[str, Shape], compact: bool) -> bool:
    match = _FIELD.fullmatch(said)
    if match is None or match[4] != match[5]:
        return False
    name, kind, dimension, value = match[1], match[2], int(match[3]), int(match[4])
    if name not in known or dimension >= len(known[name]):
        return False
    inner = known[name][::-1][:dimension]
    if kind == "stride":
        return value == math.prod(inner) if compact else (dimension, value) == (0, 1)
    return value == (_extent(known, name, match[3]) if kind == "extent" else 0)


def _bounds(said: str, known: dict[str, Shape]) -> bool:
    """What is computed of an output is no less than its array."""
    match = _BOUNDS.fullmatch(said)
    return match is not None and int(match[1]) <= 0 and int(match[2]) >= _extent(known, match[3], match[4]) - 1


def _rank(said: str, known: dict[str, Shape]) -> bool:
    match = _RANK.fullmatch(said)
    return match is not None and len(known[match[1]]) == int(match[2])


# What an argument block says in any case (`blocks.lay_out`), and sizes, which `misfit` tests.
_BY_LAYOUT = frozenset(
    ["buffer_argument_is_null", "host_is_null", "device_dirty_with_no_device_support", "bad_type",
     "buffer_extents_negative", "buffer_allocation_too_large", "buffer_extents_too_large"]
)  # fmt: skip
_RULES: dict[str, Callable[[str, dict[str, Shape]], bool]] = {
    "access_out_of_bounds": _access,
    "explicit_bounds_too_small": _bounds,
    "bad_dimensions": _rank,
}
