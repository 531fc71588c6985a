"""Kernels as their users call them: arrays of any layout, outputs given, modes, sizes, errors, threads, statistics."""

from __future__ import annotations

import gc
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tedsl as te
from tedsl.backend.compiling.single_kernel import SingleKernel
from tests.arrays import floats


@pytest.fixture(scope="module")
def scaled() -> te.Kernel:  # type: ignore[name-defined]
    """C[i, j] = 2 * A[i, j] + B[j] over symbolic sizes."""
    n, m = te.var("n"), te.var("m")
    A, B = te.placeholder((n, m), name="A"), te.placeholder((m,), name="B")
    return te.build([A, B], te.compute((n, m), lambda i, j: 2 * A[i, j] + B[j], name="C"))


def expected(a: Any, b: Any) -> Any:
    return 2 * a + b


LAYOUTS = {
    "c": lambda: floats(6, 21),
    "fortran": lambda: np.asfortranarray(floats(6, 21)),
    "sliced": lambda: floats(13, 50)[1::2, 3:45:2],
    "negative": lambda: floats(6, 21)[::-1, ::-1],
    "transposed": lambda: floats(21, 6).T,
    "broadcast": lambda: np.broadcast_to(floats(21), (6, 21)),
    "row": lambda: floats(1, 21),
    "column": lambda: floats(6, 1),
    "offset": lambda: floats(7, 22)[1:, 1:],
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_inputs_of_any_layout(scaled: Any, layout: str) -> None:
    a = LAYOUTS[layout]()
    a.flags.writeable = False
    b = floats(2 * a.shape[1])[::2]
    for _ in range(2):  # the second call finds the prepared one
        np.testing.assert_array_equal(scaled(a, b), expected(a, b))
    assert scaled.stats.copies == []


@pytest.mark.parametrize("layout", [name for name in LAYOUTS if name != "broadcast"])
def test_outputs_of_any_layout(scaled: Any, layout: str) -> None:
    out = LAYOUTS[layout]()
    a, b = floats(*out.shape), floats(out.shape[1])
    for _ in range(2):
        out[...] = 0
        assert scaled(a, b, out=out) is out
        np.testing.assert_array_equal(out, expected(a, b))
    assert scaled.stats.copies == []


def test_strides_that_no_kernel_can_hold_are_copied_and_counted(scaled: Any) -> None:
    records = np.zeros(12, dtype=[("x", "f4"), ("y", "u1")])
    records["x"] = floats(12)
    a = records["x"].reshape(4, 3)
    b = floats(3)
    np.testing.assert_array_equal(scaled(a, b), expected(a, b))
    assert [name for name, _ in scaled.stats.copies] == ["A"]
    out = np.zeros(12, dtype=[("x", "f4"), ("y", "u1")])["x"].reshape(4, 3)
    scaled(floats(4, 3), b, out=out)
    assert [name for name, _ in scaled.stats.copies] == ["C"]


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0, 0)])
def test_empty_arrays(scaled: Any, shape: tuple[int, int]) -> None:
    assert scaled(floats(*shape), floats(shape[1])).shape == shape


def test_an_empty_input_of_a_result_that_is_not_empty() -> None:
    n = te.var("n")
    A = te.placeholder((n,), name="A")
    k = te.reduce_axis(n)
    P = te.compute((n + 2,), lambda i: A.at(i - 1, mode="zero"))
    S = te.compute((3,), lambda i: te.sum(A[k], axis=k))
    padded, total = te.build([A], [P, S])(floats(0))
    np.testing.assert_array_equal(padded, [0, 0])
    np.testing.assert_array_equal(total, [0, 0, 0])


@pytest.mark.parametrize("mode", ["error", "clamp", "reflect", "wrap"])
def test_a_read_of_what_is_always_empty_is_refused_at_build(mode: str) -> None:
    empty = te.placeholder((0,), name="empty")
    with pytest.raises(IndexError, match=r"dimension 0 of empty : float32\[0\] is out of bounds"):
        te.build([empty], te.compute((5,), lambda i: empty.at(i - 2, mode=mode)))
    te.build([empty], te.compute((5,), lambda i: te.select(i > 7, empty.at(i, mode=mode), 0.0)))


def test_programs_without_inputs_need_no_feeds() -> None:
    np.testing.assert_array_equal(te.evaluate(te.arange(3)), np.arange(3, dtype="int32"))
    np.testing.assert_array_equal(te.interpret(te.arange(3)), np.arange(3, dtype="int32"))


