"""Answers about a node that are kept with it, for questions that are asked of the same nodes again and again.

Expressions are shared by all stages that are made of one another, so what was found of a node in one of them holds in
the others. An answer hangs on the node alone, and on what the key says; it dies with the node.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from tedsl.lang.expr import Apply, Expr

__all__ = ["answers_of", "kept_with_nodes"]

_ITSELF = object()  # stands for the node: it would hold itself


def answers_of(node: Apply) -> dict[Any, Any]:
    """What is kept with a node, by keys that name the question."""
    if node._answers is None:
        object.__setattr__(node, "_answers", {})
    assert node._answers is not None
    return node._answers


def kept_with_nodes(rule: Callable[[Expr], Expr]) -> Callable[[Expr], Expr]:
    """The rule for nodes, which is asked once for each operation."""

    @wraps(rule)
    def asked(node: Expr) -> Expr:
        if not isinstance(node, Apply):
            return rule(node)
        answers = node._answers or answers_of(node)
        known = answers.get(rule)
        if known is None:
            made = rule(node)
            answers[rule] = _ITSELF if made is node else made
            return made
        return node if known is _ITSELF else known

    return asked
