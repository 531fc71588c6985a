"""What is asked of sorted rows: where a value would stand, and where runs of equal elements begin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from tedsl.backend.native.builder import INDEX, POINTER, SIZE, Elements, RoutineCode
from tedsl.backend.native.keys import FRACTION, Kind, element_type, key_of, key_type

__all__ = ["places", "runs"]

ABREAST = 8  # searches that do not wait for one another
TASK = 4096  # values, that a thread takes longer for than another one to wake


def places(module: ir.Module, name: str, kind: Kind, ndim: int, axis: int, rows: int, side: str) -> None:
    """f(values, table, places): by halves. The `rows` outermost axes of the values are those of the tables, too."""
    each = _placed(module, f"{name}_part", kind, ndim, rows, side)
    code = RoutineCode(module, name, [POINTER] * 3, INDEX)
    b, (values, _, found) = code.builder, code.parameters
    with code.when(code.is_null(code.host(found))):
        code.give(ir.Constant(INDEX, 0))
    count: Any = ir.Constant(SIZE, 1)
    for k in range(ndim):
        count = b.mul(count, code.extent(values, k))
    code.give(code.shared_out(each, code.parameters, count, b.udiv(count, ir.Constant(SIZE, TASK))))


def _placed(module: ir.Module, name: str, kind: Kind, ndim: int, rows: int, side: str) -> Any:
    """f(values, table, places, begin, end): of the values from one on, before another one, line after line."""
    code = RoutineCode(module, name, [*[POINTER] * 3, SIZE, SIZE], INDEX, inner=True)
    b, (values, table, found, begin, end), own = code.builder, code.parameters, element_type(kind)
    outer, width, n = list(range(1, ndim)), code.extent(values, 0), code.extent(table, 0)
    first = ndim - rows  # the innermost axis that the tables share
    with code.when(code.compare(">=", begin, end)):
        code.give(ir.Constant(INDEX, 0))
    room = b.select(code.compare("<=", n, b.sub(end, begin)), n, ir.Constant(SIZE, 0))
    keys = code.taken(room, key_type(kind)) if rows < ndim else None
    lines = b.add(b.udiv(b.sub(end, ir.Constant(SIZE, 1)), width), ir.Constant(SIZE, 1))
    with code.loop(lines, b.udiv(begin, width)) as r:
        line, made = code.row(values, own, 0, outer, r), code.row(found, INDEX, 0, outer, r)
        entries = _table_of(code, table, values, own, max(first, 1), ndim, first, r)
        before = b.mul(r, width)
        start = b.select(code.compare(">", begin, before), b.sub(begin, before), ir.Constant(SIZE, 0))
        stop = code.least(width, b.sub(end, before))

        def each(entry: Callable[[Any, Any], Any]) -> None:
            """The values of the line, some side by side; the last ones once more where they do not come out even."""
            last = b.sub(stop, ir.Constant(SIZE, 1))
            parts = b.udiv(b.add(b.sub(stop, start), ir.Constant(SIZE, ABREAST - 1)), ir.Constant(SIZE, ABREAST))
            with code.loop(parts) as part:
                base = b.add(start, b.mul(part, ir.Constant(SIZE, ABREAST)))
                at = [code.least(last, b.add(base, ir.Constant(SIZE, k))) for k in range(ABREAST)]
                wanted = [key_of(code, line[i], kind) for i in at]
                for i, place in zip(at, _places(code, at, entry, n, wanted, side), strict=True):
                    made[i] = code.narrow(place, INDEX)

        def read(table_at: Callable[[Any], Elements]) -> Callable[[Any, Any], Any]:
            return lambda i, k: key_of(code, table_at(i)[k], kind)

        if keys is None:  # a table of its own for each value
            each(read(lambda i: entries.shifted(b.mul(i, code.stride(table, 1)))))
        else:
            kept = b.and_(b.not_(code.is_null(keys.base)), code.compare("<=", n, b.sub(stop, start)))
            with code.either(kept) as (many, few):
                with many:
                    with code.loop(n) as k:
                        keys[k] = key_of(code, entries[k], kind)
                    each(lambda i, k: keys[k])
                with few:
                    each(read(lambda i: entries))
    if keys is not None:
        code.freed(keys)
    code.give(ir.Constant(INDEX, 0))
    return code.function


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


def _places(
    code: RoutineCode, at: list[Any], entry: Callable[[Any, Any], Any], n: Any, keys: list[Any], side: str
) -> list[Any]:  # fmt: skip
    """How many entries are less than each key, or not more than it; `entry(i, k)`: entry k of the table for value i.

    The number of steps hangs on the table alone, so that several keys take them side by side.
    """
    b, one = code.builder, ir.Constant(SIZE, 1)
    begins, left = [code.variable(0) for _ in keys], code.variable(n)
    with code.repeat(lambda: code.compare(">", left.get(), 1)):
        half = b.lshr(left.get(), one)
        for i, key, begin in zip(at, keys, begins, strict=True):
            last = entry(i, b.sub(b.add(begin.get(), half), one))
            begin.add(_if_before(code, last, key, side, half))
        left.set(b.sub(left.get(), half))
    with code.when(code.compare(">", n, 0)):
        for i, key, begin in zip(at, keys, begins, strict=True):
            begin.add(_if_before(code, entry(i, begin.get()), key, side, one))
    return [begin.get() for begin in begins]


def _if_before(code: RoutineCode, entry: Any, key: Any, side: str, step: Any) -> Any:
    """A step, where an entry is before the key, else 0: no jump, which nobody could foresee."""
    before = code.compare("<" if side == "left" else "<=", entry, key)
    made = code.builder.select(before, step, ir.Constant(SIZE, 0))
    made.set_metadata("unpredictable", code.module.add_metadata([]))
    return made


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
