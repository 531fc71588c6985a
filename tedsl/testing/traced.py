"""An operator traced for one case: the tensors that compute it, its adjoints, and the arrays to feed them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from autodiff import differentiate, jvp as forward_derivative
from autodiff.totals import zeros
from tedsl.lang.compute import placeholder
from tedsl.lang.dtypes import as_dtype
from tedsl.lang.tensor import Placeholder, Tensor
from tedsl.lang.traverse import stages_of
from tedsl.reference import interpret
from tedsl.testing.arguments import Case

__all__ = ["Rules", "Traced"]

Array = np.ndarray[Any, Any]


class Rules:
    """An operator and the derivative rules to try on it, None for those it has."""

    def __init__(self, op: Callable[..., Any], vjp: Any = None, jvp: Any = None) -> None:
        self.op, self.vjp, self.jvp = op, vjp, jvp

    @property
    def name(self) -> str:
        return getattr(self.op, "__name__", type(self.op).__name__)


class Traced:
    """The program of one case in one float type; adjoints and directional derivatives are made when asked for."""

    def __init__(self, rules: Rules, case: Case, dtype: str | None = None) -> None:
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
        rng = np.random.default_rng([case.seed, 1])
        self.float_inputs = [t for t in self.inputs if t.dtype.is_float]
        self.float_outputs = [t for t in self.outputs if t.dtype.is_float]
        self.heads = [self._beside(t, "head", rng, 0.5, 1.5) for t in self.float_outputs]
        self.tangents = [self._beside(t, "tangent", rng, -1.0, 1.0) for t in self.float_inputs]
        self.others = [self._beside(t, "direction", rng, -1.0, 1.0) for t in self.float_inputs]

    def _beside(self, tensor: Tensor, what: str, rng: np.random.Generator, low: float, high: float) -> Tensor:
        made = placeholder(tensor.shape, tensor.dtype, name=f"{tensor.name}_{what}")
        self.feeds[made] = rng.uniform(low, high, [int(n) for n in tensor.shape]).astype(tensor.dtype.numpy)
        return made

    @property
    def is_differentiable(self) -> bool:
        return bool(self.float_inputs and self.float_outputs)

    def override(self, targets: Sequence[Tensor]) -> dict[Tensor, Any] | None:
        """The rule under trial, for each output that lies between the inputs and `targets`."""
        vjp = self.rules.vjp
        if vjp is None:
            return None
        inputs = list(self.inputs)

        def rule(output: Tensor, deps: Sequence[Tensor], head: Tensor) -> Any:
            result = vjp(*self._as_one(output, head, deps))
            return [result] if isinstance(result, Tensor) else result

        return {t: (inputs, rule) for t in self.float_outputs if self._is_between(t, targets)}

    def _as_one(self, output: Tensor, head: Tensor, deps: Sequence[Tensor]) -> tuple[Any, Sequence[Tensor], Any]:
        """What a rule is called with: of several outputs, all, with heads of zero for the others."""
        if len(self.outputs) == 1:
            return output, deps, head
        heads = (head if t is output else zeros(t.extents, t, f"d{t.name}") for t in self.outputs)
        return tuple(self.outputs), deps, tuple(heads)

    def _is_between(self, output: Tensor, targets: Sequence[Tensor]) -> bool:
        below = stages_of([output])
        is_used = any(op is output.op for op in stages_of(targets))
        return is_used and not isinstance(output.op, Placeholder) and any(t.op in below for t in self.float_inputs)

    @cached_property
    def gradients(self) -> list[Tensor]:
        """The adjoint of each float input, for the heads."""
        override = self.override(self.float_outputs)
        return list(differentiate(self.float_outputs, self.float_inputs, head=self.heads, override=override))

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
        override = self.override(self.gradients)
        return list(differentiate(self.gradients, self.float_inputs, head=self.others, override=override))

    @cached_property
    def magnitude(self) -> float:
        """The largest finite number in any stage of the outputs: what rounding errors are relative to."""
        tensors = [t for op in stages_of(self.outputs) for t in op.outputs]
        arrays = [np.abs(a.astype(np.float64)) for a in self.run(tensors)]
        return max((float(a[np.isfinite(a)].max(initial=0.0)) for a in arrays), default=0.0)

    def run(self, tensors: Sequence[Tensor], feeds: Mapping[Tensor, Array] | None = None) -> tuple[Array, ...]:
        """The values by the reference."""
        return tuple(interpret(list(tensors), dict(self.feeds if feeds is None else feeds)))

    def moved(self, directions: Sequence[Tensor], step: float) -> dict[Tensor, Array]:
        """The feeds with the inputs moved along `directions`."""
        feeds = dict(self.feeds)
        for tensor, direction in zip(self.float_inputs, directions, strict=True):
            feeds[tensor] = feeds[tensor] + step * self.feeds[direction]
        return feeds
