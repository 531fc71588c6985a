"""Indices that go round, or back: remainders by a length, or mirrored places, which are one straight run for most of
their loops.

What such an index is there a compiler cannot see, as it does not know how often the remainder goes round.
"""

from __future__ import annotations

from collections.abc import Mapping

from tedsl.analysis.affine import affine_of, form_of
from tedsl.lang import functions as fn
from tedsl.lang.dataclass import dataclass
from tedsl.lang.expr import Apply, Axis, Expr, Fn, Read
from tedsl.lang.extents import number, same_extent
from tedsl.lang.intervals import range_of, with_sizes
from tedsl.lang.polynomials import Affine, atom_form
from tedsl.lang.traverse import free_axes

__all__ = [
    "Mirror", "along_pixels", "goes_back", "goes_round", "mirrored_part", "near_place", "pixel_of", "straight_part",
    "unfolded",
]  # fmt: skip

SIZE = 1024  # taken for a length that is not known
MOST = 3, 5  # of the values of an index, that they are worth loops of their own


def straight_part(index: Expr) -> Expr | None:
    """`g - c * n` for an index `g % n`, with the c of the middle of its range; None where it goes round often.

    They are equal where the straight part lies within [0, n), of which nothing is proven: sizes that are not known are
    taken for a large one.
    """
    if not isinstance(index, Apply) or index.fn is not Fn.MOD:
        return None
    length = index.args[1]
    place = _unwound(index.args[0], length)
    known = with_sizes(index, (SIZE, SIZE))
    low, high = range_of(place, known)
    least, n = range_of(length, known)
    if least < n or n < 2:
        return None
    turns = (low + high) // 2 // n
    straight = min(high + 1, (turns + 1) * n) - max(low, turns * n)
    if straight * MOST[1] < (high - low + 1) * MOST[0]:
        return None
    return place - length * turns if turns else place


def mirrored_part(index: Expr, extent: Expr) -> Expr | None:
    """The place g of an index made of `g % p`, p the period of an axis of n elements that is not known, mirrored at its
    ends: `(n - 1) - abs((n - 1) - g % p)`, or `minimum(g % p, 2 n - 1 - g % p)` where the ends are there twice.

    They are equal where g lies within [0, n).
    """
    if not isinstance(index, Apply):
        return None
    mirror = _MIRRORS.get(index.fn)
    turn = None if mirror is None else mirror(index, extent)
    return None if turn is None else straight_part(turn)


def near_place(index: Expr, extent: Expr) -> tuple[Expr, int] | None:
    """(b, r) of an index mirrored at the ends of [0, extent), b in there: it is nowhere farther than r from b.

    So it lies between b - r and b + r, each held at the ends: the mirror image of what is d beyond an end is at most d
    from that end on the inside, and b is not beyond it.
    """
    place = _mirrored(index, extent)
    form = None if place is None else affine_of(place)
    if form is None:
        return None
    moving, rest = form.split(lambda atom: any(not a.is_reduce for a in free_axes(atom)))
    base, (low, high) = moving.to_expr(), range_of(rest.to_expr())
    reach = max(-low, high)
    return (base, reach) if reach <= SIZE and _lies_in(base, extent) else None


def _mirrored(index: Expr, extent: Expr) -> Expr | None:
    """The place of which an index is the mirror image where it is not in [0, extent)."""
    if not isinstance(index, Apply):
        return None
    if (mirror := unfolded(index, extent)) is not None:
        last = (number(extent) or 0) - 1
        ends = (mirror.before, 0, (0, -1)), (mirror.behind, last, (2 * last, 2 * last + 1))
        return mirror.place if all(_ends_there(mirror.place, *end) for end in ends) else None
    turn = None if (found := _MIRRORS.get(index.fn)) is None else found(index, extent)
    return turn.children[0] if isinstance(turn, Apply) else None


def _ends_there(place: Expr, beyond: Expr, border: int, sums: tuple[int, int]) -> bool:
    """Whether what a place is beyond a border is held there, or its mirror image at or behind the last element."""
    if (held := number(beyond)) is not None:
        return held == border
    both = affine_of(place + beyond)
    return both is not None and both.is_constant and both.constant in sums


