"""What the kernels of a GPU ask of a block, read from Halide's program: too much is an error before anything runs."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator

from schedules.loops import MOST_THREADS
from tedsl.lang.errors import ScheduleError

__all__ = ["MOST_SHARED", "check_launches"]

MOST_SHARED = 48 << 10  # bytes, which a kernel gets without asking for more
_LAUNCH = re.compile(r"halide_(?:cuda|opencl)_run\(")
_ARITHMETIC: dict[type, Callable[[int, int], int]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
}  # fmt: skip


def check_launches(name: str, text: str) -> None:
    """ScheduleError where a launch in Halide's lowered program `text` has blocks that no GPU can run."""
    for arguments in _launches(text):
        kernel, sizes = arguments[1].strip('" '), [_number(a) for a in arguments[5:9]]
        *threads, shared = sizes
        count = 1
        for n in threads:
            count *= n or 1
        if count > MOST_THREADS:
            across = " x ".join(str(n) for n in threads if n is not None and n > 1)
            raise ScheduleError(
                f"kernel {name!r}: a block of {kernel} would have {across} = {count} threads of {MOST_THREADS};"
                " give smaller factors to the loops over threads"
            )
        if shared is not None and shared > MOST_SHARED:
            raise ScheduleError(
                f"kernel {name!r}: a block of {kernel} would need {shared} bytes of shared memory, of at most"
                f" {MOST_SHARED}; compute its stages for less at a time, or keep them at the root"
            )


def _launches(text: str) -> Iterator[list[str]]:
    """The arguments of each launch: context, kernel, three extents in blocks, three in threads, bytes, ..."""
    for start in _LAUNCH.finditer(text):
        depth, begin, found = 0, start.end(), []
        for at in range(start.end(), len(text)):
            if text[at] in "([":
                depth += 1
            elif text[at] in ")]" and depth:
                depth -= 1
            elif text[at] in ",)" and not depth:
                found.append(text[begin:at].strip())
                begin = at + 1
                if text[at] == ")":
                    break
        yield found


def _number(text: str) -> int | None:
    """The value of sums and products of integers; None for anything else."""
    try:
        return _value(ast.parse(text, mode="eval").body)
    except SyntaxError:
        return None


def _value(node: ast.expr) -> int | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        left, right = _value(node.left), _value(node.right)
        return None if left is None or right is None else _ARITHMETIC[type(node.op)](left, right)
    return None
