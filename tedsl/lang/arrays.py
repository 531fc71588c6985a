"""The whole-tensor operations in one place: attached to tensors as operators and methods, listed for the face.

Each is a compute underneath: what it makes can be inspected, differentiated and scheduled like any other.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tedsl.lang import elementary, functions as fn, quantiles, rearranging, summaries
from tedsl.lang.broadcast import broadcast_to, elementwise, expression_operator, where
from tedsl.lang.contraction import dot, einsum, matmul, outer, tensordot
from tedsl.lang.creation import arange, eye, full, full_like, linspace, one_hot, ones, ones_like, zeros, zeros_like
from tedsl.lang.expr import Expr
from tedsl.lang.indexing import getitem, slice_outside, take, take_along_axis
from tedsl.lang.joining import concatenate, diff, pad, split, stack
from tedsl.lang.keywords import own_arguments
from tedsl.lang.operators import Operators
from tedsl.lang.reducing import cumprod, cumsum, mean, reduction, trace
from tedsl.lang.reshaping import expand_dims, ravel, reshape, squeeze
from tedsl.lang.shaping import diagonal, flip, moveaxis, roll, swapaxes, transpose, tril, triu
from tedsl.lang.sorting import argsort, searchsorted, sort
from tedsl.lang.statistics import log_softmax, logsumexp, norm, softmax, std, variance
from tedsl.lang.tensor import Tensor
from tedsl.lang.titles import named
from tedsl.lang.updates import updated

__all__ = [
    "arange", "broadcast_to", "concatenate", "cumprod", "cumsum", "diagonal", "diff", "dot", "einsum", "expand_dims",
    "eye", "flip", "full", "full_like", "linspace", "log_softmax", "logsumexp", "matmul", "mean", "moveaxis", "norm",
    "one_hot", "ones", "ones_like", "outer", "pad", "ravel", "reshape", "roll", "softmax", "split", "squeeze", "stack",
    "std", "swapaxes", "take", "take_along_axis", "tensordot", "trace", "transpose", "tril", "triu", "where", "zeros",
    "zeros_like",
]  # fmt: skip

_REDUCTIONS = {kind: reduction(kind) for kind in ("sum", "prod", "max", "min", "any", "all", "argmax", "argmin")}
POINTWISE = (
    "abs", "ceil", "clip", "cos", "exp", "floor", "log", "maximum", "minimum", "pow", "relu", "round", "sigmoid",
    "sign", "sin", "sqrt", "tanh", "trunc",
)  # fmt: skip

METHODS: dict[str, Callable[..., Any]] = {
    "getitem": getitem, "matmul": matmul, "transpose": transpose, "permute": transpose, "reshape": reshape,
    "mean": mean,
    "broadcast_to": broadcast_to, "cumprod": cumprod, "cumsum": cumsum, "diagonal": diagonal, "dot": dot,
    "expand_dims": expand_dims, "flatten": ravel, "flip": flip, "moveaxis": moveaxis, "ravel": ravel, "roll": roll,
    "split": split, "squeeze": squeeze, "swapaxes": swapaxes, "take": take, "trace": trace, "tril": tril, "triu": triu,
    **_REDUCTIONS, **{name: getattr(fn, name) for name in POINTWISE},
}  # fmt: skip

# Of tensors alone: traced arrays, which have METHODS too, have their own.
STATISTICS: dict[str, Callable[..., Any]] = {
    "log_softmax": log_softmax, "logsumexp": logsumexp, "norm": norm, "softmax": softmax, "std": std, "var": variance,
}  # fmt: skip

_OF_ONE = (
    "acos", "acosh", "asin", "asinh", "atan", "atanh", "cbrt", "cosh", "erf", "erfc", "exp2", "expm1", "isfinite",
    "isinf", "isnan", "log10", "log1p", "log2", "logical_not", "rsqrt", "sinh", "stop_gradient", "tan",
)  # fmt: skip

Tensor._apply = staticmethod(elementwise)
Tensor._methods.update(METHODS, named=named, slice_outside=slice_outside, updated=updated)
for name, method in {
    **METHODS, **STATISTICS, "argsort": argsort, "diff": diff, **{name: getattr(fn, name) for name in _OF_ONE},
}.items():  # fmt: skip
    if name != "getitem" and name not in vars(Tensor):  # those of the class are written out, for type checkers
        setattr(Tensor, name, own_arguments(f"x.{name}", is_method=True)(method))
Tensor._numpy.update({name: globals()[name] for name in __all__})
Tensor._numpy.update({
    "argsort": argsort, "searchsorted": searchsorted, "sort": sort,
    **_REDUCTIONS, "var": variance, "clip": fn.clip, "size": lambda x: x.size, "round": fn.round, "around": fn.round,
    "np.linalg.norm": norm, "ndim": lambda x: x.ndim, "shape": lambda x: x.shape, "empty_like": zeros_like,
    **{f"atleast_{ndim}d": partial(rearranging.at_least, ndim) for ndim in (1, 2, 3)},
})  # fmt: skip
for module in (elementary, quantiles, rearranging, summaries):
    Tensor._numpy.update({name: getattr(module, name) for name in module.__all__})
Expr._numpy.update({"where": where, "clip": fn.clip, "round": fn.round, "around": fn.round})
Expr._numpy.update({name: getattr(elementary, name) for name in elementary.__all__})
Operators._ufuncs.update({name: getattr(elementary, name) for name in elementary.__all__})
Operators._ufuncs.update(
    degrees=elementary.rad2deg, radians=elementary.deg2rad, positive=lambda x: +x, round=fn.round,
    fabs=lambda x: fn.abs(x if x.dtype.is_float else fn.copysign(x, x)), signbit=lambda x: fn.copysign(1.0, x) < 0,
)  # fmt: skip
Expr._apply = staticmethod(expression_operator)
