"""What moved elements of inputs do to an output, which is contracted with a head: many of them in one evaluation.

The program gets one more axis in front, along which elements are moved one by one, those of several inputs in turn:
what the reference does for each node, and for each step of a scan, it does once for all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from tedsl.analysis.sizes import axis_length, bind_sizes, concrete_shape
from tedsl.lang.batching import batched
from tedsl.lang.dataclass import dataclass
from tedsl.lang.dtypes import INT32
from tedsl.lang.expr import Const, Reduce, Var
from tedsl.lang.tensor import Constant, Placeholder, Scan, Tensor
from tedsl.lang.traverse import operations_between
from tedsl.reference import interpret

__all__ = [
    "MOVES", "Difference", "Evaluate", "Evaluation", "EvaluationSize", "Probe", "always_by_definition", "by_definition",
    "each_by", "size_of",
]  # fmt: skip

Array = Any
Evaluate = Callable[[Sequence[Tensor], Mapping[Tensor, Array]], tuple[Array, ...]]
# How tensors are evaluated that are so often, at such feeds: by a program of one's own, or by the reference (None).
Evaluation = Callable[[Sequence[Tensor], Mapping[Tensor, Array], int], Evaluate | None]
# The values of an output for each of several arrays for some inputs.
Each = Callable[[Mapping[Tensor, Array], Mapping[Tensor, Array]], Array]
# An element of an input, and the step by which it is moved.
Move = tuple[Tensor, tuple[int, ...], float]

# Units in the last place by which an output may be off; relative size of a unit.
_ROUNDINGS = {"float64": 4, "float32": 16, "float16": 4, "bfloat16": 4}
_UNIT = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
MOVES = (1.0, -1.0, 0.5, -0.5)  # steps by which an element is moved
AT_ONCE = 256  # elements that are moved in one evaluation, fewer where its tensors would take more than this
LIMIT = 1 << 24  # numbers
STEP_LIMIT = 1 << 20  # points of a step of a scan, which are evaluated all at once


class EvaluationSize(NamedTuple):
    """The shape of an output; the numbers that one evaluation computes, and the most points of a step among them."""

    shape: tuple[int, ...]
    numbers: int
    points: int

    @property
    def at_once(self) -> int:
        """How many elements are moved in one evaluation, which holds each tensor once for every move and for none."""
        rows = min(LIMIT // self.numbers, STEP_LIMIT // self.points)
        return max(1, min(AT_ONCE, (rows - 1) // len(MOVES)))


def size_of(output: Tensor, feeds: Mapping[Tensor, Array]) -> EvaluationSize:
    """What it takes to evaluate an output."""
    inputs = [t for t in feeds if isinstance(t.op, Placeholder) and not isinstance(t.op, Constant)]
    sizes = bind_sizes(inputs, [feeds[t].shape for t in inputs], None, "gradcheck")
    stages = operations_between(feeds, [output])
    numbers = sum(math.prod(concrete_shape(t, sizes, "gradcheck")) for op in stages for t in op.outputs)
    points = max([_points_of_step(op, sizes) for op in stages if isinstance(op, Scan)], default=1)
    return EvaluationSize(concrete_shape(output, sizes, "gradcheck"), max(1, numbers), max(1, points))


def _points_of_step(op: Scan, sizes: Mapping[Var, int]) -> int:
    """About the most points at which a node of a step is evaluated."""
    outer = [axis_length(a, sizes) for d, a in enumerate(op.axes) if d not in op.dims]
    sums = [node for node in op.nodes if isinstance(node, Reduce)]
    return math.prod(outer) * max((math.prod(axis_length(a, sizes) for a in node.axes) for node in sums), default=1)


def by_definition(tensors: Sequence[Tensor], arrays: Mapping[Tensor, Array]) -> tuple[Array, ...]:
    """The reference's values."""
    return interpret(list(tensors), dict(arrays))


