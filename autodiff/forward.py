"""`jvp`: derivatives along a direction, carried forward stage by stage, with the same table of scalar rules."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import reduce
from types import MappingProxyType
from typing import Any, overload

from autodiff.constants import as_given
from autodiff.custom import check_no_rules, rule_of, stages_along
from autodiff.heads import check_order, floats, tensors
from autodiff.reverse import differentiate
from autodiff.rules.carrying import on_outputs
from autodiff.rules.derivatives import DERIVATIVE, PIECEWISE_CONSTANT
from autodiff.rules.folds import as_scan
from autodiff.rules.inner_folds import slopes_of
from autodiff.rules.natives import native_tangents
from autodiff.rules.scatters import SLOPES
from autodiff.rules.slopes import Slopes, flat_position, through_reduction
from autodiff.rules.stages import winner_of
from autodiff.rules.totals import zeros
from autodiff.turning.cotangent import fresh_axes
from autodiff.within_steps import outside_step
from tedsl.analysis.canceling import canceling
from tedsl.lang import functions as fn
from tedsl.lang.constants import is_plain
from tedsl.lang.errors import GradientError, brief, user_location
from tedsl.lang.expr import Apply, Const, Expr, Read, Reduce
from tedsl.lang.extents import same_extent, simplify_extent
from tedsl.lang.guards import guards_of
from tedsl.lang.lift import lift_reductions
from tedsl.lang.native import Native
from tedsl.lang.operators import Fn
from tedsl.lang.reducers import BUILTIN
from tedsl.lang.tensor import Compute, Extern, Operation, Placeholder, Scan, ScanState, Scatter, StepPart, Tensor
from tedsl.lang.titles import check_not_renamed
from tedsl.lang.traverse import topological

__all__ = ["hvp", "jvp"]

Dot = Callable[[Read], "Expr | None"]


@overload
def jvp(outputs: Tensor, inputs: Any, tangents: Any) -> Tensor: ...
@overload
def jvp(outputs: Sequence[Tensor], inputs: Any, tangents: Any) -> tuple[Tensor, ...]: ...
def jvp(outputs: Any, inputs: Any, tangents: Any) -> Any:
    """The derivative of `outputs` along `tangents`, one per input: a tensor for a tensor, a tuple for a list."""
    asked = tensors(outputs, "outputs", "jvp")
    sources = floats(inputs, "inputs", "jvp")
    directions = _directions(sources, inputs, tangents, "jvp", "tangent")
    program = outside_step((*asked, *directions), sources, "jvp")
    if program is None:
        results = _carried(asked, sources, directions)
    else:
        results = program.back(program.of(_carried, asked, sources, directions))
    return results[0] if isinstance(outputs, Tensor) else results


def _carried(
    asked: Sequence[Tensor], sources: Sequence[Tensor], directions: Sequence[Tensor | None]
) -> tuple[Tensor, ...]:
    """The tangents of what is asked for, stage by stage."""
    dots: dict[Tensor, Tensor] = {s: d for s, d in zip(sources, directions, strict=True) if d is not None}
    stages = stages_along(asked, _dependencies)
    check_not_renamed(sources, stages, "jvp")
    alive = [op.outputs for op in stages]  # held, so that each tensor is one object throughout
    still = frozenset(canceling(stages, asked, _dependencies, _is_given))
    for op in stages:
        if not isinstance(op, Placeholder) and any(t in dots for t in _dependencies(op)):
            for tensor, dot in _produced(op, dots).items():
                if tensor not in dots and tensor not in still:
                    dots[tensor] = dot
    del alive
    if not any(t in dots for t in asked):
        check_order(asked, sources, "jvp")
    return tuple(dots[t] if t in dots else zeros(t.extents, t, f"{t.name}_dot") for t in asked)


@overload
def hvp(loss: Tensor, inputs: Tensor, vectors: Any) -> Tensor: ...
@overload
def hvp(loss: Tensor, inputs: Sequence[Tensor], vectors: Any) -> tuple[Tensor, ...]: ...
def hvp(loss: Tensor, inputs: Any, vectors: Any) -> Any:
    """The Hessian of a scalar `loss` times `vectors`, one per input: the gradient of the gradient along them."""
    if not isinstance(loss, Tensor) or loss.ndim:
        raise ValueError(f"hvp: the loss must be a 0-rank tensor, found {loss!r}, at {user_location()}")
    sources = floats(inputs, "inputs", "hvp")
    directions = _directions(sources, inputs, vectors, "hvp", "vector")
    heads = [zeros(s.extents, s, f"{s.name}_dot") if d is None else d for s, d in zip(sources, directions, strict=True)]
    gradients = list(differentiate(loss, sources))
    results = tuple(differentiate(gradients, sources, head=heads))
    return results[0] if isinstance(inputs, Tensor) else results


def _directions(sources: Sequence[Tensor], inputs: Any, given: Any, what: str, word: str) -> list[Tensor | None]:
    """The direction of each input, None for one that stays."""
    is_one = isinstance(inputs, Tensor) and (is_plain(given) or not isinstance(given, (list, tuple)))
    items = [given] if is_one or not isinstance(given, Iterable) or isinstance(given, Tensor) else list(given)
    if len(sources) != len(items):
        raise ValueError(
            f"{what}: {len(sources)} inputs but {len(items)} {word}s, at {user_location()}; give one for each, None "
            "for an input that stays"
        )
    return [None if d is None else _direction(s, d, what, word) for s, d in zip(sources, items, strict=True)]


def _direction(source: Tensor, given: Any, what: str, word: str) -> Tensor:
    direction = as_given(given, source, source.extents, f"{what} at {user_location()}: the {word} of {source!r}")
    if not isinstance(direction, Tensor):
        raise TypeError(
            f"{what}: {word}s must be tensors, arrays or numbers, found {type(given).__name__} {brief(repr(given))}, "
            f"at {user_location()}"
        )
    same = source.ndim == direction.ndim and all(map(same_extent, source.extents, direction.extents))
    if not same or source.dtype is not direction.dtype:
        raise ValueError(
            f"{what}: the {word} of {source!r} must have its shape and dtype, found {direction!r}, at {user_location()}"
        )
    return direction


def _dependencies(op: Operation) -> tuple[Tensor, ...]:
    """What the derivative of `op` comes from: its inputs, or what its author's rules name instead."""
    rules = [rule_of(t) for t in op.outputs]
    given = [t for rule in rules if rule is not None and rule.jvp is not None for t in rule.deps]
    direct = any(rule is None or rule.jvp is None for rule in rules)
    return tuple(dict.fromkeys([*given, *(op.inputs if direct else ())]))


