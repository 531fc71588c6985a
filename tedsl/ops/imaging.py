"""Whole procedures on images: tone mapping by Laplacian pyramids, demosaicking, histograms, distance fields."""

from __future__ import annotations

from typing import Any

from tedsl.ops import language as te
from tedsl.ops.arguments import check_float, check_rank, loops, one_of, refuse, replaced
from tedsl.ops.filters import check_image
from tedsl.ops.op import op

__all__ = ["demosaic", "distance_field", "histogram", "local_laplacian", "soft_histogram"]

_TAPS = (1.0, 3.0, 3.0, 1.0)


def _down(x: te.Tensor, axis: int, name: str) -> te.Tensor:
    """Half the elements of an axis, by taps (1, 3, 3, 1) / 8 around each pair."""
    n = x.shape[axis]

    def element(*i: Any) -> Any:
        total: Any = None
        for k, w in enumerate(_TAPS):
            term = x.at(*replaced(i, axis, i[axis] * 2 + (k - 1)), mode="clamp") * (w / 8.0)
            total = term if total is None else total + term
        return total

    return te.compute(replaced(x.shape, axis, (n + 1) // 2), element, name=name)  # type: ignore[no-any-return]


def _up(x: te.Tensor, axis: int, size: Any, name: str) -> te.Tensor:
    """`size` elements of an axis again, each by its nearer (3/4) and its farther neighbor (1/4)."""

    def element(*i: Any) -> Any:
        near = i[axis] // 2
        other = near + i[axis] % 2 * 2 - 1
        a, b = (x.at(*replaced(i, axis, at), mode="clamp") for at in (near, other))
        return a * 0.75 + b * 0.25

    return te.compute(replaced(x.shape, axis, size), element, name=name)  # type: ignore[no-any-return]


def _pyramid(x: te.Tensor, levels: int, rows: int, name: str) -> list[te.Tensor]:
    """x and its halves along axes `rows` and `rows + 1`."""
    found = [x]
    for level in range(1, levels):
        half = _down(found[-1], rows, f"{name}{level}_rows")
        found.append(_down(half, rows + 1, f"{name}{level}"))
    return found


def _enlarged(x: te.Tensor, like: te.Tensor, rows: int, name: str) -> te.Tensor:
    tall = _up(x, rows, like.shape[like.ndim - 2], f"{name}_rows")
    return _up(tall, rows + 1, like.shape[like.ndim - 1], name)


@op
def local_laplacian(
    x: te.Tensor, levels: int = 4, intensities: int = 8, alpha: float = 1.0, beta: float = 1.0, sigma: float = 0.125
) -> te.Tensor:
    """Details of x (h, w) from 0 to 1 made stronger by alpha, and contrast scaled by beta, without halos.

    For each of `intensities` levels v the image is remapped to v + beta (x - v) + alpha (x - v) exp(-(x - v)^2 / (2
    sigma^2)) and taken apart into a Laplacian pyramid; the pyramid of the result is read from the two nearest to the
    Gaussian pyramid of x. As Paris, Hasinoff and Kautz, 2011, in the form of Halide's example.
    """
    what = "local_laplacian"
    check_rank(x, 2, what, "x", "(h, w)")
    check_float(x, what, "x")
    for name, value, least in (("levels", levels, 1), ("intensities", intensities, 2)):
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise refuse(what, f"{name}: expected an integer of {least} or more, found {value!r}")

    def remapped(k: Any, i: Any, j: Any) -> Any:
        v = te.cast(k, x.dtype) * (1.0 / (intensities - 1))
        d = x[i, j] - v
        return v + d * beta + d * te.exp(d * d * (-0.5 / sigma**2)) * alpha

    images = te.compute((intensities, *x.shape), remapped, name="remapped")
    gaussian, bands = _pyramid(x, levels, 0, "gaussian"), _pyramid(images, levels, 1, "bands")
    result = _picked(gaussian[-1], bands[-1], intensities, f"picked{levels - 1}")
    for level in range(levels - 2, -1, -1):
        wide = _enlarged(bands[level + 1], bands[level], 1, f"wide{level}")
        band = _difference(bands[level], wide, f"laplacian{level}")
        detail = _picked(gaussian[level], band, intensities, f"picked{level}")
        result = _sum(_enlarged(result, detail, 0, f"result{level + 1}_wide"), detail, f"result{level}")
    return result


def _difference(a: te.Tensor, b: te.Tensor, name: str) -> te.Tensor:
    return te.compute(a.shape, lambda *i: a[i] - b[i], name=name)


def _sum(a: te.Tensor, b: te.Tensor, name: str) -> te.Tensor:
    return te.compute(a.shape, lambda *i: a[i] + b[i], name=name)


def _picked(guide: te.Tensor, bands: te.Tensor, intensities: int, name: str) -> te.Tensor:
    """The band between the two intensities that enclose the guide."""

    def element(i: Any, j: Any) -> Any:
        at = guide[i, j] * float(intensities - 1)
        low = te.clip(te.cast(te.floor(at), "int32"), 0, intensities - 2)
        t = at - te.cast(low, guide.dtype)
        return bands[low, i, j] * (1.0 - t) + bands[low + 1, i, j] * t

    return te.compute(guide.shape, element, name=name)  # type: ignore[no-any-return]


@op
def demosaic(x: te.Tensor, pattern: str = "RGGB") -> te.Tensor:
    """Red, green and blue (3, h, w) of a Bayer image x (h, w): what a pixel does not have is the mean of its
    neighbors.

    Green from the four beside; red and blue from the two beside, above and below, or the four diagonal ones. Beyond the
    border the image is reflected. As cv2.demosaicing in its bilinear form, borders aside.
    """
    check_rank(x, 2, "demosaic", "x", "(h, w)")
    check_float(x, "demosaic", "x")
    one_of(pattern, ("RGGB", "BGGR", "GRBG", "GBRG"), "demosaic", "pattern")
    red = divmod(pattern.index("R"), 2)

    def element(c: Any, i: Any, j: Any) -> Any:
        def mean(*offsets: tuple[int, int]) -> Any:
            total: Any = None
            for p, q in offsets:
                term = x.at(i + p, j + q, mode="reflect")
                total = term if total is None else total + term
            return total / float(len(offsets))

        beside, above = mean((0, -1), (0, 1)), mean((-1, 0), (1, 0))
        cross, diagonal = mean((-1, 0), (1, 0), (0, -1), (0, 1)), mean((-1, -1), (-1, 1), (1, -1), (1, 1))
        on_row, on_column = (i + red[0]) % 2 == 0, (j + red[1]) % 2 == 0
        green = te.select((i + j + sum(red)) % 2 == 0, cross, x[i, j])
        # Red lies on the rows and columns of its kind, blue on the others.
        own_row, own_column = (te.select(c == 0, v, ~v) for v in (on_row, on_column))
        other = te.select(own_row, te.select(own_column, x[i, j], beside), te.select(own_column, above, diagonal))
        return te.select(c == 1, green, other)

    return te.compute((3, *x.shape), element, name="demosaic")  # type: ignore[no-any-return]


def _bins(bins: Any, low: float, high: float, what: str) -> None:
    if isinstance(bins, bool) or not isinstance(bins, int) or bins < 1:
        raise refuse(what, f"bins: expected an integer of 1 or more, found {bins!r}")
    if not low < high:
        raise refuse(what, f"expected low < high, found {low!r} and {high!r}")


@op
def histogram(x: te.Tensor, bins: int, low: float = 0.0, high: float = 1.0) -> te.Tensor:
    """How many elements of x lie in each of `bins` equal parts of [low, high]; elements outside are not counted. As
    numpy.histogram.
    """
    check_float(x, "histogram", "x")
    _bins(bins, low, high, "histogram")
    at = loops(*x.shape)
    inside = (x[at] >= low) & (x[at] <= high)
    place = te.clip(te.cast(te.floor((x[at] - low) * (bins / (high - low))), "int32"), 0, bins - 1)
    return te.scatter((bins,), at, (place,), te.const(1, "int32"), where=inside, name="histogram")


@op
def soft_histogram(x: te.Tensor, bins: int, low: float = 0.0, high: float = 1.0) -> te.Tensor:
    """A histogram with a gradient: each element is shared between the two bins whose centers are nearest.

    y[b] = sum of max(0, 1 - |u - b|) with u = (x - low) bins / (high - low) - 1/2.
    """
    check_float(x, "soft_histogram", "x")
    _bins(bins, low, high, "soft_histogram")
    *at, side = loops(*x.shape, 2)
    u = (x[tuple(at)] - low) * (bins / (high - low)) - 0.5
    low = te.floor(u)
    place = te.cast(low, "int32") + side
    share = (1 - side) + (2 * side - 1) * (u - low)  # lines, whose slopes add up to 0 on centers too
    inside = (place >= 0) & (place < bins)
    return te.scatter((bins,), [*at, side], (place,), share, where=inside, name="soft_histogram")


@op
def distance_field(x: te.Tensor, metric: str = "taxicab") -> te.Tensor:
    """y[p] = the least over all q of x[q] plus the distance of p and q, for x (..., h, w) of costs.

    x is 0 on a shape and large elsewhere for the distance to the shape. metric "taxicab": |dy| + |dx|, by two scans
    along each axis; "squared": dy^2 + dx^2, by one reduction along each axis. As scipy.ndimage.distance_transform_cdt
    and the square of distance_transform_edt; the least of costs and squared distances as Felzenszwalb and Huttenlocher,
    2012.
    """
    check_image(x, "distance_field")
    if one_of(metric, ("taxicab", "squared"), "distance_field", "metric") == "taxicab":
        for axis in (x.ndim - 2, x.ndim - 1):
            x = _swept(_swept(x, axis, False), axis, True)
        return x
    for axis in (x.ndim - 2, x.ndim - 1):
        x = _least(x, axis)
    return x


def _swept(x: te.Tensor, axis: int, reverse: bool) -> te.Tensor:
    """y[t] = min(x[t], y[t - 1] + 1) along an axis, the former where they are equal."""
    first = x.shape[axis] - 1 if reverse else 0

    def body(y: te.Tensor, *i: Any) -> Any:
        before = y[replaced(i, axis, i[axis] + (1 if reverse else -1))] + 1.0
        return te.select(i[axis] == first, x[i], te.select(before < x[i], before, x[i]))

    return te.scan(x.shape, body, axis=axis, reverse=reverse, dtype=x.dtype, name="distance_field")  # type: ignore[no-any-return]


def _least(x: te.Tensor, axis: int) -> te.Tensor:
    (k,) = loops(x.shape[axis], name="k")

    def element(*i: Any) -> Any:
        d = te.cast(i[axis] - k, x.dtype)
        return te.min(x[replaced(i, axis, k)] + d * d, axis=k)

    return te.compute(x.shape, element, name="distance_field")  # type: ignore[no-any-return]
