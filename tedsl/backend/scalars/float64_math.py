"""The functions of analysis on float64, in vectors where C's library would run one lane at a time.

The algorithms are the textbook ones (fdlibm's arrangements, minimax polynomials of our own); errors are asserted in
tests/backend/scalars/test_intrinsics.py. sin, cos, tan, pow and atan2 stay the C library's: their exact argument
reduction costs as much in vectors. float32 uses these for its rarer functions, rounded once at the end.
"""

from __future__ import annotations

import halide as hl

from tedsl.backend.scalars.types import Expr, bits_of, copy_sign, f64, from_bits, horner, is_nan, negate

__all__ = [
    "acos", "acosh", "asin", "asinh", "atan", "atanh", "cbrt", "cosh", "erf", "erfc", "exp", "exp2", "expm1", "log",
    "log1p", "log2", "log10", "sigmoid", "sinh", "tanh",
]  # fmt: skip

F = "float64"
INF, NAN = float("inf"), float("nan")

# ln 2 as a part of 32 bits, whose products with the exponents are exact, and the rest.
LN2_HIGH, LN2_LOW, LN2 = 6.93147180369123816490e-01, 1.90821492927058770002e-10, 0.6931471805599453
LOG2_E = 1.4426950408889634
# Adding and subtracting this rounds to an integer; the low bits of the sum then hold that integer.
ROUNDER, ROUNDER_BITS = 6755399441055744.0, 0x4338000000000000
# (exp(r) - 1 - r) / r^2, |r| <= ln 2 / 2
EXP = (
    0.5, 0.1666666666666668, 0.041666666666666595, 0.008333333333318907, 0.0013888888888907386, 0.00019841269893758332,
    2.480158730335062e-05, 2.7557235916775402e-06, 2.755727417332889e-07, 2.5112103343621077e-08,
    2.0919556267865026e-09,
)  # fmt: skip
# log((1 + s) / (1 - s)) = 2 s + s^3 P(s^2), |s| <= 3 - sqrt(8)
LOG = (
    0.6666666666666745, 0.39999999999335945, 0.28571428761417833, 0.22222196479672113, 0.18183679805564681,
    0.15310938703551488, 0.14828544954318273,
)  # fmt: skip
# erf(x) / x - 1 in x^2, |x| <= 1
ERF = (
    0.12837916709551256, -0.3761263890318375, 0.11283791670954843, -0.026866170645070023, 0.005223977624751788,
    -0.000854832697700948, 0.00012055330971586859, -1.492559188951618e-05, 1.6460946148314058e-06,
    -1.6349735274239108e-07, 1.4655883902264806e-08, -1.1357784752997216e-09, 5.931665380456696e-11,
)  # fmt: skip
# erfc(x) e^(x^2) (x + 1) in (x - 4) / (x + 4), 0.45 <= x <= 27.4
ERFCX = (
    0.6849972881253069, -0.19934458280036707, 0.11704966551044235, -0.0480803812213101, 0.0039620556812990405,
    0.01531250967938688, -0.01751565464674578, 0.0121617847514773, -0.006068735217006005, 0.002116421599586054,
    -0.0003897675059991229, -6.013687386734179e-05, 6.403283359790309e-05, -1.3150703159235722e-05,
    -4.138810775395973e-06, 2.6490527619579267e-06, 5.05293504058436e-09, -3.6194353115378764e-07,
    4.9678376365835334e-08, 4.432024888900119e-08, -9.854896234492824e-09, -4.094447408485679e-09,
    9.231314667687385e-10,
)  # fmt: skip
# (atan(t) / t - 1) / t^2 in t^2, |t| <= 7/16; (asin(t) / t - 1) / t^2 in t^2, |t| <= 1/2
ATAN = (
    -0.3333333333333333, 0.1999999999999941, -0.14285714285566806, 0.11111111096645038, -0.09090908355602592,
    0.07692285554889286, -0.06666241923359964, 0.05876946456755061, -0.05216679739313656, 0.04492259293193656,
    -0.033128134256069586, 0.014773184616983806,
)  # fmt: skip
ASIN = (
    0.16666666666666763, 0.07499999999970129, 0.04464285717525383, 0.030381942676952243, 0.022372215856406145,
    0.017351596395942415, 0.01398100817829487, 0.011397371288709901, 0.010788934495168523, 0.003673404530021921,
    0.021788348772246, -0.02111449787481441, 0.032701455464296175,
)  # fmt: skip
PI_OVER_2, PI_OVER_2_LOW = 1.5707963267948966, 6.123233995736766e-17
# From where on the arc tangent is measured from c, atan(c) in two parts, and c (of infinity -1 / x is the distance)
ARCS = (
    (0.4375, 0.4636476090008061, 2.2698777452961687e-17, 0.5), (0.6875, PI_OVER_2 / 2, PI_OVER_2_LOW / 2, 1.0),
    (1.1875, 0.982793723247329, 1.3903311031230998e-17, 1.5),
)  # fmt: skip
# (sinh(x) / x - 1) / x^2 in x^2, |x| <= 1
SINH = (1 / 6, 1 / 120, 1 / 5040, 1 / 362880, 1 / 39916800, 1 / 6227020800, 1 / 1307674368000, 1 / 355687428096000)


