"""Cheap arithmetic on a finished product, done where its tiles are brought to their place.

    t[i, j] = tile[i, j]            in its loops          t[i, j] = tile[i, j]            inline
    y[i, j] = relu(t[i, j] + b[j])  in loops of its own   y[i, j] = relu(t[i, j] + b[j])  in the loops of t

So the bias and the activation of a layer cost no walk through memory of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from schedules.default.costs import INLINE, element_cost, is_pointwise, is_same_point, points, values_of
from schedules.default.rewriting import Rewriting, loop_names
from schedules.directives import ComputeAt, ComputeInline, ComputeRoot, Directive, Fuse, Split
from tedsl.lang.expr import Axis, Const, Expr, Read
from tedsl.lang.extents import number, simplify_extent
from tedsl.lang.tensor import Compute, Operation, Placeholder, Tensor

__all__ = ["with_epilogues"]

LOOPS = frozenset({"loop", "outer", "inner", "fused", "loops", "axis"})  # fields of directives that name loops


def with_epilogues(rw: Rewriting, outputs: Iterable[Tensor], alone: Iterable[str]) -> None:
    """Give the loops of products to what their only readers make of them; those `alone` are stored as they are."""
    kept = {*(t.op.name for t in outputs), *alone}
    readers: dict[Operation, dict[Operation, list[Read]]] = {}
    for op in rw.stages:
        for read in op.reads:
            readers.setdefault(read.tensor.op, {}).setdefault(op, []).append(read)
    for product in _products(rw):
        if points(product.axes) < rw.least.epilogue:
            continue
        chain = _chain(rw, product, readers, kept)
        if len(chain) > 1:
            _hand_over(rw, chain)


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


def _chain(
    rw: Rewriting, product: Compute, readers: Mapping[Operation, Mapping[Operation, Sequence[Read]]], kept: set[str]
) -> list[Compute]:
    """The product and the stages after it, each the only reader of the one before, at the same point."""
    chain, cost = [product], 0
    while chain[-1].name not in kept and len(readers.get(chain[-1], ())) == 1:
        ((reader, reads),) = readers[chain[-1]].items()
        cost += element_cost(reader)
        is_free = reader.name not in rw.planned and reader.name not in rw.kinds and reader.name not in rw.inside
        if not is_free or cost > INLINE or not all(is_same_point(reader, read) for read in reads):
            break
        if not isinstance(reader, Compute) or not is_pointwise(reader) or not _is_plain(reader, product):
            break
        if reader.name in kept and _may_replace_input(reader):
            break
        chain.append(reader)
    return chain


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


def _hand_over(rw: Rewriting, chain: Sequence[Compute]) -> None:
    """Let the last stage have the loops of the first; those before it are computed there."""
    first, last = chain[0], chain[-1]
    names = dict(zip(loop_names(first).values(), loop_names(last).values(), strict=True))
    said = [_moved(d, first.name, last.name, names) for d in rw.directives]
    if len(set(names.values())) == len(names):
        rw.directives[:] = [*said, *(ComputeInline(stage=op.name) for op in chain[:-1])]
        rw.planned.update(op.name for op in chain)


def _moved(said: Directive, before: str, now: str, names: dict[str, str]) -> Directive:
    """A directive of a stage as one of another, whose loops have other `names`; those it makes are added."""
    if said.stage == before:
        if isinstance(said, Split):
            for cut in (said.outer, said.inner):
                is_part = cut.startswith(said.loop)
                names[cut] = names[said.loop] + cut.removeprefix(said.loop) if is_part else cut
        if isinstance(said, Fuse):
            names[said.fused] = said.fused
        return replace(said, stage=now, **{f: _renamed(v, names) for f, v in vars(said).items() if f in LOOPS})
    if isinstance(said, ComputeAt) and said.consumer == before:
        return replace(said, consumer=now, loop=names[said.loop])
    return said


def _renamed(loops: str | tuple[str, ...], names: Mapping[str, str]) -> str | tuple[str, ...]:
    return names[loops] if isinstance(loops, str) else tuple(names[n] for n in loops)
