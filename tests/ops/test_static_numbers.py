"""Numbers and lists of numbers given to operators: what dtype they take, and what is said of those that are static."""

from __future__ import annotations

import re
import warnings
from typing import Any

import numpy as np
import pytest

import tedsl as te

X = np.ones(3, "float32")


def weighted(w: Any, x: Any) -> Any:
    return (x * w).sum()


class TestDtypes:
    """A list with a Python float in it is weak, as the float is: of the dtype of the float arrays beside it."""

    @pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
    @pytest.mark.parametrize("w", [[1.0, 2.0, 3.0], [1, 2, 3.5], 2.0], ids=str)
    def test_beside_floats(self, dtype: str, w: Any) -> None:
        x = X.astype(dtype)
        for found in (
            te.grad(weighted)(w, x), te.grad(weighted, 1)(w, x), te.value_and_grad(weighted)(w, x)[0],
            te.jit(te.grad(weighted))(w, x), te.jit(lambda w, x: te.grad(weighted)(w, x))(w, x), te.jit(weighted)(w, x),
        ):  # fmt: skip
            assert found.dtype == dtype

    def test_alone_they_are_float64(self) -> None:
        assert te.grad(lambda x: (x * x).sum())([1.0, 2.0]).dtype == "float64"
        assert te.grad(lambda x: x * x)(2.0).dtype == "float64"

    def test_beside_integers_they_are_float64(self) -> None:
        assert te.grad(weighted)([1.0, 2.0, 3.0], np.arange(3)).dtype == "float64"

    def test_of_rows(self) -> None:
        found = te.grad(lambda w, x: ((w @ x) ** 2).sum())([[1.0, 2, 3], [4.0, 5, 6]], X)
        assert (found.dtype, found.shape) == ("float32", (2, 3))

    def test_scalars_of_numpy_keep_their_dtype(self) -> None:
        assert te.grad(weighted)([np.float64(1), np.float64(2), np.float64(3)], X).dtype == "float64"
        assert te.grad(lambda x: (x * x).sum())([np.float32(1), np.float32(2)]).dtype == "float32"

    def test_tensors_of_pytorch(self) -> None:
        torch = pytest.importorskip("torch")
        assert te.grad(weighted)([1.0, 2.0, 3.0], torch.ones(3)).dtype is torch.float32


def notes_of(call: Any, kind: type[Exception] = Exception) -> str:
    with pytest.raises(kind) as caught:
        call()
    return "\n".join([str(caught.value), *getattr(caught.value, "__notes__", ())])


@te.op
def looked_up(image: Any, table: Any, size: Any = (2, 2), steps: Any = (1, 1)) -> Any:
    if steps == (0, 0):
        raise ValueError("steps are at least 1")
    return te.compute(image.shape, lambda i, j: image[i, j] * table[0])


class TestListsForArrays:
    """Whatever a function raises, a list of numbers that stands where an array may belong is named."""

    said = "argument 'image' is a list and so a static value; give np.asarray(image)"

    def test_it_is_said(self) -> None:
        found = notes_of(lambda: looked_up([[1.0, 2.0], [3.0, 4.0]], X), AttributeError)
        assert "has no attribute 'shape'" in found
        assert self.said in found
        assert "argument 'steps'" not in found
        assert "argument 'size'" not in found

    def test_in_an_expression(self) -> None:
        assert self.said in notes_of(lambda: looked_up([[1.0], [3.0]], te.placeholder((3,), name="t")), AttributeError)

    def test_of_tuples_and_other_errors(self) -> None:
        op = te.op(lambda rows, x: te.compute((2,), lambda i: x[i] * rows[i]))
        assert "argument 'rows' is a tuple and so a static value; give np.asarray(rows)" in notes_of(
            lambda: op(((1.0, 2.0), (3.0, 4.0)), X)
        )

    def test_the_message_itself_says_it_where_python_says_no_array(self) -> None:
        with pytest.raises(AttributeError, match=rf"no attribute 'shape'; {re.escape(self.said)}$"):
            looked_up([[1.0, 2.0], [3.0, 4.0]], X)
        blurred = te.op(lambda x, sigma: te.compute(x.shape, lambda i: x[i] * sigma[()]))
        with pytest.raises(TypeError, match=r"'sigma' is a float and so .* np.asarray\(sigma\), an array of rank 0$"):
            blurred(X, 0.5)
        with pytest.raises(AttributeError, match=r"no attribute 'shape'$"):
            te.op(lambda x, sigma: [1.0].shape)(X, 0.5)  # type: ignore[attr-defined]

    def test_only_where_there_is_one(self) -> None:
        found = notes_of(lambda: looked_up(np.ones((2, 2), "float32"), X, steps=(0, 0)), ValueError)
        assert "steps are at least 1" in found
        assert "static" not in found

    def test_of_transformed_functions(self) -> None:
        found = notes_of(lambda: te.jit(lambda image, x: image.sum() + x)([1, 2], X), AttributeError)
        assert self.said in found


