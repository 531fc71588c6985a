"""Filters of images: smoothing, edges and corners, with what lies beyond a border as `mode` says.

An image is the last two axes; all others are kept. Windows are separable where the filter is.
"""

from __future__ import annotations

from typing import Any

from tedsl.lang.borders import border_of
from tedsl.ops import language as te
from tedsl.ops.arguments import axis_of, check_float, loops, refuse, replaced
from tedsl.ops.op import op

__all__ = ["bilateral_filter", "box_blur", "gaussian_blur", "harris", "sobel", "unsharp_mask"]


def check_image(x: te.Tensor, what: str, mode: str = "reflect") -> None:
    """`x` holds floats in 2 axes or more; `mode` is a border there is."""
    border_of(mode, f"te.ops.{what}")
    check_float(x, what, "x")
    if x.ndim < 2:
        raise refuse(what, f"x: expected 2 dimensions or more (..., h, w), found {x!r}")


def radius_of(sigma: Any, radius: int | None, what: str) -> int:
    """How far a Gaussian reaches: 4 sigma, as in scipy."""
    if radius is None:
        if isinstance(sigma, te.Tensor):
            raise refuse(what, "radius: expected an integer where sigma is a tensor, found None")
        if not sigma > 0:
            raise refuse(what, f"sigma: expected a positive number, found {sigma!r}")
        return int(4.0 * sigma + 0.5)
    if isinstance(radius, bool) or not isinstance(radius, int) or radius < 0:
        raise refuse(what, f"radius: expected an integer of 0 or more, found {radius!r}")
    return radius


def _gaussian(sigma: Any, radius: int, dtype: Any) -> te.Tensor:
    """The weights of 2 radius + 1 taps, which sum to 1; sigma is a number or a 0-rank tensor."""
    width = sigma[()] if isinstance(sigma, te.Tensor) else te.const(sigma, dtype)

    def weight(k: Any) -> Any:
        distance = te.cast(k - radius, dtype)
        return te.exp(distance * distance / (width * width * -2.0))

    bell = te.compute((2 * radius + 1,), weight, name="bell")
    total = bell.sum()
    return te.compute(bell.shape, lambda k: bell[k] / total[()], name="weights")  # type: ignore[no-any-return]


