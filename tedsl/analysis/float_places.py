"""Integers that are computed as floats of one loop, as quotients of whole numbers.

    cast(ceil((x + 0.5) * 0.5 - 2.5), "int32")   ->   (2 * x - 9 + 3) // 4   for 0 <= x < 1280

Where an image is resampled, places are made so. What a loop gives is known when a program is made: its values are
computed for every iteration, and a quotient is taken for them only if it is right for each.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import numpy as np

from tedsl.analysis.pointwise import apply_numpy, held_type
from tedsl.lang import functions as fn
from tedsl.lang.expr import Apply, Axis, Const, Expr, Fn
from tedsl.lang.extents import number
from tedsl.lang.traverse import topological

__all__ = ["quotient_of"]

MOST_POINTS = 1 << 17
MOST_DIVISOR = 20
MOST_PHASES = 20  # of a gradient: beyond so many its stages take seconds to compile, and a table is as good
SAMPLES = 64
# Rounded in the same way by every processor.
EXACT = frozenset(
    {Fn.ADD, Fn.SUB, Fn.MUL, Fn.DIV, Fn.NEG, Fn.ABS, Fn.FLOOR, Fn.CEIL, Fn.TRUNC, Fn.ROUND, Fn.CAST, Fn.MINIMUM}
    | {Fn.MAXIMUM, Fn.CLIP, Fn.FLOORDIV, Fn.MOD, Fn.STOP}
)


@lru_cache(maxsize=256)
def quotient_of(root: Expr) -> Expr | None:
    """The same integers as `(p * axis + r) // q`, where nothing but one axis and arithmetic of floats makes them."""
    nodes = topological(root)
    axes = [node for node in nodes if isinstance(node, Axis)]
    if len(axes) != 1 or not root.dtype.is_integer or not all(_is_followed(node) for node in nodes):
        return None
    (axis,) = axes
    begin, extent = number(axis.begin), number(axis.extent) if axis.extent is not None else None
    if begin is None or extent is None or not 0 < extent <= MOST_POINTS:
        return None
    at = np.arange(begin, begin + extent, dtype=np.int64)
    found = _fitted(at, _values(nodes, axis, at))
    if found is None:
        return None
    p, r, q = found
    return fn.cast((axis * p + r) // q, root.dtype)


def _is_followed(node: Expr) -> bool:
    return isinstance(node, (Axis, Const)) or (isinstance(node, Apply) and node.fn in EXACT)


def _values(nodes: Iterable[Expr], axis: Axis, at: np.ndarray) -> np.ndarray:
    """What the last node is at each place of the axis."""
    value: dict[Expr, np.ndarray] = {}
    with np.errstate(all="ignore"):
        for node in nodes:
            if isinstance(node, Axis):
                value[node] = at.astype(held_type(node.dtype))
            elif isinstance(node, Const):
                value[node] = np.asarray(node.value, held_type(node.dtype))
            else:
                assert isinstance(node, Apply)
                value[node] = apply_numpy(node.fn, [value[a] for a in node.args], node.dtype)
    return np.broadcast_to(value[node], at.shape).astype(np.int64)


def _fitted(at: np.ndarray, values: np.ndarray) -> tuple[int, int, int] | None:
    """(p, r, q) with values == (p * at + r) // q, of the least q."""
    if len(at) == 1:
        return 0, int(values[0]), 1
    slope = (int(values[-1]) - int(values[0])) / (len(at) - 1)
    some = np.unique(np.linspace(0, len(at) - 1, SAMPLES).astype(np.int64))
    for q in range(1, MOST_DIVISOR + 1):
        for p in {int(np.floor(slope * q)), int(np.ceil(slope * q))}:
            if abs(p * q) > MOST_PHASES:
                continue
            for part in (some, slice(None)):
                rest = q * values[part] - p * at[part]
                low, high = int(rest.max()), int(rest.min()) + q - 1
                if low > high:
                    break
            else:
                return p, low, q
    return None
