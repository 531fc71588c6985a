"""Kernels through Halide's own JIT: the same results and errors as from objects, and what there is not."""

from __future__ import annotations

import itertools
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tedsl as te
from tedsl.backend.compiling import disk_cache
from tedsl.backend.compiling.jit import JitFunction
from tedsl.backend.host import loaders
from tests.opencl import on_opencl
from tests.processes import run_script

RNG = np.random.default_rng(4)


@pytest.fixture(autouse=True)
def _by_jit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(loaders.LOADER_VARIABLE, "jit")


def floats(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.standard_normal(shape).astype(np.float32)


def test_the_way_is_chosen_by_platform_and_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not loaders.loads_objects()
    monkeypatch.setenv(loaders.LOADER_VARIABLE, "dlopen")
    with pytest.raises(ValueError, match="TEDSL_LOADER: 'objects' or 'jit' was expected, found 'dlopen'"):
        loaders.loader()
    monkeypatch.delenv(loaders.LOADER_VARIABLE)
    for system, machine, expected in (
        ("linux", "x86_64", "objects"), ("linux", "aarch64", "jit"), ("darwin", "arm64", "jit"),
        ("darwin", "x86_64", "jit"), ("win32", "AMD64", "jit"), ("freebsd14", "amd64", "jit"),
    ):  # fmt: skip
        monkeypatch.setattr(sys, "platform", system)
        monkeypatch.setattr(loaders.platform, "machine", lambda machine=machine: machine)
        assert loaders.loader() == expected


def test_arrays_of_any_layout_and_sizes_by_value() -> None:
    n, m = te.var("n"), te.var("m")
    a, b = te.placeholder((n, m), name="a"), te.placeholder((m,), name="b")
    kernel = te.build([a, b], te.compute((n, m), lambda i, j: a[i, j] * 2 + b[j] * te.cast(n, "float32"), name="jit_c"))
    assert isinstance(kernel.core.any_variant().function, JitFunction)
    layouts = [floats(6, 21), np.asfortranarray(floats(6, 21)), floats(13, 50)[1::2, 3:45:2], floats(6, 21)[::-1, ::-1],
               np.broadcast_to(floats(21), (6, 21)), floats(1, 21), floats(0, 3), floats(4, 0)]  # fmt: skip
    for x in layouts:
        y = floats(2 * x.shape[1])[::2]
        expected = 2 * x + y * np.float32(len(x))
        for _ in range(2):
            np.testing.assert_array_equal(kernel(x, y), expected)
        if x.flags.writeable:
            out = np.zeros((len(x), 2 * x.shape[1] + 1), np.float32)[:, 1::2]
            np.testing.assert_array_equal(kernel(x, y, out=out), expected)
            np.testing.assert_array_equal(kernel(x, y, out=out, mode="add"), 2 * expected)
    assert kernel.stats.copies == []


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int64", "float16", "bfloat16", "float64"])
def test_every_dtype(dtype: str) -> None:
    x = te.placeholder((3, 17), dtype, name="x")
    y = te.compute((3, 17), lambda i, j: te.select(j % 2 == 0, x[i, j], x[2 - i, 16 - j]), name="mirrored")
    values = RNG.integers(0, 2 if dtype == "bool" else 100, (3, 17)).astype(x.dtype.numpy)
    found, expected = te.evaluate(y, {x: values}), te.interpret(y, {x: values})
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found.view(np.uint8), expected.view(np.uint8))


def test_sums_in_memory_that_is_not_aligned_and_nothing_beside_them_is_touched() -> None:
    """Halide takes an output that its own update reads for memory of its own, aligned to whole vectors."""
    x = te.placeholder((40, 33), name="x")
    total = te.compute((33,), lambda j: te.sum(lambda i: x[i, j]), name="total")
    counts = te.scatter((7,), axes=[i := te.reduce_axis(40)], index=(i % 7,), value=x[i, 0])
    s = te.Schedule([total])
    s[total].reorder("i", "j").vectorize("j", 8)
    values = floats(40, 33)
    by_default, by_hand = te.build([x], [total, counts]), te.build([x], total, schedule=s)
    room = np.full(200, 7, np.float32)
    for shift in range(5):
        for backwards in (False, True):
            room[:] = 7
            out, other = room[shift : shift + 33], room[100 + shift : 107 + shift]
            out = out[::-1] if backwards else out
            by_default(values, out=(out, other))
            np.testing.assert_allclose(out, values.sum(0), rtol=1e-5, atol=1e-5)
            np.testing.assert_allclose(other, [values[k::7, 0].sum() for k in range(7)], rtol=1e-5, atol=1e-5)
            out[:] = 7
            by_hand(values, out=out)
            np.testing.assert_allclose(out, values.sum(0), rtol=1e-5, atol=1e-5)
            assert (room == 7).sum() == 200 - 33 - 7


