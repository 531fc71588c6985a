"""Names that other libraries have, and what is written here instead: for the messages where one is asked for."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import numpy as np

__all__ = [
    "OF_DISPLAY", "OF_METHODS", "OF_MODULES", "OF_TENSORS", "SOLVERS", "WRITTEN", "few_elements", "instead_of",
    "of_three", "spelled", "title_of",
]  # fmt: skip

_DTYPES = (
    "bfloat16", "bool_", "double", "float16", "float32", "float64", "half", "int16", "int32", "int64", "int8", "uint16",
    "uint32", "uint64", "uint8",
)  # fmt: skip

_FFT = (
    "there are no Fourier transforms: te.extern(fn, shape, dtype, args) calls NumPy's, real and imaginary parts apart"
)
_SOLVE = (
    "factorizations are written with te.scan over rows, as docs/linear_algebra.md does (Cholesky, triangular systems, "
    "least squares), or called by te.extern, with an override= as derivative"
)

_RULE = "an override= as derivative"

_SECTION = "docs/differentiating.md has one, under Minimize"
_MINIMIZE = f"scipy.optimize.minimize(te.value_and_grad(f), x, jac=True) does it: {_SECTION}"
_PRODUCTS = (
    "it is a loop of Python over products with the Jacobian, te.jvp(f, (x,), (v,)) and te.differentiate(y, x, head=v): "
    f"{_SECTION}"
)
_SOLVED_BY = {
    _MINIMIZE: "lbfgs LBFGS l_bfgs bfgs BFGS fmin_l_bfgs_b minimize fmin newton_cg line_search nelder_mead optimize",
    "scipy.optimize.least_squares(te.jit(f), x, jac=te.jacobian(f)) does it, of a function of one vector":
        "least_squares leastsq curve_fit",
    "scipy.optimize.root(te.jit(f), x, jac=te.jacobian(f)) does it; for a known number of steps it is te.scan":
        "root fsolve newton brentq bisect root_scalar",
    f"scipy.sparse.linalg.cg does it, of LinearOperator((n, n), matvec=te.jit(product)): {_SECTION}":
        "conjugate_gradient cg gmres bicgstab minres",
    _PRODUCTS: "gauss_newton levenberg_marquardt newton_raphson",
    "it is te.scan of a step, for a known number of steps": "fixed_point odeint solve_ivp",
    "optimizers are in te.ops.optim: SGD, Adam, AdamW": "adam sgd adamw gradient_descent",
    "it is te.hvp": "hessian_vector_product vhp",
    "of an image it is x.at(i - 1, j, mode=...) + ... - 4 * x[i, j] in te.compute, of a function the trace of "
    "te.hessian(f)(x)": "laplacian laplace",
    "it is te.trapezoid of samples": "quad",
    "a product with a sparse matrix is te.scatter over its entries": "sparse",
}  # fmt: skip
SOLVERS = {name: told for told, names in _SOLVED_BY.items() for name in names.split()}

# Functions that are operators or short expressions here.
WRITTEN = {
    "mod": "x % y", "rem": "x - te.trunc(x / y) * y", "bitwise_and": "x & y", "bitwise_or": "x | y",
    "bitwise_xor": "x ^ y",
    "bitwise_not": "~x", "bitwise_invert": "~x", "invert": "~x", "left_shift": "x << n", "right_shift": "x >> n",
    "bitwise_left_shift": "x << n", "bitwise_right_shift": "x >> n", "shift_left": "x << n", "floor_divide": "x // y",
    "shift_right_arithmetic": "x >> n", "float_power": "x ** y", "integer_pow": "x ** n",
    "mul": "x * y", "sub": "x - y", "rsub": "y - x", "div": "x / y", "neg": "-x",
    "equal": "x == y", "eq": "x == y", "not_equal": "x != y", "ne": "x != y", "greater": "x > y", "gt": "x > y",
    "greater_equal": "x >= y", "ge": "x >= y", "less": "x < y", "lt": "x < y", "less_equal": "x <= y", "le": "x <= y",
    "logit": "te.log(p / (1 - p))", "logaddexp2": "te.logaddexp(a * c, b * c) / c, c = math.log(2)",
    "xlogy": "te.where(x == 0, 0, x * te.log(y))", "xlog1py": "te.where(x == 0, 0, x * te.log1p(y))",
    "entr": "te.where(x > 0, -x * te.log(x), 0)", "lerp": "a + w * (b - a)", "frac": "x - te.trunc(x)",
    "addcmul": "x + value * a * b", "addcdiv": "x + value * a / b",
    **dict.fromkeys(("addmm", "addmv", "baddbmm"), "b + x @ y"), "mv": "x @ y", "batch_matmul": "x @ y",
    "matvec": "x @ y",
    "chain_matmul": "x @ y @ z", "vecdot": "te.sum(x * y, -1)", "std_mean": "x.std() and x.mean()",
    "aminmax": "x.min() and x.max()", "softmin": "te.ops.softmax(-x)", "squareplus": "(x + te.sqrt(x * x + b)) / 2",
    "isin": "te.any(x[..., None] == values, -1)", "isposinf": "x == math.inf", "isneginf": "x == -math.inf",
    "nanstd": "te.sqrt(te.nanmean((x - te.nanmean(x)) ** 2))", "nanvar": "te.nanmean((x - te.nanmean(x)) ** 2)",
    "nanprod": "te.prod(te.where(te.isnan(x), 1, x))", "nancumsum": "te.cumsum(te.where(te.isnan(x), 0, x))",
    "cdist": "(x[:, None] - y).norm(axis=-1)", "pairwise_distance": "(x - y).norm(axis=-1)", "dist": "(x - y).norm()",
    "geomspace": "te.exp(te.linspace(a, b, n)), of logarithms", "logspace": "base ** te.linspace(a, b, n)",
    "vander": "x[:, None] ** np.arange(n)", "diag_embed": "x[..., None] * te.eye(n)", "diagflat": "te.diag(x)",
    "tri": "te.tril(te.ones((n, n)))", "t": "x.T", "mT": "x.swapaxes(-1, -2)",
    "matrix_transpose": "x.swapaxes(-1, -2)",
    "ndim": "x.ndim", "shape": "x.shape", "size": "x.size", "numel": "x.size", "flatten": "x.flatten()",
    **dict.fromkeys(("unstack", "unbind"), "x[0], x[1], ..."), "narrow": "x[start : start + length]",
    **dict.fromkeys(("dynamic_slice", "slice_in_dim", "index_in_dim"), "x[i : i + n], or te.take(x, places, axis)"),
    **dict.fromkeys(
        ("dynamic_update_slice", "index_put", "index_fill", "index_copy", "put", "put_along_axis", "place",
         "putmask", "scatter_apply"),
        "x.at[places].set(values)",
    ),
    "rollaxis": "te.moveaxis(x, axis, start)", "unflatten": "x.reshape(shape)",
    "broadcast_arrays": "x.broadcast_to(shape)",
    "piecewise": "te.select of conditions, nested", "choose": "te.select of conditions, nested",
    "bucketize": 'te.searchsorted(bounds, x)', "corrcoef": "te.ops.covariance, by the deviations",
    "block_diag": "te.scatter, or te.select in te.compute", "block": "te.concatenate of te.concatenate",
}  # fmt: skip

# What a function of ours is called elsewhere.
_OTHERWISE = {
    "asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh", "sign": "sgn", "trunc": "fix",
    "clip": "clamp_min clamp_max",
    "cast": "astype convert_element_type", "arange": "iota range", "cumsum": "cumulative_sum",
    "cumprod": "cumulative_prod",
    "transpose": "permute_dims", "moveaxis": "movedim", "swapaxes": "swapdims", "flip": "rev",
    "topk": "top_k partition kthvalue",
    "sort": "msort", "argsort": "argpartition", "repeat": "repeat_interleave", "take_along_axis": "take_along_dim",
    "trapezoid": "trapz", "sum": "reduce_sum", "prod": "reduce_prod", "max": "reduce_max", "min": "reduce_min",
    "any": "reduce_or", "all": "reduce_and", "isfinite": "is_finite", "vstack": "row_stack",
    "scatter": "segment_reduce",
    "vmap": "vectorize apply_along_axis", "save": "savez savez_compressed savetxt",
    "einsum": "dot_general einsum_path",
    "split": "dsplit tensor_split split_with_sizes", "outer": "ger", "where": "select_n", "diff": "ediff1d",
    "pad": "constant_pad_nd", "constant": "from_dlpack asanyarray scalar_tensor ascontiguousarray",
    "sigmoid": "logistic",
    "full": "fill", "unique_counts": "unique_values unique_inverse unique_consecutive", "compute": "fromfunction",
    "ops.silu": "swish hard_silu", "ops.logcumsumexp": "cumlogsumexp",
    "ops.attention": "scaled_dot_product_attention dot_product_attention",
    "ops.grid_sample": "affine_grid grid_sampler", "ops.interpolate": "upsample resize",
    "ops.conv2d": "conv_general_dilated convolution conv",
    "ops.conv_transpose2d": "conv_transpose", "ops.avg_pool2d": "reduce_window", "ops.layer_norm": "standardize",
    "ops.embedding": "embedding_bag", "ops.histogram": "histc histogram2d histogramdd",
    "ops.dropout": "alpha_dropout",
}  # fmt: skip
_SPECIAL = (
    "lgamma gammaln loggamma gamma digamma polygamma betaln beta betainc igamma igammac gammainc gammaincc i0 i0e i1 "
    "i1e erfinv erf_inv erfcx ndtr ndtri log_ndtr zeta expi exp1 expn factorial comb fresnel sici spence"
)
_COMPLEX = "angle conj conjugate real imag iscomplex iscomplexobj isreal view_as_complex view_as_real polar complex"
_DRAWN = "rand_like randn_like randint_like randperm binomial poisson multinomial manual_seed seed rrelu gumbel_softmax"
_SIZED = "argwhere flatnonzero extract compress masked_select trim_zeros union1d intersect1d setdiff1d"
_PLACES = (
    "diag_indices tril_indices triu_indices indices mask_indices hanning hamming "
    "blackman kaiser bartlett hann_window hamming_window gcd lcm combinations cartesian_prod"
)

_TVM = {  # of TVM's tensor expressions
    "create_schedule": "it is te.Schedule(outputs)",
    **dict.fromkeys(("lower", "create_prim_func"), "it is te.build; print(te.Schedule(y)) shows its loops"),
    "comm_reducer": "it is te.reducer",
    "decl_buffer": "it is te.placeholder",
    "tensor_intrin": "it is te.extern",
    "thread_axis": "GPU loops are named in a schedule: s[y].gpu_tile(...)",
    "if_then_else": "it is te.select",
    **dict.fromkeys(("floordiv", "truncdiv"), "it is x // y"),
    **dict.fromkeys(("floormod", "truncmod"), "it is x % y"),
    "size_var": "it is te.var",
    "extern_primfunc": "it is te.extern",
}

OF_MODULES: dict[str, str] = {
    **{name: f'dtypes are strings: "{name.rstrip("_")}"' for name in _DTYPES if name not in ("double", "half")},
    "double": 'dtypes are strings: "float64"', "half": 'dtypes are strings: "float16"',
    **dict.fromkeys(("array", "asarray", "as_tensor", "tensor", "from_numpy"), "it is te.constant(array)"),
    **dict.fromkeys(
        ("detach", "no_grad"),
        "derivatives end at te.stop_gradient(x)",
    ),
    **dict.fromkeys(("copy", "ascontiguousarray", "asfortranarray"), "leave it out: a tensor never changes"),
    **dict.fromkeys(("amax", "amin"), "it is te.max, te.min"),
    **dict.fromkeys(("cat", "concat"), "it is te.concatenate or te.stack"),
    "absolute": "it is te.abs", "add": "it is x + y", "multiply": "it is x * y", "power": "it is te.pow",
    "arccos": "it is te.acos", "arcsin": "it is te.asin", "arctan": "it is te.atan", "arctan2": "it is te.atan2",
    "clamp": "it is te.clip", "permute": "it is te.transpose", "unsqueeze": "it is te.expand_dims",
    "empty": "it is te.zeros", "fori_loop": "it is te.scan",
    "while_loop": "it is te.scan, for a known number of steps",
    **dict.fromkeys(("jacfwd", "jacrev"), "it is te.jacobian"), "linearize": "it is te.jvp",
    "vars": "it is te.var, one at a time", "symbols": "it is te.var, one at a time",
    "run": "it is te.evaluate(x, feeds)",
    "eval": "it is te.evaluate(x, feeds)", "variance": "it is x.var()",
    "compile": "it is te.jit, or te.build",
    "backward": "it is te.differentiate or te.grad", "vjp": "it is te.differentiate(y, x, head=v)",
    "linalg": f"there is te.matmul, te.einsum and x.norm(); {_SOLVE}", "fft": _FFT, "rfft": _FFT, "ifft": _FFT,
    **dict.fromkeys(("cholesky", "solve", "inv", "det", "slogdet", "svd", "eig", "eigh", "qr", "lstsq", "lu"), _SOLVE),
    **SOLVERS,
    "cond": "it is te.select(condition, a, b) of elements, te.where of tensors", "switch": "it is te.select, nested",
    "expit": "it is te.sigmoid",
    "print": "a tensor has no values yet: te.evaluate computes some, te.extern sees them",
    "map": "it is te.compute, or te.vmap(f)", "associative_scan": "it is te.scan",
    "pmap": "kernels use all processors as they are",
    "remat": 'it is te.build(..., checkpoint=[...]) or memory="64MB"',
    "checkpoint": 'it is te.build(..., checkpoint=[...]) or memory="64MB"',
    "custom_vjp": "it is @te.op with def_vjp", "custom_jvp": "it is @te.op with def_jvp",
    "view": "it is x.reshape(shape)", "mm": "it is x @ y", "bmm": "it is x @ y", "subtract": "it is x - y",
    "divide": "it is x / y", "true_divide": "it is x / y", "negative": "it is -x",
    "nn": "layers and losses are in te.ops",
    "optim": "it is te.ops.optim", "gradient": "derivatives are te.grad(f), differences of neighbors te.diff(x)",
    "unique": "it is te.unique_counts", "nonzero": "its size would depend on data; use te.where, or where= of a sum",
    "degrees": "it is te.rad2deg", "radians": "it is te.deg2rad", "around": "it is te.round",
    "rint": "it is te.round", "remainder": "it is x % y", "reciprocal": "it is 1 / x",
    "fmod": "it is x - te.trunc(x / y) * y", "divmod": "it is x // y and x % y", "append": "it is te.concatenate",
    **dict.fromkeys(("rand", "randn", "randint", "normal", "uniform"), "random numbers are in te.random, by keys"),
    "linear": "it is te.ops.dense", "Linear": "it is te.ops.dense",
    "cov": "it is te.ops.covariance", "identity": "it is te.eye",
    "tree_map": "functions of arrays take nests as they are",
    **dict.fromkeys(("interpn", "map_coordinates"), "it is te.ops.grid_sample"),
    "histogram": "it is te.ops.histogram", "bincount": 'it is te.zeros((count,), "int32").at[x].add(1)',
    **{name: f"it is math.{name}" for name in ("e", "inf", "nan", "pi", "tau")}, "newaxis": "it is None: x[:, None]",
    "lax": "lax.scan is te.scan, lax.cond te.select, lax.map te.vmap(f)",
    **dict.fromkeys(("chunk", "array_split", "hsplit", "vsplit"), "it is te.split(x, parts, axis)"),
    **dict.fromkeys(("delete", "insert"), "it is te.concatenate of slices, as of x[:3] and x[4:]"),
    **dict.fromkeys(("array_equal", "array_equiv"), "it is (x == y).all()"),
    "modf": "it is x - te.trunc(x) and te.trunc(x)", "empty_like": "it is te.zeros_like",
    "digitize": 'it is te.searchsorted(bins, x, "right")', "fill_diagonal": "it is te.where(te.eye(n) > 0, value, x)",
    "unwrap": "it is te.cumsum of differences, each less its te.round(d / period) * period",
    "positive": "it is x", "fabs": "it is te.abs", "signbit": "it is te.copysign(1.0, x) < 0",
    **_TVM,
    "correlate": "it is te.convolve(a, v[::-1], mode), of v no longer than a",
    "ctc_loss": "it is not there; it is a recurrence over frames: te.scan of log-probabilities, with te.logaddexp",
    **{f"atleast_{ndim}d": "it is te.expand_dims" for ndim in (1, 2, 3)},
    "unravel_index": "of a shape (m, n) it is p // n and p % n",
    "ravel_multi_index": "of a shape (m, n) it is i * n + j",
    **{name: f"it is {written}" for name, written in WRITTEN.items()},
    **{name: f"it is te.{own}" for own, names in _OTHERWISE.items() for name in names.split()},
    **dict.fromkeys(_SPECIAL.split(), f"it is not there; te.extern calls SciPy's, with {_RULE}"),
    **dict.fromkeys(_COMPLEX.split(), "there are no complex numbers: write real and imaginary parts, as two tensors"),
    **dict.fromkeys(_DRAWN.split(), "random numbers are in te.random, by keys"),
    **dict.fromkeys(_SIZED.split(), "its size would depend on data; use te.where, or where= of a sum"),
    **dict.fromkeys(_PLACES.split(), "it is that of NumPy, whose arrays are constants here"),
}  # fmt: skip

# What methods of NumPy's functions of numbers do here: np.add.reduce(x) is te.sum(x).
OF_METHODS: dict[tuple[str, str], str] = {
    **{("reduce", name): f"te.{own}(x, axis)" for name, own in {
        "add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min", "fmax": "nanmax", "fmin": "nanmin",
        "logical_and": "all", "logical_or": "any", "logaddexp": "logsumexp",
    }.items()},
    **{("accumulate", name): f"te.{own}" for name, own in {
        "add": "cumsum(x, axis)", "multiply": "cumprod(x, axis)", "maximum": "ops.cummax(x, axis)[0]",
        "minimum": "ops.cummin(x, axis)[0]", "logaddexp": "ops.logcumsumexp(x, axis)",
    }.items()},
    **{("outer", name): f"x[:, None] {sign} y[None]" for name, sign in {
        "add": "+", "subtract": "-", "multiply": "*", "divide": "/", "floor_divide": "//", "remainder": "%",
        "power": "**", "equal": "==", "not_equal": "!=", "less": "<", "less_equal": "<=", "greater": ">",
        "greater_equal": ">=",
    }.items()},
    **{("at", name): f"x.at[places].{own}(values)" for name, own in {
        "add": "add", "subtract": "subtract", "multiply": "multiply", "divide": "divide", "maximum": "max",
        "minimum": "min",
    }.items()},
}  # fmt: skip
_ANY_METHOD = {
    "reduce": "it is te.reducer of such a function, over an axis", "accumulate": "it is te.scan, step by step",
    "outer": "it is that function of x[:, None] and y[None]", "at": "it is te.scatter",
    "reduceat": "it is te.scatter, or te.ops.segment_sum",
}  # fmt: skip

# What is in te.display and has other names elsewhere.
OF_DISPLAY = {"tqdm": "progress", "trange": "progress", "progress_bar": "progress"}

_CONVERSIONS = {
    "float": "float32", "double": "float64", "half": "float16", "bfloat16": "bfloat16", "long": "int64",
    "int": "int32",
    "short": "int16", "byte": "uint8", "char": "int8", "bool": "bool",
    **{name: name for name in _DTYPES if name[-1].isdigit()},
}  # fmt: skip
_VALUE = "te.evaluate(x, feeds) computes it"
OF_TENSORS: dict[str, str] = {
    **dict.fromkeys(
        ("eval", "compute", "run", "item", "numpy", "tolist", "cpu", "cuda"), f"a tensor has no values yet; {_VALUE}"
    ),
    "nbytes": "write x.size * itemsize: a tensor has no memory, kern.stats tells that of a kernel",
    **dict.fromkeys(
        ("backward", "grad", "requires_grad", "requires_grad_"),
        "derivatives are te.differentiate(y, x), or te.grad(f)",
    ),
    **dict.fromkeys(("detach", "stop_gradient"), "write te.stop_gradient(x)"),
    **{name: f'write x.astype("{dtype}")' for name, dtype in _CONVERSIONS.items()},
    **dict.fromkeys(("to", "type", "type_as"), "write x.astype(dtype); arrays say where a call runs"),
    **dict.fromkeys(("device", "is_cuda", "data"), "a tensor has no memory: arrays have, and say where a call runs"),
    **dict.fromkeys(("contiguous", "block_until_ready"), "leave it out"), "mm": "write x @ y", "bmm": "write x @ y",
    "mv": "write x @ y", "add": "write x + y", "sub": "write x - y", "mul": "write x * y", "div": "write x / y",
    "neg": "write -x", "repeat": "write te.tile(x, counts), or te.repeat",
    "values": f"a tensor has no values yet; {_VALUE}",
    "index_select": "write te.take(x, index, axis)", "scatter_add": "write te.ops.scatter_add(x, axis, index, src)",
    "index_add": "write te.ops.index_add(x, axis, index, source)", "apply": "write a function of tensors",
    "map": "write a function of tensors",
    "view": "write x.reshape(shape)", "view_as": "write x.reshape(y.shape)", "unsqueeze": "write x.expand_dims(axis)",
    "dim": "write x.ndim", "numel": "write x.size", "t": "write x.T", "mT": "write x.swapaxes(-1, -2)",
    "amax": "write x.max(axis)", "amin": "write x.min(axis)", "clamp": "write x.clip(low, high)",
    "expand": "write x.broadcast_to(shape)", "sort": "write te.sort(x, axis)", "topk": "write te.topk(x, k, axis)",
    "copy": "tensors are values, x is its own copy", "clone": "tensors are values, x is its own copy",
    "nonzero": OF_MODULES["nonzero"], "masked_fill": "write te.where(mask, value, x)",
    "gather": "write te.take_along_axis(x, index, axis)",
    "median": "write te.sort(x, axis) and read its middle", "add_": "write x + y",
    "fill": "write te.full_like(x, value)", "chunk": "write te.split(x, parts, axis)",
}  # fmt: skip


# Functions of two arguments for which others have a third one, or for which NumPy has out= there.
_OF_TWO = frozenset(("maximum", "minimum", "logaddexp", "logical_and", "logical_or"))


def of_three(name: str) -> str:
    """What is written for a function of two and three arguments; nothing of other functions."""
    name = name.removeprefix("te.")
    return f"of three it is te.{name}(te.{name}(a, b), c)" if name in _OF_TWO else ""


def few_elements(element: str, other: str) -> str:
    """What is written for a function of an array of a few elements, of which an example calls one `other`."""
    return (
        f"a mean or a maximum of a few elements is written out, ({element} + {other}) / 2, te.maximum({element}, "
        f"{other}); of many it is te.sum(lambda k: ..., axis=3) and the like"
    )


def title_of(function: Any) -> str:
    """A function of NumPy as a program calls it: np.sum, np.linalg.norm, scipy.special.expit."""
    name = str(function.__name__)
    if getattr(np, name, None) is function:
        return f"np.{name}"
    if isinstance(function, np.ufunc):  # which do not say where they are from
        special = sys.modules.get("scipy.special")
        return f"scipy.special.{name}" if getattr(special, name, None) is function else name
    return f"{function.__module__}.{name}".replace("numpy.", "np.", 1)


def spelled(name: str, known: Iterable[str]) -> str:
    """The name among those known that differs by underscores and capitals only; nothing where there is none."""
    bare = name.lower().replace("_", "")
    return next((own for own in known if own.lower().replace("_", "") == bare), "")


def instead_of(title: str, method: str = "__call__") -> str:
    """What is written here for a function of another library, or a method of one, as the end of a message."""
    module, _, name = title.rpartition(".")
    if method in _ANY_METHOD:
        own = OF_METHODS.get((method, name))
        return f"it is {own}" if own else _ANY_METHOD[method]
    if title == "np.select":
        return "it is te.where(c, a, te.where(d, b, default)), nested"
    if module == "np.fft":
        return _FFT
    return OF_MODULES.get(name, "write it with tedsl's functions")
