"""`te.gradcheck`: adjoints against differences, interpreted or compiled, by which takes less time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import autodiff
from autodiff.checking import Report
from autodiff.checking.probes import MOVES, Evaluate, Evaluation, size_of
from autodiff.overrides import Fdiff, Override
from tedsl.analysis.sizes import axis_length, bind_sizes
from tedsl.analysis.work import work
from tedsl.backend.build import evaluate as compiled
from tedsl.lang.expr import Var
from tedsl.lang.keywords import own_arguments
from tedsl.lang.tensor import Placeholder, Scan, Tensor
from tedsl.lang.traverse import operations_between
from tedsl.reference import interpret

__all__ = ["gradcheck", "is_compiled"]

Array = np.ndarray[Any, Any]

# Nanoseconds. By the reference: of an operation on a number, of a node of a step of a scan whatever its size; compiled:
# of an operation, of a call, and of compiling a program and a node.
REFERENCE, STEP_NODE = 10, 8_000
RUN, CALL, PROGRAM, NODE = 1, 2_000_000, 200_000_000, 5_000_000


@own_arguments(
    hint="it checks the adjoints that te.differentiate(outputs, inputs) finds, or those of override= or of "
    "fdiff=lambda output, input, head: ..."
)
def gradcheck(
    outputs: Any,
    inputs: Any,
    values: Any = None,
    *,
    eps: float | None = None,
    atol: float | None = None,
    rtol: float | None = None,
    raise_exception: bool = True,
    override: Override | None = None,
    fdiff: Fdiff | None = None,
    seed: int = 0,
    elements: float | None = None,
    evaluate: Evaluate | None = None,
) -> Report:
    """The adjoints of `outputs` for `inputs` compared with central differences at `values` (drawn when None).

    `values` maps placeholders to arrays, lists arrays in the order of `inputs`, or is the array of a single one.
    Instead, `outputs` may be a function of tensors and `inputs` a tuple or list of its arguments, which are arrays,
    nests of them, numbers, or anything else; or a single one that is neither. It is checked in float64.

    Of each input `elements` are moved (`math.inf`: all of them); without it, all of small inputs, a sample of large
    ones. Programs are interpreted; those of float64 are compiled where that is faster, compiling included. `evaluate`
    says which: `te.interpret`, `te.evaluate`, or another function of tensors and feeds.

    Raises GradientError with the report when an element disagrees, unless `raise_exception=False`.
    """

    def given(tensors: Sequence[Tensor], feeds: Mapping[Tensor, Array], times: int) -> Evaluate | None:
        return None if evaluate is interpret else evaluate

    evaluation: Evaluation = quicker if evaluate is None else given
    return autodiff.gradcheck(
        outputs, inputs, values, eps=eps, atol=atol, rtol=rtol, raise_exception=raise_exception, override=override,
        fdiff=fdiff, seed=seed, elements=elements, evaluation=evaluation,
    )  # fmt: skip


def quicker(tensors: Sequence[Tensor], feeds: Mapping[Tensor, Array], times: int) -> Evaluate | None:
    """The compiled program where that takes less time, else the reference (None)."""
    return compiled if is_compiled(tensors, feeds, times) else None


def is_compiled(tensors: Sequence[Tensor], feeds: Mapping[Tensor, Array], times: int) -> bool:
    """Whether it takes less time to compile a program and to run it so often than to interpret it.

    In fewer digits, kernels add up otherwise than the reference, by more than differences are off: not then.
    """
    inputs = {t for t in feeds if isinstance(t.op, Placeholder)}
    if len(inputs) < len(feeds) or any(t.dtype.is_float and t.dtype.bits != 64 for t in (*tensors, *inputs)):
        return False
    sizes = bind_sizes(list(feeds), [a.shape for a in feeds.values()], None, "gradcheck")
    stages = [op for op in operations_between(feeds, tensors) if not isinstance(op, Placeholder)]
    flops = work(list(tensors), sizes).flops * times
    together = len(MOVES) * size_of(tensors[0], feeds).at_once
    steps = sum(_steps(op, sizes) * len(op.nodes) for op in stages if isinstance(op, Scan)) * -(-times // together)
    interpreting = REFERENCE * flops + STEP_NODE * steps
    compiling = PROGRAM + NODE * sum(len(op.nodes) for op in stages)
    return compiling + CALL * times + RUN * flops < interpreting


def _steps(scan: Scan, sizes: Mapping[Var, int]) -> int:
    return math.prod(axis_length(scan.axes[d], sizes) for d in scan.dims)
