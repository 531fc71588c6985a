"""What is given by name, and in another dtype than the input's: NumPy says which casts are safe."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ml_dtypes import bfloat16

import tedsl as te
from tedsl.backend.calling.kernel import Kernel
from tedsl.lang.dtypes import ALL

X, W, B = te.placeholder((3,), name="x"), te.placeholder((3,), name="w"), te.placeholder((), name="b")
A, C = np.array([1, 2, 3], "f4"), np.array([4, 5, 6], "f4")
DTYPES = [np.dtype(bfloat16) if d == "bfloat16" else np.dtype(str(d)) for d in ALL]


@pytest.fixture(scope="module")
def affine() -> Kernel:
    return te.build([X, W, B], te.compute(3, lambda i: X[i] * W[i] - B[()], name="Y"))


def same(dtype: Any) -> Kernel:
    """A kernel that gives back what it was given."""
    s = te.placeholder((3,), te.placeholder((1,), dtype).dtype, name="s")
    return te.build([s], te.compute(3, lambda i: s[i], name="same"))


@pytest.mark.parametrize(
    ("positional", "named"),
    [((A, C, 2), {}), ((A, C), {"b": 2}), ((A,), {"b": 2, "w": C}), ((), {"w": C, "b": 2, "x": A})],
)
def test_arrays_by_name_stand_where_their_placeholders_do(affine: Kernel, positional: Any, named: Any) -> None:
    np.testing.assert_array_equal(affine(*positional, **named), A * C - 2)
    out = np.zeros(3, "f4")
    assert affine(*positional, **named, out=out) is out
    np.testing.assert_array_equal(out, A * C - 2)
    affine(*positional, **named, out=out, mode="add")
    np.testing.assert_array_equal(out, 2 * (A * C - 2))


def test_extents_are_given_beside_names() -> None:
    n = te.var("n")
    kern = te.build([B], te.compute(n, lambda i: B[()] + i))
    np.testing.assert_array_equal(kern(b=1.5, sizes={n: 3}), [1.5, 2.5, 3.5])
    for given in (lambda: kern(1.5, n=3), lambda: kern(b=1.5, n=3), lambda: kern(n=3)):
        with pytest.raises(
            TypeError, match=r"no input is called 'n', which is an extent: give sizes=\{'n': 3\}; the inp"
        ):
            given()
    with pytest.raises(TypeError, match=r"give sizes=\{'n': \.\.\.\}; the inputs are b$"):
        kern(1.5, n=A)
    with pytest.raises(TypeError, match=r"no input is called 'm'; the inputs are b$"):
        kern(1.5, m=3)


@pytest.mark.parametrize(
    ("positional", "named", "told"),
    [
        ((A,), {"v": C}, r"kernel 'Y': no input is called 'v'; the inputs are x, w, b"),
        ((A, C), {"x": A}, r"input 'x' is given twice, by position and by name"),
        ((A,), {"b": 1}, r"expected 3 arrays \(x, w, b\), found 1 and 1 by name, not 'w'"),
        ((A, C), {}, r"expected 3 arrays \(x, w, b\), found 2$"),
        ((A, C, 2, A), {}, r"expected 3 arrays \(x, w, b\), found 4$"),
    ],
)
def test_wrong_names_are_told(affine: Kernel, positional: Any, named: Any, told: str) -> None:
    with pytest.raises(TypeError, match=told):
        affine(*positional, **named)


def test_names_that_two_inputs_have_are_refused() -> None:
    one, two = te.placeholder((3,), name="a"), te.placeholder((3,), name="a")
    kern = te.build([one, two], te.compute(3, lambda i: one[i] - two[i]))
    with pytest.raises(TypeError, match="2 inputs are called 'a'; give them by position"):
        kern(a=A)
    np.testing.assert_array_equal(kern(A, C), A - C)


@pytest.mark.parametrize("name", ["out", "mode", "sizes", "casting", "self", "arrays", "named"])
def test_names_of_options_are_given_by_position(name: str) -> None:
    special = te.placeholder((3,), name=name)
    kern = te.build([X, special], te.compute(3, lambda i: X[i] - special[i]))
    np.testing.assert_array_equal(kern(A, C), A - C)
    if name in ("self", "arrays", "named"):
        np.testing.assert_array_equal(kern(A, **{name: C}), A - C)
        return
    with pytest.raises(TypeError, match=rf"found 1; {name}= is an option of every call, so give that .* by position"):
        kern(A, **{name: C})


@pytest.mark.parametrize("to", DTYPES, ids=str)
def test_what_numpy_calls_safe_is_converted_and_nothing_else(to: Any) -> None:
    kern = same(to)
    for source in DTYPES:
        given = np.array([0, 1, 1]).astype(source)
        if np.can_cast(source, to, "safe"):
            found = kern(given)
            assert found.dtype == to
            np.testing.assert_array_equal(found, given.astype(to))
            reasons = [] if source == to else [("s", f"its elements are {source}, converted to {to}")]
            assert kern.stats.copies == reasons
            continue
        rule = "same_kind" if np.can_cast(source, to, "same_kind") else "unsafe"
        with pytest.raises(
            TypeError, match=rf"expected dtype {to}, found {source}; give casting='{rule}' in the call, or .*ast"
        ):
            kern(given)
        np.testing.assert_array_equal(kern(given, casting=rule), given.astype(to))
        assert len(kern.stats.copies) == 1


def test_strides_and_byte_orders_do_not_matter() -> None:
    kern = same("float64")
    for given in (np.arange(6, dtype="i4")[::-2], np.arange(3, dtype=">f8"), np.arange(3, dtype=">i2")):
        np.testing.assert_array_equal(kern(given), given)
        assert len(kern.stats.copies) == 1
    with pytest.raises(TypeError, match="expected the byte order of this machine"):
        kern(np.arange(3, dtype=">f8"), casting="no")


def test_what_was_converted_is_converted_at_every_call() -> None:
    kern, given = same("float64"), np.array([1, 2, 3], "f4")
    for _ in range(3):
        np.testing.assert_array_equal(kern(given), given)
        assert len(kern.stats.copies) == 1
        given += 1
    kern(given.astype("f8"))
    assert kern.stats.copies == []


def test_lists_and_numbers_take_the_dtype_of_the_input(affine: Kernel) -> None:
    np.testing.assert_array_equal(affine([1, 2, 3], (4.5, 5, 6), True), np.float32([3.5, 9, 17]))
    np.testing.assert_array_equal(same("int8")([1, True, -128]), [1, 1, -128])
    np.testing.assert_array_equal(same("bool")([True, False, True]), [True, False, True])
    np.testing.assert_array_equal(same("float32")([1e300, 0.1, -1e300]), np.float32([np.inf, 0.1, -np.inf]))
    np.testing.assert_array_equal(same("int32")([1.9, 2.5, -1.5], casting="unsafe"), [1, 2, -1])
    np.testing.assert_array_equal(same("float64")([np.float32(1), np.int8(2), 3]), [1, 2, 3])
    n = te.var("n")
    ints = te.placeholder((n,), "int32")
    assert te.build([ints], te.compute(n, lambda i: ints[i]))([]).shape == (0,)
    assert te.evaluate(X.sum(), {X: [1, 2, 3]}) == te.interpret(X.sum(), {X: [1, 2, 3]}) == 6


@pytest.mark.parametrize(
    ("dtype", "numbers"),
    [
        ("float32", [1.5, 2, np.float32(3), np.float64(4), float("nan"), 1e300, np.asarray(5, "f4")]),
        ("float16", [1.5, 2048, np.float16(3)]),
        ("bfloat16", [1.5, 2, 3.0]),
        ("int32", [1, np.int32(2), -(2**31)]),
        ("uint8", [0, 255, np.uint8(7)]),
        ("bool", [True, False, np.bool_(True)]),
    ],
)
def test_numbers_are_passed_as_arrays_of_rank_0_are(dtype: str, numbers: list[Any]) -> None:
    s = te.placeholder((), dtype, name="s")
    row = te.compute((3,), lambda i: s[()])
    kern = te.build([s], row)
    with np.errstate(over="ignore"):
        for number in numbers * 2:
            np.testing.assert_array_equal(kern(number), te.interpret(row, {s: number}))
    assert len(kern._prepared) == (dtype != "bfloat16"), "one prepared call for all numbers"


@pytest.mark.parametrize(
    ("dtype", "given", "error", "told"),
    [
        ("int32", [1, 2.5, 3], TypeError, r"expected values of int32, found list .*casting='unsafe'"),
        ("bool", [1, 0, 1], TypeError, r"expected values of bool, found list .*casting='unsafe'"),
        ("int8", [1, 2, 128], ValueError, r"128 is out of range for int8 \(from -128 to 127\)"),
        ("uint8", [1, -1, 2], ValueError, r"-1 is out of range for uint8"),
        ("int64", [1, 2, 2**70], ValueError, "which no dtype holds"),
        ("float32", [1, [2], 3], ValueError, "several lengths"),
        ("float32", [np.float64(1), 2, 3], TypeError, r"found float64; give casting='same_kind' in the call"),
        ("float32", ["a", "b", "c"], TypeError, r"expected dtype float32, found <U1; give numbers"),
        ("float32", [1, 2], ValueError, "expected extent 3"),
        ("float32", 1.0, TypeError, r"expected an array of float32 of shape \(3,\), found float"),
    ],
)  # fmt: skip
def test_what_a_list_cannot_be(dtype: str, given: Any, error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        same(dtype)(given)


def test_an_array_too_many_is_not_taken_for_a_result() -> None:
    """Though a call before had an array like it as out=."""
    kern, spare = te.build([X, W], te.compute(3, lambda i: X[i] - W[i], name="Y")), np.zeros(3, "f4")
    kern(A, C, out=spare.copy())
    kern(A, C)
    with pytest.raises(TypeError, match="expected 2 arrays"):
        kern(A, C, spare)
    with pytest.raises(TypeError, match="expected 2 arrays"):
        kern(A, out=spare)
    assert not spare.any()


def test_an_unknown_rule_is_refused() -> None:
    kern = same("float32")
    for _ in range(2):  # of which the second is a prepared call
        with pytest.raises(ValueError, match="casting= is one of no, equiv, safe, same_kind, unsafe, found 'sane'"):
            kern(A, casting="sane")
        kern(A)


def test_what_is_written_into_is_never_converted() -> None:
    Y = te.compute(3, lambda i: X[i] * 2, name="Y")
    half = np.array([1, 2, 3], "f2")
    for kern in (te.build([X], Y, alias={Y: X}), te.build([X], Y, donate=[X])):
        for casting in ("safe", "unsafe"):
            with pytest.raises(TypeError, match="expected dtype float32, found float16"):
                kern(half, casting=casting)
            with pytest.raises((TypeError, ValueError), match=r"expected memory to write into|it is a list"):
                kern([1, 2, 3], casting=casting)
    np.testing.assert_array_equal(half, [1, 2, 3])
    with pytest.raises(TypeError, match="expected dtype float32, found float16"):
        te.build([X], Y)(A, out=half, casting="unsafe")
