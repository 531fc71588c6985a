"""Fused multiply-add: where kernels have it, where not, and that NaN survives it."""

from __future__ import annotations

import ctypes
import functools
import re

import halide as hl
import numpy as np
import pytest

import tedsl as te
from tedsl.backend.arguments.blocks import ArgSpec, CompiledFunction
from tedsl.backend.assembly.masked_stores import unmasked
from tedsl.backend.assembly.passes import PassContext, rewritten
from tedsl.backend.compiling.objects import compile_object, compile_outputs, load
from tedsl.backend.host.emit import emit_object
from tedsl.backend.host.linker import link
from tedsl.backend.host.targets import parse_target
from tedsl.backend.scalars.intrinsics import EMIT
from tests.backend.scalars.scalar_harness import STRICT, run

X, Y = hl.Var("x"), hl.Var("y")
with_fma = pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4"])


def row_sums(then: str | None = None) -> tuple[hl.Func, list[hl.ImageParam]]:
    """out[x] = the sum over y of a[x, y] * b[x, y] in registers, and a function of it in the same loop."""
    a, b = hl.ImageParam(hl.Float(32), 2, "a"), hl.ImageParam(hl.Float(32), 2, "b")
    k = hl.RDom([(0, a.dim(1).extent())])
    total, out = hl.Func("total"), hl.Func("out")
    total[X] = hl.f32(0.0)
    total[X] += a[X, k.x] * b[X, k.x]
    value = total[X] if then is None else EMIT[then](total[X], dtype="float32")
    out[X] = EMIT["cast"](value, "bool", "float32") if then == "isnan" else value
    out.vectorize(X, 16, hl.TailStrategy.GuardWithIf)
    total.compute_at(out, X).vectorize(X, 16).update().vectorize(X, 16)
    return out, [a, b]


@functools.cache
def compiled(then: str | None) -> CompiledFunction:
    out, images = row_sums(then)
    code = compile_object(hl.Pipeline([out]), [hl.Argument(p) for p in images], "row_sums", STRICT)
    specs = [ArgSpec("a", "float32", 2), ArgSpec("b", "float32", 2), ArgSpec("out", "float32", 1, output=True)]
    return CompiledFunction(load(code), specs)


def assembly(out: hl.Func, images: list[hl.ImageParam], target: str) -> str:
    strict = parse_target(target).with_features("strict_float").text
    return compile_outputs(hl.Pipeline([out]), [hl.Argument(p) for p in images], "k", strict, ["asm"])["asm"]


def products(text: str) -> tuple[int, int]:
    """How many vector multiplications are fused, and how many are not."""
    return len(re.findall(r"\bvf(?:n)?m(?:add|sub)\w*p[sd]\b", text)), len(re.findall(r"\bvmulp[sd]\b", text))


def _product_of_rows(target: str) -> str:
    a, b = te.placeholder((40, 30), name="a"), te.placeholder((30, 50), name="b")
    return te.build([a, b], a @ b, target=target).source("asm")


@with_fma
def test_sums_of_products_fuse(target: str) -> None:
    fused, separate = products(_product_of_rows(target))
    assert fused > 0
    assert separate == 0


def test_sums_of_products_are_two_instructions_where_there_is_no_fused_one() -> None:
    text = _product_of_rows("x86-64-v2")
    assert "mulps" in text
    assert products(text) == (0, 0)
    assert "fmaf" not in text  # a call of the system's, a hundred times as slow
    both = re.findall(r"\b(?:xorps|pxor)\s+(%xmm\d+|\S+), (%xmm\d+)", text)
    assert all(one == other for one, other in both)  # marks are gone: these set a register to 0


