"""A graph cut into parts for programs of ours, in an order with the nodes that are left to PyTorch.

Every node has a rank: how often the way to it has gone from what is left into a part. The nodes of ours of one rank
are one part, which runs before what is left of that rank. So no two parts wait for each other, their number is the
least there can be, and what is left keeps its order where that can be noticed: random numbers are drawn in the order
in which they were, and nothing passes a node that writes into memory.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable
from typing import Any

from torch import fx

from tedsl.bridges.fx.interpreter import is_writing
from tedsl.bridges.fx.support import is_computing, is_of_sizes, is_ordered, operations_of, with_items

__all__ = ["divided"]

Runner = Callable[..., Any]


def divided(
    module: fx.GraphModule,
    left: Collection[fx.Node],
    made: Callable[[fx.GraphModule], Runner],
    later: Collection[fx.Node] = (),
) -> fx.GraphModule:
    """The graph with the nodes that are not `left` in parts, which `made` turns into what is called in their place.

    The nodes in `later` come into another part than those before them.
    """
    outside = {*with_items(left), *filter(is_of_sizes, operations_of(module.graph))}
    ranks = _ranks(module.graph, outside, later)
    whole = _Whole(module)
    for rank in sorted(set(ranks.values())):
        here = [n for n in ranks if ranks[n] == rank]
        own = [n for n in here if n not in outside]
        if any(map(is_computing, own)):
            whole.add_part(own, made)
        else:
            whole.add_nodes(own)
        whole.add_nodes(n for n in here if n in outside)
    return whole.finished()


def _ranks(graph: fx.Graph, outside: Collection[fx.Node], later: Collection[fx.Node]) -> dict[fx.Node, int]:
    ranks: dict[fx.Node, int] = {}
    last_in_order = last_writing = -1
    for node in operations_of(graph):
        before = [(n, ranks[n]) for n in node.all_input_nodes if n in ranks]
        if node not in outside:
            waits = [rank + (n in outside) for n, rank in before]
            ranks[node] = max([int(node in later), last_writing + 1, *waits])
            continue
        rank = max([last_writing, *(rank for _, rank in before)])
        if is_writing(node):
            rank = last_writing = max([rank, *ranks.values()])
        if is_ordered(node):
            rank = last_in_order = max(rank, last_in_order)
        ranks[node] = rank
    return ranks


class _Whole:
    """A graph that is written anew, with calls of parts in it."""

    def __init__(self, module: fx.GraphModule) -> None:
        self.module = module
        self.graph = fx.Graph()
        self.attributes: dict[str, Any] = {}
        self.nodes: dict[fx.Node, fx.Node] = {}
        for node in module.graph.nodes:
            if node.op == "placeholder":
                self.nodes[node] = self.graph.node_copy(node)

    def add_nodes(self, nodes: Iterable[fx.Node]) -> None:
        """Nodes that PyTorch runs, as they are."""
        for node in nodes:
            self.nodes[node] = self.graph.node_copy(node, self._here)

    def add_part(self, nodes: list[fx.Node], made: Callable[[fx.GraphModule], Runner]) -> None:
        """A call of what is made of a graph of these nodes."""
        part, inputs, outputs = _cut_out(self.module, nodes)
        name = f"part_{len(self.attributes)}"
        self.attributes[name] = made(part)
        call = self.graph.call_module(name, tuple(map(self._here, inputs)))
        for place, node in enumerate(outputs):
            self.nodes[node] = self.graph.call_function(operator.getitem, (call, place))

    def finished(self) -> fx.GraphModule:
        """The graph with its results."""
        (output,) = (n for n in self.module.graph.nodes if n.op == "output")
        self.graph.node_copy(output, self._here)
        return fx.GraphModule(self.attributes, self.graph)

    def _here(self, node: fx.Node) -> fx.Node:
        """A node in the new graph; constants are copied into it when they are asked for."""
        if node not in self.nodes:
            assert node.op == "get_attr"
            self.attributes[node.target] = operator.attrgetter(node.target)(self.module)
            self.nodes[node] = self.graph.node_copy(node)
        return self.nodes[node]


def _cut_out(module: fx.GraphModule, nodes: Collection[fx.Node]) -> tuple[fx.GraphModule, list[fx.Node], list[fx.Node]]:
    """A graph of some nodes, what it takes, and the nodes that it gives; constants are its own."""
    graph, inside = fx.Graph(), set(nodes)
    copies: dict[fx.Node, fx.Node] = {}
    inputs: list[fx.Node] = []
    for node in (n for user in nodes for n in user.all_input_nodes if n not in inside):
        if node in copies:
            continue
        if node.op == "get_attr":
            copies[node] = graph.node_copy(node)
        else:
            copies[node] = graph.placeholder(node.name)
            copies[node].meta = dict(node.meta)
            inputs.append(node)
    for node in nodes:
        copies[node] = graph.node_copy(node, copies.__getitem__)
    outputs = [n for n in nodes if not inside.issuperset(n.users)]
    graph.output(tuple(copies[n] for n in outputs))
    return fx.GraphModule(module, graph), inputs, outputs
