"""Wrong derivative rules, as they are made: a lost factor, a forgotten term, a border, a case that is rarely tried."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

import tedsl as te

Rule = Callable[[te.Tensor, Sequence[te.Tensor], te.Tensor], Any]


@dataclass(frozen=True)
class Planted:
    """An operator that is right, a rule for it that is not, and how it is drawn."""

    name: str
    op: Callable[..., Any]
    vjp: Rule
    shapes: Sequence[Any] = ()
    options: Mapping[str, Any] = field(default_factory=dict)


# Operators


def conv1d(x: te.Tensor, w: te.Tensor, stride: int = 1) -> te.Tensor:
    n, k = x.shape[0], w.shape[0]
    return te.compute(((n - k) // stride + 1,), lambda i: te.sum(lambda r: x[i * stride + r] * w[r]), name="conv")


def matmul(a: te.Tensor, b: te.Tensor) -> te.Tensor:
    return te.compute((a.shape[0], b.shape[1]), lambda i, j: te.sum(lambda k: a[i, k] * b[k, j]), name="C")


def blur(x: te.Tensor, radius: int = 1) -> te.Tensor:
    taps = range(-radius, radius + 1)
    return te.compute(x.shape, lambda i, j: sum(x.at(i, j + d, mode="clamp") for d in taps), name="blur")


def softmax(x: te.Tensor) -> te.Tensor:
    e = te.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def pooled(x: te.Tensor) -> te.Tensor:
    return te.compute((x.shape[0] // 2,), lambda i: (x[2 * i] + x[2 * i + 1]) / 2, name="pooled")


def running_sum(x: te.Tensor) -> te.Tensor:
    return te.scan(x.shape, lambda y, t: te.select(t == 0, x[0], y[t - 1] + x[t]), axis=0, dtype=x.dtype)


def largest(x: te.Tensor) -> te.Tensor:
    return te.compute((x.shape[0],), lambda i: te.max(lambda k: x[i, k]), name="largest")


def dense(x: te.Tensor, w: te.Tensor, b: te.Tensor) -> te.Tensor:
    return te.tanh(x @ w + b)


def divided(a: te.Tensor, b: te.Tensor) -> te.Tensor:
    return a / b


def clipped(x: te.Tensor) -> te.Tensor:
    return te.clip(x, -1.0, 1.0)


CONV = {"shapes": ("n", "k", st.integers(1, 3)), "options": {"sizes": {"n": (3, 8), "k": (1, 3)}}}
IMAGE = {"shapes": ("n m", st.integers(1, 3))}
MATMUL = {"shapes": ("n k", "k m")}
PLANE = {"shapes": ("n m",)}
LINE = {"shapes": ("n",)}


# What goes wrong with a rule that was right


def right(output: te.Tensor, inputs: Sequence[te.Tensor], head: te.Tensor) -> list[te.Tensor]:
    return list(te.differentiate(output, list(inputs), head=head))


def spoilt(spoil: Callable[..., Any], which: int = 0) -> Rule:
    """The right rule with the adjoint of one input spoilt: spoil(adjoint, input, head)."""

    def rule(output: te.Tensor, inputs: Sequence[te.Tensor], head: te.Tensor) -> list[te.Tensor]:
        adjoints = right(output, inputs, head)
        adjoints[which] = spoil(adjoints[which], inputs[which], head)
        return adjoints

    return rule


def where_index(condition: Callable[..., Any], factor: float) -> Callable[..., te.Tensor]:
    """Elements at which a condition on (indices, shape) holds are off by a factor."""

    def spoil(d: te.Tensor, x: te.Tensor, head: te.Tensor) -> te.Tensor:
        return te.compute(d.shape, lambda *ix: d[ix] * te.select(condition(ix, d.shape), factor, 1.0), name="spoilt")

    return spoil


def where_static(condition: Callable[..., bool], spoil: Callable[..., te.Tensor]) -> Callable[..., te.Tensor]:
    """Spoilt for some shapes only."""
    return lambda d, x, head: spoil(d, x, head) if condition(x, head) else d


def shifted(d: te.Tensor, x: te.Tensor, head: te.Tensor) -> te.Tensor:
    return te.compute(d.shape, lambda *ix: d.at(ix[0] + 1, *ix[1:], mode="zero"), name="shifted")


def halved(d: te.Tensor, x: te.Tensor, head: te.Tensor) -> te.Tensor:
    return d * 0.5


# Rules written by hand, wrong


def conv_by_hand(stride_wrong: int) -> Callable[..., te.Tensor]:
    """The operator with a rule that forgets the stride when it is `stride_wrong`; both see the static argument."""

    def op(x: te.Tensor, w: te.Tensor, stride: int = 1) -> te.Tensor:
        y = conv1d(x, w, stride)
        seen[y] = stride
        return y

    def rule(output: te.Tensor, inputs: Sequence[te.Tensor], head: te.Tensor) -> list[te.Tensor]:
        x, w = inputs
        stride = seen[output]
        dx, dw = right(output, inputs, head)
        if stride == stride_wrong:
            dw = te.compute(w.shape, lambda r: te.sum(lambda i: head[i] * x[i + r]), name="dw")
        return [dx, dw]

    seen: dict[te.Tensor, int] = {}
    op.rule = rule  # type: ignore[attr-defined]
    return op


def tanh_squared(output: te.Tensor, inputs: Sequence[te.Tensor], head: te.Tensor) -> te.Tensor:
    return head * (1 - output) * (1 - output)


def sigmoid_of_input(output: te.Tensor, inputs: Sequence[te.Tensor], head: te.Tensor) -> te.Tensor:
    (x,) = inputs
    return head * x * (1 - x)


def softmax_diagonal(output: te.Tensor, inputs: Sequence[te.Tensor], head: te.Tensor) -> te.Tensor:
    return head * output * (1 - output)


def matmul_not_transposed(output: te.Tensor, inputs: Sequence[te.Tensor], head: te.Tensor) -> list[te.Tensor]:
    a, b = inputs
    return [head @ b, a.T @ head]


def divided_sign(output: te.Tensor, inputs: Sequence[te.Tensor], head: te.Tensor) -> list[te.Tensor]:
    a, b = inputs
    return [head / b, head * a / (b * b)]


def clipped_everywhere(output: te.Tensor, inputs: Sequence[te.Tensor], head: te.Tensor) -> te.Tensor:
    return head * 1.0


def pooled_all(output: te.Tensor, inputs: Sequence[te.Tensor], head: te.Tensor) -> te.Tensor:
    (x,) = inputs
    return te.compute(x.shape, lambda i: head[te.minimum(i // 2, head.shape[0] - 1)] / 2, name="dx")


def largest_to_all(output: te.Tensor, inputs: Sequence[te.Tensor], head: te.Tensor) -> te.Tensor:
    (x,) = inputs
    return te.compute(x.shape, lambda i, k: head[i] / x.shape[1], name="dx")


def largest_to_every_winner(output: te.Tensor, inputs: Sequence[te.Tensor], head: te.Tensor) -> te.Tensor:
    (x,) = inputs
    return te.compute(x.shape, lambda i, k: te.select(x[i, k] == output[i], head[i], 0.0), name="dx")


def scan_forgets_the_past(output: te.Tensor, inputs: Sequence[te.Tensor], head: te.Tensor) -> te.Tensor:
    return head * 1.0


def log_of(x: te.Tensor) -> te.Tensor:
    return te.log(x)


def log_without_input(output: te.Tensor, inputs: Sequence[te.Tensor], head: te.Tensor) -> te.Tensor:
    return head / output


def added(x: te.Tensor, b: te.Tensor) -> te.Tensor:
    return te.tanh(x + b)


def added_mean(output: te.Tensor, inputs: Sequence[te.Tensor], head: te.Tensor) -> list[te.Tensor]:
    dx = head * (1 - output * output)
    return [dx, dx.mean(0)]


def squared(x: te.Tensor) -> te.Tensor:
    return x * x


def cubed(x: te.Tensor) -> te.Tensor:
    return x**3


def power_rule_off(output: te.Tensor, inputs: Sequence[te.Tensor], head: te.Tensor) -> te.Tensor:
    (x,) = inputs
    return head * 3 * x


def normal(x: te.Tensor) -> te.Tensor:
    return x / te.sqrt((x * x).sum(1, keepdims=True) + 1.0)


def normal_constant_norm(output: te.Tensor, inputs: Sequence[te.Tensor], head: te.Tensor) -> te.Tensor:
    (x,) = inputs
    return head / te.sqrt((x * x).sum(1, keepdims=True) + 1.0)


def odd(n: Any) -> bool:
    return int(n) % 2 == 1


STRIDE_2, STRIDE_3 = conv_by_hand(2), conv_by_hand(3)

PLANTED: list[Planted] = [
    Planted("off by a factor of 2", matmul, spoilt(halved), **MATMUL),
    Planted("off by one in a thousand", matmul, spoilt(lambda d, x, head: d * 1.001, 1), **MATMUL),
    Planted("the wrong sign", conv1d, spoilt(lambda d, x, head: -d, 1), **CONV),
    Planted("zero", dense, spoilt(lambda d, x, head: d * 0, 2), shapes=("n k", "k m", "m")),
    Planted("the head ignored", te.tanh, lambda y, xs, head: 1 - y * y, **LINE),
    Planted("the head squared", te.tanh, lambda y, xs, head: head * head * (1 - y * y), **LINE),
    Planted("tanh, the wrong square", te.tanh, tanh_squared, **LINE),
    Planted("sigmoid, input for output", te.sigmoid, sigmoid_of_input, **LINE),
    Planted("softmax, the diagonal only", softmax, softmax_diagonal, **PLANE),
    Planted("matmul, not transposed", matmul, matmul_not_transposed, shapes=("n n", "n n")),
    Planted("quotient, a sign", divided, divided_sign, shapes=("n", te.testing.array("n", low=0.5))),
    Planted("clip, also outside", clipped, clipped_everywhere, **LINE),
    Planted("pooling, the last odd element", pooled, pooled_all, **LINE, options={"sizes": {"n": (2, 7)}}),
    Planted("maximum, to all alike", largest, largest_to_all, **PLANE),
    Planted("maximum, to every winner of a tie", largest, largest_to_every_winner, **PLANE),
    Planted("a mean for a sum over the broadcast axis", added, added_mean, shapes=("n m", "m")),
    Planted("NaN at 0", squared, lambda y, xs, head: head * (y * 2 / xs[0]), **LINE),
    Planted("negative heads", te.tanh, lambda y, xs, head: te.abs(head) * (1 - y * y), **LINE),
    Planted("extent 1", matmul, spoilt(where_static(lambda x, head: int(x.shape[0]) == 1, halved)), **MATMUL),
    Planted("last row of odd extents", blur, spoilt(where_static(
        lambda x, head: odd(x.shape[0]), where_index(lambda ix, n: ix[0] == n[0] - 1, 0.9))), **IMAGE),
    Planted("scan, without the past", running_sum, scan_forgets_the_past, **LINE),
    Planted("logarithm, output for input", log_of, log_without_input, shapes=(te.testing.array("n", low=0.5),)),
    Planted("power, the exponent", cubed, power_rule_off, **LINE),
    Planted("norm taken for a constant", normal, normal_constant_norm, **PLANE),
    Planted("first row", blur, spoilt(where_index(lambda ix, n: ix[0] == 0, 2.0)), **IMAGE),
    Planted("last row", blur, spoilt(where_index(lambda ix, n: ix[0] == n[0] - 1, 0.0)), **IMAGE),
    Planted("first column", blur, spoilt(where_index(lambda ix, n: ix[1] == 0, 0.5)), **IMAGE),
    Planted("last column, wide images only", blur, spoilt(where_static(
        lambda x, head: int(x.shape[1]) > 3, where_index(lambda ix, n: ix[1] == n[1] - 1, 1.5))), **IMAGE),
    Planted("one corner", blur, spoilt(where_index(lambda ix, n: (ix[0] == n[0] - 1) & (ix[1] == 0), 1.1)), **IMAGE),
    Planted("one row further", matmul, spoilt(shifted), **MATMUL),
    Planted("odd extents", matmul, spoilt(where_static(lambda x, head: odd(x.shape[0]), halved)), **MATMUL),
    Planted("extents above 4", matmul, spoilt(where_static(lambda x, head: int(x.shape[0]) > 4, halved)), **MATMUL),
    Planted("stride 2 only", STRIDE_2, STRIDE_2.rule, **CONV),  # type: ignore[attr-defined]
    Planted("stride 3 only", STRIDE_3, STRIDE_3.rule, **CONV),  # type: ignore[attr-defined]
    Planted("large values only", te.tanh, spoilt(lambda d, x, head: te.where(x > 1.5, d * 2, d)), **LINE),
    Planted("negative values only", te.sigmoid, spoilt(lambda d, x, head: te.where(x < 0, d * 0.9, d)), **LINE),
    Planted("float32 only", te.tanh, spoilt(lambda d, x, head: d * 1.5 if d.dtype == "float32" else d), **LINE),
    Planted("rows and columns exchanged", matmul, spoilt(lambda d, x, head: d.T), shapes=("n n", "n m")),
]  # fmt: skip
