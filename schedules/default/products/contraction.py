"""Sums of products: which loops are rows, columns, batch and sum, and how they are cut for registers and caches.

`out[..] = sum over k of f(m, k) * g(n, k)`: the loops that only `f` uses are rows, those that only `g` uses columns,
those of both a batch. Matrix products in every layout are such sums, and so are a convolution (its weights use the
output channel, its image the pixels), both its gradients, and every einsum.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from schedules.conditions import tidied
from schedules.default.copies import Combination, copy_of, forms_of, guarded, stays_inside
from schedules.machine import Machine
from schedules.sizes import can_be_cut, typical_sizes
from schedules.thresholds import Thresholds
from tedsl.analysis.affine import affine_of, with_plain_indices
from tedsl.analysis.terms import rounded, unrounded
from tedsl.lang.dataclass import dataclass
from tedsl.lang.dtypes import INT32
from tedsl.lang.expr import Apply, Axis, Const, Expr, Fn, Read, Reduce
from tedsl.lang.extents import number
from tedsl.lang.tensor import Compute
from tedsl.lang.traverse import conjuncts, free_axes, rebuild_all, substitute_all

__all__ = ["FILLED", "Contraction", "Tile", "contraction_of", "lanes_for", "register_lanes", "tile_for"]

DTYPES = frozenset({"float32", "float64", "int32", "uint32", "int64", "uint64"})  # whose products vectors have
SMALL_TABLE = 1 << 13  # elements of rows that stay in the first cache
MOST_STRIDE = 4  # between the pixels of a window
FEW_FILTERS = 4  # that do
MOST_FILTERS = 8  # that share the pixels of a window
FILLED = 9  # columns that fill more than half of a vector
LEAST_VECTOR = 16  # bytes, of columns that fill less than a register
TURNING = 16  # multiplications in the time in which an element is turned
TURNED_PIXEL = 1.5  # cycles for each number of a pixel that is put beside those of its neighbors


@dataclass(frozen=True, eq=False)
class Contraction:
    """out = sum over `sums` of rows * columns; `lane` is the column whose neighbours share a vector."""

    op: Compute
    rows: Expr
    columns: Expr
    row_axes: tuple[Axis, ...]
    column_axes: tuple[Axis, ...]
    batch: tuple[Axis, ...]
    sums: tuple[Axis, ...]  # outermost first
    lane: Axis
    sizes: Mapping[Axis, int]  # extents, typical ones where they are not known
    window: bool = False  # lanes are pixels of a table that keeps its order; the sum runs over their neighbours, too
    stride: int = 1  # between the pixels of a window, whose table has every so many of them side by side
    # Factors that meet zeros which a condition of the sum put into the other one: they have to be finite.
    finite_rows: bool = False
    finite_columns: bool = False
    conditions: tuple[Expr, ...] = ()  # of the sum, which factors took up
    outer: tuple[Expr, ...] = ()  # and those without its loops: what they leave out is 0, whatever its tile holds

    is_rounded: bool = False  # a product is rounded before it is added

    def term(self, rows: Expr, columns: Expr) -> Expr:
        """A term of the sum, of a row and a column."""
        made: Expr = rows * columns
        return rounded(made) if self.is_rounded else made

    @property
    def terms(self) -> int:
        return self.points(self.sums)

    @property
    def guarded(self) -> bool:
        """Whether a condition of the sum went into a factor."""
        return self.finite_rows or self.finite_columns

    @property
    def is_uneven(self) -> bool:
        """Whether some columns have more terms than others."""
        return any(self.lane in set(free_axes(c)) for c in (*self.conditions, *self.outer))

    def points(self, axes: Iterable[Axis]) -> int:
        """Points of a box."""
        return math.prod(self.sizes[a] for a in axes)


def contraction_of(op: Compute, least: Thresholds) -> Contraction | None:
    """The roles of the loops of a sum of products; None for anything else, and where it is not worth it."""
    op = _without_units(op)
    reduce = op.reduction
    if reduce is None or reduce.reducer.kind != "sum" or str(reduce.values[0].dtype) not in DTYPES:
        return None
    axes = (*op.axes, *reduce.axes)
    if any(number(a.begin) != 0 or number(a.extent) == 0 for a in axes) or not can_be_cut(op):
        return None
    sizes = typical_sizes(op)
    if math.prod(sizes.values()) < least.product:
        return None
    term = reduce.values[0]
    product = unrounded(term)
    factors = _factors(product)
    if len(factors) != 2:
        return None
    found = _oriented(op, factors, conjuncts(reduce.where), sizes, least)
    return replace(found, is_rounded=product is not term) if found is not None else None


def _without_units(op: Compute) -> Compute:
    """The sum without its loops of one iteration, which would hide that another one is alone in an index."""
    reduce = op.reduction
    if reduce is None or len(op.bodies) > 1:
        return op
    units: dict[Expr, Expr] = {a: Const(0, INT32) for a in (*op.axes, *reduce.axes) if _is_unit(a)}
    left = tuple(a for a in reduce.axes if a not in units)
    if not units or not left:
        return op
    value, where = tidied(rebuild_all(substitute_all((*reduce.values, reduce.where), units), with_plain_indices))
    return replace(op, bodies=(Reduce(reduce.reducer, (value,), left, where, 0),), _outputs={})


def _is_unit(axis: Axis) -> bool:
    return (number(axis.extent), number(axis.begin)) == (1, 0)


def _factors(value: Expr) -> list[Expr]:
    if isinstance(value, Apply) and value.fn is Fn.MUL:
        return [value.args[0], value.args[1]]
    return []


def _oriented(
    op: Compute, factors: Sequence[Expr], conditions: Sequence[Expr], sizes: Mapping[Axis, int], least: Thresholds
) -> Contraction | None:
    """The factor with the better lane as columns, the other one as rows."""
    best: tuple[float, Contraction] | None = None
    for k in range(2):
        found = _roles(op, factors[1 - k], factors[k], conditions, sizes, least)
        if found is not None and (best is None or found[0] > best[0]):
            best = found
    known = None if best is None else best[1]
    windows = (_window(op, factors[1 - k], factors[k], conditions, sizes, least) for k in range(2))
    return next((found for found in windows if found is not None and _is_better(found, known)), known)


def _is_better(window: Contraction, known: Contraction | None) -> bool:
    """Whether pixels as lanes are better than the lanes that a product has otherwise.

    Filters that lie last are lanes themselves, up to 32 bytes of them in half a cycle; pixels have to be turned, and
    share vectors of 64 bytes, or two of 32, in a cycle.
    """
    if known is None:
        return True
    if window.lane is window.op.axes[-1]:
        return window.sizes[known.lane] < FILLED
    if known.lane not in set(window.row_axes):
        return bool(window.batch)  # its lanes are pixels further apart
    size, filters = window.op.bodies[0].dtype.itemsize, window.points(window.row_axes)
    uses = window.points((*window.op.axes, *window.sums)) / _elements(
        forms_of(window.columns, window.sizes), window.sizes
    )
    return TURNED_PIXEL + uses * size / 64 < uses / filters / 2


def _window(
    op: Compute, rows: Expr, columns: Expr, conditions: Sequence[Expr], sizes: Mapping[Axis, int], least: Thresholds
) -> Contraction | None:
    """Few filters over many pixels: neighbouring pixels of the result share a vector, read at every offset.

    The filters may be the last axes of the result: what a vector of pixels has of each is stored together.
    """
    in_rows, in_columns = set(free_axes(rows)).union(filter(_is_unit, op.axes)), set(free_axes(columns))
    reduce = op.reduction
    assert reduce is not None
    lane = next((a for a in op.axes[::-1] if a not in in_rows - in_columns), None)
    if lane is None or lane not in in_columns - in_rows or sizes[lane] < least.window_lanes:
        return None
    if any(not in_columns.issuperset(free_axes(c)) for c in conditions):
        return None
    if not (in_rows | in_columns).issuperset((*op.axes, *reduce.axes)) or (conditions and not stays_inside(rows)):
        return None
    columns = guarded(columns, conditions)
    row_forms, column_forms = forms_of(rows, sizes), forms_of(columns, sizes)
    if not row_forms or not column_forms or any(number(a.extent) is None for a in free_axes(rows)):
        return None
    if _is_used_once(column_forms, sizes):
        return None
    crossing = [f for f in column_forms if lane in set(f.axes)]
    m = tuple(a for a in op.axes if a in in_rows - in_columns)
    filters = math.prod(sizes[a] for a in m)
    if not m or filters > MOST_FILTERS or len(crossing) != 1:
        return None
    stride = crossing[0].plane.terms[(lane,)]
    batch = tuple(a for a in op.axes if a in in_columns and a is not lane)
    if lane is not op.axes[-1]:  # pixels are turned in any case
        if stride > 1 and not _are_known(column_forms):
            return None
        if not 0 < stride <= MOST_STRIDE:
            return None
    elif not batch or (stride != 1 and not _is_worth_turning(stride, filters, column_forms, sizes, least)):
        return None
    return Contraction(
        op, rows, columns, m, (lane,), batch, tuple(reduce.axes), lane, sizes, window=True, stride=stride,
        finite_rows=bool(conditions) and rows.dtype.is_float,
    )  # fmt: skip


def _is_worth_turning(
    stride: int, filters: int, column_forms: Sequence[Combination], sizes: Mapping[Axis, int], least: Thresholds
) -> bool:  # fmt: skip
    """Whether a table of every so many pixels is used often enough, by filters too few to be lanes."""
    if not (1 < stride <= MOST_STRIDE and filters <= FEW_FILTERS and _are_known(column_forms)):
        return False
    return math.prod(sizes.values()) >= least.strided_uses * _elements(column_forms, sizes)


def _are_known(forms: Sequence[Combination]) -> bool:
    """Whether all loops of a factor have known extents."""
    return all(number(a.extent) is not None for form in forms for a in form.axes)


def _is_used_once(forms: Sequence[Combination], sizes: Mapping[Axis, int]) -> bool:
    """Whether elements of a factor are used once each, as those of a matrix by a vector: a table of them is no help."""
    return math.prod(sizes.values()) < 2 * _elements(forms, sizes)


def _elements(forms: Sequence[Combination] | None, sizes: Mapping[Axis, int]) -> int:
    """Elements of a factor that are read."""
    return math.prod(form.count(sizes) for form in forms or ())


def _roles(
    op: Compute, rows: Expr, columns: Expr, conditions: Sequence[Expr], sizes: Mapping[Axis, int], least: Thresholds
) -> tuple[float, Contraction] | None:
    in_rows, in_columns = set(free_axes(rows)).union(filter(_is_unit, op.axes)), set(free_axes(columns))
    reduce = op.reduction
    assert reduce is not None
    outer = [c for c in conditions if _is_triangle(c, in_rows - in_columns, in_columns - in_rows, reduce.axes)]
    inner = [c for c in conditions if not any(c is o for o in outer)]
    of_rows = [c for c in inner if in_rows.issuperset(free_axes(c))]
    of_columns = [c for c in inner if not in_rows.issuperset(free_axes(c))]
    if outer and not (all(map(number, (a.extent for a in op.axes))) and stays_inside(rows) and stays_inside(columns)):
        return None
    if any(not in_columns.issuperset(free_axes(c)) for c in of_columns):
        return None
    rows, columns = guarded(rows, of_rows), guarded(columns, of_columns)
    if of_columns and not stays_inside(rows):
        return None
    if of_rows and not stays_inside(columns):
        columns = guarded(columns, [c for c in of_rows if in_columns.issuperset(free_axes(c))])
        if not stays_inside(columns):
            return None
    if not (in_rows | in_columns).issuperset((*op.axes, *reduce.axes)):
        return None
    m = tuple(a for a in op.axes if a in in_rows - in_columns)
    n = tuple(a for a in op.axes if a in in_columns - in_rows)
    batch = tuple(a for a in op.axes if a in in_rows & in_columns)
    if not m or not n:
        return None
    row_forms, column_forms = forms_of(rows, sizes), forms_of(columns, sizes)
    if not row_forms or not column_forms:
        return None  # used otherwise, or a factor that all terms share
    if _is_used_once(column_forms, sizes):
        return None
    alone = {f.alone for f in column_forms if f.alone is not None}
    crossed = {a for f in column_forms if f.alone is None for a in f.axes}
    lanes = [a for a in n if a in alone and a not in crossed]
    if not lanes:
        return None
    in_place = lanes[-1] is op.axes[-1] and sizes[lanes[-1]] >= least.product_lanes
    lane = lanes[-1] if in_place else max(lanes, key=lambda a: sizes[a])
    others = tuple(a for a in n if a is not lane)
    if _is_table_of_rows(op, m, lane, others, columns, alone - crossed, sizes, least):
        # The rows stay in the cache: one row of the image after another, packed where it is used.
        n, batch = (lane,), (*batch, *others)
    compound = {a for f in (*row_forms, *column_forms) if f.alone is None for a in f.axes}
    windows = {a for f in (*row_forms, *column_forms) for a in f.axes if len(set(f.axes).difference(batch)) > 1}
    sums = sorted(reduce.axes, key=lambda a: a in windows)
    if sizes[lane] < least.product_lanes:
        return None
    # Lanes that fill their vectors are best, then contiguous ones; an axis of a window makes a poor lane.
    filled = sizes[lane] / (-(-sizes[lane] // 16) * 16)
    work = math.prod(sizes[a] for a in (*op.axes, *sums)) / _turned_elements(columns, lane, sums, sizes)
    score = 64 / (1 / filled + TURNING / work) + (16 if lane is op.axes[-1] else 0) - (128 if compound & set(n) else 0)
    return score, Contraction(
        op, rows, columns, m, n, batch, tuple(sums), lane, sizes,
        finite_rows=bool(of_columns) and rows.dtype.is_float, finite_columns=bool(of_rows) and rows.dtype.is_float,
        conditions=tuple(inner), outer=tuple(outer),
    )  # fmt: skip


def _is_triangle(condition: Expr, rows: set[Axis], columns: set[Axis], sums: Sequence[Axis]) -> bool:
    """Whether a condition compares rows with columns, in a straight line and whatever the term."""
    if not isinstance(condition, Apply) or condition.fn not in (Fn.LT, Fn.LE, Fn.GT, Fn.GE):
        return False
    axes = set(free_axes(condition))
    if not axes.isdisjoint(sums) or axes.isdisjoint(rows) or axes.isdisjoint(columns):
        return False
    forms = [affine_of(side) if side.dtype.is_integer else None for side in condition.args]
    return all(f is not None and all(len(m) == 1 and isinstance(m[0], Axis) for m in f.terms) for f in forms)


def _turned_elements(columns: Expr, lane: Axis, sums: Sequence[Axis], sizes: Mapping[Axis, int]) -> float:
    """Elements that are turned for the columns' table; next to none where they lie as they lie there, or are computed
    in any case."""
    table = copy_of(columns, sizes, {}, (lane, 16), sums) if isinstance(columns, Read) else None
    if table is None or table.contiguous is table.lane or _runs_along(columns, lane):
        return 1e-3
    return table.size


def _runs_along(columns: Expr, lane: Axis) -> bool:
    """Whether neighbours along a lane lie side by side, or the last index is no loop's."""
    assert isinstance(columns, Read)
    moving = [index for index in columns.indices if free_axes(index)]
    form = affine_of(moving[-1]) if moving else None
    return form is None or form.terms.get((lane,), 0) == 1