def _between(x: Expr, low: float, high: float) -> Expr:
    """x held within bounds; NaN stays."""
    return hl.select(x > f64(high), f64(high), hl.select(x < f64(low), f64(low), x))


def _cut(x: Expr) -> Expr:
    """The leading half of the mantissa of x: its square is exact, and x minus it too."""
    return from_bits(bits_of(x, F) & hl.u64(0xFFFFFFFFF8000000), F)


def _nearest(x: Expr) -> tuple[Expr, Expr]:
    """x, at most 2^50 in size, rounded to an integer: as a float, and as an int64 (any value for NaN)."""
    shifted = x + f64(ROUNDER)
    return shifted - f64(ROUNDER), hl.reinterpret(hl.Int(64), bits_of(shifted, F) - hl.u64(ROUNDER_BITS))


def _two_to(n: Expr) -> Expr:
    """2^n for an int64 within the exponents of normal numbers."""
    return from_bits(hl.cast(hl.UInt(64), n + hl.i64(1023)) << hl.u64(52), F)


def _two_to_times(n: Expr, x: Expr) -> Expr:
    """x 2^n in two steps, for n from -2046 to just above the exponents of normal numbers.

    There the first step is a product with 0. One that only gets too small takes 150 cycles.
    """
    half = n >> hl.u64(1)
    return x * _two_to(half) * _two_to(n - half)


def _reduce_exp(x: Expr) -> tuple[Expr, Expr]:
    """x = n ln 2 + r: r and the integer n."""
    real, n = _nearest(x * f64(LOG2_E))
    return (x - real * f64(LN2_HIGH)) - real * f64(LN2_LOW), n


def _exp_polynomial(r: Expr) -> Expr:
    return (r + r * r * horner(r, EXP, F)) + f64(1.0)


def exp(x: Expr) -> Expr:
    """e^x."""
    r, n = _reduce_exp(_between(x, -1418.0, 710.0))
    return _two_to_times(n, _exp_polynomial(r))


def exp2(x: Expr) -> Expr:
    """2^x."""
    x = _between(x, -2046.0, 1025.0)
    real, n = _nearest(x)
    return _two_to_times(n, _exp_polynomial((x - real) * f64(LN2)))


def _half_expm1(x: Expr) -> Expr:
    """(e^x - 1) / 2: halved, so that the largest power of two stays finite."""
    real, n = _nearest(x * f64(LOG2_E))
    high, low = x - real * f64(LN2_HIGH), real * f64(LN2_LOW)
    r = high - low
    p = r + (r * r * horner(r, EXP, F) + ((high - r) - low))
    half = _two_to(n - hl.i64(1))
    return half * p + (half - f64(0.5))


def expm1(x: Expr) -> Expr:
    """e^x - 1."""
    half = _half_expm1(_between(x, -50.0, 710.0))
    return hl.select(hl.abs(x) < f64(2.0**-54), x, half + half)


