"""What sizes are at most, since extents that are made of them are: of rows of 3 m numbers m is a third at most."""

from __future__ import annotations

from collections.abc import Iterable

from tedsl.analysis.affine import affine_of
from tedsl.lang.expr import SIZE_MAX, Expr, Var
from tedsl.lang.intervals import Known

__all__ = ["ranges_of_sizes"]


def ranges_of_sizes(extents: Iterable[Expr | None], most: int = SIZE_MAX) -> Known:
    """The intervals of sizes of which an extent is a multiple and some more, where no extent is above `most`."""
    known: Known = {}
    for extent in extents:
        form = affine_of(extent) if extent is not None else None
        if form is None or len(form.terms) != 1:
            continue
        ((monomial, factor),) = form.terms.items()
        size = monomial[0]
        if len(monomial) == 1 and isinstance(size, Var) and factor > 0:
            known[size] = 0, max(0, min(known.get(size, (0, SIZE_MAX))[1], (most - form.constant) // factor))
    return known
