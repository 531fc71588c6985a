"""`te.evaluate` converts arrays as a kernel does, where `casting=` allows it."""

from __future__ import annotations

import numpy as np
import pytest

import tedsl as te

A = np.array([0.1, 2.0, 3.0])


def test_a_conversion_that_loses_is_asked_for() -> None:
    x = te.placeholder((3,), name="x")
    with pytest.raises(TypeError, match=r"expected dtype float32, found float64; .* casting='same_kind'"):
        te.evaluate(x * 2, {x: A})
    np.testing.assert_array_equal(te.evaluate(x * 2, {x: A}, casting="same_kind"), A.astype("float32") * 2)
    i = te.placeholder((3,), "int32", name="i")
    with pytest.raises(TypeError, match="casting='unsafe'"):
        te.evaluate(i * 2, {i: A}, casting="same_kind")
    np.testing.assert_array_equal(te.evaluate(i * 2, {i: A}, casting="unsafe"), [0, 4, 6])
    with pytest.raises(ValueError, match=r"casting= is one of .*, found 'lossy'"):
        te.evaluate(x * 2, {x: A}, casting="lossy")
