"""The variables that the result of a call is stored in: `y = te.compute(...)` makes a tensor called y.

The frame of a call tells which instruction waits for its result, and the one behind it where the result goes. What a
function returns at once is called like the function. Whatever else is no plain assignment tells nothing. Each place of
the code is read once.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from opcode import HAVE_ARGUMENT, opmap, opname, stack_effect
from types import CodeType, FrameType
from typing import NamedTuple

from tedsl.lang.errors import is_own_file

__all__ = ["Variables", "stored_names", "variables_of"]

# One name, or one for each part of a result that is taken apart, None where a part has no name to take.
Variables = str | tuple[str | None, ...]

MOST_KNOWN = 16384
# What hands calls of the user on to the functions that make tensors: their frames are looked through.
_HERE = os.path.dirname(os.path.abspath(__file__))
_FACES = frozenset(
    os.path.join(_HERE, file) for file in ("broadcast.py", "functions.py", "keywords.py", "operators.py", "tensor.py")
) | {os.path.join(os.path.dirname(_HERE), "ops", "op.py")}
# Methods that Python calls for other things than operators, which sum() and the like use for what they do not return.
_CALLED = frozenset(("__call__", "__abs__", "__array_function__", "__array_ufunc__"))
_OPERATORS = ("BINARY_", "COMPARE_", "INPLACE_", "UNARY_")

_CACHE = opmap.get("CACHE", -1)
_STORES = frozenset(("STORE_NAME", "STORE_GLOBAL", "STORE_FAST", "STORE_DEREF"))
_PAIRS = frozenset(("STORE_FAST_STORE_FAST", "STORE_FAST_LOAD_FAST"))
# Instructions that put values on the stack, or take some from its top and put one there, by how they begin.
_OF_ONE = frozenset(("LOAD_ATTR", "LOAD_METHOD"))
_NEUTRAL = frozenset(("KW_NAMES", "NOP", "PUSH_NULL"))
_SIMPLE = ("BINARY_", "BUILD_", "CALL", "COMPARE_OP", "LOAD_", "MAKE_FUNCTION", "PRECALL", "SET_FUNCTION_", "UNARY_")
_TURNS = {"ROT_TWO": {0: 1, 1: 0}, "ROT_THREE": {0: 2, 1: 0, 2: 1}}


class _Known(NamedTuple):
    """What is known of a place of the code; which is kept here, so that its id stays its own."""

    code: CodeType
    variables: Variables | None = None
    is_operator: bool = False  # the instruction there is one
    is_face: bool = False
    is_method: bool = False  # of an operator, on a face


_known: dict[tuple[int, int], _Known] = {}


def variables_of(frame: FrameType | None) -> Variables | None:
    """The variables that the result of the call which a frame waits for is stored in; None in frames of the library."""
    by_operator = False
    while frame is not None:
        code, offset = frame.f_code, frame.f_lasti
        known = _known.get((id(code), offset)) or _remembered(code, offset)
        if not known.is_face:
            return known.variables if known.is_operator or not by_operator else None
        by_operator = by_operator or known.is_method
        frame = frame.f_back
    return None


def _remembered(code: CodeType, offset: int) -> _Known:
    if len(_known) >= MOST_KNOWN:
        _known.clear()
    return _known.setdefault((id(code), offset), _read(code, offset))


def _read(code: CodeType, offset: int) -> _Known:
    name = code.co_name
    if code.co_filename in _FACES and name != "<genexpr>":  # in which rows are taken one after another
        return _Known(code, is_face=True, is_method=name.startswith("__") and name not in _CALLED)
    if is_own_file(code.co_filename):
        return _Known(code)
    return _Known(code, stored_names(code, offset), _instruction_at(code, offset).startswith(_OPERATORS))


def _instruction_at(code: CodeType, offset: int) -> str:
    """The instruction that a frame stands at; it may stand at what belongs to it."""
    numbers = code.co_code
    while numbers[offset] == _CACHE:
        offset -= 2
    return opname[numbers[offset]]


def stored_names(code: CodeType, offset: int) -> Variables | None:
    """The names that the result of the instruction at `offset` is stored under by what comes next, if it is.

    In `a, b = f(), g()` other values are made in between: `above` counts those that lie above the result on the stack.
    """
    above = 0
    following = _instructions(code.co_code, offset + 2)
    for name, argument in following:
        if not above:
            if name in ("COPY", "DUP_TOP"):  # (y := ...), a = b = ...
                name, argument = next(following, ("", 0))
            if name == "UNPACK_SEQUENCE":
                return _unpacked(code, argument, following)
        if name == "RETURN_VALUE" and not above:
            return _function(code.co_name)
        stored = _stored(code, name, argument)
        if len(stored) > above:
            return stored[above]
        if stored:
            above += stack_effect(opmap[name], argument)
        elif name == "BUILD_TUPLE" and argument > above:  # a, b, c, d = ... of four and more
            if next(following, None) != ("UNPACK_SEQUENCE", argument):
                return None
            above = argument - 1 - above
        elif (moved := _moved(name, argument, above)) is None:
            return None
        else:
            above = moved
    return None


def _unpacked(code: CodeType, count: int, following: Iterator[tuple[str, int]]) -> Variables | None:
    """The names of so many parts of a result."""
    found = list[str | None]()
    while len(found) < count:
        stored = _stored(code, *next(following, ("", 0)))
        if not stored:
            return None
        found += stored
    return tuple(found[:count]) if any(found) else None


def _moved(name: str, argument: int, above: int) -> int | None:
    """How many values lie above ours after an instruction; None where it takes ours, or is none that is known."""
    if name in _TURNS:  # Python 3.10
        return _TURNS[name].get(above, above)
    if name == "SWAP":
        return {0: argument - 1, argument - 1: 0}.get(above, above)
    number = opmap.get(name, 0)
    if not name.startswith(_SIMPLE) and name not in _NEUTRAL:
        return None
    effect = stack_effect(number, argument if number >= HAVE_ARGUMENT else None)
    taken = 0 if name in _NEUTRAL else 1 if name in _OF_ONE else 1 - effect
    return above + effect if taken <= above else None


def _instructions(code: bytes, begin: int) -> Iterator[tuple[str, int]]:
    """The instructions from a place on, with their arguments."""
    extended = 0
    for place in range(begin, len(code), 2):
        number = code[place]
        if number == _CACHE:
            continue
        argument = code[place + 1] | extended if number >= HAVE_ARGUMENT else 0
        if opname[number] == "EXTENDED_ARG":
            extended = argument << 8
            continue
        extended = 0
        yield opname[number], argument


def _stored(code: CodeType, name: str, argument: int) -> list[str | None]:
    """The variables, in order, that an instruction stores into."""
    if name in _PAIRS:  # of Python 3.13
        first, second = argument >> 4, argument & 15
        places = [first, second] if name == "STORE_FAST_STORE_FAST" else [first]
        return [_variable(code.co_varnames[place]) for place in places]
    if name not in _STORES:
        return []
    if name in ("STORE_NAME", "STORE_GLOBAL"):
        return [_variable(code.co_names[argument])]
    if name == "STORE_FAST":
        return [_variable(code.co_varnames[argument])]
    if hasattr(code, "_varname_from_oparg"):  # from Python 3.11 on
        return [_variable(code._varname_from_oparg(argument))]
    return [_variable((*code.co_cellvars, *code.co_freevars)[argument])]


def _function(name: str) -> str | None:
    """What a function returns is called like the function, unless that is a `__call__` or has no name of its own."""
    return None if name.startswith("__") else _variable(name)


def _variable(name: str) -> str | None:
    """A name that says something: `_` does not, nor do those that test runners make up."""
    return name if name.strip("_") and name.isidentifier() else None
