"""Fifty small programs on which Halide's own gradients were measured: 18 right gathers, 13 right scatters, 19 wrong or
refused.

Here all are right, against central differences by `te.gradcheck` and against jvp, and every one whose index is affine
is a gather. The groups are those of the measurement.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tedsl as te
from tests.autodiff.catalogue.entry import distinct, in_range, loops, tensor

N = 6
RANDOM = np.random.default_rng(11)


def vector(size: int = N, name: str = "b") -> te.Tensor:
    return tensor(name, size)


def gathered(index: Callable[..., Any], shape: tuple[int, ...] = (N,), source: tuple[int, ...] = (N,)) -> Any:
    """sin(b[index(x, ...)]) over `shape`."""

    def build() -> Any:
        b = tensor("b", *source)
        return te.compute(shape, lambda *ix: te.sin(b[index(*ix)])), [b]

    return build


def with_source(function: Callable[..., Any], *shapes: tuple[int, ...]) -> Any:
    def build() -> Any:
        inputs = [tensor("bwc"[k], *shape) for k, shape in enumerate(shapes or ((N,),))]
        return function(*inputs), inputs

    return build


def conv(stride: int, dilation: int) -> Any:
    def function(b: te.Tensor, w: te.Tensor) -> te.Tensor:
        (r,) = loops(3)
        return te.compute((5,), lambda x: te.sum(b[x * stride + r * dilation] * w[r], axis=r))

    return with_source(function, (5 * stride + 2 * dilation,), (3,))


def matmul(a: te.Tensor, b: te.Tensor) -> te.Tensor:
    return te.compute((4, 5), lambda i, j: te.sum(lambda k: a[i, k] * b[k, j]))


def softmax(b: te.Tensor, top: bool) -> te.Tensor:
    e = te.exp(b - b.max()) if top else te.exp(b)
    return e / e.sum()


def histogram(b: te.Tensor) -> te.Tensor:
    (r,) = loops(N)
    return te.scatter((3,), [r], (r * r % 3,), te.sin(b[r]))


def splat(b: te.Tensor) -> te.Tensor:
    """Each value to the two bins around its position 0.3 r."""
    (r,) = loops(N)
    side = te.reduce_axis(2, name="side")
    weight = te.select(side == 0, te.const(0.7, "float64"), te.const(0.3, "float64"))
    return te.scatter((N // 2 + 1,), [r, side], (r // 2 + side,), weight * te.sin(b[r]))


def swap() -> Any:
    b, c = vector(), vector(name="c")
    u, v = te.compute((N,), lambda x: (c[x] * 2.0, te.sin(b[x]) * c[x]))
    return te.compute((N,), lambda x: u[x] * v[N - 1 - x]), [b, c]


def bilinear_warp() -> Any:
    b, at = tensor("b", 5, 5), tensor("at", 4, 2)

    def body(i: Any) -> Any:
        y, x = at[i, 0], at[i, 1]
        y0, x0 = te.cast(te.floor(y), "int32"), te.cast(te.floor(x), "int32")
        fy, fx = y - te.floor(y), x - te.floor(x)
        top = b[y0, x0] * (1 - fx) + b[y0, x0 + 1] * fx
        return top * (1 - fy) + (b[y0 + 1, x0] * (1 - fx) + b[y0 + 1, x0 + 1] * fx) * fy

    return te.compute((4,), body), [b, at]


def partial_overwrite(b: te.Tensor) -> te.Tensor:
    return te.compute((N,), lambda x: te.select(x == 2, te.sin(b[1]), b[x] * b[x]))


def recurrence(step: Callable[..., Any], reverse: bool = False, start: int = 1) -> Callable[[te.Tensor], te.Tensor]:
    """y[t] = step(y[t -+ 1], b[t], t), the first `start` elements are b's."""

    def function(b: te.Tensor) -> te.Tensor:
        def body(y: Any, t: Any) -> Any:
            known = t < N - start if reverse else t >= start
            before = y[t + 1] if reverse else y[t - 1]
            return te.select(known, step(before, b[t], t), b[t])

        return te.scan((N,), body, reverse=reverse, dtype="float64")

    return function


def accumulated(b: te.Tensor) -> te.Tensor:
    """A cumulative sum as a scatter: each element is added to all that follow."""
    x, r = loops(N, N)
    return te.scatter((N,), [x, r], (x,), te.sin(b[r]), where=r <= x)


