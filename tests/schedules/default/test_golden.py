"""What each directive makes of the loops, as text: before on the left of the arrow in its documentation, after here."""

from __future__ import annotations

from textwrap import dedent

import pytest

import tedsl as te
from schedules.default import Machine
from schedules.directives import DIRECTIVES, Auto
from schedules.written.text import schedule_text


def text(s: te.Schedule) -> str:
    """The loops, also of the stages that nobody has spoken of, as they are written."""
    return f"\n{schedule_text(s.plan, left=())}\n"


def golden(expected: str) -> str:
    return dedent(expected)


def pointwise() -> tuple[te.Schedule, te.Tensor, te.Tensor]:
    """T[i, j] = A[i, j] + 1; C[i, j] = T[i, j] * 2, 40 x 64."""
    A = te.placeholder((40, 64), name="A")
    T = te.compute((40, 64), lambda i, j: A[i, j] + 1, name="T")
    C = te.compute((40, 64), lambda i, j: T[i, j] * 2, name="C")
    return te.Schedule(C), T, C


def single() -> tuple[te.Schedule, te.Tensor]:
    A = te.placeholder((40, 64), name="A")
    C = te.compute((40, 64), lambda i, j: A[i, j] + 1, name="C")
    return te.Schedule(C), C


def row_sum() -> tuple[te.Schedule, te.Tensor, te.Tensor]:
    A = te.placeholder((8, 40), name="A")
    k = te.reduce_axis(40, "k")
    C = te.compute((8,), lambda i: te.sum(A[i, k], axis=k), name="C")
    return te.Schedule(C), A, C


def test_before() -> None:
    s, T, C = pointwise()
    assert text(s) == golden("""
        for i < 40:
          for j < 64:
            T[i, j] = A[i, j] + 1.0
        for i < 40:
          for j < 64:
            C[i, j] = T[i, j] * 2.0
        """)
    s, _, C = row_sum()
    assert text(s) == golden("""
        for i < 8:
          C[i] = 0.0
        for i < 8:
          for k < 40:
            C[i] += A[i, k]
        """)


def test_split() -> None:
    s, C = single()
    io, ii = s[C].split("i", 16)
    assert (io, ii) == ("io", "ii")
    assert text(s) == golden("""
        for io < 3:
          for ii < 16:
            for j < 64:
              i = io*16 + ii   if i < 40
              C[i, j] = A[i, j] + 1.0
        """)


def test_split_that_divides_has_no_guard() -> None:
    s, C = single()
    s[C].split("j", 16, names=("outer", "inner"))
    assert text(s) == golden("""
        for i < 40:
          for outer < 4:
            for inner < 16:
              j = outer*16 + inner
              C[i, j] = A[i, j] + 1.0
        """)


def test_split_of_a_symbolic_extent() -> None:
    n = te.var("n")
    A = te.placeholder((n,), name="A")
    C = te.compute((n,), lambda i: A[i], name="C")
    s = te.Schedule(C)
    s[C].split("i", 16)
    assert text(s) == golden("""
        for io < (n + 15) // 16:
          for ii < 16:
            i = io*16 + ii   if i < n
            C[i] = A[i]
        """)


def test_tile() -> None:
    s, C = single()
    i, j = s[C].axes
    assert s[C].tile(i, j, 8, 16) == ("io", "jo", "ii", "ji")
    assert text(s) == golden("""
        for io < 5:
          for jo < 4:
            for ii < 8:
              for ji < 16:
                j = jo*16 + ji
                i = io*8 + ii
                C[i, j] = A[i, j] + 1.0
        """)


def test_fuse() -> None:
    s, C = single()
    assert s[C].fuse("i", "j") == "ij"
    assert text(s) == golden("""
        for ij < 2560:
          i = ij // 64, j = ij % 64
          C[i, j] = A[i, j] + 1.0
        """)


