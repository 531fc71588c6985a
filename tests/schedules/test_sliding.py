"""Windows that slide along a loop: what was computed is what is read, or the schedule is refused.

Halide 21 leaves out the first window where a read at its end is plain and another one is held or guarded at the
beginning: it takes the end of the window before the first iteration, held as well, for computed already.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import tedsl as te

ROWS = 12
A = te.placeholder((ROWS, 4), "float64", name="a")
FEED = np.random.default_rng(0).integers(-9, 9, (ROWS, 4)).astype("float64")


def slid(output: te.Tensor, stages: list[te.Tensor], strip: int) -> te.Schedule:
    """The stages row by row, kept for a strip of rows, or for all of them."""
    s = te.Schedule(output)
    if strip:
        s[output].split("y", strip, names=("yo", "yi"))
    for stage in stages:
        view = s[stage].compute_at(output, "yi" if strip else "y")
        view.store_at(output, "yo") if strip else view.store_root()
    return s


def right(output: te.Tensor, stages: list[te.Tensor], strip: int) -> bool | None:
    """Whether the result is that of the reference; None where the schedule is refused."""
    try:
        kernel = te.build(A, output, slid(output, stages, strip))
    except te.ScheduleError:
        return None
    return np.array_equal(kernel(FEED), te.interpret(output, {A: FEED}))


READS: dict[str, tuple[Callable[[Any, Any, Any], Any], bool]] = {
    "guarded": (lambda p, y, x: te.select(y >= 1, p[y - 1, x], 0.0) + p[y, x], False),
    "guarded late": (lambda p, y, x: te.select(y > 4, p[y - 1, x], 0.0) + p[y, x], False),
    "zero": (lambda p, y, x: p.at(y - 2, x, mode="zero") + p[y, x], False),
    "held with it": (lambda p, y, x: p[te.maximum(y, 3), x] + p[y, x], False),
    "held": (lambda p, y, x: p[te.maximum(y - 1, 0), x] + p[y, x], True),
    "guarded on both sides": (lambda p, y, x: sum(p.at(y + k, x, mode="zero") for k in (-1, 0, 1)), True),
    "mirrored": (lambda p, y, x: p.at(y - 1, x, mode="reflect") + p[y, x] + p.at(y + 2, x, mode="reflect"), True),
    "mirrored before": (lambda p, y, x: p.at(y - 3, x, mode="reflect") + p[y, x], True),
    "mirrored, held": (lambda p, y, x: p.at(y - 1, x, mode="reflect") + p[te.minimum(y + 1, 11), x], True),
    "clamped": (lambda p, y, x: p.at(y - 1, x, mode="clamp") + p[y, x] + p.at(y + 2, x, mode="clamp"), True),
}


@pytest.mark.parametrize("strip", [0, 4])
@pytest.mark.parametrize("name", READS)
def test_a_window_slides_or_is_refused(name: str, strip: int) -> None:
    body, slides = READS[name]
    p = te.compute((ROWS, 4), lambda y, x: A[y, x] * 2, name="p")
    output = te.compute((ROWS, 4), lambda y, x: body(p, y, x), name="out")
    assert right(output, [p], strip) is (True if slides else None)


def test_what_is_said() -> None:
    p = te.compute((ROWS, 4), lambda y, x: A[y, x] * 2, name="p")
    output = te.compute((ROWS, 4), lambda y, x: p.at(y - 1, x, mode="zero") + p[y, x], name="out")
    with pytest.raises(te.ScheduleError, match=r"out's read p\[.*\] is guarded .*store it where it is computed"):
        te.build(A, output, slid(output, [p], 4))


MODES = st.sampled_from(["clamp", "zero", "reflect", "plain"])
TAPS = st.lists(st.tuples(st.integers(-2, 2), MODES), min_size=1, max_size=3)


@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    taps=st.lists(TAPS, min_size=2, max_size=3), strip=st.sampled_from([0, 3, 4]), some=st.integers(1, 3),
    is_last=st.booleans(),
)  # fmt: skip
def test_chains(taps: list[list[tuple[int, str]]], strip: int, some: int, is_last: bool) -> None:
    """Of two and three stages; the loop along which they slide is the first one or the last."""
    stages = [te.compute((4, ROWS), lambda x, y: A[y, x], name="turned") if is_last else A]
    for number, each in enumerate(taps):

        def element(y: Any, x: Any, p: te.Tensor = stages[-1], each: Any = each) -> Any:
            def read(by: int, mode: str) -> Any:
                at = (x, y + by) if is_last else (y + by, x)
                return p.at(*at, mode=mode)

            plain = p[x, y] if is_last else p[y, x]
            return sum((k + 1) * (plain if mode == "plain" else read(by, mode)) for k, (by, mode) in enumerate(each))

        body = (
            (lambda x, y, element=element: element(y, x)) if is_last else (lambda y, x, element=element: element(y, x))
        )
        stages.append(te.compute((4, ROWS) if is_last else (ROWS, 4), body, name=f"s{number}"))
    chosen = [stage for k, stage in enumerate(stages[1:-1]) if some & (1 << k)]
    assert right(stages[-1], chosen, strip) is not False


def test_a_level_of_a_pyramid_slides_by_a_row_every_other_row() -> None:
    half = te.compute((7, 4), lambda y, x: A[y, x] * 2, name="half")
    output = te.compute((ROWS, 4), lambda y, x: half[y // 2, x] + half[(y + 1) // 2, x], name="out")
    assert right(output, [half], 4)
    assert "half: what is new of what out needs here, how much is known at run time only" in str(
        slid(output, [half], 4)
    )


HALF, THIRD, TWICE, ONCE = (1, 2), (1, 3), (2, 1), (1, 1)
LEVEL = st.tuples(
    st.sampled_from([HALF, THIRD, TWICE, ONCE]),
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["clamp", "reflect", "plain"])), min_size=1, max_size=3),
)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(levels=st.lists(LEVEL, min_size=1, max_size=3), strip=st.sampled_from([3, 4, 8]), some=st.integers(1, 7))
def test_pyramids(levels: list[Any], strip: int, some: int) -> None:
    """Levels that are read at `y // 2`, `y // 3` and `2 * y` slide along with the last one, or are refused."""
    given = te.placeholder((40, 4), "float64", name="given")
    stages: list[te.Tensor] = [te.compute((40, 4), lambda y, x: given[y, x] * 2, name="level_0")]
    for (by, over), taps in levels:
        rows = int(str(stages[-1].shape[0]))
        most = max(0, *(k for k, mode in taps if mode == "plain"), 0)
        own = max(2, min(60, (rows - 1 - most) * over // by))

        def body(y: Any, x: Any, p: te.Tensor = stages[-1], by: int = by, over: int = over, taps: Any = taps) -> Any:
            reads = ((by * y + k % 2) // over + k // 2 for k, _ in taps)
            return sum(
                p[r, x] if mode == "plain" else p.at(r, x, mode=mode) for r, (_, mode) in zip(reads, taps, strict=True)
            )

        stages.append(te.compute((own, 4), body, name=f"level_{len(stages)}"))
    chosen = [stage for k, stage in enumerate(stages[:-1]) if some & (1 << k)]
    feed = np.random.default_rng(0).integers(-9, 9, (40, 4)).astype("float64")
    try:
        kernel = te.build(given, stages[-1], slid(stages[-1], chosen, strip))
    except te.ScheduleError:
        return
    assert np.array_equal(kernel(feed), te.interpret(stages[-1], {given: feed}))


def along_vectors(chance: random.Random) -> tuple[te.Tensor, te.Tensor, te.Schedule]:
    """Stages computed at the vectors of their reader, or at its rows, and kept for a strip of these; and the input."""
    n, m = (te.var("n"), te.var("m")) if chance.random() < 0.3 else (chance.randint(3, 14), chance.randint(5, 40))
    given = te.placeholder((n, m), "float64", name="given")
    stages = [given]
    for number in range(chance.randint(2, 3)):
        modes = [chance.choice(["clamp", "zero", "reflect", ""]) for _ in range(2)]
        taps = [(chance.randint(-2, 2), chance.randint(-2, 2), mode) for mode in modes]

        def body(y: Any, x: Any, p: te.Tensor = stages[-1], taps: Any = taps) -> Any:
            return sum(p.at(y + dy, x + dx, mode=mode) if mode else p[y, x] for dy, dx, mode in taps)

        stages.append(te.compute((n, m), body, name=f"s{number}"))
    *early, out = stages[1:]
    s, strip, lanes = te.Schedule(out), chance.choice([0, 0, 2, 3]), chance.choice([2, 4, 8])
    if strip:
        s[out].split("y", strip, names=("yo", "yi"))
        s[out].parallel("yo") if chance.random() < 0.5 else None
    s[out].vectorize("x", lanes, tail=chance.choice([None, None, "guard", "shift"]))
    depth = sorted(chance.choice(["x", "x", "w", ""]) for _ in early)
    for stage, at in zip(early, reversed(depth), strict=True):
        if at:
            view = s[stage].compute_at(out, "x" if at == "x" else "yi" if strip else "y").vectorize("x", lanes)
            view.store_at(out, "yo") if strip else view.store_root()
    return given, out, s


@settings(max_examples=15 * (50 if os.environ.get("TEDSL_LONG") else 1), suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32 - 1))
def test_windows_slide_along_vectors(seed: int) -> None:
    chance = random.Random(seed)
    given, out, s = along_vectors(chance)
    try:
        kernel = te.build(given, out, schedule=s)
    except te.ScheduleError:
        return
    shape = [v if isinstance(v, int) else chance.randint(9, 40) for v in given.shape]
    feed = np.random.default_rng(seed).integers(-9, 9, shape).astype("float64")
    np.testing.assert_array_equal(kernel(feed), te.interpret(out, {given: feed}), err_msg=s.code())


def test_the_schedule_of_the_blur() -> None:
    """Computed for each vector of a strip, kept for its rows: Halide's own example."""
    given = te.placeholder((70, 46), "uint16", name="given")
    across = te.compute((70, 44), lambda y, x: (given[y, x] + given[y, x + 1] + given[y, x + 2]) // 3, name="across")
    out = te.compute((68, 44), lambda y, x: (across[y, x] + across[y + 1, x] + across[y + 2, x]) // 3, name="out")
    s = te.Schedule(out)
    strip, _ = s[out].split("y", 32)
    s[out].parallel(strip).vectorize("x", 16)
    s[across].compute_at(out, "x").store_at(out, strip).vectorize("x", 16)
    kernel = te.build(given, out, schedule=s)
    feed = np.random.default_rng(0).integers(0, 4096, (70, 46), "uint16")
    np.testing.assert_array_equal(kernel(feed), te.interpret(out, {given: feed}))


@pytest.mark.parametrize("names", ["sv", "vs"])
@pytest.mark.parametrize("is_shared", [False, True])
def test_beside_a_window(names: str, is_shared: bool) -> None:
    """A stage that needs one row, beside one of which twenty-four are kept, which begins as many rows earlier."""
    rows, columns = 640, 264
    given = te.placeholder((rows + 40, columns), name="given")
    source = te.compute((rows + 40, columns), lambda y, x: te.exp(given[y, x]), name="source") if is_shared else given
    window, row = names
    p = te.compute((rows + 36, columns), lambda y, x: te.exp(source[y, x]) + source[y + 4, x], name=window)
    q = te.compute((rows, columns), lambda y, x: te.exp(source[y + 5, x]) * source[y + 9, x], name=row)
    out = te.compute(
        (rows, columns - 2), lambda y, x: p[y + 3, x] + p[y + 26, x + 1] + q[y, x] * q[y, x + 1] * q[y, x + 2]
    )
    feed = np.random.default_rng(0).random((rows + 40, columns), dtype="float32")
    np.testing.assert_allclose(te.build(given, out)(feed), te.interpret(out, {given: feed}), rtol=1e-5)


def test_a_place_that_stands_still_though_the_loop_is_named() -> None:
    """Blocks of four in blocks of two: (4 * io + ii) % 2 does not move with io, which was an error of ours."""
    out = te.compute((ROWS - 1, 4), lambda y, x: A[y, x] + A[y + 1, x], name="out")
    s = te.Schedule(out)
    s[out].pack(A, ("0o", "1", "0i"), (4, 0), "fours")
    s["fours"].pack(A, ("0i", "0o", "1"), (2, 0), "twos")
    s["twos"].compute_at("fours", "d0o").hoist_storage()
    np.testing.assert_array_equal(te.build(A, out, s)(FEED), FEED[:-1] + FEED[1:])
    s["twos"].store_root()
    np.testing.assert_array_equal(te.build(A, out, s)(FEED), FEED[:-1] + FEED[1:])


@pytest.mark.parametrize("symbolic", [False, True])
def test_a_border_that_wraps_around_is_refused_with_a_way_round(symbolic: bool) -> None:
    n = te.var("n") if symbolic else ROWS
    a, w = te.placeholder((n, 4), "float64", name="a"), te.placeholder((3,), "float64", name="w")
    taps = [(k, w[k]) for k in range(3)]
    p = te.compute((n, 4), lambda y, x: a[y, x] * 2, name="p")
    out = te.compute((n, 4), lambda y, x: sum(v * p.at(y + k - 1, x, mode="wrap") for k, v in taps), name="out")
    with pytest.raises(te.ScheduleError) as refused:
        te.build([a, w], out, slid(out, [p], 0))
    assert "out reads p.at(y - 1, x, mode='wrap'), which does not move along with 'y'" in str(refused.value)
    assert "let p have what lies beyond it, by a larger shape and that mode in what it reads" in str(refused.value)
    wide = te.compute((n + 2, 4), lambda y, x: a.at(y - 1, x, mode="wrap") * 2, name="p")
    same = te.compute((n, 4), lambda y, x: sum(v * wide[y + k, x] for k, v in taps), name="out")
    weights = np.array([1.0, 2.0, 4.0])
    found = te.build([a, w], same, slid(same, [wide], 0))(FEED, weights)
    np.testing.assert_array_equal(found, te.interpret(out, {a: FEED, w: weights}))


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("taps", [3, 7])
def test_strips_of_a_mirrored_window_have_their_own_rows(taps: int, symbolic: bool) -> None:
    """Of unknown sizes each strip computed nearly all rows, and windows that were kept were refused."""
    n = te.var("n") if symbolic else 40
    a = te.placeholder((n, 4), "float64", name="a")
    p = te.compute((n, 4), lambda y, x: a[y, x] * 2, name="p")
    out = te.compute(
        (n, 4), lambda y, x: sum((k + 1) * p.at(y + k - taps // 2, x, mode="reflect") for k in range(taps)), name="out"
    )
    strips = te.Schedule(out)
    strips[out].split("y", 8, names=("yo", "yi"))
    strips[p].compute_at(out, "yo")
    kept, apart = te.build(a, out, slid(out, [p], 8)), te.build(a, out, strips)
    assert "for (p.s0.y, 0, " not in apart.source("stmt")  # which begins with the first row of all
    for rows in [1, 2, 5, 40] if symbolic else [40]:
        feed = np.random.default_rng(rows).integers(-9, 9, (rows, 4)).astype("float64")
        expected = te.interpret(out, {a: feed})
        np.testing.assert_array_equal(kept(feed), expected)
        np.testing.assert_array_equal(apart(feed), expected)
