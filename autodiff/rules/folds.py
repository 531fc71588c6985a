"""A reduction as a scan whose last step is its result: how products and custom reducers are differentiated.

The states of the scan are the partial results (prefixes); its reverse recurrence multiplies from the other end
(suffixes), so the cost stays linear and no value is ever divided out. The scan runs for the derivative alone, so it
also keeps what the derivative would compute again: the exponentials and roots on the way to the next prefix.

rewrites   R = fold(combine, identity, v[k])   ->   S[t] = combine(S[t-1] or identity, v[t]);  R = S[T - 1]
"""

from __future__ import annotations

from dataclasses import replace

from autodiff.turning.asking import askable
from tedsl.lang import functions as fn
from tedsl.lang.expr import Apply, Axis, Const, Expr, Read, Reduce
from tedsl.lang.extents import simplify_extent
from tedsl.lang.guards import guards_of
from tedsl.lang.operators import Fn
from tedsl.lang.tensor import Compute, Scan, ScanState
from tedsl.lang.traverse import substitute, substitute_all

__all__ = ["KEPT", "as_scan", "keeping_values"]

# Functions that no instruction computes and whose derivative is a formula in their value.
KEPT = frozenset({
    Fn.EXP, Fn.EXP2, Fn.EXPM1, Fn.SQRT, Fn.RSQRT, Fn.CBRT, Fn.TAN, Fn.TANH, Fn.SIGMOID, Fn.HYPOT,
})  # fmt: skip


def as_scan(op: Compute, reduction: Reduce) -> Scan:
    """The scan over `op`'s axes and one step axis, whose last step holds `op`'s outputs."""
    steps: Expr = fn.const(1, "int32")
    for axis in reduction.axes:
        assert axis.extent is not None
        steps = simplify_extent(steps * axis.extent)
    t = Axis("t", steps)
    position = _positions(reduction.axes, t)
    values = substitute_all((*reduction.values, reduction.where), position)
    shape = (*op.shape_of(0), steps)
    dtypes = [v.dtype for v in reduction.values]
    states = tuple(ScanState(name=f"{op.name}_prefix", where=op.where, shape=shape, dtype=d).output() for d in dtypes)
    before = tuple(
        fn.select(t == 0, reduction.reducer.identity_of(d, c), Read(s, (*op.axes, t - 1)))
        for c, (s, d) in enumerate(zip(states, dtypes, strict=True))
    )
    after = _combined(reduction, before, values[:-1])
    bodies = tuple(fn.select(values[-1], new, old) for new, old in zip(after, before, strict=True))
    return Scan(
        name=f"{op.name}_prefix",
        where=op.where,
        axes=(*op.axes, t),
        states=states,
        bodies=bodies,
        dims=(len(op.axes),),
        reverse=False,
    )


def keeping_values(scan: Scan) -> tuple[Scan, dict[Expr, Expr]]:
    """The scan with more outputs, which nothing in it reads, and for each node so kept the read of it."""
    reach = guards_of(scan.bodies)
    nodes = [n for n in scan.nodes if isinstance(n, Apply) and n.fn in KEPT and n.dtype.is_float]
    nodes = [n for n in nodes if not any(n is b for b in scan.bodies)]
    shape = scan.shape_of(0)
    states = tuple(ScanState(name=scan.name, where=scan.where, shape=shape, dtype=n.dtype).output() for n in nodes)
    kept = tuple(fn.select_node(askable(reach[n]), n, Const(0.0, n.dtype)) for n in nodes)
    made = replace(scan, states=(*scan.states, *states), bodies=(*scan.bodies, *kept))
    first = len(scan.bodies)
    return made, {n: Read(made.output(first + k), made.axes) for k, n in enumerate(nodes)}


def _positions(axes: tuple[Axis, ...], t: Axis) -> dict[Expr, Expr]:
    """Each reduction axis as a function of the flat step, last axis fastest."""
    position: dict[Expr, Expr] = {}
    rest: Expr = t
    for depth, axis in enumerate(reversed(axes)):
        assert axis.extent is not None
        outermost = depth == len(axes) - 1
        length = fn.maximum(axis.extent, 1)  # of no step, there is none to divide
        position[axis] = (rest if outermost else rest % length) + axis.begin
        rest = rest if outermost else rest // length
    return position


def _combined(reduction: Reduce, before: tuple[Expr, ...], values: tuple[Expr, ...]) -> tuple[Expr, ...]:
    reducer = reduction.reducer
    if reducer.kind == "prod":
        return (before[0] * values[0],)
    formals: dict[Expr, Expr] = dict(zip((*reducer.left, *reducer.right), (*before, *values), strict=True))
    return tuple(substitute(r, formals) for r in reducer.results)
