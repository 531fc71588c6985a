"""alias=, out= that overlaps inputs, and donate=: written in place where that is proven, else copied or refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tedsl as te
from tedsl.backend.calling.kernel import separate
from tests.arrays import uniform as floats


def grid(name: str, *shape: int) -> te.Tensor:
    return te.placeholder(shape or (6, 5), name=name)


A, B, M = grid("A"), grid("B"), grid("M", 6, 6)


def softmax(x: te.Tensor) -> te.Tensor:
    e = te.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def ahead(x: te.Tensor) -> te.Tensor:
    """Each row from itself and the next one."""
    n, m = x.shape
    return te.compute((n, m), lambda i, j: x[i, j] + te.select(i < n - 1, x[i + 1, j], 0.0), name="ahead")


@pytest.mark.parametrize(
    ("inputs", "output"),
    [
        ([A, B], te.compute((6, 5), lambda i, j: A[i, j] * B[5 - i, 4 - j], name="C")),
        ([A], softmax(A)),
        ([A], ahead(A)),
        ([A, B], te.compute((6, 5), lambda i, j: te.select(A[i, j] > 0.5, A[i, j], B[i, j]), name="C")),
        ([A, B], A + (B.T @ B).sum()),
    ],
    ids=["pointwise", "rows", "next row", "select", "complete before"],
)
def test_proven_outputs_are_written_in_place(inputs: list[te.Tensor], output: te.Tensor) -> None:
    arrays = [floats(*t.shape, seed=k) for k, t in enumerate(inputs)]
    want = te.interpret(output, dict(zip(inputs, arrays, strict=True)))
    kern = te.build(inputs, output, alias={output: inputs[0]})
    assert kern(*arrays) is arrays[0]
    np.testing.assert_allclose(arrays[0], want, rtol=1e-5)
    assert kern.stats.copies == []


def test_several_outputs_on_several_inputs() -> None:
    """Adam: moments and parameters, each over its own memory, read by those that come later."""
    m, v, g, p = (grid(x) for x in "mvgp")
    m1 = te.compute((6, 5), lambda i, j: 0.9 * m[i, j] + 0.1 * g[i, j], name="m1")
    v1 = te.compute((6, 5), lambda i, j: 0.9 * v[i, j] + 0.1 * g[i, j] * g[i, j], name="v1")
    p1 = te.compute((6, 5), lambda i, j: p[i, j] - 0.1 * m1[i, j] / (te.sqrt(v1[i, j]) + 1e-8), name="p1")
    arrays = [floats(6, 5, seed=k) for k in range(4)]
    want = te.interpret([m1, v1, p1], dict(zip((m, v, g, p), arrays, strict=True)))
    kern = te.build([m, v, g, p], [m1, v1, p1], alias={m1: m, v1: v, p1: p})
    for found, expected, given in zip(kern(*arrays), want, (arrays[0], arrays[1], arrays[3]), strict=True):
        assert found is given
        np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert kern.stats.copies == []


def reversed_rows(x: te.Tensor) -> te.Tensor:
    n, m = x.shape
    return te.compute((n, m), lambda i, j: x[n - 1 - i, j], name="R")


@pytest.mark.parametrize(
    ("inputs", "output", "words"),
    [
        ([M], te.compute((6, 6), lambda i, j: M[j, i], name="T"), "M[0, 1], needed for T[1, 0]"),
        ([A], reversed_rows(A), "A[2, 0], needed for R[3, 0]"),
        ([A], te.compute((6, 5), lambda i, j: A[i, j] + A.at(i - 1, j, mode="zero"), name="S"), "A[0, 0], needed for"),
        ([M], M @ M, "M[0, 0], needed for matmul[1, 0]"),
        ([M], te.compute((6, 6), lambda i, j: te.sum(lambda k: M[i, k] * M[k, j]), name="P"), "stage"),
    ],
    ids=["transposed", "reversed", "row before", "product", "sum"],
)  # fmt: skip
def test_what_cannot_be_proven_is_refused_or_copied(inputs: list[te.Tensor], output: te.Tensor, words: str) -> None:
    with pytest.raises(te.AliasError) as caught:
        te.build(inputs, output, alias={output: inputs[0]})
    assert words in str(caught.value)
    assert repr(inputs[0]) in str(caught.value)
    assert "test_alias.py:" in str(caught.value)
    arrays = [floats(*t.shape, seed=k) for k, t in enumerate(inputs)]
    want = te.interpret(output, dict(zip(inputs, arrays, strict=True)))
    kern = te.build(inputs, output, alias={output: inputs[0]}, on_hazard="copy")
    assert kern(*arrays) is arrays[0]
    np.testing.assert_allclose(arrays[0], want, rtol=1e-5)
    assert [name for name, _ in kern.stats.copies] == [output.name]


def test_an_input_read_after_the_output_is_written() -> None:
    C = te.compute((6, 5), lambda i, j: A[i, j] + 1, name="C")
    D = te.compute((5, 6), lambda i, j: A[j, i] * 2, name="D")
    with pytest.raises(te.AliasError, match=r"'D'.*reads A\[j, i\] for 'D', which may run after 'C'"):
        te.build([A], [C, D], alias={C: A})


def test_the_proof_is_about_the_schedule_at_hand() -> None:
    def build(change: Any) -> te.Tensor:
        out = ahead(A)
        s = te.Schedule([out])
        change(s[out])
        kern = te.build([A], out, s, alias={out: A})
        a = floats(6, 5)
        want = te.interpret(out, {A: a})
        np.testing.assert_allclose(kern(a), want, rtol=1e-6)
        return out

    build(lambda stage: None)
    build(lambda stage: stage.split(stage.axes[0], 4))
    build(lambda stage: stage.reorder(*stage.axes[::-1]))
    for refused in (
        lambda stage: stage.parallel(stage.axes[0]),
        lambda stage: stage.unroll(stage.split(stage.axes[0], 2)[1]),
        lambda stage: stage.vectorize(stage.axes[0], 4),
    ):
        with pytest.raises(te.AliasError, match="may already be overwritten"):
            build(refused)


def test_a_sum_onto_an_input_is_added_in_place() -> None:
    C0 = grid("C0", 6, 6)
    product = A @ B.T
    for part in (product, te.tanh(M), M.T * 2):
        for output in (C0 + part, part + C0):
            inputs = ([A, B] if part is product else [M]) + [C0]
            arrays = [floats(*t.shape, seed=k) for k, t in enumerate(inputs)]
            want = te.interpret(output, dict(zip(inputs, arrays, strict=True)))
            kern = te.build(inputs, output, alias={output: C0})
            assert kern(*arrays) is arrays[-1]
            np.testing.assert_allclose(arrays[-1], want, rtol=1e-5)
            assert kern.stats.copies == []
            again = te.interpret(output, dict(zip(inputs, arrays, strict=True)))
            np.testing.assert_allclose(kern(*arrays), again, rtol=1e-5)
            apart = np.empty_like(arrays[-1])
            kern(*arrays, out=apart)
            np.testing.assert_allclose(apart, te.interpret(output, dict(zip(inputs, arrays, strict=True))), rtol=1e-5)
    with pytest.raises(te.AliasError, match="may already be overwritten"):  # what is added reads the memory, too
        te.build([M], output := M + M.T, alias={output: M})


@pytest.mark.parametrize("cut", [np.s_[:8], np.s_[::-1], np.s_[1:9], np.s_[::2], np.s_[4:12]])
def test_out_that_overlaps_an_input(cut: Any) -> None:
    """Exactly on it: in place. Otherwise through a temporary, which is counted; apart after all: nothing."""
    x = te.placeholder((8,), name="x")
    kern = te.build([x], te.compute((8,), lambda i: x[i] * 2, name="y"))
    memory = floats(16)
    part = memory[:16][cut][:8]
    given = memory[:8]
    want = given * 2
    kern(given, out=part)
    np.testing.assert_array_equal(part, want)
    exact = part.__array_interface__["data"] == given.__array_interface__["data"] and part.strides == given.strides
    assert [n for n, _ in kern.stats.copies] == ([] if exact or not te.may_alias(given, part) else ["y"])


def test_interleaved_arrays_do_not_overlap() -> None:
    x = te.placeholder((4,), name="x")
    kern = te.build([x], x + 1, on_hazard="error")
    memory = floats(8)
    want = memory[::2] + 1
    np.testing.assert_array_equal(kern(memory[::2], out=memory[1::2]), want)
    with pytest.raises(te.AliasError, match="output 'add' overlaps input 'x'"):
        kern(memory[:4], out=memory[2:6])


def test_arrays_of_a_call_are_apart_or_where_they_may_be() -> None:
    a, b, c = floats(8, 9), floats(8, 9), floats(8, 9)
    safe = frozenset([(0, 0)])
    assert separate([a, b], [c], safe)
    assert separate([a, b], [a], safe)
    assert not separate([a, b], [b], safe)
    assert not separate([a, b], [a[1:]], safe)


def test_outputs_on_one_memory_are_refused() -> None:
    x, y = te.placeholder((8,), name="x"), te.placeholder((8,), name="y")
    u, v = x + y, x - y
    with pytest.raises(te.AliasError, match="two outputs are to be written into x"):
        te.build([x, y], [u, v], alias={u: x, v: x})
    kern = te.build([x, y], [u, v], alias={u: x, v: y}, on_hazard="copy")
    a = floats(8)
    with pytest.raises(te.AliasError, match="overlap in memory"):
        kern(a, a)


def test_frameworks_arrays_share_memory() -> None:
    torch = pytest.importorskip("torch")
    x = te.placeholder((4,), name="x")
    kern = te.build([x], y := x + 1, alias={y: x})
    given = torch.arange(4, dtype=torch.float32)
    assert kern(given) is given
    assert given.tolist() == [1, 2, 3, 4]
    kern(given[:4], out=given)
    assert given.tolist() == [2, 3, 4, 5]
    jax = pytest.importorskip("jax")
    with pytest.raises(ValueError, match="read-only"):
        kern(jax.numpy.ones(4, "float32"))


# Donation


def test_donated_memory_holds_the_result() -> None:
    x = te.placeholder((8,), name="x")
    kern = te.build([x], x + 1, donate=[x])
    a = floats(8)
    address, want = a.ctypes.data, a + 1
    result = kern(a)
    assert result.ctypes.data == address
    np.testing.assert_array_equal(result, want)
    for _ in range(2):  # what comes back is donated on
        result = kern(result)
    np.testing.assert_allclose(result, want + 2, rtol=1e-6)


def test_a_donated_array_cannot_be_used_again() -> None:
    x = te.placeholder((8,), name="x")
    kern = te.build([x], x + 1, name="step", donate=x)
    a = floats(8)
    kept = kern(a)
    for again in (lambda: kern(a), lambda: kern(kept, out=a), lambda: te.interpret(x + 1, {x: a}), lambda: te.copy(a)):
        with pytest.raises(ValueError, match=r"donated to kernel 'step' as 'x' at .*test_alias\.py:\d+"):
            again()
    with pytest.raises(ValueError, match="is a view of an array that was donated"):
        kern(a[:])


@pytest.mark.parametrize(
    ("output", "words"),
    [
        (lambda x: x.sum(), "'x_sum': the shapes differ"),
        (lambda x: x.astype("float64"), "the dtypes differ"),
        (lambda x: te.compute((8,), lambda i: x[7 - i], name="R"), "x[7], needed for R[0]"),
    ],
)
def test_a_donation_that_cannot_be_used(output: Any, words: str) -> None:
    x = te.placeholder((8,), name="x")
    with pytest.raises(te.AliasError) as caught:
        te.build([x], output(x), donate=[x])
    assert words in str(caught.value)
    with pytest.warns(UserWarning, match="was donated, but no output can take it"):
        kern = te.build([x], output(x), donate=[x], on_hazard="copy")
    a = floats(8)
    kern(a)
    kern(a)


def test_memory_that_somebody_holds_is_not_given_away() -> None:
    x = te.placeholder((8,), name="x")
    kern = te.build([x], x + 1, donate=[x])
    held = floats(16)
    with pytest.raises(ValueError, match="it is a view whose base lives on"):
        kern(held[:8])
    np.testing.assert_array_equal(kern(floats(16)[:8]), floats(16)[:8] + 1)
    fixed = floats(8)
    fixed.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        kern(fixed)


# Bad input


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        (lambda x, y: {"alias": {y: x.sum()}}, ValueError, "alias maps an output to an input"),
        (lambda x, y: {"alias": [y]}, TypeError, "alias is a dict {output: input}, found list"),
        (lambda x, y: {"donate": [y]}, ValueError, "donate lists inputs"),
        (lambda x, y: {"donate": [x, x]}, ValueError, "twice"),
        (lambda x, y: {"on_hazard": "ignore"}, ValueError, "must be 'copy' or 'error', found 'ignore'"),
    ],
)
def test_bad_options(options: Any, error: type[Exception], words: str) -> None:
    x = te.placeholder((8,), name="x")
    y = x + 1
    with pytest.raises(error) as caught:
        te.build([x], y, **options(x, y))
    assert words in str(caught.value)


def test_alias_between_different_dtypes_or_sizes() -> None:
    x, z = te.placeholder((8,), name="x"), te.placeholder((9,), name="z")
    with pytest.raises(TypeError, match="the dtypes differ"):
        te.build([x], y := x.astype("int32"), alias={y: x})
    with pytest.raises(ValueError, match="the shapes differ"):
        te.build([x, z], w := x + 1, alias={w: z})


@pytest.mark.parametrize(
    ("out", "mode", "error", "words"),
    [
        (lambda: None, "add", ValueError, "needs out=, the array to add to"),
        (lambda: np.zeros(8), "add", TypeError, "expected dtype float32, found float64"),
        (lambda: np.zeros(9, "f4"), "add", ValueError, "expected shape (8,), found (9,)"),
        (lambda: np.lib.stride_tricks.as_strided(np.zeros(9, "f4"), (4, 2), (4, 4)), "write", ValueError, "share"),
    ],
)
def test_bad_arrays_to_write_into(out: Any, mode: str, error: type[Exception], words: str) -> None:
    x = te.placeholder((8,), name="x")
    kern = te.build([x], (x + 1).reshape(4, 2) if mode == "write" else x + 1)
    with pytest.raises(error) as caught:
        kern(floats(8), out=out(), mode=mode)
    assert words in str(caught.value)