def _lies_in(place: Expr, extent: Expr) -> bool:
    """Whether a place is in [0, extent), as one sees by its range or as it is the loop over just that."""
    low, high = range_of(place)
    if low >= 0 and high < (number(extent) or 0):
        return True
    if not isinstance(place, Axis) or place.extent is None:
        return False
    return number(place.begin) == 0 and same_extent(place.extent, extent)


def _mirrored_once(index: Apply, extent: Expr) -> Expr | None:
    """The remainder that is mirrored at elements, which are there once."""
    last, distance = index.args
    if not isinstance(distance, Apply) or distance.fn is not Fn.ABS or not same_extent(last, extent - 1):
        return None
    inner = distance.args[0]
    if not isinstance(inner, Apply) or inner.fn is not Fn.SUB or not same_extent(inner.args[0], last):
        return None
    return inner.args[1] if _goes_round_every(inner.args[1], 2 * last) else None


def _mirrored_twice(index: Apply, extent: Expr) -> Expr | None:
    """The remainder that is mirrored between elements, which are there twice."""
    turn, back = index.args
    if not isinstance(back, Apply) or back.fn is not Fn.SUB or back.args[1] is not turn:
        return None
    is_mirror = same_extent(back.args[0], 2 * extent - 1)
    return turn if is_mirror and _goes_round_every(turn, 2 * extent) else None


def _goes_round_every(turn: Expr, period: Expr) -> bool:
    """Whether this is a remainder by a period that may be 0."""
    return isinstance(turn, Apply) and turn.fn is Fn.MOD and same_extent(turn.args[1], fn.maximum(period, 1))


_MIRRORS = {Fn.SUB: _mirrored_once, Fn.MINIMUM: _mirrored_twice}


def _unwound(place: Expr, length: Expr) -> Expr:
    """What leaves the same remainder, without remainders by the same length in its sum."""
    form = _form(place)
    for monomial, factor in form.terms.items():
        inner = monomial[0]
        if len(monomial) == 1 and isinstance(inner, Apply) and inner.fn is Fn.MOD and inner.args[1] is length:
            return _unwound(form.without(inner).plus(_form(inner.args[0]), factor).to_expr(), length)
    return place


def _form(expr: Expr) -> Affine:
    """An integer expression as a form; what is no sum or product stands in it as an atom."""
    form = form_of(expr, lambda node: True, lambda node: True)
    assert form is not None
    return form


def goes_round(read: Read) -> bool:
    """Whether a read goes round along the contiguous axis."""
    return bool(read.indices) and straight_part(read.indices[-1]) is not None


def goes_back(read: Read) -> bool:
    """Whether a read is mirrored at the ends of the contiguous axis."""
    if not read.indices:
        return False
    index, extent = read.indices[-1], read.tensor.extents[-1]
    return unfolded(index, extent) is not None or along_pixels(index, extent) is not None


