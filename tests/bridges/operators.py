"""Operators to be checked in every framework, with arguments: some by hand, and every entry of the catalogue."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

import tedsl as te
from schedules.program import reading
from tedsl.lang.traverse import operations_between
from tedsl.ops.op import Op
from tests.autodiff.catalogue.entry import Entry
from tests.ops.catalogue import CATALOGUE

__all__ = ["CATALOGUE_OPS", "OPS", "Case", "affine", "noisy"]


@te.op
def affine(x: te.Tensor, w: te.Tensor, scale: float = 2.0, shift: int = 1) -> te.Tensor:
    """x * w * scale + shift."""
    return te.compute(x.shape, lambda i: x[i] * w[i] * scale + shift)


@te.op
def noisy(x: te.Tensor) -> te.Tensor:
    return te.extern(np.sort, x.shape, x.dtype, [x], pure=False)


@te.op
def bilateral_slice(grid: te.Tensor, guide: te.Tensor) -> te.Tensor:
    """grid at (y, x, guide[y, x]), between its eight nearest cells."""
    tent = lambda d: te.maximum(1 - te.abs(d), 0)  # noqa: E731

    def value(y: Any, x: Any) -> Any:
        at = [(y + 0.5) * grid.shape[0] / guide.shape[0] - 0.5, (x + 0.5) * grid.shape[1] / guide.shape[1] - 0.5]
        at.append(guide[y, x] * grid.shape[2] - 0.5)
        at = [te.cast(p, guide.dtype) for p in at]
        low = [te.cast(te.floor(p), "int32") for p in at]
        weight = lambda *c: tent(at[0] - c[0]) * tent(at[1] - c[1]) * tent(at[2] - c[2])  # noqa: E731
        cells = [te.reduce_axis(2, name=name) for name in "ijk"]
        c = [a + b for a, b in zip(low, cells, strict=True)]
        return te.sum(grid.at(*c, mode="clamp") * weight(*c), axis=cells)

    return te.compute(guide.shape, value, name="slice")


@te.op
def softmax(x: te.Tensor) -> te.Tensor:
    """Along the last axis."""
    n, m = x.shape
    top = te.compute((n,), lambda i: te.max(lambda k: x[i, k]), name="top")
    e = te.compute((n, m), lambda i, j: te.exp(x[i, j] - top[i]), name="e")
    total = te.compute((n,), lambda i: te.sum(lambda k: e[i, k]), name="total")
    return te.compute((n, m), lambda i, j: e[i, j] / total[i], name="softmax")


@te.op
def picked(x: te.Tensor, index: te.Tensor, decay: float = 0.5) -> tuple[te.Tensor, te.Tensor, te.Tensor]:
    """Chosen elements, a running sum, and the position of the largest: results of several kinds."""
    chosen = te.compute(index.shape, lambda i: x[index[i]] ** 2, name="chosen")
    run = te.scan(x.shape, lambda s, t: te.select(t == 0, x[0], s[t - 1] * decay + te.sin(x[t])), axis=0)
    return chosen, run, te.compute((), lambda: te.argmax(lambda k: x[k]), name="largest")


@dataclass(frozen=True)
class Case:
    """An operator and a maker of its arguments."""

    name: str
    op: Op
    make: Callable[[], list[Any]]
    twice: bool = True  # has second derivatives where the arguments lie

    @cached_property
    def arrays(self) -> list[Any]:
        return self.make()

    @property
    def floats(self) -> list[int]:
        return [k for k, a in enumerate(self.arrays) if a.dtype.kind == "f"]

    def __str__(self) -> str:
        return self.name


def _random(*shapes: tuple[int, ...]) -> list[Any]:
    random = np.random.default_rng(3)
    return [random.standard_normal(shape) for shape in shapes]


def _slice_arguments() -> list[Any]:
    (grid,) = _random((2, 3, 4))
    return [grid, np.random.default_rng(4).uniform(0.2, 0.8, (4, 3))]


OPS = [
    Case("bilateral_slice", bilateral_slice, _slice_arguments),
    Case("softmax", softmax, lambda: _random((2, 3))),
    Case("picked", picked, lambda: [*_random((4,)), np.array([2, 0, 2])]),
]


def _as_op(entry: Entry) -> Op:
    """The program of an entry as an operator of its inputs."""

    def function(*given: te.Tensor) -> Any:
        outputs, own = entry.program()
        new = dict(zip(own, given, strict=True))
        for op in operations_between(own, outputs):
            made = reading(op, new)
            new.update(zip(op.outputs, made.outputs, strict=True))
        found = [new.get(t, t) for t in outputs]
        return found[0] if len(found) == 1 else tuple(found)

    return te.op(function, name="".join(c if c.isalnum() else "_" for c in entry.name))


def _arguments(entry: Entry) -> list[Any]:
    return [np.asarray(a, t.dtype.numpy) for a, t in zip(entry.case.arrays, entry.case.inputs, strict=True)]


CATALOGUE_OPS = [
    Case(e.name, _as_op(e), lambda e=e: _arguments(e), e.smooth) for e in CATALOGUE if e.case.sources
]  # fmt: skip
