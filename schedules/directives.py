"""Directives: what a schedule says about loops, as data. Each documents what it rewrites and what it checks.

A directive names its stage and loops by text, so that a schedule prints, saves and compares. `definition` tells which
loops of the stage are meant: "body" (the computation; for a reduction its update) or "init" (the loops that fill in the
identity).
Whoever applies directives (`tedsl.backend.scheduling.apply`) may rely on `schedules.loops` having checked them.
"""

from __future__ import annotations

import difflib
from dataclasses import asdict, fields
from typing import Any, ClassVar, Literal, get_args, get_origin, get_type_hints

from schedules.records import record_of, typed
from tedsl.lang.dataclass import dataclass

__all__ = [
    "DIRECTIVES",
    "NAMING",
    "TAILS",
    "AlignStorage",
    "AlwaysPartition",
    "Async",
    "Atomic",
    "Bound",
    "BoundExtent",
    "CacheRead",
    "CacheWrite",
    "CloneIn",
    "ComputeAt",
    "ComputeInline",
    "ComputeRoot",
    "ComputeWith",
    "CutAt",
    "Directive",
    "FoldStorage",
    "Fuse",
    "GpuBlocks",
    "GpuSingleThread",
    "GpuThreads",
    "HoistStorage",
    "LoopDirective",
    "NeverPartition",
    "Pack",
    "Parallel",
    "Prefetch",
    "Reorder",
    "ReorderStorage",
    "Rewrite",
    "Rfactor",
    "Specialize",
    "Split",
    "StoreAt",
    "StoreIn",
    "StoreRoot",
    "Unroll",
    "Unswitch",
    "Vectorize",
    "check_fields",
    "from_json",
    "to_json",
]  # fmt: skip

TAILS = ("round_up", "guard", "shift", "predicate")
LATER = frozenset({("auto", "loops"), ("split", "tail")})  # fields with defaults that files may lack
Definition = str  # "body", "init", or either in a case: "body if n % 16 == 0"
NAMING = frozenset({"stage", "consumer", "source"})  # fields that name stages; a source may be an input too


@dataclass(frozen=True, kw_only=True)
class Directive:
    """One statement about one stage."""

    stage: str
    verb: ClassVar[str] = ""


@dataclass(frozen=True, kw_only=True)
class LoopDirective(Directive):
    """A statement about the loops of one definition of a stage."""

    definition: Definition = "body"


@dataclass(frozen=True, kw_only=True)
class Split(LoopDirective):
    """Split a loop in two.

    rewrites   for i in [0, n): s   ->   for io in [0, ceil(n/f)): for ii in [0, f): if io*f + ii < n: s[i -> io*f + ii]
    checks     factor > 0; the loop exists, is serial, and the new names are free
    `length` is the text of a factor made of sizes, in place of the number: "(n + 15) // 16" makes at most 16 parts.
    `exact` promises that f divides n wherever the stage is computed, so that no guard is left. `tail` says what becomes
    of a rest: "guard" tests each iteration, "predicate" masks vectors, "shift" moves the last iterations inward, so
    that some elements are computed twice, and "round_up" is for extents that are known to have no rest; "" leaves it to
    us: where vectors have no masks the last one begins earlier if that is known to be right, as do strips along which a
    window slides.
    """

    verb = "split"
    loop: str
    outer: str
    inner: str
    factor: int
    exact: bool = False
    tail: str = ""
    length: str = ""

    @property
    def step(self) -> int | None:
        """The factor, if it is a number."""
        return None if self.length else self.factor


@dataclass(frozen=True, kw_only=True)
class Fuse(LoopDirective):
    """Make one loop of two neighbouring ones.

    rewrites   for i in [0, n): for j in [0, m): s   ->   for f in [0, n*m): s[i -> f // m, j -> f % m]
    checks     both loops exist, are serial, and j lies directly inside i
    """

    verb = "fuse"
    outer: str
    inner: str
    fused: str


