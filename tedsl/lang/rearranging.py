"""Tensors put together, repeated and turned as NumPy's functions do it, made of those of `joining` and `shaping`."""

from __future__ import annotations

from typing import Any

from tedsl.lang import functions as fn
from tedsl.lang.broadcast import broadcast_to
from tedsl.lang.elements import as_tensor, as_tensors, normal_axis, tensor_of
from tedsl.lang.errors import user_location
from tedsl.lang.expr import Read
from tedsl.lang.extents import number, simplify_extent
from tedsl.lang.joining import concatenate
from tedsl.lang.reshaping import expand_dims, ravel, reshape
from tedsl.lang.shaping import as_int, diagonal, flip, swapaxes
from tedsl.lang.tensor import Tensor
from tedsl.lang.titles import takes_variables

__all__ = [
    "column_stack", "diag", "dstack", "fliplr", "flipud", "hstack", "kron", "meshgrid", "repeat", "rot90", "tile",
    "vstack",
]  # fmt: skip


def _each(tensors: Any, what: str, ndim: int) -> list[Tensor]:
    """The tensors of a sequence, those of fewer dimensions with further ones in front."""
    if isinstance(tensors, Tensor) or not isinstance(tensors, (list, tuple)):
        raise TypeError(f"{what} at {user_location()}: expected a list of tensors, found {type(tensors).__name__}")
    parts = as_tensors(tensors, what)
    return [reshape(p, (*[1] * (ndim - p.ndim), *p.shape)) if p.ndim < ndim else p for p in parts]


def at_least(ndim: int, *tensors: Any) -> Any:
    """Tensors of so many dimensions or more, new ones where NumPy's atleast_1d, atleast_2d and atleast_3d put them."""
    parts = as_tensors(tensors, f"np.atleast_{ndim}d")
    made = tuple(expand_dims(p, 2) if ndim == 3 and p.ndim == 2 else p for p in parts)
    made = tuple(reshape(p, (1, *p.shape, 1)) if ndim == 3 and p.ndim == 1 else p for p in made)
    made = tuple(reshape(p, (*[1] * (ndim - p.ndim), *p.shape)) if p.ndim < ndim else p for p in made)
    return made[0] if len(made) == 1 else made


@takes_variables
def hstack(tensors: Any) -> Tensor:
    """Side by side: joined along the second axis, vectors along their only one."""
    parts = _each(tensors, "te.hstack", 1)
    return concatenate(parts, 1 if parts and parts[0].ndim > 1 else 0)


@takes_variables
def vstack(tensors: Any) -> Tensor:
    """One below the other: joined along the first axis, vectors as rows."""
    return concatenate(_each(tensors, "te.vstack", 2), 0)


@takes_variables
def dstack(tensors: Any) -> Tensor:
    """One behind the other: joined along the third axis."""
    parts = [expand_dims(p, 2) if p.ndim == 2 else p for p in _each(tensors, "te.dstack", 2)]
    return concatenate(parts, 2)


@takes_variables
def column_stack(tensors: Any) -> Tensor:
    """Vectors as the columns of a matrix; matrices side by side."""
    return concatenate([expand_dims(p, 1) if p.ndim == 1 else p for p in _each(tensors, "te.column_stack", 1)], 1)


@takes_variables
def tile(x: Any, reps: Any) -> Tensor:
    """The tensor `reps` times along each axis: a number for the last one, or one for each."""
    source, what = as_tensor(x, "te.tile"), "te.tile"
    counts = [as_int(r, what) for r in (reps if isinstance(reps, (tuple, list)) else (reps,))]
    ndim = max(source.ndim, len(counts))
    wide = reshape(source, (*[1] * (ndim - source.ndim), *source.shape)) if source.ndim < ndim else source
    counts = [1] * (ndim - len(counts)) + counts
    if min(counts, default=0) < 0:
        raise ValueError(f"{what} at {user_location()}: expected counts of 0 or more, found {reps!r}")
    shape = tuple(simplify_extent(n * c) for n, c in zip(wide.extents, counts, strict=True))

    def element(*axes: Any) -> Any:
        pairs = zip(axes, _divisors(wide), counts, strict=True)
        return Read(wide, tuple(a if c == 1 else a % n for a, n, c in pairs))

    return tensor_of(shape, element, f"{source.name}_tile")


