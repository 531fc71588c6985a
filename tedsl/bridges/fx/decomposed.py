"""What PyTorch itself says in terms of simpler operations: the decompositions behind `te.from_fx` and torch.compile.

Most are PyTorch's own. An operation in place that has none is that of its pure form, copied onto its target; one on
lists of tensors, as optimizers call them, is the operation on each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

__all__ = ["decompositions"]

DECOMPOSED = (
    "_batch_norm_with_update", "_chunk_cat", "_fused_rms_norm", "_log_softmax", "_log_softmax_backward_data",
    "_native_batch_norm_legit", "_native_batch_norm_legit_functional", "_native_batch_norm_legit_no_training",
    "_prelu_kernel", "_prelu_kernel_backward", "_safe_softmax", "_softmax", "_softmax_backward_data",
    "_unsafe_masked_index", "_unsafe_masked_index_put_accumulate", "_upsample_nearest_exact2d",
    "_weight_norm_interface", "adaptive_max_pool2d", "addcdiv", "addcmul", "addcmul_", "addmv", "addr",
    "affine_grid_generator", "alias_copy", "aminmax", "as_strided_copy", "batch_norm_backward",
    "binary_cross_entropy", "binary_cross_entropy_backward", "binary_cross_entropy_with_logits", "block_diag",
    "bucketize", "celu", "channel_shuffle", "col2im", "count_nonzero", "deg2rad", "diag_embed", "diagonal_backward",
    "diagonal_copy", "dist", "elu", "elu_backward", "expand_copy", "eye", "frac", "gelu", "gelu_backward", "glu",
    "glu_backward", "grid_sampler_2d", "hardshrink", "hardsigmoid", "hardsigmoid_backward", "hardswish",
    "hardswish_backward", "hardtanh", "hardtanh_", "hardtanh_backward", "heaviside", "huber_loss",
    "huber_loss_backward", "im2col", "isin", "ldexp", "leaky_relu", "leaky_relu_", "leaky_relu_backward", "lerp",
    "linalg_cross", "linalg_vector_norm", "linspace", "log_sigmoid_backward", "log_sigmoid_forward", "logaddexp",
    "logaddexp2", "logical_xor", "logit", "logspace", "logsumexp", "masked_fill_", "max_unpool2d", "mish",
    "mish_backward", "mse_loss", "mse_loss_backward", "multi_margin_loss", "multilabel_margin_loss_forward",
    "nan_to_num", "nansum", "narrow_copy", "native_batch_norm", "native_batch_norm_backward",
    "native_dropout_backward", "native_group_norm", "native_group_norm_backward", "native_layer_norm",
    "native_layer_norm_backward", "nll_loss2d_backward", "nll_loss2d_forward", "nll_loss_backward",
    "nll_loss_forward", "norm", "permute_copy", "pixel_shuffle", "pixel_unshuffle", "rad2deg", "reflection_pad1d",
    "reflection_pad1d_backward", "reflection_pad2d", "reflection_pad2d_backward", "reflection_pad3d", "renorm",
    "repeat", "replication_pad1d", "replication_pad2d", "replication_pad3d", "roll", "rot90",
    "rrelu_with_noise_backward", "select_backward", "sgn", "sigmoid_backward", "silu", "silu_", "silu_backward",
    "sinc", "slice_backward", "smooth_l1_loss", "smooth_l1_loss_backward", "soft_margin_loss",
    "soft_margin_loss_backward", "softplus", "softplus_backward", "softshrink", "special_entr", "special_log_ndtr",
    "special_ndtr", "special_xlog1py", "split_with_sizes_copy", "squeeze_copy", "stack", "std", "std_mean",
    "t_copy", "take", "tanh_backward", "threshold", "threshold_backward", "trace", "transpose_copy", "tril",
    "tril_indices", "triu", "triu_indices", "unbind_copy", "unfold", "unfold_backward", "unfold_copy",
    "unsafe_split", "unsafe_split_with_sizes", "unsqueeze_copy", "upsample_bicubic2d", "upsample_bilinear2d",
    "upsample_linear1d", "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "upsample_trilinear3d",
    "vdot", "view_copy", "xlogy", "zero",
)  # fmt: skip
IN_PLACE = (
    "addcdiv_", "addr_", "celu_", "elu_", "frac_", "hardsigmoid_", "hardswish_", "heaviside_",
     "lerp_", "logical_xor_", "logit_", "mish_", "nan_to_num_", "renorm_", "sgn_", "sinc_", "threshold_",
    "tril_", "triu_", "xlogy_",
)  # fmt: skip
# These PyTorch computes in integers where it is given bytes.
OF_FLOATS = ("upsample_bicubic2d", "upsample_bilinear2d", "upsample_linear1d", "upsample_trilinear3d")
# The argument whose element a tracer would ask for where it has no axes.
INDEXED_BY = {"bucketize": 0, "take": 1}
BY_ELEMENT = frozenset({"addcdiv", "addcmul"})  # whose numbers cannot be elements of a tensor


@cache
def decompositions() -> dict[Any, Callable[..., Any]]:
    """By the operation: functions that run others in its place."""
    import torch
    from torch._decomp import get_decompositions

    aten = torch.ops.aten
    found = dict(get_decompositions([getattr(aten, name) for name in DECOMPOSED if hasattr(aten, name)]))
    for name in OF_FLOATS:
        found.update(_changed(found, name, _of_floats))
    for name, place in INDEXED_BY.items():
        found.update(_changed(found, name, partial(_of_vectors, place=place)))
    for name in (n for n in IN_PLACE if hasattr(aten, n)):
        for overload in getattr(aten, name).overloads():
            pure = getattr(getattr(aten, name.removesuffix("_")), overload, None)
            if pure is not None:
                found.setdefault(getattr(getattr(aten, name), overload), _onto_target(pure))
    for name in _names_on_lists():
        base = name.removeprefix("_foreach_")
        operation = getattr(aten, base, None) or _in_place(base)
        for overload in getattr(aten, name).overloads():
            if overload != "out" and not overload.endswith("_out") and not _is_by_element(base, overload):
                found[getattr(getattr(aten, name), overload)] = _on_each(operation, base)
    return found


def _changed(found: dict[Any, Any], name: str, change: Callable[..., Any]) -> dict[Any, Any]:
    """The decompositions of an operation, each changed."""
    import torch

    packet = getattr(torch.ops.aten, name)
    operations = [getattr(packet, overload) for overload in packet.overloads()]
    return {operation: change(found[operation]) for operation in operations if operation in found}


def _of_vectors(decomposition: Callable[..., Any], place: int) -> Callable[..., Any]:
    """The decomposition on a vector of one element where it is given a tensor of no axes."""

    def run(*args: Any, **kwargs: Any) -> Any:
        if getattr(args[place], "ndim", 1):
            return decomposition(*args, **kwargs)
        made = decomposition(*args[:place], args[place].reshape((1,)), *args[place + 1 :], **kwargs)
        return made.reshape(())

    return run


def _of_floats(decomposition: Callable[..., Any]) -> Callable[..., Any]:
    def run(x: Any, *args: Any, **kwargs: Any) -> Any:
        return decomposition(x, *args, **kwargs) if x.is_floating_point() else NotImplemented

    return run


def _names_on_lists() -> list[str]:
    import torch

    names = {str(s.name).removeprefix("aten::") for s in torch._C._jit_get_all_schemas()}
    return sorted(n for n in names if n.startswith("_foreach_") and n != "_foreach_powsum")


def _is_by_element(base: str, overload: str) -> bool:
    return overload == "Tensor" and base.removesuffix("_") in BY_ELEMENT


def _onto_target(pure: Any) -> Callable[..., Any]:
    def run(target: Any, *args: Any, **kwargs: Any) -> Any:
        return target.copy_(pure(target, *args, **kwargs))

    return run


def _in_place(base: str) -> Callable[..., Any]:
    """An operation in place of which there is a pure form only."""
    import torch

    return _onto_target(getattr(torch.ops.aten, base.removesuffix("_")))


def _on_each(operation: Any, base: str) -> Callable[..., Any]:
    """The operation on the elements of its lists, one after another; numbers and single tensors go to each."""

    def run(*args: Any, **kwargs: Any) -> Any:
        if base.startswith("addc") and len(args) > 3:  # the number goes by its name there
            args, kwargs = args[:3], {**kwargs, "value": args[3]}
        given = [*args, *kwargs.values()]
        count = next(len(v) for v in given if isinstance(v, (list, tuple)))
        made = [operation(*_at(k, args), **_named(base, k, kwargs)) for k in range(count)]
        return None if base.endswith("_") else made

    return run


def _at(k: int, values: Sequence[Any]) -> list[Any]:
    return [v[k] if isinstance(v, (list, tuple)) else v for v in values]


def _named(base: str, k: int, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Options by their names in the operation on one tensor, where a list of numbers is called otherwise."""
    names = {"scalars": "value"} if base.startswith("addc") else {}
    return {names.get(name, name): v for name, v in zip(kwargs, _at(k, list(kwargs.values())), strict=True)}
