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
from tedsl.ops.optimizer_options import at_rate, rate_of
from tedsl.ops.parameters import (
    NestPlace,
    as_array,
    as_parameters,
    each_leaf,
    in_order,
    numbered,
    without_record,
    zeros_for,
)
from tedsl.ops.transforms.compilation import jit

__all__ = ["check_stepped", "init", "update"]

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
    given = [in_order(nest, part, what, name) for name, part in parts]
    with unrecorded():
        rate = without_record(rate_of(optimizer))
        steps = _compiled(optimizer if rate is None else at_rate(optimizer, 0.0))
        made = steps(arrays, *given[:1], state["count"], rate, *given[1:])
    news, count, *slots = made
    own = {name: _refilled(nest, column) for name, column in zip(optimizer.slots, slots, strict=True)}
    return _refilled(nest, news), {"count": as_array(count), **own}


def _refilled(nest: Any, arrays: Any) -> Any:
    """The nest with arrays in their places."""
    return each_leaf(nest, lambda leaf: as_array(arrays[leaf.number]) if isinstance(leaf, NestPlace) else leaf)


@lru_cache(MOST_OPTIMIZERS)
def _compiled(optimizer: Any) -> Callable[..., Any]:
    """The step of lists of arrays, at a rate of its own where that is an array."""

    def update(params: Any, grads: Any, count: Any, rate: Any, *slots: Any) -> Any:
        count, used = count + 1, at_rate(optimizer, rate)
        own = list(zip(*slots, strict=True)) or [()] * len(params)
        news = [used.step(p, g, s, count) for p, g, s in zip(params, grads, own, strict=True)]
        first, *rest = (list(column) for column in zip(*news, strict=True))
        return first, count, *rest

    return jit(update)


def check_stepped(count: Any) -> None:
    """Refuse `opt.step(w, g)`, of which nobody would keep the state."""
    if count is None:
        raise TypeError(
            f"step at {user_location()}: it writes the step of one parameter into a program, of param, grad, slots and "
            "count; on arrays: state = opt.init(params), then params, state = opt.update(params, grads, state)"
        )
