"""Sums inside the steps of a scan run the iterations that their conditions leave."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import tedsl as te
from tests.levels import PROCESSORS, processor

CHANCE = np.random.default_rng(5)
STEPS, ROWS, COLUMNS, TERMS = 4, 5, 19, 11

Condition = Any


@st.composite
def conditions(draw: st.DrawFn, depth: int = 2) -> Any:
    """A condition over (t, i, j, k) as a function of these: affine comparisons, joined."""
    if depth and draw(st.booleans()):
        a, b = draw(conditions(depth=depth - 1)), draw(conditions(depth=depth - 1))
        join = draw(st.sampled_from(["and", "or", "not"]))
        if join == "not":
            return lambda *at: ~a(*at)
        return (lambda *at: a(*at) & b(*at)) if join == "and" else (lambda *at: a(*at) | b(*at))
    factors = draw(st.lists(st.sampled_from([0, 0, 1, -1, 2]), min_size=4, max_size=4))
    factors[3] = draw(st.sampled_from([0, 1, -1, 1, -1, 2]))
    constant, kind = draw(st.integers(-6, 6)), draw(st.sampled_from("<>=LGn"))

    def made(*at: Any) -> Any:
        total = sum((f * x for f, x in zip(factors, at, strict=True) if f), at[0] * 0 + constant)
        compare = {
            "<": lambda: total < 0, ">": lambda: total > 0, "=": lambda: total == 0, "L": lambda: total <= 0,
            "G": lambda: total >= 0, "n": lambda: total != 0,
        }  # fmt: skip
        return compare[kind]()

    return made


def program(where: Condition, *, inner: bool, reverse: bool, begin: int, terms: Any) -> tuple[te.Tensor, te.Tensor]:
    """A recurrence in which two sums over what was before are asked for under conditions."""
    x = te.placeholder((ROWS, COLUMNS), "float64", name="x")

    def element(s: Any, t: Any, i: Any, j: Any) -> Any:
        first = t == STEPS - 1 if reverse else t == 0
        before = t + 1 if reverse else t - 1
        k = te.reduce_axis((begin, terms), name="k")
        total = te.sum(s[before, i, k] * x[i, j], axis=k, where=where(t, i, j, k))
        if inner:  # two loops, the conditions on the outer one
            p, m = te.reduce_axis(terms, name="p"), te.reduce_axis(2, name="m")
            total = total + te.sum(s[before, m, p], axis=(p, m), where=where(t, i, j, p))
        return te.select(first, x[i, j], 0.25 * s[before, i, j] + 0.125 * total)

    return x, te.scan((STEPS, ROWS, COLUMNS), element, axis=0, reverse=reverse)


def agree(found: Any, want: Any) -> None:
    np.testing.assert_allclose(found, want, rtol=1e-11, atol=1e-11)


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(conditions(), st.booleans(), st.booleans(), st.sampled_from([0, 2]), PROCESSORS)
def test_drawn_conditions(where: Condition, inner: bool, reverse: bool, begin: int, level: str) -> None:
    x, y = program(where, inner=inner, reverse=reverse, begin=begin, terms=TERMS)
    given_x = CHANCE.standard_normal((ROWS, COLUMNS))
    with processor(level):
        agree(te.evaluate(y, {x: given_x}), te.interpret(y, {x: given_x}))


@pytest.mark.long
@settings(max_examples=1500, deadline=None, suppress_health_check=list(HealthCheck))
@given(conditions(depth=4), st.booleans(), st.booleans(), st.sampled_from([0, 2]))
def test_many_drawn_conditions(where: Condition, inner: bool, reverse: bool, begin: int) -> None:
    x, y = program(where, inner=inner, reverse=reverse, begin=begin, terms=TERMS)
    given_x = CHANCE.standard_normal((ROWS, COLUMNS))
    agree(te.evaluate(y, {x: given_x}), te.interpret(y, {x: given_x}))


@pytest.mark.parametrize("size", [0, 1, 7, 24])
def test_sizes_that_the_call_tells(size: int) -> None:
    n = te.var("n")
    x = te.placeholder((n, n), "float64", name="x")
    y = te.scan(
        (3, n, n),
        lambda s, t, i, j: te.select(
            t == 0, x[i, j], te.sum(lambda k: s[t - 1, i, k] * x[k, j], where=lambda k: (k > i) & (k <= j))
        ),
    )
    given_x = CHANCE.standard_normal((size, size))
    agree(te.evaluate(y, {x: given_x}), te.interpret(y, {x: given_x}))


def lengths(kern: Any) -> set[str]:
    """How long the loops over terms are, in Halide's program."""
    found = set(re.findall(r"for \(\S+\.s1\.\S+\$[xyz], 0, (.*)\) \{", kern.source("stmt")))
    assert found
    return found


