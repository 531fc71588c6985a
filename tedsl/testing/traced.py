"""An operator traced for one case: the tensors that compute it, its adjoints, and the arrays to feed them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from autodiff import differentiate, jvp as forward_derivative
from tedsl.lang.compute import placeholder
from tedsl.lang.dtypes import as_dtype
from tedsl.lang.locks import cached_property
from tedsl.lang.tensor import Tensor
from tedsl.lang.traverse import stages_of
from tedsl.ops.definition import Author, attach_rules
from tedsl.ops.routines import distinct
from tedsl.ops.signature import Signature
from tedsl.reference import interpret
from tedsl.testing.arguments import SampledCall

__all__ = ["Rules", "TracedCase"]

Array = np.ndarray[Any, Any]


class Rules:
    """An operator and the derivative rules to try on it, None for those it has."""

    def __init__(self, op: Callable[..., Any], vjp: Any = None, jvp: Any = None) -> None:
        self.op, self.vjp, self.jvp = getattr(op, "__checked__", op), vjp, jvp

    @property
    def name(self) -> str:
        return getattr(self.op, "__name__", type(self.op).__name__)

    def attached(self, outputs: Sequence[Tensor], inputs: Sequence[Tensor]) -> list[Tensor]:
        """The outputs with the reverse rule on trial, as those of an operator that it was registered for."""
        if self.vjp is None:
            return list(outputs)
        made = distinct(inputs, outputs)
        attach_rules(Signature(self.op, self.name), Author(vjp=self.vjp), made, tuple(inputs))
        return list(made)


class TracedCase:
    """The program of one case in one float type; adjoints and directional derivatives are made when asked for."""

    def __init__(self, rules: Rules, case: SampledCall, dtype: str | None = None) -> None:
        self.rules, self.case = rules, case
        self.feeds: dict[Tensor, Array] = {}
        self.inputs: list[Tensor] = []
        arguments: dict[str, Any] = {}
        for name, value in case.arrays.items():
            kind = dtype if dtype is not None and as_dtype(value.dtype).is_float else str(as_dtype(value.dtype))
            tensor = placeholder(value.shape, kind, name=name)
            self.feeds[tensor] = value.astype(as_dtype(kind).numpy)
            self.inputs.append(tensor)
            arguments[name] = tensor
        result = rules.op(**arguments, **case.static)
        self.outputs: list[Tensor] = [result] if isinstance(result, Tensor) else list(result)
        for tensor in self.outputs:
            if not isinstance(tensor, Tensor):
                raise TypeError(
                    f"check_op: {rules.name} must return te.Tensors when it is called with te.Tensors, found "
                    f"{type(tensor).__name__}"
                )
        self.outputs = rules.attached(self.outputs, self.inputs)
        rng = np.random.default_rng([case.seed, 1])
        self.float_inputs = [t for t in self.inputs if t.dtype.is_float]
        self.float_outputs = [t for t in self.outputs if t.dtype.is_float]
        self.heads = [self._beside(t, "head", rng) for t in self.float_outputs]
        self.tangents = [self._beside(t, "tangent", rng) for t in self.float_inputs]
        self.others = [self._beside(t, "direction", rng) for t in self.float_inputs]

    def _beside(self, tensor: Tensor, what: str, rng: np.random.Generator) -> Tensor:
        """Numbers of both signs and none near 0: a wrong factor shows wherever it is."""
        made = placeholder(tensor.shape, tensor.dtype, name=f"{tensor.name}_{what}")
        shape = [int(n) for n in tensor.shape]
        self.feeds[made] = (rng.uniform(0.5, 1.5, shape) * rng.choice([-1.0, 1.0], shape)).astype(tensor.dtype.numpy)
        return made

    @property
    def along(self) -> list[Array]:
        """The tangents, as numbers."""
        return [self.feeds[t] for t in self.tangents]

    @property
    def is_differentiable(self) -> bool:
        return bool(self.float_inputs and self.float_outputs)

    @cached_property
    def gradients(self) -> list[Tensor]:
        """The adjoint of each float input, for the heads."""
        return list(differentiate(self.float_outputs, self.float_inputs, head=self.heads))

    @cached_property
    def pushed(self) -> list[Tensor]:
        """The derivative of each float output along the tangents."""
        if self.rules.jvp is None:
            return list(forward_derivative(self.float_outputs, self.float_inputs, self.tangents))
        result = self.rules.jvp(self.float_inputs, self.tangents)
        return [result] if isinstance(result, Tensor) else list(result)

    @cached_property
    def second(self) -> list[Tensor]:
        """The derivative of the gradients, contracted with `others`, for each float input."""
        return list(differentiate(self.gradients, self.float_inputs, head=self.others))

    @cached_property
    def magnitude(self) -> float:
        """The largest finite number in any stage of the outputs: what rounding errors are relative to."""
        tensors = [t for op in stages_of(self.outputs) for t in op.outputs]
        arrays = [np.abs(a.astype(np.float64)) for a in self.run(tensors)]
        return max((float(a[np.isfinite(a)].max(initial=0.0)) for a in arrays), default=0.0)

    def run(self, tensors: Sequence[Tensor], feeds: Mapping[Tensor, Array] | None = None) -> tuple[Array, ...]:
        """The values by the reference."""
        return tuple(interpret(list(tensors), dict(self.feeds if feeds is None else feeds)))

    def moved(self, along: Sequence[Array], step: float) -> dict[Tensor, Array]:
        """The feeds with the inputs moved in a direction."""
        feeds = dict(self.feeds)
        for tensor, direction in zip(self.float_inputs, along, strict=True):
            feeds[tensor] = feeds[tensor] + step * direction
        return feeds
