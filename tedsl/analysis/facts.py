"""What is known at every point of a box, as linear inequalities over forms, and what follows from it.

Axes lie in their ranges, sizes are at least zero, `//`, `%`, min, max, abs, clip and select are tied to their operands;
where an operation is one of two things (a minimum is one operand or the other) both are tried. Conditions give facts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from itertools import product

from tedsl.analysis.affine import affine_of, form_of
from tedsl.analysis.inequalities import contradictory
from tedsl.analysis.samples import Samples
from tedsl.lang.dtypes import INT32, integer_bounds
from tedsl.lang.expr import TRUE, Apply, Axis, Const, Expr, Fn, Read, Var
from tedsl.lang.intervals import Known, leaves, may_wrap, range_of, within
from tedsl.lang.operators import NEGATED
from tedsl.lang.polynomials import RING, Affine, Monomial, atom_form, interval
from tedsl.lang.traverse import conjuncts, disjuncts, rebuild_all, topological

__all__ = ["Facts", "naturals"]

MAX_CASES = 16  # alternatives of a condition that are followed
MAX_SPLITS = 4  # minima, maxima, ... that are told apart at once

Rows = list[Affine]
Alternatives = list[Rows]


class Facts:
    """A scope of axes (none of them empty: there is a point) in which inequalities are proven."""

    def __init__(self, axes: Sequence[Axis], known: Known | None = None) -> None:
        self.known: Known = {} if known is None else known
        self._forms: dict[Expr, Affine] = {}
        self._cases: dict[Expr, tuple[Alternatives, Alternatives]] = {}  # where false, where true
        self._rows: dict[object, Affine] = {}  # of conditions, one for all that are equal
        self._leaves: dict[Affine, frozenset[Expr]] = {}  # of these rows
        self._shown: dict[object, bool] = {}
        self._samples = Samples(axes)
        self._scope = [a for a in axes if a.extent is not None and not isinstance(a.extent, Const)]

    def form(self, expr: Expr) -> Affine:
        """The form of an integer expression; what is no polynomial stands in it as an atom."""
        if expr not in self._forms:
            (plain,) = rebuild_all((expr,), _plain)
            found = form_of(plain, lambda node: True, lambda node: not may_wrap(node, self.known))
            assert found is not None
            self._forms[expr] = found
        return self._forms[expr]

    def operand(self, expr: Expr) -> Affine:
        """The form of an operand whose value counts as it is, wrapped or not."""
        return atom_form(expr) if may_wrap(expr, self.known) else self.form(expr)

    def proves(self, goal: Affine, condition: Expr = TRUE) -> bool:
        """Whether `goal >= 0` at every point of the scope at which `condition` holds."""
        if goal.is_constant and goal.constant >= 0:
            return True
        if condition is TRUE and self._samples.refute(goal):
            return False
        return all(self._follows(goal, rows) for case in _options(condition) for rows in self.cases(case, True))

    def refutes(self, condition: Expr) -> bool:
        """Whether `condition` holds at no point of the scope."""
        return all(self._follows(Affine({}, -1), rows) for rows in self.cases(condition, True))

    def _follows(self, goal: Affine, assumed: Rows) -> bool:
        """Whether assumptions give the goal: found once for all conditions that come to the same assumptions."""
        key = goal.key, frozenset(assumed)
        if key not in self._shown:
            near = self._near(goal, assumed)  # few, mostly, and enough
            self._shown[key] = (len(near) < len(assumed) and self._follows(goal, near)) or self._shows(goal, assumed)
        return self._shown[key]

    def _near(self, goal: Affine, assumed: Rows) -> Rows:
        """The assumptions about what the goal is about, and about what these are about."""
        known, far = _leaves_of(goal), assumed
        near: Rows = []
        while True:
            found = [row for row in far if not known.isdisjoint(self._about(row))]
            if not found:
                return near
            near += found
            far = [row for row in far if known.isdisjoint(self._about(row))]
            known = known.union(*map(self._about, found))

    def _about(self, row: Affine) -> frozenset[Expr]:
        if row not in self._leaves:
            self._leaves[row] = _leaves_of(row)
        return self._leaves[row]

    def _shows(self, goal: Affine, assumed: Rows) -> bool:
        """Whether nothing satisfies the assumptions and not the goal."""
        system = _System(self)
        for axis in self._scope:
            assert axis.extent is not None
            system.add(self.form(axis.extent) - 1)
        for row in (*assumed, -goal - 1):
            system.add(row)
        if contradictory(system.rows):
            return True
        splits = system.splits
        if len(splits) > MAX_SPLITS:
            near = _reached(goal, [*system.rows, *(r for split in splits for rows in split for r in rows)])
            splits = sorted(splits, key=lambda split: not any(near & r.terms.keys() for rows in split for r in rows))
        splits = splits[:MAX_SPLITS]
        return bool(splits) and all(self._closes(system.rows, choice) for choice in product(*splits))

    def _closes(self, rows: Rows, choice: tuple[Rows, ...]) -> bool:
        system = _System(self)
        for row in (*rows, *(r for part in choice for r in part)):
            system.add(row)
        return contradictory(system.rows)

    def cases(self, condition: Expr, holds: bool) -> Alternatives:
        """A condition as alternatives, each a list of forms at least zero; what is not understood says nothing."""
        order = topological(condition) if condition not in self._cases else ()
        for node in order:
            if node.dtype.is_bool and node not in self._cases:
                self._cases[node] = self._cases_of(node, False), self._cases_of(node, True)
        return self._cases[condition][holds]

    def _cases_of(self, node: Expr, holds: bool) -> Alternatives:
        if isinstance(node, Const):
            return [[]] if bool(node.value) == holds else []
        if not isinstance(node, Apply):
            return [[]]
        if node.fn is Fn.NOT:
            return self._cases[node.args[0]][not holds]
        if node.fn in (Fn.AND, Fn.OR):
            a, b = (self._cases[part][holds] for part in node.args)
            return _either(a, b) if (node.fn is Fn.AND) != holds else _both(a, b)
        if node.fn is Fn.SELECT:  # as a & b where b may only be asked if a holds
            asked, *branches = node.args
            yes, no = (
                _both(self._cases[asked][c], self._cases[b][holds])
                for c, b in zip((True, False), branches, strict=True)
            )
            return _either(yes, no)
        if node.fn in NEGATED and node.args[0].dtype.is_integer:
            left, right = (self.form(part) for part in node.args)
            found = naturals(node.fn if holds else NEGATED[node.fn], left - right)
            return [[self._rows.setdefault(row.key, row) for row in rows] for rows in found]
        return [[]]


def _plain(node: Expr) -> Expr:
    """A minimum, or another choice, of sums and products in one spelling: `max(2 (n - 1), 1)` is `max(2 n - 2, 1)`."""
    if not isinstance(node, Apply) or node.fn not in _CHOICES or node.dtype is not INT32:
        return node
    forms = map(affine_of, node.args)
    return node.with_children(tuple(a if f is None else f.to_expr() for a, f in zip(node.args, forms, strict=True)))


_CHOICES = frozenset({Fn.MINIMUM, Fn.MAXIMUM, Fn.CLIP, Fn.ABS})


def _leaves_of(form: Affine) -> frozenset[Expr]:
    """The axes, sizes and reads in a form, and in the ranges of its axes."""
    found = set(topological([atom for monomial in form.terms for atom in monomial]))
    ends = [end for a in found if isinstance(a, Axis) for end in (a.begin, a.extent) if end is not None]
    return frozenset(e for e in found.union(topological(ends)) if isinstance(e, (Axis, Var, Read)))


def _options(condition: Expr) -> list[Expr]:
    """The conditions of which one holds wherever this one does: however many they are, each is looked at alone."""
    parts = conjuncts(condition)
    split, of = max(((disjuncts(part), part) for part in parts), key=lambda found: len(found[0]), default=([], TRUE))
    if len(split) < 2:
        return [condition]
    rest = [part for part in parts if part is not of]
    return [reduce(lambda a, b: Expr._apply(Fn.AND, a, b), rest, option) for option in split]


def _reached(goal: Affine, rows: Rows) -> set[Monomial]:
    """What a goal has to do with: its terms, those of rows that have one of them, and so on."""
    found, left = set(goal.terms), rows
    while True:
        others = [row for row in left if found.isdisjoint(row.terms)]
        if len(others) == len(left):
            return found
        found.update(m for row in left for m in row.terms if not found.isdisjoint(row.terms))
        left = others


def _either(a: Alternatives, b: Alternatives) -> Alternatives:
    return a + b if len(a) + len(b) <= MAX_CASES else [[]]


def _both(a: Alternatives, b: Alternatives) -> Alternatives:
    if len(a) * len(b) > MAX_CASES:  # saying less is never wrong: of the longer one what holds in all of its cases
        few, many = (a, b) if len(a) <= len(b) else (b, a)
        others = [set(map(id, rows)) for rows in many[1:]]
        certain = [row for row in many[0] if all(id(row) in rows for rows in others)]
        return [rows + certain for rows in few]
    return [x + y for x in a for y in b]


def naturals(fn: Fn, gap: Affine) -> Alternatives:
    """`gap fn 0` as alternatives, each a list of forms at least zero."""
    return _NATURALS[fn](gap)


_NATURALS: dict[Fn, Callable[[Affine], Alternatives]] = {
    Fn.LT: lambda gap: [[-gap - 1]], Fn.LE: lambda gap: [[-gap]], Fn.GT: lambda gap: [[gap - 1]],
    Fn.GE: lambda gap: [[gap]], Fn.EQ: lambda gap: [[gap, -gap]], Fn.NE: lambda gap: [[-gap - 1], [gap - 1]],
}  # fmt: skip


class _System:
    """Rows (forms at least zero) together with all that is known of the atoms in them."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.rows: Rows = []
        self.splits: list[Alternatives] = []
        self._seen: set[object] = set()

    def add(self, row: Affine) -> None:
        """A row, and the facts about its atoms."""
        queue = [row]
        while queue:
            form = queue.pop()
            self.rows.append(form)
            for monomial in form.terms:
                if monomial not in self._seen:
                    self._seen.add(monomial)
                    queue += self._about_product(monomial) if len(monomial) > 1 else self._about(monomial[0])

    def _about(self, atom: Expr) -> Rows:
        """What holds of one atom."""
        this = atom_form(atom)
        if isinstance(atom, Var):
            return [this]
        if isinstance(atom, Axis):
            assert atom.extent is not None
            begin = self.facts.form(atom.begin)
            return [this - begin, begin + self.facts.form(atom.extent) - 1 - this]
        rows = self._within(atom, this)
        if isinstance(atom, Apply) and atom.fn in RING and atom.dtype is INT32:
            turns = _turns_of(self.facts, this, atom)
            if len(turns) != 1:
                self.splits += [turns] if turns else []
                return rows
            return rows + turns[0]
        rule = _RULES.get(atom.fn) if isinstance(atom, Apply) and atom.dtype.is_integer else None
        if rule is None or not isinstance(atom, Apply) or leaves(atom, self.facts.known):  # as abs(-128) does
            return rows
        if all(a.dtype.kind in "iub" for a in atom.args):
            found, split = rule(self.facts, this, atom)
            rows += found
            if split:
                self.splits.append(split)
        return rows

    def _within(self, atom: Expr, this: Affine) -> Rows:
        """The atom's interval, where it says more than the dtype."""
        low, high = range_of(atom, self.facts.known)
        if (low, high) == integer_bounds(atom.dtype) and atom.dtype.bits >= 32:
            return []
        return [this - low, -this + high]

    def _about_product(self, monomial: tuple[Expr, ...]) -> Rows:
        """A product of factors that are never negative is not either, nor is it more than at an axis' last value."""
        this = Affine({monomial: 1})
        if any(range_of(atom, self.facts.known)[0] < 0 for atom in monomial):
            return []
        rows = [this]
        for position, axis in enumerate(monomial):
            if isinstance(axis, Axis) and axis.extent is not None:
                others = Affine({monomial[:position] + monomial[position + 1 :]: 1})
                begin = self.facts.form(axis.begin)
                rows += [this - begin * others, (begin + self.facts.form(axis.extent) - 1) * others - this]
        return rows