def tanh(x: Expr) -> Expr:
    """(e^2x - 1) / (e^2x + 1), for |x|; what rounding the sum lost comes back."""
    size, one = hl.abs(x), f64(1.0)
    half = _half_expm1(_between(size + size, 0.0, 40.0))
    total = half + one
    lost, ratio = hl.select(half < one, half - (total - one), one - (total - half)), half / total
    result = ratio - ratio * (one - ratio) * lost
    return hl.select(size < f64(2.0**-27), x, copy_sign(result, x, F))


def sigmoid(x: Expr) -> Expr:
    """1 / (1 + e^-x), from e^-|x| so that neither tail overflows; what rounding the sum lost comes back."""
    e, one = exp(negate(hl.abs(x), F)), f64(1.0)
    total = e + one
    lost, is_low = e - (total - one), x < f64(0.0)
    part = hl.select(is_low, e, one) / total
    return part - part * hl.select(is_low, one - part, part) * lost


def _half_exp(x: Expr) -> Expr:
    """e^x / 2, finite up to the overflow of its double."""
    r, n = _reduce_exp(_between(x, -50.0, 712.0))
    return _two_to_times(n - hl.i64(1), _exp_polynomial(r))


def sinh(x: Expr) -> Expr:
    """Hyperbolic sine: its series up to 1, the difference of exponentials above."""
    size, z = hl.abs(x), x * x
    half = _half_exp(size)
    large = copy_sign(half - f64(0.25) / half, x, F)
    return hl.select(size < f64(1.0), x + x * z * horner(z, SINH, F), large)


def cosh(x: Expr) -> Expr:
    """Hyperbolic cosine."""
    half = _half_exp(hl.abs(x))
    return half + f64(0.25) / half


# --- logarithms -----------------------------------------------------------------------------------------------------


def _log_parts(x: Expr) -> tuple[Expr, Expr, Expr, Expr]:
    """x = 2^k (1 + f), for finite x > 0: k as a float, f, f^2 / 2, and log(1 + f) - f + f^2 / 2."""
    is_tiny = x < f64(2.0**-1022)
    bits = bits_of(hl.select(is_tiny, x * f64(2.0**54), x), F)
    root_half = hl.u64(0x3FE6A09E667F3BCD)
    k = hl.reinterpret(hl.Int(64), bits - root_half) >> hl.u64(52)
    f = from_bits(bits - (hl.cast(hl.UInt(64), k) << hl.u64(52)), F) - f64(1.0)
    real = hl.cast(hl.Float(64), hl.cast(hl.Int(32), k)) - hl.select(is_tiny, f64(54.0), f64(0.0))
    square = f * f * f64(0.5)
    s = f / (f + f64(2.0))
    z = s * s
    return real, f, square, s * (square + z * horner(z, LOG, F))


def _log_edges(x: Expr, result: Expr) -> Expr:
    """`result`, but the logarithm of infinity, of zero, of negative numbers and of NaN."""
    result = hl.select(x == f64(INF), f64(INF), result)
    result = hl.select(x == f64(0.0), f64(-INF), result)
    return hl.select((x < f64(0.0)) | is_nan(x, F), f64(NAN), result)


def _log_sum(k: Expr, f: Expr, square: Expr, tail: Expr) -> Expr:
    """k ln 2 + log(1 + f), smallest terms first."""
    return k * f64(LN2_HIGH) - ((square - (tail + k * f64(LN2_LOW))) - f)


def log(x: Expr) -> Expr:
    """The natural logarithm."""
    return _log_edges(x, _log_sum(*_log_parts(x)))


def log1p(x: Expr) -> Expr:
    """log(1 + x); what rounding 1 + x lost comes back as a correction of first order."""
    u = x + f64(1.0)
    lost = hl.select(x > f64(1.0), f64(1.0) - (u - x), x - (u - f64(1.0)))
    k, f, square, tail = _log_parts(u)
    result = _log_edges(u, _log_sum(k, f, square, tail + lost / u))
    result = hl.select(x == f64(INF), x, result)
    return hl.select(hl.abs(x) < f64(2.0**-54), x, result)