@pytest.mark.parametrize(
    "where", [lambda t, i, j, k: k < t, lambda t, i, j, k: k > i, lambda t, i, j, k: i == t, lambda t, i, j, k: j == t]
)
def test_terms_that_are_not_asked_for_take_no_iterations(where: Condition) -> None:
    x, y = program(where, inner=False, reverse=False, begin=0, terms=TERMS)
    assert str(TERMS) not in lengths(te.build(x, y, target="x86-64-v3"))


@pytest.mark.parametrize("first", [lambda t, i, j, k: k < i, lambda t, i, j, k: i == j])
def test_sums_over_other_terms_have_loops_of_their_own(first: Condition) -> None:
    """Together they would walk all terms of both, at every place, with the divisions of one of them."""
    n = 24
    x = te.placeholder((n, n), "float64", name="x")

    def element(s: Any, t: Any, i: Any, j: Any) -> Any:
        one = te.sum(lambda k: s[t - 1, i, k] / x[k, k], where=lambda k: first(t, i, j, k))
        two = te.sum(lambda k: s[t - 1, k, j], where=lambda k: k > i)
        return te.select(t == 0, x[i, j], 0.1 * one + 0.1 * two)

    y = te.scan((3, n, n), element, axis=0)
    assert str(n) not in lengths(te.build(x, y, target="x86-64-v3"))
    given_x = CHANCE.standard_normal((n, n)) + 3
    agree(te.evaluate(y, {x: given_x}), te.interpret(y, {x: given_x}))


def test_an_adjoint_at_one_place_is_a_sum_there_alone() -> None:
    """The reads of one column by all others come back as a sum over these at that column."""
    n = 24
    a = te.placeholder((n, n), "float64", name="a")
    s = te.scan((n, n, n), lambda s, t, i, j: te.select(t == 0, a[i, j], s[t - 1, i, j] - 0.5 * s[t - 1, i, t - 1]))
    y = te.compute((n, n), lambda i, j: s[n - 1, i, j], name="y")
    head = te.placeholder((n, n), "float64", name="head")
    grad = te.differentiate(y, a, head=head)
    kern = te.build([a, head], grad, target="x86-64-v3")
    assert str(n) not in lengths(kern)
    first, seed = CHANCE.standard_normal((2, n, n))
    want = seed.copy()
    for t in range(n - 1, 0, -1):
        want[:, t - 1] -= 0.5 * want.sum(1)
    np.testing.assert_allclose(kern(first, seed), want, rtol=1e-12, atol=1e-12)


def shared(which: str, *, reverse: bool = False) -> tuple[te.Tensor, te.Tensor]:
    """A recurrence with a sum, and one in that, that depend on some of the places of a step."""
    x = te.placeholder((ROWS, COLUMNS), "float64", name="x")

    def element(s: Any, t: Any, i: Any, j: Any) -> Any:
        first = t == STEPS - 1 if reverse else t == 0
        before = t + 1 if reverse else t - 1
        row, column = (i if "i" in which else 2), (j if "j" in which else 3)
        least = te.max(lambda m: s[before, m, column])
        total = te.sum(lambda k: te.minimum(s[before, row, k], least) * x[row, column], where=lambda k: k != row)
        count = te.sum(lambda k: s[before, row, k]) if "2" in which else 0.0
        return te.select(first, x[i, j], 0.25 * s[before, i, j] + 0.125 * total + 0.01 * count)

    return x, te.scan((STEPS, ROWS, COLUMNS), element, axis=0, reverse=reverse)


SCHEDULES: dict[str, Any] = {
    "as written": lambda s, i, j: None,
    "parallel": lambda s, i, j: s.parallel(i),
    "in vectors": lambda s, i, j: s.vectorize(j, 4),
    "all at once": lambda s, i, j: (s.parallel(i), s.vectorize(j, 4)),
}


@pytest.mark.parametrize(
    ("which", "how"),
    [(w, "default") for w in ("", "i", "j", "ij", "i2")] + [(w, h) for w in ("", "i2") for h in SCHEDULES],
)
def test_sums_that_places_share(which: str, how: str) -> None:
    """They are computed at the first of these places, where loops go in order."""
    x, y = shared(which, reverse=how == "as written")
    schedule: Any = "default"
    if how in SCHEDULES:
        schedule = te.Schedule(y)
        view = schedule[y]
        SCHEDULES[how](view, *[a for a in view.axes if a.name in ("i", "j")])
    given_x = CHANCE.standard_normal((ROWS, COLUMNS))
    agree(te.build(x, y, schedule=schedule)(given_x), te.interpret(y, {x: given_x}))


