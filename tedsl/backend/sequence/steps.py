"""Programs of several kernels, and of stages that no kernel computes, one after another.

Such a stage is a Python function of arrays, or a scan with a reduction inside a reduction over its own state, which the
reference evaluates: before each of them comes what it reads. What lies between is cut where it is large, at tensors
that its schedule stores anyway: kernels that are equal, as those of repeated layers, are then compiled once.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

from schedules.cutting import PlanPart
from tedsl.analysis.hazards import Hazard
from tedsl.analysis.pointwise import Array
from tedsl.backend.arguments.layouts import LARGEST
from tedsl.backend.compiling.collecting import collected_later
from tedsl.backend.compiling.core import CallMemory, Core, Prepared, is_dense
from tedsl.backend.compiling.memory_cache import shared_core
from tedsl.backend.compiling.variant import Form
from tedsl.backend.host.progress import counted
from tedsl.backend.host.targets import Target
from tedsl.backend.lowering.pipeline import sizes_of
from tedsl.backend.lowering.scans import can_lower_scan
from tedsl.backend.scheduling.planner import Planner
from tedsl.backend.sequence.ordering import in_little_memory, typical_bytes
from tedsl.backend.sequence.recompute import Saved
from tedsl.backend.sequence.runner import Chain, KernelStep, Placing, is_compact
from tedsl.backend.sequence.saved_form import CutKernel, CutStep, SavedProgram, keep_cut, layouts_of, numbered
from tedsl.backend.sequence.temporaries_in_inputs import Lender, surely_fits
from tedsl.backend.sequence.workers import compile_apart, may_compile_apart
from tedsl.lang.expr import Var
from tedsl.lang.locks import cached_property
from tedsl.lang.tensor import Extern, Operation, Placeholder, Scan, Tensor
from tedsl.lang.traverse import operations_between

__all__ = ["Steps", "finest", "is_apart", "shared_key"]

MOST_CHAINS = 64  # kept for calls on the same shapes and strides


def finest(inputs: Sequence[Tensor], outputs: Sequence[Tensor], name: str, target: Target, planner: Planner) -> Steps:
    """A program in as many steps as it can be cut into."""
    apart = [op for op in operations_between(inputs, outputs) if is_apart(op)]
    return Steps(inputs, outputs, name, target, planner, apart, least=1)


def is_apart(op: Operation) -> bool:
    """Whether a stage is one that no kernel computes."""
    return isinstance(op, Extern) or (isinstance(op, Scan) and not can_lower_scan(op))


class Steps(Core):
    """A program as the steps that compute it."""

    is_single = False

    def __init__(
        self,
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        name: str,
        target: Target,
        planner: Planner,
        apart: Sequence[Operation],
        least: int | None = None,
        key: str | None = None,
    ) -> None:
        super().__init__(inputs, outputs, name, target, planner)
        self.steps: list[KernelStep] = []
        self.again: frozenset[int] = frozenset()  # places of steps that run once more
        self.tensors: list[Tensor] = list(inputs)
        self.numbers: dict[Tensor, int] = {}  # of the user's tensors that are stored
        self._users: dict[int, Tensor] = {}  # those by their numbers
        self.results: tuple[int, ...] = ()
        self.key = key  # under which it is kept
        self._written = -1  # proofs kept so far
        self._apart_ms = 0.0  # of compiling in other processes
        self._chains: dict[object, Chain] = {}
        self._numbers = {t: k for k, t in enumerate(self.tensors)}
        self._least = planner.machine(target).least.kernels if least is None else least
        self.is_finest = self._least == 1
        self._cut(apart)

    def _cut(self, apart: Sequence[Operation]) -> None:
        """Find the steps."""
        for op in apart:
            self._compute([t for t in op.inputs if t not in self._numbers], f"{self.name}_{op.name}")
            read = tuple(self._numbers[t] for t in op.inputs)
            self.steps.append(KernelStep(None, op, read, self._numbered(op.outputs)))
        self._compute([t for t in dict.fromkeys(self.outputs) if t not in self._numbers], self.name)
        self.results = tuple(self._numbers[t] for t in self.outputs)
        self.numbers.update(self._numbers)

    def _compute(self, wanted: Sequence[Tensor], name: str) -> None:
        """Steps that compute some tensors from those that are known."""
        if not wanted:
            return
        known = _frontier(list(self._numbers), wanted)
        found: tuple[Tensor, ...] = tuple(wanted)
        parts: list[PlanPart] = []
        if self._may_cut(known, wanted):
            found, parts = self.planner.parts(known, wanted, self.target, self._least)
        if not parts or not all(part.is_closed for part in parts if part.plan.finite):
            core = Core(known, wanted, name, self.target, self.planner)
            self.steps.append(KernelStep(core, None, tuple(self._numbers[t] for t in known), self._numbered(wanted)))
            return
        is_sized = bool(sizes_of(known, wanted))
        for part in in_little_memory(parts, set(known), set(found)):
            key = shared_key(part.digest, self.target, self.planner)
            title = "_".join(dict.fromkeys(t.name for t in part.outputs[:2]))
            mine = self.planner.for_part(part)
            core = shared_core(key, lambda: Core(part.inputs, part.outputs, title, self.target, mine))  # noqa: B023
            theirs, ours = (sizes_of(p.inputs, p.outputs) if is_sized else [] for p in (core, part))
            read = tuple(self._numbers[t] for t in part.inputs)
            own = all(a is b for a, b in zip(theirs, ours, strict=True))
            sizes = {} if own else dict(zip(theirs, ours, strict=True))
            self.steps.append(KernelStep(core, None, read, self._numbered(part.outputs), sizes))
            self.numbers.update((part.users[t], self._numbers[t]) for t in part.outputs)
            self._users.update((self._numbers[t], part.users[t]) for t in part.outputs)
        self._numbers.update((t, self._numbers[now]) for t, now in zip(wanted, found, strict=True))

    def _may_cut(self, known: Sequence[Tensor], wanted: Sequence[Tensor]) -> bool:
        between = operations_between(known, wanted)
        if self.target.backend != "host" or self.planner.automatic or self.is_always_empty:
            return False
        return len(between) >= self._least and not any(isinstance(op, Placeholder) for op in between)

    def _numbered(self, tensors: Sequence[Tensor]) -> tuple[int, ...]:
        """Numbers for tensors that are computed now."""
        for tensor in tensors:
            self._numbers[tensor] = len(self.tensors)
            self.tensors.append(tensor)
        return tuple(self._numbers[t] for t in tensors)

    @cached_property
    def cut(self) -> SavedProgram | None:
        """How the program was cut, as data; None where that depends on what is not known before a call."""
        if not self.is_always_alike:
            return None
        places = {op: k for k, op in enumerate(numbered(self.inputs, self.outputs))}
        kernels: dict[Core, CutKernel] = {}
        found = []
        for step in self.steps:
            part = None if step.core is None else step.core.planner.part
            arrays = layouts_of([self.tensors[c] for c in (*step.inputs, *step.outputs)])
            if step.core is None or part is None or arrays is None or not step.core.is_always_alike:
                return None
            if step.core not in kernels:
                inside, checks = step.bytes_inside({}), step.core.checks_indices
                kernels[step.core] = CutKernel(part.digest, step.core.name, arrays, inside, checks)
            found.append(CutStep(list(kernels).index(step.core), step.inputs, step.outputs))
        tensors = [self._users.get(c, t) for c, t in enumerate(self.tensors)]
        if layouts_of(tensors) != layouts_of(self.tensors) or not all(t.op in places for t in tensors):
            return None
        listed = tuple((places[t.op], t.index) for t in tensors)
        return SavedProgram(listed, tuple(kernels.values()), tuple(found), self.results)

    def keep(self) -> None:
        """Let other processes find the steps, and what was proven of them."""
        if self.key is None or self.cut is None:
            return
        cores = dict.fromkeys(step.core for step in self.steps if step.core is not None)
        proven = frozenset((k, proof) for k, core in enumerate(cores) for proof in core.proven)
        if len(proven) > self._written:
            self._written = len(proven)
            keep_cut(self.key, replace(self.cut, proven=proven))

    @property
    def kernels(self) -> list[Core]:
        """The programs of the kernels, each once."""
        return list(dict.fromkeys(step.core for step in self.steps if step.core is not None))

    @property
    def compile_ms(self) -> float:
        return sum(core.compile_ms for core in self.kernels) + self._apart_ms

    def compile(self, modes: tuple[str, ...] | None = None) -> None:
        """Compile the kernels, several at a time: in processes of their own where that is possible, else in threads."""
        wanted = modes or ("write",) * len(self.outputs)
        forms: dict[Core, Form] = {}
        added = {self.results[p] for p, mode in enumerate(wanted) if mode == "add"}
        read = {c for step in self.steps for c in step.inputs}
        for step in self.steps:
            if step.core is not None:
                own = tuple("add" if c in added and c not in read else "write" for c in step.outputs)
                forms.setdefault(step.core, step.core.usual(own))
        missing = [core for core, form in forms.items() if not core.is_ready(form)]
        counting = set(missing) or set(forms)
        with collected_later(), counted(f"compiling {self.name}", len(counting), "kernel") as done:
            if may_compile_apart(len(missing)):
                begin, before = time.perf_counter(), self.compile_ms
                # The longest first, or all others end while one process compiles it.
                order = sorted(missing, key=_amount, reverse=True)
                compile_apart([partial(core.variant, forms[core]) for core in order], done, meanwhile=self.keep)
                self._apart_ms += (time.perf_counter() - begin) * 1e3 - (self.compile_ms - before)
                counting = set()
            with ThreadPoolExecutor(max(2, os.cpu_count() or 1)) as pool:
                for core in pool.map(lambda core: (core.variant(forms[core]), core)[1], forms):
                    if core in counting:
                        done()
        self.keep()

    @property
    def is_remembered(self) -> bool:
        """Whether calls are prepared: Python functions may tell of a copy each time."""
        return all(step.core is not None for step in self.steps)

    def run(self, memory: CallMemory, modes: tuple[str, ...], sizes: Mapping[Var, int]) -> None:
        """Compute the outputs whose mode is not "null"."""
        self._chain(memory, modes, sizes).run(memory)

    def prepared(self, memory: CallMemory, modes: tuple[str, ...], sizes: Mapping[Var, int]) -> Prepared:
        """A function of arrays like these."""
        chain, count = self._chain(memory, modes, sizes), len(self.inputs)
        added = tuple(p for p, mode in enumerate(modes) if mode == "add")
        order = tuple(p for p, mode in enumerate(modes) if mode != "null")

        def run(arrays: Sequence[Array]) -> None:
            middle = count + len(added)
            before = dict(zip(added, arrays[count:middle], strict=True))
            chain.run(CallMemory(arrays[:count], dict(zip(order, arrays[middle:], strict=True)), before))

        return Prepared(run, added, order)

    def _chain(self, memory: CallMemory, modes: tuple[str, ...], sizes: Mapping[Var, int]) -> Chain:
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

    def _planned(
        self, placing: Placing, modes: tuple[str, ...], sizes: Mapping[Var, int], lent: Set[int], *, in_place: bool
    ) -> Chain:
        def lend(chain: Chain) -> Mapping[int, tuple[int, int]]:
            own = {k: chain.step_modes(step) for k, step in enumerate(placing.steps) if in_place}
            return Lender(self.tensors, placing, chain.inside, chain.bytes, own).loans(lent)

        return Chain(self.tensors, placing, modes, sizes, lend if lent else None, self._terms)

    def _terms(self) -> Sequence[Tensor]:
        """The tensors as the kernels know them."""
        return self.tensors

    def _placing(self, modes: Sequence[str], given: Set[int]) -> Placing:
        return Placing(self.steps, self.results, modes, given)

    def hazard(self, position: int, source: Tensor, form: Form | None = None) -> Hazard | None:
        """Why an output cannot be written into the memory of an input; None where it provably can."""
        modes = form.modes if form is not None else ("write",) * len(self.outputs)
        placing, tensor = self._placing(modes, frozenset(range(len(modes)))), self.outputs[position]
        number, result = self._numbers[source], self.results[position]
        if any(c == number for _, c in placing.copied):
            return Hazard(tensor.op, source.name, "which is a result too, and copied at the end")
        if placing.direct.get(result) != position:
            return None
        begin = placing.born[result]
        for step in (s for s in placing.steps[begin + 1 :] if number in s.inputs):
            reader = step.op or self.tensors[step.outputs[0]].op
            return Hazard(reader, source.name, f"in a later step than the one that computes {tensor.name!r}")
        step = placing.steps[begin]
        if number not in step.inputs or step.core is None:
            return None
        found = step.core.hazard(step.outputs.index(result), step.core.inputs[step.inputs.index(number)])
        # The kernel may have been made for another step like this one, whose names it knows.
        return found and replace(found, stage=tensor.op, read=source.name)

    def unplaced(self, sizes: Mapping[Var, int], lent: Set[int] = frozenset()) -> Chain:
        """A call that computes all outputs in memory of their own, of which nothing is compiled yet."""
        modes = ("write",) * len(self.outputs)
        return self._planned(self._placing(modes, frozenset()), modes, sizes, lent, in_place=True)

    @property
    def lender(self) -> Lender:
        """What may lie in the memory of donated inputs, whatever the symbolic extents are."""
        modes = ("write",) * len(self.outputs)
        placing = self._placing(modes, frozenset())
        kept = placing.kept()
        cells = [c for c, k in placing.born.items()
                 if placing.steps[k].core is not None and c not in placing.direct and c not in kept]  # fmt: skip
        read = placing.read | {c for _, c in placing.copied} | set(placing.direct)
        own = {k: tuple("write" if c in read else "null" for c in step.outputs)
               for k, step in enumerate(placing.steps)}  # fmt: skip
        tensors = self.tensors
        return Lender(
            tensors, placing, cells, lambda c: typical_bytes(tensors[c]), own,
            lambda c, s: surely_fits(tensors[c], tensors[s]),
        )  # fmt: skip

    def with_copies(self, copies: Mapping[int, int]) -> list[Tensor]:
        """The tensors by their numbers, with further ones for those that are computed again."""
        return [*self.tensors, *(self.tensors[copies[n]] for n in sorted(copies))]

    def peak_bytes(self, steps: Sequence[KernelStep], tensors: Sequence[Tensor]) -> int:
        """The most memory that a call of these steps would hold, with arrays whose extents are numbers."""
        modes = ("write",) * len(self.outputs)
        chain = Chain(tensors, Placing(steps, self.results, modes, frozenset()), modes, {})
        arrays = Chain.bytes_of((*self.inputs, *self.outputs))
        return arrays + sum(chain.buffers())

    def replace_steps(self, found: Saved) -> None:
        """Let these steps run instead."""
        self.tensors = self.with_copies(found.copies)
        self.steps, self.again = list(found.steps), found.again

    def temporary_bytes(self, sizes: Mapping[Var, int], lent: Set[int] = frozenset()) -> list[int]:
        """The memory between kernels, and the most that one of them needs inside."""
        chain = next((c for c in self._chains.values() if c.sizes == sizes and c.lent == lent), None)
        return [] if chain is None else [n for n in chain.buffers() if n]

    def source(self, kind: str) -> str:
        """What the compiler made of each kernel."""
        return self._texts(lambda core: core.source(kind))

    def loop_nest(self) -> str:
        """The loops of each kernel."""
        return self._texts(lambda core: core.loop_nest())

    def _texts(self, text: Callable[[Core], str]) -> str:
        return "\n".join(f"kernel {core.name}:\n{text(core)}" for core in self.kernels)


def shared_key(digest: str, target: Target, planner: Planner) -> tuple[object, ...]:
    """What programs share a kernel by."""
    return digest, target, planner.is_asked, planner.deterministic, planner.in_place


def _amount(core: Core) -> int:
    """How much there is to compile, roughly."""
    part = core.planner.part
    return 0 if part is None else sum(map(len, part.plan.loops.values()))


def _frontier(known: Sequence[Tensor], outputs: Sequence[Tensor]) -> list[Tensor]:
    """The known tensors that the outputs read."""
    read = {t for op in operations_between(known, outputs) for t in op.inputs} | set(outputs)
    return [t for t in known if t in read]
