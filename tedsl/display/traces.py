"""The trace of a schedule: which elements of a stage are computed at each step, and which elements are read for them.

A step is what runs at once: all lanes of a vector, and iterations of parallel loops as if each had a core of its own.
Colors tell the order, so that the picture says the same where it does not move; the animation is SVG's own, no script.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from schedules.loops import Level, Nest, nest_of
from schedules.schedule import Schedule
from tedsl.analysis.points import is_data_free
from tedsl.analysis.pointwise import Array, apply_numpy, held_type
from tedsl.analysis.sites import sites_of
from tedsl.analysis.sizes import NamedSizes, check_sizes, concrete_shape, evaluate_extent
from tedsl.display.domains import HEIGHT, MARGIN, SPECTRUM, TITLE, PictureLayout, layout
from tedsl.display.markup import badge, escape, page, section, svg
from tedsl.lang.dataclass import dataclass
from tedsl.lang.errors import user_location
from tedsl.lang.expr import Apply, Axis, Const, Expr, Read, Var
from tedsl.lang.tensor import Compute, Tensor
from tedsl.lang.traverse import topological

__all__ = ["ScheduleTrace", "trace"]

MOST_POINTS, MOST_CELLS, MOST_TENSORS, MOST_MARKS = 4096, 256, 3, 1200
SECONDS, LONGEST = 0.25, 30.0  # of a step, of all
AT_ONCE = frozenset({"vectorized", "parallel", "gpu block", "gpu thread"})

Place = tuple[int, ...]


@dataclass(frozen=True)
class Visits:
    """The elements of one tensor that a stage computes or reads, each with the steps at which it does."""

    tensor: Tensor
    shape: tuple[int, ...]
    steps: Mapping[Place, list[int]]


class ScheduleTrace:
    """What `trace(...)` returns: the steps of a stage, and the elements of each."""

    def __init__(self, stage: str, count: int, computed: Visits, read: Sequence[Visits]) -> None:
        self.stage, self.count, self.computed, self.read = stage, count, computed, tuple(read)

    def __repr__(self) -> str:
        names = ", ".join(v.tensor.name for v in self.read) or "nothing"
        return f"Trace of {self.stage}: {len(self.computed.steps)} elements in {self.count} steps, reading {names}"

    def _repr_html_(self) -> str:
        told = "at once: the lanes of vectors, and parallel iterations as if each had a core of its own"
        head = section(f"<b>trace of {escape(self.stage)}</b>", badge(f"{self.count} steps"))
        drawn = [_picture(v, self.count, v is self.computed) for v in self._shown()]
        still = "<style>@media (prefers-reduced-motion: reduce){.te .te-now{display:none}}</style>"
        row = f'<div style="display:flex;flex-wrap:wrap;gap:1.2rem;overflow-x:auto">{"".join(drawn)}</div>'
        told = f'<p class="te-mute">color and number: the step that comes to an element first; {told}</p>'
        return page([still + head, row, told], repr(self))

    def _shown(self) -> list[Visits]:
        """What fits: the stage itself, then what it reads."""
        shown, marks = [self.computed], sum(map(len, self.computed.steps.values()))
        for visits in self.read[:MOST_TENSORS]:
            marks += sum(map(len, visits.steps.values()))
            if marks <= MOST_MARKS and 0 < prod(visits.shape) <= MOST_CELLS:
                shown.append(visits)
        return shown


def trace(schedule: Schedule, stage: Any = None, *, sizes: NamedSizes | None = None) -> ScheduleTrace:
    """The order in which a schedule computes the elements of a stage, as an animation.

    `stage` is a tensor or a name; without one it is the first output. `sizes={n: 8}` are extents that are symbols.
    """
    what = f"te.display.trace at {user_location()}"
    if not isinstance(schedule, Schedule):
        raise TypeError(f"{what}: expected a te.Schedule, found {type(schedule).__name__}; try te.Schedule(y).auto()")
    view = schedule[schedule.outputs[0] if stage is None else stage]
    op, nest = schedule.plan.operation(view.name), schedule.plan.nest(view.name)
    if not isinstance(op, Compute):
        raise TypeError(f"{what}: expected a stage made by te.compute or whole-tensor code, found {view.name}, a scan,"
                        " a scatter or a Python function")  # fmt: skip
    known = check_sizes(sizes, what, (), schedule.outputs)
    extents = [evaluate_extent(level.extent, known, what) for level in nest.levels]
    shape = concrete_shape(op.output(), known, what)
    if prod(extents) > MOST_POINTS or prod(shape) > MOST_CELLS:
        raise ValueError(
            f"{what}: expected at most {MOST_CELLS} elements and {MOST_POINTS} iterations, found {prod(shape)} and "
            f"{prod(extents)}; trace the same schedule of a smaller program"
        )
    axes, times = _points(nest, op, extents, known)
    count, times = _ranked(times)
    computed = _visits(op.output(), shape, [axes[a] for a in op.axes], times)
    return ScheduleTrace(view.name, count, computed, list(_reads(op, axes, known, times, what)))


def _points(nest: Nest, op: Compute, extents: list[int], sizes: Mapping[Var, int]) -> tuple[dict[Axis, Array], Array]:
    """The values of the axes at each iteration that runs, in the order of the loops, and the number of its step."""
    grid = np.indices(extents).reshape(len(extents), -1) if extents else np.zeros((0, 1), int)
    names: dict[str, Any] = {v.name: n for v, n in sizes.items()} | {"minimum": np.minimum, "maximum": np.maximum}
    names |= {level.name: row for level, row in zip(nest.levels, grid, strict=True)}
    runs = np.ones(grid.shape[1], bool)
    for let in reversed(nest.lets):  # "i = io*8 + ii   if i < n (masked)", "i = ij // 8, j = ij % 8"
        text, _, guard = let.removesuffix(" (masked)").partition("   if ")
        for part in text.split(", ") if "minimum(" not in text else [text]:
            name, _, value = part.partition(" = ")
            names[name] = eval(value, {"__builtins__": {}}, names)
        if guard:
            runs &= eval(guard, {"__builtins__": {}}, names)
    reduce = op.reduction
    levels = [level.name for level in nest_of(nest.stage, op, "body").levels]
    axes = (*op.axes, *(reduce.axes if reduce is not None else ()))
    return {a: names[n][runs] for a, n in zip(axes, levels, strict=True)}, _times(nest.levels, grid)[runs]


def _times(levels: Sequence[Level], grid: Array) -> Array:
    """The step of each iteration: loops that run at once do not count."""
    time = np.zeros(grid.shape[1], np.int64)
    for level, row in zip(levels, grid, strict=True):
        if level.kind not in AT_ONCE:
            time = time * (int(row.max(initial=0)) + 1) + row
    return time


def _ranked(times: Array) -> tuple[int, Array]:
    """Steps at which something runs, counted from 0."""
    found, ranks = np.unique(times, return_inverse=True)
    return len(found), ranks.reshape(-1)


def _visits(tensor: Tensor, shape: Sequence[int], places: Sequence[Array], times: Array) -> Visits:
    steps: dict[Place, list[int]] = {}
    for k, time in enumerate(times):
        seen = steps.setdefault(tuple(int(p[k]) for p in places), [])
        if not seen or seen[-1] != time:
            seen.append(int(time))
    return Visits(tensor, tuple(shape), {place: sorted(set(seen)) for place, seen in steps.items()})


def _reads(
    op: Compute, axes: Mapping[Axis, Array], sizes: Mapping[Var, int], times: Array, what: str
) -> Iterator[Visits]:
    """What is read of each tensor, where that does not depend on data."""
    places: dict[Tensor, list[tuple[list[Array], Array]]] = {}
    for read, guard in {s.read: s.guard for s in sites_of(op) if s.read is not None}.items():
        if isinstance(read, Read) and is_data_free((*read.indices, guard)) and read.tensor.ndim:
            *index, runs = _values((*read.indices, guard), axes, sizes, len(times))
            taken = runs.astype(bool)
            places.setdefault(read.tensor, []).append(([i[taken] for i in index], times[taken]))
    for tensor, found in places.items():
        index = [np.concatenate(parts) for parts in zip(*(i for i, _ in found), strict=True)]
        order = np.argsort(at := np.concatenate([t for _, t in found]), kind="stable")
        yield _visits(tensor, concrete_shape(tensor, sizes, what), [i[order] for i in index], at[order])


def _values(exprs: Sequence[Expr], axes: Mapping[Axis, Array], sizes: Mapping[Var, int], count: int) -> list[Array]:
    """Expressions at each iteration."""
    value: dict[Any, Array] = dict(axes)
    for node in topological(exprs):
        if isinstance(node, Const):
            value[node] = np.full(count, node.value, held_type(node.dtype))
        elif isinstance(node, Var):
            value[node] = np.full(count, sizes[node], np.int32)
        elif isinstance(node, Apply):
            value[node] = apply_numpy(node.fn, [value[a] for a in node.args], node.dtype)
    return [value[e] for e in exprs]


def _picture(visits: Visits, count: int, is_computed: bool) -> str:
    """The elements of one tensor, each in the color of the step that first touches it; lit up while it does."""
    box = tuple((0, n) for n in visits.shape) or ((0, 1),)
    made = layout(box, 26.0)
    width, height = made.size[0] + 2 * MARGIN, made.size[1] + TITLE + 2 * MARGIN
    seconds = min(LONGEST, SECONDS * count)
    cells = "".join(_cells(visits, made, count, seconds))
    title = f"{'computed' if is_computed else 'read'}: {visits.tensor.name}"
    return svg(width, height, title, f'<text class="te-sub" x="{MARGIN}" y="13">{escape(title)}</text>{cells}')


def _cells(visits: Visits, made: PictureLayout, count: int, seconds: float) -> Iterator[str]:
    for place in made.places():
        x, y = made.corner(place)
        steps = visits.steps.get(place if visits.shape else (), [])
        where = f"translate({MARGIN + x + 1:.0f},{TITLE + MARGIN / 2 + y + 1:.0f})"
        sides = f'width="{made.cell - 2:.0f}" height="{HEIGHT - 2:.0f}"'
        if not steps:
            yield f'<g class="te-cell" transform="{where}"><rect {sides}/></g>'
            continue
        hue = SPECTRUM * steps[0] / max(1, count - 1)
        text = f'<text x="{made.cell / 2 - 1:.0f}" y="14">{steps[0]}</text>'
        yield (
            f'<g class="te-cell te-hue" style="--h:{hue:.0f}" transform="{where}"><rect {sides}/>{text}'
            f'<rect class="te-now" {sides} opacity="0">{_lit(steps, count, seconds)}</rect></g>'
        )


def _lit(steps: Sequence[int], count: int, seconds: float) -> str:
    """The moments at which a cell is lit, as SVG animates an attribute."""
    moments, values = [0.0], ["0"]
    for step in steps:
        begin, end = step / count, (step + 1) / count
        if begin <= moments[-1] + 1e-9:
            values[-1] = "1"
        else:
            moments.append(begin)
            values.append("1")
        moments.append(end)
        values.append("0")
    if moments[-1] >= 1 - 1e-9:
        moments.pop()
        values.pop()
    times = ";".join(f"{m:.4g}" for m in moments)
    return (
        f'<animate attributeName="opacity" calcMode="discrete" dur="{seconds:.4g}s" repeatCount="indefinite" '
        f'values="{";".join(values)}" keyTimes="{times}"/>'
    )
