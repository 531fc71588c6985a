"""One line of the catalogue: a program, what it needs to be fed, and the same function in other frameworks.

A builder takes a size: 1 gives arrays small enough to compare element by element, larger ones show what the adjoints
cost when the border no longer matters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

import tedsl as te

Array = Any
Program = tuple[tuple[te.Tensor, ...], tuple[te.Tensor, ...]]  # outputs, inputs


@dataclass(frozen=True)
class Entry:
    """A program of the catalogue and its oracles, functions from the input arrays to the output(s)."""

    name: str
    build: Callable[[int], tuple[Any, Sequence[te.Tensor]]]
    torch: Callable[..., Any] | None = None
    jax: Callable[..., Any] | None = None
    smooth: bool = True  # second derivatives exist where the values are drawn
    affine: bool = True  # every index is affine: no scatter may be left
    feed: Mapping[str, Callable[[np.random.Generator, tuple[int, ...]], Array]] = field(default_factory=dict)
    grid: bool = False  # one of many alike: compared with one framework in the default tier

    def program(self, size: int = 1) -> Program:
        outputs, inputs = self.build(size)
        return ((outputs,) if isinstance(outputs, te.Tensor) else tuple(outputs)), tuple(inputs)

    @cached_property
    def case(self) -> Case:
        """The program at size 1 with arrays for it."""
        return Case(self, *self.program())

    @property
    def seed(self) -> int:
        return sum(ord(c) * (k + 1) for k, c in enumerate(self.name))


@dataclass(frozen=True)
class Case:
    """A program of fixed size, fed."""

    entry: Entry
    outputs: tuple[te.Tensor, ...]
    inputs: tuple[te.Tensor, ...]

    @property
    def sources(self) -> list[te.Tensor]:
        """The inputs that have gradients."""
        return [t for t in self.inputs if t.dtype.is_float]

    @cached_property
    def arrays(self) -> list[Array]:
        random = np.random.default_rng(self.entry.seed)
        return [self._drawn(random, t) for t in self.inputs]

    def _drawn(self, random: np.random.Generator, tensor: te.Tensor) -> Array:
        rule = self.entry.feed.get(tensor.name)
        return random.normal(size=tensor.shape) if rule is None else rule(random, tensor.shape)

    @cached_property
    def heads(self) -> tuple[te.Tensor, ...]:
        return tuple(te.placeholder(t.shape, t.dtype, name=f"{t.name}_head") for t in self.outputs)

    @cached_property
    def directions(self) -> tuple[te.Tensor, ...]:
        return tuple(te.placeholder(t.shape, t.dtype, name=f"{t.name}_v") for t in self.sources)

    @cached_property
    def feeds(self) -> dict[te.Tensor, Array]:
        random = np.random.default_rng(self.entry.seed + 1)
        around = {t: np.asarray(random.normal(size=t.shape)) for t in (*self.heads, *self.directions)}
        return {**dict(zip(self.inputs, self.arrays, strict=True)), **around}

    @cached_property
    def gradients(self) -> Any:
        return te.differentiate(list(self.outputs), self.sources, head=list(self.heads))


def tensor(name: str, *shape: int, dtype: str = "float64") -> te.Tensor:
    """An input."""
    return te.placeholder(shape, dtype, name=name)


def loops(*extents: int) -> tuple[te.Axis, ...]:
    """Reduce axes."""
    return tuple(te.reduce_axis(n, name=f"r{k}") for k, n in enumerate(extents))


def both(function: Callable[..., Any]) -> dict[str, Any]:
    """Oracles in both frameworks from one function of (namespace, arrays): the names they share."""

    def torch_form(*arrays: Any) -> Any:
        import torch

        return function(torch, *arrays)

    def jax_form(*arrays: Any) -> Any:
        import jax.numpy

        return function(jax.numpy, *arrays)

    return {"torch": torch_form, "jax": jax_form}


def in_range(high: int) -> Callable[[np.random.Generator, tuple[int, ...]], Array]:
    """Indices below `high`."""
    return lambda random, shape: random.integers(0, high, shape).astype(np.int32)


def uniform(low: float, high: float) -> Callable[[np.random.Generator, tuple[int, ...]], Array]:
    return lambda random, shape: random.uniform(low, high, shape)


def distinct(random: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Values of which no two are equal."""
    return random.permutation(math.prod(shape)).reshape(shape) / 7.0
