"""donate=: intermediate results in the memory of inputs that nobody needs any more."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

import tedsl as te
from tedsl.backend.sequence import temporaries_in_inputs
from tests.arrays import uniform as floats
from tests.mutation.overlaps import Writer, random_schedule

N = 32


def layers(count: int, rows: Any = N) -> tuple[list[te.Tensor], te.Tensor]:
    """x and weights; a number made of the last layer, which no memory of an input fits."""
    h = x = te.placeholder((rows, N), name="x")
    weights = [te.placeholder((N, N), name=f"w{k}") for k in range(count)]
    for k, w in enumerate(weights):
        h = te.compute((rows, N), dense(h, w), name=f"h{k}")
    return [x, *weights], h.max()


def dense(h: te.Tensor, w: te.Tensor) -> Any:
    return lambda i, j: te.sum(lambda k: te.tanh(h[i, k]) * w[k, j])


def given(inputs: list[te.Tensor], rows: int = N) -> list[Any]:
    return [floats(rows if k == 0 else N, N, seed=k) / 8 for k in range(len(inputs))]


def test_intermediate_results_lie_in_donated_memory() -> None:
    inputs, y = layers(4)
    arrays = given(inputs)
    want = te.interpret(y, dict(zip(inputs, arrays, strict=True)))
    plain = te.build(inputs, y)
    plain(*arrays)
    kern = te.build(inputs, y, donate=inputs[0])
    np.testing.assert_allclose(kern(*arrays), want, rtol=1e-5)
    size = N * N * 4
    assert kern.program.memory.lent == size
    assert kern.stats.peak_bytes == kern.program.peak_bytes
    assert plain.stats.peak_bytes - kern.stats.peak_bytes >= size  # one layer is in x, the one after it is not
    assert f"{size / 1024:.1f} KB in donated arrays" in repr(kern.program)
    with pytest.raises(ValueError, match=r"'x' was donated to kernel 'h3_max' as 'x' at .*test_donation\.py:\d+"):
        kern(*arrays)


def test_all_that_passes_between_kernels_can_be_donated() -> None:
    """Layer after layer takes the weights of those before it: nothing is allocated but what is inside kernels."""
    inputs, y = layers(5)
    arrays = given(inputs)
    want = te.interpret(y, dict(zip(inputs, arrays, strict=True)))
    kern = te.build(inputs, y, donate=inputs[:3])
    np.testing.assert_allclose(kern(*arrays), want, rtol=1e-5)
    memory = kern.program.memory
    assert (memory.between, memory.lent) == (0, 3 * N * N * 4)
    for array in arrays[:3]:
        with pytest.raises(ValueError, match="was donated"):
            te.copy(array)
    te.copy(arrays[4])


def test_outputs_come_first_and_other_kernels_keep_their_memory() -> None:
    inputs, y = layers(3)
    z = te.compute((N, N), lambda i, j: inputs[1][i, j] + y[()], name="z")
    arrays = given(inputs)
    want = te.interpret(z, dict(zip(inputs, arrays, strict=True)))
    kern = te.build(inputs, z, donate=[inputs[0], inputs[1]])
    address = arrays[1].ctypes.data
    found = kern(*arrays)
    assert found.ctypes.data == address
    np.testing.assert_allclose(found, want, rtol=1e-5)
    assert kern.program.memory.lent == N * N * 4
    plain, arrays = te.build(inputs, z), given(inputs)
    before = [a.copy() for a in arrays]
    np.testing.assert_allclose(plain(*arrays), want, rtol=1e-5)
    np.testing.assert_array_equal(arrays, before)


def test_the_last_reader_writes_over_what_it_reads() -> None:
    x, w = te.placeholder((N, N), name="x"), te.placeholder((N, N), name="w")
    e = te.compute((N, N), lambda i, j: te.exp(x[i, j]) * x[i, j], name="e")
    y = te.compute((), lambda: te.sum(lambda i, j, k: e[i, k] * w[k, j] * e[j, i]), name="y")
    s = te.Schedule(y)
    s[e].compute_root()
    for schedule in (None, s):
        arrays = [floats(N, N), floats(N, N, seed=1)]
        want = te.interpret(y, {x: arrays[0], w: arrays[1]})
        before = arrays[0].copy()
        kern = te.build([x, w], y, schedule, donate=x)
        np.testing.assert_allclose(kern(*arrays), want, rtol=1e-4)
        np.testing.assert_allclose(arrays[0], np.exp(before) * before, rtol=1e-5)


def test_symbolic_extents_and_other_layouts() -> None:
    n = te.var("n")
    inputs, y = layers(3, n)
    kern = te.build(inputs, y, donate=inputs[0])
    for rows in (7, 40):
        arrays = given(inputs, rows)
        want = te.interpret(y, dict(zip(inputs, arrays, strict=True)))
        arrays[0] = np.asfortranarray(arrays[0])
        np.testing.assert_allclose(kern(*arrays), want, rtol=1e-5)
        assert kern.program.at({n: rows}).memory.lent == rows * N * 4
        with pytest.raises(ValueError, match="was donated"):
            te.copy(arrays[0])
    wide = [floats(8, 2 * N)[:, ::2], *given(inputs)[1:]]
    with pytest.raises(ValueError, match=r"a view whose base lives on|do not lie side by side"):
        kern(*wide)
    apart = np.lib.stride_tricks.as_strided(np.ones(16 * N, "f4"), (8, N), (8 * N, 4))
    with pytest.raises(ValueError, match=r"donated to intermediate results, but .*(side by side|lives on)"):
        kern(apart, *given(inputs)[1:])


def refusal(inputs: list[te.Tensor], outputs: Any, donated: te.Tensor, **options: Any) -> str:
    with pytest.raises(te.AliasError) as caught:
        te.build(inputs, outputs, donate=donated, **options)
    with pytest.warns(UserWarning, match="was donated, but no output can take it"):
        te.build(inputs, outputs, donate=donated, on_hazard="copy", **options)
    return str(caught.value)


def test_the_reason_of_a_refusal() -> None:
    inputs, y = layers(2)
    x = inputs[0]
    text = refusal([x], x.max(), x)
    assert "nor an intermediate result: it is one kernel, which stores them inside its loops" in text
    late = te.compute((5,), lambda i: y[()] + inputs[2][i, i], name="late")
    assert "'h0', 'h1', 'h1_max' come before 'late', which still reads it" in refusal(inputs[:3], late, inputs[2])
    assert "nor an intermediate result: it is a result, too" in refusal(inputs, [x, y], x)
    turned = te.compute((N, N), lambda i, j: te.sum(lambda k: x[k, i] * inputs[1][k, j]), name="turned")
    z = te.compute((), lambda: te.sum(lambda i, j, k: te.tanh(turned[i, k] + turned[k, j])), name="z")
    s = te.Schedule(z)
    s[turned].compute_root()
    text = refusal(inputs[:2], z, x, schedule=s)
    assert "'turned' is made by the last kernel that reads it, and cannot be written over it: stage 'turned'" in text
    small = te.placeholder((4,), name="small")
    first = te.compute((N, N), lambda i, j: x[i, j] * small[0], name="first")
    h = te.compute((N, N), lambda i, j: te.sum(lambda k: first[i, k] * inputs[1][k, j]), name="h")
    z = te.compute((), lambda: te.sum(lambda i, j, k: te.tanh(h[i, k] + h[k, j])), name="z")
    assert "larger, or not known to fit" in refusal([*inputs[:2], small], z, small)


def test_python_functions_may_keep_what_they_are_given_and_may_fail() -> None:
    inputs, _ = layers(2)
    x = inputs[0]
    kept: list[Any] = []
    own = te.extern(lambda a: (kept.append(a), a.sum(keepdims=True).ravel())[1], (1,), "float32", [x], name="own")
    y = inputs[0] @ inputs[1] @ inputs[2]
    both = te.compute((), lambda: te.max(lambda i, j: y[i, j]) + own[0], name="both")
    assert "the Python function 'own' reads it, and may keep it" in refusal(inputs, both, x)
    last = te.extern(lambda a: a * 2, (N, N), "float32", [y], name="last")
    assert "'last' may fail after" in refusal(inputs, last.max(), x)


def test_a_call_that_fails_gives_nothing_away() -> None:
    inputs, _ = layers(2)
    index = te.placeholder((N,), "int32", name="index")
    h = te.compute((N, N), lambda i, j: te.sum(lambda k: inputs[0][index[i], k] * inputs[1][k, j]), name="h")
    y = (h @ inputs[2]).max()
    kern = te.build([*inputs, index], y, donate=inputs[0])
    arrays = given(inputs)
    before = arrays[0].copy()
    with pytest.raises(IndexError, match="it is 99"):
        kern(*arrays, np.full(N, 99, "i4"))
    np.testing.assert_array_equal(arrays[0], before)
    places = np.arange(N, dtype="i4")[::-1].copy()
    want = te.interpret(y, dict(zip([*inputs, index], [*arrays, places], strict=True)))
    np.testing.assert_allclose(kern(*arrays, places), want, rtol=1e-4)


def test_memory_that_others_read_or_write_is_not_overwritten() -> None:
    inputs, y = layers(2)
    kern = te.build(inputs, [y, y + 1], donate=inputs[0])
    x = floats(N, N)
    with pytest.raises(ValueError, match="donated to intermediate results, but it shares memory with 'w0'"):
        kern(x, x[::-1], floats(N, N))
    with pytest.raises(ValueError, match="it is given twice"):
        kern(x, x, floats(N, N))
    with pytest.raises(ValueError, match="but it shares memory with 'out= for h1_max'"):
        kern(x, floats(N, N), floats(N, N), out=(x[0, :1].reshape(()), None))
    fixed = floats(N, N)
    fixed.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        kern(fixed, floats(N, N), floats(N, N))


# Random programs


def drawn(rng: random.Random) -> tuple[list[te.Tensor], list[te.Tensor], Any, str]:
    """A program of several stages, some of which are stored."""
    w = Writer(rng)
    for k in range(rng.randint(2, 5)):
        w.stages.append(w.pointwise(f"S{k}") if rng.random() < 0.7 else w.reduced(f"R{k}"))
    outputs = [w.reduced("C") if rng.random() < 0.6 else w.pointwise("C")]
    schedule, told = random_schedule(rng, outputs, []) if rng.random() < 0.5 else (te.Schedule(outputs), ["default"])
    for stage in w.stages:
        with suppress(te.ScheduleError, KeyError):
            if rng.random() < 0.7:
                schedule[stage].compute_root()
                told.append(f"{stage.name}.compute_root()")
    note = "\n".join([*(str(t) for t in (*w.stages, *outputs)), f"{w.n} x {w.m}", *told])
    return [w.A, w.B], outputs, schedule, note


def check_several(seed: int, count: int) -> Counter[str]:
    rng, became = random.Random(seed), Counter[str]()
    while became.total() < count:
        inputs, outputs, schedule, note = drawn(rng)
        donated = rng.choice([[inputs[0]], [inputs[1]], inputs])
        arrays = [np.random.default_rng(rng.randrange(999)).integers(-9, 10, t.shape, np.int32) for t in inputs]
        want = te.interpret(outputs, dict(zip(inputs, arrays, strict=True)))
        try:
            kern = te.build(inputs, outputs, schedule, donate=donated)
        except te.AliasError:
            became["refused"] += 1
            continue
        except te.ScheduleError:
            continue
        (found,) = kern(*arrays)
        became["lent" if kern.core.single is None and kern.program.memory.lent else "taken"] += 1
        assert np.array_equal(found, want[0]), f"donated {donated}:\n{note}\nexpected {want[0]}\nfound {found}"
    return became


def test_results_are_those_without_donation() -> None:
    became = check_several(5, 10)
    assert became["lent"] >= 3


def test_the_suite_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where an input counts as free too early, some result is wrong."""
    monkeypatch.setattr(temporaries_in_inputs.Lender, "free", lambda self, source: 0)
    with pytest.raises(AssertionError, match="donated"):
        check_several(0, 60)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 120))
def test_many_results_are_those_without_donation(seed: int) -> None:
    check_several(seed, 50)
