"""Integer-linear forms over symbols, and the atoms that make them quasi-affine.

A form is `sum of coefficient * symbol + constant` with Python integers. A symbol is any hashable object: a loop
variable, an extent such as n. What is not linear enters as an *atom*, a symbol with an inside: `Quotient` (floor
division by a constant, hence also `%`), `Least`, `Greatest`. Kept as symbols, they let every algorithm stay linear.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterator, Mapping
from math import gcd
from typing import Any, ClassVar, TypeVar

from tedsl.lang.dataclass import dataclass
from tedsl.lang.locks import cached_property

__all__ = [
    "Atom", "Greatest", "Least", "Linear", "Numbered", "Quotient", "ceiling", "complexity", "floordiv", "linear", "mod",
    "symbol",
]  # fmt: skip

Symbol = Hashable
Environment = Mapping[Symbol, int]
N = TypeVar("N", bound="Numbered")


class Numbered:
    """A symbol that is its kind and a number: one object of each, so that comparing and hashing take no Python."""

    __slots__ = ("position",)

    position: int
    _made: ClassVar[dict[int, Any]]

    def __init_subclass__(cls) -> None:
        cls._made = {}

    def __new__(cls: type[N], position: int) -> N:
        made: N | None = cls._made.get(position)
        if made is None:
            made = object.__new__(cls)
            made.position = position
            made = cls._made.setdefault(position, made)
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.position,)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.position})"


class Atom:
    """A symbol that stands for an expression. No ABC: those take ten times as long to recognise."""

    def parts(self) -> tuple[Linear, ...]:
        """The forms inside."""
        raise NotImplementedError

    def rebuilt(self, rule: Callable[[Linear], Linear]) -> Linear:
        """The same expression with `rule` applied to the forms inside."""
        raise NotImplementedError

    def evaluate(self, values: Environment) -> int:
        """Its value where every symbol has one."""
        raise NotImplementedError


class Linear:
    """Immutable `sum of coefficients[s] * s + constant`; equal when the same function of the symbols.

    >>> x, y = symbol("x"), symbol("y")
    >>> 2 * (x + y) - x + 1
    x + 2*y + 1
    """

    __slots__ = ("_hash", "coefficients", "constant")

    def __init__(self, coefficients: Mapping[Symbol, int], constant: int = 0) -> None:
        self.coefficients: dict[Symbol, int] = {s: c for s, c in coefficients.items() if c}
        self.constant = constant
        self._hash: int | None = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Linear):
            return NotImplemented
        return self.constant == other.constant and self.coefficients == other.coefficients

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash((self.constant, frozenset(self.coefficients.items())))
        return self._hash

    def __getitem__(self, s: Symbol) -> int:
        return self.coefficients.get(s, 0)

    def __iter__(self) -> Iterator[Symbol]:
        return iter(self.coefficients)

    @property
    def is_constant(self) -> bool:
        return not self.coefficients

    def __add__(self, other: Linear | int) -> Linear:
        if isinstance(other, int):
            return _owning(self.coefficients, self.constant + other)
        total = self.coefficients.copy()
        _add_into(total, other.coefficients, 1)
        return _owning(total, self.constant + other.constant)

    __radd__ = __add__

    def __mul__(self, factor: int) -> Linear:
        if not factor:
            return _owning({}, 0)
        return _owning({s: c * factor for s, c in self.coefficients.items()}, self.constant * factor)

    __rmul__ = __mul__

    def __neg__(self) -> Linear:
        return self * -1

    def __sub__(self, other: Linear | int) -> Linear:
        if isinstance(other, int):
            return _owning(self.coefficients, self.constant - other)
        total = self.coefficients.copy()
        _add_into(total, other.coefficients, -1)
        return _owning(total, self.constant - other.constant)

    def __rsub__(self, other: int) -> Linear:
        return -self + other

    def divided(self, c: int) -> Linear:
        """Exact quotient by c, which must divide every coefficient."""
        return _owning({s: a // c for s, a in self.coefficients.items()}, self.constant // c)

    def content(self) -> int:
        """The greatest common divisor of the coefficients, the constant left out."""
        return gcd(*self.coefficients.values())

    def substituted(self, values: Mapping[Any, Linear]) -> Linear:
        """Every symbol of `values` replaced, inside atoms too; the same object when there is none."""
        return self.mapped(values.get)

    def mapped(self, rule: Callable[[Symbol], Linear | None]) -> Linear:
        """Every symbol for which `rule` has an answer replaced by it; atoms are entered, innermost first."""
        news = [_replacement(s, rule) for s in self.coefficients]
        if all(new is None for new in news):
            return self
        total: dict[Symbol, int] = {}
        constant = self.constant
        for (s, c), new in zip(self.coefficients.items(), news, strict=True):
            if new is None:
                _add_into(total, {s: c}, 1)
            else:
                _add_into(total, new.coefficients, c)
                constant += c * new.constant
        return _owning(total, constant)

    def evaluate(self, values: Environment) -> int:
        return self.constant + sum(
            c * (s.evaluate(values) if isinstance(s, Atom) else values[s]) for s, c in self.coefficients.items()
        )

    def leaves(self) -> Iterator[Symbol]:
        """Every symbol that is no atom, those inside atoms too, in order, with repetitions."""
        for s in self.coefficients:
            if isinstance(s, Atom):
                for part in s.parts():
                    yield from part.leaves()
            else:
                yield s

    def is_over(self, symbols: Container[Symbol]) -> bool:
        """Whether nothing but `symbols` occurs, inside atoms too."""
        return all(s in symbols for s in self.leaves())

    def atoms(self) -> Iterator[Atom]:
        """Every atom, inner ones first."""
        for s in self.coefficients:
            if isinstance(s, Atom):
                for part in s.parts():
                    yield from part.atoms()
                yield s

    def __repr__(self) -> str:
        remainders, rest = self.remainders()
        named = [(q.text("%"), c) for q, c in remainders]
        named += [(str(s), c) for s, c in rest.coefficients.items()]
        terms = [name if c == 1 else f"-{name}" if c == -1 else f"{c}*{name}" for name, c in named]
        if rest.constant or not terms:
            terms.append(str(rest.constant))
        return " + ".join(terms).replace("+ -", "- ")

    def remainders(self) -> tuple[list[tuple[Quotient, int]], Linear]:
        """The form as factors of remainders e % c, each given as the quotient e // c, plus a rest that is shorter."""
        found: list[tuple[Quotient, int]] = []
        rest = self
        for s, c in self.coefficients.items():
            if not isinstance(s, Quotient) or c % s.divisor:
                continue
            factor = -c // s.divisor
            without = rest - (s.numerator - symbol(s) * s.divisor) * factor
            if len(without.coefficients) < len(rest.coefficients):
                found.append((s, factor))
                rest = without
        return _turned(found, rest)


