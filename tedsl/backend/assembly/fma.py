"""Fused multiply-add: where the program says so, and in the polynomials of our functions, for every schedule alike.

Halide 21 knows two kinds of float arithmetic: fast, where LLVM may assume that there is no NaN and does, and strict,
which never fuses and costs a matrix product a third of its speed (99 against 150 GFLOP/s on two cores with AVX-512). So
kernels are compiled strictly, to LLVM's assembly, and get the one liberty that is harmless here: a product that is
added to a running sum rounds once where it rounded twice. Pointwise arithmetic of users keeps every rounding, so that
a * b - c is 0 where NumPy says so.

Which products these are is said before there are loops (`Context.product`): their bits are combined by exclusive or
with an argument that is always 0. The instructions are written out: where they are left to LLVM, one product of two is
fused here and the other one there, as the loops lie, and the bits of a result hang on the schedule.
"""

from __future__ import annotations

import functools
import re
import struct
from collections.abc import Iterable, Set
from dataclasses import replace

from tedsl.backend.assembly.text import NAME, declaring, each_function
from tedsl.backend.scalars import float32_math, float64_math, wide_math
from tedsl.lang.dataclass import dataclass

__all__ = ["fused"]

_KINDS = "fmul|fadd|fsub|fneg|bitcast|xor|select|shufflevector|insertelement|sext|zext|freeze|phi|load"
_DEFINED = re.compile(rf"^  ({NAME}) = (?:tail )?({_KINDS}) (.*?)(?:, ![\w.]+ !\d+)*$")
_TYPE = re.compile(r"(?:<(\d+) x (\w+)>|(\w+)) (.*)$")
_CONSTANT = re.compile(r"0x[0-9A-F]{16}")
_ARRIVING = re.compile(r"\[ (.+?), %")
_LANE = re.compile(r"(?:i\d+|float|double) ([-+.\w]+)")
_ZEROS, _NEGATIVE_ZERO = ("zeroinitializer", "0", "0.000000e+00"), "-0.000000e+00"
_SIGNS = tuple(str(-1 << bits - 1) for bits in (32, 64))
_SUFFIX = {"float": "f32", "double": "f64"}


def fused(lines: list[str], features: Set[str]) -> list[str]:
    """Lines in which products that are marked are added, and our polynomials computed, by fused instructions.

    Where the processor has none, the marks go.
    """
    declared: dict[str, None] = {}
    has_fma = "fma" in features
    made = each_function(lines, lambda function: _Function(function, has_fma=has_fma).rewritten(declared))
    return declaring(made, declared)


@dataclass(frozen=True)
class _Made:
    """An instruction: its kind, the type of what it is made of, and the operands behind that."""

    kind: str
    type: str
    operands: tuple[str, ...]


@dataclass(frozen=True)
class _Product:
    """Two factors of a type, the sign of the product, and what moves its lanes before it is added, last step first."""

    type: str
    factors: tuple[str, str]
    negative: bool = False
    moved: tuple[_Made, ...] = ()


