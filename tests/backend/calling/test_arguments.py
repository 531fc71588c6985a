"""Arrays of every kind as inputs, as out= and as inputs that are written into; copies of kernels; what is refused."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tedsl as te
from tedsl.backend.calling.kernel import Kernel

A = np.arange(1, 5, dtype="f4")
X = te.placeholder((4,), name="X")
Y = te.compute((4,), lambda i: X[i] * 2, name="Y")
S = te.placeholder((), name="S")
OTHERS = ["O", "S4", "U3", "M8[s]", "m8[s]", "complex64", "longdouble", "V4", [("x", "f4")], "f8", "i4"]
SAFE = [">f4", "f2", ">f2", "i2", "u1", "?"]  # of float32


class Plain(np.ndarray[Any, Any]):
    """A subclass that adds nothing."""


class Given:
    """Another library's array: NumPy sees its memory, or copies of it."""

    def __init__(self, array: Any, copies: bool = False) -> None:
        self.array, self.copies = array, copies

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.array.copy() if self.copies else self.array


def kernel(**options: Any) -> Kernel:
    return te.build([X], Y, **options)


@te.op
def doubled(x: Any) -> Any:
    return te.compute(x.shape, lambda i: x[i] * 2, name="doubled")


def mapped(path: Path, mode: str) -> Any:
    A.tofile(path)
    return np.memmap(path, "f4", mode, shape=(4,))


def read_only(array: Any) -> Any:
    array.flags.writeable = False
    return array


def field(array: Any) -> Any:
    """The same numbers in every other place."""
    both = np.zeros(4, [("x", "f4"), ("y", "f4")])
    both["y"] = array
    return both["y"]


def unaligned(array: Any) -> Any:
    found = np.zeros(17, np.uint8)[1:].view("f4")
    found[:] = array
    return found


KINDS: dict[str, Callable[[Path], Any]] = {
    "plain": lambda path: A.copy(),
    "subclass": lambda path: A.copy().view(Plain),
    "memmap": lambda path: mapped(path, "r+"),
    "field": lambda path: field(A),
    "backwards": lambda path: A[::-1].copy()[::-1],
    "strided": lambda path: np.repeat(A, 2)[::2],
    "unaligned": lambda path: unaligned(A),
    "of another library": lambda path: Given(A.copy()),
    "record": lambda path: np.rec.array([(x, 0) for x in A], dtype=[("x", "f4"), ("y", "i1")]).x,
}  # fmt: skip
READ_ONLY: dict[str, Callable[[Path], Any]] = {
    "read-only": lambda path: read_only(A.copy()),
    "read-only memmap": lambda path: mapped(path, "r"),
    "broadcast": lambda path: np.broadcast_to(np.float32(3), (4,)),
    "of bytes": lambda path: np.frombuffer(A.tobytes(), "f4"),
}


@pytest.mark.parametrize("kind", {**KINDS, **READ_ONLY})
def test_every_kind_of_array_is_read(kind: str, tmp_path: Path) -> None:
    given = {**KINDS, **READ_ONLY}[kind](tmp_path / "file")
    want = 2 * np.asarray(given)
    runs: list[Callable[[], Any]] = [
        lambda: kernel()(given), lambda: te.evaluate(Y, {X: given}), lambda: te.interpret(Y, {X: given}),
    ]  # fmt: skip
    if isinstance(given, np.ndarray):
        runs.append(lambda: doubled(given))
    for run in runs:
        for _ in range(2):  # prepared, and again
            found = run()
            assert type(found) is np.ndarray
            np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", ["write", "add"])
def test_every_kind_of_array_is_written(kind: str, mode: str, tmp_path: Path) -> None:
    kern = kernel()
    for _ in range(2):
        out = KINDS[kind](tmp_path / "file")
        assert kern(A, out=out, mode=mode) is out
        np.testing.assert_array_equal(np.asarray(out), 3 * A if mode == "add" else 2 * A)


@pytest.mark.parametrize("kind", KINDS)
def test_an_input_of_every_kind_is_written_into(kind: str, tmp_path: Path) -> None:
    kern = kernel(alias={Y: X})
    for _ in range(2):
        given = KINDS[kind](tmp_path / "file")
        assert kern(given) is given
        np.testing.assert_array_equal(np.asarray(given), 2 * A)


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
def test_a_matrix_stays_one() -> None:
    M = te.placeholder((2, 2), name="M")
    kern = te.build([M], te.compute((2, 2), lambda i, j: M[i, j] * 2, name="N"))
    given = np.asmatrix(A.reshape(2, 2))
    assert type(kern(given)) is np.ndarray
    np.testing.assert_array_equal(kern(given), 2 * A.reshape(2, 2))
    out = np.asmatrix(np.zeros((2, 2), "f4"))
    assert kern(A.reshape(2, 2), out=out) is out
    np.testing.assert_array_equal(out, 2 * A.reshape(2, 2))


WRITERS: dict[str, Callable[[Any], Any]] = {
    "out": lambda value: kernel()(A, out=value), "add": lambda value: kernel()(A, out=value, mode="add"),
    "alias": lambda value: kernel(alias={Y: X})(value), "op": lambda value: doubled(A, out=value),
}  # fmt: skip
PLACES = {
    "out": "out= for 'Y'", "add": "out= for 'Y'", "op": "out= for 'doubled'",
    "alias": "input 'X', into which 'Y' is written",
}  # fmt: skip


