"""Kernels: compiled programs that are called on arrays.

The first call on arrays of given shapes and strides checks everything and prepares an argument block; later ones find
it by one look-up. A call whose arrays cannot be passed as they are copies them, and says so in `stats`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tedsl.analysis.checked import is_checked
from tedsl.analysis.donated import DONATED, check_not_donated, donation_problem, take
from tedsl.analysis.feeds import check_array, check_dtype
from tedsl.analysis.pointwise import Array
from tedsl.analysis.sizes import bind_sizes, concrete_shape
from tedsl.backend.accumulate import Accumulating
from tedsl.backend.addresses import address_of
from tedsl.backend.aliasing import has_shared_elements, in_place_problem, overlap, same_place
from tedsl.backend.buffers import Binding, copy_reason
from tedsl.backend.core import Core, Memory
from tedsl.backend.lower import operations_between
from tedsl.backend.lower_checks import Checks
from tedsl.backend.runtime import KernelError
from tedsl.backend.variant import Form, Variant
from tedsl.backend.verify import check_numbers
from tedsl.lang.errors import AliasError, user_location
from tedsl.lang.expr import Var
from tedsl.lang.rich import Rich
from tedsl.lang.tensor import Tensor

__all__ = ["Kernel", "Stats", "separate"]

_may_share = np.may_share_memory
MODES = ("write", "add", "null")
MOST_CALLS = 256  # prepared calls kept


@dataclass(frozen=True)
class Stats:
    """What compiling took so far, and what the last call did: its copies, its own buffers, bytes of all arrays."""

    compile_ms: float = 0.0
    copies: list[tuple[str, str]] = field(default_factory=list)
    temporaries: int = 0
    bytes: int = 0
    peak_bytes: int = 0


@dataclass(frozen=True, eq=False)
class _Prepared:
    """A call for given shapes and strides: the block to run, what to allocate, and in which order to pass it."""

    binding: Binding
    results: tuple[tuple[tuple[int, ...], np.dtype[Any]] | int, ...]  # an int: the input on whose memory it is
    order: tuple[int, ...]  # positions in the inputs followed by the results
    is_fresh: bool  # every result is in memory of its own
    safe: frozenset[tuple[int, int]]  # (result, input) that may lie element on element
    stats: Stats


@dataclass(frozen=True, eq=False)
class _Call:
    """One call while it is prepared: the program to run, and what it was given."""

    core: Core
    positions: Sequence[int]  # of the program's inputs among those of the kernel
    modes: tuple[str, ...]
    sizes: Mapping[Var, int]
    arrays: Sequence[Array]
    targets: Mapping[int, Array]
    is_own: bool  # no out= was given: targets are those of alias=

    @property
    def is_plain(self) -> bool:
        return all(m == "write" for m in self.modes)


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
        donated: Mapping[int, int] | None = None,
    ) -> None:
        self.name = core.name
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        self._core = core
        self._several = several
        self._alias = dict(alias or {})
        self._on_hazard = on_hazard
        self._accumulating = accumulating
        self._donated = dict(donated or {})  # position of an input -> the output that takes its memory
        self._sizes = sizes  # our variables -> those of the core, which may have been built for another program alike
        self._prepared: dict[Any, _Prepared] = {}
        self._adding: dict[Any, _Prepared] = {}  # those in mode="add"
        self._stats = Stats()
        self._what = f"kernel {self.name!r}"

    def __call__(self, *arrays: Any, out: Any = None, mode: Any = None, sizes: Mapping[Var, int] | None = None) -> Any:
        """The outputs for these inputs, in the order of `te.build`; `out=`, `mode=` are for all, or dicts by name."""
        if (mode is None or mode == "add") and sizes is None and not DONATED and not is_checked():
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
                        call.binding.run([everything[p] for p in call.order])
                    except KernelError as error:
                        if Checks.found_infinity(error.requirement):
                            return self._general(arrays, out, mode, sizes)
                        raise self.explained(error) from None
                    self._stats = call.stats
                    return tuple(results) if self._several else results[0]
        return self._general(arrays, out, mode, sizes)

    @property
    def core(self) -> Core:
        """The program behind the kernel, for those who call its code themselves."""
        return self._core

    def compile(self) -> None:
        """Compile now what a call with contiguous arrays needs (nothing, where an extent is 0)."""
        if self._accumulating is not None:
            core, modes = self._accumulating[0].core, self._accumulating[0].modes
            if not core.is_always_empty:
                core.variant(Form(modes))
        elif not self._core.is_always_empty:
            self._core.any_variant()

    @property
    def stats(self) -> Stats:
        """Milliseconds of compiling so far, and what the last call did."""
        spent = self._core.compile_ms + (self._accumulating[0].core.compile_ms if self._accumulating else 0.0)
        return replace(self._stats, compile_ms=spent)

    def source(self, kind: str = "stmt") -> str:
        """What the compiler made of the program: "stmt", "asm", "llvm", or "ptx" for a GPU."""
        return self._shown().source(kind)

    def loop_nest(self) -> str:
        """The loops in the order in which they run."""
        return self._shown().loop_nest

    def _shown(self) -> Variant:
        return (self._accumulating[0].core if self._accumulating else self._core).any_variant()

    def __repr__(self) -> str:
        """Name, target, inputs and outputs."""
        inputs, outputs = (", ".join(map(repr, tensors)) for tensors in (self.inputs, self.outputs))
        return f"Kernel {self.name!r} for {self._core.target.name}: ({inputs}) -> ({outputs})"

    def _general(self, given: Sequence[Any], out: Any, mode: Any, sizes: Mapping[Var, int] | None) -> Any:
        if len(given) != len(self.inputs):
            names = ", ".join(t.name for t in self.inputs)
            raise TypeError(f"{self._what}: expected {len(self.inputs)} arrays ({names}), found {len(given)}")
        self._check_donations(given, out)
        arrays = [check_array(t, _as_array(v), self._what) for t, v in zip(self.inputs, given, strict=True)]
        bound = self._bound(arrays, sizes)
        shapes = [concrete_shape(t, bound, self._what) for t in self.outputs]
        modes = self._modes(mode)
        accumulating = self._accumulating if out is None and mode is None else None
        core, renamed = (self._core, self._sizes) if accumulating is None else (accumulating[0].core, accumulating[1])
        core_sizes = bound if renamed is None else {renamed.get(v, v): n for v, n in bound.items()}
        targets = self._targets(out, modes, arrays, shapes)
        copies: list[tuple[str, str]] = []
        passed = [_passable(a, t, copies) for a, t in zip(arrays, self.inputs, strict=True)]
        previous = {p: _passable(targets[p], self.outputs[p], copies) for p, m in enumerate(modes) if m == "add"}
        positions: Sequence[int] = range(len(passed))
        if accumulating is not None:
            positions, modes = accumulating[0].inputs, accumulating[0].modes
            previous = {p: passed[k] for p, k in accumulating[0].previous.items()}
        given_outputs = {
            p: targets[p] if p in targets else np.empty(shapes[p], self.outputs[p].dtype.numpy)
            for p, m in enumerate(modes) if m != "null"
        }  # fmt: skip
        memory = Memory([passed[k] for k in positions], given_outputs, previous)
        call = _Call(core, positions, modes, core_sizes, arrays, targets, out is None)
        memory = self._settled(call, memory, copies)
        before = [a.copy() for a in arrays] if is_checked() else []
        self._run(core, memory, modes, core_sizes)
        for position, target in targets.items():
            if memory.outputs[position] is not target:
                target[...] = memory.outputs[position]
        self._stats = self._counted(core, memory, copies + memory.copies, core_sizes)
        if not sizes:
            self._remember(call, memory, given)
        if before:
            check_numbers(self.inputs, self.outputs, before, given_outputs, bound, self._what)
        theirs = self._objects(given, out)
        written = tuple(theirs.get(p, self._returned(p, a, given)) for p, a in given_outputs.items())
        return written if self._several else written[0] if written else None

    def _check_donations(self, given: Sequence[Any], out: Any) -> None:
        """Nothing that was given away is used; what is given away now is nobody else's."""
        named = [(t.name, v) for t, v in zip(self.inputs, given, strict=True)]
        listed = out.values() if isinstance(out, Mapping) else out if isinstance(out, (tuple, list)) else (out,)
        check_not_donated([*named, *(("out=", v) for v in listed)], self._what)
        for source, position in self._donated.items():
            name, value = named[source]
            problem = donation_problem(value)
            if sum(v is value for _, v in named) > 1:
                problem = "it is given twice"
            if problem is not None:
                raise ValueError(
                    f"{self._what}: input {name!r} is donated to output {self.outputs[position].name!r}, but "
                    f"{problem}; give a te.copy of it, or build without donate="
                )

    def _run(self, core: Core, memory: Memory, modes: tuple[str, ...], sizes: Mapping[Var, int]) -> None:
        try:
            core.run(memory, modes, sizes)
        except KernelError as error:
            raise self.explained(error) from None

    def _objects(self, given: Sequence[Any], out: Any) -> dict[int, Any]:
        """Arrays of other libraries that results are written into, which are returned themselves."""
        found = {p: given[k] for p, k in self._alias.items() if k not in self._donated}
        found.update(self._given_outputs(out))
        return {p: v for p, v in found.items() if type(v) is not np.ndarray}

    def _returned(self, position: int, array: Array, given: Sequence[Any]) -> Any:
        """What a call returns for an output: the caller's object where the result is on it."""
        for source, taken in self._donated.items():
            if taken == position and array is given[source]:
                return take(array, f"{self._what} as {self.inputs[source].name!r} at {user_location()}")
        return array

    def _settled(self, call: _Call, memory: Memory, copies: list[tuple[str, str]]) -> Memory:
        """The outputs that cannot be computed where they are wanted moved to temporaries, or AliasError."""
        outputs = dict(memory.outputs)
        shared: dict[int, tuple[Tensor, ...]] = {}
        reasons: dict[int, str] = {}
        for position in [*call.targets, *call.targets]:  # twice: a copy may change the compiled form
            target = call.targets[position]
            if position in reasons or position not in outputs:
                continue
            now = replace(memory, outputs=outputs)
            reason, sources = self._problem(call, now, position, target)
            if reason is not None:
                reasons[position] = reason
                outputs[position] = np.empty(target.shape, target.dtype)
                shared.pop(position, None)
            elif sources:
                shared[position] = sources
        copies += [(self.outputs[p].name, reason) for p, reason in reasons.items()]
        return replace(memory, outputs=outputs, shared=shared)

    def _problem(
        self, call: _Call, memory: Memory, position: int, target: Array
    ) -> tuple[str | None, tuple[Tensor, ...]]:
        """Why an output goes through a temporary; else the inputs in whose memory it is written element on element."""
        reason: str | None = None
        sources: list[Tensor] = []
        for k, core_input in zip(call.positions, call.core.inputs, strict=True):
            array = call.arrays[k]
            if not overlap(array, target):
                continue
            if not same_place(array, target) or call.core.has_empty_stage(memory, call.sizes):
                reason = f"overlaps input {self.inputs[k].name!r}"
            else:
                variant = call.core.variant(call.core.form(memory, call.modes, call.sizes))
                reason = in_place_problem(variant, position, self.outputs[position], self.inputs[k], core_input)
                sources.append(core_input)
            if reason is not None:
                break
        for p, previous in memory.previous.items():
            if reason is None and p != position and overlap(previous, target):
                reason = f"overlaps what {self.outputs[p].name!r} is added to"
        policy = self._on_hazard or ("error" if position in self._alias and call.is_own else "copy")
        if reason is not None and policy == "error":
            raise AliasError(
                f"{self._what}: the array given for output {self.outputs[position].name!r} {reason}; it may be read "
                "after it is written: give it memory of its own, or build with on_hazard='copy'"
            )
        return reason or copy_reason(target.shape, target.strides, target.itemsize), tuple(sources)

    def _remember(self, call: _Call, memory: Memory, given: Sequence[Any]) -> None:
        """Keep what a further call on the same shapes and strides needs, if it can run on its arrays as they are."""
        core, targets = call.core, call.targets
        outputs = [memory.outputs[p] for p in sorted(memory.outputs)]
        as_given = all(a is given[k] for a, k in zip(memory.inputs, call.positions, strict=True))
        as_given = as_given and all(memory.outputs[p] is t for p, t in targets.items() if p in memory.outputs)
        as_given = as_given and all(type(a) is np.ndarray for a in given) and not self._donated and core.is_single
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
        variant, binding = core.bind(memory, call.modes, call.sizes)
        count = len(self.inputs)
        previous = [self._alias[p] if own else count + p for p in variant.added]
        order = [*call.positions, *previous, *(count + p for p in variant.order)]
        keyed = list(given) if on_inputs or not targets else [*given, *outputs]
        results = tuple(self._alias[p] if on_inputs and p in self._alias else (a.shape, a.dtype)
                        for p, a in enumerate(outputs))  # fmt: skip
        prepared = self._adding if adds else self._prepared
        if len(prepared) >= MOST_CALLS:
            prepared.clear()
        key = tuple((np.ndarray, a.dtype, a.shape, a.strides) for a in keyed)
        safe = self._safe(call, variant, outputs, own=own)
        prepared[key] = _Prepared(binding, results, tuple(order), not targets, safe, self._stats)

    def _safe(
        self, call: _Call, variant: Variant, outputs: Sequence[Array], *, own: bool
    ) -> frozenset[tuple[int, int]]:
        """The outputs and inputs of equal layout that may lie element on element."""
        found = {(p, self._alias[p]) for p in variant.added} if own else set()
        for k, core_input in zip(call.positions, call.core.inputs, strict=True):
            array = call.arrays[k]
            for p, output in enumerate(outputs):
                same = (array.dtype, array.shape, array.strides) == (output.dtype, output.shape, output.strides)
                if same and variant.hazard(p, core_input) is None:
                    found.add((p, k))
        return frozenset(found)

    def _bound(self, arrays: Sequence[Array], sizes: Mapping[Var, int] | None) -> dict[Var, int]:
        """The value of every size of the program."""
        bound = bind_sizes(self.inputs, [a.shape for a in arrays], sizes, self._what)
        for tensor in self.outputs:
            concrete_shape(tensor, bound, self._what)  # says which size is missing
        return bound

    def explained(self, error: KernelError) -> Exception:
        """A failed call in the user's words."""
        checks = self._core.any_variant().lowered.checks
        if error.requirement is None or checks is None:
            return error
        text = str(checks.error(error.requirement))
        if self._sizes is not None:  # the core was made for a program like ours, which was written elsewhere
            theirs = operations_between(self._core.inputs, self._core.outputs)
            ours = operations_between(self.inputs, self.outputs)
            places = {a.where: b.where for a, b in zip(theirs, ours, strict=True)}
            text = re.sub("|".join(map(re.escape, places)), lambda match: places[match[0]], text)
        return IndexError(text)

    def _modes(self, mode: Any) -> tuple[str, ...]:
        names = [t.name for t in self.outputs]
        given = {} if mode is None else mode if isinstance(mode, Mapping) else dict.fromkeys(names, mode)
        for name, value in given.items():
            if name not in names:
                raise ValueError(f"{self._what}: mode= names {name!r}; the outputs are {', '.join(names)}")
            if value not in MODES:
                raise ValueError(f"{self._what}: mode of {name!r}: expected one of {', '.join(MODES)}, found {value!r}")
        return tuple(given.get(name, "write") for name in names)

    def _targets(
        self, out: Any, modes: tuple[str, ...], arrays: Sequence[Array], shapes: Sequence[tuple[int, ...]]
    ) -> dict[int, Array]:
        """The arrays to write into, by the position of the output, checked."""
        targets = {p: arrays[k] for p, k in self._alias.items() if modes[p] != "null"}
        given = self._given_outputs(out)
        targets.update((p, _writable(a)) for p, a in given.items() if modes[p] != "null")
        for position, array in targets.items():
            self._check_target(position, array, shapes[position])
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

    def _given_outputs(self, out: Any) -> dict[int, Any]:
        names = [t.name for t in self.outputs]
        if out is None:
            return {}
        if isinstance(out, Mapping):
            for name in out:
                if name not in names:
                    raise ValueError(f"{self._what}: out= names {name!r}; the outputs are {', '.join(names)}")
            return {p: out[name] for p, name in enumerate(names) if out.get(name) is not None}
        listed = list(out) if isinstance(out, (tuple, list)) else [out]
        if len(listed) != len(names):
            raise ValueError(
                f"{self._what}: out= must hold {len(names)} arrays ({', '.join(names)}), found {len(listed)}"
            )
        return {p: array for p, array in enumerate(listed) if array is not None}

    def _check_target(self, position: int, array: Any, shape: tuple[int, ...]) -> None:
        tensor = self.outputs[position]
        place = f"{self._what}: out= for {tensor.name!r}"
        if not isinstance(array, np.ndarray):
            raise TypeError(f"{place}: expected a NumPy array to write into, found {type(array).__name__}")
        check_dtype(array, tensor.dtype, place)
        if array.shape != shape:
            raise ValueError(f"{place}: expected shape {shape}, found {array.shape}")
        if not array.flags.writeable:
            raise ValueError(f"{place}: the array is read-only; give one that can be written")
        if has_shared_elements(array):
            raise ValueError(f"{place}: elements of the array share memory (its strides meet); give one of its own")

    def _counted(self, core: Core, memory: Memory, copies: list[tuple[str, str]], bound: Mapping[Var, int]) -> Stats:
        total = sum(a.nbytes for a in (*memory.inputs, *memory.outputs.values()))
        sizes = core.temporary_bytes(bound)
        return Stats(copies=copies, temporaries=len(sizes), bytes=total, peak_bytes=total + sum(sizes))


