"""Scans whose states have shapes of their own, and whose steps have stages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import tedsl as te
from schedules.default import LOWEST, assuming
from tedsl.lang.printing import program_text
from tests.levels import PROCESSORS, processor

CHANCE = np.random.default_rng(11)
Array = np.ndarray[Any, Any]


def both(outputs: Any, feeds: dict[te.Tensor, Array], sizes: Any = None) -> list[Any]:
    """What the reference and the compiled program give."""
    outputs = list(outputs) if isinstance(outputs, tuple) else outputs
    return [te.interpret(outputs, feeds), te.evaluate(outputs, feeds)] if sizes is None else []


def close(found: Any, want: Any, rtol: float = 1e-12) -> None:
    for got, expected in zip(found, want, strict=True):
        np.testing.assert_allclose(got, expected, rtol=rtol, atol=rtol)


def test_errors_in_a_step_name_no_dtype_that_is_not_known_yet() -> None:
    def step(s: Any, t: Any, i: Any) -> Any:
        y = te.compute((4,), lambda j: s[t - 1, j] * 2, name="y")
        return s[t - 1, i] + y[i, 0]

    with pytest.raises(IndexError, match=r"index of y : \[4\] at .*: expected at most 1 indices, found 2"):
        te.scan((10, 4), step)


A, v0 = te.placeholder((4, 4), "float64", name="A"), te.placeholder((4,), "float64", name="v0")
x = te.placeholder((6, 4), "float64", name="x")


def by_elements(v: Any, size: Any, t: Any) -> Any:
    w = te.compute((4,), lambda i: te.sum(lambda k: A[i, k] * v[t - 1, k]), name="w")
    norm = te.compute((), lambda: te.sqrt(te.sum(lambda k: w[k] * w[k])), name="norm")
    value = te.select(t == 0, 0.0, te.sum(lambda k: w[k] * v[t - 1, k]))
    return lambda i: te.select(t == 0, v0[i], w[i] / norm), value


def by_tensors(v: Any, size: Any, t: Any) -> Any:
    before = v[t - 1]
    w = A @ before
    return te.where(t == 0, v0, w / te.sqrt((w * w).sum())), te.select(t == 0, 0.0, (w * before).sum())


def iterated(matrix: Array, first: Array, steps: int) -> tuple[Array, Array]:
    """Power iteration in NumPy."""
    vectors, values = [first], [0.0]
    for _ in range(steps - 1):
        w = matrix @ vectors[-1]
        values.append(w @ vectors[-1])
        vectors.append(w / np.sqrt(w @ w))
    return np.array(vectors), np.array(values)


@pytest.mark.parametrize("step", [by_elements, by_tensors])
def test_power_iteration(step: Any) -> None:
    v, size = te.scan([(6, 4), (6,)], step)
    assert (v.name, size.name, v.shape, size.shape) == ("v", "size", (6, 4), (6,))
    feeds = {A: CHANCE.random((4, 4)), v0: CHANCE.random(4)}
    for found in both((v, size), feeds):
        close(found, iterated(feeds[A], feeds[v0], 6))
    te.gradcheck((v * v * v).sum() + (size * size).sum(), [A, v0], feeds)
    (tangents,) = (te.jvp([v], [v0], [te.constant(np.eye(4)[0], "e")]),)
    close([te.evaluate(tangents, feeds)[0]], [te.interpret(tangents, feeds)[0]])


def test_it_is_printed_as_it_was_written() -> None:
    v, size = te.scan([(6, 4), (6,)], by_elements)
    lines = str(v).splitlines()
    assert lines[0] == "for t < 6 in order:"
    assert "    w[t, i] = select(~(t == 0), sum(A[i, k] * v[t - 1, k], axis=k), 0.0)   for i < 4" in lines
    assert "    v[t, i] = select(t == 0, v0[i], w[t, i] / norm[t])   for i < 4" in lines
    text = program_text([v + 1.0, size])
    assert "phase" not in text
    assert text.count("for t < 6 in order:") == 1
    assert "v_add" not in text or "= v[" in text
    (gradient,) = te.differentiate([size.sum()], [A])
    assert "phase" not in program_text(gradient).replace("dscan_0_v[", "")
    assert "dw[t + 1" in program_text(gradient)


def test_states_of_their_own_shapes() -> None:
    def step(h: Any, c: Any, t: Any) -> Any:
        return (
            lambda i: te.select(t == 0, x[0, i], h[t - 1, i] * c[t - 1]),
            te.select(t == 0, 0.0, te.sum(lambda k: h[t - 1, k])),
        )

    h, c = te.scan([(6, 4), (6,)], step)
    values = CHANCE.standard_normal((6, 4))
    rows, sums = [values[0]], [0.0]
    for _ in range(5):
        rows, sums = [*rows, rows[-1] * sums[-1]], [*sums, rows[-1].sum()]
    for found in both((h, c), {x: values}):
        close(found, (rows, sums))
    assert te.scan([(6, 4), (6,)], step, name=("a", "b"))[1].name == "b"


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("keep", [None, 1, 3])
def test_other_axes_backwards_and_the_last_steps(reverse: bool, keep: int | None) -> None:
    last, one = (5, 1) if reverse else (0, -1)

    def step(h: Any, c: Any, t: Any) -> Any:
        total = te.compute((), lambda: te.sum(lambda k: h[k, t + one]), name="total")
        now = te.where(t == last, x[t], h[:, t + one] / 2.0 + x[t] * c[t + one])
        return now, te.select(t == last, 1.0, 1.0 / (2.0 + total * total))

    h, c = te.scan([(4, 6), (6,)], step, axis=-1, reverse=reverse, keep=keep)
    values = CHANCE.standard_normal((6, 4))
    order = range(6)[:: -1 if reverse else 1]
    rows, sums = np.zeros((4, 6)), np.ones(6)
    for t in order:
        if t != last:
            rows[:, t] = rows[:, t + one] / 2 + values[t] * sums[t + one]
            sums[t] = 1 / (2 + rows[:, t + one].sum() ** 2)
        else:
            rows[:, t] = values[t]
    part = slice(None) if keep is None else slice(keep) if reverse else slice(-keep, None)
    for found in both((h, c), {x: values}):
        close(found, (rows[:, part], sums[part]))
    te.gradcheck((h * h).sum() + c.sum(), [x], {x: values})


def lstm(x: Any, w: Any, u: Any, h0: Any, stage: bool) -> tuple[te.Tensor, te.Tensor]:
    steps, units = x.shape[0], h0.shape[0]

    def step(h: Any, c: Any, t: Any, i: Any) -> Any:
        before = lambda k: te.select(t == 0, h0[k], h[t - 1, k])  # noqa: E731
        element = lambda j: te.sum(lambda k: w[j, k] * x[t, k]) + te.sum(lambda k: u[j, k] * before(k))  # noqa: E731
        z = te.compute((4 * units,), element, name="z") if stage else None
        gate = [z[q * units + i] if z is not None else element(q * units + i) for q in range(4)]
        cell = te.sigmoid(gate[0]) * te.select(t == 0, 0.0, c[t - 1, i]) + te.sigmoid(gate[1]) * te.tanh(gate[2])
        return te.sigmoid(gate[3]) * te.tanh(cell), cell

    return te.scan((steps, units), step)  # type: ignore[no-any-return]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gates_as_a_stage(dtype: str) -> None:
    """A stage that costs no more where it is read is written out there: the program is the one without it."""
    shapes = [(5, 3), (16, 3), (16, 4), (4,)]
    inputs = [te.placeholder(s, dtype, name=n) for n, s in zip("xwuh", shapes, strict=True)]
    feeds = {t: CHANCE.standard_normal(t.shape).astype(dtype) for t in inputs}
    with_stage, without = lstm(*inputs, True), lstm(*inputs, False)
    rtol = 1e-12 if dtype == "float64" else 1e-5
    for found in both(with_stage, feeds):
        close(found, te.interpret(list(without), feeds), rtol)
    assert not with_stage[0].op.parts
    if dtype == "float64":
        te.gradcheck((with_stage[0] * with_stage[0]).sum(), inputs, feeds)


def test_kalman_filter() -> None:
    """A vector and a matrix, and a scalar that one observation has."""
    n, steps = 3, 6
    f, q, h = (te.placeholder(s, "float64", name=m) for m, s in zip("fqh", [(n, n), (n, n), (n,)], strict=True))
    y = te.placeholder((steps,), "float64", name="y")
    eye = te.constant(np.eye(n), "eye")

    def step(m: Any, p: Any, t: Any) -> Any:
        ahead = f @ te.where(t == 0, 0.0, m[t - 1])
        spread = f @ te.where(t == 0, eye, p[t - 1]) @ f.T + q
        gain = spread @ h / (h @ spread @ h + 0.5)
        return ahead + gain * (y[t] - h @ ahead), spread - te.outer(gain, h) @ spread

    def reference(f: Array, q: Array, h: Array, y: Array) -> tuple[Array, Array]:
        m, p, means, spreads = np.zeros(n), np.eye(n), [], []
        for value in y:
            m, p = f @ m, f @ p @ f.T + q
            gain = p @ h / (h @ p @ h + 0.5)
            m, p = m + gain * (value - h @ m), p - np.outer(gain, h) @ p
            means.append(m)
            spreads.append(p)
        return np.array(means), np.array(spreads)

    means, spreads = te.scan([(steps, n), (steps, n, n)], step)
    values = [0.5 * CHANCE.standard_normal(s.shape) for s in (f, q, h, y)]
    values[1] = values[1] @ values[1].T
    feeds = dict(zip((f, q, h, y), values, strict=True))
    for found in both((means, spreads), feeds):
        close(found, reference(*values), 1e-10)
    te.gradcheck((means * means).sum() + (spreads * spreads).sum(), [f, q, h, y], feeds)


@pytest.mark.parametrize("symbolic", [False, True])
def test_durbin(symbolic: bool) -> None:
    """Durbin's recursion: a vector that grows by an element with each step, and its error."""
    size: Any = te.var("n") if symbolic else 6
    r = te.placeholder((size,), "float64", name="r")

    def step(a: Any, e: Any, t: Any) -> Any:
        inner = te.reduce_axis(size, "j")
        total = te.sum(te.select(inner < t, a[t - 1, inner] * r[te.maximum(t - 1 - inner, 0)], 0.0), axis=inner)
        k = te.compute((), lambda: -(r[t] + total) / e[t - 1], name="k")
        mirrored = lambda i: a[t - 1, te.maximum(t - 1 - i, 0)]  # noqa: E731
        new = lambda i: te.select(  # noqa: E731
            t == 0, te.select(i == 0, -r[0], 0.0),
            te.select(i < t, a[t - 1, i] + k[()] * mirrored(i), te.select(i == t, k[()], 0.0)),
        )  # fmt: skip
        return new, te.select(t == 0, 1.0 - r[0] * r[0], e[t - 1] * (1.0 - k[()] * k[()]))

    a, e = te.scan([(size, size), (size,)], step)
    values = 0.5 ** np.arange(1, 7) + 0.05 * CHANCE.random(6)
    y, alpha, beta = np.zeros((6, 6)), -values[0], 1.0 - values[0] ** 2
    y[0, 0] = alpha
    errors = [beta]
    for t in range(1, 6):
        alpha = -(values[t] + y[t - 1, :t] @ values[:t][::-1]) / errors[-1]
        y[t, :t], y[t, t] = y[t - 1, :t] + alpha * y[t - 1, :t][::-1], alpha
        errors.append(errors[-1] * (1 - alpha * alpha))
    for found in both((a, e), {r: values}):
        close(found, (y, errors))
    if not symbolic:
        te.gradcheck((a * a).sum() + e.sum(), [r], {r: values})


