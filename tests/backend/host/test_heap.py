"""Memory of kernels that waits for their next call."""

import ctypes
import threading

import numpy as np
import pytest

import tedsl as te
from tedsl.backend.host.heap import ALIGNMENT, LEAST, MOST, SLOTS, Heap

_TAKE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64)
_GIVE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)


class Own:
    """A heap of one's own, called as Halide calls it."""

    def __init__(self):
        self.heap = Heap()
        take, give = self.heap.hooks.values()
        self._take, self._give = _TAKE(take), _GIVE(give)

    def take(self, size):
        return self._take(None, size)

    def give(self, block):
        self._give(None, block)


@pytest.fixture
def own():
    heap = Own()
    yield heap
    heap.heap.release()


def test_a_block_that_was_freed_is_taken_again(own):
    first = own.take(1_000_000)
    assert first % ALIGNMENT == 0
    ctypes.memset(first, 1, 1_000_000)
    own.give(first)
    assert own.take(10_000_000) != first, "too small"
    assert own.take(300_000) != first, "much too large"
    assert own.take(999_000) == first
    own.give(first)
    assert own.heap.release() >= 1_000_000
    assert own.heap.release() == 0


@pytest.mark.parametrize("size", [0, 1, LEAST - 1])
def test_small_blocks_are_left_to_the_c_library(own, size):
    block = own.take(size)
    assert block % ALIGNMENT == 0
    ctypes.memset(block, 1, size)
    own.give(block)
    assert own.heap.release() == 0


def test_what_is_kept_is_bounded(own):
    """By bytes and by blocks; those that wait longest make room."""
    size = MOST // 4
    blocks = [own.take(size) for _ in range(6)]  # never touched: no pages
    for block in blocks:
        own.give(block)
    assert MOST // 2 <= own.heap.release() <= MOST
    own.give(own.take(2 * MOST))
    assert own.heap.release() == 0
    for block in [own.take(LEAST) for _ in range(2 * SLOTS)]:
        own.give(block)
    assert own.heap.release() == SLOTS * LEAST


def test_there_is_no_memory(own):
    own.give(own.take(LEAST))
    assert own.take(1 << 62) is None
    assert own.take((1 << 64) - 1) is None
    assert own.heap.release() == 0, "kept memory goes first"
    own.give(None)


def test_blocks_are_nobody_elses(own):
    """Threads that take, mark, look and give back, sizes of several kinds."""
    faults = []

    def work(mark):
        draw = np.random.default_rng(mark)
        for _ in range(300):
            size = int(draw.integers(1, 6)) * LEAST
            block = own.take(size)
            ends = [ctypes.c_uint8.from_address(block + at) for at in (0, size - 1)]
            for end in ends:
                end.value = mark
            if any(end.value != mark for end in ends):
                faults.append(size)
            own.give(block)

    threads = [threading.Thread(target=work, args=(mark,)) for mark in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults


def test_a_kernel_keeps_its_scratch_until_it_is_asked_for():
    n = 300_000
    x = te.placeholder((n,), "float64")
    y = te.compute((n,), lambda i: te.exp(x[i]))
    s = te.Schedule([z := te.compute((n,), lambda i: y[i] * y[n - 1 - i])])
    s[y].compute_root()
    kernel = te.build([x], z, schedule=s)
    te.free_memory()
    a = np.linspace(0, 1, n)
    expected = np.exp(a) * np.exp(a)[::-1]
    for _ in range(3):
        np.testing.assert_allclose(kernel(a), expected, rtol=1e-14)
    assert te.free_memory() >= 8 * n
