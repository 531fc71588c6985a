"""Write docs/cost_table.md: what the adjoints of every line of the catalogue cost."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.autodiff.catalogue import CATALOGUE
from tests.autodiff.catalogue.cost import LAW, cost_of, table

TABLE = Path(__file__).parents[3] / "docs" / "cost_table.md"


def main() -> None:
    costs = [cost_of(e) for e in CATALOGUE]
    TABLE.parent.mkdir(exist_ok=True)
    TABLE.write_text(f"# What adjoints cost\n\n{LAW}\n{table(costs)}\n")
    sys.stdout.write(f"{len(costs)} lines written to {TABLE}\n")


if __name__ == "__main__":
    main()
