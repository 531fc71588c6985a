"""Applications of Halide with the schedules that its experts wrote, beside the default schedule here.

`python -m benchmarks.halide_apps [names]`. Each is said in Halide's own language, with the loops of the application in
its repository, and in this one without a schedule; some also with the expert's schedule said in this language. Results
are compared first; then all in turns on the threads that there are, the best of many calls. The ratio is Halide's time
over ours, so above 1 we are faster. With gradients: of the result with random weights, by the input.
"""

from __future__ import annotations

import argparse
import math
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import tedsl as te
from benchmarks.halide_cameras import CAMERAS
from benchmarks.halide_compositing import COMPOSITING
from benchmarks.halide_images import IMAGES
from benchmarks.halide_kit import GRAY, App, extent, func, host, image as floats, largest_difference, words
from benchmarks.halide_laplacian import LAPLACIAN
from benchmarks.halide_layers import LAYERS
from benchmarks.halide_levels import LEVELS
from benchmarks.halide_said import SAID

__all__ = ["APPS", "App", "by_halide", "largest_difference", "main"]

SECONDS = 1.0  # of each side
WEIGHTS = [float(np.float32(math.exp(-k * k / 4.5) / (math.sqrt(2 * math.pi) * 1.5))) for k in range(4)]


# --- blur: a mean of three along each axis, of integers


