"""The oracle of index inversion: a map over a small box is enumerated, and so are the gathers that invert it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from hypothesis import strategies as st

from autodiff.integers.conditions import AllOf, AnyOf, Choice, Condition, NonNegative, Not, Zero, holds
from autodiff.integers.linear import Greatest, Least, Linear, floordiv, linear, mod, symbol
from autodiff.inversion.domains import Gather, Inversion, TargetIndex, Variable
from autodiff.inversion.invert import invert

Point = tuple[int, ...]


@dataclass(frozen=True)
class IndexMap:
    """A read S[rows(z)], z in the box of `variables` where `conditions` hold; `sizes` gives each parameter a value."""

    variables: tuple[Variable, ...]
    rows: tuple[Linear, ...]
    shape: tuple[Linear | int, ...]
    conditions: tuple[Condition, ...] = ()
    sizes: Mapping[str, int] | None = None

    def invert(self) -> Inversion:
        return invert(self.variables, self.rows, self.shape, self.conditions)


@dataclass(frozen=True)
class Count:
    """Iterations that a gather runs, and those of them whose guard holds."""

    run: int
    useful: int

    @property
    def masked(self) -> float:
        return 1 - self.useful / self.run if self.run else 0.0


def forward_pairs(m: IndexMap) -> Counter[tuple[Point, Point]]:
    """Every (element, point) that the map joins."""
    sizes = m.sizes or {}
    extents = [linear(n).evaluate(sizes) for n in m.shape]
    begins = [linear(v.begin).evaluate(sizes) for v in m.variables]
    counts = [max(0, linear(v.extent).evaluate(sizes)) for v in m.variables]
    found: Counter[tuple[Point, Point]] = Counter()
    for z in product(*(range(b, b + n) for b, n in zip(begins, counts, strict=True))):
        values = {v.symbol: value for v, value in zip(m.variables, z, strict=True)} | dict(sizes)
        if all(holds(c, values) for c in m.conditions):
            s = tuple(row.evaluate(values) for row in m.rows)
            if all(0 <= i < n for i, n in zip(s, extents, strict=True)):
                found[s, z] += 1
    return found


def gathered_pairs(m: IndexMap, answer: Inversion) -> tuple[Counter[tuple[Point, Point]], Count]:
    """The same from the gathers, and what it cost."""
    found: Counter[tuple[Point, Point]] = Counter()
    run = useful = 0
    for g in answer.gathers:
        readers = _readers(m, g)
        for q, z in _points(m, g):
            run += 1
            if z is not None:
                useful += 1
                found.update((s, z) for s in readers.get(q, ()))
    return found, Count(run, useful)


def _readers(m: IndexMap, g: Gather) -> dict[Point, list[Point]]:
    """Which elements read each position of the gathered tensor; reading outside it is an error."""
    sizes = m.sizes or {}
    extents = [n.evaluate(sizes) for _, n in g.axes]
    readers: dict[Point, list[Point]] = {}
    for s in product(*(range(linear(n).evaluate(sizes)) for n in m.shape)):
        values = {TargetIndex(j): i for j, i in enumerate(s)} | dict(sizes)
        if all(holds(c, values) for c in g.member):
            q = tuple(e.evaluate(values) for e in g.index)
            assert all(0 <= i < n for i, n in zip(q, extents, strict=True)), f"{s} reads {q} of {extents}"
            readers.setdefault(q, []).append(s)
    return readers


def _points(m: IndexMap, g: Gather) -> Iterator[tuple[Point, Point | None]]:
    """Every iteration: (position, the point, None where the guard is false)."""
    sizes = m.sizes or {}
    axes = [range(n.evaluate(sizes)) for _, n in g.axes]
    loops = [range(max(0, n.evaluate(sizes))) for _, n in g.loops]
    names = [a for a, _ in g.axes] + [t for t, _ in g.loops]
    for place in product(*axes, *loops):
        values = dict(zip(names, place, strict=True)) | dict(sizes)
        holding = all(holds(c, values) for c in g.guards)
        z = tuple(e.evaluate(values) for e in g.solution) if holding else None
        yield place[: len(axes)], z


def checked(m: IndexMap) -> Count:
    """The cost of inverting the map, after checking that every pair is produced once and no other."""
    answer = m.invert()
    assert not answer.opaque, answer.reason
    found, count = gathered_pairs(m, answer)
    expected = forward_pairs(m)
    assert found == expected, f"missing {expected - found}, superfluous {found - expected}\n{answer}"
    return count


NAMES = "xyz"
COEFFICIENTS = st.sampled_from([0, 0, 1, 1, 1, -1, 2, -2, 3, 4, 5])


@st.composite
def rows(draw: st.DrawFn, names: Sequence[str], depth: int = 2) -> Linear:
    """A quasi-affine form: sums, floor quotients and remainders, minima, maxima and choices."""
    affine = linear(draw(st.integers(-3, 3)))
    for name in names:
        affine = affine + symbol(name) * draw(COEFFICIENTS)
    kind = draw(st.integers(0, 13)) if depth else 13
    inner = rows(names, depth - 1)
    if kind == 0:
        return floordiv(draw(inner), draw(st.integers(2, 4)))
    if kind == 1:
        return mod(draw(inner), draw(st.integers(2, 5)))
    if kind == 2:
        return symbol(Least(draw(inner), draw(inner)))
    if kind == 3:
        return symbol(Greatest(draw(inner), linear(draw(st.integers(-2, 3)))))
    if kind == 4:
        return symbol(Choice(draw(conditions(names, 1)), draw(inner), draw(inner)))
    return affine + floordiv(draw(inner), draw(st.integers(2, 3))) if kind == 5 else affine


@st.composite
def conditions(draw: st.DrawFn, names: Sequence[str], depth: int = 2) -> Condition:
    """Comparisons joined by and, or, not."""
    kind = draw(st.integers(0, 9)) if depth else 0
    inner = conditions(names, depth - 1)
    if kind == 6:
        return Zero(draw(rows(names, 1)))
    if kind == 7:
        return AllOf((draw(inner), draw(inner)))
    if kind == 8:
        return AnyOf((draw(inner), draw(inner)))
    return Not(draw(inner)) if kind == 9 else NonNegative(draw(rows(names, kind % 2)))


@st.composite
def index_maps(draw: st.DrawFn) -> IndexMap:
    """Maps of one to three variables to one or two dimensions, some over a box with the symbolic extent n."""
    names = NAMES[: draw(st.integers(1, 3))]
    n = draw(st.integers(0, 4))
    variables = []
    for name in names:
        extent = symbol("n") + draw(st.integers(0, 1)) if draw(st.integers(0, 6)) == 0 else draw(st.integers(1, 5))
        variables.append(Variable(name, extent, draw(st.sampled_from([0, 0, 0, 1, -1]))))
    rank = draw(st.integers(1, 2))
    extents = st.one_of(st.integers(1, 9), st.integers(0, 3).map(lambda k: symbol("n") * 2 + k))
    return IndexMap(
        tuple(variables),
        tuple(draw(rows(names)) for _ in range(rank)),
        tuple(draw(extents) for _ in range(rank)),
        tuple(draw(st.lists(conditions(names), max_size=1))),
        {"n": n},
    )