@dataclass(frozen=True, kw_only=True)
class Reorder(LoopDirective):
    """Put loops into another order, outermost first; loops not named keep their places.

    rewrites   for i: for j: s   ->   for j: for i: s
    checks     the loops exist; no dependence is reversed (a recurrence keeps its order)
    """

    verb = "reorder"
    loops: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Unroll(LoopDirective):
    """Write out the iterations of a loop of constant extent.

    rewrites   for i in [0, 4): s   ->   s[i -> 0]; s[i -> 1]; s[i -> 2]; s[i -> 3]
    checks     the extent is a constant
    """

    verb = "unroll"
    loop: str


@dataclass(frozen=True, kw_only=True)
class Vectorize(LoopDirective):
    """Do the iterations of a loop of constant extent in one vector.

    rewrites   for i in [0, 16): s   ->   s[i -> 0..15]
    checks     the extent is a constant; iterations are independent
    """

    verb = "vectorize"
    loop: str


@dataclass(frozen=True, kw_only=True)
class Parallel(LoopDirective):
    """Do the iterations of a loop on several threads.

    rewrites   for i: s   ->   parallel for i: s
    checks     iterations are independent
    """

    verb = "parallel"
    loop: str


@dataclass(frozen=True, kw_only=True)
class Atomic(LoopDirective):
    """Let the points of a scatter meet: each reads, combines and writes its element in one step.

    rewrites   for p: S[f(p)] += v(p)   ->   for p, in any order: atomic S[f(p)] += v(p)
    checks     the stage is a scatter; where the order shows (sums and products of floats), the kernel is built with
               deterministic=False
    """

    verb = "atomic"


@dataclass(frozen=True, kw_only=True)
class GpuBlocks(LoopDirective):
    """Spread loops over the blocks of a GPU (at most three)."""

    verb = "gpu_blocks"
    loops: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class GpuThreads(LoopDirective):
    """Spread loops over the threads of a GPU block (at most three, of constant extents)."""

    verb = "gpu_threads"
    loops: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class GpuSingleThread(LoopDirective):
    """Do all of it in one thread of a GPU: slow, for what has no independent iterations."""

    verb = "gpu_single_thread"


@dataclass(frozen=True, kw_only=True)
class Prefetch(LoopDirective):
    """Ask for the elements of `source` that iteration `loop + distance` reads."""

    verb = "prefetch"
    source: str
    loop: str
    distance: int


@dataclass(frozen=True, kw_only=True)
class ComputeAt(Directive):
    """Compute what one iteration of a consumer's loop needs, just before it.

    rewrites   T = ...; for i: C[i] = f(T)   ->   for i: T = what C[i] needs; C[i] = f(T)
    checks     every reader of the stage lies inside that loop
    """

    verb = "compute_at"
    consumer: str
    loop: str


@dataclass(frozen=True, kw_only=True)
class StoreAt(Directive):
    """Keep the memory of a stage across a loop outside the one where it is computed, so that what is there is reused.

    checks     the loop lies outside the loop of compute_at
    """

    verb = "store_at"
    consumer: str
    loop: str


@dataclass(frozen=True, kw_only=True)
class StoreRoot(Directive):
    """Keep the memory of a stage for the whole kernel, though it is computed inside a loop.

    checks     the stage has a compute_at
    """

    verb = "store_root"


@dataclass(frozen=True, kw_only=True)
class ComputeRoot(Directive):
    """Compute the whole stage before its readers."""

    verb = "compute_root"


@dataclass(frozen=True, kw_only=True)
class ComputeInline(Directive):
    """Compute an element wherever it is read.

    rewrites   T[i] = a(i); C[i] = f(T[i])   ->   C[i] = f(a(i))
    checks     the stage is pointwise, and no output
    """

    verb = "compute_inline"


@dataclass(frozen=True, kw_only=True)
class ReorderStorage(Directive):
    """Lay out the memory of an intermediate with the axes in this order, the last one contiguous."""

    verb = "reorder_storage"
    axes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class StoreIn(Directive):
    """Where an intermediate lives: "auto", "heap", "stack", "register" or, on a GPU, "shared"."""

    verb = "store_in"
    memory: str


