"""Integer matrices in normal form, as rows of Python integers.

Smith and Hermite forms are made here by the steps that sympy takes, so that the answers are its answers (the tests ask
it for each). It is asked for ranks alone, when one is needed: to import it takes 0.57 s of the processor, 40 % of the
first gradient of a process that resizes an image or takes a pyramid apart. A matrix that is in normal form, as in
pointwise stages and products of matrices, is its own answer, and one whose columns only change places, as in windows,
is put in order. The same few matrices return in every layer of a program, so answers are kept. The README of
`autodiff` says what each step takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

__all__ = ["Matrix", "diagonalized", "identity", "independent_rows", "triangular_basis"]

Matrix = tuple[tuple[int, ...], ...]
Rows = list[list[int]]
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
    """By the steps of sympy's `smith_normal_decomp`, so with its answers, and without half a second of imports.

    Columns of V are rows here.
    """
    m, u, v = (list(map(list, rows)) for rows in (a, identity(len(a)), identity(columns)))
    count = min(len(a), columns)
    for k in range(count):
        _bring_pivot(m, u, v, k)
        while any(m[k][j] for j in range(k + 1, columns)) or any(row[k] for row in m[k + 1 :]):
            for i in range(k + 1, len(m)):
                if m[i][k]:
                    step = _cleared(m[k][k], m[i][k])
                    for rows in (m, u):
                        rows[k], rows[i] = _mixed(rows[k], rows[i], step)
            for j in range(k + 1, columns):
                if m[k][j]:
                    step = _cleared(m[k][k], m[k][j])
                    v[k], v[j] = _mixed(v[k], v[j], step)
                    for row in m:
                        (row[k],), (row[j],) = _mixed(row[k : k + 1], row[j : j + 1], step)
        if m[k][k] < 0:
            m[k][k], u[k] = -m[k][k], [-e for e in u[k]]
    diagonal: list[int] = []
    for k in reversed(range(count)):
        if m[k][k]:
            diagonal.insert(0, m[k][k])
            _make_divide(diagonal, u, v, k)
        else:
            diagonal.append(0)
            for rows in (u, v):
                rows.append(rows.pop(k))
    return _rows(u), tuple(diagonal), tuple(zip(*v, strict=True))


def _bring_pivot(m: Rows, u: Rows, v: Rows, k: int) -> None:
    """Let a number stand at (k, k) that is not 0: the first of its column, else of its row, if there is one."""
    at = next((i for i in range(k, len(m)) if m[i][k]), None)
    if at is not None:
        for rows in (m, u):
            rows[k], rows[at] = rows[at], rows[k]
        return
    at = next((j for j in range(k, len(v)) if m[k][j]), k)
    v[k], v[at] = v[at], v[k]
    for row in m:
        row[k], row[at] = row[at], row[k]


def _cleared(pivot: int, entry: int) -> tuple[int, int, int, int]:
    """The step of two rows or columns that makes an entry 0, and the pivot what divides both."""
    if entry % pivot == 0:
        return 1, 0, -(entry // pivot), 1
    x, y, divisor = _bezout(pivot, entry)
    return x, y, entry // divisor, -(pivot // divisor)


def _mixed(a: list[int], b: list[int], step: tuple[int, int, int, int]) -> tuple[list[int], list[int]]:
    """Two rows after a step: each a sum of multiples of both."""
    w, x, y, z = step
    pairs = list(zip(a, b, strict=True))
    return [w * e + x * f for e, f in pairs], [y * e + z * f for e, f in pairs]


def _bezout(a: int, b: int) -> tuple[int, int, int]:
    """(x, y, g) with x a + y b = g, the greatest common divisor, by Euclid's algorithm."""
    r, s, (x, y), (z, w) = abs(a), abs(b), (1, 0), (0, 1)
    while s:
        q, rest = divmod(r, s)
        r, s, (x, y), (z, w) = s, rest, (z, w), (x - q * z, y - q * w)
    return (x if a > 0 else -x), (y if b > 0 else -y), r


def _make_divide(diagonal: list[int], u: Rows, v: Rows, k: int) -> None:
    """Let each number of a diagonal, which begins at row k, divide the next one."""
    for i in range(len(diagonal) - 1):
        a, b = diagonal[i : i + 2]
        if not b or b % a == 0:
            break
        x, y, divisor = _bezout(a, b)
        at, after = k + i, k + i + 1
        for step in ((1, 0, x, 1), (1, -(a // divisor), 0, 1), (0, 1, -1, 0)):
            u[at], u[after] = _mixed(u[at], u[after], step)
        for step in ((1, y, 0, 1), (1, 0, -(b // divisor), 1)):
            v[at], v[after] = _mixed(v[at], v[after], step)
        diagonal[i : i + 2] = divisor, b * (a // divisor)


@lru_cache(KEPT)
def _triangular(basis: Matrix, order: tuple[int, ...]) -> Matrix | None:
    """By the steps of sympy's `hermite_normal_form`, turned round: rows from the first down, and columns so, too."""
    columns = list(map(list, zip(*basis, strict=True)))[::-1]
    for k, at in enumerate(order):
        for column in range(k + 1, len(columns)):
            if columns[column][at]:
                step = _cleared_in_row(columns[k][at], columns[column][at])
                columns[k], columns[column] = _mixed(columns[k], columns[column], step)
        pivot = columns[k][at]
        if not pivot:
            return None
        if pivot < 0:
            columns[k] = [-e for e in columns[k]]
        for column in range(k):
            turns = columns[column][at] // abs(pivot)
            columns[column] = [e - turns * f for e, f in zip(columns[column], columns[k], strict=True)]
    return tuple(zip(*columns, strict=True))


def _cleared_in_row(pivot: int, entry: int) -> tuple[int, int, int, int]:
    """As `_cleared`, where the pivot may be 0; one that divides the entry is only made positive."""
    if pivot and entry % pivot == 0:
        return (1 if pivot > 0 else -1), 0, -(entry // abs(pivot)), (1 if pivot > 0 else -1)
    x, y, divisor = _bezout(pivot, entry)
    return x, y, -(entry // divisor), pivot // divisor


def _matrix(rows: Sequence[Sequence[int]], columns: int) -> Any:
    from sympy import ZZ
    from sympy.polys.matrices import DomainMatrix

    return DomainMatrix([[ZZ(e) for e in row] for row in rows], (len(rows), columns), ZZ)


def _rows(a: Iterable[Iterable[Any]]) -> Matrix:
    return tuple(tuple(int(e) for e in row) for row in a)
