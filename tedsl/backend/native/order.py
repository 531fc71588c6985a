"""Rows sorted, or the first of them in order: values and where they were.

for each row: keys of its elements, a stable sort of those that can be among the first, the results
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from tedsl.backend.native.builder import INDEX, POINTER, SIZE, RoutineCode
from tedsl.backend.native.keys import Kind, element_type, key_of, key_type
from tedsl.backend.native.radix import kept_in_order, sorter
from tedsl.backend.native.selection import Selection, SortMemory

__all__ = ["order"]

NO_MEMORY = -1
TASK = 4096  # elements, that a thread takes longer to sort than another one to wake


def order(module: ir.Module, name: str, kind: Kind, ndim: int, axis: int, direction: str, wanted: str) -> None:
    """`axis` counts from the innermost; `wanted`: values ("first"), places ("second") or "both"."""
    outputs = ["first", "second"] if wanted == "both" else [wanted]
    each = _rows_ordered(module, f"{name}_rows", kind, ndim, axis, direction, outputs)
    code = RoutineCode(module, name, [POINTER] * (1 + len(outputs)), INDEX)
    b, (source, *results) = code.builder, code.parameters
    with code.when(code.is_null(code.host(results[0]))):
        code.give(ir.Constant(INDEX, 0))
    rows: Any = ir.Constant(SIZE, 1)
    for k in range(ndim):
        rows = rows if k == axis else b.mul(rows, code.extent(results[0], k))
    work = b.udiv(b.mul(rows, code.extent(source, axis)), ir.Constant(SIZE, TASK))
    code.give(code.shared_out(each, code.parameters, rows, work))


def _rows_ordered(
    module: ir.Module, name: str, kind: Kind, ndim: int, axis: int, direction: str, outputs: list[str]
) -> Any:
    """f(source, *results, begin, end): the rows from one on, before another one."""
    code = RoutineCode(module, name, [*[POINTER] * (1 + len(outputs)), SIZE, SIZE], INDEX, inner=True)
    source, *results, begin, end = code.parameters
    sort, keep = sorter(module, key_type(kind)), kept_in_order(module, key_type(kind))
    outer = [k for k in range(ndim) if k != axis]
    n, m = code.extent(source, axis), code.extent(results[0], axis)
    work = SortMemory(code, key_type(kind), n)
    with code.when(work.is_missing()):
        work.free()
        code.give(ir.Constant(INDEX, NO_MEMORY))
    with code.loop(end, begin) as r:
        row = code.row(source, element_type(kind), axis, outer, r)
        places = Selection(
            code, work, row, n, m, sort, keep, lambda bits: key_of(code, bits, kind, descending=direction == "down")
        ).placed()
        for what, result in zip(outputs, results):
            made = code.row(result, element_type(kind) if what == "first" else INDEX, axis, outer, r)
            with code.loop(m) as i:
                made[i] = row[code.wide(places[i])] if what == "first" else places[i]
    work.free()
    code.give(ir.Constant(INDEX, 0))
    return code.function
