"""The language as its users have it: the catalogue is written as a program of theirs would be.

The face cannot be imported from inside the package, so its names are gathered here again.
"""

from __future__ import annotations

from tedsl.lang.arrays import *  # noqa: F403 - the names of the language
from tedsl.lang.axes import reduce_axis as reduce_axis
from tedsl.lang.compute import compute as compute, placeholder as placeholder
from tedsl.lang.dtypes import DType as DType, as_dtype as as_dtype
from tedsl.lang.elementary import logaddexp as logaddexp
from tedsl.lang.expr import Axis as Axis, Expr as Expr
from tedsl.lang.functions import *  # noqa: F403 - the names of the language
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
from tedsl.lang.scatter import scatter as scatter
from tedsl.lang.tensor import Tensor as Tensor
