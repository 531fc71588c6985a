"""What the reads of one pointwise body send back, computed together.

Every read of a body has a partial derivative of its own, and they have much in common: the slopes of what stands above
several reads, and in a chain of maxima all that was compared on the way. What is worth a tensor becomes one, as a loop
nest that has several results; a long chain becomes several nests, each of which goes on from the one before it, as the
compiler looks at every result of a nest on its own. What does not change along an axis is no work there: where to look
and how much of it to take, the same for all channels, is not stored for each of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace

from autodiff.rules.flows import Flow
from autodiff.turning.asking import askable
from tedsl.lang import functions as fn
from tedsl.lang.compute import compute_tensors
from tedsl.lang.dtypes import INT32
from tedsl.lang.expr import TRUE, Apply, Axis, Const, Expr, Read
from tedsl.lang.extents import number
from tedsl.lang.guards import guards_of
from tedsl.lang.operators import Fn
from tedsl.lang.traverse import reads_of, replaced_all, substitute_all, topological

__all__ = ["common_parts", "cost", "share_values"]

WORTH_STORING = 4  # operations saved per element that pay for a store and its reads
LONG = 48  # operations of a loop nest, where it has several results
RESULTS = 16  # of such a nest: what takes the compiler long is both together
MANY = 16  # iterations of an axis whose extent is no number
EMPTY: Mapping[Expr, float] = {}


def share_values(flows: list[Flow], reach: Mapping[Expr, Expr], name: str) -> list[Flow]:
    """The flows of one pointwise body, what their values have in common computed once.

    rewrites   n flows, each computing its own partial derivative   ->   the parts that several need, or where these are
    not enough the derivatives themselves, as loop nests of their own
    `reach` tells of the reads of the body where they are in bounds for sure.
    """
    if len(flows) < 2 or any(f.axes != flows[0].axes for f in flows):
        return flows
    values = [f.value for f in flows]
    parts = _parts(values, flows[0].axes)
    if not parts:
        return flows
    used = guards_of(values, [f.condition for f in flows])
    stored = _stored(parts, used, _Bounds(reach, parts), flows[0].axes, name)
    return [replace(f, value=v) for f, v in zip(flows, replaced_all(values, stored), strict=True)]


def _parts(values: Sequence[Expr], axes: Sequence[Axis]) -> list[Expr]:
    """What to store: parts that several values hold, or the values themselves where that is less work."""
    often = _frequencies(values, axes)
    common = common_parts(values, often)
    whole: list[Expr] = [v for v in dict.fromkeys(values) if isinstance(v, Apply)]
    gain = _price(values, common, often) - _price(values, whole, often)
    return whole if gain > 0 or (gain == 0 and common) else common


def _frequencies(values: Sequence[Expr], axes: Sequence[Axis]) -> dict[Expr, float]:
    """How often each node is computed for an element: more rarely where it is the same along an axis."""
    known: dict[Expr, float] = {}
    along: dict[Expr, int] = {axis: 1 << k for k, axis in enumerate(axes)}
    rates: dict[int, float] = {}
    for node in topological(values):
        for child in node.children:
            along[node] = along.get(node, 0) | along[child]
        mask = along.setdefault(node, 0)
        if mask not in rates:
            rates[mask] = 1 / math.prod(max(1, number(a.extent) or MANY) for a in axes if not mask & along[a])
        known[node] = rates[mask]
    return known


def _price(values: Sequence[Expr], parts: Sequence[Expr], often: Mapping[Expr, float]) -> float:
    """Operations per element, where the parts are stored, and loops over what is left of the values."""
    stored = set(parts)
    rest = [cost(_above(v, stored), often) for v in values]
    return cost(topological(parts), often) + sum(rest) + sum(n > 0 for n in rest) + WORTH_STORING * len(parts)


def _above(root: Expr, stored: set[Expr]) -> list[Expr]:
    """The nodes below a root that are not below something stored."""
    found: dict[Expr, None] = {}
    stack = [root]
    while stack:
        node = stack.pop()
        if node not in found and node not in stored:
            found[node] = None
            stack += node.children
    return list(found)


def common_parts(values: Sequence[Expr], often: Mapping[Expr, float] = EMPTY) -> list[Expr]:
    """The largest expressions that several values hold and that are worth a tensor of their own."""
    users: dict[Expr, int] = {}
    for value in values:
        for node in topological(value):
            users[node] = users.get(node, 0) + 1
    inside: set[Expr] = set()
    for node, count in users.items():
        if count > 1:
            inside.update(c for c in node.children if users[c] == count)
    parts = [n for n, count in users.items() if count > 1 and n not in inside and n.dtype.is_float]
    return [n for n in parts if cost(topological(n), often) * (users[n] - 1) >= WORTH_STORING]


def cost(nodes: Iterable[Expr], often: Mapping[Expr, float] = EMPTY) -> float:
    """Operations on floats, those that no hardware instruction does counted several times."""
    counted = (n for n in nodes if isinstance(n, Apply) and n.dtype.is_float)
    return sum(_COSTS.get(n.fn, 8) * often.get(n, 1) for n in counted)


_COSTS = dict.fromkeys(
    (
        Fn.ADD,
        Fn.SUB,
        Fn.MUL,
        Fn.NEG,
        Fn.ABS,
        Fn.SELECT,
        Fn.MINIMUM,
        Fn.MAXIMUM,
        Fn.RELU,
        Fn.CAST,
        Fn.SIGN,
        Fn.FLOOR,
        Fn.CLIP,
        Fn.STOP,
    ),
    1,
)


class _Bounds:
    """Where the reads of a body's parts are in bounds."""

    def __init__(self, reach: Mapping[Expr, Expr], parts: Sequence[Expr]) -> None:
        self._reach = reach
        self._open = {r for r in reads_of(parts) if reach.get(r) is not TRUE and not _is_own_point(r)}

    def are_known(self, part: Expr) -> bool:
        """Whether a part can be computed everywhere: it asks itself what its reads need."""
        inside = [n for n in topological(part) if n in self._open] if self._open else []
        if not inside:
            return True
        guards = guards_of(part)
        return all(guards[r] is self._reach.get(r) for r in inside)


