"""What an operator runs: its definition for given static arguments, and what is derived from it.

A routine is a rule that turns tensors into tensors. For arrays of given dtypes and shapes it is traced once, and
compiled when it is first run. Derivatives and batched forms are routines themselves, so they have derivatives and
batched forms in turn.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import partial
from typing import Any

import numpy as np

from autodiff import differentiate, jvp
from schedules import Schedule
from tedsl.analysis.arrays.nests import map_nest
from tedsl.analysis.sizes import bind_sizes, concrete_shape
from tedsl.backend.build import build
from tedsl.backend.calling.kernel import Kernel
from tedsl.lang.batching import batched
from tedsl.lang.compute import placeholder
from tedsl.lang.dataclass import dataclass
from tedsl.lang.elements import tensor_of
from tedsl.lang.expr import Read
from tedsl.lang.locks import freed_in_children
from tedsl.lang.tensor import Extern, Tensor
from tedsl.lang.traverse import stages_of
from tedsl.ops.arrays import Static
from tedsl.ops.recurring import Recurrence
from tedsl.ops.shapes import Pattern, Spec, all_apart, fits, is_numeric, kind_of, opened, pattern_of, with_keys

__all__ = [
    "USUAL", "Batched", "Pullback", "Pushforward", "Routine", "Tensors", "TracedRoutine", "Worth", "copied", "distinct",
    "pushed",
]  # fmt: skip

Tensors = tuple[Tensor, ...]
MOST_SHAPES = 4  # beyond so many, a routine whose extents may be symbols is compiled once for all others


@dataclass(frozen=True)
class Worth:
    """What kernels of a routine are worth, as of te.build: the work of the default schedule, and memory."""

    opt: str = "default"
    memory: int | str | None = None


USUAL = Worth()


@dataclass(eq=False)
class TracedRoutine:
    """A routine for arrays of given shapes: `outputs` over `inputs`, and the nest in which results are returned."""

    inputs: Tensors
    outputs: Tensors
    result: Any
    name: str
    schedule: Callable[[str], Schedule | None]  # for "host" or "cuda"
    pattern: Pattern | None = None  # which extents are symbols, if any are
    worth: Worth = USUAL
    kernels: dict[str, Kernel] = field(default_factory=dict)  # compiled, by their targets
    _lock: threading.Lock = field(default_factory=lambda: freed_in_children(threading.Lock()))

    @property
    def is_symbolic(self) -> bool:
        return self.pattern is not None

    @property
    def kernel(self) -> Kernel:
        """The kernel for the CPU."""
        return self.kernels.get("host") or self.kernel_for("host")

    def kernel_for(self, target: str) -> Kernel:
        """Compiled at the first use; gives a tuple."""
        found = self.kernels.get(target)
        if found is None:
            with self._lock:
                found = self.kernels.get(target)
                if found is None:
                    schedule = self.schedule(target.partition("-")[0])
                    found = build(
                        list(self.inputs), list(self.outputs), schedule, target, name=self.name, **vars(self.worth)
                    )
                    self.kernels[target] = found
        return found

    def output_specs(self, specs: Sequence[Spec]) -> tuple[Spec, ...]:
        """Shapes and dtypes of the results for arrays of these shapes."""
        if not self.is_symbolic:
            return tuple((t.shape, str(t.dtype)) for t in self.outputs)
        bound = bind_sizes(self.inputs, [shape for shape, _ in specs], None, self.name)
        return tuple((concrete_shape(t, bound, self.name), str(t.dtype)) for t in self.outputs)

    def nested(self, values: Sequence[Any]) -> Any:
        """Results in the nest in which the function returned its tensors."""
        if isinstance(self.result, int):
            return values[self.result]
        return map_nest(self.result, lambda p: p.value if isinstance(p, Static) else values[p])


class Routine:
    """A rule that turns tensors into tensors; compared by identity, derived ones are made once."""

    name: str
    label: str  # of a definition: the call; of what is derived: how, from which `derived_by` makes it again
    of: Routine | None = None
    input_names: tuple[str, ...]
    symbolic: bool | None = None  # extents as symbols: always, never, or once there were many shapes
    worth: Worth = USUAL

    def __init__(self) -> None:
        self.traces: dict[tuple[Spec, ...], TracedRoutine] = {}
        self.own: dict[tuple[Spec, ...], TracedRoutine] = {}  # for shapes that recurred, beside those for all
        self.recurrences: dict[tuple[Spec, ...], Recurrence] = {}
        self._exact: dict[tuple[Spec, ...], TracedRoutine] = {}
        self._open: dict[Pattern, TracedRoutine | str] = {}  # with symbols, or why there is none
        self.made: dict[Any, Routine] = {}

    def trace(self, inputs: Tensors) -> tuple[Tensors, Any]:
        """The outputs for these inputs, and the nest in which they are returned (positions for tensors)."""
        raise NotImplementedError

    def outputs(self, inputs: Tensors) -> Tensors:
        """The outputs for these inputs, each in memory of its own."""
        return distinct(inputs, self.trace(inputs)[0])

    def pull(self, inputs: Tensors, wanted: Sequence[int], heads: Mapping[int, Tensor]) -> Tensors:
        """The adjoints of the `wanted` inputs, for the adjoints of outputs by position."""
        outputs = self.outputs(inputs)
        return tuple(differentiate([outputs[p] for p in heads], [inputs[p] for p in wanted], list(heads.values())))

    def push(self, inputs: Tensors, tangents: Mapping[int, Tensor]) -> Tensors:
        """The derivatives of the float outputs, for tangents of inputs by position."""
        return pushed(self.outputs(inputs), inputs, tangents)

    def schedule(self, inputs: Tensors, outputs: Tensors, kind: str) -> Schedule | None:
        """The schedule that the author gave for a kind of target; None is the default one."""
        return None

    def placeholders(self, specs: Sequence[Spec]) -> Tensors:
        """Inputs for arrays of these shapes."""
        named = zip(specs, self.input_names, strict=True)
        return tuple(placeholder(shape, dtype, name=name) for (shape, dtype), name in named)

    def schedule_backward(self, inputs: Tensors, adjoints: Tensors, kind: str) -> Schedule | None:
        """The schedule that the author gave for the reverse derivative."""
        return None

    def traced(self, specs: tuple[Spec, ...]) -> TracedRoutine:
        """The routine for arrays of these shapes and dtypes, traced once."""
        found = self.traces.get(specs)
        if found is None:
            found = self.traces.setdefault(specs, self._general(specs) or self._trace(specs))
        return found

    def exact(self, specs: tuple[Spec, ...]) -> TracedRoutine:
        """The routine for these extents alone, as numbers."""
        found = self.traced(specs)
        if found.is_symbolic:
            found = self._exact.get(specs) or self._exact.setdefault(specs, self._trace(specs))
        return found

    def running(self, specs: tuple[Spec, ...]) -> TracedRoutine:
        """What is run on arrays of these shapes: a kernel of their own, if they have one."""
        return self.own.get(specs) or self.traced(specs)

    def recurrence(self, specs: tuple[Spec, ...]) -> Recurrence | None:
        """Who watches whether a shape is worth a kernel of its own; None where that is settled, or never asked."""
        traced = self.traced(specs)
        if not traced.is_symbolic or self.symbolic is not None or self.worth.opt == "best":
            return None
        found = self.recurrences.get(specs)
        if found is None:
            found = self.recurrences.setdefault(specs, Recurrence(self, specs, traced))
            if any(isinstance(op, Extern) for op in stages_of(traced.outputs)):
                found.settle("it calls Python functions, and nothing of it is kept on the disk")
        return None if found.is_settled else found

    def run(self, arrays: Sequence[np.ndarray[Any, Any]], target: str = "host") -> tuple[Any, ...]:
        """The results for these arrays."""
        traced = self.running(tuple((a.shape, a.dtype.name) for a in arrays))
        results: tuple[Any, ...] = traced.kernel_for(target)(*arrays)
        return results

    def derived(self, kind: Callable[..., Routine], *parts: Any) -> Any:
        """The routine of a kind that is made from this one; the same object each time."""
        key = (kind, *parts)
        found = self.made.get(key)
        return found if found is not None else self.made.setdefault(key, kind(self, *parts))

    def patterns(self, specs: tuple[Spec, ...]) -> list[Pattern]:
        """What may be tried for arrays of these shapes, the best first: which extents are symbols, and which equal."""
        kind = kind_of(specs)
        seen = [s for s in list(self.traces) if is_numeric(s) and kind_of(s) == kind]
        if self.symbolic:
            open_all = [all_apart(specs), pattern_of([*seen, specs], everywhere=True)]
            return list(dict.fromkeys([*open_all, *(with_keys(pattern, specs) for pattern in open_all)]))
        found = pattern_of([*seen, specs], everywhere=False)
        return [] if found == specs else [found]

    def _general(self, specs: tuple[Spec, ...]) -> TracedRoutine | None:
        """The routine with symbols for extents, where that is wanted and possible."""
        few = self.symbolic is None and sum(not t.is_symbolic for t in list(self.traces.values())) < MOST_SHAPES
        if self.symbolic is False or few or all(0 in shape or not shape for shape, _ in specs):
            return None
        if not is_numeric(specs):
            return None  # symbols of the caller's
        opened_before = list(self._open.items())
        known = (t for pattern, t in opened_before if isinstance(t, TracedRoutine) and fits(pattern, specs))
        found = next(known, None)
        if found is None:
            for pattern in self.patterns(specs):
                found = found or self._opened(pattern, specs)
        if found is None and self.symbolic:  # it is told why: by the numbers of this call, or why it needs numbers
            self._trace(specs)
            return self._trace(opened(self.patterns(specs)[-1]), self.patterns(specs)[-1])
        return found if found is None or self.symbolic or _has_extents(found, specs) else None

    def _opened(self, pattern: Pattern, specs: tuple[Spec, ...]) -> TracedRoutine | None:
        """The routine for a pattern, made once; None where the function needs numbers, or other ones to be equal."""
        found = self._open.get(pattern)
        if found is None:
            try:
                found = self._trace(opened(pattern), pattern)
            except Exception as error:
                found = f"{type(error).__name__}: {error}"
            else:
                found = (None if self.symbolic else self._other_dtypes(found, specs)) or found
            self._open[pattern] = found
        return found if isinstance(found, TracedRoutine) else None

    @property
    def needs_numbers(self) -> list[str]:
        """Why it was compiled for single shapes where symbols were tried."""
        tried = [] if self.symbolic else list(self._open.values())
        return list(dict.fromkeys(reason for reason in tried if isinstance(reason, str)))

    def _other_dtypes(self, found: TracedRoutine, specs: tuple[Spec, ...]) -> str | None:
        """Which results do not have the dtypes that they have with numbers: beside a uint8 only a number is weak."""
        numeric = ((s, t) for s, t in list(self.traces.items()) if not t.is_symbolic and is_numeric(s))
        alike = (t for s, t in numeric if kind_of(s) == kind_of(specs))
        known = next(alike, None) or self._trace(specs)
        pairs = [(a, b.dtype) for a, b in zip(found.outputs, known.outputs, strict=True) if a.dtype != b.dtype]
        return f"{pairs[0][0]!r} would be what is {pairs[0][1]} with numbers" if pairs else None

    def _trace(self, specs: tuple[Spec, ...], pattern: Pattern | None = None) -> TracedRoutine:
        inputs = self.placeholders(specs)
        outputs, result = self.trace(inputs)
        outputs = distinct(inputs, outputs)
        schedule = partial(self.schedule, inputs, outputs)
        return TracedRoutine(inputs, outputs, result, self.name, schedule, pattern, self.worth)


def distinct(inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Tensors:
    """Outputs with memory of their own: a copy for what is an input, or an output already."""
    seen = set(inputs)
    made = []
    for tensor in outputs:
        if tensor in seen:
            tensor = copied(tensor)
        seen.add(tensor)
        made.append(tensor)
    return tuple(made)


def pushed(outputs: Sequence[Tensor], inputs: Tensors, tangents: Mapping[int, Tensor]) -> Tensors:
    """The derivatives of the float outputs, if there are any, for tangents of inputs by position."""
    floats = [t for t in outputs if t.dtype.is_float]
    return tuple(jvp(floats, [inputs[p] for p in tangents], list(tangents.values()))) if floats else ()


def _like(tensor: Tensor, name: str) -> Tensor:
    return placeholder(tensor.extents, tensor.dtype, name=name)


def copied(tensor: Tensor) -> Tensor:
    """The same elements as a tensor of its own."""
    return tensor_of(tensor.extents, lambda *axes: Read(tensor, axes), f"{tensor.name}_copy")


class Pullback(Routine):
    """Inputs, then adjoints of the outputs at `heads` -> adjoints of the `wanted` inputs."""

    def __init__(self, of: Routine, wanted: tuple[int, ...], heads: tuple[int, ...]) -> None:
        super().__init__()
        self.of: Routine = of
        self.wanted, self.heads = wanted, heads
        self.name = f"{of.name}_backward"
        self.label = f"pullback({wanted}, {heads})"
        self.input_names = (*of.input_names, *(f"head_{p}" for p in heads))
        self.symbolic, self.worth = of.symbolic, of.worth

    def placeholders(self, specs: Sequence[Spec]) -> Tensors:
        """A head has the shape of its output."""
        own = self.of.placeholders(specs[: len(self.of.input_names)])
        outputs = self.of.outputs(own)
        return (*own, *(_like(outputs[p], f"head_{p}") for p in self.heads))

    def schedule(self, inputs: Tensors, outputs: Tensors, kind: str) -> Schedule | None:
        return self.of.schedule_backward(inputs[: len(self.of.input_names)], outputs, kind)

    def trace(self, inputs: Tensors) -> tuple[Tensors, Any]:
        count = len(self.of.input_names)
        heads = dict(zip(self.heads, inputs[count:], strict=True))
        adjoints = self.of.pull(inputs[:count], self.wanted, heads)
        return adjoints, tuple(range(len(adjoints)))


class Pushforward(Routine):
    """Inputs, then tangents of the inputs at `moving` -> the derivatives of the float outputs."""

    def __init__(self, of: Routine, moving: tuple[int, ...]) -> None:
        super().__init__()
        self.of: Routine = of
        self.moving = moving
        self.name = f"{of.name}_forward"
        self.label = f"pushforward({moving})"
        self.input_names = (*of.input_names, *(f"{of.input_names[p]}_dot" for p in moving))
        self.symbolic, self.worth = of.symbolic, of.worth

    def placeholders(self, specs: Sequence[Spec]) -> Tensors:
        """A tangent has the shape of its input."""
        own = self.of.placeholders(specs[: len(self.of.input_names)])
        return (*own, *(_like(own[p], f"{own[p].name}_dot") for p in self.moving))

    def trace(self, inputs: Tensors) -> tuple[Tensors, Any]:
        count = len(self.of.input_names)
        dots = self.of.push(inputs[:count], dict(zip(self.moving, inputs[count:], strict=True)))
        return dots, tuple(range(len(dots)))


class Batched(Routine):
    """The same on inputs of which those flagged have one more axis in front; so have all outputs."""

    def __init__(self, of: Routine, flags: tuple[bool, ...]) -> None:
        super().__init__()
        self.of: Routine = of
        self.flags = flags
        self.name = f"{of.name}_batched"
        self.label = f"batched({flags})"
        self.input_names = of.input_names
        self.symbolic, self.worth = of.symbolic, of.worth

    def placeholders(self, specs: Sequence[Spec]) -> Tensors:
        """Those of one, with the batch axis where it is flagged."""
        flagged = list(zip(specs, self.flags, strict=True))
        one = self.of.placeholders([(shape[1:], dtype) if flag else (shape, dtype) for (shape, dtype), flag in flagged])
        each = zip(one, flagged, strict=True)
        return tuple(placeholder((s[0], *t.extents), t.dtype, name=t.name) if flag else t for t, ((s, _), flag) in each)

    def trace(self, inputs: Tensors) -> tuple[Tensors, Any]:
        one = [_unbatched(t) if flag else t for t, flag in zip(inputs, self.flags, strict=True)]
        outputs, result = self.of.trace(tuple(one))
        return self._each(distinct(one, outputs), dict(zip(one, inputs, strict=True))), result

    def pull(self, inputs: Tensors, wanted: Sequence[int], heads: Mapping[int, Tensor]) -> Tensors:
        """Differentiated as one, then batched: rules of the author hold, and what is shared is summed at the end."""
        one = [_unbatched(t) if flag else t for t, flag in zip(inputs, self.flags, strict=True)]
        single = {p: _unbatched(t) for p, t in heads.items()}
        adjoints = self.of.pull(tuple(one), wanted, single)
        each = self._each(adjoints, {**dict(zip(one, inputs)), **{single[p]: t for p, t in heads.items()}})
        return tuple(t if self.flags[p] else t.sum(0) for t, p in zip(each, wanted, strict=True))

    def push(self, inputs: Tensors, tangents: Mapping[int, Tensor]) -> Tensors:
        one = [_unbatched(t) if flag else t for t, flag in zip(inputs, self.flags, strict=True)]
        single = {p: _unbatched(t) if self.flags[p] else t for p, t in tangents.items()}
        dots = self.of.push(tuple(one), single)
        return self._each(dots, {**dict(zip(one, inputs)), **{single[p]: t for p, t in tangents.items()}})

    def _each(self, outputs: Sequence[Tensor], pairs: Mapping[Tensor, Tensor]) -> Tensors:
        moved = {a: b for a, b in pairs.items() if a is not b}
        return batched(outputs, moved, next(iter(moved.values())).extents[0])


def _unbatched(tensor: Tensor) -> Tensor:
    return placeholder(tensor.extents[1:], tensor.dtype, name=tensor.name)


def _has_extents(traced: TracedRoutine, specs: Sequence[Spec]) -> bool:
    """Whether no stage has an extent below 0, as that of a slice has which NumPy would find empty."""
    try:
        sizes = bind_sizes(traced.inputs, [shape for shape, _ in specs])
        for op in stages_of(traced.outputs):
            for tensor in op.outputs:
                concrete_shape(tensor, sizes)
    except ValueError:
        return False
    return True