def test_states_of_their_own_dtypes() -> None:
    """A float row, an integer that counts, a bool."""

    def step(row: Any, count: Any, fell: Any, t: Any) -> Any:
        total = te.compute((), lambda: te.sum(lambda k: row[t - 1, k]), name="total")
        now = te.compute((4,), lambda i: te.select(t == 0, x[0, i], x[t, i] - row[t - 1, i]), name="now")
        down = te.sum(lambda k: now[k]) < te.select(t == 0, 0.0, total[()])
        return now, te.select(t == 0, 0, count[t - 1] + te.select(fell[t - 1], 1, 10)), down

    row, count, fell = te.scan([(6, 4), (6,), (6,)], step)
    assert [s.dtype for s in (row, count, fell)] == ["float64", "int32", "bool"]
    values = CHANCE.standard_normal((6, 4))
    rows, counts, falls = [values[0]], [0], [bool(values[0].sum() < 0)]
    for t in range(1, 6):
        rows.append(values[t] - rows[-1])
        counts.append(counts[-1] + (1 if falls[-1] else 10))
        falls.append(bool(rows[-1].sum() < rows[-2].sum()))
    for found in both((row, count, fell), {x: values}):
        close(found, (rows, counts, falls))
    te.gradcheck((row * row).sum(), [x], {x: values})


