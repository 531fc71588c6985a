"""Applications of Halide around cameras: raw pixels to colours, medians, blurs of light and of wide bells."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import tedsl as te
from benchmarks.halide_kit import App, extent, func, host, image as floats

__all__ = ["CAMERAS"]

Read = Callable[..., Any]


# --- the median of three by three bytes


def _bytes(h: int, w: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (h, w), "uint8")


def _median(most: Read, least: Read, three: Callable[[Read], Any], column: Callable[[str, Read], Read]) -> Any:
    """Of the largest, the least and the middle of each column of three: what a network of comparisons finds."""

    def middle(a: Any, b: Any, c: Any) -> Any:
        return most(least(most(a, b), c), least(a, b))

    tops = column("tops", lambda a, b, c: most(most(a, b), c))
    ends = column("ends", lambda a, b, c: least(least(a, b), c))
    middles = column("middles", middle)
    top = least(least(tops(-1), tops(0)), tops(1))
    end = most(most(ends(-1), ends(0)), ends(1))
    return middle(top, end, middle(*three(middles)))


def median_expert(hl: Any, image: Any) -> Any:
    x, y = hl.Var("x"), hl.Var("y")
    near = hl.BoundaryConditions.repeat_edge(image)

    def column(name: str, of: Read) -> Read:
        made = func(hl, name, (x, y), of(near[x, y - 1], near[x, y], near[x, y + 1]))
        return lambda k: made[x + k, y]

    out = func(hl, "out", (x, y), _median(hl.max, hl.min, lambda at: (at(-1), at(0), at(1)), column))
    out.vectorize(x, host(hl).natural_vector_size(hl.UInt(8))).parallel(y, 16)
    return out


def median(a: te.Tensor) -> te.Tensor:
    def at(y: Any, x: Any) -> Any:
        return a.at(y, x, mode="clamp")

    def pixel(y: Any, x: Any) -> Any:
        def column(name: str, of: Read) -> Read:
            made = te.compute(a.shape, lambda y, x: of(at(y - 1, x), at(y, x), at(y + 1, x)), name=name)
            return lambda k: made.at(y, x + k, mode="clamp")

        return _median(te.maximum, te.minimum, lambda at: (at(-1), at(0), at(1)), column)

    out: te.Tensor = te.compute(a.shape, pixel)
    return out


# --- light: values of a screen become light, which is blurred, and become values again


def _light(select: Read, power: Read, number: Read, v: Any) -> Any:
    curved = power((v + number(0.055)) / number(1.055), number(2.4))
    return select(v <= number(0.04045), v / number(12.92), curved)


def _shown(select: Read, power: Read, number: Read, v: Any) -> Any:
    curved = number(1.055) * power(v, number(1 / 2.4)) - number(0.055)
    return select(v <= number(0.0031308), v * number(12.92), curved)


def light_expert(hl: Any, image: Any) -> Any:
    x, y, c, inner = (hl.Var(v) for v in ("x", "y", "c", "inner"))
    lanes = host(hl).natural_vector_size(hl.Float(32))
    light = func(hl, "light", (x, y, c), _light(hl.select, hl.pow, hl.f32, image[x, y, c]))
    near = hl.BoundaryConditions.repeat_edge(light, [(0, image.width()), (0, image.height()), (0, 3)])
    across = func(hl, "across", (x, y, c), (near[x, y, c] + near[x + 1, y, c] + near[x + 2, y, c]) / 3)
    both = func(hl, "both", (x, y, c), (across[x, y, c] + across[x, y + 1, c] + across[x, y + 2, c]) / 3)
    out = func(hl, "out", (x, y, c), _shown(hl.select, hl.pow, hl.f32, both[x, y, c]))
    out.split(y, y, inner, 32).parallel(y).vectorize(x, lanes)
    for stage in (light, across):
        stage.store_at(out, y).compute_at(out, inner).vectorize(x, lanes)
    return out


def light(a: te.Tensor) -> te.Tensor:
    lit = te.compute(a.shape, lambda c, y, x: _light(te.select, te.pow, float, a[c, y, x]))
    across = te.compute(a.shape, lambda c, y, x: sum(lit.at(c, y, x + k, mode="clamp") for k in range(3)) / 3)
    both = te.compute(a.shape, lambda c, y, x: sum(across.at(c, y + k, x, mode="clamp") for k in range(3)) / 3)
    out: te.Tensor = te.compute(a.shape, lambda c, y, x: _shown(te.select, te.pow, float, both[c, y, x]))
    return out


# --- a wide Gauss filter: eight times smaller, blurred there, and up again by a spline

FACTOR, UP, DOWN, SIGMA = 8, 3, 2, 24.0
SHIFT = (UP - DOWN) * FACTOR // 2


def _boxes(order: int) -> tuple[np.ndarray, float]:
    """A mean of FACTOR as often as that, with a mean of two between, and its variance."""
    made = one = np.full(FACTOR, 1 / FACTOR)
    for _ in range(1, order):
        made = np.convolve(np.convolve(made, one), [0.5, 0.5])
    padded = np.pad(made, (0, FACTOR * order - len(made)))
    return padded.astype("float32"), order * (FACTOR**2 - 1) / 12 + (order - 1) / 4


(UPWARD, _up_variance), (DOWNWARD, _down_variance) = _boxes(UP), _boxes(DOWN)
SMALL = math.sqrt(SIGMA**2 - _up_variance - _down_variance) / FACTOR
RADIUS = math.ceil(3 * SMALL)
_bell = np.exp(-(np.arange(-RADIUS, RADIUS + 1) ** 2) / (2 * SMALL**2))
BELL = (_bell / _bell.sum()).astype("float32")


def wide_expert(hl: Any, image: Any) -> Any:
    x, y, p, yo, yi = (hl.Var(v) for v in ("x", "y", "p", "yo", "yi"))
    tails, h, w = hl.TailStrategy, image.height(), image.width()
    lanes, tasks = host(hl).natural_vector_size(hl.Float(32)), 32
    downward, upward, bell = (hl.Buffer(np.ascontiguousarray(t)) for t in (DOWNWARD, UPWARD, BELL))
    f, q, r = hl.RDom([(0, FACTOR)]), hl.RDom([(0, DOWN)]), hl.RDom([(-RADIUS, 2 * RADIUS + 1)])
    k = hl.RDom([(0, FACTOR * DOWN)])
    held = func(hl, "held", (x, y), image[x, hl.clamp(y, 0, h - 1)])
    phases, down = func(hl, "phases", (x, y, p), hl.f32(0)), func(hl, "down", (x, y), hl.f32(0))
    phases[x, y, p] += held[x, FACTOR * y + f + SHIFT] * downward[hl.clamp(f + p * FACTOR, 0, FACTOR * DOWN - 1)]
    down[x, y] += phases[x, y + q, q]
    held_x = func(hl, "held_x", (x, y), down[hl.clamp(hl.likely(x), 0, w - 1), y])
    small = func(hl, "small", (x, y), hl.f32(0))
    small[x, y] += held_x[FACTOR * x + k + SHIFT, y] * downward[k]
    held_y = func(hl, "held_y", (x, y), small[x, hl.clamp(y, -UP, (h + FACTOR - 1) // FACTOR)])
    columns = func(hl, "columns", (x, y), hl.f32(0))
    columns[x, y] += bell[r + RADIUS] * held_y[x, y + r]
    blurred = func(hl, "blurred", (x, y), hl.sum(bell[r + RADIUS] * columns[x + r, y]))

    def mixed(at: Read) -> Any:
        taps = (at(i) * (upward[hl.clamp(i * FACTOR + p, 0, UP * FACTOR - 1)] * FACTOR) for i in range(UP))
        return sum(taps, hl.f32(0))

    wide_phases = func(hl, "wide_phases", (x, y, p), mixed(lambda i: blurred[x - i, y]))
    wide = func(hl, "wide", (x, y), wide_phases[x // FACTOR, y, x % FACTOR])
    tall = func(hl, "tall", (x, y, p), mixed(lambda i: wide[x, y - i]))
    out = func(hl, "out", (x, y), tall[x, y // FACTOR, y % FACTOR])
    strip = ((h + FACTOR - 1) // FACTOR + UP + tasks - 1) // tasks
    kept, kept_phases = small.in_(), phases.in_()
    kept.compute_root().split(y, yo, yi, strip, tails.GuardWithIf).vectorize(x, lanes * 2, tails.RoundUp).parallel(yo)
    held_x.compute_at(kept, x).vectorize(x, lanes)
    outer, inner = hl.RVar("outer"), hl.RVar("inner")
    small.compute_at(kept, x).vectorize(x).update().split(k.x, outer, inner, FACTOR).unroll(outer).vectorize(x)
    small.update().atomic().vectorize(inner)
    down.update().unroll(q.x)
    kept_phases.bound(p, 0, DOWN).store_at(kept, yo).compute_at(kept, yi).reorder(p, x, y).unroll(p)
    kept_phases.vectorize(x, lanes, tails.RoundUp).fold_storage(y, DOWN)
    phases.compute_at(kept_phases, x).unroll(p).vectorize(x)
    phases.update().reorder(p, x, f.x, y).vectorize(x).unroll(f.x).unroll(p)
    columns.align_bounds(x, lanes).store_at(wide, y).compute_at(wide, y).vectorize(x, lanes, tails.RoundUp)
    columns.update().unroll(r.x, 2).reorder(x, r.x).vectorize(x, lanes, tails.RoundUp)
    blurred.store_in(hl.MemoryType.Stack).compute_at(wide, y).vectorize(x, lanes * 2, tails.RoundUp)
    wide.store_at(out, yo).compute_at(out, yi).align_bounds(x, lanes * FACTOR)
    wide.vectorize(x, lanes * FACTOR, tails.RoundUp)
    rows = ((h + tasks - 1) // tasks + 7) // 8 * 8
    out.never_partition([y]).align_bounds(y, 8).split(y, yo, yi, rows, tails.ShiftInwards)
    out.reorder(yi, x).unroll(yi, 8).reorder(x, yi).vectorize(x, lanes * 2).parallel(yo)
    return out


def wide(a: te.Tensor) -> te.Tensor:
    h, w = extent(a, 0), extent(a, 1)
    downward, upward, bell = (te.constant(t.astype(str(a.dtype))) for t in (DOWNWARD, UPWARD, BELL))
    high, begin = -(-h // FACTOR), UP - 1 + RADIUS  # rows of the small one from -UP on, columns from -begin on
    columns = -(-w // FACTOR) + begin + RADIUS

    def down(y: Any, x: Any) -> Any:
        return te.sum(lambda k: a.at(FACTOR * (y - UP) + k + SHIFT, x, mode="clamp") * downward[k])

    halves = te.compute((high + UP + 1, w), down)

    def across(y: Any, x: Any) -> Any:
        return te.sum(lambda k: halves.at(y, FACTOR * (x - begin) + k + SHIFT, mode="clamp") * downward[k])

    small = te.compute((high + UP + 1, columns), across)
    tall = te.compute(
        (high + UP - 1, columns), lambda y, x: te.sum(lambda k: bell[k] * small.at(y + 1 + k - RADIUS, x, mode="clamp"))
    )
    blurred = te.compute((high + UP - 1, columns - 2 * RADIUS), lambda y, x: te.sum(lambda k: bell[k] * tall[y, x + k]))

    def mixed(i: Any, at: Read) -> Any:
        taps = ((at(i // FACTOR + UP - 1 - k), upward[k * FACTOR + i % FACTOR]) for k in range(UP))
        return sum(value * (weight * FACTOR) for value, weight in taps)

    broad = te.compute((high + UP - 1, w), lambda y, x: mixed(x, lambda i: blurred[y, i]))
    out: te.Tensor = te.compute((h, w), lambda y, x: mixed(y, lambda j: broad[j, x]))
    return out


# --- raw pixels of a camera: dead ones are left out, colours are made of their neighbours, then turned and sharpened

BLACK, WHITE, CURVE = 25, 1023, 2.0 - 2.0**0.5
WARM = (1 / 3700 - 1 / 3200) / (1 / 7000 - 1 / 3200)
TURNED = (
    ((1.6697, -0.2693, -0.4004, -42.4346), (-0.3576, 1.0615, 1.5949, -37.1158), (-0.2175, -1.8751, 6.9640, -26.6970)),
    ((2.2997, -0.4478, 0.1706, -39.0923), (-0.3826, 1.5906, -0.2080, -25.4311), (-0.0888, -0.7344, 2.2832, -20.0826)),
)  # colours at 3200 and at 7000 kelvin
LEFT_OUT = 12, 16  # rows and columns at each end


def _raw(h: int, w: int) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(0)
    rough = rng.random((h // 8 + 4, w // 8 + 5)).repeat(8, 0).repeat(8, 1)[: h + 24, : w + 32]
    return (rough * 700 + rng.random(rough.shape) * 200 + 30).astype("uint16"), *np.array(TURNED, "float32")


def _colours(select: Read, mean: Read, apart: Read, make: Callable[[str, Read], Read], of: Sequence[Read]) -> list[Any]:
    """Red, green and blue at the four places of a square: where each is known, as it is, else from its neighbours.

    `of`: green beside red, red, blue and green beside blue, at so many rows and columns from here; `make` stores.
    """
    green_0, red, blue, green_1 = of

    def nearer(p: Any, q: Any, r: Any, s: Any, by_p: Any = 0, by_r: Any = 0) -> Any:
        """The mean of the pair that is nearer to each other."""
        return select(apart(p, q) < apart(r, s), by_p + mean(p, q), by_r + mean(r, s))

    at_red = make("at_red", lambda g, _r, _b, n: nearer(g(0, 1), g(0, 0), n(-1, 0), n(0, 0)))
    at_blue = make("at_blue", lambda g, _r, _b, n: nearer(n(0, -1), n(0, 0), g(1, 0), g(0, 0)))

    def beside(green: Read, own: Read, colour: Read, dy: int, dx: int) -> Any:
        return green(0, 0) - mean(own(0, 0), own(dy, dx)) + mean(colour(0, 0), colour(dy, dx))

    def across(own: Read, other: Read, colour: Read, dy: int, dx: int) -> Any:
        by_p = own(0, 0) - mean(other(0, 0), other(dy, dx))
        by_r = own(0, 0) - mean(other(0, dx), other(dy, 0))
        return nearer(colour(0, 0), colour(dy, dx), colour(0, dx), colour(dy, 0), by_p, by_r)

    return [
        [beside(green_0, at_red, red, 0, -1), red(0, 0), across(at_blue, at_red, red, 1, -1),
         beside(green_1, at_red, red, 1, 0)],
        [green_0(0, 0), at_red(0, 0), at_blue(0, 0), green_1(0, 0)],
        [beside(green_0, at_blue, blue, -1, 0), across(at_red, at_blue, blue, -1, 1), blue(0, 0),
         beside(green_1, at_blue, blue, 0, 1)],
    ]  # fmt: skip


def _tone(select: Read, clip: Read, power: Read, number: Read, cast: Read, i: Any) -> Any:
    g = power(clip(cast("float32", i - BLACK) * number(1.0 / (WHITE - BLACK)), 0.0, 1.0), number(0.5))
    square, plain, rest = number(2.0 - 2.0 * CURVE), number(CURVE), 1.0 - g
    z = select(g > 0.5, 1.0 - (square * rest * rest + plain * rest), square * g * g + plain * g)
    byte = cast("uint8", clip(z * 255.0 + 0.5, 0.0, 255.0))
    return select(i <= BLACK, cast("uint8", 0), select(i > WHITE, cast("uint8", 255), byte))


def camera_expert(hl: Any, image: Any, cold: Any, warm: Any) -> Any:
    x, y, c, yi, yo, yii, xi = (hl.Var(v) for v in ("x", "y", "c", "yi", "yo", "yii", "xi"))
    types = {"float32": hl.f32, "uint8": hl.u8}
    shifted = func(hl, "shifted", (x, y), image[x + LEFT_OUT[1], y + LEFT_OUT[0]])
    around = hl.max(hl.max(shifted[x - 2, y], shifted[x + 2, y]), hl.max(shifted[x, y - 2], shifted[x, y + 2]))
    alive = func(hl, "alive", (x, y), hl.min(shifted[x, y], around))
    squares = [alive[2 * x + dx, 2 * y + dy] for dy in (0, 1) for dx in (0, 1)]
    apart = func(hl, "apart", (x, y, c), hl.mux(c, squares))
    read: Any = lambda f: lambda dy, dx: f[x + dx, y + dy]  # noqa: E731
    of = [read(func(hl, f"plane_{k}", (x, y), apart[x, y, k])) for k in range(4)]
    greens = []

    def make(name: str, body: Read) -> Read:
        greens.append(func(hl, name, (x, y), body(*of)))
        return read(greens[-1])  # type: ignore[no-any-return]

    mean: Any = lambda a, b: hl.u16((hl.u32(a) + b + 1) / 2)  # noqa: E731
    colours = []
    for name, four in zip("rgb", _colours(hl.select, mean, hl.absd, make, of), strict=True):
        stored = [func(hl, f"{name}_{k}", (x, y), each) for k, each in enumerate(four)]
        rows = [
            func(hl, f"{name}_row_{k}", (x, y), hl.select(x % 2 == 0, p[x // 2, y], q[x // 2, y]))
            for k, (p, q) in enumerate(zip(stored[::2], stored[1::2], strict=True))
        ]
        colours.append(func(hl, name, (x, y), hl.select(y % 2 == 0, rows[0][x, y // 2], rows[1][x, y // 2])))
    made = func(hl, "made", (x, y, c), hl.i16(hl.mux(c, [f[x, y] for f in colours])))
    turned = (cold[x, y] * hl.f32(WARM) + warm[x, y] * hl.f32(1 - WARM)) * hl.f32(256)
    matrix = func(hl, "matrix", (x, y), hl.i16(turned))
    wide = [hl.i32(made[x, y, k]) for k in range(3)]
    mixed = [sum((matrix[k, j] * wide[k] for k in range(3)), hl.i32(matrix[3, j])) / 256 for j in range(3)]
    corrected = func(hl, "corrected", (x, y, c), hl.mux(c, [hl.i16(m) for m in mixed]))
    curve = func(hl, "curve", (x,), _tone(hl.select, hl.clamp, hl.pow, hl.f32, lambda t, v: types[t](v), x))
    curved = func(hl, "curved", (x, y, c), curve[hl.clamp(hl.i32(corrected[x, y, c]), 0, 1023)])
    half: Any = lambda a, b: hl.u8((hl.u16(a) + b + 1) / 2)  # noqa: E731
    down = half(half(curved[x, y - 1, c], curved[x, y + 1, c]), curved[x, y, c])
    rows = func(hl, "rows", (x, y, c), down)
    both = func(hl, "both", (x, y, c), half(half(rows[x - 1, y, c], rows[x + 1, y, c]), rows[x, y, c]))
    mask = func(hl, "mask", (x, y, c), hl.i16(curved[x, y, c]) - hl.i16(both[x, y, c]))
    out = func(hl, "out", (x, y, c), hl.u8_sat(curved[x, y, c] + mask[x, y, c] * hl.i16(32) / 32))
    tail, lanes = hl.TailStrategy.RoundUp, host(hl).natural_vector_size(hl.UInt(16))
    out.compute_root().reorder(c, x, y).split(y, yi, yii, 2, tail).split(yi, yo, yi, 16)
    out.vectorize(x, 2 * lanes, tail).unroll(c).parallel(yo)
    alive.compute_at(out, yi).store_at(out, yo).fold_storage(y, 4).tile(x, y, x, y, xi, yi, 2 * lanes, 2)
    alive.vectorize(xi).unroll(yi)
    apart.compute_at(out, yi).store_at(out, yo).fold_storage(y, 4).reorder(c, x, y).vectorize(x, 2 * lanes, tail)
    apart.unroll(c)
    curved.compute_at(out, yi).store_at(out, yo).reorder(c, x, y).tile(x, y, x, y, xi, yi, 2 * lanes, 2, tail)
    curved.vectorize(xi).unroll(yi).unroll(c)
    corrected.compute_at(curved, x).reorder(c, x, y).vectorize(x).unroll(c)
    for stage in greens:
        stage.compute_at(out, yi).store_at(out, yo).vectorize(x, 2 * lanes, tail).fold_storage(y, 4)
    at_start = hl.LoopAlignStrategy.AlignStart
    greens[1].compute_with(hl.LoopLevel(greens[0], x, 0), [(x, at_start), (y, at_start)])
    made.compute_at(curved, x).vectorize(x).unroll(y).reorder(c, x, y).unroll(c)
    for table in (curve, matrix):
        table.compute_root()
    whole = [(n - 2 * beside) / by * by for n, beside, by in zip(
        (image.height(), image.width()), LEFT_OUT, (32, 2 * lanes), strict=True
    )]  # fmt: skip
    out.bound(c, 0, 3).bound(y, 0, whole[0]).bound(x, 0, whole[1])
    return out


def camera(a: te.Tensor, cold: te.Tensor, warm: te.Tensor) -> te.Tensor:
    h, w = extent(a, 0) - 4, extent(a, 1) - 4
    rows, columns = (extent(a, k) - 2 * n for k, n in enumerate(LEFT_OUT))

    def living(y: Any, x: Any) -> Any:
        around = te.maximum(te.maximum(a[y + 2, x], a[y + 2, x + 4]), te.maximum(a[y, x + 2], a[y + 4, x + 2]))
        return te.minimum(a[y + 2, x + 2], around)

    alive = te.compute((h, w), living)

    def wide(v: Any) -> Any:
        return te.cast(v, "int32")

    def mean(p: Any, q: Any) -> Any:
        return te.cast((wide(p) + wide(q) + 1) // 2, "uint16")

    planes = [
        te.compute((h // 2, w // 2), lambda j, i, dy=dy, dx=dx: alive[2 * j + dy, 2 * i + dx])
        for dy in (0, 1) for dx in (0, 1)
    ]  # fmt: skip

    def beside(tensors: Sequence[te.Tensor], j: Any, i: Any, by: int) -> list[Read]:
        return [lambda dy, dx, t=t: t[j + by + dy, i + by + dx] for t in tensors]

    def made(name: str, body: Read) -> te.Tensor:
        """One at each end has no neighbour."""
        stored: te.Tensor = te.compute((h // 2 - 2, w // 2 - 2), lambda j, i: body(*beside(planes, j, i, 1)), name=name)
        return stored

    greens: dict[str, te.Tensor] = {}

    def four(j: Any, i: Any) -> list[list[Any]]:
        def make(name: str, body: Read) -> Read:
            stored = greens.setdefault(name, made(name, body))
            return beside([stored], j, i, 1)[0]

        return _colours(te.select, mean, lambda p, q: te.abs(wide(p) - wide(q)), make, beside(planes, j, i, 2))

    stored: list[list[te.Tensor]] = [
        [te.compute((h // 2 - 4, w // 2 - 4), lambda j, i, c=c, k=k: four(j, i)[c][k]) for k in range(4)]
        for c in range(3)
    ]
    by_row, by_column = ((n - 2) // 2 - 2 for n in LEFT_OUT)  # from a square of the result, with two around, to its own

    def colour(c: int, y: Any, x: Any) -> Any:
        at = y // 2 + by_row - 1, x // 2 + by_column - 1
        p, q, r, s = (t[at] for t in stored[c])
        return te.select(y % 2 == 0, te.select(x % 2 == 0, p, q), te.select(x % 2 == 0, r, s))

    around = 3, rows + 4, columns + 4

    def pixel(c: Any, y: Any, x: Any) -> Any:
        red, green, blue = (colour(k, y, x) for k in range(3))
        return te.cast(te.select(c == 0, red, te.select(c == 1, green, blue)), "int16")

    colours = te.compute(around, pixel)
    matrix = te.compute((3, 4), lambda c, k: te.cast((cold[c, k] * WARM + warm[c, k] * (1 - WARM)) * 256.0, "int16"))

    def turned(c: Any, y: Any, x: Any) -> Any:
        mixed = sum(wide(matrix[c, k]) * wide(colours[k, y, x]) for k in range(3)) + wide(matrix[c, 3])
        return te.cast(mixed // 256, "int16")

    corrected = te.compute(around, turned)
    curve = te.compute((1024,), lambda i: _tone(te.select, te.clip, te.pow, float, lambda t, v: te.cast(v, t), i))
    curved = te.compute(around, lambda c, y, x: curve[te.clip(wide(corrected[c, y, x]), 0, 1023)])

    def half(p: Any, q: Any) -> Any:
        return te.cast((te.cast(p, "uint16") + te.cast(q, "uint16") + 1) // 2, "uint8")

    def down(c: Any, y: Any, x: Any) -> Any:
        return half(half(curved[c, y + 1, x], curved[c, y + 3, x]), curved[c, y + 2, x])

    blurred = te.compute((3, rows, columns + 4), down)

    def sharp(c: Any, y: Any, x: Any) -> Any:
        both = half(half(blurred[c, y, x + 1], blurred[c, y, x + 3]), blurred[c, y, x + 2])
        own = te.cast(curved[c, y + 2, x + 2], "int16")
        return te.cast(te.clip(own + (own - te.cast(both, "int16")) * 32 // 32, 0, 255), "uint8")

    out: te.Tensor = te.compute((3, rows, columns), sharp)
    return out


CAMERAS = (
    App("median of bytes", _bytes, median_expert, median, gradient_of="float32"),
    App("blur of light", floats(3), light_expert, light, (1536, 1024)),
    App("wide blur by levels", floats(0), wide_expert, wide, (2048, 2048), (128, 256)),
    App("camera", _raw, camera_expert, camera, (1920, 2560), (64, 128), differentiable=False),
)
