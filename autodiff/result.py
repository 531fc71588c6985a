"""What `differentiate` gives back: a tuple of adjoints that also knows how each was found."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeVar, overload

from autodiff.turning.answers import Answer
from tedsl.lang.border_text import Said
from tedsl.lang.columns import in_columns
from tedsl.lang.dataclass import dataclass
from tedsl.lang.expr import Expr
from tedsl.lang.locks import cached_property
from tedsl.lang.printing import names_in, writer_of
from tedsl.lang.rich import Rich
from tedsl.lang.scalar_text import BRIEF, Names
from tedsl.lang.shortened import shortened
from tedsl.lang.tensor import Operation, Tensor
from tedsl.lang.traverse import stages_of

if TYPE_CHECKING:
    from autodiff.symbolic.answer import IndexInversion

__all__ = ["Explanation", "Gradients", "ReadReport"]

T = TypeVar("T")
FEW_LETTERS = 96  # of an index, if they tell it from others
FEW = 4  # reads that differ in numbers only and are listed one by one
_NUMBERS = re.compile(r"_\d+\b| [+-] \d+\b|\b\d+\b")  # of names, and in indices


@dataclass(frozen=True)
class ReadReport:
    """How the adjoint of one read was formed: `kind` is gather, scatter, partial or zero; override or fdiff where the
    caller gave it.
    """

    consumer: Tensor
    source: Tensor
    indices: tuple[Expr, ...] = field(compare=False)
    kind: str
    reason: str
    stage: Tensor | None
    answer: Answer | None = field(default=None, repr=False, compare=False)
    left: Answer | None = field(default=None, repr=False, compare=False)
    said: Said | None = field(default=None, repr=False, compare=False)  # where it was written with a border mode

    @property
    def index(self) -> str:
        """The indices of the read, without what lies beyond a border: i + k, maximum(i - 1, 0)."""
        return ", ".join(writer_of(self.consumer.op, Names())(self.indices))

    @property
    def read(self) -> str:
        """The read as it was written: x[i + k], x.at(i - 1, mode='clamp')."""
        return self.written(writer_of(self.consumer.op, Names()), self.source.name)

    def written(self, write: Callable[[Sequence[Expr]], Sequence[str]], name: str) -> str:
        """The read with its indices in some words, of a tensor under some name."""
        if self.said is not None:
            _, places, mode = self.said
            return f"{name}.at({', '.join(write(places))}, mode={mode!r})"
        return f"{name}[{', '.join(write(self.indices))}]" if self.indices else name

    @cached_property
    def inversion(self) -> IndexInversion | None:
        """Which points reach an element, in sympy's words, of a gather that was found by inversion; else None."""
        if self.answer is None:
            return None
        from autodiff.symbolic.tool import inversion_of  # sympy takes a while to import

        return inversion_of(self.answer)

    @property
    def tried(self) -> tuple[str, ...]:
        """Of a scatter: what was tried to make it a gather, and what would have to be known; else nothing."""
        return self.attempts(writer_of(self.consumer.op, Names()))

    def attempts(self, write: Callable[[Sequence[Expr]], Sequence[str]]) -> tuple[str, ...]:
        """The same, with indices in some words."""
        if self.left is None:
            return ()
        from autodiff.turning.attempts import attempts_of  # for those who ask

        return attempts_of(self.left, lambda row: write((row,))[0])


