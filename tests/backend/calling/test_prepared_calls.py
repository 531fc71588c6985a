"""Calls that were prepared: with many targets, and with targets in a list."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, strategies as st

import tedsl as te
from tedsl.backend.calling import prepared_calls
from tedsl.backend.calling.kernel import Kernel

SPANS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 12), st.sampled_from([1, 1, 1, 2, -1])), max_size=8)


def views(spans: list[tuple[int, int, int]]) -> list[Any]:
    memory = views.memory  # type: ignore[attr-defined]
    return [memory[begin : begin + count][::step] for begin, count, step in spans]


views.memory = np.zeros(80, "float32")  # type: ignore[attr-defined]


@given(SPANS, SPANS)
@example([(0, 4, 1)], [(4, 4, 1), (2, 1, 1)])
@example([(0, 4, 1)], [(4, 4, 1), (8, 2, 1)])
def test_arrays_that_are_apart_at_once_are_so_in_pairs(inputs: Any, targets: Any) -> None:
    given_arrays, made = views(inputs), views(targets)
    everything = [*((a, True) for a in made), *((a, False) for a in given_arrays)]
    in_pairs = not any(
        (first or second) and np.may_share_memory(a, b)
        for k, (a, first) in enumerate(everything)
        for b, second in everything[:k]
    )
    at_once = prepared_calls._are_apart(given_arrays, made)
    assert not at_once or in_pairs
    contiguous = all(a.flags.c_contiguous and a.size for a, _ in everything)
    assert at_once or not in_pairs or not contiguous


def test_targets_in_a_list_are_prepared_too(monkeypatch: pytest.MonkeyPatch) -> None:
    x = te.placeholder((5,), name="x")
    kernel = te.build(x, [x + k for k in range(6)])
    a, out = np.arange(5, dtype="float32"), [np.empty(5, "float32") for _ in range(6)]
    kernel(a, out=out)
    monkeypatch.setattr(Kernel, "_general", lambda *_: pytest.fail("the call was not prepared"))
    for targets in (out, tuple(out)):
        results = kernel(a + 1, out=targets)
        for k, (found, target) in enumerate(zip(results, out, strict=True)):
            assert found is target
            np.testing.assert_array_equal(found, np.arange(5) + 1 + k)


def test_targets_that_overlap_are_told_among_many() -> None:
    x = te.placeholder((5,), name="x")
    kernel = te.build(x, [x + k for k in range(6)])
    a, memory = np.arange(5, dtype="float32"), np.empty(40, "float32")
    apart = [memory[5 * k : 5 * k + 5] for k in range(6)]
    kernel(a, out=apart)
    with pytest.raises(te.AliasError):
        kernel(a, out=[*apart[:5], memory[24:29]])
    fixed = [*apart[:5], np.empty(5, "float32")]
    fixed[5].flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        kernel(a, out=fixed)
