"""In-place code on torch tensors: torch itself is the oracle, for results and for the arguments afterwards."""

from __future__ import annotations

from typing import Any

import pytest

import tedsl as te

torch = pytest.importorskip("torch")


def methods(x: Any, y: Any) -> Any:
    x.relu_()
    y.add_(x[0], alpha=2).mul_(0.5)
    x[1].mul_(3)
    y[1].fill_(7)
    x[:, 0].copy_(y[:, 1])
    x.clamp_(max=2.0)
    element = y[0, 0]  # a view in torch
    element.zero_()
    x.sub_(y).div_(4)
    return y, x.t(), x.view(-1)[2:4], x.unsqueeze(0) + 1


def indexed(x: Any, y: Any) -> Any:
    x[y > 0] = 5
    x[[0, 2]] += y[[1, 1]]
    x.index_add_(0, torch.tensor([1, 1]), y[:2])
    z = y.transpose(0, 1)[1:]
    z += 1
    return z.sum(0), x.reshape(-1)


@pytest.mark.parametrize("program", [methods, indexed])
def test_torch_programs(program: Any) -> None:
    torch.manual_seed(0)
    own = [torch.randn(3, 3), torch.randn(3, 3)]
    given = [t.clone() for t in own]
    expected, found = program(*own), te.functionalize(program, interpreted=True)(*given)
    for one, other in zip([*expected, *own], [*found, *given], strict=True):
        torch.testing.assert_close(other, one)
    for one, other in zip(expected, found, strict=True):
        inside = [one.untyped_storage().data_ptr() == t.untyped_storage().data_ptr() for t in own]
        assert [other.untyped_storage().data_ptr() == t.untyped_storage().data_ptr() for t in given] == inside


def test_the_argument_itself_is_returned() -> None:
    x = torch.ones(3)
    assert te.functionalize(lambda x: x.add_(1), interpreted=True)(x) is x
    assert x.tolist() == [2, 2, 2]
