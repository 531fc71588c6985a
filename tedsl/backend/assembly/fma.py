"""Fused multiply-add in strict kernels: LLVM's `contract` flag on sums of products and on our own polynomials.

Halide 21 knows two kinds of float arithmetic: fast, where LLVM may assume that there is no NaN and does, and strict,
which never fuses and costs a matrix product a third of its speed (99 against 150 GFLOP/s on two cores with AVX-512). So
kernels are compiled strictly, to LLVM's assembly, and get the one liberty that is harmless here: an accumulation over a
loop may round once where it rounded twice. Pointwise arithmetic of users keeps every rounding, so that a * b - c is 0
where NumPy says so.
"""

from __future__ import annotations

import functools
import itertools
import re
import struct
from collections.abc import Collection, Iterable, Sequence, Set
from typing import Any

import llvmlite.binding as llvm

from tedsl.backend.assembly.atomics import compared_once
from tedsl.backend.assembly.exponentials import scaled
from tedsl.backend.assembly.gathers import gathered
from tedsl.backend.assembly.min_max import extremes
from tedsl.backend.assembly.nontemporal import streamed, tags_of
from tedsl.backend.assembly.prefetch import fetched_ahead
from tedsl.backend.assembly.reciprocals import multiplied
from tedsl.backend.assembly.text import declaring
from tedsl.backend.host.linker import initialize
from tedsl.backend.scalars import float32_math, float64_math, wide_math

__all__ = ["contract", "emit_assembly", "emit_object"]

_NAME = r'(%(?:[\w.$-]+|"[^"]*"))'
_FLOAT = r"(?:<\d+ x (?:float|double)>|float|double)"
_RESULT = re.compile(rf"^\s+{_NAME} = (?:tail )?(phi|fmul|fadd|fsub) ({_FLOAT}) (.*)$")
_OPERAND = re.compile(_NAME)
_READ = re.compile(
    rf"^\s+{_NAME} = (?:load {_FLOAT}, |(?:tail )?call {_FLOAT} @llvm\.masked\.load\.[^(]*\()ptr {_NAME},"
)
_WRITTEN = re.compile(
    rf"^\s+(?:store {_FLOAT} {_NAME}, |(?:tail )?call void @llvm\.masked\.store\.[^(]*\({_FLOAT} {_NAME}, )ptr {_NAME},"
)
_PASSED_ON = re.compile(rf"^\s+{_NAME} = (?:select|shufflevector) (.*)$")  # one of two, parts put side by side
_CONSTANT = re.compile(r"0x[0-9A-F]{16}")
_CONTRACTED = re.compile(r"= (fmul|fadd|fsub) ")
_VECTOR_ACCESS = re.compile(r"((?:load|store) <\d+ x ([a-z]+)(\d*)>[^\n]*?, ptr [^,\n]+, align )\d+")
_MASKED_LOAD = re.compile(r"(@llvm\.masked\.load\.v\d+([a-z]+)(\d+)\.p0\(ptr [^,]+, i32 )\d+")
# What LLVM may know of an argument; it stands between the type and the value, and only in calls.
_KNOWN = r"(?:(?:nonnull|noundef|nocapture|readonly|writeonly|noalias|align \d+|\w+\([^)]*\)) )*"
_MASKED_STORE = re.compile(
    rf"^  (?:tail )?call void @llvm\.masked\.store\.v\w+\.p0\((<\d+ x (\w+)>) {_KNOWN}(.*), ptr {_KNOWN}(.*), "
    r"i32 (\d+), <\d+ x i1> <([^>]*)>\)(.*)$",
    re.MULTILINE,
)
_CHOICE = re.compile(rf"^\s+{_NAME} = select (?:[a-z]+ )*<(\d+) x i1> \S+, <\d+ x (i32|i64|float|double)> (.*)$")
_BITWISE = re.compile(rf"^\s+{_NAME} = (?:tail )?(and|or|xor|fneg|bitcast|call)\b(.*)$")
_BLOCK = re.compile(r"@llvm\.mem(?:cpy|move|set)\.[^\n]*")
_BITS = {"half": 16, "bfloat": 16, "float": 32, "double": 64}


def realigned(assembly: str) -> str:
    """Vector accesses that expect no more of an address than that it is one of an element.

    Halide 21 takes an output that its own update reads back for memory that it allocated itself, aligned to whole
    vectors; on an array that is not, the process ends. On aligned memory the instructions are as fast.
    """

    def natural(match: re.Match[str]) -> str:
        bits = int(match[3]) if match[3] else _BITS.get(match[2], 8)
        return f"{match[1]}{max(1, bits // 8)}"

    assembly = _MASKED_LOAD.sub(natural, _VECTOR_ACCESS.sub(natural, assembly))
    return _BLOCK.sub(lambda match: re.sub(r"\balign \d+", "align 1", match[0]), assembly)