def _is_own_point(read: Read) -> bool:
    """Whether an element is read at loops that run over all of its tensor, as the adjoint of a result is."""
    zero = Const(0, INT32)
    extents = [i.extent if isinstance(i, Axis) and i.begin is zero else None for i in read.indices]
    return all(a is b for a, b in zip(extents, read.tensor.extents, strict=True))


def _stored(
    parts: Sequence[Expr], used: Mapping[Expr, Expr], bounds: _Bounds, axes: tuple[Axis, ...], name: str
) -> dict[Expr, Expr]:
    """The parts as reads of new tensors."""
    position = tuple(a - a.begin for a in axes)
    made: dict[Expr, Expr] = {}
    known = all(map(bounds.are_known, parts))
    for group in _groups(parts) if known else [parts]:
        fresh = tuple(Axis(a.name, a.extent) for a in axes)
        moved: dict[Expr, Expr] = {a: b + a.begin for a, b in zip(axes, fresh, strict=True)}
        bodies = [p if bounds.are_known(p) else _where_used(p, used[p]) for p in group]
        written = substitute_all(replaced_all(bodies, made), moved)
        made |= {p: Read(t, position) for p, t in zip(group, compute_tensors(fresh, written, name), strict=True)}
    return made


def _where_used(part: Expr, used: Expr) -> Expr:
    """A part of several values where one of them uses it, and 0 elsewhere: only there its reads need be in bounds."""
    return fn.select_node(askable(used), part, Const(0.0, part.dtype))


def _groups(parts: Sequence[Expr]) -> list[list[Expr]]:
    """The parts, and what lies between them, cut into pieces of no more than so many operations, in order.

    What later pieces need of a piece is a result, too; where these are very many, the piece is cut once more.
    """
    order = topological(parts)
    results = {node for group in _pieces(order, set(parts), set()) for node in group}
    return _pieces(order, set(parts), results)


def _pieces(order: Sequence[Expr], wanted: Set[Expr], counted: Set[Expr]) -> list[list[Expr]]:
    """What each piece stores, where it holds no more than so many operations, and of those `counted` even fewer."""
    piece: dict[Expr, int] = {}  # of what could be stored
    number = operations = results = 0
    for node in order:
        if isinstance(node, Apply) and node.dtype.is_float:
            if operations == LONG or results == RESULTS:
                number, operations, results = number + 1, 0, 0
            piece[node] = number
            operations, results = operations + 1, results + (node in counted)
    last = _last_users(order, piece)
    groups: list[list[Expr]] = [[] for _ in range(number + 1)]
    for node, k in piece.items():
        if node in wanted or last.get(node, k) > k:
            groups[k].append(node)
    return [group for group in groups if group]


def _last_users(order: Sequence[Expr], piece: Mapping[Expr, int]) -> dict[Expr, int]:
    """The last piece that needs a node, also through conditions, which are not stored."""
    last: dict[Expr, int] = {}
    for node in reversed(order):
        here = piece.get(node, last.get(node, 0))
        for child in node.children:
            last[child] = max(last.get(child, 0), here)
    return last
