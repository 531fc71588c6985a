"""A program while it is drawn: its sizes, its inputs, and indices that lie in bounds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any, TypeVar

from hypothesis import strategies as st

from autodiff.strategies.program import Program
from tedsl.lang import functions as fn
from tedsl.lang.axes import var
from tedsl.lang.compute import placeholder
from tedsl.lang.dataclass import dataclass
from tedsl.lang.dtypes import DType
from tedsl.lang.expr import Axis, Var
from tedsl.lang.tensor import Tensor

__all__ = ["DTYPES", "FLOATS", "INTEGERS", "MODES", "Builder", "Made", "Value", "begins_at_zero", "literal"]

T = TypeVar("T")

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float16", "bfloat16", "float32", "float64")
# bfloat16 is drawn where a caller names it: arrays of it need ml_dtypes.
DTYPES = ("bool", *INTEGERS, "float16", "float32", "float64")
SIZES = (0, 1, 2, 3, 4, 5, 7, 8, 17, 19)
MODES = ("zero", "clamp", "reflect", "wrap")


@dataclass(frozen=True, eq=False)
class Value:
    """An expression; whether every evaluator gives the same bits; the companion that bounds the terms of its sums."""

    expr: Any
    exact: bool = True
    scales: tuple[Tensor, ...] = ()


@dataclass(eq=False)
class Made:
    """A tensor drawn so far."""

    tensor: Tensor
    shape: tuple[int, ...]
    exact: bool = True
    scales: tuple[Tensor, ...] = ()


@dataclass(eq=False)
class Builder:
    """One program while it is drawn."""

    draw: Callable[..., Any]
    symbolic: bool
    smooth: bool
    dtypes: Sequence[str]
    sizes: dict[Var, int] = field(default_factory=dict)
    inputs: list[Tensor] = field(default_factory=list)
    below: dict[Tensor, int] = field(default_factory=dict)
    whole: set[Tensor] = field(default_factory=set)
    made: list[Made] = field(default_factory=list)
    outputs: list[Made] = field(default_factory=list)
    count: int = 0

    @property
    def everything(self) -> tuple[str, ...]:
        """Every dtype that a part may have, bool first, whatever the dtypes of the stages."""
        return tuple(dict.fromkeys((*DTYPES, *self.dtypes)))

    def pick(self, options: Sequence[T]) -> T:
        return self.draw(st.sampled_from(options))  # type: ignore[no-any-return]

    def chance(self, one_in: int) -> bool:
        return self.draw(st.integers(0, one_in - 1)) == 0  # type: ignore[no-any-return]

    def number(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))  # type: ignore[no-any-return]

    def name(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    # Extents and tensors

    def extent(self, size: int) -> Any:
        """An extent of this size: the number, or a variable that has it."""
        if not self.symbolic or not self.chance(2):
            return size
        for known, value in self.sizes.items():
            if value == size:
                return known
        fresh = var("nmpqrs"[len(self.sizes)] if len(self.sizes) < 6 else f"n{len(self.sizes)}")
        self.sizes[fresh] = size
        return fresh

    def size(self) -> int:
        return self.pick([s for s in SIZES if s] if self.smooth or not self.chance(8) else SIZES)

    def shape(self, most: int = 4) -> tuple[int, ...]:
        rank = self.pick([0, 1, 1, 2, 2, 2, 3, 3, 4][: 2 * most + 1])
        sizes = [self.size() for _ in range(rank)]
        while math.prod(sizes) > 2000:
            sizes[sizes.index(max(sizes))] = 2
        return tuple(sizes)

    def extents(self, shape: Sequence[int]) -> tuple[Any, ...]:
        return tuple(map(self.extent, shape))

    def input(self, shape: tuple[int, ...], dtype: str, below: int | None = None) -> Made:
        tensor = placeholder(self.extents(shape), dtype, name=self.name("A" if below is None else "idx"))
        self.inputs.append(tensor)
        if below is not None:
            self.below[tensor] = below
        made = Made(tensor, shape)
        if below is None:
            self.made.append(made)
        return made

    # Indices

    def index(self, axes: Sequence[tuple[Axis, int]], size: int) -> Any:
        """An index within [0, size), size > 0."""
        fitting = [a for a, n in axes if n <= size and begins_at_zero(a)]
        forms = ["constant", "modulo"]
        forms += ["plain"] * 6 + ["shifted", "reversed"] if fitting else []
        forms += ["data"] if not self.smooth else []
        form = self.pick(forms)
        if form == "constant" or not axes:
            return self.number(0, size - 1)
        if form in ("plain", "shifted", "reversed"):
            axis = self.pick(fitting)
            room = size - next(n for a, n in axes if a is axis)
            if form == "shifted" and room:
                return axis + self.number(0, room)
            return size - 1 - axis if form == "reversed" else axis
        if form == "data":
            axis, n = self.pick(axes)
            if n and begins_at_zero(axis):
                return self.input((n,), self.pick(INTEGERS), size).tensor[axis]
        first, second = self.pick(axes)[0], self.pick(axes)[0]
        return self.pick([first % size, (first + 2 * second) % size, (first // 2) % size, (3 * first - second) % size])

    def read(self, made: Made, axes: Sequence[tuple[Axis, int]]) -> Value | None:
        """An element of a tensor, wherever it is used in bounds."""
        tensor, shape = made.tensor, made.shape
        if 0 in shape:
            loops = [next((a for a, n in axes if n == 0), None) for _ in shape]
            if any(a is None for a in loops) or any(shape):
                return None
            return Value(tensor[tuple(loops)], made.exact, made.scales)
        if shape and axes and self.chance(5):
            indices = [self.pick(axes)[0] * self.pick([1, 1, 2, -1]) + self.number(-3, 3) for _ in shape]
            return Value(tensor.at(*indices, mode=self.pick(MODES)), made.exact, made.scales)
        indices = [self.index(axes, n) for n in shape]
        if shape and axes and self.chance(8):
            axis, n = self.pick(axes)
            loose, dim = axis + self.number(-2, 2), self.number(0, len(shape) - 1)
            indices[dim] = loose
            inside = (loose >= 0) & (loose < shape[dim])
            other = literal(self.number(0, 3), tensor.dtype)
            return Value(fn.select(inside, tensor[tuple(indices)], other), made.exact, made.scales)
        return Value(tensor[tuple(indices)], made.exact, made.scales)

    def keep(self, tensor: Tensor, shape: tuple[int, ...], *values: Value, exact: bool | None = None) -> None:
        """Let a tensor be an output, and be read by what comes."""
        scales = tuple(dict.fromkeys(s for v in values for s in v.scales))
        made = Made(tensor, shape, all(v.exact for v in values) if exact is None else exact, scales)
        self.made.append(made)
        self.outputs.append(made)

    def finished(self) -> Program:
        """The program as it is."""
        outputs = tuple(m.tensor for m in self.outputs)
        exact = frozenset(m.tensor for m in self.outputs if m.exact)
        scale = {m.tensor: m.scales[0] for m in self.outputs if m.scales}
        return Program(
            tuple(self.inputs), outputs, dict(self.sizes), dict(self.below), exact, scale, frozenset(self.whole)
        )


def begins_at_zero(axis: Axis) -> bool:
    return getattr(axis.begin, "value", None) == 0


def literal(value: int, dtype: DType) -> Any:
    if dtype.is_bool:
        return fn.const(bool(value % 2))
    return fn.const(float(value) if dtype.is_float else value, dtype)