def test_rank_zero_and_python_scalars() -> None:
    x, y = te.placeholder((), name="x"), te.placeholder((), "int64", name="y")
    kern = te.build([x, y], [te.compute((), lambda: x[()] + 1), te.compute((), lambda: y[()] * 2)])
    for given in ((2.5, 3), (np.float32(2.5), np.int64(3)), (np.array(2.5, "f4"), np.array(3))):
        p, q = kern(*given)
        assert p.shape == ()
        assert p == 3.5
        assert q == 6
        assert q.dtype == np.int64


class Foreign:
    """An array of another library."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = array


class WithArray(Foreign):
    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray[Any, Any]:
        return self.array


class WithInterface(Foreign):
    @property
    def __array_interface__(self) -> Any:
        return self.array.__array_interface__


class WithDlpack(Foreign):
    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


@pytest.mark.parametrize("wrap", [WithArray, WithInterface, WithDlpack])
def test_arrays_of_other_libraries(scaled: Any, wrap: Any) -> None:
    a, b = floats(3, 4), floats(4)
    np.testing.assert_array_equal(scaled(wrap(a), wrap(b)), expected(a, b))


def test_modes() -> None:
    A = te.placeholder((8,), name="A")
    u, v = te.compute((8,), lambda i: (A[i] + 1, A[i] * 2), name=("u", "v"))
    kern = te.build([A], [u, v])
    a, p, q = floats(8), np.ones(8, "f4"), np.ones(8, "f4")
    r, s = kern(a, out=[p, q], mode="add")
    assert r is p
    assert s is q
    np.testing.assert_allclose(p, a + 2, rtol=1e-6)
    np.testing.assert_allclose(q, 1 + 2 * a, rtol=1e-6)
    (written,) = kern(a, out={"v": q}, mode={"u": "null"})
    assert written is q
    np.testing.assert_array_equal(q, 2 * a)
    u_only = kern(a, out={"u": p}, mode={"u": "write"})
    assert u_only[0] is p
    np.testing.assert_array_equal(p, a + 1)
    np.testing.assert_array_equal(u_only[1], 2 * a)


@pytest.mark.parametrize("op", ["sum", "max"])
def test_add_to_a_reduction_adds_its_result(op: str) -> None:
    A = te.placeholder((4, 9), name="A")
    k = te.reduce_axis(9)
    R = te.compute((4,), lambda i: getattr(te, op)(A[i, k], axis=k), name="R")
    out, a = np.full(4, 100, "f4"), floats(4, 9)
    te.build(A, R)(a, out=out, mode="add")
    np.testing.assert_allclose(out, 100 + getattr(a, op)(axis=1), rtol=1e-6)


def test_outputs_that_are_inputs_or_listed_twice() -> None:
    A = te.placeholder((5,), name="A")
    B = te.compute((5,), lambda i: A[i] + 1, name="B")
    a = floats(5)
    x, y, z = te.build([A], [A, B, B])(a)
    np.testing.assert_array_equal(x, a)
    np.testing.assert_array_equal(y, a + 1)
    np.testing.assert_array_equal(z, a + 1)
    assert not np.shares_memory(x, a)
    assert not np.shares_memory(y, z)


def test_inputs_that_no_output_reads() -> None:
    A, B = te.placeholder((5,), name="A"), te.placeholder((te.var("m"),), name="B")
    a = floats(5)
    np.testing.assert_array_equal(te.build([A, B], te.compute((5,), lambda i: A[i]))(a, floats(3)), a)
    np.testing.assert_array_equal(te.evaluate(te.compute((5,), lambda i: A[i] + 1), {A: a, B: floats(2)}), a + 1)


def test_sizes_that_no_input_carries() -> None:
    n = te.var("n")
    T = te.compute((n,), lambda i: i * i)
    kern = te.build([], T)
    np.testing.assert_array_equal(kern(sizes={n: 4}), [0, 1, 4, 9])
    np.testing.assert_array_equal(kern(sizes={n: 2}), [0, 1])
    with pytest.raises(ValueError, match=r"the size 'n'.*pass sizes="):
        kern()


def test_an_output_over_an_input_is_right() -> None:
    A = te.placeholder((64,), name="A")
    B = te.compute((64,), lambda i: A[63 - i] + 1, name="B")
    kern = te.build([A], B)
    a = floats(64)
    want = a[::-1] + 1
    assert kern(a, out=a) is a
    np.testing.assert_array_equal(a, want)
    assert kern.stats.copies
    assert kern.stats.copies[0][0] == "B"
    a, shifted = floats(80), None
    want = a[:64][::-1] + 1
    shifted = kern(a[:64], out=a[5:69])
    np.testing.assert_array_equal(shifted, want)


# Bad input


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ((floats(3, 4),), TypeError, "expected 2 arrays (A, B), found 1"),
        ((floats(3, 4), floats(4), floats(1)), TypeError, "expected 2 arrays (A, B), found 3"),
        ((floats(3, 4), floats(5)), ValueError, "'B'"),
        ((floats(3), floats(4)), ValueError, "expected 2 dimensions"),
        ((floats(3, 4).astype("f8"), floats(4)), TypeError, "expected dtype float32, found float64"),
        (([[1.0]], floats(4)), ValueError, "'B'"),
        ((None, floats(4)), TypeError, "found NoneType"),
        ((floats(3, 4), np.array(["a"] * 4)), TypeError, "'B'"),
        ((floats(3, 4).astype(">f8"), floats(4)), TypeError, "expected dtype float32, found >f8"),
        ((np.ma.masked_less(floats(3, 4), 0), floats(4)), TypeError, "a mask would be lost; give x.filled(value)"),
    ],
)
def test_bad_inputs(scaled: Any, arguments: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error) as caught:
        scaled(*arguments)
    assert words in str(caught.value)
    a, b = floats(2, 3), floats(3)
    np.testing.assert_array_equal(scaled(a, b), expected(a, b))


def read_only(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"out": floats(4, 3)}, ValueError, "out= for 'C': expected shape (3, 4), found (4, 3)"),
        ({"out": np.zeros((3, 4))}, TypeError, "expected dtype float32, found float64"),
        ({"out": read_only(floats(3, 4))}, ValueError, "read-only"),
        ({"out": np.lib.stride_tricks.as_strided(floats(4), (3, 4), (0, 4))}, ValueError, "share memory"),
        ({"out": [floats(3, 4)] * 2}, ValueError, "out= must hold 1 array (C), found 2"),
        ({"out": [[0.0] * 4] * 3}, ValueError, "out= must hold 1"),
        ({"out": 3.0}, TypeError, "expected a NumPy array"),
        ({"out": {"D": floats(3, 4)}}, ValueError, "names 'D'; the outputs are C"),
        ({"mode": "append"}, ValueError, "expected one of write, add, null, found 'append'"),
        ({"mode": {"D": "add"}}, ValueError, "names 'D'"),
        ({"mode": "add"}, ValueError, "needs out="),
    ],
)
def test_bad_options(scaled: Any, options: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error) as caught:
        scaled(floats(3, 4), floats(4), **options)
    assert words in str(caught.value)


def test_outputs_are_named_by_themselves_too() -> None:
    A = te.placeholder((4,), name="A")
    twice = te.compute((4,), lambda i: A[i] * 2, name="T")
    thrice = te.compute((4,), lambda i: A[i] * 3, name="T")
    kern = te.build(A, [twice, thrice])
    a, out = floats(4), np.ones(4, "float32")
    found = kern(a, out={thrice: out}, mode={thrice: "add"})
    assert found[1] is out
    np.testing.assert_array_equal(found[0], a * 2)
    np.testing.assert_allclose(out, a * 3 + 1, rtol=1e-6)
    with pytest.raises(ValueError, match="out= names 'T', but 2 outputs are called that; give the tensors as keys"):
        kern(a, out={"T": out})
    single = te.build(A, twice)
    with pytest.raises(ValueError, match="mode= names 'A'; the outputs are T"):
        single(a, out=out, mode={A: "add"})
    with pytest.raises(ValueError, match="out= names output 'T' twice"):
        single(a, out={"T": out, twice: out})


def test_outputs_that_overlap_are_refused() -> None:
    A = te.placeholder((8,), name="A")
    u, v = te.compute((8,), lambda i: (A[i] + 1, A[i] * 2), name=("u", "v"))
    memory = np.zeros(12, "f4")
    with pytest.raises(te.AliasError, match="'u' and 'v' overlap"):
        te.build([A], [u, v])(floats(8), out=[memory[:8], memory[4:]])


def test_bad_builds() -> None:
    A, B = te.placeholder((8,), name="A"), te.placeholder((8,), name="B")
    C = te.compute((8,), lambda i: A[i] + B[i], name="C")
    for arguments, error, words in [
        (([A], C), ValueError, "placeholder 'B'"),
        (([A, B, A], C), ValueError, "listed twice"),
        (([A, 3], C), TypeError, "inputs are tensors, found int"),
        (([A, B], C[te.reduce_axis(8)] + 1), TypeError, "outputs are tensors"),
        (([A, B], []), ValueError, "outputs is empty"),
        (([A, B], C, None, "tpu"), ValueError, "target: 'tpu'"),
        (([A, B], C, "fastest"), te.ScheduleError, "no scheduler 'fastest'"),
        (([A, B], C, 3), TypeError, "schedule must be"),
        (([A, B], C, None, "host", None, None, None, True, 3), TypeError, "te.build: name is a string, found int"),
    ]:
        with pytest.raises(error) as caught:
            te.build(*arguments)  # type: ignore[arg-type]
        assert words in str(caught.value), str(caught.value)


def test_data_dependent_index_out_of_range_writes_nothing() -> None:
    n = te.var("n")
    A, index = te.placeholder((n, 8), name="A"), te.placeholder((37,), "int64", name="index")
    kern = te.build([A, index], te.compute((37, 8), lambda i, j: A[index[i], j], name="G"))
    a, rows = floats(5, 8), np.arange(37) % 5
    out = np.full((37, 8), 7, "f4")
    for wrong in (5, -1, 2**40, -(2**62)):
        bad = rows.copy()
        bad[36] = wrong
        for _ in range(2):
            where = rf"compute 'G' at .*test_kernel.py.*index `index\[i\]` of dimension 0 of A.*it is {wrong} at i = 36"
            with pytest.raises(IndexError, match=where):
                kern(a, bad, out=out)
        assert (out == 7).all()
    np.testing.assert_array_equal(kern(a, rows, out=out), a[rows])


def test_scatter_out_of_range_raises_and_guarded_points_do_not_count() -> None:
    index = te.placeholder((9,), "int32", name="index")
    k = te.reduce_axis(9, "k")
    plain = te.build(index, te.scatter((4,), [k], (index[k],), te.cast(k, "int32"), name="W"))
    guarded = te.build(index, te.scatter((4,), [k], (index[k],), te.cast(k, "int32"), where=index[k] < 4, name="W"))
    rows = np.array([0, 1, 2, 3, 9, 0, 1, 2, 3], "i4")
    with pytest.raises(IndexError, match=r"scatter 'W'.*it is 9"):
        plain(rows)
    np.testing.assert_array_equal(guarded(rows), [5, 7, 9, 11])


def test_wide_tensors_of_checked_outputs_wait_for_the_check() -> None:
    """An output that the check itself reads is not written before the check holds."""
    A, index = te.placeholder((5,), name="A"), te.placeholder((6,), "int32", name="index")
    twice = te.compute((6,), lambda i: index[i] * 2, name="twice")
    kern = te.build([A, index], [twice, te.compute((6,), lambda i: A[twice[i]], name="G")])
    out = [np.full(6, -7, "i4"), np.full(6, -7, "f4")]
    with pytest.raises(IndexError):
        kern(floats(5), np.arange(6, dtype="i4"), out=out)
    assert (out[0] == -7).all()
    assert (out[1] == -7).all()


def test_division_by_zero_gives_zero_and_lives() -> None:
    A, B = te.placeholder((4,), "int32", name="A"), te.placeholder((4,), "int32", name="B")
    kern = te.build([A, B], [te.compute((4,), lambda i: A[i] // B[i]), te.compute((4,), lambda i: A[i] % B[i])])
    quotient, rest = kern(np.array([7, -7, 7, 7], "i4"), np.array([2, 2, 0, -2], "i4"))
    np.testing.assert_array_equal(quotient, [3, -4, 0, -4])
    np.testing.assert_array_equal(rest, [1, 1, 0, -1])


# What a kernel tells, and how it is kept


def test_texts() -> None:
    A = te.placeholder((64, 64), name="picture")
    kern = te.build([A], te.compute((64, 64), lambda i, j: te.exp(A[i, j]), name="bright"), name="filter")
    assert "picture" in kern.source("stmt")
    assert "bright" in kern.source("stmt")
    assert any(name in kern.source("asm") for name in ("mul", "fmadd", "fmla"))
    assert "bright" in kern.loop_nest()
    assert repr(kern).startswith("Kernel 'filter' for host: (picture : float32[64, 64]) -> (bright")
    with pytest.raises(ValueError, match="no code for a GPU"):
        kern.source("ptx")
    with pytest.raises(ValueError, match="'c'"):
        kern.source("c")


def program(shift: float, label: str = "C") -> Any:
    n = te.var("n")
    A = te.placeholder((n,), name="A")
    return n, A, te.compute((n,), lambda i: te.sqrt(A[i]) + shift, name=label)


def test_a_program_built_twice_compiles_once() -> None:
    a = np.abs(floats(9))
    n, A, first = program(0.12345)
    kern = te.build([A], first)
    kern(a)
    spent = kern.stats.compile_ms
    assert spent > 0
    m, B, second = program(0.12345)
    again = te.build([B], second)
    np.testing.assert_array_equal(again(a), kern(a))
    assert again.stats.compile_ms == spent
    assert again.inputs == (B,)
    assert again.outputs[0] is second
    np.testing.assert_array_equal(again(a, sizes={m: 9}), kern(a))
    _, D, other = program(0.54321)
    assert not np.array_equal(te.build([D], other)(a), kern(a))


def test_an_error_names_the_line_of_its_own_program() -> None:
    """Also where the kernel was compiled for a program just like it."""
    messages = []
    A, index = te.placeholder((5,), name="A"), te.placeholder((3,), "int32", name="index")
    first = te.compute((3,), lambda i: A[index[i]], name="G")
    second = te.compute((3,), lambda i: A[index[i]], name="G")
    for tensor in (first, second):
        with pytest.raises(IndexError) as caught:
            te.build([A, index], tensor)(floats(5), np.array([0, 9, 0], "i4"))
        messages.append(str(caught.value))
        assert tensor.op.where in messages[-1]
    assert messages[0] != messages[1]


def test_statistics() -> None:
    A = te.placeholder((1000,), name="A")
    k = te.reduce_axis(1000)
    total = te.compute((), lambda: te.sum(A[k], axis=k), name="total")
    kern = te.build([A], te.compute((1000,), lambda i: A[i] / total[()], name="B"))
    kern(floats(1000))
    stats = kern.stats
    assert stats.bytes == 8000
    assert stats.temporaries >= 1
    assert stats.peak_bytes >= 8004
    assert stats.copies == []


def test_python_functions_between_kernels() -> None:
    calls: list[tuple[int, ...]] = []

    def ranked(x: Any) -> Any:
        calls.append(x.shape)
        assert not x.flags.writeable
        return np.argsort(x).astype(np.int32)

    n = te.var("n")
    A = te.placeholder((n,), name="A")
    doubled = te.compute((n,), lambda i: A[i] * -2)
    order = te.extern(ranked, (n,), "int32", [doubled])
    kern = te.build([A], [te.compute((n,), lambda i: A[order[i]]), order])
    a = floats(11)
    for repeat in range(1, 3):
        values, ranks = kern(a)
        np.testing.assert_array_equal(values, np.sort(a)[::-1])
        np.testing.assert_array_equal(ranks, np.argsort(-a))
        assert len(calls) == repeat
    wrong = te.extern(lambda x: x[:-1], (n,), "float32", [A])
    with pytest.raises(ValueError, match=r"extern .*expected shape \(11,\), found \(10,\)"):
        te.evaluate(wrong, {A: a})


def test_threads_share_a_kernel() -> None:
    n = te.var("n")
    A = te.placeholder((n,), name="A")
    kern = te.build([A], te.compute((n,), lambda i: te.tanh(A[i])))
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        generator = np.random.default_rng(seed)
        try:
            for _ in range(100):
                a = generator.standard_normal(generator.integers(1, 50)).astype(np.float32)
                np.testing.assert_allclose(kern(a), np.tanh(a), rtol=1e-5)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_long_calls_release_the_interpreter() -> None:
    A = te.placeholder((1 << 20,), name="A")

    def slow(i: Any) -> Any:
        value = A[i]
        for _ in range(12):
            value = te.sin(te.exp(-value * value))
        return value

    kern = te.build([A], te.compute((1 << 20,), slow))
    a = floats(1 << 20)
    kern(a)
    ticks, done = [0], threading.Event()

    def tick() -> None:
        while not done.is_set():
            ticks[0] += 1
            time.sleep(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    before = ticks[0]
    for _ in range(3):
        kern(a)
    during = ticks[0] - before
    done.set()
    thread.join()
    assert during >= 5


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="interrupts by a timer exist on POSIX alone")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of a weak reference's callback
def test_an_interrupt_while_compiling_leaves_a_kernel_usable() -> None:
    A = te.placeholder((64, 64), name="A")

    def slow(rows: int) -> te.Tensor:
        def body(i: Any, j: Any) -> Any:
            value = A[i, j]
            for _ in range(6):
                value = te.tanh(te.exp(-value * value))
            return value

        return te.compute((rows, 64), body)

    def interrupted(rows: int, delay: float) -> bool:
        """Python drops an interrupt that comes while a callback runs: the program is another one each time."""
        try:
            signal.setitimer(signal.ITIMER_REAL, delay)
            te.build([A], slow(rows))
        except KeyboardInterrupt:
            return True
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        return False

    a, before = floats(64, 64), signal.signal(signal.SIGALRM, signal.default_int_handler)
    gc.disable()  # what hypothesis does when the collector runs would swallow the interrupt
    try:
        interrupts = [interrupted(rows, delay) for rows, delay in enumerate((0.002, 0.005, 0.01, 0.02, 0.04), 60)]
    finally:
        gc.enable()
        signal.signal(signal.SIGALRM, before)
    assert any(interrupts)
    for T in map(slow, range(60, 65)):
        np.testing.assert_allclose(te.build([A], T)(a), te.interpret(T, {A: a}), rtol=1e-4)


def test_building_many_programs_does_not_grow_memory() -> None:
    def build(factor: float) -> None:
        _, A, C = program(factor)
        te.build([A], C)(np.ones(5, "f4"))

    def resident() -> int:
        pages = Path("/proc/self/statm").read_text().split()[1]
        return int(pages) * 4096

    if not Path("/proc/self/statm").exists():
        pytest.skip("the resident memory is read from /proc")
    for k in range(40):
        build(k + 0.5)
    gc.collect()
    before = resident()
    for k in range(40, 60):
        build(k + 0.5)
    gc.collect()
    assert resident() - before < 4 << 20


def test_what_does_not_depend_on_an_empty_tensor_is_compiled() -> None:
    n = te.var("n")
    A, B = te.placeholder((n,), name="A"), te.placeholder((8, 4), name="B")
    total = te.compute((), lambda: te.sum(lambda i: A[i]), name="total")
    grown = te.compute((8, 4), lambda i, j: B[i, j] * 2, name="grown")
    shifted = te.compute((8,), lambda i: te.sum(lambda j: grown[i, j]) + total[()], name="shifted")
    kernel = te.build([A, B], [shifted, grown, total])
    b = np.arange(32, dtype=np.float32).reshape(8, 4)
    for a in (np.ones(3, np.float32), np.ones(0, np.float32)):
        for found, want in zip(kernel(a, b), te.interpret([shifted, grown, total], {A: a, B: b}), strict=True):
            np.testing.assert_array_equal(found, want)
    (compiled,) = kernel.core._around_empty.values()
    assert [t.name for t in compiled.program.outputs] == ["grown", "shifted_sum"]
    buffer = np.ones(8, np.float32)
    kernel(
        np.ones(0, np.float32), b, out={"shifted": buffer}, mode={"shifted": "add", "grown": "null", "total": "null"}
    )
    np.testing.assert_array_equal(buffer, 2 * b.sum(axis=1) + 1)


def test_an_index_that_reduces_over_a_scan_is_checked() -> None:
    table = te.placeholder((6,), "int32", name="table")

    def step(y: Any, t: Any, i: Any) -> Any:
        return te.select(t == 0, i, table[te.max(lambda k: y[t - 1, k])])

    chain = te.scan((5, 3), step, axis=0, dtype="int32")
    fine, wrong = (np.array(v, np.int32) for v in ([1, 2, 3, 4, 5, 0], [1, 2, 6, 6, 6, 6]))
    np.testing.assert_array_equal(te.evaluate(chain, {table: fine}), te.interpret(chain, {table: fine}))
    with pytest.raises(IndexError, match="it is 6 at t = 2"):
        te.evaluate(chain, {table: wrong})


def test_an_unscheduled_update_says_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    A = te.placeholder((40,), name="A")
    k = te.reduce_axis(40, name="k")
    te.build([A], te.scatter((40,), axes=[k], index=(k,), value=A[k], name="kept"))
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_an_axis_as_a_narrow_float_says_nothing(dtype: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Halide prints a warning for each conversion that it emulates, where Python prints."""
    x = te.placeholder((4,), dtype, name="x")
    k, m = te.reduce_axis(5, "k"), te.reduce_axis(7, "m")
    differs = te.any(m != 1, axis=(k, m), where=x[m % 4] != te.cast(k, dtype))
    te.build([x], te.compute((4,), lambda i: differs)).source("stmt")
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("kind", ["uint8", "int16", "bfloat16"])
@pytest.mark.parametrize("source", ["int32", "float32"])
def test_nothing_is_written_behind_the_last_element(kind: str, source: str) -> None:
    """LLVM 22 stored four bytes for the one element that full vectors leave of a row of 17."""
    A = te.placeholder((5, 3), source, name="A")
    k = te.reduce_axis(5, name="k")
    feeds = {A: np.arange(15).reshape(5, 3).astype(source)}
    for output in (
        te.compute((3, 17), lambda i, j: te.cast(A[j % 5, i], kind), name="narrow"),
        te.compute((3, 17), lambda i, j: te.min(te.cast(A[k, 2], kind), axis=k), name="least"),
    ):
        room = np.full(3 * 17 + 64, 77, output.dtype.numpy)
        written = room[32:-32].reshape(3, 17)
        te.build([A], output)(*feeds.values(), out=written)
        np.testing.assert_array_equal(written, te.interpret(output, feeds))
        assert (room[:32] == 77).all()
        assert (room[-32:] == 77).all()


