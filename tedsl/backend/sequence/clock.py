"""Where stages along time are alike in all steps, and which steps of them belong to a segment.

Each stage is a fixed number of steps from a common clock, chosen so that what is unlike the others (the first states
of a scan, the last ones of an adjoint) lies before the same tick or after the same one. Between these two, one program
can compute every segment of time:

    u[t] = select(t < 1, a, f(u[t - 1]))                       as the clock; unlike before 1
    du[t] = select(t < 9, g(u[t], du[t + 1]), 0) + v[t]        one step before it; unlike from 10 on
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from itertools import product

from tedsl.backend.sequence.timeline import NotAlongTime, Timed, Timeline, offset_of
from tedsl.lang.dataclass import dataclass
from tedsl.lang.expr import Apply, Fn
from tedsl.lang.extents import number
from tedsl.lang.tensor import Operation, Tensor
from tedsl.lang.traverse import topological

__all__ = ["Clock", "Cut", "Segment", "Span", "Spans"]

LEAST_STEPS = 4  # of a segment
NEAR_ENDS = 16  # ticks within which what is unlike the others may lie

Span = tuple[int, int]

# By how much `t + c < 0` and its like change after t = -c, in the order in which they do.
_CHANGES = {Fn.LT: (0,), Fn.GE: (0,), Fn.LE: (1,), Fn.GT: (1,), Fn.EQ: (0, 1), Fn.NE: (0, 1)}
_MIRRORED = {Fn.LT: Fn.GT, Fn.GE: Fn.LE, Fn.LE: Fn.GE, Fn.GT: Fn.LT, Fn.EQ: Fn.EQ, Fn.NE: Fn.NE}


@dataclass(frozen=True)
class Segment:
    """The ticks from `begin` to before `end`, of so many."""

    begin: int
    end: int
    ticks: int

    @property
    def length(self) -> int:
        return self.end - self.begin

    def begins(self, *, up: bool) -> bool:
        """Whether no other one comes before it in a turn, upwards or down."""
        return self.begin == 0 if up else self.end == self.ticks

    def span(self, timed: Timed, shift: int) -> Span:
        """What a stage does of its own in this segment, a fixed number of steps before or behind it."""
        begin = timed.begin if self.begin == 0 else max(timed.begin, self.begin + shift)
        end = timed.end if self.end == self.ticks else min(timed.end, self.end + shift)
        return begin, max(begin, end)


@dataclass(frozen=True)
class Cut:
    """All of time: a short segment at either end, and those between that are alike and have one program.

    That is the program of `pattern`, which begins where the first of them does; this one may have fewer steps.
    """

    segments: tuple[Segment, ...]
    alike: tuple[Segment, ...]
    pattern: Segment

    @property
    def is_even(self) -> bool:
        """Whether all of those have the steps of the pattern."""
        return self.alike[0].length == self.pattern.length


@dataclass(eq=False)
class Spans:
    """The steps over which each stage is computed in a segment, and those that are read of each tensor."""

    of: dict[Operation, Span] = field(default_factory=dict)
    read: dict[Operation, Span] = field(default_factory=dict)
    windows: dict[tuple[Tensor, int], Span] = field(default_factory=dict)  # of what lies ready, along a dimension

    def reaches(self, timed: Timed, span: Span) -> None:
        """Take up the steps that are read of a stage, as far as they exist."""
        first, last = max(timed.begin, span[0]), min(timed.end, span[1])
        if first < last:
            known = self.read.get(timed.op, (first, last))
            self.read[timed.op] = min(known[0], first), max(known[1], last)

    def sees(self, tensor: Tensor, dim: int, span: Span) -> None:
        """Take up what is read of what lies ready."""
        known = self.windows.get((tensor, dim), span)
        self.windows[tensor, dim] = min(known[0], span[0]), max(known[1], span[1])


class Clock:
    """The ticks of a program along time, and what of it is alike in all of them."""

    def __init__(self, line: Timeline) -> None:
        self.line = line
        self._usual = {op: _usual(timed) for op, timed in line.timed.items()}
        self.shifts = self._shifts()
        self.ticks = max(timed.end - self.shifts[op] for op, timed in line.timed.items())
        middle = Segment(self.ticks // 3, 2 * self.ticks // 3, self.ticks)
        self.partial: set[tuple[Tensor, int]] = set()  # what lies ready for a part of time, and is given as a whole
        self._between = [(middle, self.spans(middle, turn)) for turn in range(line.turns)]
        self.partial.update(key for key, ticks in self._inside().items() if self._is_partial(ticks))
        for (_, spans), key in product(self._between, self.partial):
            spans.windows.pop(key, None)
        self.overlap = self._overlap()
        self.least = max(LEAST_STEPS, 2 * self.overlap + 1)
        self.first, self.last = self._limit(up=True), self._limit(up=False)
        self.ticks = max(self.ticks, self.last + 1)
        if self.last - self.first < 2 * self.least:
            raise NotAlongTime(f"its {line.steps} steps are too few")

    def cut(self, length: int) -> Cut:
        """Segments of so many steps or little less, but for those at the ends."""
        steps, length = self.last - self.first, max(self.least, length)
        count = max(2, -(-steps // length))
        count = next((n for n in range(count, count + 1 + count // 4) if steps % n == 0), count)
        length = -(-steps // count)
        count = -(-steps // length)
        second = self.last - (count - 1) * length
        begins = [self.first, *range(second, self.last, length)]
        ends = [*begins[1:], self.last]
        between = tuple(Segment(a, b, self.ticks) for a, b in zip(begins, ends, strict=True))
        is_over = between[0].length < length and self._has_results_down  # it would write those of the second, too
        alike = between[1:] if is_over else between
        pattern = Segment(alike[0].begin, alike[0].begin + length, self.ticks)
        head, tail = Segment(0, self.first, self.ticks), Segment(self.last, self.ticks, self.ticks)
        return Cut((head, *between, tail), alike, pattern)

    @property
    def _has_results_down(self) -> bool:
        """Whether a turn that begins with the last step computes a result."""
        return not all(self.line.is_up(self.line.timed[t.op].turn) for t in self.line.results)

    def spans(self, segment: Segment, turn: int) -> Spans:
        """By what sums and scans do, from readers to what they read."""
        spans = Spans()
        self._reach_points(spans, segment, turn)
        for op, timed in reversed(self.line.timed.items()):
            span = self._span(segment, turn, timed, spans)
            if span is None or (timed.is_sum and span[0] >= span[1]):
                continue
            spans.of[op] = span
            for tensor, (low, high) in timed.offsets.items():
                spans.reaches(self.line.timed[tensor.op], (span[0] + low, span[1] + high))
            for read in op.reads:
                place = self.line.window(timed, read)
                if place is not None and (read.tensor, place[0]) not in self.partial:
                    spans.sees(read.tensor, place[0], (span[0] + place[1], span[1] + place[1]))
        return spans

    def _reach_points(self, spans: Spans, segment: Segment, turn: int) -> None:
        """The single steps that are read where a turn ends."""
        if not segment.begins(up=not self.line.is_up(turn)):
            return
        for tensor, away in self.line.points.items():
            timed = self.line.timed[tensor.op]
            if timed.turn == turn:
                first = timed.end - away if self.line.is_up(turn) else timed.begin
                spans.reaches(timed, (first, first + away))

    def _span(self, segment: Segment, turn: int, timed: Timed, spans: Spans) -> Span | None:
        wanted = spans.read.get(timed.op)
        is_result = timed.turn == turn and any(t.op is timed.op for t in self.line.results)
        if not timed.is_sum and not timed.is_scan and not is_result:
            return wanted
        if timed.turn > turn or (timed.turn < turn and wanted is None):
            return None
        begin, end = segment.span(timed, self.shifts[timed.op])
        if wanted is not None and is_result and not timed.is_scan:
            return min(begin, wanted[0]), max(end, wanted[1])
        if timed.turn == turn or wanted is None:
            return begin, end
        return (begin, max(begin, wanted[1])) if self.line.is_up(timed.turn) else (min(end, wanted[0]), end)

    def _shifts(self) -> dict[Operation, int]:
        """How many steps each stage is before the clock.

        What a turn reads of itself was computed by then. Apart from that, all are at their last usual step at once.
        """
        shifts: dict[Operation, int] = {}
        for op, timed in self.line.timed.items():
            shift, is_up = self._usual[op][1] - self.line.steps, self.line.is_up(timed.turn)
            for tensor, (low, high) in timed.offsets.items():
                if tensor.op is not op and self.line.timed[tensor.op].turn == timed.turn:
                    before = shifts[tensor.op]
                    shift = min(shift, before - high) if is_up else max(shift, before - low)
            shifts[op] = shift
        return shifts

    def _overlap(self) -> int:
        """How far a segment reads into others, at most."""
        found = [0, *map(abs, self.shifts.values())]
        for _, spans in self._between:
            for op, (near, far) in spans.read.items():
                begin, end = spans.of[op]
                found += (begin - near, far - end)
        return max(found)

    def _limit(self, *, up: bool) -> int:
        """The first tick from which on all is as usual; not `up`: the one up to which it is."""
        side, found = (0, [1]) if up else (1, [self.ticks])
        for middle, spans in self._between:
            for op, span in spans.of.items():
                found.append(_ticks(middle, span, self._whole(op))[side])
                if self._starts(op, up=up):
                    found.append(_ticks(middle, span, self._usual[op])[side])
            read = ((op, span) for op, span in spans.read.items() if not self._goes(op, up=up))
            found += [_ticks(middle, span, self._whole(op))[side] for op, span in read]
        found += [ticks[side] for ticks in self._inside().values()]
        found += self._of_points(up=not up)
        return max(found) if up else min(found)

    def _whole(self, op: Operation) -> Span:
        return self.line.timed[op].begin, self.line.timed[op].end

    def _inside(self) -> dict[tuple[Tensor, int], Span]:
        """The ticks at which there is what is read of what lies ready."""
        found: dict[tuple[Tensor, int], Span] = {}
        for middle, spans in self._between:
            for (tensor, dim), span in spans.windows.items():
                ticks = _ticks(middle, span, (0, number(tensor.extents[dim]) or 0))
                known = found.get((tensor, dim), ticks)
                found[tensor, dim] = max(known[0], ticks[0]), min(known[1], ticks[1])
        return found

    def _is_partial(self, ticks: Span) -> bool:
        return ticks[0] > NEAR_ENDS or ticks[1] < self.ticks - NEAR_ENDS

    def _starts(self, op: Operation, *, up: bool) -> bool:
        """Whether it matters that a stage is unlike the others where a turn starts, upwards or down.

        Where a scan ends, it is a choice that its own steps make, which costs little.
        """
        return not self.line.timed[op].is_scan or self._goes(op, up=up)

    def _goes(self, op: Operation, *, up: bool) -> bool:
        """Whether a stage is a scan that goes upwards or down.

        Steps before the first one that are read of it are read where the program does not use them.
        """
        timed = self.line.timed[op]
        return timed.is_scan and self.line.is_up(timed.turn) == up

    def _of_points(self, *, up: bool) -> list[int]:
        """Where the steps that are read at the end of a turn begin, if more than those that go to the next segment."""
        found = []
        for tensor, away in self.line.points.items():
            timed, shift = self.line.timed[tensor.op], self.shifts[tensor.op]
            if away > self.overlap and self.line.is_up(timed.turn) == up:
                found.append(timed.end - shift - away if up else timed.begin - shift + away)
        return found


def _ticks(segment: Segment, span: Span, whole: Span) -> Span:
    """The ticks between which those steps that are `span` in a segment stay in `whole`."""
    return whole[0] - (span[0] - segment.begin), whole[1] - (span[1] - segment.end)


def _usual(timed: Timed) -> Span:
    """The steps between those near the ends at which the expressions of a stage choose something else."""
    first, last = timed.begin, timed.end
    for step in _changes(timed):
        if timed.begin <= step <= timed.begin + NEAR_ENDS:
            first = max(first, step)
        elif timed.end - NEAR_ENDS <= step <= timed.end:
            last = min(last, step)
    return first, last


def _changes(timed: Timed) -> Iterator[int]:
    """The steps from which on a condition is another."""
    for node in topological(timed.op.expressions):
        if not isinstance(node, Apply) or node.fn not in _CHANGES or node.args[0].dtype is not timed.axis.dtype:
            continue
        left, right = node.args
        for fn, difference in ((node.fn, left - right), (_MIRRORED[node.fn], right - left)):
            step = offset_of(difference, timed.axis)
            if step is not None:
                yield from (after - step for after in _CHANGES[fn])
