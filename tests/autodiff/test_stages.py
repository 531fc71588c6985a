"""The derivative of each kind of stage: against central differences, forward against reverse, compiled against
reference.
"""

import functools

import numpy as np
import pytest

import tedsl as te
from autodiff import differentiate, gradcheck, jvp
from autodiff.rules.derivatives import DERIVATIVE
from autodiff.rules.folds import KEPT
from tedsl.lang.expr import Expr
from tedsl.lang.operators import Fn
from tedsl.lang.tensor import Scan
from tedsl.lang.traverse import operations_between, stages_of, topological
from tedsl.reference import interpret


def placeholder(shape, name="x", dtype="float64"):
    return te.placeholder(shape, dtype, name=name)


def axis(extent, name="k"):
    return te.reduce_axis(extent, name=name)


def max_of_squares():
    x, k = placeholder((6,)), axis(6)
    return te.compute((), lambda: te.max(x[k] * x[k], axis=k)), [x]


def min_of_rows_where():
    x, k = placeholder((4, 5)), axis(5)
    return te.compute((4,), lambda i: te.min(x[i, k], axis=k, where=k != i)), [x]


def max_pool_with_overlap():
    x, r, q = placeholder((2, 7, 8)), axis(3, "r"), axis(3, "q")
    return te.compute((2, 3, 3), lambda c, i, j: te.max(x[c, 2 * i + r, 2 * j + q], axis=(r, q))), [x]


def product():
    x, k = placeholder((6,)), axis(6)
    return te.compute((), lambda: te.prod(x[k], axis=k)), [x]


def product_over_two_axes_where():
    x, k, m = placeholder((2, 3, 4)), axis(3), axis(4, "m")
    return te.compute((2,), lambda i: te.prod(x[i, k, m], axis=(k, m), where=k + m < 4)), [x]


def log_sum_exp_by_a_reducer():
    x, k = placeholder((3, 5)), axis(5)
    together = te.reducer(lambda a, b: te.maximum(a, b) + te.log1p(te.exp(-te.abs(a - b))), -1e30)
    return te.compute((3,), lambda i: together(x[i, k], axis=k)), [x]


def welford():
    """Mean and sum of squared deviations, as a tuple of (count, mean, deviations)."""
    x, k = placeholder((3, 5)), axis(5)

    def combine(a, b):
        n = a[0] + b[0]
        delta = b[1] - a[1]
        share = te.select(n > 0, b[0] / n, 0.0)
        return n, a[1] + delta * share, a[2] + b[2] + delta * delta * a[0] * share

    parts = te.reducer(combine, (0.0, 0.0, 0.0))
    _, mean, deviations = te.compute(
        (3,), lambda i: parts((te.const(1.0, "float64"), x[i, k], te.const(0.0, "float64")), axis=k)
    )
    return te.compute((3,), lambda i: mean[i] * deviations[i]), [x]


def log_sum_exp_of_pairs_where():
    """A reducer whose exponentials are kept, over elements that are there only where the condition holds."""
    x, k = placeholder((3, 5)), axis(6)

    def combine(a, b):
        top = te.maximum(a[0], b[0])
        return top, a[1] * te.exp(a[0] - top) + b[1] * te.exp(b[0] - top)

    parts = te.reducer(combine, (-1e300, 0.0))
    top, total = te.compute((3,), lambda i: parts((x[i, k + i], x[i, k + i] ** 2), axis=k, where=k + i < 5))
    return te.compute((3,), lambda i: top[i] + te.log(total[i])), [x]


def cumulative_sum():
    x = placeholder((6,))
    return te.scan((6,), lambda y, t: te.select(t == 0, x[0], y[t - 1] + x[t])), [x]


def nonlinear_recurrence_with_a_parameter():
    x, a = placeholder((6,)), placeholder((), "a")
    return te.scan((6,), lambda y, t: te.select(t == 0, x[0], a * y[t - 1] * y[t - 1] + x[t])), [x, a]


def two_lags():
    x = placeholder((7,))
    return te.scan((7,), lambda y, t: te.select(t < 2, x[t], 0.9 * y[t - 1] * x[t] + te.sin(y[t - 2]))), [x]


def two_states():
    x = placeholder((6,))
    a, b = te.scan(
        (6,), lambda a, b, t: (te.select(t == 0, x[0], b[t - 1] * x[t]), te.select(t == 0, 1.0, a[t - 1] + b[t - 1]))
    )
    return te.compute((6,), lambda t: a[t] * b[t]), [x]


