"""Random schedules: directives drawn over all stages and loops there are, the refused ones left out."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import tedsl as te
from schedules import StageView
from schedules.loops import definitions_of
from schedules.placing.placement import placed
from schedules.plan import dimensions
from tedsl.analysis.bounds import bounds_of
from tedsl.lang.expr import Const
from tedsl.lang.tensor import Compute

FACTORS = (1, 2, 3, 4, 5, 8, 16)
TAILS = (None, None, None, "guard", "shift", "predicate", "round_up")
MOST_UNROLLED = 16


class Drawing:
    """A schedule while it is drawn; `given` and `refused` count the verbs."""

    def __init__(self, seed: int, outputs: Sequence[te.Tensor]) -> None:
        self.random = random.Random(seed)
        self.schedule = te.Schedule(list(outputs))
        self.given: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.verbs: Sequence[str] = VERBS

    def pick(self, options: Sequence[Any]) -> Any:
        return self.random.choice(options)

    def shuffled(self, options: Sequence[Any]) -> list[Any]:
        return self.random.sample(list(options), len(options))

    def step(self) -> None:
        """One more directive; if it is refused, at once or with those before, nothing happens."""
        s = self.schedule
        before = s.plan, s.steps
        verb = self.pick(self.verbs)
        between = [name for name in s.stages if name not in s.plan.program.final]
        inner = verb in (*INNER_VERBS, *AHEAD_VERBS)
        if inner and not between:
            verb, inner = self.pick(REWRITES), False
        view = s[self.pick(between if inner else s.stages)]
        if (
            "init" in definitions_of(view.operation)
            and verb in (*LOOP_VERBS, *SPREAD)
            and self.random.randint(0, 3) == 0
        ):
            view = view.init
        try:
            getattr(self, verb)(view)
            placed(s.plan)
            self.given[verb] += 1
        except te.ScheduleError:
            s.plan, s.steps = before
            self.refused[verb] += 1

    def loop(self, view: StageView, carried: Sequence[str] = ()) -> str:
        """A loop of the stage, mostly one that the verb may take; sometimes one that does not exist."""
        levels = view.nest.levels
        fitting = [v.name for v in levels if v.kind == "serial" and v.carried in (carried or (v.carried,))]
        if self.random.random() < 0.15 or not fitting:
            fitting = [*view.nest.names, "nowhere"]
        return str(self.pick(fitting))

    def split(self, view: StageView) -> None:
        view.split(self.loop(view), self.pick(FACTORS), tail=self.pick(TAILS))

    def tile(self, view: StageView) -> None:
        loops = view.loops
        at = self.random.randint(0, max(0, len(loops) - 2))
        pair = loops[at : at + 2] if len(loops) > 1 else ("nowhere", "nowhere")
        view.tile(*pair, self.pick(FACTORS), self.pick(FACTORS), tail=self.pick(TAILS))

    def reorder(self, view: StageView) -> None:
        loops = list(map(str, view.loops))
        if is_float_product(view):
            loops = [x for x in loops if x in view.axes]
        view.reorder(*self.shuffled(loops)[: self.random.randint(2, 5)])

    def fuse(self, view: StageView) -> None:
        loops = view.loops
        at = self.random.randint(0, max(0, len(loops) - 2))
        view.fuse(*loops[at : at + 2] if len(loops) > 1 else ("nowhere", "nowhere"))

    def unroll(self, view: StageView) -> None:
        loop = self.loop(view)
        known = next((v.known for v in view.nest.levels if v.name == loop), None)
        small = known is not None and known <= MOST_UNROLLED
        view.unroll(loop, self.pick((None, 2, 3)) if small else self.pick((2, 3)), tail=self.pick(TAILS))

    def vectorize(self, view: StageView) -> None:
        view.vectorize(self.loop(view, ("free",)), self.pick((None, 2, 3, 4, 8, 16)), tail=self.pick(TAILS))

    def parallel(self, view: StageView) -> None:
        view.parallel(self.loop(view, ("free",)))

    def prefetch(self, view: StageView) -> None:
        view.prefetch(self.source(view), self.loop(view), self.pick((1, 2)))

    def source(self, view: StageView) -> str:
        names = self.schedule.plan.program.names
        read = [names.get(t.op, t.name) for t in view.operation.inputs if t.op.num_outputs == 1]
        return str(self.pick(read)) if read else "nothing"

    def consumer(self, view: StageView) -> StageView:
        readers = self.schedule.plan.program.readers[view.name]
        return self.schedule[self.pick(readers or self.schedule.stages)]

    def compute_at(self, view: StageView) -> None:
        consumer = self.consumer(view)
        view.compute_at(consumer, self.loop(consumer))

    def store_at(self, view: StageView) -> None:
        self.compute_at(view)
        place: Any = self.schedule.plan.places[view.name].directive
        view.store_at(place.consumer, self.pick(self.schedule[place.consumer].loops))

    def store_root(self, view: StageView) -> None:
        self.compute_at(view)
        view.store_root()

    def compute_root(self, view: StageView) -> None:
        view.compute_root()

    def compute_inline(self, view: StageView) -> None:
        view.compute_inline()

    def cache_write(self, view: StageView) -> None:
        view.cache_write()

    def cache_read(self, view: StageView) -> None:
        view.cache_read(self.source(view))

    def pack(self, view: StageView) -> None:
        source = self.source(view)
        found = [t for t in view.operation.inputs if self.schedule.plan.program.names.get(t.op, t.name) == source]
        factors = [self.pick((0, 0, 2, 4)) for _ in range(found[0].ndim if found else 1)]
        parts = [f"{d}{p}" for d, f in enumerate(factors) for p in (("o", "i") if f else ("",))]
        view.pack(source, self.shuffled(parts), factors)

    def rfactor(self, view: StageView) -> None:
        if not is_float_product(view):
            view.rfactor(self.loop(view, ("regrouped", "ordered")))

    def auto(self, view: StageView) -> None:
        self.schedule.auto("default")

    def reorder_storage(self, view: StageView) -> None:
        dims = view.init.axes if "init" in definitions_of(view.operation) else view.axes
        view.reorder_storage(*self.shuffled(list(map(str, dims))))

    def store_in(self, view: StageView) -> None:
        view.store_in(self.pick(("auto", "heap", "stack")))

    def partition(self, view: StageView) -> None:
        loop = self.loop(view)
        self.pick((view.never_partition, view.always_partition))(loop)

    def cut_at(self, view: StageView) -> None:
        """Pieces of any sizes, some of them empty; of an axis of unknown extent halves."""
        loop = self.loop(view)
        known = next((v.known for v in view.nest.levels if v.name == loop), None)
        extent = next((v.extent for v in view.nest.levels if v.name == loop), None)
        at = sorted(self.random.randint(0, known) for _ in range(self.pick((1, 1, 2)))) if known else []
        view.cut_at(loop, *(at or ([extent // 2] if extent is not None else [1])))

    def unswitch(self, view: StageView) -> None:
        view.unswitch(self.loop(view))

    def clone_in(self, view: StageView) -> None:
        view.clone_in(self.consumer(view))

    def compute_with(self, view: StageView) -> None:
        """Two stages with the same outer loops; mostly at one place."""
        program = self.schedule.plan.program
        apart = [x for x in self.schedule if not (program.needs(x.name, view.name) or program.needs(view.name, x.name))]
        other = self.pick([x for x in apart if x.name != view.name and x.nest.levels] or [view])
        verb, factor = self.pick(("split", "parallel", "")), self.pick(FACTORS)
        for part in (view, other):
            if part.name not in program.final and self.random.random() < 0.7:
                part.compute_root()
            if verb and part.loops:
                getattr(part, verb)(part.loops[0], *([factor] if verb == "split" else []))
        view.compute_with(other, self.pick(other.loops[:2] or ["nowhere"]))

    def dimension(self, view: StageView) -> str:
        return str(self.pick(dimensions(view.name, view.operation) or ["nowhere"]))

    def bound(self, view: StageView) -> None:
        """A promise that holds: all of an axis, or as much as all readers are known to need."""
        axis = self.dimension(view)
        names = dimensions(view.name, view.operation)
        extent = view.operation.output().extents[names.index(axis)] if axis in names else None
        if not isinstance(extent, Const):
            raise te.ScheduleError("of an extent that is a symbol nothing can be promised")
        reads = [r for n in self.schedule.plan.program.readers[view.name] for r in self.schedule[n].operation.reads]
        rows = [r.indices[names.index(axis)] for r in reads if r.tensor.op is view.operation]
        exact = all(None not in bounds_of(row).numbers for row in rows)
        less = self.pick((0, 1)) if exact and view.name not in self.schedule.plan.program.final else 0
        view.bound(axis, self.pick((0, less)), max(1, int(extent.value) - less))

    def align_storage(self, view: StageView) -> None:
        view.align_storage(self.dimension(view), self.pick(FACTORS))

    def fold_storage(self, view: StageView) -> None:
        self.pick((self.store_at, self.store_root))(view)
        view.fold_storage(self.dimension(view), self.pick(FACTORS))

    def async_(self, view: StageView) -> None:
        self.pick((self.hoist_storage, self.hoist_storage, self.store_at))(view)
        view.async_()

    def hoist_storage(self, view: StageView) -> None:
        self.compute_at(view)
        place: Any = self.schedule.plan.places[view.name].directive
        consumer = self.schedule[place.consumer]
        self.pick((view.hoist_storage, lambda: view.hoist_storage(consumer, self.loop(consumer))))()


class GpuDrawing(Drawing):
    """A schedule whose stages are spread over the blocks and threads of a GPU."""

    def __init__(self, seed: int, outputs: Sequence[te.Tensor]) -> None:
        super().__init__(seed, outputs)
        self.verbs = GPU_VERBS

    def gpu_tile(self, view: StageView) -> None:
        free = ("free",)
        view.gpu_tile(self.loop(view, free), self.loop(view, free), self.pick((1, 2, 4)), self.pick((2, 4, 8)))

    def gpu_blocks(self, view: StageView) -> None:
        view.gpu_blocks(*(self.loop(view, ("free",)) for _ in range(self.random.randint(1, 2))))

    def gpu_threads(self, view: StageView) -> None:
        view.gpu_threads(view.split(self.loop(view, ("free",)), self.pick((1, 2, 4, 8)))[1])

    def gpu_line(self, view: StageView) -> None:
        """Blocks and threads along one loop."""
        outer, inner = view.split(self.loop(view, ("free",)), self.pick((2, 4, 8)))
        view.gpu_blocks(outer).gpu_threads(inner)

    def gpu_single_thread(self, view: StageView) -> None:
        view.gpu_single_thread()

    def store_in(self, view: StageView) -> None:
        view.store_in(self.pick(("auto", "heap", "stack", "register", "shared")))


LOOP_VERBS = (
    "split",
    "tile",
    "reorder",
    "fuse",
    "unroll",
    "vectorize",
    "parallel",
    "prefetch",
    "partition",
    "cut_at",
    "unswitch",
    "compute_with",
)
PLACE_VERBS = ("compute_at", "compute_at", "compute_at", "store_at", "store_root", "compute_root", "compute_inline")
REWRITES = ("cache_write", "cache_read", "pack", "rfactor", "clone_in")
MEMORY_VERBS = (
    "reorder_storage",
    "store_in",
    "bound",
    "align_storage",
    "fold_storage",
    "fold_storage",
    "hoist_storage",
)
INNER_VERBS = (*PLACE_VERBS, *MEMORY_VERBS)
AHEAD_VERBS = ("async_", "async_", "async_")  # for `test_ahead`: such kernels are called in processes of their own
VERBS = (*LOOP_VERBS, *INNER_VERBS, *REWRITES, "auto")
SPREAD = ("gpu_tile", "gpu_line", "gpu_blocks", "gpu_threads", "gpu_single_thread")
HOST_VERBS = ("parallel", "prefetch", "vectorize", "partition", "compute_with", "fold_storage", "hoist_storage")
GPU_VERBS = (
    *(v for v in VERBS if v not in HOST_VERBS), "vectorize", *SPREAD, "gpu_tile", "gpu_line"
)  # fmt: skip


def is_float_product(view: StageView) -> bool:
    """Whether other groups could overflow where the given order does not, or round where that is said to be exact."""
    op = view.operation
    if not isinstance(op, Compute) or op.reduction is None:
        return False
    return op.reduction.reducer.kind in ("prod", "custom") and any(v.dtype.is_float for v in op.reduction.values)
