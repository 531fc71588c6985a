"""Programs with stages that no kernel computes: kernels and those stages, one after another.

Such a stage is a Python function of arrays, or a scan with a reduction inside a reduction over its own state, which the
reference evaluates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tedsl.analysis.pointwise import Array
from tedsl.analysis.sizes import concrete_shape
from tedsl.backend.core import Core, Memory
from tedsl.backend.externs import called
from tedsl.backend.lower import operations_between
from tedsl.backend.lower_scan import can_lower_scan
from tedsl.backend.planner import Planner
from tedsl.backend.targets import Target
from tedsl.backend.variant import Form, Variant
from tedsl.lang.expr import Var
from tedsl.lang.tensor import Extern, Operation, Scan, Tensor
from tedsl.reference import evaluate_stages

__all__ = ["Steps", "needs_steps"]


def needs_steps(inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> bool:
    """Whether something that no kernel computes lies between the inputs and the outputs."""
    return any(map(_is_apart, operations_between(inputs, outputs)))


def _is_apart(op: Operation) -> bool:
    return isinstance(op, Extern) or (isinstance(op, Scan) and not can_lower_scan(op))


class Steps(Core):
    """A program cut at those stages: before each a kernel for its arguments, at the end one for the outputs."""

    is_single = False

    def __init__(
        self,
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        name: str,
        target: Target,
        planner: Planner,
    ) -> None:
        super().__init__(inputs, outputs, name, target, planner)
        known = list(dict.fromkeys(inputs))
        self._steps: list[tuple[Core | None, Operation]] = []
        for op in operations_between(inputs, outputs):
            if _is_apart(op):
                missing = [t for t in op.inputs if t not in set(known)]
                core = (
                    Core(_frontier(known, missing), missing, f"{name}_{op.name}", target, planner) if missing else None
                )
                self._steps.append((core, op))
                known += op.outputs
        self._kept = known  # tensors of the functions, which must stay the objects that the expressions read
        self._last = Core(_frontier(known, outputs), outputs, name, target, planner)

    @property
    def compile_ms(self) -> float:
        return sum(core.compile_ms for core, _ in self._steps if core is not None) + self._last.compile_ms

    def variant(self, form: Form) -> Variant:
        return self._last.variant(form)

    def any_variant(self) -> Variant:
        return self._last.any_variant()

    def run(self, memory: Memory, modes: tuple[str, ...], sizes: Mapping[Var, int]) -> None:
        values: dict[Tensor, Array] = dict(zip(self.inputs, memory.inputs, strict=True))
        for core, op in self._steps:
            made = {} if core is None else {
                p: np.empty(concrete_shape(t, sizes, self.name), t.dtype.numpy) for p, t in enumerate(core.outputs)
            }  # fmt: skip
            if core is not None:
                core.run(Memory([values[t] for t in core.inputs], made, {}), ("write",) * len(made), sizes)
                given = {**values, **{core.outputs[p]: a for p, a in made.items()}}
            else:
                given = values
            values.update(zip(op.outputs, _results(op, given, sizes, memory.copies), strict=True))
        last = Memory([values[t] for t in self._last.inputs], memory.outputs, memory.previous, memory.shared)
        self._last.run(last, modes, sizes)


def _frontier(known: Sequence[Tensor], outputs: Sequence[Tensor]) -> list[Tensor]:
    """The known tensors that the outputs read."""
    read = {t for op in operations_between(known, outputs) for t in op.inputs} | set(outputs)
    return [t for t in known if t in read]


def _results(
    op: Operation, values: Mapping[Tensor, Array], sizes: Mapping[Var, int], copies: list[tuple[str, str]]
) -> list[Array]:
    if isinstance(op, Extern):
        return called(op, [values[t] for t in op.args], sizes, copies)
    found = evaluate_stages([op], {t: values[t] for t in op.inputs}, sizes)
    return [found[t].astype(t.dtype.numpy, copy=False) for t in op.outputs]
