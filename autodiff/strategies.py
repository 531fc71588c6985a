"""Hypothesis strategies for tensor programs: random programs over every construct, index maps, and arrays to feed them.

A program is drawn together with the sizes of its symbolic extents and with what keeps it meaningful: every read is in
bounds where it is used, no integer is divided by zero. `exact` tells which tensors two evaluators must agree on bit by
bit: those computed by operations that IEEE rounds one way. What rounds freely (transcendental functions, the order of a
float sum) is never compared, floored or cast to an integer afterwards, so that a last bit cannot grow into another
branch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from hypothesis import strategies as st

from tedsl.lang import functions as fn, reducers
from tedsl.lang.axes import reduce_axis, var
from tedsl.lang.compute import compute, compute_tensors, placeholder
from tedsl.lang.dtypes import DType, as_dtype, integer_bounds
from tedsl.lang.expr import Axis, Expr, Var
from tedsl.lang.scan import scan
from tedsl.lang.scatter import scatter
from tedsl.lang.tensor import Tensor

__all__ = ["CONSTRUCTS", "DTYPES", "Program", "index_maps", "programs", "tensors", "values_for"]

T = TypeVar("T")
Draw = Callable[[st.SearchStrategy[T]], T]

CONSTRUCTS = ("pointwise", "several", "reduction", "custom", "scatter", "scan")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float16", "bfloat16", "float32", "float64")
# bfloat16 is drawn where a caller names it: arrays of it need ml_dtypes.
DTYPES = ("bool", *INTEGERS, "float16", "float32", "float64")
ROUNDING = {
    "float16": 2.0**11,
    "bfloat16": 2.0**8,
    "float32": 2.0**24,
    "float64": 2.0**53,
}  # a half vanishes beside them
SIZES = (0, 1, 2, 3, 4, 5, 7, 8, 17, 19)
MODES = ("zero", "clamp", "reflect", "wrap")
# Where a comparison or a rounding follows, a result must be the same in every evaluator: one rounding each.
EXACT_UNARY = ("neg", "abs", "relu", "sqrt")
STEP_UNARY = ("sign", "floor", "ceil", "round", "trunc")
SMOOTH_UNARY = ("exp", "tanh", "sin", "cos", "sigmoid", "erf", "log1p", "expm1", "atan")


@dataclass(frozen=True, eq=False)
class Program:
    """Tensors to evaluate, and what is needed to feed them."""

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    sizes: dict[Var, int]
    below: dict[Tensor, int]  # inputs that serve as an index: their values lie in [0, below)
    exact: frozenset[Tensor]  # outputs on which evaluators agree bit by bit
    scale: dict[Tensor, Tensor]  # for the others, a bound on the magnitude of the terms that were summed

    def shape(self, tensor: Tensor) -> tuple[int, ...]:
        """The extents in numbers."""
        return tuple(_size(e, self.sizes) for e in tensor.extents)

    def __repr__(self) -> str:
        sizes = ", ".join(f"{v.name} = {n}" for v, n in self.sizes.items())
        return f"Program({len(self.outputs)} outputs, {sizes or 'static'})\n" + "\n".join(map(str, self.outputs))


def _size(extent: Expr, sizes: Mapping[Var, int]) -> int:
    value = getattr(extent, "value", None)
    if value is not None:
        return int(value)
    assert isinstance(extent, Var)
    return sizes[extent]


@dataclass(frozen=True, eq=False)
class _Value:
    """An expression; whether every evaluator gives the same bits; the companion that bounds the terms of its sums."""

    expr: Any
    exact: bool = True
    scales: tuple[Tensor, ...] = ()


@dataclass(eq=False)
class _Made:
    """A tensor drawn so far."""

    tensor: Tensor
    shape: tuple[int, ...]
    exact: bool = True
    scales: tuple[Tensor, ...] = ()


@dataclass(eq=False)
class _Builder:
    """One program while it is drawn."""

    draw: Callable[..., Any]
    symbolic: bool
    smooth: bool
    dtypes: Sequence[str]
    sizes: dict[Var, int] = field(default_factory=dict)
    inputs: list[Tensor] = field(default_factory=list)
    below: dict[Tensor, int] = field(default_factory=dict)
    made: list[_Made] = field(default_factory=list)
    outputs: list[_Made] = field(default_factory=list)
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

    def input(self, shape: tuple[int, ...], dtype: str, below: int | None = None) -> _Made:
        tensor = placeholder(self.extents(shape), dtype, name=self.name("A" if below is None else "idx"))
        self.inputs.append(tensor)
        if below is not None:
            self.below[tensor] = below
        made = _Made(tensor, shape)
        if below is None:
            self.made.append(made)
        return made

    # Indices

    def index(self, axes: Sequence[tuple[Axis, int]], size: int) -> Any:
        """An index within [0, size), size > 0."""
        fitting = [a for a, n in axes if n <= size and _begins_at_zero(a)]
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
            if n and _begins_at_zero(axis):
                return self.input((n,), self.pick(INTEGERS), size).tensor[axis]
        first, second = self.pick(axes)[0], self.pick(axes)[0]
        return self.pick([first % size, (first + 2 * second) % size, (first // 2) % size, (3 * first - second) % size])

    def read(self, made: _Made, axes: Sequence[tuple[Axis, int]]) -> _Value | None:
        """An element of a tensor, wherever it is used in bounds."""
        tensor, shape = made.tensor, made.shape
        if 0 in shape:
            loops = [next((a for a, n in axes if n == 0), None) for _ in shape]
            if any(a is None for a in loops) or any(shape):
                return None
            return _Value(tensor[tuple(loops)], made.exact, made.scales)
        if shape and axes and self.chance(5):
            indices = [self.pick(axes)[0] * self.pick([1, 1, 2, -1]) + self.number(-3, 3) for _ in shape]
            return _Value(tensor.at(*indices, mode=self.pick(MODES)), made.exact, made.scales)
        indices = [self.index(axes, n) for n in shape]
        if shape and axes and self.chance(8):
            axis, n = self.pick(axes)
            loose, dim = axis + self.number(-2, 2), self.number(0, len(shape) - 1)
            indices[dim] = loose
            inside = (loose >= 0) & (loose < shape[dim])
            other = _literal(self.number(0, 3), tensor.dtype)
            return _Value(fn.select(inside, tensor[tuple(indices)], other), made.exact, made.scales)
        return _Value(tensor[tuple(indices)], made.exact, made.scales)

    # Expressions

    def leaf(self, axes: Sequence[tuple[Axis, int]], dtype: str, exact: bool) -> _Value:
        """A value of `dtype`, read from a tensor if there is a fitting one."""
        options = [m for m in self.made if m.tensor.dtype == dtype and (m.exact or not exact)]
        if options and not self.chance(6):
            found = self.read(self.pick(options), axes)
            if found is not None:
                return found
        if axes and dtype not in ("bool",) and self.chance(3):
            return _Value(fn.cast(self.pick(axes)[0], dtype))
        if len(self.inputs) < 4:
            found = self.read(self.input(self.shape(3), dtype), axes)
            if found is not None:
                return found
        return _Value(_literal(self.number(0, 5), as_dtype(dtype)))

    def value(self, axes: Sequence[tuple[Axis, int]], dtype: str, depth: int, exact: bool) -> _Value:
        """An expression of `dtype`; with `exact` every evaluator gives the same bits."""
        if depth <= 0:
            return self.leaf(axes, dtype, exact)
        if dtype == "bool":
            return self.condition(axes, depth)
        kind = self.pick(["leaf", "binary", "binary", "unary", "select", "order", "cast"])
        if kind == "leaf":
            return self.leaf(axes, dtype, exact)
        if kind == "cast":
            return self.converted(axes, dtype, depth, exact)
        if kind == "select":
            c = self.condition(axes, depth - 1)
            a, b = (self.value(axes, dtype, depth - 1, exact) for _ in range(2))
            return _joined(fn.select(c.expr, a.expr, b.expr), a, b)
        if kind == "order":
            a, b = (self.value(axes, dtype, depth - 1, exact) for _ in range(2))
            return _joined(self.pick([fn.minimum, fn.maximum])(a.expr, b.expr), a, b)
        if kind == "unary":
            return self.unary(axes, dtype, depth, exact)
        return self.binary(axes, dtype, depth)

    def unary(self, axes: Sequence[tuple[Axis, int]], dtype: str, depth: int, exact: bool) -> _Value:
        is_float = dtype in FLOATS
        a = self.value(axes, dtype, depth - 1, True)
        if self.smooth:
            return _Value(getattr(fn, self.pick(("tanh", "sin", "sigmoid")))(a.expr), False)
        if is_float and not exact and self.chance(2):
            return _Value(getattr(fn, self.pick(SMOOTH_UNARY))(a.expr), False)
        name = self.pick([*EXACT_UNARY, *STEP_UNARY] if is_float else ["neg", "abs", "sign", "relu"])
        if name == "neg":
            return _Value(-a.expr)
        return _Value(getattr(fn, name)(a.expr))

    def binary(self, axes: Sequence[tuple[Axis, int]], dtype: str, depth: int) -> _Value:
        a, b = (self.value(axes, dtype, depth - 1, True).expr for _ in range(2))
        if self.smooth:
            return _Value(self.pick([a + b, a - b, a * b]))
        if dtype in FLOATS:
            operator: Callable[[], Any] = self.pick([lambda: a + b, lambda: a - b, lambda: a * b, lambda: a / b])
            return _Value(operator())
        divisor = self.pick([2, 3, 5, 7])
        guarded = fn.select(b == 0, _literal(1, as_dtype(dtype)), b)
        options: list[Callable[[], Any]] = [
            lambda: a + b, lambda: a - b, lambda: a * b, lambda: a & b, lambda: a | b, lambda: a ^ b, lambda: ~a,
            lambda: a // divisor, lambda: a % divisor, lambda: a // guarded, lambda: a % guarded,
            lambda: a << 1, lambda: a >> 2,
        ]  # fmt: skip
        return _Value(self.pick(options)())

    def converted(self, axes: Sequence[tuple[Axis, int]], dtype: str, depth: int, exact: bool) -> _Value:
        if self.smooth:
            return self.leaf(axes, dtype, exact)
        source = self.pick(self.everything)
        a = self.value(axes, source, depth - 1, True)
        return _Value(fn.cast(a.expr, dtype))

    def condition(self, axes: Sequence[tuple[Axis, int]], depth: int) -> _Value:
        """A bool that every evaluator decides alike."""
        if axes and (self.smooth or self.chance(2)):
            axis, _ = self.pick(axes)
            above = lambda: axis > self.number(0, 4)  # noqa: E731 - drawn only if picked
            rule: Callable[[], Any] = self.pick([lambda: axis % 2 == 0, above, lambda: axis != 1])
            return _Value(rule())
        kind = self.pick(["compare", "compare", "both", "not", "leaf"]) if depth > 0 else "leaf"
        if kind == "leaf" or self.smooth:
            return self.leaf(axes, "bool", True)
        if kind == "not":
            return _Value(~self.condition(axes, depth - 1).expr)
        if kind == "both":
            a, b = (self.condition(axes, depth - 1).expr for _ in range(2))
            return _Value(self.pick([a & b, a | b, a ^ b]))
        dtype = self.pick(self.everything[1:])
        a, b = (self.value(axes, dtype, depth - 1, True).expr for _ in range(2))
        if dtype in FLOATS and self.chance(3):  # a rounded sum is compared as it was rounded
            a = a + fn.const(self.pick([-1, 1]) * ROUNDING[dtype], dtype)
        compare: list[Callable[[], Any]] = [
            lambda: a < b, lambda: a <= b, lambda: a > b, lambda: a >= b, lambda: a == b, lambda: a != b,
        ]  # fmt: skip
        return _Value(self.pick(compare)())

    # Stages

    def keep(self, tensor: Tensor, shape: tuple[int, ...], *values: _Value, exact: bool | None = None) -> None:
        scales = tuple(dict.fromkeys(s for v in values for s in v.scales))
        made = _Made(tensor, shape, all(v.exact for v in values) if exact is None else exact, scales)
        self.made.append(made)
        self.outputs.append(made)

    def pointwise(self) -> None:
        shape, dtype = self.shape(), self.pick(self.dtypes)
        results: list[_Value] = []

        def body(*ix: Axis) -> Any:
            results.append(self.value(list(zip(ix, shape, strict=True)), dtype, 3, False))
            return results[0].expr

        tensor = compute(self.extents(shape), body, name=self.name("P"))
        self.keep(tensor, shape, *results)

    def several(self) -> None:
        shape, dtypes = self.shape(3), [self.pick(self.dtypes) for _ in range(2)]
        results: list[_Value] = []

        def body(*ix: Axis) -> Any:
            axes = list(zip(ix, shape, strict=True))
            results.extend(self.value(axes, d, 2, False) for d in dtypes)
            return tuple(r.expr for r in results)

        made = compute(self.extents(shape), body, name=self.name("S"))
        for tensor, result in zip(made, results, strict=True):
            self.keep(tensor, shape, result)

    def loops(self, most: int = 2) -> tuple[list[Axis], list[tuple[Axis, int]]]:
        """Reduce axes and their sizes; some begin elsewhere than at 0."""
        sizes = [self.size() for _ in range(self.number(1, most))]
        if math.prod(sizes) > 40:
            sizes = [min(s, 5) for s in sizes]
        axes = []
        for size in sizes:
            begin = self.number(-2, 3) if not self.smooth and self.chance(5) else 0
            extent = self.extent(size)
            axes.append(reduce_axis((begin, begin + extent) if begin else extent, name=self.name("k")))
        return axes, list(zip(axes, sizes, strict=True))

    def where(self, axes: Sequence[tuple[Axis, int]]) -> Any:
        return self.condition(axes, self.number(1, 2)).expr if self.chance(3) else None

    def reduction(self) -> None:
        shape = self.shape(3)
        kinds = ("sum",) if self.smooth else ("sum", "sum", "prod", "max", "min", "any", "all", "argmax", "argmin")
        kind = self.pick(kinds)
        dtype = "bool" if kind in ("any", "all") else self.pick([d for d in self.dtypes if d != "bool"] or ["int32"])
        axes, sized = self.loops()
        rounds = kind in ("sum", "prod") and dtype in FLOATS
        bounds: list[Any] = []

        def body(*ix: Axis) -> Any:
            around = [*zip(ix, shape, strict=True), *sized]
            value = self.value(around, dtype, 2, True).expr
            if rounds and kind == "prod":
                value = fn.minimum(fn.maximum(value, -2), 2)
            where = self.where(around)
            bounds.append((value, where))
            return getattr(reducers, kind)(value, axis=tuple(axes), where=where)

        if kind in ("max", "min", "argmax", "argmin") and 0 in [n for _, n in sized]:
            return
        extents = self.extents(shape)
        tensor = compute(extents, body, name=self.name("R"))
        self.keep(tensor, shape, exact=not rounds)
        if rounds:
            self.outputs[-1].scales = (self._magnitude(tensor, kind),)

    def _magnitude(self, tensor: Tensor, kind: str) -> Tensor:
        """The sum of the magnitudes of the terms (the product of those that are at least 1)."""
        reduce = tensor.op.bodies[0]  # type: ignore[attr-defined]
        value = fn.abs(fn.cast(reduce.values[0], "float64"))
        if kind == "prod":
            value = fn.maximum(value, 1.0)
        fold = getattr(reducers, kind)(value, axis=reduce.axes, where=reduce.where)
        return _same_axes(tensor, fold)

    def custom(self) -> None:
        shape, dtype = self.shape(2), self.pick(["int32", "int16", "float32", "float64", "uint8"])
        axes, sized = self.loops()
        combine, identity, arity, grows = self.pick(_REDUCERS)

        def body(*ix: Axis) -> Any:
            around = [*zip(ix, shape, strict=True), *sized]
            values = tuple(self.value(around, dtype, 1, True).expr for _ in range(arity))
            if grows and dtype in FLOATS:
                values = tuple(map(fn.sign, values))  # else it rounds, in whichever order it runs
            fold = reducers.reducer(combine, identity)
            return fold(values if arity > 1 else values[0], axis=tuple(axes), where=self.where(around))

        made = compute(self.extents(shape), body, name=self.name("U"))
        for tensor in made if isinstance(made, tuple) else (made,):
            self.keep(tensor, shape, exact=True)

    def scatter(self) -> None:
        shape = tuple(max(1, n) for n in self.shape(3))
        dtype = self.pick([d for d in self.dtypes if d != "bool"] or ["int32"])
        op = "add" if self.smooth else self.pick(("add", "add", "max", "min", "mul"))
        axes, sized = self.loops()
        index = tuple(self.index(sized, n) for n in shape)
        value = self.value(sized, dtype, 2, True).expr
        rounds = op in ("add", "mul") and dtype in FLOATS
        if op == "mul" and rounds:
            value = fn.minimum(fn.maximum(value, -2), 2)
        starts = [m for m in self.made if m.tensor.dtype == dtype and m.shape == shape and m.exact]
        init = self.pick(starts).tensor if starts and not rounds and self.chance(2) else None
        extents = self.extents(shape) if init is None else init.extents
        where = None if not self.chance(3) else self.condition(sized, 1).expr
        tensor = scatter(extents, axes, index, value, op=op, init=init, where=where, name=self.name("W"))
        self.keep(tensor, shape, exact=not rounds)
        if rounds:
            terms = fn.abs(fn.cast(value, "float64"))
            terms = fn.maximum(terms, 1.0) if op == "mul" else terms
            scale = scatter(extents, axes, index, terms, op=op, where=where, name=self.name("M"))
            self.outputs[-1].scales = (scale,)

    def scan(self) -> None:
        shape = tuple(min(n, 8) for n in self.shape(3)) or (5,)
        dtype = self.pick(["int32", "int64", "uint8", "float32", "float64", "int16"])
        dim, reverse = self.number(0, len(shape) - 1), bool(self.number(0, 1))
        lag, elsewhere = self.number(1, 2), bool(self.chance(2))
        inner = reduce_axis(shape[0 if dim else -1], name=self.name("k")) if len(shape) > 1 and self.chance(3) else None
        states = self.number(1, 2)
        if self.smooth:
            dtype = self.dtypes[0]

        def body(held: tuple[Any, ...], ix: tuple[Axis, ...]) -> Any:
            axes = list(zip(ix, shape, strict=True))
            time = ix[dim]
            earlier = time + lag if reverse else time - lag
            known = earlier < shape[dim] if reverse else earlier >= 0
            results = []
            for k in range(states):
                place = [self.index(axes, n) if elsewhere and d != dim and n else a for d, (a, n) in enumerate(axes)]
                place[dim] = earlier
                before = held[-1 - k][tuple(place)]
                if inner is not None and not self.smooth:
                    place[0 if dim else len(shape) - 1] = inner
                    before = fn.minimum(before, reducers.max(held[k][tuple(place)], axis=inner))
                start = self.value(axes, dtype, 1, True).expr
                step = before * _literal(1, as_dtype(dtype)) + self.value(axes, dtype, 1, True).expr
                results.append(fn.select(known, step, start))
            return tuple(results) if states > 1 else results[0]

        one, two = (lambda a, *ix: body((a,), ix)), (lambda a, b, *ix: body((a, b), ix))
        made = scan(shape, one if states == 1 else two, axis=dim, reverse=reverse, dtype=dtype, name=self.name("Y"))
        for tensor in made if isinstance(made, tuple) else (made,):
            self.keep(tensor, shape, exact=True)


def _begins_at_zero(axis: Axis) -> bool:
    return getattr(axis.begin, "value", None) == 0


def _same_axes(tensor: Tensor, body: Any) -> Tensor:
    """A tensor over the very axes of another one."""
    return compute_tensors(tensor.op.axes, (body,), f"{tensor.name}_scale")[0]  # type: ignore[attr-defined]


def _joined(expr: Any, *parts: _Value) -> _Value:
    return _Value(expr, all(p.exact for p in parts), tuple(s for p in parts for s in p.scales))


def _literal(value: int, dtype: DType) -> Any:
    if dtype.is_bool:
        return fn.const(bool(value % 2))
    return fn.const(float(value) if dtype.is_float else value, dtype)


# How they combine, their identity, how many values they take; whether products of these grow.
_REDUCERS: Sequence[tuple[Any, Any, int, bool]] = (
    (lambda a, b: fn.maximum(a, b), 0, 1, False),
    (lambda a, b: a + b, 0, 1, False),
    (lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1]), (1, 0), 2, True),
    (lambda a, b: (fn.minimum(a[0], b[0]), fn.select(b[0] < a[0], b[1], a[1])), (100, 0), 2, False),
)


@st.composite
def programs(
    draw: Any,
    *,
    constructs: Sequence[str] = CONSTRUCTS,
    dtypes: Sequence[str] | None = None,
    stages: int = 4,
    symbolic: bool | None = None,
    differentiable: bool = False,
) -> Program:
    """A program of up to `stages` stages; `differentiable` keeps to smooth float64 operations away from kinks."""
    chosen = tuple(dtypes or (("float64",) if differentiable else DTYPES))
    mixed = draw(st.booleans()) if symbolic is None else symbolic
    builder = _Builder(draw, mixed, differentiable, chosen)
    allowed = [c for c in constructs if not (differentiable and c == "custom")]
    for _ in range(draw(st.integers(1, stages))):
        getattr(builder, draw(st.sampled_from(allowed)))()
    if not builder.outputs:
        builder.pointwise()
    return _finished(builder)


def _finished(builder: _Builder) -> Program:
    outputs = tuple(m.tensor for m in builder.outputs)
    exact = frozenset(m.tensor for m in builder.outputs if m.exact)
    scale = {m.tensor: m.scales[0] for m in builder.outputs if m.scales}
    return Program(tuple(builder.inputs), outputs, dict(builder.sizes), dict(builder.below), exact, scale)


@st.composite
def tensors(draw: Any, *, dtype: str | None = None, most: int = 4, symbolic: bool = False) -> Tensor:
    """A placeholder of any rank up to `most`."""
    builder = _Builder(draw, symbolic, False, DTYPES)
    return builder.input(builder.shape(most), dtype or builder.pick(DTYPES)).tensor


@st.composite
def index_maps(draw: Any, axes: Sequence[Axis] | None = None, extent: int | None = None) -> Expr:
    """An integer expression of `axes` (of static extents; up to three are made if None) within [0, extent)."""
    if axes is None:
        sizes = draw(st.lists(st.integers(1, 8), min_size=1, max_size=3))
        axes = [Axis(name, fn.as_expr(size)) for name, size in zip("ijk", sizes, strict=False)]
    extent = draw(st.integers(1, 20)) if extent is None else extent
    builder = _Builder(draw, False, True, DTYPES)
    sized = [(a, int(getattr(a.extent, "value", 1))) for a in axes]
    return fn.as_expr(builder.index(sized, extent))


SPECIAL = (math.nan, math.inf, -math.inf, -0.0, 0.0)


@st.composite
def values_for(draw: Any, program: Program, *, special: bool = True) -> dict[Tensor, np.ndarray[Any, Any]]:
    """Arrays for the inputs: small numbers with few bits, NaN, infinities and signed zeros, extremes of integers."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    odd = special and draw(st.booleans())
    return {t: _array(rng, t.dtype, program.shape(t), program.below.get(t), odd) for t in program.inputs}


def _array(
    rng: np.random.Generator, dtype: DType, shape: tuple[int, ...], below: int | None, special: bool
) -> np.ndarray[Any, Any]:
    if below is not None:
        return np.asarray(rng.integers(0, below, shape)).astype(dtype.numpy)
    if dtype.is_bool:
        return np.asarray(rng.integers(0, 2, shape)).astype(bool)
    if dtype.is_integer:
        low, high = integer_bounds(dtype)
        small = np.asarray(rng.integers(max(low, -9), 10, shape)).astype(dtype.numpy)
        extreme = np.asarray(
            rng.choice([low, high, low + 1, high - 1], shape) if low >= -(2**62) and high < 2**62 else small
        )
        return np.where(rng.random(shape) < 0.2, extreme, small).astype(dtype.numpy) if special else small
    plain = np.asarray(rng.integers(-32, 33, shape)) / 8
    if special:
        plain = np.where(rng.random(shape) < 0.15, rng.choice(SPECIAL, shape), plain)
    return np.asarray(plain).astype(dtype.numpy)