@pytest.mark.parametrize("how", WRITERS)
@pytest.mark.parametrize("kind", READ_ONLY)
def test_what_is_read_only_is_not_written_and_named_rightly(how: str, kind: str, tmp_path: Path) -> None:
    given = READ_ONLY[kind](tmp_path / "file")
    before = given.copy()
    with pytest.raises(ValueError, match="read-only") as caught:
        WRITERS[how](given)
    assert PLACES[how] in str(caught.value)
    np.testing.assert_array_equal(given, before)


@pytest.mark.parametrize("how", WRITERS)
def test_copies_are_not_written_in_the_place_of_an_array(how: str) -> None:
    """The result would be lost without a word."""
    given = Given(A.copy(), copies=True)
    with pytest.raises(TypeError, match=r"gives NumPy copies of its elements|expected a") as caught:
        WRITERS[how](given)
    assert PLACES[how] in str(caught.value) or how == "op"
    np.testing.assert_array_equal(given.array, A)


@pytest.mark.parametrize("number", [3.0, 3, np.float32(3)])
def test_a_number_is_not_written_into(number: Any) -> None:
    C = te.compute((), lambda: S[()] * 2, name="C")
    kern = te.build([S], C, alias={C: S})
    with pytest.raises(
        TypeError, match=r"input 'S', into which 'C' is written: expected an array .*np.array\(x, dtype"
    ):
        kern(number)
    given = np.array(number, "f4")
    assert kern(given) is given
    assert given == 6
    assert te.build([S], C)(number) == 6


@pytest.mark.parametrize("how", [*WRITERS, "input", "evaluate", "interpret", "op argument", "may_alias"])
def test_a_mask_is_not_lost(how: str) -> None:
    readers: dict[str, Callable[[Any], Any]] = {
        "input": kernel(), "evaluate": lambda v: te.evaluate(Y, {X: v}), "interpret": lambda v: te.interpret(Y, {X: v}),
        "op argument": doubled, "may_alias": lambda v: te.may_alias(v, A),
    }  # fmt: skip
    given = np.ma.array(A.copy(), mask=[1, 0, 0, 0])
    with pytest.raises(TypeError, match=r"a mask would be lost; give x.filled\(value\) or x.data of the masked array"):
        {**WRITERS, **readers}[how](given)
    np.testing.assert_array_equal(given.data, A)
    with pytest.raises(TypeError, match="a mask would be lost"):
        te.build([S], te.compute((), lambda: S[()] * 2))(np.ma.masked)
    with pytest.raises(TypeError, match="expected a number, found MaskedConstant"):
        te.const(np.ma.masked)


@pytest.mark.parametrize(
    ("how", "dtype"),
    [(how, dtype) for how in ("input", "evaluate", "interpret") for dtype in OTHERS]
    + [(how, dtype) for how in ("out", "alias", "op out") for dtype in (*OTHERS, *SAFE)],
    ids=str,
)
def test_elements_of_other_types_are_refused(how: str, dtype: Any) -> None:
    given = np.zeros(4, dtype)
    runs: dict[str, Callable[[], Any]] = {
        "input": lambda: kernel()(given), "out": lambda: kernel()(A, out=given),
        "alias": lambda: kernel(alias={Y: X})(given), "evaluate": lambda: te.evaluate(Y, {X: given}),
        "interpret": lambda: te.interpret(Y, {X: given}), "op out": lambda: doubled(A, out=given),
    }  # fmt: skip
    told = r"x\.astype" if np.dtype(dtype).kind in "fiub" else r"(x\.astype|give numbers|give its parts apart)"
    with pytest.raises(TypeError, match=rf"expected (dtype float32|the byte order of this machine), found .*{told}"):
        runs[how]()


def test_a_kernel_is_copied_as_a_function_is() -> None:
    kern = kernel()
    assert copy.copy(kern) is copy.deepcopy(kern) is kern
    assert copy.deepcopy({"k": [kern]})["k"][0] is kern
    report = copy.deepcopy(kern.program)
    assert repr(report) == repr(kern.program)


def test_a_pickled_kernel_is_refused_with_what_to_do_instead() -> None:
    with pytest.raises(
        TypeError, match=r"kernel 'Y' cannot be pickled: .* build it where it is needed, .*kern\.export"
    ):
        pickle.dumps(kernel())
    with pytest.raises(TypeError, match="kernel 'Y' cannot be pickled"):
        pickle.dumps([kernel()])


def test_stats_are_pickled_and_copied() -> None:
    Z = te.compute((4,), lambda i: te.sum(lambda k: Y[k]) + Y[i], name="Z")
    kern = te.build([X], Z)
    kern(A)
    for found in (pickle.loads(pickle.dumps(kern.stats)), copy.deepcopy(kern.stats)):
        assert (found.compile_ms, found.bytes, found.peak_bytes, found.temporaries) == (
            kern.stats.compile_ms, kern.stats.bytes, kern.stats.peak_bytes, kern.stats.temporaries
        )  # fmt: skip


def test_stats_say_that_a_kernel_was_never_called() -> None:
    x = te.placeholder((8,), name="x")
    kern = te.build(x, x * 2)
    for stats in (kern.stats, pickle.loads(pickle.dumps(kern.stats))):
        assert str(stats).endswith("not called yet")
        assert "last call" not in str(stats)
        assert "not called yet" in te.display.html(stats)
    kern(np.ones(8, "f4"))
    for stats in (kern.stats, pickle.loads(pickle.dumps(kern.stats)), copy.deepcopy(kern.stats)):
        assert "last call: 64 B of arrays" in str(stats)
        assert "not called" not in te.display.html(stats)
    none = te.build([y := te.placeholder((te.var("n"),), name="y")], y + 1)
    none(np.ones(0, "f4"))
    assert "last call: 0 B" in str(none.stats)
