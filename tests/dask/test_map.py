"""Operators over Dask arrays equal operators over the whole arrays, forward and gradient, however they are chunked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import tedsl as te
from tests.dask.cases import CASES, Case

da = pytest.importorskip("dask.array")
dask = pytest.importorskip("dask")
work = pytest.importorskip("tedsl.dask.work")

Array = np.ndarray[Any, Any]


@pytest.fixture(autouse=True)
def in_this_thread() -> Iterator[None]:
    with dask.config.set(scheduler="synchronous"):
        yield


def interpreted(inputs: list[te.Tensor], outputs: list[te.Tensor], name: str) -> Callable[..., Any]:
    """In place of a kernel: the reference, which needs no compiler."""
    return lambda *arrays: te.interpret(outputs, dict(zip(inputs, arrays, strict=True)))


@st.composite
def chunkings(draw: Any, shape: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Chunks along one dimension or two, of any sizes."""
    wide = [dim for dim, extent in enumerate(shape) if extent > 1]
    split = draw(st.lists(st.sampled_from(wide), min_size=1, max_size=2, unique=True))
    chunks = []
    for dim, extent in enumerate(shape):
        places = st.lists(st.integers(1, max(extent - 1, 1)), min_size=1, max_size=2, unique=True)
        cuts = draw(places) if dim in split else []
        edges = [0, *sorted(cuts), extent]
        chunks.append(tuple(b - a for a, b in pairwise(edges)))
    return tuple(chunks)


def some_chunks(shape: tuple[int, ...], rng: np.random.Generator) -> tuple[tuple[int, ...], ...]:
    """Three chunks along the last dimension, two along another."""
    chunks = [(extent,) for extent in shape]
    for dim, count in ((len(shape) - 1, 3), (int(rng.integers(len(shape))), 2)):
        cuts = np.sort(rng.permutation(np.arange(1, shape[dim]))[: count - 1])
        edges = [0, *map(int, cuts), shape[dim]]
        chunks[dim] = tuple(b - a for a, b in pairwise(edges))
    return tuple(chunks)


def mapped_equals_whole(case: Case, chunks: Callable[[tuple[int, ...]], Any]) -> None:
    arrays = case.arrays()
    chunked = [da.from_array(a, chunks=chunks(a.shape)) for a in arrays]
    outputs, inputs = case.program()
    feeds: dict[te.Tensor, Array] = dict(zip(inputs, arrays, strict=True))
    expected = te.interpret(list(outputs), feeds)
    results, pull = te.dask.vjp(case.op, *chunked, **case.static)
    results = results if isinstance(results, tuple) else (results,)
    for result, value in zip(dask.compute(*results), expected, strict=True):
        np.testing.assert_allclose(result, value, rtol=1e-12, atol=1e-12)
    heads = [te.placeholder(t.shape, t.dtype, name="head") for t in outputs]
    values = [np.random.default_rng(k).integers(-3, 4, t.shape).astype("float64") for k, t in enumerate(outputs)]
    gradients = te.differentiate(list(outputs), list(inputs), head=heads)
    wanted = te.interpret(list(gradients), {**feeds, **dict(zip(heads, values, strict=True))})
    found = pull(*values)
    found = found if isinstance(found, tuple) else (found,)
    for gradient, value in zip(dask.compute(*found), wanted, strict=True):
        np.testing.assert_allclose(gradient, value, rtol=1e-11, atol=1e-11)


@pytest.mark.share(2)
@pytest.mark.parametrize("case", CASES[::2], ids=str)
def test_stencils_and_convolutions(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "_kernel", interpreted)
    rng = np.random.default_rng(CASES.index(case))
    mapped_equals_whole(case, lambda shape: some_chunks(shape, rng))


@pytest.mark.long
@pytest.mark.parametrize("case", CASES, ids=str)
@settings(max_examples=20)
@given(data=st.data())
def test_stencils_and_convolutions_over_many_chunkings(case: Case, data: st.DataObject) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(work, "_kernel", interpreted)
        mapped_equals_whole(case, lambda shape: data.draw(chunkings(shape)))


def test_compiled_blocks_equal_the_compiled_whole() -> None:
    x = np.random.default_rng(0).integers(-4, 5, (50, 40)).astype("float32")
    head = np.random.default_rng(1).integers(-4, 5, (50, 40)).astype("float32")
    result, pull = te.dask.vjp(second_difference, da.from_array(x, chunks=(16, 20)))
    np.testing.assert_array_equal(result.compute(), second_difference(x))
    A, H = te.placeholder(x.shape), te.placeholder(x.shape)
    gradient = te.build([A, H], te.differentiate([second_difference(A)], [A], [H])[0])
    np.testing.assert_array_equal(pull(head).compute(), gradient(x, head))


@te.op
def second_difference(x: te.Tensor) -> te.Tensor:
    return te.compute(x.shape, lambda i, j: x.at(i - 1, j, mode="wrap") - 2.0 * x[i, j] + x.at(i + 1, j, mode="wrap"))


@te.op
def place(x: te.Tensor) -> te.Tensor:
    return te.compute(x.shape, lambda i: x[i] + te.cast(i * i, "float32"))


def test_blocks_at_equal_distance_from_the_borders_share_a_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "_KERNELS", {})
    x = np.arange(100.0, dtype="float32").reshape(20, 5)
    np.testing.assert_array_equal(
        te.dask.map(second_difference, da.from_array(x, chunks=(2, 5))).compute(), second_difference(x)
    )
    assert len(work._KERNELS) == 3  # first, last, and all between


