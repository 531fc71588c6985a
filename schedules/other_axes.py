"""The same program on other axes, where it walks some together or goes round along one: the first way that fits."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from schedules.interleaving import MANY, interleaved
from schedules.merging import Merging, merging_of
from schedules.turns import by_turns
from tedsl.lang.tensor import Tensor

__all__ = ["on_other_axes"]

_WAYS = (
    interleaved, merging_of, partial(interleaved, shifts=True), partial(interleaved, shifts=True, most=MANY), by_turns,
)  # fmt: skip


def on_other_axes(inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Merging | None:
    """The program on the axes for which vectors fill better; None where no way fits."""
    return next((made for way in _WAYS if (made := way(inputs, outputs)) is not None), None)
