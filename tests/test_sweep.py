"""The families of `benchmarks.sweep`: drawn programs are right, whatever the seed."""

from __future__ import annotations

import itertools

import pytest

pytest.importorskip("threadpoolctl")  # which the benchmark needs
pytest.importorskip("torch")
from benchmarks.sweep import KINDS, Line, distribution, drawn, measured, worst
from benchmarks.sweep_families import FAMILIES
from schedules.estimate import Cost


@pytest.mark.share(2)
@pytest.mark.parametrize(("family", "kind"), list(zip(FAMILIES, itertools.cycle(KINDS), strict=False)))
def test_families(family: str, kind: str) -> None:
    """One program of each in the default tier, in turns of one kind and of the other."""
    ((name, program),) = drawn(11, 1, [family])
    line = measured(name, program, kind, seconds=0, chosen=("torch", "jax"))
    assert line.ratio > 0
    assert not {"WRONG", "FAILED"} & set(line.fault.replace(":", ",").split(","))


def test_seeds_bring_programs() -> None:
    """The same ones again for a seed, and others for another."""
    texts = [[program.text for _, program in drawn(seed, len(FAMILIES))] for seed in (1, 1, 2)]
    assert texts[0] == texts[1]
    assert len(set(texts[0]) & set(texts[2])) < len(FAMILIES) / 2


def test_distribution() -> None:
    lines = [Line(str(r), KINDS[0], r, 1.0, 0.1) for r in (0.25, 1.0, 2.0, 3.0, 4.0)]
    lines += [Line("lost", KINDS[1], 0.0, 0.0, 0.0, "FAILED")]
    (*_, row) = distribution(lines).splitlines()
    assert row == "| forward | 5 | 0.25 | 0.40 | 1.00 | 2.00 | 3.00 | 1 | 0 |"


def test_worst() -> None:
    """The least first, each beside what the cost model says in the time that its cycles take in the median."""
    lines = [
        Line(name, KINDS[0], ratio, ms, 0.1, cost=Cost({"y": 100.0 * k, "x": 25.0}))
        for name, ratio, ms, k in (("a", 2.0, 1.0, 1), ("b", 0.5, 4.0, 1), ("c", 1.0, 1.0, 1))
    ]
    *_, first, second = worst(lines, 2).splitlines()
    assert first == "| b | forward | 0.50 |  | 4.000 | 0.10 |  | 1.000 | y 80%, x 20% |"
    assert second.startswith("| c |")
