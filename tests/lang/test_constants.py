"""Arrays, lists and numbers beside tensors, and te.constant: NumPy's results, and never another array's elements."""

from __future__ import annotations

import operator
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import tedsl as te
from tedsl.lang.structure import structural_key

N = te.var("n")
X, A = te.placeholder((N, 3), name="x"), np.arange(12, dtype="f4").reshape(4, 3)
F = np.array([1.5, -2, 3], "f4")
W = np.arange(6, dtype="f4").reshape(3, 2) - 2


def agrees(made: te.Tensor, expected: Any) -> None:
    """Compiled and in the reference: the values of NumPy in its dtype."""
    for found in (te.evaluate(made, {X: A}), te.interpret(made, {X: A})):
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize(
    "array", [F, F.astype("f8"), F.astype("i4"), np.int8([1, 2, 3]), W.T[:1], A[::-1], F > 0, F[::-1]]
)
@pytest.mark.parametrize("f", [operator.add, operator.sub, operator.mul, operator.ge, np.maximum])
def test_arrays_beside_a_tensor(f: Callable[..., Any], array: Any) -> None:
    if f is operator.sub and array.dtype == bool:
        array = array.astype("i2")
    x = te.placeholder((4, 3), name="x")
    for made, expected in ((f(x, array), f(A, array)), (f(array, x), f(array, A))):
        for found in (te.evaluate(made, {x: A}), te.interpret(made, {x: A})):
            assert found.dtype == expected.dtype
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (lambda: X @ W, A @ W),
        (lambda: F[None] @ X.T, F[None] @ A.T),
        (lambda: te.where(X > [1, 5, 9], X, F), np.where(A > [1, 5, 9], A, F)),
        (lambda: te.where(np.array([True, False, True]), X, 0), np.where([True, False, True], A, np.float32(0))),
        (lambda: te.concatenate([X, A]), np.concatenate([A, A])),
        (lambda: te.stack([X[0], F]), np.stack([A[0], F])),
        (lambda: te.einsum("ij,j->i", X, F), A @ F),
        (lambda: te.minimum(F, X).sum(1), np.minimum(F, A).sum(1)),
        (lambda: X[0] + te.cumsum(F), A[0] + np.cumsum(F)),
    ],
)  # fmt: skip
def test_arrays_in_functions_of_whole_tensors(made: Callable[[], te.Tensor], expected: Any) -> None:
    agrees(made(), expected)


def test_numbers_in_lists_are_weak() -> None:
    agrees(operator.add(X, [1, 2, 3]), A + np.float32([1, 2, 3]))
    agrees([0.1, 0.2, 0.3] * X, np.float32([0.1, 0.2, 0.3]) * A)
    agrees(te.where(X > 1, [1, 2, 3], X), np.where(A > 1, np.float32([1, 2, 3]), A))
    agrees(operator.add(te.cast(X, "int8"), [1, 2, 3]), A.astype("i1") + np.int8([1, 2, 3]))
    agrees(te.cast(X, "int32") * [0.5, 1, 2], A.astype("i4") * np.float64([0.5, 1, 2]))
    assert te.constant([1, 2]).dtype == "int32"
    assert te.constant([[1.5], [2]]).dtype == "float32"
    assert te.constant([True]).dtype == "bool"
    assert te.constant([np.float64(1), 2]).dtype == "float64"
    assert (te.constant([]).shape, te.constant(3).shape, te.constant(np.float16(3)).dtype) == ((0,), (), "float16")
    with pytest.raises(ValueError, match="300 is out of range for int8"):
        operator.add(te.cast(X, "int8"), [1, 2, 300])


def test_constants_inside_of_functions_of_axes() -> None:
    c, table = te.constant(F, name="c"), te.constant([2, 0, 1])
    made = te.compute((N, 3), lambda i, j: X[i, table[j]] * c[j] + c[i % 3])
    agrees(made, A[:, [2, 0, 1]] * F + F[np.arange(4) % 3][:, None])
    agrees(te.compute(N, lambda i: te.sum(lambda k: X[i, k] * c[k])), A @ F)
    assert "c[j]" in str(made)
    with pytest.raises(IndexError):
        te.build(X, te.compute((N, 4), lambda i, j: X[i, 0] + c[j]))


