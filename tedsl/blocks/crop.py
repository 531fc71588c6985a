"""The program that computes part of some tensors from the parts of others that it needs.

Every stage is computed over a box, the union of what its readers need. Boxes follow from the indices: the least and
greatest value of each over the box of its reader, narrowed by conditions and by the borders. Reads far apart (`wrap` at
a border) get boxes of their own. Conditions still speak of the whole, so borders are where they are and nowhere else:
each element is computed as it is in the whole program.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from tedsl.blocks.local import Box, Local, known_extent
from tedsl.lang.compute import placeholder
from tedsl.lang.dataclass import dataclass
from tedsl.lang.dtypes import INT32
from tedsl.lang.expr import Axis, Const, Expr, Read
from tedsl.lang.intervals import hull
from tedsl.lang.polynomials import Affine
from tedsl.lang.tensor import Compute, Constant, Extern, Operation, Scan, ScanState, Scatter, Tensor
from tedsl.lang.traverse import operations_between, reads_of, topological

__all__ = ["CropTarget", "Cropped", "TensorPart", "crop", "whole"]

MERGED = 1.25  # two boxes become one that has at most so many times their elements


@dataclass(frozen=True)
class CropTarget:
    """What to compute: the outputs of an operation over `box`; a reduction or a scatter over `terms` alone."""

    op: Operation
    box: Box
    terms: Box | None = None


@dataclass(frozen=True, eq=False)
class TensorPart:
    """A part of a tensor, and the tensor that holds it."""

    of: Tensor
    box: Box
    tensor: Tensor

    def holds(self, box: Box) -> bool:
        return all(a <= c and d <= b for (a, b), (c, d) in zip(self.box, box, strict=True))


@dataclass(frozen=True, eq=False)
class Cropped:
    """The program of a part: `windows` of what is given, numbers (`origins`) and, per target, tensors to be sliced."""

    windows: tuple[TensorPart, ...]
    origins: tuple[tuple[Tensor, int], ...]
    outputs: tuple[Tensor, ...]
    slices: tuple[tuple[slice, ...], ...]

    @property
    def inputs(self) -> list[Tensor]:
        return [*(w.tensor for w in self.windows), *(t for t, _ in self.origins)]


def crop(given: Sequence[Tensor], targets: Sequence[CropTarget]) -> Cropped:
    """The program that computes the targets from parts of the tensors given."""
    return _Crop(given, targets).result()


def whole(tensor: Tensor) -> Box:
    """The box of all of a tensor."""
    return tuple((0, known_extent(e)) for e in tensor.extents)


@dataclass(frozen=True, eq=False)
class _Copy:
    """A stage over a box: its axes there, its expressions (reads still of the whole) and what those need."""

    op: Operation
    box: Box
    axes: tuple[Axis, ...]
    local: Local | None
    needs: dict[Read, Box]


class _Crop:
    def __init__(self, given: Sequence[Tensor], targets: Sequence[CropTarget]) -> None:
        self.given, self.targets = list(given), targets
        self.demands: dict[Tensor, list[Box]] = {}
        self.copies: list[_Copy] = []
        self.windows: dict[Tensor, list[TensorPart]] = {}
        self.numbers: dict[int, Tensor] = {}
        self.partial = {t.op: t for t in targets if t.terms is not None}

    def result(self) -> Cropped:
        outputs = [t for target in self.targets for t in target.op.outputs]
        order = operations_between([t for t in self.given if t not in set(outputs)], outputs)
        for target in self.targets:
            for tensor in target.op.outputs:
                self._demand(tensor, target.box)
        for op in reversed(order):
            self._cut(op)
        self._place_given()
        for copy in reversed(self.copies):
            self._build(copy)
        made = [self._found(t, target.box) for target in self.targets for t in target.op.outputs]
        slices = tuple(
            tuple(slice(a - c, b - c) for (a, b), (c, _) in zip(target.box, w.box, strict=True))
            for w, target in zip(made, [target for target in self.targets for _ in target.op.outputs], strict=True)
        )
        used = _used(w.tensor for w in made)
        windows = tuple(w for t in self.given for w in self.windows.get(t, ()) if w.tensor.op in used)
        origins = tuple((t, n) for n, t in self.numbers.items() if t.op in used)
        return Cropped(windows, origins, tuple(w.tensor for w in made), slices)

    def _demand(self, tensor: Tensor, box: Box) -> None:
        boxes = self.demands.setdefault(tensor, [])
        if box not in boxes:
            boxes.append(box)

    def _origin(self, begin: int) -> Expr:
        if begin not in self.numbers:
            self.numbers[begin] = placeholder((), INT32, name=f"origin_{len(self.numbers)}")
        return Read(self.numbers[begin], ())

    def _cut(self, op: Operation) -> None:
        """The copies of a stage that its readers need, and what those need in turn; a constant stays as it is."""
        if isinstance(op, Constant):
            self.windows[op.output()] = [TensorPart(op.output(), whole(op.output()), op.output())]
            return
        boxes = [box for t in op.outputs for box in self.demands.get(t, ())]
        for box in _merged([_required(op, box) for box in boxes]):
            copy = _CUTS[type(op)](self, op, box)
            self.copies.append(copy)
            states = set(op.states) if isinstance(op, Scan) else set()
            for read, needed in copy.needs.items():
                if read.tensor not in states:
                    self._demand(read.tensor, needed)

    def _part(self, axes: Sequence[Axis], box: Box) -> dict[Axis, tuple[Axis, int]]:
        part = {}
        for axis, (low, high) in zip(axes, box, strict=True):
            begin = known_extent(axis.begin)
            if (low, high) == (begin, begin + known_extent(axis.extent)):
                part[axis] = axis, 0
            else:
                part[axis] = Axis(axis.name, Const(high - low, INT32), is_reduce=axis.is_reduce), low
        return part

    def _compute(self, op: Compute, box: Box) -> _Copy:
        part = self._part(op.axes, box)
        target = self.partial.get(op)
        if target is not None and target.terms is not None and op.reduction is not None:
            part |= self._part(op.reduction.axes, target.terms)
        local = Local(op.bodies, part, self._origin)
        return _Copy(op, box, tuple(part[a][0] for a in op.axes), local, local.boxes())

    def _scan(self, op: Scan, box: Box) -> _Copy:
        part = self._part(op.axes, box)
        local = Local(op.bodies, part, self._origin)
        return _Copy(op, box, tuple(part[a][0] for a in op.axes), local, local.boxes())

    def _scatter(self, op: Scatter, box: Box) -> _Copy:
        target = self.partial.get(op)
        terms = tuple((known_extent(a.begin), known_extent(a.begin) + known_extent(a.extent)) for a in op.axes)
        terms = terms if target is None or target.terms is None else target.terms
        part = self._part(op.axes, terms)
        local = Local(op.expressions, part, self._origin)
        if op.init is not None and target is None:
            self._demand(op.init, whole(op.init))
        needs = local.boxes(local.roots[-1]) if not reads_of((local.roots[-1],)) else local.boxes()
        return _Copy(op, box, tuple(part[a][0] for a in op.axes), local, needs)

    def _extern(self, op: Extern, box: Box) -> _Copy:
        for arg in op.args:
            self._demand(arg, whole(arg))
        return _Copy(op, box, (), None, {})

    def _place_given(self) -> None:
        for tensor in self.given:
            boxes = _merged(self.demands.get(tensor, []))
            for number, box in enumerate(boxes):
                name = tensor.name if number == 0 else f"{tensor.name}_{number}"
                shape = tuple(b - a for a, b in box)
                held = placeholder(shape, tensor.dtype, name=name)
                self.windows.setdefault(tensor, []).append(TensorPart(tensor, box, held))

    def _found(self, tensor: Tensor, box: Box) -> TensorPart:
        return next(w for w in self.windows[tensor] if w.holds(box))

    def _build(self, copy: _Copy) -> None:
        made = _BUILDS[type(copy.op)](self, copy)
        for old, new in zip(copy.op.outputs, made.outputs, strict=True):
            self.windows.setdefault(old, []).append(TensorPart(old, copy.box, new))

    def _built_compute(self, copy: _Copy) -> Operation:
        return replace(copy.op, axes=copy.axes, bodies=self._bodies(copy, {}), facts=None, _outputs={})  # type: ignore[call-arg]

    def _built_scan(self, copy: _Copy) -> Operation:
        op = copy.op
        assert isinstance(op, Scan)
        shape = tuple(Const(b - a, INT32) for a, b in copy.box)
        states = tuple(ScanState(name=s.name, where=s.op.where, shape=shape, dtype=s.dtype).output() for s in op.states)
        own = {s: TensorPart(s, copy.box, new) for s, new in zip(op.states, states, strict=True)}
        parts = op.parts if copy.box == whole(op.output()) else ()
        return replace(op, axes=copy.axes, states=states, bodies=self._bodies(copy, own), parts=parts, _outputs={})

    def _built_scatter(self, copy: _Copy) -> Operation:
        op = copy.op
        assert isinstance(op, Scatter)
        *index, value, guard = self._bodies(copy, {})
        init = None
        if op.init is not None and op not in self.partial:
            init = self._found(op.init, whole(op.init)).tensor
        return replace(op, axes=copy.axes, index=tuple(index), value=value, guard=guard, init=init, _outputs={})

    def _built_extern(self, copy: _Copy) -> Operation:
        op = copy.op
        assert isinstance(op, Extern)
        return replace(op, args=tuple(self._found(t, whole(t)).tensor for t in op.args), _outputs={})

    def _bodies(self, copy: _Copy, own: dict[Tensor, TensorPart]) -> tuple[Expr, ...]:
        """The expressions of a copy, their reads counted from where the windows begin."""
        assert copy.local is not None
        forms = copy.local.forms
        new: dict[Expr, Expr] = {}
        for node in topological(copy.local.roots):
            children = tuple(new[c] for c in node.children)
            if isinstance(node, Read) and node in forms:
                window = own.get(node.tensor) or self._found(node.tensor, copy.needs[node])
                moved = zip(forms[node], children, window.box, strict=True)
                new[node] = Read(window.tensor, tuple(self._shifted(*m) for m in moved))
            else:
                same = all(a is b for a, b in zip(children, node.children, strict=True))
                new[node] = node if same else node.with_children(children)
        return tuple(new[r] for r in copy.local.roots)

    def _shifted(self, form: Affine | None, index: Expr, box: tuple[int, int]) -> Expr:
        """An index counted from where a window begins."""
        if box[0] == 0:
            return index
        return index - self._origin(box[0]) if form is None else (form - box[0]).to_expr()


def _required(op: Operation, box: Box) -> Box:
    """The box over which a stage has to be computed to have `box` of it."""
    if isinstance(op, Compute):
        return box
    full = whole(op.output())
    if not isinstance(op, Scan):
        return full
    own = set(op.states)
    reads = [r for r in op.reads if r.tensor in own]
    free = [d not in op.dims and all(r.indices[d] is axis for r in reads) for d, axis in enumerate(op.axes)]
    return tuple(part if alone else everything for part, everything, alone in zip(box, full, free, strict=True))


def _merged(boxes: Iterable[Box]) -> list[Box]:
    """Boxes that hold all of the given, those that overlap or lie close joined."""
    kept: list[Box] = []
    for box in boxes:
        while (other := next((k for k in kept if _close(k, box)), None)) is not None:
            kept.remove(other)
            box = _hull(other, box)
        kept.append(box)
    return kept


def _hull(a: Box, b: Box) -> Box:
    return tuple(map(hull, a, b))


def _close(a: Box, b: Box) -> bool:
    return _elements(_hull(a, b)) <= MERGED * (_elements(a) + _elements(b))


def _elements(box: Box) -> int:
    return math.prod(b - a for a, b in box)


def _used(outputs: Iterable[Tensor]) -> set[Operation]:
    return set(operations_between((), outputs))


_CUTS: dict[type, Callable[..., _Copy]] = {
    Compute: _Crop._compute, Scan: _Crop._scan, Scatter: _Crop._scatter, Extern: _Crop._extern,
}  # fmt: skip
_BUILDS: dict[type, Callable[..., Operation]] = {
    Compute: _Crop._built_compute, Scan: _Crop._built_scan, Scatter: _Crop._built_scatter,
    Extern: _Crop._built_extern,
}  # fmt: skip
