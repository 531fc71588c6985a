"""What is drawn: a program, with the sizes of its symbolic extents and with what is known of its values."""

from __future__ import annotations

from dataclasses import dataclass

from tedsl.analysis.sizes import evaluate_extent
from tedsl.lang.expr import Var
from tedsl.lang.tensor import Tensor

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

    def __repr__(self) -> str:
        sizes = ", ".join(f"{v.name} = {n}" for v, n in self.sizes.items())
        return f"Program({len(self.outputs)} outputs, {sizes or 'static'})\n" + "\n".join(map(str, self.outputs))
