"""Printed schedules tell what runs: how much of a stage is computed where, and which stages have no loops yet."""

from __future__ import annotations

import re
import tracemalloc
from collections.abc import Callable
from textwrap import dedent
from typing import Any

import pytest

import tedsl as te
from schedules.written.boxes import Boxes
from tests.schedules.counting import stored

MODES = ("clamp", "zero", "wrap", "reflect")
SIZE = (26, 24)


def source() -> tuple[te.Tensor, te.Tensor]:
    image = te.placeholder(SIZE, name="image")
    return image, te.compute(SIZE, lambda i, j: image[i, j] * 2, name="rows")


def strips(mode: str, factor: int = 8, at: str = "io", **options: Any) -> tuple[te.Tensor, te.Schedule]:
    """A stage that is read four rows before and behind, in strips."""
    image, rows = source()
    shape = (22, 24)
    out = te.compute(shape, lambda i, j: rows.at(i - 4, j, mode=mode) + rows.at(i + 4, j, mode=mode), name="out")
    s = te.Schedule(out)
    s[out].split("i", factor, **options)
    s[rows].compute_at(out, at)
    return image, s


def stacked(change: Callable[[te.Schedule], object], mode: str) -> tuple[te.Tensor, te.Schedule]:
    """Windows over windows, in tiles."""
    image, rows = source()
    mid = te.compute(SIZE, lambda i, j: rows.at(i, j - 1, mode=mode) + rows.at(i, j + 1, mode=mode), name="mid")
    out = te.compute(SIZE, lambda i, j: mid.at(i - 1, j, mode=mode) * mid.at(i + 1, j, mode=mode), name="out")
    s = te.Schedule(out)
    s[out].tile("i", "j", 8, 10)
    change(s)
    return image, s


def read_by(read: Callable[[te.Tensor], Callable[..., Any]], shape: tuple[int, ...]) -> tuple[te.Tensor, te.Schedule]:
    image, rows = source()
    out = te.compute(shape, read(rows), name="out")
    s = te.Schedule(out)
    s[out].split("i", 8)
    s[rows].compute_at(out, "io")
    return image, s


def fused() -> tuple[te.Tensor, te.Schedule]:
    image, s = read_by(lambda rows: lambda i, j: rows[2 * i, j] + rows[i, j] + rows[25 - i, j], (13, 24))
    s = te.Schedule(s.outputs)
    loop = s["out"].fuse("i", "j")
    s["out"].split(loop, 30)
    s["rows"].compute_at("out", s["out"].loops[0])
    return image, s


def agree(image: te.Tensor, s: te.Schedule) -> list[bool]:
    """Whether Halide stores as many elements of each stage computed in a loop; it may be fewer where that is said."""
    inside = [name for name, step in s.plan.places.items() if step.directive.verb == "compute_at"]
    assert inside
    for name in inside:  # without vectors, of which the last one has lanes that nobody needs
        s[name].never_partition(s[name].loops[0])
    program = te.build(image, s.outputs[0], schedule=s).source("stmt")
    found, boxes = stored(program), Boxes(s.plan)
    exact = []
    for name in inside:
        count = boxes.count(name)
        assert count.total is not None
        assert found[name] == count.total or (not all(count.exact) and found[name] <= count.total), (name, str(s))
        exact.append(all(count.exact))
    return exact


@pytest.mark.parametrize("tail", ["", "guard", "shift"])
@pytest.mark.parametrize("factor", [4, 8, 11])
@pytest.mark.parametrize("mode", MODES)
def test_strips_compute_what_is_said_of_them(mode: str, factor: int, tail: str) -> None:
    image, s = strips(mode, factor, **({"tail": tail} if tail else {}))
    is_read_everywhere = mode in ("clamp", "reflect") or (
        mode == "zero" and factor > 4
    )  # the first four rows need none
    assert agree(image, s) == [is_read_everywhere]


@pytest.mark.parametrize("mode", MODES[:3])
@pytest.mark.parametrize("change", [
    lambda s: (s["mid"].compute_at("out", "jo"), s["rows"].compute_at("out", "jo")),
    lambda s: (s["mid"].compute_inline(), s["rows"].compute_at("out", "jo")),
    lambda s: (s["mid"].compute_at("out", "jo"), s["rows"].compute_at("mid", "i")),
    lambda s: (s["mid"].compute_at("out", "ii"), s["rows"].compute_at("out", "jo")),
    lambda s: (s["mid"].compute_at("out", "jo").split("i", 3), s["rows"].compute_at("mid", "io")),
], ids=["beside", "inline", "within", "deeper", "within strips"])  # fmt: skip
def test_stages_of_stages_compute_what_is_said_of_them(change: Callable[[te.Schedule], object], mode: str) -> None:
    agree(*stacked(change, mode))


@pytest.mark.parametrize("mode", ["clamp", "zero"])
def test_a_stage_that_is_left_to_the_default_schedule_is_looked_through(mode: str) -> None:
    assert agree(*stacked(lambda s: s["rows"].compute_at("out", "jo"), mode)) == [True]


