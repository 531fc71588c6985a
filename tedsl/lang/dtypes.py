"""Element types and their promotion: NumPy 2's rules, with bfloat16 added as JAX has it.

A `DType` is a string, so that it prints, compares and serializes as users write it ("float32").
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, cast

import numpy as np

from tedsl.lang.errors import user_location

__all__ = [
    "ALL", "BFLOAT16", "BOOL", "BOTTOM", "DTYPE_NAMES", "FLOAT16", "FLOAT32", "FLOAT64", "INDEX", "INT8", "INT16",
    "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64", "DType", "Kind", "as_dtype", "default_type", "divide_type",
    "dtype_of_array", "float_type", "integer_bounds", "is_masked", "promote",
]  # fmt: skip


class DType(str):
    """One element type; equal to its name and to NumPy's type of that name."""

    __slots__ = ("bits", "is_bool", "is_float", "is_integer", "kind")
    kind: str
    bits: int
    is_float: bool
    is_integer: bool
    is_bool: bool

    def __new__(cls, name: str, kind: str, bits: int) -> DType:
        self = super().__new__(cls, name)
        self.kind = kind
        self.bits = bits
        self.is_float, self.is_integer, self.is_bool = kind == "f", kind in "iu", kind == "b"
        return self

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            return str.__eq__(self, other)
        try:
            found = np.dtype(cast("Any", other))
        except TypeError:
            return False
        return found.isnative and str.__eq__(self, found.name)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__

    def __reduce__(self) -> tuple[Any, ...]:
        return as_dtype, (str(self),)

    @property
    def name(self) -> str:
        return str(self)

    @property
    def may_be_bool(self) -> bool:
        """Bool, or not known yet (the state of a scan while it is first traced)."""
        return self.kind in "b?"

    @property
    def may_be_integer(self) -> bool:
        """An integer, or not known yet."""
        return self.kind in "iu?"

    @property
    def itemsize(self) -> int:
        return max(1, self.bits // 8)

    @property
    def numpy(self) -> np.dtype[Any]:
        """NumPy's type; bfloat16 needs the package ml_dtypes."""
        if self == "bfloat16":
            return _bfloat16_of_numpy()
        return np.dtype(str(self))


def _bfloat16_of_numpy() -> np.dtype[Any]:
    try:
        import ml_dtypes
    except ImportError:
        raise TypeError(
            "bfloat16 arrays: NumPy has no such type of its own; install ml_dtypes (pip install ml_dtypes) or cast to "
            "float32"
        ) from None
    found: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return found


BOOL = DType("bool", "b", 1)
INT8, INT16, INT32, INT64 = (DType(f"int{b}", "i", b) for b in (8, 16, 32, 64))
UINT8, UINT16, UINT32, UINT64 = (DType(f"uint{b}", "u", b) for b in (8, 16, 32, 64))
FLOAT16, FLOAT32, FLOAT64 = (DType(f"float{b}", "f", b) for b in (16, 32, 64))
BFLOAT16 = DType("bfloat16", "f", 16)
# The type of a scan's state before its body is known: weaker than every other.
BOTTOM = DType("bottom", "?", 0)
# What axes and extents count as in a promotion: int32 beside integers, nothing beside floats. No expression has it.
INDEX = DType("index", "i", 32)
# What promotes: a strong type, INDEX, or the Python type of a weak number.
Kind = DType | type

ALL = (BOOL, INT8, INT16, INT32, INT64, UINT8, UINT16, UINT32, UINT64, FLOAT16, BFLOAT16, FLOAT32, FLOAT64)
DTYPE_NAMES = frozenset(map(str, ALL))
_BY_NAME = {str(d): d for d in (*ALL, BOTTOM)}
_PYTHON_TYPES = {bool: BOOL, int: INT64, float: FLOAT64}  # as in NumPy
# What weak numbers are on their own.
_DEFAULT: dict[Kind, DType] = {bool: BOOL, int: INT32, INDEX: INT32, float: FLOAT32}


def as_dtype(value: object) -> DType:
    """The `DType` for a name, a NumPy type, a framework's type or a Python scalar type."""
    if isinstance(value, DType):
        return value
    if isinstance(value, type) and value in _PYTHON_TYPES:
        return _PYTHON_TYPES[value]
    name = value if isinstance(value, str) else None
    if name is None:
        text = str(value)
        if text.startswith("torch."):
            name = text[len("torch.") :]
        else:
            try:
                name = text if value is None else np.dtype(cast("Any", value)).name  # NumPy takes None for float64
            except (TypeError, ValueError):
                name = text
    found = _BY_NAME.get(name)
    if found is None:
        try:
            found = _BY_NAME.get(np.dtype(name).name)
        except TypeError:
            found = None
    if found is not None and not _is_native(value):
        raise TypeError(
            f"dtype {value!r:.60} has another byte order than this machine; take {str(found)!r}, and give arrays as "
            f"x.astype({str(found)!r}), at {user_location()}"
        )
    if found is None or found is BOTTOM:
        is_value = hasattr(value, "dtype") and not isinstance(value, type)
        problem = "is a value (te.cast(x, dtype) takes the dtype last)" if is_value else "is not supported"
        if isinstance(value, int):
            problem = f"is a number (several extents stand together: the shape (.., {value}))"
        raise TypeError(
            f"dtype {value!r:.60} {problem}; expected one of {', '.join(ALL)}, at {user_location()}{_of_complex(name)}"
        )
    return found


def _of_complex(name: str) -> str:
    is_complex = str(name).startswith(("complex", "torch.complex"))
    return "; of complex numbers write the real and the imaginary parts, as two arrays" if is_complex else ""


def _is_native(value: object) -> bool:
    try:
        return bool(np.dtype(cast("Any", value)).isnative)
    except (TypeError, ValueError):  # a type of ours, or of a framework
        return True


def dtype_of_array(array: np.ndarray[Any, Any]) -> DType:
    """The `DType` of a NumPy array, or TypeError."""
    found = _BY_NAME.get(array.dtype.name)
    if found is None:
        told = _of_complex(array.dtype.name)
        raise TypeError(f"dtype {array.dtype} is not supported; expected one of {', '.join(ALL)}{told}")
    return found


def is_masked(value: object) -> bool:
    """Whether a value is a masked array, which without its mask is another one."""
    masked = sys.modules.get("numpy.ma")  # `np.ma` would import it, which takes a lock at every call
    return bool(masked is not None and isinstance(value, masked.MaskedArray))


def integer_bounds(dtype: DType) -> tuple[int, int]:
    """Smallest and largest value of an integer type (or of bool)."""
    if dtype.kind == "b":
        return 0, 1
    if dtype.kind == "u":
        return 0, (1 << dtype.bits) - 1
    return -(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1


def default_type(kind: Kind) -> DType:
    """The type of a weak number that meets no other."""
    return _DEFAULT[kind]


def promote(operands: Iterable[Kind]) -> DType:
    """The common type of strong types and of weak numbers: Python's bool, int and float, axes and extents (INDEX)."""
    strong: DType = BOTTOM
    weak: set[Kind] = set()
    undecided = False
    for operand in operands:
        if operand is INDEX or not isinstance(operand, DType):
            weak.add(operand)
        else:
            undecided |= operand is BOTTOM
            strong = _promote_strong(strong, operand)
    if strong is BOTTOM:
        if not weak or (undecided and weak != {bool}):
            return BOTTOM
        return _DEFAULT[next(kind for kind in (float, INDEX, int, bool) if kind in weak)]
    if strong.is_float:
        return strong
    if INDEX in weak:
        strong = _promote_strong(strong, INT32)
    if float in weak:
        return FLOAT64
    return INT64 if strong.is_bool and int in weak else strong


def _promote_strong(a: DType, b: DType) -> DType:
    if a is b or b is BOTTOM:
        return a
    if a is BOTTOM:
        return b
    if BFLOAT16 in (a, b):
        other = b if a is BFLOAT16 else a
        if not other.is_float:
            return BFLOAT16
        return FLOAT32 if other is FLOAT16 else other
    return _BY_NAME[np.promote_types(a, b).name]


def float_type(dtype: DType) -> DType:
    """The type in which NumPy evaluates exp, sqrt, ... of `dtype`."""
    if dtype.is_float or dtype is BOTTOM:
        return dtype
    if dtype.bits <= 8:
        return FLOAT16
    return FLOAT32 if dtype.bits == 16 else FLOAT64


def divide_type(dtype: DType) -> DType:
    """The type of `/` on operands promoted to `dtype`."""
    return dtype if dtype.is_float or dtype is BOTTOM else FLOAT64
