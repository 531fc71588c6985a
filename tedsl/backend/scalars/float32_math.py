"""The hot float32 functions, in float32 vectors: exp, log, tanh, sigmoid, erf, sin, cos and their kin.

Halide's own lose NaN and infinity and call the C library one lane at a time for most of them. Each here reduces its
argument, evaluates a minimax polynomial and repairs the special values; the errors, in units in the last place against
the exact result, are asserted in tests/backend/scalars/test_intrinsics.py. No step relies on fused multiply-add,
and none is hurt by it. The other functions run through `float64_math`.
"""

from __future__ import annotations

import itertools

import halide as hl

from tedsl.backend.scalars.types import Expr, bits_of, copy_sign, f64, from_bits, horner, is_nan, negate

__all__ = [
    "cos", "erf", "exp", "exp2", "expm1", "exponent_and_rest", "log", "log1p", "log2", "reduce_quadrant",
    "sigmoid", "sin", "tanh",
]  # fmt: skip

F = "float32"
INF, NAN = float("inf"), float("nan")

# ln 2 as a part of 15 bits, whose products with the exponents are exact, and the rest.
LN2_HIGH, LN2_LOW = 0.693145751953125, 1.428606765330187e-06
LOG2_E = 1.4426950408889634
# Adding and subtracting this rounds to an integer; the low bits of the sum then hold that integer.
ROUNDER, ROUNDER_BITS = 12582912.0, 0x4B400000
BIASED = ROUNDER + 254.0  # the same with twice the bias of an exponent
ZERO_BELOW = -176.0  # where the first half of the power is 0: a product that only gets too small takes 150 cycles
# (exp(r) - 1 - r) / r^2, |r| <= ln 2 / 2
EXP = (0.4999999403953552, 0.1666650027036667, 0.0416678860783577, 0.008371064439415932, 0.0013862240593880415)
EXPM1 = (
    0.5, 0.16666622459888458, 0.041666463017463684, 0.008344613015651703, 0.0013936832547187805, 0.00013478522305376828,
)  # fmt: skip
# (log(1 + f) - f + f^2 / 2) / f^3 for 1 + f in [sqrt(1/2), sqrt(2)]
LOG = (
    0.3333331133245105, -0.2500000782202532, 0.20002215034172516, -0.16668184228120128, 0.142175689331079,
    -0.12400609378509335, 0.11898776118630064, -0.11712694617000415, 0.06768268524636077,
)  # fmt: skip
# erf(x) / x - 1 in x^2, and -log(1 - erf(x)) / x in x
ERF_SMALL = (
    0.1283791665796254, -0.37612633188085803, 0.11283687187970073, -0.02685894154928065, 0.005199906831896437,
    -0.0008130014716845839, 8.316783991036669e-05,
)  # fmt: skip
ERF_LARGE = (
    1.1286486972207173, 0.6351504433608952, 0.10623837000775402, -0.023763384677036606, 0.0036430983269292016,
    -0.00032296390276138204, 1.124750562614453e-05,
)  # fmt: skip
# (sin(r) / r - 1) / r^2 and (cos(r) - 1 + r^2 / 2) / r^4 in r^2, |r| <= pi / 4
SIN = (-0.16666655242443085, 0.008332190103828907, -0.00019518406770657748)
COS = (0.04166664555668831, -0.00138873013202101, 2.4430664780084044e-05)


def _between(x: Expr, low: float, high: float) -> Expr:
    """x held within bounds; NaN stays. Each select is one instruction, a maximum and a minimum."""
    x = hl.select(x < hl.f32(low), hl.f32(low), x)
    return hl.select(x > hl.f32(high), hl.f32(high), x)


def _nearest(x: Expr) -> tuple[Expr, Expr]:
    """x, at most 2^21 in size, rounded to an integer: as a float, and as an int32 (any value for NaN)."""
    shifted = x + hl.f32(ROUNDER)
    return shifted - hl.f32(ROUNDER), hl.reinterpret(hl.Int(32), bits_of(shifted, F) - hl.u32(ROUNDER_BITS))


