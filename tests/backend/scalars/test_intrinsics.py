"""Every scalar operation on every dtype, against NumPy, mpmath and Python's integers."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import halide as hl
import mpmath
import numpy as np
import pytest

from tedsl.backend.scalars import int_math
from tedsl.backend.scalars.intrinsics import EMIT, constant_power
from tedsl.backend.scalars.types import FLOATS, INTEGERS, SIGNED, TYPES, const
from tedsl.lang.operators import Fn
from tests.backend.scalars.scalar_harness import Array, of_bfloat16, run, same_bits, to_bfloat16

# Analysis: what computes it exactly enough in float64, what in arbitrary precision, and how many units in the last
# place (of float32, of float64) the kernel may be off.
FUNCTIONS: dict[str, tuple[Any, Any, float, float]] = {
    "exp": (np.exp, mpmath.exp, 1.0, 1.5),
    "exp2": (np.exp2, lambda x: mpmath.power(2, x), 1.0, 1.5),
    "expm1": (np.expm1, mpmath.expm1, 1.5, 2),
    "log": (np.log, mpmath.log, 1.0, 1.5),
    "log1p": (np.log1p, mpmath.log1p, 1.0, 1.5),
    "log2": (np.log2, lambda x: mpmath.log(x) / mpmath.log(2), 1.0, 1.5),
    "log10": (np.log10, mpmath.log10, 0.51, 1.5),
    "sqrt": (np.sqrt, mpmath.sqrt, 0.5, 0.5),
    "rsqrt": (lambda x: 1 / np.sqrt(x), lambda x: 1 / mpmath.sqrt(x), 1.5, 1.5),
    "cbrt": (np.cbrt, lambda x: mpmath.sign(x) * mpmath.cbrt(abs(x)), 0.51, 1),
    "sin": (np.sin, mpmath.sin, 2, 1),
    "cos": (np.cos, mpmath.cos, 2, 1),
    "tan": (np.tan, mpmath.tan, 0.51, 1),
    "asin": (np.arcsin, mpmath.asin, 0.51, 1),
    "acos": (np.arccos, mpmath.acos, 0.51, 1),
    "atan": (np.arctan, mpmath.atan, 0.51, 1),
    "sinh": (np.sinh, mpmath.sinh, 0.51, 2),
    "cosh": (np.cosh, mpmath.cosh, 0.51, 2),
    "tanh": (np.tanh, mpmath.tanh, 2, 2),
    "asinh": (np.arcsinh, mpmath.asinh, 0.51, 2.5),
    "acosh": (np.arccosh, mpmath.acosh, 0.51, 2.5),
    "atanh": (np.arctanh, mpmath.atanh, 0.51, 2),
    "erf": (np.vectorize(math.erf, otypes=[float]), mpmath.erf, 1.5, 1.5),
    "erfc": (np.vectorize(math.erfc, otypes=[float]), mpmath.erfc, 0.51, 4),
    "sigmoid": (lambda x: np.where(x < 0, e := np.exp(-abs(x)), 1) / (1 + e), lambda x: 1 / (1 + mpmath.exp(-x)), 2, 2),
}
EXACT_UNARY = {
    "abs": np.abs, "neg": np.negative, "sign": np.sign, "square": np.square, "reciprocal": np.reciprocal,
    "floor": np.floor, "ceil": np.ceil, "round": np.rint, "trunc": np.trunc,
    "relu": lambda x: np.maximum(x, x.dtype.type(0)),
    "isnan": np.isnan, "isinf": np.isinf, "isfinite": np.isfinite,
}  # fmt: skip
EXACT_BINARY = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "floordiv": np.floor_divide, "mod": np.mod,
    "minimum": np.minimum, "maximum": np.maximum, "copysign": np.copysign,
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip
# NumPy itself gives either zero, by the instruction set it runs on.
EITHER_ZERO = {"minimum", "maximum", "relu", "clip"}
EDGES = [
    0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 2.0, 3.0, -3.0, 7.0, 0.1, -0.1, 100.0, math.pi / 2, 0.93, 88.7,
    -104.0, 709.7, -745.0, 1e-8, 1e8, -1e8, math.inf, -math.inf, math.nan,
]  # fmt: skip


@pytest.fixture(autouse=True)
def _numpy_is_quiet() -> Iterator[None]:
    with np.errstate(all="ignore"):
        yield


def row(name: str, dtype: str) -> Any:
    return lambda *operands: EMIT[name](*operands, dtype=dtype)


def specials(dtype: str) -> Array:
    """Zeros, units, ties, the smallest and largest numbers of the type, infinities, NaN."""
    info = np.finfo(dtype)
    limits = [info.tiny, info.smallest_subnormal, info.max, info.eps, 1 + info.eps, 1 - info.epsneg]
    return np.concatenate([np.array(EDGES, dtype), np.array([s * v for v in limits for s in (1, -1)], dtype)])


@functools.cache
def samples(dtype: str) -> Array:
    """Special values, values of every size, and random bit patterns."""
    rng = np.random.default_rng(0)
    n = 20_000 if dtype == "float32" else 40
    unsigned = np.dtype(f"u{np.dtype(dtype).itemsize}")
    patterns = rng.integers(0, np.iinfo(unsigned).max, n, dtype=unsigned, endpoint=True).view(dtype)
    spread = [rng.uniform(-s, s, n) for s in (1.0, 4.0, 20.0, 110.0, 1e5)]
    near = [np.exp2(rng.uniform(-30, 3, n)), 1 + rng.uniform(-0.6, 1.2, n), rng.uniform(0, 30, n)]
    return np.concatenate([specials(dtype), patterns, *(a.astype(dtype) for a in spread + near)])


def errors_in_ulps(got: Array, exact: Array) -> Array:
    """|got - exact| in units in the last place of the rounded exact value; infinite where NaN or infinities differ."""
    rounded = exact.astype(got.dtype)
    off = np.abs(got.astype(np.float64) - exact) / np.spacing(np.abs(rounded)).astype(np.float64)
    off = np.where(np.isinf(rounded) | np.isinf(got), np.where(got == rounded, 0.0, np.inf), off)
    return np.where(np.isnan(rounded) | np.isnan(got), np.where(np.isnan(rounded) & np.isnan(got), 0.0, np.inf), off)


def assert_within(name: str, x: Array, got: Array, exact: Array, bound: float) -> None:
    off = errors_in_ulps(got, exact)
    worst = int(np.argmax(off))
    assert off[worst] <= bound, f"{name}({x[worst]!r}) = {got[worst]!r}, exact {exact[worst]!r}: {off[worst]:.3f} ulp"
    zeros = (got == 0) & (exact == 0) & (np.signbit(got) != np.signbit(exact))
    assert not zeros.any(), f"{name}({x[zeros][0]!r}): the sign of zero is lost"


def assert_same(name: str, operands: list[Array], got: Array, wanted: Array) -> None:
    """Bit for bit, apart from the kind of a NaN."""
    assert got.dtype == wanted.dtype, f"{name}: {got.dtype}, expected {wanted.dtype}"
    if got.dtype.kind != "f":
        same = got == wanted
    elif name in EITHER_ZERO:
        same = (got == wanted) | (np.isnan(got) & np.isnan(wanted))
    else:
        same = same_bits(got, wanted)
    bad = np.flatnonzero(~same)
    if bad.size:
        i = bad[0]
        found = f"{got[i]!r}, expected {wanted[i]!r}"
        pytest.fail(f"{name}({', '.join(repr(a[i]) for a in operands)}) = {found}; {bad.size} such")


def test_the_table_has_a_row_for_every_operation() -> None:
    assert {fn.value for fn in Fn} <= set(EMIT)


# --- functions of analysis --------------------------------------------------------------------------------------------


@functools.cache
def functions(dtype: str) -> dict[str, Array]:
    return run({name: row(name, dtype) for name in FUNCTIONS}, [samples(dtype)], [dtype])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_float32_functions_are_accurate(name: str) -> None:
    x = samples("float32")
    exact = FUNCTIONS[name][0](x.astype(np.float64))
    assert_within(name, x, functions("float32")[name], exact, FUNCTIONS[name][2])


def in_float64(function: Any, x: float) -> tuple[float, float]:
    """The value of `function`, rounded, and what rounding left, in units in the last place."""
    with mpmath.workdps(400 if abs(x) > 1e15 else 60):
        value = function(mpmath.mpf(x))
        if isinstance(value, mpmath.mpc):
            return math.nan, 0.0
        rounded = float(value)
        if not math.isfinite(rounded):
            return rounded, 0.0
        return rounded, float((value - mpmath.mpf(rounded)) / mpmath.mpf(float(np.spacing(abs(rounded)))))


def is_special(name: str, x: float) -> bool:
    """Arguments at which mpmath has an opinion of its own; NumPy is the judge there."""
    return not math.isfinite(x) or x == 0 or (abs(x) > 30 and name in {"erf", "erfc"}) or abs(x) == 1


@pytest.mark.parametrize("name", FUNCTIONS)
def test_float64_functions_are_accurate(name: str) -> None:
    numpy_function, exact_function, _, bound = FUNCTIONS[name]
    x, got = samples("float64"), functions("float64")[name]
    known = numpy_function(x)
    for value, result, reference in zip(x.tolist(), got.tolist(), known.tolist(), strict=True):
        if is_special(name, value) or not math.isfinite(reference):
            off = float(errors_in_ulps(np.array(result), np.array(reference)))
            assert off <= 1, f"{name}({value!r}) = {result!r}, expected {reference!r}"
            continue
        rounded, rest = in_float64(exact_function, value)
        off = abs((result - rounded) / float(np.spacing(abs(rounded))) - rest)
        assert off <= bound, f"{name}({value!r}) = {result!r}, exact {rounded!r}: {off:.2f} ulp"


def float16_samples() -> Array:
    return np.arange(1 << 16, dtype=np.uint16).view(np.float16)


@functools.cache
def narrow_functions(dtype: str) -> dict[str, Array]:
    x = float16_samples() if dtype == "float16" else float16_samples().view(np.uint16)
    return run({name: row(name, dtype) for name in [*FUNCTIONS, *EXACT_UNARY]}, [x], [dtype])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_narrow_functions_round_the_right_value(name: str, dtype: str) -> None:
    """All 65536 arguments: correct to half a unit, plus what float32 may be off."""
    x, got = float16_samples(), narrow_functions(dtype)[name]
    values = x.astype(np.float64) if dtype == "float16" else of_bfloat16(x.view(np.uint16)).astype(np.float64)
    exact = FUNCTIONS[name][0](values)
    if dtype == "float16":
        assert_within(name, values, got, exact, 0.501)
        return
    # bfloat16: the next number below and above the exact value bracket the result by less than a unit, 0.51 of one.
    result = of_bfloat16(got).astype(np.float64)
    nearest = of_bfloat16(to_bfloat16(exact.astype(np.float32))).astype(np.float64)
    unit = np.maximum(np.abs(np.exp2(np.floor(np.log2(np.abs(exact))) - 7)), 2.0**-133)
    near = (np.abs(result - exact) <= 0.51 * unit) | (result == nearest) | (np.isnan(result) & np.isnan(nearest))
    assert near.all(), f"{name}({values[~near][0]!r}) = {result[~near][0]!r}, exact {exact[~near][0]!r}"


# --- exact float arithmetic -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_exact_unary(dtype: str) -> None:
    x = samples(dtype)
    ties = np.arange(-8, 8.5, 0.5).astype(dtype)
    x = np.concatenate([x, ties, ties + np.array(2.0 ** (np.finfo(dtype).nmant - 1), dtype)])
    got = run({name: row(name, dtype) for name in EXACT_UNARY}, [x], [dtype])
    for name, function in EXACT_UNARY.items():
        assert_same(name, [x], got[name], function(x))


@pytest.mark.parametrize("name", EXACT_UNARY)
def test_exact_unary_float16(name: str) -> None:
    x = float16_samples()
    assert_same(name, [x], narrow_functions("float16")[name], EXACT_UNARY[name](x))


@pytest.mark.parametrize("name", EXACT_UNARY)
def test_exact_unary_bfloat16(name: str) -> None:
    bits = float16_samples().view(np.uint16)
    got = narrow_functions("bfloat16")[name]
    wanted = EXACT_UNARY[name](of_bfloat16(bits))
    if wanted.dtype == np.float32:
        got, wanted = of_bfloat16(got), of_bfloat16(to_bfloat16(wanted))
    assert_same(name, [of_bfloat16(bits)], got, wanted)


def pairs(dtype: str) -> tuple[Array, Array]:
    """Special values with each other, and random ones of close and of very different sizes."""
    rng = np.random.default_rng(1)
    s = specials(dtype)
    a, b = (m.ravel() for m in np.meshgrid(s, s))
    n = 5000
    span = {"float16": 5, "float32": 60, "float64": 500}[dtype]
    x = (rng.standard_normal(n) * np.exp2(rng.uniform(-span, span, n))).astype(dtype)
    y = (rng.standard_normal(n) * np.exp2(rng.uniform(-span, span, n))).astype(dtype)
    u, v = rng.integers(-50, 50, n).astype(dtype), rng.integers(-9, 9, n).astype(dtype)
    return np.concatenate([a, x, u, x]), np.concatenate([b, y, v, (x * v).astype(dtype)])


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_exact_binary(dtype: str) -> None:
    a, b = pairs(dtype)
    got = run({name: row(name, dtype) for name in EXACT_BINARY}, [a, b], [dtype, dtype])
    for name, function in EXACT_BINARY.items():
        assert_same(name, [a, b], got[name], function(a, b))


def test_exact_binary_bfloat16() -> None:
    a, b = (to_bfloat16(x) for x in pairs("float32"))
    got = run({name: row(name, "bfloat16") for name in EXACT_BINARY}, [a, b], ["bfloat16", "bfloat16"])
    x, y = of_bfloat16(a), of_bfloat16(b)
    for name, function in EXACT_BINARY.items():
        wanted, found = function(x, y), got[name]
        if wanted.dtype == np.float32:
            found, wanted = of_bfloat16(found), of_bfloat16(to_bfloat16(wanted))
        assert_same(name, [x, y], found, wanted)


BINARY_FUNCTIONS = {"pow": (np.power, 0.51, 1), "atan2": (np.arctan2, 0.51, 1), "hypot": (np.hypot, 0.51, 2)}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_binary_functions(dtype: str) -> None:
    a, b = pairs(dtype)
    got = run({name: row(name, dtype) for name in BINARY_FUNCTIONS}, [a, b], [dtype, dtype])
    for name, (function, single, double) in BINARY_FUNCTIONS.items():
        exact = function(a.astype(np.float64), b.astype(np.float64))
        assert_within(name, np.stack([a, b], 1), got[name], exact, single if dtype == "float32" else double)


def test_powers_of_every_size_are_rounded_once() -> None:
    """Also those that are subnormal, and of bases beside 1, whose logarithms are small and exponents large."""
    rng = np.random.default_rng(4)
    wide = np.exp(rng.uniform(-103, 88.7, 20000)).astype(np.float32)
    near = (1 + rng.normal(0, 1e-3, 20000)).astype(np.float32)
    a = np.concatenate([wide, near[near != 1]])
    b = (rng.uniform(-150, 128, a.size) / np.log2(a.astype(np.float64))).astype(np.float32)
    got = run({"pow": row("pow", "float32")}, [a, b], ["float32", "float32"])["pow"]
    exact = np.power(a.astype(np.longdouble), b.astype(np.longdouble))
    assert_within("pow", np.stack([a, b], 1), got, exact, 0.502)


ROOTS = [0.5, -0.5, 1.5, -1.5, 2.5, -2.5, 3.5]
EXPONENTS = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, -1.0, -2.0, -3.0, *ROOTS, math.inf, -math.inf, math.nan]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_constant_powers(dtype: str) -> None:
    x = np.concatenate([specials(dtype), samples(dtype)[::5]]) if dtype != "float16" else float16_samples()
    rows = {f"pow {e}": (lambda a, e=e: constant_power(a, e, dtype)) for e in EXPONENTS}
    got = run(rows, [x], [dtype])
    for exponent in EXPONENTS:
        exact = np.power(x.astype(np.longdouble), np.longdouble(exponent))
        off = errors_in_ulps(got[f"pow {exponent}"], exact)
        bound = {"float16": 0.51, "float32": 1.5, "float64": 3}[dtype]
        assert off.max() <= bound, f"{x[np.argmax(off)]!r} ** {exponent}: {off.max():.2f} ulp"


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32", "int64"])
def test_constant_powers_of_integers(dtype: str) -> None:
    x = int_pool(dtype)
    exponents = [0, 1, 2, 3, 7, 31] + ([-1, -2] if dtype in SIGNED else [])
    got = run({f"pow {e}": (lambda a, e=e: constant_power(a, e, dtype)) for e in exponents}, [x], [dtype])
    for e in exponents:
        exact = [wrap(integer_power(v, e, 1 << INTEGERS[dtype]), dtype) for v in x.tolist()]
        assert_same(f"{dtype} pow {e}", [x], got[f"pow {e}"], np.array(exact, dtype))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "uint8"])
def test_clip_and_select(dtype: str) -> None:
    rng = np.random.default_rng(2)
    kind = np.dtype(dtype).kind
    pool = (
        specials(dtype) if kind == "f" else np.array([0, 1, 2, 3, 100, np.iinfo(dtype).max, np.iinfo(dtype).min], dtype)
    )
    x, low, high = (rng.choice(pool, 3000) for _ in range(3))
    rows = {"clip": row("clip", dtype), "select": lambda a, b, c: EMIT["select"](a < b, b, c, dtype=dtype)}
    got = run(rows, [x, low, high], [dtype] * 3)
    assert_same("clip", [x, low, high], got["clip"], np.clip(x, low, high))
    assert_same("select", [x, low, high], got["select"], np.where(x < low, low, high))


# --- integers and bools -----------------------------------------------------------------------------------------------
def int_pool(dtype: str) -> Array:
    info = np.iinfo(dtype)
    rng = np.random.default_rng(3)
    small = [v for v in (*range(-9, 10), 31, 32, 33, 63, 64, 65, -31, -64) if info.min <= v <= info.max]
    edges = [info.min, info.min + 1, info.max, info.max - 1, info.max // 2, info.max // 3, info.min // 2, info.min // 7]
    return np.concatenate([np.array(small + edges, dtype), rng.integers(info.min, info.max, 30, dtype, endpoint=True)])


def wrap(value: int, dtype: str) -> int:
    bits = INTEGERS[dtype]
    value &= (1 << bits) - 1
    return value - (1 << bits) if dtype in SIGNED and value >> (bits - 1) else value


def shift_right(a: int, b: int, bits: int) -> int:
    return a >> b if 0 <= b < bits else (-1 if a < 0 else 0)


def integer_power(a: int, b: int, modulus: int) -> int:
    if b >= 0:
        return pow(a, b, modulus)
    return a ** (-b % 2) if abs(a) == 1 else 0


# In Python's integers, before wrapping.
INT_BINARY: dict[str, Any] = {
    "add": lambda a, b, n: a + b,
    "sub": lambda a, b, n: a - b,
    "mul": lambda a, b, n: a * b,
    "floordiv": lambda a, b, n: a // b if b else 0,
    "mod": lambda a, b, n: a % b if b else 0,
    "pow": lambda a, b, n: integer_power(a, b, 1 << n),
    "minimum": lambda a, b, n: min(a, b),
    "maximum": lambda a, b, n: max(a, b),
    "bitand": lambda a, b, n: a & b,
    "bitor": lambda a, b, n: a | b,
    "bitxor": lambda a, b, n: a ^ b,
    "lshift": lambda a, b, n: a << b if 0 <= b < n else 0,
    "rshift": shift_right,
}
INT_UNARY: dict[str, Any] = {
    "neg": lambda a: -a,
    "abs": abs,
    "sign": lambda a: (a > 0) - (a < 0),
    "square": lambda a: a * a,
    "reciprocal": lambda a: a if abs(a) == 1 else 0,
    "invert": lambda a: ~a,
    "relu": lambda a: max(a, 0),
    **dict.fromkeys(("floor", "ceil", "round", "trunc"), lambda a: a),
}
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")


@pytest.mark.share(2)
@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers(dtype: str) -> None:
    pool = int_pool(dtype)
    a, b = (m.ravel() for m in np.meshgrid(pool, pool))
    names = [*INT_BINARY, *COMPARISONS]
    unary = {f"{name} of one": (lambda x, y, name=name: EMIT[name](x, dtype=dtype)) for name in INT_UNARY}
    got = run({name: row(name, dtype) for name in names} | unary, [a, b], [dtype, dtype])
    for name, function in INT_BINARY.items():
        exact = [wrap(function(x, y, INTEGERS[dtype]), dtype) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
        assert_same(f"{dtype} {name}", [a, b], got[name], np.array(exact, dtype))
    for name in COMPARISONS:
        assert_same(f"{dtype} {name}", [a, b], got[name], EXACT_BINARY[name](a, b))
    for name, function in INT_UNARY.items():
        exact = [wrap(function(x), dtype) for x in a.tolist()]
        assert_same(f"{dtype} {name}", [a], got[f"{name} of one"], np.array(exact, dtype))


def test_integers_with_constant_operands() -> None:
    """Halide's simplifier may not use that signed arithmetic does not overflow."""
    x = int_pool("int32")
    c = functools.partial(const, dtype="int32")
    rows = {
        "x + 1 > x": lambda a: EMIT["gt"](EMIT["add"](a, c(1), dtype="int32"), a, dtype="int32"),
        "2 x // 2": lambda a: EMIT["floordiv"](EMIT["mul"](a, c(2), dtype="int32"), c(2), dtype="int32"),
        "-x < 0": lambda a: EMIT["lt"](EMIT["neg"](a, dtype="int32"), c(0), dtype="int32"),
        "x ** 3": lambda a: EMIT["pow"](a, c(3), dtype="int32"),
        "x % 0": lambda a: EMIT["mod"](a, c(0), dtype="int32"),
        "x // 0": lambda a: EMIT["floordiv"](a, c(0), dtype="int32"),
    }
    got = run(rows, [x], ["int32"])
    assert_same("x + 1 > x", [x], got["x + 1 > x"], x + np.int32(1) > x)
    assert_same("2 x // 2", [x], got["2 x // 2"], (x * np.int32(2)) // np.int32(2))
    assert_same("-x < 0", [x], got["-x < 0"], -x < 0)
    assert_same("x ** 3", [x], got["x ** 3"], x * x * x)
    assert not got["x % 0"].any()
    assert not got["x // 0"].any()


def divisors(dtype: str) -> list[int]:
    """All of 7 bits, the ends, powers of two and their neighbours; a few drawn ones."""
    most = int(np.iinfo(dtype).max)
    powers = {p + d for k in range(INTEGERS[dtype]) for p in [1 << k] for d in (-1, 0, 1)}
    drawn = np.random.default_rng(INTEGERS[dtype]).integers(1, most, 20, endpoint=True).tolist()
    small = range(1, 128) if most < 256 else (3, 5, 7, 9, 10, 25, 100, 641)
    return sorted(d for d in {*small, *powers, *drawn, most, most // 2, most // 3} if 0 < d <= most)


def dividends(dtype: str) -> Array:
    """All of up to 16 bits; of 32 the pool, and multiples of every divisor with what lies beside them."""
    info = np.iinfo(dtype)
    if INTEGERS[dtype] <= 16:
        return np.arange(info.min, info.max + 1).astype(dtype)
    times = [d * m for d in divisors(dtype) for m in (-9, -1, 1, 2, info.max // d, info.min // d)]
    near = [v + e for v in times for e in (-1, 0, 1)]
    drawn = np.random.default_rng(5).integers(info.min, info.max, 5000, dtype=dtype, endpoint=True)
    return np.concatenate([int_pool(dtype), drawn, np.array([v for v in near if info.min <= v <= info.max], dtype)])


@pytest.mark.share(2)
@pytest.mark.parametrize("dtype", [d for d in INTEGERS if INTEGERS[d] <= 32])
def test_quotients_by_some_constants(dtype: str) -> None:
    check_quotients(dtype, divisors(dtype)[:: 4 if INTEGERS[dtype] == 8 else 3])


@pytest.mark.long
@pytest.mark.parametrize("dtype", [d for d in INTEGERS if INTEGERS[d] <= 32])
def test_quotients_by_all_constants(dtype: str) -> None:
    check_quotients(dtype, divisors(dtype))


def check_quotients(dtype: str, known: list[int]) -> None:
    """Rounded down, whatever the sign: by multiplication and shift."""
    x = dividends(dtype)
    for some in (known[k : k + 40] for k in range(0, len(known), 40)):
        rows = {f"// {d}": lambda a, d=d: int_math.quotient_by(a, d, dtype) for d in some}
        rows |= {f"% {d}": lambda a, d=d: int_math.remainder_by(a, d, dtype) for d in some}
        got = run(rows, [x], [dtype])
        for d in some:
            assert_same(f"{dtype} // {d}", [x], got[f"// {d}"], x // np.array(d, dtype))
            assert_same(f"{dtype} % {d}", [x], got[f"% {d}"], x % np.array(d, dtype))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32"])
def test_no_term_is_moved_across_a_quotient_where_it_would_wrap(dtype: str) -> None:
    info = np.iinfo(dtype)
    x = dividends(dtype)
    large = info.max // 2
    rows = {
        "x // 3 < c": lambda a: EMIT["lt"](int_math.quotient_by(a, 3, dtype), const(large, dtype), dtype=dtype),
        "x // 3 * 3 == x": lambda a: EMIT["eq"](
            EMIT["mul"](int_math.quotient_by(a, 3, dtype), const(3, dtype), dtype=dtype), a, dtype=dtype
        ),
        "(x + c) // 2": lambda a: int_math.quotient_by(EMIT["add"](a, const(large, dtype), dtype=dtype), 2, dtype),
        "x * 3 // 3": lambda a: int_math.quotient_by(EMIT["mul"](a, const(3, dtype), dtype=dtype), 3, dtype),
        "x * 4 % 4": lambda a: int_math.remainder_by(EMIT["mul"](a, const(4, dtype), dtype=dtype), 4, dtype),
    }
    three, c = np.array(3, dtype), np.array(large, dtype)
    got = run(rows, [x], [dtype])
    assert_same("x // 3 < c", [x], got["x // 3 < c"], x // three < c)
    assert_same("x // 3 * 3 == x", [x], got["x // 3 * 3 == x"], x // three * three == x)
    assert_same("(x + c) // 2", [x], got["(x + c) // 2"], (x + c) // np.array(2, dtype))
    assert_same("x * 3 // 3", [x], got["x * 3 // 3"], (x * three) // three)
    assert not got["x * 4 % 4"].any()


def test_bools() -> None:
    a, b = np.array([False, False, True, True]), np.array([False, True, False, True])
    binary = {
        "and": np.logical_and, "or": np.logical_or, "bitand": np.bitwise_and, "bitor": np.bitwise_or,
        "bitxor": np.bitwise_xor, "add": np.add, "mul": np.multiply, "minimum": np.minimum, "maximum": np.maximum,
        **{name: EXACT_BINARY[name] for name in COMPARISONS},
    }  # fmt: skip
    got = run({name: row(name, "bool") for name in binary}, [a, b], ["bool", "bool"])
    for name, function in binary.items():
        assert_same(name, [a, b], got[name].astype(bool), function(a, b))
    unary = {"not": np.logical_not, "invert": np.invert, "abs": np.abs}
    got = run({name: row(name, "bool") for name in unary}, [a], ["bool"])
    for name, function in unary.items():
        assert_same(name, [a], got[name].astype(bool), function(a))


@pytest.mark.parametrize(("name", "dtype"), [("sin", "int32"), ("lshift", "float32"), ("and", "int8"), ("sub", "bool")])
def test_no_such_operation_is_a_type_error(name: str, dtype: str) -> None:
    x = const(1, dtype)
    with pytest.raises(TypeError, match=rf"{name}: no such operation on {dtype}; cast the operands"):
        EMIT[name](x, x, dtype=dtype)


# --- casts ------------------------------------------------------------------------------------------------------------
ALL = ["bool", *INTEGERS, *FLOATS]


def cast_samples(source: str) -> Array:
    if source == "bool":
        return np.array([False, True])
    if source in INTEGERS:
        ties = [(1 << k) + d for k in range(7, 63) for d in (-1, 0, 1)] + [
            (1 << 40) + (1 << 32),
            (257 << 20) + 1,
            (515 << 50) + 1,
        ]
        info = np.iinfo(source)
        both = [s * t for t in ties for s in (1, -1) if info.min <= s * t <= info.max]
        return np.concatenate([int_pool(source), np.array(both, source)])
    if source in ("float16", "bfloat16"):
        x = float16_samples()
        return x if source == "float16" else x.view(np.uint16)
    edges = [s * (2.0**k + d) for k in (7, 8, 15, 16, 31, 32, 63, 64) for d in (-1, -0.5, 0, 0.5, 1) for s in (1, -1)]
    halves = [s * (1 + 2.0**-k * m + 2.0**-j) for k in (8, 11) for m in (1, 3) for j in (24, 30, 52) for s in (1, -1)]
    ties = [
        65504.0,
        65519.0,
        65520.0,
        2.0**-25,
        2.0**-24 * 1.5,
        3.0e-8,
        1 + 2.0**-11,
        1 + 3 * 2.0**-11,
        1 + 2.0**-8,
        3.39e38,
        3.4e38,
    ]
    return np.concatenate([samples(source)[::7], specials(source), np.array(edges + halves + ties, source)])


def rounded_to_bfloat16(value: float) -> float:
    """Nearest bfloat16, ties to even, from a number of any type, in fractions."""
    if not math.isfinite(value) or value == 0:
        return float(value)
    size = abs(Fraction(value))
    exponent = max(size.numerator.bit_length() - size.denominator.bit_length(), -126)
    exponent -= size < Fraction(2) ** exponent and exponent > -126
    unit = Fraction(2) ** (exponent - 7)
    result = round(size / unit) * unit
    return math.copysign(float(result) if result < 2**128 else math.inf, value)


def float_to_int(value: float, target: str) -> int:
    info = np.iinfo(target)
    if math.isnan(value):
        return 0
    if math.isinf(value):
        return int(info.max) if value > 0 else int(info.min)
    return int(min(max(int(value), info.min), info.max))


def cast_oracle(x: Array, source: str, target: str) -> Array:
    """The values a cast must give; NumPy's own where it defines them."""
    values = of_bfloat16(x) if source == "bfloat16" else x
    if target == "bool":
        return values != 0
    if target in INTEGERS and source in FLOATS:
        return np.array([float_to_int(v, target) for v in values.tolist()], target)
    if target == "bfloat16":
        if source == "float32":
            return of_bfloat16(to_bfloat16(values))
        return np.array([rounded_to_bfloat16(v) for v in values.tolist()], np.float32)
    return values.astype(target)


@pytest.mark.parametrize("source", ALL)
def test_casts(source: str) -> None:
    x = cast_samples(source)
    got = run({t: (lambda a, t=t: EMIT["cast"](a, source, t)) for t in ALL}, [x], [source])
    thin = slice(None, None, 61) if source in ("float16", "bfloat16") else slice(None)
    for target in ALL:
        wanted = cast_oracle(x[thin], source, target)
        found = got[target][thin]
        found = found.astype(bool) if target == "bool" else of_bfloat16(found) if target == "bfloat16" else found
        assert_same(f"cast {source} to {target}", [x[thin]], found, wanted)


def test_chained_roundings_are_not_merged() -> None:
    """Halide's simplifier would read float64 -> float32 -> float16 as one rounding, which few machines have."""
    x = cast_samples("float64")
    got = run(
        {"twice": lambda a: EMIT["cast"](EMIT["cast"](a, "float64", "float32"), "float32", "float16")}, [x], ["float64"]
    )["twice"]
    assert_same("float64 to float32 to float16", [x], got, x.astype(np.float32).astype(np.float16))


def test_chained_casts_are_not_merged() -> None:
    """Halide's simplifier would read float -> int32 -> uint8 as float -> uint8."""
    x = np.array([-1.0, -3.5, 300.0, 255.0, -300.0, 3e9, -3e9, math.nan], np.float32)
    chains = {"int32": ("int32", "uint8"), "int16": ("int16", "uint16"), "int64": ("int64", "uint64"),
              "uint32": ("uint32", "int32"), "uint8": ("uint8", "int8")}  # fmt: skip
    rows = {
        name: (lambda a, s=s, t=t: EMIT["cast"](EMIT["cast"](a, "float32", s), s, t)) for name, (s, t) in chains.items()
    }
    got = run(rows, [x], ["float32"])
    for name, (middle, target) in chains.items():
        wanted = [wrap(float_to_int(v, middle), target) for v in x.tolist()]
        assert_same(f"float32 to {middle} to {target}", [x], got[name], np.array(wanted, target))


@pytest.mark.parametrize("dtype", ALL)
def test_constants_have_their_type(dtype: str) -> None:
    assert const(1, dtype).type() == TYPES[dtype]
    assert isinstance(const(1, dtype), hl.Expr)
