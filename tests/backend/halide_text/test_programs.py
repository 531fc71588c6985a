"""Lowered programs of Halide's for fixed targets: every form that is read, how often, and what is not read."""

from __future__ import annotations

from collections import Counter

import halide as hl
import pytest

import tedsl as te
from tedsl.backend.compiling.buffer_checks import BY_LAYOUT, OF_SHAPES, unproven
from tedsl.backend.compiling.objects import compile_outputs
from tedsl.backend.halide_text.errors import (
    divides_by_zero,
    failed_requirement,
    is_out_of_memory,
    message,
    readable,
    requirement_failed,
    says_nothing,
)
from tedsl.backend.halide_text.expressions import HalideCall, HalideName
from tedsl.backend.halide_text.forms import LOOP, PART, unmarked
from tedsl.backend.halide_text.programs import HalideProgram, Launch, read_field
from tedsl.backend.host.targets import parse_target
from tests.backend import kernels

V3 = parse_target("x86-64-v3").text
X = kernels.X
HEAD = "external_plus_metadata func te_kernel (__user_context, a, opaque_zero, out) {"
# Asserts as Halide 21 writes them: one of each kind, but for those that two arrays have alike.
CHECKS = """\
assert(reinterpret<uint64>((struct halide_buffer_t *)a.buffer) != (uint64)0, halide_error_buffer_argument_is_null("a"))
assert(a.type == (uint32)73730, halide_error_bad_type("Input buffer a", a.type, (uint32)73730))
assert(a.dimensions == 1, halide_error_bad_dimensions("Input buffer a", a.dimensions, 1))
assert(0 <= a.extent.0, halide_error_buffer_extents_negative("Input buffer a", 0, a.extent.0))
assert(a.stride.0 == 1, halide_error_constraint_violated("a.stride.0", a.stride.0, "1", 1))
assert((uint64)abs(int64(a.extent.0)) <= (uint64)2147483647, halide_error_buffer_allocation_too_large("a", \
(uint64)abs(int64(a.extent.0)), (uint64)2147483647))
assert(!a.device_dirty, halide_error_device_dirty_with_no_device_support("Input buffer a"))
assert(a != reinterpret<(void *)>((uint64)0), halide_error_host_is_null("Input buffer a"))
assert((out.min.0 <= 0) && (64 <= (out.extent.0 + out.min.0)), halide_error_access_out_of_bounds("Output buffer out", \
0, 0, 63, out.min.0, (out.extent.0 + out.min.0) + -1))
assert((0 <= out.min.0) && ((out.extent.0 + out.min.0) <= 64), halide_error_explicit_bounds_too_small("x", "out", 0, \
63, out.min.0, (out.extent.0 + out.min.0) + -1))
"""
LETS = """\
let a.min.0 = _halide_buffer_get_min((struct halide_buffer_t *)a.buffer, 0)
let out.extent.0 = _halide_buffer_get_extent((struct halide_buffer_t *)out.buffer, 0)
let a.extent.0.required.s = max(opaque_zero, 0) - min(opaque_zero, 0)
"""


@pytest.fixture(scope="module")
def text() -> str:
    """Of out[x] = a[63 - x + opaque_zero] + a[x]."""
    a, zero, out = hl.ImageParam(hl.Float(32), 1, "a"), hl.Param(hl.Int(32), "opaque_zero"), hl.Func("out")
    out[X] = a[hl.Expr(63) - X + zero] + a[X]
    out.bound(X, 0, 64)
    return unmarked(compile_outputs(hl.Pipeline([out]), [a, zero], "kernel", V3, ["stmt"])["stmt"])


def test_the_words_of_halide(text: str) -> None:
    assert HEAD in text
    for line in (CHECKS + LETS).splitlines():
        assert f"{line}\n" in text, line


def test_how_often_each_form_is_found(text: str) -> None:
    program = HalideProgram(text)
    assert program.arguments == ("a", "opaque_zero", "out")
    assert program.checks is not None
    assert Counter(c.error for c in program.checks) == {
        "buffer_argument_is_null": 2, "bad_type": 2, "bad_dimensions": 2, "access_out_of_bounds": 2,
        "buffer_extents_negative": 2, "constraint_violated": 2, "buffer_allocation_too_large": 2,
        "device_dirty_with_no_device_support": 2, "host_is_null": 2, "explicit_bounds_too_small": 1,
    }  # fmt: skip
    assert {c.error for c in program.checks} <= BY_LAYOUT | OF_SHAPES
    assert all(c.condition is not None for c in program.checks)
    values = program.values({"opaque_zero": 0}, lambda call: 5 if call.name.endswith("get_extent") else None)
    assert values.of(HalideName("a.extent.0")) == 5
    assert values.of(HalideName("a.extent.0.required.s")) == 0
    assert values.of(HalideName("a.min.0")) is None
    assert not program.launches


def test_checks_are_computed_in_numbers(text: str) -> None:
    """The bounds of what is read backwards hold a minimum with the number that is always 0."""
    assert "min(opaque_zero, 0)" in text
    assert unproven(text, [(64,), None, (64,)]) == ()
    assert unproven(text, [(63,), None, (64,)]) == ("access_out_of_bounds",)
    assert unproven(text, [(65,), None, (64,)]) == ()
    assert unproven(text, [(64,), None, (65,)]) == ("explicit_bounds_too_small",)
    assert unproven(text, [(64,), None, (63,)]) == ("access_out_of_bounds",)
    assert unproven(text, [(64, 1), None, (64,)]) == ("bad_dimensions", "access_out_of_bounds")


