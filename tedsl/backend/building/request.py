"""What `te.build` was asked for, checked, in one record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tedsl.analysis.arrays.feeds import as_outputs
from tedsl.analysis.messages import describe
from tedsl.backend.building.planners import planner_for
from tedsl.backend.calling.aliasing import alias_positions
from tedsl.backend.calling.donation import donated_positions
from tedsl.backend.compiling.compilation import Compilation
from tedsl.backend.host.targets import Target, parse_target
from tedsl.lang.constants import constants_of
from tedsl.lang.dataclass import dataclass
from tedsl.lang.locks import cached_property
from tedsl.lang.tensor import Constant, Placeholder, Tensor
from tedsl.lang.traverse import operations_between

__all__ = ["BuildOptions", "BuildRequest", "request_for"]


@dataclass(frozen=True, eq=False)
class BuildOptions:
    """The options of `te.build`, as its caller wrote them."""

    schedule: Any = None
    target: str = "host"
    alias: Any = None
    donate: Any = None
    on_hazard: str | None = None
    deterministic: bool = True
    name: Any = None
    checkpoint: Any = None
    memory: Any = None
    opt: str = "default"

    @property
    def is_saving(self) -> bool:
        """Whether some of it may be computed again."""
        return self.checkpoint is not None or self.memory is not None

    @property
    def is_default(self) -> bool:
        """Whether all of the schedule is left to us."""
        return not self.is_saving and (self.schedule is None or self.schedule == "default")


@dataclass(frozen=True, eq=False)
class BuildRequest:
    """Tensors and options that fit each other; what refers to an input or output does so by its position."""

    inputs: tuple[Tensor, ...]
    constants: tuple[Tensor, ...]  # which the program reads beside them
    outputs: tuple[Tensor, ...]
    is_several: bool  # outputs were given as a list
    name: str
    target: Target
    alias: Mapping[int, int]  # output -> the input whose memory it takes
    donated: tuple[int, ...]
    options: BuildOptions

    @property
    def fed(self) -> tuple[Tensor, ...]:
        """What the program is given."""
        return (*self.inputs, *self.constants)

    @cached_property
    def compilation(self) -> Compilation:
        """The record of what is to be compiled."""
        planner = planner_for(
            self.options.schedule, self.outputs, self.target, deterministic=self.options.deterministic,
            opt=self.options.opt,
        )  # fmt: skip
        planner = replace(planner, is_over=bool(self.alias or self.donated))
        return Compilation(self.fed, self.outputs, self.name, self.target, planner)


def request_for(inputs: Any, outputs: Any, options: BuildOptions, what: str) -> BuildRequest:
    """What was asked for, or an error that says what is wrong with it."""
    results, is_several = as_outputs(outputs, what)
    if not results:
        raise ValueError(f"{what}: outputs is empty; name at least one tensor to compute")
    named = _checked_inputs(inputs, results, what)
    constants = tuple(constants_of(named, results))
    name = _checked_name(options.name, what) or "_".join(dict.fromkeys(t.name for t in results[:3]))
    if options.alias is not None and not isinstance(options.alias, Mapping):
        raise TypeError(f"te.build: alias is a dict {{output: input}}, found {type(options.alias).__name__}")
    places = alias_positions(options.alias or {}, named, results)
    donated = tuple(donated_positions(options.donate, named))
    target = parse_target(options.target)
    return BuildRequest(named, constants, results, is_several, name, target, places, donated, options)


def _checked_name(name: Any, what: str) -> str | None:
    if name is not None and not isinstance(name, str):
        raise TypeError(f"{what}: name is a string, found {type(name).__name__} ({name!r:.40})")
    if name is not None and not name.strip():
        raise ValueError(f"{what}: the name of a kernel has letters, found {name!r:.40}; leave it out, or give one")
    return name


def _checked_inputs(inputs: Any, outputs: tuple[Tensor, ...], what: str) -> tuple[Tensor, ...]:
    given = tuple(inputs) if isinstance(inputs, (list, tuple)) else (inputs,)
    for tensor in given:
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{what}: inputs are tensors, found {type(tensor).__name__} ({tensor!r:.60})")
    for position, tensor in enumerate(given):
        if tensor in set(given[:position]):
            raise ValueError(f"{what}: input {tensor!r} is listed twice")
    for op in operations_between(given, outputs):
        if isinstance(op, Placeholder) and not isinstance(op, Constant):
            listed = ", ".join(describe(t.op) if t.name == op.name else t.name for t in given) or "none"
            is_turned = op.output() in set(outputs) and any(not isinstance(t.op, Placeholder) for t in given)
            told = f"; inputs come first: {what}(inputs, outputs)" if is_turned else ""
            raise ValueError(f"{what}: the outputs read {describe(op)}, which is not among the inputs ({listed}){told}")
    return given
