"""The dtypes of results are NumPy's: for every operation, every pair of dtypes, and for weak Python numbers."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tedsl as te
from tedsl.lang.dtypes import ALL, DType, as_dtype, dtype_of_array, promote
from tedsl.lang.expr import FALSE, TRUE, Fn
from tedsl.lang.functions import apply

NUMPY = [d for d in ALL if d != "bfloat16"]
PAIRS = list(itertools.product(NUMPY, NUMPY))
BINARY = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.true_divide, "floordiv": np.floor_divide,
    "mod": np.remainder,
    "pow": np.power, "minimum": np.minimum, "maximum": np.maximum, "atan2": np.arctan2, "hypot": np.hypot,
    "copysign": np.copysign, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "lshift": np.left_shift,
    "rshift": np.right_shift, "lt": np.less, "eq": np.equal,
}  # fmt: skip
OPERATORS: dict[str, Any] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "div": lambda a, b: a / b,
    "floordiv": lambda a, b: a // b, "mod": lambda a, b: a % b, "pow": lambda a, b: a**b, "minimum": te.minimum,
    "maximum": te.maximum, "atan2": te.atan2, "hypot": te.hypot, "copysign": te.copysign, "and": lambda a, b: a & b,
    "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b, "lshift": lambda a, b: a << b, "rshift": lambda a, b: a >> b,
    "lt": lambda a, b: a < b, "eq": lambda a, b: a == b,
}  # fmt: skip
UNARY = {
    "exp": np.exp, "expm1": np.expm1, "log": np.log, "log1p": np.log1p, "log2": np.log2, "log10": np.log10,
    "exp2": np.exp2,
    "sqrt": np.sqrt, "cbrt": np.cbrt, "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos,
    "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "asinh": np.arcsinh, "acosh": np.arccosh,
    "atanh": np.arctanh, "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "round": np.rint, "isnan": np.isnan,
    "isinf": np.isinf, "isfinite": np.isfinite, "abs": np.absolute, "sign": np.sign,
}  # fmt: skip


def value(dtype: DType) -> te.Expr:
    return te.placeholder((), dtype, name=f"x_{dtype}")[()]


def resolved(ufunc: Any, *dtypes: Any) -> str | None:
    try:
        name = ufunc.resolve_dtypes((*(d if isinstance(d, type) else np.dtype(d) for d in dtypes), None))[-1].name
    except TypeError:
        return None
    return str(name)


@pytest.mark.parametrize("name", BINARY)
def test_binary_operations_promote_as_numpy(name: str) -> None:
    for a, b in PAIRS:
        expected = resolved(BINARY[name], str(a), str(b))
        if expected is None:
            with pytest.raises(TypeError):
                OPERATORS[name](value(a), value(b))
        else:
            assert OPERATORS[name](value(a), value(b)).dtype == expected, (a, b)


WEAK = ["add", "sub", "mul", "div", "floordiv", "mod", "pow", "minimum", "hypot", "and", "lshift"]


@pytest.mark.parametrize("dtype", NUMPY)
@pytest.mark.parametrize("weak", [int, float, bool])
@pytest.mark.parametrize("name", WEAK)
def test_python_numbers_are_weak(name: str, weak: type, dtype: DType) -> None:
    strong: Any = weak if weak is not bool else "bool"
    x, number = value(dtype), weak(1)
    for operands, dtypes in (((x, number), (str(dtype), strong)), ((number, x), (strong, str(dtype)))):
        expected = resolved(BINARY[name], *dtypes)
        if expected is None:
            with pytest.raises(TypeError):
                OPERATORS[name](*operands)
        else:
            assert OPERATORS[name](*operands).dtype == expected


@pytest.mark.parametrize("name", UNARY)
def test_unary_operations_give_numpys_dtype(name: str) -> None:
    for dtype in NUMPY:
        expected = resolved(UNARY[name], str(dtype))
        if expected is None:
            with pytest.raises(TypeError):
                getattr(te, name)(value(dtype))
        elif name == "round" and not dtype.is_float:  # np.round, which has no dtypes to resolve, keeps integers
            assert getattr(te, name)(value(dtype)).dtype == dtype
        else:
            assert getattr(te, name)(value(dtype)).dtype == expected, dtype


def test_promotion_is_numpys_result_type() -> None:
    for a, b in PAIRS:
        assert promote([a, b]) == np.result_type(str(a), str(b)).name
        assert promote([a, b]) is promote([b, a])
        assert te.select(value(NUMPY[0]), value(a), value(b)).dtype == np.result_type(str(a), str(b)).name
    for a, b, c in itertools.product(NUMPY[::2], repeat=3):
        assert promote([a, b, c]) == promote([promote([a, b]), c])


def test_bfloat16_promotes_as_jax_has_it() -> None:
    b = as_dtype("bfloat16")
    expected = {"float16": "float32", "float32": "float32", "float64": "float64"}
    for dtype in NUMPY:
        assert promote([b, dtype]) == expected.get(dtype, "bfloat16")
    assert (value(b) * 2).dtype == "bfloat16"
    assert (value(b) * 2.5).dtype == "bfloat16"
    assert te.exp(value(b)).dtype == "bfloat16"
    assert (value(b) < 1).dtype == "bool"


def test_numbers_among_themselves_are_int32_float32_and_bool() -> None:
    assert te.select(value(as_dtype("bool")), 1, 2).dtype == "int32"
    assert te.select(value(as_dtype("bool")), 1, 2.5).dtype == "float32"
    assert te.select(value(as_dtype("bool")), True, False).dtype == "bool"
    assert te.exp(1).dtype == "float32"
    assert te.maximum(1, 2).dtype == "int32"


def test_numpy_scalars_and_constants_are_strong() -> None:
    x = value(as_dtype("float32"))
    assert (x * np.float64(2)).dtype == "float64"
    assert (np.float64(2) * x).dtype == "float64"
    assert (x * te.const(2, "float64")).dtype == "float64"
    assert (value(as_dtype("int8")) + np.int16(3)).dtype == "int16"
    assert (value(as_dtype("int8")) + np.array(3, "int16")).dtype == "int16"
    assert te.const(ml_dtypes.bfloat16(1.5)).dtype == "bfloat16"


def test_weak_integers_must_fit() -> None:
    x = value(as_dtype("int8"))
    with pytest.raises(ValueError, match=r"300 is out of range for int8 \(from -128 to 127\)"):
        x + 300
    with pytest.raises(ValueError, match="-1 is out of range for uint8"):
        value(as_dtype("uint8")) * -1


@pytest.mark.parametrize("fn", [Fn.LT, Fn.LE, Fn.GT, Fn.GE, Fn.EQ, Fn.NE])
@pytest.mark.parametrize("kind", ["int8", "int64"])
def test_uint64_and_signed_compare_exactly(fn: Fn, kind: str) -> None:
    unsigned = np.array([0, 1, 127, 2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1], np.uint64)
    signed = np.array([-128, -1, 0, 1, 127], kind)
    if kind == "int64":
        signed = np.append(signed, np.array([2**53, 2**53 + 1, 2**63 - 1, -(2**63)], kind))
    U, S = te.placeholder(unsigned.shape, "uint64"), te.placeholder(signed.shape, kind)
    one = te.compute((8, len(signed)), lambda i, j: apply(fn, U[i], S[j]))
    two = te.compute((8, len(signed)), lambda i, j: apply(fn, S[j], U[i]))
    compare = {"LT": np.less, "LE": np.less_equal, "GT": np.greater, "GE": np.greater_equal}
    ufunc = {**compare, "EQ": np.equal, "NE": np.not_equal}[fn.name]
    wanted = ufunc(unsigned[:, None], signed), ufunc(signed, unsigned[:, None])
    for run in (te.interpret, te.evaluate):
        for found, want in zip(run([one, two], {U: unsigned, S: signed}), wanted, strict=True):
            np.testing.assert_array_equal(found, want)


def test_comparisons_with_numbers_beyond_the_dtype_are_decided() -> None:
    x, u = value(as_dtype("int8")), value(as_dtype("uint64"))
    for made in (x < 300, x != 300, apply(Fn.GE, 300, x), x > -129, apply(Fn.LT, -129, x), u > -1, u != -1, u < 2**64):
        assert made is TRUE
    for made in (x == 300, x >= 300, apply(Fn.LE, 300, x), x < -129, u <= -1, u == 2**64):
        assert made is FALSE


def test_literals_beyond_a_float_are_infinite() -> None:
    assert te.const(1e40, "float32").value == np.inf
    assert te.const(-1e10, "float16").value == -np.inf
    with pytest.raises(ValueError, match="an integer of 1329 bits is out of range for float32"):
        te.const(10**400, "float32")


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("float32", "float32"), (np.float32, "float32"), (np.dtype("int16"), "int16"), (float, "float64"),
        (int, "int64"),
        (bool, "bool"), ("<f4", "float32"), ("f8", "float64"), (ml_dtypes.bfloat16, "bfloat16"), ("bfloat16",
        "bfloat16"),
    ],
    ids=str,
)  # fmt: skip
def test_dtypes_are_recognised(given: Any, name: str) -> None:
    assert as_dtype(given) == name
    assert as_dtype(given) is as_dtype(name)


@pytest.mark.parametrize(
    "given", ["complex64", "float128", "object", "nothing", np.complex64, "U5", None.__class__, 3.5]
)
def test_other_dtypes_are_refused(given: Any) -> None:
    with pytest.raises(TypeError, match="is not supported; expected one of bool, int8"):
        as_dtype(given)


def test_a_value_where_a_dtype_belongs_is_told_apart() -> None:
    x = te.placeholder((3,), name="x")
    for wrong in (lambda: te.cast("float32", x), lambda: te.compute((3,), lambda i: te.cast("float32", x[i] + 1.0))):
        with pytest.raises(
            TypeError, match=r"is a value \(te.cast\(x, dtype\) takes the dtype last\); expected one of bool"
        ):
            wrong()


def test_dtypes_of_arrays() -> None:
    assert dtype_of_array(np.zeros(2, ml_dtypes.bfloat16)) == "bfloat16"
    with pytest.raises(TypeError, match="complex128 is not supported"):
        dtype_of_array(np.zeros(2, complex))


def test_dtypes_compare_with_strings_and_numpy_types() -> None:
    assert as_dtype("float32") == np.float32
    assert as_dtype("float32") == np.dtype("float32")
    assert as_dtype("float32") != "float64"
    assert as_dtype("float32") != 3
    assert {as_dtype("int8"): 1}["int8"] == 1


def test_the_square_of_bools_is_int8_as_in_numpy() -> None:
    b = te.placeholder((2,), "bool", name="b")
    truth = np.array([True, False])
    for made, expected in (
        (b**2, truth**2),
        (np.square(b), np.square(truth)),
        (b**3, truth**3),
        (b[:1] ** 2, truth**2),
    ):
        assert made.dtype == expected.dtype.name
    assert te.evaluate(b**2, {b: truth}).tolist() == [1, 0]
