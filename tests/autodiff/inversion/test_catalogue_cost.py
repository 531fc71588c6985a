"""The cost law on every line of the catalogue, and that its table in the docs is the one that holds."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from tests.autodiff.catalogue import CATALOGUE, Entry
from tests.autodiff.catalogue.cost import Cost, cost_of

# A reducer that is taken apart has small stages, computed where they are read: 1.75 x the operations, 3.12 in one walk.
ABOVE_THE_LAW = {"log-sum-exp by a reducer": ["6.92 x the iterations, with 1 taps"]}
TABLE = Path(__file__).parents[3] / "docs" / "cost_table.md"


@cache
def cost(name: str) -> Cost:
    return cost_of(next(e for e in CATALOGUE if e.name == name))


@pytest.mark.share(2)
@pytest.mark.parametrize("entry", CATALOGUE, ids=lambda e: e.name)
def test_cost_law(entry: Entry) -> None:
    found = cost(entry.name)
    if entry.name in ABOVE_THE_LAW:
        assert found.broken == ABOVE_THE_LAW[entry.name]
        return
    assert not found.broken, f"{entry.name}: {', '.join(found.broken)}"
    assert not (entry.affine and found.scatters)


def test_the_law_can_be_broken() -> None:
    """A program differentiated as a dense Jacobian would be seen."""
    found = cost("matmul")
    wasteful = Cost(
        found.name, found.forward, found.forward + found.forward + found.forward + found.forward + found.forward,
        0, 1, 0.5, 0.5, 0, 0,
    )  # fmt: skip
    assert len(wasteful.broken) == 3


def test_the_table_of_the_docs_has_every_line() -> None:
    rows = [line.split(" | ")[0].removeprefix("| ") for line in TABLE.read_text().splitlines() if line.startswith("| ")]
    assert rows[1:] == [e.name for e in CATALOGUE]


@pytest.mark.parametrize("name", ["matmul", "conv2d s2 d1 k3", "max pool k3 s2", "softmax", "log-sum-exp by a reducer"])
def test_the_table_of_the_docs_is_current(name: str) -> None:
    assert "| " + " | ".join(cost(name).row()) + " |" in TABLE.read_text().splitlines(), (
        "run python -m tests.autodiff.catalogue"
    )
