"""`donate=`: which output takes the memory of each input that may be overwritten."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tedsl.backend.aliasing import fit_problem
from tedsl.backend.core import Core
from tedsl.lang.errors import AliasError, warn_user
from tedsl.lang.tensor import Tensor

__all__ = ["donated_positions", "donation_targets"]


def donated_positions(donate: Any, inputs: Sequence[Tensor]) -> list[int]:
    """The positions of the inputs whose memory may be taken."""
    listed = [] if donate is None else list(donate) if isinstance(donate, (list, tuple)) else [donate]
    found: list[int] = []
    for tensor in listed:
        position = next((k for k, t in enumerate(inputs) if t is tensor), None)
        if position is None:
            raise ValueError(f"te.build: donate lists inputs, found {tensor!r}")
        if position in found:
            raise ValueError(f"te.build: donate lists {tensor!r} twice")
        found.append(position)
    return found


def donation_targets(
    core: Core,
    donated: Sequence[int],
    places: Mapping[int, int],
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    on_hazard: str | None,
) -> dict[int, int]:
    """Position of a donated input -> position of the output that takes its memory."""
    taken: dict[int, int] = {}
    for source in donated:
        aliased = [p for p, k in places.items() if k == source]
        free = [p for p in range(len(outputs)) if p not in places and p not in taken.values()]
        reasons = [(p, _problem(core, p, source, inputs, outputs)) for p in free]
        fitting = aliased or [p for p, reason in reasons if reason is None]
        if fitting:
            taken[source] = fitting[0]
            continue
        told = "; ".join(f"{outputs[p].name!r}: {reason}" for p, reason in reasons) or "every output has its memory"
        text = f"te.build: the memory of {inputs[source]!r} was donated, but no output can take it: {told}"
        if on_hazard != "copy":
            raise AliasError(f"{text}; leave it out of donate=, or build with on_hazard='copy' to be warned only")
        warn_user(text)
    return taken


def _problem(core: Core, position: int, source: int, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> str | None:
    output, memory = outputs[position], inputs[source]
    problem = fit_problem(output, memory)
    if problem is not None or core.is_always_empty:
        return problem
    hazard = core.hazard(position, core.inputs[source])
    return None if hazard is None else hazard.text(output, memory)
