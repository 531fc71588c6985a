"""Matrix products and einsum give what NumPy gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tedsl as te
from tests.lang.oracle import arrays, same

BOTH = pytest.mark.parametrize("symbolic", [False, True], ids=["static", "symbolic"])


@BOTH
@pytest.mark.parametrize(
    ("a", "b"),
    [((3, 4), (4, 5)), ((4,), (4, 5)), ((3, 4), (4,)), ((4,), (4,)), ((2, 3, 4), (4, 5)), ((2, 1, 3, 4), (6, 4, 5)),
     ((4,), (2, 4, 5)), ((2, 3, 4), (4,)), ((1, 3, 1), (1, 5))],
    ids=str,
)  # fmt: skip
def test_matmul(a: tuple[int, ...], b: tuple[int, ...], symbolic: bool) -> None:
    same(lambda x, y: x @ y, lambda x, y: x @ y, *arrays(a, b), symbolic=symbolic)


def test_products() -> None:
    a, b = arrays((3, 4), (4, 5))
    c, d = arrays((2, 3, 4), (6, 4, 5))
    same(te.dot, np.dot, a, b)
    same(te.dot, np.dot, c, d)
    same(te.dot, np.dot, a, b[:, 0])
    same(lambda a, b: te.dot(a, 2.0), lambda a, b: np.dot(a, 2.0), a, b)
    same(te.outer, np.outer, a, b)
    same(te.tensordot, np.tensordot, *arrays((2, 3, 4), (3, 4, 5)))
    same(lambda a, b: te.tensordot(a, b, ([2], [1])), lambda a, b: np.tensordot(a, b, ([2], [1])), c, d)
    same(lambda a, b: te.tensordot(a, b, 0), lambda a, b: np.tensordot(a, b, 0), a, b)
    x, y = a > 0, b > 0
    same(lambda x, y: x @ y, lambda x, y: x @ y, x, y)
    same(lambda a, b: a @ b, lambda a, b: a @ b, a.astype("int8"), b.astype("int16"))


def test_bad_products() -> None:
    a, b, s = te.placeholder((3, 4), name="a"), te.placeholder((5, 6), name="b"), te.placeholder((), name="s")
    with pytest.raises(ValueError, match=r"extents do not agree: 4 in a : float32\[3, 4\], but 5 in b"):
        a @ b
    with pytest.raises(ValueError, match=r"multiply by a scalar with \*"):
        a @ s
    with pytest.raises(TypeError, match="expected a tensor, found str"):
        te.matmul(a, "b")
    with pytest.raises(ValueError, match="do not pair axes"):
        te.tensordot(a, b, 3)


EINSUMS = [
    ("ij,jk->ik", (3, 4), (4, 5)), ("ij,jk", (3, 4), (4, 5)), ("ij->ji", (3, 4)), ("ii->i", (4, 4)), ("ii", (4, 4)),
    ("ij->", (3, 4)), ("ba", (3, 4)), ("ij,ij->i", (3, 4), (3, 4)), ("i,j,k->kij", (2,), (3,), (4,)),
    ("...ij,...jk->...ik", (2, 3, 4), (2, 4, 5)), ("...ij,jk", (2, 3, 4), (4, 5)), ("b...,b->...", (2, 3, 4), (2,)),
    ("ijk,kl,lm->im", (2, 3, 4), (4, 5), (5, 2)), ("ij,jk,kl,lm->im", (2, 3), (3, 4), (4, 5), (5, 2)),
    ("bhqd,bhkd->bhqk", (2, 2, 3, 4), (2, 2, 5, 4)), ("i...->...i", (3, 4, 2)), ("...,...->...", (3, 4), (4,)),
    ("ijj->i", (2, 3, 3)), ("i,i->", (4,), (4,)), (",i->i", (), (3,)),
]  # fmt: skip


@BOTH
@pytest.mark.parametrize("case", EINSUMS, ids=lambda c: c[0])
def test_einsum(case: tuple[Any, ...], symbolic: bool) -> None:
    text, *shapes = case
    same(lambda *x: te.einsum(text, *x), lambda *x: np.einsum(text, *x), *arrays(*shapes), symbolic=symbolic)


@pytest.mark.parametrize(
    "call",
    [
        lambda m, a, b: m.einsum(a, [0, 1], b, [1, 2]),
        lambda m, a, b: m.einsum(a, [5, 30], b, [30, 2]),  # the result is ordered by the numbers
        lambda m, a, b: m.einsum(a, (0, 1), b, (1, 2), (2, 0)),
        lambda m, a, b: m.einsum(a, [..., 0], b, [0, 1], [..., 1]),
        lambda m, a, b: m.einsum(a, [0, 1], []),
    ],
)
def test_einsum_of_numbers(call: Any) -> None:
    same(lambda a, b: call(te, a, b), lambda a, b: call(np, a, b), *arrays((2, 3), (3, 4)))


def test_einsum_of_neither_letters_nor_numbers() -> None:
    a = te.placeholder((3, 4))
    for given in ((a, "ij"), (a, [0, 99]), (a, [0, 1.5]), (a, a), ([0, 1],), (), (a,)):
        with pytest.raises(TypeError, match=r"te\.einsum"):
            te.einsum(*given)
    with pytest.raises(TypeError, match=r"expected the subscripts first, as te\.einsum\('ij,jk', a, b\), or a list"):
        te.einsum(a, "ij")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ij,jk->ik", "subscripts for 2 operands, found 1"),
        ("ijk", "names 3 axes of an operand with 2"),
        ("i1", "labels are letters"),
        ("ij->k", "the result uses 'k'"),
        ("ij->ii", "uses a label twice"),
        ("ii", "extents do not agree: 3 in"),
    ],
)
def test_bad_einsum(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        te.einsum(text, te.placeholder((3, 4)))


@pytest.mark.parametrize(("text", "shapes"), [
    ("ab,cd,bc->ad", [(40, 30), (20, 50), (30, 20)]), ("nk,kde,nd->ne", [(24, 3), (3, 40, 20), (24, 40)]),
    ("i,j,k,ijk->", [(12,), (11,), (10,), (12, 11, 10)]),
    ("ab,bc,cd,de,ef,f->a", [(9, 8), (8, 9), (9, 8), (8, 9), (9, 8), (8,)]),
])  # fmt: skip
def test_operands_are_contracted_in_the_order_of_the_least_work(text: str, shapes: list[tuple[int, ...]]) -> None:
    operands = [te.placeholder(shape, "float64") for shape in shapes]
    result = te.einsum(text, *operands)
    flops = np.einsum_path(text, *(np.empty(shape) for shape in shapes), optimize=("optimal", 1 << 40))[1]
    assert te.work(result).flops <= 1.1 * float(flops.split("Optimized FLOP count:")[1].split()[0]), flops


def test_operands_of_unknown_extents_and_many_labels() -> None:
    n = te.var("n")
    a, b, c = te.placeholder((n, 4)), te.placeholder((4, n)), te.placeholder((n, 0))
    assert te.einsum("ij,jk,kl->il", a, b, c).shape == (n, 0)
    many = te.einsum("ab,...,c->...ca", te.placeholder((1, 1)), te.placeholder((1,) * 52), te.placeholder((1,)))
    assert many.ndim == 54
