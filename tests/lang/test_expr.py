"""Nodes are interned and frozen; builders fold integers and leave floats alone; extents have one normal form."""

from __future__ import annotations

import copy
import gc
import itertools
import pickle
import weakref
from typing import Any

import numpy as np
import pytest

import tedsl as te
from tedsl.lang import nodes
from tedsl.lang.expr import FALSE, TRUE, Apply, Axis, Const, Expr, Fn, Read
from tedsl.lang.extents import same_extent, simplify_extent
from tedsl.lang.functions import as_expr
from tedsl.lang.guards import guards_of
from tedsl.lang.traverse import conjuncts, free_axes, reads_of, rebuild, substitute, topological

x = te.placeholder((8,), name="x")
f = te.placeholder((8,), "bool", name="f")
p = te.placeholder((8,), "int32", name="p")
i, j = te.reduce_axis(8, "i"), te.reduce_axis(8, "j")


def test_equal_expressions_are_one_object() -> None:
    assert x[i] + 1 is x[i] + 1.0
    assert te.exp(x[i] * 2) is te.exp(x[i] * 2)
    assert x[i] + x[j] is not x[j] + x[i]
    assert te.sum(x[i], axis=i) is te.sum(x[i], axis=i)
    assert te.placeholder((8,), name="x")[i] is not x[i]


def test_literals_are_told_apart_by_type_and_bits() -> None:
    assert te.const(1) is not te.const(1.0)
    assert te.const(True) is not te.const(1)
    assert te.const(0.0) is not te.const(-0.0)
    assert te.const(float("nan")) is te.const(float("nan"))
    assert te.const(1, "int8") is not te.const(1, "int16")
    assert te.const(0.1, "float32") is te.const(np.float32(0.1))
    assert te.const(True) is TRUE
    assert te.const(False) is FALSE


def test_symbols_are_their_own() -> None:
    assert te.var("n") is not te.var("n")
    assert te.reduce_axis(3, "k") is not te.reduce_axis(3, "k")


def test_nodes_are_frozen_and_hold_no_garbage() -> None:
    node = x[i] + 41.5
    with pytest.raises(AttributeError, match="Apply is immutable: cannot set fn"):
        node.fn = Fn.SUB
    with pytest.raises(AttributeError, match="immutable"):
        node.extra = 1
    assert copy.copy(node) is node
    assert copy.deepcopy(node) is node
    alive = weakref.ref(node)
    del node
    gc.collect()
    assert alive() is None


