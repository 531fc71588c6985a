"""The catalogue of operators beside PyTorch and JAX: values, gradients, costs."""

from __future__ import annotations

from tests.autodiff.catalogue.entry import Entry
from tests.ops.catalogue import images, layers, neural, science, sequences

__all__ = ["ABOVE_THE_LAW", "CATALOGUE"]

CATALOGUE: list[Entry] = [*layers.ENTRIES, *neural.ENTRIES, *sequences.ENTRIES, *images.ENTRIES, *science.ENTRIES]
assert len({e.name for e in CATALOGUE}) == len(CATALOGUE), "two entries of one name"

# What the law asks cannot hold, and why.
ABOVE_THE_LAW = {
    "adaptive_max_pool2d (2, 4)": "an element lies in one or two windows where the size does not divide: both are asked",
    "scatter_reduce prod": "the product of the others by a prefix and a suffix, of few operations forward",
    "demosaic": "40.0% masked inside: points of a color that the forward pass does not select there",
    "streaming_logsumexp": "7.0 x the iterations, of 1.2 x the operations: small stages, computed where they are read",
}
