"""Operators on extents that are variables, and on batches of nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tedsl as te

ops = te.ops
W, B = te.placeholder((4, 3, 3, 3), name="w"), te.placeholder((4,), name="b")
CASES: dict[str, tuple[Callable[[te.Tensor], Any], tuple[int, ...]]] = {
    "dense": (lambda x: ops.dense(x, te.ones((5, 6))), (6,)),
    "conv2d": (lambda x: ops.conv2d(x, te.ones((4, 3, 3, 3)), stride=2, padding=1), (3, 6, 7)),
    "conv_transpose2d": (lambda x: ops.conv_transpose2d(x, te.ones((3, 2, 3, 3)), stride=2), (3, 3, 2)),
    "max_pool2d": (lambda x: ops.max_pool2d(x, 2), (3, 6, 7)),
    "avg_pool2d": (lambda x: ops.avg_pool2d(x, 3, padding=1, count_include_pad=False), (3, 6, 7)),
    "gelu": (ops.gelu, (5,)),
    "softmax": (ops.softmax, (5,)),
    "layer_norm": (lambda x: ops.layer_norm(x, 5), (5,)),
    "group_norm": (lambda x: ops.group_norm(x, 2), (4, 3)),
    "dropout": (lambda x: ops.dropout(x, 0.5, seed=3), (5,)),
    "interpolate": (lambda x: ops.interpolate(x, scale_factor=2, mode="bilinear"), (2, 3, 4)),
    "attention": (lambda x: ops.attention(x, x, x, causal=True), (4, 3)),
    "cumsum": (lambda x: ops.cumsum(x, 1), (5,)),
    "gaussian_blur": (lambda x: ops.gaussian_blur(x, 0.5), (5, 4)),
    "unfold": (lambda x: ops.unfold(x, 2), (2, 4, 5)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_batch_that_is_a_variable(name: str) -> None:
    """The same values as with the number in its place, gradients too."""
    function, rest = CASES[name]
    array = np.random.default_rng(0).normal(size=(3, *rest)).astype("float32")
    found = []
    for batch in (te.var("n"), 3):
        x = te.placeholder((batch, *rest), name="x")
        y = function(x)
        (dx,) = te.differentiate([y], [x], head=[te.cos(y)])
        found.append(te.interpret([y, dx], {x: array}))
    for symbolic, fixed in zip(*found, strict=True):
        np.testing.assert_array_equal(symbolic, fixed)


@pytest.mark.parametrize("name", CASES)
def test_a_batch_of_nothing(name: str) -> None:
    function, rest = CASES[name]
    x = te.placeholder((0, *rest), name="x")
    y = function(x)
    (dx,) = te.differentiate([y], [x], head=[te.cos(y)])
    values = te.interpret([y, dx], {x: np.zeros((0, *rest), "float32")})
    assert [v.shape for v in values] == [y.shape, (0, *rest)]


def test_images_of_every_size() -> None:
    n, h, w = te.var("n"), te.var("h"), te.var("w")
    x = te.placeholder((n, 3, h, w), name="x")
    y = ops.max_pool2d(ops.relu(ops.conv2d(x, W, B, padding=1)), 2)
    random = np.random.default_rng(0)
    weight, bias = random.normal(size=(4, 3, 3, 3)).astype("float32"), random.normal(size=4).astype("float32")
    for shape in ((1, 3, 8, 8), (2, 3, 5, 9)):
        array = random.normal(size=shape).astype("float32")
        fixed = te.placeholder(shape, name="x")
        expected = ops.max_pool2d(ops.relu(ops.conv2d(fixed, W, B, padding=1)), 2)
        wanted = te.interpret(expected, {fixed: array, W: weight, B: bias})
        np.testing.assert_array_equal(te.interpret(y, {x: array, W: weight, B: bias}), wanted)
