"""What an operator runs: its definition for given static arguments, and what is derived from it.

A routine is a rule that turns tensors into tensors. For arrays of given dtypes and shapes it is traced once, and
compiled when it is first run.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tedsl.backend.build import build
from tedsl.backend.kernel import Kernel
from tedsl.lang.compute import placeholder
from tedsl.lang.elements import tensor_of
from tedsl.lang.expr import Read
from tedsl.lang.tensor import Tensor
from tedsl.ops.signature import Signature, Template, map_leaves

__all__ = ["Definition", "Routine", "Spec", "Traced"]

Spec = tuple[tuple[Any, ...], str]  # shape and dtype of an array


@dataclass(eq=False)
class Traced:
    """A routine for arrays of given shapes: `outputs` over `inputs`, and the nest in which results are returned."""

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    result: Any
    name: str
    _kernel: Kernel | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def kernel(self) -> Kernel:
        """Compiled at the first use."""
        if self._kernel is None:
            with self._lock:
                if self._kernel is None:
                    self._kernel = build(list(self.inputs), list(self.outputs), name=self.name)
        return self._kernel


class Routine:
    """A rule that turns tensors into tensors."""

    name: str

    @property
    def input_names(self) -> tuple[str, ...]:
        raise NotImplementedError

    def trace(self, inputs: tuple[Tensor, ...]) -> tuple[tuple[Tensor, ...], Any]:
        """The outputs for these inputs, and the nest in which they are returned (positions for tensors)."""
        raise NotImplementedError

    @property
    def traces(self) -> dict[tuple[Spec, ...], Traced]:
        raise NotImplementedError

    def traced(self, specs: tuple[Spec, ...]) -> Traced:
        """The routine for arrays of these shapes and dtypes, traced once."""
        found = self.traces.get(specs)
        if found is None:
            inputs = tuple(
                placeholder(shape, dtype, name=name)
                for (shape, dtype), name in zip(specs, self.input_names, strict=True)
            )
            outputs, result = self.trace(inputs)
            found = self.traces.setdefault(specs, Traced(inputs, _distinct(inputs, outputs), result, self.name))
        return found


@dataclass(frozen=True, eq=False)
class Definition(Routine):
    """An operator's function with its static arguments."""

    signature: Signature
    template: Template
    _traces: dict[tuple[Spec, ...], Traced] = field(default_factory=dict)

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.signature.name

    @property
    def input_names(self) -> tuple[str, ...]:
        return self.template.names

    @property
    def traces(self) -> dict[tuple[Spec, ...], Traced]:
        return self._traces

    def trace(self, inputs: tuple[Tensor, ...]) -> tuple[tuple[Tensor, ...], Any]:
        outputs: list[Tensor] = []

        def listed(value: Any, name: str) -> int:
            if not isinstance(value, Tensor):
                raise TypeError(
                    f"op {self.signature}: must return tensors, found {type(value).__name__} ({value!r:.40}); "
                    "an expression becomes a tensor by te.compute"
                )
            outputs.append(value)
            return len(outputs) - 1

        try:
            returned = self.signature.called(self.template, inputs)
        except (TypeError, ValueError, IndexError, ArithmeticError) as error:
            raise self._explained(error, inputs) from error
        result = map_leaves(returned, "result", listed)
        if not outputs:
            raise TypeError(f"op {self.signature}: returned no tensor ({returned!r:.40})")
        return tuple(outputs), result

    def _explained(self, error: Exception, inputs: Sequence[Tensor]) -> Exception:
        """The error of the function with the signature and what was given."""
        given = ", ".join(map(repr, inputs))
        message = f"op {self.signature} called on ({given}): {error}"
        try:
            return type(error)(message)
        except TypeError:  # an error class with a constructor of its own
            return ValueError(message)


def _distinct(inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Outputs with memory of their own: a copy for what is an input, or an output already."""
    seen = set(inputs)
    made = []
    for tensor in outputs:
        if tensor in seen:
            tensor = _copy(tensor)
        seen.add(tensor)
        made.append(tensor)
    return tuple(made)


def _copy(tensor: Tensor) -> Tensor:
    return tensor_of(tensor.extents, lambda *axes: Read(tensor, axes), f"{tensor.name}_copy")
