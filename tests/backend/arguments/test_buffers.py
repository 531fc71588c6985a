"""Calling compiled code on arrays: every layout and element type, scalars, threads, and arrays that must be refused."""

from __future__ import annotations

import threading
import time

import halide as hl
import numpy as np
import pytest

from tedsl.backend.arguments import addresses
from tedsl.backend.arguments.blocks import ArgSpec, CompiledFunction, copy_reason
from tedsl.backend.compiling.objects import compile_object, load
from tedsl.backend.host.targets import parse_target
from tests.backend import kernels

BASE = np.arange(120, dtype="float32").reshape(10, 12)
LAYOUTS = {
    "c": BASE,
    "fortran": np.asfortranarray(BASE),
    "transposed": BASE.T,
    "reversed": BASE[::-1, ::-1],
    "stepped": BASE[1::3, 2::5],
    "broadcast": np.broadcast_to(BASE[3], (7, 12)),
    "column": BASE[:, 4:5],
    "unaligned": np.frombuffer(b"\0" + BASE.tobytes(), "float32", offset=1).reshape(10, 12),
    "read-only": np.frombuffer(BASE.tobytes(), "float32").reshape(10, 12),
    "no rows": BASE[:0],
    "no columns": BASE[:, 12:],
    "one element": BASE[2:3, 5:6],
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("order", ["C", "F", "reversed"])
def test_every_layout_is_read_and_written_in_place(layout: str, order: str) -> None:
    source = LAYOUTS[layout]
    target = np.full(source.shape, -1, "float32", order="C" if order == "reversed" else order)
    target = target[::-1, ::-1] if order == "reversed" else target
    kernels.copy("float32", 2)(source, target)
    np.testing.assert_array_equal(target, source)


@pytest.mark.parametrize("dtype", kernels.TYPES)
def test_every_element_type_keeps_its_bits(dtype: str) -> None:
    bits = np.arange(2, 85, dtype="uint64") * np.uint64(0x0123456789ABCDEF)
    width = kernels.specs(f"a:{dtype}:1")[0].itemsize
    source = (bits % 2 == 0) if dtype == "bool" else (bits & np.uint64(0x7BFF)).astype(f"uint{8 * width}")
    source = source.view("uint16" if dtype == "bfloat16" else dtype)
    target = np.zeros_like(source)
    kernels.copy(dtype, 1)(source, target)
    np.testing.assert_array_equal(target.view(f"uint{8 * width}"), source.view(f"uint{8 * width}"))


def test_arrays_of_rank_zero_and_four() -> None:
    scalar = np.zeros((), "float64")
    kernels.copy("float64", 0)(np.array(2.5), scalar)
    assert scalar == 2.5
    cube = np.random.default_rng(0).integers(0, 99, (3, 4, 5, 6)).transpose(2, 0, 3, 1)
    target = np.zeros(cube.shape, cube.dtype)
    kernels.copy("int64", 4)(cube, target)
    np.testing.assert_array_equal(target, cube)


@pytest.mark.parametrize("dtype", [name for name in kernels.TYPES if name != "bfloat16"])
def test_scalars_are_passed_by_value(dtype: str) -> None:
    value, out = hl.Param(kernels.TYPES[dtype], "value"), hl.Func("out")
    out[kernels.X] = value
    function = CompiledFunction(
        load(kernels.object_code(out, [value])), kernels.specs(f"value:{dtype}:- out:{dtype}:1")
    )
    wanted = {"b": True, "f": -2.75, "i": -3, "u": 200}[np.dtype(dtype).kind]
    target = np.zeros(3, dtype)
    function(wanted, target)
    np.testing.assert_array_equal(target, np.full(3, wanted, dtype))


def test_a_sum_over_an_array_without_elements() -> None:
    a, out = kernels.image("float32", 1, "a"), hl.Func("out")
    k = hl.RDom([(0, a.dim(0).extent())], "k")
    out[kernels.X] = hl.f32(1)
    out[kernels.X] += a[k]
    function = CompiledFunction(load(kernels.object_code(out, [a])), kernels.specs("a:float32:1 out:float32:1"))
    for empty in (np.zeros(0, "float32"), np.frombuffer(memoryview(b""), "float32"), BASE[:0, 3]):
        result = np.zeros(3, "float32")
        function(empty, result)
        np.testing.assert_array_equal(result, [1, 1, 1])


def test_an_axis_of_one_element_counts_as_contiguous() -> None:
    """Its stride is never stepped along, so it may be anything; code specialised on stride 1 should still run."""
    a, out = hl.ImageParam(hl.Float(32), 2, "a"), hl.Func("out")
    out[kernels.X, kernels.Y] = a[kernels.X, kernels.Y]
    pipeline = hl.Pipeline([out])  # both constrained to stride 1 along the last axis
    code = compile_object(pipeline, [hl.Argument(a)], "kernel", parse_target("host").text)
    function = CompiledFunction(load(code), kernels.specs("a:float32:2 out:float32:2"))
    source, result = BASE.T[:, :1], np.zeros((12, 1), "float32")
    assert source.strides == (4, 48)
    function(source, result)
    np.testing.assert_array_equal(result, source)
    records = np.array([(1.5, 1)], [("a", "float32"), ("b", "int8")])["a"].reshape(1, 1)
    function(records, result[:1])
    assert result[0, 0] == 1.5


def test_one_binding_is_called_from_many_threads_at_once() -> None:
    function = kernels.add()
    size = 4096
    binding = function.bind([((size,), (4,))] * 3)
    wrong: list[int] = []

    def work(seed: int) -> None:
        a, out = np.full(size, seed, "float32"), np.empty(size, "float32")
        for step in range(200):
            b = np.full(size, step, "float32")
            binding.run((a, b, out))
            if not (out == seed + step).all():
                wrong.append(seed)

    _in_threads(work, range(8))
    assert not wrong


def test_a_call_releases_the_gil() -> None:
    a, out = np.ones(8, "float32"), np.empty(8, "float32")
    ticks = 0
    caller = threading.Thread(target=lambda: kernels.slow()(a, 20_000, out))
    kernels.slow()(a, 1, out)
    caller.start()
    while caller.is_alive():
        time.sleep(0.001)
        ticks += 1
    assert ticks > 20


def test_a_binding_reuses_its_memory() -> None:
    a = np.ones(16, "float32")
    binding = kernels.add().bind([(a.shape, a.strides)] * 3)
    for _ in range(100):
        binding.run((a, a, np.empty(16, "float32")))
    assert len(binding._free) == 1


def test_strides_that_halide_cannot_hold_have_a_reason() -> None:
    records = np.zeros(5, [("a", "float32"), ("b", "int8")])["a"]
    assert records.strides == (5,)
    reason = copy_reason(records.shape, records.strides, 4)
    assert reason == "axis 0 steps by 5 bytes, no multiple of the 4 bytes of an element"
    assert "more than 2147483647" in (copy_reason((2, 3), (2**34, 4), 4) or "")
    assert copy_reason((1, 3), (5, 4), 4) is None  # an axis of one element is never stepped along
    assert copy_reason((0, 3), (5, 4), 4) is None
    with pytest.raises(ValueError, match=r"argument 'a': axis 0 steps by 5 bytes.*copy the array first"):
        kernels.add()(records, np.zeros(5, "float32"), np.zeros(5, "float32"))


def test_what_does_not_fit_the_function_is_refused() -> None:
    good = np.zeros(4, "float32")
    function = kernels.add()
    with pytest.raises(TypeError, match=r"argument 'b': float32 was expected, found array\(\[0., 0."):
        function(good, good.astype("float64"), good)
    with pytest.raises(TypeError, match=r"argument 'a': float32 was expected, found \[1.0\]"):
        function([1.0], good, good)
    with pytest.raises(TypeError, match="argument 'a'"):
        function(np.float32(1), good, good)  # a NumPy scalar is no array: its memory lies elsewhere
    with pytest.raises(ValueError, match=r"argument 'a': 1 axes were expected, found 2 \(shape \(2, 2\)\)"):
        function(good.reshape(2, 2), good, good)
    with pytest.raises(ValueError, match="argument 'a': 2147483648 elements on one axis"):
        function(np.broadcast_to(np.float32(0), (2**31,)), good, good)
    with pytest.raises(TypeError, match="kernel 'add': 3 arrays and 0 scalars were expected, found 1 and 0"):
        function.bind([((4,), (4,))])
    frozen = np.zeros(4, "float32")
    frozen.flags.writeable = False
    with pytest.raises(ValueError, match=r"argument 'out'.*read-only"):
        function(good, good, frozen)


def test_addresses_are_those_that_numpy_reports() -> None:
    """The quick way reads NumPy's array object; the slow way stays as its fallback."""
    assert addresses.address_of is addresses._address_by_field
    for array in [*LAYOUTS.values(), np.array(1.5), np.zeros((2, 0, 3))]:
        assert addresses._address_by_field(array) == addresses._address_by_interface(array)


def test_halide_types() -> None:
    assert [ArgSpec("a", dtype, 1).halide_type for dtype in ("bool", "int8", "uint64", "float16", "bfloat16")] == [
        (1, 1), (0, 8), (1, 64), (2, 16), (4, 16),
    ]  # fmt: skip


def _in_threads(work, seeds) -> None:
    threads = [threading.Thread(target=work, args=(seed,)) for seed in seeds]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
