"""`te.scan`: recurrences along axes, written as a body that reads its own earlier steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from tedsl.lang import functions as fn
from tedsl.lang.axes import as_shape
from tedsl.lang.compute import axis_names, check_scope, check_states, compute_tensors, resolve_ranges
from tedsl.lang.constants import constant
from tedsl.lang.dataclass import dataclass
from tedsl.lang.dtypes import BFLOAT16, BOTTOM, FLOAT16, FLOAT32, INT32, DType, as_dtype
from tedsl.lang.errors import brief, user_location
from tedsl.lang.expr import Axis, Const, Expr, Read
from tedsl.lang.extents import number, same_extent
from tedsl.lang.keywords import own_arguments
from tedsl.lang.operators import Operators
from tedsl.lang.packing import Lying, StepState, scan_of
from tedsl.lang.signatures import parameters_of
from tedsl.lang.step import ScanStep, written
from tedsl.lang.tensor import Scan, ScanState, Shape, Tensor, tell, tell_of_indices, tell_of_scalars
from tedsl.lang.titles import titled

if TYPE_CHECKING:
    from tedsl.lang.annotations import Element

__all__ = ["scan"]

CHECKS = "tedsl.analysis.checks"  # what knows which steps are read, by name, for it stands above the language


@overload
def scan(
    shape: Any, function: Callable[..., Element], axis: int | Sequence[int] = 0, reverse: bool = False,
    keep: int | None = None, *, dtype: Any = None, name: Any = None,
) -> Tensor: ...  # fmt: skip
@overload
def scan(
    shape: Any, function: Callable[..., tuple[Any, ...]], axis: int | Sequence[int] = 0, reverse: bool = False,
    keep: int | None = None, *, dtype: Any = None, name: Any = None,
) -> tuple[Tensor, ...]: ...  # fmt: skip
@own_arguments()
def scan(
    shape: Any,
    function: Callable[..., Any],
    axis: int | Sequence[int] = 0,
    reverse: bool = False,
    keep: int | None = None,
    *,
    dtype: Any = None,
    name: Any = None,
    **others: Any,
) -> Any:
    """Tensors filled step by step along `axis` (from the end if `reverse`).

    The function takes the handles of the states, then one axis per dimension; it returns one expression per state. A
    handle is read at earlier steps along `axis` (later ones if `reverse`) and at any index of the other axes, also
    under a reduction. Several axes, such as (0, 1), are walked as nested loops, the first one slowest: step (i, j) may
    read all of (i - 1, anything) and what is before j in its own row.

    A list of shapes gives each state its own. The function then takes the handles and the axes of the steps alone, and
    returns for each state a function of its other axes, a tensor of their shape, or an expression where none are left.

    Tensors that the function makes of its handles and axes are stages of the step: `te.compute`, `w @ h[t - 1]`.

    `keep=3` gives the last three steps that were computed, in the order of `axis`. If nobody reads the others, a kernel
    holds no more steps than the body looks back: with `keep`, and where all readers ask for `y[T - 1, ...]`.
    Where the number of steps is known at the call only, fewer than `keep` are an IndexError there.

    A state has the dtype of what the function gives for it, unless `dtype=` says another; several take a tuple.
    """
    title = titled(name, "scan", "te.scan")
    what = f"scan {title.text!r}"
    if others or (callable(shape) and not isinstance(shape, Operators)):
        raise _of_lax(others, what)
    form = _form_of(shape, axis, what)
    if not callable(function):
        raise TypeError(
            f"{what} at {user_location()}: expected a function of the states and the axes, found "
            f"{type(function).__name__}"
        )
    traced = _traced(function, form, dtype, title.text, what)
    text, names = title.of(len(traced.states), traced.several, what, "states")
    if names is not None or ((form.apart or len(traced.states) > 1) and not title.is_given):
        own = names or traced.labels
        traced = replace(traced, states=tuple(replace(s, name=n) for s, n in zip(traced.states, own, strict=True)))
        names = own
    made, places = scan_of(text, traced.steps, traced.states, bool(reverse), names, what)
    import_module(CHECKS).refuse_present_steps(made)
    results: list[Tensor] = []
    for state in traced.states:
        there = places[state.tensor]
        is_whole = there.phase < 0 and keep is None
        results += [there.tensor] if is_whole else _result(made, state, there, keep, what)
    return tuple(results) if traced.several else results[0]


def _of_lax(others: Mapping[str, Any], what: str) -> TypeError:
    """What is written here for a scan as JAX has it."""
    found = ", ".join(f"{name}=" for name in others) or "a function as the first argument"
    return TypeError(
        f"{what} at {user_location()}: expected te.scan(shape, function, axis=, reverse=, keep=, dtype=, name=), found "
        f"{found}; lax.scan(lambda c, x: (f(c, x),) * 2, init, xs) is te.scan((T,), lambda c, t: f(te.select(t == 0, "
        "init, c[t - 1]), xs[t])): the shape has the steps, which are all kept, the function reads the step before"
    )


@dataclass(frozen=True)
class _Form:
    """The shapes that were asked for, each with the dimensions of the steps; `apart`: a list of them, one per state."""

    shapes: tuple[Shape, ...]
    dims: tuple[tuple[int, ...], ...]
    apart: bool

    @property
    def steps(self) -> Shape:
        return tuple(self.shapes[0][d] for d in self.dims[0])


@dataclass(frozen=True)
class _Traced:
    """What the function of a scan gave; `several`: a tuple of states."""

    steps: tuple[Axis, ...]
    states: tuple[StepState, ...]
    labels: tuple[str, ...]
    several: bool

    @property
    def dtypes(self) -> tuple[DType, ...]:
        return tuple(state.body.dtype for state in self.states)


def _form_of(shape: Any, axis: Any, what: str) -> _Form:
    apart = isinstance(shape, (tuple, list)) and bool(shape) and all(isinstance(s, (tuple, list)) for s in shape)
    shapes = tuple(as_shape(s, what) for s in (shape if apart else (shape,)))
    dims = tuple(_dimensions(axis, len(s), what) for s in shapes)
    form = _Form(shapes, dims, apart)
    for own, at in zip(shapes, dims, strict=True):
        for extent, d in zip(form.steps, at, strict=True):
            if not same_extent(own[d], extent):
                raise ValueError(
                    f"{what} at {user_location()}: states of shapes {_shape_text(shapes[0])} and {_shape_text(own)} "
                    f"have {extent} and {own[d]} steps along axis {axis!r}; all states take as many"
                )
    return form


def _result(made: Scan, state: StepState, there: Lying, keep: Any, what: str) -> tuple[Tensor, ...]:
    """A state out of a scan that holds it: all of its steps, or those that were made last."""
    shape = state.tensor.extents
    begin: Any = 0
    if keep is not None:
        if len(state.dims) > 1:
            raise ValueError(
                f"{what} at {user_location()}: keep={keep!r} is for steps along one axis, found {state.dims}"
            )
        (dim,) = state.dims
        extent = shape[dim]
        count = number(extent)
        if not isinstance(keep, int) or keep < 1 or (count is not None and keep > count):
            most = "1 or more" if count is None else f"1 or more, of {count} steps"
            raise ValueError(f"{what} at {user_location()}: keep: expected {most}, found {keep!r}")
        begin = 0 if made.reverse else extent - keep
        shape = (*shape[:dim], Const(keep, INT32), *shape[dim + 1 :])
    labels = {**dict(zip(state.dims, (a.name for a in made.steps), strict=False))}
    rest = iter([a.name for a in state.axes])
    axes = tuple(Axis(labels[d] if d in labels else next(rest), e) for d, e in enumerate(shape))
    at: list[Expr] = [begin + axes[d] for d in state.dims] if keep is not None else [axes[d] for d in state.dims]
    others = [a for d, a in enumerate(axes) if d not in state.dims]
    tensor = there.tensor
    if there.phase < 0:
        steps, free = dict(zip(state.dims, at, strict=True)), iter(others)
        place = [steps[d] if d in steps else next(free) for d in range(len(axes))]
    else:
        zeros = [Const(0, INT32)] * (tensor.ndim - len(at) - 1 - len(others))
        ordered = others if there.order is None else [others[d] for d in there.order]
        place = [*at, Const(there.phase, INT32), *zeros, *ordered]
    title = f"{state.name}_last" if keep is not None else state.name
    found = compute_tensors(axes, (Read(tensor, tuple(place)),), title)
    if keep is not None:
        tell(
            found[0],
            f": keep={keep} of te.scan left {'the last step' if keep == 1 else f'the last {keep} steps'}"
            f"{'' if count is None else f' of {count}'}",
        )
    return found


def _dimensions(axis: Any, rank: int, what: str) -> tuple[int, ...]:
    """The dimensions of the steps, the slowest first."""
    axes = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    for one in axes:
        if not isinstance(one, int) or not -rank <= one < rank:
            raise ValueError(
                f"{what} at {user_location()}: axis {one!r} does not exist in a shape of {rank} dimensions"
            )
    dims = tuple(one % rank for one in axes)
    if not dims or len(set(dims)) < len(dims):
        raise ValueError(
            f"{what} at {user_location()}: axis {axis!r} names {'an axis twice' if dims else 'no axis'}; give each "
            "axis of the recurrence once, the slowest first"
        )
    return dims


def _numbers_of_states(function: Callable[..., Any], rank: int, what: str) -> list[int]:
    """How many states a function may have. With `*at` for axes the names before it are states, or the first axes."""
    names, rest = parameters_of(function, what)
    if rest is not None:
        return list(range(max(1, len(names)), max(0, len(names) - rank - 1), -1))
    count = len(names) - rank
    if count < 1:
        counted = "1 argument" if len(names) == 1 else f"{len(names)} arguments"
        listed = "; where steps are whole tensors give a list, te.scan([shape], ...)" if len(names) > 1 else ""
        raise ValueError(
            f"{what} at {user_location()}: the function takes {counted}; expected the states first, then "
            f"{'1 axis' if rank == 1 else f'{rank} axes'}{listed}"
        )
    return [count]


def _dtypes(dtype: Any, count: int) -> tuple[DType, ...] | None:
    """The dtypes of the states that were asked for."""
    if dtype is None:
        return None
    return tuple(as_dtype(d) for d in (dtype if isinstance(dtype, (tuple, list)) else [dtype] * count))


def _traced(function: Callable[..., Any], form: _Form, dtype: Any, name: str, what: str) -> _Traced:
    """What the function makes of as many states as it makes sense with; otherwise the first error says why not."""
    refused: Exception | None = None
    rank = len(form.dims[0]) if form.apart else len(form.shapes[0])
    counts = [len(form.shapes)] if form.apart else _numbers_of_states(function, rank, what)
    for count in counts:
        fixed = _dtypes(dtype, count)
        labels = axis_names(function, rank, what, skip=count)
        extents = form.steps if form.apart else form.shapes[0]
        axes = tuple(Axis(label, e) for label, e in zip(labels, extents, strict=True))
        trace = partial(_trace, function, form, axes, fixed)
        for first in [fixed] if fixed is not None else _beginnings(count):
            found = _attempted(partial(trace, first, name, what))
            if isinstance(found, _Traced):
                if fixed is None and FLOAT16 in first:
                    found = _decided(found, first, trace, name, what)
                return found
            if not isinstance(found, TypeError):
                if count == counts[0]:  # says more than that floats are asked for
                    refused = found
                break
            refused = refused or found
    assert refused is not None
    if isinstance(refused, TypeError):
        tell_of_scalars(refused, "; in te.scan the states come first, then the axes")
    if isinstance(refused, IndexError):
        tell_of_indices(refused)
    raise refused


def _decided(found: _Traced, first: tuple[DType, ...], trace: Callable[..., _Traced], name: str, what: str) -> _Traced:
    """What tracing from float16 found, unless that dtype came of nothing but the beginning."""
    other = _attempted(partial(trace, tuple(BFLOAT16 if d is FLOAT16 else d for d in first), name, what))
    if not isinstance(other, _Traced):
        return found
    pairs = list(zip(found.dtypes, other.dtypes, strict=True))
    if any(f is FLOAT16 and o is BFLOAT16 for f, o in pairs):
        begun = tuple(FLOAT32 if o is BFLOAT16 else f for f, o in pairs)
        wide = _attempted(partial(trace, begun, name, what))
        return wide if isinstance(wide, _Traced) else found
    return other if any(f is FLOAT32 and o is BFLOAT16 for f, o in pairs) else found


def _attempted(trace: Callable[[], _Traced]) -> _Traced | Exception:
    """What tracing gives, or the error that says why it gives nothing."""
    try:
        return trace()
    except (TypeError, ValueError, IndexError) as error:
        return error


def _beginnings(count: int) -> Iterator[tuple[DType, ...]]:
    """The dtypes to begin with: the weakest one; where a function asks for floats, of one state or of all."""
    yield (BOTTOM,) * count
    for k in range(count if count > 1 else 0):
        yield tuple(FLOAT16 if k == j else BOTTOM for j in range(count))
    yield (FLOAT16,) * count


def _trace(
    function: Callable[..., Any],
    form: _Form,
    axes: tuple[Axis, ...],
    fixed: tuple[DType, ...] | None,
    dtypes: tuple[DType, ...],
    name: str,
    what: str,
) -> _Traced:
    """States and bodies whose dtypes agree: states are traced again until they settle, from some to begin with."""
    count = len(dtypes)
    shapes = form.shapes if form.apart else form.shapes * count
    dims = form.dims if form.apart else form.dims * count
    labels = _labels(function, count, name, what)
    steps = axes if form.apart else tuple(axes[d] for d in form.dims[0])
    places = [] if form.apart else [a for d, a in enumerate(axes) if d not in form.dims[0]]
    weak: set[int] = set()
    along = steps[0] if len(steps) == 1 else None
    for _ in range(8):
        handles = tuple(
            ScanState(name=label if count > 1 else name, shape=s, dtype=d, along=along).output()
            for label, s, d in zip(labels, shapes, dtypes, strict=True)
        )
        step = ScanStep(steps, handles)
        step.places += places
        with written(step):
            result = function(*handles, *axes)
            several = isinstance(result, (tuple, list))
            returned = tuple(result) if several else (result,)
            if len(returned) != count:
                raise ValueError(
                    f"{what} at {user_location()}: expected {count} expression{'s' * (count != 1)}, one for "
                    f"each state ({', '.join(labels)}), found {len(returned)}"
                )
            own = [tuple(places)] * count
            if form.apart:
                own, returned = _elements(returned, form, step, [f"{what}, state {label!r}" for label in labels])
            bodies = tuple(fn.as_expr(b) for b in returned)
            found = tuple(b.dtype for b in bodies)
            if fixed is not None:
                bodies = tuple(fn.convert(b, d) for b, d in zip(returned, fixed, strict=True))
            if fixed is not None or (found == dtypes and BOTTOM not in found):
                step.check(bodies, what)
                steps, own, bodies = _checked(steps, own, bodies, what)
                states = map(StepState, [h.name for h in handles], handles, dims, own, bodies)
                return _Traced(steps, tuple(states), labels, several)
        weak |= {i for i, d in enumerate(found) if d is BOTTOM}
        dtypes = _next(dtypes, found, weak)
    raise TypeError(f"{what} at {user_location()}: the state's dtype does not settle (last {dtypes}); give dtype=")


def _labels(function: Callable[..., Any], count: int, name: str, what: str) -> tuple[str, ...]:
    """What the function calls its states."""
    own = parameters_of(function, what)[0][:count]
    return (*own, *(f"{name}_{k}" for k in range(len(own), count)))


def _elements(
    returned: Sequence[Any], form: _Form, step: ScanStep, whats: Sequence[str]
) -> tuple[list[tuple[Axis, ...]], tuple[Any, ...]]:
    """For each state its axes beside the steps, and its element there; states of one shape have the same axes."""
    known: list[tuple[Axis, ...]] = []
    elements: list[Any] = []
    for value, shape, dims, which in zip(returned, form.shapes, form.dims, whats, strict=True):
        extents = tuple(e for d, e in enumerate(shape) if d not in dims)
        labels = axis_names(value, len(extents), which) if callable(value) else [f"i{d}" for d in range(len(extents))]
        axes = next((a for a in known if _are_extents(a, extents)), None)
        if axes is None:
            axes = tuple(Axis(label, e) for label, e in zip(labels, extents, strict=True))
            step.places += axes
        known.append(axes)
        elements.append(_element(value, axes, which))
    return known, tuple(elements)


def _are_extents(axes: Sequence[Axis], extents: Sequence[Expr]) -> bool:
    own = [a.extent for a in axes if a.extent is not None]
    return len(own) == len(extents) and all(map(same_extent, own, extents))


def _shape_text(extents: Sequence[object]) -> str:
    return f"({', '.join(map(str, extents))}{',' * (len(extents) == 1)})"


def _element(value: Any, axes: tuple[Axis, ...], what: str) -> Any:
    """The element at some axes of what was returned for a state."""
    shape = _shape_text([a.extent for a in axes])
    if callable(value):
        return value(*axes)
    value = constant(value) if isinstance(value, np.ndarray) and value.ndim else value
    if isinstance(value, Tensor) and value.ndim:
        if not _are_extents(axes, value.extents):
            raise ValueError(
                f"{what} at {user_location()}: expected a tensor of shape {shape} for a step, found {value.name} of "
                f"shape {_shape_text(value.extents)}"
            )
        return Read(value, axes)
    if axes:
        raise TypeError(
            f"{what} at {user_location()}: a step of it has the shape {shape}; expected a function of its axes "
            f"(lambda {', '.join(a.name for a in axes)}: ...) or a tensor, found `{brief(value)}`"
        )
    return value


def _checked(
    steps: tuple[Axis, ...], own: Sequence[tuple[Axis, ...]], bodies: tuple[Expr, ...], what: str
) -> tuple[tuple[Axis, ...], list[tuple[Axis, ...]], tuple[Expr, ...]]:
    """Steps, axes and bodies with every extent known, reading and using what they may."""
    _, bodies = resolve_ranges(steps, bodies, what)
    for axes, body in zip(own, bodies, strict=True):
        check_scope((body,), (*steps, *axes), what)
    check_states(bodies, what)
    return steps, list(own), bodies


def _next(now: tuple[DType, ...], found: tuple[DType, ...], weak: set[int]) -> tuple[DType, ...]:
    """The dtypes to try next. A state made of Python numbers alone is int32, or float32 once a float meets it."""
    floats = {i for i in weak if now[i] is INT32 and found[i].is_float}
    if floats:  # what the others found may rest on an int32 that is none
        return tuple(FLOAT32 if i in floats else d for i, d in enumerate(now))
    return tuple(INT32 if d is BOTTOM else d for d in found)