def _two_to(n: Expr) -> Expr:
    """2^n for an int32 within the exponents of normal numbers."""
    return from_bits(hl.cast(hl.UInt(32), n + hl.i32(127)) << hl.u32(23), F)


def _nearest_power(x: Expr) -> tuple[Expr, tuple[Expr, Expr]]:
    """x rounded to an integer n as a float, and two powers of two whose product is 2^n.

    Each exponent is half of n, so that n may lie far outside of those of normal numbers. The bias of both is in the
    sum that rounds: its low bits are n + 254, and their halves are the exponents' fields.
    """
    shifted = x + hl.f32(BIASED)
    bits = bits_of(shifted, F)
    half = bits >> hl.u32(1)
    fields = half << hl.u32(23), (bits - half) << hl.u32(23)
    return shifted - hl.f32(BIASED), (from_bits(fields[0], F), from_bits(fields[1], F))


def _without(x: Expr, n: Expr) -> Expr:
    """x - n ln 2, for the integer n next to x / ln 2."""
    return (x - n * hl.f32(LN2_HIGH)) - n * hl.f32(LN2_LOW)


def _reduce_exp(x: Expr) -> tuple[Expr, Expr]:
    """x = n ln 2 + r: r and the integer n."""
    real, n = _nearest(x * hl.f32(LOG2_E))
    return _without(x, real), n


def _exp_polynomial(r: Expr) -> Expr:
    return (r + r * r * horner(r, EXP, F)) + hl.f32(1.0)


def _exp_of_negative(x: Expr) -> Expr:
    """e^x for x <= 0 within 0.7 units, half of a unit less than `exp`: what rounding r lost is added back."""
    x = _between(x, ZERO_BELOW, 0.0)
    real, (low_power, high_power) = _nearest_power(x * hl.f32(LOG2_E))
    high = x - real * hl.f32(LN2_HIGH)
    low = real * hl.f32(LN2_LOW)
    r = high - low
    lost = (high - r) - low
    return ((r + (r * r * horner(r, EXP, F) + lost)) + hl.f32(1.0)) * low_power * high_power


def exp(x: Expr) -> Expr:
    """e^x."""
    x = _between(x, ZERO_BELOW, 89.0)
    real, (low, high) = _nearest_power(x * hl.f32(LOG2_E))
    return _exp_polynomial(_without(x, real)) * low * high


def exp2(x: Expr) -> Expr:
    """2^x."""
    x = _between(x, -254.0, 129.0)
    real, (low, high) = _nearest_power(x)
    return _exp_polynomial((x - real) * hl.f32(0.6931471805599453)) * low * high


def _half_expm1(x: Expr) -> Expr:
    """(e^x - 1) / 2: halved, so that the largest power of two stays finite."""
    r, n = _reduce_exp(x)
    p = r + r * r * horner(r, EXPM1, F)
    half = _two_to(n - hl.i32(1))
    return half * p + (half - hl.f32(0.5))


def expm1(x: Expr) -> Expr:
    """e^x - 1."""
    half = _half_expm1(_between(x, -25.0, 89.0))
    return hl.select(hl.abs(x) < hl.f32(2.0**-25), x, half + half)


def tanh(x: Expr) -> Expr:
    """(e^2x - 1) / (e^2x + 1), for |x|."""
    size = hl.abs(x)
    e = _half_expm1(_between(size + size, 0.0, 19.0))
    quotient = e / (e + hl.f32(1.0))
    # e - e q = q: while e is small, the roundings of q hardly count in it.
    result = hl.select(e < hl.f32(0.4), e - e * quotient, quotient)
    return hl.select(size < hl.f32(2.0**-12), x, copy_sign(result, x, F))


