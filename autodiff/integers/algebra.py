"""Integer matrices in normal form: the one place where the inversion of indices asks sympy for linear algebra.

On this side a matrix is rows of Python integers; sympy's are made and read here, whatever its integers are (gmpy2's or
python-flint's, where these are installed). The same few matrices return in every layer of a program, so answers are
kept. sympy is imported when it is first asked, which takes half a second: a matrix that is in normal form, as in
pointwise stages and products of matrices, is its own answer, one whose columns only change places, as in windows, is
put in order, and one row with a 1 in it needs none. The README of `autodiff` says what each step takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

__all__ = ["Matrix", "diagonalized", "identity", "independent_rows", "triangular_basis"]

Matrix = tuple[tuple[int, ...], ...]
KEPT = 4096
"""Answers of each kind."""


def diagonalized(a: Sequence[Sequence[int]], columns: int) -> tuple[Matrix, tuple[int, ...], Matrix]:
    """The Smith form (U, d, V): U a V is diagonal d, U and V are unimodular, 0 <= d_1 | d_2 | ..., zeros last.

    The divisibility chain keeps each condition `d_i divides (U b)_i` as weak as it can be.

    >>> diagonalized([[1, 1], [1, -1]], 2)
    (((1, 0), (1, -1)), (1, 2), ((1, -1), (0, 1)))
    """
    rows = _rows(a)
    diagonal = tuple(row[i] for i, row in enumerate(rows[:columns]))
    if _is_diagonal(rows) and all(d >= 0 and (e % d == 0 if d else e == 0) for d, e in pairwise((*diagonal, 0))):
        return identity(len(rows)), diagonal, identity(columns)
    if len(rows) == 1 and {1, -1} & set(rows[0]):
        return ((1,),), (1,), _solved_for_one(rows[0])
    return _diagonalized(rows, columns)


def triangular_basis(basis: Sequence[Sequence[int]], order: Sequence[int]) -> Matrix | None:
    """Change the basis (the columns) of a lattice so that its rows `order` are lower triangular, diagonal positive.

    Column i is then the only way, given the coordinates order[:i], to move coordinate order[i]: loops nested in `order`
    step through the lattice one coordinate at a time. Entries left of the diagonal are reduced modulo it, which makes
    this the Hermite form. None when the rows `order` are dependent.

    >>> triangular_basis([[2, 1], [1, 1]], (0, 1))
    ((1, 0), (0, 1))
    """
    rows = _rows(basis)
    if all(sum(map(abs, rows[i])) < 2 for i in order):
        return _in_order(rows, order)
    if len(order) == len(rows[order[0]]) == 1:
        pivot = rows[order[0]][0]
        return tuple((e if pivot > 0 else -e,) for (e,) in rows) if pivot else None
    return _triangular(rows, tuple(order))


@lru_cache(KEPT)
def independent_rows(a: Matrix, order: tuple[int, ...]) -> tuple[int, ...]:
    """Of the rows in `order`, each that does not depend on those taken before it."""
    matrix = _matrix([a[i] for i in order], len(a[0]) if a else 0)
    return tuple(order[i] for i in matrix.transpose().rref_den()[2])


def identity(n: int) -> Matrix:
    return tuple(tuple(int(i == j) for j in range(n)) for i in range(n))


def _solved_for_one(row: Sequence[int]) -> Matrix:
    """V of a row with a 1 or -1 in it: its column first, and from each other column what the row makes of it."""
    at = next(k for k, e in enumerate(row) if abs(e) == 1)
    others = [k for k in range(len(row)) if k != at]
    columns = [[row[at] * (k == at) for k in range(len(row))]]
    columns += [[(k == other) - row[at] * row[other] * (k == at) for k in range(len(row))] for other in others]
    return tuple(zip(*columns, strict=True))


def _is_diagonal(a: Sequence[Sequence[int]]) -> bool:
    return all(not e for i, row in enumerate(a) for j, e in enumerate(row) if i != j)


def _in_order(basis: Matrix, order: Sequence[int]) -> Matrix | None:
    """The basis with the columns in order, where each of the coordinates `order` is moved by one column, by one."""
    moved_by = [next((c for c, e in enumerate(basis[i]) if e), None) for i in order]
    columns = [c for c in moved_by if c is not None]
    if len(set(columns)) < len(order):
        return None
    signs = [basis[i][c] for i, c in zip(order, columns, strict=True)]
    return tuple(tuple(row[c] * sign for c, sign in zip(columns, signs, strict=True)) for row in basis)


@lru_cache(KEPT)
def _diagonalized(a: Matrix, columns: int) -> tuple[Matrix, tuple[int, ...], Matrix]:
    from sympy.polys.matrices.normalforms import smith_normal_decomp

    d, u, v = smith_normal_decomp(_matrix(a, columns))
    diagonal = _rows(d.to_list())
    return _rows(u.to_list()), tuple(row[i] for i, row in enumerate(diagonal[:columns])), _rows(v.to_list())


@lru_cache(KEPT)
def _triangular(basis: Matrix, order: tuple[int, ...]) -> Matrix | None:
    """sympy works from the last row up and sets pivots from the last column on: both are turned round, twice."""
    from sympy.polys.matrices.normalforms import hermite_normal_form

    others = [i for i in range(len(basis)) if i not in order]
    arranged = [*others, *reversed(order)]
    found = hermite_normal_form(_matrix([basis[i] for i in arranged], len(order))).to_list()
    rows = dict(zip(arranged, (row[::-1] for row in _rows(found)), strict=True))
    if any(i >= len(rows[r]) or not rows[r][i] for i, r in enumerate(order)):
        return None
    return tuple(rows[i] for i in range(len(basis)))


def _matrix(rows: Sequence[Sequence[int]], columns: int) -> Any:
    from sympy import ZZ
    from sympy.polys.matrices import DomainMatrix

    return DomainMatrix([[ZZ(e) for e in row] for row in rows], (len(rows), columns), ZZ)


def _rows(a: Iterable[Iterable[Any]]) -> Matrix:
    return tuple(tuple(int(e) for e in row) for row in a)
