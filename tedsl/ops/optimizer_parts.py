"""An optimizer for each parameter: one for all of them, or a nest of them for the parts of the parameters."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from tedsl.analysis.arrays.nests import map_nest, rebuilt, subscripted
from tedsl.lang.errors import brief, user_location
from tedsl.ops.arguments import refuse
from tedsl.ops.optimizer_options import at_rate, rate_of
from tedsl.ops.parameters import check_keys
from tedsl.ops.records import closed
from tedsl.ops.signature import leaves

__all__ = ["KEPT", "OptimizerParts", "has_optimizers"]


class _Kept:
    """The optimizer of parameters that stay what they are."""

    slots = ()

    def __repr__(self) -> str:
        return "None"

    def step(self, param: Any, grad: Any, slots: Any, count: Any) -> tuple[Any]:
        return (param,)


KEPT = _Kept()


class OptimizerParts:
    """The optimizers of all parameters: of the whole nest, or of each of its parts, which are nests again.

    None stands for parameters that are not to move.
    """

    def __init__(self, optimizers: Any) -> None:
        self.optimizers = _plain(optimizers, "")
        if all(own is KEPT for own in leaves(self.optimizers)):
            raise refuse("optim.train_step", "optimizer: expected one for some of the parameters, found None for all")

    def __repr__(self) -> str:
        return repr(self.optimizers)

    @property
    def slots(self) -> tuple[str, ...]:
        """The names of what any of them keeps for its parameters."""
        return tuple(dict.fromkeys(name for own in leaves(self.optimizers) for name in own.slots))

    @property
    def rates(self) -> Any:
        """The learning rates that are arrays, in the nest of the optimizers, and None for others."""
        return map_nest(self.optimizers, rate_of)

    def at(self, rates: Any) -> OptimizerParts:
        """The same at other learning rates."""
        return OptimizerParts(self.each(rates, at_rate))

    def each(self, params: Any, rule: Callable[[Any, Any], Any]) -> Any:
        """A nest of parameters with `rule(optimizer, leaf)` at its leaves."""
        return _paired(self.optimizers, closed(params, True), "", rule)

    def of(self, params: Any) -> list[tuple[Any, Any]]:
        """The leaves of such a nest in order, each behind its optimizer."""
        found: list[tuple[Any, Any]] = []
        self.each(params, lambda own, leaf: found.append((own, leaf)))
        return found


def has_optimizers(nest: Any) -> bool:
    """Whether there is an optimizer in a nest, or the class of one, which somebody forgot to make one of."""
    if isinstance(nest, type) or _is_optimizer(nest):
        return True
    return any(map(has_optimizers, (_keyed(nest) or {}).values()))


def _is_optimizer(given: Any) -> bool:
    return hasattr(given, "step") and hasattr(given, "slots") and not isinstance(given, type)


def _plain(given: Any, name: str) -> Any:
    """The nest as dicts and lists, with KEPT for None; ValueError of what is no optimizer."""
    if given is None and name:
        return KEPT
    if _is_optimizer(given):
        return given
    parts = _keyed(given)
    if not parts:
        hint = (
            f"the class {given.__name__}; make one, {given.__name__}()"
            if isinstance(given, type)
            else brief(repr(given))
        )
        raise refuse(
            "optim.train_step",
            f"optimizer{name}: expected one as optim.Adam(1e-2), or a nest of them as "
            f"{{'w': optim.AdamW(1e-2), 'b': optim.Adam(1e-3)}} for the parts of the parameters, found {hint}",
        )
    made = {key: _plain(part, subscripted(name, key, False)) for key, part in parts.items()}
    return list(made.values()) if list(made) == list(range(len(made))) else made


def _keyed(nest: Any) -> dict[Any, Any] | None:
    """The parts of a nest by key, field or position; None of a leaf."""
    if isinstance(nest, Mapping):
        return dict(nest)
    if hasattr(nest, "_fields"):
        return dict(zip(nest._fields, nest, strict=True))
    if isinstance(nest, (tuple, list)):
        return dict(enumerate(nest))
    if dataclasses.is_dataclass(nest) and not isinstance(nest, type):
        return {f.name: getattr(nest, f.name) for f in dataclasses.fields(nest) if f.init}
    return None


def _paired(optimizers: Any, params: Any, name: str, rule: Callable[[Any, Any], Any]) -> Any:
    if not isinstance(optimizers, (dict, list)):
        return map_nest(params, lambda leaf: rule(optimizers, leaf))
    own, parts, what = _keyed(optimizers) or {}, _keyed(params), f"train_step at {user_location()}"
    if parts is None:
        raise TypeError(
            f"{what}: optimizer{name}: expected one for the array that is params{name}, found {brief(optimizers)}"
        )
    check_keys(parts, own, f"optimizer{name}", what, "optimizer", "; None for one leaves it as it is")
    made = {key: _paired(own[key], part, subscripted(name, key, False), rule) for key, part in parts.items()}
    return made if isinstance(params, dict) else rebuilt(params, made.values())
