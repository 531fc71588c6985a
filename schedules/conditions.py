"""Conditions on loops, simplified: what the ranges of the loops decide, and one form for what remains.

A guard that always holds still costs a comparison in every iteration, and Halide a solver's time at every read. What
remains is written `form <= number`, with the same form for the same plane however it was written, so that a condition
and the index that it guards are seen to depend on the same combination of loops.
"""

from __future__ import annotations

from schedules.bands import both, either
from tedsl.analysis.affine import affine_of
from tedsl.analysis.facts import Facts, naturals
from tedsl.lang import functions as fn
from tedsl.lang.answers import kept_with_nodes
from tedsl.lang.at import mirrored_once
from tedsl.lang.dtypes import INT32
from tedsl.lang.expr import FALSE, TRUE, Apply, Axis, Const, Expr, Fn, Read
from tedsl.lang.extents import number
from tedsl.lang.intervals import Known, Range, cut, may_wrap, verdict
from tedsl.lang.operators import MIRRORED, NEGATED
from tedsl.lang.polynomials import Affine, interval
from tedsl.lang.traverse import conjuncts, free_axes, rebuild_all, substitute, topological

__all__ = ["at_first", "extremes", "tidied", "tidy"]

LIMIT = 1 << 31  # beyond it integers wrap, and nothing is decided


def extremes(form: Affine) -> tuple[int, int] | None:
    """Least and greatest value of a form linear in axes of known ranges."""
    if not form.is_linear:
        return None
    if any(not isinstance(a, Axis) or number(a.begin) is None or (number(a.extent) or 0) < 1 for a in form.atoms):
        return None
    return interval(form, {})


