"""Functions made from functions: gradients, Jacobians, Hessians, batches and compiled functions.

Against finite differences and loops where only NumPy is there, against JAX and `torch.func` on the same small functions
written once for all of them.
"""

from __future__ import annotations

import copy
import dataclasses
import importlib.util
import itertools
import os
import pickle
import traceback
from collections import namedtuple
from collections.abc import Callable, Iterator
from math import prod
from typing import Any

import numpy as np
import pytest

import tedsl as te
from tedsl.lang.traverse import operations_between
from tedsl.ops.transforms.function import Transformed

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
RNG = np.random.default_rng(7)
Pair = namedtuple("Pair", ["left", "right"])


def normal(*shape: int, dtype: str = "float64") -> Any:
    return RNG.standard_normal(shape).astype(dtype)


def network(dtype: str = "float64") -> dict[str, Any]:
    sizes = [3, 5, 2]
    layers = [(normal(a, b, dtype=dtype), normal(b, dtype=dtype)) for a, b in itertools.pairwise(sizes)]
    return {"layers": layers, "scale": np.asarray(1.5, dtype)}


# --- functions written once: `xp` is te, jax.numpy or torch ----------------------------------------------------------


def mlp(xp: Any) -> Callable[..., Any]:
    def loss(params: Any, x: Any, y: Any) -> Any:
        *hidden, (w, b) = params["layers"]
        for v, c in hidden:
            x = xp.tanh(x @ v + c)
        return ((params["scale"] * (x @ w + b) - y) ** 2).mean()

    return loss


def logistic(xp: Any) -> Callable[..., Any]:
    def loss(w: Any, b: Any, x: Any, y: Any) -> Any:
        z = x @ w + b
        return (xp.log(1 + xp.exp(-z)) + (1 - y) * z).sum()

    return loss


def scalar(xp: Any) -> Callable[..., Any]:
    return lambda x: xp.sin(x) * xp.exp(x * 0.5) + x**3


def spread(xp: Any) -> Callable[..., Any]:
    """Not a scalar: what a Jacobian is taken of."""
    return lambda x: xp.tanh(x[:, 1:] * x[:, :-1]).sum(1) * x[:, 0]


def energy(xp: Any) -> Callable[..., Any]:
    return lambda x: (xp.exp(x * 0.3) * x.sum()).sum()


