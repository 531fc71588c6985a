"""What is asked of sorted rows: where a value would stand, and where runs of equal elements begin."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from tedsl.backend.native.builder import INDEX, POINTER, SIZE, Elements, RoutineCode
from tedsl.backend.native.keys import FRACTION, Kind, element_type, key_of

__all__ = ["places", "runs"]


def places(module: ir.Module, name: str, kind: Kind, ndim: int, axis: int, rows: int, side: str) -> None:
    """f(values, table, places): by halves. The `rows` outermost axes of the values are those of the tables, too."""
    code = RoutineCode(module, name, [POINTER] * 3, INDEX)
    b, (values, table, found), own = code.builder, code.parameters, element_type(kind)
    with code.when(code.is_null(code.host(found))):
        code.give(ir.Constant(INDEX, 0))
    outer, width, n = list(range(1, ndim)), code.extent(values, 0), code.extent(table, 0)
    count: Any = ir.Constant(SIZE, 1)
    for k in outer:
        count = b.mul(count, code.extent(values, k))
    first = ndim - rows  # the innermost axis that the tables share
    with code.loop(count) as r:
        line, made = code.row(values, own, 0, outer, r), code.row(found, INDEX, 0, outer, r)
        entries = _table_of(code, table, values, own, max(first, 1), ndim, first, r)
        with code.loop(width) as i:
            here = entries.shifted(b.mul(i, code.stride(table, 1))) if rows == ndim else entries
            made[i] = code.narrow(_place(code, here, n, key_of(code, line[i], kind), kind, side), INDEX)
    code.give(ir.Constant(INDEX, 0))


def _table_of(
    code: RoutineCode, table: Any, values: Any, own: Any, begin: int, ndim: int, first: int, number: Any
) -> Elements:
    """The table of the line of this number: that of the same place of the shared axes."""
    b, place, rest = code.builder, ir.Constant(SIZE, 0), number
    for k in range(1, ndim):
        extent = code.extent(values, k)
        at, rest = b.urem(rest, extent), b.udiv(rest, extent)
        if k >= begin:
            place = b.add(place, b.mul(at, code.stride(table, k - first + 1)))
    return Elements(code, own, code.host(table), code.stride(table, 0)).shifted(place)


def _place(code: RoutineCode, table: Elements, n: Any, key: Any, kind: Kind, side: str) -> Any:
    """How many entries are less than the key, or not more than it."""
    b, one = code.builder, ir.Constant(SIZE, 1)
    begin, left = code.variable(0), code.variable(n)
    relation = "<" if side == "left" else "<="
    with code.repeat(lambda: code.compare(">", left.get(), 0)):
        half = b.lshr(left.get(), one)
        middle = b.add(begin.get(), half)
        above = code.compare(relation, key_of(code, table[middle], kind), key)
        begin.set(b.select(above, b.add(middle, one), begin.get()))
        left.set(b.select(above, b.sub(b.sub(left.get(), half), one), half))
    return begin.get()


def runs(module: ir.Module, name: str, kind: Kind, ndim: int, axis: int, wanted: str) -> None:
    """f(values, places, first of each run, its length): rows along `axis`; a NaN is a run of its own."""
    outputs = ["first", "second"] if wanted == "both" else [wanted]
    code = RoutineCode(module, name, [POINTER] * (2 + len(outputs)), INDEX)
    b, (values, origins, *results) = code.builder, code.parameters
    with code.when(code.is_null(code.host(results[0]))):
        code.give(ir.Constant(INDEX, 0))
    outer, n = [k for k in range(ndim) if k != axis], code.extent(values, axis)
    rows: Any = ir.Constant(SIZE, 1)
    for k in outer:
        rows = b.mul(rows, code.extent(values, k))
    with code.loop(rows) as r:
        row = code.row(values, element_type(kind), axis, outer, r)
        places_of = code.row(origins, INDEX, axis, outer, r)
        made = dict(zip(outputs, (code.row(a, INDEX, axis, outer, r) for a in results)))
        _runs_of(code, row, places_of, made, n, kind)
    code.give(ir.Constant(INDEX, 0))


def _runs_of(
    code: RoutineCode, row: Elements, origins: Elements, made: dict[str, Elements], n: Any, kind: Kind
) -> None:
    b, one = code.builder, ir.Constant(SIZE, 1)
    count, length, first = code.variable(0), code.variable(0), code.variable(0, INDEX)
    with code.loop(n) as i:
        before = b.select(code.compare(">", i, 0), b.sub(i, one), i)
        key, last = key_of(code, row[i], kind), key_of(code, row[before], kind)
        new = b.or_(code.compare("==", i, 0), code.compare("!=", key, last))
        if kind in FRACTION:
            new = b.or_(new, b.icmp_unsigned("==", key, ir.Constant(key.type, -1)))
        with code.when(new):
            count.add(1)
            length.set(0)
            first.set(origins[i])
        length.add(1)
        at = b.sub(count.get(), one)
        for what, value in (("first", first.get()), ("second", code.narrow(length.get(), INDEX))):
            if what in made:
                made[what][at] = value
    with code.loop(n, count.get()) as i:
        for what, value in (("first", first.get()), ("second", ir.Constant(INDEX, 0))):
            if what in made:
                made[what][i] = value
