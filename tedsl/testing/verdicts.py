"""One row per property that a right operator has: the check says what is wrong, or None.

Derivatives are first compared along one random direction, which takes a few evaluations and misses a wrong element with
probability zero. Where that disagrees, `gradcheck` looks at every element, sets aside those beside a kink, and its
report is the verdict.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autodiff import Report
from tedsl.backend.build import build
from tedsl.lang.dataclass import dataclass
from tedsl.lang.structure import same_program
from tedsl.lang.tensor import Placeholder, Tensor
from tedsl.lang.traverse import stages_of
from tedsl.ops.transforms.checking import gradcheck
from tedsl.testing.arguments import SampledCall
from tedsl.testing.drawn_schedules import drawn_schedule
from tedsl.testing.traced import Rules, TracedCase

__all__ = ["BY_DIFFERENCES", "CHECKS", "COMPILED", "Verdict", "Wrong"]

Array = np.ndarray[Any, Any]
STEP = 1e-6
SLACK = 1e-6  # of a central difference in float64, beside the magnitude of its terms
SECOND_STEP, SECOND_SLACK = 1e-5, 1e-5
IDENTITY_SLACK = 1e-8
DIRECTIONS = 8  # in which adjoints at a kink are looked at
# Results of a float type beside those of float64, relative to the largest number on the way.
LOW_PRECISION = {"float32": 2e-3, "float16": 2e-1, "bfloat16": 5e-1}


@dataclass(frozen=True)
class Wrong:
    """What a check found, with gradcheck's table where it is about a gradient."""

    message: str
    report: Report | None = None


@dataclass(frozen=True)
class Verdict:
    """The case in its own float type and in float64, traced once for all checks."""

    rules: Rules
    case: SampledCall
    own: TracedCase
    wide: TracedCase

    @classmethod
    def on(cls, rules: Rules, case: SampledCall) -> Verdict:
        wide = TracedCase(rules, case, "float64")
        return cls(rules, case, wide if case.dtype == "float64" else TracedCase(rules, case, case.dtype), wide)


def repeated(v: Verdict) -> Wrong | None:
    """Traced twice, the operator is the same program."""
    again = TracedCase(v.rules, v.case, v.case.dtype)
    if same_program(v.own.outputs, again.outputs, v.own.inputs, again.inputs):
        return None
    return Wrong("two calls with the same arguments built two different programs; an operator depends on them alone")


def forward(v: Verdict) -> Wrong | None:
    """Compiled by the default schedule, the outputs are those of the reference."""
    return _compiled(v, None, "compiled by the default schedule")


def schedule(v: Verdict) -> Wrong | None:
    """Compiled by a random schedule, the outputs are those of the reference."""
    drawn = drawn_schedule(v.own.outputs, v.case.seed)
    return _compiled(v, drawn, f"compiled by the schedule\n{drawn}\n")


def determinism(v: Verdict) -> Wrong | None:
    """A kernel called twice gives the same bits and leaves its inputs alone."""
    arrays = [v.own.feeds[t] for t in v.own.inputs]
    kernel = build(v.own.inputs, _computed(v.own.outputs))
    kept = [a.copy() for a in arrays]
    first, second = kernel(*arrays), kernel(*arrays)
    for tensor, a, b in zip(_computed(v.own.outputs), first, second, strict=True):
        if not np.array_equal(a, b, equal_nan=a.dtype.kind == "f"):
            return Wrong(f"two calls of one kernel gave different bits for {tensor.name}")
    for tensor, a, b in zip(v.own.inputs, kept, arrays, strict=True):
        if not np.array_equal(a, b, equal_nan=a.dtype.kind == "f"):
            return Wrong(f"the kernel changed its input {tensor.name}")
    return None