def test_several_outputs_in_place_and_donated() -> None:
    u, v = te.placeholder((50,), name="u"), te.placeholder((50,), name="v")
    a, b = te.compute((50,), lambda i: (u[i] + v[i], u[i] - v[i]), name="both")
    x, y = floats(50), floats(50)
    found = te.build([u, v], [a, b])(x, y)
    np.testing.assert_array_equal(found, [x + y, x - y])
    c = te.compute((50,), lambda i: 2 * u[i] + v[i], name="c")
    expected, memory = 2 * x + y, x.copy()
    assert te.build([u, v], c, alias={c: u})(memory, y) is memory
    np.testing.assert_array_equal(memory, expected)
    np.testing.assert_array_equal(te.build([u, v], c, donate=[u])(x.copy(), y), expected)


def test_errors_are_those_of_objects() -> None:
    x, i = te.placeholder((5,), name="x"), te.placeholder((3,), "int32", name="i")
    kernel = te.build([x, i], te.compute((3,), lambda k: x[i[k]], name="picked"))
    values = np.arange(5, dtype=np.float32)
    for wrong in (5, -1):
        with pytest.raises(IndexError, match=rf"compute 'picked' at .*: it is {wrong} .*expected 0 <= index < 5"):
            kernel(values, np.array([0, wrong, 2], np.int32))
        np.testing.assert_array_equal(kernel(values, np.array([4, 0, 2], np.int32)), [4, 0, 2])
    n = te.var("n")
    y = te.placeholder((n,), name="y")
    wide = te.compute((n,), lambda k: y[k] + 1, name="wide")
    s = te.Schedule(t := te.compute((n,), lambda k: wide[k] * wide[n - 1 - k], name="t"))
    s[wide].compute_root()
    assert te.build([y], t, schedule=s)(np.ones(3, np.float32)).tolist() == [4, 4, 4]


def test_infinities_are_computed_with_as_from_objects() -> None:
    x, w = te.placeholder((2, 3, 12, 12), name="x"), te.placeholder((4, 3, 3, 3), name="w")
    y = te.ops.conv2d(x, w, padding=1)
    a, b = floats(2, 3, 12, 12), floats(4, 3, 3, 3)
    a[0, 1, 4, 4] = np.inf
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(te.build([x, w], y)(a, b), te.interpret(y, {x: a, w: b}), rtol=1e-4, atol=1e-5)


def test_one_kernel_in_many_threads() -> None:
    a = te.placeholder((64, 64), name="a")
    kernel, wrong = te.build([a], te.compute((64, 64), lambda i, j: (a @ a)[i, j], name="squared")), []

    def work(number: int) -> None:
        x = np.full((64, 64), number, np.float32)
        wrong.extend(k for k in range(50) if not (kernel(x) == 64 * number**2).all())

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads)
    assert wrong == []


def test_children_that_are_forked_beside_calls_compute() -> None:
    # On two cores each child waits for its turn beside the three threads.
    assert run_script("""
        import os, threading, time
        import numpy as np, tedsl as te
        a = te.placeholder((300, 300), name="a")
        kernel, x, stop = te.build([a], a @ a), np.ones((300, 300), "f4"), threading.Event()
        kernel(x)
        def busy():
            while not stop.is_set():
                kernel(x)
        threads = [threading.Thread(target=busy, daemon=True) for _ in range(3)]
        for thread in threads: thread.start()
        for _ in range(2):
            child = os.fork()
            if child == 0:
                te.build([a], a * 3.0)(x)
                os._exit(0 if (kernel(x) == 300).all() else 1)
            assert os.waitpid(child, 0)[1] == 0
        print("ok")  # and ends beside busy threads
    """, timeout=400) == "ok\n"  # fmt: skip


