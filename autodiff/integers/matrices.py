"""Exact integer matrices: Smith and Hermite forms.

Python integers do not overflow, and the matrices here have a handful of rows, so the plain textbook algorithms are both
exact and quick. A matrix is a list of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

__all__ = ["Matrix", "ceildiv", "identity", "independent_rows", "lower_triangular_basis", "smith", "xgcd"]

Matrix = list[list[int]]


def ceildiv(a: int, b: int) -> int:
    """The smallest integer not below a / b."""
    return -(-a // b)


def xgcd(a: int, b: int) -> tuple[int, int, int]:
    """(g, x, y) with g = gcd(a, b) >= 0 and a x + b y = g; when a divides b the answer is (|a|, +-1, 0)."""
    if a and b % a == 0:
        return abs(a), (1 if a > 0 else -1), 0
    x, next_x, y, next_y = 1, 0, 0, 1
    while b:
        q = a // b
        a, b = b, a - q * b
        x, next_x = next_x, x - q * next_x
        y, next_y = next_y, y - q * next_y
    return (a, x, y) if a >= 0 else (-a, -x, -y)


def identity(n: int) -> Matrix:
    return [[int(i == j) for j in range(n)] for i in range(n)]


def smith(a: Sequence[Sequence[int]], columns: int) -> tuple[Matrix, list[int], Matrix]:
    """(U, d, V): U a V is diagonal d, U and V unimodular, 0 <= d_1 | d_2 | ... (zeros last).

    The divisibility chain keeps each condition `d_i divides (U b)_i` as weak as it can be, and the answer canonical.
    """
    d = [list(row) for row in a]
    rows = len(d)
    u, v = identity(rows), identity(columns)
    for k in range(min(rows, columns)):
        while _pivot(d, u, v, k):
            _clear_column(d, u, k)
            _clear_row(d, v, k)
            if any(d[i][k] for i in range(k + 1, rows)) or any(d[k][k + 1 :]):
                continue
            spoiler = next((i for i in range(k + 1, rows) if any(e % d[k][k] for e in d[i][k + 1 :])), None)
            if spoiler is None:
                break
            _add_row(d, k, spoiler, 1)
            _add_row(u, k, spoiler, 1)
        if k < rows and k < columns and d[k][k] < 0:
            d[k] = [-e for e in d[k]]
            u[k] = [-e for e in u[k]]
    return u, [d[i][i] for i in range(min(rows, columns))], v


def _pivot(d: Matrix, u: Matrix, v: Matrix, k: int) -> bool:
    """Bring the smallest non-zero entry of d[k:, k:] to d[k][k]; False when there is none."""
    rows, columns = len(d), len(v)
    candidates = [(abs(d[i][j]), i, j) for i in range(k, rows) for j in range(k, columns) if d[i][j]]
    if not candidates:
        return False
    _, i, j = min(candidates)
    d[k], d[i] = d[i], d[k]
    u[k], u[i] = u[i], u[k]
    for m in (d, v):
        for row in m:
            row[k], row[j] = row[j], row[k]
    return True


def _clear_column(d: Matrix, u: Matrix, k: int) -> None:
    for i in range(k + 1, len(d)):
        q = d[i][k] // d[k][k]
        _add_row(d, i, k, -q)
        _add_row(u, i, k, -q)


def _clear_row(d: Matrix, v: Matrix, k: int) -> None:
    for j in range(k + 1, len(v)):
        q = d[k][j] // d[k][k]
        for m in (d, v):
            for row in m:
                row[j] -= q * row[k]


def _add_row(m: Matrix, target: int, source: int, factor: int) -> None:
    if factor:
        m[target] = [a + factor * b for a, b in zip(m[target], m[source], strict=True)]


def lower_triangular_basis(basis: Sequence[Sequence[int]], order: Sequence[int]) -> Matrix | None:
    """Change the basis (the columns) of a lattice so that its rows `order` are lower triangular, diagonal positive.

    Column i is then the only way, given the coordinates order[:i], to move coordinate order[i]: loops nested in `order`
    step through the lattice one coordinate at a time. Entries left of the diagonal are reduced modulo it. None when the
    rows `order` are dependent.
    """
    m = [list(row) for row in basis]
    for i, r in enumerate(order):
        for j in range(i + 1, len(order)):
            _combine_columns(m, i, j, r)
        if m[r][i] == 0:
            return None
        if m[r][i] < 0:
            for row in m:
                row[i] = -row[i]
        for j in range(i):
            q = m[r][j] // m[r][i]
            for row in m:
                row[j] -= q * row[i]
    return m


def _combine_columns(m: Matrix, i: int, j: int, r: int) -> None:
    """Unimodular step on columns i and j that leaves gcd in m[r][i] and 0 in m[r][j]."""
    p, q = m[r][i], m[r][j]
    if q == 0:
        return
    g, x, y = xgcd(p, q)
    for row in m:
        row[i], row[j] = x * row[i] + y * row[j], (p // g) * row[j] - (q // g) * row[i]


def independent_rows(m: Sequence[Sequence[int]], order: Sequence[int]) -> tuple[int, ...]:
    """Of the rows in `order`, each that does not depend on those taken before it."""
    reduced: list[tuple[int, list[int]]] = []
    taken = []
    for i in order:
        row = list(m[i])
        for column, pivot in reduced:
            if row[column]:
                row = [e * pivot[column] - row[column] * f for e, f in zip(row, pivot, strict=True)]
        column = next((k for k, e in enumerate(row) if e), -1)
        if column >= 0:
            g = gcd(*row)
            reduced.append((column, [e // g for e in row]))
            taken.append(i)
    return tuple(taken)
