"""Functions that hang on more than their arguments are found, whatever is made of them; derivations run once."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tedsl as te
from tedsl.ops import optim

X = np.ones(3, np.float32)


@dataclasses.dataclass
class Pair:
    first: Any
    second: Any


def counted() -> Callable[[], float]:
    """Another number at each call."""
    numbers = itertools.count(1)
    return lambda: float(next(numbers))


def _doubled(c: Callable[[], float]) -> Any:
    made = te.op(lambda x: 2 * x)
    made.def_vjp(lambda output, inputs, head: [head * c()])
    return made


IMPURE: dict[str, Callable[[Callable[[], float]], Any]] = {
    "te.grad": lambda c: te.grad(lambda x: (x * c()).sum())(X),
    "has_aux": lambda c: te.grad(lambda x: ((x * x).sum(), x * c()), has_aux=True)(X),
    "a record returned": lambda c: te.grad(lambda x: ((x * x).sum(), Pair(x * c(), x)), has_aux=True)(X),
    "a record given": lambda c: te.jit(lambda p: Pair(p.first * c(), p.second))(Pair(X, X)),
    "te.jit": lambda c: te.jit(lambda x: x * c())(X),
    "te.vmap": lambda c: te.vmap(lambda x: x * c())(np.ones((2, 3), np.float32)),
    "te.hessian": lambda c: te.hessian(lambda x: (x**3 * c()).sum())(X),
    "a gradient within": lambda c: te.jit(lambda x: x - te.grad(lambda y: (y * c()).sum())(x))(X),
    "te.jit of te.grad": lambda c: te.jit(te.grad(lambda x: (x * x * c()).sum()))(X),
    "te.op": lambda c: te.op(lambda x: x * c())(X),
    "te.op beside a gradient": lambda c: te.op(lambda x: x * c() + te.grad(lambda y: (y * y).sum())(x))(X),
    "an author's rule": lambda c: te.grad(lambda x: _doubled(c)(x).sum())(X),
}


@pytest.mark.parametrize("what", IMPURE)
def test_state_is_found(what: str) -> None:
    with pytest.raises(ValueError, match="two traces of its function differ"):
        IMPURE[what](counted())


def test_state_is_found_in_a_training_step() -> None:
    c = counted()
    step = optim.train_step(lambda p, x: ((p * x) ** 2).sum() * c(), optimizer=optim.SGD(0.1))
    with pytest.raises(ValueError, match="two traces of its function differ"):
        step(step.start(X), X)


def test_state_is_found_in_an_optimizer_of_ones_own() -> None:
    c = counted()

    @dataclasses.dataclass(frozen=True)
    class Descent:
        lr: float = 0.1
        slots: tuple[str, ...] = ()

        def step(self, param: te.Tensor, grad: te.Tensor, slots: Any, count: te.Tensor) -> tuple[te.Tensor, ...]:
            return (te.compute(param.shape, lambda i: param[i] - grad[i] * c()),)

    step = optim.train_step(lambda p, x: ((p * x) ** 2).sum(), optimizer=Descent())
    with pytest.raises(ValueError, match="two traces of its function differ"):
        step(step.start(X), X)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is called, in order, beside `loss`: derivations."""
    found: list[str] = []
    derive = te.differentiate

    def derived(*args: Any, **kwargs: Any) -> Any:
        found.append("derived")
        return derive(*args, **kwargs)

    monkeypatch.setattr("tedsl.ops.transforms.derivatives.differentiate", derived)
    return found


def test_what_derives_from_a_function_runs_once(calls: list[str]) -> None:
    def loss(x: Any) -> Any:
        calls.append("loss")
        return (x**3).sum()

    slope = te.grad(loss)
    np.testing.assert_allclose(slope(X), 3 * X)
    assert calls == ["loss", "loss", "derived"]
    np.testing.assert_allclose(slope(2 * X), 12 * X)
    assert len(calls) == 3


def test_a_training_step_derives_once(calls: list[str]) -> None:
    def loss(p: Any, x: Any) -> Any:
        calls.append("loss")
        return ((p * x) ** 2).sum()

    step = optim.train_step(loss, optimizer=optim.SGD(0.1))
    value, state = step(step.start(X), X)
    assert calls == ["loss", "loss", "derived"]
    np.testing.assert_allclose((value, state.params[0]), (3, 0.8), rtol=1e-6)
    step(state, X)
    assert len(calls) == 3
