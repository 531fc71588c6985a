"""Results of random programs beside those of the reference, as far apart as rounding allows."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import Phase

import tedsl as te
from autodiff.strategies import DTYPES, Program

# No shrinking: each step compiles a kernel, and the program that is printed is short already.
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
EVERY = (*DTYPES, "bfloat16")
ROUNDINGS = 64  # terms of a sum, and a margin for what is rounded before and after
UNITS = 8  # of the last place, for a function of analysis
EPSILON = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}


def compare(program: Program, feeds: dict[te.Tensor, Any], found: Any) -> None:
    """The results are those of the reference."""
    compared = [*program.outputs, *program.scale.values()]
    expected = dict(zip(compared, te.interpret(compared, feeds, program.sizes), strict=True))
    for tensor, got in zip(program.outputs, found, strict=True):
        want = expected[tensor]
        assert got.dtype == want.dtype
        assert got.shape == want.shape
        if tensor.dtype == "bfloat16":  # to NumPy, two NaNs of a type that it does not know differ
            got, want = got.astype(np.float32), want.astype(np.float32)
        if tensor in program.exact:
            np.testing.assert_array_equal(got, want, err_msg=f"{tensor}")
            continue
        epsilon = EPSILON[str(tensor.dtype)]
        magnitude = expected[program.scale[tensor]] if tensor in program.scale else np.abs(want.astype(np.float64))
        magnitude = np.where(np.isfinite(magnitude), magnitude, 0.0)
        if tensor in program.scale and program.scale[tensor].name != f"{tensor.name}_scale":
            magnitude = magnitude.max(initial=0.0)  # it reads elements of the sum, wherever they now stand
        # A sum that rounds through another type of 16 bits rounds once more at the end.
        slack = np.broadcast_to(magnitude * epsilon * (ROUNDINGS if tensor in program.scale else UNITS), want.shape)
        tiny = np.finfo(np.float32 if tensor.dtype != "float64" else np.float64).tiny
        both = np.isfinite(want.astype(np.float64))
        np.testing.assert_array_equal(both, np.isfinite(got.astype(np.float64)), err_msg=f"{tensor}")
        np.testing.assert_array_equal(got[~both], want[~both], err_msg=f"{tensor}")
        error = np.abs(got.astype(np.float64)[both] - want.astype(np.float64)[both])
        assert (error <= slack[both] + tiny).all(), f"{tensor}\nfound {got}\nexpected {want}"


def merged(parts: list[Program]) -> Program:
    """Several programs as one, so that one kernel computes them."""
    return Program(
        tuple(t for p in parts for t in p.inputs),
        tuple(t for p in parts for t in p.outputs),
        {v: n for p in parts for v, n in p.sizes.items()},
        {t: n for p in parts for t, n in p.below.items()},
        frozenset(t for p in parts for t in p.exact),
        {t: s for p in parts for t, s in p.scale.items()},
    )
