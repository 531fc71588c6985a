"""Index expressions of the IR read as linear forms.

Only int32 and int64 arithmetic is read, and only where it does not wrap. What cannot be read becomes an `OpaqueIndex`
or an `Opaque` condition that names the expression itself, so that nothing is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from autodiff.integers.conditions import AllOf, AnyOf, Choice, Condition, NonNegative, Not, Opaque, OpaqueIndex, Zero
from autodiff.integers.linear import Atom, Greatest, Least, Linear, Symbol, floordiv, linear, mod, symbol
from autodiff.integers.polyhedra import KnownInequalities
from autodiff.turning import bit_forms
from tedsl.analysis.float_places import quotient_of
from tedsl.lang.dataclass import dataclass
from tedsl.lang.dtypes import INT32, INT64, integer_bounds
from tedsl.lang.expr import FALSE, TRUE, Apply, Axis, Const, Expr, Fn, Var
from tedsl.lang.intervals import FEW, range_of, with_sizes, within, wraps_early
from tedsl.lang.traverse import free_axes, topological

__all__ = ["Product", "Reader", "Remainder", "SizeQuotient", "has_axis_product", "is_opaque", "multiples", "product_of"]


WINDOW = 5
"""A division by a size is cut into cases when its quotient takes fewer values than this, on either side of 0."""


@dataclass(frozen=True)
class Product:
    """A product of symbols, in the order of their first use: an extent such as n * m."""

    factors: tuple[Symbol, ...]


@dataclass(frozen=True)
class SizeQuotient:
    """numerator // divisor where the divisor is no number."""

    numerator: Linear
    divisor: Linear


@dataclass(frozen=True)
class Remainder:
    """numerator % divisor where the divisor is no number."""

    numerator: Linear
    divisor: Linear