def rows(b: te.Tensor) -> te.Tensor:
    body = lambda y, i, j: te.select(j == 0, b[i, 0], y[i, j - 1] * 0.5 + te.sin(b[i, j]))  # noqa: E731
    return te.scan((3, 4), body, axis=1, dtype="float64")


def integral_image(b: te.Tensor) -> te.Tensor:
    return te.cumsum(te.cumsum(b, 0), 1)


def triangle(b: te.Tensor, w: te.Tensor) -> te.Tensor:
    """f(r.y) += b(r.x) c where r.x <= r.y."""
    x, y = loops(N, N)
    return te.scatter((N,), [x, y], (y,), te.sin(b[x]) * w[y], where=x <= y)


def reduced(kind: str) -> Any:
    def function(b: te.Tensor) -> te.Tensor:
        (r,) = loops(4)
        return te.compute((3,), lambda i: getattr(te, kind)(b[i, r], axis=r))

    return with_source(function, (3, 4))


def last_of(function: Callable[[te.Tensor], te.Tensor]) -> Any:
    """A loss that reads the last element only."""
    return with_source(lambda b: (lambda y: te.compute((), lambda: y[N - 1]))(function(b)))


def squared(b: te.Tensor) -> te.Tensor:
    f = te.compute((N,), lambda x: te.sin(b[x]))
    return te.compute((N,), lambda x: f[x] * f[x])


IIR = lambda y, b, t: 0.8 * y + 0.3 * b  # noqa: E731
NONLINEAR = lambda y, b, t: y * y * 0.5 + b  # noqa: E731
GATED = lambda y, b, t: te.sigmoid(b) * y + b  # noqa: E731