def test_reorder() -> None:
    s, C = single()
    s[C].reorder("j", "i")
    assert text(s) == golden("""
        for j < 64:
          for i < 40:
            C[i, j] = A[i, j] + 1.0
        """)


def test_reorder_leaves_other_loops_in_their_places() -> None:
    s, C = single()
    s[C].tile("i", "j", 8, 16)
    s[C].reorder("ji", "io")
    assert s[C].loops == ("ji", "jo", "ii", "io")


def test_unroll() -> None:
    s, C = single()
    s[C].unroll("i", 4)
    assert text(s) == golden("""
        for io < 10:
          for iu < 4, unrolled:
            for j < 64:
              i = io*4 + iu
              C[i, j] = A[i, j] + 1.0
        """)


def test_vectorize() -> None:
    s, C = single()
    s[C].vectorize("j", 16)
    assert text(s) == golden("""
        for i < 40:
          for jo < 4:
            for jv < 16, vectorized:
              j = jo*16 + jv
              C[i, j] = A[i, j] + 1.0
        """)


def test_vectorize_a_loop_that_is_a_vector() -> None:
    s, C = single()
    _, ji = s[C].split("j", 16)
    s[C].vectorize(ji, 16)
    assert s[C].loops == ("i", "jo", "ji")


def test_parallel() -> None:
    s, C = single()
    s[C].parallel("i")
    assert text(s) == golden("""
        for i < 40, parallel:
          for j < 64:
            C[i, j] = A[i, j] + 1.0
        """)


def test_gpu() -> None:
    s, C = single()
    s[C].gpu_tile("i", "j", 8, 16)
    assert text(s) == golden("""
        for io < 5, gpu block:
          for jo < 4, gpu block:
            for ii < 8, gpu thread:
              for ji < 16, gpu thread:
                j = jo*16 + ji
                i = io*8 + ii
                C[i, j] = A[i, j] + 1.0
        """)


def test_gpu_blocks_and_threads() -> None:
    s, C = single()
    s[C].gpu_blocks("i").gpu_threads(s[C].split("j", 32)[1])
    assert text(s) == golden("""
        for i < 40, gpu block:
          for jo < 2:
            for ji < 32, gpu thread:
              j = jo*32 + ji
              C[i, j] = A[i, j] + 1.0
        """)


def test_prefetch() -> None:
    s, C = single()
    s[C].prefetch("A", "i", 2)
    assert text(s) == golden("""
        for i < 40:
          prefetch A for i + 2
          for j < 64:
            C[i, j] = A[i, j] + 1.0
        """)


def test_compute_at() -> None:
    s, T, C = pointwise()
    s[T].compute_at(s[C], "i")
    assert text(s) == golden("""
        for i < 40:
          T: what C needs here
          for i < 1 of 40:
            for j < 64:
              T[i, j] = A[i, j] + 1.0
          for j < 64:
            C[i, j] = T[i, j] * 2.0
        """)


def test_compute_root_takes_compute_at_back() -> None:
    s, T, C = pointwise()
    before = text(s)
    s[T].compute_at(s[C], "i").compute_root()
    assert text(s) == before


def test_compute_inline() -> None:
    s, T, C = pointwise()
    s[T].compute_inline()
    assert text(s) == golden("""
        T inline: T[i, j] = A[i, j] + 1.0
        for i < 40:
          for j < 64:
            C[i, j] = T[i, j] * 2.0
        """)


def test_store_at() -> None:
    s, T, C = pointwise()
    s[T].compute_at(s[C], "j").store_at(s[C], "i")
    assert text(s) == golden("""
        for i < 40:
          for j < 64:
            T: what is new of what C needs here, stored at C's loop i
            for i < 1 of 40:
              for j < 1 of 64:
                T[i, j] = A[i, j] + 1.0
            C[i, j] = T[i, j] * 2.0
        """)


def test_store_root() -> None:
    s, T, C = pointwise()
    s[T].compute_at(s[C], "j").store_root()
    assert "T: what is new of what C needs here, stored at the root" in str(s)


