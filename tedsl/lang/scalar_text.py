"""The text of scalar expressions: Python that rebuilds them, with as few parentheses as Python's precedence allows.

Nothing here recurses, and the text stays linear in the size of the graph: where an expression written out in full
would be long, its shared parts are named first (`t0 = ...`).
"""

from __future__ import annotations

import math
from dataclasses import field

from tedsl.lang.border_text import parts_as_said, said_at
from tedsl.lang.dataclass import dataclass
from tedsl.lang.dtypes import BOOL, FLOAT32, INT32, DType
from tedsl.lang.expr import TRUE, Apply, Axis, Const, Expr, Fn, Formal, Read, Reduce, Var, WeakFloat
from tedsl.lang.operators import HOW_ADDED
from tedsl.lang.shortened import shortened
from tedsl.lang.tensor import Scan, Tensor
from tedsl.lang.tidy import tidied
from tedsl.lang.weak import is_number, number_of

__all__ = ["Names", "Style", "brief", "expression_text", "lines_of", "shared_parts"]

# Beyond this many nodes in full, shared parts get names.
FULL = 120

# How tightly Python binds.
COMPARISON, OR, XOR, AND, SHIFT, SUM, PRODUCT, UNARY, POWER, ATOM = range(10)

INFIX: dict[Fn, tuple[str, int]] = {
    Fn.ADD: ("+", SUM), Fn.SUB: ("-", SUM), Fn.MUL: ("*", PRODUCT), Fn.DIV: ("/", PRODUCT),
    Fn.FLOORDIV: ("//", PRODUCT), Fn.MOD: ("%", PRODUCT), Fn.POW: ("**", POWER),
    Fn.EQ: ("==", COMPARISON), Fn.NE: ("!=", COMPARISON), Fn.LT: ("<", COMPARISON), Fn.LE: ("<=", COMPARISON),
    Fn.GT: (">", COMPARISON), Fn.GE: (">=", COMPARISON),
    Fn.AND: ("&", AND), Fn.OR: ("|", OR), Fn.BITAND: ("&", AND), Fn.BITOR: ("|", OR), Fn.BITXOR: ("^", XOR),
    Fn.LSHIFT: ("<<", SHIFT), Fn.RSHIFT: (">>", SHIFT),
}  # fmt: skip
PREFIX: dict[Fn, str] = {Fn.NEG: "-", Fn.NOT: "~", Fn.INVERT: "~"}
# The dtypes that a bare Python number takes on its own.
WEAK: dict[type, DType] = {bool: BOOL, int: INT32, float: FLOAT32}

BRIEF = 60  # letters of an expression in a line of a table or a message

Piece = str | Expr


class Names:
    """One name per symbol and tensor; a name already taken by another gets a number.

    Axes, formals and shared parts belong to one definition (`inner()`), tensors and extents to the whole program.
    """

    def __init__(self, outer: Names | None = None) -> None:
        self._outer = outer
        self._of: dict[object, str] = {}
        self._taken: set[str] = set()

    def inner(self) -> Names:
        return Names(self)

    def of(self, thing: Var | Axis | Formal | Tensor) -> str:
        found = self._of.get(thing) or (self._outer and self._outer._of.get(thing))
        return found or self.give(thing, thing.name, local=isinstance(thing, (Axis, Formal)))

    def of_part(self, part: Expr, name: str) -> str:
        """The name of a shared part, a new one where it has none."""
        return self._of.get(part) or self.give(part, name)

    def has(self, thing: object) -> bool:
        """Whether it has a name here."""
        return thing in self._of

    def known(self, tensor: Tensor) -> str:
        """The name of a tensor, its own if it has none here."""
        return self._of.get(tensor) or (self._outer.known(tensor) if self._outer is not None else tensor.name)

    def give(self, thing: object, name: str, local: bool = True) -> str:
        """`name`, or the first of name_1, name_2, ... that is free."""
        home = self if local or self._outer is None else self._outer
        free, number = name, 0
        while free in self._taken or (self._outer is not None and free in self._outer._taken):
            number += 1
            free = f"{name}_{number}"
        home._taken.add(free)
        home._of[thing] = free
        return free

    def alias(self, thing: object, name: str) -> None:
        """The same name for a second thing (the state of a scan is called like its result)."""
        self._of[thing] = name