Found = tuple[Rows, Alternatives]


def _quotient(facts: Facts, q: Affine, node: Apply) -> Found:
    """x // c = q: 0 <= x - c*q < c, and for a negative c  c < x - c*q <= 0."""
    x, by = facts.operand(node.args[0]), node.args[1]
    if not isinstance(by, Const):
        lows = [range_of(a, facts.known)[0] for a in node.args]
        return ([q, x - q] if lows[0] >= 0 and lows[1] >= 1 else []), []
    c = int(by.value)
    rest = x - q * c
    return ([rest, -rest + (c - 1)] if c > 0 else [-rest, rest - (c + 1)]), []


def _remainder(facts: Facts, m: Affine, node: Apply) -> Found:
    """x % p = m: 0 <= m < p, and x - m is p times the quotient; what 0 divides leaves 0."""
    x, p = facts.operand(node.args[0]), facts.operand(node.args[1])
    low_x, low_p = (range_of(a, facts.known)[0] for a in node.args)
    if low_p < 0:
        return [], []
    least = [m] + ([x - m] if low_x >= 0 else [])
    if low_p == 0:
        return least, [[p - 1 - m], [-p, -m]]
    rows = [*least, p - 1 - m]
    if p.is_constant:
        whole = facts.form(Expr._apply(Fn.FLOORDIV, *node.args))
        rows += [x - whole * p.constant - m, m + whole * p.constant - x]
    return rows, []


