"""Orders and what they tell of an index: sorts, largest elements, segments and permutations, each with a gradient."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

import tedsl as te
from benchmarks.workload import Workload, tensor

__all__ = ["ordering"]

_RANDOM = np.random.default_rng(0)
SIZES = (10**3, 10**5, 10**6)
LARGEST, MEMBERS = 10, 10  # of topk; of a segment, on average


def ordering() -> Iterator[Workload]:
    """Forward with the gradient of `x`, at sizes that fit a core's first cache, its second, and none of its own."""
    for n in SIZES:
        yield _workload(f"sort {n:.0e}", n, n, te.sort, lambda x: x.sort(stable=True).values, lambda x: _jnp().sort(x))
        yield _workload(
            f"top {LARGEST} of {n:.0e}", n, LARGEST, lambda x: te.topk(x, LARGEST)[0],
            lambda x: x.topk(LARGEST).values, _jax_topk,
        )  # fmt: skip
        places = _RANDOM.permutation(n).astype(np.int32)
        yield _workload(
            f"permute {n:.0e}", n, n, lambda x, i: te.take(x, te.assume(i, permutation=True)),
            lambda x, i: x[i], lambda x, i: x.at[i].get(unique_indices=True), places,
        )  # fmt: skip
        segments = np.sort(_RANDOM.integers(0, n // MEMBERS, n)).astype(np.int32)
        yield _workload(
            f"read segments {n:.0e}", n // MEMBERS, n, lambda x, i: te.take(x, te.assume(i, sorted=True)),
            lambda x, i: x[i], lambda x, i: x.at[i].get(indices_are_sorted=True), segments,
        )  # fmt: skip
        yield _workload(
            f"sum segments {n:.0e}", n, n // MEMBERS, _summed, _torch_summed, _jax_summed, segments
        )  # fmt: skip


def _workload(
    name: str, given: int, made: int, function: Callable[..., te.Tensor], torch_peer: Callable[..., Any],
    jax_peer: Callable[..., Any], *index: Any,
) -> Workload:  # fmt: skip
    """A step of training by the first argument; the index is an input, as a batch brings it."""
    x, head = tensor("x", given), tensor("head", made)
    places: list[te.Tensor] = [te.placeholder(i.shape, "int32", name="places") for i in index]
    y = function(x, *places)
    (gradient,) = te.differentiate(y, [x], head=head)

    def torch_step(x: Any, head: Any, *index: Any) -> Any:
        leaf = x.detach().requires_grad_()
        result = torch_peer(leaf, *index)
        return result.detach(), *torch.autograd.grad(result, leaf, head)

    def jax_step(x: Any, head: Any, *index: Any) -> Any:
        import jax

        result, back = jax.vjp(lambda x: jax_peer(x, *index), x)
        return result, *back(head)

    arrays = [*(_RANDOM.standard_normal(n).astype(np.float32) for n in (given, made)), *index]
    return Workload("order", name, 1.0, [x, head, *places], [y, gradient], arrays, torch_step, jax_step)


def _summed(x: te.Tensor, index: te.Tensor) -> te.Tensor:
    i = te.reduce_axis(x.shape[0], name="i")
    count = x.shape[0] // MEMBERS
    made: te.Tensor = te.scatter((count,), axes=[i], index=(te.assume(index, sorted=True)[i],), value=x[i], op="add")
    return made


def _torch_summed(x: Any, index: Any) -> Any:
    return torch.zeros(len(x) // MEMBERS).index_add(0, index, x)


def _jax_summed(x: Any, index: Any) -> Any:
    return _jnp().zeros(len(x) // MEMBERS).at[index].add(x, indices_are_sorted=True)


def _jax_topk(x: Any) -> Any:
    import jax

    return jax.lax.top_k(x, LARGEST)[0]


def _jnp() -> Any:
    import jax.numpy as jnp

    return jnp
