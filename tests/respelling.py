"""Programs written otherwise: drawn rewrites that are equal by algebra, of any program.

Each row of `RULES` is a way to write one operation otherwise, each of `STAGES` one for a whole definition. They say the
same to whoever knows arithmetic, conditions and loops; `te.interpret` is the judge of that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial
from random import Random

from schedules.default.copies import stays_inside
from schedules.default.costs import is_once
from schedules.program import reading
from tedsl.lang import functions as fn
from tedsl.lang.dtypes import INT32
from tedsl.lang.expr import TRUE, Apply, Axis, Const, Expr, Fn, Read, Reduce
from tedsl.lang.extents import number
from tedsl.lang.operators import MIRRORED, NEGATED
from tedsl.lang.tensor import Compute, Operation, Placeholder, Tensor
from tedsl.lang.traverse import free_axes, rebuild_all, stages_of, substitute, substitute_all, topological

__all__ = ["KINDS", "respelled"]

Rule = Callable[[Apply, Random], "Expr | None"]


# ------------------------------------------------------------------------------------------------ single operations


def _commuted(node: Apply, chance: Random) -> Expr | None:
    swaps = node.fn in (Fn.ADD, Fn.MUL, Fn.AND, Fn.OR, Fn.EQ) and not _floats(node)
    exact = node.fn in (Fn.ADD, Fn.MUL) and node.dtype.is_float
    return node.with_children(node.args[::-1]) if swaps or exact else None


def _associated(node: Apply, chance: Random) -> Expr | None:
    """(a b) c as a (b c)."""
    first = node.args[0]
    if node.fn not in (Fn.MUL, Fn.ADD) or not isinstance(first, Apply) or first.fn is not node.fn:
        return None
    if first.dtype != node.dtype or not (node.dtype.is_float or node.is_weak):
        return None
    a, b = first.args
    return node.with_children((a, fn.apply(node.fn, b, node.args[1])))


def _negated_sum(node: Apply, chance: Random) -> Expr | None:
    """a - b as a + -b."""
    if node.fn is not Fn.SUB or not (node.dtype.is_float or node.is_weak):
        return None
    return fn.apply(Fn.ADD, node.args[0], fn.apply(Fn.NEG, node.args[1]))


def _halved(node: Apply, chance: Random) -> Expr | None:
    """x / 4 as x * 0.25, and back."""
    if node.fn not in (Fn.DIV, Fn.MUL) or not node.dtype.is_float or not isinstance(node.args[1], Const):
        return None
    value = float(node.args[1].value)
    if not value or math.frexp(abs(value))[0] != 0.5:
        return None
    other = Fn.MUL if node.fn is Fn.DIV else Fn.DIV
    return fn.apply(other, node.args[0], Const(1 / value, node.dtype))


def _bounded(node: Apply, chance: Random) -> Expr | None:
    """A clip as a minimum of a maximum."""
    if node.fn is not Fn.CLIP:
        return None
    x, low, high = node.args
    return fn.apply(Fn.MINIMUM, fn.apply(Fn.MAXIMUM, x, low), high)


def _mirrored(node: Apply, chance: Random) -> Expr | None:
    """i < n as n > i, or as ~(i >= n)."""
    if node.fn not in MIRRORED or _floats(node):
        return None
    if chance.random() < 0.5:
        return fn.apply(MIRRORED[node.fn], *node.args[::-1])
    return fn.apply(Fn.NOT, fn.apply(NEGATED[node.fn], *node.args))


def _arms_swapped(node: Apply, chance: Random) -> Expr | None:
    if node.fn is not Fn.SELECT:
        return None
    condition, a, b = node.args
    return node.with_children((fn.apply(Fn.NOT, condition), b, a))


def _floats(node: Apply) -> bool:
    return any(a.dtype.is_float for a in node.args)


RULES: Mapping[str, Rule] = {
    "commuted": _commuted,
    "associated": _associated,
    "a + -b": _negated_sum,
    "x * 0.5": _halved,
    "clip": _bounded,
    "mirrored": _mirrored,
    "arms swapped": _arms_swapped,
}


def _by_rule(rule: Rule) -> Callable[[Compute, Random], Compute | None]:
    def rewritten(op: Compute, chance: Random) -> Compute | None:
        def each(node: Expr) -> Expr:
            found = rule(node, chance) if isinstance(node, Apply) and chance.random() < 0.7 else None
            return node if found is None else found

        return _with_bodies(op, rebuild_all(op.bodies, each))

    return rewritten


# ------------------------------------------------------------------------------------------------ whole definitions


def _quotients(op: Compute, chance: Random) -> Compute | None:
    """A loop as i // f * f + i % f where it is an index."""
    loops = [a for a in _loops(op) if (number(a.extent) or 0) > 1]
    if not loops:
        return None
    axis, by = chance.choice(loops), chance.choice((2, 3, 4, 8))
    at = axis // by * by + axis % by

    def each(node: Expr) -> Expr:
        if isinstance(node, Read) and any(i is axis for i in node.indices):
            return Read(node.tensor, tuple(at if i is axis else i for i in node.indices))
        return node

    return _with_bodies(op, rebuild_all(op.bodies, each))