def sigmoid(x: Expr) -> Expr:
    """1 / (1 + e^-x), from e^-|x| so that neither tail overflows."""
    e = _exp_of_negative(negate(hl.abs(x), F))
    quotient = hl.select(x < hl.f32(0.0), e, hl.f32(1.0)) / (e + hl.f32(1.0))
    return hl.select(x < hl.f32(-1.4), e - e * quotient, quotient)  # as in tanh


def erf(x: Expr) -> Expr:
    """The error function: an odd polynomial below 0.93, 1 - e^-(polynomial) above."""
    size = hl.abs(x)
    t = _between(size, 0.0, 4.0)
    r, n = _reduce_exp(negate(t * horner(t, ERF_LARGE, F), F))
    large = hl.f32(1.0) - _exp_polynomial(r) * _two_to(n)
    z = x * x
    small = x + x * horner(z, ERF_SMALL, F)
    return hl.select(size < hl.f32(0.93), small, copy_sign(large, x, F))


def exponent_and_rest(x: Expr) -> tuple[Expr, Expr]:
    """x = 2^k (1 + f), for finite x > 0: k as a float, and f from sqrt(1 / 2) - 1 to sqrt(2) - 1."""
    is_tiny = x < hl.f32(2.0**-126)
    bits = bits_of(hl.select(is_tiny, x * hl.f32(2.0**23), x), F)
    root_half = hl.u32(0x3F3504F3)
    k = hl.reinterpret(hl.Int(32), bits - root_half) >> hl.u32(23)
    f = from_bits(bits - (hl.cast(hl.UInt(32), k) << hl.u32(23)), F) - hl.f32(1.0)
    real = hl.cast(hl.Float(32), k) - hl.select(is_tiny, hl.f32(23.0), hl.f32(0.0))
    return real, f


def _log_parts(x: Expr) -> tuple[Expr, Expr, Expr]:
    """x = 2^k (1 + f), for finite x > 0: k as a float, f, and log(1 + f) - f + f^2 / 2."""
    k, f = exponent_and_rest(x)
    return k, f, f * f * f * horner(f, LOG, F)


def _log_edges(x: Expr, result: Expr) -> Expr:
    """`result`, but the logarithm of infinity, of zero, of negative numbers and of NaN."""
    result = hl.select(x == hl.f32(INF), hl.f32(INF), result)
    result = hl.select(x == hl.f32(0.0), hl.f32(-INF), result)
    return hl.select((x < hl.f32(0.0)) | is_nan(x, F), hl.f32(NAN), result)


def _log_sum(k: Expr, f: Expr, tail: Expr) -> Expr:
    """k ln 2 + log(1 + f), smallest terms first."""
    return k * hl.f32(LN2_HIGH) + (f - (f * f * hl.f32(0.5) - (tail + k * hl.f32(LN2_LOW))))


def log(x: Expr) -> Expr:
    """The natural logarithm."""
    return _log_edges(x, _log_sum(*_log_parts(x)))


def log1p(x: Expr) -> Expr:
    """log(1 + x); what rounding 1 + x lost comes back as a correction of first order."""
    u = x + hl.f32(1.0)
    lost = hl.select(x > hl.f32(1.0), hl.f32(1.0) - (u - x), x - (u - hl.f32(1.0)))
    k, f, tail = _log_parts(u)
    result = _log_edges(u, _log_sum(k, f, tail + lost / u))
    result = hl.select(x == hl.f32(INF), x, result)
    return hl.select(hl.abs(x) < hl.f32(2.0**-25), x, result)


def log2(x: Expr) -> Expr:
    """The logarithm to base 2: log(1 + f) in two parts, so that its product with 1 / ln 2 keeps its last bits."""
    k, f, tail = _log_parts(x)
    square = f * f * hl.f32(0.5)
    high = from_bits(bits_of(f - square, F) & hl.u32(0xFFFFF000), F)
    low = ((f - high) - square) + tail
    # 1 / ln 2 = 1.4428710938 (12 bits) - 0.000176052887
    head, rest = hl.f32(1.44287109375), hl.f32(-0.00017605286103664)
    return _log_edges(x, ((low + high) * rest + low * head) + high * head + k)