@settings(max_examples=10)
@given(st.lists(st.integers(-2, 4), min_size=1, max_size=5))
def test_indices_in_a_constant_are_checked_as_those_of_an_input(numbers: list[int]) -> None:
    at = te.constant(np.array(numbers))
    made = te.compute(len(numbers), lambda i: X[0, at[i]])
    for run in (te.evaluate, te.interpret):
        if all(0 <= n < 3 for n in numbers):
            np.testing.assert_array_equal(run(made, {X: A}), A[0, numbers])
        else:
            with pytest.raises(IndexError):
                run(made, {X: A})


@pytest.mark.parametrize(
    "f",
    [
        lambda i: F[i] * X[i, 0],
        lambda i: W[0, i],
        lambda i: [1, 2, 3][i] * X[i, 0],
        lambda i: X[i, 0] + F,
        lambda i: X[i, 0] * [1, 2, 3],
    ],
)
def test_an_array_among_axes_is_told_of_te_constant(f: Any) -> None:
    with pytest.raises(TypeError, match=r"te\.constant\([aFW]"):
        te.compute(3, f)


@pytest.mark.parametrize(
    ("value", "error", "told"),
    [
        (np.array(["a"]), TypeError, "te.constant at .*dtype <U1 is not supported"),
        ([[1], [2, 3]], ValueError, "te.constant at .*expected an array, found list"),
        (np.ma.array([1], mask=[1]), TypeError, "a mask would be lost"),
        (X, TypeError, "the tensor x : float32.*stands for itself"),
        ([2**40], ValueError, "out of range for int32"),
    ],
)
def test_what_no_constant_can_be(value: Any, error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        te.constant(value)


def test_a_constant_is_what_the_array_was() -> None:
    array = F.copy()
    made = X * array
    kern = te.build(X, made)
    array[:] = 7
    agrees(made, A * F)
    np.testing.assert_array_equal(kern(A), A * F)
    kept = made.op.inputs[1].op.array  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="read-only"):
        kept[0] = 1
    passed = te.evaluate([te.constant(F), X[0]], {X: A})[0]
    passed[:] = 0  # a result is the caller's own
    np.testing.assert_array_equal(kept, F)


