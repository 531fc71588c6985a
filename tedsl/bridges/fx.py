"""`te.from_fx`: graphs of torch.fx as pure tensors, in-place operations, views and buffers included.

A graph is first brought to operations of ATen on views of memory, by running it once on copies of the example inputs
(`aten_graph`); every operation then runs on the traced arrays of `te.functionalize`, which know views and memory. What
PyTorch has a decomposition for into simpler operations is decomposed, so that the table of operations stays short.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Sequence
from typing import Any

import tedsl.bridges.fx_indexing
import tedsl.bridges.fx_layers  # noqa: F401 - their rows
from tedsl.analysis.foreign import array_of, is_torch
from tedsl.analysis.nests import PLAIN
from tedsl.bridges.fx_decomposed import decompositions
from tedsl.bridges.fx_masked import Selections
from tedsl.bridges.fx_rows import apply, fresh, is_known, is_view_in_place, kind_of, run_row
from tedsl.lang.errors import AliasError, user_location
from tedsl.lang.operators import Fn
from tedsl.lang.tensor import Tensor
from tedsl.mutation.array import Array, lowered, new_array
from tedsl.mutation.functional import Functionalized, Traced
from tedsl.mutation.layouts import ghost_with
from tedsl.mutation.selected import Selected
from tedsl.mutation.tracing import active_trace

__all__ = ["FxFunction", "UnsupportedNode", "aten_graph", "from_fx", "name_of", "traced_function"]


class UnsupportedNode(NotImplementedError):
    """A node of a graph that has no row; its name and operation are in the message."""


def from_fx(graph_module: Any, example_inputs: Sequence[Any], *, interpreted: bool = False) -> FxFunction:
    """A torch.fx graph, before or after decomposition to ATen, as a callable without mutation inside.

    It is called like the graph module; mutated inputs and buffers are written back when everything is computed. Its
    `.inputs`, `.outputs`, `.mutated` ({input: new value}) and `.copies` are the pure form for the example inputs.
    """
    if not hasattr(graph_module, "graph") or not hasattr(graph_module.graph, "nodes"):
        raise TypeError(
            f"te.from_fx at {user_location()}: expected a torch.fx.GraphModule, found {type(graph_module).__name__}; "
            "make one with torch.fx.symbolic_trace(module)"
        )
    if not isinstance(example_inputs, (list, tuple)):
        raise TypeError(
            f"te.from_fx at {user_location()}: example_inputs is a list of inputs, found "
            f"{type(example_inputs).__name__}; write [x] for a graph of one input"
        )
    return FxFunction(graph_module, tuple(example_inputs), interpreted)


class FxFunction:
    """A graph module whose nodes run as one pure program."""

    def __init__(self, graph_module: Any, example_inputs: tuple[Any, ...], interpreted: bool) -> None:
        self.module = graph_module
        self._state = {
            name: value
            for found in (graph_module.named_parameters(), graph_module.named_buffers())
            for name, value in found
        }
        self._names = [n.name for n in graph_module.graph.nodes if n.op == "placeholder"]
        self._check_inputs(example_inputs)
        self._interpreted = interpreted
        self._made: dict[Any, tuple[Any, Functionalized]] = {}
        self.graph, run = self._for(example_inputs)
        self._pure: Traced = run.pure(*self._state.values(), *example_inputs)

    def _for(self, inputs: Sequence[Any]) -> tuple[Any, Functionalized]:
        """The graph of ATen for inputs like these, whose sizes and strides enter it as numbers, and its program."""
        key = tuple(map(_kind, (*self._state.values(), *inputs)))
        if key not in self._made:
            graph = aten_graph(self.module, self._state, inputs)
            function = traced_function(graph, [*(k.replace(".", "_") for k in self._state), *self._names])
            self._made[key] = graph, Functionalized(function, self._interpreted, recorded=True)
        return self._made[key]

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """Parameters and buffers, then the inputs of the graph, as placeholders."""
        return self._pure.inputs

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        return self._pure.outputs

    @property
    def mutated(self) -> dict[Tensor, Tensor]:
        """The inputs, parameters and buffers that the graph writes, with their new values."""
        return self._pure.mutated

    @property
    def copies(self) -> list[tuple[str, str]]:
        return self._pure.copies

    def __call__(self, *inputs: Any) -> Any:
        self._check_inputs(inputs)
        return self._for(inputs)[1](*self._state.values(), *inputs)

    def __repr__(self) -> str:
        return f"<function of a graph, {', '.join(self._names)}>\n{self._pure}"

    def _check_inputs(self, inputs: Sequence[Any]) -> None:
        names = self._names
        if len(inputs) != len(names):
            raise TypeError(f"te.from_fx: the graph takes {len(names)} inputs ({', '.join(names)}), not {len(inputs)}")
        for name, value in zip(names, inputs, strict=True):
            if not is_torch(value) and not isinstance(value, PLAIN):
                raise TypeError(
                    f"te.from_fx: input {name!r} is a {type(value).__name__}; graphs take tensors of PyTorch or numbers"
                )


def _kind(value: Any) -> Any:
    """What a graph depends on: of a tensor all but its elements, and any other value itself."""
    if hasattr(value, "stride"):
        return tuple(value.shape), tuple(value.stride()), str(value.dtype)
    return type(value), value


def aten_graph(module: Any, state: dict[str, Any], inputs: Sequence[Any]) -> Any:
    """The graph as operations of ATen on (state, inputs), found by running it on copies.

    Each node says in meta["of"] which node of `module` it comes from.
    """
    import torch
    from torch.fx.experimental.proxy_tensor import get_proxy_mode, make_fx

    selections = Selections()

    class Noting(torch.fx.Interpreter):  # type: ignore[misc]
        def run_node(self, node: Any) -> Any:
            mode = get_proxy_mode()
            before = {} if mode is None else set(mode.tracer.graph.nodes)
            found = super().run_node(node)
            if mode is not None:
                made = [n for n in mode.tracer.graph.nodes if n not in before]
                for operation in made:
                    operation.meta["of"] = node.name
                problem = selections.note(node, made, found)
                if problem is not None:
                    raise UnsupportedNode(f"te.from_fx: node {node.name!r} is not supported: {problem}")
            return found

    def run(*given: Any) -> Any:
        values = dict(zip(state, given, strict=False))
        with torch.nn.utils.stateless._reparametrize_module(module, values):
            return Noting(module).run(*given[len(state) :])

    def copied(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        plain = value.detach()
        if any(s == 0 and n > 1 for s, n in zip(value.stride(), value.shape, strict=True)):
            return plain.clone()
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device).copy_(plain)

    with torch.no_grad():
        made = make_fx(run, decomposition_table=decompositions())(*map(copied, (*state.values(), *inputs)))
    for node in made.graph.nodes:
        _check_known(node)
    return made


def _check_known(node: Any) -> None:
    if node.op != "call_function" or node.target is operator.getitem:
        return
    if not node.users and not _is_mutating(node):
        return
    name = name_of(node.target)
    if name is None or not is_known(name):
        raise UnsupportedNode(
            f"te.from_fx: node {node.meta.get('of', node.name)!r} calls {node.target}, which is not supported; "
            "compile the module with torch.compile(model, backend='tedsl'), which leaves it to PyTorch"
        )


def _is_mutating(node: Any) -> bool:
    schema = getattr(node.target, "_schema", None)
    return schema is not None and bool(schema.is_mutable)


def name_of(target: Any) -> str | None:
    """The name of an operation of ATen without its overload, of a Python operator as ATen's."""
    schema = getattr(target, "_schema", None)
    if schema is not None:
        space, _, name = str(schema.name).partition("::")
        return name if space in ("aten", "prims") else None
    return None


