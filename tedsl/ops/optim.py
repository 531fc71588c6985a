"""Optimizers as pure steps, and a training step compiled into one program.

A step is an operator on one parameter. `train_step` differentiates a loss and takes the step of every parameter in the
same program. Of tensors, it owns two sets of arrays for the state and writes each step into the set that the step
before has read: no proof about the order of reads and writes is needed, and nothing is allocated or copied. Of a
function of nested parameters, it gives new arrays, of whatever framework it was given.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, fields
from functools import reduce
from inspect import Signature, signature
from itertools import compress
from operator import add
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar, overload

import numpy as np

from autodiff import differentiate
from tedsl.analysis.arrays.nests import map_leaves, map_nest, underscored
from tedsl.backend.build import build
from tedsl.lang.dataclass import dataclass
from tedsl.lang.dtypes import as_dtype, dtype_of_array
from tedsl.lang.errors import MissingKeyError, brief, user_location
from tedsl.lang.foreign import values_of
from tedsl.lang.keywords import own_arguments
from tedsl.lang.names import SOLVERS
from tedsl.lang.pickling import made_again
from tedsl.lang.reducing import widened_float
from tedsl.lang.rich import Rich
from tedsl.ops import language as te
from tedsl.ops.arguments import check_integer, check_same_shape, refuse, wide_of
from tedsl.ops.explaining import OpExplanation
from tedsl.ops.homes import unrecorded
from tedsl.ops.nest_updates import check_stepped, init, update
from tedsl.ops.op import Op, op
from tedsl.ops.optimizer_options import OPTIONS, check_bound, check_made, check_options, written
from tedsl.ops.optimizer_parts import KEPT, OptimizerParts, has_optimizers
from tedsl.ops.parameters import Parameters, as_array, as_parameters, each_leaf, numbered, without_record, zeros_for
from tedsl.ops.purity import called, with_called_parts
from tedsl.ops.records import closed, opened
from tedsl.ops.signature import leaves
from tedsl.ops.transforms.compilation import jit
from tedsl.ops.transforms.derivatives import value_and_grad
from tedsl.ops.transforms.function import name_of

__all__ = [
    "SGD", "Adam", "AdamW", "FunctionStep", "Optimizer", "State", "TrainStep", "adam_step", "clip_by_global_norm",
    "momentum_step", "sgd_step", "train_step",
]  # fmt: skip

T = TypeVar("T")
Optimizers: TypeAlias = "Optimizer | Mapping[str, Any] | Sequence[Any]"  # of all parameters, or of parts of them


def _stepped(shape: Any, element: Callable[..., tuple[Any, ...]], *old: te.Tensor) -> tuple[te.Tensor, ...]:
    """The elements of the next parameter and of its slots, each in the dtype that it has."""
    return te.compute(
        shape,
        lambda *i: tuple(te.cast(new, t.dtype) for new, t in zip(element(*i), old, strict=True)),
        name=tuple(t.name for t in old),
    )


def _decayed(param: te.Tensor, grad: te.Tensor, i: tuple[Any, ...], weight_decay: float) -> Any:
    return grad[i] + param[i] * weight_decay if weight_decay else grad[i]


def _rate(what: str, lr: Any, **options: Any) -> Any:
    """The learning rate as a scalar: a number, or a 0-rank tensor so that it can change from step to step.

    It and the other options are refused where they mean nothing.
    """
    check_options(f"te.ops.optim.{what} at {user_location()}", {"lr": lr, **options})
    return lr[()] if isinstance(lr, te.Tensor) else lr


def _scheduled(lr: Any, count: te.Tensor, param: te.Tensor) -> Any:
    """The rate of this step, in the dtype of the step where it is a tensor or a function of how many were done."""
    is_tensor = isinstance(lr, te.Tensor)
    if not callable(lr) and not is_tensor:
        return lr
    dtype = widened_float(param.dtype)
    rate = lr if is_tensor else lr(te.compute((), lambda: te.cast(count[()], "int64") - 1, name="t")[()])
    return te.compute((), lambda: te.cast(rate[()] if isinstance(rate, te.Tensor) else rate, dtype), name="lr")


@op
def sgd_step(param: te.Tensor, grad: te.Tensor, lr: Any = 0.01, weight_decay: float = 0.0) -> te.Tensor:
    """param - lr (grad + weight_decay param). As torch.optim.SGD."""
    check_same_shape(grad, param, "optim.sgd_step", ("grad", "param"))
    rate, old, slope = _rate("sgd_step", lr, weight_decay=weight_decay), wide_of(param), wide_of(grad)
    (new,) = _stepped(param.shape, lambda *i: (old[i] - _decayed(old, slope, i, weight_decay) * rate,), param)
    return new


@op
def momentum_step(
    param: te.Tensor, grad: te.Tensor, velocity: te.Tensor, lr: Any = 0.01, momentum: float = 0.9,
    nesterov: bool = False, weight_decay: float = 0.0,
) -> tuple[te.Tensor, te.Tensor]:  # fmt: skip
    """(param - lr d, v) with v = momentum velocity + g, g = grad + weight_decay param, and d = v.

    With nesterov=True, d = g + momentum v. As torch.optim.SGD.
    """
    for tensor, name in ((grad, "grad"), (velocity, "velocity")):
        check_same_shape(tensor, param, "optim.momentum_step", (name, "param"))
    rate = _rate("momentum_step", lr, momentum=momentum, nesterov=nesterov, weight_decay=weight_decay)
    old, slope, speed = map(wide_of, (param, grad, velocity))

    def element(*i: Any) -> Any:
        g = _decayed(old, slope, i, weight_decay)
        v = speed[i] * momentum + g
        return old[i] - (v * momentum + g if nesterov else v) * rate, v

    return _stepped(param.shape, element, param, velocity)  # type: ignore[return-value]


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
    rate = _rate("adam_step", lr, betas=betas, eps=eps, weight_decay=weight_decay, decoupled=decoupled)
    first, second = betas
    done = te.cast(count[()], "float64")  # 1 - 0.999 has lost two digits in float32
    old, slope, means, squares = map(wide_of, (param, grad, mean, square))

    def scales() -> Any:
        missing, spread = (1.0 - te.pow(te.const(b, "float64"), done) for b in betas)
        return te.cast(rate / missing, old.dtype), te.cast(te.sqrt(spread), old.dtype)

    pace, spread = te.compute((), scales, name=("pace", "spread"))

    def element(*i: Any) -> Any:
        g = slope[i] if decoupled else _decayed(old, slope, i, weight_decay)
        m = means[i] * first + g * (1.0 - first)
        s = squares[i] * second + g * g * (1.0 - second)
        kept = old[i] * (1.0 - rate * weight_decay) if decoupled and weight_decay else old[i]
        return kept - m / (te.sqrt(s) / spread[()] + eps) * pace[()], m, s

    return _stepped(param.shape, element, param, mean, square)  # type: ignore[return-value]


def _clipped(grads: Any, max_norm: Any) -> Any:
    wide = [wide_of(g) for g in _tensors(grads)]
    norm = te.sqrt(reduce(add, [(g * g).sum() for g in wide]))
    scale = te.minimum(max_norm / (norm + 1e-6), 1.0)
    return each_leaf(grads, lambda g: te.cast(g * te.cast(scale, widened_float(g.dtype)), g.dtype))


_clipped_arrays = jit(_clipped)


@own_arguments("te.ops.optim.clip_by_global_norm")
def clip_by_global_norm(grads: Any, max_norm: float) -> Any:
    """The gradients scaled so that the norm of all together is at most max_norm. As torch.nn.utils.clip_grad_norm_.

    They are a nest of tensors, or of arrays; so is the result.
    """
    check_bound("te.ops.optim.clip_by_global_norm", "max_norm", max_norm)
    parts = leaves(closed(grads, True))
    if not any(hasattr(leaf, "dtype") for leaf in parts):
        raise refuse("optim.clip_by_global_norm", f"expected a nest of gradients, found {grads!r:.60}")
    return (_clipped if any(isinstance(leaf, te.Tensor) for leaf in parts) else _clipped_arrays)(grads, max_norm)


class Optimizer(Protocol):
    """What a training step needs of an optimizer: every object with `slots` and `step` is one.

    It writes the step of one parameter into the program, in the functions of te. `init` and `update` on arrays are
    those of SGD and Adam, `init = optim.SGD.init`.
    """

    @property
    def slots(self) -> tuple[str, ...]:
        """The names of what it keeps for each parameter, in its shape and 0 at first."""

    def step(
        self, param: te.Tensor, grad: te.Tensor, slots: Sequence[te.Tensor], count: te.Tensor
    ) -> tuple[te.Tensor, ...]:
        """The new parameter, then its new slots, each of the shape and dtype of the old one.

        `count` is the number of this step, from 1, an int32 of rank 0.
        """


def _reduced(self: Any) -> tuple[Any, ...]:
    """How pickle makes it again, of its fields; refused in words where `lr` is a function without a name."""
    made = type(self)
    return made_again(f"optim.{made.__name__}", made, *vars(self).values())


def _itself(self: Any, memo: object = None) -> Any:
    """A copy of what never changes."""
    return self


def _of_fields(made: type[T]) -> type[T]:
    """The class with the signature that its fields give it; `__new__` takes all and looks at it first."""
    told = signature(made.__init__)
    _, *own = told.parameters.values()
    made.__signature__ = told.replace(parameters=own)  # type: ignore[attr-defined]
    return made


@_of_fields
@dataclass(frozen=True)
class SGD:
    """Gradient descent, with momentum unless that is 0.

    `lr` is a number, a function of the number of steps done (`lambda t: 0.1 * 0.99**t`, t an int64), a 0-rank tensor,
    or a 0-rank array: what that holds is read at each step, and may change without anything being compiled anew.
    """

    lr: Any = 0.01
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0

    def __new__(cls, *args: Any, **options: Any) -> Any:
        check_made(cls, args, options, tuple(cls.__dataclass_fields__))
        return super().__new__(cls)

    def __repr__(self) -> str:
        return written(self, "SGD", tuple(f.name for f in fields(self)))

    init, update = init, update
    __reduce__ = _reduced
    __copy__ = __deepcopy__ = _itself

    @property
    def slots(self) -> tuple[str, ...]:
        """What it keeps for each parameter: with momentum, the velocity."""
        return ("velocity",) if self.momentum else ()

    def step(
        self, param: te.Tensor, grad: te.Tensor, slots: Sequence[te.Tensor] = (), count: Any = None
    ) -> tuple[te.Tensor, ...]:
        """The new parameter of one in a program, then its new slots."""
        check_stepped(count)
        rate = _scheduled(self.lr, count, param)
        if not slots:
            return (sgd_step(param, grad, rate, self.weight_decay),)
        return tuple(momentum_step(param, grad, slots[0], rate, self.momentum, self.nesterov, self.weight_decay))


@_of_fields
@dataclass(frozen=True)
class Adam:
    """Adam, or AdamW with decoupled=True.

    `lr` is that of SGD; a function of the number of steps done is made of the functions of te:
    `lambda t: te.minimum(t / 100, 1.0) * 1e-3` warms up.
    """

    lr: Any = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    decoupled: bool = False

    def __new__(cls, *args: Any, **options: Any) -> Any:
        check_made(cls, args, options, tuple(cls.__dataclass_fields__))
        return super().__new__(cls)

    def __post_init__(self) -> None:
        object.__setattr__(self, "betas", tuple(self.betas))

    def __repr__(self) -> str:
        shown = fields(self)[:-1]  # whether it is decoupled is its name
        return written(self, f"Adam{'W' * self.decoupled}", tuple(f.name for f in shown))

    init, update = init, update
    __reduce__ = _reduced
    __copy__ = __deepcopy__ = _itself

    @property
    def slots(self) -> tuple[str, ...]:
        """What it keeps for each parameter: running means of gradients and of their squares."""
        return ("mean", "square")

    def step(
        self, param: te.Tensor, grad: te.Tensor, slots: Sequence[te.Tensor] = (), count: Any = None
    ) -> tuple[te.Tensor, ...]:
        """The new parameter of one in a program, then its new slots."""
        check_stepped(count)
        options = (_scheduled(self.lr, count, param), self.betas, self.eps, self.weight_decay, self.decoupled)
        return tuple(adam_step(param, grad, *slots, count, *options))


def AdamW(  # noqa: N802 - a kind of Adam
    lr: Any = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0.01,
    **others: Any,
) -> Adam:  # fmt: skip
    """Adam with decoupled weight decay: `Adam(..., decoupled=True)`."""
    check_made(AdamW, (lr, betas, eps, weight_decay), others, ("lr", "betas", "eps", "weight_decay"))
    return Adam(lr, betas, eps, weight_decay, decoupled=True)


_SCHEDULES = (
    "lr= takes a function of the number of steps done, as optim.SGD(lr=lambda t: 0.1 * te.exp(-t / 100)), of which "
    "te.jit(lr)(np.array(state.steps)) is the rate of the next step"
)


def __getattr__(name: str) -> Any:
    hint = ""
    if name.lower() in {n.lower() for n in __all__}:
        (same,) = [n for n in __all__ if n.lower() == name.lower()]
        hint = f"; it is optim.{same}"
    elif re.search(r"LR|(?i:schedule|cosine|warm|anneal|decay)", name):
        hint = f"; {_SCHEDULES}"
    elif name in SOLVERS:
        hint = f"; {SOLVERS[name]}"
    elif not name.startswith("_"):
        hint = (
            "; there are SGD, Adam and AdamW, and every object with `slots` and `step` is one: help(optim.Optimizer), "
            "and docs/differentiating.md has an RMSprop of ten lines"
        )
    raise AttributeError(
        f"module 'tedsl.ops.optim' has no attribute {name!r}{hint}", name=name, obj=sys.modules[__name__]
    )


def __dir__() -> list[str]:
    return sorted({*(name for name in globals() if name.startswith("__")), *__all__})


class State(NamedTuple):
    """Parameters, what the optimizer keeps for each, and how many steps were done: state.params, or state["params"].

    te.load(path) gives what te.save wrote of one as a dict of these, with which a step goes on as well.
    """

    params: Any
    slots: Any
    steps: int

    def __repr__(self) -> str:
        return f"State after {self.steps} steps, params {each_leaf(self.params, _kind)!r}"

    def __getitem__(self, key: Any) -> Any:
        """Also by name, as in the dict that te.load gives."""
        if not isinstance(key, str):
            return tuple.__getitem__(self, key)
        if key in self._fields:
            return getattr(self, key)
        raise MissingKeyError(f"a State has {', '.join(map(repr, self._fields))}, found {key!r}, at {user_location()}")

    def __getattr__(self, name: str) -> Any:
        hint = f"; the rate is that of the optimizer: {_SCHEDULES}" if name in ("lr", "rate", "learning_rate") else ""
        raise AttributeError(f"'State' object has no attribute {name!r}{hint}", name=name, obj=self)

    def copy(self) -> State:
        """The state in arrays of its own, which no later step writes into."""
        return State(each_leaf(self.params, _copied), each_leaf(self.slots, _copied), self.steps)


class _Kind(str):
    """A dtype and a shape, printed as they are."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _kind(leaf: Any) -> Any:
    if not hasattr(leaf, "dtype"):
        return leaf
    return _Kind(f"{str(leaf.dtype).rpartition('.')[2]}[{', '.join(map(str, leaf.shape))}]")


