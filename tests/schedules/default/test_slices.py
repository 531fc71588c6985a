"""Stages that walk through the same arrays: which are computed slice by slice, and that their bits stay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tedsl as te
from schedules.default import LOWEST, assuming
from tedsl import ops
from tests.levels import LEVELS_HERE

CHANCE = np.random.default_rng(19)
SMALL = {**LOWEST, "cores": 2, "l3": 1 << 12}
NEVER = {**SMALL, "slices": 1 << 40}
MACHINE = {
    "vector_bytes": 32, "vector_registers": 16, "l1": 1 << 15, "l2": 1 << 19, "l3": 1 << 25, "cores": 2, "gpu": None,
    "choices": [],
}  # fmt: skip
Program = Callable[[te.Tensor], te.Tensor]


def scaled_by(axes: tuple[int, ...]) -> Program:
    """Mean 0 and variance 1 over some axes."""

    def program(x: te.Tensor) -> te.Tensor:
        centered = x - x.mean(axes, keepdims=True)
        return centered / te.sqrt((centered * centered).mean(axes, keepdims=True) + 1e-3)

    return program


def grouped(count: int) -> Program:
    """Groups of channels."""
    return lambda x: ops.group_norm(x, count)  # type: ignore[no-any-return]


def softmax_over(axis: int) -> Program:
    """Softmax along any axis."""
    return lambda x: x.softmax(axis)  # type: ignore[no-any-return]


def turned_back(x: te.Tensor) -> te.Tensor:
    """Sums that are read at other places than their own: only the last axis is left to cut."""
    n = int(x.shape[0])
    total = x.sum(1)
    square = (x * x).sum(1)
    shape = tuple(x.shape)
    return te.compute(shape, lambda i, j, *k: x[(i, j, *k)] * total[(n - 1 - i, *k)] + square[(i, *k)])


PROGRAMS: dict[str, tuple[Program, tuple[int, ...], int]] = {  # with the bytes of a cache
    "over a batch": (scaled_by((0, 2)), (3, 6, 21), 4096),
    "over first and last": (scaled_by((0, 3)), (3, 4, 5, 19), 4096),
    "groups": (grouped(3), (2, 12, 21), 2048),
    "softmax of channels": (softmax_over(1), (2, 5, 3, 67), 4096),
    "softmax of whole vectors": (softmax_over(0), (9, 256), 4096),
    "over channels": (scaled_by((1,)), (3, 5, 41), 2048),
    "over pixels": (scaled_by((2, 3)), (3, 5, 7, 11), 4096),
    "turned back": (turned_back, (4, 40, 130), 1 << 16),
}
WITH_GRADIENTS = ("over a batch", "groups", "softmax of channels")


def built(name: str, level: str, choices: dict[str, int], *, gradient: bool) -> list[np.ndarray[Any, Any]]:
    program, shape, _ = PROGRAMS[name]
    x, head = te.placeholder(shape, name="x"), te.placeholder(shape, name="head")
    out = program(x)
    outputs = [out, te.differentiate(out, x, head=head)] if gradient else [out]
    feeds = [np.random.default_rng(k).normal(size=shape).astype("f4") for k in range(2)]
    with assuming(choices):
        return list(te.build([x, head], outputs, target=level)(*feeds))


@pytest.mark.share(2)
@pytest.mark.parametrize("name", PROGRAMS)
def test_bits_are_those_of_stages_computed_whole(name: str) -> None:
    gradient = name in WITH_GRADIENTS
    expected = built(name, "host", NEVER, gradient=gradient)
    found = built(name, "host", {**SMALL, "l2": PROGRAMS[name][2]}, gradient=gradient)
    for got, want in zip(found, expected, strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.long
@pytest.mark.parametrize("level", LEVELS_HERE)
@pytest.mark.parametrize("name", PROGRAMS)
def test_bits_of_gradients_at_every_level(name: str, level: str) -> None:
    expected = built(name, level, NEVER, gradient=True)
    for l2 in (PROGRAMS[name][2], 1 << 14):
        for got, want in zip(built(name, level, {**SMALL, "l2": l2}, gradient=True), expected, strict=True):
            np.testing.assert_array_equal(got, want)


def test_results_are_those_of_the_reference() -> None:
    for name in ("groups", "turned back"):
        program, shape, l2 = PROGRAMS[name]
        x = te.placeholder(shape, name="x")
        given = CHANCE.normal(size=shape).astype("f4")
        with assuming({**SMALL, "l2": l2}):
            found = te.evaluate(program(x), {x: given})
        np.testing.assert_allclose(found, te.interpret(program(x), {x: given}), rtol=2e-5, atol=2e-5)


def test_results_may_lie_in_the_memory_of_what_is_normalized() -> None:
    """A slice reads no more than it writes."""
    for name in ("over a batch", "softmax of channels"):
        program, shape, l2 = PROGRAMS[name]
        x = te.placeholder(shape, name="x")
        out = program(x)
        given = CHANCE.normal(size=shape).astype("f4")
        with assuming({**SMALL, "l2": l2}):
            expected = te.build([x], out)(given)
            memory = given.copy()
            found = te.build([x], out, alias={out: x})(memory)
        assert np.shares_memory(found, memory)
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("program", "shape"),
    [
        (scaled_by((0, 2, 3)), (4, 64, 112, 112)), (scaled_by((2, 3)), (4, 64, 112, 112)),
        (grouped(4), (4, 64, 112, 112)), (grouped(32), (2, 320, 64, 64)), (softmax_over(1), (4, 64, 112, 112)),
        (softmax_over(0), (300, 20011)), (scaled_by((1,)), (8, 96, 5000)),
    ],
)  # fmt: skip
def test_one_loop_nest_has_all_stages(program: Program, shape: tuple[int, ...]) -> None:
    x = te.placeholder(shape, name="x")
    plan = te.Schedule([program(x)]).auto(machine=MACHINE).plan
    whole = [name for name, step in plan.places.items() if step.directive.verb == "compute_root"]
    assert len(whole) == 1


def test_gradients_of_a_softmax_are_one_loop_nest() -> None:
    shape = (4, 64, 112, 112)
    x, head = te.placeholder(shape, name="x"), te.placeholder(shape, name="head")
    out = x.softmax(1)
    plan = te.Schedule([out, te.differentiate(out, x, head=head)]).auto(machine=MACHINE).plan
    assert [step.directive.verb for step in plan.places.values()].count("compute_root") == 1


@pytest.mark.parametrize(
    ("program", "shape"),
    [(lambda x: x.logsumexp(0), (1000, 4096)), (scaled_by((1,)), (4096, 1024)), (scaled_by((0,)), (2000, 3000))],
)
def test_what_gains_nothing_is_left_as_it_was(program: Program, shape: tuple[int, ...]) -> None:
    """Long columns, whose parts are far apart; rows that are computed one by one anyway."""
    x = te.placeholder(shape, name="x")
    out = program(x)
    head = te.placeholder(out.shape, name="head")
    for outputs in ([out], [out, te.differentiate(out, x, head=head)]):
        found = [te.Schedule(outputs).auto(machine=MACHINE | {"choices": c}) for c in ([], [["slices", 1 << 40]])]
        assert str(found[0]) == str(found[1])


def test_what_fits_the_cache_is_left_as_it_was() -> None:
    x = te.placeholder((2, 8, 12, 12), name="x")
    plan = te.Schedule([scaled_by((0, 2, 3))(x)]).auto(machine=MACHINE).plan
    assert len([name for name, step in plan.places.items() if step.directive.verb == "compute_root"]) > 1
