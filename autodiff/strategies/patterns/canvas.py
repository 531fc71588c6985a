"""What patterns are drawn on: sizes that are numbers or symbols, and tensors whose values are small integers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from hypothesis import strategies as st

from autodiff.strategies.builder import Builder, Made
from autodiff.strategies.program import Program
from tedsl.lang import functions as fn
from tedsl.lang.axes import reduce_axis
from tedsl.lang.compute import compute, placeholder
from tedsl.lang.dataclass import dataclass
from tedsl.lang.expr import Axis
from tedsl.lang.tensor import Tensor

__all__ = ["Canvas", "Dim", "Source", "loop"]

T = TypeVar("T")

SMALL = (1, 1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 19, 33)
LARGE = (
    1, 2, 3, 4, 5, 7, 8, 10, 12, 16, 17, 24, 31, 32, 33, 48, 50, 63, 64, 65, 96, 100, 112, 127, 128, 130, 200, 224, 255,
    256, 300, 320, 500, 512, 640, 1000, 1024, 2048, 4000, 4096, 10_000, 16_384, 50_000, 65_537, 100_000, 262_144,
    1_000_003,
)  # fmt: skip
FLOATS = ("float32", "float32", "float64")  # the dtypes of most tensors
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
BOUND = {"float16": 2.0**11, "bfloat16": 2.0**8, "float32": 2.0**24, "float64": 2.0**53}  # integers that are exact


@dataclass(frozen=True, eq=False)
class Dim:
    """An extent, and the number that it is."""

    expr: Any
    size: int

    def __add__(self, other: Dim | int) -> Dim:
        return _both(self, other, lambda a, b: a + b)

    def __sub__(self, other: Dim | int) -> Dim:
        return _both(self, other, lambda a, b: a - b)

    def __mul__(self, other: Dim | int) -> Dim:
        return _both(self, other, lambda a, b: a * b)

    def __floordiv__(self, other: Dim | int) -> Dim:
        return _both(self, other, lambda a, b: a // b)


def _both(a: Dim, b: Dim | int, combine: Callable[[Any, Any], Any]) -> Dim:
    other = b if isinstance(b, Dim) else Dim(b, b)
    return Dim(combine(a.expr, other.expr), combine(a.size, other.size))


@dataclass(frozen=True, eq=False)
class Source:
    """A tensor with its extents, and a bound on its magnitudes."""

    tensor: Tensor
    dims: tuple[Dim, ...]
    bound: float

    def __getitem__(self, index: Any) -> Any:
        return self.tensor[index]

    def read(self, *index: Any) -> Any:
        return self.tensor[index]

    def at(self, *index: Any, mode: str) -> Any:
        return self.tensor.at(*index, mode=mode)

    @property
    def dtype(self) -> str:
        return str(self.tensor.dtype)


def loop(dim: Dim | int, name: str) -> Axis:
    """A loop of a reduction over an extent."""
    return reduce_axis(dim.expr if isinstance(dim, Dim) else dim, name=name)


@dataclass(eq=False)
class Canvas(Builder):
    """A builder of patterns: `most` iterations of a stage, few of them or as many as real programs have."""

    most: int = 4000
    large: bool = False
    reach: float = 1.0  # a bound on the magnitude of what the adjoints sum

    def dim(self, size: int) -> Dim:
        return Dim(self.extent(size), size)

    def split(self, count: int, most: int | None = None, *, least: int = 1) -> list[int]:
        """Sizes of axes, in any order, whose product is about as large as it may be."""
        left = most or self.most
        found: list[int] = []
        for k in range(count, 0, -1):
            room = max(least, left if k == 1 else int(left ** self.pick((0.3, 0.5, 0.7, 1.0))))
            options = [n for n in (LARGE if self.large else SMALL) if least <= n <= room] or [least]
            few = self.chance(4) and k > 1
            found.append(self.pick(options if few else options[-6:]))
            left = max(1, left // found[-1])
        order = self.draw(_permutations(count))
        return [found[k] for k in order]

    def dims(self, count: int, most: int | None = None, *, least: int = 1) -> list[Dim]:
        return [self.dim(n) for n in self.split(count, most, least=least)]

    def shuffled(self, items: Sequence[T]) -> list[T]:
        return [items[k] for k in self.draw(_permutations(len(items)))]

    def source(self, dims: Sequence[Dim], dtype: str | None = None) -> Source:
        """An input of small integers."""
        dtype = dtype or self.pick(self.dtypes)
        tensor = placeholder(tuple(d.expr for d in dims), dtype, name=self.name("A"))
        self.inputs.append(tensor)
        self.whole.add(tensor)
        return Source(tensor, tuple(dims), 2.0)

    def places(self, dims: Sequence[Dim], below: int) -> Source:
        """An input of indices of any dtype that holds them."""
        fitting = [t for t in INTEGERS if below <= 2 ** (8 * _bytes(t) - (t[0] == "i"))]
        tensor = placeholder(tuple(d.expr for d in dims), self.pick(fitting), name=self.name("idx"))
        self.inputs.append(tensor)
        self.below[tensor] = below
        return Source(tensor, tuple(dims), below)

    def widened(self, value: Any, bound: float) -> Any:
        """A float value in a dtype in which integers up to `bound` are exact."""
        return fn.cast(value, "float64") if bound > BOUND.get(str(value.dtype), math.inf) else value

    def stage(
        self, dims: Sequence[Dim], body: Callable[..., Any], bound: float, stem: str = "T", *, exact: bool = True
    ) -> Source:
        """A stage that is an output; `bound` is that of its magnitudes."""
        tensor = compute(tuple(d.expr for d in dims), body, name=self.name(stem))
        return self.kept(tensor, dims, bound, exact=exact)

    def kept(self, tensor: Tensor, dims: Sequence[Dim], bound: float, *, exact: bool = True) -> Source:
        """A tensor as an output."""
        made = Made(tensor, tuple(d.size for d in dims), exact and bound <= BOUND.get(str(tensor.dtype), math.inf))
        self.outputs.append(made)
        self.reach *= max(2.0, bound)
        return Source(tensor, tuple(dims), bound)

    def finished(self) -> Program:
        """The program, of whose stages some are not asked for, so that they may be computed inside of others."""
        last = self.outputs[-1]
        self.outputs = [m for m in self.outputs if m is last or self.chance(3)]
        return super().finished()


def _bytes(dtype: str) -> int:
    return int(dtype.lstrip("uint")) // 8


def _permutations(count: int) -> st.SearchStrategy[Any]:
    return st.permutations(range(count))