@with_fma
@pytest.mark.parametrize("vector", [8, 16, 32])
def test_sums_that_are_kept_in_memory_fuse(target: str, vector: int) -> None:
    """Rows of a product that a schedule by hand does not hold in registers."""
    a, b = te.placeholder((128, 96), name="a"), te.placeholder((96, 64), name="b")
    c = te.compute((128, 64), lambda i, j: te.sum(lambda k: a[i, k] * b[k, j]), name="c")
    s = te.Schedule(c)
    (i, j), (k,) = s[c].axes, s[c].reduce_axes
    io, jo, ii, ji = s[c].tile(i, j, 4, vector)
    s[c].reorder(io, jo, k, ii, ji).unroll(ii).vectorize(ji).parallel(io)
    fused, separate = products(te.build([a, b], c, schedule=s, target=target).source("asm"))
    assert fused >= 4
    assert separate == 0


@with_fma
def test_arithmetic_of_users_does_not_fuse(target: str) -> None:
    a, b, c, out = (*(hl.ImageParam(hl.Float(32), 1, n) for n in "abc"), hl.Func("out"))
    out[X] = a[X] * b[X] - c[X] + hl.f32(0.1)
    out.vectorize(X, 16, hl.TailStrategy.GuardWithIf)
    fused, separate = products(assembly(out, [a, b, c], target))
    assert fused == 0
    assert separate > 0


def test_a_product_minus_itself_rounded_is_zero() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 1000)).astype(np.float32)
    got = run({"rest": lambda x, y, p: x * y - p}, [a, b, a * b], ["float32"] * 3)["rest"]
    assert not got.any()


@with_fma
def test_polynomials_of_our_functions_fuse(target: str) -> None:
    a, out = hl.ImageParam(hl.Float(32), 1, "a"), hl.Func("out")
    out[X] = EMIT["exp"](a[X], dtype="float32")
    out.vectorize(X, 16, hl.TailStrategy.GuardWithIf)
    fused, _ = products(assembly(out, [a], target))
    assert fused >= 5


THEN = {
    None: lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "isnan": lambda x: np.isnan(x).astype(np.float32),
    "sign": np.sign,
}


@pytest.mark.parametrize("then", THEN)
def test_nan_and_infinity_survive_a_sum_in_registers(then: str | None) -> None:
    """Plain Halide arithmetic promises LLVM that there is no NaN, and then the test behind the sum is folded away."""
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((2, 5, 32)).astype(np.float32)
    a[2, 3], a[1, 4], a[0, 7] = np.nan, np.inf, -np.inf
    a[:2, 5], b[:2, 5] = np.inf, [1, -1]
    with np.errstate(all="ignore"):
        wanted = THEN[then](np.sum(a * b, axis=0))
    got = np.empty(32, np.float32)
    compiled(then)(a, b, got)
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


MARKED = """
define <4 x float> @f(<4 x float> %a, <4 x float> %b, i32 %zero, <4 x i32> %data, i1 %again) {
entry:
  %one = insertelement <4 x i32> poison, i32 %zero, i64 0
  %all = shufflevector <4 x i32> %one, <4 x i32> poison, <4 x i32> zeroinitializer
  br label %loop
loop:
  %sum = phi <4 x float> [ zeroinitializer, %entry ], [ %next, %loop ]
  %product = fmul <4 x float> %a, %b
  %bits = bitcast <4 x float> %product to <4 x i32>
  %mark = xor <4 x i32> MARKS
  %term = bitcast <4 x i32> %mark to <4 x float>
  %next = fadd <4 x float> %sum, %term
  br i1 %again, label %loop, label %exit
exit:
  %result = fsub <4 x float> %product, %next
  ret <4 x float> %result
}
"""
WITH_FMA = PassContext(frozenset({"avx", "avx2", "fma"}))


@pytest.mark.parametrize("marks", ["%bits, %all", "%all, %bits"])
def test_marked_products_become_instructions(marks: str) -> None:
    text = rewritten(MARKED.replace("MARKS", marks), WITH_FMA)
    assert "%next = call <4 x float> @llvm.fma.v4f32(<4 x float> %a, <4 x float> %b, <4 x float> %sum)" in text
    assert "%result = fsub <4 x float> %product, %next" in text
    assert "%all, " not in text
    assert emit_object(text).startswith((b"\x7fELF", b"\xcf\xfa\xed\xfe"))


