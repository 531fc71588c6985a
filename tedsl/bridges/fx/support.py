"""Which nodes of a graph of ATen a program of ours can compute, and why not."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

import torch

from tedsl.bridges.fx.arguments import UnsupportedArgument, bound, name_of
from tedsl.bridges.fx.interpreter import SIZES, is_writing
from tedsl.bridges.fx.rows.table import is_known
from tedsl.bridges.fx.rows.views import VIEWS
from tedsl.lang.dtypes import ALL

__all__ = ["is_computing", "is_of_sizes", "is_ordered", "left_nodes", "operations_of", "with_items"]

NUMBERS = (int, float, bool, torch.SymInt, torch.SymFloat, torch.SymBool)


def operations_of(graph: Any) -> list[Any]:
    """The nodes that stand for something to do."""
    return [n for n in graph.nodes if n.op not in ("placeholder", "get_attr", "output")]


def left_nodes(graph: Any) -> dict[Any, str]:
    """The operations that PyTorch must run, each with the reason."""
    reasons = {n: _reason(n) for n in operations_of(graph) if n.target is not operator.getitem}
    return {node: reason for node, reason in reasons.items() if reason is not None}


def with_items(nodes: Iterable[Any]) -> set[Any]:
    """Nodes together with the parts of their results."""
    found = set(nodes)
    waiting = list(found)
    while waiting:
        items = [n for n in waiting.pop().users if n.target is operator.getitem and n not in found]
        found.update(items)
        waiting += items
    return found


def is_of_sizes(node: Any) -> bool:
    """Whether a node computes with sizes of what is given: it needs no array, and is in no program's way."""
    return isinstance(node.meta.get("val"), NUMBERS) and all(
        n.op == "placeholder" or is_of_sizes(n) for n in node.all_input_nodes
    )


def is_computing(node: Any) -> bool:
    """Whether a node makes new elements: views and parts of tuples are only seen."""
    return node.target is not operator.getitem and name_of(node.target) not in VIEWS


def is_ordered(node: Any) -> bool:
    """Whether a node is known to others by more than its result: a draw of random numbers, an assertion, a print."""
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return not is_of_sizes(node)
    return torch.Tag.nondeterministic_seeded in node.target.tags or not schema.returns


def _reason(node: Any) -> str | None:
    name = name_of(node.target)
    if isinstance(node.meta.get("val"), NUMBERS) and (name is None or name in SIZES):
        return None
    if getattr(node.target, "namespace", "") == "tedsl":
        return "it is an operator made by te.op, with kernels of its own"
    if name is None or not is_known(name):
        return "it has no row"
    if is_writing(node):
        return "it writes one of its arguments"
    try:
        bound(node.target, node.args, node.kwargs)
    except UnsupportedArgument as error:
        return str(error)
    for value in (node.meta.get("val"), *(n.meta.get("val") for n in node.all_input_nodes)):
        for part in value if isinstance(value, (list, tuple)) else (value,):
            problem = _problem(part)
            if problem is not None:
                return problem
    return None


def _problem(value: Any) -> str | None:
    """What about a value no kernel can have."""
    if value is None or isinstance(value, NUMBERS):
        return None
    if not isinstance(value, torch.Tensor):
        return f"a {type(value).__name__}"
    dtype = str(value.dtype).removeprefix("torch.")
    if dtype not in ALL:
        return f"dtype {dtype}"
    if value.layout is not torch.strided or value.is_quantized or value.is_nested:
        return f"a tensor of layout {value.layout}"
    return None if value.device.type == "cpu" else f"device {value.device}"
