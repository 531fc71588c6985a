"""The families of `benchmarks.sweep`: drawn programs are right, whatever the seed."""

from __future__ import annotations

import pytest

pytest.importorskip("threadpoolctl")  # which the benchmark needs
pytest.importorskip("torch")
from benchmarks.sweep import KINDS, Line, distribution, drawn, measured
from benchmarks.sweep_families import FAMILIES


@pytest.mark.parametrize("family", FAMILIES)
def test_families(family: str) -> None:
    """One program of each in the default tier."""
    ((name, program),) = drawn(11, 1, [family])
    for kind in KINDS:
        line = measured(name, program, kind, seconds=0)
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
