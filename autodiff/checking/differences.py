"""Adjoints against central differences.

Each output is contracted with a fixed random head of both signs; every element of every input is moved by two step
sizes, or a sample of them, drawn with all corners, where that would take long. Where the two estimates disagree the
function has a kink nearby (or the step is too coarse) and the element is set aside and counted. Unless atol is given,
it is for derivatives of about 1 and shrinks with those that are smaller, in float64 and float32, so that a loss of
1e-7 is checked as well; and outputs that are large beside their derivatives, which leave a difference few digits, are
allowed what they are rounded by and what a smaller step changes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, product
from typing import Any, NamedTuple

import numpy as np

from autodiff.checking.functions import traced
from autodiff.checking.probes import (
    MOVES,
    Difference,
    Evaluation,
    Probe,
    always_by_definition,
    by_definition,
    each_by,
    size_of,
)
from autodiff.checking.report import PairReport, Report
from autodiff.heads import floats
from autodiff.overrides import Fdiff, Override
from autodiff.reverse import differentiate
from tedsl.lang.errors import GradientError, user_location
from tedsl.lang.expr import Apply, Const, Expr, Fn, Var
from tedsl.lang.tensor import Constant, Placeholder, Tensor
from tedsl.lang.traverse import stages_of, topological

__all__ = ["gradcheck", "stopped"]

Array = Any

# dtype -> (step, absolute tolerance, relative tolerance, how far apart one-sided differences lie, beside derivatives,
# where there is a kink)
_DEFAULTS = {
    "float64": (1e-6, 1e-6, 1e-5, 1e-4),
    "float32": (2e-2, 2e-3, 2e-3, 0.2),
    "float16": (2e-1, 2e-1, 1e-1, 2.0),
    "bfloat16": (5e-1, 5e-1, 2e-1, 5.0),
}
PATIENCE = 1 << 27  # numbers that are computed for one input and output, unless more elements are asked for
FEW = 64  # elements that are moved in any case
_SCALED = ("float64", "float32")  # others have too few digits for steps small enough
LEAST_SCALE = 1e-6  # derivatives are taken to be as large as this
_DRAWN_EXTENT = 3  # given to each symbolic size when values are drawn here


class _Settings(NamedTuple):
    """What was asked for in place of the defaults."""

    eps: float | None
    atol: float | None
    rtol: float | None


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
    evaluation: Evaluation = always_by_definition,
) -> Report:
    """What te.gradcheck says; `evaluation` tells how a program is evaluated that is so often."""
    if callable(outputs) and not isinstance(outputs, (Tensor, Expr)):
        if values is not None:
            raise TypeError(
                f"gradcheck at {user_location()}: values= is for tensors; of a function, give the arrays as inputs"
            )
        outputs, inputs, values = traced(outputs, inputs)
    if elements is not None and not (isinstance(elements, (int, float)) and elements >= 1):
        raise ValueError(
            f"gradcheck at {user_location()}: elements: expected how many elements of each input are moved, 1 or more, "
            f"or math.inf, found {elements!r:.40}"
        )
    targets = floats(outputs, "outputs", "gradcheck")
    sources = floats(inputs, "inputs", "gradcheck")
    random = np.random.default_rng(seed)
    feeds = _feeds(targets, sources, _named(values, sources, isinstance(inputs, Tensor)), random)
    settings = _Settings(eps, atol, rtol)
    pairs: list[PairReport] = []
    for target in targets:
        pairs += _check_output(target, sources, feeds, evaluation, random, settings, override, fdiff, elements)
    report = Report(tuple(pairs), feeds, (*_independent(targets, sources), *stopped(targets)))
    if raise_exception and not report.ok:
        raise GradientError(f"gradcheck at {user_location()}: adjoints and differences disagree\n{report}")
    return report


def _independent(outputs: Sequence[Tensor], inputs: Sequence[Tensor]) -> Iterator[str]:
    """A note on each input that no output depends on, and on what is read under its name instead."""
    stages = stages_of(outputs)
    names = " and ".join(dict.fromkeys(t.name for t in outputs))
    for source in inputs:
        if source.op in stages:
            continue
        others = [op.where for op in stages if isinstance(op, Placeholder) and op.name == source.name]
        hint = f"; it reads another {source.name}, defined at {others[0]}" if others else ""
        yield f"{names} does not depend on {source.name}, so that its gradient is 0{hint}"


def stopped(outputs: Sequence[Tensor]) -> Iterator[str]:
    """A note on each stage that is a constant to the adjoints and to the differences is none."""
    for op in stages_of(outputs):
        if any(isinstance(node, Apply) and node.fn is Fn.STOP for node in topological(op.expressions)):
            yield f"differences see through te.stop_gradient in {op.name}, adjoints do not"


def _feeds(
    outputs: Sequence[Tensor], inputs: Sequence[Tensor], given: dict[Tensor, Any], random: np.random.Generator
) -> dict[Tensor, Array]:
    """An array for every placeholder: what was given, and what is drawn here."""
    for op in stages_of([*outputs, *inputs]):
        if isinstance(op, Placeholder) and op.output() not in given:
            given[op.output()] = op.array if isinstance(op, Constant) else _drawn(op.output(), random)
    # Python numbers have no dtype of their own; arrays keep theirs, and a wrong one is refused.
    return {t: np.array(v, None if hasattr(v, "dtype") else t.dtype.numpy) for t, v in given.items()}


def _named(values: Any, inputs: Sequence[Tensor], single: bool) -> dict[Tensor, Any]:
    """The values by tensor; those of a single input may be given bare."""
    if isinstance(values, Mapping):
        for key in values:
            if not isinstance(key, Tensor):
                raise TypeError(
                    f"gradcheck at {user_location()}: the keys of values are tensors, found {type(key).__name__} "
                    f"({key!r:.40})"
                )
        return dict(values)
    if values is None:
        return {}
    bare = hasattr(values, "__array__") or (single and np.ndim(values) == inputs[0].ndim)
    items = [values] if bare else list(values)
    if len(items) != len(inputs):
        raise ValueError(f"gradcheck at {user_location()}: {len(inputs)} inputs but {len(items)} values")
    return dict(zip(inputs, items, strict=True))


def _drawn(tensor: Tensor, random: np.random.Generator) -> Array:
    shape = []
    for extent in tensor.extents:
        if not isinstance(extent, (Const, Var)):
            raise ValueError(
                f"gradcheck at {user_location()}: give values= for {tensor!r}, whose extent `{extent}` is an expression"
            )
        shape.append(int(extent.value) if isinstance(extent, Const) else _DRAWN_EXTENT)
    if tensor.dtype.is_float:
        return random.uniform(-1.0, 1.0, shape).astype(tensor.dtype.numpy)
    return random.integers(0, 2, shape).astype(tensor.dtype.numpy)


def _check_output(
    output: Tensor,
    inputs: Sequence[Tensor],
    feeds: Mapping[Tensor, Array],
    evaluation: Evaluation,
    random: np.random.Generator,
    settings: _Settings,
    override: Override | None,
    fdiff: Fdiff | None,
    elements: float | None,
) -> list[PairReport]:
    size = size_of(output, feeds)
    head = Placeholder(name=f"{output.name}_head", shape=output.extents, dtype=output.dtype).output()
    weights = random.uniform(0.5, 1.5, size.shape) * random.choice([-1.0, 1.0], size.shape)
    weights = weights.astype(output.dtype.numpy)
    gradients = list(differentiate([output], list(inputs), head=[head], override=override, fdiff=fdiff))
    wanted, given = [output, *gradients], {**feeds, head: weights}
    _, *analytic = (evaluation(wanted, given, 1) or by_definition)(wanted, given)
    for source in inputs:
        if source not in feeds:
            raise ValueError(f"gradcheck at {user_location()}: {source!r} is computed; only placeholders can be moved")
    most = max(FEW, PATIENCE // (len(MOVES) * size.numbers)) if elements is None else elements
    moved = [_moved(feeds[t].shape, most, random) for t in inputs]
    steps = [_DEFAULTS[t.dtype][0] if settings.eps is None else settings.eps for t in inputs]
    moves = [(t, at, step) for t, places, step in zip(inputs, moved, steps, strict=True) for at in places]
    run = evaluation([output], feeds, 1 + len(MOVES) * len(moves))
    probe = Probe(output, feeds, weights, each_by(output, run), size.at_once)
    found = probe.differences(moves)
    return [
        _pair(output, t, a, dict(zip(places, islice(found, len(places)), strict=True)), settings)
        for t, a, places in zip(inputs, analytic, moved, strict=True)
    ]


def _moved(shape: tuple[int, ...], most: float, random: np.random.Generator) -> list[tuple[int, ...]]:
    """The elements that are moved: all, or the corners and others that are drawn."""
    count = math.prod(shape)
    if count <= most:
        return list(np.ndindex(shape))
    corners = list(product(*(sorted({0, n - 1}) for n in shape)))[: int(most)]
    drawn = (tuple(map(int, np.unravel_index(at, shape))) for at in random.choice(count, int(most), replace=False))
    return sorted(islice(dict.fromkeys((*corners, *drawn)), int(most)))


def _pair(
    output: Tensor,
    source: Tensor,
    analytic: Array,
    found: Mapping[tuple[int, ...], Difference],
    settings: _Settings,
) -> PairReport:
    """The adjoint beside the differences of the elements that were moved."""
    *usual, apart = _DEFAULTS[source.dtype]
    step, atol, rtol = (given if given is not None else d for given, d in zip(settings, usual, strict=True))
    worst: tuple[float, tuple[int, ...], float, float, float] = (-1.0, (), 0.0, 0.0, atol)
    checked = kinks = 0
    ok = True
    is_scaled = settings.atol is None and source.dtype in _SCALED
    scale = _scale(analytic, list(found.values())) if is_scaled else 1.0
    kink = max(apart if given is None else 10 * given for given in (settings.atol, settings.rtol))
    for index, (numeric, bend, change, noise) in found.items():
        exact = float(analytic[index])
        unsure = noise + 2 * change * (scale < 1 or source.dtype.name == "float32") if settings.atol is None else 0.0
        tolerance = scale * atol + rtol * abs(numeric) + unsure
        error = abs(exact - numeric)
        agrees = error <= tolerance or exact == numeric
        if not agrees and max(bend, change) > kink * (scale + abs(numeric)):
            kinks += 1
            continue
        checked += 1
        ok &= agrees
        badness = np.inf if np.isnan(error) else error / tolerance
        if badness > worst[0]:
            worst = (badness, index, exact, numeric, tolerance)
    _, index, exact, numeric, tolerance = worst
    return PairReport(
        output.name,
        source.name,
        index,
        exact,
        numeric,
        step,
        tolerance,
        checked,
        kinks,
        ok,
        len(found),
        int(np.size(analytic)),
    )


def _scale(analytic: Array, found: Sequence[Difference]) -> float:
    """How large derivatives are, at most 1: what the absolute tolerance is multiplied by."""
    sizes = np.abs([float(np.max(np.abs(analytic), initial=0.0)), *(difference.numeric for difference in found)])
    return float(min(1.0, max(np.max(sizes[np.isfinite(sizes)], initial=0.0), LEAST_SCALE)))