def unmasked(assembly: str) -> str:
    """Masked stores of one lane as stores of one element.

    Where the value was truncated, LLVM 22 stores the element from before: the last 16-bit number of a row of 17 took
    the two bytes behind it along.
    """
    count = itertools.count()

    def single(match: re.Match[str]) -> str:
        vector, element, value, address, align, mask, rest = match.groups()
        lanes = [lane for lane, bit in enumerate(mask.split(", ")) if bit == "i1 true"]
        if len(lanes) != 1:
            return match[0]
        number, lane = next(count), lanes[0]
        return (
            f"  %te.element.{number} = extractelement {vector} {value}, i64 {lane}\n"
            f"  %te.address.{number} = getelementptr {element}, ptr {address}, i64 {lane}\n"
            f"  store {element} %te.element.{number}, ptr %te.address.{number}, align {align}{rest}"
        )

    return _MASKED_STORE.sub(single, assembly)


def fenced(assembly: str, features: Set[str]) -> str:
    """Choices between a vector and a bitwise combination of others, kept apart from the combination.

    LLVM 20 to 22 make one masked `vpternlog` of the two, swap its operands to read one of them from memory, and leave
    its truth table as it was: `select(c, x, (x & m) | (y & ~m))` came out with bits of x where those of y belong.
    """
    if "avx512" not in features:
        return assembly
    lines: list[str] = []
    bitwise: dict[str, int] = {}  # the depth of combinations below a name of this function
    shapes: set[str] = set()
    for line in assembly.split("\n"):
        if line.startswith("define "):
            bitwise = {}
        match = _BITWISE.match(line)
        if match is not None:
            bitwise[match[1]] = _depth(match[2], match[3], bitwise)
        choice = _CHOICE.match(line)
        sides = dict.fromkeys(_OPERAND.findall(choice[4])) if choice is not None else ()
        for side in (name for name in sides if bitwise.get(name, 0) >= 2):
            assert choice is not None
            before, name, shape = _fence(side, int(choice[2]), choice[3], len(lines))
            lines += before
            shapes.add(shape)
            line = re.sub(rf"{re.escape(side)}(?=,|$)", name, line)
        lines.append(line)
    return "\n".join(declaring(lines, map(_declaration, sorted(shapes))))


def _depth(kind: str, rest: str, bitwise: dict[str, int]) -> int:
    """How many bitwise operations lie one on another."""
    below = max((bitwise.get(name, 0) for name in _OPERAND.findall(rest)), default=0)
    if kind == "bitcast":
        return below
    if kind != "call":
        return below + 1
    return 2 if "@llvm.copysign." in rest else below + 1 if "@llvm.fabs." in rest else 0


def _fence(name: str, lanes: int, element: str, number: int) -> tuple[list[str], str, str]:
    """Lines that make of a vector one of which the code generator knows nothing, its name, and the fence's suffix."""
    real = {"i32": "float", "i64": "double"}.get(element, element)
    shape = f"v{lanes}f{_BITS[real]}"
    given, real_type = f"<{lanes} x {element}>", f"<{lanes} x {real}>"
    return (
        [
            f"  %te.bits.{number} = bitcast {given} {name} to {real_type}",
            f"  %te.kept.{number} = call {real_type} @llvm.arithmetic.fence.{shape}({real_type} %te.bits.{number})",
            f"  %te.apart.{number} = bitcast {real_type} %te.kept.{number} to {given}",
        ],
        f"%te.apart.{number}",
        shape,
    )


def _declaration(shape: str) -> str:
    lanes, _, bits = shape[1:].partition("f")
    vector = f"<{lanes} x {'float' if bits == '32' else 'double'}>"
    return f"declare {vector} @llvm.arithmetic.fence.{shape}({vector})"


def contract(assembly: str, features: Set[str], streams: Collection[str] = ()) -> str:
    """LLVM assembly in which additions to a running sum, and steps of our polynomials, may fuse with their product.

    `features` are the processor's instruction sets; `streams` are buffers that are large and only written.
    """
    safe = fenced(unmasked(realigned(assembly)), features).split("\n")
    lines = extremes(scaled(gathered(compared_once(safe)), features), features)
    begin = 0
    for k, line in enumerate(lines):
        if line.startswith("define "):
            begin = k
        elif line == "}":
            for at in _fusible(lines, begin, k):
                lines[at] = _CONTRACTED.sub(r"= \1 contract ", lines[at], count=1)
    tags = tags_of(lines, streams)
    return "\n".join(multiplied(streamed(fetched_ahead(lines, tags), tags, features), features))


