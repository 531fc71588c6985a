"""Runs rows of the table of intrinsics over arrays, many rows in one compiled pipeline.

bfloat16 travels as its bit patterns (uint16), so that no other package need know the type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import halide as hl
import numpy as np

from tedsl.backend.arguments.blocks import ArgSpec, CompiledFunction
from tedsl.backend.compiling.objects import compile_object, load
from tedsl.backend.host.targets import parse_target
from tedsl.backend.scalars.types import TYPES

STRICT = parse_target("host").with_features("strict_float").text

Array = np.ndarray
# bfloat16 travels as its bits, a bool as a byte.
CARRIER = {"bfloat16": "uint16", "bool": "uint8"}


def _carried(x: Any, dtype: str) -> Any:
    return x != hl.u8(0) if dtype == "bool" else hl.reinterpret(TYPES[dtype], x) if dtype in CARRIER else x


def run(rows: Mapping[str, Callable[..., Any]], arrays: Sequence[Array], dtypes: Sequence[str]) -> dict[str, Array]:
    """The result of every row on the same operands, vectorized by 16 and compiled as kernels are."""
    x = hl.Var("x")
    params = [hl.ImageParam(TYPES[CARRIER.get(d, d)], 1) for d in dtypes]
    operands = [_carried(p[x], d) for p, d in zip(params, dtypes, strict=True)]
    values = [row(*operands) for row in rows.values()]
    results = [str(v.type()) for v in values]
    f = hl.Func("table")
    stored = [_to_carrier(v, d) for v, d in zip(values, results, strict=True)]
    f[x] = hl.Tuple(stored) if len(stored) > 1 else stored[0]
    f.vectorize(x, 16, hl.TailStrategy.GuardWithIf)
    code = compile_object(hl.Pipeline([f]), [hl.Argument(p) for p in params], "table", STRICT)
    specs = [ArgSpec(f"p{k}", CARRIER.get(d, d), 1) for k, d in enumerate(dtypes)]
    specs += [ArgSpec(f"r{k}", CARRIER.get(d, d), 1, output=True) for k, d in enumerate(results)]
    outputs = [np.empty(arrays[0].size, CARRIER.get(d, d)) for d in results]
    inputs = [np.ascontiguousarray(a).view(CARRIER.get(d, d)) for a, d in zip(arrays, dtypes, strict=True)]
    CompiledFunction(load(code), specs)(*inputs, *outputs)
    typed = [a.astype(bool) if d == "bool" else a for a, d in zip(outputs, results, strict=True)]
    return dict(zip(rows, typed, strict=True))


def _to_carrier(x: Any, dtype: str) -> Any:
    if dtype == "bool":
        return hl.select(x, hl.u8(1), hl.u8(0))
    return hl.reinterpret(hl.UInt(16), x) if dtype == "bfloat16" else x


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
