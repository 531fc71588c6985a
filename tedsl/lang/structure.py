"""Equality of programs: a key that two programs share when they compute the same in the same way.

A program is written as lines, one per node: operands by the number of their line within the stage, axes, extents and
tensors by the order of their first use. So neither object ids, nor names (unless asked for), nor places in source files
enter, and a program built again, or in another process, has the key it had.
"""

from __future__ import annotations

import hashlib
import itertools
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tedsl.lang.expr import Apply, Axis, Const, Expr, Formal, Read, Reduce, Var
from tedsl.lang.native import Native
from tedsl.lang.reducers import Reducer
from tedsl.lang.tensor import Compute, Constant, Extern, IndexFacts, Operation, Placeholder, Scan, Scatter, Tensor
from tedsl.lang.traverse import operations_between, stages_of, topological

__all__ = ["same_program", "structural_key"]


def structural_key(
    outputs: Tensor | Iterable[Tensor],
    inputs: Sequence[Tensor] | None = None,
    *,
    names: bool = False,
    between: bool = False,
) -> str:
    """A SHA-256 of the program that computes `outputs` (from `inputs` in that order); names enter if asked for.

    `between`: of the inputs only dtype and shape count, not what computes them.
    """
    lines = _between(outputs, inputs or (), names) if between else _serial(outputs, inputs, names)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def same_program(
    a: Tensor | Iterable[Tensor],
    b: Tensor | Iterable[Tensor],
    a_inputs: Sequence[Tensor] | None = None,
    b_inputs: Sequence[Tensor] | None = None,
    *,
    names: bool = False,
) -> bool:
    """Whether two programs are the same but for the objects they are made of (and, unless asked for, their names)."""
    return _serial(a, a_inputs, names) == _serial(b, b_inputs, names)


def _serial(outputs: Tensor | Iterable[Tensor], inputs: Sequence[Tensor] | None, names: bool) -> list[str]:
    results = [outputs] if isinstance(outputs, Tensor) else list(outputs)
    writer = _Writer(names)
    given = list(inputs or ())
    writer.fed = {tensor.op for tensor in given}
    for op in stages_of(results):
        writer.stage(op)
    for tensor in given:
        if tensor.op not in writer.stages:
            writer.stage(tensor.op)
    writer.lines.append(f"outputs {writer.tensors(results)}")
    if inputs is not None:
        writer.lines.append(f"inputs {writer.tensors(given)}")
    return writer.lines


def _between(outputs: Tensor | Iterable[Tensor], inputs: Sequence[Tensor], names: bool) -> list[str]:
    results = [outputs] if isinstance(outputs, Tensor) else list(outputs)
    writer = _Writer(names)
    for number, tensor in enumerate(inputs):
        writer.local = {}
        strides = tensor.op.strides if isinstance(tensor.op, Placeholder) else ()
        writer.lines.append(f"input {number} {tensor.dtype} {writer.exprs(tensor.extents)}{_told(strides)}")
        writer.given[tensor] = number
    for op in operations_between(inputs, results):
        writer.stage(op)
    writer.lines.append(f"outputs {writer.tensors(results)}")
    return writer.lines


