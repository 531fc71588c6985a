"""Kernels without Halide's checks of arrays: only where those are proven, and memory that is not there is an error."""

from __future__ import annotations

import ctypes
import re

import halide as hl
import numpy as np
import pytest
from llvmlite import binding

import tedsl as te
from tedsl.backend.arguments.layouts import LARGEST, misfit
from tedsl.backend.assembly.allocation_failures import GuardError, guarded
from tedsl.backend.compiling.buffer_checks import are_proven
from tedsl.backend.compiling.objects import UNCHECKED, compile_outputs
from tedsl.backend.compiling.variant_source import MOST_PROVEN
from tedsl.backend.host.runtime import KernelError
from tedsl.backend.host.targets import parse_target
from tests.arrays import floats
from tests.backend import kernels
from tests.processes import run_script

HOST = parse_target("host").text
X, Y = kernels.X, kernels.Y


def text(begin: int, end: int, extent: int = 8, bound: int = 8) -> str:
    """Halide's text of out[x] = a[x + begin] + a[x + end], of `a` with 8 elements."""
    a, out = hl.ImageParam(hl.Float(32), 1, "a"), hl.Func("out")
    a.dim(0).set_bounds(0, extent)
    out[X] = a[X + begin] + a[X + end]
    out.bound(X, 0, bound)
    parts = hl.Pipeline([out]), [hl.Argument(a)], "kernel", HOST
    return compile_outputs(*parts, ["stmt"])["stmt"]


def test_checks_are_proven_for_the_shapes_they_hold_for_only() -> None:
    inside = text(0, 2, extent=10)
    assert inside.count("assert(") > 15
    assert are_proven(inside, [(10,), (8,)])
    for shapes in ([(9,), (8,)], [(11,), (8,)], [(10,), (9,)], [(10, 1), (8,)], [(10,)], [(10,), None], [None, (8,)]):
        assert not are_proven(inside, shapes)
    assert not are_proven(text(-1, 2, extent=10), [(10,), (8,)])
    assert not are_proven(text(0, 3, extent=10), [(10,), (8,)])
    assert are_proven(text(0, 2, extent=10, bound=7), [(10,), (7,)])
    assert not are_proven(text(0, 2, extent=10, bound=7), [(10,), (8,)])
    assert not are_proven(inside, [(LARGEST, 2), (8,)])


def test_strides_of_contiguous_arrays_are_proven_where_arrays_are_contiguous() -> None:
    def said(dimension: int, stride: int) -> str:
        a, out = hl.ImageParam(hl.Float(32), 3, "a"), hl.Func("out")
        for d, extent in enumerate((4, 1, 3)):
            a.dim(d).set_bounds(0, extent)
        a.dim(dimension).set_stride(stride)
        x, y, z = (hl.Var(n) for n in "xyz")
        out[x, y, z] = a[x, y, z]
        for var, extent in zip((x, y, z), (4, 1, 3), strict=True):
            out.bound(var, 0, extent)
        return compile_outputs(hl.Pipeline([out]), [hl.Argument(a)], "kernel", HOST, ["stmt"])["stmt"]

    shapes = [(3, 1, 4), (3, 1, 4)]
    for dimension in (1, 2):
        assert are_proven(said(dimension, 4), shapes, compact=True)
        assert not are_proven(said(dimension, 4), shapes)
        assert not are_proven(said(dimension, 5), shapes, compact=True)


