"""Pointwise results of short rows in full vectors, and vectors of places under quotients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import tedsl as te
from schedules.flattening import flattened


def numbers(shape: tuple[int, ...], seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def channels(shape: tuple[int, ...], kept: tuple[bool, ...]) -> tuple[list[te.Tensor], te.Tensor]:
    """A tensor, and another one that lacks some axes."""
    x, c = te.placeholder(shape, name="x"), te.placeholder([n for n, k in zip(shape, kept, strict=True) if k], name="c")

    def element(*at: Any) -> Any:
        return te.exp(x[at] * c[tuple(i for i, k in zip(at, kept, strict=True) if k)])

    return [x, c], te.compute(shape, element, name="y")


@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_drawn(data: st.DataObject) -> None:
    """Results and gradients of short rows beside what lacks any of their axes, in any layout, written and added."""
    shape = (*data.draw(st.sampled_from(((), (3,), (5, 2)))), data.draw(st.sampled_from((4, 17, 40))))
    shape = (*shape, data.draw(st.sampled_from((2, 3, 5, 7, 8, 12, 15))))
    kept = tuple(data.draw(st.booleans()) for _ in shape)
    inputs, y = channels(shape, kept)
    head = te.placeholder(shape, name="head")
    outputs = [y, *te.differentiate(y, inputs, head=head)]
    arrays = [numbers(tuple(t.shape), k) for k, t in enumerate((*inputs, head))]
    want = te.interpret(outputs, dict(zip((*inputs, head), arrays, strict=True)))
    kernel = te.build([*inputs, head], outputs)
    wide = numbers((*shape[:-1], shape[-1] + 1), 9)
    wide[..., 1:] = arrays[0]
    for first in (arrays[0], wide[..., 1:]):
        for found, expected in zip(kernel(first, *arrays[1:]), want, strict=True):
            np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5 * max(1, np.abs(expected).max()))
    out = [np.ones_like(a) for a in want]
    kernel(*arrays, out=out, mode="add")
    np.testing.assert_allclose(out[0], want[0] + 1, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kept", [(False, False, True), (True, False, True), (True, True, False), (True, False, False)])
def test_full_vectors(kept: tuple[bool, ...]) -> None:
    """Three channels are loaded and stored without masks, and nothing is looked up."""
    text = te.build(*channels((16, 160, 3), kept), target="x86-64-v3").source("asm")
    assert "%ymm" in text
    assert "vmaskmov" not in text
    assert "gather" not in text


def test_what_is_not_flattened() -> None:
    """Wide rows, rows that are read across, results that others read, reductions."""
    x, c = te.placeholder((40, 30, 3), name="x"), te.placeholder((3,), name="c")
    scaled = te.compute((40, 30, 3), lambda i, j, k: x[i, j, k] * c[k], name="scaled")
    assert flattened([x, c], [scaled]) is not None
    assert flattened([x, c], [scaled, te.compute((40, 30), lambda i, j: scaled[i, j, 0])]) is None
    turned = te.placeholder((3, 40, 30), name="turned")
    assert flattened([turned], [te.compute((40, 30, 3), lambda i, j, k: turned[k, i, j])]) is None
    assert flattened([x], [x.sum(0)]) is None
    wide = te.placeholder((40, 30, 24), name="wide")
    assert flattened([wide], [te.compute((40, 30, 24), lambda i, j, k: wide[i, j, k] * wide[0, 0, k])]) is None


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("rows", [(40, 67), (4003,), ("n", 67), (40, "m")])
def test_short_rows_of_which_others_read_a_part(rows: tuple[int | str, ...], count: int) -> None:
    """Vectors lie along the axis before, the last one is written out."""
    sizes = {n: te.var(n) for n in rows if isinstance(n, str)}
    x = te.placeholder([*(sizes.get(n, n) for n in rows), count], name="x")  # type: ignore[arg-type]
    power = (x**2.2).named("power")
    kernel = te.build([x], [power, power[..., 0] * 2 + power[..., 1]], target="x86-64-v3")
    assert "vectorized k" not in str(te.Schedule([power, power[..., 0] * 2]).auto(target="x86-64-v3"))
    a = abs(numbers((*(n if isinstance(n, int) else 53 for n in rows), count)))
    for found, want in zip(kernel(a), (a**2.2, a[..., 0] ** 2.2 * 2 + a[..., 1] ** 2.2), strict=True):
        np.testing.assert_allclose(found, want, rtol=2e-6)


@pytest.mark.parametrize(("count", "lanes"), [(5, 8), (7, 8), (9, 16), (15, 16), (20, 16)])
def test_rows_of_less_than_a_vector_are_one_masked_vector(count: int, lanes: int) -> None:
    x = te.placeholder((40, 60, count), name="x")
    power = (x**2.2).named("power")
    assert f"k_v < {lanes}, vectorized" in str(te.Schedule([power, power[..., 0] * 2]).auto(target="x86-64-v4"))
    a = abs(numbers((40, 60, count)))
    for found, want in zip(te.build([x], [power, power[..., 0] * 2])(a), (a**2.2, a[..., 0] ** 2.2 * 2), strict=True):
        np.testing.assert_allclose(found, want, rtol=2e-6)


@pytest.mark.parametrize("by", [3, 5, 6, 7])
def test_quotients_by_lane(by: int) -> None:
    """Larger by so much: as many vectors as it takes until quotients begin anew, each a few elements and a shuffle."""
    x = te.placeholder((3, 24, 56), name="x")
    y = te.compute((3, 24 * by, 56 * by - 1), lambda c, i, j: x[c, i // by, j // by], name="y")
    assert "gather" not in te.build([x], y, target="x86-64-v3").source("asm")
    a = numbers((3, 24, 56))
    np.testing.assert_array_equal(te.build([x], y)(a), a.repeat(by, 1).repeat(by, 2)[..., :-1])


@pytest.mark.parametrize("shape", [(700, 2), (40, 30, 3), (900,)])
def test_short_rows_of_many_tensors_are_written_out(shape: tuple[int, ...]) -> None:
    """Stacked along the last axes, every element is read from the one tensor that has it."""
    tensors = [te.placeholder(shape, name=f"x{k}") for k in range(3)]
    arrays = [numbers(shape, k) for k in range(3)]
    for axis in {max(1, len(shape) - 1), len(shape)}:
        y = te.stack(tensors, axis)
        assert "unrolled" in str(te.Schedule([y]).auto())
        np.testing.assert_array_equal(te.build(tensors, y)(*arrays), np.stack(arrays, axis))
