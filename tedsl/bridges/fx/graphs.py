"""`te.from_fx`: graphs of torch.fx as pure tensors, in-place operations, views and buffers included.

A graph is first brought to operations of ATen on views of memory, by running it once on copies of the example inputs
(`aten_graph`); every operation then runs on the traced arrays of `te.functionalize`, which know views and memory. What
PyTorch has a decomposition for into simpler operations is decomposed, so that the table of operations stays short.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from tedsl.analysis.arrays.nests import PLAIN
from tedsl.bridges.fx.arguments import UnsupportedArgument, bound, name_of
from tedsl.bridges.fx.decomposed import decompositions
from tedsl.bridges.fx.interpreter import UnsupportedNode, is_writing, traced_function
from tedsl.bridges.fx.masked import Selections
from tedsl.bridges.fx.rows.table import is_known
from tedsl.lang.errors import user_location
from tedsl.lang.foreign import is_torch
from tedsl.lang.keywords import own_arguments
from tedsl.lang.tensor import Tensor
from tedsl.mutation.functional import Functionalized, PureForm

__all__ = ["FxFunction", "aten_graph", "from_fx"]


@own_arguments()
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
    return FxFunction(graph_module, tuple(map(_example, example_inputs)), interpreted)


def _example(value: Any) -> Any:
    """An example input; of a size that torch.compile holds open, the number that it has at present."""
    return value.node.hint if type(value).__name__ in ("SymInt", "SymFloat", "SymBool") else value


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
        self._pure: PureForm = run.pure(*self._state.values(), *example_inputs)

    def _for(self, inputs: Sequence[Any]) -> tuple[Any, Functionalized]:
        """The graph of ATen for inputs like these, whose sizes and strides enter it as numbers, and its program."""
        key = tuple(map(_kind, (*self._state.values(), *inputs)))
        if key not in self._made:
            graph = aten_graph(self.module, self._state, inputs)
            function = traced_function(graph, [*(k.replace(".", "_") for k in self._state), *self._names])
            self._made[key] = graph, Functionalized(function, self._interpreted, of_torch=True)
        return self._made[key]

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """Parameters and buffers, then the inputs of the graph, as placeholders."""
        return self._pure.inputs

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """What the graph returns, as tensors over `inputs`."""
        return self._pure.outputs

    @property
    def mutated(self) -> dict[Tensor, Tensor]:
        """The inputs, parameters and buffers that the graph writes, with their new values."""
        return self._pure.mutated

    @property
    def copies(self) -> list[tuple[str, str]]:
        """What had to be copied, and why."""
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
    if not node.users and not is_writing(node):
        return
    name = name_of(node.target)
    reason = ""
    if name is None or not is_known(name):
        reason = "which is not supported"
    else:
        try:
            bound(node.target, node.args, node.kwargs)
        except UnsupportedArgument as error:
            reason = f"where {error}"
    if reason:
        raise UnsupportedNode(
            f"te.from_fx: node {node.meta.get('of', node.name)!r} calls {node.target}, {reason}; "
            "compile the module with torch.compile(model, backend='tedsl'), which leaves it to PyTorch",
            node,
        )
