"""Places made of bits and of rounded quotients by stages of their own, looked up in rows of what is computed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import tedsl as te
from tests.schedules.comparison import compare

RANDOM = np.random.default_rng(41)
# By a warning, which is an error here, a program says that Halide refuses its default schedule.
SHAPES = [(2, 3, 8, 8), (1, 1, 28, 28), (4, 16, 14, 14), (8, 6, 24, 24), (2, 3, 11, 13)]


def floats(*shape: int) -> np.ndarray[Any, Any]:
    return RANDOM.standard_normal(shape).astype(np.float32)


def pooled(x: te.Tensor, size: int = 2, stride: int = 2, padding: int = 0) -> te.Tensor:
    """The greatest elements, looked up by their places in the row of an image."""
    b, c, height, width = x.shape
    rows, columns = ((n + 2 * padding - size) // stride + 1 for n in (height, width))
    p, q = te.reduce_axis(size, name="p"), te.reduce_axis(size, name="q")

    def best(b: Any, c: Any, i: Any, j: Any) -> Any:
        y, x0 = i * stride - padding + p, j * stride - padding + q
        return te.argmax(x[b, c, y, x0], (p, q), (y >= 0) & (y < height) & (x0 >= 0) & (x0 < width))

    shape = (b, c, rows, columns)
    winner = te.compute(shape, best, name="winner")

    def place(b: Any, c: Any, i: Any, j: Any) -> Any:
        w = winner[b, c, i, j]
        return (i * stride - padding + w // size) * width + (j * stride - padding + w % size)

    places, flat = te.compute(shape, place, name="places"), te.reshape(x, (b, c, height * width))
    return te.compute(shape, lambda b, c, i, j: flat[b, c, places[b, c, i, j]], name="pooled")


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("window", [(2, 2, 0), (3, 2, 1), (2, 1, 0)])
def test_greatest_elements_in_one_row(shape: Sequence[int], window: tuple[int, int, int]) -> None:
    x = te.placeholder(shape, name="x")
    made = pooled(te.relu(x), *window)
    y = te.reshape(made, (shape[0], int(np.prod(made.shape[1:]))))
    compare([x], [y], [floats(*shape)])


def test_of_any_number_of_images() -> None:
    x = te.placeholder((te.var("n"), 6, 14, 14), name="x")
    y = te.reshape(pooled(te.relu(x)), (x.shape[0], 6 * 49))
    compare([x], [y], [floats(5, 6, 14, 14)])


PLACES: dict[str, Any] = {
    "bits": lambda i, j, code: (code & 7) * 16 + (code >> 3 & 15),
    "quotients": lambda i, j, code: (code // 16 % 8) * 16 + code % 16,
    "bits beside loops": lambda i, j, code: (i % 4 + (code & 3)) * 16 + (j % 8 + (code >> 2 & 7)),
    "exclusive": lambda i, j, code: (j % 64) ^ (code & 63),
    "unsigned": lambda i, j, code: te.cast(te.cast(code, "uint32") % 128, "int32"),
    "rounded": lambda i, j, code: te.cast(te.floor(te.abs(te.sin(te.cast(code, "float32"))) * 127), "int32"),
}


@pytest.mark.parametrize("row", PLACES)
@pytest.mark.parametrize("stages", [1, 2])
def test_a_gather_that_is_seen_in_another_shape(row: str, stages: int) -> None:
    """By places of a stage, or of a stage of which the stage of places is made."""
    x, codes = te.placeholder((5, 8, 16), name="x"), te.placeholder((12, 40), "int32", name="codes")
    places = te.compute((12, 40), lambda i, j: PLACES[row](i, j, codes[i, j]), name="places")
    for k in range(stages - 1):
        places = te.compute((12, 40), lambda i, j, p=places: 127 - p[i, j], name=f"places{k}")
    flat = te.reshape(te.relu(x), (5, 128))
    taken = te.compute((5, 12, 40), lambda b, i, j: flat[b, places[i, j]], name="taken")
    inputs = [x, codes]
    arrays = [floats(5, 8, 16), RANDOM.integers(-(2**31), 2**31, (12, 40)).astype(np.int32)]
    compare(inputs, [te.reshape(taken, (5, 480) if stages == 1 else (2400,))], arrays)