PROBES: dict[str, Any] = {
    # right there too, as gathers
    "identity": gathered(lambda x: x),
    "reverse": gathered(lambda x: N - 1 - x),
    "transpose": gathered(lambda x, y: (y, x), (4, 3), (3, 4)),
    "x / 2": gathered(lambda x: x // 2, (2 * N,)),
    "broadcast": gathered(lambda x, y: x, (N, 4)),
    "convolution": conv(1, 1),
    "dilated convolution": conv(1, 2),
    "matmul": with_source(matmul, (4, 3), (3, 5)),
    "softmax": with_source(lambda b: softmax(b, False)),
    "histogram": with_source(histogram),
    "splat": with_source(splat),
    "where": with_source(lambda b: te.compute((3,), lambda i: te.sum(lambda r: te.select(r > i, b[r], 0.0) * b[r]))),
    "tuple swap": swap,
    "erf": with_source(te.erf),
    "exp": with_source(te.exp),
    "float %": with_source(lambda b: te.compute((N,), lambda x: (b[x] * 3.0) % 1.7)),
    "guarded sqrt": with_source(lambda b: te.compute((N,), lambda x: te.select(b[x] > 0.0, te.sqrt(b[x]), 0.0))),
    "cast through uint8": with_source(
        lambda b: te.compute((N,), lambda x: te.cast(te.cast(b[x] + 9.0, "uint8"), "float64") * b[x])
    ),
    # right there too, but serial scatters
    "2 x": gathered(lambda x: 2 * x, source=(2 * N,)),
    "2 x + 1": gathered(lambda x: 2 * x + 1, source=(2 * N,)),
    "x % 3": gathered(lambda x: x % 3),
    "clamp": gathered(lambda x: te.clip(x - 1, 0, 3)),
    "x + y": gathered(lambda x, y: x + y, (4, 3)),
    "(x + y, y)": gathered(lambda x, y: (x + y, y), (4, 3), (6, 3)),
    "(x + y, x - y + 3)": gathered(lambda x, y: (x + y, x - y + 3), (4, 4), (7, 7)),
    "x + 4 y": gathered(lambda x, y: x + 4 * y, (4, 3), (12,)),
    "x * x": gathered(lambda x: x * x, (4,), (10,)),
    "strided convolution": conv(2, 1),
    "strided, dilated convolution": conv(2, 3),
    "partial overwrite": with_source(partial_overwrite),
    "bilinear warp": bilinear_warp,
    # silently wrong there
    "(x, x)": gathered(lambda x: (x, x), source=(N, N)),
    "(x, x + 1)": gathered(lambda x: (x, x + 1), (N - 1,), (N, N)),
    "(x, 3 - x)": gathered(lambda x: (x, 3 - x), (4,), (4, 4)),
    "(x % 4, x / 4)": gathered(lambda x: (x % 4, x // 4), (12,), (4, 3)),
    "(x + r, x)": with_source(lambda b: te.compute((4,), lambda x: te.sum(lambda r: te.sin(b[x + r, x]))), (6, 4)),
    "cumulative sum": with_source(recurrence(lambda y, b, t: y + b)),
    "cumulative sum by scatter": with_source(accumulated),
    "iir": with_source(recurrence(IIR)),
    "iir in reverse": with_source(recurrence(IIR, reverse=True)),
    "iir over a copy": with_source(lambda b: recurrence(IIR)(te.compute((N,), lambda x: te.sin(b[x])))),
    "nonlinear scan": with_source(recurrence(NONLINEAR, start=2)),
    "gated scan": with_source(recurrence(GATED)),
    "scan of rows": with_source(rows, (3, 4)),
    "maximum of equals": with_source(lambda b: te.compute((N,), lambda x: te.maximum(b[x], b[x]))),
    # refused there, or an internal error
    "max": reduced("max"),
    "prod": reduced("prod"),
    "softmax with max": with_source(lambda b: softmax(b, True)),
    "f = f * f": with_source(squared),
    "where over two axes": with_source(triangle, (N,), (N,)),
    # run apart: right only for the last element there, wrong or refused
    "iir, last": last_of(recurrence(IIR)),
    "nonlinear scan, last": last_of(recurrence(NONLINEAR)),
    "running max": with_source(recurrence(lambda y, b, t: te.maximum(y, b))),
    "integral image": with_source(integral_image, (4, 3)),
    "min": reduced("min"),
    "two updates of a scan": with_source(lambda b: recurrence(lambda y, c, t: y * c)(recurrence(IIR)(b))),
}  # fmt: skip

# x * x is not affine, the warp's indices are data.
SCATTERS = {"bilinear warp"}
FEEDS: dict[str, Any] = {"at": lambda random, shape: random.uniform(0.2, 2.8, shape), "idx": in_range(N)}


def values(inputs: list[te.Tensor], name: str) -> list[Any]:
    if name in ("max", "min", "running max"):
        return [distinct(RANDOM, t.shape) for t in inputs]
    return [FEEDS.get(t.name, lambda random, shape: random.normal(size=shape))(RANDOM, t.shape) for t in inputs]


def test_the_first_fifty_are_those_measured() -> None:
    assert list(PROBES).index("where over two axes") == 49


@pytest.mark.parametrize("name", PROBES)
def test_probe(name: str) -> None:
    output, inputs = PROBES[name]()
    arrays = values(inputs, name)
    report = te.gradcheck(output, inputs, arrays, atol=1e-8, rtol=1e-6)
    assert report.ok
    assert all(p.kinks == 0 for p in report.pairs)
    head = te.placeholder(output.shape, "float64", name="head")
    gradients = te.differentiate(output, list(inputs), head=head)
    assert bool(gradients.explain().scatters) == (name in SCATTERS), str(gradients.explain())
    vectors = [te.placeholder(t.shape, "float64", name=f"{t.name}_v") for t in inputs]
    feeds = dict(
        zip([head, *inputs, *vectors], [RANDOM.normal(size=output.shape), *arrays, *values(vectors, "")], strict=True)
    )
    forward = np.sum(feeds[head] * te.interpret(te.jvp(output, list(inputs), vectors), feeds))
    backward = sum(np.sum(feeds[v] * g) for v, g in zip(vectors, te.interpret(list(gradients), feeds), strict=True))
    np.testing.assert_allclose(backward, forward, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("name", ["x / 2", "clamp", "strided convolution", "(x, x)", "iir", "prod", "bilinear warp"])
def test_probe_compiled(name: str) -> None:
    output, inputs = PROBES[name]()
    head = te.placeholder(output.shape, "float64", name="head")
    gradients = list(te.differentiate(output, list(inputs), head=head))
    feeds = {**dict(zip(inputs, values(inputs, name), strict=True)), head: RANDOM.normal(size=output.shape)}
    for found, expected in zip(te.evaluate(gradients, feeds), te.interpret(gradients, feeds), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
