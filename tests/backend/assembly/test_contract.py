"""Fused multiply-add: where kernels have it, where not, and that NaN survives it."""

from __future__ import annotations

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


@with_fma
def test_sums_of_products_fuse(target: str) -> None:
    fused, separate = products(assembly(*row_sums(), target))
    assert fused > 0
    assert separate == 0


def test_sums_of_products_are_two_instructions_where_there_is_no_fused_one() -> None:
    text = assembly(*row_sums(), "x86-64-v2")
    assert "mulps" in text
    assert products(text) == (0, 0)
    assert "fmaf" not in text  # a call of the system's, a hundred times as slow


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


def test_only_float_instructions_are_touched() -> None:
    text = """
define <4 x float> @f(<4 x float> %a, <4 x float> %b, i1 %again) {
entry:
  br label %loop
loop:
  %sum = phi <4 x float> [ zeroinitializer, %entry ], [ %next, %loop ]
  %product = fmul <4 x float> %a, %b
  %other = fmul <4 x float> %b, %b
  %next = fadd <4 x float> %sum, %product
  br i1 %again, label %loop, label %exit
exit:
  %result = fsub <4 x float> %other, %a
  ret <4 x float> %result
}
"""
    changed = [line for line in rewritten(text, PassContext()).split("\n") if " contract " in line]
    assert [line.split(" = ")[0].strip() for line in changed] == ["%product", "%next"]
    assert emit_object(rewritten(text, PassContext())).startswith((b"\x7fELF", b"\xcf\xfa\xed\xfe"))


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
