"""One workload of `make bench`: a program, its arrays, and the same computation elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import tedsl as te

__all__ = ["Array", "Peer", "Workload", "both", "floats", "tensor"]

Array = Any
Peer = Callable[..., Any]
_RANDOM = np.random.default_rng(0)


@dataclass(frozen=True)
class Workload:
    """`outputs` from `inputs`, and functions of PyTorch tensors, JAX and NumPy arrays that give the same values.

    A workload with a `step` has the gradients of its first outputs, the `results`, by the inputs that are not `fixed`
    as its other outputs; its peers are the forward functions. Heads are the last inputs: one for each result of floats,
    none for a scalar that is the only one.
    """

    group: str
    name: str
    target: float  # the least ratio of the best peer's time to ours that is wanted
    inputs: list[te.Tensor]
    outputs: list[te.Tensor]
    arrays: list[Array]
    torch_peer: Peer | None
    jax_peer: Peer | None = None
    numpy_peer: Peer | None = None
    flops: float = 0.0
    tolerance: float = 1e-3
    step: bool = False
    results: int = 1
    fixed: frozenset[int] = frozenset()  # positions of inputs

    @property
    def heads(self) -> int:
        """How many of the last arrays are adjoints of results."""
        found = [y for y in self.outputs[: self.results] if y.dtype.is_float]
        return len(found) if self.step and (self.results > 1 or found[0].ndim) else 0

    @property
    def has_head(self) -> bool:
        """Whether the last array is the adjoint of the first output."""
        return self.heads > 0

    @property
    def leaves(self) -> list[int]:
        """Positions of the inputs that have a gradient."""
        given = self.inputs[: len(self.inputs) - self.heads]
        return [k for k, t in enumerate(given) if t.dtype.is_float and k not in self.fixed]


def floats(tensors: Sequence[te.Tensor]) -> list[Array]:
    """Normal numbers for each."""
    return [_RANDOM.standard_normal(t.shape).astype(np.float32) for t in tensors]


def tensor(name: str, *shape: int) -> te.Tensor:
    """An input of float32."""
    made: te.Tensor = te.placeholder(shape, "float32", name=name)
    return made


def both(
    group: str, name: str, target: float, inputs: Sequence[te.Tensor], y: te.Tensor, torch_peer: Peer,
    jax_peer: Peer | None = None, arrays: Sequence[Array] = (), tolerance: float = 1e-3,
) -> Iterator[Workload]:  # fmt: skip
    """Forward, and forward with the gradients of all inputs."""
    given, leaves = list(arrays) or floats(inputs), list(inputs)
    yield Workload(
        group, f"{name}, forward", target, leaves, [y], given, torch_peer, jax_peer, tolerance=tolerance
    )  # fmt: skip
    heads = [tensor("head", *y.shape)] if y.ndim else []
    grads = te.differentiate(y, leaves, head=heads[0]) if heads else te.differentiate(y, leaves)
    yield Workload(
        group, f"{name}, forward + backward", target, [*leaves, *heads], [y, *grads], [*given, *floats(heads)],
        torch_peer, jax_peer, tolerance=tolerance, step=True,
    )  # fmt: skip