def _turned(remainders: list[tuple[Quotient, int]], rest: Linear) -> tuple[list[tuple[Quotient, int]], Linear]:
    """The same sum, c - 1 - e % c as (c - 1 - e) % c."""
    for k, (q, factor) in enumerate(remainders):
        if factor < 0 and rest.constant == -factor * (q.divisor - 1):
            remainders[k] = Quotient(q.divisor - 1 - q.numerator, q.divisor), -factor
            rest -= rest.constant
    return remainders, rest


def _owning(coefficients: dict[Symbol, int], constant: int) -> Linear:
    """A form of coefficients that are never 0 and that nobody will change: most of an inversion is spent here."""
    made = object.__new__(Linear)
    made.coefficients = coefficients
    made.constant = constant
    made._hash = None
    return made


def _add_into(total: dict[Symbol, int], terms: dict[Symbol, int], factor: int) -> None:
    for s, c in terms.items():
        value = total.get(s, 0) + c * factor
        if value:
            total[s] = value
        else:
            del total[s]


def _replacement(s: Symbol, rule: Callable[[Symbol], Linear | None]) -> Linear | None:
    """What the rule makes of a symbol, or of what is inside it; None when nothing changes."""
    new = rule(s)
    if new is not None or not isinstance(s, Atom):
        return new
    changed = False

    def inside(part: Linear) -> Linear:
        nonlocal changed
        mapped = part.mapped(rule)
        changed = changed or mapped is not part
        return mapped

    rebuilt = s.rebuilt(inside)
    return rebuilt if changed else None


def linear(x: Linear | int) -> Linear:
    return _owning({}, x) if isinstance(x, int) else x


def symbol(s: Symbol) -> Linear:
    """The form `1 * s`."""
    return _owning({s: 1}, 0)


