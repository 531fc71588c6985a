"""Random chains of whole-tensor operations give what the same chains give in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import tedsl as te
from tedsl.reference import interpret

Function = Callable[[Any, Any], Any]


def cuts(draw: st.DrawFn, shape: tuple[int, ...]) -> Any:
    """An index of slices, integers and at most one new axis."""
    bound = st.none() | st.integers(-6, 6)
    slices = st.builds(slice, bound, bound, st.sampled_from([None, 1, 2, 3, -1, -2]))
    cut = tuple(draw(slices | st.integers(-n, n - 1)) if n else slice(None) for n in shape)
    alone = all(isinstance(c, int) for c in cut)  # would read one element, which is no tensor
    return (*cut, None) if alone or draw(st.booleans()) else cut


def operation(draw: st.DrawFn, kind: str, shape: tuple[int, ...]) -> Function:
    """One operation as a function of (module, array)."""
    rank = len(shape)
    axis = draw(st.integers(-rank, rank - 1)) if rank else 0
    if kind == "slice" and rank:
        cut = cuts(draw, shape)
        return lambda lib, x: x[cut]
    if kind == "reshape":
        size = int(np.prod(shape))
        first = draw(st.sampled_from([d for d in range(1, size + 1) if size % d == 0] or [1]))
        target = (first, -1) if size else shape[::-1]
        return lambda lib, x: x.reshape(target)
    if kind == "transpose":
        order = tuple(draw(st.permutations(range(rank))))
        return lambda lib, x: x.transpose(order)
    if kind == "reduce" and rank:
        name = draw(st.sampled_from(["sum", "mean", "max", "min", "prod"] if all(shape) else ["sum", "prod"]))
        keep = draw(st.booleans())
        return lambda lib, x: getattr(x, name)(axis=axis, keepdims=keep)
    if kind == "flip" and rank:
        return lambda lib, x: lib.flip(x, axis)
    if kind == "roll" and rank:
        shift = draw(st.integers(-9, 9))
        return lambda lib, x: lib.roll(x, shift, axis)
    if kind == "pad" and rank and all(shape):
        mode = draw(st.sampled_from(["constant", "edge", "reflect", "wrap", "symmetric"]))
        width = [draw(st.tuples(st.integers(0, 3), st.integers(0, 3))) for _ in shape]
        return lambda lib, x: lib.pad(x, width, mode)
    if kind == "join" and rank:
        return lambda lib, x: lib.concatenate([x, x * 2.0], axis)
    if kind == "stack":
        place = draw(st.integers(0, rank))
        return lambda lib, x: lib.stack([x, x - 1.0], place)
    return lambda lib, x: x + x * 0.5


KINDS = ["slice", "reshape", "transpose", "reduce", "flip", "roll", "pad", "join", "stack", "add"]


@st.composite
def chains(draw: st.DrawFn) -> tuple[tuple[int, ...], list[Function]]:
    first = tuple(draw(st.lists(st.integers(0, 4), max_size=3)))
    shape, functions = first, []
    for _ in range(draw(st.integers(1, 5))):
        function = operation(draw, draw(st.sampled_from(KINDS)), shape)
        after = np.shape(function(np, np.zeros(shape)))
        if np.prod(after) > 400 or len(after) > 4:
            continue
        functions.append(function)
        shape = after
    return first, functions


def _check(shape: tuple[int, ...], functions: list[Function]) -> None:
    values = np.random.default_rng(0).integers(-4, 5, shape).astype("float64")
    x = te.placeholder(shape, "float64", name="x")
    tensor, array = x, values
    for function in functions:
        tensor = function(te, tensor)
        array = np.asarray(function(np, array))
    assert tensor.shape == array.shape
    tensor = te.compute((), lambda: tensor) if isinstance(tensor, te.Expr) else tensor
    np.testing.assert_allclose(interpret(tensor, {x: values}), array, rtol=1e-12, atol=1e-12)


@settings(max_examples=150)
@given(chains())
def test_chains(case: Any) -> None:
    _check(*case)


@pytest.mark.long
@given(chains())
def test_many_chains(case: Any) -> None:
    _check(*case)