def test_a_sum_that_all_places_share_is_computed_once() -> None:
    x, y = shared("")
    assert not {str(ROWS), str(COLUMNS)} & lengths(te.build(x, y, target="x86-64-v3"))


def test_a_place_that_is_read_ends_a_sum() -> None:
    """As that of a segment of time: a number that is read before the first step is an atom of conditions."""
    x, at = te.placeholder((4, 19), "float64", name="x"), te.placeholder((1,), "int32", name="at")
    here = te.clip(at[0], 0, 18)

    def element(s: Any, t: Any, i: Any, j: Any) -> Any:
        total = te.sum(lambda k: s[t - 1, i, k], where=lambda k: (j == here + 2) & (k < here))
        return te.select(t == 0, x[i, j], 0.5 * s[t - 1, i, j] + total)

    y = te.scan((STEPS, 4, 19), element, axis=0)
    kernel = te.build([x, at], y)
    given_x = CHANCE.standard_normal((4, 19))
    for place in (0, 3, 16, 18, 40):
        given_at = np.array([place], "int32")
        agree(kernel(given_x, given_at), te.interpret(y, {x: given_x, at: given_at}))
    assert "19" not in lengths(te.build([x, at], y, target="x86-64-v3"))


def test_conditions_on_remainders_say_nothing_of_the_ends() -> None:
    """They were looked up where no axis is known: KeyError."""
    x = te.placeholder((STEPS, ROWS), "float64", name="x")

    def element(s: Any, t: Any, i: Any) -> Any:
        k = te.reduce_axis(ROWS, name="k")
        total = te.sum(s[t - 1, k] * x[t, k], axis=k, where=((k + t) % 2 == 0) | (k < (t + i) // 3))
        return te.select(t == 0, x[0, i], 0.25 * total + x[t, i])

    s = te.scan((STEPS, ROWS), element, axis=0)
    given_x = CHANCE.random((STEPS, ROWS))
    np.testing.assert_allclose(te.evaluate(s, {x: given_x}), te.interpret(s, {x: given_x}), rtol=1e-12)


def normed(u: Any, steps: int, *, rows: bool) -> Any:
    """A recurrence scaled by sums over all that a step has, one of them with another one inside; or by rows."""

    def step(x: Any, t: Any) -> Any:
        before = x[t - 1]
        mean = before.mean()
        spread = ((before - mean) ** 2).sum(axis=-1, keepdims=True) if rows else ((before - mean) ** 2).sum()
        turned = (before * te.roll(before, 1, 1)).sum()
        return te.where(t == 0, u, (before - mean) * te.cos(turned) / te.sqrt(spread + 1) + 0.1)

    return te.scan([(steps, *u.shape)], step)


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.integers(1, 9), st.integers(1, 40), st.sampled_from(["float32", "float64"]), st.booleans(), st.booleans(),
    PROCESSORS,
)  # fmt: skip
def test_lanes_that_add_terms_of_their_own(
    rows: int, columns: int, dtype: Any, by_rows: bool, gradient: bool, level: str
) -> None:
    """A sum of a whole step has one place: each lane of the vectors adds a part of it."""
    x = te.placeholder((rows, columns), dtype, name="x")
    y = normed(x, 4, rows=by_rows)
    out = te.differentiate((y * y).sum(), x) if gradient else y
    given_x = CHANCE.random((rows, columns)).astype(dtype)
    want = te.interpret(out, {x: given_x})
    bound = 1e-4 if dtype == "float32" else 1e-11
    with processor(level):
        np.testing.assert_allclose(te.evaluate(out, {x: given_x}), want, rtol=bound, atol=bound)


@pytest.mark.parametrize(("columns", "each"), [(32, 8), (33, 9), (3, 2)])
def test_a_sum_at_one_place_takes_as_many_terms_at_a_time_as_there_are_lanes(columns: int, each: int) -> None:
    x = te.placeholder((5, columns), "float64", name="x")
    y = normed(x, 4, rows=False)
    kern = te.build(x, y, target="x86-64-v3")
    assert lengths(kern) == {str(5 * each)}
    given_x = CHANCE.random((5, columns))
    agree(kern(given_x), te.interpret(y, {x: given_x}))
