"""Short rows: sums for each of their elements whose terms share a costly factor, and reductions of rows in vectors."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tedsl as te
from tedsl.lang.tensor import Placeholder
from tedsl.lang.traverse import stages_of
from tests.levels import LEVELS_HERE

CHANCE = np.random.default_rng(0)
P, Q = te.placeholder((70, 3), name="P"), te.placeholder((40, 3), name="Q")
A, W = te.placeholder((70, 40), name="A"), te.placeholder((40, 2), name="W")


def distance(i: te.Expr, j: te.Expr) -> te.Expr:
    squares = [(Q[j, c] - P[i, c]) ** 2 for c in range(3)]
    return squares[0] + squares[1] + squares[2]


def forces() -> te.Tensor:
    return te.compute((70, 3), lambda i, d: te.sum(lambda j: (Q[j, d] - P[i, d]) * (distance(i, j) + 0.1) ** -1.5))


def weighted() -> te.Tensor:
    return te.compute((70, 2), lambda i, d: te.sum(lambda j: te.exp(-A[i, j]) * W[j, d], where=lambda j: j <= i))


def by_stages() -> te.Tensor:
    """The forces as NumPy's broadcasting spells them, with a stage for each operation."""
    between = Q[None] - P[:, None]
    return (between * (((between**2).sum(2) + 0.1) ** -1.5)[:, :, None]).sum(1)


def by_stages_down() -> te.Tensor:
    between = Q[None] - P[:, None]
    return (between * te.exp(-A)[:, :, None]).sum(0)


LANES = {forces: "i_v < 16", weighted: "i_v < 16", by_stages: "lane_v < 16", by_stages_down: "i_v < 16"}


@pytest.mark.parametrize("program", LANES, ids=lambda p: p.__name__)
def test_the_elements_of_a_row_are_sums_of_their_own(program: Callable[[], te.Tensor]) -> None:
    output = program()
    text = str(te.Schedule(output).auto(target="x86-64-v4"))
    assert f"for {LANES[program]}, vectorized" in text
    inputs = [op.output() for op in stages_of([output]) if isinstance(op, Placeholder)]
    feeds = {t: CHANCE.normal(size=t.shape).astype(t.dtype.name) for t in inputs}
    found, want = te.build(inputs, output)(*feeds.values()), te.interpret(output, feeds)
    np.testing.assert_allclose(found, want, rtol=2e-5, atol=2e-5)


def test_what_they_share_is_computed_once() -> None:
    text = str(te.Schedule(forces()).auto(target="x86-64-v4"))
    assert text.count("** -1.5") == 1
    assert "forces_0[i], forces_1[i], forces_2[i] +=" in text


def test_rows_that_share_nothing_costly_stay_rows() -> None:
    cheap = te.compute((70, 3), lambda i, d: te.sum(lambda j: A[i, j] * Q[j, d] + 1.0), name="cheap")
    each = te.compute((70, 3), lambda i, d: te.sum(lambda j: te.exp(A[i, j] * Q[j, d])), name="each")
    alone = te.compute((3,), lambda d: te.sum(lambda i: P[i, d] * te.tanh(P[i, 0])), name="alone")
    for output in (cheap, each, alone):
        assert f"{output.op.name}_0" not in str(te.Schedule(output).auto(target="x86-64-v4"))


def test_rows_that_are_written_out_of_which_a_part_is_read() -> None:
    """A row of five is written out; its readers need two of them, and Halide began there to count five."""
    w, d = te.placeholder((3, 7, 6, 5), "float64", name="w"), te.placeholder((2, 4, 2), "float64", name="d")
    v = te.placeholder((2, 4, 2), "float64", name="v")
    wide = te.broadcast_to(te.pad(te.minimum(d, d), ((2, 3), (0, 2), (1, 2))), (3, 7, 6, 5))
    loss = (te.sin(wide) * w).sum()
    outputs = [wide, te.differentiate(loss, d), te.hvp(loss, d, v)]
    chance = np.random.default_rng(0)
    arrays = [chance.standard_normal(tuple(map(int, t.shape))) for t in (w, d, v)]
    inner = np.broadcast_to(np.pad(arrays[1], ((2, 3), (0, 2), (1, 2))), (3, 7, 6, 5))
    within = (slice(2, 4), slice(0, 4), slice(1, 3))
    slope, curve = (f(inner) * arrays[0] for f in (np.cos, lambda x: -np.sin(x)))
    found = te.build([w, d, v], outputs)(*arrays)
    for ours, want in zip(found, (inner, slope.sum(0)[within], curve.sum(0)[within] * arrays[2]), strict=True):
        np.testing.assert_allclose(ours, want, rtol=1e-12, atol=1e-12)


def of_rows(kind: str, n: int, width: int) -> tuple[te.Tensor, te.Tensor]:
    x = te.placeholder((n, width), name="x")
    if kind == "logsumexp":
        return x, x.logsumexp(-1)
    if kind == "softmax":
        return x, te.ops.softmax(x, -1)
    return x, x / te.sqrt((x * x).sum(-1, keepdims=True) + 1e-6)


@pytest.mark.parametrize("level", LEVELS_HERE)
@pytest.mark.parametrize("width", [2, 3, 5, 7])
@pytest.mark.parametrize("kind", ["logsumexp", "softmax", "norm"])
def test_short_rows_of_several_reductions_share_vectors(kind: str, width: int, level: str) -> None:
    """One row after the other, each in scalars: logsumexp of rows of five took twice as long as PyTorch's."""
    x, y = of_rows(kind, 1003, width)
    text = str(te.Schedule(y).auto(target="x86-64-v3"))
    assert "what y needs here" not in text
    assert "_window: " not in text
    a = np.random.default_rng(1).standard_normal((1003, width)).astype("float32")
    found = te.build(x, y, target=level)(a)
    np.testing.assert_allclose(found, te.interpret(y, {x: a}), rtol=3e-6, atol=3e-6)


def test_short_rows_of_large_results_stay_together() -> None:
    """Streams of each stage would go to memory and back."""
    _, y = of_rows("norm", 4_000_000, 3)
    assert "_window: " in str(te.Schedule(y).auto(target="x86-64-v3"))
    _, z = of_rows("logsumexp", 4_000_000, 3)
    assert "_window: " not in str(te.Schedule(z).auto(target="x86-64-v3"))
