"""The catalogue: what users write, in every form that index inversion has to turn around, with oracles made by others.

`python -m tests.autodiff.catalogue` prints what the adjoints of each line cost; `docs/cost_table.md` is its output.
"""

from __future__ import annotations

from tests.autodiff.catalogue import contractions, convolutions, networks, pooling, sampling, shapes
from tests.autodiff.catalogue.entry import Case, Entry

__all__ = ["CATALOGUE", "Case", "Entry"]

CATALOGUE: list[Entry] = [
    *contractions.ENTRIES,
    *convolutions.ENTRIES,
    *pooling.ENTRIES,
    *shapes.ENTRIES,
    *networks.ENTRIES,
    *sampling.ENTRIES,
]
assert len({e.name for e in CATALOGUE}) == len(CATALOGUE), "two entries of one name"
