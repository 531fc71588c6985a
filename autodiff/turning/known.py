"""Reads at an index of which facts are known: the read is taken in two, `T[u, r] = S[P[u], r]` and a read of T.

What is sent to T goes the usual way. From there to S the facts say how: of a permutation, dS[s, r] = dT[inverse[s], r];
of a unique index, the points of a scatter never meet. The runs of a sorted one are summed by the scatter that takes
points in their order: code for runs was tried, and took nine times as long for a million numbers.

P may have axes of its own before that along which the facts hold, as `argsort` of a matrix has: where S is read along
one of them too, that is one axis of both, and what is left is summed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from autodiff.turning.answers import Contribution, fresh_axes
from tedsl.lang import functions as fn
from tedsl.lang.assume import assume, facts_of
from tedsl.lang.compute import compute_tensors
from tedsl.lang.dataclass import dataclass
from tedsl.lang.dtypes import INT32
from tedsl.lang.expr import TRUE, Apply, Axis, Expr, Read, Reduce
from tedsl.lang.extents import same_extent
from tedsl.lang.operators import Fn
from tedsl.lang.reducers import BUILTIN
from tedsl.lang.tensor import IndexFacts, Scatter, Tensor

__all__ = ["IN_RUNS", "KnownRead", "split_of"]

IN_RUNS = "the runs of a sorted index are summed one after another"

Turn = Callable[
    [tuple[Expr, ...], tuple[Expr, ...], str], Contribution
]  # the adjoint of a read at (index, shape, name)


@dataclass(frozen=True)
class KnownRead:
    """A read of S in the dimension `dim` at P[u]; `tied`: axis of P -> dimension of S at the same index."""

    table: Read
    facts: IndexFacts
    dim: int
    tied: dict[int, int]
    index: tuple[Expr, ...]
    shape: tuple[Expr, ...]

    @property
    def rest(self) -> list[int]:
        """The dimensions of S that are dimensions of T, after those of P."""
        return [j for j in range(len(self.shape)) if j != self.dim and j not in self.tied.values()]

    @property
    def free(self) -> list[int]:
        """The axes of P, that of the facts apart, along which S is not read."""
        return [d for d in range(self.table.tensor.ndim) if d != self.facts.axis and d not in self.tied]

    def turned(self, turn: Turn, name: str) -> Contribution | None:
        """The adjoint of S; None where the facts do not help."""
        if not self._helps():
            return None
        index = (*self.table.indices, *(self.index[j] for j in self.rest))
        shape = (*self.table.tensor.extents, *(self.shape[j] for j in self.rest))
        sent = turn(index, shape, f"{name}_read")
        if sent.tensor is None:
            return sent
        tensor, kind, reason = self._made(sent.tensor, name)
        return Contribution(tensor, kind, f"{reason}: {self.table.tensor.name} is known to be so")

    def _helps(self) -> bool:
        return self._is_bijective or (self.facts.unique and not self.free)

    @property
    def _is_bijective(self) -> bool:
        places = self.table.tensor.extents[self.facts.axis]
        return self.facts.permutation and same_extent(places, self.shape[self.dim])

    def _made(self, sent: Tensor, name: str) -> tuple[Tensor, str, str]:
        if self._is_bijective:
            return self._through_inverse(sent, name), "gather", "gathered through the inverse of a permutation"
        return self._placed(sent, name), "scatter", "a scatter whose points never meet"

    def _through_inverse(self, sent: Tensor, name: str) -> Tensor:
        table = self.table.tensor
        inverse = inverse_of(table, self.facts)
        elements = fresh_axes(self.shape)
        summed = {d: Axis(f"u{d}", table.extents[d], is_reduce=True) for d in self.free}
        own: dict[int, Expr] = {**summed, **{d: elements[j] for d, j in self.tied.items()}}
        own[self.facts.axis] = elements[self.dim]
        place = Read(inverse, tuple(own[d] for d in range(table.ndim)))
        last = fn.maximum(table.extents[self.facts.axis] - 1, 0)
        own[self.facts.axis] = fn.minimum(fn.maximum(place, 0), last)  # what is no permutation reads no other memory
        value: Expr = Read(sent, (*(own[d] for d in range(table.ndim)), *(elements[j] for j in self.rest)))
        body = Reduce(BUILTIN["sum"], (value,), tuple(summed.values()), TRUE) if summed else value
        return compute_tensors(elements, (body,), name)[0]

    def _placed(self, sent: Tensor, name: str) -> Tensor:
        table = self.table.tensor
        loops = tuple(Axis(f"u{d}", e, is_reduce=True) for d, e in enumerate(table.extents))
        rest = tuple(Axis(f"s{j}", self.shape[j], is_reduce=True) for j in self.rest)
        index: dict[int, Expr] = {**{j: loops[d] for d, j in self.tied.items()}, **dict(zip(self.rest, rest))}
        index[self.dim] = Read(table, loops)
        return Scatter(
            name=name, shape=self.shape, axes=(*loops, *rest), index=tuple(index[j] for j in range(len(self.shape))),
            value=Read(sent, (*loops, *rest)), guard=TRUE, kind="add", init=None, unique=True,
        ).output()  # fmt: skip


def split_of(index: Sequence[Expr], shape: Sequence[Expr], open_rows: Sequence[int]) -> KnownRead | None:
    """The first of the rows that are data of which facts are known."""
    for dim in open_rows:
        table = _table(index[dim])
        facts = None if table is None else facts_of(table.tensor)
        if table is not None and facts is not None:
            return KnownRead(table, facts, dim, _tied(table, facts, dim, index, shape), tuple(index), tuple(shape))
    return None


def _table(row: Expr) -> Read | None:
    while isinstance(row, Apply) and row.fn is Fn.CAST and row.args[0].dtype.is_integer:
        (row,) = row.args
    return row if isinstance(row, Read) else None


def _tied(table: Read, facts: IndexFacts, dim: int, index: Sequence[Expr], shape: Sequence[Expr]) -> dict[int, int]:
    """The axes of the table that are read at the index of another dimension, over the same extent."""
    tied: dict[int, int] = {}
    for d, place in enumerate(table.indices):
        for j, other in enumerate(index):
            free = j != dim and j not in tied.values() and d != facts.axis and d not in tied
            if free and other is place and same_extent(table.tensor.extents[d], shape[j]):
                tied[d] = j
    return tied


def inverse_of(table: Tensor, facts: IndexFacts) -> Tensor:
    """The inverse permutation: that which was given, or each place written where it is mapped to."""
    if facts.inverse is not None:
        return assume(facts.inverse, permutation=True, inverse=table, axis=facts.axis)
    loops = tuple(Axis(f"u{d}", e, is_reduce=True) for d, e in enumerate(table.extents))
    index = tuple(Read(table, loops) if d == facts.axis else a for d, a in enumerate(loops))
    value = fn.convert(loops[facts.axis], INT32)
    made = Scatter(
        name=f"{table.name}_inverse", shape=table.extents, axes=loops, index=index, value=value, guard=TRUE, kind="add",
        init=None, unique=True,
    )  # fmt: skip
    return made.output()
