"""The lines of `benchmarks.operators`: every operator has one, and they are measured and told."""

from __future__ import annotations

import pytest

pytest.importorskip("threadpoolctl")  # which the benchmark needs
pytest.importorskip("torch")
from benchmarks.operator_lines import LINES, SIZES, UNLISTED
from benchmarks.operators import measure, summary, table
from benchmarks.sweep import KINDS
from tedsl import ops


def test_every_operator_has_a_line() -> None:
    assert {line.operator for line in LINES} | set(UNLISTED) == set(ops.__all__)
    assert len({line.name for line in LINES}) == len(LINES)


@pytest.mark.parametrize("name", ["masked_fill", "var_mean"])
def test_measured(name: str) -> None:
    """Forward and with gradients: an input without a gradient, and two results."""
    (line,) = (x for x in LINES if x.name == name)
    rows = [measure(line, SIZES[0], kind, 2, seconds=0) for kind in KINDS]
    assert all(row["ratio"] > 0 and not row["fault"] for row in rows)
    assert f"| {name} | torch |  / " in table(rows)
    assert summary(rows).count("\n") == 3


def test_what_falls_short_stands_out() -> None:
    row = {"name": "f", "size": "large", "kind": KINDS[1], "threads": 1, "peer": "torch", "ratio": 0.5, "build_s": 4.0}
    *_, last = table([{**row, "fault": "long build"}, {**row, "threads": 2, "ratio": 1.25, "fault": ""}]).splitlines()
    assert last == "| f | torch |  |  |  |  |  | **0.50** / 1.25 | 4.00 | long build |"
