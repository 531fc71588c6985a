"""Tensor expressions with gradients and schedules, compiled by Halide: everything public, found on first use.

Nothing is defined here. A name is imported from its home when it is first asked for, so that `import tedsl` is quick
and neither Halide, sympy nor hypothesis is loaded before it is needed. Type checkers read the block under
TYPE_CHECKING; a test holds it equal to the table.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

_PUBLIC: dict[str, tuple[str, ...]] = {
    "autodiff": ("differentiate",),
    "tedsl.analysis.arrays.files": ("load", "save"),
    "tedsl.analysis.work": ("Work", "work"),
    "tedsl.backend.build": ("Schedule", "build", "evaluate"),
    "tedsl.backend.arguments.device_memory": ("free_device_memory",),
    "tedsl.backend.arguments.host_memory": ("free_memory",),
    "tedsl.backend.compiling.profiling": ("profile",),
    "tedsl.backend.host.threads": ("get_num_threads", "set_num_threads"),
    "tedsl.backend.tune": ("Tuned", "tune"),
    "tedsl.lang.arrays": (
        "arange", "broadcast_to", "concatenate", "cumprod", "cumsum", "diagonal", "diff", "dot", "einsum",
        "expand_dims", "eye", "flip", "full", "full_like", "linspace", "log_softmax", "logsumexp", "matmul", "mean",
        "moveaxis", "norm", "one_hot", "ones", "ones_like", "outer", "pad", "ravel", "reshape", "roll", "softmax",
        "split", "squeeze", "stack", "std", "swapaxes", "take", "take_along_axis", "tensordot", "trace", "transpose",
        "tril", "triu", "where", "zeros", "zeros_like",
    ),
    "tedsl.lang.assume": ("assume", "index_map"),
    "tedsl.lang.axes": ("reduce_axis", "var"),
    "tedsl.lang.compute": ("compute", "placeholder"),
    "tedsl.lang.constants": ("constant",),
    "tedsl.lang.elementary": (
        "deg2rad", "fmax", "fmin", "heaviside", "isclose", "logaddexp", "logical_xor", "nan_to_num",
        "rad2deg", "sinc", "softplus", "square",
    ),
    "tedsl.lang.quantiles": ("interp", "median", "percentile", "quantile"),
    "tedsl.lang.rearranging": (
        "column_stack", "diag", "dstack", "fliplr", "flipud", "hstack", "kron", "meshgrid", "repeat",
        "rot90", "tile", "vstack",
    ),
    "tedsl.lang.summaries": (
        "allclose", "average", "convolve", "count_nonzero", "cross", "inner", "nanmax",
        "nanmean", "nanmin", "nansum", "polyval", "ptp", "trapezoid", "vdot",
    ),
    "tedsl.lang.errors": ("AliasError", "GradientError", "ScheduleError"),
    "tedsl.lang.expr": ("Axis", "Expr"),
    "tedsl.lang.functions": (
        "abs", "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cast", "cbrt", "ceil", "clip", "const",
        "copysign", "cos", "cosh", "erf", "erfc", "exp", "exp2", "expm1", "floor", "hypot", "isfinite", "isinf",
        "isnan", "log", "log10", "log1p", "log2", "logical_and", "logical_not", "logical_or", "maximum", "minimum",
        "pow", "relu", "round", "rsqrt", "select", "sigmoid", "sign", "sin", "sinh", "sqrt", "stop_gradient", "tan",
        "tanh", "trunc",
    ),
    "tedsl.lang.reducers": ("all", "any", "argmax", "argmin", "max", "min", "prod", "reducer", "sum"),
    "tedsl.lang.scan": ("scan",),
    "tedsl.lang.scatter": ("extern", "scatter"),
    "tedsl.lang.sorting": ("argsort", "searchsorted", "sort", "topk", "unique_counts"),
    "tedsl.lang.tensor": ("Tensor",),
    "tedsl.analysis.checked": ("checked",),
    "tedsl.bridges.fx.graphs": ("from_fx",),
    "tedsl.mutation.functional": ("functionalize",),
    "tedsl.mutation.memory": ("copy", "may_alias"),
    "tedsl.ops.op": ("op",),
    "tedsl.ops.transforms.batches": ("vmap",),
    "tedsl.ops.transforms.checking": ("gradcheck",),
    "tedsl.ops.transforms.compilation": ("jit",),
    "tedsl.ops.transforms.derivatives": ("grad", "hessian", "jacobian", "value_and_grad"),
    "tedsl.ops.transforms.forward": ("hvp", "jvp"),
    "tedsl.reference": ("interpret",),
}  # fmt: skip

_HOME = {name: module for module, names in _PUBLIC.items() for name in names}
_PACKAGES = (
    "dask",
    "display",
    "ops",
    "random",
    "testing",
)  # public packages: reached as `te.ops` without an import of their own

__all__ = sorted([*_HOME, *_PACKAGES])

if TYPE_CHECKING:
    from autodiff import differentiate as differentiate
    from tedsl import dask as dask, display as display, ops as ops, random as random, testing as testing
    from tedsl.analysis.arrays.files import load as load, save as save
    from tedsl.analysis.checked import checked as checked
    from tedsl.analysis.work import Work as Work, work as work
    from tedsl.backend.arguments.device_memory import free_device_memory as free_device_memory
    from tedsl.backend.arguments.host_memory import free_memory as free_memory
    from tedsl.backend.build import Schedule as Schedule, build as build, evaluate as evaluate
    from tedsl.backend.compiling.profiling import profile as profile
    from tedsl.backend.host.threads import get_num_threads as get_num_threads, set_num_threads as set_num_threads
    from tedsl.backend.tune import Tuned as Tuned, tune as tune
    from tedsl.bridges.fx.graphs import from_fx as from_fx
    from tedsl.lang.arrays import *  # noqa: F403 - exactly its names of the table
    from tedsl.lang.assume import assume as assume, index_map as index_map
    from tedsl.lang.axes import reduce_axis as reduce_axis, var as var
    from tedsl.lang.compute import compute as compute, placeholder as placeholder
    from tedsl.lang.constants import constant as constant
    from tedsl.lang.elementary import *  # noqa: F403 - exactly its names of the table
    from tedsl.lang.errors import (
        AliasError as AliasError,
        GradientError as GradientError,
        ScheduleError as ScheduleError,
    )
    from tedsl.lang.expr import Axis as Axis, Expr as Expr
    from tedsl.lang.functions import *  # noqa: F403 - exactly its names of the table
    from tedsl.lang.quantiles import *  # noqa: F403 - exactly its names of the table
    from tedsl.lang.rearranging import *  # noqa: F403 - exactly its names of the table
    from tedsl.lang.reducers import (
        all as all,
        any as any,
        argmax as argmax,
        argmin as argmin,
        max as max,
        min as min,
        prod as prod,
        reducer as reducer,
        sum as sum,
    )
    from tedsl.lang.scan import scan as scan
    from tedsl.lang.scatter import extern as extern, scatter as scatter
    from tedsl.lang.sorting import (
        argsort as argsort,
        searchsorted as searchsorted,
        sort as sort,
        topk as topk,
        unique_counts as unique_counts,
    )
    from tedsl.lang.summaries import *  # noqa: F403 - exactly its names of the table
    from tedsl.lang.tensor import Tensor as Tensor
    from tedsl.mutation.functional import functionalize as functionalize
    from tedsl.mutation.memory import copy as copy, may_alias as may_alias
    from tedsl.ops.op import op as op
    from tedsl.ops.transforms.batches import vmap as vmap
    from tedsl.ops.transforms.checking import gradcheck as gradcheck
    from tedsl.ops.transforms.compilation import jit as jit
    from tedsl.ops.transforms.derivatives import (
        grad as grad,
        hessian as hessian,
        jacobian as jacobian,
        value_and_grad as value_and_grad,
    )
    from tedsl.ops.transforms.forward import hvp as hvp, jvp as jvp
    from tedsl.reference import interpret as interpret

    __version__: str

else:

    def _instead(name: str) -> str:
        """What a name of another library is called here, as the end of a message."""
        if name.startswith("_"):
            return ""
        from tedsl import display, ops
        from tedsl.lang.names import OF_DISPLAY, OF_MODULES, spelled

        if name in OF_MODULES:
            return f": {OF_MODULES[name]}"
        if name in ("SGD", "Adam", "AdamW", "train_step"):
            return f": it is te.ops.optim.{name}"
        if own := spelled(name, __all__):
            return f": it is te.{own}"
        if own := spelled(name, ops.__all__):
            return f": it is te.ops.{own}"
        own = spelled(name, display.__all__) or OF_DISPLAY.get(name, "")
        return f": it is te.display.{own}" if own else ""

    # Hidden from type checkers, to whom it would make every name exist

    def __getattr__(name: str) -> object:
        if name == "__version__":
            from importlib.metadata import version

            value: object = version("tedsl")
        elif name in _PACKAGES:
            value = import_module(f"tedsl.{name}")
        elif name in _HOME:
            value = getattr(import_module(_HOME[name]), name)
        else:
            # With name and obj set, Python itself adds "Did you mean: 'placeholder'?" to the traceback.
            raise AttributeError(
                f"module 'tedsl' has no attribute {name!r}{_instead(name)}", name=name, obj=sys.modules[__name__]
            )
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*(name for name in globals() if name.startswith("__")), *__all__})
