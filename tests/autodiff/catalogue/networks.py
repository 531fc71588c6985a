"""Normalisations, losses, activations, attention, recurrences."""

from __future__ import annotations

from typing import Any

import tedsl as te
from tests.autodiff.catalogue.entry import Entry, both, tensor, uniform

__all__ = ["ENTRIES"]


def softmax(n: int) -> Any:
    x = tensor("x", 3 * n, 8 * n)
    e = te.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True), [x]


def softmax_oracle(xp: Any, x: Any) -> Any:
    e = xp.exp(x)
    return e / e.sum(1)[:, None]


def log_softmax(n: int) -> Any:
    x = tensor("x", 3 * n, 8 * n)
    shifted = x - x.max(1, keepdims=True)
    return shifted - te.log(te.exp(shifted).sum(1, keepdims=True)), [x]


def log_sum_exp(n: int) -> Any:
    """One pass, by a reducer of (greatest so far, sum)."""
    x = tensor("x", 3 * n, 8 * n)
    k = te.reduce_axis(8 * n, name="k")

    def combine(a: Any, b: Any) -> Any:
        top = te.maximum(a[0], b[0])
        return top, a[1] * te.exp(a[0] - top) + b[1] * te.exp(b[0] - top)

    both_of = te.reducer(combine, (-1e300, 0.0))
    top, total = te.compute((3 * n,), lambda i: both_of((x[i, k], te.const(1.0, "float64")), axis=k), name="L")
    return top + te.log(total), [x]


def cross_entropy(n: int) -> Any:
    x, p = tensor("x", 3 * n, 8 * n), tensor("p", 3 * n, 8 * n)
    shifted = x - x.max(1, keepdims=True)
    log_p = shifted - te.log(te.exp(shifted).sum(1, keepdims=True))
    return -(p * log_p).sum(), [x, p]


def normalised(xp: Any, x: Any, axes: Any) -> Any:
    mean = x.mean(axes, keepdims=True)
    centred = x - mean
    return centred / xp.sqrt((centred * centred).mean(axes, keepdims=True) + 1e-5)


def layer_norm(n: int) -> Any:
    x, gamma, beta = tensor("x", 4 * n, 8 * n), tensor("gamma", 8 * n), tensor("beta", 8 * n)
    return normalised(te, x, 1) * gamma + beta, [x, gamma, beta]


def batch_norm(n: int) -> Any:
    x, gamma, beta = tensor("x", 3, 2, 4 * n, 5 * n), tensor("gamma", 2, 1, 1), tensor("beta", 2, 1, 1)
    return normalised(te, x, (0, 2, 3)) * gamma + beta, [x, gamma, beta]


def rms_norm(n: int) -> Any:
    x, gamma = tensor("x", 4 * n, 8 * n), tensor("gamma", 8 * n)
    return x / te.sqrt((x * x).mean(1, keepdims=True) + 1e-5) * gamma, [x, gamma]


def gelu(n: int) -> Any:
    x = tensor("x", 20 * n)
    return te.compute(x.shape, lambda i: 0.5 * x[i] * (1.0 + te.erf(x[i] * 0.7071067811865476))), [x]


def gelu_oracle(x: Any) -> Any:
    from torch.nn import functional

    return functional.gelu(x)


def gelu_jax(x: Any) -> Any:
    import jax

    return jax.nn.gelu(x, approximate=False)


def attention(n: int) -> Any:
    q, k, v = (tensor(name, 2, 4 * n, 3 * n) for name in "qkv")
    scores = te.einsum("hqd,hkd->hqk", q, k)
    e = te.exp(scores - scores.max(2, keepdims=True))
    return te.einsum("hqk,hkd->hqd", e / e.sum(2, keepdims=True), v), [q, k, v]


def attention_oracle(xp: Any, q: Any, k: Any, v: Any) -> Any:
    e = xp.exp(xp.einsum("hqd,hkd->hqk", q, k))
    return xp.einsum("hqk,hkd->hqd", e / e.sum(2)[..., None], v)


def perceptron(n: int) -> Any:
    x, w, b, u = tensor("x", 3 * n, 4 * n), tensor("w", 4 * n, 5 * n), tensor("b", 5 * n), tensor("u", 5 * n, 2 * n)
    return te.tanh(x @ w + b) @ u, [x, w, b, u]


def cumulative_sum(n: int) -> Any:
    x = tensor("x", 6 * n, 3)
    body = lambda y, t, i: te.select(t == 0, x[0, i], y[t - 1, i] + x[t, i])  # noqa: E731
    return te.scan((6 * n, 3), body, axis=0, dtype="float64"), [x]


def integral_image(n: int) -> Any:
    x = tensor("x", 5 * n, 4 * n)
    return te.cumsum(te.cumsum(x, 0), 1), [x]


def iir(n: int) -> Any:
    """Two lags, two scalar parameters, along rows."""
    x, a, b = tensor("x", 8 * n, 3), tensor("a"), tensor("b")

    def body(y: Any, t: Any, i: Any) -> Any:
        one = te.select(t >= 1, y[t - 1, i], 0.0)
        two = te.select(t >= 2, y[t - 2, i], 0.0)
        return x[t, i] + a * one + b * two

    return te.scan((8 * n, 3), body, axis=0, dtype="float64", name="Y"), [x, a, b]


def iir_oracle(xp: Any, x: Any, a: Any, b: Any) -> Any:
    rows: list[Any] = []
    for t in range(x.shape[0]):
        value = x[t]
        value = value + a * rows[t - 1] if t >= 1 else value
        rows.append(value + b * rows[t - 2] if t >= 2 else value)
    return xp.stack(rows)


