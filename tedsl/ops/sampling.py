"""Images read at places that are data: grids of coordinates, flows, and the bilateral grid."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from itertools import product
from operator import mul
from typing import Any

from tedsl.lang.borders import border_of
from tedsl.ops import language as te
from tedsl.ops.arguments import check_extent, check_float, check_rank, loops, one_of, per_axis, refuse
from tedsl.ops.op import op

__all__ = ["bilateral_slice", "bilateral_splat", "grid_sample", "warp"]


def _floor(v: Any) -> tuple[Any, Any]:
    """The integer below, and how far above it."""
    low = te.floor(v)
    return te.cast(low, "int32"), v - low


@op
def grid_sample(
    x: te.Tensor, grid: te.Tensor, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: bool = False
) -> te.Tensor:
    """y[n, c, i, j] = x[n, c] between elements, at the place grid[n, i, j] = (column, row) on a scale from -1 to 1.

    x (n, c, h, w), grid (n, i, j, 2); of volumes x (n, c, d, h, w), grid (n, i, j, k, 3), depths last. -1 and 1 are
    the outer edges of the outer elements, with align_corners their centers. mode "bilinear" or "nearest"; beyond the
    border "zeros", the "border" ("clamp"), or its "reflection", at the centers with align_corners, else at the edges.
    As torch.nn.functional.grid_sample.
    """
    what = "grid_sample"
    check_rank(x, (4, 5), what, "x", "(n, c, h, w) or (n, c, d, h, w)")
    check_float(x, what, "x")
    dims = x.ndim - 2
    check_rank(grid, x.ndim, what, "grid", "(n, i, j, 2)" if dims == 2 else "(n, i, j, k, 3)")
    check_extent(grid, x.ndim - 1, dims, what, "grid", "column and row" if dims == 2 else "column, row and depth")
    check_extent(grid, 0, x.extents[0], what, "grid", "the batch of x")
    one_of(mode, ("bilinear", "nearest"), what, "mode")
    word = "clamp" if padding_mode == "border" else padding_mode  # PyTorch's word, which means another thing elsewhere
    edge = border_of(word, f"te.ops.{what}", "padding_mode", ("zero", "clamp", "reflection"))
    border = "zero" if edge == "zero" else "clamp"

    def place(value: Any, size: Any) -> Any:
        at = (value + 1.0) * 0.5 * (size - 1) if align_corners else ((value + 1.0) * size - 1.0) * 0.5
        if edge == "reflection":
            low, span = (0.0, te.maximum(size - 1, 1)) if align_corners else (-0.5, size)
            at = low + span - te.abs(span - te.abs(at - low) % (2 * span))
        return at if edge == "zero" else te.clip(at, 0.0, size - 1)

    def of_axes(made: Callable[..., Any]) -> Callable[..., Any]:
        """A function of n and of the axes of the result, which have names."""
        return (lambda n, i, j: made(n, i, j)) if dims == 2 else (lambda n, i, j, k: made(n, i, j, k))

    def places(*z: Any) -> tuple[Any, ...]:
        coordinates = [(*z, dims - 1 - d) for d in range(dims)]
        return tuple(place(grid[at], x.shape[2 + d]) for d, at in enumerate(coordinates))

    names = ("depths", "rows", "columns")[3 - dims :]
    stored = te.compute((x.shape[0], *grid.shape[1:-1]), of_axes(places), name=names)

    def element(n: Any, c: Any, *z: Any) -> Any:
        here = (n, *z)
        at = [where[here] for where in stored]
        if mode == "nearest":
            return x.at(n, c, *(te.cast(te.round(a), "int32") for a in at), mode=border)
        return between(x, (n, c), at, border)

    of_elements = (
        (lambda n, c, i, j: element(n, c, i, j)) if dims == 2 else (lambda n, c, i, j, k: element(n, c, i, j, k))
    )
    return te.compute((*x.shape[:2], *grid.shape[1:-1]), of_elements, name=what)  # type: ignore[no-any-return]


def between(x: te.Tensor, lead: tuple[Any, ...], place: Sequence[Any], edge: str) -> Any:
    """x[lead] at a place between elements, of four in a picture, of eight in a volume."""
    found = [_floor(at) for at in place]
    total: Any = None
    for corner in product((0, 1), repeat=len(found)):
        weight = reduce(mul, [p if up else 1.0 - p for up, (_, p) in zip(corner, found, strict=True)])
        term = x.at(*lead, *(i + up for up, (i, _) in zip(corner, found, strict=True)), mode=edge) * weight
        total = term if total is None else total + term
    return total


@op
def warp(x: te.Tensor, flow: te.Tensor) -> te.Tensor:
    """y[n, c, i, j] = x[n, c, i + flow[n, 1, i, j], j + flow[n, 0, i, j]], bilinear; beyond the border the edge
    holds.

    x (n, c, h, w), flow (n, 2, h, w) of columns and rows. As cv2.remap with the flow added to the places.
    """
    check_rank(x, 4, "warp", "x", "(n, c, h, w)")
    check_float(x, "warp", "x")
    check_rank(flow, 4, "warp", "flow", "(n, 2, h, w)")
    for dim, expected in enumerate((x.extents[0], 2, *x.extents[2:])):
        check_extent(flow, dim, expected, "warp", "flow", "(n, 2, h, w) of x")

    def places(n: Any, i: Any, j: Any) -> tuple[Any, Any]:
        return i + flow[n, 1, i, j], j + flow[n, 0, i, j]

    rows, columns = te.compute((x.shape[0], *x.shape[2:]), places, name=("rows", "columns"))

    def element(n: Any, c: Any, i: Any, j: Any) -> Any:
        return between(x, (n, c), (rows[n, i, j], columns[n, i, j]), "clamp")

    return te.compute(x.shape, element, name="warp")  # type: ignore[no-any-return]


@op
def bilateral_slice(grid: te.Tensor, guide: te.Tensor) -> te.Tensor:
    """y[n, c, i, j] = grid[n, c] at depth guide[n, i, j] (from 0 to 1) over the cell of pixel (i, j), trilinear.

    grid (n, c, depth, rows, columns), guide (n, h, w). Beyond the outer cells their values hold.
    As the slicing layer of HDRNet (Gharbi et al., 2017).
    """
    what = "bilateral_slice"
    check_rank(grid, 5, what, "grid", "(n, c, depth, rows, columns)")
    check_rank(guide, 3, what, "guide", "(n, h, w)")
    check_float(grid, what, "grid")
    check_extent(guide, 0, grid.extents[0], what, "guide", "the batch of grid")
    depth, rows, columns = grid.shape[2:]
    height, width = guide.shape[1:]

    def along(i: Any, cells: Any, size: Any) -> list[tuple[Any, Any]]:
        """The two cells beside pixel i, at (i + 1/2) cells / size - 1/2 by integers, and their weights."""
        at = i * (2 * cells) + (cells - size)
        t = (at % (2 * size)) / (2 * size)
        return [(at // (2 * size), 1.0 - t), (at // (2 * size) + 1, t)]

    def element(n: Any, c: Any, i: Any, j: Any) -> Any:
        z, t = _floor(guide[n, i, j] * depth - 0.5)
        total: Any = None
        for y, wy in along(i, rows, height):
            for x, wx in along(j, columns, width):
                low, high = (grid.at(n, c, z + d, y, x, mode="clamp") for d in (0, 1))
                term = (low * (1.0 - t) + high * t) * (wy * wx)
                total = term if total is None else total + term
        return total

    return te.compute((*grid.shape[:2], height, width), element, name="bilateral_slice")  # type: ignore[no-any-return]


@op
def bilateral_splat(x: te.Tensor, guide: te.Tensor, cell: Any, depth: int) -> te.Tensor:
    """A bilateral grid of sums: x[n, c, i, j] goes to cell (i // cell, j // cell), shared between the two depths
    nearest.

    x (n, c, h, w), guide (n, h, w) from 0 to 1 -> (n, c, depth, ceil(h / cell), ceil(w / cell)); bilateral_slice reads
    it. As Chen, Paris and Durand, 2007.
    """
    what = "bilateral_splat"
    check_rank(x, 4, what, "x", "(n, c, h, w)")
    check_float(x, what, "x")
    check_rank(guide, 3, what, "guide", "(n, h, w)")
    for dim, source in enumerate((0, 2, 3)):
        check_extent(guide, dim, x.extents[source], what, "guide", "that of x")
    height, width = per_axis(cell, 2, what, "cell")
    if isinstance(depth, bool) or not isinstance(depth, int) or depth < 1:
        raise refuse(what, f"depth: expected an integer of 1 or more, found {depth!r}")
    n, c, i, j, side = loops(*x.shape, 2)
    z, t = _floor(guide[n, i, j] * float(depth) - 0.5)
    share = te.select(side == 0, 1.0 - t, t)
    shape = (*x.shape[:2], depth, (x.shape[2] + height - 1) // height, (x.shape[3] + width - 1) // width)
    place = (n, c, te.clip(z + side, 0, depth - 1), i // height, j // width)
    return te.scatter(shape, [n, c, i, j, side], place, x[n, c, i, j] * share, name="bilateral_splat")
