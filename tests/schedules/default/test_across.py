"""Reductions that read memory across the lanes of their result, which is turned, or what they read of tables."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tedsl as te
from schedules.machine import Machine
from tedsl.lang.tensor import Placeholder
from tedsl.lang.traverse import stages_of
from tests.levels import LEVELS_HERE

CHANCE = np.random.default_rng(0)
X = te.placeholder((2, 20, 21, 16), name="X")
W, V = te.placeholder((16, 3, 3), name="W"), te.placeholder((3, 16, 3), name="V")
G = te.placeholder((2, 18, 19, 16), name="G")


def filtered(weight: Callable[..., Any]) -> te.Tensor:
    return te.compute(
        (2, 18, 19, 16),
        lambda b, i, j, c: te.sum(lambda u, v: X[b, i + u, j + v, c] * weight(c, u, v)),
        name="Y",
    )


PROGRAMS: dict[str, Callable[[], te.Tensor]] = {
    "filters": lambda: filtered(lambda c, u, v: W[c, u, v]),
    "filters between": lambda: filtered(lambda c, u, v: V[u, c, v]),
    "largest": lambda: te.compute(
        (2, 18, 19, 16),
        lambda b, i, j, c: te.max(
            lambda u, v: X[b, i + u, j + v, c] + W[c, u, v], axis=[te.reduce_axis(3), te.reduce_axis(3)]
        ),
        name="Y",
    ),
    "gradient": lambda: te.compute(
        (16, 3, 3), lambda c, u, v: te.sum(lambda b, i, j: G[b, i, j, c] * X[b, i + u, j + v, c]), name="Y"
    ),
    "gradient in the middle": lambda: te.compute(
        (3, 16, 3), lambda u, c, v: te.sum(lambda b, i, j: G[b, i, j, c] * X[b, i + u, j + v, c]), name="Y"
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_vectors_lie_along_memory(name: str) -> None:
    output = PROGRAMS[name]()
    text = str(te.Schedule(output).auto())
    assert "for c_v < 8, vectorized" in text or "for c_v < 16, vectorized" in text
    inputs = [op.output() for op in stages_of([output]) if isinstance(op, Placeholder)]
    feeds = {t: CHANCE.integers(-4, 5, tuple(int(e.value) for e in t.extents)).astype("f4") for t in inputs}
    np.testing.assert_array_equal(te.build(inputs, output)(*feeds.values()), te.interpret(output, feeds))


@pytest.mark.parametrize("place", [2, 3])
def test_an_axis_of_one_iteration_leaves_no_tiles_out(place: int) -> None:
    """The gradient of filters of one channel each: without tiles it took six times as long."""

    def term(u: Any, v: Any, c: Any) -> Any:
        return te.sum(lambda b, i, j: G[b, i, j, c] * X[b, i + u, j + v, c])

    plain = te.compute((3, 3, 16), term, name="Y")
    if place == 2:
        output = te.compute((3, 3, 1, 16), lambda u, v, _, c: term(u, v, c), name="Y")
    else:
        output = te.compute((3, 3, 16, 1), lambda u, v, c, _: term(u, v, c), name="Y")
    loops, own = ([s.strip() for s in str(te.Schedule(y).auto()).split("\n")] for y in (plain, output))
    assert [s for s in loops if s.startswith("for v") and "unrolled" in s]
    assert {s for s in loops if s.startswith("for")} <= set(own)
    feeds = {t: CHANCE.integers(-4, 5, tuple(int(e.value) for e in t.extents)).astype("f4") for t in (X, G)}
    np.testing.assert_array_equal(te.build([X, G], output)(*feeds.values()), te.interpret(output, feeds))


def test_what_is_large_or_read_at_data_stays_as_it_lies() -> None:
    a, b = te.placeholder((64, 90), name="a"), te.placeholder((90, 64), name="b")
    beside = te.compute((90,), lambda i: te.sum(lambda k: te.exp(a[k, i] + b[i, k])), name="beside")
    assert "beside_b" not in te.Schedule(beside).auto().stages
    index = te.placeholder((9,), "int32", name="index")
    looked = te.compute(
        (2, 18, 19, 16),
        lambda b, i, j, c: te.sum(lambda u: X[b, i + u, te.clip(index[u], 0, 20), c] * W[c, u, 0]),
        name="looked",
    )  # fmt: skip
    assert "looked_W" not in te.Schedule(looked).auto().stages


@pytest.mark.parametrize("shape", [(24, 100), (37, 70), (3, 21, 130), (3, 50)])
def test_rows_that_are_folded_in_a_way_of_their_own_are_lanes(shape: tuple[int, ...]) -> None:
    """Their terms keep their order: the bits are those of the plain loops. A few rows stay as they are."""
    x = te.placeholder(shape, name="x")
    feeds = {x: np.random.default_rng(1).standard_normal(shape).astype("f4")}
    y, _ = te.ops.welford(x)
    schedule = te.Schedule([y]).auto()
    assert ("count_mean_squares_x" in str(schedule)) == (shape[-2] >= 4)
    plain = te.Schedule([y])
    plain["count"].compute_root()
    found = te.build([x], y)(*feeds.values())
    np.testing.assert_array_equal(found, te.build([x], y, schedule=plain)(*feeds.values()))
    np.testing.assert_allclose(found, te.interpret(y, feeds), rtol=1e-5)


def test_what_is_turned_is_what_is_read() -> None:
    """One column of three, wherever it lies, and of it the rows that are read."""
    p, m = te.placeholder((35, 3), name="p"), te.placeholder((30, 30), name="m")
    rows = te.reduce_axis(30, name="k")
    output = te.compute((30,), lambda i: te.sum(m[rows, i] * (p[rows, 2] - p[i + 5, 2]), axis=rows), name="Y")
    made = {name: op for name, op in te.Schedule(output).auto().plan.program.stages.items() if name == "Y_p"}
    assert [op.output().shape for op in made.values()] == [(1, 30)]
    feeds = {t: CHANCE.integers(-4, 5, t.shape).astype("f4") for t in (p, m)}
    np.testing.assert_array_equal(te.build([p, m], output)(*feeds.values()), te.interpret(output, feeds))


@pytest.mark.share(7)
@pytest.mark.parametrize("target", ["host", "x86-64-v3"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "uint8"])
@pytest.mark.parametrize(("rows", "short"), [((4000,), 12), ((131,), 3), ((7, 150), 5), ((3, 9, 70), 15), ((65,), 2)])
def test_short_rows_are_turned_piece_by_piece(rows: tuple[int, ...], short: int, dtype: str, target: str) -> None:
    """Element by element of the rows, all of memory was read as often as these are long."""
    x = te.placeholder((*rows, short), dtype, name="x")
    *outer, last = rows
    y = te.compute((*outer, short, last), lambda *at: x[(*at[:-2], at[-1], at[-2])] * 2, name="y")
    z = te.compute((short, *rows), lambda j, *at: x[(*at, j)], name="z")
    a = (CHANCE.random(x.shape) * 100).astype(dtype)
    for result, want in ((y, np.moveaxis(a, -1, -2) * np.asarray(2, dtype)), (z, np.moveaxis(a, -1, 0))):
        kernel = te.build([x], result, target=target)
        np.testing.assert_array_equal(kernel(a), want)
        loops = [line.strip() for line in str(te.Schedule(result).auto(target=target)).splitlines()]
        element = result.op.axes[-2 if result is y else 0].name
        around = loops.index(f"for {element} < {short}:")
        assert "_q < " in loops[around + 1]  # several vectors for each element


def test_one_thread_turns_many_tiles_at_a_time() -> None:
    """A task of 16 columns took less time than it took to begin."""
    x = te.placeholder((100_000, 16), name="x")
    y = te.compute((16, 100_000), lambda j, i: x[i, j], name="y")
    machine = Machine(vector_bytes=64, vector_registers=32, l1=1 << 15, l2=1 << 20, l3=1 << 23, cores=4).to_json()
    (tasks,) = re.findall(r"for \S+ < (\d+), parallel", str(te.Schedule(y).auto(machine=machine)))
    assert int(tasks) <= 64


@pytest.mark.parametrize("short", [9, 20])
def test_rows_are_turned_where_the_last_axis_has_one_element(short: int) -> None:
    x = te.placeholder((7, 300, 1, short), name="x")
    y = te.compute((7, short, 300, 1), lambda b, j, i, u: x[b, i, u, j] + 1.0, name="y")
    a = CHANCE.random(x.shape, "float32")
    np.testing.assert_array_equal(te.build([x], y)(a), np.moveaxis(a, -1, 1) + np.float32(1))


def moved(n: int, width: int, *, spelled: str) -> te.Tensor:
    """What weighted differences of rows come to, summed down the weights' columns."""
    x, g = te.placeholder((n, width), name="x"), te.placeholder((n, n), name="g")
    if spelled == "stages":
        return ((x[:, None] - x[None]) * g[:, :, None]).sum(0)
    return te.compute((n, width), lambda i, c: te.sum(lambda j: (x[j, c] - x[i, c]) * g[j, i]))


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("spelled", ["indices", "stages"])
@pytest.mark.parametrize("width", [2, 3])
def test_beside_narrow_rows_vectors_lie_along_what_is_large(width: int, spelled: str, target: str) -> None:
    """Vectors of two or three lanes took fifteen times as long."""
    output = moved(70, width, spelled=spelled)
    text = str(te.Schedule(output).auto(target=target))
    assert f"i_v < {8 if target == 'x86-64-v3' else 16}, vectorized" in text
    inputs = sorted((op.output() for op in stages_of([output]) if isinstance(op, Placeholder)), key=lambda t: t.op.name)
    feeds = {t: CHANCE.integers(-4, 5, t.shape).astype("f4") for t in inputs}
    np.testing.assert_array_equal(te.build(inputs, output)(*feeds.values()), te.interpret(output, feeds))