@pytest.mark.parametrize("name", ["tanh", "exp", "malloc", "memcpy", "halide_error", "main"])
def test_a_result_may_be_called_as_a_function_of_the_system(name: str) -> None:
    """Halide names the compiled function after the first result, and its process ends where that is libm's."""
    x = te.placeholder((40,), name="x")
    np.testing.assert_allclose(
        te.build([x], te.compute((40,), lambda i: te.tanh(x[i]) + te.exp(x[i]), name=name))(np.zeros(40, "f4")), 1
    )


def test_programs_of_many_kernels() -> None:
    x = te.placeholder((40, 40), name="x")
    y = x
    for k in range(30):
        y = te.tanh((y @ x) * (0.01 * k + 0.01))
    kernel = te.build([x], y)
    assert kernel.core.single is None
    values = floats(40, 40)
    np.testing.assert_allclose(kernel(values), te.interpret(y, {x: values}), rtol=1e-3, atol=1e-5)


def test_nothing_is_kept_and_texts_and_exports_are_those_of_objects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEDSL_CACHE", "on")
    monkeypatch.setenv("TEDSL_CACHE_DIR", str(tmp_path / "cache"))
    x = te.placeholder((64,), name="x")

    def kernels() -> Any:
        return te.build([x], te.compute((64,), lambda i: te.exp(x[i]) * 2, name="exported"))

    by_jit = kernels()
    assert disk_cache.entries() == []
    assert [path.name for path in by_jit.export(tmp_path)][:2] == ["exported.h", "libexported.a"]
    texts = [by_jit.source(kind) for kind in ("stmt", "asm")]
    monkeypatch.delenv(loaders.LOADER_VARIABLE)
    by_objects = te.build([x], te.compute((64,), lambda i: te.exp(x[i]) * 2, name="exported"), name="exported")
    assert [by_objects.source(kind) for kind in ("stmt", "asm")] == texts


def test_atomic_sums_that_lose_terms_are_refused() -> None:
    x, at = te.placeholder((100,), name="x"), te.placeholder((100,), "int32", name="at")
    i = te.reduce_axis(100, "i")
    bins = te.scatter((8,), axes=[i], index=(te.clip(at[i], 0, 7),), value=x[i])
    s = te.Schedule(bins)
    s[bins].atomic().parallel("i")
    with pytest.raises(te.ScheduleError, match="an element of float32 is read twice"):
        te.build([x, at], bins, schedule=s, deterministic=False)


def test_other_processors_are_compiled_shown_and_refused() -> None:
    x = te.placeholder((64,), name="x")
    kernel = te.build([x], te.compute((64,), lambda i: te.exp(x[i]), name="elsewhere"), target="arm-64-osx")
    assert "fmul" in kernel.source("asm")
    with pytest.raises(RuntimeError, match="it is compiled for arm-64-osx"):
        kernel(floats(64))


@on_opencl
def test_a_gpu_computes_on_arrays_of_the_cpu() -> None:
    a, b = te.placeholder((40, 50), name="a"), te.placeholder((50, 60), name="b")
    kernel = te.build([a, b], te.compute((40, 60), lambda i, j: te.tanh((a @ b)[i, j]), name="there"), target="opencl")
    for _ in range(3):
        x, y = floats(40, 50), floats(50, 60)
        np.testing.assert_allclose(kernel(x, y), np.tanh(x @ y), rtol=1e-4, atol=1e-5)


def test_a_random_program_agrees_with_the_reference() -> None:
    n = te.var("n")
    x = te.placeholder((n, 30), name="x")
    e = te.exp(x - x.max(axis=1, keepdims=True))
    y = e / e.sum(axis=1, keepdims=True)
    head = te.placeholder((n, 30), name="head")
    gradient = te.differentiate(y, [x], head)[0]
    kernel = te.build([x, head], [y, gradient])
    for rows in itertools.chain(range(1, 5), (33,)):
        a, h = floats(rows, 30), floats(rows, 30)
        for found, expected in zip(kernel(a, h), te.interpret([y, gradient], {x: a, head: h}), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
