"""What a GPU's block cannot hold is refused, from the text of Halide's lowered program."""

from __future__ import annotations

import numpy as np
import pytest

import tedsl as te
from tedsl.backend.compiling.gpu_limits import check_launches
from tests.opencl import on_opencl


def launch(threads: str, shared: str) -> str:
    return (
        f'let r = halide_cuda_run(cuda[0], "_kernel_C", min(n, 4), 1, 1, {threads}, {shared}, (void *)make_struct(1))'
    )


def test_sizes_of_a_block() -> None:
    check_launches("C", launch("32, 32, 1", "0 + (160*4)"))
    check_launches("C", launch("t.s, 1, 1", "0 + ((t532.s + 20000)*4)"))  # not known at build
    with pytest.raises(te.ScheduleError, match=r"kernel 'C': a block of _kernel_C would have 64 x 32 = 2048 threads"):
        check_launches("C", launch("32, 32, 1", "0") + launch("64, 32, 1", "0"))
    with pytest.raises(te.ScheduleError, match="would need 80000 bytes of shared memory, of at most 49152"):
        check_launches("C", launch("8, 1, 1", "0 + (20000*4)"))


def test_blocks_and_threads_of_a_stage() -> None:
    A = te.placeholder((64, 64), name="A")
    C = te.compute((64, 64), lambda i, j: A[j, i] * 2, name="C")
    D = te.compute((2, 2, 2, 2), lambda a, b, c, d: A[a + b, c + d], name="D")
    with pytest.raises(te.ScheduleError, match=r"a block of 2048 threads \(ii: 64 x ji: 32\) is too large"):
        te.Schedule(C)[C].gpu_tile("i", "j", 64, 32)
    view = te.Schedule(D)[D].gpu_blocks("a", "b")
    with pytest.raises(te.ScheduleError, match="a, b, c, d would each be a gpu block; three are possible"):
        view.gpu_blocks("c", "d")


def test_a_schedule_that_asks_for_too_much_shared_memory() -> None:
    A = te.placeholder((64, 20_000), name="A")
    B = te.compute((64, 20_000), lambda i, j: te.exp(A[i, j]), name="B")
    C = te.compute((64, 20_000), lambda i, j: B[i, 19_999 - j], name="C")
    s = te.Schedule(C)
    s[C].gpu_blocks("i").gpu_threads(s[C].split("j", 256)[1])
    s[B].compute_at(C, "i").store_in("shared").bound_extent("j", 20_000)
    with pytest.raises(te.ScheduleError, match="would need 80000 bytes of shared memory"):
        te.build([A], C, schedule=s, target="cuda")


@on_opencl
def test_loops_of_known_length_are_spread_whole() -> None:
    A = te.placeholder((12, 20), name="A")
    C = te.compute((12, 20), lambda i, j: A[i, j] * 2, name="C")
    s = te.Schedule(C)
    io, ii = s[C].split("i", 4)
    s[C].gpu_blocks(io).gpu_threads(ii, "j")
    assert "for jt < 20, gpu thread" in str(s)
    values = np.arange(240, dtype="float32").reshape(12, 20)
    np.testing.assert_array_equal(te.build(A, C, schedule=s, target="opencl")(values), values * 2)
    s = te.Schedule(C)
    with pytest.raises(te.ScheduleError, match=r"s\['C'\]\.gpu_threads\('j', 'k'\).*there is no loop 'k'"):
        s[C].gpu_threads("j", "k")
    assert not s.steps
