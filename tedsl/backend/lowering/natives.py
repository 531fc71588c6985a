"""Stages that call the library's own code: Halide hands over the buffers, `backend.native` is what is called."""

from __future__ import annotations

from collections.abc import Sequence

import halide as hl

from tedsl.backend.lowering.stages import Context, Stage, elements, function, variables
from tedsl.backend.native.code import symbol_of
from tedsl.backend.scalars.types import TYPES
from tedsl.lang.native import Native
from tedsl.lang.tensor import Extern, Operation, Tensor
from tedsl.lang.traverse import operations_between

__all__ = ["is_native", "lower_native", "native_alone"]


def is_native(op: Operation) -> bool:
    """Whether the function of a stage is one of the library's."""
    return isinstance(op, Extern) and isinstance(op.function, Native)


def native_alone(inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> bool:
    """Whether a program is the call of one routine."""
    operations = operations_between(inputs, outputs)
    return len(operations) == 1 and is_native(operations[0])


def lower_native(ctx: Context, op: Extern) -> Stage:
    """A function that is defined elsewhere, over whole buffers."""
    assert isinstance(op.function, Native)
    components = ctx.needed[op]
    func = function(op.name, len(components))
    dims = variables(f"d{d}" for d in range(len(op.shapes[0])))
    symbol = symbol_of(op.function.routine, (*op.function.options, *_wanted(op, components)))
    types = [TYPES[op.dtypes[k]] for k in components]
    func.define_extern(symbol, [ctx.images[t] for t in op.args], types, list(dims[::-1]), hl.NameMangling.C)
    return Stage(op, "native", func, dims, components, elements(func, components))


def _wanted(op: Extern, components: tuple[int, ...]) -> tuple[str, ...]:
    """Which of several results are computed."""
    if op.num_outputs == 1:
        return ()
    return ("both",) if len(components) == 2 else (("first", "second")[components[0]],)