@dataclass(frozen=True, kw_only=True)
class BoundExtent(Directive):
    """Promise how many elements along an axis are computed at a time, so that loops over them need no guard.

    The kernel checks the promise; it never writes beyond.
    """

    verb = "bound_extent"
    axis: str
    extent: int


@dataclass(frozen=True, kw_only=True)
class Bound(Directive):
    """Promise which elements along an axis are ever needed: just these are computed, wherever the stage is.

    rewrites   T: for i in what readers need: s   ->   for i in [begin, begin + extent): s
    checks     the elements exist; what readers are known to need lies among them; the kernel checks the rest
    """

    verb = "bound"
    axis: str
    begin: int
    extent: int


@dataclass(frozen=True, kw_only=True)
class AlignStorage(Directive):
    """Let rows along an axis take a multiple of so many elements in memory, so that each begins where vectors like it.

    rewrites   T in memory [n, m]   ->   T in memory [n, ceil(m/a)*a]
    checks     the stage is no output and has the axis; the multiple is positive
    """

    verb = "align_storage"
    axis: str
    multiple: int


@dataclass(frozen=True, kw_only=True)
class FoldStorage(Directive):
    """Keep the last `factor` elements along an axis only, in memory that goes round.

    rewrites   T[i] in memory [n]   ->   T[i % factor] in memory [factor]
    checks     the memory of the stage lies outside of the loop it is computed in (store_at), and what one iteration of
               that loop needs along the axis is known and no more than the factor
    """

    verb = "fold_storage"
    axis: str
    factor: int


@dataclass(frozen=True, kw_only=True)
class HoistStorage(Directive):
    """Allocate the memory of a stage outside of a loop, once for all its iterations, which begin with it afresh.

    rewrites   for i: (memory of T; T = ...; C[i] = f(T))   ->   memory of T; for i: (T = ...; C[i] = f(T))
    checks     the loop lies around the place where the stage is stored; no loop in between is parallel
    Without a loop ("") the memory is the whole kernel's.
    """

    verb = "hoist_storage"
    consumer: str = ""
    loop: str = ""


@dataclass(frozen=True, kw_only=True)
class Async(Directive):
    """Let a thread of its own compute a stage, one iteration ahead of the loop that it is computed in.

    rewrites   for i: (T = ...; C[i] = f(T))   ->   two T in turns: (for i: T = ...) beside (for i: C[i] = f(T))
    checks     the stage is no output
    It is a wish: where it is not known to be safe, the stage is computed in turn, and the printed schedule says why.
    """

    verb = "async_"


@dataclass(frozen=True, kw_only=True)
class ComputeWith(LoopDirective):
    """Let a stage share the loops of another one, from the outermost through `loop`; their iterations take turns.

    rewrites   for i: (for j: T[i, j] = ...); for i: (for j: U[i, j] = ...)
               ->   for i: (for j: U[i, j] = ...; for j: T[i, j] = ...)
    checks     neither stage needs the other; both are computed at one place; the loops that are shared are alike:
               names and extents, serial or parallel, iterations independent; nothing else is computed or kept at them
    """

    verb = "compute_with"
    consumer: str
    loop: str


@dataclass(frozen=True, kw_only=True)
class Specialize(LoopDirective):
    """Give a definition loops of its own for calls whose sizes meet a condition; the first that is met counts.

    rewrites   for i: s   ->   if n % 16 == 0: (for i: s) else: (for i: s)
    checks     the condition is made of sizes; nothing is computed inside loops that differ between the cases
    Both begin with the loops as they are; later directives change one of the two.
    """

    verb = "specialize"
    condition: str

    @property
    def case(self) -> str:
        """The definition under the condition."""
        return f"{self.definition} if {self.condition}"


