"""te.extern and te.checked: memory that is not the function's to give is copied; impurity and NaN are found."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
from typing import Any

import numpy as np
import pytest

import tedsl as te


def floats(*shape: int) -> Any:
    return np.random.default_rng(0).random(shape, np.float32)


KEPT = np.zeros(4, np.float32)


def keeps(x: Any) -> Any:
    """Returns the memory that it returned before: every call changes the results of earlier ones."""
    KEPT[:] = x * 2
    return KEPT


def keeps_a_view(x: Any) -> Any:
    KEPT[:] = x
    return KEPT[:]


BYTES, NUMBERS = bytearray(16), (ctypes.c_float * 4)()


def keeps_bytes(x: Any) -> Any:
    """A new array each time, over memory that no array owns."""
    found = np.frombuffer(BYTES, np.float32)
    found[:] = x
    return found


def keeps_numbers(x: Any) -> Any:
    found = np.ctypeslib.as_array(NUMBERS)
    found[:] = x
    return found[:]


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (keeps_bytes, "is that of a memoryview"),
        (keeps_numbers, "is that of a"),
        (lambda x: x, "returned its argument 0"),
        (lambda x: x.reshape(2, 2).reshape(4), "returned its argument 0"),
        (lambda x: x[::-1], "returned a view of its argument 0"),
        (keeps, "held elsewhere: it keeps it"),
        (keeps_a_view, "held elsewhere: it keeps it"),
        (lambda x: x + 1, None),
        (lambda x: (x + 1).reshape(2, 2).reshape(4), None),
        (lambda x: np.concatenate([x, x])[:4], None),
    ],
)
def test_memory_that_is_not_given_away_is_copied(function: Any, reason: str | None) -> None:
    x = te.placeholder((4,), name="x")
    y = te.extern(function, (4,), "float32", [x], name="y")
    kern = te.build([x], y + 1)
    a = floats(4)
    np.testing.assert_allclose(kern(a), np.array(function(a)) + 1, rtol=1e-6)
    assert [what for what, _ in kern.stats.copies] == ([] if reason is None else ["y"])
    assert reason is None or reason in kern.stats.copies[0][1]


def test_what_a_function_gives_away_is_not_copied_beside_torch_compile() -> None:
    """It evaluates Python's frames itself; a call of a Python function then holds one more reference."""
    torch = pytest.importorskip("torch")
    x = te.placeholder((4,), name="x")
    kern = te.build([x], te.extern(lambda x: x + 1, (4,), "float32", [x], name="y") + 1)
    a = floats(4)
    kern(a)
    frames = importlib.import_module("torch._C._dynamo.eval_frame")
    assert torch._dynamo is not None  # by which the module of frames is made
    former = frames.set_eval_frame(False)
    try:
        kern(a)
    finally:
        frames.set_eval_frame(former)
    assert kern.stats.copies == []


@pytest.mark.parametrize("function", [keeps, keeps_a_view, keeps_bytes, keeps_numbers])
def test_results_of_two_calls_in_one_program_stay_apart(function: Any) -> None:
    x = te.placeholder((4,), name="x")
    u, v = (te.extern(function, (4,), "float32", [x * k], name=f"y{k}") for k in (1, 10))
    a = floats(4)
    want = np.array(function(a)) * 11
    np.testing.assert_allclose(te.build([x], u + v)(a), want, rtol=1e-6)
    np.testing.assert_allclose(te.interpret(u + v, {x: a}), want, rtol=1e-6)


def test_memory_of_other_libraries_stays_apart() -> None:
    torch = pytest.importorskip("torch")
    kept, x = torch.zeros(4), te.placeholder((4,), name="x")

    def keeps_a_tensor(x: Any) -> Any:
        return kept.copy_(torch.from_numpy(np.array(x))).numpy()

    u, v = (te.extern(keeps_a_tensor, (4,), "float32", [x * k]) for k in (1, 10))
    np.testing.assert_allclose(te.build([x], u + v)(np.ones(4, "f4")), 11)