def test_reorder_storage_store_in_and_bound_extent() -> None:
    s, T, C = pointwise()
    s[T].reorder_storage("j", "i").store_in("heap").bound_extent("i", 40)
    assert text(s).startswith("\nT: laid out as [j, i], in heap memory, 40 along i at a time\nfor i < 40:\n")


def test_cache_write() -> None:
    s, _, C = row_sum()
    local = s[C].cache_write()
    assert local.name == "C_local"
    assert text(s) == golden("""
        for i < 8:
          C_local[i] = 0.0
        for i < 8:
          for k < 40:
            C_local[i] += A[i, k]
        for i < 8:
          C[i] = C_local[i]
        """)


def test_cache_read() -> None:
    s, A, C = row_sum()
    assert s[C].cache_read(A).name == "A_cached"
    assert text(s) == golden("""
        for d0 < 8:
          for d1 < 40:
            A_cached[d0, d1] = A[d0, d1]
        for i < 8:
          C[i] = 0.0
        for i < 8:
          for k < 40:
            C[i] += A_cached[i, k]
        """)


def test_pack() -> None:
    s, A, C = row_sum()
    s[C].pack(A, ["1o", "0", "1i"], [0, 16])
    assert text(s) == golden("""
        for d1o < 3:
          for d0 < 8:
            for d1i < 16:
              A_packed[d1o, d0, d1i] = select(d1o * 16 + d1i < 40, A[d0, d1o * 16 + d1i], 0.0)
        for i < 8:
          C[i] = 0.0
        for i < 8:
          for k < 40:
            C[i] += A_packed[k // 16, i, k % 16]
        """)


def test_rfactor() -> None:
    s, _, C = row_sum()
    (k,) = s[C].reduce_axes
    ko, ki = s[C].split(k, 16)
    assert s[C].rfactor(ko).name == "C_rf"
    assert text(s) == golden("""
        for i < 8:
          for ko < 3:
            C_rf[i, ko] = 0.0
        for i < 8:
          for ko < 3:
            for ki < 16:
              if ko * 16 + ki < 40:
                C_rf[i, ko] += A[i, ko * 16 + ki]
        C: its terms in another order: other bits
        for i < 8:
          C[i] = 0.0
        for i < 8:
          for ko < 3:
            C[i] += C_rf[i, ko]
        """)


def test_rfactor_over_a_whole_axis() -> None:
    s, _, C = row_sum()
    s[C].rfactor("k")
    assert text(s) == golden("""
        for i < 8:
          for k < 40:
            C_rf[i, k] = A[i, k]
        for i < 8:
          C[i] = 0.0
        for i < 8:
          for k < 40:
            C[i] += C_rf[i, k]
        """)


def test_async_() -> None:
    x = te.placeholder((12, 18), name="x")
    T = te.compute((12, 18), lambda i, j: x[i, j] * 2, name="T")
    U = te.compute((12, 18), lambda i, j: T[i, j] - 1, name="U")
    s = te.Schedule(U)
    io, ii = s[U].split("i", 4)
    s[T].compute_at(U, io).hoist_storage().async_()
    assert text(s) == golden("""
        for io < 3:
          T: what U needs here, allocated at the root, computed ahead by a thread of its own
          for i < 4 of 12:
            for j < 18:
              T[i, j] = x[i, j] * 2.0
          for ii < 4:
            for j < 18:
              i = io*4 + ii
              U[i, j] = T[i, j] - 1.0
        """)
    s[U].unroll(ii).parallel(io)
    assert text(s).splitlines()[2] == (
        "  T: what U needs here, allocated at the root, computed in turn (U's loop io is parallel)"
    )


