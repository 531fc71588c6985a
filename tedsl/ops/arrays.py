"""What is an array among the arguments and results of functions, and what is static."""

from __future__ import annotations

from typing import Any

import numpy as np

from tedsl.analysis.arrays import nests
from tedsl.lang.dataclass import dataclass
from tedsl.lang.expr import Apply, Const, Expr, Var
from tedsl.lang.tensor import Tensor
from tedsl.lang.traverse import topological

__all__ = ["Static", "is_array"]


@dataclass(frozen=True, eq=False)
class Static:
    """A part of a result that is no tensor, and comes back as it is: None where there is no gradient, a number."""

    value: Any


PROTOCOLS = ("__dlpack__", "__array_interface__", "__array__", "__cuda_array_interface__")


def is_array(value: Any) -> bool:
    """A tensor, or an array of some framework; NumPy scalars are values like Python's."""
    if isinstance(value, (np.ndarray, Tensor)):
        return True
    if isinstance(value, Expr):
        return not is_size(value)
    if isinstance(value, (*nests.PLAIN, tuple, list, dict, np.generic, type)):
        return False
    return any(hasattr(value, name) for name in PROTOCOLS)


def is_size(value: Expr) -> bool:
    """Whether an expression is made of sizes alone, as the extents of tensors are: a static argument."""
    nodes = topological(value)
    return any(isinstance(e, Var) for e in nodes) and all(isinstance(e, (Var, Const, Apply)) for e in nodes)
