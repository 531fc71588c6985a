"""What the reads of a scan send back alike is computed once for each step, also in steps with stages."""

import numpy as np
import pytest

import tedsl as te
from tedsl.lang.expr import Fn, Reduce
from tedsl.lang.tensor import Compute, Scan
from tedsl.lang.traverse import stages_of, topological

STEPS, N = 4, 5


def bodies():
    """Bodies that draw each other in a plane: of each pair the distance is a stage of the step that two sums read."""
    x0, v0 = (te.placeholder((N, 2), "float64", name=name) for name in ("x0", "v0"))
    m = te.placeholder((N,), "float64", name="m")

    def step(x, v, t):
        def at(i, d):
            begin = te.select(t == 0, x0[i, d], x[t - 1, i, d])
            return begin + 0.1 * te.select(t == 0, v0[i, d], v[t - 1, i, d])

        def apart(i, j, d):
            return at(j, d) - at(i, d)

        inverse = te.compute(
            (N, N),
            lambda i, j: (apart(i, j, 0) * apart(i, j, 0) + apart(i, j, 1) * apart(i, j, 1) + 0.1) ** -1.5,
            name="inverse",
        )
        force = te.compute((N, 2), lambda i, d: te.sum(lambda j: apart(i, j, d) * inverse[i, j] * m[j]), name="force")
        return at, lambda i, d: te.select(t == 0, v0[i, d], v[t - 1, i, d]) + 0.1 * force[i, d]

    x, v = te.scan([(STEPS, N, 2)] * 2, step, axis=0)
    return te.compute((N, 2), lambda i, d: x[STEPS - 1, i, d] * v[STEPS - 1, i, d], name="y"), [x0, v0, m]


def test_slopes_are_those_of_finite_differences():
    y, inputs = bodies()
    draw = np.random.default_rng(0)
    values = [draw.standard_normal((N, 2)), draw.standard_normal((N, 2)), np.abs(draw.standard_normal(N))]
    assert te.gradcheck(y, inputs, values, atol=1e-6, rtol=1e-5).ok


def test_costly_parts_are_states_of_the_reverse_recurrence():
    y, inputs = bodies()
    grads = te.differentiate(te.compute((), lambda: te.sum(lambda i, d: y[i, d])), inputs)
    (reverse,) = [op for op in stages_of(list(grads)) if isinstance(op, Scan) and op.reverse]
    powers = [n for n in topological(reverse.bodies) if getattr(n, "fn", None) is Fn.POW]
    assert len(powers) == 1
    inside = {n for r in topological(reverse.bodies) if isinstance(r, Reduce) for n in topological(r.children)}
    assert not inside.intersection(powers), "once for each pair, not for each term that reads it"


@pytest.mark.parametrize("branches", ["same", "other"])
def test_both_branches_of_a_choice_send_one_choice_back(branches):
    x, c = te.placeholder((N,), "float64", name="x"), te.placeholder((N,), "float64", name="c")
    head = te.placeholder((N,), "float64", name="head")
    y = te.compute((N,), lambda i: te.select(c[i] > 0, x[i] + 1, 2 - x[i] if branches == "other" else x[i] - 1))
    (dx,) = te.differentiate(y, [x], head=head)
    assert "+" not in str(dx.op.bodies[0])
    a, b, h = np.arange(5.0), np.array([1.0, -1, 2, 0, 3]), np.arange(1.0, 6)
    expected = h if branches == "same" else np.where(b > 0, h, -h)
    np.testing.assert_array_equal(te.interpret(dx, {x: a, c: b, head: h}), expected)


def branches_of_a_step(shared: bool):
    """Values that are the result where they are chosen; the square root also has another use, if it is shared."""
    a = te.placeholder((N, N), "float64", name="a")

    def element(s, i, j):
        rest = a[i, j] - te.sum(lambda k: s[i, k] * s[j, k], where=lambda k: (k < j) & (j <= i))
        root = te.sqrt(te.abs(rest) + 0.5)
        return te.select(j < i, rest / s[j, j], te.select(j == i, root, 0.1 * root if shared else 0.0))

    return te.scan((N, N), element, axis=(0, 1)), a


@pytest.mark.parametrize("shared", [False, True])
def test_what_is_chosen_is_the_result_where_it_is(shared):
    y, a = branches_of_a_step(shared)
    draw = np.random.default_rng(0)
    values = draw.standard_normal((N, N))
    assert te.gradcheck(y, [a], [values + 4 * np.eye(N)], atol=1e-6, rtol=1e-5).ok


def test_costly_values_that_are_chosen_are_not_computed_again():
    y, a = branches_of_a_step(shared=False)
    grads = te.differentiate(y, [a], head=te.placeholder((N, N), "float64", name="head"))
    gradients = [op for op in stages_of(list(grads)) if op is not y.op]
    roots = [n for op in gradients for n in topological(op.expressions) if getattr(n, "fn", None) is Fn.SQRT]
    assert not roots


