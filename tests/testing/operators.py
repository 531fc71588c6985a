"""Operators that are right, as users write them: none may be called wrong."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

import tedsl as te
from tests.testing import planted

array = te.testing.array


@dataclass(frozen=True)
class Right:
    """An operator and how it is drawn."""

    name: str
    op: Callable[..., Any]
    shapes: Sequence[Any] = ("...",)
    options: Mapping[str, Any] = field(default_factory=dict)


ANYWHERE = [
    "abs",
    "asinh",
    "atan",
    "cbrt",
    "ceil",
    "cos",
    "cosh",
    "erf",
    "erfc",
    "exp",
    "exp2",
    "expm1",
    "floor",
    "relu",
    "round",
    "sigmoid",
    "sign",
    "sin",
    "sinh",
    "tanh",
    "trunc",
]
POSITIVE = ["log", "log10", "log1p", "log2", "rsqrt", "sqrt"]
WITHIN_ONE = ["acos", "asin", "atanh"]


def unary() -> Iterator[Right]:
    for name in ANYWHERE:
        yield Right(name, functools.partial(_apply, getattr(te, name)))
    for name in POSITIVE:
        yield Right(name, functools.partial(_apply, getattr(te, name)), (array("...", low=0.2),))
    for name in WITHIN_ONE:
        yield Right(name, functools.partial(_apply, getattr(te, name)), (array("...", low=-0.9, high=0.9),))
    yield Right("acosh", functools.partial(_apply, te.acosh), (array("...", low=1.2, high=3.0),))
    yield Right("tan", functools.partial(_apply, te.tan), (array("...", low=-1.2, high=1.2),))
    for name in ANYWHERE:
        yield Right(f"{name} of a square", functools.partial(_squared, getattr(te, name)))


def _apply(f: Callable[..., Any], x: te.Tensor) -> Any:
    return f(x)


def _squared(f: Callable[..., Any], x: te.Tensor) -> Any:
    return f(x * x) * x


BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "sum": lambda a, b: a + b, "difference": lambda a, b: a - b, "product": lambda a, b: a * b,
    "quotient": lambda a, b: a / (b * b + 0.5), "maximum": te.maximum, "minimum": te.minimum,
    "power": lambda a, b: te.pow(a * a + 0.5, b), "hypot": lambda a, b: te.hypot(a, b + 3), "atan2": te.atan2,
    "where": lambda a, b: te.where(a > b, a * a, b),
}  # fmt: skip
BROADCASTS = {"same": ("n m", "n m"), "row": ("n m", "m"), "column": ("n m", "n 1"), "scalar": ("n m", "")}


def binary() -> Iterator[Right]:
    for (name, f), (how, shapes) in itertools.product(BINARY.items(), BROADCASTS.items()):
        yield Right(f"{name}, {how}", functools.partial(_two, f), tuple(array(s) for s in shapes))


def _two(f: Callable[..., Any], a: te.Tensor, b: te.Tensor) -> Any:
    return f(a, b)


def reductions() -> Iterator[Right]:
    for kind, axis, keep in itertools.product(("sum", "mean", "prod", "max", "min"), (None, 0, 1), (False, True)):
        if kind != "prod" or axis is not None:
            yield Right(f"{kind} over {axis}, {keep}", functools.partial(_reduced, kind, axis, keep), ("n m",))


def _reduced(kind: str, axis: int | None, keep: bool, x: te.Tensor) -> te.Tensor:
    return getattr(x, kind)(axis, keep)  # type: ignore[no-any-return]


def windows() -> Iterator[Right]:
    sizes = {"sizes": {"n": (5, 9), "k": (1, 3)}}
    for stride, dilation in itertools.product((1, 2, 3), (1, 2)):
        yield Right(f"conv, stride {stride}, dilation {dilation}",
                    functools.partial(_conv, stride, dilation), ("n", "k"), sizes)  # fmt: skip
    for mode, stride in itertools.product(("zero", "clamp", "reflect", "wrap"), (1, 2)):
        yield Right(f"padded conv, {mode}, stride {stride}",
                    functools.partial(_padded, mode, stride), ("n", "k"), sizes)  # fmt: skip
    for kind, width, stride in itertools.product(("sum", "max", "min"), (2, 3), (1, 2, 3)):
        yield Right(f"{kind} pooling, {width} by {stride}",
                    functools.partial(_pool, kind, width, stride), ("n",), {"sizes": {"n": (4, 9)}})  # fmt: skip


def _conv(stride: int, dilation: int, x: te.Tensor, w: te.Tensor) -> te.Tensor:
    extent = (x.shape[0] - (w.shape[0] - 1) * dilation - 1) // stride + 1
    return te.compute((extent,), lambda i: te.sum(lambda r: x[i * stride + r * dilation] * w[r]))


def _padded(mode: str, stride: int, x: te.Tensor, w: te.Tensor) -> te.Tensor:
    k = te.reduce_axis(w.shape[0], name="k")
    return te.compute((x.shape[0] // stride + 1,), lambda i: te.sum(x.at(i * stride + k - 1, mode=mode) * w[k], axis=k))


def _pool(kind: str, width: int, stride: int, x: te.Tensor) -> te.Tensor:
    k = te.reduce_axis(width, name="k")
    return te.compute(((x.shape[0] - width) // stride + 1,), lambda i: getattr(te, kind)(x[i * stride + k], axis=k))


SHAPING: dict[str, tuple[Callable[[Any], Any], str]] = {
    "transpose": (lambda x: x.T, "n m"), "ravel": (lambda x: te.ravel(x) * 2, "n m"),
    "flip": (lambda x: te.flip(x, 0), "n m"), "roll": (lambda x: te.roll(x, 2, 0), "n m"),
    "tril": (te.tril, "n n"), "triu": (te.triu, "n n"), "diagonal": (te.diagonal, "n n"), "trace": (te.trace, "n n"),
    "cumsum": (lambda x: te.cumsum(x, 0), "n m"), "cumprod": (lambda x: te.cumprod(x, 0), "n"),
    "pad": (lambda x: te.pad(x, 1), "n m"), "stack": (lambda x: te.stack([x, x * x]), "n"),
    "concatenate": (lambda x: te.concatenate([x, te.sin(x)]), "n"), "expand": (lambda x: te.expand_dims(x, 1), "n"),
    "every second": (lambda x: x[::2], "n m"), "last": (lambda x: x[-1], "n m"),
    "squeeze": (lambda x: te.squeeze(x, 1), "n 1"), "moveaxis": (lambda x: te.moveaxis(x, 0, 2), "n m k"),
    "split": (lambda x: te.split(x, 2, 0)[1], "4 n"), "mean of all": (te.mean, "n m"), "double": (lambda x: x + x, "n"),
    "self product": (lambda x: x @ x, "n n"),
    "reversed": (lambda x: x[::-1] * x, "n"), "swap": (lambda x: te.swapaxes(x, 0, 1), "n m"),
    "reshape": (lambda x: x.reshape(-1, 1), "n m"), "outer": (lambda x: te.outer(x, x), "n"),
    "gram": (lambda x: x.T @ x, "n m"), "broadcast": (lambda x: te.broadcast_to(x, (3, x.shape[0])), "n"),
}  # fmt: skip


def shaping() -> Iterator[Right]:
    for name, (f, shape) in SHAPING.items():
        yield Right(name, functools.partial(_apply, f), (shape,))


def layer_norm(x: te.Tensor, gamma: te.Tensor, beta: te.Tensor) -> te.Tensor:
    centred = x - x.mean(1, keepdims=True)
    return centred / te.sqrt((centred * centred).mean(1, keepdims=True) + 0.1) * gamma + beta


def attention(q: te.Tensor, k: te.Tensor, v: te.Tensor) -> te.Tensor:
    return planted.softmax(q @ k.T) @ v


def filtered(x: te.Tensor, a: te.Tensor) -> te.Tensor:
    return te.scan(
        x.shape, lambda y, t: te.select(t == 0, x[0], te.tanh(a[()]) * y[t - 1] + x[t]), axis=0, dtype=x.dtype
    )


def backwards(x: te.Tensor) -> te.Tensor:
    n = x.shape[0]
    return te.scan((n,), lambda y, t: te.select(t == n - 1, x[t], 0.5 * y[t + 1] * x[t]), axis=0, reverse=True,
                   dtype=x.dtype)  # fmt: skip


def embedding(table: te.Tensor, index: te.Tensor) -> te.Tensor:
    return te.compute((index.shape[0], table.shape[1]), lambda i, j: table[index[i], j])


def histogram(index: te.Tensor, weight: te.Tensor) -> te.Tensor:
    i = te.reduce_axis(index.shape[0], name="i")
    return te.scatter((4,), [i], (index[i],), weight[i])


def two_results(x: te.Tensor) -> tuple[te.Tensor, ...]:
    return te.compute(x.shape, lambda i: (te.sin(x[i]), te.cos(x[i]) * x[i]))  # type: ignore[return-value]


def mixture(x: te.Tensor, w: te.Tensor, b: te.Tensor, target: te.Tensor) -> te.Tensor:
    error = te.relu(x @ w + b) - target
    return (error * error).mean()


def counts(x: te.Tensor) -> te.Tensor:
    return te.compute(x.shape, lambda i: te.cast(x[i] > 0, "int32"))


COMPOSED = [
    Right("matmul", planted.matmul, ("n k", "k m")),
    Right("conv, drawn stride", planted.conv1d, ("n", "k", st.integers(1, 3)), {"sizes": {"n": (3, 8), "k": (1, 3)}}),
    Right("blur, drawn radius", planted.blur, ("n m", st.integers(1, 3))),
    Right("softmax", planted.softmax, ("n m",)), Right("dense", planted.dense, ("n k", "k m", "m")),
    Right("layer norm", layer_norm, ("n m", "m", "m")), Right("attention", attention, ("n d", "m d", "m e")),
    Right("running sum", planted.running_sum, ("n",)), Right("filter", filtered, ("n", array(""))),
    Right("backwards", backwards, ("n",)), Right("pooled", planted.pooled, ("n",), {"sizes": {"n": (2, 7)}}),
    Right("largest", planted.largest, ("n m",)), Right("clip", planted.clipped, ("n",)),
    Right("embedding", embedding, ("n d", array("k", "int32", below="n"))),
    Right("histogram", histogram, (array("k", "int32", below=4), "k")),
    Right("two results", two_results, ("n",)), Right("regression", mixture, ("n k", "k m", "m", "n m")),
    Right("counts", counts, ("n",)), Right("norm", planted.normal, ("n m",)),
    Right("float16", planted.dense, ("n k", "k m", "m"), {"dtypes": ("float16", "float32")}),
]  # fmt: skip

RIGHT: list[Right] = [*unary(), *binary(), *reductions(), *windows(), *shaping(), *COMPOSED]
