"""Two spellings of one computation get the same loops: drawn programs, and drawn rewrites that are equal by algebra.

The schedules are compared, nothing is compiled: the texts of their loops, names aside, or what `schedules.estimate`
says that they cost. That the rewrites mean the same is checked on small programs, against the reference.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings, strategies as st

import tedsl as te
from autodiff.strategies import PATTERNS, patterns, values_for
from schedules.default import LOWEST, assuming, completion
from schedules.estimate import cost_of
from schedules.plan import Plan
from schedules.program import program_of
from schedules.written.text import schedule_text
from tedsl.backend.host.targets import machine_of, parse_target
from tests.equivalence import compare
from tests.levels import PROCESSORS, processor
from tests.respelling import KINDS, respelled

WITHIN = 1.2
SPELLED = [name for name in PATTERNS if name != "ranged"]  # a range that a factor of 0 and 1 leaves out is none
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
SMALL_CACHES = {"cores": 4, "l1": 2 << 10, "l2": 8 << 10, "l3": 32 << 10}
MACHINES = [machine_of(parse_target(level)) for level in ("x86-64-v3", "x86-64-v4")]


def draws(most: int) -> settings:
    return settings(max_examples=most, phases=PHASES, deadline=None, suppress_health_check=list(HealthCheck))


def plan_of(outputs: Sequence[te.Tensor], machine: Any) -> Plan:
    return completion(Plan(program_of(outputs)), (), outputs, machine).plan


def text_of(plan: Plan) -> str:
    """The loops with names as numbers in order of appearance."""
    numbers: dict[str, str] = {}
    return re.sub(r"[A-Za-z_]\w*", lambda m: numbers.setdefault(m[0], f"n{len(numbers)}"), schedule_text(plan))


def check_alike(first: Sequence[te.Tensor], second: Sequence[te.Tensor], said: str) -> None:
    for machine in MACHINES:
        plans = [plan_of(outputs, machine) for outputs in (first, second)]
        if text_of(plans[0]) == text_of(plans[1]):
            continue
        costs = [cost_of(plan, machine) for plan in plans]
        least, most = sorted(c.total for c in costs)
        shown = "\n\n".join(f"{schedule_text(p)}\n{dict(c.stages)}" for p, c in zip(plans, costs, strict=True))
        assert most <= WITHIN * least, f"{said}: {costs[0].total:.0f} and {costs[1].total:.0f} cycles\n{shown}"


def drawn(data: st.DataObject, outputs: Sequence[te.Tensor]) -> tuple[Sequence[te.Tensor], list[str]]:
    """The outputs written otherwise in up to three of the ways that there are for them."""
    chance = Random(data.draw(st.integers(0, 2**32)))
    ways, most = list(KINDS), chance.randint(1, 3)
    chance.shuffle(ways)
    done: list[str] = []
    for way in ways:
        found, said = respelled(outputs, [way], chance)
        if said:
            outputs, done = found, done + said
            most -= 1
        if not most:
            break
    return outputs, done


def check_spelling(data: st.DataObject) -> None:
    program = data.draw(patterns(names=SPELLED, large=True, symbolic=False))
    other, done = drawn(data, program.outputs)
    check_alike(program.outputs, other, f"{program}\nwritten otherwise: {done}")


def check_meaning(data: st.DataObject) -> None:
    """A program written otherwise, compiled with every pattern, has the results of the program as it was drawn."""
    program = data.draw(patterns(names=SPELLED, symbolic=False))
    feeds, level = data.draw(values_for(program)), data.draw(PROCESSORS)
    other, _ = drawn(data, program.outputs)
    with assuming({**LOWEST, **SMALL_CACHES}), processor(level):
        compare(program, feeds, te.evaluate(list(other), feeds))


@draws(200)
@given(data=st.data())
def test_two_spellings_get_the_same_loops(data: st.DataObject) -> None:
    check_spelling(data)


@draws(15)
@given(data=st.data())
def test_spellings_mean_the_same(data: st.DataObject) -> None:
    check_meaning(data)


@pytest.mark.long
@draws(10_000)
@given(data=st.data())
def test_two_spellings_of_many_programs_get_the_same_loops(data: st.DataObject) -> None:
    check_spelling(data)


@pytest.mark.long
@draws(600)
@given(data=st.data())
def test_spellings_of_many_programs_mean_the_same(data: st.DataObject) -> None:
    check_meaning(data)


# --------------------------------------------------------------------------------------- spellings that people write


def r(extent: int, name: str = "k") -> Any:
    return te.reduce_axis(extent, name=name)


def matrices() -> Sequence[te.Tensor]:
    a, b = te.placeholder((200, 130), name="a"), te.placeholder((130, 96), name="b")
    k, k1, k0, u = r(130), r(26), r(5), r(1)
    turned = te.compute((96, 130), lambda j, m: b[m, j])
    return [
        a @ b,
        te.compute((200, 96), lambda i, j: te.sum(b[k, j] * a[i, k], axis=k)),
        te.compute((200, 96), lambda i, j: te.sum(a[i, k1 * 5 + k0] * b[k1 * 5 + k0, j], axis=(k1, k0))),
        te.compute((200, 96), lambda i, j: te.sum(a[i, k + u] * b[k, j], axis=(u, k))),
        te.compute((200, 96), lambda i, j: te.sum(a[i, k] * turned[j, k], axis=k)),
    ]


def masked_products() -> Sequence[te.Tensor]:
    a, b = te.placeholder((160, 160), name="a"), te.placeholder((160, 96), name="b")
    k = r(160)

    def of(term: Callable[[Any, Any], Any], where: Callable[[Any], Any] | None = None) -> te.Tensor:
        return te.compute((160, 96), lambda i, j: te.sum(term(i, j), axis=k, where=None if where is None else where(i)))

    return [
        of(lambda i, j: a[i, k] * b[k, j], lambda i: k <= i),
        of(lambda i, j: a[i, k] * b[k, j], lambda i: ~(k > i)),
        of(lambda i, j: te.select(k <= i, a[i, k] * b[k, j], 0.0)),
        of(lambda i, j: te.select(k > i, 0.0, a[i, k] * b[k, j])),
        of(lambda i, j: te.select(k <= i, a[i, k], 0.0) * b[k, j]),
    ]


def scaled_products() -> Sequence[te.Tensor]:
    a, b, s = (te.placeholder(n, name=x) for n, x in (((160, 128), "a"), ((128, 96), "b"), ((128,), "s")))
    k = r(128)

    def of(term: Callable[[Any, Any], Any]) -> te.Tensor:
        return te.compute((160, 96), lambda i, j: te.sum(term(i, j), axis=k))

    return [
        of(lambda i, j: a[i, k] * s[k] * b[k, j]),
        of(lambda i, j: a[i, k] * b[k, j] * s[k]),
        of(lambda i, j: a[i, k] * (b[k, j] * s[k])),
        of(lambda i, j: s[k] * (a[i, k] * b[k, j])),
    ]


def convolutions() -> Sequence[te.Tensor]:
    x, w = te.placeholder((2, 32, 30, 30), name="x"), te.placeholder((48, 32, 3, 3), name="w")
    c, p, q, pq = r(32, "c"), r(3, "p"), r(3, "q"), r(9, "pq")
    padded = te.compute((2, 32, 32, 32), lambda n, m, i, j: x.at(n, m, i - 1, j - 1, mode="zero"))

    def of(term: Callable[..., Any], axis: Any) -> te.Tensor:
        return te.compute((2, 48, 30, 30), lambda n, o, i, j: te.sum(term(n, o, i, j), axis=axis))

    return [
        of(lambda n, o, i, j: x.at(n, c, i + p - 1, j + q - 1, mode="zero") * w[o, c, p, q], (c, p, q)),
        of(lambda n, o, i, j: w[o, c, p, q] * x.at(n, c, i - 1 + p, q - 1 + j, mode="zero"), (q, c, p)),
        of(lambda n, o, i, j: padded[n, c, i + p, j + q] * w[o, c, p, q], (c, p, q)),
        of(
            lambda n, o, i, j: x.at(n, c, i + pq // 3 - 1, j + pq % 3 - 1, mode="zero") * w[o, c, pq // 3, pq % 3],
            (c, pq),
        ),
    ]


def borders() -> Sequence[te.Tensor]:
    x = te.placeholder((300, 400), name="x")

    def of(read: Callable[[Any, Any], Any]) -> te.Tensor:
        return te.compute((300, 400), lambda i, j: read(i, j - 1) + 2 * read(i, j) + read(i, j + 1))

    return [
        of(lambda i, j: x.at(i, j, mode="clamp")),
        of(lambda i, j: x[i, te.minimum(te.maximum(j, 0), 399)]),
        of(lambda i, j: x[i, te.maximum(te.minimum(399, j), 0)]),
        of(lambda i, j: x[i, te.clip(j, 0, 399)]),
    ]


def halves() -> Sequence[te.Tensor]:
    x, y = te.placeholder((500, 600), name="x"), te.placeholder((500, 600), name="y")
    return [
        (x - y) * 0.5,
        (x - y) / 2,
        te.compute((500, 600), lambda i, j: (x[i, j] + -y[i, j]) / 2),
        te.compute((500, 600), lambda i, j: 0.5 * (x[i // 4 * 4 + i % 4, j] - y[i, j])),
    ]


def rows() -> Sequence[te.Tensor]:
    x = te.placeholder((300, 640), name="x")
    k, k1, k0 = r(640), r(80), r(8)
    return [
        x.sum(axis=1),
        te.compute((300,), lambda i: te.sum(x[i, k], axis=k)),
        te.compute((300,), lambda i: te.sum(x[i, k1 * 8 + k0], axis=(k1, k0))),
        te.compute((300,), lambda i: te.sum(x[i, k1 * 8 + k0], axis=(k0, k1))),
    ]


FAMILIES: list[Callable[[], Sequence[te.Tensor]]] = [
    matrices, masked_products, scaled_products, convolutions, borders, halves, rows,
]  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.__name__)
def test_spellings_that_people_write(family: Callable[[], Sequence[te.Tensor]]) -> None:
    first, *others = family()
    for number, other in enumerate(others, 1):
        check_alike([first], [other], f"{family.__name__}, spelling {number}")
