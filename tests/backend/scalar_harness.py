"""Runs rows of the table of intrinsics over arrays, many rows in one compiled pipeline.

bfloat16 travels as its bit patterns (uint16), so that no other package need know the type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import halide as hl
import numpy as np

from tedsl.backend.scalars import TYPES

Array = np.ndarray
# Types that hl.Buffer does not take from NumPy travel as others of their width.
CARRIER = {"bfloat16": hl.UInt(16), "uint64": hl.Int(64)}
STRICT = hl.Target(hl.get_host_target().to_string() + "-strict_float")


def run(rows: Mapping[str, Callable[..., Any]], arrays: Sequence[Array], dtypes: Sequence[str]) -> dict[str, Array]:
    """The result of every row on the same operands, vectorized by 16 and compiled under strict_float."""
    x = hl.Var("x")
    params = [hl.ImageParam(CARRIER.get(d, TYPES[d]), 1) for d in dtypes]
    operands = [hl.reinterpret(TYPES[d], p[x]) if d in CARRIER else p[x] for p, d in zip(params, dtypes, strict=True)]
    values = [row(*operands) for row in rows.values()]
    values = [hl.reinterpret(hl.UInt(16), v) if v.type() == TYPES["bfloat16"] else v for v in values]
    f = hl.Func("table")
    f[x] = hl.Tuple(values) if len(values) > 1 else values[0]
    f.vectorize(x, 16, hl.TailStrategy.GuardWithIf)
    for param, array in zip(params, arrays, strict=True):
        array = array.view(np.int64) if array.dtype == np.uint64 else array
        param.set(hl.Buffer(np.ascontiguousarray(array)))
    results = f.realize([arrays[0].size], STRICT)
    if len(values) == 1:
        results = [results]
    return {name: np.array(r) for name, r in zip(rows, results, strict=True)}


def to_bfloat16(x: Array) -> Array:
    """float32 values as bfloat16 bits: to nearest, ties to even, NaN kept."""
    bits = np.asarray(x, np.float32).view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(x), (bits >> 16) | 0x40, rounded).astype(np.uint16)


def of_bfloat16(bits: Array) -> Array:
    """bfloat16 bits as float32 values."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def same_bits(a: Array, b: Array) -> Array:
    """Where two float arrays hold the same number, the sign of zero included; any NaN equals any NaN."""
    return (np.isnan(a) & np.isnan(b)) | ((a == b) & (np.signbit(a) == np.signbit(b)))
