"""Activations, norms, losses and draws beside torch.nn.functional and jax.random."""

from __future__ import annotations

from typing import Any

import numpy as np

import tedsl as te
from tedsl import ops
from tests.autodiff.catalogue.entry import Entry, in_range, uniform
from tests.ops.catalogue.line import entry, like_torch

__all__ = ["ENTRIES"]


def vectors(n: int) -> Any:
    return {"x": (3, 8 * n)}


def images(n: int) -> Any:
    return {"x": (3, 4, 3 * n, 2 * n)}


def torch_of(x: Any) -> Any:
    import torch

    return torch


def functional(name: str, *arrays: Any, **options: Any) -> Any:
    return getattr(torch_of(arrays).nn.functional, name)(*arrays, **options)


def torch_name(name: str, path: str = "", **options: Any) -> Any:
    """A function of torch itself."""

    def oracle(*arrays: Any) -> Any:
        import torch

        return getattr(torch, name)(*arrays, **options)

    return oracle


ACTIVATIONS = [
    *(like_torch(name, vectors) for name in (
        "celu", "elu", "gelu", "hardshrink", "hardswish", "hardtanh", "leaky_relu", "logsigmoid", "mish", "relu", "relu6",
        "selu", "silu", "softplus", "softshrink", "softsign", "tanhshrink",
    )),
    entry("hardsigmoid", ops.hardsigmoid, vectors, lambda x: (x + 3.0).clip(0.0, 6.0) / 6.0),  # theirs divides by the float32 of 6
    like_torch("celu", vectors, "a0.5", alpha=0.5),
    like_torch("elu", vectors, "a0.5", alpha=0.5),
    like_torch("gelu", vectors, "tanh", approximate="tanh"),
    like_torch("hardtanh", vectors, "(-0.3, 0.7)", min_val=-0.3, max_val=0.7),
    like_torch("softplus", vectors, "b3 t1.5", beta=3.0, threshold=1.5),
    like_torch("threshold", vectors, threshold=0.2, value=-3.0),
    like_torch("glu", lambda n: {"x": (3, 8 * n, 2)}),
    entry("glu axis 1", lambda x: ops.glu(x, axis=1), lambda n: {"x": (3, 8 * n, 2)}, lambda x: functional("glu", x, dim=1)),
    like_torch("prelu", lambda n: {"x": (3, 4, 5 * n), "w": (4,)}, "by channel"),
    like_torch("prelu", lambda n: {"x": (3, 4, 5 * n), "w": (1,)}),
    entry("sigmoid", ops.sigmoid, vectors, torch_name("sigmoid")),
    entry("tanh", ops.tanh, vectors, torch_name("tanh")),
]  # fmt: skip


def along(name: str, axis: int, **options: Any) -> Entry:
    return entry(
        f"{name} axis {axis}", lambda x: getattr(ops, name)(x, axis=axis, **options), images, torch_name(name, dim=axis)
    )


def batch_norm(x: Any, weight: Any, bias: Any) -> Any:
    from torch.nn import functional

    return functional.batch_norm(x, None, None, weight, bias, training=True)


def running_norm(x: Any, mean: Any, var: Any, weight: Any, bias: Any) -> Any:
    """The formula: torch gives the running statistics no gradient."""
    mean, var, weight, bias = (v[:, None, None] for v in (mean, var, weight, bias))
    return (x - mean) / (var + 1e-5).sqrt() * weight + bias


def instance_norm(x: Any, weight: Any, bias: Any) -> Any:
    from torch.nn import functional

    return functional.instance_norm(x, weight=weight, bias=bias)


def running_stats(x: Any, mean: Any, var: Any) -> Any:
    """The formulas: torch updates its running statistics without a gradient."""
    batch, unbiased = x.mean((0, 2, 3)), x.var((0, 2, 3))
    return 0.9 * mean + 0.1 * batch, 0.9 * var + 0.1 * unbiased


def with_channels(n: int) -> Any:
    return {**images(n), "weight": (4,), "bias": (4,)}


def normed(name: str, oracle: Any, *given: Any) -> Entry:
    def theirs(x: Any, *w: Any) -> Any:
        from torch.nn import functional

        return getattr(functional, name)(x, *given, *w, eps=1e-3)

    return entry(f"{name} {given[0]}", lambda x, *w: getattr(ops, name)(x, *given, *w, eps=1e-3), oracle, theirs)


