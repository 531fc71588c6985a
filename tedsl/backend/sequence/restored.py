"""Programs of many kernels, found on the disk by their structure: another process need not schedule them again.

What is kept is how a program was cut (`saved_form`); the code of its kernels lies beside it (`compiling.disk_cache`).
The key is a digest of all that both depend on. The schedule is not kept: it is made anew when somebody asks what only
it knows, such as the loops and the sources, why an output cannot be written over an input, and what an error means.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from tedsl.analysis.sizes import known_shape
from tedsl.backend.compiling.compilation import Compilation
from tedsl.backend.compiling.disk_cache import key_of_program
from tedsl.backend.compiling.executable import BoxView, CompiledKernel, Executable, KernelStep, StepPlan
from tedsl.backend.compiling.memory_cache import shared_kernel
from tedsl.backend.compiling.single_kernel import SingleKernel
from tedsl.backend.sequence.cutting import cut_program, is_apart, is_routine, least_kernels, shared_key
from tedsl.backend.sequence.found_kernel import FoundKernel
from tedsl.backend.sequence.saved_form import SavedProgram, boxed, keep_cut, layouts_of, numbered, recall_cut
from tedsl.backend.sequence.steps import Steps
from tedsl.lang.collecting import collected_later
from tedsl.lang.locks import freed_in_children
from tedsl.lang.tensor import Scan, Tensor

__all__ = ["executable_for", "plan_unasked"]


def executable_for(program: Compilation, structure: str | None = None) -> Executable:
    """One kernel for a program, or several steps where that is not possible or not wise.

    By `structure`, the structural key of the program with its names, other processes find the steps again.
    """
    operations, least = program.operations, least_kernels(program)
    if len(operations) == 1 and is_routine(operations[0], program.target):
        return SingleKernel(program)
    along_time = plan_unasked(program)
    if along_time is not None:
        return Steps(program, along_time)
    is_cut = any(map(is_apart, operations))
    if not is_cut and len(operations) < least:
        return SingleKernel(program)
    key = None if is_cut or structure is None else key_of_program(structure, program, least)
    cut = recall_cut(key)
    if cut is not None and not cut.steps:
        return SingleKernel(program)
    tensors = None if cut is None else _tensors(cut, program)
    if cut is not None and tensors is not None:
        return _found(program, cut, tensors, key)
    with collected_later():  # of a large program
        plan = cut_program(program, least)
        if is_cut or len(plan.steps) > 1:
            return Steps(program, plan, key)
    keep_cut(key, SavedProgram())
    return SingleKernel(program)


def plan_unasked(program: Compilation) -> StepPlan | None:
    """The steps of a program with scans that are kernels of their own, or segments of time."""
    if not any(isinstance(op, Scan) for op in program.operations):
        return None
    from tedsl.backend.sequence.along_time import plan_in_cache  # most programs need not wait for these to load
    from tedsl.backend.sequence.step_by_step import plan_step_by_step

    return plan_step_by_step(program) or plan_in_cache(program)


def _tensors(cut: SavedProgram, program: Compilation) -> list[Tensor] | None:
    """The tensors of a program by their numbers; None where a step does not fit them."""
    operations, inputs, outputs = numbered(program.inputs, program.outputs), program.inputs, program.outputs
    try:
        tensors = [operations[k].output(place) for k, place in cut.tensors]
        windows, known = dict(cut.windows), set(range(len(inputs)))
        if not all(_is_inside(window, tensors) for window in windows.values()):
            return None
        own = boxed(tensors, windows)
        for step in cut.steps:
            arrays = layouts_of([own[c] for c in (*step.inputs, *step.outputs)])
            read = {windows[c].of if c in windows else c for c in step.inputs}
            if arrays != cut.kernels[step.kernel].arrays or not known.issuperset(read):
                return None
            known.update(step.outputs)
    except (IndexError, ValueError):
        return None
    made = [tensors[c] for c in cut.results if c in known]
    fits = len(made) == len(outputs) and all(a is b for a, b in zip(tensors, inputs, strict=False))
    return tensors if fits and layouts_of(made) == layouts_of(outputs) else None


def _is_inside(window: BoxView, tensors: Sequence[Tensor]) -> bool:
    """Whether a box lies in its tensor."""
    shape = known_shape(tensors[window.of]) or ()
    ends = [b + n for b, n in zip(window.begins, window.shape, strict=True)]
    return len(shape) == len(ends) and all(end <= n for end, n in zip(ends, shape, strict=True))


class _Anew:
    """A program that is scheduled when somebody asks for it."""

    def __init__(self, make: Callable[[], Steps], cut: SavedProgram) -> None:
        self._make, self._cut = make, cut
        self._lock = freed_in_children(threading.RLock())
        self._steps: Steps | None = None

    def __call__(self) -> Steps:
        """Its steps with all that the schedule knows."""
        with self._lock:
            if self._steps is None:
                made = self._make()
                if made.saved != self._cut:
                    raise RuntimeError(
                        f"kernel {made.program.name!r}: scheduled again, the program is cut in another way than when "
                        "it was compiled, which should not be; remove what is kept with 'tedsl cache clear'"
                    )
                self._steps = made
            return self._steps


def _found(program: Compilation, cut: SavedProgram, tensors: Sequence[Tensor], key: str | None) -> Steps:
    """The steps of a program as they were cut before."""
    anew = _Anew(lambda: Steps(program, cut_program(program, least_kernels(program))), cut)
    numbers = dict.fromkeys(step.kernel for step in cut.steps)
    kernels = {number: _kernel(program, cut, number, tensors, anew) for number in numbers}
    steps = tuple(KernelStep(kernels[step.kernel], None, step.inputs, step.outputs) for step in cut.steps)
    plan = StepPlan(tuple(tensors), steps, cut.results, views=dict(cut.windows))
    return Steps(program, plan, key, cut, anew)


def _kernel(
    program: Compilation, cut: SavedProgram, number: int, tensors: Sequence[Tensor], anew: _Anew
) -> CompiledKernel:
    """One of its kernels, in the tensors of the first step that calls it."""
    kernel, step = cut.kernels[number], next(step for step in cut.steps if step.kernel == number)
    lying = boxed(tensors, dict(cut.windows))
    read, made = (tuple(lying[c] for c in cells) for cells in (step.inputs, step.outputs))
    own = Compilation(read, made, kernel.title, program.target, program.planner)
    core = shared_kernel(shared_key(kernel.digest, program), lambda: FoundKernel(own, kernel, anew), whole=False)
    core.proven.update(proof for k, proof in cut.proven if k == number)
    return core