def reversed_scan(n: int) -> Any:
    x = tensor("x", 8 * n)
    body = lambda y, t: te.select(t == 8 * n - 1, x[t], te.tanh(y[t + 1]) * x[t] + x[t])  # noqa: E731
    return te.scan((8 * n,), body, axis=0, reverse=True, dtype="float64"), [x]


def reversed_scan_oracle(xp: Any, x: Any) -> Any:
    rows = [x[-1]]
    for t in range(x.shape[0] - 2, -1, -1):
        rows.append(xp.tanh(rows[-1]) * x[t] + x[t])
    return xp.stack(rows[::-1])


def gated_scan(n: int) -> Any:
    x, g = tensor("x", 8 * n, 3), tensor("g", 8 * n, 3)
    body = lambda y, t, i: te.select(t == 0, x[0, i], te.sigmoid(g[t, i]) * y[t - 1, i] + x[t, i])  # noqa: E731
    return te.scan((8 * n, 3), body, axis=0, dtype="float64"), [x, g]


def gated_scan_oracle(xp: Any, x: Any, g: Any) -> Any:
    rows = [x[0]]
    for t in range(1, x.shape[0]):
        rows.append(rows[-1] / (1.0 + xp.exp(-g[t])) + x[t])
    return xp.stack(rows)


def recurrent_net(n: int) -> Any:
    """h[t] = tanh(x[t] + W h[t - 1])."""
    x, w = tensor("x", 3 * n, 4 * n), tensor("w", 4 * n, 4 * n)
    k = te.reduce_axis(4 * n, name="k")

    def body(h: Any, t: Any, i: Any) -> Any:
        return te.tanh(te.select(t == 0, x[t, i], x[t, i] + te.sum(w[i, k] * h[t - 1, k], axis=k)))

    return te.scan((3 * n, 4 * n), body, axis=0, dtype="float64", name="H"), [x, w]


def recurrent_net_oracle(xp: Any, x: Any, w: Any) -> Any:
    rows = [xp.tanh(x[0])]
    for t in range(1, x.shape[0]):
        rows.append(xp.tanh(x[t] + w @ rows[-1]))
    return xp.stack(rows)


def lstm_cell(n: int) -> Any:
    """One step: gates by two products, then the cell and the output."""
    b, i, h = 2, 3 * n, 4 * n
    x, state, cell = tensor("x", b, i), tensor("h", b, h), tensor("c", b, h)
    wx, wh, bias = tensor("wx", i, 4 * h), tensor("wh", h, 4 * h), tensor("bias", 4 * h)
    z = x @ wx + state @ wh + bias
    new = te.compute(
        (b, h),
        lambda p, q: te.sigmoid(z[p, q + h]) * cell[p, q] + te.sigmoid(z[p, q]) * te.tanh(z[p, q + 2 * h]), name="cell",
    )  # fmt: skip
    out = te.compute((b, h), lambda p, q: te.sigmoid(z[p, q + 3 * h]) * te.tanh(new[p, q]), name="out")
    return (out, new), [x, state, cell, wx, wh, bias]


def lstm_cell_oracle(xp: Any, x: Any, state: Any, cell: Any, wx: Any, wh: Any, bias: Any) -> Any:
    z = x @ wx + state @ wh + bias
    h = state.shape[1]
    i, f, g, o = (z[:, k * h : (k + 1) * h] for k in range(4))
    sigmoid = lambda v: 1.0 / (1.0 + xp.exp(-v))  # noqa: E731
    new = sigmoid(f) * cell + sigmoid(i) * xp.tanh(g)
    return sigmoid(o) * xp.tanh(new), new


def products(n: int) -> Any:
    x = tensor("x", 3 * n, 4 * n)
    k = te.reduce_axis(4 * n, name="k")
    return te.compute((3 * n,), lambda i: te.prod(x[i, k], axis=k), name="P"), [x]


ENTRIES = [
    Entry("softmax", softmax, **both(softmax_oracle)),
    Entry("log-softmax", log_softmax, **both(lambda xp, x: xp.log(softmax_oracle(xp, x)))),
    Entry("log-sum-exp by a reducer", log_sum_exp, **both(lambda xp, x: xp.log(xp.exp(x).sum(1)))),
    Entry("cross entropy", cross_entropy, **both(lambda xp, x, p: -(p * xp.log(softmax_oracle(xp, x))).sum())),
    Entry("layer norm", layer_norm, **both(lambda xp, x, g, b: normalised(xp, x, 1) * g + b)),
    Entry("batch norm", batch_norm, **both(lambda xp, x, g, b: normalised(xp, x, (0, 2, 3)) * g + b)),
    Entry("rms norm", rms_norm, **both(lambda xp, x, g: x / xp.sqrt((x * x).mean(1)[:, None] + 1e-5) * g)),
    Entry("gelu", gelu, gelu_oracle, gelu_jax),
    Entry("attention", attention, **both(attention_oracle)),
    Entry("perceptron", perceptron, **both(lambda xp, x, w, b, u: xp.tanh(x @ w + b) @ u)),
    Entry("cumulative sum by scan", cumulative_sum, **both(lambda xp, x: xp.cumsum(x, 0))),
    Entry("integral image", integral_image, **both(lambda xp, x: xp.cumsum(xp.cumsum(x, 0), 1))),
    Entry("iir", iir, **both(iir_oracle), feed={"a": uniform(0.1, 0.5), "b": uniform(0.1, 0.4)}),
    Entry("scan in reverse", reversed_scan, **both(reversed_scan_oracle)),
    Entry("gated scan", gated_scan, **both(gated_scan_oracle)),
    Entry("recurrent net", recurrent_net, **both(recurrent_net_oracle)),
    Entry("lstm cell", lstm_cell, **both(lstm_cell_oracle)),
    Entry("product of rows", products, **both(lambda xp, x: x.prod(1))),
]
