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
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from autodiff.checking.functions import traced
from autodiff.checking.report import PairReport, Report
from autodiff.heads import floats
from autodiff.overrides import Fdiff, Override
from autodiff.reverse import differentiate
from tedsl.analysis.sizes import bind_sizes, concrete_shape
from tedsl.lang.batching import batched
from tedsl.lang.dataclass import dataclass
from tedsl.lang.dtypes import INT32
from tedsl.lang.errors import GradientError, user_location
from tedsl.lang.expr import Apply, Const, Expr, Fn, Var
from tedsl.lang.keywords import own_arguments
from tedsl.lang.tensor import Constant, Placeholder, Tensor
from tedsl.lang.traverse import operations_between, stages_of, topological
from tedsl.reference import interpret

__all__ = ["gradcheck"]

Array = Any
Evaluate = Callable[[Sequence[Tensor], Mapping[Tensor, Array]], tuple[Array, ...]]
# The values of an output for each of several arrays for an input.
Each = Callable[[Mapping[Tensor, Array], Tensor, Array], Array]

# dtype -> (step, absolute tolerance, relative tolerance, how far apart one-sided differences lie, beside derivatives,
# where there is a kink)
_DEFAULTS = {
    "float64": (1e-6, 1e-6, 1e-5, 1e-4),
    "float32": (2e-2, 2e-3, 2e-3, 0.2),
    "float16": (2e-1, 2e-1, 1e-1, 2.0),
    "bfloat16": (5e-1, 5e-1, 2e-1, 5.0),
}
# Units in the last place by which an output may be off; relative size of a unit.
_ROUNDINGS = {"float64": 4, "float32": 16, "float16": 4, "bfloat16": 4}
_UNIT = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
AT_ONCE = 32  # elements that are moved in one evaluation, fewer where its tensors would take more than this
LIMIT = 1 << 22  # numbers
PATIENCE = 1 << 27  # numbers that are computed for one input and output, unless more elements are asked for
FEW = 64  # elements that are moved in any case
_SCALED = ("float64", "float32")  # others have too few digits for steps small enough
LEAST_SCALE = 1e-6  # derivatives are taken to be as large as this
MOVES = (0.0, 1.0, -1.0, 0.5, -0.5)  # steps by which an element is moved
# Extent given to each symbolic size when values are drawn here.
_DRAWN_EXTENT = 3


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

    `values` maps placeholders to arrays, or lists arrays in the order of `inputs` (of a single one: is its array).
    Instead, `outputs` may be a function of tensors and `inputs` a tuple or list of its arguments, which are arrays,
    nests of them, numbers, or anything else; or a single one that is neither. It is checked in float64.
    Of each input `elements` are moved (`math.inf`: all of them), in large programs a sample unless that is given.
    Raises GradientError with the report when an element disagrees, unless `raise_exception=False`.
    """
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
    run = evaluate or _by_definition
    pairs: list[PairReport] = []
    for target in targets:
        pairs += _check_output(target, sources, feeds, run, random, (eps, atol, rtol), override, fdiff, elements)
    report = Report(tuple(pairs), feeds, (*_independent(targets, sources), *_stopped(targets)))
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


def _stopped(outputs: Sequence[Tensor]) -> Iterator[str]:
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
    run: Evaluate,
    random: np.random.Generator,
    settings: tuple[float | None, float | None, float | None],
    override: Override | None,
    fdiff: Fdiff | None,
    elements: float | None,
) -> list[PairReport]:
    (value,) = run([output], feeds)
    head = Placeholder(name=f"{output.name}_head", shape=output.extents, dtype=output.dtype).output()
    weights = random.uniform(0.5, 1.5, np.shape(value)) * random.choice([-1.0, 1.0], np.shape(value))
    weights = weights.astype(output.dtype.numpy)
    gradients = list(differentiate([output], list(inputs), head=[head], override=override, fdiff=fdiff))
    analytic = run(gradients, {**feeds, head: weights})

    def contracted(ahead: Array, behind: Array) -> float:
        """The head times a difference; equal elements differ by 0, infinite ones too."""
        same = (ahead == behind) | (np.isnan(ahead) & np.isnan(behind))
        with np.errstate(invalid="ignore"):
            return float(np.sum(np.where(same, 0.0, ahead - behind) * weights.astype(np.float64)))

    def rounding(ahead: Array, behind: Array) -> float:
        """By how much rounding may move the contraction; an element that is equal may hide a change below its unit."""
        largest = np.maximum(np.abs(ahead), np.abs(behind))
        units = np.where(np.isfinite(largest), np.where(ahead == behind, 1, _ROUNDINGS[output.dtype]) * largest, 0.0)
        return _UNIT[output.dtype] * float(np.sum(units * np.abs(weights.astype(np.float64))))

    each = _one_by_one(output, run) if run is not _by_definition else _together(output)
    numbers = _numbers(output, feeds)
    most = max(FEW, PATIENCE // (len(MOVES) * numbers)) if elements is None else elements
    probe = _Probe(feeds, each, max(1, min(AT_ONCE, LIMIT // (len(MOVES) * numbers))), contracted, rounding)
    return [
        _check_pair(output, t, a, probe, settings, _moved(feeds[t].shape if t in feeds else (), most, random))
        for t, a in zip(inputs, analytic, strict=True)
    ]


def _by_definition(tensors: Sequence[Tensor], arrays: Mapping[Tensor, Array]) -> tuple[Array, ...]:
    return interpret(list(tensors), dict(arrays))


def _one_by_one(output: Tensor, run: Evaluate) -> Each:
    def each(feeds: Mapping[Tensor, Array], source: Tensor, arrays: Array) -> Array:
        return np.stack([run([output], {**feeds, source: array})[0] for array in arrays])

    return each


def _together(output: Tensor) -> Each:
    """All of them at once, by a program with one more axis: what the interpreter does is done once for each stage."""

    def each(feeds: Mapping[Tensor, Array], source: Tensor, arrays: Array) -> Array:
        extent = Const(len(arrays), INT32)
        many = Placeholder(name=source.name, shape=(extent, *source.extents), dtype=source.dtype).output()
        (results,) = batched([output], {source: many}, extent)
        rest = {t: a for t, a in feeds.items() if t is not source}
        return interpret(results, {**rest, many: arrays})

    return each


def _moved(shape: tuple[int, ...], most: float, random: np.random.Generator) -> list[tuple[int, ...]]:
    """The elements that are moved: all, or the corners and others that are drawn."""
    count = math.prod(shape)
    if count <= most:
        return list(np.ndindex(shape))
    corners = list(product(*(sorted({0, n - 1}) for n in shape)))[: int(most)]
    drawn = random.choice(count, size=int(most) - len(corners), replace=False)
    return sorted({*corners, *(tuple(map(int, np.unravel_index(at, shape))) for at in drawn)})


def _numbers(output: Tensor, feeds: Mapping[Tensor, Array]) -> int:
    """How many numbers one evaluation computes, which holds each tensor once for every move."""
    inputs = [t for t in feeds if isinstance(t.op, Placeholder) and not isinstance(t.op, Constant)]
    sizes = bind_sizes(inputs, [feeds[t].shape for t in inputs], None, "gradcheck")
    stages = operations_between(feeds, [output])
    return max(1, sum(math.prod(concrete_shape(t, sizes, "gradcheck")) for op in stages for t in op.outputs))


class _Difference(NamedTuple):
    """A central difference, how far one-sided ones lie apart, what half the step changes, and what rounding does."""

    numeric: float
    bend: float
    change: float
    noise: float


@dataclass(frozen=True)
class _Probe:
    """Moves elements and sees what the contracted output does."""

    feeds: Mapping[Tensor, Array]
    each: Each
    at_once: int
    contracted: Callable[[Array, Array], float]
    rounding: Callable[[Array, Array], float]

    def differences(self, source: Tensor, indices: Sequence[tuple[int, ...]], step: float) -> Iterator[_Difference]:
        """Of each element the central difference, and how far to trust it."""
        here = self.feeds[source]
        arrays = np.repeat(here[None], len(MOVES) * len(indices), axis=0)
        for at, (index, by) in enumerate(product(indices, MOVES)):
            place = at, *index
            arrays[place] += here.dtype.type(by * step)
        results = self.each(self.feeds, source, arrays).astype(np.float64)
        for at in range(0, len(arrays), len(MOVES)):
            yield self._difference(results[at : at + len(MOVES)], step)

    def _difference(self, results: Sequence[Array], step: float) -> _Difference:
        here, ahead, behind, nearer, farther = results
        numeric = self.contracted(ahead, behind) / (2 * step)
        left, right = self.contracted(here, behind) / step, self.contracted(ahead, here) / step
        smaller = self.contracted(nearer, farther) / step
        return _Difference(numeric, abs(left - right), abs(smaller - numeric), self.rounding(ahead, behind) / step)


def _check_pair(
    output: Tensor,
    source: Tensor,
    analytic: Array,
    probe: _Probe,
    settings: tuple[float | None, float | None, float | None],
    indices: Sequence[tuple[int, ...]],
) -> PairReport:
    if source not in probe.feeds:
        raise ValueError(f"gradcheck at {user_location()}: {source!r} is computed; only placeholders can be moved")
    *usual, apart = _DEFAULTS[source.dtype]
    step, atol, rtol = (given if given is not None else d for given, d in zip(settings, usual, strict=True))
    worst: tuple[float, tuple[int, ...], float, float, float] = (-1.0, (), 0.0, 0.0, atol)
    checked = kinks = 0
    ok = True
    found = [
        difference
        for first in range(0, len(indices), probe.at_once)
        for difference in probe.differences(source, indices[first : first + probe.at_once], step)
    ]
    is_scaled = settings[1] is None and source.dtype in _SCALED
    scale = _scale(analytic, found) if is_scaled else 1.0
    kink = max(apart if given is None else 10 * given for given in settings[1:])
    for index, (numeric, bend, change, noise) in zip(indices, found, strict=True):
        exact = float(analytic[index])
        unsure = noise + 2 * change * (scale < 1 or source.dtype.name == "float32") if settings[1] is None else 0.0
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
        len(indices),
        math.prod(probe.feeds[source].shape),
    )


def _scale(analytic: Array, found: Sequence[_Difference]) -> float:
    """How large derivatives are, at most 1: what the absolute tolerance is multiplied by."""
    sizes = np.abs([float(np.max(np.abs(analytic), initial=0.0)), *(difference.numeric for difference in found)])
    return float(min(1.0, max(np.max(sizes[np.isfinite(sizes)], initial=0.0), LEAST_SCALE)))
