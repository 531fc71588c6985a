"""What is asked of index inversion, with the names taken out, and cut into independent parts."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from autodiff.integers.conditions import AllOf, AnyOf, Condition, Not, Opaque, OpaqueIndex, forms, mapped, substituted
from autodiff.integers.linear import Atom, Linear, Numbered, Symbol, symbol
from tedsl.lang.dataclass import dataclass

__all__ = ["Component", "Numbering", "Parameter", "Question", "Unknown", "components", "localized", "unknowns_of"]


class Unknown(Numbered):
    """Variable number `position` of the question."""

    __slots__ = ()

    def __str__(self) -> str:
        return f"z{self.position}"


class Parameter(Numbered):
    """The parameter that appears as number `position` in the question."""

    __slots__ = ()

    def __str__(self) -> str:
        return f"n{self.position}"


@dataclass(frozen=True)
class Question:
    """An index map and its domain with all names taken out: what answers are remembered by."""

    boxes: tuple[tuple[Linear, Linear], ...]
    rows: tuple[Linear | None, ...]
    shape: tuple[Linear, ...]
    conditions: tuple[Condition, ...]
    known: tuple[Linear, ...]
    compact: bool


class Numbering:
    """The caller's symbols, numbered in the order met."""

    def __init__(self, variables: Sequence[Symbol]) -> None:
        self.unknowns = {s: Unknown(i) for i, s in enumerate(variables)}
        self.parameters: dict[Symbol, Parameter] = {}
        self.opaque: dict[Hashable, int] = {}

    def _of(self, s: Symbol) -> Linear | None:
        if isinstance(s, Atom):
            return None
        if s in self.unknowns:
            return symbol(self.unknowns[s])
        return symbol(self.parameters.setdefault(s, Parameter(len(self.parameters))))

    def form(self, e: Linear) -> Linear:
        return e.mapped(self._of)

    def row(self, e: Linear) -> Linear | None:
        return None if any(isinstance(s, OpaqueIndex) for s in e.leaves()) else self.form(e)

    def condition(self, c: Condition) -> Condition:
        return _rekeyed(mapped(c, self.form), lambda key: self.opaque.setdefault(key, len(self.opaque)))

    def restored(self, c: Condition) -> Condition:
        keys = list(self.opaque)
        return _rekeyed(c, lambda position: keys[position] if isinstance(position, int) else position)


def _rekeyed(c: Condition, rule: Callable[[Hashable], Hashable]) -> Condition:
    match c:
        case AllOf(inner):
            return AllOf(tuple(_rekeyed(i, rule) for i in inner))
        case AnyOf(inner):
            return AnyOf(tuple(_rekeyed(i, rule) for i in inner))
        case Not(inner_condition):
            return Not(_rekeyed(inner_condition, rule))
        case Opaque(key):
            return Opaque(rule(key))
    return c


@dataclass(frozen=True)
class Component:
    """Rows and conditions connected through common variables."""

    variables: tuple[int, ...]
    rows: tuple[int, ...]
    conditions: tuple[int, ...]


def localized(question: Question, c: Component) -> Question:
    """The component as a question of its own, variables and rows counted from 0, so that equal components are equal."""
    local: dict[Symbol, Linear] = {Unknown(i): symbol(Unknown(k)) for k, i in enumerate(c.variables)}
    rows = [question.rows[j] for j in c.rows]
    conditions = [question.conditions[k] for k in c.conditions]
    sizes = [n - 1 for n in question.shape if not n.is_constant]
    return Question(
        tuple(question.boxes[i] for i in c.variables),
        tuple(None if row is None else row.substituted(local) for row in rows),
        tuple(question.shape[j] for j in c.rows),
        tuple(substituted(condition, local) for condition in conditions),
        (*question.known, *sizes),
        question.compact,
    )


def unknowns_of(c: Condition) -> list[int]:
    return [s.position for e in forms(c) for s in e.leaves() if isinstance(s, Unknown)]


def components(question: Question) -> list[Component]:
    """Variables joined by the rows and conditions they share, in the order of their first; then constant rows."""
    rows = {("row", j): row.leaves() for j, row in enumerate(question.rows) if row is not None}
    conditions = {("condition", k): unknowns_of(c) for k, c in enumerate(question.conditions)}
    links = {node: [s.position for s in leaves if isinstance(s, Unknown)] for node, leaves in rows.items()} | conditions
    parent: dict[tuple[str, int], tuple[str, int]] = {
        ("variable", i): ("variable", i) for i in range(len(question.boxes))
    }

    def root(node: tuple[str, int]) -> tuple[str, int]:
        while parent[node] != node:
            node = parent[node]
        return node

    for node, variables in links.items():
        parent[node] = node
        for i in variables:
            parent[root(node)] = root(("variable", i))
    groups: dict[tuple[str, int], dict[str, tuple[int, ...]]] = {}
    for kind, i in parent:
        group = groups.setdefault(root((kind, i)), {"variable": (), "row": (), "condition": ()})
        group[kind] += (i,)
    return [Component(g["variable"], g["row"], g["condition"]) for g in groups.values() if g["variable"] or g["row"]]
