"""Random stages, one for each construct of the language."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from autodiff.strategies.builder import FLOATS, Value, literal
from autodiff.strategies.expressions import Expressions
from tedsl.lang import functions as fn, reducers
from tedsl.lang.axes import reduce_axis
from tedsl.lang.compute import compute, compute_tensors
from tedsl.lang.dtypes import as_dtype
from tedsl.lang.expr import Axis
from tedsl.lang.scan import scan
from tedsl.lang.scatter import scatter
from tedsl.lang.tensor import Tensor

__all__ = ["CONSTRUCTS", "Stages"]

CONSTRUCTS = ("pointwise", "several", "reduction", "custom", "scatter", "scan")


class Stages(Expressions):
    """A builder that draws stages."""

    def pointwise(self) -> None:
        shape, dtype = self.shape(), self.pick(self.dtypes)
        results: list[Value] = []

        def body(*ix: Axis) -> Any:
            results.append(self.value(list(zip(ix, shape, strict=True)), dtype, 3, False))
            return results[0].expr

        tensor = compute(self.extents(shape), body, name=self.name("P"))
        self.keep(tensor, shape, *results)

    def several(self) -> None:
        shape, dtypes = self.shape(3), [self.pick(self.dtypes) for _ in range(2)]
        results: list[Value] = []

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
        return same_axes(tensor, fold)

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
                step = before * literal(1, as_dtype(dtype)) + self.value(axes, dtype, 1, True).expr
                results.append(fn.select(known, step, start))
            return tuple(results) if states > 1 else results[0]

        one, two = (lambda a, *ix: body((a,), ix)), (lambda a, b, *ix: body((a, b), ix))
        made = scan(shape, one if states == 1 else two, axis=dim, reverse=reverse, dtype=dtype, name=self.name("Y"))
        for tensor in made if isinstance(made, tuple) else (made,):
            self.keep(tensor, shape, exact=True)


def same_axes(tensor: Tensor, body: Any) -> Tensor:
    """A tensor over the very axes of another one."""
    return compute_tensors(tensor.op.axes, (body,), f"{tensor.name}_scale")[0]  # type: ignore[attr-defined]


# How they combine, their identity, how many values they take; whether products of these grow.
_REDUCERS: Sequence[tuple[Any, Any, int, bool]] = (
    (lambda a, b: fn.maximum(a, b), 0, 1, False),
    (lambda a, b: a + b, 0, 1, False),
    (lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1]), (1, 0), 2, True),
    (lambda a, b: (fn.minimum(a[0], b[0]), fn.select(b[0] < a[0], b[1], a[1])), (100, 0), 2, False),
)
