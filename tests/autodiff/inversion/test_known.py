"""Gradients of reads at an index of which facts are known, and of what is sorted, against brute force and JAX."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tedsl as te

RUNS = pytest.mark.parametrize("run", [te.evaluate, te.interpret])
RNG = np.random.default_rng(0)
N, D = 40, 5


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype("f4")


def kinds(gradients: Any) -> list[str]:
    """How each read was turned around, in a word."""
    rows = gradients.explain()
    return [r.kind for r in (*rows.gathers, *rows.scatters)]


def assumed(idx: Any, facts: str, inverse: Any) -> Any:
    made = {
        "permutation": lambda: te.assume(idx, permutation=True),
        "inverse": lambda: te.assume(idx, permutation=True, inverse=inverse),
        "unique": lambda: te.assume(idx, unique=True),
        "sorted": lambda: te.assume(idx, sorted=True),
    }
    return made[facts]()


@RUNS
@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8"])
@pytest.mark.parametrize(
    ("facts", "kind", "why"),
    [
        ("permutation", "gather", "inverse of a permutation"), ("inverse", "gather", "inverse of a permutation"),
        ("unique", "scatter", "never meet"), ("sorted", "partial", "runs of a sorted index"),
    ],
)  # fmt: skip
def test_rows_read_at_an_index(run: Any, dtype: str, facts: str, kind: str, why: str) -> None:
    """A nonlinear body of two reads, rows in another axis than the first."""
    idx, inverse = te.placeholder((N,), dtype, name="idx"), te.placeholder((N,), dtype, name="inverse")
    x, h = te.placeholder((D, N), "float32", name="x"), te.placeholder((N, D), "float32", name="h")
    at = assumed(idx, facts, inverse)
    gradients = te.differentiate(te.compute((N, D), lambda i, j: te.exp(x[j, at[i]]) * x[D - 1 - j, at[i]]), [x], h)
    text = str(gradients.explain())
    assert why in text
    assert set(kinds(gradients)) == {kind}
    p = RNG.integers(0, N, N) if facts == "sorted" else RNG.permutation(N)
    p = np.sort(p) if facts == "sorted" else p
    a, g = floats(D, N), floats(N, D)
    wanted = np.zeros((D, N))
    for i in range(N):
        for j in range(D):
            e = np.exp(a[j, p[i]])
            wanted[j, p[i]] += g[i, j] * e * a[D - 1 - j, p[i]]
            wanted[D - 1 - j, p[i]] += g[i, j] * e
    feeds = {idx: p.astype(dtype), x: a, h: g}
    if facts == "inverse":
        feeds[inverse] = np.argsort(p).astype(dtype)
    np.testing.assert_allclose(run(gradients[0], feeds), wanted, rtol=1e-4, atol=1e-4)


@RUNS
def test_symbolic_extents_and_places_that_are_left_out(run: Any) -> None:
    """A unique index that reads some rows only, an axis that is summed, and a condition."""
    n, m = te.var("n"), te.var("m")
    idx = te.placeholder((n,), "int32", name="idx")
    x, h = te.placeholder((m, 3), "float32", name="x"), te.placeholder((n,), "float32", name="h")
    at = te.assume(idx, unique=True)
    y = te.compute((n,), lambda i: te.sum(lambda k: te.select(i % 2 == 0, x[at[i], k] * (k + 1), 0.0)))
    p, a, g = RNG.permutation(30)[:7].astype("i4"), floats(30, 3), floats(7)
    wanted = np.zeros((30, 3), "f4")
    wanted[p[::2]] = g[::2, None] * [1, 2, 3]
    found = run(te.differentiate(y, x, h), {idx: p, x: a, h: g})
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


@RUNS
def test_two_permutations_of_one_matrix(run: Any) -> None:
    p, q = (te.placeholder((k,), "int32", name=f"p{k}") for k in (N, D))
    x, h = te.placeholder((N, D), "float32", name="x"), te.placeholder((N, D), "float32", name="h")
    a, b = te.assume(p, permutation=True), te.assume(q, permutation=True)
    gradients = te.differentiate(te.compute((N, D), lambda i, j: x[a[i], b[j]]), [x], h)
    assert "scatter" not in kinds(gradients)
    v, w, g = RNG.permutation(N).astype("i4"), RNG.permutation(D).astype("i4"), floats(N, D)
    wanted = np.zeros((N, D), "f4")
    wanted[np.ix_(v, w)] = g
    np.testing.assert_array_equal(run(gradients[0], {p: v, q: w, h: g}), wanted)


@RUNS
@pytest.mark.parametrize("shared", [True, False])
def test_a_permutation_in_each_row(run: Any, shared: bool) -> None:
    """Read at the row's own place, and by all rows of one vector, whose gradients are summed."""
    idx = te.placeholder((4, N), "int32", name="idx")
    x = te.placeholder((N,) if shared else (4, N), "float32", name="x")
    h, at = te.placeholder((4, N), "float32", name="h"), te.assume(idx, permutation=True)
    y = te.compute((4, N), lambda b, i: x[at[b, i]] if shared else x[b, at[b, i]])
    gradients = te.differentiate(y, [x], h)
    assert kinds(gradients) == ["gather"]
    p, g = np.stack([RNG.permutation(N) for _ in range(4)]).astype("i4"), floats(4, N)
    wanted = np.zeros((4, N), "f4")
    np.put_along_axis(wanted, p, g, 1)
    found = run(gradients[0], {idx: p, h: g})
    np.testing.assert_allclose(found, wanted.sum(0) if shared else wanted, rtol=1e-5, atol=1e-6)