def blur_expert(hl: Any, image: Any) -> Any:
    x, y, inner = hl.Var("x"), hl.Var("y"), hl.Var("inner")
    across = func(hl, "across", (x, y), (image[x, y] + image[x + 1, y] + image[x + 2, y]) // 3)
    out = func(hl, "out", (x, y), (across[x, y] + across[x, y + 1] + across[x, y + 2]) // 3)
    out.split(y, y, inner, 32).parallel(y).vectorize(x, 16)
    across.store_at(out, y).compute_at(out, x).vectorize(x, 16)
    return out


def blur(a: te.Tensor) -> te.Tensor:
    h, w = extent(a, 0), extent(a, 1)
    across = te.compute((h, w - 2), lambda y, x: (a[y, x] + a[y, x + 1] + a[y, x + 2]) // 3)
    out: te.Tensor = te.compute((h - 2, w - 2), lambda y, x: (across[y, x] + across[y + 1, x] + across[y + 2, x]) // 3)
    return out


# --- unsharp: what a Gauss filter takes away is added


def unsharp_expert(hl: Any, image: Any) -> Any:
    x, y, c, outer, inner = (hl.Var(v) for v in ("x", "y", "c", "outer", "inner"))
    lanes = host(hl).natural_vector_size(hl.Float(32))
    whole = hl.BoundaryConditions.repeat_edge(image)
    gray = func(hl, "gray", (x, y), sum((hl.f32(g) * whole[x, y, k] for k, g in enumerate(GRAY)), hl.f32(0)))

    def filtered(name: str, at: Callable[[int], Any]) -> Any:
        around = sum((hl.f32(WEIGHTS[k]) * (at(-k) + at(k)) for k in (1, 2, 3)), hl.f32(WEIGHTS[0]) * at(0))
        return func(hl, name, (x, y), around)

    down = filtered("down", lambda k: gray[x, y + k])
    both = filtered("both", lambda k: down[x + k, y])
    ratio = func(hl, "ratio", (x, y), (2 * gray[x, y] - both[x, y]) / gray[x, y])
    out = func(hl, "out", (x, y, c), ratio[x, y] * image[x, y, c])
    out.split(y, outer, inner, 32).vectorize(x, lanes).parallel(outer).reorder(x, c, inner, outer)
    for stage in (gray, down, ratio):
        stage.compute_at(out, inner).store_at(out, outer).vectorize(x, lanes)
    return out


def unsharp(a: te.Tensor) -> te.Tensor:
    plane = extent(a, 1), extent(a, 2)
    gray = te.compute(plane, lambda y, x: sum(g * a[k, y, x] for k, g in enumerate(GRAY)))

    def filtered(t: te.Tensor, dy: int, dx: int) -> te.Tensor:
        def at(y: Any, x: Any, k: int) -> Any:
            return t.at(y + k * dy, x + k * dx, mode="clamp")

        made: te.Tensor = te.compute(
            plane, lambda y, x: WEIGHTS[0] * t[y, x] + sum(WEIGHTS[k] * (at(y, x, -k) + at(y, x, k)) for k in (1, 2, 3))
        )
        return made

    both = filtered(filtered(gray, 1, 0), 0, 1)
    ratio = te.compute(plane, lambda y, x: (2 * gray[y, x] - both[y, x]) / gray[y, x])
    out: te.Tensor = te.compute((3, *plane), lambda c, y, x: ratio[y, x] * a[c, y, x])
    return out


# --- harris: corners, where the derivatives of a neighbourhood point in two directions

SOBEL = [(j, k, j * (2 - k * k)) for j in (-1, 1) for k in (-1, 0, 1)]


def harris_expert(hl: Any, image: Any) -> Any:
    x, y, inner = hl.Var("x"), hl.Var("y"), hl.Var("inner")
    lanes = host(hl).natural_vector_size(hl.Float(32))
    gray = func(hl, "gray", (x, y), sum((hl.f32(g) * image[x, y, k] for k, g in enumerate(GRAY)), hl.f32(0)))
    dy = func(hl, "dy", (x, y), sum((gray[x + k, y + j] * hl.f32(w / 12) for j, k, w in SOBEL), hl.f32(0)))
    dx = func(hl, "dx", (x, y), sum((gray[x + j, y + k] * hl.f32(w / 12) for j, k, w in SOBEL), hl.f32(0)))

    def total(p: Any, q: Any) -> Any:
        near = [(x + i, y + j) for i in (-1, 0, 1) for j in (-1, 0, 1)]
        return sum((p[at] * q[at] for at in near), hl.f32(0))

    xx, yy, xy = total(dx, dx), total(dy, dy), total(dx, dy)
    out = func(hl, "out", (x, y), xx * yy - xy * xy - hl.f32(0.04) * (xx + yy) * (xx + yy))
    out.split(y, y, inner, 32).parallel(y).vectorize(x, lanes)
    for stage in (gray, dx, dy):
        stage.store_at(out, y).compute_at(out, inner).vectorize(x, lanes)
    dx.compute_with(hl.LoopLevel(dy, x, 0))
    return out


def harris(a: te.Tensor) -> te.Tensor:
    h, w = extent(a, 1), extent(a, 2)
    gray = te.compute((h - 2, w - 2), lambda y, x: sum(g * a[k, y + 1, x + 1] for k, g in enumerate(GRAY)))
    dy = te.compute((h - 4, w - 4), lambda y, x: sum(gray[y + 1 + j, x + 1 + k] * (c / 12) for j, k, c in SOBEL))
    dx = te.compute((h - 4, w - 4), lambda y, x: sum(gray[y + 1 + k, x + 1 + j] * (c / 12) for j, k, c in SOBEL))

    def total(p: te.Tensor, q: te.Tensor) -> te.Tensor:
        near = [(j, i) for i in range(3) for j in range(3)]
        made: te.Tensor = te.compute(
            (h - 6, w - 6), lambda y, x: sum(p[y + j, x + i] * q[y + j, x + i] for j, i in near)
        )
        return made

    xx, yy, xy = total(dx, dx), total(dy, dy), total(dx, dy)
    return te.compute(xx.shape, lambda y, x: xx[y, x] * yy[y, x] - xy[y, x] ** 2 - 0.04 * (xx[y, x] + yy[y, x]) ** 2)


# --- a chain of stencils, each of five by five places

STAGES, NEAR = 8, [(i, j) for i in range(-2, 3) for j in range(-2, 3)]


def chain_expert(hl: Any, image: Any) -> Any:
    x, y, outer_x, outer_y, inner_x, inner_y, task = (hl.Var(v) for v in ("x", "y", "xo", "yo", "xi", "yi", "task"))
    lanes = host(hl).natural_vector_size(hl.UInt(16))
    stages = [hl.BoundaryConditions.repeat_edge(image)]
    for k in range(STAGES):
        terms = (stages[-1][x + i, y + j] * hl.u16((i + 3) * (j + 3)) for i, j in NEAR)
        stages.append(func(hl, f"stage_{k}", (x, y), sum(terms, hl.u16(0))))
    *earlier, out = stages
    out.compute_root().tile(x, y, outer_x, outer_y, inner_x, inner_y, image.width() // 4, image.height() // 4)
    out.fuse(outer_x, outer_y, task).parallel(task).vectorize(inner_x, lanes)
    for stage in earlier:
        stage.store_at(out, task).compute_at(out, inner_y).vectorize(stage.args()[0], lanes)
    return out


def chain(a: te.Tensor) -> te.Tensor:
    h, w = extent(a, 0), extent(a, 1)
    beyond = 2 * STAGES
    t = te.compute(
        (h + 2 * beyond, w + 2 * beyond), lambda y, x: a.at(y - beyond, x - beyond, mode="clamp"), name="whole"
    )
    for k in range(STAGES):
        rows, columns = (extent(t, axis) - 4 for axis in (0, 1))

        def body(y: Any, x: Any, t: te.Tensor = t) -> Any:
            return sum(t[y + 2 + j, x + 2 + i] * ((i + 3) * (j + 3)) for i, j in NEAR)

        t = te.compute((rows, columns), body, name=f"stage_{k}")
    return t


APPS = (
    App("blur of uint16", words(1 << 12), blur_expert, blur, differentiable=False),
    App("unsharp mask", floats(3), unsharp_expert, unsharp),
    App("Harris corners", floats(3), harris_expert, harris, origin=(3, 3)),
    App("chain of stencils of uint16", words(1 << 16), chain_expert, chain, (640, 768), (64, 128), (), False),
    *IMAGES,
    *LAYERS,
    *LEVELS,
    LAPLACIAN,
    *CAMERAS,
    COMPOSITING,
)


def by_halide(app: App, arrays: Sequence[np.ndarray], out: np.ndarray) -> Callable[[], Any]:
    """The expert's kernel, which writes into `out`."""
    import halide as hl

    params = [hl.ImageParam(hl.Buffer(a).type(), a.ndim, f"image_{k}") for k, a in enumerate(arrays)]
    for param, array in zip(params, arrays, strict=True):
        for axis, n in enumerate(array.shape[::-1]):
            param.dim(axis).set_bounds(0, n)
    sizes = arrays[0].shape[-2:] if app.sized else ()
    call = hl.Pipeline(app.expert(hl, *params, *sizes)).compile_to_callable(params, host(hl))
    given, result = list(map(hl.Buffer, arrays)), hl.Buffer(out)
    if app.origin:
        result.set_min(list(app.origin))
    return lambda: call(*given, result)


def _best(sides: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Milliseconds of each side's best call, in turns."""
    found = dict.fromkeys(sides, math.inf)
    end = time.perf_counter() + SECONDS * len(sides)
    while time.perf_counter() < end:
        for name, call in sides.items():
            call()
            start = time.perf_counter()
            call()
            found[name] = min(found[name], (time.perf_counter() - start) * 1e3)
    return found


def measured(app: App) -> str:
    """A line of the table."""
    arrays = app.arrays(app.size)
    inputs, out = app.program(arrays)
    kernel = te.build(inputs, out)
    found = kernel(*arrays)
    want = np.zeros_like(found)
    expert = by_halide(app, arrays, want)
    expert()
    wrong = app.differs(found, want, 1e-4)
    sides: dict[str, Callable[[], Any]] = {"halide": expert, "ours": lambda: kernel(*arrays, out=found)}
    if app.name in SAID:
        by_hand = te.build(inputs, out, schedule=SAID[app.name](out))
        wrong |= app.differs(by_hand(*arrays), want, 1e-4)
        sides["said"] = lambda: by_hand(*arrays, out=found)
    if app.differentiable:
        floats_of = [a.astype(app.gradient_of) for a in arrays] if app.gradient_of else arrays
        inputs, out = app.program(floats_of)
        head = te.placeholder(out.shape, str(out.dtype), name="head")
        backward = te.build([*inputs, head], te.differentiate(out, inputs, head=head))
        weights = np.random.default_rng(1).standard_normal(found.shape).astype(out.dtype.name)
        gradient = backward(*floats_of, weights)
        sides["gradient"] = lambda: backward(*floats_of, weights, out=gradient)
    ms = _best(sides)
    last = f"{ms['gradient']:.2f} | {ms['gradient'] / ms['ours']:.1f}" if "gradient" in ms else " | "
    failed = f" WRONG ({largest_difference(found, want):.1e})" if wrong else ""
    said = f"{ms['halide'] / ms['said']:.2f}" if "said" in ms else ""
    times = f"{ms['halide'] / ms['ours']:.2f} | {said} | {ms['ours']:.2f} | {ms['halide']:.2f}"
    return f"| {app.name}{failed} | {times} | {last} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", help="measure the applications whose names begin so")
    chosen = parser.parse_args()
    os.environ.setdefault("HL_NUM_THREADS", str(te.get_num_threads()))
    print(
        "| application | Halide / ours | Halide / its schedule said here | ours (ms) | Halide's expert (ms) "
        "| our gradient (ms) | gradient / ours |"
    )
    print("|---|---|---|---|---|---|---|", flush=True)
    for app in APPS:
        if not chosen.names or app.name.startswith(tuple(chosen.names)):
            print(measured(app), flush=True)


if __name__ == "__main__":
    main()
