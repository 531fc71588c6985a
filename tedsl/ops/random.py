"""Numbers that are drawn by counting: element k of a draw is a hash of k and a seed, whoever computes it and when.

The hash is Threefry-2x32, and the draws are those of jax.random with the key of the seed. The backward pass of a
dropout draws its mask again instead of keeping it.
"""

from __future__ import annotations

from typing import Any

from tedsl.lang.axes import as_shape
from tedsl.ops import language as te
from tedsl.ops.arguments import check_float, check_integer, refuse
from tedsl.ops.op import op

__all__ = ["dropout", "random_bits", "uniform"]

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def threefry(key: tuple[Any, Any], counter: tuple[Any, Any]) -> tuple[Any, Any]:
    """Threefry-2x32 of twenty rounds (Salmon et al., 2011) on scalars of uint32."""
    keys = (*key, key[0] ^ key[1] ^ te.const(0x1BD11BDA, "uint32"))
    a, b = counter[0] + keys[0], counter[1] + keys[1]
    for block in range(5):
        for rotation in _ROTATIONS[block % 2]:
            a = a + b
            b = ((b << te.const(rotation, "uint32")) | (b >> te.const(32 - rotation, "uint32"))) ^ a
        a = a + keys[(block + 1) % 3]
        b = b + keys[(block + 2) % 3] + te.const(block + 1, "uint32")
    return a, b


def _key(seed: Any, what: str) -> tuple[Any, Any]:
    """The key of a seed: an integer, or a 0-rank tensor of integers."""
    if isinstance(seed, te.Tensor):
        check_integer(seed, what, "seed")
        if seed.ndim:
            raise refuse(what, f"seed: expected an integer or a 0-rank tensor, found {seed!r}")
        return te.const(0, "uint32"), te.cast(seed[()], "uint32")
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise refuse(what, f"seed: expected an integer or a 0-rank tensor, found {seed!r}")
    return te.const((seed >> 32) & 0xFFFFFFFF, "uint32"), te.const(seed & 0xFFFFFFFF, "uint32")


def bits_at(index: tuple[Any, ...], shape: tuple[Any, ...], key: tuple[Any, Any]) -> Any:
    """The 32 random bits of one element."""
    flat: Any = te.const(0, "uint32")
    for i, extent in zip(index, shape, strict=True):
        flat = flat * te.cast(extent, "uint32") + te.cast(i, "uint32")
    a, b = threefry(key, (te.const(0, "uint32"), flat))
    return a ^ b


def random_bits(shape: Any, seed: Any) -> te.Tensor:
    """Random uint32: jax.random.bits(jax.random.key(seed), shape), for fewer than 2^32 elements."""
    extents, key = as_shape(shape, "te.ops.random_bits"), _key(seed, "random_bits")
    return te.compute(extents, lambda *i: bits_at(i, extents, key), name="random_bits")  # type: ignore[no-any-return]


def uniform(shape: Any, seed: Any, low: float = 0.0, high: float = 1.0) -> te.Tensor:
    """Random float32 from low to below high: low + (high - low) jax.random.uniform(jax.random.key(seed), shape)."""
    extents, key = as_shape(shape, "te.ops.uniform"), _key(seed, "uniform")

    def element(*i: Any) -> Any:
        return te.maximum(unit(bits_at(i, extents, key)) * (high - low) + low, low)

    return te.compute(extents, element, name="uniform")  # type: ignore[no-any-return]


def unit(bits: Any) -> Any:
    """A float32 from 0 to below 1 by the upper 23 bits."""
    return te.cast(bits >> te.const(9, "uint32"), "float32") * te.const(2.0**-23, "float32")


@op
def dropout(x: te.Tensor, p: float = 0.5, seed: Any = 0, training: bool = True) -> te.Tensor:
    """x / (1 - p) where uniform(x.shape, seed) is below 1 - p, else 0; x itself unless training.

    As torch.nn.functional.dropout, with draws that the seed fixes: an integer, or a 0-rank integer tensor so that one
    kernel serves every step.
    """
    check_float(x, "dropout", "x")
    if not 0.0 <= p <= 1.0:
        raise refuse("dropout", f"p: expected a number from 0 to 1, found {p!r}")
    if not training or p == 0.0:
        return te.compute(x.shape, lambda *i: x[i], name="dropout")  # type: ignore[no-any-return]
    keep, key = te.const(1.0 - p, "float32"), _key(seed, "dropout")
    scale = 0.0 if p == 1.0 else 1.0 / (1.0 - p)

    def element(*i: Any) -> Any:
        return te.select(unit(bits_at(i, x.shape, key)) < keep, x[i] * scale, 0.0)

    return te.compute(x.shape, element, name="dropout")  # type: ignore[no-any-return]
