"""What optimizers are made with, checked where they are made; a rate that is an array, and varies."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any

from tedsl.lang.errors import brief, user_location
from tedsl.ops import language as te
from tedsl.ops.arrays import is_array

__all__ = ["OPTIONS", "at_rate", "check_bound", "check_made", "check_options", "rate_of", "written"]

OTHER_NAMES = {
    "learning_rate": "lr=", "rate": "lr=", "step_size": "lr=", "alpha": "lr=", "params": "opt.init(params)",
    "beta1": "betas=(beta1, beta2)", "beta2": "betas=(beta1, beta2)", "b1": "betas=(b1, b2)", "b2": "betas=(b1, b2)",
    "epsilon": "eps=", "decay": "weight_decay=", "amsgrad": "not there",
}  # fmt: skip


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _is_rate(value: Any) -> bool:
    if is_array(value):
        return getattr(value, "shape", ()) == ()
    return _is_number(value) or (callable(value) and not isinstance(value, type))


def _is_pair(value: Any) -> bool:
    return isinstance(value, (tuple, list)) and len(value) == 2 and all(map(_is_number, value))


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_from_zero(value: Any) -> bool:
    return not _is_number(value) or 0 <= value < math.inf


_OF_PARTS = (
    "; it is one for all parameters: where they differ each part has an optimizer of its own, as optimizer={'w': "
    "optim.AdamW(0.1), 'b': optim.SGD(0.01)} of train_step, see docs/differentiating.md"
)
Check = Callable[[Any], bool]
Option = tuple[str, Check, str, Check]  # its kind in words, whether a value is of it, its range in words, and whether
_NUMBER: Option = ("a number", _is_number, "a number of 0 or more", _is_from_zero)
_FLAG: Option = ("True or False", _is_flag, "", _is_flag)
OPTIONS: dict[str, Option] = {
    "lr": ("a number, a 0-rank tensor or array, or a function of the step", _is_rate, *_NUMBER[2:]),
    "momentum": _NUMBER,
    "eps": _NUMBER,
    "weight_decay": _NUMBER,
    "betas": (
        "two numbers, as (0.9, 0.999)", _is_pair, "two numbers of 0 or more and less than 1, as (0.9, 0.999)",
        lambda pair: all(0 <= beta < 1 for beta in pair),
    ),
    "nesterov": _FLAG,
    "decoupled": _FLAG,
}  # fmt: skip


def check_options(what: str, given: Mapping[str, Any], hint: str = "") -> None:
    """Refuse options of the wrong kind, or out of their range; `hint` is said of a rate that is none."""
    for name, value in given.items():
        told = hint if name == "lr" else ""
        if name in ("lr", "weight_decay") and isinstance(value, (dict, list, tuple)) and not _has_arrays(value):
            told = _OF_PARTS
        _check(what, name, value, OPTIONS[name], told)


def _has_arrays(nest: Any) -> bool:
    parts = nest.values() if isinstance(nest, dict) else nest
    return any(_has_arrays(p) if isinstance(p, (dict, list, tuple)) else is_array(p) for p in parts)


def _check(what: str, name: str, value: Any, option: Option, hint: str = "") -> None:
    kind, is_of_kind, values, is_value = option
    if not is_of_kind(value):
        raise TypeError(f"{what}: {name}: expected {kind}, found {brief(repr(value), 40)}{hint}")
    if not is_value(value):
        raise ValueError(f"{what}: {name}: expected {values}, found {value!r:.40}")


def check_bound(what: str, name: str, value: Any) -> None:
    """Refuse a bound of a norm that is none: a number, or one in an array or a tensor."""
    if not is_array(value):
        _check(f"{what} at {user_location()}", name, value, _NUMBER)


def check_made(made: Any, args: tuple[Any, ...], options: dict[str, Any], fields: tuple[str, ...]) -> None:
    """Refuse parameters given to an optimizer that has none, options of other libraries, values that mean nothing."""
    what, example = f"optim.{made.__name__} at {user_location()}", f"{made.__name__}(lr=0.1)"
    for name in options.keys() - set(fields):
        told = f"; it is {OTHER_NAMES[name]}" if name in OTHER_NAMES else ""
        raise TypeError(f"{what}: {name}= is no option; there are {', '.join(fields)}{told}")
    hint = (
        f"; parameters are given to its methods: opt = {example}, state = opt.init(params), then params, state = "
        "opt.update(params, grads, state)"
    )
    given = options | dict(zip(fields, args))
    check_options(what, given, hint)
    if given.get("nesterov") and not given.get("momentum"):
        raise ValueError(
            f"{what}: nesterov=True looks ahead by the momentum, found none; give momentum=, as "
            f"{made.__name__}({given.get('lr', 0.1)!r:.20}, momentum=0.9, nesterov=True)"
        )


def written(optimizer: Any, title: str, names: tuple[str, ...]) -> str:
    """An optimizer as it is made; a function stands under its name."""

    def value(name: str) -> str:
        found = getattr(optimizer, name)
        return str(getattr(found, "__name__", found)) if callable(found) else repr(found)

    return f"{title}({', '.join(f'{name}={value(name)}' for name in names)})"


def rate_of(optimizer: Any) -> Any:
    """The learning rate, where it is an array: an argument of what is compiled, so that its value may vary."""
    rate = getattr(optimizer, "lr", None) if dataclasses.is_dataclass(optimizer) else None
    return rate if is_array(rate) and not isinstance(rate, (te.Tensor, te.Expr)) else None


def at_rate(optimizer: Any, rate: Any) -> Any:
    """The optimizer at another learning rate, if there is one."""
    return optimizer if rate is None else dataclasses.replace(optimizer, lr=rate)
