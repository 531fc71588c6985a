"""What a rule made of a node is kept as long as the node."""

from __future__ import annotations

import gc
import weakref

import tedsl as te
from tedsl.lang.answers import kept_with_nodes
from tedsl.lang.expr import Apply, Expr


def body(shift: int) -> Expr:
    x = te.placeholder((4,))
    return te.compute((4,), lambda i: x[i] + shift).op.expressions[0]


def test_a_rule_is_asked_once_for_each_operation() -> None:
    asked: list[Expr] = []

    @kept_with_nodes
    def halved(node: Expr) -> Expr:
        asked.append(node)
        return node.children[0] if isinstance(node, Apply) else node

    @kept_with_nodes
    def same(node: Expr) -> Expr:
        return node

    one, other = body(1), body(2)
    for node in (one, other, one):
        assert same(node) is node
        assert halved(node) is node.children[0]
    assert [node is kept for node, kept in zip(asked, (one, other), strict=True)] == [True, True]
    leaf = one.children[0].children[0]  # an index: nothing is kept with it
    assert halved(leaf) is leaf


def test_what_is_kept_does_not_keep_the_node() -> None:
    @kept_with_nodes
    def twice(node: Expr) -> Expr:
        return node + node if isinstance(node, Apply) else node

    node = body(3)
    twice(node)
    gone = weakref.ref(node)
    del node
    gc.collect()
    assert gone() is None
