"""Attention in graphs of PyTorch beside PyTorch's: masks, rows that are masked everywhere, shared heads, gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
fx_compile = pytest.importorskip("tedsl.bridges.fx.backend")
register, reports = fx_compile.register, fx_compile.reports
attention = torch.nn.functional.scaled_dot_product_attention

register()

rows = torch.tensor([[True, False, True, True, False], [False] * 5, [True] * 5])
CASES: dict[str, Callable[..., Any]] = {
    "plain": lambda q, k, v: attention(q, k, v),
    "scale": lambda q, k, v: attention(q, k, v, scale=0.3),
    "causal": lambda q, k, v: attention(q, k, v, is_causal=True),
    "a row masked everywhere": lambda q, k, v: attention(q, k, v, attn_mask=rows),
    "all rows masked": lambda q, k, v: attention(q, k, v, attn_mask=torch.zeros(3, 5, dtype=torch.bool)),
    "weights of -inf": lambda q, k, v: attention(q, k, v, attn_mask=torch.where(rows, 0.5, -math.inf)),
    "a mask for each head": lambda q, k, v: attention(q, k, v, attn_mask=rows[None, None].expand(2, 4, 3, 5)),
    "weights": lambda q, k, v: attention(q, k, v, attn_mask=torch.linspace(-2, 2, 15).reshape(3, 5)),
}


def tensors(heads: int = 4, dtype: Any = torch.float32) -> list[Any]:
    torch.manual_seed(0)
    shapes = (2, 4, 3, 8), (2, heads, 5, 8), (2, heads, 5, 6)
    return [torch.randn(s).to(dtype).requires_grad_() for s in shapes]


def check(function: Callable[..., Any], given: list[Any], **tolerance: float) -> None:
    """The result and the gradients of what is compiled, nothing of it left to PyTorch."""
    torch._dynamo.reset()
    reports.clear()
    head = torch.linspace(-1, 1, 2 * 4 * 3 * 6).reshape(2, 4, 3, 6).sin().to(given[0].dtype)
    found, expected = [], []
    for run, results in ((torch.compile(function, backend="tedsl", fullgraph=True), found), (function, expected)):
        made = run(*given)
        results += [made, *torch.autograd.grad(made, given, head)]
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, **tolerance)
    assert [r.left for r in reports] == [[], []]


@pytest.mark.share(2)
@pytest.mark.parametrize("name", CASES)
def test_attention(name: str) -> None:
    check(CASES[name], tensors())


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("is_causal", [False, True])
def test_queries_that_share_heads_of_keys(heads: int, is_causal: bool) -> None:
    check(lambda q, k, v: attention(q, k, v, is_causal=is_causal, enable_gqa=True), tensors(heads))


def test_half_precision() -> None:
    q, k, v = tensors(dtype=torch.bfloat16)
    check(lambda q, k, v: attention(q, k, v, is_causal=True), [q, k, v], rtol=2e-2, atol=2e-2)


def test_attention_with_dropout_is_left_to_pytorch() -> None:
    torch._dynamo.reset()
    given = [t.detach() for t in tensors()]
    run = torch.compile(lambda *x: attention(*x, dropout_p=0.5), backend="tedsl", options={"interpreted": True})
    torch.manual_seed(1)
    found = run(*given)
    torch.manual_seed(1)
    torch.testing.assert_close(found, attention(*given, dropout_p=0.5))