@dataclass(frozen=True, kw_only=True)
class NeverPartition(LoopDirective):
    """Keep a loop in one piece where conditions change their value on the way: less code, more tests.

    checks     the loop exists and is a loop: neither a vector nor written out
    """

    verb = "never_partition"
    loop: str


@dataclass(frozen=True, kw_only=True)
class AlwaysPartition(LoopDirective):
    """Let a loop be cut into a beginning, a middle and an end where that takes a condition out of the middle.

    rewrites   for i in [0, n): if i > 0: s   ->   for i in [0, 1): ...; for i in [1, n): s
    checks     the loop exists and is a loop: neither a vector nor written out
    The default where nothing is said, but for loops of unknown extent around vectors and around tiles of sums.
    """

    verb = "always_partition"
    loop: str


@dataclass(frozen=True, kw_only=True)
class CutAt(LoopDirective):
    """Compute a stage in pieces: the loop of one of its axes ends at each position, and another one goes on from there.

    rewrites   for i in [0, n): C[i] = select(i < m, a[i], b[i - m])
               ->   for i in [0, m): C[i] = a[i]; for i in [m, n): C[i] = b[i - m]
    checks     C is pointwise, computed at the root, and nothing is computed inside its loops or with them; the
               positions are made of sizes and numbers, in order, and within the axis whatever the sizes are
    What the beginning and the end of a piece decide is decided in it. Every other directive holds for the loops of all
    pieces. Several axes may be cut, the pieces are then boxes.
    """

    verb = "cut_at"
    loop: str
    positions: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Unswitch(LoopDirective):
    """Compute a stage by cases: what it chooses by conditions that are the same all along a loop is decided outside.

    rewrites   for i: C[i] = select(m == 0, a[i], b[i])
               ->   if m == 0: (for i: C[i] = a[i]) else: (for i: C[i] = b[i])
    checks     C is pointwise, and nothing is computed inside its loops or with them
    Conditions may read data and hang on the loops around; borders, as `j > 0`, stay. Every other directive holds for
    the loops of all cases.
    """

    verb = "unswitch"
    loop: str


@dataclass(frozen=True, kw_only=True)
class Rewrite(Directive):
    """A change of the program that keeps its results: stages are added, those that were there keep their names."""


@dataclass(frozen=True, kw_only=True)
class CacheWrite(Rewrite):
    """Compute into a stage of its own, and copy from there.

    rewrites   C[i] = e(i)   ->   local[i] = e(i); C[i] = local[i]
    checks     C has no directives yet
    """

    verb = "cache_write"
    local: str


@dataclass(frozen=True, kw_only=True)
class CacheRead(Rewrite):
    """Read a tensor through a copy of it.

    rewrites   C[i] = e(A[f(i)])   ->   copy[i] = A[i]; C[i] = e(copy[f(i)])
    checks     C reads A
    """

    verb = "cache_read"
    source: str
    copy: str


@dataclass(frozen=True, kw_only=True)
class Rfactor(Rewrite):
    """Reduce in two steps: over all but one loop for each of its iterations, then over that loop.

    rewrites   C[i] = sum(ko, ki) e   ->   partial[i, ko] = sum(ki) e; C[i] = sum(ko) partial[i, ko]
    checks     the loop is a reduce axis or half of one, the reducer may be regrouped, C has no other directives yet
    """

    verb = "rfactor"
    loop: str
    partial: str


@dataclass(frozen=True, kw_only=True)
class CloneIn(Rewrite):
    """Compute a stage a second time, for one of its readers, with a schedule of its own.

    rewrites   T[i] = e(i); C = f(T); D = g(T)   ->   T[i] = e(i); T_clone[i] = e(i); C = f(T_clone); D = g(T)
    checks     the consumer reads the stage, and so does somebody else
    """

    verb = "clone_in"
    consumer: str
    clone: str