def _log_to_base(x: Expr, scale: tuple[float, float], unit: tuple[float, float]) -> Expr:
    """log(x) in another base: `scale` is 1 / ln(base), `unit` the logarithm of 2, each as a short part and the rest."""
    k, f, square, tail = _log_parts(x)
    high = from_bits(bits_of(f - square, F) & hl.u64(0xFFFFFFFF00000000), F)
    low = ((f - high) - square) + tail
    short, rest = f64(scale[0]), f64(scale[1])
    head, whole = high * short, k * f64(unit[0])
    total = whole + head
    small = k * f64(unit[1]) + (low + high) * rest + low * short
    return _log_edges(x, total + (small + ((whole - total) + head)))


def log2(x: Expr) -> Expr:
    """The logarithm to base 2, exact at powers of two."""
    return _log_to_base(x, (1.44269504072144627571e00, 1.67517131648865118353e-10), (1.0, 0.0))


def log10(x: Expr) -> Expr:
    """The logarithm to base 10."""
    scale = (4.34294481878168880939e-01, 2.50829467116452752298e-11)
    return _log_to_base(x, scale, (3.01029995663611771306e-01, 3.69423907715893078616e-13))


def asinh(x: Expr) -> Expr:
    """log(|x| + sqrt(x^2 + 1)), with the sign of x."""
    size = hl.abs(x)
    is_big = size > f64(2.0**60)
    a = hl.select(is_big, f64(1.0), size)
    square = a * a
    inner = hl.select(is_big, size, a + square / (hl.sqrt(square + f64(1.0)) + f64(1.0)))
    return copy_sign(log1p(inner) + hl.select(is_big, f64(LN2), f64(0.0)), x, F)


def acosh(x: Expr) -> Expr:
    """log(x + sqrt(x^2 - 1)), NaN below 1."""
    is_big = x > f64(2.0**60)
    t = hl.select(is_big, f64(1.0), x) - f64(1.0)
    inner = hl.select(is_big, x, t + hl.sqrt(t * t + (t + t)))
    result = log1p(inner) + hl.select(is_big, f64(LN2), f64(0.0))
    return hl.select((x < f64(1.0)) | is_nan(x, F), f64(NAN), result)


def atanh(x: Expr) -> Expr:
    """log((1 + |x|) / (1 - |x|)) / 2, with the sign of x."""
    size = hl.abs(x)
    double = size + size
    result = copy_sign(log1p(double + double * size / (f64(1.0) - size)) * f64(0.5), x, F)
    return hl.select(size > f64(1.0), f64(NAN), result)


# --- inverse trigonometric ------------------------------------------------------------------------------------------


def atan(x: Expr) -> Expr:
    """Arc tangent: from 0, 1/2, 1, 3/2 or infinity, whichever is near, to x (fdlibm)."""
    size, one, zero = hl.abs(x), f64(1.0), f64(0.0)
    top, bottom, arc, rest = size, one, zero, zero
    for least, high, low, c in ARCS:
        here = size >= f64(least)
        top, bottom = hl.select(here, size - f64(c), top), hl.select(here, size * f64(c) + one, bottom)
        arc, rest = hl.select(here, f64(high), arc), hl.select(here, f64(low), rest)
    here = size >= f64(2.4375)
    top, bottom = hl.select(here, f64(-1.0), top), hl.select(here, size, bottom)
    arc, rest = hl.select(here, f64(PI_OVER_2), arc), hl.select(here, f64(PI_OVER_2_LOW), rest)
    t = top / bottom
    z = t * t
    return copy_sign(arc + (t + (t * z * horner(z, ATAN, F) + rest)), x, F)


def _root_parts(z: Expr) -> tuple[Expr, Expr]:
    """sqrt(z) as its leading half and the rest, which rounding would have lost."""
    root = hl.sqrt(z)
    head = _cut(root)
    rest = (z - head * head) / (root + head)
    return head, hl.select(z > f64(0.0), rest, root)


