"""Arrays on a GPU are taken as they are: tested with a driver that is none, since there is no GPU here."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import tedsl as te
from tedsl.backend.host.targets import device_problem, parse_target
from tests.backend import fake_cuda
from tests.backend.fake_cuda import CONTEXT, DRIVER, FakeArray, FakeCuda, FakeExchanged, floats

# Halide looks for the driver once: where there is a real one, that is to be used.
pytestmark = pytest.mark.skipif(device_problem(parse_target("cuda").text) is None, reason="there is a GPU")

SHAPE = (6, 32)
A, B = te.placeholder(SHAPE, name="A"), te.placeholder(SHAPE, name="B")
SUM = te.compute(SHAPE, lambda i, j: A[i, j] + 2 * B[i, j], name="sum")
VALUES = np.arange(192, dtype="f4").reshape(SHAPE)


def add(pointers: Sequence[int]) -> None:
    """What the kernel does on a GPU; Halide passes arrays in the order of their names."""
    a, b, result = (floats(p, 192) for p in pointers)
    result[:] = a + 2 * b


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    DRIVER.forget()
    DRIVER.kernels["sum"] = 3, add
    return DRIVER.installed(monkeypatch)


@pytest.fixture(scope="module")
def kern() -> Any:
    return te.build([A, B], SUM, target="cuda", name="added")


def test_numpy_arrays_are_copied_to_the_gpu_and_back(driver: FakeCuda, kern: Any) -> None:
    found = kern(VALUES, VALUES + 1)
    np.testing.assert_array_equal(found, 3 * VALUES + 2)
    assert (driver.calls["cuMemcpyHtoD"], driver.calls["cuMemcpyDtoH"]) == (2, 1)
    assert driver.contexts == {CONTEXT}
    assert not driver.calls["cuCtxCreate"]
    assert kern.stats.device_bytes == 3 * VALUES.nbytes
    kern(VALUES, VALUES)
    assert driver.calls["cuMemAlloc"] == 3  # memory is kept for the next call


def test_arrays_on_the_gpu_stay_there(driver: FakeCuda, kern: Any) -> None:
    a, b = FakeArray(VALUES, stream=0x51), FakeArray(VALUES + 1, stream=0x51)
    out = FakeArray(np.zeros(SHAPE, "f4"), stream=0x51)
    assert kern(a, b, out=out) is out
    np.testing.assert_array_equal(out.values, 3 * VALUES + 2)
    ((blocks, threads, stream, pointers),) = driver.launches
    assert (blocks[:2], threads, stream) == ([1, 1], [32, 8, 1], 0x51)
    assert pointers == [x.values.ctypes.data for x in (a, b, out)]
    assert driver.contexts == {CONTEXT}
    for name in ("cuMemcpyHtoD", "cuMemcpyDtoH", "cuMemAlloc", "cuCtxSynchronize", "cuStreamSynchronize"):
        assert not driver.calls[name], name
    assert not driver.waited
    assert (kern.stats.copies, kern.stats.bytes, kern.stats.device_bytes) == ([], *[3 * VALUES.nbytes] * 2)


def test_arrays_of_which_only_dlpack_tells(driver: FakeCuda, kern: Any) -> None:
    a, b, out = (FakeExchanged(x) for x in (VALUES, VALUES + 1, np.zeros(SHAPE, "f4")))
    assert kern(a, b, out=out) is out
    np.testing.assert_array_equal(out.values, 3 * VALUES + 2)
    assert (driver.launches[0][2:], a.asked) == ((0, [x.values.ctypes.data for x in (a, b, out)]), [1])
    assert not driver.calls["cuMemcpyHtoD"] + driver.calls["cuStreamSynchronize"]
    kern(FakeArray(VALUES, stream=7), b, out=out)
    assert driver.launches[1][2] == 7
    assert driver.waited == [None]  # for what the default stream holds
    for wrong, kind, text in [
        (FakeExchanged(VALUES.astype("i8")), TypeError, "float32 was expected, found int64"),
        (FakeExchanged(VALUES, device=1), TypeError, "FakeExchanged is not in the memory of a GPU"),
        (FakeExchanged(VALUES[0]), ValueError, "2 axes were expected, found 1"),
        (FakeExchanged(VALUES[:, ::-1]), ValueError, "axis 1 runs backwards"),
    ]:
        with pytest.raises(kind, match=f"input 'B': {text}"):
            kern(a, wrong, out=out)
    assert len(driver.launches) == 2


def test_results_are_made_by_the_library_of_the_arrays(
    driver: FakeCuda, kern: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeArray, "__module__", "fake_cuda")
    monkeypatch.setitem(sys.modules, "fake_cuda", fake_cuda)
    found = kern(FakeArray(VALUES), FakeArray(VALUES))
    assert type(found) is FakeArray
    np.testing.assert_array_equal(found.values, 3 * VALUES)


def test_operators_take_them(driver: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeArray, "__module__", "fake_cuda")
    monkeypatch.setitem(sys.modules, "fake_cuda", fake_cuda)
    op = te.op(lambda a, b: te.compute(SHAPE, lambda i, j: a[i, j] + 2 * b[i, j], name="sum"), name="added")
    found = op(FakeArray(VALUES), FakeArray(VALUES + 1))
    assert type(found) is FakeArray
    np.testing.assert_array_equal(found.values, 3 * VALUES + 2)
    out = FakeExchanged(np.zeros(SHAPE, "f4"))
    assert op(FakeExchanged(VALUES), FakeExchanged(VALUES), out=out) is out
    np.testing.assert_array_equal(out.values, 3 * VALUES)
    with pytest.raises(ValueError, match=r"'a' \(FakeExchanged\) is not in the CPU's memory \(DLPack device 2\)"):
        op(FakeExchanged(VALUES), FakeExchanged(VALUES, device=1))


def test_work_queued_on_other_streams_is_waited_for(driver: FakeCuda, kern: Any) -> None:
    out = FakeArray(np.zeros(SHAPE, "f4"))
    kern(FakeArray(VALUES, stream=7), FakeArray(VALUES, stream=9), out=out)
    assert driver.launches[0][2] == 7
    assert driver.waited == [9, None]


def refusals() -> dict[str, tuple[Any, type[Exception], str]]:
    there, here, out = FakeArray(VALUES), VALUES, FakeArray(np.zeros(SHAPE, "f4"))
    f8, few = FakeArray(VALUES.astype("f8")), FakeArray(VALUES[:3])
    return {
        "mixed": (((there, here), out), TypeError, "input 'B': ndarray is not in the memory of a GPU"),
        "dtype": (((there, f8), out), TypeError, "input 'B': float32 was expected, found float64"),
        "shape": (((there, few), out), ValueError, "expected|B"),
        "rank": (((there, FakeArray(VALUES[0])), out), ValueError, "input 'B': 2 axes were expected, found 1"),
        "backwards": (((there, FakeArray(VALUES[::-1])), out), ValueError, "input 'B': axis 0 runs backwards"),
        "read-only": (((there, there), FakeArray(VALUES * 1, readonly=True)), ValueError, "the array is read-only"),
        "overlap": (((there, there), FakeArray(VALUES)), te.AliasError, "out= for 'sum': the array may overlap"),
        "small": (((there, there), few), ValueError, r"out= for 'sum': expected shape \(6, 32\), found \(3, 32\)"),
    }


@pytest.mark.parametrize("case", refusals())
def test_refusals(driver: FakeCuda, kern: Any, case: str) -> None:
    ((a, b), out), kind, text = refusals()[case]
    with pytest.raises(kind, match=text):
        kern(a, b, out=out)
    assert not driver.launches


def test_who_cannot_take_them_says_so(driver: FakeCuda, kern: Any) -> None:
    there = FakeArray(VALUES)
    with pytest.raises(ValueError, match=r"'A' is in the memory of a GPU, the kernel is for 'host'.*target='cuda'"):
        te.build([A, B], SUM)(there, there)
    with pytest.raises(TypeError, match="arrays of FakeArray cannot be made here to be written into; give out="):
        kern(there, there)
    with pytest.raises(ValueError, match="mode= take arrays in the CPU's memory"):
        kern(there, there, out=there, mode="add")
    rows = te.placeholder((6,), "int32", name="rows")
    looked_up = te.build([A, rows], te.compute(SHAPE, lambda i, j: A[rows[i], j], name="looked"), target="cuda")
    with pytest.raises(ValueError, match=r"checked on the CPU.*mode='clamp'"):
        looked_up(there, FakeArray(np.zeros(6, "i4")), out=FakeArray(np.zeros(SHAPE, "f4")))


def test_what_no_kernel_computes_is_refused(driver: FakeCuda) -> None:
    sorted_rows = te.extern(np.sort, SHAPE, "float32", [A])
    kernel = te.build(A, te.compute(SHAPE, lambda i, j: sorted_rows[i, j] + 1), target="cuda")
    with pytest.raises(ValueError, match="'sort' cannot be computed on a GPU"):
        kernel(FakeArray(VALUES), out=FakeArray(np.zeros(SHAPE, "f4")))


def sums() -> Any:
    """A kernel with intermediate results."""
    row = te.compute((6,), lambda i: te.sum(lambda k: A[i, k]), name="row")
    return te.build(A, te.compute(SHAPE, lambda i, j: A[i, j] / row[i], name="share"), target="cuda", name="shares")


def test_memory_is_kept_until_it_is_freed(driver: FakeCuda) -> None:
    kernel, out = sums(), FakeArray(np.zeros(SHAPE, "f4"))
    for _ in range(2):
        kernel(FakeArray(VALUES), out=out)
        assert driver.calls["cuMemAlloc"] == 1
    there = len(driver.memory)
    te.free_device_memory()
    assert (driver.calls["cuMemFree"], driver.memory) == (there, {})
    te.free_device_memory()
    assert driver.calls["cuMemFree"] == there
    kernel(FakeArray(VALUES), out=out)
    assert driver.calls["cuMemAlloc"] == 2


def test_streams_that_are_captured_into_a_graph(driver: FakeCuda, kern: Any) -> None:
    """A kernel without intermediate results is a launch and nothing else, once its code is loaded."""
    there, out = (FakeArray(v, stream=7) for v in (VALUES, np.zeros(SHAPE, "f4")))
    kern(there, there, out=out)
    driver.capturing.add(7)
    driver.calls.clear()
    kern(there, there, out=out)
    assert set(driver.calls) == {"cuCtxPushCurrent", "cuCtxPopCurrent", "cuModuleGetFunction", "cuLaunchKernel"}
    kernel = sums()
    other = te.build(A, te.compute(SHAPE, lambda i, j: A[i, j] * 5), target="cuda", name="times five")
    with pytest.raises(RuntimeError, match=r"kernel 'times five': .* loads its code; call it once before the capture"):
        other(there, out=out)
    driver.capturing.clear()
    kernel(there, out=out)
    driver.capturing.add(7)
    allocated = driver.calls["cuMemAlloc"]
    with pytest.raises(RuntimeError, match=r"kernel 'shares': .* intermediate results.* give tensors of PyTorch"):
        kernel(there, out=out)
    assert driver.calls["cuMemAlloc"] == allocated
    driver.capturing.clear()
    kernel(there, out=out)


@pytest.mark.parametrize("is_stepped", [False, True])
def test_a_scan_stays_on_the_gpu(driver: FakeCuda, is_stepped: bool) -> None:
    """What it begins with is nothing, and no access to memory on the CPU; steps that read others are launches."""
    steps = te.scan(
        (3, 32), lambda y, t, i: te.select(t == 0, 0.0, y[t - 1, 31 - i if is_stepped else i]) + A[t, i], axis=0
    )
    kernel = te.build(A, steps, target="cuda")
    out = FakeArray(np.zeros((3, 32), "f4"))
    assert kernel(FakeArray(VALUES), out=out) is out
    launched = [(blocks[0], threads[0]) for blocks, threads, *_ in driver.launches]
    assert launched == [(1, 256)] * (3 if is_stepped else 1)
    assert not driver.calls["cuMemcpyHtoD"] + driver.calls["cuMemcpyDtoH"]
