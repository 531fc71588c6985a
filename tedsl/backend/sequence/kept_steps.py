"""Steps that others read at places of their own are kept as time passes them.

    y[i, j] = u[places[i], j]     ->    rank[places[i]] = i;  kept[rank[t], j] = u[t, j]  where rank[t] >= 0
                                        y[i, j] = kept[rank[places[i]], j]

and where a gradient adds at such places, the other way round:

    du[places[i], j] += g[i, j]   ->    kept[rank[places[i]], j] += g[i, j]
                                        du[t, j] = select(rank[t] >= 0, kept[rank[t], j], 0)

What goes along time is then read at fixed numbers of steps, so that it can be cut there. Elements are the same to the
bit: `kept` is 1 times what it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from schedules.program import reading, rewritten_expressions
from tedsl.backend.sequence.numbered_places import ListedPlaces, NumberedPlaces, product_of
from tedsl.backend.sequence.timeline import NEAR, SHORT, axes_along, longest, offset_of
from tedsl.lang.dtypes import INT32
from tedsl.lang.elements import fresh_axes
from tedsl.lang.expr import Axis, Const, Expr, Read
from tedsl.lang.extents import number, simplify_extent
from tedsl.lang.folding import select_node
from tedsl.lang.intervals import range_of
from tedsl.lang.tensor import Compute, Constant, Operation, Placeholder, Scan, Scatter, Tensor
from tedsl.lang.traverse import free_axes, operations_between, reads_of, substitute_all

__all__ = ["with_kept_steps"]


def with_kept_steps(inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The outputs of the program, whose stages read others along time at fixed numbers of steps as far as they can."""
    new = _Rewriter(operations_between(inputs, outputs)).new
    return tuple(new.get(t, t) for t in outputs)


