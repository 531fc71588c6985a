"""The rarer float32 functions, computed in float64 vectors and rounded once at the end."""

from __future__ import annotations

from collections.abc import Callable

import halide as hl

from tedsl.backend.scalars import float32_math, float64_math
from tedsl.backend.scalars.types import Expr, bits_of, copy_sign, f64, from_bits, horner, is_nan, negate

__all__ = ["atan2", "power", "rounded", "tan"]

NAN, INF = float("nan"), float("inf")
# sin(r) and cos(r) for |r| <= pi / 4, to 40 bits
SIN = (
    -0.16666666666666632, 0.008333333333322457, -0.00019841269829815858, 2.7557313688680597e-06, -2.505075691908093e-08,
)  # fmt: skip
COS = (
    0.04166666666660167, -0.001388888887819698, 2.480158093699708e-05, -2.755556070932579e-07, 2.0647316916449707e-09,
)  # fmt: skip
# log2(1 + f) / f for sqrt(1 / 2) - 1 <= f <= sqrt(2) - 1 to 40 bits, 2^r for |r| <= 1 / 2 to 34
LOG2 = (
    1.4426950408892767, -0.7213475204230286, 0.48089834664694925, -0.360673766469197, 0.2885390630509617,
    -0.2404486767764975, 0.2060955997696979, -0.1803523976289314, 0.16041917291126465, -0.1440870868883253,
    0.1291817200423408, -0.11999745284003394, 0.1262413566320066, -0.1221548741825961, 0.06163177490234368,
)  # fmt: skip
EXP2 = (
    0.9999999999595622, 0.6931471805568341, 0.24022651213495422, 0.055504109063177154, 0.009618025613598036,
    0.0013333478480888061, 0.00015469729140704658, 1.5303699001378845e-05,
)  # fmt: skip
ROUNDER = 1.5 * 2.0**52  # a sum with it is rounded to an integer, which are its low bits
MOST = 160.0  # an exponent of two beyond those of float32


def rounded(function: Callable[[Expr], Expr]) -> Callable[[Expr], Expr]:
    """A float64 function on float32."""
    return lambda x: hl.cast(hl.Float(32), function(hl.cast(hl.Float(64), x)))


def tan(x: Expr) -> Expr:
    """Tangent, for arguments of any size."""
    size = hl.abs(x)
    remainder, quadrant = float32_math.reduce_quadrant(x)
    is_small = size < hl.f32(0.785)
    r = hl.select(is_small, hl.cast(hl.Float(64), size), remainder)
    z = r * r
    sine = r + r * z * horner(z, SIN, "float64")
    cosine = (f64(1.0) - z * f64(0.5)) + z * z * horner(z, COS, "float64")
    is_even = is_small | ((quadrant & hl.i32(1)) == hl.i32(0))
    ratio = hl.select(is_even, sine, negate(cosine, "float64")) / hl.select(is_even, cosine, sine)
    result = hl.cast(hl.Float(32), ratio)
    sign = bits_of(x, "float32") & hl.u32(0x80000000)
    result = hl.reinterpret(hl.Float(32), bits_of(result, "float32") ^ sign)
    return hl.select(size < hl.f32(INF), result, hl.f32(NAN))


def power(x: Expr, y: Expr) -> Expr:
    """x^y by C's rules: 1 for y = 0 and for x = 1 even beside NaN, NaN for a negative x and a fraction y.

    A rounded exponent of two times its logarithm has an error below 160 * 2^-40, so a result one of 0.01 units.
    """
    one, zero = hl.f32(1.0), hl.f32(0.0)
    size = hl.cast(hl.Float(32), _exp2(hl.cast(hl.Float(64), y) * _log2(hl.abs(x))))
    # |x| = 1 and y infinite: 0 * infinity above
    size = hl.select((hl.abs(x) == one) & hl.logical_not(is_nan(y, "float32")), one, size)
    half = y * hl.f32(0.5)
    is_integer = hl.floor(y) == y
    is_odd = is_integer & (hl.floor(half) != half)
    is_negative = bits_of(x, "float32") >= hl.u32(0x80000000)
    signed = hl.select(is_negative & is_odd, negate(size, "float32"), size)
    fraction_of_negative = (x < zero) & (x > hl.f32(-INF)) & hl.logical_not(is_integer)
    result = hl.select(fraction_of_negative, hl.f32(NAN), signed)
    return hl.select((y == zero) | (x == one), one, result)


def _log2(x: Expr) -> Expr:
    """The logarithm of a float32 that is not negative, as float64."""
    k, f = float32_math.exponent_and_rest(x)
    wide = hl.cast(hl.Float(64), f)
    edge = hl.select(x == hl.f32(0.0), hl.f32(-INF), x)  # infinity, NaN
    found = hl.cast(hl.Float(64), k) + wide * horner(wide, LOG2, "float64")
    is_edge = (x == hl.f32(0.0)) | hl.logical_not(x < hl.f32(INF))
    return hl.select(is_edge, hl.cast(hl.Float(64), edge), found)


def _exp2(x: Expr) -> Expr:
    """2^x, for a result that is rounded to float32."""
    x = hl.select(x > f64(MOST), f64(MOST), hl.select(x < f64(-MOST), f64(-MOST), x))  # NaN stays
    shifted = x + f64(ROUNDER)
    power_of_two = from_bits((bits_of(shifted, "float64") + hl.u64(1023)) << hl.u64(52), "float64")
    return horner(x - (shifted - f64(ROUNDER)), EXP2, "float64") * power_of_two


def atan2(y: Expr, x: Expr) -> Expr:
    """The angle of the point (x, y), with C's results at zeros and infinities."""
    a, b = hl.cast(hl.Float(64), hl.abs(y)), hl.cast(hl.Float(64), hl.abs(x))
    is_steep = a > b
    low, high = hl.select(is_steep, b, a), hl.select(is_steep, a, b)
    zero = f64(0.0)
    diagonal = (low == high) & (high > zero)  # infinities too
    ratio = hl.select(diagonal, f64(1.0), hl.select(high == zero, zero, low / high))
    half_pi = f64(float64_math.PI_OVER_2)
    angle = float64_math.atan(ratio)
    angle = hl.select(is_steep, half_pi - angle, angle)
    is_left = bits_of(x, "float32") >= hl.u32(0x80000000)
    angle = hl.select(is_left, half_pi + half_pi - angle, angle)
    result = copy_sign(hl.cast(hl.Float(32), angle), y, "float32")
    return hl.select(is_nan(x, "float32") | is_nan(y, "float32"), hl.f32(NAN), result)
