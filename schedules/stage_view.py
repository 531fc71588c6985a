"""`s[C]`: a view of one stage of a schedule, whose methods are the directives."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from schedules.cases import condition_text, position_of, position_text
from schedules.directives import (
    AlignStorage,
    AlwaysPartition,
    Async,
    Atomic,
    Bound,
    BoundExtent,
    CacheRead,
    CacheWrite,
    CloneIn,
    ComputeAt,
    ComputeInline,
    ComputeRoot,
    ComputeWith,
    CutAt,
    Definition,
    Directive,
    FoldStorage,
    Fuse,
    GpuBlocks,
    GpuSingleThread,
    GpuThreads,
    HoistStorage,
    NeverPartition,
    Pack,
    Parallel,
    Prefetch,
    Reorder,
    ReorderStorage,
    Rfactor,
    Specialize,
    Split,
    StoreAt,
    StoreIn,
    StoreRoot,
    Unroll,
    Unswitch,
    Vectorize,
)
from schedules.loops import Nest, base_of, definitions_of, nest_of, one_of
from schedules.placing.regions import extent_there
from schedules.plan import Plan, Step, dimensions, receiver_of
from schedules.written.loop_names import known_as
from tedsl.analysis.sizes import vars_of
from tedsl.lang.errors import ScheduleError, user_location
from tedsl.lang.expr import Axis, Expr
from tedsl.lang.keywords import spoken
from tedsl.lang.rich import Rich
from tedsl.lang.tensor import Operation, Scan, Scatter, Tensor

__all__ = ["Loop", "StageView"]


class Scheduling(Protocol):
    """What a view asks of its schedule."""

    outputs: tuple[Tensor, ...]
    steps: tuple[Step, ...]
    plan: Plan

    def add(self, *directives: Directive, where: str | None = None, call: str = "") -> None:
        """Give directives, all or none."""

    def __getitem__(self, key: Any) -> StageView:
        """The view of a stage."""


class Loop(str):
    """A loop of a stage: its name, which also knows where it belongs."""

    __slots__ = ("definition", "stage")
    stage: str
    definition: str

    def __new__(cls, name: str, stage: str, definition: str = "body") -> Loop:
        loop = super().__new__(cls, name)
        loop.stage, loop.definition = stage, definition
        return loop

    @property
    def name(self) -> str:
        return str(self)


class NewLoops(tuple[Loop, ...]):
    """What a split or a tile gives; nothing else can be asked of it, in words."""

    __slots__ = ()

    def __getattr__(self, name: str) -> NoReturn:
        stage = f"s[{self[0].stage!r}]" if self else "s[stage]"
        told = "" if not hasattr(StageView, name) else f": say {stage}.{name}(...), of these loops by name"
        raise AttributeError(
            f"split and tile give the new loops ({', '.join(self)}), which have no attribute {name!r}{told}"
        )


# What other libraries call a directive, and what it is called here.
_ELSEWHERE = {
    "inline": "compute_inline()", "reverse_compute_at": "compute_at(...)",
    "bind": "gpu_blocks(...) and gpu_threads(...)", "gpu_lanes": "gpu_threads(...)", "cache": "cache_read(...)",
    "vectorise": "vectorize(...)", "hoist": "hoist_storage(...)",
    "in_": "clone_in(...)", "tensorize": "vectorize(...)",
}  # fmt: skip


@spoken("s[stage]")
class StageView(Rich):
    """One stage (or its `init`) of a schedule; the methods are the directives, and most return the view again."""

    def __init__(self, schedule: Scheduling, name: str, definition: Definition) -> None:
        self.schedule = schedule
        self.name = name
        self.definition: Definition = definition

    def __repr__(self) -> str:
        init = ".init" if self.definition == "init" else ""
        return f"s[{self.name!r}]{init} with loops {', '.join(self.loops) or 'none'}"

    if not TYPE_CHECKING:  # which would take every name for one that there is

        def __getattr__(self, name: str) -> NoReturn:
            close = get_close_matches(name, [n for n in vars(StageView) if not n.startswith("_")], 1)
            meant = _ELSEWHERE.get(name) or (f"{close[0]}(...)" if close else "")
            told = f": it is {meant}" if meant else f"; help(s[{self.name!r}]) lists them"
            # With name and obj set, Python itself adds "Did you mean: 'vectorize'?" to the traceback.
            raise AttributeError(f"a stage of a schedule has no directive {name!r}{told}", name=name, obj=self)

        def __getitem__(self, loop: object) -> NoReturn:
            stage = f"s[{self.name!r}]"
            raise TypeError(f"{stage} at {user_location()}: loops are named in directives: {stage}.parallel({loop!r})")

    # What there is

    @property
    def operation(self) -> Operation:
        """What defines the stage, as rewritten so far."""
        return self.schedule.plan.operation(self.name)

    @property
    def tensor(self) -> Tensor:
        """The (first) tensor that the stage computes, as rewritten so far."""
        return self.operation.output(0)

    @property
    def nest(self) -> Nest:
        """The loops as they are now, and how they make the axes."""
        return self.schedule.plan.nest(self.name, self.definition)

    @property
    def loops(self) -> tuple[Loop, ...]:
        """The loops there are now, outermost first."""
        return tuple(Loop(n, self.name, self.definition) for n in self.nest.names)

    @property
    def axes(self) -> tuple[Loop, ...]:
        """The loops over the elements of the result, before any directive."""
        return self._initial(is_reduce=False)

    @property
    def reduce_axes(self) -> tuple[Loop, ...]:
        """The loops over what is combined into each element, before any directive."""
        return self._initial(is_reduce=True)

    def _initial(self, is_reduce: bool) -> tuple[Loop, ...]:
        op = self.operation
        base = base_of(self.definition)
        levels = nest_of(self.name, op, base).levels
        if isinstance(op, Scan):
            order = {a: d for d, a in enumerate(op.axes)}
            levels = () if is_reduce else tuple(sorted(levels, key=lambda v: order[_axis(v.origin)]))
        elif base == "body":
            free = "free" if isinstance(op, Scatter) else None
            levels = tuple(v for v in levels if is_reduce == _is_reduce(v.origin, v.carried, free))
        elif is_reduce:
            levels = ()
        return tuple(Loop(v.name, self.name, self.definition) for v in levels)

    @property
    def init(self) -> StageView:
        """The loops that fill in the identity, or the start of a scatter."""
        if "init" not in definitions_of(self.operation):
            raise ScheduleError(
                f"s[{self.name!r}].init, at {user_location()}: {self.name} is no reduction; nothing is filled in first"
            )
        return StageView(self.schedule, self.name, "init")

    # Loops

    def split(
        self, loop: Any, factor: Any, names: tuple[str, str] | None = None, exact: bool = False, tail: str | None = None
    ) -> tuple[Loop, Loop]:
        """for i in [0, n): s   ->   for io in [0, ceil(n/f)): for ii in [0, f): s[i -> io*f + ii]

        `tail` says what the last iterations do where the factor does not divide the extent: "guard" tests
        each one, "predicate" masks the loads and stores of vectors, "shift" moves them inward (some elements
        are computed twice). "round_up" is for extents that are known to have no rest, and refused at te.build where
        there may be one.
        A factor may be made of sizes, also as text: `(n + 15) // 16` makes at most 16 parts of n iterations.
        """
        old = self._loop(loop, "split")
        if names is not None and (not isinstance(names, (tuple, list)) or len(names) != 2):
            raise TypeError(f"split at {user_location()}: names holds those of both loops, found {names!r:.40}")
        outer, inner = names or (self._fresh(f"{old}o"), self._fresh(f"{old}i"))
        by = self._factor(factor)
        made = self._split(old, outer, inner, by, exact, tail)
        self._add(made, call=self._call("split", old, factor, tail=tail))
        return self._handles(outer, inner)  # type: ignore[return-value]

    def _factor(self, factor: Any) -> int | str:
        """A factor as a number, or as the text of what is made of sizes."""
        sizes = self.schedule.plan.sizes
        try:
            text = position_text(factor, sizes) if isinstance(factor, (str, Expr)) else ""
        except ScheduleError as error:
            raise ScheduleError(f"split at {user_location()}: {error}") from None
        return text if vars_of(position_of(text or "0", sizes)) else _whole(factor, "split", "factor")

    def tile(
        self, i: Any, j: Any, i_factor: int, j_factor: int, tail: str | None = None
    ) -> tuple[Loop, Loop, Loop, Loop]:
        """for i: for j: s   ->   for io: for jo: for ii: for ji: s; `tail` as in `split`, for both"""
        a, b = self._loop(i, "tile"), self._loop(j, "tile")
        names = [self._fresh(f"{a}o"), self._fresh(f"{b}o"), self._fresh(f"{a}i"), self._fresh(f"{b}i")]
        self._add(
            self._split(a, names[0], names[2], _whole(i_factor, "tile", "first factor"), tail=tail),
            self._split(b, names[1], names[3], _whole(j_factor, "tile", "second factor"), tail=tail),
            Reorder(stage=self.name, definition=self.definition, loops=tuple(names)),
            call=self._call("tile", a, b, i_factor, j_factor, tail=tail),
        )
        return self._handles(*names)  # type: ignore[return-value]

    def fuse(self, outer: Any, inner: Any, name: str | None = None) -> Loop:
        """for i in [0, n): for j in [0, m): s   ->   for f in [0, n*m): s[i -> f // m, j -> f % m]"""
        a, b = self._loop(outer, "fuse"), self._loop(inner, "fuse")
        fused = name or self._fresh(f"{a}{b}")
        self._add(Fuse(stage=self.name, definition=self.definition, outer=a, inner=b, fused=fused))
        return self._handles(fused)[0]

    def reorder(self, *loops: Any) -> StageView:
        """for i: for j: s   ->   for j: for i: s; the loops named take one another's places in the order given"""
        names = tuple(self._loop(x, "reorder") for x in _flat(loops))
        return self._add(Reorder(stage=self.name, definition=self.definition, loops=names))

    def unroll(self, loop: Any, factor: int | None = None, tail: str | None = None) -> StageView:
        """for i in [0, 4): s   ->   s[i -> 0]; s[i -> 1]; s[i -> 2]; s[i -> 3]; a factor splits the loop first

        `tail` is that of `split`. Without a factor it takes the whole loop, if its extent is known and not too large.
        """
        return self._inner(loop, factor, "u", Unroll, tail)

    def vectorize(self, loop: Any, factor: int | None = None, tail: str | None = None) -> StageView:
        """for i in [0, 16): s   ->   s[i -> 0..15]; with a factor the loop is split first and keeps its name outside

        It is printed as `io`, since `i` is what it makes with the lanes `iv`; directives take either name. `tail` is
        that of `split`. Without a factor it takes the whole loop, if its extent is known and not too large.
        """
        return self._inner(loop, factor, "v", Vectorize, tail)

    def parallel(self, loop: Any) -> StageView:
        """for i: s   ->   parallel for i: s"""
        return self._add(Parallel(stage=self.name, definition=self.definition, loop=self._loop(loop, "parallel")))

    def specialize(self, condition: Any) -> StageView:
        """for i: s   ->   if n % 16 == 0: (for i: s) else: (for i: s); returns the loops under the condition

        The condition is made of sizes (`te.var`), or its text. Both cases begin with the loops as they are now; the
        first condition that a call meets counts.
        """
        try:
            text = condition_text(condition, self.schedule.plan.sizes)
        except ScheduleError as error:
            raise ScheduleError(f"s[{self.name!r}].specialize, at {user_location()}: {error}") from None
        self._add(Specialize(stage=self.name, definition=self.definition, condition=text))
        return self.case(text)

    def case(self, condition: Any) -> StageView:
        """The loops under a condition that `specialize` was given."""
        try:
            text = condition_text(condition, self.schedule.plan.sizes)
            known = [d.condition for d in self.schedule.plan.cases(self.name, self.definition)]
            one_of(text, known, "case", f"conditions of {self.name}")
        except ScheduleError as error:
            raise ScheduleError(f"s[{self.name!r}].case, at {user_location()}: {error}") from None
        return StageView(self.schedule, self.name, f"{self.definition} if {text}")

    def cut_at(self, loop: Any, *positions: Any) -> StageView:
        """for i in [0, n): s   ->   for i in [0, m): s; for i in [m, n): s

        A condition that holds in all of a piece, or in none of it, is not asked there.

        The positions are numbers or made of sizes (`te.var`), in order. The loops of all pieces have one name, and what
        is said of it holds for each of them.
        """
        name = self._loop(loop, "cut_at")
        try:
            texts = tuple(position_text(p, self.schedule.plan.sizes) for p in _flat(positions))
        except (ScheduleError, TypeError) as error:
            raise ScheduleError(f"s[{self.name!r}].cut_at, at {user_location()}: {error}") from None
        return self._add(CutAt(stage=self.name, definition=self.definition, loop=name, positions=texts))

    def unswitch(self, loop: Any) -> StageView:
        """for i: C[i] = select(m == 0, a[i], b[i])   ->   if m == 0: (for i: C[i] = a[i]) else: (for i: C[i] = b[i])

        Conditions that are the same all along the loop are asked outside of it; they may read data. What is said of
        the loops afterwards holds for those of each case.
        """
        return self._add(Unswitch(stage=self.name, definition=self.definition, loop=self._loop(loop, "unswitch")))

    def never_partition(self, loop: Any) -> StageView:
        """Keep a loop in one piece, though a condition in it is true in some iterations only: less code, more tests."""
        name = self._loop(loop, "never_partition")
        return self._add(NeverPartition(stage=self.name, definition=self.definition, loop=name))

    def always_partition(self, loop: Any) -> StageView:
        """for i in [0, n): if i > 0: s   ->   for i in [0, 1): ...; for i in [1, n): s"""
        name = self._loop(loop, "always_partition")
        return self._add(AlwaysPartition(stage=self.name, definition=self.definition, loop=name))

    def atomic(self) -> StageView:
        """for p: S[f(p)] += v(p)   ->   the same in any order, each element read, combined and written in one step

        The loops of a scatter may then be parallel. Sums of floats are rounded in another order in every run, so their
        kernels are built with `deterministic=False`.
        """
        return self._add(Atomic(stage=self.name, definition=self.definition))

    def prefetch(self, source: Any, loop: Any, distance: int = 1) -> StageView:
        """Ask for what `source` is read at, `distance` iterations of the loop ahead."""
        name = source if isinstance(source, str) else self._tensor_name(source, "prefetch")
        at = self._loop(loop, "prefetch")
        ahead = _whole(distance, "prefetch", "distance")
        return self._add(Prefetch(stage=self.name, definition=self.definition, source=name, loop=at, distance=ahead))

    def gpu_blocks(self, *loops: Any) -> StageView:
        """Spread loops over the blocks of a GPU, the last named over x."""
        names = tuple(self._loop(x, "gpu_blocks") for x in _flat(loops))
        return self._add(GpuBlocks(stage=self.name, definition=self.definition, loops=names))

    def gpu_threads(self, *loops: Any) -> StageView:
        """Spread loops over the threads of a GPU block, the last named over x."""
        names = [self._loop(x, "gpu_threads") for x in _flat(loops)]
        splits = {name: self._whole_split(name) for name in names if self._is_whole(name)}
        inner = tuple(splits[n].inner if n in splits else n for n in names)
        order = [Reorder(stage=self.name, definition=self.definition, loops=(*splits, *inner))] if splits else []
        threads = GpuThreads(stage=self.name, definition=self.definition, loops=inner)
        return self._add(*splits.values(), *order, threads, call=self._call("gpu_threads", *names) if splits else "")

    def _is_whole(self, name: str) -> bool:
        """Whether a loop has a known number of iterations, but only where the stage is computed as a whole."""
        level = self.nest.level(name) if name in self.nest.names else None
        free = level is not None and level.kind == "serial" and level.is_independent
        return free and level is not None and level.constant is None and level.known is not None

    def _whole_split(self, name: str) -> Split:
        """The split into one iteration outside and all of them, a constant number, inside."""
        return self._split(name, name, self._fresh(f"{name}t"), max(self.nest.level(name).known or 1, 1))

    def gpu_single_thread(self) -> StageView:
        """Do all of it in one thread of a GPU: slow, for what has no independent iterations."""
        return self._add(GpuSingleThread(stage=self.name, definition=self.definition))

    def gpu_tile(self, i: Any, j: Any, i_factor: int, j_factor: int) -> tuple[Loop, Loop, Loop, Loop]:
        """Tile, then blocks over the outer and threads over the inner loops."""
        before = self.schedule.plan, self.schedule.steps
        io, jo, ii, ji = self.tile(i, j, i_factor, j_factor)
        try:
            self.gpu_blocks(io, jo).gpu_threads(ii, ji)
        except ScheduleError:
            self.schedule.plan, self.schedule.steps = before
            raise
        return io, jo, ii, ji

    # Where it is computed, and kept

    def compute_at(self, consumer: Any, loop: Any) -> StageView:
        """T = ...; for i: C[i] = f(T)   ->   for i: T = what C[i] needs; C[i] = f(T)"""
        name, at = self._place(consumer, loop, "compute_at")
        return self._add(ComputeAt(stage=self.name, consumer=name, loop=at))

    def compute_with(self, other: Any, loop: Any) -> StageView:
        """for i: T[i] = ...; for i: U[i] = ...   ->   for i: (U[i] = ...; T[i] = ...), the loops shared through `loop`

        `loop` is one of the other stage, which is like the loop of this one at the same depth.
        """
        name, at = self._place(other, loop, "compute_with")
        return self._add(ComputeWith(stage=self.name, definition=self.definition, consumer=name, loop=at))

    def compute_root(self) -> StageView:
        """Compute the whole stage before its readers."""
        return self._add(ComputeRoot(stage=self.name))

    def compute_inline(self) -> StageView:
        """T[i] = a(i); C[i] = f(T[i])   ->   C[i] = f(a(i))"""
        return self._add(ComputeInline(stage=self.name))

    def store_at(self, consumer: Any, loop: Any) -> StageView:
        """Keep the memory across the iterations of a loop outside the one of compute_at, and reuse what it holds."""
        name, at = self._place(consumer, loop, "store_at")
        return self._add(StoreAt(stage=self.name, consumer=name, loop=at))

    def store_root(self) -> StageView:
        """Keep the memory for the whole kernel, though the stage is computed inside a loop."""
        return self._add(StoreRoot(stage=self.name))

    def store_in(self, memory: str) -> StageView:
        """Where the stage lives: "auto", "heap", "stack", "register" or, on a GPU, "shared"."""
        return self._add(StoreIn(stage=self.name, memory=memory))

    def reorder_storage(self, *axes: Any) -> StageView:
        """Lay out the memory with the axes in this order, the last one contiguous."""
        return self._add(ReorderStorage(stage=self.name, axes=tuple(map(str, map(_named, _flat(axes))))))

    def bound_extent(self, axis: Any, extent: int) -> StageView:
        """Promise that this many elements along an axis are computed at a time."""
        return self._add(
            BoundExtent(stage=self.name, axis=str(_named(axis)), extent=_whole(extent, "bound_extent", "extent"))
        )

    def bound(self, axis: Any, begin: int, extent: int) -> StageView:
        """T: for i in what readers need: s   ->   for i in [begin, begin + extent): s; the kernel checks the promise"""
        first, many = _whole(begin, "bound", "begin"), _whole(extent, "bound", "extent")
        return self._add(Bound(stage=self.name, axis=str(_named(axis)), begin=first, extent=many))

    def align_storage(self, axis: Any, multiple: int) -> StageView:
        """T in memory [n, m]   ->   T in memory [n, ceil(m/a)*a], so that rows begin where vectors like it"""
        many = _whole(multiple, "align_storage", "multiple")
        return self._add(AlignStorage(stage=self.name, axis=str(_named(axis)), multiple=many))

    def fold_storage(self, axis: Any, factor: int) -> StageView:
        """T[i] in memory [n]   ->   T[i % factor] in memory [factor]; for what store_at keeps"""
        many = _whole(factor, "fold_storage", "factor")
        return self._add(FoldStorage(stage=self.name, axis=str(_named(axis)), factor=many))

    def hoist_storage(self, consumer: Any = None, loop: Any = None) -> StageView:
        """for i: (memory of T; T = ...)   ->   memory of T; for i: (T = ...); without a loop, for the whole kernel"""
        if consumer is None:
            return self._add(HoistStorage(stage=self.name))
        name, at = self._place(consumer, loop, "hoist_storage")
        return self._add(HoistStorage(stage=self.name, consumer=name, loop=at))

    def async_(self) -> StageView:
        """for i: (T = ...; C[i] = f(T))   ->   (for i: T = ...) beside (for i: C[i] = f(T)), on a thread of its own

        For what `compute_at` computes inside a loop and `hoist_storage` keeps outside of it: the thread is at most one
        iteration ahead of the reader. Elsewhere the stage is computed in turn, and the printed schedule says why.
        """
        return self._add(Async(stage=self.name))

    # Rewrites

    def clone_in(self, reader: Any, name: str | None = None) -> StageView:
        """T = e; C = f(T); D = g(T)   ->   T = e; clone = e; C = f(clone); D = g(T); returns the clone"""
        made = name or self.schedule.plan.program.fresh(f"{self.name}_clone")
        self._add(CloneIn(stage=self.name, consumer=self.schedule[reader].name, clone=made))
        return self.schedule[made]

    def cache_write(self, name: str | None = None) -> StageView:
        """C[i] = e(i)   ->   local[i] = e(i); C[i] = local[i]; returns the local stage"""
        local = name or self.schedule.plan.program.fresh(f"{self.name}_local")
        self._add(CacheWrite(stage=self.name, local=local))
        return self.schedule[local]

    def cache_read(self, source: Any, name: str | None = None) -> StageView:
        """C[i] = e(A[f(i)])   ->   copy[i] = A[i]; C[i] = e(copy[f(i)]); returns the copy"""
        read = source if isinstance(source, str) else self._tensor_name(source, "cache_read")
        copy = name or self.schedule.plan.program.fresh(f"{read}_cached")
        self._add(CacheRead(stage=self.name, source=read, copy=copy))
        return self.schedule[copy]

    def rfactor(self, loop: Any, name: str | None = None) -> StageView:
        """C[i] = sum(ko, ki) e   ->   partial[i, ko] = sum(ki) e; C[i] = sum(ko) partial[i, ko]; returns partial"""
        at = self._loop(loop, "rfactor")
        partial = name or self.schedule.plan.program.fresh(f"{self.name}_rf")
        self._add(Rfactor(stage=self.name, loop=at, partial=partial))
        return self.schedule[partial]

    def pack(self, source: Any, order: Iterable[str], factors: Iterable[int], name: str | None = None) -> StageView:
        """C = e(B[k, j])   ->   copy[jo, k, ji] = B[k, jo*f + ji]; C = e(copy[j // f, k, j % f]); returns the copy

        `factors` has a number for each dimension of `source`: how long its blocks are, or 0 where it stays whole.
        `order` lists the dimensions of the copy: "1o" and "1i" are the blocks of dimension 1 and the places inside one.
        """
        read = source if isinstance(source, str) else self._tensor_name(source, "pack")
        copy = name or self.schedule.plan.program.fresh(f"{read}_packed")
        sizes = tuple(_whole(f, "pack", "factor") for f in factors)
        self._add(Pack(stage=self.name, source=read, copy=copy, order=tuple(order), factors=sizes))
        return self.schedule[copy]

    # Helpers

    def _add(self, *directives: Directive, call: str = "") -> StageView:
        self.schedule.add(*directives, call=call)
        return self

    def _call(self, verb: str, *arguments: object, **named: object) -> str:
        """A call of a method that gives several directives, for messages."""
        init = receiver_of(Specialize(stage=self.name, definition=self.definition, condition="")).partition("]")[2]
        given = [*map(repr, arguments), *(f"{name}={value!r}" for name, value in named.items() if value is not None)]
        return f"s[{self.name!r}]{init}.{verb}({', '.join(given)})"

    def _split(
        self, old: str, outer: str, inner: str, factor: int | str, exact: bool = False, tail: str | None = None
    ) -> Split:
        number, length = (factor, "") if isinstance(factor, int) else (1, factor)
        return Split(
            stage=self.name, definition=self.definition, loop=old, outer=outer, inner=inner, factor=number, exact=exact,
            tail="" if tail is None else tail, length=length,
        )  # fmt: skip

    def _inner(
        self, loop: Any, factor: int | None, suffix: str, verb: type[Unroll] | type[Vectorize], tail: str | None
    ) -> StageView:
        """Split off the iterations that are vectorized or unrolled, unless the loop consists of just these."""
        name = self._loop(loop, verb.verb)
        if name not in self.nest.names:
            return self._add(verb(stage=self.name, definition=self.definition, loop=name))
        level = self.nest.level(name)
        if verb is Vectorize and not level.is_independent:
            return self._add(verb(stage=self.name, definition=self.definition, loop=name))  # refused under its own name
        whole = level.constant or self._there(name) or (None if level.known is None else max(level.known, 1))
        wanted = whole if factor is None else factor
        is_of_nothing = verb is Unroll and factor is None and level.constant == 0
        if wanted is None or wanted == level.constant or is_of_nothing:
            return self._add(verb(stage=self.name, definition=self.definition, loop=name))
        inner = self._fresh(f"{name}{suffix}")
        return self._add(
            self._split(name, name, inner, _whole(wanted, verb.verb, "factor"), tail=tail),
            verb(stage=self.name, definition=self.definition, loop=inner),
            call=self._call(verb.verb, name, *([] if factor is None else [factor]), tail=tail),
        )

    def _there(self, name: str) -> int | None:
        """How many iterations of a loop there are where the stage is computed, if that is a known number."""
        names = dimensions(self.name, self.operation)
        plan = self.schedule.plan
        return extent_there(plan, self.name, names.index(name)) if name in names and name in self.nest.names else None

    def _fresh(self, name: str) -> str:
        return self.nest.fresh(name)

    def _handles(self, *names: str) -> tuple[Loop, ...]:
        return NewLoops(Loop(n, self.name, self.definition) for n in names)

    def _loop(self, loop: Any, verb: str) -> str:
        """The name of a loop of this stage, from a handle, a name, or the axis of the expression."""
        if isinstance(loop, Loop) and (loop.stage, loop.definition) != (self.name, self.definition):
            init = ".init" if loop.definition == "init" else ""
            raise ScheduleError(
                f"s[{self.name!r}].{verb}, at {user_location()}: loop {str(loop)!r} belongs to "
                f"s[{loop.stage!r}]{init}; loops of {self.nest}: {', '.join(self.nest.names)}"
            )
        found = _named(loop)
        if not isinstance(found, str):
            raise TypeError(
                f"s[{self.name!r}].{verb} at {user_location()}: expected a loop, found {type(loop).__name__}"
            )
        return self._known_as(str(found))

    def _known_as(self, loop: str) -> str:
        """The loop of that name, or that is printed by that name."""
        return known_as(self.nest, loop) if base_of(self.definition) in definitions_of(self.operation) else loop

    def _place(self, consumer: Any, loop: Any, verb: str) -> tuple[str, str]:
        view = self.schedule[consumer]
        if isinstance(loop, Loop) and loop.stage != view.name:
            raise ScheduleError(
                f"s[{self.name!r}].{verb}, at {user_location()}: loop {str(loop)!r} belongs to {loop.stage}, "
                f"not to {view.name}"
            )
        return view.name, view._known_as(str(_named(loop)))

    def _tensor_name(self, source: Any, verb: str) -> str:
        if isinstance(source, StageView):
            return self.schedule[source].name
        if not isinstance(source, Tensor):
            raise TypeError(
                f"s[{self.name!r}].{verb} at {user_location()}: expected a tensor, found {type(source).__name__}"
            )
        if source.op.num_outputs > 1:
            return source.name
        return self.schedule.plan.program.name_of(source) or source.name


def _named(loop: Any) -> Any:
    return loop.name if isinstance(loop, Axis) else loop


def _flat(loops: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(loops[0]) if len(loops) == 1 and isinstance(loops[0], (tuple, list)) else loops


def _whole(value: Any, verb: str, what: str) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{verb} at {user_location()}: the {what} must be an integer, found {value!r:.40}")
    return int(value)


def _axis(origin: frozenset[Any]) -> Any:
    (axis,) = origin
    return axis


def _is_reduce(origin: frozenset[Any], carried: str, free: str | None) -> bool:
    return carried != free if free else _axis(origin).is_reduce