class Reader:
    """Reads expressions over given axes and the extents of a target; each node once.

    What it proves on the way holds where some point of the domain reads some element: every extent is at least 1 there.
    """

    def __init__(self, axes: Sequence[Axis] = (), shape: Sequence[Expr] = ()) -> None:
        self._forms: dict[Expr, Linear] = {}
        self._conditions: dict[Expr, Condition] = {}
        self._wrapping: set[Expr] = set()
        self._rank: dict[Symbol, int] = {}
        self.facts = KnownInequalities({})
        self.maxima: list[Linear] = []
        extents = [self.form(a.extent) for a in axes if a.extent is not None]
        begins = [self.form(a.begin) for a in axes]
        ranges: dict[Symbol, tuple[Linear | None, Linear | None]] = {
            a: (b, b + n - 1) for a, b, n in zip(axes, begins, extents, strict=True)
        }
        sizes = [*extents, *map(self.form, shape)]
        self.facts = KnownInequalities(
            ranges, [n - 1 for size in sizes for n in (size, *_factors_of(size)) if not n.is_constant]
        )

    def assume(self, least: Mapping[Expr, int]) -> None:
        """Take sizes for as large as this, before anything is read."""
        for size, n in least.items():
            known = self.form(size) - n
            self.maxima.append(known)
            self.facts = self.facts.extended({}, [known])

    def form(self, root: Expr) -> Linear:
        if root not in self._forms and wraps_early(root):
            self._wrapping.update(filter(wraps_early, topological(root)))
        for node in topological(root):
            if node not in self._forms and node.dtype.is_integer:
                self._forms[node] = self._form(node)
        return self._forms[root]

    def condition(self, root: Expr) -> Condition:
        for node in topological(root):
            if node not in self._conditions and node.dtype.is_bool:
                self._conditions[node] = self._condition(node)
        return self._conditions[root]

    def _form(self, node: Expr) -> Linear:
        if isinstance(node, Const):
            return linear(int(node.value))
        if isinstance(node, Axis | Var):
            self._rank.setdefault(node, len(self._rank))
            return symbol(node)
        unread = symbol(OpaqueIndex(node))
        if not isinstance(node, Apply) or node.dtype not in (INT32, INT64) or node in self._wrapping:
            return unread
        if node.fn is Fn.SELECT:
            condition, a, b = node.args
            choice = Choice(self.condition(condition), self._forms[a], self._forms[b])
            return unread if is_opaque(choice.a) or is_opaque(choice.b) else symbol(choice)
        if not all(a.dtype.is_integer for a in node.args):
            quotient = quotient_of(node)
            return unread if quotient is None else self.form(quotient)
        args = [self.form(a) for a in node.args]
        if node.fn in (Fn.FLOORDIV, Fn.MOD) and not args[1].is_constant and not is_opaque(args[1]):
            found = self._divided(node.fn, args[0], args[1])
        elif any(map(is_opaque, args)):
            found = None
        elif node.fn is Fn.CAST:
            found = args[0] if _fits(node.args[0], node) else None
        elif node.fn is Fn.MUL:
            found = self.product(*args)
        elif node.fn is Fn.LSHIFT:
            found = bit_forms.shifted_up(node, args[0])
        elif node.fn is Fn.MAXIMUM and not free_axes(node):
            found = self._largest(node, *args)
        else:
            rule = FORMS.get(node.fn)
            found = rule(*args) if rule is not None else None
        return unread if found is None or not _holds(node, found) else found

    def _largest(self, node: Expr, a: Linear, b: Linear) -> Linear:
        """The maximum of sizes: the larger where it is known, else a size of its own that is at least both.

        A size is never negative, and neither is the maximum if one of the two is not.
        """
        for larger, smaller in ((a, b), (b, a)):
            if self.facts.proves(larger - smaller):
                return larger
        if not self.facts.proves(a) and not self.facts.proves(b):
            return symbol(Greatest(a, b))
        self._rank.setdefault(node, len(self._rank))
        known = [symbol(node) - a, symbol(node) - b]
        for one, other in ((a, b), (b, a)):  # and at most so much above one as the other may be
            least = self.facts.minimum(one - other)
            known += [] if least is None else [one - min(least, 0) - symbol(node)]
        self.maxima += known
        self.facts = self.facts.extended({}, known)
        return symbol(node)

    def product(self, a: Linear, b: Linear) -> Linear | None:
        """The product as a form over products of symbols; None where an atom is a factor."""
        if b.is_constant or a.is_constant:
            return a * b.constant if b.is_constant else b * a.constant
        if any(isinstance(s, Atom | OpaqueIndex) for e in (a, b) for s in e):
            return None
        total = a * b.constant + b * a.constant - a.constant * b.constant
        for s, c in a.coefficients.items():
            for t, d in b.coefficients.items():
                factors = sorted((*_factors(s), *_factors(t)), key=self._rank.__getitem__)
                total = total + Linear({Product(tuple(factors)): c * d})
        return total

    def bound(self, e: Linear, upper: bool) -> Linear | None:
        """A bound of e in sizes alone: each axis at the end of its range, also where a size multiplies it."""
        total = linear(e.constant)
        for s, c in e.coefficients.items():
            axes = [f for f in _factors(s) if isinstance(f, Axis)]
            if isinstance(s, Atom | OpaqueIndex) or len(axes) > 1:
                return None
            end: Linear | None = linear(1)
            for f in _factors(s):
                low, high = self.facts.ranges.get(f, (symbol(f), symbol(f)))
                factor = high if (c > 0) == upper else low
                end = None if end is None or factor is None else self.product(end, factor)
            if end is None:
                return None
            total = total + end * c
        return total

    def split_by(self, e: Linear, size: Linear) -> tuple[Linear, Linear] | None:
        """(e1, e2) with e = size * e1 + e2 and 0 <= e2 < size, where that can be proved; size is one term."""
        e1, e2 = multiples(e, size)
        for k in (0, 1, -1):  # i*m + m - 1 is (i + 1)*m - 1
            low, high = self.bound(e2 + size * k, upper=False), self.bound(e2 + size * k, upper=True)
            if low is None or high is None:
                continue
            if self.facts.proves(low) and self.facts.proves(size - high - 1):
                return e1 - k, e2 + size * k
        return None

    def _divided(self, operation: Fn, e: Linear, size: Linear) -> Linear | None:
        """e // size or e % size, by cases where the quotient takes but a few values."""
        if is_opaque(e):
            key = _only_key(e)
            return self._by_size(operation, e, size) if isinstance(key, SizeQuotient | Remainder) else None
        parts = self.split_by(e, size) if len(size.coefficients) == 1 and not size.constant else None
        if parts is not None:
            return parts[0] if operation is Fn.FLOORDIV else parts[1]
        turns = self.turns(e, size)
        if turns is not None:
            *others, most = turns
            result = linear(most) if operation is Fn.FLOORDIV else e - size * most
            for d in reversed(others):
                here = linear(d) if operation is Fn.FLOORDIV else e - size * d
                result = symbol(Choice(NonNegative(size * (d + 1) - e - 1), here, result))
            return result
        return self._by_size(operation, e, size)

    def turns(self, e: Linear, size: Linear) -> range | None:
        """The few values of e // size; None where there may be more of them."""
        if has_axis_product(e):
            return None
        facts = self.facts.extended({}, [size - 1])
        least = next((d for d in range(0, -WINDOW, -1) if facts.proves(e - size * d)), None)
        most = next((d for d in range(WINDOW) if facts.proves(size * (d + 1) - e - 1)), None)
        return None if least is None or most is None else range(least, most + 1)

    def _by_size(self, operation: Fn, e: Linear, size: Linear) -> Linear:
        return symbol(OpaqueIndex(SizeQuotient(e, size) if operation is Fn.FLOORDIV else Remainder(e, size)))

    def _condition(self, node: Expr) -> Condition:
        if node is TRUE:
            return AllOf(())
        if node is FALSE:
            return AnyOf(())
        if not isinstance(node, Apply):
            return Opaque(node)
        if node.fn in (Fn.AND, Fn.OR, Fn.NOT):
            inner = tuple(self.condition(a) for a in node.args)
            return Not(inner[0]) if node.fn is Fn.NOT else AllOf(inner) if node.fn is Fn.AND else AnyOf(inner)
        rule = COMPARISONS.get(node.fn)
        if rule is None or not all(a.dtype.is_integer for a in node.args):
            return Opaque(node)
        a, b = (self.form(x) for x in node.args)
        return Opaque(node) if any(is_opaque(e) or has_axis_product(e) for e in (a, b)) else rule(a, b)


