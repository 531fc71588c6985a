"""Steps of an optimizer on nests of parameters and of gradients that somebody has computed: `init` and `update`.

`train_step` differentiates and steps in one program. Here the gradients are given, as te.value_and_grad or another
framework gave them, and what is compiled is the step alone, once for each optimizer and shapes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from tedsl.lang.errors import brief, user_location
from tedsl.ops import language as te
from tedsl.ops.homes import unrecorded
from tedsl.ops.parameters import NestPlace, as_array, as_parameters, each_leaf, in_order, numbered, zeros_for
from tedsl.ops.transforms.compilation import jit

__all__ = ["check_made", "check_stepped", "init", "update"]

OTHER_NAMES = {
    "learning_rate": "lr=", "rate": "lr=", "step_size": "lr=", "alpha": "lr=", "params": "opt.init(params)",
    "beta1": "betas=(beta1, beta2)", "beta2": "betas=(beta1, beta2)", "b1": "betas=(b1, b2)", "b2": "betas=(b1, b2)",
    "epsilon": "eps=", "decay": "weight_decay=", "amsgrad": "not there",
}  # fmt: skip
MOST_OPTIMIZERS = 64  # whose compiled steps are kept

_COUNT = jit(lambda x: te.zeros((), "int32"))


def init(optimizer: Any, params: Any) -> dict[str, Any]:
    """What the optimizer keeps beside a nest of arrays, before the first step: `count`, and a nest for each slot."""
    first = as_parameters(params)
    _, arrays = numbered(first, "init")
    if not arrays:
        raise TypeError(
            f"init at {user_location()}: params: expected a nest with arrays of floats, found {brief(params)}"
        )
    return {"count": as_array(_COUNT(arrays[0])), **{name: each_leaf(first, zeros_for) for name in optimizer.slots}}


def update(optimizer: Any, params: Any, grads: Any, state: Any) -> tuple[Any, dict[str, Any]]:
    """The parameters and the state one step further, of gradients in the nest of the parameters.

    `params, state = opt.update(params, grads, state)`, the first state being `opt.init(params)`. Arrays are those of
    the framework of what is given, and new ones.
    """
    what, known = f"update at {user_location()}", {"count", *optimizer.slots}
    if not isinstance(state, dict) or state.keys() != known:
        kept = ", ".join(("count", *optimizer.slots))
        raise TypeError(
            f"{what}: state: expected a dict with {kept}, found {brief(state)}; the first one is opt.init(params), and "
            "the order is opt.update(params, grads, state)"
        )
    first = as_parameters(params)
    nest, arrays = numbered(first, "update")
    parts: list[tuple[str, Any]] = [("grads", grads), *((name, state[name]) for name in optimizer.slots)]
    given = [in_order(nest, as_parameters(part), what, name) for name, part in parts]
    with unrecorded():
        made = _compiled(optimizer)(arrays, *given[:1], state["count"], *given[1:])
    news, count, *slots = made
    own = {name: _refilled(nest, column) for name, column in zip(optimizer.slots, slots, strict=True)}
    return _refilled(nest, news), {"count": as_array(count), **own}


def _refilled(nest: Any, arrays: Any) -> Any:
    """The nest with arrays in their places."""
    return each_leaf(nest, lambda leaf: as_array(arrays[leaf.number]) if isinstance(leaf, NestPlace) else leaf)


@lru_cache(MOST_OPTIMIZERS)
def _compiled(optimizer: Any) -> Callable[..., Any]:
    """The step of lists of arrays."""

    def update(params: Any, grads: Any, count: Any, *slots: Any) -> Any:
        count = count + 1
        own = list(zip(*slots, strict=True)) or [()] * len(params)
        news = [optimizer.step(p, g, s, count) for p, g, s in zip(params, grads, own, strict=True)]
        first, *rest = (list(column) for column in zip(*news, strict=True))
        return first, count, *rest

    return jit(update)


def check_made(made: Any, args: tuple[Any, ...], options: dict[str, Any], fields: tuple[str, ...]) -> None:
    """Refuse parameters given to an optimizer that has none, and options under the names of other libraries."""
    what, example = f"optim.{made.__name__} at {user_location()}", f"{made.__name__}(lr=0.1)"
    if args and not isinstance(args[0], (te.Tensor, te.Expr)) and not callable(args[0]) and not _is_number(args[0]):
        raise TypeError(
            f"{what}: lr: expected a number, a 0-rank tensor or a function of the step, "
            f"found {brief(repr(args[0]), 40)}; "
            f"parameters are given to its methods: opt = {example}, state = opt.init(params), then params, state = "
            "opt.update(params, grads, state)"
        )
    rate = args[0] if args else options.get("lr", 0)
    if isinstance(rate, (int, float)) and not rate >= 0:
        raise ValueError(f"{what}: lr: expected a number of 0 or more, found {rate!r}")
    for name in options.keys() - set(fields):
        told = f"; it is {OTHER_NAMES[name]}" if name in OTHER_NAMES else ""
        raise TypeError(f"{what}: {name}= is no option; there are {', '.join(fields)}{told}")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) or (hasattr(value, "dtype") and not getattr(value, "ndim", 1))


def check_stepped(count: Any) -> None:
    """Refuse `opt.step(w, g)`, of which nobody would keep the state."""
    if count is None:
        raise TypeError(
            f"step at {user_location()}: it writes the step of one parameter into a program, of param, grad, slots and "
            "count; on arrays: state = opt.init(params), then params, state = opt.update(params, grads, state)"
        )
