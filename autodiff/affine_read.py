"""Index expressions of the IR read as linear forms, and linear forms written back as expressions.

Only int32 and int64 arithmetic is read: it does not wrap on any index that is in bounds. What cannot be read becomes an
`OpaqueIndex` or an `Opaque` condition that names the expression itself, so that nothing is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from autodiff.conditions import AllOf, AnyOf, Choice, Condition, NonNegative, Not, Opaque, OpaqueIndex, Zero
from autodiff.linear import Atom, Greatest, Least, Linear, Quotient, Symbol, floordiv, linear, mod, symbol
from tedsl.lang import functions as fn
from tedsl.lang.dtypes import INT32, INT64, integer_bounds
from tedsl.lang.expr import FALSE, TRUE, Apply, Axis, Const, Expr, Fn, Var
from tedsl.lang.traverse import topological

__all__ = ["Product", "Reader", "expression_of", "truth_of"]


@dataclass(frozen=True)
class Product:
    """A product of symbols, in the order of their first use: an extent such as n * m."""

    factors: tuple[Symbol, ...]


class Reader:
    """Reads expressions over given axes; each node once."""

    def __init__(self) -> None:
        self._forms: dict[Expr, Linear] = {}
        self._conditions: dict[Expr, Condition] = {}
        self._rank: dict[Symbol, int] = {}

    def form(self, root: Expr) -> Linear:
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
        if not isinstance(node, Apply) or node.dtype not in (INT32, INT64):
            return unread
        if node.fn is Fn.SELECT:
            condition, a, b = node.args
            choice = Choice(self.condition(condition), self._forms[a], self._forms[b])
            return unread if _is_opaque(choice.a) or _is_opaque(choice.b) else symbol(choice)
        if not all(a.dtype.is_integer for a in node.args):
            return unread
        args = [self._forms[a] for a in node.args]
        if any(map(_is_opaque, args)):
            return unread
        if node.fn is Fn.CAST:
            return args[0] if _fits(node.args[0], node) else unread
        if node.fn is Fn.MUL:
            return self._product(*args) or unread
        rule = FORMS.get(node.fn)
        found = rule(*args) if rule is not None else None
        return unread if found is None else found

    def _product(self, a: Linear, b: Linear) -> Linear | None:
        """The product as a form over products of symbols; None where an atom is a factor."""
        if b.is_constant or a.is_constant:
            return a * b.constant if b.is_constant else b * a.constant
        if any(isinstance(s, Atom) for e in (a, b) for s in e):
            return None
        total = a * b.constant + b * a.constant - a.constant * b.constant
        for s, c in a.coefficients.items():
            for t, d in b.coefficients.items():
                factors = sorted((*_factors(s), *_factors(t)), key=self._rank.__getitem__)
                total = total + Linear({Product(tuple(factors)): c * d})
        return total

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
        return Opaque(node) if _is_opaque(a) or _is_opaque(b) else rule(a, b)


def _is_opaque(e: Linear) -> bool:
    return any(isinstance(s, OpaqueIndex) for s in e.leaves())


def _factors(s: Symbol) -> tuple[Symbol, ...]:
    return s.factors if isinstance(s, Product) else (s,)


def _fits(source: Expr, target: Expr) -> bool:
    low, high = integer_bounds(source.dtype)
    least, most = integer_bounds(target.dtype)
    return (least <= low and high <= most) or (source.dtype in (INT32, INT64) and target.dtype in (INT32, INT64))


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
}

COMPARISONS: dict[Fn, Callable[[Linear, Linear], Condition]] = {
    Fn.EQ: lambda a, b: Zero(a - b),
    Fn.NE: lambda a, b: Not(Zero(a - b)),
    Fn.LT: lambda a, b: NonNegative(b - a - 1),
    Fn.LE: lambda a, b: NonNegative(b - a),
    Fn.GT: lambda a, b: NonNegative(a - b - 1),
    Fn.GE: lambda a, b: NonNegative(a - b),
}


Names = Mapping[Symbol, Expr]


def expression_of(e: Linear, names: Names) -> Expr:
    """The form as an expression, `e - c * (e // c)` as `e % c`; positive terms first, the constant last."""
    return _sum([*_terms(e, names), (e.constant, fn.const(1, INT32))])


def _terms(e: Linear, names: Names) -> list[tuple[int, Expr]]:
    terms: list[tuple[int, Expr]] = []
    rest = Linear(e.coefficients)
    for s, c in e.coefficients.items():
        if not isinstance(s, Quotient) or c % s.divisor or not rest[s]:
            continue
        without = rest + (s.numerator - symbol(s) * s.divisor) * (c // s.divisor)
        if len(without.coefficients) < len(rest.coefficients):
            # The remainder is of the whole numerator; its constant stays behind in `without`, hence taken off below.
            terms.append((-c // s.divisor, expression_of(s.numerator, names) % s.divisor))
            rest = without
    shift = rest.constant
    terms += [(c, _symbol_expression(s, names)) for s, c in rest.coefficients.items()]
    return [*terms, (shift, fn.const(1, INT32))] if shift else terms


def _symbol_expression(s: Symbol, names: Names) -> Expr:
    if isinstance(s, Product):
        product = names_of(s.factors[0], names)
        for factor in s.factors[1:]:
            product = product * names_of(factor, names)
        return product
    return names_of(s, names)


def names_of(s: Symbol, names: Names) -> Expr:
    """The expression of one symbol: as named, else itself."""
    if s in names:
        return names[s]
    match s:
        case Quotient():
            return expression_of(s.numerator, names) // s.divisor  # type: ignore[no-any-return]
        case Least():
            return fn.minimum(expression_of(s.a, names), expression_of(s.b, names))  # type: ignore[no-any-return]
        case Greatest():
            return fn.maximum(expression_of(s.a, names), expression_of(s.b, names))  # type: ignore[no-any-return]
        case Choice():
            a, b = expression_of(s.a, names), expression_of(s.b, names)
            return fn.select(truth_of(s.condition, names), a, b)  # type: ignore[no-any-return]
    assert isinstance(s, Expr), f"a symbol without a name: {s}"
    return s


def _sum(terms: Iterable[tuple[int, Expr]]) -> Expr:
    """Constants collected, positive terms before negative ones."""
    constant = 0
    others: list[tuple[int, Expr]] = []
    for c, e in terms:
        if isinstance(e, Const):
            constant += c * int(e.value)
        elif c:
            others.append((c, e))
    total: Expr | None = None
    for c, e in sorted(others, key=lambda term: term[0] < 0):
        part = e if abs(c) == 1 else e * abs(c)
        if total is None:
            total = part if c > 0 else -part
        else:
            total = total + part if c > 0 else total - part
    if total is None:
        return fn.const(constant, INT32)
    return total + constant if constant > 0 else total - -constant if constant else total


def truth_of(c: Condition, names: Names, opaque: Callable[[Expr], Expr] = lambda e: e) -> Expr:
    """The condition as an expression; `opaque` moves those known to the caller only to where they are asked."""
    match c:
        case NonNegative(form):
            left, right = _two_sides(form, names)
            return left >= right  # type: ignore[no-any-return]
        case Zero(form):
            left, right = _two_sides(form, names)
            return left == right  # type: ignore[no-any-return]
        case AllOf(inner) | AnyOf(inner):
            joined = TRUE if isinstance(c, AllOf) else FALSE
            join = fn.logical_and if isinstance(c, AllOf) else fn.logical_or
            for i in inner:
                joined = join(joined, truth_of(i, names, opaque))
            return joined
        case Not(inner_condition):
            return fn.logical_not(truth_of(inner_condition, names, opaque))  # type: ignore[no-any-return]
        case Opaque(key):
            assert isinstance(key, Expr)
            return opaque(key)


def _two_sides(form: Linear, names: Names) -> tuple[Expr, Expr]:
    """(a, b) with a - b = form and no negative terms on either side."""
    terms = [*_terms(form, names), (form.constant, fn.const(1, INT32))]
    constant = sum(c * int(e.value) for c, e in terms if isinstance(e, Const))
    left = [(c, e) for c, e in terms if c > 0 and not isinstance(e, Const)]
    right = [(-c, e) for c, e in terms if c < 0 and not isinstance(e, Const)]
    # The constant goes where the fewest terms are, so that a bound is a bare number where it can be.
    (left if right and not left else right).append(
        (constant if right and not left else -constant, fn.const(1, INT32))
    )
    return _sum(left), _sum(right)
