"""The schedule of GPU kernels without one: what each pattern makes of a program, in PTX and on an OpenCL device."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tedsl as te
from tedsl.backend.host.targets import device_problem, parse_target
from tests.opencl import DEVICE, on_opencl, optimised

N = te.var("n")
A, INDEX = te.placeholder((N, 8, 3), name="A"), te.placeholder((N,), "int32", name="index")


def network(y: Any, t: Any, i: Any) -> Any:
    k = te.reduce_axis(8, "k")
    return te.select(t == 0, A[0, i, 0], te.tanh(te.sum(y[t - 1, k], axis=k)) + A[t, i, 0])


def programs() -> dict[str, Any]:
    k, j, m = te.reduce_axis(N, "k"), te.reduce_axis(8, "j"), te.reduce_axis(3, "m")
    return {
        "four axes": te.compute((N, 8, 3, 2), lambda a, b, c, d: te.exp(A[a, b, c]) + d),
        "no axes": te.compute((), lambda: A[0, 0, 0] * 2),
        "reduction": te.compute((N,), lambda i: te.argmax(A[i, j, m], axis=(j, m))),
        "gather": te.compute((N, 8), lambda a, b: A[INDEX[a], b, 0]),
        "scatter of rows": te.scatter((7, 8), [k, j], (INDEX[k], j), A[k, j, 0]),
        "scatter": te.scatter((7,), [k], (INDEX[k],), A[k, 0, 0]),
        "scan": te.scan((N, 8), lambda y, t, i: te.select(t == 0, 0.0, y[t - 1, i] + A[t, i, 0]), axis=0),
        "network": te.scan((N, 8), network, axis=0),
    }


@pytest.mark.parametrize("construct", programs())
def test_every_construct_compiles_for_cuda(construct: str) -> None:
    kern = te.build([A, INDEX], programs()[construct], target="cuda")
    assert ".visible .entry" in kern.source("ptx")
    assert "gpu_block" in kern.loop_nest()


X, Y, ROWS = te.placeholder((96, 40), name="X"), te.placeholder((40, 80), name="Y"), te.placeholder((5, 100), name="R")
IMAGE, WEIGHTS = te.placeholder((2, 3, 20, 20), name="image"), te.placeholder((20, 3, 3, 3), name="weights")
LINE, TOKENS = te.placeholder((20_000,), name="line"), te.placeholder((9,), "int32", name="tokens")


def matmul() -> te.Tensor:
    return te.compute((96, 80), lambda i, j: te.sum(lambda k: X[i, k] * Y[k, j]), name="C")


def convolution() -> te.Tensor:
    return te.compute(
        (2, 20, 18, 18),
        lambda n, o, y, x: te.sum(lambda c, u, v: IMAGE[n, c, y + u, x + v] * WEIGHTS[o, c, u, v]),
        name="conv",
    )


def row_sums() -> te.Tensor:
    return te.compute((5,), lambda i: te.sum(lambda k: ROWS[i, k]), name="sums")


def total() -> te.Tensor:
    return te.compute((), lambda: te.sum(lambda k: LINE[k]), name="total")


def square(y: te.Tensor) -> te.Tensor:
    axes = [te.reduce_axis(e, f"a{d}") for d, e in enumerate(y.shape)]
    return te.compute((), lambda: te.sum(y[tuple(axes)] * y[tuple(axes)], axis=tuple(axes)), name="loss")


def gradients() -> dict[str, tuple[list[te.Tensor], list[te.Tensor]]]:
    """Inputs and outputs of programs whose gradients take every pattern."""
    shifts = te.compute(ROWS.shape, lambda i, j: te.exp(ROWS[i, j] - te.max(lambda k: ROWS[i, k])), name="shifted")
    softmax = te.compute(ROWS.shape, lambda i, j: shifts[i, j] / te.sum(lambda k: shifts[i, k]), name="softmax")
    looked_up = te.compute((9, 40), lambda i, j: X[TOKENS[i], j], name="embedding")
    sums = te.scan((5, 100), lambda y, t, i: te.select(t == 0, 0.0, y[t - 1, i] * 0.5) + te.sin(ROWS[t, i]), axis=0)
    return {
        "matmul": ([X, Y], list(te.differentiate(square(matmul()), [X, Y]))),
        "convolution": ([IMAGE, WEIGHTS], list(te.differentiate(square(convolution()), [IMAGE, WEIGHTS]))),
        "softmax": ([ROWS], list(te.differentiate(square(softmax), [ROWS]))),
        "embedding": ([X, TOKENS], list(te.differentiate(square(looked_up), [X]))),
        "scan": ([ROWS], list(te.differentiate(square(sums), [ROWS]))),
    }


def values(tensor: te.Tensor) -> np.ndarray[Any, Any]:
    rng, shape = np.random.default_rng(0), [int(e) for e in tensor.shape]
    if tensor.dtype == "int32":
        return rng.integers(0, 96, shape).astype("int32")
    return rng.standard_normal(shape).astype("float32")


def agree(inputs: list[te.Tensor], outputs: list[te.Tensor]) -> None:
    """Results on an OpenCL device are those of the reference, but for the order of float sums."""
    feeds = {t: values(t) for t in inputs}
    with optimised():
        found = te.build(inputs, outputs, target=DEVICE)(*feeds.values())
    for got, want in zip(found, te.interpret(outputs, feeds), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4 * np.abs(want).max())


@pytest.mark.parametrize("program", gradients())
def test_gradients_compile_for_cuda(program: str) -> None:
    inputs, outputs = gradients()[program]
    text = te.build(inputs, outputs, target="cuda").source("ptx")
    assert ".visible .entry" in text
    assert ".local" not in text


@pytest.mark.parametrize("program", gradients())
@on_opencl
def test_gradients_on_opencl(program: str) -> None:
    agree(*gradients()[program])


@on_opencl
def test_patterns_on_opencl() -> None:
    agree([X, Y, IMAGE, WEIGHTS, ROWS, LINE], [matmul(), convolution(), row_sums(), total()])


def loop_bodies(ptx: str) -> list[str]:
    """The instructions from each label to a branch back to it."""
    return [m.group(0) for m in re.finditer(r"(\$L__BB\w+):(?:(?!\n\$L__BB).|\n)*?bra\s+\1;", ptx)]


def test_a_matrix_product_keeps_a_tile_in_registers() -> None:
    """Four terms at a time: 4 x (4 + 4) operands, side by side in shared memory, for 4 x 16 products."""
    kern = te.build([X, Y], matmul(), target="cuda")
    ptx = kern.source("ptx")
    (body,) = (b for b in loop_bodies(ptx) if "fma.rn.f32" in b)
    loads = re.findall(r"\sld\.(\S*)", body)
    assert (body.count("fma.rn.f32"), loads) == (64, ["shared.v4.b32"] * 8)
    assert "st." not in body
    assert ".local" not in ptx
    assert [b.count("ld.global") for b in loop_bodies(ptx) if "st.shared" in b] == [1, 1]
    assert "C_X_shared" in kern.loop_nest()


def test_a_matrix_product_of_sizes_that_are_not_known_reads_its_operands_itself() -> None:
    P, Q = te.placeholder((96, N), name="P"), te.placeholder((N, 80), name="Q")
    C = te.compute((96, 80), lambda i, j: te.sum(lambda k: P[i, k] * Q[k, j]), name="C")
    bodies = loop_bodies(te.build([P, Q], C, target="cuda").source("ptx"))
    assert bodies
    for body in bodies:  # of one term, or of several
        multiplied = body.count("fma.rn.f32")
        assert multiplied % 16 == 0
        assert len(re.findall(r"ld\.global\S*", body)) == multiplied // 2
        assert "shared" not in body


PLANES = te.placeholder((3, 37, 50), name="planes")


def stencils() -> dict[str, te.Tensor]:
    """Stages that read what their neighbours read too: by modes, by taps, with steps, over what is inlined."""
    u, v = te.reduce_axis(3, "u"), te.reduce_axis(3, "v")
    doubled = te.compute(PLANES.shape, lambda c, y, x: PLANES[c, y, x] * 2, name="doubled")
    cross = te.compute(
        (3, 35, 48), lambda c, y, x: doubled[c, y, x + 1] + doubled[c, y + 1, x] - doubled[c, y + 2, x + 2]
    )
    return {
        "clamp": te.compute(
            PLANES.shape,
            lambda c, y, x: (
                PLANES.at(c, y - 1, x, mode="clamp") + PLANES[c, y, x] - PLANES.at(c, y, x + 2, mode="clamp")
            ),
            name="clamped",
        ),
        "zero": te.compute(
            PLANES.shape, lambda c, y, x: te.sum(PLANES.at(c, y + u - 1, x - v, mode="zero"), axis=(u, v)), name="zero"
        ),
        "step": te.compute(
            (3, 18, 24), lambda c, y, x: te.max(PLANES[c, 2 * y + u, 2 * x + v], axis=(u, v)), name="pool"
        ),
        "mirrored": te.compute((48,), lambda x: PLANES[0, 0, 49 - x] + PLANES[0, 0, 48 - x] * PLANES[0, 0, 47 - x]),
        "inlined": te.compute(cross.shape, lambda c, y, x: te.relu(cross[c, y, x]), name="relu"),
    }


@pytest.mark.parametrize("stencil", stencils())
def test_a_stencil_reads_a_copy_in_shared_memory(stencil: str) -> None:
    kern = te.build([PLANES], stencils()[stencil], target="cuda")
    ptx = kern.source("ptx")
    assert ptx.count(".visible .entry") == 1
    assert "st.shared" in ptx
    assert "bar.sync" in ptx
    assert len(re.findall(r"ld\.global\.\S*[bf]32", ptx)) == 1  # of each thread, in turns
    assert ".local" not in ptx


@on_opencl
def test_stencils_on_opencl() -> None:
    agree([PLANES], list(stencils().values()))


def test_a_copy_does_not_hide_an_index_out_of_bounds() -> None:
    """It would repeat the last element there."""
    beyond = te.compute((50,), lambda x: PLANES[0, 0, x] + PLANES[0, 0, x + 1] + PLANES[0, 0, x + 2], name="beyond")
    with pytest.raises(IndexError, match="beyond"):
        te.build([PLANES], beyond, target="cuda")


def test_the_threads_of_a_row_meet_in_shared_memory() -> None:
    ptx = te.build([ROWS], row_sums(), target="cuda").source("ptx")
    assert ptx.count(".visible .entry") == 1
    assert "st.shared" in ptx
    assert "ld.shared" in ptx
    assert "bar.sync" in ptx or "barrier" in ptx
    assert "ld.shared" not in "".join(b for b in loop_bodies(ptx) if "ld.global" in b)


def test_rows_with_an_axis_of_one_behind_them_are_the_rows_of_a_block() -> None:
    """As the maximum of softmax has it: eight threads would sum the same row."""
    kept = te.compute((5, 1), lambda i, j: te.max(lambda k: ROWS[i, k + j]), name="top")
    nest = te.build([ROWS], kept, target="cuda").loop_nest()
    assert "gpu_thread i.i_i in [0, 7]" in nest
    assert "gpu_block i.i_block" in nest


def test_loops_of_a_few_leave_the_threads_to_the_others() -> None:
    wide, narrow = te.placeholder((70, 50), name="wide"), te.placeholder((500, 3), name="narrow")
    for x, threads in (wide, "[0, 7]"), (narrow, "[0, 63]"):
        nest = te.build([x], te.compute(x.shape, lambda i, j, x=x: x[i, j] * 2), target="cuda").loop_nest()
        assert f"i_thread in {threads}" in nest


def test_taps_are_no_side_of_a_tile() -> None:
    """The gradient by the weights of a layer: channels by channels, the sum over all pixels cut into blocks."""
    pixels, weights = te.placeholder((4, 16, 40, 70), name="x"), te.placeholder((24, 16, 3, 3), name="w")
    layer = te.ops.conv2d(pixels, weights)
    head = te.placeholder(layer.shape, name="head")
    (grad,) = te.differentiate(layer, [weights], head=head)
    nest = te.build([pixels, head], grad, target="cuda").loop_nest()
    assert "_block_total" in nest


def scattered() -> dict[str, tuple[list[te.Tensor], te.Tensor]]:
    """Points that meet: a row of numbers each, alone; into what is there; by two reads."""
    i, j = te.reduce_axis(3000, "i"), te.reduce_axis(5, "j")
    at, x = te.placeholder((3000,), "int32", name="at"), te.placeholder((3000, 5), name="x")
    place = at[i] % 7
    rows = te.scatter((7, 5), axes=[i, j], index=(place, j), value=x[i, j])
    bins = te.scatter((7,), axes=[i], index=(place,), value=te.const(1, "int32"))
    first = te.placeholder((7,), name="first")
    largest = te.scatter((7,), axes=[i], index=(place,), value=x[i, 0], op="max", init=first)
    table, u = te.placeholder((40,), name="table"), te.placeholder((60, 50), name="u")
    mixed = te.compute(u.shape, lambda a, b: table[place_of(u, a, b)] * 0.3 + table[place_of(u, a, b) + 1] * 0.7)
    head = te.placeholder(u.shape, name="head")
    (grad,) = te.differentiate(mixed, [table], head=head)
    return {"rows": ([at, x], rows), "bins": ([at], bins), "max": ([at, x, first], largest), "two": ([u, head], grad)}


def place_of(u: te.Tensor, a: Any, b: Any) -> Any:
    return te.clip(te.cast(te.floor(u[a, b] * 40), "int32"), 0, 38)


@pytest.mark.parametrize("program", scattered())
def test_a_scatter_is_cut_into_blocks(program: str) -> None:
    inputs, output = scattered()[program]
    nest = te.build(inputs, output, target="cuda").loop_nest()
    assert nest.count("_table:") >= 1
    assert "gpu_thread" in nest


@pytest.mark.parametrize("program", scattered())
@on_opencl
def test_blocks_of_a_scatter_on_opencl(program: str) -> None:
    inputs, output = scattered()[program]
    agree(inputs, [output])


def test_more_blocks_than_a_launch_takes_along_its_second_loop_are_one_loop() -> None:
    """65535, along all but the innermost; sizes that are not known may be as large."""
    tall = te.placeholder((600_000, 40), name="tall")
    unknown = te.placeholder((N, 40), name="unknown")
    for x, count in (tall, 1), (unknown, 1), (X, 2):
        nest = te.build([x], te.compute(x.shape, lambda i, j, x=x: x[i, j] * 2), target="cuda").loop_nest()
        assert nest.count("gpu_block") == count


@on_opencl
def test_the_steps_of_a_scan_are_launches() -> None:
    """By the default and by hand: each reads what its neighbours were before."""
    X = te.placeholder((6, 5, 40), name="X")
    y = te.scan(
        X.shape,
        lambda y, t, i, j: (
            te.select(t == 0, 0.0, (y.at(t - 1, i - 1, j, mode="zero") + y[t - 1, i, 39 - j]) / 2) + X[t, i, j]
        ),
        name="y",
    )
    by_hand = te.Schedule(y)
    by_hand[y].gpu_blocks("i").gpu_threads("j")
    x = values(X)
    for schedule in None, by_hand:
        kern = te.build(X, y, schedule=schedule, target=DEVICE)
        nest = kern.loop_nest()
        assert nest.index("for t") < nest.index("gpu_block")
        np.testing.assert_allclose(kern(x), te.interpret(y, {X: x}), rtol=1e-5)


def test_a_large_sum_is_cut_into_blocks() -> None:
    kern = te.build([LINE], total(), target="cuda")
    assert "produce total_row_block" in kern.loop_nest()
    assert kern.source("ptx").count(".visible .entry") == 3


@on_opencl
def test_a_condition_that_reads_memory_is_not_asked_beyond_the_last_term() -> None:
    """Also where nothing but the extent, not known before the call, keeps the condition's element in bounds."""
    n, m = te.var("n"), te.var("m")
    A, B, bins = te.placeholder((n, 70), name="A"), te.placeholder((3, m)), te.placeholder((4,), "uint8", name="bins")
    k, r = te.reduce_axis(70, "k"), te.reduce_axis(n, "r")
    known = te.compute((n,), lambda i: te.sum(A[i, k], axis=k, where=A[i, 69 - k] > 0), name="known")
    given = te.compute((3,), lambda i: te.sum(B[i, 0], axis=r, where=B[bins[r], 3 - r] > B[i, 0]), name="given")
    rng = np.random.default_rng(0)
    feeds = {A: rng.normal(size=(3, 70)).astype("f4"), B: rng.normal(size=(3, 4)).astype("f4")}
    feeds[bins] = np.array([2, 0, 1, 9], np.uint8)
    found = te.build(list(feeds), [known, given], target=DEVICE)(*feeds.values())
    for got, want in zip(found, te.interpret([known, given], feeds), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5)


