"""Sizes of symbolic extents: bound from the shapes of the arrays given, and extents evaluated with them.

The reference evaluator, the kernel and the work counts all ask here, so that they agree and speak with one voice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from itertools import pairwise
from typing import Any

import numpy as np

from tedsl.lang.errors import ZeroDivisorError
from tedsl.lang.expr import SIZE_MAX, Apply, Axis, Const, Expr, Fn, Read, Reduce, Var
from tedsl.lang.tensor import Operation, Scatter, Tensor
from tedsl.lang.traverse import operations_between, topological

__all__ = [
    "EXACT",
    "NamedSizes",
    "axis_length",
    "bind_sizes",
    "check_sizes",
    "concrete_shape",
    "evaluate_extent",
    "known_shape",
    "sizes_of",
    "sizes_of_operations",
    "vars_of",
]

NamedSizes = Mapping[Var, int] | Mapping[str, int] | Mapping[Var | str, int]  # as users give them

MOST_TRIED = 64  # sizes, for a message

_Dimension = tuple[Tensor, int, Expr, int]  # input, dimension, extent, the number found

# Integer operations in unbounded arithmetic.
EXACT: dict[Fn, Callable[..., int]] = {
    Fn.ADD: lambda a, b: a + b, Fn.SUB: lambda a, b: a - b, Fn.MUL: lambda a, b: a * b, Fn.NEG: lambda a: -a,
    Fn.FLOORDIV: lambda a, b: a // b, Fn.MOD: lambda a, b: a % b, Fn.MINIMUM: min, Fn.MAXIMUM: max, Fn.ABS: abs,
    Fn.CLIP: lambda x, low, high: min(max(x, low), high), Fn.RELU: lambda x: max(x, 0), Fn.CAST: lambda x: int(x),
    Fn.SIGN: lambda x: (x > 0) - (x < 0), Fn.SELECT: lambda c, a, b: a if c else b,
    Fn.EQ: lambda a, b: a == b, Fn.NE: lambda a, b: a != b, Fn.LT: lambda a, b: a < b, Fn.LE: lambda a, b: a <= b,
    Fn.GT: lambda a, b: a > b, Fn.GE: lambda a, b: a >= b,
    Fn.AND: lambda a, b: a and b, Fn.OR: lambda a, b: a or b, Fn.NOT: lambda a: not a,
    Fn.LSHIFT: lambda a, b: a << b, Fn.RSHIFT: lambda a, b: a >> b,
    Fn.BITAND: lambda a, b: a & b, Fn.BITOR: lambda a, b: a | b, Fn.BITXOR: lambda a, b: a ^ b, Fn.INVERT: lambda a: ~a,
    Fn.POW: lambda a, b: a**b,
}  # fmt: skip
_LINEAR = frozenset({Fn.ADD, Fn.SUB, Fn.MUL, Fn.NEG})


def vars_of(expr: Expr) -> list[Var]:
    """The symbolic sizes in an extent, in order of use."""
    return [node for node in topological(expr) if isinstance(node, Var)]


def sizes_of(inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> list[Var]:
    """Every symbolic extent of the program that computes the outputs, in a fixed order."""
    return sizes_of_operations(tuple(dict.fromkeys(inputs)), operations_between(inputs, outputs))


def sizes_of_operations(inputs: Sequence[Tensor], operations: Sequence[Operation]) -> list[Var]:
    """Every symbolic extent of the program, in a fixed order."""
    nodes = topological(e for t in inputs for e in t.extents)
    for op in operations:
        nodes += topological(e for t in op.outputs for e in t.extents)
        nodes += op.nodes
    found: dict[Var, None] = {}
    while nodes:
        symbols = [n for n in nodes if not isinstance(n, (Apply, Const, Read))]
        found.update((n, None) for n in symbols if isinstance(n, Var))
        axes = [n for n in symbols if isinstance(n, Axis)] + [
            a for n in symbols if isinstance(n, Reduce) for a in n.axes
        ]
        nodes = topological(e for a in dict.fromkeys(axes) for e in (a.begin, a.extent) if e is not None)
    for op in operations:
        if isinstance(op, Scatter):
            found.update(
                (v, None)
                for a in op.axes
                for e in (a.begin, a.extent)
                if e is not None
                for v in topological(e)
                if isinstance(v, Var)
            )
    return list(found)


def known_shape(tensor: Tensor) -> tuple[int, ...] | None:
    """The shape of a tensor whose extents are numbers."""
    found = tuple(int(e.value) for e in tensor.extents if isinstance(e, Const))
    return found if len(found) == tensor.ndim else None


def evaluate_extent(expr: Expr, sizes: Mapping[Var, int], what: str = "te") -> int:
    """The value of an extent, whatever its sign; ValueError where a size is missing."""
    if isinstance(expr, Const):
        return int(expr.value)
    value: dict[Expr, int] = {}
    for node in topological(expr):
        if isinstance(node, Const):
            value[node] = int(node.value)
        elif isinstance(node, Var):
            if node not in sizes:
                raise ValueError(
                    f"{what}: the size {node.name!r} in the extent `{expr}` is not known from any input; "
                    f"pass sizes={{{node.name}: ...}}"
                )
            value[node] = sizes[node]
        else:
            assert isinstance(node, Apply), f"an extent holds `{node}`"
            value[node] = _exact(node, [value[a] for a in node.args], expr, sizes)
    return value[expr]


def _exact(node: Apply, args: list[int], expr: Expr, sizes: Mapping[Var, int]) -> int:
    if node.fn in (Fn.FLOORDIV, Fn.MOD) and args[1] == 0:
        raise ZeroDivisorError(f"extent `{expr}` divides by zero with {_given(expr, sizes)}")
    return EXACT[node.fn](*args)


def _given(expr: Expr, sizes: Mapping[Var, int]) -> str:
    return ", ".join(f"{v.name} = {sizes[v]}" for v in vars_of(expr)) or "no sizes"


def _checked_extent(expr: Expr, sizes: Mapping[Var, int], place: str, what: str) -> int:
    value = evaluate_extent(expr, sizes, what)
    if not 0 <= value <= SIZE_MAX and not isinstance(expr, Const):
        largest = f"a symbolic extent is at most {SIZE_MAX}: split the axis in two"
        problem = f"an extent cannot be negative{_wanted(expr, sizes, what)}" if value < 0 else largest
        raise ValueError(f"{what}: {place}: extent `{expr}` is {value} with {_given(expr, sizes)}; {problem}")
    return value


def _wanted(expr: Expr, sizes: Mapping[Var, int], what: str) -> str:
    """From which size on an extent of one symbol is none of less than nothing; NumPy's slices are empty before."""
    if len(symbols := vars_of(expr)) != 1:
        return ""
    (symbol,), first = symbols, sizes[symbols[0]] + 1
    for size in range(first, first + MOST_TRIED):
        if evaluate_extent(expr, {symbol: size}, what) >= 0:
            return f": it needs {symbol.name} >= {size}"
    return ""


