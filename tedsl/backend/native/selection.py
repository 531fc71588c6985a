"""Which elements of a row must be sorted, where only the first in order are asked for.

A handful is kept in order while the row goes by. In a long row a sample says how large a key can be that is among the
first: what is beyond is never looked at again, and a sample that says too little costs a sort of everything. Elements
go by in blocks, most of which hold none: that is asked for a whole block at a time, in vectors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from tedsl.backend.native.builder import INDEX, SIZE, Elements, RoutineCode
from tedsl.backend.native.radix import BUCKETS, opened
from tedsl.lang.dataclass import dataclass

__all__ = ["Selection", "SortMemory"]

FEWER = 4  # times fewer are asked for than there are: a sample is worth it
LEAST = 512  # elements in a row, for that
SHORT = 1 << 12  # rows below have a small sample, and a handful of them needs none
LITTLE, SAMPLE, LARGE_SAMPLE = 64, 1024, 8192
SHARE = 7  # powers of two: of a long row so many times more elements than of its sample
HANDFUL, LARGE_HANDFUL = 32, 128  # of short rows, of long ones
BLOCK, SMALL_BLOCK = 64, 16  # where few elements are taken, where some are


class SortMemory:
    """Keys and places twice, and counts."""

    def __init__(self, code: RoutineCode, key: Any, n: Any) -> None:
        room = code.builder.add(n, ir.Constant(SIZE, SAMPLE))
        self.code = code
        self.keys, self.others = code.taken(room, key), code.taken(room, key)
        self.places, self.other_places = code.taken(room, INDEX), code.taken(room, INDEX)
        self.counts = code.taken(BUCKETS, INDEX)
        self.memory = [a.base for a in (self.keys, self.places, self.others, self.other_places)]

    @property
    def _all(self) -> list[Elements]:
        return [self.keys, self.others, self.places, self.other_places, self.counts]

    def is_missing(self) -> Any:
        """Whether there was not enough memory."""
        found = [self.code.is_null(a.base) for a in self._all]
        missing = found[0]
        for each in found[1:]:
            missing = self.code.builder.or_(missing, each)
        return missing

    def free(self) -> None:
        for array in self._all:
            self.code.freed(array)


@dataclass(frozen=True)
class Selection:
    """The first m of the n elements of a row; `sort` and `keep` are those of `radix`, `key` makes keys of elements."""

    code: RoutineCode
    work: SortMemory
    row: Elements
    n: Any
    m: Any
    sort: Any
    keep: Any
    key: Callable[[Any], Any]

    def placed(self) -> Elements:
        """The places of the first m elements, in order."""
        code, b, work = self.code, self.code.builder, self.work
        swapped = code.variable(0, ir.IntType(1))
        is_short = code.compare("<", self.n, SHORT)
        most = b.select(is_short, ir.Constant(SIZE, HANDFUL), ir.Constant(SIZE, LARGE_HANDFUL))
        handful = b.and_(code.compare("<=", self.m, most), code.compare("<", self.m, self.n))
        with code.either(handful) as (some, many):
            with some:
                self._kept()
            with many:
                count = self._gathered()
                swapped.set(b.call(self.sort, [*work.memory, work.counts.base, count]))
        return Elements(code, INDEX, b.select(swapped.get(), work.memory[3], work.memory[1]))

    def _kept(self) -> None:
        """A handful in order: of a short row its first elements to begin with, of a long one what is to be beaten."""
        code, b, work = self.code, self.code.builder, self.work
        with code.either(code.compare("<", self.n, SHORT)) as (short, long):
            with short:
                self._fill(self.m)
                b.call(self.keep, [work.keys.base, work.places.base, self.m, self.m])
                self._replaced(self.m)
            with long:
                limit, last = self._limit(), ir.Constant(work.keys.kind, -1)
                beyond = b.select(code.compare("<", limit, last), b.add(limit, ir.Constant(limit.type, 1)), last)
                with code.loop(self.m) as i:
                    work.keys[i], work.places[i] = beyond, 0
                self._replaced(ir.Constant(SIZE, 0))
                with code.when(code.compare(">=", work.keys[self._last], beyond)):
                    self._fill(self.n)
                    b.call(self.keep, [work.keys.base, work.places.base, self.n, self.m])

    def _replaced(self, begin: Any) -> None:
        """Each element from `begin` on that is before the last of the handful takes its place among them."""
        code, work, last = self.code, self.work, self._last

        def look(i: Any, own: Any) -> None:
            with code.when(code.compare("<", own, work.keys[last])):
                at = opened(code, work.keys, work.places, own, last)
                work.keys[at], work.places[at] = own, code.narrow(i, INDEX)

        self._go_by(begin, "<", lambda: work.keys[last], look, BLOCK)

    @property
    def _last(self) -> Any:
        return self.code.builder.sub(self.m, ir.Constant(SIZE, 1))

    def _gathered(self) -> Any:
        """Keys and places of what must be sorted; how many these are."""
        code, b, work = self.code, self.code.builder, self.work
        count = code.variable(0)

        def look(i: Any, own: Any) -> None:
            """Whether it stays cannot be foreseen: it is put where the next one that does will lie."""
            work.keys[count.get()], work.places[count.get()] = own, code.narrow(i, INDEX)
            count.add(b.zext(code.compare("<=", own, limit), SIZE))

        fewer = code.compare("<=", b.mul(self.m, ir.Constant(SIZE, FEWER)), self.n)
        with code.when(b.and_(fewer, code.compare(">=", self.n, LEAST))):
            limit = self._limit()
            self._go_by(ir.Constant(SIZE, 0), "<=", lambda: limit, look, SMALL_BLOCK)
        with code.when(code.compare("<", count.get(), self.m)):
            self._fill(self.n)
            count.set(self.n)
        return count.get()

    def _fill(self, count: Any) -> None:
        with self.code.loop(count) as i:
            self.work.keys[i] = self.key(self.row[i])
            self.work.places[i] = self.code.narrow(i, INDEX)

    def _go_by(
        self, begin: Any, relation: str, limit: Callable[[], Any], look: Callable[[Any, Any], None], block: int
    ) -> None:
        """Look at the elements from `begin` on in blocks where a key has the relation to the limit of the moment."""
        code, b, key = self.code, self.code.builder, self.key
        blocks = b.udiv(b.add(b.sub(self.n, begin), ir.Constant(SIZE, block - 1)), ir.Constant(SIZE, block))
        with code.loop(blocks) as k:
            first = b.add(begin, b.mul(k, ir.Constant(SIZE, block)))
            end = code.least(self.n, b.add(first, ir.Constant(SIZE, block)))
            found, now = code.variable(0, self.work.keys.kind), limit()
            with code.loop(end, first) as i:
                there = b.zext(code.compare(relation, key(self.row[i]), now), self.work.keys.kind)
                found.set(b.or_(found.get(), there))
            with code.when(code.compare("!=", found.get(), 0)), code.loop(end, first) as i:
                look(i, key(self.row[i]))

    def _limit(self) -> Any:
        """A key that probably no fewer than m keys reach: the sample's, somewhat beyond the share of m."""
        code, b, work = self.code, self.code.builder, self.work
        large = code.least(b.lshr(self.n, ir.Constant(SIZE, SHARE)), ir.Constant(SIZE, LARGE_SAMPLE))
        large = b.select(code.compare("<", large, SAMPLE), ir.Constant(SIZE, SAMPLE), large)
        size = b.select(code.compare("<", self.n, SHORT), ir.Constant(SIZE, LITTLE), large)
        step = b.udiv(self.n, size)
        with code.loop(size) as i:
            work.keys[i] = self.key(self.row[b.mul(i, step)])
            work.places[i] = 0
        swapped = b.call(self.sort, [*work.memory, work.counts.base, size])
        keys = Elements(code, work.keys.kind, b.select(swapped, work.memory[2], work.memory[0]))
        share = b.udiv(b.mul(self.m, size), self.n)
        rank = b.add(share, b.add(b.lshr(share, ir.Constant(SIZE, 2)), ir.Constant(SIZE, 6)))
        return keys[code.least(rank, b.sub(size, ir.Constant(SIZE, 1)))]