def _is_given(op: Operation) -> bool:
    """Whether an author gave the derivative of some of its results."""
    return any((rule := rule_of(t)) is not None and rule.jvp is not None for t in op.outputs)


def _produced(op: Operation, dots: dict[Tensor, Tensor]) -> dict[Tensor, Tensor]:
    """The derivatives of what `op` computes, given those of what it depends on."""
    found: dict[Tensor, Tensor] = {}
    for tensor in op.outputs:
        rule = rule_of(tensor)
        if rule is not None and rule.jvp is not None and any(t in dots for t in rule.deps):
            tangents = [dots[t] if t in dots else zeros(t.extents, t, f"{t.name}_dot") for t in rule.deps]
            found[tensor] = rule.jvp(list(rule.deps), tangents)
    if len(found) < op.num_outputs and any(t in dots for t in op.inputs):
        found = {**RULES[type(op)](op, dots), **found}
    return found


def tangent_of(root: Expr, dot: Dot, slopes: Slopes = MappingProxyType({})) -> Expr | None:
    """The derivative of a scalar expression, given that of each read (None is zero) and the slopes of reductions."""
    dots: dict[Expr, Expr | None] = {}
    for node in topological(root):
        dots[node] = _dot_of_node(node, dots, dot, slopes) if node.dtype.is_float else None
    return dots[root]


def _dot_of_node(node: Expr, dots: dict[Expr, Expr | None], dot: Dot, slopes: Slopes) -> Expr | None:
    if isinstance(node, Read):
        return dot(node)
    if isinstance(node, Reduce):
        return _through(node, dots, slopes)
    if not isinstance(node, Apply) or node.fn in PIECEWISE_CONSTANT or all(dots[a] is None for a in node.args):
        return None
    if node.fn is Fn.CAST:
        inner = dots[node.args[0]]
        return None if inner is None else fn.convert(inner, node.dtype)
    if node.fn is Fn.SELECT:
        return _select(node, dots)
    return _sum_of_parts(node, dots)


def _through(node: Reduce, dots: dict[Expr, Expr | None], slopes: Slopes) -> Expr | None:
    moving = [(k, d) for k, v in enumerate(node.values) if (d := dots[v]) is not None]
    parts = [part for k, d in moving if (part := through_reduction(node, k, d, slopes)) is not None]
    return Reduce(BUILTIN["sum"], (reduce(operator.add, parts),), node.axes, node.where) if parts else None


def _select(node: Apply, dots: dict[Expr, Expr | None]) -> Expr:
    zero = Const(0.0, node.dtype)
    taken, other = (zero if d is None else d for d in (dots[node.args[1]], dots[node.args[2]]))
    return fn.select_node(node.args[0], taken, other)


def _sum_of_parts(node: Apply, dots: dict[Expr, Expr | None]) -> Expr | None:
    rule = DERIVATIVE.get(node.fn)
    if rule is None:
        raise GradientError(f"the derivative of {node.fn.value} is not known: `{node}`")
    result: Expr | None = None
    for position, operand in enumerate(node.args):
        inner = dots[operand]
        if inner is not None:
            part = rule(inner, node, *node.args)[position]
            if part is not None:
                result = part if result is None else result + part
    return result


def _reading(dots: dict[Tensor, Tensor]) -> Dot:
    def dot(read: Read) -> Expr | None:
        tangent = dots.get(read.tensor)
        return None if tangent is None else Read(tangent, read.indices)

    return dot


Produced = dict[Tensor, Tensor]


