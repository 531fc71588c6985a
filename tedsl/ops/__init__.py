"""The operator catalogue, written in the language itself with `te.op`: every entry found on first use."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

# Module -> what it defines.
_PUBLIC: dict[str, tuple[str, ...]] = {
    "tedsl.ops.convolution": (
        "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "depthwise_conv2d",
    ),
    "tedsl.ops.linear": ("bilinear", "dense", "einsum", "matmul"),
    "tedsl.ops.pooling": (
        "adaptive_avg_pool2d", "adaptive_max_pool2d", "avg_pool1d", "avg_pool2d", "avg_pool3d", "global_avg_pool2d",
        "max_pool1d", "max_pool2d", "max_pool3d",
    ),
}  # fmt: skip

_HOME = {name: module for module, names in _PUBLIC.items() for name in names}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'tedsl.ops' has no attribute {name!r}", name=name, obj=sys.modules[__name__])
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