@pytest.mark.parametrize("cache", ["off", "on"])
def test_programs_that_differ_in_a_constant_are_told_apart(
    cache: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if cache == "on":
        monkeypatch.delenv("TEDSL_CACHE", raising=False)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    arrays = [F, F + 1, F, np.zeros(3, "f4"), -np.zeros(3, "f4")]
    kernels = [te.build(X, te.tanh(X) / a) for a in arrays]
    with np.errstate(all="ignore"):
        for a, kern in zip(arrays, kernels, strict=True):
            for _ in range(2):  # the second is a prepared call
                np.testing.assert_allclose(kern(A), np.tanh(A) / a, rtol=1e-6)
    keys = [structural_key(X + a, [X]) for a in arrays]
    assert keys[0] == keys[2]
    assert len({*keys}) == 4
    assert kernels[0].core is kernels[1].core  # the code does not depend on the elements


def test_kernels_take_what_they_took_without_constants() -> None:
    kern = te.build(X, X * F + W[:, 0], name="scaled")
    assert [t.name for t in kern.inputs] == ["x"]
    assert "constant" not in repr(kern)
    out = np.zeros((4, 3), "f4")
    assert kern(x=A, out=out) is out
    np.testing.assert_array_equal(out, A * F + W[:, 0])
    kern(A, out=out, mode="add")
    np.testing.assert_array_equal(out, 2 * (A * F + W[:, 0]))
    with pytest.raises(TypeError, match=r"kernel 'scaled': expected 1 array \(x\), found 2"):
        kern(A, F)
    made = X * F
    onto = te.build(X, made, alias={made: X})
    given_ = A.copy()
    assert onto(given_) is given_
    np.testing.assert_array_equal(given_, A * F)
    with te.checked():
        np.testing.assert_array_equal(kern(A), A * F + W[:, 0])


@pytest.mark.usefixtures("cut_everywhere")
def test_programs_of_many_kernels() -> None:
    """Layers with other weights run one kernel, each on its own."""
    draw = np.random.default_rng(0)
    weights = [draw.standard_normal((64, 64)).astype("f4") / 8 for _ in range(4)]
    x, given_ = te.placeholder((64, 64), name="x"), draw.standard_normal((64, 64)).astype("f4")
    y, expected = x, given_
    for weight in weights:
        y, expected = te.tanh(y @ weight), np.tanh(expected @ weight)
    kern = te.build(x, y)
    assert len(kern.program.calls) > len({call.kernel for call in kern.program.calls}) > 1
    np.testing.assert_allclose(kern(given_), expected, rtol=1e-4, atol=1e-6)


def test_gradients_are_of_placeholders_alone() -> None:
    x = te.placeholder((4, 3), name="x")
    loss = (te.tanh(x * F) @ W).sum()
    grads = te.differentiate(loss)
    assert [t.name for t in grads.inputs] == ["x"]
    slopes = (1 - np.tanh(A * F) ** 2) * F * W.sum(1)
    np.testing.assert_allclose(te.evaluate(grads[0], {x: A}), slopes, rtol=1e-5, atol=1e-6)
    wide = te.placeholder((4, 3), "float64", name="wide")
    assert te.gradcheck((te.tanh(wide * F) @ W).sum(), [wide]).ok
    tangent = te.placeholder((4, 3), name="t")
    found = te.evaluate(te.jvp(x * F, [x], [tangent]), {x: A, tangent: A + 1})
    np.testing.assert_allclose(found, (A + 1) * F)


@te.op
def layer(x: Any) -> Any:
    return te.tanh(x * F) @ W


def test_operators_of_every_framework() -> None:
    torch, jax = pytest.importorskip("torch"), pytest.importorskip("jax")
    expected, small = np.tanh(A * F) @ W, A / 9
    np.testing.assert_allclose(layer(A), expected, rtol=1e-5, atol=1e-6)
    ours, theirs = (torch.tensor(small, requires_grad=True) for _ in range(2))
    layer(ours).sum().backward()
    (torch.tanh(theirs * torch.tensor(F)) @ torch.tensor(W)).sum().backward()
    np.testing.assert_allclose(ours.grad, theirs.grad, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(jax.jit(layer)(A), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(jax.vmap(layer)(np.stack([A, small]))[0], expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(jax.jit(jax.grad(lambda v: layer(v).sum()))(small), theirs.grad, rtol=1e-4, atol=1e-5)


def test_operators_over_blocks() -> None:
    dask = pytest.importorskip("dask.array")
    np.testing.assert_allclose(
        layer(dask.from_array(A, chunks=(2, 2))).compute(), np.tanh(A * F) @ W, rtol=1e-5, atol=1e-6
    )


def test_functions_that_write_in_place() -> None:
    c = te.constant(F)

    def scaled(x: Any) -> None:
        x *= c
        x += F

    given_ = A.copy()
    te.functionalize(scaled)(given_)
    np.testing.assert_array_equal(given_, A * F + F)


def test_exported_libraries_hold_their_constants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = te.placeholder((4, 3), name="x")
    kern = te.build(x, [te.tanh(x * F) @ W, te.constant(W)], name="constants_inside")
    files = kern.export(tmp_path)
    if not any(file.suffix == ".py" for file in files):
        pytest.skip("no linker")
    monkeypatch.syspath_prepend(tmp_path)
    import constants_inside  # type: ignore[import-not-found]

    assert [name for name, _, _ in constants_inside.INPUTS] == ["x"]
    for found, expected in zip(constants_inside.constants_inside(A), kern(A), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_schedules_and_tuning() -> None:
    x = te.placeholder((64, 3), name="x")
    made, given_ = te.exp(x * F), np.ones((64, 3), "f4")
    schedule = te.Schedule([made])
    schedule[made].parallel(made.op.axes[0])
    np.testing.assert_allclose(te.build(x, made, schedule=schedule)(given_), np.exp(given_ * F), rtol=1e-6)
    index = te.constant(np.full(64, 63))
    assert te.tune([te.compute(64, lambda i: x[index[i], 0])], budget=0.1) is not None