def always_by_definition(tensors: Sequence[Tensor], feeds: Mapping[Tensor, Array], times: int) -> Evaluate | None:
    """The reference, however often."""
    return None


def each_by(output: Tensor, run: Evaluate | None) -> Each:
    """How the values for several arrays are found: by a program of one's own in turn, by the reference together."""

    def in_turn(feeds: Mapping[Tensor, Array], moved: Mapping[Tensor, Array]) -> Array:
        assert run is not None
        rows = [dict(zip(moved, arrays, strict=True)) for arrays in zip(*moved.values(), strict=True)]
        return np.stack([run([output], {**feeds, **row})[0] for row in rows])

    def together(feeds: Mapping[Tensor, Array], moved: Mapping[Tensor, Array]) -> Array:
        extent = Const(len(next(iter(moved.values()))), INT32)
        many = {t: Placeholder(name=t.name, shape=(extent, *t.extents), dtype=t.dtype).output() for t in moved}
        (results,) = batched([output], many, extent)
        rest = {t: a for t, a in feeds.items() if t not in moved}
        return interpret(results, {**rest, **{many[t]: arrays for t, arrays in moved.items()}})

    return together if run is None else in_turn


class Difference(NamedTuple):
    """A central difference, how far one-sided ones lie apart, what half the step changes, and what rounding does."""

    numeric: float
    bend: float
    change: float
    noise: float


@dataclass(frozen=True)
class Probe:
    """Moves elements and sees what an output does, contracted with weights."""

    output: Tensor
    feeds: Mapping[Tensor, Array]
    weights: Array
    each: Each
    at_once: int

    def differences(self, moves: Sequence[Move]) -> Iterator[Difference]:
        """Of each element the central difference, and how far to trust it."""
        for first in range(0, len(moves), self.at_once):
            yield from self._differences(moves[first : first + self.at_once])

    def _differences(self, moves: Sequence[Move]) -> Iterator[Difference]:
        rows = 1 + len(MOVES) * len(moves)
        sources = dict.fromkeys(source for source, _, _ in moves)
        moved = {source: np.repeat(self.feeds[source][None], rows, axis=0) for source in sources}
        for row, ((source, index, step), by) in enumerate(product(moves, MOVES), 1):
            place = row, *index
            moved[source][place] += moved[source].dtype.type(by * step)
        results = self.each(self.feeds, moved).astype(np.float64, copy=False)
        here = results[:1]
        ahead, behind, nearer, farther = (results[at :: len(MOVES)] for at, _ in enumerate(MOVES, 1))
        steps = np.array([step for _, _, step in moves])
        numeric = self._contracted(ahead, behind) / (2 * steps)
        left, right = self._contracted(here, behind) / steps, self._contracted(ahead, here) / steps
        change = self._contracted(nearer, farther) / steps - numeric
        columns = numeric, np.abs(left - right), np.abs(change), self._rounding(ahead, behind) / steps
        yield from (Difference(*map(float, numbers)) for numbers in zip(*columns, strict=True))

    def _contracted(self, ahead: Array, behind: Array) -> Array:
        """The head times differences; equal elements differ by 0, infinite ones too."""
        same = (ahead == behind) | (np.isnan(ahead) & np.isnan(behind))
        with np.errstate(invalid="ignore"):
            return _summed(np.where(same, 0.0, ahead - behind) * self.weights.astype(np.float64))

    def _rounding(self, ahead: Array, behind: Array) -> Array:
        """By how much rounding may move a contraction; an element that is equal may hide a change below its unit."""
        dtype, largest = self.output.dtype, np.maximum(np.abs(ahead), np.abs(behind))
        units = np.where(np.isfinite(largest), np.where(ahead == behind, 1, _ROUNDINGS[dtype]) * largest, 0.0)
        return _UNIT[dtype] * _summed(units * np.abs(self.weights.astype(np.float64)))


def _summed(terms: Array) -> Array:
    """The sum of each row."""
    return terms.reshape(len(terms), -1).sum(axis=1)
