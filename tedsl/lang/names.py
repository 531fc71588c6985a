"""Names that other libraries have, and what is written here instead: for the messages where one is asked for."""

from __future__ import annotations

__all__ = ["OF_MODULES", "OF_TENSORS"]

_DTYPES = (
    "bfloat16", "bool_", "double", "float16", "float32", "float64", "half", "int16", "int32", "int64", "int8", "uint16",
    "uint32", "uint64", "uint8",
)  # fmt: skip

OF_MODULES: dict[str, str] = {
    **{name: f'dtypes are strings: "{name.rstrip("_")}"' for name in _DTYPES if name not in ("double", "half")},
    "double": 'dtypes are strings: "float64"', "half": 'dtypes are strings: "float16"',
    **dict.fromkeys(("array", "asarray", "as_tensor", "tensor", "from_numpy"), "it is te.constant(array)"),
    **dict.fromkeys(
        ("stop_gradient", "detach", "no_grad"),
        "say it where the derivative is taken: te.differentiate(y, x, override={t: lambda t, inputs, head: [None]})",
    ),
    **dict.fromkeys(("amax", "amin"), "it is te.max, te.min"),
    **dict.fromkeys(("cat", "concat"), "it is te.concatenate or te.stack"),
    "absolute": "it is te.abs", "add": "it is x + y", "multiply": "it is x * y", "power": "it is te.pow",
    "arccos": "it is te.acos", "arcsin": "it is te.asin", "arctan": "it is te.atan", "arctan2": "it is te.atan2",
    "clamp": "it is te.clip", "permute": "it is te.transpose", "unsqueeze": "it is te.expand_dims",
    "empty": "it is te.zeros", "fori_loop": "it is te.scan", "while_loop": "it is te.scan, for a known number of steps",
    "variance": "it is x.var()", "norm": "it is x.norm()", "compile": "it is te.jit, or te.build",
    "backward": "it is te.differentiate or te.grad", "vjp": "it is te.differentiate(y, x, head=v)",
    "linalg": "there is te.matmul, te.einsum and x.norm()", "nn": "layers and losses are in te.ops",
    "optim": "it is te.ops.optim", "gradient": "derivatives are te.grad(f), differences of neighbors te.diff(x)",
    "unique": "it is te.unique_counts", "nonzero": "its size would depend on data; use te.where, or where= of a sum",
    "degrees": "it is te.rad2deg", "radians": "it is te.deg2rad", "around": "it is te.round",
    "cov": "it is te.ops.covariance", "identity": "it is te.eye",
    "tree_map": "functions of arrays take nests as they are",
    **dict.fromkeys(("interpn", "map_coordinates"), "it is te.ops.grid_sample"),
    "histogram": "it is te.ops.histogram", "bincount": "it is te.scatter",
}  # fmt: skip

_VALUE = "te.evaluate(x, feeds) computes it"
OF_TENSORS: dict[str, str] = {
    **dict.fromkeys(("item", "numpy", "tolist", "cpu", "cuda"), f"a tensor has no values yet; {_VALUE}"),
    **dict.fromkeys(("backward", "grad", "requires_grad"), "derivatives are te.differentiate(y, x), or te.grad(f)"),
    **dict.fromkeys(("detach", "stop_gradient"), OF_MODULES["stop_gradient"]),
    **dict.fromkeys(("float", "int", "double", "half", "long", "bool", "to", "type"), 'write x.astype("float32")'),
    "view": "write x.reshape(shape)", "view_as": "write x.reshape(y.shape)", "unsqueeze": "write x.expand_dims(axis)",
    "dim": "write x.ndim", "numel": "write x.size", "t": "write x.T", "mT": "write x.swapaxes(-1, -2)",
    "amax": "write x.max(axis)", "amin": "write x.min(axis)", "clamp": "write x.clip(low, high)",
    "expand": "write x.broadcast_to(shape)", "sort": "write te.sort(x, axis)", "topk": "write te.topk(x, k, axis)",
    "copy": "tensors are values, x is its own copy", "clone": "tensors are values, x is its own copy",
    "nonzero": OF_MODULES["nonzero"], "masked_fill": "write te.where(mask, value, x)",
    "log_softmax": "write te.ops.log_softmax(x, axis)", "gather": "write te.take_along_axis(x, index, axis)",
    "median": "write te.sort(x, axis) and read its middle", "add_": "write x + y",
    "fill": "write te.full_like(x, value)",
}  # fmt: skip
