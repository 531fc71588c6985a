"""Several threads that write programs at once share one set of nodes."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import pytest

import tedsl as te
from tedsl.lang.expr import Expr


@pytest.fixture
def _hasty() -> Iterator[None]:
    """Threads take turns as often as they can."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


@pytest.mark.usefixtures("_hasty")
def test_threads_that_write_the_same_expression_get_the_same_node() -> None:
    A = te.placeholder((64,), name="A")
    step, kept = threading.Barrier(4), [list[Expr]() for _ in range(4)]

    def write(mine: list[Expr]) -> None:
        for i in range(300):
            step.wait()
            mine.append(A[i % 64] * (2.5 + i) + i)

    workers = [threading.Thread(target=write, args=(mine,)) for mine in kept]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert {len(mine) for mine in kept} == {300}
    assert all(a is b for mine in kept for a, b in zip(mine, kept[0], strict=True))
