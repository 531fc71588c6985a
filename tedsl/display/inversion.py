"""The page of an index inversion: the question, the gathers as formulas, both domains as a picture, the loops as text.

Apart from the other views, because sympy takes a while to import.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import sympy

from autodiff import IndexInversion
from autodiff.inversion.formulas import replaced
from autodiff.symbolic.answer import IndexGather
from autodiff.symbolic.bounds import Bounds, bounds_of
from autodiff.symbolic.sample import Sample, sample_of
from autodiff.symbolic.tidy import tidy
from tedsl.display.domains import MOST_CELLS, chosen_of, picture, written
from tedsl.display.markup import badge, details, escape, section
from tedsl.display.math import Big, Fenced, Line, Math, Name, Operator, Row, Table, Word
from tedsl.display.sympy_math import SUM, listed, math_of

__all__ = ["inversion_parts"]

MOST_LINES = 24


def inversion_parts(answer: IndexInversion) -> Iterator[str]:
    """What the page consists of."""
    yield section("<b>index inversion</b>", *_badges(answer))
    yield f'<pre class="te-wide">{_question(answer).mathml()}</pre>'
    if answer.gathers:
        lines = [_line(answer, g) for g in answer.gathers[:MOST_LINES]]
        yield f'<pre class="te-wide">{Table(lines).mathml()}</pre>'
    more = len(answer.gathers) - MOST_LINES
    if more > 0:
        yield f'<p class="te-mute">and {more} more gathers; print() shows them all</p>'
    yield from (f"<p>{badge('scatter', 'amber')} {escape(str(row))}</p>" for row in answer.opaque)
    sample = sample_of(answer, MOST_CELLS)
    if sample is not None:
        yield from _picture(answer, sample)
    yield details("the same as loops in Python", f"<pre>{escape(answer.code())}</pre>")


def _badges(answer: IndexInversion) -> Iterator[str]:
    n = len(answer.gathers)
    if n == 0:
        yield badge("zero: no point reaches an element")
    elif not answer.opaque:
        yield badge("a gather" if n == 1 else f"{n} gathers", "teal")
    else:
        yield badge("stays a scatter", "amber")


def _question(answer: IndexInversion) -> Math:
    """Where a point goes: s = f(z), and the ranges of both."""
    lines = []
    for s, row, n in zip(answer.elements, answer.index, answer.shape, strict=True):
        lines.append(Line(math_of(s), math_of(row), _range(s, (sympy.Integer(0), n))))
    ranges = [_range(z, r) for z, r in answer.domain.items()]
    wheres = [_condition(c, {}) for c in bounds_of(answer.where, {}, answer.domain) if not _is_range(c, answer.domain)]
    over = Row((Word("for "), listed([*ranges, *wheres])))
    if not lines:
        return Table([Line(Word("point"), over)])
    first, *rest = lines
    return Table(
        [Line(first.left, first.right, listed([_some(first.remark), over]) if ranges else first.remark), *rest]
    )


def _is_range(c: Any, domain: Mapping[Any, tuple[Any, Any]]) -> bool:
    """Whether bounds repeat the range of a symbol."""
    begin, extent = domain.get(c.quantity, (None, None)) if isinstance(c, Bounds) else (None, None)
    return begin is not None and (c.low, c.end) == (begin, begin + extent)


def _some(part: Math | None) -> Math:
    return Row(()) if part is None else part


def _range(s: Any, interval: tuple[Any, Any]) -> Math:
    begin, extent = interval
    if begin == 0:
        return Row((math_of(s), Operator("<"), math_of(extent, SUM)))
    return Row((math_of(begin, SUM), Operator("≤"), math_of(s), Operator("<"), math_of(begin + extent, SUM)))


def _line(answer: IndexInversion, g: IndexGather) -> Line:
    """dS[s] = sum over loops of g(z), z = ..., said of the elements of its part."""
    part: Mapping[Any, Any] = {s: e for s, e in g.place.element.items() if g.place.is_part}
    opaque = {row.dimension: row.index for row in answer.opaque}
    element = [opaque.get(j, part.get(s, s)) for j, s in enumerate(answer.elements)]
    left = Row((Name("dS"), Fenced(listed(map(math_of, element)), "[", "]"))) if element else Name("dS")
    value = Row((Name("g"), Fenced(listed(map(math_of, g.solution)))))
    conditions = [_condition(c, part) for c in g.bounds]
    if g.loops:
        right: Math = Big("∑", (*(_range(t, r) for t, r in g.loops.items()), *conditions), None, value)
    else:
        right = value
    remark = [Row((math_of(z), Operator("="), math_of(tidy(replaced(e, part)), SUM))) for z, e in g.solution.items()]
    tail = [] if g.loops or not conditions else [Row((Word("if "), listed(conditions)))]
    return Line(left, right, listed([*remark, *tail, *_where(g, part)]), "=" if _is_whole(answer, g) else "+=")


def _is_whole(answer: IndexInversion, g: IndexGather) -> bool:
    return len(answer.gathers) == 1 and not answer.opaque


def _where(g: IndexGather, part: Mapping[Any, Any]) -> Iterable[Math]:
    """For which elements."""
    used = {q for e in part.values() for q in e.free_symbols}
    told = [_range(q, r) for q, r in g.place.axes.items() if q in used]
    proviso = g.place.proviso
    told += [] if proviso == sympy.true else [math_of(proviso)]
    return [Row((Word("for "), listed(told)))] if told else []


def _condition(c: Any, part: Mapping[Any, Any]) -> Math:
    if not isinstance(c, Bounds):
        return math_of(tidy(replaced(c, part)))
    quantity = math_of(tidy(replaced(c.name, part)), SUM)
    if c.low is None:
        return Row((quantity, Operator("<"), math_of(c.end, SUM)))
    if c.end is None:
        return Row((quantity, Operator("≥"), math_of(c.low, SUM)))
    return Row((math_of(c.low, SUM), Operator("≤"), quantity, Operator("<"), math_of(c.end, SUM)))


def _picture(answer: IndexInversion, sample: Sample) -> Iterator[str]:
    title = "each point in the color of the element that it reaches"
    drawn = picture(sample, list(answer.domain), answer.elements, title)
    if not drawn:
        return
    sizes = ", ".join(f"{written(s)} = {v}" for s, v in sample.sizes.items())
    told = [f"at {sizes}"] if sizes else []
    told += ["the beginning of the domain"] if sample.is_cut else []
    told += ["the data is made up"] if answer.data else []
    chosen = chosen_of(sample)
    element = ", ".join(f"{written(s)} = {i}" for s, i in zip(answer.elements, chosen, strict=True)) or "the element"
    points = len(sample.points[chosen])
    title += f"; outlined: {element}, which {points} point{'s' * (points > 1)} reach{'es' * (points == 1)}"
    more = f" ({'; '.join(told)})" if told else ""
    yield f'<div class="te-wide">{drawn}</div><p class="te-mute">{title}{escape(more)}</p>'
