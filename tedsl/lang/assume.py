"""`te.assume` and `te.index_map`: what algebra cannot know of an index, said by whoever knows it.

Where an index is data, its read has no inverse that could be found, and the gradient is a scatter. A fact says more: of
a permutation each element is read once, at a place that its inverse has; a sorted index reads runs; no two points of
a unique one read the same. `te.checked()` verifies what was said.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tedsl.lang import functions as fn
from tedsl.lang.dtypes import INT32
from tedsl.lang.elements import as_tensor, fresh_axes, normal_axis, shape_text, tensor_of
from tedsl.lang.errors import user_location
from tedsl.lang.expr import Axis, Const, Expr, Read
from tedsl.lang.extents import same_extent
from tedsl.lang.keywords import own_arguments
from tedsl.lang.native import Native
from tedsl.lang.pickling import made_again
from tedsl.lang.tensor import Compute, Extern, IndexFacts, Shape, Tensor
from tedsl.lang.titles import takes_variables

__all__ = ["IndexMap", "assume", "facts_of", "index_map"]


@takes_variables
def assume(
    idx: Any,
    permutation: bool = False,
    unique: bool = False,
    sorted: bool = False,
    within: tuple[Any, Any] | None = None,
    inverse: Any = None,
    *,
    axis: int = -1,
) -> Tensor:
    """`idx`, with facts about it that gradients use. They hold along `axis`, for each place of the other axes.

    `permutation`: every place is there once; give its `inverse` if you have it. `unique`: no place is there twice.
    `sorted`: places ascend. `within=(lo, hi)`: lo <= idx < hi. With such a fact the gradient of a read at `idx` is a
    gather through the inverse, a sum over runs, or a scatter whose points never meet. A false fact makes a gradient
    wrong: `with te.checked():` looks at every call, and says which fact does not hold.
    """
    what = "te.assume"
    tensor = as_tensor(idx, what)
    if not tensor.dtype.is_integer or not tensor.ndim:
        raise TypeError(f"{what} at {user_location()}: expected a tensor of integers with an axis, found {tensor!r}")
    if inverse is not None and not permutation:
        raise ValueError(f"{what} at {user_location()}: inverse= is that of a permutation; say permutation=True")
    limits = None if within is None else _limits(within, what)
    if not (permutation or unique or sorted or limits):
        raise ValueError(
            f"{what} at {user_location()}: nothing is assumed of {tensor!r}; say permutation=True, unique=True, "
            "sorted=True or within=(lo, hi)"
        )
    back = None if inverse is None else _checked_inverse(as_tensor(inverse, what), tensor, what)
    facts = IndexFacts(permutation, unique or permutation, sorted, limits, back, normal_axis(axis, tensor.ndim, what))
    return _assumed(tensor, facts)


def _assumed(tensor: Tensor, facts: IndexFacts) -> Tensor:
    axes = fresh_axes(tensor.extents)
    return Compute(name=f"{tensor.name}_assumed", axes=axes, bodies=(Read(tensor, axes),), facts=facts).output()


def _limits(within: Any, what: str) -> tuple[Expr, Expr]:
    if not isinstance(within, (tuple, list)) or len(within) != 2:
        raise ValueError(f"{what} at {user_location()}: within=(lo, hi) are two integers, found {within!r:.40}")
    low, high = map(fn.as_expr, within)
    if not (low.dtype.may_be_integer and high.dtype.may_be_integer):
        raise TypeError(f"{what} at {user_location()}: within=(lo, hi) are integers, found {within!r:.40}")
    return low, high


def _checked_inverse(inverse: Tensor, tensor: Tensor, what: str) -> Tensor:
    fits = inverse.ndim == tensor.ndim and all(map(same_extent, inverse.extents, tensor.extents))
    if not inverse.dtype.is_integer or not fits:
        raise ValueError(
            f"{what} at {user_location()}: expected an inverse of integers of the shape {shape_text(tensor.extents)}, "
            f"found {inverse!r}"
        )
    return inverse


def facts_of(tensor: Tensor) -> IndexFacts | None:
    """What is known of the elements of a tensor: said, or because of what computed it."""
    op = tensor.op
    if isinstance(op, Compute):
        return op.facts if tensor.index == 0 else None
    if isinstance(op, Extern) and isinstance(op.function, Native) and op.function.routine == "order" and tensor.index:
        axis = op.function.axis
        extent = op.args[0].extents[axis]
        return IndexFacts(same_extent(extent, tensor.extents[axis]), True, within=(Const(0, INT32), extent), axis=axis)
    return None


class IndexMap:
    """A function of an index and its inverse: `m(i)` for an axis i, `m.over(n)` the tensor of all n places."""

    def __init__(self, function: Callable[[Any], Any], inverse: Callable[[Any], Any] | None) -> None:
        self.function, self.inverse = function, inverse
        self._tables: dict[Expr, Tensor] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return made_again("te.index_map", IndexMap, self.function, self.inverse)

    def __deepcopy__(self, memo: object) -> IndexMap:  # as of a function
        return self

    def over(self, extent: Any) -> Tensor:
        """The places of 0, 1, .., extent - 1, which are these numbers in another order."""
        count = fn.as_expr(extent)
        if count not in self._tables:
            self._tables[count] = self._table(count)
        return self._tables[count]

    def _table(self, extent: Expr) -> Tensor:
        name = getattr(self.function, "__name__", "map").strip("<>")
        shape: Shape = (extent,)
        table = tensor_of(shape, lambda i: _place(self.function(i)), name)
        if self.inverse is None:
            return assume(table, permutation=True)
        back = self.inverse
        return assume(table, permutation=True, inverse=tensor_of(shape, lambda i: _place(back(i)), f"{name}_inverse"))

    def __call__(self, axis: Any) -> Expr:
        """The place of an axis of a known extent."""
        if not isinstance(axis, Axis) or axis.extent is None:
            raise TypeError(
                f"te.index_map at {user_location()}: expected an axis whose extent is known, found {axis!r:.40}; give "
                "te.compute a shape, or read m.over(n)[..]"
            )
        return Read(self.over(axis.extent), (axis - axis.begin,))


def _place(value: Any) -> Expr:
    place: Expr = fn.as_expr(value)
    if not place.dtype.is_integer:
        raise TypeError(f"te.index_map at {user_location()}: expected an integer, found {place.dtype} `{place}`")
    return place


@own_arguments()
def index_map(fn: Callable[[Any], Any], inverse: Callable[[Any], Any] | None = None) -> IndexMap:
    """A rearrangement of 0 .. n-1 that algebra cannot invert: `fn` of an index and, if known, `inverse` of a place.

    `m = te.index_map(f, inverse=g); te.compute((n,), lambda i: x[m(i)])` is differentiated by a gather at g.
    """
    for function in (fn, inverse):
        if function is not None and not callable(function):
            raise TypeError(f"te.index_map at {user_location()}: expected functions, found {function!r:.40}")
    return IndexMap(fn, inverse)
