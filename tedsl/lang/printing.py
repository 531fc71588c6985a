"""The text of tensors and programs: `C[i, j] = sum(k < 64) A[i, k] * B[k, j]   for i < n, j < m`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import groupby

from tedsl.lang.expr import TRUE, Axis, Const, Expr, Reduce
from tedsl.lang.extents import simplify_extent
from tedsl.lang.phases import part_shown, unpacked
from tedsl.lang.reducers import BUILTIN
from tedsl.lang.scalar_text import Names, Style, expression_text, lines_of
from tedsl.lang.shortened import shortened
from tedsl.lang.tensor import Compute, Constant, Extern, Operation, Placeholder, Scan, Scatter, Tensor
from tedsl.lang.traverse import stages_of, topological

__all__ = [
    "abridged", "definition_text", "kind_of", "names_in", "program_text", "stages_text", "tensor_text", "writer_of",
]  # fmt: skip

MOST_PARTS, FEW_PARTS = 16, 4  # that are listed of a formula, and of one that has more
WIDEST = 320  # characters of a line

_ASSIGN = {"add": "+=", "mul": "*=", "max": "max=", "min": "min="}
_IDENTITY_OF = {"add": "sum", "mul": "prod", "max": "max", "min": "min"}


def tensor_text(tensor: Tensor) -> str:
    """The definition of one tensor (with the other outputs of its loop nest)."""
    style = _listing()
    shown = part_shown(tensor.op)
    return definition_text(tensor.op if shown is None else shown[0], style)


def abridged(text: str) -> str:
    """A text for people: of a long formula, as of a random number, the first of its shared parts, and their number."""
    made: list[str] = []
    for is_part, group in groupby(text.split("\n"), lambda line: line.lstrip().startswith("with ")):
        lines = list(group)
        if is_part and len(lines) > MOST_PARTS:
            indent, left = lines[0].partition("with ")[0], len(lines) - FEW_PARTS
            lines[FEW_PARTS:] = [f"{indent}... and {left} more shared parts: te.display.program(...).text has them all"]
        made += [shortened(line, WIDEST) for line in lines]
    return "\n".join(made)


def program_text(outputs: Tensor | Iterable[Tensor]) -> str:
    """Every stage that the outputs need, inputs first, under names that are unique in the program."""
    stages = stages_of([outputs] if isinstance(outputs, Tensor) else list(outputs))
    return stages_text(stages, names_in(stages))


def stages_text(stages: Iterable[Operation], names: Names) -> str:
    """The definitions of some stages of a program, one below the other, under its names."""
    style = replace(_listing(), names=names)
    return "\n".join(definition_text(op, style) for op in stages if not part_shown(op))


def writer_of(op: Operation, names: Names) -> Callable[[Sequence[Expr]], list[str]]:
    """What writes expressions of an operation as its definition has them, under the same names of tensors and axes."""
    own: list[Names] = []
    definition_text(op, replace(_listing(), names=names), own.append)
    (known,) = own

    def write(exprs: Sequence[Expr]) -> list[str]:
        axes = [node for node in topological(exprs) if isinstance(node, Axis)]
        inner = known if all(known.has(a) for a in axes) else names.inner()  # axes that take the place of its own
        style = replace(_listing(), names=inner)
        return [expression_text(e, style).rpartition("\n")[2] for e in exprs]  # shared parts are told by names alone

    return write


def names_in(stages: Iterable[Operation]) -> Names:
    """The names of the tensors of a program, those of one name told apart by numbers, as schedules do."""
    names = Names()
    _give_names(names, stages)
    return names


def _give_names(names: Names, stages: Iterable[Operation]) -> None:
    """Names for the tensors of a program, unique in it; the parts of a packed scan have theirs wherever they are."""
    stages = list(stages)
    for op in stages:
        if isinstance(op, Scan) and op.parts:
            for k, tensor in enumerate(op.outputs):
                names.alias(tensor, ", ".join(names.of(op.handles[p]) for p in op.parts if p.output == k))
        elif not part_shown(op):
            for tensor in op.outputs:
                names.of(tensor)
    for op in stages:
        shown = part_shown(op)
        if shown is not None:
            scan, part = shown
            names.alias(op.output(0), names.of(scan.handles[part]))


def kind_of(op: Operation) -> str:
    """What a stage is, in one word."""
    if isinstance(op, Compute) and op.reduction is not None:
        return "reduction"
    names: dict[type, str] = {
        Placeholder: "input",
        Constant: "constant",
        Scan: "scan",
        Scatter: "scatter",
        Extern: "function",
    }
    return names.get(type(op), "pointwise")


def _listing() -> Style:
    return Style(prefix="", empty_index="", names=Names(), tidy=True)


def definition_text(op: Operation, style: Style, name_axes: Callable[[Names], object] = lambda names: None) -> str:
    """The definition of all outputs of one operation, under the names of a style; its axes are named first."""
    for extent in (e for t in op.outputs for e in t.extents):
        expression_text(extent, style)  # extents come before axes when names are given
    style = replace(style, names=style.names.inner())
    name_axes(style.names)
    if isinstance(op, Compute):
        return _compute(op, style)
    if isinstance(op, Scan):
        return _scan(op, style)
    if isinstance(op, Scatter):
        return _scatter(op, style)
    if isinstance(op, Extern):
        return _extern(op, style)
    return "\n".join(_typed(t, style) for t in op.outputs)


def _typed(tensor: Tensor, style: Style) -> str:
    return f"{style.names.of(tensor)} : {tensor.dtype}[{', '.join(expression_text(e, style) for e in tensor.extents)}]"


def _heads(op: Compute | Scan, style: Style) -> str:
    index = f"[{', '.join(style.names.of(a) for a in op.axes)}]" if op.axes else ""
    return ", ".join(style.names.of(t) + index for t in op.outputs)


def _compute(op: Compute, style: Style) -> str:
    heads = _heads(op, style)
    first = op.reduction
    if first is None:
        *lets, body = _bodies(op.bodies, style)
        return _joined(f"{heads} = {body}", _ranges(op.axes, style), lets)
    roots = first.values if first.where is TRUE else (*first.values, first.where)
    lines = lines_of(roots, style)
    count = len(lines) - len(roots)
    values, guard = lines[count : count + len(first.values)], lines[count + len(first.values) :]
    axes = ", ".join([_range(a, style) for a in first.axes] + [f"where {g}" for g in guard])
    value = f"({', '.join(values)})" if len(values) > 1 else values[0]
    lets = lines[:count] + ([_combining(first, style)] if first.reducer.is_custom else [])
    return _joined(f"{heads} = {first.reducer.title}({axes}) {value}", _ranges(op.axes, style), lets)


def _combining(reduce: Reduce, style: Style) -> str:
    """What a custom reducer does: reducer(a, b) = ..., identity ..."""
    reducer = reduce.reducer
    *lets, results = _bodies(reducer.results, style)
    arguments = ", ".join(_tuple([style.names.of(f) for f in side]) for side in (reducer.left, reducer.right))
    identity = _tuple([expression_text(c, style) for c in reducer.identity])
    results = f"({results})" if len(reducer.results) > 1 else results
    return "; ".join([*lets, f"{reducer.name}({arguments}) = {results}, identity {identity}"])


def _tuple(texts: list[str]) -> str:
    return texts[0] if len(texts) == 1 else f"({', '.join(texts)})"


def _bodies(bodies: tuple[Expr, ...], style: Style) -> list[str]:
    """Lines of shared parts, then all bodies on one line."""
    lines = lines_of(bodies, style)
    count = len(lines) - len(bodies)
    return [*lines[:count], ", ".join(lines[count:])]


def _packed(op: Scan, style: Style) -> str:
    """A line for each part, in the order of a step."""
    order = "downward" if op.reverse else "in order"
    around = op.axes[: op.dims[-1]]
    steps = ", ".join(_range(a, style) + (f" {order}" if a in set(op.steps) else "") for a in around)
    lines = [f"for {steps}:"]
    for made in unpacked(op):
        inner = replace(style, names=style.names.inner())
        index = f"[{', '.join(inner.names.of(a) for a in made.axes)}]"
        *lets, body = _bodies((made.body,), inner)
        text = _joined(f"{inner.names.of(made.tensor)}{index} = {body}", _ranges(made.axes[len(around) :], inner), lets)
        lines += [f"    {line}" for line in text.split("\n")]
    return "\n".join(lines)


def _scan(op: Scan, style: Style) -> str:
    if op.parts:
        return _packed(op, style)
    for state, output in zip(op.states, op.outputs, strict=True):
        style.names.alias(state, style.names.of(output))
    heads = _heads(op, style)
    *lets, body = _bodies(op.bodies, style)
    order = "downward" if op.reverse else "in order"
    order += f", the last {op.kept} kept" if op.kept is not None else ""
    ranges = [_range(a, style) + (f" {order}" if d in op.dims else "") for d, a in enumerate(op.axes)]
    return _joined(f"{heads} = {body}", ", ".join(ranges), lets)


def _scatter(op: Scatter, style: Style) -> str:
    name = style.names.of(op.output())
    if op.init is None:
        start = expression_text(BUILTIN[_IDENTITY_OF[op.kind]].identity_of(op.value.dtype), style)
    else:
        start = style.names.of(op.init)
    guarded = op.guard is not TRUE
    lines = lines_of((*op.index, op.value, op.guard), style)
    count = len(lines) - len(op.index) - 2
    *index, value, guard = lines[count:]
    place = f"{name}[{', '.join(index)}]" if index else name
    ranges = ", ".join([_ranges(op.axes, style)] * bool(op.axes) + [f"where {guard}"] * guarded)
    return _joined(f"{_typed(op.output(), style)} = {start}; {place} {_ASSIGN[op.kind]} {value}", ranges, lines[:count])


def _extern(op: Extern, style: Style) -> str:
    outputs = ", ".join(_typed(t, style) for t in op.outputs)
    arguments = ", ".join(style.names.of(t) for t in op.args)
    impure = "" if op.pure else "   on each call"
    return f"{outputs} = {getattr(op.function, '__name__', 'extern')}({arguments}){impure}"


def _ranges(axes: tuple[Axis, ...], style: Style) -> str:
    return ", ".join(_range(a, style) for a in axes)


def _range(axis: Axis, style: Style) -> str:
    """k < 64, or 2 <= k < 5."""
    name = style.names.of(axis)
    if axis.extent is None:
        return name
    if isinstance(axis.begin, Const) and axis.begin.value == 0:
        return f"{name} < {expression_text(axis.extent, style)}"
    end = simplify_extent(axis.begin + axis.extent)
    return f"{expression_text(axis.begin, style)} <= {name} < {expression_text(end, style)}"


def _joined(line: str, ranges: str, lets: list[str]) -> str:
    head = f"{line}   for {ranges}" if ranges else line
    return "\n".join([head, *(f"    with {let}" for let in lets)])


Expr._text = staticmethod(expression_text)
Tensor._methods["text"] = lambda tensor: abridged(tensor_text(tensor))