def test_a_loop_that_keeps_its_name_has_another_one_in_print() -> None:
    s, C = single()
    s[C].vectorize("j", 8).unroll("jo", 4)
    assert s[C].loops == ("i", "j", "ju", "jv")
    expected = """
        for i < 40:
          for joo < 2:
            for ju < 4, unrolled:
              for jv < 8, vectorized:
                jo = joo*4 + ju
                j = jo*8 + jv
                C[i, j] = A[i, j] + 1.0
        """
    assert text(s) == golden(expected)
    s, C = single()
    s[C].vectorize("j", 8).split("jo", 2)
    fused = s[C].fuse("i", "jo", name="i")
    s[C].parallel(fused)
    assert text(s) == golden("""
        for io < 160, parallel:
          for ji < 2:
            for jv < 8, vectorized:
              i = io // 4, jo = io % 4
              jo1 = jo*2 + ji
              j = jo1*8 + jv
              C[i, j] = A[i, j] + 1.0
        """)


def test_init() -> None:
    s, _, C = row_sum()
    s[C].init.vectorize("i", 8)
    assert text(s) == golden("""
        for io < 1:
          for iv < 8, vectorized:
            i = io*8 + iv
            C[i] = 0.0
        for i < 8:
          for k < 40:
            C[i] += A[i, k]
        """)


def test_scatter_atomic_and_scan() -> None:
    idx, g = te.placeholder((9,), "int32", name="idx"), te.placeholder((9, 4), name="g")
    r, c = te.reduce_axis(9, "r"), te.reduce_axis(4, "c")
    W = te.scatter((5, 4), [r, c], (idx[r], c), g[r, c], name="W")
    s = te.Schedule(W)
    assert s[W].axes == ("c",)
    assert s[W].reduce_axes == ("r",)
    s[W].reorder("r", "c").vectorize("c")
    assert text(s) == golden("""
        for d0 < 5:
          for c < 4:
            W[d0, c] = 0.0
        for r < 9:
          for co < 1:
            for cv < 4, vectorized:
              c = co*4 + cv
              W[idx[r], c] += g[r, c]
        """)
    s = te.Schedule(W)
    s[W].atomic().parallel("r")
    assert text(s) == golden("""
        W: its terms in another order: other bits
        for d0 < 5:
          for c < 4:
            W[d0, c] = 0.0
        for c < 4:
          for r < 9, parallel:
            atomically:
              W[idx[r], c] += g[r, c]
        """)
    y = te.scan((9, 4), lambda y, t, i: te.select(t == 0, g[t, i], y[t - 1, i] + g[t, i]), name="y")
    s = te.Schedule(y)
    assert s[y].axes == ("t", "i")
    assert text(s) == golden("""
        for i < 4:
          for t < 9:
            y[t, i] = select(t == 0, g[t, i], y[t - 1, i] + g[t, i])
        """)


def test_auto() -> None:
    s, T, C = pointwise()
    machine = Machine(vector_bytes=32, vector_registers=16, l1=1 << 15, l2=1 << 20, l3=1 << 23, cores=2)
    s.add(Auto(scheduler="default", machine=tuple(machine.to_json().items())))
    assert text(s) == golden("""
        T inline: T[i, j] = A[i, j] + 1.0
        for i < 40:
          for j_o < 8:
            for j_v < 8, vectorized:
              j = j_o*8 + j_v
              C[i, j] = T[i, j] * 2.0
        """)


def test_gpu_single_thread() -> None:
    s, _, C = row_sum()
    s[C].gpu_single_thread().init.gpu_single_thread()
    assert text(s) == golden("""
        on one gpu thread:
          for i < 8:
            C[i] = 0.0
        on one gpu thread:
          for i < 8:
            for k < 40:
              C[i] += A[i, k]
        """)


def window() -> tuple[te.Schedule, te.Tensor, te.Tensor]:
    """C[i, j] = T[i, j] + T[i + 2, j], 30 x 32."""
    A = te.placeholder((32, 32), name="A")
    T = te.compute((32, 32), lambda i, j: A[i, j] + 1, name="T")
    C = te.compute((30, 32), lambda i, j: T[i, j] + T[i + 2, j], name="C")
    return te.Schedule(C), T, C


