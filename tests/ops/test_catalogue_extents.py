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


RESAMPLED: dict[str, Callable[[Any, Any], Any]] = {
    "nearest": lambda x, size: ops.interpolate(x, size=size),
    "bilinear": lambda x, size: ops.interpolate(x, size=size, mode="bilinear"),
    "corners": lambda x, size: ops.interpolate(x, size=size, mode="bilinear", align_corners=True),
    "bicubic": lambda x, size: ops.interpolate(x, size=size, mode="bicubic"),
    "means": ops.adaptive_avg_pool2d,
    "greatest": ops.adaptive_max_pool2d,
}


@pytest.mark.parametrize("name", RESAMPLED)
def test_images_of_every_size_are_resampled_to_every_size(name: str) -> None:
    """The same values and gradients as with numbers, which are compared with PyTorch's elsewhere."""
    x, wanted = te.placeholder((1, 2, te.var("h"), te.var("w")), name="x"), te.placeholder((te.var("p"), te.var("q")))
    y = RESAMPLED[name](x, wanted.extents)
    kernel = te.build([x, wanted], [y, *te.differentiate(te.sum(y * y), [x])])
    for shape, size in (((5, 7), (3, 9)), ((9, 1), (4, 1)), ((1, 6), (5, 5)), ((8, 8), (4, 4)), ((3, 17), (1, 1))):
        array = np.random.default_rng(0).integers(-8, 9, (1, 2, *shape)).astype("float32")
        fixed = te.placeholder(array.shape, name="x")
        z = RESAMPLED[name](fixed, size)
        expected = te.interpret([z, *te.differentiate(te.sum(z * z), [fixed])], {fixed: array})
        for found, want in zip(kernel(array, np.zeros(size, "float32")), expected, strict=True):
            np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-4)


def test_places_in_long_rows_need_more_than_32_bits() -> None:
    row = np.arange(100_000, dtype="float32")
    longer = np.arange(100_001)
    np.testing.assert_array_equal(
        ops.interpolate(row[None, None], size=100_001)[0, 0], row[longer * 100_000 // 100_001]
    )
    places = np.clip((longer + 0.5) * 100_000 / 100_001 - 0.5, 0, 99_999)
    found = ops.interpolate(row[None, None], size=100_001, mode="linear")[0, 0]
    np.testing.assert_allclose(found, places, rtol=1e-6, atol=1e-3)
    sent = np.cos(longer[:77_777]).astype("float32")
    x, head = te.placeholder((1, 1, 100_001), name="x"), te.placeholder((1, 1, 77_777), name="head")
    (back,) = te.differentiate([ops.interpolate(x, size=77_777, mode="linear")], [x], head=[head])
    whole = (2 * longer[:77_777] + 1) * 100_001 - 77_777
    low, share = whole // 155_554, whole % 155_554 / 155_554
    expected = np.zeros(100_001)
    np.add.at(expected, low, sent * (1 - share))
    np.add.at(expected, np.minimum(low + 1, 100_000), sent * share)
    np.testing.assert_allclose(te.evaluate(back, {head: sent[None, None]})[0, 0], expected, rtol=1e-5, atol=1e-6)
    image = row[None, None, None]
    begins = np.arange(33_333) * 100_000 // 33_333
    ends = -(-(np.arange(33_333) + 1) * 100_000 // 33_333)
    np.testing.assert_array_equal(ops.adaptive_avg_pool2d(image, (1, 33_333))[0, 0, 0], (begins + ends - 1) / 2)
    np.testing.assert_array_equal(ops.adaptive_max_pool2d(image, (1, 33_333))[0, 0, 0], ends - 1)


@pytest.mark.parametrize(
    "pool",
    [
        lambda x: ops.adaptive_avg_pool2d(x, (1, 1)),
        lambda x: ops.avg_pool2d(x, (300, 300)),
        lambda x: ops.interpolate(x.reshape(1, 1, 90_000), size=70_000, mode="linear"),
    ],
)
def test_means_and_weights_of_short_floats_are_made_in_float32(pool: Callable[[Any], Any]) -> None:
    image = np.full((1, 1, 300, 300), 3.0, "float16")
    found = pool(image)
    assert found.dtype == "float16"
    np.testing.assert_array_equal(found, np.full(found.shape, 3.0, "float16"))
