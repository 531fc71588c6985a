"""Stages that read one tensor here and another one there: in pieces, wherever that pays, however they are spelled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tedsl as te
from schedules.cases import position_of
from schedules.pieces import pieces_of
from tedsl.lang.tensor import Placeholder
from tedsl.lang.traverse import stages_of
from tests.levels import LEVELS_HERE

A, B, C = (te.placeholder((100,), name=name) for name in "ABC")
CHANCE = np.random.default_rng(0)


def cuts(output: te.Tensor) -> dict[str, tuple[str, ...]]:
    """Where the default schedule cuts the loops of an output."""
    plan = te.Schedule([output]).auto().plan
    return {d.loop: d.positions for d in plan.cut_loops(plan.program.names[plan.program.outputs[0].op])}


def check(output: te.Tensor) -> None:
    """The kernel gives what the reference does."""
    inputs = [op.output() for op in stages_of([output]) if isinstance(op, Placeholder)]
    feeds = {t: CHANCE.integers(-9, 9, tuple(int(e.value) for e in t.extents)).astype(str(t.dtype)) for t in inputs}
    np.testing.assert_array_equal(te.build(inputs, output)(*feeds.values()), te.interpret(output, feeds))


SPELLINGS: dict[str, Callable[[Any], Any]] = {
    "nested": lambda i: te.select(i < 100, A[i], te.select(i < 200, B[i - 100], C[i - 200])),
    "and": lambda i: te.select((i >= 100) & (i < 200), B[i - 100], te.select(i < 100, A[i], C[i - 200])),
    "or": lambda i: te.select((i < 100) | (i >= 200), te.select(i < 100, A[i], C[i - 200]), B[i - 100]),
    "not": lambda i: te.select(~(i > 99), A[i], te.select(i < 200, B[i - 100], C[i - 200])),
    "quotient": lambda i: te.select(i // 100 == 0, A[i % 100], te.select(i // 100 == 1, B[i % 100], C[i % 100])),
    "multiple": lambda i: te.select(2 * i < 200, A[i], te.select(-i > -200, B[i - 100], C[i - 200])),
    "ends": lambda i: te.select(
        i < 100,
        A[te.minimum(i, 99)],
        te.select(i <= 199, B[te.clip(i - 100, 0, 99)], C[te.maximum(i - 200, 0)]),
    ),
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_spellings_of_a_concatenation_have_the_same_loops(name: str) -> None:
    joined = te.compute((300,), SPELLINGS[name], name="joined")
    assert cuts(joined) == {"i": ("100", "200")}
    plan = te.Schedule([joined]).auto().plan
    made = pieces_of(
        joined.op.axes, joined.op.bodies, {joined.op.axes[0]: [position_of(p, {}) for p in ("100", "200")]}
    )
    assert plan.cut_loops("joined")
    assert [str(p.bodies[0]) for p in made] == ["A[i]", "B[i]", "C[i]"]


def test_what_is_concatenated_is_loaded_as_it_lies() -> None:
    kernel = te.build([A, B, C], te.compute((300,), SPELLINGS["quotient"], name="joined"), target="x86-64-v3")
    text = kernel.source("stmt")
    assert "select(" not in text
    assert "min(" not in text
    assert "%" not in text


@pytest.mark.parametrize(
    ("what", "expected"),
    {
        "stack": (lambda x: te.stack([x, x + 1, x * 2], 0), {"i": ("1", "2")}),
        "rows": (lambda x: te.concatenate([x, x + 1], 0) * 2, {"i": ("20",)}),
        "columns": (lambda x: te.maximum(te.concatenate([x, -x], 1), 0), {"j": ("40",)}),
        "shifted": (
            lambda x: te.compute((20, 40), lambda i, j: x[(i + 10) % 20, (j + 20) % 40]),
            {"i": ("10",), "j": ("20",)},
        ),
        "wrapped": (lambda x: te.pad(x, ((10, 10), (0, 0)), mode="wrap"), {"i": ("10", "30")}),
        "turned around": (lambda x: te.compute((20, 40), lambda i, j: x[te.abs(i - 10), j]), {"i": ("10",)}),
    }.values(),
)
def test_places_where_a_stage_changes_what_it_reads(what: Any, expected: dict[str, tuple[str, ...]]) -> None:
    made = what(te.placeholder((20, 40), name="x"))
    assert cuts(made) == expected
    check(made)


def test_thin_borders_and_short_rows_stay_in_one_loop() -> None:
    x = te.placeholder((200, 64), name="x")
    assert "j" not in cuts(te.pad(x, 1))
    assert cuts(te.stack([x, x], 2)) == {}
    assert cuts(te.compute((200, 64), lambda i, j: te.select(i + j < 100, x[i, j], 0.0))) == {}


def test_sizes_that_are_known_when_the_kernel_is_called() -> None:
    n, m = te.var("n"), te.var("m")
    u, v = te.placeholder((n,), name="u"), te.placeholder((m,), name="v")
    joined = te.concatenate([u, v])
    half = te.compute((n,), lambda i: u[(i + n // 2) % n])
    assert cuts(joined) == {"i": ("n",)}
    assert cuts(half) == {"i": ("n - n // 2",)}
    bordered = te.compute((n + 6,), lambda i: u.at(i - 3, mode="wrap"))
    assert cuts(bordered) == {"i": ("3", "maximum(n, 1) + 3")}
    for sizes in ((37, 50), (0, 5), (5, 0), (1, 1)):
        arrays = [CHANCE.random(s).astype("float32") for s in sizes]
        np.testing.assert_array_equal(te.build([u, v], joined)(*arrays), np.concatenate(arrays))
    kernel = te.build(u, half)
    for size in (1, 2, 3, 31, 64):
        array = CHANCE.random(size).astype("float32")
        np.testing.assert_array_equal(kernel(array), np.roll(array, -(size // 2)))
        np.testing.assert_array_equal(te.build(u, bordered)(array), np.pad(array, 3, mode="wrap"))


@pytest.mark.parametrize("level", LEVELS_HERE)
@pytest.mark.parametrize("dtype", ["bool", "uint16", "float64"])
def test_every_width_of_elements(dtype: str, level: str) -> None:
    p, q = (te.placeholder((7, n), dtype, name=f"p{n}") for n in (33, 65))
    a, b = (CHANCE.integers(0, 2, (7, n)).astype(dtype) for n in (33, 65))
    np.testing.assert_array_equal(
        te.build([p, q], te.concatenate([p, q], 1), target=level)(a, b), np.concatenate([a, b], 1)
    )


def test_arrays_of_any_layout() -> None:
    p, q = te.placeholder((30, 40), name="p"), te.placeholder((30, 50), name="q")
    kernel = te.build([p, q], te.concatenate([p, q], 1))
    a, b = CHANCE.random((80, 60)).astype("float32"), CHANCE.random((50, 30)).astype("float32")
    out = np.zeros((90, 30), "float32").T
    np.testing.assert_array_equal(
        kernel(a[::2, ::2].T[:30], b.T, out=out), np.concatenate([a[::2, ::2].T[:30], b.T], 1)
    )
    whole = np.ones((30, 90), "float32")
    kernel(a[:60:2, :40], b.T, out=whole, mode="add")
    np.testing.assert_array_equal(whole, 1 + np.concatenate([a[:60:2, :40], b.T], 1))


def test_a_result_on_the_memory_of_an_input() -> None:
    x, y = te.placeholder((64, 100), name="x"), te.placeholder((64, 100), name="y")
    bodies: list[Callable[[Any, Any], Any]] = [
        lambda i, j: te.select(j < 50, x[i, j], y[i, j]),
        lambda i, j: te.select(i < 32, x[i + 32, j], y[i - 32, j]),  # in turn: the pieces go on as the loop does
        lambda i, j: te.select(i < 32, x[i + 32, j], te.select(j < 50, y[i - 32, j], x[i, j])),  # in one piece
    ]
    for body in bodies:
        made = te.compute((64, 100), body, name="made")
        a, b = (CHANCE.random((64, 100)).astype("float32") for _ in range(2))
        want = te.interpret(made, {x: a, y: b})
        got = te.build([x, y], made, alias={made: x})(a, b)
        np.testing.assert_array_equal(got, want)
        assert np.shares_memory(got, a)
    across = te.compute((64, 100), lambda i, j: te.select(i < 32, x[i + 32, j], x[i - 32, j]))
    with pytest.raises(te.AliasError):
        te.build(x, across, alias={across: x})


def test_a_product_whose_reader_needs_some_rows_at_a_time_is_computed_whole() -> None:
    a, b = te.placeholder((33, 19), name="a"), te.placeholder((19, 19), name="b")
    product = te.compute((33, 19), lambda i, j: te.sum(lambda k: a[i, k] * b[k, j]), name="product")
    made = te.compute((33, 19), lambda i, j: te.select(i < 1, a[i, j], product[i - 1, j]), name="made")
    s = te.Schedule(made)
    s[made].cut_at("i", 1)
    s[product].vectorize("j", 8).split("i", 6)
    feeds = {
        a: CHANCE.integers(-3, 3, (33, 19)).astype("float32"),
        b: CHANCE.integers(-3, 3, (19, 19)).astype("float32"),
    }
    np.testing.assert_array_equal(te.build([a, b], made, schedule=s)(*feeds.values()), te.interpret(made, feeds))


@pytest.mark.parametrize(
    ("give", "why"),
    [
        (lambda s: s["C"].cut_at("i", 30, 20), "expected positions in order"),
        (lambda s: s["C"].cut_at("i", 41), "expected positions in order"),
        (lambda s: s["C"].cut_at("i"), "expected positions"),
        (lambda s: s["C"].cut_at("i", 2.5), "a position"),
        (lambda s: s["C"].cut_at("i", "m"), "there is no size 'm'"),
        (lambda s: s["C"].cut_at("i", 8).cut_at("i", 9), "cut already"),
        (lambda s: s["C"].vectorize("j", 8).cut_at("j", 9), "before other directives"),
        (lambda s: s["S"].cut_at("i", 8), "not pointwise"),
        (lambda s: s["C"].cut_at("i", 8) and s["T"].compute_at("C", "i"), "is computed inside the loops of C"),
        (lambda s: s["T"].cut_at("i", 8).compute_at("C", "i"), "not computed at the root"),
        (lambda s: s["T"].cut_at("i", 8).compute_with("U", "i"), "share loops"),
    ],
)
def test_pieces_that_are_refused(give: Callable[[te.Schedule], object], why: str) -> None:
    x = te.placeholder((40, 64), name="x")
    T = te.compute((40, 64), lambda i, j: x[i, j] + 1, name="T")
    U = te.compute((40, 64), lambda i, j: x[i, j] + 2, name="U")
    S = te.compute((40,), lambda i: te.sum(lambda k: x[i, k]), name="S")
    joined = te.compute((40, 64), lambda i, j: T[i, j] * U[i, j] * S[i], name="C")
    s = te.Schedule(joined)

    def build() -> None:
        give(s)
        te.build(x, joined, schedule=s)

    with pytest.raises(te.ScheduleError, match=why):
        build()


def test_a_gpu_has_no_pieces() -> None:
    x = te.placeholder((40,), name="x")
    made = te.compute((40,), lambda i: te.select(i < 20, x[i], -x[i]), name="made")
    s = te.Schedule(made)
    s[made].cut_at("i", 20)
    with pytest.raises(te.ScheduleError, match="on a GPU"):
        te.build(x, made, schedule=s, target="opencl").source("stmt")


@pytest.mark.parametrize("period", [2, 3])
@pytest.mark.parametrize("rows", [48, 49, 50])
def test_loops_that_choose_by_a_remainder_are_unrolled_by_its_period(period: int, rows: int) -> None:
    parts = [te.placeholder((20, 30, 24), name=f"P{k}") for k in range(period)]

    def element(i: Any, j: Any, k: Any) -> Any:
        row, column = i // period, (j + 1) // 2
        chosen = parts[-1][row, column, k]
        for r in range(period - 1):
            chosen = te.select((i + 1) % period == r, parts[r][row, column, k], chosen)
        return te.select((j + 1) % 2 == 0, chosen, chosen * parts[0][row, column, k])

    woven = te.compute((min(rows, 20 * period), 40, 24), element, name="woven")
    text = str(te.Schedule(woven).auto())
    assert "in pieces" not in text
    for line in (f"for i_r < {period}, unrolled", "for j_r < 2, unrolled"):
        assert line in text
    check(woven)


def test_a_remainder_along_vectors_is_not_unrolled() -> None:
    woven = te.compute((40, 90), lambda i, j: te.select((i + j) % 2 == 0, A[i + j // 2], B[i]), name="woven")
    assert not any(loop in str(te.Schedule(woven).auto()) for loop in ("i_r", "j_r"))
    check(woven)


def test_planes_that_share_most_of_their_arithmetic_are_not_cut_apart() -> None:
    """What all planes are made of is computed once; lanes fill a vector of bytes."""
    a = te.placeholder((3, 64, 160), "uint8", name="a")

    def body(c: Any, y: Any, x: Any) -> Any:
        gray = te.exp(sum(te.cast(a[k, y, x], "float32") * 0.25 for k in range(3)) * -0.01) * te.sqrt(
            te.cast(a[0, y, x], "float32") + 1.0
        )
        return te.cast(
            te.clip(te.select(c == 0, gray, te.select(c == 1, gray * 9.0, 90.0 - gray)), 0.0, 255.0), "uint8"
        )

    out = te.compute((3, 64, 160), body, name="out")
    machine = te.Schedule(out).auto(target="x86-64-v3")
    assert "c_u < 3, unrolled" in str(machine)
    assert "x_v < 32, vectorized" in str(machine)
    values = np.random.default_rng(2).integers(0, 256, (3, 64, 160)).astype("uint8")
    found, wanted = (f.astype(int) for f in (te.build([a], out)(values), te.interpret(out, {a: values})))
    assert np.abs(found - wanted).max() <= 1


@pytest.mark.parametrize(
    "place",
    [
        lambda c: c % 4 * 8 + c // 4,  # channels dealt out
        lambda c: c // 8 + c % 8 * 4,
        lambda c: (c + 5) % 32,
        lambda c: 31 - (c // 2 * 2 + (1 - c % 2)),
    ],
)
def test_rows_whose_place_is_made_of_quotients_are_one_loop_nest(place: Callable[[Any], Any]) -> None:
    """Pieces of a few rows would each be begun for themselves, and be too little for threads."""
    x = te.placeholder((3, 32, 70, 70), name="x")
    y = te.compute(x.shape, lambda n, c, i, j: x[n, place(c), i, j], name="y")
    head = te.placeholder(x.shape, name="head")
    for output in (y, te.differentiate(y, x, head=head)):
        assert not cuts(output)
        check(output)
    small = te.placeholder((3, 32, 5), name="small")
    check(te.compute(small.shape, lambda n, c, i: small[n, place(c), i], name="y"))


def test_code_that_runs_a_few_times_is_written_once() -> None:
    """Pieces of a small stage hold more operations than it has vectors; a copy is little code in any case."""

    def finer(rows: int, columns: int) -> te.Tensor:
        x = te.placeholder((4, rows // 2 + 1, columns // 2 + 1), name="x")

        def element(c: Any, y: Any, j: Any) -> Any:
            a, b = x[c, y // 2, j // 2], x[c, (y + 1) // 2, (j + 1) // 2]
            return (a * 0.5 + b) * (a - b * 0.5) * te.select(y < rows // 2, x[c, y // 2, 0], x[c, 0, j // 2])

        return te.compute((4, rows, columns), element, name="y")

    assert cuts(finer(32, 48))
    assert not cuts(finer(20, 14))
    check(finer(20, 14))
    assert cuts(te.concatenate([te.placeholder((90,), name=n) for n in "ab"], 0))


def test_short_runs_are_pieces_as_long_as_the_result_stays_in_the_caches() -> None:
    def nests(rows: int) -> int:
        parts = [te.placeholder((rows, width), name=f"x{width}") for width in (100, 160, 1)]
        kernel = te.build(parts, te.concatenate(parts, axis=1), target="x86-64-v3")
        return str(kernel.loop_nest()).count("vectorized")

    assert nests(3000) == 2
    assert nests(60000) == 1


def test_a_short_part_of_a_row_that_goes_round_is_a_piece() -> None:
    """As one loop its elements are put together one by one, which takes longer than to begin another loop."""
    x = te.placeholder((40, 12_000), name="x")
    y = te.compute(x.shape, lambda i, j: x[i, (j + 397) % 12_000], name="y")
    assert cuts(y)
    check(y)
    assert not cuts(te.compute(x.shape, lambda i, j: x[i, (j + 37) % 12_000], name="z"))
