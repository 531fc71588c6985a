"""Random numbers from explicit keys: element k of a draw is a hash of the key and k, whoever computes it and when.

A draw is an ordinary tensor expression. A kernel that uses it computes it where it is read, in any order, and the
backward pass draws the same numbers again instead of keeping them. The hash is Threefry-2x32, and keys, bits and
uniform numbers are those of jax.random.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from tedsl.lang import functions as fn
from tedsl.lang.axes import as_shape, reduce_axis
from tedsl.lang.compute import compute
from tedsl.lang.dtypes import as_dtype
from tedsl.lang.errors import user_location
from tedsl.lang.expr import Expr
from tedsl.lang.extents import number
from tedsl.lang.foreign import has_elements, values_of
from tedsl.lang.reducers import argmax
from tedsl.lang.step import axes_outside
from tedsl.lang.tensor import Tensor
from tedsl.lang.titles import takes_variables

__all__ = [
    "bernoulli", "bits", "categorical", "fold_in", "gumbel", "key", "normal", "randint", "split", "uniform",
]  # fmt: skip

_ELSEWHERE = {
    **dict.fromkeys(("seed", "default_rng", "PRNGKey", "manual_seed", "RandomState"), "te.random.key(seed)"),
    "rand": "te.random.uniform(key, shape)", "random": "te.random.uniform(key, shape)", "integers": "te.random.randint",
    "randn": "te.random.normal(key, shape)", "standard_normal": "te.random.normal(key, shape)",
    "permutation": "te.argsort(te.random.bits(key, (n,)))", "shuffle": "x[te.argsort(te.random.bits(key, (n,)))]",
    "choice": "x[te.random.randint(key, shape, 0, n)]", "exponential": "-te.log(te.random.uniform(key, shape))",
    "fold": "te.random.fold_in", "multinomial": "te.random.categorical",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    told = f": it is {_ELSEWHERE[name]}" if name in _ELSEWHERE else ""
    raise AttributeError(f"module 'tedsl.random' has no attribute {name!r}{told}", name=name, obj=sys.modules[__name__])


def __dir__() -> list[str]:
    return __all__


Key: TypeAlias = Any  # a seed, two uint32 in an array or a tensor, or a 0-rank tensor of integers

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_BLOCKS = 5
_MANTISSA = {"float32": 23, "float64": 52}

# The normal quantile (Wichura, 1988, AS 241): numerators and denominators, highest power first.
_CENTRAL = (
    (2509.0809287301226727, 33430.575583588128105, 67265.770927008700853, 45921.953931549871457,
     13731.693765509461125, 1971.5909503065514427, 133.14166789178437745, 3.387132872796366608),
    (5226.495278852854561, 28729.085735721942674, 39307.89580009271061, 21213.794301586595867,
     5394.1960214247511077, 687.1870074920579083, 42.313330701600911252, 1.0),
)  # fmt: skip
_MIDDLE = (
    (7.7454501427834140764e-4, 2.27238449892691845833e-2, 2.4178072517745061177e-1, 1.27045825245236838258,
     3.64784832476320460504, 5.7694972214606914055, 4.6303378461565452959, 1.42343711074968357734),
    (1.05075007164441684324e-9, 5.475938084995344946e-4, 1.51986665636164571966e-2, 1.4810397642748007459e-1,
     6.8976733498510000455e-1, 1.6763848301838038494, 2.05319162663775882187, 1.0),
)  # fmt: skip
_FAR = (
    (2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.2426609473880784386e-3, 2.6532189526576123093e-2,
     2.9656057182850489123e-1, 1.7848265399172913358, 5.4637849111641143699, 6.6579046435011037772),
    (2.04426310338993978564e-15, 1.4215117583164458887e-7, 1.8463183175100546818e-5, 7.868691311456132591e-4,
     1.48753612908506148525e-2, 1.3692998809273580531e-1, 5.9983220655588793769e-1, 1.0),
)  # fmt: skip


def key(seed: int) -> np.ndarray[Any, Any]:
    """The key of a seed, an array of two uint32: jax.random.key_data(jax.random.key(seed))."""
    if isinstance(seed, (bool, np.bool_)) or not isinstance(seed, (int, np.integer)):
        raise TypeError(f"te.random.key at {user_location()}: seed: expected an integer, found {seed!r:.60}")
    return np.array([(int(seed) >> 32) & 0xFFFFFFFF, int(seed) & 0xFFFFFFFF], "uint32")


@takes_variables
def split(key: Key, count: int = 2) -> Any:
    """Keys that are independent of each other and of `key`, one for each row: an array, of a tensor a tensor."""
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise ValueError(f"te.random.split at {user_location()}: count: expected a number from 1 on, found {count!r}")
    if isinstance(key, Tensor):
        return _derived(words(key, "te.random.split"), count, lambda row: fn.cast(row, "uint32"))
    first, second = _hashed(key, np.arange(count, dtype="uint32"), "te.random.split")
    return np.stack([first, second], axis=1)


@takes_variables
def fold_in(key: Key, data: Any) -> Any:
    """The key of `key` and a number, such as that of a step: an array, of tensors a tensor."""
    if not isinstance(key, Tensor) and not isinstance(data, (Tensor, Expr)):
        low = np.array([int(data) & 0xFFFFFFFF], "uint32")
        return np.concatenate(_hashed(key, low, "te.random.fold_in"))
    number = fn.cast(data[()] if isinstance(data, Tensor) else data, "uint32")
    if outside := axes_outside(number):
        names = ", ".join(a.name for a in outside)
        sizes = ", ".join("..." if a.extent is None else str(a.extent) for a in outside) + "," * (len(outside) == 1)
        raise ValueError(
            f"te.random.fold_in at {user_location()}: a key is a whole tensor, and none of a single place {names} of a "
            f"te.compute; draw for all places at once, u = te.random.uniform(key, ({sizes})), and read u[{names}] there"
        )
    return _derived(words(key, "te.random.fold_in"), 1, lambda row: number)[0]


@takes_variables
def bits(key: Key, shape: Any, dtype: Any = "uint32") -> Tensor:
    """Random uint32 or uint64, as jax.random.bits has them."""
    pair, extents, kind = words(key, "te.random.bits"), as_shape(shape, "te.random.bits"), str(as_dtype(dtype))
    if kind not in ("uint32", "uint64"):
        raise TypeError(f"te.random.bits at {user_location()}: dtype: expected uint32 or uint64, found {kind}")
    read = bits_at if kind == "uint32" else wide_bits_at
    return compute(extents, lambda *i: read(i, extents, pair), name="bits")  # type: ignore[no-any-return]


@takes_variables
def uniform(key: Key, shape: Any = (), low: float = 0.0, high: float = 1.0, dtype: Any = "float32") -> Tensor:
    """Numbers from low to below high, as jax.random.uniform has them."""
    unit = _units(key, shape, dtype, "te.random.uniform")
    return _drawn(shape, lambda *i: fn.maximum(unit(*i) * (high - low) + low, low), "uniform")


@takes_variables
def normal(key: Key, shape: Any = (), mean: float = 0.0, std: float = 1.0, dtype: Any = "float32") -> Tensor:
    """Normal numbers. float32 ones are those of jax.random.normal, but for rounding; float64 ones, too."""
    unit, kind = _units(key, shape, dtype, "te.random.normal"), str(as_dtype(dtype))
    least = float(np.nextafter(np.dtype(kind).type(-1), np.dtype(kind).type(0)))

    def element(*i: Any) -> Any:
        centered = fn.maximum(unit(*i) * (1.0 - least) + least, least)  # above -1, below 1
        return _quantile(centered * 0.5, kind) * std + mean

    return _drawn(shape, element, "normal")


@takes_variables
def bernoulli(key: Key, p: float = 0.5, shape: Any = ()) -> Tensor:
    """True with the probability p, as jax.random.bernoulli has it."""
    return _drawn(shape, chance(key, p, shape), "bernoulli")


def chance(key: Key, p: float, shape: Any) -> Callable[..., Any]:
    """A function of the indices of an element: true with the probability p."""
    unit = _units(key, shape, "float32", "te.random.bernoulli")
    return lambda *i: unit(*i) < p


@takes_variables
def randint(key: Key, shape: Any, low: int, high: int) -> Tensor:
    """int32 from low to below high, as jax.random.randint has them."""
    if not all(isinstance(v, (int, np.integer)) for v in (low, high)) or not -(2**31) <= low < high <= 2**31:
        raise ValueError(
            f"te.random.randint at {user_location()}: expected low below high, both int32, found {low!r} and {high!r}"
        )
    extents, span = as_shape(shape, "te.random.randint"), high - low
    keys = split(key)
    halves = [words(keys[k], "te.random.randint") for k in range(2)]
    factor = ((2**16 % span) ** 2 % 2**32) % span  # of what the upper half weighs

    def element(*i: Any) -> Any:
        upper, lower = (bits_at(i, extents, half) for half in halves)
        if span < 2**32:
            size = fn.const(span, "uint32")
            lower = ((upper % size) * fn.const(factor, "uint32") + lower % size) % size
        return fn.cast(lower + fn.const(low & 0xFFFFFFFF, "uint32"), "int32")

    return compute(extents, element, name="randint")  # type: ignore[no-any-return]


@takes_variables
def gumbel(key: Key, shape: Any = (), dtype: Any = "float32") -> Tensor:
    """Numbers of the Gumbel distribution: -log(-log(u)) of uniform u."""
    unit, kind = _units(key, shape, dtype, "te.random.gumbel"), str(as_dtype(dtype))
    tiny = float(np.finfo(kind).tiny)
    return _drawn(shape, lambda *i: -fn.log(-fn.log(fn.maximum(unit(*i) + tiny, tiny))), "gumbel")


@takes_variables
def categorical(key: Key, logits: Tensor) -> Tensor:
    """For each row of logits an int32, drawn by the softmax of the row."""
    if not isinstance(logits, Tensor) or not logits.ndim:
        what = f"te.random.categorical at {user_location()}"
        raise TypeError(f"{what}: logits: expected a tensor of rank 1 or more, found {logits!r:.60}")
    noise = gumbel(key, logits.shape, "float64" if str(logits.dtype) == "float64" else "float32")
    k = reduce_axis(logits.extents[-1], "k")

    def drawn(*i: Any) -> Any:
        place = (*i, k)
        return argmax(logits[place] + noise[place], axis=k)

    return compute(logits.extents[:-1], drawn, name="categorical")  # type: ignore[no-any-return]


def threefry(key: tuple[Any, Any], counter: tuple[Any, Any]) -> tuple[Any, Any]:
    """Threefry-2x32 of twenty rounds (Salmon et al., 2011), on scalars of uint32 or arrays of it."""
    keys = _schedule(key)
    state = counter[0] + keys[0], counter[1] + keys[1]
    for block in range(_BLOCKS):
        state = _block(state, keys, block)
    return state


def _schedule(key: tuple[Any, Any]) -> tuple[Any, Any, Any]:
    return (*key, key[0] ^ key[1] ^ 0x1BD11BDA)


def _block(state: tuple[Any, Any], keys: tuple[Any, Any, Any], block: int) -> tuple[Any, Any]:
    """Four rounds, then the key."""
    a, b = state
    for rotation in _ROTATIONS[block % 2]:
        a = a + b
        b = ((b << rotation) | (b >> (32 - rotation))) ^ a
    return a + keys[(block + 1) % 3], b + keys[(block + 2) % 3] + (block + 1)


def _derived(key: tuple[Any, Any], count: int, counter: Callable[[Any], Any]) -> Tensor:
    """Keys of a key and the number of their row, by a stage for each block.

    As one expression without an axis of loops, Halide would look at them once for each path from its end to its leaves.
    """
    keys = _schedule(key)

    def start(row: Any, word: Any) -> Any:
        return fn.select(word == 0, keys[0], counter(row) + keys[1])

    def step(state: Tensor, block: int) -> Callable[[Any, Any], Any]:
        return lambda row, word: fn.select(word == 0, *_block((state[row, 0], state[row, 1]), keys, block))

    state: Tensor = compute((count, 2), start, name="keys")
    for block in range(_BLOCKS):
        state = compute((count, 2), step(state, block), name="keys")
    return state


def words(key: Key, what: str) -> tuple[Any, Any]:
    """The two words of a key, as scalars."""
    if isinstance(key, Tensor):
        if key.ndim == 0 and key.dtype.is_integer:
            return fn.const(0, "uint32"), fn.cast(key[()], "uint32")
        if [number(n) for n in key.extents] == [2] and str(key.dtype) == "uint32":
            return key[0], key[1]
        raise _not_a_key(key, what)
    first, second = _pair(key, what)
    return fn.const(first, "uint32"), fn.const(second, "uint32")


def bits_at(index: tuple[Any, ...], shape: tuple[Any, ...], key: tuple[Any, Any]) -> Any:
    """The 32 random bits of one element of fewer than 2^32."""
    a, b = _hash_at(index, shape, key)
    return a ^ b


def wide_bits_at(index: tuple[Any, ...], shape: tuple[Any, ...], key: tuple[Any, Any]) -> Any:
    """The 64 random bits of one element."""
    a, b = _hash_at(index, shape, key)
    return (fn.cast(a, "uint64") << fn.const(32, "uint64")) | fn.cast(b, "uint64")


def _hash_at(index: tuple[Any, ...], shape: tuple[Any, ...], key: tuple[Any, Any]) -> tuple[Any, Any]:
    if all(number(extent) == 1 for extent in shape):
        pair = _derived(key, 1, lambda row: fn.const(0, "uint32"))
        return pair[0, 0], pair[0, 1]
    return threefry(key, (fn.const(0, "uint32"), _place(index, shape)))


def unit_of(drawn: Any, dtype: str) -> Any:
    """A float from 0 to below 1 by the upper bits of what was drawn."""
    kept = _MANTISSA[dtype]
    shift = (32 if dtype == "float32" else 64) - kept
    return fn.cast(drawn >> fn.const(shift, str(drawn.dtype)), dtype) * fn.const(2.0**-kept, dtype)


def _place(index: tuple[Any, ...], shape: tuple[Any, ...]) -> Any:
    flat: Any = fn.const(0, "uint32")
    for i, extent in zip(index, shape, strict=True):
        flat = flat * fn.cast(extent, "uint32") + fn.cast(i, "uint32")
    return flat


def _units(key: Key, shape: Any, dtype: Any, what: str) -> Callable[..., Any]:
    """A function of indices: a float of the dtype from 0 to below 1."""
    pair, extents, kind = words(key, what), as_shape(shape, what), str(as_dtype(dtype))
    if kind not in _MANTISSA:
        raise TypeError(f"{what} at {user_location()}: dtype: expected float32 or float64, found {kind}; te.cast it")
    read = bits_at if kind == "float32" else wide_bits_at
    return lambda *i: unit_of(read(i, extents, pair), kind)


def _drawn(shape: Any, element: Callable[..., Any], name: str) -> Tensor:
    return compute(as_shape(shape, f"te.random.{name}"), element, name=name)  # type: ignore[no-any-return]


def _hashed(key: Key, counters: np.ndarray[Any, Any], what: str) -> tuple[Any, Any]:
    """Threefry of a key that is known."""
    pair = tuple(np.array([word], "uint32") for word in _pair(key, what))
    return threefry(pair, (np.zeros_like(counters), counters))  # type: ignore[arg-type]


def _pair(key: Any, what: str) -> tuple[int, int]:
    """The words of a key that is known: a seed, or an array of two uint32."""
    if has_elements(key) and not isinstance(key, np.integer) and not _is_of_jax(key):
        key = values_of(key, f"{what} at {user_location()}: key")
    if isinstance(key, (int, np.integer)) and not isinstance(key, bool):
        first, second = (int(key) >> 32) & 0xFFFFFFFF, int(key) & 0xFFFFFFFF
    elif isinstance(key, np.ndarray) and key.shape == (2,) and key.dtype == np.uint32:
        first, second = key
    else:
        raise _not_a_key(key, what)
    return int(first), int(second)


def _is_of_jax(key: Any) -> bool:
    """Whether it is a jax.random.key, an array of keys that has no numbers."""
    return str(getattr(key, "dtype", "")).startswith("key<")


def _not_a_key(key: Any, what: str) -> TypeError:
    if _is_of_jax(key):
        return TypeError(f"{what} at {user_location()}: key: give jax.random.key_data(key), the two uint32 of it")
    return TypeError(
        f"{what} at {user_location()}: key: expected te.random.key(seed), a row of te.random.split(key), or a tensor "
        f"of two uint32, found {key!r:.60}"
    )


def _quantile(centered: Any, kind: str) -> Any:
    """The normal quantile of 1/2 + centered."""
    tail = 0.5 - fn.abs(centered)
    near = 0.180625 - centered * centered
    far = fn.sqrt(-fn.log(fn.select(fn.abs(centered) <= 0.425, 0.25, tail)))
    outer = fn.select(far <= 5.0, _ratio(_MIDDLE, far - 1.6, kind), _ratio(_FAR, far - 5.0, kind))
    return fn.select(
        fn.abs(centered) <= 0.425, centered * _ratio(_CENTRAL, near, kind), fn.select(centered < 0.0, -outer, outer)
    )


def _ratio(polynomials: tuple[tuple[float, ...], tuple[float, ...]], x: Any, kind: str) -> Any:
    sums = []
    for coefficients in polynomials:
        value: Any = fn.const(coefficients[0], kind)
        for c in coefficients[1:]:
            value = value * x + c
        sums.append(value)
    return sums[0] / sums[1]