def concrete_shape(tensor: Tensor, sizes: Mapping[Var, int], what: str = "te") -> tuple[int, ...]:
    """The shape of a tensor in numbers."""
    return tuple(
        _checked_extent(e, sizes, f"dimension {d} of {tensor.name!r} (defined at {tensor.op.where})", what)
        for d, e in enumerate(tensor.extents)
    )


def axis_length(axis: Axis, sizes: Mapping[Var, int], what: str = "te") -> int:
    """The number of values of an axis."""
    assert axis.extent is not None
    return _checked_extent(axis.extent, sizes, f"axis {axis.name!r}", what)


def check_sizes(sizes: Any, what: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> dict[Var, int]:
    """`sizes={n: 3}`, or by names `{"n": 3}`, as given by a user of a program, checked."""
    if sizes is None:
        return {}
    if not isinstance(sizes, Mapping):
        raise TypeError(f"{what}: sizes= takes a dict such as {{'n': 3}}, found {type(sizes).__name__}")
    checked: dict[Var, int] = {}
    for given, value in sizes.items():
        key = _size_named(given, what, sizes_of(inputs, outputs)) if isinstance(given, str) else given
        if not isinstance(key, Var):
            raise TypeError(
                f"{what}: the keys of sizes= are te.var objects or their names, found {type(key).__name__} "
                f"({key!r:.40}); for n = te.var('n') it is sizes={{n: 3}} or sizes={{'n': 3}}"
            )
        if key in checked:
            raise ValueError(f"{what}: sizes= has two numbers for {key.name}; give one")
        if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
            found = f"{type(value).__name__} ({value!r:.40})"
            raise TypeError(f"{what}: sizes[{key.name}] must be an integer, found {found}")
        if not 0 <= value <= SIZE_MAX:
            raise ValueError(f"{what}: sizes[{key.name}] must be from 0 to {SIZE_MAX}, found {value}")
        checked[key] = int(value)
    return checked


def _size_named(name: str, what: str, known: Sequence[Var]) -> Var:
    """The one size of this name that a program has."""
    alike = [v for v in known if v.name == name]
    if len(alike) == 1:
        return alike[0]
    if alike:
        raise ValueError(
            f"{what}: {name!r} is the name of {len(alike)} sizes, each te.var makes a new one; give the objects as keys"
        )
    names = [v.name for v in known]
    near = get_close_matches(name, names, n=1)
    told = f"; did you mean {near[0]!r}?" if near else ""
    listed = ", ".join(map(repr, names)) or "no sizes"
    raise ValueError(f"{what}: the program has no size named {name!r}, but {listed}{told}")


def bind_sizes(
    inputs: Sequence[Tensor],
    shapes: Sequence[tuple[int, ...]],
    extra: NamedSizes | None = None,
    what: str = "te",
    outputs: Sequence[Tensor] = (),
) -> dict[Var, int]:
    """The value of every symbolic size, from `extra` and from the shapes given for `inputs`; all shapes are checked.

    `outputs` are those of the program, of whose sizes `extra` may give names.

    A dimension `n` gives n, and one that is linear in a single unknown size (`2*n + 1`) is solved for it.
    """
    sizes = check_sizes(extra, what, inputs, outputs)
    origin = dict.fromkeys(sizes, "sizes=")
    dims = [dim for tensor, shape in zip(inputs, shapes, strict=True) for dim in _dimensions(tensor, shape, what)]
    waiting = [dim for dim in dims if not isinstance(dim[2], Const)]
    while waiting:
        left = [dim for dim in waiting if not _bind(dim, sizes, origin, what)]
        if len(left) == len(waiting):
            break
        waiting = left
    for dim in dims:
        _check_dimension(dim, sizes, origin, what)
    return sizes


def _dimensions(tensor: Tensor, shape: tuple[int, ...], what: str) -> list[_Dimension]:
    if len(shape) != tensor.ndim:
        raise ValueError(
            f"{what}: input {tensor.name!r}: expected {tensor.ndim} dimensions ({tensor!r}, declared at "
            f"{tensor.op.where}), found {len(shape)} (shape {tuple(shape)})"
        )
    return [(tensor, d, extent, shape[d]) for d, extent in enumerate(tensor.extents)]


def _bind(dim: _Dimension, sizes: dict[Var, int], origin: dict[Var, str], what: str) -> bool:
    """Try to learn a size from one dimension; whether nothing more can be learned from it."""
    tensor, d, extent, found = dim
    unknown = [v for v in vars_of(extent) if v not in sizes]
    if not unknown:
        return True
    if len(unknown) > 1 or any(isinstance(n, Apply) and n.fn not in _LINEAR for n in topological(extent)):
        return False
    size = unknown[0]
    at = [evaluate_extent(extent, {**sizes, size: k}, what) for k in range(4)]
    slope = at[1] - at[0]
    if slope == 0 or any(b - a != slope for a, b in pairwise(at)):
        return False
    value, rest = divmod(found - at[0], slope)
    if rest or value < 0:
        raise ValueError(
            f"{what}: input {tensor.name!r}: dimension {d} is `{extent}` with {size.name} a whole number "
            f"of at least 0; no {size.name} gives the extent {found} that was found"
        )
    sizes[size] = value
    origin[size] = f"dimension {d} of {tensor.name!r}"
    return True


def _check_dimension(dim: _Dimension, sizes: Mapping[Var, int], origin: Mapping[Var, str], what: str) -> None:
    tensor, d, extent, found = dim
    expected = _checked_extent(extent, sizes, f"dimension {d} of input {tensor.name!r}", what)
    if expected == found:
        return
    reasons = ", ".join(f"{v.name} = {sizes[v]} from {origin[v]}" for v in vars_of(extent))
    because = f" = `{extent}` ({reasons})" if reasons else ""
    raise ValueError(
        f"{what}: input {tensor.name!r}: expected extent {expected}{because} in dimension {d}, found {found}; "
        f"it was declared {tensor!r} at {tensor.op.where}"
    )
