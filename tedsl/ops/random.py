"""Draws as operators: the numbers of `te.random` for a seed. The backward pass of a dropout draws its mask again."""

from __future__ import annotations

from typing import Any

from tedsl import random
from tedsl.lang.titles import takes_variables
from tedsl.ops import language as te
from tedsl.ops.arguments import check_float, refuse
from tedsl.ops.op import op

__all__ = ["dropout", "random_bits", "uniform"]


@takes_variables
def random_bits(shape: Any, seed: Any) -> te.Tensor:
    """Random uint32: jax.random.bits(jax.random.key(seed), shape), for fewer than 2^32 elements."""
    return random.bits(seed, shape)


@takes_variables
def uniform(shape: Any, seed: Any, low: float = 0.0, high: float = 1.0) -> te.Tensor:
    """Random float32 from low to below high: low + (high - low) jax.random.uniform(jax.random.key(seed), shape)."""
    return random.uniform(seed, shape, low, high)


@op
def dropout(x: te.Tensor, p: float = 0.5, seed: Any = 0, training: bool = True) -> te.Tensor:
    """x / (1 - p) where uniform(x.shape, seed) is below 1 - p, else 0; x itself unless training.

    As torch.nn.functional.dropout, with draws that the seed fixes: an integer, or a 0-rank integer tensor or a key of
    te.random, so that one kernel serves every step.
    """
    check_float(x, "dropout", "x")
    if not 0.0 <= p <= 1.0:
        raise refuse("dropout", f"p: expected a number from 0 to 1, found {p!r}")
    if not training or p == 0.0:
        return te.compute(x.shape, lambda *i: x[i], name="dropout")
    scale, kept = 0.0 if p == 1.0 else 1.0 / (1.0 - p), random.chance(seed, 1.0 - p, x.shape)

    def element(*i: Any) -> Any:
        return te.select(kept(*i), x[i] * scale, 0.0)

    return te.compute(x.shape, element, name="dropout")  # type: ignore[no-any-return]