@dataclass(frozen=True, kw_only=True)
class Pack(Rewrite):
    """Read a tensor through a copy laid out in blocks along some of its dimensions.

    rewrites   C[i, j] = e(B[k, j])
               ->   copy[jo, k, ji] = B[k, jo*f + ji] (0 beyond the end); C[i, j] = e(copy[j//f, k, j%f])
    checks     C reads B; factors > 0
    `order` lists the dimensions of the copy: "1o" and "1i" are the blocks of dimension 1 and the places inside one, "0"
    is a dimension that stays whole.
    """

    verb = "pack"
    source: str
    copy: str
    order: tuple[str, ...]
    factors: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Auto(Rewrite):
    """Schedule every stage that has no directives yet.

    checks     Halide's autoschedulers: nothing else is said, every extent is a number
    `machine` holds the figures that the default schedule was made for, so that it is the same one elsewhere. Without
    `loops` the default schedule makes its stages, such as packed panels, and leaves their loops and places as they are
    written; a schedule tells what it says of these directive by directive, after it.
    """

    verb = "auto"
    stage: str = ""
    scheduler: str
    machine: tuple[tuple[str, Any], ...] = ()
    loops: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "machine", _tuples(self.machine))


def _tuples(data: Any) -> Any:
    return tuple(map(_tuples, data)) if isinstance(data, (list, tuple)) else data


DIRECTIVES: dict[str, type[Directive]] = {
    cls.verb: cls
    for cls in (
        Auto,
        Split, Fuse, Reorder, Unroll, Vectorize, Parallel, Atomic, GpuBlocks, GpuThreads, GpuSingleThread,
        Prefetch,
        NeverPartition, AlwaysPartition, CutAt, Unswitch, ComputeWith, Specialize,
        ComputeAt, StoreAt, StoreRoot, ComputeRoot, ComputeInline, ReorderStorage, StoreIn, BoundExtent,
        Bound, AlignStorage, FoldStorage, HoistStorage, Async,
        CacheWrite, CacheRead, Rfactor, Pack, CloneIn,
    )
}  # fmt: skip


def to_json(directive: Directive) -> dict[str, Any]:
    """The directive as plain data."""
    return {"verb": directive.verb, **asdict(directive)}


def from_json(data: Any, place: str = "") -> Directive:
    """The directive that `to_json` wrote; ValueError, which names the place, where it wrote no such thing."""
    values = dict(typed(dict, data, place))
    verb = typed(str, values.pop("verb", None), f"{place}.verb")
    if verb not in DIRECTIVES:
        near = difflib.get_close_matches(verb, DIRECTIVES, n=1)
        meant = f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(DIRECTIVES)}"
        raise ValueError(f"{place}.verb: there is no directive {verb!r:.40}{meant}")
    definition = values.get("definition", "body")
    if isinstance(definition, str) and definition.partition(" if ")[0] not in ("body", "init"):
        raise ValueError(f"{place} ({verb}).definition: expected 'body' or 'init', found {definition!r:.40}")
    kind = DIRECTIVES[verb]
    later = {f.name: f.default for f in fields(kind) if (verb, f.name) in LATER}
    made: Directive = record_of(kind, {**later, **values}, f"{place} ({verb})")
    return made


def check_fields(directive: Directive) -> None:
    """TypeError unless every field holds what its annotation says: people and files write directives too."""
    hints = get_type_hints(type(directive))
    for field in fields(directive):
        value, expected = getattr(directive, field.name), hints[field.name]
        if not _fits(value, expected):
            kind = expected.__name__ if isinstance(expected, type) else str(expected)
            raise TypeError(f"{directive.verb}: {field.name} is of type {kind}, found {value!r:.60}")


def _fits(value: Any, expected: Any) -> bool:
    origin, inner = get_origin(expected), get_args(expected)
    if origin is Literal:
        return isinstance(value, str) and value in inner
    if origin is not tuple:
        return expected is Any or (isinstance(value, expected) and not (expected is int and isinstance(value, bool)))
    if not isinstance(value, tuple):
        return False
    kinds = [inner[0]] * len(value) if inner[-1] is Ellipsis else inner
    return len(kinds) == len(value) and all(map(_fits, value, kinds))
