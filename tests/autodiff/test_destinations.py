"""Scans whose step reads its state at places that are data: gradients beside loops in PyTorch, and their work."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import tedsl as te
from tests.levels import PROCESSORS, processor

torch = pytest.importorskip("torch")

STEPS = 4


def given_of(names: dict[str, Any]) -> list[Any]:
    return [te.placeholder(v.shape, str(v.dtype), name=n) for n, v in names.items()]


def neighbors(w: Any, x0: Any, nb: Any) -> Any:
    def step(x: Any, t: Any, i: Any) -> Any:
        k = te.reduce_axis(nb.shape[1], name="k")
        return te.select(t == 0, x0[i], te.tanh(x[t - 1, i] + te.sum(w[i, k] * x[t - 1, nb[i, k]], axis=k)))

    return te.scan((STEPS, x0.shape[0]), step)


def neighbors_in_torch(w: Any, x0: Any, nb: Any) -> Any:
    x = x0
    for _ in range(STEPS - 1):
        x = torch.tanh(x + (w * x[nb]).sum(1))
    return x


def edges_at_once(w: Any, x0: Any, ends: Any) -> Any:
    """Differences along edges, summed where they begin, by masks."""

    def step(x: Any, t: Any) -> Any:
        before = x[t - 1]
        force = w[:, None] * (before[ends[:, 1]] - before[ends[:, 0]])
        there = te.compute(x0.shape, lambda i, c: te.sum(lambda e: force[e, c] * te.cast(ends[e, 0] == i, "float64")))
        return te.where(t == 0, x0, before + te.sin(there))

    return te.scan([(STEPS, *x0.shape)], step)


def edges_in_torch(w: Any, x0: Any, ends: Any) -> Any:
    x = x0
    for _ in range(STEPS - 1):
        force = w[:, None] * (x[ends[:, 1]] - x[ends[:, 0]])
        x = x + torch.sin(torch.zeros_like(x).index_add(0, ends[:, 0], force))
    return x


def rows_of_batches(w: Any, x0: Any, nb: Any) -> Any:
    """Each batch has neighbors of its own; some read none, and a mask changes from step to step."""

    def step(x: Any, t: Any, b: Any, i: Any) -> Any:
        k = te.reduce_axis(nb.shape[2], name="k")
        taken = te.select((nb[b, i, k] != i) & (k + t < STEPS), w[i, k] * x[t - 1, b, nb[b, i, k]], 0.0)
        return te.select(t == 0, x0[b, i], x[t - 1, b, i] + te.sin(te.sum(taken, axis=k)))

    return te.scan((STEPS, *x0.shape), step)


def batches_in_torch(w: Any, x0: Any, nb: Any) -> Any:
    x, (batches, places, count) = x0, nb.shape
    rows = torch.arange(batches)[:, None, None]
    for t in range(1, STEPS):
        mask = (nb != torch.arange(places)[:, None]) & (torch.arange(count) + t < STEPS)
        x = x + torch.sin((torch.where(mask, x[rows, nb], 0.0) * w).sum(2))
    return x


def features(w: Any, x0: Any, nb: Any) -> Any:
    """Rows of features that are mixed."""

    def step(x: Any, t: Any, i: Any, c: Any) -> Any:
        k, d = te.reduce_axis(nb.shape[1], name="k"), te.reduce_axis(x0.shape[1], name="d")
        return te.select(t == 0, x0[i, c], te.tanh(te.sum(w[c, d] * x[t - 1, nb[i, k], d], axis=(k, d))))

    return te.scan((STEPS, *x0.shape), step)


def features_in_torch(w: Any, x0: Any, nb: Any) -> Any:
    x = x0
    for _ in range(STEPS - 1):
        x = torch.tanh(x[nb].sum(1) @ w.T)
    return x


def arrays_of(which: str, n: int, k: int, seed: int, kind: str) -> tuple[Any, ...]:
    chance = np.random.default_rng(seed)
    if which == "edges":
        return chance.normal(size=k), chance.normal(size=(n, 2)), chance.integers(0, n, (k, 2)).astype(kind)
    if which == "batches":
        return chance.normal(size=(n, k)), chance.normal(size=(3, n)), chance.integers(0, n, (3, n, k)).astype(kind)
    if which == "features":
        return chance.normal(size=(9, 9)), chance.normal(size=(n, 9)), chance.integers(0, n, (n, k)).astype(kind)
    return chance.normal(size=(n, k)), chance.normal(size=n), chance.integers(0, n, (n, k)).astype(kind)


PROGRAMS = {
    "neighbors": (neighbors, neighbors_in_torch),
    "edges": (edges_at_once, edges_in_torch),
    "batches": (rows_of_batches, batches_in_torch),
    "features": (features, features_in_torch),
}


def gradients(which: str, w: Any, x0: Any, nb: Any) -> tuple[list[Any], list[Any]]:
    """The inputs, and the last state with the gradients of the sum of its squares."""
    inputs = given_of({"w": w, "x0": x0, "nb": nb})
    last = PROGRAMS[which][0](*inputs)[STEPS - 1]
    return inputs, [last, *te.differentiate((last * last).sum(), inputs[:2])]


def in_torch(which: str, w: Any, x0: Any, nb: Any) -> list[Any]:
    w, x0 = (torch.tensor(a, requires_grad=True) for a in (w, x0))
    last = PROGRAMS[which][1](w, x0, torch.tensor(nb.astype("int64")))
    (last * last).sum().backward()
    return [last.detach().numpy(), w.grad.numpy(), x0.grad.numpy()]


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.sampled_from(sorted(PROGRAMS)), st.integers(1, 20), st.integers(1, 7), st.integers(0, 99),
    st.sampled_from(["int32", "int64", "uint8"]), PROCESSORS,
)  # fmt: skip
def test_gradients_are_those_of_a_loop(which: str, n: int, k: int, seed: int, kind: str, level: str) -> None:
    arrays = arrays_of(which, n, k, seed, kind)
    inputs, wanted = gradients(which, *arrays)
    with processor(level):
        found = te.build(inputs, wanted)(*arrays)
    for a, b in zip(found, in_torch(which, *arrays), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("which", ["neighbors", "batches", "features"])
def test_the_work_of_a_gradient_is_a_multiple_of_that_of_the_scan(which: str) -> None:
    """It went with the square of the number of places."""
    ratios = []
    for n in (50, 400):
        _, (last, *grads) = gradients(which, *arrays_of(which, n, 5, 0, "int32"))
        ratios.append(te.work([last, *grads]).flops / te.work(last).flops)
    assert max(ratios) < 7


def test_sizes_need_not_be_known() -> None:
    n, k = te.var("n"), te.var("k")
    inputs = [te.placeholder((n, k), "float64", name="w"), te.placeholder((n,), "float64", name="x0")]
    inputs.append(te.placeholder((n, k), "int32", name="nb"))
    last = neighbors(*inputs)[STEPS - 1]
    kern = te.build(inputs, [last, *te.differentiate((last * last).sum(), inputs[:2])])
    for sizes in ((7, 3), (40, 1), (1, 1), (0, 2), (5, 0)):
        chance = np.random.default_rng(0)
        nb = chance.integers(0, max(1, sizes[0]), sizes).astype("int32")
        arrays = chance.normal(size=sizes), chance.normal(size=sizes[0]), nb
        for a, b in zip(kern(*arrays), in_torch("neighbors", *arrays), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10)


def test_all_points_may_send_to_one_element_and_none_to_others() -> None:
    w, x0, nb = arrays_of("neighbors", 33, 4, 1, "int32")
    for place in (0, 32):
        nb[:] = place
        inputs, wanted = gradients("neighbors", w, x0, nb)
        for a, b in zip(te.build(inputs, wanted)(w, x0, nb), in_torch("neighbors", w, x0, nb), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("place", [-1, 20, 2**31 - 1, -(2**31)])
def test_a_place_that_is_none_is_an_error(place: int) -> None:
    w, x0, nb = arrays_of("neighbors", 20, 4, 1, "int32")
    inputs, (_, *grads) = gradients("neighbors", w, x0, nb)
    nb[3, 2] = place
    with pytest.raises(IndexError, match="nb"):
        te.build(inputs, grads)(w, x0, nb)


def test_second_derivatives() -> None:
    w, x0, nb = arrays_of("neighbors", 6, 2, 3, "int32")
    inputs = given_of({"w": w, "x0": x0, "nb": nb})
    last = neighbors(*inputs)[STEPS - 1]
    dw, dx0 = te.differentiate((last * last).sum(), inputs[:2])
    again = te.differentiate((dw * dw).sum() + te.sin(dx0).sum(), inputs[:2])
    tw, tx = (torch.tensor(a, requires_grad=True) for a in (w, x0))
    end = neighbors_in_torch(tw, tx, torch.tensor(nb.astype("int64")))
    gw, gx = torch.autograd.grad((end * end).sum(), (tw, tx), create_graph=True)
    want = torch.autograd.grad((gw * gw).sum() + torch.sin(gx).sum(), (tw, tx))
    for a, b in zip(te.build(inputs, list(again))(w, x0, nb), want, strict=True):
        np.testing.assert_allclose(a, b.numpy(), rtol=1e-9, atol=1e-9)


def test_where_each_step_reads_at_places_of_its_own_every_point_is_asked() -> None:
    """There is no order that all steps share."""
    chance = np.random.default_rng(0)
    x0, nb = chance.normal(size=9), chance.integers(0, 9, (STEPS, 9)).astype("int32")
    inputs = given_of({"x0": x0, "nb": nb})
    y = te.scan((STEPS, 9), lambda y, t, i: te.select(t == 0, inputs[0][i], te.sin(y[t - 1, inputs[1][t, i]])))
    grad = te.differentiate((y[STEPS - 1] * y[STEPS - 1]).sum(), inputs[0])
    tx = torch.tensor(x0, requires_grad=True)
    x = tx
    for t in range(1, STEPS):
        x = torch.sin(x[torch.tensor(nb[t].astype("int64"))])
    (x * x).sum().backward()
    np.testing.assert_allclose(te.build(inputs, grad)(x0, nb), tx.grad.numpy(), rtol=1e-10, atol=1e-10)
