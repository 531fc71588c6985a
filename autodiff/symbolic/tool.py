"""`autodiff.invert`: which points of a domain an index map takes to an element, asked and answered in sympy's words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import sympy

from autodiff.symbolic.answer import IndexInversion
from autodiff.symbolic.description import AskedIndex, described
from autodiff.symbolic.reading import EXPECTED, Words
from autodiff.symbolic.writing import Writer
from autodiff.turning.answers import Answer, plain_answer
from autodiff.turning.sent import Sent, extent_of
from tedsl.lang.dtypes import FLOAT32
from tedsl.lang.expr import Const, Var
from tedsl.lang.traverse import topological

__all__ = ["inversion_of", "invert"]


def invert(
    index: Sequence[Any], domain: Mapping[Any, tuple[Any, Any]], shape: Sequence[Any], where: Any = ()
) -> IndexInversion:
    """The points z of `domain` with index(z) = s, for every element s of `shape`: as loops, with nothing to search.

    `index` has a sympy expression of integers per dimension, `domain` {symbol: (begin, extent)} or {symbol: range},
    `where` conditions that a point must satisfy as well. Other symbols are parameters; those in an extent are sizes,
    hence at least 0.

    >>> y, r = sympy.symbols("y r", integer=True)
    >>> answer = invert([2 * y + r], {y: (0, 5), r: (0, 4)}, [12])
    >>> print(answer)
    sum t_0 in [0, 2)
    y = -t_0 + floor(s_0/2), r = 2*t_0 + Mod(s_0, 2)
    if 0 <= y < 5
    >>> print(answer.check())
    20 points found once each and no other
    """
    asked = _asked(index, domain, shape, where)
    extents = [*asked.shape, *(n for _, n in asked.domain.values())]
    words = Words(asked.domain, {s for n in extents for s in n.free_symbols})
    ranges = {z: (words.integer(b), words.integer(n)) for z, (b, n) in asked.domain.items()}
    dims = tuple(map(words.integer, asked.shape))
    for z, (begin, extent) in ranges.items():
        words.add_axis(z, begin, extent)
    rows = tuple(map(words.integer, asked.index))
    conditions = tuple(map(words.condition, asked.where))
    read = Sent(tuple(words.axes.values()), rows, Const(0.0, FLOAT32), conditions)
    answer = plain_answer(read, dims, compact=True)
    if answer.found.opaque:
        answer = plain_answer(read, dims, compact=False, split=False)
    return described(asked, answer, Writer(words.names, words.unread), words.negative)


def inversion_of(answer: Answer) -> IndexInversion:
    """The inversion of one read of a program: axes and extents as symbols of their names."""
    read = answer.read
    ranges = [e for a in read.axes for e in (a.begin, extent_of(a))]
    nodes = topological([*read.index, *answer.shape, *read.conditions, *ranges])
    names: dict[Any, Any] = {}
    sizes = dict.fromkeys(s for s in nodes if isinstance(s, Var))
    for axis in read.axes:
        names[axis] = _fresh(axis.name, names.values(), is_size=False)
    for size in sizes:
        names[size] = _fresh(size.name, names.values(), is_size=True)
    writer = Writer(names, {})
    asked = AskedIndex(
        tuple(map(writer.expression, read.index)),
        {names[a]: (writer.expression(a.begin), writer.expression(extent_of(a))) for a in read.axes},
        tuple(map(writer.expression, answer.shape)),
        tuple(map(writer.expression, read.conditions)),
    )
    return described(asked, answer, writer, {})


def _fresh(name: str, taken: Iterable[Any], is_size: bool) -> Any:
    """A symbol for an axis or a size, numbered where several have one name."""
    names = {s.name for s in taken}
    number = next(k for k in range(len(names) + 1) if (f"{name}_{k}" if k else name) not in names)
    sign = {"nonnegative": True} if is_size else {}
    return sympy.Symbol(f"{name}_{number}" if number else name, integer=True, **sign)


def _asked(index: Any, domain: Any, shape: Any, where: Any) -> AskedIndex:
    """The question with its kinds and lengths checked."""
    if not isinstance(domain, Mapping):
        raise TypeError(f"invert: domain must be {{symbol: (begin, extent)}}, found {domain!r:.80}")
    ranges = {_domain_symbol(z): _range(z, pair) for z, pair in domain.items()}
    rows = tuple(_expression(e, "index") for e in _several(index, "index"))
    extents = tuple(_expression(n, "shape") for n in _several(shape, "shape"))
    if len(rows) != len(extents):
        raise ValueError(
            f"invert: the index has {len(rows)} expressions and the shape {len(extents)} extents; give one of each "
            "per dimension"
        )
    _no_negative(extents, "the shape")
    is_one = isinstance(where, (bool, str, sympy.Basic)) and not isinstance(where, sympy.Tuple)
    conditions = [where] if is_one else where
    return AskedIndex(rows, ranges, extents, tuple(_condition(c) for c in _several(conditions, "where")))


def _several(given: Any, what: str) -> list[Any]:
    if isinstance(given, sympy.MatrixBase):
        return list(given)
    if isinstance(given, (str, sympy.Expr)) or not isinstance(given, Iterable):
        raise TypeError(
            f"invert: {what} must be a list, one entry per dimension, found {given!r:.80}; write [{given!s:.80}]"
        )
    return list(given)


def _domain_symbol(z: Any) -> Any:
    if not isinstance(z, sympy.Symbol):
        raise TypeError(f"invert: the domain is by sympy symbols, found {z!r:.80} of type {type(z).__name__}")
    if not z.is_integer:
        raise TypeError(f"invert: {z} is not known to be an integer; make it symbols({z.name!r}, integer=True)")
    return z


def _range(z: Any, pair: Any) -> tuple[Any, Any]:
    if isinstance(pair, (range, sympy.Range)):
        return _steps(z, pair)
    if isinstance(pair, (str, Mapping)) or not isinstance(pair, Iterable) or len(list(pair)) != 2:
        raise ValueError(
            f"invert: the range of {z} must be (begin, extent), found {pair!r:.80}; write {z}: (0, {pair!s:.60})"
        )
    begin, extent = (_expression(e, f"the range of {z}") for e in pair)
    _no_negative([extent], f"the range of {z}")
    return begin, extent


def _steps(z: Any, steps: range | sympy.Range) -> tuple[Any, Any]:
    """A Python or sympy range as (begin, extent)."""
    if steps.step != 1:
        raise ValueError(
            f"invert: the range of {z} has the step {steps.step}, expected 1; let {z} count, and multiply in the index"
        )
    extent = len(steps) if isinstance(steps, range) else steps.stop - steps.start
    return sympy.sympify(steps.start), sympy.sympify(extent)


def _no_negative(extents: Iterable[Any], what: str) -> None:
    for n in extents:
        if n.is_negative:
            raise ValueError(f"invert: {what} has the extent {n}, which is negative; expected at least 0")


def _expression(e: Any, what: str) -> Any:
    """A sympy expression; numbers of Python and NumPy are taken."""
    if isinstance(e, (str, bool, float)):
        raise TypeError(f"invert: {what} has {e!r} of type {type(e).__name__}; expected {EXPECTED}")
    try:
        found = sympy.sympify(e, strict=True)
    except sympy.SympifyError:
        found = None
    if not isinstance(found, sympy.Expr):
        raise TypeError(f"invert: {what} has {e!r:.80} of type {type(e).__name__}; expected {EXPECTED}")
    return found


def _condition(c: Any) -> Any:
    if isinstance(c, (bool, sympy.logic.boolalg.Boolean)) and not isinstance(c, sympy.Symbol):
        return sympy.sympify(c).replace(sympy.Contains, _membership)
    raise TypeError(
        f"invert: where has {c!r:.80} of type {type(c).__name__}; expected relations such as x >= 1, And, Or, Not"
    )


def _membership(element: Any, where: Any) -> Any:
    """That an element is in a set, as relations."""
    try:
        return where.as_relational(element)
    except (AttributeError, NotImplementedError):
        raise TypeError(
            f"invert: where has {element} in {where}; expected relations such as x >= 1, And, Or, Not"
        ) from None