def _result(where: tuple[tuple[int, ...], np.dtype[Any]] | int, arrays: Sequence[Array]) -> Array:
    return arrays[where] if isinstance(where, int) else np.empty(*where)


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


def _as_array(value: Any) -> Any:
    """A NumPy view of another library's array; everything else is left to the check."""
    if isinstance(value, (np.ndarray, np.generic, bool, int, float)) or hasattr(value, "__array__"):
        return value
    if hasattr(value, "__array_interface__"):
        return np.asarray(value)
    return np.from_dlpack(value) if hasattr(value, "__dlpack__") else value


def _writable(value: Any) -> Any:
    """A NumPy view of an array to write into; everything else is left to the check."""
    if isinstance(value, (np.ndarray, np.generic)) or not hasattr(value, "__array__"):
        return value
    return np.asarray(value.detach() if hasattr(value, "detach") else value)


def _passable(array: Array, tensor: Tensor, copies: list[tuple[str, str]]) -> Array:
    """The array, or a copy of it where Halide cannot hold its strides."""
    reason = copy_reason(array.shape, array.strides, array.itemsize)
    if reason is None and not array.flags.aligned:
        reason = "its elements are not aligned in memory"
    if reason is None:
        return array
    copies.append((tensor.name, reason))
    return np.array(array, order="C")