def _holds(node: Apply, found: Linear) -> bool:
    """Whether int32 holds the numbers of a form, and what is divided in 64 bits where sizes decide that."""
    if not all(within((c, c), INT32) for c in (found.constant, *found.coefficients.values())):
        return False
    if node.dtype is not INT64 or node.fn not in (Fn.FLOORDIV, Fn.MOD):
        return True
    (divided, _), few = node.args, with_sizes(node.args[0], (0, FEW))
    return within(range_of(divided), INT32) or not within(range_of(divided, few), INT32)


def is_opaque(e: Linear) -> bool:
    return any(isinstance(s, OpaqueIndex) for s in e.leaves())


def _only_key(e: Linear) -> object:
    (s, *others) = e.coefficients
    return s.key if isinstance(s, OpaqueIndex) and not others and e[s] == 1 and not e.constant else None


def has_axis_product(e: Linear) -> bool:
    return any(isinstance(s, Product) and any(isinstance(f, Axis) for f in s.factors) for s in e.leaves())


def _factors_of(size: Linear) -> list[Linear]:
    """The factors of a size that is a product: all are at least 1 where it is."""
    if size.constant or len(size.coefficients) != 1:
        return []
    ((s, _),) = size.coefficients.items()
    return [symbol(f) for f in s.factors] if isinstance(s, Product) else []


