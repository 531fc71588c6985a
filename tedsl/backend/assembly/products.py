"""Which floats of a function of LLVM's are products that lowering marked, however LLVM put them together.

Their bits are combined by exclusive or with an argument that is always 0 (`Context.product`). On its way to a sum a
product changes its sign, moves to other lanes, is chosen under a condition; or a vector is put together of several.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from tedsl.backend.assembly.text import NAME
from tedsl.lang.dataclass import dataclass

__all__ = [
    "FLOATS", "Condition", "Instruction", "Lane", "MarkedProduct", "MarkedProducts", "defined", "pair", "shape",
]  # fmt: skip

FLOATS = ("float", "double")
_KINDS = (
    "fmul|fadd|fsub|fneg|bitcast|xor|select|shufflevector|insertelement|extractelement|sext|zext|freeze|phi|load|shl"
)
_DEFINED = re.compile(rf"  ({NAME}) = (?:tail )?({_KINDS}) (.*)$")
_METADATA = re.compile(r"(?:, ![\w.]+ !\d+)+$")
_TYPE = re.compile(r"(?:<(\d+) x (\w+)>|(\w+)) (.*)$")
_FLAGS = re.compile(r"^(?:nneg |nuw |nsw )+")
_ARRIVING = re.compile(r"\[ (.+?), %")
_LANE = re.compile(r"(?:i\d+|float|double) ([-+.\w]+)")
_ZEROS, _NEGATIVE_ZERO = ("zeroinitializer", "0", "0.000000e+00"), "-0.000000e+00"
_SIGNS = tuple(str(-1 << bits - 1) for bits in (32, 64))


@dataclass(frozen=True)
class Instruction:
    """An instruction: its kind, the type of what it is made of, and the operands behind that."""

    kind: str
    type: str
    operands: tuple[str, ...]


@dataclass(frozen=True)
class MarkedProduct:
    """Two factors of a type, the sign of the product, and what moves its lanes before it is added, last step first."""

    type: str
    factors: tuple[str, str]
    negative: bool = False
    moved: tuple[Instruction, ...] = ()


@dataclass(frozen=True)
class Lane:
    """A lane of a product, or one of single numbers where `at` is None; of type and factors as there."""

    type: str
    factors: tuple[str, str]
    at: int | None
    negative: bool


@dataclass(frozen=True)
class Condition:
    """A test with its type, whether the product is what it chooses, and whether else -0 is added, which is nothing."""

    test: str
    holds: bool
    adds_nothing: bool


def defined(line: str) -> tuple[str, str, str] | None:
    """The name, the kind and the operands of an instruction that a product may go through."""
    match = _DEFINED.match(line)
    if match is None:
        return None
    text = match[3]
    return match[1], match[2], _METADATA.sub("", text) if ", !" in text else text


class _Instructions:
    """Those of a function by name, each read when it is first asked for: most never are."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._texts = {found[0]: found[1:] for found in map(defined, lines) if found is not None}
        self._read: dict[str, Instruction | None] = {}

    def get(self, name: str) -> Instruction | None:
        """The instruction of a name, if it has a form that is known."""
        if name not in self._read:
            text = self._texts.get(name)
            self._read[name] = None if text is None else _parsed(*text)
        return self._read[name]

    def of_kind(self, kind: str) -> Iterator[str]:
        """The names of the instructions of a kind."""
        return (name for name, (own, _) in self._texts.items() if own == kind)


