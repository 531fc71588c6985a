"""Reads at computed places as the processor's gathers: LLVM's masked gather for the chain of loads that Halide writes.

Halide 21 makes a vector of elements at 16 places of 16 extractions of an index, 16 loads and 16 insertions, some 35
cycles on x86, and no pass of LLVM's puts them together again. The gather takes about 12. Where a processor has none,
or a slow one, LLVM's code generator takes it apart as Halide did; there vectors that are looked up at the same lanes
share them (`shared_lanes`). It does not for AMD's with AVX-512, whose gathers are microcode of 80 instructions, slower
than the chain, which stays there. Where the places are numbers beside one of them, as those that a border holds at an
end, they are loaded as neighbors and put where they belong (`neighbors`), narrow integers too. No processor has
gathers of these: clamped neighbors are loaded under masks (`clamped_loads`), of others the aligned words that hold
them are gathered, which no border of a page cuts, where gathers are fast; otherwise they are put together as Halide
says.
"""

from __future__ import annotations

import re
from bisect import bisect
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import replace

from tedsl.backend.assembly.clamped_loads import clamped_places
from tedsl.backend.assembly.neighbors import neighbors, put_in_place
from tedsl.backend.assembly.row_loads import BYTES, LoadedRow, row_lines, rows_of
from tedsl.backend.assembly.shared_lanes import LanePlaces, SharedLanes, Terms, apart, lane_lines, one_by_one, terms_of
from tedsl.backend.assembly.text import NAME, buffers_of, declaring, each_function
from tedsl.lang.dataclass import dataclass
from tedsl.lang.locks import cached_property

__all__ = ["gathered"]

_NAMES = re.compile(NAME)
_DEFINED = re.compile(rf"^  ({NAME}) = (extractelement|insertelement|sext|zext nneg|zext|getelementptr|load) (.*)$")
_EXTRACT = re.compile(rf"^<(\d+) x (i32|i64)> ({NAME}), i64 (\d+)$")
_INSERT = re.compile(rf"^<(\d+) x (float|double|i8|i16|i32|i64)> (poison|{NAME}), \2 ({NAME}), i64 (\d+)$")
_WIDENED = re.compile(rf"^i32 ({NAME}) to i64$")
_ADDRESS = re.compile(rf"^(?:inbounds )?(?:nuw )?(float|double|i8|i16|i32|i64), ptr ({NAME}|@[\w.$]+), i64 ({NAME})$")
_LOAD = re.compile(rf"^(float|double|i8|i16|i32|i64), ptr ({NAME}), align (\d+)(?:, !tbaa (!\d+))?$")
_LABEL = re.compile(r'^(?:[\w.$-]+|"[^"]*"):')
_BARRIER = re.compile(
    r"^  (?:store |fence|(?:%\S+ = )?(?:atomicrmw|cmpxchg|(?:(?:tail|musttail|notail) )?call (?!.*@llvm\.)))"
)
_OTHER = re.compile(rf"^  ({NAME}) = ((?:add|mul|shl|or disjoint|shufflevector) .*)$")
_STORED = re.compile(r"^  store .*, !tbaa (!\d+)$")
_WRITES = re.compile(r"@llvm\.(?:masked\.(?:store|scatter|compressstore)|mem(?:cpy|move|set))")
_BYTES = {"float": 4, "double": 8, "i8": 1, "i16": 2, "i32": 4, "i64": 8}
_NARROW = {"i8", "i16"}  # of which no processor has gathers
_SHORT = {"float": "f32", "double": "f64"}
LEAST = 32  # bytes of a vector from which on a gather is better than single loads
LEAST_LANES = 8  # of a vector of narrow integers


@dataclass(frozen=True)
class _Lane:
    """One element of a gathered vector: where its load stands, and what the address is made of."""

    at: int
    steps: tuple[str, ...]  # the names of its instructions
    vector: tuple[str, str]  # the type and name of the vector of indices
    widened: str  # how they become 64 bits: "sext", "zext", "zext nneg", or "" where they are
    base: str
    align: int
    alias: str


_Chain = tuple[list[_Lane], int, str]


@dataclass(frozen=True)
class _Rows:
    """Vectors that are loaded as a row at each lane, by their numbers."""

    row: LoadedRow
    names: Mapping[int, str]
    end: str  # of a load


