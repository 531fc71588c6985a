"""Milliseconds that a complete plan takes to become machine code: a line through what was measured of 309 kernels.

Most of it is Halide's lowering and LLVM, which take as long as there is code: operations of a stage, and of what is
computed inside it, for each copy that is written out. `python -m benchmarks.compile_cost` fits it anew.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import astuple

from schedules.default.costs import is_costly
from schedules.loops import base_of
from schedules.placing.placement import placed
from schedules.plan import Plan
from tedsl.lang.dataclass import dataclass
from tedsl.lang.expr import Apply, Read
from tedsl.lang.tensor import Operation

__all__ = ["CodeSize", "compile_ms", "size_of"]

KERNEL = 31.0  # milliseconds of a kernel before its first loop
OF_UPDATE = 2  # operations of a definition beside the body


@dataclass(frozen=True)
class CodeSize:
    """What there is to compile: `operations` and `functions` count each copy that is written out, `inlined` stages
    once, and `loops` and `pieces` those of all definitions."""

    operations: float = 0.0
    functions: float = 0.0
    inlined: float = 0.0
    loops: float = 0.0
    pieces: float = 0.0


MS = CodeSize(operations=0.34, functions=4.3, inlined=9.3, loops=2.9, pieces=37.0)  # of one of each


def compile_ms(plan: Plan) -> float:
    """About how long a complete plan takes to compile, on one core of 2021."""
    return KERNEL + math.fsum(a * b for a, b in zip(astuple(size_of(plan)), astuple(MS), strict=True))


def size_of(plan: Plan) -> CodeSize:
    """The code of a complete plan, as its loops tell."""
    places, stages = placed(plan, checked=False), plan.program.stages
    inlined = {op for name, op in stages.items() if places[name].kind == "inline"}
    known: dict[Operation, tuple[int, int]] = {}
    operations = functions = loops = pieces = 0.0
    for name, op in stages.items():  # inputs before users
        own = _written(op, known)
        if op in inlined:
            known[op] = own
            continue
        for definition in plan.definitions(name) if op.expressions else ():
            levels = plan.nest(name, definition).levels
            copies = math.prod(v.known or 1 for v in levels if v.kind == "unrolled")
            is_body = base_of(definition) == "body"
            operations += copies * (own[0] if is_body else OF_UPDATE)
            functions += copies * own[1] * is_body
            loops += len(levels)
        pieces += len(plan.cut_loops(name)) + (plan.by_cases(name) is not None)
    return CodeSize(operations, functions, float(len(inlined)), loops, pieces)


def _written(op: Operation, inlined: Mapping[Operation, tuple[int, int]]) -> tuple[int, int]:
    """The operations of a stage and the costly ones among them, with those of the stages that are computed inside."""
    own = sum(isinstance(node, (Apply, Read)) for node in op.nodes)
    costly = sum(isinstance(node, Apply) and is_costly(node) for node in op.nodes)
    inner = [inlined[read.tensor.op] for read in op.reads if read.tensor.op in inlined]
    return own + sum(n for n, _ in inner), costly + sum(n for _, n in inner)
