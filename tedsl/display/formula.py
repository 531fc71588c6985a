"""The definition of a tensor as a formula: sums with their ranges, selects as cases, reads as subscripts.

A part that is used several times in a long formula gets a line of its own. What would still be too long to read is left
to plain text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tedsl.display.math import Big, Cases, Fenced, Fraction, Line, Math, Name, Operator, Root, Row, Script, Table, Word
from tedsl.display.wrapping import wrapped
from tedsl.lang.border_text import said_at
from tedsl.lang.expr import TRUE, Apply, Axis, Const, Expr, Fn, Formal, Read, Reduce, Var
from tedsl.lang.extents import simplify_extent
from tedsl.lang.intervals import range_of
from tedsl.lang.native import Native
from tedsl.lang.operators import HOW_ADDED
from tedsl.lang.phases import part_shown, unpacked
from tedsl.lang.scalar_text import Names, shared_parts
from tedsl.lang.tensor import Compute, Constant, Extern, Operation, Placeholder, Scan, Scatter, Tensor
from tedsl.lang.tidy import shorter
from tedsl.lang.traverse import conjuncts, topological

__all__ = ["TooLong", "formula_of", "scalar_formula"]

# A line of more nodes is no longer read as a formula.
LONGEST = 150
OR, AND, BITS, COMPARE, SUM, PRODUCT, PREFIX, POWER, ATOM = range(9)
SIGN = {
    "sum": "∑",
    "prod": "∏",
    "any": "⋁",
    "all": "⋀",
    "max": "max",
    "min": "min",
    "argmax": "argmax",
    "argmin": "argmin",
}
INFIX = {
    Fn.ADD: ("+", SUM), Fn.SUB: ("−", SUM), Fn.MOD: ("%", PRODUCT), Fn.EQ: ("=", COMPARE), Fn.NE: ("≠", COMPARE),
    Fn.LT: ("<", COMPARE), Fn.LE: ("≤", COMPARE), Fn.GT: (">", COMPARE), Fn.GE: ("≥", COMPARE), Fn.AND: ("∧", AND),
    Fn.OR: ("∨", OR), Fn.BITAND: ("&", BITS), Fn.BITOR: ("∣", BITS), Fn.BITXOR: ("⊕", BITS),
    Fn.LSHIFT: ("≪", BITS), Fn.RSHIFT: ("≫", BITS),
}  # fmt: skip
BRACKETS = {Fn.ABS: ("|", "|"), Fn.FLOOR: ("⌊", "⌋"), Fn.CEIL: ("⌈", "⌉")}
UPDATE = {"add": "+=", "mul": "*=", "max": "max=", "min": "min="}


class TooLong(ValueError):
    """A definition that no formula makes readable."""


def formula_of(op: Operation, names: Names | None = None) -> Table:
    """The definition of a stage; TooLong if it is better left to text."""
    style = (names or Names()).inner()
    shown = part_shown(op)
    return _Writer(style, op if shown is None else shown[0]).table()


def scalar_formula(expr: Expr) -> Math:
    """One scalar expression."""
    _check_length((expr,))
    return _Writer(Names(), None).math(expr)


def _check_length(roots: Sequence[Expr], named: Sequence[Expr] = ()) -> None:
    """Refuse what is long when it is written out, the named parts left short."""
    stop = set(named)
    size: dict[Expr, int] = {}
    for node in topological(roots):
        size[node] = min(1 + sum(1 if c in stop else size[c] for c in node.children), 1 << 30)
    if any(size[r] > LONGEST for r in (*roots, *named)):
        raise TooLong(f"a formula of more than {LONGEST} parts")


class _Writer:
    """One stage while it is written: names, and the parts that have a line of their own."""

    def __init__(self, names: Names, op: Operation | None) -> None:
        self.names = names
        self.op = op
        self.parts: dict[Expr, Name] = {}

    # Definitions

    def table(self) -> Table:
        op = self.op
        assert op is not None
        rule = _DEFINITION.get(type(op))
        if rule is None:
            raise TooLong(f"{type(op).__name__} has no formula")
        for extent in (e for t in op.outputs for e in t.extents):
            for node in topological(extent):
                if isinstance(node, Var):
                    self.names.of(node)
        return Table(wrapped(rule(self, op)))

    def named(self, roots: tuple[Expr, ...]) -> list[Line]:
        """A line for each part that the roots share, if they are long; the lines come after that of the roots."""
        shared = shared_parts(roots)
        _check_length(roots, shared)
        lines: list[Line] = []
        for node in shared:
            right = self.math(node)
            self.parts[node] = Name(self.names.give(node, f"t_{len(self.parts)}"))
            lines.append(Line(self.parts[node], right))
        return lines

    def placeholder(self, op: Placeholder) -> list[Line]:
        raise TooLong("an input is given, not computed")

    def compute(self, op: Compute) -> list[Line]:
        heads = [self.element(t, op.axes) for t in op.outputs]
        reduce = op.reduction
        roots = op.bodies if reduce is None else (*reduce.values, reduce.where)
        lines = self.named(roots)
        remark = self.ranges(op.axes)
        if reduce is not None:
            combining = self.combining(reduce) if reduce.reducer.is_custom else []
            return [Line(_listed(heads), self.fold(reduce), remark), *combining, *lines]
        return [*self.bodies(heads, op.bodies, remark), *lines]

    def combining(self, reduce: Reduce) -> list[Line]:
        """What a reducer of the caller does with two values, and what it begins with."""
        reducer = reduce.reducer
        sides = [_tuple([Name(self.names.of(f)) for f in side]) for side in (reducer.left, reducer.right)]
        _check_length(reducer.results)
        result = _tuple([self.math(e) for e in reducer.results])
        identity = _tuple([self.math(e) for e in reducer.identity])
        head = Row((Word(reducer.name), Fenced(_listed(sides))))
        return [Line(head, result, Row((Word("of nothing: "), identity)))]

    def bodies(self, heads: Sequence[Math], bodies: Sequence[Expr], remark: Math | None) -> list[Line]:
        """A line per body; the last one says for which indices."""
        last = len(bodies) - 1
        pairs = enumerate(zip(heads, bodies, strict=True))
        return [Line(head, self.math(body), remark if k == last else None) for k, (head, body) in pairs]

    def packed(self, op: Scan) -> list[Line]:
        """A line for each part, in the order of a step."""
        lines: list[Line] = []
        for made in unpacked(op):
            inner = _Writer(self.names.inner(), op)
            named = inner.named((made.body,))
            remark = inner.ordered(made.axes, op.steps[:-1], op.reverse)
            lines += [*inner.bodies([inner.element(made.tensor, made.axes)], (made.body,), remark), *named]
        return lines

    def scan(self, op: Scan) -> list[Line]:
        if op.parts:
            return self.packed(op)
        for state, output in zip(op.states, op.outputs, strict=True):
            self.names.alias(state, self.names.of(output))
        lines = self.named(op.bodies)
        remark = self.ordered(op.axes, op.steps, op.reverse)
        return [*self.bodies([self.element(t, op.axes) for t in op.outputs], op.bodies, remark), *lines]

    def scatter(self, op: Scatter) -> list[Line]:
        lines = self.named((*op.index, op.value, op.guard))
        target, value = self.indexed(op.output(), op.index), self.math(op.value, SUM)
        remarks = [self.ranges(op.axes) or Row(())]
        if op.guard is not TRUE:
            remarks += [Word(" where "), self.condition(op.guard)]
        if op.init is not None:
            remarks.append(Word(f", starting from {self.names.of(op.init)}"))
        return [Line(target, value, Row(tuple(remarks)), UPDATE[op.kind]), *lines]

    def extern(self, op: Extern) -> list[Line]:
        name = getattr(op.function, "__name__", "extern")
        arguments = Fenced(_listed([Name(self.names.of(t)) for t in op.args]))
        heads = _listed([Name(self.names.of(t)) for t in op.outputs])
        kind = "a routine of the library" if isinstance(op.function, Native) else "a Python function"
        return [Line(heads, Row((Word(name), arguments)), Word(kind))]

    def element(self, tensor: Tensor, axes: Sequence[Axis]) -> Math:
        return self.indexed(tensor, axes)

    def indexed(self, tensor: Tensor, indices: Sequence[Expr]) -> Math:
        """C with subscripts i, j; C[2i + k, j] where an index is longer than a name."""
        if isinstance(tensor.op, Scan) and tensor.op.parts:
            read = tensor.op.as_written(Read(tensor, tuple(indices)))
            tensor, indices = read.tensor, read.indices
        name = Name(self.names.of(tensor))
        if not indices:
            return name
        written = _listed([self.math(i) for i in indices])
        if all(isinstance(i, (Axis, Const, Var)) for i in indices):
            return Script(name, below=written)
        return Row((name, Fenced(written, "[", "]")))

    def ranges(self, axes: Sequence[Axis]) -> Math | None:
        """i < 64, j < 32."""
        return _listed([self.range(a) for a in axes]) if axes else None

    def ordered(self, axes: Sequence[Axis], steps: Sequence[Axis], is_reverse: bool) -> Math:
        """i < 64, t < 32, t in order."""
        names = _listed([Name(self.names.of(a)) for a in steps])
        order = Row((names, Word(" downward" if is_reverse else " in order")))
        return Row((self.ranges(axes) or Row(()), Operator(","), order))

    def range(self, axis: Axis) -> Math:
        name = Name(self.names.of(axis))
        if axis.extent is None:
            return name
        if isinstance(axis.begin, Const) and axis.begin.value == 0:
            return Row((name, Operator("<"), self.math(axis.extent, SUM)))
        end = self.math(simplify_extent(axis.begin + axis.extent), SUM)
        return Row((self.math(axis.begin, SUM), Operator("≤"), name, Operator("<"), end))

    # Scalars

    def math(self, node: Expr, level: int = OR) -> Math:
        """The formula, in brackets where it binds less than `level`."""
        made, own = self.bare(node)
        return Fenced(made) if own < level else made

    def bare(self, node: Expr) -> tuple[Math, int]:
        part = self.parts.get(node)
        if part is not None:
            return part, ATOM
        node = shorter(node)
        if (part := self.parts.get(node)) is not None:
            return part, ATOM
        if isinstance(node, Const):
            return _number(node)
        if isinstance(node, Apply) and node.fn in HOW_ADDED:  # how it is added does not show
            return self.bare(node.args[0])
        if isinstance(node, (Var, Axis, Formal)):
            return Name(self.names.of(node)), ATOM
        if (said := said_at(node)) is not None:
            tensor, places, mode = said
            within = Row((Name(self.names.of(tensor)), Fenced(_listed([self.math(i) for i in places]), "[", "]")))
            return Script(within, below=Word(mode if isinstance(mode, str) else ", ".join(mode))), ATOM
        if isinstance(node, Read):
            return self.indexed(node.tensor, node.indices), ATOM
        if isinstance(node, Reduce):
            return self.fold(node), PREFIX
        assert isinstance(node, Apply)
        return self.applied(node)

    def applied(self, node: Apply) -> tuple[Math, int]:
        fn, args = node.fn, node.args
        if fn in _SPECIAL:
            return _SPECIAL[fn](self, node)
        if fn in INFIX:
            return self.infix(*INFIX[fn], *args)
        if fn in BRACKETS:
            return Fenced(self.math(args[0]), *BRACKETS[fn]), ATOM
        return Row((Operator(_title(node)), Fenced(_listed([self.math(a) for a in args])))), ATOM

    def infix(self, sign: str, level: int, left: Expr, right: Expr) -> tuple[Math, int]:
        """Brackets where a reader would want them: operands of bits are short, those of comparisons compare nothing."""
        if level == BITS:
            return Row((self.math(left, POWER), Operator(sign), self.math(right, POWER))), level
        negated = _negated(right) if sign == "+" else None
        if negated is not None:  # a - b, and not a + -b
            return Row((self.math(left, level), Operator("−"), self.math(negated, level + 1))), level
        tight = level + (sign in "−%" or level == COMPARE)
        return Row((self.math(left, level + (level == COMPARE)), Operator(sign), self.math(right, tight))), level

    def product(self, node: Apply) -> tuple[Math, int]:
        left, right = node.args
        if isinstance(right, Const) and not isinstance(left, Const):
            left, right = right, left  # 2 q reads better than q · 2
        sign = Operator("·" if isinstance(right, Const) or _starts_with_digit(right) else " ")
        return Row((self.math(left, PRODUCT), sign, self.math(right, PRODUCT + isinstance(right, Reduce)))), PRODUCT

    def quotient(self, node: Apply) -> tuple[Math, int]:
        return Fraction(*(self.math(a) for a in node.args)), PREFIX

    def floor_quotient(self, node: Apply) -> tuple[Math, int]:
        return Fenced(Fraction(*(self.math(a) for a in node.args)), "⌊", "⌋"), ATOM

    def negative(self, node: Apply) -> tuple[Math, int]:
        return Row((Operator("¬" if node.fn is Fn.NOT else "−"), self.math(node.args[0], PREFIX))), SUM

    def power(self, node: Apply) -> tuple[Math, int]:
        base, exponent = self.math(node.args[0], ATOM), self.math(node.args[1])
        if isinstance(base, Script) and base.above is None:
            return Script(base.base, base.below, exponent), POWER
        return Script(base, above=exponent), POWER

    def exponential(self, node: Apply) -> tuple[Math, int]:
        base = Name("e") if node.fn is Fn.EXP else Word("2")
        return Script(base, above=self.math(node.args[0])), POWER

    def root(self, node: Apply) -> tuple[Math, int]:
        inner = Root(self.math(node.args[0]))
        return (inner if node.fn is Fn.SQRT else Fraction(Word("1"), inner)), ATOM

    def select(self, node: Apply) -> tuple[Math, int]:
        rows: list[tuple[Math, Math]] = []
        rest: Expr = node
        while isinstance(rest, Apply) and rest.fn is Fn.SELECT and rest not in self.parts:
            condition, value, rest = rest.args
            rows.append((self.math(value), Row((Word("if "), self.condition(condition)))))
        rows.append((self.math(rest), Word("otherwise")))
        return Cases(tuple(rows)), SUM

    def condition(self, condition: Expr) -> Math:
        """What must hold, without what the ranges of the axes imply; a <= x and x < b is written as one."""
        parts = self.conditions(condition)
        made: list[Math] = []
        for part in parts:
            made += [Operator("∧"), part] if made else [part]
        return Row(tuple(made)) if made else Word("always")

    def conditions(self, condition: Expr, over: Sequence[Axis] = ()) -> list[Math]:
        """Each condition; those that bound one index from both sides, of the axes `over` foremost, are one."""
        kept = [c for c in conjuncts(condition) if not (isinstance(c, Apply) and _always(c))]
        made: list[Math] = []
        while kept:
            first = kept.pop(0)
            found = ((k, _between(first, c, over)) for k, c in enumerate(kept))
            k, between = next(((k, b) for k, b in found if b is not None), (0, None))
            if between is None:
                made.append(self.math(first, COMPARE))
                continue
            kept.pop(k)
            low, below, x, above, high = between
            parts = (self.math(low, SUM), Operator(below), self.math(x, SUM), Operator(above), self.math(high, SUM))
            made.append(Row(parts))
        return made

    def fold(self, reduce: Reduce) -> Math:
        kind = reduce.reducer.kind
        guards = self.conditions(reduce.where, reduce.axes) if reduce.where is not TRUE else []
        values = [self.math(v, PRODUCT) for v in reduce.values]
        operand = _tuple(values)
        sign = SIGN.get(kind, reduce.reducer.title)
        (axis, *others) = reduce.axes or (None,)
        if axis is not None and not others and not guards and sign in "∑∏" and axis.extent is not None:
            last = simplify_extent(axis.begin + axis.extent - 1)
            start = Row((Name(self.names.of(axis)), Operator("="), self.math(axis.begin)))
            return Big(sign, (start,), self.math(last), operand)
        ranges = [self.range(a) for a in reduce.axes]
        lines = (_listed(ranges), *guards) if ranges else tuple(guards)
        return Big(sign, lines or (Row(()),), None, operand)


def _always(condition: Apply) -> bool:
    """Whether a comparison holds wherever its axes go, as far as intervals with constant ends tell."""
    if condition.fn not in (Fn.LT, Fn.LE, Fn.GT, Fn.GE) or any(not a.dtype.is_integer for a in condition.args):
        return False
    (a, b), (c, d) = ((range_of(x, {}) if _is_plain(x) else _ANY) for x in condition.args)
    return {Fn.LT: b < c, Fn.LE: b <= c, Fn.GT: a > d, Fn.GE: a >= d}[condition.fn]


def _between(first: Expr, second: Expr, over: Sequence[Axis]) -> tuple[Expr, str, Expr, str, Expr] | None:
    """Two comparisons of one expression from both sides, as (low, sign, x, sign, high)."""
    if not isinstance(first, Apply) or not isinstance(second, Apply):
        return None
    low, high = _bound(first, over), _bound(second, over)
    for a, b in ((low, high), (high, low)):
        if a is not None and b is not None and a[0] == "above" and b[0] == "below" and a[1] is b[1]:
            return a[2], a[3], a[1], b[3], b[2]
    return None


def _bound(c: Apply, over: Sequence[Axis]) -> tuple[str, Expr, Expr, str] | None:
    """(which side, x, bound, sign) of a comparison with a number or an extent on one side, or of an axis of `over`."""
    if c.fn not in (Fn.LT, Fn.LE, Fn.GT, Fn.GE):
        return None
    a, b = c.args
    strict = c.fn in (Fn.LT, Fn.GT)
    downward = c.fn in (Fn.LT, Fn.LE)
    sign = "<" if strict else "≤"
    if isinstance(b, (Const, Var)) or any(a is axis for axis in over):
        return ("below" if downward else "above"), a, b, sign
    if isinstance(a, (Const, Var)) or any(b is axis for axis in over):
        return ("above" if downward else "below"), b, a, sign
    return None


_ANY = (-(1 << 62), 1 << 62)


def _is_plain(expr: Expr) -> bool:
    """Made of numbers and of axes that have a constant extent."""
    for node in topological(expr):
        if isinstance(node, Axis):
            if node.extent is None or not isinstance(node.extent, Const) or not isinstance(node.begin, Const):
                return False
        elif not isinstance(node, (Const, Apply)):
            return False
    return True


def _starts_with_digit(node: Expr) -> bool:
    while isinstance(node, Apply) and node.fn in (Fn.MUL, Fn.POW):
        node = node.args[0]
    return isinstance(node, Const)


def _title(node: Apply) -> str:
    names = {Fn.MAXIMUM: "max", Fn.MINIMUM: "min", Fn.CAST: str(node.dtype)}
    return names.get(node.fn, node.fn.value)


def _listed(parts: Sequence[Math]) -> Math:
    made: list[Math] = []
    for part in parts:
        made += [Operator(","), part] if made else [part]
    return made[0] if len(made) == 1 else Row(tuple(made))


def _tuple(parts: Sequence[Math]) -> Math:
    return parts[0] if len(parts) == 1 else Fenced(_listed(parts))


def _negated(node: Expr) -> Expr | None:
    """What is taken away where `node` is added."""
    if isinstance(node, Apply) and node.fn is Fn.NEG:
        return node.args[0]
    if isinstance(node, Const) and not isinstance(node.value, bool) and node.value < 0:
        return Const(-node.value, node.dtype)
    return None


def _number(node: Const) -> tuple[Math, int]:
    value = node.value
    if isinstance(value, bool):
        return Word(str(value).lower()), ATOM
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    sign, digits = ("−", text[1:]) if text.startswith("-") else ("", text)
    if digits == "inf":
        made: Math = Operator("∞")
    elif "e" in digits:
        mantissa, exponent = digits.split("e")
        power = Word(str(abs(int(exponent))))
        signed: Math = Row((Operator("−"), power)) if int(exponent) < 0 else power
        tens = Script(Word("10"), above=signed)
        made = tens if mantissa == "1" else Row((Word(mantissa), Operator("·"), tens))
    else:
        made = Word(digits)
    return (Row((Operator(sign), made)), SUM) if sign else (made, ATOM)


_SPECIAL: dict[Fn, Callable[[_Writer, Apply], tuple[Math, int]]] = {
    Fn.MUL: _Writer.product, Fn.DIV: _Writer.quotient, Fn.FLOORDIV: _Writer.floor_quotient, Fn.NEG: _Writer.negative,
    Fn.NOT: _Writer.negative, Fn.POW: _Writer.power, Fn.EXP: _Writer.exponential, Fn.EXP2: _Writer.exponential,
    Fn.SQRT: _Writer.root, Fn.RSQRT: _Writer.root, Fn.SELECT: _Writer.select,
}  # fmt: skip
_DEFINITION: dict[type, Callable[[_Writer, Any], list[Line]]] = {
    Placeholder: _Writer.placeholder, Constant: _Writer.placeholder, Compute: _Writer.compute, Scan: _Writer.scan,
    Scatter: _Writer.scatter, Extern: _Writer.extern,
}  # fmt: skip
