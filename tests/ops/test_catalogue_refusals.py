"""Arguments that do not fit are refused by name, with what was expected and what was found."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

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
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    call, message = REFUSED[case]
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        call()
    assert f"at {__file__}:" in str(caught.value)


def test_what_is_no_tensor_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="weight: expected a tensor, found int"):
        te.ops.conv2d(x(1, 1, 3, 3), 3)


def test_unknown_operators_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match=r"module 'tedsl.ops' has no attribute 'conv4d'"):
        te.ops.conv4d