def test_a_quotient_and_its_gradient_divide_once():
    a, b = te.placeholder((N, N), "float64", name="a"), te.placeholder((N,), "float64", name="b")
    y = te.scan((N,), lambda x, i: (b[i] - te.sum(lambda k: a[i, k] * x[k], where=lambda k: k < i)) / a[i, i], axis=0)
    grads = te.differentiate(y, [a, b], head=te.placeholder((N,), "float64", name="head"))
    gradients = [op for op in stages_of(list(grads)) if op is not y.op]
    divisions = [n for op in gradients for n in topological(op.expressions) if getattr(n, "fn", None) is Fn.DIV]
    assert len(divisions) == 1
    draw = np.random.default_rng(0)
    values = [draw.standard_normal((N, N)) + 4 * np.eye(N), draw.standard_normal(N)]
    assert te.gradcheck(y, [a, b], values, atol=1e-6, rtol=1e-5).ok


def gated(units: int):
    """A GRU as it is written with arrays: the gates side by side, weights transposed."""
    steps, batch, features = 3, 2, 3
    shapes = {"wi": (3 * units, features), "wh": (3 * units, units), "bi": (3 * units,), "bh": (3 * units,)}
    p = {name: te.placeholder(shape, "float64", name=name) for name, shape in shapes.items()}
    xs = te.placeholder((steps, batch, features), "float64", name="xs")

    def step(h, t):
        before = te.where(t == 0, 0.0, h[t - 1])
        a, b = xs[t] @ p["wi"].T + p["bi"], before @ p["wh"].T + p["bh"]
        r = te.sigmoid(a[:, :units] + b[:, :units])
        z = te.sigmoid(a[:, units : 2 * units] + b[:, units : 2 * units])
        new = te.tanh(a[:, 2 * units :] + r * b[:, 2 * units :])
        return (1 - z) * new + z * before

    return te.scan([(steps, batch, units)], step), [*p.values(), xs]


def test_slopes_of_gates_are_those_of_finite_differences():
    y, inputs = gated(16)
    draw = np.random.default_rng(0)
    values = [draw.standard_normal([int(str(e)) for e in t.extents]) * 0.4 for t in inputs]
    assert te.gradcheck(y, inputs, values, atol=1e-6, rtol=1e-5).ok


def test_sums_within_a_step_are_made_once_for_all_steps():
    y, inputs = gated(16)
    grads = te.differentiate((y * y).sum(), inputs)
    stages = stages_of(list(grads))
    (forward,) = [op for op in stages if isinstance(op, Scan) and not op.reverse]
    sums = [op for op in stages if isinstance(op, Compute) and op.reduction is not None]
    again = [op for op in sums if len(op.axes) == 3 and any(t is forward.output() for t in op.inputs)]
    assert len(again) == 3, "the product of each gate with the state before"
    made = {id(op.output()) for op in again}
    assert not any(id(r.tensor) in made for op in sums for r in op.reads), "all other sums are of adjoints"


def test_a_part_that_no_step_reads_again_is_made_of_the_finished_adjoint():
    y, inputs = gated(16)
    stages = stages_of(list(te.differentiate((y * y).sum(), inputs)))
    (reverse,) = [op for op in stages if isinstance(op, Scan) and op.reverse]
    sums = [op for op in stages if isinstance(op, Compute) and op.reduction is not None]
    adjoints = {id(t) for t in reverse.outputs}
    again = [op for op in sums if len(op.axes) == 3 and not adjoints.isdisjoint(id(t) for t in op.inputs)]
    assert not again, "no sum of the recurrence is made once more"


@pytest.mark.parametrize("short", [0, 1])
def test_parts_that_a_sum_within_the_step_asks_for_are_differentiated_twice(short):
    """What the terms of the reverse step's sum share is known there, if at all, for other reasons than their own."""
    steps = 9
    x, head = te.placeholder((steps,), "float64", name="x"), te.placeholder((steps,), "float64", name="head")
    w, k = te.placeholder((steps - short,), "float64", name="w"), te.reduce_axis(steps, name="k")
    y = te.scan((steps,), lambda y, t: x[t] + te.sum(te.sin(y[k]) * w[k] * 0.1 * x[t - k], axis=k, where=k < t))
    once = te.differentiate(y, [x, w], head=head)
    twice = te.differentiate(list(once), [x, w], head=[x, w])
    values = [np.random.default_rng(0).standard_normal(int(str(t.extents[0]))) * 0.5 for t in (x, w, head)]
    assert te.gradcheck(list(once), [x, w, head], values, atol=1e-6, rtol=1e-5).ok
    assert te.gradcheck(list(twice), [x, w, head], values, atol=1e-6, rtol=1e-5).ok


def test_what_two_sums_within_a_step_read_alike_is_read_where_either_asks_for_it():
    """A read that two sums have in common hangs on neither's axis: each sends back what its own terms ask for."""
    steps = 9
    x, z, head = (te.placeholder((steps,), "float64", name=name) for name in ("x", "z", "head"))
    k, m = te.reduce_axis(steps, name="k"), te.reduce_axis(steps, name="m")

    def step(y, t):
        first = te.sum(y[k] * te.exp(x[t]), axis=k, where=k < t)
        return z[t] + first + te.sum(te.sin(y[m]) * te.exp(x[t]), axis=m, where=m + 1 < t)

    y = te.scan((steps,), step)
    once = te.differentiate(y, [x, z], head=head)
    values = list(np.random.default_rng(0).standard_normal((3, steps)) * 0.3)
    assert te.gradcheck(y, [x, z], values[:2], atol=1e-6, rtol=1e-5).ok
    assert te.gradcheck(list(once), [x, z, head], values, atol=1e-6, rtol=1e-5).ok
