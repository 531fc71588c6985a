"""What lowering an operation gives (`Stage`), and what every rule of lowering may ask for (`Context`)."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field
from functools import reduce
from types import MappingProxyType

import halide as hl

from schedules.pieces import Piece
from tedsl.analysis.facts import Facts
from tedsl.analysis.idle_places import axes_used
from tedsl.analysis.size_ranges import ranges_of_sizes
from tedsl.backend.arguments.layouts import LARGEST, strides_of
from tedsl.backend.assembly.numbering import numbered_func
from tedsl.backend.lowering.constants import Constants
from tedsl.backend.lowering.expressions import Scalars
from tedsl.backend.lowering.indices import row_of, unread
from tedsl.backend.lowering.names import identifier
from tedsl.backend.scalars.intrinsics import EMIT
from tedsl.backend.scalars.types import Expr as Halide, bits_of, from_bits, unbounded
from tedsl.lang.dataclass import dataclass
from tedsl.lang.expr import Axis, Expr, Fn, Read, Var
from tedsl.lang.intervals import Known, Range
from tedsl.lang.tensor import Operation, Tensor

__all__ = ["ANY_ARRAYS", "UNPLANNED", "Arrays", "Context", "PlannedLoops", "Stage"]

Place = tuple[Halide, ...]
Reader = Callable[[int, Place], Halide]


@dataclass(frozen=True, eq=False)
class PlannedLoops:
    """What lowering is told of the loops of a stage: lanes of the vectors along an axis; whether they run in order.

    `tiles`: how many places along an axis of a step are computed together inside the loops of its sums, the vectors
    first. `order`: the axes of a step with tiles. `regrouped`: terms of the sums within a step may come in any order.
    """

    lanes: Mapping[Axis, int] = field(default_factory=dict)
    in_order: bool = False
    tiles: Mapping[Axis, int] = field(default_factory=dict)
    order: tuple[Axis, ...] = ()
    regrouped: bool = False


UNPLANNED = PlannedLoops()


@dataclass(eq=False)
class Stage:
    """One operation as a function: its loops by axis, and how other stages read it."""

    op: Operation
    kind: str  # "pointwise", "reduction", "scatter" or "scan"
    func: hl.Func
    dims: tuple[hl.Var, ...]  # the axes of the result, outermost first
    components: tuple[int, ...]  # the outputs of `op` that the function holds
    read: Reader
    direct: bool = True  # the function's components are those outputs themselves
    axes: dict[Axis, hl.Var | hl.RVar] = field(default_factory=dict)
    reduce_axes: dict[Axis, hl.RVar] = field(default_factory=dict)
    parallel: bool = True  # different elements of `dims` can be computed at once in the update, too
    together: bool = False  # no element is stored before all that is read for its components
    written_out: tuple[hl.RVar, ...] = ()  # loops of its update that are always unrolled
    within: Mapping[Axis, hl.RVar] = field(default_factory=dict)  # the inner ones of loops that lowering split
    is_again: bool = False  # some elements are computed twice
    pieces: tuple[dict[Axis, hl.Var | hl.RVar], ...] = ()  # the loops of each of its updates, which are all of its body
    boxes: tuple[tuple[Expr, ...], ...] = ()  # what is computed in each of them, by the axes of `op`

    @property
    def is_cut(self) -> bool:
        """Whether its updates are boxes, the loops of which do not hang on what is asked for."""
        return any(isinstance(loop, hl.RVar) for piece in self.pieces for loop in piece.values())

    @property
    def is_update(self) -> bool:
        """Whether the loops of its body are those of an update."""
        return self.kind != "pointwise" or self.together or bool(self.pieces)

    @property
    def begins_undefined(self) -> bool:
        """Whether nothing is stored before the updates."""
        return self.is_update and self.kind in ("pointwise", "scan")


@dataclass(frozen=True)
class Arrays:
    """What holds of the inputs of every call."""

    are_flat: bool = False  # compact and of known shapes, and given as rows of all that lies in them
    are_small: bool = False  # no axis spans more bytes than int32 holds


ANY_ARRAYS = Arrays()


class Context:
    """The program being lowered: elements of its tensors, its extents."""

    def __init__(
        self, images: Mapping[Tensor, hl.ImageParam], sizes: Mapping[Var, hl.Param],
        promised: Iterable[Tensor] = (), *, arrays: Arrays = ANY_ARRAYS, in_place: Iterable[Tensor] = (),
        fuses: bool = False, loops: Mapping[str, PlannedLoops] = MappingProxyType({}),
        held: Mapping[Read, Collection[int]] = MappingProxyType({}),
        windows: Mapping[Operation, Collection[int]] = MappingProxyType({}),
        inlined: Collection[Operation] | None = None,
    ) -> None:  # fmt: skip
        self.images = images
        self.arrays = arrays
        self.in_place = frozenset(in_place)  # results that may lie in the memory of inputs
        self.sizes = sizes
        self.promised = frozenset(promised)  # tensors of which Halide is told that no index leaves them
        self.stages: dict[Operation, Stage] = {}
        self.needed: dict[Operation, tuple[int, ...]] = {}
        self.pieces: Mapping[Operation, Sequence[Piece]] = {}
        self.token: hl.Func | None = None  # what must be 0 before an output may be written
        self.before_checks: set[Operation] = set()
        self.added: dict[Tensor, hl.ImageParam] = {}  # outputs that start from what their memory holds
        self.constants = Constants(images)
        self.ranges = _ranges(images) if arrays.are_small else {}  # of extents
        self.zero: hl.Param | None = None  # an argument that is always 0, which the compiler does not know
        self.hides = False  # whether numbers are hidden from Halide by it, places among them
        self.fuses = fuses  # whether products in sums are marked
        self.loops = loops  # by the names of stages
        self.held = held
        self.windows = windows
        self.inlined = inlined  # stages that are written out where they are read; None: any may be
        self.idle: Mapping[Tensor, frozenset[int]] = {}
        self.written: dict[Tensor, int] = {}  # how many operations stages of one element are, written out
        self.others: set[Tensor] = set()  # integers of these made of numbers whose ranges it does not infer

    def read(self, tensor: Tensor, indices: Place) -> Halide:
        """An element at indices in the order of the axes, or at one place in the row of all elements."""
        place = indices[::-1]
        if len(place) < tensor.ndim:
            return self.images[tensor][place]
        if tensor in self.promised:
            ends = [hl.max(self.extent(n) - 1, 0) + self.unknown_zero() for n in tensor.extents[::-1]]
            place = tuple(hl.unsafe_promise_clamped(i, 0, end) for i, end in zip(place, ends, strict=True))
        if tensor in self.images:
            return self.images[tensor][self._row(place, tensor) if self.arrays.are_flat else place]
        return self.stages[tensor.op].read(tensor.index, place)

    def loops_met(self, values: Sequence[Expr]) -> set[Axis]:
        """The loops that Halide meets in values."""
        return axes_used(values, self._places_told)

    def _places_told(self, read: Read) -> tuple[Expr, ...]:
        """The places of a read that Halide is told of."""
        row = self._row_read(read)
        if row is not None:
            return row[:1]
        untold = unread(read, self.idle)
        return tuple(place for dim, place in enumerate(read.indices) if dim not in untold)

    def _row_read(self, read: Read) -> tuple[Expr, Expr] | None:
        """The place in the row of all elements, and their number, where a read is by that."""
        is_flat = self.arrays.are_flat and read.tensor in self.images
        return row_of(read) if is_flat and not self.held.get(read) else None

    def _row(self, place: Place, tensor: Tensor) -> Place:
        """The place in a row of all elements; extents are numbers."""
        terms = [i * step for i, step in zip(place[::-1], strides_of(tensor), strict=True)]
        return (sum(terms[1:], terms[0]),) if terms else ()

    def scalars(
        self, symbols: Mapping[Axis, Halide], read: Callable[[Tensor, Place], Halide] | None = None,
        facts: Facts | None = None,
    ) -> Scalars:  # fmt: skip
        """A builder of expressions in the scope of the given loops, of which `facts` are known."""
        known: dict[Expr, Halide] = {a: x if isinstance(x, hl.Expr) else hl.Expr(x) for a, x in symbols.items()}
        known.update((v, hl.Expr(p)) for v, p in self.sizes.items())
        return Scalars(
            read or self.read, known, self.unknown_zero, self.images, self.ranges, self.constants,
            row_of=self._row_read, held=self.held, product=self.product, idle=self.idle, facts=facts,
            windows=self.windows, written=self.written, others=self.others,
        )  # fmt: skip

    def after_checks(self, value: Halide) -> Halide:
        """A value that waits for the checks of indices, so that nothing is written before them."""
        if self.token is None:
            return value
        token, kind = hl.Expr(self.token[()]), value.type()
        # Something that no simplification can find equal to the value: the checks would go with it.
        other = hl.reinterpret(kind, hl.cast(hl.UInt(kind.bits()), token)) if kind.is_float() else hl.cast(kind, token)
        return hl.select(token == 0, value, other)

    def onto(self, tensor: Tensor, place: Place, value: Halide) -> Halide:
        """A value added to what the memory of an output holds, where the output is to be added."""
        previous = self.added.get(tensor)
        if previous is None:
            return value
        fn = Fn.OR if tensor.dtype.is_bool else Fn.ADD
        return EMIT[fn.value](previous[place], value, dtype=tensor.dtype)

    def unknown_zero(self) -> Halide:
        """0, unknown to the compiler."""
        self.hides = True
        return self.opaque_zero()

    def opaque_zero(self) -> Halide:
        """The same where it is in no place of a tensor."""
        if self.zero is None:
            self.zero = hl.Param(hl.Int(32), "opaque_zero")
        return hl.Expr(self.zero)

    def product(self, value: Halide, dtype: str, *, anywhere: bool = False) -> Halide:
        """A product that is added to a running sum, marked so that both round once: see `assembly.fma`.

        By the mark a kernel has fused multiply-add where its program says so. To find it by the shape of the code would
        make it hang on the schedule: unrolled, or held in memory, a sum looks otherwise. `anywhere`: it may be added at
        any place among the terms, see `assembly.partial_sums`.
        """
        if not self.fuses:
            return value
        bits = bits_of(value, dtype)
        zero = hl.cast(bits.type(), self.opaque_zero())
        return from_bits(bits ^ (zero << 1 if anywhere else zero), dtype)

    def opaque(self, value: Halide, dtype: str) -> Halide:
        """A value to combine with what an update holds, of which Halide knows nothing; floats cost no instruction.

        Halide 21 looks for steps of a loop that change nothing. From min(f(), k) over a loop in k it concludes that
        only steps with k < f() matter, with the f() of before the loop, and stores k without comparing it again: it
        solves for a loop in int32 alone. And it takes f() + (x - x) for f(), though x may be infinite. What hides a
        float must be pure, or the last vector of a row would be computed number by number and not under a mask.
        """
        if dtype == "int32":
            return value ^ self.unknown_zero()
        if dtype not in ("float32", "float64"):  # narrower ones are held in these, or only compared
            return value
        return unbounded(value, dtype)

    def updated(self, values: Sequence[Halide], old: Sequence[Halide]) -> Halide:
        """The right side of an update of several components, all computed before any is stored.

        Halide looks for reads of the components to decide which must be stored together, but not inside the arguments
        of calls, and strict arithmetic is calls. So each value is chosen by a number that is promised to lie between
        what all components hold: Halide drops the promise once it has split them, and none of them is read.
        """
        if len(values) == 1:
            return values[0]
        named = reduce(operator.add, map(_some_integer, old))
        never = hl.unsafe_promise_clamped(self.unknown_zero(), named, named) != 0
        return hl.Tuple([hl.select(never, hl.cast(v.type(), 0), v) for v in values])

    def extent(self, extent: Expr) -> Halide:
        """An expression of the extents."""
        return self.scalars({}).extent(extent)


def _ranges(tensors: Iterable[Tensor]) -> Known:
    """Sizes that axes of arrays are made of: so many of their elements are no more than `LARGEST` bytes."""
    ranges: dict[Expr, Range] = {}
    for tensor in tensors:
        for size, (_, most) in ranges_of_sizes(tensor.extents, LARGEST // tensor.dtype.itemsize).items():
            ranges[size] = 0, min(ranges.get(size, (0, most))[1], most)
    return ranges


def _some_integer(value: Halide) -> Halide:
    """A number that names a value."""
    kind = value.type()
    return hl.cast(hl.Int(32), hl.reinterpret(hl.UInt(kind.bits()), value) if kind.is_float() else value)


def elements(func: hl.Func, components: Sequence[int]) -> Reader:
    """Reads the components of a function that holds these outputs of an operation."""
    position = {component: k for k, component in enumerate(components)}
    if len(components) == 1:
        return lambda component, place: hl.Expr(func[place])
    return lambda component, place: hl.Expr(func[place][position[component]])


def tuple_of(values: Iterable[Halide]) -> Halide:
    """One value, or Halide's tuple of several."""
    listed = list(values)
    return listed[0] if len(listed) == 1 else hl.Tuple(listed)


def function(name: str, components: int) -> hl.Func:
    """The function of a stage. OpenCL calls component 1 of `f` `f_1`, so `f` must end as no stage's name does."""
    return numbered_func(identifier(name) if components == 1 else f"{identifier(name)}__parts")


def variables(names: Iterable[str]) -> tuple[hl.Var, ...]:
    """A loop variable for each name; equal ones are told apart by a number."""
    used: dict[str, None] = {}
    for name in names:
        base = identifier(name)
        used[next(n for n in (base, *(f"{base}{k}" for k in range(1, len(used) + 2))) if n not in used)] = None
    return tuple(map(hl.Var, used))
