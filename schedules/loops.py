"""Loop nests as values: what a definition of a stage iterates over, and what each directive makes of that.

`nest_of` is the nest that a stage starts with; `transformed` is the nest after a directive, or a ScheduleError that
says why not. Every dependence rule is here: what may run in any order, what may be regrouped, and what keeps its order.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Literal

from schedules.cases import position_of
from schedules.directives import (
    TAILS,
    AlwaysPartition,
    Atomic,
    ComputeWith,
    CutAt,
    Fuse,
    GpuBlocks,
    GpuSingleThread,
    GpuThreads,
    LoopDirective,
    NeverPartition,
    Parallel,
    Prefetch,
    Reorder,
    Specialize,
    Split,
    Unroll,
    Unswitch,
    Vectorize,
)
from tedsl.analysis.iteration import free_dimensions, is_stepped
from tedsl.analysis.sizes import vars_of
from tedsl.lang import functions as fn
from tedsl.lang.dataclass import dataclass
from tedsl.lang.errors import ScheduleError
from tedsl.lang.expr import Axis, Const, Expr
from tedsl.lang.extents import simplify_extent
from tedsl.lang.scalar_text import Style, expression_text
from tedsl.lang.tensor import Compute, Operation, Scan, Scatter
from tedsl.lang.traverse import conjuncts, free_axes

__all__ = [
    "MOST_LANES",
    "MOST_THREADS",
    "SCATTERED",
    "Level",
    "Nest",
    "base_of",
    "check_positive",
    "definitions_of",
    "factor_of",
    "is_rounded",
    "nest_of",
    "one_of",
    "transformed",
]

Carried = Literal["free", "within", "regrouped", "ordered", "atomic"]  # within: free in each step of a scan
MOST_LANES = 512
MOST_THREADS = 1024  # of a block, on every GPU of NVIDIA and most others
MOST_UNROLLED = 1024
MOST_ITERATIONS = 2**30  # of a block: what is counted with it fits 32 bits
SCATTERED = "a scatter, whose points may meet in one element"
_REGROUPED = frozenset({"sum", "sums", "prod", "any", "all"})
_ROUNDED = frozenset({"sum", "sums", "prod", "custom", "add", "mul"})


@dataclass(frozen=True)
class Level:
    """One loop: its extent, where it comes from, how it runs, and what its iterations owe to one another."""

    name: str
    extent: Expr
    origin: frozenset[Axis | int]  # axes of the operation, or dimensions of its result
    carried: Carried = "free"
    kind: str = "serial"
    constant: int | None = None  # the extent, where a split makes it a constant wherever the stage is computed

    @property
    def is_independent(self) -> bool:
        """Whether its iterations may run at once."""
        return self.carried in ("free", "within")

    @property
    def known(self) -> int | None:
        """The extent of the whole stage, if it is a number."""
        return int(self.extent.value) if isinstance(self.extent, Const) else self.constant


@dataclass(frozen=True)
class Nest:
    """The loops of one definition, outermost first; `lets` tells how split and fused loops make up the axes."""

    stage: str
    definition: str
    why: str  # what the carried loops are, for messages
    levels: tuple[Level, ...]
    lets: tuple[str, ...] = ()  # assignments, to be read from the last one

    @property
    def names(self) -> list[str]:
        return [level.name for level in self.levels]

    def level(self, name: str) -> Level:
        return self.levels[self.position(name)]

    def position(self, name: str) -> int:
        """Where a loop stands, 0 for the outermost."""
        try:
            return self.names.index(one_of(name, self.names, "loop", f"loops of {self}"))
        except ScheduleError as error:
            became = self.became(name)
            if not became:
                raise
            raise ScheduleError(f"{error}; there was one, and {became}") from None

    def became(self, name: str) -> str:
        """The assignment that is all there is of a loop that was cut or fused; "" of others."""
        return next((let for let in self.lets if re.search(rf"(^|, ){re.escape(name)} = ", let)), "")

    def fresh(self, name: str) -> str:
        """`name`, or the first of name1, name2, ... that no loop has."""
        free, number = name, 0
        while free in self.names:
            number += 1
            free = f"{name}{number}"
        return free

    def bounded(self, name: str, extent: int) -> Nest:
        """The nest with a loop of so many iterations wherever the stage is computed."""
        whole = fn.as_expr(extent)
        changed = (replace(v, extent=whole, constant=extent) if v.name == name else v for v in self.levels)
        return replace(self, levels=tuple(changed))

    def __str__(self) -> str:
        base, _, case = self.definition.partition(" if ")
        return f"{self.stage}{'' if base == 'body' else '.init'}{f' where {case}' if case else ''}"


def one_of(name: str, known: Iterable[str], what: str, listing: str) -> str:
    """`name`, or an error that lists what there is and the nearest to it."""
    names = list(known)
    if name in names:
        return name
    folded = {n.casefold(): n for n in names[::-1]}
    near = difflib.get_close_matches(name.casefold(), folded, n=1, cutoff=0.6)
    meant = f"; did you mean {folded[near[0]]!r}?" if near else ""
    raise ScheduleError(f"there is no {what} {str(name)!r}; {listing}: {', '.join(names) or 'none'}{meant}")


def check_positive(number: int, what: str) -> None:
    """Refuse a number of iterations that no loop has."""
    if number < 1:
        raise ScheduleError(f"the {what} must be at least 1, found {number}")
    if number > MOST_ITERATIONS:
        raise ScheduleError(f"the {what} must be at most {MOST_ITERATIONS}, found {number!s:.40}")


def definitions_of(op: Operation) -> tuple[str, ...]:
    """The definitions of a stage that have loops of their own."""
    if isinstance(op, Compute):
        return ("body",) if op.reduction is None else ("init", "body")
    if isinstance(op, Scatter):
        return ("init", "body")
    return ("body",) if isinstance(op, Scan) else ()


def is_rounded(op: Operation) -> bool:
    """Whether the order in which a stage combines terms shows in its result."""
    if isinstance(op, Scatter):
        return op.kind in _ROUNDED and op.value.dtype.is_float
    if not isinstance(op, Compute) or op.reduction is None:
        return False
    return op.reduction.reducer.kind in _ROUNDED and any(v.dtype.is_float for v in op.reduction.values)


def base_of(definition: str) -> str:
    """The definition that one in a case belongs to."""
    return definition.partition(" if ")[0]


def nest_of(stage: str, op: Operation, definition: str) -> Nest:
    """The loops that a definition has before any directive."""
    rule = _BODY.get(type(op)) if definition == "body" else _initial
    if rule is None:
        raise ScheduleError(f"{stage} is a Python function and has no loops")
    why, parts = rule(op)
    taken: set[str] = set()
    levels = []
    for axis, extent, name, carried in parts:
        free, number = name, 0
        while free in taken:
            number += 1
            free = f"{name}_{number}"
        taken.add(free)
        # All of a reduce axis is walked wherever the stage is computed.
        whole = int(extent.value) if isinstance(extent, Const) and carried != "free" else None
        levels.append(Level(free, extent, frozenset([axis]), carried, constant=whole))
    return Nest(stage, definition, why, tuple(levels))


Parts = list[tuple["Axis | int", Expr, str, Carried]]


def _of_axes(axes: Iterable[Axis], carried: Carried) -> Parts:
    return [(a, _extent(a), a.name, carried) for a in axes]


def _extent(axis: Axis) -> Expr:
    assert axis.extent is not None
    return axis.extent


def _initial(op: Any) -> tuple[str, Parts]:
    """The loops that fill in the identity: one per dimension of the result."""
    names = {d: a.name for d, a in free_dimensions(op).items()} if isinstance(op, Scatter) else dict(
        enumerate(a.name for a in op.axes)
    )  # fmt: skip
    return "", [(d, e, names.get(d, f"d{d}"), "free") for d, e in enumerate(op.shape_of(0))]


def _of_compute(op: Compute) -> tuple[str, Parts]:
    reduce = op.reduction
    if reduce is None:
        return "", _of_axes(op.axes, "free")
    inside = set(reduce.axes)
    uniform = all(inside.issuperset(free_axes(part)) for part in conjuncts(reduce.where))
    exact = reduce.reducer.kind in ("max", "min") and not reduce.values[0].dtype.is_float
    regrouped = uniform and (exact or reduce.reducer.kind in _REGROUPED)
    parts = _of_axes(op.axes, "free") + _of_axes(reduce.axes, "regrouped" if regrouped else "ordered")
    return f"a {reduce.reducer.kind} reduction", parts


def _of_scatter(op: Scatter) -> tuple[str, Parts]:
    free = free_dimensions(op)
    own = set(free.values())
    rest = [a for a in op.axes if a not in own]
    parts = _of_axes(free.values(), "free") + _of_axes(rest, "free" if op.unique else "ordered")
    return SCATTERED, parts


def _of_scan(op: Scan) -> tuple[str, Parts]:
    others = [a for d, a in enumerate(op.axes) if d not in op.dims]
    if is_stepped(op):
        return "a scan whose steps read one another", _of_axes(op.steps, "ordered") + _of_axes(others, "within")
    return "a scan, step after step", _of_axes(others, "free") + _of_axes(op.steps, "ordered")


_BODY: dict[type, Callable[[Any], tuple[str, Parts]]] = {
    Compute: _of_compute, Scatter: _of_scatter, Scan: _of_scan,
}  # fmt: skip


def transformed(nest: Nest, directive: LoopDirective) -> Nest:
    """The nest after a directive; the one that was given stays as it is."""
    return _checked(_RULES[type(directive)](nest, directive))


def _split(nest: Nest, d: Split) -> Nest:
    level = _serial(nest, d.loop)
    if d.tail:
        one_of(d.tail, TAILS, "tail", "tails")
    _free_names(nest, (d.outer, d.inner), {d.loop})
    if d.length:
        return _split_by_sizes(nest, d, level, factor_of(nest, d.length))
    check_positive(d.factor, "factor")
    whole = level.constant
    outer = replace(
        level,
        name=d.outer,
        extent=simplify_extent(fn.as_expr((level.extent + (d.factor - 1)) // d.factor)),
        constant=None if whole is None else -(-whole // d.factor),
    )
    inner = replace(level, name=d.inner, extent=fn.as_expr(d.factor), constant=d.factor)
    known = level.known
    divides = d.exact or d.tail == "round_up" or (known is not None and known % d.factor == 0)
    guard = "" if divides else f"   if {d.loop} < {level.extent}"
    if d.tail == "shift" and not divides:  # the last ones begin where as many are left
        let = f"{d.loop} = minimum({d.outer}*{d.factor}, {fn.as_expr(level.extent - d.factor)}) + {d.inner}"
        return _replaced(nest, {d.loop: (outer, inner)}, let)
    guard += " (masked)" if guard and d.tail == "predicate" else ""
    return _replaced(nest, {d.loop: (outer, inner)}, f"{d.loop} = {d.outer}*{d.factor} + {d.inner}{guard}")


def factor_of(nest: Nest, text: str) -> Expr:
    """A factor that is made of the sizes of a nest."""
    sizes = {v.name: v for level in nest.levels for v in vars_of(level.extent)}
    return simplify_extent(fn.as_expr(fn.maximum(position_of(text, sizes), 1)))


def _split_by_sizes(nest: Nest, d: Split, level: Level, factor: Expr) -> Nest:
    """The loop in parts of a length that is known when it runs; the last one may be shorter."""
    if d.exact or d.tail not in ("", "guard"):
        raise ScheduleError(f"the factor {d.length} may leave a rest; leave out exact and tail, or give a number")
    count = simplify_extent(fn.as_expr((level.extent + (factor - 1)) // factor))
    outer = replace(level, name=d.outer, extent=count, constant=None)
    inner = replace(level, name=d.inner, extent=factor, constant=None)
    length = expression_text(factor, Style(prefix=""))
    let = f"{d.loop} = {d.outer}*({length}) + {d.inner}   if {d.loop} < {level.extent}"
    return _replaced(nest, {d.loop: (outer, inner)}, let)


def _fuse(nest: Nest, d: Fuse) -> Nest:
    outer, inner = _serial(nest, d.outer), _serial(nest, d.inner)
    if nest.position(d.inner) != nest.position(d.outer) + 1:
        raise ScheduleError(
            f"{d.inner!r} does not lie directly inside {d.outer!r}; loops of {nest}, outermost first: "
            f"{', '.join(nest.names)}; reorder them first"
        )
    if (outer.carried == "free") != (inner.carried == "free"):
        raise ScheduleError(f"{d.outer!r} and {d.inner!r} cannot be fused: one of them is a loop of {nest.why}")
    _free_names(nest, (d.fused,), {d.outer, d.inner})
    constant = None
    if outer.constant is not None and inner.constant is not None:
        constant = outer.constant * inner.constant
    fused = Level(
        d.fused,
        simplify_extent(fn.as_expr(outer.extent * inner.extent)),
        outer.origin | inner.origin,
        "ordered" if "ordered" in (outer.carried, inner.carried) else outer.carried,
        constant=constant,
    )
    length = inner.extent if isinstance(inner.extent, Const) or not _is_compound(inner.extent) else f"({inner.extent})"
    text = f"{d.outer} = {d.fused} // {length}, {d.inner} = {d.fused} % {length}"
    return _replaced(nest, {d.outer: (fused,), d.inner: ()}, text)


def _is_compound(extent: Expr) -> bool:
    return bool(extent.children)


def _reorder(nest: Nest, d: Reorder) -> Nest:
    named = [nest.level(name) for name in d.loops]
    if len(set(d.loops)) != len(d.loops):
        raise ScheduleError(f"a loop is named twice: {', '.join(d.loops)}")
    places = sorted(nest.position(name) for name in d.loops)
    levels = list(nest.levels)
    for place, level in zip(places, named, strict=True):
        levels[place] = level
    before = [level.name for level in nest.levels if level.carried == "ordered"]
    after = [level.name for level in levels if level.carried == "ordered"]
    if before != after:
        raise ScheduleError(
            f"the order of {', '.join(before)} is that of {nest.why} and must stay; "
            "other loops may be put around, between and inside them"
        )
    steps = max((k for k, level in enumerate(levels) if level.carried == "ordered"), default=0)
    early = next((level.name for level in levels[:steps] if level.carried == "within"), None)
    if early is not None:
        raise ScheduleError(
            f"{early!r} is a loop within each step of {nest.why}: it must stay inside {levels[steps].name!r}, "
            "as the next step reads all of this one"
        )
    return replace(nest, levels=tuple(levels))


def _unroll(nest: Nest, d: Unroll) -> Nest:
    if _constant(_serial(nest, d.loop), "unrolled") > MOST_UNROLLED:
        raise ScheduleError(f"loop {d.loop!r} is too long to be written out (at most {MOST_UNROLLED}); give a factor")
    return _marked(nest, d.loop, "unrolled")


def _vectorize(nest: Nest, d: Vectorize) -> Nest:
    level = _serial(nest, d.loop)
    _independent(nest, level, "vectorized")
    lanes = _constant(level, "vectorized")
    if lanes > MOST_LANES:
        raise ScheduleError(f"a vector of {lanes} elements is too long (at most {MOST_LANES}); give a factor")
    return _marked(nest, d.loop, "vectorized")


def _parallel(nest: Nest, d: Parallel) -> Nest:
    _independent(nest, _serial(nest, d.loop), "parallel")
    return _marked(nest, d.loop, "parallel")


def _atomic(nest: Nest, d: Atomic) -> Nest:
    if nest.why != SCATTERED or d.definition != "body":
        raise ScheduleError(f"only the points of a scatter are combined atomically; rfactor a reduction ({nest})")
    marked = (replace(v, carried="atomic") if v.carried == "ordered" else v for v in nest.levels)
    return replace(nest, levels=tuple(marked))


def _gpu(kind: str) -> Callable[[Nest, Any], Nest]:
    def rule(nest: Nest, d: GpuBlocks | GpuThreads) -> Nest:
        if not 1 <= len(d.loops) <= 3:
            raise ScheduleError(f"one to three loops are spread over a GPU, found {len(d.loops)}")
        for name in d.loops:
            level = _serial(nest, name)
            _independent(nest, level, "spread over a GPU")
            if kind == "gpu thread":
                _constant(level, "spread over the threads of a block", "split it and take the inner loop")
            nest = _marked(nest, name, kind)
        _check_spread(nest, kind)
        return nest

    return rule


def _check_spread(nest: Nest, kind: str) -> None:
    """A GPU has three dimensions of blocks, three of threads, and at most 1024 threads in a block."""
    spread = [v for v in nest.levels if v.kind == kind]
    if len(spread) > 3:
        raise ScheduleError(f"loops {', '.join(v.name for v in spread)} would each be a {kind}; three are possible")
    threads = math.prod(v.constant or 1 for v in spread) if kind == "gpu thread" else 1
    if threads > MOST_THREADS:
        across = " x ".join(f"{v.name}: {v.constant}" for v in spread)
        raise ScheduleError(f"a block of {threads} threads ({across}) is too large (at most {MOST_THREADS})")


def _single_thread(nest: Nest, d: GpuSingleThread) -> Nest:
    taken = [v.name for v in nest.levels if v.kind not in ("serial", "unrolled")]
    if taken:
        raise ScheduleError(f"all loops run in one thread, but {', '.join(taken)} do not")
    return nest


def _prefetch(nest: Nest, d: Prefetch) -> Nest:
    nest.level(d.loop)
    check_positive(d.distance, "distance")
    return nest


def _partition(nest: Nest, d: NeverPartition | AlwaysPartition) -> Nest:
    level = nest.level(d.loop)
    if level.kind not in ("serial", "parallel"):
        raise ScheduleError(
            f"loop {d.loop!r} is {level.kind} and no loop any more that could be cut; name one around it"
        )
    return nest


def _cut(nest: Nest, d: CutAt | Unswitch) -> Nest:
    level = nest.level(d.loop)
    if level.kind not in ("serial", "parallel") or len(level.origin) != 1 or _is_made(nest, d.loop):
        raise ScheduleError(
            f"loop {d.loop!r} of {nest} is no longer that of an axis; {d.verb} it before other directives"
        )
    return nest


def _is_made(nest: Nest, loop: str) -> bool:
    """Whether a loop was split off, or split and kept its name."""
    return any(re.search(rf"(^|\W){re.escape(loop)}(\W|$)", let) for let in nest.lets)


_RULES: dict[type, Callable[[Nest, Any], Nest]] = {
    Split: _split, Fuse: _fuse, Reorder: _reorder, Unroll: _unroll, Vectorize: _vectorize, Parallel: _parallel,
    Atomic: _atomic,
    GpuBlocks: _gpu("gpu block"), GpuThreads: _gpu("gpu thread"),
    GpuSingleThread: _single_thread, Prefetch: _prefetch, NeverPartition: _partition, AlwaysPartition: _partition,
    CutAt: _cut, Unswitch: _cut,
    ComputeWith: lambda nest, d: nest,  # judged when the schedule is complete
    Specialize: lambda nest, d: nest,
}  # fmt: skip


def _serial(nest: Nest, name: str) -> Level:
    level = nest.level(name)
    if level.kind != "serial":
        raise ScheduleError(f"loop {level.name!r} of {nest} is {level.kind} already, and a loop is one thing only")
    return level


def _constant(level: Level, how: str, fix: str = "give a factor") -> int:
    if level.constant is None:
        raise ScheduleError(
            f"loop {level.name!r} has {level.extent} iterations; a loop that is {how} needs a constant number: {fix}"
        )
    return level.constant


def _independent(nest: Nest, level: Level, how: str) -> None:
    if level.is_independent or (level.carried == "atomic" and how != "vectorized"):
        return
    free = [other.name for other in nest.levels if other.is_independent and other.kind == "serial"]
    fix = "; rfactor it first" if nest.why.endswith("reduction") else ""
    if level.carried == "ordered" and nest.why == SCATTERED and how != "vectorized":
        fix = "; let them meet by atomic() first"
    others = f", or take one of {', '.join(free)}" if free else ""
    raise ScheduleError(
        f"loop {level.name!r} cannot be {how}: its iterations depend on one another, "
        f"it is a loop of {nest.why}{fix}{others}"
    )


def _free_names(nest: Nest, names: tuple[str, ...], replaced: set[str]) -> None:
    if len(set(names)) != len(names):
        raise ScheduleError(f"the new loops need names of their own, found {', '.join(names)}")
    for name in names:
        if name in nest.names and name not in replaced:
            raise ScheduleError(f"the name {name!r} is taken; loops of {nest}: {', '.join(nest.names)}")


def _replaced(nest: Nest, changed: dict[str, tuple[Level, ...]], let: str) -> Nest:
    levels = tuple(new for level in nest.levels for new in changed.get(level.name, (level,)))
    return replace(nest, levels=levels, lets=(*nest.lets, let))


def _marked(nest: Nest, name: str, kind: str) -> Nest:
    return replace(nest, levels=tuple(replace(v, kind=kind) if v.name == name else v for v in nest.levels))


def _checked(nest: Nest) -> Nest:
    """The nest, if its kinds of loops can stand in each other as they do."""
    outside: list[Level] = []
    for level in nest.levels:
        for other in outside:
            reason = _CLASHES.get((other.kind, level.kind))
            if reason is not None:
                raise ScheduleError(
                    f"loop {level.name!r} ({level.kind}) lies inside {other.name!r} ({other.kind}): {reason}"
                )
        outside.append(level)
    return nest


_CLASHES = {
    ("vectorized", "vectorized"): "one loop of a nest can be vectorized; split it to get the other order",
    ("vectorized", "parallel"): "a vector cannot start threads; reorder so that the parallel loop is outside",
    ("vectorized", "gpu block"): "a vector cannot start a GPU kernel; reorder so that the blocks are outside",
    ("vectorized", "gpu thread"): "reorder so that the threads are outside",
    ("gpu thread", "gpu block"): "blocks lie outside threads; reorder them",
    ("gpu block", "parallel"): "the blocks of a GPU cannot start threads of the CPU",
    ("gpu thread", "parallel"): "the threads of a GPU cannot start threads of the CPU",
    ("parallel", "gpu block"): "one GPU kernel is started at a time; leave the outer loop serial",
    ("parallel", "gpu thread"): "one GPU kernel is started at a time; leave the outer loop serial",
}
