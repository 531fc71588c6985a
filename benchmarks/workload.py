"""One workload of `make bench`: a program, its arrays, and the same computation elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import tedsl as te

__all__ = ["Array", "Workload", "both", "floats", "tensor"]

Array = Any
_RANDOM = np.random.default_rng(0)


@dataclass(frozen=True)
class Workload:
    """`outputs` from `inputs`, and peers that give the same values.

    `peer` takes PyTorch tensors of the same arrays, `jax_peer` JAX arrays; it is compiled by `jax.jit`.
    """

    group: str
    name: str
    target: float  # the least ratio of the best peer's time to ours that is wanted
    inputs: list[te.Tensor]
    outputs: list[te.Tensor]
    arrays: list[Array]
    peer: Callable[..., Any]
    flops: float = 0.0
    tolerance: float = 1e-3
    jax_peer: Callable[..., Any] | None = None


def floats(tensors: Sequence[te.Tensor]) -> list[Array]:
    """Normal numbers for each."""
    return [_RANDOM.standard_normal(t.shape).astype(np.float32) for t in tensors]


def tensor(name: str, *shape: int) -> te.Tensor:
    """An input of float32."""
    made: te.Tensor = te.placeholder(shape, "float32", name=name)
    return made


def both(
    group: str, name: str, target: float, inputs: Sequence[te.Tensor], y: te.Tensor, peer: Callable[..., Any],
    jax_peer: Callable[..., Any] | None = None, arrays: Sequence[Array] = (), tolerance: float = 1e-3,
) -> Iterator[Workload]:  # fmt: skip
    """Forward, and forward with the gradients of all inputs."""
    given = list(arrays) or floats(inputs)
    leaves = list(inputs)
    yield Workload(group, f"{name}, forward", target, leaves, [y], given, peer, 0.0, tolerance, jax_peer)
    head = tensor("head", *y.shape) if y.ndim else None
    grads = te.differentiate(y, leaves) if head is None else te.differentiate(y, leaves, head=head)
    yield Workload(
        group, f"{name}, forward + backward", target, leaves if head is None else [*leaves, head], [y, *grads],
        given if head is None else [*given, *floats([head])], _torch_step(peer, head is not None), 0.0, tolerance,
        None if jax_peer is None else _jax_step(jax_peer, head is not None),
    )  # fmt: skip


def _torch_step(peer: Callable[..., Any], headed: bool) -> Callable[..., Any]:
    def step(*arrays: Any) -> Any:
        given, adjoint = (arrays[:-1], arrays[-1]) if headed else (arrays, None)
        leaves = [a.detach().requires_grad_() for a in given]
        result = peer(*leaves)
        return (result.detach(), *torch.autograd.grad(result, leaves, adjoint))

    return step


def _jax_step(peer: Callable[..., Any], headed: bool) -> Callable[..., Any]:
    def step(*arrays: Any) -> Any:
        import jax
        import jax.numpy as jnp

        given, adjoint = (arrays[:-1], arrays[-1]) if headed else (arrays, jnp.ones(()))
        result, back = jax.vjp(peer, *given)
        return (result, *back(adjoint))

    return step
