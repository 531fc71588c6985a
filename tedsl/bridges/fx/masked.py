"""x[mask] in graphs: its elements are computed with at their places, but their number is that of the example only.

What asks for that number while a graph is traced would get the example's as a constant, and be wrong for other values:
such nodes are found here, and refused.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

__all__ = ["Selections", "drop_own_assertions"]

SELECTING = frozenset({"masked_select", "nonzero"})
REDUCING = frozenset({"sum", "mean", "prod", "amax", "amin", "any", "all"})
CONVERTING = frozenset({"_to_copy", "convert_element_type", "lift_fresh_copy", "detach", "alias"})


class Selections:
    """The nodes of a graph whose tensors have a length that depends on values."""

    def __init__(self) -> None:
        self._nodes: set[Any] = set()  # of the module
        self._made: set[Any] = set()  # of its graph of ATen

    def note(self, node: Any, made: Sequence[Any], found: Any) -> str | None:
        """Look at a node that was run, and at the operations that it made: why it cannot be had, if it cannot."""
        for operation in made:
            if _selects(operation) or (
                any(n in self._made for n in operation.all_input_nodes) and not self._is_settled(operation)
            ):
                self._made.add(operation)
        if node.op == "output":
            return None
        reads = any(n in self._nodes for n in node.all_input_nodes)
        if any(n in self._made for n in made) or (reads and not made and hasattr(found, "dtype")):
            self._nodes.add(node)
        if reads and not made and not hasattr(found, "dtype"):
            return "it asks for the length of x[mask], which depends on values"
        if reads and sum(_name(n) not in CONVERTING for n in made) > 1:
            return "it computes with x[mask], whose length depends on values, in several operations; use torch.where"
        return None

    def _is_settled(self, operation: Any) -> bool:
        """Whether a result has a known shape all the same: a sum, or the target of an assignment."""
        name = _name(operation)
        if name.startswith("index_put") or name == "copy_":
            return operation.args[0] not in self._made
        return name in REDUCING


def drop_own_assertions(graph: Any) -> None:
    """Take out what PyTorch by itself asserts of the length of x[mask], 0 <= length <= elements of x.

    It holds for any mask of the shape of x; of one that is larger, with which x broadcasts, it is wrong.
    """
    for size in [n for n in graph.nodes if _name(n) == "sym_size" and _selects(n.args[0])]:
        elements = size.args[0].args[0].meta["val"].numel()
        for compared in list(size.users):
            given = (compared.target, *compared.args)
            if given not in ((operator.ge, size, 0), (operator.le, size, elements)):
                continue
            if all(_name(user) == "_assert_scalar" for user in compared.users):
                for node in [*compared.users, compared]:
                    graph.erase_node(node)
        if not size.users:
            graph.erase_node(size)


def _selects(operation: Any) -> bool:
    name = _name(operation)
    if name in SELECTING:
        return True
    indices = operation.args[1] if name in ("index", "_unsafe_index") else ()
    values = [n.meta.get("val") for n in indices if hasattr(n, "meta")]
    return any(str(getattr(v, "dtype", "")) == "torch.bool" for v in values)


def _name(operation: Any) -> str:
    schema = getattr(operation.target, "_schema", None)
    return "" if schema is None else str(schema.name).rpartition("::")[2]
