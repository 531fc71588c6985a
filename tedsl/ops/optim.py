"""Optimisers as pure steps, state in and state out, and a training step compiled into one kernel.

A step is an operator on one parameter. `train_step` differentiates a loss and takes the step of every parameter in the
same kernel. It owns two sets of arrays for the state and writes each step into the set that the step before has read:
no proof about the order of reads and writes is needed, and nothing is allocated or copied.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

from autodiff import differentiate
from tedsl.backend.build import build
from tedsl.lang.errors import user_location
from tedsl.ops import language as te
from tedsl.ops.arguments import check_integer, check_same_shape, refuse
from tedsl.ops.op import op

__all__ = [
    "SGD", "Adam", "Optimizer", "State", "TrainStep", "adam_step", "clip_by_global_norm", "momentum_step", "sgd_step",
    "train_step",
]  # fmt: skip


def _decayed(param: te.Tensor, grad: te.Tensor, i: tuple[Any, ...], weight_decay: float) -> Any:
    return grad[i] + param[i] * weight_decay if weight_decay else grad[i]


def _rate(lr: Any, what: str) -> Any:
    """The learning rate as a scalar: a number, or a 0-rank tensor so that it can change from step to step."""
    if isinstance(lr, te.Tensor):
        if lr.ndim:
            raise refuse(f"optim.{what}", f"lr: expected a number or a 0-rank tensor, found {lr!r}")
        return lr[()]
    if not lr >= 0:
        raise refuse(f"optim.{what}", f"lr: expected a number of 0 or more, found {lr!r}")
    return lr


@op
def sgd_step(param: te.Tensor, grad: te.Tensor, lr: Any = 0.01, weight_decay: float = 0.0) -> te.Tensor:
    """param - lr (grad + weight_decay param). As torch.optim.SGD."""
    check_same_shape(grad, param, "optim.sgd_step", ("grad", "param"))
    rate = _rate(lr, "sgd_step")
    return te.compute(param.shape, lambda *i: param[i] - _decayed(param, grad, i, weight_decay) * rate, name=param.name)  # type: ignore[no-any-return]


@op
def momentum_step(
    param: te.Tensor, grad: te.Tensor, velocity: te.Tensor, lr: Any = 0.01, momentum: float = 0.9,
    nesterov: bool = False, weight_decay: float = 0.0,
) -> tuple[te.Tensor, te.Tensor]:  # fmt: skip
    """(param - lr d, v) with v = momentum velocity + g, g = grad + weight_decay param, and d = v, or g + momentum v.

    The latter with nesterov=True. As torch.optim.SGD.
    """
    for tensor, name in ((grad, "grad"), (velocity, "velocity")):
        check_same_shape(tensor, param, "optim.momentum_step", (name, "param"))
    rate = _rate(lr, "momentum_step")

    def element(*i: Any) -> Any:
        g = _decayed(param, grad, i, weight_decay)
        v = velocity[i] * momentum + g
        return param[i] - (v * momentum + g if nesterov else v) * rate, v

    return te.compute(param.shape, element, name=(param.name, velocity.name))  # type: ignore[no-any-return]


@op
def adam_step(
    param: te.Tensor, grad: te.Tensor, mean: te.Tensor, square: te.Tensor, count: te.Tensor, lr: Any = 1e-3,
    betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0.0, decoupled: bool = False,
) -> tuple[te.Tensor, te.Tensor, te.Tensor]:  # fmt: skip
    """(param - lr m' / (sqrt(s') + eps), m, s), with m and s running means of g and g^2, m' and s' without their bias.

    count is the number of this step, from 1, a 0-rank integer tensor. As torch.optim.Adam; decoupled=True takes
    lr weight_decay param off param rather than adding weight_decay param to grad, as torch.optim.AdamW.
    """
    for tensor, name in ((grad, "grad"), (mean, "mean"), (square, "square")):
        check_same_shape(tensor, param, "optim.adam_step", (name, "param"))
    check_integer(count, "optim.adam_step", "count")
    rate, (first, second) = _rate(lr, "adam_step"), betas
    done = te.cast(count[()], param.dtype)

    def biases() -> Any:
        return tuple(1.0 - te.pow(te.const(b, param.dtype), done) for b in betas)

    missing, spread = te.compute((), biases, name=("missing", "spread"))

    def element(*i: Any) -> Any:
        g = grad[i] if decoupled else _decayed(param, grad, i, weight_decay)
        m = mean[i] * first + g * (1.0 - first)
        s = square[i] * second + g * g * (1.0 - second)
        kept = param[i] * (1.0 - rate * weight_decay) if decoupled and weight_decay else param[i]
        return kept - m / missing[()] / (te.sqrt(s / spread[()]) + eps) * rate, m, s

    return te.compute(param.shape, element, name=(param.name, mean.name, square.name))  # type: ignore[no-any-return]


def clip_by_global_norm(grads: Sequence[te.Tensor], max_norm: float) -> list[te.Tensor]:
    """The gradients scaled so that the norm of all together is at most max_norm. As torch.nn.utils.clip_grad_norm_."""
    total = None
    for g in grads:
        part = (g * g).sum()
        total = part if total is None else total + part
    norm = te.sqrt(total)
    scale = te.minimum(max_norm / (norm + 1e-6), 1.0)
    return [g * scale for g in grads]


class Optimizer(Protocol):
    """What a training step needs of an optimiser."""

    @property
    def slots(self) -> tuple[str, ...]:
        """The names of what it keeps for each parameter, in its shape and 0 at first."""

    def step(
        self, param: te.Tensor, grad: te.Tensor, slots: Sequence[te.Tensor], count: te.Tensor
    ) -> tuple[te.Tensor, ...]:
        """The new parameter, then its new slots."""


@dataclass(frozen=True)
class SGD:
    """Gradient descent, with momentum unless that is 0."""

    lr: Any = 0.01
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0

    @property
    def slots(self) -> tuple[str, ...]:
        return ("velocity",) if self.momentum else ()

    def step(
        self, param: te.Tensor, grad: te.Tensor, slots: Sequence[te.Tensor], count: te.Tensor
    ) -> tuple[te.Tensor, ...]:
        if not slots:
            return (sgd_step(param, grad, self.lr, self.weight_decay),)
        return tuple(momentum_step(param, grad, slots[0], self.lr, self.momentum, self.nesterov, self.weight_decay))


@dataclass(frozen=True)
class Adam:
    """Adam, or AdamW with decoupled=True."""

    lr: Any = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    decoupled: bool = False

    @property
    def slots(self) -> tuple[str, ...]:
        return ("mean", "square")

    def step(
        self, param: te.Tensor, grad: te.Tensor, slots: Sequence[te.Tensor], count: te.Tensor
    ) -> tuple[te.Tensor, ...]:
        options = (self.lr, self.betas, self.eps, self.weight_decay, self.decoupled)
        return tuple(adam_step(param, grad, *slots, count, *options))


class State(NamedTuple):
    """Parameters, what the optimiser keeps (slot after slot for each parameter), and how many steps were done."""

    params: tuple[Any, ...]
    slots: tuple[Any, ...]
    steps: int


@dataclass(eq=False)
class TrainStep:
    """A compiled step: `loss, state = step(state, *data)`; the arrays of the old state are used up by the next call."""

    kernel: Any
    params: tuple[te.Tensor, ...]
    results: tuple[te.Tensor, ...]  # the loss, and what was asked for beside it
    several: bool
    slots: int  # per parameter
    _spare: tuple[Any, ...] = field(default=(), repr=False)

    def start(self, params: Sequence[Any] | Mapping[te.Tensor, Any]) -> State:
        """The first state, from copies of the arrays: in the order of the parameters, or by parameter."""
        given = [params[p] for p in self.params] if isinstance(params, Mapping) else list(params)
        if len(given) != len(self.params):
            raise ValueError(f"start at {user_location()}: expected {len(self.params)} arrays, found {len(given)}")
        arrays = [np.array(a, str(p.dtype), order="C") for a, p in zip(given, self.params, strict=True)]
        for a, p in zip(arrays, self.params, strict=True):
            if p.shape != a.shape:
                raise ValueError(f"start at {user_location()}: {p.name}: expected {p.shape}, found {a.shape}")
        return State(tuple(arrays), tuple(np.zeros_like(a) for a in arrays for _ in range(self.slots)), 0)

    def __call__(self, state: State, *data: Any) -> tuple[Any, State]:
        old = (*state.params, *state.slots)
        out = self._spare or tuple(np.empty_like(a) for a in old)
        values = [np.empty(t.shape, str(t.dtype)) for t in self.results]
        self.kernel(*data, *old, np.int32(state.steps + 1), out=[*values, *out])
        self._spare = old
        count = len(self.params)
        return tuple(values) if self.several else values[0], State(out[:count], out[count:], state.steps + 1)


def train_step(
    loss: Any, params: Sequence[te.Tensor], data: Sequence[te.Tensor], optimizer: Optimizer, *,
    clip: float | None = None, target: str = "host",
) -> TrainStep:  # fmt: skip
    """One kernel that computes the loss of the data, its gradients and the optimiser's step.

    loss is a 0-rank tensor, or a sequence of it and others to be returned with it (an accuracy). params and data are
    placeholders; clip bounds the norm of all gradients together.
    """
    several = not isinstance(loss, te.Tensor)
    results = list(loss) if several else [loss]
    if not results or results[0].ndim:
        raise refuse("optim.train_step", f"loss: expected a 0-rank tensor, found {results[:1]!r}")
    grads = list(differentiate(results[0], list(params)))
    if clip is not None:
        grads = clip_by_global_norm(grads, clip)
    count = te.placeholder((), "int32", name="count")
    news: list[te.Tensor] = []
    slots: list[te.Tensor] = []
    kept: list[te.Tensor] = []
    for param, grad in zip(params, grads, strict=True):
        own = [te.placeholder(param.shape, param.dtype, name=f"{param.name}_{s}") for s in optimizer.slots]
        new, *later = optimizer.step(param, grad, own, count)
        news.append(new)
        slots += own
        kept += later
    inputs, outputs = [*data, *params, *slots, count], [*results, *news, *kept]
    kernel = build(inputs, outputs, target=target, name="train_step")
    return TrainStep(kernel, tuple(params), tuple(results), several, len(optimizer.slots))
