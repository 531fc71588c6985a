"""Draws by counting: those of jax.random, the same however they are computed, and independent of the kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tedsl as te


def jax_random() -> Any:
    jax = pytest.importorskip("jax")
    # The counters of 64 bits that make a draw independent of how it is split; the default of newer versions.
    jax.config.update("jax_threefry_partitionable", True)
    return jax.random


@pytest.mark.parametrize("seed", [0, 7, 2**31 + 5, 2**40 + 3])
def test_bits_are_those_of_jax(seed: int) -> None:
    random = jax_random()
    pytest.importorskip("jax").config.update("jax_enable_x64", True)  # seeds of more than 32 bits
    expected = random.bits(random.key(seed), (3, 5), "uint32")
    np.testing.assert_array_equal(te.interpret(te.ops.random_bits((3, 5), seed), {}), np.asarray(expected))


def test_uniform_is_that_of_jax() -> None:
    random = jax_random()
    expected = np.asarray(random.uniform(random.key(3), (4, 6), "float32"))
    np.testing.assert_array_equal(te.interpret(te.ops.uniform((4, 6), 3), {}), expected)
    np.testing.assert_array_equal(te.interpret(te.ops.uniform((4, 6), 3, -2.0, 2.0), {}), expected * 4 - 2)


def test_dropout_compiled_with_a_seed_that_is_an_input() -> None:
    x, seed = te.placeholder((40, 50), name="x"), te.placeholder((), "int32", name="seed")
    y = te.ops.dropout(x, 0.25, seed=seed)
    (dx,) = te.differentiate([y], [x], head=[te.full((40, 50), 2.0)])
    kernel = te.build([x, seed], [y, dx])
    ones = np.ones((40, 50), "float32")
    for number in (1, 2):
        out, gradient = kernel(ones, np.int32(number))
        mask = te.interpret(te.ops.uniform((40, 50), number), {}) < np.float32(0.75)
        np.testing.assert_allclose(out, mask / 0.75, rtol=1e-6)
        np.testing.assert_allclose(gradient, 2 * mask / 0.75, rtol=1e-6)
        assert abs(mask.mean() - 0.75) < 5 * np.sqrt(0.75 * 0.25 / mask.size)


def test_dropout_of_all_and_of_nothing() -> None:
    x = np.ones((3, 4), "float32")
    np.testing.assert_array_equal(te.ops.dropout(x, 1.0), 0 * x)
    np.testing.assert_array_equal(te.ops.dropout(x, 0.0), x)
    np.testing.assert_array_equal(te.ops.dropout(x, 0.9, training=False), x)
