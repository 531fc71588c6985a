"""A graph of ATen run on traced arrays, row by row; each result is held against PyTorch's, which has no elements."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Sequence
from typing import Any

from tedsl.bridges.fx.arguments import bound, name_of
from tedsl.bridges.fx.reports import reason_of
from tedsl.bridges.fx.rows.arrays import as_kind, fresh, kind_of
from tedsl.bridges.fx.rows.table import is_view_in_place, run_row
from tedsl.lang.errors import AliasError
from tedsl.lang.foreign import array_of
from tedsl.mutation.array import Array, lowered, new_array
from tedsl.mutation.layouts import ghost_with
from tedsl.mutation.selected import Selected
from tedsl.mutation.tracing import active_trace

__all__ = ["SIZES", "UnsupportedNode", "is_writing", "traced_function"]


class UnsupportedNode(NotImplementedError):
    """A node of a graph that cannot be had; its name and operation are in the message, and the reason behind it."""

    def __init__(self, message: str, node: Any = None, reason: str = "") -> None:
        super().__init__(message)
        self.node = node
        self.reason = reason or message


def is_writing(node: Any) -> bool:
    """Whether a node writes into memory that another one made."""
    schema = getattr(node.target, "_schema", None)
    return schema is not None and bool(schema.is_mutable)


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
        self.known: dict[Any, Any] = {}  # PyTorch's own results without memory, where the graph's have symbolic sizes

    def run(self, given: Sequence[Any]) -> Any:
        self.known = _results_for(self.module, given)
        inputs = iter(given)
        for node in self.module.graph.nodes:
            if node.op == "placeholder":
                self.values[node] = next(inputs)
            elif node.op == "output":
                return self._result(node)
            elif node.op == "get_attr":
                self.values[node] = self._constant(node.target)
            elif node.users or is_writing(node):
                self.values[node] = self._called(node)
        return None

    def _result(self, output: Any) -> Any:
        for node in output.all_input_nodes:
            if isinstance(self.values[node], Selected):
                raise UnsupportedNode(
                    "te.from_fx: a result of the graph is x[mask], and the length of x[mask] depends on values; return "
                    "torch.where(mask, x, 0), or its sum",
                    node,
                    "its result has a length that depends on values",
                )
        return self._at(output.args[0])

    def _constant(self, target: str) -> Any:
        value = operator.attrgetter(target)(self.module)
        trace = active_trace()
        assert trace is not None
        return fresh(lowered(array_of(value), trace))

    def _called(self, node: Any) -> Any:
        args, kwargs = self._at(list(node.args)), self._at(dict(node.kwargs))
        try:
            return self._computed(node, args, kwargs)
        except AliasError:
            raise
        except Exception as error:
            where = f"te.from_fx: node {node.meta.get('of', node.name)!r}"
            message = f"{where} calls {node.target}, which is not supported here: {error}"
            raise UnsupportedNode(message, node, reason_of(error)) from error

    def _computed(self, node: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        name = name_of(node.target)
        if name is None:
            return node.target(*args, **kwargs)
        if name in SIZES:
            return SIZES[name](*args)
        if is_view_in_place(name):
            return self._seen_anew(args[0], run_row(name.removesuffix("_"), *bound(node.target, args, kwargs)))
        found = run_row(name, *bound(node.target, args, kwargs))
        if is_writing(node):
            return found
        return _typed(found, self.known.get(node, node.meta.get("val")), self._storages(args))

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


SIZES: dict[str, Callable[..., int]] = {
    "sym_size": lambda x, dim: x.shape[dim],
    "sym_stride": lambda x, dim: x.ghost.strides[dim],
    "sym_numel": lambda x: x.size,
}


def _results_for(module: Any, given: Sequence[Any]) -> dict[Any, Any]:
    """Where a graph was made for symbolic sizes: what PyTorch gives for these arrays, as tensors without memory."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    if not any(_is_symbolic(node.meta.get("val")) for node in module.graph.nodes):
        return {}
    found: dict[Any, Any] = {}

    class Noting(torch.fx.Interpreter):  # type: ignore[misc]
        def run_node(self, node: Any) -> Any:
            found[node] = value = super().run_node(node)
            return value

    with FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True):
        Noting(module).run(*map(_stand_in, given))
    return found


def _is_symbolic(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(_is_symbolic, value))
    return not all(isinstance(n, int) for n in getattr(value, "shape", ()))


def _stand_in(value: Any) -> Any:
    import torch

    if isinstance(value, (list, tuple)):
        return [_stand_in(v) for v in value]
    if not isinstance(value, Array):
        return value
    return torch.empty_strided(value.shape, value.ghost.strides, dtype=getattr(torch, str(value.storage.dtype)))


def _typed(found: Any, expected: Any, known: set[int]) -> Any:
    """A result in the dtype and, in memory of its own, in the layout that PyTorch gives it; its shape must be that."""
    if isinstance(found, (list, tuple)):
        wanted = expected if isinstance(expected, (list, tuple)) else [None] * len(found)
        return [_typed(f, e, known) for f, e in zip(found, wanted, strict=False)]
    if not isinstance(found, (Array, Selected)) or not hasattr(expected, "dtype"):
        return found
    found = as_kind(found, kind_of(expected.dtype))
    if isinstance(found, Selected):
        return found
    shape = tuple(expected.shape)
    if all(isinstance(n, int) for n in shape) and shape != found.shape:
        raise ValueError(f"its result has the shape {found.shape} where PyTorch's has {shape}")
    return found if id(found.storage) in known else _laid_out(found, expected)


def _laid_out(x: Array, expected: Any) -> Array:
    """A new array, its axes in memory as PyTorch has them, so that its views are views here, too."""
    strides = tuple(expected.stride())
    if not all(isinstance(s, int) for s in strides) or strides == x.ghost.strides or 0 in x.shape:
        return x
    memory, ghost = ghost_with(x.shape, strides)
    if memory.size < x.size:  # several elements in one place
        return x
    return new_array(x.trace, x.value, order=ghost, is_value=False)