class MarkedProducts:
    """What the instructions of a function make."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.head = lines[0]
        self.made = _Instructions(lines)
        self._products: dict[str, MarkedProduct | None] = {}
        self._zeros: dict[str, bool | None] = {}

    def marked(self, name: str) -> MarkedProduct | None:
        """The product that a name stands for, if it is one that is marked."""
        if name not in self._products:
            self._products[name] = None
            own = self.made.get(name)
            if own is not None:
                self._products[name] = self._found(own)
        return self._products[name]

    def _found(self, own: Instruction) -> MarkedProduct | None:
        if own.kind == "bitcast":
            return self._of_bits(own.operands[0], own.operands[1])
        if own.kind == "fneg":
            inner = self.marked(own.operands[0])
            return inner and replace(inner, negative=not inner.negative)
        source = _mover_of(own)
        inner = None if source is None else self.marked(source)
        return inner and replace(inner, moved=(own, *inner.moved))

    def _of_bits(self, name: str, to: str) -> MarkedProduct | None:
        """The product whose bits an integer holds, marked, its sign changed or not."""
        if shape(to)[0] not in FLOATS:
            return None
        moved: list[Instruction] = []
        is_marked = negative = False
        while (own := self.made.get(name)) is not None and own.kind != "bitcast":
            if (source := _mover_of(own)) is not None:
                name = source
                moved.append(own)
            elif own.kind != "xor":
                return None
            elif _constant(own.operands[1]) in _SIGNS:
                name, negative = own.operands[0], not negative
            else:
                found = self._without_zero(own)
                if found is None:
                    return None
                name, is_marked, negative = found[0], True, negative ^ found[1]
        if own is None or not is_marked or shape(own.type)[0] != shape(to)[0]:
            return None
        product = self._multiplied(own.operands[0], negative)
        return product and replace(product, moved=(*moved, *product.moved))

    def _multiplied(self, name: str, negative: bool) -> MarkedProduct | None:
        moved: list[Instruction] = []
        while (own := self.made.get(name)) is not None and own.kind != "fmul":
            source = own.operands[0] if own.kind == "fneg" else _mover_of(own)
            if source is None:
                return None
            name = source
            if own.kind == "fneg":
                negative = not negative
            else:
                moved.append(own)
        return None if own is None else MarkedProduct(own.type, pair(own.operands), negative, tuple(moved))

    def lane(self, name: str, at: int | None) -> Lane | None:
        """The marked product that stands in one lane of a value, wherever it was put together."""
        is_marked = negative = False
        while (own := self.made.get(name)) is not None and own.kind != "fmul":
            if own.kind == "xor":
                if _constant(own.operands[1]) in _SIGNS:
                    name, changed = own.operands[0], True
                elif (found := self._without_zero(own)) is not None:
                    (name, changed), is_marked = found, True
                else:
                    return None
                negative ^= changed
            elif own.kind == "fneg":
                name, negative = own.operands[0], not negative
            elif (source := _source_of(own, at)) is not None:
                name, at = source
            else:
                return None
        return None if own is None or not is_marked else Lane(own.type, pair(own.operands), at, negative)

    def under_condition(self, chosen: Instruction) -> tuple[MarkedProduct, Condition] | None:
        """What LLVM makes of a sum that is taken under a condition: the product there, and else a zero."""
        wrap: str | None = None
        if chosen.kind == "bitcast":
            wrap, chosen = chosen.operands[1], self.made.get(chosen.operands[0]) or chosen
        if chosen.kind != "select":
            return None
        test, *branches = chosen.operands
        values = [_TYPE.match(branch) for branch in branches]
        if values[0] is None or values[1] is None:
            return None
        names = [values[0][4], values[1][4]]
        for k, zero in enumerate(map(_constant, names)):
            is_negative = zero == _NEGATIVE_ZERO or (wrap is not None and zero in _SIGNS)
            if not is_negative and zero not in _ZEROS:
                continue
            product = self.marked(names[1 - k]) if wrap is None else self._of_bits(names[1 - k], wrap)
            if product is not None:
                return product, Condition(f"{chosen.type} {test}", k == 1, is_negative)
        return None

    def is_loosely_marked(self, name: str) -> bool:
        """Whether a marked product may be added at any place among the terms of its sum."""
        own = self.made.get(name)
        while own is not None and own.kind in ("bitcast", "fneg", "xor"):
            if own.kind == "xor" and any(self.is_loose(operand) for operand in own.operands):
                return True
            name = own.operands[0]
            own = self.made.get(name)
        return False

    @property
    def has_loose(self) -> bool:
        """Whether there is any such mark."""
        return any(map(self.is_loose, self.made.of_kind("shl")))

    def is_loose(self, name: str) -> bool:
        """Whether a number is the argument that is 0 as the mark of such a product, twice as large."""
        own = self.made.get(name)
        while own is not None and own.kind in ("sext", "zext", "freeze"):
            own = self.made.get(own.operands[0])
        return own is not None and own.kind == "shl" and self._sign_of_zero(own.operands[0]) is not None

    def without_mark(self, name: str, own: Instruction) -> str | None:
        """An exclusive or of a float's bits with the argument that is 0, without that; None where it is another one."""
        found = self._without_zero(own)
        source = None if found is None else self.made.get(found[0])
        while source is not None and source.kind == "xor" and _constant(source.operands[1]) in _SIGNS:
            source = self.made.get(source.operands[0])
        if found is None or source is None or source.kind != "bitcast" or shape(source.type)[0] not in FLOATS:
            return None
        scalar, lanes = shape(own.type)
        sign = str(-1 << int(scalar[1:]) - 1) if found[1] else "0"
        return f"  {name} = xor {own.type} {found[0]}, {f'splat ({scalar} {sign})' if lanes else sign}"

    def _without_zero(self, own: Instruction) -> tuple[str, bool] | None:
        """What is combined with the argument that is 0, and whether the sign is changed with it."""
        one, other = own.operands
        signs = self._sign_of_zero(one), self._sign_of_zero(other)
        if (signs[0] is None) == (signs[1] is None):
            return None
        return (other, bool(signs[0])) if signs[1] is None else (one, bool(signs[1]))

    def _sign_of_zero(self, name: str) -> bool | None:
        """Whether a number that can only be that argument is so with another sign; None of other numbers.

        No other number that is given to a kernel meets the bits of floats.
        """
        if name not in self._zeros:
            self._zeros[name] = None
            self._zeros[name] = self._sign_of_made(name, self.made.get(name))
        return self._zeros[name]

    def _sign_of_made(self, name: str, own: Instruction | None) -> bool | None:
        if own is None:
            return False if re.search(rf"\bi32 (?:noundef )?{re.escape(name)}[,)]", self.head) else None
        if own.kind == "load":
            return False if own.type in ("i32", "i64") else None
        if own.kind == "phi":
            signs = {self._sign_of_zero(source) for source in own.operands if source != name}
            return signs.pop() if len(signs) == 1 else None
        if own.kind == "xor" and _constant(own.operands[1]) in _SIGNS:
            sign = self._sign_of_zero(own.operands[0])
            return None if sign is None else not sign
        source = own.operands[0] if own.kind in ("sext", "zext", "freeze", "shl") else _mover_of(own)
        return None if source is None else self._sign_of_zero(source)