def _fusible(lines: list[str], begin: int, end: int) -> set[int]:
    """The lines of one function that are such an addition, or its product."""
    products: dict[str, int] = {}
    factors_of: dict[str, list[str]] = {}
    steps: set[str] = set()  # sums with a constant of our functions
    ours: set[str] = set()  # products with such a constant, and with a polynomial of them that ends in r + r r p
    sums: set[str] = set()  # what loops carry round, and what was added to it
    totals = _Totals()
    found: set[int] = set()
    for at in range(begin, end):
        match = _RESULT.match(lines[at])
        if match is None:
            totals.see(lines[at])
            continue
        name, kind, _, operands = match.groups()
        if kind == "phi":
            sums.add(name)
            continue
        is_ours = not _coefficients().isdisjoint(_CONSTANT.findall(operands))
        names = _OPERAND.findall(operands)
        if kind == "fmul":
            products[name] = at
            factors_of[name] = names
            if is_ours:
                ours.add(name)
            continue
        if is_ours:
            steps.add(name)
        ours.update(n for n in names if _is_tail(n, names, factors_of, steps))
        accumulates = not sums.isdisjoint(names)
        if accumulates:
            sums.add(name)
        terms = [products[n] for n in names if n in products]
        totals.add(name, names, [at, *terms] if terms else [])
        factors = [n for n in names if n in products and (accumulates or is_ours or n in ours)]
        if factors:
            found.update([at, *(products[n] for n in factors)])
    return found | totals.kept


class _Totals:
    """Sums that loops carry round in memory: what is read at an address, added to, and written there again."""

    def __init__(self) -> None:
        self.kept: set[int] = set()  # the lines of such additions, and of their products
        self._begun: dict[str, tuple[frozenset[str], frozenset[int]]] = {}  # where it was read, what was added since

    def see(self, line: str) -> None:
        """A line that is no arithmetic."""
        if (read := _READ.match(line)) is not None:
            self._begun[read[1]] = frozenset([read[2]]), frozenset()
        elif (written := _WRITTEN.match(line)) is not None:
            places, added = self._begun.get(written[1] or written[2], (frozenset(), frozenset()))
            if written[3] in places:
                self.kept |= added
        elif (passed := _PASSED_ON.match(line)) is not None:
            self._follow(passed[1], _OPERAND.findall(passed[2]), ())

    def add(self, name: str, terms: Sequence[str], lines: Sequence[int]) -> None:
        """A sum of two terms, and the lines that may fuse in it."""
        self._follow(name, terms, lines)

    def _follow(self, name: str, sources: Iterable[str], lines: Iterable[int]) -> None:
        begun = [self._begun[n] for n in sources if n in self._begun]
        if begun:
            places = frozenset[str]().union(*(p for p, _ in begun))
            self._begun[name] = places, frozenset(lines).union(*(added for _, added in begun))


def _is_tail(name: str, terms: list[str], factors_of: dict[str, list[str]], steps: set[str]) -> bool:
    """Whether of the terms r and r r p this is the second one, with p a polynomial of ours."""
    rest = [factor for factor in factors_of.get(name, ()) if factor not in steps]
    if len(rest) != 1 or len(factors_of[name]) != 2:
        return False
    squared = factors_of.get(rest[0], [])
    return len(squared) == 2 and squared[0] == squared[1] and squared[0] in terms


@functools.cache
def _coefficients() -> frozenset[str]:
    """The constants of our functions, as LLVM prints them; those that users might write too are left out."""
    single = _numbers(vars(float32_math).values())
    double = _numbers(vars(float64_math).values()) | _numbers(vars(wide_math).values())
    rounded = {struct.unpack("f", struct.pack("f", v))[0] for v in single}
    return frozenset(f"0x{struct.unpack('Q', struct.pack('d', v))[0]:016X}" for v in rounded | double if _is_odd(v))


def _numbers(values: Iterable[object]) -> set[float]:
    found: set[float] = set()
    for value in values:
        if isinstance(value, float):
            found.add(value)
        elif isinstance(value, tuple) and all(isinstance(v, float) for v in value):
            found.update(value)
    return {v for v in found if v == v and abs(v) != float("inf")}


def _is_odd(value: float) -> bool:
    """Not a number of a few digits."""
    return float(f"{value:.4g}") != value


def emit_object(assembly: str) -> bytes:
    """Object code of LLVM assembly; it names its machine, and the functions carry their instruction set."""
    module = _parsed(assembly)
    return bytes(_machine(module.triple).emit_object(module))


def emit_assembly(assembly: str) -> str:
    """The same as text."""
    module = _parsed(assembly)
    return str(_machine(module.triple).emit_assembly(module))


def _parsed(assembly: str) -> Any:
    # A context of its own is freed with the module.
    return llvm.parse_assembly(assembly, llvm.create_context())


@functools.cache
def _machine(triple: str) -> Any:
    triple = triple or llvm.get_process_triple()
    initialize(triple)
    return llvm.Target.from_triple(triple).create_target_machine(opt=3, reloc="pic", codemodel="default")