@dataclass(frozen=True)
class Style:
    """Functions are written (`te.exp(x)` or `exp(x)`) and 0-rank tensors read (`s[()]`, `s`); `tidy`: to be read."""

    prefix: str = "te."
    empty_index: str = "[()]"
    names: Names = field(default_factory=Names)
    tidy: bool = False


def expression_text(expr: Expr, style: Style | None = None) -> str:
    """The expression, after lines that name the parts it shares where there are many."""
    *lets, last = lines_of((expr,), style or Style())
    return "\n".join([*lets, last])


def brief(expr: Expr) -> str:
    """The text of an expression within a line of a table or a message: of a long one, its beginning and its end."""
    text = expression_text(expr, Style(tidy=True)).rpartition("\n")[2]  # parts that it shares are told by names alone
    return shortened(text, BRIEF)


def lines_of(roots: tuple[Expr, ...], style: Style) -> list[str]:
    """A line `t0 = ...` per named part, then a line per root."""
    roots = tidied(roots) if style.tidy else roots
    shared = shared_parts(roots)
    names: dict[Expr, str] = {}
    lines = []
    for node in shared:
        text = _written(node, names, style)
        names[node] = style.names.of_part(node, f"t{len(names)}")
        lines.append(f"{names[node]} = {text}")
    return lines + [_written(root, names, style) for root in roots]


def shared_parts(roots: tuple[Expr, ...]) -> list[Expr]:
    """The parts to name: nodes used several times, if writing everything out would be long."""
    order = parts_as_said(roots)
    size: dict[Expr, int] = {}
    uses: dict[Expr, int] = dict.fromkeys(order, 0)
    for node, parts in order.items():
        size[node] = min(1 + sum(size[c] for c in parts), 1 << 30)
        for part in parts:
            uses[part] += 1
    if sum(size[root] for root in roots) <= FULL:
        return []
    return [n for n in order if uses[n] > 1 and size[n] > 3 and not isinstance(n, Const)]


def _written(root: Expr, names: dict[Expr, str], style: Style) -> str:
    out: list[str] = []
    stack: list[Piece] = [root]
    while stack:
        piece = stack.pop()
        if isinstance(piece, str):
            out.append(piece)
        elif piece in names:
            out.append(names[piece])
        elif isinstance(piece, Apply) and piece.fn in HOW_ADDED:  # how it is added does not show
            stack.append(piece.args[0])
        else:
            stack.extend(reversed(_pieces(piece, names, style)))
    return "".join(out)


def _pieces(node: Expr, names: dict[Expr, str], style: Style) -> list[Piece]:
    """The text of one node, with its operands left to be written."""
    if isinstance(node, Const):
        return [literal(node, style, bare=_is_default(node))]
    if is_number(node):
        return [literal(number_of(node), style, bare=True)]
    if isinstance(node, (Var, Axis, Formal)):
        return [style.names.of(node)]
    if (said := said_at(node)) is not None:
        tensor, places, mode = said
        listed = _listed([_index(place, style) for place in places])
        return [f"{style.names.of(tensor)}.at(", *listed, f", mode={mode!r})"]
    if isinstance(node, Read):
        return _read(node, style)
    if isinstance(node, Reduce):
        return _reduce(node, style)
    assert isinstance(node, Apply)
    operands = _operands(node, style)
    if node.fn in INFIX:
        sign, level = INFIX[node.fn]
        left, right = operands
        tight = level in (COMPARISON, POWER)
        if node.fn is Fn.ADD and style.tidy and isinstance(right, str) and right.startswith("-"):
            sign, right = "-", right[1:]  # for readers: Python rebuilds a sum from a sum only
        return [
            *_within(left, level + tight, names),
            f" {sign} ",
            *_within(right, UNARY if level is POWER else level + 1, names),
        ]
    if node.fn in PREFIX:
        return [PREFIX[node.fn], *_within(operands[0], UNARY, names)]
    if node.fn is Fn.CAST:
        return [f"{style.prefix}cast(", operands[0], f", '{node.dtype}')"]
    return [f"{style.prefix}{node.fn.value}(", *_listed(operands), ")"]