def test_a_long_unique_index_is_scattered_by_threads() -> None:
    n = 1 << 17
    idx, h = te.placeholder((n,), "int32", name="idx"), te.placeholder((n,), "float32", name="h")
    x, at = te.placeholder((n,), "float32", name="x"), te.assume(idx, unique=True)
    gradient = te.differentiate(te.compute((n,), lambda i: x[at[i]]), x, h)
    kernel = te.build([idx, h], gradient)
    assert kernel.source("stmt").count("parallel") >= 1
    p, g = RNG.permutation(n).astype("i4"), floats(n)
    wanted = np.empty(n, "f4")
    wanted[p] = g
    np.testing.assert_array_equal(kernel(p, g), wanted)


@RUNS
def test_index_map(run: Any) -> None:
    """An order that is inverted by what its author says: bits reversed, and a multiplication modulo a prime."""
    reverse = te.index_map(lambda i: te.cast(sum((i // 2**b) % 2 * 2 ** (4 - b) for b in range(5)), "int32"))
    prime = te.index_map(lambda i: i * 5 % 31, inverse=lambda s: s * 25 % 31)
    for n, m, places in (
        (32, reverse, [int(f"{i:05b}"[::-1], 2) for i in range(32)]), (31, prime, [i * 5 % 31 for i in range(31)]),
    ):  # fmt: skip
        x, h = te.placeholder((n,), "float32", name="x"), te.placeholder((n,), "float32", name="h")
        y = te.compute((n,), lambda i: x[m(i)] * 2)  # noqa: B023
        gradients = te.differentiate(y, [x], h)
        assert "scatter" not in kinds(gradients)
        a, g = floats(n), floats(n)
        np.testing.assert_array_equal(run(y, {x: a}), a[places] * 2)
        wanted = np.zeros(n, "f4")
        wanted[places] = 2 * g
        with te.checked():
            np.testing.assert_array_equal(run(gradients[0], {h: g}), wanted)


def test_what_is_sorted_goes_back_as_in_jax() -> None:
    jax = pytest.importorskip("jax")
    jnp = jax.numpy
    a, t = floats(4, 9), floats(4, 9)
    a[:, 3] = a[:, 5]  # equal elements
    weights = np.arange(9, dtype="f4") ** 2
    programs = {
        "sort": (lambda x: (te.sort(te.exp(x), axis=1) * te.constant(weights)).sum(),
                 lambda x: (jnp.sort(jnp.exp(x), axis=1) * weights).sum()),
        "topk": (lambda x: (te.topk(x * x, 3)[0] ** 2).sum(), lambda x: (jax.lax.top_k(x * x, 3)[0] ** 2).sum()),
        "argsort": (lambda x: (te.argsort(x) * x).sum(), lambda x: (jnp.argsort(x) * x).sum()),
    }  # fmt: skip
    for name, (ours, theirs) in programs.items():
        x, dot = te.placeholder((4, 9), "float32", name="x"), te.placeholder((4, 9), "float32", name="dot")
        y = ours(x)
        found = te.evaluate(te.differentiate(y, x), {x: a})
        np.testing.assert_allclose(found, jax.grad(theirs)(a), rtol=1e-5, atol=1e-5, err_msg=name)
        tangent = te.evaluate(te.jvp(y, [x], [dot]), {x: a, dot: t})
        np.testing.assert_allclose(tangent, jax.jvp(theirs, (a,), (t,))[1], rtol=1e-4, atol=1e-4, err_msg=name)


def test_gradients_of_gradients_and_unique_elements() -> None:
    x = te.placeholder((7,), "float32", name="x")
    values, counts = te.unique_counts(x)
    loss = (te.sort(x) ** 3).sum() + (values * counts).sum()
    a = floats(7)
    found = te.evaluate(te.differentiate(loss, x), {x: a})
    np.testing.assert_allclose(found, 3 * a**2 + 1, rtol=1e-5)
    product = te.hvp((te.sort(x) ** 3).sum(), [x], [te.constant(np.ones(7, "f4"))])
    (product,) = product if isinstance(product, (tuple, list)) else (product,)
    np.testing.assert_allclose(te.evaluate(product, {x: a}), 6 * a, rtol=1e-5)


def test_operators_in_torch_and_jax() -> None:
    torch, jax = pytest.importorskip("torch"), pytest.importorskip("jax")

    @te.op
    def best(x: Any, k: int = 3) -> Any:
        return te.topk(te.exp(x), k)

    a = floats(5, 6)
    ours, theirs = (torch.from_numpy(a).requires_grad_() for _ in range(2))
    values, places = best(ours)
    (values**2).sum().backward()
    known = torch.topk(torch.exp(theirs), 3)
    (known.values**2).sum().backward()
    assert bool((places == known.indices).all())
    torch.testing.assert_close(ours.grad, theirs.grad)
    wanted = jax.grad(lambda x: (jax.lax.top_k(jax.numpy.exp(x), 3)[0] ** 2).sum())(a)
    np.testing.assert_allclose(jax.jit(jax.grad(lambda x: (best(x)[0] ** 2).sum()))(a), wanted, rtol=1e-5)