def _is_table_of_rows(
    op: Compute, rows: Sequence[Axis], lane: Axis, others: Sequence[Axis], columns: Expr, alone: set[Axis],
    sizes: Mapping[Axis, int], least: Thresholds,
) -> bool:  # fmt: skip
    """Whether few rows meet many columns that lie in memory as the result does: a convolution of one by one."""
    assert op.reduction is not None
    in_place = isinstance(columns, Read) and columns.indices[-1] is lane is op.axes[-1] and alone.issuperset(others)
    height = math.prod(sizes[a] for a in rows)
    table = height * math.prod(sizes[a] for a in op.reduction.axes)
    worth = height >= least.table_rows and sizes[lane] >= least.window_lanes
    return in_place and bool(others) and worth and table <= SMALL_TABLE


@dataclass(frozen=True)
class Tile:
    """What one set of accumulators covers: `lanes` columns (a number of vectors), and so many of each row axis."""

    vector: int
    lanes: int
    rows: tuple[tuple[Axis, int], ...]

    @property
    def height(self) -> int:
        return math.prod(n for _, n in self.rows)


def register_lanes(found: Contraction, machine: Machine) -> int:
    """Elements of a whole register."""
    return machine.vector_bytes // found.op.bodies[0].dtype.itemsize


def lanes_for(found: Contraction, machine: Machine) -> int:
    """Elements of a vector: of a register, or of the part of one that holds all columns.

    That part costs half where multipliers are half as wide as registers, and never more than all of it.
    """
    lanes, columns = register_lanes(found, machine), number(found.lane.extent)
    least = LEAST_VECTOR // found.op.bodies[0].dtype.itemsize
    while columns is not None and lanes > least and 2 * columns <= lanes:
        lanes //= 2
    return lanes