class Shape:
    """What differs between the frameworks: their namespace, and how arrays become theirs."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.xp = pytest.importorskip({"jax": "jax.numpy"}.get(name, name))
        self.own = self.xp.asarray

    def given(self, nest: Any) -> Any:
        if isinstance(nest, dict):
            return {k: self.given(v) for k, v in nest.items()}
        if isinstance(nest, (tuple, list)):
            return type(nest)(self.given(v) for v in nest)
        return self.own(nest)

    def transform(self, kind: str) -> Any:
        if self.name == "jax":
            return getattr(pytest.importorskip("jax"), kind)
        found = pytest.importorskip("torch.func")
        if kind == "value_and_grad":
            return lambda f, argnums=0, has_aux=False: swapped(found.grad_and_value(f, argnums, has_aux))
        return getattr(found, {"jacobian": "jacrev"}.get(kind, kind))


def swapped(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: f(*args)[::-1]


@pytest.fixture(params=["jax", "torch"])
def other(request: pytest.FixtureRequest) -> Iterator[Shape]:
    if request.param == "torch":
        yield Shape("torch")
        return
    jax = pytest.importorskip("jax")
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield Shape("jax")
    jax.config.update("jax_enable_x64", before)


def leaves(nest: Any) -> list[Any]:
    if isinstance(nest, dict):
        return [leaf for key in nest for leaf in leaves(nest[key])]
    return [leaf for part in nest for leaf in leaves(part)] if isinstance(nest, (tuple, list)) else [nest]


def shape_of(nest: Any) -> Any:
    if isinstance(nest, dict):
        return {k: shape_of(v) for k, v in nest.items()}
    return type(nest)(map(shape_of, nest)) if isinstance(nest, (tuple, list)) else None


def same(found: Any, expected: Any) -> None:
    """Equal nests of arrays: of one structure, one dtype, and equal up to some roundings of sums of a few terms."""
    assert shape_of(found) == shape_of(expected)
    for a, b in zip(leaves(found), leaves(expected), strict=True):
        if b is not None:
            b = np.asarray(b)
            assert str(a.dtype).rpartition(".")[2] == str(b.dtype)
            assert tuple(a.shape) == b.shape
            tolerance = 200 * np.finfo(b.dtype).eps
            np.testing.assert_allclose(np.asarray(a), b, rtol=tolerance, atol=tolerance)


def differences(f: Callable[..., Any], x: Any, step: float = 1e-5) -> Any:
    """Central differences of a function of one array, in the last axes of the result."""
    found = []
    for k in range(x.size):
        e = np.zeros(x.size)
        e[k] = step
        e = e.reshape(x.shape)
        found.append((np.asarray(f(x + e)) - np.asarray(f(x - e))) / (2 * step))
    return np.stack(found, -1).reshape((*found[0].shape, *x.shape))


# --- NumPy alone -----------------------------------------------------------------------------------------------------


def test_the_gradient_of_a_network_by_its_nest_of_parameters() -> None:
    params, x, y = network(), normal(4, 3), normal(4, 2)
    value, gradient = te.value_and_grad(mlp(te))(params, x, y)
    np.testing.assert_allclose(value, mlp(np)(params, x, y), rtol=1e-13)
    assert shape_of(gradient) == shape_of(params)
    for place, leaf in enumerate(leaves(params)):

        def moved(value: Any, place: int = place) -> Any:
            given = iter([value if k == place else leaf for k, leaf in enumerate(leaves(params))])
            layers = [(next(given), next(given)) for _ in params["layers"]]
            return mlp(np)({"layers": layers, "scale": next(given)}, x, y)

        np.testing.assert_allclose(leaves(gradient)[place], differences(moved, leaf), rtol=1e-6, atol=1e-8)
    same(te.grad(mlp(te))(params, x, y), gradient)


def test_numbers_and_lists_are_taken_as_numpy_takes_them() -> None:
    slope = te.grad(lambda x: x * x * x)
    assert slope(2.0) == 12
    assert slope(2.0).dtype == np.float64
    assert slope(np.float32(2)).dtype == np.float32
    same(te.grad(lambda x: (x * x).sum())([1.0, 2.0]), np.array([2.0, 4.0]))
    same(te.jacobian(lambda x: x * x)([[1, 2.0]]), np.diag([2.0, 4.0]).reshape(1, 2, 1, 2))
    assert te.grad(lambda w, x: (w * x).sum())(3.0, normal(4, dtype="float32")).dtype == np.float32
    nested = te.jit(te.grad(lambda w, x: (w * x).sum()))(3.0, normal(4, dtype="float32"))
    assert nested.dtype == np.float32
    assert te.jit(lambda x: x + 1)(2.5) == 3.5
    assert te.jit(lambda x, y: x + y)(normal(3, dtype="float32"), 0.5).dtype == np.float32
    same(te.vmap(lambda x: x * 2)([1.0, 2.0]), np.array([2.0, 4.0]))


def test_arguments_and_results_keep_their_structure() -> None:
    pair = Pair(np.array(2.0), {"none": None, "deep": [np.array(3.0)]})
    gradient, aux = te.grad(lambda p: (p.left * p.right["deep"][0], {"p": p, "n": 7}), has_aux=True)(pair)
    assert gradient == Pair(3, {"none": None, "deep": [2]})
    assert aux == {"p": pair, "n": 7}
    by_name = te.grad(lambda x, *, power: (x**power).sum())
    same(by_name(np.array([1.0, 2.0]), power=3), np.array([3.0, 12.0]))
    assert te.jit(lambda x, flag: (x, None, flag))(np.array(1.0), "yes") == (1, None, "yes")
    (both,) = te.value_and_grad(lambda a, b: a * b, argnums=(1,))(2.0, 5.0)[1:]
    assert both == (2,)
    assert te.grad(lambda a, b: a * b * b, argnums=(1, 0))(2.0, 5.0) == (20, 25)
    assert te.grad(lambda a, b: a * b * b, argnums=-1)(2.0, 5.0) == 20


@dataclasses.dataclass
class Line:
    slope: Any
    offset: Any = 0.0
    kind: Any = None


def test_gradients_stand_in_results_as_a_tuple() -> None:
    def gradients(a: Any, b: Any) -> Any:
        return te.differentiate((a * b).sum(), [a, b])

    def with_gradients(a: Any, b: Any) -> Any:
        return (a * b).sum(), gradients(a, b)

    a, b = normal(2, 3), normal(2, 3)
    _, found = te.grad(with_gradients, has_aux=True)(a, b)
    _, moved = te.jvp(gradients, (a, b), (b, a))
    rows = te.jacobian(gradients)(a[0], b[0])
    for result in (te.jit(gradients)(a, b), te.op(gradients)(a, b), te.vmap(gradients)(a, b), found, moved[::-1]):
        assert type(result) is tuple
        np.testing.assert_array_equal(result[0], b)
        np.testing.assert_array_equal(result[1], a)
    np.testing.assert_array_equal(rows[1], np.eye(3))


def test_dataclasses_are_nests() -> None:
    def loss(line: Line, x: Any) -> Any:
        assert isinstance(line, Line)
        return ((line.slope * x + line.offset) ** 2).sum(), {"line": line}

    x = np.array([1.0, 2.0])
    gradient, aux = te.grad(loss, has_aux=True)(Line(2.0, 1.0), x)
    assert gradient == Line(2 * (3 * 1 + 5 * 2), 2 * (3 + 5), None)
    assert aux == {"line": Line(2.0, 1.0)}
    lines = Line(x, np.array([0.0, 1.0]))
    each = te.vmap(lambda line, t: Line(line.slope * t, line.offset), (Line(0, 0, None), None))(lines, np.array(3.0))
    np.testing.assert_array_equal(each.slope, 3 * x)
    np.testing.assert_array_equal(each.offset, lines.offset)
    both = te.vmap(te.grad(lambda line: line.slope * line.slope * line.offset))(lines)
    np.testing.assert_array_equal(both.slope, 2 * lines.slope * lines.offset)


@pytest.mark.parametrize("setting", ["relu", True, None, te.tanh, b"x"])
def test_settings_beside_parameters_have_no_slope_and_stay(setting: Any) -> None:
    def loss(line: Line, x: Any) -> Any:
        assert line.kind is setting
        return ((line.slope * x + line.offset) ** 2).sum()

    x = np.array([1.0, 2.0])
    assert te.grad(loss)(Line(2.0, 1.0, setting), x) == Line(26, 16, setting)
    assert te.jit(te.value_and_grad(loss))(Line(2.0, 1.0, setting), x)[1] == Line(26, 16, setting)
    assert te.grad(lambda p, x: loss(Line(p["w"], 0.0, p["kind"]), x))({"w": 1.0, "kind": setting}, x) == {
        "w": 10,
        "kind": setting,
    }


def test_jacobians_and_hessians_against_differences() -> None:
    x = normal(2, 4)
    same_shape = te.jacobian(spread(te))(x)
    assert same_shape.shape == (2, 2, 4)
    np.testing.assert_allclose(same_shape, differences(spread(np), x), rtol=1e-6, atol=1e-9)
    curved = te.hessian(energy(te))(x)
    assert curved.shape == (2, 4, 2, 4)
    np.testing.assert_allclose(curved, differences(te.grad(energy(te)), x), rtol=1e-6, atol=1e-8)


def blurred(s: Any, x: Any) -> Any:
    """An image through two filters of a width, one after the other."""
    weights = [te.exp(-float(k * k) / s) for k in range(-2, 3)]

    def along(x: Any, dim: int) -> Any:
        def element(*at: Any) -> Any:
            taps = [x.at(*(a + k * (d == dim) for d, a in enumerate(at)), mode="clamp") for k in range(-2, 3)]
            return sum(w * tap for w, tap in zip(weights, taps, strict=True))

        return te.compute(x.shape, element)

    return along(along(x, 0), 1)


@pytest.mark.parametrize("shape", [(), (1,)])
def test_a_jacobian_by_one_number_has_no_row_for_each_element(shape: tuple[int, ...]) -> None:
    def of(s: Any, x: Any) -> Any:
        return blurred(s if s.ndim == 0 else s[0], x)

    s, x = te.placeholder(shape, "float64", name="s"), te.placeholder((6, 7), "float64", name="x")
    by_width, by_image = te.jacobian(of, argnums=(0, 1))(s, x)
    assert by_width.shape == (6, 7, *shape)
    assert by_width.dtype == "float64"
    assert by_image.shape == (6, 7, 6, 7)
    largest = max(prod(t.shape) for op in operations_between([s, x], [by_width]) for t in op.outputs)
    assert largest == 6 * 7
    values = {s: np.full(shape, 3.0), x: np.random.default_rng(1).standard_normal((6, 7))}
    (by_rows,) = te.differentiate(of(s, x), [s])
    expected = te.interpret(by_rows, values)
    np.testing.assert_allclose(te.interpret(by_width, values), expected, rtol=1e-12)


def test_a_jacobian_by_one_number_keeps_to_what_an_author_says_is_sent_back() -> None:
    slopes = te.jacobian(lambda s: straight(te.full((3,), 1.0, "float64") * s) * 2)(0.7)
    np.testing.assert_array_equal(slopes, [20.0, 20, 20])


def test_functions_of_arrays_along_directions() -> None:
    x, y, v, w = (normal(3) for _ in range(4))
    value, along = te.jvp(lambda p, y: {"p": p["x"] * y, "s": te.sin(y)}, ({"x": x}, y), ({"x": v}, w))
    np.testing.assert_allclose(value["p"], x * y, rtol=1e-15)
    np.testing.assert_allclose(along["p"], v * y + x * w, rtol=1e-14)
    np.testing.assert_allclose(along["s"], np.cos(y) * w, rtol=1e-14)
    nested = te.jvp(lambda p, y: p["x"] * y * p["z"], ({"x": x, "z": x, "name": None}, y), ({"x": v, "z": None}, None))
    np.testing.assert_allclose(nested[1], v * y * x, rtol=1e-14)
    assert te.jvp(lambda x: x * x, 3.0, 1.0) == (9.0, 6.0)
    np.testing.assert_allclose(te.hvp(lambda x: (x**3).sum(), x, v), 6 * x * v, rtol=1e-14)
    both = te.hvp(lambda x, y: (x * x * y).sum(), (x, y), (v, w))
    np.testing.assert_allclose(both[0], 2 * y * v + 2 * x * w, rtol=1e-14)
    np.testing.assert_allclose(both[1], 2 * x * v, rtol=1e-14)
    same = te.jit(lambda x, v: te.jvp(lambda a, b: a * b, (x, x), (v, v))[1])
    np.testing.assert_allclose(same(x, v), 2 * x * v, rtol=1e-14)


def test_directions_of_a_function_that_reads_something_else_by_then() -> None:
    """Such a call keeps no program, so that it derives once, and what the function reads may change."""
    traced, scale = [], 2.0

    def cubes(x: Any) -> Any:
        traced.append(x)
        return (scale * x**3).sum()

    a, v = np.array([1.0, 2.0]), np.ones(2)
    np.testing.assert_allclose(te.hvp(cubes, a, v), 12 * a)
    np.testing.assert_allclose(te.jvp(cubes, a, v)[1], (6 * a**2).sum())
    assert len(traced) == 2
    scale = 3.0
    np.testing.assert_allclose(te.hvp(cubes, a, v), 18 * a)
    again = te.jit(lambda x, v: te.hvp(cubes, x, v))
    for k in range(3):
        np.testing.assert_allclose(again(a + k, v), 18 * (a + k))
    assert len(traced) == 5


def test_directions_are_as_many_as_arguments() -> None:
    x = normal(3)
    with pytest.raises(TypeError, match=r"a direction for each argument.* found tuple and ndarray"):
        te.jvp(lambda x: x, (x,), x)
    with pytest.raises(
        te.GradientError, match=r"argument 0 is int64.*or let the function capture it: lambda x: f\(x, k\)"
    ):
        te.jvp(lambda k: k * 1.0, (np.arange(3),), (np.arange(3),))
    with pytest.raises(ValueError, match="a direction for each argument, found 2 for 1"):
        te.hvp(lambda x: x.sum(), (x,), (x, x))
    with pytest.raises(ValueError, match=r"reduce it, as with \.sum"):
        te.hvp(lambda x: x * x, x, x)


def test_many_examples_are_a_loop_over_one() -> None:
    def f(p: Any, x: Any) -> Any:
        w, b = p["w"], p["b"]
        return {"y": te.tanh(x @ w + b), "top": te.max(x, axis=0), "same": b * 2}

    w, b, x = normal(3, 2), normal(5, 2), normal(3, 5)
    found = te.vmap(f, in_axes=({"w": None, "b": 0}, 1), out_axes={"y": 1, "top": 0, "same": -1})({"w": w, "b": b}, x)
    np.testing.assert_allclose(found["y"], np.tanh(x.T @ w + b).T, rtol=1e-14)
    np.testing.assert_array_equal(found["top"], x.T.max(1))
    np.testing.assert_array_equal(found["same"], (b * 2).T)
    alone = te.vmap(lambda x, y: (x + 1, y * 2), in_axes=(0, None), out_axes=(0, None))(x, b)
    np.testing.assert_array_equal(alone[1], b * 2)


def test_elements_are_scalars() -> None:
    def rosenbrock(x: Any) -> Any:
        return (1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2

    x, y = 0.5, -0.25
    at = np.array([x, y])
    slope = np.array([-2 * (1 - x) - 400 * x * (y - x * x), 200 * (y - x * x)])
    np.testing.assert_allclose(te.grad(rosenbrock)(at), slope, rtol=1e-14)
    curvature = [[2 - 400 * (y - 3 * x * x), -400 * x], [-400 * x, 200]]
    np.testing.assert_allclose(te.hessian(rosenbrock)(at), curvature, rtol=1e-14)
    np.testing.assert_allclose(te.vmap(rosenbrock)(np.stack([at, at])), [rosenbrock(at)] * 2, rtol=1e-14)
    assert te.jit(lambda x: {"first": x[0]})(at)["first"] == x
    assert te.grad(lambda x: te.grad(lambda y: y * y * x[1])(x[0]))(at).tolist() == [2 * y, 2 * x]


def test_they_compose() -> None:
    def cube(x: Any) -> Any:
        return x * x * x

    x = np.array([1.0, 2.0, 3.0])
    assert te.grad(te.grad(te.grad(cube)))(5.0) == 6
    same(te.jit(te.grad(cube))(x[1]), np.asarray(12.0))
    same(te.vmap(te.grad(cube))(x), 3 * x**2)
    same(te.vmap(te.vmap(te.grad(cube)))(x[None]), 3 * x[None] ** 2)
    same(te.grad(lambda x: te.vmap(cube)(x).sum())(x), 3 * x**2)
    same(te.jacobian(te.vmap(te.grad(cube)))(x), np.diag(6 * x))
    value, slope = te.vmap(te.value_and_grad(cube))(x)
    same((value, slope), (x**3, 3 * x**2))
    per_example = te.vmap(te.grad(logistic(te)), in_axes=(None, None, 0, 0))
    w, points, labels = normal(2), normal(3, 2), np.array([0.0, 1.0, 1.0])
    one = te.grad(logistic(te))
    same(
        per_example(w, 0.5, points, labels), np.stack([one(w, 0.5, p, y) for p, y in zip(points, labels, strict=True)])
    )


def test_on_tensors_they_are_expressions() -> None:
    x = te.placeholder((3,), "float64", name="x")
    a = np.array([1.0, 2.0, 3.0])
    slope = te.grad(lambda y: (y * y * x).sum())(x)  # x by its other name is not differentiated
    assert isinstance(slope, te.Tensor)
    np.testing.assert_array_equal(te.interpret(slope, {x: a}), 2 * a * a)
    np.testing.assert_array_equal(te.build(x, slope)(a), 2 * a * a)
    both = te.grad(lambda y, z: (y * z * z).sum())(x, x)
    np.testing.assert_array_equal(te.interpret(both, {x: a}), a * a)
    outer = te.op(lambda x: te.vmap(te.grad(lambda y: y * y * y))(x) + te.jit(te.exp)(x))
    np.testing.assert_allclose(outer(a), 3 * a**2 + np.exp(a), rtol=1e-15)
    nested = te.grad(lambda x: te.grad(lambda y: x * y * y)(x))
    assert nested(2.0) == 8
    n = te.var("n")
    free = te.placeholder((n, 2), "float64", name="free")
    batched = te.vmap(lambda row: row.sum())(free)
    np.testing.assert_array_equal(te.build(free, batched)(np.ones((4, 2))), np.full(4, 2.0))
    assert te.jit(lambda x, n: (x, n))(x, 3)[1] == 3


@te.op
def straight(x: Any) -> Any:
    return te.round(x)


@straight.def_vjp
def _straight_vjp(output: Any, inputs: Any, head: Any) -> Any:
    return [head * 10]


def test_rules_of_operators_hold_in_batches() -> None:
    w, x = np.array(0.7), normal(3)

    def loss(w: Any, x: Any) -> Any:
        return te.vmap(lambda x: straight(x * w) * x)(x).sum()

    dw, dx = te.grad(loss, argnums=(0, 1))(w, x)
    np.testing.assert_allclose(dw, 10 * (x * x).sum(), rtol=1e-14)
    np.testing.assert_allclose(dx, 10 * w * x + np.round(x * w), rtol=1e-14)
    rows = te.jacobian(te.vmap(lambda x: straight(x) * 2))(x)
    np.testing.assert_array_equal(rows, np.diag([20.0, 20, 20]))


@te.op
def doubled(x: Any) -> Any:
    return x * 2


@doubled.def_jvp
def _doubled_jvp(inputs: Any, tangents: Any) -> Any:
    return tangents[0] * 7


def test_forward_rules_hold_in_batches() -> None:
    x, dot = te.placeholder((3,), "float64", name="x"), te.placeholder((3,), "float64", name="dot")
    moved = te.jvp(te.vmap(lambda x: doubled(x) + x)(x), x, dot)
    np.testing.assert_array_equal(te.interpret(moved, {x: normal(3), dot: np.ones(3)}), np.full(3, 8.0))


def test_a_function_is_traced_once_for_what_it_depends_on() -> None:
    calls = []

    def loss(p: Any, power: int = 2) -> Any:
        calls.append(power)
        return (p["x"] ** power).sum()

    slope = te.grad(loss)
    slope({"x": normal(3)})
    once = len(calls)
    for _ in range(3):
        slope({"x": normal(3)})
    assert len(calls) == once
    for change in (lambda: slope({"x": normal(4)}), lambda: slope({"x": normal(3, dtype="float32")})):
        before = len(calls)
        change()
        assert len(calls) > before
        before = len(calls)
        change()
        assert len(calls) == before
    slope({"x": normal(3)}, 3)
    assert calls[-1] == 3


@te.jit
def shifted(x: Any) -> Any:
    """x + 1."""
    return x + 1


def slanted(x: Any) -> Any:
    return (x * x).sum()


@pytest.mark.parametrize("make", [lambda f: te.value_and_grad(f), lambda f: te.jit(te.value_and_grad(f))])
def test_scalars_that_steps_of_a_loop_make_are_no_new_programs(make: Any) -> None:
    """NumPy makes scalars, and not arrays of rank 0, of arithmetic on these."""
    traced = []

    def loss(p: Any, x: Any) -> Any:
        traced.append(1)
        return ((p["w"] * x + p["b"]) ** 2).mean()

    step, x = make(loss), normal(5)
    p: dict[str, Any] = {"w": 1.0, "b": 0.5}
    values = []
    for k in range(12):
        value, g = step(p, x)
        p = {name: p[name] - 0.1 * g[name] for name in p}
        values.append(float(value))
        if k == 0:
            first = len(traced)
    assert isinstance(p["w"], np.float64)
    assert len(traced) == first
    assert values == sorted(values, reverse=True)
    assert te.jit(lambda x, s: x * s)(normal(3, dtype="float32"), np.float32(2)).dtype == np.float32
    assert te.jit(lambda x, n: x.reshape(n, 1))(normal(3), np.int64(3)).shape == (3, 1)


def test_they_are_functions_with_names_and_pickles() -> None:
    assert (shifted.__name__, shifted.__doc__) == ("shifted", "x + 1.")
    assert pickle.loads(pickle.dumps(shifted)) is shifted
    again = pickle.loads(pickle.dumps(te.grad(slanted, 0)))
    assert isinstance(again, Transformed)
    same(again(np.array([2.0])), np.array([4.0]))
    assert repr(te.vmap(slanted)) == "<op vmap_slanted(x: Any) -> Any>"


def _keeps_less(x: Any) -> None:
    x *= 0.5


_in_place = te.functionalize(_keeps_less)


def _rate(t: Any) -> Any:
    return t * 0.1


def _distance(params: Any, x: Any) -> Any:
    return ((params - x) ** 2).sum()


def test_captured_arrays_are_constants_wherever_a_tensor_may_stand() -> None:
    x, y = normal(4, 3), np.float64([0, 1, 1, 0])

    def loss(w: Any) -> Any:
        z = te.tanh(x) @ w
        return (
            (te.log1p(te.exp(-z)) + te.cast(y > 0, "float64") * z).mean() + te.sum(te.square(x)) - te.max(x, axis=0)[1]
        )

    def given(x: Any, y: Any) -> Any:
        return te.grad(lambda w: (te.log1p(te.exp(-(te.tanh(x) @ w))) + y * (te.tanh(x) @ w)).mean())

    w = normal(3)
    same(te.grad(loss)(w), given(x, y)(w))
    assert te.gradcheck(loss, w).ok
    with pytest.raises(TypeError, match=r"te.constant\(array\) makes it a tensor"):
        te.exp(x)  # nothing is traced here
    with pytest.raises(TypeError, match="found list"):
        te.jit(lambda a: a * te.exp([1.0, 2.0, 3.0]))(x)


def test_functions_without_a_name_are_refused_in_words() -> None:
    adam = te.ops.optim.Adam(lr=lambda t: 0.1)
    for made in (
        te.jit(lambda x: x * 2),
        te.functionalize(lambda x: x * 2),
        te.reducer(lambda a, b: a + b, 0.0),
        te.index_map(lambda i: i, inverse=lambda i: i),
        te.ops.optim.train_step(lambda p, x: ((p - x) ** 2).sum(), optimizer=te.ops.optim.Adam()),
        te.ops.optim.train_step(_distance, optimizer=adam),
        adam,
        te.ops.optim.SGD(lambda t: 0.1),
    ):
        with pytest.raises(pickle.PicklingError, match=r"made of .*lambda.* names; define that with def at the top"):
            pickle.dumps(made)
        assert copy.deepcopy(made) is made
        if importlib.util.find_spec("cloudpickle"):  # carries functions itself
            cloudpickle = importlib.import_module("cloudpickle")
            assert type(pickle.loads(cloudpickle.dumps(made))) is type(made)


def test_functions_with_a_name_are_made_again() -> None:
    halved = np.ones(2)
    pickle.loads(pickle.dumps(_in_place))(halved)
    assert halved.tolist() == [0.5, 0.5]
    step = pickle.loads(pickle.dumps(te.ops.optim.train_step(_distance, optimizer=te.ops.optim.SGD(0.5))))
    assert step(step.start(np.zeros(2)), np.ones(2))[1].params.tolist() == [1.0, 1.0]
    adam = te.ops.optim.Adam(lr=_rate, betas=(0.5, 0.9))
    assert pickle.loads(pickle.dumps(adam)) == copy.copy(adam) == adam
    largest = te.reducer(np.maximum, 0.0)
    largest(te.placeholder((3,))[te.reduce_axis(3)], axis=te.reduce_axis(3))
    assert pickle.loads(pickle.dumps(largest)).combine is np.maximum


def test_functions_of_functionalize_take_them() -> None:
    def step(w: Any, x: Any) -> Any:
        w -= te.grad(lambda w, x: ((w * x) ** 2).sum())(w, x) * 0.5
        return w

    w, x = np.array([1.0, 2.0]), np.array([0.5, 1.0])
    expected = w - w * x * x
    te.functionalize(step)(w, x)
    np.testing.assert_allclose(w, expected, rtol=1e-15)


ONES = np.ones(3)
BAD: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "no function": (lambda: te.grad(3), TypeError, "te.grad at .*expected a function of tensors, found int"),
    "argnums": (lambda: te.grad(slanted, "x"), TypeError, "argnums must be an integer or a tuple"),
    "argnums twice": (lambda: te.grad(slanted, (0, 0)), ValueError, "names an argument twice"),
    "no such argument": (lambda: te.grad(slanted, 1)(ONES), TypeError, "argnums has 1, but it has 1 pos"),
    "a loss of three": (lambda: te.grad(lambda x: x)(ONES), ValueError, r"of rank 0.*found.*\[3\].*or use te.jacobian"),
    "an integer loss": (lambda: te.grad(lambda x: te.argmax(x))(ONES), TypeError, "expected a float tensor.*int32"),
    "no tensor": (lambda: te.grad(lambda x: 1.0)(ONES), TypeError, r"expected a float tensor.*found float \(1.0\)"),
    "a forgotten aux": (lambda: te.grad(lambda x: (x.sum(), x))(ONES), TypeError, "found tuple.*has_aux=True"),
    "no aux": (lambda: te.grad(slanted, has_aux=True)(ONES), TypeError, r"must return \(result, aux\), found Tensor"),
    "integers": (lambda: te.grad(slanted)(np.arange(3)), TypeError, "argument 0 is int64, expected an array of floats"),
    "an integer": (lambda: te.grad(lambda x: x * x)(3), TypeError, "argument 0 is int64, expected an array of floats"),
    "words": (
        lambda: te.grad(lambda p, x: x.sum())({"kind": "relu"}, ONES), TypeError,
        "expected an array of floats to differentiate by, found none in argument 0",
    ),
    "nothing": (lambda: te.grad(lambda p, x: x.sum())({}, ONES), TypeError, "found none in argument 0"),
    "integers by rows": (lambda: te.jacobian(lambda x: {"a": x > 0})(ONES), TypeError, r"result\['a'\] is bool"),
    "examples": (
        lambda: te.vmap(lambda x, y: x + y)(ONES, np.ones(4)), ValueError, "argument 1 has 4 examples.*0 has 3",
    ),
    "entries": (lambda: te.vmap(slanted, (0, 0))(ONES), ValueError, "in_axes has 2 entries for 1 positional"),
    "few entries": (lambda: te.vmap(lambda x, y: x, (0,))(ONES, ONES), ValueError, "in_axes has 1 entries for 2"),
    "no axis": (lambda: te.vmap(slanted, 1)(ONES), ValueError, "argument 0 has no axis 1, found.*which axis counts"),
    "no examples": (lambda: te.vmap(slanted, None)(ONES), ValueError, "no array has an axis of examples"),
    "a structure": (lambda: te.vmap(slanted, ({"a": 0},))(ONES), ValueError, "do not have the structure of argument 0"),
    "an axis": (lambda: te.vmap(slanted, 0.5), TypeError, "in_axes must be an integer, None or a nest"),
    "a result that differs": (
        lambda: te.vmap(lambda x: x, out_axes=None)(ONES), ValueError, "result differs between examples",
    ),
    "no result axis": (lambda: te.vmap(lambda x: x, out_axes=2)(ONES), ValueError, "result has no axis 2"),
    "nothing returned": (lambda: te.jit(lambda x: None)(ONES), TypeError, "returned no tensor"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_is_said(name: str) -> None:
    call, kind, message = BAD[name]
    with pytest.raises(kind, match=f"(?s){message}"):
        call()


# --- against JAX and torch.func --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_network_as_elsewhere(other: Shape, dtype: str) -> None:
    given = other.given((network(dtype), normal(4, 3, dtype=dtype), normal(4, 2, dtype=dtype)))
    expected = other.transform("value_and_grad")(mlp(other.xp))(*given)
    found = te.value_and_grad(mlp(te))(*given)
    same(found, expected)
    assert {type(leaf) for leaf in leaves(found)} == {type(given[1])}


def test_several_arguments_and_aux_as_elsewhere(other: Shape) -> None:
    given = other.given((normal(3), np.array(0.5), normal(4, 3), np.array([0.0, 1.0, 1.0, 0.0])))

    def with_aux(xp: Any) -> Callable[..., Any]:
        return lambda w, b, x, y: (logistic(xp)(w, b, x, y), {"z": x @ w + b})

    expected = other.transform("value_and_grad")(with_aux(other.xp), argnums=(0, 1), has_aux=True)(*given)
    same(te.value_and_grad(with_aux(te), (0, 1), has_aux=True)(*given), expected)
    same(te.grad(with_aux(te), 2, True)(*given), other.transform("grad")(with_aux(other.xp), 2, True)(*given))


def test_jacobians_and_hessians_as_elsewhere(other: Shape) -> None:
    (x,) = other.given((normal(2, 4),))
    same(te.jacobian(spread(te))(x), other.transform("jacobian")(spread(other.xp))(x))
    same(te.hessian(energy(te))(x), other.transform("hessian")(energy(other.xp))(x))

    def parts(xp: Any) -> Callable[..., Any]:
        return lambda p: {"a": xp.exp(p["u"]) * p["v"].sum(), "b": p["u"].sum()}

    (nest,) = other.given(({"u": normal(2), "v": normal(3)},))
    same(te.jacobian(parts(te))(nest), other.transform("jacobian")(parts(other.xp))(nest))


def test_batches_of_gradients_as_elsewhere(other: Shape) -> None:
    given = other.given((network(), normal(6, 3), normal(2, 6)))
    vmap, grad = other.transform("vmap"), other.transform("grad")
    expected = vmap(grad(mlp(other.xp)), (None, 0, 1))(*given)
    same(te.vmap(te.grad(mlp(te)), (None, 0, 1))(*given), expected)


def test_scalar_functions_to_the_third_derivative_as_elsewhere(other: Shape) -> None:
    own, theirs, (x,) = te.jit(scalar(te)), scalar(other.xp), other.given((np.array(0.8),))
    for _ in range(3):
        same(own(x), theirs(x))
        own, theirs = te.grad(own), other.transform("grad")(theirs)
    same(own(x), theirs(x))


def test_the_frameworks_differentiate_and_batch_them() -> None:
    jax, torch = pytest.importorskip("jax"), pytest.importorskip("torch")
    slope, x = te.grad(lambda x: (x * x * x).sum()), normal(2, 3, dtype="float32")
    found = jax.jit(jax.vmap(slope))(jax.numpy.asarray(x))
    np.testing.assert_allclose(found, 3 * x * x, rtol=1e-5)
    np.testing.assert_allclose(jax.grad(lambda x: slope(x).sum())(jax.numpy.asarray(x)), 6 * x, rtol=1e-5)
    leaf = torch.tensor(x, requires_grad=True)
    slope(leaf).sum().backward()
    np.testing.assert_allclose(leaf.grad, 6 * x, rtol=1e-5)
    assert te.grad(lambda w, x: (w * x).sum())(2.0, torch.tensor(x)).dtype is torch.float32


def test_arrays_of_two_frameworks_are_refused() -> None:
    """NumPy's arrays may stand beside PyTorch's, and all beside tensors; those of another framework may not."""
    jax, torch = pytest.importorskip("jax"), pytest.importorskip("torch")
    both = te.jit(lambda x, y: x + y)
    for array in (ONES, torch.ones(3)):
        np.testing.assert_array_equal(te.evaluate(both(array, te.constant(np.ones(3, "float32")))), np.full(3, 2.0))
    assert both(torch.ones(3), ONES).tolist() == [2.0] * 3
    with pytest.raises(TypeError, match="arrays of one framework"):
        both(torch.ones(3), jax.numpy.ones(3))


def test_kernels_of_functions_keep_to_a_limit_of_memory() -> None:
    n, steps = 32, 200

    def loss(c: te.Tensor, u0: te.Tensor) -> te.Tensor:
        def step(u: te.Tensor, t: te.Axis, i: te.Axis) -> te.Expr:
            near = u.at(t - 1, i - 1, mode="clamp") - u[t - 1, i]
            return te.select(t == 0, u0[i], u[t - 1, i] + c[i] * near * near)

        return (te.scan((steps, n), step)[steps - 1] ** 2).sum()

    c, u0 = np.full(n, 0.1, "f"), np.linspace(0, 1, n, dtype="f")
    expected = te.value_and_grad(loss)(c, u0)
    for limited in (te.jit(te.value_and_grad(loss), memory="20KB"), te.op(te.value_and_grad(loss), memory="20KB")):
        value, slope = limited(c, u0)
        np.testing.assert_allclose(value, expected[0], rtol=1e-6)
        np.testing.assert_allclose(slope, expected[1], rtol=1e-4, atol=1e-6)
        (made,) = limited._definitions.values()
        (traced,) = made.traces.values()
        assert traced.kernel.program.peak_bytes <= 20 << 10
    with pytest.raises(ValueError, match="memory= is a number of bytes or a text such as '512MB', found 'much'"):
        te.jit(loss, memory="much")
    with pytest.raises(ValueError, match="memory= needs extents that are numbers, not symbolic=True"):
        te.op(loss, memory="1MB", symbolic=True)


def test_extents_of_a_function_are_symbols_from_the_first_call_on() -> None:
    added = te.jit(lambda a, b: a + b, symbolic=True)
    for n in (5, 7):
        np.testing.assert_array_equal(added(np.ones(n, "f"), np.ones(n, "f")), np.full(n, 2, "f"))
    (made,) = added._definitions.values()
    assert all(traced.is_symbolic for traced in made.traces.values())


@pytest.mark.parametrize("make", [te.grad, te.value_and_grad, te.jacobian, te.hessian])
def test_derivatives_take_the_options_of_jit(make: Any) -> None:
    def f(x: te.Tensor) -> te.Tensor:
        return (x * x * x).sum()

    x = np.linspace(0, 1, 5)
    found, expected = make(f, memory="1MB", opt="fast")(x), make(f)(x)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other)
    with pytest.raises(TypeError, match=rf"te.{make.__name__} at .*: found argnum=, expected argnums=, .* memory="):
        make(f, argnum=0)


def test_a_traceback_shows_the_frames_of_the_function_once() -> None:
    """It was printed twice, as a cause and as what came of it, with some ten frames of the library in each."""

    def loss(x: te.Tensor) -> te.Tensor:
        return te.compute((3,), lambda i: x[i] + x[i, 0]).sum()

    with pytest.raises(ValueError, match=r"te\.grad of loss\(x\) called on \(x : float64\[3\]\)") as caught:
        te.grad(loss)(np.ones(3))
    text = "".join(traceback.format_exception(caught.value))
    assert text.count("Traceback") == 1
    assert text.count("lambda i: x[i] + x[i, 0]") == 2  # in the function and in its lambda
    library = os.path.dirname(te.__file__)
    assert text.count(f'File "{library}') < 12
    assert caught.value.__context__ is not None  # with all frames


def test_methods_of_dataclasses_follow_their_fields() -> None:
    @dataclasses.dataclass
    class Model:
        w: Any

        @te.jit
        def predict(self, x: te.Tensor) -> te.Tensor:
            return x * self.w

    x = np.arange(4.0)
    for w in (2.0, np.arange(4.0), 3):
        model = Model(w)
        np.testing.assert_array_equal(model.predict(x), x * w)
        model.w = 5.0
        np.testing.assert_array_equal(model.predict(x), x * 5)
