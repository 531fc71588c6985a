"""Targets by name: what they mean to Halide, what the machine offers, and GPUs that are not there."""

from __future__ import annotations

from pathlib import Path

import halide as hl
import numpy as np
import pytest

from tedsl.backend.buffers import CompiledFunction
from tedsl.backend.constructors import expose_constructors
from tedsl.backend.objects import compile_outputs, load
from tedsl.backend.targets import device_problem, has_device, machine_of, parse_target
from tests.backend import kernels


def test_names() -> None:
    host = parse_target("host")
    assert hl.Target(host.text).has_feature(hl.TargetFeature.NoRuntime)
    assert not has_device(host.text)
    assert parse_target("cuda-capability_80").text == parse_target("cuda-cuda_capability_80").text
    assert "cuda_capability_80" in parse_target("cuda-capability_80").text.split("-")
    assert has_device(parse_target("opencl").text)
    assert "large_buffers" in parse_target("host-large_buffers").text.split("-")
    strict = host.with_features("strict_float")
    assert (strict.name, "strict_float" in strict.text) == ("host", True)


def test_bad_names() -> None:
    with pytest.raises(ValueError, match="target: 'tpu' does not begin with one of host, cuda, opencl"):
        parse_target("tpu")
    with pytest.raises(ValueError, match="target 'host-warp': 'warp' is not a feature that Halide knows"):
        parse_target("host-warp")
    with pytest.raises(ValueError, match=r"'capability_90' is not one of capability_30, .*capability_86"):
        parse_target("cuda-capability_90")
    with pytest.raises(TypeError, match="a string such as 'host' was expected, found 3"):
        parse_target(3)  # type: ignore[arg-type]


def test_the_machine() -> None:
    machine = machine_of(parse_target("host"))
    assert machine.vector_bytes in (16, 32, 64)
    assert 4 << 10 <= machine.l1 <= machine.l2 <= machine.l3 << 4
    assert machine.cores >= 1
    assert machine.gpu is None
    assert machine_of(parse_target("cuda")).gpu == "cuda"


def _gpu_pipeline() -> tuple[hl.Func, hl.ImageParam]:
    a, out = kernels.image("float32", 1, "a"), hl.Func("out")
    block, thread = hl.Var("block"), hl.Var("thread")
    out[kernels.X] = a[kernels.X] * 2
    out.gpu_tile(kernels.X, block, thread, 32, kernels.TAIL)
    return out, a


def test_cuda_compiles_anywhere() -> None:
    out, a = _gpu_pipeline()
    text = parse_target("cuda-capability_80").text
    found = compile_outputs(hl.Pipeline([out]), [hl.Argument(a)], "twice", text, ["ptx", "stmt"])
    assert ".target sm_80" in found["ptx"]
    assert "halide_cuda_run" in found["stmt"]


@pytest.mark.parametrize("target", ["cuda", "opencl"])
def test_a_gpu_kernel_runs_or_says_why_not(target: str) -> None:
    out, a = _gpu_pipeline()
    function = CompiledFunction(
        load(kernels.object_code(out, [a], "twice", target)), kernels.specs("a:float32:1 out:float32:1")
    )
    values, result = np.arange(100, dtype="float32"), np.zeros(100, "float32")
    problem = device_problem(parse_target(target).text)
    if problem is None:
        for _ in range(3):
            function(values, result)
            np.testing.assert_array_equal(result, 2 * values)
            values += 1
    else:
        with pytest.raises(RuntimeError, match=r"kernel 'twice': .*build it with target='host' to run it here"):
            function(values, result)


def test_what_would_abort_on_a_gpu_is_refused_first() -> None:
    out, a = _gpu_pipeline()
    function = CompiledFunction(
        load(kernels.object_code(out, [a], "twice", "cuda")), kernels.specs("a:float32:1 out:float32:1")
    )
    values = np.zeros(4, "float32")
    with pytest.raises(ValueError, match=r"argument 'a': an array without elements \(shape \(0,\)\)"):
        function(values[:0], values)
    with pytest.raises(ValueError, match=r"argument 'a': axis 0 runs backwards.*copy the array first"):
        function(values[::-1], values)


def test_constructors_of_a_runtime_are_found(tmp_path: Path) -> None:
    """Without them the cache of GPU kernels is not set up and the first launch aborts."""
    found = {}
    for target in ("host", "host-cuda", "host-opencl"):
        path = tmp_path / f"{target}.o"
        hl.compile_standalone_runtime(str(path), hl.Target(target))
        found[target] = expose_constructors(path.read_bytes())[1]
    assert found["host"] == []
    assert found["host-cuda"] == ["register_cuda_allocation_pool", "_GLOBAL__sub_I_cuda.cpp"]
    assert found["host-opencl"] == ["_GLOBAL__sub_I_opencl.cpp"]
    assert expose_constructors(b"MZ not an ELF file") == (b"MZ not an ELF file", [])