def _turns_of(facts: Facts, t: Affine, node: Apply) -> Alternatives:
    """What a sum or product is whose operands may wrap: as it is, or brought back where it leaves its dtype once."""
    exact, (least, most) = facts.form(node), integer_bounds(node.dtype)  # sums of sums wrap once for all
    count = most - least + 1
    low, high = ((end - least) // count for end in interval(exact, facts.known))
    if low == high:
        return [[t - exact + count * low, exact - count * low - t]]
    cases = (exact - count * turn for turn in (low, high))
    return [[t - case, case - t, case - least, -case + most] for case in cases] if high - low == 1 else []


def _least(facts: Facts, t: Affine, node: Apply) -> Found:
    a, b = (facts.operand(arg) for arg in node.args)
    return [a - t, b - t], [[t - a], [t - b]]


def _greatest(facts: Facts, t: Affine, node: Apply) -> Found:
    a, b = (facts.operand(arg) for arg in node.args)
    return [t - a, t - b], [[a - t], [b - t]]


def _magnitude(facts: Facts, t: Affine, node: Apply) -> Found:
    x = facts.operand(node.args[0])
    return [t - x, t + x], [[x - t], [-x - t]]


def _positive(facts: Facts, t: Affine, node: Apply) -> Found:
    x = facts.operand(node.args[0])
    return [t - x, t], [[x - t], [-t]]


def _clipped(facts: Facts, t: Affine, node: Apply) -> Found:
    x, low, high = node.args
    same = facts.form(Apply(Fn.MINIMUM, (Apply(Fn.MAXIMUM, (x, low), node.dtype), high), node.dtype))
    return [t - same, same - t], []


def _selected(facts: Facts, t: Affine, node: Apply) -> Found:
    condition, a, b = node.args
    taken, other = facts.operand(a), facts.operand(b)
    wraps = may_wrap(condition, facts.known)
    yes: Alternatives = [[]] if wraps else facts.cases(condition, True)
    no: Alternatives = [[]] if wraps else facts.cases(condition, False)
    return [], [[*rows, t - taken, taken - t] for rows in yes] + [[*rows, t - other, other - t] for rows in no]


def _converted(facts: Facts, t: Affine, node: Apply) -> Found:
    source = node.args[0]
    if source.dtype.is_bool or source.dtype.is_float:
        return [], []
    x = facts.operand(source)
    return ([t - x, x - t] if within(range_of(source, facts.known), node.dtype) else []), []


_RULES: dict[Fn, Callable[[Facts, Affine, Apply], Found]] = {
    Fn.FLOORDIV: _quotient, Fn.MOD: _remainder, Fn.MINIMUM: _least, Fn.MAXIMUM: _greatest, Fn.ABS: _magnitude,
    Fn.RELU: _positive, Fn.CLIP: _clipped, Fn.SELECT: _selected, Fn.CAST: _converted,
}  # fmt: skip