class _Rewriter:
    """The program being rewritten, each stage after what it reads."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        self.steps, _ = longest([op for op in operations if not isinstance(op, Placeholder)])
        self.readers: dict[Tensor, list[Read]] = {}
        for read in (read for op in operations for read in op.reads):
            self.readers.setdefault(read.tensor, []).append(read)
        self.numbers = _numbers_read(self.readers)
        self.new: dict[Tensor, Tensor] = {}
        self.dims: dict[Tensor, int] = {}  # by which dimension tensors go along time
        self.down: set[Tensor] = set()  # those of them that go back
        self.late: set[Operation] = set()  # what depends on any of them
        self.numbered = NumberedPlaces(self.steps)
        self.kept: dict[tuple[object, ...], Tensor] = {}
        for op in operations:
            made = self._made(op) if isinstance(op, (Compute, Scan, Scatter)) else reading(op, self.new)
            if made is not op:
                self.new.update(zip(op.outputs, made.outputs, strict=True))
            if self.late.intersection(t.op for t in op.inputs) or self.dims.keys() & set(op.outputs):
                self.late.add(op)

    def _made(self, op: Compute | Scan | Scatter) -> Operation:
        """A stage that reads and adds to what is kept; whether it goes along time itself is taken down."""
        along: dict[Axis, bool] = {}  # the axes along which it reads, and whether of what goes back

        def rule(node: Expr) -> Expr:
            if not isinstance(node, Read):
                return node
            if (dim := self.dims.get(node.tensor)) is not None:
                axis = self._step_of(node.indices[dim])
                if axis is None and (kept := self._kept(node, dim)) is not None:
                    return kept
                if axis is not None:
                    along[axis] = along.get(axis, False) or node.tensor in self.down
            return Read(self.new.get(node.tensor, node.tensor), node.indices)

        made = rewritten_expressions(op, rule)
        if isinstance(op, Scan) and number(op.steps[0].extent) == self.steps and op.kept is None:
            self._take_down(op, op.dims[0], is_down=op.reverse)
        for dim, axis in axes_along(op).items():
            if not isinstance(op, Scan) and axis in along:
                self._take_down(op, dim, is_down=along[axis])
        if not isinstance(made, Scatter):
            return made
        if made.init is not None and made.init in self.new:
            made = replace(made, init=self.new[made.init], _outputs={})
        return self._spread(made, self.readers.get(op.output(), ()))

    def _take_down(self, op: Operation, dim: int, *, is_down: bool) -> None:
        self.dims |= dict.fromkeys(op.outputs, dim)
        self.down |= set(op.outputs) if is_down else set()

    def _step_of(self, index: Expr) -> Axis | None:
        """The axis along which an index goes through time, step by step."""
        axis = next((a for a in free_axes(index) if offset_of(index, a) is not None), None)
        return axis if axis is not None and SHORT * (number(axis.extent) or 0) > self.steps else None

    def _kept(self, read: Read, dim: int) -> Read | None:
        """A read of what is kept instead; None where it cannot be kept, or need not be."""
        tensor, index = read.tensor, read.indices[dim]
        if tensor.dtype.is_bool or self._is_at_the_end(tensor, dim, index):
            return None
        places, part = self._places(index, self.numbers.get((tensor, dim), [])), self._part(read, dim)
        row = product_of(_without(tensor.extents, dim))
        if places is None or part is None or row is None:
            return None
        form, axes, at = part
        if 2 * places.count * (product_of(a.extent for a in axes) or 0) > self.steps * row:
            return None
        key = (tensor, places, *form)
        if key not in self.kept:
            self.kept[key] = self._keeping(tensor, dim, form, axes, places)
        return Read(self.kept[key], (places.number_of(index), *at))

    def _part(self, read: Read, dim: int) -> tuple[tuple[Expr, ...], list[Axis], tuple[Expr, ...]] | None:
        """What to keep of a step: elements over axes of their own, and where among these is what is read."""
        others, extents = _without(read.indices, dim), _without(read.tensor.extents, dim)
        axes = free_axes(others)
        part, row = product_of(a.extent for a in axes), product_of(extents)
        if row is None:
            return None
        is_free = set(axes).isdisjoint(free_axes(read.indices[dim])) and all(map(_is_in_bounds, others, extents))
        if part is None or part >= row or not is_free:
            own = self.numbered.axes_like(fresh_axes(extents))
            return tuple(own), own, others
        own = self.numbered.axes_like(axes)
        return substitute_all(others, dict(zip(axes, own, strict=True))), own, tuple(axes)

    def _places(self, index: Expr, numbers: Sequence[int]) -> ListedPlaces | None:
        """The steps that an index names; None where that is known after a turn only."""
        if any(read.tensor.op in self.late for read in reads_of([index])):
            return None
        return self.numbered.listed(numbers) if _place(index) is not None else self.numbered.named(index)

    def _keeping(
        self, tensor: Tensor, dim: int, form: tuple[Expr, ...], axes: list[Axis], places: ListedPlaces
    ) -> Tensor:
        """What is kept of a tensor: of each place, the elements that `form` reads over `axes`."""
        step = Axis("t", Const(self.steps, INT32), is_reduce=True)
        loops = tuple(Axis(a.name, a.extent, is_reduce=True) for a in axes)
        read = substitute_all(form, dict(zip(axes, loops, strict=True)))
        value = Read(self.new.get(tensor, tensor), _inserted(read, dim, step))
        return Scatter(
            name=f"{tensor.name}_kept", where=tensor.op.where, shape=places.shape([a.extent for a in loops]),
            axes=(step, *loops), index=(places.number_of(step), *loops), value=value, guard=places.holds(step),
            kind="mul", init=None, unique=True,
        ).output()  # fmt: skip

    def _is_at_the_end(self, tensor: Tensor, dim: int, index: Expr) -> bool:
        """Whether single steps alone are read, where the turn of a tensor ends, which are at hand then."""
        if _place(index) is None:
            return False
        read = self.numbers[tensor, dim]
        near = min(NEAR, self.steps // SHORT)  # what a segment leaves of it
        return max(read) < near if tensor in self.down else min(read) >= self.steps - near

    def _spread(self, op: Scatter, readers: Iterable[Read]) -> Operation:
        """What adds to steps at places of its own: the sums of these places, spread over time."""
        dims = [d for d, n in enumerate(op.shape) if number(n) == self.steps]
        dim = next((d for d in dims if any(self._step_of(r.indices[d]) is not None for r in readers)), None)
        if dim is None or op.kind != "add" or op.init is not None or self._step_of(index := op.index[dim]) is not None:
            return op
        places = self._places(index, [_place(index) or 0])
        if places is None or 2 * places.count > self.steps:
            return op
        others, rest = _without(op.index, dim), _without(op.shape, dim)
        sums = replace(op, shape=places.shape(rest), index=(places.number_of(index), *others), _outputs={})
        axes = fresh_axes(op.shape)
        read = Read(sums.output(), (places.number_of(axes[dim]), *axes[:dim], *axes[dim + 1 :]))
        body = select_node(places.holds(axes[dim]), read, Const(0, op.value.dtype))
        return Compute(name=op.name, where=op.where, axes=axes, bodies=(body,))


def _numbers_read(readers: Mapping[Tensor, Iterable[Read]]) -> dict[tuple[Tensor, int], list[int]]:
    """The single places at which each dimension of a tensor is read, in order."""
    found: dict[tuple[Tensor, int], set[int]] = {}
    for tensor, reads in readers.items():
        for dim, index in ((dim, index) for read in reads for dim, index in enumerate(read.indices)):
            if (place := _place(index)) is not None:
                found.setdefault((tensor, dim), set()).add(place)
    return {key: sorted(places) for key, places in found.items()}


def _is_in_bounds(index: Expr, extent: Expr) -> bool:
    """Whether an index is in bounds wherever it stands: by its axes and numbers, or as an element of a constant."""
    size = number(extent) or 0
    low, high = range_of(index)
    if low >= 0 and high < size:
        return True
    if not isinstance(index, Read) or not isinstance(index.tensor.op, Constant):
        return False
    array = index.tensor.op.array
    inside = array.size > 0 and array.min() >= 0 and array.max() < size
    return bool(inside) and all(map(_is_in_bounds, index.indices, index.tensor.extents))


def _place(index: Expr) -> int | None:
    return number(simplify_extent(index)) if index.dtype is INT32 else None


def _without(values: tuple[Expr, ...], dim: int) -> tuple[Expr, ...]:
    return (*values[:dim], *values[dim + 1 :])


def _inserted(values: tuple[Expr, ...], dim: int, value: Expr) -> tuple[Expr, ...]:
    return (*values[:dim], value, *values[dim:])
