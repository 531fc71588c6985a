"""The question put to index inversion, and the form of its answer.

A read `S[f(z)]` for z in Z sends `g(z)` back to element f(z). A `Gather` says the same from the side of the element:
which points z reach s, as a start and steps along loops of known width, with nothing left to search for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autodiff.integers.conditions import Condition, Zero, substituted
from autodiff.integers.linear import Linear, Numbered, Symbol, floordiv, linear, mod, symbol
from tedsl.lang.dataclass import dataclass

__all__ = ["ON_DATA", "Gather", "GatherLoop", "GatheredAxis", "Inversion", "TargetIndex", "Variable"]

ON_DATA = "the index depends on data"  # why a row that nothing is known of stays a scatter


@dataclass(frozen=True)
class Variable:
    """A loop of the forward body: `symbol` runs over [begin, begin + extent)."""

    symbol: Symbol
    extent: Linear | int
    begin: Linear | int = 0


class TargetIndex(Numbered):
    """The index of the element along dimension `position` of the tensor that is read."""

    __slots__ = ()

    def __str__(self) -> str:
        return f"s{self.position}"


class GatheredAxis(Numbered):
    """An axis of the gathered tensor; where that is the adjoint itself, the same number as the target's."""

    __slots__ = ()

    def __str__(self) -> str:
        return f"q{self.position}"


class GatherLoop(Numbered):
    """A summation index of a gather, from 0."""

    __slots__ = ()

    def __str__(self) -> str:
        return f"t{self.position}"


@dataclass(frozen=True)
class Gather:
    """P[q] = sum over t in loops where guards(q, t) of g(solution(q, t)), read back as P[index(s)] where member(s).

    axes      what P is indexed by, and how far each runs
    index     for each axis, the position that element s reads, in `Target`s
    place     the element (of each inverted dimension) that a position of P is for: the inverse of `index`
    member    conditions on `Target`s under which s reads P at all; elsewhere this gather adds nothing
    loops     summation indices and their widths
    solution  every forward variable, in the order given, in `Axis`, `Loop` and parameters
    guards    conditions on `Axis`, `Loop` and parameters
    """

    axes: tuple[tuple[GatheredAxis, Linear], ...]
    index: tuple[Linear, ...]
    place: tuple[tuple[TargetIndex, Linear], ...]
    member: tuple[Condition, ...]
    loops: tuple[tuple[GatherLoop, Linear], ...]
    solution: tuple[Linear, ...]
    guards: tuple[Condition, ...]

    @property
    def direct(self) -> bool:
        """Whether P is the adjoint itself: every element reads its own position, always."""
        return not self.member and all(
            i == symbol(TargetIndex(a.position)) for (a, _), i in zip(self.axes, self.index, strict=True)
        )

    def substituted(self, values: Mapping[Any, Linear]) -> Gather:
        """Symbols replaced in all but axes and loops themselves."""

        def rule(e: Linear) -> Linear:
            return e.substituted(values)

        return Gather(
            tuple((a, rule(n)) for a, n in self.axes),
            tuple(map(rule, self.index)),
            tuple((s, rule(e)) for s, e in self.place),
            tuple(substituted(c, values) for c in self.member),
            tuple((t, rule(n)) for t, n in self.loops),
            tuple(map(rule, self.solution)),
            tuple(substituted(c, values) for c in self.guards),
        )

    def __str__(self) -> str:
        lines = []
        if not self.direct:
            axes = ", ".join(f"{a} in [0, {n})" for a, n in self.axes)
            lines.append(f"reads P[{', '.join(map(str, self.index))}], {axes or 'a scalar'}")
            lines += [f"where {c}" for c in self.member]
        lines += [f"sum {t} in [0, {n})" for t, n in self.loops]
        lines.append(f"z = ({', '.join(map(str, self.solution))})")
        lines += [f"if {c}" for c in self.guards]
        return "\n".join(lines)


@dataclass(frozen=True)
class Inversion:
    """The adjoint of one read: the sum of its gathers, over the rows that could be inverted.

    No gathers and no opaque rows is a gradient proved to be zero.
    """

    gathers: tuple[Gather, ...]
    opaque: tuple[int, ...] = ()
    reason: str | None = None

    def __str__(self) -> str:
        text = "\nplus\n".join(map(str, self.gathers)) or "zero"
        rows = f"rows {', '.join(map(str, self.opaque))} stay a scatter: {self.reason}"
        return f"{rows}\n{text}" if self.opaque else text


@dataclass(frozen=True)
class Grid:
    """The elements of the target that one solution is for: s = place(q), q in a box.

    The whole target to begin with; a residue class, a sub-box or a diagonal of it after refinement.
    """

    axes: tuple[tuple[GatheredAxis, Linear], ...]
    place: tuple[tuple[TargetIndex, Linear], ...]
    index: tuple[tuple[GatheredAxis, Linear], ...]
    member: tuple[Condition, ...] = ()

    @staticmethod
    def whole(shape: Mapping[int, Linear]) -> Grid:
        """Every element: axis j is target j."""
        return Grid(
            tuple((GatheredAxis(j), n) for j, n in shape.items()),
            tuple((TargetIndex(j), symbol(GatheredAxis(j))) for j in shape),
            tuple((GatheredAxis(j), symbol(TargetIndex(j))) for j in shape),
        )

    def ranges(self) -> dict[Symbol, tuple[Linear | None, Linear | None]]:
        return {a: (linear(0), n - 1) for a, n in self.axes}

    def moved(
        self, axis: GatheredAxis, stride: int, offset: Linear, extent: Linear, member: tuple[Condition, ...]
    ) -> Grid:
        """Only the elements q = stride * q' + offset along one axis, q' in [0, extent); `member` says so of q."""
        replacement: dict[Symbol, Linear] = {axis: symbol(axis) * stride + offset}
        old = dict(self.index)
        # Where an element is read at all, e - offset is a multiple of the stride: e // stride is the same and shorter.
        base = offset - mod(offset, stride) if offset.is_constant else offset
        return Grid(
            tuple((a, extent if a == axis else n) for a, n in self.axes),
            tuple((t, e.substituted(replacement)) for t, e in self.place),
            tuple((a, floordiv(e - base, stride) if a == axis else e) for a, e in self.index),
            self.member + tuple(substituted(c, old) for c in member),
        )

    def tied(self, axis: GatheredAxis, value: Linear) -> Grid:
        """Only the elements on the diagonal axis = value(other axes)."""
        old = dict(self.index)
        condition = Zero((symbol(axis) - value).substituted(old))
        return Grid(
            tuple((a, n) for a, n in self.axes if a != axis),
            tuple((t, e.substituted({axis: value})) for t, e in self.place),
            tuple((a, e) for a, e in self.index if a != axis),
            (*self.member, condition),
        )
