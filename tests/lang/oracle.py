"""NumPy as the oracle: the same function on tensors (through the reference) and on arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

import tedsl as te
from tedsl.reference import interpret


def arrays(*shapes: tuple[int, ...], dtype: str = "float64", seed: int = 0) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(seed)
    return [rng.integers(-9, 9, shape).astype(dtype) for shape in shapes]


def feed(operands: Iterable[np.ndarray[Any, Any]], symbolic: bool = False) -> list[te.Tensor]:
    """A placeholder per array; with `symbolic`, every distinct extent above 1 is a variable."""
    variables: dict[int, Any] = {}
    tensors = []
    for number, array in enumerate(operands):
        shape: tuple[Any, ...] = array.shape
        if symbolic:
            shape = tuple(n if n == 1 else variables.setdefault(n, te.var(f"n{n}")) for n in shape)
        tensors.append(te.placeholder(shape, array.dtype, name=f"x{number}"))
    return tensors


def run(function: Callable[..., Any], *operands: np.ndarray[Any, Any], symbolic: bool = False) -> Any:
    tensors = feed(operands, symbolic)
    result = function(*tensors)
    outputs = list(result) if isinstance(result, (tuple, list)) else result
    return interpret(outputs, dict(zip(tensors, operands, strict=True)))


def same(
    function: Callable[..., Any],
    oracle: Callable[..., Any],
    *operands: np.ndarray[Any, Any],
    symbolic: bool = False,
    dtype: bool = True,
) -> None:
    """Both give the same shape, dtype (unless told otherwise) and elements."""
    found, expected = run(function, *operands, symbolic=symbolic), oracle(*operands)
    several = isinstance(expected, (tuple, list))
    for f, e in zip(found if several else [found], expected if several else [expected], strict=True):
        e = np.asarray(e)
        assert f.shape == e.shape
        if dtype:
            assert f.dtype == e.dtype
        np.testing.assert_array_equal(f, e)