def test_two_axes_of_steps() -> None:
    """A row of a table is scaled by a number that the row before left."""

    def step(d: Any, s: Any, i: Any, j: Any) -> Any:
        best = te.select((i > 0) & (j > 0), d[i - 1, j - 1, 1], 0.0)
        w = te.compute((2,), lambda c: x[i, j] * (c + 1) + best, name="w")
        return lambda c: w[c] / (1.0 + w[0] * w[0]), w[0] + te.select(j > 0, s[i, j - 1], 0.0)

    d, s = te.scan([(6, 4, 2), (6, 4)], step, axis=(0, 1))
    values = CHANCE.standard_normal((6, 4))
    table, sums = np.zeros((6, 4, 2)), np.zeros((6, 4))
    for i in range(6):
        for j in range(4):
            w = values[i, j] * np.array([1, 2]) + (table[i - 1, j - 1, 1] if i and j else 0)
            table[i, j], sums[i, j] = w / (1 + w[0] ** 2), w[0] + (sums[i, j - 1] if j else 0)
    for found in both((d, s), {x: values}):
        close(found, (table, sums))
    te.gradcheck((d * d).sum() + s.sum(), [x], {x: values})


def test_a_stage_of_one_element() -> None:
    """What mentions the element that is computed is written out where it is read."""

    def step(h: Any, t: Any, i: Any) -> Any:
        window = te.compute((3,), lambda j: te.select(t == 0, 0.0, h.at(t - 1, i + j - 1, mode="zero")), name="window")
        return x[t, i] + 0.5 * te.max(lambda j: window[j])

    h = te.scan((6, 4), step)
    values = CHANCE.standard_normal((6, 4))
    rows = [values[0].copy()]
    for t in range(1, 6):
        wide = np.pad(rows[-1], 1)
        rows.append(values[t] + 0.5 * np.max([wide[:-2], wide[1:-1], wide[2:]], axis=0))
    for found in both(h, {x: values}):
        close(found[1:], rows[1:])


def test_stages_run_only_at_the_steps_that_read_them() -> None:
    def step(h: Any, t: Any) -> Any:
        return te.where(t == 0, x[0], x[t] / (1.0 + te.sqrt((h[t - 1] ** 2).sum())))

    h = te.scan([(6, 4)], step)
    values = CHANCE.standard_normal((6, 4))
    rows = [values[0]]
    for t in range(1, 6):
        rows.append(values[t] / (1 + np.sqrt((rows[-1] ** 2).sum())))
    for found in both(h, {x: values}):
        close(found, rows)


# What a stage is asked for by several readers, each under conditions of its own

