"""Ranges of stages, and accesses that other stages show to be in bounds: proven beside the reference, unless fed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tedsl as te
from tedsl.analysis.known_places import KnownPlaces
from tedsl.analysis.stage_ranges import StageRanges
from tedsl.backend.lowering.index_checks import checks_of
from tedsl.lang.traverse import stages_of

N, M = 40, 7
X = te.placeholder((N, M), name="x")
W = te.placeholder((N,), "int32", name="w")
TABLE = te.placeholder((10,), name="table")
SMALL = te.compute((N,), lambda i: te.clip(W[i], -2, 3), name="small")
UNIT = te.compute((N, M), lambda i, j: te.clip(X[i, j], 0.0, 1.0), name="unit")


def winner() -> te.Tensor:
    """The place of the largest of a row, by a reducer of one's own."""

    def better(a: tuple[te.Expr, te.Expr], b: tuple[te.Expr, te.Expr]) -> tuple[te.Expr, te.Expr]:
        return te.maximum(a[0], b[0]), te.select(b[0] > a[0], b[1], a[1])

    largest = te.reducer(better, (float("-inf"), 0))
    return te.compute((N,), lambda i: largest(lambda j: (X[i, j], j), axis=te.reduce_axis(M))[1])


def walk() -> te.Tensor:
    """A place that is moved step by step and held within a range."""
    return te.scan((N,), lambda s, t: te.select(t == 0, 4, te.clip(s[t - 1] + SMALL[t], 0, 9)), axis=0)


def record() -> te.Tensor:
    """The greatest so far."""
    return te.scan((N,), lambda s, t: te.select(t == 0, SMALL[0], te.maximum(s[t - 1], SMALL[t])), axis=0)


STAGES: dict[str, tuple[Callable[[], te.Tensor], tuple[float, float]]] = {
    "clipped": (lambda: SMALL, (-2, 3)),
    "read elsewhere": (lambda: te.compute((N,), lambda i: 2 * SMALL[N - 1 - i] + 1), (-3, 7)),
    "argmax": (lambda: te.argmax(X, axis=1), (0, M - 1)),
    "argmin of two loops": (lambda: X.argmin(), (0, N * M - 1)),
    "sum": (lambda: SMALL.sum(), (-2 * N, 3 * N)),
    "sum where": (lambda: te.compute((), lambda: te.sum(lambda k: SMALL[k] + 4, where=lambda k: W[k] > 0)), (0, 7 * N)),
    "sum of floats": (lambda: te.cast(UNIT.sum(1), "int32"), (0, M)),
    "max": (lambda: SMALL.max(), (-2, 3)),
    "min": (lambda: SMALL.min(), (-2, 3)),
    "max where": (lambda: te.compute((), lambda: te.max(lambda k: SMALL[k], where=lambda k: W[k] > 0)), (-(2**31), 3)),
    "count": (lambda: te.cast(UNIT > 0.5, "int32").sum(1), (0, M)),
    "floor": (lambda: te.cast(te.floor(UNIT * 9.0), "int32"), (0, 9)),
    "order": (lambda: te.argsort(X, axis=1), (0, M - 1)),
    "sorted": (lambda: te.sort(SMALL), (-2, 3)),
    "topk": (lambda: te.topk(X, 3)[1], (0, M - 1)),
    "searched": (lambda: te.searchsorted(te.sort(X[:, 0]), X[:, 1]), (0, N)),
    "counts": (lambda: te.unique_counts(W)[1], (0, N)),
    "reducer": (winner, (0, M - 1)),
    "scan": (walk, (0, 9)),
    "running maximum": (record, (-2, 3)),
    "scatter": (lambda: scattered("add"), (-2 * N, 3 * N)),
    "greatest scattered": (lambda: scattered("max"), (-(2**31), 3)),
}  # fmt: skip


def scattered(op: str) -> te.Tensor:
    """Small numbers joined at places that are data."""
    k = te.reduce_axis(N)
    return te.scatter((10,), axes=[k], index=(W[k] % 10,), value=SMALL[k], op=op)


def feeds() -> dict[te.Tensor, np.ndarray]:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(N, M)).astype(np.float32)
    x[3, 2], x[5] = np.nan, np.inf
    table = rng.normal(size=10).astype(np.float32)
    return {X: x, W: rng.integers(-9, 9, N).astype(np.int32), TABLE: table}


@pytest.mark.parametrize("name", STAGES)
def test_elements_lie_in_the_interval(name: str) -> None:
    make, wanted = STAGES[name]
    stage = make()
    low, high = StageRanges([X, W]).of(stage)
    assert (low, high) == pytest.approx(wanted, abs=0 if name != "sum of floats" else 1)
    values = te.interpret(stage, {t: a for t, a in feeds().items() if t is not TABLE})
    assert low <= values.min() <= values.max() <= high


