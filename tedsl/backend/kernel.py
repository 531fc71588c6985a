"""Kernels: compiled programs that are called on arrays.

The first call on arrays of given shapes and strides checks everything and prepares an argument block; later ones find
it by one look-up. A call whose arrays cannot be passed as they are copies them, and says so in `stats`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tedsl.analysis.feeds import check_array, check_dtype
from tedsl.analysis.pointwise import Array
from tedsl.analysis.sizes import bind_sizes, concrete_shape
from tedsl.backend.buffers import Binding, copy_reason
from tedsl.backend.core import Core, Memory
from tedsl.backend.lower import operations_between
from tedsl.backend.lower_checks import Checks
from tedsl.backend.runtime import KernelError
from tedsl.lang.errors import AliasError
from tedsl.lang.expr import Var
from tedsl.lang.tensor import Tensor

__all__ = ["Kernel", "Stats"]

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
    results: tuple[tuple[tuple[int, ...], np.dtype[Any]], ...]
    order: tuple[int, ...]
    stats: Stats


class Kernel:
    """A compiled program: `kern(a, b)` computes new arrays, `kern(a, b, out=c, mode="add")` writes into given ones."""

    def __init__(
        self,
        core: Core,
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        several: bool,
        alias: Mapping[int, int] | None = None,
        sizes: Mapping[Var, Var] | None = None,
        on_hazard: str = "copy",
    ) -> None:
        self.name = core.name
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        self._core = core
        self._several = several
        self._alias = dict(alias or {})
        self._on_hazard = on_hazard
        self._sizes = sizes  # our variables -> those of the core, which may have been built for another program alike
        self._prepared: dict[Any, _Prepared] = {}
        self._stats = Stats()
        self._what = f"kernel {self.name!r}"

    def __call__(self, *arrays: Any, out: Any = None, mode: Any = None, sizes: Mapping[Var, int] | None = None) -> Any:
        """The outputs for these inputs, in the order of `te.build`; `out=`, `mode=` are for all, or dicts by name."""
        if mode is None and sizes is None:
            targets = () if out is None else out if out.__class__ is tuple else (out,)
            try:
                call = self._prepared[tuple([(a.__class__, a.dtype, a.shape, a.strides) for a in (*arrays, *targets)])]
            except (AttributeError, KeyError, TypeError):
                pass
            else:
                if not targets or _separate(arrays, targets):
                    results = targets or [np.empty(shape, kind) for shape, kind in call.results]
                    try:
                        call.binding.run([*arrays, *[results[p] for p in call.order]])
                    except KernelError as error:
                        if Checks.found_infinity(error.requirement):
                            return self._general(arrays, out, mode, sizes)
                        raise self._explained(error) from None
                    self._stats = call.stats
                    return tuple(results) if self._several else results[0]
        return self._general(arrays, out, mode, sizes)

    def compile(self) -> None:
        """Compile now what a call with contiguous arrays needs (nothing, where an extent is 0)."""
        if not self._core.is_always_empty:
            self._core.any_variant()

    @property
    def stats(self) -> Stats:
        """Milliseconds of compiling so far, and what the last call did."""
        return replace(self._stats, compile_ms=self._core.compile_ms)

    def source(self, kind: str = "stmt") -> str:
        """What the compiler made of the program: "stmt", "asm", "llvm", or "ptx" for a GPU."""
        return self._core.any_variant().source(kind)

    def loop_nest(self) -> str:
        """The loops in the order in which they run."""
        return self._core.any_variant().loop_nest

    def __repr__(self) -> str:
        """Name, target, inputs and outputs."""
        inputs, outputs = (", ".join(map(repr, tensors)) for tensors in (self.inputs, self.outputs))
        return f"Kernel {self.name!r} for {self._core.target.name}: ({inputs}) -> ({outputs})"

    def _general(self, given: Sequence[Any], out: Any, mode: Any, sizes: Mapping[Var, int] | None) -> Any:
        if len(given) != len(self.inputs):
            names = ", ".join(t.name for t in self.inputs)
            raise TypeError(f"{self._what}: expected {len(self.inputs)} arrays ({names}), found {len(given)}")
        arrays = [check_array(t, _as_array(v), self._what) for t, v in zip(self.inputs, given, strict=True)]
        bound = self._bound(arrays, sizes)
        shapes = [concrete_shape(t, bound, self._what) for t in self.outputs]
        modes = self._modes(mode)
        targets = self._targets(out, modes, arrays, shapes)
        copies: list[tuple[str, str]] = []
        passed = [_passable(a, t, copies) for a, t in zip(arrays, self.inputs, strict=True)]
        buffers = {
            p: self._buffer(p, targets.get(p), shapes[p], arrays, copies) for p, m in enumerate(modes) if m != "null"
        }
        previous = {p: _passable(targets[p], self.outputs[p], copies) for p, m in enumerate(modes) if m == "add"}
        memory = Memory(passed, buffers, previous)
        core_sizes = bound if self._sizes is None else {self._sizes.get(v, v): n for v, n in bound.items()}
        try:
            self._core.run(memory, modes, core_sizes)
        except KernelError as error:
            raise self._explained(error) from None
        for position, target in targets.items():
            if buffers[position] is not target:
                target[...] = buffers[position]
        self._stats = self._counted(memory, copies, core_sizes)
        as_given = all(a is b for a, b in zip((*passed, *buffers.values()), (*given, *targets.values())))
        if as_given and len(targets) in (0, len(self.outputs)) and not sizes and not self._alias and not previous:
            self._remember(memory, modes, core_sizes, len(targets))
        written = tuple(targets.get(p, buffers[p]) for p in buffers)
        return written if self._several else written[0] if written else None

    def _remember(self, memory: Memory, modes: tuple[str, ...], sizes: Mapping[Var, int], targets: int) -> None:
        """Keep what a further call on the same shapes and strides needs."""
        core = self._core
        if not core.is_single or "null" in modes or any(a.size == 0 for a in memory.outputs.values()):
            return
        if any(type(a) is not np.ndarray for a in memory.inputs) or core.has_empty_stage(memory, sizes):
            return
        variant, binding = core.bind(memory, modes, sizes)
        if len(self._prepared) >= MOST_CALLS:
            self._prepared.clear()
        outputs = [memory.outputs[p] for p in sorted(memory.outputs)]
        keyed = [*memory.inputs, *outputs[:targets]]
        key = tuple((np.ndarray, a.dtype, a.shape, a.strides) for a in keyed)
        results = tuple((a.shape, a.dtype) for a in outputs)
        self._prepared[key] = _Prepared(binding, results, variant.order, self._stats)

    def _bound(self, arrays: Sequence[Array], sizes: Mapping[Var, int] | None) -> dict[Var, int]:
        """The value of every size of the program."""
        bound = bind_sizes(self.inputs, [a.shape for a in arrays], sizes, self._what)
        for tensor in self.outputs:
            concrete_shape(tensor, bound, self._what)  # says which size is missing
        return bound

    def _explained(self, error: KernelError) -> Exception:
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
        targets.update((p, a) for p, a in self._given_outputs(out).items() if modes[p] != "null")
        for position, array in targets.items():
            self._check_target(position, array, shapes[position])
        for position, mode in enumerate(modes):
            if mode == "add" and position not in targets:
                name = self.outputs[position].name
                raise ValueError(f"{self._what}: mode='add' of output {name!r} needs out=, the array to add to")
        pairs = [(p, q) for p in targets for q in targets if p < q]
        for p, q in pairs:
            if _overlap(targets[p], targets[q]):
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
        if any(n > 1 and s == 0 for n, s in zip(array.shape, array.strides, strict=True)):
            raise ValueError(f"{place}: elements of the array share memory (a stride is 0); give an array of its own")

    def _buffer(
        self,
        position: int,
        target: Array | None,
        shape: tuple[int, ...],
        arrays: Sequence[Array],
        copies: list[tuple[str, str]],
    ) -> Array:
        """The memory in which an output is computed: the one given, unless that disturbs what is still to be read."""
        tensor = self.outputs[position]
        if target is None:
            return np.empty(shape, tensor.dtype.numpy)
        reason = next(
            (f"overlaps input {t.name!r}" for t, a in zip(self.inputs, arrays, strict=True) if _overlap(a, target)),
            None,
        )
        if reason is not None and self._on_hazard == "error":
            raise AliasError(
                f"{self._what}: the array given for output {tensor.name!r} {reason}, which may be read after it is "
                "written; give it memory of its own, or build with on_hazard='copy'"
            )
        reason = reason or copy_reason(target.shape, target.strides, target.itemsize)
        if reason is None:
            return target
        copies.append((tensor.name, reason))
        return np.empty(shape, target.dtype)

    def _counted(self, memory: Memory, copies: list[tuple[str, str]], bound: Mapping[Var, int]) -> Stats:
        total = sum(a.nbytes for a in (*memory.inputs, *memory.outputs.values()))
        sizes = self._core.temporary_bytes(bound)
        return Stats(copies=copies, temporaries=len(sizes), bytes=total, peak_bytes=total + sum(sizes))


def _separate(inputs: Sequence[Array], targets: Sequence[Array]) -> bool:
    """Whether outputs can be written at once: they are writable, and nothing that is read or written lies in them."""
    for position, target in enumerate(targets):
        if not target.flags.writeable:
            return False
        for other in (*inputs, *targets[:position]):
            if np.may_share_memory(target, other):
                return False
    return True


def _as_array(value: Any) -> Any:
    """A NumPy view of another library's array; everything else is left to the check."""
    if isinstance(value, (np.ndarray, np.generic, bool, int, float)) or hasattr(value, "__array__"):
        return value
    if hasattr(value, "__array_interface__"):
        return np.asarray(value)
    return np.from_dlpack(value) if hasattr(value, "__dlpack__") else value


def _passable(array: Array, tensor: Tensor, copies: list[tuple[str, str]]) -> Array:
    """The array, or a copy of it where Halide cannot hold its strides."""
    reason = copy_reason(array.shape, array.strides, array.itemsize)
    if reason is None and not array.flags.aligned:
        reason = "its elements are not aligned in memory"
    if reason is None:
        return array
    copies.append((tensor.name, reason))
    return np.array(array, order="C")


def _overlap(a: Array, b: Array) -> bool:
    return bool(np.may_share_memory(a, b)) and bool(np.shares_memory(a, b))