def _masked(op: Compute, chance: Random) -> Compute | None:
    """A condition of a sum as a choice of its terms, or as a factor of 0 or 1."""
    reduce = op.reduction
    if reduce is None or reduce.where is TRUE or reduce.reducer.kind != "sum" or not reduce.values[0].dtype.is_float:
        return None
    value, zero = reduce.values[0], Const(0.0, reduce.values[0].dtype)
    if chance.random() < 0.5 and stays_inside(value):
        term = value * fn.cast(reduce.where, value.dtype)
    else:
        term = fn.select(reduce.where, value, zero)
    return _summed(op, term, reduce.axes, TRUE)


def _axes_shuffled(op: Compute, chance: Random) -> Compute | None:
    reduce = op.reduction
    if reduce is None or len(reduce.axes) < 2 or reduce.reducer.kind not in ("sum", "max", "min"):
        return None
    axes = list(reduce.axes)
    chance.shuffle(axes)
    return replace(op, bodies=(reduce.with_axes(tuple(axes)),), _outputs={})


def _unit_axis(op: Compute, chance: Random) -> Compute | None:
    """One more loop, of one iteration, which an index may have."""
    reduce = op.reduction
    if reduce is None or reduce.reducer.kind not in ("sum", "max", "min"):
        return None
    unit = _loop("u", 1)

    def each(node: Expr) -> Expr:
        if isinstance(node, Read) and node.indices and node.indices[0].dtype is INT32 and chance.random() < 0.5:
            return Read(node.tensor, (node.indices[0] + unit, *node.indices[1:]))
        return node

    value, where = rebuild_all((reduce.values[0], reduce.where), each)
    axes = list(reduce.axes)
    axes.insert(chance.randint(0, len(axes)), unit)
    return _summed(op, value, tuple(axes), where)


