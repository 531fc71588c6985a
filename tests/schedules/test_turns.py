"""Results along which indices go round are seen with an axis for the turns, and nothing but speed tells."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tedsl as te
from schedules.turns import by_turns
from tedsl.backend.compiling.forms import MERGED

CHANCE = np.random.default_rng(3)


def place(name: str, *shape: int, dtype: str = "float32") -> te.Tensor:
    made: te.Tensor = te.placeholder(shape, dtype, name=name)
    return made


def whole(tensor: te.Tensor) -> np.ndarray[Any, Any]:
    return CHANCE.integers(-4, 5, [int(n) for n in tensor.shape]).astype(str(tensor.dtype))


def tiled(dtype: str = "float32") -> tuple[list[te.Tensor], te.Tensor]:
    x = place("x", 5, 11, dtype=dtype)
    return [x], te.tile(x, (3, 4))


def product() -> tuple[list[te.Tensor], te.Tensor]:
    a, b = place("a", 4, 3), place("b", 5, 9)
    return [a, b], te.kron(a, b)


def by_columns() -> tuple[list[te.Tensor], te.Tensor]:
    x, c = place("x", 6, 36), place("c", 12)
    return [x, c], te.compute((5, 36), lambda i, j: x[i + 1, j] * c[j % 12] + i + j, name="y")


def moved() -> tuple[list[te.Tensor], te.Tensor]:
    x = place("x", 5, 11)
    body = lambda i, j: x[(i + 2) % 5, (j - 3) % 11] + x[i % 5, (j + 1) % 11] * ((j - 3) // 11 + (i + 2) // 5)  # noqa: E731
    return [x], te.compute((15, 44), body, name="y")


CASES = {
    "tile": (tiled, (3, 5, 4, 11)), "doubles": (lambda: tiled("float64"), (3, 5, 4, 11)),
    "bytes": (lambda: tiled("int8"), (3, 5, 4, 11)), "kron": (product, (4, 5, 3, 9)),
    "columns": (by_columns, (5, 3, 12)), "moved": (moved, (3, 5, 4, 11)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_arrays_of_any_layout_give_the_same(name: str) -> None:
    (inputs, y), shape = CASES[name][0](), CASES[name][1]
    found = by_turns(inputs, [y])
    assert found is not None
    assert found.outputs[0].shape == shape
    arrays = [whole(t) for t in inputs]
    want = te.interpret(y, dict(zip(inputs, arrays, strict=True)))
    kernel = te.build(inputs, y)
    np.testing.assert_array_equal(kernel(*arrays), want)
    assert {form.layout for form in kernel.core.forms.variants} == {MERGED}
    across = np.empty(want.shape[::-1], want.dtype).T
    np.testing.assert_array_equal(kernel(*arrays, out=across), want)
    np.testing.assert_array_equal(kernel(*map(np.asfortranarray, arrays)), want)
    out = want.copy()
    np.testing.assert_array_equal(kernel(*arrays, out=out, mode="add"), want + want)


def sliced(guide_at: Any) -> list[te.Tensor]:
    grid, guide = place("grid", 12, 8, 16), place("guide", 64, 128, dtype="int32")
    body = lambda c, i, j: grid.at(c, guide[guide_at(i, j)], j // 16, mode="clamp") * te.cast(j % 16 - 7, "float32")  # noqa: E731
    return [grid, guide, te.compute((12, 64, 128), body, name="y")]


def test_what_is_looked_up_element_by_element_keeps_its_rows() -> None:
    grid, guide, y = sliced(lambda i, j: (i, j))
    assert by_turns([grid, guide], [y]) is None
    grid, guide, y = sliced(lambda i, j: (i, j // 16))
    made = by_turns([grid, guide], [y])
    assert made is not None
    assert made.outputs[0].shape == (12, 64, 8, 16)


@pytest.mark.parametrize("keyword", ["alias", "donate"])
def test_results_in_the_memory_of_inputs(keyword: str) -> None:
    x, c = place("x", 6, 36), place("c", 12)
    y = te.compute((6, 36), lambda i, j: x[i, j] * c[j % 12], name="y")
    options: dict[str, Any] = {"alias": {y: x}} if keyword == "alias" else {"donate": [x]}
    a, b = whole(x), whole(c)
    want = te.interpret(y, {x: a, c: b})
    np.testing.assert_array_equal(te.build([x, c], y, **options)(a, b), want)


def test_a_tile_beside_what_it_is_made_of() -> None:
    x = place("x", 5, 11)
    y, z = te.tile(x, (3, 4)), x * 2.0
    a = whole(x)
    for got, want in zip(te.build([x], [y, z])(a), te.interpret([y, z], {x: a}), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    "body",
    [
        lambda x, i, j: x[i % 4, j],  # rows as they lie
        lambda x, i, j: x[i, j % 16 // 2],  # another turn
        lambda x, i, j: x[i, (j + 1) % 16],  # from another place on
        lambda x, i, j: x[i, j % 14],  # no whole turns
    ],
)
def test_what_gains_nothing_stays(body: Any) -> None:
    x = place("x", 8, 32)
    assert by_turns([x], [te.compute((8, 32), lambda i, j: body(x, i, j))]) is None
