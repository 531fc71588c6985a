"""What the reads of a scan send back alike is computed once for each step, also in steps with stages."""

import numpy as np
import pytest

import tedsl as te
from tedsl.lang.expr import Fn, Reduce
from tedsl.lang.tensor import Scan
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