@takes_variables
def repeat(x: Any, repeats: int, axis: Any = None) -> Tensor:
    """Each element `repeats` times in a row along `axis` (of the flattened tensor when None)."""
    source, what = as_tensor(x, "te.repeat"), "te.repeat"
    if axis is None:
        source, axis = ravel(source), 0
    dim, count = normal_axis(axis, source.ndim, what), as_int(repeats, what)
    if count < 0:
        raise ValueError(f"{what} at {user_location()}: expected a count of 0 or more, found {count}")
    shape = tuple(simplify_extent(n * count) if d == dim else n for d, n in enumerate(source.extents))

    def element(*axes: Any) -> Any:
        return Read(source, tuple(a // max(count, 1) if d == dim else a for d, a in enumerate(axes)))

    return tensor_of(shape, element, f"{source.name}_repeat")


@takes_variables
def diag(x: Any, k: int = 0) -> Tensor:
    """The diagonal `k` of a matrix; of a vector, the matrix with it on its diagonal `k`."""
    source, offset = as_tensor(x, "te.diag"), as_int(k, "te.diag")
    if source.ndim == 2:
        return diagonal(source, offset)
    if source.ndim != 1:
        raise ValueError(f"te.diag at {user_location()}: expected a vector or a matrix, found {source!r}")
    size = simplify_extent(source.extents[0] + abs(offset))

    def element(i: Any, j: Any) -> Any:
        place = i if offset >= 0 else j
        return fn.select(j == i + offset, Read(source, (place,)), fn.convert(0, source.dtype))

    return tensor_of((size, size), element, f"{source.name}_diag")


@takes_variables
def meshgrid(*vectors: Any, indexing: str = "xy") -> tuple[Tensor, ...]:
    """For each vector a tensor over the grid of all of them; the first two axes are exchanged by "xy", as in NumPy."""
    if indexing not in ("xy", "ij"):
        raise ValueError(f"te.meshgrid at {user_location()}: indexing is 'xy' or 'ij', found {indexing!r:.40}")
    given = [ravel(as_tensor(v, "te.meshgrid")) for v in vectors]
    order = list(range(len(given)))
    if indexing == "xy" and len(given) > 1:
        order[:2] = 1, 0
    shape = tuple(given[d].extents[0] for d in order)
    wide = [reshape(v, tuple(v.shape[0] if d == place else 1 for d in order)) for place, v in enumerate(given)]
    return tuple(broadcast_to(v, shape) for v in wide)


@takes_variables
def fliplr(x: Any) -> Tensor:
    """The tensor with its second axis reversed."""
    return flip(x, 1)


@takes_variables
def flipud(x: Any) -> Tensor:
    """The tensor with its first axis reversed."""
    return flip(x, 0)


@takes_variables
def rot90(x: Any, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Tensor:
    """Rotated by `k` quarter turns, from the first of the axes toward the second."""
    source, turns = as_tensor(x, "te.rot90"), as_int(k, "te.rot90") % 4
    a, b = (normal_axis(axis, source.ndim, "te.rot90") for axis in axes)
    if turns == 2:
        return flip(flip(source, a), b)
    if turns == 1:
        return swapaxes(flip(source, b), a, b)
    return flip(swapaxes(source, a, b), b) if turns else source


def _divisors(x: Tensor) -> tuple[Any, ...]:
    """The extents, 1 for 0: where there is no element, there is none to place."""
    return tuple(1 if number(n) == 0 else n for n in x.extents)


@takes_variables
def kron(a: Any, b: Any) -> Tensor:
    """The Kronecker product: each element of `a` times the whole of `b`."""
    left, right = as_tensors((a, b), "te.kron")
    ndim = max(left.ndim, right.ndim)
    left, right = (reshape(t, (*[1] * (ndim - t.ndim), *t.shape)) if t.ndim < ndim else t for t in (left, right))
    shape = tuple(simplify_extent(m * n) for m, n in zip(left.extents, right.extents, strict=True))

    def element(*axes: Any) -> Any:
        outer = tuple(i // n for i, n in zip(axes, _divisors(right), strict=True))
        inner = tuple(i % n for i, n in zip(axes, _divisors(right), strict=True))
        return Read(left, outer) * Read(right, inner)

    return tensor_of(shape, element, "kron")