def _extremes_of_quotients(form: Affine) -> tuple[int, int, int] | None:
    """Range of a form with quotients, times a number above 0, and that number: x // n is (x - r) / n, 0 <= r < n.

    None where something in it may wrap.
    """
    for (atom, *others), factor in form.terms.items():
        if isinstance(atom, Apply) and not others:
            by = atom.args[-1]
            inner = affine_of(atom.args[0]) if atom.fn in (Fn.FLOORDIV, Fn.MOD) else None
            if inner is None or not isinstance(by, Const) or by.value < 1 or not _is_small(inner):
                return None
            rest, last = form.without(atom), int(by.value) - 1
            if atom.fn is Fn.MOD:
                known, times, slack = _extremes_of_quotients(rest), 1, factor * last
            else:
                joined = (rest * (last + 1)).plus(inner, factor)
                known, times, slack = _extremes_of_quotients(joined), last + 1, -factor * last
            if known is None:
                return None
            low, high, scale = known
            low, high, scale = low + min(0, slack * scale), high + max(0, slack * scale), scale * times
            return -(-low // scale) * scale, high // scale * scale, scale  # a form of integers is one
    found = extremes(form)
    return None if found is None else (*found, 1)


def _is_small(form: Affine) -> bool:
    """Whether nothing in it wraps, by the ranges of its loops."""
    found = _extremes_of_quotients(form)
    return found is not None and -LIMIT * found[2] <= found[0] <= found[1] < LIMIT * found[2]


def tidied(roots: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """The expressions with comparisons of loops decided or in normal form."""
    return rebuild_all(roots, tidy)


@kept_with_nodes
def tidy(node: Expr) -> Expr:
    """A node over tidied operands, itself tidied."""
    if isinstance(node, Axis) and not node.is_reduce and number(node.extent) == 1:
        return node.begin
    if not isinstance(node, Apply):
        return node
    if node.fn in MIRRORED and node.args[0].dtype is INT32:
        return _compared(node)
    if node.fn is Fn.NOT:
        return _denied(node)
    if node.fn is Fn.AND:
        a, b = node.args
        if a is FALSE or b is FALSE:
            return FALSE
        return b if a is TRUE else a if b is TRUE else both(node)
    if node.fn is Fn.OR:
        a, b = node.args
        if a is TRUE or b is TRUE:
            return TRUE
        return b if a is FALSE else a if b is FALSE else either(node)
    if node.fn is Fn.SELECT and isinstance(node.args[0], Const):
        return node.args[1] if node.args[0].value else node.args[2]
    if node.fn is Fn.ADD and (node.dtype is INT32 or node.dtype.is_float):
        a, b = node.args
        if isinstance(b, Apply) and b.fn is Fn.NEG and b.dtype == node.dtype:
            return tidy(fn.apply(Fn.SUB, a, b.args[0]))
    return _pinned(node) if node.fn is Fn.SELECT else _mirrored_near(node)


def _denied(node: Apply) -> Expr:
    """What is not so, without saying it that way; a comparison of floats may fail together with its opposite."""
    (inner,) = node.args
    if isinstance(inner, Const):
        return FALSE if inner.value else TRUE
    if not isinstance(inner, Apply):
        return node
    if inner.fn is Fn.NOT:
        return inner.args[0]
    if inner.fn in NEGATED and inner.args[0].dtype is INT32:
        made: Expr = fn.apply(NEGATED[inner.fn], *inner.args)
        return tidy(made)
    return node


def _mirrored_near(node: Expr) -> Expr:
    """A mirrored index without the remainder that makes it right at any distance, where the distance is small.

    Halide takes neither remainder nor absolute value apart into loops of what lies inside and what does not.
    """
    if not isinstance(node, Apply) or node.fn is not Fn.SUB or node.dtype is not INT32:
        return node
    last, mirrored = node.args
    if not isinstance(last, Const) or last.value < 1:
        return node
    for index in topological(mirrored):
        form = affine_of(index) if index.dtype is INT32 else None
        if form is None or node is not last - fn.abs(last - index % (2 * int(last.value))):
            continue
        ends = _extremes_of_quotients(form)
        if ends is not None and ends[0] >= -last.value * ends[2] and ends[1] <= 2 * last.value * ends[2]:
            made: Expr = mirrored_once(index, int(last.value))
            return made
    return node


def at_first(node: Expr) -> Expr:
    """A node as a schedule begins with it: derivatives are all taken, rows are read so that strips can be cut."""
    while isinstance(node, Apply) and node.fn is Fn.STOP:
        (node,) = node.args
    return _mirrored_rows(node)


def _mirrored_rows(node: Expr) -> Expr:
    """A read whose mirrored indices are minima and maxima, but along the rows themselves, where remainders are cut.

    Of a remainder Halide knows no bounds: computed in strips, what is read by it would be computed whole for each.
    """
    if not isinstance(node, Read) or not node.indices:
        return node
    *rows, last = node.indices
    return Read(node.tensor, (*rebuild_all(tuple(rows), _mirrored_near), last))


def _pinned(choice: Apply) -> Expr:
    """A choice whose condition leaves a loop one value, with that value in what is chosen then.

    What is read at a place of its own is then read once, where a vector would be put together lane by lane.
    """
    left: dict[Expr, Range] = {}
    condition, chosen, rest = choice.args
    for part in conjuncts(condition):
        axis, bound = part.args if isinstance(part, Apply) and part.fn in MIRRORED else (part, None)
        if isinstance(part, Apply) and isinstance(axis, Axis) and isinstance(bound, Const):
            left[axis] = cut(part.fn, left.get(axis, (-LIMIT, LIMIT)), int(bound.value))
    fixed: dict[Expr, Expr] = {a: Const(low, INT32) for a, (low, high) in left.items() if low == high}
    if not fixed:
        return choice
    made: Expr = choice.with_children((condition, substitute(chosen, fixed), rest))
    return made


def _compared(node: Apply) -> Expr:
    left, right = (affine_of(a) for a in node.args)
    if left is None or right is None:
        return node
    form, op = left - right, node.fn
    found, sides = extremes(form), (extremes(left), extremes(right))
    if found is None:
        ends = _extremes_of_quotients(form)
        decided = None if ends is None else verdict(op, ends[:2])
        if decided is not None and all(_is_small(s) for s in (left, right)):
            return TRUE if decided else FALSE
        return _compared_with_sizes(node, form)
    if any(s is None or not -LIMIT <= s[0] <= s[1] < LIMIT for s in (found, *sides)):
        return node
    decided = verdict(op, found)
    if decided is not None:
        return TRUE if decided else FALSE
    return _normal(op, Affine(form.terms), Affine({}, form.constant))


def _normal(op: Fn, plane: Affine, rest: Affine) -> Expr:
    """`plane + rest op 0` with the plane alone on the left, its oldest axis positive."""
    first = min(plane.axes, key=lambda a: a.serial)
    if plane.terms[(first,)] < 0:
        plane, rest, op = -plane, -rest, MIRRORED[op]
    made: Expr = fn.apply(op, plane.to_expr(), (-rest).to_expr())
    return made


def _compared_with_sizes(node: Apply, form: Affine) -> Expr:
    """The same where ranges of loops, or what they are compared with, are not numbers."""
    plane, rest = form.split(lambda atom: bool(free_axes(atom)))
    if plane.is_constant or not all(len(m) == 1 and isinstance(m[0], Axis) for m in plane.terms):
        return node
    known: Known = {}
    if any(may_wrap(a, known) for a in node.args):
        return node
    facts = Facts(form.axes, known)
    for op, truth in ((node.fn, TRUE), (NEGATED[node.fn], FALSE)):
        if any(all(map(facts.proves, rows)) for rows in naturals(op, form)):
            return truth
    made = _normal(node.fn, plane, rest)
    return node if any(may_wrap(a, known) for a in made.children) else made