def _factors(s: Symbol) -> tuple[Symbol, ...]:
    return s.factors if isinstance(s, Product) else (s,)


def _fits(source: Expr, target: Expr) -> bool:
    both = source.dtype in (INT32, INT64) and target.dtype in (INT32, INT64)
    return both or within(integer_bounds(source.dtype), target.dtype)


def _quotient(e: Linear, divisor: Linear) -> Linear | None:
    """floor(e / c); floor(e / -c) = floor(-e / c)."""
    c = divisor.constant
    if not divisor.is_constant or c == 0:
        return None
    return floordiv(e, c) if c > 0 else floordiv(-e, -c)


def _remainder(e: Linear, divisor: Linear) -> Linear | None:
    """e % c; e % -c = -(-e % c)."""
    c = divisor.constant
    if not divisor.is_constant or c == 0:
        return None
    return mod(e, c) if c > 0 else -mod(-e, -c)


def _at_least(a: Linear, b: Linear) -> Linear:
    return symbol(Greatest(a, b))


FORMS: dict[Fn, Callable[..., Linear | None]] = {
    Fn.ADD: lambda a, b: a + b,
    Fn.SUB: lambda a, b: a - b,
    Fn.NEG: lambda a: -a,
    Fn.FLOORDIV: _quotient,
    Fn.MOD: _remainder,
    Fn.MINIMUM: lambda a, b: symbol(Least(a, b)),
    Fn.MAXIMUM: _at_least,
    Fn.CLIP: lambda x, low, high: symbol(Least(_at_least(x, low), high)),
    Fn.RELU: lambda a: _at_least(a, linear(0)),
    Fn.ABS: lambda a: _at_least(a, -a),
    Fn.INVERT: lambda a: -a - 1,
    Fn.RSHIFT: bit_forms.shifted_down,
    Fn.BITAND: bit_forms.masked,
    Fn.BITOR: bit_forms.united,
    Fn.BITXOR: bit_forms.exclusive_or,
}

COMPARISONS: dict[Fn, Callable[[Linear, Linear], Condition]] = {
    Fn.EQ: lambda a, b: Zero(a - b),
    Fn.NE: lambda a, b: Not(Zero(a - b)),
    Fn.LT: lambda a, b: NonNegative(b - a - 1),
    Fn.LE: lambda a, b: NonNegative(b - a),
    Fn.GT: lambda a, b: NonNegative(a - b - 1),
    Fn.GE: lambda a, b: NonNegative(a - b),
}


def multiples(e: Linear, size: Linear) -> tuple[Linear, Linear]:
    """(e1, e2) with e = size * e1 + e2, no term of e2 a multiple of size, which is one term."""
    ((unit, factor),) = size.coefficients.items()
    high: dict[Symbol, int] = {}
    constant = 0
    low: dict[Symbol, int] = {}
    for s, c in e.coefficients.items():
        rest = _without(s, unit) if c % factor == 0 else None
        if rest is None:
            low[s] = c
        elif not rest:
            constant += c // factor
        else:
            high[product_of(rest)] = c // factor
    return Linear(high, constant), Linear(low, e.constant)


def product_of(factors: Sequence[Symbol]) -> Symbol:
    return factors[0] if len(factors) == 1 else Product(tuple(factors))


def _without(s: Symbol, unit: Symbol) -> tuple[Symbol, ...] | None:
    """The factors of s left when those of `unit` are taken out; None when they are not all there."""
    left = list(s.factors) if isinstance(s, Product) else [s]
    for f in unit.factors if isinstance(unit, Product) else (unit,):
        # By identity: `==` of expressions builds an expression.
        position = next((k for k, own in enumerate(left) if own is f), None)
        if position is None:
            return None
        del left[position]
    return tuple(left)
