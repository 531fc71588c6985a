"""Operators on JAX arrays beyond derivatives: how they are called, rules of the author, failures, bad input."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import tedsl as te
from tests.bridges.operators import picked, softmax
from tests.processes import run_script

jax = pytest.importorskip("jax")
jnp = jax.numpy


@te.op
def at(x: te.Tensor, index: te.Tensor) -> te.Tensor:
    return te.compute(index.shape, lambda i: x[index[i]])


@te.op
def straight(x: te.Tensor) -> te.Tensor:
    """Rounds; its reverse derivative is 1, its forward derivative is 0."""
    return te.compute(x.shape, lambda i: te.round(x[i]))


straight.def_vjp(lambda y, inputs, head: [head])


@te.op
def sine(x: te.Tensor) -> te.Tensor:
    return te.extern(np.sin, x.shape, x.dtype, [x])


sine.def_jvp(lambda inputs, tangents: te.cos(inputs[0]) * tangents[0])


def lowered(function: Any, *arrays: Any) -> str:
    return str(jax.jit(function).lower(*arrays).as_text())


def test_a_kernel_is_a_custom_call_of_the_typed_ffi() -> None:
    x = jnp.asarray(np.random.default_rng(0).standard_normal((2, 3)), "float32")
    text = lowered(softmax, x)
    assert "custom_call @tedsl_softmax" in text
    assert "callback" not in text
    np.testing.assert_allclose(jax.jit(softmax)(x), jax.nn.softmax(x, 1), rtol=1e-5)


@te.op
def layered(x: te.Tensor, w: te.Tensor, places: te.Tensor) -> te.Tensor:
    h = te.compute(x.shape, lambda i, j: (x @ w)[places[i], j])
    for _ in range(3):
        h = te.maximum(h @ w, 0)
    return h + w


@pytest.mark.usefixtures("cut_everywhere")
def test_a_program_that_is_cut_is_a_custom_call_too() -> None:
    rng = np.random.default_rng(0)
    x, w = (jnp.asarray(rng.standard_normal((8, 8)) / 3, "float32") for _ in range(2))
    good, bad = jnp.arange(8)[::-1], jnp.full(8, 9)
    called, both = jax.jit(layered), jax.jit(jax.grad(lambda *a: layered(*a).sum(), argnums=(0, 1)))

    def plain(x: Any, w: Any) -> Any:
        h = (x @ w)[good]
        for _ in range(3):
            h = jnp.maximum(h @ w, 0)
        return h + w

    for text in (called.lower(x, w, good).as_text(), both.lower(x, w, good).as_text()):
        assert "custom_call @tedsl_" in text
        assert "callback" not in text
    for a, b in ((x, w), (w, x), (x, x)):
        np.testing.assert_allclose(called(a, b, good), plain(a, b), rtol=1e-4, atol=1e-6)
        for one, other in zip(both(a, b, good), jax.grad(lambda a, b: plain(a, b).sum(), argnums=(0, 1))(a, b)):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    for _ in range(2):
        with pytest.raises(Exception, match="out of bounds"):
            called(x, w, bad).block_until_ready()
    np.testing.assert_allclose(called(x, w, good), plain(x, w), rtol=1e-4, atol=1e-6)
    with ThreadPoolExecutor(4) as pool:
        given = [(x * k, w) for k in range(8)]
        for found, (a, b) in zip(pool.map(lambda pair: np.asarray(called(*pair, good)), given * 4), given * 4):
            np.testing.assert_allclose(found, plain(a, b), rtol=1e-4, atol=1e-5)


def test_a_python_function_goes_through_a_callback_with_the_rules_of_its_author() -> None:
    x = jnp.linspace(0, 1, 4, dtype="float32")
    assert "callback" in lowered(sine, x)
    np.testing.assert_allclose(jax.jit(sine)(x), jnp.sin(x), rtol=1e-6)
    np.testing.assert_allclose(jax.grad(lambda x: sine(x).sum())(x), jnp.cos(x), rtol=1e-6)
    np.testing.assert_allclose(jax.jvp(sine, (x,), (x,))[1], jnp.cos(x) * x, rtol=1e-6)


def test_def_vjp_alone_leaves_the_forward_derivative() -> None:
    x = jnp.asarray([0.3, 1.6], "float32")
    np.testing.assert_array_equal(jax.grad(lambda x: straight(x).sum())(x), [1, 1])
    np.testing.assert_array_equal(jax.vmap(jax.grad(lambda x: straight(x).sum()))(x[None]), [[1, 1]])
    np.testing.assert_array_equal(jax.jvp(straight, (x,), (x,))[1], [0, 0])


@pytest.mark.parametrize("wide_types", [False, True])
def test_results_have_the_types_that_jax_has(wide_types: bool) -> None:
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", wide_types)
    try:
        check_types()
    finally:
        jax.config.update("jax_enable_x64", before)


def check_types() -> None:
    x = jnp.asarray([1.0, 2.0, 0.5], "float32")
    wide = te.op(lambda x: te.cast(x, "float64") * 2)
    expected = "float64" if jax.config.jax_enable_x64 else "float32"
    assert wide(x).dtype == jax.jit(wide)(x).dtype == expected
    gradient = jax.grad(lambda x: (wide(x) ** 2).sum())
    for g in (gradient(x), jax.jit(gradient)(x), jax.jit(jax.vmap(gradient))(x[:, None])[:, 0]):
        assert g.dtype == "float32"
        np.testing.assert_allclose(g, 8 * x, rtol=1e-6)
    for dtype in ("bfloat16", "float16", "int32", "uint8"):
        y = te.op(lambda x: x + x)(x.astype(dtype))
        assert y.dtype == dtype
        np.testing.assert_array_equal(y.astype("float32"), (x.astype(dtype) * 2).astype("float32"))
    chosen, _, largest = picked(x, jnp.asarray([0, 2]))
    assert (chosen.dtype, largest.dtype, int(largest)) == ("float32", "int32", 1)


@pytest.mark.parametrize("make", [te.op, te.jit])
def test_results_without_a_derivative_are_as_jax_has_them(make: Any) -> None:
    order, w = make(lambda w: te.argsort(w)), jnp.asarray([3.0, 1.0, 2.0])

    def loss(w: Any) -> Any:
        return (w * w * order(w)).sum()

    expected = [6.0, 4.0, 0.0]
    for slope in (jax.grad(loss), jax.jit(jax.grad(loss)), jax.grad(jax.checkpoint(loss))):
        assert slope(w).tolist() == expected
    (_, aux), found = jax.value_and_grad(lambda w: (loss(w), order(w)), has_aux=True)(w)
    assert (aux.tolist(), found.tolist()) == ([1, 2, 0], expected)
    assert jax.jvp(order, (w,), (w,))[1].dtype == jax.dtypes.float0
    assert jax.hessian(loss)(w).tolist() == [[2, 0, 0], [0, 4, 0], [0, 0, 0]]
    ones = jnp.ones((2, 3))
    assert jax.vmap(jax.grad(loss))(ones).tolist() == jax.grad(lambda w: jax.vmap(loss)(w).sum())(ones).tolist()


@pytest.mark.parametrize("wide_types", [False, True])
def test_floats_of_python_that_jax_traces_are_weak(wide_types: bool) -> None:
    square, x = te.jit(lambda s: s * s), jnp.ones(3, "float32")
    nested = te.jit(lambda p, n, x: ((p["a"][0] * x + p["b"]) * n).sum())
    plain = nested.function.__wrapped__
    with jax.enable_x64(wide_types):
        assert jax.jvp(square, (0.5,), (1.0,)) == (0.25, 1.0)
        assert jax.value_and_grad(square)(0.5) == (0.25, 1.0)
        assert jax.hessian(square)(0.5) == jax.vjp(square, 1.0)[1](1.0)[0] == jax.linearize(square, 1.0)[1](1.0) == 2
        assert jax.lax.fori_loop(0, 2, lambda i, c: square(c), 0.5) == 1 / 16
        given = {"a": (0.5, 1.5), "b": 2.0}, 3, x
        assert str(jax.value_and_grad(nested)(*given)) == str(jax.value_and_grad(plain)(*given))
        for dtype in ("float16", "bfloat16", "float32", "float64", "int32"):
            y = jnp.ones(3, jax.dtypes.canonicalize_dtype(dtype))
            scaled = jax.jit(lambda s, y=y: te.jit(lambda s, y: s * y)(s, y))(0.5)
            assert scaled.dtype == jax.jit(lambda s, y=y: s * y)(0.5).dtype


def test_empty_arrays_and_scans() -> None:
    assert jax.jit(softmax)(jnp.zeros((0, 3), "float32")).shape == (0, 3)
    x = jnp.eye(2, dtype="float32")
    final, _ = jax.jit(lambda x: jax.lax.scan(lambda c, _: (softmax(c), None), x, None, length=2))(x)
    np.testing.assert_allclose(final, jax.nn.softmax(jax.nn.softmax(x, 1), 1), rtol=1e-6)


def test_a_kernel_that_is_traced_is_refused_in_words() -> None:
    x = te.placeholder((4,), name="x")
    kernel = te.build([x], x * 2)
    for transform in (jax.jit, jax.vmap, lambda f: jax.grad(lambda a: f(a).sum())):
        with pytest.raises(TypeError, match=r"kernel 'mul': input 'x' is traced by JAX.*with @te.op"):
            transform(kernel)(jnp.ones((4, 4) if transform is jax.vmap else 4))


def test_an_index_out_of_bounds_is_said() -> None:
    x, wrong = jnp.arange(3.0), jnp.asarray([0, 7])
    with pytest.raises(IndexError, match="x"):
        at(x, wrong)
    for _ in range(2):
        with pytest.raises(Exception, match="out of bounds"):
            jax.jit(at)(x, wrong).block_until_ready()
    np.testing.assert_array_equal(jax.jit(at)(x, wrong % 3), [0, 1])


def test_arrays_of_numpy_stand_beside_those_of_jax() -> None:
    x, index = jnp.asarray([1.0, 2.0, 0.5], "float32"), np.array([2, 0])
    for found in (at(x, index), jax.jit(lambda x: at(x, index))(x)):
        np.testing.assert_array_equal(found, [0.5, 1])
    np.testing.assert_array_equal(jax.grad(lambda x: at(x, index).sum())(x), [1, 0, 1])
    assert isinstance(at(np.asarray(x), jnp.asarray(index)), jax.Array)


def test_an_exported_program_calls_kernels_by_names_that_other_processes_give_them() -> None:
    """JAX wants to be told of calls that it does not know; whoever loads the program needs kernels of these names."""
    export = jax.export
    x, index = jnp.arange(5.0), jnp.asarray([3, 1], "int32")
    loss = jax.jit(lambda x, index: (at(x, index) ** 2).sum())
    gradient = jax.jit(jax.grad(loss))
    names = re.findall(r"@(tedsl_\w+)", gradient.lower(x, index).as_text())
    with pytest.raises(ValueError, match="compatibility guarantees"):
        export.export(gradient)(x, index)
    allowed = [export.DisabledSafetyCheck.custom_call(name) for name in names]
    exported = export.export(gradient, disabled_checks=allowed)(x, index)
    np.testing.assert_array_equal(exported.call(x, index), [0, 2, 0, 6, 0])
    elsewhere = run_script(
        """
        import jax
        from tests.bridges.test_jax import at

        shapes = jax.ShapeDtypeStruct((5,), "float32"), jax.ShapeDtypeStruct((2,), "int32")
        print(jax.jit(jax.grad(lambda x, index: (at(x, index) ** 2).sum())).lower(*shapes).as_text())
        """
    )
    assert re.findall(r"@(tedsl_\w+)", elsewhere) == names


@pytest.mark.parametrize("batched", [False, True])
def test_sizes_of_an_exported_program_that_are_symbols_are_refused_in_words(batched: bool) -> None:
    h, w = jax.export.symbolic_shape("h, w")
    of_two = jax.ShapeDtypeStruct((h, 3) if batched else (h, w), "float32")
    called = jax.jit(jax.vmap(lambda row: te.op(te.tanh)(row)) if batched else softmax)
    told = rf"expected shapes of numbers, found \(h, {'3' if batched else 'w'}\): .*symbolic_shape; export the program"
    with pytest.raises(TypeError, match=told):
        jax.export.export(called)(of_two)


BAD: dict[str, tuple[Any, type[Exception], str]] = {
    "out": (lambda: softmax(jnp.eye(2), out=np.eye(2)), TypeError, "JAX arrays cannot be written"),
    "complex": (lambda: softmax(jnp.eye(2, dtype="complex64")), TypeError, "'x': dtype complex64 is not supported"),
    "effects": (
        lambda: jax.jit(te.op(lambda x: te.extern(np.sort, x.shape, x.dtype, [x], pure=False)))(jnp.ones(2)),
        TypeError, "has effects",
    ),
    "wrong rank": (
        lambda: jax.jit(softmax)(jnp.ones(2, "float32")), ValueError, r"op softmax\(x.*called on \(x : float32\[2\]\)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_with_a_message(name: str) -> None:
    call, kind, message = BAD[name]
    with pytest.raises(kind, match=message):
        call()
