"""The mark of schedules that change the order of a reduction's terms: what it says is what the loops do.

The oracle runs the loops one iteration after another on terms that nobody adds up: a sum is the pair of what was there
and what came, so two sums are equal if they were grouped and ordered alike.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import tedsl as te
from schedules.loops import Nest, definitions_of
from schedules.plan import Plan
from schedules.program import program_of
from schedules.written.order import combines_alike, regrouped_between
from tedsl.backend.host.processors import features_of
from tedsl.backend.host.targets import parse_target
from tedsl.lang.scalar_text import Style, expression_text
from tedsl.lang.tensor import Compute
from tests.schedules.drawing import Drawing

MARK = "its terms in another order: other bits"
NOTHING = None  # what a sum begins with


def summed(*extents: int) -> te.Tensor:
    """A sum of all elements of each row of a tensor."""
    x = te.placeholder((2, *extents), name="x")
    axes = [te.reduce_axis(n, "klm"[d]) for d, n in enumerate(extents)]
    return te.compute((2,), lambda i: te.sum(x[(i, *axes)], axis=axes), name="y")


class Elements:
    """Elements of a tensor, by their places: what has none is told by its name."""

    def __init__(self, name: str) -> None:
        self.name, self.values = name, dict[Any, Any]()

    def __getitem__(self, place: Any) -> Any:
        return self.values.get(place, (self.name, place))


def visits(nest: Nest) -> Iterator[dict[str, int]]:
    """The values of all loops, those that were split and fused included, in the order in which they are run."""
    for place in itertools.product(*(range(level.known or 0) for level in nest.levels)):
        values = dict(zip(nest.names, place, strict=True))
        if all(_let(text, values) for text in reversed(nest.lets)):
            yield values


def _let(text: str, values: dict[str, int]) -> bool:
    """Assign what a let says; False where its guard leaves the iteration out."""
    said, _, guard = text.partition("   if ")
    found = [part.split(" = ") for part in said.split(", ")]
    values.update({name: eval(place, {}, values) for name, place in found} if len(found) > 1 else {})
    if len(found) == 1:
        values[found[0][0]] = eval(found[0][1], {}, values)
    return not guard or bool(eval(guard.removesuffix(" (masked)"), {}, values))


def trees(plan: Plan) -> dict[Any, Any]:
    """How the terms of each element of the last stage are combined."""
    known: dict[str, Any] = {"x": Elements("x"), "select": lambda c, a, b: a if c else (NOTHING if b == 0 else b)}
    for name, op in plan.program.stages.items():
        assert isinstance(op, Compute)
        made = known[name] = Elements(name)
        assert definitions_of(op)
        reduce = op.reduction
        values, where = (op.bodies, None) if reduce is None else (reduce.values, reduce.where)
        for values_of_loops in visits(plan.nest(name)):
            place = tuple(values_of_loops[a.name] for a in op.axes)
            key = place if len(place) > 1 else place[0]
            if where is not None and not _value(where, values_of_loops, known):
                continue
            term, before = _value(values[0], values_of_loops, known), made.values.get(key, NOTHING)
            if reduce is None or before is NOTHING:
                made.values[key] = term
            elif term is not NOTHING:
                made.values[key] = (before, term)
    return dict(made.values)


def _value(e: Any, loops: Mapping[str, int], known: Mapping[str, Any]) -> Any:
    return eval(expression_text(e, Style(prefix="")), {"true": True, "True": True}, {**known, **loops})


VERBS = ("split", "split", "reorder", "reorder", "reorder", "fuse", "unroll", "rfactor", "cache_write", "cache_read")
SHAPES = [(7,), (8,), (4, 3), (1, 5), (3, 2, 2), (2, 1, 3)]


@settings(max_examples=400, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32 - 1), shape=st.sampled_from(SHAPES), count=st.integers(1, 6))
def test_the_mark_says_what_the_loops_do(seed: int, shape: tuple[int, ...], count: int) -> None:
    y = summed(*shape)
    drawing = Drawing(seed, [y])
    drawing.verbs = VERBS
    for _ in range(count):
        drawing.step()
    schedule = drawing.schedule
    changed = trees(schedule.plan) != trees(te.Schedule(y).plan)
    assert bool(schedule.regrouped) == changed, schedule.code()
    assert (MARK in str(schedule)) == changed
    assert (MARK in schedule.code()) == changed


def halves(s: te.Schedule, y: te.Tensor) -> None:
    outer, inner = s[y].split("k", 4)
    s[y].reorder(inner, outer)


def kept_halves(s: te.Schedule, y: te.Tensor) -> None:
    s[y].split("k", 4)
    s[y].reorder("ko", "i", "ki")


def lanes(s: te.Schedule, y: te.Tensor) -> None:
    s[y].rfactor(s[y].split("k", 8)[1]).vectorize("ki")


def terms_kept_apart(s: te.Schedule, y: te.Tensor) -> None:
    s[y].rfactor("k").compute_root()
    s[y].compute_root()  # else the default schedule sums it in parts


def in_order(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    total = np.zeros(len(x), np.float32)
    for k in range(x.shape[1]):
        total = total + x[:, k]
    return total


@pytest.mark.parametrize(
    ("recipe", "changes"), [(halves, True), (lanes, True), (kept_halves, False), (terms_kept_apart, False)]
)
def test_without_the_mark_the_bits_are_those_of_the_order_of_the_axes(
    recipe: Callable[[te.Schedule, te.Tensor], None], changes: bool
) -> None:
    y = summed(1000)
    (x,) = y.op.inputs
    s = te.Schedule(y)
    recipe(s, y)
    a = np.random.default_rng(3).standard_normal((2, 1000)).astype(np.float32)
    same = np.array_equal(te.build(x, y, schedule=s)(a), in_order(a))
    assert (s.regrouped == ("y",)) == changes == (not same)


@pytest.mark.parametrize("reduced", [te.max, te.min, te.sum, te.any])
def test_what_is_exact_has_no_mark(reduced: Any) -> None:
    x, k = te.placeholder((2, 40), "bool" if reduced is te.any else "int32", name="x"), te.reduce_axis(40, "k")
    y = te.compute((2,), lambda i: reduced(x[i, k], axis=k), name="y")
    s = te.Schedule(y)
    halves(s, y)
    s[y].init.parallel("i")
    assert not s.regrouped
    assert MARK not in str(s)


def test_points_that_meet_in_parallel_have_the_mark() -> None:
    place, v = te.placeholder((100,), "int32", name="place"), te.placeholder((100,), name="v")
    r = te.reduce_axis(100, "r")
    y = te.scatter((16,), [r], (place[r],), v[r], name="y")
    s = te.Schedule(y)
    s[y].atomic()
    assert not s.regrouped
    s[y].parallel("r")
    assert s.regrouped == ("y",)


def test_a_case_with_an_order_of_its_own_has_the_mark() -> None:
    n = te.var("n")
    x, k, m = te.placeholder((n, 40, 3), name="x"), te.reduce_axis(40, "k"), te.reduce_axis(3, "m")
    y = te.compute((n,), lambda i: te.sum(x[i, k, m], axis=[k, m]), name="y")
    s = te.Schedule(y)
    s[y].reorder("k", "i", "m")
    s[y].specialize(n > 8).unroll("m")
    assert not s.regrouped
    s[y].case(n > 8).split("k", 4)
    s[y].specialize(n > 16).reorder("m", "k")
    assert s.regrouped == ("y",)


def test_a_sum_of_unknown_length_may_change() -> None:
    n = te.var("n")
    x, k = te.placeholder((2, n), name="x"), te.reduce_axis(n, "k")
    y = te.compute((2,), lambda i: te.sum(x[i, k], axis=k), name="y")
    s = te.Schedule(y)
    halves(s, y)
    assert s.regrouped == ("y",)


def test_products_that_are_stored_before_they_are_added_have_the_mark() -> None:
    """They are rounded twice then, else once; a term that is no product is the same number."""
    inputs, y = products()
    s = te.Schedule(y)
    s[y].rfactor("k").compute_root()
    s[y].compute_root()
    assert s.regrouped == ("y",)
    plain = te.Schedule(y)
    plain[y].compute_root()
    arrays = [np.random.default_rng(5).standard_normal(t.shape).astype(np.float32) for t in inputs]
    results = [te.build(inputs, y, schedule=x)(*arrays) for x in (plain, s)]
    assert np.array_equal(*results) == ("fma" not in features_of(parse_target("host").text))


def test_a_copy_of_a_sum_in_groups_has_the_mark() -> None:
    y = summed(8)
    z = te.compute((2,), lambda i: y[i] * 2, name="z")
    s = te.Schedule([y, z])
    s[y].rfactor(s[y].split("k", 4)[1])
    s[y].clone_in(z)
    s[y].cache_write()
    assert s.regrouped == ("y_local", "y", "y_clone")


def products() -> tuple[list[te.Tensor], te.Tensor]:
    a, b = te.placeholder((40, 300), name="a"), te.placeholder((300, 50), name="b")
    return [a, b], te.compute((40, 50), lambda i, j: te.sum(lambda k: a[i, k] * b[k, j]), name="y")


def windows() -> tuple[list[te.Tensor], te.Tensor]:
    a, b = te.placeholder((2, 8, 20, 20), name="a"), te.placeholder((16, 8, 3, 3), name="b")
    y = te.compute(
        (2, 16, 18, 18), lambda n, o, i, j: te.sum(lambda c, k, m: a[n, c, i + k, j + m] * b[o, c, k, m]), name="y"
    )
    return [a, b], y


def rows() -> tuple[list[te.Tensor], te.Tensor]:
    a = te.placeholder((30, 500), name="a")
    return [a], te.compute((30,), lambda i: te.sum(lambda k: a[i, k]), name="y")


@pytest.mark.parametrize("program", [products, windows, rows])
def test_the_default_schedule_says_whether_it_regroups(program: Callable[[], Any]) -> None:
    inputs, y = program()
    plain, default = te.Schedule(y), te.Schedule(y).auto()
    plain[y].compute_root()
    random = np.random.default_rng(5)
    arrays = [random.standard_normal(t.shape).astype(np.float32) for t in inputs]
    results = [te.build(inputs, y, schedule=s)(*arrays) for s in (plain, default)]
    assert np.array_equal(*results) == (not default.regrouped)
    assert bool(default.regrouped) == (program is rows)


def test_axes_that_are_called_alike_are_told_apart() -> None:
    a = te.placeholder((4, 3, 3), name="a")

    def summed() -> te.Tensor:
        axes = te.reduce_axis(3, "k"), te.reduce_axis(3, "k")
        return te.compute((4,), lambda i: te.sum(a[i, axes[0], axes[1]], axis=axes), name="y")

    one, other = program_of([summed()]), program_of([summed()])
    assert not regrouped_between(one, one)
    assert regrouped_between(one, other) == {"y"}  # nobody can tell


ALIKE: dict[str, Callable[[te.Tensor], te.Tensor]] = {
    "softmax": lambda x: te.softmax(x, axis=1),
    "mean of rows": lambda x: x.mean(1),
    "mean of columns": lambda x: x.mean(0),
    "product": lambda x: x.T @ x,
    "rows by rows": lambda x: x @ x.T,
    "sum of squares": lambda x: (x * x).sum(),
    "normalized": lambda x: (x - x.mean(1, keepdims=True)) / te.sqrt(x.var(1, keepdims=True) + 1),
    "after a product": lambda x: te.softmax(te.tanh(x @ x[:70].T), axis=1),
}


@pytest.mark.parametrize("rows", [90, 700])
@pytest.mark.parametrize("name", ALIKE)
def test_plans_that_combine_alike_give_the_same_bits(name: str, rows: int) -> None:
    """Of a symbol for the rows, and of a number; where sums go over the rows, orders may be others."""
    array = np.random.default_rng(rows).standard_normal((rows, 70)).astype("float32")
    plans, results = [], []
    for n in (te.var("n"), rows):
        x = te.placeholder((n, 70), name="x")
        out = ALIKE[name](x)
        written = te.Schedule(out).stages
        plans.append(te.Schedule(out).auto().plan)
        results.append(te.build([x], out)(array).tobytes())
    alike = combines_alike(plans[0], plans[1], written)
    assert not alike or results[0] == results[1]
    if name in ("softmax", "mean of rows", "rows by rows"):
        assert alike  # the rows have no part in what is summed
    if name in ("mean of columns", "sum of squares"):
        assert not alike
