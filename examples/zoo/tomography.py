"""Tomography: an image from its integrals along lines, by conjugate gradients. `python examples/zoo/tomography.py`

The projections are one index expression: bilinear samples, summed along rotated rays. The other half of every
reconstruction, the exact transpose, is their derivative. A whole step of CGLS is one compiled program.
"""

from typing import Any

import numpy as np

import tedsl as te

SIZE, ANGLES = 64, 90


def project(image: te.Tensor) -> te.Tensor:
    """The integral along ray s at each angle, (ANGLES, SIZE)."""
    t, middle = te.reduce_axis(SIZE, "t"), (SIZE - 1) / 2
    cos = te.compute((ANGLES,), lambda a: te.cos(a * (np.pi / ANGLES)))
    sin = te.compute((ANGLES,), lambda a: te.sin(a * (np.pi / ANGLES)))

    def integral(a: te.Expr, s: te.Expr) -> Any:
        y = middle + (t - middle) * cos[a] + (s - middle) * sin[a]
        x = middle - (t - middle) * sin[a] + (s - middle) * cos[a]
        return te.sum(between(image, y, x), axis=t)

    sinogram: te.Tensor = te.compute((ANGLES, SIZE), integral, name="sinogram")
    return sinogram


def between(image: te.Tensor, y: te.Expr, x: te.Expr) -> Any:
    """The image at a place among four pixels, 0 outside."""
    v, u = y - te.floor(y), x - te.floor(x)
    i, j = te.cast(te.floor(y), "int32"), te.cast(te.floor(x), "int32")
    above = (1 - u) * image.at(i, j, mode="zero") + u * image.at(i, j + 1, mode="zero")
    below = (1 - u) * image.at(i + 1, j, mode="zero") + u * image.at(i + 1, j + 1, mode="zero")
    return (1 - v) * above + v * below


@te.jit
def step(image: te.Tensor, along: te.Tensor, rest: te.Tensor, before: te.Tensor) -> tuple[te.Tensor, ...]:
    """From the last direction, what of the sinogram is not explained yet, and the gradient squared before."""
    slope = te.differentiate(project(image), image, head=rest)
    square = (slope**2).sum()
    along = slope + square / before * along
    change = project(along)
    size = square / (change**2).sum()
    return image + size * along, along, rest - size * change, square


def start() -> tuple[Any, Any]:
    """A head of ellipses, after Shepp and Logan, and a first state that knows its sinogram alone."""
    y, x = np.mgrid[-1 : 1 : SIZE * 1j, -1 : 1 : SIZE * 1j]
    ellipses = [(1, 0, 0, 0.9, 0.7), (-0.8, 0, 0, 0.8, 0.6), (0.6, -0.3, 0.1, 0.2, 0.3), (0.3, 0.3, -0.2, 0.4, 0.2)]
    head = sum(c * (((y - v) / h) ** 2 + ((x - u) / w) ** 2 < 1) for c, v, u, h, w in ellipses).astype("float32")
    nothing = np.zeros((SIZE, SIZE), "float32")
    return head, (nothing, nothing, te.jit(project)(head), np.float32(1))


def main(steps: int = 30) -> list[float]:
    head, state = start()
    losses = []
    for _ in range(steps):
        losses.append(float((state[2] ** 2).mean()))
        state = step(*state)
    for row in state[0][::4, ::2]:
        print("".join(" .:-=+*#%@"[int(np.clip(10 * v, 0, 9))] for v in row))
    print(f"mean squared error of the sinogram {losses[0]:.1f} -> {losses[-1]:.1e}")
    print(f"mean error of a pixel {np.abs(state[0] - head).mean():.3f}")
    return losses


if __name__ == "__main__":
    main()