def traced_function(graph_module: Any, names: Sequence[str]) -> Callable[..., Any]:
    """A function of traced arrays that runs a graph of ATen."""

    def function(*values: Any) -> Any:
        return _Run(graph_module).run(values)

    taken: dict[str, int] = {}
    parameters = []
    for given in names:
        name = given if given.isidentifier() else f"p_{given}"
        taken[name] = taken.get(name, -1) + 1
        unique = name if not taken[name] else f"{name}_{taken[name]}"
        parameters.append(inspect.Parameter(unique, inspect.Parameter.POSITIONAL_ONLY))
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    function.__name__ = "graph"
    return function


class _Run:
    """One run of a graph on traced arrays."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self.values: dict[Any, Any] = {}

    def run(self, given: Sequence[Any]) -> Any:
        inputs = iter(given)
        for node in self.module.graph.nodes:
            if node.op == "placeholder":
                self.values[node] = next(inputs)
            elif node.op == "output":
                return self._result(node.args[0])
            elif node.op == "get_attr":
                self.values[node] = self._constant(node.target)
            elif node.users or _is_mutating(node):
                self.values[node] = self._called(node)
        return None

    def _result(self, value: Any) -> Any:
        found = self._at(value)
        if any(isinstance(v, Selected) for v in (found if isinstance(found, list) else [found])):
            raise UnsupportedNode(
                "te.from_fx: a result of the graph is x[mask], and the length of x[mask] depends on values; return "
                "torch.where(mask, x, 0), or its sum"
            )
        return found

    def _constant(self, target: str) -> Any:
        value = operator.attrgetter(target)(self.module)
        trace = active_trace()
        assert trace is not None
        return fresh(lowered(array_of(value), trace))

    def _called(self, node: Any) -> Any:
        args, kwargs = self._at(list(node.args)), self._at(dict(node.kwargs))
        name = name_of(node.target)
        if name is None:
            return node.target(*args, **kwargs)
        if name == "sym_size":
            return args[0].shape[args[1]]
        try:
            if is_view_in_place(name):
                return self._seen_anew(args[0], run_row(name.removesuffix("_"), args, kwargs))
            found = run_row(name, args, kwargs)
        except (NotImplementedError, TypeError, KeyError, ValueError) as error:
            if isinstance(error, AliasError):
                raise
            where = f"te.from_fx: node {node.meta.get('of', node.name)!r}"
            raise UnsupportedNode(f"{where} calls {node.target}, which is not supported here: {error}") from error
        return found if _is_mutating(node) else _typed(found, node.meta.get("val"), self._storages(args))

    def _seen_anew(self, old: Array, new: Array) -> Array:
        """`old` has become another view of its memory, wherever it is used from here on."""
        if any(value is old for node, value in self.values.items() if node.op == "placeholder"):
            raise NotImplementedError("it changes the shape of an input, for its owner too; use the form without _")
        self.values.update({node: new for node, value in self.values.items() if value is old})
        return new

    def _storages(self, value: Any) -> set[int]:
        """The memories of arrays among arguments."""
        if isinstance(value, (list, tuple)):
            return {s for v in value for s in self._storages(v)}
        return {id(value.storage)} if isinstance(value, Array) else set()

    def _at(self, value: Any) -> Any:
        """An argument with nodes replaced by their values."""
        if isinstance(value, (list, tuple)):
            return [self._at(v) for v in value]
        if isinstance(value, dict):
            return {k: self._at(v) for k, v in value.items()}
        return self.values.get(value, value) if type(value).__name__ == "Node" else value


def _typed(found: Any, expected: Any, known: set[int]) -> Any:
    """A result in the dtype and, in memory of its own, in the layout that PyTorch gives it."""
    if isinstance(found, (list, tuple)):
        wanted = expected if isinstance(expected, (list, tuple)) else [None] * len(found)
        return [_typed(f, e, known) for f, e in zip(found, wanted, strict=False)]
    if not isinstance(found, (Array, Selected)) or not hasattr(expected, "dtype"):
        return found
    kind = kind_of(expected.dtype)
    if isinstance(found, Selected):
        return found if found.full.dtype is kind else found.cast(kind)
    if found.storage.dtype is not kind:
        found = apply(Fn.CAST, found, kind)
    return found if id(found.storage) in known else _laid_out(found, expected)


def _laid_out(x: Array, expected: Any) -> Array:
    """A new array, its axes in memory as PyTorch has them, so that its views are views here, too."""
    strides = tuple(expected.stride())
    if not all(isinstance(s, int) for s in strides) or tuple(expected.shape) != x.shape or 0 in x.shape:
        return x
    if strides == x.ghost.strides or any(s == 0 and n > 1 for s, n in zip(strides, x.shape, strict=True)):
        return x
    return new_array(x.trace, x.value, order=ghost_with(x.shape, strides)[1], is_value=False)