ELEMENT_CONDITIONS: list[tuple[Callable[..., Any], Callable[..., bool]]] = [
    (lambda i, t: i == 0, lambda i, t, w: i == 0),
    (lambda i, t: i == 1, lambda i, t, w: i == 1),
    (lambda i, t: i < 2, lambda i, t, w: i < 2),
    (lambda i, t: ~(i < 2), lambda i, t, w: i >= 2),
    (lambda i, t: (i == 0) | (i == 2), lambda i, t, w: i in (0, 2)),
    (lambda i, t: (i > 0) & (t > 1), lambda i, t, w: i > 0 and t > 1),
    (lambda i, t: (i > t) | (t % 2 == 0), lambda i, t, w: i > t or t % 2 == 0),
    (lambda i, t: v0[i] > 0.5, lambda i, t, w: w[i] > 0.5),
    (lambda i, t: te.select(t == 2, v0[i] > 0.5, i < 1), lambda i, t, w: w[i] > 0.5 if t == 2 else i < 1),
]


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    terms=st.lists(
        st.tuples(st.sampled_from(ELEMENT_CONDITIONS), st.booleans(), st.booleans(), st.integers(0, 1)), min_size=2,
        max_size=4,
    ),
    is_smooth=st.booleans(),
)  # fmt: skip
def test_a_stage_of_several_readers_is_computed_where_all_of_them_may_ask(terms: Any, is_smooth: bool) -> None:
    def step(v: Any, t: Any) -> Any:
        total = te.compute((4,), lambda i: te.sum(lambda k: A[i, k] * v[t - 1, k]), name="total")
        other = te.sin(total) if is_smooth else 0.5 * total
        stages = (total, other)

        def element(i: Any) -> Any:
            found = 0.0
            for (holds, _), is_nested, is_otherwise, stage in terms:
                value, rest = stages[stage][i], -stages[1 - stage][3 - i] if is_otherwise else 0.0
                term = te.select(holds(i, t), value, rest)
                found = te.select(holds(i, t), term, found) if is_nested else found + term
            return found

        moved = te.compute((4,), element)
        return te.where(t == 0, v0, moved)

    matrix, first = CHANCE.random((4, 4)), CHANCE.random(4)
    rows = [first]
    for t in range(1, 5):
        total = matrix @ rows[-1]
        stages = (total, np.sin(total) if is_smooth else 0.5 * total)
        rows.append(np.zeros(4))
        for i in range(4):
            found = 0.0
            for (_, holds), is_nested, is_otherwise, stage in terms:
                rest = -stages[1 - stage][3 - i] if is_otherwise else 0.0
                term = stages[stage][i] if holds(i, t, first) else rest
                found = (term if holds(i, t, first) else found) if is_nested else found + term
            rows[-1][i] = found
    for found in both(te.scan([(5, 4)], step), {A: matrix, v0: first}):
        close(found, rows)


def test_a_stage_that_one_reader_asks_for_at_the_first_step_is_refused() -> None:
    def step(v: Any, t: Any) -> Any:
        norm = te.sqrt((v[t - 1] ** 2).sum())
        moved = te.compute(
            (4,), lambda i: te.select((i == 0) & (t > 0), norm[()], 0.0) + te.select(i == 1, norm[()], 0.0)
        )
        return te.where(t == 0, v0, moved) + te.compute((4,), lambda i: te.select(i == 3, norm[()], 0.0))

    h = te.scan([(5, 4)], step)
    for run in (te.interpret, te.evaluate):
        with pytest.raises(IndexError, match=r"index `t - 1` .* is out of bounds: it is -1 at t = 0"):
            run(h, {v0: np.ones(4)})


# Errors


def leaked() -> te.Tensor:
    kept: list[te.Tensor] = []

    def step(h: Any, t: Any) -> Any:
        kept.append(te.compute((4,), lambda i: h[t - 1, i] * 2.0, name="twice"))
        return te.where(t == 0, x[0], kept[-1])

    te.scan([(6, 4)], step)
    return kept[-1] + 1.0


def leaked_whole() -> Any:
    kept: list[te.Tensor] = []
    te.scan(ROWS, lambda h, t: kept.append(te.sin(x[t])) or kept[-1])  # type: ignore[func-returns-value]
    return te.evaluate(kept[-1], {})


def nested() -> Any:
    inner = lambda t: te.scan((3,), lambda y, s: te.select(s == 0, x[t, 0], y[s - 1] + 1.0))  # noqa: E731
    return te.scan((6,), lambda h, t: te.select(t == 0, 0.0, inner(t)[2]))


def scattered(h: Any, t: Any) -> Any:
    r = te.reduce_axis(4)
    return te.where(t == 0, x[0], te.scatter((4,), [r], (r,), h[t - 1, r]))


def early(h: Any, t: Any) -> Any:
    return x[t] + te.sqrt((h[t - 1] ** 2).sum())


def sorted_step(h: Any, t: Any) -> Any:
    return te.where(t == 0, x[0], te.sort(h[t - 1]))


def element_stage(h: Any, t: Any, i: Any) -> Any:
    z = te.compute((4,), lambda j: te.sum(lambda k: te.select(t == 0, 0.0, h[t - 1, k]) * A[j, k] * i), name="z")
    return te.sum(lambda j: z[j] * z[j])


places = te.placeholder((3,), "int32", name="places")
ROWS, BOTH = [(6, 4)], [(6, 4), (6,)]
MISTAKES: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (leaked, ValueError, r"a stage of a step of a te.scan \(.*\) outside its body; make what is wanted a state"),
    (leaked_whole, ValueError, r"te.evaluate: sin : float64\[4\] .* is there within the steps of a te.scan only"),
    (
        nested,
        ValueError,
        r"a te.scan within a step of another one reads what that step computes; give the outer one two.*; two sweeps",
    ),
    (
        lambda: te.scan(ROWS, lambda h, t: te.where(t == 0, x[0], te.differentiate((h[t - 1] ** 2).sum(), h)[t])),
        te.GradientError,
        r"found scan : .*, all steps of a state; give what the step reads of it, such as q = scan\[t - 1\]",
    ),
    (
        lambda: te.scan(ROWS, lambda h, t: te.where(t == 0, x[0], te.grad(lambda a: te.sort(a)[0])(h[t - 1]))),
        te.GradientError,
        r"extern '.*sorted' .*, is nothing that a step of a te.scan holds; write this derivative as a formula",
    ),
    (
        lambda: te.scan(ROWS, lambda h, t: te.where(t == 0, x[0], te.grad(lambda a: a[places] @ a[places])(h[t - 1]))),
        te.GradientError,
        r"scatter '.*' .*, is nothing that a step of a te.scan holds; write this derivative as a formula",
    ),
    (lambda: te.scan(ROWS, scattered), ValueError, r"scatter 'scatter' .* reads what a step of a te.scan computes"),
    (
        lambda: te.build([x], te.scan(ROWS, early)),
        IndexError,
        r"`t - 1` of the steps of h .*; start the recurrence with",
    ),
    (
        lambda: te.scan(ROWS, sorted_step),
        ValueError,
        r"extern '.*sorted' \(.*\) reads what a step computes; the stages",
    ),
    (
        lambda: te.scan((6, 4), element_stage),
        ValueError,
        r"stage 'z' of the step .* depends on axis 'i' of the element",
    ),
    (lambda: te.scan([(6, 4), (5,)], lambda a, b, t: 0), ValueError, r"\(6, 4\) and \(5,\) have 6 and 5 steps"),
    (lambda: te.scan(ROWS, lambda a, t: 0.0), TypeError, r"state .a. .*shape \(4,\); expected a function of its axes"),
    (lambda: te.scan(ROWS, lambda a, t: x), ValueError, r"expected a tensor of shape \(4,\) for a step, found x"),
    (lambda: te.scan(ROWS, lambda a, t: lambda i, j: 0.0), ValueError, "takes 2 axes .*, the shape has 1 dim"),
    (lambda: te.scan(BOTH, lambda a, t: x[t]), ValueError, "takes 0 axes|2 states"),
    (
        lambda: te.scan(BOTH, lambda a, b, t: x[t]),
        ValueError,
        r"expected 2 expressions, one for each state \(a, b\), found 1",
    ),
    (lambda: te.scan(BOTH, lambda a, b, t: (x[t], 0.0), axis=1), ValueError, "axis 1 does not exist"),
]


