"""Write docs/ops_cost_table.md: what the adjoints of every operator cost."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.autodiff.catalogue.cost import cost_of, table
from tests.ops.catalogue import ABOVE_THE_LAW, CATALOGUE

TABLE = Path(__file__).parents[3] / "docs" / "ops_cost_table.md"

TEXT = """\
# What the adjoints of operators cost

The catalog `te.ops`, counted as in [What adjoints cost](cost_table.md) and held to the same law by `tests/ops/test_catalogue.py`. Lines that
break it are listed below the table, with the reason. Written by `python -m tests.ops.catalogue`.
"""


def main() -> None:
    costs = [cost_of(e) for e in CATALOGUE]
    above = "".join(f"- {name}: {reason}\n" for name, reason in ABOVE_THE_LAW.items())
    TABLE.write_text(f"{TEXT}\n{table(costs)}\n\nLines that break the law:\n\n{above}")
    sys.stdout.write(f"{len(costs)} lines written to {TABLE}\n")


if __name__ == "__main__":
    main()
