"""Every row of the table of ATen operations against PyTorch: values, dtypes, shapes."""

# ruff: noqa: E501 - a table: one operation per entry

from __future__ import annotations

from typing import Any

import pytest

import tedsl as te
from tedsl.bridges.fx.rows.table import ROWS
from tests.bridges.results import leaves

torch = pytest.importorskip("torch")
make_fx = pytest.importorskip("torch.fx.experimental.proxy_tensor").make_fx
F = torch.nn.functional
aten = torch.ops.aten

x = torch.linspace(-2, 2, 12).reshape(3, 4)
y = torch.linspace(1, 3, 12).reshape(3, 4)
u = torch.linspace(0.1, 0.9, 12).reshape(3, 4)
n = torch.arange(-6, 6).reshape(3, 4)
b = n > 0
i = torch.tensor([2, 0, 2])
image = torch.linspace(-1, 1, 2 * 3 * 6 * 5).reshape(2, 3, 6, 5).sin()
small = image[:, :, :5, :4].contiguous()

UNARY = [
    "neg", "abs", "sign", "relu", "exp", "exp2", "expm1", "sin", "cos", "tan", "sinh", "cosh", "tanh", "asinh", "erf",
    "erfc", "sigmoid", "floor", "ceil", "round", "trunc", "isnan", "isinf", "atan", "square", "reciprocal",
]  # fmt: skip
OPEN = ["log", "log1p", "log2", "log10", "sqrt", "rsqrt", "asin", "acos", "atanh"]
CASES: dict[str, Any] = {
    **{name: lambda name=name: getattr(torch, name)(x) for name in UNARY},
    **{name: lambda name=name: getattr(torch, name)(u) for name in OPEN},
    "fmod": lambda: [torch.fmod(x, 0.75), torch.fmod(n, 4), torch.fmod(n, -4)],
    "acosh": lambda: torch.acosh(y), "pow": lambda: torch.pow(y, x), "pow number": lambda: x**3,
    "atan2": lambda: torch.atan2(x, y), "hypot": lambda: torch.hypot(x, y), "copysign": lambda: torch.copysign(y, x),
    "add alpha": lambda: torch.add(x, y, alpha=3), "sub alpha": lambda: torch.sub(x, y, alpha=2),
    "rsub": lambda: 1.5 - x, "div": lambda: x / y, "div ints": lambda: n / 2, "div trunc": lambda: torch.div(
        x, y, rounding_mode="trunc"),
    "div floor": lambda: torch.div(n, 2, rounding_mode="floor"), "floor_divide": lambda: n // 4,
    "remainder": lambda: x % 0.75, "remainder ints": lambda: n % 4, "mixed": lambda: n * x, "int and float": lambda: (
        n * 2.5),
    "wide number": lambda: x + torch.tensor(1.0, dtype=torch.float64), "bool plus": lambda: b + 1,
    "maximum": lambda: torch.maximum(x, y - 2), "minimum": lambda: torch.minimum(x, y - 2),
    "compare": lambda: [x == y, x != y, x < y, x <= 0, x > y, n >= 1], "bits": lambda: [n & 3, n | 1, n ^ 2, ~n, ~b],
    "logic": lambda: [torch.logical_and(x, n), torch.logical_or(b, x), torch.logical_not(n)],
    "clamp": lambda: [torch.clamp(x, -1, 1), torch.clamp(x, min=0.5), torch.clamp(x, max=y - 2), x.clamp_min(0)],
    "where": lambda: [torch.where(b, x, y), torch.where(b, x, 0.0)], "masked_fill": lambda: x.masked_fill(b, -1),
    "cast": lambda: [x.long(), x.double(), n.float(), b.float(), x.to(torch.float16)], "clone": lambda: x.t().clone(),
    "views": lambda: [x.view(2, 6), x.reshape(-1), x.t(), x.permute(1, 0), x.unsqueeze(1), x[None].squeeze(0), x[1:, ::2],
                      x[:, -1], x.expand(2, 3, 4), x.diagonal(1), x.flatten(), x.as_strided((2, 2), (1, 4), 1)],
    "split": lambda: [*x.split(2, 1), *x.split([1, 2], 0), *x.unbind(1), *x.chunk(2, 1)],
    "sum": lambda: [x.sum(), x.sum(1), x.sum((0, 1), keepdim=True), n.sum(0), b.sum()], "prod": lambda: [x.prod(), x.prod(1)],
    "mean": lambda: [x.mean(), x.mean(-1, keepdim=True)], "any, all": lambda: [b.any(), b.all(1), b.any(0)],
    "amax": lambda: [x.amax(1), x.amin((0, 1)), x.max(), n.min()], "max": lambda: [*x.max(1), *n.min(0, keepdim=True)],
    "argmax": lambda: [x.argmax(), x.argmin(1), x.argmax(0, keepdim=True)],
    "var": lambda: [x.var(), x.var(1, correction=0), x.std(0), *torch.var_mean(x, 1, keepdim=True)],
    "matmul": lambda: [x @ y.t(), torch.mv(x, y[0]), torch.dot(x[0], y[0]), torch.bmm(x[None], y.t()[None])],
    "addmm": lambda: [torch.addmm(x[0, :3], x, y.t(), beta=2, alpha=0.5), torch.baddbmm(x[None, :, :3], x[None], y.t()[None])],
    "cumsum": lambda: [x.cumsum(1), n.cumsum(0), y.cumprod(1)], "flip": lambda: x.flip(0, 1),
    "new": lambda: [torch.full((2, 2), 7), torch.zeros(3), torch.ones(2, dtype=torch.int64), torch.arange(5), torch.arange(
        1.0, 3.0, 0.5), torch.full_like(x, 2), torch.zeros_like(n), x.new_ones(2), x.new_full((2,), 3), torch.eye(3)],
    "cat": lambda: [torch.cat([x, y], 1), torch.stack([x, y]), torch.cat([n, n])], "copy": lambda: aten.copy(x, y[:1]),
    "index": lambda: [x[i], x[:, i], x[i, i], x[i[:, None], i]], "index_select": lambda: x.index_select(1, i),
    "index_put": lambda: [x.index_put((i,), y), x.index_put((i, i), y[0, :3], accumulate=True)],
    "index_add": lambda: x.index_add(0, i, y), "gather": lambda: x.gather(1, i[None].expand(3, 3)),
    "scatter": lambda: [x.scatter(0, n[:, :2] % 3, y), x.scatter(1, i[:, None], 5.0)],
    "scatter_add": lambda: x.scatter_add(0, n % 3, y), "embedding": lambda: F.embedding(i, x),
    "written views": lambda: [torch.slice_scatter(x, y[:1], 0, 1, 2), torch.select_scatter(x, y[0], 0, 1),
                              torch.diagonal_scatter(x, y[0, :3])],
    "pad": lambda: [F.pad(x, (1, 2)), F.pad(image, (1, 0, 0, 2), value=3.0), F.pad(x, (-1, 1))],
    "conv": lambda: [F.conv1d(image[0], image[0, :, :, :2]), F.conv2d(image, small[:2, :, :3, :3], stride=2, padding=1),
                     F.conv2d(image, small[:, :1, :3, :2].repeat(3, 1, 1, 1), image[0, 0, 0, :1].repeat(6), groups=3)],
    "conv transposed": lambda: F.conv_transpose2d(small, small[:1, :, :3, :2].transpose(0, 1), stride=2, padding=1),
    "max_pool2d": lambda: [*F.max_pool2d(image, 2, return_indices=True), F.max_pool2d(image, 3, 2, 1), F.max_pool2d(
        image, 2, ceil_mode=True)],
    "avg_pool2d": lambda: [F.avg_pool2d(image, 2), F.avg_pool2d(image, 3, 2, 1, count_include_pad=False)],
    "adaptive": lambda: [F.adaptive_avg_pool2d(image, (2, 2)), F.adaptive_avg_pool2d(image, 1)],
    "norms": lambda: [F.layer_norm(x, (4,)), F.group_norm(image, 3), F.batch_norm(image, None, None, training=True)],
    "softmax": lambda: [x.softmax(1), x.log_softmax(0), torch.logsumexp(x, 1)],
    "activations": lambda: [F.gelu(x), F.gelu(x, approximate="tanh"), F.silu(x), F.elu(x), F.softplus(x), F.leaky_relu(x),
                            F.hardtanh(x), F.mish(x), F.hardswish(x)],
    "losses": lambda: [F.nll_loss(x, i), F.cross_entropy(x, i), F.mse_loss(x, y), F.smooth_l1_loss(x, y),
                       F.binary_cross_entropy_with_logits(x, u)],
    "attention": lambda: F.scaled_dot_product_attention(image, image * 2, image + 1, is_causal=True),
    "tril": lambda: [x.tril(), x.triu(1), x.roll(1, 0), x.repeat(2, 1)], "norm": lambda: [x.norm(), x.norm(dim=1)],
    "lerp": lambda: [torch.lerp(x, y, 0.3), torch.addcmul(x, y, u), torch.addcdiv(x, y, u)],
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_row(name: str) -> None:
    graph = make_fx(lambda given: CASES[name]())(x)
    function = te.from_fx(graph, [x], interpreted=True)
    for k, (one, other) in enumerate(zip(leaves(CASES[name]()), leaves(function(x)), strict=True)):
        assert other.dtype == one.dtype, k
        torch.testing.assert_close(
            other, one, rtol=1e-4, atol=1e-5, equal_nan=True, msg=lambda m, k=k: f"result {k}: {m}"
        )


GRADIENTS: dict[str, Any] = {
    "conv2d": lambda a, w: F.conv2d(a, w, stride=2, padding=1), "weights of it": lambda a, w: F.conv2d(a, w * a.sum()), "max_pool2d": lambda a, w: F.max_pool2d(a, 3, 2, 1),
    "avg_pool2d": lambda a, w: F.avg_pool2d(a, 3, 2, 1), "adaptive": lambda a, w: F.adaptive_avg_pool2d(a, 2),
    "attention": lambda a, w: F.scaled_dot_product_attention(a, a * 2, a + 1, is_causal=True),
    "layer_norm": lambda a, w: F.layer_norm(a, (5,)), "batch_norm": lambda a, w: F.batch_norm(a, None, None, training=True),
    "embedding": lambda a, w: F.embedding(i, a[0, 0]) * 2, "slices": lambda a, w: a[1:, :, ::2] * a[:1, 1:2, ::2],
    "losses": lambda a, w: F.cross_entropy(a[0, 0][:3], i), "activations": lambda a, w: F.gelu(a) + F.silu(a) * a.tanh(),
}  # fmt: skip


@pytest.mark.parametrize("name", GRADIENTS)
def test_a_gradient(name: str) -> None:
    """Backward graphs, as AOTAutograd has them traced."""

    def gradients(a: Any, w: Any) -> Any:
        a, w = a.detach().requires_grad_(), w.detach().requires_grad_()
        with torch.enable_grad():
            made = GRADIENTS[name](a, w)
            return torch.autograd.grad((made * made * made).sum(), (a, w), allow_unused=True)[:1]

    weight = small[:2, :, :3, :3].contiguous()
    graph = make_fx(gradients)(image, weight)
    function = te.from_fx(graph, [image, weight], interpreted=True)
    for one, other in zip(gradients(image, weight), function(image, weight), strict=True):
        torch.testing.assert_close(other, one, rtol=1e-3, atol=1e-5)


def test_the_rows_are_those_of_aten() -> None:
    ours = {"convert_element_type", "contiguous", "lift_fresh", "fma"}  # those of PyTorch's compiler
    missing = [name for name in ROWS if name not in ours and not hasattr(aten, name)]
    assert missing == []
