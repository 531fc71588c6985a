"""Compiled programs beside the reference."""

from __future__ import annotations

from typing import Any

import numpy as np

import tedsl as te


def compare(inputs: list[te.Tensor], outputs: list[te.Tensor], arrays: list[np.ndarray[Any, Any]]) -> None:
    """Compiled and interpreted results agree up to the order of the sums."""
    found = te.build(inputs, outputs)(*arrays)
    expected = te.interpret(outputs, dict(zip(inputs, arrays, strict=True)))
    for got, want in zip(found, expected, strict=True):
        assert got.dtype == want.dtype
        if want.dtype.kind != "f":
            np.testing.assert_array_equal(got, want)
            continue
        finite = want[np.isfinite(want)]
        scale = float(np.abs(finite).max()) if finite.size else 0.0
        np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-5 * scale)