def along_pixels(index: Expr, extent: Expr) -> Expr | None:
    """The place in a row of numbers of an index that is of a pixel, held inside at the ends, and of its channel.

    `minimum(maximum(f // 3 + k, 0), n - 1) * 3 + f % 3` is `f + 3 k` where that is in [0, 3 n).
    """
    number_of = pixel_of(index, extent)
    pixel = None if number_of is None else _pixel_inside(number_of.pixel, number_of.pixels)
    if number_of is None or pixel is None:
        return None
    lane, step, form = number_of.lane, number_of.step, affine_of(pixel)
    if form is None or form.terms.get((lane // step,), 0) != 1:
        return None
    rest = form.without(lane // step)
    return (atom_form(lane) + rest * step).to_expr() if rest.is_linear else None


@dataclass(frozen=True)
class NumberOfPixel:
    """An index `pixel * step + lane % step` of a row of so many pixels."""

    pixel: Expr
    lane: Axis
    step: int
    pixels: Expr


def pixel_of(index: Expr, extent: Expr) -> NumberOfPixel | None:
    """What an index is of a row of pixels, of which each is a few numbers."""
    if not isinstance(index, Apply) or index.fn is not Fn.ADD:
        return None
    whole, channel = index.args
    if not (isinstance(whole, Apply) and whole.fn is Fn.MUL and isinstance(channel, Apply) and channel.fn is Fn.MOD):
        return None
    lane, step = channel.args[0], number(channel.args[1])
    if not isinstance(lane, Axis) or step is None or step < 2 or number(whole.args[1]) != step:
        return None
    pixels, rest = _form(extent).divided(step)
    is_whole = rest.is_constant and rest.constant == 0
    return NumberOfPixel(whole.args[0], lane, step, pixels.to_expr()) if is_whole else None


def _pixel_inside(index: Expr, count: Expr) -> Expr | None:
    """What an index is that is brought back into [0, count), where it is there."""
    if not isinstance(index, Apply):
        return None
    mirror = unfolded(index, count)
    if mirror is not None:
        return mirror.place
    first, last = index.args[0], count - 1
    if index.fn is Fn.MOD and any(same_extent(index.args[1], n) for n in (count, fn.maximum(count, 1))):
        return first if number(count) is not None else straight_part(index)
    if index.fn is Fn.CLIP and number(index.args[1]) == 0 and same_extent(index.args[2], last):
        return first
    if index.fn is Fn.MINIMUM and isinstance(first, Apply) and same_extent(index.args[1], last):
        return first.args[0] if first.fn is Fn.MAXIMUM and number(first.args[1]) == 0 else None
    return mirrored_part(index, count)


@dataclass(frozen=True)
class Mirror:
    """An index that is `place` within a length, `before` where that is below 0 and `behind` where it is too large."""

    place: Expr
    before: Expr
    behind: Expr


def unfolded(index: Expr, extent: Expr) -> Mirror | None:
    """What an index is that is made of a place by minima and maxima, mirrored where the place is not in [0, extent).

    Of two places, as either is the other's mirror image, the one that is inside for longer.
    """
    last = (number(extent) or 0) - 1
    if last < 1 or not isinstance(index, Apply) or index.fn not in _FOLDS:
        return None
    forms = {leaf: affine_of(leaf) for leaf in _leaves(index)}
    found: list[tuple[int, Mirror]] = []
    for place, form in forms.items():
        low, high = range_of(place)
        if form is None or form.is_constant or low < -last or high > 2 * last:
            continue
        known = {leaf: None if own is None else _along(form, own) for leaf, own in forms.items()}
        inside, before, behind = (
            _folded(index, known, ends) for ends in ((0, last), (min(low, -1), -1), (last + 1, max(high, last + 1)))
        )
        if inside is None or before is None or behind is None or known[inside] != (1, 0):
            continue
        if any(line is not None and line[0] < 0 for line in (known[before], known[behind])):
            found.append((min(high, last) - max(low, 0), Mirror(place, before, behind)))
    return max(found, key=lambda p: p[0])[1] if found else None


_Line = tuple[int, int]  # s and c of s p + c, p the place, s from -1 to 1
_FOLDS = frozenset({Fn.MINIMUM, Fn.MAXIMUM, Fn.CLIP})


def _leaves(index: Expr) -> list[Expr]:
    """What the minima and maxima of an index are of."""
    found: dict[Expr, None] = {}
    pending = [index]
    for node in pending:
        if isinstance(node, Apply) and node.fn in _FOLDS:
            pending += node.args
        else:
            found[node] = None
    return list(found)


def _along(place: Affine, own: Affine) -> _Line | None:
    if own.is_constant:
        return 0, own.constant
    return next(((s, rest.constant) for s in (1, -1) if (rest := own - place * s).is_constant), None)


def _folded(node: Expr, known: Mapping[Expr, _Line | None], ends: tuple[int, int]) -> Expr | None:
    """The leaf that an index is for all places from one end to the other; None where it is not one."""
    if node in known:
        return None if known[node] is None else node
    assert isinstance(node, Apply)
    first, *others = (_folded(a, known, ends) for a in node.args)
    for kind, other in zip((Fn.MAXIMUM, Fn.MINIMUM) if node.fn is Fn.CLIP else (node.fn,), others, strict=True):
        if first is None or other is None:
            return None
        a, b = known[first], known[other]
        assert a is not None
        assert b is not None
        apart = [(a[0] - b[0]) * p + a[1] - b[1] for p in ends]
        if min(apart) < 0 < max(apart):
            return None
        first = first if (max(apart) > 0) == (kind is Fn.MAXIMUM) else other
    return first
