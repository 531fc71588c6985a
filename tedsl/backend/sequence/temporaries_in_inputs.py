"""Donated inputs of programs in steps: what passes between kernels lies in their memory once nobody reads them.

A tensor that comes after the last read of an input may lie anywhere in its bytes. One that the last reader itself
computes may lie on it element on element, where that kernel is proven to read each element before it writes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace

from tedsl.backend.compiling.executable import KernelStep, StepPlan
from tedsl.backend.sequence.arena import Shelf, Span
from tedsl.backend.sequence.ordering import typical_bytes
from tedsl.backend.sequence.runner import Placing
from tedsl.lang.dataclass import dataclass
from tedsl.lang.expr import Const
from tedsl.lang.extents import same_extent
from tedsl.lang.tensor import Extern, Tensor

__all__ = ["Lender", "fit_problem", "lender_of", "lending_problem", "surely_fits"]


@dataclass(frozen=True, eq=False)
class Lender:
    """A program about to run: where its tensors are made and read, and how large they are."""

    tensors: Sequence[Tensor]
    placing: Placing
    cells: Sequence[int]  # the tensors between kernels, by their numbers
    size: Callable[[int], int]
    modes: Mapping[int, tuple[str, ...]] = field(default_factory=dict)  # of each step, where it may compute in place
    fits: Callable[[int, int], bool] = lambda cell, source: True

    def loans(self, sources: Iterable[int]) -> dict[int, tuple[int, int]]:
        """Number of a tensor -> the input in whose memory it lies, and the byte where it begins."""
        shelves = {s: Shelf() for s in sources if self.problem(s) is None}
        found: dict[int, tuple[int, int]] = {}
        for cell in sorted(self.cells, key=lambda c: (-self.size(c), self.placing.born[c])):
            used = {s for s, _ in found.values()}
            for source in sorted(shelves, key=lambda s: (s in used, self.size(s), s)):
                at = self._place(cell, source, shelves[source])
                if at is not None:
                    shelves[source].put(self._span(cell), at)
                    found[cell] = source, at
                    break
        return found

    def _span(self, cell: int) -> Span:
        return Span(self.size(cell), self.placing.born[cell], self.placing.last[cell])

    def _place(self, cell: int, source: int, shelf: Shelf) -> int | None:
        """Where a tensor may lie in the memory of an input."""
        span, free = self._span(cell), self.free(source)
        at = shelf.free(span)
        if not 0 < span.bytes <= self.size(source) - at or span.first < free or not self.fits(cell, source):
            return None
        if span.first == free and free == self.placing.last.get(source):
            return at if at == 0 and self.on_top(cell, source) is None else None
        return at

    def free(self, source: int) -> int:
        """The first step whose results may lie in an input: the last that reads it, and none may fail later."""
        failing = [k for k, step in enumerate(self.placing.steps) if step.can_fail]
        return max(self.placing.last.get(source, 0), failing[-1] if failing else 0)

    def on_top(self, cell: int, source: int) -> str | None:
        """Why a tensor cannot be computed element on element over an input that its step reads."""
        step = self.placing.steps[self.placing.born[cell]]
        problem = fit_problem(self.tensors[cell], self.tensors[source])
        if problem is not None:
            return problem
        if step.core is None or self.placing.born[cell] not in self.modes:
            return "its step may read it later"
        if source not in step.inputs and source in self.placing.plan.read_by(step):
            return "its step reads a part of it"
        if cell not in step.outputs:
            return "it is written part by part"
        form = step.core.forms.usual(self.modes[self.placing.born[cell]])
        for k in (k for k, c in enumerate(step.inputs) if c == source):
            hazard = step.core.hazard(step.outputs.index(cell), step.core.program.inputs[k], form)
            if hazard is not None:
                mine = replace(hazard, stage=self.tensors[cell].op, read=self.tensors[source].name)
                return mine.text(self.tensors[cell], self.tensors[source])
        return None

    def problem(self, source: int) -> str | None:
        """Why nothing may lie in the memory of an input."""
        if any(c == source for _, c in self.placing.copied):
            return "it is a result, too"
        for step in self.placing.steps:
            if isinstance(step.op, Extern) and source in step.inputs:
                return f"the Python function {step.op.name!r} reads it, and may keep it"
        return None


def lender_of(plan: StepPlan) -> Lender:
    """What may lie in the memory of donated inputs, whatever the symbolic extents are."""
    tensors = plan.tensors
    placing = Placing(plan, ("write",) * len(plan.results), frozenset())
    kept = placing.kept()
    cells = [c for c, k in placing.born.items()
             if placing.steps[k].core is not None and c not in placing.direct and c not in kept]  # fmt: skip
    wanted = placing.written | {c for _, c in placing.copied} | set(placing.direct)
    own = {k: tuple("write" if c in wanted else "null" for c in plan.made_by(step))
           for k, step in enumerate(placing.steps)}  # fmt: skip
    return Lender(
        tensors, placing, cells, lambda c: typical_bytes(tensors[c]), own,
        lambda c, s: surely_fits(tensors[c], tensors[s]),
    )  # fmt: skip


def lending_problem(lender: Lender, source: int) -> str:
    """Why no tensor between kernels can take the memory of an input: the first thing that is in the way."""
    problem = lender.problem(source)
    if problem is not None:
        return problem
    names = {c: repr(lender.tensors[c].name) for c in lender.cells}
    if not names:
        return "none is stored outside of the loops of a kernel"
    born, last = lender.placing.born, lender.placing.last.get(source, 0)
    later = [c for c in names if born[c] >= last]
    if not later:
        step = lender.placing.steps[last]
        return f"{_told(names.values())} come before {_made(lender, step)}, which still reads it"
    safe = [c for c in later if born[c] >= lender.free(source)]
    if not safe:
        step = lender.placing.steps[lender.free(source)]
        return (
            f"{_made(lender, step)} may fail after {_told(names[c] for c in later)}, and a failed call changes nothing"
        )
    fitting = [c for c in safe if lender.fits(c, source)]
    if not fitting:
        return f"{_told(names[c] for c in safe)}: larger, or not known to fit"
    if any(born[c] > last for c in fitting):
        return f"{_told(names[c] for c in fitting)}: what else is donated holds them"
    problem = lender.on_top(fitting[0], source)
    if problem is None:
        return f"{names[fitting[0]]}: what else is donated holds it"
    return f"{names[fitting[0]]} is made by the last kernel that reads it, and cannot be written over it: {problem}"


def _told(names: Iterable[str]) -> str:
    listed = list(names)
    return ", ".join(listed[:4]) + (", ..." if len(listed) > 4 else "")


def _made(lender: Lender, step: KernelStep) -> str:
    return repr(lender.tensors[step.outputs[0]].name)


def surely_fits(cell: Tensor, source: Tensor) -> bool:
    """Whether a tensor is no larger than another, whatever the symbolic extents are."""
    rest = list(source.extents)
    mine = []
    for extent in cell.extents:
        match = next((k for k, e in enumerate(rest) if same_extent(extent, e)), None)
        if match is None:
            mine.append(extent)
        else:
            del rest[match]
    if not all(isinstance(e, Const) for e in (*mine, *rest)):
        return False
    return _product(mine) * cell.dtype.itemsize <= _product(rest) * source.dtype.itemsize


def _product(extents: Sequence[object]) -> int:
    total = 1
    for extent in extents:
        assert isinstance(extent, Const)
        total *= int(extent.value)
    return total


def fit_problem(output: Tensor, memory: Tensor) -> str | None:
    """Why the elements of one are not the elements of the other."""
    if output.dtype is not memory.dtype:
        return "the dtypes differ"
    if len(output.extents) != len(memory.extents) or not all(map(same_extent, output.extents, memory.extents)):
        return "the shapes differ"
    return None