def _compute(op: Operation, dots: Produced) -> Produced:
    assert isinstance(op, Compute)
    if op.reduction is not None:
        return _reduction(op, op.reduction, dots)
    found = {op.output(k): tangent_of(body, _reading(dots)) for k, body in enumerate(op.bodies)}
    moving = {t: d for t, d in found.items() if d is not None}
    if not moving:
        return {}
    made = Compute(name=f"{op.name}_dot", where=op.where, axes=op.axes, bodies=tuple(moving.values()))
    return dict(zip(moving, made.outputs, strict=True))


def _reduction(op: Compute, reduction: Reduce, dots: Produced) -> Produced:
    kind = reduction.reducer.kind
    if kind in ("any", "all", "argmax", "argmin"):
        return {}
    if kind in ("prod", "custom"):
        return _fold(op, reduction, dots)
    inner = tangent_of(reduction.values[0], _reading(dots))
    if inner is None:
        return {}
    where = reduction.where
    if kind in ("max", "min"):
        where = fn.logical_and(flat_position(reduction.axes) == Read(winner_of(op, reduction), op.axes), where)
    body = Reduce(BUILTIN["sum"], (inner,), reduction.axes, where)
    return {op.output(): Compute(name=f"{op.name}_dot", where=op.where, axes=op.axes, bodies=(body,)).output()}


def _fold(op: Compute, reduction: Reduce, dots: Produced) -> Produced:
    scan = as_scan(op, reduction)
    last = simplify_extent(scan.shape_of(0)[-1] - 1)
    produced = _scan(scan, dots)
    result = {}
    for k in range(op.num_outputs):
        steps = produced.get(scan.output(k))
        if steps is not None:
            axes = fresh_axes(op.shape_of(k))
            body = fn.select(last >= 0, Read(steps, (*axes, last)), 0.0)
            result[op.output(k)] = Compute(name=f"{op.name}_dot", where=op.where, axes=axes, bodies=(body,)).output()
    return result


def _scan(op: Operation, dots: Produced) -> Produced:
    assert isinstance(op, Scan)
    check_no_rules(op)
    floats = [k for k, s in enumerate(op.states) if s.dtype.is_float]
    shape = op.shape_of(0)
    handles = {
        k: ScanState(name=f"{op.name_of(k)}_dot", where=op.where, shape=shape, dtype=op.states[k].dtype).output()
        for k in floats
    }
    reading = _reading({**dots, **{op.states[k]: h for k, h in handles.items()}})
    slopes = slopes_of(op, guards_of(op.bodies))
    found = [tangent_of(op.bodies[k], reading, slopes) for k in floats]
    zero = [Const(0.0, op.bodies[k].dtype) for k in floats]
    bodies = on_outputs(op, tuple(z if b is None else b for b, z in zip(found, zero, strict=True)))
    bodies = lift_reductions(bodies, op.axes, f"{op.name}_dot", tuple(handles.values()))
    made = Scan(
        name=f"{op.name}_dot", where=op.where, axes=op.axes, states=tuple(handles.values()), bodies=bodies,
        dims=op.dims, reverse=op.reverse,
        parts=_tangent_parts(op, floats),
    )  # fmt: skip
    return {op.output(k): made.output(position) for position, k in enumerate(floats)}


def _tangent_parts(op: Scan, outputs: Sequence[int]) -> tuple[StepPart, ...]:
    """Where the tangents of a packed scan lie, of which these outputs have some."""
    own = {k: position for position, k in enumerate(outputs)}
    return tuple(replace(p, name=f"{p.name}_dot", output=own[p.output]) for p in op.parts if p.output in own)


def _scatter(op: Operation, dots: Produced) -> Produced:
    assert isinstance(op, Scatter)
    inner = tangent_of(op.value, _reading(dots))
    slope, condition = SLOPES[op.kind](op)
    start = dots.get(op.init) if op.init is not None else None
    if start is not None and op.init is not None:
        axes = fresh_axes(op.shape)
        initial = Read(op.init, axes)
        moved = fn.select(condition(initial, axes, False), slope(Read(start, axes), initial, axes), 0.0)
        start = Compute(name=f"{op.name}_init_dot", where=op.where, axes=axes, bodies=(moved,)).output()
    if inner is None:
        return {} if start is None else {op.output(): start}
    made = Scatter(
        name=f"{op.name}_dot", where=op.where, shape=op.shape, axes=op.axes, index=op.index,
        value=slope(inner, op.value, op.index), guard=fn.logical_and(op.guard, condition(op.value, op.index, True)),
        kind="add", init=start, unique=op.unique,
    )  # fmt: skip
    return {op.output(): made.output()}


def _extern(op: Operation, dots: Produced) -> Produced:
    assert isinstance(op, Extern)
    if isinstance(op.function, Native):
        return native_tangents(op, dots)
    raise GradientError(f"extern {op.name!r} defined at {op.where}: the derivative of a Python function is not known")


RULES: dict[type[Operation], Callable[[Operation, Produced], Produced]] = {
    Compute: _compute,
    Scan: _scan,
    Scatter: _scatter,
    Extern: _extern,
}
