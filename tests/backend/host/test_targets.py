"""Targets by name: what they mean to Halide, what the machine offers, and processors and GPUs that are not there."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import halide as hl
import numpy as np
import pytest

import tedsl as te
from tedsl.backend.arguments.blocks import CompiledFunction
from tedsl.backend.compiling.objects import compile_outputs, load
from tedsl.backend.host import processors
from tedsl.backend.host.elf import expose_constructors
from tedsl.backend.host.processors import features_of, is_same_machine, misfit_here
from tedsl.backend.host.targets import device_problem, has_device, machine_of, parse_target
from tests.backend import kernels
from tests.levels import LEVELS, LEVELS_HERE


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
    for name in ("tpu", "x86", "x86-64", "x86-64-v5", "x86-64-v1", "x86-64-avx2", "arm-64", "arm-32-linux", "riscv-64"):
        with pytest.raises(ValueError, match=rf"'{name}' does not begin with one of host, cuda, opencl, x86-64-v2"):
            parse_target(name)
    with pytest.raises(ValueError, match=r"target 'arm-64-linux-avx2': .*avx2 is incompatible"):
        parse_target("arm-64-linux-avx2")
    with pytest.raises(ValueError, match=r"'metal' is a feature of Halide's that kernels here do not have"):
        parse_target("x86-64-v3-metal")
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


def test_a_named_processor_is_the_same_on_every_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    names = (*LEVELS, "arm-64-linux", "arm-64-osx", "x86-64-windows-avx2", "x86-64-v3-cuda-capability_80")
    before = [(parse_target(name).text, machine_of(parse_target(name))) for name in names]
    monkeypatch.setattr(processors, "_cache_sizes", lambda: (1, 2, 3))
    monkeypatch.setattr(processors, "available_cpus", lambda: 77)
    assert [(parse_target(name).text, machine_of(parse_target(name))) for name in names] == before
    assert [m.vector_bytes for _, m in before] == [16, 32, 64, 16, 16, 32, 32]
    assert [m.vector_registers for _, m in before] == [16, 16, 32, 32, 32, 16, 16]
    assert [m.gpu for _, m in before] == [None] * 6 + ["cuda"]
    assert machine_of(parse_target("host")).cores == (77 if parse_target("host").is_here else 8)


def test_levels_hold_those_below() -> None:
    two, three, four = (features_of(parse_target(level).text) for level in LEVELS)
    assert two < three < four
    assert "fma" in three
    assert "fma" in features_of(parse_target("x86-64-linux-avx2").text)  # Halide compiles it for Haswell
    assert "fma" in features_of(parse_target("arm-64-osx").text)


def _product() -> tuple[te.Tensor, te.Tensor, te.Tensor]:
    a, b = te.placeholder((40, 50), name="a"), te.placeholder((50, 60), name="b")
    return a, b, te.compute((40, 60), lambda i, j: te.tanh((a @ b)[i, j]), name="product")


@pytest.mark.parametrize("target", LEVELS_HERE)
def test_every_level_up_to_that_of_the_processor_runs(target: str) -> None:
    a, b, c = _product()
    x, y = (np.random.default_rng(0).standard_normal(t.shape).astype("float32") for t in (a, b))
    np.testing.assert_allclose(te.build([a, b], c, target=target)(x, y), np.tanh(x @ y), rtol=1e-4, atol=1e-5)


ELSEWHERE = {
    "x86-64-v4": ("zmm", b"\x7fELF", "libproduct.a"),
    "arm-64-linux": ("fmla", b"\x7fELF", "libproduct.a"),
    "arm-64-osx": ("fmla", b"\xcf\xfa\xed\xfe", "libproduct.a"),
    "x86-64-windows-avx2": ("ymm", struct.pack("<H", 0x8664), "product.lib"),
}


@pytest.mark.parametrize("target", ELSEWHERE)
def test_what_runs_elsewhere_is_compiled_shown_and_exported(target: str, tmp_path: Path) -> None:
    instructions, begin, library = ELSEWHERE[target]
    a, b, c = _product()
    kernel = te.build([a, b], c, target=target)
    assert instructions in kernel.source("asm")
    assert "produce product" in kernel.source("stmt")
    assert "vectorized" in kernel.loop_nest()
    files = {path.name: path for path in kernel.export(tmp_path)}
    text = parse_target(target).text
    assert files.keys() == {"product.h", library} | (
        {"libproduct.so", "product.py"} if is_same_machine(text) else set()
    )
    if misfit_here(text):
        with pytest.raises(
            RuntimeError, match=r"kernel 'product': it is compiled for .*, (and this machine|which the one)"
        ):
            kernel(np.zeros(a.shape, "float32"), np.zeros(b.shape, "float32"))
    index = _index(files[library].read_bytes(), 2 if begin == ELSEWHERE["arm-64-osx"][1] else 1)
    prefix = "_" if target.endswith("osx") else ""
    (entry,) = (name for name in index if re.fullmatch(prefix + r"te_product_[0-9a-f]{16}_argv", name))
    for symbol in (prefix + "product", prefix + "product_error", prefix + "halide_malloc", entry):
        assert index[symbol].startswith(begin)


def _index(library: bytes, form: int) -> dict[str, bytes]:
    """The beginning of the object that defines each symbol, by the index of a static library."""
    assert library.startswith(b"!<arch>\n")
    size = int(library[8 + 48 : 8 + 58])
    content = library[68 : 68 + size]
    if form == 2:  # Apple's: the names of members stand before what they hold
        content = content[20:]
        (pairs,) = struct.unpack_from("<I", content)
        offsets = list(struct.iter_unpack("<II", content[4 : 4 + pairs]))
        names = content[8 + pairs :]
        at = {names[name : names.index(b"\0", name)].decode(): place + 60 + 20 for name, place in offsets}
        assert all(place % 8 == 0 for place in at.values())
    else:
        (count,) = struct.unpack_from(">I", content)
        places = struct.unpack_from(f">{count}I", content, 4)
        listed = content[4 + 4 * count :].split(b"\0")
        at = {name.decode(): place + 60 for name, place in zip(listed, places, strict=False)}
    return {name: library[place : place + 8] for name, place in at.items()}


def test_what_lies_in_front_of_a_kernel_that_cannot_run_is_not_done() -> None:
    ran = []
    x = te.placeholder((8,), "float64", name="x")
    first = te.extern(lambda a: ran.append(1) or a * 2, (8,), "float64", [x], pure=False)
    kernel = te.build([x], te.compute((8,), lambda i: first[i] + 1), target="arm-64-linux")
    with pytest.raises(RuntimeError, match="it is compiled for arm-64-linux"):
        kernel(np.zeros(8))
    with pytest.raises(RuntimeError, match="it is compiled for arm-64-linux"):
        te.tune(te.compute((8,), lambda i: x[i] + 1), budget=1, target="arm-64-linux")
    assert not ran


def test_the_processor_here_can_be_taken_for_an_older_one(monkeypatch: pytest.MonkeyPatch) -> None:
    own = parse_target("host")
    monkeypatch.setenv("TEDSL_HOST", "x86-64-v2")
    older = parse_target("host")
    assert (older.text, older.is_here) == (parse_target("x86-64-v2").text, False)
    assert machine_of(older) == machine_of(parse_target("x86-64-v2"))
    assert "avx" not in parse_target("cuda").text
    a, b, c = _product()
    said = r"with avx, avx2, f16c, fma, which the one here \(TEDSL_HOST=x86-64-v2\) does not have"
    with pytest.raises(RuntimeError, match=said):
        te.build([a, b], c, target="x86-64-v3")(np.zeros(a.shape, "float32"), np.zeros(b.shape, "float32"))
    for wrong, said in (
        ("x86-64-v5", "TEDSL_HOST: target: 'x86-64-v5'"),
        ("arm-64-osx", "this machine is x86-64-linux"),
    ):
        monkeypatch.setenv("TEDSL_HOST", wrong)
        with pytest.raises(ValueError, match=said):
            parse_target("host")
    monkeypatch.undo()
    assert parse_target("host") == own


def test_a_schedule_is_made_for_its_target() -> None:
    a, _, c = _product()
    texts = {level: str(te.Schedule(c).auto(target=level)) for level in LEVELS}
    assert len(set(texts.values())) == 3
    with pytest.raises(ValueError, match="'tpu' does not begin"):
        te.Schedule(c).auto(target="tpu")


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
