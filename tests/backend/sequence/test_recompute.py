"""checkpoint= and memory=: less memory, the same numbers, and the extra work told."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tedsl as te
from tests.backend.sequence.test_memory_plan import network

ROWS = 2048
LAYER = ROWS * 64 * 4  # bytes of what a layer gives


def arrays_for(inputs: list[te.Tensor]) -> list[Any]:
    rng = np.random.default_rng(3)
    return [rng.standard_normal(t.shape).astype("f4") / 8 for t in inputs]


@pytest.fixture(scope="module")
def whole() -> tuple[Any, list[Any], Any]:
    inputs, outputs = network(8, ROWS)
    kern = te.build(inputs, outputs, memory="1GB")
    assert not any(call.again for call in kern.program.calls)
    arrays = arrays_for(inputs)
    return kern, arrays, kern(*arrays)


def check(kern: Any, whole: tuple[Any, list[Any], Any]) -> None:
    _, arrays, expected = whole
    for _ in range(2):
        for found, want in zip(kern(*arrays), expected, strict=True):
            np.testing.assert_array_equal(found, want)  # the same kernels on the same numbers


def test_half_of_what_passes_between_kernels_gives_the_same_gradients(whole: Any) -> None:
    memory = whole[0].program.memory
    assert memory.between >= 8 * LAYER
    most = memory.arrays + memory.between // 2 + memory.inside + LAYER // 8  # what processors need differs a little
    inputs, outputs = network(8, ROWS)
    kern = te.build(inputs, outputs, memory=most)
    assert kern.program.peak_bytes <= most
    again = [call for call in kern.program.calls if call.again]
    assert 1 <= len(again) <= 8  # every layer once at most
    assert 0 < kern.program.extra_work <= 1 / 3  # that is a third of all products
    assert f"{len(again)} calls compute again what was forgotten: " in repr(kern.program)
    check(kern, whole)


def test_checkpoints_are_kept_and_the_rest_is_computed_again(whole: Any) -> None:
    inputs, outputs = network(8, ROWS)
    layers = [inputs[0]]
    for w in inputs[1:]:
        layers.append(layers[-1] @ w)
    loss = (layers[-1] * layers[-1]).sum()
    outputs = [loss, *te.differentiate(loss, inputs[1:])]
    kern = te.build(inputs, outputs, checkpoint=[layers[3], layers[6]])
    assert sum(call.again for call in kern.program.calls) == 4  # layers 1, 2, 4 and 5
    assert kern.program.memory.between < whole[0].program.memory.between
    check(kern, whole)


def test_a_budget_that_nothing_fits_in_is_refused_with_an_estimate() -> None:
    inputs, outputs = network(8, ROWS)
    with pytest.raises(
        ValueError, match=r"memory=1000 is too little for .*: a call needs about [\d.]+ MB, of which its"
    ):
        te.build(inputs, outputs, memory=1000)
    arrays = te.build(inputs, outputs).program.memory.arrays
    with pytest.raises(ValueError, match=r" is too little for .*: a call needs about [\d.]+ MB, of which its"):
        te.build(inputs, outputs, memory=arrays + 1000)


def test_a_refusal_says_what_holds_the_most_and_where_te_scan_would_help() -> None:
    k, u = te.placeholder((64, 64), name="k"), te.placeholder((64, 64), name="u")
    state = u
    for _ in range(30):
        state = te.tanh(state @ k) + state
    with pytest.raises(ValueError, match=r"outputs take .* KB; .* [\d.]+ KB kernel") as refused:
        te.build([k, u], (state * state).sum(), memory="10KB")
    assert re.search(r"; 30 stages have the form of '\w+' at .*test_recompute.py:\d+: .* te.scan", str(refused.value))


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"memory": "much"}, ValueError, "memory= is a number of bytes or a text such as '512MB', found 'much'"),
        ({"memory": 0}, ValueError, "found 0"),
        ({"memory": True}, ValueError, "found True"),
        ({"checkpoint": [1]}, TypeError, "checkpoint lists tensors, found int"),
        ({"checkpoint": [te.placeholder((2,), name="other")]}, ValueError, "other .* is not computed between"),
        ({"memory": "1MB"}, ValueError, "needs extents that are numbers"),
        ({"memory": "1MB", "schedule": "mullapudi2016"}, te.ScheduleError, "need the default schedule"),
    ],
)
def test_bad_input(options: Any, error: Any, text: str) -> None:
    x = te.placeholder((te.var("n"), 4), name="x")
    with pytest.raises(error, match=text):
        te.build(x, te.exp(x) + 1, **options)


def product(a: te.Tensor, b: te.Tensor) -> Any:
    return lambda i, j: te.sum(lambda k: a[k, i] * b[k, j])


def test_a_python_function_is_not_called_again() -> None:
    x = te.placeholder((64, 64), name="x")
    calls: list[int] = []
    y = te.extern(lambda a: (calls.append(1), a + 1)[1], (64, 64), "float32", [x])
    results = [y]
    for k in range(5):
        results.append(te.compute((64, 64), product(results[-1], results[-1]), name=f"h{k}"))
    total = results[-1]
    for k, h in enumerate(results[::-1]):
        total = te.compute((64, 64), product(total, h), name=f"z{k}")
    memory = te.build(x, total, memory="1GB").program.memory
    kern = te.build(x, total, memory=memory.peak - 64 * 64 * 4)
    a = np.random.default_rng(0).standard_normal((64, 64)).astype("f4") / 8
    assert any(call.again for call in kern.program.calls)
    want = te.interpret(total, {x: a})
    calls.clear()
    found = kern(a)
    assert calls == [1]
    np.testing.assert_allclose(found, want, rtol=1e-3, atol=1e-5 * np.abs(want).max())