def test_marks_go_where_there_is_no_such_instruction() -> None:
    text = rewritten(MARKED.replace("MARKS", "%bits, %all"), PassContext())
    assert "%mark = xor <4 x i32> %bits, splat (i32 0)" in text
    assert "%next = fadd <4 x float> %sum, %term" in text


def test_bits_that_are_combined_with_data_stay() -> None:
    text = MARKED.replace("MARKS", "%bits, %data")
    assert rewritten(text, WITH_FMA) == text


# A mark may be in all of these forms when LLVM is done; the product is a b.
FORMS = {
    "negated": ("%t = fneg <4 x float> %v", "fadd <4 x float> %c, %t", lambda a, b, c, p: c - a * b),
    "subtracted": ("%t = fadd <4 x float> %c, zeroinitializer", "fsub <4 x float> %t, %v",
                   lambda a, b, c, p: c - a * b),
    "less something": ("%t = fadd <4 x float> %c, zeroinitializer", "fsub <4 x float> %v, %t",
                       lambda a, b, c, p: a * b - c),
    "its sign changed": ("%s = xor <4 x i32> %m, splat (i32 -2147483648)\n  %t = bitcast <4 x i32> %s to <4 x float>",
                         "fadd <4 x float> %c, %t", lambda a, b, c, p: c - a * b),
    "chosen": ("%t = select <4 x i1> %p, <4 x float> %v, <4 x float> splat (float -0.000000e+00)",
               "fadd <4 x float> %c, %t", lambda a, b, c, p: np.where(p, c + a * b, c)),
    "chosen, less something": ("%t = select <4 x i1> %p, <4 x float> %v, <4 x float> zeroinitializer",
                               "fsub <4 x float> %t, %c", lambda a, b, c, p: np.where(p, a * b - c, -c)),
    "left out": ("%t = select <4 x i1> %p, <4 x float> zeroinitializer, <4 x float> %v",
                 "fadd <4 x float> %c, %t", lambda a, b, c, p: np.where(p, c, c + a * b)),
    "bits chosen": ("%s = select <4 x i1> %p, <4 x i32> %m, <4 x i32> splat (i32 -2147483648)\n"
                    "  %t = bitcast <4 x i32> %s to <4 x float>",
                    "fsub <4 x float> %c, %t", lambda a, b, c, p: np.where(p, c - a * b, c)),
    "put together": ("%last = extractelement <4 x i32> %m, i64 3\n"
                     "  %s = insertelement <4 x i32> %m, i32 %last, i64 1\n"
                     "  %t = bitcast <4 x i32> %s to <4 x float>",
                     "fadd <4 x float> %c, %t", lambda a, b, c, p: c + (a * b)[[0, 3, 2, 3]]),
    "put together with others": ("%t = shufflevector <4 x float> %v, <4 x float> %a, <4 x i32> "
                                 "<i32 1, i32 5, i32 2, i32 7>",
                                 "fadd <4 x float> %t, %c",
                                 lambda a, b, c, p: np.where([1, 0, 1, 0], c + (a * b)[[1, 0, 2, 0]], c + a)),
    "put together, negated": ("%n = fneg <4 x float> %v\n"
                              "  %t = shufflevector <4 x float> %n, <4 x float> %v, <4 x i32> "
                              "<i32 0, i32 5, i32 2, i32 4>",
                              "fsub <4 x float> %t, %c",
                              lambda a, b, c, p: np.array([-1, 1, -1, 1]) * (a * b)[[0, 1, 2, 0]] - c),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_the_forms_of_a_marked_product(form: str) -> None:
    """Against float64, where products of float32 are exact, rounded once."""
    before, last, wanted = FORMS[form]
    text = f"""
define i32 @f(ptr %x, i32 %zero) #0 {{
  %x1 = getelementptr i8, ptr %x, i64 16
  %x2 = getelementptr i8, ptr %x, i64 32
  %a = load <4 x float>, ptr %x, align 4
  %b = load <4 x float>, ptr %x1, align 4
  %c = load <4 x float>, ptr %x2, align 4
  %p = fcmp ogt <4 x float> %a, %b
  %one = insertelement <4 x i32> poison, i32 %zero, i64 0
  %all = shufflevector <4 x i32> %one, <4 x i32> poison, <4 x i32> zeroinitializer
  %product = fmul <4 x float> %a, %b
  %bits = bitcast <4 x float> %product to <4 x i32>
  %m = xor <4 x i32> %all, %bits
  %v = bitcast <4 x i32> %m to <4 x float>
  {before}
  %result = {last}
  store <4 x float> %result, ptr %x, align 4
  ret i32 0
}}
attributes #0 = {{ "target-features"="+avx2,+fma" }}
"""
    made = rewritten(text, WITH_FMA)
    assert made.count("call <4 x float> @llvm.fma.v4f32(") == 1
    library = link(emit_object(made), ["f"], {})
    function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int)(library["f"])
    rng = np.random.default_rng(0)
    for _ in range(20):
        numbers = rng.standard_normal((3, 4)).astype(np.float32)
        expected = wanted(*numbers.astype(float), numbers[0] > numbers[1]).astype(np.float32)
        function(numbers.ctypes.data, 0)
        np.testing.assert_array_equal(numbers[0], expected)