NORMS = [
    along("softmax", -1), along("softmax", 1), along("log_softmax", 1), along("logsumexp", 2),
    entry("logsumexp keepdims", lambda x: ops.logsumexp(x, axis=0, keepdims=True), images, torch_name("logsumexp", dim=0, keepdim=True)),
    normed("layer_norm", lambda n: {"x": (3, 4, 5 * n), "w": (4, 5 * n), "b": (4, 5 * n)} if n == 1 else {"x": (3, 4, 5), "w": (4, 5), "b": (4, 5)}, (4, 5)),
    normed("rms_norm", lambda n: {"x": (3 * n, 2, 5), "w": (5,)}, (5,)),
    normed("group_norm", with_channels, 2),
    like_torch("group_norm", images, "4", num_groups=4),
    like_torch("rms_norm", lambda n: {"x": (3 * n, 5)}, normalized_shape=(5,)),
    entry("batch_norm training", lambda x, w, b: ops.batch_norm(x, weight=w, bias=b, training=True), with_channels, batch_norm),
    entry("batch_norm", ops.batch_norm, lambda n: {**images(n), "mean": (4,), "var": (4,), "weight": (4,), "bias": (4,)}, running_norm, feed={"var": uniform(0.5, 2.0)}),
    entry("instance_norm", ops.instance_norm, with_channels, instance_norm),
    entry("running_stats", ops.running_stats, lambda n: {**images(n), "mean": (4,), "var": (4,)}, running_stats),
    like_torch("local_response_norm", lambda n: {"x": (2, 7, 3 * n)}, size=3, alpha=0.5),
    like_torch("normalize", vectors),
    like_torch("normalize", vectors, "p1", p=1.0),
    like_torch("normalize", vectors, "p3", p=3.0),
]  # fmt: skip


def pairs(n: int) -> Any:
    return {"x": (3, 6 * n), "target": (3, 6 * n)}


def classes(n: int) -> Any:
    return {"x": (3 * n, 5), "target": (3 * n,)}


def class_maps(n: int) -> Any:
    return {"x": (2, 5, 3 * n), "target": (2, 3 * n)}


def weights(xp: Any, count: int) -> Any:
    """Weights of classes, to which PyTorch gives no gradient: constants."""
    return 1.0 + 0.25 * xp.arange(count, dtype="float64" if xp is te else xp.float64)


def weighted(label: str, **options: Any) -> Entry:
    return entry(
        f"cross_entropy {label}", lambda x, t: ops.cross_entropy(x, t, weights(te, 5), **options), class_maps,
        lambda x, t: functional("cross_entropy", x, t, weights(torch_of(x), 5), **options), **LABELS,
    )  # fmt: skip


PROBABLE = uniform(0.05, 0.95)
LABELS: dict[str, Any] = {"feed": {"target": in_range(5), "weight": uniform(0.5, 2.0)}, "integers": ("target",)}
LOSSES = [
    *(like_torch(name, pairs, reduction, reduction=reduction) for name in ("mse_loss", "l1_loss") for reduction in ("mean", "sum", "none")),
    like_torch("huber_loss", pairs, delta=0.7),
    like_torch("smooth_l1_loss", pairs, beta=0.7),
    like_torch("binary_cross_entropy", pairs, feed={"x": PROBABLE, "target": PROBABLE}),
    like_torch("binary_cross_entropy_with_logits", pairs, feed={"target": PROBABLE}),
    entry("binary_cross_entropy_with_logits pos_weight", lambda x, t: ops.binary_cross_entropy_with_logits(x, t, pos_weight=weights(te, t.shape[1])),
          pairs, lambda x, t: functional("binary_cross_entropy_with_logits", x, t, pos_weight=weights(torch_of(x), t.shape[1])), feed={"target": PROBABLE}),
    like_torch("kl_div", pairs, feed={"target": PROBABLE}, reduction="batchmean"),
    like_torch("kl_div", pairs, "log", log_target=True, reduction="sum"),
    like_torch("nll_loss", classes, **LABELS),
    like_torch("cross_entropy", classes, **LABELS),
    weighted("weights, smooth", label_smoothing=0.1),
    weighted("weights, one ignored", ignore_index=2),
    weighted("none", reduction="none"),
    like_torch("cross_entropy", lambda n: {"x": (3, 5, 2 * n), "target": (3, 5, 2 * n)}, "probabilities", label_smoothing=0.2),
    entry("cosine_similarity", ops.cosine_similarity, lambda n: {"x": (3, 4 * n), "y": (3, 4 * n)}, torch_name("cosine_similarity")),
]  # fmt: skip


def dropped(x: Any) -> Any:
    """The mask of the draw, which test_catalogue_random holds to that of jax.random."""
    import torch

    draw = te.interpret(ops.uniform(tuple(x.shape), 7), {})
    return torch.where(torch.tensor(draw < np.float32(0.7)), x / 0.7, 0.0)


DRAWS = [entry("dropout", lambda x: ops.dropout(x, 0.3, seed=7), images, dropped)]

ENTRIES = [*ACTIVATIONS, *NORMS, *LOSSES, *DRAWS]
