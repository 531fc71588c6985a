"""Reads beyond a border as they were written, `x.at(i - 1, mode="clamp")`; definitions hold minima and remainders."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from tedsl.lang.at import brought_inside, mirrored_once
from tedsl.lang.dtypes import INT32
from tedsl.lang.expr import Apply, Const, Expr, Fn, Read
from tedsl.lang.tensor import Tensor
from tedsl.lang.traverse import conjuncts

__all__ = ["Said", "parts_as_said", "reads_beyond", "said_at"]

Said = tuple[Tensor, tuple[Expr, ...], str | tuple[str, ...]]


def said_at(node: Expr) -> Said | None:
    """The tensor, the indices and the mode of `at`, or one for each index, that make this very node; None of others."""
    read, modes = node, tuple(_PLACES)
    if isinstance(node, Apply) and node.fn is Fn.SELECT and isinstance(node.args[2], Const):
        read, modes = node.args[1], ("zero",)
    if not isinstance(read, Read) or not any(isinstance(i, Apply) for i in read.indices):
        return None
    for mode in modes:
        places = tuple(_PLACES.get(mode, _as_is)(index) for index in read.indices)
        is_new = mode == "zero" or any(p is not i for p, i in zip(places, read.indices, strict=True))
        if is_new and all(p.dtype.is_integer for p in places) and read.tensor.at(*places, mode=mode) is node:
            return read.tensor, places, mode
    if len(read.indices) > 1:
        said = _said_of_each(read, [] if node is read else conjuncts(node.children[0]))
        if len({*said[2]} - {"error"}) > 1 and read.tensor.at(*said[1], mode=said[2]) is node:
            return said
    places = tuple(map(_under_mirrors, read.indices, read.tensor.extents))
    if node is read and any(p is not i for p, i in zip(places, read.indices, strict=True)):
        return read.tensor, tuple(map(_reflected, places, read.tensor.extents)), "reflect"
    return None


def _said_of_each(read: Read, conditions: Sequence[Expr]) -> tuple[Tensor, tuple[Expr, ...], tuple[str, ...]]:
    """A read with the mode of each index: zero where a condition is that it is not below 0."""
    places: list[Expr] = []
    modes: list[str] = []
    for index, extent in zip(read.indices, read.tensor.extents, strict=True):
        for mode, under in _PLACES.items():
            place = under(index)
            if place is not index and place.dtype.is_integer and brought_inside(place, extent, mode) is index:
                break
        else:
            place, mode = index, "zero" if any(c is (index >= 0) for c in conditions) else "error"
        places.append(place)
        modes.append(mode)
    return read.tensor, tuple(places), tuple(modes)


def reads_beyond(nodes: Iterable[Expr]) -> dict[Read, Said]:
    """The reads among nodes, or in them, that say what lies beyond a border, as they were written."""
    found: dict[Read, Said] = {}
    for node in nodes:
        read = node.args[1] if isinstance(node, Apply) and node.fn is Fn.SELECT else node
        said = said_at(node) if isinstance(read, Read) else None
        if said is not None and isinstance(read, Read):
            found[read] = said
    return found


def parts_as_said(roots: Iterable[Expr]) -> dict[Expr, tuple[Expr, ...]]:
    """Every node that the text of the roots is made of, operands before users, and what its own text is made of."""
    parts: dict[Expr, tuple[Expr, ...]] = {}
    order: dict[Expr, None] = {}
    stack = list(roots)[::-1]
    while stack:
        node = stack[-1]
        if node in order:
            stack.pop()
            continue
        if node not in parts:
            said = said_at(node)
            parts[node] = node.children if said is None else said[1]
        if missing := [part for part in parts[node] if part not in order]:
            stack.extend(reversed(missing))
        else:
            order[node] = None
            stack.pop()
    return {node: parts[node] for node in order}


def _as_is(index: Expr) -> Expr:
    return index


def _under(*path: tuple[Fn, int]) -> Callable[[Expr], Expr]:
    """What stands under operations, each an operand of the one before; an index made in another way stays as it is."""

    def inside(index: Expr) -> Expr:
        node = index
        for fn, operand in path:
            if not isinstance(node, Apply) or node.fn is not fn:
                return index
            node = node.args[operand]
        return node

    return inside


def _reflected(index: Expr, extent: Expr) -> Expr:
    """What stands under the remainder that mirrors it at any distance: schedules keep that where it costs nothing."""
    place = _PLACES["reflect"](index)
    return place if place is not index and brought_inside(place, extent, "reflect") is index else index


def _under_mirrors(index: Expr, extent: Expr) -> Expr:
    """What stands under minima and maxima that mirror it at both ends."""
    place = _under((Fn.CLIP, 0), (Fn.MAXIMUM, 0), (Fn.MINIMUM, 0))(index)
    if place is index or not isinstance(extent, Const) or place.dtype is not INT32:
        return index
    return place if mirrored_once(place, int(extent.value) - 1) is index else index


_PLACES: dict[str, Callable[[Expr], Expr]] = {
    "clamp": _under((Fn.MINIMUM, 0), (Fn.MAXIMUM, 0)),
    "reflect": _under((Fn.SUB, 1), (Fn.ABS, 0), (Fn.SUB, 1), (Fn.MOD, 0)),
    "wrap": _under((Fn.MOD, 0)),
}
