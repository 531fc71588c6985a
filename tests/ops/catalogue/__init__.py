"""The catalogue of operators beside PyTorch and JAX: values, gradients, costs."""

from __future__ import annotations

from tests.autodiff.catalogue.entry import Entry
from tests.ops.catalogue import layers, neural

__all__ = ["ABOVE_THE_LAW", "CATALOGUE"]

CATALOGUE: list[Entry] = [*layers.ENTRIES, *neural.ENTRIES]
assert len({e.name for e in CATALOGUE}) == len(CATALOGUE), "two entries of one name"

# What the law asks cannot hold, and why.
ABOVE_THE_LAW = {
    "adaptive_max_pool2d (2, 4)": "an element lies in one or two windows where the size does not divide: two are asked",
}