@dataclass(frozen=True, eq=True)
class Quotient(Atom):
    """floor(numerator / divisor), divisor > 1. Made by `floordiv`, which keeps the numerator reduced."""

    numerator: Linear
    divisor: int

    def parts(self) -> tuple[Linear, ...]:
        return (self.numerator,)

    def rebuilt(self, rule: Callable[[Linear], Linear]) -> Linear:
        new = rule(self.numerator)
        return symbol(self) if new is self.numerator else floordiv(new, self.divisor)

    def evaluate(self, values: Environment) -> int:
        return self.numerator.evaluate(values) // self.divisor

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.numerator, self.divisor))

    def __str__(self) -> str:
        return self.text("//")

    def text(self, operator: str) -> str:
        """The quotient, or with another operator the remainder."""
        bare = list(self.numerator.coefficients.values()) == [1] and not self.numerator.constant
        return (
            f"({self.numerator} {operator} {self.divisor})"
            if bare
            else f"(({self.numerator}) {operator} {self.divisor})"
        )


@dataclass(frozen=True)
class Least(Atom):
    """min(a, b)."""

    a: Linear
    b: Linear

    def parts(self) -> tuple[Linear, ...]:
        return (self.a, self.b)

    def rebuilt(self, rule: Callable[[Linear], Linear]) -> Linear:
        return symbol(Least(rule(self.a), rule(self.b)))

    def evaluate(self, values: Environment) -> int:
        return min(self.a.evaluate(values), self.b.evaluate(values))

    def __str__(self) -> str:
        return f"min({self.a}, {self.b})"


@dataclass(frozen=True)
class Greatest(Atom):
    """max(a, b)."""

    a: Linear
    b: Linear

    def parts(self) -> tuple[Linear, ...]:
        return (self.a, self.b)

    def rebuilt(self, rule: Callable[[Linear], Linear]) -> Linear:
        return symbol(Greatest(rule(self.a), rule(self.b)))

    def evaluate(self, values: Environment) -> int:
        return max(self.a.evaluate(values), self.b.evaluate(values))

    def __str__(self) -> str:
        return f"max({self.a}, {self.b})"


def floordiv(e: Linear | int, c: int) -> Linear:
    """floor(e / c) for c > 0, with all that divides evenly taken out of the floor.

    >>> x, y = symbol("x"), symbol("y")
    >>> floordiv(4 * x + y + 5, 4)
    x + ((y + 1) // 4) + 1
    >>> floordiv(2 * x + 1, 4)
    (x // 2)
    """
    e = linear(e)
    if c == 1 or e.is_constant:
        return e if c == 1 else linear(e.constant // c)
    # floor(e / c) = -floor((c - 1 - e) / c), so that ceil(-x / 3) can be -floor(x / 3).
    return min(_floor(e, c), -_floor((c - 1) - e, c), key=complexity)


def _floor(e: Linear, c: int) -> Linear:
    """floor(e / c) with the numerator's coefficients brought near 0."""
    rest = {s: a - c * _nearest(a, c) for s, a in e.coefficients.items()}
    whole = Linear({s: (a - rest[s]) // c for s, a in e.coefficients.items()}, e.constant // c)
    left = Linear(rest, e.constant % c)
    if left.is_constant:
        return whole
    g = gcd(c, left.content())
    left = Linear({s: a // g for s, a in left.coefficients.items()}, left.constant // g)
    return whole + (left if c == g else _quotient(left, c // g))


def _nearest(a: int, c: int) -> int:
    """The integer nearest to a / c, of two the one nearer to 0."""
    size = (2 * abs(a) + c - 1) // (2 * c)
    return size if a > 0 else -size


def complexity(e: Linear) -> tuple[int, int]:
    """How long the form is to read, terms first."""
    inside = [f for a in e.coefficients if isinstance(a, Quotient) for f in a.parts()]
    return len(e.coefficients), sum(sum(map(abs, f.coefficients.values())) + abs(f.constant) for f in inside)


def _quotient(rest: Linear, c: int) -> Linear:
    """floor(rest / c), nested floors joined: floor((floor(e / a) + k) / c) = floor((e + k a) / (a c))."""
    if len(rest.coefficients) == 1:
        (s, a) = next(iter(rest.coefficients.items()))
        if a == 1 and isinstance(s, Quotient):
            return floordiv(s.numerator + rest.constant * s.divisor, s.divisor * c)
    return symbol(Quotient(rest, c))


def ceiling(e: Linear | int, c: int) -> Linear:
    """ceil(e / c) for c > 0."""
    e = linear(e)
    return linear(-(-e.constant // c)) if e.is_constant else floordiv(e + (c - 1), c)


def mod(e: Linear | int, c: int) -> Linear:
    """e % c for c > 0, with Python's sign.

    >>> mod(symbol("x") + 4, 4)
    (x % 4)
    """
    e = linear(e)
    return e - floordiv(e, c) * c
