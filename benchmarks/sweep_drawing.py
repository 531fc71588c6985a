"""What families of `benchmarks.sweep` draw: programs with their peers, sizes, shapes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import tedsl as te
from benchmarks.workload import Array, Peer

__all__ = ["Body", "Drawn", "extent", "input_of", "moved", "shape_of", "taking"]

Body = Callable[..., Any]


@dataclass(frozen=True)
class Drawn:
    """A program with its inputs, and a function of PyTorch tensors that gives the same.

    Arrays that are no normal numbers are `given`, inputs that no gradient is asked for `fixed`. `jax` is the same
    function of JAX arrays.
    """

    text: str
    inputs: list[te.Tensor]
    output: te.Tensor | tuple[te.Tensor, ...]
    peer: Peer | None
    given: dict[te.Tensor, Array] = field(default_factory=dict)
    jax: Peer | None = None
    fixed: frozenset[te.Tensor] = frozenset()

    @property
    def results(self) -> tuple[te.Tensor, ...]:
        """The output, or all of them."""
        return self.output if isinstance(self.output, tuple) else (self.output,)


def extent(chance: Random, low: int, high: int) -> int:
    """A size, small ones as likely as large ones; every third a multiple of eight."""
    found = round(math.exp(chance.uniform(math.log(low), math.log(high))))
    return max(low, found // 8 * 8) if chance.random() < 0.34 else found


def shape_of(chance: Random, dims: int, elements: int) -> tuple[int, ...]:
    """A shape of about so many elements."""
    parts = [chance.expovariate(1) + 0.2 for _ in range(dims)]
    return tuple(max(1, round(elements ** (p / sum(parts)))) for p in parts)


def input_of(name: str, *shape: int) -> te.Tensor:
    made: te.Tensor = te.placeholder(shape, name=name)
    return made


def taking(count: int, body: Body) -> Body:
    """A function of so many loops of a sum."""
    functions: dict[int, Body] = {
        1: lambda u: body(u), 2: lambda u, v: body(u, v), 3: lambda u, v, w: body(u, v, w),
        4: lambda u, v, w, k: body(u, v, w, k),
    }  # fmt: skip
    return functions[count]


def moved(text: str, inputs: list[te.Tensor], output: te.Tensor, peer: Peer, jax: Peer) -> Drawn:
    """A program whose function of JAX takes `jax.numpy` first."""

    def jax_peer(*arrays: Any) -> Any:
        import jax.numpy as jnp

        return jax(jnp, *arrays)

    return Drawn(text, inputs, output, peer, jax=jax_peer)
