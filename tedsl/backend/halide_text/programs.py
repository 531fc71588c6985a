"""A lowered program of Halide's: the arguments of its function, its lets, its asserts, its launches of kernels."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping

from tedsl.backend.halide_text.expressions import (
    Expression,
    HalideCall,
    HalideName,
    UnreadableError,
    arguments_of,
    read_expression,
    read_first,
)
from tedsl.backend.halide_text.forms import ASSERT, ERROR, LET, SIGNATURE
from tedsl.backend.halide_text.values import Calls, Value, value_of
from tedsl.lang.dataclass import dataclass
from tedsl.lang.locks import cached_property

__all__ = ["Check", "HalideProgram", "Launch", "read_field"]

DEEPEST = 10  # lets that one name leads to: more than bounds have
_ANY_ASSERT = "assert("
_TASK = re.compile(r"(\S+) == 0, \1")  # what a parallel loop returned: `assembly.allocation_failures` hands it on
_LAUNCH = re.compile(r"halide_(?:cuda|opencl)_run\(")
_FIELD = re.compile(r"_halide_buffer_(?:get_)?(\w+)")
_BUFFER = ".buffer"


@dataclass(frozen=True)
class Check:
    """What must hold, and the name of the error where it does not."""

    said: str  # the condition, then a call of the error's function
    error: str

    @property
    def condition(self) -> Expression | None:
        """The condition; None where it is not of a known form."""
        try:
            return read_first(self.said)
        except UnreadableError:
            return None


@dataclass(frozen=True)
class Launch:
    """A kernel of a GPU, its blocks and the threads of one in three dimensions, and the bytes that these share."""

    kernel: str
    blocks: tuple[Value, ...]
    threads: tuple[Value, ...]
    shared: Value


@dataclass(frozen=True)
class HalideProgram:
    """The text of one."""

    text: str

    @cached_property
    def arguments(self) -> tuple[str, ...] | None:
        """The names of the arguments, None where there is no function. The first one is the context of a call."""
        signature = SIGNATURE.search(self.text)
        return None if signature is None else tuple(signature[1].split(", ")[1:])

    @cached_property
    def checks(self) -> tuple[Check, ...] | None:
        """The asserts at the beginning, but for those of tasks; None where there are others, or one has no error."""
        found = [(m[1], m[2], ERROR.search(m[2])) for m in ASSERT.finditer(self.text)]
        if len(found) != self.text.count(_ANY_ASSERT):
            return None
        known = [(indent, said, error) for indent, said, error in found if _TASK.fullmatch(said) is None]
        if any(indent or error is None for indent, _, error in known):
            return None
        return tuple(Check(said, error[1]) for _, said, error in known if error is not None)

    @cached_property
    def launches(self) -> tuple[Launch, ...]:
        """The kernels that it starts on a GPU."""
        return tuple(self._launches())

    def _launches(self) -> Iterator[Launch]:
        for start in _LAUNCH.finditer(self.text):
            _, kernel, *sizes = list(arguments_of(self.text, start.end()))[:9]
            numbers = tuple(_number(size) for size in sizes)
            yield Launch(kernel.strip('"'), numbers[:3], numbers[3:6], numbers[6])

    @cached_property
    def _lets(self) -> dict[str, str]:
        """What the names stand for that are bound once, and around everything."""
        found = [(m[1], m[2], m[3]) for m in LET.finditer(self.text)]
        times = Counter(name for _, name, _ in found)
        return {name: said for indent, name, said in found if not indent and times[name] == 1}

    def values(self, known: Mapping[str, int], calls: Calls) -> Values:
        """The numbers in the program, for known values of arguments and of calls."""
        return Values(self._lets, dict(known), calls)


class Values:
    """The numbers that the names of a program stand for, found where they are needed."""

    def __init__(self, lets: dict[str, str], known: dict[str, Value], calls: Calls) -> None:
        self._lets, self._known, self._calls = lets, known, calls
        self._depth = 0

    def of(self, root: Expression | None) -> Value:
        """The value of an expression; None where it is not known."""
        return None if root is None else value_of(root, self._named, self._calls)

    def _named(self, name: str) -> Value:
        if name not in self._known:
            self._known[name] = None  # in its own let it would be another one
            if name in self._lets and self._depth < DEEPEST:
                self._depth += 1
                self._known[name] = self.of(_read(self._lets[name]))
                self._depth -= 1
        return self._known[name]


def _read(said: str) -> Expression | None:
    try:
        return read_expression(said)
    except UnreadableError:
        return None


def read_field(call: HalideCall) -> tuple[str, str, int] | None:
    """The argument, the field and the dimension that a function of a buffer asks for; None for other functions."""
    field = _FIELD.fullmatch(call.name)
    if field is None or not call.operands:
        return None
    buffer, *rest = call.operands
    if isinstance(buffer, HalideCall) and buffer.name == "cast":
        buffer = buffer.operands[1]
    if not isinstance(buffer, HalideName) or not buffer.text.endswith(_BUFFER):
        return None
    dimension = rest[0] if rest else 0
    return (buffer.text.removesuffix(_BUFFER), field[1], dimension) if isinstance(dimension, int) else None


def _number(text: str) -> Value:
    found = _read(text)
    return None if found is None else value_of(found, lambda name: None, lambda call: None)
