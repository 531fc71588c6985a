"""A schedule as code, undone in parts, and beside another one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import tedsl as te
from autodiff.strategies import programs
from schedules.default import Machine
from tedsl.backend.comparison import Comparison, _difference
from tests.schedules.drawing import Drawing

MACHINE = Machine(vector_bytes=32, vector_registers=16, l1=1 << 15, l2=1 << 20, l3=1 << 23, cores=2).to_json()


def product(n: int = 48) -> tuple[list[te.Tensor], te.Tensor, te.Tensor]:
    A, B = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    k = te.reduce_axis(n, "k")
    C = te.compute((n, n), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    D = te.compute((n, n), lambda i, j: te.maximum(C[i, j], 0.0) + A[j, i], name="D")
    return [A, B], C, D


def run(schedule: te.Schedule) -> te.Schedule:
    """The schedule that its code makes, where the outputs have their names."""
    scope: dict[str, Any] = {"outputs": list(schedule.outputs), **{t.name: t for t in schedule.outputs}}
    exec(schedule.code(), scope)
    made = scope["s"]
    assert isinstance(made, te.Schedule)
    return made


def same(made: te.Schedule, schedule: te.Schedule) -> None:
    assert made.directives == schedule.directives
    assert str(made) == str(schedule)
    assert made.stages == schedule.stages
    assert (made.plan.finite, made.plan.complete, made.plan.made) == (
        schedule.plan.finite, schedule.plan.complete, schedule.plan.made
    )  # fmt: skip


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_code_makes_the_schedule_again(data: st.DataObject) -> None:
    program = data.draw(programs(stages=3))
    drawing = Drawing(data.draw(st.integers(0, 2**32 - 1)), [program.outputs[-1]])
    for _ in range(data.draw(st.integers(1, 12))):
        drawing.step()
    same(run(drawing.schedule), drawing.schedule)


@pytest.mark.parametrize("n", [8, 256])
def test_the_default_schedule_is_code_of_real_directives(n: int) -> None:
    _, _, D = product(n)
    s = te.Schedule(D).auto(machine=MACHINE)
    verbs = [d.verb for d in s.directives]
    assert verbs.count("auto") == 1
    assert {"split", "vectorize"} <= set(verbs)
    same(run(s), s)


def test_code_reads_as_a_person_writes_it() -> None:
    _, C, D = product()
    s = te.Schedule(D)
    io, jo, ii, ji = s[D].tile("i", "j", 8, 16)
    s[D].vectorize(ji).parallel(io)
    local = s[C].cache_write()
    s[C].compute_at(D, jo)
    local.compute_at(C, "i")
    local.init.vectorize("j", 8)
    assert s.code() == (
        "import tedsl as te\n\n"
        "s = te.Schedule(D)\n"
        "s['D'].split('i', 8, names=('io', 'ii'))\n"
        "s['D'].split('j', 16, names=('jo', 'ji'))\n"
        "s['D'].reorder('io', 'jo', 'ii', 'ji').vectorize('ji').parallel('io')\n"
        "s['C'].cache_write('C_local')\n"
        "s['C'].compute_at('D', 'jo')\n"
        "s['C_local'].compute_at('C', 'i')\n"
        "s['C_local'].init.split('j', 8, names=('j', 'jv'))\n"
        "s['C_local'].init.vectorize('jv')\n"
    )
    same(run(s), s)
    assert te.Schedule([C, D]).code("t").endswith("\nt = te.Schedule([C, D])\n")
    assert te.Schedule(D).auto("mullapudi2016").code().endswith("\ns.auto('mullapudi2016')\n")


def test_outputs_without_names_of_their_own_are_a_list() -> None:
    x = te.placeholder((4,), name="x")
    twice = [te.compute((4,), lambda i, c=c: x[i] + c, name="y") for c in (1, 2)]
    assert "te.Schedule(outputs)" in te.Schedule(twice).code()
    odd = te.Schedule(te.compute((4,), lambda i: x[i], name="d loss/dx"))
    odd["d loss/dx"].vectorize("i", 4)
    assert "te.Schedule(outputs)" in odd.code()


def test_files_from_before_directives_had_more_fields_are_read(tmp_path: Path) -> None:
    _, _, D = product()
    s = te.Schedule(D).auto(machine=MACHINE)
    s.save(tmp_path / "s.json")
    data = json.loads((tmp_path / "s.json").read_text())
    assert data["directives"][0].pop("loops") is False
    data["directives"] = data["directives"][:1]  # all there was, once
    (tmp_path / "s.json").write_text(json.dumps(data))
    same(te.Schedule.load(tmp_path / "s.json", D), s)


def test_a_directive_is_taken_back() -> None:
    _, C, D = product()
    s = te.Schedule(D)
    s[D].vectorize("j", 8).parallel("i")
    vector = next(d for d in s.directives if d.verb == "vectorize")
    less = s.without(vector)
    assert [d.verb for d in less.directives] == ["split", "parallel"]
    assert s.without("parallel").directives == s.directives[:2]
    assert s.without(D).directives == s.without("D").directives == ()
    assert len(s.directives) == 3
    split = s.directives[0]
    with pytest.raises(te.ScheduleError, match=r"a later directive needs it.*vectorize\('jv'\)"):
        s.without(split)
    with pytest.raises(te.ScheduleError, match="was not given; directives of D: s"):
        less.without(vector)
    with pytest.raises(te.ScheduleError, match=r"no directive or stage 'paralel'.*did you mean 'parallel'"):
        s.without("paralel")  # codespell:ignore paralel


def test_what_a_rewrite_added_goes_with_it() -> None:
    _, C, D = product()
    s = te.Schedule(D)
    local = s[C].cache_write()
    local.rfactor(local.split("k", 8)[0]).compute_at(local, "i")
    s[D].parallel("i")
    assert [d.verb for d in s.without("cache_write").directives] == ["parallel"]
    assert s.without(C).stages == te.Schedule(D).stages
    assert s.without("C_local_rf").stages == [*s.stages]


def test_a_loop_of_the_default_schedule_is_replaced() -> None:
    inputs, _, D = product()
    s = te.Schedule(D).auto(machine=MACHINE)
    less = s.without("D")
    less["D"].vectorize("j", 4).parallel("i")
    assert "for jv < 4, vectorized" in str(less)
    assert less["C"].loops == s["C"].loops
    arrays = [np.arange(48 * 48, dtype=np.float32).reshape(48, 48) % k for k in (5, 7)]
    found = te.build(inputs, D, schedule=less)(*arrays)
    np.testing.assert_array_equal(found, np.maximum(arrays[0] @ arrays[1], 0) + arrays[0].T)


def test_two_schedules_side_by_side() -> None:
    inputs, C, D = product()
    arrays = [np.random.default_rng(k).standard_normal((48, 48)).astype(np.float32) for k in range(2)]
    feeds = dict(zip(inputs, arrays, strict=True))
    s, other = te.Schedule(D), te.Schedule(D)
    s[D].parallel("i")
    other[C].rfactor(other[C].split("k", 8)[0])
    found = s.compare(other, feeds)
    assert found.seconds > 0 < found.other_seconds
    assert "+for i < 48, parallel:" in found.loops
    assert "a call, the other" in repr(found)
    assert found.results[0].elements == 48 * 48
    assert found.results[0].largest < 1e-4
    assert s.compare(s, feeds).is_same
    assert "the same bits" in str(s.compare(s.copy(), feeds))
    assert "<table" in found._repr_html_()
    assert s.compare(other, {"B": arrays[1], inputs[0]: arrays[0]}).results == found.results
    with pytest.raises(ValueError, match=r"found none for B; give feeds=\{'B': array\}"):
        s.compare(other, {inputs[0]: arrays[0]})
    with pytest.raises(TypeError, match=r"maps inputs to arrays, \{'A': array, 'B': array\}, found list"):
        s.compare(other, arrays)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no input named 'C', but 'A', 'B'"):
        s.compare(other, {"C": arrays[0]})
    with pytest.raises(te.ScheduleError, match="expected a schedule of the same tensors, D, found one of C"):
        s.compare(te.Schedule(C), feeds)


def test_a_verdict_of_speed_follows_from_the_times_that_are_told() -> None:
    def text(*turns: float) -> str:
        return str(Comparison(2e-3, 1e-3, turns, (), "")).splitlines()[0]

    assert text(0.5, 0.6) == "2 ms a call, the other 1 ms: the other is 2.00 times as fast as this one"
    assert text(0.5, 1.25).endswith("as this one, but 0.80 to 2.00 times in single turns")
    assert Comparison(2e-3, 1e-3, (0.5,), (), "").ratio == 0.5


def test_a_difference_of_results_is_counted_and_placed() -> None:
    a = np.array([[1.0, np.nan, 3.0], [4.0, 5.0, 6.0]], np.float32)
    b = a.copy()
    assert str(_difference("y", a, b)) == "y: the same bits"
    b[0, 2], b[1, 1] = 3.5, 7.0
    expected = "y: 2 of 6 elements differ, by 2 at most; the first is y[0, 2]"
    assert str(_difference("y", a, b)) == expected


def test_code_names_sizes_of_sums_alone_and_unrolls_sums_of_nothing() -> None:
    n, m = te.var("n"), te.var("m")
    x = te.placeholder((m,), name="x")
    R = te.compute((m,), lambda i: te.sum(lambda k: te.select(i % 2 == 0, x[i], 1.0), axis=te.reduce_axis(n, "k")))
    none = te.compute((n, n), lambda i, j: te.sum(lambda k: te.select(i % 2 == 0, 1, j), axis=te.reduce_axis(0, "k")))
    for out in (R, none):
        s = te.Schedule(out.named("R2")).auto(machine=MACHINE)
        assert set(s.plan.sizes) <= {"n", "m"}
        same(run(s), s)
    assert set(te.Schedule(R).plan.sizes) == {"n", "m"}