@pytest.mark.parametrize(("n", "dtype"), [(300, "float64"), (300, "float32"), (67, "float64")])
def test_every_product_of_a_large_kernel_fuses(n: int, dtype: str) -> None:
    """LLVM makes the argument that is 0 anew in blocks that meet, and of loads in functions of their own."""
    a, b = te.placeholder((n, n), dtype, name="a"), te.placeholder((n, n), dtype, name="b")
    c = a @ b
    kernel = te.build([a, b], list(te.differentiate((c * c).sum(), [a, b])), target="x86-64-v4")
    fused, separate = products(kernel.source("asm"))
    assert fused > 0
    assert separate == 0


def test_a_product_of_single_numbers_in_all_lanes() -> None:
    text = """
define <4 x float> @f(<4 x float> %c, float %a, float %b, i32 %zero) {
  %product = fmul float %a, %b
  %bits = bitcast float %product to i32
  %mark = xor i32 %bits, %zero
  %number = bitcast i32 %mark to float
  %first = insertelement <4 x float> poison, float %number, i64 0
  %term = shufflevector <4 x float> %first, <4 x float> poison, <4 x i32> zeroinitializer
  %next = fadd <4 x float> %c, %term
  ret <4 x float> %next
}
"""
    made = rewritten(text, WITH_FMA)
    call = "call <4 x float> @llvm.fma.v4f32(<4 x float> %te.sum.1, <4 x float> %te.sum.3, <4 x float> %c)"
    assert f"%next = {call}" in made
    assert emit_object(made)


@functools.cache
def _numbers() -> np.ndarray:
    values = np.random.default_rng(2).standard_normal(67).astype(np.float32) * 3
    values[:8] = [0, -0.0, np.inf, -np.inf, np.nan, 1e-40, 88.7, -103.9]
    return values


FUNCTIONS = ("exp", "expm1", "exp2", "log", "log1p", "tanh", "sigmoid", "erf", "sin", "cos", "sinh", "atan", "cbrt")


@pytest.mark.share(2)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_functions_have_the_same_bits_in_vectors_of_any_width(dtype: str) -> None:
    """In full vectors, in their masked ends, one by one, and unrolled."""
    n = len(_numbers())
    x = te.placeholder((n,), dtype, name="x")
    outputs = [te.compute((n,), lambda i, name=name: getattr(te, name)(x[i]), name=f"y_{name}") for name in FUNCTIONS]
    found = {}
    for use in ("one by one", 2, 4, 8, 16, 32, "unrolled", "default"):
        s = te.Schedule(outputs)
        for y in outputs:
            if isinstance(use, int):
                s[y].vectorize("i", use)
            elif use == "unrolled":
                s[y].unroll("i", 5)
            elif use == "one by one":
                s[y].parallel("i")
        kernel = te.build([x], outputs, schedule=None if use == "default" else s)
        found[use] = kernel(_numbers().astype(dtype))
    for use, results in found.items():
        for name, values, wanted in zip(FUNCTIONS, results, found["one by one"], strict=True):
            np.testing.assert_array_equal(values, wanted, err_msg=f"{name}, {use}")