def asin(x: Expr) -> Expr:
    """Arc sine: a polynomial up to 1/2, beyond it pi/2 - 2 asin(sqrt((1 - |x|) / 2))."""
    size = hl.abs(x)
    is_small = size < f64(0.5)
    z = hl.select(is_small, x * x, (f64(1.0) - size) * f64(0.5))
    tail = z * horner(z, ASIN, F)
    head, rest = _root_parts(z)
    quarter = f64(PI_OVER_2 / 2)
    small = (head + rest) * tail * f64(2.0) - (f64(PI_OVER_2_LOW) - rest * f64(2.0))
    large = quarter - (small - (quarter - head * f64(2.0)))
    return hl.select(is_small, x + x * tail, copy_sign(large, x, F))


def acos(x: Expr) -> Expr:
    """Arc cosine, NaN outside [-1, 1]."""
    size = hl.abs(x)
    is_small = size < f64(0.5)
    z = hl.select(is_small, x * x, (f64(1.0) - size) * f64(0.5))
    tail = z * horner(z, ASIN, F)
    head, rest = _root_parts(z)
    small = f64(PI_OVER_2) - (x - (f64(PI_OVER_2_LOW) - x * tail))
    near = head + ((head + rest) * tail + rest)
    far = (head + rest) + ((head + rest) * tail - f64(PI_OVER_2_LOW))
    large = hl.select(x > f64(0.0), near + near, f64(2 * PI_OVER_2) - (far + far))
    return hl.select(is_small, small, large)


# --- the error function, cube root ----------------------------------------------------------------------------------


def _erf_small(x: Expr) -> Expr:
    return x + x * horner(x * x, ERF, F)


def _erfc_large(x: Expr) -> Expr:
    """erfc for x >= 0.45: a polynomial times e^(-x^2), the square in two exact parts."""
    x = _between(x, 0.45, 27.3)
    head = _cut(x)
    square, rest = head * head, (x - head) * (x + head)
    r, n = _reduce_exp(negate(square, F))
    factor = horner((x - f64(4.0)) / (x + f64(4.0)), ERFCX, F) / (x + f64(1.0))
    return _two_to_times(n, _exp_polynomial(r - rest) * factor)


def erf(x: Expr) -> Expr:
    """The error function."""
    size = hl.abs(x)
    large = f64(1.0) - _erfc_large(_between(size, 0.0, 6.0))
    return hl.select(size < f64(1.0), _erf_small(x), copy_sign(large, x, F))


def erfc(x: Expr) -> Expr:
    """1 - erf(x), accurate where it is small."""
    size, one = hl.abs(x), f64(1.0)
    large = _erfc_large(size)
    large = hl.select(size > f64(27.3), f64(0.0), large)
    outer = hl.select(x < f64(0.0), f64(2.0) - large, large)
    return hl.select(size < f64(0.5), one - _erf_small(x), outer)


CBRT = (
    1.87595182427177009643, -1.88497979543377169875, 1.621429720105354466140, -0.758397934778766047437,
    0.145996192886612446982,
)  # fmt: skip


def cbrt(x: Expr) -> Expr:
    """Cube root: a third of the exponent, a polynomial, one Newton step (fdlibm)."""
    size = hl.abs(x)
    is_tiny = size < f64(2.0**-1022)
    a = hl.select(is_tiny, size * f64(2.0**54), size)
    word = hl.cast(hl.UInt(32), bits_of(a, F) >> hl.u64(32))
    t = from_bits(hl.cast(hl.UInt(64), word / hl.u32(3) + hl.u32(715094163)) << hl.u64(32), F)
    t = t * horner(t * t * (t / a), CBRT, F)
    t = from_bits((bits_of(t, F) + hl.u64(0x80000000)) & hl.u64(0xFFFFFFFFC0000000), F)
    r = a / (t * t)
    t = t + t * ((r - t) / (t + t + r))
    t = t * hl.select(is_tiny, f64(2.0**-18), f64(1.0))
    ordinary = (size > f64(0.0)) & (size < f64(INF))
    return hl.select(ordinary, copy_sign(t, x, F), x)