def test_bound() -> None:
    A = te.placeholder((40,), name="A")
    T = te.compute((40,), lambda i: A[i] + 1, name="T")
    s = te.Schedule(te.compute((4,), lambda i: T[i + 3], name="C"))
    s[T].compute_root().bound("i", 3, 4).vectorize("i")
    assert text(s) == golden("""
        T: i from 3 to 7
        for i < 4, vectorized:
          T[i] = A[i] + 1.0
        for i < 4:
          C[i] = T[i + 3]
        """)


def test_align_storage_and_hoist_storage() -> None:
    s, T, C = window()
    s[T].compute_at(C, "j").align_storage("j", 16).hoist_storage(C, "i")
    assert str(s).splitlines()[2] == (
        "    T: what C needs here, each element 2.81 times, rows along j in multiples of 16, allocated at C's loop i"
    )
    s[T].hoist_storage()
    assert str(s).splitlines()[2].endswith("in multiples of 16, allocated at the root")


def test_fold_storage() -> None:
    s, T, C = window()
    s[T].compute_at(C, "i").store_root().fold_storage("i", 4)
    assert str(s).splitlines()[1] == "  T: what is new of what C needs here, stored at the root, the last 4 along i"


def test_never_partition_and_always_partition() -> None:
    s, C = single()
    s[C].never_partition("i").always_partition("j")
    assert text(s) == golden("""
        for i < 40, in one piece:
          for j < 64, cut:
            C[i, j] = A[i, j] + 1.0
        """)


def test_clone_in() -> None:
    A = te.placeholder((8,), name="A")
    T = te.compute((8,), lambda i: A[i] + 1, name="T")
    C = te.compute((8,), lambda i: T[i] * 2, name="C")
    s = te.Schedule(te.compute((8,), lambda i: C[i] + T[i], name="D"))
    assert s[T].clone_in(C).compute_at(C, "i").name == "T_clone"
    assert text(s) == golden("""
        for i < 8:
          T[i] = A[i] + 1.0
        for i < 8:
          T_clone: what C needs here
          for i < 1 of 8:
            T_clone[i] = A[i] + 1.0
          C[i] = T_clone[i] * 2.0
        for i < 8:
          D[i] = C[i] + T[i]
        """)


def test_compute_with() -> None:
    A = te.placeholder((40, 64), name="A")
    T, U = (te.compute((40, 64), lambda i, j, c=c: A[i, j] * c, name=name) for name, c in (("T", 2), ("U", 3)))
    s = te.Schedule([T, U])
    s[T].compute_with(U, "i")
    assert text(s) == golden("""
        T: in the loops of U through i
        for i < 40:
          for j < 64:
            T[i, j] = A[i, j] * 2.0
        for i < 40:
          for j < 64:
            U[i, j] = A[i, j] * 3.0
        """)


def test_cut_at() -> None:
    n, m = te.var("n"), te.var("m")
    A, B = te.placeholder((n,), name="A"), te.placeholder((m,), name="B")
    C = te.compute((n + m,), lambda i: te.select(i < n, A[i], B[i - n]), name="C")
    s = te.Schedule(C)
    s[C].cut_at("i", n).vectorize("i", 8)
    assert text(s) == golden("""
        C: in pieces, i cut at n
        for io < (n + m + 7) // 8:
          for iv < 8, vectorized:
            i = io*8 + iv   if i < n + m
            C[i] = select(i < n, A[i], B[i - n])
        """)


def test_unswitch() -> None:
    m, A = te.placeholder((), "int32", name="m"), te.placeholder((40, 64), name="A")
    C = te.compute((40, 64), lambda i, j: te.select(m[()] == 0, A[i, j], -A[i, j]), name="C")
    s = te.Schedule(C)
    s[C].unswitch("j").vectorize("j", 8)
    assert text(s) == golden("""
        C: by cases, along j
        for i < 40:
          for jo < 8:
            for jv < 8, vectorized:
              j = jo*8 + jv
              C[i, j] = select(m == 0, A[i, j], -A[i, j])
        """)


