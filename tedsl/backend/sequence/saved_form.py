"""How programs were cut into kernels, as data: what a process needs to call kernels that another one compiled.

Tensors go by their operation's number in the program, kernels by the digest of what they compute and by which loops.
Extents are numbers here; where they are symbolic, what a call needs depends on more than is kept.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any

from schedules.cutting.windows import placeholder_in
from schedules.records import typed, unsealed, with_seal
from tedsl.analysis.sizes import known_shape
from tedsl.backend.compiling.compilation import Compilation
from tedsl.backend.compiling.disk_cache import read, write
from tedsl.backend.compiling.executable import BoxView, CompiledKernel, Proof, StepPlan
from tedsl.lang.dataclass import dataclass
from tedsl.lang.tensor import Operation, Tensor
from tedsl.lang.traverse import stages_of

__all__ = [
    "CutKernel", "CutStep", "SavedProgram", "boxed", "keep_cut", "layouts_of", "numbered", "recall_cut",
    "saved_program",
]  # fmt: skip

VERSION = 2
_KIND = "program"

Layout = tuple[str, tuple[int, ...]]  # dtype and shape


@dataclass(frozen=True)
class CutKernel:
    """A kernel: where its code is found, and what is asked of it before it is called."""

    digest: str
    title: str = field(compare=False)  # that of the program which was compiled first
    arrays: tuple[Layout, ...]  # of its inputs and its outputs
    inside: int  # bytes that it allocates
    checks: bool  # whether it looks at data that may be wrong


@dataclass(frozen=True)
class CutStep:
    """A call: the kernel's number, those of the tensors that it reads and writes."""

    kernel: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True)
class SavedProgram:
    """A whole program; one without steps is a single kernel."""

    tensors: tuple[tuple[int, int], ...] = ()  # each as (number of its operation, its place among the results)
    kernels: tuple[CutKernel, ...] = ()
    steps: tuple[CutStep, ...] = ()
    results: tuple[int, ...] = ()
    windows: tuple[tuple[int, BoxView], ...] = ()  # tensors that are boxes of others, by their numbers
    proven: frozenset[tuple[int, Proof]] = field(default=frozenset(), compare=False)  # of kernels by their numbers


def numbered(inputs: Iterable[Tensor], outputs: Iterable[Tensor]) -> list[Operation]:
    """The operations of a program in an order that its structural key decides."""
    return list(dict.fromkeys([*stages_of(outputs), *(t.op for t in inputs)]))


def layouts_of(tensors: Sequence[Tensor]) -> tuple[Layout, ...] | None:
    """Types and shapes; None where an extent is no number above 0."""
    found = []
    for tensor in tensors:
        shape = known_shape(tensor)
        if shape is None or 0 in shape:
            return None
        found.append((str(tensor.dtype), shape))
    return tuple(found)


def saved_program(program: Compilation, plan: StepPlan) -> SavedProgram | None:
    """A cut as data; None where it depends on what is not known before a call."""
    if not program.facts.is_always_alike:
        return None
    places = {op: k for k, op in enumerate(numbered(program.inputs, program.outputs))}
    kernels: dict[CompiledKernel, CutKernel] = {}
    found, windows = [], {c: view for c, view in plan.views.items() if isinstance(view, BoxView)}
    tensors = boxed(plan.tensors, windows)
    for step in plan.steps:
        part = None if step.core is None else step.core.program.planner.part
        arrays = layouts_of([tensors[c] for c in (*step.inputs, *step.outputs)])
        if step.core is None or part is None or arrays is None or not step.core.program.facts.is_always_alike:
            return None
        if step.core not in kernels:
            inside, checks = step.bytes_inside({}), step.core.facts.checks_indices
            kernels[step.core] = CutKernel(part.digest, step.core.program.name, arrays, inside, checks)
        found.append(CutStep(list(kernels).index(step.core), step.inputs, step.outputs))
    users = [plan.users.get(plan.known_by(c), t) for c, t in enumerate(plan.tensors)]
    if layouts_of(users) != layouts_of(plan.tensors) or not all(t.op in places for t in users):
        return None
    listed = tuple((places[t.op], t.index) for t in users)
    return SavedProgram(listed, tuple(kernels.values()), tuple(found), plan.results, tuple(windows.items()))


def boxed(tensors: Sequence[Tensor], windows: Mapping[int, BoxView]) -> list[Tensor]:
    """The tensors, where some are boxes of others arrays of their own that lie in the memory of those."""
    return [placeholder_in(t, windows[c].shape) if c in windows else t for c, t in enumerate(tensors)]


def keep_cut(key: str | None, cut: SavedProgram) -> None:
    """Keep a cut, if there is a place to keep it in."""
    data = {
        "tedsl_program": VERSION,
        "tensors": cut.tensors,
        "kernels": [[k.digest, k.title, k.arrays, k.inside, k.checks] for k in cut.kernels],
        "steps": [[s.kernel, s.inputs, s.outputs] for s in cut.steps],
        "results": cut.results,
        "windows": [[c, [w.of, w.begins, w.shape]] for c, w in cut.windows],
        "proven": sorted(cut.proven),
    }
    write(key, _KIND, json.dumps(with_seal(data), separators=(",", ":")).encode())


def recall_cut(key: str | None) -> SavedProgram | None:
    """The cut kept under a key; None where there is none that is whole."""
    payload = read(key, _KIND)
    if payload is None:
        return None
    try:
        return _parsed(unsealed(payload))
    except ValueError:
        return None


def _parsed(data: Mapping[str, Any]) -> SavedProgram | None:
    if data.get("tedsl_program") != VERSION:
        return None
    tensors, kernels, steps, results, windows, proven = (
        typed(kind, data.get(name)) for name, kind in (
            ("tensors", tuple[tuple[int, int], ...]), ("kernels", tuple[CutKernel, ...]),
            ("steps", tuple[CutStep, ...]), ("results", tuple[int, ...]),
            ("windows", tuple[tuple[int, BoxView], ...]), ("proven", tuple[tuple[int, Proof], ...]),
        )
    )  # fmt: skip
    numbers = [*sum(tensors, ()), *results]
    for step in steps:
        numbers += [step.kernel, *step.inputs, *step.outputs]
    for cell, window in windows:
        numbers += [cell, window.of, *window.begins, *window.shape]
    if min(numbers, default=0) < 0:  # which a list would take for one from its end
        raise ValueError("a number below 0")
    return SavedProgram(tensors, kernels, steps, results, windows, frozenset(proven))