@pytest.mark.parametrize(
    ("misuse", "message"),
    [
        (lambda: bool(x[i] > 0), r"the truth of `x\[i\] > 0.0` is not known.*te.select"),
        (lambda: 0 < x[i] < 1, "chained comparisons"),
        (lambda: [1, 2, 3][p[i]], "symbolic"),
        (lambda: float(x[i]), r"use te.cast\(x, dtype\)"),
        (lambda: list(x[i]), "is one scalar and cannot be iterated"),
        (lambda: range(te.var("n")), r"`n` is a size .*te.compute\(\(n,\), "),
        (lambda: x[i] if x[i] else 0, "te.select"),
    ],
)
def test_expressions_have_no_value_while_written(misuse: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        misuse()


FOLDS = [
    (lambda: i + 0, lambda: i), (lambda: 0 + i, lambda: i), (lambda: i - 0, lambda: i), (lambda: i * 1, lambda: i),
    (lambda: i * 0, lambda: te.const(0)), (lambda: i // 1, lambda: i), (lambda: i % 1, lambda: te.const(0)),
    (lambda: te.const(7) // 2 - 9, lambda: te.const(-6)), (lambda: te.const(-7) // 2, lambda: te.const(-4)),
    (lambda: te.const(-7) % 3, lambda: te.const(2)), (lambda: te.maximum(te.const(2), 5), lambda: te.const(5)),
    (lambda: te.const(2) < 3, lambda: TRUE), (lambda: te.select(te.const(2) < 3, i, j), lambda: i),
    (lambda: te.select(f[i], j, j), lambda: j), (lambda: ~~f[i], lambda: f[i]), (lambda: f[i] & True, lambda: f[i]),
    (lambda: f[i] & False, lambda: FALSE), (lambda: f[i] | True, lambda: TRUE), (lambda: f[i] & f[i], lambda: f[i]),
    (lambda: f[i] & ~f[i], lambda: FALSE), (lambda: te.floor(p[i]), lambda: p[i]),
    (lambda: te.cast(i, "int32"), lambda: i),
    (lambda: te.const(3).astype("float32"), lambda: te.const(3.0)), (lambda: +x[i], lambda: x[i]),
]  # fmt: skip


@pytest.mark.parametrize("case", FOLDS, ids=range(len(FOLDS)))
def test_integers_and_logic_fold(case: Any) -> None:
    made, expected = case
    assert as_expr(made()) is as_expr(expected())


@pytest.mark.parametrize(
    "made",
    [lambda: x[i] + 0.0, lambda: x[i] * 0.0, lambda: x[i] * 1.0, lambda: x[i] - x[i], lambda: te.const(1.0) + 2.0,
     lambda: te.const(2**31 - 1) + 1, lambda: te.const(2.5).astype("int32")],
)  # fmt: skip
def test_floats_and_overflows_are_left_to_the_evaluator(made: Any) -> None:
    assert isinstance(made(), Apply)


def test_extents_in_normal_form() -> None:
    n, m = te.var("n"), te.var("m")
    for a, b in [
        (n + 1 - 1, n), (n + m, m + n), (n * m * 2, 2 * m * n), ((n + 3) // 1, n + 3), ((2 * n + 5) // 2, n + 2),
        ((4 * n + 2 * m) % 2, te.const(0)), ((n + m) * (n - m), n * n - m * m), (te.minimum(n, n), n),
        ((n + m) // (m + n - 3), (m + n) // (n - 3 + m)), (te.maximum(n - n, 3), te.const(3)),
        (te.minimum(n, m + 1 - 1), te.minimum(m - m + n, m)), (0 - (0 - n), n), ((n + 7) // 3, (n + 1) // 3 + 2),
        ((n + m) // 2, (m + n) // 2), (te.select(n > 2, n, te.const(2)), te.select(n > 2, n + 1 - 1, te.const(2))),
    ]:  # fmt: skip
        assert same_extent(a, b), (str(a), str(b))
    for a, b in [(n, m), (n, n + 1), (n // 2 * 2, n), (n * m, n + m)]:
        assert not same_extent(a, b)
    assert str(simplify_extent(3 + n - 5)) == "n - 2"
    assert str(simplify_extent((n - 3) // 2 + 1)) == "(n + 1) // 2 - 1"


def test_simplified_extents_are_equal_for_every_value() -> None:
    n, m = te.var("n"), te.var("m")
    forms = [
        (lambda n, m: (n - 3) // 2 + 1), (lambda n, m: (2 * n + 4 * m - 7) // 4), (lambda n, m: (3 * n - 5) % 3 + m),
        (lambda n, m: (n * m + 2 * m) // 2 - n), (lambda n, m: (n + m) * (n - m) - 3 * (n - 2)),
        (lambda n, m: -(n - m) // -2),
        (lambda n, m: (n - 7) % -3), (lambda n, m: (n // 2 + 3) // 2 % 3),
    ]  # fmt: skip
    for form in forms:
        text = str(simplify_extent(form(n, m)))
        for values in itertools.product(range(9), repeat=2):
            assert eval(text, {"n": values[0], "m": values[1]}) == form(*values), text


def test_walks() -> None:
    shared = x[i] * 2
    expr = te.select(f[i], shared, shared + x[j]) + te.sum(x[j], axis=j)
    order = topological(expr)
    assert len(order) == len(set(order))
    place = {node: position for position, node in enumerate(order)}
    assert all(place[c] < place[node] for node in order for c in node.children)
    assert [str(r) for r in reads_of([expr])] == ["f[i]", "x[i]", "x[j]"]
    assert set(free_axes(expr)) == {i, j}
    assert set(free_axes(te.sum(x[j] + x[i], axis=j))) == {i}
    assert rebuild(expr, lambda node: node) is expr
    assert str(substitute(x[i] * x[j], {i: i + 1})) == "x[i + 1] * x[j]"


def test_substitution_renames_reduce_axes() -> None:
    k = te.reduce_axis(8, "k")
    assert substitute(te.sum(x[j] * x[i], axis=j), {j: k}) is te.sum(x[k] * x[i], axis=k)
    assert substitute(x[i], {j: k}) is x[i]


def test_deep_expressions_are_walked_without_recursion() -> None:
    expr: Any = x[i]
    for _ in range(20_000):
        expr = expr + 1.0
    assert len(topological(expr)) == 20_003
    assert reads_of([substitute(expr, {i: j})])[0] is x[j]


def test_guards() -> None:
    expr = te.select(f[i], x[i], te.select(p[i] > 0, x[p[i]], 0.0))
    guards = guards_of(expr)
    assert guards[x[i]] is f[i]
    assert set(map(str, conjuncts(guards[x[p[i]]]))) == {"~f[i]", "p[i] > 0"}
    assert guards[f[i]] is TRUE
    both = te.select(f[i], x[i], 0.0) + te.select(f[j], x[i], 0.0)
    assert str(guards_of(both)[x[i]]) == "f[j] | f[i]"
    reduced = te.sum(x[j], axis=j, where=f[j])
    assert guards_of(reduced)[x[j]] is f[j]


def test_tensors_keep_their_outputs_alive_and_single() -> None:
    u, v = te.compute((8,), lambda i: (x[i], x[i] + 1), name=("u", "v"))
    assert u.op is v.op
    assert all(a is b for a, b in zip(u.op.outputs, (u, v), strict=True))
    assert u.op.output(1) is v
    assert [t.name for t in u.op.outputs] == ["u", "v"]


def test_a_copy_of_a_tensor_is_itself() -> None:
    x = te.placeholder((3,), name="x")
    y = te.compute((3,), lambda i: x[i] * 2)
    assert copy.copy(y) is y
    assert copy.deepcopy({"out": [y, x]})["out"][1] is x
    assert {"argmax", "squeeze", "sum", "shape"} <= set(dir(y))
    with pytest.raises(AttributeError) as caught:
        _ = y.argmaxx
    assert caught.value.obj is y  # Python's own "Did you mean"


def test_shapes_compare_where_they_are_known() -> None:
    n, m = te.var("n"), te.var("m")
    x = te.placeholder((n, 4), name="x")
    assert x.shape == (n, 4)
    assert te.compute(((n - 3) // 2 + 1,), lambda i: x[i, 0]).shape == ((n - 3) // 2 + 1,)
    assert x[1:].shape == (n - 1, 4)
    assert x.shape != (n + 1, 4)
    assert n < n + 1
    assert bool(n + 1 > n + 2) is False
    for unknown in (n == m, n > 3, n == 3, n + m == m * 2):
        with pytest.raises(TypeError, match="is not known while the expression is written"):
            bool(unknown)


def test_expressions_take_a_format() -> None:
    n = te.var("n")
    assert f"{n:>5}|{n + 1}|{te.placeholder((n,), name='x')!r:>14}" == "    n|n + 1|x : float32[n]"
    assert f"{te.placeholder((n,), name='x'):.3}" == "x :"


def test_tensors_iterate_and_have_a_length_where_it_is_known() -> None:
    assert len(x) == 8
    assert len(list(te.placeholder((3, 2)))) == 3
    y = te.placeholder((te.var("n"),), name="y")
    with pytest.raises(TypeError, match=r"y : float32\[n\] has no known length: .* `n`, .* te.arange\(y.shape\[0\]\)"):
        len(y)
    with pytest.raises(TypeError, match=r"cannot be iterated: .* it is y.shape\[0\]"):
        iter(y)
    with pytest.raises(TypeError, match="it is one number, of rank 0"):
        len(y.sum())
    with pytest.raises(TypeError, match="the truth of tensor x"):
        bool(x)


def test_dtypes_survive_pickling() -> None:
    assert pickle.loads(pickle.dumps(x.dtype)) is x.dtype


def test_kinds_of_nodes() -> None:
    assert isinstance(x[i], Read)
    assert isinstance(i, Axis)
    assert isinstance(te.const(1), Const)
    assert isinstance(x[i] + 1, Expr)


OPERANDS = {
    "axis": lambda: te.reduce_axis(8, name="k"),
    "of axes": lambda: te.reduce_axis(8, name="k") * 2 - 1,
    "size": lambda: te.var("n"),
    "number": lambda: 3,
    "zero": lambda: 0,
    "large": lambda: 2**31 - 1,
    "larger": lambda: 2**31,
    "bool": lambda: True,
    "weak constant": lambda: te.reduce_axis(8, name="k") * 0 + 4,
    "strong": lambda: te.const(4, "int32"),
    "data": lambda: te.placeholder((), "int32", name="d")[()],
    "wide": lambda: te.placeholder((), "int64", name="d")[()],
    "float32": lambda: te.placeholder((), name="x")[()],
    "float64": lambda: te.placeholder((), "float64", name="x")[()],
    "weak float": lambda: te.reduce_axis(8, name="k") / 2,
    "condition": lambda: te.reduce_axis(8, name="k") < 3,
}


SHORT = {"axis", "of axes", "size", "weak constant", "float32", "float64"}  # that some others go with as they are


@pytest.mark.parametrize("left", OPERANDS)
def test_operands_that_need_no_promotion_make_the_node_that_promotion_makes(
    left: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made(f: Fn, a: object, b: object) -> object:
        try:
            return nodes.apply(f, a, b)
        except (TypeError, ValueError, ZeroDivisionError) as error:
            return str(error)

    a = OPERANDS[left]()
    pairs = [(f, b()) for f in nodes._ALIKE for b in (lambda: a, *OPERANDS.values())]
    found = [made(f, a, b) for f, b in pairs]
    assert any(nodes._of_alike(f, a, b) is not None for f, b in pairs) == (left in SHORT)
    monkeypatch.setattr(nodes, "_of_alike", lambda *_: None)
    for now, (f, b) in zip(found, pairs, strict=True):
        want = made(f, a, b)
        assert now is want or (isinstance(want, str) and now == want), (f, a, b)


def _plainly(roots: list[Expr]) -> list[Expr]:
    """What `topological` means, by recursion."""
    order: dict[Expr, None] = {}

    def visit(node: Expr) -> None:
        if node not in order:
            for child in node.children:
                visit(child)
            order[node] = None

    for root in roots:
        visit(root)
    return list(order)


@pytest.mark.parametrize("seed", range(20))
def test_walks_meet_nodes_in_one_order_whatever_was_walked_before(seed: int) -> None:
    draw = np.random.default_rng(seed)
    scalar = te.placeholder((), name="s")
    made: list[Expr] = [x[i], x[j], te.cast(i, "float32"), te.const(float(seed)), scalar[()]]
    for _ in range(60):
        a, b = (made[k] for k in draw.integers(max(0, len(made) - 12), len(made), 2))
        made.append(
            (a + b, te.select(a < b, a, x[j]), te.exp(a), te.sum(a * b, axis=te.reduce_axis(8, "k")))[draw.integers(4)]
        )
    for _ in range(40):
        roots = [made[k] for k in draw.integers(0, len(made), draw.integers(1, 4))]
        assert [id(n) for n in topological(roots)] == [id(n) for n in _plainly(roots)]
        assert [id(n) for n in topological(roots[0])] == [id(n) for n in _plainly(roots[:1])]


def test_what_walks_keep_lives_no_longer_than_its_node() -> None:
    node = te.exp(x[i] * 3.5) + 1
    kept = weakref.ref(next(n for n in topological(node) if isinstance(n, Apply) and n.fn is Fn.EXP))
    assert kept() is not None
    del node
    gc.collect()
    assert kept() is None
