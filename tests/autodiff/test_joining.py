"""Sums of products by one factor are one: what is symmetric costs one product, not two."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tedsl as te
from tedsl.lang.expr import Reduce
from tedsl.lang.tensor import Compute, Tensor
from tedsl.lang.traverse import stages_of

N, M = 7, 5


def _sums_by(grad: Tensor, source: str) -> list[Compute]:
    """Stages of a gradient that sum products into the adjoint of an input."""
    found = [op for op in stages_of((grad,)) if isinstance(op, Compute) and op.name.startswith(f"d{source}_")]
    return [op for op in found if isinstance(op.bodies[0], Reduce)]


def _gram(y: Tensor) -> Tensor:
    return te.compute((M, M), lambda i, j: te.sum(lambda k: y[k, i] * y[k, j]), name="gram")


def _without_diagonal(y: Tensor) -> Tensor:
    return te.compute((M, M), lambda i, j: te.select(i == j, 1.0, te.sum(lambda k: y[k, i] * y[k, j])), name="gram")


def _lower(y: Tensor) -> Tensor:
    return te.compute((N, N), lambda i, j: te.select(j <= i, te.sum(lambda k: y[i, k] * y[j, k]), 0.0), name="lower")


def _band(y: Tensor) -> Tensor:
    return te.compute(
        (N, N), lambda i, j: te.sum(lambda k: y[i, k] * y[j, k], where=lambda k: (j <= i) & (i <= j + 2)), name="band"
    )


def _weighed(y: Tensor) -> Tensor:
    return te.compute((M, M), lambda i, j: te.sum(lambda k: -y[k, i] * 3.0 * y[k, j]), name="gram")


def _over_two_loops(y: Tensor) -> Tensor:
    return te.compute((M, M), lambda i, j: te.sum(lambda k, p: y[k, i] * y[p, j] * y[k, j] * y[p, i]), name="gram")


def _quadratic_form(y: Tensor) -> Tensor:
    return te.compute((), lambda: te.sum(lambda i, j: y[i, 0] * (i + 2.0 * j) * y[j, 0]), name="form")


@pytest.mark.parametrize(
    ("program", "sums"),
    [(_gram, 1), (_without_diagonal, 1), (_lower, 1), (_weighed, 1), (_band, 2), (_quadratic_form, 2)],
)
def test_what_is_symmetric_is_one_sum(program: Callable[[Tensor], Tensor], sums: int) -> None:
    y = te.placeholder((N, M), "float64", name="y")
    out = program(y)
    head = te.placeholder(out.shape, "float64", name="head")
    (grad,) = te.differentiate(out, [y], head=head)
    assert len(_sums_by(grad, "y")) == sums


@pytest.mark.parametrize(
    "program", [_gram, _without_diagonal, _lower, _band, _weighed, _over_two_loops, _quadratic_form]
)
def test_gradients_of_symmetric_sums(program: Callable[[Tensor], Tensor]) -> None:
    y = te.placeholder((N, M), "float64", name="y")
    draw = np.random.default_rng(3)
    values: Any = draw.standard_normal((N, M))
    te.gradcheck(program(y), {y: values})


def test_products_of_two_arrays_share_nothing() -> None:
    a, b = (te.placeholder((N, M), "float64", name=n) for n in "ab")
    out = te.compute((N, N), lambda i, j: te.sum(lambda k: a[i, k] * b[j, k] + b[i, k] * a[j, k]), name="both")
    head = te.placeholder((N, N), "float64", name="head")
    da, db = te.differentiate(out, [a, b], head=head)
    assert len(_sums_by(da, "a")) == 1
    assert len(_sums_by(db, "b")) == 1
