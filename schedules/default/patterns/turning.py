"""Blocks of sixteen by sixteen turned in registers: what lies along one axis comes out along another one.

A vector whose elements lie apart in memory is put together one by one, 250 instructions for a block. Four vectors
interleaved are four vectors again, eight shuffles; two rounds of that turn a block, 64 shuffles:

    turned[q, w, s]  = source[row q + 4 s, place w]          rows q, q + 4, q + 8, q + 12 interleaved
    turned'[q, w, s] = turned[s, 4 q + w // 4, w % 4]        flat, it holds place * 16 + row
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from schedules.default.rewriting import Rewriting
from schedules.directives import BoundExtent, ComputeAt, Unroll, Vectorize
from schedules.machine import Machine
from tedsl.lang.dataclass import dataclass
from tedsl.lang.dtypes import INT32
from tedsl.lang.expr import Axis, Const, Expr, Read
from tedsl.lang.tensor import Tensor

__all__ = ["SIDE", "Turned", "can_turn", "turned"]

SIDE = 16


def can_turn(machine: Machine, itemsize: int) -> bool:
    """Whether a vector has as many lanes as a block has rows."""
    return machine.gpu is None and machine.vector_bytes == SIDE * itemsize


@dataclass(frozen=True, eq=False)
class Turned:
    """The two stages that turn blocks; `others` are their outer axes."""

    stages: tuple[Tensor, Tensor]
    others: tuple[Axis, ...]

    def at(self, others: Sequence[Expr], row: Expr, place: Expr) -> Expr:
        """What `row` held at `place`."""
        return Read(self.stages[1], (*others, place // 4, place % 4 * 4 + row // 4, row % 4))

    def schedule(self, rw: Rewriting, consumer: str, loop: str) -> None:
        """Both stages inside a loop of the stage that reads them, a block at a time."""
        for stage in self.stages:
            name = stage.op.name
            rw.directives += [
                ComputeAt(stage=name, consumer=consumer, loop=loop),
                BoundExtent(stage=name, axis="q", extent=4),
                BoundExtent(stage=name, axis="w", extent=SIDE),
                BoundExtent(stage=name, axis="s", extent=4),
                Vectorize(stage=name, loop="w"),
                Unroll(stage=name, loop="s"),
                Unroll(stage=name, loop="q"),
            ]
            rw.planned.add(name)


def turned(
    rw: Rewriting, name: str, others: Sequence[Axis], value: Callable[[Sequence[Axis], Expr, Expr], Expr]
) -> Turned:
    """Stages that hold `value(others, row, place)` with its rows side by side."""
    first = _axes(others)
    *outer, q, w, s = first
    rows = rw.compute(f"{name}_woven", first, value(outer, q + 4 * s, w))
    second = _axes(others)
    *outer, q, w, s = second
    woven = rw.compute(f"{name}_turned", second, Read(rows, (*outer, s, q * 4 + w // 4, w % 4)))
    return Turned((rows, woven), tuple(others))


def _axes(others: Sequence[Axis]) -> tuple[Axis, ...]:
    return (
        *(Axis(f"o{k}", a.extent) for k, a in enumerate(others)),
        *(Axis(n, Const(e, INT32)) for n, e in (("q", 4), ("w", SIDE), ("s", 4))),
    )