def test_narrow_rows_of_what_is_large_stay_rows() -> None:
    w, g = te.placeholder((70, 70, 3), name="w"), te.placeholder((70, 70), name="g")
    assert "_across" not in str(te.Schedule((w * g[:, :, None]).sum(0)).auto(target="x86-64-v4"))


def few_by_few(kind: str, dtype: str) -> tuple[list[te.Tensor], te.Tensor]:
    """Sums of many terms to a few elements, of arrays in which the terms lie apart."""
    x, y = te.placeholder((90, 700, 3), dtype, name="x"), te.placeholder((90, 700, 2), dtype, name="y")
    w = te.placeholder((700,), dtype, name="w")
    if kind == "products":
        return [x, y], te.compute((3, 2), lambda i, j: te.sum(lambda b, k: x[b, k, i] * y[b, k, j]), name="d")
    if kind == "batches":
        return [x, y], te.compute((90, 3, 2), lambda b, i, j: te.sum(lambda k: x[b, k, i] * y[b, k, j]), name="d")
    if kind == "weighted":
        return [x, w], te.compute((3, 3), lambda i, j: te.sum(lambda k: x[4, k, i] * x[4, k, j] * w[k]), name="d")
    if kind == "largest":
        return [x, y], te.compute((3, 2), lambda i, j: te.max(lambda k: x[7, k, i] - y[3, k, j]), name="d")
    assert kind in ("windows", "steps")
    step = 1 if kind == "windows" else 2

    def tap(i: Any, j: Any, u: Any, v: Any) -> Any:
        places = te.reduce_axis(90 // step), te.reduce_axis(700 // step)
        b, k = places
        return te.sum(y[b, k, j] * x.at(b * step + u - 1, k * step + v - 1, i, mode="zero"), axis=places)

    return [x, y], te.compute((3, 2, 3, 3), tap, name="d")


@pytest.mark.share(7)
@pytest.mark.parametrize("level", LEVELS_HERE)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
@pytest.mark.parametrize("kind", ["products", "batches", "weighted", "largest", "windows", "steps"])
def test_many_terms_of_few_elements_are_turned(kind: str, dtype: str, level: str) -> None:
    """Their lanes were two or three elements of the result, or the taps of a window: ten times slower."""
    inputs, d = few_by_few(kind, dtype)
    text = str(te.Schedule(d).auto(target="x86-64-v3"))
    assert "d_x[" in text
    assert "lane_v" in text
    feeds = {t: np.random.default_rng(3).integers(-3, 4, [int(n) for n in t.shape]).astype(dtype) for t in inputs}
    found = te.build(inputs, d, target=level)(*feeds.values())
    np.testing.assert_array_equal(found, te.interpret(d, feeds))


def test_what_fills_vectors_as_it_lies_is_not_turned() -> None:
    x, y = te.placeholder((900, 3), name="x"), te.placeholder((3, 900), name="y")
    z = te.placeholder((900, 5), name="z")
    for d in (
        te.compute((3,), lambda i: te.sum(lambda k: x[k, i]), name="d"),
        te.compute((3,), lambda i: te.sum(lambda k: y[i, k]), name="d"),
        te.compute((3, 5), lambda i, j: te.sum(lambda k: te.exp(x[k, i]) - z[k, j]), name="d"),
    ):
        assert "d_x[" not in str(te.Schedule(d).auto())


PAIRS: dict[str, Callable[[te.Tensor, te.Tensor], te.Tensor]] = {
    "distances": lambda a, b: te.compute((70, 64), lambda i, j: te.sum(lambda k: abs(a[i, k] - b[k, j]))),
    "squares": lambda a, b: te.compute((70, 64), lambda i, j: te.sum(lambda k: (a[i, k] - b[k, j]) ** 2)),
    "least sums": lambda a, b: te.compute((70, 64), lambda i, j: te.min(lambda k: a[i, k] + b[k, j])),
    "quotients": lambda a, b: te.compute((70, 64), lambda i, j: te.sum(lambda k: a[i, k] / (a[i, k] + b[k, j]))),
}


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("lies", ["along", "across", "broadcast"])
@pytest.mark.parametrize("name", PAIRS)
def test_rows_that_are_compared_with_others_are_summed_in_tiles(name: str, lies: str, target: str) -> None:
    """Lanes along the terms gathered what lies across them: 503 rows by 256 of 300 terms took 25 times as long."""
    a, b = te.placeholder((70, 300), name="a"), te.placeholder((300, 64) if lies == "along" else (64, 300), name="b")
    if lies == "broadcast":
        x, y = a[:, None], b[None]
        spelled = {"distances": abs(x - y), "squares": (x - y) ** 2, "least sums": x + y, "quotients": x / (x + y)}
        output = spelled[name].min(2) if name == "least sums" else spelled[name].sum(2)
    else:
        turned = te.compute((300, 64), lambda k, j: b[j, k], name="turned")
        output = PAIRS[name](a, b if lies == "along" else turned)
    s = te.Schedule(output).auto(target=target)
    text = str(s)
    assert re.search(r"for i_i < \d, unrolled", text) or (lies, name) == ("broadcast", "quotients")
    assert output.op.name not in s.regrouped or (lies, name) == ("broadcast", "quotients")
    feeds = {a: CHANCE.integers(-4, 5, a.shape).astype("f4"), b: CHANCE.integers(9, 12, b.shape).astype("f4")}
    found, want = te.build([a, b], output)(*feeds.values()), te.interpret(output, feeds)
    np.testing.assert_allclose(found, want, rtol=0 if name != "quotients" else 1e-5)


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4"])
def test_rows_of_unknown_length_are_compared_along_memory(target: str) -> None:
    """What is compared was stored element by element of the cube, 17 ms instead of 0.8 for 503 by 256 of 300 terms."""
    n, m, q = te.var("n"), te.var("m"), te.var("q")
    a, b = te.placeholder((n, m), name="a"), te.placeholder((q, m), name="b")
    output = abs(a[:, None] - b[None]).sum(2)
    text = str(te.Schedule(output).auto(target=target))
    assert "lane" not in text
    assert f"{output.op.name}_b[" in text
    x, y = (CHANCE.integers(-4, 5, shape).astype("f4") for shape in ((20, 33), (17, 33)))
    np.testing.assert_array_equal(te.build([a, b], output)(x, y), te.interpret(output, {a: x, b: y}))


def test_blocks_of_unknown_sums_and_what_they_leave_over_do_not_store_their_terms() -> None:
    n, m, q = te.var("n"), te.var("m"), te.var("q")
    a, b = te.placeholder((n, m), name="a"), te.placeholder((q, m), name="b")
    difference = a[:, None] - b[None]
    output = (difference * te.tanh(difference)).sum(0)
    text = str(te.Schedule(output).auto(target="x86-64-v4"))
    assert "output_partial" in text
    assert not re.search(r"^ +(mul|tanh)\[", text, re.MULTILINE)


def test_what_is_summed_in_tiles_is_read_where_it_is_stored() -> None:
    """Of the parts of a sum, and of tiles that are copied, each reader would have summed its own."""
    y = te.placeholder((40, 40), name="y")
    for k in range(4):
        y = te.compute((40, 40), lambda i, j, y=y, k=k: te.sum(lambda r: y[i, r] * te.tanh(y[r, j] * (k + 1.0)) / 9))  # type: ignore[misc]
    text = str(te.Schedule(y).auto(target="x86-64-v4"))
    assert "_window[i, j] = 0.0" in text
    assert "_partial[i, lane] = 0.0" in text
    sums = [line.partition("+=")[2] for line in text.splitlines() if "+=" in line]
    assert not [value for value in sums if "_window[" in value or "_partial[" in value]


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4"])
def test_two_narrow_axes_do_not_change_places_for_ever(target: str) -> None:
    x = te.placeholder((700,), name="x")
    window = te.compute((6, 7), lambda i, j: te.sum(lambda k: x[i + j + k], axis=600), name="window")
    parity = te.compute((5, 7), lambda i, j: te.all(lambda k: (i + k) % 2 == 0, axis=300), name="parity")
    for output in (window, parity):
        assert str(te.Schedule(output).auto(target=target))
    values = CHANCE.integers(-4, 5, 700).astype("f4")
    np.testing.assert_array_equal(te.build([x], window)(values), te.interpret(window, {x: values}))
    np.testing.assert_array_equal(te.evaluate(parity), te.interpret(parity, {}))