@on_opencl
def test_components_and_stages_of_one_name() -> None:
    """OpenCL's name for component 1 of T is T_1."""
    A, k = te.placeholder((40,), name="A"), te.reduce_axis(3, "k")
    last = te.reducer(lambda a, b: (te.maximum(a[0], b[0]), b[1]), (-1e9, 0.0))
    first, second = te.compute((38,), lambda i: last((A[i + k], A[i + k] * 2), axis=k), name="T")
    sums = te.compute((38,), lambda i: te.sum(first[37 - i] * second[37 - i] * A[k + i], axis=k), name="T_1")
    a = np.arange(40, dtype=np.float32)
    got = te.build([A], sums, target=DEVICE)(a)
    np.testing.assert_array_equal(got, te.interpret(sums, {A: a}))


def test_opencl_knows_double_precision() -> None:
    product = te.compute((N, 8), lambda i, j: te.cast(A[i, j, 0], "float64") * 2)
    assert "double" in te.build([A], product, target="opencl").source("opencl")


@on_opencl
def test_arrays_that_run_backwards_are_copied() -> None:
    """No memory of a GPU runs backwards; gaps between the elements of a result stay as they are."""
    twice = te.compute(X.shape, lambda i, j: X[i, j] * 2, name="twice")
    kern, given, gaps = te.build(X, twice, target="opencl"), values(X), np.ones((192, 40), "f4")
    np.testing.assert_array_equal(kern(given[::-1]), given[::-1] * 2)
    reason = "axis 0 runs backwards, which no GPU's memory can"
    assert kern.stats.copies == [("X", reason)]
    out = np.ones((96, 40), "f4")[::-1]
    kern(given, out=out, mode="add")
    np.testing.assert_array_equal(out, given * 2 + 1)
    assert ("twice", reason) in kern.stats.copies
    kern(given, out=gaps[::2])
    np.testing.assert_array_equal(gaps[::2], given * 2)
    assert (gaps[1::2] == 1).all()


def test_a_call_without_a_driver_says_what_is_missing() -> None:
    kern = te.build([A], te.compute((N,), lambda i: A[i, 0, 0] + 1), target="cuda")
    a = np.ones((4, 8, 3), "f4")
    if device_problem(parse_target("cuda").text) is None:
        np.testing.assert_array_equal(kern(a), a[:, 0, 0] + 1)
    else:
        with pytest.raises(RuntimeError, match="build it with target='host'"):
            kern(a)


@on_opencl
def test_memory_may_be_freed_between_calls() -> None:
    x = np.arange(8, dtype="f4")
    X = te.placeholder((8,), name="X")
    kernel = te.build(X, te.compute((8,), lambda i: X[i] * 2), target=DEVICE)
    for _ in range(2):
        np.testing.assert_array_equal(kernel(x), 2 * x)
        te.free_device_memory()