def _parsed(kind: str, text: str) -> Instruction | None:
    if kind == "load":
        return Instruction(kind, text.partition(",")[0], ())
    match = _TYPE.match(_FLAGS.sub("", text))
    if match is None:
        return None
    type_ = f"<{match[1]} x {match[2]}>" if match[1] else match[3]
    if kind == "phi":
        return Instruction(kind, type_, tuple(_ARRIVING.findall(match[4])))
    if kind in ("bitcast", "sext", "zext"):
        source, _, to = match[4].partition(" to ")
        return Instruction(kind, type_, (source, to))
    return Instruction(kind, type_, _split(match[4]))


def _mover_of(own: Instruction) -> str | None:
    """What an instruction puts into the first lane, or into other lanes, with nothing beside it."""
    if own.kind == "shufflevector":
        return own.operands[0] if own.operands[1].endswith(" poison") else None
    if own.kind == "insertelement" and own.operands[0] == "poison" and own.operands[2].endswith(" 0"):
        return own.operands[1].partition(" ")[2]
    return None


def _source_of(own: Instruction, at: int | None) -> tuple[str, int | None] | None:
    """Where a lane comes from, of what moves lanes as they are."""
    if own.kind == "bitcast":
        return (own.operands[0], at) if shape(own.type)[1] == shape(own.operands[1])[1] else None
    if own.kind == "shufflevector" and at is not None:
        return _shuffled_from(own, at)
    if own.kind not in ("extractelement", "insertelement"):
        return None
    place = own.operands[-1].rpartition(" ")[2]
    if not place.isdigit():
        return None
    if own.kind == "extractelement":
        return own.operands[0], int(place)
    return (own.operands[1].partition(" ")[2], None) if int(place) == at else (own.operands[0], at)


def _shuffled_from(own: Instruction, at: int) -> tuple[str, int] | None:
    mask, count = _LANE.findall(own.operands[2]), shape(own.type)[1]
    lane = mask[at] if at < len(mask) else mask[0] if mask else "0"  # of a splat there is one; of zeros none
    if not lane.isdigit():
        return None
    second = own.operands[1].rpartition(" ")[2]
    return (own.operands[0], int(lane)) if int(lane) < count else (second, int(lane) - count)


def pair(operands: tuple[str, ...]) -> tuple[str, str]:
    return operands[0], operands[1]


def _split(text: str) -> tuple[str, ...]:
    """Operands, at the commas outside of brackets."""
    if "<" not in text and "(" not in text:
        return tuple(text.split(", "))
    parts, depth, begin = [], 0, 0
    for at, sign in enumerate(text):
        depth += (sign in "<(") - (sign in ">)")
        if sign == "," and depth == 0:
            parts.append(text[begin:at])
            begin = at + 2
    return (*parts, text[begin:])


def shape(type_: str) -> tuple[str, int]:
    """The type of one lane, and how many there are; 0 of a single number."""
    if not type_.startswith("<"):
        return type_, 0
    lanes, _, scalar = type_[1:-1].partition(" x ")
    return scalar, int(lanes)


def _constant(operand: str) -> str:
    """The number that a constant has in all lanes that count; at the ends of rows some have any value."""
    if operand[:1] not in ("<", "s"):
        return operand
    values = {value for value in _LANE.findall(operand) if value != "poison"}
    return values.pop() if len(values) == 1 else operand
