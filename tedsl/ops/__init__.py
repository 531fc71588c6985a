"""The operator catalogue, written in the language itself with `te.op`: every entry found on first use."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

# Module -> what it defines.
_PUBLIC: dict[str, tuple[str, ...]] = {
    "tedsl.ops.activations": (
        "celu", "elu", "gelu", "glu", "hardshrink", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu", "logsigmoid",
        "mish", "prelu", "relu", "relu6", "selu", "sigmoid", "silu", "softplus", "softshrink", "softsign", "tanh",
        "tanhshrink", "threshold",
    ),
    "tedsl.ops.attend": ("attention", "streaming_attention"),
    "tedsl.ops.convolution": (
        "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "depthwise_conv2d",
    ),
    "tedsl.ops.cumulative": ("cummax", "cummin", "cumprod", "cumsum", "logcumsumexp"),
    "tedsl.ops.filters": ("bilateral_filter", "box_blur", "gaussian_blur", "harris", "sobel", "unsharp_mask"),
    "tedsl.ops.imaging": ("demosaic", "distance_field", "histogram", "local_laplacian", "soft_histogram"),
    "tedsl.ops.indexing": (
        "embedding", "gather", "index_add", "index_select", "masked_fill", "one_hot", "scatter_add", "scatter_reduce",
        "segment_max", "segment_sum", "top1",
    ),
    "tedsl.ops.linear": ("bilinear", "dense", "einsum", "matmul"),
    "tedsl.ops.losses": (
        "binary_cross_entropy", "binary_cross_entropy_with_logits", "cosine_similarity", "cross_entropy", "huber_loss",
        "kl_div", "l1_loss", "mse_loss", "nll_loss", "smooth_l1_loss",
    ),
    "tedsl.ops.normalization": (
        "batch_norm", "group_norm", "instance_norm", "layer_norm", "local_response_norm", "log_softmax", "logsumexp",
        "normalize", "rms_norm", "running_stats", "softmax",
    ),
    "tedsl.ops.physics": ("heat", "heat_step", "nbody_forces", "nbody_step", "shallow_water_step", "wave_step"),
    "tedsl.ops.random": ("dropout", "random_bits", "uniform"),
    "tedsl.ops.recurrent": ("gru", "gru_cell", "lstm", "lstm_cell", "rnn", "rnn_cell"),
    "tedsl.ops.resampling": (
        "channel_shuffle", "fold", "interpolate", "pad", "pixel_shuffle", "pixel_unshuffle", "unfold",
    ),
    "tedsl.ops.sampling": ("bilateral_slice", "bilateral_splat", "grid_sample", "warp"),
    "tedsl.ops.statistics": ("covariance", "streaming_logsumexp", "var_mean", "welford"),
    "tedsl.ops.pooling": (
        "adaptive_avg_pool2d", "adaptive_max_pool2d", "avg_pool1d", "avg_pool2d", "avg_pool3d", "global_avg_pool2d",
        "max_pool1d", "max_pool2d", "max_pool3d",
    ),
}  # fmt: skip

_HOME = {name: module for module, names in _PUBLIC.items() for name in names}

_MODULES = ("optim",)  # public modules: reached as `te.ops.optim` without an import of their own

__all__ = sorted([*_HOME, *_MODULES])


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"tedsl.ops.{name}")
    if name not in _HOME:
        from tedsl.lang.names import OF_MODULES, spelled

        own = spelled(name, __all__)
        told = f": it is te.ops.{own}" if own else f": {OF_MODULES[name]}" if name in OF_MODULES else ""
        raise AttributeError(
            f"module 'tedsl.ops' has no attribute {name!r}{told}", name=name, obj=sys.modules[__name__]
        )
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*(name for name in globals() if name.startswith("__")), *__all__})