class _Function:
    def __init__(self, lines: list[str], *, has_fma: bool) -> None:
        self.lines = lines
        self.has_fma = has_fma
        self.made: dict[str, _Made] = {}
        self._products: dict[str, _Product | None] = {}
        self._zeros: dict[str, bool | None] = {}
        self._new = 0
        for line in lines:
            match = _DEFINED.match(line)
            if match is not None and (found := _parsed(match[2], match[3])) is not None:
                self.made[match[1]] = found

    def rewritten(self, declared: dict[str, None]) -> list[str]:
        """The lines of the function."""
        made: list[str] = []
        for line in self.lines:
            match = _DEFINED.match(line)
            own = None if match is None else self.made.get(match[1])
            if match is None or own is None:
                made.append(line)
            elif own.kind == "xor" and (without := self._without_mark(match[1], own)) is not None:
                made.append(without)
            elif own.kind in ("fadd", "fsub") and self.has_fma:
                made += self._sum(match[1], own, declared) or [line]
            else:
                made.append(line)
        return made

    def _sum(self, name: str, own: _Made, declared: dict[str, None]) -> list[str] | None:
        """The lines of a sum whose product is fused; None where it has none, or two."""
        first, second = own.operands
        found = [(a, b, p) for a, b in ((first, second), (second, first)) if (p := self._term(own, a, b)) is not None]
        if len(found) != 1:
            return None
        (term, rest, (product, condition)), lines = found[0], list[str]()
        is_subtracted = own.kind == "fsub" and term is second
        a, b = product.factors
        if product.negative ^ is_subtracted:
            a = self._named(lines, f"fneg {product.type} {a}")
        a, b = (self._moved(lines, product, factor) for factor in (a, b))
        if own.kind == "fsub" and term is first:
            rest = self._named(lines, f"fneg {own.type} {rest}")
        scalar, lanes = _shape(own.type)
        intrinsic = f"@llvm.fma.{f'v{lanes}' if lanes else ''}{_SUFFIX[scalar]}"
        declared[f"declare {own.type} {intrinsic}({own.type}, {own.type}, {own.type})"] = None
        call = f"call {own.type} {intrinsic}({own.type} {a}, {own.type} {b}, {own.type} {rest})"
        if condition is None:
            return [*lines, f"  {name} = {call}"]
        both = [self._named(lines, call), rest]
        if condition.adds_nothing == is_subtracted:
            zero = "zeroinitializer" if lanes else "0.000000e+00"
            both[1] = self._named(lines, f"fadd {own.type} {rest}, {zero}")
        one, other = both if condition.holds else both[::-1]
        return [*lines, f"  {name} = select {condition.test}, {own.type} {one}, {own.type} {other}"]

    def _term(self, own: _Made, name: str, other: str) -> tuple[_Product, _Condition | None] | None:
        """A term of a sum that is a product to be fused, and under which condition it is one."""
        marked = self._marked(name)
        if marked is not None:
            return marked, None
        chosen = self.made.get(name)
        if chosen is not None and (found := self._under_condition(chosen)) is not None:
            return found
        if chosen is None or chosen.kind != "fmul":
            return None
        is_ours = any(map(_is_coefficient, (other, *chosen.operands))) or self._is_tail(chosen, other)
        return (_Product(own.type, (chosen.operands[0], chosen.operands[1])), None) if is_ours else None

    def _under_condition(self, chosen: _Made) -> tuple[_Product, _Condition] | None:
        """What LLVM makes of a sum that is taken under a condition: the product there, and else a zero."""
        wrap: str | None = None
        if chosen.kind == "bitcast":
            wrap, chosen = chosen.operands[1], self.made.get(chosen.operands[0], chosen)
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
            product = self._marked(names[1 - k]) if wrap is None else self._of_bits(names[1 - k], wrap)
            if product is not None:
                return product, _Condition(f"{chosen.type} {test}", k == 1, is_negative)
        return None

    def _marked(self, name: str) -> _Product | None:
        """The product that a name stands for, if it is one that is marked."""
        if name not in self._products:
            self._products[name] = None
            own = self.made.get(name)
            if own is not None:
                self._products[name] = self._found(own)
        return self._products[name]

    def _found(self, own: _Made) -> _Product | None:
        if own.kind == "bitcast":
            return self._of_bits(own.operands[0], own.operands[1])
        if own.kind == "fneg":
            inner = self._marked(own.operands[0])
            return inner and replace(inner, negative=not inner.negative)
        source = _mover_of(own)
        inner = None if source is None else self._marked(source)
        return inner and replace(inner, moved=(own, *inner.moved))

    def _of_bits(self, name: str, to: str) -> _Product | None:
        """The product whose bits an integer holds, marked, its sign changed or not."""
        if _shape(to)[0] not in _SUFFIX:
            return None
        moved: list[_Made] = []
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
        if own is None or not is_marked or _shape(own.type)[0] != _shape(to)[0]:
            return None
        product = self._multiplied(own.operands[0], negative)
        return product and replace(product, moved=(*moved, *product.moved))

    def _multiplied(self, name: str, negative: bool) -> _Product | None:
        moved: list[_Made] = []
        while (own := self.made.get(name)) is not None and own.kind != "fmul":
            source = own.operands[0] if own.kind == "fneg" else _mover_of(own)
            if source is None:
                return None
            name = source
            if own.kind == "fneg":
                negative = not negative
            else:
                moved.append(own)
        return None if own is None else _Product(own.type, (own.operands[0], own.operands[1]), negative, tuple(moved))

    def _without_mark(self, name: str, own: _Made) -> str | None:
        """An exclusive or of a float's bits with the argument that is 0, without that; None where it is another one."""
        found = self._without_zero(own)
        source = None if found is None else self.made.get(found[0])
        while source is not None and source.kind == "xor" and _constant(source.operands[1]) in _SIGNS:
            source = self.made.get(source.operands[0])
        if found is None or source is None or source.kind != "bitcast" or _shape(source.type)[0] not in _SUFFIX:
            return None
        scalar, lanes = _shape(own.type)
        sign = str(-1 << int(scalar[1:]) - 1) if found[1] else "0"
        return f"  {name} = xor {own.type} {found[0]}, {f'splat ({scalar} {sign})' if lanes else sign}"

    def _without_zero(self, own: _Made) -> tuple[str, bool] | None:
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

    def _sign_of_made(self, name: str, own: _Made | None) -> bool | None:
        if own is None:
            return False if re.search(rf"\bi32 (?:noundef )?{re.escape(name)}[,)]", self.lines[0]) else None
        if own.kind == "load":
            return False if own.type in ("i32", "i64") else None
        if own.kind == "phi":
            signs = {self._sign_of_zero(source) for source in own.operands if source != name}
            return signs.pop() if len(signs) == 1 else None
        if own.kind == "xor" and _constant(own.operands[1]) in _SIGNS:
            sign = self._sign_of_zero(own.operands[0])
            return None if sign is None else not sign
        source = own.operands[0] if own.kind in ("sext", "zext", "freeze") else _mover_of(own)
        return None if source is None else self._sign_of_zero(source)

    def _is_tail(self, product: _Made, other: str) -> bool:
        """Whether of the terms r and r r p this is the second one, with p a polynomial of ours."""
        rest = [factor for factor in product.operands if not self._is_step(factor)]
        if len(rest) != 1:
            return False
        squared = self.made.get(rest[0])
        return squared is not None and squared.kind == "fmul" and squared.operands == (other, other)

    def _is_step(self, name: str) -> bool:
        """Whether this is a sum with a constant of our functions."""
        own = self.made.get(name)
        return own is not None and own.kind in ("fadd", "fsub") and any(map(_is_coefficient, own.operands))

    def _named(self, lines: list[str], instruction: str) -> str:
        name = f"%te.sum.{self._new}"
        self._new += 1
        lines.append(f"  {name} = {instruction}")
        return name

    def _moved(self, lines: list[str], product: _Product, factor: str) -> str:
        """A factor in the lanes in which the product is added."""
        kind, scalar = product.type, _shape(product.type)[0]
        for step in reversed(product.moved):
            if step.kind == "insertelement":
                kind = f"<{_shape(step.type)[1]} x {scalar}>"
                factor = self._named(lines, f"insertelement {kind} poison, {scalar} {factor}, i64 0")
            else:
                lanes = step.operands[2]
                factor = self._named(lines, f"shufflevector {kind} {factor}, {kind} poison, {lanes}")
                kind = f"<{lanes[1:].partition(' ')[0]} x {scalar}>"
        return factor


