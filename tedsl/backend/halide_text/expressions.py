"""Halide's expressions, read from its text.

Halide puts parentheses around every operation that stands in another one, so there is no order of operators to know:
a text with two of them side by side is not of this form. A text that is not fully understood is no expression at all
(`UnreadableError`), so that nobody takes a part for the whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from tedsl.backend.halide_text.forms import TOKEN
from tedsl.lang.dataclass import dataclass

__all__ = [
    "Expression",
    "HalideCall",
    "HalideName",
    "Let",
    "Text",
    "UnreadableError",
    "arguments_of",
    "read_expression",
    "read_first",
]

DEEPEST = 40  # parentheses within one another: deeper than bounds ever are
CLOSING = {"(": ")", "[": "]"}
OPERATORS = frozenset(["+", "-", "*", "/", "%", "==", "!=", "<", "<=", ">", ">=", "&&", "||"])


class UnreadableError(ValueError):
    """A text that is no expression of a form that is known here."""


@dataclass(frozen=True)
class HalideName:
    """A name with its fields: `A.extent.0`."""

    text: str


@dataclass(frozen=True)
class Text:
    """What stands in quotation marks, or a number that is no integer."""

    text: str


@dataclass(frozen=True)
class HalideCall:
    """A function, an operator between two values, `!` or `cast` (of which the type comes first), and its operands."""

    name: str
    operands: tuple[Expression, ...]


@dataclass(frozen=True)
class Let:
    """`let name = value in body`."""

    name: str
    value: Expression
    body: Expression


Expression: TypeAlias = int | HalideName | Text | HalideCall | Let


def read_expression(text: str) -> Expression:
    """The expression that a text is."""
    reader = _Reader(text)
    found = reader.expression()
    reader.end()
    return found


def read_first(text: str) -> Expression:
    """The first of several expressions with commas between."""
    reader = _Reader(text)
    found = reader.expression()
    reader.take(",")
    return found


def arguments_of(text: str, begin: int) -> Iterator[str]:
    """The arguments of a call as texts, from behind its parenthesis on; they need not be expressions known here."""
    depth = 0
    for token in TOKEN.finditer(text, begin):
        sign = token["sign"]
        if sign in ("(", "["):
            depth += 1
        elif depth and sign in (")", "]"):
            depth -= 1
        elif not depth and sign in (",", ")"):
            yield text[begin : token.start()].strip()
            begin = token.end()
            if sign == ")":
                return


class _Reader:
    """A text, and the kind and words of the token that comes next: ("", "") where there is none."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = self.behind = 0  # where the token begins, and ends
        self.depth = 0
        self.kind = self.word = ""
        self._advance()

    def expression(self) -> Expression:
        """One value, or two with an operator between, up to what cannot belong to it."""
        self.depth += 1
        if self.depth > DEEPEST:
            raise UnreadableError(f"more than {DEEPEST} expressions within one another")
        left = self._operand()
        if self.kind == "sign" and self.word in OPERATORS:
            left = HalideCall(self._next()[1], (left, self._operand()))
        self.depth -= 1
        return left

    def take(self, wanted: str) -> None:
        """Go on behind a sign or word."""
        if self.word != wanted:
            raise UnreadableError(f"{wanted!r} was expected, found {self.text[self.at :]!r}")
        self._advance()

    def end(self) -> None:
        """Nothing is left."""
        if self.text[self.at :].strip():
            raise UnreadableError(f"an end was expected, found {self.text[self.at :]!r}")

    def _next(self) -> tuple[str, str]:
        found = self.kind, self.word
        if not self.kind:
            raise UnreadableError(f"a value was expected, found {self.text[self.at :]!r}")
        self._advance()
        return found

    def _advance(self) -> None:
        self.at = self.behind
        found = TOKEN.match(self.text, self.at)
        if found is None or found.lastgroup is None:
            self.kind = self.word = ""
            return
        self.kind, self.word, self.behind = found.lastgroup, found[found.lastgroup], found.end()

    def _operand(self) -> Expression:
        kind, said = self._next()
        if kind == "int":
            return int(said)
        if kind in ("text", "real"):
            return Text(said)
        if kind == "type":
            return HalideCall("cast", (Text(said[1:-1]), self._operand()))
        if said == "let":
            return self._let()
        if said == "!":
            return HalideCall("!", (self._operand(),))
        if said == "(":
            inside = self.expression()
            self.take(")")
            return inside
        if said == "-":
            return self._negative()
        if kind != "name":
            raise UnreadableError(f"a value was expected, found {said + self.text[self.at :]!r}")
        return self._named(said)

    def _negative(self) -> Expression:
        """A literal: Halide writes the negative of anything else as `0 - x`."""
        kind, said = self._next()
        if kind == "int":
            return -int(said)
        if kind == "real":
            return Text(f"-{said}")
        raise UnreadableError(f"a number was expected, found {said + self.text[self.at :]!r}")

    def _let(self) -> Expression:
        _, name = self._next()
        self.take("=")
        value = self.expression()
        self.take("in")
        return Let(name, value, self.expression())

    def _named(self, name: str) -> Expression:
        """A name, a call, or an element of a buffer."""
        closing = CLOSING.get(self.word)
        if closing is None or self.kind != "sign":
            return HalideName(name)
        is_call = closing == ")"
        self._advance()
        operands: list[Expression] = []
        while self.word != closing:
            operands.append(self.expression())
            if self.word != closing:
                self.take(",")
        self._advance()
        return HalideCall(name if is_call else f"{name}[]", tuple(operands))
