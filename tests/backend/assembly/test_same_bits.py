"""Sums of products have one value, whatever their loops are and whatever stands in the same kernel."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import tedsl as te

# What is summed over k, and further loops around it.
BODIES = {
    "product": lambda a, b, i, j, k: a[i, k] * b[k, j],
    "square": lambda a, b, i, j, k: (a[i, k] - b[k, j]) ** 2,
    "negative": lambda a, b, i, j, k: -(a[i, k] * b[k, j]),
    "guarded": lambda a, b, i, j, k: te.select(a[i, k] > 0, a[i, k] * b[k, j], 0.0),
    "guarded by loops": lambda a, b, i, j, k: te.select(k <= i, a[i, k] * b[k, j], 0.0),
    "of one factor in all columns": lambda a, b, i, j, k: a[i, k] * a[i, 0] + 0.0 * b[k, j],
    "without columns": lambda a, b, i, j, k: a[i, k] * a[k % 5, 3],
    "by a number": lambda a, b, i, j, k: a[i, k] * 0.3,
    "two products": lambda a, b, i, j, k: a[i, k] * b[k, j] + b[k, j] * 0.7,
    "of functions": lambda a, b, i, j, k: te.exp(a[i, k]) * te.tanh(b[k, j]),
}
USES = {
    "at the root": lambda s, c: s[c].compute_root(),
    "vectors": lambda s, c: s[c].vectorize("j", 8),
    "narrow vectors": lambda s, c: s[c].vectorize("j", 4).unroll("i", 3),
    "sums in memory": lambda s, c: (s[c].split("k", 4), s[c].reorder("ko", "i", "ki", "j"), s[c].vectorize("j", 16)),
    "unrolled": lambda s, c: s[c].unroll("k").unroll("j", 5),
    "parallel": lambda s, c: (s[c].tile("i", "j", 2, 16), s[c].vectorize("ji").unroll("ii").parallel("io")),
}


def sums_of(names: Sequence[str], dtype: str, rows: int, terms: int, columns: int) -> tuple[Any, Any]:
    """The inputs, and a sum for each name."""
    a = te.placeholder((max(rows, 5), max(terms, 4)), dtype, name="a")
    b = te.placeholder((terms, columns), dtype, name="b")
    outputs = []
    for name in names:
        k = te.reduce_axis(terms, name="k")
        body = BODIES[name]
        c = te.compute((rows, columns), lambda i, j, body=body, k=k: te.sum(body(a, b, i, j, k), axis=k), name="c")
        outputs.append(c)
    return [a, b], outputs


def results_of(inputs: Any, outputs: Any, scheduled: Callable[[te.Schedule, Any], Any]) -> list[np.ndarray]:
    s = te.Schedule(outputs)
    for c in outputs:
        scheduled(s, c)
    rng = np.random.default_rng(3)
    return list(
        te.build(inputs, outputs, schedule=s)(*(rng.standard_normal(t.shape).astype(t.dtype.numpy) for t in inputs))
    )


@pytest.mark.share(2)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sums_have_the_same_bits_under_every_schedule(dtype: str) -> None:
    inputs, outputs = sums_of(list(BODIES), dtype, 5, 12, 37)
    found = {use: results_of(inputs, outputs, applied) for use, applied in USES.items()}
    for use, results in found.items():
        for body, values, wanted in zip(BODIES, results, found["at the root"], strict=True):
            np.testing.assert_array_equal(values, wanted, err_msg=f"{body}, {use}")


def drawn_loops(chance: random.Random, stage: Any) -> None:
    """Vectors and unrolled loops, which LLVM puts together anew."""
    stage.compute_root()
    if chance.random() < 0.5:
        stage.unroll("k", *chance.choice([(), (2,), (3,), (4,)]))
    kind = chance.choice(["unroll", "vectorize", "tile", "rows", ""])
    if kind == "unroll":
        stage.unroll("j", chance.choice([2, 4, 5, 8]))
    elif kind == "vectorize":
        stage.vectorize("j", chance.choice([2, 4, 8]))
    elif kind == "tile":
        stage.tile("i", "j", 2, 8)
        stage.unroll("ii")
        stage.vectorize("ji", 4) if chance.random() < 0.5 else stage.unroll("ji", 4)
    elif kind == "rows":
        stage.unroll("i", chance.choice([2, 5]))


def check_drawn(seed: int) -> None:
    chance = random.Random(seed)
    names = chance.choices(list(BODIES), k=chance.choice([3, 6, 10]))
    shape = chance.choice([2, 5, 6]), chance.choice([3, 4, 12]), chance.choice([8, 20, 37])
    inputs, outputs = sums_of(names, chance.choice(["float32", "float64"]), *shape)
    found = results_of(inputs, outputs, lambda s, c: drawn_loops(chance, s[c]))
    plain = results_of(inputs, outputs, lambda s, c: s[c].compute_root())
    for name, values, wanted in zip(names, found, plain, strict=True):
        np.testing.assert_array_equal(values, wanted, err_msg=f"{name}, seed {seed}")


@pytest.mark.parametrize("seed", range(3))
def test_drawn_loops_of_several_sums(seed: int) -> None:
    check_drawn(seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 400))
def test_drawn_loops_of_many_sums(seed: int) -> None:
    check_drawn(seed)