@pytest.mark.parametrize(("read", "shape"), [
    (lambda rows: lambda i, j: rows[2 * i, j] + rows[2 * i + 1, j], (13, 24)),
    (lambda rows: lambda i, j: rows[2 * i, j] + rows[i, j] + rows[25 - i, j], (13, 24)),
    (lambda rows: lambda i, j: rows[i // 2, j] + rows.at((i + 1) // 2, j, mode="clamp"), (52, 24)),
    (lambda rows: lambda i, j: te.sum(lambda k, m: rows[i + k, j + m] * (k - m)), (24, 20)),
    (lambda rows: lambda i, j: te.select(i < 10, rows[i, j], 1.0), SIZE),
    (lambda rows: lambda i, j: te.select(i >= 10, rows[i - 10, j], 1.0), (36, 24)),
    (lambda rows: lambda i, j: te.select(i + j < 10, rows[i, j], 1.0), SIZE),
])  # fmt: skip
def test_other_reads(read: Callable[[te.Tensor], Callable[..., Any]], shape: tuple[int, ...]) -> None:
    agree(*read_by(read, shape))


def test_fused_loops() -> None:
    assert agree(*fused()) == [True]


def test_the_usual_stencil_prints_what_it_computes() -> None:
    _, s = strips("clamp")
    expected = """\
        for io < 3:
          rows: what out needs here, each element 1.62 times
          for i < 12 to 16 of 26:
            for j < 24:
              rows[i, j] = image[i, j] * 2.0
        """
    assert str(s).startswith(dedent(expected))


def test_mirrored_reads_print_as_they_were_written() -> None:
    _, s = strips("reflect")
    assert "out[i, j] = rows.at(i - 4, j, mode='reflect') + rows.at(i + 4, j, mode='reflect')" in str(s.copy().auto())
    assert "rows.at(i - 4, j, mode='reflect')" in str(s)


def test_what_goes_round_is_at_most_all() -> None:
    _, s = strips("wrap")
    assert "rows: what out needs here, each element at most 3 times\n  for i < at most 26:\n    for j < 24:" in str(s)


def test_sizes_that_are_no_numbers() -> None:
    n = te.var("n")
    image = te.placeholder((n, 8), name="image")
    rows = te.compute((n, 8), lambda i, j: image[i, j] * 2, name="rows")
    held = te.compute((n, 8), lambda i, j: rows.at(i - 4, j, mode="clamp") + rows.at(i + 4, j, mode="clamp"), name="o")
    turned = te.compute((n, 8), lambda i, j: rows.at(i - 4, j, mode="wrap"), name="o")
    for out, said in ((held, "here\n  for i < at most 23 of n"), (turned, "run time only\n  for i < at most n")):
        s = te.Schedule(out)
        s[out].split("i", 15)
        s[rows].compute_at(out, "io")
        assert f"{said}:\n    for j < 8:" in str(s)
    assert "rows: what o needs here, how much is known at run time only" in str(s)


def test_large_loops_take_little_memory_to_print() -> None:
    A = te.placeholder((4098, 8194), name="A")
    b = te.compute((4098, 8192), lambda i, j: A[i, j] + A[i, j + 2], name="b")
    c = te.compute((4096, 8192), lambda i, j: b.at(i - 1, j - 1, mode="clamp") * b[i + 1, j] + b[i, j], name="c")
    d = te.compute((4096, 8192), lambda i, j: c.at(i - 1, j - 3, mode="clamp") + c[i, j], name="d")
    tiles, row = te.Schedule(d), te.Schedule(d)
    tiles[d].tile("i", "j", 32, 64)
    tiles[c].compute_at(d, "ii")
    tiles[b].compute_at(c, "j")
    loop = row[d].fuse("i", "j")
    row[c].compute_at(d, loop)
    row[b].compute_at(d, loop)
    tracemalloc.start()
    try:
        said = str(tiles), str(row)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 50e6
    assert "b: what c needs here, each element 12.5 times\n          for i < 2 to 3 of 4098:" in said[0]
    assert "for i < at most 2 of 4096:" in said[1]


@pytest.mark.parametrize("extent", [0, 1])
def test_stages_with_nothing_to_compute(extent: int) -> None:
    A = te.placeholder((extent, 4), name="A")
    b = te.compute((extent, 4), lambda i, j: A[i, j] * 2, name="b")
    s = te.Schedule(te.compute((extent, 4), lambda i, j: b[i, j] + b.at(i, j - 1, mode="zero"), name="c"))
    s["b"].compute_at("c", "i")
    assert "b: what c needs here" in str(s)


def detailed(image: te.Tensor | None = None, rows: te.Tensor | None = None) -> te.Schedule:
    """Two stages that one reads, one of them through another stage."""
    if image is None or rows is None:
        image, rows = source()
    blurred = te.compute(SIZE, lambda i, j: rows.at(i - 1, j, mode="clamp") + rows[i, j], name="blurred")
    detail = te.compute(SIZE, lambda i, j: image[i, j] - blurred[i, j], name="detail")
    return te.Schedule(te.compute(SIZE, lambda i, j: detail[i, j] * 20 + blurred[i, j], name="out"))


def test_what_is_left_to_the_default_schedule_has_no_loops() -> None:
    s = detailed()
    s["out"].split("j", 8)
    s["blurred"].compute_at("out", "jo")
    assert str(s) == dedent("""\
        rows: left to the default schedule
          rows[i, j] = image[i, j] * 2.0   for i < 26, j < 24
        detail: left to the default schedule
          detail[i, j] = image[i, j] - blurred[i, j]   for i < 26, j < 24
        for i < 26:
          for jo < 3:
            blurred: what out needs here
            for i < 1 of 26:
              for j < 8 of 24:
                blurred[i, j] = rows.at(i - 1, j, mode='clamp') + rows[i, j]
            for ji < 8:
              j = jo*8 + ji
              out[i, j] = detail[i, j] * 20.0 + blurred[i, j]
        left to the default schedule: rows, detail (.auto() shows its loops)
        vectors by default: blurred along j""")
    page = re.sub(r"<[^>]*>", "", s._repr_html_())
    assert "detail: left to the default schedule" in page


def test_vectors_by_default_are_those_of_the_kernel() -> None:
    image, rows = source()
    out = te.compute((26,), lambda i: te.sum(lambda k: rows[i, k]), name="out")
    s = te.Schedule(out)
    s[out].split("i", 8)
    s[rows].compute_at(out, "io")
    assert str(s).splitlines()[-1] == "vectors by default: rows along j, out.init along i"
    lines = [line.strip() for line in te.build(image, out, schedule=s).loop_nest().splitlines()]
    found = {line.split(" in ")[0] for line in lines if line.startswith("vectorized")}
    assert found == {"vectorized j.j_v", "vectorized i.i_v"}
    s[rows].never_partition("j")
    s[out].init.never_partition("i")
    assert "vectors" not in str(s)
    assert "vectorized" not in te.build(image, out, schedule=s).loop_nest()


def test_a_schedule_that_says_nothing_says_so() -> None:
    s = detailed()
    lines = str(s).splitlines()
    assert [line for line in lines if line.startswith("for ")] == []
    assert lines[-1] == "left to the default schedule: rows, blurred, detail, out (.auto() shows its loops)"
    assert "left to" not in str(s.auto())


def test_differences_have_a_mark_where_lines_are_left_out() -> None:
    s = detailed()
    other = s.copy()
    for each in (s, other):
        for name in each.stages:
            each[name].compute_root()
    s["rows"].vectorize("j", 8)
    s["out"].parallel("i")
    found = s.diff(other).splitlines()
    assert found.count(" ...") == 1
    begin, end = found[: found.index(" ...")], found[found.index(" ...") :]
    assert "+  for jo < 3:" in begin
    assert "+for i < 26, parallel:" in end
    assert te.Schedule(s.outputs).diff(te.Schedule(s.outputs)) == ""


def test_a_schedule_that_cannot_be_built_yet_says_why() -> None:
    image, rows = source()
    s = detailed(image, rows)
    s["rows"].compute_at("blurred", "i")
    assert "cannot" not in str(s)
    s["blurred"].compute_inline()
    *_, last = str(s).splitlines()
    assert last.startswith("cannot be built yet: s['rows'].compute_at('blurred', 'i'), at ")
    assert last.endswith(": blurred is computed inline and has no loops; compute it somewhere")
    with pytest.raises(te.ScheduleError) as raised:
        te.build(image, s.outputs[0], schedule=s)
    assert str(raised.value) in last
    s["blurred"].compute_root()
    assert "cannot" not in str(s)


def test_the_default_schedule_says_that_axes_may_be_one() -> None:
    pixels = te.placeholder((64, 32, 3), name="pixels")
    s = te.Schedule(te.compute((64, 32, 3), lambda i, j, c: pixels[i, j, c] * 2, name="out")).auto()
    assert str(s).endswith("te.build may make one axis of several before: kernel.loop_nest() shows the loops that run")
    s["out"].never_partition("j")
    assert "one axis" not in str(s)


@pytest.mark.parametrize("shape", [(3, 56), (8, 8), (2, 3), (1, 5), (16, 9)])
def test_reflected_reads_print_as_they_were_written(shape: tuple[int, int]) -> None:
    x = te.placeholder(shape, name="x")
    reads = [(1, -1), (-1, 1), (2, 2), (0, -shape[1]), (-2, 0)]
    for down, right in reads:
        y = te.compute(shape, lambda i, j: x.at(i + down, j + right, mode="reflect"), name="y")  # noqa: B023
        (read,) = re.findall(r"x(?:\.at\([^=]*mode='reflect'\)|\[[^]]*\])", str(y))
        printed = str(te.Schedule(y))
        assert read in printed
        assert "abs(" not in printed


def test_what_is_mirrored_by_hand_along_one_axis_is_printed_whole() -> None:
    x = te.placeholder((8, 8), name="x")
    y = te.compute((7, 8), lambda i, j: x[i + 1, 7 - te.abs(7 - (j - 1) % 14)], name="y")
    assert "x[i + 1, 7 - abs(7 - (j - 1) % 14)]" in str(y)
    assert "abs(" in str(te.Schedule(y)) or "mode='reflect'" not in str(te.Schedule(y))