def _axis_split(op: Compute, chance: Random) -> Compute | None:
    """k as 4 k1 + k0."""
    reduce = op.reduction
    if reduce is None or reduce.reducer.kind not in ("sum", "max", "min"):
        return None
    fitting = [
        (a, f) for a in reduce.axes for f in (2, 3, 4, 5, 8)
        if (number(a.extent) or 1) % f == 0 and number(a.extent) != f and number(a.begin) == 0
    ]  # fmt: skip
    if not fitting:
        return None
    axis, by = chance.choice(fitting)
    outer, inner = _loop(f"{axis.name}1", (number(axis.extent) or 0) // by), _loop(f"{axis.name}0", by)
    value, where = substitute_all((reduce.values[0], reduce.where), {axis: outer * by + inner})
    axes = [b for a in reduce.axes for b in ((outer, inner) if a is axis else (a,))]
    return _summed(op, value, tuple(axes), where)


def _axes_merged(op: Compute, chance: Random) -> Compute | None:
    """k and l as quotient and remainder of one loop."""
    reduce = op.reduction
    if reduce is None or len(reduce.axes) < 2 or reduce.reducer.kind not in ("sum", "max", "min"):
        return None
    at = chance.randint(0, len(reduce.axes) - 2)
    first, second = reduce.axes[at : at + 2]
    sizes = number(first.extent), number(second.extent)
    if None in sizes or 0 in sizes or number(first.begin) != 0 or number(second.begin) != 0:
        return None
    rows, columns = (int(n or 0) for n in sizes)
    both = _loop(f"{first.name}{second.name}", rows * columns)
    value, where = substitute_all((reduce.values[0], reduce.where), {first: both // columns, second: both % columns})
    return _summed(op, value, (*reduce.axes[:at], both, *reduce.axes[at + 2 :]), where)


STAGES: Mapping[str, Callable[[Compute, Random], Compute | None]] = {
    **{name: _by_rule(rule) for name, rule in RULES.items()},
    "quotient and rest": _quotients,
    "masked": _masked,
    "axes in other order": _axes_shuffled,
    "unit axis": _unit_axis,
    "axis split": _axis_split,
    "axes merged": _axes_merged,
}


def _loop(name: str, extent: int) -> Axis:
    return Axis(name, Const(extent, INT32), is_reduce=True)


def _loops(op: Compute) -> list[Axis]:
    return [*op.axes, *(op.reduction.axes if op.reduction is not None else ())]


def _with_bodies(op: Compute, bodies: tuple[Expr, ...]) -> Compute | None:
    same = all(a is b for a, b in zip(bodies, op.bodies, strict=True))
    return None if same else replace(op, bodies=bodies, _outputs={})


def _summed(op: Compute, value: Expr, axes: tuple[Axis, ...], where: Expr) -> Compute:
    reduce = op.reduction
    assert reduce is not None
    return replace(op, bodies=(Reduce(reduce.reducer, (value,), axes, where, 0),), _outputs={})


# ------------------------------------------------------------------------------------------------ stages of programs


def _own_stage(op: Compute, chance: Random) -> Compute | None:
    """A factor or a term as a stage of its own, over the loops that it has."""
    roots = (*op.reduction.values, op.reduction.where) if op.reduction is not None else ()
    inside = [
        n for n in topological(roots)
        if isinstance(n, Apply) and n.dtype.is_float and all(n is not r for r in roots) and free_axes(n)
        and stays_inside(n) and sum(isinstance(c, Read) for c in topological(n)) == 1
    ]  # fmt: skip
    if not inside or op.reduction is None or any(number(a.extent) is None or number(a.begin) != 0 for a in _loops(op)):
        return None
    node = chance.choice(inside)
    axes = free_axes(node)
    fresh = tuple(Axis(a.name, a.extent) for a in axes)
    part = Compute(
        name=f"{op.name}_part", axes=fresh, bodies=(substitute(node, dict(zip(axes, fresh, strict=True))),), where=""
    )
    return _with_bodies(op, rebuild_all(op.bodies, lambda n: Read(part.output(), tuple(axes)) if n is node else n))


def _written_out(op: Compute, chance: Random, outputs: Collection[Operation] = ()) -> Compute | None:
    """A pointwise stage of which one element is read, written where it is read; one that is stored anyway stays."""

    if op.reduction is None:
        return None

    def each(node: Expr) -> Expr:
        inner = node.tensor.op if isinstance(node, Read) else None
        if isinstance(node, Read) and isinstance(inner, Compute) and inner.reduction is None and is_once(op, node):
            if inner in outputs or sum(r.tensor.op is inner for r in op.reads) > 1:
                return node
            return substitute(inner.bodies[node.tensor.index], dict(zip(inner.axes, node.indices, strict=True)))
        return node

    return _with_bodies(op, rebuild_all(op.bodies, each))


KINDS = (*STAGES, "own stage", "written out")


def respelled(outputs: Iterable[Tensor], kinds: Iterable[str], chance: Random) -> tuple[tuple[Tensor, ...], list[str]]:
    """The outputs written otherwise in these ways, and what was done: (way, stage)."""
    outputs, kinds = tuple(outputs), tuple(kinds)
    new: dict[Tensor, Tensor] = {}
    stored = {t.op for t in outputs}
    done: list[str] = []
    for op in stages_of(outputs):
        if isinstance(op, Placeholder):
            continue
        made = reading(op, new)
        if isinstance(made, Compute):
            for kind in kinds:
                known = {**STAGES, "own stage": _own_stage, "written out": partial(_written_out, outputs=stored)}
                found = known[kind](made, chance)
                if found is not None:
                    made = found
                    done.append(f"{kind}: {made.name}")
        if made is not op:
            stored |= {made} if op in stored else set()
            new.update(zip(op.outputs, made.outputs, strict=True))
    return tuple(new.get(t, t) for t in outputs), done