def pick(stage: te.Tensor) -> te.Tensor:
    """An element of the table for each place."""
    return te.compute(stage.shape, lambda *i: TABLE[stage[i]] * 2.0)


INSIDE: dict[str, Callable[[], te.Tensor]] = {
    "clipped": lambda: pick(te.compute((N,), lambda i: SMALL[i] + 2)),
    "through two stages": lambda: pick(te.compute((N,), lambda i: SMALL[N - 1 - i] + te.argmax(X, axis=1)[i] // 3 + 2)),
    "made of floats": lambda: pick(te.cast(te.floor(UNIT * 9.0), "int32")),
    "made of 64 bits": lambda: pick(te.clip(te.cast(W, "int64") * 10**10, 0, 9)),
    "reducer": lambda: pick(winner()),
    "scan": lambda: pick(walk()),
    "order": lambda: pick(te.argsort(X, axis=1)),
    "asked in another stage": lambda: asked(),
    "written": lambda: written(),
}


def asked() -> te.Tensor:
    """A table that is read where a stage of conditions says so."""
    valid = te.compute((N,), lambda i: (W[i] >= 0) & (W[i] < 8), name="valid")
    return te.compute((N,), lambda i: te.select(valid[i], TABLE[W[i] + 2], -1.0))


def written() -> te.Tensor:
    """Sums at places that another stage clips."""
    k = te.reduce_axis(N)
    return te.scatter((6,), axes=[k], index=(SMALL[k] + 2,), value=X[k, 0])


@pytest.mark.parametrize("name", INSIDE)
def test_places_of_other_stages_need_no_check(name: str) -> None:
    result = INSIDE[name]()
    inputs = [X, W, TABLE]
    places = KnownPlaces(inputs)
    open_ones = [op for op in stages_of([result]) if checks_of([op])]
    assert open_ones
    assert all(set(checks_of([op])) == set(places.settled(op)) for op in open_ones)
    kernel = te.build(inputs, result)
    assert "requirement" not in kernel.source("stmt").replace("order_requirement", "")
    values = feeds()
    np.testing.assert_allclose(kernel(*(values[t] for t in inputs)), te.interpret(result, values), rtol=1e-6)


def test_a_stage_that_is_fed_may_be_anything() -> None:
    place = te.compute((N,), lambda i: te.clip(W[i], 0, 5), name="place")
    result = te.compute((N,), lambda i: TABLE[place[i] + 4], name="result")
    table, given = feeds()[TABLE], np.full(N, 5, np.int32)
    assert not KnownPlaces([place, TABLE]).settled(result.op)
    kernel = te.build([place, TABLE], result)
    np.testing.assert_array_equal(kernel(given, table), np.full(N, table[9]))
    given[7] = 6
    with pytest.raises(IndexError, match="10"):
        kernel(given, table)
    with pytest.raises(IndexError, match="10"):
        te.evaluate(result, {place: given, TABLE: table})


def test_places_that_may_lie_outside_are_checked() -> None:
    place = te.compute((N,), lambda i: te.clip(W[i], 0, 9), name="place")
    result = te.compute((N,), lambda i: TABLE[place[i] + 1], name="result")
    assert not KnownPlaces([W, TABLE]).settled(result.op)
    with pytest.raises(IndexError, match="10"):
        te.evaluate(result, {W: np.full(N, 9, np.int32), TABLE: feeds()[TABLE]})


def test_symbolic_sizes() -> None:
    n = te.var("n")
    table = te.placeholder((n,), name="table")
    place = te.compute((N,), lambda i: te.clip(W[i], 0, n - 1), name="place")
    result = te.compute((N,), lambda i: table[place[i]] - table[n - 1 - place[i]], name="result")
    assert set(KnownPlaces([W, table]).settled(result.op)) == set(checks_of([result.op]))
    values = {W: feeds()[W], table: np.arange(12, dtype=np.float32) ** 2}
    np.testing.assert_array_equal(te.evaluate(result, values), te.interpret(result, values))


def test_schedules_of_ones_own_know_places_too() -> None:
    result = pick(te.compute((N,), lambda i: SMALL[i] + 2, name="place"))
    schedule = te.Schedule(result)
    schedule[result].split(schedule[result].axes[0], 8)
    kernel = te.build([W, TABLE], result, schedule=schedule)
    assert "requirement" not in kernel.source("stmt")
    values = feeds()
    wanted = te.interpret(result, {t: values[t] for t in (W, TABLE)})
    np.testing.assert_array_equal(kernel(values[W], values[TABLE]), wanted)
