"""Random schedules of pipelines of windows, where stages are computed inside loops, kept, folded, cloned and fused."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import tedsl as te
from tests.schedules.drawing import INNER_VERBS, LOOP_VERBS, Drawing

EXAMPLES = 40
VERBS = (
    *LOOP_VERBS, *INNER_VERBS, "clone_in", "clone_in", *["fold_storage"] * 4, *["hoist_storage"] * 2,
    *["compute_at"] * 4, *["store_at"] * 2, *["compute_with"] * 3,
)  # fmt: skip
GIVEN: Counter[str] = Counter()
BUILT: Counter[str] = Counter()


@pytest.fixture(scope="module", autouse=True)
def tally() -> Iterator[None]:
    """Every directive was given, and what was given was built: else equal results would say little."""
    yield
    if sum(BUILT.values()) >= EXAMPLES:
        assert {"fold_storage", "clone_in", "compute_with", "hoist_storage", "bound", "align_storage"} <= set(GIVEN)
        assert BUILT["built"] >= 0.95 * sum(BUILT.values()), BUILT


def pipeline(chance: random.Random) -> tuple[te.Tensor, list[te.Tensor], dict[Any, int]]:
    """Stages that read earlier ones through windows, the last one the result; sometimes of symbolic height."""
    rows, columns = chance.choice((7, 12, 20)), chance.choice((5, 9, 17))
    n = te.var("n") if chance.random() < 0.3 else None
    height: Any = rows if n is None else n
    A = te.placeholder((height + 12, columns), name="A")
    made: list[te.Tensor] = [A]
    for number in range(chance.randint(2, 4)):
        height_left = 12 - 3 * (number + 1)
        last = made[-1] if number == 0 or chance.random() < 0.5 else made[-2]  # or a sibling of the one before
        taps = chance.randint(1, 4)
        other = made[-1] if last is not made[-1] and number == 3 else chance.choice(made)

        def body(i: Any, j: Any, last: te.Tensor = last, other: te.Tensor = other, taps: int = taps) -> Any:
            total: Any = last[i, j]
            for tap in range(1, taps):
                total = total + last.at(i + tap, j - tap, mode="clamp" if taps == 2 else "zero")
            return total + other[i, j] * 2

        made.append(te.compute((height + height_left, columns), body, name=f"S{number}"))
    outputs = [made[-1]] if chance.random() < 0.5 else [made[-2], made[-1]]
    return A, outputs, {} if n is None else {n: rows}


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32 - 1))
def test_schedules_of_pipelines_never_change_a_result(seed: int) -> None:
    chance = random.Random(seed)
    A, outputs, sizes = pipeline(chance)
    drawing = Drawing(seed, outputs)
    drawing.verbs = VERBS
    for _ in range(chance.randint(4, 16)):
        drawing.step()
    GIVEN.update(drawing.given)
    shape = (next(iter(sizes.values())) + 12 if sizes else A.shape[0], A.shape[1])
    values = np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float32)
    try:
        kernel = te.build(A, outputs, schedule=drawing.schedule)
    except te.ScheduleError as error:
        BUILT[str(error)] += 1
        return
    BUILT["built"] += 1
    expected = te.interpret(outputs, {A: values})
    for mine, theirs in zip(kernel(values), expected, strict=True):
        np.testing.assert_array_equal(mine, theirs, err_msg=drawing.schedule.code())


@pytest.mark.parametrize("kind", ["stage", "cached", "packed", "packed in blocks"])
@pytest.mark.parametrize("rows", ["known", "unknown"])
def test_whole_stages_are_read_in_fused_loops_inside_others(kind: str, rows: str) -> None:
    """Of the row that is a quotient of the fused loop Halide knew no end: the kernel failed at what it read."""
    n: Any = te.var("n") if rows == "unknown" else 23
    x = te.placeholder((n, 17), name="x")
    twice = te.compute((n, 17), lambda i, j: x[i, j] * 2, name="twice")
    source = twice if kind == "stage" else x
    near = te.compute((n - 2, 17), lambda i, j: source[i, j] + source.at(i + 1, j - 1, mode="zero"), name="near")
    out = te.compute((n - 3, 17), lambda i, j: near[i, j] + near.at(i + 1, j - 1, mode="clamp"), name="out")
    s = te.Schedule(out)
    s[near].compute_at(out, "j")
    if kind == "stage":
        s[twice].compute_root().fuse("i", "j")
    elif kind == "cached":
        s[near].cache_read(x, "copy")
        s["copy"].compute_root().fuse("d0", "d1")
    else:
        s[near].pack(x, *((["0", "1o", "1i"], (0, 4)) if kind == "packed" else (["0i", "0o", "1o", "1i"], (4, 4))))
    s[near].fuse("i", "j")
    value = np.random.default_rng(0).integers(-4, 5, (23, 17)).astype(np.float32)
    below = np.zeros((21, 17), np.float32)
    below[:, 1:] = value[1:22, :-1]
    first = (value[:21] + below) * (2 if kind == "stage" else 1)
    beside = first[np.minimum(np.arange(20) + 1, 20)][:, np.maximum(np.arange(17) - 1, 0)]
    np.testing.assert_array_equal(te.build(x, out, s)(value), first[:20] + beside)


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("made", ["pack", "rfactor"])
def test_memory_is_hoisted_out_of_a_loop_that_has_no_iteration(made: str, *, ahead: bool) -> None:
    """Halide dropped the loop with what is computed in it, and then asked for its memory."""
    x, k = te.placeholder((4,), "int32", name="x"), te.reduce_axis(0, "k")
    out = te.compute((3,), lambda i: te.sum(x[k], axis=k), name="out")
    s = te.Schedule(out)
    view = s[out].pack(x, ("0o", "0i"), (2,), "inner") if made == "pack" else s[out].rfactor("k", "inner")
    view.compute_at(out, "k").hoist_storage()
    if ahead:
        view.async_()
    np.testing.assert_array_equal(te.build(x, out, s)(np.ones(4, np.int32)), np.zeros(3))
