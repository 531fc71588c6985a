"""What a result does not depend on, though it reads it: found where it is so, and never where it is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import tedsl as te
from tedsl.analysis.canceling import canceling
from tedsl.lang.expr import Reduce
from tedsl.lang.traverse import stages_of, topological

ROWS, COLUMNS = 3, 4
Program = Callable[[te.Tensor, te.Tensor], te.Tensor]


def left_out(*outputs: te.Tensor) -> list[str]:
    order = stages_of(outputs)
    return [t.name for t in canceling(order, outputs, lambda op: op.inputs, lambda op: False)]


def top_of(x: te.Tensor, kind: str = "max") -> te.Tensor:
    return te.compute((ROWS,), lambda i: getattr(te, kind)(lambda j: x[i, j]), name="top")


def softmax(x: te.Tensor, top: te.Tensor, scale: float = 1.0) -> te.Tensor:
    e = te.compute((ROWS, COLUMNS), lambda i, j: te.exp((x[i, j] - top[i]) * scale))
    total = te.compute((ROWS,), lambda i: te.sum(lambda j: e[i, j]))
    return te.compute((ROWS, COLUMNS), lambda i, j: e[i, j] / total[i])


def entropy(x: te.Tensor, top: te.Tensor) -> te.Tensor:
    p = softmax(x, top)
    return te.compute((ROWS,), lambda i: te.sum(lambda j: -p[i, j] * te.log(p[i, j])))


def logsumexp(x: te.Tensor, top: te.Tensor) -> te.Tensor:
    return te.compute((ROWS,), lambda i: top[i] + te.log(te.sum(lambda j: te.exp(x[i, j] - top[i]))))


def in_base_two(x: te.Tensor, top: te.Tensor) -> te.Tensor:
    return te.compute((ROWS,), lambda i: te.log2(te.sum(lambda j: te.exp2(3.0 * (x[i, j] - top[i])))) / 3.0 + top[i])


def centered_later(x: te.Tensor, top: te.Tensor) -> te.Tensor:
    shifted = te.compute((ROWS, COLUMNS), lambda i, j: x[i, j] - top[i])
    mean = te.compute((ROWS,), lambda i: te.max(lambda j: shifted[i, j]))
    return te.compute((ROWS, COLUMNS), lambda i, j: te.select(shifted[i, j] < mean[i], shifted[i, j] - mean[i], 0.0))


def weighted(x: te.Tensor, top: te.Tensor) -> te.Tensor:
    e = te.compute((ROWS, COLUMNS), lambda i, j: te.select(j <= i, te.exp(x[i, j] - top[i]), 0.0))
    summed = te.compute((ROWS,), lambda i: te.sum(lambda j: e[i, j] * x[j % ROWS, i]))
    return te.compute((ROWS,), lambda i: te.sqrt(te.abs(summed[i] / te.sum(lambda j: e[i, j]))))


CANCELS: list[Program] = [softmax, entropy, logsumexp, in_base_two, centered_later, weighted]
DEPENDS: dict[str, Program] = {
    "another row": lambda x, top: te.compute((ROWS,), lambda i: x[i, 0] - top[i] + top[(i + 1) % ROWS]),
    "once too often": lambda x, top: te.compute((ROWS,), lambda i: top[i] - 2.0 * top[i]),
    "no quotient": lambda x, top: te.compute((ROWS,), lambda i: te.sum(lambda j: te.exp(x[i, j] - top[i]))),
    "over rows": lambda x, top: te.compute((COLUMNS,), lambda j: te.log(te.sum(lambda i: te.exp(x[i, j] - top[i])))),
    "a product": lambda x, top: te.compute((ROWS,), lambda i: top[i] * x[i, 0] - top[i] * x[i, 1]),
    "a square": lambda x, top: te.compute((ROWS,), lambda i: top[i] * top[i] - top[i]),
    "above 0": lambda x, top: te.compute((ROWS,), lambda i: te.maximum(x[i, 0] - top[i], -1.0) + top[i]),
    "compared": lambda x, top: te.compute((ROWS,), lambda i: te.sum(lambda j: te.select(x[i, j] > top[i], 1.0, 0.0))),
    "a place": lambda x, top: te.compute((ROWS,), lambda i: x[i, te.cast(9.0 * te.abs(top[i]), "int32") % 4]),
    "rounded": lambda x, top: te.compute((ROWS,), lambda i: te.floor(top[i]) - top[i]),
    "two bases": lambda x, top: te.compute((ROWS,), lambda i: te.log(te.exp2(x[i, 0] - top[i])) + top[i]),
    "a sum of terms": lambda x, top: te.compute((ROWS,), lambda i: te.sum(lambda j: x[i, j] - top[i]) + top[i]),
    "plus one": lambda x, top: te.compute((ROWS,), lambda i: te.log(1.0 + te.exp(x[i, 0] - top[i])) + top[i]),
}


def moved(program: Program, values: np.ndarray[Any, Any], by: np.ndarray[Any, Any]) -> tuple[Any, Any]:
    """What a program gives with the maxima of its rows, and with other numbers in their place."""
    x, top = te.placeholder((ROWS, COLUMNS), "float64", name="x"), te.placeholder((ROWS,), "float64", name="top")
    y = program(x, top)
    with np.errstate(all="ignore"):
        return tuple(te.interpret(y, {x: values, top: values.max(1) + b}) for b in (np.zeros(ROWS), by))


@pytest.mark.parametrize("kind", ["max", "min"])
@pytest.mark.parametrize("program", CANCELS, ids=lambda f: f.__name__)
def test_what_is_subtracted_and_divided_out(program: Program, kind: str) -> None:
    x = te.placeholder((ROWS, COLUMNS), name="x")
    assert "top" in left_out(program(x, top_of(x, kind)))


@pytest.mark.parametrize("program", DEPENDS.values(), ids=DEPENDS)
def test_what_results_depend_on(program: Program) -> None:
    values = np.random.default_rng(3).standard_normal((ROWS, COLUMNS))
    before, after = moved(program, values, np.array([0.7, -1.3, 0.4]))
    assert not np.allclose(before, after)
    x = te.placeholder((ROWS, COLUMNS), "float64", name="x")
    assert left_out(program(x, top_of(x))) == []


OPERATIONS: dict[str, Callable[..., Any]] = {
    "add": lambda a, b, i, j: a(i, j) + b(i, j),
    "sub": lambda a, b, i, j: a(i, j) - b(i, j),
    "mul": lambda a, b, i, j: a(i, j) * b(i, j),
    "div": lambda a, b, i, j: a(i, j) / b(i, j),
    "max": lambda a, b, i, j: te.maximum(a(i, j), b(i, j)),
    "choose": lambda a, b, i, j: te.select(a(i, j) < b(i, j), a(i, j), b(i, j)),
    "twice": lambda a, b, i, j: 2.0 * a(i, j),
    "neg": lambda a, b, i, j: -a(i, j),
    "exp": lambda a, b, i, j: te.exp(a(i, j)),
    "log": lambda a, b, i, j: te.log(te.abs(a(i, j))),
    "total": lambda a, b, i, j: te.sum(a(i, over := te.reduce_axis(COLUMNS)), axis=over),
    "top": lambda a, b, i, j: te.max(a(i, over := te.reduce_axis(COLUMNS)), axis=over),
    "rows": lambda a, b, i, j: te.max(a(over := te.reduce_axis(ROWS), j), axis=over),
    "turned": lambda a, b, i, j: a((i + 1) % ROWS, j),
}
Step = tuple[str, int, int]


def drawn(steps: list[Step]) -> Program:
    """A program whose stages read two of those before."""

    def program(x: te.Tensor, top: te.Tensor) -> te.Tensor:
        values: list[Callable[..., Any]] = [
            lambda i, j: x[i, j], lambda i, j: top[i], lambda i, j: x[i, j] - top[i],
            lambda i, j: te.exp(x[i, j] - top[i]),
        ]  # fmt: skip
        for kind, first, second in steps:
            a, b = (values[-1 - k % len(values)] for k in (first, second))
            made = te.compute((ROWS, COLUMNS), lambda i, j, f=OPERATIONS[kind], a=a, b=b: f(a, b, i, j), name=kind)
            values.append(lambda i, j, made=made: made[i, j])
        return te.compute((ROWS, COLUMNS), lambda i, j: values[-1](i, j), name="y")

    return program


@settings(max_examples=200)
@given(st.lists(st.tuples(st.sampled_from(list(OPERATIONS)), st.integers(0, 5), st.integers(0, 5)), max_size=6))
def test_nothing_is_left_out_that_changes_a_result(steps: list[Step]) -> None:
    program, values = drawn(steps), np.random.default_rng(5).standard_normal((ROWS, COLUMNS))
    x = te.placeholder((ROWS, COLUMNS), "float64", name="x")
    top = te.compute((ROWS,), lambda i: te.max(lambda j: x[i, j]), name="top_of_x")
    if "top_of_x" in left_out(program(x, top)):
        before, after = moved(program, values, np.array([0.7, -1.3, 0.4]))
        np.testing.assert_allclose(after, before, rtol=1e-9, atol=1e-12)


@pytest.mark.long
@settings(max_examples=20_000)
@given(st.lists(st.tuples(st.sampled_from(list(OPERATIONS)), st.integers(0, 5), st.integers(0, 5)), max_size=8))
def test_nothing_is_left_out_that_changes_one_of_many_results(steps: list[Step]) -> None:
    test_nothing_is_left_out_that_changes_a_result.hypothesis.inner_test(steps)  # type: ignore[attr-defined]


def test_gradients_are_those_of_the_definition_to_the_last_digits() -> None:
    x = te.placeholder((ROWS, 512), name="x")
    y = te.ops.log_softmax(x)
    head = te.placeholder((ROWS, 512), name="head")
    gradient = te.differentiate(y, x, head=head)
    assert "the output is the same whatever x_max is" in str(gradient.explain())
    assert not any("winner" in op.name for op in stages_of([gradient]))
    rng = np.random.default_rng(2)
    values, g = (rng.standard_normal((ROWS, 512)).astype("f4") for _ in range(2))
    v, h = values.astype("f8"), g.astype("f8")
    p = np.exp(v - v.max(1, keepdims=True))
    want = h - p / p.sum(1, keepdims=True) * h.sum(1, keepdims=True)
    np.testing.assert_allclose(te.evaluate(gradient, {x: values, head: g}), want, rtol=2e-6, atol=2e-6)


def test_second_derivatives_leave_it_out_too() -> None:
    x = te.placeholder((ROWS, COLUMNS), "float64", name="x")
    loss = te.compute((), lambda: te.sum(lambda i, j: te.ops.softmax(x)[i, j] ** 2.0))
    (product,) = te.hvp(loss, [x], [x])
    assert not any("winner" in op.name for op in stages_of([product]))
    te.gradcheck(te.differentiate(loss, x), [x])


def test_derivatives_along_a_direction_leave_it_out_too() -> None:
    x, v = (te.placeholder((ROWS, COLUMNS), "float64", name=n) for n in "xv")
    y = te.ops.softmax(x)
    dot = te.jvp(y, x, v)
    assert not any("winner" in op.name for op in stages_of([dot]))
    rng = np.random.default_rng(2)
    values, along = rng.standard_normal((2, ROWS, COLUMNS))
    p = te.evaluate(y, {x: values})
    want = p * (along - (p * along).sum(1, keepdims=True))
    np.testing.assert_allclose(te.evaluate(dot, {x: values, v: along}), want, rtol=1e-12, atol=1e-14)


def test_what_is_asked_for_is_computed() -> None:
    x = te.placeholder((ROWS, COLUMNS), name="x")
    top = top_of(x)
    grads = te.differentiate(softmax(x, top), [x, top], head=te.placeholder((ROWS, COLUMNS), name="h"))
    assert any("winner" in op.name for op in stages_of([grads[0]]))
    assert not isinstance(grads[1].op, type(te.placeholder(()).op))


def test_overrides_are_followed() -> None:
    """A derivative that somebody gave need not be that of the definition."""
    x = te.placeholder((ROWS, COLUMNS), name="x")
    top = top_of(x)
    shifted = te.compute((ROWS, COLUMNS), lambda i, j: x[i, j] - top[i], name="shifted")
    e = te.exp(shifted)
    y = e / e.sum(1, keepdims=True)
    given_back: list[str] = []

    def rule(t: te.Tensor, inputs: list[te.Tensor], head: te.Tensor) -> list[Any]:
        given_back.extend(t.name for t in inputs)
        return [head, te.compute((ROWS,), lambda i: te.sum(lambda j: -head[i, j]))]

    grads = te.differentiate(y, [x], head=te.placeholder((ROWS, COLUMNS), name="h"), override={shifted: rule})
    assert given_back == ["x", "top"]
    assert any("winner" in op.name for op in stages_of([grads[0]]))
    below = te.differentiate(y, [x], head=te.placeholder((ROWS, COLUMNS), name="h"), override={top: lambda *_: [None]})
    assert not any("winner" in op.name for op in stages_of([below[0]]))


STEPS = 3
Step = Callable[[te.Tensor], te.Tensor]


def shifted(axis: int, top: Callable[[te.Tensor], te.Tensor] = lambda m: m) -> Step:
    def step(z: te.Tensor) -> te.Tensor:
        m = top(z.max(axis, keepdims=True))
        return te.log(te.exp(z - m).sum(axis)) + m.squeeze(axis)

    return step


def sinkhorn(k: te.Tensor, along: Step, down: Step) -> te.Tensor:
    def step(f: te.Tensor, g: te.Tensor, t: te.Expr) -> tuple[te.Tensor, te.Tensor]:
        before = te.where(t == 0, te.zeros((COLUMNS,)), g[t - 1])
        now = -along(k + before[None])
        return now, -down(k + now[:, None])

    f, g = te.scan([(STEPS, ROWS), (STEPS, COLUMNS)], step)
    return te.sin(f[STEPS - 1]).sum() + (g[STEPS - 1] * g[STEPS - 1]).sum()


def flowing_back(k: te.Tensor, loss: te.Tensor) -> set[str]:
    """The kinds of reductions that the gradient is made of."""
    stages = stages_of(list(te.differentiate(loss, [k])))
    before = set(stages_of([loss]))
    nodes = [n for op in stages if op not in before for n in topological(op.expressions)]
    return {n.reducer.kind for n in nodes if isinstance(n, Reduce)}


@pytest.mark.parametrize("way", ["library", "by hand"])
def test_maxima_within_steps_send_nothing_back(way: str) -> None:
    k = te.placeholder((ROWS, COLUMNS), "float64", name="k")
    steps = [lambda z, a=a: te.logsumexp(z, a) if way == "library" else shifted(a)(z) for a in (1, 0)]
    loss = sinkhorn(k, *steps)
    stopped = sinkhorn(k, shifted(1, te.stop_gradient), shifted(0, te.stop_gradient))
    assert flowing_back(k, loss).isdisjoint({"argmax"})
    a = np.random.default_rng(0).normal(size=(ROWS, COLUMNS)) * 3
    found, wanted = (te.interpret(te.differentiate(y, [k])[0], {k: a}) for y in (loss, stopped))
    np.testing.assert_allclose(found, wanted, rtol=1e-12)
    kernel = te.build([k], te.differentiate(loss, [k])[0])
    np.testing.assert_allclose(kernel(a), wanted, rtol=1e-12)
    assert te.gradcheck(lambda k: (te.differentiate(sinkhorn(k, *steps), [k])[0] ** 2).sum(), a).ok


def test_a_maximum_that_a_step_leaves_behind_is_followed() -> None:
    k = te.placeholder((ROWS, COLUMNS), "float64", name="k")
    loss = sinkhorn(k, shifted(1), lambda z: z.max(0))
    assert "argmax" in flowing_back(k, loss)
    twice = sinkhorn(k, shifted(1), lambda z: te.log(te.exp(z - z.max(0, keepdims=True)).sum(0)))
    a = np.random.default_rng(1).normal(size=(ROWS, COLUMNS))
    for down in (lambda z: z.max(0), lambda z: te.log(te.exp(z - z.max(0, keepdims=True)).sum(0))):
        assert te.gradcheck(lambda k, down=down: sinkhorn(k, shifted(1), down), a).ok
    assert "argmax" in flowing_back(k, twice)


def test_a_maximum_that_the_next_step_reads_is_followed() -> None:
    x = te.placeholder((STEPS, COLUMNS), "float64", name="x")

    def step(s: te.Tensor, m: te.Tensor, t: te.Expr) -> tuple[te.Tensor, te.Tensor]:
        before = te.where(t == 0, te.zeros(()), m[t - 1])
        top = (x[t] - before).max()
        return te.log(te.exp(x[t] - top).sum()) + top, top

    s, m = te.scan([(STEPS,), (STEPS,)], step)
    assert "argmax" in flowing_back(x, s.sum())
    a = np.random.default_rng(2).normal(size=(STEPS, COLUMNS))

    def loss(x: te.Tensor) -> te.Tensor:
        def step(s: te.Tensor, m: te.Tensor, t: te.Expr) -> tuple[te.Tensor, te.Tensor]:
            before = te.where(t == 0, te.zeros(()), m[t - 1])
            top = (x[t] - before).max()
            return te.log(te.exp(x[t] - top).sum()) + 2 * top, top

        s, m = te.scan([(STEPS,), (STEPS,)], step)
        return s.sum() + m.sum()

    assert te.gradcheck(loss, a).ok
