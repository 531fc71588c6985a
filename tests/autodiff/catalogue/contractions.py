"""Products: matrices, einsum forms, outer products, diagonals, constant transforms."""

from __future__ import annotations

from typing import Any

import tedsl as te
from tests.autodiff.catalogue.entry import Entry, both, loops, tensor

__all__ = ["ENTRIES"]


def matmul(n: int) -> Any:
    a, b = tensor("A", 4 * n, 5 * n), tensor("B", 5 * n, 3 * n)
    (k,) = loops(5 * n)
    return te.compute((4 * n, 3 * n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C"), [a, b]


def batched_matmul(n: int) -> Any:
    a, b = tensor("A", 2, 3 * n, 4 * n), tensor("B", 2, 4 * n, 2 * n)
    return te.matmul(a, b), [a, b]


def broadcast_matmul(n: int) -> Any:
    a, b = tensor("A", 2, 3, 3 * n, 4 * n), tensor("B", 4 * n, 2 * n)
    return a @ b, [a, b]


def matrix_vector(n: int) -> Any:
    a, x = tensor("A", 4 * n, 5 * n), tensor("x", 5 * n)
    return te.compute((4 * n,), lambda i: te.sum(lambda k: a[i, k] * x[k])), [a, x]


EINSUMS = {
    "ij,jk->ik": ((3, 4), (4, 5)),
    "bij,bkj->bik": ((2, 3, 4), (2, 5, 4)),
    "ij->ji": ((3, 4),),
    "ii->i": ((4, 4),),
    "ii->": ((4, 4),),
    "ij->": ((3, 4),),
    "ij->j": ((3, 4),),
    "i,j->ij": ((3,), (4,)),
    "i,i->": ((5,), (5,)),
    "bhqd,bhkd->bhqk": ((2, 2, 3, 4), (2, 2, 5, 4)),
    "ijk,jil->kl": ((3, 4, 2), (4, 3, 5)),
    "bi,ij,bj->b": ((2, 3), (3, 4), (2, 4)),
    "iij,jk->ik": ((3, 3, 4), (4, 5)),
}


def einsum(form: str) -> Entry:
    shapes = EINSUMS[form]

    def build(n: int) -> Any:
        operands = [tensor("ABC"[k], *(n * s for s in shape)) for k, shape in enumerate(shapes)]
        return te.einsum(form, *operands), operands

    return Entry(f"einsum {form}", build, **both(lambda xp, *arrays: xp.einsum(form, *arrays)))


def outer(n: int) -> Any:
    a, b = tensor("a", 4 * n), tensor("b", 3 * n)
    return te.compute((4 * n, 3 * n), lambda i, j: a[i] * b[j]), [a, b]


def square(n: int) -> te.Tensor:
    return tensor("A", 5 * n, 5 * n)


def whole(name: str, function: Any, oracle: Any) -> Entry:
    """An operation on one square matrix."""

    def build(n: int) -> Any:
        a = square(n)
        return function(a), [a]

    return Entry(name, build, **both(oracle))


# Winograd F(2, 3): the constants as a stage of selects, as TVM writes them.
B = ((1, 0, 0, 0), (0, 1, -1, 1), (-1, 1, 1, 0), (0, 0, 0, -1))
G = ((1, 0, 0), (0.5, 0.5, 0.5), (0.5, -0.5, 0.5), (0, 0, 1))
A = ((1, 0), (1, 1), (1, -1), (0, -1))


def constant_matrix(rows: Any, name: str) -> te.Tensor:
    def body(i: Any, j: Any) -> Any:
        value: Any = te.const(0.0, "float64")
        for r, row in enumerate(rows):
            for c, element in enumerate(row):
                value = te.select((i == r) & (j == c), te.const(float(element), "float64"), value)
        return value

    return te.compute((len(rows), len(rows[0])), body, name=name)


def winograd_input(n: int) -> Any:
    x = tensor("x", 2, 4 * n + 2, 4 * n + 2)
    b = constant_matrix(B, "B")
    p, q = loops(4, 4)
    body = lambda c, u, v, i, j: te.sum(b[p, u] * x[c, 2 * i + p, 2 * j + q] * b[q, v], axis=(p, q))  # noqa: E731
    return te.compute((2, 4, 4, 2 * n, 2 * n), body, name="V"), [x]


def winograd_input_oracle(xp: Any, x: Any) -> Any:
    b = _constant(xp, B)
    tiles = xp.stack([x[:, p : p + x.shape[1] - 3 : 2] for p in range(4)])
    tiles = xp.stack([tiles[..., q : q + x.shape[2] - 3 : 2] for q in range(4)])
    return xp.einsum("pu,qpcij,qv->cuvij", b, tiles, b)


def _constant(xp: Any, rows: Any) -> Any:
    return xp.asarray([[float(e) for e in row] for row in rows], dtype=xp.float64)


def winograd_conv(n: int) -> Any:
    x, w = tensor("x", 2, 4 * n + 2, 4 * n + 2), tensor("w", 3, 2, 3, 3)
    b, g, a = constant_matrix(B, "B"), constant_matrix(G, "G"), constant_matrix(A, "A")
    p, q = loops(4, 4)
    r, s = loops(3, 3)
    c = te.reduce_axis(2, name="c")
    k, m = loops(4, 4)
    v = te.compute(
        (2, 4, 4, 2 * n, 2 * n),
        lambda ch, u, t, i, j: te.sum(b[p, u] * b[q, t] * x[ch, 2 * i + p, 2 * j + q], axis=(p, q)), name="V",
    )  # fmt: skip
    f = te.compute((3, 2, 4, 4), lambda o, ch, u, t: te.sum(g[u, r] * g[t, s] * w[o, ch, r, s], axis=(r, s)), name="U")
    m1 = te.compute(
        (3, 4, 4, 2 * n, 2 * n), lambda o, u, t, i, j: te.sum(f[o, c, u, t] * v[c, u, t, i, j], axis=c), name="M"
    )
    return te.compute(
        (3, 4 * n, 4 * n),
        lambda o, y, z: te.sum(a[k, y % 2] * a[m, z % 2] * m1[o, k, m, y // 2, z // 2], axis=(k, m)), name="Y",
    ), [x, w]  # fmt: skip


def conv3x3(x: Any, w: Any) -> Any:
    import torch

    return torch.nn.functional.conv2d(x[None], w)[0]


ENTRIES = [
    Entry("matmul", matmul, **both(lambda xp, a, b: a @ b)),
    Entry("batched matmul", batched_matmul, **both(lambda xp, a, b: a @ b)),
    Entry("broadcast matmul", broadcast_matmul, **both(lambda xp, a, b: a @ b)),
    Entry("matrix vector", matrix_vector, **both(lambda xp, a, x: a @ x)),
    *map(einsum, EINSUMS),
    Entry("outer product", outer, **both(lambda xp, a, b: a[:, None] * b[None, :])),
    whole("trace", te.trace, lambda xp, a: xp.trace(a)),
    whole("trace offset", lambda a: te.trace(a, 1), lambda xp, a: xp.diagonal(a, 1).sum()),
    whole("diagonal", te.diagonal, lambda xp, a: xp.diagonal(a)),
    whole("diagonal offset -2", lambda a: te.diagonal(a, -2), lambda xp, a: xp.diagonal(a, -2)),
    whole("tril", te.tril, lambda xp, a: xp.tril(a)),
    whole("tril -1", lambda a: te.tril(a, -1), lambda xp, a: xp.tril(a, -1)),
    whole("triu", te.triu, lambda xp, a: xp.triu(a)),
    whole("A + A.T", lambda a: te.compute(a.shape, lambda i, j: a[i, j] + a[j, i]), lambda xp, a: a + a.T),
    whole("A @ A.T", lambda a: a @ a.T, lambda xp, a: a @ a.T),
    Entry("winograd input", winograd_input, **both(winograd_input_oracle)),
    Entry("winograd convolution", winograd_conv, torch=conv3x3),
]
