"""Questions to `autodiff.invert`, drawn: the families that people write, and maps of any quasi-affine form."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import sympy
from hypothesis import reject, strategies as st
from sympy import Abs, And, Eq, Max, Min, Mod, Not, Or, Piecewise, Xor, floor

from autodiff import IndexInversion, invert
from autodiff.inversion.formulas import as_sympy, holds_when
from tests.autodiff.inversion.enumeration import IndexMap, index_maps

Range = tuple[Any, Any]
i, j, k, r = sympy.symbols("i j k r", integer=True)
n, m, a = sympy.symbols("n m a", integer=True)
SMALL = st.integers(1, 5)


@dataclass(frozen=True)
class IndexQuestion:
    """What `autodiff.invert` is asked."""

    index: list[Any]
    domain: dict[Any, Range]
    shape: list[Any]
    where: list[Any] = field(default_factory=list)

    def answer(self) -> IndexInversion:
        return invert(self.index, self.domain, self.shape, self.where)


def in_sympy(drawn: IndexMap, size: Any = n) -> IndexQuestion:
    """A map of linear forms in sympy's words, `size` for its parameter."""
    names = {name: sympy.Symbol(name, integer=True) for name in "xyz"} | {"n": size}

    def written(e: Any) -> Any:
        return e if isinstance(e, int) else as_sympy(e, names)

    return IndexQuestion(
        [written(e) for e in drawn.rows],
        {names[str(v.symbol)]: (written(v.begin), written(v.extent)) for v in drawn.variables},
        [written(e) for e in drawn.shape],
        [holds_when(c, names) for c in drawn.conditions],
    )


@st.composite
def windows(draw: st.DrawFn) -> IndexQuestion:
    """Shifts, strides, dilations, reversals, with a border: read again at the edge, wrapped, reflected, or left out."""
    stride, dilation = draw(st.sampled_from([1, 2, 3, -1, -2])), draw(st.sampled_from([1, 2, 3, -1]))
    extent, shape = draw(st.one_of(SMALL, st.just(n))), draw(st.one_of(st.integers(1, 9), st.just(n), st.just(n + 2)))
    at = stride * i + dilation * r + draw(st.integers(-3, 6)) + draw(st.sampled_from([0, 0, 0, a]))
    border = draw(st.integers(0, 4))
    if border == 1:
        at = Min(Max(at, 0), shape - 1)
    elif border == 2:
        at = Mod(at, shape)
    elif border == 3:
        at = Abs(at)
    elif border == 4:
        at = Piecewise((at, at >= draw(st.integers(-1, 2))), (draw(st.integers(0, 2)), True))
    return IndexQuestion([at], {i: (draw(st.integers(-2, 2)), extent), r: (0, draw(SMALL))}, [shape])


@st.composite
def flattened(draw: st.DrawFn) -> IndexQuestion:
    """Several axes on one, by numbers or by sizes, and parts of it."""
    width = draw(st.one_of(st.integers(1, 4), st.just(m)))
    rest = draw(st.sampled_from([0, 0, 1, -1]))
    domain = {i: (0, draw(st.sampled_from([3, n]))), j: (0, width)}
    where = draw(st.sampled_from([[], [], [j <= i], [Or(i > 1, Eq(j, 0))]]))
    return IndexQuestion([width * i + j + rest], domain, [draw(st.sampled_from([12, n * width, 3 * width]))], where)


@st.composite
def unflattened(draw: st.DrawFn) -> IndexQuestion:
    """One axis read as several, in any order: quotients and remainders, of one another too."""
    width, height = draw(st.one_of(st.integers(1, 4), st.just(m))), draw(st.integers(1, 3))
    extent = draw(st.sampled_from([12, n * width, height * width]))
    at = k + draw(st.sampled_from([0, 0, 1, -2]))
    rows = [Mod(at, width), floor(at / width)]
    if draw(st.booleans()):
        rows[1:] = [Mod(floor(at / width), height), floor(at / (height * width))]
    shape = [width, *([height, 4] if len(rows) == 3 else [draw(st.sampled_from([5, n]))])]
    order = draw(st.permutations(range(len(rows))))
    return IndexQuestion([rows[d] for d in order], {k: (0, extent)}, [shape[d] for d in order])


@st.composite
def shuffled(draw: st.DrawFn) -> IndexQuestion:
    """Pixels to channels and back, with blocks of any size."""
    block, width = draw(st.integers(1, 3)), draw(st.sampled_from([2, 4, n]))
    if draw(st.booleans()):
        rows = [block * Mod(k, block) + Mod(i, block), floor(i / block)]
        return IndexQuestion(rows, {k: (0, block), i: (0, block * width)}, [block * block, width])
    return IndexQuestion(
        [block * i + Mod(k, block), floor(k / block)], {k: (0, block * 2), i: (0, width)}, [block * width, 2]
    )