def test_a_name_that_is_bound_twice_or_inside_is_not_known(text: str) -> None:
    for line in ("let a.extent.0.required.s = 0", " let a.extent.0.required.s = 0"):
        changed = text.replace("\nproduce out", f"\n{line}\nproduce out")
        assert unproven(changed, [(64,), None, (64,)]) == ("access_out_of_bounds",)
    inside = text.replace("\nlet a.extent.0.required.s", "\n let a.extent.0.required.s")
    assert unproven(inside, [(64,), None, (64,)]) == ("access_out_of_bounds",)
    itself = text.replace("s = max(opaque_zero, 0)", "s = max(a.extent.0.required.s, 0)")
    assert unproven(itself, [(64,), None, (64,)]) == ("access_out_of_bounds",)
    chain = "".join(f"let n{k} = n{k + 1} + 0\n" for k in range(40)) + "let n40 = 0\n"
    changed = text.replace("min(opaque_zero, 0)\n", "min(n0, 0)\n").replace("\nproduce out", f"\n{chain}produce out")
    assert unproven(changed, [(64,), None, (64,)]) == ("access_out_of_bounds",)


@pytest.mark.parametrize(("before", "after"), [
    ("external_plus_metadata func", "function"), ("assert(a.stride.0 == 1", "check(a.stride.0 == 1, assert(1"),
    ("\nassert(a.stride.0", "\n assert(a.stride.0"), ("halide_error_bad_type", "failed_bad_type"),
])  # fmt: skip
def test_where_a_text_is_of_another_form_nothing_is_proven(text: str, before: str, after: str) -> None:
    assert unproven(text.replace(before, after, 1), [(64,), None, (64,)]) is None


@pytest.mark.parametrize(("before", "after"), [
    ("a.stride.0 == 1", "a.stride.0 is 1"), ("halide_error_constraint_violated", "halide_error_new"),
])  # fmt: skip
def test_a_check_of_another_form_is_not_proven(text: str, before: str, after: str) -> None:
    assert len(unproven(text.replace(before, after), [(64,), None, (64,)]) or ()) > 0


def test_fields_of_buffers() -> None:
    buffer = HalideCall("cast", (HalideName("struct halide_buffer_t *"), HalideName("a$1.buffer")))
    assert read_field(HalideCall("_halide_buffer_get_stride", (buffer, 2))) == ("a$1", "stride", 2)
    assert read_field(HalideCall("_halide_buffer_is_bounds_query", (buffer,))) == ("a$1", "is_bounds_query", 0)
    for other in (
        HalideCall("f", (buffer,)),
        HalideCall("_halide_buffer_get_min", (HalideName("a"), 0)),
        HalideCall("_halide_buffer_get_min", ()),
    ):
        assert read_field(other) is None


def test_launches_of_a_gpu() -> None:
    A = te.placeholder((64, 64), name="A")
    C = te.compute((64, 64), lambda i, j: A[j, i] * 2, name="C")
    s = te.Schedule(C)
    s[C].gpu_tile("i", "j", 8, 32)
    (launch,) = HalideProgram(te.build([A], C, schedule=s, target="cuda").source("stmt")).launches
    assert launch.kernel.startswith("_kernel_C_s0_i_io_block_id_y")  # then a number, once the process had one before
    assert launch == Launch(launch.kernel, (2, 8, 1), (32, 8, 1), 0)


def test_loops_as_halide_prints_them() -> None:
    x = te.placeholder((64, 64), name="x")
    s = te.compute((64, 64), lambda i, j: te.exp(x[i, j]), name="s")
    y = te.compute((64, 64), lambda i, j: s[i, 63 - j] + s[i, j], name="y")
    lines = [line.strip() for line in te.build([x], y, target="x86-64-v3").loop_nest().splitlines()]
    loops = [m for m in map(LOOP.match, lines) if m is not None]
    assert Counter(m["mark"] for m in loops) == {"for": 3, "vectorized": 2}
    assert {(m["low"], m["high"]) for m in loops if m["mark"] == "vectorized"} == {("0", "7")}
    assert [(m["verb"], m["name"]) for m in map(PART.match, lines) if m is not None] == [
        ("produce", "y"), ("produce", "s"), ("consume", "s"),
    ]  # fmt: skip
    assert [line for line in lines if LOOP.match(line) is None and PART.match(line) is None] == [
        "s(...) = ...",
        "y(...) = ...",
    ]


def test_errors_of_programs_and_schedules() -> None:
    func = hl.Func("f")
    func[X] = X
    with pytest.raises(hl.HalideError) as caught:
        func.vectorize(hl.Var("unknown"), 8)
    schedule = caught.value
    assert readable(schedule).startswith("In schedule for f, could not find ")
    assert not says_nothing(schedule)
    assert not divides_by_zero(schedule)
    assert divides_by_zero(RuntimeError("Error: Division by constant zero in expression: 1/0"))
    assert says_nothing(RuntimeError("Error:\n"))
    assert readable(RuntimeError("User error:\n")) == "no reason"
    assert readable(RuntimeError("Error: f$3  is\nbad")) == "f is bad"


def test_errors_of_calls() -> None:
    """A requirement, and memory that is not there, in the words of Halide's own JIT."""
    x, f = hl.Var("x"), hl.Func("f")
    asked = hl.Param(hl.Int(32), "asked", 0)
    f[x] = hl.require(asked > 7, hl.i32(0), hl.i32(12), hl.i32(-5))
    with pytest.raises(hl.HalideError) as caught:
        f.realize([1])
    assert failed_requirement([message(str(caught.value))]) == ("0", "12", "-5")
    assert failed_requirement(["Out of memory"]) is None
    assert failed_requirement([requirement_failed("finite", 0, -1, 3)]) == ("0", "-1", "3")
    assert is_out_of_memory("Error: Out of memory (halide_malloc returned nullptr)")
    assert not is_out_of_memory(str(caught.value))
