"""Calls prepared for further ones on arrays of the same shapes and strides, which then need one look-up."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence, Set
from typing import Any

import numpy as np

from tedsl.analysis.pointwise import Array
from tedsl.backend.arguments.addresses import address_of
from tedsl.backend.arguments.array_calls import ArrayCall, Passed, array_call
from tedsl.backend.calling.general_call import CallAnswer
from tedsl.backend.calling.in_place import PreparedCall
from tedsl.backend.calling.signature import KernelParts
from tedsl.backend.calling.stats import Stats
from tedsl.backend.compiling.executable import CallMemory
from tedsl.backend.sequence.arena import maker_of
from tedsl.lang.dataclass import dataclass
from tedsl.lang.locks import cached_property

__all__ = ["MOST_CALLS", "KnownCall", "PreparedCalls", "separate"]

_may_share = np.may_share_memory
MOST_CALLS = 256  # prepared calls kept
FEW_TARGETS = 4  # up to which every pair of arrays is compared
MOST_PAIRS = 64  # likewise, by code


@dataclass(frozen=True, eq=False)
class KnownCall:
    """A call for given shapes and strides: the block to run, what to allocate, and in which order to pass it."""

    run: Callable[[Sequence[Array]], None]
    results: tuple[tuple[tuple[int, ...], np.dtype[Any]] | int, ...]  # an int: the input on whose memory it is
    order: tuple[int, ...]  # positions in the inputs followed by the results
    is_fresh: bool  # every result is in memory of its own
    safe: frozenset[tuple[int, int]]  # (result, input) that may lie element on element
    stats: Stats
    make_quick: Callable[[], ArrayCall | None]

    @cached_property
    def fresh(self) -> tuple[Callable[[], Array], ...]:
        """What makes the results, where all are in memory of their own."""
        return tuple(functools.partial(maker_of(*r), *r) for r in self.results if not isinstance(r, int))

    @cached_property
    def quick(self) -> ArrayCall | None:
        """The same without Python, on the inputs followed by the results; where there is one, for the third call."""
        return self.make_quick()


class PreparedCalls:
    """Those of one kernel, by the types, dtypes, shapes and strides of their arrays, which are aligned."""

    def __init__(self, kernel: KernelParts) -> None:
        self.kernel = kernel
        self.writing: dict[Any, KnownCall] = {}
        self.adding: dict[Any, KnownCall] = {}  # those in mode="add"

    def remember(self, answer: CallAnswer, given: Sequence[Any]) -> None:
        """Keep what a further call like this one needs, if it can run on its arrays as they are."""
        call, memory, alias = answer.call, answer.memory, self.kernel.signature.alias
        outputs = [memory.outputs[p] for p in sorted(memory.outputs)]
        on_inputs = call.is_own and bool(call.targets)
        is_known = self._is_as_given(call, memory, given) and self._is_complete(call, outputs, on_inputs=on_inputs)
        adds = _adds_all(call, memory, outputs)
        if not is_known or not (call.chosen.adds_to is not None or adds or call.is_plain):
            return
        chosen = call.chosen
        if any(a.size == 0 for a in outputs) or call.core.program.facts.has_empty_stage(memory.inputs, chosen.sizes):
            return
        made, count = call.core.prepared(memory, chosen.modes, chosen.sizes), len(given)
        sources = {} if chosen.adds_to is None else {p: alias[p] for p in made.added}
        order = [*chosen.positions, *(sources.get(p, count + p) for p in made.added), *(count + p for p in made.order)]
        results = tuple(alias[p] if on_inputs and p in alias else (a.shape, a.dtype) for p, a in enumerate(outputs))
        keyed = list(given) if on_inputs or not call.targets else [*given, *outputs]
        key = tuple((np.ndarray, a.dtype, a.shape, a.strides, a.flags.aligned) for a in keyed)
        safe = call.safe(outputs, sources)
        passed = _Arrays(given, outputs, safe, is_fresh=not call.targets)
        quick = functools.partial(passed.quick, made.run, order) if not on_inputs else _nothing
        known = KnownCall(made.run, results, tuple(order), not call.targets, safe, answer.stats, quick)
        _put(self.adding if adds else self.writing, key, known)

    def _is_as_given(self, call: PreparedCall, memory: CallMemory, given: Sequence[Any]) -> bool:
        """Whether the call ran on NumPy's arrays as they are, and took none away."""
        inputs = zip(memory.inputs, call.chosen.positions, strict=True)
        return (
            all(a is given[k] for a, k in inputs)
            and all(memory.outputs[p] is t for p, t in call.targets.items() if p in memory.outputs)
            and all(type(a) is np.ndarray for a in given)
            and self.kernel.donor.is_idle
            and call.core.is_remembered
        )

    def _is_complete(self, call: PreparedCall, outputs: Sequence[Array], *, on_inputs: bool) -> bool:
        """Whether all outputs were computed, and either all or none of them in arrays of the caller's."""
        all_or_none = len(call.targets) in (0, len(outputs)) or on_inputs
        return len(outputs) == len(self.kernel.signature.outputs) and all_or_none


