"""Jacobians through several stages: right by JAX, and no sum runs over what is zero by its place."""

import numpy as np
import pytest

import tedsl as te
from autodiff import differentiate
from autodiff.rows import rows_of
from tedsl.lang.tensor import Scan
from tedsl.lang.traverse import stages_of

jax = pytest.importorskip("jax")
jnp = jax.numpy

B, I, H, O = 3, 4, 5, 2  # noqa: E741


def dense(x, w):
    k = te.reduce_axis(w.shape[0], name="k")
    return te.compute((x.shape[0], w.shape[1]), lambda b, o: te.sum(x[b, k] * w[k, o], axis=k))


def tanh(x):
    return te.compute(x.shape, lambda *i: te.tanh(x[i]))


def arrays(*shapes):
    rng = np.random.default_rng(3)
    return [rng.standard_normal(s) for s in shapes]


def parameters(*shapes):
    return [te.placeholder(s, "float64", name=f"a{i}") for i, s in enumerate(shapes)]


def one_layer(x, w):
    return tanh(dense(x, w))


def two_layers(x, w, v):
    return tanh(dense(tanh(dense(x, w)), v))


def residual(x, w):
    y = tanh(dense(x, w))
    return tanh(y) + y * 2.0


def rolled(x, w):
    y = tanh(dense(x, w))
    return te.compute(y.shape, lambda b, o: y[b, (o + 1) % y.shape[1]] * y[b, o])


def convolved(x, w):
    y = tanh(x)
    r = te.reduce_axis(3, name="r")
    return te.compute((B, I - 2), lambda b, i: te.sum(y[b, i + r] * w[r], axis=r))


def running(x, w):
    y = tanh(dense(x, w))
    s = te.scan(y.shape, lambda s, b, o: te.select(o == 0, y[b, 0], s[b, o - 1] * y[b, o]), axis=1, dtype="float64")
    return tanh(s)


def running_jax(x, w):
    return jnp.tanh(jnp.cumprod(jnp.tanh(x @ w), axis=1))


def convolved_jax(x, w):
    y = jnp.tanh(x)
    return sum(y[:, r : r + I - 2] * w[r] for r in range(3))


CASES = {
    "one layer": (one_layer, lambda x, w: jnp.tanh(x @ w), [(B, I), (I, H)]),
    "two layers": (two_layers, lambda x, w, v: jnp.tanh(jnp.tanh(x @ w) @ v), [(B, I), (I, H), (H, O)]),
    "residual": (residual, lambda x, w: (lambda y: jnp.tanh(y) + 2 * y)(jnp.tanh(x @ w)), [(B, I), (I, H)]),
    "rolled": (rolled, lambda x, w: (lambda y: jnp.roll(y, -1, 1) * y)(jnp.tanh(x @ w)), [(B, I), (I, H)]),
    "convolution": (convolved, convolved_jax, [(B, I), (3,)]),
    "scan": (running, running_jax, [(B, I), (I, H)]),
}


@pytest.fixture
def x64():
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


@pytest.mark.parametrize("name", CASES)
def test_against_jax(name, x64):
    ours, theirs, shapes = CASES[name]
    inputs, values = parameters(*shapes), arrays(*shapes)
    y = ours(*inputs)
    got = te.interpret(list(differentiate(y, inputs)), dict(zip(inputs, values, strict=True)))
    want = jax.jacobian(theirs, argnums=tuple(range(len(values))))(*values)
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(g, np.asarray(w), rtol=1e-10, atol=1e-12)


def test_compiled():
    ours, theirs, shapes = CASES["two layers"]
    inputs, values = parameters(*shapes), arrays(*shapes)
    jacobians = list(differentiate(ours(*inputs), inputs))
    got = te.build(inputs, jacobians)(*values)
    want = te.interpret(jacobians, dict(zip(inputs, values, strict=True)))
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-10, atol=1e-12)


def iterations(y, inputs):
    """Of what the Jacobian needs beside the forward stages."""
    return te.work(list(differentiate(y, inputs))).iterations - te.work(y).iterations


def test_the_jacobian_of_a_dense_layer_by_its_weights_takes_an_iteration_for_each_element():
    x, w = parameters((6, 4), (4, 6))
    assert iterations(one_layer(x, w), [w]) == 6 * 6 * 4 * 6 + 6 * 6  # and a slope for each result


def test_two_dense_layers():
    """By the first weights: elements, what reaches the hidden layer of the same row of the batch alone, slopes."""
    x, w, v = parameters((B, I), (I, H), (H, O))
    hidden, slopes = B * O * H, B * O
    assert iterations(two_layers(x, w, v), [w]) <= B * O * I * H + 2 * hidden + slopes


def test_adjoints_on_the_way_are_whole_tensors():
    x, w = parameters((B, I), (I, H))
    y = dense(x, w)
    z = tanh(y)
    grads = differentiate(z, [w])
    (adjoint,) = te.interpret([grads.adjoints[y]], dict(zip([x, w], arrays((B, I), (I, H)), strict=True)))
    assert adjoint.shape == (B, H, B, H)
    assert np.count_nonzero(adjoint) == B * H


def steps(k, count=6):
    """Heat that flows for some steps between neighbors."""
    n = k.shape[0]

    def step(u, t, i):
        here = te.select(t == 0, 0.1 * te.cast(i * i, "float64"), u[t - 1, i])
        ahead = te.select(t == 0, 0.1 * te.cast((i + 1) * (i + 1), "float64"), u[t - 1, te.minimum(i + 1, n - 1)])
        return here + te.exp(k[i]) * (ahead - here)

    return te.scan((count, n), step, dtype="float64")


def reversed_scans(tensors):
    return [op for op in stages_of(tensors) if isinstance(op, Scan) and op.reverse]


def test_through_scans_few_elements_are_followed_forward():
    k = te.placeholder((2, 2), "float64", name="k")
    flat = te.compute((4,), lambda i: k[i // 2, i % 2])
    wide, narrow = steps(flat)[1:], steps(flat)[5, :2]
    for result in (wide, narrow):
        (found,) = rows_of(result, [k])
        (wanted,) = differentiate(result, [k])
        assert found.shape == wanted.shape == (*result.shape, 2, 2)
        assert bool(reversed_scans([found])) is (result is narrow)
        assert reversed_scans([wanted])
        (a,) = arrays((2, 2))
        np.testing.assert_allclose(te.interpret(found, {k: a}), te.interpret(wanted, {k: a}), rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(te.build([k], found)(a), te.interpret(wanted, {k: a}), rtol=1e-10, atol=1e-12)


def test_hessians_through_scans_go_back_and_then_forward():
    a = arrays((4,))[0] * 0.1

    def loss(k):
        return (steps(k)[5] ** 2).sum()

    made = te.hessian(loss)(a)
    jacobian, e = te.grad(loss), 1e-6
    columns = [(jacobian(a + d) - jacobian(a - d)) / (2 * e) for d in np.eye(4) * e]
    np.testing.assert_allclose(made, np.stack(columns, -1), rtol=1e-6, atol=1e-8)