@pytest.mark.parametrize(("mistake", "error", "said"), MISTAKES)
def test_mistakes_are_told(mistake: Callable[[], Any], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        mistake()


def test_indices_are_checked_against_the_shape_of_each_part() -> None:
    """A row of 2 lies in a box of 4: what is beyond it is nobody's."""

    def step(h: Any, s: Any, t: Any) -> Any:
        return lambda i: te.select(t == 0, x[0, i], h[t - 1, i]), lambda i: te.select(t == 0, 0.0, s[t - 1, i + 1])

    for run in (lambda y: te.build([x], y), lambda y: te.interpret(y, {x: np.ones((6, 4))})):
        with pytest.raises(
            IndexError, match=r"`i \+ 1` of dimension 0 of s : float32\[2\] is out of bounds: it is 2 at t = 1, i = 1 "
        ):
            run(te.scan([(6, 4), (6, 2)], step)[1])
    where = te.placeholder((6,), "int32", name="where")
    chosen = lambda h, s, t: (  # noqa: E731
        lambda i: te.select(t == 0, x[0, i], h[t - 1, i]), lambda i: te.select(t == 0, 0.0, s[t - 1, where[t]]),
    )  # fmt: skip
    y = te.scan([(6, 4), (6, 2)], chosen)[1]
    feeds = {x: np.ones((6, 4)), where: np.array([9, 0, 1, 0, 1, 0], "int32")}
    close(both(y, feeds)[0], both(y, feeds)[1])
    feeds[where][3] = 3
    for evaluate in (te.interpret, te.evaluate):
        with pytest.raises(IndexError, match=r"of dimension 0 of s : float32\[2\]"):
            evaluate(y, feeds)


# Drawn steps, against a loop in NumPy


@st.composite
def drawn_steps(draw: Any) -> tuple[Any, te.Tensor, Any, bool]:
    """States and stages of random ranks, each a sum of what it may read: as a scan, its input, and as a loop.

    What a stage gives is cheap, and written out where it is read, or a sine.
    """
    steps, reverse = draw(st.integers(1, 4)), draw(st.booleans())
    shape = st.lists(st.integers(1, 3), max_size=2).map(tuple)
    states = draw(st.lists(shape, min_size=1, max_size=3))
    stages = draw(st.lists(shape, max_size=2))
    kinds = st.sampled_from(["element", "sum", "clamped", "half"])
    # What each of them is made of: a number of a state or (below zero) of a stage before it, and how that is read.
    terms = [
        [
            (draw(st.integers(-min(k, len(stages)), len(states) - 1)), draw(kinds))
            for _ in range(draw(st.integers(1, 3)))
        ]
        for k in [*range(len(stages)), *[len(stages)] * len(states)]
    ]
    by_tensor, is_smooth = draw(st.booleans()), draw(st.booleans())
    w = te.placeholder((len(terms),), "float64", name="w")

    def read(source: Any, at: tuple[Any, ...], place: tuple[Any, ...], kind: str) -> Any:
        """A term at a place, of a tensor that is read at `at` and then at its own axes."""
        own = source.shape[len(at) :]
        if kind == "sum" and own:
            axes = tuple(te.reduce_axis(n, "k") for n in own)
            return 0.25 * te.sum(source[(*at, *axes)], axis=axes)
        last = [te.minimum(place[d], n - 1) if d < len(place) else n - 1 for d, n in enumerate(own)]
        return source[(*at, *last)] * (0.5 if kind == "half" else -1.0)

    def step(*arguments: Any) -> Any:
        handles, t = arguments[: len(states)], arguments[-1]
        before = t + 1 if reverse else t - 1
        first = t == (steps - 1 if reverse else 0)
        made: list[Any] = []

        def element(number: int, place: tuple[Any, ...]) -> Any:
            total = w[number] + 0.25 * t
            for source, kind in terms[number]:
                if source < 0:
                    total = total + read(made[-source - 1], (), place, kind)
                else:
                    total = total + te.select(first, 1.0, read(handles[source], (before,), place, kind))
            return te.sin(total) if is_smooth else te.clip(total, -8.0, 8.0)

        for number, own in enumerate(stages):
            made.append(te.compute(own, lambda *ix, n=number: element(n, ix), name=f"z{number}"))
        results: list[Any] = []
        for number, own in enumerate(states, len(stages)):
            function = lambda *ix, n=number: element(n, ix)  # noqa: E731
            results.append(function() if not own else te.compute(own, function) if by_tensor else function)
        return tuple(results)

    def value(
        number: int, place: tuple[int, ...], t: int, found: list[Array], made: list[Array], weights: Array
    ) -> float:
        first, before = t == (steps - 1 if reverse else 0), t + 1 if reverse else t - 1
        total = weights[number] + 0.25 * t
        for source, kind in terms[number]:
            if source >= 0 and first:
                total += 1.0
                continue
            array = made[-source - 1] if source < 0 else found[source][before]
            last = [min(place[d], n - 1) if d < len(place) else n - 1 for d, n in enumerate(array.shape)]
            one = array[tuple(last)] * (0.5 if kind == "half" else -1.0)
            total += 0.25 * array.sum() if kind == "sum" and array.ndim else one
        return float(np.sin(total) if is_smooth else np.clip(total, -8.0, 8.0))

    def loop(weights: Array) -> list[Array]:
        found = [np.zeros((steps, *own)) for own in states]
        for t in range(steps)[:: -1 if reverse else 1]:
            made: list[Array] = []
            for number, own in enumerate([*stages, *states]):
                values = [value(number, place, t, found, made, weights) for place in np.ndindex(*own)]
                if number < len(stages):
                    made.append(np.reshape(values, own))
                else:
                    found[number - len(stages)][t] = np.reshape(values, own)
        return found

    results = te.scan([(steps, *own) for own in states], step, reverse=reverse, dtype="float64")
    return results, w, loop, is_smooth


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(case=drawn_steps(), level=PROCESSORS)
def test_drawn_steps_are_those_of_a_loop(case: tuple[Any, te.Tensor, Any, bool], level: str) -> None:
    results, w, loop, is_smooth = case
    outputs = list(results) if isinstance(results, tuple) else [results]
    weights = CHANCE.random(w.shape)
    want = loop(weights)
    close(te.interpret(outputs, {w: weights}), want)
    with assuming(LOWEST), processor(level):
        close(te.evaluate(outputs, {w: weights}), want)
        if not is_smooth:
            return
        loss = te.differentiate(outputs, [w], head=[te.ones(y.shape, "float64") for y in outputs])
        (gradient,) = te.evaluate(list(loss), {w: weights})
    shifts = 1e-6 * np.eye(len(weights))
    sums = [[sum(y.sum() for y in loop(weights + sign * s)) for sign in (1, -1)] for s in shifts]
    np.testing.assert_allclose(gradient, [(up - down) / 2e-6 for up, down in sums], rtol=1e-6, atol=1e-6)


def test_formulas_and_pages_show_what_was_written() -> None:
    v, size = te.scan([(6, 4), (6,)], by_elements)
    formula = te.display.latex(v)
    assert formula is not None
    assert "phase" not in formula
    assert formula.count(r"t\text{ in order}") >= 4
    page = te.display.program([v * 2.0, size])._repr_html_()
    assert "phase" not in page
    assert "w, v" in page or "w, norm, v" in page


def test_work_is_that_of_the_parts() -> None:
    v, size = te.scan([(6, 4), (6,)], by_elements)
    scan = next(op for op in (v.op.bodies[0].tensor.op,))
    counted = te.work([v, size]).iterations - te.work([te.compute((6, 5), lambda i, j: 0.0)]).iterations
    assert scan.parts
    assert counted == 6 * (4 * (1 + 4) + (1 + 4) + 4 + (1 + 4))


def summed(h: Any, c: Any, t: Any) -> Any:
    return te.where(t == 0, rows[t], h[t - 1] * c[t - 1]), te.select(t == 0, 1.0, te.sum(lambda k: h[t - 1, k]))


T, n = te.var("T"), te.var("n")
rows = te.placeholder((T, n), "float64", name="rows")


@pytest.mark.parametrize("shape", [(5, 7), (0, 3), (3, 0), (1, 1), (4, 1), (2, 40)])
def test_extents_of_any_size(shape: tuple[int, int]) -> None:
    """Known or not, and zero."""
    values = CHANCE.standard_normal(shape)
    known = te.placeholder(shape, "float64", name="rows")
    outputs = {rows: list(te.scan([(T, n), (T,)], summed))}
    fixed = lambda h, c, t: (  # noqa: E731
        te.where(t == 0, known[t], h[t - 1] * c[t - 1]), te.select(t == 0, 1.0, te.sum(lambda k: h[t - 1, k])),
    )  # fmt: skip
    outputs[known] = list(te.scan([shape, shape[:1]], fixed))
    want = [np.zeros(shape), np.ones(shape[0])]
    for t in range(shape[0]):
        if t == 0:
            want[0][0] = values[0]
        else:
            want[0][t], want[1][t] = want[0][t - 1] * want[1][t - 1], want[0][t - 1].sum()
    for source, states in outputs.items():
        gradient = te.differentiate(states, [source], head=states)
        for run in (te.interpret, te.evaluate):
            found = run([*states, *gradient], {source: values})
            close(found[:2], want)
        close([found[2]], [te.interpret(list(gradient), {source: values})[0]], 1e-9)


def test_schedules_and_derivatives_of_derivatives() -> None:
    v, size = te.scan([(6, 4), (6,)], by_tensors)
    feeds = {A: CHANCE.random((4, 4)), v0: CHANCE.random(4)}
    want = te.interpret([v, size], feeds)
    automatic = te.Schedule([v, size]).auto()
    assert "unroll('phase')" in automatic.code()
    by_hand = te.Schedule([v, size])
    by_hand["v_size"].unroll("phase")
    for schedule in (te.Schedule([v, size]), automatic, by_hand, "adams2019"):
        kernel = te.build([A, v0], [v, size], schedule=schedule)
        close(kernel(feeds[A], feeds[v0]), want)
    with pytest.raises(te.ScheduleError):
        te.Schedule([v, size])["v_size"].parallel("phase")
    with te.checked():
        close(te.build([A, v0], [v, size])(feeds[A], feeds[v0]), want)
    (second,) = te.hvp((v * v * v).sum() + size.sum(), [A], [te.ones((4, 4), "float64")])
    te.gradcheck(second.sum(), [A, v0], feeds)


def test_operators_and_batches() -> None:
    @te.op
    def power(matrix: te.Tensor, first: te.Tensor) -> tuple[te.Tensor, te.Tensor]:
        def step(v: Any, size: Any, t: Any) -> Any:
            w = matrix @ v[t - 1]
            return te.where(t == 0, first, w / te.sqrt((w * w).sum())), te.select(t == 0, 0.0, (w * v[t - 1]).sum())

        return te.scan([(5, *first.shape), (5,)], step)  # type: ignore[no-any-return]

    matrices, firsts = CHANCE.random((3, 4, 4)), CHANCE.random((3, 4))
    want = [iterated(m, f, 5) for m, f in zip(matrices, firsts, strict=True)]
    found = te.vmap(power)(matrices, firsts)
    close(found, [np.stack([w[k] for w in want]) for k in range(2)])
    gradient = te.grad(lambda m: power(m, te.constant(firsts[0]))[1].sum())(matrices[0])
    shift = 1e-6 * np.eye(16)[5].reshape(4, 4)
    up, down = (iterated(matrices[0] + s, firsts[0], 5)[1].sum() for s in (shift, -shift))
    np.testing.assert_allclose(gradient[1, 1], (up - down) / 2e-6, rtol=1e-6)


@pytest.mark.parametrize("reverse", [False, True])
def test_steps_that_nobody_asks_for_are_not_kept(reverse: bool) -> None:
    """Readers of a state are readers of the scan that holds it."""
    many = te.placeholder((40, 4), "float64", name="many")
    last, one = (39, 1) if reverse else (0, -1)

    def step(h: Any, c: Any, t: Any) -> Any:
        norm = te.sqrt((h[t + one] ** 2).sum())
        return te.where(t == last, many[t], many[t] + h[t + one] / (1.0 + norm)), te.select(t == last, 0.0, norm[()])

    h, c = te.scan([(40, 4), (40,)], step, reverse=reverse)
    end = 0 if reverse else 39
    total = te.compute((), lambda: te.sum(lambda i: h[end, i] * (i + 1)) + c[end])
    values = CHANCE.standard_normal((40, 4))
    every, kept = te.build([many], [total, h]), te.build([many], total)
    np.testing.assert_allclose(kept(values), te.interpret(total, {many: values}), rtol=1e-12)
    np.testing.assert_allclose(every(values)[0], te.interpret(total, {many: values}), rtol=1e-12)
    assert "steps are kept)" in str(te.Schedule(total).auto())
    assert "steps are kept)" not in str(te.Schedule([total, h]).auto())
    assert kept.stats.peak_bytes < every.stats.peak_bytes / 4
    whole = te.sort(h, axis=0)[-1].sum()  # all steps, by a routine
    np.testing.assert_allclose(te.evaluate(whole, {many: values}), te.interpret(whole, {many: values}), rtol=1e-12)


def test_what_functions_of_tensors_ask_for() -> None:
    """A catalogue's function that takes floats, an array, a scan of what is known before, a window of earlier steps."""
    ones = np.full(4, 0.5)

    def step(h: Any, count: Any, t: Any) -> Any:
        before = te.where(t < 2, ones, h[t - 2 : t].sum(0))
        return te.ops.softmax(before, 0) + te.cumsum(x[0]), te.select(t == 0, 0, count[t - 1] + 1)

    h, count = te.scan([(6, 4), (6,)], step)
    assert (h.dtype, count.dtype) == ("float64", "int32")
    assert te.scan([(6, 4)], lambda h, t: ones).dtype == "float64"
    values, found = CHANCE.standard_normal((6, 4)), []
    for t in range(6):
        before = ones if t < 2 else found[t - 2] + found[t - 1]
        found.append(np.exp(before) / np.exp(before).sum() + values[0].cumsum())
    for run in (te.interpret, te.evaluate):
        close([run(h, {x: values})], [found])


@pytest.mark.parametrize("unit", [(), (1,)])
def test_a_number_of_a_step_is_no_vector_of_masks(unit: tuple[int, ...]) -> None:
    """What is one element of a step, beside a state that is a vector, is computed once."""
    n = 96
    r = te.placeholder((n,), "float64", name="r")
    w = te.placeholder(unit, "float64", name="w")

    def step(y: Any, total: Any, t: Any) -> Any:
        before = te.compute((n,), lambda i: te.select(t == 0, r[i], y[t - 1, i]), name="before")
        whole = te.compute(
            unit, lambda *at: w[at] * te.sum(lambda k: before[k] * r[n - 1 - k], where=lambda k: k <= t), name="whole"
        )
        first = (0,) * len(unit)
        return lambda i: before[i] - 0.1 * whole[first] * r[i], lambda *at: whole[at]

    y, total = te.scan([(8, n), (8, *unit)], step)
    feeds = {r: CHANCE.standard_normal(n), w: np.ones(unit)}
    close(te.evaluate([y, total], feeds), te.interpret([y, total], feeds))
    assert "predicate" not in te.build([r, w], [y, total], target="x86-64-v3").source("stmt")


def test_reads_at_the_step_of_a_smaller_state_are_not_checked_when_called() -> None:
    """`a[t - 1, i, t]` lies inside as there are as many columns as steps, though phases of other shapes lie beside."""
    m, n = 110, 90  # too many points to try them all
    x = te.placeholder((m, n), "float64", name="x")

    def step(w: Any, q: Any, t: Any) -> Any:
        def before(i: Any, j: Any) -> Any:
            return te.select(t == 0, x[i, j], w[t - 1, i, j])

        norm = te.compute((), lambda: te.sqrt(te.sum(lambda i: before(i, t) * before(i, t))), name="norm")
        unit = te.compute((m,), lambda i: before(i, t) / norm[()], name="unit")
        r = te.compute((n,), lambda j: te.sum(lambda i: unit[i] * before(i, j)), name="r")
        return lambda i, j: before(i, j) - te.select(j > t, unit[i] * r[j], 0.0), unit

    _, q = te.scan([(n, m, n), (n, m)], step)
    assert "check_" not in te.build(x, q).source("stmt")
    given_x = CHANCE.standard_normal((m, n))
    want = np.linalg.qr(given_x)[0].T
    np.testing.assert_allclose(np.abs(te.evaluate(q, {x: given_x})), np.abs(want), rtol=1e-9, atol=1e-9)


STATE_FUNCTIONS = {
    "sum": lambda s: s / s.sum(),
    "mean": lambda s: s / s.mean(),
    "std": lambda s: s - s.std(),
    "var": lambda s: s / (s.var() + 1),
    "norm": lambda s: s / s.norm(),
    "prod": lambda s: s * s.prod(),
    "average": lambda s: s / te.average(s),
    "nansum": lambda s: s / te.nansum(s),
    "nanmean": lambda s: s / te.nanmean(s),
    "trace": lambda s: s / te.trace(te.outer(s, s)),
    "root": lambda s: s / te.sqrt(te.sum(s * s)),
    "softmax": lambda s: te.ops.softmax(s),
    "logsumexp": lambda s: s - s.logsumexp(),
    "normalize": lambda s: te.ops.normalize(s, axis=0),
    "at": lambda s: s.at[0].divide(2.0),
}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("step", STATE_FUNCTIONS.values(), ids=STATE_FUNCTIONS)
def test_a_state_has_the_dtype_that_its_steps_give_without_a_scan(step, dtype):
    x = te.placeholder((3,), dtype, name="x")
    u = te.scan([(5, 3)], lambda u, t: te.where(t == 0, x, step(u[t - 1])))
    assert u.dtype is step(x).dtype is x.dtype


def test_a_state_of_numbers_that_is_summed_is_what_its_numbers_are():
    assert te.scan((5, 3), lambda u, t, i: te.select(t == 0, 1.0, u[t - 1].sum() * 0.5)).dtype == "float32"
    assert te.scan((5, 3), lambda u, t, i: te.select(t == 0, te.const(1, "int64"), u[t - 1].sum())).dtype == "int64"


@pytest.mark.parametrize("step", [te.ops.softmax, te.ops.gelu, lambda q: q - 0.1 * te.grad(lambda a: a.sum())(q)])
def test_a_state_of_numbers_on_which_operators_work_is_float32(step):
    u = te.scan([(5, 3)], lambda u, t: step(te.where(t == 0, te.full((3,), 1.0), u[t - 1])))
    assert u.dtype == "float32"
    v = te.scan([(5, 3)], lambda v, t: step(te.compute((3,), lambda i: te.select(t == 0, 1.0, v[t - 1, i]))))
    assert v.dtype == "float32"


def test_a_condition_of_a_stage_that_is_written_out_stays() -> None:
    x = te.placeholder((4,), "float64", name="x")

    def step(q: Any, t: Any) -> Any:
        now = te.compute((4,), lambda i: te.select(t == 0, x[i], q[t - 1, i]))
        curve = te.sin(now) + te.cos(now) * now - now * now
        first = te.compute((4,), lambda i: te.select(i < 2, te.exp(curve[i]), 0.0))
        return te.compute((4,), lambda i: now[i] * 0.5 + first[i])

    start = np.ones(4)
    for found in both(te.scan([(3, 4)], step), {x: start}):
        want = start
        for row in found:
            value = np.exp(np.sin(want) + np.cos(want) * want - want * want)
            want = want * 0.5 + np.where(np.arange(4) < 2, value, 0.0)
            np.testing.assert_allclose(row, want, rtol=1e-12)


def test_examples_of_a_step_run_along_an_axis_in_front() -> None:
    start = te.placeholder((4, 3), "float64", name="start")
    slopes = te.placeholder((5, 3), "float64", name="slopes")
    values = {start: CHANCE.normal(size=(4, 3)), slopes: CHANCE.normal(size=(5, 3))}

    def step(c: Any, k: Any) -> Any:
        return te.where(k == 0, start, te.vmap(lambda a: te.sin(a * slopes[k]).sum() * a)(c[k - 1]))

    for found in both(te.scan([(5, 4, 3)], step), values):
        want = values[start]
        for k, row in enumerate(found):
            want = want if k == 0 else np.sin(want * values[slopes][k]).sum(1, keepdims=True) * want
            np.testing.assert_allclose(row, want, rtol=1e-10)


def test_examples_of_a_step_are_not_sorted() -> None:
    start = te.placeholder((4, 3), name="start")
    with pytest.raises(
        ValueError, match=r"te\.vmap at .*: extern '.*sorted' .* reads what a step of a te\.scan computes"
    ):
        te.scan([(5, 4, 3)], lambda c, k: te.where(k == 0, start, te.vmap(te.sort)(c[k - 1])))
