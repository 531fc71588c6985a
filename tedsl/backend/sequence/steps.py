"""Programs of several kernels, and of stages that no kernel computes, one after another.

Such a stage is a Python function of arrays, or a scan with a reduction inside a reduction over its own state, which the
reference evaluates. How a program is cut into steps stands in `cutting`; a program that another process cut is found on
the disk (`restored`), and scheduled anew only when somebody asks what its schedule alone knows.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import nullcontext
from dataclasses import replace
from functools import partial

from schedules.estimate.compiling import compile_ms
from tedsl.analysis.hazards import Hazard
from tedsl.analysis.pointwise import Array
from tedsl.backend.arguments.blocks import OneCall
from tedsl.backend.arguments.layouts import LARGEST
from tedsl.backend.compiling.compilation import Compilation
from tedsl.backend.compiling.disk_cache import keeping_meanwhile
from tedsl.backend.compiling.executable import (
    CallMemory,
    CompiledKernel,
    MemoryPlan,
    Modes,
    Prepared,
    Sizes,
    StepPlan,
)
from tedsl.backend.compiling.forms import Form, is_dense
from tedsl.backend.host.phases import Spent, added
from tedsl.backend.host.progress import counted
from tedsl.backend.host.runtime import KernelError
from tedsl.backend.sequence.cutting import cut_program
from tedsl.backend.sequence.runner import Chain, Placing, is_compact
from tedsl.backend.sequence.saved_form import SavedProgram, keep_cut, saved_program
from tedsl.backend.sequence.temporaries_in_inputs import Lender
from tedsl.backend.sequence.workers import compile_apart, may_compile_apart
from tedsl.lang.collecting import collected_later
from tedsl.lang.locks import cached_property
from tedsl.lang.tensor import Tensor

__all__ = ["Steps", "finest"]

MOST_CHAINS = 64  # kept for calls on the same shapes and strides


def finest(program: Compilation) -> Steps:
    """A program in as many steps as it can be cut into."""
    return Steps(program, cut_program(program, 1))


class Steps:
    """An executable of the steps that compute a program; safe to use from several threads.

    `key`: under which its cut is kept on the disk. `saved`, `anew`: of one found there, what was found, and who
    schedules it when that is needed.
    """

    single = None

    def __init__(
        self, program: Compilation, plan: StepPlan, key: str | None = None, saved: SavedProgram | None = None,
        anew: Callable[[], Steps] | None = None,
    ) -> None:  # fmt: skip
        self.program, self.facts, self.plan, self.key = program, program.facts, plan, key
        self._found, self._anew = saved, anew
        self._written = -1  # proofs kept so far
        self._apart_ms = 0.0  # of compiling in other processes
        self._beside_ms = 0.0  # what threads that compile at the same time add up to, beyond the time that they took
        self._chains: dict[object, Chain] = {}

    def __deepcopy__(self, memo: object) -> Steps:
        return self  # those who hold it share it

    @property
    def is_found(self) -> bool:
        """Whether another process cut and compiled it."""
        return self._anew is not None

    @property
    def whole(self) -> Steps:
        return self if self._anew is None else self._anew()

    @cached_property
    def saved(self) -> SavedProgram | None:
        """How the program was cut, as data; None where that depends on what is not known before a call."""
        return self._found if self.is_found else saved_program(self.program, self.plan)

    def keep(self) -> None:
        """Let other processes find the steps, and what was proven of them."""
        if self.key is None or self.saved is None:
            return
        proven = frozenset((k, proof) for k, core in enumerate(self.plan.kernels) for proof in core.proven)
        if len(proven) > self._written:
            self._written = len(proven)
            keep_cut(self.key, replace(self.saved, proven=proven))

    @property
    def compile_ms(self) -> float:
        return max(0.0, self._spent_ms() - self._beside_ms)

    def _spent_ms(self) -> float:
        return sum(core.compile_ms for core in self.plan.kernels) + self._apart_ms

    @property
    def phases(self) -> Spent:
        own = {"schedule": self.plan.schedule_ms, "elsewhere": self._apart_ms}
        return added([own, *(core.phases for core in self.plan.kernels)])

    def compile(self, modes: Modes | None = None) -> None:
        """Compile the kernels, several at a time: in processes of their own where that is possible, else in threads."""
        from concurrent.futures import ThreadPoolExecutor  # slow to load, and not needed for single kernels

        forms = self._forms(modes or ("write",) * len(self.program.outputs))
        missing = [core for core, form in forms.items() if not core.forms.is_ready(form)]
        ms = {core: _expected_ms(core) for core in missing} if len(missing) > 1 else {}
        rest = sum(ms.values()) - max(ms.values(), default=0.0)  # beside the longest
        counting, apart = set(missing) or set(forms), may_compile_apart(len(missing), rest)
        begin, before = time.perf_counter(), self._spent_ms()
        with (
            collected_later(),
            keeping_meanwhile() if apart else nullcontext(),
            counted(f"compiling {self.program.name}", len(counting), "kernel") as done,
        ):
            if apart:
                # The longest first, or all others end while one process compiles it.
                order = sorted(missing, key=ms.__getitem__, reverse=True)
                compile_apart([partial(core.forms.variant, forms[core]) for core in order], done, meanwhile=self.keep)
                self._apart_ms += (time.perf_counter() - begin) * 1e3 - (self._spent_ms() - before)
                counting = set()
            with ThreadPoolExecutor(max(2, os.cpu_count() or 1)) as pool:
                for core in pool.map(lambda core: (core.forms.variant(forms[core]), core)[1], forms):
                    if core in counting:
                        done()
        if missing:
            self._beside_ms += self._spent_ms() - before - (time.perf_counter() - begin) * 1e3
        self.keep()

    def _forms(self, wanted: Modes) -> dict[CompiledKernel, Form]:
        """The form of each kernel that a call with contiguous arrays needs first."""
        steps, results = self.plan.steps, self.plan.results
        added = {results[p] for p, mode in enumerate(wanted) if mode == "add"}
        read = {c for step in steps for c in self.plan.read_by(step)}
        forms: dict[CompiledKernel, Form] = {}
        for step in steps:
            if step.core is not None:
                own = tuple("add" if c in added and c not in read else "write" for c in step.outputs)
                forms.setdefault(step.core, step.core.forms.usual(own))
        return forms

    @property
    def is_remembered(self) -> bool:
        """Whether calls are prepared: Python functions may tell of a copy each time."""
        return all(step.core is not None for step in self.plan.steps)

    def form(self, memory: CallMemory, modes: Modes, sizes: Sizes) -> Form:
        """The modes alone: each kernel takes the form that its arrays need."""
        return Form(modes)

    def run(self, memory: CallMemory, modes: Modes, sizes: Sizes, failure: KernelError | None = None) -> None:
        """Compute them; its kernels answer failures themselves."""
        self._chain(memory, modes, sizes).run(memory)

    def prepared(self, memory: CallMemory, modes: Modes, sizes: Sizes) -> Prepared:
        chain, count = self._chain(memory, modes, sizes), len(self.program.inputs)
        added = tuple(p for p, mode in enumerate(modes) if mode == "add")
        order = tuple(p for p, mode in enumerate(modes) if mode != "null")

        def run(arrays: Sequence[Array]) -> None:
            middle = count + len(added)
            before = dict(zip(added, arrays[count:middle], strict=True))
            chain.run(CallMemory(arrays[:count], dict(zip(order, arrays[middle:], strict=True)), before))

        return Prepared(run, added, order)

    def in_one(self, memory: CallMemory) -> OneCall | None:
        return self._chain(memory, ("write",) * len(self.program.outputs), {}).in_one(memory)

    def _chain(self, memory: CallMemory, modes: Modes, sizes: Sizes) -> Chain:
        arrays = memory.arrays
        key = (modes, memory.given, memory.lent, tuple(sizes.values()), tuple((a.shape, a.strides) for a in arrays))
        chain = self._chains.get(key)
        if chain is None:
            lent = frozenset(k for k in memory.lent if is_compact(memory.inputs[k]))
            in_place = all(is_dense(a) and a.nbytes <= LARGEST for a in arrays)
            chain = self._planned(self._placing(modes, memory.given), modes, sizes, lent, in_place=in_place)
            chain.lent = memory.lent
            if len(self._chains) >= MOST_CHAINS:
                self._chains.clear()
            self._chains[key] = chain
        return chain

    def _planned(self, placing: Placing, modes: Modes, sizes: Sizes, lent: Set[int], *, in_place: bool) -> Chain:
        tensors = self.plan.tensors

        def lend(chain: Chain) -> Mapping[int, tuple[int, int]]:
            own = {k: chain.step_modes(step) for k, step in enumerate(placing.steps) if in_place}
            return Lender(tensors, placing, chain.inside, chain.bytes, own).loans(lent)

        return Chain(tensors, placing, modes, sizes, lend if lent else None, lambda: self.whole.plan)

    def _placing(self, modes: Sequence[str], given: Set[int]) -> Placing:
        return Placing(self.plan, modes, given)

    def hazard(self, position: int, source: Tensor, form: Form | None = None) -> Hazard | None:
        modes = form.modes if form is not None else ("write",) * len(self.program.outputs)
        placing = self._placing(modes, frozenset(range(len(modes))))
        tensor, result = self.program.outputs[position], self.plan.results[position]
        number = next(k for k, t in enumerate(self.program.inputs) if t is source)
        if any(c == number for _, c in placing.copied):
            return Hazard(tensor.op, source.name, "which is a result too, and copied at the end")
        if placing.direct.get(result) != position:
            return None
        begin = placing.born[result]
        for step in (s for s in placing.steps[begin + 1 :] if number in self.plan.read_by(s)):
            reader = step.op or self.plan.tensors[step.outputs[0]].op
            return Hazard(reader, source.name, f"in a later step than the one that computes {tensor.name!r}")
        step = placing.steps[begin]
        if number not in self.plan.read_by(step) or step.core is None:
            return None
        if number not in step.inputs:
            return Hazard(tensor.op, source.name, "of which it reads a part")
        if result not in step.outputs:
            return Hazard(tensor.op, source.name, "while it is written part by part")
        read = step.core.program.inputs[step.inputs.index(number)]
        found = step.core.hazard(step.outputs.index(result), read)
        # The kernel may have been made for another step like this one, whose names it knows.
        return found and replace(found, stage=tensor.op, read=source.name)

    def is_proven(self, position: int, source: Tensor, form: Form) -> bool:
        return False  # its kernels remember what they prove

    def explanation(self, error: KernelError, inputs: Sequence[Array], sizes: Sizes) -> str:
        return ""  # a step that fails explains itself

    def memory_plan(self, arrays: int, sizes: Sizes, lent: Set[int]) -> MemoryPlan:
        """By a call of which nothing is compiled yet."""
        modes = ("write",) * len(self.program.outputs)
        chain = self._planned(self._placing(modes, frozenset()), modes, sizes, lent, in_place=True)
        between, inside = chain.buffers()
        return MemoryPlan(arrays, between, chain.unshared(), inside, chain.lent_bytes())

    def temporary_bytes(self, sizes: Sizes, lent: Set[int] = frozenset()) -> list[int]:
        """The memory between kernels, and the most that one of them needs inside."""
        chain = next((c for c in self._chains.values() if c.sizes == sizes and c.lent == lent), None)
        return [] if chain is None else [n for n in chain.buffers() if n]

    def source(self, kind: str) -> str:
        return self._texts(lambda core: core.source(kind))

    def loop_nest(self) -> str:
        return self._texts(lambda core: core.loop_nest())

    def _texts(self, text: Callable[[CompiledKernel], str]) -> str:
        """Those of each kernel."""
        return "\n".join(f"kernel {core.program.name}:\n{text(core)}" for core in self.whole.plan.kernels)


def _expected_ms(core: CompiledKernel) -> float:
    """How long a kernel takes to compile, roughly; 0 where nobody has scheduled it."""
    part = core.program.planner.part
    return 0.0 if part is None else compile_ms(part.plan)