def test_two_results_on_one_memory_stay_apart() -> None:
    """The first result is what it was when the second call has changed the memory."""
    x, z = te.placeholder((4,), name="x"), te.placeholder((4,), name="z")
    first, second = te.extern(keeps, (4,), "float32", [x]), te.extern(keeps, (4,), "float32", [z])
    a, b = floats(4), floats(4) + 1
    np.testing.assert_allclose(te.evaluate(first - second, {x: a, z: b}), a * 2 - b * 2, rtol=1e-6)
    same = te.extern(lambda x: (y := x + 1, y), [(4,), (4,)], ["float32", "float32"], [x], name="same")
    kern = te.build([x], [same[0] * 1, same[1] * 2])
    np.testing.assert_allclose(kern(a)[1], (a + 1) * 2, rtol=1e-6)
    assert [what for what, _ in kern.stats.copies] == ["same_0", "same_1"]


def test_an_output_over_the_argument_of_a_function() -> None:
    """Functions run before the kernel that writes: alias= over their argument is safe."""
    x = te.placeholder((4,), name="x")
    y = te.extern(lambda x: x[::-1], (4,), "float32", [x], name="y")
    out = te.compute((4,), lambda i: x[i] + 10 * y[i], name="out")
    a = floats(4)
    want = a + 10 * a[::-1]
    assert te.build([x], out, alias={out: x})(a) is a
    np.testing.assert_allclose(a, want, rtol=1e-6)


def changes(x: Any) -> Any:
    x = x.view()
    x.flags.writeable = True  # its base can be written
    x *= 2
    return x + 1


def test_checked_finds_a_function_that_changes_its_argument() -> None:
    x = te.placeholder((4,), name="x")
    y = te.extern(changes, (4,), "float32", [x * 1], name="y", pure=False)
    kern = te.build([x], y)
    kern(floats(4))
    with te.checked(), pytest.raises(ValueError, match=r"extern 'y' at .*: the function changed its argument 0"):
        kern(floats(4))


def test_checked_finds_a_function_that_is_not_pure() -> None:
    state = np.zeros(1, np.float32)

    def counts(x: Any) -> Any:
        state[0] += 1
        return x + state

    x = te.placeholder((4,), name="x")
    kern = te.build([x], te.extern(counts, (4,), "float32", [x], name="y"))
    kern(floats(4))
    with te.checked(), pytest.raises(ValueError, match=r"declared pure, but two calls .* gave different values"):
        kern(floats(4))
    declared = te.build([x], te.extern(counts, (4,), "float32", [x], name="y", pure=False))
    with te.checked():
        declared(floats(4))


def test_checked_names_the_stage_that_makes_a_nan() -> None:
    x = te.placeholder((3,), name="x")
    logs = te.compute((3,), lambda i: te.log(x[i]), name="logs")
    kern = te.build([x], te.compute((3,), lambda i: logs[i] * 2, name="out"))
    bad = np.array([1, -1, 2], np.float32)
    assert np.isnan(kern(bad)).any()
    for _ in range(2):
        with (
            te.checked(),
            pytest.raises(FloatingPointError, match=r"'out' is NaN at \[1\].*the first NaN is made by compute 'logs'"),
        ):
            kern(bad)
    with te.checked():
        np.testing.assert_array_equal(kern(np.ones(3, np.float32)), 0)
        assert np.isnan(kern(np.full(3, np.nan, np.float32))).all()  # it was there before
        with pytest.raises(IndexError):
            te.evaluate(te.compute((3,), lambda i: x[te.cast(x[i], "int32")]), {x: np.full(3, 7, np.float32)})


