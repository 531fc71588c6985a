"""Range inference beside guards: a read that `select`, `where=` or mode="zero" protects does not narrow an axis."""

from __future__ import annotations

import pytest

import tedsl as te
from tedsl.lang.expr import Reduce

A = te.placeholder((10,), name="A")
w = te.placeholder((3,), name="w")


def extents(tensor: te.Tensor) -> tuple[str, ...]:
    return tuple(map(str, tensor.shape))


def reduce_extents(tensor: te.Tensor) -> tuple[str, ...]:
    body = tensor.op.bodies[0]  # type: ignore[attr-defined]
    assert isinstance(body, Reduce)
    return tuple(str(axis.extent) for axis in body.axes)


def test_a_zero_padded_read_does_not_narrow_the_window() -> None:
    same = te.compute((10,), lambda i: te.sum(lambda d: A.at(i + d - 1, mode="zero") * w[d]))
    assert reduce_extents(same) == ("3",)


def test_an_unguarded_read_decides_over_a_guarded_one() -> None:
    assert extents(te.compute(lambda i: te.select(i < 9, A[i + 1], 0.0) + A[i])) == ("10",)
    assert extents(te.compute(lambda i: A[i + 1] + A[i])) == ("9",)


def test_a_guarded_read_decides_where_it_is_alone() -> None:
    assert extents(te.compute(lambda i: te.select(i < 4, A[i], 0.0))) == ("10",)


def test_a_read_of_mode_zero_alone_bounds_nothing() -> None:
    with pytest.raises(ValueError, match="the range of 'i' cannot be inferred"):
        te.compute(lambda i: A.at(i - 1, mode="zero"))