def gradient(v: Verdict) -> Wrong | None:
    """The adjoints are central differences, in float64 and in the float type of the case."""
    t = v.wide
    if not t.is_differentiable:
        return None
    adjoints = t.run([*t.outputs, *t.gradients])[len(t.outputs) :]  # what is wrong with the outputs is told first
    for source, adjoint in zip(t.float_inputs, adjoints, strict=True):
        if adjoint.shape != t.feeds[source].shape:
            return Wrong(f"the adjoint of {source.name} has shape {adjoint.shape}, expected {t.feeds[source].shape}")
    along = sum(float(np.sum(a * t.feeds[d])) for a, d in zip(adjoints, t.tangents, strict=True))
    difference = float(np.sum(_change(t, t.along, STEP, -STEP))) / (2 * STEP)
    scale = 1 + abs(difference) + sum(float(np.sum(np.abs(a * t.feeds[d]))) for a, d in zip(adjoints, t.tangents))
    if not abs(along - difference) <= SLACK * (scale + t.magnitude):
        feeds = {s: t.feeds[s] for s in t.inputs}
        report = gradcheck(t.float_outputs, t.float_inputs, feeds, elements=math.inf, raise_exception=False)
        if not report.ok:
            return Wrong("adjoints and differences disagree", report)
        return None
    return _in_own_type(v, adjoints)


def _in_own_type(v: Verdict, exact: Sequence[Array]) -> Wrong | None:
    slack = LOW_PRECISION.get(v.case.dtype)
    if slack is None:
        return None
    for source, a, b in zip(v.own.float_inputs, v.own.run(v.own.gradients), exact, strict=True):
        error = np.abs(a.astype(np.float64) - b)
        scale = 1 + float(np.abs(b).max(initial=0.0)) + v.wide.magnitude
        wrong = ~(error <= slack * scale) & np.isfinite(b)
        if wrong.any():
            place = np.unravel_index(
                int(np.argmax(np.where(wrong, np.nan_to_num(error, nan=np.inf), -1.0))), error.shape
            )
            index = tuple(map(int, place))
            return Wrong(
                f"the adjoint of {source.name} at {list(index)} is {a[index]:.6g} in {v.case.dtype} and {b[index]:.6g} "
                "in float64"
            )
    return None


def adjoint(v: Verdict) -> Wrong | None:
    """<head, J tangent> = <J' head, tangent>: both derivatives are of one linear map."""
    t = v.wide
    if not t.is_differentiable:
        return None
    pushed, pulled = t.run(t.pushed), t.run(t.gradients)
    for tensor, p in zip(t.float_outputs, pushed, strict=True):
        if p.shape != tuple(tensor.shape):
            return Wrong(f"the tangent of {tensor.name} has shape {p.shape}, expected {tuple(tensor.shape)}")
    left = [p * t.feeds[h] for p, h in zip(pushed, t.heads, strict=True)]
    right = [p * t.feeds[d] for p, d in zip(pulled, t.tangents, strict=True)]
    total = [sum(float(a.sum()) for a in side) for side in (left, right)]
    scale = 1 + t.magnitude + sum(float(np.abs(a).sum()) for a in (*left, *right))
    finite = np.isfinite(total)
    if abs(total[0] - total[1]) <= IDENTITY_SLACK * scale or not finite.any():
        return None
    slack = SLACK * (scale + t.magnitude)
    low, high = _sides(t, t.along, STEP)
    is_kink = high - low > 10 * slack
    if is_kink and _is_between_sides(t, pulled, slack, v.case.seed):
        return None
    near = "" if is_kink else f"; differences say {(low + high) / 2:.8g}"
    return Wrong(
        f"forward and reverse derivatives disagree: <head, jvp(tangents)> = {total[0]:.8g}, "
        f"<vjp(head), tangents> = {total[1]:.8g}{near}"
    )


def second(v: Verdict) -> Wrong | None:
    """The derivative of the adjoints is their central difference."""
    t = v.wide
    if not t.is_differentiable:
        return None
    hessian = t.run(t.second)
    along = sum(float(np.sum(a * t.feeds[d])) for a, d in zip(hessian, t.tangents, strict=True))
    size = sum(float(np.sum(np.abs(a * t.feeds[d]))) for a, d in zip(hessian, t.tangents, strict=True))
    size += sum(float(np.abs(a).max(initial=0.0)) for a in t.run(t.gradients))

    def change(step: float) -> float:
        ahead, behind = (t.run(t.gradients, t.moved(t.along, s)) for s in (step, -step))
        parts = [(a - b) * t.feeds[d] for a, b, d in zip(ahead, behind, t.others, strict=True)]
        return sum(float(p.sum()) for p in parts) / (2 * step)

    slack = SECOND_SLACK * (1 + size + t.magnitude)
    differences = []
    for step in (SECOND_STEP, SECOND_STEP / 2, SECOND_STEP / 7):
        differences.append(change(step))
        if abs(along - differences[-1]) <= slack or abs(differences[-1] - differences[0]) > slack:
            return None  # they agree, or the differences tell of a kink
    return Wrong(
        f"second order: the derivative of the adjoints along the tangents is {along:.8g}, "
        f"differences say {differences[0]:.8g}"
    )