def gathered(lines: list[str], features: Set[str] = frozenset()) -> list[str]:
    """The lines of a module, with gathers for vectors that are loaded one by one at the lanes of another vector."""
    declared: dict[str, None] = {}
    is_microcode = "avx512_zen4" in features
    is_slow = "avx2" in features and (is_microcode or "avx512" not in features)
    has_masks = "avx512_skylake" in features  # of bytes
    is_fast = "avx512_sapphirerapids" in features  # on older ones, and AMD's, words cost as much as single loads
    buffers = buffers_of(lines)
    made = each_function(
        lines,
        lambda function: _Function(
            function, buffers, is_slow=is_slow, is_microcode=is_microcode, has_masks=has_masks, is_fast=is_fast
        ).gathered(declared),
    )
    return declaring(made, declared)


class _Function:
    def __init__(
        self, lines: list[str], buffers: Mapping[str, str], *, is_slow: bool, is_microcode: bool, has_masks: bool,
        is_fast: bool,
    ) -> None:  # fmt: skip
        self.lines = lines
        self.buffers = buffers  # of what marks accesses
        self.is_slow = is_slow
        self.is_microcode = is_microcode
        self.has_masks = has_masks
        self.is_fast = is_fast
        self.defined: dict[str, tuple[int, str, str]] = {}
        self.ends: list[str] = []  # insertions of a last lane
        self.others: dict[str, str] = {}  # sums, broadcasts and what is put into vectors
        self.labels: list[int] = []  # where blocks begin
        self.shared: dict[str, SharedLanes] = {}
        self.rows: dict[str, _Rows] = {}
        self.turned: dict[str, str] = {}  # the lines of their vectors

    def gathered(self, declared: dict[str, None]) -> list[str]:
        inserted = (_DEFINED.match(line) for line in self.lines if " = insertelement " in line)
        if not any(match and _is_last(match[3]) for match in inserted):
            return self.lines
        for at, line in enumerate(self.lines):
            match = _DEFINED.match(line)
            if match is None:
                if (other := _OTHER.match(line)) is not None:
                    self.others[other[1]] = other[2]
                elif _LABEL.match(line):
                    self.labels.append(at)
                continue
            self.defined[match[1]] = at, match[2], match[3]
            if match[2] == "insertelement":
                self.others[match[1]] = f"insertelement {match[3]}"
            if match[2] == "insertelement" and _is_last(match[3]):
                self.ends.append(match[1])
        found = {name: chain for name in self.ends if (chain := self._chain(name)) is not None}
        self._share(found)
        dead: set[str] = set()
        for number, (name, chain) in enumerate(found.items()):
            dead |= self._replace(name, chain, number, declared)
        return self._without(dead) if dead else self.lines

    def _replace(self, name: str, chain: _Chain, number: int, declared: dict[str, None]) -> set[str]:
        """Make a gather of the chain that ends at `name`; what it consisted of."""
        lanes, count, element = chain
        last = self.defined[name][0]
        one = lanes[0]
        if (near := self._neighbors(lanes, element, number)) is not None and not self._is_disturbed(lanes, last):
            self.lines[last] = "\n".join([*near[0], f"  {name} = {near[1]}"])
            return {step for lane in lanes for step in lane.steps} - {name}
        if element in _NARROW and not (self.has_masks and self.is_clamped(one.vector[1])):
            if not self.is_fast or self._is_disturbed(lanes, last):
                return set()
            words = self._words(name, chain, number, declared)
            self.lines[last] = "\n".join(words) or self.lines[last]
            return {step for lane in lanes for step in lane.steps} - {name} if words else set()
        if name in self.rows:
            self.lines[last] = "\n".join(self._row(name, chain, number))
            return {step for lane in lanes for step in lane.steps} - {name}
        if name in self.shared:
            loads = [(lane.align, lane.alias) for lane in reversed(lanes)]
            self.lines[last] = "\n".join(one_by_one(name, self.shared[name], one.base, element, loads, number))
            return {step for lane in lanes for step in lane.steps} - {name}
        places = self._places(lanes, number)
        stays = self.is_microcode and not self.is_clamped(one.vector[1])  # clamped ones become masked loads
        if stays or places is None or self._is_disturbed(lanes, last):
            return set()
        align = min(lane.align for lane in lanes)
        short = f"v{count}{_SHORT.get(element, element)}"
        kind = f"<{count} x {element}>"
        mask = ", ".join(["i1 true"] * count)
        alias = f", !tbaa {one.alias}" if one.alias and all(lane.alias == one.alias for lane in lanes) else ""
        *before, index = places
        self.lines[last] = "\n".join([
            *before,
            f"  %te.places.{number} = getelementptr {element}, ptr {one.base}, {index}",
            f"  {name} = call {kind} @llvm.masked.gather.{short}.v{count}p0(<{count} x ptr> %te.places.{number}, "
            f"i32 {align}, <{count} x i1> <{mask}>, {kind} poison){alias}",
        ])  # fmt: skip
        wanted = f"<{count} x ptr>, i32 immarg, <{count} x i1>, {kind}"
        declared[f"declare {kind} @llvm.masked.gather.{short}.v{count}p0({wanted})"] = None
        return {step for lane in lanes for step in lane.steps} - {name}

    def _words(self, name: str, chain: _Chain, number: int, declared: dict[str, None]) -> list[str]:
        """The lines that gather the aligned words in which narrow elements lie, and shift these out of them."""
        lanes, count, element = chain
        base, (kind, index) = lanes[0].base, lanes[0].vector
        if kind != f"<{count} x i32>" or self._places(lanes, number) != [f"{kind} {index}"]:
            return []
        each = 4 // _BYTES[element]  # elements of a word
        made: list[str] = []

        def give(what: str, text: str) -> str:
            made.append(f"  %te.word.{what}.{number} = {text}")
            return f"%te.word.{what}.{number}"

        def all_of(value: int) -> str:
            return f"<{', '.join([f'i32 {value}'] * count)}>"

        address = give("base", f"ptrtoint ptr {base} to i64")
        aligned = give("aligned", f"inttoptr i64 {give('low', f'and i64 {address}, -4')} to ptr")
        before = give("odd", f"lshr i64 {give('bytes', f'and i64 {address}, 3')}, {_BYTES[element] - 1}")
        one = give("one", f"insertelement {kind} poison, i32 {give('before', f'trunc i64 {before} to i32')}, i64 0")
        begin = give("all", f"shufflevector {kind} {one}, {kind} poison, <{count} x i32> zeroinitializer")
        within = give("within", f"add {kind} {give('rest', f'and {kind} {index}, {all_of(each - 1)}')}, {begin}")
        more = give("more", f"lshr {kind} {within}, {all_of(each.bit_length() - 1)}")
        whole = give("whole", f"ashr {kind} {index}, {all_of(each.bit_length() - 1)}")  # no sum leaves 32 bits
        places = give("places", f"getelementptr i32, ptr {aligned}, {kind} {give('at', f'add {kind} {whole}, {more}')}")
        wanted = f"<{count} x ptr>", "i32", f"<{count} x i1>", kind
        called = f"{kind} @llvm.masked.gather.v{count}i32.v{count}p0"
        mask = ", ".join(["i1 true"] * count)
        given = f"{wanted[0]} {places}, i32 4, {wanted[2]} <{mask}>, {kind} poison"
        declared[f"declare {called}({wanted[0]}, i32 immarg, {wanted[2]}, {kind})"] = None
        held = give("held", f"call {called}({given})")
        place = give("place", f"and {kind} {within}, {all_of(each - 1)}")
        bits = give("bits", f"shl {kind} {place}, {all_of({2: 4, 4: 3}[each])}")
        made.append(
            f"  {name} = trunc {kind} {give('shifted', f'lshr {kind} {held}, {bits}')} to <{count} x {element}>"
        )
        return made

    @cached_property
    def is_clamped(self) -> Callable[[str], bool]:
        """Whether a vector of places is of neighbors that were clamped."""
        return clamped_places(self.lines)

    def _neighbors(self, lanes: list[_Lane], element: str, number: int) -> tuple[list[str], str] | None:
        """The lines that load elements whose places are numbers beside one of them, and the vector of these."""
        (kind, vector), one = lanes[0].vector, lanes[0]
        if any((lane.vector, lane.base) != ((kind, vector), one.base) for lane in lanes):
            return None
        if kind != f"<{len(lanes)} x i32>" or not {lane.widened for lane in lanes} <= {"sext", "zext nneg"}:
            return None
        found = neighbors(vector, self.others)
        if found is None:
            return None
        return put_in_place(found, one.base, element, _end_of_load(lanes), number)

    def _places(self, lanes: list[_Lane], number: int) -> list[str] | None:
        """The vector of places, behind the lines that make it; None where the lanes are not those of one vector."""
        (kind, name), base = lanes[0].vector, lanes[0].base
        if any((lane.vector, lane.base) != ((kind, name), base) for lane in lanes):
            return None
        if not kind.startswith(f"<{len(lanes)} x "):  # the first lanes of a longer vector
            return None
        ways = {lane.widened for lane in lanes}
        if ways <= {"sext", "zext nneg"} or ways == {""}:
            return [f"{kind} {name}"]  # an address takes its index for signed
        if not ways <= {"zext", "zext nneg"}:
            return None
        wide = kind.replace("i32", "i64")
        return [f"  %te.wide.{number} = zext {kind} {name} to {wide}", f"{wide} %te.wide.{number}"]

    def _chain(self, name: str) -> _Chain | None:
        """The lanes of a vector that is put together of loads, first to last."""
        lanes: list[_Lane] = []
        count, element = 0, ""
        while name != "poison":
            _, kind, rest = self.defined.get(name, (0, "", ""))
            match = _INSERT.match(rest) if kind == "insertelement" else None
            if match is None:
                return None
            count, element = int(match[1]), match[2]
            lane = self._lane(match[4], element, int(match[5]))
            if lane is None or int(match[5]) != count - 1 - len(lanes):
                return None
            lanes.append(replace(lane, steps=(name, *lane.steps)))
            name = match[3]
        return (lanes, count, element) if len(lanes) == count else None

    def _lane(self, name: str, element: str, number: int) -> _Lane | None:
        """A load at lane `number` of a vector of places."""
        at, kind, rest = self.defined.get(name, (0, "", ""))
        load = _LOAD.match(rest) if kind == "load" else None
        if load is None or load[1] != element:
            return None
        _, kind, rest = self.defined.get(load[2], (0, "", ""))
        address = _ADDRESS.match(rest) if kind == "getelementptr" else None
        if address is None or address[1] != element:
            return None
        steps, index, how = [name, load[2]], address[3], ""
        _, kind, rest = self.defined.get(index, (0, "", ""))
        if kind in ("sext", "zext", "zext nneg"):
            widened, how = _WIDENED.match(rest), kind
            if widened is None:
                return None
            steps.append(index)
            index = widened[1]
            _, kind, rest = self.defined.get(index, (0, "", ""))
        place = _EXTRACT.match(rest) if kind == "extractelement" else None
        if place is None or int(place[4]) != number:
            return None
        vector = f"<{place[1]} x {place[2]}>", place[3]
        return _Lane(at, (*steps, index), vector, how, address[2], int(load[3]), load[4] or "")

    def _row(self, name: str, chain: _Chain, number: int) -> list[str]:
        """The line of a vector out of rows, and before the first one of them the lines that load a row at each lane."""
        lanes, count, element = chain
        if name in self.turned:
            return [self.turned[name]]
        made, at = self.rows[name], self.shared[name]
        lines, base = lane_lines(at, lanes[0].base, element, count, number)
        loads, results = row_lines(made.row, made.names, base, element, at.names(count), made.end, f"%te.row.{number}")
        self.turned |= results
        return [*lines, *loads, results[name]]

    def _share(self, found: Mapping[str, _Chain]) -> None:
        """What is looked up at lanes that others in its block are looked up at, too, but for what is added to them."""
        groups: dict[tuple[int, str], dict[str, LanePlaces]] = {}
        known: dict[tuple[int, Terms], tuple[LanePlaces, int]] = {}  # the first places that differ by numbers alone
        for name, (lanes, count, element) in found.items():
            if element in _NARROW:
                continue
            (kind, vector), base, last = lanes[0].vector, lanes[0].base, self.defined[name][0]
            alike = all((lane.vector, lane.base) == ((kind, vector), base) for lane in lanes)
            alike = alike and self._neighbors(lanes, element, 0) is None  # which are loaded as such
            is_signed = all(lane.widened in ("sext", "zext nneg") for lane in lanes)
            if alike and is_signed and kind == f"<{count} x i32>" and not self._is_disturbed(lanes, last):
                block = bisect(self.labels, last)
                terms, beside = terms_of(vector, self.others)
                first, own = known.setdefault((block, terms), (apart(vector, self.others), beside))
                places = replace(first, number=first.number + beside - own)
                groups.setdefault((block, places.vector), {})[name] = places
        for (block, _), names in groups.items():
            if len(names) > 1:
                self._rows_among(names, found)
                sharing = [name for name in names if self.is_slow or name in self.rows]
                self.shared |= {n: SharedLanes(names[n], block, is_first=n == sharing[0]) for n in sharing}

    def _rows_among(self, names: Mapping[str, LanePlaces], found: Mapping[str, _Chain]) -> None:
        """Vectors that lie side by side, with nothing between them that may write."""
        runs: dict[tuple[str, str, tuple[str, ...]], list[dict[int, str]]] = {}
        for name, places in names.items():
            lanes, count, element = found[name]
            if count & (count - 1) or self.is_clamped(lanes[0].vector[1]):  # squares fill such vectors
                continue
            known = runs.setdefault((lanes[0].base, element, places.scalars), [{}])
            first = next(iter(known[-1].values()), name)
            begin, last = self.defined[first][0], self.defined[name][0]
            if places.number in known[-1] or self._is_written(lanes[0].alias, begin, last):
                known.append({})
            known[-1][places.number] = name
        for (_, element, _), parts in runs.items():
            for part in parts:
                taken: set[int] = set()
                for row in rows_of(part, _BYTES[element]):
                    if not self.is_slow and row.length * _BYTES[element] < BYTES:
                        continue
                    mine = {
                        n: name for n, name in part.items() if n - row.begin in range(row.length) and n not in taken
                    }
                    taken |= mine.keys()
                    end = _end_of_load([lane for name in mine.values() for lane in found[name][0]])
                    self.rows |= dict.fromkeys(mine.values(), _Rows(row, mine, end))

    def _is_disturbed(self, lanes: Iterable[_Lane], last: int) -> bool:
        """Whether something between the first load and a line may write, or a block ends there."""
        between = self.lines[min(lane.at for lane in lanes) : last]
        return any(_LABEL.match(line) or _BARRIER.match(line) or _WRITES.search(line) for line in between)

    def _is_written(self, alias: str, begin: int, end: int) -> bool:
        """Whether something between two lines of a block may write to the buffer that is read under an alias.

        What is written to other buffers may be their memory. Then it was to be read before.
        """
        buffer = self.buffers.get(alias)
        for line in self.lines[begin:end]:
            stored = _STORED.match(line)
            is_other = stored is not None and self.buffers.get(stored[1], buffer) != buffer
            if not is_other and (_BARRIER.match(line) or _WRITES.search(line)):
                return True
        return False

    def _without(self, dead: set[str]) -> list[str]:
        """The lines less those of `dead` whose results nobody uses any more."""
        uses = Counter(name for line in self.lines for name in _NAMES.findall(line))
        gone: set[int] = set()
        pending = sorted(dead, key=lambda n: -self.defined[n][0])
        for name in pending:  # users before what they use
            if uses[name] == 1:
                at = self.defined[name][0]
                gone.add(at)
                uses.subtract(_NAMES.findall(self.lines[at]))
        return [line for at, line in enumerate(self.lines) if at not in gone]


def _end_of_load(lanes: Sequence[_Lane]) -> str:
    """The alignment and the alias of what is loaded instead of single elements."""
    alias = lanes[0].alias if len({lane.alias for lane in lanes}) == 1 else ""
    return f"align {min(lane.align for lane in lanes)}" + (f", !tbaa {alias}" if alias else "")


def _is_last(insertion: str) -> bool:
    """Whether the last lane of a vector that is long enough is put in."""
    parts = _INSERT.match(insertion)
    if parts is None or int(parts[5]) != int(parts[1]) - 1:
        return False
    lanes = int(parts[1])
    return lanes >= LEAST_LANES if parts[2] in _NARROW else lanes * _BYTES[parts[2]] >= LEAST