def test_specialize() -> None:
    n = te.var("n")
    A = te.placeholder((n,), name="A")
    C = te.compute((n,), lambda i: A[i] + 1, name="C")
    s = te.Schedule(C)
    s[C].specialize(n % 8 == 0).vectorize("i", 8)
    s[C].specialize("n < 100")
    s[C].parallel("i")
    assert text(s) == golden("""
        if n % 8 == 0:
          for io < (n + 7) // 8:
            for iv < 8, vectorized:
              i = io*8 + iv   if i < n
              C[i] = A[i] + 1.0
        elif n < 100:
          for i < n:
            C[i] = A[i] + 1.0
        else:
          for i < n, parallel:
            C[i] = A[i] + 1.0
        """)


def test_vectorize_and_unroll_take_all_that_there_is() -> None:
    s, T, C = window()
    s[C].split("i", 4)
    s[T].compute_at(C, "io").unroll("i")
    assert "    for iu < 6, unrolled:" in str(s)


def test_diff_shows_what_changed() -> None:
    s, C = single()
    assert s.diff() == ""
    s[C].parallel("i")
    assert f"\n{s.diff()}\n" == golden("""
        -for i < 40:
        +for i < 40, parallel:
           for j < 64:
             C[i, j] = A[i, j] + 1.0
        """)


@pytest.mark.parametrize("verb", sorted(DIRECTIVES))
def test_every_directive_has_a_golden_text(verb: str) -> None:
    names = {name for name in globals() if name.startswith("test_")}
    assert any(verb in name or verb.removeprefix("store_") in name or verb.startswith("gpu") for name in names)


@pytest.mark.parametrize(
    ("at", "store", "said", "rows", "vectors"),
    [
        ("yo", "", "what C needs here, each element 1.04 times", "34 of 98", "5"),
        ("yi", "", "what C needs here, each element 2.94 times", "3 of 98", "5"),
        ("yi", "yo", "what is new of what C needs here, stored at C's loop yo", "1 of 98", "5"),
        ("x", "yo", "what is new of what C needs here, stored at C's loop yo", "1 of 98", "1 of 5"),
        ("x", "", "what C needs here, each element 2.94 times", "3 of 98", "1 of 5"),
    ],
)
def test_loops_inside_a_loop_have_the_extents_that_they_have_there(
    at: str, store: str, said: str, rows: str, vectors: str
) -> None:
    A = te.placeholder((98, 82), name="A")
    T = te.compute((98, 80), lambda y, x: A[y, x] + A[y, x + 1] + A[y, x + 2], name="T")
    s = te.Schedule(C := te.compute((96, 80), lambda y, x: T[y, x] + T[y + 1, x] + T[y + 2, x], name="C"))
    s[C].split("y", 32)
    s[C].vectorize("x", 16)
    s[T].compute_at(C, at).vectorize("x", 16)
    if store:
        s[T].store_at(C, store)
    lines = [line.strip() for line in str(s).splitlines()]
    begin = lines.index(f"T: {said}")
    assert lines[begin + 1 : begin + 3] == [f"for y < {rows}:", f"for xo < {vectors}:"]


def test_extents_that_nobody_can_tell_are_at_most_those_of_the_whole() -> None:
    n = te.var("n")
    A, B = te.placeholder((n, 8), name="A"), te.placeholder((n,), "int32", name="B")
    T = te.compute((n, 8), lambda i, j: A[i, j] + 1, name="T")
    near = te.compute((n - 2, 8), lambda i, j: T[i, j] + T[i + 2, j], name="near")
    apart = te.compute((n, 8), lambda i, j: T[te.clip(B[i], 0, n - 1), 7 - j], name="apart")
    for reader, rows in ((near, "3 of n"), (apart, "at most n")):
        s = te.Schedule(reader)
        s[T].compute_at(reader, "i")
        assert f"for i < {rows}:\n    for j < 8:" in str(s)