def _checked(state: Any) -> State:
    """A state, or one as te.load gives it back."""
    if isinstance(state, dict) and set(state) == set(State._fields):
        return State(**state)
    if not isinstance(state, State):
        raise TypeError(
            f"train_step at {user_location()}: the step takes a state, as `loss, state = step(state, *data)`, found "
            f"{each_leaf(state, _kind)!r:.60}; the first one is step.start(params)"
        )
    return state


def _of_another(optimizer: OptimizerParts, found: str) -> ValueError:
    return ValueError(
        f"train_step at {user_location()}: the state is one of another optimizer: {found}, but "
        f"{brief(repr(optimizer), 120)} keeps {', '.join(optimizer.slots) or 'nothing'}; begin with "
        "step.start(state.params)"
    )


@dataclass(eq=False)
class TrainStep:
    """A compiled step on tensors: `loss, state = step(state, *data)`.

    It owns two sets of arrays. Each step writes into the one that the step before has read, so that a state is used up
    by the step after the next one: what is to stay is copied, `best = state.copy()`.
    """

    kernel: Any
    params: Parameters
    data: tuple[te.Tensor, ...]
    results: tuple[te.Tensor, ...]  # the loss, and what was asked for beside it
    several: bool
    optimizers: OptimizerParts
    _spare: tuple[Any, ...] = field(default=(), repr=False)
    _newest: State | None = field(default=None, repr=False)
    _arrays: tuple[Any, ...] = field(default=(), repr=False)  # of the newest

    def start(self, params: Any) -> State:
        """The first state, from copies of the arrays: in the nest of the parameters, in order, or by name."""
        what, tensors = f"start at {user_location()}", self.params.tensors
        given = self.params.listed(params, what)
        arrays = [
            np.array(values_of(without_record(a), f"{what}: {p.name}"), p.dtype.numpy, order="C")
            for a, p in zip(given, tensors, strict=True)
        ]
        for a, p in zip(arrays, tensors, strict=True):
            if p.shape != a.shape:
                raise ValueError(f"{what}: {p.name}: expected {p.shape}, found {a.shape}")
        slots = tuple(
            np.zeros(a.shape, widened_float(dtype_of_array(a)).numpy)
            for a, (own, _) in zip(arrays, self.optimizers.of(self.params.nest), strict=True)
            for _ in own.slots
        )
        return State(self.params.nested(arrays), slots, 0)

    def __call__(self, state: State, *data: Any, **named: Any) -> tuple[Any, State]:
        """The loss of the data, given in order or by name, and the state one step further."""
        state, count = _checked(state), len(self.params.tensors)
        old = (*self.params.listed(state.params, "train_step: the state"), *state.slots)
        if isinstance(state.slots, dict) or len(old) != len(self.kernel.outputs) - len(self.results):
            raise _of_another(self.optimizers, f"it keeps {len(state.slots)} arrays for {count} parameters")
        self._check(state, old)
        out = self._spare or tuple(np.empty_like(a) for a in old)
        values = [np.empty(t.shape, str(t.dtype)) for t in self.results]
        given = [*self._given(data, named), *old, np.array(state.steps + 1, "int32"), *_arrays(self.optimizers.rates)]
        self.kernel(*map(without_record, given), out=(*values, *out))
        self._spare, self._arrays = old, out
        self._newest = State(self.params.nested(out[:count]), out[count:], state.steps + 1)
        return tuple(values) if self.several else values[0], self._newest

    def _given(self, data: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
        """The data in order."""
        names = [t.name for t in self.data]
        found = {**dict(zip(names, data)), **named}
        if len(data) + len(named) != len(names) or found.keys() != set(names):
            raise _of_other_data("", names, data, named, self.optimizers)
        return [found[name] for name in names] if named else list(data)

    def _check(self, state: State, old: tuple[Any, ...]) -> None:
        """Refuse a state whose arrays hold a later one by now, or will while they are read."""
        newest = self._newest
        if newest is None or not old:
            return
        is_spare = any(a is b for a, b in zip(old, self._spare, strict=True))
        is_other = state.steps != newest.steps and any(a is b for a, b in zip(old, self._arrays, strict=True))
        if is_spare or is_other:
            raise ValueError(
                f"train_step at {user_location()}: the arrays of the state after {state.steps} steps were taken for "
                f"those after {newest.steps}; keep a copy of a state that is to be used again: state.copy()"
            )


class FunctionStep(Rich):
    """A step of a function of nested parameters: `loss, state = step(state, *data)`, compiled once for given shapes.

    Each step makes arrays of its own: a state stays what it was and may be used again.
    """

    def __init__(
        self, f: Callable[..., Any], optimizers: OptimizerParts, *, has_aux: bool, clip: float | None, **worth: Any
    ) -> None:
        derived = value_and_grad(f, has_aux=has_aux).function

        def step(params: Any, slots: Any, rates: Any, /, *data: Any, **named: Any) -> Any:
            try:
                value, gradients = derived(closed(params, True), *data, **named)
            except KeyError as error:
                raise _missing(error, params, name_of(f)) from error
            except AttributeError as error:
                if "'dict' object" not in str(error):
                    raise
                raise AttributeError(
                    f"{error}: a state from te.load has dicts for dataclasses, unless told by te.load(path, like=state)"
                ) from error
            count, places = (slots["count"] + 1).named("count"), optimizers.at(rates).of(params)
            owns = [own for own, leaf in places if isinstance(leaf, te.Tensor)]
            kept = _kept(optimizers, places, slots)
            news = called(_advanced, (owns, _tensors(params), _tensors(gradients), kept, count, clip))
            columns: dict[str, list[te.Tensor]] = {name: [] for name in optimizers.slots}
            for own, (_, *new) in zip(owns, news, strict=True):
                for name, slot in zip(own.slots, new, strict=True):
                    columns[name].append(slot)
            rest = {name: _refilled(slots[name], column) for name, column in columns.items()}
            return value, _refilled(params, [new for new, *_ in news]), {"count": count, **rest}

        step.__name__ = f"step_of_{name_of(f)}"
        unspoken = _as_parameters_of(f, step)
        self.function, self.optimizers, self._run = f, optimizers, jit(with_called_parts(step), **worth)
        self._run.signature.unspoken, self._run.signature.is_last = unspoken, True
        self._run.signature.label = f"train_step of {name_of(f)}"
        self.options = {"has_aux": has_aux, "clip": clip, **worth}

    def __reduce__(self) -> tuple[Any, ...]:
        return made_again(
            f"train_step of {name_of(self.function)}",
            _function_step,
            self.function,
            self.optimizers,
            self.options,
        )

    def __deepcopy__(self, memo: object) -> FunctionStep:  # as of a function
        return self

    def __repr__(self) -> str:
        return f"train_step({name_of(self.function)}, {self.optimizers})"

    def explain(self) -> OpExplanation:
        """What was compiled, and for which shapes."""
        told: OpExplanation = self._run.explain()
        return told

    def start(self, params: Any) -> State:
        """The first state, from a nest of arrays and numbers: dicts, lists, tuples and dataclasses."""
        first = as_parameters(params)
        _, arrays = numbered(first, "start")
        if not arrays:
            raise refuse("optim.train_step", f"start: expected a nest with arrays of floats, found {params!r:.60}")
        self.optimizers.of(first)  # also those that keep nothing are refused here, where they are for other parameters
        slots = {name: opened(self.optimizers.each(first, _zeros_of(name))) for name in self.optimizers.slots}
        return State(first, {"count": as_array(_COUNT(arrays[0])), **slots}, 0)

    def __call__(self, state: State, *data: Any, **named: Any) -> tuple[Any, State]:
        """The value of the function (with has_aux, and what comes beside it), and the state one step further."""
        state = _checked(state)
        if not isinstance(state.slots, dict) or state.slots.keys() != {"count", *self.optimizers.slots}:
            kept = [k for k in state.slots if k != "count"] if isinstance(state.slots, dict) else []
            raise _of_another(self.optimizers, f"it keeps {', '.join(kept) or 'nothing'}")
        with unrecorded():
            rates = map_nest(self.optimizers.rates, without_record)
            try:
                value, params, slots = self._run(state.params, state.slots, rates, *data, **named)
            except TypeError:
                self._check_data(data, named)
                raise
        return value, State(each_leaf(params, as_array), each_leaf(slots, as_array), state.steps + 1)

    def _check_data(self, data: Sequence[Any], named: Mapping[str, Any]) -> None:
        """TypeError, in place of that of the function, where it does not take this data."""
        try:
            taken = signature(self.function)
        except (TypeError, ValueError):  # functions of C have none
            return
        try:
            taken.bind(None, *data, **named)
        except TypeError:
            names = list(taken.parameters)[1:]
            raise _of_other_data(name_of(self.function), names, data, named, self.optimizers) from None


def _zeros_of(slot: str) -> Callable[[Optimizer, Any], Any]:
    """What an optimizer keeps for an array before the first step: None where it has no such slot."""
    return lambda own, leaf: zeros_for(leaf) if slot in own.slots else None


def program_of(step: FunctionStep) -> Op:
    """A step as a function of parameters, what the optimizer keeps, its rate and the data."""
    made: Op = step._run
    return made


def _as_parameters_of(f: Callable[..., Any], step: Callable[..., Any]) -> frozenset[str]:
    """Give a step the parameters of the function, as messages have them; the names of two between that are its own."""
    own = list(signature(step).parameters.values())[1:3]
    try:
        first, *others = signature(f).parameters.values()
    except (TypeError, ValueError):  # functions of C have none, others none for parameters
        return frozenset(p.name for p in own)
    if first.kind in (first.POSITIONAL_ONLY, first.POSITIONAL_OR_KEYWORD):
        taken = {first.name, *(p.name for p in others)}
        while not taken.isdisjoint(p.name for p in own):
            own = [p.replace(name=f"{p.name}_") for p in own]
        params = first.replace(kind=first.POSITIONAL_ONLY, default=first.empty)
        step.__signature__ = Signature([params, *own, *others])  # type: ignore[attr-defined]
    return frozenset(p.name for p in own)


def _of_other_data(
    of: str, names: Sequence[str], data: Sequence[Any], named: Mapping[str, Any], optimizers: OptimizerParts
) -> TypeError:
    """What is said of data that a step does not take."""
    was = [*(str(_kind(a)) for a in data), *(f"{name}=" for name in named)]
    options = [name for name in named if name in OPTIONS and name not in names]
    hint = f"; {options[0]} is an option of the optimizer: {brief(repr(optimizers))}" if options else ""
    return TypeError(
        f"train_step at {user_location()}: the step{of and f' of {of}'} takes a state and "
        f"{', '.join(names) or 'no data'}, found {', '.join(was) or 'no data'}{hint}"
    )


def _missing(error: KeyError, params: Any, name: str) -> Exception:
    """What is said of a key that a function looks for and that its parameters do not have."""
    keys: list[Any] = []

    def look(value: Any) -> None:
        if isinstance(value, dict):
            keys.extend(value)
        for part in value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ():
            look(part)

    look(params)
    if error.args and (error.args[0] in keys or not keys):
        return error  # a mistake elsewhere
    return ValueError(
        f"train_step of {name} at {user_location()}: the function looks for {error}, but the parameters given to "
        f"start() are {', '.join(map(str, keys))}"
    )


def _function_step(f: Callable[..., Any], optimizers: OptimizerParts, options: dict[str, Any]) -> FunctionStep:
    return FunctionStep(f, optimizers, **options)


# The number 0 as an array of the framework that it is given an array of.
_COUNT = jit(lambda x: te.zeros((), "int32"))


@overload
def train_step(
    loss: Any, params: Any, data: Sequence[te.Tensor], optimizer: Optimizers, *, clip: float | None = None,
    target: str = "host", opt: str = "default", memory: int | str | None = None,
) -> TrainStep: ...  # fmt: skip


@overload
def train_step(
    loss: Callable[..., Any], params: Optimizers | None = None, *, optimizer: Optimizers | None = None,
    clip: float | None = None, has_aux: bool = False, target: str = "host", opt: str = "default",
    memory: int | str | None = None,
) -> FunctionStep: ...  # fmt: skip


@own_arguments(
    "te.ops.optim.train_step",
    hint="it has clip=, has_aux=, target=, opt=, memory=; learning rates are of the optimizer, as optim.Adam(lr=0.1)",
)
def train_step(
    loss: Any, params: Any = None, data: Sequence[te.Tensor] = (), optimizer: Optimizers | None = None, *,
    clip: float | None = None, has_aux: bool = False, target: str = "host", opt: str = "default",
    memory: int | str | None = None,
) -> Any:  # fmt: skip
    """A loss, its gradients and the optimizer's step as one program.

    `train_step(f, optimizer=Adam(1e-2))`: f(params, *data) gives the loss of nested parameters, as for
    te.value_and_grad. `train_step(loss, params, data, optimizer)`: the loss is a 0-rank tensor, or a sequence of it and
    others to be returned with it (an accuracy); params (a nest of sequences, dicts and dataclasses) and data are
    placeholders. `optimizer={"w": AdamW(1e-2), "b": SGD(0.1), "c": None}`: parts of the parameters have their own, and
    None stands for what stays as it is. clip bounds the norm of all gradients together; opt and memory are
    those of te.build.
    """
    worth = {"opt": opt, "memory": memory}
    if clip is not None:
        check_bound("te.ops.optim.train_step", "clip", clip)
    if callable(loss) and not isinstance(loss, te.Tensor):
        if optimizer is None and has_optimizers(params):
            params, optimizer = None, params
        if optimizer is None or params is not None or data:
            raise refuse(
                "optim.train_step",
                "of a function, expected train_step(f, optimizer=Adam(1e-2)); parameters "
                f"and data are given to start() and to the step, found {each_leaf(params, _kind)!r:.60}",
            )
        return FunctionStep(loss, OptimizerParts(optimizer), has_aux=has_aux, clip=clip, **worth)
    if optimizer is None or params is None:
        raise refuse("optim.train_step", "expected train_step(loss, params, data, optimizer), found no optimizer")
    return _step_of_tensors(loss, params, data, OptimizerParts(optimizer), clip, target, worth)


def _step_of_tensors(
    loss: Any,
    given: Any,
    data: Sequence[te.Tensor],
    optimizers: OptimizerParts,
    clip: float | None,
    target: str,
    worth: dict[str, Any],
) -> TrainStep:
    several = not isinstance(loss, te.Tensor)
    results = list(loss) if several else [loss]
    if not results or results[0].ndim:
        raise refuse("optim.train_step", f"loss: expected a 0-rank tensor, found {results[:1]!r}")
    nest = Parameters(given, f"te.ops.optim.train_step at {user_location()}")
    params = nest.tensors
    count = te.placeholder((), "int32", name="count")
    rates = map_leaves(optimizers.rates, "lr", _placeholder_of_rate, underscored)
    owns = [own for own, _ in optimizers.at(rates).of(nest.nest)]
    kept = [
        [te.placeholder(p.shape, widened_float(p.dtype), name=f"{p.name}_{s}") for s in own.slots]
        for p, own in zip(params, owns, strict=True)
    ]
    news = _advanced(owns, params, list(differentiate(results[0], params)), kept, count, clip)
    inputs = [*data, *params, *(slot for slots in kept for slot in slots), count, *_arrays(rates)]
    outputs = [*results, *(new for new, *_ in news), *(slot for _, *slots in news for slot in slots)]
    kernel = build(inputs, outputs, target=target, name="train_step", **worth)
    return TrainStep(kernel, nest, tuple(data), tuple(results), several, optimizers)


def _placeholder_of_rate(rate: Any, name: str) -> te.Tensor | None:
    return None if rate is None else te.placeholder((), str(as_dtype(rate.dtype)), name=name)


def _arrays(rates: Any) -> list[Any]:
    return [rate for rate in leaves(rates) if rate is not None]


def _kept(optimizers: OptimizerParts, places: Sequence[tuple[Any, Any]], slots: Any) -> list[list[te.Tensor]]:
    """What is kept for each parameter, in the order of the slots of its optimizer."""
    columns = {name: leaves(closed(slots[name], True)) for name in optimizers.slots}
    kept = []
    for k, (own, leaf) in enumerate(places):
        if isinstance(leaf, te.Tensor):
            found = {name: column[k] for name, column in columns.items() if isinstance(column[k], te.Tensor)}
            if found.keys() != set(own.slots):
                raise _of_another(optimizers, f"for a part it keeps {', '.join(found) or 'nothing'}")
            kept.append([found[name] for name in own.slots])
    return kept


def _advanced(
    optimizers: Sequence[Optimizer], params: Sequence[te.Tensor], grads: Sequence[te.Tensor],
    slots: Sequence[Sequence[te.Tensor]], count: te.Tensor, clip: float | None,
) -> list[tuple[te.Tensor, ...]]:  # fmt: skip
    """For each parameter its new value, then its new slots."""
    if clip is not None:
        moved = [own is not KEPT for own in optimizers]
        clipped = iter(clip_by_global_norm(list(compress(grads, moved)), clip))
        grads = [next(clipped) if is_moved else g for is_moved, g in zip(moved, grads, strict=True)]
    return [own.step(p, g, held, count) for own, p, g, held in zip(optimizers, params, grads, slots, strict=True)]


def _tensors(nest: Any) -> list[te.Tensor]:
    return [leaf for leaf in leaves(closed(nest, True)) if isinstance(leaf, te.Tensor)]


def _refilled(nest: Any, tensors: Sequence[te.Tensor]) -> Any:
    """The nest with other tensors."""
    following = iter(tensors)
    return each_leaf(nest, lambda leaf: next(following) if isinstance(leaf, te.Tensor) else leaf)


def _copied(leaf: Any) -> Any:
    if hasattr(leaf, "clone"):  # a tensor of PyTorch
        return leaf.clone()
    return leaf.copy() if hasattr(leaf, "copy") else leaf
