"""What is drawn: a program, with the sizes of its symbolic extents and with what is known of its values."""

from __future__ import annotations

from tedsl.analysis.sizes import evaluate_extent
from tedsl.lang.dataclass import dataclass
from tedsl.lang.expr import Var
from tedsl.lang.tensor import Operation, Placeholder, Tensor
from tedsl.lang.traverse import operations_between

__all__ = ["Program"]


@dataclass(frozen=True, eq=False)
class Program:
    """Tensors to evaluate, and what is needed to feed them."""

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    sizes: dict[Var, int]
    below: dict[Tensor, int]  # inputs that serve as an index: their values lie in [0, below)
    exact: frozenset[Tensor]  # outputs on which evaluators agree bit by bit
    scale: dict[Tensor, Tensor]  # for the others, a bound on the magnitude of the terms that were summed
    whole: frozenset[Tensor] = frozenset()  # inputs that hold small integers, whatever their dtype

    def shape(self, tensor: Tensor) -> tuple[int, ...]:
        """The extents in numbers."""
        return tuple(evaluate_extent(e, self.sizes) for e in tensor.extents)

    @property
    def operations(self) -> list[Operation]:
        """The operations that compute the outputs."""
        return [op for op in operations_between(self.inputs, self.outputs) if not isinstance(op, Placeholder)]

    def __repr__(self) -> str:
        sizes = ", ".join(f"{v.name} = {n}" for v, n in self.sizes.items())
        stages = "\n".join(str(op.output()) for op in self.operations)
        return f"Program of {', '.join(t.name for t in self.outputs)}, {sizes or 'static'}\n{stages}"
