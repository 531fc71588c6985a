"""Random in-place programs: NumPy and te.functionalize agree on results and on the memory of every argument."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import tedsl as te
from tedsl.mutation.tracing import Storage
from tests.mutation.programs import Program, write_program


def check(program: Program, interpreted: bool = True) -> None:
    buffers, arguments = program.arrays()
    own, given = program.arrays()
    with np.errstate(all="ignore"):
        expected = program.function()(*arguments)
        found = te.functionalize(program.function(), interpreted=interpreted)(*given)
    for k, (one, other) in enumerate(zip(expected, found, strict=True)):
        note = f"result {k} of\n{program.source}{program.arguments} {program.buffers}"
        assert np.shape(one) == np.shape(other), note
        assert one.dtype == other.dtype, note
        assert np.array_equal(one, other, equal_nan=one.dtype.kind == "f"), f"{note}\nexpected {one}\nfound {other}"
        inside = [np.shares_memory(one, b) for b in (*buffers, *arguments)]
        assert inside == [np.shares_memory(other, b) for b in (*own, *given)], f"memory of {note}"
    for k, (one, other) in enumerate(zip((*buffers, *arguments), (*own, *given), strict=True)):
        note = f"memory {k} after\n{program.source}{program.arguments} {program.buffers}"
        assert np.array_equal(one, other, equal_nan=one.dtype.kind == "f"), f"{note}\nexpected {one}\nfound {other}"


@pytest.mark.parametrize("seed", range(10))
def test_programs_agree_with_numpy(seed: int) -> None:
    check_several(random.Random(seed), 50)


def test_the_suite_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """With reads that are not forgotten when their storage is written, some program gives other values."""
    monkeypatch.setattr(Storage, "write", stale_write)
    with pytest.raises(AssertionError, match=r"(result|memory) \d"):
        check_several(random.Random(0), 50)


def check_several(rng: random.Random, count: int) -> None:
    for _ in range(count):
        check(write_program(rng))


def stale_write(self: Storage, ghost: Any, new: Any, write: Any = Storage.write) -> None:
    kept = dict(self._reads)
    write(self, ghost, new)
    self._reads.update(kept)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 200))
def test_many_programs_agree_with_numpy(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(100):
        check(write_program(rng, 12))