# --- sine and cosine ------------------------------------------------------------------------------------------------
TWO_OVER_PI = (0x0, 0xA2F9836E, 0x4E441529, 0xFC2757D1, 0xF534DDC0, 0xDB629599, 0x3C439041, 0xFE5163AB)


def _window(first: Expr) -> list[Expr]:
    """96 bits of 2/pi, from bit `first` of TWO_OVER_PI on, as three words."""
    word, shift = first >> hl.u32(5), hl.cast(hl.UInt(32), first & hl.i32(31))
    words = []
    for k in range(4):
        w = hl.u32(TWO_OVER_PI[k])
        for q in range(1, 5):
            w = hl.select(word >= hl.i32(q), hl.u32(TWO_OVER_PI[q + k]), w)
        words.append(w)
    back = hl.u32(31) - shift
    return [(a << shift) | ((b >> hl.u32(1)) >> back) for a, b in itertools.pairwise(words)]


def reduce_quadrant(x: Expr) -> tuple[Expr, Expr]:
    """|x| modulo pi/2 (Payne and Hanek), for |x| >= pi/4: the remainder within pi/4 of 0, a float64, and the quadrant.

    x is m 2^e with an integer m of 24 bits. Bits of 2/pi that only add multiples of 4 to m 2^e (2/pi) are skipped,
    the next 96 are multiplied by m in integers; the top two bits of the product are the quadrant.
    """
    bits = bits_of(hl.abs(x), F)
    exponent = hl.cast(hl.Int(32), bits >> hl.u32(23)) - hl.i32(150)
    m = hl.cast(hl.UInt(64), (bits & hl.u32(0x7FFFFF)) | hl.u32(0x800000))
    top, middle, low = (hl.cast(hl.UInt(64), w) for w in _window(exponent + hl.i32(30)))
    turns = ((m * top) << hl.u64(32)) + m * middle + ((m * low) >> hl.u64(32))  # in units of 2^-62 quadrants
    quadrant = hl.cast(hl.Int(32), (turns + hl.u64(1 << 61)) >> hl.u64(62))
    fraction = turns << hl.u64(2)
    high = hl.cast(hl.Float(64), hl.cast(hl.Int(32), hl.cast(hl.UInt(32), fraction >> hl.u64(32))))
    rest = hl.cast(hl.Float(64), hl.cast(hl.Int(32), hl.cast(hl.UInt(32), fraction & hl.u64(0xFFFFFFFF)) >> hl.u32(1)))
    half_pi = 1.5707963267948966
    return high * f64(half_pi * 2.0**-32) + rest * f64(half_pi * 2.0**-63), quadrant


def _sine(x: Expr, advance: int) -> Expr:
    """sin(|x| + advance pi/2), NaN for infinities."""
    size = hl.abs(x)
    remainder, quadrant = reduce_quadrant(x)
    is_small = size < hl.f32(0.785)
    r = hl.select(is_small, size, hl.cast(hl.Float(32), remainder))
    quadrant = hl.select(is_small, hl.i32(0), quadrant) + hl.i32(advance)
    z = r * r
    sine = r + r * z * horner(z, SIN, F)
    cosine = (hl.f32(1.0) - z * hl.f32(0.5)) + z * z * horner(z, COS, F)
    result = hl.select((quadrant & hl.i32(1)) == hl.i32(0), sine, cosine)
    flipped = bits_of(result, F) ^ (hl.cast(hl.UInt(32), quadrant & hl.i32(2)) << hl.u32(30))
    return hl.select(size < hl.f32(INF), from_bits(flipped, F), hl.f32(NAN))


def sin(x: Expr) -> Expr:
    """Sine, for arguments of any size."""
    sign = bits_of(x, F) & hl.u32(0x80000000)
    return from_bits(bits_of(_sine(x, 0), F) ^ sign, F)


def cos(x: Expr) -> Expr:
    """Cosine, for arguments of any size."""
    return _sine(x, 1)
