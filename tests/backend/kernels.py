"""Small kernels written in Halide itself, so that the execution layer is tested without the language above it."""

from __future__ import annotations

import functools
from collections.abc import Callable

import halide as hl

from tedsl.backend.arguments.blocks import ArgSpec, CompiledFunction
from tedsl.backend.compiling.objects import ObjectCode, compile_object, load
from tedsl.backend.host.targets import parse_target

TAIL = hl.TailStrategy.GuardWithIf
X, Y = hl.Var("x"), hl.Var("y")
TYPES = {
    "bool": hl.UInt(1),
    "bfloat16": hl.BFloat(16),
    **{f"float{bits}": hl.Float(bits) for bits in (16, 32, 64)},
    **{f"int{bits}": hl.Int(bits) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": hl.UInt(bits) for bits in (8, 16, 32, 64)},
}


def image(dtype: str, ndim: int, name: str) -> hl.ImageParam:
    """An input of any strides."""
    found = hl.ImageParam(TYPES[dtype], ndim, name)
    for axis in range(ndim):
        found.dim(axis).set_stride(hl.Expr())
    return found


def any_strides(output: hl.Func) -> hl.Func:
    for axis in range(output.dimensions()):
        output.output_buffer().dim(axis).set_stride(hl.Expr())
    return output


def object_code(output: hl.Func, arguments: list, name: str = "kernel", target: str = "host") -> ObjectCode:
    pipeline = hl.Pipeline([any_strides(output)])
    return compile_object(pipeline, [hl.Argument(a) for a in arguments], name, parse_target(target).text)


def add_code(name: str = "add", target: str = "host") -> ObjectCode:
    """out[x] = a[x] + b[x] in float32."""
    a, b, out = image("float32", 1, "a"), image("float32", 1, "b"), hl.Func("out")
    out[X] = a[X] + b[X]
    out.vectorize(X, 8, TAIL)
    return object_code(out, [a, b], name, target)


@functools.cache
def add() -> CompiledFunction:
    return CompiledFunction(load(add_code()), specs("a:float32:1 b:float32:1 out:float32:1"))


@functools.cache
def copy(dtype: str, ndim: int) -> CompiledFunction:
    """out = a."""
    a, out = image(dtype, ndim, "a"), hl.Func("out")
    axes = [hl.Var() for _ in range(ndim)]
    out[tuple(axes)] = a[tuple(axes)]
    if ndim:
        out.vectorize(axes[0], 8, TAIL)
    return CompiledFunction(load(object_code(out, [a])), specs(f"a:{dtype}:{ndim} out:{dtype}:{ndim}"))


@functools.cache
def checked(limit: int = 100, translate: Callable | None = None) -> CompiledFunction:
    """out[x] = a[x], all of a below `limit`, checked in parallel."""
    a, out, ok = image("int32", 1, "a"), hl.Func("out"), hl.Func("ok")
    ok[X] = hl.require(a[X] < limit, a[X], hl.i32(limit))
    ok.compute_root().parallel(X)
    out[X] = ok[X]
    return CompiledFunction(load(object_code(out, [a], f"below_{limit}")), specs("a:int32:1 out:int32:1"), translate)


@functools.cache
def slow() -> CompiledFunction:
    """out[x] = a long parallel computation with a[x], tenths of a second for 8 elements and n = 20000."""
    a, n, out = image("float32", 1, "a"), hl.Param(hl.Int(32), "n"), hl.Func("out")
    steps = hl.RDom([(0, n * 1000)], "steps")
    out[X] = a[X]
    out[X] = hl.sqrt(out[X] + hl.cast(hl.Float(32), steps))
    out.update().parallel(X)
    return CompiledFunction(load(object_code(out, [a, n], "slow")), specs("a:float32:1 n:int32:- out:float32:1"))


def specs(text: str) -> list[ArgSpec]:
    """`name:dtype:ndim` per argument, `-` for a scalar; the one called out is the output."""
    fields = (word.split(":") for word in text.split())
    return [ArgSpec(n, dtype, None if ndim == "-" else int(ndim), n == "out") for n, dtype, ndim in fields]
