"""Range inference: the extents of axes written without one, from every use as an index.

A read `A[c*i + d]` of an extent n holds i below (n - 1 - d) // c + 1. A plain read (`A[i]`) is exact: two plain reads
must agree. Shifted ones only bound; the smallest bound wins, and bounds of which neither is the smallest for all sizes
are an ambiguity.
A mirrored read (`A[d - c*i]`) holds i below d // c + 1; it counts for an axis that is read in no other way.
A read under a guard (`select`, `where=`) need only be in bounds where the guard holds: it counts for an axis that no
other read bounds, and not at all where the guard is that very bound, as in `A.at(i - 1, mode="zero")`.
"""

from __future__ import annotations

from tedsl.lang.dataclass import dataclass
from tedsl.lang.dtypes import INT32
from tedsl.lang.errors import user_location
from tedsl.lang.expr import TRUE, Apply, Axis, Const, Expr, Fn, Read
from tedsl.lang.extents import number, same_extent, simplify_extent
from tedsl.lang.guards import guards_of
from tedsl.lang.intervals import range_of
from tedsl.lang.polynomials import Affine, atom_form, form_over
from tedsl.lang.traverse import conjuncts, topological

__all__ = ["infer_ranges"]


@dataclass(frozen=True)
class _Use:
    """One index that mentions unknown axes: `read` in dimension `dim`."""

    read: Read
    dim: int
    terms: dict[Axis, int]
    rest: Expr  # what is left of the index once the axes are taken out
    guarded: bool

    def __str__(self) -> str:
        return f"{self.read} (dimension {self.dim} of {self.read.tensor!r})"


def infer_ranges(unknown: tuple[Axis, ...], bodies: tuple[Expr, ...], what: str) -> dict[Axis, Expr]:
    """An extent for every unknown axis."""
    uses = _uses(bodies)
    known: dict[Axis, Expr] = {}
    while len(known) < len(unknown):
        progress = False
        for axis in unknown:
            if axis not in known and (bounds := _bounds(axis, uses, known)):
                known[axis] = _combined(axis, bounds, what)
                progress = True
        if not progress:
            _refuse([a for a in unknown if a not in known], uses, what)
    return known


def _uses(bodies: tuple[Expr, ...]) -> list[_Use]:
    uses = []
    guards = guards_of(bodies)
    for node in topological(bodies):
        if isinstance(node, Read):
            guard = guards[node]
            held = set(conjuncts(guard))
            for dim, index in enumerate(node.indices):
                linear = _linear(index)
                if linear is not None and linear[0] and (index < node.tensor.extents[dim]) not in held:
                    uses.append(_Use(node, dim, *linear, guard is not TRUE))
    return uses


def _linear(index: Expr) -> tuple[dict[Axis, int], Expr] | None:
    """The index as sum of factor * axis + rest, or None where it is not affine."""
    form = form_over(index, lambda node, forms: atom_form(node))
    assert form is not None
    terms = {m[0]: c for m, c in form.terms.items() if isinstance(m[0], Axis) and len(m) == 1}
    rest = Affine({m: c for m, c in form.terms.items() if len(m) > 1 or m[0] not in terms}, form.constant)
    if any(isinstance(n, (Axis, Read)) for n in topological(rest.atoms)):
        return None
    return terms, rest.to_expr()


_Bound = tuple[Expr, bool, _Use]


def _bounds(axis: Axis, uses: list[_Use], known: dict[Axis, Expr]) -> list[_Bound]:
    """(extent, exact?, use) for each use in which all other axes are known."""
    bounds: list[_Bound] = []
    mirrored: list[_Bound] = []
    for use in uses:
        factor = use.terms.get(axis, 0)
        others = {a: c for a, c in use.terms.items() if a is not axis}
        extents = {a: e for a in others if (e := known.get(a) if a.extent is None else a.extent) is not None}
        if not factor or len(extents) < len(others):
            continue
        # The other axes are where the index leaves the least room: highest, or lowest where this axis lowers it.
        worst: Expr = use.rest
        for other, c in others.items():
            worst = worst + c * (other.begin + (extents[other] - 1 if (c > 0) == (factor > 0) else 0))
        room = use.read.tensor.extents[use.dim] - 1 - worst if factor > 0 else worst
        bare = not others and isinstance(use.rest, Const) and use.rest.value == 0
        if bare and factor < 0:  # `A[-i]` is in bounds at 0 alone: hardly meant
            continue
        bound = simplify_extent(room // abs(factor) + 1), bare and factor == 1, use
        (bounds if factor > 0 else mirrored).append(bound)
    bounds = bounds or mirrored
    return [b for b in bounds if not b[2].guarded] or bounds


def _combined(axis: Axis, bounds: list[_Bound], what: str) -> Expr:
    best, best_exact, best_use = bounds[0]
    for extent, exact, use in bounds[1:]:
        if same_extent(extent, best):
            best_exact |= exact
            continue
        gap = simplify_extent(extent - best)
        least, most = range_of(_with_remainders(gap))
        if least < 0 < most or (exact and best_exact):
            word = "contradictory" if isinstance(gap, Const) else "ambiguous"
            raise ValueError(
                f"{what} at {user_location()}: the range of axis {axis.name!r} is {word}: {best} from {best_use}, but "
                f"{extent} from {use}; {_spelled([axis])}"
            )
        if least < 0:
            best, best_exact, best_use = extent, exact, use
    if isinstance(best, Const) and best.value < 0:
        raise ValueError(
            f"{what} at {user_location()}: the range of axis {axis.name!r} would be negative, from {best_use}"
        )
    return best


def _with_remainders(extent: Expr) -> Expr:
    """`n - n // 64 * 64` as `n % 64`: what is divided and multiplied again is within bounds."""
    form = form_over(extent, lambda node, forms: atom_form(node))
    assert form is not None
    found: Expr = Const(form.constant, INT32)
    for monomial, factor in form.terms.items():
        atom = monomial[0]
        by = number(atom.args[1]) if isinstance(atom, Apply) and atom.fn is Fn.FLOORDIV and len(monomial) == 1 else None
        if by and isinstance(atom, Apply) and factor % by == 0:
            found = found + factor // by * (atom.args[0] - atom.args[0] % by)
        else:
            found = found + Affine({monomial: factor}).to_expr()
    return simplify_extent(found)


def _refuse(unknown: list[Axis], uses: list[_Use], what: str) -> None:
    found = [str(u) for u in uses if any(a in u.terms for a in unknown)]
    listed = "; ".join(dict.fromkeys(found)) or "none: the axis indexes no tensor on its own"
    names = ", ".join(repr(a.name) for a in unknown)
    raise ValueError(
        f"{what} at {user_location()}: the range of {names} cannot be inferred; uses found: {listed}; "
        f"{_spelled(unknown)}"
    )


def _spelled(unknown: list[Axis]) -> str:
    """How the extents of axes are written."""
    reduced = [a.name for a in unknown if a.is_reduce]
    if not reduced:
        return "give te.compute a shape: te.compute((n, ...), lambda ...)"
    axis = ", ".join(["te.reduce_axis(n)"] * len(reduced))
    axes = f"({axis})" if len(reduced) > 1 else axis
    return f"give the reduction its extent n: te.sum(lambda {', '.join(reduced)}: ..., axis={axes})"