def tile_for(found: Contraction, machine: Machine, vector: int) -> Tile:
    """The register tile with the least waste among those that keep the multipliers busy, or the one chosen."""
    tile = _best_tile(found, machine, vector)
    vectors = machine.choose("tile_vectors", tile.lanes // vector, found.op.name)
    height = machine.choose("tile_rows", tile.height, found.op.name)
    if (vectors, height) == (tile.lanes // vector, tile.height):
        return tile
    rows = next((r for r in _row_tiles(found, height) if math.prod(n for _, n in r) == height), None)
    return tile if rows is None else Tile(vector, vectors * vector, rows)


def _best_tile(found: Contraction, machine: Machine, vector: int) -> Tile:
    """The tile that the model of a core's registers and multipliers prefers."""
    registers = 28 if machine.vector_registers >= 32 else 12
    wanted, columns = registers, found.sizes[found.lane]
    best: tuple[float, Tile] | None = None
    for vectors in range(1, 9 if found.window else 5):
        if vectors > 1 and (vectors - 1) * vector >= columns:
            break
        lanes = vectors * vector
        if wanted < vectors:
            break
        for rows in _row_tiles(found, wanted // vectors):
            height = math.prod(n for _, n in rows)
            covered = math.prod(_covered(found, a, n) for a, n in (*rows, (found.lane, lanes)))
            sums = vectors * height
            # Latency needs some ten sums; loads are vectors + height for vectors * height multiplications.
            speed = min(1.0, sums / 20) * sums / (sums + 0.35 * (1.5 * vectors + height))
            if sums + vectors + 1 > machine.vector_registers:
                speed *= 0.8  # sums would go to memory and back
            work = found.terms * sums / (2 * speed)
            # Equal ones: tiles without a rest, whose edges need no thought.
            score = covered * speed * work / (work + _storing(found, lanes, height, sums))
            if best is None or score > best[0] * 1.001:
                best = score, Tile(vector, lanes, rows)
    assert best is not None
    return best[1]


def _covered(found: Contraction, axis: Axis, step: int) -> float:
    """The share of whole tiles that lies inside; on average, where the extent is not known."""
    size = found.sizes[axis]
    if number(axis.extent) is None:
        return size / (size + (step - 1) / 2)
    return size / (-(-size // step) * step)


def _storing(found: Contraction, lanes: int, height: int, sums: int) -> float:
    """Cycles to bring a tile to its place: where its lanes lie apart there, one element after another is taken out."""
    return 2.0 * sums if found.window or found.lane is found.op.axes[-1] else lanes * (height + 4.0)


def _row_tiles(found: Contraction, most: int) -> list[tuple[tuple[Axis, int], ...]]:
    """Ways to take up to `most` rows: of the innermost row axis, and where it is short, of the next ones."""
    inner_first = found.row_axes[::-1]
    first = inner_first[0]
    whole = found.sizes[first]
    tiles: list[tuple[tuple[Axis, int], ...]] = [((first, n),) for n in range(1, min(most, whole) + 1)]
    taken: tuple[tuple[Axis, int], ...] = ((first, whole),)
    for before, axis in pairwise(inner_first):
        if whole * 2 > most or number(before.extent) is None:
            break
        limit = min(most // whole, found.sizes[axis])
        tiles += [(*taken, (axis, n)) for n in range(2, limit + 1)]
        taken, whole = (*taken, (axis, found.sizes[axis])), whole * found.sizes[axis]
    return tiles