def test_a_check_that_is_not_known_is_not_proven() -> None:
    inside = text(0, 2, extent=10)
    shapes = [(10,), (8,)]
    for line in (
        'assert(a.min.0 == 0, halide_error_something_new("a"))', "assert(a.min.0 == 0)", "assert(f == 0, g)",
        'assert(0 <= 1, halide_error_requirement_failed("0 <= 1", "x"))',
        'assert(a.stride.1 == 4, halide_error_constraint_violated("a.stride.1", a.stride.1, "4", 4))',
        'assert(a.min.0 <= n, halide_error_access_out_of_bounds("Input buffer a", 0, n, 7, a.min.0, 9))',
        'let t1 = 3 in (assert(t1 == 3, halide_error_host_is_null("Input buffer a")))',
    ):  # fmt: skip
        assert not are_proven(inside + line + "\n", shapes)
    for end, holds in ((9, True), (10, True), (11, False)):
        check = f"let t = 0 in ((a.min.0 <= t) && ((t + {end}) <= (a.extent.0 + a.min.0)))"
        error = 'let t = 0 in halide_error_access_out_of_bounds("Input buffer a", 0, t, t + 8, a.min.0, 9)'
        assert are_proven(f"{inside}assert({check}, {error})\n", shapes) == holds
    assert are_proven(inside + "assert(closure_result$1 == 0, closure_result$1)\n", shapes)
    assert not are_proven(inside.replace("func", "function"), shapes)


def test_what_a_proof_supposes_of_an_array() -> None:
    assert misfit((4, 8), (8, 1), (4, 8)) is None
    assert misfit((), (), ()) is None
    assert misfit((4, 8), (-8, 1), (4, 8)) is None
    assert "(4, 8) was expected, found (4, 7)" in str(misfit((4, 7), (8, 1), (4, 8)))
    assert "side by side" in str(misfit((4, 8), (16, 2), (4, 8)))
    assert misfit((4, 8), (8, 1), (4, 8), compact=True) is None
    assert "steps (9, 1)" in str(misfit((4, 8), (9, 1), (4, 8), compact=True))
    assert "spans" in str(misfit((4, 8), (LARGEST, 1), (4, 8)))


def doubled(*shape: object) -> tuple[te.Tensor, te.Tensor]:
    x = te.placeholder(shape, name="x")
    return x, te.compute(x.shape, lambda *i: x[i] * 2.0, name="y")


def test_kernels_of_known_shapes_are_not_checked_and_others_are() -> None:
    n, index = te.var("n"), te.placeholder((4,), "int32", name="index")
    x, y = doubled(3, 4)
    s = te.Schedule(y)
    s[y].vectorize("i1", 4)
    picked = te.compute((4,), lambda i: x[index[i] % 3, i], name="picked")
    looked = te.compute((4,), lambda i: x[index[i], i], name="looked")
    wide = te.placeholder((16, 64), name="wide")
    backwards = te.compute((16, 64), lambda i, j: wide[i, 63 - j], name="backwards")
    both = te.compute((16, 64), lambda i, j: wide[i, 63 - j] + wide[i, j], name="both")
    row = te.placeholder((64,), name="row")
    folded = te.compute((60,), lambda j: row[59 - j] + row[j + 4], name="folded")
    z, symbolic = doubled(n, 4)
    cases = [([x], y, {}, True), ([x, index], picked, {}, True), ([x, index], looked, {}, False),
             ([wide], backwards, {}, True), ([wide], both, {}, True), ([row], folded, {}, True),
             ([z], symbolic, {}, False), ([x], y, {"schedule": s}, False)]  # fmt: skip
    for inputs, output, options, is_free in cases:
        kept = te.build(inputs, output, **options).core.any_variant().kept
        assert bool(kept.shapes) == is_free
        assert kept.target.endswith(UNCHECKED) == is_free


