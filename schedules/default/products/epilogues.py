"""Arithmetic on a finished product, done where its tiles are brought to their place.

    t[i, j] = tile[i, j]            in its loops          t[i, j] = tile[i, j]            inline
    y[i, j] = relu(t[i, j] + b[j])  in loops of its own   y[i, j] = relu(t[i, j] + b[j])  in the loops of t

So the bias and the activation of a layer cost no walk through memory of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from schedules.default.costs import INLINE, element_cost, is_pointwise, is_same_point, points, values_of
from schedules.default.rewriting import Rewriting, loop_names
from schedules.directives import ComputeAt, ComputeInline, ComputeRoot, Directive, Fuse, Split, Unroll
from tedsl.lang.dataclass import dataclass
from tedsl.lang.expr import Axis, Const, Expr, Read
from tedsl.lang.extents import number, simplify_extent
from tedsl.lang.tensor import Compute, Operation, Placeholder, Tensor

__all__ = ["with_epilogues"]

FEW_TERMS = 16  # whose sums take less time than to bring them from where another thread has stored them
LOOPS = frozenset({"loop", "outer", "inner", "fused", "loops", "axis"})  # fields of directives that name loops


@dataclass(frozen=True)
class _Heir:
    """The stage that gets the loops of a product, and their names there."""

    stage: str
    names: Mapping[str, str]
    is_costly: bool  # to be compiled once rather than for each row of a tile


def with_epilogues(rw: Rewriting, outputs: Iterable[Tensor], alone: Iterable[str]) -> None:
    """Give the loops of products to what their only readers make of them; those `alone` are stored as they are."""
    kept = {*(t.op.name for t in outputs), *alone}
    readers: dict[Operation, dict[Operation, list[Read]]] = {}
    for op in rw.stages:
        for read in op.reads:
            readers.setdefault(read.tensor.op, {}).setdefault(op, []).append(read)
    own: dict[str, list[Directive]] = {}
    for said in rw.directives:
        own.setdefault(said.stage, []).append(said)
    costs = _costs(rw)
    heirs: dict[str, _Heir] = {}
    inline: list[Directive] = []
    for product in _products(rw):
        if points(product.axes) < rw.least.epilogue:
            continue
        *before, last = _chain(rw, product, readers, kept, costs)
        is_costly = last in costs and costs[last] > INLINE
        heir = _Heir(last.name, _names(product, last, own[product.name]), is_costly) if before else None
        if heir is not None and len(set(heir.names.values())) == len(heir.names):
            heirs[product.name] = heir
            inline += [ComputeInline(stage=op.name) for op in before]
            rw.planned |= {last.name, *(op.name for op in before)}
    if heirs:
        kept_on = [said for said in rw.directives if not _is_too_long(said, heirs)]
        rw.directives[:] = [*(_moved(said, heirs) for said in kept_on), *inline]


def _products(rw: Rewriting) -> list[Compute]:
    """The stages that bring tiles of sums to their place."""
    at_root = {d.stage for d in rw.directives if isinstance(d, ComputeRoot)}
    tiles = {d.stage: d.consumer for d in rw.directives if isinstance(d, ComputeAt)}
    found = []
    for op in rw.stages:
        if isinstance(op, Compute) and op.name in at_root and len(op.bodies) == 1 and isinstance(op.bodies[0], Read):
            source = op.bodies[0].tensor.op
            if tiles.get(source.name) == op.name and isinstance(source, Compute) and source.reduction is not None:
                found.append(op)
    return found


def _costs(rw: Rewriting) -> dict[Operation, int]:
    """What an element of each pointwise stage costs with the stages that may be inlined into it, however far away."""
    costs: dict[Operation, int] = {}
    for op in rw.stages:
        if is_pointwise(op) and op.name not in rw.planned:
            own = element_cost(op) + sum(costs.get(source, 0) for source in {t.op for t in op.inputs})
            costs[op] = min(own, INLINE + 1)
    return costs


def _chain(
    rw: Rewriting, product: Compute, readers: Mapping[Operation, Mapping[Operation, Sequence[Read]]], kept: set[str],
    costs: Mapping[Operation, int],
) -> list[Compute]:  # fmt: skip
    """The product and the stages after it, each the only reader of the one before, at the same point."""
    chain, may_be_costly = [product], _terms(product) <= FEW_TERMS
    while chain[-1].name not in kept and len(readers.get(chain[-1], ())) == 1:
        ((reader, reads),) = readers[chain[-1]].items()
        is_free = reader in costs and reader.name not in rw.kinds and reader.name not in rw.inside
        if not is_free or not all(is_same_point(reader, read) for read in reads):
            break
        if costs[reader] > INLINE and not may_be_costly:
            break
        if not isinstance(reader, Compute) or reader.name in rw.planned or not _is_plain(reader, product):
            break
        if reader.name in kept and _may_replace_input(reader):
            break
        chain.append(reader)
    return chain


def _terms(product: Compute) -> int:
    """How many numbers a finished sum is made of."""
    (tile,) = product.inputs
    reduce = tile.op.reduction if isinstance(tile.op, Compute) else None
    return 1 if reduce is None else points(reduce.axes)


def _is_plain(op: Compute, product: Compute) -> bool:
    """Whether a stage has the shape and the element size of a product, and its loops stand in indices alone, the last
    one in last ones.
    """
    if len(op.bodies) > 1 or op.looks_up or op.bodies[0].dtype.itemsize != product.bodies[0].dtype.itemsize:
        return False
    if list(map(_extent, op.axes)) != list(map(_extent, product.axes)):
        return False
    values = values_of(op.bodies)
    reads = [n for n in values if isinstance(n, Read) and n.indices]
    across = any(i is op.axes[-1] for n in reads for i in n.indices[:-1])
    indices = [i for n in reads for i in n.indices]
    bare = any(isinstance(n, Axis) for n in values)
    return not bare and not across and all(isinstance(i, (Axis, Const)) for i in indices)


def _may_replace_input(op: Compute) -> bool:
    """Whether a result may be written over an array that it reads: best when nobody else reads that any more."""
    return any(isinstance(read.tensor.op, Placeholder) and is_same_point(op, read) for read in op.reads)


def _extent(axis: Axis) -> tuple[int | None, Expr | None]:
    return number(axis.begin), None if axis.extent is None else simplify_extent(axis.extent)


def _names(product: Compute, last: Compute, own: Iterable[Directive]) -> dict[str, str]:
    """The names that the loops of a product have where they are those of `last`."""
    names = dict(zip(loop_names(product).values(), loop_names(last).values(), strict=True))
    for said in own:
        if isinstance(said, Split):
            for cut in (said.outer, said.inner):
                is_part = cut.startswith(said.loop)
                names[cut] = names[said.loop] + cut.removeprefix(said.loop) if is_part else cut
        if isinstance(said, Fuse):
            names[said.fused] = said.fused
    return names


def _is_too_long(said: Directive, heirs: Mapping[str, _Heir]) -> bool:
    """Whether a directive writes out a loop of which each iteration is long."""
    return isinstance(said, Unroll) and said.stage in heirs and heirs[said.stage].is_costly


def _moved(said: Directive, heirs: Mapping[str, _Heir]) -> Directive:
    """A directive of a stage, or one that names a loop of it, as one of its heir."""
    if said.stage in heirs:
        heir = heirs[said.stage]
        loops = {f: _renamed(v, heir.names) for f, v in vars(said).items() if f in LOOPS}
        return replace(said, stage=heir.stage, **loops)
    if isinstance(said, ComputeAt) and said.consumer in heirs:
        heir = heirs[said.consumer]
        return replace(said, consumer=heir.stage, loop=heir.names[said.loop])
    return said


def _renamed(loops: str | tuple[str, ...], names: Mapping[str, str]) -> str | tuple[str, ...]:
    return names[loops] if isinstance(loops, str) else tuple(names[n] for n in loops)