@pytest.mark.parametrize("shape", [(1, 1), (3, 9), (9, 63), (65, 64), (2, 130), (300, 2)])
def test_sums_that_are_too_short_for_blocks_are_compiled_as_well(shape: tuple[int, int], monkeypatch: Any) -> None:
    """Of sizes that are not known, blocks and what is left over are sums of their own; there may be no block."""
    monkeypatch.setattr(SingleKernel, "_run_around_empty", None)
    x = te.placeholder((te.var("n"), te.var("m")), name="x")
    soft, scale = te.ops.softmax(x), te.sqrt((x * x).sum())
    outputs = [soft, scale, x.max(1), x.sum(0), *te.differentiate(te.sum(soft * soft) + scale, [x])]
    array = np.random.default_rng(0).normal(size=shape).astype("float32")
    for found, want in zip(te.build([x], outputs)(array), te.interpret(outputs, {x: array}), strict=True):
        np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-6)


def test_a_loop_of_no_steps_over_inputs_that_are_not_empty() -> None:
    p, q = te.var("p"), te.var("q")
    A = te.placeholder((19, 19), "int8", name="A")
    k = te.reduce_axis(p, "k")
    written = te.scatter(
        (q,),
        [k],
        (0,),
        te.select(A[k, k] != A[(3 * k - k) % 19, k], te.cast(k, "uint16"), te.const(1, "uint16")),
        op="mul",
    )
    total = te.compute((3,), lambda i: te.sum(te.cast(A.at(te.minimum(k, 18), i), "int32"), axis=k))
    values = np.arange(361).reshape(19, 19).astype("int8")
    kern = te.build([A], [written, total])
    for steps in (0, 1, 4, 0):
        sizes = {p: steps, q: 2}
        for found, wanted in zip(
            kern(values, sizes=sizes), te.interpret([written, total], {A: values}, sizes), strict=True
        ):
            np.testing.assert_array_equal(found, wanted)


def test_large_results_begin_with_a_line_of_the_cache() -> None:
    x = te.placeholder((300, 100), "float32", name="x")
    kern = te.build([x], [x + 1, x.sum(axis=0)])
    values = np.ones((300, 100), np.float32)
    for _ in range(2):  # a prepared call, too
        large, small = kern(values)
        assert large.ctypes.data % 64 == 0
        assert large.flags.c_contiguous
        assert large.flags.writeable
        assert small.base is None
