"""The trace of a schedule against loops written by hand; the animation's moments against the steps."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest

import tedsl as te

image = te.placeholder((8, 12), name="image")
rows = te.compute((8, 12), lambda i, j: image.at(i - 1, j, mode="clamp") + image[i, j], name="rows")


def test_tiles_vectors_and_threads() -> None:
    s = te.Schedule(rows)
    s[rows].tile("i", "j", 4, 4)
    s[rows].vectorize("ji").parallel("io")
    found = te.display.trace(s)
    assert found.count == 3 * 4  # tiles across, rows of one
    assert found.computed.steps == {
        (i, j): [4 * (j // 4) + i % 4] for i in range(8) for j in range(12)
    }  # both halves at once
    (read,) = found.read
    for i in range(8):
        readers = sorted({4 * (j // 4) + r % 4 for j in [5] for r in range(8) if i in (max(r - 1, 0), r)})
        assert read.steps[i, 5] == readers
    assert repr(found) == "Trace of rows: 96 elements in 12 steps, reading image"


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        (lambda v: v.fuse("i", "j"), lambda i, j: 12 * i + j),
        (lambda v: v.reorder("j", "i"), lambda i, j: 8 * j + i),
        (lambda v: v.split("j", 5), lambda i, j: 12 * i + j),  # a rest that is guarded takes no step
        (lambda v: v.vectorize("j", 5), lambda i, j: 3 * i + j // 5),
        (lambda v: v.unroll("j"), lambda i, j: 12 * i + j),
    ],
)
def test_the_order_of_one_directive(schedule: Any, expected: Any) -> None:
    s = te.Schedule(rows)
    schedule(s[rows])
    steps = te.display.trace(s, "rows").computed.steps
    assert steps == {(i, j): [expected(i, j)] for i in range(8) for j in range(12)}


def test_a_tail_that_is_shifted_computes_twice() -> None:
    s = te.Schedule(rows)
    s[rows].split("j", 5, tail="shift")
    steps = te.display.trace(s).computed.steps
    assert [len(steps[0, j]) for j in range(12)] == [1] * 7 + [2] * 3 + [1] * 2


def test_sums_symbols_and_stages() -> None:
    n = te.var("n")
    a, b = te.placeholder((n, 3), name="a"), te.placeholder((3, 2), name="b")
    c = a @ b
    d = te.exp(c)
    s = te.Schedule(d)
    found = te.display.trace(s, c, sizes={n: 4})
    assert found.computed.steps[1, 1] == [9, 10, 11]
    assert {v.tensor.name: v.shape for v in found.read} == {"a": (4, 3), "b": (3, 2)}
    assert te.display.trace(s, sizes={n: 4}).stage == "d"
    total = te.display.trace(te.Schedule(d.sum()), sizes={n: 2})
    assert total.computed.steps == {(): [0, 1, 2, 3]}
    assert "computed: " in total._repr_html_()


def test_each_cell_is_lit_at_its_steps() -> None:
    s = te.Schedule(rows)
    found = te.display.trace(s)
    html = found._repr_html_()
    assert len(html) < 100_000
    assert "<script" not in html
    drawn = [ElementTree.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", html)]
    assert len(drawn) == 2
    for svg, visits in zip(drawn, [found.computed, *found.read]):
        lit = [list(g) for g in svg if g.tag == "g"]
        assert len(lit) == 96
        for (_, text, now), place in zip(lit, [(i, j) for i in range(8) for j in range(12)]):
            (animate,) = now
            moments = [float(m) for m in animate.attrib["keyTimes"].split(";")]
            values = animate.attrib["values"].split(";")
            assert moments[0] == 0
            assert moments == sorted(set(moments))
            assert int(text.text or "") == visits.steps[place][0]
            at = [
                step
                for step in range(found.count)
                if values[max(k for k, m in enumerate(moments) if m <= (step + 0.5) / found.count)] == "1"
            ]
            assert at == visits.steps[place]


def test_what_cannot_be_traced_is_told() -> None:
    large = te.exp(te.placeholder((1000,)))
    line = te.placeholder((4,))
    scan = te.scan((4,), lambda y, t: te.select(t == 0, line[0], y[t - 1] + line[t]))
    n = te.var("n")
    with pytest.raises(TypeError, match=r"te.display.trace at .*expected a te.Schedule, found int"):
        te.display.trace(3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at most 256 elements and 4096 iterations, found 1000"):
        te.display.trace(te.Schedule(large))
    with pytest.raises(TypeError, match=r"expected a stage made by te.compute.*found scan, a scan"):
        te.display.trace(te.Schedule(scan))
    with pytest.raises(te.ScheduleError, match="there is no stage 'nope'"):
        te.display.trace(te.Schedule(large), "nope")
    with pytest.raises(ValueError, match=r"pass sizes=\{n: ...\}"):
        te.display.trace(te.Schedule(te.exp(te.placeholder((n,)))))