def reverse_scan_over_rows():
    x = placeholder((3, 5))
    return te.scan(
        (3, 5), lambda y, i, t: te.select(t == 4, x[i, 4], te.tanh(y[i, t + 1]) + x[i, t]), axis=1, reverse=True
    ), [x]


def scan_that_reads_neighbours():
    x = placeholder((4, 6))
    return te.scan(
        (4, 6),
        lambda y, t, i: te.select(
            t == 0, x[0, i], 0.5 * y.at(t - 1, i - 1, mode="zero") + te.sin(y[t - 1, i]) + x[t, i]
        ),
    ), [x]


def recurrent_network():
    w, u, x = placeholder((4, 4), "w"), placeholder((4, 3), "u"), placeholder((5, 3), "x")
    k, d = axis(4), axis(3, "d")
    drive = te.compute((5, 4), lambda t, i: te.sum(u[i, d] * x[t, d], axis=d))
    hidden = te.scan(
        (5, 4), lambda h, t, i: te.tanh(te.select(t == 0, 0.0, te.sum(w[i, k] * h[t - 1, k], axis=k)) + drive[t, i])
    )
    return hidden, [w, u, x]


def gated_cell():
    """An LSTM: two states, each gate a reduction over the last hidden state."""
    w, x = placeholder((4, 3, 3), "w"), placeholder((4, 4, 3), "x")
    k = axis(3)

    def step(h, c, t, i):
        gates = [te.select(t == 0, 0.0, te.sum(w[g, i, k] * h[t - 1, k], axis=k)) + x[t, g, i] for g in range(4)]
        kept = te.sigmoid(gates[0]) * te.select(t == 0, 0.0, c[t - 1, i])
        cell = kept + te.sigmoid(gates[1]) * te.tanh(gates[2])
        return te.sigmoid(gates[3]) * te.tanh(cell), cell

    hidden, _ = te.scan((4, 3), step)
    return hidden, [w, x]


def earlier_elements_found_by_data():
    x, k = placeholder((4, 3)), te.placeholder((4,), "int32", name="k")
    return te.scan(
        (4, 3),
        lambda y, t, i: te.select(t >= 1, te.sin(y[t - 1, te.clip(k[t] + t, 0, 2)]) * x[t, i] + y[t - 1, i], x[0, i]),
    ), [x]


def smaller_of_a_step_and_its_greatest():
    """The winner among the elements of the step before is asked for in two branches, under one condition."""
    x, k = placeholder((3, 2)), axis(2)
    return te.scan(
        (3, 2),
        lambda y, t, i: te.select(t >= 1, te.minimum(y[t - 1, i], te.max(y[t - 1, k], axis=k)) + x[t, i], x[0, i]),
    ), [x]


def hidden_markov_model():
    """The forward algorithm, its log-sum-exp by a reducer of pairs over the step before."""
    x, a, k = placeholder((4, 3)), placeholder((3, 3), "a"), axis(3)

    def combine(a, b):
        top = te.maximum(a[0], b[0])
        return top, a[1] * te.exp(a[0] - top) + b[1] * te.exp(b[0] - top)

    parts = te.reducer(combine, (-1e300, 0.0))

    def step(y, t, i):
        top, total = parts((y[t - 1, k] + a[k, i], te.const(1.0, "float64")), axis=k)
        return te.select(t == 0, x[0, i], top + te.log(total) + x[t, i])

    return te.scan((4, 3), step), [x, a]


def product_over_earlier_steps():
    x, a, k = placeholder((6,)), placeholder((3,), "a"), axis(3)
    return te.scan(
        (6,), lambda y, t: te.select(t < 2, x[t], te.prod(y[t - 1 - k] * a[k] + 1.0, axis=k, where=k < 2) + x[t])
    ), [x, a]