@dataclass(frozen=True)
class _Condition:
    """A test with its type, whether the product is what it chooses, and whether else -0 is added, which is nothing."""

    test: str
    holds: bool
    adds_nothing: bool


def _parsed(kind: str, text: str) -> _Made | None:
    if kind == "load":
        return _Made(kind, text.partition(",")[0], ())
    match = _TYPE.match(text.removeprefix("nneg "))
    if match is None:
        return None
    type_ = f"<{match[1]} x {match[2]}>" if match[1] else match[3]
    if kind == "phi":
        return _Made(kind, type_, tuple(_ARRIVING.findall(match[4])))
    if kind in ("bitcast", "sext", "zext"):
        source, _, to = match[4].partition(" to ")
        return _Made(kind, type_, (source, to))
    return _Made(kind, type_, _split(match[4]))


def _mover_of(own: _Made) -> str | None:
    """What an instruction puts into the first lane, or into other lanes, with nothing beside it."""
    if own.kind == "shufflevector":
        return own.operands[0] if own.operands[1].endswith(" poison") else None
    if own.kind == "insertelement" and own.operands[0] == "poison" and own.operands[2].endswith(" 0"):
        return own.operands[1].partition(" ")[2]
    return None


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


def _shape(type_: str) -> tuple[str, int]:
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


def _is_coefficient(operand: str) -> bool:
    return not operand.startswith("%") and not _coefficients().isdisjoint(_CONSTANT.findall(operand))


@functools.cache
def _coefficients() -> frozenset[str]:
    """The constants of our functions, as LLVM prints them; those that users might write too are left out."""
    single = _numbers(vars(float32_math).values())
    double = _numbers(vars(float64_math).values()) | _numbers(vars(wide_math).values())
    rounded = {struct.unpack("f", struct.pack("f", v))[0] for v in single}
    odd = {v for v in rounded | double if _is_odd(v)}
    return frozenset(f"0x{struct.unpack('Q', struct.pack('d', v))[0]:016X}" for v in odd | {-v for v in odd})


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
