"""`C0 + compute(...)` written into the memory of C0: recognized, so that it is added there without a temporary.

Such an output is computed by another program, which gives what is added, in mode "add".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tedsl.backend.compiling.executable import Shared
from tedsl.lang.dataclass import dataclass
from tedsl.lang.expr import Apply, Expr, Fn, Read
from tedsl.lang.tensor import Compute, Tensor
from tedsl.lang.traverse import operations_between, reads_of

__all__ = ["Accumulating", "added_part", "addends"]


@dataclass(frozen=True, eq=False)
class Accumulating:
    """The program for calls that add in place: which inputs it takes, and whose memory each added output is on."""

    shared: Shared
    inputs: tuple[int, ...]  # positions of its inputs among those of the kernel
    previous: Mapping[int, int]  # position of an output -> position of the input that it is added to

    @property
    def modes(self) -> tuple[str, ...]:
        return tuple("add" if p in self.previous else "write" for p in range(len(self.shared.core.program.outputs)))


def addends(
    inputs: Sequence[Tensor], outputs: Sequence[Tensor], places: Mapping[int, int]
) -> tuple[dict[int, Tensor], dict[int, int]]:
    """What is added by the outputs that are `C0 + ...` on the memory of C0, and the positions of their C0."""
    found: dict[int, Tensor] = {}
    previous: dict[int, int] = {}
    operations = operations_between(inputs, outputs)
    for position, source in places.items():
        output, memory = outputs[position], inputs[source]
        if sum(t is output for t in outputs) > 1 or any(t is memory for t in outputs):
            continue
        readers = [op for op in operations if memory in set(op.inputs)]
        read_on = any(output in set(op.inputs) for op in operations)
        part = added_part(output, memory)
        if part is not None and len(readers) == 1 and not read_on:
            found[position], previous[position] = part, source
    return found, previous


def added_part(output: Tensor, memory: Tensor) -> Tensor | None:
    """The tensor x where `output` is x + memory, element on element, and x is worth it: not a plain expression."""
    op = output.op
    if not isinstance(op, Compute) or len(op.bodies) != 1 or op.reduction is not None:
        return None
    body = op.bodies[0]
    if not isinstance(body, Apply) or body.fn is not Fn.ADD or output.dtype.is_bool:
        return None
    for own, rest in (body.args, body.args[::-1]):
        if _is_element(own, memory, op) and memory not in {r.tensor for r in reads_of([rest])}:
            break
    else:
        return None
    if isinstance(rest, Read) and len(rest.indices) == len(op.axes) and _is_element(rest, rest.tensor, op):
        return rest.tensor if isinstance(rest.tensor.op, Compute) or rest.tensor.op.inputs else None
    return replace(op, bodies=(rest,), names=None, _outputs={}).output()


def _is_element(node: Expr, tensor: Tensor, op: Compute) -> bool:
    """Whether a node is the element of `tensor` at the axes of `op`."""
    if not isinstance(node, Read) or node.tensor is not tensor or len(node.indices) != len(op.axes):
        return False
    return all(i is a for i, a in zip(node.indices, op.axes, strict=True))
