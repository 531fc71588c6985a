"""Write docs/ops_cost_table.md: what the adjoints of every operator cost."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.autodiff.catalogue.cost import cost_of, table
from tests.ops.catalogue import ABOVE_THE_LAW, CATALOGUE

TABLE = Path(__file__).parents[3] / "docs" / "ops_cost_table.md"

TEXT = """\
# What the adjoints of operators cost

These are the operators of `te.ops`, counted as in [What adjoints cost](cost_table.md), which explains the columns. `python -m
tests.ops.catalogue` writes the table, and `tests/ops/test_catalogue.py` holds each line to the same rules. Lines that break one are listed
below the table, with the reason.
"""


def main() -> None:
    costs = [cost_of(e) for e in CATALOGUE]
    above = "".join(f"- {name}: {reason}\n" for name, reason in ABOVE_THE_LAW.items())
    TABLE.write_text(f"{TEXT}\n{table(costs)}\n\nLines that break a rule:\n\n{above}")
    sys.stdout.write(f"{len(costs)} lines written to {TABLE}\n")


if __name__ == "__main__":
    main()
