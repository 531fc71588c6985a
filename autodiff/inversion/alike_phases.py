"""Gathers for residue classes that differ by numbers which go up from class to class alike: one over the classes.

The channels 0, 2 and 4 of every six, as they are two offsets for each tap of a filter, are the taps 0, 1 and 2. Apart
they would be as many stages of the same code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from autodiff.integers.conditions import Condition, NonNegative, Zero, forms, mapped
from autodiff.integers.linear import Linear, Symbol, floordiv, linear, mod, symbol
from autodiff.integers.polyhedra import KnownInequalities
from autodiff.inversion.domains import Gather, GatheredAxis, TargetIndex

__all__ = ["joined_phases"]


def joined_phases(gathers: Sequence[Gather], dims: int) -> list[Gather]:
    """The gathers of a target of so many dimensions, those of alike phases one.

    Only those that are sums, which are stages of their own, and not along the last dimension: there each class is read
    side by side, and a place in two digits would have to be looked up.

    rewrites   P0[s // 6] where s % 6 == 0, P1[s // 6] where s % 6 == 2   ->   P[s // 6, (s % 6) // 2] where s % 2 == 0
    """
    found = list(gathers)
    position = 0
    while position < max((len(g.member) for g in found), default=0):
        joined = _joined(found, position, dims)
        position = 0 if len(joined) < len(found) else position + 1
        found = joined
    return found


def _joined(gathers: Sequence[Gather], position: int, dims: int) -> list[Gather]:
    """Those that are alike but for the residue that one of their conditions asks for, as one."""
    groups: dict[object, list[Gather]] = {}
    for k, g in enumerate(gathers):
        groups.setdefault(_shape_of(g, position) if _may_join(g, position, dims) else k, []).append(g)
    return [made for group in groups.values() for made in _together(group, position, dims)]


def _may_join(g: Gather, position: int, dims: int) -> bool:
    if not g.loops or position >= len(g.member) or not isinstance(g.member[position], Zero):
        return False
    symbols = [s for e in forms(g.member[position]) for s in e.leaves()]
    return all(isinstance(s, TargetIndex) and s.position < dims - 1 for s in symbols)


def _shape_of(g: Gather, position: int) -> object:
    """What must be the same: all but the numbers that are added to its forms, and whole the other conditions."""
    others = g.member[:position] + g.member[position + 1 :]
    return g.axes, g.index, g.loops, others, _mapped(g, lambda e: e - e.constant)


def _mapped(g: Gather, rule: Callable[[Linear], Linear]) -> tuple[object, ...]:
    """The forms of a gather that may differ from class to class."""
    return (
        tuple((s, rule(e)) for s, e in g.place), tuple(mapped(c, rule) for c in g.member), tuple(map(rule, g.solution)),
        tuple(mapped(c, rule) for c in g.guards),
    )  # fmt: skip


def _constants(g: Gather) -> list[int]:
    asked = [e for c in (*g.member, *g.guards) for e in forms(c)]
    return [e.constant for e in (*(e for _, e in g.place), *g.solution, *asked)]


def _together(group: list[Gather], position: int, dims: int) -> list[Gather]:
    if len(group) < 2:
        return group
    ordered = sorted(group, key=lambda g: -_asked(g, position).constant)
    rows = list(map(_constants, ordered))
    steps = [b - a for a, b in zip(rows[0], rows[1], strict=True)]
    even = all(row == [a + k * d for a, d in zip(rows[0], steps, strict=True)] for k, row in enumerate(rows))
    stride = _asked(ordered[0], position).constant - _asked(ordered[1], position).constant
    return [_over_phases(ordered[0], position, steps, stride, len(group), dims)] if even and stride else group


def _asked(g: Gather, position: int) -> Linear:
    (form,) = forms(g.member[position])
    return form


def _over_phases(first: Gather, position: int, steps: list[int], stride: int, count: int, dims: int) -> Gather:
    """The gather of the first class with an axis for the classes, each of which adds `steps` to the forms."""
    phase = GatheredAxis(max([dims - 1, *(a.position for a, _ in first.axes)]) + 1)
    left = iter(steps)

    def moved(e: Linear) -> Linear:
        return e + symbol(phase) * next(left)

    def all_moved(conditions: Iterable[Condition]) -> tuple[Condition, ...]:
        return tuple(mapped(c, moved) for c in conditions)

    # In the order in which `_constants` counts.
    place, solution = tuple((s, moved(e)) for s, e in first.place), tuple(map(moved, first.solution))
    all_moved(first.member)
    guards = all_moved(first.guards)
    asked = _asked(first, position)
    others = first.member[:position] + first.member[position + 1 :]
    return replace(
        first,
        axes=((phase, linear(count)), *first.axes),
        index=(floordiv(asked, stride), *first.index),
        place=place,
        member=(*others, *_within(asked, stride, count)),
        solution=solution,
        guards=guards,
    )


def _within(asked: Linear, stride: int, count: int) -> list[Condition]:
    """That a form is one of 0, stride, 2 stride, ..., so many of them."""
    nothing: dict[Symbol, tuple[Linear | None, Linear | None]] = {}
    facts = KnownInequalities(nothing)
    found: list[Condition] = [] if stride == 1 else [Zero(mod(asked, stride))]
    sides = asked + (stride - 1), (count * stride - 1) - asked  # of multiples of the stride
    return [*found, *(NonNegative(e) for e in sides if not facts.proves(e))]
