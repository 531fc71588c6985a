"""What the threads of a block read of a tensor, copied into shared memory by all of them together.

    out[y, x] = f(T[y + v, x + u])      ->   copy[j, i] = T[low + j, low + i]; out[y, x] = f(copy[y + v - low, ...])

A copy has an element for all that whole blocks read, also beyond the tensor's ends, where it repeats the last one: what
a block copies then has the same size everywhere. It is computed for one block at a time, its elements shared out among
the threads in the order in which they lie in memory.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace

from schedules.default.costs import Costs
from schedules.default.rewriting import Rewriting, fused, loop_names
from schedules.directives import BoundExtent, ComputeAt, Directive, GpuThreads, Split, StoreIn
from schedules.program import reading
from schedules.thresholds import Thresholds
from tedsl.analysis.affine import affine_of
from tedsl.analysis.checks import checked_as, read_checks
from tedsl.lang import functions as fn
from tedsl.lang.dataclass import dataclass
from tedsl.lang.dtypes import INT32
from tedsl.lang.expr import Apply, Axis, Const, Expr, Fn, Read
from tedsl.lang.extents import number
from tedsl.lang.polynomials import Affine
from tedsl.lang.tensor import Compute, Operation, Tensor
from tedsl.lang.traverse import reads_of, rebuild_all

__all__ = [
    "HELD", "MOST_BYTES", "STENCIL", "Copy", "copied", "is_safe", "plan_copy", "replaced", "stage_stencils",
    "windows_of",
]  # fmt: skip

HELD = "held in a thread"  # a kind of stages
MOST_BYTES = 40 << 10  # of shared memory in a block: all GPUs have 48 KiB
MOST_EXPANDED = 8  # stages inlined into one another
STENCIL = {2: (8, 32), 1: (256,)}  # threads of a block along the last axes, by how many there are


@dataclass(frozen=True, eq=False)
class Window:
    """Reads of a tensor at places that differ by constants: the forms without them, and their ends."""

    tensor: Tensor
    forms: tuple[Affine, ...]
    low: tuple[int, ...]
    high: tuple[int, ...]
    reads: tuple[Read, ...]

    def box(self, steps: Mapping[Axis, int]) -> list[int]:
        """Extents of what a block reads, which takes so many steps along axes, one along all others."""
        return [
            1 + high - low + sum(abs(f) * (steps.get(a, 1) - 1) for a, f in _factors(form))
            for form, low, high in zip(self.forms, self.low, self.high, strict=True)
        ]

    def bytes(self, steps: Mapping[Axis, int]) -> int:
        return math.prod(self.box(steps)) * self.tensor.dtype.itemsize


@dataclass(frozen=True, eq=False)
class Copy:
    """A stage that holds a window, and how much of it a block needs."""

    stage: Compute
    box: tuple[int, ...]


def _factors(form: Affine) -> list[tuple[Axis, int]]:
    return [(m[0], f) for m, f in form.terms.items() if isinstance(m[0], Axis)]


def windows_of(bodies: Sequence[Expr], steps: Mapping[Axis, int]) -> list[Window]:
    """The windows through which a block reads, of tensors and ranges of known sizes."""
    groups: dict[tuple[object, ...], list[tuple[Read, list[Affine]]]] = {}
    for read in dict.fromkeys(reads_of(bodies)):
        forms = [affine_of(_unclipped(i, e)) for i, e in zip(read.indices, read.tensor.extents, strict=True)]
        if not forms or None in (number(e) for e in read.tensor.extents) or not all(map(_is_known, forms)):
            continue
        known = [f for f in forms if f is not None]
        if not any(a in steps for f in known for a in f.axes):
            continue
        groups.setdefault((read.tensor, *(Affine(f.terms).key for f in known)), []).append((read, known))
    return [_window(found) for found in groups.values()]


def _is_known(form: Affine | None) -> bool:
    """Whether a form is linear in loops of known ranges."""
    if form is None or not form.is_linear or not all(isinstance(a, Axis) for a in form.atoms):
        return False
    return all(number(a.begin) is not None and (number(a.extent) or 0) > 0 for a in form.axes)


def _unclipped(index: Expr, extent: Expr) -> Expr:
    """An index that is held inside of its range, before it is: a copy repeats the ends itself."""
    size = number(extent)
    while isinstance(index, Apply) and index.fn in (Fn.MINIMUM, Fn.MAXIMUM) and size is not None:
        end = 0 if index.fn is Fn.MAXIMUM else size - 1
        rest = [a for a in index.args if not (isinstance(a, Const) and a.value == end)]
        if len(rest) != 1:
            break
        index = rest[0]
    return index


def _window(found: Sequence[tuple[Read, list[Affine]]]) -> Window:
    constants = [[f.constant for f in forms] for _, forms in found]
    read, forms = found[0]
    return Window(
        read.tensor, tuple(Affine(f.terms) for f in forms), tuple(map(min, zip(*constants, strict=True))),
        tuple(map(max, zip(*constants, strict=True))), tuple(r for r, _ in found),
    )  # fmt: skip


def copied(rw: Rewriting, name: str, window: Window, steps: Mapping[Axis, int]) -> tuple[dict[Expr, Expr], Copy]:
    """The reads of a window as reads of a copy, and that."""
    starts, axes, place = [], [], []
    for d, (form, low, high) in enumerate(zip(window.forms, window.low, window.high, strict=True)):
        first, last = low, high
        for axis, factor in _factors(form):
            begin, extent, step = number(axis.begin) or 0, number(axis.extent) or 1, steps.get(axis, 1)
            ends = factor * begin, factor * (begin + -(-extent // step) * step - 1)
            first, last = first + min(ends), last + max(ends)
        axis = Axis(f"s{d}", Const(last - first + 1, INT32))
        end = (number(window.tensor.extents[d]) or 1) - 1
        inside: Expr = axis + first if first else axis
        if last > end:
            inside = fn.minimum(inside, end)
        starts.append(first)
        axes.append(axis)
        place.append(fn.maximum(inside, 0) if first < 0 else inside)
    made = rw.compute(f"{name}_{window.tensor.name}_shared", axes, Read(window.tensor, tuple(place)))
    assert isinstance(made.op, Compute)
    checked_as(made.op, ())  # by the stage that reads it
    rw.planned.add(made.op.name)
    reads: dict[Expr, Expr] = {}
    for read in window.reads:
        at = [_unclipped(i, e) for i, e in zip(read.indices, window.tensor.extents, strict=True)]
        reads[read] = Read(made, tuple(i - s if s else i for i, s in zip(at, starts, strict=True)))
    return reads, Copy(made.op, tuple(window.box(steps)))


def replaced(op: Compute, reads: Mapping[Expr, Expr]) -> Compute:
    """The stage with other reads, checked as it was."""
    bodies = rebuild_all(op.bodies, lambda node: reads.get(node, node))
    made = replace(op, bodies=tuple(bodies), _outputs={})
    checked_as(made, (op,))
    return made


def plan_copy(copy: Copy, consumer: str, loop: str, threads: Sequence[int]) -> list[Directive]:
    """A copy before each iteration of a loop around the threads, which take turns in the order of memory."""
    op, name = copy.stage, copy.stage.name
    names = [loop_names(op)[a] for a in op.axes]
    say: list[Directive] = [
        ComputeAt(stage=name, consumer=consumer, loop=loop),
        StoreIn(stage=name, memory="shared"),
        *(BoundExtent(stage=name, axis=n, extent=e) for n, e in zip(names, copy.box, strict=True)),
    ]
    fusing, (line,) = fused(name, names)
    say += [*fusing, Split(stage=name, loop=line, outer="turn", inner="thread", factor=math.prod(threads))]
    lanes = ["thread"]
    for k, count in enumerate(threads[:0:-1]):
        say.append(Split(stage=name, loop=lanes[0], outer=f"thread{k}", inner=f"lane{k}", factor=count, exact=True))
        lanes[:1] = [f"thread{k}", f"lane{k}"]
    say.append(GpuThreads(stage=name, loops=tuple(lanes)))
    return say


def stage_stencils(rw: Rewriting, costs: Costs) -> None:
    """Let stages that are stored, and sums of a few terms, read copies of what they read several times."""
    changed: dict[Tensor, Tensor] = {}
    inlined: set[Tensor] = set()
    stages, rw.stages = rw.stages, []
    for op in stages:
        made = reading(op, changed)
        place = op.name if rw.kinds.get(op.name) is None else rw.inside[op.name]
        if isinstance(made, Compute) and len(made.bodies) == 1 and _is_free(rw, costs, op, place) and is_safe(made):
            made, copies = _staged(rw, expanded(made, inlined))
            if copies:
                rw.shared[place] = copies
        rw.stages.append(made)
        inlined.update(made.outputs if op in costs.inlined and is_safe(made) else ())
        changed.update((old, now) for old, now in zip(op.outputs, made.outputs, strict=True) if old is not now)
    rw.new.update({**changed, **{old: changed.get(now, now) for old, now in rw.new.items()}})


def is_safe(op: Operation) -> bool:
    """Whether no index has to be checked at a call: what the check reads must stay as it is."""
    return all(check.status in ("safe", "guarded") for check in read_checks(op))


def _is_free(rw: Rewriting, costs: Costs, op: Operation, place: str) -> bool:
    """Whether nobody else has planned how a block reads."""
    kind, inside = rw.kinds.get(op.name), [name for name, where in rw.inside.items() if where == place]
    if op.name in rw.planned or op in costs.inlined or place in rw.shared or place in rw.inside:
        return False
    if kind == HELD:
        return isinstance(op, Compute) and inside == [op.name] and op.name not in rw.tiles
    return kind is None and not inside and isinstance(op, Compute) and op.reduction is None


def expanded(op: Compute, inlined: Set[Tensor]) -> Compute:
    """The stage with the bodies of what is inlined into it at one place alone: Halide writes them there too."""
    for _ in range(MOST_EXPANDED):
        reads: dict[Tensor, list[Read]] = {}
        for read in op.reads:
            reads.setdefault(read.tensor, []).append(read)
        once = [found[0] for t, found in reads.items() if len(set(found)) == 1 and t in inlined]
        if not once:
            break
        bodies: dict[Expr, Expr] = {}
        for read in once:
            made = read.tensor.op
            assert isinstance(made, Compute)
            bodies[read] = made.written_at(read)
        op = replaced(op, bodies)
    return op


def _staged(rw: Rewriting, op: Compute) -> tuple[Compute, list[Copy]]:
    """The stage with what it reads several times copied for each block, where that fits."""
    steps, room = _steps(op), MOST_BYTES
    copies: list[Copy] = []
    reads: dict[Expr, Expr] = {}
    for window in windows_of(op.bodies, steps) if steps else ():
        if _is_worth(op, window, steps, rw.least) and window.bytes(steps) <= room:
            room -= window.bytes(steps)
            mine, copy = copied(rw, op.name, window, steps)
            reads.update(mine)
            copies.append(copy)
    return (replaced(op, reads) if copies else op), copies


def _steps(op: Compute) -> dict[Axis, int]:
    """Along which axes a block takes how many steps; {} where some extent is not known."""
    axes = op.axes[-2:]
    sums = op.reduction.axes if op.reduction is not None else ()
    if not axes or not all(number(a.extent) for a in (*op.axes, *sums)):
        return {}
    return {**dict(zip(axes, STENCIL[len(axes)], strict=True)), **{a: number(a.extent) or 1 for a in sums}}


def _is_worth(op: Compute, window: Window, steps: Mapping[Axis, int], least: Thresholds) -> bool:
    """Whether an element of the copy is read a few times."""
    sums = set(op.reduction.axes) if op.reduction is not None else set()
    used = {a for form in window.forms for a in form.axes}
    taps = len(window.reads) * math.prod(steps[a] for a in sums)
    if taps < least.gpu_taps or not sums <= used or not all(a in used for a in op.axes[-2:]):
        return False
    uses = taps * math.prod(n for a, n in steps.items() if a not in sums)
    return uses >= least.gpu_reuse * math.prod(window.box(steps))