def test_the_place_of_a_block_is_an_input_where_it_is_a_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "_KERNELS", {})
    x = np.arange(12.0, dtype="float32")
    np.testing.assert_array_equal(te.dask.map(place, da.from_array(x, chunks=3)).compute(), place(x))
    assert len(work._KERNELS) == 2  # the first block, which begins at 0, and the others


def test_an_operator_takes_dask_arrays_as_any_others() -> None:
    x = da.from_array(np.ones((6, 4), "float32"), chunks=(2, 4))
    result = second_difference(x)
    assert isinstance(result, da.Array)
    assert result.chunks == ((2, 2, 2), (4,))
    np.testing.assert_array_equal(result.compute(), np.zeros((6, 4)))
    with pytest.raises(TypeError, match="out= and mode= are for arrays in memory"):
        second_difference(x, out=np.empty((6, 4), "float32"))


def test_sums_over_chunks_are_combined() -> None:
    x = np.random.default_rng(0).integers(-4, 5, (13, 7)).astype("float64")
    y = np.random.default_rng(1).integers(-4, 5, (13, 7)).astype("float64")
    chunked = [da.from_array(a, chunks=(4, 3)) for a in (x, y)]
    loss, pull = te.dask.vjp(te.ops.mse_loss, *chunked)
    np.testing.assert_allclose(loss.compute(), ((x - y) ** 2).mean(), rtol=1e-14)
    dx, dy = dask.compute(*pull())
    np.testing.assert_allclose(dx, 2 * (x - y) / x.size, rtol=1e-14)
    np.testing.assert_allclose(dy, -dx, rtol=1e-14)


@pytest.mark.parametrize("kind", ["max", "min", "prod", "sum"])
def test_every_reduction_is_combined(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "_kernel", interpreted)
    x = np.random.default_rng(0).integers(1, 4, (9, 5)).astype("float64")
    operator = te.op(lambda a: getattr(a, kind)(0), name=kind)
    result = te.dask.map(operator, da.from_array(x, chunks=(2, 5)))
    np.testing.assert_array_equal(result.compute(), getattr(x, kind)(0))


def test_a_reducer_of_the_user_is_combined_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "_kernel", interpreted)
    last = te.reducer(lambda a, b: te.select(b == b, b, a), float("nan"))
    operator = te.op(lambda x: te.compute((), lambda: last(x[k := te.reduce_axis(10)], axis=k)), name="last")
    assert te.dask.map(operator, da.from_array(np.arange(10.0), chunks=3)).compute() == 9.0


def test_a_scatter_is_combined_from_what_it_starts_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "_kernel", interpreted)
    rng = np.random.default_rng(0)
    x, index, values = rng.random(5), rng.integers(0, 5, 20).astype("int32"), rng.random(20)
    expected = x.copy()
    np.add.at(expected, index, values)
    found = te.dask.map(te.ops.index_add, x, 0, da.from_array(index, chunks=6), da.from_array(values, chunks=6))
    np.testing.assert_allclose(found.compute(), expected, rtol=1e-14)


def refused(operator: Any, *arrays: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        te.dask.map(operator, *arrays)


def test_what_needs_a_whole_axis_is_refused_with_the_read() -> None:
    x = da.zeros((8, 4), chunks=(4, 4), dtype="float32")
    index = np.zeros((8, 4), "int32")
    by_data = te.op(lambda x, at: te.compute(x.shape, lambda i, j: x[at[i, j], j], name="y"), name="by_data")
    refused(by_data, x, index, match=r"stage 'y' .* reads `x\[at\[i, j\], j\]`, where data say .* x.rechunk")
    refused(te.op(lambda x: x.argmax(0), name="top"), x, match="takes te.argmax over")
    running = te.op(lambda x: te.cumsum(x, 0), name="running")
    refused(running, x, match="is a te.scan whose steps need all of its axis")
    outside = te.op(lambda x: te.extern(np.sin, x.shape, x.dtype, [x]), name="outside")
    refused(outside, x, match="is a Python function of all of")
    np.testing.assert_array_equal(te.dask.map(by_data, x.rechunk({0: -1}), index).compute(), np.zeros((8, 4)))


def test_bad_arguments_are_refused() -> None:
    x = da.zeros((4, 4), chunks=2, dtype="float32")
    with pytest.raises(TypeError, match=r"expected an operator \(te.op\), found function"):
        te.dask.map(lambda x: x, x)
    with pytest.raises(TypeError, match="no argument is an array"):
        te.dask.map(te.ops.relu, 3.0)
    with pytest.raises(TypeError, match=r"argument 'x': .*complex"):
        te.dask.map(te.ops.relu, x.astype("complex64"))
    unknown = da.from_array(np.arange(6.0), chunks=2)
    with pytest.raises(ValueError, match="compute_chunk_sizes"):
        te.dask.map(te.ops.relu, unknown[unknown > 2])
    _, pull = te.dask.vjp(te.ops.relu, x)
    with pytest.raises(ValueError, match="expected 1 heads, one for each float result, found 0"):
        pull()
    with pytest.raises(ValueError, match=r"head 0: expected float32 of shape \(4, 4\), found float64"):
        pull(np.ones((4, 4)))
