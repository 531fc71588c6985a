"""A stage as stages that patterns know, and an expression of those: what a spelling hides, before any pattern looks.

| pass | before | after |
|---|---|---|
| `mirrored` | `sum over k of a[i, k] a[j, k]`, many terms | half of it: `h[i, j]` where `j <= i`, else `h[j, i]` |
| `apart` | `sum(a b - c d)` | `sum(a b) - sum(c d)` |
| `outside` | `sum(s a b)`, s without a loop of the sum | `s sum(a b)` |
| `guarded_outside` | `sum(a b, where=c[i, j])`, i and j of the result, no triangle | `select(c[i, j], sum(a b), 0)` |
| `in_order` | `sum over k, l of a[i, k] b[k, l] c[l, j]` | `sum over k of a[i, k] t[k, j]`, t summed over l |
| `in_order` | `sum over k, l of a[i, k] b[k, l]` | `sum over k of a[i, k] t[k]`, t summed over l |
| `in_order` | `sum over k, l of a[k, i] b[l, i] h[k, l]` | `sum over k of a[k, i] t[k, i]`, t a product |
| `by_cases` | `sum(select(c == 0, a b - d e, a e + d b))`, c short | a sum for each c |
| `as_floats` | `sum(i32(a) i32(b))`, a and b int8 | `i32(sum(f32(a) f32(b)))`, as long as that is exact |
| `split` | indices with `o // 4`, `o % 4` | loops `q`, `r` of `o = 4 q + r` |
| `split` | `(i + 1) // 2 - a`, `(i + 1) % 2` | a sum for each remainder of `i`, its indices affine |

A pass is taken where what comes of it are sums that the products know (`products/contraction`), and fewer iterations or
affine ones. Floats may be added up in another order then, and common factors multiplied after a sum instead of before.
"""

from __future__ import annotations

from collections.abc import Callable

from schedules.default.canonical.cases import by_cases
from schedules.default.canonical.mirrors import mirrored
from schedules.default.canonical.phases import split
from schedules.default.canonical.stages import Parts
from schedules.default.canonical.terms import apart, guarded_outside, in_order, outside
from schedules.default.canonical.whole_numbers import as_floats
from schedules.thresholds import Thresholds
from tedsl.lang.tensor import Compute

__all__ = ["is_float_sum", "parts_of"]


PASSES: tuple[Callable[[Compute, Thresholds], Parts | None], ...] = (
    mirrored,
    apart,
    outside,
    guarded_outside,
    in_order,
    by_cases,
)


def parts_of(op: Compute, least: Thresholds, *, plain: bool = False) -> Parts | None:
    """What the first pass that knows the stage makes of it; its stages may be taken apart in turn.

    `plain`: without what holds for finite numbers only.
    """
    if not is_float_sum(op):
        return as_floats(op, least)
    return next((found for known in PASSES if (found := known(op, least)) is not None), None) or split(
        op, least, plain=plain
    )


def is_float_sum(op: Compute) -> bool:
    """Whether a stage is one sum of floats that patterns of products know."""
    reduce = op.reduction
    if reduce is None or len(op.bodies) > 1 or reduce.reducer.kind != "sum":
        return False
    return str(reduce.values[0].dtype) in ("float32", "float64")