class TestManyValues:
    """A number is compiled in: after eight programs that differ in nothing else, that is said once."""

    def said(self, call: Any, values: Any) -> list[str]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for value in values:
                call(value)
        assert all(w.filename == __file__ and w.category is UserWarning for w in caught)
        return [str(w.message) for w in caught]

    def test_it_is_said_once(self) -> None:
        def step(x: Any, lr: Any, power: int = 2) -> Any:
            return x**power * lr

        f = te.jit(step)
        assert not self.said(lambda lr: f(X, lr), [0.1 * k for k in range(7)])
        assert self.said(lambda lr: f(X, lr), [0.1 * k for k in range(7, 20)]) == [
            "step was compiled 8 times for different values of 'lr'; pass np.asarray(lr, 'float32') to have it as an "
            "input, unless an extent or a branch depends on it"
        ]
        np.testing.assert_allclose(f(X, np.asarray(0.5, "float32")), X * 0.5)
        assert f(X, np.asarray(0.5, "float32")).dtype == "float32"

    def test_of_gradients_batches_and_operators(self) -> None:
        def loss(x: Any, lr: Any) -> Any:
            return (x * lr).sum()

        made = [te.grad(loss), te.value_and_grad(loss), te.vmap(lambda x, lr: x * lr, (0, None)), te.op(loss)]
        for f in made:
            (one,) = self.said(lambda lr, f=f: f(X, lr), [0.1 * k for k in range(8)])
            assert "different values of 'lr'" in one

    def test_in_a_nest(self) -> None:
        f = te.jit(lambda x, options: x * options["lr"])
        (one,) = self.said(lambda lr: f(X, {"lr": lr, "name": "a"}), [0.1 * k for k in range(9)])
        assert "options['lr']; pass np.asarray(options['lr'], 'float32')" in one.replace('"', "")

    def test_beside_integers_it_has_the_dtype_of_the_result(self) -> None:
        for dtype in ("float32", "float64"):
            f = te.op(lambda x, sigma, dtype=dtype: te.cast(x, dtype) * sigma)
            pixels = np.arange(3, dtype="uint8")
            (one,) = self.said(lambda s, f=f, x=pixels: f(x, s), [0.1 * k for k in range(8)])
            assert f"pass np.asarray(sigma, '{dtype}')" in one
            assert f(pixels, 0.5).dtype == f(pixels, np.asarray(0.5, dtype)).dtype == dtype

    def test_whole_numbers_are_often_extents(self) -> None:
        f = te.jit(lambda x, n: x * n)
        assert not self.said(lambda n: f(X, n), range(12))
        (one,) = self.said(lambda n: f(X, n), range(12, 40))
        assert "compiled 32 times for different values of 'n'; pass np.asarray(n, 'int32')" in one

    def test_other_differences_do_not_count(self) -> None:
        f = te.jit(lambda x, lr, mode, on: x * lr)
        assert not self.said(lambda k: f(X, 0.1 * (k % 4), "abcdefghijkl"[k], k % 2 == 0), range(12))
        assert not self.said(lambda k: f(np.ones(k + 1, "float32"), 0.5, "a", True), range(12))

    def test_of_tensors_nothing_is_compiled(self) -> None:
        f, x = te.jit(lambda x, lr: x * lr), te.placeholder((3,), name="x")
        assert not self.said(lambda lr: f(x, lr), [0.1 * k for k in range(12)])

    def test_of_dask_arrays(self) -> None:
        x = pytest.importorskip("dask.array").ones(4, chunks=2)
        f = te.op(lambda x, lr: x * lr, name="f")
        assert not self.said(lambda lr: f(x, lr), [0.5] * 12)

    def test_in_the_words_of_pytorch(self) -> None:
        torch = pytest.importorskip("torch")
        f = te.jit(lambda x, lr: x * lr)
        (one,) = self.said(lambda lr: f(torch.ones(3), lr), [0.1 * k for k in range(9)])
        assert "pass torch.tensor(lr, dtype=torch.float32)" in one
        assert f(torch.ones(3), torch.tensor(0.5, dtype=torch.float32)).dtype is torch.float32
