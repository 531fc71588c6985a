"""Points of scatters that meet atomically: no term is lost, and what depends on their order is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tedsl as te
from tests.opencl import DEVICE, on_opencl

POINTS, BINS, PART = 4096, 5, 16
SUMS = [("add", t) for t in ("int8", "int64", "float16", "float32")]
OTHERS = [("mul", "uint32"), ("max", "int16"), ("min", "float32")]


def binned(op: str, dtype: str, where: bool = False) -> tuple[list[te.Tensor], te.Tensor, te.Schedule]:
    """Points in bins, in parallel."""
    idx, g = te.placeholder((POINTS,), "int32", name="idx"), te.placeholder((POINTS,), dtype, name="g")
    r = te.reduce_axis(POINTS, "r")
    H = te.scatter((BINS,), [r], (idx[r],), g[r], op, where=(idx[r] != 2) if where else None, name="H")
    s = te.Schedule(H)
    s[H].atomic().parallel(s[H].split("r", PART)[0])
    return [idx, g], H, s


def drawn(dtype: str) -> list[np.ndarray[Any, Any]]:
    """Values whose sums and products are the same in any order."""
    rng = np.random.default_rng(3)
    return [rng.integers(0, BINS, POINTS).astype("int32"), rng.choice([-1, 0, 1], POINTS).astype(dtype)]


@pytest.mark.parametrize(("op", "dtype"), [*SUMS, *OTHERS])
def test_every_kind_equals_the_reference(op: str, dtype: str) -> None:
    inputs, H, s = binned(op, dtype, where=True)
    arrays = drawn(dtype)
    found = te.build(inputs, H, schedule=s, deterministic=False)(*arrays)
    np.testing.assert_array_equal(found, te.interpret(H, dict(zip(inputs, arrays, strict=True))))


def test_no_term_is_lost_where_an_element_comes_back_to_what_it_was() -> None:
    """Two threads add ones and minus ones to one element: every sum in between was there before."""
    g, r = te.placeholder((1 << 20,), name="g"), te.reduce_axis(1 << 20, "r")
    H = te.scatter((2,), [r], (r // (1 << 20),), g[r], name="H")
    s = te.Schedule(H)
    s[H].atomic().parallel(s[H].split("r", 1024)[0])
    kernel = te.build([g], H, schedule=s, deterministic=False)
    rng = np.random.default_rng(0)
    for _ in range(20):
        ones = rng.choice([-1, 1], 1 << 20).astype("float32")
        assert kernel(ones)[0] == ones.sum(dtype="float64")


def test_what_depends_on_the_order_is_refused() -> None:
    inputs, H, s = binned("add", "float32")
    with pytest.raises(te.ScheduleError, match=r"s\['H'\]\.atomic\(\), at .*another order .* deterministic=False"):
        te.build(inputs, H, schedule=s)
    inputs, H, s = binned("add", "int32")
    te.build(inputs, H, schedule=s)


def test_a_scatter_tells_of_it_and_others_do_not_take_it(tmp_path: Path) -> None:
    _, H, _ = binned("add", "int32")
    with pytest.raises(te.ScheduleError, match=r"let them meet by atomic\(\) first"):
        te.Schedule(H)[H].parallel("r")
    with pytest.raises(te.ScheduleError, match="cannot be vectorized"):
        te.Schedule(H)[H].atomic().vectorize("r", 8)
    A = te.placeholder((8, 9), name="A")
    C = te.compute((8,), lambda i: te.sum(lambda k: A[i, k]), name="C")
    with pytest.raises(te.ScheduleError, match=r"only the points of a scatter .* rfactor a reduction"):
        te.Schedule(C)[C].atomic()
    s = te.Schedule(H)
    s[H].atomic()
    s.save(tmp_path / "atomic.json")
    assert te.Schedule.load(tmp_path / "atomic.json", H).directives == s.directives


@on_opencl
@pytest.mark.parametrize(("op", "dtype"), [("add", "uint32"), ("max", "int32")])
def test_on_a_gpu(op: str, dtype: str) -> None:
    inputs, H, _ = binned(op, dtype, where=True)
    s = te.Schedule(H)
    outer, inner = s[H].atomic().split("r", PART)
    s[H].gpu_blocks(outer).gpu_threads(inner).init.gpu_single_thread()
    arrays = drawn(dtype)
    assert "atom.global" in te.build(inputs, H, schedule=s, target="cuda").source("ptx")
    found = te.build(inputs, H, schedule=s, target=DEVICE)(*arrays)
    np.testing.assert_array_equal(found, te.interpret(H, dict(zip(inputs, arrays, strict=True))))


@pytest.mark.parametrize(("op", "dtype"), [("add", "float32"), ("add", "int32"), ("mul", "uint32"), ("max", "uint8")])
def test_what_gpus_do_not_do_right_is_refused(op: str, dtype: str) -> None:
    inputs, H, _ = binned(op, dtype)
    s = te.Schedule(H)
    outer, inner = s[H].atomic().split("r", PART)
    s[H].gpu_blocks(outer).gpu_threads(inner).init.gpu_single_thread()
    with pytest.raises(te.ScheduleError, match=f"sums of uint32 and uint64 .* found {op} of {dtype}"):
        te.build(inputs, H, schedule=s, target="cuda", deterministic=False)
