"""Kernels: compiled programs that are called on arrays.

The first call on arrays of given shapes and strides checks everything and prepares an argument block; later ones find
it by one look-up. A call whose arrays cannot be passed as they are copies them, and says so in `stats`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from schedules.plan import described
from tedsl.analysis.checked import is_checked
from tedsl.analysis.checks import read_checks
from tedsl.analysis.donated import DONATED, take
from tedsl.analysis.foreign import note_writes
from tedsl.analysis.pointwise import Array
from tedsl.analysis.sizes import bind_sizes, check_sizes, concrete_shape
from tedsl.backend.arguments.addresses import address_of
from tedsl.backend.arguments.device_arrays import is_on_gpu
from tedsl.backend.calling.accumulate import Accumulating
from tedsl.backend.calling.aliasing import overlap
from tedsl.backend.calling.call_arguments import (
    check_casting,
    check_is_memory,
    check_target,
    given_outputs,
    in_order,
    input_array,
    modes_of,
    passable,
    writable,
)
from tedsl.backend.calling.donation import Donations, Donor
from tedsl.backend.calling.export import export
from tedsl.backend.calling.fact_check import check_facts
from tedsl.backend.calling.in_place import PreparedCall
from tedsl.backend.calling.nan_check import check_numbers
from tedsl.backend.calling.on_gpu import Again, constant_on, key_of_tensors, listed, run_on_gpu
from tedsl.backend.calling.report import ProgramReport, program_of
from tedsl.backend.compiling.core import CallMemory, Core
from tedsl.backend.compiling.profiling import RECORDING
from tedsl.backend.host.processors import misfit_here
from tedsl.backend.host.runtime import KernelError
from tedsl.backend.host.targets import refusal
from tedsl.backend.lowering.index_checks import Checks
from tedsl.backend.sequence.arena import fresh
from tedsl.lang.errors import AliasError, ScheduleError
from tedsl.lang.expr import Var
from tedsl.lang.rich import Rich
from tedsl.lang.tensor import Constant, Tensor
from tedsl.lang.traverse import operations_between

__all__ = ["Kernel", "Stats", "separate"]

_may_share = np.may_share_memory
MOST_CALLS = 256  # prepared calls kept
ADD, SAFE = "add", "safe"  # by `is`, as an array given by a wrong name has no truth value; other objects take longer


@dataclass(frozen=True)
class Stats:
    """What compiling took so far, and what the last call did: its copies, its own buffers, bytes of all arrays."""

    compile_ms: float = 0.0
    copies: list[tuple[str, str]] = field(default_factory=list)
    bytes: int = 0
    buffers: Callable[[], Sequence[int]] = field(default=tuple, repr=False)  # bytes of each, counted when asked for
    on_device: bool = field(default=False, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return _stats_of, (self.compile_ms, self.copies, self.bytes, tuple(self.buffers()), self.on_device)

    @property
    def temporaries(self) -> int:
        """Buffers for intermediate results."""
        return len(self.buffers())

    @property
    def peak_bytes(self) -> int:
        """Bytes of all arrays, and of those buffers."""
        return self.bytes + sum(self.buffers())

    @property
    def device_bytes(self) -> int:
        """Bytes of a GPU's memory that the call took at most: its arrays, or copies of them, and those buffers."""
        return self.peak_bytes if self.on_device else 0


def _stats_of(ms: float, copies: list[tuple[str, str]], size: int, buffers: Sequence[int], on_device: bool) -> Stats:
    """What was pickled of them, with the buffers counted."""
    return Stats(ms, copies, size, lambda: buffers, on_device)


@dataclass(frozen=True, eq=False)
class _Prepared:
    """A call for given shapes and strides: the block to run, what to allocate, and in which order to pass it."""

    run: Callable[[Sequence[Array]], None]
    results: tuple[tuple[tuple[int, ...], np.dtype[Any]] | int, ...]  # an int: the input on whose memory it is
    order: tuple[int, ...]  # positions in the inputs followed by the results
    is_fresh: bool  # every result is in memory of its own
    safe: frozenset[tuple[int, int]]  # (result, input) that may lie element on element
    stats: Stats