def scatter_add():
    x, k = placeholder((6,)), axis(6)
    return te.scatter((4,), [k], (k // 2,), te.exp(x[k])), [x]


def scatter_with_init():
    x, y, k = placeholder((6,)), placeholder((4,), "y"), axis(6)
    return te.scatter((4,), [k], ((k * k) % 4,), te.sin(x[k]), init=y), [x, y]


def scatter_mul():
    x, y, k = placeholder((6,)), placeholder((4,), "y"), axis(6)
    return te.scatter((4,), [k], (k // 2,), te.exp(x[k]), op="mul", init=y), [x, y]


def scatter_max():
    x, y, k = placeholder((6,)), placeholder((4,), "y"), axis(6)
    return te.scatter((4,), [k], (k // 2,), te.sin(3 * x[k]), op="max", init=y), [x, y]


def several_outputs():
    x = placeholder((5,))
    u, v = te.compute((5,), lambda i: (te.sin(x[i]), te.sin(x[i]) * x[4 - i]))
    return te.compute((5,), lambda i: u[i] * v[4 - i]), [x]


def many_reads_of_one_costly_body():
    x = placeholder((7,))
    return te.compute((5,), lambda i: te.sqrt(1 + x[i] ** 2 + x[i + 1] ** 2 + te.exp(x[i + 2] * x[i]))), [x]


def mixed_dtypes():
    x, s = placeholder((5,)), te.placeholder((5,), "float32", name="s")
    return te.compute((5,), lambda i: x[i] * te.cast(te.cast(s[i], "int32") + i, "float64") + te.floor(x[i])), [x]


CASES = {f.__name__: f for f in (
    max_of_squares, min_of_rows_where, max_pool_with_overlap, product, product_over_two_axes_where,
    log_sum_exp_by_a_reducer, log_sum_exp_of_pairs_where, welford, cumulative_sum,
    nonlinear_recurrence_with_a_parameter, two_lags, two_states, reverse_scan_over_rows, scan_that_reads_neighbours,
    recurrent_network, gated_cell,
    earlier_elements_found_by_data, smaller_of_a_step_and_its_greatest, hidden_markov_model,
    product_over_earlier_steps, scatter_add, scatter_with_init, scatter_mul, scatter_max, several_outputs,
    many_reads_of_one_costly_body, mixed_dtypes,
)}  # fmt: skip


@pytest.fixture(params=list(CASES))
def case(request):
    output, inputs = CASES[request.param]()
    random = np.random.default_rng(3)
    feeds = {t: random.uniform(-1, 1, t.shape) for t in inputs}
    return output, inputs, feeds, random


def with_other_placeholders(output, feeds):
    from tedsl.lang.tensor import Placeholder
    from tedsl.lang.traverse import stages_of

    extra = {
        op.output(): np.ones(op.output().shape, str(op.dtype))
        for op in stages_of([output])
        if isinstance(op, Placeholder) and op.output() not in feeds
    }
    return {**feeds, **extra}


def test_against_differences(case):
    output, inputs, feeds, _ = case
    report = gradcheck(output, inputs, with_other_placeholders(output, feeds))
    assert sum(p.checked for p in report.pairs) > 0
    assert sum(p.kinks for p in report.pairs) == 0


def test_forward_against_reverse(case):
    output, inputs, feeds, random = case
    feeds = with_other_placeholders(output, feeds)
    head = placeholder(output.shape, "head")
    tangents = [placeholder(t.shape, "v") for t in inputs]
    forward = jvp([output], inputs, tangents)
    reverse = differentiate(output, inputs, head=head)
    feeds |= {head: random.normal(size=output.shape)} | {v: random.normal(size=v.shape) for v in tangents}
    (moved,) = interpret(list(forward), feeds)
    adjoints = interpret(list(reverse), feeds)
    along = sum(np.sum(a * feeds[v]) for a, v in zip(adjoints, tangents, strict=True))
    np.testing.assert_allclose(np.sum(moved * feeds[head]), along, rtol=1e-10)


def test_compiled_against_reference(case):
    output, inputs, feeds, random = case
    feeds = with_other_placeholders(output, feeds)
    head = placeholder(output.shape, "head")
    feeds |= {head: random.normal(size=output.shape)}
    tensors = [output, *differentiate(output, inputs, head=head)]
    for have, want in zip(te.evaluate(tensors, feeds), interpret(tensors, feeds), strict=True):
        np.testing.assert_allclose(have, want, rtol=1e-10, atol=1e-12)


def test_what_is_kept_is_what_a_derivative_is_a_formula_in():
    """Division and powers are computed again: one instruction, and by a constant exponent no use of the power."""
    y = placeholder((), "y")[()]
    arguments = [placeholder((), name)[()] for name in "abc"]
    using = set()
    for function, row in DERIVATIVE.items():
        parts = row(arguments[2], y, *arguments[: row.__code__.co_argcount - 2])
        if any(node is y for p in parts if isinstance(p, Expr) for node in topological((p,))):
            using.add(function)
    assert using == KEPT | {Fn.DIV, Fn.POW}


def test_explain_lists_the_reads_of_earlier_steps():
    x = placeholder((6,))
    y = te.scan((6,), lambda y, t: te.select(t == 0, x[0], te.sin(y[t - 1]) * x[t]), name="y")
    reads = differentiate(y, [x], head=placeholder((6,), "h")).explain().reads
    assert [(r.source.name, r.index, r.kind) for r in reads] == [
        ("y", "t - 1", "gather"), ("x", "0", "gather"), ("x", "t", "gather"),
    ]  # fmt: skip
    assert reads[0].stage.name == "dy"


def test_a_state_without_an_adjoint_has_no_reverse_recurrence():
    x = placeholder((6,))
    a, _ = te.scan((6,), lambda a, b, t: (te.select(t == 0, x[0], te.sin(a[t - 1])), te.exp(x[t])))
    gradient = differentiate(te.compute((), lambda: te.sum(lambda i: a[i])), x)
    (reverse,) = [op for op in stages_of([gradient]) if isinstance(op, Scan) and op.reverse]
    assert reverse.num_outputs == 1


class TestTiesAndZeros:
    def test_the_first_of_equals_takes_the_gradient(self):
        x, k = placeholder((4,)), axis(4)
        for reduce in (te.max, te.min):
            value = te.compute((), lambda reduce=reduce: reduce(x[k], axis=k))
            np.testing.assert_array_equal(interpret(differentiate(value, x), {x: np.full(4, 2.0)}), [1, 0, 0, 0])

    def test_products_with_zeros(self):
        x, k = placeholder((4,)), axis(4)
        gradient = differentiate(te.compute((), lambda: te.prod(x[k], axis=k)), x)
        for values, expected in [
            ([2, 0, 3, 4], [0, 24, 0, 0]),
            ([2, 0, 0, 4], [0, 0, 0, 0]),
            ([1, 2, 3, 4], [24, 12, 8, 6]),
        ]:
            np.testing.assert_array_equal(interpret(gradient, {x: np.array(values, float)}), expected)

    def test_scattered_products_with_zeros(self):
        x, k = placeholder((4,)), axis(4)
        y = te.scatter((2,), [k], (k // 2,), x[k], op="mul")
        loss = te.compute((), lambda: te.sum(lambda i: y[i]))
        np.testing.assert_array_equal(
            interpret(differentiate(loss, x), {x: np.array([0.0, 5.0, 2.0, 3.0])}), [5, 0, 3, 2]
        )

    def test_positions_have_no_gradient(self):
        x, k = placeholder((4,)), axis(4)
        y = te.compute((), lambda: te.cast(te.argmax(x[k], axis=k), "float64") * x[0])
        np.testing.assert_array_equal(interpret(differentiate(y, x), {x: np.array([1.0, 5, 2, 3])}), [1, 0, 0, 0])

    @pytest.mark.parametrize(
        ("function", "slope"),
        [
            (lambda x: te.where(x > 0, te.sqrt(x), x * 0.0), lambda v: 0.5 / np.sqrt(v)),
            (lambda x: te.where(x > 0, 2.0 * te.log(te.sqrt(x)) + 1.0, x * 0.0), lambda v: 1 / v),
            (lambda x: te.where(x > 0, te.where(x > 1, te.sqrt(x - 1.0), te.log(x)), x * 0.0), lambda v: 1 / v),
            (lambda x: te.where(x > 0, (1.0 / x) * x * x, x * 0.0), np.ones_like),
            (lambda x: te.where(x > 0, (te.sqrt(x) - 0.5) ** 2, x * 0.0), lambda v: 1 - 0.5 / np.sqrt(v)),
        ],
    )
    def test_an_untaken_branch_does_not_leak_from_stage_to_stage(self, function, slope):
        """Also not into second derivatives, nor where an adjoint is 0 by chance."""
        x, values = placeholder((4,)), np.array([0.0, -1.0, 0.25, 0.75])
        first = differentiate(function(x).sum(), x)
        second = differentiate(first.sum(), x)
        taken = values[2:]
        curve = (slope(taken + 1e-6) - slope(taken - 1e-6)) / 2e-6
        for run in (interpret, te.evaluate):
            got, curved = run([first, second], {x: values})
            np.testing.assert_allclose(got, [0, 0, *slope(taken)], rtol=1e-12, atol=1e-15)
            np.testing.assert_allclose(curved, [0, 0, *curve], rtol=1e-6, atol=1e-8)

    def test_an_untaken_branch_in_a_jacobian(self):
        x, values = placeholder((3,)), np.array([0.0, 1.0, 4.0])
        jacobian = differentiate(te.where(x > 0, te.sqrt(x), 0.0 * x), x)
        np.testing.assert_allclose(interpret(jacobian, {x: values}), np.diag([0, 0.5, 0.25]))

    def test_an_untaken_branch_through_a_norm_of_rows(self):
        """The condition is on what the row has in common, and each row is read at all its columns."""
        x, values = placeholder((3, 2)), np.array([[3.0, 4.0], [0.0, 0.0], [1.0, 0.0]])
        squares = (x * x).sum(1, keepdims=True)
        unit = te.where(squares > 0, x / te.sqrt(squares), 0.0 * x)
        gradient = differentiate((unit * x).sum(), x)
        for run in (interpret, te.evaluate):
            np.testing.assert_allclose(run(gradient, {x: values}), [[0.6, 0.8], [0, 0], [1, 0]], atol=1e-15)

    def test_an_untaken_branch_through_a_reshape(self):
        x, values = placeholder((6,)), np.array([0.0, 1.0, -1.0, 2.0, 4.0, 0.5])
        square = x.reshape((2, 3)).T
        y = te.where(square > 0, te.log(x).reshape((2, 3)).T, 0.0 * square)
        np.testing.assert_allclose(interpret(differentiate(y.sum(), x), {x: values}), [0, 1, 0, 0.5, 0.25, 2])

    def test_two_uses_of_a_branch_are_both_minded(self):
        x, values = placeholder((3,)), np.array([0.0, 1.0, 4.0])
        root = te.sqrt(x)
        y = te.where(x > 0, root, 0.0 * x) + te.where(x > 2, root * root, 0.0 * x)
        np.testing.assert_allclose(interpret(differentiate(y.sum(), x), {x: values}), [0, 0.5, 1.25])
        np.testing.assert_array_equal(
            interpret(differentiate((y + root).sum(), x), {x: values}), [np.inf, 1.0, 1.5], err_msg="the root itself"
        )

    def test_an_untaken_reduction_does_not_leak(self):
        x, k = placeholder((3, 2)), axis(2)
        y = te.compute((3,), lambda i: te.select(x[i, 0] > 0, te.sum(te.log(x[i, k]), axis=k), 0.0))
        loss = te.compute((), lambda: te.sum(lambda i: y[i]))
        got = interpret(differentiate(loss, x), {x: np.array([[1.0, 2.0], [0.0, 0.0], [-1.0, -3.0]])})
        np.testing.assert_array_equal(got, [[1, 0.5], [0, 0], [0, 0]])


@pytest.mark.parametrize("taps", [12, 60])
def test_a_long_chain_of_maxima_has_nests_of_a_few_results(taps: int) -> None:
    """What the compiler takes for a nest grows with its results times its operations (52 taps: 16 s)."""
    x = te.placeholder((100,), "float64", name="x")
    best = te.compute((20,), lambda i: functools.reduce(te.maximum, [x[i + k] * (1 + k % 3) for k in range(taps)]))
    head = te.placeholder((20,), "float64", name="head")
    (gradient,) = te.differentiate(best, [x], head=head)
    assert max(len(op.outputs) for op in stages_of([gradient])) <= 20
    random = np.random.default_rng(taps)
    feeds = {x: random.standard_normal(100), head: random.standard_normal(20)}
    want = np.zeros(100)
    for i in range(20):
        terms = [feeds[x][i + k] * (1 + k % 3) for k in range(taps)]
        k = int(np.argmax(terms))
        want[i + k] += feeds[head][i] * (1 + k % 3)
    np.testing.assert_allclose(te.evaluate(gradient, feeds), want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("channels", [1, 12])
def test_what_is_the_same_along_an_axis_is_not_stored_for_each_of_its_elements(channels):
    grid, guide = placeholder((channels, 8), "grid"), placeholder((20,), "guide")
    head = placeholder((channels, 20), "h")

    def body(c, i):
        z = te.exp(guide[i]) * 2.0
        low, far = te.cast(te.floor(z), "int32"), te.tanh(z - te.floor(z))
        return grid.at(c, low, mode="clamp") * (1.0 - far) + grid.at(c, low + 1, mode="clamp") * far

    y = te.compute((channels, 20), body, name="y")
    gradients = differentiate(y, [grid, guide], head=head)
    made = {op.name for op in operations_between([grid, guide, head, y], gradients)}
    assert ("dy_partials" in made) == (channels == 1)


def test_slopes_of_every_element_are_stored_for_all_that_need_them():
    a, b, head = placeholder((12, 20), "a"), placeholder((12, 20), "b"), placeholder((12, 20), "h")
    y = te.compute((12, 20), lambda i, j: te.exp(te.tanh(a[i, j] * b[i, j])), name="y")
    made = {op.name for op in operations_between([a, b, head, y], differentiate(y, [a, b], head=head))}
    assert "dy_partials" in made