def test_checked_leaves_outputs_as_they_were() -> None:
    x = te.placeholder((3,), name="x")
    logs = te.compute((3,), lambda i: te.log(x[i]), name="logs")
    kernel, onto = te.build(x, logs), te.build(x, logs, alias={logs: x})
    bad = np.array([1, -1, 2], "float32")
    for mode in "write", "add":
        out = np.arange(3, dtype="float32")
        with te.checked(), pytest.raises(FloatingPointError, match=r"'logs' is NaN at \[1\]"):
            kernel(bad, out=out, mode=mode)
        np.testing.assert_array_equal(out, [0, 1, 2])
    with te.checked(), pytest.raises(FloatingPointError):
        onto(bad)
    np.testing.assert_array_equal(bad, [1, -1, 2])
    out = np.array([np.nan, 0, 0], "float32")
    with te.checked():
        kernel(np.ones(3, "float32"), out=out, mode="add")  # a NaN that was there
    constant = te.build([], te.compute((2,), lambda i: te.sqrt(te.cast(i, "float32") - 1), name="root"))
    with te.checked(), pytest.raises(FloatingPointError, match="made by compute 'root'"):
        constant()


def test_checked_ends_with_its_block() -> None:
    x = te.placeholder((3,), name="x")
    kern = te.build([x], te.log(x))
    with pytest.raises(FloatingPointError), te.checked():
        kern(-np.ones(3, np.float32))
    assert np.isnan(kern(-np.ones(3, np.float32))).all()


def test_checked_finds_donated_memory_behind_another_array() -> None:
    x = te.placeholder((4,), name="x")
    step, twice = te.build([x], x + 1, donate=[x], name="step"), te.build([x], x * 2)
    a = floats(4)
    hidden = np.frombuffer(memoryview(a), np.float32)
    result = step(a)
    twice(hidden)  # not found: it is no view of `a` that NumPy knows of
    with te.checked(), pytest.raises(ValueError, match="lies on memory that was donated to kernel 'step'"):
        twice(hidden)
    with te.checked():
        np.testing.assert_array_equal(twice(result), result * 2)


def increment(x: Any) -> Any:
    x += 1
    return x * 1


def assign(x: Any) -> Any:
    x[0] = 1
    return x * 1


def fails(x: Any) -> Any:
    return {}["nothing"]


@pytest.mark.parametrize("function", [increment, assign])
@pytest.mark.parametrize("how", ["evaluate", "interpret", "checked", "impure"])
def test_a_function_that_writes_its_argument_is_named_with_what_to_do(function: Any, how: str) -> None:
    x = te.placeholder((4,), name="x")
    y = te.extern(function, (4,), "float32", [x], pure=how != "impure")
    run = te.interpret if how == "interpret" else te.evaluate
    given = floats(4)
    before = given.copy()
    with te.checked() if how == "checked" else contextlib.nullcontext(), pytest.raises(ValueError) as caught:
        run(y + 1, {x: given})
    assert f"extern '{function.__name__}' at {__file__}:" in str(caught.value)
    assert "writes into its arguments, which are read-only" in str(caught.value)
    assert "compute on a copy, x = x.copy()" in str(caught.value)
    np.testing.assert_array_equal(given, before)


@pytest.mark.parametrize("run", [te.evaluate, te.interpret])
def test_an_error_of_a_function_is_its_own_and_tells_the_stage(run: Any) -> None:
    x = te.placeholder((4,), name="x")
    with pytest.raises(KeyError, match="nothing") as caught:
        run(te.extern(fails, (4,), "float32", [x]) + 1, {x: floats(4)})
    notes = getattr(caught.value, "__notes__", None)
    assert notes is None or (len(notes) == 1 and "the Python function of extern 'fails' at" in notes[0])


@pytest.mark.parametrize("run", [te.evaluate, te.interpret])
@pytest.mark.parametrize(("result", "words"), [
    (np.ma.array(np.zeros(4, "f4"), mask=[1, 0, 0, 0]), "a mask would be lost"),
    (np.zeros(4, ">f4"), "expected the byte order of this machine"),
    (np.zeros(4, "O"), "expected dtype float32, found object"),
])  # fmt: skip
def test_results_of_other_kinds_are_refused(run: Any, result: Any, words: str) -> None:
    x = te.placeholder((4,), name="x")
    with pytest.raises(TypeError, match=f"extern 'y' at .*: result 0.*: {words}"):
        run(te.extern(lambda x: result, (4,), "float32", [x], name="y") + 1, {x: floats(4)})