class Kernel(Rich):
    """A compiled program: `kern(a, b)` computes new arrays, `kern(a, b, out=c, mode="add")` writes into given ones."""

    def __init__(
        self,
        core: Core,
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        several: bool,
        alias: Mapping[int, int] | None = None,
        sizes: Mapping[Var, Var] | None = None,
        on_hazard: str | None = None,
        accumulating: tuple[Accumulating, Mapping[Var, Var] | None] | None = None,
        donations: Donations | None = None,
        constants: Sequence[Tensor] = (),
    ) -> None:
        self.name = core.name
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        self.constants = {
            t: t.op.array for t in constants if isinstance(t.op, Constant)
        }  # which a call adds to its own
        self._constants = tuple(self.constants.values())
        self._fed = (*self.inputs, *constants)  # what the core is given
        self._count = len(self._fed)
        self._core = core
        self._several = several
        self._alias = dict(alias or {})
        self._on_hazard = on_hazard
        self._accumulating = accumulating
        self._sizes = sizes  # our variables -> those of the core, which may have been built for another program alike
        self._prepared: dict[Any, _Prepared] = {}
        self._adding: dict[Any, _Prepared] = {}  # those in mode="add"
        self._tensors: dict[Any, tuple[Again, Stats]] = {}  # those on tensors of PyTorch on a GPU
        self._constants_there: dict[str, list[Any]] = {}  # by their device
        self._stats = Stats()
        self._what = f"kernel {self.name!r}"
        self._donor = Donor(self._what, self._fed, self.outputs, donations or Donations())
        self._written = frozenset((*self._alias.values(), *self._donor.taken, *self._donor.lent))  # input positions
        self._on_device = core.target.backend != "host"

    def __call__(
        self, /, *arrays: Any, out: Any = None, mode: Any = None, sizes: Mapping[Var, int] | None = None,
        casting: str = SAFE, **named: Any,
    ) -> Any:  # fmt: skip
        """The outputs for these inputs, in the order of `te.build` or by name.

        `out=`, `mode=` are for all outputs, or dicts by name. Arrays of another dtype are converted where NumPy calls
        it safe, or as `casting=` says.
        """
        if named:
            arrays = tuple(in_order(self.inputs, arrays, named, self._what))
        if self._constants:
            if len(arrays) != len(self.inputs):
                in_order(self.inputs, arrays, {}, self._what)
            arrays = (*arrays, *self._constants)
        if (
            (mode is None or mode is ADD) and sizes is None and casting is SAFE
            and len(arrays) == self._count and not DONATED and not is_checked() and not RECORDING
        ):  # fmt: skip
            prepared = self._prepared if mode is None else self._adding
            targets = () if out is None else out if out.__class__ is tuple else (out,)
            try:
                call = prepared[tuple([(a.__class__, a.dtype, a.shape, a.strides) for a in (*arrays, *targets)])]
            except (AttributeError, KeyError, TypeError):
                pass
            else:
                results = targets or [_result(r, arrays) for r in call.results]
                if call.is_fresh or separate(arrays, results, call.safe):
                    everything = [*arrays, *results]
                    try:
                        call.run([everything[p] for p in call.order])
                    except KernelError as error:
                        if Checks.found_infinity(error.requirement):
                            return self._general(arrays, out, mode, sizes, casting)
                        raise self.explained(error) from None
                    self._stats = call.stats
                    return tuple(results) if self._several else results[0]
        return self._general(arrays, out, mode, sizes, casting)

    @property
    def core(self) -> Core:
        """The program behind the kernel, for those who call its code themselves."""
        return self._core

    def compile(self) -> None:
        """Compile now what a call with contiguous arrays needs (nothing, where an extent is 0)."""
        if self._core.is_always_empty:
            for op in operations_between(self._fed, self.outputs):
                read_checks(op)  # IndexError for what is provably wrong, as compiling tells
        elif self._accumulating is not None:
            self._accumulating[0].core.compile(self._accumulating[0].modes)
        else:
            self._core.compile()

    @property
    def stats(self) -> Stats:
        """Milliseconds of compiling so far, and what the last call did."""
        spent = self._core.compile_ms + (self._accumulating[0].core.compile_ms if self._accumulating else 0.0)
        return replace(self._stats, compile_ms=spent)

    @property
    def program(self) -> ProgramReport:
        """The compiled functions that a call runs, how often each is used, and the memory that they need."""
        return program_of(self._shown(), self._donor.lent)

    def export(self, folder: Any, sizes: Mapping[Var, int] | None = None) -> list[Path]:
        """Libraries that need nothing of this package: a C header, lib<name>.a and .so, and a Python module over NumPy.

        The function takes dense arrays; extents that are not numbers are fixed by `sizes`. Returns the files written;
        without a linker on this machine the shared library and the Python module are left out.
        """
        return export(self._core, self.name, folder, self._known(sizes), self._constants)

    def _known(self, sizes: Mapping[Var, int] | None) -> dict[Var, int]:
        known = check_sizes(sizes, f"{self._what}: export")
        return {self._sizes.get(v, v) if self._sizes else v: n for v, n in known.items()}

    def source(self, kind: str = "stmt") -> str:
        """What the compiler made of the program: "stmt", "asm", "llvm", "ptx" for a GPU; "passes": what we changed."""
        return self._shown().source(kind)

    def loop_nest(self) -> str:
        """The loops in the order in which they run."""
        return self._shown().loop_nest()

    def _shown(self) -> Core:
        return self._accumulating[0].core if self._accumulating else self._core

    def __copy__(self) -> Kernel:
        return self  # as of a function; calls share what they prepared

    def __deepcopy__(self, memo: object) -> Kernel:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{self._what} cannot be pickled: it is code in the memory of this process; build it where it is needed, "
            "which takes milliseconds as code is kept on disk, or write a library with kern.export(folder)"
        )

    def __repr__(self) -> str:
        """Name, target, inputs and outputs."""
        inputs, outputs = (", ".join(map(repr, tensors)) for tensors in (self.inputs, self.outputs))
        return f"Kernel {self.name!r} for {self._core.target.name}: ({inputs}) -> ({outputs})"

    def _general(self, given: Sequence[Any], out: Any, mode: Any, sizes: Mapping[Var, int] | None, casting: str) -> Any:
        if (problem := misfit_here(self._core.target.text)) is not None:
            raise refusal(self.name, f"{problem} (it can be looked at, and exported)")
        if len(given) != self._count:
            in_order(self.inputs, given, {}, self._what)
        check_casting(casting, self._what)
        if self._tensors and out is None and mode is None and not sizes:
            results = self.again(given)
            if results is not None:
                return results
        if any(map(is_on_gpu, (*given, *listed(out)))):
            return self._there(given, out, mode, sizes)
        self._donor.check(given, out)
        copies: list[tuple[str, str]] = []
        arrays = [
            input_array(t, v, self._what, casting, k in self._written, copies)
            for k, (t, v) in enumerate(zip(self._fed, given, strict=True))
        ]
        bound = self._bound(arrays, sizes)
        shapes = [concrete_shape(t, bound, self._what) for t in self.outputs]
        modes = modes_of(self.outputs, mode, self._what)
        accumulating = self._accumulating if out is None and mode is None else None
        core, renamed = (self._core, self._sizes) if accumulating is None else (accumulating[0].core, accumulating[1])
        core_sizes = bound if renamed is None else {renamed.get(v, v): n for v, n in bound.items()}
        targets = self._targets(out, modes, given, arrays, shapes)
        self._donor.check_apart(arrays, targets)
        passed = [passable(a, t, copies, on_device=self._on_device) for a, t in zip(arrays, self._fed, strict=True)]
        previous = {
            p: passable(targets[p], self.outputs[p], copies, on_device=self._on_device)
            for p, m in enumerate(modes) if m == "add"
        }  # fmt: skip
        positions: Sequence[int] = range(len(passed))
        if accumulating is not None:
            positions, modes = accumulating[0].inputs, accumulating[0].modes
            previous = {p: passed[k] for p, k in accumulating[0].previous.items()}
        buffers = {
            p: targets[p] if p in targets else fresh(shapes[p], self.outputs[p].dtype.numpy)
            for p, m in enumerate(modes) if m != "null"
        }  # fmt: skip
        memory = CallMemory(
            [passed[k] for k in positions], buffers, previous, given=frozenset(targets), lent=self._donor.lent
        )
        strict = range(len(modes)) if self._on_hazard == "error" else []
        if self._on_hazard is None and out is None:
            strict = list(self._alias)
        call = PreparedCall(
            self._what, self._fed, self.outputs, core, positions, modes, core_sizes, arrays, targets, out is None,
            frozenset(strict),
        )  # fmt: skip
        memory = call.settled(memory, copies)
        checked = is_checked()
        before = [a.copy() for a in arrays] if checked else []
        former = {p: t.copy() for p, t in targets.items()} if checked else {}
        if checked:
            check_facts(self._fed, self.outputs, arrays, bound, self._what)
        self._run(core, memory, modes, core_sizes, given)
        for position, target in targets.items():
            if memory.outputs[position] is not target:
                target[...] = memory.outputs[position]
        self._stats = self._counted(core, memory, copies + memory.copies, core_sizes)
        if not sizes:
            self._remember(call, memory, given)
        if checked:
            added = {p: former[p] for p in previous if p in former}
            try:
                check_numbers(self._fed, self.outputs, before, buffers, bound, self._what, added)
            except FloatingPointError:
                for position, target in targets.items():
                    target[...] = former[position]
                raise
        theirs = self._objects(given, out)
        note_writes(theirs[p] for p in buffers if p in theirs)
        written = tuple(theirs.get(p, self._returned(p, a, given)) for p, a in buffers.items())
        return written if self._several else written[0] if written else None

    def _there(self, given: Sequence[Any], out: Any, mode: Any, sizes: Mapping[Var, int] | None) -> Any:
        """A call on arrays that lie on a GPU."""
        if (
            self._alias
            or not self._donor.is_idle
            or any(m != "write" for m in modes_of(self.outputs, mode, self._what))
        ):
            raise ValueError(f"{self._what}: alias=, donate= and mode= take arrays in the CPU's memory; use out=")
        if self._constants and self._core.target.backend == "cuda":  # else it is refused
            given = [*given[: len(self.inputs)], *self._constants_like(given, out)]
        ran = run_on_gpu(self._core, (self._fed, self.outputs), given, out, sizes, self._sizes, self._what)
        note_writes(listed(out))
        self._stats = Stats(bytes=ran.nbytes, buffers=lambda: self._core.temporary_bytes(ran.sizes), on_device=True)
        if ran.again is not None and not sizes and (key := key_of_tensors(given)) is not None:
            if len(self._tensors) >= MOST_CALLS:
                self._tensors.clear()
            self._tensors[key] = ran.again, self._stats
        return tuple(ran.results) if self._several else ran.results[0]

    def _constants_like(self, given: Sequence[Any], out: Any) -> list[Any]:
        """The constants on the GPU on which the arrays of a call lie."""
        like = next(a for a in (*given, *listed(out)) if is_on_gpu(a))
        place = str(getattr(like, "device", None))
        if place not in self._constants_there:
            self._constants_there[place] = [constant_on(like, t, a, self._what) for t, a in self.constants.items()]
        return self._constants_there[place]

    def again(self, given: Sequence[Any]) -> Any:
        """A call on tensors of PyTorch on a GPU as there was one before; None if there was none."""
        found = self._tensors.get(key_of_tensors(given))
        if found is None:
            return None
        call, self._stats = found
        results = call.run(given)
        return tuple(results) if self._several else results[0]

    def _run(
        self, core: Core, memory: CallMemory, modes: tuple[str, ...], sizes: Mapping[Var, int], given: Sequence[Any]
    ) -> None:
        changed = True
        try:
            core.run(memory, modes, sizes)
        except KernelError as error:
            changed = error.requirement is None  # else nothing was written: see Placing
            raise self.explained(error) from None
        except (IndexError, ValueError, TypeError):
            changed = False
            raise
        finally:
            if changed:
                self._donor.give(given)

    def _objects(self, given: Sequence[Any], out: Any) -> dict[int, Any]:
        """Arrays of other libraries that results are written into, which are returned themselves."""
        found = {p: given[k] for p, k in self._alias.items() if k not in self._donor.taken}
        found.update(given_outputs(self.outputs, out, self._what))
        return {p: v for p, v in found.items() if type(v) is not np.ndarray}

    def _returned(self, position: int, array: Array, given: Sequence[Any]) -> Any:
        """What a call returns for an output: the caller's object where the result is on it."""
        source = self._donor.source(position)
        if source is not None and array is given[source]:
            return take(array, self._donor.call(source))
        return array

    def _remember(self, call: PreparedCall, memory: CallMemory, given: Sequence[Any]) -> None:
        """Keep what a further call on the same shapes and strides needs, if it can run on its arrays as they are."""
        core, targets = call.core, call.targets
        outputs = [memory.outputs[p] for p in sorted(memory.outputs)]
        as_given = all(a is given[k] for a, k in zip(memory.inputs, call.positions, strict=True))
        as_given = as_given and all(memory.outputs[p] is t for p, t in targets.items() if p in memory.outputs)
        as_given = as_given and all(type(a) is np.ndarray for a in given) and self._donor.is_idle and core.is_remembered
        own = self._accumulating is not None and call.core is self._accumulating[0].core
        adds = not own and not call.is_own and len(targets) == len(outputs) and all(m == "add" for m in call.modes)
        adds = adds and all(memory.previous[p] is t for p, t in targets.items())
        if not as_given or len(outputs) != len(self.outputs) or not (own or adds or call.is_plain):
            return
        on_inputs = call.is_own and bool(targets)
        if len(targets) not in (0, len(outputs)) and not on_inputs:
            return
        if any(a.size == 0 for a in outputs) or core.has_empty_stage(memory, call.sizes):
            return
        made = core.prepared(memory, call.modes, call.sizes)
        count = len(self._fed)
        previous = [self._alias[p] if own else count + p for p in made.added]
        order = [*call.positions, *previous, *(count + p for p in made.order)]
        keyed = list(given) if on_inputs or not targets else [*given, *outputs]
        results = tuple(self._alias[p] if on_inputs and p in self._alias else (a.shape, a.dtype)
                        for p, a in enumerate(outputs))  # fmt: skip
        prepared = self._adding if adds else self._prepared
        if len(prepared) >= MOST_CALLS:
            prepared.clear()
        key = tuple((np.ndarray, a.dtype, a.shape, a.strides) for a in keyed)
        safe = call.safe(outputs, {p: self._alias[p] for p in made.added} if own else {})
        prepared[key] = _Prepared(made.run, results, tuple(order), not targets, safe, self._stats)

    def _bound(self, arrays: Sequence[Array], sizes: Mapping[Var, int] | None) -> dict[Var, int]:
        """The value of every size of the program."""
        bound = bind_sizes(self._fed, [a.shape for a in arrays], sizes, self._what)
        for tensor in self.outputs:
            concrete_shape(tensor, bound, self._what)  # says which size is missing
        return bound

    def explained(self, error: KernelError) -> Exception:
        """A failed call in the user's words."""
        plan = self._core.planner.plan
        if error.requirement is None and plan is not None and plan.promises:
            said = "; ".join(f"{described(step.directive)} at {step.where}" for step in plan.promises)
            return ScheduleError(
                f"{self._what}: the schedule promises what may not hold at this call ({said}): {error}"
            )
        text = error.explanation or self._core.explanation(error)
        if not text:
            return error
        if self._sizes is not None:  # the core was made for a program like ours, which was written elsewhere
            theirs = operations_between(self._core.inputs, self._core.outputs)
            ours = operations_between(self._fed, self.outputs)
            places = {a.where: b.where for a, b in zip(theirs, ours, strict=True)}
            text = re.sub("|".join(map(re.escape, places)), lambda match: places[match[0]], text)
        return IndexError(text)

    def _targets(
        self, out: Any, modes: tuple[str, ...], given: Sequence[Any], arrays: Sequence[Array],
        shapes: Sequence[tuple[int, ...]],
    ) -> dict[int, Array]:  # fmt: skip
        """The arrays to write into, by the position of the output, checked."""
        targets, places = dict[int, Array](), dict[int, str]()
        asked = given_outputs(self.outputs, out, self._what)
        for p, value in asked.items():
            if modes[p] != "null":
                places[p] = f"{self._what}: out= for {self.outputs[p].name!r}"
                targets[p] = writable(value, places[p])
        for p, k in self._alias.items():
            if modes[p] != "null" and p not in asked:
                name = self._fed[k].name
                places[p] = f"{self._what}: input {name!r}, into which {self.outputs[p].name!r} is written"
                check_is_memory(given[k], arrays[k], places[p])
                targets[p] = arrays[k]
        for position, array in targets.items():
            check_target(self.outputs[position], array, shapes[position], places[position])
        for position, mode in enumerate(modes):
            if mode == "add" and position not in targets:
                name = self.outputs[position].name
                raise ValueError(f"{self._what}: mode='add' of output {name!r} needs out=, the array to add to")
        pairs = [(p, q) for p in targets for q in targets if p < q]
        for p, q in pairs:
            if overlap(targets[p], targets[q]):
                raise AliasError(
                    f"{self._what}: the arrays given for outputs {self.outputs[p].name!r} and {self.outputs[q].name!r} "
                    "overlap in memory; give each output memory of its own"
                )
        return targets

    def _counted(
        self, core: Core, memory: CallMemory, copies: list[tuple[str, str]], bound: Mapping[Var, int]
    ) -> Stats:
        total, memory_lent = sum(a.nbytes for a in (*memory.inputs, *memory.outputs.values())), memory.lent
        return Stats(0.0, copies, total, lambda: core.temporary_bytes(bound, memory_lent), self._on_device)


def _result(where: tuple[tuple[int, ...], np.dtype[Any]] | int, arrays: Sequence[Array]) -> Array:
    return arrays[where] if isinstance(where, int) else fresh(*where)


def separate(inputs: Sequence[Array], targets: Sequence[Array], safe: Set[tuple[int, int]]) -> bool:
    """Whether outputs can be written at once: they are writable, and nothing that is read or written lies in them,
    but for what may lie there element on element."""
    for position, target in enumerate(targets):
        if not target.flags.writeable:
            return False
        for k, other in enumerate(inputs):
            if _may_share(target, other) and not (
                (position, k) in safe and (target is other or address_of(target) == address_of(other))
            ):
                return False
        for other in targets[:position]:
            if _may_share(target, other):
                return False
    return True