def _is_between_sides(t: TracedCase, adjoints: Sequence[Array], slack: float, seed: int) -> bool:
    """At a kink every slope between those of its sides will do: whether adjoints have one, in many directions."""
    rng = np.random.default_rng([seed, 2])
    for _ in range(DIRECTIONS):
        along = [np.asarray(rng.uniform(-1.0, 1.0, a.shape)) for a in adjoints]
        low, high = _sides(t, along, STEP)
        slope = sum(float(np.sum(a * d)) for a, d in zip(adjoints, along, strict=True))
        if not low - slack <= slope <= high + slack:
            return False
    return True


def _sides(t: TracedCase, along: Sequence[Array], step: float) -> tuple[float, float]:
    """The least and the largest derivative of <heads, outputs> in a direction; they differ at a kink of an output."""
    left, right = _change(t, along, 0.0, -step) / step, _change(t, along, step, 0.0) / step
    with np.errstate(invalid="ignore"):
        return float(np.sum(np.minimum(left, right))), float(np.sum(np.maximum(left, right)))


def _change(t: TracedCase, along: Sequence[Array], ahead: float, behind: float) -> Array:
    """How much each element of the outputs, times its head, differs between two places in a direction."""
    there, here = (t.run(t.float_outputs, t.moved(along, s)) for s in (ahead, behind))
    with np.errstate(invalid="ignore"):
        parts = [(a - b) * t.feeds[h] for a, b, h in zip(there, here, t.heads, strict=True)]
    return np.concatenate([p.ravel() for p in parts])


def _computed(outputs: Sequence[Tensor]) -> list[Tensor]:
    return [t for t in outputs if not isinstance(t.op, Placeholder)]


def _compiled(v: Verdict, drawn: Any, how: str) -> Wrong | None:
    t = v.own
    outputs = _computed(t.outputs)
    results = build(t.inputs, outputs, schedule=drawn)(*(t.feeds[s] for s in t.inputs)) if outputs else ()
    for tensor, found, expected in zip(outputs, results, t.run(outputs), strict=True):
        error = _worst(found, expected, t)
        if error is not None:
            return Wrong(f"{how}, {tensor.name} differs from the reference at {error}")
    return None


def _worst(found: Array, expected: Array, t: TracedCase) -> str | None:
    """Where two results differ by more than rounding explains."""
    a, b = found.astype(np.float64), expected.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    if found.dtype.kind == "f" or found.dtype.name == "bfloat16":
        tiny = float(np.finfo(found.dtype).eps) if found.dtype.kind == "f" else 2.0**-7
        terms = 32 + max((int(np.prod(s.shape)) for s in t.feeds.values()), default=1) + 8 * len(stages_of(t.outputs))
        with np.errstate(invalid="ignore"):
            same |= np.abs(a - b) <= tiny * terms * (1e-6 + t.magnitude)
    if same.all():
        return None
    with np.errstate(invalid="ignore"):
        index = np.unravel_index(
            int(np.argmax(np.where(same, -1.0, np.nan_to_num(np.abs(a - b), nan=np.inf)))), a.shape
        )
    place = [int(i) for i in index]
    return f"{place}: {found[tuple(place)]!r} instead of {expected[tuple(place)]!r}"


Check = Callable[[Verdict], "Wrong | None"]
# In the order in which they are tried; those of COMPILED wait for a case that is compiled.
CHECKS: dict[str, Check] = {
    "repeated": repeated, "gradient": gradient, "adjoint": adjoint, "second": second,
    "forward": forward, "schedule": schedule, "determinism": determinism,
}  # fmt: skip
COMPILED = frozenset({"forward", "schedule", "determinism"})
BY_DIFFERENCES = frozenset({"gradient", "second"})