@dataclass(frozen=True)
class Explanation(Rich):
    """The table of all reads; prints itself."""

    reads: tuple[ReadReport, ...]
    zeros: tuple[Tensor, ...] = ()
    canceled: tuple[Tensor, ...] = ()
    program: tuple[Tensor, ...] = field(default=(), repr=False, compare=False)  # outputs and adjoints

    @cached_property
    def names(self) -> Names:
        """What tensors are called in the table, as in a schedule of the outputs and the adjoints."""
        return names_in(stages_of(self.program))

    @cached_property
    def _writers(self) -> dict[Operation, Callable[[Sequence[Expr]], list[str]]]:
        return {r.consumer.op: writer_of(r.consumer.op, self.names) for r in self.reads}

    @cached_property
    def _room(self) -> int:
        """Characters of an index: few, and as many as tell reads apart."""
        parts = [(r.consumer.op, text) for r in self.reads for text in self._writers[r.consumer.op](r.indices)]
        room, longest = FEW_LETTERS, max((len(text) for _, text in parts), default=0)
        while room < longest and len({(op, shortened(t, room)) for op, t in parts}) < len(set(parts)):
            room *= 2
        return room

    def write(self, read: ReadReport) -> Callable[[Sequence[Expr]], list[str]]:
        """What writes indices of a read as the definition of its consumer has them, long ones without their middle."""
        write, room = self._writers[read.consumer.op], self._room
        return lambda exprs: [shortened(text, room) for text in write(exprs)]

    def row(self, r: ReadReport) -> tuple[str, ...]:
        """The cells of a read."""
        known = self.names.known
        stage = "-" if r.stage is None else known(r.stage)
        return known(r.consumer), r.written(self.write(r), known(r.source)), r.kind, stage, r.reason

    @property
    def groups(self) -> list[list[ReadReport]]:
        """The reads, in order; those of a loop written out in Python, which differ in numbers only, are one group."""
        rows = [self.row(r) for r in self.reads]
        alike = [(*(_NUMBERS.sub("", cell) for cell in row[:-1]), row[-1]) for row in rows]
        count = Counter(alike)
        made: dict[tuple[str, ...], list[ReadReport]] = {}
        for r, row, key in zip(self.reads, rows, alike, strict=True):
            made.setdefault(key if count[key] > FEW else row, []).append(r)
        return list(made.values())

    @property
    def gathers(self) -> list[ReadReport]:
        """The reads whose adjoint is a sum for each element."""
        return [r for r in self.reads if r.kind == "gather"]

    @property
    def scatters(self) -> list[ReadReport]:
        """The reads whose adjoint stays a scatter, along all or some dimensions."""
        return [r for r in self.reads if r.kind in ("scatter", "partial")]

    def __str__(self) -> str:
        groups = self.groups
        rows: list[tuple[str, ...]] = [("consumer", "read", "adjoint is a", "stage", "why", "")]
        rows += [(*self.row(reads[0]), such(reads)) for reads in groups]
        lines = in_columns(list(dict.fromkeys(rows)), (1, 4))
        below = [
            f"d{t.name} is zero: no path of differentiable operations leads from {t.name} to the output"
            for t in self.zeros
        ]
        below += [f"d{t.name} is zero: the output is the same whatever {t.name} is" for t in self.canceled]
        for r in (reads[0] for reads in groups):
            consumer, read, *_ = self.row(r)
            below += [f"{consumer} reads {shortened(read, BRIEF)}: {line}" for line in r.attempts(self.write(r))]
        return "\n".join([*lines, *dict.fromkeys(below)])

    def __repr__(self) -> str:
        return str(self)


def such(reads: list[ReadReport]) -> str:
    """What a line that tells of several reads says of their number."""
    return f"{len(reads)} such reads" if len(reads) > 1 else ""


class ByTensor(dict[Tensor, T]):
    """What was found for each tensor, which is also known by its name where no other has that."""

    def __getitem__(self, key: Tensor | str, /) -> T:
        named = [t for t in self if t.name == key] if isinstance(key, str) else [key]
        if len(named) > 1:
            raise KeyError(f"{len(named)} tensors are named {key!r}; give the tensor itself")
        if named and named[0] in self:
            return super().__getitem__(named[0])
        known = ", ".join(dict.fromkeys(t.name for t in self))
        raise KeyError(f"no adjoint of {key!r} was computed; there are adjoints of: {known}")


class Gradients(tuple[Tensor, ...], Rich):
    """The adjoints, a tuple in the order of the inputs; `grads[A]` by tensor or its name.

    `.adjoints` are those of every tensor on the way.
    """

    inputs: tuple[Tensor, ...]
    adjoints: ByTensor[Tensor]
    adjoint_summands: ByTensor[Mapping[Tensor, Tensor]]
    explanation: Explanation

    def __new__(
        cls,
        inputs: tuple[Tensor, ...],
        results: tuple[Tensor, ...],
        adjoints: Mapping[Tensor, Tensor],
        adjoint_summands: Mapping[Tensor, Mapping[Tensor, Tensor]],
        explanation: Explanation,
    ) -> Gradients:
        self = super().__new__(cls, results)
        self.inputs, self.adjoints, self.adjoint_summands = inputs, ByTensor(adjoints), ByTensor(adjoint_summands)
        self.explanation = explanation
        return self

    @overload
    def __getitem__(self, key: SupportsIndex) -> Tensor: ...
    @overload
    def __getitem__(self, key: slice) -> tuple[Tensor, ...]: ...
    @overload
    def __getitem__(self, key: Tensor | str) -> Tensor: ...

    def __getitem__(self, key: Any) -> Any:
        return self.adjoints[key] if isinstance(key, (Tensor, str)) else super().__getitem__(key)

    def __contains__(self, item: object) -> bool:
        return any(r is item for r in self)

    def __copy__(self) -> Gradients:
        return self

    def __deepcopy__(self, memo: object) -> Gradients:
        return self

    @property
    def gathers(self) -> list[ReadReport]:
        """Those of `explain()`: reads whose adjoint is a sum for each element."""
        return self.explanation.gathers

    @property
    def scatters(self) -> list[ReadReport]:
        """Those of `explain()`: reads whose adjoint stays a scatter."""
        return self.explanation.scatters

    def explain(self) -> Explanation:
        """How each read was turned around: gather, or scatter and why."""
        return self.explanation

    def __repr__(self) -> str:
        lines = [
            f"{r!r}" if r.name == f"d{t.name}" else f"d{t.name} = {r!r}" for t, r in zip(self.inputs, self, strict=True)
        ]
        return "\n".join(lines) or "no gradients"