def test_code_for_a_gpu_is_left_to_halide() -> None:
    out, images = row_sums()
    xo, xi = hl.Var("xo"), hl.Var("xi")
    scaled = hl.Func("scaled")
    scaled[X] = out[X] * hl.f32(2.0)
    scaled.gpu_tile(X, xo, xi, 32, hl.TailStrategy.GuardWithIf)
    text = parse_target("cuda").with_features("strict_float").text
    out.compute_root()
    code = compile_object(hl.Pipeline([scaled]), [hl.Argument(p) for p in images], "gpu", text)
    assert code.image


@pytest.mark.parametrize("known", ["", "nonnull ", "noundef nonnull align 8 dereferenceable(8) "])
def test_a_masked_store_of_one_lane_is_a_store_whatever_llvm_knows_of_its_address(known: str) -> None:
    line = (
        f"  tail call void @llvm.masked.store.v4f64.p0(<4 x double> %v, ptr {known}%a, i32 8, "
        "<4 x i1> <i1 false, i1 true, i1 false, i1 false>)"
    )
    assert unmasked([line]) == [
        "  %te.element.0 = extractelement <4 x double> %v, i64 1",
        "  %te.address.0 = getelementptr double, ptr %a, i64 1",
        "  store double %te.element.0, ptr %te.address.0, align 8",
    ]


def test_a_row_looked_up_by_an_index_from_data() -> None:
    table, index = te.placeholder((1, 3), "float64", name="table"), te.placeholder((1,), "int32", name="index")
    row = te.compute((1, 3), lambda i, j: table[index[i], j])
    values = np.array([[1.0, 2.0, 3.0]])
    np.testing.assert_array_equal(te.build([table, index], row)(values, np.zeros(1, "int32")), values)


@pytest.mark.parametrize("dtype", ["int32", "int64", "float32", "float64", "bfloat16", "float16"])
def test_bits_of_two_vectors_chosen_by_a_condition(dtype: str) -> None:
    """LLVM folds the choice and the combination into one instruction, whose truth table it leaves as it was."""
    x, y = te.placeholder((32,), dtype, name="x"), te.placeholder((32,), dtype, name="y")
    if dtype.startswith("int"):
        sign = te.const(-(2**31), dtype)
        values = np.random.default_rng(0).integers(-(2**31), 2**31, (2, 32)).astype(dtype)

        def mixed(i: te.Expr) -> te.Expr:
            return (x[i] & sign) | (y[i] * y[i] & ~sign)
    else:
        values = np.random.default_rng(0).normal(size=(2, 32)).astype(x.dtype.numpy)

        def mixed(i: te.Expr) -> te.Expr:
            return te.tanh(x[i]) - te.copysign(y[i] * y[i], x[i])

    both = [
        te.compute((32,), lambda i: te.select(y[i] < 0, x[i], mixed(i))),
        te.compute((32,), lambda i: te.select(y[i] < 0, mixed(i), x[i])),
        te.compute((32,), lambda i: te.select(x[i] < 0, y[i] * y[i], mixed(i))),
    ]
    feeds = {x: values[0], y: values[1]}
    with np.errstate(over="ignore"):
        for found, expected in zip(te.evaluate(both, feeds), te.interpret(both, feeds), strict=True):
            tolerance = {"float64": 1e-13, "float32": 1e-6, "float16": 2e-3, "bfloat16": 1e-2}.get(dtype, 0.0)
            np.testing.assert_allclose(found.astype("f8"), expected.astype("f8"), rtol=tolerance, atol=tolerance)