@st.composite
def skewed(draw: st.DrawFn) -> IndexQuestion:
    """Linear maps of two and three axes: any matrix, singular ones too."""
    axes = (i, j, k)[: draw(st.integers(2, 3))]
    entries = st.integers(-3, 3)
    rows = [sum((draw(entries) * z for z in axes), draw(st.integers(-2, 6))) for _ in range(draw(st.integers(1, 3)))]
    extents = st.one_of(st.integers(1, 4), st.just(n))
    domain = {z: (0, draw(extents)) for z in axes}
    where = draw(st.sampled_from([[], [], [i <= j], [And(i >= j, j >= 1)], [Eq(Mod(i + j, 2), 0)]]))
    return IndexQuestion([sympy.sympify(e) for e in rows], domain, [draw(st.integers(1, 9)) for _ in rows], where)


@st.composite
def interleaved(draw: st.DrawFn) -> IndexQuestion:
    """Orders that fill space: the bits of two axes by turns, or two axes out of the bits of one."""
    bits = draw(st.integers(1, 3))
    if draw(st.booleans()):
        at = sum(
            2 ** (2 * b + 1) * Mod(floor(i / 2**b), 2) + 2 ** (2 * b) * Mod(floor(j / 2**b), 2) for b in range(bits)
        )
        return IndexQuestion([at], {i: (0, 2**bits), j: (0, 2**bits)}, [4**bits])
    rows = [sum(2**b * Mod(floor(k / 2 ** (2 * b + odd)), 2) for b in range(bits)) for odd in (0, 1)]
    return IndexQuestion(rows, {k: (0, 4**bits)}, [2**bits, 2**bits])


@st.composite
def expressions(draw: st.DrawFn, axes: tuple[Any, ...], depth: int = 3) -> Any:
    """Sums, floors and remainders by numbers and by sizes, minima, absolute values and choices, one in another."""
    kind = draw(st.integers(0, 9)) if depth else 9
    inner = expressions(axes, depth - 1)
    divisor = draw(st.sampled_from([2, 3, 4, -2, n + 1, m + 1]))
    if kind < 2:
        return (floor(draw(inner) / divisor), Mod(draw(inner), divisor))[kind]
    if kind < 4:
        return (Min, Max)[kind - 2](draw(inner), draw(inner))
    if kind == 4:
        return Abs(draw(inner))
    if kind == 5:
        value, condition, other = draw(inner), draw(relations(axes, depth - 1)), draw(inner)
        try:
            return Piecewise((value, condition), (other, True))
        except RecursionError:  # sympy turns some conditions around without end
            reject()
    if kind == 6:
        return draw(inner) + draw(inner)
    if kind == 7:
        return draw(st.sampled_from([n, m])) * draw(st.sampled_from(axes)) + draw(inner)
    terms = (draw(st.sampled_from([0, 1, 1, -1, 2, 3])) * z for z in (*axes, draw(st.sampled_from([n, a, 1]))))
    return sympy.Add(*terms, draw(st.integers(-3, 3)))


@st.composite
def relations(draw: st.DrawFn, axes: tuple[Any, ...], depth: int = 2) -> Any:
    """Comparisons and what joins them."""
    kind = draw(st.integers(0, 6)) if depth > 0 else 6
    inner = relations(axes, depth - 1)
    if kind < 3:
        return (And, Or, Xor)[kind](draw(inner), draw(inner))
    if kind == 3:
        return Not(draw(inner))
    compare = draw(st.sampled_from([sympy.Le, sympy.Lt, Eq, sympy.Ne]))
    return compare(draw(expressions(axes, min(1, depth))), draw(expressions(axes, 0)))


@st.composite
def mixed(draw: st.DrawFn) -> IndexQuestion:
    """Anything that can be said."""
    axes = (i, j)[: draw(st.integers(1, 2))]
    domain = {z: (draw(st.sampled_from([0, 0, 1, -2])), draw(st.sampled_from([1, 3, 4, n, m + 1]))) for z in axes}
    rows = [sympy.sympify(draw(expressions(axes))) for _ in range(draw(st.integers(1, 2)))]
    shape = [draw(st.sampled_from([1, 4, 7, n, 2 * m])) for _ in rows]
    return IndexQuestion(rows, domain, shape, draw(st.lists(relations(axes), max_size=1)))


def questions() -> st.SearchStrategy[IndexQuestion]:
    families = (windows, flattened, unflattened, shuffled, skewed, interleaved, mixed, mixed)
    size = st.sampled_from([n, sympy.Symbol("n", integer=True, nonnegative=True)])
    return st.one_of(*(f() for f in families), *[st.builds(in_sympy, index_maps(), size)] * 3)
