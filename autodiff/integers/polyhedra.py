"""What follows from linear inequalities over the integers: projections, bounds, proofs.

Everything here errs on one side only: a projection may keep points without an integer above them, a bound may not be
attained, a proof may not be found. Loops built from these answers cover at least the solutions, and guards do the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from math import ceil

from autodiff.integers import simplex
from autodiff.integers.budget import Budget, TooHard
from autodiff.integers.linear import Atom, Greatest, Least, Linear, Quotient, Symbol, linear, symbol
from tedsl.lang.locks import cached_property

__all__ = ["KnownInequalities", "eliminated", "reduced", "tightened"]

MAX_INEQUALITIES = 80
ELIMINATION = 20
"""Steps of joining two inequalities."""
Interval = tuple["int | None", "int | None"]


def tightened(e: Linear) -> Linear:
    """The inequality e >= 0 divided by its content, the constant rounded down: integer points stay, others go."""
    g = e.content()
    return e if g <= 1 else e.divided(g)


def reduced(inequalities: Iterable[Linear]) -> list[Linear]:
    """Tightened, true ones dropped, of parallel ones the strongest; a false constant stays."""
    strongest: dict[frozenset[tuple[Symbol, int]], Linear] = {}
    for e in inequalities:
        e = tightened(e)
        if e.is_constant and e.constant >= 0:
            continue
        key = frozenset(e.coefficients.items())
        if key not in strongest or e.constant < strongest[key].constant:
            strongest[key] = e
    return list(strongest.values())


def eliminated(inequalities: Sequence[Linear], s: Symbol, budget: Budget) -> list[Linear]:
    """Fourier-Motzkin: what the inequalities say of the other symbols."""
    lower = [e for e in inequalities if e[s] > 0]
    upper = [e for e in inequalities if e[s] < 0]
    rest = [e for e in inequalities if not e[s]]
    if len(lower) * len(upper) + len(rest) > MAX_INEQUALITIES:
        raise TooHard(f"eliminating a variable gives more than {MAX_INEQUALITIES} inequalities")
    budget.spend(ELIMINATION * len(lower) * len(upper))
    return reduced(rest + [lo * -up[s] + up * lo[s] for lo in lower for up in upper])


class KnownInequalities:
    """Inequalities known to hold, and what can be proved from them.

    `ranges` gives each symbol its least and greatest value, as forms in the parameters or None; a symbol without a
    range is a parameter, hence at least 0. Quotients, minima and maxima are known through their definition, of other
    atoms nothing is.

    >>> s = symbol("s")
    >>> facts = KnownInequalities({"s": (linear(0), linear(15))})
    >>> from autodiff.integers.linear import floordiv
    >>> facts.proves(3 - floordiv(s, 4)), facts.proves(2 - floordiv(s, 4))
    (True, False)
    """

    def __init__(
        self,
        ranges: Mapping[Symbol, tuple[Linear | None, Linear | None]],
        known: Iterable[Linear] = (),
        budget: Budget | None = None,
    ) -> None:
        self.budget = budget or Budget.unlimited()
        self.ranges = dict(ranges)
        self.known = list(known)
        # What the ranges say of a symbol, as inequalities and as numbers; worked out when first asked for.
        self._lines: dict[Symbol, list[Linear]] = {}
        self._intervals: dict[Symbol, Interval] = {}

    def extended(
        self, ranges: Mapping[Symbol, tuple[Linear | None, Linear | None]], known: Iterable[Linear] = ()
    ) -> KnownInequalities:
        made = KnownInequalities({**self.ranges, **ranges}, [*self.known, *known], self.budget)
        if not any(s in self._intervals or s in self._lines for s in ranges):
            made._lines, made._intervals = self._lines.copy(), self._intervals.copy()
        return made

    def interval(self, e: Linear) -> Interval:
        """Constant bounds by interval arithmetic, None where there is none."""
        low: int | None = e.constant
        high: int | None = e.constant
        for s, c in e.coefficients.items():
            if s not in self._intervals:
                self._intervals[s] = self._symbol_interval(s)
            a, b = self._intervals[s]
            if c < 0:
                a, b = b, a
            low = None if low is None or a is None else low + c * a
            high = None if high is None or b is None else high + c * b
        return low, high

    def _symbol_interval(self, s: Symbol) -> Interval:
        if isinstance(s, Quotient):
            low, high = self.interval(s.numerator)
            return None if low is None else low // s.divisor, None if high is None else high // s.divisor
        if isinstance(s, Least | Greatest):
            (low, high), (least, most) = self.interval(s.a), self.interval(s.b)
            if isinstance(s, Least):
                return _end(min, low, least, is_known=False), _end(min, high, most, is_known=True)
            return _end(max, low, least, is_known=True), _end(max, high, most, is_known=False)
        if s not in self.ranges:
            return (None, None) if isinstance(s, Atom) else (0, None)
        low_form, high_form = self.ranges[s]
        return (
            None if low_form is None else self.interval(low_form)[0],
            None if high_form is None else self.interval(high_form)[1],
        )

    def minimum(self, e: Linear) -> int | None:
        """The least value e may take, rounded up to an integer; None when no bound is known."""
        low, _ = self.interval(e)
        bound = self._solve(e)
        if bound == simplex.INFEASIBLE:
            return None
        if isinstance(bound, Fraction):
            return ceil(bound) if low is None else max(low, ceil(bound))
        return low

    def proves(self, e: Linear) -> bool:
        """Whether e >= 0 follows."""
        low, _ = self.interval(e)
        if low is not None and low >= 0:
            return True
        if e.is_constant:
            return False
        # Over the integers it is enough to refute e <= -1, which is what rounding the minimum up amounts to.
        bound = self._solve(e)
        return bound == simplex.INFEASIBLE or (isinstance(bound, Fraction) and bound > -1)

    def refuted(self) -> bool:
        """Whether the facts contradict each other."""
        return any(e.is_constant and e.constant < 0 for e in self.known) or self._solve_all() == simplex.INFEASIBLE

    def _solve(self, e: Linear) -> Fraction | str | None:
        facts = self._relevant(e)
        symbols = list(dict.fromkeys(s for f in (e, *facts) for s in f))
        rows = [[f[s] for s in symbols] + [f.constant] for f in facts]
        return simplex.minimum([e[s] for s in symbols] + [e.constant], rows, self.budget.spend)

    def _solve_all(self) -> Fraction | str | None:
        everything = Linear({s: 1 for e in self.known for s in e})
        facts = self._relevant(everything)
        symbols = list(dict.fromkeys(s for f in facts for s in f))
        rows = [[f[s] for s in symbols] + [f.constant] for f in facts]
        return simplex.minimum([0] * (len(symbols) + 1), rows, self.budget.spend)

    def _relevant(self, e: Linear) -> list[Linear]:
        """The facts that share symbols with e, directly or through other facts."""
        facts: dict[Linear, None] = {}
        seen: dict[Symbol, int | None] = dict.fromkeys(e)
        queue = list(seen)
        while queue:
            s = queue.pop()
            if s not in self._lines:
                self._lines[s] = self._about(s)
            for f in (*self._lines[s], *self._known_of.get(s, ())):
                if f not in facts:
                    facts[f] = None
                    queue.extend(n for n in f if n not in seen)
                    seen.update(f.coefficients)
        return list(facts)

    @cached_property
    def _known_of(self) -> dict[Symbol, list[Linear]]:
        found: dict[Symbol, list[Linear]] = {}
        for e in self.known:
            for s in e:
                found.setdefault(s, []).append(e)
        return found

    def _about(self, s: Symbol) -> list[Linear]:
        if isinstance(s, Quotient):
            rest = s.numerator - symbol(s) * s.divisor
            return [rest, (s.divisor - 1) - rest]
        if isinstance(s, Least | Greatest):
            return [(e - symbol(s)) * (1 if isinstance(s, Least) else -1) for e in s.parts()]
        if s not in self.ranges:
            return [] if isinstance(s, Atom) else [symbol(s)]
        low, high = self.ranges[s]
        return ([] if low is None else [symbol(s) - low]) + ([] if high is None else [high - symbol(s)])

    def greatest(self, e: Linear, parameters: frozenset[Symbol]) -> Linear | None:
        """An upper bound of e in the parameters alone: a constant when there is one."""
        if e.is_over(parameters):
            return e
        least = self.minimum(-e)
        if least is not None:
            return linear(-least)
        return self._symbolic_upper(e, parameters)

    def _symbolic_upper(self, e: Linear, parameters: frozenset[Symbol]) -> Linear | None:
        """Every symbol but the parameters replaced by the end of its range that makes e larger."""
        for _ in range(8):
            if e.is_over(parameters):
                return e
            s = next(s for s in e if s not in parameters)
            end = self.ranges.get(s, (None, None))[1 if e[s] > 0 else 0]
            if end is None:
                return None
            e = e + (end - symbol(s)) * e[s]
        return None


def _end(choose: Callable[..., int], a: int | None, b: int | None, *, is_known: bool) -> int | None:
    """The least or greatest of two ends; `is_known`: one of them says enough."""
    ends = [e for e in (a, b) if e is not None]
    return choose(ends) if len(ends) == 2 or (ends and is_known) else None