class _Arrays:
    """What a call is passed, without the arrays themselves."""

    def __init__(
        self, given: Sequence[Array], outputs: Sequence[Array], safe: Set[tuple[int, int]], *, is_fresh: bool
    ) -> None:
        count = len(given)
        self.passed = [Passed(a.dtype, a.shape, a.strides) for a in given]
        self.passed += [Passed(a.dtype, a.shape, a.strides, is_written=True, is_known=is_fresh) for a in outputs]
        self.pairs = list[tuple[int, int, bool]]()
        for p in range(0 if is_fresh else len(outputs)):
            self.pairs += [(count + p, k, (p, k) in safe) for k in range(count)]
            self.pairs += [(count + p, count + q, False) for q in range(p)]

    def quick(self, run: Callable[..., Any], order: Sequence[int]) -> ArrayCall | None:
        """The call by code that looks at the arrays itself, where there is one."""
        return array_call(run, self.passed, order, self.pairs) if len(self.pairs) <= MOST_PAIRS else None


def _nothing() -> None:
    """Of a call that needs Python."""


def _adds_all(call: PreparedCall, memory: CallMemory, outputs: Sequence[Array]) -> bool:
    """Whether it is a call in mode="add" that adds to each array of out= itself."""
    adds = call.chosen.adds_to is None and not call.is_own and len(call.targets) == len(outputs)
    adds = adds and all(m == "add" for m in call.chosen.modes)
    return adds and all(memory.previous[p] is t for p, t in call.targets.items())


def _put(calls: dict[Any, KnownCall], key: Any, known: KnownCall) -> None:
    if len(calls) >= MOST_CALLS:
        calls.clear()
    calls[key] = known


def separate(inputs: Sequence[Array], targets: Sequence[Array], safe: Set[tuple[int, int]]) -> bool:
    """Whether outputs can be written at once: they are writable, and nothing that is read or written lies in them,
    but for what may lie there element on element."""
    if len(targets) > FEW_TARGETS and _are_apart(inputs, targets):
        return True
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


def _are_apart(inputs: Sequence[Array], targets: Sequence[Array]) -> bool:
    """Whether the memory of each target is its own, seen at once: of contiguous arrays, in the order of addresses."""
    spans = []
    for position, array in enumerate((*targets, *inputs)):
        flags, is_target = array.flags, position < len(targets)
        if not flags.c_contiguous or (is_target and not flags.writeable):
            return False
        begin = address_of(array)
        spans.append((begin, begin + array.nbytes, is_target))
    spans.sort()
    end = end_of_targets = 0
    for begin, stop, is_target in spans:
        if begin < (end if is_target else end_of_targets):
            return False
        end = max(end, stop)
        end_of_targets = max(end_of_targets, stop) if is_target else end_of_targets
    return True
