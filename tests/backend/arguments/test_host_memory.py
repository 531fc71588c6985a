"""Memory that is kept between calls is given back, and calls go on."""

from __future__ import annotations

import ctypes
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import tedsl as te
from tedsl.backend.arguments.blocks import Binding

X = te.placeholder((64,), name="x")
A = np.arange(64, dtype="f4")


def test_blocks_are_forgotten_and_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Binding] = []
    begun = Binding.__init__

    def noted(self: Binding, *args: object) -> None:
        begun(self, *args)  # type: ignore[arg-type]
        made.append(self)

    monkeypatch.setattr(Binding, "__init__", noted)
    kern = te.build(X, X * 3)
    kern(A)
    assert sum(len(binding._free) for binding in made) > 0
    assert te.free_memory() > 0
    assert not any(binding._free for binding in made)
    np.testing.assert_array_equal(kern(A), A * 3)


def test_calls_in_other_threads_go_on() -> None:
    kern = te.build(X, te.tanh(X) + X)
    expected = kern(A)

    def call(_: int) -> bool:
        return all(np.array_equal(kern(A), expected) for _ in range(200))

    with ThreadPoolExecutor(4) as pool:
        found = pool.map(call, range(8))
        for _ in range(50):
            te.free_memory()
        assert all(found)


@pytest.mark.skipif(not hasattr(ctypes.pythonapi, "malloc_trim"), reason="only GNU's C library gives memory back")
def test_what_the_c_library_keeps_goes_to_the_system() -> None:
    """As between the steps of a large program: many blocks are freed below one that is in use."""

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    assert sys.platform == "linux"
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    blocks = [ctypes.c_void_p(libc.malloc(ctypes.c_size_t(1 << 16))) for _ in range(800)]
    for block in blocks:
        ctypes.memset(block, 1, 1 << 16)
    for block in blocks[:-1]:
        libc.free(block)
    before = resident()
    freed = te.free_memory()
    assert freed >= 40 << 20
    assert before - resident() >= 40 << 20
    libc.free(blocks[-1])
    assert te.free_memory() >= 0
