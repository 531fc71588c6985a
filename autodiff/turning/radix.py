"""Flattening by symbolic extents: `i*m + j` is the pair (i, j), and (k // m, k % m) is the number k.

Index inversion wants constant coefficients. A row with a product of an axis and a size is split by that size, and a
quotient and remainder by a size are joined, each with the matching change of the target: its dimension s becomes
(s // m, s % m), or two of its dimensions become s0 * m + s1.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from autodiff.integers.conditions import OpaqueIndex
from autodiff.integers.linear import Linear, Quotient, Symbol, symbol
from autodiff.turning.affine_read import (
    Product,
    Reader,
    Remainder,
    SizeQuotient,
    has_axis_product,
    is_opaque,
    product_of,
)
from autodiff.turning.affine_write import expression_of
from tedsl.lang.dataclass import dataclass
from tedsl.lang.expr import Axis, Expr

__all__ = ["TargetDim", "closed", "in_linear_dims"]


@dataclass(frozen=True)
class TargetDim:
    """One dimension of the target: what the read's index is there, its extent, and an element's position along it."""

    row: Linear
    extent: Linear
    position: Expr


def in_linear_dims(dims: Sequence[TargetDim], reader: Reader) -> list[TargetDim]:
    """The target in dimensions along which the index is linear, as far as there are such."""
    current = list(dims)
    while True:
        better = _joined(current, reader) or _split(current, reader)
        if better is None:
            return [closed(d) for d in current]
        current = better


def closed(d: TargetDim) -> TargetDim:
    """A row that stayed a product of axes and sizes is opaque."""
    return d if not has_axis_product(d.row) else TargetDim(symbol(OpaqueIndex(d.row)), d.extent, d.position)


def _joined(dims: list[TargetDim], reader: Reader) -> list[TargetDim] | None:
    """Two dimensions (e // m, e % m) as one dimension e."""
    for low in dims:
        remainder = _sole(low.row)
        if not isinstance(remainder, Remainder) or remainder.divisor != low.extent:
            continue
        for high in dims:
            quotient = _sole(high.row)
            if isinstance(quotient, SizeQuotient) and _is_quotient_of(quotient, remainder, reader):
                extent = reader.product(high.extent, low.extent)
                if extent is None:
                    continue
                size = expression_of(low.extent, {})
                whole = TargetDim(remainder.numerator, extent, high.position * size + low.position)
                return [whole if d is high else d for d in dims if d is not low]
    return None


def _sole(e: Linear) -> object:
    """The quotient or opaque key that the form consists of."""
    if e.constant or list(e.coefficients.values()) != [1]:
        return None
    (s,) = e.coefficients
    return s.key if isinstance(s, OpaqueIndex) else s


def _is_quotient_of(quotient: SizeQuotient, remainder: Remainder, reader: Reader) -> bool:
    """Whether quotient = remainder.numerator // remainder.divisor, also as k // (m p) where the numerator is k // p."""
    if quotient == SizeQuotient(remainder.numerator, remainder.divisor):
        return True
    inner = _sole(remainder.numerator)
    if isinstance(inner, SizeQuotient):
        numerator, divisor = inner.numerator, reader.product(inner.divisor, remainder.divisor)
    elif isinstance(inner, Quotient):
        numerator, divisor = inner.numerator, remainder.divisor * inner.divisor
    else:
        return False
    return quotient.numerator == numerator and quotient.divisor == divisor


def _split(dims: list[TargetDim], reader: Reader) -> list[TargetDim] | None:
    """One dimension m e1 + e2, 0 <= e2 < m, as two."""
    for position, d in enumerate(dims):
        if is_opaque(d.row):
            continue
        for size in _sizes(d.row):
            parts = reader.split_by(d.row, size)
            top = None if parts is None else reader.bound(parts[0], upper=True)
            if parts is None or top is None or not _starts_at_zero(parts[0], reader):
                continue
            by = expression_of(size, {})
            high = TargetDim(parts[0], _rows(d.extent, size, top + 1, reader), d.position // by)
            low = TargetDim(parts[1], size, d.position % by)
            return [*dims[:position], high, low, *dims[position + 1 :]]
    return None


def _rows(extent: Linear, size: Linear, expected: Linear, reader: Reader) -> Linear:
    """ceil(extent / size): the number expected where it is that, else a size of its own."""
    if reader.product(expected, size) == extent:
        return expected
    whole, by = expression_of(extent, {}), expression_of(size, {})
    return symbol((whole + by - 1) // by)


def _starts_at_zero(e: Linear, reader: Reader) -> bool:
    low = reader.bound(e, upper=False)
    return low is not None and reader.facts.proves(low)


def _sizes(e: Linear) -> list[Linear]:
    """Products of sizes by which axes are multiplied, the largest first."""
    found: dict[tuple[Symbol, ...], int] = {}
    for s, c in e.coefficients.items():
        if isinstance(s, Product) and sum(isinstance(f, Axis) for f in s.factors) == 1:
            sizes = tuple(f for f in s.factors if not isinstance(f, Axis))
            found[sizes] = gcd(found.get(sizes, 0), c)
    ordered = sorted(found.items(), key=lambda item: -len(item[0]))
    return [Linear({product_of(sizes): k}) for sizes, c in ordered for k in dict.fromkeys((c, 1))]
