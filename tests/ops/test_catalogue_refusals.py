"""Arguments that do not fit are refused by name, with what was expected and what was found."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tedsl as te


def x(*shape: int, dtype: str = "float32") -> te.Tensor:
    return te.placeholder(shape, dtype, name="x")


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "dense": (lambda: te.ops.dense(x(2, 3), x(4, 5)), "x: expected 5 in dimension 1 (the second of weight), found"),
    "bias": (lambda: te.ops.dense(x(2, 3), x(4, 3), x(3)), "bias: expected 4 in dimension 0"),
    "rank": (lambda: te.ops.conv2d(x(2, 3, 4), x(1, 3, 3, 3)), "x: expected 4 dimensions (N, C, H, W), found 3"),
    "channels": (
        lambda: te.ops.conv2d(x(2, 3, 9, 9), x(1, 2, 3, 3)),
        "weight: expected 3 in dimension 1 (3 channels of x / 1 groups), found 2",
    ),
    "groups": (
        lambda: te.ops.conv2d(x(2, 4, 9, 9), x(6, 1, 3, 3), groups=3),
        "groups: expected a divisor of the 4 channels of x, found 3",
    ),
    "layout": (
        lambda: te.ops.conv2d(x(2, 3, 9, 9), x(1, 3, 3, 3), layout="CHWN"),
        "layout: expected one of 'NCHW', 'NHWC', found 'CHWN'",
    ),
    "stride": (
        lambda: te.ops.conv2d(x(2, 3, 9, 9), x(1, 3, 3, 3), stride=0),
        "stride: expected integers of 1 or more, found 0",
    ),
    "padding": (
        lambda: te.ops.conv2d(x(2, 3, 9, 9), x(1, 3, 3, 3), padding=(1, 1, 1)),
        "padding: expected a number or 2 of them, found (1, 1, 1)",
    ),
    "same": (
        lambda: te.ops.conv2d(x(2, 3, 9, 9), x(1, 3, 3, 3), padding="same", stride=2),
        "padding='same': expected a stride of 1, found (2, 2)",
    ),
    "window": (lambda: te.ops.max_pool2d(x(2, 3, 4, 9), 5), "the window of 5 (5 taps, dilation 1) does not fit into 4"),
    "margin": (lambda: te.ops.max_pool2d(x(2, 3, 9, 9), 2, padding=2), "padding: expected at most half the kernel"),
    "output padding": (
        lambda: te.ops.conv_transpose2d(x(1, 2, 4, 4), x(2, 2, 3, 3), stride=2, output_padding=2),
        "output_padding: expected less than stride (2, 2) or dilation (1, 1), found (2, 2)",
    ),
    "group norm": (lambda: te.ops.group_norm(x(2, 6, 4), 4), "num_groups: expected a divisor of 6 channels, found"),
    "normalized shape": (
        lambda: te.ops.layer_norm(x(2, 6), (5,)), "x: expected 5 in dimension 1 (normalized_shape), found 6"
    ),
    "running statistics": (lambda: te.ops.batch_norm(x(2, 6)), "running_mean and running_var are needed"),
    "reduction": (
        lambda: te.ops.mse_loss(x(2), x(2), reduction="avg"),
        "reduction: expected one of 'mean', 'sum', 'none', found 'avg'",
    ),
    "target shape": (
        lambda: te.ops.mse_loss(x(2, 3), x(3)), "expected x and target of one shape, found (2, 3) and (3,)"
    ),
    "classes": (
        lambda: te.ops.cross_entropy(x(2, 3, 4), x(2, dtype="int32")),
        "expected x (n, classes, ...) and target (n, ...)",
    ),
    "index rank": (
        lambda: te.ops.gather(x(3, 4), 0, x(3, dtype="int32")), "index: expected 2 dimensions as x has, found x :"
    ),
    "index extent": (
        lambda: te.ops.gather(x(3, 4), 0, x(2, 5, dtype="int32")), "index: expected at most 4 in dimension 1, found 5"
    ),
    "reduce": (
        lambda: te.ops.scatter_reduce(x(3), 0, x(3, dtype="int32"), x(3), "max"),
        "reduce: expected one of 'sum', 'mean', 'prod', 'amax', 'amin', found 'max'",
    ),
    "keys": (lambda: te.ops.attention(x(2, 5, 4), x(2, 6, 3), x(2, 6, 4)), "k: expected 4 in dimension 2 (the"),
    "values": (lambda: te.ops.attention(x(2, 5, 4), x(2, 6, 4), x(2, 5, 4)), "v: expected 6 in dimension 1 (the"),
    "gates": (
        lambda: te.ops.lstm_cell(x(2, 3), x(2, 4), x(2, 4), x(12, 3), x(16, 4)),
        "w_ih: expected 16 in dimension 0 (4 gates of 4 units), found 12",
    ),
    "sizes": (lambda: te.ops.interpolate(x(1, 1, 4, 4)), "expected either size or scale_factor, found None and None"),
    "mode": (
        lambda: te.ops.interpolate(x(1, 1, 4), scale_factor=2, mode="bilinear"),
        "x: expected 4 dimensions for mode='bilinear'",
    ),
    "columns": (
        lambda: te.ops.fold(x(1, 18, 5), (4, 4), 3, padding=1), "x: expected 16 windows (4, 4), found"
    ),
    "border": (
        lambda: te.ops.gaussian_blur(x(4, 4), 1.0, mode="fold"),
        "reflect, wrap (circular, periodic); found 'fold'",
    ),
    "sigma": (lambda: te.ops.gaussian_blur(x(4, 4), 0.0), "sigma: expected a positive number, found 0.0"),
    "bins": (lambda: te.ops.histogram(x(4), 0), "bins: expected an integer of 1 or more, found 0"),
    "guide": (
        lambda: te.ops.bilateral_slice(x(2, 1, 4, 3, 3), x(1, 8, 8)), "guide: expected 2 in dimension 0 (the batch"
    ),
    "bodies": (lambda: te.ops.nbody_forces(x(5, 3), x(4)), "mass: expected 5 in dimension 0 (the bodies of position)"),
    "probability": (lambda: te.ops.dropout(x(3), 1.5), "p: expected a number from 0 to 1, found 1.5"),
    "halves": (lambda: te.ops.glu(x(2, 5)), "x: expected an even extent of axis 1, found 5"),
}  # fmt: skip


def test_integers_have_no_softmax() -> None:
    with pytest.raises(TypeError, match="x: expected floats, found x : int32"):
        te.ops.softmax(x(3, dtype="int32"))


@pytest.mark.parametrize("run", [te.interpret, te.evaluate])
def test_a_target_that_is_no_class_is_an_index_error(run: Any) -> None:
    p, t = x(2, 3), te.placeholder((2,), "int32", name="t")
    with pytest.raises(IndexError):
        run(te.ops.cross_entropy(p, t), {p: np.zeros((2, 3), "float32"), t: np.array([0, 3], "int32")})


def test_an_index_that_is_none_is_told_in_the_words_of_the_operator() -> None:
    """The message was one of `counts` and `full`, which nobody had written."""
    logits, rows, wrong = np.zeros((4, 3), "float32"), np.zeros((3, 2), "float32"), np.array([0, 1, 2, 3])
    for call, words in {
        lambda: te.ops.cross_entropy(logits, wrong): r"cross_entropy at .*: target\[3\] is 3 .* the number of classes",
        lambda: te.jit(lambda a, labels: te.ops.nll_loss(a, labels))(
            logits, wrong
        ): r"nll_loss at .*: labels\[3\] is 3",
        lambda: te.ops.embedding(wrong, rows): r"embedding at .*: index\[3\] is 3 .*0 <= index < 3, the rows of weight",
        lambda: te.grad(lambda w, i: te.ops.embedding(i, w).sum())(rows, wrong): r"embedding at .*: i\[3\] is 3 .*rows",
        lambda: te.ops.gather(
            rows, 0, wrong[:, None]
        ): r"gather at .*: index\[3, 0\] is 3 .* the extent of axis 0 of x",
        lambda: te.ops.index_select(
            rows, 0, wrong
        ): r"index_select at .*: index\[3\] is 3 .* the extent of axis 0 of x",
        lambda: te.ops.segment_sum(rows, wrong[1:], 3): r"segment_sum at .*: segment_ids\[2\] is 3 .*< 3, num_segments",
    }.items():
        with pytest.raises(IndexError, match=r"te\.ops\." + words):
            call()


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    call, message = REFUSED[case]
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        call()
    assert f"at {__file__}:" in str(caught.value)


def test_what_is_no_tensor_is_a_type_error() -> None:
    for call, words in {
        lambda: te.ops.conv2d(x(1, 1, 3, 3), 3): r"'weight': expected an array, found int \(3\)",
        lambda: te.ops.gather(x(3, 4), 1, 2): r"'index': expected an array, found int \(2\)",
        lambda: te.ops.mse_loss(x(3), 0.5): r"'target': expected an array, found float \(0.5\)",
        lambda: te.ops.layer_norm(x(2, 6), x(6), x(6)): "normalized_shape at .* expected an integer extent, found x :",
        lambda: te.ops.dense(3, x(4, 5)): r"dense at .*: argument 'x': expected an array, found int \(3\)",
    }.items():
        with pytest.raises(TypeError, match=words) as caught:
            call()
        assert __file__ in str(caught.value)


def test_unknown_operators_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match=r"module 'tedsl.ops' has no attribute 'conv4d'"):
        te.ops.conv4d
