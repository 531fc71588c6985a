"""Habits from NumPy and from Python's math: what is surely a mistake is told, with what to write instead."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tedsl as te

x = te.placeholder((16,), "float64", name="x")
A = te.placeholder((4, 5), "float64", name="A")
u = te.placeholder((4,), "uint8", name="u")
loss = (x**2).sum()


def window(axis: Any) -> te.Tensor:
    return te.compute((14,), lambda i: te.sum(lambda k: x[i + k], axis=axis))


def of_elements(function: Callable[..., Any]) -> Callable[[], te.Tensor]:
    return lambda: te.compute((14,), lambda i: function(x[i], x[i + 1], x[i + 2]))


@pytest.mark.parametrize("axis", [0, -1, (0,), np.int64(0)])
def test_the_number_of_an_axis_is_no_extent(axis: Any) -> None:
    number = axis[0] if isinstance(axis, tuple) else axis
    with pytest.raises(
        ValueError, match=rf"axis= is how many terms there are, axis=3 for three of them; found {number}"
    ):
        window(axis)
    longest = te.reducer(lambda a, b: te.maximum(a, b), 0.0)
    with pytest.raises(ValueError, match="how many terms there are"):
        te.compute((14,), lambda i: longest(lambda k: x[i + k], axis=axis))


def test_sums_of_nothing_that_are_meant() -> None:
    data = {x: np.arange(16.0)}
    nothing, n = te.placeholder((0,), "float64", name="nothing"), te.var("n")
    named = te.compute((14,), lambda i: te.sum(lambda k: x[i + k], axis=te.reduce_axis(0)))
    of_extent = te.compute((14,), lambda i: te.sum(lambda k: nothing[k] * x[i + k], axis=nothing.shape[0]))
    for y in (named, of_extent):
        np.testing.assert_array_equal(te.evaluate(y, {**data, nothing: np.zeros(0)}), np.zeros(14))
    symbolic = te.compute((14,), lambda i: te.sum(lambda k: x.at(i + k, mode="zero"), axis=n))
    np.testing.assert_array_equal(te.build([x], symbolic)(data[x], sizes={n: 0}), np.zeros(14))


def test_a_loss_and_its_input_in_the_wrong_order() -> None:
    for swapped in (lambda: te.differentiate(x, loss), lambda: te.differentiate([x], [A.sum(), loss])):
        with pytest.raises(
            ValueError, match=r"x : float64\[16\] .*what is differentiated comes first: te.differentiat"
        ):
            swapped()
    y = te.tanh(x)
    with pytest.raises(ValueError, match="comes first"):
        te.differentiate(y, (y**2).sum())
    with pytest.raises(ValueError, match=r"comes first: te.jvp\(.*, x\)"):
        te.jvp(x, loss, 1.0)
    # what does not hang on the other has derivative 0, which may be meant
    assert (te.interpret(te.differentiate(loss, A), {x: np.ones(16), A: np.ones((4, 5))}) == 0).all()
    assert te.differentiate(x, [x, loss])[0].shape == (16, 16)
    both = te.differentiate([loss, x], [x, loss], head=[1.0, np.ones(16)])
    np.testing.assert_array_equal(te.interpret(both[0], {x: np.ones(16)}), np.full(16, 3.0))


HABITS: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: te.compute((14,), lambda i: x[i : i + 3].sum()), ValueError, "te.sum(lambda k: x[k + i], axis=3)"),
    (lambda: te.compute((14,), lambda i: (2 * x[i : i + 3]).sum()), ValueError, "te.sum(lambda k: x[k + i], axis=3)"),
    (
        lambda: te.compute((14,), lambda i: te.compute((3,), lambda k: x[i + k] * 2).sum()),
        ValueError,
        "te.sum(lambda k: x[i + k] * 2.0, axis=3)",
    ),
    (
        lambda: te.compute((3,), lambda i: te.compute((2, 3), lambda p, q: A[i + p, q]).sum()),
        ValueError,
        "te.sum(lambda p, q: A[i + p, q], axis=(2, 3))",
    ),
    (of_elements(lambda *e: np.mean(e)), TypeError, "a mean or a maximum of a few elements is written out"),
    (of_elements(lambda *e: np.median(e)), TypeError, "(x[i] + b) / 2, te.maximum(x[i], b)"),
    (of_elements(lambda *e: np.array(e)[0]), TypeError, "of many it is te.sum(lambda k: ..., axis=3)"),
    (of_elements(lambda a, b, c: te.stack([a, b]).max()), TypeError, "(x[i] + b) / 2, te.maximum(x[i], b)"),
    (of_elements(te.maximum), TypeError, "te.maximum(te.maximum(a, b), c)"),
    (lambda: te.minimum(x, x, x), TypeError, "te.minimum(te.minimum(a, b), c)"),
    (lambda: np.maximum(x, x, x), TypeError, "te.maximum(te.maximum(a, b), c)"),
    (lambda: math.exp(x.sum()), TypeError, "te.exp, te.sqrt in place of math.exp, math.sqrt"),
    (lambda: float(x.sum()), TypeError, 'te.evaluate computes it, x_sum.astype("float32") converts it'),
    (lambda: int(x), TypeError, 'te.evaluate computes it, x.astype("int32") converts it'),
    (lambda: np.float32(x), TypeError, 'x.astype("float32") converts them'),
    (lambda: np.uint8(x.sum()), TypeError, 'x_sum.astype("uint8") converts them'),
    (lambda: np.asarray(x, bool), TypeError, 'x.astype("bool") converts them'),
    (of_elements(lambda a, *e: np.float32(a)), TypeError, '; te.cast(x[i], "float32") converts it'),
    (lambda: np.unravel_index(A.argmax(), A.shape), TypeError, "of a shape (m, n) it is p // n and p % n"),
    (lambda: te.unravel_index(A.argmax(), A.shape), AttributeError, "of a shape (m, n) it is p // n and p % n"),
    (lambda: np.ravel_multi_index((A.argmax(), A.argmin()), A.shape), TypeError, "of a shape (m, n) it is i * n + j"),
    (lambda: np.clip(u, -5, 300), ValueError, "-5 is out of range for uint8 (from 0 to 255), and no bound: leave"),
    (lambda: te.clip(u, 3, 300), ValueError, "300 is out of range for uint8 (from 0 to 255), and no bound: leave"),
    (lambda: te.compute((4,), lambda i: te.clip(u[i], -5)), ValueError, "None in its place"),
    (
        lambda: x.at(0, mode="same"),
        ValueError,
        "error, zero (zeros, constant), clamp (edge, replicate), reflect, wrap (circular, periodic)",
    ),
    (lambda: x.at(17, mode="constant", cval=1.0), TypeError, "te.pad(x, width, constant_values=v)"),
    (lambda: x.at(17, mode="zero", fill_value=1.0), TypeError, "te.select(inside, x.at(i, mode=\"zero\"), v)"),
]  # fmt: skip


@pytest.mark.parametrize(("written", "error", "text"), HABITS)
@pytest.mark.filterwarnings("ignore:Passing more than 2 positional arguments to np.maximum:DeprecationWarning")
def test_what_is_written_instead_is_told(written: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=re.escape(text)):
        written()


def test_what_the_messages_advise() -> None:
    data = {x: np.arange(16.0) ** 2, A: np.arange(20.0).reshape(4, 5) % 7}
    sums = te.compute((14,), lambda i: te.sum(lambda k: x[i + k], axis=3))
    np.testing.assert_allclose(te.interpret(sums, data), np.convolve(data[x], np.ones(3), "valid"))
    place = A.argmax()
    found = te.interpret([place // 5, place % 5], data)
    assert tuple(map(int, found)) == np.unravel_index(int(data[A].argmax()), (4, 5))


def test_too_many_arguments_are_counted() -> None:
    @te.op
    def tinted(image: Any, lut: Any, k: int = 3) -> Any:
        return image + lut[0] * k

    with pytest.raises(TypeError, match=r"op tinted\(image, lut, k\): expected at most 3 arguments, found 5"):
        tinted(np.ones(3), np.ones(3), 3, 4, 5)
    with pytest.raises(TypeError, match=r"te.jit of <lambda>\(a\): expected 1 argument, found 2"):
        te.jit(lambda a: a)(1.0, 2.0)


@pytest.mark.parametrize(
    ("names", "told"),
    [
        ("lbfgs LBFGS bfgs minimize optimize", "scipy.optimize.minimize(te.value_and_grad(f), x, jac=True)"),
        ("least_squares curve_fit", "scipy.optimize.least_squares(te.jit(f), x, jac=te.jacobian(f))"),
        ("root fsolve newton", "scipy.optimize.root(te.jit(f), x, jac=te.jacobian(f))"),
        ("conjugate_gradient cg gmres", "scipy.sparse.linalg.cg does it"),
        ("gauss_newton levenberg_marquardt", "te.jvp(f, (x,), (v,)) and te.differentiate(y, x, head=v)"),
        ("lu cholesky", "docs/linear_algebra.md"),
        ("laplace laplacian", "in te.compute, of a function the trace of te.hessian(f)(x)"),
        ("linear", "te.ops.dense"),
        ("adam sgd", "optimizers are in te.ops.optim"),
        ("odeint solve_ivp", "te.scan of a step"),
    ],
)
def test_solvers_of_other_libraries(names: str, told: str) -> None:
    for name in names.split():
        with pytest.raises(AttributeError, match=re.escape(told)):
            getattr(te, name)
    if "LBFGS" in names:
        with pytest.raises(AttributeError, match=re.escape(told)):
            getattr(te.ops.optim, names.split()[1])


def test_what_the_solvers_take() -> None:
    optimize = pytest.importorskip("scipy.optimize")
    a = np.random.default_rng(0).normal(size=(7, 3))

    def residuals(p: Any) -> Any:
        return te.constant(a) @ te.tanh(p) - 0.5

    values, jacobian = te.jit(residuals), te.jacobian(residuals)
    squares = te.value_and_grad(lambda p: (residuals(p) ** 2).sum())
    least = optimize.least_squares(values, np.zeros(3), jac=jacobian).x
    np.testing.assert_allclose(optimize.minimize(squares, np.zeros(3), jac=True, tol=1e-12).x, least, rtol=1e-4)
    square = te.constant(a[:3])
    root = optimize.root(te.jit(lambda p: square @ p - 0.5), np.zeros(3), jac=te.jacobian(lambda p: square @ p - 0.5))
    np.testing.assert_allclose(root.x, np.linalg.solve(a[:3], np.full(3, 0.5)), rtol=1e-8)


def _said(f: Callable[..., Any], *shapes: tuple[int, ...]) -> str:
    with pytest.raises(TypeError) as caught:
        te.jit(f)(*(np.ones(s, "f4") for s in shapes))
    return str(caught.value)


def test_an_array_read_at_an_axis_is_called_by_its_name() -> None:
    gains, b = np.ones(3, "f4"), np.ones(3, "f4")
    told = _said(lambda w: te.compute((3,), lambda c: gains[c] * w[c]), (3,))
    assert "gains = te.constant(gains), then gains[c]" in told
    assert "(c + b) / 2, te.maximum(c, b)" in told
    told = _said(lambda w: te.compute((3, 3), lambda a, i: gains[a] * b[i]), (3,))  # which of both is not known
    assert "v = te.constant(array), then v[a]" in told
    told = _said(lambda w: te.compute((3, 3), lambda c, b: gains[c] * w[b]), (3,))
    assert "gains = te.constant(gains), then gains[c]" in told
    assert "(c + a) / 2, te.maximum(c, a)" in told
    told = _said(lambda a: te.compute((3,), lambda c: np.ones(3)[c] * a[c]), (3,))  # without a name
    assert "b = te.constant(array), then b[c]" in told
    assert "te.maximum(c, b)" in told


def test_a_list_read_at_an_axis_is_told_with_names_that_are_free() -> None:
    listed = [1.0, 2.0, 3.0]
    told = _said(lambda w: te.compute((3,), lambda c: listed[c] * w[c]), (3,))
    assert "b = te.constant(array), then b[c]" in told


@pytest.mark.parametrize(
    "f",
    [np.asarray, np.array, np.asanyarray, lambda a: np.asarray(a) + 1, lambda a: np.array([a, a])],
)
def test_an_array_of_a_tensor_is_left_out(f: Any) -> None:
    assert "leave np.asarray and np.array out, x is a tensor; " in _said(lambda x: f(x), (3, 4))


def test_a_copy_of_a_tensor_is_left_out() -> None:
    assert "leave it out: a tensor never changes" in _said(lambda x: np.copy(x), (3, 4))
    assert 'x.astype("float64") converts them' in _said(lambda x: np.array(x, dtype="f8"), (3, 4))
