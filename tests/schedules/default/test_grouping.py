"""Small results that belong together share a kernel; nothing else does, and the order stays one that can be run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import tedsl as te
from schedules.cutting import grouping, joining
from schedules.cutting.cuts import PlanPart
from tedsl.backend.compiling.compilation import Compilation
from tedsl.backend.host.targets import parse_target
from tedsl.backend.scheduling.planner import Planner
from tedsl.backend.sequence.steps import finest
from tests.arrays import floats

pytestmark = pytest.mark.usefixtures("cut_everywhere")

HOST = parse_target("host")
N = 96  # sums over columns are small, N x N numbers are not


def names(inputs: list[te.Tensor], outputs: list[te.Tensor], least: int = 2, **options: bool) -> list[list[str]]:
    """The results of the parts, in their order."""
    return [[t.name for t in part.outputs] for part in cut(inputs, outputs, least, **options)]


def cut(inputs: list[te.Tensor], outputs: list[te.Tensor], least: int = 2, **options: bool) -> list[PlanPart]:
    return Planner(**options).parts(inputs, outputs, HOST, least)[1]


def large(x: te.Tensor, name: str) -> te.Tensor:
    """Reads whole rows and columns, so that neither x nor what it makes is computed inside its readers."""
    return te.compute((N, N), lambda i, j: te.sum(lambda k: x[i, k] * te.tanh(x[k, j]) / N), name=name)


def sums(x: te.Tensor, name: str, power: int = 1) -> te.Tensor:
    return te.compute((N,), lambda i: te.sum(lambda k: x[k, i] ** power), name=name)


def spread(x: te.Tensor, *others: te.Tensor, name: str) -> te.Tensor:
    """A large tensor made of one and of small ones."""
    return te.compute((N, N), lambda i, j: te.sum(lambda k: x[k, j] * sum(o[i] + o[k] for o in others)), name=name)


def mixed(tensors: list[te.Tensor], name: str) -> te.Tensor:
    """A small tensor made of small ones."""
    return te.compute((N,), lambda i: te.sum(lambda k: te.tanh(sum(t[k] for t in tensors) + tensors[0][i])), name=name)


def normal(x: te.Tensor, name: str) -> te.Tensor:
    """As of a normalisation: two moments, what is made of them, and all elements by that."""
    mean, square, twice = sums(x, f"{name}_mean"), sums(x, f"{name}_square", 2), te.reduce_axis(2, "twice")
    scale = te.compute(
        (N,),
        lambda i: te.sum(te.rsqrt(square[i] - mean[i] * mean[i] + N) * te.cast(twice, "float32"), axis=twice),
        name=f"{name}_scale",
    )
    return spread(x, mean, scale, name=name)


def test_the_moments_of_a_batch_share_a_kernel_and_layers_stay_alike() -> None:
    x = te.placeholder((N, N), name="x")
    h = large(x, "h")
    first = normal(h, "a")
    second = normal(large(first, "g"), "b")
    found = cut([x], [second])
    assert [[t.name for t in p.outputs] for p in found] == [
        ["h"], ["a_mean", "a_scale"], ["a"], ["g"], ["b_mean", "b_scale"], ["b"],
    ]  # fmt: skip
    assert [p.digest for p in found[1:3]] == [p.digest for p in found[4:]]
    assert [len(p.outputs) for p in cut([x], [second], least=1)] == [1, 2, 1, 1, 1, 2, 1, 1]  # two sums in one walk


def test_what_is_alike_is_compiled_once_and_called_often() -> None:
    x, w = te.placeholder((8,), name="x"), te.placeholder((8, 8), name="w")
    h: Any = x
    for step in range(6):
        h = te.compute((8,), lambda i, h=h: te.sum(lambda k: w[k, i] * te.tanh(h[k])), name=f"h{step}")
    found = cut([x, w], [h])
    assert len(found) == 6
    assert len({p.digest for p in found}) == 1


def test_what_a_third_kernel_stands_between_is_not_joined() -> None:
    x = te.placeholder((N, N), name="x")
    h = large(x, "h")
    a = sums(h, "a")
    middle = spread(h, a, name="middle")
    b = te.compute((N,), lambda i: te.sum(lambda k: middle[k, i] * a[k]), name="b")
    assert names([x], [spread(middle, b, name="end")]) == [["h"], ["a"], ["middle"], ["b"], ["end"]]


def test_what_many_read_is_not_joined_to_one_of_them() -> None:
    x = te.placeholder((N, N), name="x")
    h = large(x, "h")
    a = sums(h, "a")
    readers = [
        te.compute(
            (N,),
            lambda i, p=p: te.sum(lambda k: te.exp(a[k] - a[i] * p), axis=te.reduce_axis(N - 16 * p)),
            name=f"r{p}",
        )
        for p in range(6)  # over loops of their own
    ]
    assert ["a"] in names([x], [h, *readers])
    assert ["a", "r0", "r1", "r2"] in names([x], [h, *readers[: joining.FEW]])


def test_a_result_that_may_be_written_over_an_input_is_on_its_own() -> None:
    x, p = te.placeholder((N, N), name="x"), te.placeholder((N,), name="p")
    h = large(x, "h")
    slope = te.compute((N,), lambda i: te.sum(lambda k: te.tanh(h[k, i] + p[k])), name="slope")
    moved = te.compute((N,), lambda i: te.sum(lambda k: te.tanh(p[i] - slope[k])), name="moved")
    assert names([x, p], [h, moved]) == [["h"], ["moved"]]
    assert names([x, p], [h, moved], is_over=True) == [["h"], ["slope"], ["moved"]]
    square = te.compute((N,), lambda i: te.sum(lambda k: te.tanh(slope[k] + slope[i])), name="square")
    assert names([x, p], [h, square]) == [["h"], ["square"]]


def test_extents_that_are_not_known_are_not_small() -> None:
    n = te.var("n")
    x = te.placeholder((n,), name="x")
    a = te.compute((n,), lambda i: te.sum(lambda k: te.tanh(x[k] * x[i])), name="a")
    b = te.compute((n,), lambda i: te.sum(lambda k: te.tanh(a[k] * a[i])), name="b")
    assert names([x], [b]) == [["a"], ["b"]]


@st.composite
def graphs(draw: st.DrawFn) -> tuple[te.Tensor, list[te.Tensor]]:
    """x, and stages each of which reads some before it, small and large ones."""
    x = te.placeholder((N, N), name="x")
    wide, narrow = [large(x, "h")], []
    for k in range(draw(st.integers(2, 9))):
        source = draw(st.sampled_from(wide))
        others = draw(st.lists(st.sampled_from(narrow), max_size=2, unique_by=id)) if narrow else []
        if others and draw(st.booleans()):
            wide.append(spread(source, *others, name=f"w{k}"))
        elif others:
            narrow.append(mixed(others, f"n{k}"))
        else:
            narrow.append(sums(source, f"s{k}", draw(st.integers(1, 3))))
    return x, [wide[-1], *narrow]


@given(graphs())
def test_each_part_comes_after_what_it_reads(graph: tuple[te.Tensor, list[te.Tensor]]) -> None:
    x, outputs = graph
    found, made = cut([x], outputs), {x}
    for part in found:
        assert set(part.inputs) <= made
        made.update(part.outputs)
    assert made.issuperset(found[0].plan.program.outputs)
    assert len(found) <= len(cut([x], outputs, least=1))
    assert max(len(p.plan.program.stages) for p in found) <= 16


@pytest.mark.usefixtures("cut_everywhere")
def test_joined_kernels_give_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    x = te.placeholder((N, N), name="x")
    outputs = [normal(normal(large(x, "h"), "a"), "b")]
    kern = te.build([x], outputs)
    apart = finest(Compilation((x,), tuple(outputs), "apart", HOST, Planner()))
    assert len(kern.program.calls) < len(apart.plan.steps)
    (found,) = kern(a := floats(N, N))
    monkeypatch.setattr(grouping, "SMALL", 0)
    (want,) = te.build([x], [outputs[0] + 0.0], name="other")(a)
    np.testing.assert_array_equal(found, want)


@pytest.mark.usefixtures("cut_everywhere")
def test_donated_inputs_are_written_over_as_before() -> None:
    """A step of gradient descent: what is joined reads the parameter that another kernel updates in place."""
    x, p = te.placeholder((N, N), name="x"), te.placeholder((N,), name="p")
    loss = te.compute((), lambda: te.sum(lambda i: spread(large(x, "h"), p, name="y")[i, i]), name="loss")
    (slope,) = te.differentiate(loss, [p])
    moved = te.compute((N,), lambda i: p[i] - 0.1 * slope[i], name="moved")
    kern = te.build([x, p], [loss, moved], donate=[p])
    want = te.evaluate([loss, moved], {x: (a := floats(N, N)), p: (b := floats(N))})
    for found, expected in zip(kern(a, b.copy()), want, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_nothing_is_joined_where_a_proof_asks_for_loops_of_their_own() -> None:
    x = te.placeholder((N, N), name="x")
    outputs = [normal(large(x, "h"), "a")]
    for merged, count in ((True, 3), (False, 5)):
        assert len(Planner(merged=merged).parts([x], outputs, HOST, 2)[1]) == count


def adam_step(shape: tuple[int, ...], x: te.Tensor, p: te.Tensor) -> tuple[list[te.Tensor], list[te.Tensor]]:
    loss = te.compute((), lambda: te.sum(lambda i: spread(large(x, "h"), p, name="y")[i, i]), name="loss")
    (slope,) = te.differentiate(loss, [p])
    mean, square = (te.placeholder(shape, name=n) for n in ("mean", "square"))
    count = te.placeholder((), "int32", name="count")
    news = te.ops.optim.adam_step(p, slope, mean, square, count)
    return [x, p, mean, square, count], [loss, *news]


def test_small_results_of_an_optimizer_share_a_kernel_unless_they_may_be_written_over_its_inputs() -> None:
    x, p = te.placeholder((N, N), name="x"), te.placeholder((N,), name="p")
    inputs, outputs = adam_step((N,), x, p)
    together = ["p_mean_square", "p_mean_square_1", "p_mean_square_2"]
    assert together in names(inputs, outputs)
    assert [n for n in names(inputs, outputs, is_over=True) if set(n) & set(together)] == [together]
    in_place = te.build(inputs, outputs, donate=[p, *inputs[2:4]], name="in_place")
    arrays = [floats(N, N), *(np.abs(floats(N)) for _ in range(3)), np.array(4, "int32")]
    want = te.build(inputs, outputs, name="plain")(*arrays)
    given = [a.copy() for a in arrays]
    found = in_place(*given)
    assert in_place.stats.copies == []
    for new, expected in zip(found, want, strict=True):
        np.testing.assert_allclose(new, expected, rtol=1e-5)
    assert {new.ctypes.data for new in found[1:]} == {old.ctypes.data for old in given[1:4]}