def weighted(x: te.Tensor, axis: int, weights: te.Tensor, mode: str, name: str) -> te.Tensor:
    """The sums of windows along one axis, each tap with its weight."""
    taps = weights.shape[0]
    (k,) = loops(taps, name="k")

    def element(*i: Any) -> Any:
        at = replaced(i, axis, i[axis] + k - taps // 2)
        return te.sum(x.at(*at, mode=mode) * weights[k], axis=k)

    return te.compute(x.shape, element, name=name)  # type: ignore[no-any-return]


def blurred(x: te.Tensor, sigma: Any, radius: int, mode: str, name: str) -> te.Tensor:
    weights = _gaussian(sigma, radius, x.dtype)
    rows = weighted(x, x.ndim - 2, weights, mode, f"{name}_rows")
    return weighted(rows, x.ndim - 1, weights, mode, name)


@op
def gaussian_blur(x: te.Tensor, sigma: Any, radius: int | None = None, mode: str = "reflect") -> te.Tensor:
    """x (..., h, w) smoothed by exp(-d^2 / (2 sigma^2)) of 2 radius + 1 taps along columns, then along rows.

    sigma may be a 0-rank tensor, and then has a gradient; radius is 4 sigma unless given. As
    scipy.ndimage.gaussian_filter, whose modes are "mirror" ("reflect" here), "nearest" ("clamp"), "wrap" and "constant"
    ("zero").
    """
    check_image(x, "gaussian_blur", mode)
    return blurred(x, sigma, radius_of(sigma, radius, "gaussian_blur"), mode, "gaussian_blur")


@op
def box_blur(x: te.Tensor, radius: int, mode: str = "reflect") -> te.Tensor:
    """The means of the (2 radius + 1)^2 elements around each of x (..., h, w). As scipy.ndimage.uniform_filter."""
    check_image(x, "box_blur", mode)
    size = 2 * radius_of(1.0, radius, "box_blur") + 1
    weights = te.full((size,), 1.0 / size, x.dtype)
    rows = weighted(x, x.ndim - 2, weights, mode, "box_blur_rows")
    return weighted(rows, x.ndim - 1, weights, mode, "box_blur")


@op
def unsharp_mask(
    x: te.Tensor, sigma: Any, amount: float = 1.0, radius: int | None = None, mode: str = "reflect"
) -> te.Tensor:
    """x + amount (x - gaussian_blur(x)): edges made steeper. As skimage.filters.unsharp_mask, without its clipping."""
    check_image(x, "unsharp_mask", mode)
    smooth = blurred(x, sigma, radius_of(sigma, radius, "unsharp_mask"), mode, "smooth")
    return te.compute(x.shape, lambda *i: x[i] + (x[i] - smooth[i]) * amount, name="unsharp_mask")


def _slope(x: te.Tensor, axis: int, mode: str, name: str) -> te.Tensor:
    """x[i + 1] - x[i - 1] along `axis`, smoothed by (1, 2, 1) along the other."""
    other = 2 * x.ndim - 3 - axis

    def smooth(*i: Any) -> Any:
        a, b = (x.at(*replaced(i, other, i[other] + d), mode=mode) for d in (-1, 1))
        return a + x[i] * 2.0 + b

    rows = te.compute(x.shape, smooth, name=f"{name}_smooth")

    def difference(*i: Any) -> Any:
        a, b = (rows.at(*replaced(i, axis, i[axis] + d), mode=mode) for d in (-1, 1))
        return b - a

    return te.compute(x.shape, difference, name=name)  # type: ignore[no-any-return]


@op
def sobel(x: te.Tensor, axis: int = -1, mode: str = "reflect") -> te.Tensor:
    """The slope of x (..., h, w) along one of its last two axes: (-1, 0, 1) along it, (1, 2, 1) across.

    As scipy.ndimage.sobel.
    """
    check_image(x, "sobel", mode)
    dim = axis_of(x, axis, "sobel")
    if dim < x.ndim - 2:
        raise refuse("sobel", f"axis: expected one of the last two of {x!r}, found {axis}")
    return _slope(x, dim, mode, "sobel")


@op
def harris(
    x: te.Tensor, k: float = 0.04, sigma: float = 1.0, radius: int | None = None, mode: str = "reflect"
) -> te.Tensor:
    """det(M) - k trace(M)^2, with M the Gaussian mean of the products of the slopes: large and positive at corners.

    As skimage.feature.corner_harris, with slopes by sobel.
    """
    check_image(x, "harris", mode)
    reach = radius_of(sigma, radius, "harris")
    dy, dx = (_slope(x, x.ndim + d, mode, name) for d, name in ((-2, "dy"), (-1, "dx")))
    pairs = {"yy": (dy, dy), "yx": (dy, dx), "xx": (dx, dx)}
    yy, yx, xx = (blurred(a * b, sigma, reach, mode, name) for name, (a, b) in pairs.items())

    def response(*i: Any) -> Any:
        trace = yy[i] + xx[i]
        return yy[i] * xx[i] - yx[i] * yx[i] - trace * trace * k

    return te.compute(x.shape, response, name="harris")  # type: ignore[no-any-return]


@op
def bilateral_filter(
    x: te.Tensor, sigma_space: float, sigma_range: float, radius: int | None = None, mode: str = "reflect"
) -> te.Tensor:
    """The mean of the (2 radius + 1)^2 elements q around p, weighted by their distance and their difference.

    y[p] = sum of w x[q] / sum of w with w = exp(-|p - q|^2 / (2 sigma_space^2) - (x[p] - x[q])^2 / (2 sigma_range^2)),
    for x (..., h, w). As Tomasi and Manduchi, 1998.
    """
    check_image(x, "bilateral_filter", mode)
    reach = radius_of(sigma_space, radius, "bilateral_filter")
    if not sigma_range > 0:
        raise refuse("bilateral_filter", f"sigma_range: expected a positive number, found {sigma_range!r}")
    near, alike = -0.5 / sigma_space**2, -0.5 / sigma_range**2
    p, q = loops(2 * reach + 1, 2 * reach + 1, name="p")

    def taps(*i: Any) -> tuple[Any, Any]:
        value = x.at(*i[:-2], i[-2] + p - reach, i[-1] + q - reach, mode=mode)
        dy, dx = te.cast(p - reach, x.dtype), te.cast(q - reach, x.dtype)
        difference = value - x[i]
        weight = te.exp((dy * dy + dx * dx) * near + difference * difference * alike)
        return te.sum(weight * value, axis=(p, q)), te.sum(weight, axis=(p, q))

    total, weights = te.compute(x.shape, taps, name=("total", "weights"))
    return te.compute(x.shape, lambda *i: total[i] / weights[i], name="bilateral_filter")
