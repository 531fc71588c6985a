"""In-place code on torch tensors: torch itself is the oracle, for results and for the arguments afterwards."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
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


def test_bfloat16() -> None:
    x, y = torch.arange(6, dtype=torch.bfloat16).reshape(2, 3), torch.ones(3, dtype=torch.bfloat16)

    def scale(a: Any, b: Any) -> Any:
        a[0] *= 2
        return a[0] + b, a.T

    expected = scale(x.clone(), y)
    found = te.functionalize(scale)(x, y)
    torch.testing.assert_close(found, expected)
    assert found[1].data_ptr() == x.data_ptr()
    assert te.copy(x).dtype is torch.bfloat16
    assert te.may_alias(x, x[1])


def test_a_conversion_to_the_dtype_it_has_is_the_tensor_itself() -> None:
    def program(x: Any) -> Any:
        x.double().add_(1)
        x.float().zero_()
        x.flatten().mul_(2)
        return x

    x = torch.ones(3, dtype=torch.float64)
    te.functionalize(program, interpreted=True)(x)
    assert x.tolist() == [4, 4, 4]


def check_random(seed: int, count: int) -> None:
    """Random in-place programs: torch and te.functionalize agree on results and on the memory of every argument."""
    programs = pytest.importorskip("tests.mutation.torch_programs")
    rng = random.Random(seed)
    for _ in range(count):
        program = programs.write_torch_program(rng, methods=True)
        scope: dict[str, Any] = {"torch": torch}
        exec(compile(program.source, "<program>", "exec"), scope)
        (memory, own), (other, given) = programs.torch_arrays(program), programs.torch_arrays(program)
        note = f"{program.source}{program.arguments} {program.buffers}"
        expected, found = scope["fn"](*own), te.functionalize(scope["fn"], interpreted=True)(*given)
        for k, (one, two) in enumerate(zip(expected, found, strict=True)):
            assert torch.equal(one, two), f"result {k} of\n{note}\nexpected {one}\nfound {two}"
        for one, two in zip(memory, other, strict=True):
            assert np.array_equal(one, two), f"memory after\n{note}\nexpected {one}\nfound {two}"


@pytest.mark.parametrize("seed", range(5))
def test_random_programs(seed: int) -> None:
    check_random(seed, 20)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 150))
def test_many_random_programs(seed: int) -> None:
    check_random(seed, 40)
