"""Stable sorts of keys with the places that they came from.

Few are inserted one by one. More go through passes over digits, each of which counts, then moves: but only over the
leading bits of what they span, as many as tell most keys apart; insertion puts right what these left. Where it would
have too much to do, the passes begin at the lowest bit after all: each is stable, so nothing is lost by the first try.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from tedsl.backend.native.builder import INDEX, POINTER, SIZE, Elements, RoutineCode

__all__ = ["BUCKETS", "kept_in_order", "opened", "sorter"]

FEW = 24  # inserted
MANY = 3000  # from here on digits have 11 bits, below 8: clearing and summing counts takes its time, too
LOTS = 1 << 17  # from here on three digits are looked at first, below two
STEPS = 6  # moves for each key that insertion may take
BUCKETS = 2048
BIT = ir.IntType(1)


def sorter(module: ir.Module, key: Any) -> Any:
    """f(keys, places, other keys, other places, counts, n): whether the result lies in the other memory."""
    insert, passes = _inserted(module, key), _passes(module, key)
    code = RoutineCode(module, f"sorted{key.width}", [POINTER] * 5 + [SIZE], BIT, inner=True)
    *memory, n = code.parameters
    b = code.builder
    keys = Elements(code, key, memory[0])
    endless = ir.Constant(SIZE, -1)
    with code.when(code.compare("<=", n, FEW)):
        b.call(insert, [memory[0], memory[1], n, endless])
        code.give(ir.Constant(BIT, 0))
    low, high = code.variable(-1, key), code.variable(0, key)
    with code.loop(n) as i:
        own = keys[i]
        low.set(b.select(code.compare("<", own, low.get()), own, low.get()))
        high.set(b.select(code.compare(">", own, high.get()), own, high.get()))
    least = low.get()
    zeros = b.ctlz(b.sub(high.get(), least), ir.Constant(BIT, 0))
    width = b.sub(ir.Constant(SIZE, key.width), code.wide(zeros))
    small, large = code.compare("<", n, MANY), code.compare(">=", n, LOTS)
    digit = b.select(small, ir.Constant(SIZE, 8), ir.Constant(SIZE, 11))
    first = b.mul(digit, b.select(large, ir.Constant(SIZE, 3), ir.Constant(SIZE, 2)))
    begin = b.select(code.compare(">", width, first), b.sub(width, first), ir.Constant(SIZE, 0))
    swapped = code.variable(0, BIT)
    swapped.set(b.call(passes, [*memory, n, least, begin, width, digit]))
    with code.when(code.compare(">", begin, 0)):
        there = swapped.get()
        now = [b.select(there, memory[k ^ 2], memory[k]) for k in range(4)]
        enough = b.call(insert, [now[0], now[1], n, b.mul(n, ir.Constant(SIZE, STEPS))])
        with code.when(b.not_(enough)):
            swapped.set(b.xor(there, b.call(passes, [*now, memory[4], n, least, ir.Constant(SIZE, 0), width, digit])))
    code.give(swapped.get())
    return code.function


def _inserted(module: ir.Module, key: Any) -> Any:
    """Each key moves before those that are larger, while there are steps left; whether there were."""
    code = RoutineCode(module, f"inserted{key.width}", [POINTER, POINTER, SIZE, SIZE], BIT, inner=True)
    b = code.builder
    keys, places, (n, steps) = (
        Elements(code, key, code.parameters[0]),
        Elements(code, INDEX, code.parameters[1]),
        code.parameters[2:],
    )
    left = code.variable(steps)
    with code.loop(n, 1) as i:
        own, place = keys[i], places[i]
        with code.when(code.compare(">", keys[b.sub(i, ir.Constant(SIZE, 1))], own)):
            at = opened(code, keys, places, own, i)
            keys[at], places[at] = own, place
            taken = b.sub(i, at)
            with code.when(code.compare("<", left.get(), taken)):
                code.give(ir.Constant(BIT, 0))
            left.set(b.sub(left.get(), taken))
    code.give(ir.Constant(BIT, 1))
    return code.function


def opened(code: RoutineCode, keys: Elements, places: Elements, own: Any, begin: Any) -> Any:
    """The place of a key among those before `begin`, from where the larger ones have moved up."""
    b, at = code.builder, code.variable(begin)

    def is_larger() -> Any:
        inside = code.compare(">", at.get(), 0)
        last = b.select(inside, b.sub(at.get(), ir.Constant(SIZE, 1)), ir.Constant(SIZE, 0))
        return b.and_(inside, code.compare(">", keys[last], own))

    with code.repeat(is_larger):
        last = b.sub(at.get(), ir.Constant(SIZE, 1))
        keys[at.get()], places[at.get()] = keys[last], places[last]
        at.set(last)
    return at.get()


def kept_in_order(module: ir.Module, key: Any) -> Any:
    """f(keys, places, n, m): the m smallest of n keys in order, in front; of equal ones the first."""
    code = RoutineCode(module, f"kept{key.width}", [POINTER, POINTER, SIZE, SIZE], ir.VoidType(), inner=True)
    b = code.builder
    keys, places, (n, m) = (
        Elements(code, key, code.parameters[0]),
        Elements(code, INDEX, code.parameters[1]),
        code.parameters[2:],
    )
    with code.loop(n) as i:
        own, place = keys[i], places[i]
        last = b.sub(m, ir.Constant(SIZE, 1))
        room = code.compare("<", i, m)
        with code.when(b.or_(room, code.compare("<", own, keys[last]))):
            at = opened(code, keys, places, own, b.select(room, i, last))
            keys[at], places[at] = own, place
    code.give()
    return code.function


def _passes(module: ir.Module, key: Any) -> Any:
    """f(memory, counts, n, least, begin, end, digit): the passes over the bits from begin to end of key - least."""
    turn = _moved(module, key)
    code = RoutineCode(module, f"passed{key.width}", [POINTER] * 5 + [SIZE, key] + [SIZE] * 3, BIT, inner=True)
    b, (*memory, n, least, begin, end, digit) = code.builder, code.parameters
    shift, swapped = code.variable(begin), code.variable(0, BIT)
    with code.repeat(lambda: code.compare("<", shift.get(), end)):
        now = swapped.get()
        places = [b.select(now, memory[k ^ 2], memory[k]) for k in range(4)]
        moved = b.call(turn, [*places, memory[4], n, least, shift.get(), digit])
        swapped.set(b.xor(now, moved))
        shift.set(b.add(shift.get(), digit))
    code.give(swapped.get())
    return code.function


def _moved(module: ir.Module, key: Any) -> Any:
    """One pass over a digit; whether anything moved."""
    code = RoutineCode(module, f"moved{key.width}", [POINTER] * 5 + [SIZE, key] + [SIZE] * 2, BIT, inner=True)
    b = code.builder
    keys, other = (Elements(code, key, code.parameters[k]) for k in (0, 2))
    places, other_places = (Elements(code, INDEX, code.parameters[k]) for k in (1, 3))
    counts, (n, least, shift, bits) = Elements(code, INDEX, code.parameters[4]), code.parameters[5:]
    buckets = b.shl(ir.Constant(SIZE, 1), bits)
    mask = code.narrow(b.sub(buckets, ir.Constant(SIZE, 1)), key)
    shift = code.narrow(shift, key)

    def digit(value: Any) -> Any:
        return code.wide(b.and_(b.lshr(b.sub(value, least), shift), mask))

    with code.loop(buckets) as k:
        counts[k] = 0
    with code.loop(n) as i:
        at = digit(keys[i])
        counts[at] = b.add(counts[at], ir.Constant(INDEX, 1))
    with code.when(code.compare("==", code.wide(counts[digit(keys[0])]), n)):
        code.give(ir.Constant(BIT, 0))
    total = code.variable(0, INDEX)
    with code.loop(buckets) as k:
        own = counts[k]
        counts[k] = total.get()
        total.add(own)
    with code.loop(n) as i:
        own = keys[i]
        at = digit(own)
        place = counts[at]
        counts[at] = b.add(place, ir.Constant(INDEX, 1))
        other[code.wide(place)] = own
        other_places[code.wide(place)] = places[i]
    code.give(ir.Constant(BIT, 1))
    return code.function