class _Writer:
    """The lines written so far, and the numbers given to stages and extents."""

    def __init__(self, names: bool) -> None:
        self.names = names
        self.lines: list[str] = []
        self.stages: dict[Operation, int] = {}
        self.given: dict[Tensor, int] = {}
        self.fed: set[Operation] = set()  # operations whose arrays a call hands over
        self.vars: dict[Var, int] = {}
        self.reducers: dict[Reducer, int] = {}
        # Of the stage in hand.
        self.local: dict[Expr, int] = {}
        self.states: dict[Tensor, int] = {}

    def stage(self, op: Operation) -> None:
        self.local, self.states = {}, {}
        number = self.stages[op] = len(self.stages)
        fields = _FIELDS[type(op)](self, op)
        self.lines.append(f"stage {number} {type(op).__name__} {fields}")
        if self.names:
            self.lines.append(f"names {[op.name_of(i) for i in range(op.num_outputs)]!r}")

    def tensors(self, tensors: Iterable[Tensor]) -> str:
        return " ".join(map(self.tensor, tensors))

    def tensor(self, tensor: Tensor) -> str:
        if tensor in self.states:
            return f"state{self.states[tensor]}"
        if tensor in self.given:
            return f"input{self.given[tensor]}"
        return f"{self.stages[tensor.op]}.{tensor.index}"

    def exprs(self, roots: Iterable[Expr]) -> str:
        """The numbers of the roots, after a line for each node below them that has none yet."""
        local, numbers = self.local, []
        for root in roots:
            if root not in local:
                self.write(topological(root) if root.children else (root,))
            numbers.append(str(local[root]))
        return ",".join(numbers)

    def write(self, nodes: Iterable[Expr]) -> None:
        """A line for each node that has none yet; operands come before users."""
        local, lines = self.local, self.lines
        for node in nodes:
            if node not in local:
                text = _LINES[type(node)](self, node)
                local[node] = len(local)
                lines.append(text)

    def apply(self, node: Apply) -> str:
        return f"{node.fn.value} {node.dtype} {self.numbers(node.args)}"

    def const(self, node: Const) -> str:
        value = node.value.hex() if isinstance(node.value, float) else repr(node.value)
        return f"const {node.dtype} {value}"

    def read(self, node: Read) -> str:
        return f"read {self.tensor(node.tensor)} {self.numbers(node.indices)}"

    def var(self, node: Var) -> str:
        return f"var {self.vars.setdefault(node, len(self.vars))}"

    def formal(self, node: Formal) -> str:
        return f"formal {len(self.local)} {node.dtype}"

    def reduce(self, node: Reduce) -> str:
        return (
            f"reduce {self.reducer(node.reducer)} {self.numbers(node.values)} over {self.axes(node.axes)} "
            f"where {self.local[node.where]} part {node.index}"
        )

    def axis(self, axis: Axis) -> str:
        extent = self.exprs((axis.begin, axis.extent)) if axis.extent is not None else "?"
        return f"axis {len(self.local)} {extent} {axis.is_reduce}"

    def numbers(self, nodes: Iterable[Expr]) -> str:
        """The numbers of nodes that have some."""
        local = self.local
        return ",".join([str(local[node]) for node in nodes])

    def axes(self, axes: Iterable[Axis]) -> str:
        return self.exprs(axes)

    def reducer(self, reducer: Reducer) -> str:
        """A builtin by its kind, one of the user's by what it computes."""
        if not reducer.is_custom:
            return reducer.kind
        if reducer not in self.reducers:
            outer, self.local = self.local, {}
            formals, results = self.exprs((*reducer.left, *reducer.right)), self.exprs(reducer.results)
            self.lines.append(f"reducer {formals} {results} {self.exprs(reducer.identity)}")
            self.local = outer
            self.reducers[reducer] = len(self.reducers)
        return f"custom{self.reducers[reducer]}"

    def placeholder(self, op: Placeholder) -> str:
        return f"{op.dtype} {self.exprs(op.shape)}{_told(op.strides)}"

    def constant(self, op: Constant) -> str:
        """By its elements, unless it is among the inputs: their arrays are no part of a program."""
        return self.placeholder(op) if op in self.fed else f"{self.placeholder(op)} {op.digest}"

    def compute(self, op: Compute) -> str:
        axes = self.axes(op.axes)
        self.write(op.nodes)
        return f"{axes} = {self.exprs(op.bodies)}{'' if op.facts is None else self.facts(op.facts)}"

    def facts(self, facts: IndexFacts) -> str:
        """What is said of an index; its inverse is no part of the program."""
        within = "" if facts.within is None else self.exprs(facts.within)
        said = facts.permutation, facts.unique, facts.sorted, facts.inverse is not None, facts.axis
        return f" assumed {said} {within}"

    def scan(self, op: Scan) -> str:
        self.states = {state: number for number, state in enumerate(op.states)}
        parts = "; ".join(f"{p.output} {p.phase} {self.exprs(p.extents)}" for p in op.parts)
        return f"{self.axes(op.axes)} = {self.exprs(op.bodies)} along {op.dims} {op.reverse} {op.kept} {parts}"

    def scatter(self, op: Scatter) -> str:
        init = "" if op.init is None else self.tensor(op.init)
        loops = f"{self.exprs(op.shape)} over {self.axes(op.axes)} where {self.exprs((op.guard,))}"
        return (
            f"{loops} at {self.exprs(op.index)} {op.kind} {self.exprs((op.value,))} from {init}{' unique' * op.unique}"
        )

    def extern(self, op: Extern) -> str:
        shapes = "; ".join(self.exprs(shape) for shape in op.shapes)
        return f"{_number_of(op.function)} {op.pure} {' '.join(op.dtypes)} {shapes} of {self.tensors(op.args)}"


def _told(strides: tuple[int, ...]) -> str:
    return f" by {strides}" if strides else ""


_FIELDS: dict[type, Callable[[_Writer, Any], str]] = {
    Placeholder: _Writer.placeholder,
    Constant: _Writer.constant,
    Compute: _Writer.compute,
    Scan: _Writer.scan,
    Scatter: _Writer.scatter,
    Extern: _Writer.extern,
}

_LINES: dict[type, Callable[[_Writer, Any], str]] = {
    Apply: _Writer.apply,
    Const: _Writer.const,
    Read: _Writer.read,
    Axis: _Writer.axis,
    Var: _Writer.var,
    Formal: _Writer.formal,
    Reduce: _Writer.reduce,
}

# Python functions are told apart by identity; a number is never given twice, as an id is once its function has died.
_NUMBERS = itertools.count()
_FUNCTIONS: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
_KEPT: dict[int, tuple[Any, int]] = {}


def _number_of(function: Callable[..., Any]) -> int | str:
    if isinstance(function, Native):
        return repr(function)
    try:
        return _FUNCTIONS.setdefault(function, next(_NUMBERS))
    except TypeError:  # no weak reference or no hash: kept alive, so that its id stays its own
        return _KEPT.setdefault(id(function), (function, next(_NUMBERS)))[1]
