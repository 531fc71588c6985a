"""Terms of sums that are products: these are added with one rounding where the processor can."""

from __future__ import annotations

from tedsl.lang import functions as fn
from tedsl.lang.dataclass import dataclass
from tedsl.lang.expr import TRUE, Apply, Const, Expr, Fn
from tedsl.lang.traverse import reads_of

__all__ = ["AddedProduct", "product_of", "rounded", "unrounded"]


@dataclass(frozen=True, eq=False)
class AddedProduct:
    """A product, the conditions under which it is added, each a guard of the next, and whether it is subtracted."""

    value: Expr
    conditions: tuple[Expr, ...]
    negative: bool

    @property
    def condition(self) -> Expr:
        """All of them, for who guards reads in another way."""
        found: Expr = TRUE
        for condition in self.conditions:
            found = fn.logical_and(found, condition)
        return found


def product_of(term: Expr) -> AddedProduct | None:
    """The product that a term is; guarded, as terms of gradients are, it is a product under a condition, or else 0."""
    value, negative = term, False
    conditions: list[Expr] = []
    while isinstance(value, Apply):
        if value.fn is Fn.SELECT and _is_zero(value.args[2]):
            conditions.append(value.args[0])
            value = value.args[1]
        elif value.fn is Fn.SELECT and _is_zero(value.args[1]):
            conditions.append(fn.logical_not(value.args[0]))
            value = value.args[2]
        elif value.fn is Fn.NEG:
            negative, value = not negative, value.args[0]
        else:
            break
    fuses = value.dtype in ("float32", "float64") and _multiplies_data(value)
    return AddedProduct(value, tuple(conditions), negative) if fuses else None


def _is_zero(value: Expr) -> bool:
    return isinstance(value, Const) and value.value == 0


def _multiplies_data(value: Expr) -> bool:
    """Whether the last operation is a product of data; one of numbers known at build may be rounded there."""
    if not isinstance(value, Apply):
        return False
    squares = value.fn is Fn.POW and isinstance(value.args[1], Const) and value.args[1].value == 2
    return (squares or value.fn is Fn.MUL) and bool(reads_of((value,)))


def rounded(product: Expr) -> Expr:
    """A term of a sum that is rounded before it is added, as one is that a stage of its own computes."""
    return Apply(Fn.ROUNDED, (product,), product.dtype) if product.dtype.is_float else product


def unrounded(term: Expr) -> Expr:
    """What a `rounded` term is, or the term itself."""
    return term.args[0] if isinstance(term, Apply) and term.fn is Fn.ROUNDED else term