def _operands(node: Apply, style: Style) -> list[Piece]:
    """The operands; a literal stands bare beside an operand from which it takes its dtype."""
    choice = 1 if node.fn is Fn.SELECT else 0
    strong = isinstance(node, WeakFloat) or any(not isinstance(a, Const) for a in node.args[choice:])
    if not strong and node.fn not in INFIX and node.fn not in PREFIX:  # which Python would compute itself
        strong = node.is_weak or (node.fn is Fn.SELECT and node.dtype is BOOL)
    operands: list[Piece] = []
    for position, arg in enumerate(node.args):
        # Python itself turns 2.0 < x into x > 2.0.
        mirrored = position == 0 and node.fn in INFIX and INFIX[node.fn][1] is COMPARISON
        bare = strong and position >= choice and not mirrored
        operands.append(literal(number_of(arg), style, bare) if is_number(arg) else arg)
    return operands


def _is_default(node: Const) -> bool:
    """Whether a bare number that stands alone becomes this literal."""
    return WEAK[type(node.value)] is node.dtype and (node.dtype is not INT32 or node.is_weak)


def literal(node: Const, style: Style, bare: bool) -> str:
    """A number, with its dtype where that does not follow from its surroundings."""
    value = node.value
    if isinstance(value, float) and math.isfinite(value) and node.dtype in ("float16", "float32"):
        text = str(node.dtype.numpy.type(value))  # the shortest that reads back as the same value
    else:
        text = repr(value)
    if bare or not style.prefix:
        return text
    return f"{style.prefix}const({text}, '{node.dtype}')"


def _within(operand: Piece, level: int, names: dict[Expr, str]) -> list[Piece]:
    """The operand, in parentheses where it binds less than `level`."""
    return [operand] if _level(operand, names) >= level else ["(", operand, ")"]


def _level(operand: Piece, names: dict[Expr, str]) -> int:
    if isinstance(operand, str):
        return UNARY if operand.startswith("-") else ATOM
    if isinstance(operand, Apply) and operand not in names:
        if operand.fn in HOW_ADDED:
            return _level(operand.args[0], names)
        if operand.fn in INFIX:
            return INFIX[operand.fn][1]
        return UNARY if operand.fn in PREFIX else ATOM
    return ATOM


def _listed(pieces: list[Piece]) -> list[Piece]:
    listed: list[Piece] = []
    for piece in pieces:
        listed += [", ", piece] if listed else [piece]
    return listed


def _read(node: Read, style: Style) -> list[Piece]:
    if isinstance(node.tensor.op, Scan):
        node = node.tensor.op.as_written(node)
    name = style.names.of(node.tensor)
    if not node.indices:
        return [name + style.empty_index]
    return [name, "[", *_listed([_index(index, style) for index in node.indices]), "]"]


def _index(index: Expr, style: Style) -> Piece:
    if not isinstance(index, Const):
        return index
    return literal(index, style, bare=index.dtype is INT32 and index.value >= 0)


def _reduce(node: Reduce, style: Style) -> list[Piece]:
    name = node.reducer.name if node.reducer.is_custom else style.prefix + node.reducer.kind
    several = len(node.values) > 1
    axes = ", ".join(style.names.of(a) for a in node.axes)
    pieces: list[Piece] = [name, "((" if several else "(", *_listed(list(node.values)), ")" if several else ""]
    pieces.append(f", axis=({axes})" if len(node.axes) > 1 else f", axis={axes}")
    if node.where is not TRUE:
        pieces += [", where=", node.where]
    return [*pieces, f")[{node.index}]" if several else ")"]
