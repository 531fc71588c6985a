"""`te.build` and `te.evaluate`: from tensors to a kernel, and from tensors and arrays to arrays."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from schedules import Schedule
from tedsl.analysis.feeds import as_outputs
from tedsl.analysis.messages import describe
from tedsl.backend.cache import cached_core
from tedsl.backend.core import Core
from tedsl.backend.kernel import Kernel
from tedsl.backend.lower import operations_between
from tedsl.backend.planner import Planner
from tedsl.backend.steps import Steps, needs_steps
from tedsl.backend.targets import Target, parse_target
from tedsl.lang.errors import ScheduleError
from tedsl.lang.expr import Var
from tedsl.lang.tensor import Placeholder, Tensor

__all__ = ["build", "evaluate"]


def build(
    inputs: Any,
    outputs: Any,
    schedule: Any = None,
    target: str = "host",
    alias: Mapping[Tensor, Tensor] | None = None,
    donate: Any = None,
    on_hazard: Any = None,
    deterministic: bool = True,
    name: str | None = None,
) -> Kernel:
    """A kernel that computes `outputs` from arrays for `inputs`; one tensor gives one array, a list gives a tuple.

    It is compiled here, for arrays whose last axis is contiguous; other layouts compile when a call first brings one.
    `on_hazard` says what a call does whose output overlaps an input: "copy" (through a temporary) or "error".
    """
    if donate is not None:
        raise NotImplementedError("te.build: donate= is not there yet; leave it out, or call the kernel with out=")
    if on_hazard not in (None, "copy", "error"):
        raise ValueError(f"te.build: on_hazard must be 'copy' or 'error', found {on_hazard!r}")
    kernel = _kernel(inputs, outputs, schedule, target, alias, on_hazard or "copy", name)
    kernel.compile()
    return kernel


def _kernel(
    inputs: Any,
    outputs: Any,
    schedule: Any = None,
    target: str = "host",
    alias: Mapping[Tensor, Tensor] | None = None,
    on_hazard: str = "copy",
    name: str | None = None,
) -> Kernel:
    results, several = as_outputs(outputs, "te.build")
    if not results:
        raise ValueError("te.build: outputs is empty; name at least one tensor to compute")
    given = _checked_inputs(inputs, results)
    title = name or "_".join(dict.fromkeys(t.name for t in results[:3]))
    places = _alias_positions(alias or {}, given, results)
    sizes = None
    if isinstance(schedule, Schedule):
        core = _scheduled(given, results, title, parse_target(target), schedule)
    else:
        core, sizes = _cached(given, results, title, parse_target(target), _planner(schedule))
    return Kernel(core, given, results, several, places, sizes, on_hazard)


def evaluate(outputs: Any, feeds: Mapping[Tensor, Any], sizes: Mapping[Var, int] | None = None) -> Any:
    """The values of `outputs` for the arrays in `feeds`, compiled: `evaluate(C, {A: a, B: b})`."""
    if not isinstance(feeds, Mapping):
        raise TypeError(f"te.evaluate: feeds is a dict {{tensor: array}}, found {type(feeds).__name__}")
    return _kernel(list(feeds), outputs)(*feeds.values(), sizes=sizes)


def _cached(
    inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...], name: str, target: Target, planner: Planner
) -> tuple[Core, dict[Var, Var] | None]:
    options = name, target, planner
    return cached_core(inputs, outputs, options, lambda: _core(inputs, outputs, name, target, planner))


def _core(inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...], name: str, target: Target, planner: Planner) -> Core:
    kind = Steps if needs_steps(inputs, outputs) else Core
    return kind(inputs, outputs, name, target, planner)


def _scheduled(
    inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...], name: str, target: Target, schedule: Schedule
) -> Core:
    """The core for a user's schedule, compiled at once, so that what it refuses is refused here."""
    program = schedule.plan.program
    made = dict(zip(schedule.outputs, program.outputs, strict=True))
    for tensor in outputs:
        if tensor not in made:
            listed = ", ".join(t.name for t in schedule.outputs)
            raise ScheduleError(f"te.build: output {tensor!r} is not one of the schedule's outputs: {listed}")
    core = _core(
        tuple(map(program.current, inputs)), tuple(made[t] for t in outputs), name, target, Planner(schedule.plan)
    )
    with suppress(IndexError):  # for the call to say, as without a schedule: it may have no points
        core.any_variant()
    return core


def _checked_inputs(inputs: Any, outputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    given = tuple(inputs) if isinstance(inputs, (list, tuple)) else (inputs,)
    for tensor in given:
        if not isinstance(tensor, Tensor):
            raise TypeError(f"te.build: inputs are tensors, found {type(tensor).__name__} ({tensor!r:.60})")
    for position, tensor in enumerate(given):
        if tensor in set(given[:position]):
            raise ValueError(f"te.build: input {tensor!r} is listed twice")
    for op in operations_between(given, outputs):
        if isinstance(op, Placeholder):
            listed = ", ".join(t.name for t in given) or "none"
            raise ValueError(f"te.build: the outputs read {describe(op)}, which is not among the inputs ({listed})")
    return given


def _planner(schedule: Any) -> Planner:
    if schedule is None or schedule == "default":
        return Planner()
    raise TypeError(f"te.build: schedule must be a te.Schedule, None or 'default', found {schedule!r:.40}")


def _alias_positions(
    alias: Mapping[Tensor, Tensor], inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]
) -> dict[int, int]:
    """Position of the output -> position of the input whose memory it takes."""
    places: dict[int, int] = {}
    for output, memory in alias.items():
        if output not in set(outputs) or memory not in set(inputs):
            raise ValueError(f"te.build: alias maps an output to an input, found {{{output!r}: {memory!r}}}")
        if output.dtype is not memory.dtype:
            raise TypeError(f"te.build: alias: {output!r} cannot be written into {memory!r}, the dtypes differ")
        places[next(p for p, t in enumerate(outputs) if t is output)] = next(
            p for p, t in enumerate(inputs) if t is memory
        )
    return places
