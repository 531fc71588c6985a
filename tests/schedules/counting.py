"""How many elements of each stage a program of Halide's stores: its loops and conditions are run, and nothing else."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache

from tedsl.backend.halide_text.expressions import Expression, UnreadableError, arguments_of, read_expression
from tedsl.backend.halide_text.values import Value, value_of

LINE = re.compile(r"(?P<loop>for|parallel|unrolled)\S* ?\((?P<head>.*)\) \{$|if \((?P<condition>.*)\) \{$")
LET = re.compile(r"let (?P<name>\S+) = (?P<value>.*)$")
STORE = re.compile(r"(?P<name>[\w.$]+)\[(?P<place>.*)\] = ")
LANES = re.compile(r"ramp\(.*, 1, (\d+)\)")
Names = dict[str, Value]
Block = list[tuple[str, "Block"]]


def stored(program: str) -> Counter[str]:
    """The number of elements that are stored, by the name of the stage; names of the sizes of arrays are unknown."""
    found: Counter[str] = Counter()
    _run(_blocks(program[program.index("produce ") :].splitlines()), {}, found)
    return found


def _blocks(lines: list[str]) -> Block:
    """Lines and what stands in the braces behind them."""
    stack: list[Block] = [[]]
    for line in map(str.strip, lines):
        if line.startswith("}") and len(stack) > 1:
            stack.pop()
        if line.endswith("{"):
            inner: Block = []
            stack[-1].append((line.removeprefix("} "), inner))
            stack.append(inner)
        elif line and line != "}":
            stack[-1].append((line, []))
    return stack[0]


def _run(block: Block, names: Names, found: Counter[str]) -> None:
    taken = True
    for line, inner in block:
        let, store, head = LET.match(line), STORE.match(line), LINE.match(line)
        if let:
            names = {**names, let["name"]: _value(let["value"], names)}
        elif store:
            lanes = LANES.match(store["place"])
            found[store["name"]] += int(lanes[1]) if lanes else 1
        elif head and head["loop"]:
            name, begin, extent = (a.strip() for a in arguments_of(f"{head['head']})", 0))
            first, count = _number(begin, names), _number(extent, names)
            for i in range(first, first + count):
                _run(inner, {**names, name: i}, found)
        elif line == "else {":
            _run([] if taken else inner, names, found)
        else:
            taken = not head or bool(_number(head["condition"], names))
            _run(inner if taken else [], names, found)


def _value(text: str, names: Names) -> Value:
    try:
        return value_of(_read(text), names.get, lambda call: None)
    except UnreadableError:
        return None


def _number(text: str, names: Names) -> int:
    value = value_of(_read(text), names.get, lambda call: None)
    assert value is not None, text
    return int(value)


@cache
def _read(text: str) -> Expression:
    return read_expression(text)