def test_kernels_of_many_stages_are_not_checked_either() -> None:
    """What they touch is told by a text without their loops, however many these are."""
    x = te.placeholder((60, 24), name="x")
    values = [x]
    for _ in range(MOST_PROVEN // 2 + 1):
        h = values[-1]
        total = te.compute((60,), lambda i, h=h: te.sum(lambda k: h[i, k] * h[i, k]))
        values.append(te.compute((60, 24), lambda i, j, h=h, total=total: te.tanh(h[i, j] - total[i])))
    core = te.build([x], values[-1]).core
    assert len(core.program.operations) > MOST_PROVEN
    assert core.single is not None
    assert core.any_variant().kept.target.endswith(UNCHECKED)


def test_arrays_of_every_layout() -> None:
    x, y = doubled(6, 8)
    kern = te.build([x], y)
    a = floats(12, 16)
    for view in (a[:6, :8], a[::2, 8:], a[6:, :8][::-1], a[:6, ::2], a[:6, 7::-1], np.asfortranarray(a[:6, :8])):
        out = np.zeros((6, 16), "f4")[:, ::2]
        np.testing.assert_array_equal(kern(view), view * 2)
        kern(view, out=out)
        np.testing.assert_array_equal(out, view * 2)
    np.testing.assert_array_equal(kern(np.broadcast_to(a[0, :8], (6, 8))), np.broadcast_to(a[0, :8] * 2, (6, 8)))
    one = te.build(*doubled(1, 1))
    np.testing.assert_array_equal(one(a[5:6, 7:8]), a[5:6, 7:8] * 2)


def test_an_array_that_does_not_fit_is_refused_before_the_call() -> None:
    x = te.placeholder((3, 80), name="x")  # rows that are not compiled for one stride
    function = te.build([x], te.compute((3, 80), lambda i, j: x[i, j] * x[i, 0])).core.any_variant().function
    good = ((3, 80), (320, 4))
    function.bind([good, good])
    for bad in [((3, 81), (324, 4)), ((4, 80), (320, 4)), ((3, 80), (640, 8)), ((3, 80), (2**33 - 4, 4))]:
        with pytest.raises((KernelError, ValueError)):
            function.bind([bad, good])
        with pytest.raises((KernelError, ValueError)):
            function.bind([good, bad])


ROOM = """
    import resource, numpy as np, tedsl as te
    from tedsl.backend.host.runtime import KernelMemoryError
    def held():
        return int(next(l for l in open("/proc/self/status") if l.startswith("VmSize")).split()[1]) << 10
    def refused(call, room):
        te.free_memory()
        before = held()
        resource.setrlimit(resource.RLIMIT_AS, (before + room, resource.RLIM_INFINITY))
        for _ in range(3):
            try:
                call()
            except KernelMemoryError as error:
                assert "Out of memory" in str(error), error
            else:
                raise AssertionError("there was memory")
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        te.free_memory()
        assert held() - before < 20 << 20, held() - before
"""


def test_no_memory_for_the_first_or_the_second_intermediate() -> None:
    assert "ok" in run_script(f"""{ROOM}
    N = 3000
    x, k = te.placeholder((N, 2), name="x"), te.reduce_axis(2, name="k")
    h = te.compute((N, N), lambda i, j: te.sum(te.exp(x[i, k] + x[j, k]), axis=k), name="h")
    g = te.compute((N, N), lambda i, j: te.sum(te.exp(h[j, i] * 1e-3 + x[i, k]), axis=k), name="g")
    y = te.compute((1,), lambda i: te.sum(lambda a, b: h[a, b] * g[b, a] + h[b, a]), name="y")
    kern = te.build([x], y)
    variant = kern.core.any_variant()
    assert variant.kept.shapes and variant.source("llvm").count(" call ptr @halide_malloc(") >= 2
    a, out = np.zeros((N, 2), "f4"), np.zeros(1, "f4")
    want = kern(a)
    for room in (N * N * 2, N * N * 6):
        refused(lambda: kern(a, out=out), room)
        np.testing.assert_array_equal(kern(a), want)
    print("ok")
    """)


def test_no_memory_inside_a_parallel_loop() -> None:
    assert "ok" in run_script(f"""{ROOM}
    import halide as hl
    from tests.backend import kernels
    from tedsl.backend.compiling.objects import compile_object
    from tedsl.backend.host.targets import parse_target
    N = 100_000_000  # more than malloc keeps for itself
    x, y = kernels.X, kernels.Y
    r = hl.RDom([(0, N)], "r")
    middle, out = hl.Func("middle"), hl.Func("out")
    middle[x, y] = hl.cast(hl.UInt(8), x + y)
    out[x, y] = hl.cast(hl.Int(32), 0)
    out[x, y] += hl.cast(hl.Int(32), middle[r, y])
    out.compute_root()
    out.bound(x, 0, 1).bound(y, 0, 4)
    out.update().parallel(y)
    middle.compute_at(out, y).vectorize(x, 16)
    text = parse_target("host").with_features("strict_float", "no_asserts").text
    code = compile_object(hl.Pipeline([out]), [], "kernel", text)
    function = kernels.CompiledFunction(kernels.load(code), kernels.specs("out:int32:2"))
    target = np.zeros((4, 1), "int32")
    function(target)
    want = target.copy()
    refused(lambda: function(target), N // 2)
    function(target)
    np.testing.assert_array_equal(target, want)
    print("ok")
    """)


def test_assembly_of_another_form_is_refused() -> None:
    head = "declare ptr @halide_malloc(ptr, i64)\n"
    good = (
        "define i32 @f(ptr %c) {\nentry:\n  br label %next\nnext:\n  %m = call ptr @halide_malloc(ptr %c, i64 8)\n"
        "  br label %end\nend:\n  %p = phi i32 [ 1, %next ]\n  ret i32 0\n}\n"
    )
    made = guarded(head + good)
    assert "phi i32 [ 1, %te.full." in made
    for before, after in [
        ("ret i32 0", "ret i32 %p"), ("define i32", "define range(i32 0, 1) i32"), ("entry:\n", ""),
        ("%m = call", "%m = musttail call"), ("  br label %end", "  call void @halide_trace(ptr %c)\n  br label %end"),
        ("  br label %end", "  call void @halide_free(ptr %c, ptr %q)\n  br label %end"),
    ]:  # fmt: skip
        with pytest.raises(GuardError):
            guarded(head + good.replace(before, after))
    nothing = "define i32 @f(ptr %c) {\n  ret i32 3\n}\n"
    assert guarded(nothing) == nothing


BRANCHES = """
@left = global i32 0
@freed = global i32 0
@byte = global i8 0
define ptr @halide_malloc(ptr %c, i64 %n) {
entry:
  %a = load i32, ptr @left
  %b = sub i32 %a, 1
  store i32 %b, ptr @left
  %none = icmp slt i32 %b, 0
  %found = select i1 %none, ptr null, ptr @byte
  ret ptr %found
}
define void @halide_free(ptr %c, ptr %m) {
entry:
  %a = load i32, ptr @freed
  %b = add i32 %a, 1
  store i32 %b, ptr @freed
  ret void
}
define i32 @halide_error_out_of_memory(ptr %c) {
entry:
  ret i32 -11
}
"""
BRANCHED = """define i32 @f(ptr %c, i1 %first) {
entry:
  br i1 %first, label %one, label %other
one:
  %m = call ptr @halide_malloc(ptr %c, i64 8)
  br label %end
other:
  %"m$1" = call ptr @halide_malloc(ptr %c, i64 9)
  br label %end
end:
  %m.sink = phi ptr [ %m, %one ], [ %"m$1", %other ]
  call void @halide_free(ptr %c, ptr %m.sink)
  %last = call ptr @halide_malloc(ptr %c, i64 10)
  call void @halide_free(ptr %c, ptr %last)
  ret i32 0
}
"""


def test_branches_that_free_their_memory_together() -> None:
    made = guarded(f"declare ptr @halide_malloc(ptr, i64)\ndeclare void @halide_free(ptr, ptr)\n{BRANCHED}")
    with pytest.raises(GuardError, match="freed"):
        guarded(BRANCHED.replace('%"m$1", %other', "%c, %other"))
    declared = re.sub(r"declare .*\n", "", made)
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    module = binding.parse_assembly(BRANCHES + declared)
    machine = binding.Target.from_default_triple().create_target_machine()
    engine = binding.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    call = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_bool)(engine.get_function_address("f"))
    left, freed = (ctypes.c_int.from_address(engine.get_global_value_address(n)) for n in ("left", "freed"))
    for first in (True, False):
        for there, code, times in ((2, 0, 2), (1, -11, 1), (0, -11, 0)):
            left.value, freed.value = there, 0
            assert (call(None, first), freed.value) == (code, times)
